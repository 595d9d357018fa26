//! The inputs of default values: the statement's time, and the source of sequence numbers.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use cleave_catalog::catalog::CatalogState;
use cleave_catalog::catalog::rights::{Object, Privilege};
use cleave_catalog::catalog::sequence::{NumberSource, Sequence, named};
use cleave_catalog::error::{Error, Fault, Result, RoleFault};
use cleave_catalog::sequence_values::SequenceValues;
use cleave_store::{Column, TableSchema};

use crate::statement::conform::converted;
use crate::statement::defaults::{next_default, placeholder};

/// The moment at which a statement runs.
#[derive(Debug, Clone)]
pub struct Moment {
    /// Microseconds since 1970-01-01T00:00:00Z.
    pub now_us: i64,
    numbers: Numbers,
    /// The table whose columns get the numbers.
    table: Option<u32>,
}

/// The source of sequence numbers.
#[derive(Debug, Clone)]
enum Numbers {
    /// None: no rows are made.
    None,
    /// From sequences, once the rows are in order ([`Moment::fill`]).
    Later,
    /// From sequences.
    Now(Arc<Source>),
}

#[derive(Debug)]
struct Source {
    numbers: Arc<dyn NumberSource>,
    state: Arc<CatalogState>,
    values: SequenceValues,
    taker: Taker,
}

/// The role that draws the numbers of defaults.
#[derive(Debug, Clone, Default)]
pub struct Taker {
    /// The role that the session acts as; None: a superuser.
    pub role: Option<u32>,
    /// It is an action of a foreign key, which counts as the table owner's.
    pub is_owner: bool,
    /// The session's own tables and sequences.
    pub temporary: BTreeSet<u32>,
}

impl From<i64> for Moment {
    fn from(now_us: i64) -> Self {
        Self { now_us, numbers: Numbers::None, table: None }
    }
}

impl Moment {
    /// The moment of a statement of the session that sees the sequences of `state`, with the session's sequence values
    /// `values`.
    pub fn new(
        now_us: i64,
        numbers: Arc<dyn NumberSource>,
        state: Arc<CatalogState>,
        values: &SequenceValues,
        taker: Taker,
    ) -> Self {
        let source = Source { numbers, state, values: values.clone(), taker };
        Self { now_us, numbers: Numbers::Now(Arc::new(source)), table: None }
    }

    /// The same for rows of the table `id`.
    #[must_use]
    pub fn of_table(self, id: u32) -> Self {
        Self { table: Some(id), ..self }
    }

    /// The same, for rows that are made in any order: [`Self::fill`] gives the numbers later.
    #[must_use]
    pub fn later(&self) -> Self {
        Self { now_us: self.now_us, numbers: Numbers::Later, table: self.table }
    }

    /// The next `count` numbers of the sequence `name`, as values of `column`.
    ///
    /// # Errors
    /// [`Error::UnknownName`]; where the role may not use the sequence; those of the sequence; [`Error::Value`] for one
    /// that the column does not take.
    pub fn numbers(&self, column: &Column, name: &str, count: usize) -> Result<ArrayRef> {
        let source = match &self.numbers {
            Numbers::Now(source) => source,
            Numbers::Later => return Ok(placeholder(column, count)),
            Numbers::None => {
                return Err(Error::Invalid {
                    message: format!("sequence {name} cannot be used here"),
                    fault: Fault::State,
                    position: None,
                });
            }
        };
        let sequence = named(&source.state, name)?;
        if !source.may_take(sequence, (self.table, column.id)) {
            return Err(Error::Invalid {
                message: format!("permission denied for sequence {}", sequence.name),
                fault: Fault::Role(RoleFault::Rights),
                position: None,
            });
        }
        let numbers = source.numbers.take(sequence, count)?;
        if let Some(last) = numbers.last() {
            source.values.note(sequence.id, *last, true);
        }
        let numbers: ArrayRef = Arc::new(Int64Array::from(numbers));
        converted(column, &numbers)
    }

    /// `rows` of the table that `schema` describes, with the numbers of the columns made [later](Self::later), which
    /// are those not at `given`.
    ///
    /// # Errors
    /// As [`Self::numbers`].
    pub fn fill(
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
                let of_table = self.clone().of_table(schema.table_id);
                *values = of_table.numbers(column, &sequence, rows.num_rows())?;
            }
        }
        Ok(RecordBatch::try_new(rows.schema(), columns)?)
    }
}

impl Source {
    /// Whether the role may draw from `sequence` for a column of a table. A sequence that belongs to the column, as
    /// those of SERIAL and identities do, is open to every role that may write there; any other needs its own
    /// privilege.
    fn may_take(&self, sequence: &Sequence, (table, column): (Option<u32>, u32)) -> bool {
        let is_columns = |table| {
            sequence.owner.is_some_and(|owner| (owner.table, owner.column) == (table, column))
        };
        let Taker { role, is_owner, temporary } = &self.taker;
        let Some(role) = role else { return true };
        let rights = &self.state.rights;
        let role = match table.filter(|table| *is_owner && !temporary.contains(table)) {
            Some(table) => rights.owner(Object::Relation(table)),
            None => *role,
        };
        let may = |privilege| rights.may(role, Object::Relation(sequence.id), privilege);
        table.is_some_and(is_columns)
            || temporary.contains(&sequence.id)
            || may(Privilege::Usage)
            || may(Privilege::Update)
    }
}
