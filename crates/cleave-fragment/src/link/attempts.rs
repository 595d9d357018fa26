//! Which stream speaks for a run, where an execute was repeated.
//!
//! Dropping a stream ends its run, unless a later execute has taken the run over: then only the later
//! stream may end it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::command::CommandHeader;

/// The latest attempt at each run of one link.
#[derive(Debug, Default)]
pub(crate) struct Attempts {
    next: AtomicU64,
    latest: Mutex<BTreeMap<RunKey, u64>>,
}

/// One execute of a run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Attempt {
    /// Above 0, and no other's.
    pub(crate) number: u64,
    /// The attempt that spoke for the run before.
    before: Option<u64>,
}

type RunKey = ([u8; 16], u64, u64);

fn key(header: &CommandHeader) -> RunKey {
    (header.database, header.epoch, header.run)
}

impl Attempts {
    /// Enters an attempt at the header's run, which now speaks for it.
    pub(crate) fn begin(&self, header: &CommandHeader) -> Attempt {
        let number = self.next_number();
        let before = self.lock().insert(key(header), number);
        Attempt { number, before }
    }

    /// The device refused `attempt`: whoever spoke before it speaks again.
    pub(crate) fn withdraw(&self, header: &CommandHeader, attempt: Attempt) {
        let mut latest = self.lock();
        if latest.get(&key(header)) == Some(&attempt.number) {
            match attempt.before {
                Some(before) => latest.insert(key(header), before),
                None => latest.remove(&key(header)),
            };
        }
    }

    /// Whether `attempt` speaks for the header's run.
    pub(crate) fn speaks(&self, header: &CommandHeader, attempt: Attempt) -> bool {
        self.lock().get(&key(header)) == Some(&attempt.number)
    }

    /// Whether `attempt` still spoke for the header's run; from now on nobody does.
    pub(crate) fn end(&self, header: &CommandHeader, attempt: Attempt) -> bool {
        let mut latest = self.lock();
        let speaks = latest.get(&key(header)) == Some(&attempt.number);
        if speaks {
            latest.remove(&key(header));
        }
        speaks
    }

    /// A number that no attempt has; above 0.
    pub(crate) fn next_number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed) + 1
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<RunKey, u64>> {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
