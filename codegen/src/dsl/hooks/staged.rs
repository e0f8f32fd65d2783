//! Handles where Rust takes only values that are known while recording: errors that say what to write instead.
//!
//! Each `…Of` is a wrapper whose type decides: of a handle, the method of the `…Dyn` trait is found first, and what it
//! asks for nothing has; of anything else, [`KnownNow::known_now`] gives back what was wrapped.

use std::cell::Cell;

use crate::dsl::pointer::Ptr;
use crate::dsl::value::Val;

/// Values that are known while recording; found after the others.
pub trait KnownNow {
    /// The value.
    type Value;
    /// The value.
    fn known_now(&self) -> Self::Value;
}

// The traits of handles are no part of the macros: errors show where they ask for something.
macro_rules! of_values {
    ($(
        $(#[$doc:meta])*
        $of:ident, $dyn:ident of [$($generic:ident)*] $handle:ty, asks $bound:ident => $value:ty;
    )*) => {
        $($(#[$doc])*
        pub struct $of<T>(Cell<Option<T>>);

        impl<T> $of<T> {
            /// Of `value`.
            pub fn new(value: T) -> $of<T> {
                $of(Cell::new(Some(value)))
            }
        }

        impl<T> KnownNow for &$of<T> {
            type Value = T;
            fn known_now(&self) -> T {
                self.0.take().expect("a value is asked for once")
            }
        }

        impl<$($generic),*> $dyn for $of<$handle> {
            type Value = $value;
            fn known_now(&self) -> $value where Self: $bound {
                unreachable!("nothing meets the bound")
            }
        })*
    };
}
of_values! {
    /// The operand of `as`.
    CastOf, CastDyn of [T] Val<T>, asks Castable => u8;
    /// An index.
    IndexOf, IndexDyn of [T] Val<T>, asks ArrayIndex => usize;
    /// What stands beside a `let` in a condition.
    ChainedOf, ChainedDyn of [T] Val<T>, asks Chained => bool;
    /// What a call gave, under `*`.
    DerefOf, DerefDyn of [S T] Ptr<S, T>, asks Dereferenced => Box<Val<T>>;
}

macro_rules! of_references {
    ($($(#[$doc:meta])* $of:ident, $dyn:ident, asks $bound:ident;)*) => {
        $($(#[$doc])*
        pub struct $of<'a, T: ?Sized>(&'a T);

        impl<'a, T: ?Sized> $of<'a, T> {
            /// Of `value`.
            pub fn new(value: &'a T) -> $of<'a, T> {
                $of(value)
            }
        }

        impl<'a, T: ?Sized> KnownNow for &$of<'a, T> {
            type Value = &'a T;
            fn known_now(&self) -> &'a T {
                self.0
            }
        }

        impl<'a, T> $dyn for $of<'a, Val<T>> {
            type Value = &'a T;
            fn known_now(&self) -> &'a T where Self: $bound {
                unreachable!("nothing meets the bound")
            }
        })*
    };
}
of_references! {
    /// What a `match` with numbers looks at.
    MatchOf, MatchDyn, asks Matchable;
    /// What an assertion looks at.
    AssertOf, AssertDyn, asks Assertable;
}

/// Nothing is this: it stands for what `as` would need.
#[diagnostic::on_unimplemented(
    message = "`as` does not convert handles",
    label = "write `.cast::<…>()`, which converts on the GPU; for the same bits as another type, `.bitcast::<…>()`"
)]
pub trait Castable {}

/// `as` of a handle.
pub trait CastDyn {
    /// What stands for the value, so that there is one error only.
    type Value;
    /// Never called.
    fn known_now(&self) -> Self::Value
    where
        Self: Castable;
}

/// What `as` gives, of a handle; found before [`CastResult`].
pub trait CastResultDyn {
    /// What stands for the value is of any type, so that there is one error only.
    fn result<U, E>(&self, value: U) -> E;
}

impl<T> CastResultDyn for CastOf<Val<T>> {
    fn result<U, E>(&self, _: U) -> E {
        unreachable!("nothing is `Castable`")
    }
}

/// What `as` gives.
pub trait CastResult {
    /// The value.
    fn result<U>(&self, value: U) -> U;
}

impl<T> CastResult for &CastOf<T> {
    fn result<U>(&self, value: U) -> U {
        value
    }
}

/// Nothing is this: it stands for what a condition beside a `let` would need.
#[diagnostic::on_unimplemented(
    message = "a condition with a `let` decides while the kernel is recorded, and this is known only on the GPU",
    label = "write an `if` of this alone inside of the `if let`: that one becomes a branch"
)]
pub trait Chained {}

/// A handle beside a `let`.
pub trait ChainedDyn {
    /// What stands for the value, so that there is one error only.
    type Value;
    /// Never called.
    fn known_now(&self) -> Self::Value
    where
        Self: Chained;
}

/// Nothing is this: it stands for what an index of an array would need.
#[diagnostic::on_unimplemented(
    message = "an array of Rust cannot be indexed by a handle, which is known only on the GPU",
    label = "put the elements in memory, as `shared_array` is, and write `.at(i)`; or `select` among them"
)]
pub trait ArrayIndex {}

/// A handle as an index.
pub trait IndexDyn {
    /// What stands for the value, so that there is one error only.
    type Value;
    /// Never called.
    fn known_now(&self) -> Self::Value
    where
        Self: ArrayIndex;
}

/// Nothing is this: it stands for what `*` would need.
#[diagnostic::on_unimplemented(
    message = "`*` does not reach memory of the GPU",
    label = "write `x.load()` for the value, `x.store(value)` to assign it; `x.at(i)` goes to another element"
)]
pub trait Dereferenced {}

/// `*` of a pointer.
pub trait DerefDyn {
    /// What stands for the value, so that there is one error only.
    type Value;
    /// Never called.
    fn known_now(&self) -> Self::Value
    where
        Self: Dereferenced;
}

/// A variable under `*`, where its value is read.
pub struct PointedOf<'a, P>(&'a P);

impl<'a, P> PointedOf<'a, P> {
    /// Of `variable`.
    pub fn new(variable: &'a P) -> PointedOf<'a, P> {
        PointedOf(variable)
    }
}

impl<'a, P> KnownNow for &PointedOf<'a, P> {
    type Value = &'a P;
    fn known_now(&self) -> &'a P {
        self.0
    }
}

impl<'a, S, T> DerefDyn for PointedOf<'a, Ptr<S, T>> {
    type Value = &'a Box<Val<T>>;
    fn known_now(&self) -> &'a Box<Val<T>>
    where
        Self: Dereferenced,
    {
        unreachable!("nothing meets the bound")
    }
}

/// Nothing is this: it stands for what `match` would need.
#[diagnostic::on_unimplemented(
    message = "`match` decides while the kernel is recorded, and this is known only on the GPU",
    label = "compare it with each number: `if x == 0`, `else if x == 1` and so on become branches"
)]
pub trait Matchable {}

/// `match` of a handle.
pub trait MatchDyn {
    /// What stands for the value, so that there is one error only.
    type Value;
    /// Never called.
    fn known_now(&self) -> Self::Value
    where
        Self: Matchable;
}

/// Nothing is this: it stands for what an assertion would need.
#[diagnostic::on_unimplemented(
    message = "an assertion is made while the kernel is recorded, and this is known only on the GPU",
    label = "assert what is known now; of a handle, store what you find through a pointer and check it on the host"
)]
pub trait Assertable {}

/// An assertion of a handle.
pub trait AssertDyn {
    /// What stands for the value, so that there is one error only.
    type Value;
    /// Never called.
    fn known_now(&self) -> Self::Value
    where
        Self: Assertable;
}
