//! Errors of the activations and of the soft cap, compared with double precision.

use bespoke_codegen::prelude::*;
use bespoke_kernels::kernels::activation::{Activation, softcap};
use bespoke_testing::map;

/// 512 magnitudes from 2^-20 to 2^7 with equal ratios, with both signs.
fn inputs() -> [f32; 1024] {
    std::array::from_fn(|i| {
        let magnitude = (f64::from(i as u32 / 2) / 511.0 * 27.0 - 20.0).exp2();
        if i % 2 == 0 { magnitude as f32 } else { -magnitude as f32 }
    })
}

/// Largest relative errors of `function`: over inputs up to 5, and over all whose exact result is at least 1e-30.
fn relative_errors(function: impl Fn(Val<f32>) -> Val<f32>, exact: impl Fn(f64) -> f64) -> [f64; 2] {
    let results = map(function, "ex2.approx", inputs());
    let (mut near, mut all) = (0.0f64, 0.0f64);
    for (x, got) in inputs().into_iter().zip(results) {
        let want = exact(f64::from(x));
        if want.abs() >= 1e-30 {
            let error = ((f64::from(got) - want) / want).abs();
            all = all.max(error);
            near = near.max(if x.abs() <= 5.0 { error } else { 0.0 });
        }
    }
    [near, all]
}

/// 2u of the tanh form of GELU.
fn two_u(x: f64) -> f64 {
    (8.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3))
}

#[test]
fn relative_errors_are_as_documented() {
    let check = |name: &str, [near, all]: [f64; 2], limits: [f64; 2]| {
        println!("{name}: {near:.1e}, {all:.1e}");
        assert!(near < limits[0] && all < limits[1], "{name}: {near:e}, {all:e}");
    };
    check("silu", relative_errors(|x| Activation::Silu.apply(x), |x| x / (1.0 + (-x).exp())), [5e-7, 1e-5]);
    check(
        "gelu",
        relative_errors(|x| Activation::Gelu.apply(x), |x| x / (1.0 + (-two_u(x)).exp())),
        [2e-6, 1e-5],
    );
    for cap in [30.0f32, 50.0, 0.75] {
        let exact = |x: f64| f64::from(cap) * (x / f64::from(cap)).tanh();
        check("softcap", relative_errors(|x| softcap(x, cap), exact), [5e-7; 2]);
    }
}

#[test]
fn extremes_are_limits() {
    let inputs = [f32::MAX, f32::MIN, 0.0, f32::INFINITY, f32::NEG_INFINITY];
    assert_eq!(map(|x| Activation::Silu.apply(x), "ex2", inputs)[..3], [f32::MAX, 0.0, 0.0]);
    assert_eq!(map(|x| Activation::Gelu.apply(x), "ex2", inputs)[..3], [f32::MAX, 0.0, 0.0]);
    assert_eq!(map(|x| softcap(x, 30.0), "ex2", inputs), [30.0, -30.0, 0.0, 30.0, -30.0]);
    assert!(map(|x| softcap(x, 30.0), "ex2", [f32::NAN])[0].is_nan());
}
