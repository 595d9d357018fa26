//! `concatenate`: evaluates a whole chain of `||` over texts or bytes at once, within the bound of
//! [`bounded`](super::bounded).
//!
//! DataFusion's operator expands each operand to one value a row and makes an intermediate result for each `||`, before
//! the sizes are known. If an operand is NULL, so is the result, unlike that of `concat`.

use std::fmt::Write;
use std::sync::{Arc, OnceLock};

use arrow::array::{Array, ArrayRef, AsArray, StringArray, StringBuilder, new_null_array};
use arrow::compute::kernels::concat_elements::concat_elements_dyn;
use arrow::datatypes::DataType;
use datafusion_common::{DataFusionError, Result, ScalarValue, plan_err};
use datafusion_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use super::bounded::{check_size, sum_of_lengths};
use crate::result_memory::{Call, charged};

/// The function's name in errors.
const OPERATOR: &str = "||";

/// The function.
pub fn concatenate() -> Arc<ScalarUDF> {
    static FUNCTION: OnceLock<Arc<ScalarUDF>> = OnceLock::new();
    Arc::clone(FUNCTION.get_or_init(|| {
        // Types are resolved before the operator is replaced by its function.
        let signature = Signature::variadic_any(Volatility::Immutable);
        Arc::new(ScalarUDF::from(Concatenate { signature }))
    }))
}

/// Whether the function takes values of this type.
pub fn is_concatenated(data_type: &DataType) -> bool {
    use DataType as Type;
    matches!(
        data_type,
        Type::Utf8
            | Type::LargeUtf8
            | Type::Utf8View
            | Type::Binary
            | Type::LargeBinary
            | Type::BinaryView
    )
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Concatenate {
    signature: Signature,
}

impl ScalarUDFImpl for Concatenate {
    fn name(&self) -> &'static str {
        "concatenate"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        match arg_types {
            [first, others @ ..]
                if is_concatenated(first) && others.iter().all(|other| other == first) =>
            {
                Ok(first.clone())
            }
            _ => plan_err!("concatenate does not take values of types {arg_types:?}"),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let is_scalar = args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
        let rows = if is_scalar { 1 } else { args.number_rows };
        let bytes = sum_of_lengths(&args.args, rows)?;
        check_size(OPERATOR, bytes, rows)?;
        let call = Call {
            function: OPERATOR,
            expected: bytes,
            rows: args.number_rows,
            is_constant: is_scalar,
        };
        charged(call, || {
            let result = match args.return_field.data_type() {
                DataType::Utf8 => texts(&args.args, rows, usize::try_from(bytes).unwrap_or(0))?,
                _ => pairwise(&args.args, rows)?,
            };
            Ok(match is_scalar {
                true => ColumnarValue::Scalar(ScalarValue::try_from_array(&result, 0)?),
                false => ColumnarValue::Array(result),
            })
        })
    }
}

/// One operand.
enum Operand<'a> {
    Same(&'a str),
    Each(&'a StringArray),
}

/// Texts of at most so many `bytes`, copied once.
fn texts(args: &[ColumnarValue], rows: usize, bytes: usize) -> Result<ArrayRef> {
    let mut operands = Vec::with_capacity(args.len());
    for arg in args {
        operands.push(match arg {
            ColumnarValue::Scalar(ScalarValue::Utf8(Some(text))) => Operand::Same(text),
            ColumnarValue::Scalar(value) if value.is_null() => {
                return Ok(new_null_array(&DataType::Utf8, rows));
            }
            ColumnarValue::Array(array) if array.data_type() == &DataType::Utf8 => {
                Operand::Each(array.as_string::<i32>())
            }
            // An array of another type than planned.
            _ => return pairwise(args, rows),
        });
    }
    let mut result = StringBuilder::with_capacity(rows, bytes);
    for row in 0..rows {
        let is_null = |operand: &Operand<'_>| match operand {
            Operand::Same(_) => false,
            Operand::Each(array) => array.is_null(row),
        };
        if operands.iter().any(is_null) {
            result.append_null();
            continue;
        }
        for operand in &operands {
            let text = match operand {
                Operand::Same(text) => text,
                Operand::Each(array) => array.value(row),
            };
            result.write_str(text).map_err(|error| DataFusionError::External(Box::new(error)))?;
        }
        result.append_value("");
    }
    Ok(Arc::new(result.finish()))
}

/// Evaluates as DataFusion's operator does, operand after operand.
fn pairwise(args: &[ColumnarValue], rows: usize) -> Result<ArrayRef> {
    let [first, others @ ..] = args else { return plan_err!("concatenate of nothing") };
    others.iter().try_fold(first.to_array(rows)?, |before, next| {
        Ok(concat_elements_dyn(&before, &next.to_array(rows)?)?)
    })
}

#[cfg(test)]
mod tests;
