//! `+`, `-` and `*` of integers and of numerics that fail with
//! [`ArrowError::ArithmeticOverflow`](arrow::error::ArrowError) where the result does not fit.
//!
//! Types and results are the engine's own for these operators. Numerics are stored as 128 bits and mostly fit 64:
//! [`narrow_numerics`] computes those without a check for each value.

pub(crate) mod narrow_numerics;

use std::sync::{Arc, OnceLock};

use arrow::array::{ArrayRef, Datum};
use arrow::compute::kernels::numeric::{add, mul, sub};
use arrow::datatypes::DataType;
use arrow::error::ArrowError;
use datafusion_common::utils::take_function_args;
use datafusion_common::{Result, ScalarValue};
use datafusion_expr::binary::BinaryTypeCoercer;
use datafusion_expr::{
    ColumnarValue, Operator, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use super::quotient::{self, QUOTIENT};

/// `a + b` of integers of one type, or of numerics.
pub fn checked_add() -> Arc<ScalarUDF> {
    static FUNCTION: OnceLock<Arc<ScalarUDF>> = OnceLock::new();
    Arc::clone(FUNCTION.get_or_init(|| Checked::function("checked_add", Operator::Plus)))
}

/// `a - b` of integers of one type, or of numerics.
pub fn checked_subtract() -> Arc<ScalarUDF> {
    static FUNCTION: OnceLock<Arc<ScalarUDF>> = OnceLock::new();
    Arc::clone(FUNCTION.get_or_init(|| Checked::function("checked_subtract", Operator::Minus)))
}

/// `a * b` of integers of one type, or of numerics.
pub fn checked_multiply() -> Arc<ScalarUDF> {
    static FUNCTION: OnceLock<Arc<ScalarUDF>> = OnceLock::new();
    Arc::clone(FUNCTION.get_or_init(|| Checked::function("checked_multiply", Operator::Multiply)))
}

/// An operator as a function of two numbers.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Checked {
    name: &'static str,
    signature: Signature,
    operator: Operator,
}

impl Checked {
    fn function(name: &'static str, operator: Operator) -> Arc<ScalarUDF> {
        Arc::new(ScalarUDF::from(Self::new(name, operator)))
    }

    fn new(name: &'static str, operator: Operator) -> Self {
        // Types are resolved before an operator is replaced by its function.
        let signature = Signature::any(2, Volatility::Immutable);
        Self { name, signature, operator }
    }

    /// The same if one operand is a quotient.
    fn compute_wide(&self, left: &ColumnarValue, right: &ColumnarValue) -> Result<ColumnarValue> {
        let operator = match self.operator {
            Operator::Plus => quotient::added,
            Operator::Minus => quotient::subtracted,
            _ => quotient::multiplied,
        };
        let is_constant = [left, right].iter().all(|side| matches!(side, ColumnarValue::Scalar(_)));
        let array = |side: &ColumnarValue| match side {
            ColumnarValue::Array(array) => Ok(Arc::clone(array)),
            ColumnarValue::Scalar(value) => value.to_array(),
        };
        let result = quotient::calculated(&array(left)?, &array(right)?, operator)?;
        Ok(match is_constant {
            true => ColumnarValue::Scalar(ScalarValue::try_from_array(&result, 0)?),
            false => ColumnarValue::Array(result),
        })
    }

    fn compute(&self, left: &dyn Datum, right: &dyn Datum) -> Result<ArrayRef, ArrowError> {
        if let Some(result) = narrow_numerics::compute(self.operator, left, right)? {
            return Ok(result);
        }
        match self.operator {
            Operator::Plus => add(left, right),
            Operator::Minus => sub(left, right),
            _ => mul(left, right),
        }
    }
}

fn is_wide(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Decimal256(..))
}

impl ScalarUDFImpl for Checked {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        let [left, right] = take_function_args(self.name, arg_types)?;
        if left == right && left.is_integer() {
            return Ok(left.clone());
        }
        if is_wide(left) || is_wide(right) {
            return Ok(QUOTIENT);
        }
        BinaryTypeCoercer::new(left, &self.operator, right).get_result_type()
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [left, right] = take_function_args(self.name, args.args)?;
        if is_wide(&left.data_type()) || is_wide(&right.data_type()) {
            return self.compute_wide(&left, &right);
        }
        let result = match (&left, &right) {
            (ColumnarValue::Array(left), ColumnarValue::Array(right)) => {
                self.compute(left, right)?
            }
            (ColumnarValue::Array(left), ColumnarValue::Scalar(right)) => {
                self.compute(left, &right.to_scalar()?)?
            }
            (ColumnarValue::Scalar(left), ColumnarValue::Array(right)) => {
                self.compute(&left.to_scalar()?, right)?
            }
            (ColumnarValue::Scalar(left), ColumnarValue::Scalar(right)) => {
                let result = self.compute(&left.to_scalar()?, &right.to_scalar()?)?;
                return Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&result, 0)?));
            }
        };
        Ok(ColumnarValue::Array(result))
    }
}

#[cfg(test)]
mod tests;
