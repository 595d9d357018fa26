//! Transactions that run, and the order in which they commit: a begin in, a commit number out.
//!
//! ```text
//!  running ──pre_commit──▶ pre-committed ──its log record is durable──▶ hardened
//!     └──drop──▶ aborted    seen by new snapshots      acknowledged, results that saw it may leave
//! ```
//!
//! 1. [`Transactions::begin`] gives an id, [`Transactions::snapshot`] what is seen.
//! 2. [`Transactions::pre_commit`] gives the next commit number to whoever comes, and calls back to append the log record
//!    with it, so that numbers and log have one order. Then the commit is seen: its [`CommitState`] tells the number
//!    to everyone who finds a version that points to it.
//! 3. [`Transactions::harden`] says how far the log is durable. Until then [`Transactions::needs_durable`] names the place
//!    to wait for before anything leaves that saw the commit: the writer's acknowledgement, or another's rows.
//!
//! Invariant: commit numbers are dense and rise with the log. No snapshot sees a number before all below it are seen. A
//! failed append uses no number. Ids rise over the life of a database: [`Transactions::new`] is told the highest of the
//! log. Source: rules 25 to 27; `update-ndp.txt`, 5.4.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::snapshot::{Snapshot, SnapshotHold};
use crate::wal::Lsn;

/// A transaction of a database, from 1; never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct TransactionId(pub u64);

impl TransactionId {
    /// No transaction.
    pub const NONE: Self = Self(0);
}

impl fmt::Display for TransactionId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "transaction {}", self.0)
    }
}

/// The place of a commit in the order of commits, from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct CommitNumber(pub u64);

impl CommitNumber {
    /// No commit.
    pub const NONE: Self = Self(0);
}

impl fmt::Display for CommitNumber {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "commit {}", self.0)
    }
}

/// Whether a transaction has committed, and with which number: shared by everything that it wrote.
#[derive(Debug, Clone, Default)]
pub struct CommitState(Arc<AtomicU64>);

impl CommitState {
    const ABORTED: u64 = u64::MAX;

    /// Its number, once it is pre-committed.
    #[must_use]
    pub fn commit(&self) -> Option<CommitNumber> {
        match self.0.load(Ordering::Acquire) {
            0 | Self::ABORTED => None,
            number => Some(CommitNumber(number)),
        }
    }

    /// Whether it was rolled back.
    #[must_use]
    pub fn is_aborted(&self) -> bool {
        self.0.load(Ordering::Acquire) == Self::ABORTED
    }
}

/// A transaction that runs; rolled back when dropped.
#[derive(Debug)]
pub struct Transaction {
    id: TransactionId,
    state: CommitState,
    transactions: Arc<Transactions>,
}

impl Transaction {
    /// Its id.
    #[must_use]
    pub fn id(&self) -> TransactionId {
        self.id
    }

    /// What its versions point to.
    #[must_use]
    pub fn state(&self) -> &CommitState {
        &self.state
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        if self.state.commit().is_none() {
            self.state.0.store(CommitState::ABORTED, Ordering::Release);
            self.transactions.registry().running.remove(&self.id);
        }
    }
}

/// A commit that others see, and that is not acknowledged before the log is durable up to [`PreCommit::end`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PreCommit {
    /// Whose.
    pub transaction: TransactionId,
    /// Its number.
    pub commit: CommitNumber,
    /// The place in the log to wait for.
    pub end: Lsn,
}

/// The transactions of one opening of a database. See the module's description.
#[derive(Debug)]
pub struct Transactions {
    /// Held while a commit gets its number and its place in the log.
    order: Mutex<()>,
    registry: Mutex<Registry>,
}

#[derive(Debug)]
struct Registry {
    next_id: TransactionId,
    running: BTreeSet<TransactionId>,
    /// The last that new snapshots see.
    visible: CommitNumber,
    /// Commits that are not known to be durable, in order.
    soft: VecDeque<(CommitNumber, Lsn)>,
    /// How many holds there are on each snapshot.
    held: BTreeMap<CommitNumber, usize>,
    /// No snapshot before this one can be had any more.
    vacuumed: CommitNumber,
}

impl Transactions {
    /// Transactions after the commit `last`, of a database whose log names no transaction above `last_id`.
    #[must_use]
    pub fn new(last: CommitNumber, last_id: TransactionId) -> Arc<Self> {
        let registry = Registry {
            next_id: TransactionId(last_id.0.saturating_add(1)),
            running: BTreeSet::new(),
            visible: last,
            soft: VecDeque::new(),
            held: BTreeMap::new(),
            vacuumed: CommitNumber::NONE,
        };
        Arc::new(Self { order: Mutex::default(), registry: Mutex::new(registry) })
    }

    /// Begins a transaction.
    #[must_use]
    pub fn begin(self: &Arc<Self>) -> Transaction {
        let mut registry = self.registry();
        let id = registry.next_id;
        registry.next_id.0 += 1;
        registry.running.insert(id);
        Transaction { id, state: CommitState::default(), transactions: Arc::clone(self) }
    }

    /// What `own` sees now: every commit so far. [`TransactionId::NONE`] for a look from outside.
    #[must_use]
    pub fn snapshot(self: &Arc<Self>, own: TransactionId) -> SnapshotHold {
        let mut registry = self.registry();
        let commit = registry.visible;
        registry.hold(commit);
        SnapshotHold::new(Snapshot { commit, own }, Arc::clone(self))
    }

    /// What was seen after an older commit; None where it may have been vacuumed, or is still to come.
    #[must_use]
    pub fn snapshot_at(
        self: &Arc<Self>,
        commit: CommitNumber,
        own: TransactionId,
    ) -> Option<SnapshotHold> {
        let mut registry = self.registry();
        if commit < registry.vacuumed || commit > registry.visible {
            return None;
        }
        registry.hold(commit);
        Some(SnapshotHold::new(Snapshot { commit, own }, Arc::clone(self)))
    }

    /// Gives the transaction the next commit number. `log` is called with it, alone among all commits, to append the record
    /// and to apply what must be there before others look; it returns the place to wait for. When this returns, new
    /// snapshots see the commit.
    ///
    /// # Errors
    /// What `log` says: the number is not used, and the transaction is rolled back.
    pub fn pre_commit<E>(
        &self,
        transaction: Transaction,
        log: impl FnOnce(CommitNumber) -> Result<Lsn, E>,
    ) -> Result<PreCommit, E> {
        let _order = self.order.lock().unwrap_or_else(PoisonError::into_inner);
        let commit = CommitNumber(self.registry().visible.0 + 1);
        let end = log(commit)?;
        let mut registry = self.registry();
        transaction.state.0.store(commit.0, Ordering::Release);
        registry.running.remove(&transaction.id);
        registry.soft.push_back((commit, end));
        registry.visible = commit;
        Ok(PreCommit { transaction: transaction.id, commit, end })
    }

    /// Takes note that the log is durable up to `durable`.
    pub fn harden(&self, durable: Lsn) {
        let mut registry = self.registry();
        while registry.soft.front().is_some_and(|(_, end)| *end <= durable) {
            registry.soft.pop_front();
        }
    }

    /// The place up to which the log must be durable before anything leaves that saw `commit`; None if it is.
    #[must_use]
    pub fn needs_durable(&self, commit: CommitNumber) -> Option<Lsn> {
        let registry = self.registry();
        let count = registry.soft.partition_point(|(soft, _)| *soft <= commit);
        let last = count.checked_sub(1).and_then(|last| registry.soft.get(last));
        last.map(|(_, end)| *end)
    }

    /// The last commit that new snapshots see.
    #[must_use]
    pub fn visible(&self) -> CommitNumber {
        self.registry().visible
    }

    /// The last commit that is known to be durable, and all before it: what a checkpoint may hold.
    #[must_use]
    pub fn hardened(&self) -> CommitNumber {
        self.registry().hardened()
    }

    /// The oldest commit that a snapshot may still look from. What is superseded by a version at or before it, nobody
    /// sees; it never passes a commit that is not durable.
    #[must_use]
    pub fn oldest_snapshot(&self) -> CommitNumber {
        self.registry().oldest()
    }

    /// [`Transactions::oldest_snapshot`], or `retained` if that is older; from now on no older snapshot is given
    /// ([`Transactions::snapshot_at`]), so what only those see may go.
    #[must_use]
    pub fn begin_vacuum(&self, retained: CommitNumber) -> CommitNumber {
        let mut registry = self.registry();
        registry.vacuumed = registry.oldest().min(retained).max(registry.vacuumed);
        registry.vacuumed
    }

    /// The transactions that run, ascending.
    #[must_use]
    pub fn running(&self) -> Vec<TransactionId> {
        self.registry().running.iter().copied().collect()
    }

    /// Another hold on what is held already.
    pub(crate) fn hold(self: &Arc<Self>, snapshot: Snapshot) -> SnapshotHold {
        self.registry().hold(snapshot.commit);
        SnapshotHold::new(snapshot, Arc::clone(self))
    }

    pub(crate) fn release(&self, commit: CommitNumber) {
        let mut registry = self.registry();
        if let Some(count) = registry.held.get_mut(&commit) {
            *count -= 1;
            if *count == 0 {
                registry.held.remove(&commit);
            }
        }
    }

    fn registry(&self) -> MutexGuard<'_, Registry> {
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Registry {
    fn hold(&mut self, commit: CommitNumber) {
        *self.held.entry(commit).or_default() += 1;
    }

    fn hardened(&self) -> CommitNumber {
        let soft = self.soft.front().map(|(commit, _)| CommitNumber(commit.0.saturating_sub(1)));
        soft.unwrap_or(self.visible)
    }

    fn oldest(&self) -> CommitNumber {
        let held = self.held.first_key_value().map(|(commit, _)| *commit);
        held.unwrap_or(self.visible).min(self.hardened())
    }
}

#[cfg(test)]
mod tests;
