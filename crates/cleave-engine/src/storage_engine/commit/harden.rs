//! After a commit: waits until the log that has it is durable, here and in its replicas. No commit is acknowledged, and
//! no row that it has changed is returned, before that (rule 27).
//!
//! Invariant: a position that was found durable once is not asked for again.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use cleave_catalog::error::Result;
#[cfg(doc)]
use cleave_catalog::storage_error::StorageError;
use cleave_txn::Lsn;

use super::Engine;

impl Engine {
    /// Waits until the log is durable here up to `end`.
    ///
    /// # Errors
    /// [`StorageError::Log`], after which nothing is written any more.
    pub(crate) async fn harden_log(&self, end: u64) -> Result<()> {
        if end <= self.hardened.load(Ordering::Acquire) {
            return Ok(());
        }
        let Some(log) = self.log() else { return Ok(()) };
        if let Err(error) = log.durable(Lsn(end)).await {
            self.stop(&error);
            return Err(error.into());
        }
        self.hardened.fetch_max(end, Ordering::AcqRel);
        Ok(())
    }

    /// As [`Self::harden_log`], blocking the thread; log replicas get it with the next session that hardens. For what
    /// waits for no [copy](crate::storage_engine::log_keeper::LogKeeper::copy_pages).
    ///
    /// # Errors
    /// As above.
    pub fn harden_now(&self, end: u64) -> Result<()> {
        if end > self.hardened.load(Ordering::Acquire)
            && let Some(log) = self.log()
        {
            if let Err(error) = log.wait_durable(Lsn(end)) {
                self.stop(&error);
                return Err(error.into());
            }
            self.hardened.fetch_max(end, Ordering::AcqRel);
        }
        self.keeper.want(end);
        Ok(())
    }

    /// Waits until the log is durable up to `end`, here and in its replicas, and the pages for which commits up to
    /// there wait are copied.
    ///
    /// # Errors
    /// As [`Engine::harden_log`]; [`StorageError::NotReplicated`].
    pub async fn harden(self: &Arc<Self>, end: u64) -> Result<()> {
        self.harden_log(end).await?;
        self.keeper.pages_copied(self, end, false).await?;
        match self.keeper.is_on() {
            true => self.keeper.reach(self, end).await,
            false => Ok(()),
        }
    }

    /// Whether the log is known to be durable up to `end`, and nobody else needs it.
    pub fn is_hardened(&self, end: u64) -> bool {
        let is_durable = end <= self.hardened.load(Ordering::Acquire);
        is_durable && !self.keeper.is_on() && !self.keeper.awaits_pages(end)
    }
}
