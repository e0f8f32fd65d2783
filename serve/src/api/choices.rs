//! Answers with choices: as one object, or as events.

use std::sync::Arc;

use axum::extract::Request;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use super::settings::Stream;
use super::stream::{Event, Writer, events};
use super::{Answer, log_text, with_body};
use crate::answers::{Answers, Part, Sequences, TokenInfo, Usage};
use crate::app::{App, Ready, seconds};
use crate::body::Body;
use crate::error::ApiError;

/// How an endpoint writes its choices.
pub trait Form: Send + 'static {
    /// `object` of a whole answer.
    const WHOLE: &'static str;
    /// `object` of an event.
    const EVENT: &'static str;

    /// What a choice's first event has; none if it has none.
    fn opening(&self) -> Option<Value>;
    /// Parts of a choice with a text, each for an event.
    fn deltas(&mut self, choice: u32, text: &str, tokens: &[TokenInfo]) -> Vec<Value>;
    /// Parts of a choice at its end, at least one; the last one gets the reason.
    fn endings(&mut self, choice: u32, reason: Reason) -> (Vec<Value>, Reason);
    /// A whole choice with its reason.
    fn whole(&mut self, choice: u32, text: &str, tokens: &[TokenInfo], reason: Reason) -> (Value, Reason);
}

/// Reason why a choice ended, in OpenAI's API.
pub type Reason = &'static str;

/// `id` and `model` of an answer.
struct Head {
    id: String,
    model: String,
}

impl Head {
    fn object(&self, object: &str, created: u64, choices: &[Value]) -> Value {
        let Head { id, model } = self;
        json!({
            "id": id,
            "object": object,
            "created": created,
            "model": model,
            "system_fingerprint": concat!("bespoke-", env!("CARGO_PKG_VERSION")),
            "choices": choices,
        })
    }
}

/// A request for choices.
pub struct Parsed<F> {
    pub sequences: Sequences,
    pub form: F,
    /// How it is streamed, if it is.
    pub stream: Option<Stream>,
}

/// Answers a request that `parse` reads, as a stream or not. `id` is that of the answer.
pub async fn respond<F: Form>(
    app: &Arc<App>,
    id: String,
    request: Request,
    parse: impl FnOnce(&App, &Ready, &str, &Body) -> Result<Parsed<F>, ApiError> + Send + 'static,
) -> Answer {
    let work = move |app: &App, ready: &Ready, body: &Body| {
        let Parsed { sequences, form, stream } = parse(app, ready, &id, body)?;
        let answers = Answers::start(app, ready, &id, sequences, body.arrived())?;
        Ok((Head { id, model: ready.model.name().to_owned() }, form, answers, stream))
    };
    let (head, form, answers, stream) = with_body(app, request, work).await?;
    match stream {
        Some(Stream { usage }) => {
            let (app_of_writer, choices, created) = (Arc::clone(app), answers.choices(), seconds());
            let writer = ChoiceWriter { app: app_of_writer, head, created, form, choices, with_usage: usage };
            Ok(events(app, writer, answers))
        }
        None => whole(app, head, form, answers).await,
    }
}

/// A response with JSON.
pub fn json_response(value: &Value) -> Response {
    ([(CONTENT_TYPE, "application/json")], value.to_string()).into_response()
}

/// Text of a choice so far.
#[derive(Clone, Default)]
struct Choice {
    text: String,
    tokens: Vec<TokenInfo>,
    reason: &'static str,
}

async fn whole<F: Form>(app: &App, head: Head, mut form: F, mut answers: Answers) -> Answer {
    let created = seconds();
    let mut choices = vec![Choice::default(); answers.choices() as usize];
    while let Some(parts) = answers.next().await {
        for part in parts? {
            match part {
                Part::Text { choice, text, tokens } => {
                    choices[choice as usize].text += &text;
                    choices[choice as usize].tokens.extend(tokens);
                }
                Part::End { choice, reason } => choices[choice as usize].reason = reason,
            }
        }
    }
    let entries = (0..).zip(&choices).map(|(index, Choice { text, tokens, reason })| {
        log_text(app, &head.id, &format!("answer {index}"), text);
        let (mut entry, reason) = form.whole(index, text, tokens, reason);
        entry["index"] = index.into();
        entry["finish_reason"] = reason.into();
        entry
    });
    let entries: Vec<Value> = entries.collect();
    let mut answer = head.object(F::WHOLE, created, &entries);
    answer["usage"] = answers.usage().json();
    Ok(json_response(&answer))
}

/// Writes choices as events.
struct ChoiceWriter<F> {
    app: Arc<App>,
    head: Head,
    created: u64,
    form: F,
    choices: u32,
    with_usage: bool,
}

impl<F: Form> ChoiceWriter<F> {
    /// An event with parts of choices.
    fn event(&self, choices: &[Value], usage: Option<Usage>) -> Event {
        let mut event = self.head.object(F::EVENT, self.created, choices);
        if self.with_usage {
            event["usage"] = usage.map_or(Value::Null, |usage| usage.json());
        }
        Event::data(event)
    }

    /// An event with a part of a choice.
    fn choice(&self, choice: u32, mut entry: Value, reason: Option<&str>) -> Event {
        entry["index"] = choice.into();
        entry["finish_reason"] = reason.into();
        self.event(&[entry], None)
    }
}

impl<F: Form> Writer for ChoiceWriter<F> {
    fn open(&mut self) -> Vec<Event> {
        let opening = |choice| Some(self.choice(choice, self.form.opening()?, None));
        (0..self.choices).filter_map(opening).collect()
    }

    fn part(&mut self, part: Part) -> Vec<Event> {
        match part {
            Part::Text { choice, text, tokens } => {
                log_text(&self.app, &self.head.id, &format!("answer {choice}, a part"), &text);
                let entries = self.form.deltas(choice, &text, &tokens);
                entries.into_iter().map(|entry| self.choice(choice, entry, None)).collect()
            }
            Part::End { choice, reason } => {
                let (entries, reason) = self.form.endings(choice, reason);
                let last = entries.len().saturating_sub(1);
                let entries = entries.into_iter().enumerate();
                entries
                    .map(|(at, entry)| self.choice(choice, entry, (at == last).then_some(reason)))
                    .collect()
            }
        }
    }

    fn close(&mut self, usage: Usage) -> Vec<Event> {
        let usage = self.with_usage.then(|| self.event(&[], Some(usage)));
        usage.into_iter().chain([Event::data("[DONE]")]).collect()
    }

    fn fail(&mut self, error: &ApiError) -> Vec<Event> {
        vec![Event::data(error.json())]
    }
}
