//! Directed rounding in double precision: exact results are computed in 128-bit integers and rounded once.

use super::rounding::Rounding;

/// Significand bits of a double, including the hidden bit.
const PRECISION: i32 = 53;
/// Exponent of the smallest subnormal double.
const MIN_EXPONENT: i32 = -1074;

/// Number `±significand · 2^exponent`. If `sticky` is set, the magnitude is larger by less than one unit of the
/// significand.
#[derive(Clone, Copy)]
struct Exact {
    negative: bool,
    significand: u128,
    exponent: i32,
    sticky: bool,
}

/// Number of bits of `x` without leading zeros.
fn bits(x: u128) -> i32 {
    (u128::BITS - x.leading_zeros()) as i32
}

impl Exact {
    /// Exact value of a finite double.
    fn new(x: f64) -> Exact {
        let biased = (x.to_bits() >> 52 & 0x7ff) as i32;
        let fraction = (x.to_bits() & ((1 << 52) - 1)) as u128;
        let hidden = ((biased != 0) as u128) << 52;
        Exact {
            negative: x.is_sign_negative(),
            significand: fraction | hidden,
            exponent: biased.max(1) - 1 + MIN_EXPONENT,
            sticky: false,
        }
    }

    fn times(self, other: Exact) -> Exact {
        Exact {
            negative: self.negative != other.negative,
            significand: self.significand * other.significand,
            exponent: self.exponent + other.exponent,
            sticky: false,
        }
    }

    /// Smallest `e` such that the magnitude is below `2^e`; ignores `sticky`.
    fn top(self) -> i32 {
        bits(self.significand) + self.exponent
    }

    /// The same number with the given exponent; nonzero bits that are shifted out set `sticky`.
    fn aligned(self, exponent: i32) -> Exact {
        let shift = self.exponent - exponent;
        let significand = match shift {
            0.. => self.significand << shift,
            -127..0 => self.significand >> -shift,
            _ => 0,
        };
        let sticky = shift < 0 && (shift <= -128 || significand << -shift != self.significand);
        Exact { significand, exponent, sticky, ..self }
    }

    /// Sum of two nonzero numbers, at most one of which has more than 64 significant bits.
    fn plus(self, other: Exact) -> Exact {
        // The larger number's top bit becomes bit 125. Bits that the smaller number loses are below the rounding
        // position.
        let exponent = self.top().max(other.top()) - 126;
        let (a, b) = (self.aligned(exponent), other.aligned(exponent));
        let (large, small) = if a.significand >= b.significand { (a, b) } else { (b, a) };
        let sticky = large.sticky || small.sticky;
        let significand = match large.negative == small.negative {
            true => large.significand + small.significand,
            // The bits that `small` lost reduce the difference by less than one unit: subtract one and set `sticky`.
            false => large.significand - small.significand - small.sticky as u128,
        };
        Exact { significand, sticky, ..large }
    }

    fn round(self, mode: Rounding) -> f64 {
        let sign = if self.negative { -0.0f64 } else { 0.0 };
        if self.significand == 0 && !self.sticky {
            return sign;
        }
        let dropped = (bits(self.significand) - PRECISION).max(MIN_EXPONENT - self.exponent);
        let (kept, inexact) = match dropped {
            ..=0 => (self.significand << -dropped, self.sticky),
            1..128 => {
                let kept = self.significand >> dropped;
                (kept, self.sticky || kept << dropped != self.significand)
            }
            _ => (0, true),
        };
        let away = match mode {
            Rounding::Up => !self.negative,
            Rounding::Down => self.negative,
            Rounding::Zero | Rounding::Nearest => false,
        };
        let kept = kept as u64 + (away && inexact) as u64;
        let exponent = self.exponent + dropped;
        // The hidden bit, and a carry to 2^53, increment the exponent field.
        let biased = (exponent - MIN_EXPONENT) as u64;
        let magnitude = if kept >> 52 == 0 { kept } else { (biased << 52) + kept };
        let infinity = f64::INFINITY.to_bits();
        let limited = if exponent > 1023 || magnitude >= infinity {
            if away { infinity } else { infinity - 1 }
        } else {
            magnitude
        };
        f64::from_bits(limited | sign.to_bits())
    }
}

/// Zero with the sign that the rounding mode gives to an exact sum of zero.
fn zero(mode: Rounding) -> f64 {
    if mode == Rounding::Down { -0.0 } else { 0.0 }
}

/// `a · b + c`, rounded once in the given mode.
pub(crate) fn fma(a: f64, b: f64, c: f64, mode: Rounding) -> f64 {
    let nearest = a.mul_add(b, c);
    if mode == Rounding::Nearest || !(a.is_finite() && b.is_finite() && c.is_finite()) {
        return nearest;
    }
    let product = Exact::new(a).times(Exact::new(b));
    let addend = Exact::new(c);
    match (product.significand, addend.significand) {
        (0, 0) if product.negative == addend.negative => c,
        (0, 0) => zero(mode),
        (0, _) => c,
        (_, 0) => product.round(mode),
        _ => {
            let sum = product.plus(addend);
            if sum.significand == 0 && !sum.sticky { zero(mode) } else { sum.round(mode) }
        }
    }
}

/// `a · b` in the given rounding mode.
pub(crate) fn mul(a: f64, b: f64, mode: Rounding) -> f64 {
    if mode == Rounding::Nearest || !(a.is_finite() && b.is_finite()) {
        return a * b;
    }
    Exact::new(a).times(Exact::new(b)).round(mode)
}

/// `a / b` in the given rounding mode.
pub(crate) fn div(a: f64, b: f64, mode: Rounding) -> f64 {
    if mode == Rounding::Nearest || !(a.is_finite() && b.is_finite()) || a == 0.0 || b == 0.0 {
        return a / b;
    }
    let (a, b) = (Exact::new(a), Exact::new(b));
    let up = a.significand.leading_zeros() as i32 - 1;
    let dividend = a.significand << up;
    let quotient = Exact {
        negative: a.negative != b.negative,
        significand: dividend / b.significand,
        exponent: a.exponent - up - b.exponent,
        sticky: !dividend.is_multiple_of(b.significand),
    };
    quotient.round(mode)
}

/// `√a` in the given rounding mode.
pub(crate) fn sqrt(a: f64, mode: Rounding) -> f64 {
    if mode == Rounding::Nearest || !a.is_finite() || a <= 0.0 {
        return a.sqrt();
    }
    let a = Exact::new(a);
    // Shifts left by as many bits as fit and make the exponent even.
    let up = a.significand.leading_zeros() as i32 - 2;
    let up = up + ((a.exponent - up) & 1);
    let radicand = a.significand << up;
    let root = radicand.isqrt();
    let exact = Exact {
        negative: false,
        significand: root,
        exponent: (a.exponent - up) / 2,
        sticky: root * root != radicand,
    };
    exact.round(mode)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODES: [Rounding; 3] = [Rounding::Zero, Rounding::Down, Rounding::Up];

    fn samples() -> Vec<f64> {
        let mut state = 1u64;
        let mut random = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            f64::from_bits(state ^ state >> 29)
        };
        let edges = [0.0, 1.0, -1.5, 5e-324, -2.2250738585072014e-308, f64::MAX, 3.0, 1e-160, -1e160];
        edges.into_iter().chain((0..200).map(|_| random())).filter(|x| x.is_finite()).collect()
    }

    /// Checks that the results rounded down and up enclose the result rounded to nearest, and are equal or adjacent
    /// doubles.
    fn brackets(nearest: f64, directed: impl Fn(Rounding) -> f64, what: &str) {
        let [zero, down, up] = MODES.map(directed);
        assert!(down <= nearest && nearest <= up, "{what}: {down:e} {nearest:e} {up:e}");
        let neighbours = down == up || down.next_up() == up || nearest.is_infinite();
        assert!(neighbours, "{what}: {down:e} and {up:e}");
        assert_eq!(zero.to_bits(), if nearest.is_sign_negative() { up } else { down }.to_bits(), "{what}");
    }

    #[test]
    fn directed_results_enclose_the_nearest() {
        let samples = samples();
        for (at, &a) in samples.iter().enumerate() {
            for &b in &samples {
                let c = samples[(at * 7 + 3) % samples.len()];
                brackets(a * b, |mode| mul(a, b, mode), "mul");
                if a + b != 0.0 {
                    brackets(a + b, |mode| fma(a, 1.0, b, mode), "add");
                }
                let nearest = a.mul_add(b, c);
                if nearest != 0.0 {
                    brackets(nearest, |mode| fma(a, b, c, mode), "fma");
                }
                if b != 0.0 {
                    brackets(a / b, |mode| div(a, b, mode), "div");
                }
            }
            brackets(a.abs().sqrt(), |mode| sqrt(a.abs(), mode), "sqrt");
        }
    }

    #[test]
    fn results_at_the_limits_of_the_range() {
        assert_eq!(mul(5e-324, 0.5, Rounding::Up), 5e-324);
        assert_eq!(mul(5e-324, 0.5, Rounding::Zero), 0.0);
        assert_eq!(mul(-5e-324, 1e-300, Rounding::Down), -5e-324);
        assert_eq!(mul(f64::MAX, 2.0, Rounding::Down), f64::MAX);
        assert_eq!(mul(f64::MAX, -2.0, Rounding::Down), f64::NEG_INFINITY);
        assert_eq!(fma(1.0, 1.0, 1e-300, Rounding::Up), 1.0f64.next_up());
        assert_eq!(fma(1.0, 1.0, -1e-300, Rounding::Zero), 1.0f64.next_down());
        assert!(fma(1.0, 1.0, -1.0, Rounding::Down).is_sign_negative());
        assert_eq!(sqrt(2.0, Rounding::Up), 2f64.sqrt());
        assert_eq!(sqrt(2.0, Rounding::Down), 2f64.sqrt().next_down());
    }
}
