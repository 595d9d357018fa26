//! `round_to_even`: the nearest integer to a double, the even one in a tie, as in PostgreSQL's casts to integers.

use std::sync::{Arc, OnceLock};

use arrow::array::AsArray;
use arrow::datatypes::{DataType, Float64Type};
use datafusion_common::Result;
use datafusion_common::utils::take_function_args;
use datafusion_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

/// The function.
pub fn round_to_even() -> Arc<ScalarUDF> {
    static FUNCTION: OnceLock<Arc<ScalarUDF>> = OnceLock::new();
    Arc::clone(FUNCTION.get_or_init(|| {
        let signature = Signature::exact(vec![DataType::Float64], Volatility::Immutable);
        Arc::new(ScalarUDF::from(RoundToEven { signature }))
    }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct RoundToEven {
    signature: Signature,
}

impl ScalarUDFImpl for RoundToEven {
    fn name(&self) -> &'static str {
        "round_to_even"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arg_types: &[DataType]) -> Result<DataType> {
        Ok(DataType::Float64)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let rows = args.number_rows;
        let [value] = take_function_args("round_to_even", args.args)?;
        let values = value.into_array(rows)?;
        let rounded =
            values.as_primitive::<Float64Type>().unary::<_, Float64Type>(f64::round_ties_even);
        Ok(ColumnarValue::Array(Arc::new(rounded)))
    }
}
