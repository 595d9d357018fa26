//! Commits by the log that change what is in pages, page versions and many deleted rows: a record in, and a catalog
//! version out that no manifest has.
//!
//! ```text
//!  page versions, synced ─┬▶ record appended ─▶ pages replaced in the catalog version ─┬▶ delta kept ─▶ published
//!  deleted rows, as runs ─┘                     rows dead in its version maps ─────────┘
//! ```
//!
//! The pages are durable before the record is, so recovery needs only their references. The delta stays as it is: no
//! other writer waits for a page. Deleted rows that are still in the delta die there. [`commit`] leaves to the
//! [manifest](super::manifest) what the log does not take: transactions that have defined or inserted more, pages that
//! the manifest on disk does not know, those of mirrors, and records that would be large. A host that goes on from a
//! log replica reads the same devices. The readers of an archive do not: while one is set, the pages are
//! [copied](crate::storage_engine::log_keeper::LogKeeper::copy_pages) behind the record.
//!
//! Invariants: as for [small] commits, nothing waits and nothing fails between record and publication. Space of
//! replaced pages is used again after the next manifest only, and after the log replicas have that, so what a record
//! names is there when it is redone.
//! Source: Update NDP, section 5 (basic logging), rules 25 and 30, `docs/design/versions-and-commit.md`.

use std::collections::BTreeMap;
use std::sync::Arc;

use cleave_catalog::catalog::{CatalogState, DeviceId, TableState};
use cleave_catalog::error::{Error, Result};
use cleave_catalog::settings::UpdateLogging;
use cleave_media::Extent;
use cleave_txn::Wal;
use tokio::sync::OwnedMutexGuard;

use super::manifest::StopIfDying;
use super::{Defines, Engine, Published, RowChanges, Step, manifest, publish, small};
use crate::delta::{Live, Prepared};
use crate::device::free_of;
use crate::log::{self, LoggedVersions};
use crate::storage_engine::catalog_edit::{CatalogEdit, Kind};
use crate::storage_engine::log_keeper::{LoggedPage, RecordPages};
use crate::write::insert::{TableChange, with_ends_in_pages};
use crate::write::page_versions::{TableVersions, is_same_place};
use crate::write::settled_pages::{rows_from, unknown_from};

/// Bytes of references and deleted rows up to which they are logged: a record of more costs as much as a manifest.
const RECORD_BYTES_MAX: usize = 4 << 20;
/// Blocks that may wait for a manifest, and the part of the used ones that may.
const RETIRED_BLOCKS_MIN: u64 = 16 << 10;
const RETIRED_SHARE: u64 = 4;

/// Page versions of a log that is redone.
#[derive(Default)]
pub struct RedonePages {
    /// By table.
    pub(crate) tables: BTreeMap<u32, TableVersions>,
    /// All that records name: of a page that has several versions, all of them.
    pub(crate) taken: Vec<LoggedPage>,
}

/// Commits `rows`, whose transaction has defined something or deleted many: by the log, if that takes it.
pub(super) async fn commit(engine: &Arc<Engine>, rows: RowChanges<'_>) -> Result<Published> {
    let versions = rows.defined.map_or_else(|| Some(Vec::new()), Defines::page_versions);
    // What takes its time is done before the lock, and not in vain.
    let may_take = |versions: &Vec<_>| may_name_pages(engine) && !lie_on_mirrors(engine, versions);
    let versions = versions.filter(|versions| versions.is_empty() || may_take(versions));
    let Some(versions) = versions else {
        return Box::pin(manifest::commit_rows(engine, rows)).await;
    };
    if !takes(engine, &versions) && engine.keeper.copies_pages(&engine.catalog()) {
        // A manifest with the change would have the archive copy the changed pages whole, within the commit. One
        // without it lets the log take the change, whose changed chunks alone are copied then.
        engine.checkpoint().await?;
    }
    let logged: Vec<LoggedVersions> =
        versions.iter().map(|(id, versions)| LoggedVersions::of(*id, versions)).collect();
    let byte_count = logged.iter().map(LoggedVersions::byte_count).sum::<usize>()
        + log::dead_byte_count(rows.changes);
    let lock = engine.writer_lock().await;
    engine.check_running()?;
    Step::Lock.enter()?;
    let is_taken = |_: &&Wal| {
        byte_count <= RECORD_BYTES_MAX && takes(engine, &versions) && are_copied(engine, &versions)
    };
    let Some(log) = small::log_for(engine, &rows).filter(is_taken) else {
        drop(lock);
        return Box::pin(manifest::commit_rows(engine, rows)).await;
    };
    let (lock, live) = small::validate(engine, lock, &rows).await?;
    let mut edit = edit_behind(engine, &live, lock);
    if let Some(defined) = rows.defined {
        defined.install(&mut edit)?;
    }
    let mut prepared = live.delta.prepare(&live.state, rows.changes)?;
    end_in_pages(&mut edit, rows.changes, &mut prepared)?;
    let named = |(id, versions): &(u32, &TableVersions)| {
        let table = live.state.table_by_id(*id);
        table.map(|table| versions.logged(table)).unwrap_or_default()
    };
    let pages: Vec<LoggedPage> = versions.iter().flat_map(named).collect();
    engine.keeper.log_pages(&engine.durable(), &pages);
    let (at, end) = small::append(engine, log, &live, &rows, logged)?;
    let _stop = StopIfDying(Arc::clone(engine));
    let number = live.number + 1;
    if !pages.is_empty() && engine.keeper.copies_pages(&live.state) {
        // Before anybody sees the commit, and waits for it.
        let record = RecordPages { at, commit: live.state.commit + number, pages };
        let is_awaited = rows.settings.update_logging == UpdateLogging::Extended;
        engine.keeper.copy_pages(engine, record, is_awaited);
    }
    edit.next.log_end = end;
    Step::Apply.pass();
    live.delta.put(prepared, number, (at, end));
    Step::Publish.pass();
    engine.note_rewritten();
    engine.versions.note_commit();
    let (state, lock) = publish::edit(edit, number, end);
    if let Some(tracked) = rows.tracked {
        tracked.ended();
    }
    Step::Told.pass();
    drop(lock);
    Ok(Published { state, log_end: end })
}

impl Engine {
    /// Where a record can have page versions of `table`: for each tablet, the first VID of a page that it cannot have,
    /// if the rows from there on are few, `rows_max` at most. None: it can have all, or none, or they are more.
    pub fn unlogged_pages(&self, table: &TableState, rows_max: u64) -> Option<Vec<u64>> {
        let durable = self.durable();
        let durable = durable.table_by_id(table.schema.table_id)?;
        if !may_name_pages(self)
            || lies_on_mirror(&self.catalog(), table)
            || durable.tablets.len() < table.tablets.len()
        {
            return None;
        }
        let firsts =
            unknown_from(table, durable, |_, entry, same| is_same_place(&same.page, &entry.page));
        (1..=rows_max).contains(&rows_from(table, &firsts)).then_some(firsts)
    }
}

/// Whether the copies that are to be made of the pages have all that the transaction has changed: chunks that lie with
/// versions before the last one are on none of them.
fn are_copied(engine: &Engine, versions: &[(u32, &TableVersions)]) -> bool {
    let state = engine.catalog();
    let has_all = |(id, versions): &(u32, &TableVersions)| {
        let logged = state.table_by_id(*id).map(|table| versions.logged(table));
        logged.is_some_and(|pages| pages.iter().all(|page| page.beside.is_empty()))
    };
    !engine.keeper.copies_pages(&state) || versions.iter().all(has_all)
}

/// An edit of the catalog version of `live` that keeps the delta behind it.
pub(super) fn edit_behind(
    engine: &Arc<Engine>,
    live: &Live,
    lock: OwnedMutexGuard<()>,
) -> CatalogEdit {
    let kind = Kind::Published { lock };
    let mut edit = CatalogEdit::on(engine, Arc::clone(&live.state), kind);
    // Its commit has a number behind it, as those of the delta have.
    edit.next.commit = edit.base.commit;
    edit.delta = Arc::clone(&live.delta);
    edit
}

/// Marks rows dead in the version maps of `edit`: those in pages of `changes` that have many. They do not enter the
/// delta with `prepared`.
///
/// # Errors
/// [`Error::Conflict`] of a row that is dead already, or a table that is gone.
pub(super) fn end_in_pages(
    edit: &mut CatalogEdit,
    changes: &[&TableChange],
    prepared: &mut [Prepared],
) -> Result<()> {
    for change in changes.iter().filter(|change| change.has_many_dead()) {
        let id = change.schema.table_id;
        let table = edit.next.table_by_id(id).ok_or_else(Error::concurrent_update)?;
        let table = with_ends_in_pages(table, &change.dead)?;
        edit.put_table(table);
        let of_table = prepared.iter_mut().filter(|prepared| prepared.table() == id);
        of_table.for_each(Prepared::leave_out_pages);
    }
    Ok(())
}

/// Whether records may name pages: those of a blocked table would be redone twice.
fn may_name_pages(engine: &Engine) -> bool {
    engine.catalog().blocked.tables.is_empty()
}

/// Whether a record may have `versions`.
fn takes(engine: &Engine, versions: &[(u32, &TableVersions)]) -> bool {
    if versions.is_empty() {
        return true;
    }
    let durable = engine.durable();
    let is_known = |(id, versions): &(u32, &TableVersions)| {
        durable.table_by_id(*id).is_some_and(|table| versions.follow(table))
    };
    let has_room = engine.devices().iter().all(|device| {
        let space = device.space();
        space.retired_blocks <= RETIRED_BLOCKS_MIN.max(space.used_blocks / RETIRED_SHARE)
    });
    may_name_pages(engine)
        && !lie_on_mirrors(engine, versions)
        && has_room
        && versions.iter().all(is_known)
}

/// Whether `versions` are of tables on mirrors. The manifest before a record may call a copy current that has missed
/// pages which the record would name.
fn lie_on_mirrors(engine: &Engine, versions: &[(u32, &TableVersions)]) -> bool {
    let state = engine.catalog();
    let mut tables = versions.iter().filter_map(|(id, _)| state.table_by_id(*id));
    tables.any(|table| lies_on_mirror(&state, table))
}

fn lies_on_mirror(state: &CatalogState, table: &TableState) -> bool {
    let mut entries = table.devices().into_iter().filter_map(|id| state.devices.get(&id));
    entries.any(|entry| entry.mirror().is_some())
}

/// Puts `redone` in place of the pages of what is committed.
pub(super) async fn redo(engine: &Arc<Engine>, redone: RedonePages) -> Result<Published> {
    let lock = engine.writer_lock().await;
    let live = engine.live();
    let mut edit = edit_behind(engine, &live, lock);
    // Replicas may have the manifest that these follow for some time yet.
    engine.keeper.log_pages(&engine.durable(), &redone.taken);
    for (id, versions) in &redone.tables {
        let table = edit.next.table_by_id(*id).ok_or_else(Error::concurrent_update)?;
        let table = versions.commit(table)?;
        edit.put_table(table);
    }
    let (state, lock) = publish::edit(edit, live.number, live.log_end);
    let mut taken: BTreeMap<DeviceId, Vec<Extent>> = BTreeMap::new();
    for page in redone.taken {
        taken.entry(page.device).or_default().extend(page.extents());
    }
    for (id, taken) in taken {
        let Some(device) = engine.device(id) else { continue };
        // Of a page that has several versions, only the last one is named.
        device.retire(state.generation, free_of(taken, &state.extents(id)));
    }
    drop(lock);
    Ok(Published { state, log_end: live.log_end })
}
