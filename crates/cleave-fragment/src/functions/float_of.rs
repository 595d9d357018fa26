//! Converts each numeric to its nearest float, as PostgreSQL does by reading the digits; each float to a numeric of the
//! digits that a float is sure to have, 15 or 6; and doubles and texts to floats within their range.
//!
//! Arrow converts the unscaled digits to a double, which rounds those above 2⁵³, and divides it by a power of ten,
//! which rounds once more. It multiplies a float by a power of ten, and shows digits that the float does not have.
//!
//! Source: PostgreSQL's `numeric_float8`, `numeric_float4`, `float8_numeric` and `float4_numeric`; Clinger, "How to
//! Read Floating Point Numbers Accurately".

use std::fmt::Display;
use std::str::FromStr;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, Decimal256Array, Float32Array, Float64Array, PrimitiveArray,
};
use arrow::compute::{CastOptions, cast, cast_with_options};
use arrow::datatypes::{
    DataType, Decimal128Type, Decimal256Type, DecimalType, Float32Type, Float64Type, i256,
};
use arrow::error::ArrowError;
use datafusion_common::utils::take_function_args;
use datafusion_common::{DataFusionError, Result, internal_datafusion_err};
use datafusion_expr::ScalarUDF;

use super::numbers::check_range;
use super::quotient::NUMERIC;
use super::row_function::{ArgumentFault, row_function};

/// Digits that every decimal number keeps as a `real`, and as a `double precision`.
const REAL_DIGITS: usize = f32::DIGITS as usize;
const DOUBLE_DIGITS: usize = f64::DIGITS as usize;
/// Digits behind the point of [`NUMERIC_OF_FLOAT`].
const SCALE: i8 = 38;
/// Integers up to this power of ten, inclusive, are exact doubles.
const EXACT_POWER: i8 = 22;
/// Integers of so many digits are exact doubles.
const EXACT_DIGITS: u8 = 15;

/// Converts a numeric to the nearest `double precision`.
pub fn double_of() -> Arc<ScalarUDF> {
    row_function(
        "double_of",
        one_numeric,
        |_| DataType::Float64,
        |args| {
            let [numerics] = take_function_args("double_of", args)?;
            floats_of(numerics, &DataType::Float64)
        },
    )
}

/// Converts a numeric to the nearest `real`.
pub fn real_of() -> Arc<ScalarUDF> {
    row_function(
        "real_of",
        one_numeric,
        |_| DataType::Float32,
        |args| {
            let [numerics] = take_function_args("real_of", args)?;
            floats_of(numerics, &DataType::Float32)
        },
    )
}

/// The function that converts values of type `from` to floats of type `to`, if Arrow's cast does not always give the
/// nearest one, or gives infinity or zero for others.
pub fn float_of(from: &DataType, to: &DataType) -> Option<Arc<ScalarUDF>> {
    let function = match to {
        DataType::Float64 => double_of(),
        DataType::Float32 => real_of(),
        _ => return None,
    };
    match from {
        // Dividend and divisor are exact doubles.
        DataType::Decimal128(precision, 0..=EXACT_POWER)
            if *precision <= EXACT_DIGITS && *to == DataType::Float64 =>
        {
            None
        }
        DataType::Decimal128(..) | DataType::Decimal256(..) => Some(function),
        DataType::Float64 if *to == DataType::Float32 => Some(function),
        from if from.is_string() => Some(function),
        _ => None,
    }
}

/// `numerics`, doubles or texts as floats of type `to`; other types as Arrow casts them.
///
/// # Errors
/// Arrow's; a value out of the range of the type.
pub fn floats_of(numerics: &ArrayRef, to: &DataType) -> Result<ArrayRef> {
    Ok(match (numerics.data_type(), to) {
        (DataType::Decimal128(_, scale), DataType::Float64) => {
            let values = numerics.as_primitive::<Decimal128Type>();
            Arc::new(doubles(values, *scale, |value| small(value, *scale))?)
        }
        (DataType::Decimal256(_, scale), DataType::Float64) => {
            let values = numerics.as_primitive::<Decimal256Type>();
            Arc::new(doubles(values, *scale, |value| small(value.to_i128()?, *scale))?)
        }
        (DataType::Decimal128(_, scale), DataType::Float32) => {
            Arc::new(reals(numerics.as_primitive::<Decimal128Type>(), *scale)?)
        }
        (DataType::Decimal256(_, scale), DataType::Float32) => {
            Arc::new(reals(numerics.as_primitive::<Decimal256Type>(), *scale)?)
        }
        (DataType::Float64, DataType::Float32) => {
            let doubles = numerics.as_primitive::<Float64Type>();
            Arc::new(doubles.try_unary::<_, Float32Type, _>(real)?)
        }
        (from, _) if from.is_string() => floats_of_texts(numerics, to)?,
        _ => cast(numerics, to)?,
    })
}

#[expect(clippy::cast_possible_truncation, reason = "checked below")]
fn real(double: f64) -> Result<f32, ArrowError> {
    let real = double as f32;
    if double.is_finite() && !real.is_normal() {
        check_range(real.into(), double == 0.0)?;
    }
    Ok(real)
}

/// # Errors
/// Those of [`floats_of`].
fn floats_of_texts(texts: &ArrayRef, to: &DataType) -> Result<ArrayRef> {
    let strict = CastOptions { safe: false, ..CastOptions::default() };
    let floats = cast_with_options(texts, to, &strict)?;
    let doubles = cast(&floats, &DataType::Float64)?;
    let mut plain = None;
    for (row, double) in doubles.as_primitive::<Float64Type>().iter().enumerate() {
        let Some(double) = double.filter(|double| !double.is_normal()) else { continue };
        let texts = match &plain {
            Some(texts) => texts,
            None => plain.insert(cast(texts, &DataType::Utf8)?),
        };
        let text = texts.as_string::<i32>().value(row).trim();
        // `inf` is what it says, and so are zeros.
        let mantissa = text.split(['e', 'E']).next().unwrap_or_default();
        let is_number = text.bytes().any(|byte| byte.is_ascii_digit());
        let is_zero = !mantissa.bytes().any(|byte| matches!(byte, b'1'..=b'9'));
        if is_number && (double.is_infinite() || double == 0.0 && !is_zero) {
            let name = if *to == DataType::Float32 { "real" } else { "double precision" };
            let reason = format!("\"{text}\" is out of range for type {name}");
            return Err(ArgumentFault::OutOfRange { reason }.into());
        }
    }
    Ok(floats)
}

/// The type of [`numeric_of`]: every float below 10³⁸, to 38 digits behind the point.
const NUMERIC_OF_FLOAT: DataType = NUMERIC;

/// Converts a float to a numeric with its first 15 digits, of `real` 6.
pub fn numeric_of() -> Arc<ScalarUDF> {
    row_function(
        "numeric_of",
        one_float,
        |_| NUMERIC_OF_FLOAT,
        |args| {
            let [floats] = take_function_args("numeric_of", args)?;
            numerics_of(floats, Beyond::Error)
        },
    )
}

/// The same for a numeric of fewer digits: those beyond the type's are rounded.
pub fn rounded_numeric_of() -> Arc<ScalarUDF> {
    row_function(
        "rounded_numeric_of",
        one_float,
        |_| NUMERIC_OF_FLOAT,
        |args| {
            let [floats] = take_function_args("rounded_numeric_of", args)?;
            numerics_of(floats, Beyond::Rounded)
        },
    )
}

fn one_float(given: &[DataType]) -> Option<Vec<DataType>> {
    match given {
        [DataType::Float32 | DataType::Float64] => Some(given.to_vec()),
        _ => None,
    }
}

/// What becomes of digits beyond the 38th behind the point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Beyond {
    /// They are rounded.
    Rounded,
    /// There are none in a numeric.
    Error,
}

/// `floats` as numerics of type [`NUMERIC_OF_FLOAT`].
///
/// # Errors
/// For a value that is no finite number, too large, or with too many digits.
pub(super) fn numerics_of(floats: &ArrayRef, beyond: Beyond) -> Result<ArrayRef> {
    let numerics: Decimal256Array = match floats.data_type() {
        DataType::Float32 => floats
            .as_primitive::<Float32Type>()
            .try_unary(|value| unscaled(&format!("{value:.*e}", REAL_DIGITS - 1), beyond))?,
        _ => floats
            .as_primitive::<Float64Type>()
            .try_unary(|value| unscaled(&format!("{value:.*e}", DOUBLE_DIGITS - 1), beyond))?,
    };
    Ok(Arc::new(numerics.with_precision_and_scale(76, SCALE)?))
}

/// The number that `digits` writes as `-1.25e3`, times 10^[`SCALE`], rounded half away from zero.
fn unscaled(digits: &str, beyond: Beyond) -> Result<i256, ArrowError> {
    let too_large = || {
        let reason = "value overflows numeric format, which holds finite numbers below 10^38 with \
                      38 digits behind the point"
            .to_owned();
        ArrowError::ExternalError(Box::new(ArgumentFault::OutOfRange { reason }))
    };
    let (mantissa, exponent) = digits.split_once('e').ok_or_else(too_large)?;
    let exponent: i32 = exponent.parse().map_err(|_| too_large())?;
    let whole: String = mantissa.chars().filter(|character| *character != '.').collect();
    let whole: i64 = whole.parse().map_err(|_| too_large())?;
    let behind = mantissa.split_once('.').map_or(0, |(_, behind)| behind.len());
    let behind = i32::try_from(behind).map_err(|_| too_large())?;
    let power = exponent - behind + i32::from(SCALE);
    let ten = |power: i32| i256::from_i128(10).checked_pow(power.unsigned_abs());
    if power >= 0 {
        let power = ten(power).filter(|_| exponent < i32::from(SCALE)).ok_or_else(too_large)?;
        return i256::from_i128(whole.into()).checked_mul(power).ok_or_else(too_large);
    }
    // The mantissa has 15 digits: below this all of them are lost.
    let Some(power) = ten(power).filter(|_| power > -20) else {
        return if beyond == Beyond::Error && whole != 0 {
            Err(too_large())
        } else {
            Ok(i256::ZERO)
        };
    };
    if beyond == Beyond::Error && i256::from_i128(whole.into()) % power != i256::ZERO {
        return Err(too_large());
    }
    let half = power / i256::from_i128(2);
    let half = if whole < 0 { -half } else { half };
    Ok((i256::from_i128(whole.into()) + half) / power)
}

fn one_numeric(given: &[DataType]) -> Option<Vec<DataType>> {
    match given {
        [DataType::Decimal128(..) | DataType::Decimal256(..) | DataType::Float64] => {
            Some(given.to_vec())
        }
        [text] if text.is_string() => Some(given.to_vec()),
        _ => None,
    }
}

fn doubles<T: DecimalType>(
    values: &PrimitiveArray<T>,
    scale: i8,
    small: impl Fn(T::Native) -> Option<f64>,
) -> Result<Float64Array>
where
    T::Native: Display,
{
    values
        .iter()
        .map(|value| {
            value.map(|value| small(value).map_or_else(|| read(value, scale), Ok)).transpose()
        })
        .collect()
}

fn reals<T: DecimalType>(values: &PrimitiveArray<T>, scale: i8) -> Result<Float32Array>
where
    T::Native: Display,
{
    values.iter().map(|value| value.map(|value| read(value, scale)).transpose()).collect()
}

/// `value` · 10^-`scale`, if one division of two doubles gives it.
fn small(value: i128, scale: i8) -> Option<f64> {
    /// From this integer on, not every integer is a double.
    const ALL_EXACT: u128 = 1 << f64::MANTISSA_DIGITS;
    if value.unsigned_abs() > ALL_EXACT || !(0..=EXACT_POWER).contains(&scale) {
        return None;
    }
    #[expect(clippy::cast_precision_loss, reason = "it is a double")]
    let value = value as f64;
    Some(value / 10_f64.powi(scale.into()))
}

/// `value` · 10^-`scale`, parsed from its digits.
fn read<F: FromStr>(value: impl Display, scale: i8) -> Result<F, DataFusionError> {
    let text = format!("{value}e{}", -i16::from(scale));
    text.parse().map_err(|_| internal_datafusion_err!("{text} is no number"))
}

#[cfg(test)]
mod tests;
