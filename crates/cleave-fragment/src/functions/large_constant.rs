//! `constant`: a large constant, which becomes an array only within the bound of [`bounded`](super::bounded).
//!
//! DataFusion writes a constant once for each row of a batch where an operator needs an array: 8,192 rows of a megabyte
//! overflow its offsets. As the argument of this function the constant is counted first, and its array is charged.

use std::sync::{Arc, OnceLock};

use arrow::datatypes::DataType;
use datafusion_common::utils::take_function_args;
use datafusion_common::{Result, ScalarValue};
use datafusion_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use super::bounded::{RESULT_BYTES_MAX, check_size};
use crate::result_memory::{Call, charged};

/// Rows of a batch, unless a setting says otherwise.
const BATCH_ROWS: u64 = 8192;

/// The function.
pub fn constant() -> Arc<ScalarUDF> {
    static FUNCTION: OnceLock<Arc<ScalarUDF>> = OnceLock::new();
    Arc::clone(FUNCTION.get_or_init(|| {
        let signature = Signature::any(1, Volatility::Immutable);
        Arc::new(ScalarUDF::from(Constant { signature }))
    }))
}

/// Whether arrays of `value` may be too large.
#[must_use]
pub fn is_large(value: &ScalarValue) -> bool {
    let bytes = match value {
        ScalarValue::Utf8(Some(text))
        | ScalarValue::LargeUtf8(Some(text))
        | ScalarValue::Utf8View(Some(text)) => text.len(),
        ScalarValue::Binary(Some(bytes))
        | ScalarValue::LargeBinary(Some(bytes))
        | ScalarValue::BinaryView(Some(bytes)) => bytes.len(),
        ScalarValue::List(list) => list
            .value_type()
            .primitive_width()
            .map_or_else(|| value.size(), |width| list.values().len().saturating_mul(width)),
        _ => return false,
    };
    bytes as u64 > RESULT_BYTES_MAX / BATCH_ROWS
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Constant {
    signature: Signature,
}

impl ScalarUDFImpl for Constant {
    fn name(&self) -> &'static str {
        "constant"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        let [own] = take_function_args("constant", arg_types)?;
        Ok(own.clone())
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let rows = args.number_rows;
        let [value] = take_function_args("constant", args.args)?;
        let ColumnarValue::Scalar(value) = value else { return Ok(value) };
        // One row is as large as the constant itself.
        if rows <= 1 {
            return Ok(ColumnarValue::Scalar(value));
        }
        let bytes = (value.size() as u64).saturating_mul(rows as u64);
        check_size("a constant", bytes, rows)?;
        let call = Call { function: "a constant", expected: bytes, rows, is_constant: false };
        charged(call, || Ok(ColumnarValue::Array(value.to_array_of_size(rows)?)))
    }
}
