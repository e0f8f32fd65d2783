//! Benchmarks of the emulator: lane instructions per second on the kernels of a real model's shape, and whole steps.
//!
//! Criterion's `elements` are lane instructions. Each benchmark runs with and without checks, on one thread and on all.

mod step;

use bespoke_emulator::{Checks, Options, ProgrammaticOrder, Stats};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};

use step::Step;

const SHAPE: &str = "qwen2.5-0.5b";
/// Position that each step processes: attention reads two pages of keys and values.
const POSITION: u32 = 100;

/// Options of the emulator with their names: with checks and without, on one thread and on all.
fn variants() -> Vec<(String, Options)> {
    let checks = [("no checks", Checks::NONE), ("all checks", Checks::ALL)];
    let threads = [("one thread", 1), ("all threads", 0)];
    let pairs = checks.into_iter().flat_map(|checks| threads.map(|threads| (checks, threads)));
    let options = pairs.map(|((checks, check), (threads, count))| {
        (format!("{checks}, {threads}"), Options { threads: count, checks: check, ..Options::default() })
    });
    options.collect()
}

/// Benchmarks one launch of each kind: GEMV, attention, and the embedding look-up.
fn kernels(c: &mut Criterion, step: &Step) {
    let mut group = c.benchmark_group("emulator");
    group.sample_size(20);
    for label in ["blk.0.ffn_gate_up", "blk.0.ffn_down", "blk.0.attention", "embed"] {
        let Some(launch) = step.launches.iter().find(|launch| launch.label.starts_with(label)) else {
            panic!("no launch `{label}`");
        };
        for (name, options) in variants() {
            let stats = step.launch(launch, &options);
            group.throughput(Throughput::Elements(stats.lane_instructions));
            let id = BenchmarkId::new(label, name);
            group.bench_function(id, |b| b.iter(|| step.launch(launch, &options)));
        }
    }
    group.finish();
}

/// Benchmarks a whole decode step; variants with checks also check the programmatic edges between launches.
fn steps(c: &mut Criterion, step: &Step) {
    let mut group = c.benchmark_group("emulator");
    group.sample_size(10);
    for (name, options) in variants() {
        let run = || -> Stats {
            step.go_to(POSITION);
            let mut order = ProgrammaticOrder::new();
            step.run(&options, (options.checks != Checks::NONE).then_some(&mut order))
        };
        let stats = run();
        group.throughput(Throughput::Elements(stats.lane_instructions));
        let id = BenchmarkId::new(format!("step of {SHAPE}"), name);
        group.bench_function(id, |b| b.iter(run));
    }
    group.finish();
}

fn emulator(c: &mut Criterion) {
    let step = Step::new(SHAPE);
    step.go_to(POSITION);
    // Runs the whole step first, because the kernels benchmarked alone read outputs of earlier kernels.
    let stats = step.run(&Options { checks: Checks::NONE, ..Options::default() }, None);
    println!(
        "a token of {SHAPE}: {:.0} million lane-instructions, {:.1} million warp-instructions, {:.0} MB loaded",
        stats.lane_instructions as f64 / 1e6,
        stats.warp_instructions as f64 / 1e6,
        stats.global_bytes_loaded as f64 / 1e6
    );
    kernels(c, &step);
    steps(c, &step);
}

criterion_group!(benches, emulator);
criterion_main!(benches);
