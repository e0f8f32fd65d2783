//! Programmatic dependent launch: accesses before and after `griddepcontrol.wait`.

use bespoke_emulator::{Finding, FindingKind, LaunchConfig, Memory, Module, Options, ProgrammaticOrder};
use expect_test::expect;

use crate::harness::{HEADER, kernel};

const WAIT: &str = "griddepcontrol.wait;\n";
const START: &str = "griddepcontrol.launch_dependents;\n";
// Every thread reads or writes its own word, or the word 256 bytes after it.
const READ: &str = "ld.global.u32 %r1, [%x0];\n";
const WRITE: &str = "st.global.u32 [%x0], %r0;\n";
const WRITE_FAR: &str = "st.global.u32 [%x0+256], %r0;\n";
const COUNT: &str = "red.global.add.u32 [%data], 1;\n";

#[derive(Clone, Copy, PartialEq)]
enum Edge {
    Full,
    Programmatic,
}
use Edge::{Full, Programmatic};

/// Runs kernels one after the other on the same 512 bytes of global memory, each with two CTAs of 32 threads.
fn run(launches: &[(Edge, &[&str])]) -> Result<(), Box<Finding>> {
    let memory = Memory::new();
    let data = memory.alloc("data", 512);
    memory.fill(data, 512, 0).expect("inside");
    let mut order = ProgrammaticOrder::new();
    for (index, (edge, body)) in launches.iter().enumerate() {
        let body = format!(
            "mov.u32 %r0, %ctaid.x; mov.u32 %r1, %tid.x; mad.lo.u32 %r0, %r0, 32, %r1; mad.wide.u32 %x0, %r0, 4, %data;\n{}",
            body.concat()
        );
        let text = kernel("", &body).replace(".entry kernel", &format!(".entry step{index}"));
        let module = Module::parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        let kernel = module.kernels().next().expect("one kernel");
        let (config, params) = (LaunchConfig::linear(2, 32), data.to_le_bytes());
        let options = Options { threads: 1, ..Options::default() };
        match edge {
            Full => order.run(kernel, &memory, &config, &params, &options)?,
            Programmatic => order.run_programmatic(kernel, &memory, &config, &params, &options)?,
        };
    }
    Ok(())
}

#[track_caller]
fn clean(launches: &[(Edge, &[&str])]) {
    run(launches).unwrap_or_else(|finding| panic!("{finding}"));
}

#[track_caller]
fn found(launches: &[(Edge, &[&str])]) -> Box<Finding> {
    let finding = run(launches).expect_err("a missing wait");
    assert_eq!(finding.kind, FindingKind::ProgrammaticDependency, "{finding}");
    finding
}

#[test]
fn reads_of_data_of_the_previous_launch_need_a_wait() {
    clean(&[(Full, &[START, WRITE]), (Programmatic, &[WAIT, READ])]);
    clean(&[(Full, &[START, WRITE]), (Full, &[READ])]);
    // A launch may read memory before its wait if the previous launch only read that memory or did not access it.
    clean(&[(Full, &[START, READ]), (Programmatic, &[READ, WAIT])]);
    clean(&[(Full, &[START, WRITE_FAR]), (Programmatic, &[READ, WAIT])]);
    expect!["missing griddepcontrol.wait in kernel `step1` (PTX line 14: `ld.global.u32 %r1, [%x0];`) by thread (0, 0, 0) of CTA (0, 0, 0): 4-byte load from global memory at 0x7f0000000000, which kernel `step0` (the previous launch) writes at PTX line 15 and which may still run: execute `griddepcontrol.wait` before the access; the access is inside `data` (0x7f0000000000, 512 bytes)"].assert_eq(&found(&[(Full, &[START, WRITE]), (Programmatic, &[READ, WAIT])]).to_string());
    // Without `launch_dependents`, the next launch starts when the previous launch exits, whose stores may not be
    // visible yet.
    found(&[(Full, &[WRITE]), (Programmatic, &[READ, WAIT])]);
}

#[test]
fn writes_to_data_of_the_previous_launch_need_a_wait() {
    clean(&[(Full, &[START, READ]), (Programmatic, &[WAIT, WRITE])]);
    clean(&[(Full, &[START, READ]), (Programmatic, &[WRITE_FAR, WAIT])]);
    let finding = found(&[(Full, &[START, READ]), (Programmatic, &[WRITE, WAIT])]);
    expect!["4-byte store to global memory at 0x7f0000000000, which kernel `step0` (the previous launch) reads at PTX line 15 and which may still run: execute `griddepcontrol.wait` before the access"].assert_eq(&finding.detail);
    found(&[(Full, &[START, WRITE]), (Programmatic, &[WRITE, WAIT])]);
    found(&[(Full, &[START, READ]), (Programmatic, &[COUNT, WAIT])]);
    found(&[(Full, &[START, COUNT]), (Programmatic, &[COUNT, WAIT])]);
    found(&[(Full, &[START, COUNT]), (Programmatic, &[READ, WAIT])]);
}

#[test]
fn every_cta_must_wait() {
    clean(&[(Full, &[WRITE])]);
    expect!["missing griddepcontrol.wait in kernel `step1` (PTX line 16: `}`) by thread (0, 0, 0) of CTA (0, 0, 0): the CTA ends without `griddepcontrol.wait`: launches after this one cannot know that those before it are complete"].assert_eq(&found(&[(Full, &[START]), (Programmatic, &[START])]).to_string());
    let one = "mov.u32 %r2, %ctaid.x; setp.eq.u32 %p, %r2, 0; @%p griddepcontrol.wait;\n";
    assert_eq!(found(&[(Full, &[START]), (Programmatic, &[one])]).cta, [1, 0, 0]);
}

#[test]
fn a_launch_may_overlap_more_than_one_earlier_launch() {
    // The second launch triggers the third before, or after, its own wait for the first launch.
    let third: (Edge, &[&str]) = (Programmatic, &[READ, WAIT]);
    let finding = found(&[(Full, &[START, WRITE]), (Programmatic, &[START, WAIT, WRITE_FAR]), third]);
    expect!["4-byte load from global memory at 0x7f0000000000, which kernel `step0` (2 launches before) writes at PTX line 15 and which may still run: execute `griddepcontrol.wait` before the access"].assert_eq(&finding.detail);
    clean(&[(Full, &[START, WRITE]), (Programmatic, &[WAIT, START, WRITE_FAR]), third]);
    clean(&[(Full, &[START, WRITE]), (Programmatic, &[WAIT, WRITE_FAR]), third]);
    clean(&[(Full, &[START, WRITE]), (Full, &[START, WRITE_FAR]), third]);
    // A wait covers all earlier launches.
    let last: (Edge, &[&str]) = (Programmatic, &[START, WAIT, READ]);
    clean(&[(Full, &[START, WRITE]), (Programmatic, &[START, WAIT, WRITE_FAR]), last, last]);
}

#[test]
fn a_barrier_extends_a_wait_to_other_threads() {
    let by_one = "setp.eq.u32 %p, %r1, 0; @%p griddepcontrol.wait;\n";
    clean(&[(Full, &[START, WRITE]), (Programmatic, &[by_one, "bar.sync 0;\n", READ])]);
    clean(&[(Full, &[START, WRITE]), (Programmatic, &[by_one, "bar.warp.sync -1;\n", READ])]);
    let finding = found(&[(Full, &[START, WRITE]), (Programmatic, &[by_one, READ])]);
    assert_eq!(finding.thread, [1, 0, 0]);
    let gate = ".shared .align 8 .b64 gate;\nsetp.eq.u32 %p, %r1, 0; @%p mbarrier.init.shared.b64 [gate], 1; bar.sync 0;
        @%p griddepcontrol.wait; @%p mbarrier.arrive.shared.b64 _, [gate];
        FULL: mbarrier.try_wait.parity.shared.b64 %q, [gate], 0; @!%q bra FULL;\n";
    clean(&[(Full, &[START, WRITE]), (Programmatic, &[gate, READ])]);
}

#[test]
fn asynchronous_copies_are_checked_at_issue() {
    let copy = ".shared .align 16 .b8 tile[128]; mov.u32 %r2, tile; mad.lo.u32 %r2, %r1, 4, %r2;
        cp.async.ca.shared.global [%r2], [%x0], 4;\n";
    let late = [copy, WAIT, "cp.async.wait_all;\n"];
    found(&[(Full, &[START, WRITE]), (Programmatic, &late)]);
    clean(&[(Full, &[START, WRITE]), (Programmatic, &[WAIT, copy, "cp.async.wait_all;\n"])]);
    clean(&[(Full, &[START, READ]), (Programmatic, &late)]);
}

#[test]
fn variables_of_the_module_are_checked_too() {
    let module = format!(
        "{HEADER}.global .u32 counter; .const .u32 first = 7;\n.visible .entry reads() {{ .reg .u32 %r; ld.const.u32 %r, [first]; ld.global.u32 %r, [counter]; griddepcontrol.wait; ret; }}
        .visible .entry writes() {{ .reg .u32 %r; ld.const.u32 %r, [first]; st.global.u32 [counter], %r; ret; }}"
    );
    let module = Module::parse(&module).expect("loads");
    let run = |edges: [(Edge, &str); 2]| {
        let (memory, mut order) = (Memory::new(), ProgrammaticOrder::new());
        memory.alloc("data", 4);
        let (config, options) = (LaunchConfig::linear(1, 32), Options::default());
        edges.into_iter().try_for_each(|(edge, name)| {
            let kernel = module.kernel(name).expect("declared");
            match edge {
                Full => order.run(kernel, &memory, &config, &[], &options),
                Programmatic => order.run_programmatic(kernel, &memory, &config, &[], &options),
            }
            .map(|_| ())
        })
    };
    assert_eq!(run([(Full, "writes"), (Full, "reads")]), Ok(()));
    let finding = run([(Full, "writes"), (Programmatic, "reads")]).expect_err("a missing wait");
    expect!["4-byte load from global memory at 0x7f0000100400, which kernel `writes` (the previous launch) writes at PTX line 6 and which may still run: execute `griddepcontrol.wait` before the access"].assert_eq(&finding.detail);
}
