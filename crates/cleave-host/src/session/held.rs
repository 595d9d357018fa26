//! What a transaction has locked: a change in; locks on its rows and keys out, held until the transaction ends.
//!
//! ```text
//!  UPDATE, DELETE, INSERT   ROW EXCLUSIVE on the table │ FOR UPDATE on each row that ends │ on each unique key that begins
//!  of very many rows        EXCLUSIVE on the table: only readers beside it
//!  CREATE, DROP, ALTER      ACCESS EXCLUSIVE on the table │ on its name where it is a new one
//!  CREATE INDEX by itself   SHARE UPDATE EXCLUSIVE on the table: writers of rows beside it
//! ```
//!
//! Readers lock nothing: they hold a state. Keys are locked first, and rows in the order of their VIDs, so that two statements
//! over the same rows do not wait for each other: a row that was updated is another one by then, and has its key still. Other
//! rings of waits are found, and end one of them.
//!
//! Invariant: whoever holds a row's lock is the only one who may end the row, and whoever holds a key's may begin a row with it;
//! the newest published state has all that earlier holders have done. Source: rules 19 and 23.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use cleave_fragment::waiting;
use cleave_txn::locks::LockMark;
use cleave_txn::{LockKey, LockMode, LockOwner, Locks, Requested};

use crate::catalog::TableState;
use crate::database::Database;
use crate::error::{Error, Result};
use crate::write::insert::TableChange;

/// Rows and keys of a statement up to which each is locked; beyond, the table is.
const LOCKED_ROWS_MAX: usize = 10_000;

/// Stands for the index of names: no index has this number.
const NAMES: u64 = u64::MAX;

/// The locks of one transaction; dropped, they are free.
#[derive(Debug)]
pub(super) struct Held {
    locks: Arc<Locks>,
    owner: Arc<LockOwner>,
}

impl Held {
    /// None yet.
    pub(super) fn new(database: &Database) -> Self {
        Self { locks: Arc::clone(database.locks()), owner: database.lock_owner() }
    }

    /// This moment, for a savepoint.
    pub(super) fn mark(&self) -> LockMark {
        self.owner.mark()
    }

    /// Frees what was locked since.
    pub(super) fn release_to(&self, mark: LockMark) {
        self.locks.release_to(&self.owner, mark);
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
        let timeout = (timeout_ms > 0).then(|| Duration::from_millis(timeout_ms));
        let table_id = u64::from(table.schema.table_id);
        let row_count = change.ended.values().map(std::collections::BTreeSet::len).sum::<usize>();
        let is_large = row_count.max(change.row_count()) > LOCKED_ROWS_MAX;
        let mode = if is_large { LockMode::Exclusive } else { LockMode::RowExclusive };
        self.lock(LockKey::table(table_id), mode, timeout).await?;
        if is_large {
            return Ok(());
        }
        let indexes = table.tablets.first().map(|tablet| tablet.indexes.as_slice());
        let indexes = indexes.unwrap_or_default().iter();
        for index in indexes.filter(|index| index.definition().unique) {
            let (shape, id) = (index.shape(), u64::from(index.definition().id));
            let mut hashes = Vec::new();
            for rows in change.rows.values() {
                let keys = shape.entries(&shape.key_rows(rows)?, 0)?;
                // Rows with a NULL are equal to none.
                let keys = keys.iter().flatten().filter(|key| !shape.key.has_null(key));
                hashes.extend(keys.map(hash));
            }
            hashes.sort_unstable();
            hashes.dedup();
            for hash in hashes {
                let key = LockKey::key((table_id << 32) | id, hash);
                self.lock(key, LockMode::ForUpdate, timeout).await?;
            }
        }
        for (place, vids) in &change.ended {
            let object = (table_id << 32) | *place as u64;
            for vid in vids {
                self.lock(LockKey::row(object, *vid), LockMode::ForUpdate, timeout).await?;
            }
        }
        Ok(())
    }

    /// Locks the table `table_id`.
    ///
    /// # Errors
    /// As [`Held::lock_change`].
    pub(super) async fn lock_table(
        &self,
        table_id: u32,
        mode: LockMode,
        timeout_ms: u64,
    ) -> Result<()> {
        let timeout = (timeout_ms > 0).then(|| Duration::from_millis(timeout_ms));
        self.lock(LockKey::table(u64::from(table_id)), mode, timeout).await
    }

    /// Locks a name that shall be that of a table or another object.
    ///
    /// # Errors
    /// As [`Held::lock_change`].
    pub(super) async fn lock_name(&self, name: &str, timeout_ms: u64) -> Result<()> {
        let timeout = (timeout_ms > 0).then(|| Duration::from_millis(timeout_ms));
        let key = LockKey::key(NAMES, hash(name.as_bytes()));
        self.lock(key, LockMode::ForUpdate, timeout).await
    }

    async fn lock(&self, key: LockKey, mode: LockMode, timeout: Option<Duration>) -> Result<()> {
        let requested = self.locks.request(&self.owner, key, mode);
        let wait = match requested.map_err(|error| Error::lock(&error))? {
            Requested::Granted => return Ok(()),
            Requested::Waiting(wait) => wait,
        };
        let Some(limit) = timeout else {
            return wait.await.map_err(|error| Error::lock(&error));
        };
        let mut wait = wait;
        match waiting::timeout(limit, &mut wait).await {
            Some(outcome) => outcome.map_err(|error| Error::lock(&error)),
            None => wait.give_up().map_err(|error| Error::lock(&error)),
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.locks.release_all(&self.owner);
    }
}

fn hash(key: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    hasher.finish()
}
