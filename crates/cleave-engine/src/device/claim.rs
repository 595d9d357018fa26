//! Space that a statement took on one device, and the writes into it. On a mirror it is space of all copies, of which
//! the claim knows what each [lacks](copies).

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use cleave_catalog::catalog::{DeviceId, HeldSpace};
use cleave_catalog::error::{Error, Result};
use cleave_catalog::storage_error::StorageError;
use cleave_fragment::command::{Reply, Request};
use cleave_fragment::link::{AttachMode, LinkError};
use cleave_media::{BlockAddress, Extent};
use tokio::sync::{oneshot, watch};

use super::Device;

mod copies;

/// SQLSTATE of a device without space.
pub const DISK_FULL: &str = "53100";

/// Space on one device that a statement took. What is still claimed when the last holder lets go
/// is free again, unless it was committed.
///
/// Every write under way holds the claim too: space is never given to another statement while an
/// abandoned one may still write to it.
#[derive(Debug)]
pub struct Claim {
    pub(super) device: Arc<Device>,
    state: Mutex<ClaimState>,
    /// How many of its writes are under way.
    under_way: watch::Sender<usize>,
}

impl HeldSpace for Claim {}

#[derive(Debug, Default)]
struct ClaimState {
    extents: Vec<Extent>,
    /// The start number of the remote device, or of each copy of a mirror, when it took its first reservation; None: it
    /// has been restarted since.
    incarnations: BTreeMap<DeviceId, Option<u64>>,
    /// What copies of a mirror have not got of the extents.
    lacking: BTreeMap<DeviceId, Vec<Extent>>,
    /// Parts of that which are being copied.
    copying: Vec<Extent>,
    /// Writes that were begun and have no outcome yet.
    unfinished_writes: usize,
    /// A write may reach the device after its link was lost.
    doubtful: bool,
}

impl Claim {
    /// No space yet.
    pub fn new(device: Arc<Device>) -> Self {
        Self { device, state: Mutex::default(), under_way: watch::Sender::new(0) }
    }

    /// Takes space, and tells the device that the statement will write to it. Where the device has not as much, those
    /// who [hold space](crate::space_holders) give it up first. Where it is too little still, or the caller gives up
    /// before this has ended, none is taken.
    ///
    /// One caller at a time asks a device for space: a larger request that will fail would hide space from this one.
    ///
    /// # Errors
    /// As [`Device::call`], with [`DISK_FULL`] where there is no room; [`StorageError::Restarted`] as
    /// [`Claim::sync_written`]; [`StorageError::SpaceUnknown`].
    pub async fn acquire(&self, block_count: u32) -> Result<Extent> {
        let _turns = self.device.space_turns().await;
        match self.acquire_what_is_free(block_count).await {
            Err(error) if error.sqlstate() == DISK_FULL && self.device.makes_room() => {
                self.acquire_what_is_free(block_count).await
            }
            outcome => outcome,
        }
    }

    async fn acquire_what_is_free(&self, block_count: u32) -> Result<Extent> {
        let extent = self.take(block_count);
        let mut taken = Taken { claim: self, extent, is_kept: false };
        let reserved = self.reserve(extent).await;
        taken.is_kept = !reserved.as_ref().is_err_and(|error| error.sqlstate() == DISK_FULL);
        reserved.map(|()| extent)
    }

    fn take(&self, block_count: u32) -> Extent {
        let extent = self.device.take_free(block_count);
        self.state().extents.push(extent);
        extent
    }

    /// Tells the device that the statement will write to `extent`, which was taken.
    async fn reserve(&self, extent: Extent) -> Result<()> {
        self.device.check_space_known()?;
        if let Some(mirror) = &self.device.mirror {
            return self.reserve_on_copies(mirror, extent).await;
        }
        let reserved = self.device.reserve(vec![extent]);
        let is_known = self.state().incarnations.contains_key(&self.device.id());
        if is_known || self.device.mode() == AttachMode::Embedded {
            return reserved.await;
        }
        // Asked before anything is written, so that every write is this start's or the sync notices;
        // side by side, so that it costs no round trip.
        let asked = Box::pin(self.device.incarnation());
        let (incarnation, ()) = futures::future::try_join(asked, reserved).await?;
        // Pages and keys reserve for themselves, and may both have been the first.
        match self.note_start(self.device.id(), incarnation) {
            true => Ok(()),
            false => Err(self.device.restarted()),
        }
    }

    /// Notes the start number that a device had before a write there; false: it was another one before.
    fn note_start(&self, device: DeviceId, incarnation: u64) -> bool {
        let mut state = self.state();
        let first = state.incarnations.entry(device).or_insert(Some(incarnation));
        if *first != Some(incarnation) {
            *first = None;
        }
        first.is_some()
    }

    /// Makes all that was written durable.
    ///
    /// # Errors
    /// As [`Device::call`]; [`StorageError::Restarted`] where the device was restarted since the first reservation, and
    /// may have lost writes that it had acknowledged.
    pub async fn sync_written(self: &Arc<Self>) -> Result<()> {
        self.sync_written_within(self.device.timeout()).await
    }

    /// The same, for at most `patience`.
    ///
    /// # Errors
    /// As above.
    pub(crate) async fn sync_written_within(self: &Arc<Self>, patience: Duration) -> Result<()> {
        if let Some(mirror) = &self.device.mirror {
            return self.sync_on_copies(mirror, patience).await;
        }
        self.device.sync_within(patience).await?;
        if self.device.mode() == AttachMode::Embedded {
            // It ends with this process, and all statements with it.
            return Ok(());
        }
        let incarnation = self.device.incarnation().await?;
        match self.start_of(self.device.id()) {
            Some(Some(first)) if first == incarnation => Ok(()),
            _ => Err(self.device.restarted()),
        }
    }

    /// The start number that a device had when it took the first reservation; None: it took none; Some(None): it has
    /// been restarted since.
    fn start_of(&self, device: DeviceId) -> Option<Option<u64>> {
        self.state().incarnations.get(&device).copied()
    }

    /// Whether the device has not been restarted since it was first written to; of a mirror, a copy that has all of it.
    pub async fn is_of_this_start(&self) -> bool {
        if let Some(mirror) = &self.device.mirror {
            return self.is_on_a_copy(mirror).await;
        }
        if self.device.mode() == AttachMode::Embedded {
            return true;
        }
        let incarnation = self.device.incarnation().await.ok();
        incarnation.is_some() && self.start_of(self.device.id()) == Some(incarnation)
    }

    /// Gives back `part` of an extent that was taken: no write to it is under way, and none will be begun.
    pub fn give_back(&self, part: Extent) {
        if self.give_up(part) {
            self.device.let_free(part);
        }
    }

    /// Gives back the `space` of a fragment that is left to the host. If the fragment `may_write` there still, it stays
    /// in use until the database is next opened.
    pub(crate) fn give_back_of_run(&self, space: Vec<Extent>, may_write: bool) {
        for extent in space {
            if !may_write {
                self.give_back(extent);
            } else if self.give_up(extent) {
                self.device.space_map().doubtful_blocks += u64::from(extent.block_count);
            }
        }
    }

    /// Makes `part` of an extent that was taken the statement's no more; false: there is none of it.
    fn give_up(&self, part: Extent) -> bool {
        if part.block_count == 0 {
            return false;
        }
        let mut state = self.state();
        let Some(place) = state.extents.iter().position(|extent| extent.contains(part)) else {
            debug_assert!(false, "{part} was not claimed");
            return false;
        };
        let whole = state.extents.swap_remove(place);
        let before = part.start.0 - whole.start.0;
        let behind = whole.end().0 - part.end().0;
        for (start, blocks) in [(whole.start.0, before), (part.end().0, behind)] {
            if let Ok(block_count @ 1..) = u32::try_from(blocks) {
                state.extents.push(Extent { start: BlockAddress(start), block_count });
            }
        }
        for lacking in state.lacking.values_mut() {
            *lacking = free_of(std::mem::take(lacking), &[part]);
        }
        // The copy may get it when it has another use already.
        let copying = state.copying.iter().filter(|piece| piece.overlaps(part));
        copying.for_each(|piece| self.device.doubt(*piece));
        true
    }

    /// Begins to write `bytes` at `start`, inside of what was taken and reserved. The write goes on to
    /// its end even if nobody waits for it any more.
    pub fn begin_write(self: &Arc<Self>, start: BlockAddress, bytes: Bytes) -> PendingWrite {
        let ended = match self.device.is_mirror() {
            true => {
                let claim = Arc::clone(self);
                self.begin(async move { claim.write_on_copies(start, bytes).await })
            }
            false => {
                let device = Arc::clone(&self.device);
                self.begin(async move { device.write(start, bytes).await })
            }
        };
        PendingWrite { ended }
    }

    /// Sends a command that may write to what was taken and reserved, and waits for its answer. It goes on to its end
    /// like a write.
    ///
    /// # Errors
    /// As [`Device::call`].
    pub async fn call(self: &Arc<Self>, action: &'static str, request: Request) -> Result<Reply> {
        let device = Arc::clone(&self.device);
        ended(self.begin(async move { device.call(action, request).await })).await
    }

    /// Begins `writing`, which may write inside of what was taken.
    fn begin<T: Send + 'static>(
        self: &Arc<Self>,
        writing: impl Future<Output = Result<T>> + Send + 'static,
    ) -> oneshot::Receiver<Result<T>> {
        let claim = Arc::clone(self);
        let (done, ended) = oneshot::channel();
        let under_way = self.enter_write();
        let write = async move {
            let outcome = writing.await;
            // Not reached by a task that dies, or that a runtime which ends drops: that write stays
            // unfinished.
            claim.finish_write(outcome.as_ref().is_err_and(may_have_happened));
            // First: a caller that sees the write finished finds the space free.
            drop(claim);
            drop(under_way);
            // The receiver is gone where the statement was cancelled.
            drop(done.send(outcome));
        };
        #[expect(
            clippy::disallowed_methods,
            reason = "a write that was begun must end before its space is used again, so giving up \
                      the statement must not cancel it; the claim that it holds is what owns it"
        )]
        drop(tokio::spawn(write));
        ended
    }

    /// Writes `bytes` at `start`, as [`Claim::begin_write`], and waits for it.
    ///
    /// # Errors
    /// As [`Device::call`].
    pub async fn write(self: &Arc<Self>, start: BlockAddress, bytes: Bytes) -> Result<()> {
        self.begin_write(start, bytes).ended().await
    }

    /// Waits until no write is under way. Then the space is free as soon as the last holder lets go.
    pub(crate) async fn writes_ended(&self) {
        // The counter lives as long as the claim does.
        drop(self.under_way.subscribe().wait_for(|count| *count == 0).await);
    }

    /// Where the space is.
    pub(crate) fn device_id(&self) -> DeviceId {
        self.device.id()
    }

    /// Blocks taken and not given back.
    pub fn block_count(&self) -> u64 {
        self.state().extents.iter().map(|extent| u64::from(extent.block_count)).sum()
    }

    /// Counts a write that begins. It stays unfinished until [`Claim::finish_write`], and under way until what this
    /// gives is dropped.
    pub(super) fn enter_write(&self) -> UnderWay {
        self.state().unfinished_writes += 1;
        UnderWay::begin(&self.under_way)
    }

    /// Counts a finished write; the device may still be working on it.
    pub(super) fn finish_write(&self, is_doubtful: bool) {
        let mut state = self.state();
        state.unfinished_writes -= 1;
        state.doubtful |= is_doubtful;
    }

    /// The manifest names the space now: it is no longer the statement's.
    pub fn commit(&self) {
        let mut state = self.state();
        state.extents.clear();
        state.lacking.clear();
    }

    /// The manifest names `named`, ascending, of the space now; the rest is the transaction's still.
    pub(crate) fn commit_named(&self, named: &[Extent]) {
        let mut state = self.state();
        let extents = std::mem::take(&mut state.extents);
        state.extents = extents.into_iter().flat_map(|extent| gaps(extent, named)).collect();
        for lacking in state.lacking.values_mut() {
            *lacking = free_of(std::mem::take(lacking), named);
        }
    }

    /// Gives back all but `named`, which ascend: nobody reads or writes the rest.
    pub fn keep_only(&self, named: &[Extent]) {
        let extents = self.state().extents.clone();
        for gap in extents.into_iter().flat_map(|extent| gaps(extent, named)) {
            self.give_back(gap);
        }
    }

    fn state(&self) -> MutexGuard<'_, ClaimState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Space that is given back unless it is kept.
struct Taken<'a> {
    claim: &'a Claim,
    extent: Extent,
    is_kept: bool,
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        if !self.is_kept {
            self.claim.give_back(self.extent);
        }
    }
}

/// The parts of `extents` that are in none of `used`.
pub fn free_of(extents: Vec<Extent>, used: &[Extent]) -> Vec<Extent> {
    let mut used = used.to_vec();
    used.sort_unstable();
    extents.into_iter().flat_map(|extent| gaps(extent, &used)).collect()
}

/// The parts of `extent` that are in none of `named`, which ascend.
fn gaps(extent: Extent, named: &[Extent]) -> Vec<Extent> {
    let mut gaps = Vec::new();
    let mut start = extent.start.0;
    let mut add = |start: u64, end: u64| {
        if let Ok(block_count @ 1..) = u32::try_from(end.saturating_sub(start)) {
            gaps.push(Extent { start: BlockAddress(start), block_count });
        }
    };
    let first = named.partition_point(|named| named.end() <= extent.start);
    let within = named.iter().skip(first).take_while(|named| named.start < extent.end());
    for named in within {
        add(start, named.start.0);
        start = named.end().0;
    }
    add(start, extent.end().0);
    gaps
}

/// One of the writes that are counted, until it is dropped.
pub(super) struct UnderWay(watch::Sender<usize>);

impl UnderWay {
    fn begin(count: &watch::Sender<usize>) -> Self {
        count.send_modify(|count| *count += 1);
        Self(count.clone())
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

/// A write under way.
#[derive(Debug)]
pub struct PendingWrite {
    ended: oneshot::Receiver<Result<()>>,
}

impl PendingWrite {
    /// Waits until the device has acknowledged it.
    ///
    /// # Errors
    /// As [`Device::call`].
    pub async fn ended(self) -> Result<()> {
        ended(self.ended).await
    }
}

pub(super) async fn ended<T>(ended: oneshot::Receiver<Result<T>>) -> Result<T> {
    ended.await.unwrap_or_else(|_| {
        let error = std::io::Error::other("the program is shutting down");
        Err(Error::io("write to", Path::new("a device"), error))
    })
}

/// Whether a write that failed may still reach the media.
pub fn may_have_happened(error: &Error) -> bool {
    let Error::Storage(error) = error else { return false };
    match &**error {
        StorageError::DeviceLost { .. } => true,
        // Too large for one command: refused on this side of the link.
        StorageError::Link { source, .. } => !matches!(source, LinkError::TooLarge { .. }),
        _ => false,
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let state = std::mem::take(&mut *self.state());
        let is_doubtful = state.doubtful || state.unfinished_writes > 0;
        for extent in state.extents {
            if is_doubtful {
                self.device.space_map().doubtful_blocks += u64::from(extent.block_count);
            } else {
                self.device.let_free(extent);
            }
        }
    }
}

#[cfg(test)]
mod tests;
