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
//! Invariants: pages have VIDs in their headers, so the table is the transaction's own, and the rows come in one
//! partition. Memory is a page or two, out of the fragment's budget. Source: Update NDP, section 4, and
//! `docs/design/versions-and-commit.md`.

use std::fmt;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::DataType;
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
        let wanted = columns.schema.fields().iter().map(|field| field.data_type());
        let count = columns.columns.len();
        let fits = types().take(count).eq(wanted)
            && types().skip(count).all(|of_check| *of_check == DataType::Boolean);
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
            EquivalenceProperties::new(written_schema()),
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

/// The pages being written.
struct Inserting {
    rows: SendableRecordBatchStream,
    pages: PageWriting,
    inserted: InsertedRows,
    vid_next: u64,
}

impl Inserting {
    /// The next entries; None after the last.
    async fn next(&mut self) -> Result<Option<RecordBatch>> {
        while self.pages.goes_on() {
            match self.rows.next().await.transpose()? {
                Some(batch) => {
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
        self.pages.report()
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
        write!(f, "InsertPagesExec: table={}, columns=[{names}]", segment.table_id)
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
        let inserting = Inserting { rows, pages, inserted, vid_next };
        let batches = stream::try_unfold(inserting, |mut inserting| async {
            let batch = inserting.next().await?;
            Ok(batch.map(|batch| (batch, inserting)))
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(written_schema(), Box::pin(batches))))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}

#[cfg(test)]
mod tests;
