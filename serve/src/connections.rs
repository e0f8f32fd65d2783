//! Connections: the socket, and HTTP/1.1 on each connection until the server ends.

use std::io;
use std::net::{IpAddr, SocketAddr};
#[cfg(unix)]
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper::service::Service;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
#[cfg(unix)]
use tokio::net::UnixListener;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_io_timeout::TimeoutStream;

use crate::Listen;
use crate::app::App;
use crate::phase::{Phase, begun};

/// Time in which the head of a request after the first one must arrive; an idle connection is closed after it.
const HEAD_TIME: Duration = Duration::from_secs(60);
/// Time in which a client must take some bytes that are sent to it.
const WRITE_TIME: Duration = Duration::from_secs(60);
/// Bytes of a request's head, and of answers that wait for the client.
const BUFFER: usize = 64 << 10;
/// Time after which requests that were ended are given up.
const END_TIME: Duration = Duration::from_secs(5);

/// A connection's two directions.
trait Connection: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Connection for T {}

/// A socket that accepts connections.
pub enum Socket {
    Tcp(TcpListener, SocketAddr),
    #[cfg(unix)]
    Unix(UnixListener, PathBuf),
}

impl Socket {
    /// Opens the socket.
    pub async fn open(listen: &Listen) -> io::Result<Socket> {
        match listen {
            Listen::Tcp { host, port } => {
                // Without brackets, as the system's functions expect IPv6 addresses.
                let host = host.trim_start_matches('[').trim_end_matches(']');
                let listener = TcpListener::bind((host, *port)).await?;
                let address = listener.local_addr()?;
                Ok(Socket::Tcp(listener, address))
            }
            #[cfg(unix)]
            Listen::Unix(path) => {
                remove_stale(path);
                Ok(Socket::Unix(UnixListener::bind(path)?, path.clone()))
            }
        }
    }

    /// Where clients find the server: a URL, or `unix:` and a path.
    pub fn address(&self) -> String {
        match self {
            Socket::Tcp(_, address) => format!("http://{address}"),
            #[cfg(unix)]
            Socket::Unix(_, path) => format!("unix:{}", path.display()),
        }
    }

    /// The address that the socket is bound to; none for a UNIX socket.
    pub fn ip(&self) -> Option<IpAddr> {
        match self {
            Socket::Tcp(_, address) => Some(address.ip()),
            #[cfg(unix)]
            Socket::Unix(..) => None,
        }
    }

    async fn accept(&self) -> io::Result<Box<dyn Connection>> {
        match self {
            Socket::Tcp(listener, _) => {
                let (stream, _) = listener.accept().await?;
                // Tokens are small, and must not wait for each other.
                stream.set_nodelay(true)?;
                Ok(Box::new(stream))
            }
            #[cfg(unix)]
            Socket::Unix(listener, _) => Ok(Box::new(listener.accept().await?.0)),
        }
    }
}

#[cfg(unix)]
impl Drop for Socket {
    fn drop(&mut self) {
        if let Socket::Unix(_, path) = self {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Removes the socket of a server that has ended without removing it.
#[cfg(unix)]
fn remove_stale(path: &Path) {
    use std::os::unix::fs::FileTypeExt;

    let is_socket = std::fs::symlink_metadata(path).is_ok_and(|it| it.file_type().is_socket());
    if is_socket && std::os::unix::net::UnixStream::connect(path).is_err() {
        let _ = std::fs::remove_file(path);
    }
}

/// Serves connections until the server ends: closes the socket when it begins to drain, and returns once no request is
/// left. Requests that take longer than the grace time are ended.
pub async fn serve(socket: Socket, app: Arc<App>, router: Router) {
    let mut phases = app.phases.watch();
    let room = Arc::new(Semaphore::new(app.options.connections));
    let mut connections = JoinSet::new();
    loop {
        count_open(&mut connections);
        let accept = async {
            let place = Arc::clone(&room).acquire_owned().await;
            (socket.accept().await, place)
        };
        let accepted = tokio::select! {
            accepted = accept => accepted,
            () = begun(&mut phases, Phase::Draining) => break,
        };
        match accepted {
            (Ok(stream), place) => {
                let serving = serve_one(stream, Arc::clone(&app), router.clone());
                connections.spawn(async move {
                    serving.await;
                    drop(place);
                });
            }
            // Such as too many open files: it may pass.
            (Err(error), _) => {
                tracing::warn!("cannot accept a connection: {error}");
                sleep(Duration::from_millis(100)).await;
            }
        }
    }
    drop(socket);
    tracing::info!("shutting down; open connections: {}", count_open(&mut connections));
    let grace = app.options.grace;
    let mut ending = app.phases.watch();
    let ended = tokio::select! {
        ended = timeout(grace, join_all(&mut connections)) => ended.is_ok(),
        () = begun(&mut ending, Phase::Ending) => false,
    };
    if !ended {
        let open = count_open(&mut connections);
        tracing::warn!("{} s are over; connections that are ended: {open}", grace.as_secs_f64());
    }
    app.phases.advance(Phase::Ending);
    if timeout(END_TIME, join_all(&mut connections)).await.is_err() {
        let open = count_open(&mut connections);
        tracing::warn!("connections that are given up, because their clients do not read: {open}");
    }
}

/// Number of connections that have not ended. Removes those that have.
fn count_open(connections: &mut JoinSet<()>) -> usize {
    while connections.try_join_next().is_some() {}
    connections.len()
}

async fn join_all(connections: &mut JoinSet<()>) {
    while connections.join_next().await.is_some() {}
}

/// Service that records whether it was called: the head of a request has arrived.
struct RecordCall<S> {
    service: S,
    called: Arc<AtomicBool>,
}

impl<R, S: Service<R>> Service<R> for RecordCall<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn call(&self, request: R) -> S::Future {
        self.called.store(true, Ordering::Relaxed);
        self.service.call(request)
    }
}

/// Counts a connection while it exists, also if a handler panics.
struct Counted(Arc<App>);

impl Counted {
    fn new(app: &Arc<App>) -> Counted {
        app.metrics.connections.inc();
        Counted(Arc::clone(app))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.metrics.connections.dec();
    }
}

async fn serve_one(stream: Box<dyn Connection>, app: Arc<App>, router: Router) {
    let _counted = Counted::new(&app);
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(WRITE_TIME));
    let begun_request = Arc::new(AtomicBool::new(false));
    let service =
        RecordCall { service: TowerToHyperService::new(router), called: Arc::clone(&begun_request) };
    let silent = async {
        sleep(app.options.head_timeout).await;
        if begun_request.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
    };
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME)
        .max_buf_size(BUFFER)
        .serve_connection(TokioIo::new(Box::pin(stream)), service);
    let mut connection = std::pin::pin!(connection);
    let mut phases = app.phases.watch();
    let served = tokio::select! {
        served = connection.as_mut() => served,
        () = silent => {
            tracing::debug!("a connection is closed: its first request did not arrive in time");
            Ok(())
        }
        () = begun(&mut phases, Phase::Draining) => {
            // Closes the connection after the answer that is under way.
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = served {
        tracing::debug!("a connection ended: {error}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn connections_that_have_ended_are_not_open() {
        let mut connections = JoinSet::new();
        connections.spawn(async {});
        connections.spawn(std::future::pending());
        tokio::task::yield_now().await;
        assert_eq!((connections.len(), count_open(&mut connections)), (2, 1));
    }
}
