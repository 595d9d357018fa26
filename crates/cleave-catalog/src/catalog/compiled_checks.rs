//! The compiled CHECK constraints of one table: rows as they would be stored in, the first row that breaks one out, as
//! an error.
//!
//! They are cached with the [rules](super::rules) of the table; `check_constraints` compiles their text. NULL is no
//! violation.
//!
//! Source: PostgreSQL's manual, "Check Constraints".

use std::fmt;
use std::sync::Arc;

use arrow::array::{Array, BooleanArray, RecordBatch};
use cleave_store::TableSchema;
use datafusion_physical_expr::PhysicalExpr;

use crate::error::{Error, Result, Rule};
use crate::value::value_text;

/// Most characters of a value that a message shows.
const SHOWN_MAX: usize = 64;

/// The checks of one table, evaluated on batches of its rows.
pub struct CompiledChecks {
    /// Name of each, and its expression over the columns of the table.
    pub checks: Vec<(String, Arc<dyn PhysicalExpr>)>,
    /// Whether all of them are immutable functions.
    pub is_immutable: bool,
}

impl fmt::Debug for CompiledChecks {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_list().entries(self.checks.iter().map(|(name, _)| name)).finish()
    }
}

impl CompiledChecks {
    /// Refuses `rows` of the table that `schema` describes, if one breaks a check.
    ///
    /// # Errors
    /// [`Error::Violation`]; errors of evaluating a check.
    pub fn check(&self, schema: &TableSchema, rows: &RecordBatch) -> Result<()> {
        if rows.num_rows() == 0 {
            return Ok(());
        }
        for (name, expression) in &self.checks {
            let kept = expression.evaluate(rows)?.into_array(rows.num_rows())?;
            let Some(kept) = kept.as_any().downcast_ref::<BooleanArray>() else { continue };
            if kept.true_count() + kept.null_count() == kept.len() {
                continue;
            }
            let broken = kept.iter().position(|kept| kept == Some(false));
            let detail = match broken {
                Some(row) => format!("Failing row contains ({}).", row_text(rows, row)?),
                None => String::new(),
            };
            return Err(Error::Violation {
                rule: Rule::Check,
                table: schema.name.clone(),
                constraint: name.clone(),
                message: format!(
                    "new row for relation \"{}\" violates check constraint \"{name}\"",
                    schema.name
                ),
                detail,
            });
        }
        Ok(())
    }
}

/// The values of a row for a message.
fn row_text(rows: &RecordBatch, row: usize) -> Result<String> {
    let mut values = Vec::with_capacity(rows.num_columns());
    for column in rows.columns() {
        let value = value_text(column, row)?.unwrap_or_else(|| "null".to_owned());
        values.push(match value.char_indices().nth(SHOWN_MAX) {
            Some((end, _)) => format!("{}...", value.get(..end).unwrap_or_default()),
            None => value,
        });
    }
    Ok(values.join(", "))
}
