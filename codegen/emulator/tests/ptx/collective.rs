//! Shuffles, votes, matches and reductions over a warp.

use bespoke_emulator::{FindingKind, LaunchConfig};

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
fn destinations_may_be_discarded() {
    let valid = "selp.u32 %r1, 1, 0, %p;";
    check(&format!("shfl.sync.up.b32 _|%p, %r0, 4, 0, -1; {valid}"), |lane| u32::from(lane >= 4));
    check(&format!("match.all.sync.b32 _|%p, 4, -1; {valid}"), |_| 1);
    check(&format!("elect.sync _|%p, -1; {valid}"), |lane| u32::from(lane == 0));
    check("shfl.sync.bfly.b32 %r1|_, %r0, 5, 31, -1;", |lane| lane ^ 5);
    check(
        &sides("elect.sync _|%p, -1;", "shl.b32 %r4, %r0, 1; elect.sync _|%p, -1;")
            .replace("END:", &format!("END: {valid}")),
        |lane| u32::from(lane == 0),
    );
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

/// Kernel whose lanes below 16 execute `below` with the operands `%r2` and `%r0`, and the others `above` with `%r5` and `%r3`.
/// The results are in `%r1`.
fn sides(below: &str, above: &str) -> String {
    format!(
        "add.u32 %r2, %r0, 100; add.u32 %r3, %r0, 200; mov.u32 %r5, 3; setp.lt.u32 %p, %r0, 16; @%p bra BELOW;
        {above}
        bra END;
        BELOW: {below}
        END:"
    )
}

#[test]
fn members_execute_an_instruction_at_different_places() {
    let low = |lane: u32| lane < 16;
    let shuffle =
        sides("shfl.sync.bfly.b32 %r1, %r2, 16, 31, -1;", "shfl.sync.bfly.b32 %r1, %r3, 16, 31, -1;");
    check(&shuffle, |lane| (lane ^ 16) + if low(lane) { 200 } else { 100 });
    // The operands may differ, and be constants; each side has its own registers.
    let shuffle = sides(
        "shfl.sync.idx.b32 %r1, %r2, 17, 31, -1;",
        "mov.u32 %r6, -1; shfl.sync.idx.b32 %r4|%q, 7, %r5, 31, %r6; selp.u32 %r1, %r4, 0, %q;",
    );
    check(&shuffle, |lane| if low(lane) { 7 } else { 103 });
    let vote = sides(
        "vote.sync.ballot.b32 %r1, %p, -1;",
        "setp.eq.u32 %q, %r0, 30; vote.sync.ballot.b32 %r1, !%q, -1;",
    );
    check(&vote, |_| !(1 << 30));
    let any = "vote.sync.any.pred %q, %q, -1; selp.u32 %r1, 1, 0, %q;";
    let vote = sides(&format!("setp.eq.u32 %q, %r0, 99; {any}"), &format!("setp.eq.u32 %q, %r0, 20; {any}"));
    check(&vote, |_| 1);
    let matching =
        sides("and.b32 %r4, %r0, 1; match.any.sync.b32 %r1, %r4, -1;", "match.any.sync.b32 %r1, 1, -1;");
    check(&matching, |lane| match lane {
        0..16 if lane % 2 == 0 => 0x5555,
        _ => 0xffff_aaaa,
    });
    let all = "match.all.sync.b64 %r4|%q, %x1, -1; selp.u32 %r1, %r4, 7, %q;";
    let matching =
        |value: u32| sides(&format!("mov.b64 %x1, 5; {all}"), &format!("mov.b64 %x1, {value}; {all}"));
    check(&matching(5), |_| u32::MAX);
    check(&matching(6), |_| 7);
    let reduce = sides("redux.sync.add.s32 %r1, %r0, -1;", "redux.sync.add.s32 %r1, %r5, -1;");
    check(&reduce, |_| 120 + 16 * 3);
    let elect = "elect.sync %r4|%q, -1; selp.u32 %r1, 1, %r4, %q;";
    check(&sides(elect, elect), |lane| u32::from(lane == 0));
}

#[test]
fn a_warp_barrier_orders_memory_between_different_places() {
    let barrier = sides(
        "st.shared.u32 [%r7], %r2; bar.warp.sync -1; ld.shared.u32 %r1, [%r8];",
        "st.shared.u32 [%r7], %r3; bar.warp.sync -1; ld.shared.u32 %r1, [%r8];",
    );
    let addresses = ".shared .b32 tile[32]; mov.u32 %r6, tile; shl.b32 %r7, %r0, 2; add.u32 %r7, %r7, %r6; xor.b32 %r8, %r7, 64;";
    check(&format!("{addresses}\n{barrier}"), |lane| (lane ^ 16) + if lane < 16 { 200 } else { 100 });
    // Twice, and once more after the branch.
    let twice =
        sides("bar.warp.sync -1; bar.warp.sync -1;", "bar.warp.sync -1; mov.u32 %r4, 1; bar.warp.sync -1;");
    check(&format!("{twice} bar.warp.sync -1; activemask.b32 %r1;"), |_| u32::MAX);
}

#[test]
fn several_places_meet_and_some_members_may_have_exited() {
    let three = "
        setp.ge.u32 %p, %r0, 24; @%p exit;
        mov.u32 %r1, 0; setp.lt.u32 %p, %r0, 8; setp.lt.u32 %q, %r0, 16;
        @%p bra FIRST; @%q bra SECOND;
        redux.sync.add.u32 %r1, %r0, -1; bra END;
        SECOND: redux.sync.add.u32 %r1, 2, -1; bra END;
        FIRST: redux.sync.add.u32 %r1, 1, -1;
        END:";
    let sum = (16..24).sum::<u32>() + 8 + 16;
    check(three, |lane| if lane < 24 { sum } else { 0 });
    // Two pairs of places, each with a mask of its own.
    let pairs = "
        setp.lt.u32 %p, %r0, 16; and.b32 %r2, %r0, 1; setp.eq.u32 %q, %r2, 0;
        mov.u32 %r3, 0x55555555; @!%q mov.u32 %r3, 0xaaaaaaaa;
        @%p bra BELOW;
        redux.sync.add.u32 %r1, %r0, %r3; bra END;
        BELOW: redux.sync.add.u32 %r1, %r0, %r3;
        END:";
    check(pairs, |lane| if lane % 2 == 0 { 240 } else { 256 });
}

/// The finding of a kernel with two sides, in one line.
#[track_caller]
fn finding_of_sides(below: &str, above: &str, target: &str) -> String {
    let body = format!("mov.u32 %r0, %laneid;\n{}\nmov.u32 %r1, 0; ret;", sides(below, above));
    let text = kernel("", &body).replace("sm_90", target);
    let found =
        launch(&text, LaunchConfig::linear(1, 32), &mut words(32, 0)).expect_err("the members never meet");
    assert_eq!(found.kind, FindingKind::MemberMask, "{found}");
    found.detail.clone()
}

#[test]
fn members_with_other_qualifiers_or_masks_do_not_meet() {
    let up = "shfl.sync.up.b32 %r1, %r2, 1, 0, -1;";
    let differs = finding_of_sides("shfl.sync.down.b32 %r1, %r2, 1, 31, -1;", up, "sm_90");
    assert_eq!(
        differs,
        "lane 0 is in its member mask 0xffffffff but waits at PTX line 17 (`BELOW: shfl.sync.down.b32 %r1, %r2, 1, 31, -1;`), \
         which has another opcode or other qualifiers"
    );
    let opcode = finding_of_sides("vote.sync.ballot.b32 %r1, %p, -1;", up, "sm_90");
    assert!(opcode.contains("which has another opcode"), "{opcode}");
    let mask = finding_of_sides(&up.replace("-1;", "0x1ffff;"), up, "sm_90");
    assert!(mask.contains("with another member mask"), "{mask}");
    let barriers = finding_of_sides("bar.warp.sync -1;", "bar.warp.sync 0xffff0001;", "sm_90");
    assert!(barriers.contains("with another member mask"), "{barriers}");
    // Before sm_70, the members must execute one instruction of the text.
    let old = finding_of_sides("bar.warp.sync -1;", "bar.warp.sync -1;", "sm_61");
    assert!(old.contains("before sm_70 all members must execute one instruction"), "{old}");
    // Nobody waits where the other side has no such instruction.
    let absent = finding_of_sides("bar.warp.sync -1;", "", "sm_90");
    assert!(absent.contains("has diverged and does not execute it"), "{absent}");
}

#[test]
fn members_meet_after_the_branch_of_others() {
    // Lanes leave a loop at different times. The loop and the code after it synchronise the same number of times in each lane.
    let body = "
        mov.u32 %r1, 0; mov.u32 %r2, 0; and.b32 %r3, %r0, 3;
        LOOP: setp.ge.u32 %p, %r2, %r3; @%p bra AFTER;
        redux.sync.add.u32 %r4, 1, -1; add.u32 %r1, %r1, %r4; add.u32 %r2, %r2, 1; bra LOOP;
        AFTER: redux.sync.add.u32 %r4, 100, -1; add.u32 %r1, %r1, %r4;
        add.u32 %r2, %r2, 1; setp.le.u32 %p, %r2, 3; @%p bra AFTER;";
    // In round `i`, lanes with a larger count are in the loop.
    let round = |i: u32| (0..32u32).map(|lane| if lane % 4 > i { 1 } else { 100 }).sum::<u32>();
    check(body, |_| (0..4).map(round).sum());
    // After that, lanes that take turns may leave: those that branch to the end are no members.
    let leave = "setp.lt.u32 %p, %r0, 8; @%p bra END; bar.warp.sync -1; mov.u32 %r5, 1; END: ret;";
    let text = kernel("", &format!("mov.u32 %r0, %laneid; {body} {leave}"));
    launch(&text, LaunchConfig::linear(1, 32), &mut words(32, 0))
        .unwrap_or_else(|finding| panic!("{finding}"));
    // Members leave the loop and exit.
    let early = body
        .replace("AFTER: redux.sync.add.u32 %r4, 100, -1;", "AFTER:")
        .replace("setp.le.u32 %p, %r2, 3; @%p bra AFTER;", "");
    let text = kernel("", &format!("mov.u32 %r0, %laneid; {early} ret;"));
    let found = launch(&text, LaunchConfig::linear(1, 32), &mut words(32, 0)).expect_err("members exit");
    assert_eq!((found.kind, found.ptx_line), (FindingKind::MemberMask, 16), "{found}");
    assert!(
        found.detail.contains("lane 0 is in its member mask 0xffffffff but has diverged and does not"),
        "{found}"
    );
    // Members that wait at a barrier never come.
    let barrier = "setp.eq.u32 %p, %r0, 3; @!%p bra OTHERS; redux.sync.add.u32 %r1, 1, -1;
        OTHERS: bar.sync 0; redux.sync.add.u32 %r1, 1, -1; ret;";
    let text = kernel("", &format!("mov.u32 %r0, %laneid; {barrier}"));
    let found =
        launch(&text, LaunchConfig::linear(1, 64), &mut words(32, 0)).expect_err("members wait elsewhere");
    assert_eq!((found.kind, found.ptx_line), (FindingKind::MemberMask, 13), "{found}");
}
