//! `SELECT … FOR UPDATE` of many rows by a fragment: the device finds the rows, locks them and returns them.
//!
//! The rows come to the host, as those of any query do, and each is locked where it lies. Without a fragment the host
//! would lock more than [`LOCKED_ROWS_MAX`] rows by locking the table. So other writers of the table go on, and an
//! update fragment of the same transaction finds its rows locked.
//!
//! 1. [`rows_locked`] asks whether the statement may: one table with one tablet, in a mode that excludes other writers,
//!    without LIMIT, on pages of devices. A fragment locks no keys. So rows that foreign keys may refer to, which FOR
//!    UPDATE would keep from FOR KEY SHARE, are locked [as ever](super::locking).
//! 2. The caller compares the rows with the newest version. If one has changed since the snapshot, READ COMMITTED runs
//!    the query again, with the locks kept.
//!
//! Source: Update NDP, section 7; PostgreSQL's manual, "Explicit Locking".

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use arrow::datatypes::SchemaRef;
use cleave_catalog::activity::Act;
use cleave_catalog::error::Result;
use cleave_catalog::settings::UpdatePlacement;
use cleave_engine::device::shared_locks::row_object;
use cleave_fragment::{LockWaitPolicy, RowsToLock};
use cleave_query::cooperative::locking::plan_locking;
use cleave_query::select::{QueryRequest, ReadView};
use cleave_sql::statement::Parameters;
use cleave_sql::statement::locking::{LockedTable, Locking, WaitPolicy, hidden_names};
use cleave_txn::LockMode;

use super::lost_waits::run_while_rows_stay;
use super::transaction_locks::LOCKED_ROWS_MAX;
use super::{Session, block, foreign_keys};

/// The rows of the query on `view`, or a newer one, with the columns that name them, locked by a fragment; and the view
/// that it has read. None: the host locks them.
///
/// # Errors
/// Those of locks and of the device.
pub(super) async fn rows_locked(
    session: &mut Session,
    view: &ReadView,
    (locking, tables): (&Locking, &[LockedTable]),
    parameters: &Parameters,
) -> Result<Option<(ReadView, RecordBatch)>> {
    let placement = session.in_force().update_placement;
    let [locked] = tables else { return Ok(None) };
    if matches!(placement, UpdatePlacement::Host | UpdatePlacement::Keys) {
        return Ok(None);
    }
    let table = view.state.find_writable_table(&locked.table)?;
    let id = table.schema.table_id;
    let is_asked = placement == UpdatePlacement::Device;
    let is_large = table.row_count() > LOCKED_ROWS_MAX as u64;
    // Own rows lie on pages of the block alone, and need no lock.
    let has_rows = session.own_changes(id).is_some_and(|own| own.row_count() > 0);
    if table.tablets.len() != 1 || has_rows || session.owns(id) || !(is_large || is_asked) {
        return Ok(None);
    }
    match locked.mode {
        LockMode::ForNoKeyUpdate => {}
        LockMode::ForUpdate if !foreign_keys::is_in_references(session, table) => {}
        _ => return Ok(None),
    }
    // Rows of a shipped delta have no place on the device, where others lock them.
    let view = match view.state.shipped.is_empty() {
        true => view.clone(),
        // The snapshot that a block keeps stays as it is.
        false if session.reads_snapshot() => return Ok(None),
        false => session.view_with_keys().await?,
    };
    let table = view.state.find_writable_table(&locked.table)?;
    if table.schema.table_id != id || table.tablets.len() != 1 {
        return Ok(None);
    }
    let policy = match locked.wait {
        WaitPolicy::Wait => LockWaitPolicy::Block,
        WaitPolicy::Skip => LockWaitPolicy::Skip,
        WaitPolicy::Fail => LockWaitPolicy::Error,
    };
    let query = locking.row_query(&view.state, tables, None)?;
    let asked = QueryRequest { query: &query, parameters, view: Some(&view) };
    let [vid, _] = hidden_names(0);
    let timeout_ms = session.in_force().lock_timeout_ms;
    let to_lock = |schema: &SchemaRef| {
        Some(RowsToLock {
            table: table.schema.name.clone(),
            object: row_object(id, 0),
            vid: schema.index_of(&vid).ok()?,
            policy,
            timeout_ms,
        })
    };
    let (database, settings) = (session.database.queries(), session.in_force());
    let Some(query) = Box::pin(plan_locking(database, settings, asked, to_lock)).await? else {
        return Ok(None);
    };
    let is_many = query.row_estimate() > LOCKED_ROWS_MAX as f64;
    let is_exclusive = locked.mode == LockMode::ForUpdate;
    if !(is_many || is_asked) || is_exclusive && session.locks().others_share_keys(id) {
        return Ok(None);
    }
    let Some(job) = block::locks_mut(session).begin_job(query.device()) else { return Ok(None) };
    let reads = (&*session.database, session.kept_state().map(Arc::clone));
    let rows = run_while_rows_stay(reads, (table, 0), &job, query.run(&job)).await?;
    let Some(rows) = rows else { return Ok(None) };
    session.database.activity().note(Act::LockingFragment);
    let rows = concat_batches(&query.schema(), &rows)?;
    Ok(Some((view, rows)))
}
