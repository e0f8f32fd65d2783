//! `&&` and `||`. The right side is a region, like a branch of an `if`: it may assign variables.

use std::panic::Location;

use super::slot::{Saved, Slot, current_params, leaves, save, set_leaves};
use crate::dsl::recorder::{Site, with};
use crate::dsl::value::Val;
use crate::ir::{Block, BlockCall, Value};

/// An operand of `&&` and `||`: `bool`, decided while recording, or `Val<bool>`, decided on the GPU.
///
/// - Written: `a && b`, `a || b`
/// - PTX: `and.pred`, `or.pred`; a branch around a right side that is expensive or has side effects
/// - Target: sm_80
///
/// ```
/// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
/// #[kernel(threads = 32)]
/// fn between(x: Ptr<Global, u32>) {
///     let value = x.at(lane()).load();
///     x.at(lane()).store(select(value > 1 && value < 4, val(1u32), 0));
/// }
/// assert_eq!(run(between(), "and.pred", LANES)[..5], [0, 0, 1, 1, 0]);
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be an operand of `&&` or `||`",
    label = "expected `bool` or `Val<bool>`; compare a number with another, for example `x != 0`"
)]
pub trait Operand: Sized {
    /// The type of the operator with this type of left side.
    type Logic;
    /// Starts `self && …` if `continues_on` is true, or `self || …` if it is false: the right side is evaluated if
    /// `self` equals `continues_on`.
    fn begin(
        self,
        continues_on: bool,
        slots: &mut [Slot<'_>],
        site: &'static Location<'static>,
    ) -> Self::Logic;
    /// The compile-time `value` as an operand; a constant if operands are handles.
    fn constant(value: bool, site: &'static Location<'static>) -> Self;
    /// The operand as a handle.
    fn handle(self, site: &'static Location<'static>) -> Val<bool>;
}

impl Operand for bool {
    type Logic = StaticLogic;
    fn begin(self, continues_on: bool, _: &mut [Slot<'_>], site: Site) -> StaticLogic {
        StaticLogic { left: self, continues_on, site }
    }
    fn constant(value: bool, _: Site) -> bool {
        value
    }
    fn handle(self, site: Site) -> Val<bool> {
        Val::constant(self, site)
    }
}

impl Operand for Val<bool> {
    type Logic = DynLogic;
    fn begin(self, continues_on: bool, slots: &mut [Slot<'_>], site: Site) -> DynLogic {
        DynLogic::new(self, continues_on, slots, site)
    }
    fn constant(value: bool, site: Site) -> Val<bool> {
        Val::constant(value, site)
    }
    fn handle(self, _: Site) -> Val<bool> {
        self
    }
}

/// Starts `left && …`, whose right side may assign `slots`.
#[track_caller]
pub fn begin_and<L: Operand>(left: L, slots: &mut [Slot<'_>]) -> L::Logic {
    left.begin(true, slots, Location::caller())
}

/// Starts `left || …`, whose right side may assign `slots`.
#[track_caller]
pub fn begin_or<L: Operand>(left: L, slots: &mut [Slot<'_>]) -> L::Logic {
    left.begin(false, slots, Location::caller())
}

/// `&&` or `||` with a compile-time left side.
pub struct StaticLogic {
    left: bool,
    continues_on: bool,
    site: Site,
}

impl StaticLogic {
    /// Whether to record the right side.
    pub fn enter(&self) -> bool {
        self.left == self.continues_on
    }
    /// The value of the right side.
    pub fn right<B: Operand>(&self, value: B) -> Option<B> {
        Some(value)
    }
    /// The value of the operator: the right side, or the value that the left side decided.
    pub fn finish<B: Operand>(self, _: &mut [Slot<'_>], right: Option<B>) -> B {
        right.unwrap_or_else(|| B::constant(self.left, self.site))
    }
}

/// `&&` or `||` that becomes a branch around the right side. If-conversion turns it into one logic instruction where
/// the right side is cheap.
pub struct DynLogic {
    continues_on: bool,
    site: Site,
    state: State,
}

enum State {
    Recorded(Branch),
    /// Whether the path runs the right side.
    Replayed(bool),
}

struct Branch {
    left: Val<bool>,
    start: Block,
    body: Block,
    before: Vec<Saved>,
    before_leaves: Vec<Value>,
}

impl DynLogic {
    fn new(left: Val<bool>, continues_on: bool, slots: &[Slot<'_>], site: Site) -> DynLogic {
        let before_leaves = leaves(slots);
        if with(|r| r.is_replay()) {
            let decided = Val::constant(!continues_on, site).id();
            let around: Vec<Value> = before_leaves.into_iter().chain([decided]).collect();
            let (then, otherwise): (&[Value], &[Value]) =
                if continues_on { (&[], &around) } else { (&around, &[]) };
            let first = with(|r| r.follow_branch(left.id(), then, otherwise, site));
            let enters = first.expect("this is a replay") == continues_on;
            return DynLogic { continues_on, site, state: State::Replayed(enters) };
        }
        let (start, body) = with(|r| {
            let (start, body) = (r.block, r.func.create_block());
            r.reach(body);
            r.switch_to(body);
            r.depth += 1;
            (start, body)
        });
        let branch = Branch { left, start, body, before: save(slots), before_leaves };
        DynLogic { continues_on, site, state: State::Recorded(branch) }
    }

    /// Whether to run the right side: always while recording.
    pub fn enter(&self) -> bool {
        !matches!(self.state, State::Replayed(false))
    }

    /// The value of the right side as a handle, recorded where the right side ends.
    pub fn right<B: Operand>(&self, value: B) -> Option<Val<bool>> {
        Some(value.handle(self.site))
    }

    /// Joins the paths through and around the right side: each variable in `slots` and the value become block
    /// parameters.
    pub fn finish(self, slots: &mut [Slot<'_>], right: Option<Val<bool>>) -> Val<bool> {
        let site = self.site;
        let branch = match self.state {
            State::Recorded(branch) => branch,
            State::Replayed(_) => return follow_join(slots, right, site),
        };
        let operator = if self.continues_on { "`&&`" } else { "`||`" };
        for (slot, saved) in slots.iter().zip(&branch.before) {
            slot.require_unchanged(saved, operator, site);
        }
        let right = right.expect("the right side is recorded");
        let (mut through, mut around) = (leaves(slots), branch.before_leaves);
        let end = with(|r| {
            r.depth -= 1;
            std::mem::replace(&mut r.block, branch.start)
        });
        // On the path around the right side, the left side decides the value.
        through.push(right.id());
        around.push(Val::constant(!self.continues_on, site).id());
        let params = with(|r| {
            let (join, params) = r.block_like(&through, site);
            let (yes, no) =
                (BlockCall { block: branch.body, args: Vec::new() }, BlockCall { block: join, args: around });
            let (then, otherwise) = if self.continues_on { (yes, no) } else { (no, yes) };
            r.branch(branch.left.id(), then, otherwise, site);
            r.block = end;
            r.jump(join, through, site);
            r.switch_to(join);
            params
        });
        joined(slots, params)
    }
}

/// Follows the jump from the end of the right side; without a right side, the path has reached the join.
fn follow_join(slots: &mut [Slot<'_>], right: Option<Val<bool>>, site: Site) -> Val<bool> {
    let params = match right {
        Some(right) => {
            let through: Vec<Value> = leaves(slots).into_iter().chain([right.id()]).collect();
            with(|r| r.follow_jump(&through, site)).expect("this is a replay")
        }
        None => current_params(),
    };
    joined(slots, params)
}

/// The value and the variables at the join, whose parameters are `params`.
fn joined(slots: &mut [Slot<'_>], mut params: Vec<Value>) -> Val<bool> {
    let value = params.pop().expect("the value is a parameter");
    set_leaves(slots, &params);
    Val::from_id(value)
}
