//! A wait for a lock: to block on, to `await`, or to give up.
//!
//! Invariant: a request ends once, with a grant or an error. The thread that ends it has the partition of its key
//! locked, and removes it from the queue in the same step. Dropping a wait removes it from the queue; a lock that was
//! granted meanwhile stays with its owner.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use cleave_media::Stopwatch;

use super::{LockError, LockKey, LockMode, LockOwner, Locks};

/// One request in a queue.
pub(crate) struct Request {
    pub(crate) owner: Arc<LockOwner>,
    pub(crate) key: LockKey,
    pub(crate) mode: LockMode,
    state: Mutex<WaitInner>,
    ended: Condvar,
}

#[derive(Default)]
struct WaitInner {
    outcome: Option<Result<(), LockError>>,
    waker: Option<Waker>,
    /// A table shared with a device has changed: the waiter checks it.
    is_nudged: bool,
}

impl Request {
    pub(crate) fn new(owner: &Arc<LockOwner>, key: LockKey, mode: LockMode) -> Arc<Self> {
        let owner = Arc::clone(owner);
        Arc::new(Self { owner, key, mode, state: Mutex::default(), ended: Condvar::new() })
    }

    /// Ends it, once.
    pub(crate) fn end(&self, outcome: Result<(), LockError>) {
        let mut state = self.state();
        if state.outcome.is_none() {
            state.outcome = Some(outcome);
            self.ended.notify_all();
            if let Some(waker) = state.waker.take() {
                drop(state);
                waker.wake();
            }
        }
    }

    /// Makes the waiter check.
    fn nudge(&self) {
        let mut state = self.state();
        state.is_nudged = true;
        self.ended.notify_all();
        let waker = state.waker.clone();
        drop(state);
        waker.iter().for_each(Waker::wake_by_ref);
    }

    pub(crate) fn is_granted(&self) -> bool {
        matches!(self.state().outcome, Some(Ok(())))
    }

    fn state(&self) -> MutexGuard<'_, WaitInner> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The waker for a shared table. It may be called with a partition locked, so it only passes on that there is a change.
impl Wake for Request {
    fn wake(self: Arc<Self>) {
        self.nudge();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.nudge();
    }
}

/// A waiting request; withdrawn when dropped.
#[must_use = "a wait that is dropped is withdrawn"]
pub struct LockWait {
    locks: Arc<Locks>,
    request: Arc<Request>,
}

impl LockWait {
    pub(crate) fn new(locks: Arc<Locks>, request: Arc<Request>) -> Self {
        Self { locks, request }
    }

    /// The awaited key.
    #[must_use]
    pub fn key(&self) -> LockKey {
        self.request.key
    }

    /// Blocks until the lock is granted, at most for `timeout`.
    ///
    /// # Errors
    /// [`LockError::Timeout`], [`LockError::Deadlock`], [`LockError::Cancelled`], [`LockError::Ended`].
    pub fn block(self, timeout: Option<Duration>) -> Result<(), LockError> {
        let watch = Stopwatch::start();
        loop {
            let state = self.request.state();
            let waits = |state: &mut WaitInner| state.outcome.is_none() && !state.is_nudged;
            let state = match timeout.map(|timeout| timeout.saturating_sub(watch.elapsed())) {
                None => self.request.ended.wait_while(state, waits),
                Some(left) => {
                    let waited = self.request.ended.wait_timeout_while(state, left, waits);
                    Ok(waited.unwrap_or_else(PoisonError::into_inner).0)
                }
            };
            let mut state = state.unwrap_or_else(PoisonError::into_inner);
            if let Some(outcome) = state.outcome.clone() {
                return outcome;
            }
            if !std::mem::take(&mut state.is_nudged) {
                drop(state);
                return self.give_up();
            }
            drop(state);
            self.locks.look(self.request.key);
        }
    }

    /// Ends a wait that lasted too long; returns the grant, if it came at the last moment.
    ///
    /// # Errors
    /// As [`LockWait::block`].
    pub fn give_up(self) -> Result<(), LockError> {
        self.locks.withdraw(&self.request);
        let (key, mode) = (self.request.key, self.request.mode);
        let outcome = self.request.state().outcome.clone();
        outcome.unwrap_or(Err(LockError::Timeout { key, mode }))
    }
}

impl Future for LockWait {
    type Output = Result<(), LockError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            let mut state = self.request.state();
            if let Some(outcome) = &state.outcome {
                return Poll::Ready(outcome.clone());
            }
            state.waker = Some(context.waker().clone());
            if !std::mem::take(&mut state.is_nudged) {
                return Poll::Pending;
            }
            drop(state);
            self.locks.look(self.request.key);
        }
    }
}

impl Drop for LockWait {
    fn drop(&mut self) {
        self.locks.withdraw(&self.request);
    }
}

impl fmt::Debug for LockWait {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = formatter.debug_struct("LockWait");
        debug.field("key", &self.request.key).field("mode", &self.request.mode);
        debug.finish_non_exhaustive()
    }
}

impl fmt::Debug for Request {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = formatter.debug_struct("Request");
        debug.field("owner", &self.owner.id).field("key", &self.key).field("mode", &self.mode);
        debug.finish_non_exhaustive()
    }
}
