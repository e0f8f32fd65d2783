//! `if`: decided while recording, or a branch.

use std::panic::Location;

use super::slot::{Saved, Slot, leaves, save, set_leaves};
use crate::dsl::carry::Carry;
use crate::dsl::recorder::{Site, fail, with};
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

/// An `if` that becomes a branch. Both branches are recorded; a replay follows one.
pub struct DynIf {
    site: Site,
    state: State,
}

enum State {
    Recorded(Sides),
    /// Whether the path takes the `then` branch.
    Replayed(bool),
}

struct Sides {
    otherwise: Block,
    before: Vec<Saved>,
    then_leaves: Vec<Value>,
    then_end: Option<Block>,
}

impl DynIf {
    pub(super) fn new(condition: Val<bool>, slots: &mut [Slot<'_>], site: Site) -> DynIf {
        if let Some(then) = with(|r| r.follow_branch(condition.id(), &[], &[], site)) {
            return DynIf { site, state: State::Replayed(then) };
        }
        let otherwise = with(|r| {
            let (then, otherwise) = (r.func.create_block(), r.func.create_block());
            let call = |block| BlockCall { block, args: Vec::new() };
            r.branch(condition.id(), call(then), call(otherwise), site);
            r.switch_to(then);
            r.depth += 1;
            otherwise
        });
        let sides = Sides { otherwise, before: save(slots), then_leaves: Vec::new(), then_end: None };
        DynIf { site, state: State::Recorded(sides) }
    }

    /// Whether to run the `then` branch.
    pub fn enter_then(&mut self) -> bool {
        !matches!(self.state, State::Replayed(false))
    }

    /// Whether to run the `else` branch. While recording, restores the variables in `slots` to their values before the
    /// `if`, and starts the `else` branch.
    pub fn enter_else(&mut self, slots: &mut [Slot<'_>]) -> bool {
        let sides = match &mut self.state {
            State::Recorded(sides) => sides,
            State::Replayed(then) => return !*then,
        };
        sides.check(slots, self.site);
        sides.then_leaves = leaves(slots);
        for (slot, saved) in slots.iter_mut().zip(&sides.before) {
            slot.load(saved);
        }
        sides.then_end = Some(with(|r| {
            let end = r.block;
            r.switch_to(sides.otherwise);
            end
        }));
        true
    }

    /// Joins the branches: each variable in `slots` and the value of the `if` become block parameters.
    pub fn finish<T: Carry>(self, slots: &mut [Slot<'_>], then: Option<T>, otherwise: Option<T>) -> T {
        let site = self.site;
        let sides = match self.state {
            State::Recorded(sides) => sides,
            State::Replayed(_) => return follow_join(slots, then.or(otherwise), site),
        };
        sides.check(slots, site);
        let (mut from_then, mut from_else) = (sides.then_leaves, leaves(slots));
        let carried = from_else.len();
        if let (Some(then), Some(otherwise)) = (&then, &otherwise) {
            then.leaves(&mut from_then);
            otherwise.leaves(&mut from_else);
        }
        let params = with(|r| {
            r.depth -= 1;
            let (join, params) = r.block_like(&from_else, site);
            r.jump(join, from_else, site);
            // The last block of the `then` branch is still open.
            let dead = std::mem::replace(&mut r.block, sides.then_end.expect("enter_else came first"));
            r.jump(join, from_then, site);
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

impl Sides {
    fn check(&self, slots: &[Slot<'_>], site: Site) {
        for (slot, saved) in slots.iter().zip(&self.before) {
            slot.require_unchanged(saved, "branch", site);
        }
    }
}

/// Follows the jump from the end of a branch to the join.
fn follow_join<T: Carry>(slots: &mut [Slot<'_>], value: Option<T>, site: Site) -> T {
    let mut value = value.expect("a branch without a value has jumped");
    let mut args = leaves(slots);
    let carried = args.len();
    value.leaves(&mut args);
    let params = with(|r| r.follow_jump_with(&args, carried, site)).expect("this is a replay");
    set_leaves(slots, &params[..carried]);
    if params.len() > carried {
        value.restore(&mut params[carried..].iter().copied());
    }
    value
}
