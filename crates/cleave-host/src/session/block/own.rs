//! Takes a statement's change into the transaction, through foreign keys if any concern it. Also begins and ends blocks
//! of a single statement, which contain its change and the actions of foreign keys.

use std::sync::Arc;

use cleave_catalog::catalog::{CatalogState, TableState};
use cleave_catalog::error::{ConflictKind, Error, Result};
use cleave_catalog::settings::TransactionModes;
use cleave_engine::delta::shipped;
use cleave_engine::write::insert::TableChange;
use cleave_query::select::ReadView;
use cleave_sql::statement::parse::ExactNames;

use super::super::charge::Charge;
use super::super::definitions::Defined;
use super::super::foreign_keys::{Deferred, Ending, Replaced};
use super::{Block, ByTable, OwnRows, Session, Taken};
use crate::session::{block, changing_with, foreign_keys};

/// Takes the change of `table` by a statement that has read `view`.
pub(in crate::session) async fn take(
    session: &mut Session,
    view: &ReadView,
    table: &TableState,
    change: TableChange,
    ending: Ending<'_>,
) -> Result<Taken> {
    let base = Arc::clone(session.committed(view));
    take_over(session, &base, table, change, ending).await
}

/// Takes the change of `table` by a statement that has read `base` with the transaction's own changes.
pub(in crate::session) async fn take_over(
    session: &mut Session,
    base: &CatalogState,
    table: &TableState,
    mut change: TableChange,
    ending: Ending<'_>,
) -> Result<Taken> {
    let replaced = foreign_keys::replaced(session, table, ending).await?;
    let (whole, base) = (base, base.find_writable_table(&table.schema.name)?);
    let is_of_parts = session.view_of_parts().is_some_and(|(_, own)| std::ptr::eq(&**own, whole));
    let mut own_dead = OwnRows::new();
    for (place, vids) in &mut change.dead {
        let next = base.tablets.get(*place).map_or(u64::MAX, |tablet| tablet.next_vid);
        let own = vids.split_off(next);
        if !own.is_empty() {
            let places = own.iter().filter_map(|vid| usize::try_from(vid - next).ok());
            own_dead.insert(*place, places.collect());
        }
    }
    change.dead.retain(|_, vids| !vids.is_empty());
    if is_of_parts && !own_dead.is_empty() {
        changing_with::check_own_of_part(session.parts.as_deref(), change.schema.table_id)?;
    }
    if matches!(ending, Ending::KeysKept) {
        return block::take_plain(session, change, own_dead).await;
    }
    take_rows(session, change, own_dead, replaced).await
}

/// Takes a change of rows: committed rows that die, new rows, and the end of own rows. `replaced` is what foreign keys
/// need to know of the dead rows.
pub(in crate::session) async fn take_rows(
    session: &mut Session,
    change: TableChange,
    own_dead: OwnRows,
    replaced: Option<Replaced>,
) -> Result<Taken> {
    let nothing = change.dead.is_empty() && change.rows.is_empty() && own_dead.is_empty();
    let names = session.names();
    let is_in_references = names.table(&change.schema.name).is_some_and(|table| {
        table.schema.table_id == change.schema.table_id
            && foreign_keys::is_in_references(session, table)
    });
    if nothing || !is_in_references {
        return block::take_plain(session, change, own_dead).await;
    }
    Box::pin(foreign_keys::take_referring(session, change, own_dead, replaced)).await
}

/// Bytes of the delta that may be shipped with a plan beside the block's own changes, of `shipped_bytes_max` in all; 0:
/// none, also where the own changes are too many to be shipped.
pub(in crate::session) fn delta_bytes_max(session: &Session, shipped_bytes_max: u64) -> u64 {
    shipped_bytes_max.saturating_sub(shipped::byte_count(&own_changes(session)))
}

fn own_changes(session: &Session) -> Vec<&TableChange> {
    session.block.iter().flat_map(|block| block.changes.values()).collect()
}

/// `base` with the rows that the block has changed, visible to the block alone. They are shipped if they take at most
/// `shipped_bytes_max` bytes, and otherwise nothing of `base` is.
pub(in crate::session) async fn with_own_changes(
    session: &Session,
    base: &Arc<CatalogState>,
    shipped_bytes_max: u64,
) -> Result<Arc<CatalogState>> {
    let changes = own_changes(session);
    if changes.is_empty() {
        return Ok(Arc::clone(base));
    }
    let settings = session.shared_settings();
    // The rows of each tablet are concatenated and encoded as pages.
    let charge = Charge::new(&session.database);
    charge.grow(2 * changes.iter().map(|change| change.byte_count()).sum::<usize>())?;
    session.database.with_own_changes(base, &changes, &settings, shipped_bytes_max).await
}

/// Begins a block for the running statement, if it is in none, with its locks; returns whether it did.
pub(in crate::session) fn begin_own(session: &mut Session) -> bool {
    if session.block.is_some() {
        return false;
    }
    let locks = session
        .statement_locks
        .take()
        .unwrap_or_else(|| block::new_locks(&session.database, &session.settings));
    let defined = session.temporary.clone();
    let block = Block::new(TransactionModes::OWN, locks, defined);
    let tracked = session.statement_tracked.clone();
    session.block = Some(Block { implicit: true, is_statement: true, tracked, ..block });
    true
}

/// Ends what [`begin_own`] has begun: commits it, or keeps the locks for another run of the statement.
pub(in crate::session) async fn end_own(
    session: &mut Session,
    is_own: bool,
    taken: Result<Taken>,
) -> Result<Taken> {
    if !is_own {
        return taken;
    }
    let Some(block) = session.block.take() else { return taken };
    match taken {
        Ok(Taken::Done) => match Box::pin(block::commit_block(session, block)).await {
            Ok(()) => Ok(Taken::Done),
            Err(Error::Conflict { kind: ConflictKind::Update, .. }) => Ok(Taken::Again),
            Err(error) => Err(error),
        },
        Ok(Taken::Again) => {
            session.statement_locks = Some(block.locks);
            Ok(Taken::Again)
        }
        Err(error) => Err(error),
    }
}

/// Drops the block of a single statement that was given up.
pub(in crate::session) fn forget_own(session: &mut Session) {
    if session.block.as_ref().is_some_and(|block| block.is_statement) {
        session.block = None;
    }
    session.references = Default::default();
}

impl Block {
    /// When the transaction of these statements began; None: it is the statement's own.
    pub(in crate::session) fn began_us(&self) -> Option<i64> {
        (!self.is_statement).then_some(self.began_us)
    }

    /// Whether it belongs to a single statement.
    pub(in crate::session) fn is_own(&self) -> bool {
        self.is_statement
    }

    /// What it has changed, defined and deferred.
    pub(in crate::session) fn taken(&self) -> (ByTable, Defined, Deferred) {
        (self.changes.clone(), self.defined.clone(), self.deferred.clone())
    }

    /// Undoes the changes, definitions and deferred checks made since then, and keeps its locks.
    pub(in crate::session) fn put_back(&mut self, before: (ByTable, Defined, Deferred)) {
        (self.changes, self.defined, self.deferred) = before;
        self.own = None;
    }

    /// Sets what names mean in its running statement.
    pub(in crate::session) fn define_names(&mut self, exact: Option<Arc<ExactNames>>) {
        self.defined.set_exact(exact);
    }

    /// Whether a statement of it has failed.
    pub(in crate::session) fn has_failed(&self) -> bool {
        self.failed
    }
}

/// Adds `change` to what the block has changed in a table, without the own rows at these places.
pub(super) fn merge(own: &mut TableChange, change: &TableChange, own_dead: &OwnRows) -> Result<()> {
    for (place, vids) in &change.dead {
        own.dead.entry(*place).or_default().merge(vids);
    }
    for (place, dead) in own_dead {
        if let Some(rows) = own.rows.get_mut(place) {
            rows.take_away(dead)?;
        }
    }
    for (place, rows) in &change.rows {
        own.rows.entry(*place).or_default().push(rows)?;
    }
    Ok(())
}
