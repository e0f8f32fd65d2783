//! Comparisons and selections.

use crate::harness::check;

const NAN: u64 = 0x7fc0_0000;
const ONE: u64 = 0x3f80_0000;
const TWO: u64 = 0x4000_0000;
const ONES: u64 = 0xffff_ffff;

/// Checks for which rows of operands a `setp` is true.
#[track_caller]
fn holds(relation: &str, bits: u32, rows: &[&[u64]]) {
    let body = format!("setp.{relation} %p, %a, %b; selp.u32 %d, 1, 0, %p;");
    check(&body, &[bits, bits, 32], rows);
}

#[test]
fn integers() {
    holds("eq.s32", 32, &[&[1, 1, 1], &[1, 2, 0]]);
    holds("ne.b32", 32, &[&[1, 1, 0], &[1, 2, 1]]);
    holds("lt.s32", 32, &[&[ONES, 0, 1], &[0, ONES, 0]]);
    holds("lt.u32", 32, &[&[ONES, 0, 0], &[0, ONES, 1]]);
    holds("hi.u32", 32, &[&[ONES, 0, 1]]);
    holds("ls.u64", 64, &[&[5, 5, 1], &[u64::MAX, 5, 0]]);
    holds("ge.s16", 16, &[&[0xffff, 0, 0], &[0, 0, 1]]);
    holds("le.s64", 64, &[&[u64::MAX, 5, 1]]);
}

#[test]
fn ordered_and_unordered_comparisons_of_floats() {
    holds("eq.f32", 32, &[&[0, 1 << 31, 1], &[NAN, NAN, 0]]);
    holds("ne.f32", 32, &[&[ONE, TWO, 1], &[NAN, ONE, 0]]);
    holds("neu.f32", 32, &[&[ONE, TWO, 1], &[NAN, ONE, 1], &[ONE, ONE, 0]]);
    holds("equ.f32", 32, &[&[ONE, TWO, 0], &[NAN, ONE, 1], &[ONE, ONE, 1]]);
    holds("lt.f32", 32, &[&[ONE, TWO, 1], &[NAN, ONE, 0]]);
    holds("ltu.f32", 32, &[&[TWO, ONE, 0], &[NAN, ONE, 1]]);
    holds("geu.f32", 32, &[&[TWO, ONE, 1], &[ONE, TWO, 0], &[ONE, NAN, 1]]);
    holds("num.f32", 32, &[&[ONE, TWO, 1], &[NAN, ONE, 0]]);
    holds("nan.f32", 32, &[&[ONE, TWO, 0], &[NAN, ONE, 1]]);
    holds("gt.ftz.f32", 32, &[&[1, 0, 0], &[ONE, 1, 1]]);
    holds("gt.f64", 64, &[&[2f64.to_bits(), 1f64.to_bits(), 1]]);
    holds("lt.f16", 16, &[&[0x3c00, 0x4000, 1], &[0x8000, 0, 0]]);
    holds("gt.bf16", 16, &[&[0x4000, 0x3f80, 1]]);
}

#[test]
fn combinations_with_a_predicate() {
    let both = |how: &str| {
        format!(
            "setp.gt.u32 %q, %c, 0; setp.lt.{how}.u32 %p|%q, %a, %b, %q; selp.u32 %t0, 1, 0, %p; \
            selp.u32 %t1, 2, 0, %q; add.u32 %d, %t0, %t1;"
        )
    };
    check(&both("and"), &[32; 4], &[&[1, 2, 1, 1], &[2, 1, 1, 2], &[1, 2, 0, 0]]);
    check(&both("or"), &[32; 4], &[&[1, 2, 0, 1], &[2, 1, 1, 3], &[2, 1, 0, 2]]);
    check(&both("xor"), &[32; 4], &[&[1, 2, 1, 2], &[1, 2, 0, 1]]);
    let negated = "setp.gt.u32 %q, %c, 0; setp.lt.and.u32 %p, %a, %b, !%q; selp.u32 %d, 1, 0, %p;";
    check(negated, &[32; 4], &[&[1, 2, 1, 0], &[1, 2, 0, 1]]);
    let halves =
        "setp.lt.f16x2 %p|%q, %a, %b; selp.u32 %t0, 1, 0, %p; selp.u32 %t1, 2, 0, %q; add.u32 %d, %t0, %t1;";
    check(halves, &[32; 3], &[&[0x3c00_4000, 0x4000_3c00, 2], &[0x4000_3c00, 0x3c00_4000, 1]]);
}

#[test]
fn set_and_select() {
    check("set.lt.u32.s32 %d, %a, %b;", &[32; 3], &[&[ONES, 0, ONES], &[0, ONES, 0]]);
    check("set.gt.f32.f32 %d, %a, %b;", &[32; 3], &[&[TWO, ONE, ONE], &[ONE, TWO, 0]]);
    check("slct.b32.s32 %d, %a, %b, %c;", &[32; 4], &[&[1, 2, 0, 1], &[1, 2, ONES, 2]]);
    check(
        "slct.b64.f32 %d, %a, %b, %c;",
        &[64, 64, 32, 64],
        &[&[1, 2, ONE, 1], &[1, 2, NAN, 2], &[1, 2, 1 << 31, 1]],
    );
    check("setp.eq.u32 %p, %a, 0; selp.b64 %d, %b, 7, !%p;", &[32, 64, 64], &[&[0, 5, 7], &[1, 5, 5]]);
    check("setp.eq.u32 %p, %a, 0; selp.b16 %d, %b, 7, %p;", &[32, 16, 16], &[&[0, 5, 5], &[1, 5, 7]]);
}
