//! `+`, `-` and `*` of integers that fail with
//! [`ArrowError::ArithmeticOverflow`](arrow::error::ArrowError) where the result does not fit.

use std::sync::{Arc, OnceLock};

use arrow::array::{ArrayRef, Datum};
use arrow::compute::kernels::numeric::{add, mul, sub};
use arrow::datatypes::DataType;
use arrow::error::ArrowError;
use datafusion_common::utils::take_function_args;
use datafusion_common::{Result, ScalarValue};
use datafusion_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

/// `a + b` of integers of one type.
pub fn checked_add() -> Arc<ScalarUDF> {
    static FUNCTION: OnceLock<Arc<ScalarUDF>> = OnceLock::new();
    Arc::clone(FUNCTION.get_or_init(|| CheckedInteger::function("checked_add", add)))
}

/// `a - b` of integers of one type.
pub fn checked_subtract() -> Arc<ScalarUDF> {
    static FUNCTION: OnceLock<Arc<ScalarUDF>> = OnceLock::new();
    Arc::clone(FUNCTION.get_or_init(|| CheckedInteger::function("checked_subtract", sub)))
}

/// `a * b` of integers of one type.
pub fn checked_multiply() -> Arc<ScalarUDF> {
    static FUNCTION: OnceLock<Arc<ScalarUDF>> = OnceLock::new();
    Arc::clone(FUNCTION.get_or_init(|| CheckedInteger::function("checked_multiply", mul)))
}

type Kernel = fn(&dyn Datum, &dyn Datum) -> Result<ArrayRef, ArrowError>;

/// A kernel as a function of two integers of one type.
#[derive(Debug, PartialEq, Eq, Hash)]
struct CheckedInteger {
    name: &'static str,
    signature: Signature,
    kernel: KernelPointer,
}

/// Compared by the function's name, which decides it.
#[derive(Clone, Copy)]
struct KernelPointer(Kernel);

impl CheckedInteger {
    fn function(name: &'static str, kernel: Kernel) -> Arc<ScalarUDF> {
        let types = vec![DataType::Int8, DataType::Int16, DataType::Int32, DataType::Int64];
        let signature = Signature::uniform(2, types, Volatility::Immutable);
        Arc::new(ScalarUDF::from(Self { name, signature, kernel: KernelPointer(kernel) }))
    }
}

impl ScalarUDFImpl for CheckedInteger {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        let [left, _] = take_function_args(self.name, arg_types)?;
        Ok(left.clone())
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [left, right] = take_function_args(self.name, args.args)?;
        let kernel = self.kernel.0;
        let result = match (&left, &right) {
            (ColumnarValue::Array(left), ColumnarValue::Array(right)) => kernel(left, right)?,
            (ColumnarValue::Array(left), ColumnarValue::Scalar(right)) => {
                kernel(left, &right.to_scalar()?)?
            }
            (ColumnarValue::Scalar(left), ColumnarValue::Array(right)) => {
                kernel(&left.to_scalar()?, right)?
            }
            (ColumnarValue::Scalar(left), ColumnarValue::Scalar(right)) => {
                let result = kernel(&left.to_scalar()?, &right.to_scalar()?)?;
                return Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&result, 0)?));
            }
        };
        Ok(ColumnarValue::Array(result))
    }
}

impl std::fmt::Debug for KernelPointer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("kernel")
    }
}

impl PartialEq for KernelPointer {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for KernelPointer {}

impl std::hash::Hash for KernelPointer {
    fn hash<H: std::hash::Hasher>(&self, _: &mut H) {}
}
