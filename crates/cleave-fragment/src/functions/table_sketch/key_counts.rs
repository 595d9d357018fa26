//! Row counts of some values of a column: those with the least hashes, so that every column picks the same values.
//!
//! Two joined columns keep the same values, as far as both have them. Their counts side by side tell how many rows the
//! join has of these values, and whether frequent values of one column are frequent in the other. The number of pages
//! that have a value tells, where only some pages were read, how many values lie on the others.
//!
//! Invariant: exactly the values whose hash lies below the threshold are kept, each with all of its rows; so states
//! merge exactly, provided that none of them share a page.
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
    counts: HashMap<u64, KeyCount, BuildHasherDefault<IsHash>>,
}

/// What was counted of a value.
#[derive(Debug, Clone, Copy, PartialEq)]
struct KeyCount {
    rows: u64,
    pages: u64,
    /// The page of the last row.
    last_page: Option<u64>,
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

    /// None if these are not counts. Without `pages`, each value is taken to have one.
    pub(super) fn of_parts(
        threshold: u64,
        hashes: &[u64],
        counts: &[u64],
        pages: &[u64],
    ) -> Option<Self> {
        let is_ascending = hashes.is_sorted_by(|one, other| one < other);
        let is_below = hashes.last().is_none_or(|last| *last < threshold);
        let is_bounded = hashes.len() == counts.len() && hashes.len() <= 2 * KEY_COUNT;
        let has_pages = pages.is_empty() || pages.len() == hashes.len();
        let pages = pages.iter().copied().chain(std::iter::repeat(1));
        let counts = counts.iter().zip(pages);
        let counts = counts.map(|(rows, pages)| KeyCount { rows: *rows, pages, last_page: None });
        let counts = hashes.iter().copied().zip(counts).collect();
        let is_sound = is_ascending && is_below && is_bounded && has_pages;
        is_sound.then_some(Self { threshold, counts })
    }

    /// Adds a row of `page` whose value has this hash. Rows of one page come together.
    pub(super) fn add(&mut self, hash: u64, page: u64) {
        if hash < self.threshold {
            let new = KeyCount { rows: 0, pages: 0, last_page: None };
            let count = self.counts.entry(hash).or_insert(new);
            count.rows += 1;
            if count.last_page != Some(page) {
                count.pages += 1;
                count.last_page = Some(page);
            }
            if self.counts.len() > 2 * KEY_COUNT {
                self.settle();
            }
        }
    }

    /// Adds the values of other rows.
    pub(super) fn merge(&mut self, other: &Self) {
        self.lower_to(self.threshold.min(other.threshold));
        for ((hash, rows), pages) in other.counts().into_iter().zip(other.pages()) {
            if hash < self.threshold {
                let new = KeyCount { rows: 0, pages: 0, last_page: None };
                let own = self.counts.entry(hash).or_insert(new);
                own.rows = own.rows.saturating_add(rows);
                own.pages = own.pages.saturating_add(pages);
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
            self.counts.iter().map(|(hash, count)| (*hash, count.rows)).collect();
        counts.sort_unstable();
        counts
    }

    /// For each of the counts, the pages with the value.
    pub(super) fn pages(&self) -> Vec<u64> {
        let mut pages: Vec<(u64, u64)> =
            self.counts.iter().map(|(hash, count)| (*hash, count.pages)).collect();
        pages.sort_unstable();
        pages.into_iter().map(|(_, pages)| pages).collect()
    }
}
