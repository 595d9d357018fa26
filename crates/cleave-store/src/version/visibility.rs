//! Which versions a snapshot sees: commit numbers in, a yes or no out.
//!
//! 1. For a whole page, [`Snapshot::page_visibility`] says whether all rows are seen, none, or each must be asked.
//! 2. For a row, [`Snapshot::sees`] says whether its version was committed in time; whether a newer one was too is
//!    the chain's business ([`super::ChainWalk`]).
//!
//! Invariant: commit numbers are dense, ascending and given in commit order, so that one number is a snapshot.
//! Commit number 0 means "not committed" and nobody sees it. Source: rules 16 and 17.

/// A point in the order of commits: everything committed at or before it is seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Snapshot {
    /// Number of the last commit that is seen.
    pub commit: u64,
}

/// What a snapshot sees of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PageVisibility {
    /// Every row; no column of the versions has to be read.
    All,
    /// No row.
    None,
    /// Each row must be asked for itself: its commit, its tombstone, and if superseded its chain.
    Each,
}

impl Snapshot {
    /// That of whoever reads pages because a state of the catalog names them: all rows on them had begun when it came
    /// to be, so nobody asks for commit numbers (decision 0051).
    pub const OF_STATE: Self = Self { commit: u64::MAX };

    /// Whether a version of this commit is old enough to be seen.
    #[must_use]
    pub fn sees(self, commit: u64) -> bool {
        commit != 0 && commit <= self.commit
    }

    /// What is seen of a page whose versions were committed between `commit_min` and `commit_max`. `settled`: no
    /// VID of the page has another version, and none of its rows is a tombstone
    /// ([`super::VersionMap::superseded_in`]).
    #[must_use]
    pub fn page_visibility(
        self,
        commit_min: u64,
        commit_max: u64,
        settled: bool,
    ) -> PageVisibility {
        // Nobody sees commit 0, so the least that may be seen is 1.
        if commit_min.max(1) > self.commit || commit_max == 0 {
            PageVisibility::None
        } else if settled && self.sees(commit_min) && self.sees(commit_max) {
            PageVisibility::All
        } else {
            PageVisibility::Each
        }
    }
}

#[cfg(test)]
mod tests;
