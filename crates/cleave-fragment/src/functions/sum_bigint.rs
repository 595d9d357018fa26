//! `sum(bigint)` as `numeric(38)`, read as it lies: no value is widened before it is added.

use std::mem::size_of_val;
use std::sync::{Arc, OnceLock};

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Decimal128Array, Int64Array};
use arrow::buffer::NullBuffer;
use arrow::compute::cast;
use arrow::datatypes::{DataType, Decimal128Type, Field, FieldRef, Int64Type};
use datafusion_common::utils::take_function_args;
use datafusion_common::{Result, ScalarValue};
use datafusion_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, EmitTo, GroupsAccumulator, ReversedUDAF,
    Signature, Volatility,
};
use datafusion_functions_aggregate_common::aggregate::groups_accumulator::accumulate::NullState;

/// Digits of the result: no sum of fewer than 2⁶⁴ bigints has more.
const PRECISION: u8 = 38;

/// The sum of bigints.
pub fn sum_bigint() -> Arc<AggregateUDF> {
    static FUNCTION: OnceLock<Arc<AggregateUDF>> = OnceLock::new();
    Arc::clone(FUNCTION.get_or_init(|| {
        let signature = Signature::exact(vec![DataType::Int64], Volatility::Immutable);
        Arc::new(AggregateUDF::from(SumBigint { signature }))
    }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct SumBigint {
    signature: Signature,
}

impl AggregateUDFImpl for SumBigint {
    fn name(&self) -> &'static str {
        "sum_bigint"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arg_types: &[DataType]) -> Result<DataType> {
        Ok(result_type())
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        Ok(vec![Arc::new(Field::new(format!("{}[sum]", args.name), result_type(), true))])
    }

    fn accumulator(&self, _args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        Ok(Box::new(Sum::default()))
    }

    fn groups_accumulator_supported(&self, _args: AccumulatorArgs) -> bool {
        true
    }

    fn create_groups_accumulator(
        &self,
        _args: AccumulatorArgs,
    ) -> Result<Box<dyn GroupsAccumulator>> {
        Ok(Box::new(GroupSums { sums: Vec::new(), nulls: NullState::new() }))
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        ReversedUDAF::Identical
    }
}

fn result_type() -> DataType {
    DataType::Decimal128(PRECISION, 0)
}

/// One sum.
#[derive(Debug, Default)]
struct Sum {
    sum: i128,
    /// Values in it; a sum of none is NULL.
    count: i64,
}

impl Accumulator for Sum {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let [values] = take_function_args("sum_bigint", values)?;
        let (sum, count) = sum_of(values.as_primitive());
        self.sum += sum;
        self.count += count;
        Ok(())
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let [values] = take_function_args("sum_bigint", values)?;
        let (sum, count) = sum_of(values.as_primitive());
        self.sum -= sum;
        self.count -= count;
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        Ok(ScalarValue::Decimal128((self.count > 0).then_some(self.sum), PRECISION, 0))
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(vec![self.evaluate()?])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let [states] = take_function_args("sum_bigint", states)?;
        for sum in states.as_primitive::<Decimal128Type>().iter().flatten() {
            self.sum += sum;
            self.count += 1;
        }
        Ok(())
    }

    fn size(&self) -> usize {
        size_of_val(self)
    }
}

/// Sum and number of the values that are not NULL.
fn sum_of(values: &Int64Array) -> (i128, i64) {
    let all = values.values().as_ref();
    let sum = match values.nulls() {
        None => sum_of_slice(all),
        Some(nulls) => nulls
            .valid_slices()
            .filter_map(|(start, end)| all.get(start..end))
            .map(sum_of_slice)
            .sum(),
    };
    (sum, i64::try_from(values.len() - values.null_count()).unwrap_or(i64::MAX))
}

/// Adds the halves of the values apart, in 64 bits each, which the compiler makes vectors of: a carry into
/// 128 bits after each value would cost twice the time.
fn sum_of_slice(values: &[i64]) -> i128 {
    // Halves of 32 bits cannot overflow 64 within so many.
    const BLOCK: usize = 1 << 20;
    let mut sum = 0;
    for block in values.chunks(BLOCK) {
        let (mut low, mut high) = (0_i64, 0_i64);
        for value in block {
            low += value & 0xffff_ffff;
            high += value >> 32;
        }
        sum += (i128::from(high) << 32) + i128::from(low);
    }
    sum
}

/// A sum for each group.
#[derive(Debug)]
struct GroupSums {
    sums: Vec<i128>,
    nulls: NullState,
}

impl GroupsAccumulator for GroupSums {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        groups: &[usize],
        filter: Option<&BooleanArray>,
        group_count: usize,
    ) -> Result<()> {
        let [values] = take_function_args("sum_bigint", values)?;
        let values = values.as_primitive::<Int64Type>();
        self.sums.resize(group_count, 0);
        let sums = &mut self.sums;
        self.nulls.accumulate(groups, values, filter, group_count, |group, value| {
            if let Some(sum) = sums.get_mut(group) {
                *sum += i128::from(value);
            }
        });
        Ok(())
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let sums = emit_to.take_needed(&mut self.sums);
        let nulls = self.nulls.build(emit_to);
        Ok(Arc::new(Decimal128Array::new(sums.into(), nulls).with_data_type(result_type())))
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        Ok(vec![self.evaluate(emit_to)?])
    }

    fn merge_batch(
        &mut self,
        states: &[ArrayRef],
        groups: &[usize],
        group_count: usize,
    ) -> Result<()> {
        let [states] = take_function_args("sum_bigint", states)?;
        let states = states.as_primitive::<Decimal128Type>();
        self.sums.resize(group_count, 0);
        let sums = &mut self.sums;
        self.nulls.accumulate(groups, states, None, group_count, |group, sum_of_state| {
            if let Some(sum) = sums.get_mut(group) {
                *sum += sum_of_state;
            }
        });
        Ok(())
    }

    fn convert_to_state(
        &self,
        values: &[ArrayRef],
        filter: Option<&BooleanArray>,
    ) -> Result<Vec<ArrayRef>> {
        let [values] = take_function_args("sum_bigint", values)?;
        let sums = cast(values, &result_type())?;
        let Some(filter) = filter else { return Ok(vec![sums]) };
        // What the filter does not say true to is a sum of no value.
        let taken: NullBuffer =
            filter.iter().map(|keep| keep == Some(true)).collect::<Vec<bool>>().into();
        let (_, buffer, nulls) = sums.as_primitive::<Decimal128Type>().clone().into_parts();
        let nulls = NullBuffer::union(nulls.as_ref(), Some(&taken));
        Ok(vec![Arc::new(Decimal128Array::new(buffer, nulls).with_data_type(result_type()))])
    }

    fn size(&self) -> usize {
        self.sums.capacity() * size_of::<i128>() + self.nulls.size()
    }
}

#[cfg(test)]
mod tests {
    //! Extremes, NULLs, windows and groups, against sums in 128 bits.

    use super::*;

    fn array(values: &[Option<i64>]) -> ArrayRef {
        Arc::new(Int64Array::from(values.to_vec()))
    }

    fn number(sum: i128) -> ScalarValue {
        ScalarValue::Decimal128(Some(sum), PRECISION, 0)
    }

    #[test]
    fn extremes_add_up() {
        for values in [
            vec![i64::MAX, i64::MAX, 1],
            vec![i64::MIN, i64::MIN, -1],
            vec![-1, 1, 0, i64::MIN, i64::MAX],
            (0..100_000).map(|n| n * 91_234_567_890_123 - (1 << 61)).collect(),
        ] {
            let expected: i128 = values.iter().map(|value| i128::from(*value)).sum();
            assert_eq!(sum_of_slice(&values), expected);
        }
    }

    #[test]
    fn a_window_forgets_what_leaves_it() {
        let mut sum = Sum::default();
        assert_eq!(sum.evaluate().unwrap(), ScalarValue::Decimal128(None, PRECISION, 0));
        sum.update_batch(&[array(&[Some(5), None, Some(i64::MAX)])]).unwrap();
        assert_eq!(sum.evaluate().unwrap(), number(i128::from(i64::MAX) + 5));
        sum.retract_batch(&[array(&[Some(5), None, Some(i64::MAX)])]).unwrap();
        assert_eq!(sum.evaluate().unwrap(), ScalarValue::Decimal128(None, PRECISION, 0));
    }

    #[test]
    fn groups_merge_to_the_same_sums() {
        let values = [array(&[Some(i64::MAX), Some(3), None, Some(i64::MAX)])];
        let groups = || GroupSums { sums: Vec::new(), nulls: NullState::new() };
        let mut partial = groups();
        partial.update_batch(&values, &[0, 1, 2, 0], None, 3).unwrap();
        let states = partial.state(EmitTo::All).unwrap();
        let mut whole = groups();
        whole.merge_batch(&states, &[2, 1, 0], 3).unwrap();
        let filter = BooleanArray::from(vec![Some(true), None, Some(true), Some(false)]);
        let straight = whole.convert_to_state(&values, Some(&filter)).unwrap();
        whole.merge_batch(&straight, &[1, 1, 0, 1], 3).unwrap();
        let result = whole.evaluate(EmitTo::All).unwrap();
        let max = i128::from(i64::MAX);
        let expected = Decimal128Array::from(vec![None, Some(3 + max), Some(2 * max)]);
        assert_eq!(
            result.as_primitive::<Decimal128Type>().iter().collect::<Vec<_>>(),
            expected.iter().collect::<Vec<_>>()
        );
    }
}
