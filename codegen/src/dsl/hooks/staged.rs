//! Handles where Rust takes only values that are known while recording: errors that say what to write instead.
//!
//! Each `…Of` is a wrapper whose type decides: of a handle, the method of the `…Dyn` trait is found first, and what it
//! asks for nothing has; of anything else, [`KnownNow::known_now`] gives back what was wrapped.

use std::cell::Cell;

use crate::dsl::value::Val;

/// The operand of `as`.
pub struct CastOf<T>(Cell<Option<T>>);

/// What a `match` with numbers looks at.
pub struct MatchOf<'a, T>(&'a T);

impl<T> CastOf<T> {
    /// The operand `value`.
    pub fn new(value: T) -> CastOf<T> {
        CastOf(Cell::new(Some(value)))
    }
}

impl<'a, T> MatchOf<'a, T> {
    /// The scrutinee `value`.
    pub fn new(value: &'a T) -> MatchOf<'a, T> {
        MatchOf(value)
    }
}

/// Nothing is this: it stands for what `as` would need.
#[diagnostic::on_unimplemented(
    message = "`as` does not convert handles",
    label = "write `.cast::<…>()`, which converts on the GPU; for the same bits as another type, `.bitcast::<…>()`"
)]
pub trait Castable {}

/// Nothing is this: it stands for what `match` would need.
#[diagnostic::on_unimplemented(
    message = "`match` decides while the kernel is recorded, and this is known only on the GPU",
    label = "compare it with each number: `if x == 0`, `else if x == 1` and so on become branches"
)]
pub trait Matchable {}

/// `as` of a handle.
pub trait CastDyn {
    /// Never called; a number, so that there is one error only.
    fn known_now(&self) -> u8
    where
        Self: Castable;
}

impl<T> CastDyn for CastOf<Val<T>> {
    fn known_now(&self) -> u8
    where
        Self: Castable,
    {
        unreachable!("nothing is `Castable`")
    }
}

/// `match` of a handle.
pub trait MatchDyn {
    /// Never called.
    fn known_now(&self)
    where
        Self: Matchable;
}

impl<T> MatchDyn for MatchOf<'_, Val<T>> {
    fn known_now(&self)
    where
        Self: Matchable,
    {
        unreachable!("nothing is `Matchable`")
    }
}

/// Values that are known while recording; found after the others.
pub trait KnownNow {
    /// The value.
    type Value;
    /// The value.
    fn known_now(&self) -> Self::Value;
}

impl<T> KnownNow for &CastOf<T> {
    type Value = T;
    fn known_now(&self) -> T {
        self.0.take().expect("a value is converted once")
    }
}

impl<'a, T> KnownNow for &MatchOf<'a, T> {
    type Value = &'a T;
    fn known_now(&self) -> &'a T {
        self.0
    }
}
