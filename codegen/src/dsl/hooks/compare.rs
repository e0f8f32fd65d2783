//! Comparisons, which Rust's operators cannot overload.

use std::panic::Location;

use crate::dsl::number::Number;
use crate::dsl::recorder::emit1;
use crate::dsl::scalar::Scalar;
use crate::dsl::value::{IntoVal, Val};
use crate::ir::{Compare, Op};

/// The two sides of a comparison. Their types decide between compile time and run time.
///
/// - Written: `a < b`, `a <= b`, `a > b`, `a >= b`, `a == b`, `a != b`
/// - PTX: `setp.lt.u32`, by the operator and the type `setp.eq.f32`, `setp.ge.s64`, …
/// - Target: sm_80; sm_90 for bf16
///
/// ```
/// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
/// #[kernel(threads = 32)]
/// fn first(x: Ptr<Global, u32>) {
///     x.at(lane()).store(select(x.at(lane()).load() < 2, val(1u32), 0));
/// }
/// assert_eq!(run(first(), "setp.lt.u32", LANES)[..3], [1, 1, 0]);
/// ```
pub struct Pair<'a, A: ?Sized, B: ?Sized>(&'a A, &'a B);

impl<'a, A: ?Sized, B: ?Sized> Pair<'a, A, B> {
    /// The comparison of `left` with `right`.
    pub fn new(left: &'a A, right: &'a B) -> Pair<'a, A, B> {
        Pair(left, right)
    }
}

macro_rules! comparisons {
    ($($(#[$doc:meta])* $name:ident $variant:ident $op:tt $bound:ident;)*) => {
        /// Comparisons on the GPU; autoref finds this trait before [`CompareStatic`].
        pub trait CompareDyn {
            /// The scalar type of both sides.
            type Scalar;
            /// The type of the right side, before its conversion to a handle.
            type Right;
            $($(#[$doc])*
            #[track_caller]
            fn $name(&self) -> Val<bool>
            where
                Self::Scalar: Number,
                Self::Right: IntoVal<Self::Scalar>;)*
        }

        impl<A: RuntimeLeft<B>, B> CompareDyn for Pair<'_, A, B> {
            type Scalar = A::Scalar;
            type Right = B;
            $(#[track_caller]
            fn $name(&self) -> Val<bool>
            where
                A::Scalar: Number,
                B: IntoVal<A::Scalar>,
            {
                let (left, right) = (self.0.handle(), (*self.1).into_val());
                let args = [left.id(), right.id()];
                Val::from_id(emit1(Op::Compare(Compare::$variant), A::Scalar::TYPE, &args, Location::caller()))
            })*
        }

        /// Comparisons of compile-time values.
        pub trait CompareStatic<A: ?Sized, B: ?Sized> {
            $($(#[$doc])*
            fn $name(&self) -> bool where A: $bound<B>;)*
        }

        impl<A: ?Sized, B: ?Sized> CompareStatic<A, B> for &Pair<'_, A, B> {
            $(fn $name(&self) -> bool where A: $bound<B> {
                self.0 $op self.1
            })*
        }
    };
}
comparisons! {
    /// `==`
    eq Eq == PartialEq;
    /// `!=`
    ne Ne != PartialEq;
    /// `<`
    lt Lt < PartialOrd;
    /// `<=`
    le Le <= PartialOrd;
    /// `>`
    gt Gt > PartialOrd;
    /// `>=`
    ge Ge >= PartialOrd;
}

/// A left side whose comparison with a `B` happens at run time.
pub trait RuntimeLeft<B> {
    /// The scalar type that is compared.
    type Scalar: Scalar;
    /// The left side's handle; a constant is recorded at the caller's line.
    #[track_caller]
    fn handle(&self) -> Val<Self::Scalar>;
}

impl<T: Scalar, B> RuntimeLeft<B> for Val<T> {
    type Scalar = T;
    fn handle(&self) -> Val<T> {
        *self
    }
}

macro_rules! left_constant {
    ($($ty:ty)*) => {
        $(impl RuntimeLeft<Val<$ty>> for $ty {
            type Scalar = $ty;
            #[track_caller]
            fn handle(&self) -> Val<$ty> {
                (*self).into_val()
            }
        })*
    };
}
left_constant!(u8 u16 u32 u64 i8 i16 i32 i64 half::f16 half::bf16 f32 f64);
