//! Writes sorted entries as a run of an index: entries in, a row for each written page out.
//!
//! It is the root of a fragment that builds or merges runs. Its pages go to the context's [`PageSink`], which knows the
//! space they may use. The output is all that the host needs to name them ([`super::placed_run`]), and means nothing
//! before its last row. Until the host commits, nothing refers to what was written.
//!
//! Invariant: memory is a few pages and the filter's hashes, out of the fragment's budget.

use std::fmt;
use std::sync::Arc;

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::UInt64Type;
use cleave_store::index::filter::FILTER_KEYS_MAX;
use cleave_store::{EncodedPage, KeyBlock, RunWriter, SegmentRef};
use datafusion_common::tree_node::TreeNodeRecursion;
use datafusion_common::{DataFusionError, Result, plan_err};
use datafusion_execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion_execution::{SendableRecordBatchStream, TaskContext};
use datafusion_physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion_physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion_physical_plan::metrics::{
    BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet, RecordOutput,
};
use datafusion_physical_plan::stream::RecordBatchStreamAdapter;
use datafusion_physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties,
};
use futures::{StreamExt, stream};

use super::merge_runs_exec::entry_schema;
use super::placed_run::{PlacedRows, placed_schema};
use super::table_scan_exec::scan_page::external;
use crate::fragment::FragmentContext;
use crate::page_sink::PageSink;

/// Pages under construction, and on their way to media.
const WRITER_BYTES: usize = 768 << 10;
/// Bytes of a key in the filter while it is built, growth included.
const FILTER_KEY_BYTES: usize = 16;
/// Pages reported in one batch.
const BATCH_PAGE_COUNT: usize = 256;

/// Writes a run; see the [module](self).
#[derive(Debug)]
pub struct WriteRunExec {
    entries: Arc<dyn ExecutionPlan>,
    segment: SegmentRef,
    unique: bool,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl WriteRunExec {
    /// Writes `entries`, sorted keys and their rows, as the run `segment` of an index that is `unique` or not.
    ///
    /// # Errors
    /// For an input with other columns or several partitions.
    pub fn new(entries: Arc<dyn ExecutionPlan>, segment: SegmentRef, unique: bool) -> Result<Self> {
        let schema = entries.schema();
        let types = schema.fields().iter().map(|field| field.data_type());
        if !types.eq(entry_schema().fields().iter().map(|field| field.data_type())) {
            return plan_err!("a run is made of keys and rows, and not of {schema}");
        }
        let partitions = entries.properties().output_partitioning().partition_count();
        if partitions != 1 {
            return plan_err!("a run is written from one sorted stream, and not from {partitions}");
        }
        let properties = PlanProperties::new(
            EquivalenceProperties::new(placed_schema()),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        let metrics = ExecutionPlanMetricsSet::new();
        Ok(Self { entries, segment, unique, properties: Arc::new(properties), metrics })
    }

    /// The run.
    pub fn segment(&self) -> SegmentRef {
        self.segment
    }

    /// Whether its index is unique: equal values are one key.
    pub fn is_unique(&self) -> bool {
        self.unique
    }
}

/// A run being written.
struct Writing {
    entries: SendableRecordBatchStream,
    /// None once the run has ended.
    writer: Option<RunWriter>,
    sink: Arc<dyn PageSink>,
    rows: PlacedRows,
    baseline: BaselineMetrics,
    memory: MemoryReservation,
}

impl Writing {
    /// The next rows; None after the last.
    async fn next(&mut self) -> Result<Option<RecordBatch>> {
        while let Some(mut writer) = self.writer.take() {
            let Some(batch) = self.entries.next().await else {
                let entry_count = writer.entry_count();
                let end = {
                    let _timer = self.baseline.elapsed_compute().timer();
                    writer.finish().map_err(external)?
                };
                self.place(end.pages).await?;
                self.sink.finish().await?;
                self.rows.end(entry_count, end.filter);
                break;
            };
            let block = block_of(&batch?)?;
            let pages = {
                let _timer = self.baseline.elapsed_compute().timer();
                writer.push_block(&block).map_err(external)?
            };
            let keys = usize::try_from(writer.entry_count()).unwrap_or(usize::MAX);
            let filter_bytes = keys.min(FILTER_KEYS_MAX) * FILTER_KEY_BYTES;
            self.memory.try_resize(WRITER_BYTES + filter_bytes)?;
            self.place(pages).await?;
            self.writer = Some(writer);
            if self.rows.len() >= BATCH_PAGE_COUNT {
                break;
            }
        }
        if self.rows.len() == 0 {
            return Ok(None);
        }
        Ok(Some(self.rows.take()?.record_output(&self.baseline)))
    }

    async fn place(&mut self, pages: Vec<EncodedPage>) -> Result<()> {
        for page in pages {
            let zones = page.zones.clone();
            let placed = self.sink.push(page).await?;
            self.rows.push(&placed, &zones)?;
        }
        Ok(())
    }
}

fn block_of(batch: &RecordBatch) -> Result<KeyBlock> {
    let block = match batch.columns() {
        [keys, vids] if keys.null_count() == 0 && vids.null_count() == 0 => {
            keys.as_binary_opt::<i32>().cloned().zip(vids.as_primitive_opt::<UInt64Type>().cloned())
        }
        _ => None,
    };
    let (keys, vids) = block
        .ok_or_else(|| DataFusionError::Internal("an index entry without key or row".into()))?;
    Ok(KeyBlock { keys, vids })
}

impl DisplayAs for WriteRunExec {
    fn fmt_as(&self, _kind: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SegmentRef { table_id, segment, .. } = self.segment;
        write!(f, "WriteRunExec: table={table_id}, run={segment}, unique={}", self.unique)
    }
}

impl ExecutionPlan for WriteRunExec {
    fn name(&self) -> &'static str {
        "WriteRunExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.entries]
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
            (Some(entries), None) => Ok(Arc::new(Self::new(entries, self.segment, self.unique)?)),
            _ => plan_err!("a run is written from one input"),
        }
    }

    fn execute(
        &self,
        partition: usize,
        task: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let sink = FragmentContext::of(&task)?.sink()?;
        let memory = MemoryConsumer::new("writing an index run").register(task.memory_pool());
        memory.try_grow(WRITER_BYTES)?;
        let writing = Writing {
            entries: self.entries.execute(partition, task)?,
            writer: Some(RunWriter::new(self.segment, 0, self.unique).map_err(external)?),
            sink,
            rows: PlacedRows::default(),
            baseline: BaselineMetrics::new(&self.metrics, partition),
            memory,
        };
        let batches = stream::try_unfold(writing, |mut writing| async {
            let batch = writing.next().await?;
            Ok(batch.map(|batch| (batch, writing)))
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(placed_schema(), Box::pin(batches))))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}
