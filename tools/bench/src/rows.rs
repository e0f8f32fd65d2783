//! Speed of steps of several rows: decoding of many sequences, and the processing of prompts.

use std::ops::ControlFlow;

use bespoke::engine::{EngineError, Slots, StepRows, median};
use bespoke::generation::Request;
use bespoke::scheduler::Scheduler;
use bespoke_kernels::plan::{LaunchRole, Plan};
use bespoke_kernels::spec::KernelSpec;
use serde::Serialize;

use crate::Subject;

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
    /// Bytes that the steps must read per second: weights, keys and values.
    pub bytes_per_second: f64,
    /// `bytes_per_second` over the read ceiling; `None` on the emulator.
    pub fraction_of_ceiling: Option<f64>,
    /// Multiplications and additions of the matrix products per second: two for each weight and token.
    pub operations_per_second: f64,
    /// Tensor core ceiling: operations per second of dense f16 products with f32 sums; `None` on the emulator.
    pub tensor_ceiling_operations_per_second: Option<f64>,
    /// `operations_per_second` over the tensor core ceiling; `None` on the emulator.
    pub fraction_of_tensor_ceiling: Option<f64>,
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
    let plan = engine.step_plan(rows)?;
    let work = Work {
        tokens: sequences,
        bytes: plan.bytes_per_token(u64::from(depth + STEPS / 2)),
        operations: 2 * u64::from(sequences) * weights(engine.plan(), |_| true),
    };
    Ok(Some(measurement(subject, RowsTest::Batch { sequences, depth }, work, median(&times))))
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
        // Without pages of the run before.
        let mut scheduler = Scheduler::new(Slots::new(engine)?, None);
        let request = Request { max_tokens: 1, ..Request::new(&prompt) };
        let summary = scheduler.generate(&request, |_| ControlFlow::Continue(()))?;
        if repetition > 0 {
            times.push(summary.prompt_time.as_secs_f64() * 1e3);
        }
    }
    let mut bytes = 0;
    let steps = engine.prompt_steps(length);
    for step in &steps {
        bytes += engine.step_plan(*step)?.bytes_per_token(u64::from(step.depth()));
    }
    let plan = engine.plan();
    if steps.is_empty() {
        // Decode steps of one row process the prompt.
        bytes = (0..length).map(|position| plan.bytes_per_token(u64::from(position))).sum();
    }
    // Logits are computed after the last token only.
    let layers = weights(plan, |role| role != LaunchRole::Output);
    let work = Work {
        tokens: length,
        bytes,
        operations: 2 * (u64::from(length) * layers + weights(plan, |role| role == LaunchRole::Output)),
    };
    Ok(measurement(subject, RowsTest::Prompt { length }, work, median(&times)))
}

/// What a measured step or prompt amounts to.
struct Work {
    tokens: u32,
    /// Bytes that must be read.
    bytes: u64,
    /// Multiplications and additions of the matrix products.
    operations: u64,
}

fn measurement(subject: &Subject<'_>, test: RowsTest, work: Work, milliseconds: f64) -> RowsMeasurement {
    let per_second = |count: f64| count * 1e3 / milliseconds;
    let (bytes, operations) = (per_second(work.bytes as f64), per_second(work.operations as f64));
    RowsMeasurement {
        model: subject.name.clone(),
        test,
        milliseconds,
        tokens_per_second: per_second(f64::from(work.tokens)),
        bytes_per_second: bytes,
        fraction_of_ceiling: subject.ceiling.map(|ceiling| bytes / ceiling),
        operations_per_second: operations,
        tensor_ceiling_operations_per_second: subject.tensor_ceiling,
        fraction_of_tensor_ceiling: subject.tensor_ceiling.map(|ceiling| operations / ceiling),
    }
}

/// Number of weights by which a token is multiplied, in the launches of a plan for one row whose role `select` selects.
fn weights(plan: &Plan, select: impl Fn(LaunchRole) -> bool) -> u64 {
    let selected = plan.launches.iter().filter(|launch| select(launch.label.role));
    selected
        .map(|launch| match &plan.kernels[launch.kernel].spec {
            KernelSpec::Gemv(s) => {
                s.segments.iter().map(|segment| u64::from(segment.rows)).sum::<u64>() * u64::from(s.cols)
            }
            _ => 0,
        })
        .sum()
}

#[cfg(test)]
mod tests {
    use bespoke_codegen::ptx::Target;
    use bespoke_kernels::plan::PlanParams;
    use bespoke_kernels::shape::builtin;

    use super::*;

    /// Every matrix counts once: all parameters of the model but the embedding's, which is only looked up, and the norms'.
    #[test]
    fn all_matrices_multiply_a_token() {
        let file = builtin().into_iter().find(|file| file.name == "llama-3.1-8b").unwrap();
        let plan =
            Plan::new(&file.with_mix("q4_k_m").unwrap(), Target::Sm90, PlanParams::single(64)).unwrap();
        let head = weights(&plan, |role| role == LaunchRole::Output);
        assert_eq!(head, 128_256 * 4096);
        let layers = weights(&plan, |role| role != LaunchRole::Output);
        assert_eq!(layers, 32 * 4096 * (2 * 4096 + 2 * 1024 + 3 * 14_336));
        assert_eq!(weights(&plan, |_| true), layers + head);
    }
}
