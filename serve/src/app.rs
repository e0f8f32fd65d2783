//! What all requests share.

use std::net::IpAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bespoke::scheduler::Limits;
use tokio::sync::Semaphore;

use crate::error::ApiError;
use crate::grammar::{Compiled, Grammars, Language};
use crate::hosts::Hosts;
use crate::metrics::Metrics;
use crate::phase::{Phase, Phases};
use crate::queue::Queue;
use crate::{Model, Options};

/// Memory for bodies, in multiples of the largest one.
const BODIES: usize = 8;
/// Bytes that a body counts at least, so that the number of bodies is bounded, too.
pub const MIN_BODY: usize = 4 << 10;

/// State of a server.
pub struct App {
    pub options: Options,
    pub metrics: Metrics,
    pub phases: Phases,
    /// Host names for which requests are answered.
    pub hosts: Hosts,
    /// Bytes of memory that bodies may still take.
    pub bodies: Arc<Semaphore>,
    /// Seconds since 1970 when the server started.
    pub created: u64,
    ready: OnceLock<Ready>,
}

/// The loaded model, its limits and the queue. Until they are there, requests get 503.
pub struct Ready {
    pub model: Model,
    pub limits: Limits,
    pub queue: Queue,
    /// Grammars for the model's vocabulary, once a request needs one.
    grammars: OnceLock<Result<Grammars, String>>,
}

impl Ready {
    /// A model with its queue.
    pub fn new(model: Model, limits: Limits, queue: Queue) -> Ready {
        Ready { model, limits, queue, grammars: OnceLock::new() }
    }

    /// Compiles the language that a field asks for.
    ///
    /// # Errors
    /// If the language is not one (400).
    pub fn compile(&self, field: &str, language: &Language) -> Result<Arc<Compiled>, ApiError> {
        let grammars = self.grammars.get_or_init(|| Grammars::new(Arc::clone(&self.model.tokenizer)));
        let grammars = grammars.as_ref().map_err(|error| {
            ApiError::internal(format!("the vocabulary cannot be used with grammars: {error}"))
        })?;
        let compiled = grammars.compile(language);
        compiled.map(Arc::new).map_err(|error| ApiError::field(field, format!("`{field}`: {error}")))
    }
}

impl App {
    /// State of a server that loads its model and listens on an address; none for a UNIX socket.
    pub fn new(options: Options, address: Option<IpAddr>) -> App {
        let bytes = options.body_bytes.max(MIN_BODY).saturating_mul(BODIES).min(Semaphore::MAX_PERMITS);
        App {
            metrics: Metrics::new(),
            phases: Phases::new(),
            hosts: Hosts::new(address, &options.hosts),
            bodies: Arc::new(Semaphore::new(bytes)),
            created: seconds(),
            ready: OnceLock::new(),
            options,
        }
    }

    /// Begins to answer requests.
    pub fn serve(&self, ready: Ready) {
        // A server serves one model.
        let _ = self.ready.set(ready);
        self.phases.advance(Phase::Serving);
    }

    /// The model and its queue, once they are there.
    pub fn loaded(&self) -> Option<&Ready> {
        self.ready.get()
    }

    /// The model and its queue.
    ///
    /// # Errors
    /// If the server loads the model or is about to end (503).
    pub fn ready(&self) -> Result<&Ready, ApiError> {
        match (self.phases.now(), self.ready.get()) {
            (Phase::Serving, Some(ready)) => Ok(ready),
            (Phase::Draining | Phase::Ending, _) => Err(shutting_down()),
            _ => Err(ApiError::unavailable("loading", "the model is being loaded").with_retry_after(1)),
        }
    }
}

/// The error of requests that a server does not accept or finish because it ends.
pub fn shutting_down() -> ApiError {
    ApiError::unavailable("shutting_down", "the server is shutting down")
}

/// The error of requests whose time is over.
pub fn timed_out(timeout: Duration) -> ApiError {
    ApiError::timed_out(format!("the request took longer than {} s", timeout.as_secs_f64()))
}

/// Seconds since 1970.
#[expect(clippy::disallowed_methods, reason = "a date for clients; no limit of time depends on it")]
pub fn seconds() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.as_ref().map_or(0, Duration::as_secs)
}
