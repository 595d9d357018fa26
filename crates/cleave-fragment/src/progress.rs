//! How far a statement is: units of its input that were begun, of all that are known. Those who hand out input count,
//! and whoever waits for the statement reads, from any thread.
//!
//! A unit is a morsel of a scan, a chunk of an index build or a byte of a file; a statement has mostly one kind. A scan
//! is known once it has begun. What only a device hands out is counted as far as it has answered, and never for more
//! than it was given. What is begun again, as after a device has failed, is counted once ([`Progress::again`]).

use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The counts of one statement after the other; clones share them.
#[derive(Debug, Clone, Default)]
pub struct Progress {
    counts: Arc<Counts>,
    /// None: what it counts is begun once.
    attempt: Option<Arc<Attempt>>,
}

/// One of several that read the same input, one after the other.
#[derive(Debug)]
struct Attempt {
    own: Counts,
    /// What the furthest of them has counted.
    furthest: Arc<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    done: AtomicU64,
    total: AtomicU64,
}

impl Progress {
    /// Begins a statement.
    pub fn begin(&self) {
        self.counts.total.store(0, Ordering::Relaxed);
        self.counts.done.store(0, Ordering::Relaxed);
    }

    /// For input that may be begun again. What this gives for such an input counts the same one from its beginning, and
    /// adds only what was not counted before.
    #[must_use]
    pub fn again(&self) -> Self {
        let before = self.attempt.as_ref();
        let furthest = before.map(|before| Arc::clone(&before.furthest)).unwrap_or_default();
        let attempt = Attempt { own: Counts::default(), furthest };
        Self { counts: Arc::clone(&self.counts), attempt: Some(Arc::new(attempt)) }
    }

    /// So many units are to come.
    pub fn expect(&self, count: u64) {
        self.add(|counts| &counts.total, count);
    }

    /// So many of them were begun.
    pub fn advance(&self, count: u64) {
        self.add(|counts| &counts.done, count);
    }

    fn add(&self, to: fn(&Counts) -> &AtomicU64, count: u64) {
        let new = match &self.attempt {
            None => count,
            Some(attempt) => {
                let before = to(&attempt.own).fetch_add(count, Ordering::Relaxed);
                let own = before.saturating_add(count);
                own.saturating_sub(to(&attempt.furthest).fetch_max(own, Ordering::Relaxed))
            }
        };
        to(&self.counts).fetch_add(new, Ordering::Relaxed);
    }

    /// Units begun, and all units; never more begun than there are.
    pub fn read(&self) -> (u64, u64) {
        let total = self.counts.total.load(Ordering::Relaxed);
        (self.counts.done.load(Ordering::Relaxed).min(total), total)
    }
}

/// What holds it is compared by what else it has.
impl PartialEq for Progress {
    fn eq(&self, _other: &Self) -> bool {
        true
    }
}

impl Eq for Progress {}

impl Hash for Progress {
    fn hash<H: Hasher>(&self, _state: &mut H) {}
}

#[cfg(test)]
mod tests {
    //! What is begun again counts once.

    use super::*;

    #[test]
    fn input_that_is_begun_again_counts_once() {
        let all = Progress::default();
        let first = all.again();
        first.expect(10);
        first.advance(4);
        // With more to read than the one before, which goes on beside it.
        let second = first.again();
        second.expect(12);
        second.advance(3);
        assert_eq!(all.read(), (4, 12));
        first.advance(1);
        second.advance(4);
        assert_eq!(all.read(), (7, 12));
        // Another input.
        let other = all.again();
        other.expect(5);
        other.advance(2);
        second.clone().advance(5);
        assert_eq!(all.read(), (14, 17));
    }
}
