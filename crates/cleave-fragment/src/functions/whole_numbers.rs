//! Functions of whole numbers with PostgreSQL's types: DataFusion's give bigints for all of them.
//!
//! Source: PostgreSQL's `int4gcd_internal`, `int4lcm` and `numeric_fac`.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Decimal128Array, StringArray};
use arrow::compute::{cast, try_binary, try_unary};
use arrow::datatypes::{DECIMAL128_MAX_PRECISION, DataType, Decimal128Type, Int32Type, Int64Type};
use arrow::error::ArrowError;
use datafusion_common::Result;
use datafusion_common::utils::take_function_args;
use datafusion_expr::ScalarUDF;

use super::row_function::{ArgumentFault, row_function};

/// The greatest common divisor.
pub fn gcd() -> Arc<ScalarUDF> {
    row_function("gcd", two_whole, first, |args| of_both(args, divisor))
}

/// The least common multiple.
pub fn lcm() -> Arc<ScalarUDF> {
    row_function("lcm", two_whole, first, |args| {
        of_both(args, |left, right| match divisor(left, right) {
            0 => 0,
            divisor => (left / divisor * right).abs(),
        })
    })
}

/// The product of the numbers up to this one, as a numeric.
pub fn factorial() -> Arc<ScalarUDF> {
    let takes = |given: &[DataType]| match given {
        [given] if is_whole(given) => Some(vec![DataType::Int64]),
        _ => None,
    };
    let gives = |_: &[DataType]| DataType::Decimal128(DECIMAL128_MAX_PRECISION, 0);
    row_function("factorial", takes, gives, |args| {
        let [numbers] = take_function_args("factorial", args)?;
        let fault = |reason: &str| {
            let fault = ArgumentFault::OutOfRange { reason: reason.to_owned() };
            ArrowError::ExternalError(Box::new(fault))
        };
        let products: Decimal128Array = try_unary::<Int64Type, _, Decimal128Type>(
            numbers.as_primitive::<Int64Type>(),
            |number| match number {
                ..0 => Err(fault("factorial of a negative number is undefined")),
                0..=33 => Ok((1..=i128::from(number)).product()),
                _ => Err(fault("value overflows numeric format")),
            },
        )?;
        Ok(Arc::new(products.with_precision_and_scale(DECIMAL128_MAX_PRECISION, 0)?))
    })
}

/// A whole number in hexadecimal digits, a negative one as the bits of its type.
pub fn to_hex() -> Arc<ScalarUDF> {
    let takes = |given: &[DataType]| match given {
        [DataType::Int16 | DataType::Int32] => Some(vec![DataType::Int32]),
        [DataType::Int64 | DataType::UInt64 | DataType::Null] => Some(vec![DataType::Int64]),
        _ => None,
    };
    row_function(
        "to_hex",
        takes,
        |_| DataType::Utf8,
        |args| {
            let [numbers] = take_function_args("to_hex", args)?;
            let texts: StringArray = match numbers.data_type() {
                DataType::Int32 => {
                    let digits = |number: i32| format!("{number:x}");
                    let numbers = numbers.as_primitive::<Int32Type>();
                    numbers.iter().map(|number| number.map(digits)).collect()
                }
                _ => {
                    let digits = |number: i64| format!("{number:x}");
                    let numbers = numbers.as_primitive::<Int64Type>();
                    numbers.iter().map(|number| number.map(digits)).collect()
                }
            };
            Ok(Arc::new(texts))
        },
    )
}

fn is_whole(given: &DataType) -> bool {
    matches!(
        given,
        DataType::Int16 | DataType::Int32 | DataType::Int64 | DataType::UInt64 | DataType::Null
    )
}

/// Two integers, or two bigints if one of them is.
fn two_whole(given: &[DataType]) -> Option<Vec<DataType>> {
    let [left, right] = given else { return None };
    if !is_whole(left) || !is_whole(right) {
        return None;
    }
    let is_wide = |given: &DataType| matches!(given, DataType::Int64 | DataType::UInt64);
    let own = if is_wide(left) || is_wide(right) { DataType::Int64 } else { DataType::Int32 };
    Some(vec![own.clone(), own])
}

fn first(given: &[DataType]) -> DataType {
    match two_whole(given).as_deref() {
        Some([own, _]) => own.clone(),
        _ => DataType::Int64,
    }
}

/// Computed in 128 bits, in which nothing overflows.
fn of_both(args: &[ArrayRef], of: fn(i128, i128) -> i128) -> Result<ArrayRef> {
    let [left, right] = take_function_args("gcd", args)?;
    let own = left.data_type().clone();
    let what = if own == DataType::Int32 { "integer" } else { "bigint" };
    let is_narrow = own == DataType::Int32;
    let (left, right) = (cast(left, &DataType::Int64)?, cast(right, &DataType::Int64)?);
    let results = try_binary::<_, _, _, Int64Type>(
        left.as_primitive::<Int64Type>(),
        right.as_primitive::<Int64Type>(),
        |left: i64, right: i64| {
            let result = i64::try_from(of(left.into(), right.into())).ok();
            result
                .filter(|result| !is_narrow || i32::try_from(*result).is_ok())
                .ok_or_else(|| ArrowError::ArithmeticOverflow(format!("{what} out of range")))
        },
    )?;
    Ok(cast(&results, &own)?)
}

fn divisor(left: i128, right: i128) -> i128 {
    let (mut one, mut other) = (left.abs(), right.abs());
    while other != 0 {
        (one, other) = (other, one % other);
    }
    one
}
