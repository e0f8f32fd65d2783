//! Endpoints, a file each: a request's fields in, an answer out.

pub mod chat;
mod choices;
pub mod completions;
mod format;
pub mod info;
mod logprobs;
pub mod page;
pub mod responses;
mod settings;
mod stream;
pub mod tokens;
mod tools;

use std::sync::Arc;

use axum::extract::Request;
use axum::response::Response;
use tokio::time::timeout_at;

use crate::app::{App, Ready, timed_out};
use crate::body::{self, Body};
use crate::error::ApiError;

/// Id of a request, which the header `x-request-id` and the log show.
#[derive(Clone, Debug)]
pub struct RequestId(pub String);

/// An endpoint's result.
pub type Answer = Result<Response, ApiError>;

/// Reads a request's body, and works on it in a thread for work that takes long: parsing, templates, encoding. The time of the
/// request includes this work and the wait for a thread. Work that has begun when the time is over runs to its end; its result
/// is dropped.
async fn with_body<T: Send + 'static>(
    app: &Arc<App>,
    request: Request,
    work: impl FnOnce(&App, &Ready, &Body) -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    app.ready()?;
    let id = request.extensions().get::<RequestId>().map_or_else(String::new, |id| id.0.clone());
    let body = body::read(app, request).await?;
    let deadline = body.arrived() + app.options.timeout;
    let shared = Arc::clone(app);
    let work = move || shared.ready().and_then(|ready| work(&shared, ready, &body));
    let mut done = tokio::task::spawn_blocking(work);
    let Ok(done) = timeout_at(deadline.into(), &mut done).await else {
        // Work that has not begun never begins.
        done.abort();
        return Err(timed_out(app.options.timeout));
    };
    done.unwrap_or_else(|error| {
        // The text of a panic is for the log alone: it may have parts of other requests.
        tracing::error!("{id}: a thread that works on requests failed, which is a bug: {error}");
        Err(ApiError::internal("this request met a bug in the server; its log says more"))
    })
}

/// Logs a text of a request, if texts are logged: on one line, so that no text looks like a line of the log.
fn log_text(app: &App, id: &str, what: &str, text: &str) {
    if app.options.log_text {
        tracing::info!("{id}: {what}: {text:?}");
    }
}

/// An `f32` as JSON with as few digits as tell it from its neighbours: 0.95, not 0.949999988.
fn number(value: f32) -> serde_json::Value {
    value.to_string().parse::<f64>().map_or(serde_json::Value::Null, Into::into)
}

/// Checks that a request asks for this model.
fn check_model(ready: &Ready, name: Option<String>) -> Result<(), ApiError> {
    match name {
        Some(name) if !ready.model.names.contains(&name) => {
            let known = ready.model.names.join("`, `");
            let message = format!("there is no model `{name}`; this server has `{known}`");
            let error = ApiError::new(axum::http::StatusCode::NOT_FOUND, "model_not_found", message);
            Err(error.with_param("model"))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::number;

    #[test]
    fn numbers_have_no_digits_that_nobody_wrote() {
        for (value, text) in
            [(0.95, "0.95"), (0.05, "0.05"), (1.0, "1.0"), (1.0 / 3.0, "0.33333334"), (-2.5, "-2.5")]
        {
            assert_eq!(number(value).to_string(), text);
        }
    }
}
