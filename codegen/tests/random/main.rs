//! Random kernels leave the same memory before and after optimisation, and before and after passes in any order.
//!
//! A kernel is printed twice, at [`OptLevel::None`] and optimised, and both texts run on the emulator with all of its
//! checks. Most kernels are also interpreted from the IR, by code that shares nothing with the PTX printer and the
//! passes, so that a printer bug cannot hide by being made twice. A failing kernel is reduced and reported with the
//! first pass after which it fails.
//!
//! `BESPOKE_RANDOM=1000000` sets the number of kernels, `BESPOKE_RANDOM_SEED=17` runs only the kernel of this seed;
//! `BESPOKE_RANDOM_SHRINK=0` disables the reduction.

mod check;
mod coverage;
mod execute;
mod generate;
mod interpret;
mod lower;
mod numbers;
mod program;
mod sample;
mod shrink;
mod values;

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use bespoke_codegen::ir::{Binary, Function, Op};
use bespoke_codegen::passes::{self, OptLevel, Pass, Remarks};
use bespoke_codegen::ptx::Target;
use bespoke_emulator::Module;

use check::{Failure, Pipeline, check, culprit, unoptimised};
use numbers::Random;
use program::Program;

/// Number of kernels that are assembled for each target.
const SAMPLE: usize = 200;
/// Default number of random kernels.
const KERNELS: u64 = 3000;

fn setting(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text} is not a number")))
}

/// The first seed whose kernel fails, with the failure; all CPU cores search.
fn first_failure(seeds: Range<u64>, pipeline: impl Fn(u64) -> Pipeline + Sync) -> Option<(u64, Failure)> {
    let (next, least) = (AtomicU64::new(seeds.start), AtomicU64::new(seeds.end));
    let work = || {
        let mut first = None;
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= least.load(Ordering::Relaxed) {
                return first;
            }
            if let Some(failure) = check(&generate::program(seed), &pipeline(seed)) {
                least.fetch_min(seed, Ordering::Relaxed);
                first = Some((seed, failure));
            }
        }
    };
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..cores).map(|_| scope.spawn(work)).collect();
        let found = workers.into_iter().filter_map(|worker| worker.join().expect("checks do not panic"));
        found.min_by_key(|&(seed, _)| seed)
    })
}

/// The kernel of the seed, reduced while it fails in the same way.
fn smallest(seed: u64, failure: &Failure, pipeline: &Pipeline) -> Program {
    let alike = |program: &Program| check(program, pipeline).is_some_and(|found| found.is_like(failure));
    shrink::shrink(&generate::program(seed), alike)
}

/// Report on a failing kernel: the failure, the reduced kernel and the first pass that breaks it.
fn report(seed: u64, failure: &Failure, pipeline: &Pipeline) -> String {
    let shrink = setting("BESPOKE_RANDOM_SHRINK") != Some(0);
    let small = if shrink { smallest(seed, failure, pipeline) } else { generate::program(seed) };
    let found = check(&small, pipeline).unwrap_or_else(|| failure.clone());
    let Program { ctas, threads, .. } = small;
    let pass = match culprit(&small, pipeline) {
        Some((pass, before, after)) => format!("{pass} makes of\n{before}this\n{after}"),
        None => unoptimised(&small).to_string(),
    };
    format!(
        "the kernel of seed {seed} fails: {failure}\n\
         with {ctas} CTAs of {threads} threads: {found}\n{pass}\
         again: BESPOKE_RANDOM_SEED={seed} cargo test -p bespoke-codegen --test random"
    )
}

fn run(seeds: Range<u64>, pipeline: impl Fn(u64) -> Pipeline + Sync) {
    let seeds = setting("BESPOKE_RANDOM_SEED").map_or(seeds, |seed| seed..seed + 1);
    let first = seeds.start;
    if let Some((seed, failure)) = first_failure(seeds, &pipeline) {
        panic!("kernel {}: {}", seed - first + 1, report(seed, &failure, &pipeline(seed)));
    }
}

#[test]
fn the_pipeline_changes_nothing_that_can_be_seen() {
    let count = setting("BESPOKE_RANDOM").unwrap_or(KERNELS);
    run(0..count, |_| Pipeline::Default);
}

/// A pass does not depend on other passes having run before it.
#[test]
fn nor_do_passes_alone_or_in_any_order() {
    let count = setting("BESPOKE_RANDOM").unwrap_or(KERNELS) / 4;
    run(1_000_000..1_000_000 + count, |seed| {
        let mut random = Random(seed);
        let length = if random.once_in(2) { 1 } else { 2 + random.below(10) };
        let all: Vec<&dyn Pass> = passes::ROUND.iter().chain(passes::LAST).copied().collect();
        Pipeline::Passes((0..length).map(|_| random.pick(&all)).collect())
    });
}

/// A wrong pass, which replaces `a | b` by `a ^ b`.
struct Wrong;

impl Pass for Wrong {
    fn name(&self) -> &'static str {
        "wrong"
    }

    fn apply(&self, function: &mut Function, _: &mut Remarks) -> bool {
        let mut changed = false;
        for block in function.layout.clone() {
            for inst in function.block(block).insts.clone() {
                let data = function.inst_mut(inst);
                if data.op == Op::Binary(Binary::Xor) {
                    data.op = Op::Binary(Binary::Or);
                    changed = true;
                }
            }
        }
        changed
    }
}

/// A kernel that a wrong pass breaks is reduced to a few instructions, whatever its size.
#[test]
fn a_failing_kernel_becomes_small() {
    let pipeline = || Pipeline::Passes(vec![&passes::Cleanup, &Wrong, &passes::DeadCode]);
    let mut first = 0;
    for _ in 0..5 {
        let (seed, failure) = first_failure(first..first + 1000, |_| pipeline()).expect("the pass is wrong");
        first = seed + 1;
        let small = smallest(seed, &failure, &pipeline());
        let function = unoptimised(&small);
        let what = format!("seed {seed}, {failure}\n{function}");
        assert!(check(&small, &pipeline()).is_some_and(|found| found.is_like(&failure)), "{what}");
        assert_eq!(culprit(&small, &pipeline()).map(|(pass, ..)| pass), Some("wrong"), "{what}");
        assert_eq!((small.ctas, small.threads), (1, 32), "{what}");
        // The thread's address takes eight instructions; a matrix product has up to ten operands.
        assert!(function.layout.len() == 1 && function.size() <= 8 + 10 + 3, "{what}");
    }
}

/// The generator covers every opcode and gives every pass something to do.
#[test]
fn kernels_reach_every_operation_and_every_pass() {
    let mut effective = std::collections::BTreeSet::new();
    let (mut reached, mut defined) = (coverage::Reached::default(), 0);
    for seed in 0..3000 {
        let program = generate::program(seed);
        let mut function = unoptimised(&program);
        reached.add(&function);
        if seed < 200 {
            defined += usize::from(execute::Launch::of(&program).interpret(&function).is_some());
            let report = passes::optimize(&mut function, OptLevel::Default);
            effective.extend(report.steps.iter().filter(|step| step.changed).map(|step| step.pass));
        }
    }
    let idle = |pass: &&dyn Pass| !effective.contains(pass.name());
    let idle: Vec<_> =
        passes::ROUND.iter().chain(passes::LAST).copied().filter(idle).map(Pass::name).collect();
    assert!(idle.is_empty(), "no kernel gives these passes anything to do: {idle:?}");
    assert!(defined > 100, "only {defined} of 200 kernels can be interpreted");
    reached.check();
}

/// `BESPOKE_RANDOM_PTX=DIR` writes the modules to a folder for each target; `.ci/run ptxas` assembles them.
#[test]
fn a_sample_makes_modules_of_many_kernels() {
    for target in [Target::Sm80, Target::Sm90] {
        let modules = sample::modules(target, SAMPLE);
        let mut kernels = 0;
        for (index, text) in modules.iter().enumerate() {
            let module =
                Module::parse(text).unwrap_or_else(|error| panic!("module {index}: {error}\n{text}"));
            kernels += module.kernels().count();
            if let Some(folder) = std::env::var_os("BESPOKE_RANDOM_PTX") {
                let folder = std::path::Path::new(&folder).join(target.to_string());
                let written = std::fs::create_dir_all(&folder)
                    .and_then(|()| std::fs::write(folder.join(format!("random_{index}.ptx")), text));
                written.unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
            }
        }
        assert_eq!(kernels, SAMPLE, "{target}");
    }
}

/// The text of each bug of `examples/seeded_bugs` still occurs in the source.
#[test]
fn mistakes_made_on_purpose_still_apply() {
    let codegen = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |path: std::path::PathBuf| {
        std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    };
    let bugs: toml::Table = read(codegen.join("tests/seeded/bugs.toml")).parse().expect("bugs.toml is TOML");
    let bugs = bugs["bug"].as_array().expect("a list of mistakes");
    for bug in bugs {
        let field = |name: &str| bug[name].as_str().unwrap_or_else(|| panic!("{name} in {bug}"));
        let times = read(codegen.join("src").join(field("file"))).matches(field("find")).count();
        let place = format!("`{}` in {}", field("find").trim(), field("file"));
        assert_eq!(
            times,
            1,
            "{}: {place} does not occur exactly once: update tests/seeded/bugs.toml",
            field("name")
        );
    }
}
