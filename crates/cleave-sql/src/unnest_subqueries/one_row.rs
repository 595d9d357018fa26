//! A function that checks that a subquery gave at most one row, and fails like DataFusion if it gave more (21000).

use std::sync::{Arc, OnceLock};

use datafusion::arrow::array::AsArray;
use datafusion::arrow::datatypes::{DataType, Int64Type};
use datafusion::common::utils::take_function_args;
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::scalar::ScalarValue;

/// `one_row(count)`: true; an error where a count is more than one.
pub(super) fn one_row() -> Arc<ScalarUDF> {
    static FUNCTION: OnceLock<Arc<ScalarUDF>> = OnceLock::new();
    Arc::clone(FUNCTION.get_or_init(|| {
        // A function that may fail must not be computed early, nor sent to a device, which does not know it.
        let signature = Signature::any(1, Volatility::Volatile);
        Arc::new(ScalarUDF::from(OneRow { signature }))
    }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct OneRow {
    signature: Signature,
}

impl ScalarUDFImpl for OneRow {
    fn name(&self) -> &'static str {
        "one_row"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Boolean)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [counts] = take_function_args(self.name(), &args.args)?;
        let counts = counts.to_array(args.number_rows)?;
        if counts.as_primitive::<Int64Type>().iter().flatten().any(|count| count > 1) {
            let message = "Scalar subquery returned more than one row";
            return Err(DataFusionError::Execution(message.to_owned()));
        }
        Ok(ColumnarValue::Scalar(ScalarValue::Boolean(Some(true))))
    }
}
