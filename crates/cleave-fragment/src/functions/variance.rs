//! `variance` and `stddev` of exact numbers: numerics with PostgreSQL's digits, of sums and sums of squares that are
//! exact.
//!
//! A variance is a quotient of whole numbers of any length. Its type is one of its own, as PostgreSQL shows a variance
//! of zero without decimals.
//!
//! Source: PostgreSQL's `numeric_stddev_internal`.

use std::collections::BTreeSet;
use std::mem::size_of_val;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::{DataType, Decimal128Type, Field, FieldRef, Int64Type};
use datafusion_common::utils::take_function_args;
use datafusion_common::{Result, ScalarValue};
use datafusion_expr::Accumulator;
use datafusion_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion_expr::utils::format_state_name;
use num_bigint::BigInt;

use super::exact_sum::argument;
use super::numeric_powers::{Rounded, VARIANCE, digits_at, divided, ten_to};
use super::quotient::{Numerics, PRECISION, SCALE, SIGNIFICANT, exact, too_large};

/// The type of deviations of exact numbers.
pub(super) const RESULT: DataType = DataType::Decimal256(VARIANCE, SCALE);

/// The functions, by DataFusion's names.
pub(super) fn is_deviation(function: &str) -> bool {
    ["var", "var_pop", "stddev", "stddev_pop"].contains(&function)
}

/// The type to convert an argument to; None: it is no number.
pub(super) fn argument_type(given: &DataType) -> Option<DataType> {
    match given {
        DataType::Null => Some(DataType::Float64),
        given if given.is_floating() => Some(DataType::Float64),
        given => exact(given),
    }
}

/// What a partial result consists of.
pub(super) fn state_fields(args: &StateFieldsArgs) -> Vec<FieldRef> {
    let field = |part: &str, own: DataType| {
        Arc::new(Field::new(format_state_name(args.name, part), own, true))
    };
    if args.is_distinct {
        let item = Arc::new(Field::new_list_field(DataType::Binary, true));
        return vec![field("values", DataType::List(item))];
    }
    vec![
        field("count", DataType::Int64),
        field("scale", DataType::Int64),
        field("sum", DataType::Binary),
        field("squares", DataType::Binary),
    ]
}

/// The state of a deviation.
#[derive(Debug)]
pub(super) struct Deviation {
    /// The different values, with DISTINCT.
    values: Option<BTreeSet<BigInt>>,
    count: i64,
    /// Decimals of the values that are shown.
    shown: i32,
    sum: BigInt,
    squares: BigInt,
    /// Decimals of the type of the values.
    scale: i32,
    is_sample: bool,
    is_root: bool,
}

impl Deviation {
    pub(super) fn new(function: &str, args: &AccumulatorArgs) -> Self {
        let scale = match argument(args) {
            Some(DataType::Decimal128(_, scale) | DataType::Decimal256(_, scale)) => *scale,
            _ => 0,
        };
        Self {
            values: args.is_distinct.then(BTreeSet::new),
            count: 0,
            shown: 0,
            sum: BigInt::ZERO,
            squares: BigInt::ZERO,
            scale: scale.into(),
            is_sample: ["var", "stddev"].contains(&function),
            is_root: ["stddev", "stddev_pop"].contains(&function),
        }
    }

    fn add(&mut self, value: BigInt) {
        match &mut self.values {
            Some(values) => {
                values.insert(value);
            }
            None => {
                self.count += 1;
                self.squares += &value * &value;
                self.sum += value;
            }
        }
    }

    /// Adds values of 64 bits, which most are, without a number of any length for each.
    fn add_short(&mut self, values: &ArrayRef) -> Option<()> {
        let values = values.as_primitive_opt::<Decimal128Type>()?;
        if self.values.is_some() {
            return None;
        }
        let (mut sum, mut squares) = (0_i128, 0_i128);
        for value in values.iter().flatten() {
            i64::try_from(value).ok()?;
            sum += value;
            squares = squares.checked_add(value * value)?;
        }
        self.count += i64::try_from(values.len() - values.null_count()).unwrap_or(0);
        self.sum += sum;
        self.squares += squares;
        Some(())
    }

    fn deviation(&self) -> Result<Option<Rounded>> {
        let (count, sum, squares) = match &self.values {
            Some(values) => {
                let squares = values.iter().map(|value| value * value).sum::<BigInt>();
                (i64::try_from(values.len()).unwrap_or(0), values.iter().sum(), squares)
            }
            None => (self.count, self.sum.clone(), self.squares.clone()),
        };
        if count == 0 || self.is_sample && count == 1 {
            return Ok(None);
        }
        let dividend: BigInt = squares * count - &sum * &sum;
        if dividend <= BigInt::ZERO {
            return Ok(Some(Rounded { value: BigInt::ZERO, scale: 0 }));
        }
        let divisor = BigInt::from(count) * if self.is_sample { count - 1 } else { count };
        let decimals = decimals(&dividend, 2 * self.scale, &divisor).max(2 * self.shown);
        let decimals = decimals.clamp(0, SCALE.into());
        // At the scale of the result.
        let behind = 2 * self.scale;
        let variance = divided(&(dividend * ten_to(decimals)), &(divisor * ten_to(behind)));
        if !self.is_root {
            return Ok(Some(Rounded { value: variance, scale: decimals }));
        }
        let square: BigInt = variance * ten_to(decimals);
        let root = square.sqrt();
        let rest: BigInt = &square - &root * &root;
        let value = if rest > root { root + 1 } else { root };
        Ok(Some(Rounded { value, scale: decimals }))
    }
}

/// Decimals that PostgreSQL gives a quotient of positive numbers, of which the first has `scale` decimals.
fn decimals(dividend: &BigInt, scale: i32, divisor: &BigInt) -> i32 {
    let ((above, above_weight), (below, below_weight)) =
        (first_group(dividend, scale), first_group(divisor, 0));
    let weight = above_weight - below_weight - i32::from(above <= below);
    SIGNIFICANT - weight * 4
}

/// The first of PostgreSQL's base-10,000 digits of a positive number, and its power of 10,000.
fn first_group(number: &BigInt, scale: i32) -> (u32, i32) {
    let digits = number.to_string();
    let top = i32::try_from(digits.len()).unwrap_or(i32::MAX) - 1 - scale;
    let weight = top.div_euclid(4);
    let kept = usize::try_from(top - weight * 4 + 1).unwrap_or(1);
    let shown: String = digits.chars().chain(std::iter::repeat('0')).take(kept).collect();
    (shown.parse().unwrap_or(0), weight)
}

impl Accumulator for Deviation {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let [values] = take_function_args("variance", values)?;
        if !matches!(values.data_type(), DataType::Decimal256(..)) {
            self.shown = self.scale;
        }
        if self.add_short(values).is_some() {
            return Ok(());
        }
        let numbers = Numerics::of(values)?;
        for row in 0..values.len() {
            let Some(number) = numbers.shown_at(row) else { continue };
            self.shown = self.shown.max(number.scale());
            self.add(digits_at(number, self.scale));
        }
        Ok(())
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let [values] = take_function_args("variance", values)?;
        let numbers = Numerics::of(values)?;
        for row in 0..values.len() {
            let Some(number) = numbers.shown_at(row) else { continue };
            let value = digits_at(number, self.scale);
            self.count -= 1;
            self.squares -= &value * &value;
            self.sum -= value;
        }
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        self.values.is_none()
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let deviation = self.deviation()?;
        let stored = deviation.map(|value| value.stored().ok_or_else(too_large)).transpose()?;
        Ok(ScalarValue::Decimal256(stored, VARIANCE, SCALE))
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let bytes = |number: &BigInt| ScalarValue::Binary(Some(number.to_signed_bytes_le()));
        if let Some(values) = &self.values {
            let values: Vec<_> = values.iter().map(bytes).collect();
            return Ok(vec![ScalarValue::List(ScalarValue::new_list(
                &values,
                &DataType::Binary,
                true,
            ))]);
        }
        Ok(vec![
            ScalarValue::Int64(Some(self.count)),
            ScalarValue::Int64(Some(self.shown.into())),
            bytes(&self.sum),
            bytes(&self.squares),
        ])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        if self.values.is_some() {
            let [lists] = take_function_args("variance", states)?;
            for list in lists.as_list::<i32>().iter().flatten() {
                for value in list.as_binary::<i32>().iter().flatten() {
                    self.add(BigInt::from_signed_bytes_le(value));
                }
            }
            return Ok(());
        }
        let [counts, shown, sums, squares] = take_function_args("variance", states)?;
        let (counts, shown) =
            (counts.as_primitive::<Int64Type>(), shown.as_primitive::<Int64Type>());
        let (sums, squares) = (sums.as_binary::<i32>(), squares.as_binary::<i32>());
        for row in (0..counts.len()).filter(|row| counts.is_valid(*row) && sums.is_valid(*row)) {
            self.count += counts.value(row);
            self.shown = self.shown.max(i32::try_from(shown.value(row)).unwrap_or(0));
            self.sum += BigInt::from_signed_bytes_le(sums.value(row));
            self.squares += BigInt::from_signed_bytes_le(squares.value(row));
        }
        Ok(())
    }

    fn size(&self) -> usize {
        let values = self.values.as_ref().map_or(0, BTreeSet::len);
        // A number of any length takes its digits and three words.
        size_of_val(self) + (values + 2) * (3 * size_of::<usize>() + usize::from(PRECISION) / 2)
    }
}

#[cfg(test)]
mod tests;
