//! Divergence and reconvergence.

use bespoke_emulator::{FindingKind, LaunchConfig, Memory, Module, Options, run};
use expect_test::expect;

use crate::harness::{kernel, launch, words};

/// Runs `body` in 32 lanes with the lane number in `%r0`, and returns `%r1` of each lane.
#[track_caller]
fn lanes(body: &str) -> Vec<u32> {
    let text = kernel(
        "",
        &format!(
            "    mov.u32 %r0, %tid.x;\n    mad.wide.u32 %x0, %r0, 4, %data;\n{body}\n    st.global.u32 [%x0], %r1;\n    ret;"
        ),
    );
    let mut out = words(32, 0xdead);
    launch(&text, LaunchConfig::linear(1, 32), &mut out).unwrap_or_else(|finding| panic!("{finding}"));
    out
}

fn expected(f: impl Fn(u32) -> u32) -> Vec<u32> {
    (0..32).map(f).collect()
}

#[test]
fn both_sides_of_a_branch_reconverge() {
    let body = "
        and.b32 %r2, %r0, 1; setp.eq.u32 %p, %r2, 0;
        @%p bra EVEN;
        mov.u32 %r1, 100; bra JOIN;
        EVEN: mov.u32 %r1, 200;
        JOIN: activemask.b32 %r3; popc.b32 %r3, %r3; add.u32 %r1, %r1, %r3;";
    assert_eq!(lanes(body), expected(|lane| if lane % 2 == 0 { 232 } else { 132 }));
}

#[test]
fn nested_loops_with_lane_dependent_counts() {
    // `%r1` = Σ over i < lane of Σ over j ≤ i of 1.
    let body = "
        mov.u32 %r1, 0; mov.u32 %r2, 0;
        OUTER: setp.ge.u32 %p, %r2, %r0; @%p bra DONE;
        mov.u32 %r3, 0;
        INNER: add.u32 %r1, %r1, 1; add.u32 %r3, %r3, 1; setp.le.u32 %q, %r3, %r2; @%q bra INNER;
        add.u32 %r2, %r2, 1; bra OUTER;
        DONE: activemask.b32 %r4; setp.ne.u32 %p, %r4, -1; @%p trap;";
    assert_eq!(lanes(body), expected(|lane| lane * (lane + 1) / 2));
}

#[test]
fn loops_with_breaks_and_continues() {
    // Counts the odd numbers below 20 and below the lane's number.
    let body = "
        mov.u32 %r1, 0; mov.u32 %r2, 0;
        LOOP: setp.ge.u32 %p, %r2, 20; @%p bra DONE;
        setp.eq.u32 %p, %r2, %r0; @%p bra DONE;
        and.b32 %r3, %r2, 1; add.u32 %r2, %r2, 1; setp.eq.u32 %p, %r3, 0; @%p bra LOOP;
        add.u32 %r1, %r1, 1; bra.uni LOOP;
        DONE: activemask.b32 %r4; setp.ne.u32 %p, %r4, -1; @%p trap;";
    assert_eq!(lanes(body), expected(|lane| lane.min(20) / 2));
}

#[test]
fn early_returns_inside_branches_and_loops() {
    // Lanes 0..8 return at once, lanes 8..16 store and exit in a nested branch, and the other lanes run a loop.
    let body = "
        mov.u32 %r1, 7;
        setp.lt.u32 %p, %r0, 8; @%p ret;
        setp.lt.u32 %p, %r0, 24; @!%p bra LATE;
        setp.lt.u32 %q, %r0, 16; @!%q bra MIDDLE;
        st.global.u32 [%x0], %r0; exit;
        MIDDLE: add.u32 %r1, %r1, 1;
        LATE: activemask.b32 %r2;
        popc.b32 %r2, %r2; add.u32 %r1, %r1, %r2;
        AGAIN: add.u32 %r0, %r0, -1; setp.eq.u32 %p, %r0, 17; @%p bra END; bra AGAIN;
        END:";
    let got =
        lanes(&body.replace("@%p bra END; bra AGAIN;", "setp.le.or.u32 %p, %r0, 17, %p; @!%p bra AGAIN;"));
    let want = expected(|lane| match lane {
        0..8 => 0xdead,
        8..16 => lane,
        16..24 => 24,
        _ => 23,
    });
    assert_eq!(got, want);
}

#[test]
fn guards_affect_only_their_lanes() {
    let body = "
        mov.u32 %r1, 1; setp.lt.u32 %p, %r0, 10;
        @%p mov.u32 %r1, 2;
        @!%p add.u32 %r1, %r1, 10;
        @%p setp.gt.u32 %p, %r0, 4;
        @%p mov.u32 %r1, 3;";
    assert_eq!(
        lanes(body),
        expected(|lane| if lane >= 10 {
            11
        } else if lane > 4 {
            3
        } else {
            2
        })
    );
}

#[test]
fn short_circuit_conditions_reconverge() {
    let body = "
        mov.u32 %r1, 0;
        setp.lt.u32 %p, %r0, 8; @%p bra YES;
        setp.gt.u32 %p, %r0, 24; @%p bra YES;
        bra NO;
        YES: add.u32 %r1, %r1, 5;
        NO: vote.sync.ballot.b32 %r2, %p, -1; popc.b32 %r2, %r2; add.u32 %r1, %r1, %r2;";
    assert_eq!(lanes(body), expected(|lane| 15 + if !(8..=24).contains(&lane) { 5 } else { 0 }));
}

#[test]
fn scopes_have_their_own_names() {
    let body = "
        mov.u32 %r1, 1;
        { .reg .b32 %r1; mov.u32 %r1, 5; bra L; L: add.u32 %r0, %r0, %r1; }
        { .reg .pred %p; setp.gt.u32 %p, %r0, 100; @%p bra L; add.u32 %r1, %r1, %r0; L: }";
    assert_eq!(lanes(body), expected(|lane| 6 + lane));
}

#[test]
fn a_partial_warp_runs_only_its_lanes() {
    let text = kernel(
        "",
        "mov.u32 %r0, %tid.x; mad.wide.u32 %x0, %r0, 4, %data; activemask.b32 %r1; st.global.u32 [%x0], %r1;",
    );
    let mut out = words(40, 0);
    let stats = launch(&text, LaunchConfig::linear(1, 37), &mut out).expect("runs");
    assert_eq!(out[..32], words(32, u32::MAX));
    assert_eq!(out[32..], [31, 31, 31, 31, 31, 0, 0, 0]);
    assert_eq!(stats.lane_instructions, 37 * 6);
    assert_eq!(stats.warp_instructions, 2 * 6);
    assert_eq!(stats.global_bytes_stored, 37 * 4);
}

/// Outcome of a kernel with this body, for sm_90a.
fn outcome_for_hopper(body: &str) -> String {
    let text = kernel("", body).replace(".target sm_90", ".target sm_90a");
    match bespoke_emulator::Module::parse(&text) {
        Err(error) => error.message,
        Ok(_) => match launch(&text, LaunchConfig::linear(1, 128), &mut words(1, 0)) {
            Err(found) => format!("{:?}: {}", found.kind, found.detail),
            Ok(_) => "runs".to_string(),
        },
    }
}

#[test]
fn numbers_of_registers_are_checked() {
    let set = |registers: u32| outcome_for_hopper(&format!("setmaxnreg.dec.sync.aligned.u32 {registers};"));
    assert_eq!([set(24), set(232), set(256)], ["runs"; 3]);
    for wrong in [16, 30, 264] {
        let expected = format!(
            "`setmaxnreg.dec.sync.aligned.u32` takes a multiple of 8 from 24 to 256 registers, not {wrong}"
        );
        assert_eq!(set(wrong), expected);
    }
    let diverged = "mov.u32 %r0, %tid.x; setp.eq.u32 %p, %r0, 0; @%p setmaxnreg.inc.sync.aligned.u32 64;";
    let found = outcome_for_hopper(diverged);
    assert!(found.starts_with("MemberMask: "), "{found}");
}

/// The finding of an assumption `assumption` in lanes whose `%r0` is the number of the lane, if there is one.
fn assumption(assumption: &str) -> Option<bespoke_emulator::Finding> {
    let text = kernel(
        "",
        &format!("    mov.u32 %r0, %tid.x;\n    add.s32 %r1, %r0, -8;\n    {assumption}\n    ret;"),
    );
    launch(&text, LaunchConfig::linear(1, 32), &mut words(1, 0)).err().map(|finding| *finding)
}

#[test]
fn false_assumptions_are_findings() {
    let holds = [
        "//@ assume.lt.u32 %r0, 32;",
        "//@ assume.le.u32 %r0, 31;",
        "//@ assume.ne.u32 %r0, %r1;",
        "//@ assume.le.s32 -8, %r1;",
        "//@ assume.multiple_of.u32 %r0, 1;",
        "@!%p ret; //@ assume.eq.u32 %r0, 77;",
        // Ordinary comments.
        "// assume.eq.u32 %r0, 77;",
        "//@ nothing",
    ];
    for text in holds {
        let setup = format!("setp.eq.u32 %p, %r0, 77;\n    {text}");
        assert!(assumption(&setup).is_none(), "{text}");
    }
    for (text, lane) in [
        ("//@ assume.lt.u32 %r0, 31;", 31),
        ("//@ assume.le.u32 %r0, 12;", 13),
        ("//@ assume.ne.u32 %r0, 5;", 5),
        ("//@ assume.eq.u32 %r0, 0;", 1),
        ("//@ assume.le.s32 -6, %r1;", 0),
        ("//@ assume.le.u32 %r1, 100;", 0),
        ("//@ assume.multiple_of.u32 %r0, 4;", 1),
    ] {
        let finding = assumption(text).expect(text);
        assert_eq!(
            (finding.kind, finding.thread),
            (FindingKind::Assumption, [lane, 0, 0]),
            "{text}: {finding}"
        );
        assert_eq!(finding.ptx_text, text);
    }
}

#[test]
fn lanes_wait_for_lanes_of_their_warp() {
    // Lanes 0 to 3 wait in two nested branches for lane 9, which waits for them where the outer branch ends, and lane 9 for
    // lane 5, which waits where the inner one ends. All meet at `bar.warp.sync`.
    let nested = "
        mov.u32 %r1, 0; mov.u32 %r4, 1; setp.ge.u32 %p, %r0, 8; @%p bra OUTER;
        setp.ge.u32 %p, %r0, 4; @%p bra INNER;
        WAIT: ld.acquire.gpu.global.u32 %r2, [%data+124]; setp.ne.u32 %p, %r2, 1; @%p bra WAIT;
        add.u32 %r1, %r1, 100;
        INNER: add.u32 %r1, %r1, 10; setp.ne.u32 %p, %r0, 5;
        @!%p st.release.gpu.global.u32 [%data+120], %r4;
        OUTER: setp.ne.u32 %p, %r0, 9; @%p bra END;
        NEXT: ld.acquire.gpu.global.u32 %r2, [%data+120]; setp.ne.u32 %p, %r2, 1; @%p bra NEXT;
        st.release.gpu.global.u32 [%data+124], %r4;
        END: bar.warp.sync 0xffffffff; activemask.b32 %r3; popc.b32 %r3, %r3; add.u32 %r1, %r1, %r3;";
    let expected = expected(|lane| 32 + 100 * u32::from(lane < 4) + 10 * u32::from(lane < 8));
    assert_eq!(lanes(nested), expected);

    // The first side of a branch to run waits for the other one.
    let sides = "
        mov.u32 %r1, 7; mov.u32 %r4, 1; setp.lt.u32 %p, %r0, 16; @%p bra FIRST;
        SECOND: ld.acquire.gpu.global.u32 %r2, [%data+124]; setp.ne.u32 %p, %r2, 1; @%p bra SECOND; bra END;
        FIRST: mov.u32 %r1, 8; setp.eq.u32 %p, %r0, 0; @%p st.release.gpu.global.u32 [%data+124], %r4;
        END: bar.sync 0;";
    let swapped = sides.replace("@%p bra FIRST", "@!%p bra FIRST").replace("%r0, 0; @%p", "%r0, 16; @%p");
    for (body, first) in [(sides.to_string(), 0..16), (swapped, 16..32)] {
        assert_eq!(lanes(&body), self::expected(|lane| if first.contains(&lane) { 8 } else { 7 }));
    }

    // Lane 0 waits at an mbarrier at which the others arrive after the branch.
    let mbarrier = "
        .shared .align 8 .b64 gate;
        mov.u32 %r1, 1; setp.ne.u32 %p, %r0, 0; @!%p mbarrier.init.shared.b64 [gate], 32; bar.sync 0;
        @%p bra OTHERS;
        mbarrier.arrive.shared.b64 _, [gate];
        WAIT: mbarrier.try_wait.parity.shared.b64 %q, [gate], 0; @!%q bra WAIT;
        mov.u32 %r1, 2;
        OTHERS: @%p mbarrier.arrive.shared.b64 _, [gate]; bar.sync 0;";
    assert_eq!(lanes(mbarrier), self::expected(|lane| if lane == 0 { 2 } else { 1 }));
}

/// Counts how often each lane executes a block, in 32 words from `%x0` on.
const COUNT: &str = "atom.global.add.u32 %r9, [%x0], 1;";

/// A loop that ends when word `word` is not `initial`.
fn spin(label: &str, word: u32, initial: u32) -> String {
    format!(
        "{label}: ld.acquire.gpu.global.u32 %r2, [%data+{}]; setp.eq.u32 %q, %r2, {initial}; @%q bra {label};",
        4 * word
    )
}

/// Runs `body` in 32 lanes as [`lanes`], with `%r4` = 1 and 64 words of data that are 0 at first.
#[track_caller]
fn words_after(body: &str) -> Vec<u32> {
    let before = "mov.u32 %r0, %tid.x; mad.wide.u32 %x0, %r0, 4, %data; mov.u32 %r4, 1;";
    let mut data = words(64, 0);
    launch(&kernel("", &format!("{before}\n{body}\nret;")), LaunchConfig::linear(1, 32), &mut data)
        .unwrap_or_else(|finding| panic!("{finding}"));
    data
}

#[test]
fn lanes_that_take_turns_execute_a_block_once() {
    // Lanes 0 to 2 spin, so that they and lanes 3 to 6 become two groups. Both groups diverge at the same later branch, and
    // wait for each other's flags in it. Lane 7 spins on the other side of the first branch until lane 0 has passed `JOIN`.
    let flags =
        [spin("SPLIT", 40, 0), spin("S0", 41, 0), spin("S1", 42, 0), spin("S3", 43, 0), spin("LAST", 44, 0)];
    let [split, s0, s1, s3, last] = &flags;
    let body = format!(
        "setp.gt.u32 %p, %r0, 7; @%p exit;
        setp.eq.u32 %p, %r0, 7; @%p bra SEVEN;
        setp.lt.u32 %p, %r0, 3; @!%p bra FREE;
        {split}
        FREE: setp.eq.u32 %p, %r0, 6; @%p st.release.gpu.global.u32 [%data+160], %r4;
        setp.eq.u32 %p, %r0, 0; @%p bra ZERO; setp.lt.u32 %p, %r0, 3; @%p bra ONE; setp.lt.u32 %p, %r0, 5; @%p bra THREE;
        {s3}
        bra JOIN;
        ZERO: {s0}
        bra JOIN;
        ONE: {s1}
        st.release.gpu.global.u32 [%data+164], %r4; bra JOIN;
        THREE: st.release.gpu.global.u32 [%data+168], %r4; st.release.gpu.global.u32 [%data+172], %r4;
        JOIN: {COUNT}
        setp.eq.u32 %p, %r0, 0; @%p st.release.gpu.global.u32 [%data+176], %r4; bra END;
        SEVEN: {last}
        {COUNT}
        END: {COUNT}"
    );
    let counts = words_after(&body);
    assert_eq!(counts[..8], [2; 8], "{counts:?}");
    assert_eq!(counts[8..32], [0; 24]);
}

#[test]
fn only_missing_lanes_join_a_group() {
    // Both halves of the warp, separated by a wait, synchronise at the same instruction with masks of their own.
    let body = format!(
        "setp.lt.u32 %p, %r0, 16; @!%p bra FREE;
        {}
        FREE: setp.eq.u32 %p, %r0, 31; @%p st.release.gpu.global.u32 [%data+160], %r4;
        and.b32 %r5, %r0, 16; mov.u32 %r6, 0xffff; shl.b32 %r6, %r6, %r5; bar.warp.sync %r6;
        shfl.sync.bfly.b32 %r7, %r0, 1, 31, %r6; st.global.u32 [%x0], %r7;",
        spin("WAIT", 40, 0)
    );
    assert_eq!(words_after(&body)[..32], expected(|lane| lane ^ 1));
}

#[test]
fn tiles_meet_again_after_instructions_of_their_own() {
    // Tiles of four lanes synchronise; the whole warp does after that, in one basic block.
    let tiles = "
        mov.u32 %r1, 0; and.b32 %r5, %r0, 28; mov.u32 %r6, 15; shl.b32 %r6, %r6, %r5;
        bar.warp.sync %r6; activemask.b32 %r3; popc.b32 %r1, %r3; bar.sync 0;
        shfl.sync.bfly.b32 %r7, %r0, 3, 31, %r6; vote.sync.ballot.b32 %r8, %p, 0xffffffff;
        add.u32 %r1, %r1, %r7; bar.sync 0;";
    let expected: Vec<u32> = (0..32).map(|lane| 32 + (lane ^ 3)).collect();
    assert_eq!(lanes(&format!("setp.eq.u32 %p, %r0, 99;{tiles}")), expected);

    // Lanes that take turns meet in tiles that grow, at one instruction with a mask for each iteration.
    let growing = format!(
        "setp.eq.u32 %p, %r0, 0; @!%p bra OTHERS;
        {}
        OTHERS: setp.eq.u32 %p, %r0, 1; @%p st.release.gpu.global.u32 [%data+160], %r4;
        mov.u32 %r5, 4;
        LOOP: sub.u32 %r6, %r5, 1; not.b32 %r6, %r6; and.b32 %r6, %r6, %r0;
        mov.u32 %r7, 1; shl.b32 %r7, %r7, %r5; setp.eq.u32 %p, %r5, 32; @%p mov.u32 %r7, 0; sub.u32 %r7, %r7, 1;
        shl.b32 %r7, %r7, %r6; bar.warp.sync %r7;
        shl.b32 %r5, %r5, 1; setp.le.u32 %p, %r5, 32; @%p bra LOOP;
        {COUNT}",
        spin("WAIT", 40, 0)
    );
    assert_eq!(words_after(&growing)[..32], [1; 32]);
}

#[test]
fn lanes_may_exit_before_others_proceed() {
    let body = format!(
        "setp.eq.u32 %p, %r0, 5; @%p bra FIVE;
        {}
        {COUNT} bra END;
        FIVE: st.release.gpu.global.u32 [%data+160], %r4; {COUNT} exit;
        END: bar.warp.sync 0xffffffff; {COUNT}",
        spin("WAIT", 40, 0)
    );
    for body in [body.clone(), body.replace("@%p bra FIVE", "@!%p bra WAIT; bra FIVE")] {
        assert_eq!(words_after(&body)[..32], expected(|lane| if lane == 5 { 1 } else { 2 }));
    }
}

#[test]
fn mistakes_of_lanes_that_take_turns_are_reported() {
    let body = |mistake: &str| {
        format!(
            "mov.u32 %r0, %tid.x; mov.u32 %r4, 1; setp.eq.u32 %p, %r0, 0; @!%p bra OTHERS;
            {}
            bra END;
            OTHERS: setp.eq.u32 %p, %r0, 1; @%p st.release.gpu.global.u32 [%data+160], %r4;
            END: mov.u32 %r5, 17; mov.u32 %r6, 2; {mistake}",
            spin("WAIT", 40, 0)
        )
    };
    for (mistake, kind, detail) in [
        ("bar.sync %r5;", FindingKind::BarrierDivergence, "barrier 17 does not exist"),
        ("bar.warp.sync %r6;", FindingKind::MemberMask, "is not in its member mask 0x00000002"),
    ] {
        let mut data = words(64, 0);
        let finding = launch(&kernel("", &body(mistake)), LaunchConfig::linear(1, 32), &mut data)
            .expect_err("the instruction is wrong");
        assert_eq!(finding.kind, kind, "{finding}");
        assert!(finding.detail.contains(detail), "{finding}");
    }
}

#[test]
fn lanes_that_never_meet_are_reported() {
    // Lane 0 waits at another barrier than the others, after a wait that makes them take turns.
    let body = "
        mov.u32 %r1, 0; mov.u32 %r4, 1; setp.eq.u32 %p, %r0, 0; @!%p bra OTHERS;
        WAIT: ld.acquire.gpu.global.u32 %r2, [%data+124]; setp.ne.u32 %p, %r2, 1; @%p bra WAIT;
        bar.warp.sync 0xffffffff;
        OTHERS: setp.eq.u32 %p, %r0, 31; @%p st.release.gpu.global.u32 [%data+124], %r4; bar.sync 0;";
    let mut out = words(64, 0);
    let text = kernel("", &format!("mov.u32 %r0, %tid.x;{body}"));
    let finding =
        launch(&text, LaunchConfig::linear(1, 32), &mut out).expect_err("lanes wait for each other");
    assert_eq!(finding.kind, FindingKind::Deadlock, "{finding}");
    expect!["deadlock in kernel `kernel` (PTX line 17: `OTHERS: setp.eq.u32 %p, %r0, 31; @%p st.release.gpu.global.u32 [%data+124], %r4; bar.sync 0;`) by thread (1, 0, 0) of CTA (0, 0, 0): lane 1 of the warp waits here for lane 0, and no lane of the warp can proceed"].assert_eq(&finding.to_string());
}

/// The deleting destructor of a class calls `free`, also in kernels that allocate nothing.
#[test]
fn memory_without_a_heap_is_freed_only_if_it_is_null() {
    let outcome = |pointer: u32| {
        let text = format!(
            ".version 8.0\n.target sm_80\n.address_size 64\n.extern .func free(.param .b64 p);\n\
             .visible .entry k() {{ .reg .b64 %d; .reg .pred %p; .reg .b32 %r; mov.u32 %r, %tid.x; setp.eq.u32 %p, %r, 40;\n\
             mov.b64 %d, {pointer}; {{ .param .b64 a; st.param.b64 [a], %d;\n@%p call.uni free, (a); }}\nret; }}\n"
        );
        let module = Module::parse(&text).unwrap_or_else(|error| panic!("{error}"));
        let kernel = module.kernel("k").unwrap();
        let run = run(kernel, &Memory::new(), &LaunchConfig::linear(1, 64), &[], &Options::default());
        run.map(|_| ()).map_err(|finding| (finding.kind, finding.detail.clone(), finding.thread))
    };
    assert_eq!(outcome(0), Ok(()));
    let message = "the kernel frees memory, but the emulator has no heap of the device".to_owned();
    assert_eq!(outcome(16), Err((FindingKind::Trap, message, [40, 0, 0])));
}
