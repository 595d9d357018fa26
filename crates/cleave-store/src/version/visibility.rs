//! Which rows had begun when a snapshot was taken: commit numbers in, a yes or no out.
//!
//! Invariant: commit numbers are dense, ascending and given in commit order, so that one number is a snapshot.
//! Commit number 0 means "not committed" and nobody sees it. Which rows are dead is not asked here, but of the
//! version map of the state ([`super::VersionMap::dead_rows`]).

/// A point in the order of commits: everything committed at or before it is seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Snapshot {
    /// Number of the last commit that is seen.
    pub commit: u64,
}

impl Snapshot {
    /// That of whoever reads pages because a state of the catalog names them: all rows on them had begun when it came
    /// to be, so nobody asks for commit numbers (`docs/design/versions-and-commit.md`).
    pub const OF_STATE: Self = Self { commit: u64::MAX };

    /// Whether a row of this commit had begun.
    #[must_use]
    pub fn sees(self, commit: u64) -> bool {
        commit != 0 && commit <= self.commit
    }
}

#[cfg(test)]
mod tests;
