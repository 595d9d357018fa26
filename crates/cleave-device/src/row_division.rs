//! Divides the rows of a run among the devices that go on with them, by a hash of some of their columns.
//!
//! Rows with equal values in these columns go to one output, whatever run and device they are from: so devices can join
//! and group what comes to each of them alone. Values that are equal but differ in form have one hash: text and bytes
//! in any encoding, zeros of either sign, and all that is not a number. NULLs count as equal.
//!
//! Invariant: the hash depends on the build alone; it is the same on x86-64 and AArch64. Columns that are compared with
//! each other have one type, but for their encoding; who plans the exchange sees to that.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, RecordBatch, UInt32Array};
use arrow::compute::{cast, take_record_batch};
use arrow::datatypes::{DataType, Float32Type, Float64Type, Schema};
use cleave_fragment::command::slot::compact;
use cleave_fragment::command::{DeviceError, DeviceErrorCause, Outputs};
use datafusion_common::Result;
use datafusion_common::hash_utils::{RandomState, create_hashes};

/// Differs from the seeds of tables and of parts that are spilled, so that the rows of one output are spread over all
/// of these.
const SEED: u64 = 0x636c_6561_7665_0051;

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct RowDivision {
    columns: Vec<usize>,
    count: usize,
    hashes: Vec<u64>,
}

impl RowDivision {
    /// The division of rows of `schema` among `outputs`, if they are divided.
    ///
    /// # Errors
    /// [`DeviceErrorCause::Refused`] for columns that the rows do not have; [`DeviceErrorCause::Unsupported`] for those
    /// of types that have no such hash.
    pub(crate) fn of(outputs: &Outputs, schema: &Schema) -> Result<Option<Self>, DeviceError> {
        let Outputs::ByHash { columns, count } = outputs else { return Ok(None) };
        let mut places = Vec::with_capacity(columns.len());
        for column in columns {
            let place = usize::try_from(*column).unwrap_or(usize::MAX);
            let Some(field) = schema.fields().get(place) else {
                let message = format!(
                    "rows of {} columns cannot be divided by column {column}",
                    schema.fields().len()
                );
                return Err(DeviceError::new(DeviceErrorCause::Refused, message));
            };
            if !Outputs::may_divide_by(field.data_type()) {
                let message = format!(
                    "rows cannot be divided by column \"{}\" of type {}",
                    field.name(),
                    field.data_type()
                );
                return Err(DeviceError::new(DeviceErrorCause::Unsupported, message));
            }
            places.push(place);
        }
        let count = usize::try_from(*count).unwrap_or(usize::MAX);
        Ok(Some(Self { columns: places, count, hashes: Vec::new() }))
    }

    /// The rows of `batch`, by output.
    pub(crate) fn divide(&mut self, batch: &RecordBatch) -> Result<Vec<(usize, RecordBatch)>> {
        let keys = self.columns.iter().filter_map(|place| batch.columns().get(*place));
        let keys = keys.map(of_one_form).collect::<Result<Vec<ArrayRef>>>()?;
        self.hashes.clear();
        self.hashes.resize(batch.num_rows(), 0);
        create_hashes(&keys, &RandomState::with_seed(SEED), &mut self.hashes)?;
        let mut rows: Vec<Vec<u32>> = vec![Vec::new(); self.count];
        for (row, hash) in (0_u32..).zip(&self.hashes) {
            if let Some(rows) = rows.get_mut(output_of(*hash, self.count)) {
                rows.push(row);
            }
        }
        let divided = rows.into_iter().enumerate().filter(|(_, rows)| !rows.is_empty());
        divided
            .map(|(output, rows)| {
                if rows.len() == batch.num_rows() {
                    return Ok((output, batch.clone()));
                }
                let rows = take_record_batch(batch, &UInt32Array::from(rows))?;
                // Rows that wait for others of their output must not keep the rest of their batch in memory.
                Ok((output, compact(&rows)?))
            })
            .collect()
    }
}

/// By the upper bits: tables take the lower ones.
fn output_of(hash: u64, count: usize) -> usize {
    let output = (u128::from(hash) * count as u128) >> u64::BITS;
    usize::try_from(output).unwrap_or_default()
}

/// The type whose hash values of `data_type` have.
fn form_of(data_type: &DataType) -> DataType {
    match data_type {
        DataType::Dictionary(_, values) => form_of(values),
        DataType::Utf8 | DataType::LargeUtf8 => DataType::Utf8View,
        DataType::Binary | DataType::LargeBinary => DataType::BinaryView,
        other => other.clone(),
    }
}

/// The same values, in the form that their hash is of.
fn of_one_form(column: &ArrayRef) -> Result<ArrayRef> {
    let form = form_of(column.data_type());
    let column =
        if *column.data_type() == form { Arc::clone(column) } else { cast(column, &form)? };
    // The hash itself knows that zeros are equal.
    Ok(match form {
        DataType::Float32 => {
            let numbers = column.as_primitive::<Float32Type>();
            Arc::new(numbers.unary::<_, Float32Type>(|x| if x.is_nan() { f32::NAN } else { x }))
        }
        DataType::Float64 => {
            let numbers = column.as_primitive::<Float64Type>();
            Arc::new(numbers.unary::<_, Float64Type>(|x| if x.is_nan() { f64::NAN } else { x }))
        }
        _ => column,
    })
}

#[cfg(test)]
mod tests;
