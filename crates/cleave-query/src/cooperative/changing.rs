//! Update fragments: the query for the rows that a statement changes in, the pages that a fragment has changed out.
//!
//! ```text
//!   UPDATE item SET price = 2 * price WHERE kind = 3
//!     ─▶ the query: SELECT vid, 2 * price FROM item WHERE kind = 3          planned, one cut at its root
//!     ─▶ the fragment: ChangePagesExec over it                              runs on the device of the tablet
//! ```
//!
//! 1. [`plan_changes`] plans the query with a cut at its root ([`whole_fragment`](super::whole_fragment)). It is an
//!    update fragment if the rows that change stream through it, so that those of a page come one after the other.
//! 2. [`ChangingQuery::run`] sends the fragment with [`ChangePagesExec`] as its root, or runs it on the host: where the
//!    settings allow no fragments, and where the device refuses.
//! 3. [`ChangingQuery::run_locking`] sends the same fragment with [`LockRowsExec`] below its root: it changes just the
//!    rows that it has locked. It runs on the device or not at all.
//!
//! Rows that the host has found change in the same way: [`found_rows`](super::found_rows).
//!
//! Invariant: a fragment that changes pages is never shared between both sides, and is not divided to spill. Source:
//! Update NDP, section 4.

use cleave_fragment::walk::Walk;
use std::sync::Arc;

use cleave_catalog::error::{Error, Result};
use cleave_catalog::settings::Settings;
use cleave_engine::device::shared_locks::LockingJob;
use cleave_engine::device::{Claim, Device};
use cleave_engine::write::change_pages::{Reported, as_sink, claimed_pages};
use cleave_fragment::command::slot::batch_bytes;
use cleave_fragment::functions::assignment::assigned_to;
use cleave_fragment::{
    ChangePagesExec, ChangedColumns, LockRowsExec, Morsel, RefusedRow, RefusedValue, RowsToLock,
    TableScanExec, check_device_operator,
};
use cleave_media::{BLOCK_SIZE, Extent};
use cleave_plan::PlanEstimates;
use cleave_store::{ColumnRef, ColumnType, StoreError, TableSchema};
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::{DataType, SchemaRef};
use datafusion::common::ScalarValue;
use datafusion::common::tree_node::Transformed;
use datafusion::error::DataFusionError;
use datafusion::execution::memory_pool::MemoryReservation;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{Column, Literal};
use datafusion::physical_expr::projection::ProjectionExpr;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::projection::ProjectionExec;
use futures::TryStreamExt;

use super::figures::FragmentFigures;
use super::fragment_exec::FragmentExec;
use super::prepared_fragment::PreparedFragment;
use super::update_cost::{BulkChange, UpdateCost};
use super::whole_fragment::WholeFragment;
use crate::query_engine::QueryEngine;
use crate::select::QueryRequest;

/// Blocks of a page version besides its columns.
const HEADER_BLOCKS: u64 = 2;
/// Blocks beyond what is expected.
const SLACK_BLOCKS: u64 = 64;

/// A statement's change of one tablet, as a fragment.
pub struct ChangingQuery {
    whole: WholeFragment,
    node: FragmentExec,
    /// The rows that change, and how, for other fragments of them.
    rows: (Arc<dyn ExecutionPlan>, ChangedColumns),
    columns: usize,
    /// Columns of the table.
    column_count: usize,
    /// Returned columns of other tables.
    beside: Option<SchemaRef>,
    /// The number of its rows, if the host has found them, and what is charged for these.
    found: Option<(usize, Option<MemoryReservation>)>,
}

/// What the fragment reports, and the space that the device had; None: the host wrote the pages.
pub struct Changes {
    /// See [`cleave_fragment::read_changed`].
    pub rows: Vec<RecordBatch>,
    /// The space.
    pub space: Option<Vec<Extent>>,
}

/// Plans the query `asked` for VIDs and new values of the columns `changed`, which are made for the input whose rows
/// change. None: it does not run as one fragment.
///
/// # Errors
/// None of the statement's own: these come from the query that runs then instead.
pub async fn plan_changes(
    database: &Arc<QueryEngine>,
    settings: &Settings,
    asked: QueryRequest<'_>,
    column_count: usize,
    (changed, checked): (impl FnOnce(u32) -> ChangedColumns, &CheckedRows),
) -> Result<Option<ChangingQuery>> {
    let Some(whole) = WholeFragment::over_target(database, settings, asked).await? else {
        return Ok(None);
    };
    let fragment = whole.fragment();
    let Some(streamed) = fragment.scans.last() else { return Ok(None) };
    let changed = changed(streamed.scan.scan().input);
    let plan = Arc::clone(&fragment.plan);
    let schema = plan.schema();
    let behind: Vec<usize> = (checked.column_count..schema.fields().len()).collect();
    let beside = whole.planned().named(&schema).project(&behind)?;
    let query = ChangingQuery::over((whole, plan), changed, checked, column_count)?;
    let beside = (!behind.is_empty()).then(|| Arc::new(beside));
    Ok(query.map(|query| ChangingQuery { beside, ..query }))
}

/// What the query of a statement has behind the VID, and the checks that new rows are to keep.
#[derive(Debug, Clone, Default)]
pub struct CheckedRows {
    /// The changed columns; without checks, these are all.
    pub changed: Vec<NewValue>,
    /// Columns of the query in all, the VID included; those behind are returned.
    pub column_count: usize,
    /// The places of other columns that are returned; None: no row is.
    pub returned: Option<Vec<usize>>,
    /// Over the columns of the query.
    pub checks: Vec<Arc<dyn PhysicalExpr>>,
}

/// A column that changes.
#[derive(Debug, Clone)]
pub struct NewValue {
    /// Its place in the query.
    pub place: usize,
    /// Its type.
    pub column_type: ColumnType,
    /// The value of all rows, whatever the query has there.
    pub constant: Option<ScalarValue>,
}

/// Rows as they are stored, and the number of columns that are returned of them, if any are.
pub(super) type Conformed = (Arc<dyn ExecutionPlan>, Option<u32>);

/// `plan`, with the changed columns as they are stored, the checks behind these, and the returned columns, with their
/// number, last. None: the device is not known to make them as the host does.
pub(super) fn conformed(
    plan: &Arc<dyn ExecutionPlan>,
    checked: &CheckedRows,
) -> Result<Option<Conformed>> {
    let schema = plan.schema();
    let behind = checked.column_count..schema.fields().len();
    if behind.start > behind.end || checked.returned.is_none() && !behind.is_empty() {
        return Ok(None);
    }
    let mut columns = Vec::with_capacity(schema.fields().len());
    let mut is_cast = false;
    for (place, field) in schema.fields().iter().enumerate() {
        let alias = field.name().clone();
        let own: Arc<dyn PhysicalExpr> = Arc::new(Column::new(&alias, place));
        let expr = match checked.changed.iter().find(|changed| changed.place == place) {
            None => Some(own),
            Some(NewValue { constant: Some(constant), .. }) => {
                is_cast = true;
                Some(Arc::new(Literal::new(constant.clone())) as _)
            }
            Some(NewValue { column_type, .. }) => {
                let expr = assigned_to(Arc::clone(&own), field.data_type(), column_type);
                is_cast |= expr.as_ref().is_some_and(|expr| !Arc::ptr_eq(expr, &own));
                expr
            }
        };
        let Some(expr) = expr else { return Ok(None) };
        columns.push(ProjectionExpr { expr, alias });
    }
    let cast = match is_cast {
        true => Arc::new(ProjectionExec::try_new(columns, Arc::clone(plan))?),
        false => Arc::clone(plan),
    };
    if checked.checks.is_empty() && checked.returned.is_none() {
        return Ok(Some((cast, None)));
    }
    let schema = cast.schema();
    let column = |place: usize, alias: Option<String>| {
        let name = schema.field(place).name().clone();
        let expr = Arc::new(Column::new(&name, place)) as Arc<dyn PhysicalExpr>;
        ProjectionExpr { expr, alias: alias.unwrap_or(name) }
    };
    let changed = checked.changed.iter().map(|changed| changed.place);
    let kept = std::iter::once(0).chain(changed).map(|place| column(place, None));
    let mut columns: Vec<ProjectionExpr> = kept.collect();
    for (expr, number) in checked.checks.iter().zip(0..) {
        let named = Arc::clone(expr).transform_up(|node| {
            let place = node.downcast_ref::<Column>().map(Column::index);
            let field = place.and_then(|place| Some((place, schema.fields().get(place)?)));
            Ok(match field {
                Some((place, field)) => {
                    Transformed::yes(Arc::new(Column::new(field.name(), place)) as _)
                }
                None => Transformed::no(node),
            })
        })?;
        columns.push(ProjectionExpr { expr: named.data, alias: format!("check {number}") });
    }
    let mut returned = None;
    if let Some(places) = &checked.returned {
        let before = columns.len();
        let places = places.iter().copied().chain(behind).zip(0..);
        columns.extend(
            places.map(|(place, n): (_, u32)| column(place, Some(format!("returned {n}")))),
        );
        returned = u32::try_from(columns.len() - before).ok();
    }
    let checking = ProjectionExec::try_new(columns, cast)?;
    // The host evaluates what a device may not.
    let is_ours = check_device_operator(&checking).is_none();
    Ok(is_ours.then(|| (Arc::new(checking) as _, returned)))
}

/// Whether the rows of the scan change.
pub(super) fn is_target(scan: &TableScanExec) -> bool {
    scan.scan().output.columns.contains(&ColumnRef::Vid) && scan.scan().fetch.is_none()
}

/// Whether all operators above the scan that streams pass rows on in their order.
pub(super) fn keeps_page_order(plan: &Arc<dyn ExecutionPlan>) -> bool {
    const IN_ORDER: [&str; 7] = [
        "TableScanExec",
        "FilterExec",
        "ProjectionExec",
        "CoalesceBatchesExec",
        "CooperativeExec",
        "HashJoinExec",
        "NestedLoopJoinExec",
    ];
    let streamed = cleave_fragment::fragment::streamed_input(plan.as_ref());
    IN_ORDER.contains(&plan.name()) && streamed.is_none_or(keeps_page_order)
}

/// Whether the error is of the rows: the statement makes them itself then, and says what is wrong with them.
fn is_refused(error: &DataFusionError) -> bool {
    let error = match error.find_root() {
        DataFusionError::External(error) => error,
        DataFusionError::ArrowError(..) | DataFusionError::Execution(_) => return true,
        _ => return false,
    };
    error.is::<RefusedValue>()
        || error.is::<RefusedRow>()
        || matches!(error.downcast_ref(), Some(StoreError::Mismatch { .. }))
}

/// What is expected of a fragment over what `whole` reads that changes so many rows of a table with so many columns.
pub(super) fn bulk_change(
    whole: &WholeFragment,
    changed: &ChangedColumns,
    (column_count, rows): (usize, f64),
) -> BulkChange {
    let Some((_, input)) = whole.part().inputs.last() else { return BulkChange::default() };
    let input = &input.input;
    let (rows_read, bytes_read) = (input.rows_left() as f64, input.bytes_left() as f64);
    let columns = &changed.columns.schema;
    let returned = changed.returned.map_or(0.0, f64::from);
    BulkChange {
        rows: rows.min(rows_read),
        rows_read,
        pages_read: input.pages_left() as f64,
        bytes_read,
        held_share: whole.held_share(input),
        column_share: column_share(columns, &input.table.schema, bytes_read / rows_read.max(1.0)),
        indexes: input.table.indexes.len(),
        returned_share: (returned / (column_count as f64).max(1.0)).min(1.0),
    }
}

/// The share of a row of `row_bytes` bytes of `table` that is in the `changed` columns: columns without a width of
/// their own share what the others leave.
fn column_share(changed: &SchemaRef, table: &TableSchema, row_bytes: f64) -> f64 {
    let width = |data_type: &DataType| data_type.primitive_width().map(|width| width as f64);
    let arrow = table.arrow();
    let fixed: f64 = arrow.fields().iter().filter_map(|field| width(field.data_type())).sum();
    let others = arrow.fields().iter().filter(|field| width(field.data_type()).is_none());
    let left = ((row_bytes - fixed).max(0.0) / others.count().max(1) as f64).max(1.0);
    let bytes = |data_type: &DataType| width(data_type).unwrap_or(left);
    let all: f64 = arrow.fields().iter().map(|field| bytes(field.data_type())).sum();
    let own: f64 = changed.fields().iter().map(|field| bytes(field.data_type())).sum();
    (own / all.max(1.0)).min(1.0)
}

impl ChangingQuery {
    /// `plan`, over what `whole` reads, with the root that changes rows of a table of `column_count` columns. None: it
    /// cannot have it.
    pub(super) fn over(
        (whole, plan): (WholeFragment, Arc<dyn ExecutionPlan>),
        mut changed: ChangedColumns,
        checked: &CheckedRows,
        column_count: usize,
    ) -> Result<Option<Self>> {
        let columns = changed.columns.columns.len();
        let Some((rows, returned)) = conformed(&plan, checked)? else { return Ok(None) };
        changed.returned = returned;
        let Ok(plan) = ChangePagesExec::new(Arc::clone(&rows), changed.clone()) else {
            return Ok(None);
        };
        let node = whole.with_root(Arc::new(plan));
        let rows = (rows, changed);
        Ok(Some(Self { whole, node, rows, columns, column_count, beside: None, found: None }))
    }

    /// The same over so many rows that the host has found, with columns `beside` them of other tables; `memory` is
    /// charged for them.
    pub(super) fn of_found(
        self,
        row_count: usize,
        beside: Option<SchemaRef>,
        memory: Option<MemoryReservation>,
    ) -> Self {
        Self { beside, found: Some((row_count, memory)), ..self }
    }

    /// The number of the rows that the host has found for it; None: it finds them itself.
    pub fn found(&self) -> Option<usize> {
        self.found.as_ref().map(|(count, _)| *count)
    }

    /// Rows that are expected to change.
    pub fn row_estimate(&self) -> f64 {
        let expected = || self.whole.planned().row_estimate();
        self.found().map_or_else(expected, |count| count as f64)
    }

    /// The returned columns of other tables, which come last; None: there are none.
    pub fn beside(&self) -> Option<&SchemaRef> {
        self.beside.as_ref()
    }

    /// The device of the tablet.
    pub fn device(&self) -> &Arc<Device> {
        self.whole.device()
    }

    /// The fragment, for EXPLAIN; with `to_lock`, as it locks rows.
    ///
    /// # Errors
    /// Those of making it.
    pub fn shown(&self, to_lock: Option<RowsToLock>) -> Result<Arc<dyn ExecutionPlan>> {
        let node = match to_lock {
            Some(to_lock) => self.locking(to_lock)?,
            None => self.whole.with_root(Arc::clone(self.node.device_plan())),
        };
        Ok(Arc::new(node))
    }

    /// What the planner knows of the rows.
    pub fn estimates(&self) -> PlanEstimates {
        self.whole.planned().context.estimates()
    }

    /// What it costs to change the rows in either way. Figures of the device that are not known are assumed.
    ///
    /// # Errors
    /// Those of a device that is not attached.
    pub async fn cost(&self) -> Result<UpdateCost> {
        let rows = (self.column_count, self.row_estimate());
        let changed = bulk_change(&self.whole, &self.rows.1, rows);
        Ok(UpdateCost::of(&changed, &self.whole.profile().await?))
    }

    /// Runs the fragment, which writes into space of `claim`. None: a value is refused, or a page cannot have a
    /// version; the statement is to make its rows itself.
    ///
    /// # Errors
    /// Those of the statement's expressions, of the link and of the device.
    pub async fn run(&self, claim: &Arc<Claim>) -> Result<Option<Changes>> {
        let task = Arc::new(self.whole.task()?);
        let prepared = WholeFragment::prepared(&self.node, &task).await?;
        if let Some(changes) = self.on_device((&self.node, &prepared), claim, None, &task).await? {
            return Ok(Some(changes));
        }
        let inputs = prepared.inputs(self.whole.part())?;
        let pages = claimed_pages(claim);
        let (broadcasts, sink) = (prepared.rows.inputs.clone(), Some(as_sink(&pages)));
        let statement = &self.node.context;
        let progress = &statement.settings().client.progress;
        let context = statement.writing_context_of(&inputs, None, broadcasts, sink, progress)?;
        let stream = prepared.run_here(Arc::new(context), &task, statement.stop())?;
        let rows = self.collected(stream).await;
        pages.close().await?;
        match rows {
            Ok(rows) => Ok(rows.map(|rows| Changes { rows, space: None })),
            Err(error) if is_refused(&error) => Ok(None),
            Err(error) => Err(Error::from(error)),
        }
    }

    /// The rows of `stream`; None: these are more than the host takes.
    async fn collected(
        &self,
        mut stream: SendableRecordBatchStream,
    ) -> Result<Option<Vec<RecordBatch>>, DataFusionError> {
        let bytes_max = self.whole.query_memory_max();
        let (mut rows, mut bytes) = (Vec::new(), 0);
        while let Some(batch) = stream.try_next().await? {
            bytes += batch_bytes(&batch);
            if bytes > bytes_max {
                return Ok(None);
            }
            rows.push(batch);
        }
        Ok(Some(rows))
    }

    /// Runs the fragment with `to_lock` below its root, as part of the transaction of `job`, on the device. None: that
    /// refuses.
    ///
    /// # Errors
    /// Those of the statement's locks, of the link and of the device.
    pub async fn run_locking(
        &self,
        claim: &Arc<Claim>,
        to_lock: RowsToLock,
        job: &Arc<LockingJob>,
    ) -> Result<Option<Changes>> {
        let node = self.locking(to_lock)?;
        let task = Arc::new(self.whole.task()?);
        let prepared = WholeFragment::prepared(&node, &task).await?;
        self.on_device((&node, &prepared), claim, Some(job), &task).await
    }

    fn locking(&self, to_lock: RowsToLock) -> Result<FragmentExec> {
        let (rows, changed) = &self.rows;
        let rows = Arc::new(LockRowsExec::new(Arc::clone(rows), to_lock)?);
        let plan = Arc::new(ChangePagesExec::new(rows, changed.clone())?);
        Ok(self.whole.with_root(plan))
    }

    /// Whether it may run on the device.
    pub fn is_on_device(&self) -> bool {
        self.whole.is_on_device()
    }

    /// The figures of its runs on the device since they were asked for last.
    pub fn take_figures(&self) -> Vec<FragmentFigures> {
        self.whole.take_figures()
    }

    /// None: it does not run there.
    async fn on_device(
        &self,
        fragment: (&FragmentExec, &PreparedFragment),
        claim: &Arc<Claim>,
        job: Option<&Arc<LockingJob>>,
        task: &TaskContext,
    ) -> Result<Option<Changes>> {
        let blocks = |morsels: &[Morsel]| self.blocks(morsels);
        let reported = self.whole.on_device(fragment, (claim, job), blocks, task).await?;
        Ok(reported.map(|Reported { rows, space }| Changes { rows, space: Some(space) }))
    }

    /// Blocks that page versions of all of `morsels` are expected to fill.
    fn blocks(&self, morsels: &[Morsel]) -> u64 {
        let pages = morsels.iter().flat_map(|morsel| &morsel.pages);
        let share = self.columns as u64;
        let all = (self.column_count as u64).max(1);
        let of_page = |blocks: u64| blocks * share * 2 / all + HEADER_BLOCKS + share;
        let inputs = &self.whole.part().inputs;
        let planned = inputs.last().map_or(0, |(_, input)| input.input.bytes_left());
        let whole = planned / BLOCK_SIZE as u64;
        let own: u64 = pages.map(|page| of_page(u64::from(page.page.extent.block_count))).sum();
        own.max(of_page(whole)) + SLACK_BLOCKS
    }
}
