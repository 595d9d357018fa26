//! UPDATE and DELETE, and what every statement that changes rows gives back.
//!
//! 1. [`Modify::query`] makes a query of the statement. It runs once for each tablet of the table, as any query does: on the
//!    host, or cut, on the statement's own view.
//! 2. What it gives are VIDs and rows as they shall be; a VID that comes twice counts once (rule 22).
//! 3. [`Session::take`] has the transaction take the change: rows with these VIDs end, the others begin. Where another
//!    transaction was faster with one of them, it all begins anew on a later view, or fails (see [`super::block`]).
//! 4. RETURNING is a query over the new rows, or over the old ones of DELETE.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::array::types::UInt64Type;
use arrow::array::{Array, AsArray, BooleanArray, RecordBatch};
use arrow::compute::{concat_batches, filter_record_batch};
use cleave_store::{ColumnType, TableSchema};
use datafusion::sql::sqlparser::ast;

use super::block::Taken;
use super::foreign_keys::Ending;
use super::held::Held;
use super::identity;
use super::key_locks::leaves_keys;
use super::upsert::RowPlace;
use super::{Outcome, Session};
use crate::catalog::TableState;
use crate::error::{Error, Result};
use crate::statement::Parameters;
use crate::statement::locked_parts::GivenRows;
use crate::statement::modify::{Action, Assignment, Modify, row_count, with_row_values};
use crate::statement::parameters::{parameter_type, place_of};
use crate::statement::select::{self, Asked, Measured, ReadView, Target, all_known, describe_over};
use crate::write::conform::Conform;
use crate::write::insert::{TableChange, route};

/// The query for what RETURNING lists, and rows that it is over.
pub(super) type Returns = Option<(Box<ast::Query>, RecordBatch)>;

/// What a statement does to a table.
pub(super) struct Made {
    pub(super) change: TableChange,
    /// Where the rows are that it is about.
    pub(super) places: Vec<RowPlace>,
    /// The rows that RETURNING is about, in the same order.
    rows: RecordBatch,
    /// What stands beside them, where RETURNING names it.
    beside: Option<RecordBatch>,
}

impl Made {
    /// What becomes of the rows.
    pub(super) fn ending(&self, modify: &Modify) -> Ending<'_> {
        let (before, after) = match modify.action {
            Action::Delete => (Some(&self.rows), None),
            Action::Update(_) => (None, Some(&self.rows)),
        };
        Ending::Rows { places: &self.places, before, after }
    }
}

impl Session {
    /// Runs UPDATE or DELETE.
    pub(super) async fn modify(
        &mut self,
        modify: &Modify,
        parameters: &Parameters,
    ) -> Result<Outcome> {
        self.check_may_write(modify.name())?;
        let schema = self.lock_for_writing(&modify.table).await;
        let schema = schema.map_err(|error| error.at(modify.position))?;
        if self.database.readers_held_back() {
            let query = modify.query(&schema)?;
            self.wait_for_tables(&query).await?;
            if !modify.returning.is_empty() {
                self.wait_for_tables(&*modify.returning_query()?).await?;
            }
        }
        loop {
            let view = self.view().await?;
            let table = view.state.find_writable_table(&modify.table);
            let table = Arc::clone(table.map_err(|error| error.at(modify.position))?);
            let made = self.made(&view, &table, modify, parameters).await?;
            self.lock_keys_of(&table, modify, &made).await?;
            let ending = match self.keeps_keys(&table, modify) {
                true => Ending::KeysKept,
                false => made.ending(modify),
            };
            if let Taken::Again = self.take(&view, &table, made.change.clone(), ending).await? {
                if self.view_of_parts().is_some() {
                    return Err(Error::concurrent_update());
                }
                continue;
            }
            let returned = match modify.returning.as_slice() {
                [] => None,
                _ => Some(modify.returned(&table.schema, &made.rows, made.beside.as_ref())?),
            };
            let returned = returned.as_ref().map(|(query, rows)| (query.clone(), rows));
            let done = (modify.name(), made.places.len());
            return self.outcome(done, returned, parameters, Some(&view)).await;
        }
    }

    /// Locks the keys that the statement takes away.
    pub(super) async fn lock_keys_of(
        &mut self,
        table: &TableState,
        modify: &Modify,
        made: &Made,
    ) -> Result<()> {
        match modify.action {
            _ if made.change.keeps_keys || Held::takes_table(&made.change) => Ok(()),
            Action::Delete => self.lock_gone_keys(table, &made.rows).await,
            Action::Update(_) => self.lock_changed_keys(table, &made.change).await,
        }
    }

    /// What is known of an UPDATE or DELETE without values, as of a query: types of parameters, tables, and what RETURNING lists, with no
    /// rows of what it lists that of.
    pub(super) async fn describe_modify(
        &self,
        modify: &Modify,
        mut types: Vec<Option<ColumnType>>,
        given: &GivenRows,
    ) -> Result<(Vec<ColumnType>, Vec<Arc<TableSchema>>, Returns)> {
        let state = self.names();
        let table = state.find_writable_table(&modify.table);
        let table = Arc::clone(table.map_err(|error| error.at(modify.position))?);
        assigned_types(modify.assignments(), &table.schema, &mut types)?;
        let query = modify.query(&table.schema)?;
        let target = Some(Target { table: modify.table.clone(), tablet: 0 });
        let view = ReadView { state, target, reads: None };
        let read = (Some(&view), given);
        let described = describe_over(&self.database, self.in_force(), read, &query, types);
        let described = Box::pin(described).await?;
        let rows = RecordBatch::new_empty(table.schema.arrow());
        let beside = beside_columns(modify, &table.schema, described.schema.fields().len() - 1);
        let beside = beside.map(|columns| {
            let columns: Vec<usize> = columns.map(|column| column + 1).collect();
            RecordBatch::new_empty(Arc::clone(&described.schema)).project(&columns)
        });
        let returned = match modify.returning.as_slice() {
            [] => None,
            _ => Some(modify.returned(&table.schema, &rows, beside.transpose()?.as_ref())?),
        };
        let types: Vec<_> = described.types.into_iter().map(Some).collect();
        Ok((all_known(&types)?, described.tables, returned))
    }

    /// The rows of `table` that the statement is about, and what it makes of them.
    pub(super) async fn made(
        &self,
        view: &ReadView,
        table: &TableState,
        modify: &Modify,
        parameters: &Parameters,
    ) -> Result<Made> {
        let schema = &table.schema;
        identity::check_update(table, modify.assignments())?;
        let query = modify.query(schema)?;
        let conform = Conform::by_position(schema, &[], schema.columns.len(), self.moment())?;
        let mut change = TableChange::new(Arc::clone(schema));
        let (mut all, mut places) = (Vec::new(), Vec::new());
        let (mut beside, mut beside_schema) = (Vec::new(), None);
        for place in 0..table.tablets.len() {
            let target = Some(Target { table: modify.table.clone(), tablet: place });
            let view = ReadView { target, ..view.clone() };
            let asked = Asked { query: &query, parameters, view: Some(&view) };
            // What foreign keys do is none of what is explained; and of several tablets the first is.
            let measuring = self.measuring.as_ref();
            let measuring = measuring.filter(|_| !self.references.is_running && place == 0);
            let (database, settings) = (&self.database, self.in_force());
            let mut running = match measuring {
                Some(_) => Box::pin(select::run_measured(database, settings, asked)).await?,
                None => Box::pin(select::run_query(database, settings, asked)).await?,
            };
            let listed = running.schema();
            let behind = beside_columns(modify, schema, listed.fields().len() - 1);
            let behind: Option<Vec<usize>> = behind.map(Iterator::collect);
            // Rows that earlier parts of the statement have changed are none of this one's.
            let next = self.committed(&view).table_by_id(schema.table_id);
            let next =
                next.and_then(|table| table.tablets.get(place)).map(|tablet| tablet.next_vid);
            let before = self.ended_by_parts(schema.table_id, place, next.unwrap_or(u64::MAX));
            let mut ended = before.clone();
            while let Some(batch) = running.next().await? {
                let (batch, vids) = first_of_each(&batch, &mut ended)?;
                places.extend(vids.into_iter().map(|vid| (place, vid)));
                let defaults = defaults(modify.assignments(), schema, batch.num_rows());
                let columns = with_row_values(schema, modify.assignments(), &batch)?;
                all.push(conform.rows_of_columns(&columns, batch.num_rows(), &defaults)?);
                if let Some(behind) = &behind {
                    beside.push(batch.project(behind)?);
                }
            }
            if let Some(behind) = &behind {
                let behind: Vec<usize> = behind.iter().map(|column| column + 1).collect();
                beside_schema = Some(Arc::new(listed.project(&behind)?));
            }
            if let Some(measuring) = measuring {
                measuring.put(Measured::of(&mut running).await?);
            }
            let ended: BTreeSet<u64> = ended.difference(&before).copied().collect();
            if !ended.is_empty() {
                change.ended.insert(place, ended);
            }
        }
        let rows = concat_batches(&schema.arrow(), &all)?;
        if matches!(modify.action, Action::Update(_)) {
            change.rows = route(table, rows.clone())?;
            change.keeps_keys = leaves_keys(table, modify.assignments());
        }
        let beside = beside_schema.map(|schema| concat_batches(&schema, &beside)).transpose()?;
        Ok(Made { change, places, rows, beside })
    }

    /// What a statement that changed `row_count` rows gives: where it has RETURNING, what that query says of its rows, and of `view`.
    pub(super) async fn outcome(
        &self,
        (name, row_count): (&str, usize),
        returned: Option<(Box<ast::Query>, &RecordBatch)>,
        parameters: &Parameters,
        view: Option<&ReadView>,
    ) -> Result<Outcome> {
        let Some((query, rows)) = returned else {
            return Ok(Outcome::done(format!("{name} {row_count}")));
        };
        let asked = Asked { query: &query, parameters, view };
        let (schema, batches) =
            Box::pin(select::over_rows(&self.database, self.in_force(), asked, rows)).await?;
        Ok(Outcome::Rows { schema, batches })
    }
}

/// Which of `count` columns that the query of `modify` gives behind the VIDs are of other tables than its own; None: RETURNING names none.
fn beside_columns(
    modify: &Modify,
    schema: &TableSchema,
    count: usize,
) -> Option<std::ops::Range<usize>> {
    let from = schema.columns.len() + row_count(modify.assignments());
    modify.returns_beside().then_some(from..count)
}

/// The rows of `batch`, without its first column, whose VIDs are not in `seen` yet, and these.
fn first_of_each(batch: &RecordBatch, seen: &mut BTreeSet<u64>) -> Result<(RecordBatch, Vec<u64>)> {
    let Some(vids) = batch.columns().first().and_then(|column| {
        column.as_primitive_opt::<UInt64Type>().filter(|vids| vids.null_count() == 0)
    }) else {
        return Err(Error::unsupported("a statement whose rows are not told"));
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

/// For each column of the table, whether SET says DEFAULT.
pub(super) fn defaults(
    assignments: &[Assignment],
    schema: &TableSchema,
    row_count: usize,
) -> Vec<Option<BooleanArray>> {
    let mut defaults = vec![None; schema.columns.len()];
    for assignment in assignments.iter().filter(|assignment| assignment.value.is_none()) {
        let place = schema.column_index(&assignment.column);
        if let Some(default) = place.and_then(|place| defaults.get_mut(place)) {
            *default = Some(BooleanArray::from(vec![true; row_count]));
        }
    }
    defaults
}

/// Notes in `types` those of parameters that are assigned to columns.
pub(super) fn assigned_types(
    assignments: &[Assignment],
    schema: &TableSchema,
    types: &mut [Option<ColumnType>],
) -> Result<()> {
    for assignment in assignments {
        let Some(value) = &assignment.value else { continue };
        let Some(parameter) = place_of(value)? else { continue };
        let column = schema.column(&assignment.column);
        if let (Some(unknown @ None), Some(column)) = (types.get_mut(parameter), column) {
            *unknown = Some(parameter_type(column.column_type));
        }
    }
    Ok(())
}
