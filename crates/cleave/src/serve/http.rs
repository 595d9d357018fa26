//! The server's second listener (`--http`): health and readiness for whoever watches it, metrics for its users.
//!
//! ```text
//!  TcpListener ─▶ TLS, unless on loopback ─▶ HTTP/1 ─▶ router ─┬─▶ /health, /ready        (everybody)
//!       │ one thread of its own                               └─▶ login::guard ─▶ /metrics, what else joins it
//!       └── when the server ends: requests that run may end, idle connections are closed
//! ```
//! 1. [`router`] says which address is answered by what; other parts of the server add theirs there.
//! 2. [`login`] lets the database's users in, by HTTP's Basic authentication.
//! 3. [`health`] answers whether the process lives and can be used, [`metrics`] with its figures in
//!    [`exposition`] format.
//! 4. [`head`] refuses a request that names no host, or two, and one with a head that is too long.
//! 5. [`patience`] ends an answer that its reader does not take, and [`arrival`] a body that does not come.
//!
//! Invariants: what other machines can reach is behind TLS and passwords, by the same rule as PostgreSQL's protocol
//! ([`options::check`](super::options::check)). A request has a bounded head, time to send it, and body; connections
//! are bounded, and one more displaces an old one of the address that has most. Figures are read when they are asked
//! for: nothing is counted for them while statements run.
//!
//! Source: RFC 9110 and RFC 9112; `docs/reference/server.md`.

pub(crate) mod arrival;
mod exposition;
mod head;
mod health;
pub(crate) mod login;
mod metrics;
mod patience;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{DefaultBodyLimit, Request};
use axum::http::{HeaderValue, header};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::Response;
use axum::routing::get;
use axum::{Extension, Router};
use cleave_media::MediaError;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::Server;
use super::admission::{Stranger, Strangers};
use super::postgres::interrupt::Phase;
use patience::{Patient, STALL_TIME_MAX};

/// Connections at a time. A browser opens six.
const CONNECTION_COUNT_MAX: usize = 256;
/// Time for the TLS handshake, for the head of a request, and between requests.
const HEAD_TIME_MAX: Duration = Duration::from_secs(10);
/// Bytes of a request's head.
const HEAD_BYTES_MAX: usize = 32 << 10;
/// Headers of a request.
const HEADER_COUNT_MAX: usize = 64;
/// Bytes of a request's body.
pub(crate) const BODY_BYTES_MAX: usize = 1 << 20;

/// What requests are answered from.
#[derive(Debug, Clone)]
pub(crate) struct HttpState {
    /// The server, with its database.
    pub(crate) server: Arc<Server>,
    proofs: Arc<login::Proofs>,
    devices: Arc<health::Known>,
}

/// A listener that is not yet served.
#[derive(Debug)]
pub(crate) struct Bound {
    /// Bound, in non-blocking mode.
    pub(crate) listener: std::net::TcpListener,
    /// Where it listens.
    pub(crate) address: SocketAddr,
}

/// Whose request it is, as far as his connection tells.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Peer {
    /// Where he connects from.
    pub(crate) address: IpAddr,
    /// What he has connected to.
    pub(crate) listener: &'static str,
}

/// See [`answering`].
type Answering<S> = http1::Connection<TokioIo<S>, TowerToHyperService<Router>>;

impl HttpState {
    /// For `server`.
    ///
    /// # Errors
    /// The system gives no random bytes.
    pub(crate) fn new(server: &Arc<Server>) -> Result<Self, MediaError> {
        let proofs = Arc::new(login::Proofs::new()?);
        Ok(Self { server: Arc::clone(server), proofs, devices: Arc::default() })
    }

    /// Waits until the server has come to `phase` of its end. An answer without an end has to wait for
    /// [`Phase::Draining`] beside its work, and to end then.
    pub(crate) async fn comes_to(&self, phase: Phase) {
        let mut phases = self.server.phase.subscribe();
        // An error would mean that there is no server any more.
        drop(phases.wait_for(|now| *now >= phase).await);
    }
}

impl Bound {
    /// Whether other machines can reach it.
    pub(crate) fn is_reachable(&self) -> bool {
        !self.address.ip().is_loopback()
    }
}

/// Which address is answered by what.
pub(crate) fn router(state: HttpState) -> Router {
    let for_users = Router::new()
        .route("/metrics", get(metrics::metrics))
        .layer(from_fn_with_state(state.clone(), login::guard));
    Router::new()
        .route("/health", get(health::alive))
        .route("/ready", get(health::ready))
        .merge(for_users)
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .layer(from_fn(with_headers))
        .with_state(state)
}

/// Adds what every answer says besides its content: it is for its reader alone.
pub(crate) async fn with_headers(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    for (name, value) in [
        (header::CACHE_CONTROL, "no-store"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
    ] {
        headers.entry(name).or_insert(HeaderValue::from_static(value));
    }
    response
}

/// Serves what connects, by `router`, until the server ends. The log calls it `name`.
pub(super) async fn serve(state: HttpState, router: Router, bound: Bound, name: &'static str) {
    let server = Arc::clone(&state.server);
    let is_reachable = bound.is_reachable();
    let listener = match TcpListener::from_std(bound.listener) {
        Ok(listener) => listener,
        Err(error) => return server.log(&format!("cannot listen for HTTP: {error}")),
    };
    let strangers = Strangers::new(CONNECTION_COUNT_MAX);
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = state.comes_to(Phase::Draining) => break,
            Some(ended) = connections.join_next(), if !connections.is_empty() => {
                server.note(ended);
                continue;
            }
        };
        match accepted {
            Ok((stream, peer)) => {
                super::prepare_stream(&stream);
                patience::bound(&stream);
                let stranger = strangers.enter(peer.ip());
                let from = Peer { address: peer.ip(), listener: name };
                let router = router.clone().layer(Extension(from));
                let serve = connection(state.clone(), router, stream, is_reachable);
                connections.spawn(until_sent_away(stranger, serve));
            }
            Err(error) => {
                server.log(&format!("cannot accept an HTTP connection: {error}"));
                strangers.make_room();
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
    drop(listener);
    let all_ended = async {
        while let Some(ended) = connections.join_next().await {
            server.note(ended);
        }
    };
    tokio::select! {
        () = all_ended => {}
        () = state.comes_to(Phase::Stopping) => {}
    }
}

async fn until_sent_away(mut stranger: Stranger, serve: impl Future<Output = ()>) {
    let serve = Box::pin(serve);
    tokio::select! {
        () = serve => {}
        () = stranger.sent_away() => {}
    }
}

async fn connection(state: HttpState, router: Router, stream: TcpStream, is_reachable: bool) {
    let stream = Patient::new(stream, STALL_TIME_MAX);
    if !is_reachable {
        return speak(&state, router, stream).await;
    }
    let Some(tls) = &state.server.tls else { return };
    if let Ok(Ok(stream)) = tokio::time::timeout(HEAD_TIME_MAX, tls.accept(stream)).await {
        speak(&state, router, stream).await;
    }
}

/// Answers one request after the other, until the server ends.
async fn speak<S>(state: &HttpState, router: Router, stream: S)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut connection = std::pin::pin!(answering(router, stream));
    tokio::select! {
        // A client that breaks the protocol, or off, is none of the operator's business.
        ended = connection.as_mut() => return drop(ended),
        () = state.comes_to(Phase::Draining) => {}
    }
    connection.as_mut().graceful_shutdown();
    drop(connection.await);
}

/// A connection that answers one request after the other, within its limits.
fn answering<S>(router: Router, stream: S) -> Answering<S>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME_MAX)
        .max_headers(HEADER_COUNT_MAX)
        .max_buf_size(HEAD_BYTES_MAX)
        .serve_connection(
            TokioIo::new(stream),
            TowerToHyperService::new(router.layer(from_fn(head::judged))),
        )
}
