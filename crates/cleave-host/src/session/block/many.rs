//! Changes of a block that are too many for memory: their table becomes the block's own.
//!
//! 1. [`bound_changes`] charges what a block keeps to the memory of queries. Beyond a share of that, it moves the table
//!    with the most changes. The block locks the table EXCLUSIVE and writes its new rows, dead rows and keys to pages
//!    that nothing else refers to, as a load does. From then on the table is [defined](super::super::definitions) by
//!    the block.
//! 2. [`begin_moving`] does the same for a statement of many rows: they go to pages as they come.
//! 3. COMMIT puts the whole table into the newest snapshot. ROLLBACK, ROLLBACK TO and a crash leave pages that nothing
//!    refers to.
//!
//! Readers of the table continue and see what was committed; writers wait.
//!
//! Invariant: the table that the block takes over is the one that its statements have read. In a block with one
//! snapshot that is the table in the snapshot; if others have changed it since, the changes stay in memory, up to the
//! limit. Source: `docs/design/versions-and-commit.md`.

use std::collections::HashSet;
use std::sync::Arc;

use cleave_catalog::error::Result;
use cleave_catalog::settings::Isolation;
use cleave_engine::delta::Live;
use cleave_engine::write::begun::Begun;
use cleave_engine::write::insert::TableChange;
use cleave_engine::write::load::made_anew;
use cleave_store::TableSchema;
use cleave_txn::LockMode;

use super::super::Session;
use super::super::charge::{Charge, share_of};
use super::super::definitions::Definition;
use super::{Block, ByTable};
use crate::database::Database;
use crate::session::definitions;

/// Bytes that a block keeps without a charge: most blocks change a few rows.
const FREE_BYTES: usize = 64 << 10;
/// Approximate bytes of a lock.
const LOCK_BYTES: usize = 160;
/// Approximate bytes of a savepoint without its rows.
const SAVEPOINT_BYTES: usize = 1 << 10;

/// Charges what the block keeps, and moves its changes to pages if they are too many.
///
/// # Errors
/// 53200; those of writing.
pub(in crate::session) async fn bound_changes(session: &mut Session) -> Result<()> {
    let Some(block) = &session.block else { return Ok(()) };
    if block.kept_bytes() <= FREE_BYTES && block.charge.is_none() {
        return Ok(());
    }
    let share = share_of(&session.database);
    let left = match charge_block(&session.database, &mut session.block) {
        Ok(()) if changed_bytes(session.block.as_ref()) <= share => return Ok(()),
        Ok(()) => share / 2,
        // Others have the rest.
        Err(_) => 0,
    };
    Box::pin(move_changes(session, left)).await?;
    charge_block(&session.database, &mut session.block)
}

/// Charges what the block keeps.
///
/// # Errors
/// 53200.
pub(in crate::session) fn charge_block(
    database: &Arc<Database>,
    block: &mut Option<Block>,
) -> Result<()> {
    let Some(block) = block else { return Ok(()) };
    let locked = block.locks.lock_count() * LOCK_BYTES;
    let bytes = block.kept_bytes() + locked;
    if bytes <= FREE_BYTES && block.charge.is_none() {
        return Ok(());
    }
    block.charge.get_or_insert_with(|| Charge::new(database)).set(bytes)
}

fn changed_bytes(block: Option<&Block>) -> usize {
    block.map_or(0, |block| bytes_of(&block.changes))
}

/// Moves changes of tables to pages, the largest first, until the others take `left` bytes at most.
async fn move_changes(session: &mut Session, left: usize) -> Result<()> {
    let Some(block) = &session.block else { return Ok(()) };
    let tables = block.changes.iter();
    let mut tables: Vec<(usize, Arc<TableSchema>)> =
        tables.map(|(_, change)| (change.byte_count(), Arc::clone(&change.schema))).collect();
    tables.sort_by_key(|(bytes, _)| std::cmp::Reverse(*bytes));
    for (_, schema) in tables {
        if changed_bytes(session.block.as_ref()) <= left {
            break;
        }
        // The rows stay locked: no lock is given back to lock the table.
        session.table_mark = None;
        if let Some(definition) = begin_moving(session, &schema).await? {
            definitions::end_definition(session, definition).await?;
        }
    }
    Ok(())
}

/// Begins to write rows of the table that `schema` describes to pages, together with what the block has changed in it.
/// None: it is not the table that the block has read.
///
/// # Errors
/// [`Conflict`](cleave_catalog::error::Error::Conflict) of a lock; those of writing; of a table that has been replaced
/// meanwhile.
pub(in crate::session) async fn begin_moving(
    session: &mut Session,
    schema: &TableSchema,
) -> Result<Option<Definition>> {
    let id = schema.table_id;
    if !may_move(session, id) {
        return Ok(None);
    }
    let tables = match session.owns(id) {
        true => Vec::new(),
        false => {
            // Two transactions that both hold the table in a shared mode would deadlock here.
            if let Some(mark) = session.table_mark.take() {
                session.locks().release_to(mark);
            }
            vec![schema.name.clone()]
        }
    };
    let locked = (tables.as_slice(), LockMode::Exclusive);
    let definition =
        definitions::begin_definition_in(session, "a change of rows", locked, &[]).await?;
    let now = definition.before().table_by_id(id).map(|table| table.schema.version);
    if now != Some(schema.version) {
        return Err(made_anew(&schema.name));
    }
    let before = Live::flushed(Arc::clone(definition.before()));
    let is_moved = session.owns(id) || is_as_read(session.block.as_ref(), id, &before);
    Ok(is_moved.then_some(definition))
}

/// Whether changes of the table `id` may be moved to pages.
pub(in crate::session) fn may_move(session: &Session, id: u32) -> bool {
    if session.owns(id) {
        return true;
    }
    // The parts of a statement count rows of the table that they have read.
    if session.view_of_parts().is_some() {
        return false;
    }
    is_as_read(session.block.as_ref(), id, &session.database.live())
}

/// Whether the table `id` in `newest` is the same as in the snapshot of the block, if that has one.
fn is_as_read(block: Option<&Block>, id: u32, newest: &Live) -> bool {
    let block = block.filter(|block| block.isolation != Isolation::ReadCommitted);
    let Some(snapshot) = block.and_then(|block| block.snapshot.as_ref()) else { return true };
    snapshot.live().has_same_table(newest, id)
}

impl Block {
    /// Gives back the charge for what it no longer keeps.
    pub(super) fn charge_less(&mut self) {
        let bytes = self.kept_bytes() + self.locks.lock_count() * LOCK_BYTES;
        drop(self.charge.take_if(|charge| bytes <= FREE_BYTES || charge.set(bytes).is_err()));
    }

    /// Bytes of rows, VIDs and keys that it keeps, those of its savepoints included.
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
