//! OpenAI-compatible HTTP server over the library's scheduler of sequences.
//!
//! ```text
//! connections ──► router ──► api ──► answers ──► queue ──► decode ──► bespoke::scheduler
//!  (sockets)      (keys)    (JSON)      ▲    (jobs in, outputs back)     (any `Steps`)
//!                                       └───────────────┘
//! ```
//!
//! [`Server::start`] listens, and answers that the model is being loaded (503). [`Server::run`] gives it the model, and
//! decodes on the calling thread, which alone owns the scheduler; the HTTP side has threads of its own. A request becomes
//! one job for each of its choices. Jobs have places, which bound their number; outputs come back through a channel that is
//! bounded for each request, and the decoding thread never waits for it. A request that ends early, because its client has
//! gone or its time is over, drops its end of the channel; the next step of the engine cancels its sequences.
//!
//! | module | contents |
//! | --- | --- |
//! | `options`, `keys`, `model` | what a server is started with |
//! | `app` | what all requests share |
//! | `server`, `phase` | loading, serving, draining, ending |
//! | `connections` | the socket, HTTP/1.1 on each connection, limits of time |
//! | `router`, `cors`, `hosts` | paths, keys, pages of other origins, host names, the log |
//! | `body`, `fields`, `error` | a request's JSON within limits, and errors in OpenAI's form |
//! | `api` | the endpoints |
//! | `answers` | parts of an answer from the outputs of its sequences |
//! | `calls` | calls of tools in the text of an answer |
//! | `grammar` | languages that answers must belong to |
//! | `queue`, `decode` | jobs and outputs; the loop of the decoding thread |
//! | `metrics` | counts and durations for Prometheus |
//! | `random` | ids and seeds |
//!
//! The package knows no kernels, devices and files: the caller loads the model.

mod answers;
mod api;
mod app;
mod body;
mod calls;
mod connections;
mod cors;
mod decode;
mod error;
mod fields;
mod grammar;
mod hosts;
mod keys;
mod metrics;
mod model;
mod options;
mod phase;
mod queue;
mod random;
mod router;
mod server;

pub use decode::RunError;
pub use keys::Keys;
pub use model::{ChatTemplate, Model};
pub use options::{Listen, Options};
pub use server::{Handle, RequestMemory, Server, StartError};
