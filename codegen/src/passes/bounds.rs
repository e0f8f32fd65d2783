//! Simplification by value ranges: comparisons with a known outcome, masks and remainders without effect, and
//! conditions that a dominating branch decides.
//!
//! With 256 threads per CTA, `tid.x < 256` is true and `tid.x % 256` is `tid.x`.

use super::analysis::ranges::{Range, Ranges};
use super::edit::{Editor, Rewrite, rewrite};
use super::remarks::Done;
use super::{Pass, Remarks};
use crate::ir::{Binary, Compare, Function, InstData, Op, Type, Value};

/// The pass that simplifies by value ranges; see the module.
pub struct Bounds;

impl Pass for Bounds {
    fn name(&self) -> &'static str {
        "bounds"
    }

    fn apply(&self, function: &mut Function, remarks: &mut Remarks) -> bool {
        let ranges = Ranges::new(function);
        rewrite(function, |editor, data| {
            let Some(rewritten) = visit(editor, &ranges, data) else { return Rewrite::Keep };
            if let Rewrite::Into(Op::Const(outcome), Type::Pred, _) = rewritten {
                remarks.done(data.loc, Done::Decided { outcome: outcome != 0 });
            }
            rewritten
        })
    }
}

fn visit(editor: &mut Editor<'_>, ranges: &Ranges, data: &InstData) -> Option<Rewrite> {
    let range = |editor: &Editor<'_>, value: Value| ranges.of(editor.function, editor.block, value);
    match data.op {
        Op::Branch if editor.function.constant(data.args[0]).is_none() => {
            let holds = ranges.implied(editor.function, editor.block, data.args[0])?;
            let condition = editor.constant(Type::Pred, holds.into());
            Some(Rewrite::into(Op::Branch, data.ty, &[condition]))
        }
        Op::Compare(compare) if data.ty.is_int() => {
            let holds = decided(compare, range(editor, data.args[0]), range(editor, data.args[1]))?;
            Some(Rewrite::constant(Type::Pred, holds.into()))
        }
        Op::Binary(binary @ (Binary::And | Binary::Rem | Binary::Div | Binary::Min | Binary::Max))
            if data.ty.is_int() =>
        {
            let a = range(editor, data.args[0]);
            let b = range(editor, data.args[1]);
            let low_mask = b.min == b.max && b.min & (b.min.wrapping_add(1)) == 0;
            let value = match binary {
                Binary::And if a.min >= 0 && low_mask && a.max <= b.max => data.args[0],
                Binary::Rem if a.min >= 0 && a.max < b.min => data.args[0],
                Binary::Div if a.min >= 0 && a.max < b.min => return Some(Rewrite::constant(data.ty, 0)),
                Binary::Min if a.max <= b.min => data.args[0],
                Binary::Min if b.max <= a.min => data.args[1],
                Binary::Max if a.min >= b.max => data.args[0],
                Binary::Max if b.min >= a.max => data.args[1],
                _ => return None,
            };
            Some(Rewrite::value(value))
        }
        _ => None,
    }
}

/// Outcome of a comparison of numbers in the ranges `a` and `b`, if it is the same for all such numbers.
fn decided(compare: Compare, a: Range, b: Range) -> Option<bool> {
    let always = |holds: bool, fails: bool| if holds { Some(true) } else { fails.then_some(false) };
    let apart = a.max < b.min || b.max < a.min;
    let equal = a.min == a.max && a == b;
    match compare {
        Compare::Lt => always(a.max < b.min, a.min >= b.max),
        Compare::Le => always(a.max <= b.min, a.min > b.max),
        Compare::Gt => always(a.min > b.max, a.max <= b.min),
        Compare::Ge => always(a.min >= b.max, a.max < b.min),
        Compare::Eq => always(equal, apart),
        Compare::Ne => always(apart, equal),
    }
}
