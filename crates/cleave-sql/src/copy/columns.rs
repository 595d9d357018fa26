//! Maps the columns of a file to those of a table, and fills the others.
//!
//! COPY's column list names the file's columns in the file's order; without a list the file has all columns of the
//! table. A column that the list leaves out gets its default, or NULL, in every row, with one time for the whole
//! statement. Invariant: a batch that leaves [`InputColumns::batch`] has the table's schema, and no NULL in a NOT NULL
//! column.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch};
use arrow::datatypes::SchemaRef;
use cleave_catalog::error::{Error, Fault, Result};
use cleave_store::{Column, TableSchema};

use crate::statement::defaults::default_array;
use crate::statement::moment::Moment;

/// The mapping from a file's columns to a table's.
#[derive(Debug, Clone)]
pub struct InputColumns {
    table: String,
    schema: SchemaRef,
    columns: Vec<Column>,
    /// For each column of the file, its place in the table.
    given: Vec<usize>,
    moment: Moment,
}

impl InputColumns {
    /// `listed` are the file's columns; empty: all of the table's. `moment` is the statement's,
    /// for defaults.
    ///
    /// # Errors
    /// [`Error::UnknownName`] with a suggestion, [`Error::Invalid`] for a column listed twice.
    pub fn new(table: &TableSchema, listed: &[String], moment: impl Into<Moment>) -> Result<Self> {
        let mut given = Vec::with_capacity(table.columns.len());
        for name in listed {
            let index = table.column_index(name).ok_or_else(|| {
                let names = table.columns.iter().map(|column| column.name.as_str());
                Error::unknown_column(&table.name, name, names)
            })?;
            if given.contains(&index) {
                return Err(Error::Invalid {
                    message: format!("column \"{name}\" specified more than once"),
                    fault: Fault::DuplicateColumn,
                    position: None,
                });
            }
            given.push(index);
        }
        if listed.is_empty() {
            given.extend(0..table.columns.len());
        }
        Ok(Self {
            table: table.name.clone(),
            schema: table.arrow(),
            columns: table.columns.clone(),
            given,
            moment: moment.into().of_table(table.table_id),
        })
    }

    /// The table's columns that the file has, in the file's order.
    pub fn given(&self) -> impl ExactSizeIterator<Item = &Column> {
        // `new` took every index from the table.
        self.given.iter().map(|index| &self.columns[*index])
    }

    /// The table's name.
    #[must_use]
    pub fn table(&self) -> &str {
        &self.table
    }

    /// The table's schema, which every batch has.
    #[must_use]
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Completes the file's columns, in the file's order, to a batch of the table.
    ///
    /// # Errors
    /// [`Error::NotNull`] where a column that refuses NULL has no value and no default.
    pub fn batch(&self, given: Vec<ArrayRef>, row_count: usize) -> Result<RecordBatch> {
        let mut columns: Vec<Option<ArrayRef>> = vec![None; self.columns.len()];
        for (index, values) in self.given.iter().zip(given) {
            columns[*index] = Some(values);
        }
        let mut complete = Vec::with_capacity(columns.len());
        for (column, values) in self.columns.iter().zip(columns) {
            let values = match values {
                Some(values) => values,
                None => default_array(column, row_count, &self.moment)?,
            };
            if column.not_null && values.null_count() > 0 {
                return Err(Error::NotNull {
                    table: self.table.clone(),
                    column: column.name.clone(),
                });
            }
            complete.push(values);
        }
        Ok(RecordBatch::try_new(Arc::clone(&self.schema), complete)?)
    }
}

#[cfg(test)]
mod tests;
