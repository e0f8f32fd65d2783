//! Operators on handles.

use std::ops::*;
use std::panic::Location;

use super::number::{Int, Number};
use super::recorder::emit1;
use super::scalar::{Bf16x2, Bits, F16x2, NoBits, Scalar};
use super::value::{IntoVal, Val};
use crate::ir::{Binary, Op, Unary};

/// Scalars with `/`: integers (truncating), f32 and f64 (correctly rounded).
#[diagnostic::on_unimplemented(
    message = "`/` is not available for `{Self}`",
    label = "expected an integer, f32 or f64; convert halves with `.cast::<f32>()`, and convert the result back"
)]
pub trait Divide: Number {}
macro_rules! divide { ($($ty:ty)*) => { $(impl Divide for $ty {})* } }
divide!(u8 u16 u32 u64 i8 i16 i32 i64 f32 f64);

/// Scalars with `%`: integers.
#[diagnostic::on_unimplemented(
    message = "`%` is not available for `{Self}`",
    label = "expected an integer; for f32 write `x - (x / y).cast::<i32>().cast::<f32>() * y`, if the quotient fits an i32"
)]
pub trait Remainder: Number {}
#[diagnostic::do_not_recommend]
impl<T: Int> Remainder for T {}

// The bound on the left side's scalar is written as a bound on the right side: rustc then finds the operator and
// reports the bound's message. For a bound on the left side it would only report that there is no such operator. The
// messages below appear if the right side is itself a `T`.
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
    Term: Number, "`{T}` is not a number", "to compare two `Val<bool>`, write `a ^ b`";
    /// The right side of `/`.
    Divisor: Divide, "`/` is not available for `{T}`",
        "expected an integer, f32 or f64; convert halves with `.cast::<f32>()`, and convert the result back";
    /// The right side of `%`.
    Modulus: Remainder, "`%` is not available for `{T}`",
        "expected an integer; for f32 write `x - (x / y).cast::<i32>().cast::<f32>() * y`, if the quotient fits an i32";
    /// The right side of `& | ^`.
    BitOperand: Bits, "`{T}` has no bitwise operators", "`.bitcast::<u32>()` gives the bits of a float";
    /// The right side of `<< >>`.
    ShiftAmount: Int, "`{T}` is not an integer", "`.bitcast::<u32>()` gives the bits of a float";
}

/// The right side of `& | ^`: a value that converts to a `T`, or any value if the left side has no bitwise operators.
pub trait IntoBits<T> {
    /// The value as a handle.
    #[track_caller]
    fn into_bits(self) -> Val<T>;
}

impl<T: Scalar, R: IntoVal<T>> IntoBits<T> for R {
    fn into_bits(self) -> Val<T> {
        self.into_val()
    }
}

impl<R> IntoBits<NoBits> for R {
    fn into_bits(self) -> Val<NoBits> {
        unreachable!("the left side is not `Bits`")
    }
}

macro_rules! binary {
    ($(
        $(#[$doc:meta])*
        $trait:ident $method:ident, $assign:ident $assign_method:ident, $op:ident, $right:ident,
        $value:path: $into:ident;
    )*) => {
        $(impl<T: Scalar, R: $right<T> + $value> $trait<R> for Val<T> {
            type Output = Val<T>;
            $(#[$doc])*
            #[track_caller]
            fn $method(self, right: R) -> Val<T> {
                let right = right.$into();
                Val::from_id(emit1(Op::Binary(Binary::$op), T::TYPE, &[self.id(), right.id()], Location::caller()))
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
    /// The sum; integers wrap.
    ///
    /// - Written: `a + b`, `a += b`
    /// - PTX: `add.rn.f32`, by the type `add.u32`, `add.rn.f16x2`, …
    /// - Target: sm_80; sm_90 for bf16 and Bf16x2
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// assert_eq!(map(|x| x + 2.0, "add.rn.f32", [1.0f32]), [3.0]);
    /// ```
    Add add, AddAssign add_assign, Add, Term, IntoVal<T>: into_val;
    /// The difference; integers wrap.
    ///
    /// - Written: `a - b`, `a -= b`
    /// - PTX: `sub.u32`, by the type `sub.rn.f32`, `sub.rn.f16x2`, …
    /// - Target: sm_80; sm_90 for bf16 and Bf16x2
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// assert_eq!(map(|x| 2 - x, "sub.u32", [1u32, 3]), [1, u32::MAX]);
    /// ```
    Sub sub, SubAssign sub_assign, Sub, Term, IntoVal<T>: into_val;
    /// The product; integers wrap.
    ///
    /// - Written: `a * b`, `a *= b`
    /// - PTX: `mul.lo.u32`, by the type `mul.rn.f32`, `mul.rn.f16x2`, …
    /// - Target: sm_80; sm_90 for bf16 and Bf16x2
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// assert_eq!(map(|x| x * 7, "mul.lo.u32", [3u32]), [21]);
    /// ```
    Mul mul, MulAssign mul_assign, Mul, Term, IntoVal<T>: into_val;
    /// The quotient: truncated for integers, correctly rounded for f32 and f64.
    ///
    /// - Written: `a / b`, `a /= b`
    /// - PTX: `div.rn.f32`, by the type `div.u32`, `div.s64`, …; of u32 by a constant `mul.hi.u32` and `shr.u32`
    /// - Target: sm_80
    /// - Requires: integers, f32 or f64
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// assert_eq!(map(|x| x / 3.0, "div.rn.f32", [6.0f32]), [2.0]);
    /// ```
    Div div, DivAssign div_assign, Div, Divisor, IntoVal<T>: into_val;
    /// The remainder of the truncating division.
    ///
    /// - Written: `a % b`, `a %= b`
    /// - PTX: `rem.u32`, by the type `rem.s32`, `rem.u64`, …; of u32 by a constant `mul.hi.u32`, `mul.lo.u32` and others
    /// - Target: sm_80
    /// - Requires: integers
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// assert_eq!(map(|x| 30 % x, "rem.u32", [7u32]), [2]);
    /// assert_eq!(map(|x| x % 7, "mul.hi.u32", [30u32]), [2]);
    /// ```
    Rem rem, RemAssign rem_assign, Rem, Modulus, IntoVal<T>: into_val;
    /// The bitwise AND. Of `bool`, both sides are always evaluated.
    ///
    /// - Written: `a & b`, `a &= b`
    /// - PTX: `and.b32`, by the type `and.b16`, `and.b64`, `and.pred`
    /// - Target: sm_80
    /// - Requires: integers or bool
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// assert_eq!(map(|x| x & 6, "and.b32", [11u32]), [2]);
    /// ```
    BitAnd bitand, BitAndAssign bitand_assign, And, BitOperand, IntoBits<T::Bitwise>: into_bits;
    /// The bitwise OR.
    ///
    /// - Written: `a | b`, `a |= b`
    /// - PTX: `or.b32`, by the type `or.b16`, `or.b64`, `or.pred`
    /// - Target: sm_80
    /// - Requires: integers or bool
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// assert_eq!(map(|x| x | 6, "or.b32", [9u32]), [15]);
    /// ```
    BitOr bitor, BitOrAssign bitor_assign, Or, BitOperand, IntoBits<T::Bitwise>: into_bits;
    /// The bitwise XOR.
    ///
    /// - Written: `a ^ b`, `a ^= b`
    /// - PTX: `xor.b32`, by the type `xor.b16`, `xor.b64`, `xor.pred`
    /// - Target: sm_80
    /// - Requires: integers or bool
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// assert_eq!(map(|x| x ^ 6, "xor.b32", [11u32]), [13]);
    /// ```
    BitXor bitxor, BitXorAssign bitxor_assign, Xor, BitOperand, IntoBits<T::Bitwise>: into_bits;
    /// The left shift; an amount of the width or more gives zero.
    ///
    /// - Written: `a << b`, `a <<= b`
    /// - PTX: `shl.b32`, by the type `shl.b16`, `shl.b64`
    /// - Target: sm_80
    /// - Requires: integers; the amount is a u32
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// assert_eq!(map(|x| x << 3, "shl.b32", [5u32]), [40]);
    /// ```
    Shl shl, ShlAssign shl_assign, Shl, ShiftAmount, IntoVal<u32>: into_val;
    /// The right shift: arithmetic for signed integers, else logical.
    ///
    /// - Written: `a >> b`, `a >>= b`
    /// - PTX: `shr.u32`, by the type `shr.s32`, `shr.u64`, …
    /// - Target: sm_80
    /// - Requires: integers; the amount is a u32
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// assert_eq!(map(|x| x >> 3, "shr.u32", [41u32]), [5]);
    /// ```
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
    Add add: u8 u16 u32 u64 i8 i16 i32 i64 half::f16 half::bf16 f32 f64 F16x2 Bf16x2;
    Sub sub: u8 u16 u32 u64 i8 i16 i32 i64 half::f16 half::bf16 f32 f64 F16x2 Bf16x2;
    Mul mul: u8 u16 u32 u64 i8 i16 i32 i64 half::f16 half::bf16 f32 f64 F16x2 Bf16x2;
    Div div: u8 u16 u32 u64 i8 i16 i32 i64 f32 f64;
    Rem rem: u8 u16 u32 u64 i8 i16 i32 i64;
    BitAnd bitand: bool u8 u16 u32 u64 i8 i16 i32 i64;
    BitOr bitor: bool u8 u16 u32 u64 i8 i16 i32 i64;
    BitXor bitxor: bool u8 u16 u32 u64 i8 i16 i32 i64;
}

impl<T: Bits> Not for Val<T> {
    type Output = Val<T>;
    /// The bitwise NOT.
    ///
    /// - Written: `!a`
    /// - PTX: `not.b32`, by the type `not.b16`, `not.b64`, `not.pred`
    /// - Target: sm_80
    /// - Requires: integers or bool
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// assert_eq!(map(|x| !x, "not.b32", [0u32]), [u32::MAX]);
    /// ```
    #[track_caller]
    fn not(self) -> Val<T> {
        Val::from_id(emit1(Op::Unary(Unary::Not), T::TYPE, &[self.id()], Location::caller()))
    }
}

impl<T: Number> Neg for Val<T> {
    type Output = Val<T>;
    /// The negation; integers wrap.
    ///
    /// - Written: `-a`
    /// - PTX: `neg.f32`, by the type `neg.s32`, `neg.f16x2`, …
    /// - Target: sm_80
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// assert_eq!(map(|x| -x, "neg.f32", [2.0f32]), [-2.0]);
    /// ```
    #[track_caller]
    fn neg(self) -> Val<T> {
        Val::from_id(emit1(Op::Unary(Unary::Neg), <T as Scalar>::TYPE, &[self.id()], Location::caller()))
    }
}
