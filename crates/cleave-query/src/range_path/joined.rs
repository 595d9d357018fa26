//! Index nested-loop joins of the range path: rows of further tables, looked up by an index for the values of the rows
//! so far.
//!
//! ```text
//!  rows so far ─▶ their keys, each once ─▶ index of the next table: pages, memtables, delta, own rows ─▶ its rows
//!       └──────────────── each with those of its key; or with none, of LEFT JOIN ─▶ rows so far
//! ```
//!
//! At level SERIALIZABLE the keys are noted before they are looked up. Source: `docs/design/sql-and-planning.md`.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, UInt32Array, new_empty_array};
use arrow::buffer::NullBuffer;
use arrow::compute::{CastOptions, cast_with_options, take};
use cleave_catalog::catalog::CatalogState;
use cleave_catalog::catalog::index_definition::IndexDefinition;
use cleave_catalog::error::{Error, Result};
use cleave_catalog::index::IndexShape;
use cleave_catalog::settings::Stack;
use cleave_engine::write::insert::TableChange;
use cleave_sql::statement::Parameters;
use cleave_sql::statement::key_predicate::is_as_before;
use cleave_store::{IndexKey, KeyRange, StoreError, TableSchema};
use futures::future::{BoxFuture, FutureExt};
use futures::stream::{self, StreamExt, TryStreamExt};

use super::read::{RangeRead, RangeRow};
use super::template::Operand;
use crate::point_path::Sight;

/// Keys that are looked up side by side.
const SIDE_BY_SIDE: usize = 16;

/// The transaction of a look-up.
pub trait Reader: Sync {
    /// The transaction's changes in a table.
    fn own_changes(&self, table: u32) -> Option<&TableChange>;

    /// Notes that it reads `ranges` of an index of a table, also rows inserted there later.
    ///
    /// # Errors
    /// A serialisation failure.
    fn note_ranges(&self, table: u32, index: u32, ranges: &[KeyRange]) -> Result<()>;
}

/// A table whose rows are looked up.
#[derive(Debug)]
pub struct Joined {
    pub(super) schema: Arc<TableSchema>,
    /// All indexes of the table, of which the best was chosen.
    pub(super) indexes: Vec<Arc<IndexDefinition>>,
    pub(super) shape: Arc<IndexShape>,
    /// How the given first columns of a key are made.
    pub(super) key: IndexKey,
    /// What they are.
    pub(super) keys: Vec<KeySource>,
    /// Place of the table's first column among those of all tables.
    pub(super) first: usize,
    /// Rows for which it has none stay, with NULLs.
    pub(super) is_outer: bool,
    /// No two of its rows have the same key.
    pub(super) is_only: bool,
}

/// What a column of a key is equal to.
#[derive(Debug)]
pub(super) enum KeySource {
    Constant(Operand),
    /// The column at this place among those of all tables.
    Column(usize),
}

/// Rows of one table among those of all.
struct Beside {
    /// The places of its columns that are there, rising.
    places: Vec<usize>,
    columns: Vec<ArrayRef>,
    /// For each row of the result the row of it, or NULL.
    rows: UInt32Array,
}

/// The source of rows, the wanted columns, and the most rows.
pub(super) struct ReadRequest<'a> {
    pub(super) sight: &'a Sight<'a>,
    pub(super) reader: &'a dyn Reader,
    pub(super) stack: Stack,
    /// Places of columns among those of all tables, rising.
    pub(super) wanted: &'a [usize],
    pub(super) rows_max: usize,
}

impl Joined {
    pub(super) fn holds(&self, state: &CatalogState) -> bool {
        is_as_before(state, &self.schema, &self.indexes)
    }

    /// What EXPLAIN says.
    pub(super) fn explain(&self) -> String {
        let names = self.shape.definition.column_names(&self.schema);
        let names = names.get(..self.keys.len()).unwrap_or_default().join(", ");
        let rows = if self.is_only { "its row" } else { "its rows" };
        format!(
            ", then {rows} on {} by index {} ({names})",
            self.schema.name, self.shape.definition.name
        )
    }
}

/// The wanted columns of the rows `found` of the first table, whose first column is at `first`, each beside those of
/// the `joined` tables, and the number of rows; None: too many, or a value is left to the planner.
///
/// # Errors
/// Those of the device and of pages.
pub(super) async fn beside(
    read: &RangeRead<'_>,
    (first, found): (usize, &[RangeRow]),
    joined: &[Joined],
    parameters: &Parameters,
    asked: &ReadRequest<'_>,
) -> Result<Option<(Vec<ArrayRef>, usize)>> {
    let mut needed: Vec<usize> = asked.wanted.to_vec();
    needed.extend(joined.iter().flat_map(|joined| &joined.keys).filter_map(|key| match key {
        KeySource::Column(place) => Some(*place),
        KeySource::Constant(_) => None,
    }));
    needed.sort_unstable();
    needed.dedup();
    let mut count = found.len();
    let rows = UInt32Array::from_iter_values((0..).take(count));
    let mut all = vec![fetched(read, (first, found), &needed, rows).await?];
    for joined in joined {
        let table = asked.sight.live.state.find_table(&joined.schema.name)?;
        let own = asked.reader.own_changes(joined.schema.table_id);
        let sight = Sight::new(asked.sight.live.clone(), own);
        let read = RangeRead {
            database: read.database,
            sight: &sight,
            table,
            index: joined.shape.definition.id,
            is_search_key: joined.keys.len() == joined.shape.columns.len(),
            backward: false,
            stack: asked.stack,
        };
        let Some(keys) = keys(joined, &all, count, parameters)? else { return Ok(None) };
        let Some(found) = joined.found(&read, &keys, asked).await? else { return Ok(None) };
        let mut before: Vec<u32> = Vec::with_capacity(count);
        let mut of_table: Vec<Option<u32>> = Vec::with_capacity(count);
        for (row, key) in (0..).zip(&keys) {
            let rows = key.as_ref().and_then(|key| found.by_key.get(key)).cloned();
            let rows = rows.unwrap_or(0..0);
            if rows.is_empty() && joined.is_outer {
                before.push(row);
                of_table.push(None);
            }
            before.extend(rows.clone().map(|_| row));
            of_table.extend(rows.map(Some));
            if before.len() > asked.rows_max {
                return Ok(None);
            }
        }
        count = before.len();
        let before = UInt32Array::from(before);
        for known in &mut all {
            known.rows = taken(&known.rows, &before)?;
        }
        let rows = UInt32Array::from(of_table);
        all.push(fetched(&read, (joined.first, &found.rows), &needed, rows).await?);
    }
    let columns = asked.wanted.iter().map(|place| column(&all, *place));
    Ok(Some((columns.collect::<Result<_>>()?, count)))
}

/// Rows of a table, and which of them have which key.
struct FoundRows {
    rows: Vec<RangeRow>,
    by_key: BTreeMap<Vec<u8>, std::ops::Range<u32>>,
}

impl Joined {
    /// The rows that have one of `keys`; None: there are too many.
    async fn found(
        &self,
        read: &RangeRead<'_>,
        keys: &[Option<Vec<u8>>],
        asked: &ReadRequest<'_>,
    ) -> Result<Option<FoundRows>> {
        let keys: std::collections::BTreeSet<&[u8]> =
            keys.iter().flatten().map(Vec::as_slice).collect();
        let keys: Vec<&[u8]> = keys.into_iter().collect();
        let ranges: Vec<KeyRange> =
            keys.iter().map(|key| KeyRange::of_prefix(key.to_vec())).collect();
        asked.reader.note_ranges(self.schema.table_id, read.index, &ranges)?;
        let mut found = FoundRows { rows: Vec::new(), by_key: BTreeMap::new() };
        let rows_max = asked.rows_max;
        let of_keys: Vec<Vec<RangeRow>> = if self.is_only {
            let rows = read.with_keys(&keys).await?;
            rows.into_iter().map(|row| row.into_iter().collect()).collect()
        } else {
            if read.has_more_than(&ranges, rows_max) {
                return Ok(None);
            }
            let walk = |range| {
                let rows = |(_, row): (Vec<u8>, RangeRow)| row;
                async move {
                    let walked = read.walk(std::slice::from_ref(range), rows_max + 1).await?;
                    let walked = walked.filter(|walked| !walked.is_cut);
                    Ok(walked.map(|walked| walked.entries.into_iter().map(rows).collect()))
                }
                .boxed()
            };
            // Boxed, since the compiler then knows that they are `Send`.
            let walks: Vec<BoxFuture<'_, Result<Option<Vec<RangeRow>>>>> =
                ranges.iter().map(walk).collect();
            let walks = stream::iter(walks).buffered(SIDE_BY_SIDE);
            let walked: Vec<Option<Vec<RangeRow>>> = walks.try_collect().await?;
            let Some(walked) = walked.into_iter().collect() else { return Ok(None) };
            walked
        };
        for (key, rows) in keys.into_iter().zip(of_keys) {
            let from = u32::try_from(found.rows.len()).unwrap_or(u32::MAX);
            found.rows.extend(rows);
            if found.rows.len() > rows_max {
                return Ok(None);
            }
            let below = u32::try_from(found.rows.len()).unwrap_or(u32::MAX);
            found.by_key.insert(key.to_vec(), from..below);
        }
        Ok(Some(found))
    }
}

/// For each row so far, the key prefix of the rows of the next table; None: NULL equals no row. An outer None: a
/// constant is left to the planner.
fn keys(
    joined: &Joined,
    all: &[Beside],
    count: usize,
    parameters: &Parameters,
) -> Result<Option<Vec<Option<Vec<u8>>>>> {
    let mut values: Vec<ArrayRef> = Vec::with_capacity(joined.keys.len());
    for (key, own) in joined.keys.iter().zip(joined.key.columns()) {
        let array = match key {
            KeySource::Constant(operand) => {
                let Some(value) = operand.value(parameters) else { return Ok(None) };
                take(&value, &UInt32Array::from(vec![0; count]), None)?
            }
            KeySource::Column(place) => column(all, *place)?,
        };
        // A whole number that the column cannot have equals none of its values, as NULL does.
        let options = CastOptions { safe: true, ..CastOptions::default() };
        values.push(cast_with_options(&array, &own.data_type, &options)?);
    }
    let nulls = values.iter().fold(None, |nulls: Option<NullBuffer>, array| {
        NullBuffer::union(nulls.as_ref(), array.logical_nulls().as_ref())
    });
    let keys = match joined.key.encode(&values) {
        // No entry is as long; the planner finds none.
        Err(StoreError::OutOfRange { .. }) => return Ok(None),
        keys => keys?,
    };
    let is_whole = |row: usize| nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row));
    let key = |row: usize| is_whole(row).then(|| keys.value(row).to_vec());
    Ok(Some((0..count).map(key).collect()))
}

/// The columns of a table that are needed, of the rows `found`.
async fn fetched(
    read: &RangeRead<'_>,
    (first, found): (usize, &[RangeRow]),
    needed: &[usize],
    rows: UInt32Array,
) -> Result<Beside> {
    let width = read.table.schema.columns.len();
    let places = needed.iter().copied().filter(|place| (first..first + width).contains(place));
    let places: Vec<usize> = places.collect();
    let own: Vec<usize> = places.iter().map(|place| place - first).collect();
    let columns = match (found, own.as_slice()) {
        (_, []) => Vec::new(),
        // Nothing is read for none.
        ([], own) => {
            let columns = own.iter().filter_map(|place| read.table.schema.columns.get(*place));
            columns.map(|column| new_empty_array(&column.column_type.arrow())).collect()
        }
        (found, own) => read.fetch(found, own).await?.columns().to_vec(),
    };
    Ok(Beside { places, columns, rows })
}

/// A column of the rows so far.
fn column(all: &[Beside], place: usize) -> Result<ArrayRef> {
    let found = all.iter().find_map(|own| {
        let at = own.places.binary_search(&place).ok()?;
        Some((own.columns.get(at)?, &own.rows))
    });
    let (column, rows) = found.ok_or_else(|| Error::unsupported("this column"))?;
    Ok(take(column, rows, None)?)
}

/// `rows` of these places.
fn taken(rows: &UInt32Array, places: &UInt32Array) -> Result<UInt32Array> {
    let taken = take(rows, places, None)?;
    let strange = || Error::unsupported("this join");
    taken.as_any().downcast_ref::<UInt32Array>().cloned().ok_or_else(strange)
}
