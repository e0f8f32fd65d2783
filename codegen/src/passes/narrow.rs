//! Narrowing: replaces 64-bit instructions by 32-bit instructions where 32 bits suffice, since GPUs compute in 32-bit
//! words.
//!
//! ```text
//!   v2 = convert.u64 v0        v3 = lt.u32 v0, v1        v2 = shr.u64 v0, 32         v1, v3 = unpack.u32 v0
//!   v3 = convert.u64 v1    →                             v3 = convert.u32 v2     →
//!   v4 = lt.u64 v2, v3
//! ```
//!
//! Narrowed are comparisons, bitwise operations, minimum and maximum of numbers extended from 32 bits, and quotients
//! and remainders of numbers that [`Ranges`] bounds to 32 bits.
//! Extraction of a number's halves becomes `unpack`, and a number made of two halves becomes `pack`.
//!
//! Sums and products are not narrowed: [`super::Address`] widens them to 64 bits to move constants out of addresses.

use rustc_hash::FxHashSet;

use super::analysis::ranges::Ranges;
use super::edit::{Editor, Rewrite, rewrite};
use super::remarks::{Done, Operation};
use super::{Pass, Remarks};
use crate::ir::{Binary, Function, InstData, Op, Rounding, Type, Value};

/// The narrowing pass; see the module.
pub struct Narrow;

impl Pass for Narrow {
    fn name(&self) -> &'static str {
        "narrow"
    }

    fn apply(&self, function: &mut Function, remarks: &mut Remarks) -> bool {
        let ranges = Ranges::new(function);
        let halved = halved(function);
        rewrite(function, |editor, data| {
            let Some(rewritten) = visit(editor, &ranges, &halved, data) else { return Rewrite::Keep };
            let operation = match data.op {
                Op::Binary(binary) => Operation::Binary(binary),
                Op::Compare(_) => Operation::Compare,
                _ => Operation::Convert,
            };
            remarks.done(data.loc, Done::Narrowed { operation });
            rewritten
        })
    }
}

/// The 64-bit values whose upper half is extracted.
fn halved(function: &Function) -> FxHashSet<Value> {
    let insts = function.layout.iter().flat_map(|&block| &function.block(block).insts);
    insts.filter_map(|&inst| upper_half(function, function.inst(inst))).collect()
}

/// The 64-bit value whose upper half the instruction extracts.
fn upper_half(function: &Function, data: &InstData) -> Option<Value> {
    if !is_conversion(data.op) || data.ty != Type::U32 {
        return None;
    }
    let shift = function.defining_inst(data.args[0])?;
    let by_half = shift.op == Op::Binary(Binary::Shr) && function.constant(shift.args[1]) == Some(32);
    (by_half && shift.ty == Type::U64).then(|| shift.args[0])
}

fn is_conversion(op: Op) -> bool {
    matches!(op, Op::Convert { saturate: false, .. })
}

const EXTEND: Op = Op::Convert { rounding: Rounding::Zero, saturate: false };

fn visit(
    editor: &mut Editor<'_>,
    ranges: &Ranges,
    halved: &FxHashSet<Value>,
    data: &InstData,
) -> Option<Rewrite> {
    match data.op {
        op if is_conversion(op) && data.ty == Type::U32 => {
            if let Some(whole) = upper_half(editor.function, data) {
                return Some(Rewrite::value(editor.halves(whole)[1]));
            }
            let whole = data.args[0];
            let both = halved.contains(&whole) && editor.function.value_type(whole) == Type::U64;
            both.then(|| Rewrite::value(editor.halves(whole)[0]))
        }
        op if is_conversion(op) && data.ty.is_float() => {
            let number = extended(editor.function, data.args[0])?;
            Some(Rewrite::into(op, data.ty, &[number]))
        }
        Op::Unpack if data.ty == Type::U32 => {
            let low = extended(editor.function, data.args[0]);
            let low = low.filter(|&low| editor.function.value_type(low) == Type::U32)?;
            let high = editor.constant(Type::U32, 0);
            Some(Rewrite::Values([low, high].into_iter().collect()))
        }
        Op::Compare(_) => {
            let [a, b] = both_narrow(editor, data)?;
            Some(Rewrite::into(data.op, editor.function.value_type(a), &[a, b]))
        }
        Op::Binary(binary) if matches!(data.ty, Type::U64 | Type::I64) => {
            whole(editor, data, binary).or_else(|| arithmetic(editor, ranges, data, binary))
        }
        _ => None,
    }
}

/// Replaces `lower | upper << 32` by a `pack`.
fn whole(editor: &Editor<'_>, data: &InstData, binary: Binary) -> Option<Rewrite> {
    if !matches!(binary, Binary::Or | Binary::Add | Binary::Xor) || data.ty != Type::U64 {
        return None;
    }
    let function = &*editor.function;
    let word = |value| extended(function, value).filter(|&word| function.value_type(word) == Type::U32);
    let upper = |value| {
        let shift = function.defining_inst(value)?;
        let by_half = shift.op == Op::Binary(Binary::Shl) && function.constant(shift.args[1]) == Some(32);
        by_half.then(|| word(shift.args[0]))?
    };
    let (a, b) = (data.args[0], data.args[1]);
    let halves = word(a).zip(upper(b)).or_else(|| word(b).zip(upper(a)));
    halves.map(|(lower, upper)| Rewrite::into(Op::Pack, Type::U64, &[lower, upper]))
}

fn arithmetic(editor: &mut Editor<'_>, ranges: &Ranges, data: &InstData, binary: Binary) -> Option<Rewrite> {
    let [a, b] = match binary {
        Binary::And | Binary::Or | Binary::Xor | Binary::Min | Binary::Max => both_narrow(editor, data)?,
        Binary::Shr => [extended(editor.function, data.args[0])?, data.args[1]],
        Binary::Div | Binary::Rem if data.ty == Type::U64 => {
            let range = |value| ranges.of(editor.function, editor.block, value);
            let (a, b) = (range(data.args[0]), range(data.args[1]));
            // The result of a division by zero depends on the width.
            let fits = a.max <= u32::MAX.into() && b.max <= u32::MAX.into() && b.min > 0;
            if !fits {
                return None;
            }
            [data.args[0], data.args[1]].map(|value| match editor.function.constant(value) {
                Some(bits) => editor.constant(Type::U32, bits),
                None => editor.insert(EXTEND, Type::U32, &[value]),
            })
        }
        _ => return None,
    };
    // A right shift of a non-negative number does not depend on the signedness of the type.
    let narrow = editor.function.value_type(a);
    let result = editor.insert(data.op, narrow, &[a, b]);
    Some(Rewrite::into(EXTEND, data.ty, &[result]))
}

/// The 32-bit value that was extended to this 64-bit value.
fn extended(function: &Function, value: Value) -> Option<Value> {
    let data = function.defining_inst(value)?;
    let narrow = data.args.first().map(|&arg| function.value_type(arg))?;
    let keeps = matches!((narrow, data.ty), (Type::U32, Type::U64 | Type::I64) | (Type::I32, Type::I64));
    (is_conversion(data.op) && keeps).then(|| data.args[0])
}

/// Both operands as 32-bit values of one type, if each is an extended 32-bit value or a constant, and not both are
/// constant.
fn both_narrow(editor: &mut Editor<'_>, data: &InstData) -> Option<[Value; 2]> {
    let &[a, b] = &data.args[..] else { return None };
    let (x, y) = (extended(editor.function, a), extended(editor.function, b));
    let ty = editor.function.value_type(x.or(y)?);
    let mut operand = |narrow: Option<Value>, value: Value| match narrow {
        Some(narrow) => (editor.function.value_type(narrow) == ty).then_some(narrow),
        None => {
            let number = data.ty.sign_extend(editor.function.constant(value)?);
            let fits =
                if ty.is_signed() { i32::try_from(number).is_ok() } else { u32::try_from(number).is_ok() };
            fits.then(|| editor.constant(ty, number as u64))
        }
    };
    Some([operand(x, a)?, operand(y, b)?])
}
