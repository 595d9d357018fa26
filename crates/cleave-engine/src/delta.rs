//! The delta: rows of small commits that are in no page yet. Changes in, in the order of their commits; out, single
//! rows as of any commit, and all of it at once, to be written as pages.
//!
//! ```text
//!  small commit ─▶ log ─▶ delta ──┬─▶ look-ups by key, small changes: catalog + delta as of a commit ([`Live`])
//!                                 └─▶ flushed: one commit of pages for all ─▶ catalog ─▶ plans, fragments, checkpoints
//! ```
//!
//! 1. [`Delta::prepare`] gives the rows of a change the VIDs that they will have in pages, and makes the keys of their
//!    index entries; [`Delta::put`] enters both, under the writer lock.
//! 2. [`Delta::with_prefix`], [`Delta::walk`] and [`Delta::lives`] answer as of the commit that a reader has seen: a
//!    row is visible from the commit that inserted it up to the one that deleted it.
//! 3. [`Delta::contents`] is the input of [flushing](crate::write::insert::flush), which turns it into pages, dead rows
//!    in version maps and keys in memtables, as one catalog version. Larger writes, definitions and commits that
//!    replace the manifest flush it first
//!    ([`SnapshotKind::Flushed`](crate::storage_engine::snapshot::SnapshotKind::Flushed)).
//! 4. Flushing for a reader runs beside commits: [`Delta::behind`] is what they have put here meanwhile.
//! 5. A small delta is [shipped] to plans, as pages in memory beside those of the catalog version; nothing is written.
//!    A block that keeps its snapshot holds the delta as of its first statement, also after others have flushed it.
//!
//! Invariants: all that is here is in the log, so nothing is lost with it; it changes only under the writer lock, and
//! only grows; a catalog version and its delta are replaced together. Source: rules 14 and 25,
//! `docs/design/delta-and-snapshots.md`.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, Weak};

use arrow::array::{BinaryArray, RecordBatch};
use cleave_catalog::catalog::{CatalogState, DeviceId, TableState, TabletState};
use cleave_catalog::error::Result;
use cleave_media::BLOCK_SIZE;
use cleave_store::{PageClass, SegmentDirectory, TableSchema, Walk};

use crate::device::Claim;
use crate::storage_engine::Engine;
use crate::write::begun::Begun;
use crate::write::insert::TableChange;
use crate::write::load::made_anew;
use crate::write::vid_set::VidSet;

/// Rows inserted or deleted up to which a delta grows before the next commit flushes it.
const CHANGE_COUNT_MAX: usize = 8192;
/// Bytes of rows up to which a delta grows before the next commit flushes it.
const BYTES_MAX: usize = 4 << 20;
/// Bytes for which the device is asked for room at once.
const ROOM_BYTES: usize = 64 << 10;
/// Bytes of a page that a row takes beside its values: its VID, its commit, and what rounding leaves.
const VERSION_BYTES: usize = 24;
/// Bytes that a tablet takes beside its rows: its last page is rewritten at another place.
const TAIL_BYTES: usize = PageClass::HOT.page_bytes as usize;

/// What is committed: a catalog version, and the commits behind it.
#[derive(Debug, Clone)]
pub struct Live {
    /// The catalog version.
    pub state: Arc<CatalogState>,
    /// The commits behind it.
    pub delta: Arc<Delta>,
    /// How many commits of the delta are seen.
    pub number: u64,
    /// The end of the log of all that is seen.
    pub log_end: u64,
}

/// Which moment a [`Live`] is, without keeping it.
#[derive(Debug)]
pub(crate) struct Moment {
    state: Weak<CatalogState>,
    delta: Weak<Delta>,
    number: u64,
}

impl Moment {
    /// The moment of `live`.
    pub(crate) fn of(live: &Live) -> Self {
        let (state, delta) = (Arc::downgrade(&live.state), Arc::downgrade(&live.delta));
        Self { state, delta, number: live.number }
    }

    /// Whether `live` is of this moment.
    pub(crate) fn is_of(&self, live: &Live) -> bool {
        self.state.as_ptr() == Arc::as_ptr(&live.state)
            && self.delta.as_ptr() == Arc::as_ptr(&live.delta)
            && self.number == live.number
    }
}

/// See the module's description.
#[derive(Debug, Default)]
pub struct Delta {
    contents: RwLock<Contents>,
}

#[derive(Debug, Default)]
struct Contents {
    /// By table and place of the tablet.
    tablets: BTreeMap<(u32, usize), DeltaTablet>,
    change_count: usize,
    byte_count: usize,
    /// The end of the log of each commit, the first one first.
    log_ends: Vec<u64>,
    /// By device: bytes of the pages to come, and the room for them.
    room: BTreeMap<DeviceId, Room>,
}

/// Space for rows on a device.
#[derive(Debug, Default)]
struct Room {
    byte_count: usize,
    /// Bytes for which there is room, and that room.
    held_bytes: usize,
    claims: Vec<Claim>,
}

#[derive(Debug, Clone)]
struct DeltaTablet {
    schema: Arc<TableSchema>,
    /// The place in the log of the first commit that changed it.
    logged_from: u64,
    /// The VID of the first row.
    vid_first: u64,
    rows: Vec<DeltaRow>,
    /// The commit that deleted each row that is in pages.
    dead: BTreeMap<u64, u64>,
    /// Rows by the keys of their entries, by index.
    keys: BTreeMap<u32, BTreeMap<Vec<u8>, Vec<usize>>>,
}

#[derive(Debug, Clone)]
struct DeltaRow {
    row: FoundRow,
    begun: u64,
    /// The commit that deleted it; `u64::MAX`: it has not.
    dead: u64,
}

/// A row within the rows of a commit.
#[derive(Debug, Clone)]
pub struct FoundRow {
    /// The rows.
    pub rows: Arc<RecordBatch>,
    /// Its place among them.
    pub place: usize,
}

/// A change of one tablet that is ready to enter a delta.
#[derive(Debug)]
pub struct Prepared {
    table: u32,
    place: usize,
    device: DeviceId,
    schema: Arc<TableSchema>,
    next_vid: u64,
    vid_first: u64,
    dead: VidSet,
    rows: Option<Arc<RecordBatch>>,
    keys: Vec<(u32, BinaryArray)>,
}

/// All that a delta has of one table.
#[derive(Debug)]
pub struct TableDelta {
    /// VIDs of deleted rows in pages, and inserted rows, some of which are dead.
    pub change: TableChange,
    /// VIDs of those among them.
    pub(crate) dead_in_delta: BTreeMap<usize, VidSet>,
}

impl TableDelta {
    /// Without the tablets at `places`.
    pub(crate) fn leave_out(&mut self, places: &BTreeSet<usize>) {
        self.change.rows.retain(|place, _| !places.contains(place));
        self.change.dead.retain(|place, _| !places.contains(place));
        self.dead_in_delta.retain(|place, _| !places.contains(place));
    }
}

impl Prepared {
    /// Leaves out the deleted rows that are in pages, where the catalog version that it comes with has them dead.
    pub(crate) fn leave_out_pages(&mut self) {
        self.dead = self.dead.split_off(self.next_vid);
    }

    /// The table.
    pub(crate) fn table(&self) -> u32 {
        self.table
    }
}

impl Live {
    /// A catalog version that all is in.
    pub fn flushed(state: Arc<CatalogState>) -> Self {
        let log_end = state.log_end;
        Self { state, delta: Arc::default(), number: 0, log_end }
    }

    /// The VIDs that were given, and the live rows, of the tablet at `place` of a table; None: there is none.
    pub fn row_counts(&self, table: u32, place: usize) -> Option<(u64, u64)> {
        let tablet = self.state.table_by_id(table)?.tablets.get(place)?;
        Some(self.delta.row_counts((table, place), tablet, self.number))
    }

    /// Whether both have the same table `id`, with the same rows, be they in the delta or in pages. A VID is never
    /// given twice, and a row keeps its values on the page that it is on until a page version rewrites it. So tablets
    /// that have given as many VIDs, have as many live rows, as many rewrites, and have these on the same pages, have
    /// the same rows. False also where a vacuum has written them anew.
    pub fn has_same_table(&self, other: &Self, id: u32) -> bool {
        let (Some(own), Some(others)) = (self.state.table_by_id(id), other.state.table_by_id(id))
        else {
            return false;
        };
        let is_same_tablet = |place: usize| {
            let (one, two) = (own.tablets.get(place), others.tablets.get(place));
            one.zip(two).is_some_and(|(one, two)| {
                let begun = self.delta.row_counts((id, place), one, self.number);
                (one.id, one.device, one.rewrites.mark())
                    == (two.id, two.device, two.rewrites.mark())
                    && begun == other.delta.row_counts((id, place), two, other.number)
                    && has_same_pages(one, two)
            })
        };
        own.schema.version == others.schema.version
            && Arc::ptr_eq(&own.rules, &others.rules)
            && own.indexes == others.indexes
            && own.damaged.is_empty()
            && others.damaged.is_empty()
            && own.tablets.len() == others.tablets.len()
            && (0..own.tablets.len()).all(is_same_tablet)
    }
}

impl FoundRow {
    /// It alone.
    pub fn batch(&self) -> RecordBatch {
        self.batch_of(1)
    }

    /// It and those behind it that lie in the same batch, so many in all.
    fn batch_of(&self, count: usize) -> RecordBatch {
        self.rows.slice(self.place, count)
    }
}

impl DeltaTablet {
    /// Appends the rows that commit `number` inserts.
    fn append(&mut self, rows: &Arc<RecordBatch>, keys: &[(u32, BinaryArray)], number: u64) {
        let first = self.rows.len();
        for (index, entries) in keys {
            let keys = self.keys.entry(*index).or_default();
            for (place, key) in entries.iter().enumerate() {
                if let Some(key) = key {
                    keys.entry(key.to_vec()).or_default().push(first + place);
                }
            }
        }
        self.rows.extend((0..rows.num_rows()).map(|place| {
            let row = FoundRow { rows: Arc::clone(rows), place };
            DeltaRow { row, begun: number, dead: u64::MAX }
        }));
    }
}

impl DeltaRow {
    fn is_seen(&self, number: u64) -> bool {
        self.begun <= number && number < self.dead
    }
}

impl Contents {
    /// The end of the log of commit `number`; 0: there is no such commit.
    fn log_end(&self, number: u64) -> u64 {
        let place = number.checked_sub(1).and_then(|place| usize::try_from(place).ok());
        place.and_then(|place| self.log_ends.get(place)).copied().unwrap_or(0)
    }

    /// Whether rows of a tablet are inserted here.
    fn begins_rows(&self, at: (u32, usize)) -> bool {
        self.tablets.get(&at).is_some_and(|tablet| !tablet.rows.is_empty())
    }
}

impl Delta {
    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.read().tablets.is_empty()
    }

    /// Whether no commit was put into it, not even an empty one: all that is here was [blocked](Delta::blocked) before.
    pub fn is_flushed(&self) -> bool {
        self.read().log_ends.is_empty()
    }

    /// The row `vid`, visible or not.
    pub fn row(&self, table: u32, place: usize, vid: u64) -> Option<FoundRow> {
        let contents = self.read();
        let tablet = contents.tablets.get(&(table, place))?;
        let place = usize::try_from(vid.checked_sub(tablet.vid_first)?).ok()?;
        tablet.rows.get(place).map(|row| row.row.clone())
    }

    /// Whether it is to be flushed before more is put into it.
    pub fn is_full(&self) -> bool {
        let contents = self.read();
        contents.change_count >= CHANGE_COUNT_MAX || contents.byte_count >= BYTES_MAX
    }

    /// Bytes that its rows take in memory.
    pub fn byte_count(&self) -> u64 {
        let contents = self.read();
        let byte_count = contents.byte_count + contents.change_count * VERSION_BYTES;
        u64::try_from(byte_count).unwrap_or(u64::MAX)
    }

    /// The VID that the next row of the tablet gets.
    pub fn next_vid(&self, table: &TableState, place: usize) -> u64 {
        let next = table.tablets.get(place).map_or(0, |tablet| tablet.next_vid);
        let contents = self.read();
        let tablet = contents.tablets.get(&(table.schema.table_id, place));
        tablet.map_or(next, |tablet| tablet.vid_first + tablet.rows.len() as u64)
    }

    /// Whether a commit that is here, or a later one, has changed the table.
    pub fn has_table(&self, table: u32) -> bool {
        self.logged_from(table).is_some()
    }

    /// The VIDs that were given, and the live rows, of a tablet as of commit `number`, which is `tablet` in pages.
    fn row_counts(&self, at: (u32, usize), tablet: &TabletState, number: u64) -> (u64, u64) {
        let (vids, live) = (tablet.next_vid, tablet.row_count());
        let contents = self.read();
        let Some(changed) = contents.tablets.get(&at) else { return (vids, live) };
        let begun = changed.rows.partition_point(|row| row.begun <= number);
        let seen = changed.rows.iter().take(begun).filter(|row| row.is_seen(number)).count();
        let dead = changed.dead.values().filter(|dead| **dead <= number).count();
        (vids + begun as u64, (live + seen as u64).saturating_sub(dead as u64))
    }

    /// Whether the row `vid` is visible as of commit `number`.
    pub fn lives(
        &self,
        table: u32,
        place: usize,
        tablet: &TabletState,
        vid: u64,
        number: u64,
    ) -> bool {
        lives(self.read().tablets.get(&(table, place)), tablet, vid, number)
    }

    /// Whether all rows `vids` are visible as of commit `number`.
    pub fn all_live(
        &self,
        (table, place): (u32, usize),
        tablet: &TabletState,
        vids: &VidSet,
        number: u64,
    ) -> bool {
        let contents = self.read();
        let changed = contents.tablets.get(&(table, place));
        vids.iter().all(|vid| lives(changed, tablet, vid, number))
    }

    /// The end of the log of the commit that deleted the row `vid`, which is in pages, if that was by commit `number`.
    pub fn dead(&self, table: u32, place: usize, vid: u64, number: u64) -> Option<u64> {
        let contents = self.read();
        let changed = contents.tablets.get(&(table, place))?;
        let dead = changed.dead.get(&vid).filter(|dead| **dead <= number)?;
        Some(contents.log_end(*dead))
    }

    /// VIDs of rows in pages of the tablet that commits up to `number` have deleted.
    pub(crate) fn dead_rows(&self, table: u32, place: usize, number: u64) -> Vec<u64> {
        let contents = self.read();
        let Some(changed) = contents.tablets.get(&(table, place)) else { return Vec::new() };
        let dead = changed.dead.iter().filter(|(_, by)| **by <= number);
        dead.map(|(vid, _)| *vid).collect()
    }

    /// Rows of the tablet as of commit `number` whose entries in an index begin with `prefix`, with their VIDs; and the
    /// end of the log of the last commit up to then that inserted or deleted such a row.
    pub fn with_prefix(
        &self,
        (table, place): (u32, usize),
        index: u32,
        prefix: &[u8],
        number: u64,
    ) -> (Vec<(u64, FoundRow)>, u64) {
        let contents = self.read();
        let (mut found, mut last) = (Vec::new(), 0);
        let Some(changed) = contents.tablets.get(&(table, place)) else { return (found, 0) };
        let Some(keys) = changed.keys.get(&index) else { return (found, 0) };
        let from = (Bound::Included(prefix), Bound::Unbounded);
        for (_, places) in
            keys.range::<[u8], _>(from).take_while(|(key, _)| key.starts_with(prefix))
        {
            for place in places {
                let Some(row) = changed.rows.get(*place) else { continue };
                let commits = [row.begun, row.dead].into_iter();
                last = commits.filter(|commit| *commit <= number).fold(last, u64::max);
                if row.is_seen(number) {
                    found.push((changed.vid_first + *place as u64, row.row.clone()));
                }
            }
        }
        (found, contents.log_end(last))
    }

    /// Rows of the tablet as of commit `number` whose entries in an index lie in the range of `walk`, with their VIDs:
    /// in its order, up to its limit, and those of the last key.
    pub fn walk(
        &self,
        (table, place): (u32, usize),
        index: u32,
        walk: &Walk<'_>,
        number: u64,
    ) -> Vec<(Vec<u8>, (u64, FoundRow))> {
        let contents = self.read();
        let mut found = Vec::new();
        let Some(changed) = contents.tablets.get(&(table, place)) else { return found };
        let Some(keys) = changed.keys.get(&index).filter(|_| !walk.range.is_empty()) else {
            return found;
        };
        let below = walk.range.below.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        let mut keys = keys.range::<[u8], _>((Bound::Included(walk.range.from.as_slice()), below));
        while found.len() < walk.limit {
            let next = if walk.backward { keys.next_back() } else { keys.next() };
            let Some((key, places)) = next else { break };
            for place in places {
                let Some(row) = changed.rows.get(*place) else { continue };
                if row.is_seen(number) {
                    let vid = changed.vid_first + *place as u64;
                    found.push((key.clone(), (vid, row.row.clone())));
                }
            }
        }
        found
    }

    /// Takes room for the pages of inserted rows, so that a full device is an error of the commit, and not of the
    /// flush. Under the writer lock.
    ///
    /// # Errors
    /// Those of taking space.
    pub(crate) async fn take_room(
        &self,
        database: &Engine,
        state: &CatalogState,
        changes: &[&TableChange],
    ) -> Result<()> {
        let mut wanted: BTreeMap<DeviceId, usize> = BTreeMap::new();
        for change in changes {
            let table = state.find_table(&change.schema.name)?;
            for (place, rows) in change.rows.iter().filter(|(_, rows)| rows.row_count() > 0) {
                let Some(tablet) = table.tablets.get(*place) else { continue };
                let at = (change.schema.table_id, *place);
                let tail = if self.read().begins_rows(at) { 0 } else { TAIL_BYTES };
                let rows = bytes_in_pages(rows.byte_count(), rows.row_count());
                *wanted.entry(tablet.device).or_default() += rows + tail;
            }
        }
        // Of all devices, or of none.
        let mut taken = Vec::new();
        for (device, bytes) in wanted {
            let (byte_count, held_bytes) = {
                let contents = self.read();
                let room = contents.room.get(&device);
                let (byte_count, held_bytes) =
                    room.map_or((0, 0), |room| (room.byte_count, room.held_bytes));
                (byte_count + bytes, held_bytes)
            };
            if byte_count <= held_bytes {
                continue;
            }
            let room_bytes = byte_count.next_multiple_of(ROOM_BYTES);
            let block_count = (room_bytes - held_bytes) / BLOCK_SIZE;
            let claim = Claim::new(database.attached(device)?);
            claim.acquire(u32::try_from(block_count).unwrap_or(u32::MAX)).await?;
            taken.push((device, room_bytes, claim));
        }
        let mut contents = self.write();
        for (device, room_bytes, claim) in taken {
            let room = contents.room.entry(device).or_default();
            room.held_bytes = room_bytes;
            room.claims.push(claim);
        }
        Ok(())
    }

    /// Gives back the room of a commit that was not made.
    pub(crate) fn give_unused_room_back(&self) {
        for room in self.write().room.values_mut().filter(|room| room.byte_count == 0) {
            room.held_bytes = 0;
            room.claims.clear();
        }
    }

    /// Gives the room back, for pages that are written now.
    pub(crate) fn give_room_back(&self) {
        for room in self.write().room.values_mut() {
            room.held_bytes = 0;
            room.claims.clear();
        }
    }

    /// The rows of the tables `blocked`, as the beginning of another delta, before its commits.
    pub fn blocked(&self, blocked: &BTreeSet<u32>) -> Self {
        let contents = self.read();
        let tablets = contents.tablets.iter().filter(|((table, _), _)| blocked.contains(table));
        let tablets = tablets.map(|(at, tablet)| {
            let mut tablet = tablet.clone();
            tablet.dead.values_mut().for_each(|dead| *dead = 0);
            for row in &mut tablet.rows {
                row.begun = 0;
                row.dead = if row.dead == u64::MAX { u64::MAX } else { 0 };
            }
            (*at, tablet)
        });
        let contents = Contents { tablets: tablets.collect(), ..Contents::default() };
        Self { contents: RwLock::new(contents) }
    }

    /// The place in the log of the first commit that changed a table.
    pub(crate) fn logged_from(&self, table: u32) -> Option<u64> {
        let contents = self.read();
        let tablets = contents.tablets.range((table, 0)..=(table, usize::MAX));
        tablets.map(|(_, tablet)| tablet.logged_from).min()
    }

    /// Prepares `changes` to follow all that is here, on `state`.
    ///
    /// # Errors
    /// A table that was replaced meanwhile; a key that is too long.
    pub fn prepare(&self, state: &CatalogState, changes: &[&TableChange]) -> Result<Vec<Prepared>> {
        let mut prepared = Vec::with_capacity(changes.len());
        for change in changes {
            // Also one whose commits are blocked, while the log is read.
            let table = state.find_blocked_table(&change.schema.name)?;
            let is_same = table.schema.table_id == change.schema.table_id
                && table.schema.version == change.schema.version;
            if !is_same {
                return Err(made_anew(&change.schema.name));
            }
            for place in change.places() {
                let Some(tablet) = table.tablets.get(place) else {
                    return Err(made_anew(&change.schema.name));
                };
                let vid_first = self.next_vid(table, place);
                let rows = change.rows.get(&place).map(Begun::whole).transpose()?.flatten();
                let rows = rows.filter(|rows| rows.num_rows() > 0);
                let mut keys = Vec::with_capacity(tablet.indexes.len());
                if let Some(rows) = &rows {
                    for index in &tablet.indexes {
                        let shape = index.shape();
                        let entries = shape.row_entries(rows, vid_first)?;
                        keys.push((index.definition().id, entries));
                    }
                }
                prepared.push(Prepared {
                    table: change.schema.table_id,
                    place,
                    device: tablet.device,
                    schema: Arc::clone(&table.schema),
                    next_vid: tablet.next_vid,
                    vid_first,
                    dead: change.dead.get(&place).cloned().unwrap_or_default(),
                    rows,
                    keys,
                });
            }
        }
        Ok(prepared)
    }

    /// Enters the changes of commit `number`, and of those before it that were not entered, whose records begin at
    /// `logged_at` and end at `log_end`. Under the writer lock, under which they were prepared.
    pub fn put(&self, prepared: Vec<Prepared>, number: u64, (logged_at, log_end): (u64, u64)) {
        let mut contents = self.write();
        debug_assert!(number > contents.log_ends.len() as u64, "commits come in their order");
        contents.log_ends.resize(usize::try_from(number).unwrap_or(usize::MAX), log_end);
        for change in prepared {
            let row_count = change.rows.as_ref().map_or(0, |rows| rows.num_rows());
            let bytes = change.rows.as_ref().map_or(0, |rows| rows.get_array_memory_size());
            contents.change_count += row_count + change.dead.len();
            contents.byte_count += bytes;
            let is_first = row_count > 0 && !contents.begins_rows((change.table, change.place));
            let room = contents.room.entry(change.device).or_default();
            room.byte_count += bytes_in_pages(bytes, row_count);
            room.byte_count += if is_first { TAIL_BYTES } else { 0 };
            let tablet =
                contents.tablets.entry((change.table, change.place)).or_insert_with(|| {
                    DeltaTablet {
                        schema: Arc::clone(&change.schema),
                        logged_from: logged_at,
                        vid_first: change.next_vid,
                        rows: Vec::new(),
                        dead: BTreeMap::new(),
                        keys: BTreeMap::new(),
                    }
                });
            debug_assert_eq!(tablet.vid_first + tablet.rows.len() as u64, change.vid_first);
            if let Some(rows) = change.rows {
                tablet.append(&rows, &change.keys, number);
            }
            // Behind them: of commits that are redone at once, one may delete what another inserted.
            for vid in change.dead.iter() {
                match vid
                    .checked_sub(tablet.vid_first)
                    .and_then(|place| usize::try_from(place).ok())
                {
                    None => drop(tablet.dead.insert(vid, number)),
                    Some(place) => {
                        if let Some(row) = tablet.rows.get_mut(place) {
                            row.dead = number;
                        }
                    }
                }
            }
        }
    }

    fn read(&self) -> RwLockReadGuard<'_, Contents> {
        self.contents.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Contents> {
        self.contents.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether the row `vid` of `tablet`, of which the delta has `changed`, is visible as of commit `number`.
fn lives(changed: Option<&DeltaTablet>, tablet: &TabletState, vid: u64, number: u64) -> bool {
    let Some(place) = vid.checked_sub(tablet.next_vid) else {
        let dead = changed.and_then(|changed| changed.dead.get(&vid));
        return dead.is_none_or(|dead| *dead > number) && tablet.version_map.lookup(vid).is_some();
    };
    let place = usize::try_from(place).unwrap_or(usize::MAX);
    let row = changed.and_then(|changed| changed.rows.get(place));
    row.is_some_and(|row| row.is_seen(number))
}

/// Whether one of two versions of a tablet has all stored pages of the other, whose last one may have got more rows.
fn has_same_pages(one: &TabletState, other: &TabletState) -> bool {
    let count = |tablet: &TabletState| tablet.indexed_heap().count();
    let (earlier, later) = if count(one) <= count(other) { (one, other) } else { (other, one) };
    earlier.indexed_heap().all(|before| {
        let after = later.segment(before.segment);
        after.is_some_and(|after| Arc::ptr_eq(before, after) || is_continued(before, after))
    })
}

/// Whether one of two versions of a segment has all pages of the other, whose last one may have got more rows.
fn is_continued(one: &SegmentDirectory, other: &SegmentDirectory) -> bool {
    let count = one.pages.len().min(other.pages.len());
    one.pages.iter().zip(&other.pages).zip(1..).all(|((one, other), number)| {
        let (one, other) = (&one.page, &other.page);
        one == other || number == count && one.row_count != other.row_count
    })
}

/// Bytes of pages for rows of so many bytes in memory, beside the page before them.
fn bytes_in_pages(bytes: usize, row_count: usize) -> usize {
    bytes + row_count * VERSION_BYTES
}

mod behind;
mod contents;
pub mod shipped;
#[cfg(test)]
mod tests;
