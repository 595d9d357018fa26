//! What a statement sees: a commit number and a transaction in, and a hold on what they need.
//!
//! [`super::Transactions::snapshot`] gives a [`SnapshotHold`]; while it lives, [`super::Transactions::oldest_snapshot`] does not
//! pass it, so vacuum leaves what it sees.
//!
//! Invariant: a snapshot is two numbers. Commits take effect in the order of their numbers, so everything at or before
//! the number is seen, and nothing behind it but the transaction's own. Source: rules 16, 27 and 30.

use std::sync::Arc;

use crate::transaction::{CommitNumber, TransactionId, Transactions};

/// A point in the order of commits, and whose own writes are seen besides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Snapshot {
    /// The last commit that is seen.
    pub commit: CommitNumber,
    /// The transaction that looks; [`TransactionId::NONE`] where none does.
    pub own: TransactionId,
}

impl Snapshot {
    /// Whether a version is seen that the running transaction `writer` made, or that was committed with a number.
    #[must_use]
    pub fn sees(&self, writer: TransactionId, commit: Option<CommitNumber>) -> bool {
        let is_own = writer != TransactionId::NONE && writer == self.own;
        is_own || commit.is_some_and(|commit| self.sees_commit(commit))
    }

    /// Whether what this commit wrote is seen.
    #[must_use]
    pub fn sees_commit(&self, commit: CommitNumber) -> bool {
        commit != CommitNumber::NONE && commit <= self.commit
    }
}

/// A snapshot that is remembered until this is dropped.
#[derive(Debug)]
pub struct SnapshotHold {
    snapshot: Snapshot,
    transactions: Arc<Transactions>,
}

impl SnapshotHold {
    pub(crate) fn new(snapshot: Snapshot, transactions: Arc<Transactions>) -> Self {
        Self { snapshot, transactions }
    }

    /// The snapshot.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        self.snapshot
    }
}

impl Clone for SnapshotHold {
    fn clone(&self) -> Self {
        self.transactions.hold(self.snapshot)
    }
}

impl Drop for SnapshotHold {
    fn drop(&mut self) {
        self.transactions.release(self.snapshot.commit);
    }
}
