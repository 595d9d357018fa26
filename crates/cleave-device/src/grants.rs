//! What the owner of the device lets other devices have: grants, by number.
//!
//! A [`Grant`] ends when its host ends it, when the owner changes, and when too many are held: then the oldest, which
//! has the smallest number, gives way. Who was let in by one keeps a [`HeldGrant`], which knows that it has ended.
//!
//! Invariant: what the bearers may have is bounded in number and in memory, whatever the host gives.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use cleave_fragment::command::{DeviceError, DeviceErrorCause, Grant, Ownership, PeerSecret};
use cleave_media::Extent;

use crate::reservations::Reservations;

/// Most grants that are held.
const GRANTS_MAX: usize = 4096;
/// Most ranges of blocks and outputs in all of them: about 16 MiB.
const PLACES_MAX: usize = 1 << 18;

/// The grants of one owner.
#[derive(Debug)]
pub(crate) struct Grants {
    owner: Ownership,
    held: BTreeMap<u64, Arc<HeldGrant>>,
    /// Ranges of blocks and outputs in them.
    place_count: usize,
}

/// One grant, as the device holds it.
#[derive(Debug)]
pub(crate) struct HeldGrant {
    owner: Ownership,
    secret: PeerSecret,
    extents: Reservations,
    outputs: BTreeSet<(u64, u32)>,
    has_ended: AtomicBool,
}

impl Grants {
    /// None yet, of `owner`.
    pub(crate) fn of(owner: Ownership) -> Self {
        Self { owner, held: BTreeMap::new(), place_count: 0 }
    }

    /// Adds `grant`; one that is held already changes nothing.
    ///
    /// # Errors
    /// [`DeviceErrorCause::Refused`] for another one of the same number.
    pub(crate) fn add(&mut self, grant: Grant) -> Result<(), DeviceError> {
        let mut extents = Reservations::default();
        grant.extents.into_iter().for_each(|extent| extents.add(extent));
        let added = HeldGrant {
            owner: self.owner,
            secret: grant.secret,
            extents,
            outputs: grant.outputs.into_iter().collect(),
            has_ended: AtomicBool::new(false),
        };
        if let Some(held) = self.held.get(&grant.number) {
            if held.is_same(&added) {
                return Ok(());
            }
            let message = format!("grant {} is another one by now", grant.number);
            return Err(DeviceError::new(DeviceErrorCause::Refused, message));
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

    /// Ends the grant `number`, if it is held.
    pub(crate) fn end(&mut self, number: u64) {
        if let Some(held) = self.held.remove(&number) {
            self.place_count = self.place_count.saturating_sub(held.place_count());
            held.has_ended.store(true, Ordering::Release);
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
        self.held.values().for_each(|held| held.has_ended.store(true, Ordering::Release));
    }
}

impl HeldGrant {
    /// Whose runs it is for.
    pub(crate) fn owner(&self) -> Ownership {
        self.owner
    }

    /// Whether it is over.
    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Acquire)
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

#[cfg(test)]
mod tests;
