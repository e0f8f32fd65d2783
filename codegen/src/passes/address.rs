//! Address folding: moves constant parts of addresses into the immediate offsets of accesses, so that unrolled
//! iterations share one base register.
//!
//! ```text
//!   v3 = add.u32 v2, 64           v3 = convert.u64 v2
//!   v4 = convert.u64 v3      →    v4 = ptr_add.global v0, v3
//!   v5 = ptr_add.global v0, v4    v6 = load.u8 v4 + 64
//!   v6 = load.u8 v5
//! ```
//!
//! A 64-bit conversion of a 32-bit product that does not wrap becomes one wide product.
//!
//! A constant is moved out of a 32-bit offset only where [`Ranges`] proves that the sum does not wrap, because the
//! 64-bit address would not wrap at the same point. Addresses in shared memory have 32 bits and need no proof.

use super::analysis::ranges::Ranges;
use super::edit::{Editor, Rewrite, rewrite};
use super::{Pass, Remarks};
use crate::ir::{Binary, Function, InstData, Op, Type, Value};

/// The address folding pass; see the module.
pub struct Address;

impl Pass for Address {
    fn name(&self) -> &'static str {
        "address"
    }

    fn apply(&self, function: &mut Function, _: &mut Remarks) -> bool {
        let ranges = Ranges::new(function);
        rewrite(function, |editor, data| visit(editor, &ranges, data).unwrap_or(Rewrite::Keep))
    }
}

const ADD: Op = Op::Binary(Binary::Add);

fn visit(editor: &mut Editor<'_>, ranges: &Ranges, data: &InstData) -> Option<Rewrite> {
    match data.op {
        Op::Convert { saturate: false, .. } if data.ty.is_int() && data.ty.bits() == 64 => {
            let Some((x, c)) = exact_sum(editor, ranges, data.args[0]) else {
                return widen(editor, ranges, data);
            };
            let wide = editor.insert(data.op, data.ty, &[x]);
            Some(wide_sum(editor, data.ty, wide, c))
        }
        Op::MulWide => {
            let (x, c) = exact_sum(editor, ranges, data.args[0])?;
            let factor = editor.function.constant(data.args[1])?;
            let factor = if data.ty.is_signed() { data.ty.sign_extend(factor) } else { factor as i64 };
            let product = editor.insert(Op::MulWide, data.ty, &[x, data.args[1]]);
            let wide = editor.function.value_type(product);
            Some(wide_sum(editor, wide, product, c.wrapping_mul(factor)))
        }
        Op::PtrAdd => pointer(editor, ranges, data),
        op => {
            let offset = op.offset()?;
            let (base, c) = constant_step(editor, data.args[0])?;
            let offset = i32::try_from(c.checked_add(offset.into())?).ok()?;
            let mut args = data.args.clone();
            args[0] = base;
            Some(Rewrite::Into(op.with_offset(offset), data.ty, args))
        }
    }
}

/// Turns the 64-bit conversion of a product that does not wrap into one wide product.
fn widen(editor: &mut Editor<'_>, ranges: &Ranges, data: &InstData) -> Option<Rewrite> {
    let product = editor.function.defining_inst(data.args[0])?.clone();
    let [a, b] = product.args[..] else { return None };
    // The wide product has the operands' signedness, and the conversion must preserve the value.
    if !matches!((product.ty, data.ty), (Type::U32, Type::U64) | (Type::I32, Type::I64)) {
        return None;
    }
    let b = match product.op {
        Op::Binary(Binary::Mul) => b,
        Op::Binary(Binary::Shl) => {
            let amount = editor.function.constant(b).filter(|&amount| amount < 31)?;
            editor.constant(product.ty, 1 << amount)
        }
        _ => return None,
    };
    let exact = ranges.exact_product(editor.function, editor.block, [a, b]);
    exact.then(|| Rewrite::into(Op::MulWide, product.ty, &[a, b]))
}

/// Moves constants to the end of a chain of `ptr_add` and sums them there.
fn pointer(editor: &mut Editor<'_>, ranges: &Ranges, data: &InstData) -> Option<Rewrite> {
    let (ty, base, offset) = (data.ty, data.args[0], data.args[1]);
    let inner = constant_step(editor, base);
    if let Some(outer) = constant_offset(editor, ty, offset) {
        let (base, inner) = inner?;
        let both = offset_constant(editor, ty, inner.wrapping_add(outer));
        return Some(Rewrite::into(Op::PtrAdd, ty, &[base, both]));
    }
    let (base, x, c) = match inner {
        Some((base, c)) => (base, offset, c),
        None => {
            let wraps_alike = editor.function.value_type(offset).bits() == 64 || ty.bits() == 32;
            let (x, c) =
                if wraps_alike { any_sum(editor, offset) } else { exact_sum(editor, ranges, offset) }?;
            (base, x, c)
        }
    };
    let variable = editor.insert(Op::PtrAdd, ty, &[base, x]);
    let c = offset_constant(editor, ty, c);
    Some(Rewrite::into(Op::PtrAdd, ty, &[variable, c]))
}

/// `(p, c)` if `pointer` is p plus the constant c, in bytes.
fn constant_step(editor: &Editor<'_>, pointer: Value) -> Option<(Value, i64)> {
    let data = editor.function.defining_inst(pointer).filter(|data| data.op == Op::PtrAdd)?;
    Some((data.args[0], constant_offset(editor, data.ty, data.args[1])?))
}

/// Bytes that a constant offset adds to a pointer, sign-extended; none if the offset is not constant.
fn constant_offset(editor: &Editor<'_>, pointer: Type, offset: Value) -> Option<i64> {
    let bits = editor.function.constant(offset)?;
    let ty = editor.function.value_type(offset);
    Some(match pointer {
        _ if pointer.bits() == 32 => i64::from(bits as i32),
        _ if ty.is_signed() => ty.sign_extend(bits),
        _ => bits as i64,
    })
}

fn offset_constant(editor: &mut Editor<'_>, pointer: Type, bytes: i64) -> Value {
    let ty = if pointer.bits() == 32 { Type::I32 } else { Type::I64 };
    editor.constant(ty, bytes as u64)
}

fn wide_sum(editor: &mut Editor<'_>, ty: Type, variable: Value, c: i64) -> Rewrite {
    let c = editor.constant(ty, c as u64);
    Rewrite::into(ADD, ty, &[variable, c])
}

/// `(x, c)` if the value is `x + c` modulo 2^width; c is signed.
fn any_sum(editor: &Editor<'_>, value: Value) -> Option<(Value, i64)> {
    let data = editor.function.defining_inst(value).filter(|data| data.op == ADD)?;
    let c = editor.function.constant(data.args[1])?;
    // `fold` evaluates a sum of two constants.
    let variable = editor.function.constant(data.args[0]).is_none();
    variable.then(|| (data.args[0], data.ty.sign_extend(c)))
}

/// `(x, c)` if the value is `x + c` without wrapping.
fn exact_sum(editor: &Editor<'_>, ranges: &Ranges, value: Value) -> Option<(Value, i64)> {
    let (x, c) = any_sum(editor, value)?;
    let ty = editor.function.value_type(value);
    let c = ranges.exact_summand(editor.function, editor.block, (x, ty.mask() & c as u64))?;
    Some((x, c))
}
