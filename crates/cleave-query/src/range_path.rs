//! The range path: a statement over few rows of one or a few tables, by a range of the keys of an index, without
//! planning it.
//!
//! ```text
//!  SELECT … WHERE a = $1 AND b >= $2 ORDER BY b LIMIT 10
//!    ─▶ ranges of keys ─▶ pages, memtables, delta, own rows: entries in their order ─▶ rows ─▶ cached plan ─▶ result
//! ```
//!
//! 1. [`RangeTemplate::of`] recognises the statement ([`template`]): the index, the prefix of its keys, the order and
//!    the number of rows; or leaves it to the planner. The template is kept with a prepared statement, or by the
//!    session for texts that differ only in constants.
//! 2. [`RangeTemplate::bind`] makes ranges of keys from values.
//! 3. [`run`] merges entries in their order from all places with rows ([`read`]), keeps the visible ones, fetches their
//!    rows and runs the [cached plan](CachedPlan) over them. Where a condition may drop rows, it goes on until LIMIT
//!    has enough. Beyond `look_up_rows` rows it gives up: a plan reads more of them with less work each, and may be
//!    cut.
//!
//! In a join of few rows, the rows of the first table are read so, and those of each other one by an index of it
//! ([`joined`]); the cached plan runs over all of them, side by side.
//!
//! Invariant: the result is that of the planned query. Ranges only say which rows are read: the cached plan has all
//! conditions but `= ANY`, which is a range for each item; or none, where the ranges have no other rows in them.

mod joined;
pub mod read;
pub mod sources;
pub mod template;

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions, UInt32Array, UInt64Array};
use arrow::compute::take;
use arrow::datatypes::DataType;
use cleave_catalog::error::{Error, Result};
use cleave_catalog::index::Walked;
use cleave_catalog::settings::Settings;
use cleave_sql::statement::Parameters;
use cleave_store::KeyRange;

use crate::point_path::Sight;
use crate::query_engine::QueryEngine;
use crate::select::CachedPlan;
use joined::ReadRequest;
pub use joined::Reader;
use read::RangeRow;
pub use template::{Kept, RangeTemplate, Window};

/// What stands for a list.
const LIST: DataType = DataType::Boolean;
/// Rows that are looked at first, at least, where a condition may leave some out.
const LOOKED_AT_MIN: usize = 16;

/// The result of a statement, and the rows of the table that it was made of.
#[derive(Debug)]
pub struct Ranged {
    /// What it gives.
    pub rows: RecordBatch,
    /// By their numbers, which the statement may have asked for.
    pub found: Vec<RangeRow>,
}

/// The result of `template` for the rows in `ranges`; None: there are too many for this path, or the planner must
/// decide.
///
/// # Errors
/// Those of the device and of pages.
pub async fn run(
    (database, settings, reader): (&Arc<QueryEngine>, &Settings, &dyn Reader),
    sight: &Sight<'_>,
    template: &RangeTemplate,
    (mut ranges, parameters, window): (Vec<KeyRange>, &Parameters, Window),
) -> Result<Option<Ranged>> {
    let table = sight.live.state.find_table(template.table())?;
    table.check_populated()?;
    let Some(kept) = template.kept(database, settings, types(parameters)).await else {
        return Ok(None);
    };
    let rows_max = usize::try_from(settings.look_up_rows).unwrap_or(usize::MAX);
    let mut read = template.read(database, sight, table, settings.stack);
    // Of several ranges, all rows.
    let wanted = window.wanted().filter(|_| template.stops && ranges.len() == 1);
    if wanted.is_none() && read.has_more_than(&ranges, rows_max) {
        return Ok(None);
    }
    let mut step = match wanted {
        Some(wanted) if template.is_exact => wanted,
        Some(wanted) => wanted.saturating_mul(2).max(LOOKED_AT_MIN),
        None => rows_max,
    };
    let mut found: Vec<RangeRow> = Vec::new();
    loop {
        let limit = step.clamp(1, rows_max.saturating_add(1));
        let Some(Walked { entries, is_cut }) = read.walk(&ranges, limit).await? else {
            return Ok(None);
        };
        let last = entries.last().map(|(key, _)| key.clone());
        found.extend(entries.into_iter().map(|(_, row)| row));
        if found.len() > rows_max {
            return Ok(None);
        }
        if !is_cut || wanted.is_some() {
            let (columns, _) = kept.input();
            let width = template.width();
            let of_tables: Vec<usize> =
                columns.iter().copied().filter(|place| *place < width).collect();
            let (rows, count) = if template.joined.is_empty() {
                let rows = read.fetch(&found, &of_tables).await?;
                (rows.columns().to_vec(), rows.num_rows())
            } else {
                let (stack, wanted) = (settings.stack, of_tables.as_slice());
                let asked = ReadRequest { sight, reader, stack, wanted, rows_max };
                let first = (template.first, found.as_slice());
                let rows = joined::beside(&read, first, &template.joined, parameters, &asked);
                let Some(rows) = rows.await? else { return Ok(None) };
                rows
            };
            let rows = input(&kept, (rows, count, width), parameters)?;
            // A plan may not evaluate the row at which an expression fails, and words its errors otherwise.
            let Ok(rows) = kept.run(vec![rows]).await else { return Ok(None) };
            if !is_cut || wanted.is_some_and(|wanted| rows.num_rows() >= wanted) {
                let offset = window.offset.min(rows.num_rows());
                let left = rows.num_rows() - offset;
                let count = window.limit.unwrap_or(left).min(left);
                return Ok(Some(Ranged { rows: rows.slice(offset, count), found }));
            }
        }
        let Some(last) = last else { return Ok(None) };
        go_on_behind(&mut ranges, last, template.backward);
        // It begins with an entry now, which no filter of a run knows.
        read.is_search_key &= template.backward;
        step = step.saturating_mul(2);
    }
}

/// `count` rows with the columns that `kept` reads: those of the table that are `columns`, which has `width` columns in
/// all; their own numbers; and the values of parameters.
///
/// # Errors
/// A parameter that is no value of its type.
pub fn input(
    kept: &CachedPlan,
    (columns, count, width): (Vec<ArrayRef>, usize, usize),
    parameters: &Parameters,
) -> Result<RecordBatch> {
    let (wanted, schema) = kept.input();
    let mut columns = columns.into_iter();
    let mut all: Vec<ArrayRef> = Vec::with_capacity(wanted.len());
    for place in wanted {
        let column = match place.checked_sub(width) {
            None => columns.next(),
            Some(0) => {
                let numbers = UInt64Array::from_iter_values((0..).take(count));
                Some(Arc::new(numbers) as ArrayRef)
            }
            Some(behind) => {
                let value = value(parameters, behind - 1)?;
                Some(match count {
                    1 => value,
                    _ => take(&value, &UInt32Array::from(vec![0; count]), None)?,
                })
            }
        };
        all.push(column.ok_or_else(|| Error::unsupported("this column"))?);
    }
    let options = RecordBatchOptions::new().with_row_count(Some(count));
    Ok(RecordBatch::try_new_with_options(Arc::clone(schema), all, &options)?)
}

/// The parameter at `place` as an array of one; of a list, which no expression has, NULL.
///
/// # Errors
/// It is no value of its type.
pub fn value(parameters: &Parameters, place: usize) -> Result<ArrayRef> {
    let parameter = parameters.get(place)?;
    if parameter.items().is_some() {
        return Ok(arrow::array::new_null_array(&LIST, 1));
    }
    let array = parameter.array();
    array.map_err(|source| Error::Parameter { number: place + 1, source: Box::new(source) })
}

/// The types of the arrays that [`value`] makes.
pub fn types(parameters: &Parameters) -> Vec<DataType> {
    let types = parameters.values().iter().map(|value| match value.items() {
        Some(_) => LIST,
        None => value.array_type(),
    });
    types.collect()
}

/// Leaves what is behind `last` of the only range.
fn go_on_behind(ranges: &mut [KeyRange], last: Vec<u8>, backward: bool) {
    let Some(range) = ranges.first_mut() else { return };
    match backward {
        true => range.below = Some(last),
        // Nothing lies between a key and that with one more byte.
        false => range.from = [last.as_slice(), &[0]].concat(),
    }
}
