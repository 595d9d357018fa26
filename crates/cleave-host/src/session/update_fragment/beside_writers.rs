//! Update fragments beside other writers of the table: rows are locked, and the page versions wait for COMMIT.
//!
//! ```text
//!  FOR SHARE on the pages, ROW EXCLUSIVE ─▶ tails pinned ─▶ snapshot ─▶ fragments: rows locked, pages written
//!                                                                                    │ rows replaced since: left out
//!                                                                                    ▼
//!               rows committed since, row by row ◀─ the rest ─ page versions of the transaction ─▶ COMMIT
//! ```
//!
//! 1. The table is locked so that writers of rows go on, and its [pages](pages_key) so that vacuum waits. Several
//!    transactions share the pages: who reads or commits later puts its versions over the others'
//!    ([`TableVersions::rebased`]). A block takes this lock only if it is free, for waiting for a vacuum could close a
//!    deadlock cycle that PostgreSQL does not have. Otherwise it makes its rows itself if fragments have locked rows
//!    for it, and locks the table as a whole if none has.
//! 2. With `update_locking = shared` the fragment locks each row before it changes it
//!    ([`LockRowsExec`](cleave_fragment::LockRowsExec)). With `optimistic` the rows are locked when it has ended, none
//!    of which may be another transaction's then.
//! 3. The rows are compared with the newest committed ones. What others have replaced between the snapshot and its lock
//!    is left out; the rows committed since, which lie on pages of their own, are then changed
//!    [row by row](change_rest) on a newer snapshot, as READ COMMITTED has it. Where pages are not the same any more,
//!    the fragments run again, [`ATTEMPTS`] times at most; then the table is locked. In a block that keeps its snapshot
//!    a row that others have changed since is an error, as for a single row.
//! 4. Rows on pages that [can have no version](cleave_engine::write::settled_pages) are [changed so too](change_rest),
//!    if they are few and the statement reads nothing else: those of the delta, and own rows of the block. So are rows
//!    that came by small commits since the last manifest: the log can name page versions only of [pages that the
//!    manifest knows](Engine::unlogged_pages).
//! 5. A DELETE reports which rows die. The block keeps them as those of other statements. Their keys are not locked, so
//!    whoever inserts such a key [waits](crate::session::key_locks::wait_for_row) for the row.
//!
//! Source: Update NDP, sections 4 and 5; `docs/design/versions-and-commit.md`.

use std::sync::Arc;

use cleave_catalog::catalog::TableState;
use cleave_catalog::error::{ConflictKind, Error, Result};
use cleave_catalog::settings::{Isolation, UpdateLocking};
use cleave_engine::delta::Live;
use cleave_engine::device::{Claim, Device};
#[cfg(doc)]
use cleave_engine::storage_engine::Engine;
use cleave_engine::storage_engine::commit::validate::check_dead;
use cleave_engine::write::change_pages::{TabletChange, add_versions, ended_rows};
use cleave_engine::write::insert::TableChange;
use cleave_engine::write::page_versions::TableVersions;
use cleave_engine::write::tail_pins::TailPin;
use cleave_engine::write::vid_set::VidSet;
use cleave_query::cooperative::changing::ChangingQuery;
use cleave_query::select::ReadView;
use cleave_sql::statement::Parameters;
use cleave_sql::statement::modify::Modify;
use cleave_txn::LockMode;

use super::returned_rows::ReturnedRows;
use super::{
    Asked, Done, Ran, Ready, Settled, Way, column_ids, queries_for, reported, rows_to_lock,
};
use crate::session::block::{self, OwnRows, Taken, own};
use crate::session::foreign_keys::Ending;
use crate::session::lost_waits::run_while_rows_stay;
use crate::session::modify::Made;
use crate::session::transaction_locks::{LOCKED_ROWS_MAX, pages_key, row_key};
use crate::session::{Session, foreign_keys, locking, modify, serializable};

/// Snapshots on which a statement runs before it locks its table.
const ATTEMPTS: usize = 4;
/// Rows that are locked one by one by the host.
const HOST_LOCKS_MAX: u64 = 500_000;

/// What came of a run on one snapshot.
enum Attempt {
    Done(Done),
    /// Others have changed a row since.
    Changed,
    /// It cannot be done in this way.
    No,
}

/// Changes the rows of `asked` by fragments of the way that is given, and by those that are ready, as far as they can
/// be used; None: it is to lock its table.
///
/// # Errors
/// Those of its expressions, locks and devices.
pub(super) async fn change(
    session: &mut Session,
    asked: Asked<'_>,
    fragments: (Way, &mut Option<Ready>),
) -> Result<Option<Ran>> {
    let is_own = own::begin_own(session);
    let changed = Box::pin(change_in_block(session, is_own, asked, fragments)).await;
    let (changed, taken) = match changed {
        // Its rows are locked, and need no lock on the table.
        Ok(None) if !is_own && session.locks().has_jobs() => (Some(Ran::ByRows), Ok(Taken::Done)),
        Ok(Some(done)) => (Some(Ran::Done(done)), Ok(Taken::Done)),
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
    (way, ready): (Way, &mut Option<Ready>),
) -> Result<Option<Done>> {
    let Some(id) = lock_table(session, is_own, asked.modify).await? else { return Ok(None) };
    let pin = Arc::new(session.database.tail_pins().pin(id));
    // Whoever replaces a last page from now on has seen the pin.
    drop(session.database.writer_lock().await);
    for _ in 0..ATTEMPTS {
        let fragments = (way, &mut *ready);
        let attempt = Box::pin(attempt(session, (id, &pin, is_own), asked, fragments)).await;
        if let Some(block) = &mut session.block
            && !matches!(attempt, Ok(Attempt::Done(_)))
        {
            block.defined.trim();
        }
        match attempt? {
            Attempt::Done(done) => return Ok(Some(done)),
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
    if session.owns(id) {
        return Ok(None);
    }
    let key = pages_key(table);
    if is_own {
        // Who has this lock may be waiting for the whole table.
        if let Some(mark) = session.table_mark.take() {
            session.locks().release_to(mark);
        }
        let timeout_ms = session.in_force().lock_timeout_ms;
        session.locks().lock(key, LockMode::ForShare, timeout_ms).await?;
        let schema = locking::lock_for_writing(session, &modify.table).await?;
        if schema.table_id != id {
            return Ok(None);
        }
    } else if !session.locks().try_lock(key, LockMode::ForShare)? {
        return Ok(None);
    }
    Ok(Some(id))
}

/// Runs the fragments on one snapshot, and makes what they report the transaction's.
async fn attempt(
    session: &mut Session,
    (id, pin, is_own): (u32, &Arc<TailPin>, bool),
    asked: Asked<'_>,
    (way, ready): (Way, &mut Option<Ready>),
) -> Result<Attempt> {
    let Asked { modify, parameters, places } = asked;
    let is_alone = modify.is_of_its_rows_alone();
    let view = match is_alone || session.keeps_view() {
        true => session.view().await?,
        false => session.view_with_keys().await?,
    };
    let Ok(table) = view.state.find_writable_table(&modify.table) else { return Ok(Attempt::No) };
    if table.schema.table_id != id {
        return Ok(Attempt::No);
    }
    let Some(settled) = Settled::of(session, &view, table) else { return Ok(Attempt::No) };
    let (mut vids_below, ends) = (settled.vids_below, settled.ends);
    let mut has_rest = settled.rows_behind > 0;
    // Those rows are read once more when the others have changed.
    if has_rest && !is_alone {
        return Ok(Attempt::No);
    }
    // A statement that reads nothing else has the rows that it would have on the later snapshot: no row of the earlier
    // one can change again.
    if is_own
        && !places.is_empty()
        && is_alone
        && !keeps_snapshot(session)
        && let Some(recent) = session.database.unlogged_pages(table, LOCKED_ROWS_MAX as u64)
    {
        vids_below.iter_mut().zip(recent).for_each(|(below, recent)| *below = recent.min(*below));
        has_rest = true;
    }
    let read = (&**table, vids_below.as_slice());
    let queries = queries_for(session, &view, read, asked, (way, ready.take()));
    let queries = Box::pin(queries).await?;
    let Some(queries) = queries else { return Ok(Attempt::No) };
    let columns = column_ids(table, places);
    let before = session.defined().versions_of(id);
    let mut versions = None;
    let mut ended = TableChange::of_read(table);
    let mut returned = ReturnedRows::of(session, table, modify);
    let mut count = 0;
    for (place, query) in queries.iter().enumerate() {
        let ran = run_one(session, (table, place), query, (&columns, returned.as_mut())).await?;
        let Some((device, claim, change)) = ran else { return Ok(Attempt::No) };
        if columns.is_empty() {
            let dead = ended_rows(table, (&device, &claim), change)?;
            count += dead.len() as u64;
            ended.dead.insert(place, dead);
            continue;
        }
        let known = versions.as_ref().unwrap_or(&*before);
        let (next, rows) = add_versions(known, table, (&device, &claim), change)?;
        count += rows;
        versions = Some(next);
    }
    if count == 0 && !has_rest {
        return done(session, (modify, parameters), &view, (0, returned)).await;
    }
    let changed = match &versions {
        Some(versions) => Rows::Changed(versions),
        None => Rows::Ended(&ended),
    };
    if session.in_force().update_locking == UpdateLocking::Optimistic {
        if count > HOST_LOCKS_MAX {
            return Ok(Attempt::No);
        }
        if !lock_rows(session, table, changed)? {
            return Ok(Attempt::Changed);
        }
    }
    if matches!(changed, Rows::Ended(_)) && session.locks().others_share_keys(id) {
        return Ok(Attempt::No);
    }
    // What others have replaced between the snapshot and the locks is left to the rows that replace it.
    let compared = Box::pin(compared(session, table, versions, &mut ended)).await;
    let (versions, replaced) = match compared {
        Err(Error::Conflict { kind: ConflictKind::Update, .. }) if !session.keeps_view() => {
            return Ok(Attempt::Changed);
        }
        Ok(None) => return Ok(Attempt::No),
        Ok(Some(compared)) => compared,
        Err(error) => return Err(error),
    };
    // Such a statement reads one snapshot.
    if replaced > 0 && keeps_snapshot(session) {
        return Ok(Attempt::Changed);
    }
    note_writes(session, table, versions.as_ref(), &ended).await?;
    let Some(block) = &mut session.block else { return Ok(Attempt::No) };
    if !block.locks.has_rows_of_jobs() {
        return Err(Error::concurrent_update());
    }
    count -= replaced;
    if let Some(returned) = returned.as_mut().filter(|_| replaced > 0) {
        returned.retain(|place, vid| match &versions {
            Some(versions) => versions.has(place, vid),
            None => ended.dead.get(&place).is_some_and(|dead| dead.contains(vid)),
        })?;
    }
    match versions {
        Some(versions) => {
            block.defined.put_versions(id, versions, Arc::clone(pin));
            block.own = None;
        }
        None => {
            if let Taken::Again = block::keep(session, ended, &OwnRows::new()).await? {
                return Ok(Attempt::Changed);
            }
        }
    }
    if replaced > 0 || has_rest {
        let vids_from = vids_below.iter().zip(&ends).map(|(below, end)| *below.min(end));
        let vids_from: Vec<u64> = vids_from.collect();
        let rest = Box::pin(change_rest(session, (modify, parameters), &vids_from)).await?;
        count += rest.count as u64;
        returned.as_mut().map_or(Ok(()), |returned| returned.add(&rest))?;
    }
    done(session, (modify, parameters), &view, (count, returned)).await
}

/// A statement, which has read `view`, with so many rows and those for RETURNING.
async fn done(
    session: &Session,
    asked: (&Modify, &Parameters),
    view: &ReadView,
    (count, returned): (u64, Option<ReturnedRows>),
) -> Result<Attempt> {
    let returned = match returned {
        Some(rows) => Some(rows.outcome(session, asked, view).await?),
        None => None,
    };
    Ok(Attempt::Done(Done { count, returned }))
}

/// Whether all rows of the statement are those of one snapshot.
fn keeps_snapshot(session: &Session) -> bool {
    session.view_of_parts().is_some()
        || session.is_alone_in_block()
            && session.in_force().default_transaction_isolation != Isolation::ReadCommitted
}

/// What fragments have made of `table` as others have left it: `versions` over theirs, of the rows that are alive
/// still, and the number of the rest; for a DELETE, `ended` without the rest. In a block that keeps its snapshot the
/// versions stay over the pages of that. None: a page was replaced otherwise.
///
/// # Errors
/// [`Error::Conflict`] of a row that another fragment has changed in place, or a page that was replaced otherwise; in a
/// block that keeps its snapshot, of any row that others have changed since.
async fn compared(
    session: &mut Session,
    table: &TableState,
    versions: Option<TableVersions>,
    ended: &mut TableChange,
) -> Result<Option<(Option<TableVersions>, u64)>> {
    let database = Arc::clone(&session.database);
    let id = table.schema.table_id;
    let keeps_snapshot = session.keeps_view();
    let Some(mut versions) = versions else {
        let replaced = leave_out_dead(ended, &database.live())?;
        if keeps_snapshot && replaced > 0 {
            return Err(Error::concurrent_update());
        }
        check_dead(&database.live(), ended)?;
        return Ok(Some((None, replaced)));
    };
    loop {
        let live = database.live();
        versions.check_since(table, &live)?;
        let newest = live.state.table_by_id(id).ok_or_else(Error::concurrent_update)?;
        if keeps_snapshot {
            return match versions.dead_rows_in(newest, &live) {
                None => Ok(None),
                Some(0) => Ok(Some((Some(versions), 0))),
                Some(_) => Err(Error::concurrent_update()),
            };
        }
        match versions.rebased(&database, newest, session.defined().claims()).await? {
            Some(rebased) => versions = rebased,
            None => {
                let (versions, replaced) = versions.without_dead(id, &live)?;
                return Ok(Some((Some(versions), replaced)));
            }
        }
    }
}

/// Records, for SERIALIZABLE, the rows that have changed in `versions`, or that die with `ended`: by their keys, if
/// they are few. Keys stay as they are, so those of the rows as others read them are all.
async fn note_writes(
    session: &Session,
    table: &TableState,
    versions: Option<&TableVersions>,
    ended: &TableChange,
) -> Result<()> {
    let Some(tracked) = session.tracked() else { return Ok(()) };
    let changed;
    let change = match versions {
        None => ended,
        Some(versions) => {
            let mut rows = TableChange::new(Arc::clone(&table.schema));
            for (place, vid) in versions.rows().take(serializable::ROWS_MAX + 1) {
                rows.dead.entry(place).or_default().extend([vid]);
            }
            changed = rows;
            &changed
        }
    };
    serializable::note_writes(&session.database, Some(tracked), change).await
}

/// Leaves the rows that are dead in `live` out of `ended`; returns their number.
fn leave_out_dead(ended: &mut TableChange, live: &Live) -> Result<u64> {
    let table = live.state.find_writable_table(&ended.schema.name)?;
    let mut count = 0;
    for (place, rows) in &mut ended.dead {
        let tablet = table.tablets.get(*place).ok_or_else(Error::concurrent_update)?;
        let (id, number) = (ended.schema.table_id, live.number);
        let lives = |vid: &u64| live.delta.lives(id, *place, tablet, *vid, number);
        let before = rows.len();
        let mut alive = VidSet::default();
        alive.extend(rows.iter().filter(lives));
        count += (before - alive.len()) as u64;
        *rows = alive;
    }
    ended.dead.retain(|_, rows| !rows.is_empty());
    Ok(count)
}

/// Changes, row by row, the rows on pages that begin with the VIDs `vids_from` or greater ones: what was committed
/// since the snapshot of the fragments, whose pages are pinned.
async fn change_rest(
    session: &mut Session,
    asked: (&Modify, &Parameters),
    vids_from: &[u64],
) -> Result<Made> {
    let modify = asked.0;
    loop {
        let view = session.view().await?;
        let table = Arc::clone(view.state.find_writable_table(&modify.table)?);
        let made = modify::made_behind(session, &view, &table, asked, vids_from).await?;
        modify::lock_keys_of(session, &view, &table, modify, &made).await?;
        let ending = match foreign_keys::keeps_keys(session, &table, modify) {
            true => Ending::KeysKept,
            false => made.ending(modify, &view),
        };
        let taken = own::take(session, &view, &table, made.change.clone(), ending).await?;
        match taken {
            Taken::Done => return Ok(made),
            Taken::Again if session.view_of_parts().is_some() => {
                return Err(Error::concurrent_update());
            }
            Taken::Again => {}
        }
    }
}

/// What fragments have done to the rows of a table.
#[derive(Clone, Copy)]
enum Rows<'a> {
    Changed(&'a TableVersions),
    Ended(&'a TableChange),
}

/// Runs the fragment of the tablet at `place`: what it reports. None: it does not run.
async fn run_one<'a>(
    session: &mut Session,
    (table, place): (&TableState, usize),
    query: &ChangingQuery,
    (columns, returned): (&'a [u32], Option<&mut ReturnedRows>),
) -> Result<Option<(Arc<Device>, Arc<Claim>, TabletChange<'a>)>> {
    let device = Arc::clone(query.device());
    let is_optimistic = session.in_force().update_locking == UpdateLocking::Optimistic;
    let to_lock = rows_to_lock(session, table, place);
    let Some(block) = &mut session.block else { return Ok(None) };
    let claim = block.defined.claim(&device);
    let changes = if is_optimistic {
        query.run(&claim).await?
    } else {
        if !query.is_on_device() {
            return Ok(None);
        }
        let Some(job) = block.locks.begin_job(&device) else { return Ok(None) };
        let run = query.run_locking(&claim, to_lock, &job);
        let reads = (&*session.database, session.kept_state().map(Arc::clone));
        run_while_rows_stay(reads, (table, place), &job, run).await?
    };
    let Some(changes) = changes else { return Ok(None) };
    let change = reported(session, query, changes, (place, columns), returned)?;
    Ok(Some((device, claim, change)))
}

/// Locks rows that have changed; false: another transaction has one of them.
fn lock_rows(session: &mut Session, table: &TableState, changed: Rows<'_>) -> Result<bool> {
    let locks = session.locks();
    let lock = |place, vid, mode| locks.try_lock(row_key(table, place, vid), mode);
    match changed {
        Rows::Changed(versions) => {
            for (place, vid) in versions.rows() {
                if !lock(place, vid, LockMode::ForNoKeyUpdate)? {
                    return Ok(false);
                }
            }
        }
        Rows::Ended(change) => {
            for (place, dead) in &change.dead {
                for vid in dead.iter() {
                    if !lock(*place, vid, LockMode::ForUpdate)? {
                        return Ok(false);
                    }
                }
            }
        }
    }
    Ok(true)
}
