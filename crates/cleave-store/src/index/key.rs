//! Index keys: key columns in, bytes out whose order as bytes is the order of the values.
//!
//! The bytes are Arrow's row format, ascending with NULLs first, over the key columns in key order. Equal values
//! have equal bytes: floats are made canonical before (-0.0 becomes 0.0, every NaN the same NaN), as SQL holds them
//! equal and the row format does not. Intervals compare by months, then days, then nanoseconds, so `1 month` and
//! `30 days` are different keys.
//!
//! Invariant: keys are compared and stored as bytes; only [`IndexKey::decode`] looks inside, for messages, and it
//! checks their shape first. Source: `design.md`, "Storage: one format".

#![deny(clippy::indexing_slicing)]

use std::sync::Arc;

use arrow::array::types::{Float32Type, Float64Type};
use arrow::array::{Array, ArrayRef, AsArray, BinaryArray, PrimitiveArray, RecordBatch};
use arrow::datatypes::{ArrowPrimitiveType, DataType, IntervalUnit};
use arrow::row::{RowConverter, Rows, SortField};

use crate::error::StoreError;
use crate::frame::FrameError;
use crate::schema::TableSchema;

/// Longest key in bytes. A key must fit its page many times, and its fence into the directory.
pub const INDEX_KEY_BYTES_MAX: usize = 2704;

/// Encodes and decodes the keys of one index.
#[derive(Debug)]
pub struct IndexKey {
    types: Vec<DataType>,
    converter: RowConverter,
}

impl IndexKey {
    /// Keys over columns of these types, in key order.
    ///
    /// # Errors
    /// [`StoreError::Mismatch`] for no columns or a type without an order.
    pub fn new(types: Vec<DataType>) -> Result<Self, StoreError> {
        let fields: Vec<_> = types.iter().cloned().map(SortField::new).collect();
        if types.is_empty() || !types.iter().all(has_keys) {
            return Err(mismatch(format!("no key over columns of types {types:?}")));
        }
        Ok(Self { types, converter: RowConverter::new(fields)? })
    }

    /// Keys over the primary key of `schema`; None if it has none.
    ///
    /// # Errors
    /// As [`IndexKey::new`].
    pub fn of_primary_key(schema: &TableSchema) -> Result<Option<Self>, StoreError> {
        let columns = schema.primary_key_indices();
        let types = columns.iter().filter_map(|index| schema.columns.get(*index));
        let types: Vec<_> = types.map(|column| column.column_type.arrow()).collect();
        if types.is_empty() { Ok(None) } else { Self::new(types).map(Some) }
    }

    /// Types of the key columns, in key order.
    #[must_use]
    pub fn types(&self) -> &[DataType] {
        &self.types
    }

    /// The keys of rows whose key columns, in key order, are `columns`.
    ///
    /// # Errors
    /// [`StoreError::Mismatch`] for columns of other number, type or length, [`StoreError::OutOfRange`] for a key
    /// longer than [`INDEX_KEY_BYTES_MAX`].
    pub fn encode(&self, columns: &[ArrayRef]) -> Result<BinaryArray, StoreError> {
        let rows = self.rows(columns)?;
        Ok(rows.try_into_binary()?)
    }

    /// The keys of the rows of `batch`, whose key columns stand at `indices`, in key order.
    ///
    /// # Errors
    /// As [`IndexKey::encode`]; also for an index beyond the batch.
    pub fn encode_batch(
        &self,
        batch: &RecordBatch,
        indices: &[usize],
    ) -> Result<BinaryArray, StoreError> {
        let column = |index: &usize| {
            batch.columns().get(*index).map(Arc::clone).ok_or_else(|| {
                mismatch(format!("column {index} of a batch of {}", batch.num_columns()))
            })
        };
        self.encode(&indices.iter().map(column).collect::<Result<Vec<_>, _>>()?)
    }

    /// The key of one row, whose values are arrays of length one.
    ///
    /// # Errors
    /// As [`IndexKey::encode`]; also for arrays of another length.
    pub fn encode_one(&self, values: &[ArrayRef]) -> Result<Vec<u8>, StoreError> {
        let rows = self.rows(values)?;
        if rows.num_rows() != 1 {
            return Err(mismatch(format!("{} rows for one key", rows.num_rows())));
        }
        Ok(rows.row(0).data().to_vec())
    }

    fn rows(&self, columns: &[ArrayRef]) -> Result<Rows, StoreError> {
        let types: Vec<_> = columns.iter().map(|column| column.data_type().clone()).collect();
        if types != self.types {
            return Err(mismatch(format!("columns of types {types:?} for {:?}", self.types)));
        }
        let length = columns.first().map_or(0, |column| column.len());
        if columns.iter().any(|column| column.len() != length) {
            return Err(mismatch("columns of different lengths".into()));
        }
        let columns: Vec<_> = columns.iter().map(canonical).collect();
        let rows = self.converter.convert_columns(&columns)?;
        if let Some(bytes) = rows.lengths().find(|bytes| *bytes > INDEX_KEY_BYTES_MAX) {
            return Err(StoreError::OutOfRange {
                what: "index key, in bytes,",
                value: u64::try_from(bytes).unwrap_or(u64::MAX),
                max: INDEX_KEY_BYTES_MAX as u64,
            });
        }
        Ok(rows)
    }

    /// The key columns that `keys` were made of, floats canonical.
    ///
    /// # Errors
    /// [`StoreError::Frame`] for bytes that are no keys of this index.
    pub fn decode(&self, keys: &[&[u8]]) -> Result<Vec<ArrayRef>, StoreError> {
        if let Some(position) = keys.iter().position(|key| !self.is_well_formed(key)) {
            let reason = format!("key {position} does not fit the columns {:?}", self.types);
            return Err(FrameError::Malformed { name: "index key", reason }.into());
        }
        let parser = self.converter.parser();
        Ok(self.converter.convert_rows(keys.iter().map(|key| parser.parse(key)))?)
    }

    /// Whether `key` has the shape that the row format gives these types, to its last byte.
    fn is_well_formed(&self, key: &[u8]) -> bool {
        let mut rest = key;
        for data_type in &self.types {
            let after = match fixed_width(data_type) {
                Some(width) => after_fixed(rest, width),
                None => after_variable(rest, *data_type == DataType::Utf8),
            };
            let Some(after) = after else { return false };
            rest = after;
        }
        rest.is_empty()
    }
}

fn mismatch(reason: String) -> StoreError {
    StoreError::Mismatch { what: "an index key", reason }
}

/// The types that a [`crate::ColumnType`] becomes.
fn has_keys(data_type: &DataType) -> bool {
    fixed_width(data_type).is_some() || matches!(data_type, DataType::Utf8 | DataType::Binary)
}

/// Bytes of a value in the row format, its NULL byte not counted.
fn fixed_width(data_type: &DataType) -> Option<usize> {
    match data_type {
        DataType::Boolean => Some(1),
        DataType::Decimal128(..) | DataType::Interval(IntervalUnit::MonthDayNano) => Some(16),
        DataType::FixedSizeBinary(width) => usize::try_from(*width).ok(),
        DataType::Int16
        | DataType::Int32
        | DataType::Int64
        | DataType::Float32
        | DataType::Float64
        | DataType::Date32
        | DataType::Time64(_)
        | DataType::Timestamp(..) => data_type.primitive_width(),
        _ => None,
    }
}

fn after_fixed(bytes: &[u8], width: usize) -> Option<&[u8]> {
    let (valid, rest) = bytes.split_first()?;
    (*valid <= 1).then_some(())?;
    rest.get(width..)
}

/// Passes the row format's blocks: four of 8 bytes, then of 32, each with its length or 0xFF for "more follows".
fn after_variable(bytes: &[u8], is_text: bool) -> Option<&[u8]> {
    let (sentinel, mut rest) = bytes.split_first()?;
    match sentinel {
        0 | 1 => return Some(rest),
        2 => {}
        _ => return None,
    }
    let mut value = Vec::new();
    for block_bytes in [8, 8, 8, 8].into_iter().chain(std::iter::repeat(32)) {
        let (block, after) = rest.split_at_checked(block_bytes)?;
        let (length, after) = after.split_first()?;
        rest = after;
        if *length == u8::MAX {
            value.extend_from_slice(block);
            continue;
        }
        value.extend_from_slice(block.get(..usize::from(*length))?);
        break;
    }
    (!is_text || str::from_utf8(&value).is_ok()).then_some(rest)
}

/// Floats with one zero and one NaN; all else as it is.
fn canonical(array: &ArrayRef) -> ArrayRef {
    // Adding 0.0 turns -0.0 into 0.0 and changes nothing else.
    match array.data_type() {
        DataType::Float32 => canonical_floats::<Float32Type>(array, |value| {
            if value.is_nan() { f32::NAN } else { value + 0.0 }
        }),
        DataType::Float64 => canonical_floats::<Float64Type>(array, |value| {
            if value.is_nan() { f64::NAN } else { value + 0.0 }
        }),
        _ => Arc::clone(array),
    }
}

fn canonical_floats<T: ArrowPrimitiveType>(
    array: &ArrayRef,
    canonical: impl Fn(T::Native) -> T::Native,
) -> ArrayRef {
    let canonical: PrimitiveArray<T> = array.as_primitive::<T>().unary(canonical);
    Arc::new(canonical)
}

#[cfg(test)]
mod tests;
