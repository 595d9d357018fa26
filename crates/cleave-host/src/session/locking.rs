//! `SELECT … FOR UPDATE` and similar queries, and LOCK TABLE: locks taken without a change.
//!
//! 1. The tables are locked in `ROW SHARE`, then the statement takes its [view](Session::view).
//! 2. Rows in a range of keys, or of one key, are found [without a plan](lock_range). Any other query runs with the
//!    tablet and VID of each locked row as additional columns ([`Locking::row_query`]).
//! 3. The rows are locked in the order of an UPDATE: their unique keys first, then their VIDs (see
//!    [`super::transaction_locks`]). So a block that has locked a row updates it without waiting, and another updater
//!    waits without holding any of the row's locks. `NOWAIT` fails instead of waiting. `SKIP LOCKED` goes through the
//!    rows in the order of the query and takes the free ones, up to LIMIT. If it has looked at too few of them, it runs
//!    again and looks at more.
//!    Very many rows are locked by a [fragment](locking_fragment), or with their table.
//! 4. If a row has changed since the view, READ COMMITTED runs the query again on a newer view, so a row that no longer
//!    matches drops out. With one snapshot the statement fails (40001).
//!
//! Outside of a block the locks are freed at the statement's end. Source: PostgreSQL's manual, "Explicit Locking"; rule
//! 24.

use std::collections::{BTreeSet, HashMap};
use std::ops::ControlFlow;
use std::sync::Arc;

use arrow::array::types::{Int64Type, UInt64Type};
use arrow::array::{Array, AsArray, RecordBatch, UInt32Array};
use arrow::compute::{cast, concat_batches, take_record_batch};
use arrow::datatypes::DataType;
use cleave_catalog::catalog::{CatalogState, TableState};
use cleave_catalog::error::{ConflictKind, Error, Result};
use cleave_catalog::settings::Settings;
use cleave_catalog::settings::When;
use cleave_engine::delta::Live;
use cleave_engine::storage_engine::commit::validate::{RowPlace, check_dead};
use cleave_engine::write::insert::TableChange;
use cleave_query::point_path::PointQuery;
use cleave_query::range_path::RangeTemplate;
use cleave_query::select;
use cleave_query::select::{QueryRequest, ReadView};
use cleave_sql::statement::Parameters;
use cleave_sql::statement::locking::{
    HIDDEN, LockedTable, Locking, RowWindow, WaitPolicy, hidden_names,
};
use cleave_sql::statement::names::table_name;
use cleave_sql::statement::parse::LockTable;
use cleave_store::{ShippedPages, TableSchema};
use cleave_txn::{LockError, LockKey, LockMode};
use datafusion::sql::sqlparser::ast;

use super::lost_waits::{Stays, check_rows};
use super::transaction_locks::{self, LOCKED_ROWS_MAX};
use super::{
    Outcome, Session, block, changing_with, lock_range, locking_fragment, look_ups, rights, upsert,
};
use crate::database::Database;
use cleave_sql::visiting::visit_relations;

/// Minimum of rows that SKIP LOCKED looks at, and the growth if these were not enough.
pub(super) const LOOKED_AT_MIN: usize = 64;
pub(super) const LOOKED_AT_GROWTH: usize = 8;

/// The look-up of a query on a snapshot; None: it is planned.
pub(super) type Point<'a> = &'a (dyn Fn(&Arc<CatalogState>) -> Option<PointQuery> + Send + Sync);

/// Rows of a query, with the rows of locked tables that each was made of.
struct Candidates {
    rows: RecordBatch,
    /// For each locked table, for each row.
    places: Vec<Vec<RowPlace>>,
    /// Whether there may be more rows.
    is_cut: bool,
}

/// Runs a query that locks rows.
pub(super) async fn run(
    session: &mut Session,
    locking: &Locking,
    parameters: &Parameters,
    (point, range): (Point<'_>, Option<(&RangeTemplate, &Parameters)>),
) -> Result<Outcome> {
    session.check_may_write(&locking.name())?;
    changing_with::check_unchanged_by_parts(session.parts.as_deref(), None, &locking.name())?;
    let window = locking.window(parameters)?;
    let tables = locking.tables(&session.names())?;
    session.table_mark = Some(session.locks().mark());
    for locked in &tables {
        let state = session.names();
        let table = state.find_writable_table(&locked.table)?;
        let is_nowait = locked.wait == WaitPolicy::Fail;
        lock_table(session, table, LockMode::RowShare, is_nowait).await?;
    }
    if let Some(range) = range
        && let Some(outcome) =
            Box::pin(lock_range::lock_range(session, locking, &tables, range)).await?
    {
        return Ok(outcome);
    }
    let skips = tables.iter().any(|locked| locked.wait == WaitPolicy::Skip);
    rights::check_on(session, &session.names())?;
    let mark = session.locks().mark();
    loop {
        let view = session.view().await?;
        let locked = locked_once(session, &view, locking, &tables, (window, parameters), point);
        if let Some(rows) = Box::pin(locked).await? {
            return Ok(Outcome::Rows { schema: rows.schema(), batches: vec![rows] });
        }
        if session.view_of_parts().is_some() {
            return Err(Error::concurrent_update());
        }
        // Locks taken in vain are freed for others. A transaction that waits keeps them, so that it makes progress.
        if skips {
            session.locks().release_to(mark);
        }
    }
}

/// Runs LOCK TABLE.
pub(super) async fn run_lock_table(session: &mut Session, lock: &LockTable) -> Result<Outcome> {
    if lock.mode > LockMode::RowShare {
        session.check_may_write("LOCK TABLE")?;
    }
    for (name, position) in &lock.tables {
        let state = session.names();
        let table = state.find_table(name).map_err(|error| error.at(*position))?;
        if lock.mode == LockMode::AccessExclusive {
            block::locks_mut(session).hold_readers_back();
        }
        lock_table(session, table, lock.mode, lock.nowait).await?;
    }
    rights::check_on(session, &session.names())?;
    Ok(Outcome::done("LOCK TABLE"))
}

/// Locks the table `name`, which the statement is to write, before it reads anything; returns its schema as of then.
pub(super) async fn lock_for_writing(
    session: &mut Session,
    name: &str,
) -> Result<Arc<TableSchema>> {
    session.table_mark = Some(session.locks().mark());
    let mut locked = None;
    loop {
        let state = session.names();
        let table = state.find_writable_table(name)?;
        let id = table.schema.table_id;
        // The former holder of the lock may have replaced the table.
        if locked == Some(id) || session.owns(id) {
            rights::check_on(session, &state)?;
            return Ok(Arc::clone(&table.schema));
        }
        lock_table(session, table, LockMode::RowExclusive, false).await?;
        locked = Some(id);
    }
}

/// Waits for transactions that hold a table of `query` in `ACCESS EXCLUSIVE`. If there can be none, this only reads a
/// counter.
pub(super) async fn wait_for_tables(session: &mut Session, query: &ast::Query) -> Result<()> {
    if !session.database.readers_held_back() {
        return Ok(());
    }
    let mut names = BTreeSet::new();
    let _: ControlFlow<()> = visit_relations(query, |name| {
        names.extend(table_name(name).ok());
        ControlFlow::Continue(())
    });
    let state = session.names();
    let views = names.iter().filter_map(|name| state.view(name));
    let below: BTreeSet<u32> = views.flat_map(|view| state.all_below(&view.depends)).collect();
    let is_read = |table: &&Arc<TableState>| {
        names.contains(&table.schema.name) || below.contains(&table.schema.table_id)
    };
    for table in state.tables().filter(is_read) {
        lock_table(session, table, LockMode::AccessShare, false).await?;
    }
    Ok(())
}

/// Locks a whole table.
pub(super) async fn lock_table(
    session: &mut Session,
    table: &TableState,
    mode: LockMode,
    is_nowait: bool,
) -> Result<()> {
    lock_within(session, transaction_locks::table_key(table), mode, is_nowait).await?;
    check_place(session, table.schema.table_id)
}

/// Refuses to lock a table of which a tablet was moved to another device since the snapshot that all statements of the
/// block read: rows are locked where they lie. From now on it stays where it is.
fn check_place(session: &Session, table: u32) -> Result<()> {
    let block = session.block.as_ref().filter(|_| session.reads_snapshot());
    let Some(kept) = block.and_then(|block| block.snapshot.as_ref()) else { return Ok(()) };
    let devices = |state: &CatalogState| {
        let table = state.table_by_id(table)?;
        Some(table.tablets.iter().map(|tablet| tablet.device).collect::<Vec<_>>())
    };
    let (read, now) = (devices(&kept.live().state), devices(&session.database.catalog()));
    let is_moved = read
        .zip(now)
        .is_some_and(|(read, now)| read.iter().zip(&now).any(|(read, now)| read != now));
    if is_moved { Err(Error::concurrent_update()) } else { Ok(()) }
}

/// Locks a table whose pages are to be replaced, against definitions and whoever makes versions of these pages.
pub(super) async fn lock_pages(
    session: &mut Session,
    table: &TableState,
    is_nowait: bool,
) -> Result<()> {
    lock_table(session, table, LockMode::ShareUpdateExclusive, is_nowait).await?;
    let key = transaction_locks::pages_key(table);
    lock_within(session, key, LockMode::ForUpdate, is_nowait).await
}

/// Waits for a load that goes on beside the writers of a table, and keeps others out until the statement ends.
pub(super) async fn lock_loads(session: &mut Session, table_id: u32) -> Result<()> {
    let key = transaction_locks::loads_key(table_id);
    lock_within(session, key, LockMode::ForUpdate, false).await
}

async fn lock_within(
    session: &mut Session,
    key: LockKey,
    mode: LockMode,
    is_nowait: bool,
) -> Result<()> {
    let timeout_ms = session.in_force().lock_timeout_ms;
    if !is_nowait {
        return session.locks().lock(key, mode, timeout_ms).await;
    }
    match session.locks().try_lock(key, mode)? {
        true => Ok(()),
        false => Err(Error::lock(&LockError::NotAvailable { key, mode })),
    }
}

/// The rows of the query on `view`, locked; None: one of them has changed since.
async fn locked_once(
    session: &mut Session,
    view: &ReadView,
    locking: &Locking,
    tables: &[LockedTable],
    (window, parameters): (RowWindow, &Parameters),
    point: Point<'_>,
) -> Result<Option<RecordBatch>> {
    let wanted = window.limit.map(|limit| limit.saturating_add(window.offset));
    let skips = tables.iter().any(|locked| locked.wait == WaitPolicy::Skip);
    let mut looked_at = match wanted {
        Some(wanted) if skips => Some(wanted.saturating_mul(2).max(LOOKED_AT_MIN)),
        wanted => wanted,
    };
    let looked_up = looked_up_row(session, view, tables, point).await?;
    if looked_up.is_none() && window == RowWindow::ALL {
        let asked = (locking, tables);
        let rows = locking_fragment::rows_locked(session, view, asked, parameters).await?;
        if let Some((view, rows)) = rows {
            let candidates = candidates_of(rows, tables.len(), None)?;
            return is_still_there(session, &view, tables, &candidates);
        }
    }
    loop {
        let candidates = match &looked_up {
            Some((rows, place)) => {
                let places = vec![place.iter().copied().collect()];
                Candidates { rows: rows.clone(), places, is_cut: false }
            }
            None => {
                let query = locking.row_query(&view.state, tables, looked_at)?;
                let asked = QueryRequest { query: &query, parameters, view: Some(view) };
                candidates(&session.database, session.in_force(), asked, tables.len(), looked_at)
                    .await?
            }
        };
        let kept = match skips {
            true => lock_free(session, view, tables, &candidates, wanted).await?,
            false => lock_all(session, view, tables, &candidates).await?,
        };
        let Some(kept) = kept else { return Ok(None) };
        if skips && candidates.is_cut && wanted.is_some_and(|wanted| kept.len() < wanted) {
            looked_at = looked_at.map(|count| count.saturating_mul(LOOKED_AT_GROWTH));
            continue;
        }
        let shown = kept.into_iter().skip(window.offset);
        let shown = UInt32Array::from_iter_values(shown.take(window.limit.unwrap_or(usize::MAX)));
        return Ok(Some(take_record_batch(&candidates.rows, &shown)?));
    }
}

/// The row of a look-up by a unique key, and its place; an inner None: there is no such row; None: it is no such
/// look-up.
async fn looked_up_row(
    session: &Session,
    view: &ReadView,
    tables: &[LockedTable],
    point: Point<'_>,
) -> Result<Option<(RecordBatch, Option<RowPlace>)>> {
    let [locked] = tables else { return Ok(None) };
    // Keys of shipped rows are in no index.
    if session.in_force().index_scan == When::Never || !view.state.shipped.is_empty() {
        return Ok(None);
    }
    let Some(point) = point(&view.state) else { return Ok(None) };
    let Some((index, key)) = point.only_key() else { return Ok(None) };
    let table = view.state.find_writable_table(&locked.table)?;
    let shape = table.tablets.first().and_then(|tablet| tablet.index(index));
    let Some(shape) = shape.map(|index| Arc::clone(index.shape())) else { return Ok(None) };
    let found = upsert::looked_up(&session.database, table, &shape, &[key]).await?;
    let live = Live::flushed(Arc::clone(session.committed(view)));
    let rows = look_ups::run_point_query(session, live, &point).await?;
    let Some(Outcome::Rows { schema, batches }) = rows else { return Ok(None) };
    let rows = concat_batches(&schema, &batches)?;
    let place = found.into_values().next().filter(|_| rows.num_rows() == 1);
    Ok(Some((rows, place)))
}

/// The rows of a query that has tablets and VIDs of `table_count` tables behind its columns, or among them.
async fn candidates(
    database: &Arc<Database>,
    settings: &Settings,
    asked: QueryRequest<'_>,
    table_count: usize,
    looked_at: Option<usize>,
) -> Result<Candidates> {
    let running = select::run_query(database, settings, asked);
    let mut running = Box::pin(running).await?;
    let mut batches = Vec::new();
    while let Some(batch) = running.next().await? {
        batches.push(batch);
    }
    candidates_of(concat_batches(&running.schema(), &batches)?, table_count, looked_at)
}

/// The same of `rows`, which such a query has returned.
fn candidates_of(
    rows: RecordBatch,
    table_count: usize,
    looked_at: Option<usize>,
) -> Result<Candidates> {
    let strange = || Error::unsupported("this query with a locking clause");
    let mut places = Vec::with_capacity(table_count);
    for number in 0..table_count {
        let [vid, place] = hidden_names(number);
        let vids = rows.column_by_name(&vid).ok_or_else(strange)?;
        let of = rows.column_by_name(&place).ok_or_else(strange)?;
        let (vids, of) = (cast(vids, &DataType::UInt64)?, cast(of, &DataType::Int64)?);
        let (vids, of) = (vids.as_primitive::<UInt64Type>(), of.as_primitive::<Int64Type>());
        if vids.null_count() + of.null_count() > 0 {
            return Err(strange());
        }
        let place = |(place, vid): (&i64, &u64)| (usize::try_from(*place).unwrap_or(0), *vid);
        places.push(of.values().iter().zip(vids.values()).map(place).collect());
    }
    let schema = rows.schema();
    let is_shown = |(place, field): (usize, &Arc<arrow::datatypes::Field>)| {
        (!field.name().starts_with(HIDDEN)).then_some(place)
    };
    let shown: Vec<usize> = schema.fields().iter().enumerate().filter_map(is_shown).collect();
    let is_cut = looked_at.is_some_and(|count| rows.num_rows() >= count);
    Ok(Candidates { rows: rows.project(&shown)?, places, is_cut })
}

/// The rows of `candidates`, which are locked; None: one of them has changed since `view`.
fn is_still_there(
    session: &Session,
    view: &ReadView,
    tables: &[LockedTable],
    candidates: &Candidates,
) -> Result<Option<RecordBatch>> {
    for (locked, places) in tables.iter().zip(&candidates.places) {
        if !are_there(session, view, locked, places)? {
            return Ok(None);
        }
    }
    Ok(Some(candidates.rows.clone()))
}

/// Locks all rows; None: one of them has changed since `view`.
async fn lock_all(
    session: &mut Session,
    view: &ReadView,
    tables: &[LockedTable],
    candidates: &Candidates,
) -> Result<Option<Vec<u32>>> {
    for (locked, places) in tables.iter().zip(&candidates.places) {
        let places: BTreeSet<RowPlace> = places.iter().copied().collect();
        let table = Arc::clone(view.state.find_writable_table(&locked.table)?);
        let all: Vec<RowPlace> = places.iter().copied().collect();
        let change = committed_rows(session, view, locked, &all)?;
        let (database, kept) =
            (Arc::clone(&session.database), session.kept_state().map(Arc::clone));
        let stay = kept.as_ref().map(|kept| || check_rows(&database, kept, &change));
        let stays = stay.as_ref().map(|stay| stay as Stays<'_>);
        if places.len() > LOCKED_ROWS_MAX {
            let mode = match locked.mode {
                LockMode::ForKeyShare | LockMode::ForShare => LockMode::Share,
                _ => LockMode::Exclusive,
            };
            // Two transactions that both hold the table in a shared mode would deadlock here.
            if let Some(mark) = session.table_mark.take_if(|_| tables.len() == 1) {
                session.locks().release_to(mark);
            }
            let of_table = LockedTable { mode, ..locked.clone() };
            lock_one_while(session, transaction_locks::table_key(&table), &of_table, stays).await?;
            continue;
        }
        let read = (&view.state.shipped, &*table);
        let keys = keys_of(&session.database, read, &places).await?;
        let of_index: BTreeSet<LockKey> = keys.values().flatten().copied().collect();
        for key in of_index {
            lock_one_while(session, key, locked, stays).await?;
        }
        // A lock on a row that has been replaced would keep a fragment with an older snapshot waiting.
        if !are_there(session, view, locked, &all)? {
            return Ok(None);
        }
        for key in row_keys(session, view, &table, &places)? {
            lock_one_while(session, key, locked, stays).await?;
        }
    }
    let rows = is_still_there(session, view, tables, candidates)?;
    Ok(rows.map(|rows| (0..).take(rows.num_rows()).collect()))
}

/// Locks free rows, in order, up to `wanted` of them; None: one of them has changed since `view`.
async fn lock_free(
    session: &mut Session,
    view: &ReadView,
    tables: &[LockedTable],
    candidates: &Candidates,
    wanted: Option<usize>,
) -> Result<Option<Vec<u32>>> {
    let mut keys = Vec::with_capacity(tables.len());
    for (locked, places) in tables.iter().zip(&candidates.places) {
        let table = Arc::clone(view.state.find_writable_table(&locked.table)?);
        let read = (&view.state.shipped, &*table);
        let of_rows = keys_of(&session.database, read, &places.iter().copied().collect()).await?;
        keys.push((table, of_rows));
    }
    let mut kept = Vec::new();
    for (row, number) in (0..candidates.rows.num_rows()).zip(0_u32..) {
        if wanted.is_some_and(|wanted| kept.len() >= wanted) {
            break;
        }
        let mark = session.locks().mark();
        let mut is_free = true;
        for ((locked, places), (table, of_rows)) in tables.iter().zip(&candidates.places).zip(&keys)
        {
            let Some(place) = places.get(row) else { continue };
            let of_index = of_rows.get(place).into_iter().flatten().copied();
            let of_row = row_keys(session, view, table, &BTreeSet::from([*place]))?;
            for key in of_index.chain(of_row) {
                is_free = is_free && lock_one(session, key, locked).await?;
            }
        }
        if !is_free {
            session.locks().release_to(mark);
            continue;
        }
        for (locked, places) in tables.iter().zip(&candidates.places) {
            let place = places.get(row..=row).unwrap_or_default();
            if !are_there(session, view, locked, place)? {
                return Ok(None);
            }
        }
        kept.push(number);
    }
    Ok(Some(kept))
}

/// Locks `key` as a locking clause says; false: it is to be skipped.
pub(super) async fn lock_one(
    session: &mut Session,
    key: LockKey,
    locked: &LockedTable,
) -> Result<bool> {
    let timeout_ms = session.in_force().lock_timeout_ms;
    let locks = session.locks();
    match locked.wait {
        WaitPolicy::Wait => locks.lock(key, locked.mode, timeout_ms).await.map(|()| true),
        WaitPolicy::Skip => locks.try_lock(key, locked.mode),
        WaitPolicy::Fail if locks.try_lock(key, locked.mode)? => Ok(true),
        WaitPolicy::Fail => Err(Error::lock(&LockError::NotAvailable { key, mode: locked.mode })),
    }
}

/// As [`lock_one`]; it waits only while `stays`, if there is such a condition.
async fn lock_one_while(
    session: &mut Session,
    key: LockKey,
    locked: &LockedTable,
    stays: Option<Stays<'_>>,
) -> Result<bool> {
    if locked.wait != WaitPolicy::Wait {
        return lock_one(session, key, locked).await;
    }
    let timeout_ms = session.in_force().lock_timeout_ms;
    session.locks().lock_while(key, locked.mode, timeout_ms, stays).await.map(|()| true)
}

/// The unique keys of the rows of `table` at `places`, in the order of the indexes; as [`upsert::rows_at`].
pub(super) async fn keys_of(
    database: &Arc<Database>,
    (shipped, table): (&Arc<ShippedPages>, &TableState),
    places: &BTreeSet<RowPlace>,
) -> Result<HashMap<RowPlace, Vec<LockKey>>> {
    let mut keys: HashMap<RowPlace, Vec<LockKey>> = HashMap::new();
    let indexes = table.tablets.first().map(|tablet| tablet.indexes.as_slice());
    let indexes = indexes.unwrap_or_default().iter();
    for index in indexes.filter(|index| index.definition().unique) {
        let shape = index.shape();
        let places = || places.iter().copied();
        let (read, projection) = ((shipped, table), shape.projection());
        let rows = upsert::rows_at(database, read, &projection, places()).await?;
        let of_rows = shape.entries(&rows, 0)?;
        for (place, key) in places().zip(&of_rows) {
            if let Some(key) = key.filter(|key| !shape.key.has_null(key)) {
                keys.entry(place)
                    .or_default()
                    .push(transaction_locks::unique_key(table, index, key));
            }
        }
    }
    Ok(keys)
}

/// The rows of `table` at `places` as the lock table names them, without the block's own rows, which need no lock.
fn row_keys(
    session: &Session,
    view: &ReadView,
    table: &TableState,
    places: &BTreeSet<RowPlace>,
) -> Result<Vec<LockKey>> {
    let base = session.committed(view).find_writable_table(&table.schema.name)?;
    let next = |place: usize| base.tablets.get(place).map_or(u64::MAX, |tablet| tablet.next_vid);
    let committed = places.iter().filter(|(place, vid)| *vid < next(*place));
    Ok(committed.map(|(place, vid)| transaction_locks::row_key(table, *place, *vid)).collect())
}

/// The end of the rows of a table at `places`, all of which are in the view, as far as others may end them, too.
fn committed_rows(
    session: &Session,
    view: &ReadView,
    locked: &LockedTable,
    places: &[RowPlace],
) -> Result<TableChange> {
    let base = session.committed(view).find_writable_table(&locked.table)?;
    let mut change = TableChange::of_read(base);
    // Nobody else changes own rows: those of own tables, and those beyond the end of the committed rows.
    let is_own = session.owns(base.schema.table_id);
    for (place, vid) in places {
        if !is_own && base.tablets.get(*place).is_some_and(|tablet| *vid < tablet.next_vid) {
            change.dead.entry(*place).or_default().insert(*vid);
        }
    }
    Ok(change)
}

/// Whether the rows of a table at `places`, all of which are in the view, are in the newest snapshot.
///
/// # Errors
/// [`Error::Conflict`] if one is not, and all statements of the block read one snapshot.
fn are_there(
    session: &Session,
    view: &ReadView,
    locked: &LockedTable,
    places: &[RowPlace],
) -> Result<bool> {
    let change = committed_rows(session, view, locked, places)?;
    if session.owns(change.schema.table_id) {
        return Ok(true);
    }
    session.check_rewritten(&change)?;
    let all = match check_dead(&session.database.live(), &change) {
        Err(Error::Conflict { kind: ConflictKind::Update, .. }) => false,
        checked => checked.map(|()| true)?,
    };
    if !all && session.reads_snapshot() {
        return Err(Error::concurrent_update());
    }
    Ok(all)
}
