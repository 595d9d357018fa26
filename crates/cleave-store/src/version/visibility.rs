//! Visibility by commit number: the commit of a row version and a snapshot in, yes or no out.
//!
//! Invariant: commit numbers are dense, ascending and given in commit order, so one number is a snapshot. Commit number
//! 0 means "not committed" and is never visible. Dead rows are not decided here, but by the version map of the catalog
//! version ([`super::VersionMap::dead_rows`]).

/// A point in the order of commits: every commit at or before it is visible.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Snapshot {
    /// Number of the last visible commit.
    pub commit: u64,
}

impl Snapshot {
    /// The snapshot for pages that a catalog version names: all rows on them were committed when the version was made,
    /// so no commit numbers are compared (`docs/design/versions-and-commit.md`).
    pub const OF_STATE: Self = Self { commit: u64::MAX };

    /// Whether a row version of this commit is visible.
    #[must_use]
    pub fn sees(self, commit: u64) -> bool {
        commit != 0 && commit <= self.commit
    }
}

#[cfg(test)]
mod tests;
