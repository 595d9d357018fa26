//! What the owner of the device lets other devices have: grants, by number.
//!
//! A [`Grant`] ends when its host ends it, when the owner changes, and when too many are held: then the oldest, which
//! has the smallest number, gives way. Who was let in by one keeps a [`HeldGrant`], which knows that it has ended.
//!
//! Invariants: what the bearers may have is bounded in number and in memory, whatever the host gives, and so is the
//! number of those who bear one grant at once. A grant that has ended is not given again: the command that gave it may
//! come twice, and late.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use cleave_fragment::command::{DeviceError, DeviceErrorCause, Grant, Ownership, PeerSecret};
use cleave_media::Extent;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use crate::reservations::Reservations;

/// Most grants that are held.
const GRANTS_MAX: usize = 4096;
/// Most ranges of blocks and outputs in all of them: about 16 MiB.
const PLACES_MAX: usize = 1 << 18;
/// Most connections that show one grant. A device has one, and another while it does not know yet that the first is
/// lost.
const BEARERS_MAX: usize = 4;
/// Most numbers of ended grants that are known one by one.
const ENDED_MAX: usize = 4096;

/// The grants of one owner.
#[derive(Debug)]
pub(crate) struct Grants {
    owner: Ownership,
    held: BTreeMap<u64, Arc<HeldGrant>>,
    /// Ranges of blocks and outputs in them.
    place_count: usize,
    /// Numbers of those that have ended, which are given no more.
    ended: BTreeSet<u64>,
    /// All numbers below this one count as such.
    ended_below: u64,
}

/// One grant, as the device holds it.
#[derive(Debug)]
pub(crate) struct HeldGrant {
    owner: Ownership,
    secret: PeerSecret,
    extents: Reservations,
    outputs: BTreeSet<(u64, u32)>,
    has_ended: watch::Sender<bool>,
    /// For those who bear it.
    bearers: Arc<Semaphore>,
}

impl Grants {
    /// None yet, of `owner`.
    pub(crate) fn of(owner: Ownership) -> Self {
        let (held, ended) = (BTreeMap::new(), BTreeSet::new());
        Self { owner, held, place_count: 0, ended, ended_below: 0 }
    }

    /// How many are held.
    pub(crate) fn count(&self) -> usize {
        self.held.len()
    }

    /// Adds `grant`; one that is held already changes nothing.
    ///
    /// # Errors
    /// [`DeviceErrorCause::Refused`] for another one of the same number, and for one that has ended.
    pub(crate) fn add(&mut self, grant: Grant) -> Result<(), DeviceError> {
        let mut extents = Reservations::default();
        grant.extents.into_iter().for_each(|extent| extents.add(extent));
        let added = HeldGrant {
            owner: self.owner,
            secret: grant.secret,
            extents,
            outputs: grant.outputs.into_iter().collect(),
            has_ended: watch::Sender::new(false),
            bearers: Arc::new(Semaphore::new(BEARERS_MAX)),
        };
        if let Some(held) = self.held.get(&grant.number) {
            if held.is_same(&added) {
                return Ok(());
            }
            return Err(refused(format!("grant {} is another one by now", grant.number)));
        }
        if grant.number < self.ended_below || self.ended.contains(&grant.number) {
            return Err(refused(format!("grant {} has ended", grant.number)));
        }
        let place_count = added.place_count();
        while let Some(oldest) = self.held.keys().next().copied()
            && (self.held.len() >= GRANTS_MAX || self.place_count + place_count > PLACES_MAX)
        {
            self.end(oldest);
        }
        self.place_count += place_count;
        self.held.insert(grant.number, Arc::new(added));
        Ok(())
    }

    /// Ends the grant `number`, also if it comes only later.
    pub(crate) fn end(&mut self, number: u64) {
        if number >= self.ended_below {
            self.ended.insert(number);
        }
        while self.ended.len() > ENDED_MAX
            && let Some(first) = self.ended.pop_first()
        {
            self.ended_below = first.saturating_add(1);
        }
        if let Some(held) = self.held.remove(&number) {
            self.place_count = self.place_count.saturating_sub(held.place_count());
            held.has_ended.send_replace(true);
        }
    }

    /// The grant `number`, if `secret` is its secret.
    pub(crate) fn find(&self, number: u64, secret: &PeerSecret) -> Option<Arc<HeldGrant>> {
        let held = self.held.get(&number)?;
        held.secret.matches(secret).then(|| Arc::clone(held))
    }
}

impl Drop for Grants {
    fn drop(&mut self) {
        for held in self.held.values() {
            held.has_ended.send_replace(true);
        }
    }
}

impl HeldGrant {
    /// Whose runs it is for.
    pub(crate) fn owner(&self) -> Ownership {
        self.owner
    }

    /// Whether it is over.
    pub(crate) fn has_ended(&self) -> bool {
        *self.has_ended.borrow()
    }

    /// Resolves when it is over.
    pub(crate) async fn until_over(&self) {
        let mut ended = self.has_ended.subscribe();
        // The sender lives as long as `self`.
        let _closed = ended.wait_for(|has_ended| *has_ended).await;
    }

    /// A place for one more who bears it; None: there are as many as may be.
    pub(crate) fn take_place(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.bearers).try_acquire_owned().ok()
    }

    /// Whether its bearer may read all of `extent`.
    pub(crate) fn may_read(&self, extent: Extent) -> bool {
        !self.has_ended() && self.extents.contains(extent)
    }

    /// Whether its bearer may have the rows of `output` of `run`.
    pub(crate) fn may_attach(&self, run: u64, output: u32) -> bool {
        !self.has_ended() && self.outputs.contains(&(run, output))
    }

    fn is_same(&self, other: &Self) -> bool {
        self.secret.matches(&other.secret)
            && self.extents == other.extents
            && self.outputs == other.outputs
    }

    fn place_count(&self) -> usize {
        self.extents.run_count() + self.outputs.len()
    }
}

fn refused(message: String) -> DeviceError {
    DeviceError::new(DeviceErrorCause::Refused, message)
}

#[cfg(test)]
mod tests;
