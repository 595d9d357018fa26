//! Whether somebody still waits for a result: asked by functions that may take long for a single row.
//!
//! A dropped future stops its statement, and a timeout fires, only between two polls. A function that works for seconds
//! on one value keeps its thread until then, so it [checks](check) by itself: whether the time limit of its statement
//! is over, whether somebody has cancelled it, whether its plan was stopped.
//!
//! [`until`] runs work with one more such condition. Those that are in force where it is called stay so, also where the
//! work runs on another thread. [`carried`] takes them along without another one.
//!
//! A function that goes on also keeps others waiting: a runtime has as many workers as cores, and each may have such a
//! function. So one that checks after more than [`LONG`] on a thread that [may leave its place](may_leave) gives the
//! worker's place to another thread, and goes on beside it. The pool grows by as many threads as compute for long.

use std::cell::Cell;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use cleave_media::clock::{Clock, SystemClock};
use datafusion_common::{DataFusionError, Result};
use futures::future::BoxFuture;

/// Nobody waits for the result any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("canceling statement due to user request")]
pub struct NotWanted;

/// Calls of [`check`] for each time that the conditions are looked at, which takes about as long as some calls.
const CALLS_A_LOOK: u32 = 64;

/// Work that has gone on for longer without waiting leaves its place to others.
pub const LONG: Duration = Duration::from_millis(50);
/// How long a thread waits for another one to take its place. Without one it tries again after [`LONG`].
const HANDING_OVER: Duration = Duration::from_millis(1);

tokio::task_local! {
    static CONDITIONS: Arc<Conditions>;
}

thread_local! {
    static CALLS: Cell<u32> = const { Cell::new(0) };
    /// When the work of this thread began that has not waited since.
    static SINCE: Cell<Option<Duration>> = const { Cell::new(None) };
    static MAY_LEAVE: Cell<bool> = const { Cell::new(false) };
}

struct Conditions {
    is_over: Box<dyn Fn() -> bool + Send + Sync>,
    around: Option<Arc<Conditions>>,
}

impl fmt::Debug for Conditions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Conditions").field("around", &self.around).finish_non_exhaustive()
    }
}

/// Runs `work`, whose functions fail once `is_over` holds.
pub fn until<F: Future>(
    is_over: impl Fn() -> bool + Send + Sync + 'static,
    work: F,
) -> impl Future<Output = F::Output> {
    let around = CONDITIONS.try_with(Arc::clone).ok();
    CONDITIONS.scope(Arc::new(Conditions { is_over: Box::new(is_over), around }), work)
}

/// `work` under the conditions that are in force here, wherever it runs.
pub fn carried<'a, T>(work: BoxFuture<'a, T>) -> BoxFuture<'a, T>
where
    T: Send + 'a,
{
    match CONDITIONS.try_with(Arc::clone) {
        Ok(conditions) => Box::pin(timed(CONDITIONS.scope(conditions, work))),
        Err(_) => work,
    }
}

/// `work` of a task, which leaves its worker's place where it takes long without waiting.
pub fn timed<F: Future>(work: F) -> impl Future<Output = F::Output> {
    Timed { work: Box::pin(work) }
}

/// Checks whether to go on; to be called about once a microsecond, or less often.
///
/// # Errors
/// [`NotWanted`].
pub fn check() -> Result<()> {
    let calls = CALLS.get().wrapping_add(1);
    CALLS.set(calls);
    match calls.is_multiple_of(CALLS_A_LOOK) {
        true => look(),
        false => Ok(()),
    }
}

/// The same, to be called before what may take a millisecond or more.
///
/// # Errors
/// [`NotWanted`].
pub fn look() -> Result<()> {
    if is_over() {
        return Err(DataFusionError::External(Box::new(NotWanted)));
    }
    if MAY_LEAVE.get() && has_taken(LONG) {
        leave();
    }
    Ok(())
}

/// Says that the calling thread is one of a runtime whose workers may leave their places: of several threads, which
/// starts others for them.
pub fn may_leave() {
    MAY_LEAVE.set(true);
}

/// Whether the work of this thread has gone on for longer without waiting.
#[must_use]
pub fn has_taken(long: Duration) -> bool {
    SINCE.get().is_some_and(|since| SystemClock.now().saturating_sub(since) > long)
}

/// Gives the place of this thread among its runtime's workers to another one.
fn leave() {
    SINCE.set(Some(SystemClock.now()));
    #[expect(clippy::disallowed_methods, reason = "another thread takes over meanwhile")]
    tokio::task::block_in_place(|| std::thread::sleep(HANDING_OVER));
}

/// Work that notes when it is polled.
struct Timed<F> {
    work: Pin<Box<F>>,
}

impl<F: Future> Future for Timed<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let _since = Since::now();
        self.work.as_mut().poll(context)
    }
}

/// Puts back what was there before.
struct Since(Option<Duration>);

impl Since {
    fn now() -> Self {
        Self(SINCE.replace(SINCE.get().or_else(|| Some(SystemClock.now()))))
    }
}

impl Drop for Since {
    fn drop(&mut self) {
        SINCE.set(self.0);
    }
}

fn is_over() -> bool {
    let is_over = |conditions: &Arc<Conditions>| {
        let mut all = std::iter::successors(Some(&**conditions), |one| one.around.as_deref());
        all.any(|one| (one.is_over)())
    };
    CONDITIONS.try_with(is_over).unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use tokio::task::JoinSet;

    use super::*;

    async fn looks() -> bool {
        (0..CALLS_A_LOOK).any(|_| check().is_err())
    }

    #[tokio::test]
    async fn any_condition_ends_the_work_within() {
        assert!(!looks().await, "nothing limits it");
        let flags: [Arc<AtomicBool>; 2] = Default::default();
        let [outer, inner] = flags.clone().map(|flag| move || flag.load(Ordering::Relaxed));
        let work = async {
            assert!(!looks().await);
            for flag in &flags {
                flag.store(true, Ordering::Relaxed);
                assert!(looks().await);
                let mut elsewhere = JoinSet::new();
                elsewhere.spawn(until(|| false, looks()));
                assert!(elsewhere.join_next().await.unwrap().unwrap());
                flag.store(false, Ordering::Relaxed);
            }
        };
        until(outer, async { until(inner, work).await }).await;
    }
}
