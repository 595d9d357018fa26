//! What a column or a check refuses, where a fragment makes new rows: the fragment fails, and the host, which makes the
//! same rows, names column and value.

use std::ops::Range;

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::Fields;
use cleave_store::ColumnRef;
use datafusion_common::{DataFusionError, Result};

/// A new value that its column refuses. The host makes the rows itself, and says which.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a new value of column {column} is NULL, or lies in overflow pages")]
pub struct RefusedValue {
    /// The column's stable id.
    pub column: u32,
}

/// A new row that breaks a check. The host makes the rows itself, and says which.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a new row breaks a check constraint")]
pub struct RefusedRow;

/// Refuses NULL in columns that `fields` say have none.
pub(super) fn check_values(
    values: &RecordBatch,
    (columns, fields): (&[ColumnRef], &Fields),
) -> Result<()> {
    let columns = columns.iter().zip(fields).zip(values.columns());
    for ((column, field), array) in columns {
        if !field.is_nullable() && array.null_count() > 0 {
            return Err(refused(*column));
        }
    }
    Ok(())
}

/// Refuses rows of which one of the columns `checks`, a check each, says that they break it. NULL is no violation.
pub(super) fn check_rows(rows: &RecordBatch, checks: Range<usize>) -> Result<()> {
    for kept in rows.columns().iter().take(checks.end).skip(checks.start) {
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
