//! Packs several narrow values into one integer, and unpacks them: grouping by one integer is several times as fast as
//! grouping by texts.
//!
//! ```text
//!  pack_key('c1 d?', flag, day)      63                55        34        33          0
//!  part_of_key('c1 d?', 1, key)       │ 0 …             │ 'A' + 1 │ is NULL │ day       │
//! ```
//!
//! A layout names the parts, first to last: `b` boolean, `h` smallint, `i` integer, `d` date, `cN` text of at most N
//! characters of 21 bits each; `?`: may be NULL. Keys are equal exactly if the values are.
//!
//! Invariant: a value that does not fit the layout is an error, never another key.

mod layout;

use std::sync::{Arc, OnceLock};

use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion_common::{
    DataFusionError, Result, ScalarValue, internal_datafusion_err, internal_err,
};
use datafusion_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};

pub use layout::{KeyLayout, KeyPart, PartKind};

/// `pack_key(layout, value, …)`: a bigint.
pub fn pack_key() -> Arc<ScalarUDF> {
    static FUNCTION: OnceLock<Arc<ScalarUDF>> = OnceLock::new();
    Arc::clone(FUNCTION.get_or_init(|| {
        let signature = Signature::variadic_any(Volatility::Immutable);
        Arc::new(ScalarUDF::from(PackKey { signature }))
    }))
}

/// `part_of_key(layout, part number, key)`: the value that was packed.
pub fn part_of_key() -> Arc<ScalarUDF> {
    static FUNCTION: OnceLock<Arc<ScalarUDF>> = OnceLock::new();
    Arc::clone(FUNCTION.get_or_init(|| {
        let signature = Signature::any(3, Volatility::Immutable);
        Arc::new(ScalarUDF::from(PartOfKey { signature }))
    }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct PackKey {
    signature: Signature,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct PartOfKey {
    signature: Signature,
}

impl ScalarUDFImpl for PackKey {
    fn name(&self) -> &'static str {
        "pack_key"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arg_types: &[DataType]) -> Result<DataType> {
        Ok(DataType::Int64)
    }

    fn return_field_from_args(&self, _args: ReturnFieldArgs) -> Result<FieldRef> {
        Ok(Arc::new(Field::new(self.name(), DataType::Int64, false)))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let rows = args.number_rows;
        let mut args = args.args.into_iter();
        let layout = layout_of(args.next().as_ref().and_then(scalar))?;
        let columns = args.map(|column| column.into_array(rows)).collect::<Result<Vec<_>>>()?;
        Ok(ColumnarValue::Array(Arc::new(layout.pack(&columns, rows)?)))
    }
}

impl ScalarUDFImpl for PartOfKey {
    fn name(&self) -> &'static str {
        "part_of_key"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arg_types: &[DataType]) -> Result<DataType> {
        internal_err!("the type of a part of a key depends on the layout")
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        let [layout, number, _] = args.scalar_arguments else {
            return internal_err!("part_of_key takes a layout, a number and a key");
        };
        let layout = layout_of(*layout)?;
        let part = layout.part(number_of(*number)?)?;
        Ok(Arc::new(Field::new(self.name(), part.data_type(), part.may_be_null)))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [layout, number, key] = args.args.as_slice() else {
            return internal_err!("part_of_key takes a layout, a number and a key");
        };
        let layout = layout_of(scalar(layout))?;
        let keys = key.clone().into_array(args.number_rows)?;
        Ok(ColumnarValue::Array(layout.unpack(number_of(scalar(number))?, &keys)?))
    }
}

fn scalar(value: &ColumnarValue) -> Option<&ScalarValue> {
    match value {
        ColumnarValue::Scalar(scalar) => Some(scalar),
        ColumnarValue::Array(_) => None,
    }
}

fn layout_of(argument: Option<&ScalarValue>) -> Result<KeyLayout> {
    match argument {
        Some(ScalarValue::Utf8(Some(text))) => text.parse(),
        other => internal_err!("the layout of a key must be a constant text, not {other:?}"),
    }
}

fn number_of(argument: Option<&ScalarValue>) -> Result<usize> {
    let number = match argument {
        Some(ScalarValue::Int64(Some(number))) => usize::try_from(*number).ok(),
        _ => None,
    };
    number.ok_or_else(|| internal_datafusion_err!("the number of a key's part must be a constant"))
}

/// The planner made the layout for these very columns, so a misfit is a defect of it.
fn misfit(what: impl std::fmt::Display) -> DataFusionError {
    internal_datafusion_err!("a group's key does not fit its layout: {what}")
}

#[cfg(test)]
mod tests;
