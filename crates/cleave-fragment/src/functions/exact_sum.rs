//! `sum` with PostgreSQL's types: of integers a bigint; of bigints a `numeric(38)`, which holds any such sum; of
//! numerics a numeric of 38 digits or an error.
//!
//! DataFusion's sums of bigints and of numerics wrap around. Here both are added in 128 bits, or in [256](wide). Sums
//! of floats, intervals and DISTINCT numerics are DataFusion's own.

mod wide;

use std::collections::BTreeSet;
use std::mem::size_of_val;
use std::sync::{Arc, OnceLock};

use arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, AsArray, BooleanArray, Decimal128Array, Int64Array,
    PrimitiveArray,
};
use arrow::buffer::NullBuffer;
use arrow::compute::cast;
use arrow::datatypes::{DataType, Decimal128Type, Field, FieldRef, Int32Type, Int64Type};
use arrow::error::ArrowError;
use datafusion_common::utils::take_function_args;
use datafusion_common::{DataFusionError, Result, ScalarValue, internal_err, plan_err};
use datafusion_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion_expr::utils::{AggregateOrderSensitivity, format_state_name};
use datafusion_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, EmitTo, GroupsAccumulator, ReversedUDAF,
    Signature, Volatility,
};
use datafusion_functions_aggregate::sum::sum_udaf;
use datafusion_functions_aggregate_common::aggregate::groups_accumulator::accumulate::NullState;

use self::wide::WideSum;
use super::refilled::Refilled;

/// Digits of a sum of bigints: a sum of fewer than 2⁶⁴ has no more.
const PRECISION: u8 = 38;
/// Not `sum`, because DataFusion's optimizer changes the types of an aggregate of that name.
const NAME: &str = "exact_sum";

/// The sum, callable as `sum`.
pub fn exact_sum() -> Arc<AggregateUDF> {
    static FUNCTION: OnceLock<Arc<AggregateUDF>> = OnceLock::new();
    Arc::clone(FUNCTION.get_or_init(|| {
        let signature = Signature::user_defined(Volatility::Immutable);
        let aliases = vec!["sum".to_owned()];
        Arc::new(AggregateUDF::from(ExactSum { signature, aliases }))
    }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct ExactSum {
    signature: Signature,
    aliases: Vec<String>,
}

/// The type of the sum of values of type `arg`; `None` if DataFusion computes it.
fn exact_type(arg: &DataType) -> Option<DataType> {
    match arg {
        DataType::Int32 => Some(DataType::Int64),
        DataType::Int64 => Some(DataType::Decimal128(PRECISION, 0)),
        DataType::Decimal128(_, scale) => Some(DataType::Decimal128(PRECISION, *scale)),
        DataType::Decimal256(_, scale) => Some(DataType::Decimal256(76, *scale)),
        _ => None,
    }
}

/// Whether the sum of values of type `arg` is computed here.
fn is_ours(arg: Option<&DataType>, is_distinct: bool) -> bool {
    match arg {
        Some(DataType::Decimal128(..) | DataType::Decimal256(..)) => !is_distinct,
        Some(arg) => exact_type(arg).is_some(),
        None => false,
    }
}

/// The type of the argument of an aggregate with one.
pub(super) fn argument<'a>(args: &AccumulatorArgs<'a>) -> Option<&'a DataType> {
    args.expr_fields.first().map(|field| field.data_type())
}

impl AggregateUDFImpl for ExactSum {
    fn name(&self) -> &'static str {
        NAME
    }

    fn aliases(&self) -> &[String] {
        &self.aliases
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arg_types: &[DataType]) -> Result<Vec<DataType>> {
        let [arg] = take_function_args("sum", arg_types)?;
        Ok(vec![match arg {
            DataType::Int8 | DataType::Int16 | DataType::Int32 => DataType::Int32,
            DataType::Int64 | DataType::Null => DataType::Int64,
            DataType::UInt8 | DataType::UInt16 | DataType::UInt32 | DataType::UInt64 => {
                DataType::UInt64
            }
            DataType::Float16 | DataType::Float32 | DataType::Float64 => DataType::Float64,
            DataType::Decimal32(..)
            | DataType::Decimal64(..)
            | DataType::Decimal128(..)
            | DataType::Decimal256(..)
            | DataType::Duration(_)
            | DataType::Interval(_) => arg.clone(),
            other => return plan_err!("sum does not take a value of type {other}"),
        }])
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        let [arg] = take_function_args("sum", arg_types)?;
        match exact_type(arg) {
            Some(sum) => Ok(sum),
            None => sum_udaf().return_type(arg_types),
        }
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        let arg = args.input_fields.first().map(|field| field.data_type());
        if !is_ours(arg, args.is_distinct) {
            return sum_udaf().state_fields(args);
        }
        let field = if args.is_distinct {
            let item = Field::new_list_field(DataType::Int64, true);
            Field::new_list(format_state_name(args.name, "sum distinct"), item, true)
        } else {
            let sum = args.return_field.data_type().clone();
            Field::new(format_state_name(args.name, "sum"), sum, true)
        };
        Ok(vec![Arc::new(field)])
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        if !is_ours(argument(&args), args.is_distinct) {
            return sum_udaf().accumulator(args);
        }
        let result = args.return_field.data_type().clone();
        Ok(if args.is_distinct {
            Box::new(DistinctSum { values: BTreeSet::new(), result })
        } else if matches!(result, DataType::Decimal256(..)) {
            Box::new(WideSum::new(&result))
        } else {
            Box::new(Sum { sum: 0, count: 0, result })
        })
    }

    fn create_sliding_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        if is_ours(argument(&args), args.is_distinct) {
            return self.accumulator(args);
        }
        match argument(&args) {
            // Of floats, a value that leaves cannot be subtracted: see `Refilled`.
            Some(DataType::Float64) => Ok(Box::new(Refilled::new(&sum_udaf(), args)?)),
            _ => sum_udaf().create_sliding_accumulator(args),
        }
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs) -> bool {
        !args.is_distinct
    }

    fn create_groups_accumulator(
        &self,
        args: AccumulatorArgs,
    ) -> Result<Box<dyn GroupsAccumulator>> {
        if !is_ours(argument(&args), args.is_distinct) {
            return sum_udaf().create_groups_accumulator(args);
        }
        let result = args.return_field.data_type().clone();
        if matches!(result, DataType::Decimal256(..)) {
            return Ok(wide::group_sums(&result));
        }
        Ok(Box::new(GroupSums { sums: Vec::new(), nulls: NullState::new(), result }))
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        ReversedUDAF::Identical
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        AggregateOrderSensitivity::Insensitive
    }
}

/// The largest number of 38 digits.
const LARGEST: u128 = 10_u128.pow(PRECISION as u32) - 1;

fn too_large() -> DataFusionError {
    let message = format!("the sum has more than {PRECISION} digits");
    DataFusionError::from(ArrowError::ArithmeticOverflow(message))
}

/// Sums as a column of type `result`.
fn sums_as(sums: Vec<i128>, nulls: Option<NullBuffer>, result: &DataType) -> Result<ArrayRef> {
    if sums.iter().any(|sum| sum.unsigned_abs() > LARGEST) {
        return Err(too_large());
    }
    parts_as(sums, nulls, result)
}

/// Partial sums as a column of type `result`: each may have more digits than the total.
fn parts_as(sums: Vec<i128>, nulls: Option<NullBuffer>, result: &DataType) -> Result<ArrayRef> {
    match result {
        // A sum of integers of 32 bits fits, unless there are 2³² of them.
        DataType::Int64 => {
            let sums: Option<Vec<i64>> = sums.into_iter().map(|sum| sum.try_into().ok()).collect();
            Ok(Arc::new(Int64Array::new(sums.ok_or_else(too_large)?.into(), nulls)))
        }
        _ => Ok(Arc::new(Decimal128Array::new(sums.into(), nulls).with_data_type(result.clone()))),
    }
}

type AsColumn = fn(Vec<i128>, Option<NullBuffer>, &DataType) -> Result<ArrayRef>;

fn sum_as(sum: Option<i128>, result: &DataType, as_column: AsColumn) -> Result<ScalarValue> {
    let nulls = sum.is_none().then(|| NullBuffer::new_null(1));
    ScalarValue::try_from_array(&as_column(vec![sum.unwrap_or_default()], nulls, result)?, 0)
}

/// One sum.
#[derive(Debug)]
struct Sum {
    sum: i128,
    /// Number of values; a sum of none is NULL.
    count: i64,
    result: DataType,
}

impl Accumulator for Sum {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let (sum, count) = sum_of(values)?;
        self.sum = self.sum.checked_add(sum).ok_or_else(too_large)?;
        self.count += count;
        Ok(())
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let (sum, count) = sum_of(values)?;
        self.sum = self.sum.checked_sub(sum).ok_or_else(too_large)?;
        self.count -= count;
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        sum_as((self.count > 0).then_some(self.sum), &self.result, sums_as)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(vec![sum_as((self.count > 0).then_some(self.sum), &self.result, parts_as)?])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let (sum, count) = sum_of(states)?;
        self.sum = self.sum.checked_add(sum).ok_or_else(too_large)?;
        self.count += count;
        Ok(())
    }

    fn size(&self) -> usize {
        size_of_val(self)
    }
}

/// Sum and number of the values that are not NULL; of inputs or of partial sums.
fn sum_of(values: &[ArrayRef]) -> Result<(i128, i64)> {
    let [values] = take_function_args("sum", values)?;
    let sum = match values.data_type() {
        DataType::Int32 => sum_of_runs(values.as_primitive::<Int32Type>(), |run| {
            let blocks = run.chunks(BLOCK);
            Some(blocks.map(|b| i128::from(b.iter().copied().map(i64::from).sum::<i64>())).sum())
        }),
        DataType::Int64 => {
            sum_of_runs(values.as_primitive::<Int64Type>(), |run| Some(sum_of_bigints(run)))
        }
        DataType::Decimal128(..) => sum_of_runs(values.as_primitive::<Decimal128Type>(), |run| {
            run.iter().try_fold(0_i128, |sum, value| sum.checked_add(*value))
        }),
        other => return internal_err!("an exact sum is given a column of type {other}"),
    };
    let sum = sum.ok_or_else(too_large)?;
    Ok((sum, i64::try_from(values.len() - values.null_count()).unwrap_or(i64::MAX)))
}

fn sum_of_runs<T: ArrowPrimitiveType>(
    values: &PrimitiveArray<T>,
    sum: impl Fn(&[T::Native]) -> Option<i128>,
) -> Option<i128> {
    let all = values.values().as_ref();
    let Some(nulls) = values.nulls() else { return sum(all) };
    let mut runs = nulls.valid_slices().filter_map(|(start, end)| all.get(start..end));
    runs.try_fold(0_i128, |total, run| total.checked_add(sum(run)?))
}

/// So many 32-bit numbers do not overflow 64 bits.
const BLOCK: usize = 1 << 20;

/// Sums the halves of the values separately, in 64 bits each, which the compiler vectorises: a carry into 128 bits
/// after each value would take twice the time.
fn sum_of_bigints(values: &[i64]) -> i128 {
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

/// A sum of distinct values.
#[derive(Debug)]
struct DistinctSum {
    values: BTreeSet<i64>,
    result: DataType,
}

impl DistinctSum {
    fn add(&mut self, values: &ArrayRef) -> Result<()> {
        let values = cast(values, &DataType::Int64)?;
        self.values.extend(values.as_primitive::<Int64Type>().iter().flatten());
        Ok(())
    }
}

impl Accumulator for DistinctSum {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let [values] = take_function_args("sum", values)?;
        self.add(values)
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let sum = self.values.iter().map(|value| i128::from(*value)).sum();
        sum_as((!self.values.is_empty()).then_some(sum), &self.result, sums_as)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let values: Vec<ScalarValue> = self.values.iter().map(|value| (*value).into()).collect();
        Ok(vec![ScalarValue::List(ScalarValue::new_list_nullable(&values, &DataType::Int64))])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let [states] = take_function_args("sum", states)?;
        for values in states.as_list::<i32>().iter().flatten() {
            self.add(&values)?;
        }
        Ok(())
    }

    fn size(&self) -> usize {
        // A B-tree node has room for eleven values and is two thirds full on average.
        size_of_val(self) + self.values.len() * 2 * size_of::<i64>()
    }
}

/// With few groups, each has so many partial sums used in rotation: additions need not wait for the one before.
const LANE_COUNT: usize = 4;
/// Most groups for which that is done.
const LANE_GROUPS_MAX: usize = 32;

/// Adds; false if the sum does not fit 128 bits.
#[inline]
fn add_to(sum: &mut i128, value: i128) -> bool {
    let (new, overflowed) = sum.overflowing_add(value);
    *sum = new;
    !overflowed
}

/// A sum for each group.
#[derive(Debug)]
struct GroupSums {
    sums: Vec<i128>,
    nulls: NullState,
    result: DataType,
}

impl GroupSums {
    fn add<T: ArrowPrimitiveType + Send>(
        &mut self,
        values: &PrimitiveArray<T>,
        groups: &[usize],
        filter: Option<&BooleanArray>,
        group_count: usize,
    ) -> Result<()>
    where
        i128: From<T::Native>,
    {
        self.sums.resize(group_count, 0);
        let mut fits = true;
        if group_count > LANE_GROUPS_MAX {
            let sums = &mut self.sums;
            self.nulls.accumulate(groups, values, filter, group_count, |group, value| {
                if let Some(sum) = sums.get_mut(group) {
                    fits &= add_to(sum, i128::from(value));
                }
            });
        } else {
            let mut lanes = [[0_i128; LANE_GROUPS_MAX]; LANE_COUNT];
            let mut turn = 0_usize;
            self.nulls.accumulate(groups, values, filter, group_count, |group, value| {
                turn = turn.wrapping_add(1);
                let lane = lanes.get_mut(turn % LANE_COUNT);
                if let Some(sum) = lane.and_then(|lane| lane.get_mut(group)) {
                    fits &= add_to(sum, i128::from(value));
                }
            });
            for lane in &lanes {
                for (sum, part) in self.sums.iter_mut().zip(lane) {
                    fits &= add_to(sum, *part);
                }
            }
        }
        if fits { Ok(()) } else { Err(too_large()) }
    }
}

impl GroupsAccumulator for GroupSums {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        groups: &[usize],
        filter: Option<&BooleanArray>,
        group_count: usize,
    ) -> Result<()> {
        let [values] = take_function_args("sum", values)?;
        match values.data_type() {
            DataType::Int32 => {
                self.add(values.as_primitive::<Int32Type>(), groups, filter, group_count)
            }
            DataType::Int64 => {
                self.add(values.as_primitive::<Int64Type>(), groups, filter, group_count)
            }
            DataType::Decimal128(..) => {
                self.add(values.as_primitive::<Decimal128Type>(), groups, filter, group_count)
            }
            other => internal_err!("an exact sum is given a column of type {other}"),
        }
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let sums = emit_to.take_needed(&mut self.sums);
        sums_as(sums, self.nulls.build(emit_to), &self.result)
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        let sums = emit_to.take_needed(&mut self.sums);
        Ok(vec![parts_as(sums, self.nulls.build(emit_to), &self.result)?])
    }

    fn merge_batch(
        &mut self,
        states: &[ArrayRef],
        groups: &[usize],
        group_count: usize,
    ) -> Result<()> {
        self.update_batch(states, groups, None, group_count)
    }

    fn convert_to_state(
        &self,
        values: &[ArrayRef],
        filter: Option<&BooleanArray>,
    ) -> Result<Vec<ArrayRef>> {
        let [values] = take_function_args("sum", values)?;
        let sums = cast(values, &self.result)?;
        let Some(filter) = filter else { return Ok(vec![sums]) };
        // Rows for which the filter is not true contribute no value.
        let left_out: BooleanArray = filter.iter().map(|keep| Some(keep != Some(true))).collect();
        Ok(vec![arrow::compute::nullif(&sums, &left_out)?])
    }

    fn size(&self) -> usize {
        self.sums.capacity() * size_of::<i128>() + self.nulls.size()
    }
}

#[cfg(test)]
mod tests {
    //! Extremes, NULLs, windows and groups, against sums in 128 bits.

    use arrow::array::Int32Array;

    use super::*;

    const NUMERIC: DataType = DataType::Decimal128(PRECISION, 0);

    fn array(values: &[Option<i64>]) -> ArrayRef {
        Arc::new(Int64Array::from(values.to_vec()))
    }

    fn number(sum: Option<i128>) -> ScalarValue {
        ScalarValue::Decimal128(sum, PRECISION, 0)
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
            assert_eq!(sum_of_bigints(&values), expected);
        }
        let small: ArrayRef = Arc::new(Int32Array::from(vec![Some(i32::MIN), None, Some(-1)]));
        assert_eq!(sum_of(&[small]).unwrap(), (i128::from(i32::MIN) - 1, 2));
    }

    #[test]
    fn a_window_forgets_what_leaves_it() {
        let mut sum = Sum { sum: 0, count: 0, result: NUMERIC };
        assert_eq!(sum.evaluate().unwrap(), number(None));
        sum.update_batch(&[array(&[Some(5), None, Some(i64::MAX)])]).unwrap();
        assert_eq!(sum.evaluate().unwrap(), number(Some(i128::from(i64::MAX) + 5)));
        sum.retract_batch(&[array(&[Some(5), None, Some(i64::MAX)])]).unwrap();
        assert_eq!(sum.evaluate().unwrap(), number(None));
    }

    #[test]
    fn sums_of_numerics_do_not_wrap_around() {
        let largest = i128::try_from(LARGEST).unwrap();
        let values: ArrayRef =
            Arc::new(Decimal128Array::from(vec![largest, 1]).with_data_type(NUMERIC));
        let mut sum = Sum { sum: 0, count: 0, result: NUMERIC };
        sum.update_batch(&[Arc::clone(&values)]).unwrap();
        assert!(sum.evaluate().unwrap_err().to_string().contains("38 digits"));
        let mut groups = GroupSums { sums: Vec::new(), nulls: NullState::new(), result: NUMERIC };
        groups.update_batch(&[Arc::clone(&values)], &[0, 0], None, 1).unwrap();
        assert!(groups.evaluate(EmitTo::All).is_err());
        let mut many = Sum { sum: 0, count: 0, result: NUMERIC };
        many.update_batch(&[Arc::clone(&values)]).unwrap();
        assert!(many.update_batch(&[values]).is_err());
    }

    #[test]
    fn parts_may_be_larger_than_the_sum() {
        let largest = i128::try_from(LARGEST).unwrap();
        let column = |values: Vec<i128>| -> ArrayRef {
            Arc::new(Decimal128Array::from(values).with_data_type(NUMERIC))
        };
        let (high, low) = (column(vec![largest, 1]), column(vec![-1, 0]));
        let sum = || Sum { sum: 0, count: 0, result: NUMERIC };
        let groups = || GroupSums { sums: Vec::new(), nulls: NullState::new(), result: NUMERIC };
        let (mut whole, mut whole_groups) = (sum(), groups());
        for values in [high, low] {
            let (mut part, mut part_groups) = (sum(), groups());
            part.update_batch(&[Arc::clone(&values)]).unwrap();
            let state = part.state().unwrap().remove(0).to_array().unwrap();
            whole.merge_batch(&[state]).unwrap();
            part_groups.update_batch(&[values], &[0, 0], None, 1).unwrap();
            let states = part_groups.state(EmitTo::All).unwrap();
            whole_groups.merge_batch(&states, &[0], 1).unwrap();
        }
        assert_eq!(whole.evaluate().unwrap(), number(Some(largest)));
        let sums = whole_groups.evaluate(EmitTo::All).unwrap();
        assert_eq!(sums.as_primitive::<Decimal128Type>().value(0), largest);
    }

    #[test]
    fn a_sum_of_integers_beyond_a_bigint_is_an_error() {
        let states = array(&[Some(i64::MAX), Some(1)]);
        let mut sum = Sum { sum: 0, count: 0, result: DataType::Int64 };
        sum.merge_batch(&[Arc::clone(&states)]).unwrap();
        assert!(sum.evaluate().is_err());
        let result = DataType::Int64;
        let mut groups = GroupSums { sums: Vec::new(), nulls: NullState::new(), result };
        groups.merge_batch(&[states], &[0, 0], 1).unwrap();
        assert!(groups.evaluate(EmitTo::All).is_err());
    }

    #[test]
    fn distinct_sums_merge() {
        let sum = || DistinctSum { values: BTreeSet::new(), result: NUMERIC };
        let (mut one, mut other) = (sum(), sum());
        one.update_batch(&[array(&[Some(7), Some(7), None])]).unwrap();
        other.update_batch(&[array(&[Some(7), Some(i64::MAX)])]).unwrap();
        let state = other.state().unwrap().remove(0).to_array().unwrap();
        one.merge_batch(&[state]).unwrap();
        assert_eq!(one.evaluate().unwrap(), number(Some(i128::from(i64::MAX) + 7)));
    }

    #[test]
    fn groups_merge_to_the_same_sums() {
        let values = [array(&[Some(i64::MAX), Some(3), None, Some(i64::MAX)])];
        let groups = || GroupSums { sums: Vec::new(), nulls: NullState::new(), result: NUMERIC };
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
        let result: Vec<Option<i128>> = result.as_primitive::<Decimal128Type>().iter().collect();
        assert_eq!(result, [None, Some(3 + max), Some(2 * max)]);
    }
}
