//! Changes of a block that are too many to stay in memory: their table becomes the block's own.
//!
//! 1. [`Session::bound_changes`] charges what a block keeps to the memory of queries. Beyond a share of that, it
//!    moves the table with the most changes. The block locks it EXCLUSIVE, and writes its rows, ends and keys to
//!    pages that nothing else names, as a load does. From then on the table is
//!    [defined](super::super::definitions) by the block.
//! 2. [`Session::begin_moving`] does the same for a statement whose rows are many: they go to pages while they come.
//! 3. COMMIT puts the whole table into the newest state. ROLLBACK, ROLLBACK TO and a crash leave pages that nobody
//!    names.
//!
//! Who reads the table goes on and sees what was committed; who writes it waits.
//!
//! Invariant: the table that the block takes over is the one that its statements have read. In a block with one
//! snapshot that is the table in the snapshot; if others have changed it since, the changes stay in memory, up to
//! the limit. Source: decision 0092.

use std::collections::HashSet;
use std::sync::Arc;

use cleave_catalog::catalog::CatalogState;
use cleave_catalog::error::Result;
use cleave_catalog::settings::Isolation;
use cleave_engine::storage_engine::snapshot::SnapshotKind;
use cleave_engine::write::begun::Begun;
use cleave_engine::write::insert::TableChange;
use cleave_engine::write::load::made_anew;
use cleave_store::TableSchema;
use cleave_txn::LockMode;

use super::super::Session;
use super::super::charge::{Charge, share_of};
use super::super::definitions::Definition;
use super::{Block, ByTable};

/// Bytes that a block keeps without being asked: most blocks change a few rows.
const FREE_BYTES: usize = 64 << 10;
/// What a lock takes, about.
const LOCK_BYTES: usize = 160;
/// What a savepoint takes beside rows, about.
const SAVEPOINT_BYTES: usize = 1 << 10;

impl Session {
    /// Charges what the block keeps, and moves its changes to pages where they are too many.
    ///
    /// # Errors
    /// 53200; those of writing.
    pub(in crate::session) async fn bound_changes(&mut self) -> Result<()> {
        let Some(block) = &self.block else { return Ok(()) };
        if block.kept_bytes() <= FREE_BYTES && block.charge.is_none() {
            return Ok(());
        }
        let share = share_of(&self.database);
        let left = match self.charge_block() {
            Ok(()) if self.changed_bytes() <= share => return Ok(()),
            Ok(()) => share / 2,
            // Others have the rest.
            Err(_) => 0,
        };
        Box::pin(self.move_changes(left)).await?;
        self.charge_block()
    }

    /// Gives back what the block does not keep any more.
    pub(in crate::session) fn charge_less(&mut self) {
        let locks = self.block.as_ref().map_or(0, |block| block.locks.lock_count() * LOCK_BYTES);
        if let Some(block) = &mut self.block {
            let bytes = block.kept_bytes() + locks;
            drop(block.charge.take_if(|charge| bytes <= FREE_BYTES || charge.set(bytes).is_err()));
        }
    }

    /// Charges what the block keeps.
    ///
    /// # Errors
    /// 53200.
    pub(in crate::session) fn charge_block(&mut self) -> Result<()> {
        let database = Arc::clone(&self.database);
        let Some(block) = &mut self.block else { return Ok(()) };
        let locked = block.locks.lock_count() * LOCK_BYTES;
        let bytes = block.kept_bytes() + locked;
        if bytes <= FREE_BYTES && block.charge.is_none() {
            return Ok(());
        }
        block.charge.get_or_insert_with(|| Charge::new(&database)).set(bytes)
    }

    fn changed_bytes(&self) -> usize {
        self.block.as_ref().map_or(0, |block| bytes_of(&block.changes))
    }

    /// Moves changes of tables to pages, those that take most first, until the others take `left` bytes at most.
    async fn move_changes(&mut self, left: usize) -> Result<()> {
        let Some(block) = &self.block else { return Ok(()) };
        let tables = block.changes.iter();
        let mut tables: Vec<(usize, Arc<TableSchema>)> =
            tables.map(|(_, change)| (change.byte_count(), Arc::clone(&change.schema))).collect();
        tables.sort_by_key(|(bytes, _)| std::cmp::Reverse(*bytes));
        for (_, schema) in tables {
            if self.changed_bytes() <= left {
                break;
            }
            // The rows are locked, and stay so: nothing is given back to lock the table.
            self.table_mark = None;
            if let Some(definition) = self.begin_moving(&schema).await? {
                self.end_definition(definition).await?;
            }
        }
        Ok(())
    }

    /// Begins to write rows of the table that `schema` describes to pages, with what the block has changed of it;
    /// None: it is not
    /// the table that the block has read.
    ///
    /// # Errors
    /// [`Error::Conflict`] of a lock; those of writing; of a table that is another one by now.
    pub(in crate::session) async fn begin_moving(
        &mut self,
        schema: &TableSchema,
    ) -> Result<Option<Definition>> {
        let id = schema.table_id;
        if !self.may_move(id).await? {
            return Ok(None);
        }
        let tables = match self.owns(id) {
            true => Vec::new(),
            false => {
                // Two that hold it in a mode that many may have would wait for each other for ever.
                if let Some(mark) = self.table_mark.take() {
                    self.locks().release_to(mark);
                }
                vec![schema.name.clone()]
            }
        };
        let locked = (tables.as_slice(), LockMode::Exclusive);
        let definition = self.begin_definition_in("a change of rows", locked, &[]).await?;
        let now = definition.before().table_by_id(id).map(|table| table.schema.version);
        if now != Some(schema.version) {
            return Err(made_anew(&schema.name));
        }
        let is_moved = self.owns(id) || self.is_as_read(id, definition.before());
        Ok(is_moved.then_some(definition))
    }

    /// Whether changes of the table `id` may be moved to pages.
    ///
    /// # Errors
    /// Those of settling.
    pub(in crate::session) async fn may_move(&mut self, id: u32) -> Result<bool> {
        if self.owns(id) {
            return Ok(true);
        }
        // The parts of a statement count rows of the table that they have read.
        if self.view_of_parts().is_some() {
            return Ok(false);
        }
        if !self.reads_snapshot() {
            return Ok(true);
        }
        let newest = self.database.snapshot(SnapshotKind::Flushed).await?;
        Ok(self.is_as_read(id, &newest))
    }

    /// Whether the table `id` is in `newest` what it is in the snapshot of the block, if that has one.
    fn is_as_read(&self, id: u32, newest: &CatalogState) -> bool {
        let block = self.block.as_ref();
        let block = block.filter(|block| block.isolation != Isolation::ReadCommitted);
        let Some(snapshot) = block.and_then(|block| block.snapshot.as_ref()) else { return true };
        is_same_table(id, snapshot, newest)
    }
}

impl Block {
    /// Bytes of rows, VIDs and keys that it keeps, for itself and for its savepoints.
    fn kept_bytes(&self) -> usize {
        let deferred = self.savepoints.iter().map(|savepoint| savepoint.deferred.byte_count());
        let deferred = self.deferred.byte_count() + deferred.sum::<usize>();
        let bytes = bytes_of(&self.changes) + deferred;
        if self.savepoints.is_empty() {
            return bytes;
        }
        let own = self.changes.values().flat_map(batches).map(|(batch, _)| batch);
        let mut known: HashSet<usize> = own.collect();
        let savepoints = self.savepoints.iter().flat_map(|savepoint| savepoint.changes.values());
        let more = savepoints.flat_map(batches).filter(|(batch, _)| known.insert(*batch));
        let more = more.map(|(_, bytes)| bytes).sum::<usize>();
        bytes + more + self.savepoints.len() * SAVEPOINT_BYTES
    }
}

fn bytes_of(changes: &ByTable) -> usize {
    changes.values().map(TableChange::byte_count).sum()
}

fn batches(change: &TableChange) -> impl Iterator<Item = (usize, usize)> + '_ {
    change.rows.values().flat_map(Begun::batch_bytes)
}

/// Whether both states have the same table `id`, with the same rows.
pub(in crate::session) fn is_same_table(id: u32, one: &CatalogState, other: &CatalogState) -> bool {
    match (one.table_by_id(id), other.table_by_id(id)) {
        (Some(one), Some(other)) => Arc::ptr_eq(one, other),
        _ => false,
    }
}
