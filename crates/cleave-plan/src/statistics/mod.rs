//! Statistics of a table: a sample of a column's values in, its distinct count, common values and histogram out.
//!
//! 1. [`ColumnStatistics::summarize`] divides the values of a sample: frequent ones keep their frequency
//!    ([`ColumnStatistics::common`]), the others become the bounds of parts with equally many rows
//!    ([`ColumnStatistics::histogram`]).
//! 2. [`ColumnStatistics::frequency`] and [`ColumnStatistics::share_below`] answer for `=` and `<`.
//! 3. [`ColumnStatistics::distinct_count_at`] scales to the present rows of the table.
//! 4. [`distinct_of_pages`] estimates distinct values where only some pages were read.
//! 5. [`KeySample`] tells how often join values occur together.
//! 6. [`RowSample`] keeps some of the rows whole, for conditions over several columns.
//! 7. [`StoredColumn`] tells what reading a column takes, and [`ColumnStatistics::asked_share`] how often a condition
//!    is evaluated.
//!
//! Invariant: fractions are of all rows, NULLs included; those of NULLs, of common values and of the rest sum to one.
//! Deliberately absent: counts over several columns; the sample of rows stands in for them.
//!
//! Source: PostgreSQL's manual, "Row Estimation Examples", and its `analyze.c` for what is common.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

use datafusion_common::Result;
use datafusion_common::ScalarValue;
use datafusion_common::arrow::array::{Array, ArrayRef};
use datafusion_common::arrow::datatypes::DataType;

use crate::cardinality::place;

mod distinct;
mod key_sample;
mod row_sample;
mod runs;
#[cfg(test)]
mod tests;

pub(crate) use key_sample::together;

pub use distinct::distinct_of_pages;
pub use key_sample::KeySample;
pub use row_sample::{RowSample, SAMPLE_ROWS_MAX, SampledRows};
use runs::Runs;
pub use runs::{PageZones, SomePages};

/// Most common values that are kept.
pub const COMMON_MAX: usize = 100;
/// Most parts of a histogram.
pub const HISTOGRAM_PARTS_MAX: usize = 100;
/// A column with more different values than this share of its rows gets more of them as rows are added.
const GROWING_SHARE: f64 = 0.1;

/// What is known of a table.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TableStatistics {
    /// Rows when it was last analysed.
    pub row_count: u64,
    /// Pages of its heap, then.
    pub page_count: u64,
    /// Bytes of these.
    pub page_bytes: u64,
    /// Pages of them that were read; 0: all.
    pub sampled_page_count: u64,
    /// Rows that had been inserted until then, and rows that had ended; 0: an earlier build has analysed it.
    pub change_count: u64,
    /// When that was, in microseconds since 1970; 0: an earlier build has analysed it.
    pub analyzed_us: i64,
    /// By column id.
    pub columns: BTreeMap<u32, ColumnStatistics>,
    /// Some of its rows.
    pub sample: Option<RowSample>,
}

impl TableStatistics {
    /// Those of columns that have the type that `type_of` says by their id. A column whose type was changed since has
    /// values that conditions on it cannot be evaluated on.
    #[must_use]
    pub fn of_types(self: Arc<Self>, type_of: impl Fn(u32) -> Option<DataType>) -> Arc<Self> {
        let is_kept = |id: u32, own: Option<&DataType>| match (own, type_of(id)) {
            (Some(own), Some(now)) => *own == now,
            (None, Some(_)) => true,
            (_, None) => false,
        };
        let keeps_column =
            |id: &u32, known: &ColumnStatistics| is_kept(*id, known.value_type().as_ref());
        let keeps_sampled = |id: &u32, column: &ArrayRef| is_kept(*id, Some(column.data_type()));
        let mut sampled = self.sample.iter().flat_map(RowSample::columns);
        if self.columns.iter().all(|(id, known)| keeps_column(id, known))
            && sampled.all(|(id, column)| keeps_sampled(id, column))
        {
            return self;
        }
        let mut kept = Self::clone(&self);
        kept.columns.retain(|id, known| keeps_column(id, known));
        kept.sample = kept.sample.and_then(|sample| sample.retained(keeps_sampled));
        Arc::new(kept)
    }
}

/// What is known of a column.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ColumnStatistics {
    /// Rows of the table when the column was analysed.
    pub row_count: u64,
    /// Rows of them that common values and histogram come from.
    pub sampled_count: u64,
    /// Share of rows that are NULL.
    pub null_fraction: f64,
    /// Different values.
    pub distinct_count: f64,
    /// Mean bytes of a value.
    pub average_width: f64,
    /// The least value.
    pub min: Option<ScalarValue>,
    /// The greatest value.
    pub max: Option<ScalarValue>,
    /// Values that come often, with their share of rows, the most common first.
    pub common: Vec<(ScalarValue, f64)>,
    /// Bounds of parts of the other values, all of equally many rows, ascending; empty: nothing is left, or its type
    /// has no order.
    pub histogram: Vec<ScalarValue>,
    /// Rows of some of its values; None: they were not counted.
    pub keys: Option<Arc<KeySample>>,
    /// How it lies on pages; None: no page was looked at.
    pub stored: Option<StoredColumn>,
}

/// How a column lies on the pages of its table, by the headers of some of them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StoredColumn {
    /// Bytes of its chunks for each row, long values not counted.
    pub row_bytes: f64,
    /// Rows of a page.
    pub page_rows: f64,
    /// Share of its rows on pages that have each different value once: a condition is asked of these values.
    pub dictionary_share: f64,
}

/// What was counted of a column over all rows, or is reckoned from those that were read.
#[derive(Debug, Clone, Copy)]
pub struct ColumnCounts {
    /// Rows of the table.
    pub row_count: u64,
    /// Rows of them in which it is NULL.
    pub null_count: u64,
    /// Bytes of its values.
    pub value_bytes: u64,
    /// Different values, an estimate.
    pub distinct_count: f64,
}

impl ColumnStatistics {
    /// The type of its values; None: it has none.
    fn value_type(&self) -> Option<DataType> {
        let common = self.common.iter().map(|(value, _)| value);
        let mut values = self.min.iter().chain(&self.max).chain(common).chain(&self.histogram);
        values.next().map(ScalarValue::data_type)
    }

    /// The share of rows for which a condition on the column is evaluated: of a page that stores each different value
    /// once, it is asked of these.
    #[must_use]
    pub fn asked_share(&self) -> f64 {
        let Some(stored) = self.stored.filter(|stored| stored.page_rows > 0.0) else { return 1.0 };
        let page_rows = stored.page_rows;
        // How many of so many different values, each with its share of rows, a page has at least once.
        let on_page = |count: f64, share: f64| count * (1.0 - (-page_rows * share).exp());
        let common: f64 = self.common.iter().map(|(_, share)| on_page(1.0, *share)).sum();
        let common_share: f64 = self.common.iter().map(|(_, share)| share).sum();
        let rare_count = self.distinct_count - self.common.len() as f64;
        let rare = if rare_count > 0.0 {
            let rare_share = (1.0 - self.null_fraction - common_share).max(0.0);
            on_page(rare_count, rare_share / rare_count)
        } else {
            0.0
        };
        let asked = ((common + rare) / page_rows).min(1.0);
        1.0 - stored.dictionary_share * (1.0 - asked)
    }

    /// The statistics of a column of which `counts` were counted and `sample` was drawn; `ends` are its least and
    /// greatest value, or nothing. `some`: only some pages were read.
    ///
    /// # Errors
    /// A type whose values cannot be compared.
    pub fn summarize(
        counts: ColumnCounts,
        ends: &ArrayRef,
        sample: &ArrayRef,
        some: Option<SomePages<'_>>,
    ) -> Result<Self> {
        let ColumnCounts { row_count, null_count, value_bytes, .. } = counts;
        let value_count = row_count.saturating_sub(null_count);
        let rows = row_count.max(1) as f64;
        let runs = Runs::of(sample, some)?;
        let is_whole = sample.len() as u64 == row_count;
        let mut statistics = Self {
            row_count,
            sampled_count: sample.len() as u64,
            null_fraction: null_count as f64 / rows,
            average_width: value_bytes as f64 / value_count.max(1) as f64,
            min: end(ends, 0)?,
            max: end(ends, 1)?,
            distinct_count: if is_whole {
                runs.len() as f64
            } else {
                counts.distinct_count.max(runs.len() as f64).min(value_count as f64)
            },
            ..Self::default()
        };
        statistics.divide(&runs, is_whole)?;
        Ok(statistics)
    }

    /// Finds what is common, and the bounds of what is not.
    fn divide(&mut self, runs: &Runs, is_whole: bool) -> Result<()> {
        let value_count = runs.row_count();
        if value_count < 1.0 {
            return Ok(());
        }
        let value_share = (1.0 - self.null_fraction) / value_count;
        let mut by_count: Vec<usize> = (0..runs.len()).filter(|run| !runs.is_long(*run)).collect();
        by_count.sort_by(|one, other| {
            runs.rows(*other).total_cmp(&runs.rows(*one)).then(one.cmp(other))
        });
        // Where a few values are all that there is, each of them counts; otherwise one is common that is drawn more
        // than once, and a quarter more often than the mean of all. Where the rows are from a few pages, it must be on
        // several: one that fills a page that happens to be read is no more common than its neighbours.
        let all_seen = is_whole || self.distinct_count < runs.len() as f64 * 1.1;
        let mean = value_count / self.distinct_count.max(1.0);
        let is_common = |run: &usize| runs.rows(*run) > 1.25 * mean;
        let keep_all = all_seen && by_count.len() == runs.len() && by_count.len() <= COMMON_MAX;
        let mut common: Vec<usize> = if keep_all {
            by_count
        } else {
            let often = by_count.into_iter().take_while(is_common);
            often.filter(|run| runs.is_certain(*run)).take(COMMON_MAX).collect()
        };
        for run in &common {
            self.common.push((runs.value(*run)?, runs.rows(*run) * value_share));
        }
        common.sort_unstable();
        let rest = runs.without(&common);
        if rest.len() < 2 {
            return Ok(());
        }
        let rest_count: f64 = rest.iter().map(|(_, rows)| rows).sum();
        let part_count = (HISTOGRAM_PARTS_MAX as f64).min((rest_count - 1.0).floor()).max(1.0);
        let wanted = |part: usize| part as f64 * (rest_count - 1.0) / part_count;
        let (mut part, mut passed) = (0, 0.0);
        for (value, rows) in rest {
            passed += rows;
            while part as f64 <= part_count && wanted(part) < passed {
                self.histogram.push(runs.value(value)?);
                part += 1;
            }
        }
        Ok(())
    }

    /// Share of rows whose value is `value`, of the column's type, when the table has `row_count` rows.
    pub fn frequency(&self, value: &ScalarValue, row_count: f64) -> f64 {
        if value.is_null() {
            return 0.0;
        }
        let common = self.common.iter().find(|(common, _)| common == value);
        if let Some((_, frequency)) = common {
            return *frequency;
        }
        let beyond = |end: &Option<ScalarValue>, wrong| {
            end.as_ref().is_some_and(|end| value.partial_cmp(end) == Some(wrong))
        };
        let is_new = beyond(&self.min, Ordering::Less) || beyond(&self.max, Ordering::Greater);
        let rest = self.rest_fraction();
        let rest_distinct = self.distinct_count_at(row_count) - self.common.len() as f64;
        let of_one = if rest_distinct < 1.0 || rest <= 0.0 { 0.0 } else { rest / rest_distinct };
        // An unknown value may have been added since, once.
        let once = 1.0 / row_count.max(1.0);
        if is_new { once } else { of_one.max(once) }
    }

    /// Share of rows whose value lies below `value`, or is it where `or_equal`; None: nothing tells.
    pub fn share_below(&self, value: &ScalarValue, or_equal: bool) -> Option<f64> {
        let common: f64 = self
            .common
            .iter()
            .filter(|(common, _)| match common.partial_cmp(value) {
                Some(Ordering::Less) => true,
                Some(Ordering::Equal) => or_equal,
                _ => false,
            })
            .map(|(_, frequency)| frequency)
            .sum();
        let rest = self.rest_fraction();
        if self.histogram.len() < 2 {
            // The rest is one value at most, or of a type without order.
            let knows_most = rest < 0.01 && !self.common.is_empty();
            return knows_most.then_some(common);
        }
        Some(common + rest * self.histogram_below(value)?)
    }

    /// Of the values in the histogram, the share below `value`.
    fn histogram_below(&self, value: &ScalarValue) -> Option<f64> {
        let mut below = 0_usize;
        for bound in &self.histogram {
            match bound.partial_cmp(value)? {
                Ordering::Less => below += 1,
                _ => break,
            }
        }
        let parts = (self.histogram.len() - 1) as f64;
        let (Some(low), Some(high)) =
            (below.checked_sub(1).and_then(|at| self.histogram.get(at)), self.histogram.get(below))
        else {
            return Some(if below == 0 { 0.0 } else { 1.0 });
        };
        let within = match (place(low), place(high), place(value)) {
            (Some(low), Some(high), Some(value)) if high > low => (value - low) / (high - low),
            // Texts have no distances: the middle.
            _ => 0.5,
        };
        Some(((below as f64 - 1.0 + within.clamp(0.0, 1.0)) / parts).clamp(0.0, 1.0))
    }

    /// Share of rows that have a value which is not common.
    pub fn rest_fraction(&self) -> f64 {
        let common: f64 = self.common.iter().map(|(_, frequency)| frequency).sum();
        (1.0 - self.null_fraction - common).clamp(0.0, 1.0)
    }

    /// Different values when the table has `row_count` rows: a column that has a new value every few rows goes on so.
    pub fn distinct_count_at(&self, row_count: f64) -> f64 {
        let then = self.row_count.max(1) as f64;
        if self.distinct_count > GROWING_SHARE * then {
            self.distinct_count * row_count / then
        } else {
            self.distinct_count
        }
    }

    /// Takes the ends that are known of all pages, where the others of the column may be those of some pages.
    pub fn reach(&mut self, min: Option<ScalarValue>, max: Option<ScalarValue>) {
        if let (Some(min), Some(first)) = (&min, self.histogram.first_mut())
            && min.partial_cmp(first) == Some(Ordering::Less)
        {
            first.clone_from(min);
        }
        if let (Some(max), Some(last)) = (&max, self.histogram.last_mut())
            && max.partial_cmp(last) == Some(Ordering::Greater)
        {
            last.clone_from(max);
        }
        self.min = min.or(self.min.take());
        self.max = max.or(self.max.take());
    }

    /// Share of the table's `row_count` rows that were there when it was analysed.
    pub fn known_share(&self, row_count: f64) -> f64 {
        (self.row_count as f64 / row_count.max(1.0)).clamp(0.0, 1.0)
    }
}

/// A value out of the ends.
fn end(ends: &ArrayRef, place: usize) -> Result<Option<ScalarValue>> {
    if place >= ends.len() {
        return Ok(None);
    }
    ScalarValue::try_from_array(ends, place).map(|value| (!value.is_null()).then_some(value))
}
