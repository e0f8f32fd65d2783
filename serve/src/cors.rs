//! What web pages of other origins may do (CORS).

use axum::http::header::RETRY_AFTER;
use axum::http::{HeaderName, HeaderValue, Method, Uri};
use tower_http::cors::{AllowHeaders, AllowOrigin, CorsLayer};

/// The layer that allows origins; none without origins.
///
/// # Errors
/// If an origin is not one, so that no browser would ever send it. The error names it.
pub fn layer(origins: &[String], exposed: [HeaderName; 2]) -> Result<Option<CorsLayer>, String> {
    let values: Result<Vec<HeaderValue>, String> =
        origins.iter().filter(|&origin| origin != "*").map(|origin| checked(origin)).collect();
    let values = values?;
    if origins.is_empty() {
        return Ok(None);
    }
    let allowed = if values.len() < origins.len() { AllowOrigin::any() } else { AllowOrigin::list(values) };
    let [id, should_retry] = exposed;
    let layer = CorsLayer::new()
        .allow_origin(allowed)
        .allow_methods([Method::GET, Method::POST])
        // Clients send headers of their own, such as `x-stainless-os`. Without a key in the page none of them gives it more.
        .allow_headers(AllowHeaders::mirror_request())
        .expose_headers([id, should_retry, RETRY_AFTER]);
    Ok(Some(layer))
}

/// An origin as a browser sends it: a scheme and a host in lower case, and a port unless it is the scheme's.
fn checked(origin: &str) -> Result<HeaderValue, String> {
    let wrong = |reason: &str| {
        format!(
            "`{origin}` is not an origin: {reason}; an origin is like https://chat.example or http://localhost:3000"
        )
    };
    // Pages of files and of sandboxes.
    if origin == "null" {
        return Ok(HeaderValue::from_static("null"));
    }
    let uri: Uri = origin.parse().map_err(|_| wrong("it is not a URL"))?;
    let (Some(scheme), Some(authority)) = (uri.scheme_str(), uri.authority()) else {
        return Err(wrong("it has no scheme, such as https://"));
    };
    let whole = format!("{scheme}://{authority}");
    if whole != origin {
        return Err(wrong("something follows the host; leave it out"));
    }
    if origin != origin.to_ascii_lowercase() || authority.as_str().contains('@') {
        return Err(wrong("browsers send the host alone, in lower case"));
    }
    if let ("https", Some(443)) | ("http", Some(80)) = (scheme, uri.port_u16()) {
        return Err(wrong("browsers leave out the scheme's own port"));
    }
    HeaderValue::from_str(origin).map_err(|_| wrong("it has characters that headers cannot have"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_has_the_form_in_which_browsers_send_it() {
        for origin in [
            "https://chat.example",
            "http://localhost:3000",
            "http://[::1]:8080",
            "null",
            "app://obsidian.md",
        ] {
            assert_eq!(checked(origin).unwrap(), origin);
        }
        for (origin, reason) in [
            ("chat.example", "no scheme"),
            ("https://chat.example/", "something follows the host"),
            ("https://chat.example/page", "something follows the host"),
            ("https://Chat.example", "lower case"),
            ("https://me@chat.example", "the host alone"),
            ("https://chat.example:443", "own port"),
            ("https://a b", "not a URL"),
            ("", "not a URL"),
        ] {
            let error = checked(origin).unwrap_err();
            assert!(error.contains(reason), "{origin}: {error}");
        }
    }
}
