//! mbarriers, asynchronous copies and pipelines of copies, with and without the necessary waits.

use bespoke_emulator::{Checks, Finding, FindingKind, LaunchConfig, Options};
use expect_test::{Expect, expect};

use crate::harness::{kernel, launch, launch_with, words};

/// Runs `body` in one thread, which stores `N` words at `[%data]`, and returns these words.
#[track_caller]
fn results<const N: usize>(body: &str) -> [u32; N] {
    let mut data = words(N, 0xdead);
    launch(&kernel("", body), LaunchConfig::linear(1, 1), &mut data)
        .unwrap_or_else(|finding| panic!("{finding}"));
    data.try_into().expect("N words")
}

/// Finding of one thread that runs `body` on 256 words of global memory.
fn finding(body: &str) -> Box<Finding> {
    let mut data = words(256, 1);
    launch(&kernel("", body), LaunchConfig::linear(1, 1), &mut data).expect_err("the kernel has a fault")
}

#[track_caller]
fn finds_misuse(body: &str, expected: Expect) {
    let found = finding(&format!(".shared .align 8 .b64 gate[2];\n{body}"));
    assert_eq!(found.kind, FindingKind::Mbarrier, "{found}");
    expected.assert_eq(&found.detail);
}

#[test]
fn phases_are_tested_by_state_and_by_parity() {
    let body = "
        .shared .align 8 .b64 gate;
        mbarrier.init.shared.b64 [gate], 3;
        mbarrier.test_wait.parity.shared.b64 %p, [gate], 1; selp.u32 %r0, 1, 0, %p;
        mbarrier.arrive.shared.b64 %x0, [gate];
        mbarrier.arrive.release.cta.shared::cta.b64 %x1, [gate], 1;
        mbarrier.pending_count.b64 %r1, %x0; mbarrier.pending_count.b64 %r2, %x1;
        mbarrier.test_wait.shared.b64 %p, [gate], %x0; selp.u32 %r3, 1, 0, %p;
        mbarrier.arrive.shared.b64 _, [gate];
        mbarrier.try_wait.acquire.cta.shared::cta.b64 %p, [gate], %x1, 100; selp.u32 %r4, 1, 0, %p;
        mbarrier.try_wait.parity.shared.b64 %p, [gate], 0; selp.u32 %r5, 1, 0, %p;
        mbarrier.try_wait.parity.shared.b64 %p, [gate], 1; selp.u32 %r6, 1, 0, %p;
        mbarrier.arrive.noComplete.shared.b64 %x2, [gate], 2; mbarrier.pending_count.b64 %r7, %x2;
        mbarrier.inval.shared.b64 [gate];
        mbarrier.init.shared.b64 [gate], 1;
        st.global.v4.u32 [%data], {%r0, %r1, %r2, %r3}; st.global.v4.u32 [%data+16], {%r4, %r5, %r6, %r7};";
    assert_eq!(results(body), [1, 3, 2, 0, 1, 1, 0, 3]);
}

/// As on an H200.
#[test]
fn the_parity_is_the_lowest_bit_of_a_register() {
    let mut body = ".shared .align 8 .b64 gate; mbarrier.init.shared.b64 [gate], 1; mbarrier.arrive.shared.b64 _, [gate];".to_owned();
    for (index, parity) in [0u32, 1, 2, u32::MAX, u32::MAX - 1].into_iter().enumerate() {
        body += &format!(
            "mov.u32 %r0, {parity}; mbarrier.test_wait.parity.shared.b64 %p, [gate], %r0; selp.u32 %r1, 1, 0, %p;
             st.global.u32 [%data+{}], %r1;",
            4 * index
        );
    }
    assert_eq!(results(&body), [1, 0, 1, 0, 1]);
}

#[test]
fn pending_transactions_keep_a_phase_incomplete() {
    let body = "
        .shared .align 8 .b64 gate;
        mbarrier.init.shared::cta.b64 [gate], 1;
        mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [gate], 16;
        mbarrier.arrive.expect_tx.shared::cta.b64 _, [gate], 32;
        mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [gate], 40;
        mbarrier.test_wait.parity.shared.b64 %p, [gate], 0; selp.u32 %r0, 1, 0, %p;
        mbarrier.complete_tx.shared::cta.b64 [gate], 8;
        mbarrier.test_wait.parity.shared.b64 %p, [gate], 0; selp.u32 %r1, 1, 0, %p;
        st.global.v2.u32 [%data], {%r0, %r1};";
    assert_eq!(results(body), [0, 1]);
}

#[test]
fn arrive_drop_lowers_the_count_of_later_phases() {
    let body = "
        .shared .align 8 .b64 gate;
        mbarrier.init.shared.b64 [gate], 3;
        mbarrier.arrive_drop.shared.b64 %x0, [gate], 2; mbarrier.arrive.shared.b64 %x0, [gate];
        mbarrier.arrive.shared.b64 %x0, [gate]; mbarrier.pending_count.b64 %r0, %x0;
        mbarrier.test_wait.parity.shared.b64 %p, [gate], 1; selp.u32 %r1, 1, 0, %p;
        st.global.v2.u32 [%data], {%r0, %r1};";
    assert_eq!(results(body), [1, 1]);
}

#[test]
fn lanes_may_initialise_an_mbarrier_together() {
    let init = |count: &str| {
        let body = format!(
            ".shared .align 8 .b64 gate; mov.u32 %r0, %tid.x; mbarrier.init.shared.b64 [gate], {count}; bar.sync 0;
             mbarrier.arrive.shared.b64 _, [gate]; mbarrier.test_wait.parity.shared.b64 %p, [gate], 0;"
        );
        launch(&kernel("", &body), LaunchConfig::linear(1, 32), &mut words(1, 0))
    };
    init("32").unwrap_or_else(|finding| panic!("{finding}"));
    let found = init("%r0").expect_err("an arrival count of 0");
    assert_eq!(found.kind, FindingKind::Mbarrier, "{found}");
    let body = ".shared .align 8 .b64 gate; mov.u32 %r0, %tid.x; add.u32 %r0, %r0, 1; mbarrier.init.shared.b64 [gate], %r0;";
    let found =
        launch(&kernel("", body), LaunchConfig::linear(1, 32), &mut words(1, 0)).expect_err("32 counts");
    assert!(found.detail.contains("already initialised"), "{found}");
}

#[test]
fn misuse_of_mbarriers_is_found() {
    finds_misuse(
        "mbarrier.arrive.shared.b64 _, [gate];",
        expect!["no mbarrier has been initialised here; the mbarrier is at shared 0x0 (`gate`)"],
    );
    finds_misuse(
        "mbarrier.init.shared.b64 [gate+8], 1;\nmbarrier.init.shared.b64 [gate+8], 1;",
        expect![
            "`mbarrier.init` of an mbarrier that is already initialised; the mbarrier is at shared 0x8 (`gate` + 8)"
        ],
    );
    finds_misuse(
        "mbarrier.init.shared.b64 [gate], 0;",
        expect![
            "an arrival count of 0, which is not between 1 and 1048575; the mbarrier is at shared 0x0 (`gate`)"
        ],
    );
    finds_misuse(
        "mbarrier.init.shared.b64 [gate], 2;\nmbarrier.arrive.shared.b64 _, [gate], 3;",
        expect![
            "3 arrivals at an mbarrier whose phase 0 has 2 of 2 arrivals pending; the mbarrier is at shared 0x0 (`gate`)"
        ],
    );
    finds_misuse(
        "mbarrier.init.shared.b64 [gate], 1;\nmbarrier.arrive.noComplete.shared.b64 %x0, [gate], 1;",
        expect![
            "an arrival with `.noComplete` would complete the phase; the mbarrier is at shared 0x0 (`gate`)"
        ],
    );
    finds_misuse(
        "mbarrier.init.shared.b64 [gate], 1;\nst.shared.u32 [gate+4], %r0;".replace("%r0", "0").as_str(),
        expect!["4-byte store to shared memory at 0x4, which holds an mbarrier"],
    );
    finds_misuse(
        "mbarrier.init.shared.b64 [gate], 1;\nld.shared.u64 %x0, [gate];",
        expect!["8-byte load from shared memory at 0x0, which holds an mbarrier"],
    );
    let odd = finding(".shared .align 8 .b64 gate[2];\nmbarrier.init.shared.b64 [gate+4], 1;");
    assert_eq!(odd.kind, FindingKind::Misaligned);
}

const THREAD: LaunchConfig =
    LaunchConfig { grid: [1; 3], block: [1; 3], dynamic_shared: 0, cluster: None, cooperative: false };

/// Body in which one thread copies 64 bytes with a bulk copy, after `before` and before `after`.
fn bulk(before: &str, after: &str) -> String {
    format!(
        ".shared .align 16 .b8 tile[128];\n.shared .align 8 .b64 gate;
        mbarrier.init.shared.b64 [gate], 1; fence.mbarrier_init.release.cluster; fence.proxy.async.shared::cta;
        {before}
        mbarrier.arrive.expect_tx.shared::cta.b64 _, [gate], 64;
        cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [tile], [%data], 64, [gate];
        {after}"
    )
}

const WAIT: &str = "WAIT: mbarrier.try_wait.parity.shared::cta.b64 %p, [gate], 0; @!%p bra WAIT;";

#[test]
fn a_wait_for_the_mbarrier_completes_a_bulk_copy() {
    let body = bulk("", &format!("{WAIT} ld.shared.u32 %r1, [tile+60]; st.global.u32 [%data], %r1;"));
    let mut data: Vec<u32> = (0..16).collect();
    launch(&kernel("", &body), THREAD, &mut data).unwrap_or_else(|finding| panic!("{finding}"));
    assert_eq!(data[0], 15);
}

#[test]
fn accesses_during_a_bulk_copy_are_found() {
    let read = |wait: &str| {
        let found = finding(&bulk("", &format!("{wait}\nld.shared.u32 %r1, [tile+60];")));
        (found.kind, found.detail)
    };
    let (kind, detail) = read("");
    assert_eq!(kind, FindingKind::AsyncCopy);
    expect!["4-byte load from shared memory at 0x3c, which the asynchronous copy at PTX line 18 writes; that copy has not been waited for"].assert_eq(&detail);
    // The wait is not repeated until it succeeds.
    assert_eq!(read(&WAIT[..WAIT.len() - 15]).0, FindingKind::AsyncCopy);
    let overwritten = finding(&bulk("", &format!("st.shared.u32 [tile], 1;\n{WAIT}")));
    expect!["copy in flight in kernel `kernel` (PTX line 19: `st.shared.u32 [tile], 1;`) by thread (0, 0, 0) of CTA (0, 0, 0): 4-byte store to shared memory at 0x0, which the asynchronous copy at PTX line 18 writes; that copy has not been waited for; the access is inside `tile` (0x0, 128 bytes); the other is the write (PTX line 18: `cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [tile], [%data], 64, [gate];`) by an asynchronous copy of CTA (0, 0, 0)"].assert_eq(&overwritten.to_string());
    let left = finding(&bulk("", "ret;"));
    expect!["copy in flight in kernel `kernel` (PTX line 18: `cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [tile], [%data], 64, [gate];`) by thread (0, 0, 0) of CTA (0, 0, 0): the CTA ends while this operation is in flight: nothing has waited for it"].assert_eq(&left.to_string());
    let invalidated = finding(&bulk("", "mbarrier.inval.shared.b64 [gate];"));
    assert_eq!(invalidated.kind, FindingKind::Mbarrier);
    // Accesses to bytes next to the copied range are allowed.
    let body = bulk("", &format!("st.shared.u32 [tile+64], 1; ld.shared.u32 %r1, [tile+64];\n{WAIT}"));
    launch(&kernel("", &body), THREAD, &mut words(16, 1)).expect("no finding");
}

#[test]
fn operands_of_bulk_copies_are_checked_at_issue() {
    let kind = |from: &str, to: &str| {
        let body = bulk("", WAIT).replace(from, to);
        launch(&kernel("", &body), THREAD, &mut words(64, 1)).err().map(|finding| finding.kind)
    };
    assert_eq!(kind("", ""), None);
    assert_eq!(kind("[tile]", "[tile+8]"), Some(FindingKind::Misaligned));
    assert_eq!(kind("[%data], 64", "[%data+8], 64"), Some(FindingKind::Misaligned));
    assert_eq!(kind("[%data], 64", "[%data], 56"), Some(FindingKind::Misaligned));
    assert_eq!(kind("[%data], 64", "[%data+208], 64"), Some(FindingKind::OutOfBounds));
    assert_eq!(kind("[tile]", "[tile+96]"), Some(FindingKind::OutOfBounds));
    assert_eq!(kind("64, [gate]", "64, [gate+8]"), Some(FindingKind::Mbarrier));
    assert_eq!(kind("_, [gate], 64", "_, [gate], 48"), Some(FindingKind::Deadlock));
}

#[test]
fn bulk_copies_to_global_memory() {
    let body = |wait: &str| {
        format!(
            ".shared .align 16 .b32 tile[8];
            st.shared.u32 [tile], 7; st.shared.u32 [tile+4], 8; st.shared.u32 [tile+8], 9; st.shared.u32 [tile+12], 10;
            fence.proxy.async.shared::cta;
            cp.async.bulk.global.shared::cta.bulk_group [%data], [tile], 16;
            cp.async.bulk.commit_group;
            {wait}"
        )
    };
    for wait in ["cp.async.bulk.wait_group 0;", "cp.async.bulk.wait_group.read 0; st.shared.u32 [tile], 1;"] {
        let mut data = words(4, 0);
        launch(&kernel("", &body(wait)), THREAD, &mut data).unwrap_or_else(|finding| panic!("{finding}"));
        assert_eq!(data, [7, 8, 9, 10]);
    }
    let early = finding(&body("st.shared.u32 [tile], 1; cp.async.bulk.wait_group.read 0;"));
    assert_eq!(early.kind, FindingKind::AsyncCopy);
    expect!["4-byte store to shared memory at 0x0, which the asynchronous copy at PTX line 16 reads; that copy has not been waited for"].assert_eq(&early.detail);
    assert_eq!(finding(&body("cp.async.bulk.wait_group 1;")).kind, FindingKind::AsyncCopy);
    // With the check off, the store completes when the CTA ends.
    let checks = Checks { unawaited_stores: false, ..Checks::ALL };
    let options = Options { checks, ..Options::default() };
    for wait in ["", "cp.async.bulk.wait_group 1;"] {
        let mut data = words(4, 0);
        launch_with(&kernel("", &body(wait)), THREAD, &mut data, &options)
            .unwrap_or_else(|finding| panic!("{finding}"));
        assert_eq!(data, [7, 8, 9, 10]);
    }
    let overwritten = kernel("", &body("st.shared.u32 [tile], 1;"));
    let early = launch_with(&overwritten, THREAD, &mut words(4, 0), &options).expect_err("the copy reads");
    assert_eq!(early.kind, FindingKind::AsyncCopy, "{early}");
}

#[test]
fn a_wait_for_the_reads_of_bulk_copies_is_no_wait_for_their_writes() {
    let store =
        "cp.async.bulk.global.shared::cta.bulk_group [%data], [tile], 16; cp.async.bulk.commit_group;";
    let fill = |value: u32| {
        format!(
            "mov.u32 %r0, {value}; st.shared.v4.u32 [tile], {{%r0, %r0, %r0, %r0}}; fence.proxy.async.shared::cta;"
        )
    };
    let body = |rest: &str| format!(".shared .align 16 .b32 tile[8];\n{}\n{store}\n{rest}\nret;", fill(7));
    let (read, whole) = ("cp.async.bulk.wait_group.read 0;", "cp.async.bulk.wait_group 0;");
    let load = "ld.global.u32 %r1, [%data]; st.global.u32 [%data+16], %r1;";
    let clean = |rest: &str, expected: &[u32]| {
        let mut data = words(8, 0);
        launch(&kernel("", &body(rest)), THREAD, &mut data).unwrap_or_else(|finding| panic!("{finding}"));
        assert_eq!(data[..expected.len()], *expected, "{rest}");
    };
    // The source may be written again, and the kernel may end.
    clean(&format!("{read} {}", fill(8)), &[7, 7, 7, 7, 0]);
    clean(&format!("{whole} {load}"), &[7, 7, 7, 7, 7]);
    clean(&format!("{read} {} {whole} {load}", fill(8)), &[7, 7, 7, 7, 7]);
    clean(
        &format!("{read} {} {store} {whole}", fill(8).replace("tile]", "tile+16]"))
            .replace("%data], [tile]", "%data+16], [tile+16]"),
        &[7, 7, 7, 7, 8, 8, 8, 8],
    );
    let race = finding(&body(&format!("{read} {load}")));
    assert_eq!(race.kind, FindingKind::Race);
    assert!(race.detail.contains("`cp.async.bulk.wait_group.read` waits only until"), "{race}");
    // Another store to the same bytes, by an instruction or by a copy from the same source.
    for again in ["st.global.u32 [%data+4], 3;", &format!("{} {store} {whole}", fill(9))] {
        assert_eq!(finding(&body(&format!("{read} {again}"))).kind, FindingKind::Race, "{again}");
        assert!(
            launch(&kernel("", &body(&format!("{whole} {again}"))), THREAD, &mut words(8, 0)).is_ok(),
            "{again}"
        );
    }
    // A wait that allows one group covers the first of two copies only.
    let second =
        "cp.async.bulk.global.shared::cta.bulk_group [%data+16], [tile], 16; cp.async.bulk.commit_group;";
    let two =
        |last: u32| format!("{second} {read} cp.async.bulk.wait_group 1; ld.global.u32 %r1, [%data+{last}];");
    clean(&two(0), &[7; 8]);
    assert_eq!(finding(&body(&two(16))).kind, FindingKind::Race);
}

/// Reductions into the same bytes by one instruction, of which the last is awaited or not.
#[test]
fn reductions_whose_sources_have_been_read_are_in_flight_until_the_last_is_awaited() {
    let body = |wait: &str| {
        format!(
            ".shared .align 16 .b32 tile[4];
            mov.u32 %r0, 1; mov.u32 %r2, 0; st.shared.v4.u32 [tile], {{%r0, %r0, %r0, %r0}}; fence.proxy.async.shared::cta;
            LOOP: cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%data], [tile], 16;
            cp.async.bulk.commit_group; cp.async.bulk.wait_group.read 0;
            add.u32 %r2, %r2, 1; setp.lt.u32 %p, %r2, 5; @%p bra LOOP;
            {wait}
            ld.global.u32 %r1, [%data+4]; st.global.u32 [%data+64], %r1;"
        )
    };
    let outcome = |wait: &str| {
        let mut data = words(32, 0);
        launch(&kernel("", &body(wait)), THREAD, &mut data).map(|_| data[16]).map_err(|finding| finding.kind)
    };
    assert_eq!(outcome("cp.async.bulk.wait_group 0;"), Ok(5));
    assert_eq!(outcome("cp.async.bulk.wait_group 1;"), Err(FindingKind::Race));
    assert_eq!(outcome(""), Err(FindingKind::Race));
    // Another reduction may add to the same bytes, an atomic operation too.
    assert_eq!(outcome("red.global.add.u32 [%data+4], 1; cp.async.bulk.wait_group 0;"), Ok(6));
}

/// Each lane stores 16 bytes by a bulk copy; only some lanes wait for their writes.
#[test]
fn lanes_wait_for_their_own_bulk_copies() {
    let body = |reader: u32| {
        format!(
            ".shared .align 16 .b32 tile[128];
            mov.u32 %r0, %tid.x; mov.u32 %r1, tile; mad.lo.u32 %r1, %r0, 16, %r1; mad.wide.u32 %x0, %r0, 16, %data;
            st.shared.v4.u32 [%r1], {{%r0, %r0, %r0, %r0}}; fence.proxy.async.shared::cta;
            cp.async.bulk.global.shared::cta.bulk_group [%x0], [%r1], 16;
            cp.async.bulk.commit_group; cp.async.bulk.wait_group.read 0;
            setp.lt.u32 %p, %r0, 16; @%p cp.async.bulk.wait_group 0;
            setp.eq.u32 %q, %r0, {reader}; @%q ld.global.u32 %r2, [%x0+4];"
        )
    };
    let outcome = |reader: u32| {
        launch(&kernel("", &body(reader)), LaunchConfig::linear(1, 32), &mut words(128, 0))
            .map(drop)
            .map_err(|finding| finding.kind)
    };
    assert_eq!(outcome(3), Ok(()));
    assert_eq!(outcome(20), Err(FindingKind::Race));
}

/// A CTA stores 16 bytes by a bulk copy and releases a flag; another CTA acquires it and loads the bytes.
#[test]
fn other_ctas_see_the_writes_of_bulk_copies_after_a_whole_wait() {
    let body = |wait: &str| {
        format!(
            ".shared .align 16 .b32 tile[4];
            mov.u32 %r0, %ctaid.x; mov.u32 %r1, 1; setp.eq.u32 %p, %r0, 1; @%p bra READER;
            st.shared.v4.u32 [tile], {{%r1, %r1, %r1, %r1}}; fence.proxy.async.shared::cta;
            cp.async.bulk.global.shared::cta.bulk_group [%data], [tile], 16; cp.async.bulk.commit_group;
            {wait}
            fence.proxy.async.global; st.release.gpu.global.u32 [%data+64], %r1; ret;
            READER: ld.acquire.gpu.global.u32 %r2, [%data+64]; setp.eq.u32 %q, %r2, 0; @%q bra READER;
            fence.proxy.async.global; ld.global.u32 %r3, [%data]; st.global.u32 [%data+68], %r3; ret;"
        )
    };
    let outcome = |wait: &str| {
        let mut data = words(32, 0);
        let run = launch(&kernel("", &body(wait)), LaunchConfig::linear(2, 1), &mut data);
        run.map(|_| data[17]).map_err(|finding| finding.kind)
    };
    assert_eq!(outcome("cp.async.bulk.wait_group 0;"), Ok(1));
    assert_eq!(outcome("cp.async.bulk.wait_group.read 0;"), Err(FindingKind::Race));
}

/// Body in which a warp copies two rows of 128 bytes in two groups, executes `wait`, and reads row `row`.
fn two_groups(wait: &str, row: u32) -> String {
    format!(
        ".shared .align 16 .b8 tile[256];
        mov.u32 %r0, %laneid; mov.u32 %r1, tile; mad.lo.u32 %r1, %r0, 4, %r1; mad.wide.u32 %x0, %r0, 4, %data;
        cp.async.ca.shared.global [%r1], [%x0], 4; cp.async.commit_group;
        cp.async.ca.shared::cta.global.L2::128B [%r1+128], [%x0+128], 4; cp.async.commit_group;
        {wait}
        ld.shared.u32 %r2, [%r1+{}]; st.global.u32 [%x0], %r2; cp.async.wait_all;",
        128 * row
    )
}

#[test]
fn groups_complete_in_order() {
    let outcome = |wait: &str, row: u32| {
        let mut data: Vec<u32> = (0..64).collect();
        launch(&kernel("", &two_groups(wait, row)), LaunchConfig::linear(1, 32), &mut data)
            .map(|_| data[0])
            .map_err(|finding| finding.kind)
    };
    assert_eq!(outcome("cp.async.wait_group 0;", 1), Ok(32));
    assert_eq!(outcome("cp.async.wait_all;", 1), Ok(32));
    assert_eq!(outcome("cp.async.wait_group 1;", 0), Ok(0));
    assert_eq!(outcome("cp.async.wait_group 1;", 1), Err(FindingKind::AsyncCopy));
    assert_eq!(outcome("cp.async.wait_group 2;", 0), Err(FindingKind::AsyncCopy));
    assert_eq!(outcome("", 0), Err(FindingKind::AsyncCopy));
}

#[test]
fn accesses_to_the_target_of_a_copy_in_flight_are_found() {
    let kind = |after: &str| {
        let body = format!(
            ".shared .align 16 .b8 tile[64]; mov.u32 %r0, 0;
            cp.async.cg.shared.global [tile], [%data], 16; cp.async.commit_group;\n{after}"
        );
        launch(&kernel("", &body), THREAD, &mut words(64, 1)).err().map(|finding| finding.kind)
    };
    assert_eq!(
        kind("cp.async.wait_all; cp.async.ca.shared.global [tile], [%data], 16; cp.async.wait_all;"),
        None
    );
    assert_eq!(kind("cp.async.ca.shared.global [tile+16], [%data], 8; cp.async.wait_all;"), None);
    let flight = Some(FindingKind::AsyncCopy);
    assert_eq!(kind(""), flight);
    assert_eq!(kind("cp.async.ca.shared.global [tile+8], [%data], 8; cp.async.wait_all;"), flight);
    assert_eq!(kind("atom.shared.add.u32 %r1, [tile+12], 1; cp.async.wait_all;"), flight);
    assert_eq!(kind("st.shared.u8 [tile+15], %r0; cp.async.wait_all;"), flight);
    assert_eq!(kind("st.shared.u8 [tile+16], %r0; cp.async.wait_all;"), None);
}

#[test]
fn prefetched_ranges_must_be_in_bounds() {
    let kind = |operands: &str| {
        let body = format!("cp.async.bulk.prefetch.L2.global {operands};");
        launch(&kernel("", &body), THREAD, &mut words(64, 1)).err().map(|finding| finding.kind)
    };
    assert_eq!(kind("[%data+128], 128"), None);
    assert_eq!(kind("[%data+128], 144"), Some(FindingKind::OutOfBounds));
    assert_eq!(kind("[%data+8], 16"), Some(FindingKind::Misaligned));
    assert_eq!(kind("[%data], 8"), Some(FindingKind::Misaligned));
}

#[test]
fn mbarriers_are_reached_by_generic_addresses() {
    let body = "
        .shared .align 8 .b64 gate;
        mov.u64 %x0, gate; cvta.shared.u64 %x0, %x0; mbarrier.init.b64 [%x0], 1; mbarrier.arrive.b64 %x1, [%x0];
        mbarrier.test_wait.b64 %p, [%x0], %x1; selp.u32 %r0, 1, 0, %p;
        mbarrier.test_wait.parity.shared.b64 %p, [gate], 0; selp.u32 %r1, 1, 0, %p;
        st.global.v2.u32 [%data], {%r0, %r1};";
    assert_eq!(results(body), [1, 1]);
}

#[test]
fn a_thread_waits_only_for_its_own_groups() {
    // Lanes below 16 commit a second, empty group, so that `wait_group 1` completes their copies.
    let body = "
        .shared .align 16 .b8 tile[128];
        mov.u32 %r0, %laneid; mov.u32 %r1, tile; mad.lo.u32 %r1, %r0, 4, %r1; mad.wide.u32 %x0, %r0, 4, %data;
        setp.lt.u32 %p, %r0, 16; cp.async.ca.shared.global [%r1], [%x0], 4; cp.async.commit_group;
        @%p cp.async.commit_group;
        cp.async.wait_group 1;
        @%p ld.shared.u32 %r2, [%r1]; cp.async.wait_all;";
    launch(&kernel("", body), LaunchConfig::linear(1, 32), &mut words(32, 1))
        .expect("lanes below 16 may read");
    let others = body.replace("@%p ld", "@!%p ld");
    let finding = launch(&kernel("", &others), LaunchConfig::linear(1, 32), &mut words(32, 1));
    assert_eq!(finding.expect_err("the others may not").thread, [16, 0, 0]);
}

#[test]
fn copies_fill_the_rest_with_zeros() {
    let body = "
        .shared .align 16 .b8 tile[64];
        mov.u32 %r0, 8; setp.eq.u32 %p, %r0, 8; createpolicy.fractional.L2::evict_first.b64 %x0, 1.0;
        cp.async.cg.shared.global [tile], [%data], 16, %r0;
        cp.async.cg.shared.global.L2::cache_hint [tile+16], [%data], 16, 4, %x0;
        cp.async.ca.shared.global [tile+32], [%data+4], 4, %p;
        cp.async.wait_all;
        ld.shared.v4.u32 {%r1, %r2, %r3, %r4}, [tile]; ld.shared.v2.u32 {%r5, %r6}, [tile+16]; ld.shared.u32 %r7, [tile+32];
        st.global.v4.u32 [%data], {%r2, %r3, %r4, %r5}; st.global.v2.u32 [%data+16], {%r6, %r7};";
    assert_eq!(results(body), [0xdead, 0, 0, 0xdead, 0, 0]);
    let too_many = body.replace("mov.u32 %r0, 8;", "mov.u32 %r0, 17;");
    assert_eq!(finding(&too_many).kind, FindingKind::OutOfBounds);
    // The source of a copy that reads nothing is not checked.
    let nothing = ".shared .align 16 .b8 tile[64];\ncp.async.cg.shared.global [tile], [%data+1000000], 16, 0; cp.async.wait_all;";
    let mut data = words(4, 0);
    launch(&kernel("", nothing), THREAD, &mut data).expect("no finding");
    let something = nothing.replace("16, 0;", "16, 4;");
    assert_eq!(finding(&something).kind, FindingKind::OutOfBounds);
    assert_eq!(finding(&nothing.replace("[tile]", "[tile+8]")).kind, FindingKind::Misaligned);
}

#[test]
fn completed_copies_arrive_at_an_mbarrier() {
    // The mbarrier expects 32 arrivals. An arrival with `.noinc` is one of the 32; an arrival without `.noinc` is
    // additional.
    let body = |arrive: &str, wait: &str| {
        format!(
            ".shared .align 16 .b8 tile[512];\n.shared .align 8 .b64 gate;
            mov.u32 %r0, %laneid; setp.eq.u32 %p, %r0, 0; @%p mbarrier.init.shared.b64 [gate], 32; bar.warp.sync -1;
            mov.u32 %r1, tile; mad.lo.u32 %r1, %r0, 16, %r1; mad.wide.u32 %x0, %r0, 4, %data;
            cp.async.ca.shared.global [%r1], [%x0], 4;
            {arrive}
            {wait}
            xor.b32 %r2, %r0, 31; mov.u32 %r1, tile; mad.lo.u32 %r1, %r2, 16, %r1; ld.shared.u32 %r3, [%r1];
            st.global.u32 [%x0], %r3;"
        )
    };
    let outcome = |arrive: &str, wait: &str| {
        let mut data: Vec<u32> = (0..32).collect();
        let ran = launch(&kernel("", &body(arrive, wait)), LaunchConfig::linear(1, 32), &mut data);
        ran.map(|_| data[3]).map_err(|finding| finding.kind)
    };
    let plain = "cp.async.mbarrier.arrive.shared.b64 [gate]; mbarrier.arrive.shared.b64 _, [gate];";
    let early = "mbarrier.arrive.shared.b64 _, [gate]; cp.async.mbarrier.arrive.shared.b64 [gate];";
    let counted = "cp.async.mbarrier.arrive.noinc.shared::cta.b64 [gate];";
    assert_eq!(outcome(plain, WAIT), Ok(28));
    assert_eq!(outcome(counted, WAIT), Ok(28));
    assert_eq!(outcome(counted, ""), Err(FindingKind::AsyncCopy));
    // The phase completes before the copies can delay it, so the wait does not cover the copies.
    assert_eq!(outcome(early, WAIT), Err(FindingKind::AsyncCopy));
    assert_eq!(outcome("cp.async.mbarrier.arrive.shared.b64 [gate];", WAIT), Err(FindingKind::Deadlock));
}

#[test]
fn every_phase_that_waits_for_a_copy_happens_after_the_copy() {
    // Warp 0 copies two tiles; the phase of each gate waits for its tile and the tiles before. Warp 1 waits for the second
    // gate, which completes both copies. Warp 2 waits for a gate and reads a tile.
    let read = |gate: u32, tile: u32| {
        let body = format!(
            ".shared .align 16 .b8 tiles[1024];\n.shared .align 8 .b64 gates[2];
            mov.u32 %r0, %tid.x; and.b32 %r1, %r0, 31; setp.eq.u32 %p, %r0, 0;
            @%p mbarrier.init.shared.b64 [gates], 32;
            @%p mbarrier.init.shared.b64 [gates+8], 32;
            bar.sync 0;
            mov.u32 %r2, tiles; mad.lo.u32 %r2, %r1, 16, %r2; mad.wide.u32 %x0, %r1, 16, %data;
            setp.ge.u32 %p, %r0, 32; @%p bra READ;
            cp.async.cg.shared.global [%r2], [%x0], 16;
            cp.async.mbarrier.arrive.noinc.shared.b64 [gates];
            cp.async.cg.shared.global [%r2+512], [%x0+512], 16;
            cp.async.mbarrier.arrive.noinc.shared.b64 [gates+8];
            bra END;
            READ: mov.u32 %r3, gates; setp.lt.u32 %p, %r0, 64; selp.b32 %r4, 8, {gate}, %p; add.u32 %r3, %r3, %r4;
            selp.b32 %r4, 512, {tile}, %p; add.u32 %r2, %r2, %r4;
            WAIT: mbarrier.test_wait.parity.shared.b64 %p, [%r3], 0; @!%p bra WAIT;
            ld.shared.u32 %r5, [%r2];
            LAST: mbarrier.test_wait.parity.shared.b64 %p, [gates], 0; @!%p bra LAST;
            sub.u32 %r0, %r0, 32; mad.wide.u32 %x0, %r0, 4, %data; st.global.u32 [%x0+1024], %r5;
            END: ret;"
        );
        let mut data: Vec<u32> = (0..256 + 64).collect();
        let ran = launch(&kernel("", &body), LaunchConfig::linear(1, 96), &mut data);
        ran.map(|_| [data[256 + 1], data[256 + 33]]).map_err(|finding| finding.kind)
    };
    assert_eq!(read(0, 0), Ok([132, 4]));
    assert_eq!(read(8, 0), Ok([132, 4]));
    assert_eq!(read(8, 512), Ok([132, 132]));
    // The first gate does not wait for the second tile, although it has arrived.
    assert_eq!(read(0, 512), Err(FindingKind::Race));
}

/// Warp 0 copies six tiles of 128 words through a ring of two stages; warp 1 sums them.
const RING: &str = "
    .shared .align 16 .b8 ring[1024];\n.shared .align 8 .b64 full[2];\n.shared .align 8 .b64 empty[2];
    mov.u32 %r0, %tid.x; setp.ne.u32 %p, %r0, 0; @%p bra READY;
    mbarrier.init.shared::cta.b64 [full], 1; mbarrier.init.shared::cta.b64 [full+8], 1;
    mbarrier.init.shared::cta.b64 [empty], 32; mbarrier.init.shared::cta.b64 [empty+8], 32;
    fence.mbarrier_init.release.cluster;
    READY: bar.sync 0;
    mov.u32 %r1, 0; mov.u32 %r9, 0; setp.ge.u32 %p, %r0, 32; @%p bra CONSUME;
    setp.ne.u32 %p, %r0, 0; @%p bra END;
    FILL: and.b32 %r2, %r1, 1; shr.u32 %r3, %r1, 1; and.b32 %r3, %r3, 1; xor.b32 %r4, %r3, 1;
    mov.u32 %r5, empty; mad.lo.u32 %r5, %r2, 8, %r5; mov.u32 %r6, full; mad.lo.u32 %r6, %r2, 8, %r6;
    mov.u32 %r7, ring; mad.lo.u32 %r7, %r2, 512, %r7; mad.wide.u32 %x0, %r1, 512, %data;
    EMPTY: mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 %p, [%r5], %r4;
    @!%p bra EMPTY;
    mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [%r6], 512;
    cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r7], [%x0], 512, [%r6];
    add.u32 %r1, %r1, 1; setp.lt.u32 %p, %r1, 6; @%p bra FILL;
    bra END;
    CONSUME: sub.u32 %r10, %r0, 32;
    TAKE: and.b32 %r2, %r1, 1; shr.u32 %r3, %r1, 1; and.b32 %r3, %r3, 1;
    mov.u32 %r5, empty; mad.lo.u32 %r5, %r2, 8, %r5; mov.u32 %r6, full; mad.lo.u32 %r6, %r2, 8, %r6;
    mov.u32 %r7, ring; mad.lo.u32 %r7, %r2, 512, %r7; mad.lo.u32 %r7, %r10, 16, %r7;
    FULL: mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 %p, [%r6], %r3;
    @!%p bra FULL;
    ld.shared.v4.u32 {%r12, %r13, %r14, %r15}, [%r7];
    add.u32 %r9, %r9, %r12; add.u32 %r9, %r9, %r13; add.u32 %r9, %r9, %r14; add.u32 %r9, %r9, %r15;
    mbarrier.arrive.release.cta.shared::cta.b64 _, [%r5];
    add.u32 %r1, %r1, 1; setp.lt.u32 %p, %r1, 6; @%p bra TAKE;
    mad.wide.u32 %x0, %r10, 4, %data; red.global.add.u32 [%x0+3072], %r9;
    END: ret;";

fn run_ring(from: &str, to: &str, ctas: u32) -> (Result<(), Box<Finding>>, Vec<u32>) {
    assert!(RING.contains(from), "{from}");
    let text = kernel("", &RING.replace(from, to));
    let mut data: Vec<u32> = (0..6 * 128 + 32).map(|word| if word < 768 { word } else { 0 }).collect();
    let ran = launch(&text, LaunchConfig::linear(ctas, 64), &mut data).map(|_| ());
    (ran, data)
}

#[test]
fn a_ring_of_bulk_copies_computes_the_sum() {
    let (ran, data) = run_ring("", "", 5);
    ran.unwrap_or_else(|finding| panic!("{finding}"));
    for lane in 0..32 {
        let want: u32 = (0..6).flat_map(|tile| (0..4).map(move |word| tile * 128 + lane * 4 + word)).sum();
        assert_eq!(data[768 + lane as usize], 5 * want);
    }
}

#[test]
fn mistakes_in_a_ring_are_found() {
    let mutant = |from: &str, to: &str| run_ring(from, to, 2).0.expect_err(from);
    let kinds = [
        // The consumer waits for the wrong phase, does not wait, or tests only once.
        ("[%r6], %r3;", "[%r6], 1;", FindingKind::AsyncCopy),
        ("FULL: mbarrier", "FULL: setp.eq.u32 %p, 0, 0; @!%p mbarrier", FindingKind::AsyncCopy),
        ("@!%p bra FULL;", "", FindingKind::AsyncCopy),
        // The producer does not wait for an empty stage, or waits for the wrong phase of the stage.
        ("@!%p bra EMPTY;", "", FindingKind::Mbarrier),
        ("[%r5], %r4;", "[%r5], %r3;", FindingKind::Deadlock),
        // Expected bytes never arrive, bytes arrive that were not expected, or arrivals are missing.
        ("[%r6], 512;", "[%r6], 528;", FindingKind::Deadlock),
        ("[%r6], 512;", "[%r6], 496;", FindingKind::Deadlock),
        ("[empty], 32", "[empty], 33", FindingKind::Deadlock),
        ("[full], 1;", "[full], 2;", FindingKind::Deadlock),
    ];
    for (from, to, kind) in kinds {
        let finding = mutant(from, to);
        assert_eq!(finding.kind, kind, "{to}: {finding}");
    }
}

#[test]
fn a_deadlock_names_the_waiting_warps_and_mbarriers() {
    let (ran, _) = run_ring("[%r6], 512;", "[%r6], 528;", 1);
    expect!["deadlock in kernel `kernel` (PTX line 27: `EMPTY: mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 %p, [%r5], %r4;`) by thread (0, 0, 0) of CTA (0, 0, 0): warp 0 waits for the phase of parity 0 of the mbarrier at shared 0xc10 (`empty`), which is in phase 0 with 32 arrivals and 0 bytes pending; warp 1 waits for the phase of parity 0 of the mbarrier at shared 0x800 (`full`), which is in phase 0 with 0 arrivals and 16 bytes pending"].assert_eq(&ran.expect_err("16 bytes never come").to_string());
    let body = "
        .shared .align 8 .b64 gate;
        mov.u32 %r0, %tid.x; setp.eq.u32 %p, %r0, 0; @%p mbarrier.init.shared.b64 [gate], 64; bar.sync 0;
        setp.ge.u32 %p, %r0, 32; @%p bra OTHER;
        mbarrier.arrive.shared.b64 %x0, [gate];
        WAIT: mbarrier.test_wait.shared.b64 %p, [gate], %x0; @!%p bra WAIT;
        OTHER: bar.sync 1;";
    let finding = launch(&kernel("", body), LaunchConfig::linear(1, 64), &mut words(1, 0));
    expect!["warp 0 waits for phase 0 of the mbarrier at shared 0x0 (`gate`), which is in phase 0 with 32 arrivals and 0 bytes pending; warp 1 waits at barrier 1, where 32 of 64 threads are"].assert_eq(&finding.expect_err("warp 1 never arrives").detail);
}

#[test]
fn a_long_wait_is_not_a_deadlock() {
    // Warp 1 computes for longer than its time slice before it arrives at the mbarrier; warp 0 polls meanwhile.
    let body = "
        .shared .align 8 .b64 gate;
        mov.u32 %r0, %tid.x; setp.eq.u32 %p, %r0, 0; @%p mbarrier.init.shared.b64 [gate], 32; bar.sync 0;
        setp.ge.u32 %p, %r0, 32; @%p bra WORK;
        WAIT: mbarrier.try_wait.parity.shared.b64 %p, [gate], 0; @!%p bra WAIT;
        bra END;
        WORK: mov.u32 %r1, 0;
        LOOP: add.u32 %r1, %r1, 1; setp.lt.u32 %p, %r1, 400000; @%p bra LOOP;
        mbarrier.arrive.shared.b64 _, [gate]; bar.sync 1, 32;
        END: ret;";
    launch(&kernel("", body), LaunchConfig::linear(1, 64), &mut words(1, 0)).expect("it only takes long");
}

/// Two copies signal one mbarrier, whose phase waits for the bytes of one.
#[test]
fn a_phase_does_not_wait_for_more_bytes_than_it_expects() {
    let body = |expected: u32, read: u32| {
        format!(
            ".shared .align 16 .b8 tile[128];\n.shared .align 8 .b64 gate;
            mbarrier.init.shared.b64 [gate], 1; fence.mbarrier_init.release.cluster;
            mbarrier.arrive.expect_tx.shared::cta.b64 _, [gate], {expected};
            cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [tile], [%data], 64, [gate];
            cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [tile+64], [%data+64], 64, [gate];
            {WAIT} ld.shared.u32 %r1, [tile+{read}]; st.global.u32 [%data], %r1;"
        )
    };
    let outcome =
        |body: &str| launch(&kernel("", body), THREAD, &mut words(32, 1)).map_err(|finding| finding.kind);
    assert!(outcome(&body(128, 64)).is_ok());
    assert_eq!(outcome(&body(64, 64)).err(), Some(FindingKind::AsyncCopy));
    assert_eq!(outcome(&body(192, 64)).err(), Some(FindingKind::Deadlock));
}
