//! DataFusion's aggregates of floats, each with one part replaced.
//!
//! - `max` and `min` by group, in PostgreSQL's order, in which NaN is the largest value and -Infinity the smallest:
//!   DataFusion's begin with the largest finite number, and take a NaN for larger or smaller as it comes.
//! - Deviations, covariances and regressions over a window whose start moves are computed anew from the values left
//!   ([`Refilled`]): DataFusion's subtract a value that leaves, which keeps its rounding, or its NaN, for good.

use std::sync::{Arc, LazyLock};

use arrow::datatypes::{ArrowPrimitiveType, DataType, FieldRef, Float32Type, Float64Type};
use datafusion_common::{Result, ScalarValue};
use datafusion_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion_expr::utils::AggregateOrderSensitivity;
use datafusion_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, GroupsAccumulator, ReversedUDAF, SetMonotonicity,
    Signature, StatisticsArgs,
};
use datafusion_functions_aggregate::all_default_aggregate_functions;
use datafusion_functions_aggregate_common::aggregate::groups_accumulator::prim_op::PrimitiveGroupsAccumulator;

use super::refilled::Refilled;

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
                name if SUBTRACTING.contains(&name) => Part::Window,
                _ => return None,
            };
            Some(Arc::new(AggregateUDF::from(OfEngine { engines, part })))
        });
        ours.collect()
    });
    FUNCTIONS.iter().cloned()
}

/// What is replaced.
#[derive(Debug, PartialEq, Eq, Hash)]
enum Part {
    Groups { is_largest: bool },
    Window,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct OfEngine {
    engines: Arc<AggregateUDF>,
    part: Part,
}

impl AggregateUDFImpl for OfEngine {
    fn name(&self) -> &str {
        self.engines.name()
    }

    fn aliases(&self) -> &[String] {
        self.engines.aliases()
    }

    fn signature(&self) -> &Signature {
        self.engines.signature()
    }

    fn coerce_types(&self, arg_types: &[DataType]) -> Result<Vec<DataType>> {
        self.engines.coerce_types(arg_types)
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        self.engines.return_type(arg_types)
    }

    fn is_nullable(&self) -> bool {
        self.engines.is_nullable()
    }

    fn default_value(&self, data_type: &DataType) -> Result<ScalarValue> {
        self.engines.default_value(data_type)
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        self.engines.state_fields(args)
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        self.engines.accumulator(args)
    }

    fn create_sliding_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        match self.part {
            Part::Window => Ok(Box::new(Refilled::new(&self.engines, args)?)),
            Part::Groups { .. } => self.engines.create_sliding_accumulator(args),
        }
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs) -> bool {
        self.engines.groups_accumulator_supported(args)
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
