//! From one catalog state to the next: one statement that writes, all or nothing.
//!
//! 1. [`CatalogEdit::begin`] takes the writer lock (one writer at a time) and the present state.
//! 2. The statement changes [`CatalogEdit::next`], takes space with [`CatalogEdit::claim`], and
//!    writes pages there, which nothing names yet.
//! 3. [`CatalogEdit::commit`] makes the pages durable, writes the directories of sealed segments,
//!    replaces the root (that is the commit), publishes the state and retires what it left. It is a checkpoint of all
//!    that was logged before.
//!
//! Small commits are made otherwise: what they change is in the log, and in the [delta](crate::delta) of the state,
//! until [`CatalogEdit::settle`] makes pages of all of it at once, which no root names yet. [`CatalogEdit::begin`] has
//! that done first.
//!
//! Dropped before that, an edit leaves the database as it was: its space is free again as
//! soon as the last write to it has ended. Step 3, from the first file on, cannot be cancelled: it
//! runs to its end on a thread of its own, whether or not anyone still waits.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use cleave_fragment::waiting;
use cleave_media::{Clock, Extent, SystemClock};
use cleave_store::{SegmentDirectory, SegmentId};
use cleave_txn::{Lsn, Wal};
use futures::future::{BoxFuture, try_join_all};
use tokio::sync::OwnedMutexGuard;

use super::Engine;
use super::patience::lies_elsewhere;
use crate::catalog::held::HeldTable;
use crate::catalog::root::{self, ReplaceError};
use crate::catalog::upkeep::Upkeep;
use crate::catalog::{CatalogState, DeviceId, HeldSpace, Keep, TableState, segment_extents};
use crate::commitment;
use crate::delta::{Delta, Live};
use crate::device::{Claim, DISK_FULL, Device};
use crate::error::{Error, Result};
use crate::index::PendingKeys;
use crate::log;
use crate::settings::Settings;
use crate::storage_error::StorageError;
use crate::write::insert;

/// Roots for which space is put aside beside the log: the new one, and the files of a segment or two.
const RESERVED_ROOTS: u64 = 2;

/// A change from one state of the catalog to the next, until it is committed.
pub(crate) struct CatalogEdit {
    database: Arc<Engine>,
    base: Arc<CatalogState>,
    /// What the database will hold. The statement changes it as it likes.
    pub(crate) next: CatalogState,
    /// Space taken, by device.
    claims: BTreeMap<DeviceId, Arc<Claim>>,
    /// Devices that the database has from this commit on.
    pub(crate) devices: Vec<Arc<Device>>,
    /// Keys that enter memtables with the commit.
    pub(crate) keys: Vec<PendingKeys>,
    /// What the log says of its changes, where it replaces the root.
    pub(crate) logged: Logged,
    /// It gives space back, so that it may use what was put aside for a full disk.
    pub(crate) makes_room: bool,
    /// All that it changes is in the log, so that copies of that may lack its root.
    is_checkpoint: bool,
    /// Space of tables that a block has defined, which its commit names in part.
    kept: Vec<(Arc<Claim>, Vec<Extent>)>,
    /// Rows of tables whose commits are held, behind the state.
    delta: Arc<Delta>,
    kind: Kind,
}

/// What a commit that replaces the root says to those who read the log.
#[derive(Debug, Default)]
pub(crate) enum Logged {
    /// Its changes are in no log.
    #[default]
    Nowhere,
    /// There are none.
    Unchanged,
    /// They are to follow it into the log: an encoded [`Committed`](crate::log::Committed).
    Copied(Vec<u8>),
}

impl Logged {
    /// Notes in `upkeep` a commit that is in no log.
    pub(crate) fn note_in(&self, upkeep: &mut Upkeep, commit: u64, wall_us: i64) {
        if !matches!(self, Self::Unchanged) {
            (upkeep.unlogged_commit, upkeep.unlogged_at_us) = (commit, wall_us);
        }
    }
}

/// A table whose commits a device did not take.
struct Failed {
    reason: Arc<StorageError>,
    /// It was tried again.
    is_final: bool,
}

/// Pages of what was committed, which nothing names yet: [`CatalogEdit::settle_beside`].
pub(crate) struct Beside {
    /// What they are of.
    live: Live,
    settled: CatalogEdit,
}

/// Lets go of what was written beside, if nobody has put it in place.
struct GivenUp<'a>(&'a Engine);

/// What becomes of an edit's state.
enum Kind {
    /// It is published; nobody else has the writer lock meanwhile.
    Published { lock: OwnedMutexGuard<()> },
    /// It is published once it has the writer lock, if nothing else was meanwhile.
    Unturned,
    /// It is read by one transaction, and made anew when that has changed more.
    Private,
    /// Its tables become those of one transaction, which publishes them later.
    Kept,
}

impl CatalogEdit {
    /// Waits until no other statement writes.
    ///
    /// # Errors
    /// [`StorageError::Stopped`].
    pub(crate) async fn begin(database: &Arc<Engine>) -> Result<Self> {
        let lock = database.writer_lock().await;
        database.check_running()?;
        let lock = match Box::pin(Self::settle(database, lock)).await? {
            Some(lock) => lock,
            None => database.writer_lock().await,
        };
        database.reclaim();
        let live = database.live();
        let delta = live.delta;
        Ok(Self { delta, ..Self::on(database, live.state, Kind::Published { lock }) })
    }

    /// Makes pages of what the delta has, and a state that names them. A table that lies elsewhere too and whose device
    /// does not take them is [held](crate::catalog::held), and keeps no other from it. The writer lock may be another's meanwhile.
    ///
    /// # Errors
    /// Those of the database's own device; everything is then as it was.
    pub(crate) async fn settle(
        database: &Arc<Engine>,
        lock: OwnedMutexGuard<()>,
    ) -> Result<Option<OwnedMutexGuard<()>>> {
        Box::pin(Self::settle_within(database, lock, database.writer_wait())).await
    }

    /// The same; a device of others' tables that needs longer than `patience` has them held.
    ///
    /// # Errors
    /// As there.
    pub(crate) async fn settle_within(
        database: &Arc<Engine>,
        mut lock: OwnedMutexGuard<()>,
        patience: Duration,
    ) -> Result<Option<OwnedMutexGuard<()>>> {
        // Who writes the same pages beside is waited for: twice they would take twice the room, and the same time. Not
        // with the writer lock: a device that takes long would hold up all who commit. Nobody who has the writer lock waits for the
        // place, so it may be kept meanwhile.
        let mut place = match database.beside.try_lock() {
            Ok(place) => Some(place),
            Err(_) => {
                drop(lock);
                let place = match database.has_rows_elsewhere() {
                    // Not for longer than for the device itself: what is written beside then finds another state, and
                    // is dropped.
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
            let is_tried =
                |id: &u32| !failed.contains_key(id) && database.reaches(&live.state, *id);
            if live.delta.is_settled() && !live.state.held.tables.keys().any(is_tried) {
                return Ok(Some(lock));
            }
            live.delta.give_room_back();
            database.reclaim();
            let edit = Self::on(database, Arc::clone(&live.state), Kind::Published { lock });
            match edit.settled(&live, &failed, patience).await {
                Ok(settled) => return Ok(settled.publish()),
                Err((None, error)) => return Err(error),
                Err((Some(table), error)) => {
                    let Error::Storage(reason) = error else { return Err(error) };
                    // A link that is lost shows at its next use, and is made anew by the one behind that.
                    let is_final = failed.contains_key(&table) || reason.is_unanswered();
                    failed.insert(table, Failed { reason, is_final });
                }
            }
            lock = database.writer_lock().await;
            database.check_running()?;
        }
    }

    /// As [`CatalogEdit::settle`], of all that is committed by now, beside those who commit meanwhile: pages are
    /// written and synced before the writer lock is taken, in which only the state and what is [behind it](Delta::behind) are
    /// put in place. Who has the writer lock and settles does that too. False: something is to be dealt with under the writer lock.
    pub(crate) async fn settle_beside(database: &Arc<Engine>) -> Result<bool> {
        database.check_running()?;
        let mut place = database.beside.lock().await;
        let live = database.live();
        if !database.is_whole(&live.state) {
            return Ok(false);
        }
        database.reclaim();
        let edit = Self::on(database, Arc::clone(&live.state), Kind::Unturned);
        let patience = database.patience();
        let Ok(settled) = edit.settled(&live, &BTreeMap::new(), patience).await else {
            return Ok(false);
        };
        *place = Some(Beside { live, settled });
        drop(place);
        let _given_up = GivenUp(database);
        loop {
            let lock = database.writer_lock().await;
            database.check_running()?;
            if let Ok(mut place) = database.beside.try_lock() {
                // None: who had the writer lock before has put it in place.
                return Ok(place.take().is_none_or(|beside| beside.put_in_place(database)));
            }
            // Who has it settles, and waits for the writer lock.
            drop(lock);
            drop(database.beside.lock().await);
        }
    }

    /// It with all that `live` has, but for tables that have `failed`; or the table that fails now and need not be in
    /// it.
    async fn settled(
        mut self,
        live: &Live,
        failed: &BTreeMap<u32, Failed>,
        patience: Duration,
    ) -> Result<Self, (Option<u32>, Error)> {
        self.next.log_end = live.log_end;
        // The last of them has this number in the log.
        self.next.commit = self.base.commit + live.number;
        let settings = Arc::new(Settings::default());
        let (mut kept, mut written) = (BTreeSet::new(), Vec::new());
        for delta in live.delta.contents(live.number).map_err(|error| (None, error))? {
            let id = delta.change.schema.table_id;
            let table = self.base.tables().find(|table| table.schema.table_id == id);
            // None: it was dropped while its commits were held.
            let Some(table) = table.map(Arc::clone) else { continue };
            let lies_elsewhere = lies_elsewhere(&table);
            let given_up = failed.get(&id).filter(|failed| failed.is_final);
            let reason = given_up.map(|failed| Arc::clone(&failed.reason)).or_else(|| {
                let known = self.base.held.reason(id).map(Arc::clone);
                known.filter(|_| !self.database.reaches(&self.base, id))
            });
            if let Some(reason) = reason {
                let from = live.delta.logged_from(id).unwrap_or(0);
                self.next.held.tables.insert(id, HeldTable { from, reason: Some(reason) });
                kept.insert(id);
                continue;
            }
            self.next.held.tables.remove(&id);
            written.push(Arc::clone(&table));
            let fails = |error| (lies_elsewhere.then_some(id), error);
            let database = Arc::clone(&self.database);
            database.check_answers(&table, patience).map_err(fails)?;
            let patience = if lies_elsewhere { patience } else { database.device_timeout() };
            let settling: BoxFuture<'_, _> = Box::pin(insert::settle(self, &settings, delta));
            let settled = waiting::timeout(patience, settling).await;
            self =
                settled.unwrap_or_else(|| Err(database.slow(&table, patience))).map_err(fails)?;
        }
        // What another device has not synced it may forget at any time, and is not asked for again.
        self.sync_elsewhere(&written, patience).await?;
        self.next.held.tables.retain(|id, _| kept.contains(id));
        self.delta = Arc::new(live.delta.held(&kept));
        Ok(self)
    }

    /// Changes on `base` that are not to be committed, and need no writer lock.
    ///
    /// # Errors
    /// [`StorageError::Stopped`].
    pub(crate) fn private(database: &Arc<Engine>, base: Arc<CatalogState>) -> Result<Self> {
        database.check_running()?;
        Ok(Self::on(database, base, Kind::Private))
    }

    /// Changes on `base` whose tables one transaction keeps until it commits, in space of `claims`, those that it has.
    ///
    /// # Errors
    /// [`StorageError::Stopped`].
    pub(crate) fn kept(
        database: &Arc<Engine>,
        base: Arc<CatalogState>,
        claims: BTreeMap<DeviceId, Arc<Claim>>,
    ) -> Result<Self> {
        database.check_running()?;
        let mut kept = Self { claims, ..Self::on(database, base, Kind::Kept) };
        // Its rows are there for whoever has the tables, and their commit is yet to get a number.
        kept.next.commit = kept.base.commit.max(1);
        // What temporary tables hide is found there.
        kept.next.keep = Some(Arc::new(Keep::new(Arc::clone(&kept.base), Vec::new())));
        Ok(kept)
    }

    fn on(database: &Arc<Engine>, base: Arc<CatalogState>, kind: Kind) -> Self {
        let mut next = CatalogState::clone(&base);
        next.generation += 1;
        next.commit += 1;
        next.keep = None;
        Self {
            database: Arc::clone(database),
            base,
            next,
            claims: BTreeMap::new(),
            devices: Vec::new(),
            keys: Vec::new(),
            logged: Logged::default(),
            makes_room: false,
            is_checkpoint: false,
            kept: Vec::new(),
            delta: Arc::default(),
            kind,
        }
    }

    /// Whether its state is never published, nor are its tables.
    pub(crate) fn is_private(&self) -> bool {
        matches!(self.kind, Kind::Private)
    }

    /// Whether its state is published at its end, so that keys may enter the memtables that others read.
    pub(crate) fn is_published(&self) -> bool {
        matches!(self.kind, Kind::Published { .. } | Kind::Unturned)
    }

    /// The state with its changes, for the transaction that made them: what was committed, and its own changes, on
    /// pages that nothing else names, and which are free again once it is gone.
    pub(crate) fn into_private(mut self) -> Arc<CatalogState> {
        let claims = self.claims.into_values();
        let space = claims.map(|claim| claim as Arc<dyn HeldSpace>).collect();
        self.next.keep = Some(Arc::new(Keep::new(self.base, space)));
        Arc::new(self.next)
    }

    /// The state with its changes, and the space that it has.
    pub(crate) fn into_kept(self) -> (CatalogState, BTreeMap<DeviceId, Arc<Claim>>) {
        (self.next, self.claims)
    }

    /// Makes pages that have a claim of their own part of the commit: those at `named` in `claim`. The rest stays in
    /// there.
    pub(crate) fn publish_kept(&mut self, claim: Arc<Claim>, mut named: Vec<Extent>) {
        // Out of order, pages that are named would stay with the claim, and be free with it.
        named.sort_unstable_by_key(|extent| extent.start);
        self.kept.push((claim, named));
    }

    /// The database.
    pub(crate) fn database(&self) -> &Arc<Engine> {
        &self.database
    }

    /// The number that rows of this statement get as their commit.
    pub(crate) fn commit_number(&self) -> u64 {
        self.next.commit
    }

    /// Space of this statement on `device`; all pages that it writes there go through it.
    pub(crate) fn claim(&mut self, device: &Arc<Device>) -> Arc<Claim> {
        let claim = self
            .claims
            .entry(device.id())
            .or_insert_with(|| Arc::new(Claim::new(Arc::clone(device))));
        Arc::clone(claim)
    }

    /// Makes space that a statement took before it had the writer lock this edit's. Before any other on that device.
    pub(crate) fn adopt(&mut self, device: DeviceId, claim: Arc<Claim>) {
        let before = self.claims.insert(device, claim);
        debug_assert!(before.is_none(), "one claim a device");
    }

    /// An id for a new table.
    ///
    /// # Errors
    /// [`StorageError::Exhausted`].
    pub(crate) fn table_id(&mut self) -> Result<u32> {
        let next = &mut self.next.next_table;
        match self.kind {
            Kind::Private => take_id(next, u32::MAX, "tables"),
            _ => self.database.ids.table(next, |next| take_id(next, u32::MAX, "tables")),
        }
    }

    /// An id for a new segment.
    ///
    /// # Errors
    /// [`StorageError::Exhausted`].
    pub(crate) fn segment_id(&mut self) -> Result<SegmentId> {
        let next = &mut self.next.next_segment;
        let take =
            |next: &mut u32| take_id(next, cleave_store::ids::PASSED_SEGMENT_FIRST, "segments");
        let taken = match self.kind {
            Kind::Private => take(next),
            _ => self.database.ids.segment(next, take),
        };
        taken.map(SegmentId)
    }

    /// An id for a new device.
    ///
    /// # Errors
    /// [`StorageError::Exhausted`].
    pub(crate) fn device_id(&mut self) -> Result<DeviceId> {
        take_id(&mut self.next.next_device, u32::MAX, "devices").map(DeviceId)
    }

    /// The table `name` as this statement has it.
    ///
    /// # Errors
    /// As [`CatalogState::find_table`].
    pub(crate) fn table(&self, name: &str) -> Result<Arc<TableState>> {
        self.next.find_table(name).map(Arc::clone)
    }

    /// Adds a table, or replaces the one of this name.
    pub(crate) fn put_table(&mut self, table: TableState) {
        self.next.tables.insert(table.schema.name.clone(), Arc::new(table));
    }

    /// Removes a table, be it damaged; false if there is none.
    /// The sequences of its columns go with it.
    pub(crate) fn drop_table(&mut self, name: &str) -> bool {
        let sound = self.next.tables.remove(name).map(|table| table.schema.table_id);
        let damaged = || self.next.damaged.remove(name).map(|table| table.schema.table_id);
        let Some(dropped) = sound.or_else(damaged) else { return false };
        self.next
            .sequences
            .retain(|_, sequence| sequence.owner.is_none_or(|owner| owner.table != dropped));
        true
    }

    /// Makes the state what new statements see, though no root has it: the log has what is in it. The writer lock goes on.
    pub(crate) fn publish(self) -> Option<OwnedMutexGuard<()>> {
        let log_end = self.next.log_end;
        self.publish_before(0, log_end)
    }

    /// The same, with `number` commits behind it in the delta, all of which the log has up to `log_end`.
    fn publish_before(mut self, number: u64, log_end: u64) -> Option<OwnedMutexGuard<()>> {
        self.claims.values().for_each(|claim| claim.commit());
        self.kept.iter().for_each(|(claim, named)| claim.commit_named(named));
        for keys in std::mem::take(&mut self.keys) {
            keys.publish();
        }
        let retired = retired(&self.base, &self.next);
        let state = Arc::new(self.next);
        let delta = self.delta;
        self.database.publish_live(Live { state: Arc::clone(&state), delta, number, log_end });
        for (device, extents) in retired {
            if let Some(device) = self.database.device(device) {
                device.retire(state.generation, extents);
            }
        }
        self.database.keep_version(&state);
        self.database.note_logged();
        match self.kind {
            Kind::Published { lock } => Some(lock),
            Kind::Unturned | Kind::Private | Kind::Kept => None,
        }
    }

    /// Commits an edit that changes neither rows nor tables: a checkpoint of what was logged.
    ///
    /// # Errors
    /// As [`CatalogEdit::commit`].
    pub(crate) async fn checkpoint(mut self) -> Result<Arc<CatalogState>> {
        self.is_checkpoint = true;
        self.commit_settings().await
    }

    /// Commits an edit that changes what the database is told to do, its devices among it, and neither rows nor
    /// tables.
    ///
    /// # Errors
    /// As [`CatalogEdit::commit`].
    pub(crate) async fn commit_settings(mut self) -> Result<Arc<CatalogState>> {
        self.logged = Logged::Unchanged;
        self.makes_room = true;
        self.commit().await
    }

    /// Commits. See the module's description.
    ///
    /// # Errors
    /// Whatever kept the statement from becoming durable; it then left nothing behind, except after
    /// [`StorageError::Stopped`], when only the next opening shows whether it is there.
    pub(crate) async fn commit(mut self) -> Result<Arc<CatalogState>> {
        let database = Arc::clone(&self.database);
        self.sync_claims().await?;
        if database.logged_count() > 0
            && let Some(embedded) = database.device(DeviceId::EMBEDDED)
            && let Err(error) = embedded.sync().await
        {
            // What a device has not synced it may have dropped, and a later sync says nothing of it: pages of commits
            // by the log among them, which the next opening makes again. One that has not answered may have synced it
            // yet.
            if !error.is_unanswered() {
                database.stop(&error);
            }
            return Err(error);
        }
        if let Some(log) = database.log() {
            // Only sequences append meanwhile, and what they have given is asked for after this. A root must not name a
            // place that the log does not reach after a crash.
            let position = log.resume_from().0;
            database.harden_log(position.max(log.end().0)).await?;
            let tables: BTreeSet<u32> = self.next.table_ids().collect();
            self.next.held.tables.retain(|id, _| tables.contains(id));
            self.next.held.until = position;
            self.next.log_position = self.next.held.first(position);
            if !self.is_checkpoint {
                // Who sees it waits for the copies of the log, which have it with what is before it there.
                self.next.log_end = self.next.log_end.max(position);
            }
            self.next.sequences = database.sequences().as_given(&self.next.sequences);
        }
        if matches!(self.logged, Logged::Nowhere) {
            self.logged = database.keeper.copy_changes(&database, &self.base, &self.next).await;
        }
        self.logged.note_in(&mut self.next.upkeep, self.next.commit, SystemClock.wall());
        let is_checkpoint = self.is_checkpoint;
        let keeper = Arc::clone(&database.keeper);
        keeper.prepare_root(&database, &mut self, is_checkpoint).await?;
        commitment::begin();
        let swapped = waiting::spawn_blocking(move || self.swap_root()).await;
        let state = swapped.unwrap_or_else(|_| {
            // The thread died or the runtime is going down; the root on disk decides what happened.
            database.stop(&"a commit was cut off");
            Err(database.stopped_error().into())
        })?;
        if is_checkpoint {
            keeper.follow(&database).await;
        } else {
            keeper.reach(&database, state.log_end).await?;
        }
        Ok(state)
    }

    /// Makes durable what was written of `tables` on other devices, each asked once; what is settled there is so
    /// already. A device that fails comes with one of the tables that lie there.
    async fn sync_elsewhere(
        &self,
        tables: &[Arc<TableState>],
        patience: Duration,
    ) -> Result<(), (Option<u32>, Error)> {
        let written = self
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

    /// Makes durable what this statement has written, side by side: it waits for the slowest device, not for one after
    /// the other.
    async fn sync_claims(&self) -> Result<()> {
        let claims = self.claims.values().chain(self.kept.iter().map(|(claim, _)| claim));
        let written = claims.filter(|claim| claim.block_count() > 0);
        let outcome = try_join_all(written.map(|claim| async move {
            let synced = claim.sync_written().await;
            synced.inspect_err(|error| {
                // As for pages of commits by the log, which the same sync was for.
                let is_own = claim.device_id() == DeviceId::EMBEDDED;
                if is_own && self.database.logged_count() > 0 && !error.is_unanswered() {
                    self.database.stop(error);
                }
            })
        }));
        outcome.await.map(drop)
    }

    fn swap_root(mut self) -> Result<Arc<CatalogState>> {
        let _stop = StopIfDying(Arc::clone(&self.database));
        let directory = self.database.directory().to_owned();
        let written = match self.write_segments() {
            Err(error) if self.takes_reserve(&error) => self.write_segments(),
            outcome => outcome,
        }?;
        if let Err(error) = self.replace_root(&directory) {
            return Err(match error {
                ReplaceError::Unchanged(error) => {
                    written.iter().for_each(|segment| root::remove_segment(&directory, *segment));
                    error
                }
                ReplaceError::Unknown(error) => {
                    // Either root may be the one on disk: nothing that either names may be reused.
                    self.claims.values().for_each(|claim| claim.commit());
                    self.kept.iter().for_each(|(claim, _)| claim.commit());
                    self.database.stop(&error);
                    self.database.stopped_error().into()
                }
            });
        }
        self.claims.values().for_each(|claim| claim.commit());
        self.kept.iter().for_each(|(claim, named)| claim.commit_named(named));
        for keys in std::mem::take(&mut self.keys) {
            keys.publish();
        }
        // Here, where nothing can be cancelled: a state never names a device that is not attached.
        for device in std::mem::take(&mut self.devices) {
            self.database.adopt(device);
        }
        let gone: Vec<SegmentId> = self
            .base
            .files
            .keys()
            .filter(|segment| !self.next.files.contains_key(segment))
            .copied()
            .collect();
        let retired = retired(&self.base, &self.next);
        let state = Arc::new(self.next);
        self.database.note_rewritten();
        self.database.versions.note_commit();
        self.database.note_durable(&state);
        self.database.keeper.root_replaced(&self.database, &state, self.is_checkpoint);
        self.database.publish(Arc::clone(&state), self.delta);
        self.database.keep_version(&state);
        if let Some(log) = self.database.log() {
            self.database.keeper.log_commit(log, &state, &self.logged);
            if log.has_failed() {
                self.database.stop(&"the log failed");
            }
            // What cannot be archived or removed now is after the next checkpoint.
            let needed = self.database.keeper.first_needed(&state, state.log_position);
            let truncated = log.truncate_before(Lsn(needed));
            self.database.keeper.log_truncated(truncated.as_ref().err());
            // Best effort: it is made again once there is room.
            let root_bytes = root::byte_count(&directory);
            log::reserve_for_opening(&directory, root_bytes);
            drop(log.restore_reserve(RESERVED_ROOTS * root_bytes));
        }
        self.database.disown(&state);
        for device in self.database.devices() {
            device.set_unknown_space(state.unknown_space_of(device.id()));
        }
        for (device, extents) in retired {
            if let Some(device) = self.database.device(device) {
                device.retire(state.generation, extents);
            }
        }
        gone.iter().for_each(|segment| root::remove_segment(&directory, *segment));
        self.database.statistics().retain(&state);
        Ok(state)
    }

    fn replace_root(&self, directory: &Path) -> Result<(), ReplaceError> {
        match root::replace(directory, &self.next) {
            Err(ReplaceError::Unchanged(error)) if self.takes_reserve(&error) => {
                root::replace(directory, &self.next)
            }
            outcome => outcome,
        }
    }

    /// Whether `error` is of a full disk, and this gives space back: then it has the space that was put aside.
    fn takes_reserve(&self, error: &Error) -> bool {
        let is_full = self.makes_room && error.sqlstate() == DISK_FULL;
        is_full && self.database.log().is_some_and(Wal::release_reserve)
    }

    /// Writes the directories of segments that this statement sealed; all of them, or none.
    fn write_segments(&mut self) -> Result<Vec<SegmentId>> {
        let mut written = Vec::new();
        let outcome = self.write_each_segment(&mut written);
        if let Err(error) = outcome {
            for segment in written {
                root::remove_segment(self.database.directory(), segment);
                // It may be tried again.
                self.next.files.remove(&segment);
            }
            return Err(error);
        }
        Ok(written)
    }

    fn write_each_segment(&mut self, written: &mut Vec<SegmentId>) -> Result<()> {
        let named: Vec<Arc<SegmentDirectory>> = segments(&self.next).map(Arc::clone).collect();
        let ids = named.iter().map(|segment| segment.segment);
        // Files of what is damaged stay until it is dropped: the sound ones are of use once the others are back.
        let ids: BTreeSet<SegmentId> = ids.chain(self.next.damaged_segments()).collect();
        self.next.files.retain(|segment, _| ids.contains(segment));
        let directory = self.database.directory();
        for segment in &named {
            if segment.sealed && !self.next.files.contains_key(&segment.segment) {
                written.push(segment.segment);
                let file = root::write_segment(directory, segment)?;
                self.next.files.insert(segment.segment, file);
            }
        }
        if written.is_empty() { Ok(()) } else { root::sync_segments(directory) }
    }
}

impl Beside {
    /// Makes its state what new statements see, with what was committed meanwhile behind it; false: there is another
    /// one already. Under the writer lock.
    fn put_in_place(self, database: &Engine) -> bool {
        let Self { live, mut settled } = self;
        let now = database.live();
        let is_same = Arc::ptr_eq(&now.state, &live.state) && Arc::ptr_eq(&now.delta, &live.delta);
        if !is_same || !settled.next.held.tables.is_empty() {
            return false;
        }
        let device_of = |id, place: usize| {
            let table = live.state.tables().find(|table| table.schema.table_id == id)?;
            table.tablets.get(place).map(|tablet| tablet.device)
        };
        settled.delta = Arc::new(live.delta.behind(live.number, device_of));
        drop(settled.publish_before(now.number.saturating_sub(live.number), now.log_end));
        true
    }
}

impl Drop for GivenUp<'_> {
    fn drop(&mut self) {
        // Whoever holds it takes what is there.
        if let Ok(mut place) = self.0.beside.try_lock() {
            drop(place.take());
        }
    }
}

/// Stops the database if the thread that commits panics, before the writer lock passes on: the next
/// statement would write to space that the root on disk may name.
struct StopIfDying(Arc<Engine>);

impl Drop for StopIfDying {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.stop(&"a commit panicked");
        }
    }
}

/// Every segment that `state` names.
pub(crate) fn segments(state: &CatalogState) -> impl Iterator<Item = &Arc<SegmentDirectory>> {
    state.tables.values().flat_map(|table| &table.tablets).flat_map(|tablet| tablet.segments())
}

/// Extents that `base` names and `next` does not, by device. Segments that both share are not looked
/// into, so that this costs what the statement changed.
pub(crate) fn retired(base: &CatalogState, next: &CatalogState) -> Vec<(DeviceId, Vec<Extent>)> {
    let kept: BTreeSet<*const SegmentDirectory> = segments(next).map(Arc::as_ptr).collect();
    let shared: BTreeSet<*const SegmentDirectory> =
        segments(base).map(Arc::as_ptr).filter(|segment| kept.contains(segment)).collect();
    base.devices
        .keys()
        .map(|device| {
            let changed = |state: &CatalogState| {
                let tablets = state.tables.values().flat_map(|table| &table.tablets);
                tablets
                    .filter(|tablet| tablet.device == *device)
                    .flat_map(|tablet| tablet.segments())
                    .filter(|segment| !shared.contains(&Arc::as_ptr(segment)))
                    .flat_map(|segment| segment_extents(segment))
                    .chain(state.damaged_extents(*device))
                    .chain(state.copies_extents(*device))
                    .collect::<BTreeSet<Extent>>()
            };
            (*device, changed(base).difference(&changed(next)).copied().collect())
        })
        .collect()
}

fn take_id(next: &mut u32, max: u32, what: &'static str) -> Result<u32> {
    let id = *next;
    if id >= max {
        return Err(StorageError::Exhausted { what }.into());
    }
    *next = id + 1;
    Ok(id)
}

#[cfg(test)]
mod tests;
