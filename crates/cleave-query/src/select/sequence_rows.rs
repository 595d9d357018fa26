//! A sequence as a table of one row, as `pg_dump` reads it: the last number, how many more its log has reserved (always
//! shown as 0), and whether the last was given.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, BooleanArray, Int64Array, RecordBatch};
use datafusion::arrow::datatypes::{DataType, Field, Schema};
use datafusion::catalog::TableProvider;
use datafusion::datasource::MemTable;
use datafusion::error::Result;

use super::statement_context::StatementContext;

/// The columns.
pub(super) const COLUMNS: [&str; 3] = ["last_value", "log_cnt", "is_called"];

/// The row of the sequence `name`; None: there is none that the statement sees.
pub(super) fn table(
    context: &StatementContext,
    name: &str,
) -> Result<Option<Arc<dyn TableProvider>>> {
    let Some(sequence) = context.state().sequences.get(name) else { return Ok(None) };
    let (last, is_called) = context.database().sequences().last(sequence);
    let columns: [ArrayRef; 3] = [
        Arc::new(Int64Array::from(vec![last])),
        Arc::new(Int64Array::from(vec![0])),
        Arc::new(BooleanArray::from(vec![is_called])),
    ];
    let types = [DataType::Int64, DataType::Int64, DataType::Boolean];
    let fields = COLUMNS.into_iter().zip(types).map(|(name, own)| Field::new(name, own, false));
    let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    let batch = RecordBatch::try_new(Arc::clone(&schema), columns.to_vec())?;
    Ok(Some(Arc::new(MemTable::try_new(schema, vec![vec![batch]])?)))
}
