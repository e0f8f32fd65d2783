//! Pairs of accesses with and without a happens-before relation.

use bespoke_emulator::{Checks, Finding, FindingKind, LaunchConfig, Options};
use expect_test::{Expect, expect};

use crate::harness::{kernel, launch_with, words};

/// Runs `body` on 64 words of value 1 in global memory. `%r0` is the thread's number, `%r1` the address of its word of
/// the shared array `cell`, and `%x0` the address of its word of `data`. `%p` is true in thread 0.
fn run(body: &str, config: LaunchConfig) -> Result<Vec<u32>, Box<Finding>> {
    run_with(body, config, Checks::ALL)
}

fn run_with(body: &str, config: LaunchConfig, checks: Checks) -> Result<Vec<u32>, Box<Finding>> {
    let before = ".shared .align 16 .b32 cell[128]; .shared .align 8 .b64 gate; .shared .b32 flag;
        mov.u32 %r0, %tid.x; mov.u32 %r1, cell; mad.lo.u32 %r1, %r0, 4, %r1; mad.wide.u32 %x0, %r0, 4, %data;
        setp.eq.u32 %p, %r0, 0;\n.loc 1 20 1\n";
    let mut data = words(64, 1);
    // One worker makes the order of the two accesses in a finding deterministic.
    let options = Options { threads: 1, instruction_limit: 1 << 16, checks, ..Options::default() };
    launch_with(&kernel("", &format!("{before}{body}")), config, &mut data, &options).map(|_| data)
}

const WARP: LaunchConfig =
    LaunchConfig { grid: [1; 3], block: [32, 1, 1], dynamic_shared: 0, cluster: None, cooperative: false };
const WARPS: LaunchConfig =
    LaunchConfig { grid: [1; 3], block: [64, 1, 1], dynamic_shared: 0, cluster: None, cooperative: false };
const CTAS: LaunchConfig =
    LaunchConfig { grid: [2, 1, 1], block: [32, 1, 1], dynamic_shared: 0, cluster: None, cooperative: false };

#[track_caller]
fn clean(config: LaunchConfig, body: &str) {
    run(body, config).unwrap_or_else(|finding| panic!("{finding}"));
}

#[track_caller]
fn races(config: LaunchConfig, body: &str) -> Box<Finding> {
    let finding = run(body, config).expect_err("nothing orders these");
    assert_eq!(finding.kind, FindingKind::Race, "{finding}");
    finding
}

#[track_caller]
fn reports(config: LaunchConfig, body: &str, expected: Expect) {
    expected.assert_eq(&races(config, body).to_string());
}

/// Body in which every thread writes its word, executes `between`, and reads the word of thread `%r0 ^ mask`.
fn exchange(between: &str, mask: u32) -> String {
    format!(
        "add.u32 %r9, %r0, 1; st.shared.u32 [%r1], %r0; bar.sync 0;\n.loc 1 21 1\nst.shared.u32 [%r1], %r9;\n{between}\n.loc 1 22 1\nxor.b32 %r2, %r0, {mask}; mov.u32 %r3, cell;
        mad.lo.u32 %r2, %r2, 4, %r3; ld.shared.u32 %r4, [%r2];\n"
    )
}

#[test]
fn barriers_order_their_participants() {
    clean(WARPS, &exchange("bar.sync 0;", 32));
    clean(WARPS, &exchange("bar.red.popc.u32 %r9, 0, %p;", 32));
    clean(WARPS, &exchange("barrier.sync 1, 64;", 32));
    clean(WARPS, &exchange("bar.warp.sync -1;", 1));
    races(WARPS, &exchange("bar.warp.sync -1;", 32));
    races(WARPS, &exchange("bar.sync %r9, 32;".replace("%r9", "1").as_str(), 32));
    reports(
        WARPS,
        &exchange("", 32),
        expect![
            "race in kernel `kernel` at gemv.rs:21 (PTX line 19: `st.shared.u32 [%r1], %r9;`) by thread (32, 0, 0) of CTA (0, 0, 0): 4-byte store to shared memory around 0x80: no happens-before relation to the earlier access; the access is inside `cell` (0x0, 512 bytes); the other is the read at gemv.rs:22 (PTX line 23: `mad.lo.u32 %r2, %r2, 4, %r3; ld.shared.u32 %r4, [%r2];`) by thread (0, 0, 0) of CTA (0, 0, 0)"
        ],
    );
    reports(
        WARP,
        &exchange("", 1),
        expect![
            "race in kernel `kernel` at gemv.rs:22 (PTX line 23: `mad.lo.u32 %r2, %r2, 4, %r3; ld.shared.u32 %r4, [%r2];`) by thread (0, 0, 0) of CTA (0, 0, 0): 4-byte load from shared memory around 0x4: no happens-before relation to the earlier access; the access is inside `cell` (0x0, 512 bytes); the other is the write at gemv.rs:21 (PTX line 19: `st.shared.u32 [%r1], %r9;`) by thread (1, 0, 0) of CTA (0, 0, 0)"
        ],
    );
}

/// Body in which thread 0 initialises an mbarrier in `cell` at which every thread arrives and then waits.
fn phase(before: &str, after: &str) -> String {
    format!(
        "{before} @%p mbarrier.init.shared.b64 [cell], 64; bar.sync 0;
        mbarrier.arrive.shared.b64 _, [cell];
        WAIT: mbarrier.test_wait.parity.shared.b64 %q, [cell], 0; @!%q bra WAIT;
        {after}"
    )
}

#[test]
fn an_mbarrier_is_invalidated_after_all_its_uses() {
    clean(WARPS, &phase("", "bar.sync 0; @%p mbarrier.inval.shared.b64 [cell];"));
    // The wait orders the other threads' arrivals before the invalidation, and not their waits.
    reports(
        WARPS,
        &phase("", "@%p mbarrier.inval.shared.b64 [cell];"),
        expect![
            "race in kernel `kernel` at gemv.rs:20 (PTX line 20: `@%p mbarrier.inval.shared.b64 [cell];`) by thread (0, 0, 0) of CTA (0, 0, 0): `mbarrier.inval` of the mbarrier at shared 0x0 (`cell`), which is not ordered after a use by another thread: synchronise the two threads in between; the access is inside `cell` (0x0, 512 bytes); the other is the read at gemv.rs:20 (PTX line 19: `WAIT: mbarrier.test_wait.parity.shared.b64 %q, [cell], 0; @!%q bra WAIT;`) by thread (1, 0, 0) of CTA (0, 0, 0)"
        ],
    );
    let others_arrive = "@%p mbarrier.init.shared.b64 [cell], 32; bar.sync 0;
        setp.ge.u32 %q, %r0, 32; @%q mbarrier.arrive.shared.b64 _, [cell]; @!%p bra END;
        WAIT: mbarrier.test_wait.parity.shared.b64 %q, [cell], 0; @!%q bra WAIT;
        mbarrier.inval.shared.b64 [cell]; st.shared.u32 [cell], 1;
        END: ret;";
    clean(WARPS, others_arrive);
}

#[test]
fn the_bytes_of_an_mbarrier_are_written_when_it_begins_and_ends() {
    let read = "st.shared.u32 [%r1], 1; bar.sync 0; ld.shared.u32 %r2, [cell];";
    clean(WARPS, &phase(&format!("{read} bar.sync 0;"), ""));
    reports(
        WARPS,
        &phase(read, ""),
        expect![
            "race in kernel `kernel` at gemv.rs:20 (PTX line 17: `st.shared.u32 [%r1], 1; bar.sync 0; ld.shared.u32 %r2, [cell]; @%p mbarrier.init.shared.b64 [cell], 64; bar.sync 0;`) by thread (0, 0, 0) of CTA (0, 0, 0): 8-byte store to shared memory around 0x0: no happens-before relation to the earlier access; the access is inside `cell` (0x0, 512 bytes); the other is the read at gemv.rs:20 (PTX line 17: `st.shared.u32 [%r1], 1; bar.sync 0; ld.shared.u32 %r2, [cell]; @%p mbarrier.init.shared.b64 [cell], 64; bar.sync 0;`) by thread (1, 0, 0) of CTA (0, 0, 0)"
        ],
    );
    let write = "@%p st.shared.u32 [cell], 1;";
    let ended = "setp.eq.u32 %q, %r0, 32; bar.sync 0; @%q mbarrier.inval.shared.b64 [cell];";
    clean(WARPS, &phase("", &format!("{ended} bar.sync 0; {write}")));
    reports(
        WARPS,
        &phase("", &format!("{ended} {write}")),
        expect![
            "race in kernel `kernel` at gemv.rs:20 (PTX line 20: `setp.eq.u32 %q, %r0, 32; bar.sync 0; @%q mbarrier.inval.shared.b64 [cell]; @%p st.shared.u32 [cell], 1;`) by thread (0, 0, 0) of CTA (0, 0, 0): 4-byte store to shared memory around 0x0: no happens-before relation to the earlier access; the access is inside `cell` (0x0, 512 bytes); the other is the write at gemv.rs:20 (PTX line 20: `setp.eq.u32 %q, %r0, 32; bar.sync 0; @%q mbarrier.inval.shared.b64 [cell]; @%p st.shared.u32 [cell], 1;`) by thread (32, 0, 0) of CTA (0, 0, 0)"
        ],
    );
}

#[test]
fn a_bulk_copy_to_the_bytes_of_a_former_mbarrier_needs_a_proxy_fence() {
    let body = |fence: &str| {
        format!(
            "@!%p bra END; mbarrier.init.shared.b64 [cell], 1; mbarrier.inval.shared.b64 [cell];
            mbarrier.init.shared.b64 [gate], 1; fence.mbarrier_init.release.cluster; {fence}
            mbarrier.arrive.expect_tx.shared::cta.b64 _, [gate], 16;
            cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [cell], [%data], 16, [gate];
            WAIT: mbarrier.try_wait.parity.shared::cta.b64 %q, [gate], 0; @!%q bra WAIT;
            END: ret;"
        )
    };
    clean(WARP, &body("fence.proxy.async.shared::cta;"));
    clean(WARP, &body("fence.proxy.async;"));
    assert_eq!(
        run(&body("fence.proxy.async.global;"), WARP).expect_err("shared").kind,
        FindingKind::ProxyFence
    );
    assert_eq!(run(&body(""), WARP).expect_err("a finding").kind, FindingKind::ProxyFence);
    let unchecked = Checks { proxy_fences: false, ..Checks::ALL };
    run_with(&body(""), WARP, unchecked).expect("no finding");
    let read = body("").replace("END: ret;", "END: ld.shared.u32 %r3, [cell];");
    assert_eq!(run_with(&read, WARP, unchecked).expect_err("a race").kind, FindingKind::Race);
}

#[test]
fn warp_barriers_order_only_lanes_of_the_mask() {
    let half = "setp.lt.u32 %q, %r0, 16; @!%q bra REST; bar.warp.sync 0xffff; REST:";
    let reader = "@!%q bra END; xor.b32 %r2, %r0, 1; mov.u32 %r3, cell; mad.lo.u32 %r2, %r2, 4, %r3; ld.shared.u32 %r4, [%r2]; END:";
    clean(WARP, &format!("st.shared.u32 [%r1], %r0; {half} {reader}"));
    let others = reader.replace("@!%q", "@%q");
    assert_eq!(races(WARP, &format!("st.shared.u32 [%r1], %r0; {half} {others}")).thread, [16, 0, 0]);
}

#[test]
fn shuffles_and_votes_do_not_order_memory() {
    races(WARP, &exchange("shfl.sync.bfly.b32 %r5, %r0, 1, 31, -1;", 1));
    races(WARP, &exchange("vote.sync.ballot.b32 %r5, %p, -1;", 1));
    races(WARP, &exchange("redux.sync.add.u32 %r5, %r0, -1;", 1));
}

#[test]
fn a_write_after_reads_needs_a_barrier() {
    let body = |between: &str| {
        format!(
            "mov.u32 %r9, 77; @%p st.shared.u32 [cell], %r0; bar.sync 0; ld.shared.u32 %r2, [cell]; {between} @%p st.shared.u32 [cell], %r9;"
        )
    };
    clean(WARPS, &body("bar.sync 0;"));
    reports(
        WARPS,
        &body(""),
        expect![
            "race in kernel `kernel` at gemv.rs:20 (PTX line 17: `mov.u32 %r9, 77; @%p st.shared.u32 [cell], %r0; bar.sync 0; ld.shared.u32 %r2, [cell];  @%p st.shared.u32 [cell], %r9;`) by thread (0, 0, 0) of CTA (0, 0, 0): 4-byte store to shared memory around 0x0: no happens-before relation to the earlier access; the access is inside `cell` (0x0, 512 bytes); the other is the read at gemv.rs:20 (PTX line 17: `mov.u32 %r9, 77; @%p st.shared.u32 [cell], %r0; bar.sync 0; ld.shared.u32 %r2, [cell];  @%p st.shared.u32 [cell], %r9;`) by thread (1, 0, 0) of CTA (0, 0, 0)"
        ],
    );
    // The race with an earlier reader is found, not only a race with the last reader.
    let other = body("bar.warp.sync -1; setp.eq.u32 %p, %r0, 32;");
    assert_eq!(races(WARPS, &other).other.and_then(|other| other.thread), Some([0, 0, 0]));
}

#[test]
fn bar_arrive_releases_but_does_not_acquire() {
    // Warp 0 writes and warp 1 reads; in some cases one of the warps executes only `bar.arrive`.
    let body = |writer: &str, reader: &str| {
        format!(
            "setp.ge.u32 %q, %r0, 32; @%q bra READ; st.shared.u32 [%r1], %r0; {writer} ret;
            READ: {reader} ld.shared.u32 %r2, [%r1-128];"
        )
    };
    clean(WARPS, &body("bar.arrive 1, 64;", "bar.sync 1, 64;"));
    clean(WARPS, &body("bar.sync 1, 64;", "bar.sync 1, 64;"));
    races(WARPS, &body("bar.sync 1, 64;", "bar.arrive 1, 64;"));
}

#[test]
fn lanes_of_one_store_may_write_equal_values() {
    clean(WARP, "mov.u32 %r2, 7; st.shared.u32 [cell], %r2;");
    reports(
        WARP,
        "st.shared.u32 [cell], %r0;",
        expect![
            "race in kernel `kernel` at gemv.rs:20 (PTX line 17: `st.shared.u32 [cell], %r0;`) by thread (1, 0, 0) of CTA (0, 0, 0): lanes 0 and 1 of this store write different values to the same address"
        ],
    );
    races(
        WARP,
        "and.b32 %r2, %r0, 1; mad.lo.u32 %r2, %r2, 2, %r1; mov.b64 %x1, {%r0, %r0}; and.b32 %r2, %r2, 0xff8; st.shared.u64 [%r2], %x1;",
    );
}

#[test]
fn races_are_found_by_byte() {
    let body = |end: &str| {
        format!(
            "mov.u32 %r2, cell; add.u32 %r2, %r2, %r0; st.shared.u8 [%r2], %r0; ld.shared.u8 %r3, [%r2]; {end}"
        )
    };
    clean(WARPS, &body(""));
    clean(WARPS, &body("bar.sync 0; ld.shared.u32 %r3, [cell]; bar.sync 0; @%p st.shared.u32 [cell], %r0;"));
    races(WARPS, &body("ld.shared.u32 %r3, [cell];"));
    races(WARPS, &body("@%p st.shared.u16 [cell], %r0;"));
}

#[test]
fn atomic_operations_of_sufficient_scope_do_not_race() {
    clean(
        WARPS,
        "@%p st.shared.u32 [flag], %r0; bar.sync 0; atom.shared.add.u32 %r2, [flag], 1; bar.sync 0; ld.shared.u32 %r3, [flag];",
    );
    races(
        WARPS,
        "atom.shared.exch.b32 %r2, [%r1], 1; bar.warp.sync -1; ld.shared.u32 %r3, [cell];"
            .replace("exch.b32 %r2, [%r1], 1", "exch.b32 %r2, [cell], 1")
            .replace("atom.shared", "@%p st.shared.u32 [cell], %r0; bar.sync 0; atom.shared")
            .as_str(),
    );
    clean(CTAS, "red.global.add.u32 [%data], 1;");
    clean(CTAS, "atom.global.relaxed.gpu.add.u32 %r2, [%data], 1;");
    races(CTAS, "atom.global.relaxed.cta.add.u32 %r2, [%data], 1;");
    races(CTAS, "red.global.add.u32 [%data], 1; bar.warp.sync -1; ld.global.u32 %r2, [%data];");
}

/// Body in which warp 0 writes a word and then a flag, and warp 1 polls the flag before it reads the word.
fn flagged(write: &str, read: &str) -> String {
    format!(
        "mov.u32 %r2, 0; mov.u32 %r3, 1; @%p st.shared.u32 [flag], %r2; bar.sync 0;
        setp.ge.u32 %q, %r0, 32; @%q bra POLL; @!%p ret; st.shared.u32 [cell], %r3; {write} ret;
        POLL: {read} setp.eq.u32 %q, %r4, 0; @%q bra POLL; AFTER ld.shared.u32 %r5, [cell];"
    )
}

#[test]
fn a_flag_orders_with_release_and_acquire() {
    let both = |write: &str, read: &str, after: &str| flagged(write, read).replace("AFTER", after);
    let (release, acquire) =
        ("st.release.cta.shared.u32 [flag], %r3;", "ld.acquire.cta.shared.u32 %r4, [flag];");
    let (volatile, poll) = ("st.volatile.shared.u32 [flag], %r3;", "ld.volatile.shared.u32 %r4, [flag];");
    let fence = "membar.cta;";
    let fenced = format!("{fence} {volatile}");
    clean(WARPS, &both(release, acquire, ""));
    clean(WARPS, &both(&fenced, poll, fence));
    clean(WARPS, &both(&fenced, acquire, ""));
    clean(
        WARPS,
        &both(
            "atom.release.cta.shared.exch.b32 %r4, [flag], 1;",
            "atom.acquire.cta.shared.or.b32 %r4, [flag], 0;",
            "",
        ),
    );
    races(WARPS, &both(volatile, poll, fence));
    races(WARPS, &both(&fenced, poll, ""));
    races(WARPS, &both(release, poll, ""));
    races(WARPS, &both("st.relaxed.cta.shared.u32 [flag], %r3;", acquire, ""));
    // Weak accesses to the flag are a race.
    assert_eq!(
        races(WARPS, &both(&format!("{fence} st.shared.u32 [flag], %r3;"), poll, fence)).address,
        Some(0xa08)
    );
}

/// Body in which every CTA writes its word and increments a counter; the last CTA reads all words and resets the
/// counter.
fn join(before: &str, after: &str) -> String {
    format!(
        "mov.u32 %r2, %ctaid.x; mad.wide.u32 %x1, %r2, 4, %data; @!%p ret; st.global.u32 [%x1+128], %r2;
        {before} atom.global.add.u32 %r3, [%data], 1; {after} setp.ne.u32 %q, %r3, 2; @%q ret;
        ld.global.u32 %r4, [%data+128]; ld.global.u32 %r5, [%data+132]; mov.u32 %r6, 1; st.global.u32 [%data], %r6;"
    )
}

#[test]
fn a_counter_orders_ctas() {
    let fence = "fence.acq_rel.gpu;";
    clean(CTAS, &join(fence, fence));
    reports(
        CTAS,
        &join("", fence),
        expect![
            "race in kernel `kernel` at gemv.rs:20 (PTX line 19: `ld.global.u32 %r4, [%data+128]; ld.global.u32 %r5, [%data+132]; mov.u32 %r6, 1; st.global.u32 [%data], %r6;`) by thread (0, 0, 0) of CTA (1, 0, 0): read of global memory around 0x7f0000000080: no happens-before relation to the access of another CTA; the access is inside `data` (0x7f0000000000, 256 bytes); the other is the write at gemv.rs:20 (PTX line 17: `mov.u32 %r2, %ctaid.x; mad.wide.u32 %x1, %r2, 4, %data; @!%p ret; st.global.u32 [%x1+128], %r2;`) by thread (0, 0, 0) of CTA (0, 0, 0)"
        ],
    );
    races(CTAS, &join(fence, ""));
    races(CTAS, &join("fence.acq_rel.cta;", fence));
    let ordered = join("", "").replace("atom.global", "atom.acq_rel.gpu.global");
    clean(CTAS, &ordered);
    races(CTAS, &ordered.replace("acq_rel", "acquire"));
    races(CTAS, &ordered.replace("acq_rel", "release"));
    // The fence also releases the writes of other threads that a barrier before the fence orders.
    let by_all = |between: &str| {
        format!(
            "mov.u32 %r2, %ctaid.x; mad.wide.u32 %x1, %r2, 120, %x0; setp.lt.u32 %q, %r0, 30; @%q st.global.u32 [%x1], %r2;
            {between} atom.global.add.u32 %r3, [%data+252], 1; {fence} setp.ne.u32 %q, %r3, 2; @%q ret;
            ld.global.u32 %r4, [%data+8]; ld.global.u32 %r5, [%data+128];"
        )
    };
    clean(CTAS, &by_all("bar.sync 0; @!%p ret; fence.acq_rel.gpu;"));
    races(CTAS, &by_all("fence.acq_rel.gpu; bar.sync 0; @!%p ret;"));
    races(CTAS, &by_all("@!%p ret; fence.acq_rel.gpu;"));
}

/// Three CTAs read a word, and all but one release afterwards; a fourth CTA acquires and writes the word.
#[test]
fn a_write_races_with_the_one_cta_that_did_not_release() {
    let read = |silent: &str| {
        format!(
            "@!%p ret; mov.u32 %r2, %ctaid.x; setp.eq.u32 %q, %r2, 3; @%q bra LAST; ld.global.u32 %r3, [%data+128];
            setp.eq.u32 %q, %r2, {silent}; @%q ret; atom.add.release.gpu.global.u32 %r3, [%data], 1; ret;
            LAST: ld.acquire.gpu.global.u32 %r3, [%data]; st.global.u32 [%data+128], %r3;"
        )
    };
    let four = LaunchConfig { grid: [4, 1, 1], ..CTAS };
    clean(four, &read("4"));
    for silent in ["0", "1", "2"] {
        races(four, &read(silent));
    }
}

#[test]
fn unordered_accesses_of_ctas_race() {
    clean(CTAS, "ld.global.u32 %r2, [%x0];");
    reports(
        CTAS,
        ".loc 1 21 1\nst.global.u32 [%x0], %r0;",
        expect![
            "race in kernel `kernel` at gemv.rs:21 (PTX line 18: `st.global.u32 [%x0], %r0;`) by thread (0, 0, 0) of CTA (1, 0, 0): write to global memory around 0x7f0000000000: no happens-before relation to the access of another CTA; the access is inside `data` (0x7f0000000000, 256 bytes); the other is the write at gemv.rs:21 (PTX line 18: `st.global.u32 [%x0], %r0;`) by thread (0, 0, 0) of CTA (0, 0, 0)"
        ],
    );
    let own = "mov.u32 %r2, %ctaid.x; mad.wide.u32 %x1, %r2, 128, %x0; st.global.u32 [%x1], %r0;";
    clean(CTAS, own);
    clean(CTAS, &format!("{own} ld.global.u32 %r3, [%x1];"));
    reports(
        CTAS,
        &format!("{own} @%p ld.global.u32 %r3, [%data+128];"),
        expect![
            "race in kernel `kernel` at gemv.rs:20 (PTX line 17: `mov.u32 %r2, %ctaid.x; mad.wide.u32 %x1, %r2, 128, %x0; st.global.u32 [%x1], %r0; @%p ld.global.u32 %r3, [%data+128];`) by thread (0, 0, 0) of CTA (1, 0, 0): write to global memory around 0x7f0000000080: no happens-before relation to the access of another CTA; the access is inside `data` (0x7f0000000000, 256 bytes); the other is the read at gemv.rs:20 (PTX line 17: `mov.u32 %r2, %ctaid.x; mad.wide.u32 %x1, %r2, 128, %x0; st.global.u32 [%x1], %r0; @%p ld.global.u32 %r3, [%data+128];`) by thread (0, 0, 0) of CTA (0, 0, 0)"
        ],
    );
    // CTAs that write different bytes of one word do not race.
    clean(
        CTAS,
        "mov.u32 %r2, %ctaid.x; cvt.u64.u32 %x1, %r2; add.u64 %x1, %x1, %data; @%p st.global.u8 [%x1+2], %r2;",
    );
}

#[test]
fn threads_of_a_cta_race_in_global_memory() {
    let body = |between: &str| {
        format!(
            "st.global.u32 [%x0], %r0; {between} xor.b32 %r2, %r0, 33; mad.wide.u32 %x1, %r2, 4, %data; ld.global.u32 %r3, [%x1];"
        )
    };
    clean(WARPS, &body("bar.sync 0;"));
    races(WARPS, &body(""));
    races(WARPS, &body("membar.gl;"));
}

#[test]
fn grouped_copies_are_ordered_with_their_thread() {
    let body = |between: &str, mask: u32| {
        format!(
            "cp.async.ca.shared.global [%r1], [%x0], 4; cp.async.commit_group; {between}
            xor.b32 %r2, %r0, {mask}; mov.u32 %r3, cell; mad.lo.u32 %r2, %r2, 4, %r3; ld.shared.u32 %r4, [%r2];"
        )
    };
    clean(WARPS, &body("cp.async.wait_group 0;", 0));
    clean(WARPS, &body("cp.async.wait_group 0; bar.sync 0;", 32));
    races(WARPS, &body("cp.async.wait_group 0;", 1));
    // A second copy to the same bytes is not ordered after the reads of other threads.
    let again = "cp.async.ca.shared.global [%r1], [%x0], 4; cp.async.wait_all;";
    clean(WARPS, &format!("{} bar.sync 0; {again}", body("cp.async.wait_group 0; bar.sync 0;", 32)));
    races(WARPS, &format!("{} {again}", body("cp.async.wait_group 0; bar.sync 0;", 32)));
}

const INIT: &str =
    "@%p mbarrier.init.shared.b64 [gate], 1; @%p fence.mbarrier_init.release.cluster; bar.sync 0;";
const FILL: &str = "@%p mbarrier.arrive.expect_tx.shared::cta.b64 _, [gate], 128;
    @%p cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [cell], [%data], 128, [gate];";
const READ: &str = "ld.shared.u32 %r4, [cell];";

fn wait(label: &str, parity: u32) -> String {
    format!("{label}: mbarrier.try_wait.parity.shared.b64 %q, [gate], {parity}; @!%q bra {label};")
}

#[test]
fn a_bulk_copy_is_visible_to_waiting_threads() {
    let all = wait("FULL", 0);
    clean(WARPS, &[INIT, FILL, &all, READ].join("\n"));
    // Only thread 0 waits for the copy; the other threads synchronise with thread 0, or do not.
    let one = "@!%p bra REST; FULL: mbarrier.try_wait.parity.shared.b64 %q, [gate], 0; @!%q bra FULL; REST:";
    clean(WARPS, &[INIT, FILL, one, "bar.sync 0;", READ].join("\n"));
    reports(
        WARP,
        &[INIT, FILL, one, READ].join("\n"),
        expect![
            "race in kernel `kernel` at gemv.rs:20 (PTX line 21: `ld.shared.u32 %r4, [cell];`) by thread (1, 0, 0) of CTA (0, 0, 0): 4-byte load from shared memory around 0x0: this thread has not waited for the earlier asynchronous copy; the access is inside `cell` (0x0, 512 bytes); the other is the write at gemv.rs:20 (PTX line 19: `@%p cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [cell], [%data], 128, [gate];`) by an asynchronous copy of CTA (0, 0, 0)"
        ],
    );
}

#[test]
fn a_stage_is_refilled_after_a_barrier() {
    let (first, second) = (wait("FIRST", 0), wait("SECOND", 1));
    let twice = |between: &str| [INIT, FILL, &first, READ, between, FILL, &second, READ].join("\n");
    clean(WARPS, &twice("bar.sync 0;"));
    reports(
        WARPS,
        &twice(""),
        expect![
            "race in kernel `kernel` at gemv.rs:20 (PTX line 24: `@%p cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [cell], [%data], 128, [gate];`) by thread (0, 0, 0) of CTA (0, 0, 0): 128-byte store to shared memory around 0x0: no happens-before relation to the earlier access; the access is inside `cell` (0x0, 512 bytes); the other is the read at gemv.rs:20 (PTX line 21: `ld.shared.u32 %r4, [cell];`) by thread (1, 0, 0) of CTA (0, 0, 0)"
        ],
    );
    races(WARPS, &twice("bar.warp.sync -1;"));
}

#[test]
fn the_initialisation_of_an_mbarrier_must_be_ordered() {
    let all = wait("FULL", 0);
    let race = races(WARPS, &[&INIT.replace("bar.sync 0;", ""), FILL, &all, READ].join("\n"));
    expect!["race in kernel `kernel` at gemv.rs:20 (PTX line 20: `FULL: mbarrier.try_wait.parity.shared.b64 %q, [gate], 0; @!%q bra FULL;`) by thread (1, 0, 0) of CTA (0, 0, 0): use of the mbarrier at shared 0x600 (`gate`), which is not ordered after its initialisation by another thread: synchronise the two threads in between; the access is inside `gate` (0x600, 8 bytes); the other is the write at gemv.rs:20 (PTX line 17: `@%p mbarrier.init.shared.b64 [gate], 1; @%p fence.mbarrier_init.release.cluster;`) by thread (0, 0, 0) of CTA (0, 0, 0)"].assert_eq(&race.to_string());
    let finding =
        run(&[&INIT.replace("@%p fence.mbarrier_init.release.cluster;", ""), FILL, &all].join("\n"), WARPS);
    let finding = finding.expect_err("a fence is missing");
    assert_eq!(finding.kind, FindingKind::ProxyFence);
    expect!["bulk copy that signals the mbarrier at shared 0x600 (`gate`): execute `fence.mbarrier_init` or `fence.proxy.async` after the mbarrier's initialisation"].assert_eq(&finding.detail);
    clean(
        WARPS,
        &[&INIT.replace("fence.mbarrier_init.release.cluster", "fence.proxy.async"), FILL, &all].join("\n"),
    );
}

#[test]
fn a_proxy_fence_orders_stores_before_bulk_copies() {
    let all = wait("FULL", 0);
    let kind = |between: &str| {
        run(&[INIT, "st.shared.u32 [%r1], %r0;", between, FILL, &all].join("\n"), WARPS).err().map(|f| f.kind)
    };
    assert_eq!(kind("fence.proxy.async; bar.sync 0;"), None);
    assert_eq!(kind("bar.sync 0; fence.proxy.async.shared::cta;"), None);
    assert_eq!(kind("bar.sync 0;"), Some(FindingKind::ProxyFence));
    assert_eq!(kind("fence.proxy.async;"), Some(FindingKind::Race));
    let out = |between: &str, after: &str| {
        let body = format!(
            "@%p st.shared.v4.u32 [cell], {{%r0, %r0, %r0, %r0}}; {between}
            @%p cp.async.bulk.global.shared::cta.bulk_group [%data], [cell], 16; @%p cp.async.bulk.commit_group; {after}
            @%p cp.async.bulk.wait_group 0;"
        );
        run(&body, WARPS).err().map(|finding| finding.kind)
    };
    assert_eq!(out("fence.proxy.async;", ""), None);
    assert_eq!(out("", ""), Some(FindingKind::ProxyFence));
    // Races with a copy in flight that writes global memory.
    assert_eq!(out("fence.proxy.async;", "@%p ld.global.u32 %r2, [%data];"), Some(FindingKind::Race));
    assert_eq!(out("fence.proxy.async;", "@%p ld.global.u32 %r2, [%data+16];"), None);
}

#[test]
fn a_write_to_the_source_of_a_bulk_copy_races() {
    let all = wait("FULL", 0);
    let store = "@%p st.global.u32 [%data+124], %r0;";
    clean(WARPS, &[INIT, FILL, &all, store].join("\n"));
    races(WARPS, &[INIT, FILL, store, &all].join("\n"));
    // The source of a copy is not checked against writes of other CTAs.
    let other = "mov.u32 %r7, %ctaid.x; setp.eq.and.u32 %q, %r7, 0, %p; @%q st.global.u32 [%data+132], %r0;";
    let own = "mov.u32 %r7, %ctaid.x; mad.wide.u32 %x1, %r7, 128, %data;";
    clean(CTAS, &format!("{own} {INIT} {} {all} {other}", FILL.replace("%data", "%x1")));
}

#[test]
fn races_are_not_reported_if_the_check_is_off() {
    let options = Options { checks: Checks { races: false, ..Checks::ALL }, ..Options::default() };
    let text = kernel("", "st.global.u32 [%data], 1;");
    launch_with(&text, LaunchConfig::linear(4, 64), &mut words(64, 1), &options).expect("no finding");
    launch_with(&text, LaunchConfig::linear(4, 64), &mut words(64, 1), &Options::default())
        .expect_err("a race");
}

#[test]
fn lanes_that_store_different_values_are_not_reported_if_the_check_is_off() {
    let body = "st.shared.u32 [cell], %r0;";
    races(WARP, body);
    run_with(body, WARP, Checks { different_values: false, ..Checks::ALL }).expect("no finding");
}

/// Stores of several warps that leave memory as it is do not race with each other, as lanes of one store do not that write the
/// same value.
#[test]
fn stores_of_the_same_value() {
    clean(WARPS, "st.shared.u32 [cell], 7;");
    clean(WARPS, "and.b32 %r5, %r0, 31; mad.lo.u32 %r6, %r5, 4, cell; st.shared.v2.u8 [%r6], {%r5, %r5};");
    clean(WARPS, "mov.f32 %f0, 0f3F800000; st.global.v2.f32 [%data], {%f0, %f0}; st.global.u8 [%data+8], 1;");
    races(WARPS, "shr.u32 %r5, %r0, 5; st.shared.u32 [cell], %r5;");
    races(WARPS, "shr.u32 %r5, %r0, 5; st.shared.v2.u32 [cell], {7, %r5};");
    races(
        WARPS,
        "setp.lt.u32 %q, %r0, 32; @%q st.shared.u32 [cell], 7; @!%q st.shared.u64 [cell], 0x100000007;",
    );
    // Some lanes of a store leave memory as it is, others write what no other thread does.
    let partly = |value: &str| {
        format!("div.u32 %r5, %r0, 24; mad.wide.u32 %x1, %r5, 4, %data; {value} st.global.u32 [%x1], %r5;")
    };
    clean(WARPS, &partly(""));
    races(WARPS, &partly("shr.u32 %r6, %r0, 5; add.u32 %r5, %r5, %r6;"));
    // The earlier store still counts for later ones: that of the first warp may come after the last.
    let three = LaunchConfig { block: [96, 1, 1], ..WARPS };
    let body = |last: &str| {
        format!(
            "setp.lt.u32 %p, %r0, 64; @%p st.shared.u32 [cell], 7; setp.ge.u32 %q, %r0, 32; @%q bar.sync 1, 64;
             setp.ge.u32 %q, %r0, 64; {last}"
        )
    };
    clean(three, &body(""));
    races(three, &body("@%q st.shared.u32 [cell], 9;"));
    // `stmatrix` of several warps.
    for trans in ["", ".trans"] {
        let stored = |value: &str| {
            format!(
                "and.b32 %r5, %r0, 31; mad.lo.u32 %r6, %r5, 16, cell; mov.u32 %r7, {value};
                 stmatrix.sync.aligned.m8n8.x2{trans}.shared.b16 [%r6], {{%r7, %r5}};"
            )
        };
        clean(WARPS, &stored("%r5"));
        races(WARPS, &stored("%r0"));
    }
    // A store that repeats what another thread reads races with the read, as does a store of another value.
    let read_and_store = |value: u32| {
        format!(
            "setp.lt.u32 %q, %r0, 32; @%q st.shared.u32 [cell], 7; bar.sync 0; @%q ld.shared.u32 %r4, [cell];
             @!%q st.shared.u32 [cell], {value};"
        )
    };
    races(WARPS, &read_and_store(7));
    races(WARPS, &read_and_store(8));
    // Memory that nothing has written holds zeros here, and anything on a device.
    races(WARPS, "setp.lt.u32 %q, %r0, 32; @%q ld.shared.u32 %r4, [cell]; @!%q st.shared.u32 [cell], 0;");
    // An atomic operation on the value is another matter.
    races(
        WARPS,
        "setp.lt.u32 %q, %r0, 32; @%q st.shared.u32 [cell], 1; bar.sync 0; @%p red.shared.add.u32 [cell], 0; @!%q st.shared.u32 [cell], 1;",
    );
    // Eight warps, as in Triton's histogram.
    clean(
        LaunchConfig { block: [256, 1, 1], ..WARPS },
        "and.b32 %r5, %r0, 63; mad.lo.u32 %r6, %r5, 4, cell; st.shared.u32 [%r6], 0;",
    );
}

/// The last CTA of a grid reads what all threads of the others wrote, as in reductions with `__threadfence()`: a `fence.sc` by each
/// thread before a barrier, an atomic operation by one, and a `fence.sc` by each after the next barrier.
#[test]
fn fences_with_sc_are_ordered_across_barriers() {
    let last_reads_all = |first: &str, second: &str, between: &str| {
        format!(
            "mov.u32 %r2, %ctaid.x; mad.wide.u32 %x1, %r2, 120, %x0; setp.lt.u32 %q, %r0, 30; @%q st.global.u32 [%x1], %r2;
            {first} bar.sync 0; @%p atom.global.add.u32 %r3, [%data+252], 1; @%p st.shared.u32 [cell], %r3; {between}
            ld.shared.u32 %r3, [cell]; setp.ne.u32 %q, %r3, 2; @%q ret; {second}
            xor.b32 %r4, %r0, 7; mad.wide.u32 %x1, %r4, 4, %data; setp.lt.u32 %q, %r4, 30;
            @%q ld.global.u32 %r5, [%x1]; @%q ld.global.u32 %r5, [%x1+120];"
        )
    };
    let barrier = "bar.sync 0;";
    for fence in ["membar.gl;", "membar.sys;", "fence.sc.gpu;"] {
        clean(CTAS, &last_reads_all(fence, fence, barrier));
        races(CTAS, &last_reads_all(fence, "", barrier));
        races(CTAS, &last_reads_all("", fence, barrier));
        races(CTAS, &last_reads_all(fence, "fence.acq_rel.gpu;", barrier));
        races(CTAS, &last_reads_all("fence.acq_rel.gpu;", fence, barrier));
        races(CTAS, &last_reads_all("membar.cta;", fence, barrier));
    }
    // Without the barriers a fence is not ordered with another thread's atomic operation.
    let fence = "membar.gl;";
    races(CTAS, &last_reads_all(fence, fence, barrier).replacen("bar.sync 0;", "", 1));
}

#[test]
fn one_sided_fences_acquire_or_release() {
    let (release, acquire) = ("fence.release.gpu;", "fence.acquire.gpu;");
    clean(CTAS, &join(release, acquire));
    races(CTAS, &join(acquire, acquire));
    races(CTAS, &join(release, release));
    races(CTAS, &join(acquire, release));
}

/// One CTA releases, another overwrites the flag, and a third acquires that value.
#[test]
fn a_store_ends_a_release_sequence() {
    let body = |overwrite: &str| {
        format!(
            "@!%p ret; mov.u32 %r2, %ctaid.x; setp.eq.u32 %q, %r2, 1; @%q bra SECOND; setp.eq.u32 %q, %r2, 2; @%q bra THIRD;
            st.global.u32 [%data+128], %r2; mov.u32 %r3, 5; st.release.gpu.global.u32 [%data], %r3; ret;
            SECOND: ld.relaxed.gpu.global.u32 %r3, [%data]; setp.ne.u32 %q, %r3, 5; @%q bra SECOND;
            mov.u32 %r3, 6; {overwrite} ret;
            THIRD: ld.acquire.gpu.global.u32 %r3, [%data]; setp.ne.u32 %q, %r3, 6; @%q bra THIRD;
            ld.global.u32 %r4, [%data+128];"
        )
    };
    let three = LaunchConfig { grid: [3, 1, 1], ..CTAS };
    clean(three, &body("atom.relaxed.gpu.global.exch.b32 %r4, [%data], %r3;"));
    races(three, &body("st.relaxed.gpu.global.u32 [%data], %r3;"));
}

/// A fence of the other state space orders nothing.
#[test]
fn proxy_fences_are_of_a_state_space() {
    let body = |fence: &str| {
        format!(
            "@!%p bra END; mbarrier.init.shared.b64 [gate], 1; fence.mbarrier_init.release.cluster; st.global.u32 [%data], 7; {fence}
            mbarrier.arrive.expect_tx.shared::cta.b64 _, [gate], 16;
            cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [cell], [%data], 16, [gate];
            WAIT: mbarrier.try_wait.parity.shared::cta.b64 %q, [gate], 0; @!%q bra WAIT;
            END: ret;"
        )
    };
    clean(WARP, &body("fence.proxy.async.global;"));
    clean(WARP, &body("fence.proxy.async;"));
    for wrong in ["fence.proxy.async.shared::cta;", "fence.proxy.async.shared::cluster;"] {
        assert_eq!(run(&body(wrong), WARP).expect_err("a finding").kind, FindingKind::ProxyFence);
    }
}

/// All lanes of a warp issue one store, as epilogues of CUTLASS do.
#[test]
fn a_warp_stores_one_bulk_copy() {
    let body = |source: &str| {
        format!(
            "st.shared.u32 [%r1], %r0; fence.proxy.async.shared::cta; bar.sync 0; mov.u32 %r3, cell; and.b32 %r4, %r0, 1;
            mad.lo.u32 %r5, %r4, 64, %r3;
            cp.async.bulk.global.shared::cta.bulk_group [%data], [{source}], 64; cp.async.bulk.commit_group;
            cp.async.bulk.wait_group 0;"
        )
    };
    clean(WARP, &body("%r3"));
    // Odd lanes have another source.
    races(WARP, &body("%r5"));
}
