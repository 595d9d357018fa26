//! What a sync that failed means for all later ones: they fail too, until the media is opened anew.
//!
//! An operating system tells of a failure to write back once, and takes what it could not write for written: the next
//! sync finds nothing to do and succeeds. It would vouch for pages of any writer that are not stored. So:
//!
//! 1. [`SyncGate::sync`] makes one sync at a time, so that no other one can have swallowed the failure that concerns
//!    it.
//! 2. Whoever waited while a sync was made that began after it came is served by that one.
//! 3. After a failure every call fails, whoever makes it.
//!
//! Invariant: a call that succeeds is covered by a sync that began after the call did and came before any failure.

use std::fmt::Display;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::MediaError;

/// Remembers that a sync failed. See the module's description.
#[derive(Debug, Default)]
pub struct SyncGate {
    /// Calls so far.
    came: AtomicU64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Calls that a sync covers which succeeded.
    covered: u64,
    failure: Option<String>,
}

impl SyncGate {
    /// A gate of media that was just opened.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes `sync` of `media`, or shares that of another caller.
    ///
    /// # Errors
    /// What `sync` says; [`MediaError::Sync`] where an earlier one failed.
    pub fn sync(
        &self,
        media: &dyn Display,
        sync: impl FnOnce() -> Result<(), MediaError>,
    ) -> Result<(), MediaError> {
        let mine = self.came.fetch_add(1, Ordering::SeqCst).saturating_add(1);
        let mut state = self.state();
        if let Some(failure) = &state.failure {
            let source = io::Error::other(format!("an earlier one failed: {failure}"));
            return Err(MediaError::Sync { media: media.to_string(), source });
        }
        if state.covered >= mine {
            return Ok(());
        }
        let came = self.came.load(Ordering::SeqCst);
        let outcome = sync();
        match &outcome {
            Ok(()) => state.covered = came,
            Err(MediaError::Sync { source, .. }) => state.failure = Some(source.to_string()),
            Err(error) => state.failure = Some(error.to_string()),
        }
        outcome
    }

    /// Whether a sync failed.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.state().failure.is_some()
    }

    /// Forgets a failure: the media was opened anew.
    pub(crate) fn reopen(&self) {
        self.state().failure = None;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
