//! Elementary functions in double-double arithmetic (about 106 bits), with a relative error below 2⁻⁸⁵.
//!
//! Series and reductions differ from those of the functions that are measured.

use std::ops::{Add, Div, Mul, Neg, Sub};

/// A double-double: the sum of a rounded f64 and of its rounding error.
#[derive(Clone, Copy, Debug)]
pub struct Pair(pub f64, pub f64);

/// The sum of a and b, and its error.
fn sum(a: f64, b: f64) -> Pair {
    let s = a + b;
    let part = s - a;
    Pair(s, (a - (s - part)) + (b - part))
}

fn product(a: f64, b: f64) -> Pair {
    let p = a * b;
    Pair(p, a.mul_add(b, -p))
}

impl Pair {
    /// The pair with a leading part that is the rounded sum.
    fn normal(a: f64, b: f64) -> Pair {
        let s = a + b;
        Pair(s, b - (s - a))
    }

    /// Product with a power of two.
    fn scaled(self, power: f64) -> Pair {
        Pair(self.0 * power, self.1 * power)
    }
}

impl From<f64> for Pair {
    fn from(x: f64) -> Pair {
        Pair(x, 0.0)
    }
}

impl Add for Pair {
    type Output = Pair;
    fn add(self, other: Pair) -> Pair {
        let (high, low) = (sum(self.0, other.0), sum(self.1, other.1));
        let first = Pair::normal(high.0, high.1 + low.0);
        Pair::normal(first.0, first.1 + low.1)
    }
}

impl Neg for Pair {
    type Output = Pair;
    fn neg(self) -> Pair {
        Pair(-self.0, -self.1)
    }
}

impl Sub for Pair {
    type Output = Pair;
    fn sub(self, other: Pair) -> Pair {
        self + -other
    }
}

impl Mul for Pair {
    type Output = Pair;
    fn mul(self, other: Pair) -> Pair {
        let p = product(self.0, other.0);
        Pair::normal(p.0, p.1 + self.0.mul_add(other.1, self.1 * other.0))
    }
}

impl Div for Pair {
    type Output = Pair;
    fn div(self, other: Pair) -> Pair {
        let first = self.0 / other.0;
        let rest = self - other * Pair::from(first);
        let second = rest.0 / other.0;
        let rest = rest - other * Pair::from(second);
        Pair::normal(first, second) + Pair::from(rest.0 / other.0)
    }
}

/// An exact result: a pair times 2ⁿ.
#[derive(Clone, Copy, Debug)]
pub struct Exact(Pair, i32);

impl From<f64> for Exact {
    fn from(x: f64) -> Exact {
        Exact(Pair::from(x), 0)
    }
}

impl Neg for Exact {
    type Output = Exact;
    fn neg(self) -> Exact {
        Exact(-self.0, self.1)
    }
}

impl Exact {
    /// |found − exact| in units of the last place of an f64 of the size of the exact result.
    pub fn error_in_ulp(self, found: f64) -> f64 {
        let Exact(pair, exponent) = self;
        if found.is_nan() || pair.0.is_nan() {
            return if found.is_nan() && pair.0.is_nan() { 0.0 } else { f64::INFINITY };
        }
        if pair.0 == 0.0 {
            let same = found == 0.0 && found.is_sign_negative() == pair.0.is_sign_negative();
            return if same { 0.0 } else { f64::INFINITY };
        }
        if pair.0.is_infinite() {
            return if found == pair.0 { 0.0 } else { f64::INFINITY };
        }
        // Normalises the pair to a magnitude from 1 to 2.
        let own = exponent_of(pair.0);
        let pair = pair.scaled(power(-own / 2)).scaled(power(-own - -own / 2));
        let exponent = exponent + own;
        if exponent < -1200 {
            return found.abs() / f64::from_bits(1);
        }
        // Infinite results count as the number that would follow the largest.
        let (pair, exponent) =
            if exponent > 1023 { (Pair::from(2f64.copysign(pair.0)), 1023) } else { (pair, exponent) };
        let (found, above) = if found.is_infinite() { (2f64.copysign(found), 1023) } else { (found, 0) };
        let shift = above - exponent;
        let found = found * power(shift / 2) * power(shift - shift / 2);
        let difference = (found - pair.0) - pair.1;
        // The exponent of a subnormal number's last place is -1074.
        let place = (exponent - 52).max(-1074);
        difference.abs() * power(exponent - place)
    }
}

/// 2ⁿ for the exponents of normal numbers; smaller exponents give the least.
fn power(n: i32) -> f64 {
    2f64.powi(n)
}

fn exponent_of(x: f64) -> i32 {
    let biased = (x.to_bits() >> 52 & 0x7ff) as i32;
    if biased == 0 { exponent_of(x * power(64)) - 64 } else { biased - 1023 }
}

const LN_2: [f64; 3] = [std::f64::consts::LN_2, 2.319_046_813_846_299_6e-17, 5.707_708_438_416_212e-34];
const HALF_PI: [f64; 4] = [
    std::f64::consts::FRAC_PI_2,
    6.123_233_995_736_766e-17,
    -1.497_384_904_859_169_8e-33,
    5.562_271_104_316_826e-50,
];
/// 2/√π.
const TWO_BY_ROOT_PI: Pair = Pair(std::f64::consts::FRAC_2_SQRT_PI, 1.533_545_961_316_588e-17);

/// Product of an integer and a constant in several parts.
fn times(n: f64, parts: &[f64]) -> Pair {
    parts.iter().rev().fold(Pair::from(0.0), |sum, &part| sum + product(n, part))
}

fn exp_of(x: Pair) -> Exact {
    let n = (x.0 / LN_2[0]).round();
    let r = (x - times(n, &LN_2)).scaled(1.0 / 256.0);
    let mut series = Pair::from(1.0);
    for k in (1..=12).rev() {
        series = Pair::from(1.0) + r * series / Pair::from(f64::from(k));
    }
    for _ in 0..8 {
        series = series * series;
    }
    Exact(series, n as i32)
}

/// Applies `of` to a number unless the result is infinite or zero.
fn bounded(x: f64, (low, high): (f64, f64), of: impl Fn(f64) -> Exact) -> Exact {
    match x {
        _ if x.is_nan() => Exact::from(f64::NAN),
        _ if x < low => Exact::from(0.0),
        _ if x > high => Exact::from(f64::INFINITY),
        _ => of(x),
    }
}

pub fn exp(x: f64) -> Exact {
    bounded(x, (-800.0, 800.0), |x| exp_of(Pair::from(x)))
}

pub fn exp2(x: f64) -> Exact {
    bounded(x, (-1200.0, 1200.0), |x| {
        let n = x.round();
        let Exact(pair, more) = exp_of(times(x - n, &LN_2));
        Exact(pair, more + n as i32)
    })
}

/// ln x for positive finite x.
fn ln_of(x: f64) -> Pair {
    let exponent = exponent_of(x);
    let m = x * power(-exponent / 2) * power(-exponent - -exponent / 2);
    let (m, exponent) = if m > 1.5 { (m / 2.0, exponent + 1) } else { (m, exponent) };
    let s = Pair::from(m - 1.0) / sum(m, 1.0);
    let square = s * s;
    let mut series = Pair::from(0.0);
    for k in (0..32).rev() {
        series = Pair::from(1.0) / Pair::from(f64::from(2 * k + 1)) + square * series;
    }
    times(f64::from(exponent), &LN_2) + (s * series).scaled(2.0)
}

/// A logarithm, from its value for positive finite numbers.
fn logarithm(x: f64, of: impl Fn(f64) -> Pair) -> Exact {
    match x {
        _ if x.is_nan() || x < 0.0 => Exact::from(f64::NAN),
        0.0 => Exact::from(f64::NEG_INFINITY),
        1.0 => Exact::from(0.0),
        f64::INFINITY => Exact::from(x),
        _ => Exact(of(x), 0),
    }
}

pub fn ln(x: f64) -> Exact {
    logarithm(x, ln_of)
}

pub fn log2(x: f64) -> Exact {
    logarithm(x, |x| ln_of(x) / Pair(LN_2[0], LN_2[1]))
}

pub fn log10(x: f64) -> Exact {
    logarithm(x, |x| ln_of(x) / ln_of(10.0))
}

pub fn pow(x: f64, y: f64) -> Exact {
    let product = ln_of(x) * Pair::from(y);
    bounded(product.0, (-800.0, 800.0), |_| exp_of(product))
}

/// Fixed-point numbers: 3 words of the integer part, then the fraction, from the most significant word down.
type Fixed = [u32; 48];

/// π/2 by Machin's formula π/4 = 4 arctan(1/5) − arctan(1/239).
fn half_pi() -> Fixed {
    let divided = |x: &mut Fixed, by: u64| {
        let mut rest = 0;
        for word in x.iter_mut() {
            let whole = rest << 32 | u64::from(*word);
            *word = (whole / by) as u32;
            rest = whole % by;
        }
    };
    let mut total = [0; 48];
    let mut arctan = |numerator: u32, of: u64, negative: bool| {
        let mut power = [0; 48];
        power[2] = numerator;
        divided(&mut power, of);
        for k in 0.. {
            let mut term = power;
            divided(&mut term, 2 * k + 1);
            if term == [0; 48] {
                break;
            }
            if (k % 2 == 1) == negative {
                add(&mut total, &term)
            } else {
                subtract(&mut total, &term)
            }
            divided(&mut power, of * of);
        }
    };
    arctan(8, 5, false);
    arctan(2, 239, true);
    total
}

fn add(x: &mut Fixed, y: &Fixed) {
    let mut carry = 0;
    for (x, &y) in x.iter_mut().zip(y).rev() {
        let sum = u64::from(*x) + u64::from(y) + carry;
        (*x, carry) = (sum as u32, sum >> 32);
    }
}

fn subtract(x: &mut Fixed, y: &Fixed) {
    let mut borrow = false;
    for (x, &y) in x.iter_mut().zip(y).rev() {
        let (first, under) = x.overflowing_sub(y);
        let (second, again) = first.overflowing_sub(borrow.into());
        (*x, borrow) = (second, under || again);
    }
}

/// The angle from −π/4 to π/4 from which |x| is a number of quarter turns away, and that number modulo 4.
fn reduced(x: f64) -> (Pair, u32) {
    let x = x.abs();
    if x < 1e9 {
        let n = (x / HALF_PI[0]).round();
        return (Pair::from(x) - times(n, &HALF_PI), n as u32 % 4);
    }
    let half_pi = HALF_PI_FIXED.get_or_init(half_pi);
    let exponent = exponent_of(x) - 52;
    let mantissa = x.to_bits() & ((1 << 52) - 1) | 1 << 52;
    // Appends one bit of x after the other.
    let (mut rest, mut turns) = ([0u32; 48], 0);
    for bit in (-exponent..53).rev() {
        let own = if bit >= 0 { mantissa >> bit & 1 } else { 0 };
        let copy = rest;
        add(&mut rest, &copy);
        turns *= 2;
        let mut one = [0; 48];
        one[2] = own as u32;
        add(&mut rest, &one);
        while rest >= *half_pi {
            subtract(&mut rest, half_pi);
            turns += 1;
        }
        turns %= 4;
    }
    // Bits of x below 1.
    if exponent < 0 {
        let fraction = mantissa & ((1 << -exponent) - 1);
        let mut tail = [0; 48];
        let bits = fraction << (64 + exponent);
        (tail[3], tail[4]) = ((bits >> 32) as u32, bits as u32);
        add(&mut rest, &tail);
    }
    while rest >= *half_pi {
        subtract(&mut rest, half_pi);
        turns += 1;
    }
    let mut twice = rest;
    add(&mut twice, &rest);
    let above = twice > *half_pi;
    if above {
        let mut complement = *half_pi;
        subtract(&mut complement, &rest);
        (rest, turns) = (complement, turns + 1);
    }
    let words = rest.iter().enumerate().skip_while(|(_, word)| **word == 0).take(5);
    let parts: Vec<f64> = words.map(|(at, &word)| f64::from(word) * power(64 - 32 * at as i32)).collect();
    let pair = parts.iter().rev().fold(Pair::from(0.0), |sum, &part| sum + Pair::from(part));
    (if above { -pair } else { pair }, turns % 4)
}

static HALF_PI_FIXED: std::sync::OnceLock<Fixed> = std::sync::OnceLock::new();

/// rⁿ/n! − rⁿ⁺²/(n + 2)! + … for n = `first`, or with sums only.
fn alternating(r: Pair, first: u32, alternates: bool) -> Pair {
    let square = if alternates { -(r * r) } else { r * r };
    let mut series = Pair::from(1.0);
    for k in (0..15).rev() {
        let n = f64::from(2 * k + first);
        series = Pair::from(1.0) + square * series / Pair::from((n + 1.0) * (n + 2.0));
    }
    if first == 0 { series } else { series * r }
}

/// sin(x + turns · π/2).
fn turned(x: f64, more: u32) -> Exact {
    if !x.is_finite() {
        return Exact::from(f64::NAN);
    }
    let (r, turns) = reduced(x);
    let negative = x < 0.0 && more == 0;
    let turns = turns + more;
    let value = alternating(r, 1 - turns % 2, true);
    Exact(if (turns % 4 >= 2) != negative { -value } else { value }, 0)
}

/// Whether x is so small that f(x) = x within a relative error of 2⁻⁹⁰⁰.
fn is_tiny(x: f64) -> bool {
    x.abs() < 1e-140
}

pub fn sin(x: f64) -> Exact {
    if is_tiny(x) { Exact::from(x) } else { turned(x, 0) }
}

pub fn cos(x: f64) -> Exact {
    if is_tiny(x) { Exact::from(1.0) } else { turned(x, 1) }
}

pub fn tanh(x: f64) -> Exact {
    let magnitude = x.abs();
    let pair = match magnitude {
        _ if x.is_nan() || is_tiny(x) => return Exact::from(x),
        ..0.3 => alternating(Pair::from(magnitude), 1, false) / alternating(Pair::from(magnitude), 0, false),
        ..50.0 => {
            let Exact(pair, exponent) = exp_of(Pair::from(2.0 * magnitude));
            let power = pair.scaled(power(exponent));
            (power - Pair::from(1.0)) / (power + Pair::from(1.0))
        }
        _ => Pair::from(1.0),
    };
    Exact(if x < 0.0 { -pair } else { pair }, 0)
}

pub fn sigmoid(x: f64) -> Exact {
    let one = Pair::from(1.0);
    if x.is_nan() || x.abs() > 800.0 {
        return Exact::from(if x.is_nan() { x } else { f64::from(u8::from(x > 0.0)) });
    }
    let Exact(pair, exponent) = exp_of(Pair::from(-x.abs()));
    let power = pair.scaled(power(exponent.max(-900)));
    if x < 0.0 { Exact(pair / (one + power), exponent) } else { Exact(one / (one + power), 0) }
}

pub fn erf(x: f64) -> Exact {
    let magnitude = x.abs();
    if x.is_nan() || x == 0.0 {
        return Exact::from(x);
    }
    let Exact(pair, exponent) = if magnitude > 7.0 {
        Exact::from(1.0)
    } else {
        // 2/√π e^(−x²) Σ 2ⁿ x²ⁿ⁺¹ / (2n + 1)!!
        let own = exponent_of(magnitude).min(0);
        let m = magnitude * power(-own / 2) * power(-own - -own / 2);
        let square = if own < -400 { Pair::from(0.0) } else { product(magnitude, magnitude) };
        let mut series = Pair::from(1.0);
        for n in (0..220).rev() {
            series = Pair::from(1.0) + square.scaled(2.0) * series / Pair::from(f64::from(2 * n + 3));
        }
        let Exact(decay, more) = exp_of(-square);
        Exact(TWO_BY_ROOT_PI * Pair::from(m) * decay * series, own + more)
    };
    Exact(if x < 0.0 { -pair } else { pair }, exponent)
}
