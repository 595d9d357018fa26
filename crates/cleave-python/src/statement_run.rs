//! A statement of a database of this process that reads objects of Python: whose thread reads them, and how long it
//! may still take.
//!
//! Reading an object runs Python's code, and that may use the connection for which it is read. While the statement
//! holds the session, both would wait for each other: [`StatementRun::reading`] notes what the thread reads for, and
//! [`waits_for_itself`] says whether a wait that begins there could never end.

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pyo3::prelude::*;

use crate::errors;
use crate::held::Shared;

thread_local! {
    /// The statements for which this thread reads an object, innermost last.
    static READING: RefCell<Vec<Arc<StatementRun>>> = const { RefCell::new(Vec::new()) };
}

/// See the module's description.
#[derive(Debug)]
pub(crate) struct StatementRun {
    session: SessionId,
    /// Its first rows are there: the session does something else again.
    has_started: AtomicBool,
    /// What `statement_timeout` leaves it; None: it may take as long as it does.
    left: Mutex<Option<Duration>>,
}

/// A session among those of the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SessionId(usize);

/// Ends what [`StatementRun::reading`] has begun.
#[derive(Debug)]
pub(crate) struct ReadingGuard;

impl SessionId {
    /// The number of a session.
    pub(crate) fn of<S>(session: &Shared<S>) -> Self {
        Self(Arc::as_ptr(session).addr())
    }
}

impl StatementRun {
    /// One that begins in the session.
    pub(crate) fn new(session: SessionId) -> Arc<Self> {
        let (has_started, left) = (AtomicBool::new(false), Mutex::default());
        Arc::new(Self { session, has_started, left })
    }

    /// Notes that its first rows are there, which took `spent` of the `limit_ms` that it may take; 0: any time.
    pub(crate) fn start(&self, limit_ms: u32, spent: Duration) {
        let limit = (limit_ms > 0).then(|| Duration::from_millis(u64::from(limit_ms)));
        *self.left() = limit.map(|limit| limit.saturating_sub(spent));
        self.has_started.store(true, Ordering::Relaxed);
    }

    /// What reading its rows may take; None: any time.
    pub(crate) fn time_left(&self) -> Option<Duration> {
        *self.left()
    }

    /// Notes that reading its rows took so long.
    pub(crate) fn spend(&self, spent: Duration) {
        if let Some(left) = self.left().as_mut() {
            *left = left.saturating_sub(spent);
        }
    }

    fn left(&self) -> MutexGuard<'_, Option<Duration>> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that this thread reads an object for it, until what is returned is dropped.
    pub(crate) fn reading(self: &Arc<Self>) -> ReadingGuard {
        READING.with_borrow_mut(|all| all.push(Arc::clone(self)));
        ReadingGuard
    }

    /// Whether this thread reads an object for it.
    pub(crate) fn is_read_here(&self) -> bool {
        READING.with_borrow(|all| all.iter().any(|own| std::ptr::eq(Arc::as_ptr(own), self)))
    }
}

impl Drop for ReadingGuard {
    fn drop(&mut self) {
        drop(READING.with_borrow_mut(Vec::pop));
    }
}

/// Whether this thread reads an object for a statement that holds the session: what waits for the session here would
/// wait for ever.
pub(crate) fn waits_for_itself(session: SessionId) -> bool {
    let holds = |run: &Arc<StatementRun>| {
        run.session == session && !run.has_started.load(Ordering::Relaxed)
    };
    READING.with_borrow(|all| all.iter().any(holds))
}

/// What is said of such a wait.
pub(crate) const BUSY: &str = "the connection is busy with the statement that reads this object";

/// The exception for such a wait.
pub(crate) fn busy(py: Python<'_>) -> PyErr {
    let hint = "use another connection where the rows are made";
    errors::made(py, errors::IN_USE, BUSY, Some(hint))
}
