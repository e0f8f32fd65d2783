//! Paths, and what every request passes: its id, its key, and the log.

use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::extract::{MatchedPath, Request, State};
use axum::http::header::{AUTHORIZATION, HOST};
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get, post};

use crate::api::{RequestId, chat, completions, info, page, responses, tokens};
use crate::app::App;
use crate::cors;
use crate::error::{ApiError, SHOULD_RETRY, method_not_allowed};
use crate::random;

/// Header with a request's id.
const ID: HeaderName = HeaderName::from_static("x-request-id");

/// Paths that need no key.
const PUBLIC: [&str; 4] = ["/health", "/", "/page.css", "/page.js"];

/// The server's paths with their methods.
///
/// # Errors
/// If an origin of the options is not one. The error names it.
pub fn router(app: &Arc<App>) -> Result<Router, String> {
    let read = |path, handler: MethodRouter<Arc<App>>| (path, only(handler, &["GET", "HEAD"]));
    let write = |path, handler: MethodRouter<Arc<App>>| (path, only(handler, &["POST"]));
    let routes = [
        write("/v1/chat/completions", post(chat::chat)),
        write("/v1/completions", post(completions::completions)),
        read("/v1/models", get(info::models)),
        // Names of models may have slashes.
        read("/v1/models/{*name}", get(info::one_model)),
        write("/v1/responses", post(responses::responses)),
        write("/tokenize", post(tokens::tokenize)),
        write("/detokenize", post(tokens::detokenize)),
        read("/health", get(info::health)),
        read("/metrics", get(info::metrics)),
        read("/props", get(info::props)),
    ];
    let pages = page::FILES.map(|(path, kind, text)| read(path, get(async move || page::file(kind, text))));
    // The error for an unknown path names the page, not its files.
    let paths: Vec<&str> = routes.iter().map(|(path, _)| *path).chain(["/"]).collect();
    let paths = paths.join(", ").replace("{*name}", "NAME");
    let routes = routes.into_iter().chain(pages);
    let router =
        routes.into_iter().fold(Router::new(), |router, (path, handler)| router.route(path, handler));
    let router = router
        .fallback(async move |request: Request| not_found(&request, &paths))
        .layer(from_fn_with_state(Arc::clone(app), authorize))
        .layer(from_fn_with_state(Arc::clone(app), check_host))
        .layer(from_fn_with_state(Arc::clone(app), observe));
    let router = match cors::layer(&app.options.origins, [ID, SHOULD_RETRY])? {
        Some(cors) => router.layer(cors),
        None => router,
    };
    Ok(router.with_state(Arc::clone(app)))
}

/// A path's handler, with an error for other methods.
fn only(handler: MethodRouter<Arc<App>>, allowed: &'static [&'static str]) -> MethodRouter<Arc<App>> {
    handler.fallback(move |request: Request| async move {
        method_not_allowed(request.method().as_str(), request.uri().path(), allowed)
    })
}

fn not_found(request: &Request, paths: &str) -> ApiError {
    let message = format!("there is no path {}; paths are {paths}", request.uri().path());
    ApiError::new(StatusCode::NOT_FOUND, "not_found", message)
}

/// Refuses requests for other hosts (403).
async fn check_host(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let header = || request.headers().get(HOST).map(|value| value.to_str().unwrap_or_default());
    // A browser always tells the host.
    match request.uri().host().or_else(header) {
        Some(host) if !app.hosts.allow(host) => {
            let message =
                format!("this server does not answer for the host `{host}`: --allow-host NAME allows it");
            ApiError::new(StatusCode::FORBIDDEN, "host_not_allowed", message).into_response()
        }
        _ => next.run(request).await,
    }
}

/// Refuses requests without a key (401).
async fn authorize(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let keys = &app.options.keys;
    if keys.is_empty() || PUBLIC.contains(&request.uri().path()) {
        return next.run(request).await;
    }
    let given = request.headers().get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    let key = given.and_then(|given| {
        let (scheme, key) = given.split_once(' ')?;
        scheme.eq_ignore_ascii_case("Bearer").then_some(key.trim())
    });
    let message = match key {
        Some(key) if keys.contain(key) => return next.run(request).await,
        Some(_) => "the API key is not known to this server",
        None => "an API key is needed: send the header `Authorization: Bearer KEY`",
    };
    ApiError::new(StatusCode::UNAUTHORIZED, "invalid_api_key", message).into_response()
}

/// Code of an error and the field that is wrong, for the log. A field that is not known has a name that the client chose: it is
/// a text of the request.
fn code_and_field(app: &App, error: &ApiError) -> String {
    let code = error.code();
    match error.param() {
        Some(field) if code != "unknown_field" => format!("{code}: {field}"),
        Some(field) if app.options.log_text => format!("{code}: {field:?}"),
        _ => code.to_owned(),
    }
}

/// Gives a request its id, counts its answer, and logs it.
async fn observe(State(app): State<Arc<App>>, mut request: Request, next: Next) -> Response {
    let id = random::id();
    request.extensions_mut().insert(RequestId(id.clone()));
    let method = request.method().clone();
    // Paths that do not exist are counted as one.
    let path = request.extensions().get::<MatchedPath>().map_or("other", MatchedPath::as_str).to_owned();
    let start = Instant::now();
    let mut response = next.run(request).await;
    let status = response.status();
    app.metrics.answered(&path, status.as_u16());
    let seconds = start.elapsed().as_secs_f64();
    match response.extensions().get::<ApiError>() {
        // Proxies ask often, and 503 is what they are told while the server loads or ends.
        _ if path == "/health" => tracing::debug!("{id}: {method} {path}: {status}"),
        Some(error) if status.is_server_error() => {
            tracing::warn!("{id}: {method} {path}: {status} after {seconds:.3} s: {}", error.message());
        }
        Some(error) => tracing::info!("{id}: {method} {path}: {status}: {}", code_and_field(&app, error)),
        None => tracing::debug!("{id}: {method} {path}: {status} after {seconds:.3} s"),
    }
    if let Ok(value) = HeaderValue::from_str(&id) {
        response.headers_mut().insert(ID, value);
    }
    response
}
