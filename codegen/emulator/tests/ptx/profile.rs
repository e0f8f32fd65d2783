//! Profiles of kernels with known sector counts, bank conflicts and divergence.

use bespoke_emulator::{
    Class, GlobalCounts, InstructionProfile, LaunchConfig, LintKind, Options, Profile, SharedCounts,
    Thresholds,
};
use expect_test::expect;

use crate::harness::{kernel, launch_with, words};

/// Profile of one launch on 64 KiB of global memory.
fn profile(body: &str, config: LaunchConfig) -> Profile {
    let options = Options { profile: true, ..Options::default() };
    let stats = launch_with(&kernel("", body), config, &mut words(16384, 1), &options).expect("no finding");
    let profile = *stats.profile.expect("asked for");
    let total = profile.total();
    assert_eq!(total.lane_instructions, stats.lane_instructions);
    assert_eq!(total.warp_instructions, stats.warp_instructions);
    profile
}

/// The only instruction of the profile whose text starts with `text`.
fn find<'p>(profile: &'p Profile, text: &str) -> &'p InstructionProfile {
    let mut found = profile.instructions.iter().filter(|instruction| instruction.ptx_text.starts_with(text));
    let (Some(one), None) = (found.next(), found.next()) else { panic!("{text}: {profile:#?}") };
    one
}

#[test]
fn sectors_of_strided_loads() {
    // Words between the addresses of neighbouring lanes, and sectors per request of 32 lanes. The launch has two warps.
    for (stride, sectors) in [(0, 1), (1, 4), (2, 8), (3, 12), (8, 32), (33, 32)] {
        let body = format!(
            "mov.u32 %r0, %tid.x; mul.lo.u32 %r0, %r0, {}; mul.wide.u32 %x0, %r0, 1; add.s64 %x0, %x0, %data;
            ld.global.u32 %r1, [%x0];
            ret;",
            4 * stride
        );
        let profile = profile(&body, LaunchConfig::linear(1, 64));
        let ideal = if stride == 0 { 1 } else { 4 };
        let expected = GlobalCounts {
            requests: 2,
            sectors: 2 * sectors,
            ideal_sectors: 2 * ideal,
            bytes_loaded: 256,
            bytes_stored: 0,
        };
        assert_eq!(find(&profile, "ld.global").counts.global, expected, "stride {stride}");
        let lints = profile.lints(&Thresholds::default());
        assert_eq!(lints.len(), usize::from(sectors > 6), "stride {stride}: {lints:?}");
        assert!(lints.iter().all(|lint| lint.kind == LintKind::Uncoalesced));
    }
}

/// The sides of a branch meet at a barrier: it is executed once.
#[test]
fn lanes_that_wait_for_others_of_their_warp() {
    let body = "mov.u32 %r0, %tid.x; setp.eq.u32 %p, %r0, 0; mov.u32 %r1, %ctaid.x; setp.eq.u32 %q, %r1, 0;
        @%p bra A; @%q bra J; bra.uni E; A: @%q bra J; mov.u32 %r2, 1; bra.uni E;
        J: bar.sync 0;
        E: mov.u32 %r4, 5; ret;";
    let counts = find(&profile(body, LaunchConfig::linear(1, 32)), "J: bar.sync").counts;
    assert_eq!((counts.warp_instructions, counts.lane_instructions), (1, 32));
}

/// The traffic of an instruction at which lanes wait for others counts once, too.
#[test]
fn lanes_that_wait_at_an_access_of_the_whole_warp() {
    let body = ".shared .align 16 .b8 tile[512];
        mov.u32 %r0, %tid.x; mov.u32 %r6, tile; mad.lo.u32 %r6, %r0, 16, %r6; mov.u32 %r7, 0;
        st.shared.v4.u32 [%r6], {%r7, %r7, %r7, %r7}; bar.warp.sync -1;
        setp.lt.u32 %p, %r0, 8; mov.u32 %r1, %ctaid.x; setp.eq.u32 %q, %r1, 0;
        @%p bra A; @%q bra J; bra.uni E; A: @%q bra J; mov.u32 %r2, 1; bra.uni E;
        J: ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r2, %r3, %r4, %r5}, [%r6];
        E: ret;";
    let counts = find(&profile(body, LaunchConfig::linear(1, 32)), "J: ldmatrix").counts;
    assert_eq!((counts.warp_instructions, counts.lane_instructions, counts.active_lanes), (1, 32, 32));
    assert_eq!((counts.shared.requests, counts.shared.wavefronts, counts.shared.bytes), (1, 4, 512));
}

/// Lanes that take turns count an instruction once they execute it, not each time they wait.
#[test]
fn lanes_that_take_turns_at_a_barrier() {
    let body = "mov.u32 %r0, %tid.x; mov.u32 %r2, 0; and.b32 %r3, %r0, 3;
        LOOP: setp.ge.u32 %p, %r2, %r3; @%p bra AFTER;
        IN: bar.warp.sync -1;
        add.u32 %r2, %r2, 1; bra LOOP;
        AFTER:
        BEHIND: bar.warp.sync -1;
        add.u32 %r2, %r2, 1; setp.le.u32 %p, %r2, 3; @%p bra AFTER; ret;";
    let profile = profile(body, LaunchConfig::linear(1, 32));
    let lanes = |text: &str| find(&profile, text).counts.lane_instructions;
    // Of the four rounds, a lane spends as many in the loop as its count says.
    assert_eq!((lanes("IN:"), lanes("BEHIND:")), (8 * (1 + 2 + 3), 8 * (4 + 3 + 2 + 1)));
}

/// Each of two instructions of a text at which lanes meet is executed once.
#[test]
fn lanes_that_meet_at_two_instructions() {
    let body = "mov.u32 %r0, %tid.x; setp.lt.u32 %p, %r0, 8;
        @%p bra B;
        A: bar.warp.sync -1;
        bra E;
        B: bar.warp.sync -1;
        E: ret;";
    let profile = profile(body, LaunchConfig::linear(1, 32));
    for (text, lanes) in [("A: bar", 24), ("B: bar", 8)] {
        let counts = find(&profile, text).counts;
        let counted = (counts.warp_instructions, counts.lane_instructions, counts.active_lanes);
        assert_eq!(counted, (1, lanes, lanes), "{text}");
    }
}

#[test]
fn a_misaligned_access_touches_one_more_sector() {
    let body = "
        mov.u32 %r0, %tid.x; mad.wide.u32 %x0, %r0, 4, %data;
        st.global.u32 [%x0+16], %r0;
        ret;";
    let profile = profile(body, LaunchConfig::linear(1, 32));
    let global = find(&profile, "st.global").counts.global;
    assert_eq!((global.sectors, global.ideal_sectors, global.bytes_stored), (5, 4, 128));
    assert_eq!(profile.lints(&Thresholds::default()), []);
    assert_eq!(profile.lints(&Thresholds { sectors: 1.2, ..Thresholds::default() }).len(), 1);
}

/// Kernel whose lanes write and then read the first word of their row in a shared memory tile of 32 rows.
fn column(row_words: u32) -> String {
    format!(
        ".shared .align 16 .b32 tile[{}];
        mov.u32 %r0, %tid.x; mov.u32 %r1, tile; mad.lo.u32 %r2, %r0, {}, %r1;
        st.shared.u32 [%r2], %r0;
        ld.shared.u32 %r3, [%r2];
        ret;",
        32 * row_words,
        4 * row_words
    )
}

#[test]
fn a_column_of_a_tile_conflicts_unless_it_is_padded() {
    for (row_words, ways) in [(32, 32), (33, 1), (34, 2), (36, 4), (48, 16)] {
        let profile = profile(&column(row_words), LaunchConfig::linear(2, 32));
        let expected = SharedCounts {
            requests: 2,
            wavefronts: 2 * ways,
            ideal_wavefronts: 2,
            worst_ways: ways,
            bytes: 2 * 128,
        };
        for access in ["st.shared", "ld.shared"] {
            assert_eq!(find(&profile, access).counts.shared, expected, "rows of {row_words} words");
        }
        let lints = profile.lints(&Thresholds::default());
        assert_eq!(lints.len(), if ways > 1 { 2 } else { 0 }, "{lints:?}");
    }
}

#[test]
fn unrolled_accesses_of_one_source_position_are_one_lint() {
    let access =
        |row: u32| format!(".loc 1 30 9\nadd.u32 %r4, %r2, {}; \nst.shared.u32 [%r4], %r0;\n", 4 * row);
    let body = format!(
        ".shared .align 16 .b32 tile[2048];
        mov.u32 %r0, %tid.x; mov.u32 %r1, tile; mad.lo.u32 %r2, %r0, 128, %r1;
        {}{}{}
        .loc 1 31 9
        st.shared.u32 [%r2+4], %r0;
        ret;",
        access(0),
        access(1),
        access(2)
    );
    let profile = profile(&body, LaunchConfig::linear(1, 32));
    let lints = profile.lints(&Thresholds::default());
    let found: Vec<_> =
        lints.iter().map(|lint| (lint.ptx_text.as_str(), lint.counts.shared.requests, lint.share)).collect();
    assert_eq!(found, [("st.shared.u32 [%r4], %r0;", 3, 0.75), ("st.shared.u32 [%r2+4], %r0;", 1, 0.25)]);
    // A lint needs a minimum share of the kernel's traffic.
    assert_eq!(profile.lints(&Thresholds { share: 0.3, ..Thresholds::default() }).len(), 1);
}

#[test]
fn launches_too_small_to_measure_have_no_lints() {
    // Seven instructions per warp. Each of the first `touching` CTAs loads 32 words from 1 KiB of sectors; 128 bytes
    // would be enough.
    let strided = |warps: u32, touching: u32| {
        let body = format!(
            "mov.u32 %r0, %tid.x; mov.u32 %r1, %ctaid.x; setp.ge.u32 %p, %r1, {touching};
            mad.wide.u32 %x0, %r0, 128, %data; @!%p ld.global.u32 %r1, [%x0]; ret;"
        );
        profile(&body, LaunchConfig::linear(warps, 32))
    };
    let lints = |profile: &Profile| {
        [Thresholds::default(), Thresholds::measurable()].map(|from| profile.lints(&from).len())
    };
    for (warps, touching, expected) in
        [(146, 146, [1, 0]), (147, 147, [1, 1]), (147, 15, [1, 0]), (147, 16, [1, 1])]
    {
        let profile = strided(warps, touching);
        assert_eq!(profile.total().warp_instructions, u64::from(7 * warps));
        assert_eq!(lints(&profile), expected, "{warps} {touching}");
    }
    // Each launch is compared with the threshold by itself, not the sum of the merged launches.
    let mut several = strided(146, 146);
    for _ in 0..9 {
        assert!(several.merge(&strided(146, 146)));
    }
    assert_eq!(lints(&several), [1, 0]);
}

#[test]
fn the_text_of_a_lint_has_its_numbers() {
    let profile = profile(&column(32), LaunchConfig::linear(1, 32));
    let said: Vec<String> = profile.lints(&Thresholds::default()).iter().map(ToString::to_string).collect();
    expect![[r#"
        bank conflicts: 32.0-way on average, 32-way at worst, 32.0 wavefronts per request, in 1 requests; 50 % of the kernel's wavefronts
        bank conflicts: 32.0-way on average, 32-way at worst, 32.0 wavefronts per request, in 1 requests; 50 % of the kernel's wavefronts"#]]
    .assert_eq(&said.join("\n"));
}

#[test]
fn wide_accesses_are_served_by_half_and_quarter_warps() {
    // Type, bytes between neighbouring lanes, wavefronts, and wavefronts without conflicts.
    for (ty, step, wavefronts, ideal) in [
        ("v2.u32", 8, 2, 2),
        ("v2.u32", 16, 4, 2),
        ("v4.u32", 16, 4, 4),
        ("v4.u32", 32, 8, 4),
        ("v4.u32", 128, 32, 4),
    ] {
        let registers = if ty.starts_with("v2") { "{%r4, %r5}" } else { "{%r4, %r5, %r6, %r7}" };
        let body = format!(
            ".shared .align 16 .b8 tile[{}];
            mov.u32 %r4, 0; mov.u32 %r5, 0; mov.u32 %r6, 0; mov.u32 %r7, 0;
            mov.u32 %r0, %tid.x; mov.u32 %r1, tile; mad.lo.u32 %r2, %r0, {step}, %r1;
            st.shared.{ty} [%r2], {registers};
            ret;",
            32 * step
        );
        let shared = find(&profile(&body, LaunchConfig::linear(1, 32)), "st.shared").counts.shared;
        assert_eq!(
            (shared.wavefronts, shared.ideal_wavefronts),
            (wavefronts, ideal),
            "{ty} every {step} bytes"
        );
    }
}

#[test]
fn rows_of_matrices_and_copies_are_counted() {
    // Rows of 16 bytes that are 128 bytes apart: the eight rows of a matrix share four banks. With 16 bytes of padding,
    // no rows share a bank.
    for (pitch, wavefronts) in [(128, 32), (144, 4)] {
        let body = format!(
            ".shared .align 128 .b8 tile[{}];
            mov.u32 %r0, %tid.x; mov.u32 %r1, tile; mad.lo.u32 %r2, %r0, {pitch}, %r1; mad.wide.u32 %x0, %r0, 16, %data;
            cp.async.cg.shared.global [%r2], [%x0], 16;
            cp.async.commit_group;
            cp.async.wait_group 0;
            bar.warp.sync -1;
            ldmatrix.sync.aligned.m8n8.x4.shared.b16 {{%r4, %r5, %r6, %r7}}, [%r2];
            ret;",
            32 * pitch
        );
        let profile = profile(&body, LaunchConfig::linear(1, 32));
        let copy = find(&profile, "cp.async.cg").counts;
        let global =
            GlobalCounts { requests: 1, sectors: 16, ideal_sectors: 16, bytes_loaded: 512, bytes_stored: 0 };
        assert_eq!(copy.global, global);
        let shared = SharedCounts {
            requests: 1,
            wavefronts,
            ideal_wavefronts: 4,
            worst_ways: wavefronts / 4,
            bytes: 512,
        };
        assert_eq!((copy.shared, find(&profile, "ldmatrix").counts.shared), (shared, shared));
        assert_eq!(find(&profile, "cp.async.wait").class, Class::Control);
    }
}

#[test]
fn bulk_copies_are_counted_once_each() {
    let body = "
        .shared .align 16 .b8 tile[1024]; .shared .align 8 .b64 full;
        mov.u32 %r0, %tid.x; mov.u32 %r1, tile; mov.u32 %r2, full;
        setp.ne.u32 %p, %r0, 0; @%p bra WAIT;
        mbarrier.init.shared.b64 [%r2], 1; fence.mbarrier_init.release.cluster;
        mbarrier.arrive.expect_tx.shared.b64 %x1, [%r2], 1024;
        cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%data+16], 1024, [%r2];
        WAIT: bar.sync 0;
        POLL: mbarrier.try_wait.parity.shared.b64 %q, [%r2], 0; @!%q bra POLL;
        ret;";
    let profile = profile(body, LaunchConfig::linear(1, 32));
    let copy = find(&profile, "cp.async.bulk").counts;
    let expected =
        GlobalCounts { requests: 1, sectors: 33, ideal_sectors: 32, bytes_loaded: 1024, bytes_stored: 0 };
    assert_eq!((copy.global, copy.shared, copy.lane_instructions), (expected, SharedCounts::default(), 1));
}

#[test]
fn atomics_and_generic_addresses_are_counted_in_their_space() {
    let body = "
        .shared .align 16 .b32 tile[32];
        mov.u32 %r0, %tid.x; mov.u32 %r1, 0; mad.wide.u32 %x0, %r0, 4, %data;
        cvta.to.global.u64 %x1, %x0;
        red.global.add.u32 [%x1], %r0;
        mov.u64 %x2, tile; cvta.shared.u64 %x2, %x2; mad.wide.u32 %x2, %r0, 4, %x2;
        st.u32 [%x2], %r0;
        ld.u32 %r3, [%x0];
        ret;";
    let profile = profile(body, LaunchConfig::linear(1, 32));
    let global = |text| find(&profile, text).counts.global;
    assert_eq!((global("red").sectors, global("red").bytes_stored), (4, 128));
    assert_eq!((global("ld.u32").sectors, global("ld.u32").bytes_loaded), (4, 128));
    assert_eq!(global("st.u32"), GlobalCounts::default());
    assert_eq!(find(&profile, "st.u32").counts.shared.wavefronts, 1);
}

/// Body in which all lanes execute lines 10 and 12, and one of four lanes executes line 11.
const DIVERGENT: &str = "
    .loc 1 10 0
    mov.u32 %r0, %tid.x; and.b32 %r1, %r0, 3; setp.ne.u32 %p, %r1, 0;
    @%p bra DONE;
    .loc 1 11 0
    mad.lo.u32 %r2, %r0, 7, 1; mad.lo.u32 %r2, %r2, 5, 1; mad.lo.u32 %r2, %r2, 3, 1;
    .loc 1 12 0
    DONE: @%p mov.u32 %r3, 0;
    ret;";

#[test]
fn divergence_is_distinguished_from_guards() {
    let profile = profile(DIVERGENT, LaunchConfig::linear(3, 64));
    let branch = find(&profile, "@%p bra").counts;
    assert_eq!(
        (branch.warp_instructions, branch.active_lanes, branch.lane_instructions),
        (6, 6 * 32, 6 * 24)
    );
    assert_eq!((branch.branches, branch.divergent_branches), (6, 6));
    // Lanes with a false guard are idle, but the guard does not make the warp diverge.
    let guarded = find(&profile, "DONE:").counts;
    assert_eq!(
        (guarded.warp_instructions, guarded.active_lanes, guarded.lane_instructions),
        (6, 6 * 32, 6 * 24)
    );

    let lines = profile.lines();
    let line =
        |number| lines.iter().find(|line| line.source.as_ref().is_some_and(|source| source.line == number));
    let inner = line(11).expect("it ran").counts;
    assert_eq!((inner.warp_instructions, inner.lane_instructions, inner.average_lanes()), (18, 18 * 8, 8.0));
    assert_eq!(lines[0].source.as_ref().map(|source| source.line), Some(10), "most of the work comes first");

    let lints = profile.lints(&Thresholds::default());
    let [lint] = &lints[..] else { panic!("{lints:?}") };
    assert_eq!((lint.kind, lint.source.as_ref().map(|source| source.line)), (LintKind::Divergence, Some(11)));
    expect!["divergence: 8.0 of 32 lanes active on average, in 18 warp instructions, 30 % of the kernel's"]
        .assert_eq(&lint.to_string());
}

#[test]
fn the_mix_counts_lane_instructions_by_class() {
    let body = "
        mov.u32 %r0, %tid.x; cvt.rn.f32.u32 %f0, %r0; fma.rn.f32 %f1, %f0, %f0, %f0; ex2.approx.f32 %f1, %f1;
        mad.wide.u32 %x0, %r0, 4, %data; st.global.f32 [%x0], %f1;
        shfl.sync.bfly.b32 %r1, %r0, 1, 31, -1; bar.sync 0;
        ret;";
    let profile = profile(body, LaunchConfig::linear(1, 32));
    let mix: Vec<String> =
        profile.mix().map(|(class, lanes)| format!("{} {}", class.name(), lanes / 32)).into();
    // `ld.param` counts as a load.
    assert_eq!(mix.join(", "), "integer 1, float 2, matrix 0, memory 2, control 2, warp 1, move 2");
    assert_eq!(profile.threads, 32);
    assert_eq!(profile.instructions_per_thread(), 10.0);
    assert_eq!(profile.instructions_per_byte(), Some(10.0 / 4.0));
}

#[test]
fn only_profiles_of_the_same_kernel_merge() {
    let mut first = profile(DIVERGENT, LaunchConfig::linear(1, 64));
    let second = profile(DIVERGENT, LaunchConfig::linear(2, 64));
    assert!(first.merge(&second));
    let whole = profile(DIVERGENT, LaunchConfig::linear(3, 64));
    assert_eq!((first.launches, first.threads, first.total()), (2, 3 * 64, whole.total()));
    assert!(!first.merge(&profile(&column(32), LaunchConfig::linear(1, 32))));
    assert_eq!(first.threads, 3 * 64);
}

#[test]
fn a_finding_includes_the_profile_so_far() {
    // The second warp of the second CTA stores past the end of the buffer.
    let body = "
        mov.u32 %r0, %tid.x; mov.u32 %r1, %ctaid.x; mad.lo.u32 %r0, %r1, 64, %r0; mad.wide.u32 %x0, %r0, 4, %data;
        st.global.u32 [%x0], %r0;
        add.u32 %r2, %r0, 1;
        ret;";
    let stopped = |profile| {
        let options = Options { threads: 1, profile, ..Options::default() };
        let config = LaunchConfig::linear(9, 64);
        launch_with(&kernel("", body), config, &mut words(96, 0), &options).expect_err("the memory ends")
    };
    let finding = stopped(true);
    let profile = finding.profile.as_ref().expect("asked for");
    assert_eq!((profile.launches, profile.threads), (1, 2 * 64));
    assert_eq!(finding.thread, [32, 0, 0]);
    let warps = |text: &str| find(profile, text).counts.warp_instructions;
    assert_eq!((warps("st.global"), warps("add.u32")), (4, 3));
    assert_eq!(stopped(false).profile, None);
}

#[test]
fn profiles_do_not_depend_on_the_number_of_workers() {
    let run = |threads, profile| {
        let options = Options { threads, profile, ..Options::default() };
        let config = LaunchConfig::linear(9, 64);
        launch_with(&kernel("", DIVERGENT), config, &mut words(64, 1), &options).expect("no finding")
    };
    assert_eq!(run(1, true), run(4, true));
    assert_eq!(run(4, false).profile, None);
}

#[test]
fn instructions_of_one_line_are_summed_over_columns() {
    let body = "
        .loc 1 20 5
        mov.u32 %r0, %tid.x;
        .loc 1 21 9
        add.u32 %r1, %r0, 1;
        .loc 1 20 30
        add.u32 %r2, %r1, 1;
        ret;";
    let lines = profile(body, LaunchConfig::linear(1, 32)).lines();
    let place = |at: usize| lines[at].source.as_ref().map(|source| (source.line, source.column));
    // One entry has no source line: the `ld.param` that the harness adds.
    assert_eq!(lines.len(), 3, "{lines:?}");
    assert_eq!((place(0), lines[0].counts.warp_instructions), (Some((20, 5)), 3), "with `ret`");
}
