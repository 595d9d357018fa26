//! Lock modes of unique keys: an UPDATE that leaves all unique keys as they are locks them `FOR NO KEY UPDATE`; any
//! other change, and DELETE, locks the keys that it removes `FOR UPDATE`.
//!
//! `FOR KEY SHARE` is held on the keys and not on the row: after an UPDATE the row has another VID, and still has its
//! keys. So only a table all rows of which have a unique key gets the weaker lock.
//!
//! Source: PostgreSQL's manual, "Row-Level Locks".

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch};
use cleave_catalog::catalog::TableState;
use cleave_catalog::error::Result;
use cleave_engine::storage_engine::commit::validate::{RowPlace, check_dead};
use cleave_engine::write::insert::TableChange;
use cleave_engine::write::vid_set::VidSet;
use cleave_sql::statement::modify::Assignment;
use cleave_store::ShippedPages;
use cleave_txn::{LockKey, LockMode};

use super::lost_waits::{Stays, check_rows};
use super::transaction_locks::{TransactionLocks, row_key, unique_indexes, unique_key};
use super::{Session, locking};

/// Whether SET assigns no column of a unique key of `table`.
pub(super) fn leaves_keys(table: &TableState, assignments: &[Assignment]) -> bool {
    let mut keys = unique_indexes(table).flat_map(|index| index.shape().columns.iter());
    let is_set = |place: &usize| {
        let name = table.schema.columns.get(*place).map(|column| column.name.as_str());
        name.is_none_or(|name| assignments.iter().any(|set| set.column == name))
    };
    has_whole_key(table) && !keys.any(is_set)
}

/// Whether the columns of all unique keys of `table` have the same values in both.
pub(super) fn has_same_keys(table: &TableState, before: &[ArrayRef], after: &RecordBatch) -> bool {
    let mut keys = unique_indexes(table).flat_map(|index| index.shape().columns.iter());
    let is_same = |place: &usize| match (before.get(*place), after.columns().get(*place)) {
        (Some(before), Some(after)) => Arc::ptr_eq(before, after) || before == after,
        _ => false,
    };
    has_whole_key(table) && keys.all(is_same)
}

/// Whether every row has a unique key without NULL.
fn has_whole_key(table: &TableState) -> bool {
    let is_never_null =
        |place: &usize| table.schema.columns.get(*place).is_some_and(|column| column.not_null);
    unique_indexes(table).any(|index| index.shape().columns.iter().all(is_never_null))
}

/// The locks on the unique keys of `rows` of `table`.
pub(super) fn gone_keys(table: &TableState, rows: &RecordBatch) -> Result<Vec<LockKey>> {
    let mut keys: Vec<LockKey> = Vec::new();
    for index in unique_indexes(table) {
        let shape = index.shape();
        let entries = shape.row_entries(rows, 0)?;
        let of_rows = entries.iter().flatten().filter(|key| !shape.key.has_null(key));
        keys.extend(of_rows.map(|key| unique_key(table, index, key)));
    }
    Ok(keys)
}

/// Locks the unique keys of `rows` of `table`, which `change` removes or changes.
pub(super) async fn lock_gone_keys(
    session: &mut Session,
    table: &TableState,
    rows: &RecordBatch,
    change: &TableChange,
) -> Result<()> {
    lock_known_keys(session, gone_keys(table, rows)?, change).await
}

/// Locks `keys`, which `change` removes or changes.
pub(super) async fn lock_known_keys(
    session: &mut Session,
    keys: Vec<LockKey>,
    change: &TableChange,
) -> Result<()> {
    match session.owns(change.schema.table_id) {
        true => Ok(()),
        false => lock_for_good(session, keys, change).await,
    }
}

/// Locks the table and the unique keys of the rows of `change`, and the rows that it ends.
pub(super) async fn lock_keys(
    session: &mut Session,
    base: &TableState,
    change: &TableChange,
) -> Result<()> {
    let timeout_ms = session.in_force().lock_timeout_ms;
    // Two transactions that both hold the table in a shared mode would deadlock here.
    if let Some(mark) = session.table_mark.take_if(|_| TransactionLocks::takes_table(change)) {
        session.locks().release_to(mark);
    }
    let database = Arc::clone(&session.database);
    let kept = session.kept_state().map(Arc::clone);
    let are_there = || match &kept {
        Some(kept) => check_rows(&database, kept, change),
        None => check_dead(&database.live(), change),
    };
    let waits = (timeout_ms, kept.is_some());
    session.locks().lock_change(base, change, waits, are_there).await
}

/// As [`lock_gone_keys`], of the rows of `table` at the places `ended`, as [`rows_at`](super::upsert::rows_at) has
/// them; `change` ends those of them that are committed.
pub(super) async fn lock_changed_keys(
    session: &mut Session,
    (shipped, table): (&Arc<ShippedPages>, &TableState),
    ended: &BTreeMap<usize, VidSet>,
    change: &TableChange,
) -> Result<()> {
    if session.owns(table.schema.table_id) {
        return Ok(());
    }
    let dead = ended.iter();
    let dead = dead.flat_map(|(place, vids)| vids.iter().map(|vid| (*place, vid)));
    let dead: BTreeSet<RowPlace> = dead.collect();
    let keys = locking::keys_of(&session.database, (shipped, table), &dead).await?;
    lock_for_good(session, keys.into_values().flatten().collect(), change).await
}

async fn lock_for_good(
    session: &mut Session,
    mut keys: Vec<LockKey>,
    change: &TableChange,
) -> Result<()> {
    keys.sort_unstable();
    keys.dedup();
    let timeout_ms = session.in_force().lock_timeout_ms;
    let database = Arc::clone(&session.database);
    let kept = session.kept_state().map(Arc::clone);
    let stay = kept.as_ref().map(|kept| || check_rows(&database, kept, change));
    let stays = stay.as_ref().map(|stay| stay as Stays<'_>);
    for key in keys {
        session.locks().lock_while(key, LockMode::ForUpdate, timeout_ms, stays).await?;
    }
    Ok(())
}

/// Waits until no other transaction has the row at `place` of the table `table_id`; returns whether it had to.
pub(super) async fn wait_for_row(
    session: &mut Session,
    table_id: u32,
    (place, vid): RowPlace,
) -> Result<bool> {
    let state = session.database.catalog();
    let Some(table) = state.table_by_id(table_id) else { return Ok(false) };
    let (key, mode) = (row_key(table, place, vid), LockMode::ForKeyShare);
    let timeout_ms = session.in_force().lock_timeout_ms;
    if session.locks().try_lock(key, mode)? {
        return Ok(false);
    }
    session.locks().lock(key, mode, timeout_ms).await?;
    Ok(true)
}
