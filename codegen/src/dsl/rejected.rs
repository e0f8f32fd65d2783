//! Rust operators and traits that handles reject. Each is implemented under a bound that no type meets, so that the
//! error about the bound names an alternative; without the implementation, rustc would only say that there is none.

use std::fmt;
use std::iter::{Product, Sum};
use std::ops::*;

use super::hooks::DynRange;
use super::pointer::Ptr;
use super::value::Val;

/// Never implemented: a compile-time variable cannot take a handle's value.
#[diagnostic::on_unimplemented(
    message = "a compile-time variable cannot take a run-time value",
    label = "start the variable as a handle of the same type: `let mut sum = val(0.0f32)`"
)]
pub trait KnownWhileRecording {}

// `for<'a>` keeps rustc from refuting the bound at the implementation.
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
    AddAssign add_assign: u8 u16 u32 u64 i8 i16 i32 i64 f32 f64;
    SubAssign sub_assign: u8 u16 u32 u64 i8 i16 i32 i64 f32 f64;
    MulAssign mul_assign: u8 u16 u32 u64 i8 i16 i32 i64 f32 f64;
    DivAssign div_assign: u8 u16 u32 u64 i8 i16 i32 i64 f32 f64;
    RemAssign rem_assign: u8 u16 u32 u64 i8 i16 i32 i64 f32 f64;
    BitAndAssign bitand_assign: bool u8 u16 u32 u64 i8 i16 i32 i64;
    BitOrAssign bitor_assign: bool u8 u16 u32 u64 i8 i16 i32 i64;
    BitXorAssign bitxor_assign: bool u8 u16 u32 u64 i8 i16 i32 i64;
}

/// The right side of a comparison outside of recorded code.
pub struct Compared<R>(R);

/// Never implemented: delays an error until the type of the right side is known.
pub trait KnownRight {}

/// Never met: handles cannot be compared by Rust's own operators.
#[diagnostic::on_unimplemented(
    message = "handles can be compared only in recorded code",
    label = "write this in a function with `#[device]`, whose name can be passed where a closure is; in a macro's arguments, compare in a `let` before the macro"
)]
pub trait ByRust {}
// The bound on `R` delays the error until `R` is known.
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

/// Never implemented: Rust cannot iterate over a run-time range.
#[diagnostic::on_unimplemented(
    message = "a run-time range can be a loop only in recorded code",
    label = "put `#[device]` on this function"
)]
pub trait IteratedByRust {}

#[doc(hidden)]
impl<T: IteratedByRust> Iterator for DynRange<T> {
    type Item = Val<T>;
    fn next(&mut self) -> Option<Val<T>> {
        unreachable!("nothing is `IteratedByRust`")
    }
}

/// Never implemented: brackets cannot access GPU memory.
#[diagnostic::on_unimplemented(
    message = "brackets do not access GPU memory",
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

/// Never implemented: `{}` cannot print a handle.
#[diagnostic::on_unimplemented(
    message = "a handle cannot be printed: its value is known only on the GPU",
    label = "store it through a pointer and print it on the host; `{{:?}}` prints the number of the handle in the IR"
)]
pub trait Printed {}

#[doc(hidden)]
impl<T: Printed> fmt::Display for Val<T> {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        unreachable!("nothing is `Printed`")
    }
}

/// Never implemented: `sum` and `product` of an iterator cannot add handles.
#[diagnostic::on_unimplemented(
    message = "`sum` and `product` do not take handles",
    label = "write `.reduce(|a, b| a + b)`, or a `for` over the items and a `let mut sum = val(0.0f32)`"
)]
pub trait Summable {}

#[doc(hidden)]
impl<T: Summable, A> Sum<A> for Val<T> {
    fn sum<I: Iterator<Item = A>>(_: I) -> Val<T> {
        unreachable!("nothing is `Summable`")
    }
}

#[doc(hidden)]
impl<T: Summable, A> Product<A> for Val<T> {
    fn product<I: Iterator<Item = A>>(_: I) -> Val<T> {
        unreachable!("nothing is `Summable`")
    }
}
