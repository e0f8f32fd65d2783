//! `if`.

use std::panic::Location;

use super::slot::{Saved, Slot, leaves, save, set_leaves};
use crate::dsl::carry::Carry;
use crate::dsl::record::{Site, fail, with};
use crate::dsl::value::Val;
use crate::ir::{Block, BlockCall, Value};

/// A condition of `if` or `while`: `bool`, decided while recording, or `Val<bool>`, decided on the GPU.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a condition",
    label = "expected `bool` or `Val<bool>`; compare a number with something, for example `x != 0`"
)]
pub trait Condition: Copy {
    /// The `if` over such a condition.
    type If;
    /// The `while` over such a condition.
    type While;
    /// Starts an `if`.
    fn begin_if(self, slots: &mut [Slot<'_>], site: &'static Location<'static>) -> Self::If;
    /// Starts a `while`.
    fn begin_while(slots: &mut [Slot<'_>], site: &'static Location<'static>) -> Self::While;
}

impl Condition for bool {
    type If = StaticIf;
    type While = super::StaticWhile;
    fn begin_if(self, _: &mut [Slot<'_>], _: Site) -> StaticIf {
        StaticIf(self)
    }
    fn begin_while(_: &mut [Slot<'_>], _: Site) -> super::StaticWhile {
        super::StaticWhile::new()
    }
}

impl Condition for Val<bool> {
    type If = DynIf;
    type While = super::DynLoop;
    fn begin_if(self, slots: &mut [Slot<'_>], site: Site) -> DynIf {
        DynIf::new(self, slots, site)
    }
    fn begin_while(slots: &mut [Slot<'_>], site: Site) -> super::DynLoop {
        super::DynLoop::new(slots, site)
    }
}

/// A condition that was asked to be one. What is none gets an `if` all the same, so that there is one error only.
pub struct Asked<C>(C);

/// Asks that `condition` is one.
pub fn condition<C: Condition>(condition: C) -> Asked<C> {
    Asked(condition)
}

/// The `if` of a condition; found before [`AnyIf`].
pub trait ConditionIf {
    /// The `if`.
    type If;
    /// Starts it.
    #[track_caller]
    fn begin_if(&self, slots: &mut [Slot<'_>]) -> Self::If;
}

impl<C: Condition> ConditionIf for Asked<C> {
    type If = C::If;
    fn begin_if(&self, slots: &mut [Slot<'_>]) -> C::If {
        self.0.begin_if(slots, Location::caller())
    }
}

/// The `if` of something else.
pub trait AnyIf {
    /// Never called.
    fn begin_if(&self, slots: &mut [Slot<'_>]) -> StaticIf;
}

impl<C> AnyIf for &Asked<C> {
    fn begin_if(&self, _: &mut [Slot<'_>]) -> StaticIf {
        unreachable!("only conditions are `Asked`")
    }
}

/// An `if` decided while recording.
pub struct StaticIf(bool);

impl StaticIf {
    /// Whether to record the first branch.
    pub fn enter_then(&mut self) -> bool {
        self.0
    }
    /// Whether to record the second branch.
    pub fn enter_else(&mut self, _: &mut [Slot<'_>]) -> bool {
        !self.0
    }
    /// The value of the branch that was recorded.
    #[track_caller]
    pub fn finish<T>(self, _: &mut [Slot<'_>], then: Option<T>, otherwise: Option<T>) -> T {
        let site = Location::caller();
        then.or(otherwise).unwrap_or_else(|| {
            fail(
                site,
                "here `break`, `continue` or `return` is a run-time jump and cannot take the place of a value: make \
                 it a statement of its own",
            )
        })
    }
}

/// An `if` that becomes a branch: both sides are recorded.
pub struct DynIf {
    site: Site,
    otherwise: Block,
    before: Vec<Saved>,
    then_leaves: Vec<Value>,
    then_end: Option<Block>,
}

impl DynIf {
    fn new(condition: Val<bool>, slots: &mut [Slot<'_>], site: Site) -> DynIf {
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

    /// Both branches are recorded.
    pub fn enter_then(&mut self) -> bool {
        true
    }

    /// Puts the variables back to what they were and goes on with the second branch.
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

    /// Joins the branches: variables and the value get a block parameter each.
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
            // The first branch ended in its own block, left open until now.
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
            // A branch without a value left the function or the loop: only the other one arrives here.
            (Some(value), None) | (None, Some(value)) => value,
            (None, None) => unreachable!("the macro gives at least one branch a value"),
        }
    }
}
