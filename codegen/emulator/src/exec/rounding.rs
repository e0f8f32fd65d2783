//! Rounding: directed modes, narrow floating-point formats, and canonical NaNs.
//!
//! For a rounding mode that the CPU lacks, a sum or product is computed in `f64` *rounded to odd*: an inexact result
//! gets an odd last bit. Such a result is never a tie or a value of the narrower format, so rounding it again equals
//! rounding the exact result (Boldo and Melquiond, "Emulation of FMA and correctly rounded sums", 2008).

/// Canonical NaN of single-precision instructions.
pub(crate) const NAN32: f32 = f32::from_bits(0x7fff_ffff);
/// Canonical NaN of half-precision instructions.
pub(crate) const NAN16: u16 = 0x7fff;

/// Rounding mode: `.rn`, `.rz`, `.rm`, `.rp`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Rounding {
    Nearest,
    Zero,
    Down,
    Up,
}

impl Rounding {
    /// Modifiers that round to a floating-point number, with their modes.
    pub(crate) const FLOAT: [(&'static str, Rounding); 4] =
        [("rn", Rounding::Nearest), ("rz", Rounding::Zero), ("rm", Rounding::Down), ("rp", Rounding::Up)];
    /// Modifiers that round to an integral value, with their modes.
    pub(crate) const INTEGER: [(&'static str, Rounding); 4] =
        [("rni", Rounding::Nearest), ("rzi", Rounding::Zero), ("rmi", Rounding::Down), ("rpi", Rounding::Up)];

    pub(crate) fn from_bits(bits: u64) -> Rounding {
        match bits & 3 {
            0 => Rounding::Nearest,
            1 => Rounding::Zero,
            2 => Rounding::Down,
            _ => Rounding::Up,
        }
    }

    /// Rounds to an integral value in this mode.
    #[inline(always)]
    pub(crate) fn integer(self, x: f64) -> f64 {
        match self {
            Rounding::Nearest => x.round_ties_even(),
            Rounding::Zero => x.trunc(),
            Rounding::Down => x.floor(),
            Rounding::Up => x.ceil(),
        }
    }
}

/// `rounded + error` rounded to odd, where `rounded` is the double nearest to the sum.
#[inline(always)]
fn odd(rounded: f64, error: f64) -> f64 {
    let bits = rounded.to_bits();
    if error == 0.0 || !rounded.is_finite() || error.is_nan() || bits & 1 != 0 {
        return rounded;
    }
    let grows = (error > 0.0) == (rounded > 0.0);
    f64::from_bits(if grows { bits + 1 } else { bits - 1 })
}

/// Knuth's two-sum: `(s, e)` such that `s + e = a + b` exactly and `s` is the double nearest to `a + b`.
#[inline(always)]
fn two_sum(a: f64, b: f64) -> (f64, f64) {
    let s = a + b;
    let t = s - a;
    (s, (a - (s - t)) + (b - t))
}

/// `a + b` rounded to odd, for operands far from overflow.
#[inline(always)]
pub(crate) fn add_odd(a: f64, b: f64) -> f64 {
    let (s, e) = two_sum(a, b);
    odd(s, e)
}

/// `a / b` rounded to odd, for operands that are exact in single precision.
pub(crate) fn div_odd(a: f64, b: f64) -> f64 {
    let q = a / b;
    if !q.is_finite() || q == 0.0 {
        return q;
    }
    let remainder = (-q).mul_add(b, a);
    odd(q, if b < 0.0 { -remainder } else { remainder })
}

/// `√a` rounded to odd, for an operand that is exact in single precision.
pub(crate) fn sqrt_odd(a: f64) -> f64 {
    let root = a.sqrt();
    if !root.is_finite() || root == 0.0 {
        return root;
    }
    odd(root, (-root).mul_add(root, a))
}

/// Returns `sum`, the value of `a + b`, with the sign that an exact sum of zero has in `mode`.
#[inline(always)]
pub(crate) fn zero_sum(sum: f64, a: f64, b: f64, mode: Rounding) -> f64 {
    if sum == 0.0 && mode == Rounding::Down && a.is_sign_negative() != b.is_sign_negative() {
        -0.0
    } else {
        sum
    }
}

/// Rounds a double to single precision in any mode.
pub(crate) fn narrow(x: f64, mode: Rounding) -> f32 {
    let y = x as f32;
    let back = y as f64;
    match mode {
        Rounding::Zero if back.abs() > x.abs() => f32::from_bits(y.to_bits() - 1),
        Rounding::Down if back > x => y.next_down(),
        Rounding::Up if back < x => y.next_up(),
        _ => y,
    }
}

/// Rounds a double to single precision by rounding to odd.
#[inline(always)]
pub(crate) fn narrow_odd(x: f64) -> f32 {
    let y = x as f32;
    let back = y as f64;
    let bits = y.to_bits();
    if back == x || x.is_nan() || x.is_infinite() || bits & 1 != 0 {
        return y;
    }
    // Zero and infinity have even encodings; for both, the neighbour towards `x` is the odd result.
    f32::from_bits(if back.abs() < x.abs() { bits + 1 } else { bits - 1 })
}

/// `nearest + error` rounded in `mode`, where `nearest` is the double nearest to the sum.
pub(crate) fn direct(nearest: f64, error: f64, mode: Rounding) -> f64 {
    if nearest.is_nan() || error == 0.0 || error.is_nan() {
        return nearest;
    }
    match mode {
        Rounding::Up if error > 0.0 => nearest.next_up(),
        Rounding::Down if error < 0.0 => nearest.next_down(),
        Rounding::Zero if (error > 0.0) != nearest.is_sign_positive() => {
            f64::from_bits(nearest.to_bits() - 1)
        }
        _ => nearest,
    }
}

/// Replaces a NaN by the canonical NaN.
#[inline(always)]
pub(crate) fn canonical(x: f32) -> f32 {
    // Tests the bits, because Rust does not guarantee the payload of a NaN from arithmetic.
    let bits = x.to_bits();
    f32::from_bits(if bits & 0x7fff_ffff > 0x7f80_0000 { NAN32.to_bits() } else { bits })
}

/// NaN that a double-precision operation returns if no operand is a NaN.
const NAN64: u64 = 0xfff8_0000_0000_0000;

/// Sets the quiet bit of a double-precision NaN and keeps its payload.
#[inline(always)]
pub(crate) fn quiet(x: f64) -> f64 {
    let bits = x.to_bits();
    f64::from_bits(if x.is_nan() { bits | 1 << 51 } else { bits })
}

/// NaN propagation of double precision: a NaN result takes the payload of the last operand that is a NaN.
#[inline(always)]
pub(crate) fn propagate<const N: usize>(result: f64, operands: [f64; N]) -> f64 {
    let mut nan = NAN64;
    for operand in operands {
        nan = if operand.is_nan() { quiet(operand).to_bits() } else { nan };
    }
    f64::from_bits(if result.is_nan() { nan } else { result.to_bits() })
}

/// Converts a double-precision NaN to a format with `fraction` stored significand bits; keeps the upper bits of the
/// payload.
pub(crate) fn narrow_nan(x: f64, fraction: u32) -> u64 {
    let bits = x.to_bits();
    let payload = (bits & ((1 << 52) - 1) | 1 << 51) >> (52 - fraction);
    let exponent = match fraction {
        10 => 0x1f << 10,
        _ => 0xff << fraction,
    };
    let sign = bits >> 63 << if fraction == 23 { 31 } else { 15 };
    sign | exponent | payload
}

/// `.ftz`: replaces a subnormal by the zero of the same sign.
#[inline(always)]
pub(crate) fn flush(x: f32) -> f32 {
    if x.abs() < f32::MIN_POSITIVE { 0.0f32.copysign(x) } else { x }
}

/// `.sat`: clamps to [0, 1]; a NaN becomes 0.
#[inline(always)]
pub(crate) fn saturate(x: f32) -> f32 {
    let positive = if x > 0.0 { x } else { 0.0 };
    if positive > 1.0 { 1.0 } else { positive }
}

/// 16-bit floating-point format.
pub(crate) trait Format: 'static {
    /// Significand bits, including the hidden bit.
    const PRECISION: i32;
    /// Exponent of the smallest normal number.
    const MIN_EXPONENT: i32;
    const MAX_FINITE: u16;
    fn to_f32(bits: u16) -> f32;
    /// Rounds a single to nearest, ties to even; a NaN becomes the canonical NaN.
    fn from_f32(x: f32) -> u16;

    /// Rounds a double to nearest, ties to even.
    #[inline(always)]
    fn from_f64(x: f64) -> u16 {
        Self::from_f32(narrow_odd(x))
    }

    /// Rounds a double in the given mode.
    fn rounded(x: f64, mode: Rounding) -> u16 {
        if mode == Rounding::Nearest || x.is_nan() || x.is_infinite() || x == 0.0 {
            return Self::from_f64(x);
        }
        let exponent = (((x.to_bits() >> 52) & 0x7ff) as i32 - 1023).max(Self::MIN_EXPONENT);
        let quantum = 2f64.powi(exponent - Self::PRECISION + 1);
        let result = mode.integer(x / quantum) * quantum;
        let largest = Self::to_f32(Self::MAX_FINITE) as f64;
        let away = matches!((mode, x > 0.0), (Rounding::Up, true) | (Rounding::Down, false));
        if result.abs() > largest {
            let magnitude = if away { f32::INFINITY } else { largest as f32 };
            return Self::from_f32(magnitude.copysign(x as f32));
        }
        Self::from_f32((result as f32).copysign(x as f32))
    }
}

/// `.f16`: IEEE binary16.
pub(crate) struct F16;
/// `.bf16`: the upper half of an `f32`.
pub(crate) struct Bf16;

impl Format for F16 {
    const PRECISION: i32 = 11;
    const MIN_EXPONENT: i32 = -14;
    const MAX_FINITE: u16 = 0x7bff;

    #[inline(always)]
    fn to_f32(bits: u16) -> f32 {
        // The fraction and the exponent where a single has them. The biases of the exponents differ by 112.
        let magnitude = ((bits & 0x7fff) as u32) << 13;
        // A subnormal half: with an exponent of -14 its value is too large by that power of two. No operand is a subnormal single,
        // with which products take a hundred times as long on some CPUs.
        let offset = f32::from_bits(113 << 23);
        let small = f32::from_bits(magnitude + (113 << 23)) - offset;
        let finite = if magnitude < 1 << 23 { small.to_bits() } else { magnitude + (112 << 23) };
        let special = if magnitude >= 31 << 23 { 0x7f80_0000 } else { 0 };
        f32::from_bits(finite | special | ((bits & 0x8000) as u32) << 16)
    }

    #[inline(always)]
    fn from_f32(x: f32) -> u16 {
        let bits = x.to_bits();
        let sign = (bits >> 16) & 0x8000;
        let magnitude = bits & 0x7fff_ffff;
        // Subnormal halves: adding 0.5 makes the CPU round at the last bit of a subnormal half.
        let small = (f32::from_bits(magnitude) + 0.5).to_bits().wrapping_sub(0.5f32.to_bits());
        // Normal halves: rebias the exponent, and round off the low 13 bits to nearest, ties to even.
        let normal = magnitude.wrapping_sub(0x3800_0000 - 0xfff).wrapping_add(magnitude >> 13 & 1) >> 13;
        let finite = if magnitude < 0x3880_0000 { small } else { normal };
        let limited = if magnitude >= 0x477f_f000 { 0x7c00 } else { finite };
        if magnitude > 0x7f80_0000 { NAN16 } else { (sign | limited) as u16 }
    }
}

impl Format for Bf16 {
    const PRECISION: i32 = 8;
    const MIN_EXPONENT: i32 = -126;
    const MAX_FINITE: u16 = 0x7f7f;

    #[inline(always)]
    fn to_f32(bits: u16) -> f32 {
        f32::from_bits((bits as u32) << 16)
    }

    #[inline(always)]
    fn from_f32(x: f32) -> u16 {
        let bits = x.to_bits();
        let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16;
        if x.is_nan() { NAN16 } else { rounded as u16 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_half_survives_the_round_trip() {
        for bits in 0..=u16::MAX {
            let expected = half::f16::from_bits(bits);
            let single = F16::to_f32(bits);
            if expected.is_nan() {
                assert!(single.is_nan());
                continue;
            }
            assert_eq!(single.to_bits(), expected.to_f32().to_bits(), "{bits:#x}");
            assert_eq!(F16::from_f32(single), bits);
            for mode in [Rounding::Zero, Rounding::Down, Rounding::Up] {
                assert_eq!(F16::rounded(single as f64, mode), bits, "{bits:#x} {mode:?}");
                let wide = Bf16::to_f32(bits);
                if !wide.is_nan() {
                    assert_eq!(Bf16::rounded(wide as f64, mode), bits, "{bits:#x} {mode:?}");
                }
            }
        }
    }

    #[test]
    fn singles_round_to_halves_like_the_half_crate() {
        for seed in 0..2_000_000u32 {
            let x = f32::from_bits(seed.wrapping_mul(2_147_483_659).rotate_left(7));
            if !x.is_nan() {
                assert_eq!(F16::from_f32(x), half::f16::from_f32(x).to_bits(), "{x:e}");
                assert_eq!(Bf16::from_f32(x), half::bf16::from_f32(x).to_bits(), "{x:e}");
            }
        }
    }

    #[test]
    fn directed_modes_bracket_the_exact_result() {
        let third = div_odd(1.0, 3.0);
        assert_eq!(narrow(third, Rounding::Nearest), 1.0 / 3.0);
        assert_eq!(narrow(third, Rounding::Up), 1.0 / 3.0);
        assert_eq!(narrow(third, Rounding::Down), (1.0f32 / 3.0).next_down());
        assert_eq!(narrow(-third, Rounding::Zero), -(1.0f32 / 3.0).next_down());
        assert_eq!(narrow(add_odd(1.0, 1e-40), Rounding::Up), 1.0f32.next_up());
        assert_eq!(narrow(add_odd(1.0, -1e-40), Rounding::Zero), 1.0f32.next_down());
        assert_eq!(narrow(1e300, Rounding::Down), f32::MAX);
        assert_eq!(F16::rounded(65519.0, Rounding::Nearest), 0x7bff);
        assert_eq!(F16::rounded(65520.0, Rounding::Nearest), 0x7c00);
        assert_eq!(F16::rounded(1e6, Rounding::Zero), 0x7bff);
        assert_eq!(F16::rounded(1e-30, Rounding::Up), 1);
        assert_eq!(F16::rounded(-1e-30, Rounding::Up), 0x8000);
    }
}
