//! Servers for tests, a model that needs no engine, and a client that does only what it is told.

#![allow(dead_code, unused_imports, reason = "each test uses a part")]

mod client;
mod reciter;

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bespoke::engine::SamplingParams;
use bespoke::tokenizer::Tokenizer;
use bespoke_chat::{Inputs, Template};
use bespoke_serve::{ChatTemplate, Handle, Listen, Model, Options, RunError, Server};
pub use client::{Reply, Stream, send};
pub use reciter::{Failure, Pace, Reciter, Sizes, reciter};

/// Text that the reciter repeats.
pub const TEXT: &str = "The old fox lives in the tower. It wants a loaf of bread. ";

pub fn tokenizer() -> Tokenizer {
    Tokenizer::from_gguf(&bespoke_demo::model().unwrap()).unwrap()
}

/// The demo model's vocabulary under the name `demo`, and `other/name`.
pub fn model() -> Model {
    model_with(bespoke_demo::CHAT_TEMPLATE)
}

/// The same with another chat template.
pub fn model_with(template: &str) -> Model {
    let template = Template::parse(template).unwrap();
    Model {
        names: vec!["demo".to_owned(), "other/name".to_owned()],
        tokenizer: Arc::new(tokenizer()),
        chat: Some(ChatTemplate::new(template, Inputs::default(), "a test's template")),
        normalise: str::to_owned,
        sampling: SamplingParams::default(),
        fixed_seed: true,
        facts: serde_json::json!({"test": true}),
    }
}

/// Options for a free port, with short times.
pub fn options() -> Options {
    Options {
        listen: Listen::Tcp { host: "127.0.0.1".to_owned(), port: 0 },
        queue: 4,
        body_bytes: 64 << 10,
        timeout: Duration::from_secs(20),
        grace: Duration::from_secs(20),
        ..Options::default()
    }
}

/// A POST with a JSON body.
pub fn client_post(path: &str, body: &str) -> String {
    client::post(path, "", body)
}

/// A server that runs in a thread.
pub struct Running {
    pub address: String,
    pub handle: Handle,
    pub pace: Pace,
    thread: Option<JoinHandle<Result<(), RunError>>>,
}

/// Starts a server with the reciter.
pub fn start(options: Options, sizes: &Sizes) -> Running {
    let server = Server::start(options).unwrap();
    let (steps, pace) = reciter(&tokenizer(), sizes);
    serve(server, model(), steps, pace)
}

/// Serves the reciter with a server that listens.
pub fn serve(server: Server, model: Model, steps: Reciter, pace: Pace) -> Running {
    let (address, handle) = (server.address().to_owned(), server.handle());
    let thread = std::thread::spawn(move || server.run(model, steps));
    let running = Running { address, handle, pace, thread: Some(thread) };
    running.wait_for("the server serves", || running.get("/health").status == 200);
    running
}

impl Running {
    pub fn get(&self, path: &str) -> Reply {
        send(&self.address, &format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"))
    }

    pub fn post(&self, path: &str, body: &str) -> Reply {
        send(&self.address, &client::post(path, "", body))
    }

    /// Sends a request for a stream, and returns the stream once its head has arrived.
    pub fn stream(&self, path: &str, body: &str) -> Stream {
        Stream::open(&self.address, &client::post(path, "", body))
    }

    /// A metric's value; 0 if it is not there.
    pub fn metric(&self, name: &str) -> f64 {
        let text = self.get("/metrics").body;
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok());
        value.unwrap_or(0.0)
    }

    /// Waits until a metric has a value.
    pub fn wait_for_metric(&self, name: &str, value: f64) {
        self.wait_for(&format!("{name} is {value}"), || self.metric(name) == value);
    }

    pub fn wait_for(&self, what: &str, is: impl Fn() -> bool) {
        let start = Instant::now();
        while !is() {
            assert!(start.elapsed() < Duration::from_secs(20), "waited for this in vain: {what}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Shuts the server down, and returns how it ended.
    pub fn end(mut self) -> Result<(), RunError> {
        self.handle.shut_down();
        self.ended()
    }

    /// Waits until the server has ended.
    pub fn ended(&mut self) -> Result<(), RunError> {
        self.thread.take().unwrap().join().unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.pace.open();
        self.handle.shut_down();
    }
}
