//! The engine's steps for the scheduler: many sequences in slots, over one pool of pages.

use std::cell::Cell;
use std::time::Duration;

use bespoke_kernels::kernels::state::Row;
use bespoke_kernels::plan::{BufferKind, Sampling, StepKind};

use super::step::ONE_ROW;
use super::{Cursor, Engine, EngineError, MAX_STEPS_AHEAD, NOT_WRITTEN, NonFiniteLogits, SamplingParams};
use crate::device::Address;
use crate::scheduler::{Draft, Limits, PageEntry, ROW_GROUP, StepRow, Steps};

/// An engine as [`Steps`], with the slots and pages with which it was loaded ([`super::EngineOptions`]). The next
/// start gives the engine its own page table back.
pub struct Slots<'a> {
    engine: &'a mut Engine,
    limits: Limits,
    page_table: Address,
    /// Index of the last decode step, unless another step followed it.
    last: Option<usize>,
    /// Number of steps enqueued since the last wait for all of them.
    unfinished: Cell<u32>,
    /// Position after the last token of each slot that a verify step has written; 0 if a decode step followed it.
    verified: Vec<u32>,
}

impl<'a> Slots<'a> {
    /// As [`Slots::new`], with the kernels of all steps loaded, so that no step has to wait for its own.
    pub fn loaded(engine: &'a mut Engine) -> Result<Slots<'a>, EngineError> {
        engine.load_steps(0..engine.steps.len())?;
        Slots::new(engine)
    }

    /// Ends the engine's sequence, and takes over its KV cache. The kernels of a step are loaded when it is first needed.
    pub fn new(engine: &'a mut Engine) -> Result<Slots<'a>, EngineError> {
        engine.end_sequence()?;
        engine.own_pages = false;
        let (plan, page_table) = (&engine.plan, engine.page_table());
        let of_kind = |kind| engine.step_params().filter(move |params| params.kind == kind);
        let mut prefill: Vec<u32> = of_kind(StepKind::Prefill).map(|params| params.rows).collect();
        if prefill.is_empty() {
            prefill.push(1);
        }
        let limits = Limits {
            slots: plan.params.slots,
            pages: plan.params.pages,
            context: plan.params.context,
            vocab: plan.shape.dimensions.vocab,
            sampling: plan.params.sampling == Sampling::Sampled,
            decode: of_kind(StepKind::Decode).map(|params| params.rows).collect(),
            verify: of_kind(StepKind::Verify).map(|params| params.rows).collect(),
            prefill,
        };
        let verified = vec![0; limits.slots as usize];
        Ok(Slots { engine, limits, page_table, last: None, unfinished: Cell::new(0), verified })
    }

    /// The record of a row.
    fn record(&self, row: &StepRow) -> Row {
        let &StepRow { slot, position, given, chooses } = row;
        self.engine.row(slot, position, given, chooses)
    }

    /// Waits for earlier steps before an upload, up to the step limit: the upload itself would wait for them without
    /// a limit, and never return if a kernel hangs.
    fn wait_for_steps(&self) -> Result<(), EngineError> {
        self.engine.wait_for_steps(self.unfinished.get().min(MAX_STEPS_AHEAD))?;
        self.unfinished.set(0);
        Ok(())
    }

    /// Enqueues a step over the records on the device.
    fn enqueue(&mut self, step: usize) -> Result<(), EngineError> {
        self.unfinished.update(|count| count.saturating_add(1));
        self.engine.enqueue_step(step)
    }

    fn write_rows(&self, rows: &[StepRow], size: u32) -> Result<(), EngineError> {
        self.wait_for_steps()?;
        self.engine.write_rows(rows.iter().map(|row| self.record(row)), size)
    }

    /// Marks the tokens after each slot's first row as not written, up to the last one that a verify step has written. Ordered
    /// before the next upload.
    fn forget_discarded(&mut self, rows: &[StepRow]) -> Result<(), EngineError> {
        let discarded = discarded(&mut self.verified, rows);
        discarded
            .into_iter()
            .try_for_each(|(slot, first, count)| self.engine.forget_tokens(slot, first, count))
    }
}

/// Slot, first position and number of the tokens from the position after each slot's first row up to the slot's end in
/// `verified`. Sets these ends to 0.
fn discarded(verified: &mut [u32], rows: &[StepRow]) -> Vec<(u32, u32, u32)> {
    let of_row = |row: &StepRow| {
        let end = std::mem::take(&mut verified[row.slot as usize]);
        let first = row.position + 1;
        Some((row.slot, first, end.checked_sub(first).filter(|&count| count > 0)?))
    };
    rows.iter().filter_map(of_row).collect()
}

impl Steps for Slots<'_> {
    fn limits(&self) -> &Limits {
        &self.limits
    }

    fn start(&mut self, slot: u32, tokens: &[u32], sampling: &SamplingParams) -> Result<(), EngineError> {
        self.wait_for_steps()?;
        self.verified[slot as usize] = 0;
        let engine = &mut *self.engine;
        let stride = u64::from(engine.plan.params.slot_tokens()) * 4;
        let first = u64::from(slot) * stride;
        let bytes: Vec<u8> = tokens.iter().flat_map(|token| token.to_le_bytes()).collect();
        engine.end_sequence_on_error(engine.device.upload(engine.buffers.tokens().offset(first), &bytes))?;
        let host = engine.buffers.host_tokens().address().offset(first);
        engine.end_sequence_on_error(engine.device.fill(host, stride, NOT_WRITTEN as u8))?;
        engine.write_sampling(slot, sampling)?;
        engine.started.set(true);
        Ok(())
    }

    fn set_pages(&mut self, entries: &[PageEntry]) -> Result<(), EngineError> {
        let slot_pages = self.engine.plan.params.slot_pages();
        let follows = |a: &PageEntry, b: &PageEntry| (b.slot, b.index) == (a.slot, a.index + 1);
        entries.chunk_by(follows).try_for_each(|run| {
            let first = run[0].slot * slot_pages + run[0].index;
            let to = self.page_table.offset(u64::from(first) * 4);
            let device = &self.engine.device;
            self.engine.end_sequence_on_error(match run {
                // The page of a sequence that decodes: the steps in flight go on meanwhile.
                [entry] => device.store(to, entry.page),
                run => {
                    self.wait_for_steps()?;
                    let bytes: Vec<u8> = run.iter().flat_map(|entry| entry.page.to_le_bytes()).collect();
                    device.upload(to, &bytes)
                }
            })
        })
    }

    fn clear_pages(&mut self, pages: &[u32]) -> Result<(), EngineError> {
        let engine = &self.engine;
        for (buffer, address) in engine.plan.buffers.iter().zip(engine.buffers.addresses()) {
            if buffer.kind == BufferKind::KvCache {
                let bytes = buffer.bytes / u64::from(self.limits.pages);
                for &page in pages {
                    let page = address.offset(u64::from(page) * bytes);
                    engine.end_sequence_on_error(engine.device.fill(page, bytes, 0))?;
                }
            }
        }
        Ok(())
    }

    fn give_tokens(&mut self, slot: u32, position: u32, tokens: &[u32]) -> Result<(), EngineError> {
        self.wait_for_steps()?;
        let engine = &self.engine;
        let first = slot * engine.plan.params.slot_tokens() + position;
        let bytes: Vec<u8> = tokens.iter().flat_map(|token| token.to_le_bytes()).collect();
        let at = engine.buffers.tokens().offset(u64::from(first) * 4);
        engine.end_sequence_on_error(engine.device.upload(at, &bytes))
    }

    fn discard(&mut self, slot: u32, position: u32, count: u32) -> Result<(), EngineError> {
        self.engine.forget_tokens(slot, position, count)
    }

    fn set_masks(&mut self, masks: &[(u32, Vec<u32>)]) -> Result<(), EngineError> {
        self.wait_for_steps()?;
        masks.iter().try_for_each(|(slot, mask)| self.engine.write_mask(*slot, mask))
    }

    fn prefill(&mut self, rows: &[StepRow]) -> Result<(), EngineError> {
        self.last = None;
        let mut records: Vec<Option<Row>> = Vec::new();
        let mut choosing = Vec::new();
        for rows in rows.chunk_by(|a, b| a.slot == b.slot) {
            records.resize(records.len().next_multiple_of(ROW_GROUP as usize), None);
            for row in rows {
                let record = self.record(row);
                if row.chooses {
                    choosing.push(Row { source: records.len() as u32, ..record });
                }
                records.push(Some(record));
            }
        }
        match self.engine.step_for(StepKind::Prefill, records.len() as u32) {
            Some(index) => {
                let count = choosing.len() as u32;
                let first_token = self.engine.first_token_step_for(count).filter(|_| count > 0);
                if first_token.is_none() && count > 0 {
                    return Err(EngineError::NoStep { rows: count });
                }
                self.wait_for_steps()?;
                self.unfinished.set(2);
                self.engine.enqueue_prompt(index, records, first_token, choosing)
            }
            None if self.engine.step_for(StepKind::Prefill, 1).is_some() => {
                Err(EngineError::NoStep { rows: records.len() as u32 })
            }
            // Without prefill steps, a decode step of one row processes a prompt token.
            None => rows.iter().try_for_each(|row| {
                self.write_rows(std::slice::from_ref(row), 1)?;
                self.enqueue(ONE_ROW)
            }),
        }
    }

    fn decode(&mut self, rows: &[StepRow]) -> Result<(), EngineError> {
        let count = rows.len() as u32;
        let step = self.engine.decode_step_for(count).ok_or(EngineError::NoStep { rows: count })?;
        let size = self.engine.plan_of(step).params.rows;
        self.forget_discarded(rows)?;
        self.write_rows(rows, size)?;
        self.last = Some(step);
        self.enqueue(step)
    }

    fn verify(&mut self, rows: &[StepRow], drafts: &[Draft]) -> Result<(), EngineError> {
        let count = rows.len() as u32;
        let step = self.engine.step_for(StepKind::Verify, count);
        let step = step.ok_or(EngineError::NoStep { rows: count })?;
        let size = self.engine.plan_of(step).params.rows;
        self.wait_for_steps()?;
        self.forget_discarded(rows)?;
        for Draft { slot, position, tokens } in drafts {
            self.give_tokens(*slot, *position, tokens)?;
        }
        self.write_rows(rows, size)?;
        for row in rows {
            self.verified[row.slot as usize] = row.position + 2;
        }
        self.last = None;
        self.enqueue(step)
    }

    fn decode_again(&mut self) -> Result<(), EngineError> {
        self.last.map_or(Err(EngineError::NotStarted), |step| self.enqueue(step))
    }

    fn token(&self, slot: u32, position: u32) -> Result<Option<u32>, EngineError> {
        self.engine.token_of(slot, position)
    }

    fn explain(&mut self, slot: u32, error: NonFiniteLogits) -> Result<NonFiniteLogits, EngineError> {
        let NonFiniteLogits { position, .. } = error;
        self.wait_for_steps()?;
        // The one-row step overwrites the first record. It multiplies integers also in an engine of f16.
        self.last = None;
        let row = self.engine.row(slot, position, position + 1, true);
        let first = self.engine.end_sequence_on_error(self.engine.first_non_finite(row))?;
        Ok(NonFiniteLogits { position, first })
    }

    fn logits(&mut self, row: u32) -> Result<Vec<f32>, EngineError> {
        self.engine.logits_of(row, MAX_STEPS_AHEAD)
    }

    fn busy(&self, waited: Duration, steps: u32) -> Result<bool, EngineError> {
        self.engine.busy(waited, steps)
    }

    fn reset(&mut self) -> Result<(), EngineError> {
        let engine = &mut *self.engine;
        self.last = None;
        engine.wait_for_steps(MAX_STEPS_AHEAD)?;
        engine.buffers.clear_counters(&engine.plan, &*engine.device)?;
        engine.buffers.clear_cache(&engine.plan, &*engine.device)?;
        Ok(())
    }
}

impl Drop for Slots<'_> {
    fn drop(&mut self) {
        // The next start waits for the steps in flight.
        self.engine.started.set(false);
        self.engine.cursor = Cursor::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The host must not read a discarded token before the step that chooses it anew. On the emulator it would not: steps are
    /// complete when they are enqueued.
    #[test]
    fn tokens_behind_the_first_row_of_a_slot_are_forgotten_once() {
        let row = |(slot, position)| StepRow { slot, position, given: 1, chooses: true };
        let rows = [(2, 12), (2, 13), (2, 14), (0, 9), (1, 20), (1, 21)].map(row);
        // Slot 2 has tokens up to 16, of which 12 was accepted; all of slot 1 were; slot 0 had no draft.
        let mut verified = [0, 21, 17];
        assert_eq!(discarded(&mut verified, &rows), [(2, 13, 4)]);
        assert_eq!(verified, [0; 3]);
        assert!(discarded(&mut verified, &rows).is_empty());
    }
}
