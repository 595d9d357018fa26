//! `infinity` and `-infinity`: the dates and timestamps after and before all others, as PostgreSQL has them.
//!
//! They are the ends of the integer range that stores dates (days) and timestamps (microseconds), so they compare,
//! sort, and are stored and aggregated as any other. Only *arithmetic* must know them: [`of_finite`] does so for a
//! kernel of DataFusion that does not, and [`time_cast`] for its casts.
//!
//! Source: PostgreSQL's `DATE_NOBEGIN`, `DATE_NOEND`, `DT_NOBEGIN` and `DT_NOEND`.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, ArrowNativeTypeOp, ArrowPrimitiveType, AsArray, BooleanArray, PrimitiveArray,
    StringArray,
};
use arrow::buffer::NullBuffer;
use arrow::compute::{CastOptions, cast_with_options, nullif};
use arrow::datatypes::{
    DataType, Date32Type, IntervalMonthDayNanoType, IntervalUnit, Time64MicrosecondType, TimeUnit,
    TimestampMicrosecondType,
};
use datafusion_common::{Result, ScalarValue, internal_err};

use super::interval_text;
use super::row_function::ArgumentFault;
use super::time_text::{self, TimeTextFault};

/// The first microsecond since 1970 beyond finite timestamps: 294247-01-01, whose year still fits whole. PostgreSQL
/// counts from 2000 and has thirty years more.
pub(super) const MOMENT_END_US: i64 = 9_223_371_331_200_000_000;

/// Which infinity a value is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Infinite {
    /// `-infinity`, before all others.
    Early,
    /// `infinity`, after all others.
    Late,
}

impl Infinite {
    /// The infinity that a date of so many days since 1970 is, if any.
    #[must_use]
    pub fn of_days(days: i32) -> Option<Self> {
        Self::of(days)
    }

    /// The infinity that a timestamp of so many microseconds since 1970 is, if any.
    #[must_use]
    pub fn of_micros(micros: i64) -> Option<Self> {
        Self::of(micros)
    }

    /// The infinity that `value` is, if it is a date or a timestamp.
    #[must_use]
    pub fn of_value(value: &ScalarValue) -> Option<Self> {
        match value {
            ScalarValue::Date32(days) => days.and_then(Self::of),
            ScalarValue::TimestampMicrosecond(micros, _) => micros.and_then(Self::of),
            _ => None,
        }
    }

    /// The infinity that `text` names, if any.
    #[must_use]
    pub fn of_text(text: &str) -> Option<Self> {
        let text = text.trim_ascii();
        let (unsigned, infinite) = match text.strip_prefix('-') {
            Some(unsigned) => (unsigned.trim_ascii_start(), Self::Early),
            None => (text, Self::Late),
        };
        unsigned.eq_ignore_ascii_case("infinity").then_some(infinite)
    }

    /// As days since 1970.
    #[must_use]
    pub fn days(self) -> i32 {
        self.integer()
    }

    /// As microseconds since 1970.
    #[must_use]
    pub fn micros(self) -> i64 {
        self.integer()
    }

    /// As PostgreSQL writes it.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            Self::Early => "-infinity",
            Self::Late => "infinity",
        }
    }

    /// As a double.
    #[must_use]
    pub fn double(self) -> f64 {
        match self {
            Self::Early => f64::NEG_INFINITY,
            Self::Late => f64::INFINITY,
        }
    }

    fn of<N: ArrowNativeTypeOp>(value: N) -> Option<Self> {
        match value {
            value if value.is_eq(N::MIN_TOTAL_ORDER) => Some(Self::Early),
            value if value.is_eq(N::MAX_TOTAL_ORDER) => Some(Self::Late),
            _ => None,
        }
    }

    fn integer<N: ArrowNativeTypeOp>(self) -> N {
        match self {
            Self::Early => N::MIN_TOTAL_ORDER,
            Self::Late => N::MAX_TOTAL_ORDER,
        }
    }
}

/// Infinite values, by their rows.
pub type InfiniteRows = Vec<(usize, Infinite)>;

/// The infinite values of `times`: dates, timestamps, or texts that name them.
#[must_use]
pub fn infinite_rows(times: &dyn Array) -> InfiniteRows {
    let of_text = |row: usize, text: &str| Some((row, Infinite::of_text(text)?));
    let texts = |texts: &mut dyn Iterator<Item = Option<&str>>| {
        texts.enumerate().filter_map(|(row, text)| of_text(row, text?)).collect()
    };
    match times.data_type() {
        DataType::Date32 => ends(times.as_primitive::<Date32Type>()),
        DataType::Timestamp(TimeUnit::Microsecond, _) => {
            ends(times.as_primitive::<TimestampMicrosecondType>())
        }
        DataType::Utf8 => texts(&mut times.as_string::<i32>().iter()),
        DataType::LargeUtf8 => texts(&mut times.as_string::<i64>().iter()),
        DataType::Utf8View => texts(&mut times.as_string_view().iter()),
        _ => Vec::new(),
    }
}

fn ends<T: ArrowPrimitiveType>(times: &PrimitiveArray<T>) -> InfiniteRows {
    let is_end = |value: &T::Native| Infinite::of(*value).is_some();
    if !times.values().iter().any(is_end) {
        return Vec::new();
    }
    let rows = times.iter().enumerate();
    rows.filter_map(|(row, value)| Some((row, Infinite::of(value?)?))).collect()
}

/// `times` with NULL in `rows`.
///
/// # Errors
/// Those of DataFusion.
pub fn without(times: &ArrayRef, rows: &[(usize, Infinite)]) -> Result<ArrayRef> {
    if rows.is_empty() {
        return Ok(Arc::clone(times));
    }
    // Kernels also compute on the values under NULLs.
    match times.data_type() {
        DataType::Date32 => return Ok(set::<Date32Type>(times, rows, |_| None)),
        DataType::Timestamp(TimeUnit::Microsecond, _) => {
            return Ok(set::<TimestampMicrosecondType>(times, rows, |_| None));
        }
        _ => {}
    }
    let mut is_left_out = vec![false; times.len()];
    for (row, _) in rows {
        if let Some(place) = is_left_out.get_mut(*row) {
            *place = true;
        }
    }
    Ok(nullif(times, &BooleanArray::from(is_left_out))?)
}

/// `values` with the infinities of `rows` filled in, if they are dates or timestamps.
#[must_use]
pub fn with(values: ArrayRef, rows: &[(usize, Infinite)]) -> ArrayRef {
    match values.data_type() {
        _ if rows.is_empty() => values,
        DataType::Date32 => set::<Date32Type>(&values, rows, |one| Some(one.integer())),
        DataType::Timestamp(TimeUnit::Microsecond, _) => {
            set::<TimestampMicrosecondType>(&values, rows, |one| Some(one.integer()))
        }
        _ => values,
    }
}

/// `values` with each of `rows` set to the given value of their type, or NULL.
pub(super) fn set<T: ArrowPrimitiveType>(
    values: &ArrayRef,
    rows: &[(usize, Infinite)],
    as_value: impl Fn(Infinite) -> Option<T::Native>,
) -> ArrayRef {
    let array = values.as_primitive::<T>();
    let mut numbers = array.values().to_vec();
    let mut valid: Vec<bool> = (0..array.len()).map(|row| array.is_valid(row)).collect();
    for (row, infinite) in rows {
        if let (Some(number), Some(valid)) = (numbers.get_mut(*row), valid.get_mut(*row)) {
            let value = as_value(*infinite);
            *number = value.unwrap_or_default();
            *valid = value.is_some();
        }
    }
    let array = PrimitiveArray::<T>::new(numbers.into(), Some(NullBuffer::from(valid)));
    Arc::new(array.with_data_type(values.data_type().clone()))
}

/// Applies `compute` to the finite values of `times` and keeps the others; a value that is not a time becomes NULL.
///
/// # Errors
/// Those of `compute`.
pub fn of_finite(
    times: &ArrayRef,
    compute: impl FnOnce(&ArrayRef) -> Result<ArrayRef>,
) -> Result<ArrayRef> {
    let rows = infinite_rows(times);
    let values = compute(&without(times, &rows)?)?;
    Ok(with(values, &rows))
}

/// Casts dates and timestamps to dates, timestamps and times of day, where DataFusion's casts support finite ones
/// alone, and texts to these and to intervals, by [`time_text`]. The time of day of infinite ones is NULL.
///
/// # Errors
/// Those of DataFusion; a date outside the range of timestamps; a text that is no value of the type.
pub fn time_cast(times: &ArrayRef, to: &DataType) -> Result<ArrayRef> {
    if times.data_type().is_string() {
        return times_of_texts(times, to);
    }
    let strict = CastOptions { safe: false, ..CastOptions::default() };
    of_finite(times, |times| {
        if let (DataType::Date32, DataType::Timestamp(..)) = (times.data_type(), to) {
            let day_end = MOMENT_END_US / 86_400_000_000;
            let days = times.as_primitive::<Date32Type>();
            if days.iter().flatten().any(|days| i64::from(days) >= day_end) {
                return Err(ArgumentFault::TimeOutOfRange { what: "date" }.into());
            }
        }
        Ok(cast_with_options(times, to, &strict)?)
    })
}

fn times_of_texts(texts: &ArrayRef, to: &DataType) -> Result<ArrayRef> {
    let texts = cast_with_options(texts, &DataType::Utf8, &CastOptions::default())?;
    let texts = texts.as_string::<i32>();
    match to {
        DataType::Date32 => read_texts::<Date32Type>(texts, "date", time_text::date),
        DataType::Time64(TimeUnit::Microsecond) => {
            read_texts::<Time64MicrosecondType>(texts, "time", time_text::time)
        }
        DataType::Timestamp(TimeUnit::Microsecond, None) => {
            read_texts::<TimestampMicrosecondType>(texts, "timestamp", time_text::timestamp)
        }
        DataType::Timestamp(TimeUnit::Microsecond, Some(_)) => {
            let name = "timestamp with time zone";
            let moments =
                read_texts::<TimestampMicrosecondType>(texts, name, time_text::timestamp_tz)?;
            let moments = moments.as_primitive::<TimestampMicrosecondType>().clone();
            Ok(Arc::new(moments.with_data_type(to.clone())))
        }
        DataType::Interval(IntervalUnit::MonthDayNano) => {
            read_texts::<IntervalMonthDayNanoType>(texts, "interval", interval_text::parse)
        }
        _ => internal_err!("no cast of texts to {to}"),
    }
}

/// Each text as `read` reads it, as values of the type `type_name`.
fn read_texts<T: ArrowPrimitiveType>(
    texts: &StringArray,
    type_name: &'static str,
    read: impl Fn(&str) -> Result<T::Native, TimeTextFault>,
) -> Result<ArrayRef> {
    let value = |text: Option<&str>| {
        let value = |text| read(text).map_err(|fault| ArgumentFault::text(fault, type_name, text));
        text.map(value).transpose()
    };
    let values: Result<PrimitiveArray<T>, ArgumentFault> = texts.iter().map(value).collect();
    Ok(Arc::new(values?))
}
