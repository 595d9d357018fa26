//! The rows that an UPDATE or DELETE targets, as its query gives them: batch by batch, one tablet after the other.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::array::types::UInt64Type;
use arrow::array::{Array, AsArray, BooleanArray, RecordBatch, RecordBatchOptions, new_null_array};
use arrow::compute::{cast, filter_record_batch};
use arrow::datatypes::{Schema, SchemaRef};
use cleave_catalog::catalog::TableState;
use cleave_catalog::error::{Error, Result};
use cleave_engine::write::vid_set::VidSet;
use cleave_query::select;
use cleave_query::select::{Measured, QueryRequest, ReadView, RunningQuery, Target};
use cleave_sql::statement::Parameters;
use cleave_sql::statement::assigned::check_set;
use cleave_sql::statement::conform::Conform;
use cleave_sql::statement::modify::{Modify, with_row_values};
use cleave_store::TableSchema;
use datafusion::sql::sqlparser::ast;

use super::modify::{beside_columns, defaults};
use super::{Session, changing_with};

/// See the module's description.
pub(super) struct ChangedRows<'a> {
    session: &'a Session,
    view: &'a ReadView,
    table: &'a TableState,
    modify: &'a Modify,
    parameters: &'a Parameters,
    query: Box<ast::Query>,
    conform: Conform,
    /// The columns that a DELETE needs; all others are NULL.
    needed: Option<BTreeSet<usize>>,
    /// The place of the tablet.
    place: usize,
    running: Option<Running>,
    /// Columns of other tables beside the rows.
    pub(super) beside: Option<SchemaRef>,
    /// By tablet, the VID with which the pages begin that count; all do where there is none.
    pub(super) vids_from: Vec<u64>,
}

/// The query over one tablet.
struct Running {
    query: RunningQuery,
    is_measured: bool,
    /// Columns of other tables.
    behind: Option<Vec<usize>>,
    /// Rows that earlier parts of the statement have changed, and rows given before: each counts once.
    seen: VidSet,
}

/// Some of the rows.
pub(super) struct Changed {
    /// The place of their tablet.
    pub(super) place: usize,
    pub(super) vids: Vec<u64>,
    /// The new rows; for DELETE, the rows as they are.
    pub(super) rows: RecordBatch,
    /// The columns of other tables that RETURNING names.
    pub(super) beside: Option<RecordBatch>,
}

impl<'a> ChangedRows<'a> {
    /// The target rows of `table` in `view`; for a DELETE with the columns `needed`, None: all.
    ///
    /// # Errors
    /// Those of the statement's query.
    pub(super) fn new(
        session: &'a Session,
        view: &'a ReadView,
        table: &'a TableState,
        (modify, parameters): (&'a Modify, &'a Parameters),
        needed: Option<BTreeSet<usize>>,
    ) -> Result<Self> {
        let schema = &table.schema;
        let query = modify.query_of(schema, needed.as_ref())?;
        let conform = Conform::by_position(schema, &[], schema.columns.len(), session.moment())?;
        let (place, running, beside) = Default::default();
        Ok(Self {
            session,
            view,
            table,
            modify,
            parameters,
            query,
            conform,
            needed,
            place,
            running,
            beside,
            vids_from: Vec::new(),
        })
    }

    /// The next of them; None: there are no more.
    ///
    /// # Errors
    /// Those of the query.
    pub(super) async fn next(&mut self) -> Result<Option<Changed>> {
        while self.place < self.table.tablets.len() {
            if self.running.is_none() {
                self.running = Some(self.begin().await?);
            }
            let Some(running) = &mut self.running else { break };
            let Some(batch) = running.query.next().await? else {
                if let (true, Some(measuring)) = (running.is_measured, &self.session.measuring) {
                    measuring.put(Measured::of(&mut running.query).await?);
                }
                self.running = None;
                self.place += 1;
                continue;
            };
            let (batch, vids) = first_of_each(&batch, &mut running.seen)?;
            if vids.is_empty() {
                continue;
            }
            if let Some(needed) = &self.needed {
                let rows = with_nulls(&batch, &self.table.schema, needed)?;
                return Ok(Some(Changed { place: self.place, vids, rows, beside: None }));
            }
            let (schema, assignments) = (&self.table.schema, self.modify.assignments());
            let defaults = defaults(assignments, schema, batch.num_rows());
            let columns = with_row_values(schema, assignments, &batch)?;
            let rows = self.conform.rows_of_columns(&columns, batch.num_rows(), &defaults)?;
            let behind = running.behind.as_ref();
            let beside = behind.map(|behind| batch.project(behind)).transpose()?;
            return Ok(Some(Changed { place: self.place, vids, rows, beside }));
        }
        Ok(None)
    }

    /// Begins to query the tablet.
    async fn begin(&mut self) -> Result<Running> {
        let (session, place) = (self.session, self.place);
        let from = self.vids_from.get(place).copied().unwrap_or_default();
        let vids = from..u64::MAX;
        let target = Some(Target { table: self.modify.table.clone(), tablet: place, vids });
        let view = ReadView { target, ..self.view.clone() };
        let asked =
            QueryRequest { query: &self.query, parameters: self.parameters, view: Some(&view) };
        // Statements of foreign keys are not explained; of several tablets only the first is.
        let is_measured =
            session.measuring.is_some() && !session.references.is_running && place == 0;
        let (database, settings) = (&session.database, session.in_force());
        let query = match is_measured {
            true => Box::pin(select::run_measured(database, settings, asked)).await?,
            false => Box::pin(select::run_query(database, settings, asked)).await?,
        };
        let (listed, schema) = (query.schema(), &self.table.schema);
        // The VID comes first. Foreign keys compare typed values.
        if self.needed.is_none() && !session.references.is_running {
            let own = |place: usize| listed.fields().get(place + 1).map(|field| field.data_type());
            check_set(schema, self.modify.assignments(), own)?;
        }
        let behind = beside_columns(self.modify, schema, listed.fields().len() - 1);
        let behind: Option<Vec<usize>> = behind.map(Iterator::collect);
        if let Some(behind) = &behind {
            let behind: Vec<usize> = behind.iter().map(|column| column + 1).collect();
            self.beside = Some(Arc::new(listed.project(&behind)?));
        }
        let committed = session.committed(&view).table_by_id(schema.table_id);
        let next = committed.and_then(|table| table.tablets.get(place)).map(|own| own.next_vid);
        let seen = changing_with::dead_by_parts(
            session.parts.as_deref(),
            schema.table_id,
            place,
            next.unwrap_or(u64::MAX),
        );
        Ok(Running { query, is_measured, behind, seen })
    }
}

/// Rows of the table of which `batch` has the columns that are `needed`; all others are NULL.
pub(super) fn with_nulls(
    batch: &RecordBatch,
    schema: &TableSchema,
    needed: &BTreeSet<usize>,
) -> Result<RecordBatch> {
    let (mut fields, mut columns) = (Vec::new(), Vec::new());
    let mut given = batch.columns().iter();
    for (place, field) in schema.arrow().fields().iter().enumerate() {
        let column = if needed.contains(&place) { given.next() } else { None };
        columns.push(match column {
            Some(column) => cast(column, field.data_type())?,
            None => new_null_array(field.data_type(), batch.num_rows()),
        });
        fields.push(field.as_ref().clone().with_nullable(true));
    }
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    let schema = Arc::new(Schema::new(fields));
    Ok(RecordBatch::try_new_with_options(schema, columns, &options)?)
}

/// The rows of `batch`, without its first column, whose VIDs are not in `seen` yet; adds them to `seen`.
fn first_of_each(batch: &RecordBatch, seen: &mut VidSet) -> Result<(RecordBatch, Vec<u64>)> {
    let Some(vids) = batch.columns().first().and_then(|column| {
        column.as_primitive_opt::<UInt64Type>().filter(|vids| vids.null_count() == 0)
    }) else {
        return Err(Error::unsupported("this statement"));
    };
    let is_first: Vec<bool> = vids.values().iter().map(|vid| seen.insert(*vid)).collect();
    let first = vids.values().iter().zip(&is_first).filter(|(_, is_first)| **is_first);
    let first = first.map(|(vid, _)| *vid).collect();
    let is_first = BooleanArray::from(is_first);
    let columns: Vec<usize> = (1..batch.num_columns()).collect();
    let rows = batch.project(&columns)?;
    if is_first.true_count() == rows.num_rows() {
        return Ok((rows, first));
    }
    Ok((filter_record_batch(&rows, &is_first)?, first))
}
