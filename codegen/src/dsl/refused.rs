//! Operators of Rust that handles do not have. Each is implemented under a bound that nothing meets, because then the
//! bound's error says what to write instead, where Rust would only say that there is no such operator.

use std::fmt;
use std::iter::{Product, Sum};
use std::ops::*;

use super::hooks::DynRange;
use super::pointer::Ptr;
use super::value::Val;

/// Nothing is this: it stands for a value that is known while recording.
#[diagnostic::on_unimplemented(
    message = "a compile-time variable cannot take a value that is known only on the GPU",
    label = "let the variable start as a handle of the same type, as in `let mut sum = val(0.0f32)`"
)]
pub trait KnownWhileRecording {}

// `for<'a>` makes the bound one that rustc does not refute here already.
macro_rules! assign {
    ($($trait:ident $method:ident: $($ty:ty)*;)*) => {
        $($(#[doc(hidden)]
        impl $trait<Val<$ty>> for $ty
        where
            for<'a> Val<$ty>: KnownWhileRecording,
        {
            fn $method(&mut self, _: Val<$ty>) {
                unreachable!("nothing is `KnownWhileRecording`")
            }
        })*)*
    };
}
assign! {
    AddAssign add_assign: u8 u16 u32 u64 i8 i16 i32 i64 f32;
    SubAssign sub_assign: u8 u16 u32 u64 i8 i16 i32 i64 f32;
    MulAssign mul_assign: u8 u16 u32 u64 i8 i16 i32 i64 f32;
    DivAssign div_assign: u8 u16 u32 u64 i8 i16 i32 i64 f32;
    RemAssign rem_assign: u8 u16 u32 u64 i8 i16 i32 i64 f32;
    BitAndAssign bitand_assign: bool u8 u16 u32 u64 i8 i16 i32 i64;
    BitOrAssign bitor_assign: bool u8 u16 u32 u64 i8 i16 i32 i64;
    BitXorAssign bitxor_assign: bool u8 u16 u32 u64 i8 i16 i32 i64;
}

/// The right side of a comparison that Rust itself makes.
pub struct Compared<R>(R);

/// Nothing is this.
pub trait KnownRight {}

/// What a comparison by Rust itself asks for.
#[diagnostic::on_unimplemented(
    message = "handles are compared only where code is recorded",
    label = "put `#[device]` on this function; if this stands in a macro's argument, compare in a `let` before it"
)]
pub trait ByRust {}
// With a bound on `R`, whether there is a comparison is open until `R` is known, and then the error is this one.
#[diagnostic::do_not_recommend]
impl<R: KnownRight> ByRust for Compared<R> {}

#[doc(hidden)]
impl<T, R> PartialEq<R> for Val<T>
where
    Compared<R>: ByRust,
{
    fn eq(&self, _: &R) -> bool {
        unreachable!("nothing is `KnownRight`")
    }
}

#[doc(hidden)]
impl<T, R> PartialOrd<R> for Val<T>
where
    Compared<R>: ByRust,
{
    fn partial_cmp(&self, _: &R) -> Option<std::cmp::Ordering> {
        unreachable!("nothing is `KnownRight`")
    }
}

/// Nothing is this: it stands for a range that Rust itself goes through.
#[diagnostic::on_unimplemented(
    message = "a range of the GPU is a loop only where code is recorded",
    label = "put `#[device]` on this function"
)]
pub trait GoneThroughByRust {}

#[doc(hidden)]
impl<T: GoneThroughByRust> Iterator for DynRange<T> {
    type Item = Val<T>;
    fn next(&mut self) -> Option<Val<T>> {
        unreachable!("nothing is `GoneThroughByRust`")
    }
}

/// Nothing is this: it stands for what brackets behind a pointer would need.
#[diagnostic::on_unimplemented(
    message = "brackets do not reach memory of the GPU",
    label = "write `x.at(i).load()` for the value, `x.at(i).store(value)` to assign it"
)]
pub trait BracketIndex {}

#[doc(hidden)]
impl<S, T, I: BracketIndex> Index<I> for Ptr<S, T> {
    type Output = Val<T>;
    fn index(&self, _: I) -> &Val<T> {
        unreachable!("nothing is a `BracketIndex`")
    }
}

/// Nothing is this: it stands for what `{}` would need.
#[diagnostic::on_unimplemented(
    message = "a handle has no value to print: that is known only on the GPU",
    label = "store it through a pointer, and print it on the host; `{{:?}}` prints the handle's number in the IR"
)]
pub trait Printed {}

#[doc(hidden)]
impl<T: Printed> fmt::Display for Val<T> {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        unreachable!("nothing is `Printed`")
    }
}

/// Nothing is this: it stands for what `sum` and `product` of an iterator would need.
#[diagnostic::on_unimplemented(
    message = "`sum` and `product` do not take handles",
    label = "write `.reduce(|a, b| a + b)`, or a `for` that adds to a `let mut sum = val(0.0f32)`"
)]
pub trait AddedUp {}

#[doc(hidden)]
impl<T: AddedUp, A> Sum<A> for Val<T> {
    fn sum<I: Iterator<Item = A>>(_: I) -> Val<T> {
        unreachable!("nothing is `AddedUp`")
    }
}

#[doc(hidden)]
impl<T: AddedUp, A> Product<A> for Val<T> {
    fn product<I: Iterator<Item = A>>(_: I) -> Val<T> {
        unreachable!("nothing is `AddedUp`")
    }
}
