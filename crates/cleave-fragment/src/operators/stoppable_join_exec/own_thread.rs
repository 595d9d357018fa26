//! Gives a join that works for long between two batches a thread of its own: the batches of its sides in, its rows out.
//!
//! A nested-loop join compares a batch of its right side with all rows of its left side in one go. A hash join whose
//! matches may give no rows, as it has a condition on pairs or looks for one match only, looks at all matches of a
//! batch of its right side. As many such joins as the runtime has workers leave none for whoever hears that a statement
//! is to end, for its time limit, and for the statements of others. Other hash joins give a batch of rows after as many
//! matches, and run as they are.
//!
//! 1. A [`WatchedSide`] above each side notes in [`Work`] how many rows come, and how long the join works on them.
//!    After a batch on which it worked for longer than [`LONG`], and before one with too many pairs, it has the join
//!    wait once. It also does so when batches took that long together.
//! 2. [`Moving`], which gives the rows of the join, hands the join to a blocking thread when one batch took long or has
//!    so many pairs, and reads on from a channel.
//!
//! How many pairs a nested-loop join compares is known before. How many matches a row has is not, before it was looked
//! up: so the first batch of a hash join comes in pieces that grow, if the other side has many rows, and so do those
//! behind one that took long. A hash join that gives rows of the right side without a match behind the others of their
//! batch gets whole batches, and moves before one that may have many matches.
//!
//! Invariants: the join sees the same rows in the same order, and in the same batches where the order of its rows
//! depends on these. Only a task that [says so](OwnThreads) watches and moves joins, and none in a simulation. A
//! join for which no thread is free stays where it is. The thread ends once nobody reads its rows; while it evaluates a
//! condition, once its [`Stop`](super::Stop) is raised.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use cleave_media::clock::Stopwatch;
use cleave_media::simulation;
use datafusion_common::tree_node::TreeNodeRecursion;
use datafusion_common::{JoinSide, JoinType, Result, internal_err};
use datafusion_execution::{RecordBatchStream, SendableRecordBatchStream, TaskContext};
use datafusion_physical_expr::PhysicalExpr;
use datafusion_physical_plan::execution_plan::replace_children_if_necessary;
use datafusion_physical_plan::joins::HashJoinExec;
use datafusion_physical_plan::stream::{RecordBatchReceiverStream, RecordBatchStreamAdapter};
use datafusion_physical_plan::{
    DisplayAs, DisplayFormatType, EmptyRecordBatchStream, ExecutionPlan, ExecutionPlanProperties,
    PlanProperties,
};
use futures::{Stream, StreamExt, stream};
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::task::yield_now;

use crate::result_memory::for_same_statement;

/// An extension of a task: joins of its plan may have threads of their own. A device has a budget of cores instead.
#[derive(Debug, Clone, Copy)]
pub struct OwnThreads;

/// Pairs of a batch that a nested-loop join compares on a worker: some milliseconds, by a simple condition.
const PAIRS_MAX: u64 = 1 << 22;
/// A join that works on a batch for longer goes on elsewhere.
const LONG: Duration = Duration::from_millis(50);
/// Pairs that a hash join may find on a worker in the rows that it looks up first, if all of them match.
const PAIRS_TRIED: u64 = 1 << 24;
/// Fewest rows of a piece of a batch, unless the batch ends.
const PIECE_ROWS_MIN: usize = 16;
/// Threads of joins at a time. A runtime has more that may block.
const THREADS_MAX: usize = 128;
/// Batches that a thread makes ahead of its reader.
const AHEAD: usize = 1;

static THREADS: Semaphore = Semaphore::const_new(THREADS_MAX);

/// How a join gets the batches of its right side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum How {
    /// As they are, since the order of its rows depends on them. One of more pairs is not looked at on a worker.
    Whole(u64),
    /// In pieces, while it is not known how long it takes.
    Pieces,
}

impl How {
    /// That of a nested-loop join.
    pub(super) const OF_ALL_PAIRS: Self = Self::Whole(PAIRS_MAX);

    /// That of a hash join; None if it does not work for long, since each match gives a row.
    pub(super) fn of_hash_join(join: &HashJoinExec) -> Option<Self> {
        match join.join_type() {
            JoinType::Inner | JoinType::Left => join.filter().map(|_| Self::Pieces),
            JoinType::Right | JoinType::Full => join.filter().map(|_| Self::Whole(PAIRS_TRIED)),
            JoinType::LeftSemi
            | JoinType::LeftAnti
            | JoinType::LeftMark
            | JoinType::RightSemi
            | JoinType::RightAnti
            | JoinType::RightMark => Some(Self::Pieces),
        }
    }
}

/// The work of a join.
#[derive(Debug)]
pub(super) struct Work {
    how: How,
    /// Rows of the left side so far.
    left: AtomicU64,
    partitions: Vec<Partition>,
    clock: Stopwatch,
}

/// The work of one partition.
#[derive(Debug, Default)]
struct Partition {
    is_long: AtomicBool,
    /// When it began to work on what it has: nanoseconds of the clock.
    began: AtomicU64,
}

impl Work {
    /// `join` over watched inputs; it has a left and a right one.
    ///
    /// # Errors
    /// DataFusion's, when it rebuilds the plan.
    pub(super) fn of(
        join: Arc<dyn ExecutionPlan>,
        how: How,
    ) -> Result<(Arc<dyn ExecutionPlan>, Arc<Self>)> {
        let [left, right] = join.children()[..] else {
            return internal_err!("a join has two sides");
        };
        let partition_count = right.output_partitioning().partition_count();
        let partitions = std::iter::repeat_with(Partition::default).take(partition_count).collect();
        let clock = Stopwatch::start();
        let work = Arc::new(Self { how, left: AtomicU64::new(0), partitions, clock });
        let watched = |input: &Arc<dyn ExecutionPlan>, side| -> Arc<dyn ExecutionPlan> {
            let (input, work) = (Arc::clone(input), Arc::clone(&work));
            Arc::new(WatchedSide { input, side, work })
        };
        let inputs = vec![watched(left, JoinSide::Left), watched(right, JoinSide::Right)];
        Ok((replace_children_if_necessary(join, inputs)?, work))
    }

    fn now(&self) -> u64 {
        u64::try_from(self.clock.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Notes that `partition` works from now on.
    fn begins(&self, partition: usize) {
        if let Some(partition) = self.partitions.get(partition) {
            partition.began.store(self.now(), Ordering::Relaxed);
        }
    }

    /// How long `partition` has worked.
    fn took(&self, partition: usize) -> Duration {
        let began = self.partitions.get(partition).map(|part| part.began.load(Ordering::Relaxed));
        Duration::from_nanos(began.map_or(0, |began| self.now().saturating_sub(began)))
    }

    /// Notes that `partition` works for long.
    fn note_long(&self, partition: usize) {
        if let Some(partition) = self.partitions.get(partition) {
            partition.is_long.store(true, Ordering::Relaxed);
        }
    }

    fn is_long(&self, partition: usize) -> bool {
        self.partitions.get(partition).is_some_and(|part| part.is_long.load(Ordering::Relaxed))
    }
}

/// Whether `task` lets joins have threads of their own.
pub(super) fn may_move(task: &TaskContext) -> bool {
    task.session_config().get_extension::<OwnThreads>().is_some() && !simulation::is_active()
}

/// Watches the rows of a side of a join on their way there. It is only below a join that runs: no reader of plans sees
/// it.
#[derive(Debug)]
struct WatchedSide {
    input: Arc<dyn ExecutionPlan>,
    side: JoinSide,
    work: Arc<Work>,
}

impl DisplayAs for WatchedSide {
    fn fmt_as(&self, _kind: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WatchedSide: {}", self.side)
    }
}

impl ExecutionPlan for WatchedSide {
    fn name(&self) -> &'static str {
        "WatchedSide"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.input.properties()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
    }

    fn apply_expressions(
        &self,
        _visit: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let [input] = children.as_slice() else {
            return internal_err!("rows of one side are watched, not of {}", children.len());
        };
        let (input, work) = (Arc::clone(input), Arc::clone(&self.work));
        Ok(Arc::new(Self { input, side: self.side, work }))
    }

    fn execute(
        &self,
        partition: usize,
        task: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let is_watched = may_move(&task);
        let rows = self.input.execute(partition, task)?;
        if !is_watched {
            return Ok(rows);
        }
        let (schema, work) = (rows.schema(), Arc::clone(&self.work));
        if self.side == JoinSide::Left {
            let rows = rows.inspect(move |batch| {
                let count = batch.as_ref().map_or(0, RecordBatch::num_rows);
                work.left.fetch_add(count as u64, Ordering::Relaxed);
            });
            return Ok(Box::pin(RecordBatchStreamAdapter::new(schema, rows)));
        }
        let (busy, given) = (Duration::ZERO, 0);
        let right = Right { rows, work, partition, busy, rest: None, piece_rows: None, given };
        let rows = stream::unfold(right, |mut right| async move {
            let batch = right.next().await?;
            Some((batch, right))
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, rows)))
    }
}

/// The rows of a partition of the right side.
struct Right {
    rows: SendableRecordBatchStream,
    work: Arc<Work>,
    partition: usize,
    /// How long the join has worked since it last waited here.
    busy: Duration,
    /// What is left of a batch that comes in pieces.
    rest: Option<RecordBatch>,
    /// Most rows of a piece; None before the first.
    piece_rows: Option<usize>,
    /// Rows of the last piece.
    given: usize,
}

impl Right {
    /// What the join gets next. Where the join is to be moved, or to give way, it waits once.
    async fn next(&mut self) -> Option<Result<RecordBatch>> {
        if self.has_worked() {
            yield_now().await;
        }
        let batch = match self.rest.take() {
            Some(rest) => rest,
            None => match self.rows.next().await? {
                Ok(batch) => batch,
                Err(error) => return Some(Err(error)),
            },
        };
        if self.has_many_pairs(batch.num_rows()) {
            self.work.note_long(self.partition);
            yield_now().await;
        }
        let piece = self.piece_of(batch);
        self.work.begins(self.partition);
        Some(Ok(piece))
    }

    /// Whether the join is still on a worker, and is to leave it before so many rows.
    fn has_many_pairs(&self, row_count: usize) -> bool {
        let How::Whole(pairs_max) = self.work.how else { return false };
        let left = self.work.left.load(Ordering::Relaxed);
        let pairs = left.saturating_mul(row_count as u64);
        pairs > pairs_max && !self.work.is_long(self.partition)
    }

    /// Notes that the join has worked on the last piece: the next ones are smaller if it took long, and else larger.
    /// Returns whether it is to wait.
    fn has_worked(&mut self) -> bool {
        let Some(rows) = self.piece_rows else { return false };
        let took = self.work.took(self.partition);
        if took > LONG {
            if self.work.how == How::Pieces {
                self.piece_rows = Some((rows.min(self.given) / 2).max(PIECE_ROWS_MIN));
            }
            self.work.note_long(self.partition);
        } else if took < LONG / 8 {
            self.piece_rows = Some(rows.saturating_mul(2));
        }
        self.busy += took;
        let waits = self.busy > LONG;
        if waits {
            self.busy = Duration::ZERO;
        }
        waits
    }

    /// The first piece of `batch`, which may be all of it; the rest comes next.
    fn piece_of(&mut self, batch: RecordBatch) -> RecordBatch {
        let left = self.work.left.load(Ordering::Relaxed).max(1);
        let tried = || match self.work.how {
            How::Whole(_) => usize::MAX,
            How::Pieces => {
                usize::try_from(PAIRS_TRIED / left).unwrap_or(usize::MAX).max(PIECE_ROWS_MIN)
            }
        };
        let most = *self.piece_rows.get_or_insert_with(tried);
        self.given = batch.num_rows().min(most);
        if self.given == batch.num_rows() {
            return batch;
        }
        self.rest = Some(batch.slice(self.given, batch.num_rows() - self.given));
        batch.slice(0, self.given)
    }
}

/// The rows of a partition of a join, which goes on elsewhere once it works for long.
pub(super) struct Moving {
    rows: SendableRecordBatchStream,
    work: Arc<Work>,
    partition: usize,
    /// Whether it was decided where the join goes on.
    is_decided: bool,
    /// Whether it does so elsewhere.
    is_moved: bool,
}

impl Moving {
    /// Of `partition` of a join with this work.
    pub(super) fn new(rows: SendableRecordBatchStream, work: &Arc<Work>, partition: usize) -> Self {
        Self { rows, work: Arc::clone(work), partition, is_decided: false, is_moved: false }
    }
}

impl Stream for Moving {
    type Item = Result<RecordBatch>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        if !this.is_moved {
            // The time between two of its batches is their reader's.
            this.work.begins(this.partition);
        }
        let polled = this.rows.poll_next_unpin(context);
        if this.is_decided || polled.is_ready() || !this.work.is_long(this.partition) {
            return polled;
        }
        this.is_decided = true;
        let (Ok(runtime), Ok(thread)) = (Handle::try_current(), THREADS.try_acquire()) else {
            return polled;
        };
        this.is_moved = true;
        let nothing: SendableRecordBatchStream =
            Box::pin(EmptyRecordBatchStream::new(this.rows.schema()));
        let rows = std::mem::replace(&mut this.rows, nothing);
        let (work, partition) = (Arc::clone(&this.work), this.partition);
        this.rows = on_thread(rows, (work, partition), thread, runtime);
        this.rows.poll_next_unpin(context)
    }
}

impl RecordBatchStream for Moving {
    fn schema(&self) -> SchemaRef {
        self.rows.schema()
    }
}

/// The same `rows` of a partition of a join with this work, made on a blocking thread of `runtime`.
fn on_thread(
    mut rows: SendableRecordBatchStream,
    (work, partition): (Arc<Work>, usize),
    thread: SemaphorePermit<'static>,
    runtime: Handle,
) -> SendableRecordBatchStream {
    let mut builder = RecordBatchReceiverStream::builder(rows.schema(), AHEAD);
    let give = builder.tx();
    let making = async move {
        let _thread = thread;
        loop {
            work.begins(partition);
            let batch = tokio::select! {
                biased;
                () = give.closed() => return,
                batch = rows.next() => batch,
            };
            let Some(batch) = batch else { return };
            let is_last = batch.is_err();
            if give.send(batch).await.is_err() || is_last {
                return;
            }
        }
    };
    let making = for_same_statement(Box::pin(making));
    builder.spawn_blocking(move || {
        runtime.block_on(making);
        Ok(())
    });
    builder.build()
}
