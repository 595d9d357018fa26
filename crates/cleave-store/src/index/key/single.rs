//! Encodes the search key of one row of integers and texts, with the same bytes as Arrow's row converter, which is made
//! for many rows at once.
//!
//! ```text
//!   number:  1 │ its bytes, most significant first, the sign bit inverted
//!   text:    1                         for the empty text
//!            2 │ 8 bytes │ FF │ … │ rest, padded with zeros │ length of the rest
//!            blocks are of 8 bytes up to the 32nd, then of 32; in descending
//!            order all bits are inverted, except the 1 before a number
//! ```
//!
//! Invariant: the bytes are the converter's, which made the stored keys; a property test compares both.
//!
//! Source: Arrow's row format, `arrow::row`.

use arrow::array::types::{Int16Type, Int32Type, Int64Type};
use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::DataType;

use super::{INDEX_KEY_BYTES_MAX, KeyColumn, most_significant_first};

const EMPTY: u8 = 1;
const NOT_EMPTY: u8 = 2;
const NOT_NULL: u8 = 1;
const GOES_ON: u8 = 0xff;
const SMALL_BLOCK: usize = 8;
const BLOCK: usize = 32;

/// The key of `values`, arrays of length one, which `columns` describe; None if only the converter can make or refuse
/// it.
pub(super) fn single(columns: &[KeyColumn], values: &[ArrayRef]) -> Option<Vec<u8>> {
    let mut key = Vec::with_capacity(columns.len().saturating_mul(10));
    if columns.len() != values.len() {
        return None;
    }
    for (column, value) in columns.iter().zip(values) {
        if value.len() != 1 || value.is_null(0) || *value.data_type() != column.data_type {
            return None;
        }
        let start = key.len();
        let turned_from = match value.data_type() {
            DataType::Int16 => {
                number(i64::from(value.as_primitive::<Int16Type>().value(0)), 2, &mut key)
            }
            DataType::Int32 => {
                number(i64::from(value.as_primitive::<Int32Type>().value(0)), 4, &mut key)
            }
            DataType::Int64 => number(value.as_primitive::<Int64Type>().value(0), 8, &mut key),
            DataType::Utf8 => text(value.as_string::<i32>().value(0).as_bytes(), &mut key),
            _ => return None,
        };
        if column.descending {
            key.iter_mut().skip(start.saturating_add(turned_from)).for_each(|byte| *byte = !*byte);
        }
    }
    (key.len() <= INDEX_KEY_BYTES_MAX).then_some(key)
}

/// Appends a number of `width` bytes; returns how many leading bytes are the same in either direction.
fn number(value: i64, width: usize, key: &mut Vec<u8>) -> usize {
    let bytes = most_significant_first(value.cast_unsigned());
    let own = bytes.get(bytes.len().saturating_sub(width)..).unwrap_or_default();
    key.push(NOT_NULL);
    key.extend(own.iter().enumerate().map(|(at, byte)| if at == 0 { byte ^ 0x80 } else { *byte }));
    1
}

/// Appends a text; none of its bytes is the same in either direction.
fn text(value: &[u8], key: &mut Vec<u8>) -> usize {
    if value.is_empty() {
        key.push(EMPTY);
        return 0;
    }
    key.push(NOT_EMPTY);
    let (first, rest) = value.split_at(value.len().min(BLOCK));
    blocks(first, SMALL_BLOCK, !rest.is_empty(), key);
    blocks(rest, BLOCK, false, key);
    0
}

/// Appends `value` in blocks; `goes_on`: more blocks follow.
fn blocks(value: &[u8], size: usize, goes_on: bool, key: &mut Vec<u8>) {
    let mut pieces = value.chunks(size).peekable();
    while let Some(piece) = pieces.next() {
        key.extend_from_slice(piece);
        key.extend(std::iter::repeat_n(0, size.saturating_sub(piece.len())));
        let is_last = pieces.peek().is_none() && !goes_on;
        key.push(if is_last { u8::try_from(piece.len()).unwrap_or(GOES_ON) } else { GOES_ON });
    }
}
