//! Definitions within transactions: tables, views, sequences and indexes that one session alone sees until its block
//! commits.
//!
//! ```text
//!  newest snapshot ─▶ Defined::over ─▶ what the session sees ─▶ kept CatalogEdit: a statement ─▶ Defined::note
//!                                                                                                    │ COMMIT
//!  newest snapshot then ◀───── Defined::install: whole tables, in one replacement of the manifest ◀──┘
//! ```
//!
//! 1. [`begin_definition`] locks the objects of a statement ACCESS EXCLUSIVE, and gives it an edit of what the session
//!    sees. Rows that the block has changed in such a table before are applied there first.
//! 2. The statement changes the catalog version in the edit. [`end_definition`] compares it with the one before: tables
//!    that differ are [`Defined`], with the space that they take.
//! 3. From then on such a table is the block's own. Rows go straight to it, many of them as a bulk segment, and nothing
//!    is applied to it again later.
//! 4. COMMIT puts the tables, whole, in the place of those in the newest catalog version, and replaces the manifest.
//!
//! Outside of a block a statement is a block of its own. Temporary tables are defined in the same way, and stay with
//! the session when its block commits: no catalog version that others see contains them.
//!
//! Invariant: a defined table is locked ACCESS EXCLUSIVE, so the newest catalog version has the table unchanged since
//! it was locked. Ids of tables and segments are unique within the database, so concurrent blocks never use the same
//! ones.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arrow::array::RecordBatch;
use cleave_catalog::catalog::comments::CommentsChange;
use cleave_catalog::catalog::rights::{FIRST, Rights, RightsChange};
use cleave_catalog::catalog::sequence::Sequence;
use cleave_catalog::catalog::view::ViewState;
use cleave_catalog::catalog::{CatalogState, DeviceId, HeldSpace, Keep, TableState};
use cleave_catalog::error::{Error, NameKind, Result};
use cleave_catalog::identifiers::{SCHEMA, TEMPORARY_SCHEMA, key_of};
use cleave_catalog::settings::{Settings, TransactionModes};
use cleave_engine::delta::Delta;
use cleave_engine::device::{Claim, Device};
use cleave_engine::storage_engine::catalog_edit::CatalogEdit;
use cleave_engine::storage_engine::commit::Defines;
use cleave_engine::storage_engine::snapshot::SnapshotKind;
use cleave_engine::write::change_pages::{self, TabletChange};
use cleave_engine::write::insert::{TableChange, apply};
use cleave_engine::write::load::{BulkLoad, LoadCheck};
use cleave_engine::write::page_versions::TableVersions;
use cleave_engine::write::tail_pins::TailPin;
use cleave_engine::write::vid_set::VidSet;
use cleave_media::Extent;
use cleave_query::query_engine::QueryEngine;
use cleave_sql::statement::ddl::OnCommit;
use cleave_sql::statement::parse::ExactNames;
use cleave_store::TableSchema;
use cleave_txn::{LockMode, Written};
use futures::StreamExt;
use futures::future::try_join_all;
use futures::stream::BoxStream;

use super::block::Block;
use super::block::many;
use super::block::own;
use super::changed_rows::Changed;
use super::define::emptied;
use super::foreign_keys::CheckedLoad;
use super::foreign_keys::load;
use super::{Session, block, catalog_room, comments, rights, roles, serializable};
use crate::database::Database;

/// The tables that a transaction has defined, and their space.
#[derive(Debug, Clone, Default)]
pub(super) struct Defined {
    /// By id; None: dropped.
    tables: BTreeMap<u32, Option<Arc<TableState>>>,
    /// Views, by id as well.
    views: BTreeMap<u32, Option<Arc<ViewState>>>,
    /// Sequences, by id as well; the numbers that they give belong to no transaction.
    sequences: BTreeMap<u32, Option<Arc<Sequence>>>,
    /// Temporary objects, which stay with the session after its block, and what happens to them at commit.
    temporary: BTreeMap<u32, OnCommit>,
    /// Its changes to roles and rights.
    rights: RightsChange,
    /// Its changes to comments.
    comments: CommentsChange,
    /// Tables of others in which update fragments have changed rows, by id, each with the pin of its pages.
    versions: BTreeMap<u32, (Arc<TableVersions>, Arc<TailPin>)>,
    claims: BTreeMap<DeviceId, Arc<Claim>>,
    /// The greatest commit number of their rows.
    commit: u64,
    /// What names mean in the running statement; None: temporary objects hide others.
    exact: Option<Arc<ExactNames>>,
}

impl Defined {
    /// Page versions of the table `id`, which it does not own.
    pub(super) fn versions_of(&self, id: u32) -> Arc<TableVersions> {
        self.versions.get(&id).map_or_else(Arc::default, |(versions, _)| Arc::clone(versions))
    }

    /// Whether there are page versions of tables that it does not own.
    pub(super) fn has_versions(&self) -> bool {
        !self.versions.is_empty()
    }

    /// Makes `versions` those of the table `id`.
    pub(super) fn put_versions(&mut self, id: u32, versions: TableVersions, pin: Arc<TailPin>) {
        self.versions.insert(id, (Arc::new(versions), pin));
    }

    /// Its space, by device.
    pub(super) fn claims(&self) -> &BTreeMap<DeviceId, Arc<Claim>> {
        &self.claims
    }

    /// Its space on `device`, for a statement that writes.
    pub(super) fn claim(&mut self, device: &Arc<Device>) -> Arc<Claim> {
        let claim = self.claims.entry(device.id());
        Arc::clone(claim.or_insert_with(|| Arc::new(Claim::new(Arc::clone(device)))))
    }

    /// Makes durable what its commit will name, before that locks others out, and takes what is cached of replaced
    /// pages over to their versions.
    pub(super) async fn sync_versions(&self, database: &Database) -> Result<()> {
        if !self.has_versions() {
            return Ok(());
        }
        let written = self.claims.values().filter(|claim| claim.block_count() > 0);
        try_join_all(written.map(|claim| claim.sync_written())).await?;
        for (id, (versions, _)) in &self.versions {
            versions.take_cached(database, *id).await;
        }
        Ok(())
    }

    /// Puts its page versions over those of others that are committed in `state`; returns whether any were not.
    ///
    /// # Errors
    /// [`Error::Conflict`] of a page that is gone; those of the device.
    pub(super) async fn rebase_versions(
        &mut self,
        database: &Database,
        state: &CatalogState,
    ) -> Result<bool> {
        let mut is_rebased = false;
        for (id, (versions, _)) in &mut self.versions {
            let table = state.table_by_id(*id).ok_or_else(Error::concurrent_update)?;
            if let Some(next) = versions.rebased(database, table, &self.claims).await? {
                *versions = Arc::new(next);
                is_rebased = true;
            }
        }
        Ok(is_rebased)
    }

    /// Whether nothing is defined.
    pub(super) fn is_empty(&self) -> bool {
        self.versions.is_empty() && !self.has_definitions()
    }

    /// Whether anything is defined but page versions.
    fn has_definitions(&self) -> bool {
        !self.tables.is_empty()
            || !self.views.is_empty()
            || !self.sequences.is_empty()
            || !self.rights.is_empty()
            || !self.comments.is_empty()
    }

    /// Whether a table that `delta` has rows of is one of them.
    pub(super) fn has_table_of(&self, delta: &Delta) -> bool {
        self.tables.keys().any(|id| delta.has_table(*id))
    }

    /// Whether the table, view or sequence `id` is one of them.
    pub(super) fn has(&self, id: u32) -> bool {
        self.tables.contains_key(&id)
            || self.views.contains_key(&id)
            || self.sequences.contains_key(&id)
    }

    /// Whether the table or view `id` is temporary.
    pub(super) fn is_temporary(&self, id: u32) -> bool {
        self.temporary.contains_key(&id)
    }

    /// The ids of temporary objects.
    pub(super) fn temporary_ids(&self) -> BTreeSet<u32> {
        self.temporary.keys().copied().collect()
    }

    /// What happens to the table or sequence `id` at the end of a transaction, if it is temporary.
    pub(super) fn on_commit(&self, id: u32) -> Option<OnCommit> {
        self.temporary.get(&id).copied()
    }

    /// The catalog that a session with these definitions sees over the committed one, `base`.
    pub(super) fn over(&self, database: &Database, base: Arc<CatalogState>) -> Arc<CatalogState> {
        if self.is_empty() && self.exact.is_none() {
            return base;
        }
        let mut state = CatalogState::clone(&base);
        self.put_into(&mut state);
        state.commit = state.commit.max(self.commit);
        // Their ids are not given again to objects that others see beside them.
        let (table, segment) = database.ids.next();
        state.next_table = state.next_table.max(table);
        state.next_segment = state.next_segment.max(segment);
        let space = self.claims.values().map(|claim| Arc::clone(claim) as Arc<dyn HeldSpace>);
        state.keep = Some(Arc::new(Keep::new(base, space.collect())));
        Arc::new(state)
    }

    /// The same over `newest`, in which others may have committed versions of the same pages since the block's own were
    /// made.
    ///
    /// # Errors
    /// As [`Defined::rebase_versions`].
    pub(super) async fn over_newest(
        &self,
        database: &Database,
        newest: Arc<CatalogState>,
    ) -> Result<Arc<CatalogState>> {
        if !self.has_versions() {
            return Ok(self.over(database, newest));
        }
        let mut defined = self.clone();
        defined.rebase_versions(database, &newest).await?;
        Ok(defined.over(database, newest))
    }

    fn put_into(&self, state: &mut CatalogState) {
        state.tables.retain(|_, table| !self.has(table.schema.table_id));
        state.damaged.retain(|_, table| !self.has(table.schema.table_id));
        state.views.retain(|_, view| !self.has(view.schema.table_id));
        state.sequences.retain(|_, sequence| !self.has(sequence.id));
        for (id, (versions, _)) in &self.versions {
            let Some(table) = state.table_by_id(*id) else { continue };
            let table = versions.over(table);
            state.tables.insert(table.schema.name.clone(), table);
        }
        // Temporary objects hide others of their names.
        for is_temporary in [false, true] {
            let is_kind = |id: u32| self.is_temporary(id) == is_temporary;
            for table in self.tables.values().flatten() {
                if is_kind(table.schema.table_id) {
                    let key = self.key(&table.schema.name, is_temporary, state);
                    state.views.remove(&key);
                    state.tables.insert(key, Arc::clone(table));
                }
            }
            for view in self.views.values().flatten() {
                if is_kind(view.schema.table_id) {
                    let key = self.key(&view.schema.name, is_temporary, state);
                    state.tables.remove(&key);
                    state.views.insert(key, Arc::clone(view));
                }
            }
            for sequence in self.sequences.values().flatten() {
                if is_kind(sequence.id) {
                    let key = self.key(&sequence.name, is_temporary, state);
                    state.sequences.insert(key, Arc::clone(sequence));
                }
            }
        }
        for name in self.exact.iter().flat_map(|exact| &exact.absent) {
            move_away(state, name, SCHEMA);
        }
        self.rights.put_into(&mut state.rights);
        self.comments.put_into(&mut state.comments);
    }

    /// The name under which `state` gets the object `name`. If both it and a temporary object of that name are meant by
    /// the running statement, the other one is there by the name of its schema.
    fn key(&self, name: &str, is_temporary: bool, state: &mut CatalogState) -> String {
        match &self.exact {
            Some(exact) if is_temporary && exact.permanent.contains(name) => {
                key_of(TEMPORARY_SCHEMA, name)
            }
            Some(_) if is_temporary => {
                move_away(state, name, SCHEMA);
                name.to_owned()
            }
            _ => name.to_owned(),
        }
    }

    /// Sets what names mean in the running statement.
    pub(super) fn set_exact(&mut self, exact: Option<Arc<ExactNames>>) {
        self.exact = exact;
    }

    /// Whether names may mean something else in the running statement than in others.
    pub(super) fn is_exact(&self) -> bool {
        self.exact.is_some()
    }

    /// Whether there are temporary objects.
    pub(super) fn has_any_temporary(&self) -> bool {
        !self.temporary.is_empty()
    }

    /// Whether a temporary table, view or sequence has this name.
    pub(super) fn has_temporary(&self, name: &str) -> bool {
        let mut ids = self.temporary.keys();
        ids.any(|id| {
            let table = self.tables.get(id).and_then(Option::as_ref);
            let view = self.views.get(id).and_then(Option::as_ref);
            let sequence = self.sequences.get(id).and_then(Option::as_ref);
            table.is_some_and(|table| table.schema.name == name)
                || view.is_some_and(|view| view.schema.name == name)
                || sequence.is_some_and(|sequence| sequence.name == name)
        })
    }

    /// What others see after the block commits.
    pub(super) fn permanent(&self) -> Self {
        let mut permanent = Self { temporary: BTreeMap::new(), ..self.clone() };
        permanent.tables.retain(|id, _| !self.is_temporary(*id));
        permanent.views.retain(|id, _| !self.is_temporary(*id));
        permanent.sequences.retain(|id, _| !self.is_temporary(*id));
        permanent.rights = permanent.rights.without(|id| self.is_temporary(id));
        permanent
    }

    /// What the session keeps after the block has committed.
    pub(super) fn into_temporary(self) -> Self {
        let mut kept = Self { claims: self.claims, commit: self.commit, ..Self::default() };
        for (id, on_commit) in self.temporary {
            if let Some(Some(view)) = self.views.get(&id) {
                kept.views.insert(id, Some(Arc::clone(view)));
                kept.temporary.insert(id, on_commit);
            }
            if let Some(Some(sequence)) = self.sequences.get(&id)
                && on_commit != OnCommit::Drop
            {
                kept.sequences.insert(id, Some(Arc::clone(sequence)));
                kept.temporary.insert(id, on_commit);
            }
            let Some(table) = self.tables.get(&id).and_then(Option::as_ref) else { continue };
            let table = match on_commit {
                OnCommit::PreserveRows => Arc::clone(table),
                OnCommit::DeleteRows => Arc::new(emptied(table)),
                OnCommit::Drop => continue,
            };
            kept.tables.insert(id, Some(table));
            kept.temporary.insert(id, on_commit);
        }
        if kept.tables.is_empty() {
            kept.claims.clear();
        }
        kept
    }

    /// Gives back the space that none of its tables takes, if nobody reads it.
    pub(super) fn trim(&mut self) {
        for (device, claim) in &self.claims {
            if Arc::strong_count(claim) == 1 {
                claim.keep_only(&self.extents(*device));
            }
        }
    }

    /// Records what a statement made of `before`, and the space that it takes.
    fn note(
        &mut self,
        before: &CatalogState,
        after: &CatalogState,
        claims: BTreeMap<DeviceId, Arc<Claim>>,
        temporary: BTreeMap<u32, OnCommit>,
    ) {
        self.claims = claims;
        self.commit = self.commit.max(after.commit);
        self.temporary.extend(temporary);
        // A temporary object that the statement has made or renamed hid what had its name.
        let hiding: BTreeSet<&str> = names_by_id(after)
            .difference(&names_by_id(before))
            .filter(|(id, _)| self.is_temporary(*id))
            .map(|(_, name)| *name)
            .collect();
        let is_named_alike = |id: u32, name: &str| !self.is_temporary(id) && hiding.contains(name);
        let is_hidden = |schema: &TableSchema| is_named_alike(schema.table_id, &schema.name);
        let tables = |state: &CatalogState| -> BTreeMap<u32, Arc<TableState>> {
            state.tables().map(|table| (table.schema.table_id, Arc::clone(table))).collect()
        };
        let tables = differences(&tables(before), &tables(after), |table| is_hidden(&table.schema));
        let views = |state: &CatalogState| -> BTreeMap<u32, Arc<ViewState>> {
            state.views().map(|view| (view.schema.table_id, Arc::clone(view))).collect()
        };
        let views = differences(&views(before), &views(after), |view| is_hidden(&view.schema));
        let sequences = |state: &CatalogState| -> BTreeMap<u32, Arc<Sequence>> {
            state.sequences.values().map(|known| (known.id, Arc::clone(known))).collect()
        };
        let is_hidden = |sequence: &Sequence| is_named_alike(sequence.id, &sequence.name);
        let sequences = differences(&sequences(before), &sequences(after), is_hidden);
        let damaged = |state: &CatalogState| -> BTreeSet<u32> {
            state.damaged_tables().map(|table| table.schema.table_id).collect()
        };
        let dropped = damaged(before).difference(&damaged(after)).map(|id| (*id, None)).collect();
        self.rights.note(&before.rights, &after.rights);
        self.comments.note(&before.comments, &after.comments);
        self.tables.extend::<BTreeMap<_, _>>(dropped);
        for (id, mut table) in tables {
            // It has the page versions in it from now on.
            if let Some((versions, _)) = self.versions.remove(&id)
                && let Some(table) = &mut table
            {
                versions.note_rewrites(Arc::make_mut(table));
            }
            self.tables.insert(id, table);
        }
        self.views.extend(views);
        self.sequences.extend(sequences);
    }

    /// Removes the grants on dropped objects from `next`.
    fn forget_rights(&self, next: &mut CatalogState) {
        let is_dropped = self.tables.values().any(Option::is_none)
            || self.views.values().any(Option::is_none)
            || self.sequences.values().any(Option::is_none);
        if is_dropped && *next.rights != Rights::default() {
            let mut rights = Rights::clone(&next.rights);
            rights.prune(next);
            next.rights = Arc::new(rights);
        }
    }

    /// What its tables occupy on `device`, ascending.
    fn extents(&self, device: DeviceId) -> Vec<Extent> {
        let tablets = self.tables.values().flatten().flat_map(|table| &table.tablets);
        let here = tablets.filter(|tablet| tablet.device == device);
        let mut extents: Vec<Extent> = here.flat_map(|tablet| tablet.extents()).collect();
        extents.extend(self.versions.values().flat_map(|(versions, _)| versions.extents(device)));
        extents.sort_unstable();
        extents
    }
}

impl Defines for Defined {
    /// Whether it only frees space that `committed` takes: nothing is written, and something is dropped.
    fn makes_room(&self, committed: &CatalogState) -> bool {
        let is_there = |id: &u32| committed.tables().any(|table| table.schema.table_id == *id);
        let is_damaged =
            |id: &u32| committed.damaged_tables().any(|table| table.schema.table_id == *id);
        self.claims.values().all(|claim| claim.block_count() == 0)
            && self.tables.keys().any(|id| is_there(id) || is_damaged(id))
    }

    fn page_versions(&self) -> Option<Vec<(u32, &TableVersions)>> {
        let versions = self.versions.iter().map(|(id, (versions, _))| (*id, &**versions));
        (self.has_versions() && !self.has_definitions()).then(|| versions.collect())
    }

    /// Makes it part of what `edit` commits.
    ///
    /// # Errors
    /// [`Error::NameTaken`] if a name has been taken by another object meanwhile; [`Error::Conflict`] of rows that have
    /// been changed without their locks.
    fn install(&self, edit: &mut CatalogEdit) -> Result<()> {
        let (table, segment) = edit.database().ids.next();
        let newest = edit.database().live();
        for (id, (versions, _)) in &self.versions {
            versions.check(*id, &newest)?;
            let table = edit.next.table_by_id(*id).ok_or_else(Error::concurrent_update)?;
            let table = versions.commit(table)?;
            edit.put_table(table);
        }
        let next = &mut edit.next;
        let others = Self {
            tables: self.tables.keys().map(|id| (*id, None)).collect(),
            views: self.views.keys().map(|id| (*id, None)).collect(),
            sequences: self.sequences.keys().map(|id| (*id, None)).collect(),
            ..Self::default()
        };
        others.put_into(next);
        for table in self.tables.values().flatten() {
            let name = &table.schema.name;
            if next.is_name_taken(name) {
                return Err(Error::NameTaken { kind: NameKind::Relation, name: name.clone() });
            }
            if let Some(index) = table.indexes.iter().find(|index| next.is_name_taken(&index.name))
            {
                return Err(Error::NameTaken { kind: NameKind::Index, name: index.name.clone() });
            }
            next.tables.insert(name.clone(), Arc::clone(table));
        }
        for view in self.views.values().flatten() {
            let name = &view.schema.name;
            if next.is_name_taken(name) {
                return Err(Error::NameTaken { kind: NameKind::Relation, name: name.clone() });
            }
            next.views.insert(name.clone(), Arc::clone(view));
        }
        for sequence in self.sequences.values().flatten() {
            let name = &sequence.name;
            if next.is_name_taken(name) {
                return Err(Error::NameTaken { kind: NameKind::Sequence, name: name.clone() });
            }
            next.sequences.insert(name.clone(), Arc::clone(sequence));
        }
        self.rights.put_into(&mut next.rights);
        self.comments.put_into(&mut next.comments);
        self.forget_rights(next);
        comments::forget(next);
        next.next_table = next.next_table.max(table);
        next.next_segment = next.next_segment.max(segment);
        for (device, claim) in &self.claims {
            edit.publish_kept(Arc::clone(claim), self.extents(*device));
        }
        Ok(())
    }
}

/// A running statement that defines something.
pub(super) struct Definition {
    /// The edit that it changes.
    pub(super) edit: CatalogEdit,
    before: Arc<CatalogState>,
    /// Tables whose rows, as the block has changed them, are in the edit's catalog version.
    folded: Vec<u32>,
    /// Tables that are made as temporary ones.
    pub(super) temporary: BTreeMap<u32, OnCommit>,
    /// Outside of a block: the locks of its own.
    implicit: Option<Block>,
}

impl Definition {
    /// The catalog version that it began with, without the rows that the block has changed.
    pub(super) fn before(&self) -> &Arc<CatalogState> {
        &self.before
    }

    /// Whether it includes rows that the block has changed.
    pub(super) fn has_folded(&self) -> bool {
        !self.folded.is_empty()
    }

    /// Locks the table `table_id` for the transaction.
    ///
    /// # Errors
    /// [`Error::Conflict`].
    pub(super) async fn lock_table(
        &self,
        session: &Session,
        table_id: u32,
        mode: LockMode,
    ) -> Result<()> {
        let timeout = session.in_force().lock_timeout_ms;
        match self.implicit.as_ref().or(session.block.as_ref()) {
            Some(block) => block.locks.lock_table(table_id, mode, timeout).await,
            None => Ok(()),
        }
    }

    /// The same with rows loaded into the table that `schema` describes, and their number.
    ///
    /// # Errors
    /// Those of `rest`; [`Error::DuplicateKey`]; those of the device.
    pub(super) async fn load(
        self,
        checks: Arc<QueryEngine>,
        settings: &Arc<Settings>,
        schema: &Arc<TableSchema>,
        (first, rest): (Vec<RecordBatch>, BoxStream<'_, Result<RecordBatch>>),
    ) -> Result<(Self, u64)> {
        let mut load = BulkLoad::begin(self.edit, settings, schema, Some(checks))?;
        load.push_all(first, rest).await?;
        let (edit, count) = load.end().await?;
        Ok((Self { edit, ..self }, count))
    }
}

impl Definition {
    /// The same with rows that replace others, and their number.
    ///
    /// # Errors
    /// Those of `rows`; [`Error::DuplicateKey`]; those of the device.
    pub(super) async fn replace(
        self,
        checks: Arc<QueryEngine>,
        settings: &Arc<Settings>,
        schema: &Arc<TableSchema>,
        mut rows: BoxStream<'_, Result<Changed>>,
    ) -> Result<(Self, usize)> {
        let mut load = BulkLoad::begin(self.edit, settings, schema, Some(checks))?;
        let mut ended: BTreeMap<usize, VidSet> = BTreeMap::new();
        while let Some(changed) = rows.next().await {
            let pushed = changed.map(|Changed { place, vids, rows, .. }| {
                ended.entry(place).or_default().extend(vids);
                rows
            });
            load.push(pushed).await?;
        }
        let count = ended.values().map(VidSet::len).sum();
        if let Err(error) = load.end_rows(&ended) {
            load.push(Err(error)).await?;
        }
        let (edit, _) = load.end().await?;
        Ok((Self { edit, ..self }, count))
    }
}

impl Definition {
    /// The same with what a fragment has changed of one tablet of the table that `schema` describes, in space of
    /// `claim`; and the number of changed rows.
    ///
    /// # Errors
    /// Those of [`change_pages::apply`].
    pub(super) fn change_pages(
        &mut self,
        schema: &TableSchema,
        (device, claim): (&Arc<Device>, &Arc<Claim>),
        change: TabletChange<'_>,
    ) -> Result<u64> {
        change_pages::apply(&mut self.edit, schema, device, claim, change)
    }
}

impl Session {
    /// The catalog as the session sees it, without the rows that it has changed.
    pub(super) fn names(&self) -> Arc<CatalogState> {
        let newest = self.database.catalog();
        self.defined().over(&self.database, newest)
    }

    /// Whether the table `table_id` is defined or owned by the session.
    pub(super) fn owns(&self, table_id: u32) -> bool {
        self.defined().has(table_id)
    }

    /// What the session has defined and others do not see.
    pub(super) fn defined(&self) -> &Defined {
        match &self.block {
            Some(block) => &block.defined,
            None => &self.temporary,
        }
    }
}

/// Locks the tables called `tables`, as far as they exist, and the new names `names`, and begins a definition.
///
/// # Errors
/// In a read-only transaction; [`Error::Conflict`] of a lock; those of applying rows that were changed before.
pub(super) async fn begin_definition(
    session: &mut Session,
    what: &str,
    tables: &[String],
    names: &[&str],
) -> Result<Definition> {
    begin_definition_in(session, what, (tables, LockMode::AccessExclusive), names).await
}

/// The same with the tables locked in `mode`, which excludes at least all writers.
///
/// # Errors
/// As [`begin_definition`].
pub(super) async fn begin_definition_in(
    session: &mut Session,
    what: &str,
    (tables, mode): (&[String], LockMode),
    names: &[&str],
) -> Result<Definition> {
    session.check_may_write(what)?;
    if !tables.is_empty() {
        serializable::track_writes(session).await?;
    }
    let database = Arc::clone(&session.database);
    let settings = session.shared_settings();
    let timeout = settings.lock_timeout_ms;
    let mut implicit = None;
    let block = match &session.block {
        Some(block) => block,
        None => {
            let (locks, defined) =
                (block::new_locks(&session.database, &session.settings), session.temporary.clone());
            implicit.insert(Block::new(TransactionModes::OWN, locks, defined))
        }
    };
    for name in names {
        block.locks.lock_name(name, timeout).await?;
    }
    let seen = || block.defined.over(&database, database.catalog());
    let mut locked = Vec::new();
    for name in tables {
        // The former holder of the lock may have replaced the table.
        while let Some(id) = id_of(&seen(), name).filter(|id| !locked.contains(id)) {
            // Readers are excluded too from a table in which the block has only changed rows.
            let is_more = mode == LockMode::AccessExclusive && !block.defined.is_temporary(id);
            if is_more || !block.defined.has(id) {
                block.locks.lock_table(id, mode, timeout).await?;
            }
            locked.push(id);
        }
    }
    if let Some(tracked) = session.tracked() {
        for id in locked.iter().filter(|id| !block.defined.has(**id)) {
            tracked.writes(u64::from(*id), &Written::All)?;
        }
    }
    // With all rows of the locked tables.
    let newest = match tables {
        [] => database.catalog(),
        _ => database.snapshot(SnapshotKind::Flushed).await?,
    };
    let before = block.defined.over_newest(&database, newest).await?;
    if !tables.is_empty() {
        rights::check_definition(session, &before)?;
    }
    let claims = block.defined.claims.clone();
    let mut edit = CatalogEdit::kept(&database, Arc::clone(&before), claims)?;
    let mut folded = Vec::new();
    for id in locked {
        if let Some(change) = block.changes.get(&id) {
            edit = apply(edit, &settings, change).await?;
            folded.push(id);
        }
    }
    Ok(Definition { edit, before, folded, temporary: BTreeMap::new(), implicit })
}

/// Hands a definition to the session's block, or commits it if there is none.
///
/// # Errors
/// Those of a commit.
pub(super) async fn end_definition(session: &mut Session, definition: Definition) -> Result<()> {
    let Definition { mut edit, before, folded, temporary, mut implicit } = definition;
    own_what_is_new(&session.settings, &before, &mut edit.next, &temporary);
    catalog_room::check_role(roles::actor(&session.settings), &before, &edit.next)?;
    let Some(block) = implicit.as_mut().or(session.block.as_mut()) else { return Ok(()) };
    let (after, claims) = edit.into_kept();
    block.defined.note(&before, &after, claims, temporary);
    block.changes.retain(|id, _| !folded.contains(id));
    block.own = None;
    match implicit {
        Some(block) => block::commit_block(session, block).await,
        None => Ok(()),
    }
}

/// Makes new objects the property of the role that the session acts as, with the default privileges for them.
fn own_what_is_new(
    settings: &Settings,
    before: &CatalogState,
    next: &mut CatalogState,
    temporary: &BTreeMap<u32, OnCommit>,
) {
    let role = roles::actor(settings);
    if *next.rights == Rights::default() && role == FIRST {
        return;
    }
    let ids = |state: &CatalogState| -> BTreeSet<u32> {
        let tables = state.tables().map(|table| table.schema.table_id);
        let views = state.views().map(|view| view.schema.table_id);
        let sequences = state.sequences.values().map(|sequence| sequence.id);
        tables.chain(views).chain(sequences).collect()
    };
    for id in ids(next).difference(&ids(before)).filter(|id| !temporary.contains_key(id)) {
        let sequence = next.sequences.values().find(|sequence| sequence.id == *id);
        let restarted = sequence.and_then(|sequence| before.sequences.get(&sequence.name));
        let (restarted, is_sequence) = (restarted.map(|from| from.id), sequence.is_some());
        let rights = Arc::make_mut(&mut next.rights);
        match restarted {
            // The same object under another id.
            Some(from) => rights.pass_on(from, *id),
            None => rights.begin(*id, is_sequence, role),
        }
    }
}

/// Changes rows of a table that is the session's own.
///
/// # Errors
/// As [`apply`].
pub(super) async fn change_own(session: &mut Session, change: &TableChange) -> Result<()> {
    let settings = session.shared_settings();
    let mut definition = begin_definition(session, "a change of rows", &[], &[]).await?;
    definition.edit = apply(definition.edit, &settings, change).await?;
    end_definition(session, definition).await
}

/// Loads rows into a table that is or becomes the session's own; returns their number.
///
/// # Errors
/// Those of `rest`; [`Error::DuplicateKey`]; those of the device.
pub(super) async fn load_own(
    session: &mut Session,
    schema: &Arc<TableSchema>,
    first: Vec<RecordBatch>,
    rest: BoxStream<'_, Result<RecordBatch>>,
) -> Result<u64> {
    let settings = session.shared_settings();
    let moving = many::begin_moving(session, schema).await?;
    let mut definition = moving.ok_or_else(Error::concurrent_update)?;
    if definition.has_folded() {
        // The block's earlier changes in the table must not be applied once more below.
        end_definition(session, definition).await?;
        let moving = many::begin_moving(session, schema).await?;
        definition = moving.ok_or_else(Error::concurrent_update)?;
    }
    load::hold_targets(session, schema.table_id).await?;
    let checks = Arc::clone(session.database.queries());
    let (definition, count) = definition.load(checks, &settings, schema, (first, rest)).await?;
    check_references(session, &definition, schema.table_id).await?;
    end_definition(session, definition).await?;
    Ok(count)
}

/// Refuses rows of a table that `definition` has filled which refer to no row. The referenced tables are
/// [held](load::hold_targets).
///
/// # Errors
/// [`Error::Violation`]; those of a query.
pub(super) async fn check_references(
    session: &mut Session,
    definition: &Definition,
    table: u32,
) -> Result<()> {
    let settings = session.shared_settings();
    let state = Arc::new(CatalogState::clone(&definition.edit.next));
    let state = own::with_own_changes(session, &state, 0).await?;
    let check = CheckedLoad { database: &session.database, settings: &settings };
    check.check(&state, table).await
}

/// The objects that differ between `before` and `after`, by id; None: dropped, and not merely hidden by another one.
fn differences<T>(
    before: &BTreeMap<u32, Arc<T>>,
    after: &BTreeMap<u32, Arc<T>>,
    is_hidden: impl Fn(&T) -> bool,
) -> BTreeMap<u32, Option<Arc<T>>> {
    let gone = before.iter().filter(|(id, known)| !after.contains_key(id) && !is_hidden(known));
    let is_new =
        |(id, now): &(&u32, &Arc<T>)| before.get(id).is_none_or(|known| !Arc::ptr_eq(known, now));
    let new = after.iter().filter(is_new).map(|(id, now)| (*id, Some(Arc::clone(now))));
    gone.map(|(id, _)| (*id, None)).chain(new).collect()
}

/// The ids and names of all tables, views and sequences.
fn names_by_id(state: &CatalogState) -> BTreeSet<(u32, &str)> {
    let tables = state.tables().map(|table| &table.schema);
    let schemas = tables.chain(state.views().map(|view| &view.schema));
    let sequences = state.sequences.values().map(|known| (known.id, known.name.as_str()));
    schemas.map(|schema| (schema.table_id, schema.name.as_str())).chain(sequences).collect()
}

/// Puts what `state` calls `name`, an object of `schema`, under the name with its schema.
fn move_away(state: &mut CatalogState, name: &str, schema: &str) {
    if let Some(table) = state.tables.remove(name) {
        state.tables.insert(key_of(schema, name), table);
    }
    if let Some(view) = state.views.remove(name) {
        state.views.insert(key_of(schema, name), view);
    }
    if let Some(sequence) = state.sequences.remove(name) {
        state.sequences.insert(key_of(schema, name), sequence);
    }
}

/// The id of the table, view or sequence `name`, even if it is damaged.
fn id_of(state: &CatalogState, name: &str) -> Option<u32> {
    let damaged = || state.damaged.get(name).map(|table| table.schema.table_id);
    let view = || state.view(name).map(|view| view.schema.table_id);
    let sequence = || state.sequences.get(name).map(|sequence| sequence.id);
    let table = state.table(name).map(|table| table.schema.table_id);
    table.or_else(view).or_else(damaged).or_else(sequence)
}
