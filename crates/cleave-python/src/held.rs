//! A session that threads share: work on it in, its outcome out, one after the other.
//!
//! [`with_held`] waits for the session, does the work on the process's runtime, and stops both if Ctrl-C is pressed, or
//! if another thread says so ([`Stops`]). A session that is closed meanwhile is an error.

use std::sync::{Arc, Mutex as SyncMutex, PoisonError, Weak};

use cleave_host::commitment::unless;
use futures::future::BoxFuture;
use pyo3::prelude::*;
use tokio::sync::{Mutex, Notify};

use crate::errors::{self, Failure};
use crate::process::{self, Tick};
use crate::statement_run::{SessionId, busy, waits_for_itself};

/// A session.
pub(crate) trait Held: Send + 'static {
    /// Ends what a statement leaves that was given up.
    fn stopped(&mut self) -> BoxFuture<'_, ()>;
}

/// A session that threads share; None: it is closed.
pub(crate) type Shared<S> = Arc<Mutex<Option<S>>>;

/// What stops waits that are under way, whatever threads they are in. A wait that has ended is not stopped.
#[derive(Clone, Default)]
pub(crate) struct Stops {
    own: Noted,
    /// Those of the session, which stop these waits too.
    session: Option<Noted>,
}

/// What tells waits to stop.
type Noted = Arc<SyncMutex<Vec<Weak<Notify>>>>;

impl Stops {
    /// Those of one result of the session that these belong to.
    pub(crate) fn of_result(&self) -> Self {
        Self { own: Noted::default(), session: Some(Arc::clone(&self.own)) }
    }

    /// What stops a wait that begins now, and ends when it is dropped.
    pub(crate) fn begin(&self) -> Arc<Notify> {
        let stop = Arc::new(Notify::new());
        for noted in self.session.iter().chain([&self.own]) {
            let mut noted = noted.lock().unwrap_or_else(PoisonError::into_inner);
            noted.retain(|other| other.strong_count() > 0);
            noted.push(Arc::downgrade(&stop));
        }
        stop
    }

    /// Stops the waits that are under way; says whether there were any.
    pub(crate) fn stop(&self) -> bool {
        let noted = std::mem::take(&mut *self.own.lock().unwrap_or_else(PoisonError::into_inner));
        let under_way = noted.iter().filter_map(Weak::upgrade);
        under_way.inspect(|stop| stop.notify_one()).count() > 0
    }
}

/// A new one.
pub(crate) fn shared<S>(session: S) -> Shared<S> {
    Arc::new(Mutex::new(Some(session)))
}

/// What `work` gives in the session, once that has ended what it does. `stops` stop it.
///
/// # Errors
/// `KeyboardInterrupt`; `OperationalError` if it is stopped; `ProgrammingError` if the session is closed; that of
/// [`busy`].
pub(crate) fn with_held<S: Held, T: Send + 'static>(
    py: Python<'_>,
    (shared, stops): (&Shared<S>, &Stops),
    tick: Option<&Tick<'_>>,
    work: impl for<'s> FnOnce(&'s mut S) -> BoxFuture<'s, Result<T, Failure>> + Send + 'static,
) -> PyResult<Result<T, Failure>> {
    if waits_for_itself(SessionId::of(shared)) {
        return Err(busy(py));
    }
    let (stop, shared) = (stops.begin(), Arc::clone(shared));
    let stopped = Arc::clone(&stop);
    let work = async move {
        let waited = unless(shared.lock_owned(), stopped.notified()).await;
        let Ok(mut session) = waited else { return Ok(None) };
        let Some(session) = session.as_mut() else { return Err(()) };
        let outcome = unless(work(session), stopped.notified()).await;
        match outcome {
            Ok(outcome) => Ok(Some(outcome)),
            Err(()) => {
                session.stopped().await;
                Ok(None)
            }
        }
    };
    match process::wait(py, &stop, tick, Box::pin(work))? {
        Ok(Some(outcome)) => Ok(outcome),
        Ok(None) => Err(errors::stopped(py)),
        Err(()) => Err(errors::closed(py)),
    }
}
