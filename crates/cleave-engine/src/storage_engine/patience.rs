//! How long a statement waits for devices: the full timeout for a device with a table that it concerns, else no longer
//! than a holder of the writer lock.
//!
//! Before planning, all that was committed is flushed, also rows of tables that the statement does not read
//! ([`Engine::snapshot`]). Where a device is slow, those tables are [blocked](cleave_catalog::catalog::blocked)
//! instead.

use std::collections::BTreeSet;
use std::future::Future;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use cleave_catalog::catalog::{CatalogState, DeviceId, TableState};
use cleave_catalog::error::{Error, Result};

use super::Engine;
use super::snapshot::SnapshotKind;
use crate::device::WRITER_WAIT;

tokio::task_local! {
    /// The patience of the running statement.
    static PATIENCE: Duration;
}

/// Runs `work` with this patience; None: the device timeout.
pub async fn with_patience<T>(patience: Option<Duration>, work: impl Future<Output = T>) -> T {
    match patience {
        Some(patience) => PATIENCE.scope(patience, work).await,
        None => work.await,
    }
}

impl Engine {
    /// How long devices are waited for.
    pub(crate) fn device_timeout(&self) -> Duration {
        self.device_timeout
    }

    /// How long a holder of the writer lock waits for a device that others need.
    pub(crate) fn writer_wait(&self) -> Duration {
        WRITER_WAIT.min(self.device_timeout)
    }

    /// The patience of the statement that runs.
    pub fn patience(&self) -> Duration {
        PATIENCE.try_with(|patience| *patience).unwrap_or(self.device_timeout)
    }

    /// Whether it matters which tables a statement concerns: a device other than the database's own may be slow.
    pub fn has_other_devices(&self) -> bool {
        self.live.read().unwrap_or_else(PoisonError::into_inner).state.devices.len() > 1
    }

    /// The patience of a statement that concerns the tables with these ids.
    pub fn patience_for(&self, tables: &BTreeSet<u32>) -> Option<Duration> {
        if !self.has_other_devices() {
            return None;
        }
        let state = self.catalog();
        let is_concerned = |table: &Arc<TableState>| {
            lies_elsewhere(table) && tables.contains(&table.schema.table_id)
        };
        (!state.tables().any(is_concerned)).then(|| self.writer_wait())
    }

    /// Waits, without the writer lock, until the devices of table `name` have taken its last commits and shown that
    /// they sync: waiting with the writer lock would keep all others from writing.
    ///
    /// # Errors
    /// Those of [`Device::sync`](crate::device::Device::sync).
    pub(crate) async fn ask_devices(self: &Arc<Self>, name: &str) -> Result<()> {
        let state: Arc<CatalogState> = self.catalog();
        // One that is not there is the statement's own error.
        let Some(table) = state.table(name) else { return Ok(()) };
        if lies_elsewhere(table) {
            drop(Box::pin(self.snapshot(SnapshotKind::Flushed)).await?);
        }
        for device in table.devices() {
            let device = self.attached(device)?;
            match device.id() {
                // Others need not wait for it, and its sync would be of all that they have written.
                DeviceId::EMBEDDED => device.check_answers("sync")?,
                _ => device.sync().await?,
            }
        }
        Ok(())
    }
}

impl Engine {
    /// # Errors
    /// [`StorageError::Unanswered`](cleave_catalog::storage_error::StorageError::Unanswered) where a device of `table`
    /// owes an answer: another one than the database's own any, and that one of pages for as long as it is waited for.
    pub(crate) fn check_answers(&self, table: &TableState, patience: Duration) -> Result<()> {
        for device in table.devices().into_iter().filter_map(|id| self.device(id)) {
            if device.id() != DeviceId::EMBEDDED && device.owes_answer() {
                return Err(device.unanswered("sync", patience));
            }
            device.check_writes()?;
        }
        Ok(())
    }

    /// The error of a table whose rows could not be written in time. Which of its devices is slow is not known: each is
    /// to show that it syncs, and owes an answer until then.
    pub(crate) fn slow(&self, table: &TableState, waited: Duration) -> Error {
        let is_of_others = lies_elsewhere(table);
        let mut error = None;
        for device in table.devices().into_iter().filter_map(|id| self.device(id)) {
            if device.id() != DeviceId::EMBEDDED || !is_of_others {
                device.note_slow();
                error.get_or_insert_with(|| device.unanswered("write", waited));
            }
        }
        error.unwrap_or_else(|| self.stopped_error().into())
    }
}

impl Engine {
    /// Whether rows wait to be pages of another device than the database's own.
    pub(crate) fn has_rows_elsewhere(&self) -> bool {
        let live = self.live();
        let waits = |table: &Arc<TableState>| {
            lies_elsewhere(table) && live.delta.logged_from(table.schema.table_id).is_some()
        };
        live.state.tables().any(waits)
    }
}

/// Whether some of the table lies on another device than the database's own.
pub(crate) fn lies_elsewhere(table: &TableState) -> bool {
    table.tablets.iter().any(|tablet| tablet.device != DeviceId::EMBEDDED)
}
