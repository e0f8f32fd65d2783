//! What the next step does: decode, or a chunk of prompts.

use super::results::{InFlight, Output};
use super::steps::{PageEntry, ROW_GROUP, StepRow, Steps};
use super::{Scheduler, Slot};
use crate::engine::{EngineError, MAX_STEPS_AHEAD};

/// Largest number of steps in flight while sequences wait for a slot. Two keep the device busy; with more, a slot whose
/// sequence has ended would be wasted for more steps.
const STEPS_AHEAD_OF_WAITING: usize = 2;

impl<S: Steps> Scheduler<'_, S> {
    /// Largest number of steps in flight.
    pub(super) fn steps_ahead(&self) -> usize {
        // A step overwrites the logits of the step before.
        if self.running.iter().any(|id| self.sequences[id].logprobs.is_some()) {
            1
        } else if self.waiting.is_empty() {
            MAX_STEPS_AHEAD as usize
        } else {
            STEPS_AHEAD_OF_WAITING
        }
    }

    /// Enqueues a step: a decode step and a chunk of prompts in turn, where there are both. Returns whether there was
    /// something to enqueue.
    pub(super) fn enqueue(&mut self) -> Result<bool, EngineError> {
        let prefilled = self.last_decode.is_some() && self.enqueue_prefill()?;
        Ok(prefilled || self.enqueue_decode()? || self.enqueue_prefill()?)
    }

    /// Enqueues a decode step with a row for each sequence whose prompt is done but for its last token, that may have another token, and that has
    /// a page for it.
    fn enqueue_decode(&mut self) -> Result<bool, EngineError> {
        let mut rows = Vec::new();
        let mut entries = Vec::new();
        self.paused.clear();
        for id in &self.running {
            let sequence = &self.sequences[id];
            let Some((index, slot)) = slot_of(&mut self.slots, sequence.slot) else { continue };
            // Tokens of steps in flight: the first one is chosen after the last prompt token.
            let unread = (slot.enqueued + 1).saturating_sub(sequence.tokens.len() as u32);
            if slot.enqueued + 1 < sequence.prompt || unread >= sequence.answer.tokens_left() {
                continue;
            }
            if !slot.has_page(&mut self.pool) {
                self.paused.push(*id);
                continue;
            }
            rows.extend(slot.rows(index, 1, sequence.prompt));
            entries.extend(slot.take_entries(index));
            slot.last_step = self.enqueued + 1;
        }
        if rows.is_empty() {
            return Ok(false);
        }
        self.write_entries(&entries)?;
        let next = |row: &StepRow| StepRow { position: row.position + 1, ..*row };
        match &self.last_decode {
            Some(last) if last.iter().map(next).eq(rows.iter().copied()) => self.steps.decode_again()?,
            _ => self.steps.decode(&rows)?,
        }
        self.record(&rows, Vec::new());
        self.last_decode = Some(rows);
        Ok(true)
    }

    /// Enqueues a step with the next tokens of prompts but for their last ones, up to the rows of the largest step.
    fn enqueue_prefill(&mut self) -> Result<bool, EngineError> {
        let Some(&(mut left)) = self.limits.prefill.last() else { return Ok(false) };
        let mut rows = Vec::new();
        let mut entries = Vec::new();
        let mut processed = Vec::new();
        for id in &self.running {
            let Some(sequence) = self.sequences.get_mut(id) else { continue };
            let Some((index, slot)) = slot_of(&mut self.slots, sequence.slot) else { continue };
            // Sequences before this one may just have got pages of the same tokens.
            sequence.answer.reused += slot.reuse(sequence, &mut self.pool);
            let count = left.min(sequence.prompt.saturating_sub(slot.enqueued + 1));
            if count == 0 {
                continue;
            }
            rows.extend(slot.rows(index, count, sequence.prompt));
            slot.publish(sequence.prefilled(), &mut self.pool);
            entries.extend(slot.take_entries(index));
            slot.last_step = self.enqueued + 1;
            processed.push((index, slot.enqueued));
            left -= count.next_multiple_of(ROW_GROUP).min(left);
        }
        if rows.is_empty() {
            return Ok(false);
        }
        self.write_entries(&entries)?;
        self.steps.prefill(&rows)?;
        self.record(&rows, processed);
        self.last_decode = None;
        Ok(true)
    }

    fn write_entries(&mut self, entries: &[PageEntry]) -> Result<(), EngineError> {
        if entries.is_empty() { Ok(()) } else { self.steps.set_pages(entries) }
    }

    /// Records a step that was enqueued.
    fn record(&mut self, rows: &[StepRow], prompts: Vec<(u32, u32)>) {
        self.enqueued += 1;
        let choosing = rows.iter().filter(|row| row.chooses);
        let outputs = choosing.map(|row| Output { slot: row.slot, position: row.position + 1 }).collect();
        self.flights.push_back(InFlight { outputs, prompts });
    }
}

/// A slot in use with its index.
fn slot_of(slots: &mut [Option<Slot>], index: Option<u32>) -> Option<(u32, &mut Slot)> {
    Some((index?, slots[index? as usize].as_mut()?))
}
