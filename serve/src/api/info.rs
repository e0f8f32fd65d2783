//! What the server is and does: `/v1/models`, `/props`, `/health`, `/metrics`.

use std::sync::Arc;

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use serde_json::{Value, json};

use super::choices::json_response;
use super::{Answer, check_model, number};
use crate::app::{App, Ready};
use crate::error::ApiError;

/// `/v1/models`: the model under all its names.
pub async fn models(State(app): State<Arc<App>>) -> Answer {
    let ready = app.ready()?;
    let models: Value = ready.model.names.iter().map(|name| model(&app, ready, name)).collect();
    Ok(json_response(&json!({"object": "list", "data": models})))
}

/// `/v1/models/NAME`.
pub async fn one_model(State(app): State<Arc<App>>, name: Result<Path<String>, PathRejection>) -> Answer {
    let ready = app.ready()?;
    let Path(name) =
        name.map_err(|_| ApiError::field("model", "the name of the model in the path is not UTF-8"))?;
    check_model(ready, Some(name.clone()))?;
    Ok(json_response(&model(&app, ready, &name)))
}

fn model(app: &App, ready: &Ready, name: &str) -> Value {
    json!({
        "id": name,
        "object": "model",
        "created": app.created,
        "owned_by": "bespoke",
        "max_model_len": ready.limits.context,
    })
}

/// `/props`: facts of the model, limits and defaults.
pub async fn props(State(app): State<Arc<App>>) -> Answer {
    let ready = app.ready()?;
    let model = &ready.model;
    let sampling = &model.sampling;
    let options = &app.options;
    Ok(json_response(&json!({
        "version": env!("CARGO_PKG_VERSION"),
        "model": model.name(),
        "facts": model.facts,
        "vocabulary": ready.limits.vocab,
        "context": ready.limits.context,
        "parallel": ready.limits.slots,
        "pages": ready.limits.pages,
        "queue": options.queue,
        "body_bytes": options.body_bytes,
        "max_tokens": options.max_tokens,
        "timeout_seconds": options.timeout.as_secs_f64(),
        "chat_template": model.chat.as_ref().map(|chat| chat.template().source()),
        "defaults": {
            "temperature": number(sampling.temperature),
            "top_k": sampling.top_k,
            "top_p": number(sampling.top_p),
            "min_p": number(sampling.min_p),
            "repeat_penalty": number(sampling.repeat_penalty),
            "presence_penalty": number(sampling.presence_penalty),
            "frequency_penalty": number(sampling.frequency_penalty),
            "repeat_last_n": sampling.repeat_last_n,
            "seed": model.fixed_seed.then_some(sampling.seed),
        },
    })))
}

/// `/health`: 200 if requests are answered, 503 while the model is being loaded and while the server ends.
pub async fn health(State(app): State<Arc<App>>) -> Answer {
    app.ready()?;
    Ok(json_response(&json!({"status": "ok"})))
}

/// `/metrics`.
pub async fn metrics(State(app): State<Arc<App>>) -> Answer {
    const TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    Ok(([(CONTENT_TYPE, TYPE)], app.metrics.text()).into_response())
}
