//! `avg` with PostgreSQL's types: of integers and numerics it is a numeric with the digits of a
//! [quotient](super::quotient), of intervals an interval; of floats it is DataFusion's.
//!
//! In an aggregate, `avg` is rewritten to a sum and a count before the query runs, so a device only sees those. This
//! function serves windows.

use std::mem::size_of_val;
use std::sync::{Arc, OnceLock};

use arrow::array::{Array, ArrayRef, AsArray, Int64Array};
use arrow::compute::cast;
use arrow::datatypes::{
    DataType, Decimal256Type, Field, FieldRef, IntervalMonthDayNano, IntervalMonthDayNanoType, i256,
};
use arrow::error::ArrowError;
use datafusion_common::utils::take_function_args;
use datafusion_common::{DataFusionError, Result, ScalarValue, not_impl_err};
use datafusion_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion_expr::utils::format_state_name;
use datafusion_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, GroupsAccumulator, ReversedUDAF, Signature,
    Volatility,
};
use datafusion_functions_aggregate::average::avg_udaf;

use super::exact_sum::argument;
use super::intervals::{INTERVAL, divided};
use super::quotient::{QUOTIENT, average_of_one};
use super::refilled::Refilled;
use super::row_function::ArgumentFault;

const NAME: &str = "avg";

/// The average.
pub fn average() -> Arc<AggregateUDF> {
    static FUNCTION: OnceLock<Arc<AggregateUDF>> = OnceLock::new();
    Arc::clone(FUNCTION.get_or_init(|| {
        let signature = Signature::user_defined(Volatility::Immutable);
        let aliases = vec!["mean".to_owned()];
        Arc::new(AggregateUDF::from(Average { signature, aliases }))
    }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Average {
    signature: Signature,
    aliases: Vec<String>,
}

/// The type of sums of such values; None if DataFusion computes their average.
fn sum_type(arg: Option<&DataType>) -> Option<DataType> {
    match arg? {
        DataType::Int32 | DataType::Int64 => Some(DataType::Decimal256(76, 0)),
        DataType::Decimal128(_, scale) | DataType::Decimal256(_, scale) => {
            Some(DataType::Decimal256(76, *scale))
        }
        _ => None,
    }
}

/// Whether averages of such values are intervals.
fn is_interval(own: &DataType) -> bool {
    *own == INTERVAL
}

impl AggregateUDFImpl for Average {
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
        let [arg] = take_function_args(NAME, arg_types)?;
        Ok(vec![match arg {
            DataType::Int8 | DataType::Int16 | DataType::Int32 => DataType::Int32,
            DataType::Int64 => DataType::Int64,
            DataType::UInt8 | DataType::UInt16 | DataType::UInt32 | DataType::UInt64 => {
                DataType::Decimal128(20, 0)
            }
            DataType::Float16 | DataType::Float32 | DataType::Null => DataType::Float64,
            other => other.clone(),
        }])
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        match sum_type(arg_types.first()) {
            Some(_) => Ok(QUOTIENT),
            None if arg_types.first().is_some_and(is_interval) => Ok(INTERVAL),
            None => avg_udaf().return_type(arg_types),
        }
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        let arg = args.input_fields.first().map(|field| field.data_type());
        if arg.is_some_and(is_interval) {
            let field = |part: &str| {
                Arc::new(Field::new(format_state_name(args.name, part), DataType::Int64, true))
            };
            return Ok(["months", "days", "nanoseconds", "count"].map(field).to_vec());
        }
        let Some(sum) = sum_type(arg) else { return avg_udaf().state_fields(args) };
        Ok(vec![
            Arc::new(Field::new(format_state_name(args.name, "sum"), sum, true)),
            Arc::new(Field::new(format_state_name(args.name, "count"), DataType::Int64, true)),
        ])
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        if argument(&args).is_some_and(is_interval) {
            if args.is_distinct {
                return not_impl_err!("avg(DISTINCT) of intervals in this place");
            }
            return Ok(Box::new(IntervalSum::default()));
        }
        let Some(sum_type) = sum_type(argument(&args)) else {
            return avg_udaf().accumulator(args);
        };
        if args.is_distinct {
            return not_impl_err!("avg(DISTINCT) of numerics in this place");
        }
        Ok(Box::new(SumAndCount { sum: i256::ZERO, count: 0, sum_type }))
    }

    fn create_sliding_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        match sum_type(argument(&args)) {
            Some(_) => self.accumulator(args),
            None if argument(&args).is_some_and(is_interval) => self.accumulator(args),
            // A float that leaves cannot be subtracted.
            None => Ok(Box::new(Refilled::new(&avg_udaf(), args)?)),
        }
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs) -> bool {
        sum_type(argument(&args)).is_none()
            && !argument(&args).is_some_and(is_interval)
            && avg_udaf().groups_accumulator_supported(args)
    }

    fn create_groups_accumulator(
        &self,
        args: AccumulatorArgs,
    ) -> Result<Box<dyn GroupsAccumulator>> {
        avg_udaf().create_groups_accumulator(args)
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        ReversedUDAF::Identical
    }
}

/// The state of an average.
#[derive(Debug)]
struct SumAndCount {
    sum: i256,
    count: i64,
    sum_type: DataType,
}

fn too_large() -> DataFusionError {
    ArrowError::ArithmeticOverflow("value overflows numeric format".to_owned()).into()
}

impl SumAndCount {
    /// The sum and the number of the values that are not NULL.
    fn of(&self, values: &[ArrayRef]) -> Result<(i256, i64)> {
        let [values] = take_function_args(NAME, values)?;
        let count = i64::try_from(values.len() - values.null_count()).unwrap_or(i64::MAX);
        let values = cast(values, &self.sum_type)?;
        let mut all = values.as_primitive::<Decimal256Type>().iter().flatten();
        let sum = all.try_fold(i256::ZERO, |sum, value| sum.checked_add(value));
        Ok((sum.ok_or_else(too_large)?, count))
    }

    fn sum(&self) -> Result<ScalarValue> {
        let DataType::Decimal256(precision, scale) = self.sum_type else {
            return Err(too_large());
        };
        let sum = (self.count > 0).then_some(self.sum);
        Ok(ScalarValue::Decimal256(sum, precision, scale))
    }
}

impl Accumulator for SumAndCount {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let (sum, count) = self.of(values)?;
        self.sum = self.sum.checked_add(sum).ok_or_else(too_large)?;
        self.count += count;
        Ok(())
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let (sum, count) = self.of(values)?;
        self.sum = self.sum.checked_sub(sum).ok_or_else(too_large)?;
        self.count -= count;
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        average_of_one(&self.sum()?, self.count)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(vec![self.sum()?, ScalarValue::Int64(Some(self.count))])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let [sums, counts] = take_function_args(NAME, states)?;
        let (sum, _) = self.of(std::slice::from_ref(sums))?;
        let counts: &Int64Array = counts.as_primitive();
        self.sum = self.sum.checked_add(sum).ok_or_else(too_large)?;
        self.count += counts.iter().flatten().sum::<i64>();
        Ok(())
    }

    fn size(&self) -> usize {
        size_of_val(self)
    }
}

/// The state of an average of intervals: their fields are added one by one.
#[derive(Debug, Default)]
struct IntervalSum {
    months: i64,
    days: i64,
    nanos: i64,
    count: i64,
}

impl IntervalSum {
    /// Adds, or with `sign` -1 takes away, the intervals that are not NULL.
    fn add(&mut self, values: &[ArrayRef], sign: i64) -> Result<()> {
        let [values] = take_function_args(NAME, values)?;
        for interval in values.as_primitive::<IntervalMonthDayNanoType>().iter().flatten() {
            self.months += sign * i64::from(interval.months);
            self.days += sign * i64::from(interval.days);
            let nanos = sign.checked_mul(interval.nanoseconds);
            let nanos = nanos.and_then(|nanos| self.nanos.checked_add(nanos));
            self.nanos = nanos.ok_or_else(too_long)?;
            self.count += sign;
        }
        Ok(())
    }
}

fn too_long() -> DataFusionError {
    ArgumentFault::TimeOutOfRange { what: "interval" }.into()
}

impl Accumulator for IntervalSum {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.add(values, 1)
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.add(values, -1)
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        if self.count == 0 {
            return Ok(ScalarValue::IntervalMonthDayNano(None));
        }
        let part = |part: i64| i32::try_from(part).map_err(|_| too_long());
        let sum = IntervalMonthDayNano::new(part(self.months)?, part(self.days)?, self.nanos);
        let average = divided(sum, self.count as f64)?;
        Ok(ScalarValue::IntervalMonthDayNano(Some(average)))
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let parts = [self.months, self.days, self.nanos, self.count];
        Ok(parts.map(|part| ScalarValue::Int64(Some(part))).to_vec())
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let parts: [&ArrayRef; 4] = take_function_args(NAME, states)?;
        let sums = parts.map(|part| {
            let part: &Int64Array = part.as_primitive();
            part.iter().flatten().try_fold(0_i64, i64::checked_add)
        });
        let all = [&mut self.months, &mut self.days, &mut self.nanos, &mut self.count];
        for (total, sum) in all.into_iter().zip(sums) {
            *total = sum.and_then(|sum| total.checked_add(sum)).ok_or_else(too_long)?;
        }
        Ok(())
    }

    fn size(&self) -> usize {
        size_of_val(self)
    }
}
