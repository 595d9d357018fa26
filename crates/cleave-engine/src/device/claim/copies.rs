//! Claims on a mirror: what is written goes to all current copies, and the claim knows what each copy has not got.
//!
//! ```text
//!  written by the host   ─▶ each current copy ─▶ lacking on those that have not done it, and on stale ones
//!  written by a fragment ─▶ the copy that runs it ─▶ lacking on all others ─▶ copied when the run has ended
//!  sync                  ─▶ what a current copy lacks is copied there ─▶ each is synced, and was not restarted
//! ```
//!
//! 1. A copy that is stale when space is taken, and current when that is written, reserves it then.
//! 2. A copy that is stale when pages are written, and current when they are synced, gets them from another one, which
//!    must not have been restarted since it got them.
//!
//! Invariant: after a sync each copy that is still current has all of the claim durable. A sync for a commit is made
//! under the writer lock, under which alone a copy becomes current.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cleave_catalog::catalog::DeviceId;
use cleave_catalog::error::{Error, Result};
use cleave_fragment::waiting;
use cleave_media::{BLOCK_SIZE, BlockAddress, Extent};
use futures::FutureExt;
use futures::future::BoxFuture;

use super::{Claim, ended, free_of};
use crate::device::Device;
use crate::device::mirror::{COPY_SYNC_WAIT, COPY_WAIT, Mirror, Outcomes, may_still_happen, sync};
use crate::device::whole_pages::blocks;

/// Blocks that are copied from one copy to another at once: 1 MiB.
const PIECE_BLOCKS: u32 = 256;

/// Why a copy did not get what it lacks.
enum Missed {
    /// It does not take it.
    Itself(Error),
    /// No other copy gives it.
    Source(Error),
}

impl Claim {
    /// Reserves `extent` on all current copies.
    ///
    /// # Errors
    /// Those of the copies, if none has done it.
    pub(super) async fn reserve_on_copies(&self, mirror: &Mirror, extent: Extent) -> Result<()> {
        let known = self.state().incarnations.clone();
        let reserve = move |copy: Arc<Device>| {
            let is_known = known.contains_key(&copy.id());
            async move { reserve(&copy, extent, is_known).await }.boxed()
        };
        let how = ("reserve space", COPY_WAIT);
        for (copy, start) in mirror.by_current(how, reserve, |_| {}).await? {
            self.note_start_of(copy, start);
        }
        Ok(())
    }

    fn note_start_of(&self, copy: DeviceId, start: Option<u64>) {
        if let Some(start) = start {
            // One that was restarted meanwhile fails when it is synced.
            self.note_start(copy, start);
        }
    }

    /// Writes `bytes` at `start` on all current copies.
    ///
    /// # Errors
    /// Those of the copies, if none has done it.
    pub(super) async fn write_on_copies(&self, start: BlockAddress, bytes: Bytes) -> Result<()> {
        let Some(mirror) = &self.device.mirror else { return Ok(()) };
        let block_count = u32::try_from(bytes.len() / BLOCK_SIZE).unwrap_or(u32::MAX);
        let extent = Extent { start, block_count };
        let known = self.state().incarnations.clone();
        let write = move |copy: Arc<Device>| {
            let (is_known, bytes) = (known.contains_key(&copy.id()), bytes.clone());
            async move { write(&copy, extent, bytes, is_known).await }.boxed()
        };
        let doubt = |outcomes: &Outcomes<_>| {
            if outcomes.iter().any(|(_, outcome)| outcome.as_ref().is_err_and(may_still_happen)) {
                mirror.doubt(extent);
            }
        };
        let done = mirror.by_current(("write", COPY_WAIT), write, doubt).await?;
        for (copy, start) in &done {
            self.note_start_of(*copy, *start);
        }
        self.note_lacking(mirror, &[extent], |copy| done.iter().all(|(done, _)| *done != copy));
        Ok(())
    }

    /// Notes that a fragment on `copy` has written to `extents`, and that the other copies lack them.
    pub(in crate::device) fn note_written_on(&self, copy: DeviceId, extents: &[Extent]) {
        if let Some(mirror) = &self.device.mirror {
            self.note_lacking(mirror, extents, |other| other != copy);
        }
    }

    fn note_lacking(&self, mirror: &Mirror, extents: &[Extent], lacks: impl Fn(DeviceId) -> bool) {
        let mut state = self.state();
        for copy in mirror.copies().iter().map(|copy| copy.id()).filter(|copy| lacks(*copy)) {
            let lacking = state.lacking.entry(copy).or_default();
            for extent in extents {
                let goes_on = |last: &&mut Extent| {
                    let count = last.block_count.checked_add(extent.block_count);
                    last.end() == extent.start && count.is_some()
                };
                match lacking.last_mut().filter(goes_on) {
                    Some(last) => last.block_count += extent.block_count,
                    None => lacking.push(*extent),
                }
            }
        }
    }

    /// Copies what current copies lack to them. One that does not take it has failed; what cannot be read now is tried
    /// again by the next sync.
    pub(in crate::device) async fn complete_copies(self: &Arc<Self>) {
        let Some(mirror) = &self.device.mirror else { return };
        let mut outcomes = Outcomes::new();
        for copy in mirror.current() {
            match self.complete(mirror, &copy, copy.timeout()).await {
                Ok(()) => outcomes.push((copy.id(), Ok(()))),
                Err(Missed::Itself(error)) => outcomes.push((copy.id(), Err(error))),
                Err(Missed::Source(_)) => {}
            }
        }
        drop(mirror.settle(outcomes));
    }

    /// Makes all that was written durable on the current copies.
    ///
    /// # Errors
    /// Those of the copies, if none has done it.
    pub(super) async fn sync_on_copies(
        self: &Arc<Self>,
        mirror: &Mirror,
        patience: Duration,
    ) -> Result<()> {
        let (mut outcomes, mut complete) = (Outcomes::new(), Vec::new());
        for copy in mirror.current() {
            match self.complete(mirror, &copy, patience).await {
                Ok(()) => complete.push(copy),
                // Where another copy has it durable, this one has missed it, for whatever reason.
                Err(Missed::Itself(error) | Missed::Source(error)) => {
                    outcomes.push((copy.id(), Err(error)));
                }
            }
        }
        let starts = self.state().incarnations.clone();
        let syncing = mirror.each(&complete, ("sync", COPY_SYNC_WAIT), move |copy| {
            let start = starts.get(&copy.id()).copied();
            async move {
                sync(&copy, patience).await?;
                let incarnation = copy.incarnation().await?;
                match start {
                    Some(start) if start != Some(incarnation) => Err(copy.restarted()),
                    // None: it has been given nothing of this.
                    _ => Ok(()),
                }
            }
            .boxed()
        });
        outcomes.extend(syncing.await);
        mirror.settle(outcomes).map(drop)
    }

    /// Whether a current copy that has not been restarted has all that was written.
    pub(super) async fn is_on_a_copy(&self, mirror: &Mirror) -> bool {
        for copy in mirror.current() {
            if self.lacking_on(copy.id()).is_empty()
                && let Ok(incarnation) = copy.incarnation().await
                && self.start_of(copy.id()) == Some(Some(incarnation))
            {
                return true;
            }
        }
        false
    }

    fn lacking_on(&self, copy: DeviceId) -> Vec<Extent> {
        self.state().lacking.get(&copy).cloned().unwrap_or_default()
    }

    /// Gives `copy` what it lacks, each piece read within `patience`.
    fn complete<'a>(
        self: &'a Arc<Self>,
        mirror: &'a Mirror,
        copy: &'a Arc<Device>,
        patience: Duration,
    ) -> BoxFuture<'a, Result<(), Missed>> {
        async move {
            while let Some(copying) = self.begin_copying(copy.id()) {
                let piece = copying.piece;
                let bytes = self.read_from_another(mirror, copy.id(), piece, patience).await?;
                // As long as for a sync: another copy has it.
                let wait = patience.min(COPY_SYNC_WAIT);
                let given = self.give(mirror, copy, (copying, bytes), wait).await;
                given.map_err(Missed::Itself)?;
                let mut state = self.state();
                let lacking = state.lacking.entry(copy.id()).or_default();
                *lacking = free_of(std::mem::take(lacking), &[piece]);
            }
            Ok(())
        }
        .boxed()
    }

    /// The next piece that `copy` lacks. It is not used for anything else while it is copied.
    fn begin_copying(self: &Arc<Self>, copy: DeviceId) -> Option<Copying> {
        let mut state = self.state();
        let first = *state.lacking.get(&copy)?.first()?;
        let piece = Extent { block_count: first.block_count.min(PIECE_BLOCKS), ..first };
        state.copying.push(piece);
        Some(Copying { claim: Arc::clone(self), piece })
    }

    /// Reads `piece` from a current copy other than `copy` that has it, and has not been restarted since.
    async fn read_from_another(
        &self,
        mirror: &Mirror,
        copy: DeviceId,
        piece: Extent,
        patience: Duration,
    ) -> Result<Bytes, Missed> {
        let mut first = None;
        for other in mirror.current().into_iter().filter(|other| other.id() != copy) {
            if self.lacking_on(other.id()).iter().any(|lacking| lacking.overlaps(piece)) {
                continue;
            }
            let reading = Box::pin(async {
                let bytes = blocks(&other, piece).await?;
                // Asked behind the read: what was not synced may be gone after a restart.
                let incarnation = other.incarnation().await?;
                match self.start_of(other.id()) == Some(Some(incarnation)) {
                    true => Ok(bytes),
                    false => Err(other.restarted()),
                }
            });
            let read = waiting::timeout(patience, reading).await;
            match read.unwrap_or_else(|| Err(other.unanswered("read", patience))) {
                Ok(bytes) => return Ok(bytes),
                Err(error) => first = first.or(Some(error)),
            }
        }
        Err(Missed::Source(first.unwrap_or_else(|| mirror.none_left())))
    }

    /// Writes a piece to `copy`, which may not have reserved it.
    async fn give(
        self: &Arc<Self>,
        mirror: &Mirror,
        copy: &Arc<Device>,
        (copying, bytes): (Copying, Bytes),
        patience: Duration,
    ) -> Result<()> {
        let piece = copying.piece;
        let late = || copy.unanswered("write", patience);
        let is_known = self.start_of(copy.id()).is_some();
        let reserving = Box::pin(reserve(copy, piece, is_known));
        let reserved = waiting::timeout(patience, reserving).await;
        self.note_start_of(copy.id(), reserved.unwrap_or_else(|| Err(late()))?);
        // It holds the claim until it is answered, whoever waits. Doubt is noted for this piece alone.
        let (writing, of) = (Arc::clone(copy), Arc::clone(&self.device));
        let written = self.begin(async move {
            let outcome = writing.write(piece.start, bytes).await;
            if outcome.as_ref().is_err_and(may_still_happen) {
                of.doubt(piece);
            }
            drop(copying);
            Ok(outcome)
        });
        match waiting::timeout(patience, ended(written)).await {
            Some(outcome) => outcome?,
            None => {
                copy.note_slow();
                mirror.doubt(piece);
                Err(late())
            }
        }
    }
}

/// A piece that is being copied to a copy that lacks it.
struct Copying {
    claim: Arc<Claim>,
    piece: Extent,
}

impl Drop for Copying {
    fn drop(&mut self) {
        let mut state = self.claim.state();
        let place = state.copying.iter().position(|piece| *piece == self.piece);
        if let Some(place) = place {
            state.copying.swap_remove(place);
        }
    }
}

/// Reserves `extent` on `copy`; returns its start number, unless that is known.
async fn reserve(copy: &Device, extent: Extent, is_known: bool) -> Result<Option<u64>> {
    match reserve_once(copy, extent, is_known).await {
        // A link that was lost shows at its next use. The copy may be there, and is not given up for that.
        Err(Error::Storage(error)) if error.is_device_lost() => {
            Box::pin(reserve_once(copy, extent, is_known)).await
        }
        outcome => outcome,
    }
}

async fn reserve_once(copy: &Device, extent: Extent, is_known: bool) -> Result<Option<u64>> {
    let reserved = copy.reserve(vec![extent]);
    if is_known {
        return reserved.await.map(|()| None);
    }
    // As for a device alone: asked before anything is written.
    let asked = Box::pin(copy.incarnation());
    let (incarnation, ()) = futures::future::try_join(asked, reserved).await?;
    Ok(Some(incarnation))
}

/// Writes `bytes` to `extent` of `copy`. One that has reserved nothing of the claim was stale until now: it reserves
/// this first, and its start number is returned.
async fn write(copy: &Device, extent: Extent, bytes: Bytes, is_known: bool) -> Result<Option<u64>> {
    if is_known {
        return copy.write(extent.start, bytes).await.map(|()| None);
    }
    let start = reserve(copy, extent, false).await?;
    copy.write(extent.start, bytes).await?;
    Ok(start)
}
