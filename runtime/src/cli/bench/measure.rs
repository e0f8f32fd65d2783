//! Tokens a second.

use std::time::Instant;

use serde::Serialize;

use super::{BenchArgs, Subject, median};
use crate::device::{Clocks, Kind};
use crate::engine::{Engine, EngineError, MemoryNeeds};

/// One model at one depth.
#[derive(Debug, Serialize)]
pub(super) struct Measurement {
    pub model: String,
    pub model_bytes: u64,
    pub parameters: u64,
    pub device: String,
    pub driver: Option<String>,
    pub target: String,
    pub mode: &'static str,
    pub nodes: usize,
    /// What the plan takes of the device's memory.
    pub memory: MemoryNeeds,
    pub tokens: u32,
    pub depth: u32,
    /// Tokens a second of every repetition.
    pub repetitions: Vec<f64>,
    pub tokens_per_second: f64,
    pub standard_deviation: f64,
    pub bytes_per_token: u64,
    pub bytes_per_second: f64,
    /// None on the emulator.
    pub ceiling_bytes_per_second: Option<f64>,
    pub fraction_of_ceiling: Option<f64>,
    /// After the first warm-up, and after the last repetition.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clocks_before: Option<Clocks>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clocks_after: Option<Clocks>,
}

/// Steps before the clock starts.
pub(super) const WARM_UP: u32 = 8;

/// Tokens that a measurement decodes, warming up included.
pub(super) fn tokens(args: &BenchArgs) -> u64 {
    let repetitions = u64::from(args.repetitions.max(1));
    u64::from(WARM_UP) + repetitions * (u64::from(WARM_UP) + u64::from(args.n))
}

/// Measures at `depth`, and tells how many of [`tokens`] are decoded: on the emulator after every one, on a GPU between
/// repetitions, where nothing is timed.
pub(super) fn measure(
    subject: &mut Subject<'_>,
    depth: u32,
    args: &BenchArgs,
    tell: &dyn Fn(u64),
) -> Result<Measurement, EngineError> {
    let engine = &mut subject.engine;
    let mut done = 0;
    let mut count = |tokens: u32| {
        done += u64::from(tokens);
        tell(done);
    };
    let every_token = engine.device().info().kind == Kind::Emulator;
    warm_up(engine, depth, &mut count)?;
    let clocks_before = engine.device().clocks();
    let mut rates = Vec::new();
    for _ in 0..args.repetitions.max(1) {
        warm_up(engine, depth, &mut count)?;
        engine.start_at_depth(depth)?;
        let start = Instant::now();
        for token in engine.generate(args.n)? {
            token?;
            if every_token {
                count(1);
            }
        }
        rates.push(f64::from(args.n) / start.elapsed().as_secs_f64());
        if !every_token {
            count(args.n);
        }
    }
    let clocks_after = engine.device().clocks();
    let mean = rates.iter().sum::<f64>() / rates.len() as f64;
    let variance = rates.iter().map(|rate| (rate - mean).powi(2)).sum::<f64>() / rates.len() as f64;
    let rate = median(&rates);
    // The cache grows while tokens are decoded: the mean length counts.
    let bytes = engine.plan().bytes_per_token(u64::from(depth) + u64::from(args.n) / 2);
    let info = engine.device().info();
    let gguf = &subject.model.gguf;
    Ok(Measurement {
        model: subject.name.clone(),
        model_bytes: gguf.file_bytes(),
        parameters: gguf.tensors().iter().map(|tensor| tensor.elements()).sum(),
        device: info.name.clone(),
        driver: info.driver.clone(),
        target: engine.plan().target.to_string(),
        mode: if engine.graph().is_some() { "graph" } else { "eager" },
        nodes: engine.plan().launches.len(),
        memory: MemoryNeeds::of(engine.plan()),
        tokens: args.n,
        depth,
        repetitions: rates,
        tokens_per_second: rate,
        standard_deviation: variance.sqrt(),
        bytes_per_token: bytes,
        bytes_per_second: bytes as f64 * rate,
        ceiling_bytes_per_second: subject.ceiling,
        fraction_of_ceiling: subject.ceiling.map(|ceiling| bytes as f64 * rate / ceiling),
        clocks_before,
        clocks_after,
    })
}

/// Runs some steps, waits for them and counts them.
fn warm_up(engine: &mut Engine, depth: u32, count: &mut impl FnMut(u32)) -> Result<(), EngineError> {
    engine.start_at_depth(depth)?;
    for _ in 0..WARM_UP {
        engine.step()?;
    }
    engine.wait()?;
    count(WARM_UP);
    Ok(())
}
