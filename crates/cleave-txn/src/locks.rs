//! The host's lock table: a lock request on a table, row, key or transaction in, a grant or a wait out.
//!
//! 1. [`mode`]: PostgreSQL's modes and conflicts; [`LockKey`]: the lockable objects.
//! 2. [`Locks::request`] grants at once if no conflicting mode is held or awaited. Otherwise it puts the request into
//!    the queue of its key ([`table`]) and returns a [`LockWait`], to block on or to `await`.
//! 3. [`deadlock`]: each request that starts to wait looks for a deadlock cycle that it closed. A cycle that exists
//!    only because of a queue's order is broken by changing that order; any other ends the request.
//! 4. A row that jobs of its device may change, too, is in the lock table shared with the device: `shared` joins there.
//! 5. [`Locks::release_all`] and [`Locks::release_to`] release locks, and grant waiting requests in the order of the
//!    queue.
//!
//! ```text
//!  partition (64, a mutex each)
//!   └ key ─▶ holders: owner, modes         queue: oldest first; a holder stands before those who wait for it
//!              ▲                              │ granted when no conflict with holders, nor with any before it
//!              └──────────────────────────────┘
//! ```
//!
//! Owners of one [`LockGroup`] count as one to all others, and never conflict with each other; each releases its own
//! locks.
//!
//! A job of a device is part of a transaction: [`Locks::begin_job`]. Deadlock cycles go through it ([`jobs`]).
//!
//! Invariant: two owners never hold conflicting modes of one key. A request without a conflict is granted: no wake-up
//! is lost. A lock is held until its owner ends, or rolls back to an older [`LockMark`]. Deliberately absent: time. A
//! waiter with a time limit drops the wait ([`LockWait::block`] does it on a condition variable).
//! Source: the Update NDP paper, 5; rule 19; `docs/design/locks.md`.

pub mod deadlock;
pub mod jobs;
pub mod mode;
mod shared;
mod table;
mod wait;

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cleave_shmem::HostLocks;
pub use deadlock::{Deadlock, DeadlockEdge};
pub use mode::LockMode;
pub use wait::LockWait;

use crate::transaction::TransactionId;
use table::{Grant, Table};
use wait::Request;

/// The device number of keys that lie on none.
const NO_DEVICE: u32 = u32::MAX;

/// A lockable object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct LockKey {
    kind: KeyKind,
    object: u64,
    id: u64,
    /// Of a row: the device that it lies on.
    device: u32,
}

/// The kinds of [`LockKey`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum KeyKind {
    /// A table.
    Table,
    /// A row.
    Row,
    /// A key of an index, by a hash: two keys with the same hash conflict too.
    Key,
    /// A transaction: held by itself until it ends, awaited by those that need its outcome.
    Transaction,
    /// A number with a meaning of the user's own (advisory locks).
    Advisory,
    /// An entry of the table shared with a device that a job waits for: in a [`Deadlock`] alone.
    Entry,
}

impl LockKey {
    /// The table `object`.
    #[must_use]
    pub fn table(object: u64) -> Self {
        Self { kind: KeyKind::Table, object, id: 0, device: NO_DEVICE }
    }

    /// The row `vid` of the table `object`, which lies on no device that shares locks.
    #[must_use]
    pub fn row(object: u64, vid: u64) -> Self {
        Self::row_on(NO_DEVICE, object, vid)
    }

    /// The row `vid` of `object`, which lies on the device with this number; the number of a row must not change.
    #[must_use]
    pub fn row_on(device: u32, object: u64, vid: u64) -> Self {
        Self { kind: KeyKind::Row, object, id: vid, device }
    }

    /// The key with this hash in the index `object`.
    #[must_use]
    pub fn key(object: u64, hash: u64) -> Self {
        Self { kind: KeyKind::Key, object, id: hash, device: NO_DEVICE }
    }

    /// The end of a transaction.
    #[must_use]
    pub fn transaction(id: TransactionId) -> Self {
        Self { kind: KeyKind::Transaction, object: 0, id: id.0, device: NO_DEVICE }
    }

    /// An entry of the table that this device shares.
    fn entry(device: u32, entry: u32) -> Self {
        Self { kind: KeyKind::Entry, object: device.into(), id: entry.into(), device }
    }

    /// A number of the user's.
    #[must_use]
    pub fn advisory(class: u64, id: u64) -> Self {
        Self { kind: KeyKind::Advisory, object: class, id, device: NO_DEVICE }
    }

    /// Its kind.
    #[must_use]
    pub fn kind(&self) -> KeyKind {
        self.kind
    }

    /// The table or index; 0 if there is none.
    #[must_use]
    pub fn object(&self) -> u64 {
        self.object
    }

    /// The row, the key's hash or the transaction; 0 for a table.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.id
    }
}

impl fmt::Display for LockKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, object, id, device: _ } = self;
        match kind {
            KeyKind::Table => write!(formatter, "table {object}"),
            KeyKind::Row => write!(formatter, "row {id} of table {object}"),
            KeyKind::Key => write!(formatter, "key {id:x} of index {object}"),
            KeyKind::Transaction => write!(formatter, "transaction {id}"),
            KeyKind::Advisory => write!(formatter, "advisory lock {object}, {id}"),
            KeyKind::Entry => {
                write!(formatter, "rows of entry {id} of the locks of device {object}")
            }
        }
    }
}

/// Why a lock was not granted, by what the caller can do.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum LockError {
    /// It is not free, and the caller did not want to wait; try later.
    #[error("could not obtain lock {mode} on {key}")]
    NotAvailable {
        /// The key.
        key: LockKey,
        /// The mode.
        mode: LockMode,
    },
    /// It did not become free in time; try later.
    #[error("canceling statement due to lock timeout, waiting for {mode} on {key}")]
    Timeout {
        /// The key.
        key: LockKey,
        /// The mode.
        mode: LockMode,
    },
    /// Waiting would never have ended: roll back and try the transaction again.
    #[error("deadlock detected: {0}")]
    Deadlock(Arc<Deadlock>),
    /// The waiting statement was cancelled.
    #[error("canceling statement, which waits for {mode} on {key}")]
    Cancelled {
        /// The key.
        key: LockKey,
        /// The mode.
        mode: LockMode,
    },
    /// The transaction holds the maximum number of locks: lock the whole table instead.
    #[error(
        "one transaction may hold at most {lock_count_max} locks; lock the whole table instead"
    )]
    TooMany {
        /// The maximum.
        lock_count_max: usize,
    },
    /// All transactions together hold the maximum number of locks: try later, or lock whole tables.
    #[error(
        "out of shared memory: all sessions together may lock {lock_count_max} things; lock whole tables, or fewer \
            rows a transaction"
    )]
    TooManyInAll {
        /// The maximum.
        lock_count_max: usize,
    },
    /// The table shared with a device is spoilt: end the device's jobs and fence it.
    #[error("{key} cannot be locked: {source}")]
    Shared {
        /// The key.
        key: LockKey,
        /// The error of the shared table.
        source: cleave_shmem::LockError,
    },
    /// The transaction has ended; a mistake of the caller.
    #[error("{0} has ended and can lock nothing")]
    Ended(TransactionId),
}

impl LockError {
    /// PostgreSQL's SQLSTATE for it.
    #[must_use]
    pub fn sqlstate(&self) -> &'static str {
        match self {
            Self::NotAvailable { .. } | Self::Timeout { .. } => "55P03",
            Self::Deadlock(_) => "40P01",
            Self::Cancelled { .. } => "57014",
            Self::TooMany { .. } | Self::TooManyInAll { .. } => "53200",
            Self::Shared { .. } => "58030",
            Self::Ended(_) => "XX000",
        }
    }
}

/// Owners that never conflict and wait as one: a session's transaction, and the session's own locks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LockGroup {
    number: u64,
    backend: i32,
}

impl LockGroup {
    /// A new group, of the connection with this number; 0: of none.
    #[must_use]
    pub fn new(backend: i32) -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        Self { number: COUNT.fetch_add(1, Ordering::Relaxed), backend }
    }

    /// The number of the connection.
    #[must_use]
    pub fn backend(self) -> i32 {
        self.backend
    }
}

/// An owner of locks and waits: one transaction, all of its threads.
pub struct LockOwner {
    id: TransactionId,
    group: LockGroup,
    held: Mutex<Held>,
}

#[derive(Debug, Default)]
struct Held {
    /// Locks in the order in which they were granted.
    granted: Vec<(LockKey, LockMode)>,
    /// Requests in queues.
    waiting: usize,
    has_ended: bool,
}

/// A position in an owner's locks, to which [`Locks::release_to`] returns: a savepoint's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct LockMark(usize);

impl LockOwner {
    /// An owner without locks. Its id must be unique.
    #[must_use]
    pub fn new(id: TransactionId) -> Arc<Self> {
        Self::in_group(id, LockGroup::new(0))
    }

    /// As [`LockOwner::new`], in `group`.
    #[must_use]
    pub fn in_group(id: TransactionId, group: LockGroup) -> Arc<Self> {
        Arc::new(Self { id, group, held: Mutex::default() })
    }

    /// Its group.
    #[must_use]
    pub fn group(&self) -> LockGroup {
        self.group
    }

    /// Its transaction.
    #[must_use]
    pub fn id(&self) -> TransactionId {
        self.id
    }

    /// The present position.
    #[must_use]
    pub fn mark(&self) -> LockMark {
        LockMark(self.held().granted.len())
    }

    /// Number of its locks; each further mode of the same key counts once more.
    #[must_use]
    pub fn lock_count(&self) -> usize {
        self.held().granted.len()
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for LockOwner {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("LockOwner").field(&self.id).finish()
    }
}

/// The outcome of a request.
#[derive(Debug)]
#[must_use = "a wait that is dropped is withdrawn"]
pub enum Requested {
    /// The lock is held.
    Granted,
    /// The request waits: block on this, or `await` it.
    Waiting(LockWait),
}

/// One lock, or one wait for it, for display.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LockStatus {
    /// The key.
    pub key: LockKey,
    /// The mode.
    pub mode: LockMode,
    /// The owner.
    pub owner: TransactionId,
    /// The group of the owner.
    pub group: LockGroup,
    /// Whether it is held; otherwise it is awaited.
    pub is_granted: bool,
}

/// The most locks that one owner may hold unless [`Locks::with_lock_count_max`] says otherwise: some 100 bytes each.
pub const LOCK_COUNT_MAX: usize = 8 << 20;

/// The most keys that all owners together may lock or await.
pub const LOCK_COUNT_TOTAL_MAX: usize = 2 << 20;

/// The lock table. See the module's description.
#[derive(Debug)]
pub struct Locks {
    table: Table,
    lock_count_max: usize,
    wait_count: AtomicU64,
    deadlock_count: AtomicU64,
}

/// What has happened to requests since the table was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WaitFigures {
    /// Requests that had to wait.
    pub waits: u64,
    /// Those that closed a deadlock cycle, and were refused.
    pub deadlocks: u64,
}

impl Default for Locks {
    fn default() -> Self {
        Self::with_lock_count_max(LOCK_COUNT_MAX)
    }
}

impl Locks {
    /// An empty table.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Arc::new(Self::default())
    }

    /// An empty table in which one owner may hold so many locks.
    #[must_use]
    pub fn with_lock_count_max(lock_count_max: usize) -> Self {
        Self::over(Table::new(LOCK_COUNT_TOTAL_MAX), lock_count_max)
    }

    /// An empty table in which all owners together may lock about so many keys.
    #[must_use]
    pub fn with_total_max(lock_count_max: usize) -> Self {
        Self::over(Table::new(lock_count_max), LOCK_COUNT_MAX)
    }

    fn over(table: Table, lock_count_max: usize) -> Self {
        let (wait_count, deadlock_count) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { table, lock_count_max, wait_count, deadlock_count }
    }

    /// How often requests have waited.
    #[must_use]
    pub fn figures(&self) -> WaitFigures {
        WaitFigures {
            waits: self.wait_count.load(Ordering::Relaxed),
            deadlocks: self.deadlock_count.load(Ordering::Relaxed),
        }
    }

    /// Shares the rows of the device with this number by `table`, unless it has one: from now on requests for one of
    /// them join there, too. To be called before any row of the device is locked.
    pub fn share(&self, device: u32, table: &Arc<HostLocks>) {
        self.table.share(device, table);
    }

    /// Locks `key` for `owner`, or starts to wait for it. Locks that the owner holds already never conflict with its
    /// requests.
    ///
    /// # Errors
    /// [`LockError::Deadlock`], [`LockError::TooMany`], [`LockError::TooManyInAll`] and [`LockError::Ended`].
    pub fn request(
        self: &Arc<Self>,
        owner: &Arc<LockOwner>,
        key: LockKey,
        mode: LockMode,
    ) -> Result<Requested, LockError> {
        match self.table.request(owner, (key, mode), self.lock_count_max, true)? {
            Grant::Granted => Ok(Requested::Granted),
            Grant::NotFree => Err(LockError::NotAvailable { key, mode }),
            Grant::Queued(request) => {
                // Made first, so that the request is withdrawn if it closed a cycle.
                let wait = LockWait::new(Arc::clone(self), Arc::clone(&request));
                self.wait_count.fetch_add(1, Ordering::Relaxed);
                if let Err(error) = self.table.resolve(&request) {
                    self.deadlock_count.fetch_add(1, Ordering::Relaxed);
                    return Err(error);
                }
                Ok(Requested::Waiting(wait))
            }
        }
    }

    /// Locks `key` for `owner` if that is possible at once: for `NOWAIT` and `SKIP LOCKED`. False if not, also if
    /// earlier requests wait.
    ///
    /// # Errors
    /// [`LockError::TooMany`], [`LockError::TooManyInAll`] and [`LockError::Ended`].
    pub fn try_lock(
        &self,
        owner: &Arc<LockOwner>,
        key: LockKey,
        mode: LockMode,
    ) -> Result<bool, LockError> {
        let grant = self.table.request(owner, (key, mode), self.lock_count_max, false)?;
        Ok(matches!(grant, Grant::Granted))
    }

    /// Whether a job of `owner`'s transaction has locked the row `key`.
    ///
    /// # Errors
    /// [`LockError::Shared`] of a table that is spoilt.
    pub fn has_row_of_job(&self, owner: &LockOwner, key: &LockKey) -> Result<bool, LockError> {
        self.table.has_row_of_job(owner, key)
    }

    /// [`Locks::request`], and [`LockWait::block`] if it has to wait.
    ///
    /// # Errors
    /// Any but [`LockError::NotAvailable`].
    pub fn lock(
        self: &Arc<Self>,
        owner: &Arc<LockOwner>,
        key: LockKey,
        mode: LockMode,
        timeout: Option<Duration>,
    ) -> Result<(), LockError> {
        match self.request(owner, key, mode)? {
            Requested::Granted => Ok(()),
            Requested::Waiting(wait) => wait.block(timeout),
        }
    }

    /// Releases all locks that `owner` was granted since `mark`; it keeps the weaker modes that it held before.
    pub fn release_to(&self, owner: &LockOwner, mark: LockMark) {
        let mut held = owner.held();
        let kept = mark.0.min(held.granted.len());
        let released = held.granted.split_off(kept);
        drop(held);
        self.table.release(owner.id, &released);
    }

    /// Releases everything; the owner can take no further locks. Its waits end with [`LockError::Ended`].
    pub fn release_all(&self, owner: &LockOwner) {
        let mut held = owner.held();
        held.has_ended = true;
        let released = std::mem::take(&mut held.granted);
        let is_waiting = held.waiting > 0;
        drop(held);
        if is_waiting {
            self.table.withdraw_all(owner, |_, _| LockError::Ended(owner.id));
        }
        self.table.release(owner.id, &released);
    }

    /// Ends every wait of `owner` with [`LockError::Cancelled`]; its locks stay.
    pub fn cancel(&self, owner: &LockOwner) {
        self.table.withdraw_all(owner, |key, mode| LockError::Cancelled { key, mode });
    }

    /// Whether `owner` holds `key` in `mode` or a stronger one.
    #[must_use]
    pub fn holds(&self, owner: &LockOwner, key: LockKey, mode: LockMode) -> bool {
        self.table.holds(owner.id, key, mode)
    }

    /// All locks and waits, by key; each partition is read at a different moment.
    #[must_use]
    pub fn list(&self) -> Vec<LockStatus> {
        self.table.list()
    }

    pub(crate) fn look(&self, key: LockKey) {
        self.table.look(key);
    }

    pub(crate) fn withdraw(&self, request: &Arc<Request>) {
        self.table.withdraw(request);
    }
}

#[cfg(test)]
mod tests;
