//! `round` and `trunc` with PostgreSQL's types: a whole number is rounded as a double, with digits as a numeric, which
//! has so many digits behind its point. DataFusion's keep its type, so `round(7) / 2` would be 3.
//!
//! They stand in a plan until [`typed`](super::super::typed_literals) has replaced them by DataFusion's.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::{ScalarValue, exec_err, internal_err};
use datafusion::error::Result;
use datafusion::functions::math::{round, trunc};
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
};

/// Digits of the widest numeric of a result.
const DIGITS: u8 = 38;

/// Both, under the names of DataFusion's.
pub(super) fn rounding() -> [Arc<ScalarUDF>; 2] {
    [round(), trunc()].map(|engine| Arc::new(ScalarUDF::new_from_impl(Rounding { engine })))
}

/// DataFusion's function of that name.
pub(in crate::dialect) fn of_engine(name: &str) -> Arc<ScalarUDF> {
    if name == "trunc" { trunc() } else { round() }
}

/// The type of a whole number of type `own` with `digits` behind its point; `None` for other types.
pub(in crate::dialect) fn with_digits(
    own: &DataType,
    digits: Option<&ScalarValue>,
) -> Option<DataType> {
    let whole = match own {
        DataType::Int16 => 5,
        DataType::Int32 => 10,
        DataType::Int64 => 19,
        DataType::UInt64 => 20,
        _ => return None,
    };
    let behind = digits.and_then(|digits| match digits.cast_to(&DataType::Int64) {
        Ok(ScalarValue::Int64(Some(digits @ 0..))) => u8::try_from(digits).ok(),
        _ => None,
    });
    let behind = behind.unwrap_or(0).min(DIGITS - whole - 1);
    // The next whole number may have one digit more.
    Some(DataType::Decimal128(whole + behind + 1, behind.cast_signed()))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Rounding {
    engine: Arc<ScalarUDF>,
}

impl ScalarUDFImpl for Rounding {
    fn name(&self) -> &str {
        self.engine.name()
    }

    fn signature(&self) -> &Signature {
        self.engine.signature()
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        internal_err!("the type depends on the digits")
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let [value, digits @ ..] = args.arg_fields else {
            return exec_err!("{} takes one or two values", self.name());
        };
        let own = match digits {
            [] if value.data_type().is_integer() => Some(DataType::Float64),
            [] => None,
            _ => with_digits(value.data_type(), args.scalar_arguments.get(1).copied().flatten()),
        };
        let Some(own) = own else { return self.engine.inner().return_field_from_args(args) };
        let may_be_null = args.arg_fields.iter().any(|field| field.is_nullable());
        Ok(Arc::new(Field::new(self.name(), own, may_be_null)))
    }

    fn invoke_with_args(&self, _: ScalarFunctionArgs) -> Result<ColumnarValue> {
        internal_err!("{} was not replaced by the engine's", self.name())
    }
}
