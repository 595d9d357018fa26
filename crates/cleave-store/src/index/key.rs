//! Index keys: key columns in, bytes out whose order as bytes is the order of the values.
//!
//! ```text
//!   entry:  column 1 │ column 2 │ …   ( │ VID, 8 bytes, big-endian )
//!           Arrow's row format          where equal values may repeat: in an index that is not unique,
//!           └──── search key ─────┘     and in a unique one where a column is NULL
//! ```
//!
//! The search key is in Arrow's row format; each column's [`KeyColumn`] gives its direction and the place of its NULLs.
//! Equal values have equal bytes: floats are made canonical first (-0.0 becomes 0.0, every NaN the same NaN), because
//! SQL holds them equal and the row format does not. Intervals compare by months, then days, then nanoseconds, so
//! `1 month` and `30 days` are different keys. No encoded value is a prefix of another, so the search key of the first
//! columns ([`IndexKey::prefix`]) is a prefix of exactly the entries that have these values.
//!
//! Invariant: no two entries of an index are equal, as long as a unique index has no row twice. Keys are compared and
//! stored as bytes; only [`IndexKey::decode`] looks inside, for messages, and it checks their shape first.
//! Source: `docs/design/pages-and-encodings.md`.

#![deny(clippy::indexing_slicing)]

mod single;

use std::sync::Arc;

use arrow::array::types::{Float32Type, Float64Type};
use arrow::array::{Array, ArrayRef, AsArray, BinaryArray, BinaryBuilder, PrimitiveArray};
use arrow::buffer::{Buffer, NullBuffer, OffsetBuffer};
use arrow::compute::SortOptions;
use arrow::datatypes::{ArrowPrimitiveType, DataType, IntervalUnit};
use arrow::row::{RowConverter, Rows, SortField};

use crate::error::StoreError;
use crate::frame::FrameError;

/// Longest search key in bytes. A page must hold many keys, and the directory its fences.
pub const INDEX_KEY_BYTES_MAX: usize = 2704;
/// The name of a key that is too long in [`StoreError::OutOfRange`].
pub const INDEX_KEY_BYTES: &str = "index key, in bytes,";
/// Bytes of the VID behind a search key that may repeat.
pub(super) const KEY_VID_BYTES: usize = size_of::<u64>();

/// One column of a key: its type and its order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyColumn {
    /// Type of the values.
    pub data_type: DataType,
    /// Greatest first.
    pub descending: bool,
    /// NULLs before all values, else behind them.
    pub nulls_first: bool,
}

/// Encodes and decodes the keys of one index.
#[derive(Debug)]
pub struct IndexKey {
    columns: Vec<KeyColumn>,
    unique: bool,
    converter: RowConverter,
}

impl KeyColumn {
    /// A column as `CREATE INDEX` has it by default: ascending, NULLs last.
    #[must_use]
    pub fn ascending(data_type: DataType) -> Self {
        Self { data_type, descending: false, nulls_first: false }
    }

    pub(crate) fn sort_field(&self) -> SortField {
        let options = SortOptions { descending: self.descending, nulls_first: self.nulls_first };
        SortField::new_with_options(self.data_type.clone(), options)
    }
}

impl IndexKey {
    /// Keys over `columns`, in key order, for an index that is `unique` or not.
    ///
    /// # Errors
    /// [`StoreError::Mismatch`] for no columns or a type without an order.
    pub fn new(columns: Vec<KeyColumn>, unique: bool) -> Result<Self, StoreError> {
        if columns.is_empty() || !columns.iter().all(|column| has_keys(&column.data_type)) {
            return Err(mismatch(format!("no key over {columns:?}")));
        }
        let fields = columns.iter().map(KeyColumn::sort_field).collect();
        Ok(Self { columns, unique, converter: RowConverter::new(fields)? })
    }

    /// The key columns, in key order.
    #[must_use]
    pub fn columns(&self) -> &[KeyColumn] {
        &self.columns
    }

    /// Whether equal values without NULLs are one key.
    #[must_use]
    pub fn is_unique(&self) -> bool {
        self.unique
    }

    /// The search keys of rows whose key columns, in key order, are `columns`.
    ///
    /// # Errors
    /// [`StoreError::Mismatch`] for columns of other number, type or length, [`StoreError::OutOfRange`] for a key
    /// longer than [`INDEX_KEY_BYTES_MAX`].
    pub fn encode(&self, columns: &[ArrayRef]) -> Result<BinaryArray, StoreError> {
        if let Some(key) = single::single(&self.columns, columns) {
            return Ok(only(key));
        }
        let rows = self.rows(columns)?;
        Ok(rows.try_into_binary()?)
    }

    /// The entries of rows whose key columns, in key order, are `columns`, and which have these VIDs.
    ///
    /// # Errors
    /// As [`IndexKey::encode`].
    pub fn entries(
        &self,
        columns: &[ArrayRef],
        vids: impl IntoIterator<Item = u64>,
    ) -> Result<BinaryArray, StoreError> {
        let mut vids = vids.into_iter();
        // Then it has no NULL.
        if let Some(mut key) = single::single(&self.columns, columns) {
            if !self.unique {
                key.extend(vids.next().into_iter().flat_map(most_significant_first));
            }
            return Ok(only(key));
        }
        let nulls = columns.iter().fold(None, |nulls: Option<NullBuffer>, column| {
            NullBuffer::union(nulls.as_ref(), column.logical_nulls().as_ref())
        });
        let nulls = nulls.filter(|nulls| nulls.null_count() > 0);
        if self.unique && nulls.is_none() {
            return self.encode(columns);
        }
        let rows = self.rows(columns)?;
        let bytes = rows.lengths().sum::<usize>();
        let with_vids = rows.num_rows().saturating_mul(KEY_VID_BYTES);
        let mut keys =
            BinaryBuilder::with_capacity(rows.num_rows(), bytes.saturating_add(with_vids));
        let mut entry = Vec::new();
        for (place, (row, vid)) in rows.iter().zip(vids).enumerate() {
            if self.unique && nulls.as_ref().is_some_and(|nulls| nulls.is_valid(place)) {
                keys.append_value(row.data());
                continue;
            }
            entry.clear();
            entry.extend_from_slice(row.data());
            entry.extend_from_slice(&most_significant_first(vid));
            keys.append_value(&entry);
        }
        Ok(keys.finish())
    }

    /// The common prefix of the entries of all rows that have `values`, arrays of length one, in the first columns; for
    /// all columns, their search key.
    ///
    /// # Errors
    /// As [`IndexKey::encode_one`], but for fewer columns.
    pub fn prefix(&self, values: &[ArrayRef]) -> Result<Vec<u8>, StoreError> {
        if values.is_empty() {
            return Ok(Vec::new());
        }
        if values.len() == self.columns.len() {
            return self.encode_one(values);
        }
        let columns = self.columns.get(..values.len());
        let columns = columns.ok_or_else(|| mismatch(format!("{} columns", values.len())))?;
        if let Some(key) = single::single(columns, values) {
            return Ok(key);
        }
        Self::new(columns.to_vec(), self.unique)?.encode_one(values)
    }

    /// The search key at the start of `entry`; None if one of its columns is NULL.
    #[must_use]
    pub fn search_key<'a>(&self, entry: &'a [u8]) -> &'a [u8] {
        if self.unique { entry } else { search_key(entry) }
    }

    /// Whether `entry` is of a row with a NULL in a unique index. Such a row is equal to no other: its VID is part of
    /// the entry.
    #[must_use]
    pub fn has_null(&self, entry: &[u8]) -> bool {
        self.unique && self.values_of(entry).is_some_and(|values| values.len() < entry.len())
    }

    /// The key of one row, whose values are arrays of length one.
    ///
    /// # Errors
    /// As [`IndexKey::encode`]; also for arrays of another length.
    pub fn encode_one(&self, values: &[ArrayRef]) -> Result<Vec<u8>, StoreError> {
        if let Some(key) = single::single(&self.columns, values) {
            return Ok(key);
        }
        let rows = self.rows(values)?;
        if rows.num_rows() != 1 {
            return Err(mismatch(format!("{} rows for one key", rows.num_rows())));
        }
        Ok(rows.row(0).data().to_vec())
    }

    fn rows(&self, columns: &[ArrayRef]) -> Result<Rows, StoreError> {
        let types = columns.iter().map(|column| column.data_type());
        if !types.clone().eq(self.columns.iter().map(|column| &column.data_type)) {
            let types: Vec<_> = types.collect();
            return Err(mismatch(format!("columns of types {types:?} for {:?}", self.columns)));
        }
        let length = columns.first().map_or(0, |column| column.len());
        if columns.iter().any(|column| column.len() != length) {
            return Err(mismatch("columns of different lengths".into()));
        }
        let columns: Vec<_> = columns.iter().map(canonical).collect();
        let rows = self.converter.convert_columns(&columns)?;
        if let Some(bytes) = rows.lengths().find(|bytes| *bytes > INDEX_KEY_BYTES_MAX) {
            return Err(StoreError::OutOfRange {
                what: INDEX_KEY_BYTES,
                value: u64::try_from(bytes).unwrap_or(u64::MAX),
                max: INDEX_KEY_BYTES_MAX as u64,
            });
        }
        Ok(rows)
    }

    /// The key columns that `keys`, search keys or entries, were made of, floats canonical.
    ///
    /// # Errors
    /// [`StoreError::Frame`] for bytes that are no keys of this index.
    pub fn decode(&self, keys: &[&[u8]]) -> Result<Vec<ArrayRef>, StoreError> {
        let mut search_keys = Vec::with_capacity(keys.len());
        for (position, key) in keys.iter().enumerate() {
            let search_key = self.values_of(key).ok_or_else(|| {
                let reason = format!("key {position} does not fit the columns {:?}", self.columns);
                FrameError::Malformed { name: "index key", reason }
            })?;
            search_keys.push(search_key);
        }
        let parser = self.converter.parser();
        Ok(self.converter.convert_rows(search_keys.iter().map(|key| parser.parse(key)))?)
    }

    /// The search key in `key`, if `key` has the shape that the row format gives these columns, to its last byte.
    fn values_of<'a>(&self, key: &'a [u8]) -> Option<&'a [u8]> {
        let (mut rest, mut has_null) = (key, false);
        for column in &self.columns {
            let null = if column.nulls_first { 0 } else { u8::MAX };
            if rest.first() == Some(&null) {
                has_null = true;
                // A fixed-width NULL takes as many bytes as a value.
                rest = rest.get(1 + fixed_width(&column.data_type).unwrap_or(0)..)?;
                continue;
            }
            rest = match fixed_width(&column.data_type) {
                Some(width) => after_fixed(rest, width),
                None => {
                    let is_text = column.data_type == DataType::Utf8;
                    after_variable(rest, is_text, column.descending)
                }
            }?;
        }
        let search_key = key.get(..key.len().checked_sub(rest.len())?)?;
        let may_repeat = !self.unique || has_null;
        (rest.is_empty() || may_repeat && rest.len() == KEY_VID_BYTES).then_some(search_key)
    }
}

#[expect(clippy::big_endian_bytes, reason = "keys compare as bytes")]
fn most_significant_first(vid: u64) -> [u8; KEY_VID_BYTES] {
    vid.to_be_bytes()
}

/// An entry without the VID at its end.
pub(super) fn search_key(entry: &[u8]) -> &[u8] {
    entry.get(..entry.len().saturating_sub(KEY_VID_BYTES)).unwrap_or_default()
}

/// The least bytes above all that begin with `prefix`; None if there are none.
#[must_use]
pub fn after_prefix(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|byte| *byte < u8::MAX)?;
    let mut after = prefix.get(..=last)?.to_vec();
    if let Some(byte) = after.last_mut() {
        *byte = byte.saturating_add(1);
    }
    Some(after)
}

/// An array of one short key. It takes over the key's memory: an Arrow builder aligns for vector registers, which costs
/// more than the key.
fn only(key: Vec<u8>) -> BinaryArray {
    let offsets = OffsetBuffer::from_lengths([key.len()]);
    BinaryArray::new(offsets, Buffer::from_vec(key), None)
}

fn mismatch(reason: String) -> StoreError {
    StoreError::Mismatch { what: "an index key", reason }
}

/// The types that a [`crate::ColumnType`] becomes.
pub(crate) fn has_keys(data_type: &DataType) -> bool {
    fixed_width(data_type).is_some() || matches!(data_type, DataType::Utf8 | DataType::Binary)
}

/// Bytes of a value in the row format, its NULL byte not counted.
fn fixed_width(data_type: &DataType) -> Option<usize> {
    match data_type {
        DataType::Boolean => Some(1),
        DataType::Decimal128(..) | DataType::Interval(IntervalUnit::MonthDayNano) => Some(16),
        DataType::Decimal256(..) => Some(32),
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
    (*valid == 1).then_some(())?;
    rest.get(width..)
}

/// Skips the blocks of the row format: four of 8 bytes, then of 32, each with its length or 0xFF for "more follows";
/// all bits inverted in descending order.
fn after_variable(bytes: &[u8], is_text: bool, descending: bool) -> Option<&[u8]> {
    let plain = |byte: &u8| if descending { !*byte } else { *byte };
    let (sentinel, mut rest) = bytes.split_first()?;
    match plain(sentinel) {
        1 => return Some(rest),
        2 => {}
        _ => return None,
    }
    let mut value = Vec::new();
    for block_bytes in [8, 8, 8, 8].into_iter().chain(std::iter::repeat(32)) {
        let (block, after) = rest.split_at_checked(block_bytes)?;
        let (length, after) = after.split_first()?;
        rest = after;
        let length = plain(length);
        if length == u8::MAX {
            value.extend(block.iter().map(plain));
            continue;
        }
        value.extend(block.get(..usize::from(length))?.iter().map(plain));
        break;
    }
    (!is_text || str::from_utf8(&value).is_ok()).then_some(rest)
}

/// Floats with one zero and one NaN; all else as it is.
pub(crate) fn canonical(array: &ArrayRef) -> ArrayRef {
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
