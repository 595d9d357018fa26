//! Transactions of a session: blocks from BEGIN to COMMIT, and statements outside of one, which commit by themselves.
//!
//! ```text
//!  committed snapshot ─┬─ READ COMMITTED: the newest, per statement ──────────────────┐
//!                      └─ REPEATABLE READ, SERIALIZABLE: that of the first statement ─┴─▶ + own changes ─▶ view
//! ```
//!
//! 1. [`Session::view`] is what a statement reads: a committed snapshot. In a block that has changed rows it is a
//!    [private](cleave_engine::storage_engine::Engine::with_own_changes) one: the same snapshot with the block's
//!    changes on pages that nothing else refers to, in memory while they are few. So every statement and every operator
//!    sees the block's own changes, on either side of a link, without special handling (rule 21).
//! 2. [`own::take`] takes the changes of a statement. It locks the rows and their new keys ([`TransactionLocks`]). It
//!    [checks](check) in what is committed by then that the rows still exist and the new keys do not. Outside of a
//!    block the change commits then; in a block it is kept. If a row no longer exists, READ COMMITTED runs the
//!    statement again on a newer view with its locks kept; the other levels fail, since the first updater wins.
//!    SERIALIZABLE also records what is read and written ([`super::serializable`]). Definitions of tables, and changes
//!    to tables that the block has defined itself, are handled by [`super::definitions`].
//! 3. COMMIT applies the kept changes to the newest snapshot, in one commit. Small changes go through the log and the
//!    [delta](cleave_engine::delta). ROLLBACK drops them; a savepoint is a copy of them.
//!
//! Invariant: before COMMIT, no snapshot that others see contains anything of a block, and nobody else changes what the
//! block has changed.

pub(super) mod many;
pub(super) mod modes;
pub(super) mod own;
pub(super) mod savepoints;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use cleave_catalog::backends::TransactionStatus;
use cleave_catalog::catalog::CatalogState;
use cleave_catalog::error::{ConflictKind, Error, Fault, Result};
use cleave_catalog::settings::Settings;
use cleave_catalog::settings::{Isolation, TransactionModes};
use cleave_engine::delta::Live;
use cleave_engine::storage_engine::commit::validate::{check, check_rewritten, row_with_key};
use cleave_engine::storage_engine::commit::{Changes, Defines, RowChanges};
use cleave_engine::storage_engine::snapshot::{KeptSnapshot, SnapshotKind};
use cleave_engine::write::begun::Begun;
use cleave_engine::write::insert::TableChange;
use cleave_engine::write::load::made_anew;
use cleave_media::{Clock, SystemClock};
use cleave_query::check_constraints::check_rows;
use cleave_query::select::ReadView;
use cleave_sql::statement::parse::Modes;
use cleave_store::TableSchema;
use cleave_txn::Tracked;
use futures::future::BoxFuture;

use super::charge::Charge;
use super::definitions::Defined;
use super::foreign_keys::Deferred;
use super::foreign_keys::deferred;
use super::serializable::safe_snapshot;
use super::set::BlockSettings;
use super::transaction_locks::TransactionLocks;
use super::{Outcome, Session, changing_with, definitions, key_locks, rights, serializable, set};
use crate::database::Database;
use own::merge;
use savepoints::Savepoint;

/// What a block has changed, by table.
type ByTable = BTreeMap<u32, TableChange>;

/// Places of own rows, for each tablet by its place.
pub(super) type OwnRows = BTreeMap<usize, BTreeSet<usize>>;

/// Whether a change was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Taken {
    /// It was.
    Done,
    /// One of its rows has been replaced meanwhile: the statement is to be run again, on a newer view.
    Again,
}

/// A block, from BEGIN on.
#[derive(Debug)]
pub(super) struct Block {
    /// Whether it is implicit: it holds the statements of one message and ends with them.
    implicit: bool,
    isolation: Isolation,
    read_only: bool,
    deferrable: bool,
    failed: bool,
    /// A statement has read something.
    has_read: bool,
    /// The snapshot of REPEATABLE READ and SERIALIZABLE, from the first statement on.
    pub(super) snapshot: Option<Arc<KeptSnapshot>>,
    /// The SERIALIZABLE transaction, for the same time.
    tracked: Option<Arc<Tracked>>,
    /// Changes of tables that it has not defined itself.
    pub(super) changes: ByTable,
    pub(super) defined: Defined,
    savepoints: Vec<Savepoint>,
    pub(super) locks: TransactionLocks,
    /// The query memory that its changes are charged for.
    charge: Option<Charge>,
    /// Deferred foreign keys, which are checked at its end.
    pub(super) deferred: Deferred,
    pub(super) settings: BlockSettings,
    /// Whether it belongs to a single statement and the user knows of no block.
    is_statement: bool,
    /// The count of commits other than small ones that had changed rows when the first of the changes was checked.
    checked: u64,
    /// A snapshot that includes the present changes, and the one that it is based on.
    pub(super) own: Option<Own>,
    /// In microseconds since 1970.
    began_us: i64,
}

/// The layers of what a block sees.
#[derive(Debug)]
pub(super) struct Own {
    /// The committed snapshot.
    base: Arc<CatalogState>,
    /// The same with the block's definitions.
    over: Arc<CatalogState>,
    /// The same with the block's changed rows.
    state: Arc<CatalogState>,
}

impl Session {
    /// Whether the session is in a transaction block.
    #[must_use]
    pub fn transaction_status(&self) -> TransactionStatus {
        match &self.block {
            None => TransactionStatus::Idle,
            Some(block) if block.implicit => TransactionStatus::Idle,
            Some(block) if block.failed => TransactionStatus::Failed,
            Some(_) => TransactionStatus::Open,
        }
    }

    /// Makes one implicit transaction of the statements up to [`Session::end_implicit`], as a server does with
    /// statements that arrive together: the first failure undoes those before it. BEGIN among them turns it into a
    /// block. Statements that need a block are still refused. Does nothing inside a block.
    pub fn begin_implicit(&mut self) {
        if self.block.is_none() {
            let modes = modes::modes_with(&self.settings, Modes::default());
            let (locks, defined) =
                (new_locks(&self.database, &self.settings), self.temporary.clone());
            self.block = Some(Block { implicit: true, ..Block::new(modes, locks, defined) });
        }
    }

    /// Whether [`Session::begin_implicit`] has begun a transaction that [`Session::end_implicit`] is to end.
    #[must_use]
    pub fn is_implicit(&self) -> bool {
        self.block.as_ref().is_some_and(|block| block.implicit)
    }

    /// Commits what [`Session::begin_implicit`] began, unless it has ended or has become a block.
    ///
    /// # Errors
    /// Those of COMMIT: nothing of it was done then.
    pub fn end_implicit(&mut self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            if self.is_implicit() {
                let committed = Box::pin(commit(self)).await;
                self.end_statement(committed).await?;
            }
            Ok(())
        })
    }

    /// The record of the transaction at level SERIALIZABLE, from its first statement on.
    pub(super) fn tracked(&self) -> Option<&Arc<Tracked>> {
        match &self.block {
            Some(block) => block.tracked.as_ref(),
            None => self.statement_tracked.as_ref(),
        }
    }

    /// Reports that a statement was given up, or that its rows failed on their way. Outside of a block its locks are
    /// freed; a block has failed.
    pub fn fail_block(&mut self) {
        self.statement_locks = None;
        self.statement_tracked = None;
        note_failure(self);
    }

    /// Refuses a statement that changes rows where the block may only read.
    pub(super) fn check_may_write(&self, what: &str) -> Result<()> {
        self.settings.client.check_may_change(what)?;
        let by_default = self.settings.default_transaction_read_only;
        let read_only = self.block.as_ref().map_or(by_default, |block| block.read_only);
        if !self.in_force().as_of.is_empty() {
            let message = format!("{what} cannot run while as_of is set: it reads the past");
            return Err(state(Fault::ReadOnlyTransaction, &message));
        }
        if !read_only {
            return Ok(());
        }
        let message = format!("cannot execute {what} in a read-only transaction");
        Err(Error::Invalid { message, fault: Fault::ReadOnlyTransaction, position: None })
    }

    /// What a look-up by key that begins now reads, without own changes.
    pub(super) async fn live(&mut self) -> Result<Live> {
        if let Some(state) = past(self).await? {
            rights::check_on(self, &state)?;
            return Ok(Live::flushed(state));
        }
        let mut live = match block_snapshot(self).await? {
            Some(kept) => {
                // A table that the block defines has the rows of the delta in its own pages.
                let is_twice = kept.delta().is_some_and(|delta| self.defined().has_table_of(delta));
                match is_twice {
                    true => write_snapshot(self, &kept).await?.live().clone(),
                    false => kept.live().clone(),
                }
            }
            None => {
                serializable::track_alone(self);
                let live = self.database.live();
                serializable::has_snapshot_alone(self.statement_tracked.as_ref());
                live
            }
        };
        // The look-up itself reports which commits of the delta it has seen.
        self.note_state(&live.state);
        rebase_own(self, &live.state).await?;
        live.state = self.defined().over(&self.database, live.state);
        rights::check_on(self, &live.state)?;
        Ok(live)
    }

    /// What the block has changed in a table.
    pub(super) fn own_changes(&self, table: u32) -> Option<&TableChange> {
        self.block.as_ref().and_then(|block| block.changes.get(&table))
    }

    /// What plans of a statement, or of a part of one, that begins now read. The latest commits and the block's own
    /// changes may be [shipped](cleave_engine::delta::shipped) with it: their keys are in no index then.
    pub(super) async fn view(&mut self) -> Result<ReadView> {
        let bytes_max = self.in_force().shipped_delta_bytes;
        self.view_within(bytes_max).await
    }

    /// The same with all rows in pages of devices, and their keys in indexes.
    pub(super) async fn view_with_keys(&mut self) -> Result<ReadView> {
        self.view_within(0).await
    }

    async fn view_within(&mut self, shipped_bytes_max: u64) -> Result<ReadView> {
        match self.view_of_parts() {
            Some((view, _)) => Ok(view.clone()),
            None => rights::view_now(self, shipped_bytes_max).await,
        }
    }

    /// The locks of the statement: those of the block, or outside of one its own until it ends, also while it is run
    /// again.
    pub(super) fn locks(&mut self) -> &TransactionLocks {
        match &self.block {
            Some(block) => &block.locks,
            None => {
                let (database, advisory) = (&self.database, &self.settings.client.advisory);
                self.statement_locks
                    .get_or_insert_with(|| TransactionLocks::new(database, advisory))
            }
        }
    }

    /// The snapshot that `view` is based on: the committed one with what the session has defined.
    pub(super) fn committed<'a>(&'a self, view: &'a ReadView) -> &'a Arc<CatalogState> {
        match self.view_of_parts() {
            Some((_, base)) => base,
            None => committed_now(self, view),
        }
    }

    /// Refuses a change of rows that a page version has changed since the snapshot that all statements of the block
    /// read. The table is locked, so that there will be no other.
    pub(super) fn check_rewritten(&self, change: &TableChange) -> Result<()> {
        match self.kept_state() {
            Some(kept) => check_rewritten(kept, &self.database.live(), change),
            None => Ok(()),
        }
    }

    /// The catalog version that all statements of the block read.
    pub(super) fn kept_state(&self) -> Option<&Arc<CatalogState>> {
        let block = self.block.as_ref().filter(|block| block.isolation != Isolation::ReadCommitted);
        block.and_then(|block| block.snapshot.as_ref()).map(|kept| &kept.live().state)
    }

    /// Whether the block is that of a single statement.
    pub(super) fn is_alone_in_block(&self) -> bool {
        self.block.as_ref().is_some_and(Block::is_own)
    }

    /// Whether all statements of the block read the snapshot of its first one.
    pub(super) fn reads_snapshot(&self) -> bool {
        self.block.as_ref().is_some_and(|block| block.isolation != Isolation::ReadCommitted)
    }
}

/// The same, regardless of what parts of the statement have read.
pub(super) fn committed_now<'a>(session: &'a Session, view: &'a ReadView) -> &'a Arc<CatalogState> {
    match session.block.as_ref().and_then(|block| block.own.as_ref()) {
        Some(own) => &own.over,
        None => &view.state,
    }
}

/// Runs BEGIN.
pub(super) fn begin(session: &mut Session, modes: Modes) -> Result<Outcome> {
    match &mut session.block {
        Some(block) if block.implicit => {
            block.implicit = false;
            modes::set_transaction(session, modes)?;
        }
        // PostgreSQL warns here, and continues.
        Some(_) => {}
        None => {
            let modes = modes::modes_with(&session.settings, modes);
            let (locks, defined) =
                (new_locks(&session.database, &session.settings), session.temporary.clone());
            session.block = Some(Block::new(modes, locks, defined));
            session.settings.transaction = Some(modes);
        }
    }
    Ok(Outcome::done("BEGIN"))
}

/// Runs COMMIT; in a block that has failed, it is ROLLBACK.
pub(super) async fn commit(session: &mut Session) -> Result<Outcome> {
    let asked = deferred::ask_deferred(session).await;
    // PostgreSQL warns outside of a block, and continues.
    let Some(mut block) = session.block.take() else { return Ok(Outcome::done("COMMIT")) };
    let settings = std::mem::take(&mut block.settings);
    if block.failed {
        set::end_block_settings(session, settings, false);
        session.cursors.end_transaction(false);
        return Ok(Outcome::done("ROLLBACK"));
    }
    let committed = match asked {
        Ok(()) => Box::pin(commit_block(session, block)).await,
        Err(error) => Err(error),
    };
    set::end_block_settings(session, settings, committed.is_ok());
    session.cursors.end_transaction(committed.is_ok());
    committed?;
    Ok(Outcome::done("COMMIT"))
}

/// Commits what `block` has changed and defined, if anything.
pub(super) async fn commit_block(session: &mut Session, mut block: Block) -> Result<()> {
    let mut permanent = block.defined.permanent();
    for change in block.changes.values_mut() {
        change.rows.values_mut().try_for_each(Begun::join)?;
    }
    let changes: Vec<&TableChange> = block.changes.values().collect();
    // For a statement outside of a block, its temporary definitions.
    let tracked = block.tracked.clone().or_else(|| session.statement_tracked.clone());
    let tracked = tracked.as_deref();
    let log_end = if changes.is_empty() && permanent.is_empty() {
        block.tracked.as_ref().map_or(Ok(()), |tracked| tracked.finish())?;
        0
    } else {
        loop {
            permanent.sync_versions(&session.database).await?;
            if permanent.has_versions() && !block.locks.has_rows_of_jobs() {
                return Err(Error::concurrent_update());
            }
            let rows = RowChanges {
                defined: (!permanent.is_empty()).then_some(&permanent as &dyn Defines),
                ..row_changes(session.in_force(), &changes, block.checked, tracked)
            };
            let committed = session.database.commit(Changes::Rows(rows)).await;
            match committed {
                // Another fragment may have committed versions of the same pages meanwhile.
                Err(Error::Conflict { kind: ConflictKind::Update, .. })
                    if permanent
                        .rebase_versions(&session.database, &session.database.catalog())
                        .await? => {}
                published => break published?.log_end,
            }
        }
    };
    drop((changes, permanent));
    session.temporary = std::mem::take(&mut block.defined).into_temporary();
    // Other transactions may read the rows before they are durable: what those commit becomes durable later (rule 27).
    drop(block);
    session.temporary.trim();
    note_committed(session, log_end);
    Ok(())
}

/// Runs ROLLBACK.
pub(super) fn rollback(session: &mut Session) -> Outcome {
    undo_block(session);
    Outcome::done("ROLLBACK")
}

/// How many savepoints the block has; None: there is no block.
pub(super) fn savepoint_count(block: Option<&Block>) -> Option<usize> {
    block.map(Block::savepoint_count)
}

/// Drops the block and all its changes.
fn undo_block(session: &mut Session) {
    if let Some(block) = session.block.take() {
        set::end_block_settings(session, block.settings, false);
    }
    session.cursors.end_transaction(false);
}

fn open_block<'a>(block: &'a mut Option<Block>, what: &str) -> Result<&'a mut Block> {
    let missing = || {
        let message = format!("{what} can only be used in transaction blocks");
        Error::Invalid { message, fault: Fault::NoTransaction, position: None }
    };
    block.as_mut().filter(|block| !block.implicit).ok_or_else(missing)
}

/// Refuses a statement in a block that has failed.
pub(super) fn check_not_failed(session: &Session) -> Result<()> {
    match session.transaction_status() {
        TransactionStatus::Failed => Err(state(
            Fault::FailedTransaction,
            "current transaction is aborted, commands ignored until end of transaction block",
        )),
        TransactionStatus::Idle | TransactionStatus::Open => Ok(()),
    }
}

/// Records that a statement of a block has failed. An implicit block is undone at once. Another one keeps what ROLLBACK
/// TO its last savepoint leaves: nobody can commit the rest, and others may wait for it.
pub(super) fn note_failure(session: &mut Session) {
    (session.returns_alone, session.parts, session.measuring) = (false, None, None);
    super::batch::forget(session);
    match &mut session.block {
        Some(block) if block.implicit => undo_block(session),
        Some(block) => {
            block.failed = true;
            if let Some(savepoint) = block.savepoints.last() {
                return block.locks.release_to(savepoint.mark);
            }
            (block.changes, block.defined) = (ByTable::new(), session.temporary.clone());
            (block.own, block.snapshot, block.tracked) = (None, None, None);
            (block.charge, block.deferred) = (None, Deferred::default());
            block.locks = new_locks(&session.database, &session.settings);
        }
        None => {}
    }
}

/// Whether a statement that runs now may commit by itself: no earlier statement waits for its end.
pub(super) fn is_alone(session: &Session) -> bool {
    let has_done = |block: &Block| {
        !block.implicit
            || session.view_of_parts().is_some()
            || !block.changes.is_empty()
            || !block.defined.permanent().is_empty()
    };
    !session.block.as_ref().is_some_and(has_done)
}

/// Drops the temporary tables, views and sequences; within a block, ROLLBACK restores them.
pub(super) fn discard_temporary(session: &mut Session) {
    if let Some(block) = &mut session.block {
        (block.defined, block.own) = (block.defined.permanent(), None);
    }
    if is_alone(session) {
        session.temporary = Defined::default();
    }
}

/// Refuses a statement that commits by itself, unless it is the first change of several that arrived together.
pub(super) fn check_outside_block(session: &Session, what: &str) -> Result<()> {
    if is_alone(session) {
        return session.check_may_write(what);
    }
    let message = format!("{what} cannot run inside a transaction block");
    Err(Error::Invalid { message, fault: Fault::ActiveTransaction, position: None })
}

/// Whether a statement that begins now may run and reads the newest committed snapshot.
pub(super) fn reads_newest(block: Option<&Block>) -> bool {
    let is_newest = |block: &Block| !block.failed && block.isolation == Isolation::ReadCommitted;
    block.is_none_or(is_newest)
}

/// Records that a statement has read something.
pub(super) fn note_read(block: &mut Option<Block>) {
    if let Some(block) = block {
        block.has_read = true;
    }
}

/// The snapshot that all statements of the block read; None: each statement has its own.
pub(super) async fn block_snapshot(session: &mut Session) -> Result<Option<Arc<KeptSnapshot>>> {
    let bytes_max = session.in_force().shipped_delta_bytes;
    let (database, block) = (&session.database, &mut session.block);
    let Some(block) = block else { return Ok(None) };
    block.has_read = true;
    if block.isolation == Isolation::ReadCommitted {
        return Ok(None);
    }
    if let Some(kept) = &block.snapshot {
        return Ok(Some(Arc::clone(kept)));
    }
    let kept = if block.isolation != Isolation::Serializable {
        database.snapshot_to_keep(bytes_max).await?
    } else if block.read_only && block.deferrable {
        safe_snapshot(database, bytes_max).await?
    } else {
        // Registered before the snapshot is taken: what others commit from now on is kept for it.
        let tracked = Arc::new(database.dependencies().begin(block.read_only));
        let kept = database.snapshot_to_keep(bytes_max).await?;
        tracked.has_snapshot();
        block.tracked = Some(tracked);
        kept
    };
    let kept = Arc::new(kept);
    block.snapshot = Some(Arc::clone(&kept));
    Ok(Some(kept))
}

/// Writes the delta of `kept`, the snapshot of the block, to pages of devices for the block alone: later statements
/// read these.
async fn write_snapshot(session: &mut Session, kept: &KeptSnapshot) -> Result<Arc<KeptSnapshot>> {
    let settings = session.shared_settings();
    let written = Arc::new(session.database.with_delta_written(kept, &settings).await?);
    if let Some(block) = &mut session.block {
        (block.snapshot, block.own) = (Some(Arc::clone(&written)), None);
    }
    Ok(written)
}

/// Takes the snapshot of a block that has one, if its first statement reads nothing.
pub(super) async fn fix_snapshot(session: &mut Session) -> Result<()> {
    block_snapshot(session).await.map(drop)
}

/// The snapshot at the time of `as_of`, if that is set.
async fn past(session: &mut Session) -> Result<Option<Arc<CatalogState>>> {
    let as_of = &session.in_force().as_of;
    if as_of.is_empty() {
        return Ok(None);
    }
    let has_changed =
        |block: &Block| !block.changes.is_empty() || !block.defined.permanent().is_empty();
    if session.block.as_ref().is_some_and(has_changed) {
        return Err(state(
            Fault::ActiveTransaction,
            "as_of cannot be used in a transaction that has changed rows",
        ));
    }
    let state = session.database.snapshot(SnapshotKind::AsOf(as_of)).await?;
    session.note_state(&state);
    Ok(Some(session.defined().over(&session.database, state)))
}

/// Puts the page versions of a block whose statements have snapshots of their own over those that others have
/// committed in `base`, so that its statements read both. A block that keeps its snapshot reads its own over that.
async fn rebase_own(session: &mut Session, base: &CatalogState) -> Result<()> {
    let Session { database, block, .. } = session;
    if let Some(block) = block
        && block.isolation == Isolation::ReadCommitted
        && block.defined.has_versions()
    {
        block.defined.rebase_versions(database, base).await?;
    }
    Ok(())
}

/// As [`rights::view_now`], before the session's rights are checked.
pub(super) async fn view_unasked(
    session: &mut Session,
    shipped_bytes_max: u64,
) -> Result<ReadView> {
    if let Some(state) = past(session).await? {
        return Ok(ReadView::of_state(state));
    }
    let database = Arc::clone(&session.database);
    let bytes_max = own::delta_bytes_max(session, shipped_bytes_max);
    let base = match block_snapshot(session).await? {
        Some(kept) if kept.ships_within(bytes_max) => kept.state(&database)?,
        Some(kept) => write_snapshot(session, &kept).await?.state(&database)?,
        None => {
            serializable::track_alone(session);
            let state = database.snapshot(SnapshotKind::Shipped { bytes_max }).await?;
            serializable::has_snapshot_alone(session.statement_tracked.as_ref());
            state
        }
    };
    let reads = session.tracked().map(Arc::clone);
    session.note_state(&base);
    rebase_own(session, &base).await?;
    let Some(block) = session.block.as_mut() else {
        let state = session.temporary.over(&database, Arc::clone(&base));
        let is_committed = Arc::ptr_eq(&state, &base);
        return Ok(ReadView { reads, is_committed, ..ReadView::of_state(state) });
    };
    let is_known = |own: &&Own| {
        Arc::ptr_eq(&own.base, &base) && (shipped_bytes_max > 0 || own.state.shipped.is_empty())
    };
    if let Some(own) = block.own.as_ref().filter(is_known) {
        return Ok(ReadView { reads, ..ReadView::of_state(Arc::clone(&own.state)) });
    }
    let over = block.defined.over(&database, Arc::clone(&base));
    if block.changes.is_empty() {
        let is_committed = Arc::ptr_eq(&over, &base);
        return Ok(ReadView { reads, is_committed, ..ReadView::of_state(over) });
    }
    let state = Box::pin(own::with_own_changes(session, &over, shipped_bytes_max)).await?;
    let Some(block) = session.block.as_mut() else {
        return Ok(ReadView { reads, ..ReadView::of_state(state) });
    };
    block.own = Some(Own { base, over, state: Arc::clone(&state) });
    Ok(ReadView { reads, ..ReadView::of_state(state) })
}

/// Takes a change of rows: committed rows that die, new rows, and the end of own rows. Foreign keys are not checked
/// here.
pub(super) async fn take_plain(
    session: &mut Session,
    change: TableChange,
    own_dead: OwnRows,
) -> Result<Taken> {
    if change.dead.is_empty() && change.rows.is_empty() && own_dead.is_empty() {
        return Ok(Taken::Done);
    }
    serializable::track_writes(session).await?;
    if session.owns(change.schema.table_id) {
        let state = session.names();
        let table = state.find_writable_table(&change.schema.name)?;
        check_rows(&session.database, table, change.batches()).await?;
        Box::pin(definitions::change_own(session, &change)).await?;
        changing_with::note_change_of_part(&mut session.parts, &change, &own_dead);
        return Ok(Taken::Done);
    }
    let database = Arc::clone(&session.database);
    let state = database.catalog();
    let table = state.find_writable_table(&change.schema.name)?;
    let is_same = |known: &TableSchema, own: &TableSchema| {
        (known.table_id, known.version) == (own.table_id, own.version)
    };
    if !is_same(&table.schema, &change.schema) {
        return Err(made_anew(&change.schema.name));
    }
    check_rows(&database, table, change.batches()).await?;
    match key_locks::lock_keys(session, table, &change).await {
        Err(Error::Conflict { kind: ConflictKind::Update, .. }) if !session.reads_snapshot() => {
            return Ok(Taken::Again);
        }
        locked => locked?,
    }
    session.check_rewritten(&change)?;
    serializable::note_writes(&session.database, session.tracked(), &change).await?;
    let tracked = session.statement_tracked.clone();
    if session.block.is_none() {
        let committed = async {
            // Large changes are checked where they are written.
            let checked = match change.is_small() {
                true => check_waiting(session, &change, &change).await?,
                false => 0,
            };
            let changes = [&change];
            let rows = row_changes(session.in_force(), &changes, checked, tracked.as_deref());
            Ok(database.commit(Changes::Rows(rows)).await?.log_end)
        };
        return match committed.await {
            Err(Error::Conflict { kind: ConflictKind::Update, .. }) => Ok(Taken::Again),
            Err(error) => Err(error),
            Ok(log_end) => {
                note_committed(session, log_end);
                Ok(Taken::Done)
            }
        };
    }
    keep(session, change, &own_dead).await
}

/// Keeps a change, whose rows are locked, until the block commits.
///
/// # Errors
/// As [`take_plain`].
pub(super) async fn keep(
    session: &mut Session,
    change: TableChange,
    own_dead: &OwnRows,
) -> Result<Taken> {
    let table_id = change.schema.table_id;
    let whole = match session.own_changes(table_id) {
        Some(before) => {
            let mut whole = before.clone();
            merge(&mut whole, &change, own_dead)?;
            Some(whole)
        }
        None => None,
    };
    // Unique keys hold in the newest snapshot, whatever the block reads.
    let checked = check_waiting(session, whole.as_ref().unwrap_or(&change), &change).await;
    let checked = match checked {
        Err(Error::Conflict { kind: ConflictKind::Update, .. }) if !session.reads_snapshot() => {
            return Ok(Taken::Again);
        }
        checked => checked?,
    };
    if let Some(block) = &mut session.block {
        block.checked = block.checked.min(checked);
        block.own = None;
    }
    changing_with::note_change_of_part(&mut session.parts, &change, own_dead);
    // Later rows may have other keys. The deleted ones are locked, so nobody else changes them.
    let whole = TableChange { keeps_keys: false, marks: None, ..whole.unwrap_or(change) };
    if let Some(block) = &mut session.block {
        block.changes.insert(table_id, whole);
    }
    many::bound_changes(session).await?;
    Ok(Taken::Done)
}

/// As [`check`]. A key of a row that a fragment of another transaction has locked is waited for: the transaction may be
/// about to delete the row, of which it has locked no keys.
async fn check_waiting(
    session: &mut Session,
    whole: &TableChange,
    change: &TableChange,
) -> Result<u64> {
    let database = Arc::clone(&session.database);
    loop {
        let error = match check(&database, whole, change).await {
            Err(error @ Error::DuplicateKey { .. }) if database.locks().has_jobs() => error,
            checked => return checked,
        };
        let row = row_with_key(&database, whole, change).await?;
        let waited = match row {
            Some(row) => key_locks::wait_for_row(session, change.schema.table_id, row).await?,
            None => false,
        };
        if !waited {
            return Err(error);
        }
    }
}

/// Checks a change against its rules and unique keys, and takes nothing: refuses rows that break one.
pub(super) async fn check_alone(
    session: &mut Session,
    change: &TableChange,
    own_dead: &OwnRows,
) -> Result<()> {
    let (name, table_id) = (&change.schema.name, change.schema.table_id);
    let database = Arc::clone(&session.database);
    if session.owns(table_id) {
        let state = session.names();
        return check_rows(&database, state.find_writable_table(name)?, change.batches()).await;
    }
    let state = database.catalog();
    let table = state.find_writable_table(name)?;
    check_rows(&database, table, change.batches()).await?;
    key_locks::lock_keys(session, table, change).await?;
    let before = session.block.as_ref().and_then(|block| block.changes.get(&table_id).cloned());
    let mut whole = before.unwrap_or_else(|| TableChange::new(Arc::clone(&change.schema)));
    merge(&mut whole, change, own_dead)?;
    check_waiting(session, &whole, change).await.map(drop)
}

/// An empty set of locks for a transaction of this session.
pub(super) fn new_locks(database: &Arc<Database>, settings: &Settings) -> TransactionLocks {
    TransactionLocks::new(database, &settings.client.advisory)
}

/// As [`Session::locks`].
pub(super) fn locks_mut(session: &mut Session) -> &mut TransactionLocks {
    match &mut session.block {
        Some(block) => &mut block.locks,
        None => {
            let (database, advisory) = (&session.database, &session.settings.client.advisory);
            session.statement_locks.get_or_insert_with(|| TransactionLocks::new(database, advisory))
        }
    }
}

/// Records a commit of the session, whose locks are now free. Its effects are reported only once it is durable.
fn note_committed(session: &mut Session, log_end: u64) {
    session.statement_locks = None;
    session.note_seen(log_end);
}

/// The commit of `changes`, which were checked when the count of rewrites was `checked`.
fn row_changes<'a>(
    settings: &'a Settings,
    changes: &'a [&'a TableChange],
    checked: u64,
    tracked: Option<&'a Tracked>,
) -> RowChanges<'a> {
    RowChanges { changes, checked, tracked, defined: None, settings }
}

impl Block {
    pub(super) fn new(modes: TransactionModes, locks: TransactionLocks, defined: Defined) -> Self {
        Self {
            implicit: false,
            isolation: modes.isolation,
            read_only: modes.read_only,
            deferrable: modes.deferrable,
            failed: false,
            has_read: false,
            snapshot: None,
            tracked: None,
            changes: ByTable::new(),
            defined,
            savepoints: Vec::new(),
            locks,
            charge: None,
            deferred: Deferred::default(),
            settings: BlockSettings::default(),
            is_statement: false,
            checked: u64::MAX,
            own: None,
            began_us: SystemClock.wall(),
        }
    }

    /// Whether its reads and writes are recorded.
    pub(super) fn is_serializable(&self) -> bool {
        self.isolation == Isolation::Serializable
    }

    /// How many savepoints it has.
    pub(super) fn savepoint_count(&self) -> usize {
        self.savepoints.len()
    }
}

fn state(fault: Fault, message: &str) -> Error {
    Error::Invalid { message: message.to_owned(), fault, position: None }
}
