//! Predictions of one or more models on the same text.

use std::ops::ControlFlow;

use bespoke::engine::{Engine, EngineError};

use crate::statistics::log_softmax;
use crate::{Progress, Text};

/// A model's prediction of a token.
pub(crate) struct Prediction {
    /// Id of the token that follows in the text.
    pub token: u32,
    /// Natural logarithms of all tokens' probabilities.
    pub logprobs: Vec<f64>,
}

impl Prediction {
    /// Negative logarithm of the probability of the token that follows.
    pub fn surprise(&self) -> f64 {
        -self.logprobs[self.token as usize]
    }
}

/// Processes the windows of a text with every engine, and calls `scored` with the engines' predictions of each scored
/// token. Engines take turns, position by position, so that no logits are stored.
///
/// Returns the number of positions that were processed.
pub(crate) fn predict<const N: usize>(
    mut engines: [&mut Engine; N],
    text: Text<'_>,
    progress: Progress<'_>,
    mut scored: impl FnMut([Prediction; N]),
) -> Result<u64, EngineError> {
    let mut done = 0;
    for window in text.windows {
        let mut input = text.tokens[window.start..window.end].to_vec();
        if let (Some(bos), Some(first)) = (text.bos, input.first_mut()) {
            *first = bos;
        }
        for engine in &mut engines {
            engine.start(&input)?;
        }
        for next in window.start + 1..window.end {
            for engine in &mut engines {
                engine.step()?;
            }
            if next >= window.scored {
                let token = text.tokens[next];
                let mut predictions = Vec::with_capacity(N);
                for engine in &mut engines {
                    predictions.push(Prediction { token, logprobs: log_softmax(&engine.logits()?) });
                }
                scored(predictions.try_into().map_err(|_| ()).expect("a prediction of each engine"));
            }
            done += 1;
            if progress(done) == ControlFlow::Break(()) {
                return Ok(done);
            }
        }
    }
    Ok(done)
}
