//! Writes rows as pages of a segment: rows and their VIDs in, an entry for each written page out.
//!
//! It is the root of a fragment that prunes a table: below it lies the scan of the pages that are to be rewritten,
//! which leaves out the dead rows. As with [an index run](super::write_run_exec), pages go to the context's
//! [`PageSink`](crate::page_sink::PageSink), and nothing refers to them before the host commits. The host knows which
//! rows should have come, and counts them on the pages.
//!
//! Each partition of the rows makes pages of its own, numbered by [`page_numbers`]. The entries of all partitions are
//! one segment in the order of their page numbers, but not of their VIDs: partitions that share a list of morsels have
//! rows of each other's stretches between their own.
//!
//! Invariant: the VIDs of a partition ascend, or the fragment fails; memory is a page or two of each partition, out of
//! the fragment's budget.

use std::fmt;
use std::sync::Arc;

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::{DataType, Schema, UInt64Type};
use cleave_store::{CommitColumn, PageClass, SegmentRef, SegmentWriter, Versions, VidColumn};
use datafusion_common::tree_node::TreeNodeRecursion;
use datafusion_common::{DataFusionError, Result, plan_err};
use datafusion_execution::{SendableRecordBatchStream, TaskContext};
use datafusion_physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion_physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion_physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet};
use datafusion_physical_plan::stream::RecordBatchStreamAdapter;
use datafusion_physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties,
};
use futures::{StreamExt, stream};

use super::page_writing::{PageWriting, written_schema};
use super::table_scan_exec::scan_page::external;
use crate::fragment::FragmentContext;
use crate::page_sink::page_numbers;

/// The properties of the written segment that are not in the rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WrittenSegment {
    /// The segment.
    pub segment: SegmentRef,
    /// The class of its pages.
    pub class: PageClass,
    /// The stable ids of the columns, in the order of the rows.
    pub columns: Vec<u32>,
}

/// Writes rows; see the [module](self).
#[derive(Debug)]
pub struct WriteRowsExec {
    rows: Arc<dyn ExecutionPlan>,
    written: WrittenSegment,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl WriteRowsExec {
    /// Writes `rows`, whose last column has their VIDs, which ascend in each partition.
    ///
    /// # Errors
    /// For an input with other columns.
    pub fn new(rows: Arc<dyn ExecutionPlan>, written: WrittenSegment) -> Result<Self> {
        let schema = rows.schema();
        let vids = schema.fields().last().map(|field| field.data_type());
        if vids != Some(&DataType::UInt64) || schema.fields().len() != written.columns.len() + 1 {
            return plan_err!("pages are made of columns and VIDs, and not of {schema}");
        }
        let partitions = rows.properties().output_partitioning().partition_count();
        let properties = PlanProperties::new(
            EquivalenceProperties::new(written_schema()),
            Partitioning::UnknownPartitioning(partitions),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        let metrics = ExecutionPlanMetricsSet::new();
        Ok(Self { rows, written, properties: Arc::new(properties), metrics })
    }

    /// The description of the written segment.
    pub fn written(&self) -> &WrittenSegment {
        &self.written
    }
}

/// The pages of one partition being written.
struct Writing {
    rows: SendableRecordBatchStream,
    pages: PageWriting,
    vid_last: Option<u64>,
}

impl Writing {
    /// The next entries; None after the last.
    async fn next(&mut self) -> Result<Option<RecordBatch>> {
        while self.pages.goes_on() {
            match self.rows.next().await.transpose()? {
                Some(batch) => {
                    let (rows, versions) = self.split(&batch)?;
                    self.pages.push(&rows, versions, batch.get_array_memory_size()).await?;
                }
                None => self.pages.finish().await?,
            }
        }
        self.pages.report()
    }

    /// The rows of `batch`, and their VIDs.
    fn split(&mut self, batch: &RecordBatch) -> Result<(RecordBatch, Versions)> {
        let mut rows = batch.clone();
        let vids = (batch.num_columns() > 0).then(|| rows.remove_column(batch.num_columns() - 1));
        let vids = vids.as_ref().and_then(|vids| vids.as_primitive_opt::<UInt64Type>());
        let Some(vids) = vids.filter(|vids| vids.null_count() == 0) else {
            return Err(DataFusionError::Internal("a row to be written without a VID".into()));
        };
        for vid in vids.values() {
            if self.vid_last.is_some_and(|last| last >= *vid) {
                let message = format!("the row {vid} came behind a later one");
                return Err(DataFusionError::Execution(message));
            }
            self.vid_last = Some(*vid);
        }
        let versions = Versions {
            vid: VidColumn::Each(vids.values().to_vec()),
            commit: CommitColumn::Segment,
        };
        Ok((rows, versions))
    }
}

impl DisplayAs for WriteRowsExec {
    fn fmt_as(&self, _kind: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SegmentRef { table_id, segment, .. } = self.written.segment;
        write!(f, "WriteRowsExec: table={table_id}, segment={segment}")
    }
}

impl ExecutionPlan for WriteRowsExec {
    fn name(&self) -> &'static str {
        "WriteRowsExec"
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
            (Some(rows), None) => Ok(Arc::new(Self::new(rows, self.written.clone())?)),
            _ => plan_err!("pages are written from one input"),
        }
    }

    fn execute(
        &self,
        partition: usize,
        task: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let sink = FragmentContext::of(&task)?.sink()?;
        let WrittenSegment { segment, class, columns } = &self.written;
        let fields =
            self.rows.schema().fields().iter().take(columns.len()).cloned().collect::<Vec<_>>();
        let schema = Arc::new(Schema::new(fields));
        let partitions = self.properties.output_partitioning().partition_count();
        let numbers = page_numbers(partition, partitions);
        let writer = SegmentWriter::of_columns(*segment, &schema, columns, *class, numbers.start);
        let writer = writer.map_err(external)?.with_pages_below(numbers.end);
        let baseline = BaselineMetrics::new(&self.metrics, partition);
        let pages = PageWriting::new(writer, sink, baseline, &task);
        let rows = self.rows.execute(partition, task)?;
        let writing = Writing { rows, pages, vid_last: None };
        let batches = stream::try_unfold(writing, |mut writing| async {
            let batch = writing.next().await?;
            Ok(batch.map(|batch| (batch, writing)))
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(written_schema(), Box::pin(batches))))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}

#[cfg(test)]
mod tests;
