//! Commits that are redone from the log: those that [`crate::log::redo`] has gathered enter the delta at once and are
//! published. They were validated when they were made, and the log has them.

use std::sync::Arc;

use cleave_catalog::error::Result;

use super::{Engine, Published};
use crate::device::DISK_FULL;
use crate::storage_engine::catalog_edit::CatalogEdit;
use crate::write::insert::TableChange;

/// Consecutive commits, as one.
pub struct Redone<'a> {
    /// Their changes in all, by table.
    pub changes: &'a [&'a TableChange],
    /// How many they are.
    pub(crate) commit_count: u64,
    /// Where the record of the first one lies in the log.
    pub at: u64,
}

/// Puts `redone` behind what is committed.
pub(super) async fn commit(engine: &Arc<Engine>, redone: Redone<'_>) -> Result<Published> {
    if engine.live().delta.is_full() {
        match CatalogEdit::begin(engine).await {
            // All of it is in the log and stays in memory: only where the database is open can room be made.
            Err(error) if error.sqlstate() == DISK_FULL || error.is_unanswered() => {}
            flushed => drop(flushed?),
        }
    }
    let live = engine.live();
    let number = live.number + redone.commit_count;
    let prepared = live.delta.prepare(&live.state, redone.changes)?;
    live.delta.put(prepared, number, (redone.at, 0));
    engine.publish_small(number, 0);
    Ok(Published { state: live.state, log_end: 0 })
}
