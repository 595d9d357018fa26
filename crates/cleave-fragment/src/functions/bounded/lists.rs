//! Sizes of list items, for functions that turn them into texts or longer lists.

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::DataType;
use datafusion_common::Result;
use datafusion_expr::ColumnarValue;

use super::{lengths, numbers};

/// Bytes of an item besides its content.
const ITEM_BYTES: u64 = 8;

/// `array_to_string(list, delimiter [, null])`.
pub(super) fn as_text(args: &[ColumnarValue], rows: usize) -> Result<u64> {
    let items = measured(args, 0, rows)?;
    let (delimiters, nulls) = (numbers(args, 1, lengths)?, numbers(args, 2, lengths)?);
    Ok(items.iter().enumerate().fold(0, |sum: u64, (row, items)| {
        // DataFusion expands constant arguments to one value a row, with items or without.
        let between = delimiters.of(row).saturating_add(nulls.of(row)).unsigned_abs();
        let between = between.saturating_mul(items.count.max(1));
        sum.saturating_add(items.bytes).saturating_add(between)
    }))
}

/// `array_concat(list, …)`, `array_append(list, item)`, `array_prepend(item, list)`.
pub(super) fn joined(args: &[ColumnarValue], rows: usize) -> Result<u64> {
    (0..args.len()).try_fold(0, |sum: u64, place| {
        let all = measured(args, place, rows)?;
        Ok(all.iter().fold(sum, |sum, items| {
            let besides = items.count.saturating_mul(ITEM_BYTES);
            sum.saturating_add(items.bytes).saturating_add(besides)
        }))
    })
}

/// Nested values within a value of a list.
#[derive(Debug, Clone, Copy, Default)]
struct Items {
    count: u64,
    /// Bytes of their texts, approximately.
    bytes: u64,
}

/// The items of the argument at `place`, of each row.
fn measured(args: &[ColumnarValue], place: usize, rows: usize) -> Result<Vec<Items>> {
    Ok(match args.get(place) {
        None => Vec::new(),
        Some(ColumnarValue::Array(array)) => {
            (0..array.len()).map(|row| items(&array.slice(row, 1))).collect()
        }
        Some(ColumnarValue::Scalar(value)) => vec![items(&value.to_array()?); rows],
    })
}

/// All values in `array`, those of lists one by one.
fn items(array: &ArrayRef) -> Items {
    let of_each = |lists: &mut dyn Iterator<Item = Option<ArrayRef>>| {
        lists.flatten().fold(Items::default(), |sum, list| {
            let more = items(&list);
            Items {
                count: sum.count.saturating_add(more.count),
                bytes: sum.bytes.saturating_add(more.bytes),
            }
        })
    };
    let count = array.len() as u64;
    let bytes = match array.data_type() {
        DataType::List(_) => return of_each(&mut array.as_list::<i32>().iter()),
        DataType::LargeList(_) => return of_each(&mut array.as_list::<i64>().iter()),
        DataType::FixedSizeList(..) => return of_each(&mut array.as_fixed_size_list().iter()),
        DataType::Utf8 => text_bytes(array.as_string::<i32>().value_offsets()),
        DataType::LargeUtf8 => text_bytes(array.as_string::<i64>().value_offsets()),
        DataType::Utf8View => {
            array.as_string_view().iter().flatten().map(|text| text.len() as u64).sum()
        }
        // A few doubles have 300 digits, most have 20.
        _ => count.saturating_mul(32),
    };
    Items { count, bytes }
}

/// The bytes between the first and the last of `offsets`.
fn text_bytes<T: Copy + Into<i64>>(offsets: &[T]) -> u64 {
    let (first, last) = (offsets.first().copied(), offsets.last().copied());
    first.zip(last).map_or(0, |(first, last)| (last.into() - first.into()).unsigned_abs())
}
