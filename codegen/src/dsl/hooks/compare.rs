//! Comparisons, which Rust's operators cannot overload.

use std::panic::Location;

use crate::dsl::record::{Site, emit1};
use crate::dsl::scalar::{Number, Scalar};
use crate::dsl::value::{IntoVal, Val};
use crate::ir::{Compare, Op};

/// The two sides of a comparison; their types decide how it is made.
pub struct Pair<'a, A, B>(&'a A, &'a B);

impl<'a, A, B> Pair<'a, A, B> {
    /// The comparison of `left` with `right`.
    pub fn new(left: &'a A, right: &'a B) -> Pair<'a, A, B> {
        Pair(left, right)
    }
}

fn compare<T: Scalar>(op: Compare, left: Val<T>, right: Val<T>, site: Site) -> Val<bool> {
    Val::from_id(emit1(Op::Compare(op), T::TYPE, &[left.id, right.id], site))
}

macro_rules! comparisons {
    ($($(#[$doc:meta])* $name:ident $variant:ident $op:tt $bound:ident;)*) => {
        /// Comparisons on the GPU; found before [`CompareStatic`].
        pub trait CompareDyn {
            $($(#[$doc])*
            #[track_caller]
            fn $name(&self) -> Val<bool>;)*
        }

        impl<A: RuntimeLeft<B>, B> CompareDyn for Pair<'_, A, B> {
            $(#[track_caller]
            fn $name(&self) -> Val<bool> {
                A::compare(Compare::$variant, self.0, self.1, Location::caller())
            })*
        }

        /// Comparisons of compile-time values.
        pub trait CompareStatic<A, B> {
            $($(#[$doc])*
            fn $name(&self) -> bool where A: $bound<B>;)*
        }

        impl<A, B> CompareStatic<A, B> for &Pair<'_, A, B> {
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

/// A left side that makes the comparison with a `B` a run-time one.
pub trait RuntimeLeft<B> {
    /// Records the comparison.
    fn compare(op: Compare, left: &Self, right: &B, site: &'static Location<'static>) -> Val<bool>;
}

impl<T: Number, R: IntoVal<T>> RuntimeLeft<R> for Val<T> {
    fn compare(op: Compare, left: &Self, right: &R, site: Site) -> Val<bool> {
        compare(op, *left, right.into_val(), site)
    }
}

macro_rules! left_constant {
    ($($ty:ty)*) => {
        $(impl RuntimeLeft<Val<$ty>> for $ty {
            fn compare(op: Compare, left: &Self, right: &Val<$ty>, site: Site) -> Val<bool> {
                compare(op, left.into_val(), *right, site)
            }
        })*
    };
}
left_constant!(u8 u16 u32 u64 i8 i16 i32 i64 half::f16 half::bf16 f32);
