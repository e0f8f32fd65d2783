//! Sequences, and what a sequence occupies in the engine: a slot and pages.

use super::SequenceId;
use super::pages::{PagePool, Prefix};
use super::steps::{PAGE, PageEntry, StepRow};
use crate::engine::SamplingParams;
use crate::generation::Answer;

/// A sequence that has not ended.
pub(super) struct Sequence<'t> {
    pub answer: Answer<'t>,
    pub sampling: SamplingParams,
    /// Number of most likely tokens to report; none for no log-probabilities.
    pub logprobs: Option<u32>,
    /// The prompt, then the chosen tokens that were read. After a shift of the context, the tokens that stayed are the
    /// prompt.
    pub tokens: Vec<u32>,
    /// Number of prompt tokens; at least 1.
    pub prompt: u32,
    /// The sequence's slot; none while it waits for one.
    pub slot: Option<u32>,
}

impl Sequence<'_> {
    /// The tokens that prefill steps process: all of the prompt but the last.
    pub fn prefilled(&self) -> &[u32] {
        &self.tokens[..self.prompt as usize - 1]
    }
}

/// A slot in use. Its pages stay in use until no step in flight has a row of the slot, also after the sequence's end.
pub(super) struct Slot {
    /// The sequence; none after its end.
    pub sequence: Option<SequenceId>,
    /// Pages by index: all pages of the prompt, then those that chosen tokens needed.
    pub pages: Vec<u32>,
    /// Prefixes that end with the first pages, which are full, in use by all their finders, and in the pool's index.
    prefixes: Vec<Prefix>,
    /// Number of page table entries that are written.
    entries: u32,
    /// Number of positions that steps, complete or in flight, process.
    pub enqueued: u32,
    /// Number of positions whose keys and values are finite, because logits that depend on them are.
    pub finite: u32,
    /// Whether logits were not finite.
    pub failed: bool,
    /// Number of the last step with a row of the slot.
    pub last_step: u64,
}

impl Slot {
    /// Occupies pages for the prompt of a sequence: cached ones where there are some. None, if there are too few pages.
    pub fn occupy(id: SequenceId, sequence: &Sequence<'_>, pool: &mut PagePool) -> Option<Slot> {
        let mut slot = Slot {
            sequence: Some(id),
            pages: Vec::new(),
            prefixes: Vec::new(),
            entries: 0,
            enqueued: 0,
            finite: 0,
            failed: false,
            last_step: 0,
        };
        slot.reuse(sequence, pool);
        let missing = sequence.prompt.div_ceil(PAGE) - slot.pages.len() as u32;
        if pool.available() < missing {
            slot.release(pool);
            return None;
        }
        slot.pages.extend((0..missing).filter_map(|_| pool.allocate()));
        Some(slot)
    }

    /// Skips pages of the prompt that other sequences have processed or are about to process, and shares their pages. The
    /// last prompt token is never skipped, because its logits choose the first token. Returns the number of tokens skipped.
    pub fn reuse(&mut self, sequence: &Sequence<'_>, pool: &mut PagePool) -> u32 {
        let before = self.enqueued;
        while self.enqueued.is_multiple_of(PAGE) && self.enqueued + PAGE < sequence.prompt {
            let tokens = &sequence.tokens[self.enqueued as usize..][..PAGE as usize];
            let Some((page, prefix)) = pool.share(self.prefix(), tokens) else { break };
            match self.pages.get_mut((self.enqueued / PAGE) as usize) {
                // The page that was meant for these tokens has not been written.
                Some(own) => pool.release(std::mem::replace(own, page), true),
                None => self.pages.push(page),
            }
            self.prefixes.push(prefix);
            self.enqueued += PAGE;
        }
        self.enqueued - before
    }

    /// Adds pages to the pool's index that are full of `tokens`, those that prefill steps process.
    pub fn publish(&mut self, tokens: &[u32], pool: &mut PagePool) {
        let full = (self.enqueued as usize).min(tokens.len()) / PAGE as usize;
        for index in self.prefixes.len()..full {
            let tokens = &tokens[index * PAGE as usize..][..PAGE as usize];
            let prefix = pool.publish(self.pages[index], self.prefix(), tokens);
            self.prefixes.push(prefix);
        }
    }

    /// Number of first pages that are full and can be shared.
    #[cfg(test)]
    pub fn full_pages(&self) -> usize {
        self.prefixes.len()
    }

    /// The prefix that ends with the last page in the index.
    fn prefix(&self) -> Prefix {
        self.prefixes.last().copied().unwrap_or(Prefix::EMPTY)
    }

    /// Has a page for the next position. If there is none, the position cannot be processed now.
    pub fn has_page(&mut self, pool: &mut PagePool) -> bool {
        if (self.pages.len() as u32) * PAGE <= self.enqueued {
            self.pages.extend(pool.allocate());
        }
        self.enqueued < self.pages.len() as u32 * PAGE
    }

    /// Rows of the next `count` positions. The row of the last prompt token and those after it choose.
    pub fn rows(&mut self, slot: u32, count: u32, prompt: u32) -> impl Iterator<Item = StepRow> {
        let first = self.enqueued;
        self.enqueued += count;
        (first..first + count).map(move |position| {
            let chooses = position + 1 >= prompt;
            StepRow { slot, position, prompt, chooses }
        })
    }

    /// Page table entries for the enqueued positions that are not written yet, which the caller must write.
    pub fn take_entries(&mut self, slot: u32) -> impl Iterator<Item = PageEntry> {
        let first = std::mem::replace(&mut self.entries, self.enqueued.div_ceil(PAGE));
        (first..self.entries).map(move |index| PageEntry { slot, index, page: self.pages[index as usize] })
    }

    /// Releases the pages. No step in flight has a row of the slot.
    pub fn release(self, pool: &mut PagePool) {
        for (index, &page) in self.pages.iter().enumerate().rev() {
            let start = index as u32 * PAGE;
            // A page that was not written is as finite as it was when it was free.
            let is_finite = self.enqueued <= start || self.enqueued.min(start + PAGE) <= self.finite;
            pool.release(page, is_finite);
        }
    }
}
