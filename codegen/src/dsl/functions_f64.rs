//! Elementary functions of f64, with bounds of their errors.
//!
//! As those of f32 (`functions.rs`), they consist of correctly rounded instructions and integer arithmetic, and their
//! bounds are measured: `examples/function_errors` compares the results with a reference in double-double arithmetic.
//!
//! Some values are double-doubles: a rounded number and its error. Polynomials are Taylor or Chebyshev approximations.

use std::f64::consts::{FRAC_2_PI, FRAC_PI_2, LN_2 as LN_TWO, LOG2_E, LOG10_2, LOG10_E};

use super::arrays::constant_table;
use super::math::{fma, mul_high, select};
use super::value::{IntoVal, Val, val};
use crate::device;

/// Added to a number of magnitude below 2⁵¹, rounds it to an integer, which is then in the low bits.
const ROUNDER: f64 = 6_755_399_441_055_744.0;
const LN_2: [f64; 2] = [LN_TWO, 2.319_046_813_846_299_6e-17];
/// ln 2 in two parts, of which the first has 32 bits: its products with exponents are exact.
const LN_2_EXACT: [f64; 2] = [0.693_147_180_369_123_8, 1.908_214_929_270_587_7e-10];
const LOG2_E_PARTS: [f64; 2] = [LOG2_E, 2.035_527_374_093_103_3e-17];
const LOG10_E_PARTS: [f64; 2] = [LOG10_E, 1.098_319_650_216_765e-17];
const LOG10_2_PARTS: [f64; 2] = [LOG10_2, -2.803_728_127_785_170_4e-18];
const HALF_PI: [f64; 3] = [FRAC_PI_2, 6.123_233_995_736_766e-17, -1.497_384_904_859_169_8e-33];
/// The first 1,280 bits of 2/π, after a word of zeros.
const TWO_OVER_PI: [u64; 21] = [
    0x0000_0000_0000_0000,
    0xa2f9_836e_4e44_1529,
    0xfc27_57d1_f534_ddc0,
    0xdb62_9599_3c43_9041,
    0xfe51_63ab_debb_c561,
    0xb724_6e3a_424d_d2e0,
    0x0649_2eea_09d1_921c,
    0xfe1d_eb1c_b129_a73e,
    0xe882_35f5_2ebb_4484,
    0xe99c_7026_b45f_7e41,
    0x3991_d639_8353_39f4,
    0x9c84_5f8b_bdf9_283b,
    0x1ff8_97ff_de05_980f,
    0xef2f_118b_5a0a_6d1f,
    0x6d36_7ecf_27cb_09b7,
    0x4f46_3f66_9e5f_ea2d,
    0x7527_bac7_ebe5_f17b,
    0x3d07_39f7_8a52_92ea,
    0x6bfb_5fb1_1f8d_5d08,
    0x5603_3046_fc7b_6bab,
    0xf0cf_bc20_9af4_361d,
];
/// (eʳ − 1 − r) / r²: Taylor coefficients, for |r| ≤ ½ ln 2.
const EXP: [f64; 12] = [
    0.5,
    0.166_666_666_666_666_66,
    0.041_666_666_666_666_664,
    0.008_333_333_333_333_333,
    0.001_388_888_888_888_889,
    0.000_198_412_698_412_698_4,
    2.480_158_730_158_73e-05,
    2.755_731_922_398_589_3e-06,
    2.755_731_922_398_589e-07,
    2.505_210_838_544_172e-08,
    2.087_675_698_786_81e-09,
    1.605_904_383_682_161_3e-10,
];
/// (2ʳ − 1) / r: Taylor coefficients, for |r| ≤ ½.
const EXP2: [f64; 13] = [
    LN_TWO,
    0.240_226_506_959_100_72,
    0.055_504_108_664_821_58,
    0.009_618_129_107_628_477,
    0.001_333_355_814_642_844_3,
    0.000_154_035_303_933_816_1,
    1.525_273_380_405_984_1e-05,
    1.321_548_679_014_431e-06,
    1.017_808_600_923_97e-07,
    7.054_911_620_801_123e-09,
    4.445_538_271_870_811_6e-10,
    2.567_843_599_348_820_6e-11,
    1.369_148_885_390_412_8e-12,
];
/// (2 artanh(q/2) − q − q³/12 − q⁵/80) / q⁷, in q²: Taylor coefficients, for |q| ≤ 0.35.
const ARTANH: [f64; 11] = [
    0.002_232_142_857_142_857,
    0.000_434_027_777_777_777_75,
    8.877_840_909_090_91e-05,
    1.878_004_807_692_307_8e-05,
    4.069_010_416_666_667e-06,
    8.975_758_272_058_823e-07,
    2.007_735_402_960_526_2e-07,
    4.541_306_268_601_19e-08,
    1.036_602_517_832_880_4e-08,
    2.384_185_791_015_625e-09,
    5.518_948_590_313_946e-10,
];
/// 1/12 and 1/80, in two parts.
const TWELFTH: [f64; 2] = [0.083_333_333_333_333_33, 4.625_929_269_271_485e-18];
const EIGHTIETH: [f64; 2] = [0.012_5, -6.938_893_903_907_229e-19];
/// erf x / x − 1 for |x| ≤ 1, in x².
const ERF: [f64; 14] = [
    0.128_379_167_095_512_6,
    -0.376_126_389_031_837_54,
    0.112_837_916_709_551_2,
    -0.026_866_170_645_129_84,
    0.005_223_977_625_423_298_5,
    -0.000_854_832_702_193_483,
    0.000_120_553_329_028_887_36,
    -1.492_564_756_751_933_2e-05,
    1.646_204_544_146_841_8e-06,
    -1.636_464_215_816_761_6e-07,
    1.479_240_120_940_481_3e-08,
    -1.216_456_005_728_345e-09,
    8.709_045_129_053_106e-11,
    -4.230_945_824_295_338e-12,
];
/// −ln(1 − erf x) − x² for 1 ≤ x ≤ 6, in (x − 3.5) / 2.5.
const ERFC: [f64; 26] = [
    1.862_437_402_148_173_8,
    0.665_248_970_912_977_3,
    -0.207_793_407_861_063_2,
    0.081_650_909_717_799_24,
    -0.034_128_411_079_638_966,
    0.014_384_548_330_638_939,
    -0.005_953_704_478_685_765,
    0.002_373_997_276_107_847_6,
    -0.000_893_576_556_479_212_4,
    0.000_307_819_595_053_289_4,
    -9.090_110_364_175_726e-05,
    1.847_434_690_517_014_4e-05,
    1.478_396_656_963_906_8e-06,
    -4.565_391_387_719_236_6e-06,
    3.419_647_133_314_752_4e-06,
    -1.919_146_618_676_658e-06,
    9.177_975_332_669_318e-07,
    -3.825_150_644_927_939e-07,
    1.286_781_347_382_139e-07,
    -2.796_637_424_548_461_8e-08,
    3.041_478_859_756_998_3e-09,
    9.652_825_205_360_373e-10,
    -4.861_099_102_922_557e-09,
    5.195_160_738_537_221e-09,
    -2.190_184_590_685_11e-09,
    3.245_901_999_030_085e-10,
];
/// (ln(1 + f) − 2s) / s³ with s = f / (2 + f), in s².
const LN: [f64; 7] = [
    0.666_666_666_666_667,
    0.399_999_999_998_995_05,
    0.285_714_286_259_754_87,
    0.222_222_111_347_950_8,
    0.181_828_891_252_617_23,
    0.153_317_216_005_560_42,
    0.146_164_496_850_434_06,
];
/// (sin r − r) / r³ for |r| ≤ π/4, in r².
const SIN: [f64; 6] = [
    -0.166_666_666_666_666_66,
    0.008_333_333_333_330_948,
    -0.000_198_412_698_367_585_74,
    2.755_731_610_255_244e-06,
    -2.505_113_184_500_362_4e-08,
    1.591_812_929_486_660_8e-10,
];
/// (cos r − 1 + r²/2) / r⁴ for |r| ≤ π/4, in r².
const COS: [f64; 6] = [
    0.041_666_666_666_666_664,
    -0.001_388_888_888_888_739_8,
    2.480_158_729_876_569e-05,
    -2.755_731_727_172_979_3e-07,
    2.087_614_626_840_32e-09,
    -1.138_263_242_552_171_7e-11,
];

/// Sum of `coefficients[i]` · xⁱ, by Horner's rule.
fn polynomial(x: Val<f64>, coefficients: &[f64]) -> Val<f64> {
    let mut rest = coefficients.iter().rev();
    let first = val(rest.next().copied().unwrap_or_default());
    rest.fold(first, |sum, &coefficient| fma(sum, x, coefficient))
}

/// 2ⁿ for |n| ≤ 1022.
fn power_of_two(n: Val<i32>) -> Val<f64> {
    ((n + 1023).cast::<i64>() << 52).bitcast::<f64>()
}

/// p · 2ⁿ for |n| ≤ 2000, rounded once.
fn scaled(p: Val<f64>, n: Val<i32>) -> Val<f64> {
    let half = n >> 1;
    // 2ⁿ itself may be out of range. The first product is exact.
    p * power_of_two(half) * power_of_two(n - half)
}

/// The integer nearest to x, as an integer and as a float, of the sum of x and [`ROUNDER`].
fn nearest(rounded: Val<f64>) -> (Val<i32>, Val<f64>) {
    ((rounded.bitcast::<i64>() - ROUNDER.to_bits() as i64).cast::<i32>(), rounded - ROUNDER)
}

/// n and r with x + tail = n · ln 2 + r, |r| ≤ ½ ln 2.
fn reduced_exponent(x: Val<f64>, tail: Option<Val<f64>>) -> (Val<i32>, Val<f64>) {
    let (n, multiple) = nearest(fma(x, LOG2_E, ROUNDER));
    let r = fma(multiple, -LN_2[0], x);
    let r = fma(multiple, -LN_2[1], r);
    (n, tail.map_or(r, |tail| r + tail))
}

/// e^(x + tail) for |x| ≤ 1400.
fn exponential(x: Val<f64>, tail: Option<Val<f64>>) -> Val<f64> {
    let (n, r) = reduced_exponent(x, tail);
    let p = fma(polynomial(r, &EXP), r, 1.0f64);
    scaled(fma(p, r, 1.0f64), n)
}

/// f and e with x = (1 + f) · 2ᵉ and √½ − 1 ≤ f < √2 − 1, for positive finite x.
#[device]
fn mantissa_and_exponent(x: Val<f64>) -> (Val<f64>, Val<f64>) {
    let subnormal = x < f64::MIN_POSITIVE;
    let normal = select(subnormal, x * 18_014_398_509_481_984.0f64, x);
    let correction = select(subnormal, -54i32, 0i32);
    let bits = normal.bitcast::<i64>();
    let exponent = (bits - std::f64::consts::FRAC_1_SQRT_2.to_bits() as i64) >> 52;
    let mantissa = (bits - (exponent << 52)).bitcast::<f64>();
    (mantissa - 1.0, (exponent.cast::<i32>() + correction).cast::<f64>())
}

/// A logarithm of x, from its value for positive finite x.
#[device]
fn logarithm_of_any(x: Val<f64>, finite: Val<f64>) -> Val<f64> {
    let result = select(x < f64::INFINITY, finite, x + x);
    let result = select(x < 0.0, f64::NAN, result);
    select(x == 0.0, f64::NEG_INFINITY, result)
}

/// a + b as the rounded sum and its error, for |a| ≥ |b|.
fn sum_of_ordered(a: Val<f64>, b: Val<f64>) -> (Val<f64>, Val<f64>) {
    let sum = a + b;
    (sum, b - (sum - a))
}

/// Product of two pairs, as a pair.
fn product((a, a_low): (Val<f64>, Val<f64>), (b, b_low): (Val<f64>, Val<f64>)) -> (Val<f64>, Val<f64>) {
    let product = a * b;
    (product, fma(a, b, -product) + fma(a, b_low, a_low * b))
}

/// Sum of a constant pair and a smaller pair, as a pair.
fn added_to(constant: [f64; 2], (x, x_low): (Val<f64>, Val<f64>)) -> (Val<f64>, Val<f64>) {
    let (sum, error) = sum_of_ordered(val(constant[0]), x);
    (sum, error + (x_low + constant[1]))
}

/// ln(1 + f) as a pair, with an error below 2⁻⁶⁷ of it, for √½ − 1 ≤ f < √2 − 1.
fn logarithm_of_mantissa(f: Val<f64>) -> (Val<f64>, Val<f64>) {
    // 2 artanh(q/2) with q = 2f / (2 + f).
    let reciprocal = (f + 2.0).rcp();
    let q = f * 2.0 * reciprocal;
    let q = (q, reciprocal * fma(q, -f, (f - q) * 2.0));
    let square = product(q, q);
    let rest = polynomial(square.0, &ARTANH) * square.0;
    let coefficient = added_to(EIGHTIETH, (rest, val(0.0)));
    let coefficient = added_to(TWELFTH, product(coefficient, square));
    let term = product(product(square, q), coefficient);
    let (sum, error) = sum_of_ordered(q.0, term.0);
    sum_of_ordered(sum, error + (q.1 + term.1))
}

/// The logarithm of positive finite x to the base whose natural logarithm is 1 / `scale`, as a pair; `of_two` is the
/// logarithm of 2.
#[device]
fn logarithm_of_two_parts(x: Val<f64>, scale: [f64; 2], of_two: [f64; 2]) -> (Val<f64>, Val<f64>) {
    let (f, exponent) = mantissa_and_exponent(x);
    let pair = |constant: [f64; 2]| (val(constant[0]), val(constant[1]));
    let of_mantissa = logarithm_of_mantissa(f);
    let (m, m_low) = if scale == [1.0, 0.0] { of_mantissa } else { product(of_mantissa, pair(scale)) };
    let (multiple, multiple_low) = product((exponent, val(0.0)), pair(of_two));
    // The multiple is 0 or has the greater magnitude.
    let none = exponent == 0.0;
    let (high, error) = sum_of_ordered(select(none, m, multiple), select(none, multiple, m));
    sum_of_ordered(high, error + (multiple_low + m_low))
}

/// r + tail in [−π/4, π/4] and q with x = r + tail + q · π/2 (modulo 2π), for |x| ≥ 2³⁰, by the product of the mantissa with
/// the bits of 2/π that its exponent selects (Payne and Hanek, "Radian reduction for trigonometric functions", 1983).
#[device]
fn reduced_exactly(x: Val<f64>) -> (Val<f64>, Val<f64>, Val<i32>) {
    let bits = x.bitcast::<u64>();
    let mantissa = bits & ((1u64 << 52) - 1) | 1u64 << 52;
    // Bits before `start` contribute multiples of 2π.
    let start = ((bits >> 52).cast::<u32>() & 0x7ff) - 1013;
    let (word, shift) = (start >> 6, start & 63);
    let table = constant_table(&TWO_OVER_PI).at(word);
    let words: [Val<u64>; 4] = std::array::from_fn(|k| table.at(k as u32).load());
    let window: [Val<u64>; 3] = std::array::from_fn(|k| words[k] << shift | words[k + 1] >> (64 - shift));
    // x · 2/π modulo 4, with 126 fractional bits.
    let low = mul_high(mantissa, window[2]);
    let middle = mantissa * window[1] + low;
    let carry = select(middle < low, 1u64, 0u64);
    let high = mantissa * window[0] + mul_high(mantissa, window[1]) + carry;
    let quadrant = ((high + (1u64 << 61)) >> 62).cast::<i32>();
    // The magnitude of the signed fraction, with 128 bits.
    let (upper, lower) = (high << 2 | middle >> 62, middle << 2);
    let below = upper.bitcast::<i64>() < 0;
    let borrow = select(lower == 0, 1u64, 0u64);
    let upper = select(below, !upper + borrow, upper);
    let lower = select(below, val(0u64) - lower, lower);
    let rest = fma(lower.cast::<f64>(), 1.0 / 18_446_744_073_709_551_616.0f64, (upper & 0x7ff).cast::<f64>());
    let fraction = sum_of_ordered((upper & !0x7ffu64).cast::<f64>(), rest);
    let unit = HALF_PI.map(|part| val(part / 18_446_744_073_709_551_616.0));
    let (r, tail) = product(fraction, (unit[0], unit[1]));
    let negative = x < 0.0;
    let flips = below ^ negative;
    (select(flips, -r, r), select(flips, -tail, tail), select(negative, -quadrant, quadrant))
}

/// sin and cos of r in [−π/4, π/4], and the number of quarter turns from r to x.
#[device]
fn reduced_sin_cos(x: Val<f64>) -> (Val<f64>, Val<f64>, Val<i32>) {
    let (turns, multiple) = nearest(fma(x, FRAC_2_PI, ROUNDER));
    let mut quadrant = turns;
    // This difference is exact.
    let first = fma(multiple, -HALF_PI[0], x);
    let second = multiple * HALF_PI[1];
    let mut r = first - second;
    let error = fma(multiple, HALF_PI[1], -second);
    let mut tail = first - r - second - error - multiple * HALF_PI[2];
    let magnitude = x.abs();
    if (magnitude >= 1_073_741_824.0) & (magnitude < f64::INFINITY) {
        let exact = reduced_exactly(x);
        r = exact.0;
        tail = exact.1;
        quadrant = exact.2;
    }
    let square = r * r;
    let cube = square * r;
    let rest = polynomial(square, &SIN[1..]);
    let sin = r - (square * (tail * 0.5 - cube * rest) - tail - cube * SIN[0]);
    let half = square * 0.5;
    let near = val(1.0) - half;
    let rest = fma(polynomial(square, &COS) * square, square, -(r * tail));
    let cos = near + (val(1.0) - near - half + rest);
    (sin, cos, quadrant)
}

/// Chooses the sine of an angle from the sine and cosine of its reduced angle.
#[device]
fn turned(sin: Val<f64>, cos: Val<f64>, quadrant: Val<i32>) -> Val<f64> {
    let value = select(quadrant & 1 == 0, sin, cos);
    select(quadrant & 2 == 0, value, -value)
}

impl Val<f64> {
    /// eˣ, within 1 ulp.
    ///
    /// - PTX: `fma.rn.f64` and other correctly rounded instructions
    /// - Target: sm_80
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// assert_eq!(map(|x| x.exp(), "fma.rn.f64", [0.0f64, 1.0, -800.0]), [1.0, std::f64::consts::E, 0.0]);
    /// ```
    #[device]
    pub fn exp(self) -> Val<f64> {
        let result = exponential(self.max(-760.0).min(720.0), None);
        select(self == self, result, self)
    }

    /// 2ˣ, within 1 ulp; exact for integers.
    ///
    /// - PTX: `fma.rn.f64` and other correctly rounded instructions
    /// - Target: sm_80
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// assert_eq!(map(|x| x.exp2(), "fma.rn.f64", [3.0f64, -1074.0]), [8.0, f64::from_bits(1)]);
    /// ```
    #[device]
    pub fn exp2(self) -> Val<f64> {
        let x = self.max(-1080.0).min(1030.0);
        let (n, multiple) = nearest(x + ROUNDER);
        let r = x - multiple;
        let result = scaled(fma(polynomial(r, &EXP2), r, 1.0f64), n);
        select(self == self, result, self)
    }

    /// The natural logarithm, within 1 ulp.
    ///
    /// - PTX: `fma.rn.f64` and other correctly rounded instructions
    /// - Target: sm_80
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// let logarithms = map(|x| x.ln(), "fma.rn.f64", [1.0f64, std::f64::consts::E, 0.0]);
    /// assert_eq!(logarithms, [0.0, 1.0, f64::NEG_INFINITY]);
    /// ```
    #[device]
    pub fn ln(self) -> Val<f64> {
        let (f, exponent) = mantissa_and_exponent(self);
        let s = f / (f + 2.0);
        let square = s * s;
        let half = f * f * 0.5;
        let rest = fma(s, fma(polynomial(square, &LN), square, half), exponent * LN_2_EXACT[1]);
        logarithm_of_any(self, fma(exponent, LN_2_EXACT[0], -(half - rest - f)))
    }

    /// The logarithm to base 2, within 0.6 ulp; exact for powers of two.
    ///
    /// - PTX: `fma.rn.f64` and other correctly rounded instructions
    /// - Target: sm_80
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// assert_eq!(map(|x| x.log2(), "fma.rn.f64", [8.0f64, 0.5, 1.0]), [3.0, -1.0, 0.0]);
    /// ```
    #[device]
    pub fn log2(self) -> Val<f64> {
        logarithm_of_any(self, logarithm_of_two_parts(self, LOG2_E_PARTS, [1.0, 0.0]).0)
    }

    /// The logarithm to base 10, within 0.6 ulp.
    ///
    /// - PTX: `fma.rn.f64` and other correctly rounded instructions
    /// - Target: sm_80
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// assert_eq!(map(|x| x.log10(), "fma.rn.f64", [1000.0f64, 1.0]), [3.0, 0.0]);
    /// ```
    #[device]
    pub fn log10(self) -> Val<f64> {
        logarithm_of_any(self, logarithm_of_two_parts(self, LOG10_E_PARTS, LOG10_2_PARTS).0)
    }

    /// sin x, within 1 ulp for every x.
    ///
    /// - PTX: `fma.rn.f64` and other correctly rounded instructions; a branch and a table for |x| ≥ 2³⁰
    /// - Target: sm_80
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// let [half_pi, large] = map(|x| x.sin(), "fma.rn.f64", [std::f64::consts::FRAC_PI_2, 1e22]);
    /// assert!(half_pi == 1.0 && large == -0.852_200_849_767_188_8);
    /// ```
    #[device]
    pub fn sin(self) -> Val<f64> {
        let (sin, cos, quadrant) = reduced_sin_cos(self);
        turned(sin, cos, quadrant)
    }

    /// cos x, within 1 ulp for every x.
    ///
    /// - PTX: `fma.rn.f64` and other correctly rounded instructions; a branch and a table for |x| ≥ 2³⁰
    /// - Target: sm_80
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// assert_eq!(map(|x| x.cos(), "fma.rn.f64", [0.0f64, std::f64::consts::PI]), [1.0, -1.0]);
    /// ```
    #[device]
    pub fn cos(self) -> Val<f64> {
        let (sin, cos, quadrant) = reduced_sin_cos(self);
        turned(sin, cos, quadrant + 1)
    }

    /// sin x and cos x, as `sin` and `cos`, for little more than the cost of one.
    ///
    /// - PTX: `fma.rn.f64` and other correctly rounded instructions; a branch and a table for |x| ≥ 2³⁰
    /// - Target: sm_80
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// #[device]
    /// fn difference(x: Val<f64>) -> Val<f64> {
    ///     let (sin, cos) = x.sin_cos();
    ///     cos - sin
    /// }
    /// assert_eq!(map(difference, "fma.rn.f64", [0.0f64]), [1.0]);
    /// ```
    #[device]
    pub fn sin_cos(self) -> (Val<f64>, Val<f64>) {
        let (sin, cos, quadrant) = reduced_sin_cos(self);
        (turned(sin, cos, quadrant), turned(sin, cos, quadrant + 1))
    }

    /// tanh x, within 2.6 ulp.
    ///
    /// - PTX: `fma.rn.f64`, `div.rn.f64` and other correctly rounded instructions
    /// - Target: sm_80
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// assert_eq!(map(|x| x.tanh(), "div.rn.f64", [0.0f64, 100.0, -100.0]), [0.0, 1.0, -1.0]);
    /// ```
    #[device]
    pub fn tanh(self) -> Val<f64> {
        let magnitude = self.abs();
        let (n, r) = reduced_exponent(magnitude.min(22.0) * 2.0, None);
        let less_one = fma(polynomial(r, &EXP) * r, r, r);
        let power = power_of_two(n);
        // e^2x − 1.
        let t = fma(less_one, power, power - 1.0);
        let quotient = select(magnitude >= 0.55, -2.0f64, t) / (t + 2.0);
        let result = select(magnitude >= 0.55, quotient + 1.0, quotient).copysign(self);
        select(self == self, result, self)
    }

    /// The logistic function 1 / (1 + e⁻ˣ), within 2.5 ulp.
    ///
    /// - PTX: `fma.rn.f64`, `div.rn.f64` and other correctly rounded instructions
    /// - Target: sm_80
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// assert_eq!(map(|x| x.sigmoid(), "div.rn.f64", [0.0f64, 100.0, -1e30]), [0.5, 1.0, 0.0]);
    /// ```
    #[device]
    pub fn sigmoid(self) -> Val<f64> {
        // 1 / (1 + e⁻ˣ) = eˣ / (1 + eˣ): the power of the negative argument cannot overflow.
        let power = exponential((-self.abs()).max(-760.0), None);
        let result = select(self >= 0.0, 1.0f64, power) / (power + 1.0);
        select(self == self, result, self)
    }

    /// The error function 2/√π ∫₀ˣ e^(−t²) dt, within 1.1 ulp.
    ///
    /// - PTX: `fma.rn.f64` and other correctly rounded instructions
    /// - Target: sm_80
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// assert_eq!(map(|x| x.erf(), "fma.rn.f64", [0.0f64, 0.5, -9.0]), [0.0, 0.520_499_877_813_046_5, -1.0]);
    /// ```
    #[device]
    pub fn erf(self) -> Val<f64> {
        let magnitude = self.abs();
        let small = fma(polynomial(self * self, &ERF), self, self);
        let x = magnitude.min(6.0);
        let square = x * x;
        let square_low = fma(x, x, -square);
        let (sum, error) = sum_of_ordered(square, polynomial((x - 3.5) * 0.4, &ERFC));
        let complement = exponential(-sum, Some(-(error + square_low)));
        select(magnitude >= 1.0, (val(1.0) - complement).copysign(self), small)
    }

    /// xʸ, within 1.1 ulp; the special cases are those of C and of `f64::powf`.
    ///
    /// - PTX: `fma.rn.f64` and other correctly rounded instructions
    /// - Target: sm_80
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// assert_eq!(map(|x| x.pow(3.0), "fma.rn.f64", [2.0f64, -1.5, 0.0]), [8.0, -3.375, 0.0]);
    /// ```
    #[device]
    pub fn pow(self, exponent: impl IntoVal<f64>) -> Val<f64> {
        let (x, y) = (self, exponent.into_val());
        let magnitude = x.abs();
        let (log, log_low) = logarithm_of_two_parts(magnitude, [1.0, 0.0], LN_2);
        let product = y * log;
        let product_low = fma(y, log, -product) + y * log_low;
        // Beyond these bounds, the result is 0 or infinite.
        let bounded = product.max(-800.0).min(800.0);
        let tail = select(bounded == product, product_low, 0.0f64);
        let power = exponential(bounded, Some(tail));
        let power = select(magnitude == 1.0, 1.0f64, power);
        let negative = y < 0.0;
        let power = select(magnitude == f64::INFINITY, select(negative, 0.0f64, f64::INFINITY), power);
        let power = select(magnitude == 0.0, select(negative, f64::INFINITY, 0.0f64), power);
        let whole = y.trunc() == y;
        let half = y * 0.5;
        let odd = whole & (half.trunc() != half);
        let power = select(odd & (x.bitcast::<i64>() < 0), -power, power);
        let root = (x < 0.0) & (magnitude < f64::INFINITY) & !whole;
        let power = select(root | (x != x) | (y != y), f64::NAN, power);
        select((x == 1.0) | (y == 0.0), 1.0f64, power)
    }
}
