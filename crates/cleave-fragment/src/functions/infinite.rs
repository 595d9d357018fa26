//! `infinity` and `-infinity`: the dates and timestamps after and before all others, as PostgreSQL has them.
//!
//! They are the ends of the integer range that stores dates (days) and timestamps (microseconds), so they compare,
//! sort, and are stored and aggregated as any other. Only *arithmetic* must know them: [`of_finite`] does so for a
//! kernel of the engine that does not, and [`time_cast`] for its casts.
//!
//! Source: PostgreSQL's `DATE_NOBEGIN`, `DATE_NOEND`, `DT_NOBEGIN` and `DT_NOEND`.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, ArrowNativeTypeOp, ArrowPrimitiveType, AsArray, BooleanArray, PrimitiveArray,
    StringArray, Time64MicrosecondArray,
};
use arrow::buffer::NullBuffer;
use arrow::compute::{CastOptions, cast_with_options, nullif};
use arrow::datatypes::{DataType, Date32Type, TimeUnit, TimestampMicrosecondType};
use datafusion_common::{Result, ScalarValue};

use super::row_function::ArgumentFault;

/// The first microsecond since 1970 beyond finite timestamps, as in PostgreSQL: 294277-01-01.
const MOMENT_END_US: i64 = 9_223_371_331_200_000_000;

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
/// Those of the engine.
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

/// Casts dates, timestamps and texts to dates, timestamps and times of day, where the engine's casts support finite
/// ones alone. The time of day of infinite ones is NULL.
///
/// # Errors
/// Those of the engine; a date outside the range of timestamps.
pub fn time_cast(times: &ArrayRef, to: &DataType) -> Result<ArrayRef> {
    let strict = CastOptions { safe: false, ..CastOptions::default() };
    of_finite(times, |times| {
        if let (DataType::Date32, DataType::Timestamp(..)) = (times.data_type(), to) {
            let day_end = MOMENT_END_US / 86_400_000_000;
            let days = times.as_primitive::<Date32Type>();
            if days.iter().flatten().any(|days| i64::from(days) >= day_end) {
                return Err(ArgumentFault::TimeOutOfRange { what: "date" }.into());
            }
        }
        if times.data_type().is_string()
            && *to == DataType::Time64(TimeUnit::Microsecond)
            && let Some(read) = times_of_day(times)?
        {
            return Ok(Arc::new(read));
        }
        if times.data_type().is_string() && *to == DataType::Date32 {
            return Ok(cast_with_options(&days_of_texts(times)?, to, &strict)?);
        }
        if !times.data_type().is_string() || !matches!(to, DataType::Timestamp(..)) {
            return Ok(cast_with_options(times, to, &strict)?);
        }
        let (texts, rounded_up) = with_six_digits(times)?;
        let texts = match to {
            DataType::Timestamp(_, None) => without_zones(&texts)?,
            _ => texts,
        };
        let moments = cast_with_options(&texts, to, &strict)?;
        Ok(match to {
            DataType::Timestamp(TimeUnit::Microsecond, _) => later(&moments, &rounded_up),
            _ => moments,
        })
    })
}

/// Texts without the time of day behind a day, and with the day that `epoch` is.
fn days_of_texts(texts: &ArrayRef) -> Result<ArrayRef> {
    let plain = cast_with_options(texts, &DataType::Utf8, &CastOptions::default())?;
    let day = |text: &str| -> Option<String> {
        let text = text.trim_ascii();
        if text.eq_ignore_ascii_case("epoch") {
            return Some("1970-01-01".to_owned());
        }
        let (day, clock) = text.split_once([' ', 'T'])?;
        let zone = clock.find(['+', '-', 'Z', 'z']).unwrap_or(clock.len());
        time_of_day(clock.get(..zone)?.trim_ascii_end())?;
        Some(day.to_owned())
    };
    let plain = plain.as_string::<i32>();
    let days: Vec<Option<String>> = plain.iter().map(|text| day(text?)).collect();
    if days.iter().all(Option::is_none) {
        return Ok(Arc::clone(texts));
    }
    let rows = plain.iter().zip(&days).map(|(text, day)| day.as_deref().or(text));
    Ok(Arc::new(rows.collect::<StringArray>()))
}

/// The times of day that texts spell in digits alone; None: one of them is for the engine to read, or to refuse.
fn times_of_day(texts: &ArrayRef) -> Result<Option<Time64MicrosecondArray>> {
    let texts = cast_with_options(texts, &DataType::Utf8, &CastOptions::default())?;
    let texts = texts.as_string::<i32>().iter();
    let read = texts.map(|text| match text {
        Some(text) => time_of_day(text.trim_ascii()).map(Some),
        None => Some(None),
    });
    Ok(read.collect::<Option<Vec<Option<i64>>>>().map(Time64MicrosecondArray::from))
}

/// Texts with at most six digits behind the point of a time, and the rows that are rounded up: the engine's cast leaves
/// further digits out, and does not know `epoch`.
fn with_six_digits(texts: &ArrayRef) -> Result<(ArrayRef, Vec<usize>)> {
    let plain = cast_with_options(texts, &DataType::Utf8, &CastOptions::default())?;
    let mut rounded_up = Vec::new();
    let mut cut = |row: usize, text: &str| {
        if text.trim_ascii().eq_ignore_ascii_case("epoch") {
            return Some("1970-01-01 00:00:00".to_owned());
        }
        let fraction = text.rfind('.')? + 1;
        text.get(..fraction).filter(|clock| clock.contains(':'))?;
        let digits = text.get(fraction..)?;
        let count = digits.bytes().take_while(u8::is_ascii_digit).count();
        let seventh = digits.as_bytes().get(6).filter(|_| count > 6)?;
        if *seventh >= b'5' {
            rounded_up.push(row);
        }
        Some(format!("{}{}", text.get(..fraction + 6)?, digits.get(count..)?))
    };
    let plain = plain.as_string::<i32>();
    let cuts: Vec<Option<String>> =
        plain.iter().enumerate().map(|(row, text)| cut(row, text?)).collect();
    if cuts.iter().all(Option::is_none) {
        return Ok((Arc::clone(texts), rounded_up));
    }
    let rows = plain.iter().zip(&cuts).map(|(text, cut)| cut.as_deref().or(text));
    Ok((Arc::new(rows.collect::<StringArray>()), rounded_up))
}

/// `moments` with those of `rows` one microsecond later.
fn later(moments: &ArrayRef, rows: &[usize]) -> ArrayRef {
    if rows.is_empty() {
        return Arc::clone(moments);
    }
    let array = moments.as_primitive::<TimestampMicrosecondType>();
    let mut micros = array.values().to_vec();
    for row in rows {
        if let Some(micros) = micros.get_mut(*row) {
            *micros = micros.saturating_add(1);
        }
    }
    let array =
        PrimitiveArray::<TimestampMicrosecondType>::new(micros.into(), array.nulls().cloned());
    Arc::new(array.with_data_type(moments.data_type().clone()))
}

/// `HH:MM[:SS[.digits]]`, with or without AM or PM, `HHMMSS` or `HHMM` in microseconds, rounded; `allballs` is
/// midnight.
fn time_of_day(text: &str) -> Option<i64> {
    if text.eq_ignore_ascii_case("allballs") {
        return Some(0);
    }
    let half = text.len().checked_sub(2).and_then(|at| text.split_at_checked(at));
    let Some((clock, half)) =
        half.filter(|(_, half)| half.eq_ignore_ascii_case("am") || half.eq_ignore_ascii_case("pm"))
    else {
        return time_of_clock(text);
    };
    const HOUR_US: i64 = 3_600_000_000;
    let time = time_of_clock(clock.trim_ascii_end())?;
    let is_after = half.eq_ignore_ascii_case("pm");
    match time / HOUR_US {
        12 if !is_after => Some(time - 12 * HOUR_US),
        ..12 if is_after => Some(time + 12 * HOUR_US),
        13.. => None,
        _ => Some(time),
    }
}

fn time_of_clock(text: &str) -> Option<i64> {
    let number = |digits: &str| -> Option<i64> {
        let is_number =
            (1..=2).contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_digit());
        is_number.then(|| digits.parse().ok())?
    };
    let (clock, fraction) = text.split_once('.').unwrap_or((text, ""));
    let parts: Vec<&str> = match clock.contains(':') {
        true => clock.split(':').collect(),
        false if clock.len() == 4 => vec![clock.get(..2)?, clock.get(2..)?],
        false if clock.len() == 6 => vec![clock.get(..2)?, clock.get(2..4)?, clock.get(4..)?],
        false => return None,
    };
    let (hour, minute, second) = match parts.as_slice() {
        [hour, minute] if fraction.is_empty() => (number(hour)?, number(minute)?, 0),
        [hour, minute, second] => (number(hour)?, number(minute)?, number(second)?),
        _ => return None,
    };
    if hour > 24 || minute > 59 || second > 60 || !fraction.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let micros = (0..6).fold(0, |micros, place| {
        let digit = fraction.as_bytes().get(place).map_or(0, |digit| i64::from(digit - b'0'));
        micros * 10 + digit
    });
    let rounded = fraction.as_bytes().get(6).is_some_and(|digit| *digit >= b'5');
    let time = ((hour * 60 + minute) * 60 + second) * 1_000_000 + micros + i64::from(rounded);
    (time <= 86_400_000_000).then_some(time)
}

/// Texts without the zone behind a time of day, which is ignored where the result has none.
fn without_zones(texts: &ArrayRef) -> Result<ArrayRef> {
    let texts = cast_with_options(texts, &DataType::Utf8, &CastOptions::default())?;
    let cut = |text: &str| {
        let colon = text.find(':')?;
        let zone = text.get(colon..)?.find(['+', '-', 'Z', 'z'])?;
        Some(text.get(..colon + zone)?.trim_end().to_owned())
    };
    let texts = texts.as_string::<i32>().iter();
    let texts: StringArray =
        texts.map(|text| text.map(|text| cut(text).unwrap_or_else(|| text.to_owned()))).collect();
    Ok(Arc::new(texts))
}
