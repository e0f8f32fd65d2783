//! Constant folding and algebraic simplification.
//!
//! Every rule is exact. Integers wrap as the instructions do. Rules for floats hold for signed zeros, infinities and
//! NaN. For example, `x + 0.0` is not `x`, since -0.0 becomes 0.0. `x + -0.0` is `x` if `x` is a result of arithmetic,
//! because all NaNs of arithmetic have the same bits.
//!
//! Constants move to the right operand of commutative opcodes, and constant summands move outwards through integer
//! sums, products and shifts. Unrolled iterations then differ only in a last addition, which [`super::Address`] folds
//! into the access.

pub(in crate::passes) mod eval;
mod float;
mod identities;
mod sums;

use smallvec::SmallVec;

use super::edit::{Editor, Rewrite, rewrite};
use super::{Pass, Remarks};
use crate::ir::{Function, InstData, Op, Type, Value};

/// The constant folding pass; see the module.
pub struct Fold;

impl Pass for Fold {
    fn name(&self) -> &'static str {
        "fold"
    }

    fn apply(&self, function: &mut Function, _: &mut Remarks) -> bool {
        rewrite(function, visit)
    }
}

fn visit(editor: &mut Editor<'_>, data: &InstData) -> Rewrite {
    if !data.op.is_pure() || matches!(data.op, Op::Const(_)) {
        return Rewrite::Keep;
    }
    let rules = [constants, constant_to_right, identities::simplify, sums::reassociate];
    for rule in rules {
        if let Some(rewrite) = rule(editor, data) {
            return rewrite;
        }
    }
    Rewrite::Keep
}

/// Evaluates an instruction whose operands are all constants.
fn constants(editor: &mut Editor<'_>, data: &InstData) -> Option<Rewrite> {
    let function = &*editor.function;
    let constant = |&arg: &Value| Some((function.value_type(arg), function.constant(arg)?));
    let args: SmallVec<[(Type, u64); 4]> = data.args.iter().map(constant).collect::<Option<_>>()?;
    if args.is_empty() {
        return None;
    }
    let bits = eval::evaluate(data.op, data.ty, &args)?;
    let types: SmallVec<[Type; 2]> = data.results.iter().map(|&result| function.value_type(result)).collect();
    if let [bits] = bits[..] {
        return Some(Rewrite::constant(types[0], bits));
    }
    Some(Rewrite::Values(types.iter().zip(bits).map(|(&ty, bits)| editor.constant(ty, bits)).collect()))
}

/// Exchanges the operands of a commutative instruction whose left operand is constant.
fn constant_to_right(editor: &mut Editor<'_>, data: &InstData) -> Option<Rewrite> {
    let &[a, b, ..] = &data.args[..] else { return None };
    let op = match data.op {
        Op::Compare(compare) => Op::Compare(compare.swapped()),
        op if op.is_commutative() => op,
        _ => return None,
    };
    let constant = |value| editor.function.constant(value).is_some();
    if !constant(a) || constant(b) {
        return None;
    }
    let mut args = data.args.clone();
    args.swap(0, 1);
    Some(Rewrite::Into(op, data.ty, args))
}

/// The operands of the value's definition, if its opcode is `op`.
fn operands(editor: &Editor<'_>, value: Value, op: Op) -> Option<SmallVec<[Value; 4]>> {
    let data = editor.function.defining_inst(value)?;
    (data.op == op).then(|| data.args.clone())
}

/// `(x, c)` if the value is the result of `op` on x and the constant c.
fn with_constant(editor: &Editor<'_>, value: Value, op: Op) -> Option<(Value, u64)> {
    let args = operands(editor, value, op)?;
    Some((args[0], editor.function.constant(*args.get(1)?)?))
}
