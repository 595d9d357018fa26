//! Fragments that insert rows, on the host's side: says where one writes, checks its report, and adds the new rows to
//! the table.
//!
//! ```text
//!  table ─▶ PageTarget: segment, first VID ─▶ fragment ─▶ pages ─▶ checked ─▶ segment ─┬─▶ catalog version
//!                                                             keys ◀─ read back ◀──────┴─▶ a run for each index
//! ```
//!
//! 1. [`PageTarget`] names a segment for each [tablet that gets rows](places_on), and the VID of its first row. If the
//!    table is the transaction's own, that is the next one. A statement by itself inserts [beside](PageLoad) the
//!    table's writers, as a [load](super::load) does.
//! 2. The fragment runs in space of a claim ([`on_device`](super::change_pages::on_device)), and reports its pages.
//!    Where several devices make the rows, each has a fragment, with a [`Destination`] of its own.
//! 3. They are compared with what was asked for, and become a sealed segment. The columns of each index are read back,
//!    and its keys become a run, as when an index is [built](super::build_index).
//!
//! Invariants: nothing names the new pages before the statement's transaction commits, which syncs the devices first. A
//! device is believed only pages in the space that it was given, none over another, of tablets that lie on it, whose
//! rows are numbered without a gap. Source: Update NDP, sections 4 and 5.3 (validation), and
//! `docs/design/versions-and-commit.md`.

use std::sync::Arc;

use cleave_catalog::catalog::division::Division;
use cleave_catalog::catalog::{DeviceId, TableState, TabletState};
use cleave_catalog::error::Result;
use cleave_catalog::settings::Settings;
use cleave_fragment::{InsertTarget, RowDivision};
use cleave_media::{BLOCK_SIZE, Extent};
use cleave_store::{PageClass, PageEntry, SegmentDirectory, SegmentKind, TableSchema, VersionRun};

use super::build_index::run_of_rows;
use super::load::{LoadCheck, edit_beside, made_anew, newest, segment_ref, target};
use super::merge_runs::RunMerger;
use super::new_rows::{self, NewRows, vid_beside};
use super::writing_fragment::give_back_unused;
use crate::device::{Claim, Device};
use crate::storage_engine::Engine;
use crate::storage_engine::catalog_edit::CatalogEdit;
use crate::storage_engine::commit::Changes;

/// Of the memory of a fragment, the part that a page takes at most: one in so many, and that the pages of all tablets
/// take together. Rows wait beside the page that is made of them.
const PAGE_SHARE: u64 = 16;
const PAGES_SHARE: u64 = 4;
/// The least page: 1 MiB, which holds a load's rows well.
const PAGE_BYTES_MIN: u64 = 1 << 20;

/// What a fragment is to write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageTarget {
    /// Where the rows of each tablet go.
    pub tablets: Vec<TabletTarget>,
    /// How rows are divided, if there are several.
    pub division: RowDivision,
    /// The class of the pages.
    pub class: PageClass,
}

/// Where the rows of one tablet go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TabletTarget {
    /// The place of the tablet.
    pub place: usize,
    /// Whether it lies on the fragment's device; if not, none of the rows may be its.
    pub lies_there: bool,
    /// The segment of the pages, and the VID of the first row.
    pub target: InsertTarget,
}

/// Where one of the fragments of a statement writes.
#[derive(Debug)]
pub struct Destination {
    /// Its device.
    pub device: Arc<Device>,
    /// The statement's space there.
    pub claim: Arc<Claim>,
    /// What it is to write.
    pub target: PageTarget,
}

/// The devices on which fragments make rows of a table, one on each.
#[derive(Clone, Copy)]
pub struct MadeOn<'a> {
    /// They, no two the same.
    pub devices: &'a [Arc<Device>],
    /// Whether each of them makes only rows of tablets of this table that lie there.
    pub lie_as: &'a (dyn Fn(&TableState) -> bool + Sync),
}

/// The places of the tablets that rows can go to which a fragment on `device` inserts into `table`: all, in their
/// order, where values decide, which must lie there unless the rows are `own` ones, of such tablets alone; in load
/// order those that do, the one with the fewest rows first; where each gets as many, all must. None: no such.
#[must_use]
pub fn places_on(table: &TableState, device: DeviceId, own: bool) -> Option<Vec<usize>> {
    let there = |tablet: &Arc<TabletState>| tablet.device == device;
    let are_all = table.tablets.iter().all(there);
    let is_by_values = matches!(&table.division, Division::Hash(_) | Division::Range(..));
    if is_by_values && table.tablets.len() > 1 {
        return (are_all || own).then(|| (0..table.tablets.len()).collect());
    }
    let places = table.tablets.iter().enumerate().filter(|(_, tablet)| there(tablet));
    let mut places: Vec<_> =
        places.map(|(place, tablet)| (tablet.inserted_count(), place)).collect();
    places.sort_unstable();
    let is_enough = are_all || table.division == Division::LoadOrder;
    (is_enough && !places.is_empty()).then(|| places.into_iter().map(|(_, place)| place).collect())
}

impl PageTarget {
    /// A target in the table that `schema` describes, which `edit` alone has. None: a fragment on `device` can insert
    /// none of its rows.
    ///
    /// # Errors
    /// A table that was replaced meanwhile; no more segments.
    pub fn begin(
        edit: &mut CatalogEdit,
        settings: &Settings,
        schema: &TableSchema,
        device: &Device,
    ) -> Result<Option<Self>> {
        let table = target(edit, schema)?;
        Self::in_table(edit, settings, (&table, |tablet| tablet.next_vid), (device, false))
    }

    /// The same in `table`, with the VID of the first row in a tablet, and whether the rows are
    /// [the device's own](places_on).
    fn in_table(
        edit: &mut CatalogEdit,
        settings: &Settings,
        (table, vid_first): (&TableState, fn(&TabletState) -> u64),
        (device, own): (&Device, bool),
    ) -> Result<Option<Self>> {
        let schema = &table.schema;
        let Some(places) = places_on(table, device.id(), own) else { return Ok(None) };
        let class = class_of(edit, settings, places.len());
        let mut tablets = Vec::with_capacity(places.len());
        for place in places {
            let Some(tablet) = table.tablets.get(place) else { return Ok(None) };
            let segment = segment_ref(edit, schema)?;
            let target = InsertTarget { segment, vid_first: vid_first(tablet) };
            let lies_there = tablet.device == device.id();
            tablets.push(TabletTarget { place, lies_there, target });
        }
        let division = match tablets.len() {
            1 => RowDivision::LoadOrder,
            _ => table.division.of_rows(&table.schema)?,
        };
        Ok(Some(Self { tablets, division, class }))
    }
}

impl Destination {
    /// One for the fragment on each device of `made`, in the table that `schema` describes, which `edit` alone has.
    /// None: the fragment on one of them can insert none of its rows.
    ///
    /// # Errors
    /// As [`PageTarget::begin`].
    pub fn begin(
        edit: &mut CatalogEdit,
        settings: &Settings,
        schema: &TableSchema,
        made: MadeOn<'_>,
    ) -> Result<Option<Vec<Self>>> {
        let table = target(edit, schema)?;
        Self::in_table(edit, settings, (&table, |tablet| tablet.next_vid), made)
    }

    /// The same in `table`, with the VID of the first row in a tablet.
    fn in_table(
        edit: &mut CatalogEdit,
        settings: &Settings,
        (table, vid_first): (&TableState, fn(&TabletState) -> u64),
        made: MadeOn<'_>,
    ) -> Result<Option<Vec<Self>>> {
        let own = (made.lie_as)(table);
        let mut all = Vec::with_capacity(made.devices.len());
        for device in made.devices {
            let by = (&**device, own);
            let target = PageTarget::in_table(edit, settings, (table, vid_first), by)?;
            let Some(target) = target else { return Ok(None) };
            all.push(Self { device: Arc::clone(device), claim: edit.claim(device), target });
        }
        Ok(Some(all))
    }

    /// The place of each tablet that may get rows, and the VID of the first one.
    pub fn first_vids(&self) -> impl Iterator<Item = (usize, u64)> + '_ {
        let there = self.target.tablets.iter().filter(|tablet| tablet.lies_there);
        there.map(|tablet| (tablet.place, tablet.target.vid_first))
    }
}

/// Pages as those of a load, as far as a fragment has memory for one of each of `tablet_count` tablets.
fn class_of(edit: &CatalogEdit, settings: &Settings, tablet_count: usize) -> PageClass {
    let class = edit.database().load_pages(1);
    let share = PAGE_SHARE.max(PAGES_SHARE.saturating_mul(tablet_count as u64));
    let share = (settings.device_memory_bytes / share).max(PAGE_BYTES_MIN);
    let blocks = share.min(u64::from(class.page_bytes)) / BLOCK_SIZE as u64;
    let bytes = u32::try_from(blocks * BLOCK_SIZE as u64).unwrap_or(class.page_bytes);
    PageClass { page_bytes: bytes, ..class }
}

/// The pages that a fragment reports to have written.
#[derive(Debug)]
pub struct InsertedPages {
    /// Where it was to write.
    pub to: Destination,
    /// For each tablet of the target, in their order.
    pub pages: Vec<Vec<PageEntry>>,
    /// The space that it had.
    pub space: Vec<Extent>,
}

impl InsertedPages {
    /// Gives back their space: nobody reads them.
    pub fn give_back(self) {
        let Self { to, space, .. } = self;
        space.into_iter().for_each(|extent| to.claim.give_back(extent));
    }
}

/// An insert by fragments beside the writers of its table, but no load. See the module's description.
pub struct PageLoad {
    edit: CatalogEdit,
    settings: Arc<Settings>,
    table: Arc<TableState>,
}

impl PageLoad {
    /// Begins to insert into the table that `schema` describes, and where the fragments on the devices of `made` are to
    /// write. The caller has locked the table as for [`BulkLoad::beside`](super::load::BulkLoad::beside). None: as for
    /// [`Destination::begin`].
    ///
    /// # Errors
    /// As [`PageTarget::begin`].
    pub fn begin(
        database: &Arc<Engine>,
        settings: &Arc<Settings>,
        schema: &TableSchema,
        made: MadeOn<'_>,
    ) -> Result<Option<(Self, Vec<Destination>)>> {
        let mut edit = edit_beside(database)?;
        let table = target(&edit, schema)?;
        let to = Destination::in_table(&mut edit, settings, (&table, vid_beside), made)?;
        Ok(to.map(|to| (Self { edit, settings: Arc::clone(settings), table }, to)))
    }

    /// Commits what the fragments have `inserted`; returns the number of rows.
    ///
    /// # Errors
    /// Those of [`add`], of `check` and of the commit; [`Error::Invalid`](cleave_catalog::error::Error::Invalid) for a
    /// table that has become another one.
    pub async fn commit(
        mut self,
        inserted: Vec<InsertedPages>,
        check: &dyn LoadCheck,
    ) -> Result<u64> {
        let new = new_rows(&mut self.edit, &self.settings, &self.table, inserted).await?;
        let row_count = new.iter().map(|rows| rows.heap.row_count()).sum();
        if row_count == 0 {
            return Ok(0);
        }
        let (mut edit, table) = newest(self.edit, &self.table).await?;
        new_rows::add(&mut edit, &table, new).await?;
        check.check(&edit.next, table.schema.table_id).await?;
        let database = Arc::clone(edit.database());
        database.commit(Changes::edit(edit)).await?;
        Ok(row_count)
    }
}

/// Adds `inserted` to the table that `schema` describes, which `edit` alone has; returns the number of rows.
///
/// # Errors
/// [`StorageError::Answer`](cleave_catalog::storage_error::StorageError::Answer) for a report that cannot be of this
/// table; [`Error::DuplicateKey`](cleave_catalog::error::Error::DuplicateKey); those of reading keys and writing runs;
/// a table that was replaced meanwhile.
pub async fn add(
    edit: &mut CatalogEdit,
    settings: &Arc<Settings>,
    schema: &TableSchema,
    inserted: Vec<InsertedPages>,
) -> Result<u64> {
    let table = target(edit, schema)?;
    let new = new_rows(edit, settings, &table, inserted).await?;
    let row_count = new.iter().map(|rows| rows.heap.row_count()).sum();
    if row_count > 0 {
        new_rows::add(edit, &table, new).await?;
    }
    Ok(row_count)
}

/// What each tablet of `table` gets of `inserted`: the rows, and the keys that their devices make of them.
///
/// # Errors
/// [`StorageError::Answer`](cleave_catalog::storage_error::StorageError::Answer) for a report that cannot be of this
/// table; [`Error::DuplicateKey`](cleave_catalog::error::Error::DuplicateKey); those of reading keys and writing runs.
async fn new_rows(
    edit: &mut CatalogEdit,
    settings: &Arc<Settings>,
    table: &TableState,
    inserted: Vec<InsertedPages>,
) -> Result<Vec<NewRows>> {
    let mut new = Vec::new();
    for inserted in inserted {
        new.extend(new_rows_of(edit, settings, table, inserted).await?);
    }
    Ok(new)
}

/// The same of what one fragment has `inserted`.
async fn new_rows_of(
    edit: &mut CatalogEdit,
    settings: &Arc<Settings>,
    table: &TableState,
    InsertedPages { to, pages, space }: InsertedPages,
) -> Result<Vec<NewRows>> {
    let Destination { device, claim, target: asked } = to;
    let schema = &table.schema;
    let strange = |reason: String| device.strange_payload(&reason);
    let used = pages.iter().flatten().flat_map(PageEntry::page_refs).map(|page| page.extent);
    let used = used.collect();
    let mut heaps = Vec::with_capacity(pages.len());
    for (tablet_target, pages) in asked.tablets.into_iter().zip(pages) {
        let TabletTarget { place, lies_there, target } = tablet_target;
        let tablet = table.tablets.get(place).ok_or_else(|| made_anew(&schema.name))?;
        check_pages(schema, target.vid_first, &pages).map_err(strange)?;
        if pages.is_empty() {
            continue;
        }
        if !lies_there {
            return Err(strange(format!("it has rows of tablet {place}, which lies elsewhere")));
        }
        let heap = SegmentDirectory::sealed(target.segment, SegmentKind::Heap, asked.class, pages);
        let heap = heap.map_err(|error| strange(error.to_string()))?;
        heaps.push((place, target.vid_first, tablet, heap));
    }
    give_back_unused(&claim, space, used).map_err(strange)?;
    let merger = RunMerger::new(edit.database(), &device, settings)?;
    let mut new = Vec::with_capacity(heaps.len());
    for (place, vid_first, tablet, heap) in heaps {
        let rows = (vid_first, &heap);
        let runs = key_runs(edit, settings, (schema, tablet), &claim, rows).await?;
        let (claim, merger) = (Arc::clone(&claim), merger.clone());
        new.push(NewRows { place, vid_first, heap, runs, claim, merger });
    }
    Ok(new)
}

/// Whether `pages` may be those of rows of `schema` that are numbered from `vid_first` on.
fn check_pages(schema: &TableSchema, vid_first: u64, pages: &[PageEntry]) -> Result<(), String> {
    let mut vid = vid_first;
    for entry in pages {
        let number = entry.page.page;
        if entry.vid_first != vid || entry.gaps.missing() > 0 {
            return Err(format!("page {number} does not begin with row {vid}, or has gaps"));
        }
        if !entry.shared.is_empty() {
            return Err(format!("page {number}, which is new, shares blocks of others"));
        }
        let columns = schema.columns.iter().map(|column| column.id);
        if !entry.zones.iter().map(|zone| zone.column).eq(columns) {
            return Err(format!("page {number} has zones of other columns"));
        }
        let next = vid.checked_add(u64::from(entry.page.row_count));
        vid = next.ok_or_else(|| format!("page {number} has rows past the last VID"))?;
    }
    Ok(())
}

/// For each index of `tablet`, the run of the keys that the rows of `heap` have, which begin with `vid_first`.
async fn key_runs(
    edit: &mut CatalogEdit,
    settings: &Arc<Settings>,
    (schema, tablet): (&TableSchema, &TabletState),
    claim: &Arc<Claim>,
    (vid_first, heap): (u64, &SegmentDirectory),
) -> Result<Vec<Option<Arc<SegmentDirectory>>>> {
    if tablet.indexes.is_empty() {
        return Ok(Vec::new());
    }
    let database = Arc::clone(edit.database());
    // Its rows are those that the runs are made of.
    let mut new = TabletState { heap: vec![Arc::new(heap.clone())], ..tablet.clone() };
    let run = VersionRun { vid_first, vid_count: heap.row_count(), segment: heap.segment };
    Arc::make_mut(&mut new.version_map).append_run(run)?;
    let new = Arc::new(new);
    let mut runs = Vec::with_capacity(tablet.indexes.len());
    for index in &tablet.indexes {
        let segment = segment_ref(edit, schema)?;
        runs.push(run_of_rows(&database, settings, index.shape(), (&new, claim), segment).await?);
    }
    Ok(runs)
}

#[cfg(test)]
mod tests;
