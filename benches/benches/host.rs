//! Benchmarks of the host: specialisation, reading headers, repacking weights, polling tokens, emulation.

use std::hint::black_box;
use std::time::Duration;

use bespoke::device::{Selector, open};
use bespoke::engine::{Engine, EngineError, EngineOptions, SamplingParams};
use bespoke::generation::Request;
use bespoke::scheduler::{Draft, Limits, PAGE, PageEntry, Scheduler, StepRow, Steps};
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

/// An engine without a device, whose steps are complete when they are enqueued.
struct Instant(Limits);

impl Steps for Instant {
    fn limits(&self) -> &Limits {
        &self.0
    }
    fn start(&mut self, _slot: u32, _tokens: &[u32], _sampling: &SamplingParams) -> Result<(), EngineError> {
        Ok(())
    }
    fn give_tokens(&mut self, _slot: u32, _position: u32, _tokens: &[u32]) -> Result<(), EngineError> {
        Ok(())
    }
    fn discard(&mut self, _slot: u32, _position: u32, _count: u32) -> Result<(), EngineError> {
        Ok(())
    }
    fn set_masks(&mut self, _masks: &[(u32, Vec<u32>)]) -> Result<(), EngineError> {
        Ok(())
    }
    fn set_pages(&mut self, _entries: &[PageEntry]) -> Result<(), EngineError> {
        Ok(())
    }
    fn clear_pages(&mut self, _pages: &[u32]) -> Result<(), EngineError> {
        Ok(())
    }
    fn prefill(&mut self, _rows: &[StepRow]) -> Result<(), EngineError> {
        Ok(())
    }
    fn decode(&mut self, _rows: &[StepRow]) -> Result<(), EngineError> {
        Ok(())
    }
    fn verify(&mut self, _rows: &[StepRow], _drafts: &[Draft]) -> Result<(), EngineError> {
        Ok(())
    }
    fn decode_again(&mut self) -> Result<(), EngineError> {
        Ok(())
    }
    fn token(&self, _slot: u32, position: u32) -> Result<Option<u32>, EngineError> {
        Ok(Some(position))
    }
    fn logits(&mut self, _row: u32) -> Result<Vec<f32>, EngineError> {
        Ok(Vec::new())
    }
    fn busy(&self, _waited: Duration, _steps: u32) -> Result<bool, EngineError> {
        Ok(false)
    }
    fn reset(&mut self) -> Result<(), EngineError> {
        Ok(())
    }
}

/// Benchmarks the scheduler's work per token, without calls of a device: one sequence, and 64 together.
fn scheduler(c: &mut Criterion) {
    const TOKENS: u32 = 1024;
    let mut group = c.benchmark_group("scheduler");
    for slots in [1, 64] {
        group.throughput(Throughput::Elements((slots * TOKENS).into()));
        group.bench_function(format!("tokens of {slots} sequences"), |b| {
            b.iter(|| {
                let limits = Limits {
                    slots,
                    pages: slots * 2 * TOKENS / PAGE,
                    context: 2 * TOKENS,
                    vocab: 8 * TOKENS,
                    sampling: false,
                    decode: vec![slots],
                    verify: Vec::new(),
                    prefill: vec![64],
                };
                let mut scheduler = Scheduler::new(Instant(limits), None);
                for _ in 0..slots {
                    scheduler.add(&Request { max_tokens: TOKENS, ..Request::new(&[1]) }).unwrap();
                }
                while !scheduler.is_idle() {
                    black_box(scheduler.step().unwrap());
                }
            });
        });
    }
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

criterion_group!(benches, specialise, gguf, repacking, scheduler, emulated_step);
criterion_main!(benches);
