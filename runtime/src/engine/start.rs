//! Start of the engine's own sequence: with a prompt, or at a depth for timing.

use bespoke_kernels::kernels::attention::PAGE;
use bespoke_kernels::kernels::state::Row;
use bespoke_kernels::plan::{BufferKind, PlanParams};

use super::{Cursor, Engine, EngineError, MAX_STEPS_AHEAD, NOT_WRITTEN};
use crate::device::Address;

impl Engine {
    /// Starts a sequence with a prompt; the first step processes its first token. Ordered after enqueued steps of an
    /// earlier sequence.
    ///
    /// # Errors
    /// If the prompt is empty, has a token outside the vocabulary, or is longer than the context.
    pub fn start(&mut self, prompt: &[u32]) -> Result<(), EngineError> {
        check_prompt(prompt, self.plan.shape.dimensions.vocab)?;
        self.require_positions(prompt.len() as u64)?;
        self.end_sequence()?;
        let bytes: Vec<u8> = prompt.iter().flat_map(|token| token.to_le_bytes()).collect();
        self.device.upload(self.buffers.tokens(), &bytes)?;
        self.write_state(0, prompt.len() as u32)
    }

    /// Ends the last sequence and waits for its steps. A step that failed may have left counters above zero; then they
    /// are cleared.
    pub(super) fn end_sequence(&mut self) -> Result<(), EngineError> {
        if !self.sampling_set {
            return Err(EngineError::SamplingNotSet);
        }
        let intact = self.started.replace(false);
        let unfinished = self.cursor.enqueued - self.cursor.complete;
        self.wait_for_steps(if self.own_pages { unfinished } else { MAX_STEPS_AHEAD })?;
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
        let row = Row { position, prompt, chooses: true, ..Row::default() };
        self.write_rows([row].into_iter(), 1)?;
        self.cursor = Cursor { prompt, enqueued: position, complete: position };
        self.started.set(true);
        Ok(())
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
