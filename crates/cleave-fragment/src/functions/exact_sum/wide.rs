//! Sums of numerics of 256 bits, of quotients and of numerics without a precision: one that has too many digits is an
//! error, where DataFusion's wraps around.
//!
//! A sum that leaves 256 bits stays at [`LOST`], which is no number of 76 digits, until it is asked for.

use std::mem::size_of_val;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray};
use arrow::datatypes::{DataType, Decimal256Type, i256};
use datafusion_common::utils::take_function_args;
use datafusion_common::{Result, ScalarValue};
use datafusion_expr::{Accumulator, EmitTo, GroupsAccumulator};
use datafusion_functions_aggregate_common::aggregate::groups_accumulator::prim_op::PrimitiveGroupsAccumulator;

use super::too_large;

const LOST: i256 = i256::MAX;
const PRECISION: u8 = 76;

fn add(sum: &mut i256, value: i256) {
    *sum = if *sum == LOST { LOST } else { sum.checked_add(value).unwrap_or(LOST) };
}

/// Whether a number has no more than 76 digits.
fn fits(value: i256) -> bool {
    let limit = i256::from_i128(10).wrapping_pow(PRECISION.into());
    value < limit && value > limit.wrapping_neg()
}

/// One sum, of the type of its values.
#[derive(Debug)]
pub(super) struct WideSum {
    sum: i256,
    /// Number of values; a sum of none is NULL.
    count: usize,
    scale: i8,
}

impl WideSum {
    pub(super) fn new(result: &DataType) -> Self {
        let scale = if let DataType::Decimal256(_, scale) = result { *scale } else { 0 };
        Self { sum: i256::ZERO, count: 0, scale }
    }

    fn value(&self) -> ScalarValue {
        ScalarValue::Decimal256((self.count > 0).then_some(self.sum), PRECISION, self.scale)
    }
}

impl Accumulator for WideSum {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let [values] = take_function_args("sum", values)?;
        for value in values.as_primitive::<Decimal256Type>().iter().flatten() {
            add(&mut self.sum, value);
        }
        self.count += values.len() - values.null_count();
        Ok(())
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let [values] = take_function_args("sum", values)?;
        for value in values.as_primitive::<Decimal256Type>().iter().flatten() {
            add(&mut self.sum, value.wrapping_neg());
        }
        self.count -= values.len() - values.null_count();
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        if fits(self.sum) { Ok(self.value()) } else { Err(too_large()) }
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(vec![self.value()])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.update_batch(states)
    }

    fn size(&self) -> usize {
        size_of_val(self)
    }
}

/// A sum for each group.
pub(super) fn group_sums(result: &DataType) -> Box<dyn GroupsAccumulator> {
    Box::new(GroupSums(Box::new(PrimitiveGroupsAccumulator::<Decimal256Type, _>::new(result, add))))
}

struct GroupSums(Box<dyn GroupsAccumulator>);

impl GroupsAccumulator for GroupSums {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        groups: &[usize],
        filter: Option<&BooleanArray>,
        group_count: usize,
    ) -> Result<()> {
        self.0.update_batch(values, groups, filter, group_count)
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let sums = self.0.evaluate(emit_to)?;
        match sums.as_primitive::<Decimal256Type>().iter().flatten().all(fits) {
            true => Ok(sums),
            false => Err(too_large()),
        }
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        self.0.state(emit_to)
    }

    fn merge_batch(
        &mut self,
        values: &[ArrayRef],
        groups: &[usize],
        group_count: usize,
    ) -> Result<()> {
        self.0.merge_batch(values, groups, group_count)
    }

    fn convert_to_state(
        &self,
        values: &[ArrayRef],
        filter: Option<&BooleanArray>,
    ) -> Result<Vec<ArrayRef>> {
        self.0.convert_to_state(values, filter)
    }

    fn size(&self) -> usize {
        self.0.size()
    }
}
