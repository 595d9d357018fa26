//! A uniform way to define scalar functions: a name, argument types, a result type, and the code.
//!
//! [`row_function`] makes one of three plain functions. Arguments come as arrays of one length, of the types that
//! `takes` asked for. If all of them are constants, the arrays have length one, and the result is a constant too.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::datatypes::DataType;
use datafusion_common::{DataFusionError, Result, ScalarValue, plan_err};
use datafusion_expr::interval_arithmetic::Interval;
use datafusion_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use super::bounded::check_size;
use super::time_text::TimeTextFault;
use crate::result_memory::{Call, charged};

/// The types to convert the arguments to; None if there is no such function.
pub type Takes = fn(&[DataType]) -> Option<Vec<DataType>>;
/// The result type.
pub type Gives = fn(&[DataType]) -> DataType;
/// Computes the result.
pub type Compute = fn(&[ArrayRef]) -> Result<ArrayRef>;

/// The function `name`.
pub fn row_function(
    name: &'static str,
    takes: Takes,
    gives: Gives,
    compute: Compute,
) -> Arc<ScalarUDF> {
    let signature = Signature::user_defined(Volatility::Immutable);
    Arc::new(ScalarUDF::from(RowFunction { name, signature, takes, gives, compute }))
}

/// Characters of a value in a message, at most.
const SHOWN_MAX: usize = 60;

/// An argument for which a function is undefined.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ArgumentFault {
    /// The logarithm of zero or less.
    #[error("cannot take logarithm of {of}")]
    Logarithm {
        /// `zero` or `a negative number`.
        of: &'static str,
    },
    /// The square root of a negative number.
    #[error("cannot take square root of a negative number")]
    Root,
    /// A root of a negative number, as a power.
    #[error("a negative number raised to a non-integer power yields a complex result")]
    Power,
    /// Zero to a negative power.
    #[error("zero raised to a negative power is undefined")]
    ZeroPower,
    /// Invalid bounds or bucket count.
    #[error("{reason}")]
    Buckets {
        /// What is wrong with them.
        reason: &'static str,
    },
    /// A NULL where a value is required.
    #[error("{reason}")]
    Null {
        /// What is wrong with it.
        reason: &'static str,
    },
    /// A time or an interval beyond its type's range.
    #[error("{what} out of range")]
    TimeOutOfRange {
        /// The type.
        what: &'static str,
    },
    /// A timestamp from a number of seconds that is NaN.
    #[error("timestamp cannot be NaN")]
    NotANumber,
    /// A stride that is not positive.
    #[error("stride must be greater than zero")]
    Stride,
    /// An invalid row position within a window frame.
    #[error("argument of nth_value must be greater than zero")]
    Place,
    /// A difference with an infinite time.
    #[error("cannot subtract infinite {what}")]
    InfiniteTimes {
        /// The type.
        what: &'static str,
    },
    /// A text that does not match the format given by another argument.
    #[error("{reason}")]
    Form {
        /// Where they differ.
        reason: String,
    },
    /// A text that is no date, time or interval.
    #[error("{}", fault.of(type_name, text))]
    TimeText {
        /// Why.
        fault: TimeTextFault,
        /// The type.
        type_name: &'static str,
        /// The text, at most its first characters.
        text: String,
    },
    /// A number outside the valid range.
    #[error("{reason}")]
    OutOfRange {
        /// Which it is.
        reason: String,
    },
    /// A part of a date or time that no date or time has.
    #[error("{reason}")]
    Field {
        /// What it is.
        reason: String,
    },
    /// Lists of different sizes in a list.
    #[error("{reason}")]
    Dimensions {
        /// Why.
        reason: &'static str,
    },
    /// A template of `to_char` whose parts do not go together.
    #[error("{reason}")]
    Syntax {
        /// Why.
        reason: String,
    },
    /// A value or template that the function does not take.
    #[error("{reason}")]
    Unsupported {
        /// What it is.
        reason: String,
    },
    /// Any other invalid value.
    #[error("{reason}")]
    Invalid {
        /// What it is.
        reason: String,
    },
    /// A negative offset of a window frame.
    #[error("invalid preceding or following size in window function")]
    FrameOffset,
    /// A pattern or an escape character that LIKE does not take.
    #[error("{reason}")]
    Escape {
        /// What is wrong with it.
        reason: &'static str,
    },
    /// A text that is no value of the type that it is read as.
    #[error("{reason}")]
    Malformed {
        /// What is wrong with it.
        reason: String,
    },
    /// The number of no character of a text.
    #[error("{reason}")]
    Character {
        /// Why.
        reason: String,
    },
    /// An invalid regular expression.
    #[error("invalid regular expression: {reason}")]
    Pattern {
        /// What is wrong with it.
        reason: String,
    },
}

impl ArgumentFault {
    /// `text`, which is no value of the type `type_name`.
    #[must_use]
    pub fn text(fault: TimeTextFault, type_name: &'static str, text: &str) -> Self {
        let shown = text.chars().filter(|one| !one.is_control()).take(SHOWN_MAX);
        Self::TimeText { fault, type_name, text: shown.collect() }
    }

    /// PostgreSQL's code for it.
    #[must_use]
    pub fn sqlstate(&self) -> &'static str {
        match self {
            Self::Logarithm { .. } => "2201E",
            Self::Root | Self::Power | Self::ZeroPower => "2201F",
            Self::Buckets { .. } => "2201G",
            Self::Null { .. } => "22004",
            Self::OutOfRange { .. } => "22003",
            Self::Place => "22016",
            Self::Stride
            | Self::TimeOutOfRange { .. }
            | Self::Field { .. }
            | Self::NotANumber
            | Self::InfiniteTimes { .. } => "22008",
            Self::Form { .. } => "22007",
            Self::TimeText { fault, type_name, .. } => match fault {
                TimeTextFault::Malformed => "22007",
                TimeTextFault::OutOfRange if *type_name == "interval" => "22015",
                TimeTextFault::OutOfRange => "22008",
                TimeTextFault::ZoneOutOfRange => "22009",
                TimeTextFault::Unsupported => "0A000",
            },
            Self::Dimensions { .. } => "2202E",
            Self::Syntax { .. } => "42601",
            Self::Unsupported { .. } => "0A000",
            Self::Invalid { .. } => "22023",
            Self::FrameOffset => "22013",
            Self::Escape { .. } => "22025",
            Self::Malformed { .. } => "22P02",
            Self::Character { .. } => "54000",
            Self::Pattern { .. } => "2201B",
        }
    }
}

impl From<ArgumentFault> for DataFusionError {
    fn from(fault: ArgumentFault) -> Self {
        Self::External(Box::new(fault))
    }
}

#[derive(Debug)]
struct RowFunction {
    name: &'static str,
    signature: Signature,
    takes: Takes,
    gives: Gives,
    compute: Compute,
}

impl PartialEq for RowFunction {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for RowFunction {}

impl Hash for RowFunction {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl ScalarUDFImpl for RowFunction {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        match (self.takes)(given) {
            Some(types) => Ok(types),
            None => {
                let types: Vec<String> = given.iter().map(DataType::to_string).collect();
                plan_err!("Invalid function {}({})", self.name, types.join(", "))
            }
        }
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        Ok((self.gives)(arg_types))
    }

    /// Any value. Without a type, an operator around the function would have no order either.
    fn evaluate_bounds(&self, inputs: &[&Interval]) -> Result<Interval> {
        let types: Vec<DataType> = inputs.iter().map(|input| input.data_type()).collect();
        Interval::make_unbounded(&(self.gives)(&types))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let is_constant = args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
        let rows = if is_constant { 1 } else { args.number_rows };
        // A long constant is written once for each row.
        let constants = args.args.iter().filter_map(|arg| match arg {
            ColumnarValue::Scalar(value) => value.try_as_str().flatten(),
            ColumnarValue::Array(_) => None,
        });
        let bytes = constants.map(|text| text.len() as u64).sum::<u64>();
        let bytes = bytes.saturating_mul(rows as u64);
        check_size(self.name, bytes, rows)?;
        let call =
            Call { function: self.name, expected: bytes, rows: args.number_rows, is_constant };
        charged(call, || {
            let arrays = args.args.into_iter().map(|arg| arg.into_array(rows));
            let result = (self.compute)(&arrays.collect::<Result<Vec<_>>>()?)?;
            Ok(match is_constant {
                true => ColumnarValue::Scalar(ScalarValue::try_from_array(&result, 0)?),
                false => ColumnarValue::Array(result),
            })
        })
    }
}
