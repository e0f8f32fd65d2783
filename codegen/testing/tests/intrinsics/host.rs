//! Host counterparts of the DSL's scalars, and conversions computed from exact values.

use std::fmt::Debug;

use bespoke_codegen::dsl::{Bf16x2, F16x2, Number, Scalar};
use bespoke_codegen::ir::{Rounding, Type};
use half::{bf16, f16};

/// Host side of a DSL scalar type: values from raw bits, a test for NaN, and edge cases.
pub trait Host: Scalar + Debug {
    /// The value with these bits.
    fn from_bits(bits: u64) -> Self;
    /// Whether the value, or one half of a packed value, is NaN.
    fn is_nan(self) -> bool {
        false
    }
    /// Edge cases of the type, such as zero, the extremes and NaN.
    fn edges() -> Vec<Self>;
}

/// Host side of a DSL type that is a single number, not a packed pair.
pub trait HostNumber: Host + Number {
    /// Exact value of the number.
    fn exact(self) -> Exact;
}

/// Exact value of a number of any type.
#[derive(Clone, Copy, Debug)]
pub enum Exact {
    /// An integer.
    Int(i128),
    /// A float.
    Float(f64),
}

macro_rules! integers {
    ($($ty:ident)*) => { $(
        impl Host for $ty {
            fn from_bits(bits: u64) -> $ty {
                bits as $ty
            }
            fn edges() -> Vec<$ty> {
                let pattern = 0x9e37_79b9_7f4a_7c15_u64 as $ty;
                vec![0, 1, 2, 7, <$ty>::MAX, <$ty>::MAX - 1, <$ty>::MIN, <$ty>::MIN + 1, <$ty>::MAX / 3, pattern, !0]
            }
        }
        impl HostNumber for $ty {
            fn exact(self) -> Exact {
                Exact::Int(self.into())
            }
        }
    )* };
}
integers!(u8 u16 u32 u64 i8 i16 i32 i64);

macro_rules! floats {
    ($($ty:ident $bits:ident: $least:literal, $least_normal:literal, $above_one:literal;)*) => { $(
        impl Host for $ty {
            fn from_bits(bits: u64) -> $ty {
                $ty::from_bits(bits as $bits)
            }
            fn is_nan(self) -> bool {
                f64::from(self).is_nan()
            }
            fn edges() -> Vec<$ty> {
                let patterns = [$least, $least_normal - 1, $least_normal, $above_one];
                let positive = patterns.map($ty::from_bits).into_iter().chain(
                    [0.0, 0.1, 0.5, 1.0, 1.5, 2.5, 127.5, 255.9, 4095.0, 65504.0].map(|x| small(x)),
                );
                let signed = positive.chain([$ty::MAX, $ty::INFINITY]).flat_map(|x| [x, -x]);
                signed.chain([$ty::NAN]).collect()
            }
        }
        impl HostNumber for $ty {
            fn exact(self) -> Exact {
                Exact::Float(self.into())
            }
        }
    )* };
}
floats! {
    f16 u16: 1, 0x400, 0x3c01;
    bf16 u16: 1, 0x80, 0x3f81;
    f32 u32: 1, 0x0080_0000, 0x3f80_0001;
    f64 u64: 1, 0x0010_0000_0000_0000, 0x3ff0_0000_0000_0001;
}

/// The number of a float type nearest to `x`.
fn small<T: HostNumber>(x: f64) -> T {
    convert(Exact::Float(x), Rounding::Nearest)
}

macro_rules! pairs {
    ($($pair:ident $half:ident;)*) => { $(
        impl Host for $pair {
            fn from_bits(bits: u64) -> $pair {
                $pair($half::from_bits(bits as u16), $half::from_bits((bits >> 16) as u16))
            }
            fn is_nan(self) -> bool {
                self.0.is_nan() || self.1.is_nan()
            }
            fn edges() -> Vec<$pair> {
                let halves = $half::edges();
                halves.iter().zip(halves.iter().rev()).map(|(&low, &high)| $pair(low, high)).collect()
            }
        }
    )* };
}
pairs! {
    F16x2 f16;
    Bf16x2 bf16;
}

/// Whether two values are bitwise equal or both NaN; NaN payloads depend on the device.
pub fn same<T: Host>(a: T, b: T) -> bool {
    fn halves<H: Host>(a: u64, b: u64) -> bool {
        same(H::from_bits(a & 0xffff), H::from_bits(b & 0xffff))
            && same(H::from_bits(a >> 16), H::from_bits(b >> 16))
    }
    match T::TYPE {
        Type::F16x2 => halves::<f16>(a.bits(), b.bits()),
        Type::Bf16x2 => halves::<bf16>(a.bits(), b.bits()),
        _ => a.bits() == b.bits() || (a.is_nan() && b.is_nan()),
    }
}

/// Expected result of `cvt`. Integers wrap; floats to integers are rounded and clamped, and NaN gives zero, or in 64
/// bits the top bit alone (PTX ISA, `cvt`); results in floats are rounded once.
pub fn convert<T: HostNumber>(value: Exact, rounding: Rounding) -> T {
    let ty = T::TYPE;
    match value {
        Exact::Int(value) if ty.is_int() => T::from_bits(value as u64 & ty.mask()),
        Exact::Float(value) if ty.is_int() => {
            let whole = match rounding {
                Rounding::Nearest => value.round_ties_even(),
                Rounding::Zero => value.trunc(),
                Rounding::Down => value.floor(),
                Rounding::Up => value.ceil(),
            };
            let nan = if ty.bits() == 64 { 1 << 63 } else { 0 };
            T::from_bits(if value.is_nan() { nan } else { clamp(ty, whole as i128) })
        }
        Exact::Int(value) => float(value < 0, value.unsigned_abs(), 0, rounding),
        Exact::Float(value) if value.is_nan() => T::from_bits(not_a_number(ty)),
        Exact::Float(value) if value.is_infinite() => T::from_bits(sign(ty, value < 0.0) | infinity(ty)),
        Exact::Float(value) => {
            let bits = value.to_bits();
            let (biased, fraction) = (bits >> 52 & 0x7ff, bits & ((1 << 52) - 1));
            let mantissa = if biased == 0 { fraction } else { fraction | 1 << 52 };
            float(value.is_sign_negative(), mantissa.into(), biased.max(1) as i32 - 1075, rounding)
        }
    }
}

/// Expected result of `cvt.sat` on an integer: clamped to the type.
pub fn saturate<T: HostNumber>(value: Exact) -> T {
    match value {
        Exact::Int(value) => T::from_bits(clamp(T::TYPE, value)),
        Exact::Float(_) => unreachable!("integers only"),
    }
}

/// Raw bits of the integer of type `ty` nearest to `value`.
fn clamp(ty: Type, value: i128) -> u64 {
    let least = if ty.is_signed() { -(1i128 << (ty.bits() - 1)) } else { 0 };
    let greatest = (1i128 << (ty.bits() - u32::from(ty.is_signed()))) - 1;
    value.clamp(least, greatest) as u64 & ty.mask()
}

/// Number of fraction bits of a float type.
fn fraction_bits(ty: Type) -> u32 {
    match ty {
        Type::F16 => 10,
        Type::Bf16 => 7,
        Type::F32 => 23,
        _ => 52,
    }
}

fn sign(ty: Type, negative: bool) -> u64 {
    u64::from(negative) << (ty.bits() - 1)
}

fn infinity(ty: Type) -> u64 {
    let exponent_bits = ty.bits() - 1 - fraction_bits(ty);
    ((1 << exponent_bits) - 1) << fraction_bits(ty)
}

fn not_a_number(ty: Type) -> u64 {
    infinity(ty) | 1
}

/// The number ±mantissa · 2^exponent, rounded to the type.
fn float<T: HostNumber>(negative: bool, mantissa: u128, exponent: i32, rounding: Rounding) -> T {
    let ty = T::TYPE;
    let fraction = fraction_bits(ty) as i32;
    let bias = (1 << (ty.bits() as i32 - 2 - fraction)) - 1;
    // Exponent of the result's last bit, at least that of subnormal numbers.
    let top = 128 - mantissa.leading_zeros() as i32 + exponent;
    let last = (top - 1 - fraction).max(1 - bias - fraction);
    let (kept, rest) = match last - exponent {
        cut @ 1..=127 => (mantissa >> cut, mantissa << (128 - cut)),
        cut if cut > 127 => (0, u128::from(mantissa != 0)),
        cut => (mantissa << -cut, 0),
    };
    let half = 1u128 << 127;
    let up = match rounding {
        Rounding::Nearest => rest > half || (rest == half && kept & 1 == 1),
        Rounding::Zero => false,
        Rounding::Down => negative && rest != 0,
        Rounding::Up => !negative && rest != 0,
    };
    // The carry of an increment correctly propagates into the exponent.
    let biased = if kept >> fraction == 0 { 0 } else { (last + fraction + bias) as u64 };
    let hidden = if biased == 0 { 0 } else { 1u64 << fraction };
    let magnitude = (biased << fraction) + (kept as u64 - hidden) + u64::from(up);
    let outwards = match rounding {
        Rounding::Nearest => true,
        Rounding::Zero => false,
        Rounding::Down => negative,
        Rounding::Up => !negative,
    };
    let limit = if outwards { infinity(ty) } else { infinity(ty) - 1 };
    T::from_bits(sign(ty, negative) | magnitude.min(limit))
}

#[test]
fn conversions_of_the_host_agree_with_the_language() {
    for &x in f32::edges().iter() {
        let once: f16 = convert(x.exact(), Rounding::Nearest);
        assert!(same(once, f16::from_f32(x)), "{x}: {once}");
        let once: bf16 = convert(x.exact(), Rounding::Nearest);
        assert!(same(once, bf16::from_f32(x)), "{x}: {once}");
        assert!(same(convert::<f32>(x.exact(), Rounding::Up), x));
        assert_eq!(convert::<i32>(x.exact(), Rounding::Zero), x as i32);
    }
    for x in i64::edges() {
        assert_eq!(convert::<f32>(x.exact(), Rounding::Nearest), x as f32);
        assert_eq!(convert::<u8>(x.exact(), Rounding::Nearest), x as u8);
    }
}
