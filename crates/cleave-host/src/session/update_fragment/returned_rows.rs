//! RETURNING of a statement that runs by fragments: the rows that these return beside their reports in, the rows of the
//! statement out.
//!
//! 1. A fragment returns the columns that RETURNING needs of the table, as the row is stored by then (or was, if it
//!    dies), and those of other tables ([`ReturnedRows::take`]).
//! 2. Rows that others have replaced before they were locked are left out ([`ReturnedRows::retain`]). What the
//!    statement then changes row by row comes from the host ([`ReturnedRows::add`]).
//! 3. [`ReturnedRows::outcome`] runs the query of the RETURNING list over these rows, before the statement commits.
//!
//! The rows are charged to the memory of queries.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::array::types::UInt64Type;
use arrow::array::{AsArray, BooleanArray, RecordBatch, RecordBatchOptions};
use arrow::compute::{concat_batches, filter_record_batch};
use arrow::datatypes::{Schema, SchemaRef};
use cleave_catalog::catalog::TableState;
use cleave_catalog::error::Result;
use cleave_engine::write::begun::byte_count;
use cleave_query::cooperative::changing::ChangingQuery;
use cleave_query::select::ReadView;
use cleave_sql::statement::Parameters;
use cleave_sql::statement::modify::Modify;
use cleave_store::TableSchema;

use crate::session::changed_rows::with_nulls;
use crate::session::charge::Charge;
use crate::session::modify::{Made, outcome};
use crate::session::{Outcome, Session};

/// See the [module](self).
pub(super) struct ReturnedRows {
    schema: Arc<TableSchema>,
    /// The places of the columns that RETURNING needs; all others are NULL.
    needed: BTreeSet<usize>,
    /// By the place of their tablet: VIDs, the needed columns, those of other tables.
    by_fragments: Vec<(usize, RecordBatch)>,
    /// Rows of the table, and the columns of other tables.
    rows: Vec<RecordBatch>,
    beside: Vec<RecordBatch>,
    beside_schema: Option<SchemaRef>,
    charge: Charge,
}

/// The places of the columns of `schema` that RETURNING of `modify` needs; None: it has none.
pub(super) fn returned_columns(schema: &TableSchema, modify: &Modify) -> Option<BTreeSet<usize>> {
    let all = || (0..schema.columns.len()).collect();
    let is_asked = !modify.returning.is_empty();
    is_asked.then(|| modify.returned_columns(schema).unwrap_or_else(all))
}

impl ReturnedRows {
    /// No rows yet of `modify`, which changes `table`; None: it returns none.
    pub(super) fn of(session: &Session, table: &TableState, modify: &Modify) -> Option<Self> {
        let needed = returned_columns(&table.schema, modify)?;
        Some(Self {
            schema: Arc::clone(&table.schema),
            needed,
            by_fragments: Vec::new(),
            rows: Vec::new(),
            beside: Vec::new(),
            beside_schema: None,
            charge: Charge::new(&session.database),
        })
    }

    /// Adds what the fragment of `query` has returned of the tablet at `place`.
    ///
    /// # Errors
    /// 53200.
    pub(super) fn take(
        &mut self,
        (place, query): (usize, &ChangingQuery),
        rows: Vec<RecordBatch>,
    ) -> Result<()> {
        self.beside_schema = query.beside().map(nullable);
        for batch in rows {
            self.charge.grow(2 * byte_count(&batch))?;
            self.by_fragments.push((place, batch));
        }
        Ok(())
    }

    /// Leaves out the rows of fragments that `is_changed` does not know, by the place of their tablet and their VID.
    ///
    /// # Errors
    /// Internal ones only.
    pub(super) fn retain(&mut self, is_changed: impl Fn(usize, u64) -> bool) -> Result<()> {
        for (place, batch) in &mut self.by_fragments {
            let vids = batch.column(0).as_primitive::<UInt64Type>();
            let kept = vids.values().iter().map(|vid| is_changed(*place, *vid));
            let kept = BooleanArray::from(kept.collect::<Vec<_>>());
            *batch = filter_record_batch(batch, &kept)?;
        }
        Ok(())
    }

    /// Adds the rows that the statement has made itself.
    ///
    /// # Errors
    /// 53200.
    pub(super) fn add(&mut self, made: &Made) -> Result<()> {
        let beside_bytes = made.beside.as_ref().map_or(0, byte_count);
        self.charge.grow(2 * (byte_count(&made.rows) + beside_bytes))?;
        let rows = nullable(&made.rows.schema());
        self.rows.push(made.rows.clone().with_schema(rows)?);
        if let Some(beside) = &made.beside {
            let schema = nullable(&beside.schema());
            self.beside.push(beside.clone().with_schema(Arc::clone(&schema))?);
            self.beside_schema = Some(schema);
        }
        Ok(())
    }

    /// The rows of `modify`, whose subqueries read `view`.
    ///
    /// # Errors
    /// Those of the RETURNING list.
    pub(super) async fn outcome(
        mut self,
        session: &Session,
        (modify, parameters): (&Modify, &Parameters),
        view: &ReadView,
    ) -> Result<Outcome> {
        for (_, batch) in std::mem::take(&mut self.by_fragments) {
            let behind = self.needed.len() + 1;
            let own = batch.project(&(1..behind).collect::<Vec<_>>())?;
            self.rows.push(with_nulls(&own, &self.schema, &self.needed)?);
            if let Some(schema) = &self.beside_schema {
                let columns = batch.columns().iter().skip(behind).cloned().collect();
                let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
                let schema = Arc::clone(schema);
                self.beside.push(RecordBatch::try_new_with_options(schema, columns, &options)?);
            }
        }
        let rows = concat_batches(&nullable(&self.schema.arrow()), &self.rows)?;
        let beside = self.beside_schema.as_ref();
        let beside = beside.map(|schema| concat_batches(schema, &self.beside)).transpose()?;
        let (query, rows) = modify.returned(&self.schema, &rows, beside.as_ref())?;
        let done = (modify.name(), rows.num_rows());
        let (database, settings) = (&session.database, session.in_force());
        let returned = Some((query, &rows));
        Box::pin(outcome(database, settings, done, returned, parameters, Some(view))).await
    }
}

/// The same columns, which may all be NULL.
fn nullable(schema: &SchemaRef) -> SchemaRef {
    let fields = schema.fields().iter().map(|field| field.as_ref().clone().with_nullable(true));
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}
