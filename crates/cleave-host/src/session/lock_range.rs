//! `SELECT … FOR UPDATE` and similar queries over few rows of one table, without a plan. The rows are found by a range
//! of keys, locked as [`super::locking`] locks them, and looked up again in what is committed by then. The delta is not
//! flushed.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::array::UInt32Array;
use arrow::compute::take_record_batch;
use cleave_catalog::catalog::TableState;
use cleave_catalog::error::{ConflictKind, Error, Result};
use cleave_engine::storage_engine::commit::validate::{RowPlace, check_dead};
use cleave_engine::write::insert::TableChange;
use cleave_query::point_path::{FoundPlace, Sight};
use cleave_query::range_path::read::{RangeRead, RangeRow};
use cleave_query::range_path::{RangeTemplate, Window};
use cleave_sql::statement::Parameters;
use cleave_sql::statement::locking::{LockedTable, Locking, WaitPolicy};
use cleave_txn::LockKey;

use super::locking::{LOOKED_AT_GROWTH, LOOKED_AT_MIN};
use super::ranges::found_rows;
use super::transaction_locks::{self, LOCKED_ROWS_MAX, unique_indexes};
use super::{Outcome, Session, locking, ranges};

/// A row of the result, and what is locked for it.
#[derive(Debug, Default)]
struct Lockable {
    /// None: it is one of the transaction's own rows, which need no lock.
    row: Option<RowPlace>,
    /// Its unique keys.
    keys: Vec<LockKey>,
}

/// Runs a query with locking clauses whose result rows are rows of the one table that it locks; None: it needs a plan.
pub(super) async fn lock_range(
    session: &mut Session,
    locking: &Locking,
    tables: &[LockedTable],
    (template, parameters): (&RangeTemplate, &Parameters),
) -> Result<Option<Outcome>> {
    let [locked] = tables else { return Ok(None) };
    if !ranges::takes_ranges(session.in_force())
        || locked.table != template.table()
        || !template.stops
    {
        return Ok(None);
    }
    let Some(window) = template.window(parameters) else { return Ok(None) };
    session.check_may_write(&locking.name())?;
    let skips = locked.wait == WaitPolicy::Skip;
    let wanted = window.wanted();
    let mut looked_at = wanted.map(|wanted| wanted.saturating_mul(2).max(LOOKED_AT_MIN));
    let mark = session.locks().mark();
    loop {
        let live = session.live().await?;
        let Some(ranges) = ranges::ranges(session, template, parameters, &live.state)? else {
            return Ok(None);
        };
        let table = Arc::clone(live.state.find_writable_table(&locked.table)?);
        let (ranged, rows) = {
            let sight = Sight::new(live, session.own_changes(template.table_id()));
            let asked = skips.then_some(Window { limit: looked_at, offset: 0 });
            let asked = ranges::ranged(session, &sight, template, (ranges, parameters), asked);
            let Some(ranged) = asked.await? else { return Ok(None) };
            let rows = found_rows(&ranged, ranged.rows.num_columns().saturating_sub(1))?;
            if rows.len() > LOCKED_ROWS_MAX {
                return Ok(None);
            }
            let read = template.read(&session.database, &sight, &table, session.in_force().stack);
            (ranged, lockable(&table, &read, rows).await?)
        };
        let kept = match skips {
            true => lock_free_ones(session, &table, locked, (&rows, wanted)).await?,
            false => lock_them(session, &table, locked, &rows).await?,
        };
        let Some(kept) = kept else {
            // Locks taken in vain are freed for others. A transaction that waits keeps them, so that it makes progress.
            if skips {
                session.locks().release_to(mark);
            }
            continue;
        };
        let is_cut = looked_at.is_some_and(|count| rows.len() >= count);
        if skips && is_cut && wanted.is_some_and(|wanted| kept.len() < wanted) {
            looked_at = looked_at.map(|count| count.saturating_mul(LOOKED_AT_GROWTH));
            continue;
        }
        let (offset, limit) = match skips {
            true => (window.offset, window.limit.unwrap_or(usize::MAX)),
            false => (0, usize::MAX),
        };
        let shown: Vec<usize> = (0..ranged.rows.num_columns().saturating_sub(1)).collect();
        let kept = UInt32Array::from_iter_values(kept.into_iter().skip(offset).take(limit));
        let rows = take_record_batch(&ranged.rows.project(&shown)?, &kept)?;
        return Ok(Some(Outcome::Rows { schema: rows.schema(), batches: vec![rows] }));
    }
}

/// Locks all `rows`: first their keys, then the rows, each in order. Returns the numbers of all; None: one of them has
/// changed.
async fn lock_them(
    session: &mut Session,
    table: &TableState,
    locked: &LockedTable,
    rows: &[Lockable],
) -> Result<Option<Vec<u32>>> {
    let keys: BTreeSet<LockKey> = rows.iter().flat_map(|row| row.keys.iter().copied()).collect();
    let places: BTreeSet<RowPlace> = rows.iter().filter_map(|row| row.row).collect();
    let of_rows = places.iter().map(|(place, vid)| transaction_locks::row_key(table, *place, *vid));
    for key in keys {
        locking::lock_one(session, key, locked).await?;
    }
    // A lock on a row that has been replaced would keep a fragment with an older snapshot waiting.
    if !has_rows(session, table, places.iter().copied())? {
        return Ok(None);
    }
    for key in of_rows {
        locking::lock_one(session, key, locked).await?;
    }
    let is_there = has_rows(session, table, places.iter().copied())?;
    Ok(is_there.then(|| (0..).take(rows.len()).collect()))
}

/// Locks the free ones of `rows`, in order, up to `wanted` of them. Returns their numbers; None: one of them has
/// changed.
async fn lock_free_ones(
    session: &mut Session,
    table: &TableState,
    locked: &LockedTable,
    (rows, wanted): (&[Lockable], Option<usize>),
) -> Result<Option<Vec<u32>>> {
    let mut kept = Vec::new();
    for (row, number) in rows.iter().zip(0..) {
        if wanted.is_some_and(|wanted| kept.len() >= wanted) {
            break;
        }
        let mark = session.locks().mark();
        let of_row = row.row.map(|(place, vid)| transaction_locks::row_key(table, place, vid));
        let mut is_free = true;
        for key in row.keys.iter().copied().chain(of_row) {
            is_free = is_free && locking::lock_one(session, key, locked).await?;
        }
        if !is_free {
            session.locks().release_to(mark);
            continue;
        }
        if !has_rows(session, table, row.row.into_iter())? {
            return Ok(None);
        }
        kept.push(number);
    }
    Ok(Some(kept))
}

/// Whether committed rows of `table` still exist.
///
/// # Errors
/// [`Error::Conflict`] if one does not, and all statements of the block read one snapshot.
fn has_rows(
    session: &Session,
    table: &TableState,
    rows: impl Iterator<Item = RowPlace>,
) -> Result<bool> {
    if session.owns(table.schema.table_id) {
        // Nobody else changes it.
        return Ok(true);
    }
    let mut change = TableChange::of_read(table);
    for (place, vid) in rows {
        change.dead.entry(place).or_default().insert(vid);
    }
    session.check_rewritten(&change)?;
    match check_dead(&session.database.live(), &change) {
        Err(Error::Conflict { kind: ConflictKind::Update, .. }) if session.reads_snapshot() => {
            Err(Error::concurrent_update())
        }
        Err(Error::Conflict { kind: ConflictKind::Update, .. }) => Ok(false),
        checked => checked.map(|()| true),
    }
}

/// The locks on `rows` of `table`.
async fn lockable(
    table: &TableState,
    read: &RangeRead<'_>,
    rows: Vec<RangeRow>,
) -> Result<Vec<Lockable>> {
    let mut all: Vec<Lockable> = Vec::with_capacity(rows.len());
    let (mut committed, mut numbers) = (Vec::with_capacity(rows.len()), Vec::new());
    for (number, row) in rows.into_iter().enumerate() {
        let FoundPlace::Committed(vid) = row.place else {
            all.push(Lockable::default());
            continue;
        };
        all.push(Lockable { row: Some((row.tablet, vid)), keys: Vec::new() });
        committed.push(row);
        numbers.push(number);
    }
    for index in unique_indexes(table) {
        let shape = index.shape();
        let entries = shape.entries(&read.fetch(&committed, &shape.columns).await?, 0)?;
        for (number, key) in numbers.iter().zip(&entries) {
            // A row with a NULL in its key is equal to none.
            let key = key.filter(|key| !shape.key.has_null(key));
            if let (Some(key), Some(row)) = (key, all.get_mut(*number)) {
                row.keys.push(transaction_locks::unique_key(table, index, key));
            }
        }
    }
    Ok(all)
}
