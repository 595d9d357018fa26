//! Default values of columns that are younger than a page: a value in, stored bytes out, and back as an Arrow array.
//!
//! A column that is added with a default is in no existing page. Its description keeps the value that the default had
//! at that time ([`crate::Column::absent`]), and a reader gives it to every row of a page without the column
//! ([`crate::Projection::absent`]). So adding a column rewrites nothing, and a later change of the default has no
//! effect on old rows.
//!
//! The bytes are the value as it lies in memory, little-endian: the bytes of text, `bytea` and `uuid`; 0 or 1 for
//! `boolean`.
//!
//! Invariant: [`AbsentValue::array`] of untrusted bytes gives values of the requested type, or nothing. A description
//! whose bytes are no value of its column is refused when it is read.

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

/// The value of a column for rows whose page lacks the column.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct AbsentValue {
    bytes: Arc<[u8]>,
}

/// The absent values of a table by column id: all that a reader of the table's pages needs to know of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AbsentValues {
    /// No absent values, as in most tables.
    values: Option<Arc<BTreeMap<u32, AbsentValue>>>,
}

impl AbsentValue {
    /// The one value of `array`; None for NULL, which needs no stored value, for more than one value, and for a type of
    /// no column.
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

    /// A stored value, not validated; [`AbsentValue::array`] tells whether it is one.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Self {
        Self { bytes: bytes.into() }
    }

    /// The bytes to store.
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

/// Whether `count` such values can be addressed in one array of 32-bit offsets.
fn is_addressable(bytes: &[u8], count: usize) -> bool {
    bytes.len().checked_mul(count).is_some_and(|length| i32::try_from(length).is_ok())
}

impl AbsentValues {
    /// The absent values of a table's columns.
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

    /// The bounds of a page that lacks the column, if the column has an absent value.
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
