//! `lag` and `lead` with an offset that differs by row; the engine's take one offset for all rows.

use std::sync::Arc;

use datafusion::arrow::array::BooleanArray;
use datafusion::arrow::array::{Array, ArrayRef, AsArray, UInt64Array};
use datafusion::arrow::compute::kernels::zip::zip;
use datafusion::arrow::compute::{cast, take};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Int64Type};
use datafusion::common::exec_err;
use datafusion::error::Result;
use datafusion::logical_expr::function::{PartitionEvaluatorArgs, WindowUDFFieldArgs};
use datafusion::logical_expr::{
    PartitionEvaluator, Signature, TypeSignature, Volatility, WindowUDF, WindowUDFImpl,
};

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
        let known = types.clone().next().filter(|first| !first.is_null());
        let value = known.or_else(|| types.clone().nth(2)).cloned().unwrap_or(DataType::Null);
        Ok(Arc::new(Field::new(args.name(), value, true)))
    }
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
        let known = if found.data_type().is_null() { default } else { &found };
        let (found, default) =
            (cast(&found, known.data_type())?, cast(default, known.data_type())?);
        // A NULL offset gives NULL, and not the default.
        let is_own = (0..num_rows).map(|row| Some(places.is_valid(row) || rows.is_null(row)));
        Ok(zip(&BooleanArray::from_iter(is_own), &found, &default)?)
    }
}
