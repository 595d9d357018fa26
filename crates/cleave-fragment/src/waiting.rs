//! Waits for time, and for blocking work, so that a simulator can replace both.
//!
//! On a thread that a simulator owns ([`cleave_media::simulation`]), time is simulated, and work that would have a
//! thread of its own runs as a task among the others: one thread, one order, one seed. Elsewhere these are tokio's.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use cleave_media::{Clock, SystemClock, simulation};
use futures::future::{Either, select};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

/// Waits for `time`.
pub async fn sleep(time: Duration) {
    if simulation::is_active() {
        SimulatedSleep { until: SystemClock.now().saturating_add(time) }.await;
    } else {
        tokio::time::sleep(time).await;
    }
}

/// The result of `future`, or `None` after `limit`.
pub async fn timeout<F: Future>(limit: Duration, future: F) -> Option<F::Output> {
    let (future, sleep) = (std::pin::pin!(future), std::pin::pin!(sleep(limit)));
    match select(future, sleep).await {
        Either::Left((output, _)) => Some(output),
        Either::Right(_) => None,
    }
}

/// Starts `work`, which may block, on a blocking thread of the current runtime. It runs to its end, whether or not
/// anyone waits.
pub fn spawn_blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> JoinHandle<T> {
    spawn_blocking_on(&Handle::current(), work)
}

/// The same on a thread of another runtime.
pub fn spawn_blocking_on<T: Send + 'static>(
    threads: &Handle,
    work: impl FnOnce() -> T + Send + 'static,
) -> JoinHandle<T> {
    if simulation::is_active() {
        threads.spawn(async move { work() })
    } else {
        threads.spawn_blocking(work)
    }
}

struct SimulatedSleep {
    until: Duration,
}

impl Future for SimulatedSleep {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if SystemClock.now() >= self.until {
            return Poll::Ready(());
        }
        simulation::wake_at(self.until, context.waker().clone());
        Poll::Pending
    }
}
