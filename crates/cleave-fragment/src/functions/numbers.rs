//! Functions of numbers as PostgreSQL has them: [`sign`], [`div`], [`width_bucket`], [`checked_divide`]; and those of
//! DataFusion that give infinity or NaN where PostgreSQL gives an error ([`within_domains`]).
//!
//! Source: PostgreSQL's documentation, "Mathematical Functions"; its `float8_div` and `width_bucket_numeric`.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Decimal128Array, Float64Array, Int32Array};
use arrow::compute::kernels::cmp::gt_eq;
use arrow::compute::{cast, try_binary};
use arrow::datatypes::{
    DECIMAL128_MAX_PRECISION, DataType, Decimal128Type, Decimal256Type, Field, Float32Type,
    Float64Type, Int64Type, i256,
};
use arrow::error::ArrowError;
use datafusion_common::utils::take_function_args;
use datafusion_common::{DataFusionError, Result, ScalarValue, plan_err};
use datafusion_expr::type_coercion::binary::comparison_coercion;
use datafusion_expr::{
    ColumnarValue, Documentation, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl,
    Signature, Volatility,
};
use num_bigint::BigInt;

use super::numeric_powers::{self, digits_at};
use super::quotient::{NUMERIC, Numerics, aligned, too_large};
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
        let signature = match OF_NUMERICS.contains(&inner.name()) {
            true => Signature::user_defined(Volatility::Immutable),
            false => inner.signature().clone(),
        };
        Some(Arc::new(ScalarUDF::new_from_impl(WithinDomain { inner, domain, signature })))
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
        DataType::Decimal128(..) | DataType::Decimal256(..) => given.clone(),
        DataType::Int8 | DataType::Int16 | DataType::Int32 | DataType::Int64 => {
            DataType::Decimal128(19, 0)
        }
        DataType::UInt8 | DataType::UInt16 | DataType::UInt32 | DataType::UInt64 => {
            DataType::Decimal128(20, 0)
        }
        DataType::Null | DataType::Utf8 => NUMERIC,
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
        DataType::Decimal256(..) => {
            let values = values.as_primitive::<Decimal256Type>();
            let sign = |value: i256| value.cmp(&i256::ZERO) as i128;
            let signs = values.unary::<_, Decimal128Type>(sign);
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

fn compute_div(args: &[ArrayRef]) -> Result<ArrayRef> {
    let [left, right] = take_function_args("div", args)?;
    let rows = left.len();
    let (left, right) = (Numerics::of(left)?, Numerics::of(right)?);
    let quotient = |row: usize| -> Result<Option<i128>> {
        let Some((left, right)) = left.shown_at(row).zip(right.shown_at(row)) else {
            return Ok(None);
        };
        if right.is_zero() {
            return Err(ArrowError::DivideByZero.into());
        }
        let (left, right, _) = aligned(left, right).ok_or_else(too_large)?;
        let quotient = left.wrapping_div(right).to_i128();
        Ok(Some(quotient.ok_or_else(|| overflow("numeric"))?))
    };
    let quotients: Decimal128Array = (0..rows).map(quotient).collect::<Result<_>>()?;
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
    let numerics = match values.data_type() {
        DataType::Float64 => None,
        _ => Some((Numerics::of(values)?, Numerics::of(lows)?, Numerics::of(highs)?)),
    };
    let bucket = |row: usize| -> Result<Option<i32>> {
        if args.iter().any(|arg| arg.is_null(row)) {
            return Ok(None);
        }
        let count = counts.value(row);
        let bucket = match &numerics {
            None => {
                let of = |array: &ArrayRef| array.as_primitive::<Float64Type>().value(row);
                bucket_of_doubles(of(values), of(lows), of(highs), count)?
            }
            Some((values, lows, highs)) => {
                let numbers = values.at(row).zip(lows.at(row)).zip(highs.at(row));
                let Some(((value, low), high)) = numbers else { return Ok(None) };
                let scale = value.scale().max(low.scale()).max(high.scale());
                let [value, low, high] = [value, low, high].map(|one| digits_at(one, scale));
                bucket_of_numerics(&value, &low, &high, count)?
            }
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
    value: &BigInt,
    low: &BigInt,
    high: &BigInt,
    count: i64,
) -> Result<i64, ArgumentFault> {
    if count <= 0 {
        return Err(NO_BUCKETS);
    }
    if low == high {
        return Err(NO_WIDTH);
    }
    let (from, width, before, beyond) = match low < high {
        true => (value - low, high - low, value < low, value >= high),
        false => (low - value, low - high, value > low, value <= high),
    };
    Ok(match (before, beyond) {
        (true, _) => 0,
        (_, true) => count.saturating_add(1),
        _ => {
            let bucket: BigInt = from * count / width;
            i64::try_from(bucket).unwrap_or(count - 1) + 1
        }
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

/// Functions whose results of numerics are [numerics](numeric_powers).
const OF_NUMERICS: [&str; 6] = ["exp", "ln", "log", "log10", "power", "sqrt"];

/// A function of DataFusion that fails outside its domain.
#[derive(Debug, PartialEq, Eq, Hash)]
struct WithinDomain {
    inner: Arc<ScalarUDF>,
    domain: Domain,
    signature: Signature,
}

impl WithinDomain {
    /// Whether the function is one of numerics for such arguments: exact numbers, one of which is a numeric. A
    /// logarithm with a base is always.
    fn is_of_numerics(&self, given: &[DataType]) -> bool {
        let is_exact = |own: &DataType| own.is_decimal() || own.is_integer() || own.is_null();
        OF_NUMERICS.contains(&self.name())
            && given.iter().all(is_exact)
            && (given.iter().any(DataType::is_decimal) || given.len() == 2 && self.name() == "log")
    }

    fn of_numerics(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let is_constant = args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
        let rows = if is_constant { 1 } else { args.number_rows };
        let arrays = args.args.into_iter().map(|arg| arg.into_array(rows));
        let arrays = arrays.collect::<Result<Vec<_>>>()?;
        let result = args.return_field.data_type();
        let result = numeric_powers::compute(self.name(), &arrays, result)?;
        Ok(match is_constant {
            true => ColumnarValue::Scalar(ScalarValue::try_from_array(&result, 0)?),
            false => ColumnarValue::Array(result),
        })
    }
}

impl ScalarUDFImpl for WithinDomain {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn aliases(&self) -> &[String] {
        self.inner.aliases()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        if self.is_of_numerics(arg_types) {
            return Ok(numeric_powers::result_type(self.name(), arg_types));
        }
        self.inner.return_type(arg_types)
    }

    fn return_field_from_args(
        &self,
        args: ReturnFieldArgs<'_>,
    ) -> Result<arrow::datatypes::FieldRef> {
        let types = args.arg_fields.iter().map(|field| field.data_type().clone());
        let types: Vec<_> = types.collect();
        if self.is_of_numerics(&types) {
            let own = numeric_powers::result_type(self.name(), &types);
            return Ok(Arc::new(Field::new(self.name(), own, true)));
        }
        self.inner.return_field_from_args(args)
    }

    fn coerce_types(&self, arg_types: &[DataType]) -> Result<Vec<DataType>> {
        if self.is_of_numerics(arg_types) {
            return Ok(arg_types.to_vec());
        }
        if !OF_NUMERICS.contains(&self.name()) {
            return self.inner.coerce_types(arg_types);
        }
        let count = if self.name() == "power" || self.name() == "log" { 2 } else { 1 };
        let is_number = |own: &DataType| own.is_numeric() || own.is_null();
        if arg_types.len() == count && arg_types.iter().all(is_number) {
            return Ok(vec![DataType::Float64; count]);
        }
        let types: Vec<String> = arg_types.iter().map(DataType::to_string).collect();
        plan_err!("Invalid function {}({})", self.name(), types.join(", "))
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.documentation()
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let types: Vec<_> = args.args.iter().map(ColumnarValue::data_type).collect();
        if self.is_of_numerics(&types) {
            return self.of_numerics(args);
        }
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
