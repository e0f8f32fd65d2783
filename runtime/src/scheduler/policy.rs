//! Choice of the next step: a decode step, or a chunk of prompts.

use std::time::Instant;

use super::draft_model::Wanted;
use super::results::{InFlight, Output, Timing};
use super::sequence::{NextToken, Sequence};
use super::steps::{Draft, Limits, PageEntry, ROW_GROUP, StepRow, Steps};
use super::{Scheduler, SequenceId, Slot};
use crate::engine::{EngineError, MAX_STEPS_AHEAD};
use crate::generation::{FinishReason, Next};
use crate::speculation::{Offer, Source, StepSizes, Work, drafts};

/// Largest number of steps in flight while sequences wait for a slot, or may have drafts. Two keep the device busy; with more, a
/// slot whose sequence has ended would be wasted for more steps, and a draft would come later.
const FEW_STEPS_AHEAD: usize = 2;

/// Maximum number of tokens of a prefill step while sequences decode: more would delay their next tokens.
const PREFILL_BETWEEN_DECODES: u32 = 512;

/// Prompts wait for others until together they have missed one in so many of the tokens of a decode step; see
/// [`Scheduler::defers_prompts`].
const MISSED_SHARE: u64 = 4;

/// Number of tokens from which on prompts do not wait for others: a further prompt might not fit into the step.
const ENOUGH_TOKENS: u32 = PREFILL_BETWEEN_DECODES / 4 * 3;

/// Rows of a sequence in the next step besides the first one.
#[derive(Clone, Copy, Default)]
struct FurtherRows {
    count: u32,
    /// Where their tokens come from; none if they are given.
    source: Option<Source>,
}

impl<S: Steps> Scheduler<'_, S> {
    /// Largest number of steps in flight.
    pub(super) fn steps_ahead(&self) -> usize {
        // A step overwrites the logits of the step before. A sequence whose grammar waits for a token would miss the next step.
        let waits = |sequence: &Sequence<'_>| {
            let slot = sequence.slot.and_then(|index| self.slots[index as usize].as_ref());
            slot.is_some_and(|slot| sequence.next_token(slot, slot.enqueued) == NextToken::Earlier)
        };
        let lockstep = |sequence: &Sequence<'_>| sequence.logprobs.is_some() || waits(sequence);
        let running = || self.running.iter().map(|id| &self.sequences[id]);
        if running().any(lockstep) || self.only_prefills() {
            1
        } else if self.waiting.is_empty() && running().all(|sequence| sequence.speculator.is_none()) {
            MAX_STEPS_AHEAD as usize
        } else {
            FEW_STEPS_AHEAD
        }
    }

    /// Number of prompt tokens of a running sequence that prefill steps have not processed yet.
    fn prefill_tokens_left(&self, id: &SequenceId) -> u32 {
        let sequence = &self.sequences[id];
        let slot = sequence.slot.and_then(|index| self.slots[index as usize].as_ref());
        slot.map_or(0, |slot| sequence.prefill_tokens().saturating_sub(slot.enqueued))
    }

    /// Whether every running sequence has prompt tokens left. A prefill step waits for the one before it anyway, and a caller that
    /// is told about each step can show the progress and cancel.
    fn only_prefills(&self) -> bool {
        self.running.iter().all(|id| self.prefill_tokens_left(id) > 0)
    }

    /// Enqueues a step: a decode step and a chunk of prompts in turn, where there are both. Returns whether there was
    /// something to enqueue.
    pub(super) fn enqueue(&mut self) -> Result<bool, EngineError> {
        let defers = self.defers_prompts();
        let prefilled = self.after_decode && !defers && self.enqueue_prefill()?;
        let enqueued = prefilled || self.enqueue_decode()?;
        Ok(enqueued || (!defers || self.flights.is_empty()) && self.enqueue_prefill()?)
    }

    /// Whether prompts wait for further prompts, to share a prefill step. While sequences wait for a slot, further prompts will come.
    ///
    /// A prefill step of a short prompt takes about as long as a decode step of many sequences. So prompts wait until they have missed
    /// a share of the tokens that a decode step chooses, all together: the faster prompts come, the more of them share a step.
    /// `benches/prefill_wait.py` simulates other shares: longer waits gain little, and cost more where the ends of answers come together.
    fn defers_prompts(&self) -> bool {
        let all_in_use = self.slots.iter().all(Option::is_some);
        if self.waiting.is_empty() || !all_in_use {
            return false;
        }
        let (mut tokens, mut missed, mut decoding) = (0, 0, 0);
        for id in &self.running {
            match self.prefill_tokens_left(id) {
                0 => decoding += 1,
                left => {
                    let slot = self.sequences[id].slot.and_then(|index| self.slots[index as usize].as_ref());
                    tokens += left;
                    missed += slot.map_or(0, |slot| self.step_counts.decode_steps - slot.occupied_at);
                }
            }
        }
        tokens < ENOUGH_TOKENS && MISSED_SHARE * missed < decoding
    }

    /// Rows of each running sequence in the next step besides its first one, for given or drafted tokens. None if results of
    /// steps in flight must be read first.
    fn further_rows(&self) -> Option<Vec<FurtherRows>> {
        let none = vec![FurtherRows::default(); self.running.len()];
        let is_drafted = |flight: &InFlight| flight.outputs.iter().any(|output| output.drafted.is_some());
        if self.flights.iter().any(is_drafted) {
            return None;
        }
        if self.limits.verify.is_empty() {
            return Some(none);
        }
        let ready = self.running.iter().enumerate().filter_map(|(index, id)| {
            let sequence = &self.sequences[id];
            let slot = self.slots[sequence.slot? as usize].as_ref()?;
            let known = sequence.tokens.len() as u32;
            let model = self.draft_model.as_ref().zip(sequence.slot);
            let offer = model.map_or(Offer::default(), |(model, slot)| model.offer(slot, *id, known));
            may_decode(sequence, slot).then(|| (index, sequence.proposal(slot, offer), slot))
        });
        let ready: Vec<_> = ready.collect();
        let proposals: Vec<_> = ready.iter().map(|(_, proposal, _)| *proposal).collect();
        let Limits { decode, verify, .. } = &self.limits;
        let draft = self.draft_model.as_ref().map_or(&[][..], |model| model.sizes());
        let counts = drafts(&proposals, &StepSizes { decode, verify, draft }, &self.step_costs);
        let mut further = none;
        for ((index, proposal, slot), count) in ready.into_iter().zip(counts) {
            let is_drafted = count > 0 && slot.enqueued + 1 >= slot.given;
            if is_drafted && slot.last_step > self.completed {
                return None;
            }
            further[index] = FurtherRows { count, source: proposal.and_then(|proposal| proposal.source) };
        }
        Some(further)
    }

    /// Drafts tokens for sequences: by look-up, or by the steps of the draft model, for which it waits.
    fn drafts(&mut self, further: &[FurtherRows]) -> Result<Vec<Draft>, EngineError> {
        let mut drafts = Vec::new();
        let mut wanted = Vec::new();
        for (id, &FurtherRows { count, source }) in self.running.iter().zip(further) {
            let Some(source) = source.filter(|_| count > 0) else { continue };
            let Some(sequence) = self.sequences.get(id) else { continue };
            let Some(slot) = sequence.slot else { continue };
            let tokens = &sequence.tokens;
            let draft = Draft { slot, position: tokens.len() as u32, tokens: Vec::new() };
            if source == Source::Model && self.draft_model.is_some() {
                wanted.push(Wanted { slot, sequence: *id, tokens, count });
            }
            drafts.push((*id, source, count, draft));
        }
        let by_model = match &mut self.draft_model {
            Some(model) if !wanted.is_empty() => model.draft(&wanted, &mut self.step_costs)?,
            _ => Vec::new(),
        };
        let mut by_model = by_model.into_iter();
        for (id, source, count, draft) in &mut drafts {
            let Some(sequence) = self.sequences.get_mut(id) else { continue };
            let Some(speculator) = &mut sequence.speculator else { continue };
            draft.tokens = match source {
                Source::Lookup => speculator.look_up(*count),
                Source::Model => {
                    let drafted = self.draft_model.as_ref().and_then(|_| by_model.next());
                    let count = drafted.as_ref().map_or(*count, |tokens| tokens.len() as u32);
                    let generated = sequence.tokens.len() - sequence.prompt as usize;
                    match speculator.synthetic(generated, count) {
                        Some(tokens) => {
                            self.draft_model.iter_mut().for_each(|model| model.replace(draft.slot, &tokens));
                            tokens
                        }
                        None => drafted.unwrap_or_default(),
                    }
                }
            };
            speculator.drafted(*source, &draft.tokens);
        }
        Ok(drafts.into_iter().map(|(.., draft)| draft).collect())
    }

    /// Enqueues a decode step with a row for each sequence whose prompt prefill steps have processed, that may have another
    /// token, and that has a page for it; or a verify step with several rows of some.
    fn enqueue_decode(&mut self) -> Result<bool, EngineError> {
        let mut since = Instant::now();
        let Some(further) = self.further_rows() else { return Ok(false) };
        let mut drafts = self.drafts(&further)?;
        if !drafts.is_empty() {
            since = Instant::now();
        }
        let mut rows = Vec::new();
        let mut entries = Vec::new();
        let mut choices = GrammarChoices::default();
        self.paused.clear();
        for (id, further) in self.running.iter().zip(further) {
            let Some(sequence) = self.sequences.get_mut(id) else { continue };
            let Some((index, slot)) = slot_of(&mut self.slots, sequence.slot) else { continue };
            if !may_decode(sequence, slot) {
                continue;
            }
            let draft = drafts.iter_mut().find(|draft| draft.slot == index);
            let further = match (&draft, further.source) {
                (Some(draft), _) => draft.tokens.len() as u32,
                (None, Some(_)) => 0,
                (None, None) => further.count,
            };
            let count = slot.allocate_pages(1 + further, &mut self.pool);
            if count == 0 {
                if let (Some(draft), Some(speculator)) = (draft, &mut sequence.speculator) {
                    draft.tokens.clear();
                    speculator.keep_drafted(0);
                }
                self.paused.push(*id);
                continue;
            }
            if sequence.next_token(slot, slot.enqueued) == NextToken::Grammar
                && !choices.ask(*id, sequence, slot, index)
            {
                continue;
            }
            if let (Some(draft), Some(speculator)) = (draft, &mut sequence.speculator) {
                // Pages of the model may be missing for the end of a draft.
                draft.tokens.truncate(count as usize - 1);
                speculator.keep_drafted(count - 1);
                let source = speculator.source();
                sequence.answer.drafts[source].drafted += u64::from(count - 1);
                self.step_counts.drafts[source].drafted += u64::from(count - 1);
            }
            rows.extend(slot.rows(index, count, sequence.prompt));
            entries.extend(slot.take_entries(index));
            slot.last_step = self.enqueued + 1;
        }
        self.end_by_grammar(&mut choices);
        if rows.is_empty() {
            return Ok(false);
        }
        drafts.retain(|draft| !draft.tokens.is_empty());
        self.apply(&choices)?;
        self.write_entries(&entries)?;
        let next = |row: &StepRow| StepRow { position: row.position + 1, ..*row };
        let verifies = rows.windows(2).any(|pair| pair[0].slot == pair[1].slot);
        match &self.last_decode {
            _ if verifies => self.steps.verify(&rows, &drafts)?,
            Some(last) if last.iter().map(next).eq(rows.iter().copied()) => self.steps.decode_again()?,
            _ => self.steps.decode(&rows)?,
        }
        let (kind, sizes) = match verifies {
            true => (Work::Verify, &self.limits.verify),
            false => (Work::Decode, &self.limits.decode),
        };
        let size = sizes.iter().copied().find(|&size| size as usize >= rows.len());
        let timing = size.map(|size| Timing { kind, size, since });
        self.record(&rows, &drafts, Vec::new(), timing);
        self.step_counts.decode_steps += 1;
        self.step_counts.decode_rows += rows.len() as u64;
        self.step_counts.verify_steps += u64::from(verifies);
        self.last_decode = (!verifies).then_some(rows);
        self.after_decode = true;
        Ok(true)
    }

    /// Maximum number of tokens of the next prefill step: that of the largest step, or [`PREFILL_BETWEEN_DECODES`]
    /// while sequences decode.
    fn prefill_budget(&self) -> Option<u32> {
        let decodes = |id| {
            let Some(sequence) = self.sequences.get(id) else { return false };
            let slot = sequence.slot.and_then(|index| self.slots[index as usize].as_ref());
            slot.is_some_and(|slot| slot.enqueued >= sequence.prefill_tokens())
        };
        let sizes = &self.limits.prefill;
        let most = if self.running.iter().any(decodes) { PREFILL_BETWEEN_DECODES } else { u32::MAX };
        sizes.iter().copied().rfind(|&size| size <= most).or_else(|| sizes.first().copied())
    }

    /// Enqueues a step with the next tokens of prompts, up to [`Scheduler::prefill_budget`]. It chooses the first token of each
    /// sequence whose prompt ends in it.
    fn enqueue_prefill(&mut self) -> Result<bool, EngineError> {
        let Some(mut left) = self.prefill_budget() else { return Ok(false) };
        let mut rows = Vec::new();
        let mut entries = Vec::new();
        let mut processed = Vec::new();
        let mut choices = GrammarChoices::default();
        for id in &self.running {
            let Some(sequence) = self.sequences.get_mut(id) else { continue };
            let Some((index, slot)) = slot_of(&mut self.slots, sequence.slot) else { continue };
            // Sequences before this one may just have got pages of the same tokens.
            let reused = slot.reuse(sequence, &mut self.pool);
            if sequence.is_new() {
                sequence.answer.reused += reused;
            }
            let count = left.min(sequence.prefill_tokens().saturating_sub(slot.enqueued));
            if count == 0 {
                continue;
            }
            let last = slot.enqueued + count - 1;
            if last + 1 == sequence.prompt
                && sequence.next_token(slot, last) == NextToken::Grammar
                && !choices.ask(*id, sequence, slot, index)
            {
                continue;
            }
            rows.extend(slot.rows(index, count, sequence.prompt));
            let missed = slot.publish(sequence.prefilled(), &mut self.pool);
            if sequence.is_new() {
                sequence.answer.missed += missed;
            }
            entries.extend(slot.take_entries(index));
            slot.last_step = self.enqueued + 1;
            processed.push((index, slot.enqueued));
            left -= count.next_multiple_of(ROW_GROUP).min(left);
        }
        self.end_by_grammar(&mut choices);
        if rows.is_empty() {
            return Ok(false);
        }
        self.apply(&choices)?;
        self.write_entries(&entries)?;
        self.steps.prefill(&rows)?;
        self.record(&rows, &[], processed, None);
        self.step_counts.prefill_steps += 1;
        self.step_counts.prefill_rows += rows.len() as u64;
        self.last_decode = None;
        self.after_decode = false;
        Ok(true)
    }

    /// Ends the sequences after which their grammars let nothing follow, and those whose grammars failed.
    fn end_by_grammar(&mut self, choices: &mut GrammarChoices) {
        for (id, error) in choices.over.drain(..) {
            match error {
                None => self.finish(id, FinishReason::Complete),
                Some(error) => self.fail(id, error),
            }
        }
    }

    /// Writes masks and given tokens for the next step.
    fn apply(&mut self, choices: &GrammarChoices) -> Result<(), EngineError> {
        let GrammarChoices { masks, given, .. } = choices;
        given.iter().try_for_each(|(slot, at, tokens)| self.steps.give_tokens(*slot, *at, tokens))?;
        if masks.is_empty() { Ok(()) } else { self.steps.set_masks(masks) }
    }

    fn write_entries(&mut self, entries: &[PageEntry]) -> Result<(), EngineError> {
        if entries.is_empty() { Ok(()) } else { self.steps.set_pages(entries) }
    }

    /// Records a step that was enqueued.
    fn record(
        &mut self,
        rows: &[StepRow],
        drafts: &[Draft],
        prompts: Vec<(u32, u32)>,
        timing: Option<Timing>,
    ) {
        self.enqueued += 1;
        let drafted = |row: &StepRow| {
            let draft = drafts.iter().find(|draft| draft.slot == row.slot)?;
            draft.tokens.get(row.position.checked_sub(draft.position)? as usize).copied()
        };
        let choosing = rows.iter().filter(|row| row.chooses);
        let output =
            |row: &StepRow| Output { slot: row.slot, position: row.position + 1, drafted: drafted(row) };
        self.flights.push_back(InFlight { outputs: choosing.map(output).collect(), prompts, timing });
    }
}

/// Whether the next decode step may have a row of a sequence: prefill steps have processed its prompt, and another token
/// may follow.
fn may_decode(sequence: &Sequence<'_>, slot: &Slot) -> bool {
    // Tokens of steps in flight.
    let unread = (slot.enqueued + 1).saturating_sub(sequence.tokens.len() as u32);
    let may_follow = unread < sequence.answer.tokens_left()
        && sequence.next_token(slot, slot.enqueued) != NextToken::Earlier;
    slot.enqueued >= sequence.prefill_tokens() && may_follow
}

/// What the grammars of sequences allow in the next step: masks of tokens, and tokens without a choice.
#[derive(Default)]
struct GrammarChoices {
    /// Masks of slots.
    masks: Vec<(u32, Vec<u32>)>,
    /// Slots with the position and the tokens that they are given.
    given: Vec<(u32, u32, Vec<u32>)>,
    /// Sequences after which nothing may follow, or whose grammar failed.
    over: Vec<(SequenceId, Option<EngineError>)>,
}

impl GrammarChoices {
    /// Asks the grammar of a sequence for its next token. Returns whether there may be one.
    fn ask(&mut self, id: SequenceId, sequence: &mut Sequence<'_>, slot: &mut Slot, index: u32) -> bool {
        let Some(guide) = &mut sequence.guide else { return true };
        match guide.next() {
            Ok(Next::Any(mask)) => self.masks.push((index, mask)),
            Ok(Next::Only(mut tokens)) => {
                tokens.truncate(sequence.answer.tokens_left() as usize);
                let at = sequence.tokens.len() as u32;
                slot.given = at + tokens.len() as u32;
                self.given.push((index, at, tokens));
            }
            Ok(Next::End) => {
                self.over.push((id, None));
                return false;
            }
            Err(error) => {
                self.over.push((id, Some(error)));
                return false;
            }
        }
        true
    }
}

/// A slot in use with its index.
fn slot_of(slots: &mut [Option<Slot>], index: Option<u32>) -> Option<(u32, &mut Slot)> {
    Some((index?, slots[index? as usize].as_mut()?))
}
