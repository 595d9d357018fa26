//! `+`, `-` and `*` of integers and of numerics that fail with
//! [`ArrowError::ArithmeticOverflow`](arrow::error::ArrowError) where the result does not fit.
//!
//! Types and results are DataFusion's own for these operators. Numerics are stored as 128 bits and mostly fit 64:
//! [`narrow_numerics`] computes those without a check for each value.

pub(crate) mod narrow_numerics;

use std::sync::{Arc, OnceLock};

use arrow::array::{ArrayRef, Datum};
use arrow::compute::kernels::numeric::{add, mul, sub};
use arrow::datatypes::{DataType, Field, FieldRef};
use arrow::error::ArrowError;
use datafusion_common::utils::take_function_args;
use datafusion_common::{Result, ScalarValue, internal_err, plan_err};
use datafusion_expr::binary::BinaryTypeCoercer;
use datafusion_expr::{
    ColumnarValue, Operator, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl,
    Signature, Volatility,
};

use super::quotient;

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

/// `a + b - c …` from left to right, as one function: `checked_chain('+-', a, b, c)`. Types and names of nested
/// functions are asked for again at each level, in time that grows with the cube of the levels.
pub fn checked_chain() -> Arc<ScalarUDF> {
    static FUNCTION: OnceLock<Arc<ScalarUDF>> = OnceLock::new();
    Arc::clone(FUNCTION.get_or_init(|| {
        let signature = Signature::variadic_any(Volatility::Immutable);
        Arc::new(ScalarUDF::from(Chain { signature }))
    }))
}

/// The name of [`checked_chain`].
pub const CHECKED_CHAIN: &str = "checked_chain";

/// The operator of a function of this module with two arguments, as [`checked_chain`] writes it.
pub fn link_of(function: &str) -> Option<char> {
    match function {
        "checked_add" => Some('+'),
        "checked_subtract" => Some('-'),
        "checked_multiply" => Some('*'),
        _ => None,
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Chain {
    signature: Signature,
}

/// The functions of the operators that the first argument of a chain writes, which has an operand more.
fn links(operators: Option<&ScalarValue>, operand_count: usize) -> Result<Vec<Checked>> {
    let written = match operators {
        Some(ScalarValue::Utf8(Some(written))) => written.as_str(),
        _ => "",
    };
    let link = |link: char| {
        Some(match link {
            '+' => Checked::new("checked_add", Operator::Plus),
            '-' => Checked::new("checked_subtract", Operator::Minus),
            '*' => Checked::new("checked_multiply", Operator::Multiply),
            _ => return None,
        })
    };
    let links: Option<Vec<_>> = written.chars().map(link).collect();
    match links {
        Some(links) if links.len() + 1 == operand_count => Ok(links),
        _ => plan_err!("{CHECKED_CHAIN} of {operand_count} operands and the operators {written:?}"),
    }
}

impl ScalarUDFImpl for Chain {
    fn name(&self) -> &'static str {
        CHECKED_CHAIN
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arg_types: &[DataType]) -> Result<DataType> {
        internal_err!("the type of {CHECKED_CHAIN} depends on its first argument")
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        let operators = args.scalar_arguments.first().copied().flatten();
        let mut operands = args.arg_fields.iter().skip(1).map(|field| field.data_type());
        let links = links(operators, operands.len())?;
        let Some(first) = operands.next() else {
            return plan_err!("{CHECKED_CHAIN} without operands");
        };
        let own = links.iter().zip(operands).try_fold(first.clone(), |own, (link, operand)| {
            link.return_type(&[own, operand.clone()])
        });
        Ok(Arc::new(Field::new(CHECKED_CHAIN, own?, true)))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let mut given = args.args.into_iter();
        let operators = match given.next() {
            Some(ColumnarValue::Scalar(operators)) => Some(operators),
            _ => None,
        };
        let links = links(operators.as_ref(), given.len())?;
        let Some(first) = given.next() else {
            return plan_err!("{CHECKED_CHAIN} without operands");
        };
        links.iter().zip(given).try_fold(first, |result, (link, operand)| link.of(result, operand))
    }
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

    /// The same if one operand, or the result, has 256 bits.
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
            return Ok(quotient::wide_type(left, right));
        }
        if self.is_long(left, right) {
            return Ok(quotient::NUMERIC);
        }
        BinaryTypeCoercer::new(left, &self.operator, right).get_result_type()
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [left, right] = take_function_args(self.name, args.args)?;
        self.of(left, right)
    }
}

impl Checked {
    /// Whether a product has more digits behind its point than 128 bits hold.
    fn is_long(&self, left: &DataType, right: &DataType) -> bool {
        let scale = |own: &DataType| match own {
            DataType::Decimal128(_, scale) => i16::from(*scale),
            _ => 0,
        };
        self.operator == Operator::Multiply && scale(left) + scale(right) > 38
    }

    fn of(&self, left: ColumnarValue, right: ColumnarValue) -> Result<ColumnarValue> {
        let (left_type, right_type) = (left.data_type(), right.data_type());
        if is_wide(&left_type) || is_wide(&right_type) || self.is_long(&left_type, &right_type) {
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
