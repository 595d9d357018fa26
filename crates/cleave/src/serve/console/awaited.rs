//! Statements that a browser waits for: each runs in a task of its own, which goes on when the browser goes.
//!
//! ```text
//!  request ─▶ Awaited::finish ─▶ task: the statement, with its desk ─▶ answer
//!     │ dropped: the browser is gone      ▲
//!     └──────── interrupts it ────────────┘
//! ```
//! When a browser closes its connection, its request is dropped. The statement is interrupted then as by a request to
//! cancel it, and the task goes on to its end: a block fails as by any other interrupt, a commit that has begun is
//! completed, and its desk is ready for the next statement.
//!
//! Invariant: an interrupt reaches the statement of its request and none after it.
//!
//! Source: `docs/console.md`.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cleave_host::backends::Stopper;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Awaited {
    tasks: Mutex<JoinSet<()>>,
}

/// Interrupts a statement, until that has ended.
struct Interrupting(Mutex<Option<Arc<dyn Stopper>>>);

/// Interrupts a statement that has not ended when it is dropped.
struct Waiting(Arc<Interrupting>);

impl Awaited {
    /// What `work` gives, which has begun to watch for interrupts by `stop`. It also returns what it runs in, which
    /// others may use afterwards. None: it ended by a defect.
    pub(super) async fn finish<T: Send + 'static, P: Send + 'static>(
        &self,
        stop: Arc<dyn Stopper>,
        work: impl Future<Output = (T, P)> + Send + 'static,
    ) -> Option<T> {
        let interrupting = Arc::new(Interrupting(Mutex::new(Some(stop))));
        let waiting = Waiting(Arc::clone(&interrupting));
        let (give, answer) = oneshot::channel();
        let work = Box::pin(work);
        let task = async move {
            let (done, place) = work.await;
            // In this order: no interrupt finds the statement of another request.
            drop(interrupting.stop().take());
            drop(place);
            // An error means that the browser is gone.
            drop(give.send(done));
        };
        {
            let mut tasks = self.tasks();
            while tasks.try_join_next().is_some() {}
            tasks.spawn(task);
        }
        let answer = answer.await.ok();
        // The task is over, by a defect or not: another statement may have its place.
        drop(waiting.0.stop().take());
        answer
    }

    /// Waits until all have ended.
    pub(super) async fn ended(&self) {
        let mut tasks = std::mem::take(&mut *self.tasks());
        while tasks.join_next().await.is_some() {}
    }

    fn tasks(&self) -> MutexGuard<'_, JoinSet<()>> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Interrupting {
    fn stop(&self) -> MutexGuard<'_, Option<Arc<dyn Stopper>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if let Some(stop) = &*self.0.stop() {
            stop.cancel();
        }
    }
}

#[cfg(test)]
mod tests {
    //! A request that is dropped interrupts its own statement alone, and that goes on to its end.

    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::sync::Notify;

    use super::*;

    #[derive(Default)]
    struct Counts {
        cancelled: AtomicUsize,
        told: Notify,
    }

    impl Stopper for Counts {
        fn cancel(&self) {
            self.cancelled.fetch_add(1, Ordering::SeqCst);
            self.told.notify_one();
        }

        fn terminate(&self) {}
    }

    #[tokio::test]
    async fn a_statement_whose_request_is_dropped_is_interrupted_and_ends() {
        let (awaited, counts) = (Awaited::default(), Arc::new(Counts::default()));
        let stop = || Arc::clone(&counts) as Arc<dyn Stopper>;
        assert_eq!(awaited.finish(stop(), async { (7, ()) }).await, Some(7));
        assert_eq!(counts.cancelled.load(Ordering::SeqCst), 0, "it had ended");
        let (interrupted, place) = (Arc::clone(&counts), Arc::new(()));
        let held = Arc::clone(&place);
        let work = async move {
            interrupted.told.notified().await;
            tokio::task::yield_now().await;
            ((), held)
        };
        {
            let request = std::pin::pin!(awaited.finish(stop(), work));
            let begun = tokio::time::timeout(std::time::Duration::from_millis(1), request).await;
            assert!(begun.is_err(), "nobody has interrupted it");
        }
        awaited.ended().await;
        assert_eq!(counts.cancelled.load(Ordering::SeqCst), 1);
        assert_eq!(Arc::strong_count(&place), 1, "its place is free");
    }
}
