//! Start of a sequence: from an empty cache, from a prefix that the cache holds, or at a depth for timing.

use std::ops::ControlFlow;

use bespoke_kernels::kernels::attention::PAGE;
use bespoke_kernels::kernels::state::Row;
use bespoke_kernels::plan::{BufferKind, PlanParams, StepKind};

use super::{DecodeCursor, Engine, EngineError, MAX_STEPS_AHEAD, NOT_WRITTEN, OnPromptToken};
use crate::device::Address;

impl Engine {
    /// Starts a sequence with a prompt; the first step processes its first token. Ordered after enqueued steps of an
    /// earlier sequence.
    pub fn start(&mut self, prompt: &[u32]) -> Result<(), EngineError> {
        self.start_at(prompt, 0)
    }

    /// Starts a sequence as [`Engine::start`] does, but reuses the keys and values of the first tokens if they equal the
    /// first tokens in the cache. Returns the number of positions reused; the first step processes the token after
    /// them, at the latest the prompt's last token.
    ///
    /// Logits have the same bits as after [`Engine::start`]: a step reads the cache only at positions up to its own, and
    /// the keys and values of a position depend only on the tokens up to it and on the kind of step. In an engine with
    /// prefill steps, only positions within a prompt, before its last token, are reused.
    pub fn start_from_cache(&mut self, prompt: &[u32]) -> Result<u32, EngineError> {
        let mut cached = self.cached_tokens()?;
        if self.step_for(StepKind::Prefill, 1).is_some() {
            cached.truncate(self.prefilled as usize);
        }
        let equal = cached.iter().zip(prompt).take_while(|(cached, token)| cached == token).count();
        let reused = equal.min(prompt.len().saturating_sub(1)) as u32;
        self.start_at(prompt, reused)?;
        Ok(reused)
    }

    /// Tokens whose keys and values are in the cache, by position. Chosen tokens that the device has not written yet are
    /// left out. None if the logits of a step were not finite: keys and values may not be finite either.
    pub fn cached_tokens(&self) -> Result<Vec<u32>, EngineError> {
        let mut tokens = Vec::new();
        if self.started.get() && !self.prompt.is_empty() {
            for position in 0..self.cursor.enqueued {
                let token = match self.prompt.get(position as usize) {
                    Some(&token) => Some(token),
                    None => match self.token_at(position) {
                        Err(EngineError::NonFinite(_)) => return Ok(Vec::new()),
                        token => token?,
                    },
                };
                let Some(token) = token else { break };
                tokens.push(token);
            }
        }
        Ok(tokens)
    }

    /// Starts a sequence with a prompt at `position`; the cache must hold the tokens before it.
    pub(super) fn start_at(&mut self, prompt: &[u32], position: u32) -> Result<(), EngineError> {
        check_prompt(prompt, self.plan.shape.dimensions.vocab)?;
        self.require_positions(prompt.len() as u64)?;
        self.end_sequence()?;
        let bytes: Vec<u8> = prompt.iter().flat_map(|token| token.to_le_bytes()).collect();
        self.device.upload(self.buffers.tokens(), &bytes)?;
        self.write_state(position, prompt.len() as u32)?;
        self.prompt = prompt.to_vec();
        self.prefilled = position;
        Ok(())
    }

    /// Ends the last sequence and waits for its steps. A step that failed may have left counters above zero; then they
    /// are cleared.
    pub(super) fn end_sequence(&mut self) -> Result<(), EngineError> {
        if !self.sampling_set {
            return Err(EngineError::SamplingNotSet);
        }
        let intact = self.started.replace(false);
        let unread = self.cursor.enqueued - self.cursor.read;
        self.wait_for_steps(if self.own_pages { unread } else { MAX_STEPS_AHEAD })?;
        if !intact {
            self.buffers.clear_counters(&self.plan, &*self.device)?;
        }
        if !self.own_pages {
            let entries = self.plan.params.slots * self.plan.params.slot_pages();
            let bytes: Vec<u8> = (0..entries).flat_map(u32::to_le_bytes).collect();
            self.device.upload(self.page_table(), &bytes)?;
            self.own_pages = true;
        }
        Ok(())
    }

    /// Address of the page table.
    pub(super) fn page_table(&self) -> Address {
        let table = self.plan.buffers.iter().position(|buffer| buffer.kind == BufferKind::PageTable);
        self.buffers.addresses()[table.expect("every plan has a page table")]
    }

    /// Starts at position `depth` for timing: fills `depth` positions of the KV cache with a small constant.
    pub fn start_at_depth(&mut self, depth: u32) -> Result<(), EngineError> {
        self.require_positions(u64::from(depth) + 1)?;
        self.end_sequence()?;
        // The cache holds no tokens.
        self.prompt.clear();
        let mut ranges = Vec::new();
        for (buffer, address) in self.plan.buffers.iter().zip(self.buffers.addresses()) {
            if buffer.kind == BufferKind::KvCache {
                let PlanParams { slots, pages, .. } = self.plan.params;
                // Pages of other slots follow those of the first.
                let filled = if slots == 1 { depth.div_ceil(PAGE) } else { pages };
                ranges.push((*address, buffer.bytes / u64::from(pages) * u64::from(filled)));
            }
        }
        for (address, bytes) in ranges.into_iter().filter(|range| range.1 > 0) {
            // As f16, 0x2C2C is 0.065; as q8_0, an element is -84 times that.
            self.device.fill(address, bytes, 0x2C)?;
        }
        let tokens = self.plan.buffers.iter().find(|buffer| buffer.kind == BufferKind::Tokens);
        let bytes = tokens.map_or(0, |buffer| buffer.bytes);
        self.device.fill(self.buffers.tokens(), bytes, 0)?;
        self.write_state(depth, depth + 1)
    }

    /// Clears the host tokens and writes the state, ordered after all enqueued work.
    fn write_state(&mut self, position: u32, prompt: u32) -> Result<(), EngineError> {
        let tokens = self.buffers.host_tokens();
        self.device.fill(tokens.address(), tokens.bytes(), NOT_WRITTEN as u8)?;
        self.write_row(position, prompt)?;
        self.cursor = DecodeCursor { prompt, enqueued: position, read: position };
        self.started.set(true);
        Ok(())
    }

    /// Writes the record of the one sequence.
    fn write_row(&self, position: u32, prompt: u32) -> Result<(), EngineError> {
        let row = Row { position, prompt, chooses: true, ..Row::default() };
        self.write_rows([row].into_iter(), 1)
    }

    /// Prefill step for the tokens of a prompt from `first` on, and how many of them it processes. None if the engine has
    /// no prefill steps, no token is left, or the prompt is a single token ([`prefilled_tokens`]).
    pub(super) fn prefill_step(&self, first: u32, prompt: u32) -> Option<(usize, u32)> {
        let largest = self.step_params().filter(|params| params.kind == StepKind::Prefill);
        let count =
            prefilled_tokens(prompt).saturating_sub(first).min(largest.map(|params| params.rows).max()?);
        let step = self.step_for(StepKind::Prefill, count)?;
        (count > 0).then_some((step, count))
    }

    /// Processes the prompt in steps of many rows, if the engine has them, and enqueues the step that chooses the token after
    /// it. Calls `on_prompt_token` with the position of each token except the first, once the step of the token before it is
    /// complete; a break ends the work after a step.
    pub(super) fn prefill(
        &mut self,
        on_prompt_token: Option<&OnPromptToken<'_>>,
    ) -> Result<ControlFlow<()>, EngineError> {
        let prompt = self.cursor.prompt;
        let mut flow = ControlFlow::Continue(());
        // A start at a depth has no prompt.
        let is_at_prompt = !self.prompt.is_empty() && self.cursor.enqueued == self.cursor.read;
        if !self.started.get() || !is_at_prompt {
            return Ok(flow);
        }
        while let Some((index, count)) = self.prefill_step(self.cursor.enqueued, prompt) {
            if flow.is_break() {
                break;
            }
            let first = self.cursor.enqueued;
            let end = first + count;
            let row = |position| Row { position, prompt, ..Row::default() };
            let rows = (first..end).map(|position| Some(row(position))).collect();
            let last = Row { chooses: true, source: count - 1, ..row(end - 1) };
            // One sequence decodes in steps of one row, which multiply integers.
            let first_token = self.step_for(StepKind::FirstToken, 1).filter(|_| end == prompt);
            if first_token.is_none() {
                self.write_row(end, prompt)?;
            }
            self.enqueue_prompt(index, rows, first_token, vec![last])?;
            let last_read = end.min(prompt - 1);
            if self.prefilled == first {
                self.prefilled = last_read;
            }
            self.cursor.enqueued = end;
            if first_token.is_none() || on_prompt_token.is_some() {
                self.wait_for_steps(2)?;
            }
            self.cursor.read = last_read;
            if let Some(on_prompt_token) = on_prompt_token {
                for position in first + 1..=last_read {
                    if flow.is_continue() {
                        flow = on_prompt_token(position);
                    }
                }
            }
        }
        Ok(flow)
    }
}

/// Number of tokens of a prompt that prefill steps process. A decode step processes a prompt of one token: it is faster
/// than a prefill step and a first-token step.
pub(crate) fn prefilled_tokens(prompt: u32) -> u32 {
    if prompt == 1 { 0 } else { prompt }
}

/// Checks that a prompt has tokens, all of them below `vocab`.
///
/// # Errors
/// If the prompt is empty, or has a token outside the vocabulary.
pub fn check_prompt(prompt: &[u32], vocab: u32) -> Result<(), EngineError> {
    match prompt.iter().find(|&&token| token >= vocab) {
        _ if prompt.is_empty() => Err(EngineError::EmptyPrompt),
        Some(&token) => Err(EngineError::NoSuchToken { token, vocab }),
        None => Ok(()),
    }
}
