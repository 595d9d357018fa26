//! `lag` and `lead` with an offset that differs by row, or a default of another type; DataFusion's take one offset for
//! all rows, and give a default the type of the value.

use std::sync::Arc;

use datafusion::arrow::array::BooleanArray;
use datafusion::arrow::array::{Array, ArrayRef, AsArray, UInt64Array};
use datafusion::arrow::compute::kernels::zip::zip;
use datafusion::arrow::compute::{CastOptions, cast, cast_with_options, take};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Int64Type};
use datafusion::common::exec_err;
use datafusion::error::Result;
use datafusion::logical_expr::function::{PartitionEvaluatorArgs, WindowUDFFieldArgs};
use datafusion::logical_expr::{
    PartitionEvaluator, Signature, TypeSignature, Volatility, WindowUDF, WindowUDFImpl,
};

use super::super::operand_types;
use super::super::typed_literals::is_text;

/// `lag(value, rows, default)`.
pub(in crate::dialect) const LAG_BY_ROW: &str = "lag_by_row";
/// `lead(value, rows, default)`.
pub(in crate::dialect) const LEAD_BY_ROW: &str = "lead_by_row";

/// Both.
pub fn window_functions() -> [Arc<WindowUDF>; 2] {
    [(LAG_BY_ROW, false), (LEAD_BY_ROW, true)].map(|(name, is_ahead)| {
        let given = vec![TypeSignature::Any(2), TypeSignature::Any(3)];
        let signature = Signature::one_of(given, Volatility::Immutable);
        Arc::new(WindowUDF::from(ShiftByRow { name, is_ahead, signature }))
    })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct ShiftByRow {
    name: &'static str,
    is_ahead: bool,
    signature: Signature,
}

impl WindowUDFImpl for ShiftByRow {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn partition_evaluator(
        &self,
        _args: PartitionEvaluatorArgs<'_>,
    ) -> Result<Box<dyn PartitionEvaluator>> {
        Ok(Box::new(Shifted { is_ahead: self.is_ahead }))
    }

    fn field(&self, args: WindowUDFFieldArgs<'_>) -> Result<FieldRef> {
        let types = args.input_fields().iter().map(|field| field.data_type());
        let (value, default) = (types.clone().next(), types.clone().nth(2));
        let own = match (value, default) {
            (Some(value), Some(default)) => common(value, default)?,
            (value, _) => value.cloned().unwrap_or(DataType::Null),
        };
        Ok(Arc::new(Field::new(args.name(), own, true)))
    }
}

/// The type of a value and its default; a default that is a text may be a literal of any type.
///
/// # Errors
/// They have none.
fn common(value: &DataType, default: &DataType) -> Result<DataType> {
    let parts = [
        (false, operand_types::signed(value.clone())),
        (is_text(default), operand_types::signed(default.clone())),
    ];
    let common = operand_types::common("lag and lead: value and default of", parts)?;
    Ok(common.unwrap_or_else(|| default.clone()))
}

#[derive(Debug)]
struct Shifted {
    is_ahead: bool,
}

impl PartitionEvaluator for Shifted {
    fn evaluate_all(&mut self, values: &[ArrayRef], num_rows: usize) -> Result<ArrayRef> {
        let (value, rows, default) = match values {
            [value, rows] => (value, rows, None),
            [value, rows, default] => (value, rows, Some(default)),
            _ => return exec_err!("lag and lead take two or three values"),
        };
        let rows = cast(rows, &DataType::Int64)?;
        let rows = rows.as_primitive::<Int64Type>();
        let place_of = |row: usize| -> Option<u64> {
            let own = i64::try_from(row).ok()?;
            let by = rows.is_valid(row).then(|| rows.value(row))?;
            let place = if self.is_ahead { own.checked_add(by) } else { own.checked_sub(by) };
            let place = u64::try_from(place?).ok()?;
            usize::try_from(place).is_ok_and(|place| place < num_rows).then_some(place)
        };
        let places: UInt64Array = (0..num_rows).map(place_of).collect();
        let found = take(value, &places, None)?;
        let Some(default) = default else { return Ok(found) };
        let own = common(found.data_type(), default.data_type())?;
        let strict = CastOptions { safe: false, ..CastOptions::default() };
        let found = cast(&found, &own)?;
        let default = cast_with_options(default, &own, &strict)?;
        // A NULL offset gives NULL, and not the default.
        let is_own = (0..num_rows).map(|row| Some(places.is_valid(row) || rows.is_null(row)));
        Ok(zip(&BooleanArray::from_iter(is_own), &found, &default)?)
    }
}
