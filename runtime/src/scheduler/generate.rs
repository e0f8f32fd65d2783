//! One request from its start to its end.

use std::ops::ControlFlow;

use super::steps::Steps;
use super::{Event, Scheduler, SequenceId};
use crate::engine::EngineError;
#[cfg(doc)]
use crate::generation::FinishReason;
use crate::generation::{Request, Summary};

impl<S: Steps> Scheduler<'_, S> {
    /// Decodes a request to its end. Calls `on_event` with the progress of the prompt and with each token; a break cancels the
    /// sequence ([`FinishReason::Cancelled`]), after the other events of the same step. Other sequences continue; the next
    /// [`Scheduler::step`] returns their events.
    ///
    /// # Errors
    /// If [`Scheduler::add`] refuses the request, or the sequence or the device fails.
    pub fn generate(
        &mut self,
        request: &Request<'_>,
        mut on_event: impl FnMut(&Event) -> ControlFlow<()>,
    ) -> Result<Summary, EngineError> {
        let id = self.add(request)?;
        let mut of_others = Vec::new();
        let outcome = self.run_to_end(id, &mut of_others, &mut on_event);
        self.events.splice(0..0, of_others);
        outcome
    }

    /// Decodes until sequence `id` ends. Adds the events of other sequences to `of_others`.
    fn run_to_end(
        &mut self,
        id: SequenceId,
        of_others: &mut Vec<Event>,
        on_event: &mut dyn FnMut(&Event) -> ControlFlow<()>,
    ) -> Result<Summary, EngineError> {
        loop {
            let (mut end, mut is_cancelled) = (None, false);
            for event in self.step()? {
                match event {
                    event if event.id() != id => of_others.push(event),
                    Event::Finished { summary, .. } => end = Some(Ok(summary)),
                    Event::Failed { error, .. } => end = Some(Err(error)),
                    event => is_cancelled |= on_event(&event).is_break(),
                }
            }
            if is_cancelled && end.is_none() {
                end = self.cancel(id).map(Ok);
            }
            if let Some(end) = end {
                return end;
            }
        }
    }
}
