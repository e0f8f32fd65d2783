//! What a server is started with.

#[cfg(unix)]
use std::path::PathBuf;
use std::time::Duration;

use bespoke::speculation::Speculation;

use crate::Keys;

/// Options of a server.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where the server listens.
    pub listen: Listen,
    /// Keys of which a request must have one; without any, requests need none.
    pub keys: Keys,
    /// Origins whose pages may read answers (CORS), such as `https://chat.example`; `*` for all. None by default.
    pub origins: Vec<String>,
    /// Host names for which requests are answered besides `localhost` and loopback addresses, such as `chat.example`. A server
    /// on a loopback address answers for no others; elsewhere none means all.
    pub hosts: Vec<String>,
    /// Number of sequences that may wait for a slot; further ones are refused (429).
    pub queue: u32,
    /// Whether and how tokens are drafted, if the engine has verify steps.
    pub speculation: Speculation,
    /// Largest body of a request, in bytes.
    pub body_bytes: usize,
    /// Time in which a body must have arrived.
    pub body_timeout: Duration,
    /// Time in which the head of a connection's first request must have arrived. Later ones have a minute.
    pub head_timeout: Duration,
    /// Largest number of connections; others wait in the system's queue.
    pub connections: usize,
    /// Largest number of tokens that a request may ask for, for each choice; none for what the context allows.
    pub max_tokens: Option<u32>,
    /// Time after which a request is ended.
    pub timeout: Duration,
    /// Time that requests have to end by themselves after [`Handle::shut_down`](crate::Handle::shut_down).
    pub grace: Duration,
    /// Number of tokens of a stream that may wait for a slow reader, for each request; then the request is ended.
    pub backlog: usize,
    /// Time between two comments that keep a stream's connection open while there are no tokens.
    pub keep_alive: Duration,
    /// Whether prompts and answers are logged.
    pub log_text: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            listen: Listen::Tcp { host: "127.0.0.1".to_owned(), port: 8080 },
            keys: Keys::default(),
            origins: Vec::new(),
            hosts: Vec::new(),
            queue: 64,
            speculation: Speculation::default(),
            body_bytes: 4 << 20,
            body_timeout: Duration::from_secs(30),
            head_timeout: Duration::from_secs(10),
            connections: 1024,
            max_tokens: None,
            timeout: Duration::from_secs(600),
            grace: Duration::from_secs(30),
            backlog: 4096,
            keep_alive: Duration::from_secs(15),
            log_text: false,
        }
    }
}

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listen {
    /// A TCP port.
    Tcp {
        /// Host name or address.
        host: String,
        /// Port; 0 for a free one.
        port: u16,
    },
    /// A UNIX socket, on systems that have them. A file of an earlier server is replaced if nothing answers there.
    #[cfg(unix)]
    Unix(PathBuf),
}
