//! `/v1/completions`: the continuation of a text.

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Request, State};
use bespoke::tokenizer::Tokenizer;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::choices::{Form, Parsed, Reason, respond};
use super::logprobs::finite;
use super::settings::{self, Common, LOGPROBS};
use super::{Answer, RequestId, check_model, format, log_text};
use crate::answers::{Sequences, TokenInfo, count_choices};
use crate::app::{App, Ready};
use crate::body::Body;
use crate::error::ApiError;
use crate::fields::Fields;

/// Tokens to generate for a request that does not say it, as in OpenAI's API.
const DEFAULT_TOKENS: u32 = 16;

/// One prompt or several, as texts or token ids.
#[derive(Deserialize)]
#[serde(
    untagged,
    expecting = "expected a text, a list of texts, a list of token ids, or a list of such lists"
)]
enum Prompts {
    Text(String),
    Tokens(Vec<u32>),
    Texts(Vec<String>),
    TokenLists(Vec<Vec<u32>>),
}

impl Prompts {
    fn count(&self) -> usize {
        match self {
            Prompts::Text(_) | Prompts::Tokens(_) => 1,
            Prompts::Texts(texts) => texts.len(),
            Prompts::TokenLists(lists) => lists.len(),
        }
    }
}

/// Continues a text.
pub async fn completions(
    State(app): State<Arc<App>>,
    Extension(id): Extension<RequestId>,
    request: Request,
) -> Answer {
    respond(&app, format!("cmpl-{}", id.0), request, parse).await
}

fn parse(app: &App, ready: &Ready, id: &str, body: &Body) -> Result<Parsed<CompletionForm>, ApiError> {
    let (sequences, stream, echo) = sequences(app, ready, id, body)?;
    let tokenizer = Arc::clone(&ready.model.tokenizer);
    let choices = sequences.prompts.len() * sequences.n as usize;
    let echoed = sequences.prompts.iter().take(if echo { usize::MAX } else { 0 });
    let echoed = echoed.map(|prompt| tokenizer.decode(prompt)).collect();
    let form = CompletionForm {
        echoed,
        n: sequences.n,
        offsets: vec![0; choices],
        begun: vec![false; choices],
        logprobs: sequences.settings.logprobs.is_some(),
        tokenizer,
    };
    Ok(Parsed { sequences, form, stream })
}

fn sequences(
    app: &App,
    ready: &Ready,
    id: &str,
    body: &Body,
) -> Result<(Sequences, Option<settings::Stream>, bool), ApiError> {
    let mut fields = Fields::parse(body.bytes())?;
    check_model(ready, fields.take("model")?)?;
    let prompts: Prompts = fields.require("prompt")?;
    let Common { mut settings, seed, n, stream } = settings::common(app, ready, &mut fields, DEFAULT_TOKENS)?;
    settings.logprobs = fields.within("logprobs", 0, LOGPROBS)?;
    settings.grammar = format::take(ready, &mut fields)?.map(|(_, grammar)| grammar);
    let echo: bool = fields.take("echo")?.unwrap_or(false);
    if echo && settings.logprobs.is_some() {
        let message = "`echo` with `logprobs` is not supported: prompts have no log-probabilities";
        return Err(ApiError::unsupported("echo", message));
    }
    fields.only("suffix", &[json!("")])?;
    fields.only("best_of", &[json!(n)])?;
    settings::refuse_tools(&mut fields)?;
    settings::refuse_unsupported(&mut fields)?;
    fields.finish()?;
    count_choices(ready, prompts.count(), n)?;
    let prompts = tokens(app, ready, id, prompts)?;
    Ok((Sequences { prompts, n, settings, seed, field: "prompt", marks: Vec::new() }, stream, echo))
}

fn tokens(app: &App, ready: &Ready, id: &str, prompts: Prompts) -> Result<Vec<Vec<u32>>, ApiError> {
    let texts = match prompts {
        Prompts::Text(text) => vec![text],
        Prompts::Texts(texts) => texts,
        Prompts::Tokens(tokens) => return Ok(vec![tokens]),
        Prompts::TokenLists(lists) => return Ok(lists),
    };
    let mut prompts = Vec::new();
    for text in texts {
        log_text(app, id, "prompt", &text);
        let tokens = ready.model.tokenizer.encode(&(ready.model.normalise)(&text));
        prompts.push(tokens.map_err(|error| ApiError::field("prompt", error.to_string()))?);
    }
    Ok(prompts)
}

/// Choices of a completion.
struct CompletionForm {
    tokenizer: Arc<Tokenizer>,
    logprobs: bool,
    /// Texts of the prompts, if answers begin with them.
    echoed: Vec<String>,
    /// Choices for each prompt.
    n: u32,
    /// Number of characters of each choice before the next token.
    offsets: Vec<usize>,
    /// Whether a choice's text has begun.
    begun: Vec<bool>,
}

impl CompletionForm {
    fn entry(&mut self, choice: u32, text: &str, tokens: &[TokenInfo]) -> Value {
        let logprobs = if self.logprobs { self.logprobs(choice, tokens) } else { Value::Null };
        let first = !std::mem::replace(&mut self.begun[choice as usize], true);
        let prompt = self.echoed.get((choice / self.n) as usize).filter(|_| first);
        let text = prompt.map_or_else(|| text.to_owned(), |prompt| prompt.clone() + text);
        json!({"text": text, "logprobs": logprobs})
    }

    fn logprobs(&mut self, choice: u32, tokens: &[TokenInfo]) -> Value {
        let text = |token| String::from_utf8_lossy(self.tokenizer.piece_or_name(token)).into_owned();
        let offset = &mut self.offsets[choice as usize];
        let (mut texts, mut values, mut tops, mut offsets) = (vec![], vec![], vec![], vec![]);
        for (token, logprobs) in tokens {
            let own = text(*token);
            offsets.push(*offset);
            *offset += own.chars().count();
            texts.push(own);
            values.push(finite(logprobs.logprob));
            let top = logprobs.top.iter().map(|&(token, value)| (text(token), finite(value).into()));
            tops.push(top.collect::<Map<String, Value>>());
        }
        json!({"tokens": texts, "token_logprobs": values, "top_logprobs": tops, "text_offset": offsets})
    }
}

impl Form for CompletionForm {
    const WHOLE: &'static str = "text_completion";
    const EVENT: &'static str = "text_completion";

    fn opening(&self) -> Option<Value> {
        None
    }

    fn deltas(&mut self, choice: u32, text: &str, tokens: &[TokenInfo]) -> Vec<Value> {
        vec![self.entry(choice, text, tokens)]
    }

    /// The last event of a choice. It has the echoed prompt if there was no text before it.
    fn endings(&mut self, choice: u32, reason: Reason) -> (Vec<Value>, Reason) {
        let mut entry = self.entry(choice, "", &[]);
        entry["logprobs"] = Value::Null;
        (vec![entry], reason)
    }

    fn whole(&mut self, choice: u32, text: &str, tokens: &[TokenInfo], reason: Reason) -> (Value, Reason) {
        (self.entry(choice, text, tokens), reason)
    }
}
