//! How far a statement is: units of its input that were begun, of all that are known. Those who hand out input count,
//! and whoever waits for the statement reads, from any thread.
//!
//! A unit is a morsel of a scan, a chunk of an index build or a byte of a file; a statement has mostly one kind. A scan
//! is known once it has begun. What only a device hands out is counted as far as it has answered, and never for more
//! than it was given.

use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The counts of one statement after the other; clones share them.
#[derive(Debug, Clone, Default)]
pub struct Progress(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    done: AtomicU64,
    total: AtomicU64,
}

impl Progress {
    /// Begins a statement.
    pub fn begin(&self) {
        self.0.total.store(0, Ordering::Relaxed);
        self.0.done.store(0, Ordering::Relaxed);
    }

    /// So many units are to come.
    pub fn expect(&self, count: u64) {
        self.0.total.fetch_add(count, Ordering::Relaxed);
    }

    /// So many of them were begun.
    pub fn advance(&self, count: u64) {
        self.0.done.fetch_add(count, Ordering::Relaxed);
    }

    /// Units begun, and all units; never more begun than there are.
    pub fn read(&self) -> (u64, u64) {
        let total = self.0.total.load(Ordering::Relaxed);
        (self.0.done.load(Ordering::Relaxed).min(total), total)
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
