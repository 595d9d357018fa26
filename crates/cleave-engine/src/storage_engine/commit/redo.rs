//! Commits that are redone from the log: those that [`crate::log::redo`] has gathered enter the delta at once and are
//! published. They were validated when they were made, and the log has them.

use std::sync::Arc;

use cleave_catalog::error::Result;

use super::{Engine, Published, page_versions, publish};
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
    let lock = engine.writer_lock().await;
    let live = engine.live();
    let number = live.number + redone.commit_count;
    let mut prepared = live.delta.prepare(&live.state, redone.changes)?;
    if !redone.changes.iter().any(|change| change.has_many_dead()) {
        live.delta.put(prepared, number, (redone.at, 0));
        engine.publish_small(number, 0);
        return Ok(Published { state: live.state, log_end: 0 });
    }
    let mut edit = page_versions::edit_behind(engine, &live, lock);
    page_versions::end_in_pages(&mut edit, redone.changes, &mut prepared)?;
    live.delta.put(prepared, number, (redone.at, 0));
    let (state, lock) = publish::edit(edit, number, 0);
    drop(lock);
    Ok(Published { state, log_end: 0 })
}
