//! Transactions of a session: blocks from BEGIN to COMMIT, and statements outside of one, which commit by themselves.
//!
//! ```text
//!  committed state ──┬── READ COMMITTED: the newest, for each statement ──┐
//!                    └── REPEATABLE READ: that of the first statement ────┴─▶ + own changes ─▶ view
//! ```
//!
//! 1. [`Session::view`] is what a statement reads: a committed state, and, in a block that has changed rows, a
//!    [private](Transaction::private) one: the same state with the block's changes on pages that nothing else names. So own changes are seen
//!    by every statement and every operator, on either side of a link, without any of them knowing (rule 21).
//! 2. [`Session::take`] takes what a statement changes: it locks the rows and their new keys ([`Held`]). Outside of a block it
//!    commits it then. In one it looks whether the rows are still there in the newest state, checks the unique keys there, and
//!    keeps the change. Where a row is not there any more, READ COMMITTED runs the statement again on a newer view, with
//!    its locks kept, and REPEATABLE READ fails: the first who changes a row wins.
//!    What defines tables is [`super::definitions`]' matter, and changes of tables that the block has defined itself.
//! 3. COMMIT applies what was kept to the newest state, in one commit; ROLLBACK forgets it; a savepoint is a copy of it.
//!
//! Invariant: nothing of a block is in any state that others see before its COMMIT; and what it has changed nobody else
//! changes before that.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arrow::array::{BooleanArray, RecordBatch};
use arrow::compute::{concat_batches, filter_record_batch};
use cleave_txn::locks::LockMark;
use prost::Message;

use super::definitions::Defined;
use super::held::Held;
use super::{Outcome, Session};
use crate::catalog::commit::Transaction;
use crate::catalog::{CatalogState, TableState};
use crate::error::{ConflictKind, Error, Fault, Result};
use crate::log::{self, Committed};
use crate::settings::Isolation;
use crate::statement::parse::Modes;
use crate::statement::select::ReadView;
use crate::write::insert::{TableChange, apply};

/// What a block has changed, by table.
type Changes = BTreeMap<u32, TableChange>;

/// Whether a session is in a transaction block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TransactionStatus {
    /// It is not: each statement commits by itself.
    Idle,
    /// It is.
    Open,
    /// It is, and a statement has failed: nothing but ROLLBACK is done.
    Failed,
}

/// Whether a change was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Taken {
    /// It was.
    Done,
    /// One of its rows is another one by now: the statement is to be run again, on a newer view.
    Again,
}

/// A block, from BEGIN on.
#[derive(Debug)]
pub(super) struct Block {
    isolation: Isolation,
    read_only: bool,
    failed: bool,
    /// Of REPEATABLE READ, from its first statement on.
    snapshot: Option<Arc<CatalogState>>,
    /// Of tables that it has not defined.
    pub(super) changes: Changes,
    pub(super) defined: Defined,
    savepoints: Vec<Savepoint>,
    pub(super) locks: Held,
    /// A state with the changes as they are now, and what it is based on.
    pub(super) own: Option<Own>,
}

/// A copy of what a block had changed and locked.
#[derive(Debug)]
struct Savepoint {
    name: String,
    changes: Changes,
    defined: Defined,
    mark: LockMark,
}

/// What a block sees.
#[derive(Debug)]
pub(super) struct Own {
    /// What was committed.
    base: Arc<CatalogState>,
    /// With what the block has defined.
    over: Arc<CatalogState>,
    /// With the rows that it has changed.
    state: Arc<CatalogState>,
}

impl Session {
    /// Whether the session is in a transaction block.
    #[must_use]
    pub fn transaction_status(&self) -> TransactionStatus {
        match &self.block {
            None => TransactionStatus::Idle,
            Some(block) if block.failed => TransactionStatus::Failed,
            Some(_) => TransactionStatus::Open,
        }
    }

    /// Runs BEGIN.
    pub(super) fn begin(&mut self, modes: Modes) -> Result<Outcome> {
        // Which PostgreSQL warns of, and goes on.
        if self.block.is_some() {
            return Ok(Outcome::done("BEGIN"));
        }
        let isolation = modes.isolation.unwrap_or(self.settings.default_transaction_isolation);
        let read_only = modes.read_only.unwrap_or(self.settings.default_transaction_read_only);
        let locks = Held::new(&self.database);
        let defined = self.temporary.clone();
        self.block = Some(Block::new(isolation, read_only, locks, defined));
        Ok(Outcome::done("BEGIN"))
    }

    /// Runs SET TRANSACTION.
    pub(super) fn set_transaction(&mut self, modes: Modes) -> Result<Outcome> {
        let Some(block) = &mut self.block else {
            return Err(state(Fault::NoTransaction, "SET TRANSACTION needs a transaction block"));
        };
        if let Some(isolation) = modes.isolation.filter(|isolation| *isolation != block.isolation) {
            if block.snapshot.is_some() || !block.changes.is_empty() {
                return Err(state(
                    Fault::ActiveTransaction,
                    "SET TRANSACTION ISOLATION LEVEL must come before any query",
                ));
            }
            block.isolation = isolation;
        }
        block.read_only = modes.read_only.unwrap_or(block.read_only);
        Ok(Outcome::done("SET"))
    }

    /// Runs COMMIT: of a block that has failed, ROLLBACK.
    pub(super) async fn commit(&mut self) -> Result<Outcome> {
        // Without one PostgreSQL warns, and goes on.
        let Some(block) = self.block.take() else { return Ok(Outcome::done("COMMIT")) };
        if block.failed {
            return Ok(Outcome::done("ROLLBACK"));
        }
        self.commit_block(block).await?;
        Ok(Outcome::done("COMMIT"))
    }

    /// Commits what `block` has changed and defined, if anything.
    pub(super) async fn commit_block(&mut self, mut block: Block) -> Result<()> {
        let permanent = block.defined.permanent();
        if !block.changes.is_empty() || !permanent.is_empty() {
            self.commit_changes(block.changes.values(), &permanent).await?;
        }
        drop(permanent);
        self.temporary = std::mem::take(&mut block.defined).into_temporary();
        drop(block);
        self.temporary.trim();
        Ok(())
    }

    /// Runs ROLLBACK.
    pub(super) fn rollback(&mut self) -> Outcome {
        self.block = None;
        Outcome::done("ROLLBACK")
    }

    /// Runs SAVEPOINT.
    pub(super) fn savepoint(&mut self, name: &str) -> Result<Outcome> {
        let block = self.open_block("SAVEPOINT")?;
        let (name, mark) = (name.to_owned(), block.locks.mark());
        let (changes, defined) = (block.changes.clone(), block.defined.clone());
        block.savepoints.push(Savepoint { name, changes, defined, mark });
        Ok(Outcome::done("SAVEPOINT"))
    }

    /// Runs ROLLBACK TO, also in a block that has failed.
    pub(super) fn rollback_to(&mut self, name: &str) -> Result<Outcome> {
        let block = self.open_block("ROLLBACK TO SAVEPOINT")?;
        let place = block.savepoint(name)?;
        block.savepoints.truncate(place + 1);
        if let Some(savepoint) = block.savepoints.last() {
            block.changes = savepoint.changes.clone();
            block.defined = savepoint.defined.clone();
            block.locks.release_to(savepoint.mark);
        }
        block.own = None;
        block.failed = false;
        Ok(Outcome::done("ROLLBACK"))
    }

    /// Runs RELEASE.
    pub(super) fn release(&mut self, name: &str) -> Result<Outcome> {
        let block = self.open_block("RELEASE SAVEPOINT")?;
        let place = block.savepoint(name)?;
        block.savepoints.truncate(place);
        Ok(Outcome::done("RELEASE"))
    }

    fn open_block(&mut self, what: &str) -> Result<&mut Block> {
        let missing = || {
            let message = format!("{what} can only be used in transaction blocks");
            Error::Invalid { message, fault: Fault::NoTransaction, position: None }
        };
        self.block.as_mut().ok_or_else(missing)
    }

    /// Refuses a statement in a block that has failed.
    pub(super) fn check_not_failed(&self) -> Result<()> {
        match self.transaction_status() {
            TransactionStatus::Failed => Err(state(
                Fault::FailedTransaction,
                "the current transaction has failed: nothing is done until ROLLBACK",
            )),
            TransactionStatus::Idle | TransactionStatus::Open => Ok(()),
        }
    }

    /// Says that a statement was given up, or that its rows failed on their way: what it has locked is free outside of a block, and a
    /// block has failed.
    pub fn fail_block(&mut self) {
        self.statement_locks = None;
        self.note_failure();
    }

    /// Notes that a statement of a block has failed.
    pub(super) fn note_failure(&mut self) {
        if let Some(block) = &mut self.block {
            block.failed = true;
        }
    }

    /// Refuses a statement that changes rows where the block may only read.
    pub(super) fn check_may_write(&self, what: &str) -> Result<()> {
        let read_only = match &self.block {
            Some(block) => block.read_only,
            None => self.settings.default_transaction_read_only,
        };
        if !read_only {
            return Ok(());
        }
        let message = format!("{what} cannot run in a read-only transaction");
        Err(Error::Invalid { message, fault: Fault::ReadOnlyTransaction, position: None })
    }

    /// Refuses a statement that commits by itself.
    pub(super) fn check_outside_block(&self, what: &str) -> Result<()> {
        if self.block.is_none() {
            return self.check_may_write(what);
        }
        let message = format!("{what} cannot run inside a transaction block");
        Err(Error::Invalid { message, fault: Fault::ActiveTransaction, position: None })
    }

    /// What a statement that begins now reads.
    pub(super) async fn view(&mut self) -> Result<ReadView> {
        let database = Arc::clone(&self.database);
        let settings = self.shared_settings();
        let newest = || database.catalog();
        let Some(block) = &mut self.block else {
            let state = newest();
            self.seen_log = self.seen_log.max(state.log_end);
            let state = self.temporary.over(&database, state);
            return Ok(ReadView { state, target: None });
        };
        let base = match block.isolation {
            Isolation::ReadCommitted => newest(),
            Isolation::RepeatableRead => Arc::clone(block.snapshot.get_or_insert_with(newest)),
        };
        self.seen_log = self.seen_log.max(base.log_end);
        if let Some(own) = block.own.as_ref().filter(|own| Arc::ptr_eq(&own.base, &base)) {
            return Ok(ReadView { state: Arc::clone(&own.state), target: None });
        }
        let over = block.defined.over(&database, Arc::clone(&base));
        if block.changes.is_empty() {
            return Ok(ReadView { state: over, target: None });
        }
        let mut transaction = Transaction::private(&database, Arc::clone(&over))?;
        for change in block.changes.values() {
            transaction = apply(transaction, &settings, change).await?;
        }
        let state = transaction.into_private();
        block.own = Some(Own { base, over, state: Arc::clone(&state) });
        Ok(ReadView { state, target: None })
    }

    /// Takes what a statement that has read `view` makes of `table`, as it was there.
    pub(super) async fn take(
        &mut self,
        view: &ReadView,
        table: &TableState,
        change: TableChange,
    ) -> Result<Taken> {
        if change.ended.is_empty() && change.rows.is_empty() {
            return Ok(Taken::Done);
        }
        if self.owns(table.schema.table_id) {
            return self.change_own(&change).await.map(|()| Taken::Done);
        }
        let database = Arc::clone(&self.database);
        let settings = self.shared_settings();
        let base = match self.block.as_ref().and_then(|block| block.own.as_ref()) {
            Some(own) => &own.over,
            None => &view.state,
        };
        let base = Arc::clone(base.find_writable_table(&table.schema.name)?);
        // Of a statement outside of a block they are kept until it ends, also where it is run again.
        let locks = match &self.block {
            Some(block) => &block.locks,
            None => &*self.statement_locks.get_or_insert_with(|| Held::new(&database)),
        };
        locks.lock_change(&base, &change, settings.lock_timeout_ms).await?;
        let Some(block) = &mut self.block else {
            return match self.commit_changes([&change], &Defined::default()).await {
                Err(Error::Conflict { kind: ConflictKind::Update, .. }) => Ok(Taken::Again),
                outcome => outcome.map(|_| Taken::Done),
            };
        };
        let mut changes = block.changes.clone();
        let of_table = changes.entry(table.schema.table_id);
        let of_table = of_table.or_insert_with(|| TableChange::new(Arc::clone(&change.schema)));
        merge(of_table, &base, change)?;
        // Unique keys hold in the newest state, whatever the snapshot is.
        let newest = database.catalog();
        let over = block.defined.over(&database, Arc::clone(&newest));
        let mut transaction = Transaction::private(&database, Arc::clone(&over))?;
        for change in changes.values() {
            transaction = match apply(transaction, &settings, change).await {
                Err(Error::Conflict { kind: ConflictKind::Update, .. })
                    if block.isolation == Isolation::ReadCommitted =>
                {
                    return Ok(Taken::Again);
                }
                applied => applied?,
            };
        }
        block.changes = changes;
        block.own = match block.isolation {
            Isolation::ReadCommitted => {
                Some(Own { base: newest, over, state: transaction.into_private() })
            }
            Isolation::RepeatableRead => None,
        };
        Ok(Taken::Done)
    }

    /// Commits `changes` and what is `defined`, all or none.
    async fn commit_changes(
        &self,
        changes: impl IntoIterator<Item = &TableChange>,
        defined: &Defined,
    ) -> Result<Arc<CatalogState>> {
        let settings = self.shared_settings();
        let changes: Vec<&TableChange> = changes.into_iter().collect();
        let mut transaction = Transaction::begin(&self.database).await?;
        if !defined.is_empty() {
            defined.install(&mut transaction)?;
        }
        let is_logged = defined.is_empty()
            && self.database.log().is_some_and(|log| {
                log::takes(&transaction.next, &changes)
                    && !log::is_due(log, &transaction.next, self.database.logged_count())
            });
        let committed = match is_logged {
            true => Some(Committed::new(&transaction.next, &changes)?.encode_to_vec()),
            false => None,
        };
        for change in changes {
            transaction = apply(transaction, &settings, change).await?;
        }
        match committed {
            Some(committed) => transaction.commit_logged(&committed).await,
            None => transaction.commit().await,
        }
    }
}

impl Block {
    pub(super) fn new(
        isolation: Isolation,
        read_only: bool,
        locks: Held,
        defined: Defined,
    ) -> Self {
        Self {
            isolation,
            read_only,
            failed: false,
            snapshot: None,
            changes: Changes::new(),
            defined,
            savepoints: Vec::new(),
            locks,
            own: None,
        }
    }

    /// The place of the latest savepoint of this name.
    fn savepoint(&self, name: &str) -> Result<usize> {
        let found = self.savepoints.iter().rposition(|known| known.name == name);
        found.ok_or_else(|| Error::Invalid {
            message: format!("savepoint \"{name}\" does not exist"),
            fault: Fault::Savepoint,
            position: None,
        })
    }
}

/// Adds `change` to what the block has changed in a table, of which `base` is the committed state that was read: VIDs from its
/// end on are those of own rows, in their order.
fn merge(own: &mut TableChange, base: &TableState, change: TableChange) -> Result<()> {
    for (place, vids) in change.ended {
        let next = base.tablets.get(place).map_or(u64::MAX, |tablet| tablet.next_vid);
        let (committed, of_own): (BTreeSet<u64>, BTreeSet<u64>) =
            vids.into_iter().partition(|vid| *vid < next);
        if !committed.is_empty() {
            own.ended.entry(place).or_default().extend(committed);
        }
        if let Some(rows) = own.rows.get_mut(&place).filter(|_| !of_own.is_empty()) {
            *rows = without(rows, next, &of_own)?;
        }
    }
    for (place, rows) in change.rows {
        let joined = match own.rows.get(&place) {
            Some(before) => concat_batches(&own.schema.arrow(), [before, &rows])?,
            None => rows,
        };
        own.rows.insert(place, joined);
    }
    Ok(())
}

/// `rows`, whose VIDs rise from `first`, without those of `ended`.
fn without(rows: &RecordBatch, first: u64, ended: &BTreeSet<u64>) -> Result<RecordBatch> {
    let vids = (first..).take(rows.num_rows());
    let kept: BooleanArray = vids.map(|vid| Some(!ended.contains(&vid))).collect();
    Ok(filter_record_batch(rows, &kept)?)
}

fn state(fault: Fault, message: &str) -> Error {
    Error::Invalid { message: message.to_owned(), fault, position: None }
}
