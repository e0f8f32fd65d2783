//! Random kernels do the same before and after optimisation, and after each pass alone.

#[path = "random/generate.rs"]
mod generate;
#[path = "random/interpret.rs"]
mod interpret;

use bespoke_codegen::ir::parse::parse;
use bespoke_codegen::ir::verify::verify;
use bespoke_codegen::passes::{self, OptLevel, Pass, Unreachable};

/// Inputs of one run: what `tid.x`, the scalar parameter and memory (by a seed) hold.
const INPUTS: [[u64; 3]; 3] = [[0, 0, 1], [17, 3, 2], [255, 0xffff_fff0, 3]];

fn check(seed: u64, transform: impl Fn(&mut bespoke_codegen::ir::Function)) {
    let text = generate::kernel(seed);
    let mut function = parse(&text).unwrap_or_else(|error| panic!("seed {seed}: {error}\n{text}"));
    Unreachable.run(&mut function);
    assert_eq!(verify(&function), Ok(()), "seed {seed}\n{function}");
    let original = function.clone();
    transform(&mut function);
    assert_eq!(verify(&function), Ok(()), "seed {seed}\n{original}\nbecame\n{function}");
    assert_eq!(parse(&function.to_string()).map(|f| f.to_string()), Ok(function.to_string()));
    for inputs in INPUTS {
        let (expected, found) = (interpret::run(&original, inputs), interpret::run(&function, inputs));
        assert_eq!(found, expected, "seed {seed}, inputs {inputs:?}\n{original}\nbecame\n{function}");
    }
}

#[test]
fn the_pipeline_changes_nothing_that_can_be_seen() {
    for seed in 0..3000 {
        check(seed, |function| drop(passes::optimize(function, OptLevel::Default)));
    }
}

#[test]
fn nor_does_any_pass_alone() {
    for seed in 0..500 {
        for pass in passes::ROUND {
            check(seed + 10_000, |function| {
                pass.run(function);
            });
        }
    }
}

/// The generator must reach what it is there to test.
#[test]
fn the_pipeline_finds_something_to_do() {
    let mut effective = std::collections::BTreeSet::new();
    for seed in 0..200 {
        let mut function = parse(&generate::kernel(seed)).unwrap();
        let report = passes::optimize(&mut function, OptLevel::Default);
        effective.extend(report.steps.iter().filter(|step| step.changed).map(|step| step.pass));
    }
    assert_eq!(effective.len(), passes::ROUND.len() + 1, "{effective:?}");
}
