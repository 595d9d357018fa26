//! A sort whose rows need not fit in memory: sorted runs, merged (external merge sort).
//!
//! Rows are sorted as many as fit at a time, and each of these sorts is spilled as a run. Runs are merged, as many at
//! once as memory has frames for, until one merge of all that are left emits the rows. Lanes sort and merge side by
//! side, but for the last merge. Of a top-k, no run has more rows than are wanted. All spilling is done before the
//! first row: if space or memory runs out, the host can still run the fragment.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};

use arrow::array::{RecordBatch, UInt64Array};
use arrow::compute::take_record_batch;
use arrow::datatypes::SchemaRef;
use datafusion_common::utils::memory::get_record_batch_memory_size;
use datafusion_common::{Result, internal_datafusion_err, internal_err};
use datafusion_execution::SendableRecordBatchStream;
use datafusion_execution::memory_pool::MemoryConsumer;
use datafusion_physical_expr::LexOrdering;
use datafusion_physical_plan::ExecutionPlan;
use datafusion_physical_plan::memory::MemoryStream;
use datafusion_physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet};
use datafusion_physical_plan::sorts::sort::SortExec;
use datafusion_physical_plan::sorts::streaming_merge::StreamingMergeBuilder;
use futures::StreamExt;
use tokio::sync::{Semaphore, SemaphorePermit};

use super::attempt::{Ground, Tried};
use super::buffered_rows::BufferedRows;
use super::divide::without_the_rest;
use super::given_exec::GivenExec;
use super::lanes::{Out, locked};
use super::with_batch_size;
use crate::command::slot::batch_bytes;
use crate::spill_space::{FRAME_BYTES, RunsWriter, SpillRun};

/// The share of the operator's memory in rows that are sorted at once: they are there twice, and their keys once more.
const HELD_SHARE: usize = 4;
/// Fewest bytes of rows in a frame: two blocks.
const FRAME_BYTES_MIN: u64 = 8 << 10;
/// Frames that fit a lane's share of memory.
const FRAMES: u64 = 64;
/// What a merge holds of each run, in frames: the last batch and the next, decoded, which takes more than its rows, and
/// its keys.
const FRAMES_EACH: u64 = 6;
/// Most runs that are merged at once.
const MERGED_MAX: u64 = 64;

/// What a sort needs for each byte of its rows.
const SORTED_BYTES: usize = 3;
/// Bytes that a permit to sort is for.
const PERMIT_BYTES: usize = 1 << 10;

/// What the lanes of a sort share.
pub(super) struct Shared {
    state: Mutex<State>,
    /// The memory of the operator, in permits: lots of wide rows are too large for all lanes to sort at once.
    memory: Semaphore,
    permit_count: usize,
}

#[derive(Default)]
struct State {
    /// Rows of lanes that have spilled nothing.
    in_memory: Vec<RecordBatch>,
    /// Whether a lane has spilled rows.
    has_spilled: bool,
    runs: VecDeque<Arc<SpillRun>>,
    /// Runs that are merged together in the round of merges that goes on.
    to_merge: Vec<Vec<Arc<SpillRun>>>,
    /// The last merge is next.
    is_merged: bool,
}

impl Shared {
    pub(super) fn new(memory_bytes: usize) -> Arc<Self> {
        let permit_count = memory_bytes / PERMIT_BYTES;
        Arc::new(Self {
            state: Mutex::default(),
            memory: Semaphore::new(permit_count),
            permit_count,
        })
    }

    /// Waits until there is memory to sort so many bytes; all of it, if that is less.
    async fn reserve(&self, bytes: usize) -> Result<SemaphorePermit<'_>> {
        let permits = (bytes * SORTED_BYTES / PERMIT_BYTES).min(self.permit_count);
        let permits = u32::try_from(permits).unwrap_or(u32::MAX);
        let permit = self.memory.acquire_many(permits).await;
        permit.map_err(|error| internal_datafusion_err!("{error}"))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        locked(&self.state)
    }
}

/// Sorts the rows of `input`, which are a lane's share, as `operator` does. One of the lanes emits all rows.
pub(super) async fn run(
    operator: Arc<dyn ExecutionPlan>,
    ground: Ground,
    shared: Arc<Shared>,
    mut input: SendableRecordBatchStream,
    out: Out,
) -> Result<()> {
    let Some(planned) = operator.downcast_ref::<SortExec>() else {
        return internal_err!("{} is no sort", operator.name());
    };
    let (lane, schema) = (ground.lane.clone(), input.schema());
    let own_bytes = ground.memory_bytes / lane.count();
    let frame_bytes = (own_bytes as u64 / FRAMES).clamp(FRAME_BYTES_MIN, FRAME_BYTES);
    let mut held = BufferedRows::new(&ground.pool, own_bytes / HELD_SHARE);
    let (order, fetch) = (planned.expr(), planned.fetch());
    let mut sorting = Sorting { order, fetch, ground, frame_bytes };
    let mut has_spilled = false;
    while !held.fill(&mut input).await? {
        has_spilled = true;
        sorting.put_sorted_aside(held.take(), &schema, &shared).await?;
    }
    drop(input);
    {
        let mut state = shared.lock();
        state.has_spilled |= has_spilled;
        state.in_memory.extend_from_slice(held.batches());
    }
    let leads = lane.meet().await;
    if !shared.lock().has_spilled {
        let true = leads else { return Ok(()) };
        let rows = std::mem::take(&mut shared.lock().in_memory);
        sorting.set_batch_size(&rows);
        let sort = sorting.sort_of(rows, &schema)?.with_fetch(fetch);
        return match sorting.ground.attempt(Arc::new(sort), &out).await? {
            Tried::Done => Ok(()),
            Tried::TooLarge(error) => Err(error),
        };
    }
    shared.lock().in_memory.clear();
    sorting.put_sorted_aside(held.take(), &schema, &shared).await?;
    loop {
        if lane.meet().await {
            sorting.plan_merges(&mut shared.lock());
        }
        lane.meet().await;
        if shared.lock().is_merged {
            break;
        }
        loop {
            let Some(runs) = shared.lock().to_merge.pop() else { break };
            let merged = sorting.merge(runs.into_iter(), &ExecutionPlanMetricsSet::new())?;
            let run = sorting.put_aside(merged).await?;
            shared.lock().runs.push_back(run);
        }
    }
    let runs = std::mem::take(&mut shared.lock().runs);
    if runs.is_empty() {
        return Ok(());
    }
    let metrics = ExecutionPlanMetricsSet::new();
    let mut rows = sorting.merge(runs.into_iter(), &metrics)?;
    sorting.ground.add_metrics(metrics.clone_inner());
    while let Some(batch) = rows.next().await {
        out.push(batch?).await?;
    }
    Ok(())
}

struct Sorting<'a> {
    order: &'a LexOrdering,
    /// Rows that are wanted, so no run needs more.
    fetch: Option<usize>,
    ground: Ground,
    frame_bytes: u64,
}

/// The rows of `batch` in copies that take no more than `bytes_max` each if rows are of one size.
fn pieces(batch: &RecordBatch, bytes_max: usize) -> Result<Vec<RecordBatch>> {
    let count = get_record_batch_memory_size(batch).div_ceil(bytes_max.max(1));
    let rows = batch.num_rows();
    let rows_each = rows.div_ceil(count.max(1)).max(1);
    let piece = |first: usize| {
        let rows = first..(first + rows_each).min(rows);
        let rows = rows.filter_map(|row| u64::try_from(row).ok());
        without_the_rest(take_record_batch(batch, &UInt64Array::from_iter_values(rows))?)
    };
    (0..rows).step_by(rows_each).map(piece).collect()
}

impl Sorting<'_> {
    /// Makes batches of rows like `rows` no larger than a frame.
    fn set_batch_size(&mut self, rows: &[RecordBatch]) {
        let task = &self.ground.task;
        let count: usize = rows.iter().map(RecordBatch::num_rows).sum();
        let bytes: u64 = rows.iter().map(batch_bytes).sum();
        let fitting = self.frame_bytes.saturating_mul(count as u64) / bytes.max(1);
        let fitting = usize::try_from(fitting.max(1)).unwrap_or(usize::MAX);
        self.ground.task = with_batch_size(task, fitting.min(task.session_config().batch_size()));
    }

    /// Sorts `rows` and spills them as a run, or as several if they are too large to be sorted at once.
    async fn put_sorted_aside(
        &mut self,
        rows: Vec<RecordBatch>,
        schema: &SchemaRef,
        shared: &Shared,
    ) -> Result<()> {
        if rows.is_empty() {
            return Ok(());
        }
        self.set_batch_size(&rows);
        let bytes: usize = rows.iter().map(get_record_batch_memory_size).sum();
        let bytes_max = self.ground.memory_bytes / SORTED_BYTES;
        let lots: Vec<Vec<RecordBatch>> = match bytes <= bytes_max {
            true => vec![rows],
            false => {
                let pieces = rows.iter().map(|batch| pieces(batch, bytes_max));
                let pieces = pieces.collect::<Result<Vec<_>>>()?;
                pieces.into_iter().flatten().map(|piece| vec![piece]).collect()
            }
        };
        for lot in lots {
            let bytes: usize = lot.iter().map(get_record_batch_memory_size).sum();
            let _permit = shared.reserve(bytes).await?;
            let sorted = self.sort_of(lot, schema)?.execute(0, Arc::clone(&self.ground.task))?;
            let run = self.put_aside(sorted).await?;
            shared.lock().runs.push_back(run);
        }
        Ok(())
    }

    /// Runs that fit the memory of `lane_count` lanes at once.
    fn runs_at_once(&self, lane_count: usize) -> usize {
        let bytes = (self.ground.memory_bytes / self.ground.lane.count() * lane_count) as u64;
        let fitting = bytes / self.frame_bytes / FRAMES_EACH;
        usize::try_from(fitting.clamp(2, MERGED_MAX)).unwrap_or(2)
    }

    /// Says which runs are merged next, as few that the last merge has as many as it can.
    fn plan_merges(&self, state: &mut State) {
        let (of_lane, of_all) = (self.runs_at_once(1), self.runs_at_once(self.ground.lane.count()));
        state.is_merged = state.runs.len() <= of_all;
        loop {
            let beyond = (state.runs.len() + state.to_merge.len()).saturating_sub(of_all);
            let count = of_lane.min(beyond + 1);
            if count < 2 || state.runs.len() < count {
                break;
            }
            let runs = state.runs.drain(..count).collect();
            state.to_merge.push(runs);
        }
    }

    fn sort_of(&self, rows: Vec<RecordBatch>, schema: &SchemaRef) -> Result<SortExec> {
        let rows = MemoryStream::try_new(rows, Arc::clone(schema), None)?;
        let input = GivenExec::over(Box::pin(rows), None);
        Ok(SortExec::new(self.order.clone(), input))
    }

    /// The rows of `runs` in order.
    fn merge(
        &self,
        runs: impl Iterator<Item = Arc<SpillRun>>,
        metrics: &ExecutionPlanMetricsSet,
    ) -> Result<SendableRecordBatchStream> {
        let memory = MemoryConsumer::new("runs that are merged").register(&self.ground.pool);
        StreamingMergeBuilder::new()
            .with_streams(runs.map(|run| run.batches(0)).collect())
            .with_schema(Arc::clone(&self.ground.schema))
            .with_expressions(self.order)
            .with_metrics(BaselineMetrics::new(metrics, 0))
            .with_batch_size(self.ground.task.session_config().batch_size())
            .with_reservation(memory)
            .with_fetch(self.fetch)
            .build()
    }

    /// Spills `sorted` as one run.
    async fn put_aside(&self, mut sorted: SendableRecordBatchStream) -> Result<Arc<SpillRun>> {
        let Ground { space, schema, pool, figures, .. } = &self.ground;
        // Each batch is a frame.
        let gathering_bytes = usize::try_from(self.frame_bytes).unwrap_or(usize::MAX);
        let mut writer =
            RunsWriter::new(space, schema, 1, (pool, gathering_bytes), figures.clone());
        let mut wanted = self.fetch.unwrap_or(usize::MAX);
        while wanted > 0
            && let Some(batch) = sorted.next().await
        {
            let batch = batch?;
            let batch = batch.slice(0, batch.num_rows().min(wanted));
            wanted -= batch.num_rows();
            writer.push(0, without_the_rest(batch)?).await?;
        }
        match writer.finish().await?.pop() {
            Some(run) => Ok(run),
            None => internal_err!("a writer of one run has none"),
        }
    }
}
