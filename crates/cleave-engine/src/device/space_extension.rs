//! Extends the space of a run that has filled it: what the run needs in, extensions of its space out.
//!
//! 1. The run says over its stream that it is full, and waits ([`SpaceNeed`]).
//! 2. [`SpaceExtension`] takes space with the run's [`Claim`], which reserves it on the device, and names it to the run
//!    ([`Request::Extend`]). Extensions double in size up to [`EXTENSION_BLOCKS_MAX`], so that a run that writes much
//!    waits seldom, and one that writes little leaves little unused.
//! 3. Where there is no space, or no more may be taken, an extension without extents says so, and the run fails.
//!
//! Invariant: an extension of one number always has the same extents, so that it may be repeated. All of it belongs to
//! the claim, which lets go of it only when the run has stopped.

use std::sync::{Arc, Mutex, PoisonError};

use cleave_fragment::command::{
    Command, CommandHeader, DeviceError, DeviceErrorCause, Reply, Request, SpaceNeed,
};
use cleave_fragment::link::{Link, LinkError, RunStream};
use cleave_media::Extent;
use futures::FutureExt;
use futures::future::{BoxFuture, pending};
use tokio::sync::watch;

use super::{Claim, DISK_FULL};

/// Blocks of the first extension of a run.
const EXTENSION_BLOCKS_FIRST: u32 = 256;
/// Most blocks of an extension, except for a page that is larger: 16 MiB.
const EXTENSION_BLOCKS_MAX: u32 = 4096;

/// The extents that a run may write to so far. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct GivenSpace(Arc<Mutex<Vec<Extent>>>);

impl GivenSpace {
    /// `extents`, with which a run begins.
    pub(super) fn new(extents: Vec<Extent>) -> Self {
        Self(Arc::new(Mutex::new(extents)))
    }

    /// The extents.
    pub(super) fn extents(&self) -> Vec<Extent> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Their blocks.
    pub(super) fn block_count(&self) -> u64 {
        let extents = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        extents.iter().map(|extent| u64::from(extent.block_count)).sum()
    }

    fn add(&self, extent: Extent) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(extent);
    }
}

/// See the [module](self).
struct SpaceExtension {
    claim: Arc<Claim>,
    link: Arc<dyn Link>,
    run: CommandHeader,
    needs: watch::Receiver<Option<SpaceNeed>>,
    space: GivenSpace,
    /// The extensions so far; None: there was no space.
    answered: Vec<Option<Extent>>,
    next_blocks: u32,
    block_count_max: u64,
}

/// Extends `space`, that of `run`, with space of `claim` up to `block_count_max` blocks in all, as `stream` says that
/// it is needed. It ends only where that fails, with the reason; dropped, it extends no more.
pub(super) fn extend_space(
    claim: &Arc<Claim>,
    link: &Arc<dyn Link>,
    run: CommandHeader,
    stream: &RunStream,
    (space, block_count_max): (&GivenSpace, u64),
) -> BoxFuture<'static, LinkError> {
    let Some(needs) = stream.space_needs() else { return pending().boxed() };
    let extension = SpaceExtension {
        claim: Arc::clone(claim),
        link: Arc::clone(link),
        run,
        needs,
        space: space.clone(),
        answered: Vec::new(),
        next_blocks: EXTENSION_BLOCKS_FIRST,
        block_count_max,
    };
    extension.serve().boxed()
}

impl SpaceExtension {
    async fn serve(mut self) -> LinkError {
        loop {
            let need = *self.needs.borrow_and_update();
            if let Some(need) = need
                && let Err(error) = self.answer(need).await
            {
                return error;
            }
            if self.needs.changed().await.is_err() {
                // The stream is gone, and whoever waits for this with it.
                return pending().await;
            }
        }
    }

    async fn answer(&mut self, need: SpaceNeed) -> Result<(), LinkError> {
        let device = self.link.device();
        let strange = |detail: String| LinkError::Protocol { device, detail };
        let place = usize::try_from(need.extension).ok().and_then(|number| number.checked_sub(1));
        let Some(place) = place.filter(|place| *place <= self.answered.len()) else {
            let (number, next) = (need.extension, self.answered.len() + 1);
            return Err(strange(format!(
                "a run asked for extension {number} where {next} was due"
            )));
        };
        if place == self.answered.len() {
            let extension = self.acquire(need.block_count).await;
            self.answered.push(extension);
        }
        let extents = self.answered.get(place).copied().flatten().into_iter().collect();
        let header = CommandHeader { run: self.run.run, ..self.claim.device.header() };
        let request = Request::Extend { number: need.extension, extents };
        match self.link.call(Command::new(header, request)).await {
            Ok(Reply::Done) => Ok(()),
            Ok(other) => Err(strange(format!("it answered an extension with {other:?}"))),
            // Not taken for the run's own refusal, which would say that the run has stopped.
            Err(error) => Err(match error.device_error() {
                Some(DeviceError { cause: DeviceErrorCause::Refused, message }) => {
                    strange(format!("it refused an extension: {message}"))
                }
                _ => error,
            }),
        }
    }

    /// Space for at least `block_count` blocks in one piece; None: there is none. Why is of no use to the run; whoever
    /// does without it gets the error of the device.
    async fn acquire(&mut self, block_count: u32) -> Option<Extent> {
        let left = self.block_count_max.saturating_sub(self.space.block_count());
        let left = u32::try_from(left).unwrap_or(u32::MAX);
        if left < block_count {
            return None;
        }
        let wanted = block_count.max(self.next_blocks).min(left);
        self.next_blocks = self.next_blocks.saturating_mul(2).min(EXTENSION_BLOCKS_MAX);
        let extent = match self.claim.acquire(wanted).await {
            // There may be room for what is needed, if not for what may be.
            Err(error) if wanted > block_count && error.sqlstate() == DISK_FULL => {
                self.claim.acquire(block_count).await.ok()?
            }
            acquired => acquired.ok()?,
        };
        self.space.add(extent);
        Some(extent)
    }
}

#[cfg(test)]
mod tests;
