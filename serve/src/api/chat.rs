//! `/v1/chat/completions`.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Extension;
use axum::extract::{Request, State};
use bespoke::tokenizer::Tokenizer;
use bespoke_chat::{Message, Value as TemplateValue, check_roles, checked_messages};
use serde_json::{Value, json};

use super::choices::{Form, Parsed, Reason, respond};
use super::settings::{self, Common, LOGPROBS};
use super::tools::{self, Tools};
use super::{Answer, RequestId, check_model, format, log_text, logprobs};
use crate::answers::{Sequences, TokenInfo, count_choices};
use crate::app::{App, Ready};
use crate::body::Body;
use crate::calls::{CallForm, CallParser, Piece, Types};
use crate::error::ApiError;
use crate::fields::Fields;
use crate::random;

/// Variables that only the server gives to a template.
const GIVEN: [&str; 5] = ["messages", "tools", "add_generation_prompt", "bos_token", "eos_token"];

/// Answers a conversation.
pub async fn chat(
    State(app): State<Arc<App>>,
    Extension(id): Extension<RequestId>,
    request: Request,
) -> Answer {
    respond(&app, format!("chatcmpl-{}", id.0), request, parse).await
}

fn parse(app: &App, ready: &Ready, id: &str, body: &Body) -> Result<Parsed<ChatForm>, ApiError> {
    let (sequences, stream, calls) = sequences(app, ready, id, body)?;
    let logprobs = sequences.settings.logprobs.is_some();
    let parsers = (0..sequences.n).filter_map(|_| Some(Parsing::new(calls.clone()?))).collect();
    let form = ChatForm { tokenizer: Arc::clone(&ready.model.tokenizer), logprobs, parsers };
    Ok(Parsed { sequences, form, stream })
}

fn sequences(
    app: &App,
    ready: &Ready,
    id: &str,
    body: &Body,
) -> Result<(Sequences, Option<settings::Stream>, Option<Calls>), ApiError> {
    let mut fields = Fields::parse(body.bytes())?;
    check_model(ready, fields.take("model")?)?;
    let messages = messages(&mut fields)?;
    let variables = variables(&mut fields)?;
    let Common { mut settings, seed, n, stream } = settings::common(app, ready, &mut fields, u32::MAX)?;
    let wanted: bool = fields.take("logprobs")?.unwrap_or(false);
    let top = fields.within("top_logprobs", 0, LOGPROBS)?;
    if top.is_some() && !wanted {
        return Err(ApiError::field("top_logprobs", "`top_logprobs` needs `logprobs` to be true"));
    }
    settings.logprobs = wanted.then_some(top.unwrap_or(0));
    let language = format::take(ready, &mut fields)?;
    let tools = tools::take(ready, &mut fields)?;
    settings::refuse_unsupported(&mut fields)?;
    fields.finish()?;
    count_choices(ready, 1, n)?;
    let (list, calls, marks) = match (tools, language) {
        (None, language) => {
            settings.grammar = language.map(|(_, grammar)| grammar);
            (None, None, Vec::new())
        }
        (Some(_), Some((name, _))) => {
            let message =
                format!("`{name}` and `tools` are not supported together: set `tool_choice` to \"none\"");
            return Err(ApiError::unsupported(name, message));
        }
        (Some(Tools { list, form, types, one, grammar }), None) => {
            settings.grammar = grammar;
            (Some(list), Some(Calls { form, types, one }), tools::marks(&ready.model.tokenizer))
        }
    };
    let prompt = encode(app, ready, id, messages, list, variables)?;
    Ok((Sequences { prompts: vec![prompt], n, settings, seed, field: "messages", marks }, stream, calls))
}

/// Takes the messages of a conversation.
pub fn messages(fields: &mut Fields<'_>) -> Result<Vec<Message>, ApiError> {
    Ok(checked_messages(fields.require("messages")?)?)
}

fn variables(fields: &mut Fields<'_>) -> Result<BTreeMap<String, TemplateValue>, ApiError> {
    const NAME: &str = "chat_template_kwargs";
    let variables: BTreeMap<String, TemplateValue> = fields.take(NAME)?.unwrap_or_default();
    match GIVEN.iter().find(|&&given| variables.contains_key(given)) {
        Some(given) => Err(ApiError::field(NAME, format!("`{NAME}` cannot set `{given}`"))),
        None => Ok(variables),
    }
}

/// The text that the model gets for an answer to a conversation.
pub fn prompt(
    ready: &Ready,
    messages: Vec<Message>,
    tools: Option<Vec<TemplateValue>>,
    variables: BTreeMap<String, TemplateValue>,
) -> Result<String, ApiError> {
    let Some(chat) = &ready.model.chat else {
        let message =
            "the model has no chat template: use /v1/completions, or start the server with --chat-template";
        return Err(ApiError::unsupported("messages", message).with_code("no_chat_template"));
    };
    check_roles(chat.template().source(), &messages)?;
    chat.prompt(messages, tools, variables).map_err(|error| ApiError::field("messages", error.to_string()))
}

/// The tokens that the model gets for an answer to a conversation. `id` is the request's, for the log.
pub fn encode(
    app: &App,
    ready: &Ready,
    id: &str,
    messages: Vec<Message>,
    tools: Option<Vec<TemplateValue>>,
    variables: BTreeMap<String, TemplateValue>,
) -> Result<Vec<u32>, ApiError> {
    let text = prompt(ready, messages, tools, variables)?;
    log_text(app, id, "prompt", &text);
    let tokens = ready.model.tokenizer.encode(&(ready.model.normalise)(&text));
    tokens.map_err(|error| ApiError::field("messages", error.to_string()))
}

/// Choices of a chat.
struct ChatForm {
    tokenizer: Arc<Tokenizer>,
    logprobs: bool,
    /// Search for calls in each choice; empty without tools.
    parsers: Vec<Parsing>,
}

/// Calls that an answer may have.
#[derive(Clone)]
struct Calls {
    form: CallForm,
    types: Arc<Types>,
    /// Whether one call is all.
    one: bool,
}

/// Search for calls in a choice.
struct Parsing {
    parser: CallParser,
    /// Whether what follows the first call is left out.
    one: bool,
    /// Number of calls so far.
    calls: usize,
    /// Whether the rest is left out.
    ended: bool,
}

impl Parsing {
    fn new(Calls { form, types, one }: Calls) -> Parsing {
        Parsing { parser: CallParser::new(form, types), one, calls: 0, ended: false }
    }

    /// Adds a part of the text, and the end if it is the last one. Returns what is decided.
    fn pieces(&mut self, text: &str, last: bool) -> Vec<Piece> {
        let mut pieces = self.parser.push(text);
        if last {
            pieces.extend(self.parser.finish());
        }
        pieces.retain(|piece| {
            let is_call = matches!(piece, Piece::Call { .. });
            self.ended |= self.one && self.calls > 0 && !matches!(piece, Piece::Arguments(_));
            self.calls += usize::from(is_call && !self.ended);
            !self.ended
        });
        pieces
    }
}

/// Pieces as parts of a message, in events. `calls` is the number of calls up to the last piece.
fn deltas(pieces: Vec<Piece>, calls: usize) -> Vec<Value> {
    let new = pieces.iter().filter(|piece| matches!(piece, Piece::Call { .. })).count();
    let mut next = calls - new;
    let delta = |piece| match piece {
        Piece::Text(text) => json!({"content": text}),
        Piece::Call { name, arguments } => {
            let mut call = tool_call(&name, &arguments);
            call["index"] = next.into();
            next += 1;
            json!({"tool_calls": [call]})
        }
        Piece::Arguments(part) => {
            json!({"tool_calls": [{"index": next - 1, "function": {"arguments": part}}]})
        }
    };
    pieces.into_iter().map(delta).collect()
}

/// A call as in OpenAI's API, with an id.
fn tool_call(name: &str, arguments: &str) -> Value {
    let id = format!("call_{}", random::id());
    json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}})
}

/// The reason of a choice that has ended by itself, if it has calls.
fn reason_with_calls(reason: Reason, calls: usize) -> Reason {
    if reason == "stop" && calls > 0 { "tool_calls" } else { reason }
}

impl ChatForm {
    fn logprobs(&self, tokens: &[TokenInfo]) -> Value {
        if !self.logprobs {
            return Value::Null;
        }
        json!({"content": logprobs::entries(&self.tokenizer, tokens), "refusal": null})
    }
}

impl Form for ChatForm {
    const WHOLE: &'static str = "chat.completion";
    const EVENT: &'static str = "chat.completion.chunk";

    fn opening(&self) -> Option<Value> {
        Some(json!({"delta": {"role": "assistant", "content": ""}, "logprobs": null}))
    }

    fn deltas(&mut self, choice: u32, text: &str, tokens: &[TokenInfo]) -> Vec<Value> {
        let logprobs = self.logprobs(tokens);
        let Some(parsing) = self.parsers.get_mut(choice as usize) else {
            return vec![json!({"delta": {"content": text}, "logprobs": logprobs})];
        };
        let pieces = parsing.pieces(text, false);
        let deltas = deltas(pieces, parsing.calls);
        let mut events: Vec<Value> =
            deltas.into_iter().map(|delta| json!({"delta": delta, "logprobs": null})).collect();
        if events.is_empty() && self.logprobs {
            events.push(json!({"delta": {}}));
        }
        if let Some(first) = events.first_mut() {
            first["logprobs"] = logprobs;
        }
        events
    }

    fn endings(&mut self, choice: u32, reason: Reason) -> (Vec<Value>, Reason) {
        let mut last = Vec::new();
        let mut calls = 0;
        if let Some(parsing) = self.parsers.get_mut(choice as usize) {
            let pieces = parsing.pieces("", true);
            calls = parsing.calls;
            last = deltas(pieces, calls);
        }
        last.push(json!({}));
        let events = last.into_iter().map(|delta| json!({"delta": delta, "logprobs": null}));
        (events.collect(), reason_with_calls(reason, calls))
    }

    fn whole(&mut self, choice: u32, text: &str, tokens: &[TokenInfo], reason: Reason) -> (Value, Reason) {
        let mut message = json!({"role": "assistant", "content": text, "refusal": null});
        let mut calls: Vec<(String, String)> = Vec::new();
        if let Some(parsing) = self.parsers.get_mut(choice as usize) {
            let mut content = String::new();
            for piece in parsing.pieces(text, true) {
                match piece {
                    Piece::Text(text) => content += &text,
                    Piece::Call { name, arguments } => calls.push((name, arguments)),
                    Piece::Arguments(part) => {
                        if let Some((_, arguments)) = calls.last_mut() {
                            *arguments += &part;
                        }
                    }
                }
            }
            if !calls.is_empty() {
                let content = content.trim();
                message["content"] = if content.is_empty() { Value::Null } else { content.into() };
                message["tool_calls"] =
                    calls.iter().map(|(name, arguments)| tool_call(name, arguments)).collect();
            }
        }
        let entry = json!({"message": message, "logprobs": self.logprobs(tokens)});
        (entry, reason_with_calls(reason, calls.len()))
    }
}
