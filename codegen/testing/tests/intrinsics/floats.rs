//! Exact arithmetic and comparisons of floats, and the documented errors of the approximate functions.

use bespoke_codegen::prelude::*;

use crate::host::{Exact, Host, HostNumber, convert};
use crate::integers::{compared, compared_on_host};
use crate::table::{Table, edges};

fn exact<T: HostNumber>(x: T) -> f64 {
    match x.exact() {
        Exact::Float(x) => x,
        Exact::Int(_) => unreachable!("floats only"),
    }
}

/// Rounds the f64 result of an operation on 16-bit operands to the type.
fn rounded<T: HostNumber>(x: f64) -> T {
    convert(Exact::Float(x), Rounding::Nearest)
}

/// The minimum or maximum of two numbers; if one is NaN, the other; -0 is less than +0.
fn extreme<T: HostNumber>(a: T, b: T, larger: bool) -> T {
    let (x, y) = (exact(a), exact(b));
    if x.is_nan() || y.is_nan() {
        return if x.is_nan() { b } else { a };
    }
    if x.total_cmp(&y).is_gt() == larger { a } else { b }
}

macro_rules! arithmetic {
    ($($ty:ident $arithmetic:ident $comparisons:ident;)*) => { $(
        #[test]
        fn $ty() {
            type T = $ty;
            Table::<T, T, T, T>::new(edges())
                .needs(Target::$arithmetic)
                .binary("add", |a, b| a + b, |a, b| rounded(exact(a) + exact(b)))
                .binary("sub", |a, b| a - b, |a, b| rounded(exact(a) - exact(b)))
                .binary("mul", |a, b| a * b, |a, b| rounded(exact(a) * exact(b)))
                .check();
            Table::<T, T, T, T>::new(edges())
                .binary("min", |a, b| a.min(b), |a, b| extreme(a, b, false))
                .binary("max", |a, b| a.max(b), |a, b| extreme(a, b, true))
                .unary("neg", |a| -a, |a| -a)
                .unary("abs", |a| a.abs(), |a| if a.is_sign_negative() { -a } else { a })
                .ternary("fma", |a, b, c| fma::<T>(a, b, c), |a, b, c| fused(a, b, c))
                .ternary("select", |a, b, _| select(always(thread_index()), b, a), |_, b, _| b)
                .check();
            Table::<T, T, T, u32>::new(edges())
                .needs(Target::$comparisons)
                .binary("compared", compared, compared_on_host)
                .check();
        }
    )* };
}
arithmetic! {
    f16 Sm80 Sm80;
    bf16 Sm90 Sm90;
}

/// A run-time condition that is true for every thread index.
#[device]
fn always(index: Val<u32>) -> Val<bool> {
    index < 1024
}

fn fused<T: HostNumber>(a: T, b: T, c: T) -> T {
    // The product of two 16-bit floats is exact in f64, and so is the sum unless it is far from any tie.
    rounded(exact(a).mul_add(exact(b), exact(c)))
}

macro_rules! pairs {
    ($($name:ident $pair:ident $half:ident $sums:ident;)*) => { $(
        #[test]
        fn $name() {
            type P = $pair;
            fn both(a: P, b: P, scalar: impl Fn($half, $half) -> $half) -> P {
                $pair(scalar(a.0, b.0), scalar(a.1, b.1))
            }
            Table::<P, P, P, P>::new(edges())
                .needs(Target::$sums)
                .binary("add", |a, b| a + b, |a, b| both(a, b, |a, b| rounded(exact(a) + exact(b))))
                .binary("sub", |a, b| a - b, |a, b| both(a, b, |a, b| rounded(exact(a) - exact(b))))
                .binary("mul", |a, b| a * b, |a, b| both(a, b, |a, b| rounded(exact(a) * exact(b))))
                .check();
            Table::<P, P, P, P>::new(edges())
                .binary("min", |a, b| a.min(b), |a, b| both(a, b, |a, b| extreme(a, b, false)))
                .binary("max", |a, b| a.max(b), |a, b| both(a, b, |a, b| extreme(a, b, true)))
                .unary("neg", |a| -a, |a| $pair(-a.0, -a.1))
                .unary("abs", |a| a.abs(), |a| both(a, a, |a, _| if a.is_sign_negative() { -a } else { a }))
                .ternary(
                    "fma",
                    |a, b, c| fma::<P>(a, b, c),
                    |a, b, c| $pair(fused(a.0, b.0, c.0), fused(a.1, b.1, c.1)),
                )
                .unary(
                    "halves exchanged",
                    |a| {
                        let [low, high] = a.unpack();
                        Val::<P>::pack(high, low)
                    },
                    |a| $pair(a.1, a.0),
                )
                .check();
            Table::<f32, f32, u32, P>::new(edges())
                .binary("rounded", |a, b| pack_rounded::<P>(a, b), |a, b| $pair($half::from_f32(a), $half::from_f32(b)))
                .check();
        }
    )* };
}
pairs! {
    f16x2 F16x2 f16 Sm80;
    bf16x2 Bf16x2 bf16 Sm90;
}

#[test]
fn f32() {
    type T = f32;
    Table::<T, T, T, T>::new(edges())
        .binary("add", |a, b| a + b, |a, b| a + b)
        .binary("sub", |a, b| a - b, |a, b| a - b)
        .binary("mul", |a, b| a * b, |a, b| a * b)
        .binary("div", |a, b| a / b, |a, b| a / b)
        .binary("min", |a, b| a.min(b), |a, b| extreme(a, b, false))
        .binary("max", |a, b| a.max(b), |a, b| extreme(a, b, true))
        .binary("copysign", |a, b| a.copysign(b), |a, b| a.copysign(b))
        .ternary("fma", |a, b, c| fma::<T>(a, b, c), |a, b, c| a.mul_add(b, c))
        .ternary("not contracted", |a, b, c| a * b + c, |a, b, c| a * b + c)
        .unary("neg", |a| -a, |a| -a)
        .unary("abs", |a| a.abs(), |a| a.abs())
        .unary("rcp", |a| a.rcp(), |a| 1.0 / a)
        .unary("sqrt", |a| a.sqrt(), |a| a.sqrt())
        .unary("constant over a value", |a| 3.0f32 / a, |a| 3.0 / a)
        .check();
    Table::<T, T, T, u32>::new(edges()).binary("compared", compared, compared_on_host).check();
}

#[test]
fn f64() {
    type T = f64;
    Table::<T, T, T, T>::new(edges())
        .binary("add", |a, b| a + b, |a, b| a + b)
        .binary("sub", |a, b| a - b, |a, b| a - b)
        .binary("mul", |a, b| a * b, |a, b| a * b)
        .binary("div", |a, b| a / b, |a, b| a / b)
        .binary("min", |a, b| a.min(b), |a, b| extreme(a, b, false))
        .binary("max", |a, b| a.max(b), |a, b| extreme(a, b, true))
        .binary("copysign", |a, b| a.copysign(b), |a, b| a.copysign(b))
        .ternary("fma", |a, b, c| fma::<T>(a, b, c), |a, b, c| a.mul_add(b, c))
        .ternary("not contracted", |a, b, c| a * b + c, |a, b, c| a * b + c)
        .ternary("select", |a, b, _| select(always(thread_index()), b, a), |_, b, _| b)
        .unary("neg", |a| -a, |a| -a)
        .unary("abs", |a| a.abs(), |a| a.abs())
        .unary("rcp", |a| a.rcp(), |a| 1.0 / a)
        .unary("sqrt", |a| a.sqrt(), |a| a.sqrt())
        .unary("constant over a value", |a| 3.0f64 / a, |a| 3.0 / a)
        .check();
    Table::<T, T, T, u32>::new(edges()).binary("compared", compared, compared_on_host).check();
}

macro_rules! integral {
    ($($name:ident $ty:ident;)*) => { $(
        #[test]
        fn $name() {
            let host = |round: fn(f64) -> f64| move |a: $ty| rounded::<$ty>(round(exact(a)));
            Table::<$ty, u32, u32, $ty>::new(<$ty>::edges().into_iter().map(|x| (x, 0, 0)).collect())
                .unary("floor", |a| a.floor(), host(f64::floor))
                .unary("ceil", |a| a.ceil(), host(f64::ceil))
                .unary("trunc", |a| a.trunc(), host(f64::trunc))
                .unary("round_ties_even", |a| a.round_ties_even(), host(f64::round_ties_even))
                .check();
        }
    )* };
}
integral! {
    integral_f16 f16;
    integral_f32 f32;
    integral_f64 f64;
}

#[test]
fn rounded_away_from_zero() {
    let edges = f64::edges().into_iter().chain([0.5f64.next_down(), -2.5, 4_503_599_627_370_497.0]);
    Table::<f64, u32, u32, f64>::new(edges.map(|x| (x, 0, 0)).collect())
        .unary("round", |a| a.round(), f64::round)
        .check();
}

/// A shuffle of 64 bits is two of 32.
#[test]
fn sums_of_f64_over_a_warp() {
    let numbers: [f64; 32] = std::array::from_fn(|lane| 1.0 + lane as f64 * 2f64.powi(-50));
    let sums = bespoke_testing::map(|x| warp_sum(x), "shfl.sync.bfly.b32", numbers);
    assert_eq!(sums, [32.0 + 496.0 * 2f64.powi(-50); 32].map(|sum: f64| sum));
}

/// Maximum error of an approximation.
#[derive(Clone, Copy)]
enum Error {
    /// Relative error of at most 2 to this power.
    Relative(i32),
    /// Absolute error of at most 2 to this power.
    Absolute(i32),
}

type Approximation = (&'static str, fn(Val<f32>) -> Val<f32>, fn(f64) -> f64, Error, [f32; 6]);

#[test]
fn approximations() {
    use Error::{Absolute, Relative};
    let positive = [1e-37, 1e-3, 0.7, 1.0, 3.0, 1e37];
    let angles = [-std::f32::consts::PI, -1.5, -0.0, 1e-3, 0.5, 3.1];
    let functions: [Approximation; 10] = [
        ("rcp_approx", |x| x.rcp_approx(), |x| 1.0 / x, Relative(-23), [-3.0, 1e-37, 0.3, 1.0, 7.0, 1e37]),
        ("sqrt_approx", |x| x.sqrt_approx(), f64::sqrt, Relative(-22), positive),
        ("rsqrt_approx", |x| x.rsqrt_approx(), |x| 1.0 / x.sqrt(), Relative(-22), positive),
        (
            "exp2_approx",
            |x| x.exp2_approx(),
            f64::exp2,
            Relative(-22),
            [-125.5, -2.25, -0.0, 0.3, 10.7, 127.0],
        ),
        ("exp_approx", |x| x.exp_approx(), f64::exp, Relative(-17), [-80.0, -2.25, -0.0, 0.3, 10.7, 80.0]),
        ("log2_approx", |x| x.log2_approx(), f64::log2, Relative(-22), [1e-37, 0.1, 0.4, 2.5, 1000.0, 1e37]),
        ("log2 near 1", |x| x.log2_approx(), f64::log2, Absolute(-22), [0.51, 0.8, 0.999, 1.0, 1.001, 1.9]),
        ("sin_approx", |x| x.sin_approx(), f64::sin, Absolute(-20), angles),
        ("cos_approx", |x| x.cos_approx(), f64::cos, Absolute(-20), angles),
        ("tanh_approx", |x| x.tanh_approx(), f64::tanh, Relative(-11), [-20.0, -1.0, -0.01, 0.2, 0.9, 3.0]),
    ];
    for (name, gpu, host, error, inputs) in functions {
        let rows = inputs.iter().map(|&x| (x, 0, 0)).collect();
        Table::<f32, u32, u32, f32>::new(rows)
            .judged(
                name,
                move |x, _, _| gpu(x),
                move |(x, ..), found| {
                    let expected = host(x.into());
                    let allowed = match error {
                        Relative(power) => expected.abs() * 2f64.powi(power),
                        Absolute(power) => 2f64.powi(power),
                    };
                    ((f64::from(found) - expected).abs() > allowed)
                        .then(|| format!("{expected} ± {allowed:e}"))
                },
            )
            .check();
    }
}

/// Name of a function, the function, and pairs of argument and expected result at the ends of its range.
type AtEnds = (&'static str, fn(Val<f32>) -> Val<f32>, Vec<(f32, f32)>);

#[test]
fn approximations_at_their_ends() {
    let inf = f32::INFINITY;
    let functions: [AtEnds; 8] = [
        ("rcp_approx", |x| x.rcp_approx(), vec![(0.0, inf), (-0.0, -inf), (inf, 0.0), (-inf, -0.0)]),
        ("sqrt_approx", |x| x.sqrt_approx(), vec![(0.0, 0.0), (-0.0, -0.0), (inf, inf), (-1.0, f32::NAN)]),
        ("rsqrt_approx", |x| x.rsqrt_approx(), vec![(0.0, inf), (-0.0, -inf), (inf, 0.0), (-1.0, f32::NAN)]),
        (
            "exp2_approx",
            |x| x.exp2_approx(),
            vec![(-inf, 0.0), (inf, inf), (0.0, 1.0), (200.0, inf), (f32::NAN, f32::NAN)],
        ),
        (
            "exp_approx",
            |x| x.exp_approx(),
            vec![(-inf, 0.0), (inf, inf), (0.0, 1.0), (100.0, inf), (-1e30, 0.0)],
        ),
        (
            "log2_approx",
            |x| x.log2_approx(),
            vec![(0.0, -inf), (-0.0, -inf), (inf, inf), (-1.0, f32::NAN), (1.0, 0.0)],
        ),
        (
            "tanh_approx",
            |x| x.tanh_approx(),
            vec![(0.0, 0.0), (inf, 1.0), (-inf, -1.0), (f32::NAN, f32::NAN)],
        ),
        ("sin_approx", |x| x.sin_approx(), vec![(0.0, 0.0), (-0.0, -0.0), (inf, f32::NAN)]),
    ];
    for (name, gpu, rows) in functions {
        Table::<f32, f32, u32, f32>::new(rows.into_iter().map(|(x, y)| (x, y, 0)).collect())
            .ternary(name, move |x, _, _| gpu(x), |_, y, _| y)
            .check();
    }
}

#[test]
fn approximate_quotients() {
    let numbers = [1.0f32, -7.5, 0.3, 1e20, 1e-20];
    let rows = numbers.iter().flat_map(|&a| numbers.map(|b| (a, b, 0)));
    Table::<f32, f32, u32, f32>::new(rows.collect())
        .judged(
            "div_approx",
            |a, b, _| a.div_approx(b),
            |(a, b, _), found| {
                let expected = f64::from(a) / f64::from(b);
                // Outside this range a quotient overflows or underflows.
                let in_range = (1e-38..3e38).contains(&expected.abs());
                let far = (f64::from(found) - expected).abs() > expected.abs() * 2f64.powi(-22);
                (in_range && far).then(|| format!("{expected} within 2 ulp"))
            },
        )
        .check();
}

/// The code that the error message for `x % y` suggests.
#[test]
fn the_remainder_that_an_error_suggests() {
    let remainder = |x: Val<f32>| {
        let y = 2.5f32;
        x - (x / y).cast::<i32>().cast::<f32>() * y
    };
    let numbers = [7.0f32, -7.0, 0.5, 100.0];
    for (x, found) in numbers.into_iter().zip(bespoke_testing::map(remainder, "cvt.rzi.s32.f32", numbers)) {
        assert!((found - x % 2.5).abs() < 1e-5, "{x}: {found}");
    }
}
