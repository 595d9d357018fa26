//! Tables whose last commits wait in the log, since a device of theirs could not take them: which, from where on, and
//! why.
//!
//! Their rows stay in the delta, and the manifest says from where the log is read for them, so that all
//! other tables go on and nothing is lost, whatever becomes of the host meanwhile. They are tried again when the device
//! answers (`Engine::retry_blocked`).
//!
//! Invariant: a table that is blocked cannot be read or changed, so that nobody sees it without its last commits.
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
    /// Where the log begins for all other tables.
    pub until: u64,
}

/// A table whose last commits wait.
#[derive(Debug, Clone)]
pub struct BlockedTable {
    /// Where the first of them lies in the log.
    pub from: u64,
    /// What keeps them; None: they are still to be read.
    pub reason: Option<Arc<StorageError>>,
}

impl BlockedTables {
    /// Why the table `id` cannot be used.
    pub fn reason(&self, id: u32) -> Option<&Arc<StorageError>> {
        self.tables.get(&id)?.reason.as_ref()
    }

    /// Where the log is to be read from, of which all else is in pages up to `position`.
    pub fn first(&self, position: u64) -> u64 {
        self.tables.values().map(|table| table.from).fold(position, u64::min)
    }

    /// Whether a record at `at` is still to be made again for the table `id`.
    pub fn lacks(&self, id: u32, at: u64) -> bool {
        at >= self.tables.get(&id).map_or(self.until, |table| table.from)
    }

    /// As a manifest has it.
    pub(super) fn encode(&self) -> Option<proto::BlockedTables> {
        let tables = self.tables.iter();
        let tables = tables.map(|(id, table)| proto::BlockedTable { id: *id, from: table.from });
        let message = proto::BlockedTables { tables: tables.collect(), until: self.until };
        (!self.tables.is_empty()).then_some(message)
    }

    /// What [`BlockedTables::encode`] made a message of.
    pub(super) fn decode(message: Option<proto::BlockedTables>) -> Self {
        let message = message.unwrap_or_default();
        let tables = message.tables.into_iter();
        let tables = tables.map(|held| (held.id, BlockedTable { from: held.from, reason: None }));
        Self { tables: tables.collect(), until: message.until }
    }
}
