//! Writes rows as pages of a segment: rows and their VIDs in, an entry for each written page out.
//!
//! It is the root of a fragment that prunes a table: below it lies the scan of the pages that are to be rewritten,
//! which leaves out the dead rows. As with [an index run](super::write_run_exec), pages go to the context's
//! [`PageSink`], and nothing refers to them before the host commits. The host knows which rows should have come, and
//! counts them on the pages.
//!
//! Each partition of the rows makes pages of its own, numbered by [`page_numbers`]. The entries of all partitions are
//! one segment in the order of their page numbers, but not of their VIDs: partitions that share a list of morsels have
//! rows of each other's stretches between their own.
//!
//! Invariant: the VIDs of a partition ascend, or the fragment fails; memory is a page or two of each partition, out of
//! the fragment's budget.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use arrow::array::{Array, AsArray, BinaryBuilder, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, UInt64Type};
use arrow::error::ArrowError;
use cleave_store::{
    CommitColumn, EncodedPage, PageClass, PageEntry, PageKind, PageRef, SegmentRef, SegmentWriter,
    Versions, VidColumn, VidGaps, proto,
};
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
use prost::Message;

use super::table_scan_exec::scan_page::external;
use crate::fragment::FragmentContext;
use crate::page_sink::{PageSink, page_numbers};

/// Memory of a writer besides the rows that wait for their page.
const WRITER_BYTES: usize = 1 << 20;
/// Waiting rows, and the page that is made of them.
const COPIES: usize = 2;
/// Pages reported in one batch.
const BATCH_PAGE_COUNT: usize = 256;

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

/// The column of the result: entries of the segment's directory, encoded.
pub fn written_schema() -> SchemaRef {
    Arc::new(Schema::new(vec![Field::new("page", DataType::Binary, false)]))
}

/// Decodes the pages that a fragment reports to have placed.
///
/// # Errors
/// [`ArrowError::SchemaError`] or [`ArrowError::ParseError`] for rows that no [`WriteRowsExec`] made.
pub fn read_written(batches: &[RecordBatch]) -> Result<Vec<PageEntry>, ArrowError> {
    let malformed =
        |reason: String| ArrowError::ParseError(format!("a page that was placed: {reason}"));
    let mut pages = Vec::new();
    for batch in batches {
        let entries = batch.columns().first().and_then(|column| column.as_binary_opt::<i32>());
        let Some(entries) = entries.filter(|entries| entries.null_count() == 0) else {
            let message = format!("placed pages have other columns: {}", batch.schema());
            return Err(ArrowError::SchemaError(message));
        };
        for entry in entries.iter().flatten() {
            let entry = proto::PageEntry::decode(entry).map_err(|e| malformed(e.to_string()))?;
            pages.push(PageEntry::try_from(entry).map_err(|e| malformed(e.to_string()))?);
        }
    }
    Ok(pages)
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
    /// None once the rows have ended.
    writer: Option<SegmentWriter>,
    vid_last: Option<u64>,
    sink: Arc<dyn PageSink>,
    /// Overflow pages whose owner has not come yet, by page number.
    overflow: BTreeMap<u32, PageRef>,
    placed: BinaryBuilder,
    placed_count: usize,
    baseline: BaselineMetrics,
    memory: MemoryReservation,
    /// Bytes of the batches whose rows wait until their page is full.
    waiting_bytes: usize,
}

impl Writing {
    /// The next entries; None after the last.
    async fn next(&mut self) -> Result<Option<RecordBatch>> {
        while let Some(mut writer) = self.writer.take() {
            let Some(batch) = self.rows.next().await else {
                let pages = {
                    let _timer = self.baseline.elapsed_compute().timer();
                    writer.finish().map_err(external)?
                };
                self.place(pages).await?;
                self.sink.finish().await?;
                break;
            };
            let batch = batch?;
            let (rows, versions) = self.split(&batch)?;
            self.waiting_bytes = self.waiting_bytes.saturating_add(batch.get_array_memory_size());
            self.memory.try_resize(WRITER_BYTES + self.waiting_bytes.saturating_mul(COPIES))?;
            let pages = {
                let _timer = self.baseline.elapsed_compute().timer();
                writer.push_versions(&rows, versions).map_err(external)?
            };
            if !pages.is_empty() {
                // The remaining rows came with the last batch.
                self.waiting_bytes = batch.get_array_memory_size();
            }
            self.place(pages).await?;
            self.writer = Some(writer);
            if self.placed_count >= BATCH_PAGE_COUNT {
                break;
            }
        }
        if self.placed_count == 0 {
            return Ok(None);
        }
        self.placed_count = 0;
        let entries = Arc::new(self.placed.finish());
        let batch = RecordBatch::try_new(written_schema(), vec![entries])?;
        Ok(Some(batch.record_output(&self.baseline)))
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

    async fn place(&mut self, pages: Vec<EncodedPage>) -> Result<()> {
        for page in pages {
            let (kind, vid_first, zones) = (page.kind, page.vid_first, page.zones.clone());
            let (first, count) = page.overflow_first_count;
            let placed = self.sink.push(page).await?;
            if kind == PageKind::Overflow {
                self.overflow.insert(placed.page, placed);
                continue;
            }
            let numbers = first..first.saturating_add(count);
            let overflow = numbers.filter_map(|number| self.overflow.remove(&number)).collect();
            let entry = PageEntry {
                page: placed,
                vid_first,
                gaps: VidGaps::none(),
                overflow,
                shared: Vec::new(),
                zones,
            };
            self.placed.append_value(proto::PageEntry::from(&entry).encode_to_vec());
            self.placed_count += 1;
        }
        Ok(())
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
        let memory = MemoryConsumer::new("writing pages").register(task.memory_pool());
        memory.try_grow(WRITER_BYTES)?;
        let fields =
            self.rows.schema().fields().iter().take(columns.len()).cloned().collect::<Vec<_>>();
        let schema = Arc::new(Schema::new(fields));
        let partitions = self.properties.output_partitioning().partition_count();
        let numbers = page_numbers(partition, partitions);
        let writer = SegmentWriter::of_columns(*segment, &schema, columns, *class, numbers.start);
        let writing = Writing {
            rows: self.rows.execute(partition, task)?,
            writer: Some(writer.map_err(external)?.with_pages_below(numbers.end)),
            vid_last: None,
            sink,
            overflow: BTreeMap::new(),
            placed: BinaryBuilder::new(),
            placed_count: 0,
            baseline: BaselineMetrics::new(&self.metrics, partition),
            memory,
            waiting_bytes: 0,
        };
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
