//! What a transaction has locked: a change in; locks on its rows and keys out, held until the transaction ends.
//!
//! ```text
//!  UPDATE, DELETE, INSERT   ROW EXCLUSIVE on the table │ FOR UPDATE on each row that ends │ on each unique key that begins
//!  of very many rows        EXCLUSIVE on the table: only readers beside it
//!  CREATE, DROP, ALTER      ACCESS EXCLUSIVE on the table │ on its name where it is a new one
//!  CREATE INDEX by itself   SHARE UPDATE EXCLUSIVE on the table: writers of rows beside it
//!  SELECT … FOR UPDATE      ROW SHARE on the table │ in the mode that is written: on each unique key of a row, on the row
//! ```
//!
//!
//! FOR UPDATE is FOR NO KEY UPDATE, on row and keys, where no column of a unique key changes: who holds FOR KEY SHARE,
//! as a foreign key does, is not in its way.
//!
//! Readers lock nothing: they hold a state. Only while someone may hold a table in `ACCESS EXCLUSIVE`, which a counter
//! tells, they lock theirs, and so wait. Keys are locked first, and rows in the order of their VIDs, so that two
//! statements over the same rows do not wait for each other: a row that was updated is another one by then, and has its
//! key still. Other deadlock cycles are found, and end one of them.
//!
//! Invariant: whoever holds a row's lock is the only one who may end the row, and whoever holds a key's may begin a row
//! with it; the newest published state has all that earlier holders have done. Source: rules 19 and 23.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use cleave_catalog::advisory_locks::{AdvisoryLocks, lock_within};
use cleave_catalog::catalog::TableState;
use cleave_catalog::error::{Error, Result};
use cleave_catalog::index::TabletIndex;
use cleave_engine::write::insert::TableChange;
use cleave_engine::write::vid_set::VidSet;
use cleave_txn::locks::LockMark;
use cleave_txn::{LockKey, LockMode, LockOwner, Locks};

use crate::database::Database;

/// Rows and keys of a statement up to which each is locked; beyond, the table is.
pub(super) const LOCKED_ROWS_MAX: usize = 10_000;

/// Stands for the index of names: no index has this number.
const NAMES: u64 = u64::MAX;

/// The locks of one transaction; dropped, they are free.
#[derive(Debug)]
pub(super) struct TransactionLocks {
    locks: Arc<Locks>,
    owner: Arc<LockOwner>,
    counter: Arc<AtomicUsize>,
    readers_held_back: Option<ReadersHeldBack>,
}

/// One of those for whom readers may have to wait, as long as it is there.
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
        Self { locks, owner, counter, readers_held_back: None }
    }

    /// This moment, for a savepoint.
    pub(super) fn mark(&self) -> LockMark {
        self.owner.mark()
    }

    /// How many locks these are.
    pub(super) fn lock_count(&self) -> usize {
        self.owner.lock_count()
    }

    /// Frees what was locked since.
    pub(super) fn release_to(&self, mark: LockMark) {
        self.locks.release_to(&self.owner, mark);
    }

    /// Whether the table is locked for `change`, and not its rows.
    pub(super) fn takes_table(change: &TableChange) -> bool {
        let ended = change.dead.values().map(VidSet::len).sum::<usize>();
        ended.max(change.row_count()) > LOCKED_ROWS_MAX
    }

    /// Says, until this transaction ends, that readers may have to wait for it.
    pub(super) fn hold_readers_back(&mut self) {
        if self.readers_held_back.is_none() {
            self.readers_held_back = Some(ReadersHeldBack::new(&self.counter));
        }
    }

    /// Locks what `change` is about: the committed rows that end, and the keys that begin.
    ///
    /// # Errors
    /// [`Error::Conflict`], where that would take for ever, or longer than `timeout_ms` (0: any time).
    pub(super) async fn lock_change(
        &self,
        table: &TableState,
        change: &TableChange,
        timeout_ms: u64,
    ) -> Result<()> {
        let is_large = Self::takes_table(change);
        let mode = if is_large { LockMode::Exclusive } else { LockMode::RowExclusive };
        self.lock(table_key(table), mode, timeout_ms).await?;
        if is_large {
            return Ok(());
        }
        let mode = match change.keeps_keys {
            true => LockMode::ForNoKeyUpdate,
            false => LockMode::ForUpdate,
        };
        for index in unique_indexes(table) {
            let shape = index.shape();
            let mut wanted = Vec::new();
            for rows in change.batches() {
                let keys = shape.row_entries(rows, 0)?;
                // Rows with a NULL are equal to none.
                let keys = keys.iter().flatten().filter(|key| !shape.key.has_null(key));
                wanted.extend(keys.map(|key| unique_key(table, index, key)));
            }
            wanted.sort_unstable();
            wanted.dedup();
            for key in wanted {
                self.lock(key, mode, timeout_ms).await?;
            }
        }
        for (place, vids) in &change.dead {
            for vid in vids.iter() {
                self.lock(row_key(table, *place, vid), mode, timeout_ms).await?;
            }
        }
        Ok(())
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

    /// Locks a name that shall be that of a table or another object.
    ///
    /// # Errors
    /// As [`TransactionLocks::lock_change`].
    pub(super) async fn lock_name(&self, name: &str, timeout_ms: u64) -> Result<()> {
        let key = LockKey::key(NAMES, hash(name.as_bytes()));
        self.lock(key, LockMode::ForUpdate, timeout_ms).await
    }

    /// Locks `key` if that is possible at once.
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

/// What the lock table calls `table`.
pub(super) fn table_key(table: &TableState) -> LockKey {
    LockKey::table(u64::from(table.schema.table_id))
}

/// What it calls a row.
pub(super) fn row_key(table: &TableState, place: usize, vid: u64) -> LockKey {
    let object = (u64::from(table.schema.table_id) << 32) | place as u64;
    match table.tablets.get(place) {
        Some(tablet) => LockKey::row_on(tablet.device.0, object, vid),
        None => LockKey::row(object, vid),
    }
}

/// What it calls a key of a unique index of `table`.
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
