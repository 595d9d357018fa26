//! Rows that page versions have changed: what a writer with an older snapshot has to know.
//!
//! A row that a page version changes keeps its VID and is not dead, so a writer that read it before would not notice.
//! Each tablet therefore keeps the slots of its last changes by page versions. A statement notes how many changes the
//! tablet had when it read ([`Rewrites::mark`]), and compares the rows that it changes, once they are locked, with the
//! changes made since. READ COMMITTED then starts the statement again; at REPEATABLE READ and SERIALIZABLE the first
//! updater wins, row by row.
//!
//! Invariant: in memory alone, since no snapshot outlives the process. What was forgotten counts as a change of every
//! row: more transactions fail, never fewer.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::buffer::BooleanBuffer;
use cleave_store::VidGaps;

/// Changes that a tablet remembers.
const KEPT: usize = 8;

/// The changes of one tablet by page versions; a clone shares them.
#[derive(Debug, Clone, Default)]
pub struct Rewrites {
    /// Changes in all.
    count: u64,
    /// The last ones.
    last: Vec<Arc<Rewrite>>,
}

/// The rows of one change: for each page, by its first VID, the gaps in its VIDs and the changed slots.
pub type Rewrite = BTreeMap<u64, (VidGaps, BooleanBuffer)>;

impl Rewrites {
    /// Adds a change.
    pub fn add(&mut self, rewrite: Rewrite) {
        self.count += 1;
        if self.last.len() == KEPT {
            self.last.remove(0);
        }
        self.last.push(Arc::new(rewrite));
    }

    /// The number of changes so far, for a reader of this state.
    #[must_use]
    pub fn mark(&self) -> u64 {
        self.count
    }

    /// Whether the row `vid` was changed after the state of the same tablet that had `mark`.
    #[must_use]
    pub fn has_since(&self, mark: u64, vid: u64) -> bool {
        let since = self.last_since(mark);
        since.is_none_or(|last| last.iter().any(|rewrite| has_row(rewrite, vid)))
    }

    /// The changes after the state of the same tablet that had `mark`; None: some are forgotten.
    pub(super) fn last_since(&self, mark: u64) -> Option<&[Arc<Rewrite>]> {
        let missing = usize::try_from(self.count.checked_sub(mark)?).ok()?;
        self.last.get(self.last.len().checked_sub(missing)?..)
    }
}

fn has_row(rewrite: &Rewrite, vid: u64) -> bool {
    // A page that was pruned may have the rows of others between its own.
    rewrite.range(..=vid).rev().any(|(first, (gaps, slots))| {
        let slot = vid.checked_sub(*first).and_then(|offset| gaps.slot_at(offset));
        let slot = slot.and_then(|slot| usize::try_from(slot).ok());
        slot.is_some_and(|slot| slot < slots.len() && slots.value(slot))
    })
}

#[cfg(test)]
mod tests {
    //! The rows of changes, those before a snapshot, and those that were forgotten.

    use super::*;

    fn rewrite(first: u64, slots: &[bool]) -> Rewrite {
        let slots = slots.iter().copied().collect();
        BTreeMap::from([(first, (VidGaps::none(), slots))])
    }

    #[test]
    fn rows_are_changed_since_a_state_that_does_not_have_them() {
        let mut rewrites = Rewrites::default();
        let none = rewrites.clone();
        rewrites.add(rewrite(10, &[true, false, true]));
        let one = rewrites.clone();
        rewrites.add(rewrite(20, &[true]));
        let since = |before: &Rewrites| -> Vec<u64> {
            (5..30).filter(|vid| rewrites.has_since(before.mark(), *vid)).collect()
        };
        assert_eq!(since(&none), [10, 12, 20]);
        assert_eq!(since(&one), [20]);
        assert_eq!(since(&rewrites), [0; 0]);
        assert!(rewrites.has_since(rewrites.mark() + 1, 10), "a mark of another table");
    }

    #[test]
    fn what_was_forgotten_counts_as_every_row() {
        let mut rewrites = Rewrites::default();
        let none = rewrites.clone();
        for _ in 0..KEPT {
            rewrites.add(rewrite(10, &[true]));
        }
        assert!(!rewrites.has_since(none.mark(), 11));
        rewrites.add(rewrite(10, &[true]));
        assert!(rewrites.has_since(none.mark(), 11) && rewrites.has_since(none.mark(), 900));
    }
}
