//! Conditions of `if` and `while`: `bool` is decided while recording, `Val<bool>` on the GPU.

use std::marker::PhantomData;
use std::panic::Location;

use super::branch::{DynIf, StaticIf};
use super::loops::{DynLoop, StaticWhile};
use super::slot::Slot;
use crate::dsl::recorder::Site;
use crate::dsl::value::Val;

/// A condition of `if` or `while`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a condition",
    label = "expected `bool` or `Val<bool>`; compare a number with another, for example `x != 0`"
)]
pub trait Condition: Copy {
    /// The `if` over a condition of this type.
    type If;
    /// The `while` over a condition of this type.
    type While;
    /// Starts an `if`, whose branches may assign the variables in `slots`.
    fn begin_if(self, slots: &mut [Slot<'_>], site: &'static Location<'static>) -> Self::If;
    /// Starts a `while`, whose body may assign the variables in `slots`.
    fn begin_while(slots: &mut [Slot<'_>], site: &'static Location<'static>) -> Self::While;
}

impl Condition for bool {
    type If = StaticIf;
    type While = StaticWhile;
    fn begin_if(self, _: &mut [Slot<'_>], _: Site) -> StaticIf {
        StaticIf::new(self)
    }
    fn begin_while(_: &mut [Slot<'_>], site: Site) -> StaticWhile {
        StaticWhile::new(site)
    }
}

impl Condition for Val<bool> {
    type If = DynIf;
    type While = DynLoop;
    fn begin_if(self, slots: &mut [Slot<'_>], site: Site) -> DynIf {
        DynIf::new(self, slots, site)
    }
    fn begin_while(slots: &mut [Slot<'_>], site: Site) -> DynLoop {
        DynLoop::new(slots, site)
    }
}

/// A value that [`condition`] checked. Any value has an `if` here, so that a wrong type causes one error only.
pub struct CheckedCondition<C>(C);

/// Checks that `condition` is a condition.
pub fn condition<C: Condition>(condition: C) -> CheckedCondition<C> {
    CheckedCondition(condition)
}

/// The `if` of a condition; autoref finds this trait before [`NoIf`].
pub trait ConditionIf {
    /// The type of the `if`.
    type If;
    /// Starts the `if`.
    #[track_caller]
    fn begin_if(&self, slots: &mut [Slot<'_>]) -> Self::If;
}

impl<C: Condition> ConditionIf for CheckedCondition<C> {
    type If = C::If;
    fn begin_if(&self, slots: &mut [Slot<'_>]) -> C::If {
        self.0.begin_if(slots, Location::caller())
    }
}

/// The `if` of a value that is not a condition, so that a wrong type causes one error only.
pub trait NoIf {
    /// Never called.
    fn begin_if(&self, slots: &mut [Slot<'_>]) -> StaticIf;
}

impl<C> NoIf for &CheckedCondition<C> {
    fn begin_if(&self, _: &mut [Slot<'_>]) -> StaticIf {
        unreachable!("`condition` does not compile for this type")
    }
}

/// The type of a condition that [`condition_type`] checked.
pub struct ConditionType<C>(PhantomData<C>);

/// Checks that `_condition` gives a condition, without calling the closure, whose borrows end here, before slots are
/// taken.
pub fn condition_type<C: Condition>(_condition: impl FnOnce() -> C) -> ConditionType<C> {
    ConditionType(PhantomData)
}

/// The `while` over a condition; autoref finds this trait before [`NoWhile`].
pub trait ConditionWhile {
    /// The type of the `while`.
    type While;
    /// Starts the `while`.
    #[track_caller]
    fn begin_while(&self, slots: &mut [Slot<'_>]) -> Self::While;
}

impl<C: Condition> ConditionWhile for ConditionType<C> {
    type While = C::While;
    fn begin_while(&self, slots: &mut [Slot<'_>]) -> C::While {
        C::begin_while(slots, Location::caller())
    }
}

/// The `while` over a value that is not a condition, so that a wrong type causes one error only.
pub trait NoWhile {
    /// Never called.
    fn begin_while(&self, slots: &mut [Slot<'_>]) -> ImpossibleWhile;
}

impl<C> NoWhile for &ConditionType<C> {
    fn begin_while(&self, _: &mut [Slot<'_>]) -> ImpossibleWhile {
        unreachable!("`condition_type` does not compile for this type")
    }
}

/// The type of a `while` over a value that is not a condition. It has no values.
pub enum ImpossibleWhile {}

impl ImpossibleWhile {
    /// Never called; has the signature of [`DynLoop::test`] for any condition.
    pub fn test<C>(&mut self, _: C, _: &mut [Slot<'_>]) -> bool {
        match *self {}
    }
    /// Never called; has the signature of [`DynLoop::next`].
    pub fn next(&mut self, _: &mut [Slot<'_>]) -> bool {
        match *self {}
    }
    /// Never called; has the signature of [`DynLoop::break_`].
    pub fn break_(&mut self, _: &mut [Slot<'_>]) -> bool {
        match *self {}
    }
    /// Never called; has the signature of [`DynLoop::continue_`].
    pub fn continue_(&mut self, _: &mut [Slot<'_>]) -> bool {
        match *self {}
    }
    /// Never called; has the signature of [`DynLoop::finish`].
    pub fn finish(self, _: &mut [Slot<'_>]) {
        match self {}
    }
}
