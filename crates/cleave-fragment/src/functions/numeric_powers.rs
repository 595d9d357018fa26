//! `sqrt`, `exp`, `ln`, `log` and `power` of numerics: numerics with PostgreSQL's number of digits, each of them right.
//!
//! Numbers are computed as integers over 2^[`BITS`], and rounded at the end. PostgreSQL's number of digits follows from
//! the result and differs by function, so the results of each kind have a type of their own; [`shown_digits`] tells how
//! many decimals of a value are shown. In arithmetic they are as a [quotient](super::quotient).
//!
//! Source: PostgreSQL's `numeric_sqrt`, `numeric_exp`, `numeric_ln`, `log_var`, `power_var` and `estimate_ln_dweight`.

use std::cmp::Ordering;
use std::sync::LazyLock;

use arrow::array::{Array, ArrayRef, Decimal256Array};
use arrow::datatypes::{DataType, i256};
use arrow::error::ArrowError;
use datafusion_common::{Result, plan_err};
use num_bigint::BigInt;

use super::quotient::{Numeric, Numerics, PRECISION, SCALE, SIGNIFICANT, too_large};
use super::row_function::ArgumentFault;

/// Results of exponentials, logarithms and other powers.
const POWER: u8 = PRECISION - 1;
/// Square roots.
const ROOT: u8 = PRECISION - 2;
/// Powers with a whole exponent.
const WHOLE_POWER: u8 = PRECISION - 3;
/// Logarithms with the base 10.
const LOGARITHM: u8 = PRECISION - 5;
/// [Variances](super::variance), which are quotients but for zero.
pub(super) const VARIANCE: u8 = PRECISION - 4;

/// Bits behind the point: 76 decimal digits, those that a result has before the point, and some to spare.
const BITS: u64 = 512;
/// Whole exponents up to this one are multiplied out.
const EXACT_EXPONENT: u32 = 128;
/// log₁₀(e)
const LOG_E: f64 = std::f64::consts::LOG10_E;

/// The result type of `function` of such arguments, one of which is a numeric.
pub(super) fn result_type(function: &str, given: &[DataType]) -> DataType {
    let is_whole = |own: &DataType| {
        own.is_integer() || matches!(own, DataType::Decimal128(_, scale) if *scale <= 0)
    };
    let kind = match (function, given) {
        ("sqrt", _) => ROOT,
        ("log10", _) => LOGARITHM,
        ("power", [_, exponent]) if is_whole(exponent) => WHOLE_POWER,
        _ => POWER,
    };
    DataType::Decimal256(kind, SCALE)
}

/// Decimals that are shown of a value of a type with this precision, at least; None: it is of none of these types.
pub(super) fn shown_digits(number: Numeric, precision: u8) -> Option<i32> {
    let top = f64::from(number.top());
    match precision {
        WHOLE_POWER => Some(SIGNIFICANT),
        VARIANCE => number.is_zero().then_some(0),
        POWER | LOGARITHM if number.is_zero() => Some(SIGNIFICANT),
        // That of the natural logarithm counts.
        LOGARITHM => Some(SIGNIFICANT - whole(number.logarithm() - LOG_E.log10())),
        // The power of ten is cut to a whole number, towards zero.
        POWER => Some(SIGNIFICANT - if top < 0.0 { number.top() + 1 } else { number.top() }),
        ROOT => {
            let square = 2.0 * number.logarithm();
            Some(root_digits(if number.is_zero() { 0.0 } else { square }))
        }
        _ => None,
    }
}

/// Decimals of the square root of a number with this decimal logarithm.
fn root_digits(logarithm: f64) -> i32 {
    #[expect(clippy::cast_possible_truncation, reason = "a numeric has 76 digits")]
    let weight = (logarithm / 4.0).floor() as i32;
    SIGNIFICANT - ((weight + 1) * 2 - 1)
}

/// `function` of numerics.
pub(super) fn compute(function: &str, args: &[ArrayRef], result: &DataType) -> Result<ArrayRef> {
    let columns = args.iter().map(Numerics::of).collect::<Result<Vec<_>>>()?;
    let rows = args.iter().map(|arg| arg.len()).max().unwrap_or(0);
    let value = |row: usize| -> Result<Option<i256>> {
        let numbers: Option<Vec<Numeric>> = columns.iter().map(|one| one.shown_at(row)).collect();
        let Some(numbers) = numbers else { return Ok(None) };
        let result = match (function, numbers.as_slice()) {
            ("power", [base, exponent]) => power(*base, *exponent)?,
            ("log", [base, number]) => logarithm(*base, *number)?,
            (_, [number]) => match function {
                "sqrt" => root(*number)?,
                "exp" => exponential(*number)?,
                "ln" => natural_logarithm(*number)?,
                "log10" => logarithm(Numeric::whole(10), *number)?,
                _ => return plan_err!("{function} of a numeric"),
            },
            _ => return plan_err!("{function} of {} numerics", numbers.len()),
        };
        Ok(Some(result.stored().ok_or_else(too_large)?))
    };
    let values = (0..rows).map(value).collect::<Result<Decimal256Array>>()?;
    Ok(std::sync::Arc::new(values.with_data_type(result.clone())))
}

/// A rounded result: an integer over a power of ten.
pub(super) struct Rounded {
    pub(super) value: BigInt,
    pub(super) scale: i32,
}

impl Rounded {
    /// As it is stored; None: it has too many digits.
    pub(super) fn stored(self) -> Option<i256> {
        let value = self.value * ten_to(i32::from(SCALE) - self.scale);
        if value.magnitude() >= ten_to(PRECISION.into()).magnitude() {
            return None;
        }
        let mut bytes = [if value.sign() == num_bigint::Sign::Minus { u8::MAX } else { 0 }; 32];
        for (byte, own) in bytes.iter_mut().zip(value.to_signed_bytes_le()) {
            *byte = own;
        }
        Some(i256::from_le_bytes(bytes))
    }
}

pub(super) fn ten_to(exponent: i32) -> BigInt {
    BigInt::from(10).pow(exponent.max(0).unsigned_abs())
}

/// `number` as a whole number over 10^`scale`, which is no less than its own.
pub(super) fn digits_at(number: Numeric, scale: i32) -> BigInt {
    digits_of(number) * ten_to(scale - number.scale())
}

fn digits_of(number: Numeric) -> BigInt {
    BigInt::from_signed_bytes_le(&number.value().to_le_bytes())
}

fn zero() -> BigInt {
    BigInt::from(0)
}

fn one() -> BigInt {
    BigInt::from(1) << BITS
}

/// `number` over 2^[`BITS`].
fn fixed(number: Numeric) -> BigInt {
    (digits_of(number) << BITS) / ten_to(number.scale())
}

/// The nearest double of a number over 2^[`BITS`].
fn double(fixed: &BigInt) -> f64 {
    // 64 bits behind the point are enough for an estimate, unless it is very small.
    let (bits, sign) = (fixed.bits(), if *fixed < zero() { -1.0 } else { 1.0 });
    let cut = bits.saturating_sub(64);
    let leading = (fixed.magnitude() >> cut).iter_u64_digits().next().unwrap_or(0);
    let exponent = i32::try_from(cut).unwrap_or(i32::MAX) - i32::try_from(BITS).unwrap_or(0);
    #[expect(clippy::cast_precision_loss, reason = "an estimate")]
    let leading = leading as f64;
    sign * leading * 2_f64.powi(exponent)
}

/// The whole part, towards zero.
#[expect(clippy::cast_possible_truncation, reason = "saturates, and is clamped after")]
fn whole(value: f64) -> i32 {
    value.clamp(-1000.0, 1000.0) as i32
}

/// A number over 2^[`BITS`], rounded half away from zero to so many decimals.
fn rounded(fixed: &BigInt, decimals: i32) -> Rounded {
    let scale = decimals.clamp(0, SCALE.into());
    let half = BigInt::from(1) << (BITS - 1);
    let value: BigInt = (BigInt::from(fixed.magnitude().clone()) * ten_to(scale) + half) >> BITS;
    Rounded { value: if *fixed < zero() { -value } else { value }, scale }
}

/// `a / b` of whole numbers, rounded half away from zero.
pub(super) fn divided(a: &BigInt, b: &BigInt) -> BigInt {
    let is_negative = (*a < zero()) != (*b < zero());
    let (a, b) = (BigInt::from(a.magnitude().clone()), BigInt::from(b.magnitude().clone()));
    let twice: BigInt = a * 2 + &b;
    let quotient: BigInt = twice / (b * 2);
    if is_negative { -quotient } else { quotient }
}

fn root(number: Numeric) -> Result<Rounded> {
    if number.value() < i256::ZERO {
        return Err(ArgumentFault::Root.into());
    }
    let logarithm = if number.is_zero() { 0.0 } else { number.top().into() };
    let scale = root_digits(logarithm).max(number.scale()).clamp(0, SCALE.into());
    let square: BigInt = digits_of(number) * ten_to(2 * scale - number.scale());
    let root = square.sqrt();
    let rest: BigInt = &square - &root * &root;
    let value: BigInt = if rest > root { root + 1 } else { root };
    Ok(Rounded { value, scale })
}

fn exponential(number: Numeric) -> Result<Rounded> {
    let exponent = fixed(number);
    let power_of_ten = double(&exponent) * LOG_E;
    if power_of_ten > f64::from(SCALE) + 2.0 {
        return Err(too_large().into());
    }
    let decimals = (SIGNIFICANT - whole(power_of_ten)).max(number.scale());
    check_digits(power_of_ten)?;
    Ok(rounded(&exponential_of(&exponent), decimals))
}

/// # Errors
/// Where the first digits of a result lie too far behind the point.
fn check_digits(power_of_ten: f64) -> Result<()> {
    match SIGNIFICANT - whole(power_of_ten) > SCALE.into() {
        true => Err(too_large().into()),
        false => Ok(()),
    }
}

fn natural_logarithm(number: Numeric) -> Result<Rounded> {
    let logarithm = logarithm_of(number)?;
    let decimals = (SIGNIFICANT - logarithm_weight(number, &logarithm)).max(number.scale());
    Ok(rounded(&logarithm, decimals))
}

fn logarithm(base: Numeric, number: Numeric) -> Result<Rounded> {
    let (of_base, of_number) = (logarithm_of(base)?, logarithm_of(number)?);
    if of_base == zero() {
        return Err(ArrowError::DivideByZero.into());
    }
    let weight = logarithm_weight(number, &of_number) - logarithm_weight(base, &of_base);
    let decimals = (SIGNIFICANT - weight).max(base.scale()).max(number.scale());
    Ok(rounded(&((of_number << BITS) / of_base), decimals))
}

fn power(base: Numeric, exponent: Numeric) -> Result<Rounded> {
    let negative = exponent.value() < i256::ZERO;
    if base.is_zero() && negative {
        return Err(ArgumentFault::ZeroPower.into());
    }
    if let Some(exponent) = exponent.to_i32() {
        return whole_power(base, exponent);
    }
    if base.value() < i256::ZERO {
        return Err(ArgumentFault::Power.into());
    }
    if base.is_zero() {
        return Ok(Rounded { value: zero(), scale: SIGNIFICANT });
    }
    let logarithm = logarithm_of(base)? * digits_of(exponent) / ten_to(exponent.scale());
    let power_of_ten = double(&logarithm) * LOG_E;
    if power_of_ten > f64::from(SCALE) + 2.0 {
        return Err(too_large().into());
    }
    let decimals = (SIGNIFICANT - whole(power_of_ten)).max(base.scale()).max(exponent.scale());
    check_digits(power_of_ten)?;
    Ok(rounded(&exponential_of(&logarithm), decimals))
}

fn whole_power(base: Numeric, exponent: i32) -> Result<Rounded> {
    let scale = SIGNIFICANT.max(base.scale()).clamp(0, SCALE.into());
    if base.is_zero() {
        return Ok(match exponent {
            0 => Rounded { value: ten_to(scale), scale },
            _ => Rounded { value: zero(), scale },
        });
    }
    let power_of_ten = base.logarithm() * f64::from(exponent);
    if power_of_ten > f64::from(SCALE) + 2.0 {
        return Err(too_large().into());
    }
    if power_of_ten < -f64::from(SCALE) - 2.0 {
        return Ok(Rounded { value: zero(), scale });
    }
    let count = exponent.unsigned_abs();
    if count <= EXACT_EXPONENT {
        let power = digits_of(base).pow(count);
        let behind = base.scale() * i32::try_from(count).unwrap_or(0);
        let value = match exponent.cmp(&0) {
            Ordering::Less => divided(&ten_to(behind + scale), &power),
            _ => divided(&(power * ten_to(scale)), &ten_to(behind)),
        };
        return Ok(Rounded { value, scale });
    }
    let result = exponential_of(&(logarithm_of(base.absolute())? * exponent));
    let is_negative = base.value() < i256::ZERO && exponent % 2 != 0;
    Ok(rounded(&if is_negative { -result } else { result }, scale))
}

/// The weight of a logarithm as PostgreSQL estimates it: the power of ten of its first digit, or for those below one
/// that of the next digit.
fn logarithm_weight(number: Numeric, logarithm: &BigInt) -> i32 {
    let distance: BigInt = fixed(number) - one();
    let near: BigInt = one() / 10;
    if *distance.magnitude() > *near.magnitude() {
        return whole(double(logarithm).abs().log10());
    }
    match double(&distance).abs() {
        0.0 => 0,
        distance => whole(distance.log10().floor()),
    }
}

/// e to the power of `exponent`.
fn exponential_of(exponent: &BigInt) -> BigInt {
    // Below 2^-16, each term of the series has 16 bits more.
    let halvings = exponent.bits().saturating_sub(BITS) + 16;
    let small: BigInt = exponent >> halvings;
    let (mut term, mut sum, mut count) = (one(), one(), 1_u32);
    while term != zero() && term != BigInt::from(-1) {
        let product: BigInt = term * &small;
        term = (product >> BITS) / count;
        sum += &term;
        count += 1;
    }
    for _ in 0..halvings {
        let square: BigInt = &sum * &sum;
        sum = square >> BITS;
    }
    sum
}

/// # Errors
/// For zero and less.
fn logarithm_of(number: Numeric) -> Result<BigInt> {
    static OF_TWO: LazyLock<BigInt> = LazyLock::new(|| area(&(one() / 3)) * 2);
    match number.value().cmp(&i256::ZERO) {
        Ordering::Less => return Err(ArgumentFault::Logarithm { of: "a negative number" }.into()),
        Ordering::Equal => return Err(ArgumentFault::Logarithm { of: "zero" }.into()),
        Ordering::Greater => {}
    }
    let (above, below) = (digits_of(number), ten_to(number.scale()));
    // The number is between a half and two times 2^`exponent`.
    let bits = |of: &BigInt| i64::try_from(of.bits()).unwrap_or(0);
    let exponent = bits(&above) - bits(&below);
    let mantissa: BigInt = match u64::try_from(exponent) {
        Ok(exponent) => (above << BITS) / (below << exponent),
        Err(_) => (above << (BITS + exponent.unsigned_abs())) / below,
    };
    let part: BigInt = ((&mantissa - one()) << BITS) / (&mantissa + one());
    Ok(area(&part) * 2 + &*OF_TWO * exponent)
}

/// The inverse hyperbolic tangent of a number below a half.
fn area(number: &BigInt) -> BigInt {
    let square: BigInt = number * number;
    let square: BigInt = square >> BITS;
    let (mut power, mut sum, mut count) = (number.clone(), number.clone(), 3_u32);
    while power != zero() && power != BigInt::from(-1) {
        let product: BigInt = power * &square;
        power = product >> BITS;
        sum += &power / count;
        count += 2;
    }
    sum
}

#[cfg(test)]
mod tests;
