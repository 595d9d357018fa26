//! Predicates and single values of chunks in Arrow's own layout, as counterparts of the operations on packed integers.

#![deny(clippy::indexing_slicing)]

use std::cmp::Ordering;
use std::sync::Arc;

use arrow::array::types::{
    ArrowPrimitiveType, BinaryType, ByteArrayType, Date32Type, Decimal128Type, Decimal256Type,
    Float64Type, Int16Type, Int32Type, Int64Type, Time64MicrosecondType, TimestampMicrosecondType,
    Utf8Type,
};
use arrow::array::{Array, ArrayRef, AsArray, GenericByteArray, PrimitiveArray, new_null_array};
use arrow::buffer::{BooleanBuffer, Buffer, OffsetBuffer};
use arrow::datatypes::DataType;

use crate::integer_set::{IntegerSet, Kept};

/// For each integer of an array whether comparing it with `other` gives one of `wanted`; None if it has no integers.
pub(super) fn compare_array(
    array: &ArrayRef,
    other: i128,
    wanted: impl Fn(Ordering) -> bool,
) -> Option<BooleanBuffer> {
    fn compared<T: ArrowPrimitiveType>(
        array: &ArrayRef,
        other: i128,
        wanted: impl Fn(Ordering) -> bool,
    ) -> Option<BooleanBuffer>
    where
        T::Native: TryFrom<i128> + Ord,
    {
        let values = array.as_primitive_opt::<T>()?.values();
        let [less, equal, greater] =
            [Ordering::Less, Ordering::Equal, Ordering::Greater].map(&wanted);
        let Ok(other) = T::Native::try_from(other) else {
            let all = if other < 0 { greater } else { less };
            return Some(BooleanBuffer::collect_bool(values.len(), |_| all));
        };
        let mut values = values.iter();
        Some(BooleanBuffer::collect_bool(values.len(), |_| {
            values.next().is_some_and(|value| {
                less & (*value < other) | equal & (*value == other) | greater & (*value > other)
            })
        }))
    }
    match array.data_type() {
        DataType::Int16 => compared::<Int16Type>(array, other, wanted),
        DataType::Int32 => compared::<Int32Type>(array, other, wanted),
        DataType::Date32 => compared::<Date32Type>(array, other, wanted),
        DataType::Int64 => compared::<Int64Type>(array, other, wanted),
        DataType::Time64(_) => compared::<Time64MicrosecondType>(array, other, wanted),
        DataType::Timestamp(..) => compared::<TimestampMicrosecondType>(array, other, wanted),
        DataType::Decimal128(..) => compared::<Decimal128Type>(array, other, wanted),
        _ => None,
    }
}

/// Appends the integers of an array; false if it has none, or one exceeds 64 bits.
pub(super) fn extend_from_array(array: &ArrayRef, target: &mut Vec<i64>) -> bool {
    fn widened<T: ArrowPrimitiveType>(array: &ArrayRef, target: &mut Vec<i64>) -> bool
    where
        T::Native: Into<i64>,
    {
        let values = array.as_primitive_opt::<T>().map(|array| array.values());
        target.extend(values.into_iter().flatten().map(|value| (*value).into()));
        values.is_some()
    }
    match array.data_type() {
        DataType::Int16 => widened::<Int16Type>(array, target),
        DataType::Int32 => widened::<Int32Type>(array, target),
        DataType::Date32 => widened::<Date32Type>(array, target),
        DataType::Int64 => widened::<Int64Type>(array, target),
        DataType::Time64(_) => widened::<Time64MicrosecondType>(array, target),
        DataType::Timestamp(..) => widened::<TimestampMicrosecondType>(array, target),
        DataType::Decimal128(..) => {
            let Some(array) = array.as_primitive_opt::<Decimal128Type>() else { return false };
            for value in array.values() {
                let Ok(value) = i64::try_from(*value) else { return false };
                target.push(value);
            }
            true
        }
        _ => false,
    }
}

/// The rows of `kept` whose values in `array` are in `set`; None if the array is not of this type.
pub(super) fn among<T>(set: &IntegerSet, array: &ArrayRef, kept: &Kept) -> Option<BooleanBuffer>
where
    T: ArrowPrimitiveType,
    T::Native: Into<i64>,
{
    let values = array.as_primitive_opt::<T>()?.values();
    Some(kept.narrowed(|row, kept| {
        let end = values.len().min(row + 64);
        let values = values.get(row..end).unwrap_or_default();
        set.among(values, kept, |value| set.place(value.into()))
    }))
}

/// The value at the existing `slot`, copied into an array of one; None if the general way is as short.
pub(super) fn single(array: &ArrayRef, slot: usize) -> Option<ArrayRef> {
    fn number<T: ArrowPrimitiveType>(array: &ArrayRef, slot: usize) -> Option<ArrayRef> {
        let value = *array.as_primitive_opt::<T>()?.values().get(slot)?;
        let one = PrimitiveArray::<T>::new(vec![value].into(), None);
        Some(Arc::new(one.with_data_type(array.data_type().clone())))
    }
    fn bytes<T: ByteArrayType<Offset = i32>>(array: &ArrayRef, slot: usize) -> Option<ArrayRef> {
        let value: &[u8] = array.as_bytes_opt::<T>()?.value(slot).as_ref();
        let end = i32::try_from(value.len()).ok()?;
        let offsets = OffsetBuffer::new(vec![0, end].into());
        // A `Vec`, not an Arrow buffer, which is aligned for vector registers: that costs more than copying the value.
        let one = GenericByteArray::<T>::try_new(offsets, Buffer::from_vec(value.to_vec()), None);
        Some(Arc::new(one.ok()?))
    }
    if array.is_null(slot) {
        return Some(new_null_array(array.data_type(), 1));
    }
    match array.data_type() {
        DataType::Int16 => number::<Int16Type>(array, slot),
        DataType::Int32 => number::<Int32Type>(array, slot),
        DataType::Int64 => number::<Int64Type>(array, slot),
        DataType::Float64 => number::<Float64Type>(array, slot),
        DataType::Date32 => number::<Date32Type>(array, slot),
        DataType::Timestamp(..) => number::<TimestampMicrosecondType>(array, slot),
        DataType::Decimal128(..) => number::<Decimal128Type>(array, slot),
        DataType::Decimal256(..) => number::<Decimal256Type>(array, slot),
        DataType::Utf8 => bytes::<Utf8Type>(array, slot),
        DataType::Binary => bytes::<BinaryType>(array, slot),
        _ => None,
    }
}
