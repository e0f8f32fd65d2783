//! Floating-point arithmetic on raw bits, each operation rounded once.
//!
//! Arithmetic on 16-bit types uses `f64` and rounds *to odd* where it is inexact: the last bit is set if any discarded
//! bit is. A second rounding to a format with at least two bits fewer then gives the same result as rounding once
//! (Boldo and Melquiond, "When double rounding is odd", 2005).

use half::{bf16, f16};

use crate::ir::{Binary, Compare, Rounding, Type, Unary};

/// Exact value of a scalar, given its raw bits.
fn value(ty: Type, bits: u64) -> f64 {
    match ty {
        Type::F16 => f16::from_bits(bits as u16).to_f64(),
        Type::Bf16 => bf16::from_bits(bits as u16).to_f64(),
        Type::F64 => f64::from_bits(bits),
        _ => f32::from_bits(bits as u32).into(),
    }
}

/// Raw bits of the number of type `ty` nearest to `value`, which is exact or, for a narrower type, rounded to odd; none
/// for NaN.
fn nearest(ty: Type, value: f64) -> Option<u64> {
    let bits = match ty {
        Type::F16 => f16::from_f32(to_odd(value)).to_bits().into(),
        Type::Bf16 => bf16::from_f32(to_odd(value)).to_bits().into(),
        Type::F64 => value.to_bits(),
        _ => (value as f32).to_bits().into(),
    };
    (!value.is_nan()).then_some(bits)
}

/// Converts to f32, rounding to odd.
fn to_odd(value: f64) -> f32 {
    let near = value as f32;
    if f64::from(near) == value || !near.is_finite() {
        return near;
    }
    let beyond = f64::from(near).abs() > value.abs();
    f32::from_bits((near.to_bits() - u32::from(beyond)) | 1)
}

/// The sum `a + b`, to be rounded to type `ty` by [`nearest`].
fn sum(ty: Type, a: f64, b: f64) -> f64 {
    if ty == Type::F64 { a + b } else { add_odd(a, b) }
}

/// The sum `a + b`, rounded to odd.
fn add_odd(a: f64, b: f64) -> f64 {
    let sum = a + b;
    // Knuth's two-sum: `a + b` is exactly `sum + error`.
    let part = sum - a;
    let error = (a - (sum - part)) + (b - part);
    if !sum.is_finite() || error == 0.0 || sum.to_bits() & 1 == 1 {
        return sum;
    }
    let bits = sum.to_bits();
    f64::from_bits(if (error > 0.0) == (sum > 0.0) { bits + 1 } else { bits - 1 })
}

/// Applies `scalar` to the low and the high halves of packed operands.
fn packed<const N: usize>(args: [u64; N], scalar: impl Fn([u64; N]) -> Option<u64>) -> Option<u64> {
    let low = scalar(args.map(|bits| bits & 0xffff))?;
    let high = scalar(args.map(|bits| bits >> 16))?;
    Some(high << 16 | low)
}

pub(super) fn unary(unary: Unary, ty: Type, a: u64) -> Option<u64> {
    if let Some(half) = ty.half() {
        return packed([a], |[a]| self::unary(unary, half, a));
    }
    let sign = 1 << (ty.bits() - 1);
    if value(ty, a).is_nan() {
        return None;
    }
    match unary {
        Unary::Neg => Some(a ^ sign),
        Unary::Abs => Some(a & !sign),
        Unary::Rcp if ty == Type::F64 => finite_f64(1.0 / f64::from_bits(a)),
        Unary::Sqrt if ty == Type::F64 => finite_f64(f64::from_bits(a).sqrt()),
        Unary::RoundEven => nearest(ty, value(ty, a).round_ties_even()),
        Unary::Trunc => nearest(ty, value(ty, a).trunc()),
        Unary::Floor => nearest(ty, value(ty, a).floor()),
        Unary::Ceil => nearest(ty, value(ty, a).ceil()),
        Unary::Rcp => finite_f32(1.0 / f32::from_bits(a as u32)),
        Unary::Sqrt => finite_f32(f32::from_bits(a as u32).sqrt()),
        _ => None,
    }
}

fn finite_f64(value: f64) -> Option<u64> {
    value.is_finite().then_some(value.to_bits())
}

fn finite_f32(value: f32) -> Option<u64> {
    value.is_finite().then_some(value.to_bits().into())
}

pub(super) fn binary(binary: Binary, ty: Type, a: u64, b: u64) -> Option<u64> {
    if let Some(half) = ty.half() {
        return packed([a, b], |[a, b]| self::binary(binary, half, a, b));
    }
    let (x, y) = (value(ty, a), value(ty, b));
    match binary {
        // The f64 sum is rounded, but rounding it again to f32 is harmless: 53 >= 2 * 24 + 2.
        Binary::Add => nearest(ty, sum(ty, x, y)),
        Binary::Sub => nearest(ty, sum(ty, x, -y)),
        // The product of two numbers of at most 32 bits is exact in f64.
        Binary::Mul => nearest(ty, x * y),
        Binary::Div if y != 0.0 && ty == Type::F64 => finite_f64(x / y),
        Binary::Div if y != 0.0 => finite_f32(f32::from_bits(a as u32) / f32::from_bits(b as u32)),
        Binary::CopySign => {
            let sign = 1 << (ty.bits() - 1);
            (!x.is_nan()).then_some(a & !sign | b & sign)
        }
        Binary::Min | Binary::Max => extreme(binary == Binary::Min, (x, a), (y, b)),
        _ => None,
    }
}

/// Raw bits of the minimum (`smaller`) or maximum of two numbers, each given with its bits. If one operand is NaN, the
/// other operand; -0 is less than +0.
fn extreme(smaller: bool, (x, a): (f64, u64), (y, b): (f64, u64)) -> Option<u64> {
    match (x.is_nan(), y.is_nan()) {
        (true, true) => None,
        (true, false) => Some(b),
        (false, true) => Some(a),
        (false, false) => Some(if (x.total_cmp(&y).is_lt()) == smaller { a } else { b }),
    }
}

pub(super) fn mul_add(ty: Type, a: u64, b: u64, c: u64) -> Option<u64> {
    if let Some(half) = ty.half() {
        return packed([a, b, c], |[a, b, c]| mul_add(half, a, b, c));
    }
    match ty {
        Type::F64 => {
            let [x, y, z] = [a, b, c].map(f64::from_bits);
            nearest(ty, x.mul_add(y, z))
        }
        Type::F32 => {
            let [x, y, z] = [a, b, c].map(|bits| f32::from_bits(bits as u32));
            let result = x.mul_add(y, z);
            (!result.is_nan()).then_some(result.to_bits().into())
        }
        _ => nearest(ty, add_odd(value(ty, a) * value(ty, b), value(ty, c))),
    }
}

pub(super) fn compare(compare: Compare, ty: Type, a: u64, b: u64) -> bool {
    compare.holds(&value(ty, a), &value(ty, b))
}

/// Converts an integer to the nearest float. `None`, so no folding, if the result is not finite, if it is inexact
/// and `rounding` is not `Rounding::Nearest`, or if `to` is a 16-bit type and |`from`| is 2⁵³ or more.
pub(super) fn of_int(to: Type, from: i128, rounding: Rounding) -> Option<u64> {
    let bits = match to {
        Type::F32 => (from as f32).to_bits().into(),
        Type::F64 => (from as f64).to_bits(),
        _ if from.unsigned_abs() < 1 << 53 => nearest(to, from as f64)?,
        _ => return None,
    };
    let back = value(to, bits);
    (back.is_finite() && (rounding == Rounding::Nearest || back as i128 == from)).then_some(bits)
}

pub(super) fn to_int(from: Type, bits: u64, rounding: Rounding) -> Option<i128> {
    let value = value(from, bits);
    let rounded = match rounding {
        Rounding::Nearest => value.round_ties_even(),
        Rounding::Zero => value.trunc(),
        Rounding::Down => value.floor(),
        Rounding::Up => value.ceil(),
    };
    (rounded.abs() < 1e30).then_some(rounded as i128)
}

/// Converts between float types: rounded to nearest, or in another direction if the result is exact.
pub(super) fn of_float(to: Type, from: Type, bits: u64, rounding: Rounding) -> Option<u64> {
    let exact = value(from, bits);
    let bits = nearest(to, exact)?;
    let back = value(to, bits);
    (back.is_finite() && (rounding == Rounding::Nearest || back == exact)).then_some(bits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tie_that_double_rounding_would_break() {
        // 1 + 2^-11 is half way between 1 and the next f16; a product of 2^-48 decides.
        let tiny = f16::from_f32(2f32.powi(-24)).to_bits().into();
        let tie = |c: f32| u64::from(f16::from_f32(c).to_bits());
        let up = mul_add(Type::F16, tiny, tiny, tie(2048.0)).map(|bits| f16::from_bits(bits as u16).to_f32());
        assert_eq!(up, Some(2048.0));
        // 2049 is a tie in f16 that goes to even (2048); anything above it goes to 2050.
        let sum = add_odd(2049.0, 2f64.powi(-48));
        assert_eq!(nearest(Type::F16, 2049.0), Some(tie(2048.0)));
        assert_eq!(nearest(Type::F16, sum), Some(tie(2050.0)));
        assert_eq!(nearest(Type::F16, add_odd(2049.0, -(2f64.powi(-48)))), Some(tie(2048.0)));
    }

    #[test]
    fn every_f16_product_is_rounded_once() {
        // In f32 the product of two f16 is exact, so one conversion is the reference.
        for a in (0..0x7c00u64).step_by(37) {
            for b in (0..0x7c00u64).step_by(1009) {
                let exact = f16::from_bits(a as u16).to_f32() * f16::from_bits(b as u16).to_f32();
                assert_eq!(binary(Binary::Mul, Type::F16, a, b), Some(f16::from_f32(exact).to_bits().into()));
            }
        }
    }

    #[test]
    fn signed_zeros_and_nans() {
        let bits = |x: f32| u64::from(x.to_bits());
        let (zero, minus, nan) = (bits(0.0), bits(-0.0), bits(f32::NAN));
        assert_eq!(binary(Binary::Min, Type::F32, zero, minus), Some(minus));
        assert_eq!(binary(Binary::Max, Type::F32, minus, zero), Some(zero));
        assert_eq!(binary(Binary::Max, Type::F32, nan, minus), Some(minus));
        assert_eq!(binary(Binary::Add, Type::F32, minus, minus), Some(minus));
        assert_eq!(binary(Binary::Add, Type::F32, minus, zero), Some(zero));
        assert_eq!(binary(Binary::Add, Type::F32, nan, zero), None);
        assert!(compare(Compare::Ne, Type::F32, nan, nan) && !compare(Compare::Ge, Type::F32, nan, nan));
        assert!(compare(Compare::Eq, Type::F32, zero, minus));
    }
}
