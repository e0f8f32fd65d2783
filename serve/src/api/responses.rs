//! `/v1/responses`: OpenAI's newer form of a conversation, for texts.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Extension;
use axum::extract::{Request, State};
use bespoke::tokenizer::Tokenizer;
use bespoke_chat::{Message, checked_message};
use serde::Deserialize;
use serde_json::{Value, json};

use super::chat::encode;
use super::choices::json_response;
use super::settings::{self, Common, LOGPROBS};
use super::stream::{Event, Writer, events};
use super::{Answer, RequestId, check_model, format, log_text, logprobs, number, with_body};
use crate::answers::{Answers, Part, Sequences, TokenInfo, Usage};
use crate::app::{App, Ready, seconds};
use crate::body::Body;
use crate::error::ApiError;
use crate::fields::Fields;

/// What the server tells a client about its request.
struct Facts {
    id: String,
    created: u64,
    model: String,
    /// Fields that an answer repeats.
    given: Value,
}

/// The input: a text, or a conversation.
#[derive(Deserialize)]
#[serde(untagged, expecting = "expected a text or a list of messages")]
enum Input {
    Text(String),
    Messages(Vec<InputMessage>),
}

/// A message of the input.
#[derive(Deserialize)]
struct InputMessage {
    #[serde(rename = "type")]
    kind: Option<String>,
    role: Option<String>,
    content: Option<Content>,
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "expected a text or a list of parts")]
enum Content {
    Text(String),
    Parts(Vec<InputPart>),
}

#[derive(Deserialize)]
struct InputPart {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    text: String,
}

/// Answers a conversation.
pub async fn responses(
    State(app): State<Arc<App>>,
    Extension(id): Extension<RequestId>,
    request: Request,
) -> Answer {
    let id = format!("resp_{}", id.0);
    let work = move |app: &App, ready: &Ready, body: &Body| {
        let (sequences, stream, given) = sequences(app, ready, &id, body)?;
        let facts = Facts { id, created: seconds(), model: ready.model.name().to_owned(), given };
        let logprobs = sequences.settings.logprobs.is_some();
        let answers = Answers::start(app, ready, &facts.id, sequences, body.arrived())?;
        let tokenizer = Arc::clone(&ready.model.tokenizer);
        let message = OutputMessage::new(&facts.id, tokenizer, logprobs);
        Ok((facts, message, answers, stream))
    };
    let (facts, message, mut answers, stream) = with_body(&app, request, work).await?;
    let mut writer = ResponseWriter { facts, message, number: 0, app: Arc::clone(&app) };
    if stream {
        return Ok(events(&app, writer, answers));
    }
    while let Some(parts) = answers.next().await {
        parts?.into_iter().for_each(|part| writer.message.add(part));
    }
    log_text(&app, &writer.facts.id, "answer", &writer.message.text);
    Ok(json_response(&writer.object(Some(answers.usage()))))
}

fn sequences(app: &App, ready: &Ready, id: &str, body: &Body) -> Result<(Sequences, bool, Value), ApiError> {
    let mut fields = Fields::parse(body.bytes())?;
    check_model(ready, fields.take("model")?)?;
    let instructions: Option<String> = fields.take("instructions")?;
    let mut messages: Vec<Message> = instructions.iter().map(|text| Message::new("system", text)).collect();
    messages.extend(input(&mut fields)?);
    let most = fields.within("max_output_tokens", 1, app.options.max_tokens.unwrap_or(u32::MAX))?;
    let top = fields.within("top_logprobs", 0, LOGPROBS)?;
    // What may be added to an answer; log-probabilities are the only addition here.
    let include: Vec<String> = fields.take("include")?.unwrap_or_default();
    let wanted = include.iter().any(|it| it == "message.output_text.logprobs");
    if let Some(other) = include.iter().find(|&it| it != "message.output_text.logprobs") {
        return Err(ApiError::unsupported("include", format!("`include` with `{other}` is not supported")));
    }
    if top.is_some() && !wanted {
        let message = "`top_logprobs` needs `include` with `message.output_text.logprobs`";
        return Err(ApiError::field("top_logprobs", message));
    }
    let (format, grammar) = format::take_text(ready, &mut fields)?;
    // Has no effect; the response repeats it.
    let metadata: Option<BTreeMap<String, String>> = fields.take("metadata")?;
    fields.only("reasoning", &[json!({})])?;
    fields.only("truncation", &[json!("disabled")])?;
    fields.only("background", &[json!(false)])?;
    // The last three are fields of the other paths.
    for name in [
        "previous_response_id",
        "conversation",
        "prompt",
        "max_tool_calls",
        "max_tokens",
        "max_completion_tokens",
        "n",
    ] {
        fields.only(name, &[])?;
    }
    let Common { mut settings, seed, n, stream } = settings::common(app, ready, &mut fields, u32::MAX)?;
    settings.max_tokens = most.unwrap_or(settings.max_tokens);
    settings.logprobs = wanted.then(|| top.unwrap_or(0));
    settings.grammar = grammar;
    settings::refuse_tools(&mut fields)?;
    settings::refuse_unsupported(&mut fields)?;
    fields.finish()?;
    let given = json!({
        "instructions": instructions,
        "max_output_tokens": (settings.max_tokens != u32::MAX).then_some(settings.max_tokens),
        "temperature": number(settings.sampling.temperature),
        "top_p": number(settings.sampling.top_p),
        "text": {"format": format},
        "metadata": metadata.unwrap_or_default(),
    });
    let prompt = encode(app, ready, id, messages, None, Default::default());
    let prompt = prompt.map_err(|error| error.with_param("input"))?;
    Ok((
        Sequences { prompts: vec![prompt], n, settings, seed, field: "input", marks: Vec::new() },
        stream.is_some(),
        given,
    ))
}

fn input(fields: &mut Fields<'_>) -> Result<Vec<Message>, ApiError> {
    let messages = match fields.require("input")? {
        Input::Text(text) => return Ok(vec![Message::new("user", &text)]),
        Input::Messages(messages) => messages,
    };
    if messages.is_empty() {
        return Err(ApiError::field("input", "`input` is empty: give a text or at least one message"));
    }
    messages.into_iter().enumerate().map(|(index, message)| text_message(index, message)).collect()
}

fn text_message(index: usize, message: InputMessage) -> Result<Message, ApiError> {
    let name = format!("input[{index}]");
    let InputMessage { kind, role, content } = message;
    if let Some(kind) = kind.filter(|kind| kind != "message") {
        return Err(ApiError::unsupported(
            &name,
            format!("`{name}` has the type `{kind}`; only messages are supported"),
        ));
    }
    let (Some(role), Some(content)) = (role, content) else {
        return Err(ApiError::field(&name, format!("`{name}` needs `role` and `content`")));
    };
    let text = match content {
        Content::Text(text) => text,
        Content::Parts(parts) => {
            let is_text = |part: &&InputPart| matches!(part.kind.as_str(), "input_text" | "output_text");
            if let Some(part) = parts.iter().find(|part| !is_text(part)) {
                let message =
                    format!("`{name}.content` has a part of type `{}`; only texts are supported", part.kind);
                return Err(ApiError::unsupported(&name, message));
            }
            parts.into_iter().map(|part| part.text).collect::<Vec<_>>().join("\n")
        }
    };
    Ok(checked_message(index, Message::new(&role, &text))?)
}

/// The answer's message, as far as it is there.
struct OutputMessage {
    id: String,
    tokenizer: Arc<Tokenizer>,
    text: String,
    /// Log-probabilities of the text's tokens, if they were asked for.
    logprobs: Option<Vec<Value>>,
    /// Why it has ended, if it has.
    reason: Option<&'static str>,
}

impl OutputMessage {
    fn new(id: &str, tokenizer: Arc<Tokenizer>, logprobs: bool) -> OutputMessage {
        let id = id.replacen("resp_", "msg_", 1);
        OutputMessage { id, tokenizer, text: String::new(), logprobs: logprobs.then(Vec::new), reason: None }
    }

    fn add(&mut self, part: Part) {
        match part {
            Part::Text { text, tokens, .. } => {
                self.text += &text;
                let entries = self.entries(&tokens);
                self.logprobs.iter_mut().for_each(|logprobs| logprobs.extend(entries.iter().cloned()));
            }
            Part::End { reason, .. } => self.reason = Some(reason),
        }
    }

    fn entries(&self, tokens: &[TokenInfo]) -> Vec<Value> {
        logprobs::entries(&self.tokenizer, tokens)
    }

    fn status(&self) -> &'static str {
        match self.reason {
            None => "in_progress",
            Some("stop") => "completed",
            Some(_) => "incomplete",
        }
    }

    fn content(&self) -> Value {
        let logprobs = self.logprobs.as_deref().unwrap_or_default();
        json!({"type": "output_text", "text": self.text, "annotations": [], "logprobs": logprobs})
    }

    fn item(&self, content: &[Value]) -> Value {
        json!({"type": "message", "id": self.id, "status": self.status(), "role": "assistant", "content": content})
    }
}

/// Writes a response, whole or as events.
struct ResponseWriter {
    facts: Facts,
    message: OutputMessage,
    /// Number of the next event.
    number: u64,
    app: Arc<App>,
}

impl ResponseWriter {
    /// The response as far as it is there; with the numbers of tokens once it has ended.
    fn object(&self, usage: Option<Usage>) -> Value {
        let Facts { id, created, model, given } = &self.facts;
        let status = self.message.status();
        let output =
            if usage.is_some() { vec![self.message.item(&[self.message.content()])] } else { Vec::new() };
        let incomplete = (status == "incomplete").then(|| json!({"reason": "max_output_tokens"}));
        let usage = usage.map(|Usage { prompt, reused, generated }| {
            json!({
                "input_tokens": prompt,
                "input_tokens_details": {"cached_tokens": reused},
                "output_tokens": generated,
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": prompt + generated,
            })
        });
        let mut object = json!({
            "id": id, "object": "response", "created_at": created, "model": model, "status": status,
            "error": null, "incomplete_details": incomplete, "output": output, "usage": usage,
            "parallel_tool_calls": true, "tool_choice": "auto", "tools": [], "previous_response_id": null,
            "store": false, "truncation": "disabled",
        });
        if let (Some(object), Some(given)) = (object.as_object_mut(), given.as_object()) {
            object.extend(given.clone());
        }
        object
    }

    fn event(&mut self, name: &'static str, mut data: Value) -> Event {
        data["type"] = name.into();
        data["sequence_number"] = self.number.into();
        self.number += 1;
        Event::named(name, &data)
    }

    /// The place of the text within the response, with more facts.
    fn at(&self, more: Value) -> Value {
        let mut data = json!({"item_id": self.message.id, "output_index": 0, "content_index": 0});
        if let (Some(data), Value::Object(more)) = (data.as_object_mut(), more) {
            data.extend(more);
        }
        data
    }
}

impl Writer for ResponseWriter {
    fn open(&mut self) -> Vec<Event> {
        let response = json!({"response": self.object(None)});
        let item = json!({"output_index": 0, "item": self.message.item(&[])});
        let part = self.at(json!({"part": self.message.content()}));
        vec![
            self.event("response.created", response.clone()),
            self.event("response.in_progress", response),
            self.event("response.output_item.added", item),
            self.event("response.content_part.added", part),
        ]
    }

    fn part(&mut self, part: Part) -> Vec<Event> {
        let delta = match &part {
            Part::Text { text, tokens, .. } => {
                let logprobs =
                    if self.message.logprobs.is_some() { self.message.entries(tokens) } else { Vec::new() };
                Some(self.at(json!({"delta": text, "logprobs": logprobs})))
            }
            Part::End { .. } => None,
        };
        self.message.add(part);
        delta.map(|delta| self.event("response.output_text.delta", delta)).into_iter().collect()
    }

    fn close(&mut self, usage: Usage) -> Vec<Event> {
        log_text(&self.app, &self.facts.id, "answer", &self.message.text);
        let content = self.message.content();
        let done = self.at(json!({"text": self.message.text, "logprobs": content["logprobs"]}));
        let part = self.at(json!({"part": content}));
        let item = json!({"output_index": 0, "item": self.message.item(&[content])});
        let response = json!({"response": self.object(Some(usage))});
        let last =
            if self.message.status() == "incomplete" { "response.incomplete" } else { "response.completed" };
        vec![
            self.event("response.output_text.done", done),
            self.event("response.content_part.done", part),
            self.event("response.output_item.done", item),
            self.event(last, response),
        ]
    }

    fn fail(&mut self, error: &ApiError) -> Vec<Event> {
        let mut response = self.object(None);
        response["status"] = "failed".into();
        response["error"] = json!({"code": "server_error", "message": error.message()});
        vec![self.event("response.failed", json!({"response": response}))]
    }
}
