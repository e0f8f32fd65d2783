//! Benchmarks of the host: specialisation, reading headers, repacking weights, polling tokens, emulation.

use std::hint::black_box;
use std::time::Duration;

use bespoke::device::{Selector, open};
use bespoke::engine::{DecodeCursor, Engine, EngineError, EngineOptions, StepQueue, Tokens};
use bespoke_codegen::ptx::Target;
use bespoke_gguf::Gguf;
use bespoke_kernels::emit;
use bespoke_kernels::plan::{Plan, PlanParams};
use bespoke_kernels::shape::{ModelShape, builtin};
use bespoke_kernels::spec::KernelSpec;
use bespoke_kernels::weights::{Layout, WeightType, repack};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};

const FIXTURE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures/llama-q4_k_m.gguf");

fn llama_8b() -> ModelShape {
    builtin().into_iter().find(|file| file.name == "llama-3.1-8b").unwrap().with_mix("q4_k_m").unwrap()
}

/// Benchmarks planning Llama-3.1-8B, and recording, optimising and printing all kernels of the plan.
fn specialise(c: &mut Criterion) {
    let shape = llama_8b();
    let plan = || Plan::new(&shape, Target::Sm90, PlanParams::single(4096)).unwrap();
    let specs: Vec<KernelSpec> = plan().kernels.into_iter().map(|kernel| kernel.spec).collect();
    c.bench_function("plan llama-3.1-8b", |b| b.iter(|| black_box(plan())));
    c.bench_function("compile all kernels of llama-3.1-8b", |b| {
        b.iter(|| black_box(emit::compile(&specs, Target::Sm90).unwrap()));
    });
}

fn gguf(c: &mut Criterion) {
    c.bench_function("open a GGUF and read its shape", |b| {
        b.iter(|| ModelShape::from_gguf(&Gguf::open(FIXTURE).unwrap(), "fixture").unwrap());
    });
}

/// Benchmarks the repacking of weights on all cores, in bytes of the file per second.
fn repacking(c: &mut Criterion) {
    let mut group = c.benchmark_group("repack");
    for ty in [WeightType::Q4_K, WeightType::Q6_K, WeightType::Q8_0] {
        let layout = Layout::new(ty, 4096, 4096).unwrap();
        let file = vec![0x5A; layout.file_row_bytes() * 4096];
        let mut planes = vec![0; layout.bytes as usize];
        group.throughput(Throughput::Bytes(file.len() as u64));
        group.bench_function(ty.to_string(), |b| b.iter(|| repack(&layout, &file, &mut planes)));
    }
    group.finish();
}

/// Step queue whose steps complete immediately.
struct Instant(DecodeCursor);

impl StepQueue for Instant {
    fn cursor(&mut self) -> &mut DecodeCursor {
        &mut self.0
    }
    fn enqueue(&mut self) -> Result<(), EngineError> {
        self.0.enqueued += 1;
        Ok(())
    }
    fn token_at(&self, position: u32) -> Result<Option<u32>, EngineError> {
        Ok((position <= self.0.enqueued).then_some(position))
    }
    fn busy(&self, _waited: Duration) -> Result<bool, EngineError> {
        Ok(false)
    }
}

/// Benchmarks the host's work per token, without calls of a device.
fn queue(c: &mut Criterion) {
    const TOKENS: u32 = 1024;
    let mut group = c.benchmark_group("queue");
    group.throughput(Throughput::Elements(TOKENS.into()));
    group.bench_function("take tokens", |b| {
        b.iter(|| {
            let steps = Instant(DecodeCursor { prompt: 1, ..DecodeCursor::default() });
            Tokens::new(steps, TOKENS).map(Result::unwrap).map(u64::from).sum::<u64>()
        });
    });
    group.finish();
}

/// Benchmarks one decode step of a test fixture on the emulator.
fn emulated_step(c: &mut Criterion) {
    let gguf = Gguf::open(FIXTURE).unwrap();
    let shape = ModelShape::from_gguf(&gguf, "fixture").unwrap();
    let device = open(Selector::Emulator).unwrap().device;
    let options = EngineOptions { context: Some(4096), ..EngineOptions::default() };
    let mut engine = Engine::load(device, &gguf, &shape, &options, &|_, _| ()).unwrap();
    engine.start(&[1]).unwrap();
    c.bench_function("step of llama-q4_k_m (fixture) on the emulator", |b| {
        b.iter(|| {
            if engine.require_steps(1).is_err() {
                engine.start(&[1]).unwrap();
            }
            engine.step().unwrap();
        });
    });
}

criterion_group!(benches, specialise, gguf, repacking, queue, emulated_step);
criterion_main!(benches);
