//! One request of mixed traffic, and the check of its answer.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::time::{sleep, timeout};

use crate::client::{Client, Events, Failure, Reply, whole};

/// A request with the answer that it must get.
#[derive(Clone, Debug)]
pub struct Exchange {
    pub method: &'static str,
    pub path: &'static str,
    pub content_type: &'static str,
    pub body: String,
    pub reading: Reading,
    pub expected: Expected,
}

/// How the client reads the answer.
#[derive(Clone, Copy, Debug)]
pub enum Reading {
    /// All of it, as fast as it comes.
    Whole,
    /// Server-sent events, with a pause after each.
    Events { pause: Duration },
    /// A number of events; then it closes the connection.
    Leave { after: u32 },
    /// Nothing: it closes the connection after a time.
    LeaveBefore { after: Duration },
}

/// What an answer must be.
#[derive(Clone, Debug, PartialEq)]
pub enum Expected {
    /// Status 200. Only requests that need no place in the queue.
    Success,
    /// Status 200 with a number of choices; or the queue is full.
    Choices(usize),
    /// Status 200 with one choice, whose text is the same each time for the same key; or the queue is full.
    Same(String),
    /// Status 200 with JSON as the choice's text, unless it was cut off; or the queue is full.
    Json,
    /// A stream that ends as streams must; or the queue is full.
    Stream,
    /// An error.
    Error(u16, &'static str),
}

/// What became of a request that met what is expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The expected answer.
    Answered,
    /// The queue was full; the server asks to wait for this many seconds.
    Refused(u64),
    /// The client went away, as planned.
    Left,
    /// The server ended a stream whose client read too slowly.
    SlowReader,
}

/// First answers to requests whose answers must always be the same.
#[derive(Debug, Default)]
pub struct FirstAnswers(Mutex<HashMap<String, String>>);

impl FirstAnswers {
    fn check(&self, key: &str, text: &str) -> Result<(), String> {
        let mut answers = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        match answers.get(key) {
            Some(first) if first != text => {
                Err(format!("the answer to `{key}` is `{text}`, and was `{first}` before"))
            }
            Some(_) => Ok(()),
            None => {
                answers.insert(key.to_owned(), text.to_owned());
                Ok(())
            }
        }
    }
}

impl Exchange {
    /// Sends the request and checks the answer.
    ///
    /// # Errors
    /// If the answer is not the expected one: what is wrong.
    pub async fn run(&self, client: &Client, first: &FirstAnswers) -> Result<Outcome, String> {
        let limit = client.limit();
        let done = timeout(limit, self.perform(client, first)).await;
        done.unwrap_or_else(|_| Err(Failure::Stuck(limit).to_string()))
    }

    async fn perform(&self, client: &Client, first: &FirstAnswers) -> Result<Outcome, String> {
        let open = client.open(self.method, self.path, self.content_type, self.body.clone());
        if let Reading::LeaveBefore { after } = self.reading {
            // The request is dropped with its connection. An answer that is there already is left unread.
            return match timeout(after, open).await {
                Ok(Err(failure)) => Err(failure.to_string()),
                Ok(Ok(_)) | Err(_) => Ok(Outcome::Left),
            };
        }
        let response = open.await.map_err(|failure| failure.to_string())?;
        if matches!(self.reading, Reading::Whole) || response.status() != 200 {
            let reply = whole(response).await.map_err(|failure| failure.to_string())?;
            return check_reply(&self.expected, &reply, first);
        }
        let (most, pause) = match self.reading {
            Reading::Leave { after } => (after, Duration::ZERO),
            Reading::Events { pause } => (u32::MAX, pause),
            _ => (u32::MAX, Duration::ZERO),
        };
        let mut events = Events::new(response);
        let mut last = String::new();
        for _ in 0..most {
            match events.next().await.map_err(|failure| failure.to_string())? {
                Some(data) => last = data,
                None => return check_end(&last, !pause.is_zero()),
            }
            if !pause.is_zero() {
                sleep(pause).await;
            }
        }
        Ok(Outcome::Left)
    }
}

/// Checks the last event of a stream.
fn check_end(last: &str, slow: bool) -> Result<Outcome, String> {
    let event: Value = serde_json::from_str(last).unwrap_or_default();
    match event["type"].as_str() {
        _ if last == "[DONE]" => Ok(Outcome::Answered),
        Some("response.completed" | "response.incomplete") => Ok(Outcome::Answered),
        _ if slow && event["error"]["code"] == "slow_reader" => Ok(Outcome::SlowReader),
        _ => Err(format!("a stream ended with `{last}`")),
    }
}

/// Checks a whole answer.
fn check_reply(expected: &Expected, reply: &Reply, first: &FirstAnswers) -> Result<Outcome, String> {
    let wrong = |what: &str| Err(format!("{what}: status {}: {}", reply.status, reply.shown()));
    let body: Value = serde_json::from_str(&reply.body).unwrap_or_default();
    let code = body["error"]["code"].as_str().unwrap_or_default();
    let generates = !matches!(expected, Expected::Success | Expected::Error(..));
    // Bodies are refused before anybody knows what they ask for.
    if reply.status == 429 && (generates && code == "queue_full" || code == "bodies_full") {
        return match reply.retry_after {
            Some(seconds) => Ok(Outcome::Refused(seconds)),
            None => wrong("429 without Retry-After"),
        };
    }
    if let Expected::Error(status, name) = expected {
        return match (reply.status, code) == (*status, *name) {
            true => Ok(Outcome::Answered),
            false => wrong(&format!("expected {status} {name}")),
        };
    }
    if reply.status != 200 {
        return wrong("expected 200");
    }
    let choices = body["choices"].as_array().map(Vec::as_slice).unwrap_or_default();
    let choice = |index: usize| choices.get(index).cloned().unwrap_or_default();
    let text = match &choice(0)["message"]["content"] {
        Value::String(text) => text.clone(),
        _ => choice(0)["text"].as_str().unwrap_or_default().to_owned(),
    };
    match expected {
        Expected::Choices(count) => {
            let ended =
                choices.iter().all(|it| matches!(it["finish_reason"].as_str(), Some("stop" | "length")));
            if choices.len() != *count || !ended {
                return wrong(&format!("expected {count} choices"));
            }
        }
        Expected::Same(key) => first.check(key, &text)?,
        Expected::Json => {
            let complete = choice(0)["finish_reason"] == "stop";
            if complete && serde_json::from_str::<Value>(&text).is_err() {
                return wrong("expected JSON as the answer");
            }
        }
        Expected::Stream => return wrong("expected a stream"),
        Expected::Success | Expected::Error(..) => {}
    }
    Ok(Outcome::Answered)
}

/// Runs an exchange, and returns how long it took.
pub async fn timed(
    exchange: &Exchange,
    client: &Client,
    first: &FirstAnswers,
) -> (Result<Outcome, String>, Duration) {
    let start = Instant::now();
    (exchange.run(client, first).await, start.elapsed())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(status: u16, body: &str) -> Reply {
        Reply { status, retry_after: None, body: body.to_owned() }
    }

    fn check(expected: &Expected, reply: &Reply) -> Result<Outcome, String> {
        check_reply(expected, reply, &FirstAnswers::default())
    }

    #[test]
    fn only_the_expected_answer_is_right() {
        let one = reply(200, r#"{"choices": [{"text": "x", "finish_reason": "length"}]}"#);
        let full = reply(429, r#"{"error": {"code": "queue_full"}}"#);
        let bad = reply(400, r#"{"error": {"code": "invalid_json"}}"#);
        let lost = reply(500, r#"{"error": {"code": "engine_failed"}}"#);
        assert_eq!(check(&Expected::Choices(1), &one), Ok(Outcome::Answered));
        for wrong in [&bad, &lost, &full] {
            assert!(check(&Expected::Choices(1), wrong).is_err(), "{wrong:?}");
        }
        assert!(check(&Expected::Choices(2), &one).is_err());
        assert!(check(&Expected::Stream, &one).is_err());
        let later = Reply { retry_after: Some(3), ..full };
        assert_eq!(check(&Expected::Json, &later), Ok(Outcome::Refused(3)));
        // What needs no place is never refused.
        assert!(check(&Expected::Error(400, "invalid_json"), &later).is_err());
        assert!(check(&Expected::Success, &later).is_err());
        let bodies = Reply { retry_after: Some(1), ..reply(429, r#"{"error": {"code": "bodies_full"}}"#) };
        assert_eq!(check(&Expected::Error(400, "invalid_json"), &bodies), Ok(Outcome::Refused(1)));
        assert_eq!(check(&Expected::Error(400, "invalid_json"), &bad), Ok(Outcome::Answered));
        assert!(check(&Expected::Error(400, "unknown_field"), &bad).is_err());
        assert!(check(&Expected::Error(400, "invalid_json"), &one).is_err());
    }

    #[test]
    fn a_complete_answer_with_a_schema_is_json() {
        let answer = |text: &str, reason: &str| {
            let choice = serde_json::json!({"message": {"content": text}, "finish_reason": reason});
            reply(200, &serde_json::json!({"choices": [choice]}).to_string())
        };
        assert!(check(&Expected::Json, &answer(r#"{"a": true}"#, "stop")).is_ok());
        assert!(check(&Expected::Json, &answer(r#"{"a": tr"#, "length")).is_ok());
        assert!(check(&Expected::Json, &answer(r#"{"a": tr"#, "stop")).is_err());
    }

    #[test]
    fn an_answer_that_changes_is_found() {
        let first = FirstAnswers::default();
        let answer = |text: &str| reply(200, &format!(r#"{{"choices": [{{"text": "{text}"}}]}}"#));
        let expected = Expected::Same("17 + 25 =".to_owned());
        assert!(check_reply(&expected, &answer(" 42"), &first).is_ok());
        assert!(check_reply(&expected, &answer(" 42"), &first).is_ok());
        let error = check_reply(&expected, &answer(" 43"), &first).unwrap_err();
        assert!(error.contains("` 43`, and was ` 42`"), "{error}");
    }

    #[test]
    fn a_stream_ends_with_its_last_event() {
        let slow = r#"{"error": {"code": "slow_reader"}}"#;
        assert_eq!(check_end("[DONE]", false), Ok(Outcome::Answered));
        assert_eq!(check_end(r#"{"type": "response.completed"}"#, false), Ok(Outcome::Answered));
        assert_eq!(check_end(slow, true), Ok(Outcome::SlowReader));
        for last in ["", slow, r#"{"choices": []}"#] {
            assert!(check_end(last, false).is_err(), "{last}");
        }
    }
}
