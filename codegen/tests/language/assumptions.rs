//! Assumptions: what the passes do with them, what the emulator finds, and errors.

use bespoke_codegen::prelude::*;
use bespoke_emulator::FindingKind;
use bespoke_testing::{Failure, Launch};

fn finding(launch: Launch<'_>) -> bespoke_emulator::Finding {
    match launch.run() {
        Err(Failure::Finding(finding)) => *finding,
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("the launch has no finding"),
    }
}

/// Copies a row of n elements to the next; four elements a time.
#[kernel(threads = 32)]
fn copies_rows(#[aligned(16)] x: Ptr<Global, f32>, n: Val<u32>, assumes: bool) {
    if assumes {
        assume(n % 4 == 0);
    }
    let own = x.at(block_index() * n).at(thread_index() * 4);
    if thread_index() * 4 < n {
        let row: [Val<f32>; 4] = std::array::from_fn(|i| own.at(i).load());
        for (i, value) in row.into_iter().enumerate() {
            x.at(n * 8 + block_index() * n + thread_index() * 4).at(i).store(value);
        }
    }
}

#[test]
fn assumed_multiples_make_vector_accesses() {
    let numbers: Vec<f32> = (0..96).map(|i| i as f32).collect();
    for (assumes, loads) in [(false, 0), (true, 1)] {
        let kernel = copies_rows(assumes).unwrap();
        let done = Launch::of(&kernel).grid(1).buffer(&numbers).value(8u32).run().unwrap();
        assert_eq!(done.buffer::<f32>(0)[64..72], numbers[..8]);
        assert_eq!(done.ptx().matches("ld.global.v4").count(), loads, "{}", done.ptx());
        assert_eq!(done.ptx().matches("st.global.v4").count(), loads);
        // No instruction for the assumption.
        assert!(!done.has("rem.u32") && !done.has("and.b32"));
    }
    const LINE: u32 = line!();
    let kernel = copies_rows(true).unwrap();
    let finding = finding(Launch::of(&kernel).buffer(&numbers).value(6u32));
    assert_eq!(finding.kind, FindingKind::Assumption);
    let source = finding.source.unwrap();
    assert!(source.file.ends_with("assumptions.rs"));
    assert_eq!(source.line, LINE - 23, "the line of the assumption");
}

/// x[i] = i for i < n: the two bounds make the test of the second one superfluous.
#[kernel(threads = 64)]
fn bounded(x: Ptr<Global, u32>, n: Val<u32>, m: Val<i64>) {
    assume((n >= 64) & (n <= 1024) & !(m > 7));
    if thread_index() < n {
        x.at(thread_index()).store(select(m < 8, n.min(5000), 0));
    }
}

#[test]
fn assumed_bounds_decide_comparisons() {
    let kernel = bounded().unwrap();
    let done = Launch::of(&kernel).buffer(&[0u32; 64]).value(64u32).value(-5i64).run().unwrap();
    assert_eq!(done.buffer::<u32>(0), [64; 64]);
    assert!(!done.ptx().contains("setp") && !done.ptx().contains("selp") && !done.ptx().contains("min"));
    for (n, m) in [(63u32, 0i64), (1025, 0)] {
        let finding = finding(Launch::of(&kernel).buffer(&[0u32; 64]).value(n).value(m));
        assert_eq!(finding.kind, FindingKind::Assumption, "{n} {m}: {finding}");
    }
    // The unoptimised kernel checks all of its assumptions.
    let ptx = kernel.compile_at(Target::Sm80, bespoke_codegen::passes::OptLevel::None).unwrap().ptx;
    for text in ["//@ assume.le.u32 64, ", "//@ assume.le.u32 %r", "//@ assume.le.s64 %rd"] {
        assert!(ptx.contains(text), "no `{text}` in {ptx}");
    }
}

#[test]
fn assumptions_about_unused_values_leave_nothing() {
    #[kernel(threads = 1)]
    fn unused(x: Ptr<Global, u32>, n: Val<u32>) {
        assume(n % 4 == 0);
        assume(n < x.load());
        x.store(1);
    }
    let ptx = unused().unwrap().compile(Target::Sm80).unwrap().ptx;
    assert!(!ptx.contains("assume") && !ptx.contains("ld.param.u32") && !ptx.contains("ld.global"), "{ptx}");
}

#[test]
fn conditions_that_are_not_facts_are_errors() {
    fn error(kernel: Recorded) -> String {
        kernel.expect_err("an error").to_string()
    }
    #[kernel(threads = 1)]
    fn of_a_float(x: Ptr<Global, f32>) {
        assume(x.load() < 1.0);
    }
    #[kernel(threads = 1)]
    fn of_either(x: Ptr<Global, u32>) {
        assume((x.load() < 1) | (x.at(1).load() > 3));
    }
    #[kernel(threads = 1)]
    fn of_a_byte(x: Ptr<Global, u8>) {
        assume(x.load() < 1);
    }
    #[kernel(threads = 1)]
    fn given(x: Ptr<Global, u32>, on: Val<bool>) {
        assume(on);
        x.store(1);
    }
    for kernel in [of_a_float(), of_either(), of_a_byte(), given()] {
        let error = error(kernel);
        assert!(error.contains("`assume` does not understand this condition"), "{error}");
        assert!(error.contains("assumptions.rs"), "{error}");
    }
    #[kernel(threads = 1)]
    fn constant(x: Ptr<Global, u32>, n: u32) {
        assume(n < 4);
        x.store(n);
    }
    assert!(error(constant(4)).contains("this assumption is false on every path"));
    assert!(!constant(3).unwrap().compile(Target::Sm80).unwrap().ptx.contains("assume"));
}
