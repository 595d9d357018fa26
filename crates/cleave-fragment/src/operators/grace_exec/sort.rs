//! A sort whose rows need not fit in memory: sorted runs, merged (external merge sort).
//!
//! Rows are sorted as many as fit at a time, and each of these sorts is spilled as a run. Runs are merged, as many at
//! once as memory has frames for, until one merge of all that are left emits the rows. All spilling is done before the
//! first row: if space or memory runs out, the host can still run the fragment.

use std::collections::VecDeque;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion_common::{Result, internal_err};
use datafusion_execution::memory_pool::MemoryConsumer;
use datafusion_execution::{SendableRecordBatchStream, TaskContext};
use datafusion_physical_expr::LexOrdering;
use datafusion_physical_plan::ExecutionPlan;
use datafusion_physical_plan::memory::MemoryStream;
use datafusion_physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet};
use datafusion_physical_plan::sorts::sort::SortExec;
use datafusion_physical_plan::sorts::streaming_merge::StreamingMergeBuilder;
use futures::StreamExt;

use super::attempt::{Ground, Tried};
use super::buffered_rows::BufferedRows;
use super::divide::without_the_rest;
use super::given_exec::GivenExec;
use super::produced::Out;
use super::with_batch_size;
use crate::command::slot::batch_bytes;
use crate::spill_space::{FRAME_BYTES, RunsWriter, SpillRun};

/// The share of the operator's memory in rows that are sorted at once: they are there twice, and their keys once more.
const HELD_SHARE: usize = 4;
/// Fewest bytes of rows in a frame: two blocks.
const FRAME_BYTES_MIN: u64 = 8 << 10;
/// Frames that fit the operator's memory.
const FRAMES: u64 = 64;
/// What a merge holds of each run, in frames: the last batch and the next, decoded, which takes more than its rows, and
/// its keys.
const FRAMES_EACH: u64 = 6;
/// Most runs that are merged at once.
const MERGED_MAX: u64 = 64;

/// Sorts the rows of `input` as `operator` does.
pub(super) async fn run(
    operator: Arc<dyn ExecutionPlan>,
    ground: Ground,
    mut input: SendableRecordBatchStream,
    out: Out,
) -> Result<()> {
    let Some(planned) = operator.downcast_ref::<SortExec>() else {
        return internal_err!("{} is no sort", operator.name());
    };
    let frame_bytes = (ground.memory_bytes as u64 / FRAMES).clamp(FRAME_BYTES_MIN, FRAME_BYTES);
    let mut held = BufferedRows::new(&ground.pool, ground.memory_bytes / HELD_SHARE);
    let mut sorting = Sorting { order: planned.expr(), ground, frame_bytes };
    let mut runs = VecDeque::new();
    loop {
        let is_all = held.fill(&mut input).await?;
        let rows = held.take();
        if rows.is_empty() && !runs.is_empty() {
            break;
        }
        sorting.ground.task = with_batches_of(&sorting.ground.task, &rows, frame_bytes);
        let sort = sorting.sort_of(rows, input.schema())?;
        if is_all && runs.is_empty() {
            return match sorting.ground.attempt(sort, &out).await? {
                Tried::Done => Ok(()),
                Tried::TooLarge(error) => Err(error),
            };
        }
        let sorted = sort.execute(0, Arc::clone(&sorting.ground.task))?;
        runs.push_back(sorting.put_aside(sorted).await?);
        if is_all {
            break;
        }
    }
    drop(input);
    let merged_max = sorting.runs_at_once();
    while runs.len() > merged_max {
        // As few that the last merge has as many as it can.
        let count = merged_max.min(runs.len() - merged_max + 1);
        let merged = sorting.merge(runs.drain(..count), &ExecutionPlanMetricsSet::new())?;
        runs.push_back(sorting.put_aside(merged).await?);
    }
    let metrics = ExecutionPlanMetricsSet::new();
    let mut rows = sorting.merge(runs.drain(..), &metrics)?;
    sorting.ground.add_metrics(metrics.clone_inner());
    while let Some(batch) = rows.next().await {
        out.push(batch?).await;
    }
    Ok(())
}

struct Sorting<'a> {
    order: &'a LexOrdering,
    ground: Ground,
    frame_bytes: u64,
}

/// `task` whose batches of rows like `rows` are no larger than a frame.
fn with_batches_of(task: &TaskContext, rows: &[RecordBatch], frame_bytes: u64) -> Arc<TaskContext> {
    let count: usize = rows.iter().map(RecordBatch::num_rows).sum();
    let bytes: u64 = rows.iter().map(batch_bytes).sum();
    let fitting = frame_bytes.saturating_mul(count as u64) / bytes.max(1);
    let fitting = usize::try_from(fitting.max(1)).unwrap_or(usize::MAX);
    with_batch_size(task, fitting.min(task.session_config().batch_size()))
}

impl Sorting<'_> {
    fn runs_at_once(&self) -> usize {
        let fitting = self.ground.memory_bytes as u64 / self.frame_bytes / FRAMES_EACH;
        usize::try_from(fitting.clamp(2, MERGED_MAX)).unwrap_or(2)
    }

    fn sort_of(&self, rows: Vec<RecordBatch>, schema: SchemaRef) -> Result<Arc<dyn ExecutionPlan>> {
        let rows = MemoryStream::try_new(rows, schema, None)?;
        let input = GivenExec::over(Box::pin(rows), None);
        Ok(Arc::new(SortExec::new(self.order.clone(), input)))
    }

    /// The rows of `runs` in order.
    fn merge(
        &self,
        runs: impl Iterator<Item = Arc<SpillRun>>,
        metrics: &ExecutionPlanMetricsSet,
    ) -> Result<SendableRecordBatchStream> {
        let memory = MemoryConsumer::new("runs that are merged").register(&self.ground.pool);
        StreamingMergeBuilder::new()
            .with_streams(runs.map(|run| run.batches()).collect())
            .with_schema(Arc::clone(&self.ground.schema))
            .with_expressions(self.order)
            .with_metrics(BaselineMetrics::new(metrics, 0))
            .with_batch_size(self.ground.task.session_config().batch_size())
            .with_reservation(memory)
            .build()
    }

    /// Spills `sorted` as one run.
    async fn put_aside(&self, mut sorted: SendableRecordBatchStream) -> Result<Arc<SpillRun>> {
        let Ground { space, schema, pool, figures, .. } = &self.ground;
        // Each batch is a frame.
        let gathering_bytes = usize::try_from(self.frame_bytes).unwrap_or(usize::MAX);
        let mut writer =
            RunsWriter::new(space, schema, 1, (pool, gathering_bytes), figures.clone());
        while let Some(batch) = sorted.next().await {
            writer.push(0, without_the_rest(batch?)?).await?;
        }
        match writer.finish().await?.pop() {
            Some(run) => Ok(run),
            None => internal_err!("a writer of one run has none"),
        }
    }
}
