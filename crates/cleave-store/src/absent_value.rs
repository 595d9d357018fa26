//! What rows have in a column that is younger than their page: a value in, stored bytes out, and back as an array.
//!
//! A column that is added with a default is in no page yet. Its description keeps the value that the default had then
//! ([`crate::Column::absent`]), and a reader gives it to every row of a page without the column
//! ([`crate::Projection::absent`]). So adding a column rewrites nothing, however the default changes later.
//!
//! The bytes are those of the value as it lies in memory, little-endian: of text, `bytea` and `uuid` its bytes, of
//! `boolean` 0 or 1.
//!
//! Invariant: [`AbsentValue::array`] of bytes that came from anywhere gives values of the type that was asked for, or
//! nothing. A description with bytes that are no value of its column is refused when it is read.

#![deny(clippy::indexing_slicing)]

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BinaryArray, BooleanArray, FixedSizeBinaryArray, StringArray,
    make_array,
};
use arrow::buffer::{BooleanBuffer, MutableBuffer};
use arrow::datatypes::DataType;

use crate::page::columns::ValueType;
use crate::schema::TableSchema;
use crate::zone_map::ZoneEntry;

/// A value that rows have whose page lacks the column.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct AbsentValue {
    bytes: Arc<[u8]>,
}

/// The values of those columns that have one, by id: all that a reader of a table's pages needs to know of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AbsentValues {
    /// None, as of most tables: none has one.
    values: Option<Arc<BTreeMap<u32, AbsentValue>>>,
}

impl AbsentValue {
    /// The one value of `array`; None where it is NULL, which needs no value, or not one value of a type of columns.
    #[must_use]
    pub fn of(array: &dyn Array) -> Option<Self> {
        if array.len() != 1
            || array.is_null(0)
            || ValueType::from_arrow(array.data_type()).is_none()
        {
            return None;
        }
        let bytes: Arc<[u8]> = match array.data_type() {
            DataType::Boolean => Arc::from([u8::from(array.as_boolean().value(0))]),
            DataType::Utf8 => array.as_string::<i32>().value(0).as_bytes().into(),
            DataType::Binary => array.as_binary::<i32>().value(0).into(),
            DataType::FixedSizeBinary(_) => array.as_fixed_size_binary().value(0).into(),
            data_type => {
                let width = data_type.primitive_width()?;
                let data = array.to_data();
                let from = data.offset().checked_mul(width)?;
                data.buffers().first()?.get(from..from.checked_add(width)?)?.into()
            }
        };
        Some(Self { bytes })
    }

    /// A value that was stored; whether it is one, [`AbsentValue::array`] tells.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Self {
        Self { bytes: bytes.into() }
    }

    /// What is to be stored of it.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The value `count` times, as a column of `data_type`; None where the bytes are none of this type.
    #[must_use]
    pub fn array(&self, data_type: &DataType, count: usize) -> Option<ArrayRef> {
        let bytes = &*self.bytes;
        Some(match data_type {
            DataType::Boolean => {
                let values = match bytes {
                    [0] => BooleanBuffer::new_unset(count),
                    [1] => BooleanBuffer::new_set(count),
                    _ => return None,
                };
                Arc::new(BooleanArray::new(values, None))
            }
            DataType::Utf8 => {
                let text = str::from_utf8(bytes).ok()?;
                is_addressable(bytes, count).then_some(())?;
                Arc::new(StringArray::from_iter_values(std::iter::repeat_n(text, count)))
            }
            DataType::Binary => {
                is_addressable(bytes, count).then_some(())?;
                Arc::new(BinaryArray::from_iter_values(std::iter::repeat_n(bytes, count)))
            }
            DataType::FixedSizeBinary(width) => {
                (usize::try_from(*width) == Ok(bytes.len())).then_some(())?;
                let values = std::iter::repeat_n(Some(bytes), count);
                let array = FixedSizeBinaryArray::try_from_sparse_iter_with_size(values, *width);
                Arc::new(array.ok()?)
            }
            data_type => {
                (data_type.primitive_width() == Some(bytes.len())).then_some(())?;
                let mut values = MutableBuffer::with_capacity(bytes.len().checked_mul(count)?);
                values.repeat_slice_n_times(bytes, count);
                let array = arrow::array::ArrayData::builder(data_type.clone())
                    .len(count)
                    .add_buffer(values.into());
                make_array(array.build().ok()?)
            }
        })
    }
}

/// Whether so many of it can be addressed in one array of 32-bit offsets.
fn is_addressable(bytes: &[u8], count: usize) -> bool {
    bytes.len().checked_mul(count).is_some_and(|length| i32::try_from(length).is_ok())
}

impl AbsentValues {
    /// Those of a table's columns.
    #[must_use]
    pub fn of_table(schema: &TableSchema) -> Self {
        let of = |column: &crate::Column| Some((column.id, column.absent.clone()?));
        schema.columns.iter().filter_map(of).collect()
    }

    /// The value of the column with this id, if it has one.
    #[must_use]
    pub fn get(&self, column: u32) -> Option<&AbsentValue> {
        self.values.as_ref()?.get(&column)
    }

    /// The bounds of a page that lacks the column, if that has a value.
    #[must_use]
    pub fn zone(&self, column: u32, data_type: &DataType) -> Option<ZoneEntry> {
        let value = self.get(column)?.array(data_type, 1)?;
        Some(ZoneEntry::of(column, &value))
    }
}

impl FromIterator<(u32, AbsentValue)> for AbsentValues {
    fn from_iter<T: IntoIterator<Item = (u32, AbsentValue)>>(values: T) -> Self {
        let values: BTreeMap<u32, AbsentValue> = values.into_iter().collect();
        Self { values: (!values.is_empty()).then(|| Arc::new(values)) }
    }
}

#[cfg(test)]
mod tests;
