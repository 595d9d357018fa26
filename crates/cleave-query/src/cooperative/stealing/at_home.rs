//! Morsels that the host has taken of a run and has no memory for: what nobody has of them in, their rows out, from
//! another run on the device of the first one.
//!
//! The host's own part may fail before it gives out a row: its build sides do not fit, say. Then it leaves everything
//! to the devices. But leases of other nodes may come back, and the host may have taken morsels for itself. When the
//! run is over its device has its memory again, with which the run has made the other rows, and gets these morsels as a
//! lease of its own.
//!
//! Invariant: rows are given out as they come, so that a failure after the first of them fails the statement. Before
//! it, the morsels come back as those of any other lease do.

use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::error::{DataFusionError, Result};
use futures::future::TryFutureExt;
use futures::stream::{self, BoxStream, StreamExt, TryStreamExt};

use super::across_nodes::{Leased, LentRun};
use crate::cooperative::fragment_exec::fault;
use crate::cooperative::spill_space::DeviceRun;

/// A lease that the device of the run has.
struct AtHome {
    run: Arc<LentRun>,
    stream: DeviceRun,
    lease: Leased,
}

/// The rows of what was taken of `run` and is with nobody. None: nothing is.
pub(in crate::cooperative) fn rows(
    run: &Arc<LentRun>,
) -> Option<BoxStream<'static, Result<RecordBatch>>> {
    let lease = run.stealing.lease_rest()?;
    let begun = AtHome::begin(Arc::clone(run), lease);
    let rows = begun.map_ok(|at_home| stream::try_unfold(at_home, AtHome::next));
    Some(stream::once(rows).try_flatten().boxed())
}

impl AtHome {
    async fn begin(run: Arc<LentRun>, lease: Leased) -> Result<Self> {
        let (device, link) = run.stealing.home();
        let request = Box::pin(run.request(device, &lease)).await?;
        let spill_bytes = run.node.context.settings().device_spill_bytes;
        let plan = (&run.prepared.plan, spill_bytes);
        let begun = Box::pin(DeviceRun::begin(device, link, request, plan)).await;
        match begun {
            Ok(stream) => Ok(Self { run, stream, lease }),
            Err(error) => {
                device.note_run_failure(&error);
                Err(fault(device, link, error).await)
            }
        }
    }

    /// The next rows, if there are more.
    async fn next(mut self) -> Result<Option<(RecordBatch, Self)>> {
        loop {
            let next = self.stream.next().await;
            let failed = match next {
                Ok(Some(batch)) => return Ok(Some((batch, self))),
                Ok(None) => return self.end().map(|()| None),
                Err(error) => self.stream.begin_again(error).await.err(),
            };
            if let Some(error) = failed {
                let (device, link) = self.run.stealing.home();
                device.note_run_failure(&error);
                return Err(fault(device, link, error).await);
            }
        }
    }

    /// Its run has ended.
    fn end(self) -> Result<()> {
        let (device, _) = self.run.stealing.home();
        let report = self.lease.report_of(&self.stream).map_err(DataFusionError::Execution)?;
        self.lease.done(device.name(), &report);
        Ok(())
    }
}
