//! A stream of the rows that an asynchronous function produces.

use std::pin::Pin;
use std::task::{Context, Poll};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion_common::{DataFusionError, Result};
use datafusion_execution::SendableRecordBatchStream;
use datafusion_physical_plan::stream::RecordBatchStreamAdapter;
use futures::future::BoxFuture;
use futures::{FutureExt, Stream};
use tokio::sync::mpsc;

/// Takes rows, one batch at a time: waits until the previous one is taken.
#[derive(Debug)]
pub(super) struct Out(mpsc::Sender<RecordBatch>);

impl Out {
    /// Emits `batch`.
    pub(super) async fn push(&self, batch: RecordBatch) {
        // A receiver that is gone drops the function too.
        drop(self.0.send(batch).await);
    }
}

/// The rows that `make` emits, then its error, if it fails. It runs only while it is polled, on the polling thread.
pub(super) fn produced<F>(
    schema: SchemaRef,
    make: impl FnOnce(Out) -> F,
) -> SendableRecordBatchStream
where
    F: Future<Output = Result<()>> + Send + 'static,
{
    let (out, rows) = mpsc::channel(1);
    let work = Some(make(Out(out)).boxed());
    Box::pin(RecordBatchStreamAdapter::new(schema, Produced { work, rows, failed: None }))
}

struct Produced {
    work: Option<BoxFuture<'static, Result<()>>>,
    rows: mpsc::Receiver<RecordBatch>,
    failed: Option<DataFusionError>,
}

impl Stream for Produced {
    type Item = Result<RecordBatch>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        if let Poll::Ready(Some(batch)) = this.rows.poll_recv(context) {
            return Poll::Ready(Some(Ok(batch)));
        }
        if let Some(work) = &mut this.work
            && let Poll::Ready(outcome) = work.poll_unpin(context)
        {
            this.work = None;
            this.failed = outcome.err();
        }
        match this.rows.poll_recv(context) {
            Poll::Ready(Some(batch)) => Poll::Ready(Some(Ok(batch))),
            // The function has ended.
            Poll::Ready(None) => Poll::Ready(this.failed.take().map(Err)),
            Poll::Pending => Poll::Pending,
        }
    }
}
