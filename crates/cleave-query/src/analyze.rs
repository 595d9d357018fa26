//! ANALYZE: a table's rows in, its statistics out.
//!
//! The rows are read by a query like any other, `SELECT table_sketch(columns) FROM table`: on the device where the
//! session's settings and the link allow it, in partitions, within the device's memory; only sketches cross the link.
//! It reads a snapshot, blocks nobody, and dropping its future stops it on both sides. The layout of columns on pages
//! is taken from the headers of some of them ([`stored_columns`]).

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::AsArray;
use arrow::datatypes::DataType;
use cleave_catalog::catalog::{CatalogState, TableState};
use cleave_catalog::error::{Error, NameKind, Result};
use cleave_catalog::settings::{Settings, Stack};
use cleave_engine::host_pages::RoutedPages;
use cleave_engine::storage_engine::snapshot::SnapshotKind;
use cleave_fragment::functions::table_sketch::TableSketch;
use cleave_fragment::waiting;
use cleave_media::{Clock, SystemClock};
use cleave_plan::statistics::{ColumnCounts, KeySample};
use cleave_plan::{ColumnStatistics, RowSample, StoredColumn, TableStatistics};
use cleave_store::{Column, ColumnRef, Encoding, PageRead, PageSource, TableSchema};
use datafusion::sql::sqlparser::ast;

use crate::query_engine::QueryEngine;
use crate::select;

/// Most pages of a table whose headers are looked at.
const HEADERS_MAX: usize = 32;

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
) -> Result<Analyzed> {
    let state = database.snapshot(SnapshotKind::Flushed).await?;
    let table = state.find_table(name)?;
    let schema = Arc::clone(&table.schema);
    let (page_count, page_bytes) = heap_size(table);
    let (change_count, analyzed_us) = (table.change_count(), SystemClock.wall());
    let (column_ids, is_whole) = (column_ids(&schema, columns)?, columns.is_empty());
    let stored = stored_columns(database, table).await?;
    drop(state);
    let query = sketch_query(&schema, &column_ids)?;
    let planned = Box::pin(select::plan_query(database, settings, &*query)).await?;
    check_same(planned.context.state(), &schema)?;
    let running = Box::pin(planned.run(false)).await?;
    let (_, batches, _) = Box::pin(running.collect()).await?;
    let sketch = batches
        .iter()
        .find(|batch| batch.num_rows() > 0)
        .and_then(|batch| batch.columns().first()?.as_struct_opt())
        .ok_or_else(|| datafusion::error::DataFusionError::Internal("no sketch".to_owned()))?;
    let sketch = TableSketch::of_result(sketch)?;
    let row_count = sketch.row_count;
    let sampled_count = sketch.columns.first().map_or(0, |column| column.sample.len() as u64);
    let kept = Arc::clone(database);
    let (name, table_id) = (schema.name.clone(), schema.table_id);
    // To its end, whether or not anyone waits: a file changes.
    let task = waiting::spawn_blocking(move || {
        let mut found = TableStatistics {
            row_count,
            page_count,
            page_bytes,
            change_count,
            analyzed_us,
            ..Default::default()
        };
        if row_count > 0 {
            found.columns = summarize(&sketch, &column_ids)?;
            for (id, column) in &mut found.columns {
                column.stored = stored.get(id).copied();
            }
            let sampled = sketch.columns.iter().map(|column| Arc::clone(&column.sample));
            let sampled = column_ids.iter().copied().zip(sampled).collect();
            found.sample = Some(RowSample::of_larger(row_count, sampled)?);
        }
        let is_there = || check_same(&kept.catalog(), &schema).is_ok();
        kept.statistics().put(&schema, is_there, |before| with_others(found, before, is_whole))
    });
    task.await.map_err(|error| {
        Error::io("run", std::path::Path::new("a task of ANALYZE"), std::io::Error::other(error))
    })??;
    Ok(Analyzed { table: name, table_id, row_count, sampled_count, page_count })
}

fn summarize(sketch: &TableSketch, ids: &[u32]) -> Result<BTreeMap<u32, ColumnStatistics>> {
    let mut columns = BTreeMap::new();
    for (column, id) in sketch.columns.iter().zip(ids) {
        let counts = ColumnCounts {
            row_count: sketch.row_count,
            null_count: column.null_count,
            value_bytes: column.value_bytes,
            distinct_count: column.distinct_count,
        };
        let mut statistics = ColumnStatistics::summarize(counts, &column.ends, &column.sample)?;
        if joins_by(column.sample.data_type()) {
            let keys = KeySample::new(column.key_threshold, column.key_counts.clone())?;
            statistics.keys = Some(Arc::new(keys));
        }
        columns.insert(*id, statistics);
    }
    Ok(columns)
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

/// `SELECT table_sketch(columns) FROM table`.
fn sketch_query(schema: &TableSchema, ids: &[u32]) -> Result<Box<ast::Query>> {
    let names = ids.iter().filter_map(|id| schema.column_by_id(*id));
    let names: Vec<&str> = names.map(|column| column.name.as_str()).collect();
    select::table_query(&schema.name, &names, Some("table_sketch"))
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

/// Pages of a table's heap, and their bytes.
fn heap_size(table: &TableState) -> (u64, u64) {
    let pages = table.heap_segments().flat_map(|(_, segment)| &segment.pages);
    pages.fold((0, 0), |(count, bytes), page| (count + 1, bytes + page.byte_count() as u64))
}
