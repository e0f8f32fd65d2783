//! Perplexity of one model.

use std::time::Instant;

use bespoke::engine::{Engine, EngineError};
use serde::Serialize;

use crate::predictions::predict;
use crate::{Estimate, Prediction, Progress, Text};

/// Perplexity of a model on the scored tokens of a text.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Score {
    /// e^loss, with its standard error.
    pub perplexity: Estimate,
    /// Mean of −ln p over the scored tokens (nats), with its standard error.
    pub loss: Estimate,
}

impl Score {
    /// Score of tokens with these values of −ln p.
    pub(crate) fn of(surprises: &[f64]) -> Score {
        let loss = Estimate::of(surprises);
        Score { perplexity: loss.exp(), loss }
    }
}

/// Extent of a measurement.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Work {
    /// Number of scored tokens.
    pub scored: usize,
    /// Number of positions that each model processed.
    pub positions: u64,
    /// Duration in seconds.
    pub seconds: f64,
    /// Positions per second.
    pub tokens_per_second: f64,
}

impl Work {
    pub(crate) fn since(start: Instant, scored: usize, positions: u64) -> Work {
        let seconds = start.elapsed().as_secs_f64();
        Work { scored, positions, seconds, tokens_per_second: positions as f64 / seconds }
    }
}

/// Perplexity of a model on a text.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Perplexity {
    /// The perplexity.
    #[serde(flatten)]
    pub score: Score,
    /// Extent of the measurement.
    #[serde(flatten)]
    pub work: Work,
}

/// Measures perplexity: e to the mean of −ln p(token | tokens before it in its window) over the scored tokens.
///
/// # Errors
/// If the engine fails, or logits are not finite.
pub fn perplexity(
    engine: &mut Engine,
    text: Text<'_>,
    progress: Progress<'_>,
) -> Result<Perplexity, EngineError> {
    let start = Instant::now();
    let mut surprises = Vec::new();
    let scored = |[prediction]: [Prediction; 1]| surprises.push(prediction.surprise());
    let positions = predict([engine], text, progress, scored)?;
    Ok(Perplexity { score: Score::of(&surprises), work: Work::since(start, surprises.len(), positions) })
}
