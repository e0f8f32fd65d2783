//! Comparison of two models' predictions.

use std::time::Instant;

use bespoke::engine::{Engine, EngineError};
use serde::Serialize;

use crate::predictions::predict;
use crate::statistics::{kl_divergence, largest, quantile};
use crate::{Estimate, Prediction, Progress, Score, Text, Work};

/// Comparison of a model with a reference, over the same scored tokens.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// Perplexity of the reference.
    pub reference: Score,
    /// Perplexity of the model.
    pub model: Score,
    /// Perplexity of the model divided by that of the reference. The standard error is that of the paired differences of
    /// −ln p, which is smaller than the errors of the two perplexities suggest.
    pub ratio: Estimate,
    /// Divergence of the model's probabilities from the reference's.
    pub divergence: Divergence,
    /// Share of scored tokens for which both models' most likely token is the same.
    pub same_top: Estimate,
    /// Extent of the measurement.
    #[serde(flatten)]
    pub work: Work,
}

/// Kullback–Leibler divergence Σ p · (ln p − ln q) over the vocabulary, in nats, with p of the reference and q of the
/// model, over the scored tokens.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Divergence {
    /// Mean, with its standard error.
    pub mean: Estimate,
    /// Median.
    pub median: f64,
    /// 99 % of tokens have at most this.
    pub percentile_99: f64,
    /// Maximum.
    pub max: f64,
}

impl Divergence {
    fn of(mut samples: Vec<f64>) -> Divergence {
        let mean = Estimate::of(&samples);
        samples.sort_by(f64::total_cmp);
        Divergence {
            mean,
            median: quantile(&samples, 0.5),
            percentile_99: quantile(&samples, 0.99),
            max: quantile(&samples, 1.0),
        }
    }
}

/// Compares the predictions of `model` with those of `reference`. Both must have the same vocabulary
/// ([`check_vocabularies`](crate::check_vocabularies)).
///
/// # Errors
/// If an engine fails, or logits are not finite.
pub fn compare(
    reference: &mut Engine,
    model: &mut Engine,
    text: Text<'_>,
    progress: Progress<'_>,
) -> Result<Comparison, EngineError> {
    let start = Instant::now();
    let (mut of_reference, mut of_model) = (Vec::new(), Vec::new());
    let (mut divergences, mut same) = (Vec::new(), Vec::new());
    let scored = |[p, q]: [Prediction; 2]| {
        of_reference.push(p.surprise());
        of_model.push(q.surprise());
        divergences.push(kl_divergence(&p.logprobs, &q.logprobs));
        same.push(f64::from(u8::from(largest(&p.logprobs) == largest(&q.logprobs))));
    };
    let positions = predict([reference, model], text, progress, scored)?;
    let differences: Vec<f64> = of_model.iter().zip(&of_reference).map(|(q, p)| q - p).collect();
    Ok(Comparison {
        reference: Score::of(&of_reference),
        model: Score::of(&of_model),
        ratio: Estimate::of(&differences).exp(),
        divergence: Divergence::of(divergences),
        same_top: Estimate::of(&same),
        work: Work::since(start, same.len(), positions),
    })
}
