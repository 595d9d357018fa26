//! `table_sketch(column, …)`: gathers a planner's statistics of a table's columns in one pass over its rows.
//!
//! ```text
//!  rows ─▶ counts of rows, NULLs and bytes │ ends │ registers of distinct values │ some of the rows
//!          └──────────────── a state, small whatever the table's size ────────────────┘
//!  states of any number of partitions, on any side of a cut ─▶ merged ─▶ TableSketch
//! ```
//!
//! It is an ordinary aggregate: its partial half runs beside the rows, and states cross the link. ANALYZE is a query
//! with this aggregate. States may come from a peer, so their content is checked before it is used.
//!
//! `page_sketch(column, …, reference)` is the same for some pages of a table: references to rows
//! ([`row_places`](crate::row_places)) say which rows share a page, and each counted value has the number of its pages,
//! each sampled row a number of its page.
//!
//! Invariants: merged states equal the state of all rows together, except that other rows may be in the sample. The
//! same rows in the same batches give the same state, on any machine.

use std::sync::{Arc, OnceLock};

use arrow::array::{Array, ArrayRef, AsArray, ListArray, StructArray, UInt64Array};
use arrow::buffer::OffsetBuffer;
use arrow::compute::concat;
use arrow::datatypes::{DataType, Field, FieldRef, Fields, UInt64Type};
use cleave_media::SplitMix64;
use datafusion_common::{Result, ScalarValue, exec_err, plan_err};
use datafusion_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion_expr::utils::{AggregateOrderSensitivity, format_state_name};
use datafusion_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, ReversedUDAF, Signature, Volatility,
};
use datafusion_functions_aggregate_common::min_max::{max_batch, min_batch};
use prost::Message;

use crate::row_places::page_of;

mod distinct;
mod key_counts;
mod sample;
#[cfg(test)]
mod tests;

use distinct::Registers;
use key_counts::KeyCounts;
use sample::{RowSample, cut_long_values};

/// Approximate bytes of the counts of a column's values.
const KEY_BYTES: usize = 2 * key_counts::KEY_COUNT * 48;

/// Bytes to which texts and byte strings are truncated in the sample and in the ends.
pub const VALUE_BYTES_MAX: usize = sample::VALUE_BYTES_MAX;

/// The statistics of a table, or of some of its columns.
#[derive(Debug, Clone)]
pub struct TableSketch {
    /// Rows seen.
    pub row_count: u64,
    /// One for each column, in the order of the arguments.
    pub columns: Vec<ColumnSketch>,
    /// For each sampled row, a number of its page; None unless it is a [`page_sketch`].
    pub sample_pages: Option<Vec<u64>>,
}

/// The statistics of one column.
#[derive(Debug, Clone)]
pub struct ColumnSketch {
    /// Rows in which it is NULL.
    pub null_count: u64,
    /// Bytes of all its values.
    pub value_bytes: u64,
    /// Distinct values, an estimate; within about 5 % in 99 of 100 cases.
    pub distinct_count: f64,
    /// The least and the greatest value; empty if there is none or its type has no order.
    pub ends: ArrayRef,
    /// Hashes of some of its values, ascending, with the number of rows of each: of all values whose hash lies below
    /// `key_threshold`.
    pub key_counts: Vec<(u64, u64)>,
    /// For each of these values, the pages that have it; empty unless it is a [`page_sketch`].
    pub key_pages: Vec<u64>,
    /// Above all hashes in `key_counts`.
    pub key_threshold: u64,
    /// The column's values, NULLs too, of sampled rows. The rows are the same for all columns.
    pub sample: ArrayRef,
}

impl TableSketch {
    /// The sketch in `value`, the one row of a query of [`table_sketch`].
    ///
    /// # Errors
    /// If it is malformed.
    pub fn of_result(value: &StructArray) -> Result<Self> {
        if value.len() != 1 {
            return exec_err!("a sketch is one row, not {}", value.len());
        }
        let state = SketchInner::of_row(value.columns(), 0)?;
        let mut samples = state.sample.columns()?;
        let sample_pages = match samples.pop() {
            Some(pages) if state.by_page => Some(numbers_of(&pages)?.to_vec()),
            last => {
                samples.extend(last);
                None
            }
        };
        let columns = state.columns.into_iter().zip(samples).map(|(column, sample)| ColumnSketch {
            null_count: column.null_count,
            value_bytes: column.value_bytes,
            distinct_count: column.registers.estimate(),
            ends: column.ends,
            key_threshold: column.keys.threshold(),
            key_counts: column.keys.counts(),
            key_pages: if state.by_page { column.keys.pages() } else { Vec::new() },
            sample,
        });
        Ok(Self { row_count: state.row_count, columns: columns.collect(), sample_pages })
    }
}

/// The aggregate.
pub fn table_sketch() -> Arc<AggregateUDF> {
    static FUNCTION: OnceLock<Arc<AggregateUDF>> = OnceLock::new();
    Arc::clone(FUNCTION.get_or_init(|| SketchFunction::aggregate(Of::Rows)))
}

/// The aggregate for some pages of a table.
pub fn page_sketch() -> Arc<AggregateUDF> {
    static FUNCTION: OnceLock<Arc<AggregateUDF>> = OnceLock::new();
    Arc::clone(FUNCTION.get_or_init(|| SketchFunction::aggregate(Of::Pages)))
}

/// What a sketch is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Of {
    /// All rows.
    Rows,
    /// Rows of pages. The last argument is a reference to the row.
    Pages,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct SketchFunction {
    signature: Signature,
    of: Of,
}

impl SketchFunction {
    fn aggregate(of: Of) -> Arc<AggregateUDF> {
        let signature = Signature::variadic_any(Volatility::Immutable);
        Arc::new(AggregateUDF::from(Self { signature, of }))
    }

    fn by_page(&self) -> bool {
        self.of != Of::Rows
    }

    /// The types of the columns among those of the arguments.
    fn column_types<'a>(
        &self,
        types: impl IntoIterator<Item = &'a DataType>,
    ) -> Result<Vec<DataType>> {
        let mut types: Vec<DataType> = types.into_iter().cloned().collect();
        if self.by_page() && types.pop() != Some(DataType::UInt64) {
            return plan_err!("the last argument of {} is a reference to a row", self.name());
        }
        Ok(types)
    }
}

/// The parts of a state: counts and registers in a message, the priorities of the sampled rows, and for each column its
/// ends and its values in the sampled rows; at last, `by_page`, the pages of these.
fn state_fields<'a>(types: impl IntoIterator<Item = &'a DataType>, by_page: bool) -> Vec<Field> {
    let list = |name: String, item: DataType| {
        Field::new_list(name, Field::new_list_field(item, true), true)
    };
    let mut fields = vec![
        Field::new("summary", DataType::Binary, true),
        list("priorities".to_owned(), DataType::UInt64),
    ];
    for (place, data_type) in types.into_iter().enumerate() {
        fields.push(list(format!("ends {place}"), data_type.clone()));
        fields.push(list(format!("sample {place}"), data_type.clone()));
    }
    fields.extend(by_page.then(|| list("pages".to_owned(), DataType::UInt64)));
    fields
}

impl AggregateUDFImpl for SketchFunction {
    fn name(&self) -> &'static str {
        match self.of {
            Of::Rows => "table_sketch",
            Of::Pages => "page_sketch",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        let fields = state_fields(&self.column_types(arg_types)?, self.by_page());
        Ok(DataType::Struct(Fields::from(fields)))
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        let types = self.column_types(args.input_fields.iter().map(|field| field.data_type()))?;
        let named = |field: Field| {
            let name = format_state_name(args.name, field.name());
            Arc::new(field.with_name(name))
        };
        Ok(state_fields(&types, self.by_page()).into_iter().map(named).collect())
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        let types = self.column_types(args.expr_fields.iter().map(|field| field.data_type()))?;
        Ok(Box::new(SketchInner::new(types, self.by_page())))
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        ReversedUDAF::Identical
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        AggregateOrderSensitivity::Insensitive
    }
}

/// The state over the rows so far.
#[derive(Debug)]
struct SketchInner {
    row_count: u64,
    columns: Vec<ColumnState>,
    sample: RowSample,
    /// References to the rows come behind their values. The sample has a number of each row's page behind its values.
    by_page: bool,
    /// What page numbers are mixed with; None before the first row. Parts of a state number their pages alike.
    salt: Option<u64>,
}

#[derive(Debug)]
struct ColumnState {
    null_count: u64,
    value_bytes: u64,
    registers: Registers,
    keys: KeyCounts,
    ends: ArrayRef,
}

/// The counts and registers of a state, as protobuf.
#[derive(Clone, PartialEq, Message)]
struct Summary {
    #[prost(uint64, tag = "1")]
    row_count: u64,
    /// Rows with this priority or a higher one were not sampled.
    #[prost(fixed64, tag = "2")]
    threshold: u64,
    #[prost(message, repeated, tag = "3")]
    columns: Vec<ColumnSummary>,
}

#[derive(Clone, PartialEq, Message)]
struct ColumnSummary {
    #[prost(uint64, tag = "1")]
    null_count: u64,
    #[prost(uint64, tag = "2")]
    value_bytes: u64,
    #[prost(bytes = "vec", tag = "3")]
    registers: Vec<u8>,
    #[prost(fixed64, tag = "4")]
    key_threshold: u64,
    #[prost(fixed64, repeated, tag = "5")]
    key_hashes: Vec<u64>,
    #[prost(uint64, repeated, tag = "6")]
    key_counts: Vec<u64>,
    /// Empty if pages were not told apart.
    #[prost(uint64, repeated, tag = "7")]
    key_pages: Vec<u64>,
}

impl SketchInner {
    fn new(types: Vec<DataType>, by_page: bool) -> Self {
        let columns = types.iter().map(|data_type| ColumnState {
            null_count: 0,
            value_bytes: 0,
            registers: Registers::new(),
            keys: KeyCounts::new(),
            ends: arrow::array::new_empty_array(data_type),
        });
        let columns = columns.collect();
        let sampled = types.into_iter().chain(by_page.then_some(DataType::UInt64)).collect();
        Self { row_count: 0, columns, sample: RowSample::new(sampled), by_page, salt: None }
    }

    /// Adds the state of other rows.
    fn merge(&mut self, other: Self) -> Result<()> {
        if self.columns.len() != other.columns.len() {
            return exec_err!(
                "sketches of {} and {} columns",
                self.columns.len(),
                other.columns.len()
            );
        }
        self.row_count = self.row_count.saturating_add(other.row_count);
        for (own, other) in self.columns.iter_mut().zip(other.columns) {
            own.null_count = own.null_count.saturating_add(other.null_count);
            own.value_bytes = own.value_bytes.saturating_add(other.value_bytes);
            own.registers.merge(&other.registers);
            own.keys.merge(&other.keys);
            own.widen(&other.ends)?;
        }
        self.sample.merge(other.sample)
    }

    /// The parts, in the order of [`state_fields`].
    fn parts(&mut self) -> Result<Vec<ScalarValue>> {
        self.sample.settle()?;
        self.columns.iter_mut().for_each(|column| column.keys.settle());
        let summary = Summary {
            row_count: self.row_count,
            threshold: self.sample.threshold(),
            columns: self
                .columns
                .iter()
                .map(|column| {
                    let (key_hashes, key_counts) = column.keys.counts().into_iter().unzip();
                    ColumnSummary {
                        null_count: column.null_count,
                        value_bytes: column.value_bytes,
                        registers: column.registers.bytes().to_vec(),
                        key_threshold: column.keys.threshold(),
                        key_hashes,
                        key_counts,
                        key_pages: if self.by_page { column.keys.pages() } else { Vec::new() },
                    }
                })
                .collect(),
        };
        let priorities: ArrayRef = Arc::new(UInt64Array::from(self.sample.priorities().to_vec()));
        let mut parts =
            vec![ScalarValue::Binary(Some(summary.encode_to_vec())), list_of(priorities)?];
        let mut samples = self.sample.columns()?.into_iter();
        for (column, sample) in self.columns.iter().zip(samples.by_ref()) {
            parts.push(list_of(Arc::clone(&column.ends))?);
            parts.push(list_of(sample)?);
        }
        for pages in samples {
            parts.push(list_of(pages)?);
        }
        Ok(parts)
    }

    /// The state whose parts are the values of `arrays` in `row`.
    fn of_row(arrays: &[ArrayRef], row: usize) -> Result<Self> {
        let (Some(summary), Some(priorities)) = (arrays.first(), arrays.get(1)) else {
            return exec_err!("a sketch has no summary");
        };
        let Some(summary) = summary.as_binary_opt::<i32>().filter(|array| array.is_valid(row))
        else {
            return exec_err!("a sketch has no summary");
        };
        let Ok(summary) = Summary::decode(summary.value(row)) else {
            return exec_err!("a sketch's summary cannot be read");
        };
        let priorities = list_at(priorities, row)?;
        let Some(priorities) = priorities.as_primitive_opt::<UInt64Type>() else {
            return exec_err!("a sketch's priorities are of type {}", priorities.data_type());
        };
        let (mut columns, mut samples) = (Vec::new(), Vec::new());
        let (parts, pages) = arrays.get(2..).unwrap_or_default().as_chunks::<2>();
        if parts.len() != summary.columns.len() {
            return exec_err!(
                "a sketch has parts of {} columns of {}",
                parts.len(),
                summary.columns.len()
            );
        }
        for (part, column) in parts.iter().zip(summary.columns) {
            let [ends, sample] = part;
            let Some(registers) = Registers::of_bytes(&column.registers) else {
                return exec_err!("a sketch has {} registers", column.registers.len());
            };
            let keys = KeyCounts::of_parts(
                column.key_threshold,
                &column.key_hashes,
                &column.key_counts,
                &column.key_pages,
            );
            let Some(keys) = keys else {
                return exec_err!(
                    "a sketch's {} counted values make no sense",
                    column.key_hashes.len()
                );
            };
            let ends = list_at(ends, row)?;
            if !matches!(ends.len(), 0 | 2) || ends.null_count() > 0 {
                return exec_err!("a sketch has {} ends", ends.len());
            }
            samples.push(list_at(sample, row)?);
            columns.push(ColumnState {
                null_count: column.null_count,
                value_bytes: column.value_bytes,
                registers,
                keys,
                ends,
            });
        }
        for pages in pages {
            let pages = list_at(pages, row)?;
            numbers_of(&pages)?;
            samples.push(pages);
        }
        let by_page = !pages.is_empty();
        let sample = RowSample::of_parts(summary.threshold, priorities.values(), samples)?;
        Ok(Self { row_count: summary.row_count, columns, sample, by_page, salt: None })
    }
}

impl ColumnState {
    /// Adds rows; `pages` has the page of each, or nothing.
    fn add(&mut self, values: &ArrayRef, pages: &[u64]) -> Result<()> {
        let null_count = values.logical_null_count();
        self.null_count += null_count as u64;
        self.value_bytes += value_bytes(values, values.len() - null_count);
        self.registers.add(values, pages, &mut self.keys)?;
        if null_count < values.len() {
            self.widen(values)?;
        }
        Ok(())
    }

    /// Extends the ends so that `values` lie between them.
    fn widen(&mut self, values: &ArrayRef) -> Result<()> {
        // A type without an order has no ends.
        let (Ok(min), Ok(max)) = (min_batch(values), max_batch(values)) else { return Ok(()) };
        if min.is_null() || max.is_null() {
            return Ok(());
        }
        let found = concat(&[&*min.to_array()?, &*max.to_array()?])?;
        let found = cut_long_values(&found);
        if self.ends.is_empty() {
            self.ends = found;
            return Ok(());
        }
        let both = concat(&[&*self.ends, &*found])?;
        let ends = [min_batch(&both)?.to_array()?, max_batch(&both)?.to_array()?];
        self.ends = concat(&[&*ends[0], &*ends[1]])?;
        Ok(())
    }
}

/// Bytes of the values of `array`, `value_count` of which are not NULL.
fn value_bytes(array: &ArrayRef, value_count: usize) -> u64 {
    if let Some(width) = array.data_type().primitive_width() {
        return (width * value_count) as u64;
    }
    let offsets = match array.data_type() {
        DataType::Utf8 => array.as_string::<i32>().offsets(),
        DataType::Binary => array.as_binary::<i32>().offsets(),
        DataType::Boolean => return value_count as u64,
        DataType::FixedSizeBinary(width) => {
            return u64::try_from(*width).unwrap_or_default() * value_count as u64;
        }
        _ => return array.get_array_memory_size() as u64,
    };
    let ends = offsets.last().zip(offsets.first());
    ends.and_then(|(last, first)| u64::try_from(last - first).ok()).unwrap_or_default()
}

/// The numbers in an array of references to rows, or of pages.
fn numbers_of(array: &ArrayRef) -> Result<&[u64]> {
    match array.as_primitive_opt::<UInt64Type>() {
        Some(numbers) => Ok(numbers.values()),
        None => exec_err!("references to rows are of type {}", array.data_type()),
    }
}

/// `of` each page, asked once for rows of the same page in a row.
fn of_runs(pages: impl Iterator<Item = u32>, of: &mut dyn FnMut(u32) -> u64) -> Vec<u64> {
    let mut last: Option<(u32, u64)> = None;
    let number = |page| match last {
        Some((known, number)) if known == page => number,
        _ => last.insert((page, of(page))).1,
    };
    pages.map(number).collect()
}

fn list_of(values: ArrayRef) -> Result<ScalarValue> {
    let field = Arc::new(Field::new_list_field(values.data_type().clone(), true));
    let offsets = OffsetBuffer::from_lengths([values.len()]);
    Ok(ScalarValue::List(Arc::new(ListArray::try_new(field, offsets, values, None)?)))
}

fn list_at(array: &ArrayRef, row: usize) -> Result<ArrayRef> {
    match array.as_list_opt::<i32>().filter(|list| row < list.len() && list.is_valid(row)) {
        Some(list) => Ok(list.value(row)),
        None => exec_err!("a sketch lacks a part of type {}", array.data_type()),
    }
}

impl Accumulator for SketchInner {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let row_count = values.first().map_or(0, |array| array.len());
        if row_count == 0 {
            return Ok(());
        }
        self.row_count += row_count as u64;
        let Some((references, columns)) = values.split_last().filter(|_| self.by_page) else {
            for (column, values) in self.columns.iter_mut().zip(values) {
                column.add(values, &[])?;
            }
            return self.sample.add(values, row_count);
        };
        let salt = *self.salt.get_or_insert_with(|| sample::seed(columns, row_count));
        let pages = numbers_of(references)?.iter().map(|reference| page_of(*reference));
        let mut random = |page: u32| SplitMix64::new(salt.wrapping_add(page.into())).next_u64();
        let pages: Vec<u64> = of_runs(pages, &mut random);
        for (column, values) in self.columns.iter_mut().zip(columns) {
            column.add(values, &pages)?;
        }
        let pages: ArrayRef = Arc::new(UInt64Array::from(pages));
        let sampled: Vec<ArrayRef> = columns.iter().cloned().chain([pages]).collect();
        self.sample.add(&sampled, row_count)
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let row_count = states.first().map_or(0, |array| array.len());
        for row in 0..row_count {
            self.merge(Self::of_row(states, row)?)?;
        }
        Ok(())
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        self.parts()
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let parts = self.parts()?;
        let types = self.columns.iter().map(|column| column.ends.data_type());
        let fields = Fields::from(state_fields(types, self.by_page));
        let arrays: Vec<ArrayRef> =
            parts.iter().map(ScalarValue::to_array).collect::<Result<_>>()?;
        Ok(ScalarValue::Struct(Arc::new(StructArray::try_new(fields, arrays, None)?)))
    }

    fn size(&self) -> usize {
        let ends = self.columns.iter().map(|column| column.ends.get_array_memory_size());
        size_of_val(self)
            + self.columns.len() * (size_of::<ColumnState>() + distinct::REGISTER_COUNT + KEY_BYTES)
            + ends.sum::<usize>()
            + self.sample.bytes()
    }
}
