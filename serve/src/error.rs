//! Errors in the form of OpenAI's API: `{"error": {"message", "type", "param", "code"}}`.

use axum::http::header::{ALLOW, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use bespoke_chat::MessageError;
use serde_json::{Value, json};

/// Header by which OpenAI's clients are told not to repeat a request, whatever its status.
pub const SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");

/// An error that a client gets.
#[derive(Clone, Debug, PartialEq)]
pub struct ApiError {
    status: StatusCode,
    message: String,
    /// Name of the field that is wrong.
    param: Option<String>,
    /// Name of the error, for programs.
    code: &'static str,
    /// Seconds after which the request may succeed.
    retry_after: Option<u64>,
    /// Whether the same request would fail again.
    is_final: bool,
}

impl ApiError {
    /// An error with a name for programs.
    pub fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> ApiError {
        let (param, retry_after) = (None, None);
        ApiError { status, message: message.into(), param, code, retry_after, is_final: false }
    }

    /// The value of a field is wrong (400).
    pub fn field(name: &str, message: impl Into<String>) -> ApiError {
        ApiError { param: Some(name.to_owned()), ..ApiError::request("invalid_value", message) }
    }

    /// The server has no such feature (400).
    pub fn unsupported(name: &str, message: impl Into<String>) -> ApiError {
        ApiError { code: "unsupported", ..ApiError::field(name, message) }
    }

    /// The request is wrong (400).
    pub fn request(code: &'static str, message: impl Into<String>) -> ApiError {
        ApiError::new(StatusCode::BAD_REQUEST, code, message)
    }

    /// The server cannot answer now (503).
    pub fn unavailable(code: &'static str, message: impl Into<String>) -> ApiError {
        ApiError::new(StatusCode::SERVICE_UNAVAILABLE, code, message)
    }

    /// The request took too long (504). Clients shall not repeat it: it would take as long again.
    pub fn timed_out(message: impl Into<String>) -> ApiError {
        ApiError { is_final: true, ..ApiError::new(StatusCode::GATEWAY_TIMEOUT, "timeout", message) }
    }

    /// The server failed (500).
    pub fn internal(message: impl Into<String>) -> ApiError {
        ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "internal_error", message)
    }

    /// The error with the name of the field that is wrong.
    pub fn with_param(self, name: &str) -> ApiError {
        ApiError { param: Some(name.to_owned()), ..self }
    }

    /// The error with another name for programs.
    pub fn with_code(self, code: &'static str) -> ApiError {
        ApiError { code, ..self }
    }

    /// The error with the number of seconds after which the request may succeed.
    pub fn with_retry_after(self, seconds: u64) -> ApiError {
        ApiError { retry_after: Some(seconds), ..self }
    }

    /// Name of the error, for programs.
    pub fn code(&self) -> &'static str {
        self.code
    }

    /// Name of the field that is wrong, if one is. A field that is not known has the name that the client gave it.
    pub fn param(&self) -> Option<&str> {
        self.param.as_deref()
    }

    /// The error's text.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The error as JSON.
    pub fn json(&self) -> Value {
        let kind = match self.status {
            StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
            StatusCode::UNAUTHORIZED => "authentication_error",
            status if status.is_client_error() => "invalid_request_error",
            _ => "server_error",
        };
        let ApiError { message, param, code, .. } = self;
        json!({"error": {"message": message, "type": kind, "param": param, "code": code}})
    }
}

impl From<MessageError> for ApiError {
    fn from(error: MessageError) -> ApiError {
        let MessageError { field, message, is_unsupported } = error;
        if is_unsupported { ApiError::unsupported(&field, message) } else { ApiError::field(&field, message) }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = (self.status, self.json().to_string()).into_response();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(seconds) = self.retry_after {
            headers.insert(RETRY_AFTER, seconds.into());
        }
        if self.is_final {
            headers.insert(SHOULD_RETRY, HeaderValue::from_static("false"));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response.extensions_mut().insert(self);
        response
    }
}

/// The answer to a method that a path does not have, with the methods that it has.
pub fn method_not_allowed(method: &str, path: &str, allowed: &[&'static str]) -> Response {
    let allowed = allowed.join(", ");
    let message = format!("{path} has no method {method}; it has {allowed}");
    let error = ApiError::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", message);
    let mut response = error.into_response();
    if let Ok(value) = HeaderValue::from_str(&allowed) {
        response.headers_mut().insert(ALLOW, value);
    }
    response
}
