//! Checks a device's rows against the output type of the fragment that it was sent.
//!
//! A faulty or malicious device may send any rows, but none that the fragment could not have produced: each column has
//! its type, no NULL where there can be none, and no number with more digits than its type has. (Arrow has checked
//! texts, offsets and dictionaries when it read them.)

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, RecordBatchOptions};
use arrow::datatypes::{DataType, Decimal128Type, FieldRef, Schema, SchemaRef};

/// Most digits that all fit 128 bits.
const DIGITS_MAX: u8 = 38;

/// Checks that the columns of `found` are those of `expected`.
pub(crate) fn check_columns(expected: &Schema, found: &Schema) -> Result<(), String> {
    let (wanted, came) = (expected.fields().len(), found.fields().len());
    if wanted != came {
        return Err(format!("its rows have {came} columns, and not {wanted}"));
    }
    let differ = |(wanted, came): &(&FieldRef, &FieldRef)| {
        !wanted.data_type().equals_datatype(came.data_type())
    };
    match expected.fields().iter().zip(found.fields()).find(differ) {
        Some((wanted, came)) => Err(format!(
            "column \"{}\" of its rows has type {}, and not {}",
            wanted.name(),
            came.data_type(),
            wanted.data_type()
        )),
        None => Ok(()),
    }
}

/// `schema` with nullable columns: rows are read with it, so that unexpected NULLs are reported here and not by the
/// reader.
pub(crate) fn with_nulls(schema: &Schema) -> Schema {
    let fields = schema.fields().iter().map(|field| field.as_ref().clone().with_nullable(true));
    Schema::new(fields.collect::<Vec<_>>())
}

/// `batch` as rows of `schema`, or the reason why it is not.
pub(crate) fn check_rows(schema: &SchemaRef, batch: &RecordBatch) -> Result<RecordBatch, String> {
    check_columns(schema, &batch.schema())?;
    for (field, column) in schema.fields().iter().zip(batch.columns()) {
        if !field.is_nullable() && column.is_nullable() && column.logical_null_count() > 0 {
            let name = field.name();
            return Err(format!("column \"{name}\" has a NULL, where there can be none"));
        }
        if let Some(digits) = too_many_digits(column) {
            let name = field.name();
            return Err(format!("column \"{name}\" has a number of more than {digits} digits"));
        }
    }
    let options = RecordBatchOptions::new()
        .with_row_count(Some(batch.num_rows()))
        .with_match_field_names(false);
    RecordBatch::try_new_with_options(SchemaRef::clone(schema), batch.columns().to_vec(), &options)
        .map_err(|error| error.to_string())
}

/// The digits allowed in this column, if a number has more.
fn too_many_digits(column: &ArrayRef) -> Option<u8> {
    let DataType::Decimal128(digits, _) = column.data_type() else { return None };
    if *digits >= DIGITS_MAX {
        return None;
    }
    let numbers = column.as_primitive::<Decimal128Type>();
    let bound = 10_u128.pow(u32::from(*digits));
    let fits = |number: &i128| number.unsigned_abs() < bound;
    // Values under NULLs do not count.
    let all_fit = numbers.values().iter().all(fits) || numbers.iter().flatten().all(|n| fits(&n));
    (!all_fit).then_some(*digits)
}

#[cfg(test)]
mod tests;
