//! Single and double precision: rounding, subnormals, NaNs and signed zeros.

use crate::harness::{check, check_f32};

const NAN: f32 = f32::NAN;
const INF: f32 = f32::INFINITY;
/// The smallest positive subnormal `f32`, and half of the smallest normal `f32`.
const TINY: f32 = f32::from_bits(1);
const SUBNORMAL: f32 = f32::from_bits(0x0040_0000);
/// One unit in the last place of 1.
const ULP: f32 = f32::EPSILON;

#[test]
fn rounding_modes_of_sums() {
    let half = ULP / 4.0;
    check_f32("add.rn.f32 %d, %a, %b;", &[&[1.0, half, 1.0], &[1.0, 3.0 * half, 1.0 + ULP]]);
    check_f32(
        "add.rz.f32 %d, %a, %b;",
        &[&[1.0, 3.0 * half, 1.0], &[-1.0, -3.0 * half, -1.0], &[f32::MAX, f32::MAX, f32::MAX]],
    );
    check_f32(
        "add.rm.f32 %d, %a, %b;",
        &[
            &[1.0, 3.0 * half, 1.0],
            &[-1.0, -half, -1.0 - ULP],
            &[1.0, -1.0, -0.0],
            &[1.0, -TINY, 1.0 - ULP / 2.0],
        ],
    );
    check_f32(
        "add.rp.f32 %d, %a, %b;",
        &[&[1.0, TINY, 1.0 + ULP], &[-1.0, -half, -1.0], &[1.0, -1.0, 0.0], &[f32::MAX, 1.0, INF]],
    );
    check_f32("sub.rm.f32 %d, %a, %b;", &[&[1.0, TINY, 1.0 - ULP / 2.0], &[2.0, 2.0, -0.0]]);
    check_f32("sub.rn.f32 %d, %a, %b;", &[&[0.0, 0.0, 0.0], &[-0.0, 0.0, -0.0], &[INF, INF, NAN]]);
}

#[test]
fn rounding_modes_of_products() {
    let above = 1.0 + ULP;
    // (1 + u)² = 1 + 2u + u².
    check_f32("mul.rn.f32 %d, %a, %b;", &[&[above, above, 1.0 + 2.0 * ULP], &[0.0, INF, NAN]]);
    check_f32(
        "mul.rp.f32 %d, %a, %b;",
        &[&[above, above, 1.0 + 3.0 * ULP], &[TINY, 0.25, TINY], &[-TINY, 0.25, -0.0]],
    );
    check_f32("mul.rz.f32 %d, %a, %b;", &[&[above, -above, -1.0 - 2.0 * ULP], &[f32::MAX, 2.0, f32::MAX]]);
    check_f32("mul.rm.f32 %d, %a, %b;", &[&[above, -above, -1.0 - 3.0 * ULP], &[-f32::MAX, 2.0, -INF]]);
    // `fma` rounds once, so the low half of the product affects the result.
    check_f32(
        "fma.rn.f32 %d, %a, %b, %c;",
        &[&[above, above, -1.0 - 2.0 * ULP, ULP * ULP], &[2.0, 3.0, 4.0, 10.0]],
    );
    check_f32("fma.rp.f32 %d, %a, %b, %c;", &[&[TINY, TINY, 1.0, 1.0 + ULP], &[1.0, 1.0, -1.0, 0.0]]);
    check_f32("fma.rm.f32 %d, %a, %b, %c;", &[&[-TINY, TINY, 1.0, 1.0 - ULP / 2.0], &[1.0, 1.0, -1.0, -0.0]]);
    check_f32(
        "fma.rz.f32 %d, %a, %b, %c;",
        &[&[-TINY, TINY, 1.0, 1.0 - ULP / 2.0], &[TINY, TINY, -1.0, -1.0 + ULP / 2.0]],
    );
    check_f32("mad.rn.f32 %d, %a, %b, %c;", &[&[2.0, 3.0, 4.0, 10.0]]);
}

#[test]
fn quotients_and_roots() {
    let third = 1.0f32 / 3.0;
    check_f32(
        "div.rn.f32 %d, %a, %b;",
        &[&[1.0, 3.0, third], &[1.0, 0.0, INF], &[-1.0, 0.0, -INF], &[0.0, 0.0, NAN]],
    );
    check_f32(
        "div.rz.f32 %d, %a, %b;",
        &[&[1.0, 3.0, third.next_down()], &[-1.0, 3.0, -third.next_down()], &[1.0, -3.0, -third.next_down()]],
    );
    check_f32("div.rp.f32 %d, %a, %b;", &[&[1.0, 3.0, third], &[2.0, -3.0, (-2.0f32 / 3.0).next_up()]]);
    check_f32("div.rm.f32 %d, %a, %b;", &[&[1.0, 3.0, third.next_down()], &[1.0, -3.0, -third]]);
    check_f32("rcp.rn.f32 %d, %a;", &[&[3.0, third], &[-0.0, -INF], &[INF, 0.0]]);
    check_f32("rcp.rz.f32 %d, %a;", &[&[3.0, third.next_down()]]);
    let root = 2f32.sqrt();
    check_f32("sqrt.rn.f32 %d, %a;", &[&[2.0, root], &[-1.0, NAN], &[-0.0, -0.0]]);
    let (down, up) =
        if (root as f64) * (root as f64) > 2.0 { (root.next_down(), root) } else { (root, root.next_up()) };
    check_f32("sqrt.rm.f32 %d, %a;", &[&[2.0, down], &[4.0, 2.0]]);
    check_f32("sqrt.rp.f32 %d, %a;", &[&[2.0, up], &[4.0, 2.0]]);
}

#[test]
fn flushing_and_saturating() {
    check_f32(
        "add.ftz.f32 %d, %a, %b;",
        &[&[SUBNORMAL, 0.0, 0.0], &[-SUBNORMAL, -0.0, -0.0], &[1.0, 1.0, 2.0]],
    );
    check_f32("add.f32 %d, %a, %b;", &[&[SUBNORMAL, TINY, f32::from_bits(0x0040_0001)]]);
    check_f32("mul.ftz.f32 %d, %a, %b;", &[&[f32::MIN_POSITIVE, 0.5, 0.0], &[-f32::MIN_POSITIVE, 0.5, -0.0]]);
    check_f32(
        "add.sat.f32 %d, %a, %b;",
        &[&[0.75, 0.75, 1.0], &[-1.0, 0.5, 0.0], &[NAN, 1.0, 0.0], &[0.25, 0.5, 0.75]],
    );
    check_f32("fma.rn.ftz.sat.f32 %d, %a, %b, %c;", &[&[2.0, 3.0, 4.0, 1.0], &[TINY, 1.0, 0.0, 0.0]]);
    check_f32("fma.rz.sat.f32 %d, %a, %b, %c;", &[&[2.0, 3.0, 4.0, 1.0], &[0.5, 0.5, 0.0, 0.25]]);
    check_f32("neg.ftz.f32 %d, %a;", &[&[SUBNORMAL, -0.0], &[2.0, -2.0]]);
    check_f32("abs.f32 %d, %a;", &[&[-SUBNORMAL, SUBNORMAL], &[-INF, INF]]);
}

#[test]
fn nan_results_are_canonical() {
    let (nan, inf) = (0x7fc0_0001, 0x7f80_0000);
    check("add.f32 %d, %a, %b;", &[32; 3], &[&[nan, 0, 0x7fff_ffff], &[inf, inf | 1 << 31, 0x7fff_ffff]]);
    check("fma.rn.f32 %d, %a, %b, %c;", &[32; 4], &[&[0, inf, 0, 0x7fff_ffff]]);
    check("min.f32 %d, %a, %b;", &[32; 3], &[&[nan, nan, 0x7fff_ffff], &[nan, 0x3f80_0000, 0x3f80_0000]]);
}

#[test]
fn extrema() {
    check_f32(
        "min.f32 %d, %a, %b;",
        &[&[0.0, -0.0, -0.0], &[-0.0, 0.0, -0.0], &[NAN, 1.0, 1.0], &[2.0, NAN, 2.0], &[-INF, 3.0, -INF]],
    );
    check_f32(
        "max.f32 %d, %a, %b;",
        &[&[0.0, -0.0, 0.0], &[-0.0, 0.0, 0.0], &[NAN, 1.0, 1.0], &[1.0, 2.0, 2.0]],
    );
    check_f32("max.NaN.f32 %d, %a, %b;", &[&[NAN, 1.0, NAN], &[1.0, NAN, NAN], &[1.0, 2.0, 2.0]]);
    check_f32("min.xorsign.abs.f32 %d, %a, %b;", &[&[-2.0, 3.0, -2.0], &[-2.0, -3.0, 2.0]]);
    check_f32("max.ftz.f32 %d, %a, %b;", &[&[SUBNORMAL, -1.0, 0.0]]);
}

#[test]
fn approximate_functions_return_the_nearest_float() {
    check_f32(
        "ex2.approx.ftz.f32 %d, %a;",
        &[&[3.0, 8.0], &[-200.0, 0.0], &[0.5, 2f32.sqrt()], &[-INF, 0.0], &[200.0, INF]],
    );
    check_f32("lg2.approx.f32 %d, %a;", &[&[8.0, 3.0], &[0.0, -INF], &[-1.0, NAN]]);
    check_f32("rsqrt.approx.f32 %d, %a;", &[&[4.0, 0.5], &[0.0, INF], &[-1.0, NAN]]);
    check_f32("rcp.approx.ftz.f32 %d, %a;", &[&[4.0, 0.25], &[SUBNORMAL, INF]]);
    check_f32("sqrt.approx.f32 %d, %a;", &[&[9.0, 3.0]]);
    check_f32("sin.approx.f32 %d, %a;", &[&[0.0, 0.0], &[1.0, 0.84147098]]);
    check_f32("cos.approx.f32 %d, %a;", &[&[0.0, 1.0]]);
    check_f32("tanh.approx.f32 %d, %a;", &[&[0.0, 0.0], &[20.0, 1.0], &[-20.0, -1.0]]);
    check_f32("div.approx.f32 %d, %a, %b;", &[&[1.0, 4.0, 0.25]]);
    check_f32("div.full.f32 %d, %a, %b;", &[&[1.0, 3.0, 1.0 / 3.0]]);
}

#[test]
fn signs_and_classes() {
    check_f32("copysign.f32 %d, %a, %b;", &[&[-1.0, 2.0, -2.0], &[1.0, -2.0, 2.0]]);
    let classes = |class: &str, of: &[(f32, u64)]| {
        let body = format!("testp.{class}.f32 %p, %a; selp.u32 %d, 1, 0, %p;");
        for &(x, holds) in of {
            check(&body, &[32, 32], &[&[x.to_bits() as u64, holds]]);
        }
    };
    classes("finite", &[(1.0, 1), (INF, 0), (NAN, 0)]);
    classes("notanumber", &[(1.0, 0), (NAN, 1)]);
    classes("subnormal", &[(SUBNORMAL, 1), (1.0, 0), (0.0, 0)]);
}

#[test]
fn doubles() {
    let bits = f64::to_bits;
    let third = 1.0f64 / 3.0;
    check("add.rn.f64 %d, %a, %b;", &[64; 3], &[&[bits(1.0), bits(1e-20), bits(1.0)]]);
    check("add.rp.f64 %d, %a, %b;", &[64; 3], &[&[bits(1.0), bits(1e-20), bits(1.0f64.next_up())]]);
    check("add.rz.f64 %d, %a, %b;", &[64; 3], &[&[bits(-1.0), bits(1e-20), bits((-1.0f64).next_up())]]);
    check("mul.rm.f64 %d, %a, %b;", &[64; 3], &[&[bits(third), bits(3.0), bits(1.0f64.next_down())]]);
    check("mul.rz.f64 %d, %a, %b;", &[64; 3], &[&[bits(f64::MAX), bits(2.0), bits(f64::MAX)]]);
    check(
        "fma.rn.f64 %d, %a, %b, %c;",
        &[64; 4],
        &[&[bits(third), bits(3.0), bits(-1.0), bits(-5.551115123125783e-17)]],
    );
    check("div.rn.f64 %d, %a, %b;", &[64; 3], &[&[bits(1.0), bits(3.0), bits(third)]]);
    check("div.rp.f64 %d, %a, %b;", &[64; 3], &[&[bits(1.0), bits(3.0), bits(third.next_up())]]);
    check("sqrt.rn.f64 %d, %a;", &[64; 2], &[&[bits(2.0), bits(2f64.sqrt())]]);
    check(
        "min.f64 %d, %a, %b;",
        &[64; 3],
        &[&[bits(0.0), bits(-0.0), bits(-0.0)], &[bits(f64::NAN), bits(1.0), bits(1.0)]],
    );
}
