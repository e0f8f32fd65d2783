//! Channels between the HTTP handlers and the decoding thread: jobs in, outputs back.
//!
//! Each sequence is a job and holds a permit until the decoding thread drops it. There is one permit for each slot and for each
//! sequence that may wait, so sending a job never blocks. Each request has a bounded channel of outputs. The decoding thread
//! does not block on that channel: if it is full because the client reads too slowly, the request is ended.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::http::StatusCode;
use bespoke::engine::SamplingParams;
use bespoke::generation::{FinishReason, Grammar, MissedPages, Request, Token};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use crate::error::ApiError;
use crate::grammar::Compiled;

/// What to generate, and when to stop: the same for all sequences of a request.
#[derive(Clone, Debug)]
pub struct Settings {
    pub sampling: SamplingParams,
    pub max_tokens: u32,
    pub stop_tokens: Vec<u32>,
    pub stop_strings: Vec<String>,
    pub logprobs: Option<u32>,
    pub grammar: Option<Arc<Compiled>>,
}

impl Settings {
    /// The library's request for a prompt.
    pub fn request<'a>(&'a self, prompt: &'a [u32], seed: u64) -> Request<'a> {
        Request {
            sampling: SamplingParams { seed, ..self.sampling.clone() },
            max_tokens: self.max_tokens,
            stop_tokens: &self.stop_tokens,
            stop_strings: &self.stop_strings,
            logprobs: self.logprobs,
            grammar: self.grammar.as_deref().map(|grammar| grammar as &dyn Grammar),
            ..Request::new(prompt)
        }
    }
}

/// A sequence to decode.
pub struct Job {
    pub prompt: Arc<[u32]>,
    pub settings: Arc<Settings>,
    pub seed: u64,
    /// Number of the choice within its request.
    pub choice: u32,
    /// Number of the request's choices.
    pub choices: u32,
    pub outputs: mpsc::Sender<Output>,
    /// The job's place. The decoding thread drops it when the sequence has ended.
    pub _place: OwnedSemaphorePermit,
}

/// What a sequence has produced.
#[derive(Debug)]
pub enum Output {
    /// A token.
    Token { choice: u32, token: Token },
    /// The end.
    Finished {
        choice: u32,
        reason: FinishReason,
        /// Text that no token returned.
        rest: String,
        /// Number of generated tokens.
        tokens: u32,
        /// Number of prompt tokens that were in the cache.
        reused: u32,
        /// Full pages of the prompt that were not in the cache.
        missed: MissedPages,
    },
    /// The end by an error.
    Failed(ApiError),
}

/// Message to the decoding thread.
pub enum Command {
    /// Decode a sequence.
    Add(Box<Job>),
    /// Return; what still runs is lost.
    Stop,
}

/// Entrance of the queue.
pub struct Queue {
    places: Arc<Semaphore>,
    /// Number of places.
    total: u32,
    slots: u32,
    commands: mpsc::Sender<Command>,
    /// Mean duration of a sequence in microseconds, of the latest ones, without the wait for a slot.
    mean: AtomicU64,
}

impl Queue {
    /// A queue for `slots` sequences that run and `waiting` that wait; and its other end.
    pub fn new(slots: u32, waiting: u32) -> (Queue, mpsc::Receiver<Command>) {
        let total = slots + waiting;
        // One more, for the command to stop.
        let (commands, receiver) = mpsc::channel(total as usize + 1);
        let places = Arc::new(Semaphore::new(total as usize));
        (Queue { places, total, slots, commands, mean: AtomicU64::new(0) }, receiver)
    }

    /// Largest number of sequences of a request.
    pub fn largest_request(&self) -> u32 {
        self.total
    }

    /// Number of sequences that run or wait.
    pub fn sequences(&self) -> u32 {
        self.total - self.places.available_permits() as u32
    }

    /// Reserves places for a request's sequences.
    ///
    /// # Errors
    /// If there are too few: 429, with a guess when there will be more.
    pub fn reserve(&self, count: u32) -> Result<OwnedSemaphorePermit, ApiError> {
        Arc::clone(&self.places).try_acquire_many_owned(count).map_err(|_| {
            let message = format!(
                "the queue is full: {} sequences run or wait, and there is room for {}; try again later",
                self.sequences(),
                self.total
            );
            ApiError::new(StatusCode::TOO_MANY_REQUESTS, "queue_full", message).with_retry_after(self.wait())
        })
    }

    /// Seconds until a sequence has probably ended.
    fn wait(&self) -> u64 {
        let mean = Duration::from_micros(self.mean.load(Ordering::Relaxed));
        (mean / self.slots.max(1)).as_secs().clamp(1, 60)
    }

    /// Adds the duration of a sequence, without its wait for a slot, to the mean.
    pub fn sequence_took(&self, duration: Duration) {
        let mean = self.mean.load(Ordering::Relaxed);
        let duration = duration.as_micros() as u64;
        let next = if mean == 0 { duration } else { mean - mean / 8 + duration / 8 };
        self.mean.store(next, Ordering::Relaxed);
    }

    /// Gives a job to the decoding thread.
    ///
    /// # Errors
    /// If that thread has ended.
    pub fn add(&self, job: Job) -> Result<(), ApiError> {
        self.commands
            .try_send(Command::Add(Box::new(job)))
            .map_err(|_| ApiError::unavailable("engine_stopped", "the engine has stopped"))
    }

    /// Has the decoding thread return.
    pub fn stop(&self) {
        // If the channel is closed, the thread has returned already.
        let _ = self.commands.try_send(Command::Stop);
    }
}
