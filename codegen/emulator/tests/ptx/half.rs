//! 16-bit floating-point arithmetic.

use half::{bf16, f16};

use crate::harness::check;

fn h(x: f32) -> u64 {
    f16::from_f32(x).to_bits() as u64
}

fn b(x: f32) -> u64 {
    bf16::from_f32(x).to_bits() as u64
}

fn pair(low: u64, high: u64) -> u64 {
    low | high << 16
}

const NAN: u64 = 0x7fff;

#[test]
fn scalar() {
    check(
        "add.f16 %d, %a, %b;",
        &[16; 3],
        &[
            &[h(1.0), h(2.0), h(3.0)],
            &[h(2048.0), h(1.0), h(2048.0)],
            &[h(65504.0), h(32.0), 0x7c00],
            &[0x7e01, h(1.0), NAN],
        ],
    );
    check("sub.f16 %d, %a, %b;", &[16; 3], &[&[h(1.0), h(1.0), 0], &[1, 2, 0x8001]]);
    check("mul.f16 %d, %a, %b;", &[16; 3], &[&[h(3.0), h(5.0), h(15.0)], &[1, h(0.5), 0], &[3, h(0.5), 2]]);
    check(
        "mul.ftz.f16 %d, %a, %b;",
        &[16; 3],
        &[&[3, h(2.0), 0], &[0x8003, h(2.0), 0x8000], &[0x400, h(0.5), 0]],
    );
    // 2049 · 2049 needs 23 bits. Adding 2^-20 breaks a tie, which would be lost if the product were rounded first.
    check(
        "fma.rn.f16 %d, %a, %b, %c;",
        &[16; 4],
        &[&[h(2.0), h(3.0), h(4.0), h(10.0)], &[0x3c01, 0x3c01, 0xbc02, 0x0010]],
    );
    check(
        "fma.rn.relu.f16 %d, %a, %b, %c;",
        &[16; 4],
        &[&[h(2.0), h(-3.0), h(4.0), 0], &[h(2.0), h(3.0), h(4.0), h(10.0)]],
    );
    check(
        "fma.rn.sat.f16 %d, %a, %b, %c;",
        &[16; 4],
        &[&[h(2.0), h(3.0), h(4.0), h(1.0)], &[NAN, h(3.0), h(4.0), 0]],
    );
    check("neg.f16 %d, %a;", &[16; 2], &[&[h(1.0), h(-1.0)]]);
    check("abs.f16 %d, %a;", &[16; 2], &[&[h(-1.5), h(1.5)]]);
    check(
        "min.f16 %d, %a, %b;",
        &[16; 3],
        &[&[h(1.0), h(-2.0), h(-2.0)], &[0, 0x8000, 0x8000], &[0x7e00, h(1.0), h(1.0)]],
    );
    check("max.NaN.f16 %d, %a, %b;", &[16; 3], &[&[0x7e00, h(1.0), NAN], &[h(1.0), h(2.0), h(2.0)]]);
    check("ex2.approx.f16 %d, %a;", &[16; 2], &[&[h(3.0), h(8.0)]]);
    check("tanh.approx.f16 %d, %a;", &[16; 2], &[&[h(0.0), 0], &[h(10.0), h(1.0)]]);
}

#[test]
fn packed() {
    let (x, y) = (pair(h(1.0), h(2.0)), pair(h(10.0), h(20.0)));
    check("add.rn.f16x2 %d, %a, %b;", &[32; 3], &[&[x, y, pair(h(11.0), h(22.0))]]);
    check("mul.f16x2 %d, %a, %b;", &[32; 3], &[&[x, y, pair(h(10.0), h(40.0))]]);
    check("fma.rn.f16x2 %d, %a, %b, %c;", &[32; 4], &[&[x, y, x, pair(h(11.0), h(42.0))]]);
    check("neg.f16x2 %d, %a;", &[32; 2], &[&[x, pair(h(-1.0), h(-2.0))]]);
    check("max.f16x2 %d, %a, %b;", &[32; 3], &[&[x, y, y]]);
}

#[test]
fn brain_floats() {
    check(
        "fma.rn.bf16 %d, %a, %b, %c;",
        &[16; 4],
        &[&[b(2.0), b(3.0), b(4.0), b(10.0)], &[b(256.0), b(1.0), b(1.0), b(256.0)]],
    );
    check("add.bf16 %d, %a, %b;", &[16; 3], &[&[b(1.0), b(2.0), b(3.0)]]);
    let (x, y) = (pair(b(1.0), b(2.0)), pair(b(10.0), b(20.0)));
    check("fma.rn.bf16x2 %d, %a, %b, %c;", &[32; 4], &[&[x, y, x, pair(b(11.0), b(42.0))]]);
    check("mul.bf16x2 %d, %a, %b;", &[32; 3], &[&[x, y, pair(b(10.0), b(40.0))]]);
    check("min.bf16x2 %d, %a, %b;", &[32; 3], &[&[x, y, x]]);
    check("ex2.approx.ftz.bf16 %d, %a;", &[16; 2], &[&[b(3.0), b(8.0)]]);
}
