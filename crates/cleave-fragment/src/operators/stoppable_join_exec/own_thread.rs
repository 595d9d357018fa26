//! Gives a join that compares many pairs of rows a thread of its own: the batches of its sides in, its rows out.
//!
//! A nested-loop join compares a batch of its right side with all rows of its left side in one go. As many such joins
//! as the runtime has workers leave none for whoever hears that a statement is to end, for its time limit, and for the
//! statements of others.
//!
//! 1. A [`CountedRows`] above each side counts in [`Pairs`]. Before a partition's pairs become more than [`PAIRS_MAX`],
//!    it has the join wait once.
//! 2. [`Moving`], which gives the rows of the join, hands the join to a blocking thread then, and reads on from a
//!    channel.
//!
//! Invariants: the join sees the same batches in the same order. Only a task that [says so](OwnThreads) moves joins,
//! and none in a simulation. A join for which no thread is free stays where it is. The thread ends once nobody reads
//! its rows; in the midst of a comparison, once its [`Stop`](super::Stop) is raised.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use cleave_media::simulation;
use datafusion_common::tree_node::TreeNodeRecursion;
use datafusion_common::{JoinSide, Result, internal_err};
use datafusion_execution::{RecordBatchStream, SendableRecordBatchStream, TaskContext};
use datafusion_physical_expr::PhysicalExpr;
use datafusion_physical_plan::execution_plan::replace_children_if_necessary;
use datafusion_physical_plan::stream::{RecordBatchReceiverStream, RecordBatchStreamAdapter};
use datafusion_physical_plan::{
    DisplayAs, DisplayFormatType, EmptyRecordBatchStream, ExecutionPlan, ExecutionPlanProperties,
    PlanProperties,
};
use futures::future::BoxFuture;
use futures::{Stream, StreamExt};
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::result_memory::ResultMemory;
use crate::wanted;

/// An extension of a task: joins of its plan may have threads of their own. A device has a budget of cores instead.
#[derive(Debug, Clone, Copy)]
pub struct OwnThreads;

/// Pairs that a partition compares on a worker: some milliseconds.
const PAIRS_MAX: u64 = 1 << 22;
/// Threads of joins at a time. A runtime has more that may block.
const THREADS_MAX: usize = 128;
/// Batches that a thread makes ahead of its reader.
const AHEAD: usize = 1;

static THREADS: Semaphore = Semaphore::const_new(THREADS_MAX);

/// How many pairs of rows a join compares.
#[derive(Debug)]
pub(super) struct Pairs {
    /// Rows of the left side so far.
    left: AtomicU64,
    /// For each partition, whether there are too many for a worker.
    are_many: Vec<AtomicBool>,
}

impl Pairs {
    /// `join` over inputs that count; it has a left and a right one.
    ///
    /// # Errors
    /// DataFusion's, when it rebuilds the plan.
    pub(super) fn of(join: Arc<dyn ExecutionPlan>) -> Result<(Arc<dyn ExecutionPlan>, Arc<Self>)> {
        let [left, right] = join.children()[..] else {
            return internal_err!("a join has two sides");
        };
        let partitions = right.output_partitioning().partition_count();
        let are_many = (0..partitions).map(|_| AtomicBool::new(false)).collect();
        let pairs = Arc::new(Self { left: AtomicU64::new(0), are_many });
        let counted = |input: &Arc<dyn ExecutionPlan>, side| -> Arc<dyn ExecutionPlan> {
            let (input, pairs) = (Arc::clone(input), Arc::clone(&pairs));
            Arc::new(CountedRows { input, side, pairs })
        };
        let inputs = vec![counted(left, JoinSide::Left), counted(right, JoinSide::Right)];
        Ok((replace_children_if_necessary(join, inputs)?, pairs))
    }

    /// Notes that `partition`, which has `compared` so many pairs, is to compare `row_count` rows with the left side.
    /// Returns whether these make them too many.
    fn add(&self, partition: usize, compared: &mut u64, row_count: usize) -> bool {
        let before = *compared;
        let more = self.left.load(Ordering::Relaxed).saturating_mul(row_count as u64);
        *compared = before.saturating_add(more);
        let become_many = before <= PAIRS_MAX && *compared > PAIRS_MAX;
        if become_many && let Some(are_many) = self.are_many.get(partition) {
            are_many.store(true, Ordering::Relaxed);
        }
        become_many
    }

    fn are_many(&self, partition: usize) -> bool {
        self.are_many.get(partition).is_some_and(|are_many| are_many.load(Ordering::Relaxed))
    }
}

/// Whether `task` lets joins have threads of their own.
pub(super) fn may_move(task: &TaskContext) -> bool {
    task.session_config().get_extension::<OwnThreads>().is_some() && !simulation::is_active()
}

/// Counts the rows of a side of a join on their way there. Below a join that runs alone: no reader of plans sees it.
#[derive(Debug)]
struct CountedRows {
    input: Arc<dyn ExecutionPlan>,
    side: JoinSide,
    pairs: Arc<Pairs>,
}

impl DisplayAs for CountedRows {
    fn fmt_as(&self, _kind: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CountedRows: {}", self.side)
    }
}

impl ExecutionPlan for CountedRows {
    fn name(&self) -> &'static str {
        "CountedRows"
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
            return internal_err!("rows are counted of one input, not {}", children.len());
        };
        let (input, pairs) = (Arc::clone(input), Arc::clone(&self.pairs));
        Ok(Arc::new(Self { input, side: self.side, pairs }))
    }

    fn execute(
        &self,
        partition: usize,
        task: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let rows = self.input.execute(partition, task)?;
        let (schema, pairs) = (rows.schema(), Arc::clone(&self.pairs));
        if self.side == JoinSide::Left {
            let rows = rows.inspect(move |batch| {
                let count = batch.as_ref().map_or(0, RecordBatch::num_rows);
                pairs.left.fetch_add(count as u64, Ordering::Relaxed);
            });
            return Ok(Box::pin(RecordBatchStreamAdapter::new(schema, rows)));
        }
        let mut compared = 0;
        let rows = rows.then(move |batch| {
            let count = batch.as_ref().map_or(0, RecordBatch::num_rows);
            let become_many = pairs.add(partition, &mut compared, count);
            async move {
                if become_many {
                    // The join waits, and can be moved.
                    tokio::task::yield_now().await;
                }
                batch
            }
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, rows)))
    }
}

/// The rows of a partition of a join, which goes on elsewhere once it has many pairs to compare.
pub(super) struct Moving {
    rows: SendableRecordBatchStream,
    pairs: Arc<Pairs>,
    partition: usize,
    /// Whether it was decided where the join goes on.
    is_decided: bool,
}

impl Moving {
    /// Of `partition`, whose join counts in `pairs`.
    pub(super) fn new(
        rows: SendableRecordBatchStream,
        pairs: &Arc<Pairs>,
        partition: usize,
    ) -> Self {
        Self { rows, pairs: Arc::clone(pairs), partition, is_decided: false }
    }
}

impl Stream for Moving {
    type Item = Result<RecordBatch>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        let polled = this.rows.poll_next_unpin(context);
        if this.is_decided || polled.is_ready() || !this.pairs.are_many(this.partition) {
            return polled;
        }
        this.is_decided = true;
        let (Ok(runtime), Ok(thread)) = (Handle::try_current(), THREADS.try_acquire()) else {
            return polled;
        };
        let nothing: SendableRecordBatchStream =
            Box::pin(EmptyRecordBatchStream::new(this.rows.schema()));
        this.rows = on_thread(std::mem::replace(&mut this.rows, nothing), thread, runtime);
        this.rows.poll_next_unpin(context)
    }
}

impl RecordBatchStream for Moving {
    fn schema(&self) -> SchemaRef {
        self.rows.schema()
    }
}

/// `rows`, made on a blocking thread of `runtime` for whoever makes them here.
fn on_thread(
    mut rows: SendableRecordBatchStream,
    thread: SemaphorePermit<'static>,
    runtime: Handle,
) -> SendableRecordBatchStream {
    let mut builder = RecordBatchReceiverStream::builder(rows.schema(), AHEAD);
    let give = builder.tx();
    let work = async move {
        let _thread = thread;
        loop {
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
    let work: BoxFuture<'static, ()> = wanted::carried(Box::pin(work));
    let work: BoxFuture<'static, ()> = match ResultMemory::current() {
        Some(memory) => Box::pin(memory.over(work)),
        None => work,
    };
    builder.spawn_blocking(move || {
        runtime.block_on(work);
        Ok(())
    });
    builder.build()
}
