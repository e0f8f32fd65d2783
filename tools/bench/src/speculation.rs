//! Speed of speculation with synthetic drafts: what a given share of right tokens gains, whatever drafts them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bespoke::engine::{Engine, EngineError, Slots, median};
use bespoke::generation::Request;
use bespoke::scheduler::{Event, Scheduler, StepCounts, Steps};
use bespoke::speculation::{Speculation, Synthetic};
use serde::Serialize;

use crate::Subject;

/// What is measured.
#[derive(Clone, Debug)]
pub struct SpeculationWorkload {
    /// Tokens to decode; at least 2.
    pub tokens: u32,
    /// Number of prompt tokens; at least 1.
    pub prompt: u32,
    /// Repetitions; at least one.
    pub repetitions: u32,
    /// Shares of right tokens.
    pub rates: Vec<f64>,
    /// Lengths of drafts. The largest one is also the most that drafts of a chosen length have.
    pub lengths: Vec<u32>,
}

/// Speed of one sequence with drafts of one share of right tokens and one length.
#[derive(Clone, Debug, Serialize)]
pub struct SpeculationMeasurement {
    /// The model's name.
    pub model: String,
    /// The draft model's name, if its steps count.
    pub draft: Option<String>,
    /// Probability that a drafted token is right.
    pub rate: f64,
    /// Number of tokens of each draft; none if it is chosen by measured acceptance and times.
    pub length: Option<u32>,
    /// Number of prompt tokens.
    pub prompt: u32,
    /// Tokens of the answer.
    pub tokens: u32,
    /// Drafted tokens, for each step that chooses tokens.
    pub drafted_per_step: f64,
    /// Accepted tokens, for each such step.
    pub accepted_per_step: f64,
    /// Tokens per second: the median of the repetitions.
    pub tokens_per_second: f64,
    /// Tokens per second without speculation, in the same run.
    pub plain_tokens_per_second: f64,
}

impl SpeculationMeasurement {
    /// Speed relative to that without speculation.
    pub fn gain(&self) -> f64 {
        self.tokens_per_second / self.plain_tokens_per_second
    }
}

/// Error of a measurement of speculation.
#[derive(Debug, thiserror::Error)]
pub enum SpeculationError {
    /// The engine failed.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// Speculation changed the answer.
    #[error("speculation changed the answer: {found} instead of {expected} from token {index} on")]
    Differs {
        /// Index of the first token that differs.
        index: usize,
        /// The tokens from there on without speculation.
        expected: String,
        /// The tokens with speculation.
        found: String,
    },
}

/// Measures one sequence, first without speculation, then with drafts of each share and each length, and with drafts whose
/// length is chosen. With `draft`, a name and an engine, the steps of a draft model run for every draft; its tokens are
/// replaced by the synthetic ones.
///
/// # Errors
/// If the answer differs from that without speculation, the engine has no verify steps for the lengths, or the device fails.
pub fn measure_speculation(
    subject: &mut Subject<'_>,
    draft: Option<(&str, &mut Engine)>,
    workload: &SpeculationWorkload,
    tell: &dyn Fn(u64),
) -> Result<Vec<SpeculationMeasurement>, SpeculationError> {
    let vocab = subject.engine.plan().shape.dimensions.vocab;
    let prompt: Vec<u32> = (0..workload.prompt.max(1)).map(|i| i.wrapping_mul(7919) % vocab).collect();
    let mut scheduler = Scheduler::new(Slots::loaded(&mut subject.engine)?, None);
    let name = draft.as_ref().map(|(name, _)| (*name).to_owned());
    if let Some((_, engine)) = draft {
        scheduler = scheduler.with_draft_model(Box::new(Slots::loaded(engine)?));
    }
    let mut runs = Runs { scheduler, prompt, workload, done: 0, tell };
    let plain = runs.measure(Speculation::default(), None)?;
    let answer = plain.answer;
    let most = workload.lengths.iter().copied().max().unwrap_or(1);
    let mut measurements = Vec::new();
    for &rate in &workload.rates {
        let synthetic = Arc::new(Synthetic { answer: answer.clone(), rate, seed: 0 });
        for length in workload.lengths.iter().copied().map(Some).chain([None]) {
            let speculation =
                Speculation { most: length.unwrap_or(most), always: length.is_some(), lookup: false };
            let run = runs.measure(speculation, Some(&synthetic))?;
            check(&answer, &run.answer)?;
            measurements.push(SpeculationMeasurement {
                model: subject.name.clone(),
                draft: name.clone(),
                rate,
                length,
                prompt: workload.prompt,
                tokens: workload.tokens,
                drafted_per_step: run.drafted_per_step,
                accepted_per_step: run.accepted_per_step,
                tokens_per_second: run.tokens_per_second,
                plain_tokens_per_second: plain.tokens_per_second,
            });
        }
    }
    Ok(measurements)
}

/// Compares an answer with that without speculation.
fn check(expected: &[u32], found: &[u32]) -> Result<(), SpeculationError> {
    let longest = expected.len().max(found.len());
    match (0..longest).find(|&index| expected.get(index) != found.get(index)) {
        None => Ok(()),
        Some(index) => {
            let of = |tokens: &[u32]| format!("{:?}", &tokens[index..(index + 4).min(tokens.len())]);
            Err(SpeculationError::Differs { index, expected: of(expected), found: of(found) })
        }
    }
}

/// Median speed of several runs of one kind, and the answer of all of them.
struct Run {
    answer: Vec<u32>,
    tokens_per_second: f64,
    drafted_per_step: f64,
    accepted_per_step: f64,
}

/// Runs that share a scheduler, and so its measured step times.
struct Runs<'a, S> {
    scheduler: Scheduler<'a, S>,
    prompt: Vec<u32>,
    workload: &'a SpeculationWorkload,
    /// Number of runs so far.
    done: u64,
    tell: &'a dyn Fn(u64),
}

impl<S: Steps> Runs<'_, S> {
    fn measure(
        &mut self,
        speculation: Speculation,
        synthetic: Option<&Arc<Synthetic>>,
    ) -> Result<Run, SpeculationError> {
        let mut rates = Vec::new();
        let (mut steps, mut drafted, mut accepted) = (0, 0, 0);
        let mut first: Option<Vec<u32>> = None;
        // The first run is a warm-up.
        for repetition in 0..=self.workload.repetitions.max(1) {
            let before = self.scheduler.step_counts();
            let (answer, rate) = self.run(speculation, synthetic)?;
            let after = self.scheduler.step_counts();
            if repetition > 0 {
                let total = |counts: &StepCounts| counts.drafts.total();
                steps += after.decode_steps - before.decode_steps;
                drafted += total(&after).drafted - total(&before).drafted;
                accepted += total(&after).accepted - total(&before).accepted;
                rates.push(rate);
            }
            match &first {
                None => first = Some(answer),
                Some(first) => check(first, &answer)?,
            }
            self.done += 1;
            (self.tell)(self.done);
        }
        let per_step = |count: u64| count as f64 / steps.max(1) as f64;
        Ok(Run {
            answer: first.unwrap_or_default(),
            tokens_per_second: median(&rates),
            drafted_per_step: per_step(drafted),
            accepted_per_step: per_step(accepted),
        })
    }

    /// Decodes the answer. Returns it with the tokens per second after the step of the first token.
    fn run(
        &mut self,
        speculation: Speculation,
        synthetic: Option<&Arc<Synthetic>>,
    ) -> Result<(Vec<u32>, f64), EngineError> {
        let request = Request {
            max_tokens: self.workload.tokens,
            speculation,
            synthetic: synthetic.cloned(),
            ..Request::new(&self.prompt)
        };
        self.scheduler.add(&request)?;
        // Time of the first token, and number of tokens that the host had then.
        let mut first: Option<(Instant, usize)> = None;
        let mut answer = Vec::new();
        let mut time = Duration::ZERO;
        while !self.scheduler.is_idle() {
            let events = self.scheduler.step()?;
            for event in &events {
                match event {
                    Event::Token { token, .. } => answer.push(token.id),
                    Event::Finished { .. } => time = first.map_or(Duration::ZERO, |(at, _)| at.elapsed()),
                    Event::Failed { .. } | Event::Prompt { .. } => {}
                }
            }
            if first.is_none() && !answer.is_empty() {
                first = Some((Instant::now(), answer.len()));
            }
        }
        let timed = answer.len() - first.map_or(0, |(_, count)| count);
        Ok((answer, timed as f64 / time.as_secs_f64().max(1e-9)))
    }
}

impl SpeculationWorkload {
    /// Number of answers that a measurement decodes, warm-ups included.
    pub fn runs(&self) -> u64 {
        let kinds = 1 + self.rates.len() as u64 * (self.lengths.len() as u64 + 1);
        kinds * (u64::from(self.repetitions.max(1)) + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_that_differs_is_an_error_with_its_first_token() {
        check(&[1, 2, 3], &[1, 2, 3]).unwrap();
        let error = check(&[1, 2, 3], &[1, 9, 3]).unwrap_err().to_string();
        assert_eq!(error, "speculation changed the answer: [9, 3] instead of [2, 3] from token 1 on");
        let error = check(&[1, 2], &[1]).unwrap_err().to_string();
        assert_eq!(error, "speculation changed the answer: [] instead of [2] from token 1 on");
    }
}
