//! Conversions: `cvt`.

use crate::harness::{check, check_f32};

fn f(x: f32) -> u64 {
    x.to_bits() as u64
}

const ONES: u64 = 0xffff_ffff;

#[test]
fn between_integers() {
    check("cvt.u32.u16 %d, %a;", &[16, 32], &[&[0xffff, 0xffff]]);
    check("cvt.s32.s16 %d, %a;", &[16, 32], &[&[0xffff, ONES], &[0x7fff, 0x7fff]]);
    check("cvt.s32.s8 %d, %a;", &[32, 32], &[&[0x180, 0xffff_ff80], &[0x17f, 0x7f]]);
    check("cvt.u32.u8 %d, %a;", &[32, 32], &[&[0x1ff, 0xff]]);
    check("cvt.s64.s32 %d, %a;", &[32, 64], &[&[ONES, u64::MAX]]);
    check("cvt.u64.u32 %d, %a;", &[32, 64], &[&[ONES, ONES]]);
    check("cvt.u32.u64 %d, %a;", &[64, 32], &[&[0x1_2345_6789, 0x2345_6789]]);
    check("cvt.u16.u32 %d, %a;", &[32, 16], &[&[0x12345, 0x2345]]);
    check("cvt.s16.s8 %d, %a;", &[16, 16], &[&[0xff, 0xffff]]);
    check("cvt.s8.s32 %d, %a;", &[32, 32], &[&[0x80, 0xffff_ff80], &[0x17f, 0x7f]]);
    check("cvt.u8.s32 %d, %a;", &[32, 32], &[&[ONES, 0xff]]);
    check(
        "cvt.sat.s8.s32 %d, %a;",
        &[32, 32],
        &[&[200, 127], &[-200i32 as u32 as u64, 0xffff_ff80], &[5, 5]],
    );
    check("cvt.sat.u8.s32 %d, %a;", &[32, 32], &[&[200, 200], &[300, 255], &[ONES, 0]]);
    check("cvt.sat.u32.s64 %d, %a;", &[64, 32], &[&[1 << 40, ONES], &[u64::MAX, 0]]);
}

#[test]
fn conversion_of_floats_to_integers_clamps() {
    let nan = f(f32::NAN);
    check(
        "cvt.rni.s32.f32 %d, %a;",
        &[32, 32],
        &[
            &[f(2.5), 2],
            &[f(3.5), 4],
            &[f(-2.5), -2i32 as u32 as u64],
            &[f(1e20), 0x7fff_ffff],
            &[f(-1e20), 0x8000_0000],
            &[nan, 0],
        ],
    );
    check(
        "cvt.rzi.s32.f32 %d, %a;",
        &[32, 32],
        &[&[f(-2.9), -2i32 as u32 as u64], &[f(2.9), 2], &[f(f32::INFINITY), 0x7fff_ffff]],
    );
    check("cvt.rmi.s32.f32 %d, %a;", &[32, 32], &[&[f(-2.1), -3i32 as u32 as u64], &[f(2.9), 2]]);
    check("cvt.rpi.s32.f32 %d, %a;", &[32, 32], &[&[f(-2.9), -2i32 as u32 as u64], &[f(2.1), 3]]);
    check(
        "cvt.rzi.u32.f32 %d, %a;",
        &[32, 32],
        &[&[f(-1.0), 0], &[f(5e9), ONES], &[f(3e9), 3_000_000_000], &[nan, 0]],
    );
    check(
        "cvt.rni.s8.f32 %d, %a;",
        &[32, 32],
        &[&[f(300.0), 127], &[f(-300.0), 0xffff_ff80], &[f(-1.5), -2i32 as u32 as u64]],
    );
    check(
        "cvt.rzi.s64.f32 %d, %a;",
        &[32, 64],
        &[&[f(1e30), i64::MAX as u64], &[f(-3.7), -3i64 as u64], &[nan, 1 << 63]],
    );
    check(
        "cvt.rzi.u64.f64 %d, %a;",
        &[64, 64],
        &[&[1e30f64.to_bits(), u64::MAX], &[f64::NAN.to_bits(), 1 << 63]],
    );
    check("cvt.rni.s16.f16 %d, %a;", &[16, 16], &[&[0x4100, 2], &[0x4300, 4], &[0xfbff, 0x8000]]);
}

#[test]
fn conversion_of_integers_to_floats_rounds() {
    check(
        "cvt.rn.f32.s32 %d, %a;",
        &[32, 32],
        &[&[-5i32 as u32 as u64, f(-5.0)], &[16777217, f(16777216.0)], &[16777219, f(16777220.0)]],
    );
    check("cvt.rz.f32.u32 %d, %a;", &[32, 32], &[&[ONES, f(4294967040.0)]]);
    check("cvt.rn.f32.u32 %d, %a;", &[32, 32], &[&[ONES, f(4294967296.0)]]);
    check("cvt.rp.f32.s32 %d, %a;", &[32, 32], &[&[16777217, f(16777218.0)]]);
    check("cvt.rm.f32.s32 %d, %a;", &[32, 32], &[&[16777219, f(16777218.0)]]);
    // Rounding to double precision before the conversion would drop the bit that breaks the tie.
    check(
        "cvt.rn.f32.u64 %d, %a;",
        &[64, 32],
        &[
            &[(1 << 60) + (1 << 36) + 1, f(2f32.powi(60).next_up())],
            &[(1 << 60) + (1 << 36), f(2f32.powi(60))],
        ],
    );
    check("cvt.rn.f16.s32 %d, %a;", &[32, 16], &[&[2049, 0x6800], &[100000, 0x7c00]]);
    check("cvt.rn.f64.s32 %d, %a;", &[32, 64], &[&[-7i32 as u32 as u64, (-7.0f64).to_bits()]]);
    check("cvt.rn.f32.s8 %d, %a;", &[32, 32], &[&[0x180, f(-128.0)]]);
    check("cvt.rn.f32.u8 %d, %a;", &[16, 32], &[&[0x1ff, f(255.0)]]);
}

#[test]
fn between_floats() {
    check(
        "cvt.f32.f16 %d, %a;",
        &[16, 32],
        &[&[0x3c00, f(1.0)], &[1, f(2f32.powi(-24))], &[0xfc00, f(f32::NEG_INFINITY)], &[0x7bff, f(65504.0)]],
    );
    check(
        "cvt.rn.f16.f32 %d, %a;",
        &[32, 16],
        &[
            &[f(1.0), 0x3c00],
            &[f(65520.0), 0x7c00],
            &[f(1e-8), 0],
            &[f(f32::NAN), 0x7fff],
            &[f(2f32.powi(-25)), 0],
            &[f(2f32.powi(-25) * 1.5), 1],
        ],
    );
    check(
        "cvt.rz.f16.f32 %d, %a;",
        &[32, 16],
        &[&[f(65535.0), 0x7bff], &[f(1.0009), 0x3c00], &[f(-1.0009), 0xbc00], &[f(1e30), 0x7bff]],
    );
    check("cvt.rn.relu.f16.f32 %d, %a;", &[32, 16], &[&[f(-1.0), 0], &[f(1.0), 0x3c00]]);
    check("cvt.bf16.f16 %d, %a;", &[16, 16], &[&[0x3c00, 0x3f80], &[0x3c06, 0x3f81], &[0x3c04, 0x3f80]]);
    check("cvt.f16.bf16 %d, %a;", &[16, 16], &[&[0x3f80, 0x3c00], &[0x7f00, 0x7c00]]);
    check(
        "cvt.rn.bf16.f32 %d, %a;",
        &[32, 16],
        &[&[f(1.0), 0x3f80], &[0x3f80_8000, 0x3f80], &[0x3f81_8000, 0x3f82], &[f(f32::NAN), 0x7fff]],
    );
    check("cvt.f32.bf16 %d, %a;", &[16, 32], &[&[0x3f80, f(1.0)]]);
    check("cvt.rn.f16x2.f32 %d, %a, %b;", &[32; 3], &[&[f(1.0), f(2.0), 0x3c00_4000]]);
    check("cvt.rz.f16x2.f32 %d, %a, %b;", &[32; 3], &[&[f(1.0009), f(65535.0), 0x3c00_7bff]]);
    check("cvt.rn.bf16x2.f32 %d, %a, %b;", &[32; 3], &[&[f(1.0), f(2.0), 0x3f80_4000]]);
    check("cvt.rn.relu.f16x2.f32 %d, %a, %b;", &[32; 3], &[&[f(-1.0), f(2.0), 0x4000]]);
    check("cvt.rn.f32.f64 %d, %a;", &[64, 32], &[&[0.1f64.to_bits(), f(0.1)]]);
    check("cvt.rp.f32.f64 %d, %a;", &[64, 32], &[&[1e-60f64.to_bits(), 1]]);
    check("cvt.f64.f32 %d, %a;", &[32, 64], &[&[f(0.1), (0.1f32 as f64).to_bits()]]);
    check(
        "cvt.rna.tf32.f32 %d, %a;",
        &[32, 32],
        &[&[f(1.0), f(1.0)], &[0x3f80_1000, 0x3f80_2000], &[0x3f80_0fff, 0x3f80_0000]],
    );
    check_f32("cvt.rni.f32.f32 %d, %a;", &[&[2.5, 2.0], &[-0.3, -0.0], &[1e20, 1e20]]);
    check_f32("cvt.rmi.ftz.f32.f32 %d, %a;", &[&[2.5, 2.0], &[-2.5, -3.0]]);
    check_f32("cvt.sat.f32.f32 %d, %a;", &[&[2.5, 1.0], &[-2.5, 0.0], &[f32::NAN, 0.0]]);
    check_f32("cvt.ftz.f32.f32 %d, %a;", &[&[f32::from_bits(5), 0.0]]);
}
