//! Grids of many CTAs: residency, waits between CTAs, and the limit of a launch that does not end.

use bespoke_emulator::{Finding, FindingKind, LaunchConfig, Options, Stats};
use expect_test::expect;

use crate::harness::{kernel, launch_with, words};

/// Runs `body` in `ctas` CTAs of one warp on a device that holds `resident` CTAs, over one word that is 0 at first.
/// `%r0` is the CTA's index, `%r1` the index of the last CTA, and `%p` is true in the last CTA.
fn run(ctas: u32, resident: u64, limit: u64, body: &str) -> Result<Stats, Box<Finding>> {
    let before =
        "mov.u32 %r0, %ctaid.x; mov.u32 %r1, %nctaid.x; sub.u32 %r1, %r1, 1; setp.eq.u32 %p, %r0, %r1;\n";
    let options = Options { resident_ctas: resident, instruction_limit: limit, ..Options::default() };
    let mut data = words(1, 0);
    launch_with(&kernel("", &format!("{before}{body}")), LaunchConfig::linear(ctas, 32), &mut data, &options)
}

/// Every CTA waits for the last one, asleep between two loads.
const SLEEP: &str = "mov.u32 %r2, 1; @%p st.release.gpu.global.u32 [%data], %r2;
    WAIT: nanosleep.u32 100; ld.acquire.gpu.global.u32 %r3, [%data]; setp.eq.u32 %q, %r3, 0;
    @%q bra WAIT;";

/// The same without sleep.
const POLL: &str = "mov.u32 %r2, 1; @%p st.release.gpu.global.u32 [%data], %r2;
    WAIT: ld.acquire.gpu.global.u32 %r3, [%data]; setp.eq.u32 %q, %r3, 0;
    @%q bra WAIT;";

/// The same with an atomic operation by one thread that leaves the word as it is.
const COMPARE: &str = "mov.u32 %r4, %tid.x; setp.ne.u32 %q, %r4, 0; @%q exit;
    mov.u32 %r2, 1; @%p st.release.gpu.global.u32 [%data], %r2;
    WAIT: atom.acquire.gpu.global.cas.b32 %r3, [%data], 7, 7; setp.eq.u32 %q, %r3, 0;
    @%q bra WAIT;";

/// The same with two loads and a fence.
const POLL_TWICE: &str = "mov.u32 %r2, 1; @%p st.release.gpu.global.u32 [%data], %r2;
    WAIT: fence.sc.gpu; ld.acquire.gpu.global.u32 %r3, [%data]; setp.eq.u32 %q, %r3, 0;
    ld.acquire.gpu.global.u32 %r4, [%data]; @%q bra WAIT;";

#[test]
fn ctas_may_wait_for_as_many_as_the_device_holds() {
    for body in [SLEEP, POLL, COMPARE, POLL_TWICE] {
        run(100, 100, 1 << 18, body).unwrap_or_else(|finding| panic!("{body}: {finding}"));
        let finding = run(101, 100, 1 << 18, body).expect_err("one CTA cannot start");
        assert_eq!(finding.kind, FindingKind::Residency, "{body}: {finding}");
    }
}

#[test]
fn a_launch_that_the_device_does_not_hold() {
    let finding = run(100_000, 264, 1 << 20, SLEEP).expect_err("the last CTA cannot start");
    expect![[r#"264 CTAs wait, as many as the device holds at once, and the other 99736 of the launch's 100000 CTAs cannot start before one of them ends: launch at most 264 CTAs, or let no CTA wait for one that may not have started"#]]
    .assert_eq(&finding.detail);
}

#[test]
fn the_first_loop_beyond_the_limit_ends_the_launch() {
    let forever = run(64, 264, 1 << 20, "LOOP:\n bra LOOP;").expect_err("it never ends");
    assert_eq!((forever.kind, forever.ptx_text.as_str()), (FindingKind::Deadlock, "bra LOOP;"));
    expect![[r#"still running when the launch's running CTAs have executed 1048576 warp instructions, the limit: the loop seems to be endless; if it is not, raise the limit of instructions"#]]
    .assert_eq(&forever.detail);
    // More CTAs than the device holds are no cause if they do not wait.
    let many = run(100_000, 264, 1 << 20, "LOOP:\n bra LOOP;").expect_err("it never ends");
    assert_eq!(many.kind, FindingKind::Deadlock, "{many}");
}

/// The finding is in the CTA that does not end, not in those that wait for it.
#[test]
fn a_loop_that_others_wait_for() {
    let body = format!("@!%p bra REST;\n LOOP:\n bra LOOP;\n REST:\n{SLEEP}");
    let finding = run(64, 264, 1 << 24, &body).expect_err("the last CTA never ends");
    assert_eq!((finding.cta, finding.ptx_text.as_str()), ([63, 0, 0], "bra LOOP;"), "{finding}");
}

#[test]
fn ctas_that_wait_for_nobody() {
    let waits = "WAIT: ld.acquire.gpu.global.u32 %r3, [%data]; setp.eq.u32 %q, %r3, 0;\n @%q bra WAIT;";
    let finding = run(8, 264, 1 << 16, waits).expect_err("nobody writes");
    expect![[r#"the launch's 8 running CTAs all wait in loops that poll or sleep, and nothing has ended the wait within 65536 warp instructions, the limit"#]]
    .assert_eq(&finding.detail);
}

/// The first CTA waits for the second, which a finding has stopped, and so for ever. Others have not started.
#[test]
fn a_wait_for_a_cta_that_a_finding_has_stopped() {
    let body = "setp.eq.u32 %q, %r0, 0; @%q bra WAIT; st.global.u32 [%data+4096], %r0; mov.u32 %r2, 1;
        st.release.gpu.global.u32 [%data], %r2; exit;
        WAIT: ld.acquire.gpu.global.u32 %r3, [%data]; setp.eq.u32 %q, %r3, 0;\n @%q bra WAIT;";
    // The launch ends long before the second limit.
    for limit in [1 << 16, u64::MAX] {
        let finding = run(10_000, 264, limit, body).expect_err("a store is out of bounds");
        assert_eq!(finding.kind, FindingKind::OutOfBounds, "{finding}");
    }
}

/// The limit is for CTAs that have not ended: a grid may execute any number of instructions.
#[test]
fn a_long_launch_that_ends() {
    let body = "mov.u32 %r2, 0; LOOP: add.u32 %r2, %r2, 1; setp.lt.u32 %q, %r2, 1000; @%q bra LOOP;";
    let stats = run(1000, 264, 1 << 14, body).expect("every CTA ends");
    assert!(stats.warp_instructions > 3_000_000, "{stats:?}");
}
