//! Sampled rows, drawn with equal probability, whatever their number and however they are spread over partitions.
//!
//! Each row gets a random priority. Rows below a threshold are kept, and the threshold falls when there are too many.
//! The number of rows to skip until the next one below the threshold is drawn at once, so that most rows cost nothing.
//! Two samples merge under the lower of their thresholds.
//!
//! Invariant: the sample has exactly the rows whose priority lies below the threshold.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BinaryArray, StringArray, UInt64Array, new_empty_array,
};
use arrow::compute::{concat, take};
use arrow::datatypes::DataType;
use cleave_media::SplitMix64;
use datafusion_common::{Result, exec_err};

/// Rows of a sample after it is reduced; at most twice as many before.
const ROW_COUNT: usize = 10_000;
/// Bytes above which it is reduced too.
const SAMPLE_BYTES_MAX: usize = 2 << 20;
/// Bytes to which texts and byte strings are truncated.
pub(super) const VALUE_BYTES_MAX: usize = 256;

/// See the [module](self).
#[derive(Debug)]
pub(super) struct RowSample {
    types: Vec<DataType>,
    /// By column: consecutive arrays.
    values: Vec<Vec<ArrayRef>>,
    /// Priorities of the rows, in the order of the values.
    priorities: Vec<u64>,
    threshold: u64,
    /// Rows to skip before the next one below the threshold; None if not drawn yet.
    skip: Option<u64>,
    random: SplitMix64,
    bytes: usize,
}

impl RowSample {
    /// A sample of no rows.
    pub(super) fn new(types: Vec<DataType>) -> Self {
        Self {
            values: vec![Vec::new(); types.len()],
            types,
            priorities: Vec::new(),
            threshold: u64::MAX,
            skip: None,
            random: SplitMix64::new(0),
            bytes: 0,
        }
    }

    /// The sample with these rows, one array for each column.
    pub(super) fn of_parts(
        threshold: u64,
        priorities: &[u64],
        columns: Vec<ArrayRef>,
    ) -> Result<Self> {
        let length = priorities.len();
        if let Some(column) = columns.iter().find(|column| column.len() != length) {
            return exec_err!("a sketch has {} values of {length} rows", column.len());
        }
        let types = columns.iter().map(|column| column.data_type().clone()).collect();
        let bytes = columns.iter().map(|column| column.get_array_memory_size()).sum();
        let values = columns.into_iter().map(|column| vec![column]).collect();
        let priorities = priorities.to_vec();
        Ok(Self { values, priorities, threshold, bytes, ..Self::new(types) })
    }

    /// Samples from `row_count` more rows.
    pub(super) fn add(&mut self, columns: &[ArrayRef], row_count: usize) -> Result<()> {
        if self.priorities.is_empty() && self.threshold == u64::MAX {
            // Partitions of one scan see different rows, and must not draw the same positions.
            self.random = SplitMix64::new(seed(columns, row_count));
        }
        let mut drawn = Vec::new();
        let mut row = 0_u64;
        loop {
            let skip = match self.skip.take() {
                Some(skip) => skip,
                None => self.draw_skip(),
            };
            row = row.saturating_add(skip);
            if row >= row_count as u64 {
                self.skip = Some(row - row_count as u64);
                break;
            }
            drawn.push(row);
            self.priorities.push(self.random.below(self.threshold));
            row += 1;
        }
        if drawn.is_empty() {
            return Ok(());
        }
        let drawn = UInt64Array::from(drawn);
        for (kept, column) in self.values.iter_mut().zip(columns) {
            let values = cut_long_values(&take(column, &drawn, None)?);
            self.bytes += values.get_array_memory_size();
            kept.push(values);
        }
        if self.priorities.len() > 2 * ROW_COUNT || self.bytes > 2 * SAMPLE_BYTES_MAX {
            self.settle()?;
        }
        Ok(())
    }

    /// Adds the rows of another sample.
    pub(super) fn merge(&mut self, other: Self) -> Result<()> {
        if self.types != other.types {
            return exec_err!("sketches of columns of different types");
        }
        for (own, other) in self.values.iter_mut().zip(other.values) {
            own.extend(other);
        }
        self.priorities.extend(other.priorities);
        self.bytes += other.bytes;
        self.lower_to(self.threshold.min(other.threshold))?;
        self.settle()
    }

    /// Reduces the sample to its limit.
    pub(super) fn settle(&mut self) -> Result<()> {
        self.lower_to(self.threshold)?;
        while self.priorities.len() > ROW_COUNT
            || (self.bytes > SAMPLE_BYTES_MAX && self.priorities.len() > 1)
        {
            let wanted = match self.priorities.len() {
                count if count > ROW_COUNT => ROW_COUNT,
                count => count / 2,
            };
            let mut ordered = self.priorities.clone();
            let (_, threshold, _) = ordered.select_nth_unstable(wanted);
            let threshold = *threshold;
            let before = self.priorities.len();
            self.lower_to(threshold)?;
            if self.priorities.len() == before {
                // Equal priorities: practically impossible by chance, but a peer may send them.
                break;
            }
        }
        Ok(())
    }

    /// Keeps the rows with a priority below `threshold`, each column as one array.
    fn lower_to(&mut self, threshold: u64) -> Result<()> {
        if threshold < self.threshold {
            self.threshold = threshold;
            // Skipped rows have higher priorities; the next ones are drawn anew, which changes no probabilities.
            self.skip = None;
        }
        let all_are_below = self.priorities.iter().all(|priority| *priority < threshold);
        if all_are_below && self.values.iter().all(|arrays| arrays.len() <= 1) {
            return Ok(());
        }
        let places = (0_u64..).zip(&self.priorities);
        let kept: UInt64Array = places
            .filter(|(_, priority)| **priority < threshold)
            .map(|(place, _)| Some(place))
            .collect();
        self.bytes = 0;
        for (arrays, data_type) in self.values.iter_mut().zip(&self.types) {
            let parts: Vec<&dyn Array> =
                arrays.iter().map(|array| &**array as &dyn Array).collect();
            let all = if parts.is_empty() { new_empty_array(data_type) } else { concat(&parts)? };
            let values = take(&all, &kept, None)?;
            self.bytes += values.get_array_memory_size();
            *arrays = vec![values];
        }
        self.priorities.retain(|priority| *priority < threshold);
        Ok(())
    }

    /// The values of each column.
    pub(super) fn columns(&self) -> Result<Vec<ArrayRef>> {
        let columns = self.values.iter().zip(&self.types).map(|(arrays, data_type)| {
            let parts: Vec<&dyn Array> =
                arrays.iter().map(|array| &**array as &dyn Array).collect();
            match parts.as_slice() {
                [] => Ok(new_empty_array(data_type)),
                parts => Ok(concat(parts)?),
            }
        });
        columns.collect()
    }

    pub(super) fn threshold(&self) -> u64 {
        self.threshold
    }

    pub(super) fn priorities(&self) -> &[u64] {
        &self.priorities
    }

    /// Bytes in memory.
    pub(super) fn bytes(&self) -> usize {
        self.bytes + self.priorities.capacity() * size_of::<u64>()
    }

    /// Draws the rows to skip: geometric in the probability that a row's priority lies below the threshold.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "not negative, and saturating"
    )]
    fn draw_skip(&mut self) -> u64 {
        if self.threshold == u64::MAX {
            return 0;
        }
        let chance = self.threshold as f64 / u64::MAX as f64;
        // From the upper 53 bits, and never 0.
        let uniform = ((self.random.next_u64() >> 11) as f64 + 0.5) / (1_u64 << 53) as f64;
        (uniform.ln() / (-chance).ln_1p()).floor() as u64
    }
}

/// A number that usually differs between partitions of one scan, by the first rows of each.
pub(super) fn seed(columns: &[ArrayRef], row_count: usize) -> u64 {
    let first = columns.iter().filter_map(first_value);
    first.fold(row_count as u64, |seed, value| seed.rotate_left(7) ^ value)
}

/// A number that usually differs between first values.
fn first_value(column: &ArrayRef) -> Option<u64> {
    let first = column.slice(0, column.len().min(1));
    let data = first.to_data();
    let bytes = data.buffers().last()?.as_slice();
    Some(u64::from(crc32c::crc32c(bytes.get(..64).unwrap_or(bytes))))
}

/// `values`, truncated to [`VALUE_BYTES_MAX`] bytes if they are texts or byte strings.
pub(super) fn cut_long_values(values: &ArrayRef) -> ArrayRef {
    match values.data_type() {
        DataType::Utf8 => {
            let texts = values.as_string::<i32>();
            if !texts.iter().flatten().any(|text| text.len() > VALUE_BYTES_MAX) {
                return Arc::clone(values);
            }
            let cut = |text: &str| {
                text.get(..text.floor_char_boundary(VALUE_BYTES_MAX)).unwrap_or(text).to_owned()
            };
            Arc::new(texts.iter().map(|text| text.map(cut)).collect::<StringArray>())
        }
        DataType::Binary => {
            let all = values.as_binary::<i32>();
            if !all.iter().flatten().any(|bytes| bytes.len() > VALUE_BYTES_MAX) {
                return Arc::clone(values);
            }
            let cut = |bytes: &[u8]| bytes.get(..VALUE_BYTES_MAX).unwrap_or(bytes).to_vec();
            Arc::new(all.iter().map(|bytes| bytes.map(cut)).collect::<BinaryArray>())
        }
        _ => Arc::clone(values),
    }
}
