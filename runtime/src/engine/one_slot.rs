//! Steps of one row for the scheduler: one sequence at a time.

use std::time::Duration;

use bespoke_kernels::kernels::state::Row;
use bespoke_kernels::plan::{BufferKind, Sampling};

use super::{DecodeCursor, Engine, EngineError, MAX_STEPS_AHEAD, NOT_WRITTEN, SamplingParams};
use crate::device::Address;
use crate::scheduler::{Limits, PageEntry, PrefillBucket, StepRow, Steps};

/// An engine's step of one row as [`Steps`] with one slot. Its page pool is the engine's KV cache. Dropping it gives the
/// engine its own page table back; the engine then needs another start.
pub struct OneSlot<'a> {
    engine: &'a mut Engine,
    limits: Limits,
    page_table: Address,
    /// The row that the record on the device describes after all enqueued steps.
    next: Option<StepRow>,
}

impl<'a> OneSlot<'a> {
    /// Ends the engine's sequence, and takes over its KV cache.
    pub fn new(engine: &'a mut Engine) -> Result<OneSlot<'a>, EngineError> {
        engine.end_sequence()?;
        engine.prompt.clear();
        let (plan, addresses) = (&engine.plan, engine.buffers.addresses());
        let table = plan.buffers.iter().position(|buffer| buffer.kind == BufferKind::PageTable);
        let table = table.expect("every plan has a page table");
        let limits = Limits {
            slots: 1,
            pages: (plan.buffers[table].bytes / 4) as u32,
            context: plan.params.context,
            vocab: plan.shape.dimensions.vocab,
            sampling: plan.params.sampling == Sampling::Sampled,
            decode: vec![1],
            prefill: vec![PrefillBucket { rows: 1, outputs: 1 }],
        };
        let page_table = addresses[table];
        Ok(OneSlot { engine, limits, page_table, next: None })
    }

    /// Uploads page table entries from `index` on.
    fn upload_pages(&self, index: u32, pages: impl Iterator<Item = u32>) -> Result<(), EngineError> {
        let bytes: Vec<u8> = pages.flat_map(u32::to_le_bytes).collect();
        let engine = &self.engine;
        engine.keep(engine.device.upload(self.page_table.offset(u64::from(index) * 4), &bytes))
    }

    /// Enqueues the step of a row. Its record is written unless the last step has advanced to it.
    fn step(&mut self, row: StepRow) -> Result<(), EngineError> {
        let StepRow { position, prompt, .. } = row;
        if self.next != Some(row) {
            // Within the prompt too, the device takes the next token and advances.
            let record = Row { position, prompt, chooses: true, ..Row::default() };
            let bytes: Vec<u8> = record.words().iter().flat_map(|word| word.to_le_bytes()).collect();
            self.engine.keep(self.engine.device.upload(self.engine.buffers.state(), &bytes))?;
            self.engine.cursor = DecodeCursor { prompt, enqueued: position, read: position };
        }
        self.engine.step()?;
        self.next = Some(StepRow { position: position + 1, chooses: position + 2 >= prompt, ..row });
        Ok(())
    }
}

impl Steps for OneSlot<'_> {
    fn limits(&self) -> &Limits {
        &self.limits
    }

    fn start(&mut self, _slot: u32, tokens: &[u32], sampling: &SamplingParams) -> Result<(), EngineError> {
        let engine = &mut *self.engine;
        let bytes: Vec<u8> = tokens.iter().flat_map(|token| token.to_le_bytes()).collect();
        engine.keep(engine.device.upload(engine.buffers.tokens(), &bytes))?;
        let host = engine.buffers.host_tokens();
        engine.keep(engine.device.fill(host.address(), host.bytes(), NOT_WRITTEN as u8))?;
        engine.set_sampling(sampling)?;
        engine.started.set(true);
        self.next = None;
        Ok(())
    }

    fn set_pages(&mut self, entries: &[PageEntry]) -> Result<(), EngineError> {
        entries.iter().try_for_each(|entry| self.upload_pages(entry.index, [entry.page].into_iter()))
    }

    fn clear_pages(&mut self, pages: &[u32]) -> Result<(), EngineError> {
        let engine = &self.engine;
        for (buffer, address) in engine.plan.buffers.iter().zip(engine.buffers.addresses()) {
            if buffer.kind == BufferKind::KvCache {
                let bytes = buffer.bytes / u64::from(self.limits.pages);
                for &page in pages {
                    let page = address.offset(u64::from(page) * bytes);
                    engine.keep(engine.device.fill(page, bytes, 0))?;
                }
            }
        }
        Ok(())
    }

    fn prefill(&mut self, rows: &[StepRow]) -> Result<(), EngineError> {
        rows.iter().try_for_each(|&row| self.step(row))
    }

    fn decode(&mut self, rows: &[StepRow]) -> Result<(), EngineError> {
        self.prefill(rows)
    }

    fn decode_again(&mut self) -> Result<(), EngineError> {
        self.next.map_or(Err(EngineError::NotStarted), |row| self.step(row))
    }

    fn token(&self, _slot: u32, position: u32) -> Result<Option<u32>, EngineError> {
        self.engine.token_at(position)
    }

    fn logits(&mut self, _row: u32) -> Result<Vec<f32>, EngineError> {
        self.engine.logits()
    }

    fn busy(&self, waited: Duration) -> Result<bool, EngineError> {
        self.engine.busy(waited, MAX_STEPS_AHEAD)
    }

    fn reset(&mut self) -> Result<(), EngineError> {
        let engine = &mut *self.engine;
        engine.wait_for_steps(MAX_STEPS_AHEAD)?;
        engine.buffers.clear_counters(&engine.plan, &*engine.device)?;
        engine.buffers.clear_cache(&engine.plan, &*engine.device)?;
        Ok(())
    }
}

impl Drop for OneSlot<'_> {
    fn drop(&mut self) {
        let _ = self.engine.wait_for_steps(MAX_STEPS_AHEAD);
        // If the device fails here, it fails at the next start, too.
        let _ = self.upload_pages(0, 0..self.limits.pages);
        self.engine.started.set(false);
        self.engine.cursor = DecodeCursor::default();
    }
}
