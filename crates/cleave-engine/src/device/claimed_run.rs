//! Fragment runs that may write into the space of a claim while their rows are taken: an execute request in, rows as
//! they are made out.
//!
//! The space is the run's for as long as the device may write there: [`ClaimedRun`] holds the [`Claim`] until the
//! device has reported how the run ended, which it does once the run has stopped. Dropping it earlier stops the run, in
//! a task that holds the claim until that is answered. Where the device does not answer any more, the space stays
//! unusable until the database is next opened, as after [a fragment that writes pages](super::writing_fragment).
//!
//! Of a mirror one copy has what the run writes. Nobody else reads it.

use std::sync::Arc;
use std::time::Duration;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use cleave_fragment::command::{CommandHeader, Execute, RunReport};
use cleave_fragment::link::{Link, LinkError, RunStream};
use futures::FutureExt;
use futures::future::{BoxFuture, pending};
use tokio::runtime::Handle;

use super::claim::UnderWay;
use super::space_extension::{GivenSpace, extend_space};
use super::{Claim, Device};

/// See the [module](self).
pub struct ClaimedRun {
    run: CommandHeader,
    stream: Option<Box<RunStream>>,
    /// Until the run has stopped.
    space: Option<(Arc<Claim>, UnderWay)>,
    /// Where it runs; None: a copy of a mirror, to which its link leads no more.
    device: Option<Arc<Device>>,
    /// Extends its space; ends where that fails.
    extending: BoxFuture<'static, LinkError>,
}

impl ClaimedRun {
    /// Begins `request`, whose reserved extents are taken and reserved with `claim`, and whose rows are of `schema`.
    /// Where it may be extended, it gets more space of the claim as it needs that, up to `block_count_max` blocks in
    /// all.
    ///
    /// # Errors
    /// Those of the link and the device.
    pub async fn begin(
        claim: Arc<Claim>,
        link: &Arc<dyn Link>,
        request: Execute,
        schema: &SchemaRef,
        block_count_max: u64,
    ) -> Result<Self, LinkError> {
        let under_way = claim.enter_write();
        let device = claim.device.copy_of(link);
        let given = GivenSpace::new(request.reserved.clone());
        let (run, extended) = (request.header, Arc::clone(&claim));
        let space = Some((claim, under_way));
        let mut begun = Self { run, stream: None, space, device, extending: pending().boxed() };
        match link.execute(request).await {
            Ok(stream) => {
                // First: where it has other rows, the run is stopped as it is when this is dropped.
                let stream = begun.stream.insert(Box::new(stream));
                stream.expect_rows(Arc::clone(schema))?;
                let limit = (&given, block_count_max);
                begun.extending = extend_space(&extended, link, run, stream, limit);
                Ok(begun)
            }
            Err(error) => {
                // A run that the device refused, or that was never sent, does not exist.
                if error.device_error().is_some() || matches!(error, LinkError::TooLarge { .. }) {
                    begun.stands_still();
                }
                Err(error)
            }
        }
    }

    /// As [`RunStream::next`]. Cancel-safe.
    pub async fn next(&mut self) -> Result<Option<RecordBatch>, LinkError> {
        let Some(stream) = &mut self.stream else { return Ok(None) };
        let outcome = tokio::select! {
            biased;
            outcome = stream.next() => outcome,
            error = &mut self.extending => {
                self.extending = pending().boxed();
                return Err(error);
            }
        };
        let has_ended = match &outcome {
            Ok(batch) => batch.is_none(),
            Err(error) => error.device_error().is_some(),
        };
        if has_ended {
            self.stands_still();
        }
        outcome
    }

    /// As [`RunStream::report`].
    pub fn report(&self) -> Option<&RunReport> {
        self.stream.as_ref()?.report()
    }

    /// As [`RunStream::waited`].
    pub fn waited(&self) -> Duration {
        self.stream.as_ref().map_or(Duration::ZERO, |stream| stream.waited())
    }

    /// As [`RunStream::slot_bytes`].
    pub fn slot_bytes(&self) -> u64 {
        self.stream.as_ref().map_or(0, |stream| stream.slot_bytes())
    }

    fn stands_still(&mut self) {
        // It holds the claim, too.
        self.extending = pending().boxed();
        if let Some((claim, under_way)) = self.space.take() {
            claim.finish_write(false);
            drop(claim);
            drop(under_way);
        }
    }
}

impl Drop for ClaimedRun {
    fn drop(&mut self) {
        let Some((claim, under_way)) = self.space.take() else { return };
        self.extending = pending().boxed();
        let (run, stream, device) = (self.run, self.stream.take(), self.device.take());
        let Ok(runtime) = Handle::try_current() else {
            // The device cannot be asked any more.
            claim.finish_write(true);
            return;
        };
        let stop = async move {
            let may_write = match &device {
                Some(device) => !claim.stopped(device, run).await,
                None => true,
            };
            // Held until then: its end releases the run, and a run that is gone cannot be waited for.
            drop(stream);
            // Not reached by a task that dies, or that a runtime which ends drops: that run stays unfinished.
            claim.finish_write(may_write);
            drop(claim);
            drop(under_way);
        };
        // Detached on purpose: the space is used for nothing else before the device has answered.
        drop(runtime.spawn(stop));
    }
}
