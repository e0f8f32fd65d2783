//! Results of steps in flight: tokens, ends of sequences, and errors.

use std::time::{Duration, Instant};

use super::steps::Steps;
use super::{Event, Scheduler, SequenceId};
use crate::engine::{Backoff, EngineError, NonFiniteLogits, Pause};
use crate::generation::{FinishReason, TokenLogprobs};
use crate::speculation::{ModelPrior, Source, Speculator, Work};

/// A step that is not known to be complete.
pub(super) struct InFlight {
    /// Tokens that the step chooses, in the order of its rows.
    pub outputs: Vec<Output>,
    /// Slots whose prompts the step continues, each with its number of processed prompt tokens.
    pub prompts: Vec<(u32, u32)>,
    /// Data to measure the step's time; none for prefill steps.
    pub timing: Option<Timing>,
}

/// A step whose time is measured.
#[derive(Clone, Copy)]
pub(super) struct Timing {
    pub kind: Work,
    /// Number of rows of the step of the engine.
    pub size: u32,
    /// Time at which the scheduler began to prepare the step.
    pub since: Instant,
}

/// A token that a step chooses.
#[derive(Clone, Copy)]
pub(super) struct Output {
    pub slot: u32,
    /// Position of the token.
    pub position: u32,
    /// The drafted token at the position before, if there is one. The choice is valid if the model has chosen the same.
    pub drafted: Option<u32>,
}

/// Token, or the error of logits that are not finite.
type Chosen = Result<u32, NonFiniteLogits>;

impl<S: Steps> Scheduler<'_, S> {
    /// Waits until the oldest step is complete that chooses a token; if none does, until the device is idle.
    pub(super) fn wait(&mut self) -> Result<(), EngineError> {
        let backoff = Backoff::new();
        while !self.read_results()? {
            // Without a step that chooses tokens, all steps are waited for.
            let awaited = self.flights.iter().position(|step| !step.outputs.is_empty());
            let steps = awaited.map_or(self.flights.len(), |index| index + 1) as u32;
            if backoff.pause() == Pause::Long && !self.steps.busy(backoff.waited(), steps)? {
                // The tokens may have been written between the two calls.
                let position =
                    self.flights.iter().flat_map(|step| &step.outputs).map(|it| it.position).next();
                return match (self.read_results()?, position) {
                    (false, Some(position)) => Err(EngineError::NoToken { position }),
                    _ => Ok(()),
                };
            }
        }
        Ok(())
    }

    /// Reads the results of the oldest step that chooses tokens, if it is complete, and of the steps before it. Without
    /// such a step, all steps are complete when the device is idle. Returns whether a step was complete.
    pub(super) fn read_results(&mut self) -> Result<bool, EngineError> {
        let Some(index) = self.flights.iter().position(|step| !step.outputs.is_empty()) else {
            let is_complete = !self.flights.is_empty() && !self.steps.busy(Duration::ZERO, 1)?;
            if is_complete {
                self.complete(self.flights.len());
            }
            return Ok(is_complete);
        };
        let mut chosen = Vec::new();
        for output in &self.flights[index].outputs {
            chosen.push(match self.steps.token(output.slot, output.position) {
                Ok(Some(token)) => Ok(token),
                Ok(None) => return Ok(false),
                Err(EngineError::NonFinite(error)) => Err(error),
                Err(error) => return Err(error),
            });
        }
        let outputs = std::mem::take(&mut self.flights[index].outputs);
        self.measure(index);
        self.complete(index + 1);
        let mut failed = Vec::new();
        for (row, (&output, chosen)) in outputs.iter().zip(chosen).enumerate() {
            failed.extend(self.accept(row as u32, output, chosen)?);
        }
        self.discard_drafts(&outputs);
        // After all rows are accepted, which may need the step's logits: `explain` loses them.
        for (id, slot, error) in failed {
            self.last_decode = None;
            let error = self.steps.explain(slot, error)?.into();
            self.events.push(Event::Failed { id, error });
        }
        Ok(true)
    }

    /// Measures the time of a step in flight that is complete now. With prefill steps before it, its own time is not known.
    fn measure(&mut self, index: usize) {
        let now = Instant::now();
        if let (0, Some(Timing { kind, size, since })) = (index, self.flights[index].timing) {
            // Steps run one after another.
            let start = self.last_completion.map_or(since, |completion| completion.max(since));
            self.step_costs.observe(kind, size, now - start);
        }
        self.last_completion = Some(now);
    }

    /// Takes back the positions of drafted tokens that were not accepted: later steps process other tokens there.
    fn discard_drafts(&mut self, outputs: &[Output]) {
        for output in outputs.iter().filter(|output| output.drafted.is_some()) {
            let Some(slot) = &mut self.slots[output.slot as usize] else { continue };
            if let Some(sequence) = slot.sequence.and_then(|id| self.sequences.get(&id)) {
                slot.enqueued = slot.enqueued.min(sequence.tokens.len() as u32 - 1);
            }
        }
    }

    /// Removes the first `count` steps in flight, which are complete, and reports the progress of their prompts.
    fn complete(&mut self, count: usize) {
        self.completed += count as u64;
        for (slot, processed) in self.flights.drain(..count).flat_map(|step| step.prompts) {
            let id = self.slots[slot as usize].as_ref().and_then(|slot| slot.sequence);
            if let Some((id, sequence)) = id.and_then(|id| Some((id, self.sequences.get(&id)?))) {
                self.events.push(Event::Prompt { id, processed, total: sequence.prompt });
            }
        }
    }

    /// Accepts the token that was chosen after row `row` of a step. Discards it if the sequence has ended. Removes a sequence
    /// whose logits are not finite, and returns it with its slot and the error.
    fn accept(
        &mut self,
        row: u32,
        output: Output,
        chosen: Chosen,
    ) -> Result<Option<(SequenceId, u32, NonFiniteLogits)>, EngineError> {
        let Some(slot) = &mut self.slots[output.slot as usize] else { return Ok(None) };
        slot.record_finite(output.position, chosen.is_ok());
        let Some(id) = slot.sequence else { return Ok(None) };
        let Some(sequence) = self.sequences.get_mut(&id) else { return Ok(None) };
        if let Some(drafted) = output.drafted {
            if sequence.tokens.get(output.position as usize - 1) != Some(&drafted) {
                return Ok(None);
            }
            let source = sequence.speculator.as_ref().map_or(Source::Lookup, Speculator::source);
            sequence.answer.drafts[source].accepted += 1;
            self.step_counts.drafts[source].accepted += 1;
        }
        let token = match chosen {
            Ok(token) => token,
            Err(error) => {
                self.remove(id);
                return Ok(Some((id, output.slot, error)));
            }
        };
        let Some(sequence) = self.sequences.get_mut(&id) else { return Ok(None) };
        if output.position < sequence.tokens.len() as u32 {
            // The token was accepted before the sequence gave its pages away.
            return Ok(None);
        }
        let logprobs = match sequence.logprobs {
            Some(count) => Some(TokenLogprobs::of(&self.steps.logits(row)?, token, count)),
            None => None,
        };
        sequence.tokens.push(token);
        if let Some(speculator) = &mut sequence.speculator {
            match &mut self.draft_model {
                Some(model) => speculator.push(token, &mut model.prior),
                None => speculator.push(token, &mut ModelPrior::default()),
            }
        }
        let chosen = token;
        let token = sequence.answer.accept(chosen, logprobs);
        self.events.push(Event::Token { id, token });
        if let Some(guide) = sequence.guide.as_mut().filter(|_| !sequence.answer.is_stopped()) {
            match guide.accept(chosen) {
                Ok(true) => sequence.answer.stop(FinishReason::Complete),
                Ok(false) => {}
                Err(error) => {
                    self.fail(id, error);
                    return Ok(None);
                }
            }
        }
        if sequence.answer.is_stopped() || sequence.answer.tokens_left() == 0 {
            self.end_or_shift(id)?;
        }
        Ok(None)
    }

    /// Ends a sequence that has stopped or reached its limit. If the limit is the context and the request allows it, the
    /// sequence continues with the tokens that stay, as the first one that waits for a slot.
    fn end_or_shift(&mut self, id: SequenceId) -> Result<(), EngineError> {
        let Some(sequence) = self.sequences.get_mut(&id) else { return Ok(()) };
        let Some(kept) = sequence.answer.shift_context()?.map(<[u32]>::to_vec) else {
            if let Some(sequence) = self.remove(id) {
                self.events.push(Event::Finished { id, summary: sequence.answer.finish() });
            }
            return Ok(());
        };
        self.leave_slot(id);
        let Some(sequence) = self.sequences.get_mut(&id) else { return Ok(()) };
        if let Some(speculator) = &mut sequence.speculator {
            speculator.restart(&kept);
        }
        sequence.prompt = kept.len() as u32;
        sequence.tokens = kept;
        self.waiting.push_front(id);
        Ok(())
    }
}
