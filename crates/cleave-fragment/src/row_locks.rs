//! Locks the rows that a fragment is going to change: VIDs in, the outcome of each out, on whichever side it runs.
//!
//! ```text
//!              fragment ── RowLocks::lock(object, VIDs) ──▶ held │ changed │ not free │ queued, then one of these
//!                              │
//!   embedded, local            │                remote
//!   SharedRows ◀───────────────┴──────────────▶ AskedLocks ─ LockCall ─▶ link ─▶ HostedJob
//!     │  16-byte entries in shared memory                  ◀─ LockSay ──        │ the host's memory, alone
//!     ▼                                                                         ▼
//!   JobLocks ════════════════════ one lock table: HostLocks ═══════════════ JobLocks
//!                                         ▲ the host's own transactions (the tail)
//! ```
//!
//! 1. [`RowLocks`] is the interface of a fragment: the same calls and outcomes wherever it runs.
//! 2. [`SharedRows`] locks in the table that this process shares with the host, and tells the host only that it waits.
//! 3. [`AskedLocks`] sends batches over the run's link, and has the next one on its way while it waits for the answer
//!    to one.
//! 4. [`HostedJob`] is the host's part of a run that locks. For a device behind a network it takes the device's side of
//!    the table, and pushes grants. Every device tells it of waits, and it has the host look for deadlock cycles
//!    ([`JobTransaction`]).
//!
//! Invariants: the host's memory is the only authority over a network (rule 20): its transactions lock without a round
//! trip, and every lock that a device believes to hold is held there. A job keeps its rows until its transaction ends,
//! and loses all at once (rule 19), whatever becomes of a connection; a dead device holds nothing once the host has
//! ended its job. Messages may be lost, late or repeated.
//!
//! Deliberately absent: modes, since an entry of the shared table excludes all others (as any change of a row needs),
//! and timeouts: a job that waits too long is cancelled by its statement. Source: the Update NDP paper, 5;
//! `docs/design/locks.md`.

mod asked;
mod hosted_job;
mod shared_rows;

use std::sync::Arc;

use cleave_store::RecId;

pub use asked::{AskedLocks, AskedRows};
pub use hosted_job::{HostedJob, JobTransaction, Outlet};
pub use shared_rows::{SharedRows, WaitingRows};

use crate::command::{LockAnswer, LockRefusal};

/// What became of one row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowLock {
    /// The fragment has it, as it was in its snapshot.
    Held,
    /// The fragment has it, and it has changed since: this is its newest version. Where the table is shared in memory,
    /// that is found by who compares, and never said here.
    Changed(RecId),
    /// Others have it, and the fragment does not wait.
    NotFree,
    /// Others have it; the fragment is in line.
    Queued,
}

impl From<LockAnswer> for RowLock {
    fn from(answer: LockAnswer) -> Self {
        match answer {
            LockAnswer::Granted => Self::Held,
            LockAnswer::Queued => Self::Queued,
            LockAnswer::Conflict(newest) => Self::Changed(newest),
            LockAnswer::NotFree => Self::NotFree,
        }
    }
}

/// The locks of one run. Cheap to clone: all its partitions share them.
#[derive(Debug, Clone)]
pub enum RowLocks {
    /// In memory that the host maps, too.
    Shared(Arc<SharedRows>),
    /// In the host's memory, by batches.
    Asked(Arc<AskedLocks>),
}

/// Rows that were asked for. Dropped, it waits for none of them any more; those that it has it keeps.
#[derive(Debug)]
pub enum LockedRows {
    /// In memory that the host maps, too.
    Shared(WaitingRows),
    /// In the host's memory, by batches.
    Asked(AskedRows),
}

impl RowLocks {
    /// Asks for rows of `object`, best in the order of a scan. Where `waits` is false, those that others have are left
    /// to them.
    ///
    /// Returns when they are asked for, which is at once unless very many wait for an answer.
    ///
    /// # Errors
    /// [`LockRefusal`]: the run is to end.
    pub async fn lock(
        &self,
        object: u64,
        vids: &[u64],
        waits: bool,
    ) -> Result<LockedRows, LockRefusal> {
        match self {
            Self::Shared(rows) => rows.lock(object, vids, waits).map(LockedRows::Shared),
            Self::Asked(asked) => asked.lock(object, vids, waits).await.map(LockedRows::Asked),
        }
    }
}

impl LockedRows {
    /// What has become of each row, once that is known of all; some may be queued.
    ///
    /// # Errors
    /// [`LockRefusal`]: the run is to end.
    pub async fn answered(&mut self) -> Result<Vec<RowLock>, LockRefusal> {
        match self {
            Self::Shared(rows) => rows.answered(),
            Self::Asked(rows) => rows.answered().await,
        }
    }

    /// What has become of each row, once none is queued any more.
    ///
    /// # Errors
    /// [`LockRefusal`]: the run is to end.
    pub async fn settled(&mut self) -> Result<Vec<RowLock>, LockRefusal> {
        match self {
            Self::Shared(rows) => rows.settled().await,
            Self::Asked(rows) => rows.settled().await,
        }
    }
}

#[cfg(test)]
mod tests;
