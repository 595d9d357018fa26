//! Runs the partitions of a fragment's pipeline and gathers their batches into slots.
//!
//! 1. [`run_partitions`] starts the n partitions of one plan. They share its morsel sources and nothing else (rule 3:
//!    no exchange), and the thresholds that a TopK tightens. Those on [lent cores](crate::node) begin with the others,
//!    and move between the threads of the run's engine and of their helper ([`LentPartition`]).
//! 2. Each partition gathers batches up to the slot's size, splits larger ones, encodes and offers them to the run's
//!    ring, where it waits for credit. If the run has several outputs, each gets the same slots, or the rows of a batch
//!    are [divided](crate::row_division) first, and gathered for each output.
//! 3. When all partitions have ended, the report follows the last slot.
//!
//! A partition that waits for credit of one output makes nothing for the others meanwhile, so the slowest reader sets
//! the pace of all. No cycle of waits can come of it as long as these rules hold, which are those of who plans and of
//! [`peer_rows`](crate::peer_rows): a run waits only for the readers of its outputs; a reader takes what comes of all
//! streams of an input at once, and waits for its own readers only with rows in hand; the outputs of one run feed one
//! input, so that no reader leaves them for later; whoever reads the last outputs takes them all at once too. An output
//! that nobody wants any more is closed, and holds up nothing.
//!
//! Rows that stream from a recursion are held until it is over ([`Held`]): only then is it known that its memory
//! suffices, and until a row has left, the host may run the fragment instead.
//!
//! Large results of functions are charged to a pool of the run's own ([`FUNCTION_BYTES_MIN`]), and functions that take
//! long for one row stop when the run is cancelled.
//!
//! A partition that fails or panics ends the others. Operators that spill run lanes beside their partition
//! ([`LaneTasks`]), which end with it. CPU time is measured around every poll of a partition and a lane, so that other
//! work on the same thread is not counted.

use std::future::poll_fn;
use std::ops::Range;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use cleave_fragment::command::arrow_message::BARE_ROW_COUNT_MAX;
use cleave_fragment::command::message::{ENCODED_SLOT_BYTES_MAX, SlotPayload};
use cleave_fragment::command::slot::{batch_bytes, encode_batch};
use cleave_fragment::command::status::operator_metrics;
use cleave_fragment::command::{DeviceError, DeviceErrorCause, Outputs, Payload, RunReport};
use cleave_fragment::link::SlotForm;
use cleave_fragment::result_memory::ResultMemory;
use cleave_fragment::{FragmentCounters, streams_from_recursion, wanted};
use cleave_media::Stopwatch;
use datafusion_common::Result as EngineResult;
use datafusion_common::utils::memory::get_record_batch_memory_size;
use datafusion_execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};
use datafusion_execution::{SendableRecordBatchStream, TaskContext};
use datafusion_physical_plan::ExecutionPlan;
use datafusion_physical_plan::stream::RecordBatchStreamAdapter;
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt};
use tokio::task::{JoinError, JoinSet};

use crate::admission::Admitted;
use crate::device_error::of_engine;
use crate::fragment_run::{FedInputs, FragmentRun};
use crate::home_pages::HomePages;
use crate::lane_tasks::LaneTasks;
use crate::memory_budget::MemoryBudget;
use crate::node::{HelpedMorsels, LentCore, NodeEngine, PartitionWork};
use crate::peer_rows::PeerSources;
use crate::reserved_pages::ReservedPages;
use crate::row_division::RowDivision;
use crate::run_pages::CpuTime;

/// Most rows of a slot.
const SLOT_ROW_COUNT_MAX: usize = BARE_ROW_COUNT_MAX;

/// The results of a run's functions may have as many bytes as its operators, and at least these. They have a pool of
/// their own: a join takes all of the other one before it spills, and a function cannot spill.
const FUNCTION_BYTES_MIN: usize = 16 << 20;

/// Everything that a run needs to work.
pub(crate) struct RunWork {
    pub(crate) run: Arc<FragmentRun>,
    pub(crate) plan: Arc<dyn ExecutionPlan>,
    /// The run's memory for the plan itself, shipped pages, and the lists of its inputs.
    pub(crate) memory: [MemoryReservation; 3],
    pub(crate) task: Arc<TaskContext>,
    /// The scans that take filters while it runs.
    pub(crate) fed: Arc<FedInputs>,
    /// Partitions on the engine's own cores; those on lent ones come after them.
    pub(crate) partitions: u32,
    /// The engine that runs it.
    pub(crate) engine: NodeEngine,
    /// The streamed morsels, if lent cores may take from them.
    pub(crate) helped: Option<Arc<HelpedMorsels>>,
    /// Tasks of operators that spill, in at most `lane_count` lanes.
    pub(crate) lanes: Arc<LaneTasks>,
    pub(crate) lane_count: u32,
    pub(crate) pages: Arc<HomePages>,
    /// The rows that it takes from other runs.
    pub(crate) sources: PeerSources,
    /// The pages that it writes, if any.
    pub(crate) written: Option<ReservedPages>,
    pub(crate) counters: Arc<FragmentCounters>,
    pub(crate) budget: Arc<MemoryBudget>,
    pub(crate) cpu: Arc<CpuTime>,
    /// Released when the run has stopped.
    pub(crate) admitted: Admitted,
}

/// Runs `work` to its end, which it reports to the run.
pub(crate) async fn run_partitions(work: RunWork) {
    let began = Stopwatch::start();
    let mut partitions = JoinSet::new();
    let function_bytes = work.budget.limit_bytes().max(FUNCTION_BYTES_MIN);
    let pool: Arc<dyn MemoryPool> = Arc::new(MemoryBudget::new(function_bytes));
    let results = ResultMemory::of(&pool);
    let lent_count = work.helped.as_ref().map_or(0, |helped| helped.core_count());
    for partition in 0..work.partitions as usize + lent_count {
        let core = work.helped.as_ref().and_then(|helped| helped.core(partition)).map(Arc::clone);
        let output = Output {
            run: Arc::clone(&work.run),
            work: match &core {
                Some(core) => PartitionWork::Lent(Arc::clone(core)),
                // An operator that spills works in lanes, for the one partition above it.
                None => work.engine.work(work.lane_count.max(1)),
            },
        };
        let running =
            run_partition(partition, Arc::clone(&work.plan), Arc::clone(&work.task), output);
        let stop = work.run.stop().clone();
        let running = results.over(wanted::until(move || stop.is_raised(), running));
        let running = work.cpu.measured(running);
        match core {
            Some(core) => {
                partitions.spawn(LentPartition { core, running: running.boxed() }.stay());
            }
            None => {
                partitions.spawn(running.map(Stay::Ended));
            }
        }
    }
    let ended = tokio::select! {
        biased;
        () = work.run.cancellation() => Err(work.run.cancelled_error()),
        ended = all_ended(&mut partitions) => ended,
    };
    partitions.shutdown().await;
    work.lanes.end().await;
    if let Some(written) = &work.written {
        // Writes continue when their partition is gone.
        written.stand_still().await;
    }
    work.sources.end().await;
    let outcome = ended.map(|()| report(&work, &began));
    let RunWork { run, plan, memory, task, fed, pages, sources, helped, admitted, .. } = work;
    // Everything that uses memory is dropped before the memory is released, and that before the end is reported.
    drop((plan, memory, task, fed, pages, sources, helped, admitted));
    run.finish(outcome);
}

fn report(work: &RunWork, began: &Stopwatch) -> RunReport {
    use std::sync::atomic::Ordering::Relaxed;
    let output = work.run.output();
    let spilled_bytes_read = work.written.as_ref().map_or(0, ReservedPages::spilled_bytes_read);
    let morsels = work.counters.morsels.load(Relaxed);
    let (peer_slots, peer_bytes) = work.sources.taken();
    RunReport {
        rows: output.rows,
        slots: output.slots,
        slot_bytes: output.slot_bytes,
        media_bytes: work.pages.media_bytes() + spilled_bytes_read,
        foreign_bytes: work.pages.foreign_bytes(),
        peer_slots,
        peer_bytes,
        pages_read: work.pages.pages_read(),
        morsels,
        rows_scanned: work.counters.rows.load(Relaxed),
        cpu: work.cpu.total(),
        stall: output.stall,
        wall: began.elapsed(),
        peak_memory_bytes: work.budget.peak_bytes() as u64,
        partitions: work.partitions.max(work.lane_count),
        // Not all that were taken had to be read.
        lent: work.helped.as_ref().map_or(0, |helped| helped.lent_count()).min(morsels),
        kept: work.run.kept(),
        worked: work.cpu.strip(),
        stalled: output.stalls,
        operators: operator_metrics(&work.plan),
    }
}

/// How the task of a partition came to its end.
enum Stay {
    /// With its partition.
    Ended(Result<(), DeviceError>),
    /// The partition goes on elsewhere.
    Moves(LentPartition),
}

/// A partition on a core that another engine of the node lends.
struct LentPartition {
    core: Arc<LentCore>,
    running: BoxFuture<'static, Result<(), DeviceError>>,
}

impl LentPartition {
    /// Runs on the present threads until it has ended, or belongs on others.
    async fn stay(mut self) -> Stay {
        let ended = poll_fn(|context| match self.running.as_mut().poll(context) {
            Poll::Ready(ended) => Poll::Ready(Some(ended)),
            Poll::Pending if self.core.is_misplaced() => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        })
        .await;
        match ended {
            Some(ended) => Stay::Ended(ended),
            None => Stay::Moves(self),
        }
    }
}

async fn all_ended(partitions: &mut JoinSet<Stay>) -> Result<(), DeviceError> {
    while let Some(joined) = partitions.join_next().await {
        match joined.unwrap_or_else(|error| Stay::Ended(Err(of_lost(error)))) {
            Stay::Ended(ended) => ended?,
            Stay::Moves(lent) => {
                match lent.core.place() {
                    Some(threads) => partitions.spawn_on(lent.stay(), &threads),
                    None => partitions.spawn(lent.stay()),
                };
            }
        }
    }
    Ok(())
}

/// The error of a partition whose task panicked, or ended with the threads of its helper.
fn of_lost(error: JoinError) -> DeviceError {
    let Ok(panic) = error.try_into_panic() else {
        let message = "an engine of the node ended while it helped with the run";
        return DeviceError::new(DeviceErrorCause::UnknownRun, message);
    };
    let detail = panic
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_default();
    DeviceError::new(
        DeviceErrorCause::Execution,
        format!("an operator of the fragment broke off: {detail}"),
    )
}

/// Where a partition puts its rows.
struct Output {
    run: Arc<FragmentRun>,
    /// What the partition counts as while it does not wait.
    work: PartitionWork,
}

async fn run_partition(
    copy: usize,
    plan: Arc<dyn ExecutionPlan>,
    task: Arc<TaskContext>,
    mut output: Output,
) -> Result<(), DeviceError> {
    let mut held = streams_from_recursion(plan.as_ref()).then(|| Held::new(&task));
    let pool = Arc::clone(task.memory_pool());
    let mut batches = plan.execute(copy, task).map_err(of_engine)?;
    if let Some(held) = &mut held {
        batches = held.until_over(batches).await.map_err(of_engine)?;
    }
    if output.run.outputs() != &Outputs::One {
        return send_to_peers(batches, &mut output, &pool).await;
    }
    let mut gathered = Gathered::default();
    while let Some(batch) = batches.next().await {
        let batch = batch.map_err(of_engine)?;
        if batch.num_rows() == 0 {
            continue;
        }
        match output.run.form() {
            SlotForm::Batches => {
                let (rows, bytes) = (batch.num_rows() as u64, batch_bytes(&batch));
                output.offer(0, rows, bytes, SlotPayload::Batch(batch)).await;
            }
            SlotForm::Encoded => output.gather(0..1, &mut gathered, batch).await?,
        }
    }
    output.offer_encoded(0..1, gathered).await
}

/// Sends the rows of `batches` to the outputs of the run, which are for other devices. Rows that are gathered for one
/// of several outputs are charged to `pool`.
async fn send_to_peers(
    mut batches: SendableRecordBatchStream,
    output: &mut Output,
    pool: &Arc<dyn MemoryPool>,
) -> Result<(), DeviceError> {
    let outputs = output.run.outputs().clone();
    let mut division = RowDivision::of(&outputs, &batches.schema())?;
    let count = outputs.count() as usize;
    let memory = MemoryConsumer::new("rows for other devices").register(pool);
    let mut gathered: Vec<Gathered> = Vec::new();
    gathered.resize_with(if division.is_some() { count } else { 1 }, Gathered::default);
    while let Some(batch) = batches.next().await {
        let batch = batch.map_err(of_engine)?;
        if batch.num_rows() == 0 {
            continue;
        }
        let Some(division) = &mut division else {
            for whole in &mut gathered {
                output.gather(0..count, whole, batch.clone()).await?;
            }
            continue;
        };
        for (place, rows) in division.divide(&batch).map_err(of_engine)? {
            let Some(own) = gathered.get_mut(place) else { continue };
            output.gather(place..place + 1, own, rows).await?;
        }
        let held = gathered.iter().map(|own| usize::try_from(own.bytes).unwrap_or(usize::MAX));
        let held = held.fold(0, usize::saturating_add);
        if memory.try_resize(held).is_err() {
            // Smaller slots, rather than no rows.
            for (place, own) in gathered.iter_mut().enumerate() {
                output.offer_encoded(place..place + 1, std::mem::take(own)).await?;
            }
            memory.free();
        }
    }
    for (place, own) in gathered.into_iter().enumerate() {
        let outputs = if division.is_some() { place..place + 1 } else { 0..count };
        output.offer_encoded(outputs, own).await?;
    }
    Ok(())
}

/// The memory of rows that wait for the end of a recursion, until all of them were offered.
struct Held(MemoryReservation);

impl Held {
    fn new(task: &TaskContext) -> Self {
        Self(MemoryConsumer::new("the rows of a recursion").register(task.memory_pool()))
    }

    /// The same rows, all of which are there.
    async fn until_over(
        &mut self,
        mut rows: SendableRecordBatchStream,
    ) -> EngineResult<SendableRecordBatchStream> {
        let (schema, mut batches) = (rows.schema(), Vec::new());
        while let Some(batch) = rows.next().await.transpose()? {
            self.0.try_grow(get_record_batch_memory_size(&batch))?;
            batches.push(batch);
        }
        let batches = futures::stream::iter(batches.into_iter().map(Ok));
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, batches)))
    }
}

/// Batches that will share a slot.
#[derive(Default)]
struct Gathered {
    batches: Vec<RecordBatch>,
    bytes: u64,
    rows: usize,
}

impl Output {
    /// Offers a slot. While it waits for credit, the partition's core is free for others.
    async fn offer(&mut self, output: usize, row_count: u64, bytes: u64, payload: SlotPayload) {
        let Self { run, work } = self;
        let mut offering = pin!(run.offer(output, row_count, bytes, payload));
        poll_fn(|context| {
            let polled = offering.as_mut().poll(context);
            match polled {
                Poll::Ready(()) => work.go_on(),
                Poll::Pending => work.rest(),
            }
            polled
        })
        .await;
    }

    /// Adds `batch` to the rows gathered for `outputs`, and offers these once they are enough.
    async fn gather(
        &mut self,
        outputs: Range<usize>,
        gathered: &mut Gathered,
        batch: RecordBatch,
    ) -> Result<(), DeviceError> {
        // Rows without columns, or of NULLs, have no bytes that would bound them.
        if gathered.rows + batch.num_rows() > SLOT_ROW_COUNT_MAX {
            self.offer_encoded(outputs.clone(), std::mem::take(gathered)).await?;
        }
        gathered.bytes += batch_bytes(&batch);
        gathered.rows += batch.num_rows();
        gathered.batches.push(batch);
        if gathered.bytes >= self.run.slot_bytes() {
            self.offer_encoded(outputs, std::mem::take(gathered)).await?;
        }
        Ok(())
    }

    /// Offers the rows to each of `outputs`.
    async fn offer_encoded(
        &mut self,
        outputs: Range<usize>,
        gathered: Gathered,
    ) -> Result<(), DeviceError> {
        let failed = |error: arrow::error::ArrowError| {
            let message = format!("the result cannot be encoded: {error}");
            DeviceError::new(DeviceErrorCause::Execution, message)
        };
        let Some(first) = gathered.batches.first() else { return Ok(()) };
        let whole = match gathered.batches.as_slice() {
            [only] => only.clone(),
            several => concat_batches(&first.schema(), several).map_err(failed)?,
        };
        for piece in pieces(&whole, gathered.bytes, self.run.slot_bytes()) {
            let encoded = encode_batch(&piece).map_err(failed)?;
            if encoded.len() as u64 > ENCODED_SLOT_BYTES_MAX {
                let message = format!(
                    "a row of the result takes up to {} bytes; a slot holds {ENCODED_SLOT_BYTES_MAX}",
                    encoded.len() / piece.num_rows().max(1),
                );
                return Err(DeviceError::new(DeviceErrorCause::Refused, message));
            }
            let bytes = encoded.len() as u64;
            let payload = SlotPayload::Encoded(Payload::new(encoded.into()));
            for output in outputs.clone() {
                self.offer(output, piece.num_rows() as u64, bytes, payload.clone()).await;
            }
        }
        Ok(())
    }
}

/// Splits `batch`, which has `bytes`, so that no piece of several rows has more than twice `slot_bytes`, and none too
/// many rows.
fn pieces(batch: &RecordBatch, bytes: u64, slot_bytes: u64) -> Vec<RecordBatch> {
    let rows = batch.num_rows();
    // Half a slot more is no reason to split.
    let count = usize::try_from((bytes + slot_bytes / 2) / slot_bytes.max(1)).unwrap_or(usize::MAX);
    let rows_each = rows.div_ceil(count.clamp(1, rows.max(1))).clamp(1, SLOT_ROW_COUNT_MAX);
    let mut found = Vec::new();
    let mut pending: Vec<RecordBatch> = (0..rows)
        .step_by(rows_each)
        .map(|start| batch.slice(start, rows_each.min(rows - start)))
        .rev()
        .collect();
    // Rows differ in size: pieces that are still too large are halved.
    while let Some(piece) = pending.pop() {
        let half = piece.num_rows() / 2;
        let bytes = batch_bytes(&piece);
        if half == 0 || bytes <= slot_bytes.saturating_mul(2) {
            found.push(piece);
            continue;
        }
        let (first, second) = (piece.slice(0, half), piece.slice(half, piece.num_rows() - half));
        if batch_bytes(&first).saturating_add(batch_bytes(&second)) > bytes.saturating_mul(3) / 2 {
            // The halves share what makes them large, such as a dictionary: splitting would not help.
            found.push(piece);
        } else {
            pending.extend([second, first]);
        }
    }
    found
}

#[cfg(test)]
mod tests;
