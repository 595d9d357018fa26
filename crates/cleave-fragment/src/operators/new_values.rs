//! What a column or a check refuses, where a fragment makes new rows: the fragment fails, and the host, which makes the
//! same rows, names column and value.

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::Fields;
use cleave_store::ColumnRef;
use datafusion_common::{DataFusionError, Result};

/// A new value that its column refuses. The host makes the rows itself, and says which.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a new value of column {column} is NULL, too long, or lies in overflow pages")]
pub struct RefusedValue {
    /// The column's stable id.
    pub column: u32,
}

/// A new row that breaks a check. The host makes the rows itself, and says which.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a new row breaks a check constraint")]
pub struct RefusedRow;

/// Refuses NULL in columns that `fields` say have none, and text of more bytes than `bytes_max` has for its column,
/// where that is not 0.
pub(super) fn check_values(
    values: &RecordBatch,
    (columns, fields): (&[ColumnRef], &Fields),
    bytes_max: &[u32],
) -> Result<()> {
    let columns = columns.iter().zip(bytes_max).zip(fields);
    for (((column, bytes_max), field), array) in columns.zip(values.columns()) {
        let is_null = !field.is_nullable() && array.null_count() > 0;
        let texts = array.as_string_opt::<i32>().filter(|_| *bytes_max > 0);
        let bytes_max = usize::try_from(*bytes_max).unwrap_or(usize::MAX);
        let is_long =
            texts.is_some_and(|texts| texts.iter().flatten().any(|text| text.len() > bytes_max));
        if is_null || is_long {
            return Err(refused(*column));
        }
    }
    Ok(())
}

/// Refuses rows of which a column of `rows` from the one at `first` on, a check each, says that they break it. NULL is
/// no violation.
pub(super) fn check_rows(rows: &RecordBatch, first: usize) -> Result<()> {
    for kept in rows.columns().iter().skip(first) {
        let kept = kept.as_boolean();
        if kept.true_count() + kept.null_count() < kept.len() {
            return Err(DataFusionError::External(Box::new(RefusedRow)));
        }
    }
    Ok(())
}

/// The error of a value that `column` refuses.
pub(super) fn refused(column: ColumnRef) -> DataFusionError {
    let column = user_id(&column).unwrap_or_default();
    DataFusionError::External(Box::new(RefusedValue { column }))
}

/// The stable id of a column of the table.
pub(super) fn user_id(column: &ColumnRef) -> Option<u32> {
    match column {
        ColumnRef::User(id) => Some(*id),
        ColumnRef::Vid | ColumnRef::Commit => None,
    }
}
