//! What the values of defaults depend on: the statement's time, and where numbers come from.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use cleave_store::{Column, TableSchema};

use crate::catalog::CatalogState;
use crate::database::Database;
use crate::error::{Error, Fault, Result};
use crate::sequences::{self, SequenceValues};
use crate::statement::defaults::{next_default, placeholder};
use crate::write::conform::converted;

/// The moment at which a statement runs.
#[derive(Debug, Clone)]
pub struct Moment {
    /// Microseconds since 1970-01-01T00:00:00Z.
    pub now_us: i64,
    numbers: Numbers,
}

/// Where numbers come from.
#[derive(Debug, Clone)]
enum Numbers {
    /// From nowhere: no rows are made.
    None,
    /// From sequences, once the rows are in order ([`Moment::fill`]).
    Later,
    /// From sequences.
    Now(Arc<Source>),
}

#[derive(Debug)]
struct Source {
    database: Arc<Database>,
    state: Arc<CatalogState>,
    values: SequenceValues,
}

impl From<i64> for Moment {
    fn from(now_us: i64) -> Self {
        Self { now_us, numbers: Numbers::None }
    }
}

impl Moment {
    /// That of a statement of the session that sees the sequences of `state`, and whose numbers are `values`.
    pub(crate) fn new(
        now_us: i64,
        database: &Arc<Database>,
        state: Arc<CatalogState>,
        values: &SequenceValues,
    ) -> Self {
        let source = Source { database: Arc::clone(database), state, values: values.clone() };
        Self { now_us, numbers: Numbers::Now(Arc::new(source)) }
    }

    /// The same, for rows that are made in any order: numbers are given by [`Self::fill`].
    #[must_use]
    pub(crate) fn later(&self) -> Self {
        Self { now_us: self.now_us, numbers: Numbers::Later }
    }

    /// The next `count` numbers of the sequence that `name` names, as values of `column`.
    ///
    /// # Errors
    /// [`Error::UnknownName`]; those of the sequence; [`Error::Value`] for one that the column does not take.
    pub(crate) fn numbers(&self, column: &Column, name: &str, count: usize) -> Result<ArrayRef> {
        let source = match &self.numbers {
            Numbers::Now(source) => source,
            Numbers::Later => return Ok(placeholder(column, count)),
            Numbers::None => {
                return Err(Error::Invalid {
                    message: format!("no numbers of sequence {name} are to be had here"),
                    fault: Fault::State,
                    position: None,
                });
            }
        };
        let sequence = sequences::named(&source.state, name)?;
        let numbers = source.database.sequences().take(&source.database, sequence, count)?;
        if let Some(last) = numbers.last() {
            source.values.note(sequence, *last, true);
        }
        let numbers: ArrayRef = Arc::new(Int64Array::from(numbers));
        converted(column, &numbers)
    }

    /// `rows` of the table that `schema` describes, whose columns but those at `given` were made [later](Self::later), with their
    /// numbers.
    ///
    /// # Errors
    /// As [`Self::numbers`].
    pub(crate) fn fill(
        &self,
        schema: &TableSchema,
        given: &[String],
        rows: RecordBatch,
    ) -> Result<RecordBatch> {
        if given.is_empty() {
            return Ok(rows);
        }
        let mut columns = rows.columns().to_vec();
        for (column, values) in schema.columns.iter().zip(&mut columns) {
            if given.contains(&column.name) {
                continue;
            }
            if let Some(sequence) = next_default(column) {
                *values = self.numbers(column, &sequence, rows.num_rows())?;
            }
        }
        Ok(RecordBatch::try_new(rows.schema(), columns)?)
    }
}
