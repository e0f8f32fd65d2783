//! Elementary functions of f32, with bounds of their errors.
//!
//! They consist of correctly rounded instructions and integer arithmetic only, so the bits of a result are the same on every GPU
//! and on the emulator. Bounds are in units of the last place (ulp) of the result, subnormal results included. They are measured,
//! not proven: `examples/function_errors` compares the results on the emulator with a reference in f64, for every f32 or every
//! n-th; `BOOK.md` says for which numbers. The functions named `_approx` are one or two instructions of the special function
//! unit.
//!
//! The polynomials are minimax approximations (Remez), with coefficients rounded to f32.

use std::f32::consts::{FRAC_2_PI, LOG2_E};

use super::bits::funnel_left;
use super::math::{fma, mul_wide, select};
use super::value::{IntoVal, Val, val};
use crate::device;

/// Added to a float of magnitude below 2²², rounds it to an integer, which is then in the low bits.
const ROUNDER: f32 = 12_582_912.0;
const LN_2: [f32; 2] = [std::f32::consts::LN_2, -1.904_654_2e-9];
/// π/2 as a sum of positive numbers, so that products with −0 are negative zeros.
const HALF_PI: [f32; 3] = [f32::from_bits(0x3fc9_0fda), 7.549_789_4e-8, 5.390_302_5e-15];
/// The first 224 bits of 2/π, after a word of zeros.
const TWO_OVER_PI: [u32; 8] =
    [0, 0xa2f9_836e, 0x4e44_1529, 0xfc27_57d1, 0xf534_ddc0, 0xdb62_9599, 0x3c43_9041, 0xfe51_63ab];

/// (eʳ − 1 − r) / r² for |r| ≤ ½ ln 2, from the constant coefficient up.
const EXP: [f32; 5] = [0.499_999_94, 0.166_665_14, 0.041_668_06, 0.008_369_549, 0.001_384_376_2];
/// (2ʳ − 1) / r for |r| ≤ ½.
const EXP2: [f32; 7] = [
    std::f32::consts::LN_2,
    0.240_226_5,
    0.055_504_054,
    0.009_618_071,
    0.001_333_787,
    0.000_154_594,
    1.429_298e-5,
];
/// (ln(1 + f) − f) / f² for |f| ≤ ⅓.
const LN: [f64; 9] = [
    -0.5,
    0.333_332_080_791_123_4,
    -0.249_997_188_610_265_85,
    0.200_107_698_351_795_4,
    -0.166_822_491_850_123_1,
    0.140_007_568_832_832_4,
    -0.121_679_554_552_407_1,
    0.140_069_220_101_710_2,
    -0.129_452_877_188_669_2,
];
/// (sin r − r) / r³ for |r| ≤ π/4, in r².
const SIN: [f32; 4] = [-0.166_666_67, 0.008_333_38, -0.000_198_534_85, 2.836_978e-6];
/// (cos r − 1 + r²/2) / r⁴ for |r| ≤ π/4, in r².
const COS: [f32; 4] = [0.041_666_668, -0.001_388_898_1, 2.482_245_1e-5, -2.891_886e-7];
/// (tanh x − x) / x³ for |x| ≤ 0.55, in x².
const TANH: [f32; 5] = [-0.333_333_16, 0.133_325_44, -0.053_847_548, 0.021_050_714, -0.006_242_849];
/// erf x / x − 1 for |x| ≤ 1, in x².
const ERF: [f32; 7] = [
    0.128_379_17,
    -0.376_126_26,
    0.112_835_79,
    -0.026_853_347,
    0.005_187_162,
    -0.000_799_785_3,
    7.806_904e-5,
];
/// −ln(1 − erf x) for 1 ≤ x ≤ 4.
const ERFC: [f32; 8] = [
    -0.000_188_465_67,
    1.129_580_3,
    0.633_216_56,
    0.108_421_884,
    -0.025_210_194,
    0.004_205_232_5,
    -0.000_441_463_05,
    2.169_683_5e-5,
];
/// (2 artanh(q/2) − q − q³/12) / q⁵ for |q| ≤ 0.4, in q².
const ARTANH: [f32; 4] = [0.012_499_997, 0.002_232_252_4, 0.000_432_455_07, 9.808_307e-5];
const TWELFTH: [f32; 2] = [0.083_333_336, -2.483_527e-9];

/// Sum of `coefficients[i]` · xⁱ, by Horner's rule.
fn polynomial(x: Val<f32>, coefficients: &[f32]) -> Val<f32> {
    let mut rest = coefficients.iter().rev();
    let first = val(rest.next().copied().unwrap_or_default());
    rest.fold(first, |sum, &coefficient| fma(sum, x, coefficient))
}

/// p · 2ⁿ for |n| ≤ 250, rounded once.
fn scaled(p: Val<f32>, n: Val<i32>) -> Val<f32> {
    let half = n >> 1;
    let power = |n: Val<i32>| ((n + 127) << 23).bitcast::<f32>();
    // 2ⁿ itself may be out of range. The first product is exact.
    p * power(half) * power(n - half)
}

/// The integer nearest to x, as an integer and as a float, for |x| < 2²².
fn nearest(rounded: Val<f32>) -> (Val<i32>, Val<f32>) {
    (rounded.bitcast::<i32>() - ROUNDER.to_bits() as i32, rounded - ROUNDER)
}

/// e^(x + tail) for |x| ≤ 170.
fn exponential(x: Val<f32>, tail: Option<Val<f32>>) -> Val<f32> {
    let (n, multiple) = nearest(fma(x, LOG2_E, ROUNDER));
    let r = fma(multiple, -LN_2[0], x);
    let r = fma(multiple, -LN_2[1], r);
    let r = tail.map_or(r, |tail| r + tail);
    let p = fma(polynomial(r, &EXP), r, 1.0f32);
    scaled(fma(p, r, 1.0f32), n)
}

/// f and e with x = (1 + f) · 2ᵉ and |f| ≤ ⅓, for positive finite x.
#[device]
fn mantissa_and_exponent(x: Val<f32>) -> (Val<f32>, Val<f32>) {
    let subnormal = x < f32::MIN_POSITIVE;
    let normal = select(subnormal, x * 8_388_608.0f32, x);
    let correction = select(subnormal, -23.0f32, 0.0f32);
    let bits = normal.bitcast::<i32>();
    let exponent = (bits - (2.0f32 / 3.0).to_bits() as i32) & !0x7f_ffff;
    let mantissa = (bits - exponent).bitcast::<f32>();
    (mantissa - 1.0, fma(exponent.cast::<f32>(), f32::EPSILON, correction))
}

/// The logarithm of x to the base whose natural logarithm is 1 / `scale`; `of_two` is the logarithm of 2.
#[device]
fn logarithm(x: Val<f32>, scale: f64, of_two: f64) -> Val<f32> {
    let (f, exponent) = mantissa_and_exponent(x);
    let coefficients = LN.map(|coefficient| (coefficient * scale) as f32);
    let q = polynomial(f, &coefficients);
    let (high, low) = (scale as f32, (scale - f64::from(scale as f32)) as f32);
    let (two, two_low) = (of_two as f32, (of_two - f64::from(of_two as f32)) as f32);
    // f · scale + f² · q.
    let of_mantissa = if scale == 1.0 {
        fma(q, f * f, f)
    } else {
        let rest = fma(q, f, low) * f;
        let rest = if two_low == 0.0 { rest } else { fma(exponent, two_low, rest) };
        fma(f, high, rest)
    };
    let finite = fma(exponent, two, of_mantissa);
    let result = select(x < f32::INFINITY, finite, x + x);
    let result = select(x < 0.0, f32::NAN, result);
    select(x == 0.0, f32::NEG_INFINITY, result)
}

/// r in [−π/4, π/4] and q with |x| = r + q · π/2 (modulo 2π), for |x| ≥ 2¹⁶, by the product of the mantissa with the
/// bits of 2/π that its exponent selects (Payne and Hanek, "Radian reduction for trigonometric functions", 1983).
#[device]
fn reduced_exactly(x: Val<f32>) -> (Val<f32>, Val<i32>) {
    let bits = x.bitcast::<u32>();
    let mantissa = bits & 0x7f_ffff | 0x80_0000;
    // Bits before `start` contribute multiples of 2π.
    let start = bits.bit_field(23, 8) - 120;
    let (word, shift) = (start >> 5, start & 31);
    let words: [Val<u32>; 4] = std::array::from_fn(|k| {
        (1..5).fold(val(TWO_OVER_PI[k]), |chosen, index| chosen_word(word, index, k, chosen))
    });
    let window: [Val<u32>; 3] = std::array::from_fn(|k| funnel_left(words[k + 1], words[k], shift));
    let low = mul_wide(mantissa, window[2]);
    let middle = mul_wide(mantissa, window[1]) + (low >> 32);
    let high = mantissa * window[0] + (middle >> 32).cast::<u32>();
    // Upper 64 bits of x · 2/π modulo 4, as a fixed-point number with 62 fractional bits.
    let turns = high.cast::<u64>() << 32 | middle & 0xffff_ffff;
    let quadrant = ((turns + (1u64 << 61)) >> 62).cast::<i32>();
    let fraction = (turns << 2).bitcast::<i64>().cast::<f64>();
    let r = (fraction * (std::f64::consts::FRAC_PI_2 / 18_446_744_073_709_551_616.0)).cast::<f32>();
    let negative = x < 0.0;
    (select(negative, -r, r), select(negative, -quadrant, quadrant))
}

#[device]
fn chosen_word(word: Val<u32>, index: u32, k: usize, chosen: Val<u32>) -> Val<u32> {
    select(word == index, TWO_OVER_PI[k + index as usize], chosen)
}

/// sin and cos of r in [−π/4, π/4], and the number of quarter turns from r to x.
#[device]
fn reduced_sin_cos(x: Val<f32>) -> (Val<f32>, Val<f32>, Val<i32>) {
    let (turns, multiple) = nearest(fma(x, FRAC_2_PI, ROUNDER));
    let mut quadrant = turns;
    let r = fma(multiple, -HALF_PI[0], x);
    let r = fma(multiple, -HALF_PI[1], r);
    let mut r = fma(multiple, -HALF_PI[2], r);
    let magnitude = x.abs();
    if (magnitude >= 65_536.0) & (magnitude < f32::INFINITY) {
        let exact = reduced_exactly(x);
        r = exact.0;
        quadrant = exact.1;
    }
    let square = r * r;
    // The sum with +0 keeps the sign of a zero.
    let sin = fma(polynomial(square, &SIN), fma(square, r, 0.0f32), r);
    let cos = fma(fma(polynomial(square, &COS), square, -0.5f32), square, 1.0f32);
    (sin, cos, quadrant)
}

/// Chooses the sine of an angle from the sine and cosine of its reduced angle.
#[device]
fn turned(sin: Val<f32>, cos: Val<f32>, quadrant: Val<i32>) -> Val<f32> {
    let value = select(quadrant & 1 == 0, sin, cos);
    select(quadrant & 2 == 0, value, -value)
}

/// ln x = high + low for positive finite x, with an error below 2⁻³² of it.
#[device]
fn logarithm_of_two_parts(x: Val<f32>) -> (Val<f32>, Val<f32>) {
    let (f, exponent) = mantissa_and_exponent(x);
    // ln(1 + f) = 2 artanh(q/2) with q = 2f / (2 + f), in two parts.
    let reciprocal = (f + 2.0).rcp();
    let q = f * 2.0 * reciprocal;
    let q_low = reciprocal * fma(q, -f, (f - q) * 2.0);
    let square = q * q;
    let square_low = fma(q, q, -square) + q * q_low * 2.0;
    // c = 1/12 + square · P(square).
    let rest = fma(polynomial(square, &ARTANH), square, TWELFTH[1]);
    let c = rest + TWELFTH[0];
    let c_low = rest - (c - TWELFTH[0]);
    let cube = square * q;
    let cube_low = fma(square, q, -cube) + fma(square, q_low, square_low * q);
    let term = cube * c;
    let term_low = fma(cube, c, -term) + fma(cube, c_low, cube_low * c);
    let (sum, error) = sum_of_ordered(q, term);
    let sum_low = error + (q_low + term_low);
    let multiple = exponent * LN_2[0];
    let multiple_low = fma(exponent, LN_2[0], -multiple) + exponent * LN_2[1];
    // |exponent · ln 2| is 0 or greater than |ln(1 + f)|.
    let none = exponent == 0.0;
    let (high, error) = sum_of_ordered(select(none, sum, multiple), select(none, multiple, sum));
    sum_of_ordered(high, error + (multiple_low + sum_low))
}

/// a + b as the rounded sum and its error, for |a| ≥ |b|.
fn sum_of_ordered(a: Val<f32>, b: Val<f32>) -> (Val<f32>, Val<f32>) {
    let sum = a + b;
    (sum, b - (sum - a))
}

impl Val<f32> {
    /// eˣ, within 1 ulp.
    ///
    /// - PTX: `fma.rn.f32` and other correctly rounded instructions
    /// - Target: sm_80
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// assert_eq!(map(|x| x.exp(), "fma.rn.f32", [0.0f32, 1.0, -200.0]), [1.0, std::f32::consts::E, 0.0]);
    /// ```
    #[device]
    pub fn exp(self) -> Val<f32> {
        let result = exponential(self.max(-106.0).min(90.0), None);
        select(self == self, result, self)
    }

    /// 2ˣ, within 1 ulp; exact for integers.
    ///
    /// - PTX: `fma.rn.f32` and other correctly rounded instructions
    /// - Target: sm_80
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// assert_eq!(map(|x| x.exp2(), "fma.rn.f32", [3.0f32, -149.0]), [8.0, f32::from_bits(1)]);
    /// ```
    #[device]
    pub fn exp2(self) -> Val<f32> {
        let x = self.max(-152.0).min(130.0);
        let (n, multiple) = nearest(x + ROUNDER);
        let r = x - multiple;
        let result = scaled(fma(polynomial(r, &EXP2), r, 1.0f32), n);
        select(self == self, result, self)
    }

    /// The natural logarithm, within 1 ulp.
    ///
    /// - PTX: `fma.rn.f32` and other correctly rounded instructions
    /// - Target: sm_80
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// let logarithms = map(|x| x.ln(), "fma.rn.f32", [1.0f32, std::f32::consts::E, 0.0]);
    /// assert_eq!(logarithms, [0.0, 1.0, f32::NEG_INFINITY]);
    /// ```
    #[device]
    pub fn ln(self) -> Val<f32> {
        logarithm(self, 1.0, std::f64::consts::LN_2)
    }

    /// The logarithm to base 2, within 1.6 ulp; exact for powers of two.
    ///
    /// - PTX: `fma.rn.f32` and other correctly rounded instructions
    /// - Target: sm_80
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// assert_eq!(map(|x| x.log2(), "fma.rn.f32", [8.0f32, 0.5, 1.0]), [3.0, -1.0, 0.0]);
    /// ```
    #[device]
    pub fn log2(self) -> Val<f32> {
        logarithm(self, std::f64::consts::LOG2_E, 1.0)
    }

    /// The logarithm to base 10, within 2 ulp.
    ///
    /// - PTX: `fma.rn.f32` and other correctly rounded instructions
    /// - Target: sm_80
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// assert_eq!(map(|x| x.log10(), "fma.rn.f32", [1000.0f32, 1.0]), [3.0, 0.0]);
    /// ```
    #[device]
    pub fn log10(self) -> Val<f32> {
        logarithm(self, std::f64::consts::LOG10_E, std::f64::consts::LOG10_2)
    }

    /// sin x, within 1.6 ulp for every x.
    ///
    /// - PTX: `fma.rn.f32` and other correctly rounded instructions; a branch for |x| ≥ 65,536
    /// - Target: sm_80
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// let [half_pi, large] = map(|x| x.sin(), "fma.rn.f32", [std::f32::consts::FRAC_PI_2, 1e30]);
    /// assert!(half_pi == 1.0 && (f64::from(large) - f64::from(1e30f32).sin()).abs() < 1e-7);
    /// ```
    #[device]
    pub fn sin(self) -> Val<f32> {
        let (sin, cos, quadrant) = reduced_sin_cos(self);
        turned(sin, cos, quadrant)
    }

    /// cos x, within 1.6 ulp for every x.
    ///
    /// - PTX: `fma.rn.f32` and other correctly rounded instructions; a branch for |x| ≥ 65,536
    /// - Target: sm_80
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// assert_eq!(map(|x| x.cos(), "fma.rn.f32", [0.0f32, std::f32::consts::PI]), [1.0, -1.0]);
    /// ```
    #[device]
    pub fn cos(self) -> Val<f32> {
        let (sin, cos, quadrant) = reduced_sin_cos(self);
        turned(sin, cos, quadrant + 1)
    }

    /// sin x and cos x, as [`Val::sin`] and [`Val::cos`], for little more than the cost of one.
    ///
    /// - PTX: `fma.rn.f32` and other correctly rounded instructions; a branch for |x| ≥ 65,536
    /// - Target: sm_80
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// #[device]
    /// fn difference(x: Val<f32>) -> Val<f32> {
    ///     let (sin, cos) = x.sin_cos();
    ///     cos - sin
    /// }
    /// assert_eq!(map(difference, "fma.rn.f32", [0.0f32]), [1.0]);
    /// ```
    #[device]
    pub fn sin_cos(self) -> (Val<f32>, Val<f32>) {
        let (sin, cos, quadrant) = reduced_sin_cos(self);
        (turned(sin, cos, quadrant), turned(sin, cos, quadrant + 1))
    }

    /// tanh x, within 1.6 ulp.
    ///
    /// - PTX: `fma.rn.f32`, `rcp.rn.f32` and other correctly rounded instructions
    /// - Target: sm_80
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// assert_eq!(map(|x| x.tanh(), "rcp.rn.f32", [0.0f32, 100.0, -100.0]), [0.0, 1.0, -1.0]);
    /// ```
    #[device]
    pub fn tanh(self) -> Val<f32> {
        let magnitude = self.abs();
        let square = self * self;
        let small = fma(polynomial(square, &TANH), fma(square, self, 0.0f32), self);
        let power = exponential(magnitude.min(10.0) * 2.0, None);
        let large = fma((power + 1.0).rcp(), -2.0f32, 1.0f32);
        select(magnitude >= 0.55, large.copysign(self), small)
    }

    /// The logistic function 1 / (1 + e⁻ˣ), within 2.5 ulp.
    ///
    /// - PTX: `fma.rn.f32`, `div.rn.f32` and other correctly rounded instructions
    /// - Target: sm_80
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// assert_eq!(map(|x| x.sigmoid(), "div.rn.f32", [0.0f32, 100.0, -1e30]), [0.5, 1.0, 0.0]);
    /// ```
    #[device]
    pub fn sigmoid(self) -> Val<f32> {
        // 1 / (1 + e⁻ˣ) = eˣ / (1 + eˣ): the power of the negative argument cannot overflow.
        let power = exponential((-self.abs()).max(-106.0), None);
        let result = select(self >= 0.0, 1.0f32, power) / (power + 1.0);
        select(self == self, result, self)
    }

    /// The error function 2/√π ∫₀ˣ e^(−t²) dt, within 1.1 ulp.
    ///
    /// - PTX: `fma.rn.f32` and other correctly rounded instructions
    /// - Target: sm_80
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// assert_eq!(map(|x| x.erf(), "fma.rn.f32", [0.0f32, 0.5, -9.0]), [0.0, 0.520_499_9, -1.0]);
    /// ```
    #[device]
    pub fn erf(self) -> Val<f32> {
        let magnitude = self.abs();
        let small = fma(polynomial(self * self, &ERF), self, self);
        let complement = exponential(-polynomial(magnitude.min(4.0), &ERFC), None);
        select(magnitude >= 1.0, (1.0 - complement).copysign(self), small)
    }

    /// xʸ, within 1.3 ulp; the special cases are those of C and of `f32::powf`.
    ///
    /// - PTX: `fma.rn.f32` and other correctly rounded instructions
    /// - Target: sm_80
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// assert_eq!(map(|x| x.pow(3.0), "fma.rn.f32", [2.0f32, -1.5, 0.0]), [8.0, -3.375, 0.0]);
    /// ```
    #[device]
    pub fn pow(self, exponent: impl IntoVal<f32>) -> Val<f32> {
        let (x, y) = (self, exponent.into_val());
        let magnitude = x.abs();
        let (log, log_low) = logarithm_of_two_parts(magnitude);
        let product = y * log;
        let product_low = fma(y, log, -product) + y * log_low;
        // Beyond these bounds, the result is 0 or infinite.
        let bounded = product.max(-130.0).min(130.0);
        let tail = select(bounded == product, product_low, 0.0f32);
        let power = exponential(bounded, Some(tail));
        let power = select(magnitude == 1.0, 1.0f32, power);
        let negative = y < 0.0;
        let power = select(magnitude == f32::INFINITY, select(negative, 0.0f32, f32::INFINITY), power);
        let power = select(magnitude == 0.0, select(negative, f32::INFINITY, 0.0f32), power);
        let whole = y.trunc() == y;
        let half = y * 0.5;
        let odd = whole & (half.trunc() != half);
        let power = select(odd & (x.bitcast::<i32>() < 0), -power, power);
        let root = (x < 0.0) & (magnitude < f32::INFINITY) & !whole;
        let power = select(root | (x != x) | (y != y), f32::NAN, power);
        select((x == 1.0) | (y == 0.0), 1.0f32, power)
    }
}
