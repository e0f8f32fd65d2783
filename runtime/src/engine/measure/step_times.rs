//! Times of a step of any number of rows: launch by launch, and as a replay of its graph.

use bespoke_kernels::kernels::state::Row;
use bespoke_kernels::plan::{BufferName, Plan, PlanParams, StepKind};

use crate::engine::step::LoadedStep;
use crate::engine::{Engine, EngineError, prefilled_tokens};

/// Rows of a step to be timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepRows {
    /// The last tokens of `sequences` sequences, in a decode step.
    Decode {
        /// Number of sequences.
        sequences: u32,
        /// Positions in each sequence's cache before the step.
        depth: u32,
    },
    /// Consecutive tokens of one prompt, in a prefill step.
    Prompt {
        /// Number of tokens.
        tokens: u32,
        /// Positions in the cache before the step.
        depth: u32,
    },
    /// The last token of a prompt, in a first-token step.
    FirstToken {
        /// Positions in the cache before the token.
        depth: u32,
    },
}

impl StepRows {
    /// Number of rows that exist: tokens that the step processes.
    pub fn count(self) -> u32 {
        match self {
            StepRows::Decode { sequences, .. } => sequences,
            StepRows::Prompt { tokens, .. } => tokens,
            StepRows::FirstToken { .. } => 1,
        }
    }

    /// Positions in the cache of each sequence before the step.
    pub fn depth(self) -> u32 {
        match self {
            StepRows::Decode { depth, .. }
            | StepRows::Prompt { depth, .. }
            | StepRows::FirstToken { depth } => depth,
        }
    }
}

impl Engine {
    /// Plan of the step that processes `rows`.
    ///
    /// # Errors
    /// If no step of the engine has so many rows of this kind.
    pub fn step_plan(&self, rows: StepRows) -> Result<&Plan, EngineError> {
        Ok(self.plan_of(self.timed_step(rows)?))
    }

    /// Steps of a prompt of `length` tokens in an empty cache, in order: prefill steps, and a first-token step. None in an
    /// engine without prefill steps.
    pub fn prompt_steps(&self, length: u32) -> Vec<StepRows> {
        let sizes = self.step_params().filter(|params| params.kind == StepKind::Prefill);
        let Some(largest) = sizes.map(|params| params.rows).max() else { return Vec::new() };
        let prefilled = prefilled_tokens(length);
        let firsts = (0..prefilled).step_by(largest as usize);
        let mut steps: Vec<StepRows> =
            firsts.map(|depth| StepRows::Prompt { tokens: largest.min(prefilled - depth), depth }).collect();
        if !steps.is_empty() {
            steps.push(StepRows::FirstToken { depth: length - 1 });
        }
        steps
    }

    /// Time of each launch of a step in microseconds, in the order of [`Engine::step_plan`]. The launches run eagerly, one
    /// by one ([`LaunchSequence::profile`](crate::device::LaunchSequence::profile)). Ends the sequence.
    ///
    /// # Errors
    /// If the engine has fewer slots, no such step, or too small a KV cache, or the device fails.
    pub fn profile_step(&mut self, rows: StepRows) -> Result<Vec<f64>, EngineError> {
        Ok(self.prepare_step(rows, 1)?.launches.profile()?)
    }

    /// Mean time of a replay of a step, over `count` replays, in milliseconds by the device's clock. A decode step advances
    /// its sequences, other steps process the same tokens again. Ends the sequence. None if the step has no graph.
    ///
    /// # Errors
    /// If the engine has fewer slots, no such step, or too small a KV cache, or the device fails.
    pub fn time_step(&mut self, rows: StepRows, count: u32) -> Result<Option<f64>, EngineError> {
        let LoadedStep { launches, graph, .. } = self.prepare_step(rows, count)?;
        Ok(graph.is_some().then(|| launches.time_replays(count)).transpose()?)
    }

    /// Index of the step that processes `rows`.
    fn timed_step(&self, rows: StepRows) -> Result<usize, EngineError> {
        let found = match rows {
            StepRows::Decode { sequences, .. } => self.decode_step_for(sequences),
            StepRows::Prompt { tokens, .. } => self.step_for(StepKind::Prefill, tokens),
            StepRows::FirstToken { .. } => self.first_token_step_for(1),
        };
        found.ok_or(EngineError::NoStep { rows: rows.count() })
    }

    /// Loads the step that processes `rows` and writes their records, with a cache that has room for `count` decode steps.
    /// Returns the step.
    fn prepare_step(&mut self, rows: StepRows, count: u32) -> Result<&mut LoadedStep, EngineError> {
        let step = self.write_step(rows, count)?;
        self.load_steps([step])?;
        Ok(self.loaded_step(step))
    }

    /// Writes the records of `rows`, with a cache that has room for `count` decode steps. Ends the sequence. Returns the index of
    /// the step.
    pub(super) fn write_step(&mut self, rows: StepRows, count: u32) -> Result<usize, EngineError> {
        let (depth, last) = (rows.depth(), u64::from(rows.depth()));
        match rows {
            StepRows::Decode { sequences, .. } => {
                self.require_positions(last + u64::from(count))?;
                let PlanParams { slots, pages, .. } = self.plan.params;
                let needed = u64::from(sequences) * u64::from(self.plan.params.slot_pages());
                if sequences > slots || needed > u64::from(pages) {
                    return Err(EngineError::TooManySequences { sequences, slots, needed, pages });
                }
            }
            StepRows::Prompt { tokens, .. } => self.require_positions(last + u64::from(tokens))?,
            StepRows::FirstToken { .. } => self.require_positions(last + 1)?,
        }
        let step = self.timed_step(rows)?;
        self.start_at_depth(depth)?;
        self.started.set(false);
        self.write_tokens(rows)?;
        let size = self.plan_of(step).params.rows;
        match rows {
            StepRows::Decode { sequences, .. } => {
                self.write_rows((0..sequences).map(|slot| self.row(slot, depth, depth + 1, true)), size)?;
            }
            StepRows::Prompt { tokens, .. } => {
                let row = |position| Row { position, prompt: depth + tokens, ..Row::default() };
                self.write_prompt_rows((depth..depth + tokens).map(|at| Some(row(at))).collect(), size)?;
            }
            StepRows::FirstToken { .. } => {
                let residual = self.plan.buffer(BufferName::PromptResidual);
                let residual = residual.ok_or(EngineError::NoStep { rows: 1 })?;
                let (to, bytes) = (self.buffers.addresses()[residual], self.plan.buffers[residual].bytes);
                // As f32, 0x3C3C3C3C is 0.011.
                self.end_sequence_on_error(self.device.fill(to, bytes, 0x3C))?;
                self.write_rows([self.row(0, depth, depth + 1, false)].into_iter(), size)?;
            }
        }
        Ok(step)
    }

    /// Writes the tokens of `rows`. They differ, as those of real text: products of equal rows take less power, and where power
    /// limits the clock they are faster.
    fn write_tokens(&self, rows: StepRows) -> Result<(), EngineError> {
        let vocab = self.plan.shape.dimensions.vocab;
        let stride = u64::from(self.plan.params.slot_tokens());
        let (slots, count) = match rows {
            StepRows::Decode { sequences, .. } => (sequences, 1),
            StepRows::FirstToken { .. } => (1, 1),
            StepRows::Prompt { tokens, .. } => (1, tokens),
        };
        for slot in 0..slots {
            let tokens = (slot..slot + count).map(|index| index.wrapping_mul(7919) % vocab);
            let bytes: Vec<u8> = tokens.flat_map(u32::to_le_bytes).collect();
            let first = u64::from(slot) * stride + u64::from(rows.depth());
            self.end_sequence_on_error(self.device.upload(self.buffers.tokens().offset(first * 4), &bytes))?;
        }
        Ok(())
    }

    /// Writes the tokens and records of the first `sequences` slots, for a decode step of them all. Slot i has `prompt` rotated
    /// left by i tokens, so that sequences differ.
    pub(super) fn write_prompts(&self, sequences: u32, prompt: &[u32]) -> Result<(), EngineError> {
        let size = self.step_plan(StepRows::Decode { sequences, depth: 0 })?.params.rows;
        let stride = u64::from(self.plan.params.slot_tokens()) * 4;
        for slot in 0..sequences {
            let (end, start) = prompt.split_at(slot as usize % prompt.len().max(1));
            let bytes: Vec<u8> = start.iter().chain(end).flat_map(|token| token.to_le_bytes()).collect();
            self.end_sequence_on_error(
                self.device.upload(self.buffers.tokens().offset(u64::from(slot) * stride), &bytes),
            )?;
        }
        let row = |slot| self.row(slot, 0, prompt.len() as u32, true);
        self.write_rows((0..sequences).map(row), size)
    }
}
