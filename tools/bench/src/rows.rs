//! Speed of steps of several rows: decoding of many sequences, and the processing of prompts.

use std::time::Instant;

use bespoke::engine::{EngineError, StepRows};
use serde::Serialize;

use crate::{Subject, median};

/// What was measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "test", rename_all = "snake_case")]
pub enum RowsTest {
    /// Decode steps of `sequences` sequences, each `depth` positions long.
    Batch {
        /// Number of sequences: rows of the step.
        sequences: u32,
        /// Positions in each sequence's cache.
        depth: u32,
    },
    /// A prompt of `length` tokens, up to the first token of the answer.
    Prompt {
        /// Number of prompt tokens.
        length: u32,
    },
}

/// Speed of steps of several rows.
#[derive(Debug, Serialize)]
pub struct RowsMeasurement {
    /// The model's name.
    pub model: String,
    /// What was measured.
    #[serde(flatten)]
    pub test: RowsTest,
    /// Median time of a step by the device's clock, or of the whole prompt by the host's, in milliseconds.
    pub milliseconds: f64,
    /// Tokens of all sequences per second.
    pub tokens_per_second: f64,
    /// For decode steps: the bytes that a step must read, over its time and the read ceiling.
    pub fraction_of_ceiling: Option<f64>,
}

/// Steps that are timed together.
const STEPS: u32 = 16;

/// Number of positions that a batch needs behind its depth.
pub const BATCH_POSITIONS: u32 = STEPS + 1;

/// Measures decode steps of `sequences` sequences at `depth`: the median of `repetitions`. None without a graph.
///
/// # Errors
/// If the engine was loaded with fewer slots, the cache is too small, or the device fails.
pub fn measure_batch(
    subject: &mut Subject<'_>,
    sequences: u32,
    depth: u32,
    repetitions: u32,
) -> Result<Option<RowsMeasurement>, EngineError> {
    let engine = &mut subject.engine;
    let rows = StepRows::Decode { sequences, depth };
    let mut times = Vec::new();
    // The first is a warm-up.
    for repetition in 0..=repetitions {
        let Some(time) = engine.time_step(rows, STEPS)? else {
            return Ok(None);
        };
        if repetition > 0 {
            times.push(time);
        }
    }
    let milliseconds = median(&times);
    let plan = engine.step_plan(rows)?;
    let bytes = plan.bytes_per_token(u64::from(depth + STEPS / 2)) as f64;
    Ok(Some(RowsMeasurement {
        model: subject.name.clone(),
        test: RowsTest::Batch { sequences, depth },
        milliseconds,
        tokens_per_second: f64::from(sequences) * 1e3 / milliseconds,
        fraction_of_ceiling: subject.ceiling.map(|ceiling| bytes * 1e3 / milliseconds / ceiling),
    }))
}

/// Measures a prompt of `length` tokens, with an empty cache, until the host has the first token of the answer: the median
/// of `repetitions`.
///
/// # Errors
/// If the cache is too small, or the device fails.
pub fn measure_prompt(
    subject: &mut Subject<'_>,
    length: u32,
    repetitions: u32,
) -> Result<RowsMeasurement, EngineError> {
    let engine = &mut subject.engine;
    let vocab = engine.plan().shape.dimensions.vocab;
    let prompt: Vec<u32> = (0..length).map(|i| i.wrapping_mul(7919) % vocab).collect();
    let mut times = Vec::new();
    for repetition in 0..=repetitions {
        engine.start(&prompt)?;
        let start = Instant::now();
        for token in engine.generate(1)? {
            token?;
        }
        if repetition > 0 {
            times.push(start.elapsed().as_secs_f64() * 1e3);
        }
    }
    let milliseconds = median(&times);
    Ok(RowsMeasurement {
        model: subject.name.clone(),
        test: RowsTest::Prompt { length },
        milliseconds,
        tokens_per_second: f64::from(length) * 1e3 / milliseconds,
        fraction_of_ceiling: None,
    })
}
