//! INSERT … ON CONFLICT: each row of the input is inserted, updates the row that has its key, or is left out.
//!
//! 1. The unique keys of all rows are [locked](super::transaction_locks), so that nobody else inserts a row with one of
//!    them.
//! 2. Only then does the statement take what it [reads](Session::live) and look the keys up in it: in pages, in the
//!    delta and among own rows. So it sees what was committed before the locks were granted. In a block with one
//!    snapshot, a row that only the newest snapshot has cannot be seen, and the statement fails (40001).
//! 3. DO UPDATE runs over pairs of rows in memory: without a plan ([`simple`]), by a cached plan ([`pairs`]), or by a
//!    query that is planned ([`OnConflict::query`]). A row that would be updated twice, or updated and inserted, is an
//!    error (21000).
//! 4. The transaction [takes](own::take_rows) dead and new rows as one change. If a row has changed since, all steps
//!    are repeated with the locks kept; only the rows to insert are computed once.
//!
//! Invariant: under READ COMMITTED a row is inserted, updated or left out, whatever others do; the statement never
//! fails with a duplicate key. Source: PostgreSQL's manual, "ON CONFLICT Clause".

pub(super) mod pairs;
mod simple;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use arrow::array::types::UInt64Type;
use arrow::array::{Array, ArrayRef, AsArray, BinaryArray, RecordBatch, UInt32Array, UInt64Array};
use arrow::compute::{concat_batches, take_record_batch};
use arrow::datatypes::{DataType, Field, FieldRef, Schema};
use cleave_catalog::catalog::TableState;
use cleave_catalog::error::{Error, Fault, Result};
use cleave_catalog::index::{IndexShape, rows_by_vid};
use cleave_catalog::settings::Stack;
use cleave_engine::delta::Live;
use cleave_engine::storage_engine::commit::validate::{RowPlace, absent};
use cleave_engine::write::insert::{TableChange, route};
use cleave_query::check_constraints::check_rows;
use cleave_query::point_path::{FoundPlace, Sight};
use cleave_query::range_path::read::{RangeRead, RangeRow};
use cleave_query::select::{ALL_VIDS, QueryRequest, ReadView, Target, describe, over_tables};
use cleave_sql::statement::assigned::check_set;
use cleave_sql::statement::conform::Conform;
use cleave_sql::statement::modify::{TARGET, VID};
use cleave_sql::statement::upsert::{ConflictAction, EXCLUDED, OnConflict};
use cleave_sql::statement::{Insert, Parameters, parameters};
use cleave_store::{ColumnType, Projection, ShippedPages, TableSchema};
use datafusion::sql::sqlparser::ast;
use futures::future::try_join_all;

use super::block::own;
use super::block::{OwnRows, Taken};
use super::foreign_keys::Ending;
use super::modify::defaults;
use super::{Session, changing_with, foreign_keys, identity, insert, key_locks, serializable};
use crate::database::Database;
use pairs::PairsPlan;
use simple::Pairs;

/// How often the statement starts again because of an existing key that was not in the view.
const DUPLICATE_RETRIES_MAX: usize = 100;

/// The number of an input row, and the existing row that has its key.
type Pair = (u32, RangeRow);

/// What happens to the input rows.
#[derive(Debug, Default)]
struct Sorted {
    /// Rows to insert, by their numbers.
    inserted: Vec<u32>,
    /// Rows whose key exists.
    pairs: Vec<Pair>,
    /// Existing rows with a key of rows that are left out.
    passed: Vec<RangeRow>,
}

/// Rows as DO UPDATE makes them.
struct Updated {
    rows: RecordBatch,
    /// The rows that they replace.
    before: RecordBatch,
    /// The pairs that they were made of, by number.
    pairs: Vec<usize>,
}

/// DO UPDATE: the query over pairs of rows, its parts, the statement's name for the table, and its cached plan, if any.
type Update<'a> = (&'a ast::Query, &'a OnConflict, &'a ast::Ident, Option<&'a PairsPlan>);

impl Updated {
    /// No rows.
    fn none(schema: &TableSchema) -> Self {
        let none = RecordBatch::new_empty(schema.arrow());
        Self { rows: none.clone(), before: none, pairs: Vec::new() }
    }
}

/// Inserts `rows`, which conform to the table that `schema` describes, as ON CONFLICT says. Returns the inserted and
/// updated rows with their new values, in order.
pub(super) async fn run(
    session: &mut Session,
    schema: &Arc<TableSchema>,
    rows: RecordBatch,
    (on_conflict, name): (&OnConflict, &ast::Ident),
    parameters: &Parameters,
) -> Result<RecordBatch> {
    let update = on_conflict.query(schema, name, EXCLUDED)?;
    if update.is_some() {
        let what = "ON CONFLICT DO UPDATE of a table";
        changing_with::check_unchanged_by_parts(
            session.parts.as_deref(),
            Some(schema.table_id),
            what,
        )?;
    }
    let mut duplicates = 0;
    // Also for no rows.
    on_conflict.arbiters(session.names().find_writable_table(&schema.name)?)?;
    // As in PostgreSQL, a row breaks a check before its key is looked up, whatever becomes of it.
    let table = Arc::clone(session.names().find_writable_table(&schema.name)?);
    check_rows(&session.database, &table, [&rows]).await?;
    let keys = TableChange {
        rows: BTreeMap::from([(0, rows.clone().into())]),
        ..TableChange::new(Arc::clone(schema))
    };
    loop {
        if !session.owns(schema.table_id) {
            let newest = session.database.catalog();
            key_locks::lock_keys(session, newest.find_writable_table(&schema.name)?, &keys).await?;
        }
        let seen = session.database.live();
        let live = session.live().await?;
        let table = Arc::clone(live.state.find_writable_table(&schema.name)?);
        if let ConflictAction::Update { assignments, .. } = &on_conflict.action {
            identity::check_update(&table, assignments)?;
        }
        let arbiters = arbiter_keys(on_conflict, &table, &rows)?;
        let known = update
            .as_ref()
            .and_then(|_| pairs::kept_pairs(&mut session.pairs_plans, schema, on_conflict, name));
        let (sorted, updated) = {
            let sight = Sight::new(live, session.own_changes(schema.table_id));
            let there = read_by(&session.database, &sight, &table, 0);
            let sorted = sorted(session, &there, &arbiters, rows.num_rows(), update.is_some());
            let sorted = sorted.await?;
            let updated = match &update {
                Some(update) if !sorted.pairs.is_empty() => {
                    let update = (&**update, on_conflict, name, known.as_deref());
                    updated(session, &there, &rows, &sorted.pairs, update, parameters).await?
                }
                _ => Updated::none(schema),
            };
            session.note_seen(sight.log_end());
            (sorted, updated)
        };
        if waits_for_passed(session, schema.table_id, &sorted.passed).await? {
            continue;
        }
        let (change, own_dead, changed) = change_of(&table, &rows, &sorted, &updated)?;
        let ending = match updated.pairs.is_empty() {
            true => Ending::None,
            false => Ending::Rows {
                places: None,
                before: Some(&updated.before),
                after: Some(&updated.rows),
            },
        };
        let replaced = foreign_keys::replaced(session, &table, ending).await?;
        match own::take_rows(session, change, own_dead, replaced).await {
            Ok(Taken::Done) => return Ok(changed),
            Ok(Taken::Again) => {}
            // A bulk load locks no keys, and its rows may be newer than the view.
            Err(Error::DuplicateKey { constraint, .. })
                if duplicates < DUPLICATE_RETRIES_MAX
                    && arbiters.iter().any(|(shape, _)| shape.definition.name == constraint)
                    && has_moved(&session.database, &seen) =>
            {
                if session.reads_snapshot() {
                    return Err(Error::concurrent_update());
                }
                duplicates += 1;
            }
            Err(error) => return Err(error),
        }
    }
}

/// Whether one of these rows, for which DO NOTHING leaves others out, was locked by a fragment of another transaction,
/// which may have deleted it: that is awaited.
async fn waits_for_passed(
    session: &mut Session,
    table_id: u32,
    passed: &[RangeRow],
) -> Result<bool> {
    if passed.is_empty() || !session.database.locks().has_jobs() || session.owns(table_id) {
        return Ok(false);
    }
    let mut waited = false;
    for row in passed {
        if let FoundPlace::Committed(vid) = row.place {
            waited |= key_locks::wait_for_row(session, table_id, (row.tablet, vid)).await?;
        }
    }
    Ok(waited)
}

/// Whether anything was committed since `seen`.
fn has_moved(database: &Arc<Database>, seen: &Live) -> bool {
    let live = database.live();
    live.number != seen.number || !Arc::ptr_eq(&live.state, &seen.state)
}

/// How many parameters DO UPDATE has.
pub(super) fn update_parameters(session: &Session, insert: &Insert) -> Result<usize> {
    update_query(session, insert)?.map_or(Ok(0), |query| parameters::count(&query))
}

/// The query of DO UPDATE, if there is one.
pub(super) fn update_query(session: &Session, insert: &Insert) -> Result<Option<Box<ast::Query>>> {
    let Some(on_conflict) = &insert.on_conflict else { return Ok(None) };
    let schema = insert::insert_target(session, insert)?;
    on_conflict.query(&schema, &insert.target_name(), EXCLUDED)
}

/// Records in `types` those of parameters that DO UPDATE assigns to columns.
pub(super) fn assigned_types(
    insert: &Insert,
    schema: &TableSchema,
    types: &mut [Option<ColumnType>],
) -> Result<()> {
    match insert.on_conflict.as_ref().map(|on_conflict| &on_conflict.action) {
        Some(ConflictAction::Update { assignments, .. }) => {
            super::modify::assigned_types(assignments, schema, types)
        }
        Some(ConflictAction::Nothing) | None => Ok(()),
    }
}

/// Records in `types` the types of the parameters of DO UPDATE: one that is assigned to a column has the column's type.
pub(super) async fn describe_update(
    session: &Session,
    insert: &Insert,
    schema: &Arc<TableSchema>,
    types: &mut [Option<ColumnType>],
) -> Result<()> {
    let Some(on_conflict) = &insert.on_conflict else { return Ok(()) };
    let state = session.names();
    on_conflict.arbiters(state.find_writable_table(&schema.name)?)?;
    // Rows of the table stand in for the input rows, which have the same columns.
    let Some(query) = on_conflict.query(schema, &insert.target_name(), TARGET)? else {
        return Ok(());
    };
    assigned_types(insert, schema, types)?;
    let places = parameters::places(&query)?;
    let other = |place: usize| (!places.contains(&place)).then_some(ColumnType::Text);
    let known = types.iter().enumerate().map(|(place, known)| known.or_else(|| other(place)));
    let known = known.collect();
    let target = Some(Target { table: schema.name.clone(), tablet: 0, vids: ALL_VIDS });
    let view = ReadView { target, ..ReadView::of_state(state) };
    let described = describe(&session.database, session.in_force(), Some(&view), &query, known);
    let described = Box::pin(described).await?;
    for place in places {
        if let Some(known) = types.get_mut(place) {
            *known = described.types.get(place).copied();
        }
    }
    Ok(())
}

/// The reader of rows of `table` by the index with the number `index`.
fn read_by<'a>(
    database: &'a Arc<Database>,
    sight: &'a Sight<'a>,
    table: &'a TableState,
    index: u32,
) -> RangeRead<'a> {
    let stack = Stack::Native;
    RangeRead { database, sight, table, index, is_search_key: true, backward: false, stack }
}

/// What happens to `row_count` rows that have these keys.
async fn sorted(
    session: &Session,
    there: &RangeRead<'_>,
    arbiters: &[(Arc<IndexShape>, BinaryArray)],
    row_count: usize,
    updates: bool,
) -> Result<Sorted> {
    let mut found_by = Vec::with_capacity(arbiters.len());
    for (shape, keys) in arbiters {
        found_by.push(rows_with(session, there, shape, keys).await?);
    }
    let mut begun: Vec<HashSet<&[u8]>> = vec![HashSet::new(); arbiters.len()];
    let mut sorted = Sorted::default();
    for (row, number) in (0..row_count).zip(0_u32..) {
        let keys = arbiters.iter().map(|(shape, keys)| own_key(shape, keys, row));
        let keys: Vec<Option<&[u8]>> = keys.collect();
        let found = keys.iter().zip(&found_by);
        let mut found = found.filter_map(|(key, found)| found.get((*key)?));
        if let Some(there) = found.next() {
            match updates {
                true => sorted.pairs.push((number, there.clone())),
                false => sorted.passed.push(there.clone()),
            }
            continue;
        }
        let is_begun = |(key, begun): (&Option<&[u8]>, &HashSet<&[u8]>)| {
            key.is_some_and(|key| begun.contains(key))
        };
        if keys.iter().zip(&begun).any(is_begun) {
            if updates {
                return Err(twice());
            }
            continue;
        }
        for (key, begun) in keys.into_iter().zip(&mut begun) {
            begun.extend(key);
        }
        sorted.inserted.push(number);
    }
    Ok(sorted)
}

/// The rows that have one of `keys` in an index.
async fn rows_with<'a>(
    session: &Session,
    there: &RangeRead<'_>,
    shape: &IndexShape,
    keys: &'a BinaryArray,
) -> Result<BTreeMap<&'a [u8], RangeRow>> {
    let keys = (0..keys.len()).filter_map(|row| own_key(shape, keys, row));
    let keys: BTreeSet<&[u8]> = keys.collect();
    let keys: Vec<&[u8]> = keys.into_iter().collect();
    let (table, index) = (there.table.schema.table_id, shape.definition.id);
    serializable::note_keys(session.tracked(), table, index, &keys)?;
    let found =
        read_by(&session.database, there.sight, there.table, index).with_keys(&keys).await?;
    let found = keys.iter().zip(found);
    let found: BTreeMap<&[u8], RangeRow> =
        found.filter_map(|(key, row)| Some((*key, row?))).collect();
    if session.reads_snapshot() && !session.owns(table) {
        let missing = keys.iter().filter(|key| !found.contains_key(*key));
        let missing: Vec<&[u8]> = missing.copied().collect();
        let own = session.own_changes(table);
        let is_kept = |(place, vid): RowPlace| {
            let dead = own.and_then(|own| own.dead.get(&place));
            dead.is_none_or(|dead| !dead.contains(vid))
        };
        let newest = session.database.live();
        let absent = absent(&session.database, &newest, (table, shape), &is_kept, &missing).await?;
        if absent.len() < missing.len() {
            return Err(Error::concurrent_update());
        }
    }
    Ok(found)
}

/// The rows of `table`, none of which is shipped, that have one of `keys`, which are sorted, in an index: of all its
/// tablets, concurrently.
pub(super) async fn looked_up<'a>(
    database: &Arc<Database>,
    table: &TableState,
    shape: &IndexShape,
    keys: &[&'a [u8]],
) -> Result<BTreeMap<&'a [u8], RowPlace>> {
    let asked = table.tablets.iter().enumerate().filter_map(|(place, tablet)| {
        let index = tablet.index(shape.definition.id)?;
        Some(async move {
            let pages = database.page_source(tablet.device, Stack::Native)?;
            let found = index.get_many(tablet, &*pages, keys).await?;
            Ok::<_, Error>((place, found))
        })
    });
    let mut rows = BTreeMap::new();
    for (place, found) in try_join_all(asked).await? {
        let of_tablet = keys.iter().zip(found);
        rows.extend(of_tablet.filter_map(|(key, vid)| Some((*key, (place, vid?)))));
    }
    Ok(rows)
}

/// The rows as DO UPDATE makes them of `pairs`.
async fn updated(
    session: &Session,
    there: &RangeRead<'_>,
    rows: &RecordBatch,
    pairs: &[Pair],
    (query, on_conflict, name, known): Update<'_>,
    parameters: &Parameters,
) -> Result<Updated> {
    let schema = &there.table.schema;
    let all: Vec<usize> = (0..schema.columns.len()).collect();
    let found: Vec<RangeRow> = pairs.iter().map(|(_, row)| row.clone()).collect();
    let before = there.fetch(&found, &all).await?;
    let numbers = UInt32Array::from_iter_values(pairs.iter().map(|(number, _)| *number));
    let excluded = take_record_batch(rows, &numbers)?;
    let moment = session.moment();
    let now_us = moment.now_us;
    let conform = Conform::by_position(schema, &[], schema.columns.len(), moment)?;
    let ConflictAction::Update { assignments, selection } = &on_conflict.action else {
        return Ok(Updated::none(schema));
    };
    if selection.is_none() {
        let of_rows = Pairs { schema, name, there: &before, excluded: &excluded };
        if let Some(rows) = simple::updated(&of_rows, assignments, parameters, now_us)? {
            let defaults = defaults(assignments, schema, rows.num_rows());
            let rows = conform.rows_with_defaults(&rows, &defaults)?;
            let made: Vec<usize> = (0..pairs.len()).collect();
            check_once(pairs, &made)?;
            return Ok(Updated { rows, before, pairs: made });
        }
    }
    let by_kept = match known {
        Some(known) => {
            pairs::made_of_pairs(
                &session.database,
                session.in_force(),
                known,
                (&before, &excluded),
                parameters,
            )
            .await?
        }
        None => None,
    };
    let batches = match by_kept {
        Some(made) => vec![made],
        None => {
            let (before, excluded) = (numbered(&before)?, numbered(&excluded)?);
            let asked = QueryRequest { query, parameters, view: None };
            let tables = [(TARGET, &before), (EXCLUDED, &excluded)];
            let run = over_tables(&session.database, session.in_force(), asked, &tables);
            Box::pin(run).await?.1
        }
    };
    let mut made = Vec::with_capacity(batches.len());
    let mut numbers: Vec<usize> = Vec::new();
    for batch in batches {
        let (pair, columns) = split_numbers(&batch)?;
        numbers.extend(pair);
        let defaults = defaults(assignments, schema, columns.num_rows());
        check_set(schema, assignments, |place| Some(columns.columns().get(place)?.data_type()))?;
        made.push(conform.rows_with_defaults(&columns, &defaults)?);
    }
    // DataFusion gives them in any order.
    let mut order: Vec<(usize, u32)> = numbers.into_iter().zip(0..).collect();
    order.sort_unstable();
    let made = concat_batches(&schema.arrow(), &made)?;
    let places = UInt32Array::from_iter_values(order.iter().map(|(_, place)| *place));
    let of_pairs: Vec<usize> = order.iter().map(|(pair, _)| *pair).collect();
    check_once(pairs, &of_pairs)?;
    let numbers = of_pairs.iter().map(|pair| u32::try_from(*pair).unwrap_or(u32::MAX));
    let before = take_record_batch(&before, &UInt32Array::from_iter_values(numbers))?;
    Ok(Updated { rows: take_record_batch(&made, &places)?, before, pairs: of_pairs })
}

/// The columns of `projection` of the rows at `places`, in their order. Some may be in pages that are `shipped` with
/// the catalog version of `table`.
pub(super) async fn rows_at(
    database: &Arc<Database>,
    (shipped, table): (&Arc<ShippedPages>, &TableState),
    projection: &Projection,
    places: impl Iterator<Item = RowPlace>,
) -> Result<RecordBatch> {
    let mut by_tablet: BTreeMap<usize, (Vec<u64>, Vec<usize>)> = BTreeMap::new();
    let mut count = 0;
    for (position, (place, vid)) in places.enumerate() {
        let (vids, positions) = by_tablet.entry(place).or_default();
        vids.push(vid);
        positions.push(position);
        count = position + 1;
    }
    let read = by_tablet.iter().map(|(place, (vids, _))| async move {
        // A fragment may report any place.
        let tablet = table.tablets.get(*place).ok_or_else(Error::concurrent_update)?;
        let pages = shipped.over(database.page_source(tablet.device, Stack::Native)?);
        rows_by_vid(tablet, &*pages, projection, vids).await
    });
    let rows = concat_batches(&projection.schema, &try_join_all(read).await?)?;
    let mut order = vec![0_u32; count];
    let positions = by_tablet.values().flat_map(|(_, positions)| positions);
    for (position, row) in positions.zip(0..) {
        if let Some(place) = order.get_mut(*position) {
            *place = row;
        }
    }
    Ok(take_record_batch(&rows, &UInt32Array::from(order))?)
}

/// The keys of `rows` in each index that ON CONFLICT covers.
fn arbiter_keys(
    on_conflict: &OnConflict,
    table: &TableState,
    rows: &RecordBatch,
) -> Result<Vec<(Arc<IndexShape>, BinaryArray)>> {
    let mut keys = Vec::new();
    let tablet = table.tablets.first();
    for definition in on_conflict.arbiters(table)? {
        let Some(index) = tablet.and_then(|tablet| tablet.index(definition.id)) else { continue };
        let shape = Arc::clone(index.shape());
        let of_rows = shape.row_entries(rows, 0)?;
        keys.push((shape, of_rows));
    }
    Ok(keys)
}

/// The key of a row; None: it has a NULL, and equals no other.
fn own_key<'a>(shape: &IndexShape, keys: &'a BinaryArray, row: usize) -> Option<&'a [u8]> {
    let key = keys.is_valid(row).then(|| keys.value(row))?;
    (!shape.key.has_null(key)).then_some(key)
}

/// `rows` with their numbers appended as VIDs.
fn numbered(rows: &RecordBatch) -> Result<RecordBatch> {
    let own = rows.schema();
    let number = Arc::new(Field::new(VID, DataType::UInt64, false));
    let fields: Vec<FieldRef> = own.fields().iter().cloned().chain([number]).collect();
    let numbers = UInt64Array::from_iter_values((0..).take(rows.num_rows()));
    let mut columns: Vec<ArrayRef> = rows.columns().to_vec();
    columns.push(Arc::new(numbers));
    Ok(RecordBatch::try_new(Arc::new(Schema::new(fields)), columns)?)
}

/// The numbers of pairs, which are the first column, and the other columns.
fn split_numbers(batch: &RecordBatch) -> Result<(Vec<usize>, RecordBatch)> {
    let numbers = batch.columns().first().and_then(|column| {
        column.as_primitive_opt::<UInt64Type>().filter(|numbers| numbers.null_count() == 0)
    });
    let Some(numbers) = numbers else {
        return Err(Error::unsupported("this statement"));
    };
    let numbers = numbers.values().iter().map(|number| usize::try_from(*number).unwrap_or(0));
    let columns: Vec<usize> = (1..batch.num_columns()).collect();
    Ok((numbers.collect(), batch.project(&columns)?))
}

/// Refuses to update a row twice: `made` are the ascending numbers of the pairs that passed WHERE.
fn check_once(pairs: &[Pair], made: &[usize]) -> Result<()> {
    let mut updated = HashSet::new();
    let mut made = made.iter().peekable();
    for (number, (_, row)) in pairs.iter().enumerate() {
        let place = (row.tablet, row.place);
        if updated.contains(&place) {
            return Err(twice());
        }
        if made.next_if(|made| **made == number).is_some() {
            updated.insert(place);
        }
    }
    Ok(())
}

fn twice() -> Error {
    Error::Invalid {
        message: "ON CONFLICT DO UPDATE command cannot affect row a second time: no two rows of \
                  one statement may have the same key"
            .to_owned(),
        fault: Fault::Cardinality,
        position: None,
    }
}

/// The change of `table` by the statement, the own rows that end, and the inserted and updated rows in the order of the
/// input.
fn change_of(
    table: &TableState,
    rows: &RecordBatch,
    sorted: &Sorted,
    updated: &Updated,
) -> Result<(TableChange, OwnRows, RecordBatch)> {
    let mut change = TableChange::of_read(table);
    let mut own_dead = OwnRows::new();
    let inserted = UInt32Array::from(sorted.inserted.clone());
    let inserted = take_record_batch(rows, &inserted)?;
    let mut order: Vec<(u32, u32)> = sorted.inserted.iter().copied().zip(0..).collect();
    let first = u32::try_from(order.len()).unwrap_or(u32::MAX);
    for (pair, row) in updated.pairs.iter().zip(first..) {
        let Some((number, there)) = sorted.pairs.get(*pair) else { continue };
        match there.place {
            FoundPlace::Committed(vid) => {
                change.dead.entry(there.tablet).or_default().insert(vid);
            }
            FoundPlace::Own(place) => {
                own_dead.entry(there.tablet).or_default().insert(place);
            }
        }
        order.push((*number, row));
    }
    let joined = concat_batches(&table.schema.arrow(), [&inserted, &updated.rows])?;
    order.sort_unstable();
    let order = UInt32Array::from_iter_values(order.into_iter().map(|(_, row)| row));
    let changed = take_record_batch(&joined, &order)?;
    if changed.num_rows() > 0 {
        change.rows = route(table, changed.clone())?;
    }
    Ok((change, own_dead, changed))
}
