//! How much of a row's keys a change needs: whether an UPDATE leaves all unique keys as they are, and which keys own rows take with
//! them when they end.
//!
//! Source: PostgreSQL's manual, "Row-Level Locks": FOR NO KEY UPDATE.

use arrow::array::{ArrayRef, RecordBatch, UInt32Array};
use arrow::compute::take_record_batch;
use cleave_txn::{LockKey, LockMode};

use super::Session;
use super::block::OwnRows;
use super::held::{unique_indexes, unique_key};
use crate::catalog::TableState;
use crate::error::Result;
use crate::statement::modify::Assignment;

/// Whether SET changes no column of a unique key of `table`.
pub(super) fn leaves_keys(table: &TableState, assignments: &[Assignment]) -> bool {
    let mut keys = unique_indexes(table).flat_map(|index| index.shape().columns.iter());
    let is_set = |place: &usize| {
        let name = table.schema.columns.get(*place).map(|column| column.name.as_str());
        name.is_none_or(|name| assignments.iter().any(|set| set.column == name))
    };
    !keys.any(is_set)
}

/// Whether the columns of unique keys of `table` have the same values in both.
pub(super) fn has_same_keys(table: &TableState, before: &[ArrayRef], after: &RecordBatch) -> bool {
    let mut keys = unique_indexes(table).flat_map(|index| index.shape().columns.iter());
    keys.all(|place| match (before.get(*place), after.columns().get(*place)) {
        (Some(before), Some(after)) => before == after,
        _ => false,
    })
}

impl Session {
    /// Locks for good the unique keys of own rows that end: what locked them before may have left room for FOR KEY SHARE.
    pub(super) async fn lock_own_keys(
        &mut self,
        table: &TableState,
        own_ended: &OwnRows,
    ) -> Result<()> {
        let mut keys: Vec<LockKey> = Vec::new();
        let own = self.own_changes(table.schema.table_id);
        for (place, rows) in own_ended {
            let Some(batch) = own.and_then(|own| own.rows.get(place)) else { continue };
            let within = rows.iter().filter(|row| **row < batch.num_rows());
            let rows: Vec<u32> = within.filter_map(|row| u32::try_from(*row).ok()).collect();
            let ended = take_record_batch(batch, &UInt32Array::from(rows))?;
            for index in unique_indexes(table) {
                let shape = index.shape();
                let entries = shape.entries(&shape.key_rows(&ended)?, 0)?;
                let of_rows = entries.iter().flatten().filter(|key| !shape.key.has_null(key));
                keys.extend(of_rows.map(|key| unique_key(table, index, key)));
            }
        }
        keys.sort_unstable();
        keys.dedup();
        let timeout_ms = self.in_force().lock_timeout_ms;
        for key in keys {
            self.locks().lock(key, LockMode::ForUpdate, timeout_ms).await?;
        }
        Ok(())
    }
}
