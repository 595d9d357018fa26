//! The locks of a transaction: a change in; locks on its table, rows and keys out, held until the transaction ends.
//!
//! ```text
//!  UPDATE, DELETE, INSERT   ROW EXCLUSIVE on the table, FOR UPDATE on each row that ends
//!                           and on each unique key of a new row
//!  of very many rows        EXCLUSIVE on the table: only readers beside it
//!  by an update fragment    ROW EXCLUSIVE on the table, FOR SHARE on its pages; the fragment locks rows
//!  VACUUM                   SHARE UPDATE EXCLUSIVE on the table, FOR UPDATE on its pages
//!  ALTER DEVICE … DRAIN     EXCLUSIVE on each table, for the end of its move
//!  CREATE, DROP, ALTER      ACCESS EXCLUSIVE on the table, and on a new name
//!  CREATE INDEX by itself   SHARE UPDATE EXCLUSIVE on the table: writers of rows beside it
//!  SELECT … FOR UPDATE      ROW SHARE on the table, the written mode on each unique key of a row and on the row
//!  by a locking fragment    ROW SHARE on the table; the fragment locks rows
//! ```
//!
//! A change that leaves all unique keys as they are takes FOR NO KEY UPDATE in place of FOR UPDATE, on rows and keys:
//! it does not conflict with FOR KEY SHARE, which a foreign key takes.
//!
//! Readers take no locks: they read a snapshot. Only while a transaction may hold a table in `ACCESS EXCLUSIVE`, which
//! a counter tells, do they lock their tables, and so wait. Keys are locked first, then rows in the order of their
//! VIDs, so that two statements over the same rows do not deadlock: an updated row has a new VID, but the same key.
//! Other deadlock cycles are detected, and one of their transactions is aborted.
//!
//! Invariant: only the holder of a row's lock may end the row, and only the holder of a key's lock may insert a row
//! with it. The newest published snapshot contains all changes of earlier holders. Source: rules 19 and 23.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use cleave_catalog::advisory_locks::{AdvisoryLocks, lock_within};
use cleave_catalog::catalog::TableState;
use cleave_catalog::error::{Error, Result};
use cleave_catalog::index::TabletIndex;
use cleave_engine::device::Device;
use cleave_engine::device::shared_locks::{LockingJob, row_object};
use cleave_engine::write::insert::TableChange;
use cleave_engine::write::vid_set::VidSet;
use cleave_txn::locks::{KeyKind, LockMark};
use cleave_txn::{LockKey, LockMode, LockOwner, Locks, TransactionId};

use super::lost_waits::{Stays, while_rows_stay};
use crate::database::Database;

/// Rows and keys of a statement up to which each is locked; beyond that the table is locked.
pub(super) const LOCKED_ROWS_MAX: usize = 10_000;

/// Stands for the index of names: no index has this number.
const NAMES: u64 = u64::MAX;
/// Stands for the pages of tables.
const PAGES: u64 = u64::MAX - 1;
/// Stands for loads into tables.
const LOADS: u64 = u64::MAX - 2;

/// The locks of one transaction; dropping it frees them.
#[derive(Debug)]
pub(super) struct TransactionLocks {
    locks: Arc<Locks>,
    owner: Arc<LockOwner>,
    counter: Arc<AtomicUsize>,
    readers_held_back: Option<ReadersHeldBack>,
    /// Fragments that have locked rows for the transaction. They end after its other locks, and with it alone: ROLLBACK
    /// TO a savepoint keeps their rows.
    jobs: Vec<Arc<LockingJob>>,
}

/// Counts one transaction that readers may have to wait for, as long as it exists.
#[derive(Debug)]
struct ReadersHeldBack(Arc<AtomicUsize>);

impl ReadersHeldBack {
    fn new(counter: &Arc<AtomicUsize>) -> Self {
        counter.fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(counter))
    }
}

impl Drop for ReadersHeldBack {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl TransactionLocks {
    /// None yet.
    pub(super) fn new(database: &Database, advisory: &AdvisoryLocks) -> Self {
        let locks = Arc::clone(database.locks());
        let owner = LockOwner::in_group(database.transaction_id(), advisory.group());
        advisory.begin(&owner);
        let counter = Arc::clone(database.holding_readers_back());
        Self { locks, owner, counter, readers_held_back: None, jobs: Vec::new() }
    }

    /// The present position in the locks, for a savepoint.
    pub(super) fn mark(&self) -> LockMark {
        self.owner.mark()
    }

    /// Its transaction, as the lock table knows it.
    pub(super) fn id(&self) -> TransactionId {
        self.owner.id()
    }

    /// The number of locks.
    pub(super) fn lock_count(&self) -> usize {
        self.owner.lock_count()
    }

    /// Frees what was locked since that position.
    pub(super) fn release_to(&self, mark: LockMark) {
        self.locks.release_to(&self.owner, mark);
    }

    /// Whether the table is locked for `change` instead of its rows.
    pub(super) fn takes_table(change: &TableChange) -> bool {
        let ended = change.dead.values().map(VidSet::len).sum::<usize>();
        ended.max(change.row_count()) > LOCKED_ROWS_MAX
    }

    /// Announces, until this transaction ends, that readers may have to wait for it.
    pub(super) fn hold_readers_back(&mut self) {
        if self.readers_held_back.is_none() {
            self.readers_held_back = Some(ReadersHeldBack::new(&self.counter));
        }
    }

    /// Locks what `change` touches: the keys of new rows, and then the committed rows that end, which `are_there` has
    /// found as they were read. A lock on a row that has been replaced would keep a fragment with an older snapshot
    /// waiting, while its holder waits for the row's newest version.
    ///
    /// If it `keeps_snapshot`, the transaction fails with that of `are_there` whenever its wait is over; so it does not
    /// wait any longer once that fails.
    ///
    /// # Errors
    /// [`Error::Conflict`] on a deadlock, or after `timeout_ms` (0: no limit); that of `are_there`.
    pub(super) async fn lock_change(
        &self,
        table: &TableState,
        change: &TableChange,
        (timeout_ms, keeps_snapshot): (u64, bool),
        are_there: impl Fn() -> Result<()> + Sync,
    ) -> Result<()> {
        let stays: Option<Stays<'_>> =
            (keeps_snapshot && !change.dead.is_empty()).then_some(&are_there);
        // A fragment has locked no keys. Whoever waits for such a row may have locked its key.
        let has_rows = change.keeps_keys && self.has_rows_by_jobs(table, change)?;
        let is_large = Self::takes_table(change) && !has_rows;
        let mode = if is_large { LockMode::Exclusive } else { LockMode::RowExclusive };
        self.lock_while(table_key(table), mode, timeout_ms, stays).await?;
        if is_large {
            return Ok(());
        }
        let mode = match change.keeps_keys {
            true => LockMode::ForNoKeyUpdate,
            false => LockMode::ForUpdate,
        };
        for index in unique_indexes(table).filter(|_| !has_rows) {
            let shape = index.shape();
            let mut wanted = Vec::new();
            for rows in change.batches() {
                let keys = shape.row_entries(rows, 0)?;
                // A row with a NULL in its key is equal to none.
                let keys = keys.iter().flatten().filter(|key| !shape.key.has_null(key));
                wanted.extend(keys.map(|key| unique_key(table, index, key)));
            }
            wanted.sort_unstable();
            wanted.dedup();
            for key in wanted {
                self.lock_while(key, mode, timeout_ms, stays).await?;
            }
        }
        if !change.dead.is_empty() {
            are_there()?;
        }
        for (place, vids) in &change.dead {
            for vid in vids.iter() {
                self.lock_while(row_key(table, *place, vid), mode, timeout_ms, stays).await?;
            }
        }
        Ok(())
    }

    /// Locks `key`; waits for it only while `stays`, if there is such a condition.
    pub(super) async fn lock_while(
        &self,
        key: LockKey,
        mode: LockMode,
        timeout_ms: u64,
        stays: Option<Stays<'_>>,
    ) -> Result<()> {
        let Some(stays) = stays else { return self.lock(key, mode, timeout_ms).await };
        if self.try_lock(key, mode)? {
            return Ok(());
        }
        stays()?;
        while_rows_stay(stays, self.lock(key, mode, timeout_ms)).await
    }

    /// Whether fragments of the transaction have locked all rows that `change` ends. Then their keys need no locks, if
    /// these stay: whoever inserts such a key finds the row.
    fn has_rows_by_jobs(&self, table: &TableState, change: &TableChange) -> Result<bool> {
        if self.jobs.is_empty() {
            return Ok(false);
        }
        for (place, vids) in &change.dead {
            for vid in vids.iter() {
                let key = row_key(table, *place, vid);
                let has_row = self.locks.has_row_of_job(&self.owner, &key);
                if !has_row.map_err(|error| Error::lock(&error))? {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// Locks the table `table_id`.
    ///
    /// # Errors
    /// As [`TransactionLocks::lock_change`].
    pub(super) async fn lock_table(
        &self,
        table_id: u32,
        mode: LockMode,
        timeout_ms: u64,
    ) -> Result<()> {
        self.lock(LockKey::table(u64::from(table_id)), mode, timeout_ms).await
    }

    /// Locks a name that a new table or other object is to have.
    ///
    /// # Errors
    /// As [`TransactionLocks::lock_change`].
    pub(super) async fn lock_name(&self, name: &str, timeout_ms: u64) -> Result<()> {
        let key = LockKey::key(NAMES, hash(name.as_bytes()));
        self.lock(key, LockMode::ForUpdate, timeout_ms).await
    }

    /// A job that locks rows of `device` for the transaction, that of its last fragment there if it can go on; None:
    /// the device has no lock table, or as many jobs as that can tell apart.
    pub(super) fn begin_job(&mut self, device: &Device) -> Option<Arc<LockingJob>> {
        let number = device.id().0;
        let known = self.jobs.iter().rev().find(|job| job.device() == number);
        if let Some(job) = known.filter(|job| job.hosted().may_go_on()) {
            return Some(Arc::clone(job));
        }
        // What has changed since the snapshot is found once the fragment has ended.
        let newest = Arc::new(|_| None);
        let begun = device.shared_locks()?.begin_job(&self.owner, newest);
        let job = Arc::new(begun.ok().flatten()?);
        self.jobs.push(Arc::clone(&job));
        Some(job)
    }

    /// Whether no device has lost rows that fragments have locked.
    pub(super) fn has_rows_of_jobs(&self) -> bool {
        self.jobs.iter().all(|job| job.hosted().has_its_locks())
    }

    /// Whether fragments have locked rows for it.
    pub(super) fn has_jobs(&self) -> bool {
        !self.jobs.is_empty()
    }

    /// Whether another transaction shares keys of the table: it may know the row of a key by a VID that is no longer
    /// its own, and a fragment locks no keys.
    pub(super) fn others_share_keys(&self, table_id: u32) -> bool {
        self.locks.list().iter().any(|lock| {
            let (kind, object) = (lock.key.kind(), lock.key.object());
            let is_of_table = kind == KeyKind::Key && object >> 32 == u64::from(table_id);
            let shares = matches!(lock.mode, LockMode::ForKeyShare | LockMode::ForShare);
            is_of_table && shares && lock.owner != self.id()
        })
    }

    /// Locks `key` if that is possible without waiting.
    ///
    /// # Errors
    /// [`Error::Conflict`], where the transaction holds too many locks.
    pub(super) fn try_lock(&self, key: LockKey, mode: LockMode) -> Result<bool> {
        self.locks.try_lock(&self.owner, key, mode).map_err(|error| Error::lock(&error))
    }

    /// Locks `key`.
    ///
    /// # Errors
    /// As [`TransactionLocks::lock_change`].
    pub(super) async fn lock(&self, key: LockKey, mode: LockMode, timeout_ms: u64) -> Result<()> {
        lock_within(&self.locks, &self.owner, (key, mode), timeout_ms).await
    }
}

/// The unique indexes of `table`, as its first tablet has them.
pub(super) fn unique_indexes(table: &TableState) -> impl Iterator<Item = &Arc<TabletIndex>> {
    let indexes = table.tablets.first().map(|tablet| tablet.indexes.as_slice());
    indexes.unwrap_or_default().iter().filter(|index| index.definition().unique)
}

/// The name of `table` in the lock table.
pub(super) fn table_key(table: &TableState) -> LockKey {
    LockKey::table(u64::from(table.schema.table_id))
}

/// The pages of `table`. Fragments that make versions of them share this lock; who replaces pages otherwise, such as a
/// vacuum, has it alone.
pub(super) fn pages_key(table: &TableState) -> LockKey {
    LockKey::key(PAGES, u64::from(table.schema.table_id))
}

/// Loads into the table with this number: one at a time goes on beside its writers.
pub(super) fn loads_key(table_id: u32) -> LockKey {
    LockKey::key(LOADS, u64::from(table_id))
}

/// The name of a row.
pub(super) fn row_key(table: &TableState, place: usize, vid: u64) -> LockKey {
    let object = row_object(table.schema.table_id, place);
    match table.tablets.get(place) {
        Some(tablet) => LockKey::row_on(tablet.device.0, object, vid),
        None => LockKey::row(object, vid),
    }
}

/// The name of a key of a unique index of `table`.
pub(super) fn unique_key(table: &TableState, index: &TabletIndex, key: &[u8]) -> LockKey {
    unique_lock(table, index.definition().id, key)
}

/// The same of the index with the number `index`.
pub(super) fn unique_lock(table: &TableState, index: u32, key: &[u8]) -> LockKey {
    LockKey::key((u64::from(table.schema.table_id) << 32) | u64::from(index), hash(key))
}

fn hash(key: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    hasher.finish()
}

impl Drop for TransactionLocks {
    fn drop(&mut self) {
        self.locks.release_all(&self.owner);
    }
}
