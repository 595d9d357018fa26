//! `+`, `-` and `*` of numerics whose unscaled values all fit 64 bits: the result cannot overflow 128 bits, so no value
//! is checked.
//!
//! Invariant: a result equals that of Arrow's own kernel, in value and type. Where one of the values is larger, or a
//! scale is out of range, there is no result and the caller uses Arrow's kernel.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Datum, Decimal128Array};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{DECIMAL128_MAX_PRECISION, DECIMAL128_MAX_SCALE, DataType, Decimal128Type};
use arrow::error::ArrowError;
use datafusion_expr::Operator;

/// Digits by which a value may be scaled up: 10¹⁸ × 2⁶³, twice, is below 2¹²⁷.
const SHIFT_MAX: u8 = 18;

/// The result, or none if the operands are not narrow numerics.
pub(super) fn compute(
    operator: Operator,
    left: &dyn Datum,
    right: &dyn Datum,
) -> Result<Option<ArrayRef>, ArrowError> {
    let ((a, a_is_scalar), (b, b_is_scalar)) = (left.get(), right.get());
    let (DataType::Decimal128(p1, s1), DataType::Decimal128(p2, s2)) =
        (a.data_type(), b.data_type())
    else {
        return Ok(None);
    };
    let Some(plan) = Plan::of(operator, (*p1, *s1), (*p2, *s2)) else { return Ok(None) };
    let (a, b) = (a.as_primitive::<Decimal128Type>(), b.as_primitive::<Decimal128Type>());
    if !fit_64_bits(a.values()) || !fit_64_bits(b.values()) {
        return Ok(None);
    }
    let (values, nulls) = match (a_is_scalar, b_is_scalar) {
        (false, false) if a.len() == b.len() => {
            let values = a.values().iter().zip(b.values()).map(|(a, b)| plan.apply(*a, *b));
            (values.collect(), NullBuffer::union(a.nulls(), b.nulls()))
        }
        (false, true) if b.len() == 1 && b.null_count() == 0 => {
            let b = b.value(0);
            (a.values().iter().map(|a| plan.apply(*a, b)).collect(), a.nulls().cloned())
        }
        (true, false) if a.len() == 1 && a.null_count() == 0 => {
            let a = a.value(0);
            (b.values().iter().map(|b| plan.apply(a, *b)).collect(), b.nulls().cloned())
        }
        // Two constants, and a constant NULL.
        _ => return Ok(None),
    };
    let array = Decimal128Array::try_new(values, nulls)?;
    Ok(Some(Arc::new(array.with_precision_and_scale(plan.precision, plan.scale)?)))
}

/// The exact arithmetic of two numerics of these types; none if a scale is out of range.
pub(crate) fn arithmetic(
    operator: Operator,
    left: &DataType,
    right: &DataType,
) -> Option<Arithmetic> {
    match (left, right) {
        (DataType::Decimal128(p1, s1), DataType::Decimal128(p2, s2)) => {
            Plan::of(operator, (*p1, *s1), (*p2, *s2)).map(|plan| plan.kind)
        }
        _ => None,
    }
}

/// The operation on each pair of values.
#[derive(Debug, Clone, Copy)]
struct Plan {
    kind: Arithmetic,
    precision: u8,
    scale: i8,
}

/// The operation on the unscaled values of two numerics.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Arithmetic {
    /// They are multiplied.
    Product,
    /// A sum of the operands, each times its factor.
    Sum(i64, i64),
}

impl Plan {
    /// With Arrow's result type: as in SQL, limited to 128 bits.
    fn of(operator: Operator, left: (u8, i8), right: (u8, i8)) -> Option<Self> {
        let ((p1, s1), (p2, s2)) = (left, right);
        if operator == Operator::Multiply {
            let precision = p1.saturating_add(p2).saturating_add(1).min(DECIMAL128_MAX_PRECISION);
            let scale = s1.checked_add(s2).filter(|scale| *scale <= DECIMAL128_MAX_SCALE)?;
            return Some(Self { kind: Arithmetic::Product, precision, scale });
        }
        let scale = s1.max(s2);
        let digits = i16::from(p1) - i16::from(s1);
        let digits = digits.max(i16::from(p2) - i16::from(s2)) + i16::from(scale) + 1;
        let precision = u8::try_from(digits).ok()?.min(DECIMAL128_MAX_PRECISION);
        let factor = |own: i8| {
            let shift = u8::try_from(i16::from(scale) - i16::from(own)).ok()?;
            (shift <= SHIFT_MAX).then(|| 10_i64.pow(u32::from(shift)))
        };
        let (a, b) = (factor(s1)?, factor(s2)?);
        let kind = match operator {
            Operator::Plus => Arithmetic::Sum(a, b),
            Operator::Minus => Arithmetic::Sum(a, -b),
            _ => return None,
        };
        Some(Self { kind, precision, scale })
    }
}

impl Plan {
    /// Of two values that fit 64 bits.
    #[expect(clippy::cast_possible_truncation, reason = "they were seen to fit")]
    #[inline]
    fn apply(self, a: i128, b: i128) -> i128 {
        let (a, b) = (i128::from(a as i64), i128::from(b as i64));
        match self.kind {
            Arithmetic::Product => a * b,
            Arithmetic::Sum(x, y) => a * i128::from(x) + b * i128::from(y),
        }
    }
}

/// Whether each value, those under NULLs too, equals its sign-extended lower half.
#[expect(clippy::cast_possible_truncation, reason = "halves are what is compared")]
fn fit_64_bits(values: &[i128]) -> bool {
    let unlike = |value: &i128| ((*value >> 64) as i64) ^ ((*value as i64) >> 63);
    values.chunks(1024).all(|chunk| chunk.iter().fold(0, |all, value| all | unlike(value)) == 0)
}
