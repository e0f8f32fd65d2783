//! `/tokenize` and `/detokenize`.

use std::sync::Arc;

use axum::extract::{Request, State};
use bespoke::tokenizer::EncodeOptions;
use serde_json::json;

use super::choices::json_response;
use super::{Answer, chat, check_model, with_body};
use crate::app::{App, Ready};
use crate::body::Body;
use crate::error::ApiError;
use crate::fields::Fields;

/// Text or a conversation to token ids.
pub async fn tokenize(State(app): State<Arc<App>>, request: Request) -> Answer {
    let work = |_: &App, ready: &Ready, body: &Body| {
        let mut fields = Fields::parse(body.bytes())?;
        check_model(ready, fields.take("model")?)?;
        let content: Option<String> = fields.take("content")?;
        let (text, default) = match content {
            Some(text) => (text, EncodeOptions { bos: false, ..EncodeOptions::default() }),
            None if fields.has("messages") => {
                let messages = chat::messages(&mut fields)?;
                let text = chat::prompt(ready, messages, None, Default::default())?;
                ((ready.model.normalise)(&text), EncodeOptions::default())
            }
            None => return Err(ApiError::field("content", "give `content` or `messages`")),
        };
        let options = EncodeOptions {
            bos: fields.take("add_special")?.unwrap_or(default.bos),
            special: fields.take("parse_special")?.unwrap_or(default.special),
            ..default
        };
        fields.finish()?;
        let tokens = ready.model.tokenizer.encode_with(&text, options);
        let tokens = tokens.map_err(|error| ApiError::field("content", error.to_string()))?;
        Ok(json!({"tokens": tokens, "count": tokens.len(), "max_model_len": ready.limits.context}))
    };
    Ok(json_response(&with_body(&app, request, work).await?))
}

/// Token ids to text.
pub async fn detokenize(State(app): State<Arc<App>>, request: Request) -> Answer {
    let work = |_: &App, ready: &Ready, body: &Body| {
        let mut fields = Fields::parse(body.bytes())?;
        check_model(ready, fields.take("model")?)?;
        let tokens: Vec<u32> = fields.require("tokens")?;
        fields.finish()?;
        let len = ready.model.tokenizer.len();
        if let Some(token) = tokens.iter().find(|&&token| token as usize >= len) {
            let message = format!("token {token} does not exist: the vocabulary has {len} tokens");
            return Err(ApiError::field("tokens", message));
        }
        Ok(json!({"content": ready.model.tokenizer.decode(&tokens)}))
    };
    Ok(json_response(&with_body(&app, request, work).await?))
}
