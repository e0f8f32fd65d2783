//! What the log has of prompts and answers.

#![cfg(unix)]

mod support;

use std::fmt;
use std::sync::Mutex;

use bespoke_serve::Options;
use support::{Sizes, options, start};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// Lines of all packages, of all levels.
static LINES: Mutex<Vec<String>> = Mutex::new(Vec::new());

struct Collector;

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0 += &format!("{field}={value:?} ");
    }
}

impl Subscriber for Collector {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }
    fn new_span(&self, attributes: &Attributes<'_>) -> Id {
        let mut line = Line(String::new());
        attributes.record(&mut line);
        LINES.lock().unwrap().push(line.0);
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, values: &Record<'_>) {
        let mut line = Line(String::new());
        values.record(&mut line);
        LINES.lock().unwrap().push(line.0);
    }
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, event: &Event<'_>) {
        let mut line = Line(String::new());
        event.record(&mut line);
        LINES.lock().unwrap().push(line.0);
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// The log of a server that gets requests of every kind with the word `zebra`.
fn log(log_text: bool) -> Vec<String> {
    LINES.lock().unwrap().clear();
    let server = start(Options { log_text, ..options() }, &Sizes::default());
    for (path, body, status) in [
        ("/v1/completions", r#"{"prompt": "zebra\nfaked line", "max_tokens": 3}"#, 200),
        ("/v1/completions", r#"{"prompt": "zebra", "max_tokens": 3, "stream": true}"#, 200),
        (
            "/v1/completions",
            r#"{"prompt": "zebra", "stop": "zebra", "structured_outputs": {"regex": "zebra("}}"#,
            400,
        ),
        ("/v1/completions", r#"{"prompt": "zebra", "zebra": 1}"#, 400),
        ("/v1/completions", r#"{"prompt": "zebra"#, 400),
        (
            "/v1/chat/completions",
            r#"{"messages": [{"role": "user", "content": "zebra"}], "max_tokens": 3}"#,
            200,
        ),
        ("/v1/chat/completions", r#"{"messages": [{"role": "zebra", "content": "zebra"}]}"#, 400),
        ("/v1/chat/completions", r#"{"messages": "zebra"}"#, 400),
        ("/v1/responses", r#"{"input": "zebra", "max_output_tokens": 3}"#, 200),
        ("/v1/responses", r#"{"input": "zebra", "max_output_tokens": 3, "stream": true}"#, 200),
        ("/tokenize", r#"{"content": "zebra"}"#, 200),
    ] {
        let reply = server.post(path, body);
        assert_eq!(reply.status, status, "{body}: {}", reply.body);
    }
    server.end().unwrap();
    std::mem::take(&mut LINES.lock().unwrap())
}

#[test]
fn texts_are_in_the_log_only_if_asked_for() {
    tracing::subscriber::set_global_default(Collector).unwrap();
    let lines = log(false);
    assert!(lines.iter().any(|line| line.contains("prompt tokens")), "{lines:?}");
    let texts: Vec<&String> =
        lines.iter().filter(|line| line.contains("zebra") || line.contains("The old")).collect();
    assert!(texts.is_empty(), "{texts:?}");
    // The field is there, but not a name that the client chose.
    for end in ["400 Bad Request: invalid_value: structured_outputs", "400 Bad Request: unknown_field"] {
        assert!(lines.iter().any(|line| line.trim_end().ends_with(end)), "{end}: {lines:?}");
    }

    let lines = log(true);
    let has = |parts: &[&str]| lines.iter().any(|line| parts.iter().all(|part| line.contains(part)));
    // With the request's id, and on one line.
    assert!(has(&["cmpl-", ": prompt: \"zebra\\nfaked line\""]), "{lines:?}");
    assert!(has(&["cmpl-", ": answer 0: \"The old\""]), "{lines:?}");
    assert!(has(&["cmpl-", ": answer 0, a part: \"The\""]), "{lines:?}");
    assert!(has(&["unknown_field: \"zebra\""]), "{lines:?}");
    assert!(has(&["chatcmpl-", ": prompt: \"zebra\""]), "{lines:?}");
    assert_eq!(lines.iter().filter(|line| line.contains("resp_") && line.contains(": answer: ")).count(), 2);
}
