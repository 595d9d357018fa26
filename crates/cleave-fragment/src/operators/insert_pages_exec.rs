//! The root of a fragment that inserts the rows of a query: rows of the table in, an entry for each written page out.
//!
//! ```text
//!   InsertPagesExec: table=7, segment=12, columns=[id, price]        page │ page │ …
//!     ProjectionExec: id, price, price >= 0                          columns of the table, then checks
//!       TableScanExec: order [id, price]
//! ```
//!
//! 1. Rows come as the table stores them. What a column refuses fails the fragment with
//!    [`RefusedValue`](super::new_values::RefusedValue), a broken check with
//!    [`RefusedRow`](super::new_values::RefusedRow): the host then makes the same rows, and names column and value.
//! 2. They are numbered from [`InsertedRows::vid_first`] on, as they come, and written as the pages of one bulk segment
//!    ([`page_writing`](super::page_writing)), with their long values.
//! 3. The report, which [`read_written`](super::page_writing::read_written) reads, has the pages with their zones. The
//!    host checks it, makes a segment of the pages, and reads the columns of indexes back for the keys.
//!
//! Where they replace rows, the input is a [`ChangePagesExec`] that writes nothing: its report of the rows that die
//! comes out beside the pages, and the rows that it returns are the new ones.
//!
//! ```text
//!   InsertPagesExec: table=7, segment=12, columns=[id, price], replacing rows      page │ ended
//!     ChangePagesExec: columns=[], returning rows                                  ended │ vid │ id │ price │ check
//!       ProjectionExec: vid, id + 1, price, price >= 0
//! ```
//!
//! Invariants: pages have VIDs in their headers, so the table is the transaction's own, and the rows come in one
//! partition. Memory is a page or two, out of the fragment's budget. Source: Update NDP, section 4, and
//! `docs/design/versions-and-commit.md`.

use std::fmt;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, RecordBatch, new_empty_array, new_null_array};
use arrow::compute::{concat, filter, is_not_null};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::error::ArrowError;
use cleave_store::{
    ColumnRef, CommitColumn, PageClass, Projection, SegmentRef, SegmentWriter, Versions, VidColumn,
};
use datafusion_common::tree_node::TreeNodeRecursion;
use datafusion_common::{Result, plan_err};
use datafusion_execution::{SendableRecordBatchStream, TaskContext};
use datafusion_physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion_physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion_physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet};
use datafusion_physical_plan::stream::RecordBatchStreamAdapter;
use datafusion_physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties,
};
use futures::{StreamExt, stream};

use super::change_pages_exec::{ChangePagesExec, changed_schema};
use super::new_values::{check_rows, check_values, user_id};
use super::page_writing::{PageWriting, written_schema};
use super::table_scan_exec::scan_page::external;
use crate::fragment::FragmentContext;

/// Where and as what rows are inserted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InsertedRows {
    /// The segment of their pages.
    pub segment: SegmentRef,
    /// The class of these pages.
    pub class: PageClass,
    /// The VID of the first row.
    pub vid_first: u64,
    /// All columns of the table, nullable or not as it has them.
    pub columns: Projection,
    /// Whether they replace rows.
    pub replaces: bool,
}

/// The columns of the result: pages that were written, and pages with rows that end; each row has one.
fn replacing_schema() -> SchemaRef {
    let page = Field::new("page", DataType::Binary, true);
    let ended = Field::new("ended", DataType::Binary, true);
    Arc::new(Schema::new(vec![page, ended]))
}

/// The pages with rows that end which a fragment reports, as [`read_changed`](super::change_pages_exec::read_changed)
/// reads them, and what it reports besides.
///
/// # Errors
/// [`ArrowError::SchemaError`] for rows that no such [`InsertPagesExec`] made.
pub fn read_replaced(
    batches: &[RecordBatch],
) -> Result<(Vec<RecordBatch>, Vec<RecordBatch>), ArrowError> {
    let (mut ended, mut written) = (Vec::new(), Vec::new());
    for batch in batches {
        let [pages, of_ended] = batch.columns() else {
            let message = format!("replaced rows have other columns: {}", batch.schema());
            return Err(ArrowError::SchemaError(message));
        };
        for (own, kept, schema) in
            [(pages, &mut written, written_schema()), (of_ended, &mut ended, changed_schema())]
        {
            let own = filter(own, &is_not_null(own)?)?;
            if !own.is_empty() {
                kept.push(RecordBatch::try_new(schema, vec![own])?);
            }
        }
    }
    Ok((ended, written))
}

/// See the [module](self).
#[derive(Debug)]
pub struct InsertPagesExec {
    rows: Arc<dyn ExecutionPlan>,
    inserted: InsertedRows,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl InsertPagesExec {
    /// Inserts `rows`, which have the columns of the table, and behind them say of each check whether the row keeps it.
    /// NULL is no violation.
    ///
    /// # Errors
    /// For an input with other columns, or of several partitions.
    pub fn new(rows: Arc<dyn ExecutionPlan>, inserted: InsertedRows) -> Result<Self> {
        let schema = rows.schema();
        let types = || schema.fields().iter().map(|field| field.data_type());
        let columns = &inserted.columns;
        // In front of the rows are the report and their VIDs.
        let first = if inserted.replaces { 2 } else { 0 };
        if inserted.replaces && rows.downcast_ref::<ChangePagesExec>().is_none_or(writes) {
            return plan_err!("the rows that are replaced come from {}", rows.name());
        }
        let wanted = columns.schema.fields().iter().map(|field| field.data_type());
        let count = columns.columns.len();
        let fits = types().skip(first).take(count).eq(wanted)
            && types().skip(first + count).all(|of_check| *of_check == DataType::Boolean);
        let is_whole =
            count > 0 && columns.columns.iter().all(|column| matches!(column, ColumnRef::User(_)));
        if !fits || !is_whole {
            return plan_err!("rows to be inserted have the table's columns, and not {schema}");
        }
        let partitions = rows.properties().output_partitioning().partition_count();
        if partitions != 1 {
            return plan_err!("rows to be inserted come in {partitions} partitions");
        }
        let properties = PlanProperties::new(
            EquivalenceProperties::new(match inserted.replaces {
                true => replacing_schema(),
                false => written_schema(),
            }),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        let metrics = ExecutionPlanMetricsSet::new();
        Ok(Self { rows, inserted, properties: Arc::new(properties), metrics })
    }

    /// Where and as what rows are inserted.
    pub fn inserted(&self) -> &InsertedRows {
        &self.inserted
    }
}

/// Whether it writes pages, or returns no rows.
fn writes(changing: &ChangePagesExec) -> bool {
    changing.writes_pages() || changing.changed().returned.is_none()
}

/// The pages being written.
struct Inserting {
    rows: SendableRecordBatchStream,
    pages: PageWriting,
    inserted: InsertedRows,
    vid_next: u64,
    /// Pages with rows that end, to be reported.
    ended: Vec<ArrayRef>,
}

impl Inserting {
    /// The next entries; None after the last.
    async fn next(&mut self) -> Result<Option<RecordBatch>> {
        while self.pages.goes_on() {
            match self.rows.next().await.transpose()? {
                Some(batch) => {
                    let Some(batch) = self.without_report(batch)? else { continue };
                    let rows = self.checked(&batch)?;
                    let first = self.vid_next;
                    self.vid_next = first.saturating_add(rows.num_rows() as u64);
                    let vid = VidColumn::Sequence { first };
                    let versions = Versions { vid, commit: CommitColumn::Segment };
                    self.pages.push(&rows, versions, batch.get_array_memory_size()).await?;
                }
                None => self.pages.finish().await?,
            }
        }
        let pages = self.pages.report()?;
        if !self.inserted.replaces {
            return Ok(pages);
        }
        let ended: Vec<&dyn Array> = self.ended.iter().map(AsRef::as_ref).collect();
        let ended = match ended.as_slice() {
            [] => new_empty_array(&DataType::Binary),
            ended => concat(ended)?,
        };
        self.ended.clear();
        let pages = pages.map(|batch| Arc::clone(batch.column(0)));
        let pages = pages.unwrap_or_else(|| new_empty_array(&DataType::Binary));
        if pages.len() + ended.len() == 0 {
            return Ok(None);
        }
        let nulls = |count| new_null_array(&DataType::Binary, count);
        let columns = vec![
            concat(&[pages.as_ref(), nulls(ended.len()).as_ref()])?,
            concat(&[nulls(pages.len()).as_ref(), ended.as_ref()])?,
        ];
        Ok(Some(RecordBatch::try_new(replacing_schema(), columns)?))
    }

    /// The rows of `batch` without what comes in front of them; None: it is a report of rows that end.
    fn without_report(&mut self, batch: RecordBatch) -> Result<Option<RecordBatch>> {
        if !self.inserted.replaces {
            return Ok(Some(batch));
        }
        let report = batch.column(0);
        if report.null_count() < report.len() {
            self.ended.push(Arc::clone(report));
            return Ok(None);
        }
        let columns: Vec<usize> = (2..batch.num_columns()).collect();
        Ok(Some(batch.project(&columns)?))
    }

    /// The rows of `batch` without the checks, which they keep.
    fn checked(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        let columns = &self.inserted.columns;
        let count = columns.columns.len();
        check_rows(batch, count..batch.num_columns())?;
        let rows = batch.project(&(0..count).collect::<Vec<_>>())?;
        check_values(&rows, (&columns.columns, columns.schema.fields()))?;
        Ok(rows)
    }
}

impl DisplayAs for InsertPagesExec {
    fn fmt_as(&self, _kind: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let InsertedRows { segment, columns, .. } = &self.inserted;
        let names = columns.schema.fields().iter().map(|field| field.name().as_str());
        let names = names.collect::<Vec<_>>().join(", ");
        write!(f, "InsertPagesExec: table={}, columns=[{names}]", segment.table_id)?;
        match self.inserted.replaces {
            true => write!(f, ", replacing rows"),
            false => Ok(()),
        }
    }
}

impl ExecutionPlan for InsertPagesExec {
    fn name(&self) -> &'static str {
        "InsertPagesExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.rows]
    }

    fn apply_expressions(
        &self,
        _visit: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        match (children.pop(), children.pop()) {
            (Some(rows), None) => Ok(Arc::new(Self::new(rows, self.inserted.clone())?)),
            _ => plan_err!("pages are written from one input"),
        }
    }

    fn execute(
        &self,
        partition: usize,
        task: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let sink = FragmentContext::of(&task)?.sink()?;
        let InsertedRows { segment, class, vid_first, columns, .. } = &self.inserted;
        let ids: Vec<u32> = columns.columns.iter().filter_map(user_id).collect();
        let writer = SegmentWriter::of_columns(*segment, &columns.schema, &ids, *class, 0);
        let writer = writer.map_err(external)?;
        let baseline = BaselineMetrics::new(&self.metrics, partition);
        let pages = PageWriting::new(writer, sink, baseline, &task)?;
        let rows = self.rows.execute(partition, task)?;
        let (inserted, vid_next) = (self.inserted.clone(), *vid_first);
        let inserting = Inserting { rows, pages, inserted, vid_next, ended: Vec::new() };
        let batches = stream::try_unfold(inserting, |mut inserting| async {
            let batch = inserting.next().await?;
            Ok(batch.map(|batch| (batch, inserting)))
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), Box::pin(batches))))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}

#[cfg(test)]
mod tests;
