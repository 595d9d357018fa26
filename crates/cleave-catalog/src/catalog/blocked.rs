//! Blocked tables: their last commits wait in the log, because a device of theirs could not take them. Keeps the log
//! position and the reason for each.
//!
//! The rows of these commits stay in the delta, and the manifest has the position from which the log is read for them.
//! So all other tables work and nothing is lost, whatever happens to the host meanwhile. The commits are retried when
//! the device answers (`Engine::retry_blocked`).
//!
//! Invariant: a blocked table cannot be read or changed, so it is never seen without its last commits.
//! Source: `docs/design/delta-and-snapshots.md`.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::proto;
use crate::storage_error::StorageError;

/// See the module's description.
#[derive(Debug, Clone, Default)]
pub struct BlockedTables {
    /// By id.
    pub tables: BTreeMap<u32, BlockedTable>,
    /// Start of the log for all other tables.
    pub until: u64,
}

/// A table whose last commits wait.
#[derive(Debug, Clone)]
pub struct BlockedTable {
    /// Log position of the first of them.
    pub from: u64,
    /// Why they wait; None: they are still to be read.
    pub reason: Option<Arc<StorageError>>,
}

impl BlockedTables {
    /// Why the table `id` is blocked.
    pub fn reason(&self, id: u32) -> Option<&Arc<StorageError>> {
        self.tables.get(&id)?.reason.as_ref()
    }

    /// The position from which the log must be read, if the pages have all other changes up to `position`.
    pub fn first(&self, position: u64) -> u64 {
        self.tables.values().map(|table| table.from).fold(position, u64::min)
    }

    /// Whether a record at `at` must still be applied to the table `id`.
    pub fn lacks(&self, id: u32, at: u64) -> bool {
        at >= self.tables.get(&id).map_or(self.until, |table| table.from)
    }

    /// The message for a manifest.
    pub(super) fn encode(&self) -> Option<proto::BlockedTables> {
        let tables = self.tables.iter();
        let tables = tables.map(|(id, table)| proto::BlockedTable { id: *id, from: table.from });
        let message = proto::BlockedTables { tables: tables.collect(), until: self.until };
        (!self.tables.is_empty()).then_some(message)
    }

    /// Reads what [`BlockedTables::encode`] wrote.
    pub(super) fn decode(message: Option<proto::BlockedTables>) -> Self {
        let message = message.unwrap_or_default();
        let tables = message.tables.into_iter();
        let tables = tables.map(|held| (held.id, BlockedTable { from: held.from, reason: None }));
        Self { tables: tables.collect(), until: message.until }
    }
}
