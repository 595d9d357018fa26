//! Commits with a manifest: an edit with its written pages in, a manifest that names them out. Each is a checkpoint of
//! all that was logged before.
//!
//! 1. [`commit`] makes durable what the manifest will name: pages on all devices, and the log up to the place from
//!    which it will be read. Copies of mirrors that have missed something become stale in this manifest.
//! 2. [`swap_manifest`] writes the directories of sealed segments, replaces the manifest, publishes the catalog
//!    version, and gives up the log and space that it no longer needs. From the first file on it cannot be cancelled:
//!    it runs to its end on a thread of its own, whether or not the session still waits.
//!
//! Invariants: a manifest names nothing that is not durable, and no device that it does not list; where it is not known
//! which manifest is on disk, the database stops. Source: rule 25, `docs/design/versions-and-commit.md`.

use std::collections::BTreeSet;
use std::sync::Arc;

use cleave_catalog::catalog::manifest;
use cleave_catalog::catalog::manifest::ReplaceError;
use cleave_catalog::catalog::{CatalogState, DeviceId, DeviceKind, TableState};
use cleave_catalog::commitment;
use cleave_catalog::error::{Error, Fault, Result};
use cleave_fragment::waiting;
use cleave_media::{Clock, SystemClock};
use cleave_store::{SegmentDirectory, SegmentId};
use cleave_txn::{Lsn, Wal};
use futures::future::try_join_all;

use super::validate::check_marks;
use super::{Engine, Published, RowChanges, Step, publish};
use crate::delta::Live;
use crate::device::DISK_FULL;
use crate::log;
use crate::storage_engine::catalog_edit::{CatalogEdit, Logged, retired, segments};
use crate::write::insert::apply;

/// Manifests for which space is put aside beside the log: the new one, and the files of a segment or two.
const RESERVED_ROOTS: u64 = 2;

/// Commits `rows`, and what their transaction has defined.
pub(super) async fn commit_rows(engine: &Arc<Engine>, rows: RowChanges<'_>) -> Result<Published> {
    let settings = Arc::new(rows.settings.clone());
    for change in rows.changes {
        engine.ask_devices(&change.schema.name).await?;
    }
    let mut edit = CatalogEdit::begin(engine).await?;
    for change in rows.changes {
        check_marks(edit.next.find_writable_table(&change.schema.name)?, change)?;
    }
    edit.makes_room = rows.changes.iter().all(|change| change.rows.is_empty());
    match rows.defined {
        None => edit.logged = engine.keeper.copy_rows(&engine.live(), rows.changes)?,
        Some(defined) => {
            edit.makes_room &= defined.makes_room(&edit.next);
            defined.install(&mut edit)?;
        }
    }
    for change in rows.changes {
        edit = apply(edit, &settings, change).await?;
    }
    if let Some(tracked) = rows.tracked {
        tracked.prepare(true)?;
    }
    let published = commit(edit).await?;
    if let Some(tracked) = rows.tracked {
        tracked.ended();
    }
    Ok(published)
}

/// Commits what was logged before, and an edit that adds nothing to it.
pub(super) async fn checkpoint(mut edit: CatalogEdit) -> Result<Published> {
    edit.is_checkpoint = true;
    settings(edit).await
}

/// Commits an edit of the database's settings, devices among them, and neither rows nor tables.
pub(super) async fn settings(mut edit: CatalogEdit) -> Result<Published> {
    edit.logged = Logged::Unchanged;
    edit.makes_room = true;
    commit(edit).await
}

/// Commits `edit`. See the module's description.
pub(super) async fn commit(mut edit: CatalogEdit) -> Result<Published> {
    let database = Arc::clone(&edit.database);
    Step::Validate.enter()?;
    check_devices(&edit.next)?;
    Step::Log.enter()?;
    sync_pages(&edit).await?;
    note_stale(&mut edit);
    harden_log(&mut edit).await?;
    if matches!(edit.logged, Logged::Nowhere) {
        edit.logged = database.keeper.copy_changes(&database, &edit.base, &edit.next).await;
    }
    edit.logged.note_in(&mut edit.next.upkeep, edit.next.commit, SystemClock.wall());
    let is_checkpoint = edit.is_checkpoint;
    let keeper = Arc::clone(&database.keeper);
    keeper.prepare_manifest(&database, &mut edit, is_checkpoint).await?;
    Step::Apply.enter()?;
    commitment::begin();
    let swapped = waiting::spawn_blocking(move || swap_manifest(edit)).await;
    let state = swapped.unwrap_or_else(|_| {
        // The thread died or the runtime is going down; the manifest on disk decides what happened.
        database.stop(&"a commit was cut off");
        Err(database.stopped_error().into())
    })?;
    if is_checkpoint {
        keeper.follow(&database).await;
    } else {
        keeper.reach(&database, state.log_end).await?;
    }
    let log_end = state.log_end;
    Ok(Published { state, log_end })
}

/// Refuses a table on a device that `next` does not list: no incarnation could read that manifest. A tablet without
/// pages has no space on its device, so that nothing has kept that from being removed since the statement chose it.
fn check_devices(next: &CatalogState) -> Result<()> {
    let is_listed = |table: &TableState| {
        table.tablets.iter().all(|tablet| next.devices.contains_key(&tablet.device))
    };
    let Some(table) = next.tables.values().find(|table| !is_listed(table)) else { return Ok(()) };
    let message = format!(
        "table \"{}\" was to lie on a device that was removed meanwhile",
        table.schema.name
    );
    Err(Error::Invalid { message, fault: Fault::State, position: None })
}

/// Makes durable the pages that the manifest will name: those of `edit`, and those of small commits before it.
async fn sync_pages(edit: &CatalogEdit) -> Result<()> {
    sync_claims(edit).await?;
    let database = &edit.database;
    if database.logged_count() > 0
        && let Some(embedded) = database.device(DeviceId::EMBEDDED)
        && let Err(error) = embedded.sync().await
    {
        // A device may have dropped what it has not synced, and a later sync does not tell: pages of commits by the log
        // among them, which the next incarnation redoes. A device that has not answered may still sync them.
        if !error.is_unanswered() {
            database.stop(&error);
        }
        return Err(error);
    }
    Ok(())
}

/// Says in the catalog version of `edit`, whose pages are synced, which copies of mirrors lack some. A copy that fails
/// from now on has all that this manifest will name.
fn note_stale(edit: &mut CatalogEdit) {
    let CatalogEdit { database, next, resynchronised, .. } = edit;
    for entry in next.devices.values_mut() {
        let id = entry.id;
        let DeviceKind::Mirror(mirror) = &mut entry.kind else { continue };
        // None: this commit adds it.
        let Some(device) = database.device(id) else { continue };
        let failed = device.failed_copies();
        for copy in &mut mirror.copies {
            let is_whole_again = resynchronised.contains(&(id, copy.device));
            copy.is_stale = failed.contains(&copy.device) && !is_whole_again;
        }
    }
}

/// Makes the log durable up to the place from which the manifest will say that it is read.
async fn harden_log(edit: &mut CatalogEdit) -> Result<()> {
    let database = Arc::clone(&edit.database);
    let Some(log) = database.log() else { return Ok(()) };
    // Only sequences append meanwhile, and what they have given is asked for after this. A manifest must not name a
    // place that the log does not reach after a crash.
    let position = log.resume_from().0;
    database.harden_log(position.max(log.end().0)).await?;
    // The next incarnation copies what the log names behind the manifest, and nothing before.
    database.keeper.pages_copied(&database, u64::MAX, true).await?;
    let next = &mut edit.next;
    let tables: BTreeSet<u32> = next.table_ids().collect();
    next.blocked.tables.retain(|id, _| tables.contains(id));
    next.blocked.until = position;
    next.log_position = next.blocked.first(position);
    if !edit.is_checkpoint {
        // Its readers wait for the log replicas, which have it with what is before it there.
        next.log_end = next.log_end.max(position);
    }
    next.sequences = database.sequences().as_given(&next.sequences);
    Ok(())
}

/// Makes durable what this statement has written, side by side: it waits for the slowest device, not for one after
/// the other.
async fn sync_claims(edit: &CatalogEdit) -> Result<()> {
    let claims = edit.claims.values().chain(edit.kept.iter().map(|(claim, _)| claim));
    let written = claims.filter(|claim| claim.block_count() > 0);
    let outcome = try_join_all(written.map(|claim| async move {
        let synced = claim.sync_written().await;
        synced.inspect_err(|error| {
            // As for pages of commits by the log, which the same sync was for.
            let is_own = claim.device_id() == DeviceId::EMBEDDED;
            if is_own && edit.database.logged_count() > 0 && !error.is_unanswered() {
                edit.database.stop(error);
            }
        })
    }));
    outcome.await.map(drop)
}

/// Replaces the manifest by that of `edit`, and publishes its catalog version.
fn swap_manifest(mut edit: CatalogEdit) -> Result<Arc<CatalogState>> {
    let _stop = StopIfDying(Arc::clone(&edit.database));
    replace_manifest(&mut edit)?;
    Step::Publish.pass();
    Ok(publish_manifest(edit))
}

/// Writes the directories of sealed segments, and then the manifest: from then on it is committed.
fn replace_manifest(edit: &mut CatalogEdit) -> Result<()> {
    let directory = edit.database.directory().to_owned();
    let written = match write_segments(edit) {
        Err(error) if takes_reserve(edit, &error) => write_segments(edit),
        outcome => outcome,
    }?;
    let replaced = match manifest::replace(&directory, &edit.next) {
        Err(ReplaceError::Unchanged(error)) if takes_reserve(edit, &error) => {
            manifest::replace(&directory, &edit.next)
        }
        outcome => outcome,
    };
    replaced.map_err(|error| match error {
        ReplaceError::Unchanged(error) => {
            for (segment, revision) in &written {
                manifest::remove_segment(&directory, *segment, *revision);
            }
            error
        }
        ReplaceError::Unknown(error) => {
            // Either manifest may be the one on disk: nothing that either names may be reused.
            edit.claims.values().for_each(|claim| claim.commit());
            edit.kept.iter().for_each(|(claim, _)| claim.commit());
            edit.database.stop(&error);
            edit.database.stopped_error().into()
        }
    })
}

/// Publishes the catalog version of `edit`, which the manifest has, and gives up what only older ones need.
fn publish_manifest(mut edit: CatalogEdit) -> Arc<CatalogState> {
    // Dropped before what is left of `edit`, which has the writer lock.
    let _stop = StopIfDying(Arc::clone(&edit.database));
    let database = Arc::clone(&edit.database);
    publish::hand_over(&mut edit);
    // Here, where nothing can be cancelled: a catalog version never names a device that is not attached.
    for device in std::mem::take(&mut edit.devices) {
        database.adopt(device);
    }
    // What is written on this version goes to them too. What was written before, and is named later, is synced anew.
    for (mirror, copy) in std::mem::take(&mut edit.resynchronised) {
        if let Some(device) = database.device(mirror) {
            device.note_current(copy);
        }
    }
    let is_kept = |segment: &SegmentId, revision: u32| {
        edit.next.files.get(segment).is_some_and(|file| file.revision == revision)
    };
    let before = edit.base.files.iter().map(|(segment, file)| (*segment, file.revision));
    let gone: Vec<(SegmentId, u32)> =
        before.filter(|(segment, revision)| !is_kept(segment, *revision)).collect();
    let retired = retired(&edit.base, &edit.next);
    let state = Arc::new(edit.next);
    database.note_rewritten();
    database.versions.note_commit();
    database.note_durable(&state);
    database.keeper.manifest_replaced(&database, &state, edit.is_checkpoint);
    database.publish(Live { delta: edit.delta, ..Live::flushed(Arc::clone(&state)) });
    Step::Told.pass();
    database.keep_version(&state);
    give_up_log(&database, &state, &edit.logged);
    database.disown(&state);
    for device in database.devices() {
        device.set_unknown_space(state.unknown_space_of(device.id()));
    }
    for (device, extents) in retired {
        if let Some(device) = database.device(device) {
            device.retire(state.generation, extents);
        }
    }
    let directory = database.directory();
    for (segment, revision) in gone {
        manifest::remove_segment(directory, segment, revision);
    }
    database.statistics().retain(&state);
    state
}

/// Logs what the commit of `state` was, and gives up the part of the log that its manifest does not need.
fn give_up_log(database: &Engine, state: &CatalogState, logged: &Logged) {
    let Some(log) = database.log() else { return };
    database.keeper.log_commit(log, state, logged);
    if log.has_failed() {
        database.stop(&"the log failed");
    }
    // What cannot be archived or removed now is tried again after the next checkpoint.
    let needed = database.keeper.first_needed(state, state.log_position);
    let truncated = log.truncate_before(Lsn(needed));
    database.keeper.log_truncated(truncated.as_ref().err());
    // Best effort: it is made again once there is room.
    let manifest_bytes = manifest::byte_count(database.directory());
    log::reserve_for_start(database.directory(), manifest_bytes);
    drop(log.restore_reserve(RESERVED_ROOTS * manifest_bytes));
}

/// Whether `error` is of a full disk, and this gives space back: then it has the space that was put aside.
fn takes_reserve(edit: &CatalogEdit, error: &Error) -> bool {
    let is_full = edit.makes_room && error.sqlstate() == DISK_FULL;
    is_full && edit.database.log().is_some_and(Wal::release_reserve)
}

/// Writes the directories of segments that this statement sealed; all of them, or none.
fn write_segments(edit: &mut CatalogEdit) -> Result<Vec<(SegmentId, u32)>> {
    let mut written = Vec::new();
    let outcome = write_each_segment(edit, &mut written);
    if let Err(error) = outcome {
        for (segment, revision) in written {
            manifest::remove_segment(edit.database.directory(), segment, revision);
            // It may be tried again.
            edit.next.files.remove(&segment);
        }
        return Err(error);
    }
    Ok(written)
}

fn write_each_segment(edit: &mut CatalogEdit, written: &mut Vec<(SegmentId, u32)>) -> Result<()> {
    let named: Vec<Arc<SegmentDirectory>> = segments(&edit.next).map(Arc::clone).collect();
    let next = edit.next.next_segment;
    debug_assert!(
        named.iter().all(|named| named.segment.0 < next),
        "a number would be given twice"
    );
    let ids = named.iter().map(|segment| segment.segment);
    // Files of what is damaged stay until it is dropped: the sound ones are of use once the others are back.
    let ids: BTreeSet<SegmentId> = ids.chain(edit.next.damaged_segments()).collect();
    edit.next.files.retain(|segment, _| ids.contains(segment));
    let directory = edit.database.directory();
    for segment in &named {
        let file = edit.next.files.get(&segment.segment);
        let has_file = file.is_some_and(|file| file.revision == segment.revision);
        if segment.sealed && !has_file {
            written.push((segment.segment, segment.revision));
            let file = manifest::write_segment(directory, segment)?;
            edit.next.files.insert(segment.segment, file);
        }
    }
    if written.is_empty() { Ok(()) } else { manifest::sync_segments(directory) }
}

/// Stops the database if the thread that commits panics, before the writer lock passes on: the next statement would
/// write to space that the manifest on disk may name.
pub(super) struct StopIfDying(pub(super) Arc<Engine>);

impl Drop for StopIfDying {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.stop(&"a commit panicked");
        }
    }
}
