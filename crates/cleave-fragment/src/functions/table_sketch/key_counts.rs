//! Row counts of some values of a column: those with the least hashes, so that every column picks the same values.
//!
//! Two joined columns keep the same values, as far as both have them. Their counts side by side tell how many rows the
//! join has of these values, and whether frequent values of one column are frequent in the other.
//!
//! Invariant: exactly the values whose hash lies below the threshold are kept, each with all of its rows; so states
//! merge exactly.
//!
//! Source: Estan and Naughton, "End-biased samples for join cardinality estimation", ICDE 2006, without the bias: the
//! sample is by hash alone.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// Values kept when they are reduced; at most twice as many before.
pub(super) const KEY_COUNT: usize = 1024;

/// See the [module](self).
#[derive(Debug, Clone, PartialEq)]
pub(super) struct KeyCounts {
    threshold: u64,
    counts: HashMap<u64, u64, BuildHasherDefault<IsHash>>,
}

/// The hasher of keys that are hashes already.
#[derive(Debug, Clone, Default)]
struct IsHash(u64);

impl Hasher for IsHash {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        // Never called: keys are numbers.
        bytes.iter().for_each(|byte| self.0 = self.0.rotate_left(8) ^ u64::from(*byte));
    }

    fn write_u64(&mut self, hash: u64) {
        // The kept hashes have the same leading bits, and the table uses both ends.
        self.0 = hash.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
}

impl KeyCounts {
    /// Counts of no value.
    pub(super) fn new() -> Self {
        Self { threshold: u64::MAX, counts: HashMap::default() }
    }

    /// Counts of a column whose values are not kept.
    pub(super) fn none() -> Self {
        Self { threshold: 0, counts: HashMap::default() }
    }

    /// None if these are not counts.
    pub(super) fn of_parts(threshold: u64, hashes: &[u64], counts: &[u64]) -> Option<Self> {
        let is_ascending = hashes.is_sorted_by(|one, other| one < other);
        let is_below = hashes.last().is_none_or(|last| *last < threshold);
        let is_bounded = hashes.len() == counts.len() && hashes.len() <= 2 * KEY_COUNT;
        let counts = hashes.iter().copied().zip(counts.iter().copied()).collect();
        (is_ascending && is_below && is_bounded).then_some(Self { threshold, counts })
    }

    /// Adds a row whose value has this hash.
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
        for (hash, count) in other.counts() {
            if hash < self.threshold {
                let own = self.counts.entry(hash).or_default();
                *own = own.saturating_add(count);
            }
        }
        self.settle();
    }

    /// Reduces the counts to their limit.
    pub(super) fn settle(&mut self) {
        let mut hashes: Vec<u64> = self.counts.keys().copied().collect();
        if hashes.len() > KEY_COUNT {
            let (_, first, _) = hashes.select_nth_unstable(KEY_COUNT);
            self.lower_to(*first);
        }
    }

    fn lower_to(&mut self, threshold: u64) {
        if threshold < self.threshold {
            self.threshold = threshold;
            self.counts.retain(|hash, _| *hash < threshold);
        }
    }

    /// Values with this hash or a higher one were not kept.
    pub(super) fn threshold(&self) -> u64 {
        self.threshold
    }

    /// Hashes with their row counts, ascending.
    pub(super) fn counts(&self) -> Vec<(u64, u64)> {
        let mut counts: Vec<(u64, u64)> =
            self.counts.iter().map(|(hash, count)| (*hash, *count)).collect();
        counts.sort_unstable();
        counts
    }
}
