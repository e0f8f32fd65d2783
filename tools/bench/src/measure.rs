//! Measurement of tokens per second.

use std::time::Instant;

use bespoke::device::{Clocks, Kind};
use bespoke::engine::{Engine, EngineError, MemoryNeeds, median};
use serde::Serialize;

use crate::Subject;

/// Decode speed of one model at one depth.
#[derive(Debug, Serialize)]
pub struct Measurement {
    /// The model's name.
    pub model: String,
    /// Size of the model's file in bytes.
    pub model_bytes: u64,
    /// Number of weights of the model.
    pub parameters: u64,
    /// The device's name.
    pub device: String,
    /// The driver's version.
    pub driver: Option<String>,
    /// The target of the kernels.
    pub target: String,
    /// How steps are launched: `graph` or `eager`.
    pub mode: &'static str,
    /// Launches per step.
    pub nodes: usize,
    /// Device memory that the plan needs.
    pub memory: MemoryNeeds,
    /// Tokens per repetition.
    pub tokens: u32,
    /// Positions in the cache at the start.
    pub depth: u32,
    /// Tokens per second of every repetition.
    pub repetitions: Vec<f64>,
    /// Median of the repetitions.
    pub tokens_per_second: f64,
    /// Standard deviation of the repetitions.
    pub standard_deviation: f64,
    /// Bytes read per token at the mean depth: weights, keys and values.
    pub bytes_per_token: u64,
    /// `bytes_per_token` times `tokens_per_second`.
    pub bytes_per_second: f64,
    /// Read ceiling: bytes per second of a plain read of device memory; `None` on the emulator.
    pub ceiling_bytes_per_second: Option<f64>,
    /// `bytes_per_second` over the ceiling; `None` on the emulator.
    pub fraction_of_ceiling: Option<f64>,
    /// Clocks after the first warm-up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clocks_before: Option<Clocks>,
    /// Clocks after the last repetition.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clocks_after: Option<Clocks>,
}

/// Number of untimed steps at the start of a measurement and before each repetition.
pub const WARM_UP: u32 = 8;

/// Length of a measurement: tokens and repetitions.
#[derive(Clone, Copy, Debug)]
pub struct Workload {
    /// Tokens per repetition.
    pub tokens: u32,
    /// Repetitions; at least one.
    pub repetitions: u32,
}

impl Workload {
    /// Tokens decoded per measurement, warm-up included.
    pub fn all_tokens(self) -> u64 {
        let repetitions = u64::from(self.repetitions.max(1));
        u64::from(WARM_UP) + repetitions * (u64::from(WARM_UP) + u64::from(self.tokens))
    }
}

/// Measures the decode speed at `depth`. Reports progress out of [`Workload::all_tokens`]: on the emulator after every
/// token, on a GPU only between repetitions, outside of the timed parts.
pub fn measure(
    subject: &mut Subject<'_>,
    depth: u32,
    workload: Workload,
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
    for _ in 0..workload.repetitions.max(1) {
        warm_up(engine, depth, &mut count)?;
        engine.start_at_depth(depth)?;
        let start = Instant::now();
        for _ in 0..workload.tokens {
            engine.step()?;
            if every_token {
                count(1);
            }
        }
        engine.wait_without_pauses()?;
        rates.push(f64::from(workload.tokens) / start.elapsed().as_secs_f64());
        // An error if the last token is missing, or its logits are not finite.
        engine.token(engine.position())?;
        if !every_token {
            count(workload.tokens);
        }
    }
    let clocks_after = engine.device().clocks();
    let mean = rates.iter().sum::<f64>() / rates.len() as f64;
    let variance = rates.iter().map(|rate| (rate - mean).powi(2)).sum::<f64>() / rates.len() as f64;
    let rate = median(&rates);
    // The cache grows during a repetition, so its mean length is used.
    let bytes = engine.plan().bytes_per_token(u64::from(depth) + u64::from(workload.tokens) / 2);
    let info = engine.device().info();
    let gguf = subject.gguf;
    Ok(Measurement {
        model: subject.name.clone(),
        model_bytes: gguf.file_bytes(),
        parameters: gguf.tensors().iter().map(|tensor| tensor.elements()).sum(),
        device: info.name.clone(),
        driver: info.driver.clone(),
        target: engine.plan().target().to_string(),
        mode: if engine.graph().is_some() { "graph" } else { "eager" },
        nodes: engine.plan().launches.len(),
        memory: MemoryNeeds::of(engine.plan()),
        tokens: workload.tokens,
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

/// Runs warm-up steps, waits for them, and reports their number to `count`.
fn warm_up(engine: &mut Engine, depth: u32, count: &mut impl FnMut(u32)) -> Result<(), EngineError> {
    engine.start_at_depth(depth)?;
    for _ in 0..WARM_UP {
        engine.step()?;
    }
    engine.wait()?;
    count(WARM_UP);
    Ok(())
}
