//! Functions of numbers as PostgreSQL has them: [`sign`], [`div`], [`width_bucket`], [`checked_divide`]; and those of
//! DataFusion that give infinity or NaN where PostgreSQL gives an error ([`within_domains`]).
//!
//! Source: PostgreSQL's documentation, "Mathematical Functions"; its `float8_div` and `width_bucket_numeric`.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Decimal128Array, Float64Array, Int32Array};
use arrow::compute::kernels::cmp::gt_eq;
use arrow::compute::{cast, try_binary};
use arrow::datatypes::{
    DECIMAL128_MAX_PRECISION, DataType, Decimal128Type, Float32Type, Float64Type, Int64Type, i256,
};
use arrow::error::ArrowError;
use datafusion_common::utils::take_function_args;
use datafusion_common::{DataFusionError, Result, ScalarValue};
use datafusion_expr::type_coercion::binary::comparison_coercion;
use datafusion_expr::{
    ColumnarValue, Documentation, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl,
    Signature,
};

use super::row_function::{ArgumentFault, row_function};

/// `sign(x)`: -1, 0 or 1; numeric for a numeric, else a double.
pub fn sign() -> Arc<ScalarUDF> {
    row_function("sign", |given| one(given, numeric_or_double), sign_type, compute_sign)
}

/// `div(a, b)`: the whole part of `a / b`, as a numeric.
pub fn div() -> Arc<ScalarUDF> {
    let takes = |given: &[DataType]| match given {
        [left, right] => Some(vec![numeric(left)?, numeric(right)?]),
        _ => None,
    };
    row_function("div", takes, |_| DataType::Decimal128(DECIMAL128_MAX_PRECISION, 0), compute_div)
}

/// `width_bucket(x, low, high, count)` and `width_bucket(x, thresholds)`.
pub fn width_bucket() -> Arc<ScalarUDF> {
    row_function("width_bucket", bucket_types, |_| DataType::Int32, compute_bucket)
}

/// `a / b` of doubles or of reals, with an error if `b` is zero or the result overflows or underflows.
pub fn checked_divide() -> Arc<ScalarUDF> {
    let takes = |given: &[DataType]| match given {
        [left, right] if left == right && left.is_floating() => Some(given.to_vec()),
        _ => None,
    };
    let gives = |given: &[DataType]| given.first().cloned().unwrap_or(DataType::Float64);
    row_function("checked_divide", takes, gives, compute_quotient)
}

/// Those among `functions` that are undefined for some numbers, with an error for these.
pub fn within_domains(functions: impl Iterator<Item = Arc<ScalarUDF>>) -> Vec<Arc<ScalarUDF>> {
    let of = |inner: Arc<ScalarUDF>| {
        let domain: Domain = match inner.name() {
            "ln" | "log" | "log2" | "log10" => Domain::Positive,
            "acos" | "asin" | "atanh" => Domain::Within { low: -1, high: Some(1) },
            "acosh" => Domain::Within { low: 1, high: None },
            "sin" | "cos" | "tan" | "cot" => Domain::Finite,
            "sqrt" => Domain::NotNegative,
            "exp" => Domain::Exponent,
            "power" => Domain::Power,
            _ => return None,
        };
        Some(Arc::new(ScalarUDF::new_from_impl(WithinDomain { inner, domain })))
    };
    functions.filter_map(of).collect()
}

fn one(given: &[DataType], of: impl Fn(&DataType) -> Option<DataType>) -> Option<Vec<DataType>> {
    match given {
        [given] => Some(vec![of(given)?]),
        _ => None,
    }
}

/// The numeric type for an exact number.
fn numeric(given: &DataType) -> Option<DataType> {
    Some(match given {
        DataType::Decimal128(..) => given.clone(),
        // Further digits of a quotient are not significant.
        DataType::Decimal256(..) => DataType::Decimal128(DECIMAL128_MAX_PRECISION, 18),
        DataType::Int8 | DataType::Int16 | DataType::Int32 | DataType::Int64 => {
            DataType::Decimal128(19, 0)
        }
        DataType::UInt8 | DataType::UInt16 | DataType::UInt32 | DataType::UInt64 => {
            DataType::Decimal128(20, 0)
        }
        DataType::Null | DataType::Utf8 => DataType::Decimal128(DECIMAL128_MAX_PRECISION, 10),
        _ => return None,
    })
}

fn numeric_or_double(given: &DataType) -> Option<DataType> {
    match given {
        DataType::Decimal128(..) | DataType::Decimal256(..) => numeric(given),
        given if given.is_numeric() || matches!(given, DataType::Null | DataType::Utf8) => {
            Some(DataType::Float64)
        }
        _ => None,
    }
}

fn sign_type(given: &[DataType]) -> DataType {
    match given {
        [DataType::Decimal128(..) | DataType::Decimal256(..)] => DataType::Decimal128(1, 0),
        _ => DataType::Float64,
    }
}

fn compute_sign(args: &[ArrayRef]) -> Result<ArrayRef> {
    let [values] = take_function_args("sign", args)?;
    Ok(match values.data_type() {
        DataType::Decimal128(..) => {
            let signs: Decimal128Array =
                values.as_primitive::<Decimal128Type>().unary(i128::signum);
            Arc::new(signs.with_precision_and_scale(1, 0)?)
        }
        _ => {
            let sign = |value: f64| match value {
                value if value > 0.0 => 1.0,
                value if value < 0.0 => -1.0,
                _ => 0.0,
            };
            let signs: Float64Array = values.as_primitive::<Float64Type>().unary(sign);
            Arc::new(signs)
        }
    })
}

fn overflow(what: &str) -> ArrowError {
    ArrowError::ArithmeticOverflow(format!("{what} out of range"))
}

/// `value` with so many zeros appended.
fn scaled(value: i128, digits: i8) -> i256 {
    let ten = i256::from_i128(10);
    // Twice 38 digits fit.
    ten.wrapping_pow(u32::from(digits.unsigned_abs())).wrapping_mul(i256::from_i128(value))
}

fn scale_of(array: &ArrayRef) -> i8 {
    match array.data_type() {
        DataType::Decimal128(_, scale) => (*scale).max(0),
        _ => 0,
    }
}

fn compute_div(args: &[ArrayRef]) -> Result<ArrayRef> {
    let [left, right] = take_function_args("div", args)?;
    let (left_scale, right_scale) = (scale_of(left), scale_of(right));
    let (left, right) =
        (left.as_primitive::<Decimal128Type>(), right.as_primitive::<Decimal128Type>());
    let quotient = |left: i128, right: i128| {
        if right == 0 {
            return Err(ArrowError::DivideByZero);
        }
        let quotient = scaled(left, right_scale).wrapping_div(scaled(right, left_scale));
        quotient.to_i128().ok_or_else(|| overflow("numeric"))
    };
    let quotients: Decimal128Array = try_binary(left, right, quotient)?;
    let quotients = quotients.with_precision_and_scale(DECIMAL128_MAX_PRECISION, 0)?;
    quotients.validate_decimal_precision(DECIMAL128_MAX_PRECISION)?;
    Ok(Arc::new(quotients))
}

fn bucket_types(given: &[DataType]) -> Option<Vec<DataType>> {
    match given {
        [value, DataType::List(item)] => {
            let common = comparison_coercion(value, item.data_type())?;
            Some(vec![common.clone(), DataType::new_list(common, true)])
        }
        [bounds @ .., count] if bounds.len() == 3 => {
            if !count.is_integer() && !count.is_null() {
                return None;
            }
            let exact: Option<Vec<DataType>> = bounds.iter().map(numeric).collect();
            let mut types = match exact {
                Some(types) => types,
                None => bounds
                    .iter()
                    .map(|given| numeric_or_double(given).map(|_| DataType::Float64))
                    .collect::<Option<_>>()?,
            };
            types.push(DataType::Int64);
            Some(types)
        }
        _ => None,
    }
}

fn compute_bucket(args: &[ArrayRef]) -> Result<ArrayRef> {
    if let [values, thresholds] = args {
        return compute_threshold(values, thresholds);
    }
    let [values, lows, highs, counts] = take_function_args("width_bucket", args)?;
    let counts = counts.as_primitive::<Int64Type>();
    let scale = [values, lows, highs].into_iter().map(scale_of).max().unwrap_or(0);
    let is_double = *values.data_type() == DataType::Float64;
    let bucket = |row: usize| -> Result<Option<i32>> {
        if args.iter().any(|arg| arg.is_null(row)) {
            return Ok(None);
        }
        let count = counts.value(row);
        let bucket = if is_double {
            let of = |array: &ArrayRef| array.as_primitive::<Float64Type>().value(row);
            bucket_of_doubles(of(values), of(lows), of(highs), count)?
        } else {
            let of = |array: &ArrayRef| {
                scaled(array.as_primitive::<Decimal128Type>().value(row), scale - scale_of(array))
            };
            bucket_of_numerics(of(values), of(lows), of(highs), count)?
        };
        Ok(Some(i32::try_from(bucket).map_err(|_| overflow("integer"))?))
    };
    let buckets = (0..values.len()).map(bucket).collect::<Result<Int32Array>>()?;
    Ok(Arc::new(buckets))
}

const NO_BUCKETS: ArgumentFault =
    ArgumentFault::Buckets { reason: "count must be greater than zero" };
const NO_WIDTH: ArgumentFault =
    ArgumentFault::Buckets { reason: "lower bound cannot equal upper bound" };
const NO_NUMBER: ArgumentFault =
    ArgumentFault::Buckets { reason: "operand, lower bound, and upper bound cannot be NaN" };
const NO_END: ArgumentFault =
    ArgumentFault::Buckets { reason: "lower and upper bounds must be finite" };

fn bucket_of_doubles(value: f64, low: f64, high: f64, count: i64) -> Result<i64, ArgumentFault> {
    if count <= 0 {
        return Err(NO_BUCKETS);
    }
    if value.is_nan() || low.is_nan() || high.is_nan() {
        return Err(NO_NUMBER);
    }
    if low.is_infinite() || high.is_infinite() {
        return Err(NO_END);
    }
    #[expect(clippy::float_cmp, reason = "bounds that are the same number")]
    if low == high {
        return Err(NO_WIDTH);
    }
    let (from, before, beyond) = match low < high {
        true => (value - low, value < low, value >= high),
        false => (low - value, value > low, value <= high),
    };
    Ok(match (before, beyond) {
        (true, _) => 0,
        (_, true) => count.saturating_add(1),
        _ => {
            #[expect(clippy::cast_possible_truncation, reason = "it is at most the count")]
            let bucket = (from / (high - low).abs() * count as f64) as i64;
            // Rounding may have made it a whole number.
            bucket.min(count - 1) + 1
        }
    })
}

fn bucket_of_numerics(
    value: i256,
    low: i256,
    high: i256,
    count: i64,
) -> Result<i64, ArgumentFault> {
    if count <= 0 {
        return Err(NO_BUCKETS);
    }
    if low == high {
        return Err(NO_WIDTH);
    }
    let (from, width, before, beyond) = match low < high {
        true => (value.wrapping_sub(low), high.wrapping_sub(low), value < low, value >= high),
        false => (low.wrapping_sub(value), low.wrapping_sub(high), value > low, value <= high),
    };
    Ok(match (before, beyond) {
        (true, _) => 0,
        (_, true) => count.saturating_add(1),
        _ => match from.checked_mul(i256::from_i128(count.into())) {
            Some(product) => {
                let bucket = product.wrapping_div(width).to_i128();
                bucket.and_then(|bucket| i64::try_from(bucket).ok()).unwrap_or(0) + 1
            }
            // The last digits of such a long number are not significant.
            None => {
                let width = width.wrapping_div(i256::from_i128(count.into()));
                let bucket = from.checked_div(width).and_then(i256::to_i128);
                let bucket = bucket.and_then(|bucket| i64::try_from(bucket).ok()).unwrap_or(0);
                bucket.min(count - 1) + 1
            }
        },
    })
}

/// The number of thresholds of each row that are at most its value.
fn compute_threshold(values: &ArrayRef, thresholds: &ArrayRef) -> Result<ArrayRef> {
    let lists = thresholds.as_list::<i32>();
    let bucket = |row: usize| -> Result<Option<i32>> {
        if values.is_null(row) || lists.is_null(row) {
            return Ok(None);
        }
        let list = lists.value(row);
        if list.null_count() > 0 {
            let reason = "thresholds array must not contain NULLs";
            return Err(ArgumentFault::Null { reason }.into());
        }
        let value = ScalarValue::try_from_array(values, row)?.to_scalar()?;
        let reached = gt_eq(&value, &list)?.true_count();
        Ok(Some(i32::try_from(reached).map_err(|_| overflow("integer"))?))
    };
    let buckets = (0..values.len()).map(bucket).collect::<Result<Int32Array>>()?;
    Ok(Arc::new(buckets))
}

fn compute_quotient(args: &[ArrayRef]) -> Result<ArrayRef> {
    let [left, right] = take_function_args("checked_divide", args)?;
    Ok(match left.data_type() {
        DataType::Float32 => {
            let quotients = try_binary::<_, _, _, Float32Type>(
                left.as_primitive::<Float32Type>(),
                right.as_primitive::<Float32Type>(),
                |left: f32, right: f32| {
                    let quotient = left / right;
                    check_quotient(left.into(), right.into(), quotient.into()).map(|()| quotient)
                },
            )?;
            Arc::new(quotients)
        }
        _ => {
            let quotients = try_binary::<_, _, _, Float64Type>(
                left.as_primitive::<Float64Type>(),
                right.as_primitive::<Float64Type>(),
                |left: f64, right: f64| {
                    let quotient = left / right;
                    check_quotient(left, right, quotient).map(|()| quotient)
                },
            )?;
            Arc::new(quotients)
        }
    })
}

fn check_quotient(left: f64, right: f64, quotient: f64) -> Result<(), ArrowError> {
    if right == 0.0 && !left.is_nan() {
        return Err(ArrowError::DivideByZero);
    }
    if left.is_infinite() {
        return Ok(());
    }
    check_range(quotient, left == 0.0 || right.is_infinite())
}

/// The numbers for which a function is defined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Domain {
    Positive,
    NotNegative,
    /// Those between two numbers, with both of them.
    Within {
        low: i8,
        high: Option<i8>,
    },
    Finite,
    /// Those whose result a double can be.
    Exponent,
    /// The same, and no roots of negative numbers.
    Power,
}

impl Domain {
    fn check(self, argument: &ColumnarValue) -> Result<()> {
        if matches!(self, Self::Exponent | Self::Power) {
            return Ok(());
        }
        let array = match argument {
            ColumnarValue::Array(array) => cast(array, &DataType::Float64)?,
            ColumnarValue::Scalar(value) => cast(&value.to_array()?, &DataType::Float64)?,
        };
        for value in array.as_primitive::<Float64Type>().iter().flatten() {
            match self {
                Self::Positive if value == 0.0 => {
                    return Err(ArgumentFault::Logarithm { of: "zero" }.into());
                }
                Self::Positive if value < 0.0 => {
                    return Err(ArgumentFault::Logarithm { of: "a negative number" }.into());
                }
                Self::NotNegative if value < 0.0 => return Err(ArgumentFault::Root.into()),
                Self::Within { low, high } => {
                    let is_above = high.is_some_and(|high| value > f64::from(high));
                    if value < f64::from(low) || is_above {
                        return Err(out_of_domain());
                    }
                }
                Self::Finite if value.is_infinite() => return Err(out_of_domain()),
                _ => {}
            }
        }
        Ok(())
    }
}

fn out_of_domain() -> DataFusionError {
    ArgumentFault::OutOfRange { reason: "input is out of range".to_owned() }.into()
}

/// The logarithm with the base 1 is a quotient by zero.
fn check_base(args: &[ColumnarValue], rows: usize) -> Result<()> {
    let [base, number] = args else { return Ok(()) };
    let (base, number) = (base.to_array(rows)?, number.to_array(rows)?);
    let bases = cast(&base, &DataType::Float64)?;
    let bases = bases.as_primitive::<Float64Type>();
    let is_one = |row| bases.is_valid(row) && (bases.value(row) - 1.0).abs() == 0.0;
    match (0..rows).any(|row| is_one(row) && number.is_valid(row)) {
        true => Err(ArrowError::DivideByZero.into()),
        false => Ok(()),
    }
}

impl Domain {
    /// # Errors
    /// Where `given`, of which each is finite, have no `result`, or one that is no double.
    fn check_result(
        self,
        given: &[ColumnarValue],
        result: &ColumnarValue,
        rows: usize,
    ) -> Result<()> {
        let doubles = |values: &ColumnarValue| -> Result<Float64Array> {
            let values = cast(&values.to_array(rows)?, &DataType::Float64)?;
            Ok(values.as_primitive::<Float64Type>().clone())
        };
        let given = given.iter().map(doubles).collect::<Result<Vec<_>>>()?;
        for (row, result) in doubles(result)?.iter().enumerate() {
            let given = || given.iter().map(|values| values.value(row));
            let Some(result) = result.filter(|result| !result.is_normal()) else { continue };
            if !given().all(f64::is_finite) {
                continue;
            }
            if result.is_nan() {
                return Err(ArgumentFault::Power.into());
            }
            let is_zero = self == Self::Power && given().next() == Some(0.0);
            check_range(result, is_zero)?;
        }
        Ok(())
    }
}

/// # Errors
/// `result` of finite numbers is infinite, or 0, where it is not really.
pub(super) fn check_range(result: f64, is_zero: bool) -> Result<(), ArrowError> {
    if result.is_infinite() {
        return Err(ArrowError::ArithmeticOverflow("value out of range: overflow".into()));
    }
    if result == 0.0 && !is_zero {
        return Err(ArrowError::ArithmeticOverflow("value out of range: underflow".into()));
    }
    Ok(())
}

/// A function of DataFusion that fails outside its domain.
#[derive(Debug, PartialEq, Eq, Hash)]
struct WithinDomain {
    inner: Arc<ScalarUDF>,
    domain: Domain,
}

impl ScalarUDFImpl for WithinDomain {
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

    fn return_field_from_args(
        &self,
        args: ReturnFieldArgs<'_>,
    ) -> Result<arrow::datatypes::FieldRef> {
        self.inner.return_field_from_args(args)
    }

    fn coerce_types(&self, arg_types: &[DataType]) -> Result<Vec<DataType>> {
        self.inner.coerce_types(arg_types)
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.documentation()
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        args.args.iter().try_for_each(|argument| self.domain.check(argument))?;
        if self.domain == Domain::Positive {
            check_base(&args.args, args.number_rows)?;
        }
        if !matches!(self.domain, Domain::Exponent | Domain::Power) {
            return self.inner.invoke_with_args(args);
        }
        let (given, rows) = (args.args.clone(), args.number_rows);
        let result = self.inner.invoke_with_args(args)?;
        if result.data_type() == DataType::Float64 {
            self.domain.check_result(&given, &result, rows)?;
        }
        Ok(result)
    }
}
