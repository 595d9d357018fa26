//! The waiters of this process by entry, and how a release wakes them here or in the other process.
//!
//! Waiters are wakers by entry, in private memory. A release that hands an entry over wakes the new holder's side:
//! directly if its waiters are in this process, by ringing its bell if not. A side that hears its bell checks every
//! entry that has waiters, so rings may be merged.
//!
//! No wake-up is lost: a waiter is in the list before it checks its entry, and a release changes the entry before it
//! reads the list, or rings.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, PoisonError};
use std::task::Waker;

#[cfg(loom)]
use loom::sync::{
    Mutex,
    atomic::{AtomicU64, AtomicUsize, Ordering},
};
#[cfg(not(loom))]
use std::sync::{
    Mutex,
    atomic::{AtomicU64, AtomicUsize, Ordering},
};

use super::memory::settle;

/// A bell that the other process hears.
pub(crate) trait Ring: Send + Sync + fmt::Debug {
    fn ring(&self);
}

#[cfg(not(loom))]
impl Ring for Arc<crate::doorbell::Doorbell> {
    fn ring(&self) {
        crate::doorbell::Doorbell::ring(self);
    }
}

/// Wakers by entry, and by waiter.
#[derive(Debug, Default)]
pub(crate) struct Waiters {
    by_entry: Mutex<BTreeMap<u32, BTreeMap<u64, Waker>>>,
    /// Number of waiters.
    count: AtomicUsize,
    next: AtomicU64,
}

impl Waiters {
    /// A number for a new waiter.
    pub(crate) fn number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// Wakes `waker` from now on when `entry` changes. The caller checks the entry afterwards.
    pub(crate) fn register(&self, entry: u32, number: u64, waker: &Waker) {
        let mut by_entry = self.by_entry.lock().unwrap_or_else(PoisonError::into_inner);
        let waiting = by_entry.entry(entry).or_default();
        if waiting.insert(number, waker.clone()).is_none() {
            self.count.fetch_add(1, Ordering::SeqCst);
        }
        drop(by_entry);
        settle();
    }

    /// Removes a waiter.
    pub(crate) fn forget(&self, entry: u32, number: u64) {
        let mut by_entry = self.by_entry.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(waiting) = by_entry.get_mut(&entry) else { return };
        if waiting.remove(&number).is_some() {
            self.count.fetch_sub(1, Ordering::SeqCst);
        }
        if waiting.is_empty() {
            by_entry.remove(&entry);
        }
    }

    /// Wakes all that wait for `entry`. The caller has changed it.
    #[inline]
    pub(crate) fn wake(&self, entry: u32) {
        settle();
        if self.count.load(Ordering::SeqCst) == 0 {
            return;
        }
        let by_entry = self.by_entry.lock().unwrap_or_else(PoisonError::into_inner);
        let woken: Vec<Waker> =
            by_entry.get(&entry).into_iter().flat_map(BTreeMap::values).cloned().collect();
        drop(by_entry);
        // Outside the lock: a waker may run the waiting task.
        woken.iter().for_each(Waker::wake_by_ref);
    }

    /// Entries that have waiters.
    pub(crate) fn entries(&self) -> Vec<u32> {
        let by_entry = self.by_entry.lock().unwrap_or_else(PoisonError::into_inner);
        by_entry.keys().copied().collect()
    }
}

/// Where a side's waiters are: in this process, in the other one, or in both (jobs, some of which the host serves).
#[derive(Debug)]
pub(crate) struct Peer {
    here: Option<Arc<Waiters>>,
    there: Option<Box<dyn Ring>>,
}

impl Peer {
    /// In this process.
    pub(crate) fn here(waiters: &Arc<Waiters>) -> Self {
        Self { here: Some(Arc::clone(waiters)), there: None }
    }

    /// In the other process, which hears `bell`.
    pub(crate) fn there(bell: &(impl Ring + Clone + 'static)) -> Self {
        Self { here: None, there: Some(Box::new(bell.clone())) }
    }

    /// In both. Models have one process serve all jobs.
    #[cfg(not(loom))]
    pub(crate) fn both(waiters: &Arc<Waiters>, bell: &(impl Ring + Clone + 'static)) -> Self {
        Self { here: Some(Arc::clone(waiters)), ..Self::there(bell) }
    }

    /// Tells the side that `entry` is its own now; returns whether to ring its bell, which may be done once for many.
    #[must_use = "the other process waits for its bell"]
    pub(crate) fn wake(&self, entry: u32) -> bool {
        if let Some(waiters) = &self.here {
            waiters.wake(entry);
        }
        self.there.is_some()
    }

    /// Rings the bell of the other process.
    pub(crate) fn ring(&self) {
        if let Some(bell) = &self.there {
            bell.ring();
        }
    }

    /// Has every waiter in this process check its entry.
    pub(crate) fn look_here(&self) {
        if let Some(waiters) = &self.here {
            waiters.entries().into_iter().for_each(|entry| waiters.wake(entry));
        }
    }

    /// Has every waiter check its entry, wherever it is.
    pub(crate) fn look(&self) {
        self.look_here();
        self.ring();
    }
}
