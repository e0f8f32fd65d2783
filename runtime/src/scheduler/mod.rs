//! Scheduler of sequences: many requests at once over one engine.
//!
//! A request becomes a sequence ([`Scheduler::add`]). It waits until a slot and pages for its prompt are free; its prompt is
//! then processed in chunks, together with the prompts of other sequences. The last chunk chooses the sequence's first
//! token, and each decode step after that another one. [`Scheduler::step`] enqueues steps, waits for the next tokens, and returns
//! events. Tokens are the same as those of the sequence alone. [`Scheduler::generate`] decodes one request to its end.
//!
//! - **Policy**: a decode step, then a chunk of prompts, and so on. Prompts are processed in the order of arrival; while sequences wait
//!   for a slot, several prompts share a prefill step. Up to [`MAX_STEPS_AHEAD`] steps are in flight; fewer while sequences wait
//!   for a slot, so that slots become free sooner.
//! - **Pages**: the keys and values of a sequence are in pages of [`PAGE`] positions. Sequences whose prompts begin with the
//!   same tokens share the full pages of these tokens. Pages of ended sequences are kept for prompts that begin with the
//!   same tokens, until other sequences need them. The last page of a prompt, filled in part, is taken over by the next sequence that
//!   begins with its tokens. Keys and values of chosen tokens and of a prompt's last token are not reused, since decode and
//!   first-token steps give them other bits than prefill steps.
//! - **Out of pages**: a sequence that needs a page when none can be had pauses until another sequence ends. If all
//!   sequences pause, the youngest gives its slot and its pages back and waits for new ones. Its prompt is then processed
//!   again in prefill steps, and the tokens that were chosen in decode steps, so that it goes on with the same bits. A
//!   sequence that is alone and needs more pages than there are ends with [`FinishReason::OutOfPages`].
//! - **Grammars**: before each choice the host uploads a mask of allowed tokens. The mask depends on the token before, so
//!   the step is enqueued only when that token has been read; the other sequences of the step wait with it. Tokens that the
//!   grammar forces are uploaded together, and their steps do not wait. They still take rows of decode or verify steps,
//!   because prefill steps would give their keys and values other bits.
//! - **Speculation**: if the engine has verify steps, a step can have several rows of a sequence: tokens that are given, or that
//!   [`speculation`](crate::speculation) has drafted. The device does not run ahead of a draft, and at most two steps ahead of
//!   a sequence that may have one. A draft model ([`Scheduler::with_draft_model`]) has its own pages; if they are all in use, its
//!   sequences go on without its drafts.
//! - **Ends**: a stop token, a stop string, a limit and [`Scheduler::cancel`] end a sequence at once. Its slot and pages
//!   become free when the steps in flight that write to them are complete; the tokens of these steps are discarded.

mod draft_model;
mod generate;
mod history;
mod pages;
mod policy;
mod results;
mod sequence;
mod steps;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::time::Instant;

use draft_model::DraftModel;
use pages::PagePool;
use results::InFlight;
use sequence::{Sequence, Slot};

pub use pages::PageCounts;
pub use steps::{Draft, Limits, PAGE, PageEntry, ROW_GROUP, StepRow, Steps};

use crate::engine::EngineError;
#[cfg(doc)]
use crate::engine::MAX_STEPS_AHEAD;
use crate::generation::{Answer, FinishReason, Guide, Request, Summary, Token};
use crate::speculation::{SourceCounts, Speculation, Speculator, StepCosts};
use crate::tokenizer::Tokenizer;

/// Id of a sequence, in the order of arrival. Ids are not reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SequenceId(u64);

impl fmt::Display for SequenceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What happened to a sequence. Events of a sequence are in order.
#[derive(Debug)]
pub enum Event {
    /// Prompt tokens were processed. If the context was shifted, or the sequence gave its pages to others, the tokens that are
    /// processed again are its prompt.
    Prompt {
        /// The sequence.
        id: SequenceId,
        /// Number of prompt tokens that are processed.
        processed: u32,
        /// Number of prompt tokens.
        total: u32,
    },
    /// A token was chosen.
    Token {
        /// The sequence.
        id: SequenceId,
        /// The token, with its text and log-probabilities.
        token: Token,
    },
    /// The sequence ended.
    Finished {
        /// The sequence.
        id: SequenceId,
        /// Tokens, text, reason and times.
        summary: Summary,
    },
    /// The sequence ended because its logits were not finite, or its grammar failed. Other sequences continue.
    Failed {
        /// The sequence.
        id: SequenceId,
        /// The error.
        error: EngineError,
    },
}

/// Scheduler of sequences over the steps of an engine.
pub struct Scheduler<'t, S> {
    steps: S,
    limits: Limits,
    tokenizer: Option<&'t Tokenizer>,
    sequences: BTreeMap<SequenceId, Sequence<'t>>,
    next_id: u64,
    /// Sequences that wait for a slot.
    waiting: VecDeque<SequenceId>,
    /// Sequences with a slot, in the order in which they got it.
    running: Vec<SequenceId>,
    slots: Vec<Option<Slot>>,
    pool: PagePool,
    /// Steps that are not known to be complete, oldest first.
    flights: VecDeque<InFlight>,
    /// Number of steps enqueued.
    enqueued: u64,
    /// Number of steps known to be complete.
    completed: u64,
    /// Rows of the last step, if it was a decode step whose successor the device can prepare.
    last_decode: Option<Vec<StepRow>>,
    /// Whether the last step was a decode step or a verify step.
    after_decode: bool,
    /// Sequences that found no page for their next token, in the order of `running`.
    paused: Vec<SequenceId>,
    events: Vec<Event>,
    step_counts: StepCounts,
    step_costs: StepCosts,
    /// Default speculation, for requests that ask for none.
    speculation: Speculation,
    draft_model: Option<DraftModel<'t>>,
    /// Time at which the last step was known to be complete.
    last_completion: Option<Instant>,
    /// Whether the engine failed and was not reset yet.
    failed: bool,
}

/// Numbers of steps that a scheduler has enqueued, of their rows, and of pre-emptions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StepCounts {
    /// Decode steps, verify steps included.
    pub decode_steps: u64,
    /// Rows of these steps: tokens that are chosen, discarded ones included.
    pub decode_rows: u64,
    /// Verify steps: steps with several rows of a sequence.
    pub verify_steps: u64,
    /// Numbers of drafted and accepted tokens.
    pub drafts: SourceCounts,
    /// Prefill steps.
    pub prefill_steps: u64,
    /// Rows of prefill steps: tokens of prompts.
    pub prefill_rows: u64,
    /// Sequences that gave their pages to others and were processed again.
    pub preemptions: u64,
}

impl<'t, S: Steps> Scheduler<'t, S> {
    /// A scheduler without sequences. Without a tokenizer, tokens have no text.
    pub fn new(steps: S, tokenizer: Option<&'t Tokenizer>) -> Scheduler<'t, S> {
        let limits = steps.limits().clone();
        let most_rows = limits.decode.last().copied().unwrap_or(0);
        Scheduler {
            tokenizer,
            sequences: BTreeMap::new(),
            next_id: 0,
            waiting: VecDeque::new(),
            running: Vec::new(),
            // Every sequence has a row in each decode step.
            slots: (0..limits.slots.min(most_rows)).map(|_| None).collect(),
            pool: PagePool::new(limits.pages),
            flights: VecDeque::new(),
            enqueued: 0,
            completed: 0,
            last_decode: None,
            after_decode: false,
            paused: Vec::new(),
            events: Vec::new(),
            step_counts: StepCounts::default(),
            step_costs: StepCosts::default(),
            speculation: Speculation::default(),
            draft_model: None,
            last_completion: None,
            failed: false,
            steps,
            limits,
        }
    }

    /// Returns the engine. Sequences that have not ended are dropped without events; steps in flight still run.
    pub fn into_steps(self) -> S {
        self.steps
    }

    /// This scheduler, with `speculation` for requests that ask for none.
    #[must_use]
    pub fn with_speculation(self, speculation: Speculation) -> Scheduler<'t, S> {
        Scheduler { speculation, ..self }
    }

    /// This scheduler with a draft model: greedy steps of another engine with the same vocabulary, and at least as many slots.
    /// It drafts for every request that speculates.
    ///
    /// # Panics
    /// If the draft model has fewer slots.
    #[must_use]
    pub fn with_draft_model(self, steps: Box<dyn Steps + 't>) -> Scheduler<'t, S> {
        assert!(
            steps.limits().slots >= self.slots(),
            "a draft model needs a slot for each of the scheduler's"
        );
        Scheduler { draft_model: Some(DraftModel::new(steps)), ..self }
    }

    /// Checks a request as [`Scheduler::add`] does.
    ///
    /// # Errors
    /// If [`Limits::check`] finds an error, or more tokens shall be kept than the context has room for.
    pub fn check(&self, request: &Request<'_>) -> Result<(), EngineError> {
        self.answer(request).map(drop)
    }

    /// The empty answer to a request that passes all checks.
    fn answer(&self, request: &Request<'_>) -> Result<Answer<'t>, EngineError> {
        self.limits.check(request)?;
        Answer::new(request, self.tokenizer, self.limits.context)
    }

    /// Adds a sequence with the request's prompt; it waits until a slot is free.
    ///
    /// # Errors
    /// If [`Scheduler::check`] finds an error. Other sequences are not affected.
    pub fn add(&mut self, request: &Request<'_>) -> Result<SequenceId, EngineError> {
        let answer = self.answer(request)?;
        let prompt = request.prompt.len() as u32;
        let id = SequenceId(self.next_id);
        self.next_id += 1;
        if answer.tokens_left() == 0 {
            self.events.push(Event::Finished { id, summary: answer.finish() });
            return Ok(id);
        }
        let sequence = Sequence {
            answer,
            guide: request.grammar.map(|grammar| Guide::new(grammar, self.limits.vocab)),
            speculator: self.speculator(request),
            sampling: request.sampling_with_grammar(),
            logprobs: request.logprobs,
            tokens: request.prompt.to_vec(),
            prompt,
            slot: None,
        };
        self.sequences.insert(id, sequence);
        self.waiting.push_back(id);
        Ok(id)
    }

    /// Speculator of a request's answer; none if the engine has no verify steps, a grammar decides about each token, or no
    /// tokens are to be drafted.
    fn speculator(&self, request: &Request<'_>) -> Option<Speculator> {
        let drafts = !self.limits.verify.is_empty() && request.grammar.is_none();
        let asked = Some(request.speculation).filter(|speculation| speculation.most > 0);
        let speculation = asked.unwrap_or(self.speculation);
        let model = self.draft_model.as_ref().map(|model| &model.prior);
        drafts
            .then(|| Speculator::new(speculation, request.prompt, model, request.synthetic.clone()))
            .flatten()
    }

    /// Ends a sequence, and returns what it has generated so far: the reason is [`FinishReason::Cancelled`]. No further
    /// event has the sequence's id. None if there is no such sequence, or it has ended.
    pub fn cancel(&mut self, id: SequenceId) -> Option<Summary> {
        let mut answer = self.remove(id)?.answer;
        answer.stop(FinishReason::Cancelled);
        Some(answer.finish())
    }

    /// Enqueues steps, waits until the oldest step in flight is complete, and returns what happened since the last call.
    /// Returns at once if there are no sequences.
    ///
    /// # Errors
    /// If the device fails: all sequences have ended then. The next call makes the engine usable again, if the device
    /// recovers.
    pub fn step(&mut self) -> Result<Vec<Event>, EngineError> {
        match self.advance() {
            Ok(()) => Ok(std::mem::take(&mut self.events)),
            Err(error) => {
                self.lose_all();
                Err(error)
            }
        }
    }

    /// Whether no sequence is left, all events were returned, and all pages are free or cached.
    pub fn is_idle(&self) -> bool {
        self.sequences.is_empty() && self.events.is_empty() && self.slots.iter().all(Option::is_none)
    }

    /// Number of sequences that wait for a slot.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Number of sequences that have a slot.
    pub fn running(&self) -> usize {
        self.running.len()
    }

    /// Number of sequences that can run at the same time.
    pub fn slots(&self) -> u32 {
        self.slots.len() as u32
    }

    /// Numbers of pages by their state.
    pub fn pages(&self) -> PageCounts {
        self.pool.counts()
    }

    /// Numbers of steps that were enqueued.
    pub fn step_counts(&self) -> StepCounts {
        self.step_counts
    }

    /// The engine.
    pub fn steps(&self) -> &S {
        &self.steps
    }

    /// One call of [`Scheduler::step`], which adds its events to `events`.
    fn advance(&mut self) -> Result<(), EngineError> {
        if self.failed {
            self.steps.reset()?;
            if let Some(model) = &mut self.draft_model {
                model.reset()?;
            }
            self.failed = false;
        }
        self.release_slots()?;
        self.admit()?;
        // A step replaces the step that completes now. More are enqueued only while that one is not complete, when the host
        // would have to wait anyway; so a device that runs steps synchronously is at most one step ahead.
        while self.flights.len() < self.steps_ahead() && self.enqueue()? {
            if self.read_results()? {
                return self.release_slots();
            }
        }
        if !self.flights.is_empty() {
            self.wait()?;
        } else if let Some(&youngest) = self.paused.iter().max() {
            self.preempt(youngest);
        }
        self.release_slots()
    }

    /// Gives slots and pages to waiting sequences, in the order of arrival. Sequences that pause come first.
    fn admit(&mut self) -> Result<(), EngineError> {
        while self.paused.is_empty() {
            let Some(&id) = self.waiting.front() else { break };
            let Some(free) = self.slots.iter().position(Option::is_none) else { break };
            let Some(sequence) = self.sequences.get_mut(&id) else { break };
            let Some(mut slot) = Slot::occupy(id, sequence, &mut self.pool) else { break };
            slot.occupied_at = self.step_counts.decode_steps;
            let index = free as u32;
            if sequence.is_new() {
                sequence.answer.reused += slot.enqueued;
            }
            sequence.slot = Some(index);
            self.slots[free] = Some(slot);
            self.steps.start(index, &sequence.tokens, &sequence.sampling)?;
            self.waiting.pop_front();
            self.running.push(id);
        }
        Ok(())
    }

    /// Takes the slot and the pages of a sequence away for other sequences. Ends the sequence if no other one is
    /// running.
    fn preempt(&mut self, id: SequenceId) {
        if self.running.len() == 1 {
            return self.finish(id, FinishReason::OutOfPages);
        }
        let Some(sequence) = self.sequences.get(&id) else { return };
        tracing::debug!("sequence {id} gives its pages to others, after {} tokens", sequence.tokens.len());
        self.leave_slot(id);
        self.waiting.push_front(id);
        self.step_counts.preemptions += 1;
    }

    /// Ends a sequence with an event. `reason` holds unless the sequence has another reason.
    fn finish(&mut self, id: SequenceId, reason: FinishReason) {
        if let Some(Sequence { mut answer, .. }) = self.remove(id) {
            answer.stop(reason);
            self.events.push(Event::Finished { id, summary: answer.finish() });
        }
    }

    /// Ends a sequence with an error.
    fn fail(&mut self, id: SequenceId, error: EngineError) {
        if self.remove(id).is_some() {
            self.events.push(Event::Failed { id, error });
        }
    }

    /// Removes a sequence. Its slot stays in use until [`Scheduler::release_slots`].
    fn remove(&mut self, id: SequenceId) -> Option<Sequence<'t>> {
        let sequence = self.sequences.get(&id)?;
        if let Some(slot) = sequence.slot.and_then(|slot| self.slots[slot as usize].as_ref()) {
            slot.remember(&sequence.tokens, &mut self.pool);
        }
        self.waiting.retain(|&waiting| waiting != id);
        self.leave_slot(id);
        self.sequences.remove(&id)
    }

    /// Ends a sequence's use of its slot.
    fn leave_slot(&mut self, id: SequenceId) {
        self.running.retain(|&running| running != id);
        self.paused.retain(|&paused| paused != id);
        let Some(sequence) = self.sequences.get_mut(&id) else { return };
        let Some(index) = sequence.slot.take() else { return };
        if let Some(slot) = &mut self.slots[index as usize] {
            slot.leave(sequence);
        }
        if let Some(model) = &mut self.draft_model {
            model.release(index);
        }
    }

    /// Releases slots without a sequence, and their pages, once no step in flight has a row of them.
    fn release_slots(&mut self) -> Result<(), EngineError> {
        for entry in &mut self.slots {
            let is_over = |slot: &mut Slot| slot.sequence.is_none() && slot.last_step <= self.completed;
            if let Some(slot) = entry.take_if(is_over) {
                slot.release(&mut self.pool);
            }
        }
        let unclean = self.pool.take_unclean();
        if !unclean.is_empty() {
            self.steps.clear_pages(&unclean)?;
            self.pool.cleared(unclean);
        }
        Ok(())
    }

    /// Forgets all sequences and pages, after the engine has failed.
    fn lose_all(&mut self) {
        self.failed = true;
        self.sequences.clear();
        self.waiting.clear();
        self.running.clear();
        self.paused.clear();
        self.slots.iter_mut().for_each(|slot| *slot = None);
        self.pool = PagePool::new(self.limits.pages);
        if let Some(model) = &mut self.draft_model {
            model.forget_all();
        }
        self.flights.clear();
        self.completed = self.enqueued;
        self.last_decode = None;
        self.after_decode = false;
        self.last_completion = None;
        self.events.clear();
    }
}

impl Event {
    /// The sequence.
    pub fn id(&self) -> SequenceId {
        match self {
            Event::Prompt { id, .. }
            | Event::Token { id, .. }
            | Event::Finished { id, .. }
            | Event::Failed { id, .. } => *id,
        }
    }
}
