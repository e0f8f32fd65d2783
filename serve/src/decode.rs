//! Loop of the decoding thread: jobs into the scheduler, its events to the requests.

use std::any::Any;
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use bespoke::engine::EngineError;
use bespoke::scheduler::{Event, Scheduler, SequenceId, Steps};
use tokio::sync::mpsc::{self, error::TryRecvError};

use crate::error::ApiError;
use crate::metrics::Metrics;
use crate::queue::{Command, Job, Output, Queue};

/// Error that ends a server.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The engine failed and did not recover.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The decoding thread panicked, which is a bug.
    #[error("the decoding thread panicked, which is a bug: {0}")]
    Panic(String),
}

impl RunError {
    /// What clients are told about it.
    fn for_clients(&self) -> String {
        match self {
            RunError::Engine(error) => error.to_string(),
            // The text of a panic may have parts of other requests.
            RunError::Panic(_) => "a bug in the server; its log says more".to_owned(),
        }
    }
}

/// Decodes the sequences that come through `commands`, until a command to stop. All sequences have ended when it returns.
///
/// # Errors
/// If the engine fails and does not recover, or if the code panics. After one failure of the engine all sequences have
/// ended, and the next ones are tried.
pub fn run<S: Steps>(
    scheduler: &mut Scheduler<'_, S>,
    mut commands: mpsc::Receiver<Command>,
    queue: &Queue,
    metrics: &Metrics,
) -> Result<(), RunError> {
    let mut running = Running { jobs: HashMap::new(), queue, metrics };
    // The scheduler is not used after a panic.
    let decoded = catch_unwind(AssertUnwindSafe(|| decode(&mut running, scheduler, &mut commands)));
    let error = match decoded {
        Ok(Ok(())) => return Ok(()),
        Ok(Err(error)) => RunError::Engine(error),
        Err(payload) => {
            let error = RunError::Panic(panic_text(&*payload));
            let lost = running.jobs.len();
            tracing::error!("{error}; {lost} sequences are lost");
            metrics.engine_failures.inc();
            error
        }
    };
    let reason = error.for_clients();
    running.fail_all(&reason);
    // Jobs that were queued meanwhile.
    commands.close();
    while let Ok(command) = commands.try_recv() {
        if let Command::Add(job) = command {
            fail(&job, engine_failed(&reason));
        }
    }
    Err(error)
}

/// The message of a panic.
fn panic_text(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(|&text| text.to_owned());
    text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".to_owned())
}

fn decode<S: Steps>(
    running: &mut Running<'_>,
    scheduler: &mut Scheduler<'_, S>,
    commands: &mut mpsc::Receiver<Command>,
) -> Result<(), EngineError> {
    let metrics = running.metrics;
    let mut failed_before = false;
    loop {
        while let Some(command) = next(commands, running.jobs.is_empty() && scheduler.is_idle()) {
            match command {
                Command::Add(job) => running.add(scheduler, *job),
                Command::Stop => return Ok(()),
            }
        }
        running.cancel_abandoned(scheduler);
        let stepped = scheduler.step();
        // Before the events are sent: after an answer has ended, the metrics count its pages as free.
        metrics.observe(scheduler);
        match stepped {
            Ok(events) => {
                failed_before = false;
                for event in events {
                    running.handle(scheduler, event);
                }
            }
            Err(error) => {
                let lost = running.jobs.len();
                tracing::error!("the engine failed, and {lost} sequences are lost: {error}");
                metrics.engine_failures.inc();
                running.fail_all(&error.to_string());
                if failed_before {
                    return Err(error);
                }
                failed_before = true;
            }
        }
        // Events may have cancelled sequences of slow readers.
        metrics.observe(scheduler);
    }
}

/// The next command. Waits for one if the scheduler has nothing to do. A channel without senders stops the loop.
fn next(commands: &mut mpsc::Receiver<Command>, idle: bool) -> Option<Command> {
    if idle {
        return Some(commands.blocking_recv().unwrap_or(Command::Stop));
    }
    match commands.try_recv() {
        Ok(command) => Some(command),
        Err(TryRecvError::Empty) => None,
        Err(TryRecvError::Disconnected) => Some(Command::Stop),
    }
}

/// A job whose sequence has not ended.
struct RunningJob {
    job: Job,
    /// When its first step was complete; none while it waits for a slot.
    begun: Option<Instant>,
}

/// Jobs whose sequences have not ended.
struct Running<'a> {
    jobs: HashMap<SequenceId, RunningJob>,
    queue: &'a Queue,
    metrics: &'a Metrics,
}

impl Running<'_> {
    fn add<S: Steps>(&mut self, scheduler: &mut Scheduler<'_, S>, job: Job) {
        match scheduler.add(&job.settings.request(&job.prompt, job.seed)) {
            Ok(id) => drop(self.jobs.insert(id, RunningJob { job, begun: None })),
            // The HTTP side has made the same checks.
            Err(error) => fail(&job, ApiError::internal(error.to_string())),
        }
    }

    /// Cancels the sequences of requests that have ended: their clients have gone, or their time is over.
    fn cancel_abandoned<S: Steps>(&mut self, scheduler: &mut Scheduler<'_, S>) {
        self.jobs.retain(|&id, RunningJob { job, .. }| {
            // Asked once: the client may go away at any time, and a job that is dropped must have been cancelled.
            let abandoned = job.outputs.is_closed();
            if abandoned {
                scheduler.cancel(id);
                self.metrics.cancelled.inc();
            }
            !abandoned
        });
    }

    fn handle<S: Steps>(&mut self, scheduler: &mut Scheduler<'_, S>, event: Event) {
        let id = event.id();
        match event {
            Event::Prompt { .. } => self.begin(id),
            Event::Token { token, .. } => {
                self.begin(id);
                let Some(RunningJob { job, .. }) = self.jobs.get(&id) else { return };
                self.metrics.generated_tokens.inc();
                let choice = job.choice;
                // Room is kept for the end of each choice.
                if job.outputs.capacity() <= job.choices as usize {
                    scheduler.cancel(id);
                    self.metrics.slow_readers.inc();
                    let message = "the client reads too slowly: too many tokens wait for it";
                    fail(job, ApiError::new(StatusCode::REQUEST_TIMEOUT, "slow_reader", message));
                    self.jobs.remove(&id);
                } else {
                    // If the client has gone, the next step cancels the sequence.
                    let _ = job.outputs.try_send(Output::Token { choice, token });
                }
            }
            Event::Finished { summary, .. } => {
                let Some(RunningJob { job, begun }) = self.jobs.remove(&id) else { return };
                self.metrics.finished(&summary, job.prompt.len());
                // Without the wait for a slot, which is part of `summary.prompt_time`.
                self.queue.sequence_took(begun.map_or(Duration::ZERO, |begun| begun.elapsed()));
                let _ = job.outputs.try_send(Output::Finished {
                    choice: job.choice,
                    reason: summary.reason,
                    rest: summary.rest,
                    tokens: summary.tokens.len() as u32,
                    reused: summary.reused,
                    missed: summary.missed,
                });
            }
            Event::Failed { error, .. } => {
                let Some(RunningJob { job, .. }) = self.jobs.remove(&id) else { return };
                if let EngineError::Grammar(_) = error {
                    tracing::info!("a sequence ended: {error}");
                    return fail(&job, ApiError::request("grammar_failed", error.to_string()));
                }
                tracing::error!("a sequence failed: {error}");
                fail(&job, ApiError::internal(error.to_string()));
            }
        }
    }

    /// Records that a sequence's first step is complete.
    fn begin(&mut self, id: SequenceId) {
        if let Some(running) = self.jobs.get_mut(&id) {
            running.begun.get_or_insert_with(Instant::now);
        }
    }

    fn fail_all(&mut self, reason: &str) {
        for (_, RunningJob { job, .. }) in self.jobs.drain() {
            fail(&job, engine_failed(reason));
        }
    }
}

fn engine_failed(reason: &str) -> ApiError {
    let message = format!("the engine failed, and this request is lost: {reason}");
    ApiError::internal(message).with_code("engine_failed")
}

fn fail(job: &Job, error: ApiError) {
    // If the client has disconnected, the channel is closed, and the error is dropped.
    let _ = job.outputs.try_send(Output::Failed(error));
}
