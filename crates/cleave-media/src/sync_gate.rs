//! Makes all syncs after a failed one fail too, until the media is opened anew.
//!
//! An operating system reports a failed write-back once, and takes the lost writes for written: the next sync finds
//! nothing to do and succeeds, although pages of any writer may not be stored. Therefore:
//!
//! 1. [`SyncGate::sync`] makes one sync at a time, so that no other sync can have received the failure that concerns
//!    it.
//! 2. A caller that waited while another sync ran is served by that sync if it began after the call.
//! 3. After a failure every call of every caller fails.
//!
//! Invariant: a successful call is covered by a sync that began after the call and before any failure.

use std::fmt::Display;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::MediaError;

/// Remembers a failed sync. See the module's description.
#[derive(Debug, Default)]
pub struct SyncGate {
    /// Calls so far.
    came: AtomicU64,
    state: Mutex<GateInner>,
}

#[derive(Debug, Default)]
struct GateInner {
    /// Calls that a successful sync covers.
    covered: u64,
    failure: Option<String>,
}

impl SyncGate {
    /// The gate of media that was just opened.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Calls `sync` of `media`, or shares the sync of another caller.
    ///
    /// # Errors
    /// The error of `sync`; [`MediaError::Sync`] if an earlier one failed.
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

    fn state(&self) -> MutexGuard<'_, GateInner> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
