//! From the newest version of a row to the one that a snapshot sees: headers of versions in, a place out.
//!
//! ```text
//!   version map ─▶ newest ──predecessor──▶ older ──predecessor──▶ oldest ─▶ 0
//!                  commit 9                commit 4               commit 2
//! ```
//!
//! A [`ChainWalk`] begins at the newest version. The caller reads the [`VersionHeader`] at [`ChainWalk::at`], hands
//! it to [`ChainWalk::step`], and does what the [`ChainStep`] says. The walk reads nothing itself, so host, device
//! and simulator drive it alike.
//!
//! Invariant: commit numbers never rise along a chain, and no place comes twice: damage ends in an error, not in
//! a loop. Source: `update-ndp.txt`; rules 16 and 17.

use std::collections::BTreeSet;

use super::visibility::Snapshot;
use crate::error::StoreError;
use crate::frame::FrameError;
use crate::ids::RecId;

/// The version columns of one version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VersionHeader {
    /// Number of the commit that made it; 0: none yet.
    pub commit: u64,
    /// The version before it; None: it is the oldest.
    pub predecessor: Option<RecId>,
    /// The row ends with this version.
    pub tombstone: bool,
}

/// A walk along the versions of one row.
#[derive(Debug, Clone)]
pub struct ChainWalk {
    snapshot: Snapshot,
    at: RecId,
    commit_last: u64,
    visited: BTreeSet<RecId>,
}

/// What follows from the header of a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChainStep {
    /// The snapshot sees this version.
    Seen(RecId),
    /// The snapshot sees that the row is gone, or does not see it yet.
    NoRow,
    /// Read the header there and step again.
    Older(RecId),
}

impl ChainWalk {
    /// A walk for `snapshot` that begins at `newest`.
    #[must_use]
    pub fn new(snapshot: Snapshot, newest: RecId) -> Self {
        Self { snapshot, at: newest, commit_last: u64::MAX, visited: BTreeSet::new() }
    }

    /// The version whose header [`ChainWalk::step`] wants.
    #[must_use]
    pub fn at(&self) -> RecId {
        self.at
    }

    /// Judges the version at [`ChainWalk::at`].
    ///
    /// # Errors
    /// [`StoreError::Frame`] where commit numbers rise towards older versions, or the chain is a ring.
    pub fn step(&mut self, header: VersionHeader) -> Result<ChainStep, StoreError> {
        let malformed =
            |reason| StoreError::Frame(FrameError::Malformed { name: "version chain", reason });
        // An uncommitted version is newer than all commits.
        let commit = if header.commit == 0 { u64::MAX } else { header.commit };
        if commit > self.commit_last {
            let newer = self.commit_last;
            return Err(malformed(format!("{} is of commit {commit}, after {newer}", self.at)));
        }
        self.commit_last = commit;
        if self.snapshot.sees(header.commit) {
            return Ok(if header.tombstone { ChainStep::NoRow } else { ChainStep::Seen(self.at) });
        }
        let Some(older) = header.predecessor else { return Ok(ChainStep::NoRow) };
        self.visited.insert(self.at);
        if self.visited.contains(&older) {
            return Err(malformed(format!("{older} comes twice")));
        }
        self.at = older;
        Ok(ChainStep::Older(older))
    }
}

#[cfg(test)]
mod tests;
