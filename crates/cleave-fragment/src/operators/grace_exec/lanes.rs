//! The lanes of one operator: tasks that run the same function, side by side, over shares of the same inputs.
//!
//! The first lane runs where the operator's output is polled, and the others as tasks of the run
//! ([`RunTasks`](crate::run_tasks::RunTasks)). They meet where each needs what all of them have made. All rows leave by
//! one channel. Invariants: an input's row is read by one lane. A lane that fails ends the output, and the others with
//! their run; nobody waits for it but lanes that are dropped then.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::{self, Arc, PoisonError};
use std::task::{Context, Poll};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion_common::{
    DataFusionError, Result, exec_datafusion_err, internal_datafusion_err, internal_err,
};
use datafusion_execution::SendableRecordBatchStream;
use datafusion_physical_plan::stream::RecordBatchStreamAdapter;
use futures::future::BoxFuture;
use futures::{FutureExt, Stream, StreamExt, stream};
use tokio::sync::{Barrier, Mutex, mpsc};

use crate::result_memory::ResultMemory;
use crate::run_tasks::RunTasks;
use crate::wanted;

/// One of the tasks.
#[derive(Debug, Clone)]
pub(super) struct Lane {
    index: usize,
    count: usize,
    meeting: Arc<Barrier>,
}

impl Lane {
    /// All `count` lanes of an operator.
    pub(super) fn all(count: usize) -> impl Iterator<Item = Self> {
        let meeting = Arc::new(Barrier::new(count));
        (0..count).map(move |index| Self { index, count, meeting: Arc::clone(&meeting) })
    }

    pub(super) fn index(&self) -> usize {
        self.index
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Waits until all of them have come here. True for one of them.
    pub(super) async fn meet(&self) -> bool {
        self.meeting.wait().await.is_leader()
    }
}

/// What lanes share, whichever of them has failed.
pub(super) fn locked<T>(shared: &sync::Mutex<T>) -> sync::MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What each of `count` lanes reads of an input with these partitions: one of them, or what it gets of the only one.
pub(super) fn shares(
    mut partitions: Vec<SendableRecordBatchStream>,
    count: usize,
) -> Result<Vec<SendableRecordBatchStream>> {
    if partitions.len() == count {
        return Ok(partitions);
    }
    let (Some(only), true) = (partitions.pop(), partitions.is_empty()) else {
        return internal_err!("an input has neither 1 nor {count} partitions");
    };
    let (schema, only) = (only.schema(), Arc::new(Mutex::new(only)));
    let share = |_| -> SendableRecordBatchStream {
        let batches = stream::unfold(Arc::clone(&only), |only| async move {
            let batch = only.lock().await.next().await?;
            Some((batch, only))
        });
        Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&schema), batches))
    };
    Ok((0..count).map(share).collect())
}

/// What a lane says.
enum Said {
    Rows(RecordBatch),
    Ended(Result<()>),
}

/// Takes the rows of a lane, one batch at a time: waits until one of those before it is taken.
#[derive(Debug)]
pub(super) struct Out(mpsc::Sender<Said>);

impl Out {
    /// Emits `batch`.
    ///
    /// # Errors
    /// Nobody wants the rows any more.
    pub(super) async fn push(&self, batch: RecordBatch) -> Result<()> {
        let sent = self.0.send(Said::Rows(batch)).await;
        sent.map_err(|_| exec_datafusion_err!("the rows of an operator are not wanted any more"))
    }
}

/// The rows that the lanes `make` emit in any order, then the error of one that failed. The first one runs only while
/// the rows are polled, on the polling thread; the others are `tasks`.
pub(super) fn produced<F>(
    schema: SchemaRef,
    lanes: impl Iterator<Item = impl FnOnce(Out) -> F>,
    tasks: Option<&Arc<dyn RunTasks>>,
) -> Result<SendableRecordBatchStream>
where
    F: Future<Output = Result<()>> + Send + 'static,
{
    let (out, said) = mpsc::channel(1);
    let mut first = None;
    let mut running = 0_usize;
    for make in lanes {
        running += 1;
        let work = make(Out(out.clone()));
        if first.is_none() {
            first = Some(work.boxed());
            continue;
        }
        let Some(tasks) = tasks else {
            return internal_err!("an operator of several lanes needs tasks of its run");
        };
        let out = out.clone();
        let work = async move {
            // The others would wait for it.
            let outcome = AssertUnwindSafe(work).catch_unwind().await;
            let outcome = outcome.unwrap_or_else(|panic| Err(broke_off(&*panic)));
            // Without a receiver there is nobody to hear of it.
            drop(out.send(Said::Ended(outcome)).await);
        };
        let work = wanted::carried(work.boxed());
        tasks.spawn(match ResultMemory::current() {
            Some(memory) => memory.over(work).boxed(),
            None => work,
        });
    }
    let produced = Produced { first, said, running };
    Ok(Box::pin(RecordBatchStreamAdapter::new(schema, produced)))
}

fn broke_off(panic: &(dyn Any + Send)) -> DataFusionError {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
    internal_datafusion_err!("a task of an operator broke off: {text}")
}

struct Produced {
    first: Option<BoxFuture<'static, Result<()>>>,
    said: mpsc::Receiver<Said>,
    /// Lanes that have not ended.
    running: usize,
}

impl Stream for Produced {
    type Item = Result<RecordBatch>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        loop {
            if let Poll::Ready(item) = this.poll_said(context) {
                return Poll::Ready(item);
            }
            let Some(first) = &mut this.first else { return Poll::Pending };
            match first.poll_unpin(context) {
                Poll::Ready(outcome) => {
                    this.first = None;
                    if let Some(error) = this.ended(outcome) {
                        return Poll::Ready(Some(Err(error)));
                    }
                }
                // It may have emitted a batch before it had to wait.
                Poll::Pending => return this.poll_said(context),
            }
        }
    }
}

impl Produced {
    /// The next batch of a lane, or the end of all.
    fn poll_said(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<RecordBatch>>> {
        loop {
            // Those that have ended have sent all of their rows before that.
            if self.running == 0 && self.said.is_empty() {
                return Poll::Ready(None);
            }
            match self.said.poll_recv(context) {
                Poll::Ready(Some(Said::Rows(batch))) => return Poll::Ready(Some(Ok(batch))),
                Poll::Ready(Some(Said::Ended(outcome))) => {
                    if let Some(error) = self.ended(outcome) {
                        return Poll::Ready(Some(Err(error)));
                    }
                }
                Poll::Ready(None) => {
                    self.running = 0;
                    let error = internal_datafusion_err!("a task of an operator broke off");
                    return Poll::Ready(Some(Err(error)));
                }
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    fn ended(&mut self, outcome: Result<()>) -> Option<DataFusionError> {
        self.running = self.running.saturating_sub(1);
        let error = outcome.err()?;
        // Nothing follows an error.
        self.first = None;
        self.running = 0;
        self.said.close();
        while self.said.try_recv().is_ok() {}
        Some(error)
    }
}
