//! `if`: decided while recording, or a branch.

use std::panic::Location;

use super::slot::{Saved, Slot, leaves, save, set_leaves};
use crate::dsl::carry::Carry;
use crate::dsl::record::{Site, fail, with};
use crate::dsl::value::Val;
use crate::ir::{Block, BlockCall, Value};

/// An `if` decided while recording.
pub struct StaticIf(bool);

impl StaticIf {
    pub(super) fn new(condition: bool) -> StaticIf {
        StaticIf(condition)
    }
    /// Whether to record the `then` branch: true if the condition is true.
    pub fn enter_then(&mut self) -> bool {
        self.0
    }
    /// Whether to record the `else` branch: true if the condition is false.
    pub fn enter_else(&mut self, _: &mut [Slot<'_>]) -> bool {
        !self.0
    }
    /// The value of the branch that was recorded, `then` or `otherwise`.
    #[track_caller]
    pub fn finish<T>(self, _: &mut [Slot<'_>], then: Option<T>, otherwise: Option<T>) -> T {
        let site = Location::caller();
        then.or(otherwise).unwrap_or_else(|| {
            fail(
                site,
                "this value ends in a run-time `break`, `continue` or `return`: write the jump as a statement of its \
                 own",
            )
        })
    }
}

/// An `if` that becomes a branch. Both branches are recorded.
pub struct DynIf {
    site: Site,
    otherwise: Block,
    before: Vec<Saved>,
    then_leaves: Vec<Value>,
    then_end: Option<Block>,
}

impl DynIf {
    pub(super) fn new(condition: Val<bool>, slots: &mut [Slot<'_>], site: Site) -> DynIf {
        let otherwise = with(|r| {
            let (then, otherwise) = (r.func.create_block(), r.func.create_block());
            let call = |block| BlockCall { block, args: Vec::new() };
            r.branch(condition.id, call(then), call(otherwise), site);
            r.switch_to(then);
            r.depth += 1;
            otherwise
        });
        DynIf { site, otherwise, before: save(slots), then_leaves: Vec::new(), then_end: None }
    }

    /// True: both branches are recorded.
    pub fn enter_then(&mut self) -> bool {
        true
    }

    /// Restores the variables in `slots` to their values before the `if`, and starts the `else` branch.
    pub fn enter_else(&mut self, slots: &mut [Slot<'_>]) -> bool {
        self.check(slots);
        self.then_leaves = leaves(slots);
        for (slot, saved) in slots.iter_mut().zip(&self.before) {
            slot.load(saved);
        }
        self.then_end = Some(with(|r| {
            let end = r.block;
            r.switch_to(self.otherwise);
            end
        }));
        true
    }

    fn check(&self, slots: &[Slot<'_>]) {
        for (slot, saved) in slots.iter().zip(&self.before) {
            slot.require_unchanged(saved, "branch", self.site);
        }
    }

    /// Joins the branches: each variable in `slots` and the value of the `if` become block parameters.
    pub fn finish<T: Carry>(self, slots: &mut [Slot<'_>], then: Option<T>, otherwise: Option<T>) -> T {
        self.check(slots);
        let (mut from_then, mut from_else) = (self.then_leaves.clone(), leaves(slots));
        let carried = from_else.len();
        if let (Some(then), Some(otherwise)) = (&then, &otherwise) {
            then.leaves(&mut from_then);
            otherwise.leaves(&mut from_else);
        }
        let params = with(|r| {
            r.depth -= 1;
            let (join, params) = r.block_like(&from_else);
            r.jump(join, from_else, self.site);
            // The last block of the `then` branch is still open.
            let dead = std::mem::replace(&mut r.block, self.then_end.expect("enter_else came first"));
            r.jump(join, from_then, self.site);
            r.block = dead;
            r.switch_to(join);
            params
        });
        set_leaves(slots, &params[..carried]);
        match (then, otherwise) {
            (Some(mut value), Some(_)) => {
                value.restore(&mut params[carried..].iter().copied());
                value
            }
            // A branch without a value has left the function or the loop, so only the branch with a value reaches the
            // join.
            (Some(value), None) | (None, Some(value)) => value,
            (None, None) => unreachable!("the macro gives at least one branch a value"),
        }
    }
}
