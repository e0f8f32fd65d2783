//! Arithmetic beyond the operators, conversions and bit operations.

use std::panic::Location;

use super::record::{emit, emit1};
use super::scalar::{Float, Int, Number, Scalar};
use super::value::{IntoVal, Val};
use crate::ir::{Binary, Op, Rounding, Type, Unary};

impl<T: Scalar> Val<T> {
    /// Converts the value: integers wrap or extend, integers to floats and narrower floats round to nearest even,
    /// floats to integers truncate and clamp to the range (`cvt`).
    #[track_caller]
    pub fn cast<U: Number>(self) -> Val<U>
    where
        T: Number,
    {
        let to_int = U::TYPE.is_int() && T::TYPE.is_float();
        self.cast_rounded(if to_int { Rounding::Zero } else { Rounding::Nearest })
    }

    /// As [`Val::cast`], with the rounding given (`cvt.rn`, `.rz`, `.rm`, `.rp`; to integers `.rni` and so on).
    #[track_caller]
    pub fn cast_rounded<U: Number>(self, rounding: Rounding) -> Val<U>
    where
        T: Number,
    {
        let op = Op::Convert { rounding, saturate: false };
        Val::from_id(emit1(op, U::TYPE, &[self.id], Location::caller()))
    }

    /// Converts between integers, clamping to the result's range (`cvt.sat`).
    #[track_caller]
    pub fn saturating_cast<U: Int>(self) -> Val<U>
    where
        T: Int,
    {
        let op = Op::Convert { rounding: Rounding::Nearest, saturate: true };
        Val::from_id(emit1(op, U::TYPE, &[self.id], Location::caller()))
    }

    /// The same bits as another type of the same width (`mov.b32` and so on).
    #[track_caller]
    pub fn bitcast<U: Scalar>(self) -> Val<U> {
        Val::from_id(emit1(Op::Bitcast, U::TYPE, &[self.id], Location::caller()))
    }
}

impl<T: Number> Val<T> {
    /// The smaller; of a NaN and a number, the number (`min`).
    #[track_caller]
    pub fn min(self, other: impl IntoVal<T>) -> Val<T> {
        let other = other.into_val();
        Val::from_id(emit1(Op::Binary(Binary::Min), T::TYPE, &[self.id, other.id], Location::caller()))
    }

    /// The larger; of a NaN and a number, the number (`max`).
    #[track_caller]
    pub fn max(self, other: impl IntoVal<T>) -> Val<T> {
        let other = other.into_val();
        Val::from_id(emit1(Op::Binary(Binary::Max), T::TYPE, &[self.id, other.id], Location::caller()))
    }

    /// The absolute value; of signed integers and floats (`abs`).
    #[track_caller]
    pub fn abs(self) -> Val<T> {
        Val::from_id(emit1(Op::Unary(Unary::Abs), T::TYPE, &[self.id], Location::caller()))
    }
}

macro_rules! unary_f32 {
    ($($(#[$doc:meta])* $name:ident => $op:ident;)*) => {
        impl Val<f32> {
            $($(#[$doc])*
            #[track_caller]
            pub fn $name(self) -> Val<f32> {
                Val::from_id(emit1(Op::Unary(Unary::$op), Type::F32, &[self.id], Location::caller()))
            })*
        }
    };
}
unary_f32! {
    /// 1/x, correctly rounded (`rcp.rn.f32`).
    rcp => Rcp;
    /// 1/x within 1 ulp (`rcp.approx.f32`).
    rcp_approx => RcpApprox;
    /// √x, correctly rounded (`sqrt.rn.f32`).
    sqrt => Sqrt;
    /// √x, approximate (`sqrt.approx.f32`).
    sqrt_approx => SqrtApprox;
    /// 1/√x, approximate: relative error about 2^-22.9 (`rsqrt.approx.f32`).
    rsqrt => Rsqrt;
    /// 2^x, approximate: about 2 ulp (`ex2.approx.f32`).
    exp2 => Exp2;
    /// log₂ x, approximate: 2^-22 relative outside (0.5, 2), absolute inside (`lg2.approx.f32`).
    log2 => Log2;
    /// sin x, approximate: absolute error 2^-20.5 in [−π, π] (`sin.approx.f32`).
    sin => Sin;
    /// cos x, approximate: absolute error 2^-20.5 in [−π, π] (`cos.approx.f32`).
    cos => Cos;
    /// tanh x, approximate: relative error 2^-11 (`tanh.approx.f32`).
    tanh => Tanh;
}

impl Val<f32> {
    /// x / y, approximate: 2 ulp for |y| in [2^-126, 2^126] (`div.approx.f32`).
    #[track_caller]
    pub fn div_approx(self, divisor: impl IntoVal<f32>) -> Val<f32> {
        let divisor = divisor.into_val();
        let op = Op::Binary(Binary::DivApprox);
        Val::from_id(emit1(op, Type::F32, &[self.id, divisor.id], Location::caller()))
    }

    /// eˣ as 2^(x·log₂e), with `ex2.approx`.
    #[track_caller]
    pub fn exp(self) -> Val<f32> {
        (self * std::f32::consts::LOG2_E).exp2()
    }
}

/// a·b + c with one rounding (`fma.rn`).
#[track_caller]
pub fn fma<T: Float>(a: impl IntoVal<T>, b: impl IntoVal<T>, c: impl IntoVal<T>) -> Val<T> {
    let args = [a.into_val().id, b.into_val().id, c.into_val().id];
    Val::from_id(emit1(Op::MulAdd, T::TYPE, &args, Location::caller()))
}

/// a·b + c of 32- or 64-bit integers, wrapping (`mad.lo`).
#[track_caller]
pub fn mul_add<T: Int>(a: impl IntoVal<T>, b: impl IntoVal<T>, c: impl IntoVal<T>) -> Val<T> {
    let args = [a.into_val().id, b.into_val().id, c.into_val().id];
    Val::from_id(emit1(Op::MulAdd, T::TYPE, &args, Location::caller()))
}

/// The full 64-bit product (`mul.wide.u32`).
#[track_caller]
pub fn mul_wide(a: impl IntoVal<u32>, b: impl IntoVal<u32>) -> Val<u64> {
    Val::from_id(emit1(Op::MulWide, Type::U32, &[a.into_val().id, b.into_val().id], Location::caller()))
}

/// The high half of the product (`mul.hi`).
#[track_caller]
pub fn mul_high<T: Int>(a: impl IntoVal<T>, b: impl IntoVal<T>) -> Val<T> {
    let args = [a.into_val().id, b.into_val().id];
    Val::from_id(emit1(Op::Binary(Binary::MulHi), T::TYPE, &args, Location::caller()))
}

/// `condition ? yes : no`, both evaluated (`selp`).
#[track_caller]
pub fn select<T: Scalar>(condition: Val<bool>, yes: impl IntoVal<T>, no: impl IntoVal<T>) -> Val<T> {
    let args = [condition.id, yes.into_val().id, no.into_val().id];
    Val::from_id(emit1(Op::Select, T::TYPE, &args, Location::caller()))
}

impl<T: Int> Val<T> {
    /// The number of one bits, of a 32- or 64-bit integer (`popc`).
    #[track_caller]
    pub fn count_ones(self) -> Val<u32> {
        Val::from_id(emit1(Op::Unary(Unary::Popc), T::TYPE, &[self.id], Location::caller()))
    }

    /// The number of leading zero bits, of a 32- or 64-bit integer (`clz`).
    #[track_caller]
    pub fn leading_zeros(self) -> Val<u32> {
        Val::from_id(emit1(Op::Unary(Unary::Clz), T::TYPE, &[self.id], Location::caller()))
    }

    /// The bits in reverse order, of a 32- or 64-bit integer (`brev`).
    #[track_caller]
    pub fn reverse_bits(self) -> Val<T> {
        Val::from_id(emit1(Op::Unary(Unary::Brev), T::TYPE, &[self.id], Location::caller()))
    }

    /// `length` bits from bit `position`, sign-extended for signed types (`bfe`).
    #[track_caller]
    pub fn bit_field(self, position: impl IntoVal<u32>, length: impl IntoVal<u32>) -> Val<T> {
        let args = [self.id, position.into_val().id, length.into_val().id];
        Val::from_id(emit1(Op::BitField, T::TYPE, &args, Location::caller()))
    }
}

/// Any bitwise function of three words: bit i of the result is bit (4a + 2b + c) of `table` for the bits i of a, b
/// and c (`lop3.b32`). `table` is the function applied to 0xF0, 0xCC and 0xAA.
#[track_caller]
pub fn lop3(a: impl IntoVal<u32>, b: impl IntoVal<u32>, c: impl IntoVal<u32>, table: u8) -> Val<u32> {
    let args = [a.into_val().id, b.into_val().id, c.into_val().id];
    Val::from_id(emit1(Op::Lop3(table), Type::U32, &args, Location::caller()))
}

/// Four bytes chosen from the eight of (b:a) by the nibbles of `selector`; a nibble's top bit replicates the byte's
/// sign (`prmt.b32`).
#[track_caller]
pub fn permute_bytes(a: impl IntoVal<u32>, b: impl IntoVal<u32>, selector: impl IntoVal<u32>) -> Val<u32> {
    let args = [a.into_val().id, b.into_val().id, selector.into_val().id];
    Val::from_id(emit1(Op::Prmt, Type::U32, &args, Location::caller()))
}

/// The upper 32 bits of (high:low) << (amount & 31) (`shf.l.wrap.b32`).
#[track_caller]
pub fn funnel_left(low: impl IntoVal<u32>, high: impl IntoVal<u32>, amount: impl IntoVal<u32>) -> Val<u32> {
    let args = [low.into_val().id, high.into_val().id, amount.into_val().id];
    Val::from_id(emit1(Op::Funnel { left: true }, Type::U32, &args, Location::caller()))
}

/// The lower 32 bits of (high:low) >> (amount & 31) (`shf.r.wrap.b32`).
#[track_caller]
pub fn funnel_right(low: impl IntoVal<u32>, high: impl IntoVal<u32>, amount: impl IntoVal<u32>) -> Val<u32> {
    let args = [low.into_val().id, high.into_val().id, amount.into_val().id];
    Val::from_id(emit1(Op::Funnel { left: false }, Type::U32, &args, Location::caller()))
}

/// Whether the bytes or halves of a packed word are signed.
pub trait Packed: Copy {
    /// Signed.
    const SIGNED: bool;
}

/// Packed signed integers.
#[derive(Clone, Copy, Debug)]
pub struct Signed;

/// Packed unsigned integers.
#[derive(Clone, Copy, Debug)]
pub struct Unsigned;

impl Packed for Signed {
    const SIGNED: bool = true;
}

impl Packed for Unsigned {
    const SIGNED: bool = false;
}

/// c + Σᵢ aᵢ·bᵢ over four bytes each (`dp4a`); `A` and `B` say how the bytes are signed.
#[track_caller]
pub fn dp4a<A: Packed, B: Packed>(_: A, a: Val<u32>, _: B, b: Val<u32>, c: impl IntoVal<i32>) -> Val<i32> {
    let op = Op::Dp4a { a_signed: A::SIGNED, b_signed: B::SIGNED };
    Val::from_id(emit1(op, Type::I32, &[a.id, b.id, c.into_val().id], Location::caller()))
}

/// c + a₀·b₀ + a₁·b₁ of the 16-bit halves of `a` and the two lower bytes of `b` (`dp2a.lo`).
#[track_caller]
pub fn dp2a_low<A: Packed, B: Packed>(
    _: A,
    a: Val<u32>,
    _: B,
    b: Val<u32>,
    c: impl IntoVal<i32>,
) -> Val<i32> {
    let op = Op::Dp2a { a_signed: A::SIGNED, b_signed: B::SIGNED, high: false };
    Val::from_id(emit1(op, Type::I32, &[a.id, b.id, c.into_val().id], Location::caller()))
}

/// c + a₀·b₂ + a₁·b₃ of the 16-bit halves of `a` and the two upper bytes of `b` (`dp2a.hi`).
#[track_caller]
pub fn dp2a_high<A: Packed, B: Packed>(
    _: A,
    a: Val<u32>,
    _: B,
    b: Val<u32>,
    c: impl IntoVal<i32>,
) -> Val<i32> {
    let op = Op::Dp2a { a_signed: A::SIGNED, b_signed: B::SIGNED, high: true };
    Val::from_id(emit1(op, Type::I32, &[a.id, b.id, c.into_val().id], Location::caller()))
}

/// Two halves of a word, the first in the low half (`mov.b32`).
#[track_caller]
pub fn pack_u16(low: Val<u16>, high: Val<u16>) -> Val<u32> {
    Val::from_id(emit1(Op::Pack, Type::U32, &[low.id, high.id], Location::caller()))
}

impl Val<u32> {
    /// The low and the high half (`mov.b32`).
    #[track_caller]
    pub fn unpack_u16(self) -> [Val<u16>; 2] {
        let halves = emit(Op::Unpack, Type::U16, &[self.id], Location::caller());
        [Val::from_id(halves[0]), Val::from_id(halves[1])]
    }
}
