//! Sequences, and what a sequence occupies in the engine: a slot and pages.

use super::SequenceId;
use super::history::{Chain, Miss};
use super::pages::{PagePool, Prefix};
use super::steps::{PAGE, PageEntry, StepRow};
use crate::engine::{SamplingParams, prefilled_tokens};
use crate::generation::{Answer, Guide, MissedPages};
use crate::speculation::{Offer, Proposal, Speculator};

/// A sequence that has not ended.
pub(super) struct Sequence<'t> {
    pub answer: Answer<'t>,
    pub guide: Option<Guide>,
    pub sampling: SamplingParams,
    /// Number of most likely tokens to report; none for no log-probabilities.
    pub logprobs: Option<u32>,
    /// Guesses the next tokens; none if nothing shall be drafted.
    pub speculator: Option<Speculator>,
    /// The prompt, then the chosen tokens that were read. After a shift of the context, the tokens that stayed are the
    /// prompt.
    pub tokens: Vec<u32>,
    /// Number of prompt tokens; at least 1.
    pub prompt: u32,
    /// The sequence's slot; none while it waits for one.
    pub slot: Option<u32>,
}

/// Precondition of the token after a sequence's next row.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum NextToken {
    /// Nothing: it is given, or the device chooses it by itself.
    Free,
    /// A mask or forced tokens from the sequence's grammar.
    Grammar,
    /// The token of a step in flight, which the grammar must accept first.
    Earlier,
}

impl Sequence<'_> {
    /// Number of prompt tokens that prefill steps process.
    pub fn prefill_tokens(&self) -> u32 {
        prefilled_tokens(self.prompt)
    }

    /// Whether the sequence has no chosen token yet.
    pub fn is_new(&self) -> bool {
        self.answer.len() == 0
    }

    /// Precondition of the token after a row at `position` of the sequence's slot.
    pub fn next_token(&self, slot: &Slot, position: u32) -> NextToken {
        let next = position + 1;
        if self.guide.is_none() || next < slot.given {
            NextToken::Free
        } else if next == self.tokens.len() as u32 {
            NextToken::Grammar
        } else {
            NextToken::Earlier
        }
    }

    /// Expected worth of further rows of the slot in the next step, for given tokens or for a draft; none if there
    /// are no such tokens. `offer` is the draft model's.
    pub fn proposal(&self, slot: &Slot, offer: Offer) -> Option<Proposal> {
        let left = self.answer.tokens_left().saturating_sub(1);
        let given = slot.given.saturating_sub(slot.enqueued + 1);
        if given > 0 {
            // A grammar decides about the token after the last one.
            let given = given - u32::from(self.guide.is_some());
            let proposal =
                Proposal { probability: 1.0, most: given, always: false, source: None, behind: 0, left };
            return (given > 0).then_some(proposal);
        }
        // The last token needs no position, and one is chosen without a draft.
        self.speculator.as_ref()?.proposal(left, offer)
    }

    /// The tokens whose keys and values are those of prefill steps in all layers: all of the prompt but the last. Those of the
    /// last token are in the last layer those of a first-token step.
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
    /// For each of the first pages, which are full and in the pool's index: the prefix that ends with the page.
    /// Sequences that find the prefix share the page.
    prefixes: Vec<Prefix>,
    /// Hash of the tokens of these pages.
    chain: Chain,
    /// The tokens after these pages that prefill steps have processed, fewer than a page; set when the sequence leaves the slot.
    part: Vec<u32>,
    /// Number of the sequence's first tokens that the host gave to the device: the prompt, the tokens that were chosen before
    /// a pre-emption, and those that a grammar leaves no choice for.
    pub given: u32,
    /// Number of page table entries that are written.
    entries: u32,
    /// Number of positions that steps, complete or in flight, process; without those of drafted tokens that were discarded.
    pub enqueued: u32,
    /// Number of positions that steps have processed, those of discarded tokens included.
    written: u32,
    /// Number of positions whose keys and values are finite, because logits that depend on them are.
    pub finite: u32,
    /// Whether logits were not finite.
    pub failed: bool,
    /// Number of the last step with a row of the slot.
    pub last_step: u64,
    /// Number of decode steps before the sequence got the slot.
    pub occupied_at: u64,
}

impl Slot {
    /// Occupies pages for the tokens of a sequence: cached ones where there are some. None, if there are too few pages.
    pub fn occupy(id: SequenceId, sequence: &Sequence<'_>, pool: &mut PagePool) -> Option<Slot> {
        let mut slot = Slot {
            sequence: Some(id),
            pages: Vec::new(),
            prefixes: Vec::new(),
            chain: Chain::default(),
            part: Vec::new(),
            given: sequence.tokens.len() as u32,
            entries: 0,
            enqueued: 0,
            written: 0,
            finite: 0,
            failed: false,
            last_step: 0,
            occupied_at: 0,
        };
        slot.share_pages(sequence, pool);
        let pages = slot.given.div_ceil(PAGE);
        if pool.available() < pages - slot.pages.len() as u32 {
            slot.release(pool);
            return None;
        }
        // Before an allocation could evict the page that it takes over.
        slot.take_part(sequence, pool);
        let missing = pages - slot.pages.len() as u32;
        slot.pages.extend((0..missing).filter_map(|_| pool.allocate()));
        Some(slot)
    }

    /// Skips tokens of the prompt that other sequences have processed or are about to process, and uses their pages. The last prompt
    /// token is never skipped, because its logits choose the first token. Returns the number of tokens skipped.
    pub fn reuse(&mut self, sequence: &Sequence<'_>, pool: &mut PagePool) -> u32 {
        let before = self.enqueued;
        self.share_pages(sequence, pool);
        self.take_part(sequence, pool);
        self.enqueued - before
    }

    /// Skips full pages of the prompt, and shares them.
    fn share_pages(&mut self, sequence: &Sequence<'_>, pool: &mut PagePool) {
        while self.enqueued.is_multiple_of(PAGE) && self.enqueued + PAGE < sequence.prompt {
            let tokens = &sequence.tokens[self.enqueued as usize..][..PAGE as usize];
            let Some((page, prefix)) = pool.share(self.prefix(), tokens) else { break };
            self.place(page, pool);
            self.prefixes.push(prefix);
            self.chain = self.chain.with(tokens);
            self.enqueued += PAGE;
        }
    }

    /// Skips the first tokens of a page, and takes over a page that has them.
    fn take_part(&mut self, sequence: &Sequence<'_>, pool: &mut PagePool) {
        let tokens = sequence.prefilled().get(self.enqueued as usize..).unwrap_or_default();
        let tokens = &tokens[..tokens.len().min(PAGE as usize)];
        if !self.enqueued.is_multiple_of(PAGE) || tokens.is_empty() {
            return;
        }
        if let Some((page, count)) = pool.take_part(self.prefix(), tokens) {
            self.place(page, pool);
            self.enqueued += count;
        }
    }

    /// Makes `page` the page of the next position, which is the first one of a page.
    fn place(&mut self, page: u32, pool: &mut PagePool) {
        match self.pages.get_mut((self.enqueued / PAGE) as usize) {
            // The slot's own page has not been written.
            Some(own) => pool.release(std::mem::replace(own, page), true),
            None => self.pages.push(page),
        }
    }

    /// Adds the pages that are full of `tokens`, see [`Sequence::prefilled`], to the pool's index. Returns why they
    /// were not in the index.
    pub fn publish(&mut self, tokens: &[u32], pool: &mut PagePool) -> MissedPages {
        let full = (self.enqueued as usize).min(tokens.len()) / PAGE as usize;
        let mut missed = MissedPages::default();
        for index in self.prefixes.len()..full {
            let tokens = &tokens[index * PAGE as usize..][..PAGE as usize];
            self.chain = self.chain.with(tokens);
            match pool.miss(self.chain) {
                Miss::New => missed.new += 1,
                Miss::Evicted => missed.evicted += 1,
                Miss::Generated => missed.generated += 1,
            }
            let prefix = pool.publish(self.pages[index], self.prefix(), self.chain, tokens);
            self.prefixes.push(prefix);
        }
        missed
    }

    /// Ends the slot's use by a sequence; steps in flight may still have rows of it.
    pub fn leave(&mut self, sequence: &Sequence<'_>) {
        self.sequence = None;
        let processed = &sequence.prefilled()[..(self.enqueued as usize).min(sequence.prompt as usize - 1)];
        self.part = processed.get(self.prefixes.len() * PAGE as usize..).unwrap_or_default().to_vec();
    }

    /// Remembers the full pages of a sequence that contain chosen tokens as [`Miss::Generated`].
    pub fn remember(&self, tokens: &[u32], pool: &mut PagePool) {
        let mut chain = self.chain;
        for page in tokens.chunks_exact(PAGE as usize).skip(self.prefixes.len()) {
            chain = chain.with(page);
            pool.remember(chain, Miss::Generated);
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

    /// Allocates pages for the next `count` positions, as far as pages are available. Returns the number of positions with
    /// pages; 0 if none can be processed now.
    pub fn allocate_pages(&mut self, count: u32, pool: &mut PagePool) -> u32 {
        while (self.pages.len() as u32) * PAGE < self.enqueued + count {
            let Some(page) = pool.allocate() else { break };
            self.pages.push(page);
        }
        (self.pages.len() as u32 * PAGE - self.enqueued).min(count)
    }

    /// Rows of the next `count` positions. The row of the last one of `prompt` tokens and those after it choose.
    pub fn rows(&mut self, slot: u32, count: u32, prompt: u32) -> impl Iterator<Item = StepRow> {
        let (first, given) = (self.enqueued, self.given);
        self.enqueued += count;
        self.written = self.written.max(self.enqueued);
        (first..first + count).map(move |position| {
            let chooses = position + 1 >= prompt;
            StepRow { slot, position, given, chooses }
        })
    }

    /// Page table entries for the enqueued positions that are not written yet, which the caller must write.
    pub fn take_entries(&mut self, slot: u32) -> impl Iterator<Item = PageEntry> {
        let needed = self.enqueued.div_ceil(PAGE).max(self.entries);
        let first = std::mem::replace(&mut self.entries, needed);
        (first..self.entries).map(move |index| PageEntry { slot, index, page: self.pages[index as usize] })
    }

    /// Notes whether the logits are finite from which the token at `position` was chosen.
    pub fn record_finite(&mut self, position: u32, is_finite: bool) {
        self.failed |= !is_finite;
        if !is_finite {
            self.finite = self.finite.min(position - 1);
        } else if !self.failed {
            self.finite = self.finite.max(position);
        }
    }

    /// Releases the pages. No step in flight has a row of the slot.
    pub fn release(self, pool: &mut PagePool) {
        for (index, &page) in self.pages.iter().enumerate().rev() {
            let start = index as u32 * PAGE;
            let written = self.written.max(self.enqueued);
            // A page that was not written is as finite as it was when it was free.
            let is_finite = written <= start || written.min(start + PAGE) <= self.finite;
            if index == self.prefixes.len() && !self.part.is_empty() {
                pool.release_part(page, is_finite, self.prefix(), &self.part);
            } else {
                pool.release(page, is_finite);
            }
        }
    }
}
