//! Merges sorted runs of an index: an index input in, its entries in key order out.
//!
//! Rows are `key` (bytea) and `vid`. Invariants: keys ascend strictly, so a run that is not sorted is an error. A key
//! in two runs is an error too, unless rows may have reused keys of dead rows; then the newest entry is kept. Entries
//! of rows that are named as gone are left out. Memory is a few pages of each run, out of the fragment's budget, or one
//! page of each where the budget is small.

use std::fmt;
use std::sync::Arc;

use arrow::array::{BooleanArray, RecordBatch};
use arrow::compute::filter_record_batch;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use cleave_store::{KeyBlock, KeyMerge, MergeSource, PageCursor};
use datafusion_common::{DataFusionError, Result, plan_err};
use datafusion_execution::memory_pool::{MemoryConsumer, MemoryLimit, MemoryReservation};
use datafusion_execution::{SendableRecordBatchStream, TaskContext};
use datafusion_physical_expr::EquivalenceProperties;
use datafusion_physical_plan::coop::make_cooperative;
use datafusion_physical_plan::execution_plan::{Boundedness, EmissionType, SchedulingType};
use datafusion_physical_plan::metrics::{
    BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet, RecordOutput,
};
use datafusion_physical_plan::stream::RecordBatchStreamAdapter;
use datafusion_physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties,
};
use futures::stream;

use crate::fragment::FragmentContext;
use crate::index_input::IndexInput;
use crate::operators::leaf::leaf;

/// Most pages of a run that are read at once.
const PAGES_AT_ONCE_MAX: usize = 16;
/// Memory of a page while its entries are merged, as a multiple of its size: its bytes, and its decoded entries.
const PAGE_EXPANSION: usize = 3;
/// The merge may fill one part in so many of the memory with pages.
const MEMORY_SHARE: usize = 4;

/// Merges the runs of one index input; see the [module](self).
#[derive(Debug)]
pub struct MergeRunsExec {
    input: u32,
    table_id: u32,
    newest: bool,
    gone: Arc<[(u64, u64)]>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl MergeRunsExec {
    /// A merge of the runs of the index input `input`, which belong to the table `table_id`.
    pub fn new(input: u32, table_id: u32) -> Self {
        let properties = PlanProperties::new(
            EquivalenceProperties::new(entry_schema()),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Incremental,
            Boundedness::Bounded,
        )
        .with_scheduling_type(SchedulingType::Cooperative);
        let metrics = ExecutionPlanMetricsSet::new();
        Self {
            input,
            table_id,
            newest: false,
            gone: Arc::default(),
            properties: Arc::new(properties),
            metrics,
        }
    }

    /// The same merge, which keeps the newest row of equal keys.
    #[must_use]
    pub fn of_newest(self) -> Self {
        Self { newest: true, ..self }
    }

    /// The same merge, which leaves out the entries of rows in `gone`: half-open ranges of VIDs.
    ///
    /// # Errors
    /// For ranges that are empty or do not ascend.
    pub fn without(self, gone: Arc<[(u64, u64)]>) -> Result<Self> {
        let ends = std::iter::once(0).chain(gone.iter().map(|(_, end)| *end));
        if ends.zip(gone.iter()).any(|(end, (first, last))| *first < end || first >= last) {
            return plan_err!("rows to be left out of an index do not ascend");
        }
        Ok(Self { gone, ..self })
    }

    /// The rows whose entries are left out.
    pub fn gone(&self) -> &Arc<[(u64, u64)]> {
        &self.gone
    }

    /// Whether the newest of equal keys is kept; if not, they are an error.
    pub fn is_of_newest(&self) -> bool {
        self.newest
    }

    /// The index input.
    pub fn input(&self) -> u32 {
        self.input
    }

    /// The table.
    pub fn table_id(&self) -> u32 {
        self.table_id
    }
}

/// The columns of index entries: the key and the row.
pub fn entry_schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("key", DataType::Binary, false),
        Field::new("vid", DataType::UInt64, false),
    ]))
}

/// A running merge.
struct Merging {
    merge: KeyMerge,
    gone: Arc<[(u64, u64)]>,
    context: Arc<FragmentContext>,
    baseline: BaselineMetrics,
    _memory: MemoryReservation,
}

impl Merging {
    async fn next(&mut self) -> Result<Option<RecordBatch>> {
        let pages = &*self.context.pages;
        loop {
            let block = self.merge.next(pages).await;
            let block = block.map_err(|error| DataFusionError::External(Box::new(error)))?;
            let Some(KeyBlock { keys, vids }) = block else { return Ok(None) };
            let kept = (!self.gone.is_empty())
                .then(|| vids.values().iter().map(|vid| Some(!self.is_gone(*vid))))
                .map(BooleanArray::from_iter);
            let mut batch =
                RecordBatch::try_new(entry_schema(), vec![Arc::new(keys), Arc::new(vids)])?;
            if let Some(kept) = kept.filter(|kept| kept.has_false()) {
                batch = filter_record_batch(&batch, &kept)?;
            }
            if batch.num_rows() > 0 {
                return Ok(Some(batch.record_output(&self.baseline)));
            }
        }
    }

    fn is_gone(&self, vid: u64) -> bool {
        let behind = self.gone.partition_point(|(first, _)| *first <= vid);
        let stretch = behind.checked_sub(1).and_then(|place| self.gone.get(place));
        stretch.is_some_and(|(_, end)| vid < *end)
    }
}

/// Pages of each run that are read at once, and the memory for all of them.
fn pages_at_once(input: &IndexInput, limit: MemoryLimit) -> (usize, usize) {
    let page_bytes = input.pages().map(|page| page.extent.bytes()).max().unwrap_or(0);
    let all_bytes = page_bytes.saturating_mul(PAGE_EXPANSION).saturating_mul(input.runs.len());
    let room = match limit {
        MemoryLimit::Finite(bytes) => bytes / MEMORY_SHARE,
        _ => usize::MAX,
    };
    let at_once = (room / all_bytes.max(1)).clamp(1, PAGES_AT_ONCE_MAX);
    (at_once, all_bytes.saturating_mul(at_once))
}

impl DisplayAs for MergeRunsExec {
    fn fmt_as(&self, _kind: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MergeRunsExec: table={}, input={}", self.table_id, self.input)
    }
}

impl ExecutionPlan for MergeRunsExec {
    leaf!("MergeRunsExec");

    fn execute(
        &self,
        partition: usize,
        task: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let context = FragmentContext::of(&task)?;
        let input = context.index(self.input)?;
        if let Some(other) = input.runs.iter().find(|run| run.segment.table_id != self.table_id) {
            return Err(DataFusionError::Internal(format!(
                "{} belongs to table {}, the merge to table {}",
                other.segment.segment, other.segment.table_id, self.table_id
            )));
        }
        let pool = task.memory_pool();
        let memory = MemoryConsumer::new("merging index runs").register(pool);
        let (at_once, bytes) = pages_at_once(&input, pool.memory_limit());
        memory.try_grow(bytes.saturating_add(size_of_val(&*self.gone)))?;
        context.counters.add_morsel(input.pages().count() as u64, input.entry_count());
        let sources = input
            .runs
            .iter()
            .map(|run| PageCursor::new(run.segment, run.pages.clone(), at_once))
            .map(MergeSource::Pages);
        let sources = sources.collect();
        let merge = match self.newest {
            true => KeyMerge::of_newest(sources),
            false => KeyMerge::new(sources, true),
        };
        let merging = Merging {
            merge,
            gone: Arc::clone(&self.gone),
            context,
            baseline: BaselineMetrics::new(&self.metrics, partition),
            _memory: memory,
        };
        let batches = stream::try_unfold(merging, |mut merging| async {
            let batch = merging.next().await?;
            Ok(batch.map(|batch| (batch, merging)))
        });
        let entries = RecordBatchStreamAdapter::new(entry_schema(), Box::pin(batches));
        Ok(make_cooperative(Box::pin(entries)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}
