//! Decides which stream controls a run whose execute was repeated.
//!
//! Dropping a stream ends its run, unless a later execute has attached to the run: then only the later stream may end
//! it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::command::{CommandHeader, RunKey};

/// The latest attempt at each output of each run of one link.
#[derive(Debug, Default)]
pub(crate) struct Attempts {
    next: AtomicU64,
    latest: Mutex<BTreeMap<Key, Speaker>>,
}

/// An output of a run that was attached to, or the run itself.
type Key = (RunKey, Option<u32>);

/// One execute of a run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Attempt {
    /// Above 0 and unique.
    pub(crate) number: u64,
    /// The output that it attaches to; None if it began the run.
    pub(crate) output: Option<u32>,
}

/// The attempt that controls a run.
#[derive(Debug, Clone, Copy)]
struct Speaker {
    number: u64,
    before: Option<Before>,
}

/// The attempt that controlled the run before the latest.
#[derive(Debug, Clone, Copy)]
struct Before {
    number: u64,
    /// Its stream has ended, and left the run to the latest.
    is_over: bool,
}

impl Attempts {
    /// Enters an attempt at the header's run, or at an output of it, which now controls it.
    pub(crate) fn begin(&self, header: &CommandHeader, output: Option<u32>) -> Attempt {
        let attempt = Attempt { number: self.next_number(), output };
        let (number, key) = (attempt.number, key(header, attempt));
        let mut latest = self.lock();
        let before = latest.get(&key).map(|speaker| speaker.number);
        let before = before.map(|number| Before { number, is_over: false });
        latest.insert(key, Speaker { number, before });
        attempt
    }

    /// The device refused `attempt`: the attempt before it takes control again. Returns true if the stream of that one
    /// has ended meanwhile: then nobody controls the run, and it must be released.
    pub(crate) fn withdraw(&self, header: &CommandHeader, attempt: Attempt) -> bool {
        let key = key(header, attempt);
        let mut latest = self.lock();
        match latest.get(&key).copied() {
            Some(speaker) if speaker.number == attempt.number => match speaker.before {
                Some(Before { number, is_over: false }) => {
                    latest.insert(key, Speaker { number, before: None });
                    false
                }
                before => {
                    latest.remove(&key);
                    before.is_some()
                }
            },
            _ => false,
        }
    }

    /// Whether `attempt` controls the header's run.
    pub(crate) fn speaks(&self, header: &CommandHeader, attempt: Attempt) -> bool {
        let latest = self.lock();
        latest.get(&key(header, attempt)).is_some_and(|speaker| speaker.number == attempt.number)
    }

    /// Whether `attempt` still controlled the header's run; from now on none does.
    pub(crate) fn end(&self, header: &CommandHeader, attempt: Attempt) -> bool {
        let key = key(header, attempt);
        let mut latest = self.lock();
        let Some(speaker) = latest.get_mut(&key) else { return false };
        if speaker.number == attempt.number {
            latest.remove(&key);
            return true;
        }
        if let Some(before) = &mut speaker.before
            && before.number == attempt.number
        {
            before.is_over = true;
        }
        false
    }

    /// A new attempt number, above 0.
    pub(crate) fn next_number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed) + 1
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<Key, Speaker>> {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn key(header: &CommandHeader, attempt: Attempt) -> Key {
    (header.run_key(), attempt.output)
}

#[cfg(test)]
mod tests;
