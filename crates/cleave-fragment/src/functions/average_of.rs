//! An average from a sum of numerics and how many there were: what `avg` makes of them at its end, as a function.

use std::sync::{Arc, OnceLock};

use arrow::array::{Array, AsArray, Decimal128Array};
use arrow::compute::cast;
use arrow::datatypes::{
    DECIMAL128_MAX_PRECISION, DECIMAL128_MAX_SCALE, DataType, Decimal128Type, Int64Type,
};
use datafusion_common::utils::take_function_args;
use datafusion_common::{Result, internal_err};
use datafusion_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use datafusion_functions_aggregate_common::utils::DecimalAverager;

/// Digits after the point that an average has more than its values.
const AVERAGE_DIGITS: i8 = 4;

/// `average_of(sum, count)`: the sum as a `numeric(38)`, the average too; of nothing, it is NULL.
pub fn average_of() -> Arc<ScalarUDF> {
    static FUNCTION: OnceLock<Arc<ScalarUDF>> = OnceLock::new();
    Arc::clone(FUNCTION.get_or_init(|| {
        let signature = Signature::any(2, Volatility::Immutable);
        Arc::new(ScalarUDF::from(AverageOf { signature }))
    }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct AverageOf {
    signature: Signature,
}

fn average_scale(scale: i8) -> i8 {
    scale.saturating_add(AVERAGE_DIGITS).min(DECIMAL128_MAX_SCALE)
}

impl ScalarUDFImpl for AverageOf {
    fn name(&self) -> &'static str {
        "average_of"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        let [sum, _] = take_function_args(self.name(), arg_types)?;
        match sum {
            DataType::Decimal128(_, scale) => {
                Ok(DataType::Decimal128(DECIMAL128_MAX_PRECISION, average_scale(*scale)))
            }
            other => internal_err!("an average of a sum of type {other}"),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [sums, counts] = &ColumnarValue::values_to_arrays(&args.args)?[..] else {
            return internal_err!("average_of takes a sum and a count");
        };
        let DataType::Decimal128(_, sum_scale) = sums.data_type() else {
            return internal_err!("an average of a sum of type {}", sums.data_type());
        };
        let scale = average_scale(*sum_scale);
        let averager = DecimalAverager::<Decimal128Type>::try_new(
            *sum_scale,
            DECIMAL128_MAX_PRECISION,
            scale,
        )?;
        let counts = cast(counts, &DataType::Int64)?;
        let pairs =
            sums.as_primitive::<Decimal128Type>().iter().zip(counts.as_primitive::<Int64Type>());
        let averages = pairs.map(|pair| match pair {
            (Some(sum), Some(count)) if count > 0 => averager.avg(sum, count.into()).map(Some),
            _ => Ok(None),
        });
        let averages: Decimal128Array = averages.collect::<Result<_>>()?;
        let averages = averages.with_precision_and_scale(DECIMAL128_MAX_PRECISION, scale)?;
        Ok(ColumnarValue::Array(Arc::new(averages)))
    }
}
