//! The elementary functions: their documented bounds, special cases, and BOOK's table of both.

use bespoke_codegen::prelude::*;

use crate::table::Table;

#[path = "../../examples/function_errors/table.rs"]
mod measured;

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
fn the_book_states_the_bounds() {
    let book = include_str!("../../BOOK.md");
    let all = FUNCTIONS.iter().map(|function| (function.name, function.bound)).chain([("pow", POW_BOUND)]);
    for (name, bound) in all.filter(|&(_, bound)| bound > 0.0) {
        let row = format!("| `{name}` | {bound} |");
        assert!(book.contains(&row), "BOOK.md has no row that begins with `{row}`");
    }
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
