//! Flushing the delta: its rows become pages, and a catalog version that names them, which no manifest names yet. The
//! same rows are visible before and after.
//!
//! 1. [`flush`] does so under the writer lock: for a commit that finds the delta full, and for each edit as it begins.
//! 2. [`flush_beside`] does so for readers, beside commits: pages are written and synced without the lock, under which
//!    only the catalog version and what is [behind it](crate::delta::Delta::behind) are put in place.
//! 3. A table on another device, which does not take its rows, is [blocked](cleave_catalog::catalog::blocked): its rows
//!    stay in the delta and in the log, and keep no other table from being flushed. [`Engine::retry_blocked`] tries
//!    again.
//!
//! Invariant: whatever fails, the delta and the catalog version are as they were. Source:
//! `docs/design/delta-and-snapshots.md`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use cleave_catalog::activity::Act;
use cleave_catalog::catalog::blocked::BlockedTable;
use cleave_catalog::catalog::{CatalogState, DeviceId, TableState};
use cleave_catalog::error::{Error, Result};
use cleave_catalog::settings::Settings;
use cleave_catalog::storage_error::StorageError;
use cleave_fragment::waiting;
use cleave_media::{Clock, SystemClock};
use futures::future::{BoxFuture, join_all, try_join_all};
use tokio::sync::OwnedMutexGuard;

use super::publish;
use crate::delta::Live;
use crate::device::Device;
use crate::storage_engine::Engine;
use crate::storage_engine::catalog_edit::{CatalogEdit, Kind};
use crate::storage_engine::patience::lies_elsewhere;
use crate::write::insert;

/// The longest pause between tries of the devices of blocked tables.
const HELD_RETRY_MAX: Duration = Duration::from_secs(5);

/// Makes pages of what the delta has, and a catalog version that names them. A table with another device that does not
/// take them is [blocked](cleave_catalog::catalog::blocked), and keeps no other from being flushed. The writer lock may
/// pass to others meanwhile.
///
/// # Errors
/// Those of the database's own device; everything is then as it was.
pub(in crate::storage_engine) async fn flush(
    database: &Arc<Engine>,
    lock: OwnedMutexGuard<()>,
) -> Result<OwnedMutexGuard<()>> {
    Box::pin(flush_within(database, lock, database.writer_wait())).await
}

/// The same; a device of others' tables that needs longer than `patience` has them blocked.
///
/// # Errors
/// As above.
pub(in crate::storage_engine) async fn flush_within(
    database: &Arc<Engine>,
    mut lock: OwnedMutexGuard<()>,
    patience: Duration,
) -> Result<OwnedMutexGuard<()>> {
    // Waits for a flush beside that writes the same pages: written twice they would take twice the room, and the same
    // time. Not with the writer lock: a slow device would hold up all commits. No holder of the writer lock waits for
    // the place, so it may be kept meanwhile.
    let mut place = match database.beside.try_lock() {
        Ok(place) => Some(place),
        Err(_) => {
            drop(lock);
            let place = match database.has_rows_elsewhere() {
                // Not for longer than for the device itself: the flush beside then finds another version, and is
                // dropped.
                true => waiting::timeout(patience, database.beside.lock()).await,
                false => Some(database.beside.lock().await),
            };
            lock = database.writer_lock().await;
            database.check_running()?;
            place
        }
    };
    if let Some(beside) = place.as_mut().and_then(|place| place.take()) {
        // Where it is not, all of it is written again.
        beside.put_in_place(database);
    }
    drop(place);
    let mut failed: BTreeMap<u32, Failed> = BTreeMap::new();
    loop {
        let live = database.live();
        let is_tried = |id: &u32| !failed.contains_key(id) && database.reaches(&live.state, *id);
        if live.delta.is_flushed() && !live.state.blocked.tables.keys().any(is_tried) {
            return Ok(lock);
        }
        live.delta.give_room_back();
        database.reclaim();
        let edit = CatalogEdit::on(database, Arc::clone(&live.state), Kind::Published { lock });
        match flushed(edit, &live, &failed, patience).await {
            Ok(edit) => {
                let log_end = edit.next.log_end;
                match publish::edit(edit, 0, log_end) {
                    (_, Some(lock)) => return Ok(lock),
                    (_, None) => return Ok(database.writer_lock().await),
                }
            }
            Err((None, error)) => return Err(error),
            Err((Some(table), error)) => {
                let Error::Storage(reason) = error else { return Err(error) };
                // A lost link shows at its next use, and is reconnected by the one after that.
                let is_final = failed.contains_key(&table) || reason.is_unanswered();
                failed.insert(table, Failed { reason, is_final });
            }
        }
        lock = database.writer_lock().await;
        database.check_running()?;
    }
}

/// As [`flush`], of all that is committed by now, beside later commits: pages are written and synced before the writer
/// lock is taken, under which only the catalog version and what is [behind it](crate::delta::Delta::behind) are put in
/// place. A flush under the lock does that too. False: something is to be dealt with under the lock.
pub(in crate::storage_engine) async fn flush_beside(database: &Arc<Engine>) -> Result<bool> {
    database.check_running()?;
    let mut place = database.beside.lock().await;
    let live = database.live();
    if !database.is_whole(&live.state) {
        return Ok(false);
    }
    database.reclaim();
    let edit = CatalogEdit::on(database, Arc::clone(&live.state), Kind::Unlocked);
    let patience = database.patience();
    let Ok(edit) = flushed(edit, &live, &BTreeMap::new(), patience).await else {
        return Ok(false);
    };
    *place = Some(Beside { live, edit });
    drop(place);
    let _given_up = GivenUp(database);
    loop {
        let lock = database.writer_lock().await;
        database.check_running()?;
        if let Ok(mut place) = database.beside.try_lock() {
            // None: the previous holder of the writer lock has put it in place.
            return Ok(place.take().is_none_or(|beside| beside.put_in_place(database)));
        }
        // Its holder flushes, and waits for the writer lock.
        drop(lock);
        drop(database.beside.lock().await);
    }
}

/// The edit with all of `live`, but for tables that have `failed`; or the table that fails now and may be left out.
async fn flushed(
    mut edit: CatalogEdit,
    live: &Live,
    failed: &BTreeMap<u32, Failed>,
    patience: Duration,
) -> Result<CatalogEdit, (Option<u32>, Error)> {
    edit.next.log_end = live.log_end;
    // The last of them has this number in the log.
    edit.next.commit = edit.base.commit + live.number;
    let settings = Arc::new(Settings::default());
    let (mut kept, mut written) = (BTreeSet::new(), Vec::new());
    for delta in live.delta.contents(live.number).map_err(|error| (None, error))? {
        let id = delta.change.schema.table_id;
        let table = edit.base.tables().find(|table| table.schema.table_id == id);
        // None: it was dropped while its commits were blocked.
        let Some(table) = table.map(Arc::clone) else { continue };
        let lies_elsewhere = lies_elsewhere(&table);
        let given_up = failed.get(&id).filter(|failed| failed.is_final);
        let reason = given_up.map(|failed| Arc::clone(&failed.reason)).or_else(|| {
            let known = edit.base.blocked.reason(id).map(Arc::clone);
            known.filter(|_| !edit.database.reaches(&edit.base, id))
        });
        if let Some(reason) = reason {
            let from = live.delta.logged_from(id).unwrap_or(0);
            edit.next.blocked.tables.insert(id, BlockedTable { from, reason: Some(reason) });
            kept.insert(id);
            continue;
        }
        edit.next.blocked.tables.remove(&id);
        written.push(Arc::clone(&table));
        let fails = |error| (lies_elsewhere.then_some(id), error);
        let database = Arc::clone(&edit.database);
        database.check_answers(&table, patience).map_err(fails)?;
        let patience = if lies_elsewhere { patience } else { database.device_timeout() };
        let flushing: BoxFuture<'_, _> = Box::pin(insert::flush(edit, &settings, delta));
        let flushed = waiting::timeout(patience, flushing).await;
        edit = flushed.unwrap_or_else(|| Err(database.slow(&table, patience))).map_err(fails)?;
    }
    // Another device may lose unsynced writes at any time, and is not asked for them again.
    sync_elsewhere(&edit, &written, patience).await?;
    edit.next.blocked.tables.retain(|id, _| kept.contains(id));
    edit.delta = Arc::new(live.delta.blocked(&kept));
    Ok(edit)
}

/// Makes durable what was written of `tables` on other devices, each asked once; what is flushed there is so
/// already. A device that fails comes with one of the tables that lie there.
async fn sync_elsewhere(
    edit: &CatalogEdit,
    tables: &[Arc<TableState>],
    patience: Duration,
) -> Result<(), (Option<u32>, Error)> {
    let written = edit
        .claims
        .values()
        .filter(|claim| claim.block_count() > 0 && claim.device_id() != DeviceId::EMBEDDED);
    let synced = written.map(|claim| async move {
        let lies_there = |table: &&Arc<TableState>| {
            table.tablets.iter().any(|tablet| tablet.device == claim.device_id())
        };
        let table = tables.iter().find(lies_there).map(|table| table.schema.table_id);
        claim.sync_written_within(patience).await.map_err(|error| (table, error))
    });
    try_join_all(synced).await.map(drop)
}

impl Engine {
    /// Flushes what is committed, one at a time: beside commits where that is possible, else under the writer lock.
    pub(in crate::storage_engine) async fn flush_now(self: &Arc<Self>) -> Result<()> {
        // Its holder may wait for a slow device whose tables this statement does not read.
        let one = waiting::timeout(self.patience(), self.flushing.lock()).await;
        if self.live().delta.is_flushed() {
            return Ok(());
        }
        if one.is_none() || !flush_beside(self).await? {
            let lock = self.writer_lock().await;
            drop(Box::pin(flush(self, lock)).await?);
        }
        self.activity().note(Act::Flush);
        Ok(())
    }

    /// Whether no table is blocked, and all devices on which tables lie are connected and answer.
    pub fn is_whole(&self, state: &CatalogState) -> bool {
        let is_offline = |id: &&DeviceId| !self.device(**id).is_some_and(|d| answers(&d));
        let offline: BTreeSet<&DeviceId> = state.devices.keys().filter(is_offline).collect();
        let lies_there = |table: &Arc<TableState>| {
            table.tablets.iter().any(|tablet| offline.contains(&tablet.device))
        };
        state.blocked.tables.is_empty() && (offline.is_empty() || !state.tables().any(lies_there))
    }

    /// Whether all devices of a table are connected and answer.
    pub fn reaches(&self, state: &CatalogState, table_id: u32) -> bool {
        let table = state.tables().find(|table| table.schema.table_id == table_id);
        let mut devices = table.into_iter().flat_map(|table| table.devices());
        devices.all(|device| self.device(device).is_some_and(|device| answers(&device)))
    }

    /// Tries again to flush tables that are [blocked](cleave_catalog::catalog::blocked), where their devices answer;
    /// not while another writes. A statement that concerns one, by its id in `tables`, tries at once. Others try after
    /// twice the time that a try took, so that an offline device costs them little.
    pub async fn retry_blocked(self: &Arc<Self>, tables: &BTreeSet<u32>) {
        let mut devices: BTreeSet<DeviceId> = BTreeSet::new();
        let mut is_concerned = false;
        {
            let live = self.live.read().unwrap_or_else(PoisonError::into_inner);
            let blocked = &live.state.blocked;
            if blocked.tables.is_empty() {
                return;
            }
            let is_blocked =
                |table: &&Arc<TableState>| blocked.reason(table.schema.table_id).is_some();
            for table in live.state.tables().filter(is_blocked) {
                devices.extend(table.devices());
                is_concerned |= tables.contains(&table.schema.table_id);
            }
        }
        let begun = SystemClock.now();
        {
            let mut at = self.blocked_retry_at.lock().unwrap_or_else(PoisonError::into_inner);
            if begun < *at && !is_concerned {
                return;
            }
            // Meanwhile nobody else does.
            *at = begun + HELD_RETRY_MAX;
        }
        let devices: Vec<_> = devices.into_iter().filter_map(|id| self.device(id)).collect();
        // A statement that does not concern them waits for no device that is known to be slow.
        let patience = if is_concerned { self.device_timeout() } else { self.writer_wait() };
        let asked = devices.iter().map(|device| async move {
            let for_answer = if is_concerned { device.wait_left() } else { Duration::ZERO };
            device.has_answered(for_answer).await && device.link().await.is_ok()
        });
        let asked = waiting::timeout(patience, Box::pin(join_all(asked))).await;
        if asked.is_some_and(|asked| asked.contains(&true))
            && let Ok(lock) = self.try_writer_lock()
        {
            // A table whose flush fails stays blocked, with the reason.
            drop(Box::pin(flush_within(self, lock, patience)).await);
        }
        let dead = SystemClock.now();
        let pause = dead.saturating_sub(begun).saturating_mul(2).min(HELD_RETRY_MAX);
        *self.blocked_retry_at.lock().unwrap_or_else(PoisonError::into_inner) = dead + pause;
    }
}

/// Whether `device` is connected, and owes no answer.
fn answers(device: &Device) -> bool {
    device.is_connected() && !device.owes_answer()
}

/// A table whose commits a device did not take.
struct Failed {
    reason: Arc<StorageError>,
    /// It was tried again.
    is_final: bool,
}

/// Pages of what was committed, which nothing names yet: [`flush_beside`].
pub(in crate::storage_engine) struct Beside {
    /// The snapshot that they are of.
    live: Live,
    edit: CatalogEdit,
}

/// Drops what was written beside, if it was not put in place.
struct GivenUp<'a>(&'a Engine);

impl Beside {
    /// Publishes its catalog version, with what was committed meanwhile behind it; false: there is a newer one already,
    /// or a table was [pinned](crate::write::tail_pins) whose last page it replaces. Under the writer lock.
    fn put_in_place(self, database: &Engine) -> bool {
        let Self { live, mut edit } = self;
        let now = database.live();
        let is_same = Arc::ptr_eq(&now.state, &live.state) && Arc::ptr_eq(&now.delta, &live.delta);
        if !is_same || !edit.next.blocked.tables.is_empty() || edit.extends_pinned() {
            return false;
        }
        let device_of = |id, place: usize| {
            let table = live.state.tables().find(|table| table.schema.table_id == id)?;
            table.tablets.get(place).map(|tablet| tablet.device)
        };
        edit.delta = Arc::new(live.delta.behind(live.number, device_of));
        let behind = now.number.saturating_sub(live.number);
        drop(publish::edit(edit, behind, now.log_end));
        true
    }
}

impl Drop for GivenUp<'_> {
    fn drop(&mut self) {
        // Its holder takes what is there.
        if let Ok(mut place) = self.0.beside.try_lock() {
            drop(place.take());
        }
    }
}
