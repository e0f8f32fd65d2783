//! Shuffles, votes, matches and reductions over a warp.

use bespoke_emulator::LaunchConfig;

use crate::harness::{kernel, launch, words};

/// Runs `body` in 32 lanes with the lane number in `%r0`, and returns `%r1` of each lane.
#[track_caller]
fn lanes(body: &str) -> Vec<u32> {
    let text = kernel(
        "",
        &format!(
            "mov.u32 %r0, %laneid;\n{body}\nmad.wide.u32 %x0, %r0, 4, %data;\nst.global.u32 [%x0], %r1;"
        ),
    );
    let mut out = words(32, 0);
    launch(&text, LaunchConfig::linear(1, 32), &mut out).unwrap_or_else(|finding| panic!("{finding}"));
    out
}

#[track_caller]
fn check(body: &str, f: impl Fn(u32) -> u32) {
    assert_eq!(lanes(body), (0..32).map(f).collect::<Vec<_>>(), "{body}");
}

#[test]
fn shuffles() {
    check("shfl.sync.bfly.b32 %r1, %r0, 5, 31, -1;", |lane| lane ^ 5);
    check("shfl.sync.idx.b32 %r1, %r0, 7, 31, -1;", |_| 7);
    check("add.u32 %r2, %r0, 3; shfl.sync.idx.b32 %r1, %r0, %r2, 31, -1;", |lane| (lane + 3) % 32);
    check("shfl.sync.up.b32 %r1, %r0, 4, 0, -1;", |lane| if lane < 4 { lane } else { lane - 4 });
    check("shfl.sync.down.b32 %r1, %r0, 4, 31, -1;", |lane| if lane > 27 { lane } else { lane + 4 });
}

#[test]
fn shuffles_within_segments() {
    // Segments of eight lanes: segment mask 0x18 in bits 8 to 12 of the third operand.
    check("shfl.sync.bfly.b32 %r1, %r0, 1, 0x181f, -1;", |lane| lane ^ 1);
    check("shfl.sync.idx.b32 %r1, %r0, 3, 0x181f, -1;", |lane| lane / 8 * 8 + 3);
    check("shfl.sync.up.b32 %r1, %r0, 2, 0x1800, -1;", |lane| if lane % 8 < 2 { lane } else { lane - 2 });
    check("shfl.sync.down.b32 %r1, %r0, 2, 0x1807, -1;", |lane| if lane % 8 > 5 { lane } else { lane + 2 });
    // If the source lane of `bfly` is outside the segment, the lane gets its own value.
    check(
        "shfl.sync.bfly.b32 %r1, %r0, 8, 0x1807, -1;",
        |lane| if lane ^ 8 > lane { lane } else { lane - 8 },
    );
    let valid = "shfl.sync.up.b32 %r2|%p, %r0, 4, 0, -1; selp.u32 %r1, 1, 0, %p;";
    check(valid, |lane| (lane >= 4) as u32);
    let clamped = "shfl.sync.down.b32 %r2|%p, %r0, 4, 15, -1; selp.u32 %r1, %r2, 99, %p;";
    check(clamped, |lane| if lane + 4 <= 15 { lane + 4 } else { 99 });
}

#[test]
fn votes() {
    let vote = |mode: &str, test: &str| {
        format!("setp.{test} %p, %r0, 5; vote.sync.{mode}.pred %q, %p, -1; selp.u32 %r1, 1, 0, %q;")
    };
    check(&vote("any", "eq.u32"), |_| 1);
    check(&vote("all", "eq.u32"), |_| 0);
    check(&vote("all", "ge.s32").replace("5;", "-1;"), |_| 1);
    check(&vote("uni", "eq.u32"), |_| 0);
    check(&vote("uni", "gt.u32").replace("5;", "99;"), |_| 1);
    check("setp.lt.u32 %p, %r0, 5; vote.sync.ballot.b32 %r1, %p, -1;", |_| 0b11111);
    check("setp.lt.u32 %p, %r0, 5; vote.sync.ballot.b32 %r1, !%p, -1;", |_| !0b11111);
}

#[test]
fn matches() {
    check("and.b32 %r2, %r0, 3; match.any.sync.b32 %r1, %r2, -1;", |lane| 0x1111_1111 << (lane % 4));
    check("match.all.sync.b32 %r2|%p, 4, -1; selp.u32 %r1, %r2, 0, %p;", |_| u32::MAX);
    check("match.all.sync.b32 %r2|%p, %r0, -1; selp.u32 %r1, 1, %r2, %p;", |_| 0);
    check("cvt.u64.u32 %x1, %r0; match.any.sync.b64 %r1, %x1, -1;", |lane| 1 << lane);
}

#[test]
fn reductions() {
    check("redux.sync.add.u32 %r1, %r0, -1;", |_| 496);
    check("sub.s32 %r2, %r0, 5; redux.sync.min.s32 %r1, %r2, -1;", |_| -5i32 as u32);
    check("sub.s32 %r2, %r0, 5; redux.sync.max.u32 %r1, %r2, -1;", |_| u32::MAX);
    check("redux.sync.or.b32 %r1, %r0, -1;", |_| 31);
    check("redux.sync.xor.b32 %r1, %r0, -1;", |_| 0);
    check("elect.sync %r2|%p, -1; selp.u32 %r1, 1, %r2, %p;", |lane| (lane == 0) as u32);
}

#[test]
fn diverged_lanes_use_the_mask_of_their_branch() {
    let body = "
        mov.u32 %r1, 0; setp.ge.u32 %p, %r0, 16; @%p bra REST;
        shfl.sync.bfly.b32 %r1, %r0, 1, 31, 0xffff; redux.sync.add.s32 %r2, %r0, 0xffff; add.u32 %r1, %r1, %r2;
        bar.warp.sync 0xffff;
        REST: bar.warp.sync -1;";
    check(body, |lane| if lane < 16 { (lane ^ 1) + 120 } else { 0 });
}
