//! Scalar types of run-time values, by their Rust types, and the classes that have bitwise operations and shuffles.

use half::{bf16, f16};

use crate::ir::Type;

/// Two binary16 values in one 32-bit register. The first is in the low half.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[repr(C, align(4))]
pub struct F16x2(pub f16, pub f16);

/// Two bfloat16 values in one 32-bit register. The first is in the low half.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[repr(C, align(4))]
pub struct Bf16x2(pub bf16, pub bf16);

/// A float of 8 bits: sign, 4 bits of exponent, 3 bits of fraction; no infinities. An element of matrices: it has no arithmetic.
/// Pairs ([`E4m3x2`]) are converted to f16, and from f16 and f32.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(transparent)]
pub struct E4m3(pub u8);

/// A float of 8 bits: sign, 5 bits of exponent, 2 bits of fraction. An element of matrices: it has no arithmetic.
/// Pairs ([`E5m2x2`]) are converted to f16, and from f16 and f32.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(transparent)]
pub struct E5m2(pub u8);

/// Two [`E4m3`] in one 16-bit register. The first is in the low byte.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C, align(2))]
pub struct E4m3x2(pub E4m3, pub E4m3);

/// Two [`E5m2`] in one 16-bit register. The first is in the low byte.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C, align(2))]
pub struct E5m2x2(pub E5m2, pub E5m2);

/// A Rust type that stands for the type of a run-time value.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a run-time scalar",
    label = "expected bool, u8 to u64, i8 to i64, f16, bf16, f32, f64, F16x2 or Bf16x2",
    note = "convert a `usize` with `as u32`"
)]
pub trait Scalar: Copy + 'static {
    /// The type in the IR.
    const TYPE: Type;
    /// The type of the right side of `& | ^`: `Self`, or `NoBits` if there are no such operators.
    type Bitwise;
    /// The bits of the value as an IR constant, in the low bits of the word.
    fn bits(self) -> u64;
}

/// The right side of `& | ^` of a scalar without these operators. The operators accept a value of any type here, so
/// that the error is about the operator and not about the type of the right side.
pub enum NoBits {}

/// Scalars with `& | ^ !`: integers and `bool`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no bitwise operators",
    label = "expected an integer or bool",
    note = "`.bitcast::<u32>()` gives the bits of a float"
)]
pub trait Bits: Scalar<Bitwise = Self> {}

/// 32- and 64-bit scalars: the operands of shuffles.
#[diagnostic::on_unimplemented(
    message = "a shuffle takes words of 32 or 64 bits, not `{Self}`",
    label = "expected u32, i32, f32, F16x2, Bf16x2, u64, i64 or f64",
    note = "widen a narrower value with `.cast()`"
)]
pub trait Word: Scalar {}

/// 32- and 64-bit scalars: the operands of [`super::match_any`] and of atomic exchanges.
#[diagnostic::on_unimplemented(
    message = "this operation takes words of 32 or 64 bits, not `{Self}`",
    label = "expected u32, i32, f32, F16x2, Bf16x2, u64, i64 or f64"
)]
pub trait RawWord: Scalar {}

macro_rules! scalar {
    ($($ty:ty => $ir:ident, $bitwise:ty, |$v:ident| $bits:expr;)*) => {
        $(impl Scalar for $ty {
            const TYPE: Type = Type::$ir;
            type Bitwise = $bitwise;
            fn bits(self) -> u64 {
                let $v = self;
                $bits
            }
        })*
    };
}

scalar! {
    bool => Pred, Self, |v| u64::from(v);
    u8 => U8, Self, |v| u64::from(v);
    u16 => U16, Self, |v| u64::from(v);
    u32 => U32, Self, |v| u64::from(v);
    u64 => U64, Self, |v| v;
    i8 => I8, Self, |v| u64::from(v as u8);
    i16 => I16, Self, |v| u64::from(v as u16);
    i32 => I32, Self, |v| u64::from(v as u32);
    i64 => I64, Self, |v| v as u64;
    f16 => F16, NoBits, |v| u64::from(v.to_bits());
    bf16 => Bf16, NoBits, |v| u64::from(v.to_bits());
    f32 => F32, NoBits, |v| u64::from(v.to_bits());
    f64 => F64, NoBits, |v| v.to_bits();
    E4m3 => U8, NoBits, |v| u64::from(v.0);
    E5m2 => U8, NoBits, |v| u64::from(v.0);
    E4m3x2 => U16, NoBits, |v| u64::from(v.0.0) | u64::from(v.1.0) << 8;
    E5m2x2 => U16, NoBits, |v| u64::from(v.0.0) | u64::from(v.1.0) << 8;
    F16x2 => F16x2, NoBits, |v| u64::from(v.0.to_bits()) | u64::from(v.1.to_bits()) << 16;
    Bf16x2 => Bf16x2, NoBits, |v| u64::from(v.0.to_bits()) | u64::from(v.1.to_bits()) << 16;
}

macro_rules! mark {
    ($($marker:ident: $($ty:ty)*;)*) => { $($(impl $marker for $ty {})*)* };
}

pub(super) use mark;

mark! {
    Bits: bool u8 u16 u32 u64 i8 i16 i32 i64;
    Word: u32 i32 f32 F16x2 Bf16x2 u64 i64 f64;
    RawWord: u32 i32 f32 F16x2 Bf16x2 u64 i64 f64;
}
