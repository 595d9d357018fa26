//! Converts each numeric to its nearest float, as PostgreSQL does by reading the digits.
//!
//! Arrow converts the unscaled digits to a double, which rounds those above 2⁵³, and divides it by a power of ten,
//! which rounds once more.
//!
//! Source: PostgreSQL's `numeric_float8` and `numeric_float4`; Clinger, "How to Read Floating Point Numbers
//! Accurately".

use std::fmt::Display;
use std::str::FromStr;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Float32Array, Float64Array, PrimitiveArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Decimal128Type, Decimal256Type, DecimalType};
use datafusion_common::utils::take_function_args;
use datafusion_common::{DataFusionError, Result, internal_datafusion_err};
use datafusion_expr::ScalarUDF;

use super::row_function::row_function;

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

/// The function that converts numerics of type `from` to floats of type `to`, if Arrow's cast does not always give the
/// nearest one.
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
        _ => None,
    }
}

/// `numerics` as floats of type `to`; other types as Arrow casts them.
///
/// # Errors
/// Arrow's.
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
        _ => cast(numerics, to)?,
    })
}

fn one_numeric(given: &[DataType]) -> Option<Vec<DataType>> {
    match given {
        [DataType::Decimal128(..) | DataType::Decimal256(..)] => Some(given.to_vec()),
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
