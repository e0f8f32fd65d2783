//! Answers as server-sent events.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;

use axum::response::sse::{self, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use serde_json::Value;

use crate::answers::{Answers, Part, Usage};
use crate::app::App;
use crate::error::ApiError;

/// An event.
pub struct Event {
    /// Its name, in APIs that name them.
    pub name: Option<&'static str>,
    /// Its data.
    pub data: String,
}

impl Event {
    /// An event without a name.
    pub fn data(data: impl ToString) -> Event {
        Event { name: None, data: data.to_string() }
    }

    /// An event with a name.
    pub fn named(name: &'static str, data: &Value) -> Event {
        Event { name: Some(name), data: data.to_string() }
    }
}

/// Writes an answer as events.
pub trait Writer: Send + 'static {
    /// Events before any text.
    fn open(&mut self) -> Vec<Event>;
    /// Events of a part.
    fn part(&mut self, part: Part) -> Vec<Event>;
    /// Events after all choices have ended.
    fn close(&mut self, usage: Usage) -> Vec<Event>;
    /// Events after an error, which are the last ones.
    fn fail(&mut self, error: &ApiError) -> Vec<Event>;
}

/// A stream under way.
struct Streaming<W> {
    writer: W,
    answers: Answers,
    /// Events that are not sent yet.
    pending: VecDeque<Event>,
    done: bool,
}

/// The response with an answer's events.
pub fn events<W: Writer>(app: &Arc<App>, mut writer: W, answers: Answers) -> Response {
    let pending = writer.open().into();
    let streaming = Streaming { writer, answers, pending, done: false };
    let next = |mut streaming: Streaming<W>| async move {
        let Event { name, data } = streaming.next().await?;
        let event = sse::Event::default().data(data);
        let event = name.map_or(event.clone(), |name| event.event(name));
        Some((Ok::<_, Infallible>(event), streaming))
    };
    let keep_alive = KeepAlive::new().interval(app.options.keep_alive).text("keep-alive");
    Sse::new(stream::unfold(streaming, next)).keep_alive(keep_alive).into_response()
}

impl<W: Writer> Streaming<W> {
    /// The next event; none at the end.
    async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.pending.pop_front() {
                return Some(event);
            }
            if self.done {
                return None;
            }
            match self.answers.next().await {
                Some(Ok(parts)) => {
                    for part in parts {
                        self.pending.extend(self.writer.part(part));
                    }
                }
                Some(Err(error)) => {
                    self.pending.extend(self.writer.fail(&error));
                    self.done = true;
                }
                None => {
                    self.pending.extend(self.writer.close(self.answers.usage()));
                    self.done = true;
                }
            }
        }
    }
}
