//! ANALYZE: a table's rows in, its statistics out.
//!
//! The rows are read by a query like any other, `SELECT table_sketch(columns) FROM table`: on the device where the
//! session's settings and the link allow it, in partitions, within the device's memory; only sketches cross the link.
//! It reads a snapshot, blocks nobody, and dropping its future stops it on both sides. The layout of columns on pages
//! is taken from the headers of some of them ([`stored_columns`]).
//!
//! Of a large table it reads some pages ([`page_choice`]), by `page_sketch`, or the first rows of fewer pages if it is
//! to be [quick](Effort); what these tell is reckoned up to the whole table. Row counts, NULLs and ends of all pages
//! are known without reading any: from the version map and from zone maps.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::compute::concat;
use arrow::datatypes::DataType;
use cleave_catalog::catalog::{CatalogState, TableState};
use cleave_catalog::error::{Error, NameKind, Result};
use cleave_catalog::settings::{Settings, Stack};
use cleave_engine::host_pages::RoutedPages;
use cleave_engine::storage_engine::snapshot::SnapshotKind;
use cleave_fragment::functions::table_sketch::{ColumnSketch, TableSketch};
use cleave_fragment::row_places::reference_field;
use cleave_fragment::waiting;
use cleave_media::{Clock, SystemClock};
use cleave_plan::statistics::{ColumnCounts, KeySample, PageZones, SomePages, distinct_of_pages};
use cleave_plan::{ColumnFacts, ColumnStatistics, RowSample, StoredColumn, TableStatistics};
use cleave_sql::statement::parameters::Parameters;
use cleave_store::{AbsentValues, Column, ColumnRef, Encoding, PageRead, PageSource, TableSchema};
use datafusion::sql::sqlparser::ast;

use crate::query_engine::QueryEngine;
use crate::select::{self, QueryRequest, ReadView, SampledPages, column_facts};

mod page_choice;

use page_choice::{PageChoice, PageSize};

/// Most pages of a table whose headers are looked at.
const HEADERS_MAX: usize = 32;
/// Share of a column's values that pages read must have, if rows counted by value are to tell of joins.
const KEYS_SEEN_MIN: f64 = 0.5;

/// How much of a large table is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effort {
    /// What `default_statistics_target` says.
    Full,
    /// Little, beside what filling the table took.
    Quick,
}

/// The result of ANALYZE for one table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Analyzed {
    /// Its name.
    pub table: String,
    /// Its id.
    pub table_id: u32,
    /// Its rows.
    pub row_count: u64,
    /// The rows of them that were drawn.
    pub sampled_count: u64,
    /// Pages of its heap.
    pub page_count: u64,
    /// The pages of them that were read.
    pub pages_read: u64,
}

/// What was read of a table.
struct Read {
    sketch: TableSketch,
    /// Rows of the table.
    row_count: u64,
    /// None: all pages were read.
    part: Option<ReadPart>,
    page_count: u64,
}

/// What was read of a table of which not all was.
struct ReadPart {
    /// The places of the pages.
    pages: BTreeSet<usize>,
    /// Of each page, the first rows alone.
    of_slices: bool,
    /// What zone maps say of the columns, by id.
    zones: BTreeMap<u32, (ColumnFacts, Option<PageZones>)>,
}

/// `state`, in which a materialized view without rows yet is the empty table that it is.
fn readable(state: Arc<CatalogState>, name: &str) -> Result<Arc<CatalogState>> {
    let table = state.find_table(name)?;
    if table.check_populated().is_ok() {
        return Ok(state);
    }
    let table = TableState { materialized: None, ..TableState::clone(table) };
    let mut state = CatalogState::clone(&state);
    state.tables.insert(name.to_owned(), Arc::new(table));
    Ok(Arc::new(state))
}

/// Analyses `columns`, or all, of the table `name` by `query`, and keeps what was found.
///
/// # Errors
/// [`Error::UnknownName`], and those of a query.
pub async fn analyze(
    database: &Arc<QueryEngine>,
    settings: &Settings,
    name: &str,
    columns: &[String],
    effort: Effort,
) -> Result<Analyzed> {
    let state = readable(database.snapshot(SnapshotKind::Flushed).await?, name)?;
    let table = state.find_table(name)?;
    let schema = Arc::clone(&table.schema);
    let pages = page_sizes(table);
    let (page_count, page_bytes) = (pages.len() as u64, heap_bytes(table));
    let (change_count, analyzed_us) = (table.change_count(), SystemClock.wall());
    let (column_ids, is_whole) = (column_ids(&schema, columns)?, columns.is_empty());
    let stored = stored_columns(database, table).await?;
    let asked = Asked { ids: &column_ids, effort };
    let read = read(database, settings, &state, table, asked, &pages).await?;
    drop(state);
    let row_count = read.row_count;
    let sampled_count = read.sketch.columns.first().map_or(0, |column| column.sample.len() as u64);
    let chosen = read.part.as_ref().map(|part| &part.pages);
    let sampled_page_count = chosen.map_or(0, |chosen| chosen.len() as u64);
    let pages_read = chosen.map_or(page_count, |chosen| chosen.len() as u64);
    let kept = Arc::clone(database);
    let (name, table_id) = (schema.name.clone(), schema.table_id);
    // To its end, whether or not anyone waits: a file changes.
    let task = waiting::spawn_blocking(move || {
        let mut found = TableStatistics {
            row_count,
            page_count,
            page_bytes,
            sampled_page_count,
            change_count,
            analyzed_us,
            ..Default::default()
        };
        if row_count > 0 {
            found.columns = summarize(&read, &column_ids)?;
            for (id, column) in &mut found.columns {
                column.stored = stored.get(id).copied();
            }
            let sampled = read.sketch.columns.iter().map(|column| Arc::clone(&column.sample));
            let sampled = column_ids.iter().copied().zip(sampled).collect();
            found.sample = Some(RowSample::of_larger(row_count, sampled)?);
        }
        let is_there = || check_same(&kept.catalog(), &schema).is_ok();
        kept.statistics().put(&schema, is_there, |before| with_others(found, before, is_whole))
    });
    task.await.map_err(|error| {
        Error::io("run", std::path::Path::new("a task of ANALYZE"), std::io::Error::other(error))
    })??;
    Ok(Analyzed { table: name, table_id, row_count, sampled_count, page_count, pages_read })
}

/// The columns, by id, and how much to read of them.
#[derive(Clone, Copy)]
struct Asked<'a> {
    ids: &'a [u32],
    effort: Effort,
}

/// Reads columns of `table`, from some of its `pages` if it is large.
async fn read(
    database: &Arc<QueryEngine>,
    settings: &Settings,
    state: &Arc<CatalogState>,
    table: &TableState,
    Asked { ids, effort }: Asked<'_>,
    pages: &[PageSize],
) -> Result<Read> {
    let schema = &table.schema;
    let page_count = pages.len() as u64;
    // Changes draw other pages; the same table, the same ones.
    let seed = table.change_count().rotate_left(32) ^ u64::from(schema.table_id);
    // References to rows need their name for themselves.
    let has_name = schema.column(reference_field().name()).is_none();
    let chosen = match effort {
        Effort::Full => page_choice::choose(pages, settings.limits.statistics_target, seed),
        Effort::Quick => page_choice::choose_few(pages, seed),
    };
    if let Some(PageChoice { places, first_rows }) = chosen.filter(|_| has_name) {
        let table_id = schema.table_id;
        let sampled = SampledPages { table_id, places: places.clone(), first_rows };
        let view =
            ReadView { sampled: Some(Arc::new(sampled)), ..ReadView::of_state(Arc::clone(state)) };
        let sketch = sketch(database, settings, &view, schema, ids).await?;
        // All rows of these pages may be dead.
        if sketch.row_count > 0 {
            let columns = schema.columns.iter().filter(|column| ids.contains(&column.id));
            let known = |column: &Column| (column_facts(table, column), zones(table, column));
            let zones = columns.map(|column| (column.id, known(column))).collect();
            let of_slices = first_rows.is_some();
            let part = Some(ReadPart { pages: places, of_slices, zones });
            let row_count = table.row_count().max(sketch.row_count);
            return Ok(Read { sketch, row_count, part, page_count });
        }
    }
    let view = ReadView::of_state(Arc::clone(state));
    let sketch = sketch(database, settings, &view, schema, ids).await?;
    Ok(Read { row_count: sketch.row_count, sketch, part: None, page_count })
}

/// The sketch of the columns `ids` of what `view` reads of a table.
async fn sketch(
    database: &Arc<QueryEngine>,
    settings: &Settings,
    view: &ReadView,
    schema: &TableSchema,
    ids: &[u32],
) -> Result<TableSketch> {
    let query = sketch_query(schema, ids, view.sampled.is_some())?;
    let parameters = Parameters::default();
    let asked = QueryRequest { query: &query, parameters: &parameters, view: Some(view) };
    let planned = Box::pin(select::plan_query(database, settings, asked)).await?;
    let running = Box::pin(planned.run(false)).await?;
    let (_, batches, _) = Box::pin(running.collect()).await?;
    let sketch = batches
        .iter()
        .find(|batch| batch.num_rows() > 0)
        .and_then(|batch| batch.columns().first()?.as_struct_opt())
        .ok_or_else(|| datafusion::error::DataFusionError::Internal("no sketch".to_owned()))?;
    Ok(TableSketch::of_result(sketch)?)
}

fn summarize(read: &Read, ids: &[u32]) -> Result<BTreeMap<u32, ColumnStatistics>> {
    let mut columns = BTreeMap::new();
    for (column, id) in read.sketch.columns.iter().zip(ids) {
        let Counted { counts, seen } = read.counted(*id, column);
        let known = read.part.as_ref().and_then(|part| part.zones.get(id));
        let zones = known.and_then(|(_, zones)| zones.as_ref());
        let some = read.sketch.sample_pages.as_deref();
        let some = some.map(|of_rows| SomePages { of_rows, zones });
        let mut statistics =
            ColumnStatistics::summarize(counts, &column.ends, &column.sample, some)?;
        if let Some((facts, _)) = known {
            statistics.reach(facts.min.clone(), facts.max.clone());
        }
        if joins_by(column.sample.data_type()) && seen >= KEYS_SEEN_MIN {
            let keys = KeySample::new(column.key_threshold, column.key_counts.clone())?;
            statistics.keys = Some(Arc::new(keys.of_seen(seen)));
        }
        columns.insert(*id, statistics);
    }
    Ok(columns)
}

/// What is known of a column of the whole table.
struct Counted {
    counts: ColumnCounts,
    /// Share of its values that were seen.
    seen: f64,
}

impl Read {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "not negative, and estimates"
    )]
    fn counted(&self, id: u32, column: &ColumnSketch) -> Counted {
        let (row_count, rows_read) = (self.row_count, self.sketch.row_count);
        let ColumnSketch { null_count, value_bytes, distinct_count, .. } = *column;
        let Some(part) = &self.part else {
            let counts = ColumnCounts { row_count, null_count, value_bytes, distinct_count };
            return Counted { counts, seen: 1.0 };
        };
        let read_nulls = null_count as f64 / rows_read.max(1) as f64;
        let known = part.zones.get(&id).and_then(|(facts, _)| facts.null_fraction);
        let nulls = known.unwrap_or(read_nulls);
        let nulls = (nulls * row_count as f64).round() as u64;
        let value_count = row_count.saturating_sub(nulls);
        let values_read = rows_read.saturating_sub(null_count).max(1) as f64;
        let width = value_bytes as f64 / values_read;
        // Few values are all counted one by one.
        let distinct_read = match column.key_threshold {
            u64::MAX => column.key_counts.len() as f64,
            _ => distinct_count,
        };
        let share = match part.of_slices {
            false => part.pages.len() as f64 / self.page_count.max(1) as f64,
            // The rows of a slice count as a page, and there are as many of these as the table's rows make.
            true => rows_read as f64 / row_count.max(1) as f64,
        };
        let distinct = distinct_of_pages(distinct_read, &column.key_pages, share);
        let distinct = distinct.min(value_count as f64);
        let counts = ColumnCounts {
            row_count,
            null_count: nulls,
            value_bytes: (width * value_count as f64) as u64,
            distinct_count: distinct,
        };
        let seen = if distinct > 0.0 { (distinct_read / distinct).min(1.0) } else { 1.0 };
        Counted { counts, seen }
    }
}

/// Whether columns of this type are usual join keys: others are, seldom, and their counts take space.
fn joins_by(data_type: &DataType) -> bool {
    data_type.is_integer() || matches!(data_type, DataType::FixedSizeBinary(_))
}

/// `found` with the columns that were analysed before and not now. For a table without rows, earlier results are
/// dropped. Rows are kept whole: those of an earlier ANALYZE of more columns stay.
fn with_others(
    mut found: TableStatistics,
    before: Option<&TableStatistics>,
    is_whole: bool,
) -> TableStatistics {
    if !is_whole {
        // The others are no newer than they were.
        found.change_count = before.map_or(0, |before| before.change_count);
    }
    if let Some(before) = before.filter(|_| found.row_count > 0) {
        for (id, column) in &before.columns {
            found.columns.entry(*id).or_insert_with(|| column.clone());
        }
        let has_more = |sample: &&RowSample| {
            let own = found.sample.as_ref().map(|own| own.columns());
            sample.columns().keys().any(|id| own.is_none_or(|own| !own.contains_key(id)))
        };
        if let Some(sample) = before.sample.as_ref().filter(has_more) {
            found.sample = Some(sample.clone());
        }
    }
    found
}

fn column_ids(schema: &TableSchema, columns: &[String]) -> Result<Vec<u32>> {
    if columns.is_empty() {
        return Ok(schema.columns.iter().map(|column| column.id).collect());
    }
    let id = |name: &String| {
        let names = schema.columns.iter().map(|column| column.name.as_str());
        let column = schema.column(name);
        column
            .map(|column| column.id)
            .ok_or_else(|| Error::unknown_column(&schema.name, name, names))
    };
    columns.iter().map(id).collect()
}

/// `SELECT table_sketch(columns) FROM table`, or `page_sketch` of these and of references to the rows.
fn sketch_query(schema: &TableSchema, ids: &[u32], of_pages: bool) -> Result<Box<ast::Query>> {
    let reference = reference_field();
    let names = ids.iter().filter_map(|id| schema.column_by_id(*id));
    let names = names.map(|column| column.name.as_str());
    let names: Vec<&str> = names.chain(of_pages.then(|| reference.name().as_str())).collect();
    let function = if of_pages { "page_sketch" } else { "table_sketch" };
    select::table_query(&schema.name, &names, Some(function))
}

/// # Errors
/// The table of this name was replaced in `state`, or is gone.
fn check_same(state: &CatalogState, schema: &TableSchema) -> Result<()> {
    match state.table(&schema.name) {
        Some(table) if table.schema.table_id == schema.table_id => Ok(()),
        _ => Err(Error::unknown(NameKind::Relation, &schema.name, state.table_names())),
    }
}

/// How the columns of `table` lie on its pages, by the headers of [`HEADERS_MAX`] of them, spread evenly.
async fn stored_columns(
    database: &QueryEngine,
    table: &TableState,
) -> Result<BTreeMap<u32, StoredColumn>> {
    let routed = table.heap_segments().map(|(device, segment)| (device, segment.segment));
    let pages = RoutedPages::new(database, Stack::Native, routed)?;
    let mut reads = Vec::new();
    for (_, segment) in table.heap_segments() {
        reads.extend(segment.pages.iter().map(|entry| PageRead {
            segment: segment.segment_ref(),
            page: entry.page,
            columns: Vec::new(),
        }));
    }
    let step = reads.len().div_ceil(HEADERS_MAX).max(1);
    let reads: Vec<PageRead> = reads.into_iter().step_by(step).collect();
    let page_count = reads.len().max(1) as f64;
    let answers = pages.read_scattered(reads).await?;
    let row_count: f64 = answers.iter().map(|page| f64::from(page.header.row_count)).sum();
    let stored = |column: &Column| {
        let (mut bytes, mut dictionary_rows) = (0.0, 0.0);
        for header in answers.iter().map(|page| &page.header) {
            let Some(entry) = header.entry(ColumnRef::User(column.id)) else { continue };
            bytes += f64::from(entry.length);
            if matches!(entry.encoding, Encoding::Dictionary | Encoding::Constant) {
                dictionary_rows += f64::from(header.row_count);
            }
        }
        let stored = StoredColumn {
            row_bytes: bytes / row_count,
            page_rows: row_count / page_count,
            dictionary_share: dictionary_rows / row_count,
        };
        (column.id, stored)
    };
    let columns = table.schema.columns.iter().filter(|_| row_count > 0.0);
    Ok(columns.map(stored).collect())
}

/// The zones of `column` on all pages of the heap; None: they cannot be had as arrays.
fn zones(table: &TableState, column: &Column) -> Option<PageZones> {
    let data_type = column.column_type.arrow();
    let absent = AbsentValues::of_table(&table.schema).zone(column.id, &data_type);
    let (mut mins, mut maxs, mut rows) = (Vec::new(), Vec::new(), Vec::new());
    for (_, segment) in table.heap_segments() {
        let zones = segment.zone_arrays(column.id, &data_type, absent.as_ref());
        let nulls = zones.null_counts.iter().map(Option::unwrap_or_default);
        let values = zones.row_counts.iter().zip(nulls);
        rows.extend(values.map(|(rows, nulls)| rows.unwrap_or(0).saturating_sub(nulls) as f64));
        mins.push(zones.mins);
        maxs.push(zones.maxs);
    }
    let joined = |parts: &[ArrayRef]| {
        let parts: Vec<&dyn Array> = parts.iter().map(|part| &**part).collect();
        concat(&parts).ok()
    };
    Some(PageZones { mins: joined(&mins)?, maxs: joined(&maxs)?, rows })
}

/// The sizes of the pages of a table's heap, in the order of a scan.
fn page_sizes(table: &TableState) -> Vec<PageSize> {
    let pages = table.heap_segments().flat_map(|(_, segment)| &segment.pages);
    let size = |page: &cleave_store::PageEntry| PageSize {
        rows: u64::from(page.page.row_count),
        bytes: page.page_refs().map(|page| page.extent.bytes() as u64).sum(),
    };
    pages.map(size).collect()
}

/// Bytes of these pages, without those of long values.
fn heap_bytes(table: &TableState) -> u64 {
    let pages = table.heap_segments().flat_map(|(_, segment)| &segment.pages);
    pages.map(|page| page.byte_count() as u64).sum()
}
