//! Update fragments beside other writers of the table: rows are locked, and the page versions wait for COMMIT.
//!
//! ```text
//!  SHARE UPDATE EXCLUSIVE, ROW EXCLUSIVE ─▶ tails pinned ─▶ snapshot ─▶ fragments: lock rows, write page versions
//!                                                               ▲                    │
//!                                                               └── a row has changed ┤ checked against the newest
//!                                                                   since the snapshot▼
//!                                                            page versions of the transaction ─▶ COMMIT
//! ```
//!
//! 1. The table is locked in a mode that lets writers of rows go on, and excludes vacuum and other fragments that make
//!    page versions of it. A transaction that holds nothing else waits for this lock; another one takes it only if it
//!    is free, and else locks the table as a whole: waiting could close a deadlock cycle that PostgreSQL does not have.
//! 2. With `update_locking = shared` the fragment locks each row before it changes it
//!    ([`LockRowsExec`](cleave_fragment::LockRowsExec)). With `optimistic` the rows are locked when it has ended, none of
//!    which may be another transaction's then.
//! 3. The rows are compared with the newest committed ones. If others have changed one between the snapshot and its
//!    lock, the statement runs again on a newer snapshot and keeps its locks, so that it soon ends; after
//!    [`ATTEMPTS`] of them it locks the table.
//!
//! Source: Update NDP, sections 4 and 5; `docs/design/versions-and-commit.md`.

use std::collections::BTreeSet;
use std::sync::Arc;

use cleave_catalog::activity::Act;
use cleave_catalog::catalog::TableState;
use cleave_catalog::error::{ConflictKind, Error, Result};
use cleave_catalog::settings::UpdateLocking;
use cleave_engine::device::shared_locks::row_object;
use cleave_engine::write::change_pages::{TabletChange, add_versions};
use cleave_engine::write::page_versions::TableVersions;
use cleave_engine::write::tail_pins::TailPin;
use cleave_fragment::{LockWaitPolicy, RowsToLock, read_changed};
use cleave_query::cooperative::changing::{Changes, ChangingQuery};
use cleave_sql::statement::Parameters;
use cleave_sql::statement::modify::Modify;
use cleave_txn::{LockMode, Written};

use super::{Ran, planned};
use crate::session::block::{Taken, own};
use crate::session::transaction_locks::{row_key, table_key};
use crate::session::{Session, locking, serializable};

/// Snapshots on which a statement runs before it locks its table.
const ATTEMPTS: usize = 4;
/// Rows that are locked one by one by the host.
const HOST_LOCKS_MAX: u64 = 500_000;

/// An UPDATE, and the places of the columns that it sets.
type Asked<'a> = (&'a Modify, &'a Parameters, &'a BTreeSet<usize>);

/// What came of a run on one snapshot.
enum Attempt {
    Done(u64),
    /// Others have changed a row since.
    Changed,
    /// It cannot be done in this way.
    No,
}

/// Changes the rows of `asked`; None: it is to lock its table.
///
/// # Errors
/// Those of its expressions, locks and devices.
pub(super) async fn change(session: &mut Session, asked: Asked<'_>) -> Result<Option<Ran>> {
    let is_own = own::begin_own(session);
    let (changed, taken) = match Box::pin(change_in_block(session, is_own, asked)).await {
        Ok(Some(count)) => (Some(Ran::Done(count)), Ok(Taken::Done)),
        Ok(None) => (None, Ok(Taken::Again)),
        Err(error) => (None, Err(error)),
    };
    match Box::pin(own::end_own(session, is_own, taken)).await? {
        Taken::Done => Ok(changed),
        // The commit found that a lock was lost.
        Taken::Again if changed.is_some() => Ok(Some(Ran::Again)),
        Taken::Again => Ok(None),
    }
}

async fn change_in_block(
    session: &mut Session,
    is_own: bool,
    asked: Asked<'_>,
) -> Result<Option<u64>> {
    let Some(id) = lock_table(session, is_own, asked.0).await? else { return Ok(None) };
    let pin = Arc::new(session.database.tail_pins().pin(id));
    // Whoever replaces a last page from now on has seen the pin.
    drop(session.database.writer_lock().await);
    for _ in 0..ATTEMPTS {
        let attempt = Box::pin(attempt(session, (id, &pin), asked)).await;
        if let Some(block) = &mut session.block
            && !matches!(attempt, Ok(Attempt::Done(_)))
        {
            block.defined.trim();
        }
        match attempt? {
            Attempt::Done(count) => return Ok(Some(count)),
            Attempt::Changed => {}
            Attempt::No => return Ok(None),
        }
    }
    Ok(None)
}

/// Locks the table of `modify`, and returns its id; None: that is not free, or the table has changes of the block.
async fn lock_table(session: &mut Session, is_own: bool, modify: &Modify) -> Result<Option<u32>> {
    serializable::track_writes(session).await?;
    let names = session.names();
    let table = names.find_writable_table(&modify.table)?;
    let id = table.schema.table_id;
    let has_changed = session.own_changes(id).is_some();
    if has_changed || session.owns(id) || session.reads_snapshot() {
        return Ok(None);
    }
    let mode = LockMode::ShareUpdateExclusive;
    if is_own {
        // Who has this lock may be waiting for the whole table.
        if let Some(mark) = session.table_mark.take() {
            session.locks().release_to(mark);
        }
        locking::lock_table(session, table, mode, false).await?;
        let schema = locking::lock_for_writing(session, &modify.table).await?;
        if schema.table_id != id {
            return Ok(None);
        }
    } else if !session.locks().try_lock(table_key(table), mode)? {
        return Ok(None);
    }
    if let Some(tracked) = session.tracked() {
        tracked.writes(u64::from(id), &Written::All)?;
    }
    Ok(Some(id))
}

/// Runs the fragments on one snapshot, and makes what they report the transaction's.
async fn attempt(
    session: &mut Session,
    (id, pin): (u32, &Arc<TailPin>),
    (modify, parameters, places): Asked<'_>,
) -> Result<Attempt> {
    let view = session.view_with_keys().await?;
    let Ok(table) = view.state.find_writable_table(&modify.table) else { return Ok(Attempt::No) };
    if table.schema.table_id != id || !view.state.shipped.is_empty() {
        return Ok(Attempt::No);
    }
    let asked = (modify, parameters, places);
    let queries = Box::pin(planned(session, &view, table, asked)).await?;
    let Some(queries) = queries else { return Ok(Attempt::No) };
    let columns = places.iter().filter_map(|place| table.schema.columns.get(*place));
    let columns: Vec<u32> = columns.map(|column| column.id).collect();
    let before = session.defined().versions_of(id);
    let mut versions = None;
    let mut count = 0;
    for (place, query) in queries.iter().enumerate() {
        let known = versions.as_ref().unwrap_or(&*before);
        let ran = run_one(session, (table, place), query, (&columns, known)).await?;
        let Some((next, rows)) = ran else { return Ok(Attempt::No) };
        count += rows;
        versions = Some(next);
    }
    let Some(versions) = versions.filter(|_| count > 0) else { return Ok(Attempt::Done(0)) };
    if session.in_force().update_locking == UpdateLocking::Optimistic {
        if count > HOST_LOCKS_MAX {
            return Ok(Attempt::No);
        }
        if !lock_rows(session, table, &versions)? {
            return Ok(Attempt::Changed);
        }
    }
    if let Err(error) = versions.check(id, &session.database.live()) {
        return match error {
            Error::Conflict { kind: ConflictKind::Update, .. } => Ok(Attempt::Changed),
            error => Err(error),
        };
    }
    let Some(block) = &mut session.block else { return Ok(Attempt::No) };
    if !block.locks.has_rows_of_jobs() {
        return Err(Error::concurrent_update());
    }
    block.defined.put_versions(id, versions, Arc::clone(pin));
    block.own = None;
    Ok(Attempt::Done(count))
}

/// Runs the fragment of the tablet at `place`: the versions `known` with what it reports, and the number of rows. None:
/// it does not run.
async fn run_one(
    session: &mut Session,
    (table, place): (&TableState, usize),
    query: &ChangingQuery,
    (columns, known): (&[u32], &TableVersions),
) -> Result<Option<(TableVersions, u64)>> {
    let device = Arc::clone(query.device());
    let is_optimistic = session.in_force().update_locking == UpdateLocking::Optimistic;
    let Some(block) = &mut session.block else { return Ok(None) };
    let claim = block.defined.claim(&device);
    let changes = if is_optimistic {
        query.run(&claim).await?
    } else {
        if !query.is_on_device() {
            return Ok(None);
        }
        let Some(job) = block.locks.begin_job(&device) else { return Ok(None) };
        let to_lock = RowsToLock {
            table: table.schema.name.clone(),
            object: row_object(table.schema.table_id, place),
            vid: 0,
            policy: LockWaitPolicy::Block,
        };
        query.run_locking(&claim, to_lock, &job).await?
    };
    let Some(Changes { rows, space }) = changes else { return Ok(None) };
    let pages = read_changed(&rows).map_err(|error| device.strange_payload(&error.to_string()))?;
    session.database.activity().note(Act::UpdateFragment);
    let change = TabletChange { place, columns, pages, space };
    add_versions(known, table, (&device, &claim), change).map(Some)
}

/// Locks the rows of `versions`; false: another transaction has one of them.
fn lock_rows(session: &mut Session, table: &TableState, versions: &TableVersions) -> Result<bool> {
    let locks = session.locks();
    for (place, vid) in versions.rows() {
        if !locks.try_lock(row_key(table, place, vid), LockMode::ForNoKeyUpdate)? {
            return Ok(false);
        }
    }
    Ok(true)
}
