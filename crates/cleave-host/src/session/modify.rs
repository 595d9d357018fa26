//! UPDATE and DELETE, and the outcome of every statement that changes rows.
//!
//! 1. [`Modify::query`] makes a query of the statement. It runs once for each tablet of the table, like any query: on
//!    the host, or cut, on the statement's own view.
//! 2. The query gives VIDs and new rows; a VID that occurs twice counts once (rule 22).
//! 3. [`own::take`] hands the change to the transaction: rows with these VIDs end, the new rows are inserted. If
//!    another transaction changed one of them first, the statement starts again on a later view, or fails (see
//!    [`super::block`]).
//! 4. An UPDATE of very many rows writes them as they come, like a load, to pages that its transaction alone sees.
//! 5. Where a fragment can [change](super::update_fragment) the pages themselves, or
//!    [replace](super::replacing_fragment) rows, none of this happens on the host.
//! 6. RETURNING is a query over the new rows, or over the old ones of a DELETE.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::array::{BooleanArray, RecordBatch};
use arrow::compute::concat_batches;
use cleave_catalog::catalog::TableState;
use cleave_catalog::error::{Error, Result};
use cleave_catalog::settings::Settings;
use cleave_engine::delta::Live;
use cleave_engine::storage_engine::commit::validate::RowPlace;
use cleave_engine::write::begun::byte_count;
use cleave_engine::write::insert::{TableChange, route};
use cleave_query::select;
use cleave_query::select::{ALL_VIDS, QueryRequest, ReadView, Target, all_known, describe_over};
use cleave_sql::statement::Parameters;
use cleave_sql::statement::locked_parts::GivenRows;
use cleave_sql::statement::modify::{Action, Assignment, Modify, row_count};
use cleave_sql::statement::parameters::{parameter_type, place_of};
use cleave_store::{ColumnType, TableSchema};
use cleave_txn::LockKey;
use datafusion::sql::sqlparser::ast;
use futures::StreamExt;
use futures::stream;

use super::block::Taken;
use super::block::many;
use super::block::own;
use super::changed_rows::{Changed, ChangedRows};
use super::charge::{Charge, share_of};
use super::foreign_keys::Ending;
use super::key_locks::{self, leaves_keys};
use super::transaction_locks::{LOCKED_ROWS_MAX, TransactionLocks, unique_indexes};
use super::update_fragment::{self, Ran};
use super::{Outcome, Session, definitions, foreign_keys, identity, locking, replacing_fragment};
use crate::database::Database;

/// The query of the RETURNING list, and the rows that it reads.
pub(super) type Returns = Option<(Box<ast::Query>, RecordBatch)>;

/// The change of a table by a statement.
pub(super) struct Made {
    pub(super) change: TableChange,
    /// The number of its rows.
    pub(super) count: usize,
    /// Their places, if foreign keys need them.
    places: Vec<RowPlace>,
    /// The rows for RETURNING and foreign keys, in the same order; for a DELETE that needs neither, none.
    pub(super) rows: RecordBatch,
    /// For such a DELETE of few rows, their unique keys.
    gone_keys: Vec<LockKey>,
    /// Columns of other tables that RETURNING names.
    pub(super) beside: Option<RecordBatch>,
    /// Its charge to the memory of queries.
    _charge: Charge,
}

impl Made {
    /// The change of the rows, which are in `view`.
    pub(super) fn ending<'a>(&'a self, modify: &Modify, view: &'a ReadView) -> Ending<'a> {
        let (before, after) = match modify.action {
            Action::Delete => (Some(&self.rows), None),
            Action::Update(_) => (None, Some(&self.rows)),
        };
        let places = (&view.state.shipped, self.places.as_slice());
        Ending::Rows { places: Some(places), before, after }
    }
}

/// Runs UPDATE or DELETE.
pub(super) async fn run(
    session: &mut Session,
    modify: &Modify,
    parameters: &Parameters,
) -> Result<Outcome> {
    session.check_may_write(modify.name())?;
    let schema = locking::lock_for_writing(session, &modify.table).await;
    let schema = schema.map_err(|error| error.at(modify.position))?;
    if session.database.readers_held_back() {
        let query = modify.query(&schema)?;
        locking::wait_for_tables(session, &query).await?;
        if !modify.returning.is_empty() {
            locking::wait_for_tables(session, &*modify.returning_query()?).await?;
        }
    }
    loop {
        let view = session.view().await?;
        let table = view.state.find_writable_table(&modify.table);
        let table = Arc::clone(table.map_err(|error| error.at(modify.position))?);
        let asked = (modify, parameters);
        let mut ran = Box::pin(update_fragment::run(session, &view, &table, asked)).await?;
        if let Ran::ByRows = ran {
            ran = Box::pin(replacing_fragment::run(session, &view, &table, asked)).await?;
        }
        match ran {
            Ran::Done(done) => return Ok(done.outcome(modify)),
            // All parts run again.
            Ran::Again if session.view_of_parts().is_some() => {
                return Err(Error::concurrent_update());
            }
            Ran::Again => continue,
            Ran::ByRows => {}
        }
        let bytes_max = gathered_max(session, &table, modify);
        let bounds = (bytes_max, Vec::new());
        let Some(made) = made_of(session, &view, &table, asked, bounds).await? else {
            match Box::pin(update_many(session, &view, &table, asked)).await? {
                Some(count) => return Ok(Outcome::done(format!("{} {count}", modify.name()))),
                None => continue,
            }
        };
        lock_keys_of(session, &view, &table, modify, &made).await?;
        let ending = match foreign_keys::keeps_keys(session, &table, modify) {
            true => Ending::KeysKept,
            false => made.ending(modify, &view),
        };
        if let Taken::Again = own::take(session, &view, &table, made.change.clone(), ending).await?
        {
            if session.view_of_parts().is_some() {
                return Err(Error::concurrent_update());
            }
            continue;
        }
        let returned = match modify.returning.as_slice() {
            [] => None,
            _ => Some(modify.returned(&table.schema, &made.rows, made.beside.as_ref())?),
        };
        let returned = returned.as_ref().map(|(query, rows)| (query.clone(), rows));
        let done = (modify.name(), made.count);
        return outcome(
            &session.database,
            session.in_force(),
            done,
            returned,
            parameters,
            Some(&view),
        )
        .await;
    }
}

/// Locks the keys that the statement, which has read `view`, removes.
pub(super) async fn lock_keys_of(
    session: &mut Session,
    view: &ReadView,
    table: &TableState,
    modify: &Modify,
    made: &Made,
) -> Result<()> {
    // Own rows are nobody else's.
    let mut change = TableChange::new(Arc::clone(&made.change.schema));
    if session.reads_snapshot() {
        let committed = session.committed(view).find_writable_table(&modify.table)?;
        for (place, vids) in &made.change.dead {
            let next = committed.tablets.get(*place).map_or(0, |tablet| tablet.next_vid);
            let there = vids.iter().take_while(|vid| *vid < next);
            change.dead.entry(*place).or_default().extend(there);
        }
    }
    match modify.action {
        _ if made.change.keeps_keys || TransactionLocks::takes_table(&made.change) => Ok(()),
        Action::Delete => {
            let mut keys = key_locks::gone_keys(table, &made.rows)?;
            keys.extend(&made.gone_keys);
            key_locks::lock_known_keys(session, keys, &change).await
        }
        Action::Update(_) => {
            let read = (&view.state.shipped, table);
            key_locks::lock_changed_keys(session, read, &made.change.dead, &change).await
        }
    }
}

/// The table of an UPDATE or DELETE.
pub(super) fn modify_target(session: &Session, modify: &Modify) -> Result<Arc<TableSchema>> {
    let state = session.names();
    let table = state.find_writable_table(&modify.table);
    Ok(Arc::clone(&table.map_err(|error| error.at(modify.position))?.schema))
}

/// The description of an UPDATE or DELETE without values, as of a query: types of parameters, tables, and the RETURNING
/// list with a query over no rows.
pub(super) async fn describe_modify(
    session: &Session,
    modify: &Modify,
    mut types: Vec<Option<ColumnType>>,
    given: &GivenRows,
) -> Result<(Vec<ColumnType>, Vec<Arc<TableSchema>>, Returns)> {
    let state = session.names();
    let table = state.find_writable_table(&modify.table);
    let table = Arc::clone(table.map_err(|error| error.at(modify.position))?);
    assigned_types(modify.assignments(), &table.schema, &mut types)?;
    let query = modify.query(&table.schema)?;
    let target = Some(Target { table: modify.table.clone(), tablet: 0, vids: ALL_VIDS });
    let view = ReadView { target, ..ReadView::of_state(state) };
    let read = (Some(&view), given);
    let described = describe_over(&session.database, session.in_force(), read, &query, types);
    let described = Box::pin(described).await?;
    let rows = RecordBatch::new_empty(table.schema.arrow());
    let beside = beside_columns(modify, &table.schema, described.schema.fields().len() - 1);
    let beside = beside.map(|columns| {
        let columns: Vec<usize> = columns.map(|column| column + 1).collect();
        RecordBatch::new_empty(Arc::clone(&described.schema)).project(&columns)
    });
    let returned = match modify.returning.as_slice() {
        [] => None,
        _ => Some(modify.returned(&table.schema, &rows, beside.transpose()?.as_ref())?),
    };
    let types: Vec<_> = described.types.into_iter().map(Some).collect();
    Ok((all_known(&types)?, described.tables, returned))
}

/// The target rows of `table`, and the change that the statement makes of them.
pub(super) async fn made(
    session: &Session,
    view: &ReadView,
    table: &TableState,
    modify: &Modify,
    parameters: &Parameters,
) -> Result<Made> {
    let asked = (modify, parameters);
    let made = made_of(session, view, table, asked, (usize::MAX, Vec::new())).await?;
    // No rows exceed the maximum of bytes.
    made.ok_or_else(Error::concurrent_update)
}

/// The same of rows on pages that begin, in each tablet, with the VID in `vids_from` or a greater one.
pub(super) async fn made_behind(
    session: &Session,
    view: &ReadView,
    table: &TableState,
    asked: (&Modify, &Parameters),
    vids_from: &[u64],
) -> Result<Made> {
    let made = made_of(session, view, table, asked, (usize::MAX, vids_from.to_vec())).await?;
    made.ok_or_else(Error::concurrent_update)
}

/// The same; None: the new rows take more than `bytes_max`.
async fn made_of(
    session: &Session,
    view: &ReadView,
    table: &TableState,
    (modify, parameters): (&Modify, &Parameters),
    (bytes_max, vids_from): (usize, Vec<u64>),
) -> Result<Option<Made>> {
    let schema = &table.schema;
    identity::check_update(table, modify.assignments())?;
    let is_update = matches!(modify.action, Action::Update(_));
    let asks_references = foreign_keys::is_in_references(session, table)
        && !foreign_keys::keeps_keys(session, table, modify);
    let needed = needed_columns(session, table, modify);
    let needs_rows = needed.is_none();
    let charge = Charge::new(&session.database);
    let mut change = TableChange::of_read(table);
    let (mut all, mut places, mut beside) = (Vec::new(), Vec::new(), Vec::new());
    let mut gone_keys = Vec::new();
    let (mut count, mut bytes) = (0, 0);
    let mut source = ChangedRows::new(session, view, table, (modify, parameters), needed)?;
    source.vids_from = vids_from;
    while let Some(changed) = source.next().await? {
        let Changed { place, vids, rows, beside: more } = changed;
        count += vids.len();
        if asks_references {
            charge.grow(vids.len() * size_of::<RowPlace>())?;
            places.extend(vids.iter().map(|vid| (place, *vid)));
        }
        change.dead.entry(place).or_default().extend(vids);
        if !needs_rows {
            // If few rows end, their keys are locked.
            match count > LOCKED_ROWS_MAX {
                true => gone_keys.clear(),
                false => gone_keys.extend(key_locks::gone_keys(table, &rows)?),
            }
            continue;
        }
        bytes += byte_count(&rows);
        if bytes > bytes_max {
            return Ok(None);
        }
        let more_bytes = more.as_ref().map_or(0, byte_count);
        charge.grow(2 * (byte_count(&rows) + more_bytes))?;
        all.push(rows);
        beside.extend(more);
    }
    let beside_schema = source.beside.take();
    drop(source);
    let rows = concat_batches(&schema.arrow(), &all)?;
    if is_update {
        change.rows = route(table, rows.clone())?;
        change.keeps_keys = leaves_keys(table, modify.assignments());
    }
    let beside = beside_schema.map(|schema| concat_batches(&schema, &beside)).transpose()?;
    Ok(Some(Made { change, places, count, rows, gone_keys, beside, _charge: charge }))
}

/// The columns of `table` that the statement needs of its target rows; None: all.
pub(super) fn needed_columns(
    session: &Session,
    table: &TableState,
    modify: &Modify,
) -> Option<BTreeSet<usize>> {
    let is_update = matches!(modify.action, Action::Update(_));
    let asks_references = foreign_keys::is_in_references(session, table)
        && !foreign_keys::keeps_keys(session, table, modify);
    if is_update || asks_references || !modify.returning.is_empty() {
        return None;
    }
    let keys = unique_indexes(table).flat_map(|index| index.shape().columns.iter());
    Some(keys.copied().collect())
}

/// The bytes of rows that an UPDATE of `table` may gather before it writes them as they come.
fn gathered_max(session: &Session, table: &TableState, modify: &Modify) -> usize {
    let asks = foreign_keys::is_in_references(session, table)
        && !foreign_keys::keeps_keys(session, table, modify);
    let is_plain = matches!(modify.action, Action::Update(_)) && modify.returning.is_empty();
    let is_plain = is_plain && session.view_of_parts().is_none();
    match is_plain && !asks && many::may_move(session, table.schema.table_id) {
        true => share_of(&session.database),
        false => usize::MAX,
    }
}

/// Runs an UPDATE of many rows, which are written as they come. Returns their number; None: it needs a newer `view`.
async fn update_many(
    session: &mut Session,
    view: &ReadView,
    table: &TableState,
    asked: (&Modify, &Parameters),
) -> Result<Option<usize>> {
    let is_own = own::begin_own(session);
    let mut count = 0;
    let taken = match Box::pin(write_while_read(session, view, table, asked)).await {
        Ok(Some(written)) => {
            count = written;
            Ok(Taken::Done)
        }
        Ok(None) => Ok(Taken::Again),
        Err(error) => Err(error),
    };
    match Box::pin(own::end_own(session, is_own, taken)).await? {
        Taken::Done => Ok(Some(count)),
        Taken::Again => Ok(None),
    }
}

async fn write_while_read(
    session: &mut Session,
    view: &ReadView,
    table: &TableState,
    asked: (&Modify, &Parameters),
) -> Result<Option<usize>> {
    let (schema, settings) = (&table.schema, session.shared_settings());
    let moving = many::begin_moving(session, schema).await?;
    let definition = moving.ok_or_else(Error::concurrent_update)?;
    if definition.has_folded() {
        // Own rows in the view have changed.
        definitions::end_definition(session, definition).await?;
        return Ok(None);
    }
    // Some rows may have been shipped, and are in pages by now.
    let [read, now] =
        [&view.state, definition.before()].map(|state| Live::flushed(Arc::clone(state)));
    if !read.has_same_table(&now, schema.table_id) {
        return Ok(None);
    }
    let rows = ChangedRows::new(session, view, table, asked, None)?;
    let rows = stream::try_unfold(rows, |mut rows| async move {
        Ok(rows.next().await?.map(|changed| (changed, rows)))
    });
    let checks = Arc::clone(session.database.queries());
    let (definition, count) = definition.replace(checks, &settings, schema, rows.boxed()).await?;
    definitions::end_definition(session, definition).await?;
    Ok(Some(count))
}

/// The outcome of a statement that changed `row_count` rows: with RETURNING, the result of that query over its rows and
/// `view`.
pub(super) async fn outcome(
    database: &Arc<Database>,
    settings: &Settings,
    (name, row_count): (&str, usize),
    returned: Option<(Box<ast::Query>, &RecordBatch)>,
    parameters: &Parameters,
    view: Option<&ReadView>,
) -> Result<Outcome> {
    let Some((query, rows)) = returned else {
        return Ok(Outcome::done(format!("{name} {row_count}")));
    };
    let asked = QueryRequest { query: &query, parameters, view };
    let (schema, batches) = Box::pin(select::over_rows(database, settings, asked, rows)).await?;
    Ok(Outcome::Rows { schema, batches })
}

/// Which of the `count` columns behind the VIDs in the query of `modify` are of other tables; None: RETURNING names
/// none.
pub(super) fn beside_columns(
    modify: &Modify,
    schema: &TableSchema,
    count: usize,
) -> Option<std::ops::Range<usize>> {
    let from = schema.columns.len() + row_count(modify.assignments());
    modify.returns_beside().then_some(from..count)
}

/// For each column of the table, whether SET says DEFAULT.
pub(super) fn defaults(
    assignments: &[Assignment],
    schema: &TableSchema,
    row_count: usize,
) -> Vec<Option<BooleanArray>> {
    let mut defaults = vec![None; schema.columns.len()];
    for assignment in assignments.iter().filter(|assignment| assignment.value.is_none()) {
        let place = schema.column_index(&assignment.column);
        if let Some(default) = place.and_then(|place| defaults.get_mut(place)) {
            *default = Some(BooleanArray::from(vec![true; row_count]));
        }
    }
    defaults
}

/// Notes in `types` those of parameters that are assigned to columns.
pub(super) fn assigned_types(
    assignments: &[Assignment],
    schema: &TableSchema,
    types: &mut [Option<ColumnType>],
) -> Result<()> {
    for assignment in assignments {
        let Some(value) = &assignment.value else { continue };
        let Some(parameter) = place_of(value)? else { continue };
        let column = schema.column(&assignment.column);
        if let (Some(unknown @ None), Some(column)) = (types.get_mut(parameter), column) {
            *unknown = Some(parameter_type(column.column_type));
        }
    }
    Ok(())
}
