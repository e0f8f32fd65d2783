//! The steps of a model whose profile or timeline is measured.

use std::collections::BTreeMap;

use bespoke::engine::{Engine, EngineError, StepRows};
use serde::Serialize;

use crate::Subject;

/// A step to be measured: the engine's rows for it, and its description in the results.
#[derive(Clone, Copy, Debug)]
pub struct MeasuredStep {
    pub(crate) rows: StepRows,
    pub(crate) step: ProfiledStep,
}

/// Which step of a model a result is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "step", rename_all = "snake_case")]
pub enum ProfiledStep {
    /// A decode step of `sequences` sequences.
    Decode {
        /// Number of sequences.
        sequences: u32,
        /// Rows of the step; those beyond the sequences do not exist.
        rows: u32,
    },
    /// A prefill step of a prompt.
    Prefill {
        /// Number of tokens that the step processes.
        tokens: u32,
        /// Rows of the step; those beyond the tokens do not exist.
        rows: u32,
        /// Length of the prompt in tokens.
        prompt: u32,
        /// Number of steps with as many rows in which the prompt is processed; the middle one is measured.
        steps: u32,
    },
    /// The first-token step after the prefill steps of a prompt.
    FirstToken {
        /// Length of the prompt in tokens.
        prompt: u32,
    },
}

impl ProfiledStep {
    /// Number of tokens that the step processes.
    pub fn tokens(self) -> u32 {
        match self {
            ProfiledStep::Decode { sequences, .. } => sequences,
            ProfiledStep::Prefill { tokens, .. } => tokens,
            ProfiledStep::FirstToken { .. } => 1,
        }
    }
}

impl MeasuredStep {
    /// The decode step of `sequences` sequences at `depth`.
    ///
    /// # Errors
    /// If the engine has no such step.
    pub fn decode(engine: &Engine, sequences: u32, depth: u32) -> Result<MeasuredStep, EngineError> {
        let rows = StepRows::Decode { sequences, depth };
        let of_plan = engine.step_plan(rows)?.params.rows;
        Ok(MeasuredStep { rows, step: ProfiledStep::Decode { sequences, rows: of_plan } })
    }

    /// The steps of a prompt of `length` tokens: of the prefill steps of each number of rows the middle one, the largest steps
    /// first, then the first-token step.
    ///
    /// # Errors
    /// If the engine has no such steps.
    pub fn of_prompt(engine: &Engine, length: u32) -> Result<Vec<MeasuredStep>, EngineError> {
        let mut by_rows: BTreeMap<u32, Vec<StepRows>> = BTreeMap::new();
        let mut first_token = None;
        for step in engine.prompt_steps(length) {
            if let StepRows::FirstToken { .. } = step {
                first_token =
                    Some(MeasuredStep { rows: step, step: ProfiledStep::FirstToken { prompt: length } });
                continue;
            }
            by_rows.entry(engine.step_plan(step)?.params.rows).or_default().push(step);
        }
        let middle = |(rows, same): (u32, Vec<StepRows>)| {
            let middle = same[(same.len() - 1) / 2];
            let (tokens, steps) = (middle.count(), same.len() as u32);
            let step = ProfiledStep::Prefill { tokens, rows, prompt: length, steps };
            MeasuredStep { rows: middle, step }
        };
        Ok(by_rows.into_iter().rev().map(middle).chain(first_token).collect())
    }
}

/// Model, device and step of a profile or a timeline.
#[derive(Debug, Serialize)]
pub struct StepInfo {
    /// The model's name.
    pub model: String,
    /// The device's name.
    pub device: String,
    /// The target of the kernels.
    pub target: String,
    /// The step.
    #[serde(flatten)]
    pub step: ProfiledStep,
    /// Positions already in the KV cache when the step starts.
    pub depth: u32,
}

impl StepInfo {
    pub(crate) fn new(subject: &Subject<'_>, step: MeasuredStep) -> StepInfo {
        StepInfo {
            model: subject.name.clone(),
            device: subject.engine.device().info().name.clone(),
            target: subject.engine.plan().target().to_string(),
            step: step.step,
            depth: step.rows.depth(),
        }
    }

    /// Model and step: `8b at depth 448, a prefill step of 64 rows (8 such steps in pp512)`.
    pub(crate) fn title(&self) -> String {
        let partly =
            |tokens, rows| if tokens < rows { format!(", {tokens} of them used") } else { String::new() };
        let step = match self.step {
            ProfiledStep::Decode { rows: 1, .. } => String::new(),
            ProfiledStep::FirstToken { prompt } => format!(", the first-token step of pp{prompt}"),
            ProfiledStep::Decode { sequences, rows } => {
                format!(", a decode step of {rows} rows{}", partly(sequences, rows))
            }
            ProfiledStep::Prefill { tokens, rows, prompt, steps } => {
                let such = if steps == 1 { "1 such step" } else { &format!("{steps} such steps") };
                format!(", a prefill step of {rows} rows{} ({such} in pp{prompt})", partly(tokens, rows))
            }
        };
        format!("{} at depth {}{step}", self.model, self.depth)
    }

    /// Device and target: `NVIDIA H100 80GB HBM3 (sm_90)`.
    pub(crate) fn place(&self) -> String {
        format!("{} ({})", self.device, self.target)
    }
}
