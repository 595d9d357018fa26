//! Cancels statements from outside, up to the point where they begin to commit.
//!
//! 1. [`unless`] runs a statement until it ends or a stop event comes: a timeout, a cancellation, or a lost client.
//! 2. [`begin`] marks, within it, the point of no return: the statement's record is passed to the log, or its manifest
//!    is being replaced. From then on it is not cancelled before the outcome is known.
//!
//! Invariant: no client is told that a statement was cancelled whose effect may persist. PostgreSQL also holds
//! interrupts back while a commit waits for its log.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::future::{Either, select};
use tokio::task::unconstrained;

tokio::task_local! {
    /// Whether the running statement has begun to commit.
    static BEGUN: Arc<AtomicBool>;
}

/// From here on the statement is not cancelled.
pub fn begin() {
    // Outside of `unless` nothing cancels it.
    BEGUN.try_with(|begun| begun.store(true, Ordering::Release)).unwrap_or_default();
}

/// Runs `work` to its end, or until `stop` gives a reason to stop, unless it has begun to commit by then.
///
/// # Errors
/// The reason from `stop`; `work` is dropped then.
pub async fn unless<T, S>(
    work: impl Future<Output = T>,
    stop: impl Future<Output = S>,
) -> Result<T, S> {
    // A nested call belongs to the same statement.
    let begun = BEGUN.try_with(Arc::clone).unwrap_or_default();
    let mut work = pin!(BEGUN.scope(Arc::clone(&begun), work));
    // `work` may repeatedly use up a task's whole budget: a timer would never be polled.
    let stop = pin!(unconstrained(stop));
    let why = match select(work.as_mut(), stop).await {
        Either::Left((done, _)) => return Ok(done),
        Either::Right((why, _)) => why,
    };
    if begun.load(Ordering::Acquire) { Ok(work.await) } else { Err(why) }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use tokio::sync::oneshot;
    use tokio::task::{consume_budget, yield_now};
    use tokio::time::{Duration, sleep, timeout};

    use super::*;

    #[tokio::test]
    async fn what_has_begun_to_commit_is_waited_for() {
        let (told, hears) = oneshot::channel::<()>();
        let committing = unless(
            async {
                begin();
                hears.await.is_ok()
            },
            yield_now(),
        );
        let telling = async {
            for _ in 0..10 {
                yield_now().await;
            }
            told.send(()).unwrap();
        };
        assert_eq!(tokio::join!(committing, telling).0, Ok(true));
    }

    #[tokio::test]
    async fn what_never_waits_is_ended_in_time() {
        let busy = async {
            loop {
                consume_budget().await;
            }
        };
        let limited = unless::<(), _>(busy, sleep(Duration::from_millis(10)));
        let ended = timeout(Duration::from_secs(20), limited).await;
        assert_eq!(ended, Ok(Err(())));
    }

    #[tokio::test]
    async fn what_has_not_is_ended_and_a_statement_is_one_whatever_is_within_it() {
        assert_eq!(unless(pending::<()>(), ready(7)).await, Err(7));
        let inner = async {
            let first = unless(async { begin() }, pending::<()>()).await;
            yield_now().await;
            yield_now().await;
            first
        };
        assert_eq!(unless(inner, yield_now()).await, Ok(Ok(())));
        assert_eq!(unless(pending::<()>(), ready(8)).await, Err(8), "of another statement");
        begin();
    }
}
