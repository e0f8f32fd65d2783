//! Operators on handles.

use std::ops::*;
use std::panic::Location;

use super::record::emit1;
use super::scalar::{Bf16x2, Bits, F16x2, Int, Number, Scalar};
use super::value::{IntoVal, Val};
use crate::ir::{Binary, Op, Unary};

/// Scalars with `/`: integers (truncating) and f32 (correctly rounded).
#[diagnostic::on_unimplemented(
    message = "the GPU does not divide `{Self}`",
    label = "expected an integer or f32",
    note = "convert halves with `.cast::<f32>()` before"
)]
pub trait Divide: Number {}
macro_rules! divide { ($($ty:ty)*) => { $(impl Divide for $ty {})* } }
divide!(u8 u16 u32 u64 i8 i16 i32 i64 f32);

macro_rules! binary {
    ($($trait:ident $method:ident, $assign:ident $assign_method:ident, $op:ident, $bound:ident;)*) => {
        $(impl<T: $bound, R: IntoVal<T>> $trait<R> for Val<T> {
            type Output = Val<T>;
            #[track_caller]
            fn $method(self, right: R) -> Val<T> {
                let right = right.into_val();
                Val::from_id(emit1(Op::Binary(Binary::$op), T::TYPE, &[self.id, right.id], Location::caller()))
            }
        }

        impl<T: $bound, R: IntoVal<T>> $assign<R> for Val<T> {
            #[track_caller]
            fn $assign_method(&mut self, right: R) {
                *self = $trait::$method(*self, right);
            }
        })*
    };
}
binary! {
    Add add, AddAssign add_assign, Add, Number;
    Sub sub, SubAssign sub_assign, Sub, Number;
    Mul mul, MulAssign mul_assign, Mul, Number;
    Div div, DivAssign div_assign, Div, Divide;
    Rem rem, RemAssign rem_assign, Rem, Int;
    BitAnd bitand, BitAndAssign bitand_assign, And, Bits;
    BitOr bitor, BitOrAssign bitor_assign, Or, Bits;
    BitXor bitxor, BitXorAssign bitxor_assign, Xor, Bits;
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

macro_rules! shift {
    ($($trait:ident $method:ident, $assign:ident $assign_method:ident, $op:ident;)*) => {
        $(impl<T: Int, R: IntoVal<u32>> $trait<R> for Val<T> {
            type Output = Val<T>;
            #[track_caller]
            fn $method(self, amount: R) -> Val<T> {
                let amount = amount.into_val();
                Val::from_id(emit1(Op::Binary(Binary::$op), T::TYPE, &[self.id, amount.id], Location::caller()))
            }
        }

        impl<T: Int, R: IntoVal<u32>> $assign<R> for Val<T> {
            #[track_caller]
            fn $assign_method(&mut self, amount: R) {
                *self = $trait::$method(*self, amount);
            }
        })*
    };
}
shift! {
    Shl shl, ShlAssign shl_assign, Shl;
    Shr shr, ShrAssign shr_assign, Shr;
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
