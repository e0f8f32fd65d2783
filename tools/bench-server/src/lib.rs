//! Load generator for OpenAI-compatible servers.
//!
//! [`measure()`] sends streamed completions from a number of concurrent clients and reports throughput, time to first token
//! and time between tokens. [`soak`] sends mixed traffic to `bespoke serve`, compares every answer with what is expected,
//! and reads the server's metrics at the end to find stuck requests and leaks.
//!
//! | module | contents |
//! | --- | --- |
//! | `client`, `events` | HTTP requests, server-sent events |
//! | `facts` | what the server says about its model |
//! | `words` | prompts of a given number of tokens |
//! | `measure`, `percentiles` | latency and throughput |
//! | `traffic`, `exchange` | the kinds of mixed traffic; one request and the check of its answer |
//! | `mixed`, `server_metrics` | a run of mixed traffic, and the server's metrics after it |
//! | `text` | results as text |

mod client;
mod events;
mod exchange;
mod facts;
mod measure;
mod mixed;
mod percentiles;
mod server_metrics;
pub mod text;
mod traffic;
mod words;

use std::io;

pub use client::{Client, Failure, UrlError};
pub use measure::{Level, Measurements, Workload, measure};
pub use mixed::{KindReport, Memory, Report, Soak, soak};
pub use percentiles::Percentiles;

/// Threads of the load generator.
const THREADS: usize = 2;

/// Error of a measurement or a run of mixed traffic.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The threads of the load generator cannot be started.
    #[error("cannot start the load generator's threads: {0}")]
    Threads(io::Error),
    /// A request that the run depends on got no answer.
    #[error("{0}")]
    Request(#[from] Failure),
    /// The server refused a request that the run depends on.
    #[error("{path} answered {status}: {body}")]
    Refused {
        /// Path of the request.
        path: String,
        /// Status of the answer.
        status: u16,
        /// Body of the answer, or its start.
        body: String,
    },
    /// The server has no metrics of `bespoke serve`.
    #[error("/metrics has no `{0}`: mixed traffic needs a `bespoke serve`")]
    Metrics(&'static str),
    /// The prompt and the answer do not fit into the context.
    #[error(
        "{prompt} prompt tokens and {answer} answer tokens do not fit into the server's context of {context}"
    )]
    Context {
        /// Tokens of a prompt.
        prompt: u32,
        /// Tokens of an answer.
        answer: u32,
        /// Positions of the server's context.
        context: u32,
    },
}

/// Runs a future on threads of its own.
fn block_on<T>(work: impl Future<Output = Result<T, LoadError>>) -> Result<T, LoadError> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(THREADS)
        .thread_name("load")
        .enable_io()
        .enable_time()
        .build()
        .map_err(LoadError::Threads)?;
    let outcome = runtime.block_on(work);
    runtime.shutdown_background();
    outcome
}
