//! Stopping a database: after a failure that leaves unknown what is on its disk, nothing is written any more, and
//! committed rows that are in no page yet cannot be read. The embedding process is told ([`Engine::stopped`]) and opens
//! it anew.
//!
//! Source: `docs/design/log-and-recovery.md`.

use std::fmt::Display;
use std::sync::atomic::Ordering;

use cleave_catalog::error::Result;
use cleave_catalog::storage_error::StorageError;
use cleave_txn::LogError;

use super::Engine;

impl Engine {
    /// # Errors
    /// [`StorageError::Stopped`].
    pub(crate) fn check_running(&self) -> Result<()> {
        match self.may_write() {
            true => Ok(()),
            false => Err(self.stopped_error().into()),
        }
    }

    /// Whether statements may write.
    pub fn may_write(&self) -> bool {
        !self.stopped.load(Ordering::Acquire)
    }

    /// Refuses further writing: which version is on disk is not known.
    pub fn stop(&self, why: &dyn Display) {
        self.stopped_because.get_or_init(|| why.to_string());
        self.stopped.store(true, Ordering::Release);
        self.stopped_told.notify_waiters();
    }

    /// Stops the database if `error` says that the log has failed.
    pub(crate) fn note_log_error(&self, error: &LogError) {
        if matches!(error, LogError::Failed { .. }) {
            self.stop(error);
        }
    }

    /// Waits until the database has stopped, and says why: the process that has it open should end, and open it anew.
    /// The last durable commits are found then; here some of what is read can never be made sure.
    pub async fn stopped(&self) -> String {
        loop {
            let told = self.stopped_told.notified();
            let mut told = std::pin::pin!(told);
            told.as_mut().enable();
            if !self.may_write() {
                let why = self.stopped_because.get().map(String::as_str);
                return why.unwrap_or("it is only looked at").to_owned();
            }
            told.await;
        }
    }

    /// The error of what can no longer be done.
    pub fn stopped_error(&self) -> StorageError {
        StorageError::Stopped { path: self.directory.clone() }
    }
}
