//! Operators on handles.

use std::ops::*;
use std::panic::Location;

use super::record::emit1;
use super::scalar::{Bf16x2, Bits, F16x2, Int, NoBits, Number, Scalar};
use super::value::{IntoVal, Val};
use crate::ir::{Binary, Op, Unary};

/// Scalars with `/`: integers (truncating) and f32 (correctly rounded).
#[diagnostic::on_unimplemented(
    message = "the GPU does not divide `{Self}`",
    label = "expected an integer or f32: convert halves with `.cast::<f32>()` before, and the result back"
)]
pub trait Divide: Number {}
macro_rules! divide { ($($ty:ty)*) => { $(impl Divide for $ty {})* } }
divide!(u8 u16 u32 u64 i8 i16 i32 i64 f32);

/// Scalars with `%`: integers.
#[diagnostic::on_unimplemented(
    message = "the GPU has no remainder of `{Self}`",
    label = "of f32, write `x - (x / y).cast::<i32>().cast::<f32>() * y`, where the quotient fits an i32"
)]
pub trait Remainder: Number {}
#[diagnostic::do_not_recommend]
impl<T: Int> Remainder for T {}

// That the left side, a `Val<T>`, has the operator is asked of the right side's type: Rust looks the operator up before
// it knows that type, finds it, and then reports the bound. Of a bound on the left side it only says that there is no
// operator. Errors show the bound's own message, but if the right side is a `T`, this one.
macro_rules! right_sides {
    ($($(#[$doc:meta])* $right:ident: $bound:ident, $message:literal, $label:literal;)*) => {
        $($(#[$doc])*
        #[diagnostic::on_unimplemented(message = $message, label = $label)]
        pub trait $right<T> {}
        impl<T: $bound, R> $right<T> for R {})*
    };
}
right_sides! {
    /// The right side of `+ - *`.
    Term: Number, "`{T}` is no number", "of two `Val<bool>`, `a ^ b` says whether they differ";
    /// The right side of `/`.
    Divisor: Divide, "the GPU does not divide `{T}`",
        "expected an integer or f32: convert halves with `.cast::<f32>()` before, and the result back";
    /// The right side of `%`.
    Modulus: Remainder, "the GPU has no remainder of `{T}`",
        "of f32, write `x - (x / y).cast::<i32>().cast::<f32>() * y`, where the quotient fits an i32";
    /// The right side of `& | ^`.
    BitOperand: Bits, "`{T}` has no bits to combine", "`.bitcast::<u32>()` takes the bits of a float";
    /// The right side of `<< >>`.
    ShiftAmount: Int, "`{T}` is no integer", "`.bitcast::<u32>()` takes the bits of a float";
}

/// What may stand on the right side of `& | ^`: of a `T` what becomes one, and anything where there are no such operators.
pub trait InBits<T> {
    /// The handle.
    #[track_caller]
    fn into_bits(self) -> Val<T>;
}

impl<T: Scalar, R: IntoVal<T>> InBits<T> for R {
    fn into_bits(self) -> Val<T> {
        self.into_val()
    }
}

impl<R> InBits<NoBits> for R {
    fn into_bits(self) -> Val<NoBits> {
        unreachable!("what has no bits is not `Bits`")
    }
}

macro_rules! binary {
    ($(
        $trait:ident $method:ident, $assign:ident $assign_method:ident, $op:ident, $right:ident,
        $value:path: $into:ident;
    )*) => {
        $(impl<T: Scalar, R: $right<T> + $value> $trait<R> for Val<T> {
            type Output = Val<T>;
            #[track_caller]
            fn $method(self, right: R) -> Val<T> {
                let right = right.$into();
                Val::from_id(emit1(Op::Binary(Binary::$op), T::TYPE, &[self.id, right.id], Location::caller()))
            }
        }

        impl<T: Scalar, R: $right<T> + $value> $assign<R> for Val<T> {
            #[track_caller]
            fn $assign_method(&mut self, right: R) {
                *self = $trait::$method(*self, right);
            }
        })*
    };
}
binary! {
    Add add, AddAssign add_assign, Add, Term, IntoVal<T>: into_val;
    Sub sub, SubAssign sub_assign, Sub, Term, IntoVal<T>: into_val;
    Mul mul, MulAssign mul_assign, Mul, Term, IntoVal<T>: into_val;
    Div div, DivAssign div_assign, Div, Divisor, IntoVal<T>: into_val;
    Rem rem, RemAssign rem_assign, Rem, Modulus, IntoVal<T>: into_val;
    BitAnd bitand, BitAndAssign bitand_assign, And, BitOperand, InBits<T::InBits>: into_bits;
    BitOr bitor, BitOrAssign bitor_assign, Or, BitOperand, InBits<T::InBits>: into_bits;
    BitXor bitxor, BitXorAssign bitxor_assign, Xor, BitOperand, InBits<T::InBits>: into_bits;
    Shl shl, ShlAssign shl_assign, Shl, ShiftAmount, IntoVal<u32>: into_val;
    Shr shr, ShrAssign shr_assign, Shr, ShiftAmount, IntoVal<u32>: into_val;
}

macro_rules! left_constant {
    ($($trait:ident $method:ident: $($ty:ty)*;)*) => {
        $($(impl $trait<Val<$ty>> for $ty {
            type Output = Val<$ty>;
            #[track_caller]
            fn $method(self, right: Val<$ty>) -> Val<$ty> {
                $trait::$method(super::value::val(self), right)
            }
        })*)*
    };
}
left_constant! {
    Add add: u8 u16 u32 u64 i8 i16 i32 i64 half::f16 half::bf16 f32 F16x2 Bf16x2;
    Sub sub: u8 u16 u32 u64 i8 i16 i32 i64 half::f16 half::bf16 f32 F16x2 Bf16x2;
    Mul mul: u8 u16 u32 u64 i8 i16 i32 i64 half::f16 half::bf16 f32 F16x2 Bf16x2;
    Div div: u8 u16 u32 u64 i8 i16 i32 i64 f32;
    Rem rem: u8 u16 u32 u64 i8 i16 i32 i64;
    BitAnd bitand: bool u8 u16 u32 u64 i8 i16 i32 i64;
    BitOr bitor: bool u8 u16 u32 u64 i8 i16 i32 i64;
    BitXor bitxor: bool u8 u16 u32 u64 i8 i16 i32 i64;
}

impl<T: Bits> Not for Val<T> {
    type Output = Val<T>;
    #[track_caller]
    fn not(self) -> Val<T> {
        Val::from_id(emit1(Op::Unary(Unary::Not), T::TYPE, &[self.id], Location::caller()))
    }
}

impl<T: Number> Neg for Val<T> {
    type Output = Val<T>;
    #[track_caller]
    fn neg(self) -> Val<T> {
        Val::from_id(emit1(Op::Unary(Unary::Neg), <T as Scalar>::TYPE, &[self.id], Location::caller()))
    }
}
