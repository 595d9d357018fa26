//! Whole sampled rows of a table: they show which conditions on several columns are correlated.

use std::collections::BTreeMap;
use std::sync::Arc;

use datafusion_common::arrow::array::{
    Array, ArrayRef, RecordBatch, RecordBatchOptions, UInt64Array,
};
use datafusion_common::arrow::compute::take;
use datafusion_common::arrow::datatypes::{Field, Schema};
use datafusion_common::{Result, internal_err};

/// Most rows of a sample.
pub const SAMPLE_ROWS_MAX: usize = 2000;
/// A table that has grown by more than this factor is another one.
const GROWN_MAX: u64 = 2;

/// Rows of a table, drawn with equal chances; long texts and byte strings are cut.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RowSample {
    row_count_then: u64,
    length: usize,
    columns: BTreeMap<u32, ArrayRef>,
}

impl RowSample {
    /// The sample with these columns, by id, of a table that had `row_count_then` rows.
    ///
    /// # Errors
    /// Columns of different lengths, or more rows than the table had.
    pub fn new(row_count_then: u64, columns: BTreeMap<u32, ArrayRef>) -> Result<Self> {
        let length = columns.values().next().map_or(0, |column| column.len());
        if columns.values().any(|column| column.len() != length) || length as u64 > row_count_then {
            return internal_err!("a sample of {length} rows of {row_count_then} is not whole");
        }
        Ok(Self { row_count_then, length, columns })
    }

    /// Of a larger sample as many rows as are kept, evenly spread over it.
    ///
    /// # Errors
    /// As [`RowSample::new`].
    pub fn of_larger(row_count_then: u64, columns: BTreeMap<u32, ArrayRef>) -> Result<Self> {
        let all = Self::new(row_count_then, columns)?;
        if all.length <= SAMPLE_ROWS_MAX {
            return Ok(all);
        }
        let places = (0..SAMPLE_ROWS_MAX).map(|n| (n * all.length / SAMPLE_ROWS_MAX) as u64);
        let places: UInt64Array = places.map(Some).collect();
        let mut columns = BTreeMap::new();
        for (id, column) in &all.columns {
            columns.insert(*id, take(column, &places, None)?);
        }
        Self::new(row_count_then, columns)
    }

    /// Rows of the table when it was drawn.
    pub fn row_count_then(&self) -> u64 {
        self.row_count_then
    }

    /// Rows.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether it has no rows.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Its values, by column id.
    pub fn columns(&self) -> &BTreeMap<u32, ArrayRef> {
        &self.columns
    }

    /// The rows with the columns that `keeps` says of; None: none is left.
    pub(super) fn retained(mut self, keeps: impl Fn(&u32, &ArrayRef) -> bool) -> Option<Self> {
        self.columns.retain(|id, column| keeps(id, column));
        (!self.columns.is_empty()).then_some(self)
    }

    /// The rows with the columns that `name` still has a name for, of a table that has `row_count` rows by now; None:
    /// no column is left, or most rows came since.
    pub fn named(
        &self,
        row_count: u64,
        name: impl Fn(u32) -> Option<String>,
    ) -> Option<SampledRows> {
        if row_count > self.row_count_then.saturating_mul(GROWN_MAX) {
            return None;
        }
        let known = self.columns.iter().filter_map(|(id, column)| Some((name(*id)?, column)));
        let (fields, columns): (Vec<Field>, Vec<ArrayRef>) = known
            .map(|(name, column)| {
                (Field::new(name, column.data_type().clone(), true), Arc::clone(column))
            })
            .unzip();
        let options = RecordBatchOptions::new().with_row_count(Some(self.length));
        let schema = Arc::new(Schema::new(fields));
        let rows = RecordBatch::try_new_with_options(schema, columns, &options).ok()?;
        let is_whole = self.length as u64 == row_count.max(self.row_count_then);
        (rows.num_columns() > 0 && self.length > 0).then_some(SampledRows { rows, is_whole })
    }
}

/// Rows of a table as a planner looks at them.
#[derive(Debug, Clone, PartialEq)]
pub struct SampledRows {
    /// The rows, columns by their names.
    pub rows: RecordBatch,
    /// Whether these are all rows that there are.
    pub is_whole: bool,
}

#[cfg(test)]
mod tests {
    //! Samples after changes of columns, and of whole tables.

    use datafusion_common::arrow::array::Int32Array;

    use super::*;

    fn numbers(count: i32) -> ArrayRef {
        Arc::new(Int32Array::from_iter_values(0..count))
    }

    #[test]
    fn a_larger_sample_is_thinned_evenly() {
        let of = |count| RowSample::of_larger(1_000_000, [(1, numbers(count))].into()).unwrap();
        assert_eq!(of(10).len(), 10);
        let thinned = of(9000);
        assert_eq!(thinned.len(), SAMPLE_ROWS_MAX);
        let rows = thinned.named(1_000_000, |_| Some("n".to_owned())).unwrap().rows;
        let found = rows.column(0).as_any().downcast_ref::<Int32Array>().unwrap();
        let below = found.values().iter().filter(|value| **value < 4500).count();
        assert_eq!(below, SAMPLE_ROWS_MAX / 2);
    }

    #[test]
    fn a_table_is_whole_while_it_has_no_other_rows_and_another_one_when_it_has_many() {
        let sample = RowSample::new(10, [(1, numbers(10)), (2, numbers(10))].into()).unwrap();
        let of = |row_count| sample.named(row_count, |id| (id == 1).then(|| "n".to_owned()));
        assert!(of(10).unwrap().is_whole && of(10).unwrap().rows.num_columns() == 1);
        assert!(!of(11).unwrap().is_whole);
        assert_eq!(of(21), None);
        assert_eq!(sample.named(10, |_| None), None);
        let uneven = [(1, numbers(10)), (2, numbers(9))].into();
        assert!(RowSample::new(10, uneven).is_err());
        assert!(RowSample::new(9, [(1, numbers(10))].into()).is_err());
    }
}
