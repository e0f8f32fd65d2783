//! Algebraic identities: instructions that equal one of their operands, a constant or a cheaper instruction.

use smallvec::smallvec;

use super::super::edit::{Editor, Rewrite};
use super::eval::{greatest, least};
use super::{operands, with_constant};
use crate::ir::{Binary, Compare, Def, InstData, Op, Type, Unary, Value};

const NOT: Op = Op::Unary(Unary::Not);

/// Applies the first identity that matches the instruction.
pub(super) fn simplify(editor: &mut Editor<'_>, data: &InstData) -> Option<Rewrite> {
    match data.op {
        Op::Unary(unary) => unary_rule(editor, data, unary),
        Op::Binary(_) if data.ty.is_float() => float_binary(editor, data),
        Op::Binary(binary) => same_operands(data, binary).or_else(|| int_binary(editor, data, binary)),
        // Targets before sm_90 have no bfloat16 arithmetic except fused multiply-add.
        Op::MulAdd if matches!(data.ty, Type::Bf16 | Type::Bf16x2) => None,
        Op::MulAdd if data.ty.is_float() => float_mul_add(editor, data),
        Op::MulAdd => int_mul_add(editor, data),
        Op::MulWide => mul_wide(editor, data),
        Op::Compare(compare) if data.ty.is_int() => int_compare(editor, data, compare),
        Op::Select => select(editor, data),
        Op::Convert { saturate: false, .. } => convert(editor, data),
        Op::Bitcast => bitcast(editor, data),
        Op::PtrAdd => (editor.function.constant(data.args[1])? == 0).then(|| Rewrite::value(data.args[0])),
        Op::Unpack => Some(Rewrite::Values(operands(editor, data.args[0], Op::Pack)?.into_iter().collect())),
        Op::Pack => pack(editor, data),
        Op::Funnel { left } => {
            let amount = editor.function.constant(data.args[2])? & 31;
            (amount == 0).then(|| Rewrite::value(data.args[usize::from(left)]))
        }
        Op::Prmt => match editor.function.constant(data.args[2])? & 0xffff {
            0x3210 => Some(Rewrite::value(data.args[0])),
            0x7654 => Some(Rewrite::value(data.args[1])),
            _ => None,
        },
        Op::Dp4a { .. } | Op::Dp2a { .. } => {
            let zero = data.args[..2].iter().any(|&arg| editor.function.constant(arg) == Some(0));
            zero.then(|| Rewrite::value(data.args[2]))
        }
        _ => None,
    }
}

fn unary_rule(editor: &mut Editor<'_>, data: &InstData, unary: Unary) -> Option<Rewrite> {
    let inner = editor.function.defining_inst(data.args[0])?;
    match (unary, inner.op) {
        (Unary::Not | Unary::Neg | Unary::Brev, op) if op == data.op => {
            let same = data.ty.is_int() || data.ty == Type::Pred || is_arithmetic(editor, inner.args[0]);
            same.then(|| Rewrite::value(inner.args[0]))
        }
        // With a NaN, an ordered comparison and its inverse are both false; `eq` and `ne` are always opposites.
        (Unary::Not, Op::Compare(compare))
            if inner.ty.is_int() || matches!(compare, Compare::Eq | Compare::Ne) =>
        {
            Some(Rewrite::Into(Op::Compare(compare.inverted()), inner.ty, inner.args.clone()))
        }
        _ => None,
    }
}

fn same_operands(data: &InstData, binary: Binary) -> Option<Rewrite> {
    if data.args[0] != data.args[1] {
        return None;
    }
    match binary {
        Binary::Sub | Binary::Xor => Some(Rewrite::constant(data.ty, 0)),
        Binary::And | Binary::Or | Binary::Min | Binary::Max => Some(Rewrite::value(data.args[0])),
        _ => None,
    }
}

/// Simplifies an operation on integers or predicates with a constant right operand.
fn int_binary(editor: &mut Editor<'_>, data: &InstData, binary: Binary) -> Option<Rewrite> {
    let (ty, x, all) = (data.ty, data.args[0], data.ty.mask());
    let c = editor.function.constant(data.args[1])?;
    let log2 = c.is_power_of_two().then(|| u64::from(c.trailing_zeros()));
    let (low, high) = if ty.is_int() { (least(ty) as u64 & all, greatest(ty) as u64) } else { (0, 1) };
    let into = |binary, right| Some(Rewrite::into(Op::Binary(binary), ty, &[x, right]));
    match binary {
        Binary::Add | Binary::Or | Binary::Xor | Binary::Shl | Binary::Shr if c == 0 => {
            Some(Rewrite::value(x))
        }
        Binary::Mul | Binary::Div if c == 1 => Some(Rewrite::value(x)),
        Binary::And if c == all => Some(Rewrite::value(x)),
        Binary::Mul | Binary::And if c == 0 => Some(Rewrite::constant(ty, 0)),
        Binary::MulHi if c == 0 => Some(Rewrite::constant(ty, 0)),
        Binary::Rem if c == 1 => Some(Rewrite::constant(ty, 0)),
        Binary::Or if c == all => Some(Rewrite::constant(ty, all)),
        Binary::Shl if c >= ty.bits().into() => Some(Rewrite::constant(ty, 0)),
        Binary::Shr if c >= ty.bits().into() && ty.is_unsigned() => Some(Rewrite::constant(ty, 0)),
        Binary::Min if c == high => Some(Rewrite::value(x)),
        Binary::Max if c == low => Some(Rewrite::value(x)),
        Binary::Min if c == low => Some(Rewrite::constant(ty, c)),
        Binary::Max if c == high => Some(Rewrite::constant(ty, c)),
        Binary::Xor if c == all => Some(Rewrite::into(NOT, ty, &[x])),
        Binary::Mul if c == all => Some(Rewrite::into(Op::Unary(Unary::Neg), ty, &[x])),
        Binary::Sub => {
            let negative = editor.constant(ty, c.wrapping_neg());
            into(Binary::Add, negative)
        }
        Binary::Mul => {
            let amount = editor.constant(Type::U32, log2?);
            into(Binary::Shl, amount)
        }
        Binary::Div if ty.is_unsigned() => {
            let amount = editor.constant(Type::U32, log2?);
            into(Binary::Shr, amount)
        }
        Binary::Rem if ty.is_unsigned() && log2.is_some() => {
            let mask = editor.constant(ty, c - 1);
            into(Binary::And, mask)
        }
        _ => None,
    }
}

fn float_binary(editor: &mut Editor<'_>, data: &InstData) -> Option<Rewrite> {
    let Op::Binary(binary) = data.op else { return None };
    let (ty, x) = (data.ty, data.args[0]);
    let c = editor.function.constant(data.args[1])?;
    let neutral = match binary {
        Binary::Add => Some(c) == minus_zero(ty),
        Binary::Sub => c == 0,
        Binary::Mul | Binary::Div => Some(c) == one(ty),
        _ => false,
    };
    match binary {
        _ if neutral => is_arithmetic(editor, x).then(|| Rewrite::value(x)),
        Binary::Div if ty == Type::F32 => {
            // The reciprocal of a power of two is exact, so quotient and product round the same number.
            let divisor = f32::from_bits(c as u32);
            let reciprocal = 1.0 / divisor;
            let power_of_two = divisor.is_normal() && reciprocal.is_normal() && c & 0x7f_ffff == 0;
            let reciprocal = power_of_two.then(|| editor.constant(ty, reciprocal.to_bits().into()))?;
            Some(Rewrite::into(Op::Binary(Binary::Mul), ty, &[x, reciprocal]))
        }
        _ => None,
    }
}

/// Whether the value is a result of arithmetic whose NaNs all have the same bits, so that an operation with its neutral
/// element leaves them unchanged; the operation would change the bits of other NaNs. In f64, NaNs keep the bits of operands.
fn is_arithmetic(editor: &Editor<'_>, value: Value) -> bool {
    let Some(data) = editor.function.defining_inst(value) else { return false };
    match data.op {
        Op::Binary(Binary::CopySign) => false,
        _ if data.ty == Type::F64 => false,
        Op::Unary(_) | Op::Binary(_) | Op::MulAdd | Op::ConvertPack => true,
        // Conversion from bfloat16 to a wider type keeps the bits of a NaN.
        Op::Convert { .. } => {
            let from = editor.function.value_type(data.args[0]);
            from != data.ty && from != Type::Bf16
        }
        _ => false,
    }
}

fn one(ty: Type) -> Option<u64> {
    match ty {
        Type::F32 => Some(0x3f80_0000),
        Type::F64 => Some(1f64.to_bits()),
        Type::F16 => Some(0x3c00),
        Type::Bf16 => Some(0x3f80),
        Type::F16x2 => Some(0x3c00_3c00),
        Type::Bf16x2 => Some(0x3f80_3f80),
        _ => None,
    }
}

fn minus_zero(ty: Type) -> Option<u64> {
    match ty {
        Type::F16x2 | Type::Bf16x2 => Some(0x8000_8000),
        _ if ty.is_float() => Some(1 << (ty.bits() - 1)),
        _ => None,
    }
}

fn float_mul_add(editor: &mut Editor<'_>, data: &InstData) -> Option<Rewrite> {
    let (ty, [a, b, c]) = (data.ty, [data.args[0], data.args[1], data.args[2]]);
    if editor.function.constant(b) == one(ty) {
        return Some(Rewrite::into(Op::Binary(Binary::Add), ty, &[a, c]));
    }
    // Only adding a negative zero preserves the sign of a zero product.
    let exact = editor.function.constant(c)? == minus_zero(ty)?;
    exact.then(|| Rewrite::into(Op::Binary(Binary::Mul), ty, &[a, b]))
}

fn int_mul_add(editor: &mut Editor<'_>, data: &InstData) -> Option<Rewrite> {
    let (ty, [a, b, c]) = (data.ty, [data.args[0], data.args[1], data.args[2]]);
    if editor.function.constant(c) == Some(0) {
        return Some(Rewrite::into(Op::Binary(Binary::Mul), ty, &[a, b]));
    }
    let factor = editor.function.constant(b)?;
    let product = match (factor, editor.function.constant(a)) {
        (0, _) => return Some(Rewrite::value(c)),
        (1, _) => a,
        (_, Some(a)) => editor.constant(ty, a.wrapping_mul(factor)),
        _ => return None,
    };
    Some(Rewrite::into(Op::Binary(Binary::Add), ty, &[product, c]))
}

fn mul_wide(editor: &mut Editor<'_>, data: &InstData) -> Option<Rewrite> {
    let wide = editor.function.value_type(data.results[0]);
    match editor.function.constant(data.args[1])? {
        0 => Some(Rewrite::constant(wide, 0)),
        1 => {
            let op = Op::Convert { rounding: crate::ir::Rounding::Zero, saturate: false };
            Some(Rewrite::into(op, wide, &data.args[..1]))
        }
        _ => None,
    }
}

fn int_compare(editor: &mut Editor<'_>, data: &InstData, compare: Compare) -> Option<Rewrite> {
    let (ty, a, b) = (data.ty, data.args[0], data.args[1]);
    let always = |holds: bool| Some(Rewrite::constant(Type::Pred, holds.into()));
    if a == b {
        return always(matches!(compare, Compare::Eq | Compare::Le | Compare::Ge));
    }
    let c = editor.function.constant(b)?;
    let (low, high) = (least(ty) as u64 & ty.mask(), greatest(ty) as u64);
    match compare {
        Compare::Lt if c == low => always(false),
        Compare::Ge if c == low => always(true),
        Compare::Gt if c == high => always(false),
        Compare::Le if c == high => always(true),
        Compare::Eq | Compare::Ne => {
            let (x, summand) = with_constant(editor, a, Op::Binary(Binary::Add))?;
            let right = editor.constant(ty, c.wrapping_sub(summand));
            Some(Rewrite::into(data.op, ty, &[x, right]))
        }
        _ => None,
    }
}

fn select(editor: &mut Editor<'_>, data: &InstData) -> Option<Rewrite> {
    let (ty, [p, a, b]) = (data.ty, [data.args[0], data.args[1], data.args[2]]);
    if a == b {
        return Some(Rewrite::value(a));
    }
    if let Some(condition) = editor.function.constant(p) {
        return Some(Rewrite::value(if condition != 0 { a } else { b }));
    }
    if let Some(inner) = operands(editor, p, NOT) {
        return Some(Rewrite::into(Op::Select, ty, &[inner[0], b, a]));
    }
    if let (Some(a), Some(b)) = (editor.function.constant(a), editor.function.constant(b))
        && a == b
    {
        return Some(Rewrite::constant(ty, a));
    }
    // PTX cannot select between predicates.
    (ty == Type::Pred).then(|| select_predicate(editor, [p, a, b]))
}

fn select_predicate(editor: &mut Editor<'_>, [p, a, b]: [Value; 3]) -> Rewrite {
    let (and, or) = (Op::Binary(Binary::And), Op::Binary(Binary::Or));
    let pred = Type::Pred;
    match (editor.function.constant(a), editor.function.constant(b)) {
        (Some(1), Some(0)) => Rewrite::value(p),
        (Some(0), Some(1)) => Rewrite::into(NOT, pred, &[p]),
        (_, Some(0)) => Rewrite::into(and, pred, &[p, a]),
        (Some(1), _) => Rewrite::into(or, pred, &[p, b]),
        (a_constant, b_constant) => {
            let not = editor.insert(NOT, pred, &[p]);
            if a_constant == Some(0) {
                return Rewrite::into(and, pred, &[not, b]);
            }
            if b_constant == Some(1) {
                return Rewrite::into(or, pred, &[not, a]);
            }
            let left = editor.insert(and, pred, &[p, a]);
            let right = editor.insert(and, pred, &[not, b]);
            Rewrite::into(or, pred, &[left, right])
        }
    }
}

fn convert(editor: &mut Editor<'_>, data: &InstData) -> Option<Rewrite> {
    let from = editor.function.value_type(data.args[0]);
    if from == data.ty {
        return Some(Rewrite::value(data.args[0]));
    }
    // Skips an inner conversion that preserves every value of its operand.
    let inner = editor.function.defining_inst(data.args[0])?;
    let Op::Convert { saturate: false, .. } = inner.op else { return None };
    let first = editor.function.value_type(inner.args[0]);
    let holds =
        first.is_int() && from.is_int() && least(from) <= least(first) && greatest(first) <= greatest(from);
    (holds && data.ty.is_int()).then(|| Rewrite::into(data.op, data.ty, &inner.args))
}

fn bitcast(editor: &mut Editor<'_>, data: &InstData) -> Option<Rewrite> {
    if editor.function.value_type(data.args[0]) == data.ty {
        return Some(Rewrite::value(data.args[0]));
    }
    let inner = operands(editor, data.args[0], Op::Bitcast)?;
    Some(Rewrite::into(Op::Bitcast, data.ty, &inner))
}

/// Replaces the `pack` of both halves of a value by that value.
fn pack(editor: &mut Editor<'_>, data: &InstData) -> Option<Rewrite> {
    let def = |value| editor.function.value_def(value);
    let (Def::Result(low, 0), Def::Result(high, 1)) = (def(data.args[0]), def(data.args[1])) else {
        return None;
    };
    let unpack = editor.function.inst(low);
    let same =
        low == high && unpack.op == Op::Unpack && editor.function.value_type(unpack.args[0]) == data.ty;
    same.then(|| Rewrite::Values(smallvec![unpack.args[0]]))
}
