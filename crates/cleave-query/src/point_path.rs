//! The point path: a SELECT by the key of an index, from its syntax tree, or from its text, to its rows without any
//! plan.
//!
//! ```text
//!  SELECT columns FROM t WHERE key = constant [AND …]
//!    ─▶ key bytes ─▶ index ─▶ VIDs ─▶ version map ─▶ pages and slots ─▶ rows
//! ```
//!
//! 1. [`PointQuery::detect`] recognises the shape, or leaves the query to the planner. It is strict: any condition that
//!    is not `key column = constant`, columns that are not the first ones of some index, a constant that the planner
//!    would read otherwise for its column's type, or an expression in the list, goes to the planner.
//! 2. [`PointQueries`] remembers the queries of a session: one that differs from them only in its constants is not
//!    parsed again.
//! 3. [`PreparedPoint`] is one with parameters: each EXECUTE makes a key of their values, and no more.
//! 4. [`run`] looks the key up and reads the columns of its rows, or finds that there are so many rows that a plan is
//!    better. In a divided table it asks the tablet that the key determines, or all tablets at once.
//!
//! Invariant: the result is that of the planned query, byte for byte. An index entry counts only if the row that it
//! names is in the statement's version map and has the entry's key (rule 16).

mod spelling;
mod template;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow::array::{Array, ArrayRef, RecordBatch, RecordBatchOptions};
use arrow::buffer::BooleanBuffer;
use arrow::compute::{concat_batches, filter_record_batch};
use cleave_catalog::catalog::{CatalogState, TabletState};
use cleave_catalog::error::Result;
use cleave_catalog::index::{TabletIndex, newest, rows_of_page};
use cleave_catalog::settings::Stack;
use cleave_engine::delta::Live;
use cleave_engine::write::insert::TableChange;
use cleave_sql::statement::key_predicate::{Given, OneTable};
use cleave_sql::statement::parameters::Parameters;
use cleave_store::{ColumnType, KeyRange, PageRead, PageSource, SegmentDirectory, SegmentId};
use cleave_txn::KeySpan;
use datafusion::sql::sqlparser::ast;
use futures::future::try_join_all;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};

use crate::query_engine::QueryEngine;
use crate::statements::Shape;
use spelling::Spelling;
use template::{PointTemplate, Remembered};

/// Most entries that are looked up here; a plan reads more of them with less work each.
const ENTRY_COUNT_MAX: usize = 256;

/// A query for the rows of one key.
#[derive(Debug, Clone)]
pub struct PointQuery {
    template: Arc<PointTemplate>,
    /// The key prefix of the rows' entries.
    prefix: Vec<u8>,
    /// Place of the only tablet that may have the rows, where the key says which.
    tablet: Option<usize>,
}

/// The point queries that a session has seen.
#[derive(Debug, Default)]
pub struct PointQueries {
    remembered: Remembered,
}

impl PointQueries {
    /// The point query of the statement `text` on `state`, if it was seen before with any constants.
    #[must_use]
    pub fn seen(&self, text: &str, state: &CatalogState) -> Option<PointQuery> {
        self.remembered.query(&Spelling::of(text)?, state)
    }

    /// As [`PointQuery::detect`]; remembers the query that `text` spells.
    #[must_use]
    pub fn detect(
        &self,
        query: &ast::Query,
        text: &str,
        state: &CatalogState,
    ) -> Option<PointQuery> {
        let (template, constants) = constant_template(query, state)?;
        let constants: Vec<&str> = constants.iter().map(Cow::as_ref).collect();
        let template = Arc::new(template);
        if let Some(spelling) = Spelling::of(text) {
            self.remembered.put(&spelling, &template, &constants);
        }
        template.bind(&constants)
    }
}

/// The template of a query without parameters.
fn constant_template<'a>(
    query: &'a ast::Query,
    state: &CatalogState,
) -> Option<(PointTemplate, Vec<Cow<'a, str>>)> {
    let (template, given) = PointTemplate::of(query, &[], state)?;
    let text = |given: Given<'a>| match given {
        Given::Text(text) => Some(text),
        Given::Parameter(_) => None,
    };
    let constants = given.into_iter().map(text).collect::<Option<Vec<_>>>()?;
    Some((template, constants))
}

/// A constant of a [`PreparedPoint`].
#[derive(Debug, Clone)]
enum PointConstant {
    Text(String),
    /// The parameter at this place.
    Parameter(usize),
}

/// A point query some of whose constants are parameters.
#[derive(Debug, Clone)]
pub struct PreparedPoint {
    template: Arc<PointTemplate>,
    /// In the order of the text.
    constants: Vec<PointConstant>,
}

impl PreparedPoint {
    /// The query for all columns of the rows of `table` of which `condition` holds; `None`: it is no point query.
    pub fn of_rows(
        table: &OneTable<'_>,
        condition: &ast::Expr,
        types: &[ColumnType],
    ) -> Option<Self> {
        let (template, given) = PointTemplate::of_rows(table, condition, types)?;
        Some(Self::with(template, given))
    }

    fn with(template: PointTemplate, given: Vec<Given<'_>>) -> Self {
        let constants = given.into_iter().map(|given| match given {
            Given::Text(text) => PointConstant::Text(text.into_owned()),
            Given::Parameter(place) => PointConstant::Parameter(place),
        });
        Self { template: Arc::new(template), constants: constants.collect() }
    }

    /// The point query of `query`, whose parameters have these types, on `state`; `None`: it is no point query.
    #[must_use]
    pub fn of(query: &ast::Query, types: &[ColumnType], state: &CatalogState) -> Option<Self> {
        let (template, given) = PointTemplate::of(query, types, state)?;
        Some(Self::with(template, given))
    }

    /// Whether the table and its indexes are in `state` as they were.
    #[must_use]
    pub fn holds(&self, state: &CatalogState) -> bool {
        self.template.holds(state)
    }

    /// Whether there can be one row at most.
    pub fn has_one_row(&self) -> bool {
        self.template.has_one_row()
    }

    /// The query for these values; `None`: the planner knows what one of them means here.
    #[must_use]
    pub fn bind(&self, parameters: &Parameters) -> Option<PointQuery> {
        let constants = self.constants.iter().map(|constant| match constant {
            PointConstant::Text(text) => Some(text.as_str()),
            PointConstant::Parameter(place) => parameters.values().get(*place)?.text(),
        });
        let constants = constants.collect::<Option<Vec<_>>>()?;
        self.template.bind(&constants)
    }
}

impl PointQuery {
    /// The table's id.
    pub fn table_id(&self) -> u32 {
        self.template.table_id()
    }

    /// How it is counted, if its statement is `text`. Statements that are remembered as one are counted as one.
    pub fn counted_as(&self, text: &str) -> &Shape {
        self.template.counted_as.get_or_init(|| Shape::of(text))
    }

    /// Whether there can be one row at most.
    pub fn has_one_row(&self) -> bool {
        self.template.has_one_row()
    }

    /// The point query that `query` is on `state`; `None`: it is another one, or there is something
    /// wrong with it, which the planner will say.
    #[must_use]
    pub fn detect(query: &ast::Query, state: &CatalogState) -> Option<Self> {
        let (template, constants) = constant_template(query, state)?;
        let constants: Vec<&str> = constants.iter().map(Cow::as_ref).collect();
        Arc::new(template).bind(&constants)
    }

    /// The key that it asks for, found or not: the entries of its index that begin with it.
    pub fn span(&self) -> KeySpan {
        let KeyRange { from, below } = KeyRange::of_prefix(self.prefix.clone());
        KeySpan { space: self.template.index.id, from, below }
    }

    /// The index and the search key, where no two rows have that.
    pub fn only_key(&self) -> Option<(u32, &[u8])> {
        self.has_one_row().then(|| (self.template.index.id, self.prefix.as_slice()))
    }

    /// What EXPLAIN says.
    #[must_use]
    pub fn explain(&self, state: &CatalogState) -> String {
        let (name, index) = (self.template.table(), &self.template.index);
        let table = state.table(name);
        let names = table.map(|table| index.column_names(&table.schema));
        let tablet_count = table.map_or(1, |table| table.tablets.len());
        let tablets = match self.tablet {
            _ if tablet_count == 1 => String::new(),
            Some(place) => format!(", in tablet {place} of {tablet_count}"),
            None => format!(", in all {tablet_count} tablets"),
        };
        let limit = match self.has_one_row() {
            true => String::new(),
            false => format!(" up to {ENTRY_COUNT_MAX} entries, with one beyond"),
        };
        format!(
            "Point look-up on {name} by index {} ({}){tablets}, on the host, without a plan{limit}",
            index.name,
            names.unwrap_or_default().join(", ")
        )
    }
}

/// What a look-up reads: what is committed, and the changes of its own transaction behind it.
#[derive(Debug)]
pub struct Sight<'a> {
    /// What is committed.
    pub live: Live,
    /// What its own transaction has changed in the table.
    pub own: Option<&'a TableChange>,
    /// The end of the log of the last commit in the delta that affects the result.
    log_end: AtomicU64,
}

impl<'a> Sight<'a> {
    /// What is committed in `live`, with the changes of `own`.
    pub fn new(live: Live, own: Option<&'a TableChange>) -> Self {
        Self { live, own, log_end: AtomicU64::new(0) }
    }

    /// The end of the log of the last commit in the delta that affects the result of look-ups, also by a missing row.
    /// Other commits do not affect it, so the reader need not wait for them (rule 27).
    pub fn log_end(&self) -> u64 {
        self.log_end.load(Ordering::Relaxed)
    }

    /// Notes that the log up to `end` affects the result.
    pub fn note_seen(&self, end: u64) {
        self.log_end.fetch_max(end, Ordering::Relaxed);
    }
}

impl Sight<'_> {
    /// Whether a row in pages was deleted by a commit since, or by the own transaction.
    pub(crate) fn is_dead(&self, table: u32, place: usize, vid: u64) -> bool {
        if let Some(log_end) = self.live.delta.dead(table, place, vid, self.live.number) {
            self.note_seen(log_end);
            return true;
        }
        let dead = self.own.and_then(|own| own.dead.get(&place));
        dead.is_some_and(|dead| dead.contains(vid))
    }
}

/// A row that a look-up has found.
#[derive(Debug)]
pub struct Found {
    /// The place of its tablet.
    pub tablet: usize,
    /// Where it is.
    pub row: FoundPlace,
    /// The wanted columns of it.
    pub batch: RecordBatch,
}

/// Where a row is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FoundPlace {
    /// It is committed, with this VID.
    Committed(u64),
    /// It is the own one at this place.
    Own(usize),
}

/// The rows of `query`; `None`: there are too many for this path.
///
/// Tablets that may have some are asked at once, so that several devices work in parallel.
///
/// # Errors
/// Those of the device and of pages.
pub async fn run(
    database: &Arc<QueryEngine>,
    sight: &Sight<'_>,
    query: &PointQuery,
    stack: Stack,
) -> Result<Option<RecordBatch>> {
    let template = &*query.template;
    let Some(reads) = reads(database, sight, query, stack)? else { return Ok(None) };
    let batches: Vec<RecordBatch> = if query.has_one_row() {
        only_row(&reads).await?.into_iter().map(|found| found.batch).collect()
    } else {
        match all_rows(&reads).await? {
            Some(batches) => batches,
            None => return Ok(None),
        }
    };
    match batches.as_slice() {
        [batch] => Ok(Some(batch.clone())),
        _ => Ok(Some(concat_batches(&template.result, &batches)?)),
    }
}

/// The rows of `query` from memory; `None`: something must be read, or several tablets asked.
///
/// # Errors
/// As [`run`].
pub fn run_at_hand(
    database: &Arc<QueryEngine>,
    sight: &Sight<'_>,
    query: &PointQuery,
    stack: Stack,
) -> Result<Option<RecordBatch>> {
    let reads = reads(database, sight, query, stack)?;
    let Some([read]) = reads.as_deref().filter(|_| query.has_one_row()) else { return Ok(None) };
    let Some(found) = read.only_row_at_hand()? else { return Ok(None) };
    let none = || RecordBatch::new_empty(Arc::clone(&query.template.result));
    Ok(Some(found.map_or_else(none, |found| found.batch)))
}

/// The only row of `query`, which [has one](PointQuery::has_one_row) at most; an outer `None`: it needs a plan.
///
/// # Errors
/// As [`run`].
pub async fn find(
    database: &Arc<QueryEngine>,
    sight: &Sight<'_>,
    query: &PointQuery,
    stack: Stack,
) -> Result<Option<Option<Found>>> {
    match reads(database, sight, query, stack)? {
        Some(reads) => Ok(Some(only_row(&reads).await?)),
        None => Ok(None),
    }
}

/// The tablets that may have rows; `None`: one of them has not the index.
fn reads<'a>(
    database: &Arc<QueryEngine>,
    sight: &'a Sight<'_>,
    query: &'a PointQuery,
    stack: Stack,
) -> Result<Option<Vec<TabletRead<'a>>>> {
    let table = sight.live.state.find_table(query.template.table())?;
    table.check_populated()?;
    let is_wanted = |place: usize| query.tablet.is_none_or(|wanted| wanted == place);
    let mut reads = Vec::with_capacity(1);
    for (place, tablet) in table.tablets.iter().enumerate().filter(|(place, _)| is_wanted(*place)) {
        let Some(index) = tablet.index(query.template.index.id) else { return Ok(None) };
        let pages = database.page_source(tablet.device, stack)?;
        let table = table.schema.table_id;
        reads.push(TabletRead { sight, table, place, tablet, index, pages, query });
    }
    Ok(Some(reads))
}

/// The row of a search key that no two rows have.
async fn only_row(reads: &[TabletRead<'_>]) -> Result<Option<Found>> {
    if let [read] = reads {
        return read.only_row().await;
    }
    // In this order: look-ups in memory need no waiting, and may make the others needless.
    let mut asked: FuturesUnordered<_> = reads.iter().map(|read| read.only_row().boxed()).collect();
    let mut failed = None;
    while let Some(answer) = asked.next().await {
        match answer {
            Ok(Some(found)) => return Ok(Some(found)),
            Ok(None) => {}
            // Of no account where another tablet has the row.
            Err(error) => failed = failed.or(Some(error)),
        }
    }
    failed.map_or_else(|| Ok(None), Err)
}

/// The rows of all entries that begin with the key; `None`: these are too many.
async fn all_rows(reads: &[TabletRead<'_>]) -> Result<Option<Vec<RecordBatch>>> {
    let found = try_join_all(reads.iter().map(|read| read.entries().boxed())).await?;
    let found: Option<Vec<Vec<u64>>> = found.into_iter().collect();
    let unflushed = reads.iter().map(TabletRead::unflushed).collect::<Result<Vec<_>>>()?;
    let unflushed: Vec<Found> = unflushed.into_iter().flatten().collect();
    let few = |found: &Vec<Vec<u64>>| {
        found.iter().map(Vec::len).sum::<usize>() + unflushed.len() <= ENTRY_COUNT_MAX
    };
    let Some(found) = found.filter(few) else { return Ok(None) };
    let rows = reads.iter().zip(found).map(|(read, vids)| read.rows(vids).boxed());
    let mut batches: Vec<_> = try_join_all(rows).await?.into_iter().flatten().collect();
    batches.extend(unflushed.into_iter().map(|found| found.batch));
    Ok(Some(batches))
}

/// A tablet whose rows are read.
struct TabletRead<'a> {
    sight: &'a Sight<'a>,
    table: u32,
    place: usize,
    tablet: &'a TabletState,
    index: &'a TabletIndex,
    pages: Arc<dyn PageSource>,
    query: &'a PointQuery,
}

impl TabletRead<'_> {
    /// The row of a search key that no two rows have, if this tablet has it.
    async fn only_row(&self) -> Result<Option<Found>> {
        if let Some(found) = self.only_row_at_hand()? {
            return Ok(found);
        }
        let vid = self.index.get(self.tablet, &*self.pages, &self.query.prefix).await?;
        let Some(vid) = vid.filter(|vid| !self.is_dead(*vid)) else { return Ok(None) };
        let batch = self.rows(vec![vid]).await?.into_iter().find(|batch| batch.num_rows() > 0);
        let row = FoundPlace::Committed(vid);
        Ok(batch.map(|batch| Found { tablet: self.place, row, batch }))
    }

    /// The same from memory; an outer `None`: something must be read.
    fn only_row_at_hand(&self) -> Result<Option<Option<Found>>> {
        if let Some(found) = self.unflushed()?.pop() {
            return Ok(Some(Some(found)));
        }
        let (pages, template) = (&*self.pages, &*self.query.template);
        let vid = self.index.get_at_hand(self.tablet, pages, &self.query.prefix)?;
        let Some(vid) = vid else { return Ok(None) };
        let Some(vid) = vid.filter(|vid| !self.is_dead(*vid)) else { return Ok(Some(None)) };
        let Some((segment, page, slot)) = newest(self.tablet, vid) else { return Ok(Some(None)) };
        let Some(entry) = segment.page(page) else { return Ok(Some(None)) };
        let columns = template.wanted.clone();
        let read = PageRead { segment: segment.segment_ref(), page: entry.page, columns };
        let Some(opened) = pages.open_at_hand(&read) else { return Ok(None) };
        let batch = self.with_key(opened.rows(&[slot], &template.projection)?)?;
        let row = FoundPlace::Committed(vid);
        let found = (batch.num_rows() > 0).then_some(Found { tablet: self.place, row, batch });
        Ok(Some(found))
    }

    /// Rows that are in no page yet: of commits, and own ones.
    fn unflushed(&self) -> Result<Vec<Found>> {
        let (live, template) = (&self.sight.live, &*self.query.template);
        let mut found = Vec::new();
        let own_dead = self.sight.own.and_then(|own| own.dead.get(&self.place));
        let place = (self.table, self.place);
        let (index, prefix) = (template.index.id, self.query.prefix.as_slice());
        if !live.delta.is_empty() {
            let (rows, log_end) = live.delta.with_prefix(place, index, prefix, live.number);
            self.sight.note_seen(log_end);
            for (vid, row) in rows {
                if own_dead.is_some_and(|dead| dead.contains(vid)) {
                    continue;
                }
                let (tablet, row_place) = (self.place, FoundPlace::Committed(vid));
                found.push(Found { tablet, row: row_place, batch: self.shown(&row.batch())? });
            }
        }
        let Some(own) = self.sight.own.and_then(|own| own.rows.get(&self.place)) else {
            return Ok(found);
        };
        for (first, own) in own.placed() {
            let entries = template.shape.row_entries(own, 0)?;
            for (row, key) in entries.iter().enumerate() {
                if key.is_some_and(|key| key.starts_with(prefix)) {
                    let batch = self.shown(&own.slice(row, 1))?;
                    let place = FoundPlace::Own(first + row);
                    found.push(Found { tablet: self.place, row: place, batch });
                }
            }
        }
        Ok(found)
    }

    /// The wanted columns of whole rows.
    fn shown(&self, rows: &RecordBatch) -> Result<RecordBatch> {
        let template = &*self.query.template;
        let columns = template.places.iter().filter_map(|place| rows.columns().get(*place));
        let options = RecordBatchOptions::new().with_row_count(Some(rows.num_rows()));
        let (schema, columns) = (Arc::clone(&template.result), columns.cloned().collect());
        Ok(RecordBatch::try_new_with_options(schema, columns, &options)?)
    }

    /// Whether a row in pages was deleted by a commit since, or by the own transaction.
    fn is_dead(&self, vid: u64) -> bool {
        self.sight.is_dead(self.table, self.place, vid)
    }

    /// The rows of all entries that begin with the key; `None`: these are too many.
    async fn entries(&self) -> Result<Option<Vec<u64>>> {
        let ranges = [KeyRange::of_prefix(self.query.prefix.clone())];
        let (pages, is_search_key) = (&*self.pages, self.query.template.is_search_key());
        self.index.rows_in(self.tablet, pages, &ranges, is_search_key, ENTRY_COUNT_MAX).await
    }

    /// The rows `vids`, as far as this version has them, in the order in which the pages lie.
    async fn rows(&self, vids: Vec<u64>) -> Result<Vec<RecordBatch>> {
        let mut places: BTreeMap<(SegmentId, u32), Vec<u16>> = BTreeMap::new();
        for vid in vids.into_iter().filter(|vid| !self.is_dead(*vid)) {
            if let Some((segment, page, slot)) = newest(self.tablet, vid) {
                places.entry((segment.segment, page)).or_default().push(slot);
            }
        }
        let mut batches = Vec::with_capacity(places.len());
        for ((segment, page), mut slots) in places {
            slots.sort_unstable();
            if let Some(segment) = self.tablet.segment(segment) {
                batches.extend(self.page_rows(segment, page, &slots).await?);
            }
        }
        Ok(batches)
    }

    /// The rows in `slots` of a page that have the key.
    async fn page_rows(
        &self,
        segment: &SegmentDirectory,
        page: u32,
        slots: &[u16],
    ) -> Result<Option<RecordBatch>> {
        let Some(entry) = segment.page(page) else { return Ok(None) };
        let (template, pages) = (&*self.query.template, &*self.pages);
        let columns = template.wanted.clone();
        let read = PageRead { segment: segment.segment_ref(), page: entry.page, columns };
        let rows = rows_of_page(pages, entry, &read, slots, &template.projection).await?;
        self.with_key(rows).map(Some)
    }

    /// The wanted columns of those of `rows` that have the key.
    fn with_key(&self, rows: RecordBatch) -> Result<RecordBatch> {
        let (template, count) = (&*self.query.template, rows.num_rows());
        let key = template.key_columns.iter().filter_map(|place| rows.columns().get(*place));
        let key: Vec<ArrayRef> = key.map(Arc::clone).collect();
        let batch = if Arc::ptr_eq(rows.schema_ref(), &template.result) {
            rows
        } else {
            let shown = rows.columns().iter().take(template.result.fields().len());
            let options = RecordBatchOptions::new().with_row_count(Some(count));
            let result = Arc::clone(&template.result);
            RecordBatch::try_new_with_options(result, shown.map(Arc::clone).collect(), &options)?
        };
        if count == 1 {
            let has_key = template.shape.key.encode_one(&key)?.starts_with(&self.query.prefix);
            return Ok(if has_key { batch } else { batch.slice(0, 0) });
        }
        let keys = template.shape.key.encode(&key)?;
        let has_key = BooleanBuffer::collect_bool(keys.len(), |row| {
            keys.value(row).starts_with(&self.query.prefix)
        });
        if has_key.count_set_bits() == batch.num_rows() {
            return Ok(batch);
        }
        Ok(filter_record_batch(&batch, &has_key.into())?)
    }
}

#[cfg(test)]
mod tests;
