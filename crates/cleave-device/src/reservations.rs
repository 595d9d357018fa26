//! Where a database may write: the union of the extents that it reserved in its current epoch.

use std::collections::BTreeMap;

use cleave_media::Extent;

/// Most ranges of blocks that are kept; adjacent ones are merged.
const RUNS_MAX: usize = 1 << 20;

/// Disjoint ranges of blocks that are not adjacent: first block → block behind the last.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Reservations {
    runs: BTreeMap<u64, u64>,
}

impl Reservations {
    /// Whether `extent_count` more extents can be kept, wherever they lie.
    pub(crate) fn has_room(&self, extent_count: usize) -> bool {
        self.runs.len().saturating_add(extent_count) <= RUNS_MAX
    }

    /// Adds `extent` to the reserved ones.
    pub(crate) fn add(&mut self, extent: Extent) {
        let (mut start, mut end) = (extent.start.0, extent.end().0);
        if start >= end {
            return;
        }
        // At most one range begins before and reaches the extent; all others begin inside it.
        let before = self.runs.range(..=start).next_back().map(|(start, end)| (*start, *end));
        if let Some((run_start, run_end)) = before
            && run_end >= start
        {
            start = run_start;
            end = end.max(run_end);
        }
        while let Some((run_start, run_end)) =
            self.runs.range(start..=end).next().map(|(start, end)| (*start, *end))
        {
            self.runs.remove(&run_start);
            end = end.max(run_end);
        }
        self.runs.insert(start, end);
    }

    /// Whether all of `extent` is reserved.
    pub(crate) fn contains(&self, extent: Extent) -> bool {
        self.runs
            .range(..=extent.start.0)
            .next_back()
            .is_some_and(|(_, end)| extent.end().0 <= *end)
    }

    /// Ranges of blocks.
    pub(crate) fn run_count(&self) -> usize {
        self.runs.len()
    }

    /// Blocks reserved.
    pub(crate) fn block_count(&self) -> u64 {
        self.runs.iter().map(|(start, end)| end - start).sum()
    }
}

#[cfg(test)]
mod tests;
