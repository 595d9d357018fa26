//! A change from one catalog version to the next: all or nothing.
//!
//! 1. [`CatalogEdit::begin`] takes the writer lock (one writer at a time) and the newest catalog version, after
//!    flushing the [delta](crate::delta) into its pages.
//! 2. The statement changes [`CatalogEdit::next`], takes space with [`CatalogEdit::claim`], and writes pages there,
//!    which nothing names yet.
//! 3. [`Engine::commit`] makes it the version that new statements see: with a new manifest, or without one where the
//!    log has all that it changes ([`Changes`](super::commit::Changes)).
//!
//! Two others are never committed themselves: a [private](CatalogEdit::private) one becomes what one transaction sees,
//! and a [kept](CatalogEdit::kept) one the tables that a transaction has defined, which its commit puts in place whole.
//!
//! Invariant: dropped before step 3, an edit leaves the database as it was: its space is free again as soon as its last
//! write is over. Source: `docs/design/versions-and-commit.md`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use cleave_catalog::catalog::upkeep::Upkeep;
use cleave_catalog::catalog::{
    CatalogState, DeviceId, HeldSpace, Keep, TableState, segment_extents,
};
use cleave_catalog::error::Result;
use cleave_catalog::index::PendingKeys;
use cleave_catalog::settings::Settings;
use cleave_catalog::storage_error::StorageError;
use cleave_media::Extent;
use cleave_store::{SegmentDirectory, SegmentId};
use tokio::sync::OwnedMutexGuard;

use super::Engine;
use super::commit::{Step, flush};
use crate::delta::Delta;
use crate::device::{Claim, Device};
use crate::write::insert;

/// A change from one catalog version to the next, until it is committed.
pub struct CatalogEdit {
    pub(super) database: Arc<Engine>,
    pub(super) base: Arc<CatalogState>,
    /// The next catalog version. The statement changes it freely.
    pub next: CatalogState,
    /// Space taken, by device.
    pub(super) claims: BTreeMap<DeviceId, Arc<Claim>>,
    /// Devices that the database has from this commit on.
    pub devices: Vec<Arc<Device>>,
    /// Mirrors and copies of theirs that have every page from this commit on.
    pub(crate) resynchronised: Vec<(DeviceId, DeviceId)>,
    /// Keys that enter memtables with the commit.
    pub keys: Vec<PendingKeys>,
    /// The log's note of its changes, where it replaces the manifest.
    pub logged: Logged,
    /// It gives space back, so that it may use what was put aside for a full disk.
    pub makes_room: bool,
    /// All that it changes is in the log, so that log replicas may lack its manifest.
    pub(super) is_checkpoint: bool,
    /// Space of tables that a block has defined, which its commit names in part.
    pub(super) kept: Vec<(Arc<Claim>, Vec<Extent>)>,
    /// Rows of tables whose commits are blocked, behind the catalog version.
    pub(super) delta: Arc<Delta>,
    /// Tables whose last pages it may replace by longer ones.
    extended: BTreeSet<u32>,
    pub(super) kind: Kind,
}

/// The log's note of a commit that replaces the manifest, for archive and replicas.
#[derive(Debug, Default)]
pub enum Logged {
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

/// The use of an edit's catalog version.
pub(super) enum Kind {
    /// It is published; nobody else has the writer lock meanwhile.
    Published { lock: OwnedMutexGuard<()> },
    /// It is published once it has the writer lock, if nothing else was meanwhile.
    Unlocked,
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
    pub async fn begin(database: &Arc<Engine>) -> Result<Self> {
        let lock = database.writer_lock().await;
        database.check_running()?;
        Step::Lock.enter()?;
        let lock = Box::pin(flush::flush(database, lock)).await?;
        database.reclaim();
        let live = database.live();
        let delta = live.delta;
        Ok(Self { delta, ..Self::on(database, live.state, Kind::Published { lock }) })
    }

    /// Changes on `base` that are not to be committed, and need no writer lock.
    ///
    /// # Errors
    /// [`StorageError::Stopped`].
    pub(super) fn private(database: &Arc<Engine>, base: Arc<CatalogState>) -> Result<Self> {
        database.check_running()?;
        Ok(Self::on(database, base, Kind::Private))
    }

    /// Changes on `base` whose tables one transaction keeps until it commits, in space of `claims`, those that it has.
    ///
    /// # Errors
    /// [`StorageError::Stopped`].
    pub fn kept(
        database: &Arc<Engine>,
        base: Arc<CatalogState>,
        claims: BTreeMap<DeviceId, Arc<Claim>>,
    ) -> Result<Self> {
        database.check_running()?;
        let mut kept = Self { claims, ..Self::on(database, base, Kind::Kept) };
        // Its rows are visible to the transaction with the tables, and their commit is yet to get a number.
        kept.next.commit = kept.base.commit.max(1);
        // Tables hidden by temporary ones are found there.
        kept.next.keep = Some(Arc::new(Keep::new(Arc::clone(&kept.base), Vec::new())));
        Ok(kept)
    }

    pub(super) fn on(database: &Arc<Engine>, base: Arc<CatalogState>, kind: Kind) -> Self {
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
            resynchronised: Vec::new(),
            keys: Vec::new(),
            logged: Logged::default(),
            makes_room: false,
            is_checkpoint: false,
            kept: Vec::new(),
            delta: Arc::default(),
            extended: BTreeSet::new(),
            kind,
        }
    }

    /// Whether neither its catalog version nor its tables are ever published.
    pub(crate) fn is_private(&self) -> bool {
        matches!(self.kind, Kind::Private)
    }

    /// Whether its catalog version is published at its end, so that keys may enter the memtables that others read.
    pub(crate) fn is_published(&self) -> bool {
        matches!(self.kind, Kind::Published { .. } | Kind::Unlocked)
    }

    /// Notes that the last pages of this table may be replaced by longer ones, as it is not pinned.
    pub(crate) fn note_extended(&mut self, table: u32) {
        self.extended.insert(table);
    }

    /// Whether a table whose last pages it may replace has been [pinned](crate::write::tail_pins) since.
    pub(super) fn extends_pinned(&self) -> bool {
        let pins = self.database.tail_pins();
        self.extended.iter().any(|table| pins.has(*table))
    }

    /// The catalog version with the changes, for the transaction that made them: its own changes lie on pages that
    /// nothing else names, and which are free again once it is dropped.
    pub(super) fn into_private(mut self) -> Arc<CatalogState> {
        let claims = self.claims.into_values();
        let space = claims.map(|claim| claim as Arc<dyn HeldSpace>).collect();
        self.next.keep = Some(Arc::new(Keep::new(self.base, space)));
        Arc::new(self.next)
    }

    /// The catalog version with its changes, and the space that it has.
    pub fn into_kept(self) -> (CatalogState, BTreeMap<DeviceId, Arc<Claim>>) {
        (self.next, self.claims)
    }

    /// Makes pages that have a claim of their own part of the commit: those at `named` in `claim`. The rest stays in
    /// there.
    pub fn publish_kept(&mut self, claim: Arc<Claim>, mut named: Vec<Extent>) {
        // Out of order, pages that are named would stay with the claim, and be free with it.
        named.sort_unstable_by_key(|extent| extent.start);
        self.kept.push((claim, named));
    }

    /// The database.
    pub fn database(&self) -> &Arc<Engine> {
        &self.database
    }

    /// The number that rows of this statement get as their commit.
    pub(crate) fn commit_number(&self) -> u64 {
        self.next.commit
    }

    /// Space of this statement on `device`; all pages that it writes there go through it.
    pub fn claim(&mut self, device: &Arc<Device>) -> Arc<Claim> {
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
    pub fn table_id(&mut self) -> Result<u32> {
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
            |next: &mut u32| take_id(next, cleave_store::ids::SHIPPED_SEGMENT_FIRST, "segments");
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
    pub fn table(&self, name: &str) -> Result<Arc<TableState>> {
        self.next.find_table(name).map(Arc::clone)
    }

    /// The edit with what waits in the delta for a table that was blocked, in its pages, but for its tablets at
    /// `places`, which have it. The table is not blocked any more.
    ///
    /// # Errors
    /// Those of the devices of its other tablets.
    pub(crate) async fn with_delta_but(
        mut self,
        table: u32,
        places: &BTreeSet<usize>,
    ) -> Result<Self> {
        self.next.blocked.tables.remove(&table);
        // All of it was committed before the catalog version.
        let waiting = self.delta.contents(0)?;
        let waiting = waiting.into_iter().find(|delta| delta.change.schema.table_id == table);
        if let Some(mut delta) = waiting {
            delta.leave_out(places);
            self = insert::flush(self, &Arc::new(Settings::default()), delta).await?;
        }
        let others: BTreeSet<u32> = self.next.blocked.tables.keys().copied().collect();
        self.delta = Arc::new(self.delta.blocked(&others));
        Ok(self)
    }

    /// Adds a table, or replaces the one of this name.
    pub fn put_table(&mut self, table: TableState) {
        self.next.tables.insert(table.schema.name.clone(), Arc::new(table));
    }

    /// Removes a table, be it damaged; false if there is none.
    /// The sequences of its columns go with it.
    pub fn drop_table(&mut self, name: &str) -> bool {
        let sound = self.next.tables.remove(name).map(|table| table.schema.table_id);
        let damaged = || self.next.damaged.remove(name).map(|table| table.schema.table_id);
        let Some(dropped) = sound.or_else(damaged) else { return false };
        self.next
            .sequences
            .retain(|_, sequence| sequence.owner.is_none_or(|owner| owner.table != dropped));
        true
    }
}

/// Every segment that `state` names.
pub fn segments(state: &CatalogState) -> impl Iterator<Item = &Arc<SegmentDirectory>> {
    state.tables.values().flat_map(|table| &table.tablets).flat_map(|tablet| tablet.segments())
}

/// Blocks that `base` names and `next` does not, by device: of a page that has a new version, those that it does not
/// share. Segments that both catalog versions have are not looked into, so that this costs what the statement changed.
pub fn retired(base: &CatalogState, next: &CatalogState) -> Vec<(DeviceId, Vec<Extent>)> {
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
                    .chain(state.replica_extents(*device))
                    .collect::<Vec<Extent>>()
            };
            (*device, difference(changed(base), changed(next)))
        })
        .collect()
}

/// The blocks of `one` that are not in `others`; the extents of either do not overlap.
fn difference(mut one: Vec<Extent>, mut others: Vec<Extent>) -> Vec<Extent> {
    one.sort_unstable();
    others.sort_unstable();
    let mut left = Vec::new();
    let mut others = others.into_iter().peekable();
    for extent in one {
        let mut from = extent.start;
        while from < extent.end() {
            while others.next_if(|other| other.end() <= from).is_some() {}
            let next = others.peek().filter(|other| other.start < extent.end());
            let to = next.map_or(extent.end(), |other| other.start.max(from));
            // Part of one extent, so that its length fits.
            let block_count = u32::try_from(to.0.saturating_sub(from.0)).unwrap_or(u32::MAX);
            if block_count > 0 {
                left.push(Extent { start: from, block_count });
            }
            from = next.map_or(to, |other| other.end());
        }
    }
    left
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
mod tests {
    //! The blocks that a commit frees.

    use cleave_media::BlockAddress;

    use super::*;

    fn extents(places: &[(u64, u32)]) -> Vec<Extent> {
        let extent =
            |&(start, block_count): &(u64, u32)| Extent { start: BlockAddress(start), block_count };
        places.iter().map(extent).collect()
    }

    #[test]
    fn blocks_that_a_page_version_shares_stay() {
        let before = extents(&[(10, 10), (40, 4), (30, 5)]);
        let after = extents(&[(12, 2), (30, 5), (17, 3), (100, 7)]);
        let freed = difference(before, after);
        assert_eq!(freed, extents(&[(10, 2), (14, 3), (40, 4)]));
        assert_eq!(difference(extents(&[(1, 2)]), Vec::new()), extents(&[(1, 2)]));
        assert_eq!(difference(extents(&[(3, 2)]), extents(&[(1, 9)])), Vec::new());
    }
}
