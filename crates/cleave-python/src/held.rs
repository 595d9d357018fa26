//! A session that threads share: work on it in, its outcome out, one after the other.
//!
//! [`with_held`] waits for the session, does the work on the process's runtime, and stops both if Ctrl-C is pressed. A
//! session that is closed meanwhile is an error.

use std::sync::Arc;

use cleave_host::commitment::unless;
use futures::future::BoxFuture;
use pyo3::prelude::*;
use tokio::sync::{Mutex, Notify};

use crate::errors::{self, Failure};
use crate::process::{self, Tick};

/// A session.
pub(crate) trait Held: Send + 'static {
    /// Ends what a statement leaves that was given up.
    fn stopped(&mut self) -> BoxFuture<'_, ()>;
}

/// A session that threads share; None: it is closed.
pub(crate) type Shared<S> = Arc<Mutex<Option<S>>>;

/// A new one.
pub(crate) fn shared<S>(session: S) -> Shared<S> {
    Arc::new(Mutex::new(Some(session)))
}

/// What `work` gives in the session, once that has ended what it does.
///
/// # Errors
/// `KeyboardInterrupt`; `ProgrammingError` if it is closed.
pub(crate) fn with_held<S: Held, T: Send + 'static>(
    py: Python<'_>,
    shared: &Shared<S>,
    tick: Option<&Tick<'_>>,
    work: impl for<'s> FnOnce(&'s mut S) -> BoxFuture<'s, Result<T, Failure>> + Send + 'static,
) -> PyResult<Result<T, Failure>> {
    let (stop, shared) = (Arc::new(Notify::new()), Arc::clone(shared));
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
