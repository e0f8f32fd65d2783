//! A server's life: it listens, loads, serves, and ends.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bespoke::scheduler::{Scheduler, Steps};
use bespoke::speculation::Speculation;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;

use crate::app::{App, Ready};
use crate::connections::{self, Socket};
use crate::decode::RunError;
use crate::grammar::GRAMMAR_BYTES;
use crate::hosts::is_loopback;
use crate::phase::Phase;
use crate::queue::Queue;
use crate::router::router;
use crate::{Listen, Model, Options, decode};

/// Threads that read requests and write answers.
const THREADS: usize = 2;
/// Threads that parse requests, render templates and encode prompts.
const WORKERS: usize = 4;

/// A server that listens. Until [`Server::run`] it answers that the model is being loaded (503).
pub struct Server {
    app: Arc<App>,
    runtime: Runtime,
    connections: JoinHandle<()>,
    address: String,
    is_reachable: bool,
}

/// Error of starting a server.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The socket cannot be opened.
    #[error("cannot listen on {place}: {source}")]
    Listen {
        /// Address and port, or path.
        place: String,
        /// Error of the system.
        source: io::Error,
    },
    /// An origin whose pages may use the server is not one.
    #[error("{0}")]
    Origin(String),
    /// Threads cannot be started.
    #[error("cannot start the server's threads: {0}")]
    Threads(io::Error),
}

/// Largest memory that requests hold on the host at the same time. Log-probabilities come on top.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestMemory {
    /// Bytes of bodies, tokens and tables for drafts.
    pub tokens: u64,
    /// Bytes of grammars, if every sequence has one of the largest size.
    pub grammars: u64,
}

/// Ends a server from elsewhere, such as a signal's handler.
#[derive(Clone)]
pub struct Handle {
    app: Arc<App>,
}

impl Handle {
    /// Ends the server: it accepts no further requests, finishes those that run within the grace time, and ends the
    /// others with an error.
    pub fn shut_down(&self) {
        self.app.phases.advance(Phase::Draining);
    }

    /// Number of sequences that run or wait.
    pub fn sequences(&self) -> u32 {
        self.app.loaded().map_or(0, |ready| ready.queue.sequences())
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle").field("phase", &self.app.phases.now()).finish()
    }
}

impl Server {
    /// Opens the socket, and starts the threads that answer requests.
    ///
    /// # Errors
    /// If the address cannot be listened on, an origin is not one, or threads cannot be started.
    pub fn start(options: Options) -> Result<Server, StartError> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(THREADS)
            .max_blocking_threads(WORKERS)
            .thread_name("http")
            .enable_io()
            .enable_time()
            .build()
            .map_err(StartError::Threads)?;
        let socket = runtime.block_on(Socket::open(&options.listen)).map_err(|source| {
            let place = match &options.listen {
                Listen::Tcp { host, port } => format!("{host}:{port}"),
                #[cfg(unix)]
                Listen::Unix(path) => path.display().to_string(),
            };
            StartError::Listen { place, source }
        })?;
        let (address, ip) = (socket.address(), socket.ip());
        let app = Arc::new(App::new(options, ip));
        let router = router(&app).map_err(StartError::Origin)?;
        let connections = runtime.spawn(connections::serve(socket, Arc::clone(&app), router));
        let is_reachable = ip.is_some_and(|ip| !is_loopback(ip));
        Ok(Server { app, runtime, connections, address, is_reachable })
    }

    /// Where clients find the server: a URL, or `unix:` and a path.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Whether other machines may reach the server, by the address that it is bound to.
    pub fn is_reachable(&self) -> bool {
        self.is_reachable
    }

    /// Largest memory of requests on the host, for a model with a context of `context` positions and `slots` slots.
    pub fn request_memory(&self, slots: u32, context: u32) -> RequestMemory {
        let options = &self.app.options;
        let sequences = u64::from(slots) + u64::from(options.queue);
        // A token is held by the job, by the scheduler and by its answer, with its text. With drafts it also ends three
        // n-grams, each an entry of a hash table of up to 39 bytes.
        let Speculation { most, lookup, .. } = options.speculation;
        let token = if lookup && most > 0 { 32 + 128 } else { 32 };
        // A token that waits for its reader has up to 128 bytes.
        let tokens = u64::from(context) * token + options.backlog as u64 * 128;
        RequestMemory {
            tokens: sequences * tokens + self.app.bodies.available_permits() as u64,
            grammars: sequences * GRAMMAR_BYTES,
        }
    }

    /// What ends the server.
    pub fn handle(&self) -> Handle {
        Handle { app: Arc::clone(&self.app) }
    }

    /// Answers requests until [`Handle::shut_down`]. The calling thread decodes.
    ///
    /// # Errors
    /// If the engine fails and does not recover, or the decoding thread panics. Requests that run are ended with an error.
    pub fn run<S: Steps>(self, model: Model, steps: S) -> Result<(), RunError> {
        self.run_with_draft_model(model, steps, None)
    }

    /// As [`Server::run`], with the steps of a draft model
    /// ([`Scheduler::with_draft_model`](bespoke::scheduler::Scheduler::with_draft_model)).
    ///
    /// # Errors
    /// As [`Server::run`].
    pub fn run_with_draft_model<S: Steps>(
        self,
        model: Model,
        steps: S,
        draft_model: Option<Box<dyn Steps + '_>>,
    ) -> Result<(), RunError> {
        let Server { app, runtime, connections, .. } = self;
        let limits = steps.limits().clone();
        let tokenizer = Arc::clone(&model.tokenizer);
        let mut scheduler = Scheduler::new(steps, Some(&tokenizer)).with_speculation(app.options.speculation);
        if let Some(steps) = draft_model {
            scheduler = scheduler.with_draft_model(steps);
        }
        let (queue, commands) = Queue::new(scheduler.slots(), app.options.queue);
        app.serve(Ready::new(model, limits, queue));
        let Some(ready) = app.loaded() else { return Ok(()) };
        // Without connections there is nothing left to decode.
        let stopping = Arc::clone(&app);
        let stopper = runtime.spawn(async move {
            let _ = connections.await;
            if let Some(ready) = stopping.loaded() {
                ready.queue.stop();
            }
        });
        let outcome = decode::run(&mut scheduler, commands, &ready.queue, &app.metrics);
        // After an error, connections are still open.
        app.phases.advance(Phase::Ending);
        let _ = runtime.block_on(stopper);
        runtime.shutdown_timeout(Duration::from_secs(1));
        tracing::info!("the server has ended");
        outcome
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("address", &self.address).finish_non_exhaustive()
    }
}
