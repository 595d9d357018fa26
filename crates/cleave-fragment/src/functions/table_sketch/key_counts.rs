//! How many rows some values of a column have: those whose hashes are least, the same ones in every column that has them.
//!
//! Two columns that are joined keep the same values, as far as both have them, so their counts side by side tell how many
//! rows the join has of these values, and whether values that are frequent in one are frequent in the other.
//!
//! Invariant: exactly the values whose hash lies below the threshold are kept, each with all of its rows; so states merge
//! exactly.
//!
//! Source: Estan and Naughton, "End-biased samples for join cardinality estimation", ICDE 2006, without the bias: the sample is
//! by hash alone.

use std::collections::BTreeMap;

/// Values that are kept when there were too many; at most twice as many before.
pub(super) const KEY_COUNT: usize = 1024;

/// See the module.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct KeyCounts {
    threshold: u64,
    counts: BTreeMap<u64, u64>,
}

impl KeyCounts {
    /// Of no value.
    pub(super) fn new() -> Self {
        Self { threshold: u64::MAX, counts: BTreeMap::new() }
    }

    /// None: these are no counts.
    pub(super) fn of_parts(threshold: u64, hashes: &[u64], counts: &[u64]) -> Option<Self> {
        let is_ascending = hashes.is_sorted_by(|one, other| one < other);
        let is_below = hashes.last().is_none_or(|last| *last < threshold);
        let is_bounded = hashes.len() == counts.len() && hashes.len() <= 2 * KEY_COUNT;
        let counts = hashes.iter().copied().zip(counts.iter().copied()).collect();
        (is_ascending && is_below && is_bounded).then_some(Self { threshold, counts })
    }

    /// Adds a row with the value that has this hash.
    pub(super) fn add(&mut self, hash: u64) {
        if hash < self.threshold {
            *self.counts.entry(hash).or_default() += 1;
            if self.counts.len() > 2 * KEY_COUNT {
                self.settle();
            }
        }
    }

    /// Adds the values of other rows.
    pub(super) fn merge(&mut self, other: &Self) {
        self.lower_to(self.threshold.min(other.threshold));
        for (hash, count) in other.counts.range(..self.threshold) {
            let own = self.counts.entry(*hash).or_default();
            *own = own.saturating_add(*count);
        }
        self.settle();
    }

    /// Makes it as small as it shall be.
    pub(super) fn settle(&mut self) {
        if let Some(first) = self.counts.keys().nth(KEY_COUNT).copied() {
            self.lower_to(first);
        }
    }

    fn lower_to(&mut self, threshold: u64) {
        if threshold < self.threshold {
            self.threshold = threshold;
            self.counts.split_off(&threshold);
        }
    }

    /// Values whose hash lies from here on were not kept.
    pub(super) fn threshold(&self) -> u64 {
        self.threshold
    }

    /// Hashes with their rows, ascending.
    pub(super) fn counts(&self) -> &BTreeMap<u64, u64> {
        &self.counts
    }
}
