//! Page versions of a transaction that has not committed: what its fragments have changed, until COMMIT puts it into
//! the newest catalog version beside what others have committed meanwhile.
//!
//! ```text
//!  report of a fragment ─▶ with_changed ─┬▶ over: what the transaction reads
//!                                        ├▶ check: whether others have replaced a changed row
//!                                        └▶ commit: pages replaced in the newest version of the table
//! ```
//!
//! The rows are locked, and the table in a mode that excludes vacuum and other update fragments; its tails are
//! [pinned](super::tail_pins). So the pages stay where they are, and all that others change of them is which rows are
//! dead. Dead rows are in the version map and in the delta, not on pages: both changes go together.
//!
//! Several transactions may have versions of one page. Whoever commits later puts its own over the committed ones
//! ([`rebase`]).
//!
//! Invariant: a page is replaced only if it is the one that the fragment has read, and if no changed row is dead.
//! Source: `docs/design/versions-and-commit.md`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use arrow::array::BooleanBufferBuilder;
use arrow::buffer::BooleanBuffer;
use cleave_catalog::catalog::rewrites::Rewrite;
use cleave_catalog::catalog::{DeviceId, TableState, TabletState};
use cleave_catalog::error::{Error, Result};
use cleave_catalog::settings::Stack;
use cleave_fragment::ChangedPage;
use cleave_media::Extent;
use cleave_store::{PageEntry, PageRead, PageRef};

use super::change_pages::{changed_vids, reported, version_of};
use crate::delta::Live;
use crate::device::free_of;
use crate::storage_engine::Engine;
use crate::storage_engine::log_keeper::LoggedPage;

mod rebase;

/// The page versions of one table.
#[derive(Debug, Default)]
pub struct TableVersions {
    /// By place.
    tablets: BTreeMap<usize, TabletVersions>,
    /// The table that they were last put over, and the outcome: the same for all statements in between.
    made: Mutex<Option<(Weak<TableState>, Arc<TableState>)>>,
}

/// Those of one tablet, by the first VID of the page.
#[derive(Debug, Clone)]
struct TabletVersions {
    device: DeviceId,
    pages: BTreeMap<u64, Arc<PageVersion>>,
}

#[derive(Debug, Clone)]
struct PageVersion {
    /// The committed page that it replaces.
    replaced: PageRef,
    entry: PageEntry,
    /// All rows that the transaction has changed.
    slots: BooleanBuffer,
    /// The stable ids of the columns in which it has, ascending.
    columns: Vec<u32>,
}

impl TableVersions {
    /// The same with the `pages` that a fragment has changed in `columns`, by their stable ids, of the tablet at
    /// `place` of `table`, which is what the fragment has read; and the number of changed rows.
    ///
    /// # Errors
    /// The reason why the report cannot be of this tablet.
    pub fn with_changed(
        &self,
        (table, place): (&TableState, usize),
        columns: &[u32],
        pages: Vec<ChangedPage>,
    ) -> Result<(Self, u64), String> {
        let Some(tablet) = table.tablets.get(place) else {
            return Err(format!("the table has no tablet {place}"));
        };
        let mut tablets = self.tablets.clone();
        let known = || TabletVersions { device: tablet.device, pages: BTreeMap::new() };
        let versions = tablets.entry(place).or_insert_with(known);
        let (made, count) = checked(tablet, columns, pages)?;
        for (vid_first, version) in made {
            let version = match versions.pages.get(&vid_first) {
                None => version,
                Some(before) => {
                    let columns: BTreeSet<u32> =
                        before.columns.iter().chain(&version.columns).copied().collect();
                    PageVersion {
                        replaced: before.replaced,
                        slots: &before.slots | &version.slots,
                        columns: columns.into_iter().collect(),
                        ..version
                    }
                }
            };
            versions.pages.insert(vid_first, Arc::new(version));
        }
        Ok((Self { tablets, made: Mutex::default() }, count))
    }

    /// `table` with the page versions: what the transaction reads.
    #[must_use]
    pub fn over(&self, table: &Arc<TableState>) -> Arc<TableState> {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((before, made)) = &*made
            && std::ptr::eq(before.as_ptr(), Arc::as_ptr(table))
        {
            return Arc::clone(made);
        }
        let (next, _) = self.replaced_in(table);
        let next = Arc::new(next);
        *made = Some((Arc::downgrade(table), Arc::clone(&next)));
        next
    }

    /// The same without the rows that are dead in `live`, and their number.
    ///
    /// # Errors
    /// [`Error::Conflict`] where a page is another one than the fragment has read.
    pub fn without_dead(&self, table_id: u32, live: &Live) -> Result<(Self, u64)> {
        let table = live.state.table_by_id(table_id).ok_or_else(Error::concurrent_update)?;
        let mut tablets = self.tablets.clone();
        let mut count = 0;
        for (place, versions) in &mut tablets {
            let tablet = table.tablets.get(*place).ok_or_else(Error::concurrent_update)?;
            let dead = live.delta.dead_rows(table_id, *place, live.number);
            count += versions.leave_out_dead(tablet, &dead)?;
        }
        Ok((Self { tablets, made: Mutex::default() }, count))
    }

    /// How many of the changed rows are dead in `live`, whose version of the table is `newest`. None: it lacks one of
    /// the pages, or a version of it.
    #[must_use]
    pub fn dead_rows_in(&self, newest: &TableState, live: &Live) -> Option<usize> {
        let mut count = 0;
        for (place, versions) in &self.tablets {
            let tablet = newest.tablets.get(*place)?;
            let dead = live.delta.dead_rows(newest.schema.table_id, *place, live.number);
            let dead = versions.dead_slots(tablet, &dead, TabletVersions::of_any)?;
            count += dead.values().map(BTreeSet::len).sum::<usize>();
        }
        Some(count)
    }

    /// Refuses them where another transaction has changed one of the rows in place, in `live`, since `read`, what the
    /// fragments have read.
    ///
    /// # Errors
    /// [`Error::Conflict`].
    pub fn check_since(&self, read: &TableState, live: &Live) -> Result<()> {
        let newest = live.state.table_by_id(read.schema.table_id);
        let newest = newest.ok_or_else(Error::concurrent_update)?;
        let tablets = read.tablets.iter().zip(&newest.tablets).enumerate();
        let is_since = |(_, (read, newest)): &(usize, (&Arc<TabletState>, &Arc<TabletState>))| {
            read.rewrites.mark() != newest.rewrites.mark()
        };
        let rewritten: BTreeMap<usize, _> = tablets.filter(is_since).collect();
        let is_changed = |(place, vid): (usize, u64)| {
            let tablet = rewritten.get(&place);
            tablet
                .is_some_and(|(read, newest)| newest.rewrites.has_since(read.rewrites.mark(), vid))
        };
        match !rewritten.is_empty() && self.rows().any(is_changed) {
            true => Err(Error::concurrent_update()),
            false => Ok(()),
        }
    }

    /// Refuses them where, in `live`, a changed row is dead or a page is another one than the fragment has read.
    ///
    /// # Errors
    /// [`Error::Conflict`].
    pub fn check(&self, table_id: u32, live: &Live) -> Result<()> {
        match self.without_dead(table_id, live)? {
            (_, 0) => Ok(()),
            _ => Err(Error::concurrent_update()),
        }
    }

    /// `table`, in which they were [checked](Self::check), with the page versions; later writers see which rows have
    /// changed.
    ///
    /// # Errors
    /// [`Error::Conflict`].
    pub fn commit(&self, table: &TableState) -> Result<TableState> {
        let (mut next, is_whole) = self.replaced_in(table);
        if !is_whole {
            return Err(Error::concurrent_update());
        }
        self.note_rewrites(&mut next);
        Ok(next)
    }

    /// Lets the buffer pool keep what it has of the replaced pages for the versions, which share chunks with them. To
    /// be called before the commit, when the pages are on media; what cannot be read is fetched later.
    pub async fn take_cached(&self, engine: &Engine, table_id: u32) {
        let state = engine.catalog();
        let Some(table) = state.table_by_id(table_id) else { return };
        for (place, versions) in &self.tablets {
            let Some(tablet) = table.tablets.get(*place) else { continue };
            let pool = engine.buffer_pool();
            let Ok(pages) = engine.page_source(tablet.device, Stack::Native) else { continue };
            for segment in &tablet.heap {
                let replaced = segment.pages.iter().filter_map(|entry| {
                    let version = versions.of(entry)?;
                    let is_cached = pool.has_parts_of(tablet.device, &entry.page);
                    is_cached.then_some((entry.page, version.entry.page))
                });
                let replaced: Vec<(PageRef, PageRef)> = replaced.collect();
                let read = |(_, page): &(PageRef, PageRef)| PageRead {
                    segment: segment.segment_ref(),
                    page: *page,
                    columns: Vec::new(),
                };
                if replaced.is_empty() {
                    continue;
                }
                let headers = pages.read(replaced.iter().map(read).collect()).await;
                for ((from, to), page) in replaced.iter().zip(headers.into_iter().flatten()) {
                    pool.hand_over(tablet.device, (from, to), &page.header);
                }
            }
        }
    }

    /// Notes in `table`, which has the page versions, which rows have changed.
    pub fn note_rewrites(&self, table: &mut TableState) {
        for (place, versions) in &self.tablets {
            let Some(tablet) = table.tablets.get_mut(*place) else { continue };
            let rows = |(first, version): (&u64, &Arc<PageVersion>)| {
                (*first, (version.entry.gaps.clone(), version.slots.clone()))
            };
            let rewrite: Rewrite = versions.pages.iter().map(rows).collect();
            Arc::make_mut(tablet).rewrites.add(rewrite);
        }
    }

    /// The page versions: the place of the tablet, the page that is replaced, its version, and the changed columns.
    pub fn pages(&self) -> impl Iterator<Item = (usize, &PageRef, &PageEntry, &[u32])> {
        self.tablets.iter().flat_map(|(place, versions)| {
            let pages = versions.pages.values();
            pages.map(move |version| {
                (*place, &version.replaced, &version.entry, version.columns.as_slice())
            })
        })
    }

    /// Whether recovery finds each page that they replace where it begins with `durable`, the table in the manifest on
    /// disk: the page is there, or it is a version of one that is, which the log has.
    pub fn follow(&self, durable: &TableState) -> bool {
        self.tablets.iter().all(|(place, versions)| {
            let Some(tablet) = durable.tablets.get(*place) else { return false };
            let pages = tablet.heap.iter().flat_map(|segment| &segment.pages);
            let is_followed = |entry: &&PageEntry| {
                let version = versions.pages.get(&entry.vid_first);
                version.is_some_and(|version| is_same_place(&version.replaced, &entry.page))
            };
            pages.filter(is_followed).count() == versions.pages.len()
        })
    }

    /// Adds `version`, which the log says has replaced `replaced`, a version of `first`, in the tablet at `place` of
    /// `table`. Returns what it shares with versions that no record names.
    ///
    /// # Errors
    /// The reason why it has not.
    pub(crate) fn redo(
        &mut self,
        (table, place): (&TableState, usize),
        (replaced, first): (PageRef, &PageEntry),
        version: PageEntry,
    ) -> Result<Vec<Extent>, String> {
        let name = &table.schema.name;
        let Some(tablet) = table.tablets.get(place) else {
            return Err(format!("it changes tablet {place} of \"{name}\", which has none such"));
        };
        let known = || TabletVersions { device: tablet.device, pages: BTreeMap::new() };
        let versions = self.tablets.entry(place).or_insert_with(known);
        let before = versions.pages.get(&version.vid_first);
        let is_next = before.is_none_or(|before| before.entry.page == replaced);
        if !is_next || !is_same_place(&replaced, &version.page) {
            let page = replaced.page;
            return Err(format!("it replaces page {page} of \"{name}\", which is another one"));
        }
        let beside = beside(&version, before.map_or(first, |before| &before.entry));
        let replaced = before.map_or(replaced, |before| before.replaced);
        // Whoever had read these rows before them is gone.
        let slots = BooleanBuffer::new_unset(0);
        let (vid_first, columns) = (version.vid_first, Vec::new());
        let version = PageVersion { replaced, entry: version, slots, columns };
        versions.pages.insert(vid_first, Arc::new(version));
        Ok(beside)
    }

    /// The changed rows: the place of the tablet, and the VID.
    pub fn rows(&self) -> impl Iterator<Item = (usize, u64)> + '_ {
        self.tablets.iter().flat_map(|(place, versions)| {
            let vids = versions.pages.iter().flat_map(|(first, version)| {
                changed_vids(*first, &version.entry.gaps, &version.slots)
            });
            vids.map(move |vid| (*place, vid))
        })
    }

    /// Whether the row `vid` of the tablet at `place` has changed.
    #[must_use]
    pub fn has(&self, place: usize, vid: u64) -> bool {
        self.tablets.get(&place).is_some_and(|versions| versions.find(vid).is_some())
    }

    /// Where they lie on `device`, with the chunks that they share with earlier versions of their pages.
    pub fn extents(&self, device: DeviceId) -> impl Iterator<Item = Extent> {
        let here = self.tablets.values().filter(move |versions| versions.device == device);
        let pages = here.flat_map(|versions| versions.pages.values());
        pages.flat_map(|version| {
            let PageEntry { page, shared, .. } = &version.entry;
            std::iter::once(page.extent).chain(shared.iter().copied())
        })
    }

    /// What a record names with them, which replace pages of `table`.
    pub(crate) fn logged(&self, table: &TableState) -> Vec<LoggedPage> {
        let mut logged = Vec::new();
        for (place, versions) in &self.tablets {
            let Some(tablet) = table.tablets.get(*place) else { continue };
            for segment in &tablet.heap {
                let found = segment.pages.iter().filter_map(|entry| {
                    let version = versions.pages.get(&entry.vid_first)?;
                    let is_here = is_same_place(&version.replaced, &entry.page);
                    is_here.then_some((entry, &version.entry))
                });
                logged.extend(found.map(|(replaced, version)| LoggedPage {
                    table: table.schema.table_id,
                    place: *place,
                    device: versions.device,
                    segment: segment.segment_ref(),
                    vid_first: version.vid_first,
                    page: version.page,
                    beside: beside(version, replaced),
                }));
            }
        }
        logged
    }

    /// `table` with the page versions, and whether it has all pages that they replace.
    fn replaced_in(&self, table: &TableState) -> (TableState, bool) {
        let mut next = table.clone();
        let mut is_whole = true;
        for (place, versions) in &self.tablets {
            match next.tablets.get_mut(*place) {
                Some(tablet) => is_whole &= versions.put_into(Arc::make_mut(tablet)),
                None => is_whole = false,
            }
        }
        (next, is_whole)
    }
}

impl TabletVersions {
    /// Replaces pages of `tablet`; returns whether it has all of them: none, if it was moved to another device, where
    /// equal places mean other pages.
    fn put_into(&self, tablet: &mut TabletState) -> bool {
        if tablet.device != self.device {
            return self.pages.is_empty();
        }
        let mut count = 0;
        for segment in &mut tablet.heap {
            let has = |entry: &PageEntry| self.of(entry).is_some();
            if !segment.pages.iter().any(has) {
                continue;
            }
            let segment = Arc::make_mut(segment);
            segment.revision = segment.revision.saturating_add(1);
            for entry in &mut segment.pages {
                if let Some(version) = self.of(entry) {
                    *entry = version.entry.clone();
                    count += 1;
                }
            }
        }
        count == self.pages.len()
    }

    /// Leaves out the rows that are dead in `tablet`, or among `dead`; returns their number.
    fn leave_out_dead(&mut self, tablet: &TabletState, dead: &[u64]) -> Result<u64> {
        let left_out = self.dead_slots(tablet, dead, Self::of);
        let left_out = left_out.ok_or_else(Error::concurrent_update)?;
        let mut count = 0;
        for (first, slots) in left_out {
            let Some(version) = self.pages.get_mut(&first).map(Arc::make_mut) else { continue };
            count += slots.len() as u64;
            let mut bits = BooleanBufferBuilder::new(version.slots.len());
            bits.append_buffer(&version.slots);
            slots.into_iter().for_each(|slot| bits.set_bit(slot, false));
            version.slots = bits.finish();
        }
        self.pages.retain(|_, version| version.slots.count_set_bits() > 0);
        Ok(count)
    }

    /// The changed slots that are dead in `tablet`, or among `dead`, by the first VID of their pages. None: `tablet`
    /// has no page for one of the versions, as `of` finds them.
    fn dead_slots(
        &self,
        tablet: &TabletState,
        dead: &[u64],
        of: impl for<'a> Fn(&'a Self, &PageEntry) -> Option<&'a Arc<PageVersion>>,
    ) -> Option<BTreeMap<u64, BTreeSet<usize>>> {
        if tablet.device != self.device && !self.pages.is_empty() {
            return None;
        }
        let mut slots: BTreeMap<u64, BTreeSet<usize>> = BTreeMap::new();
        let mut page_count = 0;
        for entry in tablet.heap.iter().flat_map(|segment| &segment.pages) {
            let Some(version) = of(self, entry) else { continue };
            page_count += 1;
            let of_page = tablet.version_map.dead_rows(entry.vid_stretches());
            for slot in of_page.slots().filter(|slot| is_set(&version.slots, *slot)) {
                slots.entry(entry.vid_first).or_default().insert(slot);
            }
        }
        for (first, slot) in dead.iter().filter_map(|vid| self.find(*vid)) {
            slots.entry(first).or_default().insert(slot);
        }
        (page_count == self.pages.len()).then_some(slots)
    }

    /// The version of the page of `entry`, or of another version of that.
    fn of_any(&self, entry: &PageEntry) -> Option<&Arc<PageVersion>> {
        let version = self.pages.get(&entry.vid_first);
        version.filter(|version| is_same_place(&version.replaced, &entry.page))
    }

    /// The version that replaces the page of `entry`.
    fn of(&self, entry: &PageEntry) -> Option<&Arc<PageVersion>> {
        self.pages.get(&entry.vid_first).filter(|version| version.replaced == entry.page)
    }

    /// The page of the row `vid`, if it has changed, and its slot there.
    fn find(&self, vid: u64) -> Option<(u64, usize)> {
        // A page that was pruned may have the rows of others between its own.
        self.pages.range(..=vid).rev().find_map(|(first, version)| {
            let slot = version.entry.gaps.slot_at(vid - first)?;
            let slot = usize::try_from(slot).ok()?;
            is_set(&version.slots, slot).then_some((*first, slot))
        })
    }
}

/// What `version` shares with other versions than `replaced`.
fn beside(version: &PageEntry, replaced: &PageEntry) -> Vec<Extent> {
    let mut of_replaced = replaced.shared.clone();
    of_replaced.push(replaced.page.extent);
    of_replaced.sort_unstable();
    free_of(version.shared.clone(), &of_replaced)
}

/// Whether both are versions of one page.
pub(crate) fn is_same_place(one: &PageRef, other: &PageRef) -> bool {
    (one.page, one.row_count) == (other.page, other.row_count)
}

fn is_set(slots: &BooleanBuffer, slot: usize) -> bool {
    slot < slots.len() && slots.value(slot)
}

/// The versions that `pages`, which a fragment reports of `tablet`, are, and the number of their rows.
fn checked(
    tablet: &TabletState,
    columns: &[u32],
    pages: Vec<ChangedPage>,
) -> Result<(BTreeMap<u64, PageVersion>, u64), String> {
    let mut versions = BTreeMap::new();
    let mut count = 0;
    for (entry, changed) in reported(tablet, pages)? {
        count += changed.slots.count_set_bits() as u64;
        let slots = changed.slots.clone();
        let version = version_of(entry, columns, changed)?;
        let columns = columns.to_vec();
        let version = PageVersion { replaced: entry.page, entry: version, slots, columns };
        versions.insert(entry.vid_first, version);
    }
    Ok((versions, count))
}
