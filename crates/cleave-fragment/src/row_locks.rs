//! Locks the rows that a fragment is going to change: VIDs in, the outcome of each out, on whichever side it runs.
//!
//! ```text
//!              fragment ── RowLocks::lock(object, VIDs) ──▶ held │ changed │ not free │ queued, then one of these
//!                              │
//!   embedded, local            │                remote, or a local one without the table
//!   SharedRows ◀───────────────┴──────────────▶ AskedLocks ─ LockCall ─▶ link ─▶ HostedJob
//!     │  entries in shared memory                          ◀─ LockSay ──        │ the host's memory, alone
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
//! 5. `escalation`: a job that holds most of the table gets its whole object, if nobody else locks rows of it.
//!
//! Invariants: the host's memory is the only authority over a network (rule 20): its transactions lock without a round
//! trip, and every lock that a device believes to hold is held there. A job keeps its rows until its transaction ends,
//! and loses all at once (rule 19), whatever becomes of a connection; a dead device holds nothing once the host has
//! ended its job. Messages may be lost, late or repeated.
//!
//! Deliberately absent: modes, since an entry of the shared table excludes all others (as any change of a row needs),
//! and timeouts: the [operator](crate::LockRowsExec) stops waiting, and a statement that ends cancels the run.
//! Source: the Update NDP paper, 5; `docs/design/locks.md`.

mod asked;
mod escalation;
mod hosted_job;
mod shared_rows;

use std::sync::Arc;

use cleave_store::RecId;

pub use asked::{AskedLocks, AskedRows};
pub use escalation::{ESCALATION_SHARE, ESCALATION_STEPS};
pub use hosted_job::{HostedJob, JobTransaction, Outlet, Served};
pub use shared_rows::{SharedRows, WaitingRows};

use crate::command::{LockAnswer, LockRefusal, LockSay, RunLocks};
use crate::link::SlotSender;

/// The outcome for one row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowLock {
    /// The fragment has locked it, unchanged since its snapshot.
    Held,
    /// The fragment has locked it, and it has changed since: this is its newest version. With a shared lock table, the
    /// comparing side finds that, and this is never returned.
    Changed(RecId),
    /// Others have locked it, and the fragment does not wait.
    NotFree,
    /// Others have locked it; the fragment is queued.
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
    /// In memory shared with the host.
    Shared(Arc<SharedRows>),
    /// In the host's memory, by batches.
    Asked(Arc<AskedLocks>),
}

/// Rows that were requested. Dropping it stops waiting for the queued ones; locked ones stay locked.
#[derive(Debug)]
pub enum LockedRows {
    /// In memory shared with the host.
    Shared(WaitingRows),
    /// In the host's memory, by batches.
    Asked(AskedRows),
}

impl RowLocks {
    /// The locks of a run that reaches its host through `sink`, in the way that the host has asked for.
    ///
    /// # Errors
    /// [`LockRefusal::Over`] if the host has taken them away by now, [`LockRefusal::NoTable`] if it has handed over no
    /// lock table with this connection.
    pub fn begin(locks: RunLocks, sink: SlotSender) -> Result<Self, LockRefusal> {
        match locks {
            RunLocks::Batches => Ok(Self::Asked(AskedLocks::new(sink))),
            RunLocks::Shared(job) => {
                let table = sink.table().ok_or(LockRefusal::NoTable)?;
                SharedRows::begin(&table, job, sink).map(Self::Shared)
            }
        }
    }

    /// Switches to `sink` as the way to the host.
    pub fn connect(&self, sink: SlotSender) {
        match self {
            Self::Shared(rows) => rows.connect(sink),
            Self::Asked(asked) => asked.connect(sink),
        }
    }

    /// Handles a message of the host.
    pub fn hear(&self, say: LockSay) {
        match self {
            Self::Shared(rows) => rows.hear(&say),
            Self::Asked(asked) => asked.hear(say),
        }
    }

    /// Requests locks on rows of `object`, best in the order of a scan. If `waits` is false, rows that others have
    /// locked are not waited for.
    ///
    /// Returns when they are requested, which is at once unless very many wait for an answer.
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
    /// The outcome of each row, once all are known; some may be queued.
    ///
    /// # Errors
    /// [`LockRefusal`]: the run is to end.
    pub async fn answered(&mut self) -> Result<Vec<RowLock>, LockRefusal> {
        match self {
            Self::Shared(rows) => rows.answered(),
            Self::Asked(rows) => rows.answered().await,
        }
    }

    /// The outcome of each row, once none is queued any more.
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
