//! Bodies of requests: read within limits of size, memory and time.

use std::sync::Arc;
use std::time::Instant;

use axum::extract::Request;
use axum::http::StatusCode;
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderMap};
use http_body_util::BodyExt;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;

use crate::app::{App, MIN_BODY};
use crate::error::ApiError;

/// Bytes by which the share of a growing body grows.
const SHARE: usize = 64 << 10;

/// A body with its share of the memory for bodies.
pub struct Body {
    bytes: Vec<u8>,
    arrived: Instant,
    _share: OwnedSemaphorePermit,
}

impl Body {
    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// When the last byte had arrived. The request's time (`Options::timeout`) starts then.
    pub fn arrived(&self) -> Instant {
        self.arrived
    }
}

/// Reads a JSON body. It takes memory as its bytes arrive, so that slow clients hold little of it.
///
/// # Errors
/// 415 for another content type, 413 for a body that is too large, 408 for one that does not arrive, 429 if other bodies
/// have the memory.
pub async fn read(app: &App, request: Request) -> Result<Body, ApiError> {
    let most = app.options.body_bytes;
    check_type(request.headers())?;
    let declared = request.headers().get(CONTENT_LENGTH);
    let declared = declared.and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    if declared.is_some_and(|size| size > most as u64) {
        return Err(too_large(most));
    }
    let time = app.options.body_timeout;
    let late = |_| {
        let message = format!("the body did not arrive within {} s", time.as_secs_f64());
        Err(ApiError::new(StatusCode::REQUEST_TIMEOUT, "body_timeout", message))
    };
    timeout(time, receive(app, request.into_body(), most)).await.unwrap_or_else(late)
}

async fn receive(app: &App, mut body: axum::body::Body, most: usize) -> Result<Body, ApiError> {
    let mut share = take(app, MIN_BODY)?;
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| {
            ApiError::request("incomplete_body", format!("the body cannot be read: {error}"))
        })?;
        // Trailers have no data.
        let Ok(data) = frame.into_data() else { continue };
        let size = bytes.len() + data.len();
        if size > most {
            return Err(too_large(most));
        }
        if size > share.num_permits() {
            let room = most.saturating_sub(share.num_permits());
            share.merge(take(app, (size - share.num_permits()).max(SHARE.min(room)))?);
        }
        bytes.extend_from_slice(&data);
    }
    Ok(Body { bytes, arrived: Instant::now(), _share: share })
}

/// Takes memory for a body, or fails: two bodies that waited for each other would both time out.
fn take(app: &App, size: usize) -> Result<OwnedSemaphorePermit, ApiError> {
    let permits = u32::try_from(size).unwrap_or(u32::MAX);
    Arc::clone(&app.bodies).try_acquire_many_owned(permits).map_err(|_| {
        let message = "the memory for bodies of requests is in use; try again later";
        ApiError::new(StatusCode::TOO_MANY_REQUESTS, "bodies_full", message).with_retry_after(1)
    })
}

fn check_type(headers: &HeaderMap) -> Result<(), ApiError> {
    let given = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or("none");
    let kind = given.split(';').next().unwrap_or_default().trim();
    if kind.eq_ignore_ascii_case("application/json") {
        return Ok(());
    }
    let message =
        format!("the content type is {given}; send JSON, with the header `Content-Type: application/json`");
    Err(ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_content_type", message))
}

fn too_large(most: usize) -> ApiError {
    let message = format!("the body has more than {most} bytes, the largest size that this server accepts");
    ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", message)
}
