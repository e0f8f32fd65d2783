//! Reassociation of integer operations: combines constant operands and moves constant summands outwards. All rules are
//! exact modulo 2^width.

use super::super::edit::{Editor, Rewrite};
use super::eval::evaluate;
use super::with_constant;
use crate::ir::{Binary, InstData, Op, Value};

const ADD: Op = Op::Binary(Binary::Add);
const MUL: Op = Op::Binary(Binary::Mul);
const SHL: Op = Op::Binary(Binary::Shl);
const SHR: Op = Op::Binary(Binary::Shr);

/// Rewrites `(x ∘ c1) ∘ c2` to `x ∘ (c1 ∘ c2)`, and moves constants out of the operands of sums, products and shifts.
pub(super) fn reassociate(editor: &mut Editor<'_>, data: &InstData) -> Option<Rewrite> {
    if !data.ty.is_int() {
        return None;
    }
    match data.op {
        Op::Binary(Binary::Shl | Binary::Shr) => shift(editor, data),
        Op::Binary(_) => combine_constants(editor, data).or_else(|| extract_summand(editor, data)),
        Op::MulAdd => extract_mul_add_summand(editor, data),
        _ => None,
    }
}

fn combine_constants(editor: &mut Editor<'_>, data: &InstData) -> Option<Rewrite> {
    let Op::Binary(binary) = data.op else { return None };
    let associative = matches!(
        binary,
        Binary::Add | Binary::Mul | Binary::And | Binary::Or | Binary::Xor | Binary::Min | Binary::Max
    );
    let outer = editor.function.constant(data.args[1])?;
    let (x, inner) = with_constant(editor, data.args[0], data.op).filter(|_| associative)?;
    let both = evaluate(data.op, data.ty, &[(data.ty, inner), (data.ty, outer)])?[0];
    let both = editor.constant(data.ty, both);
    Some(Rewrite::into(data.op, data.ty, &[x, both]))
}

fn shift(editor: &mut Editor<'_>, data: &InstData) -> Option<Rewrite> {
    let (ty, a) = (data.ty, data.args[0]);
    let amount = editor.function.constant(data.args[1])?;
    let word = editor.function.value_type(data.args[1]);
    if let Some((x, inner)) = with_constant(editor, a, data.op) {
        // Each shift clamps at the width, and so does a shift by the sum of the amounts.
        let both = editor.constant(word, (inner + amount).min(ty.bits().into()));
        return Some(Rewrite::into(data.op, ty, &[x, both]));
    }
    if amount >= ty.bits().into() {
        return None;
    }
    match data.op {
        SHL => {
            let (x, c) = with_constant(editor, a, ADD)?;
            let shifted = editor.insert(SHL, ty, &[x, data.args[1]]);
            Some(sum(editor, data, shifted, c << amount))
        }
        // (x << k) >> k keeps the low bits of x.
        SHR if ty.is_unsigned() => {
            let (x, _) = with_constant(editor, a, SHL).filter(|&(_, inner)| inner == amount)?;
            let mask = editor.constant(ty, ty.mask() >> amount);
            Some(Rewrite::into(Op::Binary(Binary::And), ty, &[x, mask]))
        }
        _ => None,
    }
}

fn extract_summand(editor: &mut Editor<'_>, data: &InstData) -> Option<Rewrite> {
    let (ty, a, b) = (data.ty, data.args[0], data.args[1]);
    match data.op {
        ADD if editor.function.constant(b).is_none() => {
            let (x, y, c) = summand(editor, a).map(|(x, c)| (x, b, c)).or_else(|| {
                let (y, c) = summand(editor, b)?;
                Some((a, y, c))
            })?;
            let variable = editor.insert(ADD, ty, &[x, y]);
            Some(sum(editor, data, variable, c))
        }
        Op::Binary(Binary::Sub) => {
            if let Some((x, c)) = summand(editor, a) {
                let variable = editor.insert(data.op, ty, &[x, b]);
                return Some(sum(editor, data, variable, c));
            }
            let (y, c) = summand(editor, b)?;
            let variable = editor.insert(data.op, ty, &[a, y]);
            Some(sum(editor, data, variable, c.wrapping_neg()))
        }
        MUL => {
            let factor = editor.function.constant(b)?;
            let (x, c) = summand(editor, a)?;
            let product = editor.insert(MUL, ty, &[x, b]);
            Some(sum(editor, data, product, c.wrapping_mul(factor)))
        }
        _ => None,
    }
}

fn extract_mul_add_summand(editor: &mut Editor<'_>, data: &InstData) -> Option<Rewrite> {
    let (ty, [a, b, c]) = (data.ty, [data.args[0], data.args[1], data.args[2]]);
    if let Some((y, constant)) = summand(editor, c) {
        let variable = editor.insert(Op::MulAdd, ty, &[a, b, y]);
        return Some(sum(editor, data, variable, constant));
    }
    let factor = editor.function.constant(b)?;
    let (x, constant) = summand(editor, a)?;
    let variable = editor.insert(Op::MulAdd, ty, &[x, b, c]);
    Some(sum(editor, data, variable, constant.wrapping_mul(factor)))
}

/// `(x, c)` if the value is `x + c` and x is not constant.
fn summand(editor: &Editor<'_>, value: Value) -> Option<(Value, u64)> {
    with_constant(editor, value, ADD).filter(|&(x, _)| editor.function.constant(x).is_none())
}

fn sum(editor: &mut Editor<'_>, data: &InstData, variable: Value, constant: u64) -> Rewrite {
    let constant = editor.constant(data.ty, constant);
    Rewrite::into(ADD, data.ty, &[variable, constant])
}
