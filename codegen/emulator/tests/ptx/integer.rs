//! Integer arithmetic at the limits of its types.

use crate::harness::check;

const MAX: u64 = 0x7fff_ffff;
const MIN: u64 = 0x8000_0000;
const ONES: u64 = 0xffff_ffff;

#[test]
fn sums_wrap() {
    check("add.s32 %d, %a, %b;", &[32; 3], &[&[1, 2, 3], &[MAX, 1, MIN], &[ONES, ONES, 0xffff_fffe]]);
    check("add.sat.s32 %d, %a, %b;", &[32; 3], &[&[MAX, 1, MAX], &[MIN, ONES, MIN], &[5, ONES, 4]]);
    check("sub.sat.s32 %d, %a, %b;", &[32; 3], &[&[MIN, 1, MIN], &[MAX, ONES, MAX], &[5, 6, ONES]]);
    check("sub.u16 %d, %a, %b;", &[16; 3], &[&[0, 1, 0xffff], &[7, 3, 4]]);
    check("add.u64 %d, %a, %b;", &[64; 3], &[&[u64::MAX, 2, 1], &[1 << 32, 1 << 32, 1 << 33]]);
}

#[test]
fn products_in_all_widths() {
    check("mul.lo.s32 %d, %a, %b;", &[32; 3], &[&[0x10001, 0x10001, 0x20001], &[ONES, 3, 0xffff_fffd]]);
    check("mul.hi.s32 %d, %a, %b;", &[32; 3], &[&[MIN, MIN, 0x4000_0000], &[ONES, 3, ONES], &[MAX, 4, 1]]);
    check("mul.hi.u32 %d, %a, %b;", &[32; 3], &[&[ONES, ONES, 0xffff_fffe], &[ONES, 3, 2]]);
    check("mul.hi.u64 %d, %a, %b;", &[64; 3], &[&[u64::MAX, u64::MAX, u64::MAX - 1], &[1 << 63, 6, 3]]);
    check("mul.hi.s64 %d, %a, %b;", &[64; 3], &[&[u64::MAX, 5, u64::MAX], &[1 << 62, 8, 2]]);
    check("mul.wide.s32 %d, %a, %b;", &[32, 32, 64], &[&[ONES, 2, -2i64 as u64], &[MIN, MIN, 1 << 62]]);
    check("mul.wide.u32 %d, %a, %b;", &[32, 32, 64], &[&[ONES, 2, 0x1_ffff_fffe], &[MIN, 2, 1 << 32]]);
    check(
        "mul.wide.s16 %d, %a, %b;",
        &[16, 16, 32],
        &[&[0xffff, 3, 0xffff_fffd], &[0x8000, 0x8000, 0x4000_0000]],
    );
    check("mad.lo.u32 %d, %a, %b, %c;", &[32; 4], &[&[3, 4, 5, 17], &[ONES, ONES, 1, 2]]);
    check("mad.hi.u32 %d, %a, %b, %c;", &[32; 4], &[&[ONES, ONES, 3, 1], &[1 << 31, 2, 7, 8]]);
    check("mad.wide.u32 %d, %a, %b, %c;", &[32, 32, 64, 64], &[&[ONES, 4, 1, 0x3_ffff_fffd]]);
    check("mad.wide.s32 %d, %a, %b, %c;", &[32, 32, 64, 64], &[&[ONES, 4, 1, -3i64 as u64]]);
    check("mad.hi.sat.s32 %d, %a, %b, %c;", &[32; 4], &[&[MAX, MAX, MAX, MAX], &[MIN, 2, 5, 4]]);
    check(
        "mul24.lo.u32 %d, %a, %b;",
        &[32; 3],
        &[&[0xff00_0003, 5, 15], &[0xff_ffff, 0xff_ffff, 0xfe00_0001]],
    );
    check(
        "mul24.hi.s32 %d, %a, %b;",
        &[32; 3],
        &[&[0xff_ffff, 1, ONES], &[0x80_0000, 0x80_0000, 0x4000_0000]],
    );
    check("mad24.lo.s32 %d, %a, %b, %c;", &[32; 4], &[&[0xff_ffff, 7, 10, 3]]);
}

#[test]
fn division_truncates_and_never_faults() {
    check(
        "div.s32 %d, %a, %b;",
        &[32; 3],
        &[&[-7i32 as u32 as u64, 2, -3i32 as u32 as u64], &[MIN, ONES, MIN], &[9, 0, ONES]],
    );
    check(
        "rem.s32 %d, %a, %b;",
        &[32; 3],
        &[&[-7i32 as u32 as u64, 2, ONES], &[MIN, ONES, 0], &[7, -2i32 as u32 as u64, 1]],
    );
    check("div.u32 %d, %a, %b;", &[32; 3], &[&[ONES, 2, MAX], &[7, 9, 0]]);
    check("rem.u64 %d, %a, %b;", &[64; 3], &[&[u64::MAX, 10, 5], &[7, 9, 7]]);
    check("div.u16 %d, %a, %b;", &[16; 3], &[&[0xffff, 16, 0xfff]]);
}

#[test]
fn signs_and_extrema() {
    check("neg.s32 %d, %a;", &[32; 2], &[&[1, ONES], &[MIN, MIN]]);
    check("abs.s32 %d, %a;", &[32; 2], &[&[ONES, 1], &[MIN, MIN], &[5, 5]]);
    check("abs.s64 %d, %a;", &[64; 2], &[&[u64::MAX, 1], &[1 << 63, 1 << 63]]);
    check("neg.s16 %d, %a;", &[16; 2], &[&[3, 0xfffd], &[0x8000, 0x8000]]);
    check("min.s32 %d, %a, %b;", &[32; 3], &[&[ONES, 1, ONES], &[MIN, MAX, MIN]]);
    check("min.u32 %d, %a, %b;", &[32; 3], &[&[ONES, 1, 1], &[MIN, MAX, MAX]]);
    check("max.s16 %d, %a, %b;", &[16; 3], &[&[0xffff, 1, 1], &[0x8000, 0xffff, 0xffff]]);
    check("max.u64 %d, %a, %b;", &[64; 3], &[&[u64::MAX, 1, u64::MAX]]);
    check("max.s64 %d, %a, %b;", &[64; 3], &[&[u64::MAX, 1, 1]]);
    check("sad.s32 %d, %a, %b, %c;", &[32; 4], &[&[ONES, 1, 10, 12], &[MAX, MIN, 0, ONES]]);
    check("sad.u32 %d, %a, %b, %c;", &[32; 4], &[&[ONES, 1, 10, 8], &[1, 3, 0, 2]]);
}

#[test]
fn dot_products() {
    let a = 0x80_7f_ff_01; // -128, 127, -1, 1 from the top
    check("dp4a.s32.s32 %d, %a, %b, %c;", &[32; 4], &[&[a, 0x01_01_01_01, 10, 9], &[a, a, 0, 32515]]);
    check(
        "dp4a.u32.u32 %d, %a, %b, %c;",
        &[32; 4],
        &[&[a, 0x01_01_01_01, 10, 521], &[ONES, ONES, 0, 260100]],
    );
    check("dp4a.u32.s32 %d, %a, %b, %c;", &[32; 4], &[&[ONES, ONES, 0, -1020i32 as u32 as u64]]);
    check("dp4a.s32.u32 %d, %a, %b, %c;", &[32; 4], &[&[ONES, ONES, 5, -1015i32 as u32 as u64]]);
    check("dp2a.lo.s32.s32 %d, %a, %b, %c;", &[32; 4], &[&[0xffff_0002, 0x0909_0305, 1, 8]]);
    check(
        "dp2a.hi.s32.u32 %d, %a, %b, %c;",
        &[32; 4],
        &[&[0xffff_0002, 0xff03_0305, 1, -248i32 as u32 as u64]],
    );
    check(
        "dp2a.lo.u32.s32 %d, %a, %b, %c;",
        &[32; 4],
        &[&[0xffff_0001, 0x0000_ff02, 0, -65533i32 as u32 as u64]],
    );
}

#[test]
fn extended_precision_carries() {
    // A 64-bit sum, difference and product, computed from 32-bit halves.
    let add = "mov.b64 {%t0, %t1}, %a; mov.b64 {%t2, %t3}, %b;
        add.cc.u32 %t4, %t0, %t2; addc.u32 %t5, %t1, %t3; mov.b64 %d, {%t4, %t5};";
    check(add, &[64; 3], &[&[0xffff_ffff, 1, 1 << 32], &[u64::MAX, u64::MAX, u64::MAX - 1]]);
    let sub = "mov.b64 {%t0, %t1}, %a; mov.b64 {%t2, %t3}, %b;
        sub.cc.u32 %t4, %t0, %t2; subc.u32 %t5, %t1, %t3; mov.b64 %d, {%t4, %t5};";
    check(sub, &[64; 3], &[&[1 << 32, 1, 0xffff_ffff], &[0, 1, u64::MAX]]);
    let mad = "mov.b64 {%t0, %t1}, %c; mad.lo.cc.u32 %t2, %a, %b, %t0; madc.hi.u32 %t3, %a, %b, %t1;
        mov.b64 %d, {%t2, %t3};";
    check(mad, &[32, 32, 64, 64], &[&[ONES, ONES, ONES, 0xffff_ffff_0000_0000], &[3, 5, 7, 22]]);
    // The flag that `addc` reads after a subtraction is clear after a borrow, and `subc` subtracts 1 if `add.cc` has no carry.
    let borrow = "mov.u32 %t0, 0; sub.cc.u32 %t1, %a, %b; addc.u32 %d, %t0, %t0;";
    check(borrow, &[32; 3], &[&[5, 3, 1], &[3, 3, 1], &[3, 5, 0]]);
    let carry = "mov.u32 %t0, 0; add.cc.u32 %t1, %a, %b; subc.u32 %d, %t0, %t0;";
    check(carry, &[32; 3], &[&[u32::MAX as u64, 1, 0], &[3, 5, u32::MAX as u64]]);
    let chain = "mov.u32 %t0, 0; add.cc.u32 %t1, %a, %b; addc.cc.u32 %t2, %t0, -1; addc.u32 %d, %t0, %t0;";
    check(chain, &[32; 3], &[&[ONES, 1, 1], &[1, 1, 0]]);
}
