//! Whether somebody still waits for a result: asked by functions that may take long for a single row.
//!
//! A dropped future stops its statement, and a timeout fires, only between two polls. A function that works for seconds
//! on one value keeps its thread until then, so it [checks](check) by itself: whether the time limit of its statement
//! is over, whether somebody has cancelled it, whether its plan was stopped.
//!
//! [`until`] runs work with one more such condition. Those that are in force where it is called stay so, also where the
//! work runs on another thread. [`carried`] takes them along without another one.

use std::cell::Cell;
use std::fmt;
use std::future::Future;
use std::sync::Arc;

use datafusion_common::{DataFusionError, Result};
use futures::future::BoxFuture;

/// Nobody waits for the result any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("canceling statement due to user request")]
pub struct NotWanted;

/// Calls of [`check`] for each time that the conditions are looked at, which takes about as long as some calls.
const CALLS_A_LOOK: u32 = 64;

tokio::task_local! {
    static CONDITIONS: Arc<Conditions>;
}

thread_local! {
    static CALLS: Cell<u32> = const { Cell::new(0) };
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
        Ok(conditions) => Box::pin(CONDITIONS.scope(conditions, work)),
        Err(_) => work,
    }
}

/// Checks whether to go on; to be called about once a microsecond, or less often.
///
/// # Errors
/// [`NotWanted`].
pub fn check() -> Result<()> {
    let calls = CALLS.get().wrapping_add(1);
    CALLS.set(calls);
    match calls.is_multiple_of(CALLS_A_LOOK) && is_over() {
        true => Err(DataFusionError::External(Box::new(NotWanted))),
        false => Ok(()),
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
