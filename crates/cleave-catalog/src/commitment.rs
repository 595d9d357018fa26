//! Statements that may be ended from outside, up to where they have begun what cannot be taken back.
//!
//! 1. [`unless`] runs a statement until it ends or something else does: its time is over, its client wants it ended or
//!    is gone.
//! 2. [`begin`] says, within it, that from here on only its outcome tells what has happened: its record is handed to
//!    the log, or its manifest is being replaced. It is then not ended before that is known.
//!
//! Invariant: nobody is told that a statement was ended while what it did may be there. As PostgreSQL, which holds
//! interrupts back while a commit waits for its log.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::future::{Either, select};
use tokio::task::unconstrained;

tokio::task_local! {
    /// Whether the statement that runs has begun to commit.
    static BEGUN: Arc<AtomicBool>;
}

/// From here on the statement is not ended.
pub fn begin() {
    // Outside of `unless` nothing ends it.
    BEGUN.try_with(|begun| begun.store(true, Ordering::Release)).unwrap_or_default();
}

/// Runs `work` to its end, or until `stop` gives why it is not to go on, if it has not begun to commit by then.
///
/// # Errors
/// What `stop` gives; `work` is dropped then.
pub async fn unless<T, S>(
    work: impl Future<Output = T>,
    stop: impl Future<Output = S>,
) -> Result<T, S> {
    // One within another is of the same statement.
    let begun = BEGUN.try_with(Arc::clone).unwrap_or_default();
    let mut work = pin!(BEGUN.scope(Arc::clone(&begun), work));
    // `work` may use up all that a task does in one go, again and again: a timer would never be asked.
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
