//! Logic, shifts, byte permutation and bit fields.

use crate::harness::check;

const ONES: u64 = 0xffff_ffff;

#[test]
fn logic() {
    check("and.b32 %d, %a, %b;", &[32; 3], &[&[0b1100, 0b1010, 0b1000]]);
    check("or.b16 %d, %a, %b;", &[16; 3], &[&[0b1100, 0b1010, 0b1110]]);
    check("xor.b64 %d, %a, %b;", &[64; 3], &[&[u64::MAX, 1, u64::MAX - 1]]);
    check("not.b32 %d, %a;", &[32; 2], &[&[0, ONES], &[0xf0f0_f0f0, 0x0f0f_0f0f]]);
    check("cnot.b32 %d, %a;", &[32; 2], &[&[0, 1], &[7, 0]]);
    let majority = "lop3.b32 %d, %a, %b, %c, 0xE8;";
    check(majority, &[32; 4], &[&[0b1111_0000, 0b1100_1100, 0b1010_1010, 0b1110_1000]]);
    check(
        "lop3.b32 %d, %a, %b, %c, 0x96;",
        &[32; 4],
        &[&[0b1111_0000, 0b1100_1100, 0b1010_1010, 0b1001_0110]],
    );
    let predicates = "setp.gt.u32 %p, %a, 1; setp.gt.u32 %q, %b, 1; xor.pred %p, %p, %q; not.pred %p, %p;
        selp.u32 %d, 1, 0, %p;";
    check(predicates, &[32; 3], &[&[0, 0, 1], &[2, 0, 0], &[0, 2, 0], &[2, 2, 1]]);
}

#[test]
fn shift_amounts_are_clamped() {
    check("shl.b32 %d, %a, %b;", &[32; 3], &[&[1, 31, 1 << 31], &[1, 32, 0], &[1, 0x100, 0]]);
    check("shr.u32 %d, %a, %b;", &[32; 3], &[&[1 << 31, 31, 1], &[ONES, 32, 0], &[ONES, ONES, 0]]);
    check("shr.s32 %d, %a, %b;", &[32; 3], &[&[1 << 31, 31, ONES], &[1 << 31, 99, ONES], &[1, 99, 0]]);
    check("shl.b16 %d, %a, %b;", &[16, 32, 16], &[&[1, 15, 1 << 15], &[1, 16, 0]]);
    check("shr.s16 %d, %a, %b;", &[16, 32, 16], &[&[0x8000, 4, 0xf800], &[0x8000, 77, 0xffff]]);
    check("shr.b64 %d, %a, %b;", &[64, 32, 64], &[&[1 << 63, 63, 1], &[1 << 63, 64, 0]]);
    check("shr.s64 %d, %a, %b;", &[64, 32, 64], &[&[1 << 63, 64, u64::MAX]]);
    check("shf.l.wrap.b32 %d, %a, %b, %c;", &[32; 4], &[&[0x8000_0000, 1, 1, 3], &[7, 9, 32, 9]]);
    check("shf.l.clamp.b32 %d, %a, %b, %c;", &[32; 4], &[&[7, 9, 32, 7], &[7, 9, 99, 7], &[0, 1, 4, 16]]);
    check("shf.r.wrap.b32 %d, %a, %b, %c;", &[32; 4], &[&[16, 1, 4, 0x1000_0001], &[7, 9, 32, 7]]);
    check("shf.r.clamp.b32 %d, %a, %b, %c;", &[32; 4], &[&[7, 9, 32, 9], &[7, 9, 45, 9]]);
}

#[test]
fn permutes() {
    let (a, b) = (0x3322_1100, 0x77f6_5544);
    check(
        "prmt.b32 %d, %a, %b, %c;",
        &[32; 4],
        &[&[a, b, 0x3210, a], &[a, b, 0x7654, b], &[a, b, 0x0246, 0x0022_44f6]],
    );
    check(
        "prmt.b32 %d, %a, %b, %c;",
        &[32; 4],
        &[&[a, b, 0xe8fa, 0xff00_0000], &[a, b, 0x000e, 0x0000_00ff]],
    );
    check("prmt.b32.f4e %d, %a, %b, %c;", &[32; 4], &[&[a, b, 1, 0x4433_2211], &[a, b, 3, 0xf655_4433]]);
    check("prmt.b32.b4e %d, %a, %b, %c;", &[32; 4], &[&[a, b, 1, 0xf677_0011], &[a, b, 3, 0x0011_2233]]);
    check("prmt.b32.rc8 %d, %a, %b, %c;", &[32; 4], &[&[a, b, 2, 0x2222_2222]]);
    check("prmt.b32.ecl %d, %a, %b, %c;", &[32; 4], &[&[a, b, 2, 0x3322_2222]]);
    check("prmt.b32.ecr %d, %a, %b, %c;", &[32; 4], &[&[a, b, 2, 0x2222_1100]]);
    check("prmt.b32.rc16 %d, %a, %b, %c;", &[32; 4], &[&[a, b, 1, 0x3322_3322]]);
}

#[test]
fn fields() {
    check(
        "bfe.u32 %d, %a, %b, %c;",
        &[32; 4],
        &[&[0xabcd_1234, 4, 8, 0x23], &[ONES, 28, 8, 0xf], &[ONES, 40, 8, 0], &[ONES, 0, 0, 0]],
    );
    check(
        "bfe.s32 %d, %a, %b, %c;",
        &[32; 4],
        &[
            &[0xf0, 4, 4, ONES],
            &[0x70, 4, 4, 7],
            &[1 << 31, 28, 8, 0xffff_fff8],
            &[1 << 31, 40, 8, ONES],
            &[ONES, 4, 0, 0],
        ],
    );
    check("bfe.s64 %d, %a, %b, %c;", &[64, 32, 32, 64], &[&[0x80 << 40, 40, 8, -128i64 as u64]]);
    check(
        "bfe.u64 %d, %a, %b, %c;",
        &[64, 32, 32, 64],
        &[&[u64::MAX, 60, 8, 15], &[u64::MAX, 0, 64, u64::MAX]],
    );
    check("bfi.b32 %d, %a, %b, 8, 4;", &[32; 3], &[&[0xff, 0, 0xf00], &[0, ONES, 0xffff_f0ff]]);
    check(
        "bfi.b32 %d, %a, %b, %c, %e;",
        &[32; 5],
        &[&[ONES, 0, 28, 8, 0xf000_0000], &[ONES, 5, 40, 8, 5], &[ONES, 5, 0, 0, 5]],
    );
    check("bfi.b64 %d, %a, %b, 40, 8;", &[64; 3], &[&[0x1ab, 0, 0xab << 40]]);
    check("bfind.u32 %d, %a;", &[32; 2], &[&[0, ONES], &[1, 0], &[1 << 31, 31]]);
    check("bfind.s32 %d, %a;", &[32; 2], &[&[ONES, ONES], &[0xffff_fff0, 3], &[8, 3]]);
    check("bfind.shiftamt.u32 %d, %a;", &[32; 2], &[&[1, 31], &[1 << 30, 1], &[0, ONES]]);
    check("bfind.u64 %d, %a;", &[64, 32], &[&[1 << 40, 40]]);
    check("brev.b32 %d, %a;", &[32; 2], &[&[1, 1 << 31], &[0x0000_00ff, 0xff00_0000]]);
    check("brev.b64 %d, %a;", &[64; 2], &[&[1, 1 << 63]]);
    check("popc.b32 %d, %a;", &[32; 2], &[&[ONES, 32], &[0x10101, 3]]);
    check("popc.b64 %d, %a;", &[64, 32], &[&[u64::MAX, 64]]);
    check("clz.b32 %d, %a;", &[32; 2], &[&[0, 32], &[1, 31], &[ONES, 0]]);
    check("clz.b64 %d, %a;", &[64, 32], &[&[0, 64], &[1, 63]]);
}
