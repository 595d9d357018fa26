//! Foreign keys: checks that each new row refers to an existing row, and acts on rows that referred to removed ones.
//!
//! ```text
//!  new rows      FOR KEY SHARE on each key that they refer to ─▶ does it exist, committed or own?
//!  removed keys  FOR UPDATE on each ─▶ the statement's change
//!                ─▶ CASCADE, SET NULL, SET DEFAULT: changes of the referencing tables, in the same transaction,
//!                   until there are no more
//!                ─▶ does a row still refer to one? then the statement fails
//! ```
//!
//! 1. [`take_referring`] gets the keys of dead and new rows. If a statement only adds rows, each key is looked up; the
//!    statement commits as any other.
//! 2. If a statement removes a key that rows may refer to, it becomes a block of its own, unless it is in one. The
//!    actions are done one table after the other, in [`act`], and may remove and add further keys.
//! 3. The remaining check comes after all actions, or, for a deferred key, at COMMIT: does a row with the key exist,
//!    and if not, does a row refer to it? NO ACTION and rows that others have inserted are covered by the same check.
//! 4. Loads check by a join over the whole table, in [`load`], and lock the referenced table against writers meanwhile.
//!
//! Invariant: a transaction that holds a key's lock while it looks for rows knows that no other transaction adds or
//! removes such rows before its own end. Both sides look at the newest snapshot, whatever snapshot the block reads. So
//! of two transactions that cross, the later one sees the earlier, or waits for it.
//!
//! Source: PostgreSQL's manual, "Foreign Keys"; rule 23; `docs/design/locks.md`.

pub(super) mod act;
pub(super) mod deferred;
mod keys;
pub(super) mod load;
mod look_up;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use arrow::array::RecordBatch;
use cleave_catalog::catalog::{CatalogState, TableState};
use cleave_catalog::error::{ConflictKind, Error, Result};
use cleave_engine::storage_engine::commit::validate::{self, RowPlace, absent};
use cleave_engine::storage_engine::snapshot::SnapshotKind;
use cleave_engine::write::insert::TableChange;
use cleave_engine::write::vid_set::VidSet;
use cleave_query::select::ReadView;
use cleave_sql::statement::modify::{Action, Assignment, Modify};
use cleave_store::{Projection, ShippedPages};
use cleave_txn::LockMode;

use super::block::own;
use super::block::{OwnRows, Taken};
use super::charge::Charge;
use super::transaction_locks::{LOCKED_ROWS_MAX, TransactionLocks, unique_lock};
use super::{Session, block, key_locks, locking, rights, serializable, upsert};
pub(super) use act::Followed;
pub(super) use deferred::Deferred;
pub(super) use keys::Reference;
use keys::{Columns, KeyRow, KeySet, Target};
pub(in crate::session) use load::CheckedLoad;
pub(super) use load::check_all;

/// Approximate bytes of a key with its values.
const KEY_BYTES: usize = 256;

/// What a statement does to existing rows.
#[derive(Clone, Copy)]
pub(super) enum Ending<'a> {
    /// No row ends.
    None,
    /// Rows are replaced by rows with the same keys.
    KeysKept,
    /// Rows end, or are replaced.
    Rows {
        /// Their places in what the statement has read, and the pages that were shipped with it.
        places: Option<(&'a Arc<ShippedPages>, &'a [RowPlace])>,
        /// The old rows, as the statement has read them.
        before: Option<&'a RecordBatch>,
        /// The new rows, in the same order.
        after: Option<&'a RecordBatch>,
    },
}

/// Dead rows, with the columns that foreign keys concern.
#[derive(Debug, Clone)]
pub(super) struct Replaced {
    columns: Vec<u32>,
    before: RecordBatch,
    /// The new rows, in the same order; None: none.
    after: Option<RecordBatch>,
}

/// The foreign key work of a statement: checks and actions before it ends.
#[derive(Debug, Default)]
pub(super) struct References {
    /// Whether a statement is doing this work: its own changes then add to it.
    pub(super) is_running: bool,
    gone: VecDeque<Gone>,
    open: OpenKeys,
}

/// Removed keys that other rows may refer to.
#[derive(Debug)]
struct Gone {
    reference: Reference,
    keys: KeySet,
    /// For UPDATE: the old and the new key of each of its rows.
    moved: Option<Vec<(KeyRow, KeyRow)>>,
}

/// Keys to be checked: a row with the key exists, or no row refers to it.
#[derive(Debug, Clone, Default)]
pub(super) struct OpenKeys(BTreeMap<(u32, u32), OpenKey>);

#[derive(Debug, Clone)]
struct OpenKey {
    reference: Reference,
    /// Keys of rows that refer to them.
    begun: KeySet,
    /// Keys of rows that had them.
    gone: KeySet,
}

impl OpenKeys {
    fn of(&mut self, reference: &Reference) -> &mut OpenKey {
        self.0.entry(reference.id()).or_insert_with(|| OpenKey {
            reference: reference.clone(),
            begun: KeySet::new(),
            gone: KeySet::new(),
        })
    }

    fn add(&mut self, other: OpenKey) {
        let known = self.of(&other.reference);
        known.begun.extend(other.begun);
        known.gone.extend(other.gone);
    }
}

/// Whether foreign keys concern changes of `table`.
pub(super) fn is_in_references(session: &Session, table: &TableState) -> bool {
    session.database.catalog().is_in_references(table)
        || !session.defined().is_empty() && session.names().is_in_references(table)
}

/// The foreign keys of `table`, and those that refer to it.
fn references(
    session: &Session,
    table: &Arc<TableState>,
) -> Result<(Vec<Reference>, Vec<Reference>)> {
    let (names, committed) = (session.names(), session.database.catalog());
    let known = |id: u32| names.table_by_id(id).or_else(|| committed.table_by_id(id));
    let mut own = Vec::with_capacity(table.rules.foreign_keys.len());
    for key in &table.rules.foreign_keys {
        if let Some(parent) = known(key.target) {
            own.push(Reference::new(table, key, parent)?);
        }
    }
    let id = table.schema.table_id;
    let mut to: BTreeMap<(u32, u32), Reference> = BTreeMap::new();
    // A temporary table may hide a referencing one.
    let hidden = committed.references_to(id);
    let hidden = hidden.filter(|(child, _)| !session.owns(child.schema.table_id));
    for (child, key) in names.references_to(id).chain(hidden) {
        let reference = Reference::new(child, key, table)?;
        to.entry(reference.id()).or_insert(reference);
    }
    Ok((own, to.into_values().collect()))
}

/// Whether an UPDATE sets no column of a foreign key of `table`, and none that a foreign key refers to.
pub(super) fn keeps_keys(session: &Session, table: &TableState, modify: &Modify) -> bool {
    let Action::Update(assignments) = &modify.action else { return false };
    if !is_in_references(session, table) {
        return true;
    }
    let needed = referring_columns(session, table);
    let is_needed = |set: &Assignment| {
        table.schema.column(&set.column).is_some_and(|column| needed.contains(&column.id))
    };
    !assignments.iter().any(is_needed)
}

/// Ids of the columns of `table` that foreign keys concern.
fn referring_columns(session: &Session, table: &TableState) -> BTreeSet<u32> {
    let own = table.rules.foreign_keys.iter().flat_map(|key| key.columns.iter().copied());
    let mut needed: BTreeSet<u32> = own.collect();
    for state in [session.names(), session.database.catalog()] {
        let to = state.references_to(table.schema.table_id);
        needed.extend(to.flat_map(|(_, key)| key.target_columns.iter().copied()));
    }
    needed
}

/// The rows of `ending`, which are rows of `table` in what the statement has read; None: there are none, or no foreign
/// key needs them.
pub(super) async fn replaced(
    session: &Session,
    table: &TableState,
    ending: Ending<'_>,
) -> Result<Option<Replaced>> {
    let Ending::Rows { places, before, after } = ending else { return Ok(None) };
    let needed = referring_columns(session, table);
    if needed.is_empty() {
        return Ok(None);
    }
    let positions = table.schema.columns.iter().enumerate();
    let positions = positions.filter(|(_, column)| needed.contains(&column.id));
    let (positions, columns): (Vec<usize>, Vec<u32>) =
        positions.map(|(position, column)| (position, column.id)).unzip();
    let before = match (before, places) {
        (Some(rows), _) => rows.project(&positions)?,
        (None, Some((shipped, places))) => {
            let projection = Projection::of_table(&table.schema, &positions);
            let (read, places) = ((shipped, table), places.iter().copied());
            upsert::rows_at(&session.database, read, &projection, places).await?
        }
        (None, None) => return Ok(None),
    };
    let after = after.map(|rows| rows.project(&positions)).transpose()?;
    Ok(Some(Replaced { columns, before, after }))
}

/// Takes a change of a table that foreign keys concern.
pub(super) async fn take_referring(
    session: &mut Session,
    change: TableChange,
    own_dead: OwnRows,
    replaced: Option<Replaced>,
) -> Result<Taken> {
    let state = session.names();
    let table = Arc::clone(state.find_writable_table(&change.schema.name)?);
    if table.schema.version != change.schema.version {
        return block::take_plain(session, change, own_dead).await;
    }
    let (own, to) = references(session, &table)?;
    // Keys of dead and new rows, each with its values.
    let dead = change.dead.values().map(VidSet::len).sum::<usize>();
    let key_count = (change.row_count() + dead) * (own.len() + to.len());
    let charge = Charge::new(&session.database);
    if key_count > LOCKED_ROWS_MAX {
        charge.grow(key_count * KEY_BYTES)?;
    }
    let begun = match begun(&own, &change, replaced.as_ref()) {
        Ok(begun) => begun,
        Err(error) => return Err(first_fault(session, &change, &own_dead, error).await),
    };
    let gone = gone(&to, &change, replaced.as_ref())?;
    // Before the locks below, since it may give locks back.
    if TransactionLocks::takes_table(&change) && !session.owns(table.schema.table_id) {
        key_locks::lock_keys(session, &table, &change).await?;
    }
    session.table_mark = None;
    if gone.is_empty() && !session.references.is_running {
        let mut later = Vec::new();
        for (reference, keys) in begun {
            if deferred::is_deferred(session, &reference) {
                later.push((reference, keys));
                continue;
            }
            lock_targets(session, &reference, &keys).await?;
            let absent = keys_absent(session, &reference, &keys, Some(&change)).await?;
            if let Some(values) = absent.values().next() {
                let error = reference.absent(values);
                return Err(first_fault(session, &change, &own_dead, error).await);
            }
        }
        let taken = block::take_plain(session, change, own_dead).await?;
        if let (Taken::Done, Some(block)) = (taken, &mut session.block) {
            for (reference, keys) in later {
                block.deferred.open.of(&reference).begun.extend(keys);
            }
        }
        return Ok(taken);
    }
    let is_own = own::begin_own(session);
    let taken = Box::pin(take_with_keys(session, change, own_dead, begun, gone)).await;
    own::end_own(session, is_own, taken).await
}

/// The error to report for rows that break a foreign key, which is `error`: if they also break another rule, that
/// rule's error. Foreign keys are checked last, once the rows exist.
async fn first_fault(
    session: &mut Session,
    change: &TableChange,
    own_dead: &OwnRows,
    error: Error,
) -> Error {
    match block::check_alone(session, change, own_dead).await {
        Ok(()) | Err(Error::Conflict { kind: ConflictKind::Update, .. }) => error,
        Err(first) => first,
    }
}

/// Takes a change that removes keys.
async fn take_with_keys(
    session: &mut Session,
    change: TableChange,
    own_dead: OwnRows,
    begun: Vec<(Reference, KeySet)>,
    gone: Vec<Gone>,
) -> Result<Taken> {
    if !TransactionLocks::takes_table(&change) && !session.owns(change.schema.table_id) {
        for gone in &gone {
            lock_gone(session, gone).await?;
        }
    }
    if let Taken::Again = block::take_plain(session, change, own_dead).await? {
        return Ok(Taken::Again);
    }
    for (reference, keys) in begun {
        session.references.open.of(&reference).begun.extend(keys);
    }
    session.references.gone.extend(gone);
    if session.references.is_running {
        return Ok(Taken::Done);
    }
    session.references.is_running = true;
    let outcome = follow_references(session).await;
    session.references = References::default();
    outcome.map(|()| Taken::Done)
}

/// Runs the actions of removed keys, and checks those that are left.
async fn follow_references(session: &mut Session) -> Result<()> {
    while let Some(gone) = session.references.gone.pop_front() {
        act::act(session, gone).await?;
    }
    for (_, open) in std::mem::take(&mut session.references.open).0 {
        if deferred::is_deferred(session, &open.reference) {
            if let Some(block) = &mut session.block {
                block.deferred.open.add(open);
            }
            continue;
        }
        ask(session, &open).await?;
    }
    Ok(())
}

/// Refuses keys without a row to which a row still refers.
async fn ask(session: &mut Session, open: &OpenKey) -> Result<()> {
    lock_targets(session, &open.reference, &open.begun).await?;
    for (keys, is_begun) in [(&open.begun, true), (&open.gone, false)] {
        let absent = keys_absent(session, &open.reference, keys, None).await?;
        if let Some(key) = act::referred(session, &open.reference, &absent).await? {
            return Err(match is_begun {
                true => open.reference.absent(&key),
                false => open.reference.still_there(&key),
            });
        }
    }
    Ok(())
}

/// Locks keys that rows refer to, so that the referenced rows stay; very many keys by locking the table.
async fn lock_targets(session: &mut Session, reference: &Reference, keys: &KeySet) -> Result<()> {
    let parent = &reference.parent;
    if keys.is_empty() || session.owns(parent.schema.table_id) {
        return Ok(());
    }
    if keys.len() > LOCKED_ROWS_MAX {
        return locking::lock_table(session, parent, LockMode::Share, false).await;
    }
    locking::lock_table(session, parent, LockMode::RowShare, false).await?;
    let timeout_ms = session.in_force().lock_timeout_ms;
    let keys = keys.keys().map(|key| unique_lock(parent, reference.key.index, key));
    let keys: BTreeSet<_> = keys.collect();
    for key in keys {
        session.locks().lock(key, LockMode::ForKeyShare, timeout_ms).await?;
    }
    Ok(())
}

/// Locks removed keys, so that nobody inserts a row that refers to them.
async fn lock_gone(session: &mut Session, gone: &Gone) -> Result<()> {
    let timeout_ms = session.in_force().lock_timeout_ms;
    let (parent, index) = (&gone.reference.parent, gone.reference.key.index);
    let keys: BTreeSet<_> = gone.keys.keys().map(|key| unique_lock(parent, index, key)).collect();
    for key in keys {
        session.locks().lock(key, LockMode::ForUpdate, timeout_ms).await?;
    }
    Ok(())
}

/// Those of `keys` that have no row, neither committed nor in the transaction's changes, nor in `change` if that is of
/// the same table.
async fn keys_absent(
    session: &mut Session,
    reference: &Reference,
    keys: &KeySet,
    change: Option<&TableChange>,
) -> Result<KeySet> {
    let mut left: BTreeMap<&[u8], &KeyRow> =
        keys.iter().map(|(key, values)| (key.as_slice(), values)).collect();
    let (parent, shape) = (&reference.parent, &reference.shape);
    let id = parent.schema.table_id;
    let change = change.filter(|_| reference.is_own());
    let own = session.own_changes(id);
    for rows in [change, own].into_iter().flatten().flat_map(TableChange::batches) {
        if left.is_empty() {
            break;
        }
        for key in shape.row_entries(rows, 0)?.iter().flatten() {
            left.remove(key);
        }
    }
    let sorted: Vec<&[u8]> = left.keys().copied().collect();
    if sorted.is_empty() {
        return Ok(KeySet::new());
    }
    let ends = |change: Option<&TableChange>, (place, vid): RowPlace| {
        let dead = change.and_then(|change| change.dead.get(&place));
        dead.is_some_and(|dead| dead.contains(vid))
    };
    let is_kept = |row: RowPlace| !ends(change, row) && !ends(own, row);
    if session.owns(id) {
        let state = session.names();
        let table = state.table_by_id(id).unwrap_or(parent);
        let found = upsert::looked_up(&session.database, table, shape, &sorted).await?;
        left.retain(|key, _| !found.get(key).is_some_and(|row| is_kept(*row)));
    } else {
        let newest = session.database.live();
        let found = absent(&session.database, &newest, (id, shape), &is_kept, &sorted).await?;
        left.retain(|key, _| found.contains(key));
        check_seen(session, reference, &sorted, &left).await?;
    }
    Ok(left.into_iter().map(|(key, values)| (key.to_vec(), values.clone())).collect())
}

/// At level SERIALIZABLE: checks that an existing key is in the snapshot as well.
async fn check_seen(
    session: &Session,
    reference: &Reference,
    keys: &[&[u8]],
    absent: &BTreeMap<&[u8], &KeyRow>,
) -> Result<()> {
    let (id, index) = (reference.parent.schema.table_id, reference.key.index);
    serializable::note_keys(session.tracked(), id, index, keys)?;
    let snapshot = session.block.as_ref().filter(|block| block.is_serializable());
    let Some(snapshot) = snapshot.and_then(|block| block.snapshot.as_ref()) else {
        return Ok(());
    };
    let live = snapshot.live();
    live.state.table_by_id(id).ok_or_else(Error::concurrent_update)?;
    let there: Vec<&[u8]> =
        keys.iter().filter(|key| !absent.contains_key(**key)).copied().collect();
    let of_index = (id, &*reference.shape);
    match validate::absent(&session.database, live, of_index, &|_| true, &there).await?.is_empty() {
        true => Ok(()),
        false => Err(Error::concurrent_update()),
    }
}

/// What a search for referencing rows reads: the newest snapshot with the transaction's changes; and that snapshot
/// without them.
async fn newest_view(session: &mut Session) -> Result<(ReadView, Arc<CatalogState>)> {
    if !session.reads_snapshot() {
        let view = rights::view_now(session, session.in_force().shipped_delta_bytes).await?;
        let base = Arc::clone(block::committed_now(session, &view));
        return Ok((view, base));
    }
    let shipped_bytes_max = session.in_force().shipped_delta_bytes;
    let bytes_max = own::delta_bytes_max(session, shipped_bytes_max);
    let newest = session.database.snapshot(SnapshotKind::Shipped { bytes_max }).await?;
    let base = session.defined().over_newest(&session.database, newest).await?;
    let reads = session.tracked().map(Arc::clone);
    let state = own::with_own_changes(session, &base, shipped_bytes_max).await?;
    Ok((ReadView { reads, ..ReadView::of_state(state) }, base))
}

/// The keys that the new rows of `change` refer to, by foreign key, without those that dead rows referred to.
fn begun(
    own: &[Reference],
    change: &TableChange,
    replaced: Option<&Replaced>,
) -> Result<Vec<(Reference, KeySet)>> {
    let mut all = Vec::new();
    let ids: Vec<u32> = change.schema.columns.iter().map(|column| column.id).collect();
    for reference in own {
        let mut known = BTreeSet::new();
        if let Some(Replaced { columns, before, .. }) = replaced {
            let targets = reference.targets(Columns { ids: columns, rows: before })?;
            known.extend(targets.into_iter().filter_map(|target| match target {
                Target::Key(entry, _) => Some(entry),
                _ => None,
            }));
        }
        let mut keys = KeySet::new();
        for rows in change.batches() {
            for target in reference.targets(Columns { ids: &ids, rows })? {
                match target {
                    Target::Nothing => {}
                    Target::Mixed => return Err(reference.mixed()),
                    Target::Nowhere(values) => return Err(reference.absent(&values)),
                    Target::Key(entry, values) => {
                        if !known.contains(&entry) {
                            keys.entry(entry).or_insert(values);
                        }
                    }
                }
            }
        }
        if !keys.is_empty() {
            all.push((reference.clone(), keys));
        }
    }
    Ok(all)
}

/// The keys that `change` removes, for each foreign key that refers to its table.
fn gone(to: &[Reference], change: &TableChange, replaced: Option<&Replaced>) -> Result<Vec<Gone>> {
    let Some(Replaced { columns, before, after }) = replaced else { return Ok(Vec::new()) };
    let mut all = Vec::new();
    let ids: Vec<u32> = change.schema.columns.iter().map(|column| column.id).collect();
    for reference in to {
        let mut kept = BTreeSet::new();
        for rows in change.batches() {
            let keys = reference.keys(Columns { ids: &ids, rows })?;
            kept.extend(keys.into_iter().filter_map(|(entry, _)| entry));
        }
        let before = reference.keys(Columns { ids: columns, rows: before })?;
        let mut moved = None;
        if let Some(rows) = after {
            let after = reference.keys(Columns { ids: columns, rows })?;
            let pairs = before.iter().zip(after).filter(|((old, _), (new, _))| old != new);
            let pairs = pairs.filter(|((old, _), _)| old.is_some());
            moved = Some(pairs.map(|((_, old), (_, new))| (old.clone(), new)).collect::<Vec<_>>());
        }
        let keys = before.into_iter().filter_map(|(entry, values)| Some((entry?, values)));
        let keys: KeySet = keys.filter(|(entry, _)| !kept.contains(entry)).collect();
        if !keys.is_empty() || moved.as_ref().is_some_and(|moved| !moved.is_empty()) {
            all.push(Gone { reference: reference.clone(), keys, moved });
        }
    }
    Ok(all)
}
