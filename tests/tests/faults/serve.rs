//! A device that fails under a server with open streams: each stream ends with an error that says what failed, and the next
//! request has the right answer; or the server ends with the error.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bespoke::engine::{Engine, EngineOptions, SamplingParams, Slots};
use bespoke::tokenizer::Tokenizer;
use bespoke_kernels::shape::ModelShape;
use bespoke_serve::{Handle, Listen, Model, Options, RunError, Server};
use serde_json::Value;

use super::device::{Fault, Faults, Manner};
use super::emulator;
use super::hooked::{Hooked, Operation};

const STREAM: &str = r#"{"prompt": "The old fox", "max_tokens": 200, "ignore_eos": true, "stream": true}"#;
const SHORT: &str = r#"{"prompt": "The old fox lives", "max_tokens": 6}"#;

/// A server of the demo model on a device whose calls can fail.
struct Running {
    address: String,
    handle: Handle,
    faults: Arc<Faults>,
    thread: Option<JoinHandle<Result<(), RunError>>>,
}

impl Running {
    fn start() -> Running {
        let listen = Listen::Tcp { host: "127.0.0.1".to_owned(), port: 0 };
        let server = Server::start(Options { listen, ..Options::default() }).unwrap();
        let address = server.address().trim_start_matches("http://").to_owned();
        let (handle, faults) = (server.handle(), Arc::new(Faults::default()));
        let of_engine = faults.clone();
        let thread = std::thread::spawn(move || {
            let gguf = bespoke_demo::model().unwrap();
            let shape = ModelShape::from_gguf(&gguf, "demo").unwrap();
            let step_limit = Some(Duration::from_millis(50));
            let (context, prefill, parallel) = (Some(256), true, 4);
            let options =
                EngineOptions { context, prefill, parallel, step_limit, ..EngineOptions::default() };
            let device = Box::new(Hooked::over(emulator(), of_engine));
            let mut engine = Engine::load(device, &gguf, &shape, &options, &|_, _| ()).unwrap();
            let model = Model {
                names: vec!["demo".to_owned()],
                tokenizer: Arc::new(Tokenizer::from_gguf(&gguf).unwrap()),
                chat: None,
                normalise: str::to_owned,
                sampling: SamplingParams::default(),
                fixed_seed: true,
                facts: Value::Null,
            };
            server.run(model, Slots::new(&mut engine)?)
        });
        let running = Running { address, handle, faults, thread: Some(thread) };
        let start = Instant::now();
        while !running.send("GET", "/health", "").unwrap().starts_with("HTTP/1.1 200") {
            assert!(start.elapsed() < Duration::from_secs(60), "the model is not loaded");
            std::thread::sleep(Duration::from_millis(10));
        }
        running
    }

    fn connect(&self, method: &str, path: &str, body: &str) -> std::io::Result<BufReader<TcpStream>> {
        let mut stream = TcpStream::connect(&self.address)?;
        stream.set_read_timeout(Some(Duration::from_secs(120)))?;
        let length = body.len();
        let head = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n");
        let kind = "Content-Type: application/json";
        write!(stream, "{head}{kind}\r\nContent-Length: {length}\r\n\r\n{body}")?;
        Ok(BufReader::new(stream))
    }

    /// Head and body of an answer.
    fn send(&self, method: &str, path: &str, body: &str) -> std::io::Result<String> {
        let mut text = String::new();
        self.connect(method, path, body)?.read_to_string(&mut text)?;
        Ok(text)
    }

    /// The text of a short answer.
    fn answer(&self) -> String {
        let reply = self.send("POST", "/v1/completions", SHORT).unwrap();
        assert!(reply.starts_with("HTTP/1.1 200"), "{reply}");
        let body: Value = serde_json::from_str(reply.split_once("\r\n\r\n").unwrap().1).unwrap();
        body["choices"][0]["text"].as_str().unwrap().to_owned()
    }

    /// Opens streams, has the device fail in one of the next steps, and returns what the streams get then.
    fn fail_with_open_streams(&self, manner: Manner) -> Vec<String> {
        let mut streams: Vec<_> =
            (0..3).map(|_| self.connect("POST", "/v1/completions", STREAM).unwrap()).collect();
        for stream in &mut streams {
            let mut line = String::new();
            while !line.contains("\"text\":\"") {
                line.clear();
                assert_ne!(stream.read_line(&mut line).unwrap(), 0, "no token arrived");
            }
        }
        self.faults.arm(Some(Fault { operation: Operation::Replay, number: 2, manner }));
        let rest = |mut stream: BufReader<TcpStream>| {
            let mut text = String::new();
            stream.read_to_string(&mut text).unwrap();
            text
        };
        streams.into_iter().map(rest).collect()
    }

    fn metric(&self, name: &str) -> f64 {
        let text = self.send("GET", "/metrics", "").unwrap();
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        value.unwrap_or_else(|| panic!("{name}: {text}")).parse().unwrap()
    }

    fn ended(mut self) -> Result<(), RunError> {
        self.thread.take().unwrap().join().unwrap()
    }
}

fn assert_lost(streams: &[String], reason: &str) {
    for stream in streams {
        let last = stream.lines().rfind(|line| line.starts_with("data: ")).unwrap_or_default();
        assert!(last.contains(r#""code":"engine_failed""#) && last.contains(reason), "{stream}");
        assert!(!stream.contains("[DONE]"), "{stream}");
    }
}

#[test]
fn open_streams_are_told_and_the_next_answer_is_right() {
    let server = Running::start();
    let expected = server.answer();
    for (failures, manner) in (1..).zip([Manner::Refused, Manner::Half, Manner::Done]) {
        let streams = server.fail_with_open_streams(manner);
        assert_lost(&streams, "injected failed while Replay 2");
        server.faults.arm(None);
        assert_eq!(server.answer(), expected, "after {manner:?}");
        assert_eq!(server.metric("bespoke_engine_failures_total"), f64::from(failures));
        assert_eq!(server.metric("bespoke_pages{state=\"used\"}"), 0.0, "after {manner:?}");
    }
    server.handle.shut_down();
    server.ended().unwrap();
}

#[test]
fn a_device_that_stays_broken_or_hangs_ends_the_server_with_the_reason() {
    for (manner, reason) in [(Manner::Later, "injected failed"), (Manner::Hangs, "a kernel hangs")] {
        let server = Running::start();
        assert_lost(&server.fail_with_open_streams(manner), reason);
        // The server tries once more, and then ends. Its socket may be closed already.
        if let Ok(reply) = server.send("POST", "/v1/completions", SHORT) {
            assert!(!reply.starts_with("HTTP/1.1 200"), "{manner:?}: {reply}");
        }
        let error = server.ended().unwrap_err().to_string();
        let abandoned = "is not used any more";
        assert!(error.contains(reason) || error.contains(abandoned), "{manner:?}: {error}");
    }
}
