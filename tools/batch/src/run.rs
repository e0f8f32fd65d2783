//! The loop over a scheduler.

use std::collections::HashMap;
use std::ops::ControlFlow;

use bespoke::engine::EngineError;
use bespoke::scheduler::{Event, Scheduler, SequenceId, Steps};

use crate::{Job, Record};

/// Why a batch ended early.
#[derive(Debug)]
pub enum Failure<E> {
    /// The engine failed. Records up to then were reported.
    Engine(EngineError),
    /// The engine refused a job.
    Refused {
        /// Index of the job.
        index: usize,
        /// The engine's error.
        error: EngineError,
    },
    /// A record could not be kept.
    Record(E),
}

/// Runs the jobs of `indices`, in this order, `parallel` at once. Calls `progress` after each step with the number of
/// tokens chosen so far; if it breaks, the jobs that run are cancelled. Calls `done` with each record, in the order of the
/// ends.
///
/// All jobs are checked before the first one runs. Returns whether all jobs ended.
pub fn run<S: Steps, E>(
    scheduler: &mut Scheduler<'_, S>,
    jobs: &[Job],
    indices: &[usize],
    parallel: usize,
    has_text: bool,
    progress: &mut dyn FnMut(u64) -> ControlFlow<()>,
    done: &mut dyn FnMut(Record) -> Result<(), E>,
) -> Result<bool, Failure<E>> {
    for &index in indices {
        let checked = scheduler.check(&jobs[index].request());
        checked.map_err(|error| Failure::Refused { index, error })?;
    }
    let mut next = indices.iter();
    let mut running: HashMap<SequenceId, usize> = HashMap::new();
    let mut tokens = 0;
    loop {
        // One more than there are slots, so that a slot that becomes free has its next job.
        while running.len() <= parallel.max(1) {
            let Some(&index) = next.next() else { break };
            let added = scheduler.add(&jobs[index].request());
            running.insert(added.map_err(|error| Failure::Refused { index, error })?, index);
        }
        if scheduler.is_idle() {
            return Ok(true);
        }
        for event in scheduler.step().map_err(Failure::Engine)? {
            let id = event.id();
            let Some(&index) = running.get(&id) else { continue };
            let record = match event {
                Event::Prompt { .. } => continue,
                Event::Token { .. } => {
                    tokens += 1;
                    continue;
                }
                Event::Finished { summary, .. } => Record::new(index, &jobs[index], summary, has_text),
                Event::Failed { error, .. } => Record::failed(index, &jobs[index], error.to_string()),
            };
            running.remove(&id);
            done(record).map_err(Failure::Record)?;
        }
        if progress(tokens).is_break() {
            for &id in running.keys() {
                scheduler.cancel(id);
            }
            return Ok(next.next().is_none() && running.is_empty());
        }
    }
}
