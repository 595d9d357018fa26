//! DataFusion's aggregates of floats, each with one part replaced.
//!
//! - `max` and `min` by group, in PostgreSQL's order, in which NaN is the largest value and -Infinity the smallest:
//!   DataFusion's begin with the largest finite number, and take a NaN for larger or smaller as it comes.
//! - Deviations, covariances and regressions over a window whose start moves are computed anew from the values left
//!   ([`Refilled`]): DataFusion's subtract a value that leaves, which keeps its rounding, or its NaN, for good.
//! - `var_pop` and `stddev_pop` of a single value that is not finite are NaN: DataFusion's are 0.

use std::sync::{Arc, LazyLock};

use arrow::array::{ArrayRef, AsArray};
use arrow::datatypes::{ArrowPrimitiveType, DataType, FieldRef, Float32Type, Float64Type};
use datafusion_common::utils::take_function_args;
use datafusion_common::{Result, ScalarValue, plan_err};
use datafusion_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion_expr::utils::AggregateOrderSensitivity;
use datafusion_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, GroupsAccumulator, ReversedUDAF, SetMonotonicity,
    Signature, StatisticsArgs, Volatility,
};
use datafusion_functions_aggregate::all_default_aggregate_functions;
use datafusion_functions_aggregate_common::aggregate::groups_accumulator::prim_op::PrimitiveGroupsAccumulator;

use super::exact_sum::argument;
use super::refilled::Refilled;
use super::variance::{self, Deviation};

/// Functions that take a value away from a sum of floats.
const SUBTRACTING: [&str; 16] = [
    "stddev",
    "stddev_pop",
    "var",
    "var_pop",
    "covar_samp",
    "covar_pop",
    "corr",
    "regr_slope",
    "regr_intercept",
    "regr_count",
    "regr_r2",
    "regr_avgx",
    "regr_avgy",
    "regr_sxx",
    "regr_syy",
    "regr_sxy",
];

/// The functions, which take the place of DataFusion's of the same names.
pub(super) fn of_engine() -> impl Iterator<Item = Arc<AggregateUDF>> {
    static FUNCTIONS: LazyLock<Vec<Arc<AggregateUDF>>> = LazyLock::new(|| {
        let engines = all_default_aggregate_functions().into_iter();
        let ours = engines.filter_map(|engines| {
            let part = match engines.name() {
                "max" => Part::Groups { is_largest: true },
                "min" => Part::Groups { is_largest: false },
                name if variance::is_deviation(name) => Part::Deviation,
                name if SUBTRACTING.contains(&name) => Part::Window,
                _ => return None,
            };
            let signature = match part {
                Part::Deviation => Signature::user_defined(Volatility::Immutable),
                _ => engines.signature().clone(),
            };
            Some(Arc::new(AggregateUDF::from(OfEngine { engines, part, signature })))
        });
        ours.collect()
    });
    FUNCTIONS.iter().cloned()
}

/// What is replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Part {
    Groups {
        is_largest: bool,
    },
    Window,
    /// As [`Part::Window`], and of exact numbers wholly.
    Deviation,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct OfEngine {
    engines: Arc<AggregateUDF>,
    part: Part,
    signature: Signature,
}

impl OfEngine {
    /// Whether it is a deviation of exact numbers.
    fn is_exact(&self, arg: Option<&DataType>) -> bool {
        self.part == Part::Deviation && arg.is_some_and(DataType::is_decimal)
    }
}

impl AggregateUDFImpl for OfEngine {
    fn name(&self) -> &str {
        self.engines.name()
    }

    fn aliases(&self) -> &[String] {
        self.engines.aliases()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arg_types: &[DataType]) -> Result<Vec<DataType>> {
        if self.part != Part::Deviation {
            return self.engines.coerce_types(arg_types);
        }
        let [arg] = take_function_args(self.name(), arg_types)?;
        match variance::argument_type(arg) {
            Some(own) => Ok(vec![own]),
            None => plan_err!("{} does not take a value of type {arg}", self.name()),
        }
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        if self.is_exact(arg_types.first()) {
            return Ok(variance::RESULT);
        }
        self.engines.return_type(arg_types)
    }

    fn is_nullable(&self) -> bool {
        self.engines.is_nullable()
    }

    fn default_value(&self, data_type: &DataType) -> Result<ScalarValue> {
        self.engines.default_value(data_type)
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        if self.is_exact(args.input_fields.first().map(|field| field.data_type())) {
            return Ok(variance::state_fields(&args));
        }
        self.engines.state_fields(args)
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        if self.is_exact(argument(&args)) {
            return Ok(Box::new(Deviation::new(self.name(), &args)));
        }
        let accumulator = self.engines.accumulator(args)?;
        Ok(match self.name() {
            "var_pop" | "stddev_pop" => Box::new(OfOneValue(accumulator)),
            "corr" | "regr_r2" | "regr_slope" | "regr_intercept" => {
                Box::new(OfPairs { inner: accumulator, name: self.name().to_owned() })
            }
            _ => accumulator,
        })
    }

    fn create_sliding_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        if self.is_exact(argument(&args)) {
            return self.accumulator(args);
        }
        match self.part {
            Part::Window | Part::Deviation => {
                let own = Arc::new(AggregateUDF::from(self.clone()));
                Ok(Box::new(Refilled::new(&own, args)?))
            }
            Part::Groups { .. } => self.engines.create_sliding_accumulator(args),
        }
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs) -> bool {
        // Its state by group has other parts.
        self.name() != "corr"
            && !self.is_exact(argument(&args))
            && self.engines.groups_accumulator_supported(args)
    }

    fn create_groups_accumulator(
        &self,
        args: AccumulatorArgs,
    ) -> Result<Box<dyn GroupsAccumulator>> {
        let own = args.return_field.data_type();
        let Part::Groups { is_largest } = self.part else {
            return self.engines.create_groups_accumulator(args);
        };
        match (own, is_largest) {
            (DataType::Float32, true) => {
                Ok(Box::new(largest::<Float32Type>(own, f32::NEG_INFINITY)))
            }
            (DataType::Float64, true) => {
                Ok(Box::new(largest::<Float64Type>(own, f64::NEG_INFINITY)))
            }
            (DataType::Float32, false) => Ok(Box::new(smallest::<Float32Type>(own, f32::NAN))),
            (DataType::Float64, false) => Ok(Box::new(smallest::<Float64Type>(own, f64::NAN))),
            _ => self.engines.create_groups_accumulator(args),
        }
    }

    fn is_descending(&self) -> Option<bool> {
        self.engines.is_descending()
    }

    fn value_from_stats(&self, args: &StatisticsArgs) -> Option<ScalarValue> {
        self.engines.value_from_stats(args)
    }

    fn set_monotonicity(&self, data_type: &DataType) -> SetMonotonicity {
        self.engines.inner().set_monotonicity(data_type)
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        // DataFusion's own names itself.
        match self.engines.reverse_udf() {
            ReversedUDAF::Reversed(_) | ReversedUDAF::NotSupported => ReversedUDAF::NotSupported,
            ReversedUDAF::Identical => ReversedUDAF::Identical,
        }
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        self.engines.order_sensitivity()
    }
}

/// A deviation that of a single value is 0 only if the value is finite, else NaN.
#[derive(Debug)]
struct OfOneValue(Box<dyn Accumulator>);

impl Accumulator for OfOneValue {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.0.update_batch(values)
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.0.merge_batch(states)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        self.0.state()
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let result = self.0.evaluate()?;
        if result != ScalarValue::Float64(Some(0.0)) {
            return Ok(result);
        }
        // Count, mean and sum of squares; with DISTINCT, the values.
        let is_finite = match self.0.state()?.as_slice() {
            [_, ScalarValue::Float64(Some(mean)), ..] => mean.is_finite(),
            [ScalarValue::List(values)] => {
                let values = values.values().as_primitive_opt::<Float64Type>();
                values.is_none_or(|values| values.iter().flatten().all(f64::is_finite))
            }
            _ => true,
        };
        Ok(if is_finite { result } else { ScalarValue::Float64(Some(f64::NAN)) })
    }

    fn size(&self) -> usize {
        self.0.size()
    }
}

/// A correlation or a part of a regression, by PostgreSQL's rules: DataFusion's is NULL where one is NaN, and where all
/// pairs lie on a level line.
#[derive(Debug)]
struct OfPairs {
    inner: Box<dyn Accumulator>,
    name: String,
}

impl Accumulator for OfPairs {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.inner.update_batch(values)
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.inner.merge_batch(states)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        self.inner.state()
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let state = self.inner.state()?;
        let parts = state.iter().skip(1).map(|part| match part {
            ScalarValue::Float64(part) => *part,
            _ => None,
        });
        let parts: Option<Vec<f64>> = parts.collect();
        Ok(ScalarValue::Float64(match (state.first(), parts.as_deref()) {
            (Some(ScalarValue::UInt64(Some(1..))), Some(parts)) => self.of(parts),
            _ => None,
        }))
    }

    fn size(&self) -> usize {
        self.inner.size()
    }
}

impl OfPairs {
    /// Of means, sums of squares and the sum of products, in DataFusion's order.
    fn of(&self, parts: &[f64]) -> Option<f64> {
        let [a, b, c, d, products] = *parts else { return None };
        if self.name == "corr" {
            let (squares_one, squares_other) = (b, d);
            let is_flat = squares_one == 0.0 || squares_other == 0.0;
            return (!is_flat).then(|| products / (squares_one * squares_other).sqrt());
        }
        let (mean_x, mean_y, squares_x, squares_y) = (a, b, c, d);
        if squares_x == 0.0 {
            return None;
        }
        Some(match self.name.as_str() {
            "regr_r2" if squares_y == 0.0 => 1.0,
            "regr_r2" => products * products / (squares_x * squares_y),
            "regr_slope" => products / squares_x,
            _ => mean_y - products / squares_x * mean_x,
        })
    }
}

fn largest<T>(own: &DataType, least: T::Native) -> impl GroupsAccumulator + use<T>
where
    T: ArrowPrimitiveType + Send,
{
    let larger = |last: &mut T::Native, new: T::Native| {
        if new > *last || is_nan(new) {
            *last = new;
        }
    };
    PrimitiveGroupsAccumulator::<T, _>::new(own, larger).with_starting_value(least)
}

fn smallest<T>(own: &DataType, nan: T::Native) -> impl GroupsAccumulator + use<T>
where
    T: ArrowPrimitiveType + Send,
{
    let smaller = |last: &mut T::Native, new: T::Native| {
        if new < *last || is_nan(*last) {
            *last = new;
        }
    };
    PrimitiveGroupsAccumulator::<T, _>::new(own, smaller).with_starting_value(nan)
}

/// Whether a float compares with nothing.
fn is_nan<N: PartialOrd>(number: N) -> bool {
    number.partial_cmp(&number).is_none()
}
