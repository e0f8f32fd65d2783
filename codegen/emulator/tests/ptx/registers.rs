//! `setmaxnreg`: the registers of a CTA, waits, deadlocks and misuse.

use bespoke_emulator::{Checks, LaunchConfig, Memory, Module, Options, run};

/// Runs a kernel of `threads` threads, limited to one CTA on a multiprocessor, with `%r0` the number of the warpgroup and
/// `%r1` that of the warp. Returns the finding, or `runs`.
fn outcome(threads: u32, body: &str) -> String {
    outcome_with(threads, body, Options::default())
}

fn outcome_with(threads: u32, body: &str, options: Options) -> String {
    let text = format!(
        ".version 8.4\n.target sm_90a\n.address_size 64\n.entry k() .reqntid {threads} .minnctapersm 1 {{\n\
         .reg .b32 %r<4>; .reg .pred %p<4>;\n\
         mov.u32 %r1, %tid.x; shr.u32 %r0, %r1, 7; shr.u32 %r1, %r1, 5;\n\
         setp.eq.u32 %p0, %r0, 0; setp.eq.u32 %p1, %r1, 0; setp.eq.u32 %p2, %r1, 4;\n{body}\nret;\n}}\n"
    );
    let module = Module::parse(&text).unwrap_or_else(|error| panic!("{error}"));
    let kernel = module.kernel("k").unwrap();
    let config = LaunchConfig::linear(2, threads);
    match run(kernel, &Memory::new(), &config, &[], &options) {
        Ok(_) => "runs".to_owned(),
        Err(finding) => format!("{:?}: {}", finding.kind, finding.detail),
    }
}

#[test]
fn consumers_wait_for_the_registers_of_the_producer() {
    // Warps 0 to 3 run last: the branch takes the others first.
    let body = |producer: u32, consumers: u32| {
        format!(
            "@%p0 bra PRODUCER;\nsetmaxnreg.inc.sync.aligned.u32 {consumers};\nbra DONE;\n\
             PRODUCER: nanosleep.u32 10; nanosleep.u32 10;\nsetmaxnreg.dec.sync.aligned.u32 {producer};\nDONE:"
        )
    };
    // 384 threads start with 168 registers each.
    assert_eq!(outcome(384, &body(40, 232)), "runs");
    assert_eq!(outcome(384, &body(24, 240)), "runs");
    // The producer gives 4 times 128, and eight warps ask for 72: seven of them get theirs.
    let stuck = outcome(384, &body(40, 240));
    assert!(stuck.starts_with("Deadlock: "), "{stuck}");
    assert!(
        stuck.contains("waits at `setmaxnreg.inc 240` for 72 more registers per thread, and 8 are free"),
        "{stuck}"
    );
}

/// Of 256 threads each could have 256 registers; ptxas chooses 240, the largest number that a warp asks for.
#[test]
fn a_kernel_starts_with_no_more_registers_than_its_largest_increase() {
    let body = "@%p0 bra PRODUCER;\nsetmaxnreg.inc.sync.aligned.u32 240;\nbra DONE;\n\
                PRODUCER: setmaxnreg.dec.sync.aligned.u32 24;\nDONE:";
    assert_eq!(outcome(256, body), "runs");
    // Whole warpgroups: 288 threads have 168 registers each, as 384.
    let stuck = outcome(288, "setmaxnreg.inc.sync.aligned.u32 176;");
    assert!(stuck.contains("waits at `setmaxnreg.inc 176` for 8 more registers per thread"), "{stuck}");
}

#[test]
fn registers_do_not_change_if_the_check_is_off() {
    let body = "setmaxnreg.dec.sync.aligned.u32 40;\nbar.sync 0;\nsetmaxnreg.dec.sync.aligned.u32 48;";
    let checks = Checks { registers: false, ..Checks::ALL };
    assert_eq!(outcome_with(256, body, Options { checks, ..Options::default() }), "runs");
}

#[test]
fn undefined_requests_are_found() {
    for (body, expected) in [
        (
            "setmaxnreg.inc.sync.aligned.u32 48;\nbar.sync 0;\nsetmaxnreg.inc.sync.aligned.u32 40;",
            "Registers: the warp has 48 registers per thread, which `setmaxnreg.inc 40` does not increase",
        ),
        (
            "setmaxnreg.dec.sync.aligned.u32 40;\nbar.sync 0;\nsetmaxnreg.dec.sync.aligned.u32 48;",
            "Registers: the warp has 40 registers per thread, which `setmaxnreg.dec 48` does not decrease",
        ),
        (
            "@%p1 bra FIRST;\nsetmaxnreg.dec.sync.aligned.u32 40;\nbra DONE;\n\
             FIRST: setmaxnreg.dec.sync.aligned.u32 48;\nDONE:",
            "Registers: the warp executes `setmaxnreg.dec 40`, and warp 0 of the same warpgroup \
             `setmaxnreg.dec 48`: all four warps must execute the same instruction",
        ),
        (
            "@%p1 bra DONE;\nsetmaxnreg.dec.sync.aligned.u32 40;\nDONE:",
            "Registers: warp 1 executed `setmaxnreg.dec 40`, and warp 0 of the same warpgroup did not: \
             all four warps must execute it",
        ),
        (
            "setmaxnreg.dec.sync.aligned.u32 40;\nsetmaxnreg.inc.sync.aligned.u32 48;",
            "Registers: the warp executes `setmaxnreg.inc 48` before warp 1 of the same warpgroup has executed \
             the previous `setmaxnreg`: synchronise the warpgroup between them",
        ),
    ] {
        assert_eq!(outcome(128, body), expected, "{body}");
    }
}
