//! Quotients of numerics, with as many digits as PostgreSQL gives each of them.
//!
//! PostgreSQL chooses the scale of each quotient by its value: at least 16 significant digits, and no fewer decimals
//! than either operand has. A column here has one scale for all of its values, so a quotient is a `Decimal256(76, 37)`:
//! its value is rounded to PostgreSQL's digits and padded with zeros. [`shown`] tells how many decimals of a
//! value are shown. No table has a column of this type, so the type alone identifies quotients, through any operator
//! and on either side of a cut.
//!
//! A `numeric` without a precision is a `Decimal256(76, 38)`, in tables too ([`NUMERIC`]). It is exact, and shown
//! without zeros behind its last digit. Sums, differences and products with one are such numerics, unless the other
//! operand is a quotient; what has more digits is an error.
//!
//! Source: PostgreSQL's `select_div_scale`, `div_var` and `numeric_out`.

use std::sync::{Arc, LazyLock};

use arrow::array::{Array, ArrayRef, AsArray, Decimal256Array};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Decimal128Type, Decimal256Type, Int64Type, i256};
use arrow::error::ArrowError;
use datafusion_common::utils::take_function_args;
use datafusion_common::{Result, ScalarValue, internal_err};
use datafusion_expr::ScalarUDF;

use super::numeric_powers::shown_digits;
use super::row_function::row_function;

/// Decimals of a quotient.
pub(super) const SCALE: i8 = 37;
/// Decimals of a numeric without a precision.
const NUMERIC_SCALE: i8 = 38;
/// All digits of both types.
pub(super) const PRECISION: u8 = 76;
/// The type of quotients and of averages.
pub const QUOTIENT: DataType = DataType::Decimal256(PRECISION, SCALE);
/// The type of `numeric` without a precision: that of [`ColumnType::NUMERIC`](cleave_store::ColumnType::NUMERIC).
pub const NUMERIC: DataType = DataType::Decimal256(PRECISION, NUMERIC_SCALE);

/// Least significant digits of a quotient.
pub(super) const SIGNIFICANT: i32 = 16;
/// Decimal digits in one of PostgreSQL's base-10,000 digits.
const GROUP: i32 = 4;

/// `a / b` of numerics and integers.
pub fn quotient() -> Arc<ScalarUDF> {
    row_function(
        "quotient",
        two_numerics,
        |_| QUOTIENT,
        |args| {
            let [left, right] = take_function_args("quotient", args)?;
            let (left, right) = (Numerics::of(left)?, Numerics::of(right)?);
            computed(left.array.len(), &QUOTIENT, |row| {
                left.shown_at(row)
                    .zip(right.shown_at(row))
                    .map(|(left, right)| divided(left, right))
                    .transpose()
            })
        },
    )
}

/// `average_of(sum, count)`; of no values it is NULL.
pub fn average_of() -> Arc<ScalarUDF> {
    let takes = |given: &[DataType]| match given {
        [sum, DataType::Int64] => Some(vec![exact(sum)?, DataType::Int64]),
        _ => None,
    };
    row_function(
        "average_of",
        takes,
        |_| QUOTIENT,
        |args| {
            let [sums, counts] = take_function_args("average_of", args)?;
            let (sums, counts) = (Numerics::of(sums)?, counts.as_primitive::<Int64Type>());
            computed(counts.len(), &QUOTIENT, |row| {
                let count = if counts.is_valid(row) { counts.value(row) } else { 0 };
                match sums.shown_at(row) {
                    Some(sum) if count > 0 => divided(sum, Numeric::whole(count)).map(Some),
                    _ => Ok(None),
                }
            })
        },
    )
}

/// The average of `count` values with this sum.
pub(super) fn average_of_one(sum: &ScalarValue, count: i64) -> Result<ScalarValue> {
    let sums = Numerics::of(&sum.to_array()?)?;
    let average = match sums.shown_at(0) {
        Some(sum) if count > 0 => Some(divided(sum, Numeric::whole(count))?),
        _ => None,
    };
    Ok(ScalarValue::Decimal256(average, PRECISION, SCALE))
}

/// The type of a sum, a difference or a product of numerics, one of which has 256 bits.
pub(super) fn wide_type(left: &DataType, right: &DataType) -> DataType {
    if is_rounded(left) || is_rounded(right) { QUOTIENT } else { NUMERIC }
}

/// Whether a type is that of quotients, or of [powers](super::numeric_powers).
fn is_rounded(own: &DataType) -> bool {
    matches!(own, DataType::Decimal256(_, SCALE))
}

/// `a + b`, `a - b` or `a * b` of numerics, of the type [`wide_type`].
pub(super) fn calculated(
    left: &ArrayRef,
    right: &ArrayRef,
    operator: fn(Numeric, Numeric) -> Option<Numeric>,
) -> Result<ArrayRef> {
    let result = wide_type(left.data_type(), right.data_type());
    let (left, right) = (Numerics::of(left)?, Numerics::of(right)?);
    let length = left.array.len().max(right.array.len());
    computed(length, &result, |row| {
        let Some((left, right)) = left.at(row).zip(right.at(row)) else { return Ok(None) };
        let value = operator(left, right).ok_or_else(too_large)?;
        checked(if result == QUOTIENT { value.at_scale() } else { value.exactly() }).map(Some)
    })
}

/// The types of two exact numbers; integers as numerics.
fn two_numerics(given: &[DataType]) -> Option<Vec<DataType>> {
    match given {
        [left, right] => Some(vec![exact(left)?, exact(right)?]),
        _ => None,
    }
}

/// The numeric type that an exact number is converted to.
pub(super) fn exact(given: &DataType) -> Option<DataType> {
    Some(match given {
        DataType::Decimal128(..) | DataType::Decimal256(..) => given.clone(),
        DataType::Int8 | DataType::Int16 | DataType::Int32 | DataType::Int64 | DataType::Null => {
            DataType::Decimal128(19, 0)
        }
        DataType::UInt8 | DataType::UInt16 | DataType::UInt32 | DataType::UInt64 => {
            DataType::Decimal128(20, 0)
        }
        _ => return None,
    })
}

/// Columns of numerics.
pub(super) struct Numerics {
    array: ArrayRef,
    /// All digits of the type, and those behind the point.
    precision: u8,
    scale: i8,
}

impl Numerics {
    pub(super) fn of(array: &ArrayRef) -> Result<Self> {
        let array = match array.data_type() {
            DataType::Decimal128(..) | DataType::Decimal256(..) => Arc::clone(array),
            other => match exact(other) {
                Some(numeric) => cast(array, &numeric)?,
                None => return internal_err!("a quotient of a {other}"),
            },
        };
        let (DataType::Decimal128(precision, scale) | DataType::Decimal256(precision, scale)) =
            *array.data_type()
        else {
            return internal_err!("a quotient of a {}", array.data_type());
        };
        Ok(Self { array, precision, scale })
    }

    /// The value at `row`, or the constant; None for NULL.
    pub(super) fn at(&self, row: usize) -> Option<Numeric> {
        let row = if self.array.len() == 1 { 0 } else { row };
        if self.array.is_null(row) {
            return None;
        }
        let value = match self.array.as_primitive_opt::<Decimal128Type>() {
            Some(values) => i256::from_i128(values.value(row)),
            None => self.array.as_primitive::<Decimal256Type>().value(row),
        };
        if is_rounded(self.array.data_type()) {
            let (value, scale) = shown(value, self.precision, self.scale);
            return Some(Numeric { value, scale: scale.into() });
        }
        Some(Numeric { value, scale: self.scale.into() })
    }

    /// The same with the digits behind the point that are shown.
    pub(super) fn shown_at(&self, row: usize) -> Option<Numeric> {
        let number = self.at(row)?;
        Some(if *self.array.data_type() == NUMERIC { trimmed(number) } else { number })
    }
}

/// A number: `value` · 10^-`scale`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Numeric {
    value: i256,
    scale: i32,
}

impl Numeric {
    pub(super) fn whole(value: i64) -> Self {
        Self { value: i256::from_i128(value.into()), scale: 0 }
    }

    /// All of its digits, as a whole number.
    pub(super) fn value(self) -> i256 {
        self.value
    }

    /// How many of them are behind the point.
    pub(super) fn scale(self) -> i32 {
        self.scale
    }

    pub(super) fn is_zero(self) -> bool {
        self.value == i256::ZERO
    }

    pub(super) fn absolute(self) -> Self {
        Self { value: self.value.wrapping_abs(), ..self }
    }

    /// It as a whole number of 32 bits, if it is one.
    pub(super) fn to_i32(self) -> Option<i32> {
        let whole = trimmed(self);
        if whole.scale > 0 {
            return None;
        }
        i32::try_from(whole.value.to_i128()?).ok()
    }

    /// The decimal logarithm of its absolute value.
    pub(super) fn logarithm(self) -> f64 {
        let digits = self.value.wrapping_abs().to_string();
        digits.parse::<f64>().map_or(0.0, f64::log10) - f64::from(self.scale)
    }

    /// The power of ten of its first digit; of zero, that of one.
    pub(super) fn top(self) -> i32 {
        digit_count(self.value).saturating_sub(1) - self.scale
    }

    /// The first of PostgreSQL's base-10,000 digits, and its power of 10,000.
    fn first_group(self) -> (i256, i32) {
        if self.value == i256::ZERO {
            return (i256::ZERO, 0);
        }
        let top = self.top();
        let weight = top.div_euclid(GROUP);
        let kept = top - weight * GROUP + 1;
        let cut = digit_count(self.value) - kept;
        let value = self.value.wrapping_abs();
        let first = match u32::try_from(cut) {
            Ok(cut) => value.wrapping_div(power(cut)),
            Err(_) => value.wrapping_mul(power(cut.unsigned_abs())),
        };
        (first, weight)
    }

    /// As a quotient is stored.
    fn at_scale(self) -> Option<i256> {
        scaled(self.value, i32::from(SCALE) - self.scale)
    }

    /// As a numeric without a precision is stored, with each of its digits.
    fn exactly(self) -> Option<i256> {
        let exact = if self.scale > NUMERIC_SCALE.into() { trimmed(self) } else { self };
        match u32::try_from(i32::from(NUMERIC_SCALE) - exact.scale) {
            Ok(zeros) => exact.value.checked_mul(power(zeros)),
            Err(_) => None,
        }
    }
}

/// 10^0 to 10^76.
static POWERS: LazyLock<Vec<i256>> = LazyLock::new(|| {
    let ten = i256::from_i128(10);
    std::iter::successors(Some(i256::ONE), |last| last.checked_mul(ten)).take(77).collect()
});

fn power(exponent: u32) -> i256 {
    let place = usize::try_from(exponent).unwrap_or(usize::MAX);
    POWERS.get(place).copied().unwrap_or(i256::MAX)
}

/// Decimal digits of `value`; zero has one.
fn digit_count(value: i256) -> i32 {
    let value = value.wrapping_abs();
    if let Some(small) = value.to_i128()
        && small >= 0
    {
        return i32::try_from(small.checked_ilog10().unwrap_or(0) + 1).unwrap_or(39);
    }
    let count = POWERS.partition_point(|power| *power <= value);
    i32::try_from(count).unwrap_or(i32::MAX)
}

/// `value` times 10^`by`, rounded away from zero where digits are cut; None: it has too many digits.
fn scaled(value: i256, by: i32) -> Option<i256> {
    match u32::try_from(by) {
        Ok(0) => Some(value),
        Ok(by) if by > u32::from(PRECISION) => (value == i256::ZERO).then_some(value),
        Ok(by) => value.checked_mul(power(by)),
        Err(_) => {
            let by = by.unsigned_abs();
            if by > u32::from(PRECISION) {
                return Some(i256::ZERO);
            }
            Some(rounded(value, power(by)))
        }
    }
}

/// `a / b`, rounded to the nearest integer, ties away from zero.
fn rounded(a: i256, b: i256) -> i256 {
    let (quotient, rest) = (a.wrapping_div(b), a.wrapping_rem(b).wrapping_abs());
    let b = b.wrapping_abs();
    // Twice the remainder may have a digit more than there is room for.
    if rest >= b.wrapping_sub(rest) {
        let is_negative = (a < i256::ZERO) != (b < i256::ZERO);
        let one = if is_negative { i256::MINUS_ONE } else { i256::ONE };
        return quotient.wrapping_add(one);
    }
    quotient
}

pub(super) fn too_large() -> ArrowError {
    ArrowError::ArithmeticOverflow("value overflows numeric format".to_owned())
}

/// A value in the type of a quotient's column.
fn checked(value: Option<i256>) -> Result<i256, ArrowError> {
    value.filter(|value| value.wrapping_abs() < power(u32::from(PRECISION))).ok_or_else(too_large)
}

/// Decimals that PostgreSQL gives `left / right`.
fn quotient_scale(left: Numeric, right: Numeric) -> i32 {
    let ((left_first, left_weight), (right_first, right_weight)) =
        (left.first_group(), right.first_group());
    let mut weight = left_weight - right_weight;
    if left_first <= right_first {
        weight -= 1;
    }
    let scale = (SIGNIFICANT - weight * GROUP).max(left.scale).max(right.scale);
    scale.clamp(0, i32::from(SCALE))
}

fn divided(left: Numeric, right: Numeric) -> Result<i256, ArrowError> {
    if right.value == i256::ZERO {
        return Err(ArrowError::DivideByZero);
    }
    if left.value == i256::ZERO {
        return Ok(i256::ZERO);
    }
    // The dividend may have a decimal more than a quotient; then the result is rounded once more.
    let scale = quotient_scale(left, right).max(left.scale - right.scale);
    let shift = u32::try_from(scale + right.scale - left.scale).unwrap_or(0);
    let value = match small_quotient(left.value, right.value, shift) {
        Some(quotient) => i256::from_i128(quotient),
        None => match left.value.checked_mul(power(shift)).filter(|_| shift <= PRECISION.into()) {
            Some(left) => {
                let is_negative = (left < i256::ZERO) != (right.value < i256::ZERO);
                let quotient = rounded(left.wrapping_abs(), right.value.wrapping_abs());
                if is_negative { quotient.wrapping_neg() } else { quotient }
            }
            None => long_quotient(left.value, right.value, shift)?,
        },
    };
    checked(Numeric { value, scale }.at_scale())
}

/// `left` · 10^`shift` / `right`, rounded, if all of it fits 128 bits.
fn small_quotient(left: i256, right: i256, shift: u32) -> Option<i128> {
    let (left, right) = (left.to_i128()?, right.to_i128()?);
    let is_negative = (left < 0) != (right < 0);
    let shifted = left.unsigned_abs().checked_mul(10_u128.checked_pow(shift)?)?;
    let right = right.unsigned_abs();
    let (quotient, rest) = (shifted.checked_div(right)?, shifted.checked_rem(right)?);
    let quotient = quotient + u128::from(rest >= right - rest);
    let quotient = i128::try_from(quotient).ok()?;
    Some(if is_negative { -quotient } else { quotient })
}

/// The same by long division.
fn long_quotient(left: i256, right: i256, shift: u32) -> Result<i256, ArrowError> {
    let is_negative = (left < i256::ZERO) != (right < i256::ZERO);
    let (left, mut right) = (left.wrapping_abs(), right.wrapping_abs());
    let ten = i256::from_i128(10);
    let (mut quotient, mut rest) = (left.wrapping_div(right), left.wrapping_rem(right));
    for _ in 0..shift {
        rest = match rest.checked_mul(ten) {
            Some(rest) => rest,
            None => {
                // Of 77 digits the last is not significant.
                right = right.wrapping_div(ten);
                rest
            }
        };
        let digit = rest.wrapping_div(right);
        rest = rest.wrapping_rem(right);
        quotient = quotient
            .checked_mul(ten)
            .and_then(|quotient| quotient.checked_add(digit))
            .ok_or_else(too_large)?;
    }
    if rest >= right.wrapping_sub(rest) {
        quotient = quotient.checked_add(i256::ONE).ok_or_else(too_large)?;
    }
    Ok(if is_negative { quotient.wrapping_neg() } else { quotient })
}

/// `a + b`.
pub(super) fn added(left: Numeric, right: Numeric) -> Option<Numeric> {
    let (left, right, scale) = aligned(left, right)?;
    Some(Numeric { value: left.checked_add(right)?, scale })
}

/// `a - b`.
pub(super) fn subtracted(left: Numeric, right: Numeric) -> Option<Numeric> {
    let (left, right, scale) = aligned(left, right)?;
    Some(Numeric { value: left.checked_sub(right)?, scale })
}

/// `a * b`.
pub(super) fn multiplied(left: Numeric, right: Numeric) -> Option<Numeric> {
    let (left, right) = (trimmed(left), trimmed(right));
    let value = left.value.checked_mul(right.value)?;
    Some(Numeric { value, scale: left.scale + right.scale })
}

/// Both values at one scale.
pub(super) fn aligned(left: Numeric, right: Numeric) -> Option<(i256, i256, i32)> {
    let scale = left.scale.max(right.scale);
    Some((
        scaled(left.value, scale - left.scale)?,
        scaled(right.value, scale - right.scale)?,
        scale,
    ))
}

/// The same number without trailing zeros.
fn trimmed(mut number: Numeric) -> Numeric {
    for digits in [32_u32, 16, 8, 4, 2, 1] {
        let digits_signed = digits.cast_signed();
        if number.scale >= digits_signed && number.value.wrapping_rem(power(digits)) == i256::ZERO {
            number.value = number.value.wrapping_div(power(digits));
            number.scale -= digits_signed;
        }
    }
    number
}

/// `value` at `scale` as it is shown: a quotient without its padding zeros, a numeric without a precision with the
/// digits that it has.
pub fn shown(value: i256, precision: u8, scale: i8) -> (i256, i8) {
    if scale == NUMERIC_SCALE {
        let number = trimmed(Numeric { value, scale: scale.into() });
        return (number.value, i8::try_from(number.scale).unwrap_or(scale));
    }
    if scale != SCALE {
        return (value, scale);
    }
    let shown = shown_scale(value, precision);
    (value.wrapping_div(power(u32::from((SCALE - shown).unsigned_abs()))), shown)
}

/// Decimals to show of `value`, a quotient stored with 37 of them: 16 significant digits and all that are not zero.
fn shown_scale(value: i256, precision: u8) -> i8 {
    let number = Numeric { value, scale: SCALE.into() };
    if let Some(digits) = shown_digits(number, precision) {
        let scale = digits.max(trimmed(number).scale).clamp(0, SCALE.into());
        return i8::try_from(scale).unwrap_or(SCALE);
    }
    let (_, mut weight) = number.first_group();
    let trimmed = trimmed(number);
    // Operands with the same first base-10,000 digits give a power of 10,000, which has one digit less; so has zero.
    if value == i256::ZERO || is_power_of_groups(trimmed) {
        weight -= 1;
    }
    let scale = (SIGNIFICANT - weight * GROUP).max(trimmed.scale).clamp(0, SCALE.into());
    i8::try_from(scale).unwrap_or(SCALE)
}

/// Whether `number`, without trailing zeros, is a power of 10,000.
fn is_power_of_groups(number: Numeric) -> bool {
    let top = number.top();
    let ones = match u32::try_from(digit_count(number.value) - 1) {
        Ok(zeros) => number.value.wrapping_abs() == power(zeros),
        Err(_) => false,
    };
    ones && top.rem_euclid(GROUP) == 0
}

fn computed(
    length: usize,
    result: &DataType,
    value: impl Fn(usize) -> Result<Option<i256>, ArrowError>,
) -> Result<ArrayRef> {
    let values: Decimal256Array = (0..length).map(value).collect::<Result<_, _>>()?;
    Ok(Arc::new(values.with_data_type(result.clone())))
}

#[cfg(test)]
mod tests;
