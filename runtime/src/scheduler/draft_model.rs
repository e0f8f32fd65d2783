//! A draft model: an engine of its own whose steps guess the next tokens of the scheduler's sequences.
//!
//! A slot of the scheduler has the same number in the draft model, with pages of another pool. A draft first processes the
//! tokens that the target model has chosen since the last draft: one in the step that drafts the first token, more in prefill
//! steps.
//! Then each step drafts a token for every sequence. The call returns when the tokens are there, so no step of the draft
//! model is in flight between two calls.

use std::time::Instant;

use super::SequenceId;
use super::steps::{Limits, PAGE, PageEntry, StepRow, Steps};
use crate::engine::{Backoff, EngineError, MAX_STEPS_AHEAD, Pause, SamplingParams};
use crate::speculation::{ModelPrior, Offer, StepCosts, Work};

/// A draft model with the state of its slots.
pub(super) struct DraftModel<'t> {
    steps: Box<dyn Steps + 't>,
    limits: Limits,
    free: Vec<u32>,
    slots: Vec<DraftSlot>,
    /// Share of right drafted tokens over all sequences.
    pub prior: ModelPrior,
}

/// State of a sequence in the draft model.
#[derive(Default)]
struct DraftSlot {
    /// The sequence; none if the slot is free.
    sequence: Option<SequenceId>,
    pages: Vec<u32>,
    /// Number of page table entries that are written.
    entries: u32,
    /// Number of first positions whose keys and values are those of the sequence's tokens.
    processed: u32,
    /// The tokens drafted last, from position `processed` on.
    drafted: Vec<u32>,
}

/// Minimum number of tokens in prefill steps from which the time per token is measured.
const MEASURED: u32 = 128;

/// A draft that is wanted.
pub(super) struct Wanted<'a> {
    /// Slot of the sequence.
    pub slot: u32,
    pub sequence: SequenceId,
    /// All tokens of the sequence.
    pub tokens: &'a [u32],
    /// Number of tokens to draft; at least 1.
    pub count: u32,
}

/// A draft under way.
struct Drafting {
    slot: u32,
    /// Number of the sequence's tokens.
    known: u32,
    /// Number of tokens to draft.
    count: u32,
}

impl Drafting {
    /// Row that drafts the token at place `place`.
    fn row(&self, place: u32) -> StepRow {
        StepRow { slot: self.slot, position: self.known - 1 + place, given: self.known, chooses: true }
    }
}

impl<'t> DraftModel<'t> {
    pub fn new(steps: Box<dyn Steps + 't>) -> DraftModel<'t> {
        let limits = steps.limits().clone();
        let mut model =
            DraftModel { steps, limits, free: Vec::new(), slots: Vec::new(), prior: ModelPrior::default() };
        model.forget_all();
        model
    }

    /// Numbers of rows of the steps that draft.
    pub fn sizes(&self) -> &[u32] {
        &self.limits.decode
    }

    /// Number of pages in use.
    #[cfg(test)]
    pub fn used_pages(&self) -> u32 {
        self.limits.pages - self.free.len() as u32
    }

    /// Number of tokens that the model can draft for a sequence with `known` tokens in a slot, bounded by the context and
    /// by the free pages, and number of tokens that it must process first.
    pub fn offer(&self, slot: u32, sequence: SequenceId, known: u32) -> Offer {
        let of = self.slots.get(slot as usize);
        let of = of.filter(|of| of.sequence == Some(sequence));
        let pages = (of.map_or(0, |of| of.pages.len()) + self.free.len()) as u32;
        let most = self.limits.context.min(pages.saturating_mul(PAGE)).saturating_sub(known - 1);
        // Counts the tokens that were drafted last as processed: most of them were.
        let processed = of.map_or(0, |of| of.processed + of.drafted.len() as u32);
        let behind = (known - 1).saturating_sub(processed);
        Offer { most, behind }
    }

    /// Releases the pages of a slot.
    pub fn release(&mut self, slot: u32) {
        if let Some(slot) = self.slots.get_mut(slot as usize) {
            self.free.extend(std::mem::take(slot).pages);
        }
    }

    /// Makes the engine usable again after an error of either engine.
    pub fn reset(&mut self) -> Result<(), EngineError> {
        self.forget_all();
        self.steps.reset()
    }

    /// Forgets all sequences.
    pub fn forget_all(&mut self) {
        self.free = (0..self.limits.pages).rev().collect();
        self.slots = (0..self.limits.slots).map(|_| DraftSlot::default()).collect();
    }

    /// Records the tokens that were verified in a slot in place of the last draft.
    pub fn replace(&mut self, slot: u32, tokens: &[u32]) {
        self.slots[slot as usize].drafted = tokens.to_vec();
    }

    /// Drafts the next tokens of sequences, greedily. A draft is shorter than wanted, or empty, if pages are missing. Measures
    /// the time of a step.
    pub fn draft(
        &mut self,
        wanted: &[Wanted<'_>],
        costs: &mut StepCosts,
    ) -> Result<Vec<Vec<u32>>, EngineError> {
        let since = Instant::now();
        let mut drafting = Vec::new();
        // Sequences whose last two tokens the first step processes.
        let mut behind = Vec::new();
        // Number of tokens that prefill steps process.
        let mut prefilled = 0;
        for (index, want) in wanted.iter().enumerate() {
            let known = want.tokens.len() as u32;
            let count = want.count.min(self.offer(want.slot, want.sequence, known).most);
            if count == 0 || !self.prepare(want, known + count - 1)? {
                continue;
            }
            let missing = known - 1 - self.slots[want.slot as usize].processed;
            match missing {
                0 => {}
                1 => behind.push(index),
                _ => {
                    self.prefill(want.slot, known)?;
                    prefilled += missing;
                }
            }
            drafting.push((index, Drafting { slot: want.slot, known, count }));
        }
        let mut drafts = vec![Vec::new(); wanted.len()];
        let longest = drafting.iter().map(|(_, it)| it.count).max().unwrap_or(0);
        if longest == 0 {
            return Ok(drafts);
        }
        self.first_step(&drafting, &behind)?;
        let mut last = if behind.is_empty() { drafting.len() } else { 0 };
        for place in 1..longest {
            let rows: Vec<StepRow> =
                drafting.iter().filter(|(_, it)| it.count > place).map(|(_, it)| it.row(place)).collect();
            // The device has advanced the records of the step before.
            if rows.len() == last {
                self.steps.decode_again()?;
            } else {
                self.steps.decode(&rows)?;
            }
            last = rows.len();
        }
        for (index, it) in drafting.iter().rev() {
            let slot = &mut self.slots[it.slot as usize];
            slot.processed = it.known;
            match read(&*self.steps, it)? {
                Some(tokens) => {
                    slot.drafted.clone_from(&tokens);
                    drafts[*index] = tokens;
                }
                None => self.lose(it.slot)?,
            }
        }
        let size = self.limits.decode.iter().copied().find(|&size| size as usize >= drafting.len());
        match size {
            Some(size) if prefilled == 0 => costs.observe(Work::Draft, size, since.elapsed() / longest),
            // The steps that draft take little of the time.
            _ if prefilled >= MEASURED => costs.observe(Work::CatchUp, 1, since.elapsed() / prefilled),
            _ => {}
        }
        Ok(drafts)
    }

    /// Ensures that the device has the tokens of a sequence, and the slot has pages for `positions` positions. Returns
    /// false if pages are missing.
    fn prepare(&mut self, want: &Wanted<'_>, positions: u32) -> Result<bool, EngineError> {
        let known = want.tokens.len() as u32;
        let is_new = self.slots[want.slot as usize].sequence != Some(want.sequence);
        if is_new {
            self.release(want.slot);
        }
        let slot = &mut self.slots[want.slot as usize];
        let needed = positions.div_ceil(PAGE);
        if needed.saturating_sub(slot.pages.len() as u32) > self.free.len() as u32 {
            return Ok(false);
        }
        while (slot.pages.len() as u32) < needed {
            slot.pages.extend(self.free.pop());
        }
        if is_new {
            self.steps.start(want.slot, want.tokens, &SamplingParams::default())?;
            self.slots[want.slot as usize].sequence = Some(want.sequence);
        } else {
            let slot = &mut self.slots[want.slot as usize];
            // All drafted tokens but the last one were processed.
            let drafted = std::mem::take(&mut slot.drafted);
            let chosen = &want.tokens[slot.processed as usize..];
            let right = drafted.iter().zip(chosen).take_while(|(drafted, chosen)| drafted == chosen).count();
            let first = slot.processed;
            slot.processed += right.min(drafted.len().saturating_sub(1)) as u32;
            slot.processed = slot.processed.min(known - 1);
            if !drafted.is_empty() {
                self.steps.discard(want.slot, first, drafted.len() as u32)?;
            }
            if first < known {
                self.steps.give_tokens(want.slot, first, &want.tokens[first as usize..])?;
            }
        }
        let slot = &mut self.slots[want.slot as usize];
        let entries: Vec<PageEntry> = (slot.entries..needed)
            .map(|index| PageEntry { slot: want.slot, index, page: slot.pages[index as usize] })
            .collect();
        if !entries.is_empty() {
            slot.entries = needed;
            self.steps.set_pages(&entries)?;
        }
        Ok(true)
    }

    /// Processes the tokens of a slot up to the last one in prefill steps.
    fn prefill(&mut self, slot: u32, known: u32) -> Result<(), EngineError> {
        let Some(&largest) = self.limits.prefill.last() else { return Ok(()) };
        let positions: Vec<u32> = (self.slots[slot as usize].processed..known - 1).collect();
        for chunk in positions.chunks(largest as usize) {
            let row = |&position: &u32| StepRow { slot, position, given: known, chooses: false };
            self.steps.prefill(&chunk.iter().map(row).collect::<Vec<_>>())?;
        }
        self.slots[slot as usize].processed = known - 1;
        Ok(())
    }

    /// Drafts the first token of each sequence. Sequences in `behind` have two rows: the token before the last one is given.
    fn first_step(&mut self, drafting: &[(usize, Drafting)], behind: &[usize]) -> Result<(), EngineError> {
        let earlier = |(index, it): &(usize, Drafting)| {
            let last = it.row(0);
            behind.contains(index).then(|| StepRow { position: last.position - 1, ..last })
        };
        let last: Vec<StepRow> = drafting.iter().map(|(_, it)| it.row(0)).collect();
        let rows: Vec<StepRow> = drafting
            .iter()
            .zip(&last)
            .flat_map(|(it, &last)| earlier(it).into_iter().chain([last]))
            .collect();
        if rows.len() == last.len() {
            return self.steps.decode(&last);
        }
        if self.limits.verify.last().is_some_and(|&most| rows.len() <= most as usize) {
            return self.steps.verify(&rows, &[]);
        }
        self.steps.decode(&drafting.iter().filter_map(earlier).collect::<Vec<_>>())?;
        self.steps.decode(&last)
    }

    /// Forgets a sequence whose logits were not finite, and clears its pages.
    fn lose(&mut self, slot: u32) -> Result<(), EngineError> {
        self.steps.clear_pages(&self.slots[slot as usize].pages)?;
        self.release(slot);
        Ok(())
    }
}

/// Waits for the tokens of a draft, so that its steps are complete. None if its logits are not finite.
fn read(steps: &dyn Steps, drafting: &Drafting) -> Result<Option<Vec<u32>>, EngineError> {
    let backoff = Backoff::new();
    let mut tokens = Vec::new();
    let mut is_finite = true;
    // Whether the device was idle before the last poll.
    let mut idle = false;
    let (mut position, end) = (drafting.known, drafting.known + drafting.count);
    while position < end {
        match steps.token(drafting.slot, position) {
            Ok(Some(token)) => tokens.push(token),
            Err(EngineError::NonFinite(_)) => is_finite = false,
            Ok(None) if idle => return Err(EngineError::NoToken { position }),
            Ok(None) => {
                idle = backoff.pause() == Pause::Long && !steps.busy(backoff.waited(), MAX_STEPS_AHEAD)?;
                continue;
            }
            Err(error) => return Err(error),
        }
        position += 1;
    }
    Ok(is_finite.then_some(tokens))
}
