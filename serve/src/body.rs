//! Bodies of requests: read within limits of size, memory and time.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderMap};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;

use crate::app::{App, LEAST_BODY};
use crate::error::ApiError;

/// Time in which a body must have arrived.
const TIME: Duration = Duration::from_secs(30);

/// A body with its share of the memory for bodies.
pub struct Body {
    bytes: Bytes,
    _share: OwnedSemaphorePermit,
}

impl Body {
    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// Reads a JSON body. Waits until there is memory for it.
///
/// # Errors
/// 415 for another content type, 413 for a body that is too large, 408 for one that does not arrive.
pub async fn read(app: &App, request: Request) -> Result<Body, ApiError> {
    let most = app.options.body_bytes;
    check_type(request.headers())?;
    let declared = request.headers().get(CONTENT_LENGTH);
    let declared = declared.and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    let size = match declared {
        Some(size) if size > most as u64 => return Err(too_large(most)),
        Some(size) => size as usize,
        None => most,
    };
    let late =
        || ApiError::new(StatusCode::REQUEST_TIMEOUT, "body_timeout", "the body did not arrive in time");
    let arrive = async {
        let share = u32::try_from(size.max(LEAST_BODY)).unwrap_or(u32::MAX);
        let share = Arc::clone(&app.bodies).acquire_many_owned(share).await;
        let share = share.map_err(|_| ApiError::internal("the memory for bodies is gone"))?;
        match Limited::new(request.into_body(), most).collect().await {
            Ok(body) => Ok(Body { bytes: body.to_bytes(), _share: share }),
            Err(error) if error.is::<LengthLimitError>() => Err(too_large(most)),
            Err(error) => {
                Err(ApiError::request("incomplete_body", format!("the body cannot be read: {error}")))
            }
        }
    };
    timeout(TIME, arrive).await.unwrap_or_else(|_| Err(late()))
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
