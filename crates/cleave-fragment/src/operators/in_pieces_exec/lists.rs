//! Cuts rows whose lists become rows: a batch in, rows and parts of lists out that become about a batch.
//!
//! A list becomes a row for each of its items, and each of these rows has a copy of the other columns. So a list that
//! is too long for a batch comes as several rows, each with a part of its lists:
//!
//! ```text
//!  [1, 2, 3, 4, 5] | [6] | x   ─▶   [1, 2] | [6] | x      [3, 4] | [] | x      [5] | [] | x
//! ```
//!
//! Lists of one row become rows side by side, and NULLs stand for what a shorter one lacks, as an empty part of it
//! does.
//!
//! Invariant: an empty list and NULL stay as they are. Lists in lists that become rows too are not cut.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, ListArray, RecordBatch, RecordBatchOptions};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::DataType;
use datafusion_common::Result;
use datafusion_physical_plan::unnest::UnnestExec;

/// Bytes of a row that count as much as a row by itself.
const ROW_BYTES: u64 = 1 << 10;

/// The columns of an [`UnnestExec`] whose lists become rows.
#[derive(Debug, Clone)]
pub(super) struct Lists {
    pub(super) columns: Vec<usize>,
    /// No list in a list becomes rows.
    pub(super) is_flat: bool,
}

impl Lists {
    pub(super) fn of(unnest: &UnnestExec) -> Self {
        let lists = unnest.list_column_indices();
        let mut columns: Vec<usize> = lists.iter().map(|list| list.index_in_input_schema).collect();
        columns.dedup();
        Self { columns, is_flat: lists.iter().all(|list| list.depth == 1) }
    }

    /// The first rows of `batch`, or the first part of its first row, which become about `batch_rows` rows; and what is
    /// left.
    pub(super) fn piece_of(
        &self,
        batch: &RecordBatch,
        batch_rows: usize,
    ) -> Result<(RecordBatch, Option<RecordBatch>)> {
        let room = batch_rows as u64;
        let (mut rows, mut taken) = (0, 0_u64);
        while rows < batch.num_rows() {
            let (items, weight) = (self.items(batch, rows), self.weight(batch, rows));
            let more = (items as u64).saturating_mul(weight);
            if rows == 0 && more > room && self.is_flat && self.can_be_cut(batch) {
                let most = usize::try_from(room / weight).unwrap_or(usize::MAX).max(1);
                if items > most {
                    return self.part_of(batch, most);
                }
            }
            taken = taken.saturating_add(more);
            if rows > 0 && taken > room {
                break;
            }
            rows += 1;
        }
        if rows == batch.num_rows() {
            return Ok((batch.clone(), None));
        }
        Ok((batch.slice(0, rows), Some(batch.slice(rows, batch.num_rows() - rows))))
    }

    /// The longest list of a row.
    fn items(&self, batch: &RecordBatch, row: usize) -> usize {
        let lengths =
            self.columns.iter().filter_map(|column| length(batch.columns().get(*column)?, row));
        lengths.max().unwrap_or(0)
    }

    /// How many rows a row counts for that its columns are copied to.
    fn weight(&self, batch: &RecordBatch, row: usize) -> u64 {
        let columns = batch.columns().iter().enumerate();
        let copied = columns.filter(|(place, _)| !self.columns.contains(place));
        1 + copied.map(|(_, column)| value_bytes(column, row)).sum::<u64>() / ROW_BYTES
    }

    fn can_be_cut(&self, batch: &RecordBatch) -> bool {
        let kinds = self.columns.iter().filter_map(|place| batch.columns().get(*place));
        kinds.into_iter().all(|column| matches!(column.data_type(), DataType::List(_)))
    }

    /// The first `most` items of the lists of the first row, and all others.
    fn part_of(
        &self,
        batch: &RecordBatch,
        most: usize,
    ) -> Result<(RecordBatch, Option<RecordBatch>)> {
        let first = batch.slice(0, 1);
        let with = |range: fn(usize, usize) -> std::ops::Range<usize>| -> Result<RecordBatch> {
            let mut columns = first.columns().to_vec();
            for place in &self.columns {
                if let Some(column) = columns.get_mut(*place) {
                    *column = items_of(column, |length| range(length, most))?;
                }
            }
            let options = RecordBatchOptions::new().with_row_count(Some(1));
            Ok(RecordBatch::try_new_with_options(first.schema(), columns, &options)?)
        };
        let part = with(|length, most| 0..length.min(most))?;
        let others = with(|length, most| length.min(most)..length)?;
        if batch.num_rows() == 1 {
            return Ok((part, Some(others)));
        }
        let behind = batch.slice(1, batch.num_rows() - 1);
        let rest = arrow::compute::concat_batches(&batch.schema(), [&others, &behind])?;
        Ok((part, Some(rest)))
    }
}

/// A list column of one row with some of its items.
fn items_of(
    column: &ArrayRef,
    range: impl FnOnce(usize) -> std::ops::Range<usize>,
) -> Result<ArrayRef> {
    let list = column.as_list::<i32>();
    let (DataType::List(field), true) = (list.data_type(), list.is_valid(0)) else {
        return Ok(Arc::clone(column));
    };
    let items = list.value(0);
    let range = range(items.len());
    let offsets = OffsetBuffer::from_lengths([range.len()]);
    let items = items.slice(range.start, range.len());
    Ok(Arc::new(ListArray::try_new(Arc::clone(field), offsets, items, None)?))
}

/// The items of a list; None of NULL and of what is no list.
fn length(column: &ArrayRef, row: usize) -> Option<usize> {
    if column.is_null(row) {
        return None;
    }
    Some(match column.data_type() {
        DataType::List(_) => usize::try_from(column.as_list::<i32>().value_length(row)).ok()?,
        DataType::LargeList(_) => {
            usize::try_from(column.as_list::<i64>().value_length(row)).ok()?
        }
        DataType::FixedSizeList(_, length) => usize::try_from(*length).ok()?,
        _ => return None,
    })
}

/// The bytes of the largest row of `batch`, as far as copies of it take them.
pub(super) fn largest_row(batch: &RecordBatch) -> u64 {
    let has_any = |column: &&ArrayRef| super::has_any_length(column.data_type());
    let columns: Vec<&ArrayRef> = batch.columns().iter().filter(has_any).collect();
    let bytes = |row| columns.iter().map(|column| value_bytes(column, row)).sum::<u64>();
    (0..batch.num_rows()).map(bytes).max().unwrap_or(0) + 8 * batch.num_columns() as u64
}

/// About the bytes of a value, as far as a copy of it takes them.
pub(crate) fn value_bytes(column: &ArrayRef, row: usize) -> u64 {
    let bytes = |length: Option<usize>| length.unwrap_or(0) as u64;
    match column.data_type() {
        DataType::Utf8 => bytes(usize::try_from(column.as_string::<i32>().value_length(row)).ok()),
        DataType::LargeUtf8 => {
            bytes(usize::try_from(column.as_string::<i64>().value_length(row)).ok())
        }
        DataType::Binary => {
            bytes(usize::try_from(column.as_binary::<i32>().value_length(row)).ok())
        }
        DataType::LargeBinary => {
            bytes(usize::try_from(column.as_binary::<i64>().value_length(row)).ok())
        }
        DataType::List(_) => {
            let list = column.as_list::<i32>();
            let items = usize::try_from(list.value_length(row)).unwrap_or(0);
            if items == 0 {
                return 0;
            }
            list.value(row).to_data().get_slice_memory_size().unwrap_or(8 * items) as u64
        }
        DataType::LargeList(_) | DataType::FixedSizeList(..) | DataType::Struct(_) => {
            let one = column.slice(row, 1);
            one.to_data().get_slice_memory_size().unwrap_or(0) as u64
        }
        // Of fixed width, or behind a view that is copied alone.
        _ => 0,
    }
}
