//! A request's body that has to come in time.
//!
//! [`in_time`] gives a request a body that fails once nothing of it has come for a while, once the whole has taken too
//! long, or when the server ends. What reads the body then answers that it cannot, and the connection is closed.
//!
//! Invariants: whoever is not logged in holds a connection with a body for [`LOG_IN_TIME_MAX`] at most, however he
//! sends it. A server that ends waits for no body. A request whose body has come is not limited here.
//!
//! Source: `docs/reference/server.md`.

use std::io;
use std::time::Duration;

use axum::Error;
use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use cleave_media::Stopwatch;
use futures::{Stream, StreamExt, stream};

use super::HttpState;
use crate::serve::postgres::interrupt::Phase;

/// Time for the body of a log-in, which anybody may send.
const LOG_IN_TIME_MAX: Duration = Duration::from_secs(10);
/// Longest time in which a user sends nothing of a body.
const STALL_TIME_MAX: Duration = Duration::from_secs(30);

/// How long a body may take.
#[derive(Debug, Clone)]
pub(crate) struct Arrival {
    http: HttpState,
    limits: Limits,
}

#[derive(Debug, Clone, Copy)]
struct Limits {
    /// From one part to the next.
    part: Duration,
    whole: Duration,
}

impl Arrival {
    /// That of a log-in.
    pub(crate) fn of_log_in(http: &HttpState) -> Self {
        let limits = Limits { part: LOG_IN_TIME_MAX, whole: LOG_IN_TIME_MAX };
        Self { http: http.clone(), limits }
    }

    /// That of a request of somebody who is logged in.
    pub(crate) fn of_user(http: &HttpState) -> Self {
        Self { http: http.clone(), limits: Limits { part: STALL_TIME_MAX, whole: Duration::MAX } }
    }
}

/// Passes a request on, with a body that comes in time or fails.
pub(crate) async fn in_time(
    State(arrival): State<Arrival>,
    request: Request,
    next: Next,
) -> Response {
    if request.body().is_end_stream() {
        return next.run(request).await;
    }
    let Arrival { http, limits } = arrival;
    let ends = async move { http.comes_to(Phase::Draining).await };
    next.run(request.map(|body| Body::from_stream(limited(body, limits, ends)))).await
}

/// The parts of `body`, and an error in place of one that is late, or that comes after `ends`.
fn limited(
    body: Body,
    limits: Limits,
    ends: impl Future<Output = ()> + Send + 'static,
) -> impl Stream<Item = Result<Bytes, Error>> + Send + 'static {
    let began = Stopwatch::start();
    stream::unfold(Some((body.into_data_stream(), Box::pin(ends))), move |left| {
        let limit = limits.part.min(limits.whole.saturating_sub(began.elapsed()));
        async move {
            let (mut parts, mut ends) = left?;
            let part = tokio::select! {
                part = parts.next() => part?,
                () = tokio::time::sleep(limit) => Err(late("its rest did not come in time")),
                () = &mut ends => Err(late("the server ends")),
            };
            let left = part.is_ok().then_some((parts, ends));
            Some((part, left))
        }
    })
}

fn late(why: &'static str) -> Error {
    Error::new(io::Error::new(io::ErrorKind::TimedOut, why))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Its parts until it ends or fails: their bytes, and whether it failed.
    async fn read(
        body: Body,
        limits: Limits,
        ends: impl Future<Output = ()> + Send + 'static,
    ) -> (usize, bool) {
        let mut parts = Box::pin(limited(body, limits, ends));
        let mut count = 0;
        while let Some(part) = parts.next().await {
            match part {
                Ok(bytes) => count += bytes.len(),
                Err(_) => return (count, true),
            }
        }
        (count, false)
    }

    #[tokio::test]
    async fn a_body_comes_in_time_or_fails() {
        let part = || Ok::<_, Error>(Bytes::from_static(b"{ "));
        let parts = |count: usize| stream::repeat_with(part).take(count);
        let never = std::future::pending::<()>;
        let (short, long) = (Duration::from_millis(20), Duration::MAX);
        let whole = Body::from_stream(parts(3));
        assert_eq!(read(whole, Limits { part: long, whole: long }, never()).await, (6, false));
        let stalls = || Body::from_stream(parts(1).chain(stream::pending()));
        assert_eq!(read(stalls(), Limits { part: short, whole: long }, never()).await, (2, true));
        // One that never stops to send is late, too.
        let drips = stream::repeat_with(part).then(|part| async move {
            tokio::time::sleep(Duration::from_millis(1)).await;
            part
        });
        let drips = Body::from_stream(drips);
        assert!(read(drips, Limits { part: long, whole: short }, never()).await.1);
        let ended = std::future::ready(());
        assert!(read(stalls(), Limits { part: long, whole: long }, ended).await.1);
    }
}
