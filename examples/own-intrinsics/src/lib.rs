//! Intrinsics that the kernel language does not have, written as inline PTX behind typed functions. Kernels call them
//! like the language's own; `tests/functions.rs` runs them on the emulator.

use bespoke_codegen::prelude::*;

/// Index of the highest bit that differs from the sign bit; all ones if there is none.
#[track_caller]
pub fn highest_significant_bit(x: Val<i32>) -> Val<u32> {
    inline_ptx("bfind.s32 {index}, {x};").input("x", x).pure().output("index")
}

/// |a − b| + c, wrapping.
#[track_caller]
pub fn absolute_difference(a: Val<u32>, b: Val<u32>, c: Val<u32>) -> Val<u32> {
    inline_ptx("sad.u32 {sum}, {a}, {b}, {c};").input("a", a).input("b", b).input("c", c).pure().output("sum")
}

/// Mask of the lanes with lower numbers than this lane.
#[track_caller]
pub fn lower_lanes() -> Val<u32> {
    inline_ptx("mov.u32 {mask}, %lanemask_lt;").pure().output("mask")
}

/// The 128-bit product of two 64-bit integers, low half first.
#[track_caller]
pub fn wide_product(a: Val<u64>, b: Val<u64>) -> (Val<u64>, Val<u64>) {
    // Two results of one instruction sequence: the carry flag must not leave it.
    inline_ptx(
        "{
            .reg .b32 a0, a1, b0, b1, r0, r1, r2, r3;
            mov.b64 {a0, a1}, {a};
            mov.b64 {b0, b1}, {b};
            mul.lo.u32 r0, a0, b0;
            mul.hi.u32 r1, a0, b0;
            mad.lo.cc.u32 r1, a0, b1, r1;
            madc.hi.u32 r2, a0, b1, 0;
            mad.lo.cc.u32 r1, a1, b0, r1;
            madc.hi.cc.u32 r2, a1, b0, r2;
            addc.u32 r3, 0, 0;
            mad.lo.cc.u32 r2, a1, b1, r2;
            madc.hi.u32 r3, a1, b1, r3;
            mov.b64 {low}, {r0, r1};
            mov.b64 {high}, {r2, r3};
        }",
    )
    .input("a", a)
    .input("b", b)
    .pure()
    .outputs::<(u64, u64), 2>(["low", "high"])
}

/// Adds to the shared word at `counter`, which wraps to 0 where it reaches `last`; returns the old value.
#[track_caller]
pub fn next_turn(counter: Ptr<Shared, u32>, last: Val<u32>) -> Val<u32> {
    inline_ptx("atom.shared.inc.u32 {old}, [{counter}], {last};")
        .input("counter", counter)
        .input("last", last)
        .output("old")
}

/// Moves the elements of a warp's 32 that are greater than `bound` to the front, in order, and counts them at index 32.
#[kernel(threads = 32)]
pub fn compact(x: Ptr<Global, i32>, bound: Val<i32>) {
    let value = x.at(lane()).load();
    let chosen = value > bound;
    let all = ballot(chosen);
    warp_barrier(ALL_LANES);
    if chosen {
        x.at((all & lower_lanes()).count_ones()).store(value);
    }
    x.at(32).store(all.count_ones().cast::<i32>());
}
