//! HTTP client: requests with JSON, and answers as a whole or as server-sent events.

use std::collections::HashSet;
use std::error::Error;
use std::io;
use std::iter::successors;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE};
use hyper::http::Extensions;
use hyper::{Method, Request, Response, Uri};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::{HttpConnector, HttpInfo};
use hyper_util::rt::TokioExecutor;
use tokio::time::timeout;

use crate::LoadError;
use crate::events::EventParser;

/// Largest number of characters of an answer that an error message shows.
const SHOWN: usize = 300;

/// A URL that the client cannot use.
#[derive(Debug, thiserror::Error)]
pub enum UrlError {
    /// The text is not a URL with a host.
    #[error("`{0}` is not the URL of a server; write http://HOST:PORT")]
    Invalid(String),
    /// The URL has another scheme.
    #[error("`{0}` does not begin with http://; for https, run the load generator behind the proxy")]
    Scheme(String),
}

/// Why a request got no complete answer.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The server cannot be reached, or closed the connection before the answer.
    #[error("{url}: {reason}")]
    Send {
        /// URL of the request.
        url: String,
        /// The client's error with its causes.
        reason: String,
    },
    /// The connection ended within the answer.
    #[error("the answer broke off: {0}")]
    Broken(String),
    /// There was no complete answer in time.
    #[error("no complete answer after {} s: the request is stuck", .0.as_secs_f64())]
    Stuck(Duration),
}

/// Client of one server. Clones share idle connections.
#[derive(Clone, Debug)]
pub struct Client {
    http: legacy::Client<HttpConnector, Full<Bytes>>,
    /// Local addresses of connections that have brought an answer.
    kept: Arc<Mutex<HashSet<SocketAddr>>>,
    base: String,
    key: Option<String>,
    /// Time after which a request is stuck.
    limit: Duration,
}

/// A whole answer.
#[derive(Clone, Debug)]
pub(crate) struct Reply {
    pub status: u16,
    /// Seconds after which the server asks to try again.
    pub retry_after: Option<u64>,
    pub body: String,
}

impl Reply {
    /// The start of the body, for messages.
    pub fn shown(&self) -> &str {
        let end = self.body.char_indices().nth(SHOWN).map_or(self.body.len(), |(at, _)| at);
        self.body[..end].trim_end()
    }
}

impl Client {
    /// A client of the server at `url`, whose requests carry an API key if there is one. A request without a complete
    /// answer after `limit` is stuck.
    ///
    /// # Errors
    /// If `url` is not an `http://` URL.
    pub fn new(url: &str, key: Option<String>, limit: Duration) -> Result<Client, UrlError> {
        let full = if url.contains("://") { url.to_owned() } else { format!("http://{url}") };
        let uri: Uri = full.parse().map_err(|_| UrlError::Invalid(url.to_owned()))?;
        if uri.scheme_str() != Some("http") {
            return Err(UrlError::Scheme(url.to_owned()));
        }
        if uri.host().is_none_or(str::is_empty) {
            return Err(UrlError::Invalid(url.to_owned()));
        }
        // Clients of OpenAI's API are given a URL that ends with the version.
        let base = full.trim_end_matches('/').trim_end_matches("/v1").to_owned();
        Ok(Client { http: http(limit), kept: Arc::default(), base, key, limit })
    }

    /// A client of the same server that shares no connections with this one.
    pub(crate) fn with_own_connections(&self) -> Client {
        Client { http: http(self.limit), kept: Arc::default(), ..self.clone() }
    }

    /// URL of the server, without a path.
    pub fn url(&self) -> &str {
        &self.base
    }

    /// Time after which a request is stuck.
    pub(crate) fn limit(&self) -> Duration {
        self.limit
    }

    /// Sends a request, and returns the head of its answer. The server may close an idle connection at any time; a request that
    /// was lost with one is sent again on a new connection.
    pub(crate) async fn open(
        &self,
        method: &str,
        path: &str,
        content_type: &str,
        body: String,
    ) -> Result<Response<Incoming>, Failure> {
        let url = format!("{}{path}", self.base);
        let failure = |reason: String| Failure::Send { url: url.clone(), reason };
        let method = Method::from_bytes(method.as_bytes()).map_err(|error| failure(error.to_string()))?;
        let mut request = Request::builder().method(method).uri(&url);
        if !content_type.is_empty() {
            request = request.header(CONTENT_TYPE, content_type);
        }
        if let Some(key) = &self.key {
            request = request.header(AUTHORIZATION, format!("Bearer {key}"));
        }
        let request = request.body(Full::new(Bytes::from(body)));
        let request = request.map_err(|error| failure(error.to_string()))?;
        let answer = match self.http.request(request.clone()).await {
            Err(error) if is_closed(&error) && self.was_kept(&error) => {
                http(self.limit).request(request).await
            }
            answer => answer,
        };
        let response = answer.map_err(|error| failure(causes(&error)))?;
        if let Some(connection) = response.extensions().get::<HttpInfo>() {
            self.lock_kept().insert(connection.local_addr());
        }
        Ok(response)
    }

    /// Whether the connection of a request that failed had brought an answer before.
    fn was_kept(&self, error: &legacy::Error) -> bool {
        let mut facts = Extensions::new();
        error.connect_info().inspect(|connection| connection.get_extras(&mut facts));
        facts.get::<HttpInfo>().is_some_and(|connection| self.lock_kept().remove(&connection.local_addr()))
    }

    fn lock_kept(&self) -> MutexGuard<'_, HashSet<SocketAddr>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a request, and returns its whole answer.
    pub(crate) async fn send(
        &self,
        method: &str,
        path: &str,
        content_type: &str,
        body: String,
    ) -> Result<Reply, Failure> {
        let answer = async { whole(self.open(method, path, content_type, body).await?).await };
        timeout(self.limit, answer).await.unwrap_or(Err(Failure::Stuck(self.limit)))
    }

    /// The body of a GET that must succeed.
    pub(crate) async fn get(&self, path: &str) -> Result<String, LoadError> {
        succeeded(path, self.send("GET", path, "", String::new()).await?)
    }

    /// The body of the answer to a POST with JSON that must succeed.
    pub(crate) async fn post(&self, path: &str, body: String) -> Result<String, LoadError> {
        succeeded(path, self.send("POST", path, "application/json", body).await?)
    }
}

fn http(limit: Duration) -> legacy::Client<HttpConnector, Full<Bytes>> {
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    connector.set_connect_timeout(Some(limit));
    legacy::Client::builder(TokioExecutor::new()).build(connector)
}

fn succeeded(path: &str, reply: Reply) -> Result<String, LoadError> {
    if reply.status == 200 {
        return Ok(reply.body);
    }
    let body = reply.shown().to_owned();
    Err(LoadError::Refused { path: path.to_owned(), status: reply.status, body })
}

/// Reads the rest of an answer.
pub(crate) async fn whole(response: Response<Incoming>) -> Result<Reply, Failure> {
    let status = response.status().as_u16();
    let retry_after = response.headers().get("retry-after");
    let retry_after = retry_after.and_then(|value| value.to_str().ok()?.parse().ok());
    let body = response.into_body().collect().await.map_err(|error| Failure::Broken(causes(&error)))?;
    let body = String::from_utf8_lossy(&body.to_bytes()).into_owned();
    Ok(Reply { status, retry_after, body })
}

/// An error and its causes.
fn chain<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    successors(Some(error), |&error| error.source())
}

/// The text of an error with its causes.
fn causes(error: &(dyn Error + 'static)) -> String {
    let texts: Vec<String> = chain(error).map(ToString::to_string).collect();
    texts.join(": ")
}

/// Whether the connection was closed before the head of the answer.
fn is_closed(error: &legacy::Error) -> bool {
    chain(error).any(|cause| {
        let by_http = cause.downcast_ref::<hyper::Error>();
        by_http.is_some_and(|it| it.is_incomplete_message() || it.is_closed() || it.is_canceled())
            || cause.downcast_ref::<io::Error>().is_some()
    })
}

/// Server-sent events of an answer, as they arrive. Dropping it before the end closes the connection.
pub(crate) struct Events {
    body: Incoming,
    parser: EventParser,
}

impl Events {
    /// The events of an answer.
    pub fn new(response: Response<Incoming>) -> Events {
        Events { body: response.into_body(), parser: EventParser::default() }
    }

    /// The data of the next event; none at the end.
    pub async fn next(&mut self) -> Result<Option<String>, Failure> {
        loop {
            if let Some(data) = self.parser.next() {
                return Ok(Some(data));
            }
            match self.body.frame().await {
                None => return Ok(None),
                Some(Err(error)) => return Err(Failure::Broken(causes(&error))),
                Some(Ok(frame)) => {
                    if let Some(bytes) = frame.data_ref() {
                        self.parser.push(bytes);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::net::TcpListener;

    use super::*;

    /// A server that answers the given number of requests on each connection; it reads one more and closes the connection.
    fn server(answers: &'static [usize]) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        std::thread::spawn(move || {
            for &count in answers {
                let mut lines = BufReader::new(listener.accept().unwrap().0);
                for index in 0..=count {
                    let mut line = String::new();
                    while line != "\r\n" {
                        line.clear();
                        if lines.read_line(&mut line).unwrap() == 0 {
                            return;
                        }
                    }
                    if index < count {
                        lines.get_mut().write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").unwrap();
                    }
                }
            }
        });
        address
    }

    /// Waits until the client keeps the connection of its last answer; a request before that opens another one. With a
    /// runtime of one thread, the connection's task runs now.
    async fn settle() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }

    #[test]
    fn a_request_that_was_lost_with_a_kept_connection_is_sent_again_once() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let client = |answers| Client::new(&server(answers), None, Duration::from_secs(20)).unwrap();
            let kept = client(&[2, 1]);
            for _ in 0..3 {
                assert_eq!(kept.get("/metrics").await.unwrap(), "ok");
                settle().await;
            }
            // The server closes the new connection, too.
            let twice = client(&[1, 0, 1]);
            assert!(twice.get("/").await.is_ok());
            settle().await;
            assert!(twice.get("/").await.is_err());
            // A connection that has brought nothing.
            let error = client(&[0, 1]).get("/").await.unwrap_err();
            assert!(error.to_string().contains("connection"), "{error}");
        });
    }

    #[test]
    fn urls_are_checked_and_may_lack_the_scheme_and_have_the_version() {
        let client = |url: &str| Client::new(url, None, Duration::from_secs(1));
        for (url, base) in [
            ("http://localhost:8080", "http://localhost:8080"),
            ("localhost:8080", "http://localhost:8080"),
            ("http://127.0.0.1:1/v1/", "http://127.0.0.1:1"),
        ] {
            assert_eq!(client(url).unwrap().url(), base);
        }
        assert!(matches!(client("https://api.example/v1"), Err(UrlError::Scheme(_))));
        assert!(matches!(client("http://a b"), Err(UrlError::Invalid(_))));
        assert!(matches!(client(""), Err(UrlError::Invalid(_))));
    }
}
