//! Bounds DataFusion's functions whose result can be larger than memory: beyond the bound they fail before anything is
//! allocated.
//!
//! 1. [`bounded`] wraps each of them in a [`Bounded`] of the same name and meaning.
//! 2. The size of the result for a whole batch is estimated from the arguments ([`Size`]). Beyond [`RESULT_BYTES_MAX`]
//!    the call fails with [`ResultTooLarge`]. What it takes is charged to the memory of the queries ([`charged`]).
//! 3. [`in_place_of`] gives the bounded version of a function that DataFusion chose by itself, as for `||` of lists.
//! 4. [`HOST_ONLY`] names functions whose result size does not depend on their arguments: they do not run on a device,
//!    whose memory budget does not see them.
//!
//! Invariant: a result within the bound is DataFusion's own.

mod lists;
mod replaced;

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int64Array};
use arrow::compute::cast;
use arrow::datatypes::{
    DataType, Date32Type, FieldRef, Int64Type, IntervalMonthDayNanoType, TimeUnit,
    TimestampMicrosecondType,
};
use datafusion_common::{DataFusionError, Result, ScalarValue};
use datafusion_expr::{
    ColumnarValue, Documentation, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl,
    Signature,
};

use super::infinite::infinite_rows;
use super::row_function::ArgumentFault;
use crate::codec::FragmentFunctions;
use crate::result_memory::{Call, charged};

/// Most bytes of the result of one of these functions for one batch.
pub const RESULT_BYTES_MAX: u64 = 256 << 20;

/// Functions that do not run on a device.
pub const HOST_ONLY: [&str; 7] =
    ["repeat", "lpad", "rpad", "array_repeat", "array_resize", "range", "generate_series"];

/// The result would be too large and is not computed: ask for less of it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "requested length too large: the result of {function} would take {bytes} bytes for {rows} rows at once, and \
     {RESULT_BYTES_MAX} are allowed"
)]
pub struct ResultTooLarge {
    /// The function, as it was called.
    pub function: String,
    /// Approximate bytes of the result.
    pub bytes: u64,
    /// The number of rows.
    pub rows: usize,
}

/// The bounded versions of those among `functions` that need one.
pub fn bounded(functions: impl Iterator<Item = Arc<ScalarUDF>>) -> Vec<Arc<ScalarUDF>> {
    let of = |inner: Arc<ScalarUDF>| {
        let size = size_of_result(inner.name())?;
        Some(Arc::new(ScalarUDF::new_from_impl(Bounded { inner, size })))
    };
    functions.filter_map(of).collect()
}

/// Whether the result of `function` may be larger than its arguments.
#[must_use]
pub fn is_bounded(function: &ScalarUDF) -> bool {
    let name = function.name();
    name == "concatenate" || name != "make_array" && size_of_result(name).is_some()
}

/// The bounded function with the name of `function`; None if it is already bounded, or none exists.
pub fn in_place_of(function: &ScalarUDF) -> Option<Arc<ScalarUDF>> {
    size_of_result(function.name())?;
    let ours = FragmentFunctions::get().scalar.get(function.name())?;
    (function != &**ours).then(|| Arc::clone(ours))
}

/// Refuses a result of so many bytes for so many rows, if that is too much.
///
/// # Errors
/// [`ResultTooLarge`], which names `function`.
pub(super) fn check_size(function: &str, bytes: u64, rows: usize) -> Result<()> {
    if bytes <= RESULT_BYTES_MAX {
        return Ok(());
    }
    let error = ResultTooLarge { function: function.to_owned(), bytes, rows };
    Err(DataFusionError::External(Box::new(error)))
}

/// Estimates the result bytes of a function from its arguments and the number of rows.
type Size = fn(&[ColumnarValue], usize) -> Result<u64>;

fn size_of_result(function: &str) -> Option<Size> {
    Some(match function {
        "repeat" => repeated,
        "lpad" | "rpad" => padded,
        "replace" => replaced::replaced,
        "concat" | "concat_ws" => joined,
        "overlay" | "reverse" | "translate" | "make_array" => sum_of_lengths,
        "array_to_string" => lists::as_text,
        "array_concat" | "array_append" | "array_prepend" => lists::joined,
        "array_repeat" => repeated_items,
        "array_resize" => resized,
        "range" | "generate_series" => series,
        _ => return None,
    })
}

#[derive(Debug)]
struct Bounded {
    inner: Arc<ScalarUDF>,
    size: Size,
}

impl PartialEq for Bounded {
    fn eq(&self, other: &Self) -> bool {
        self.inner == other.inner
    }
}

impl Eq for Bounded {}

impl Hash for Bounded {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.inner.hash(state);
    }
}

impl ScalarUDFImpl for Bounded {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn aliases(&self) -> &[String] {
        self.inner.aliases()
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        self.inner.return_type(arg_types)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        self.inner.return_field_from_args(args)
    }

    fn coerce_types(&self, arg_types: &[DataType]) -> Result<Vec<DataType>> {
        self.inner.coerce_types(arg_types)
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.documentation()
    }

    fn invoke_with_args(&self, mut args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let is_scalar = args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
        let rows = if is_scalar { 1 } else { args.number_rows };
        if ["lpad", "rpad"].contains(&self.name())
            && let Some(length) = args.args.get_mut(1)
        {
            not_negative(length);
        }
        let bytes = (self.size)(&args.args, rows)?;
        check_size(self.name(), bytes, rows)?;
        let call = Call {
            function: self.name(),
            expected: bytes,
            rows: args.number_rows,
            is_constant: is_scalar,
        };
        charged(call, || self.inner.invoke_with_args(args))
    }
}

/// One number for each row; they may all be the same.
enum Numbers {
    Same(i64),
    Each(Vec<i64>),
}

impl Numbers {
    fn of(&self, row: usize) -> i64 {
        match self {
            Self::Same(number) => *number,
            Self::Each(numbers) => numbers.get(row).copied().unwrap_or_default(),
        }
    }

    fn sum(&self, rows: usize) -> u64 {
        total(rows, |row| self.of(row).unsigned_abs())
    }
}

fn total(rows: usize, of: impl FnMut(usize) -> u64) -> u64 {
    (0..rows).map(of).fold(0, u64::saturating_add)
}

fn product(one: i64, other: i64) -> u64 {
    let count = |number: i64| u64::try_from(number).unwrap_or(0);
    count(one).saturating_mul(count(other))
}

/// The sizes of the argument at `place` in bytes or items, by `of`; a scalar counts once.
fn numbers(
    args: &[ColumnarValue],
    place: usize,
    of: impl Fn(&ArrayRef) -> Result<Vec<i64>>,
) -> Result<Numbers> {
    Ok(match args.get(place) {
        None => Numbers::Same(0),
        Some(ColumnarValue::Array(array)) => Numbers::Each(of(array)?),
        Some(ColumnarValue::Scalar(value)) => {
            Numbers::Same(of(&value.to_array()?)?.first().copied().unwrap_or_default())
        }
    })
}

/// The integers of an array; 0 for NULL.
fn integers(array: &ArrayRef) -> Result<Vec<i64>> {
    let array = cast(array, &DataType::Int64)?;
    Ok(array.as_primitive::<Int64Type>().iter().map(Option::unwrap_or_default).collect())
}

/// The bytes of each value of an array.
fn lengths(array: &ArrayRef) -> Result<Vec<i64>> {
    let length = |bytes: usize| i64::try_from(bytes).unwrap_or(i64::MAX);
    let text = |value: Option<&str>| length(value.map_or(0, str::len));
    let bytes = |value: Option<&[u8]>| length(value.map_or(0, <[u8]>::len));
    Ok(match array.data_type() {
        DataType::Utf8 => array.as_string::<i32>().iter().map(text).collect(),
        DataType::LargeUtf8 => array.as_string::<i64>().iter().map(text).collect(),
        DataType::Utf8View => array.as_string_view().iter().map(text).collect(),
        DataType::Binary => array.as_binary::<i32>().iter().map(bytes).collect(),
        DataType::LargeBinary => array.as_binary::<i64>().iter().map(bytes).collect(),
        DataType::BinaryView => array.as_binary_view().iter().map(bytes).collect(),
        // For others the mean: an item is seldom much larger than its neighbours.
        _ => {
            let bytes = array.get_array_memory_size() / array.len().max(1);
            vec![length(bytes.max(1)); array.len()]
        }
    })
}

fn repeated(args: &[ColumnarValue], rows: usize) -> Result<u64> {
    let (lengths, counts) = (numbers(args, 0, lengths)?, numbers(args, 1, integers)?);
    Ok(total(rows, |row| product(lengths.of(row), counts.of(row))))
}

/// Makes 0 of negative lengths, which some of DataFusion's functions take for huge ones.
fn not_negative(length: &mut ColumnarValue) {
    match length {
        ColumnarValue::Scalar(ScalarValue::Int64(Some(length))) => *length = (*length).max(0),
        ColumnarValue::Array(lengths) if *lengths.data_type() == DataType::Int64 => {
            let lengths_of = lengths.as_primitive::<Int64Type>();
            if lengths_of.iter().flatten().any(|length| length < 0) {
                let positive: Int64Array = lengths_of.unary(|length| length.max(0));
                *lengths = Arc::new(positive);
            }
        }
        _ => {}
    }
}

fn padded(args: &[ColumnarValue], rows: usize) -> Result<u64> {
    let widths = numbers(args, 1, integers)?;
    Ok(total(rows, |row| product(1, widths.of(row))))
}

/// The bytes of all arguments, a scalar's for each row.
pub(super) fn sum_of_lengths(args: &[ColumnarValue], rows: usize) -> Result<u64> {
    (0..args.len()).try_fold(0, |sum: u64, place| {
        Ok(sum.saturating_add(numbers(args, place, lengths)?.sum(rows)))
    })
}

fn joined(args: &[ColumnarValue], rows: usize) -> Result<u64> {
    (0..args.len()).try_fold(0, |sum: u64, place| {
        // A separator is repeated between all others.
        let times = if place == 0 { args.len() as u64 } else { 1 };
        let bytes = numbers(args, place, lengths)?.sum(rows);
        Ok(sum.saturating_add(bytes.saturating_mul(times)))
    })
}

fn repeated_items(args: &[ColumnarValue], rows: usize) -> Result<u64> {
    // An item also takes its slot in the list.
    let (items, counts) = (numbers(args, 0, lengths)?, numbers(args, 1, integers)?);
    Ok(total(rows, |row| product(items.of(row).saturating_add(8), counts.of(row))))
}

fn resized(args: &[ColumnarValue], rows: usize) -> Result<u64> {
    let (counts, fill) = (numbers(args, 1, integers)?, numbers(args, 2, lengths)?);
    Ok(total(rows, |row| product(fill.of(row).saturating_add(8), counts.of(row))))
}

/// Bytes of an item of a series.
const ITEM_BYTES: f64 = 8.0;
const NANOS_PER_DAY: f64 = 86_400e9;

fn series(args: &[ColumnarValue], rows: usize) -> Result<u64> {
    let kind = args.first().map(ColumnarValue::data_type);
    let positions = |place: usize| positions(args, place, rows);
    let ends = match args.len() {
        0 => return Ok(0),
        1 => (vec![0.0; rows], positions(0)?),
        _ => (positions(0)?, positions(1)?),
    };
    // Without a step: by one, which dates do not support.
    let steps = if args.len() > 2 { positions(2)? } else { vec![1.0; rows] };
    if !matches!(
        kind,
        Some(DataType::Int64 | DataType::Date32 | DataType::Date64 | DataType::Timestamp(..))
    ) {
        return Ok(0);
    }
    let counts = ends.0.iter().zip(&ends.1).zip(&steps).map(|((start, stop), step)| {
        let count = (stop - start) / step;
        // DataFusion refuses a step of 0.
        if count.is_finite() && count > 0.0 { count } else { 0.0 }
    });
    let bytes = counts.sum::<f64>() * ITEM_BYTES;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "what is larger becomes the largest"
    )]
    Ok(bytes as u64)
}

/// The values at `place` on one scale: integers as they are, times and steps between them in nanoseconds.
fn positions(args: &[ColumnarValue], place: usize, rows: usize) -> Result<Vec<f64>> {
    let Some(arg) = args.get(place) else { return Ok(vec![0.0; rows]) };
    let array = arg.to_array(rows)?;
    if !array.data_type().is_string() && !infinite_rows(&array).is_empty() {
        let reason = "the bounds of a series must be finite".to_owned();
        return Err(ArgumentFault::Invalid { reason }.into());
    }
    Ok(match array.data_type() {
        DataType::Date32 | DataType::Date64 => {
            let days = cast(&array, &DataType::Date32)?;
            let nanos = |days: Option<i32>| f64::from(days.unwrap_or_default()) * NANOS_PER_DAY;
            days.as_primitive::<Date32Type>().iter().map(nanos).collect()
        }
        DataType::Timestamp(_, zone) => {
            // Nanoseconds end in 2262.
            let micros = DataType::Timestamp(TimeUnit::Microsecond, zone.clone());
            let micros = cast(&array, &micros)?;
            let micros = micros.as_primitive::<TimestampMicrosecondType>();
            micros.iter().map(|micros| micros.unwrap_or_default() as f64 * 1e3).collect()
        }
        DataType::Interval(_) => {
            let unit = DataType::Interval(arrow::datatypes::IntervalUnit::MonthDayNano);
            let steps = cast(&array, &unit)?;
            let steps = steps.as_primitive::<IntervalMonthDayNanoType>();
            let nanos = steps.iter().flatten().map(|step| {
                let days = 28.0 * f64::from(step.months) + f64::from(step.days);
                days * NANOS_PER_DAY + step.nanoseconds as f64
            });
            nanos.collect()
        }
        _ => integers(&array)?.into_iter().map(|number| number as f64).collect(),
    })
}

#[cfg(test)]
mod tests;
