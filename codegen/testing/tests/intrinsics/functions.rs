//! The elementary functions: their documented bounds, special cases, and BOOK's table of both.

use bespoke_codegen::prelude::*;

use crate::table::Table;

#[path = "../../../examples/function_errors/double.rs"]
mod double;
#[path = "../../../examples/function_errors/table.rs"]
mod measured;
#[path = "../../../examples/function_errors/reference.rs"]
mod reference;

use measured::{FUNCTIONS, POW_BOUND, pairs_worst, worst_of, worst_of_pow};

/// Every 65,521st f32 (a prime): 128 of each exponent and sign. `examples/function_errors` can take every one.
const STEP: u32 = 65_521;

#[test]
fn errors_are_within_the_documented_bounds() {
    for function in &FUNCTIONS {
        let worst = worst_of(function, 12_345, STEP);
        let name = function.name;
        assert!(worst.error <= function.bound, "{name} has {worst}, above {} ulp", function.bound);
        // A bound far above the errors is wrong, too.
        assert!(worst.error >= function.bound * 0.4, "{name}: the largest error is {worst}");
    }
    let worst = worst_of_pow(1 << 17, 1);
    assert!(worst.error <= POW_BOUND, "pow has {worst}, above {POW_BOUND} ulp");
}

#[test]
fn errors_of_f64_are_within_the_documented_bounds() {
    for function in &double::FUNCTIONS {
        let worst = double::worst_of(function, 1 << 14, 1);
        let name = function.name;
        assert!(worst.error <= function.bound, "{name} has {worst}, above {} ulp", function.bound);
        // A bound far above the errors is wrong, too.
        assert!(worst.error >= function.bound * 0.4, "{name}: the largest error is {worst}");
    }
    let worst = double::worst_of_pow(1 << 14, 1);
    assert!(worst.error <= double::POW_BOUND, "pow has {worst}, above {} ulp", double::POW_BOUND);
    assert!(worst.error >= double::POW_BOUND * 0.4, "pow: the largest error is {worst}");
}

/// The reference is measured by `libm`, whose errors are below 1 ulp.
#[test]
fn the_reference_agrees_with_libm() {
    type Other = fn(f64) -> f64;
    let others: [(&str, Other); 10] = [
        ("exp", libm::exp),
        ("exp2", libm::exp2),
        ("ln", libm::log),
        ("log2", libm::log2),
        ("log10", libm::log10),
        ("sin", libm::sin),
        ("cos", libm::cos),
        ("tanh", libm::tanh),
        ("sigmoid", |x| 1.0 / (1.0 + libm::exp(-x))),
        ("erf", libm::erf),
    ];
    let numbers =
        [1e-300, 1e-9, 0.25, 0.7, 0.999, 1.0, 1.5, 3.0, 5.5, 20.0, 700.0, 1e6, 1e10, 1e17, 6e22, 1e308];
    for (function, (name, other)) in double::FUNCTIONS.iter().zip(others) {
        assert_eq!(function.name, name);
        for x in numbers.iter().flat_map(|&x| [x, -x]) {
            let error = (function.exact)(x).error_in_ulp(other(x));
            assert!(error <= 2.0, "{name}({x:e}): {error} ulp");
        }
    }
    for (x, y) in [(2.0, 0.5), (1e-300, -1.02), (0.9999, 7e6), (1.0001, -7e6), (1e300, 1.02), (3.0, 200.0)] {
        let error = reference::pow(x, y).error_in_ulp(libm::pow(x, y));
        assert!(error <= 1.0, "{x:e} to the power {y:e}: {error} ulp");
    }
}

#[test]
fn the_book_states_the_bounds() {
    let book = include_str!("../../../BOOK.md");
    let all = FUNCTIONS.iter().map(|function| (function.name, function.bound)).chain([("pow", POW_BOUND)]);
    let doubles = double::FUNCTIONS.iter().map(|function| (function.name, function.bound));
    let doubles: Vec<(&str, f64)> = doubles.chain([("pow", double::POW_BOUND)]).collect();
    for (name, bound) in all.filter(|&(_, bound)| bound > 0.0) {
        let (_, double) =
            doubles.iter().find(|(other, _)| *other == name).expect("the functions are the same");
        let row = format!("| `{name}` | {bound} | {double} |");
        assert!(book.contains(&row), "BOOK.md has no row that begins with `{row}`");
    }
}

#[test]
fn special_arguments_of_f64() {
    let (inf, nan, least) = (f64::INFINITY, f64::NAN, f64::from_bits(1));
    type Row = (&'static str, fn(Val<f64>) -> Val<f64>, Vec<(f64, f64)>);
    let functions: [Row; 10] = [
        (
            "exp",
            |x| x.exp(),
            vec![(-inf, 0.0), (inf, inf), (0.0, 1.0), (-1e30, 0.0), (1e30, inf), (nan, nan), (least, 1.0)],
        ),
        ("exp2", |x| x.exp2(), vec![(-inf, 0.0), (inf, inf), (-1074.0, least), (-1076.0, 0.0), (nan, nan)]),
        ("ln", |x| x.ln(), vec![(0.0, -inf), (-0.0, -inf), (inf, inf), (-1.0, nan), (-inf, nan), (1.0, 0.0)]),
        (
            "log2",
            |x| x.log2(),
            vec![(0.0, -inf), (least, -1074.0), (inf, inf), (-1.0, nan), (nan, nan), (1.0, 0.0)],
        ),
        ("log10", |x| x.log10(), vec![(0.0, -inf), (1.0, 0.0), (1e22, 22.0), (inf, inf), (nan, nan)]),
        (
            "sin",
            |x| x.sin(),
            vec![(0.0, 0.0), (-0.0, -0.0), (inf, nan), (-inf, nan), (nan, nan), (least, least)],
        ),
        ("cos", |x| x.cos(), vec![(0.0, 1.0), (-0.0, 1.0), (inf, nan), (nan, nan)]),
        (
            "tanh",
            |x| x.tanh(),
            vec![(0.0, 0.0), (-0.0, -0.0), (inf, 1.0), (-inf, -1.0), (nan, nan), (least, least)],
        ),
        ("sigmoid", |x| x.sigmoid(), vec![(-inf, 0.0), (inf, 1.0), (0.0, 0.5), (-0.0, 0.5), (nan, nan)]),
        ("erf", |x| x.erf(), vec![(0.0, 0.0), (-0.0, -0.0), (inf, 1.0), (-inf, -1.0), (nan, nan)]),
    ];
    for (name, gpu, rows) in functions {
        Table::<f64, f64, u32, f64>::new(rows.into_iter().map(|(x, y)| (x, y, 0)).collect())
            .ternary(name, move |x, _, _| gpu(x), |_, y, _| y)
            .check();
    }
    // Powers whose results C defines.
    let numbers = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        0.5,
        -0.5,
        2.0,
        -2.0,
        3.0,
        -3.0,
        1e300,
        -1e300,
        9007199254740993.0,
        inf,
        -inf,
        nan,
    ];
    let pairs: Vec<[f64; 2]> = numbers.iter().flat_map(|&x| numbers.map(|y| [x, y])).collect();
    let worst = double::worst_of_pairs(&pairs);
    assert!(worst.error <= double::POW_BOUND, "{worst}");
}

/// Name of a function, the function, and pairs of argument and expected result.
type AtEnds = (&'static str, fn(Val<f32>) -> Val<f32>, Vec<(f32, f32)>);

#[test]
fn special_arguments() {
    let (inf, nan, least) = (f32::INFINITY, f32::NAN, f32::from_bits(1));
    let functions: [AtEnds; 13] = [
        (
            "exp",
            |x| x.exp(),
            vec![(-inf, 0.0), (inf, inf), (0.0, 1.0), (-1e30, 0.0), (1e30, inf), (nan, nan)],
        ),
        ("exp2", |x| x.exp2(), vec![(-inf, 0.0), (inf, inf), (-149.0, least), (-151.0, 0.0), (nan, nan)]),
        ("ln", |x| x.ln(), vec![(0.0, -inf), (-0.0, -inf), (inf, inf), (-1.0, nan), (-inf, nan), (1.0, 0.0)]),
        ("log2", |x| x.log2(), vec![(0.0, -inf), (least, -149.0), (inf, inf), (-1.0, nan), (nan, nan)]),
        ("log10", |x| x.log10(), vec![(0.0, -inf), (1.0, 0.0), (10.0, 1.0), (inf, inf), (nan, nan)]),
        (
            "sin",
            |x| x.sin(),
            vec![(0.0, 0.0), (-0.0, -0.0), (inf, nan), (-inf, nan), (nan, nan), (least, least)],
        ),
        ("cos", |x| x.cos(), vec![(0.0, 1.0), (-0.0, 1.0), (inf, nan), (nan, nan)]),
        ("tanh", |x| x.tanh(), vec![(0.0, 0.0), (-0.0, -0.0), (inf, 1.0), (-inf, -1.0), (nan, nan)]),
        ("sigmoid", |x| x.sigmoid(), vec![(-inf, 0.0), (inf, 1.0), (0.0, 0.5), (-0.0, 0.5), (nan, nan)]),
        ("erf", |x| x.erf(), vec![(0.0, 0.0), (-0.0, -0.0), (inf, 1.0), (-inf, -1.0), (nan, nan)]),
        (
            "round",
            |x| x.round(),
            vec![(0.5, 1.0), (-2.5, -3.0), (0.49999997, 0.0), (-0.0, -0.0), (8388609.0, 8388609.0)],
        ),
        ("clamp", |x| x.clamp(-1.0, 2.0), vec![(-5.0, -1.0), (inf, 2.0), (0.5, 0.5), (nan, -1.0)]),
        (
            "classes",
            |x| {
                let bit = |is: Val<bool>, value: f32| select(is, value, 0.0);
                bit(x.is_nan(), 1.0) + bit(x.is_finite(), 2.0) + bit(x.is_infinite(), 4.0)
            },
            vec![
                (nan, 1.0),
                (-nan, 1.0),
                (-inf, 4.0),
                (inf, 4.0),
                (f32::MAX, 2.0),
                (least, 2.0),
                (-0.0, 2.0),
            ],
        ),
    ];
    for (name, gpu, rows) in functions {
        Table::<f32, f32, u32, f32>::new(rows.into_iter().map(|(x, y)| (x, y, 0)).collect())
            .ternary(name, move |x, _, _| gpu(x), |_, y, _| y)
            .check();
    }
}

/// Powers whose results C defines (C11, F.10.4.4), which are also those of `libm`.
#[test]
fn special_powers() {
    let numbers = [
        0.0f32,
        -0.0,
        1.0,
        -1.0,
        0.5,
        -0.5,
        2.0,
        -2.0,
        3.0,
        -3.0,
        1e30,
        -1e30,
        16777217.0,
        -16777216.0,
        f32::INFINITY,
        -f32::INFINITY,
        f32::NAN,
    ];
    let mut pairs: Vec<(f32, f32)> = numbers.iter().flat_map(|&x| numbers.map(|y| (x, y))).collect();
    pairs.resize(pairs.len().next_multiple_of(256), (2.0, 10.0));
    let worst = pairs_worst(&pairs);
    assert!(worst.error <= POW_BOUND, "{worst}");
}

#[test]
fn a_float_is_not_rounded_to_its_own_type() {
    #[kernel(threads = 1)]
    fn rounds(x: Ptr<Global, f32>) {
        x.store(x.load().cast_rounded::<f32>(Rounding::Down));
    }
    let error = rounds().expect_err("an error").to_string();
    for part in ["a conversion from f32 to f32 rounds nothing", "`.floor()`", "functions.rs"] {
        assert!(error.contains(part), "no {part:?} in: {error}");
    }
}

#[test]
fn an_exact_conversion_is_not_rounded() {
    #[kernel(threads = 1)]
    fn rounds<A: Number, B: Number>(x: Ptr<Global, A>, y: Ptr<Global, B>) {
        y.store(x.load().cast_rounded::<B>(Rounding::Down));
    }
    let check = |recorded: Recorded, message: &str| {
        let error = recorded.expect_err("an error").to_string();
        assert!(error.contains(message) && error.contains("functions.rs"), "{error}");
    };
    check(rounds::<f32, f64>(), "a conversion from f32 to f64 is exact, and rounds nothing: write `.cast()`");
    check(rounds::<f16, f32>(), "a conversion from f16 to f32 is exact");
    check(rounds::<u32, u64>(), "a conversion from u32 to u64 wraps or extends, and rounds nothing");
    check(rounds::<i32, u32>(), "a conversion from i32 to u32 wraps");
    assert!(rounds::<f64, f32>().is_ok() && rounds::<u32, f32>().is_ok() && rounds::<f32, i32>().is_ok());
}
