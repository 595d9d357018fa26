//! Fragments that insert rows, on the host's side: says where one writes, checks its report, and adds the new rows to
//! the table.
//!
//! ```text
//!  table ─▶ PageTarget: segment, first VID ─▶ fragment ─▶ pages ─▶ checked ─▶ segment ─┬─▶ catalog version
//!                                                             keys ◀─ read back ◀──────┴─▶ a run for each index
//! ```
//!
//! 1. [`PageTarget::begin`] names a segment for each [tablet that gets rows](places_on), and the VID of its first row:
//!    the table is the transaction's own, so nobody else gives VIDs meanwhile.
//! 2. The fragment runs in space of a claim ([`on_device`](super::change_pages::on_device)), and reports its pages.
//! 3. [`add`] compares them with what it was asked for, and makes a sealed segment of them. The columns of each index
//!    are read back, and its keys become a run, as when an index is [built](super::build_index).
//!
//! Invariants: nothing names the new pages before the statement's transaction commits, which syncs the device first. A
//! device is believed only pages in the space that it was given, none over another, whose rows are numbered without a
//! gap. Source: Update NDP, sections 4 and 5.3 (validation), and `docs/design/versions-and-commit.md`.

use std::sync::Arc;

use cleave_catalog::catalog::division::Division;
use cleave_catalog::catalog::{DeviceId, TableState, TabletState};
use cleave_catalog::error::{Error, Result};
use cleave_catalog::settings::Settings;
use cleave_fragment::InsertTarget;
use cleave_media::{BLOCK_SIZE, Extent};
use cleave_store::{PageClass, PageEntry, SegmentDirectory, SegmentKind, TableSchema, VersionRun};

use super::build_index::run_of_rows;
use super::load::{Loaded, check_unique, made_anew, segment_ref, target, with_rows};
use super::merge_runs::RunMerger;
use super::writing_fragment::give_back_unused;
use crate::device::{Claim, Device};
use crate::storage_engine::catalog_edit::CatalogEdit;

/// Of the memory of a fragment, the part that a page takes at most: one in so many.
const PAGE_SHARE: u64 = 16;
/// The least page: 1 MiB, which holds a load's rows well.
const PAGE_BYTES_MIN: u64 = 1 << 20;

/// What a fragment is to write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageTarget {
    /// Where the rows of each tablet go.
    pub tablets: Vec<TabletTarget>,
    /// If there are several, the places of the columns by whose values the table is divided; none: in load order.
    pub key: Vec<usize>,
    /// The class of the pages.
    pub class: PageClass,
}

/// Where the rows of one tablet go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TabletTarget {
    /// The place of the tablet.
    pub place: usize,
    /// The segment of the pages, and the VID of the first row.
    pub target: InsertTarget,
}

/// The places of the tablets that rows can go to which a fragment on `device` inserts into `table`: all that a division
/// by values has, which must lie there; in load order those that do, the one with the fewest rows first. None: no such.
#[must_use]
pub fn places_on(table: &TableState, device: DeviceId) -> Option<Vec<usize>> {
    let lies_there = |(_, tablet): &(usize, &Arc<TabletState>)| tablet.device == device;
    let there = || table.tablets.iter().enumerate().filter(lies_there);
    match &table.division {
        Division::Hash(_) if table.tablets.len() > 1 => {
            (there().count() == table.tablets.len()).then(|| (0..table.tablets.len()).collect())
        }
        Division::Hash(_) | Division::LoadOrder => {
            let mut places: Vec<_> = there().map(|(place, own)| (own.next_vid, place)).collect();
            places.sort_unstable();
            let places: Vec<usize> = places.into_iter().map(|(_, place)| place).collect();
            (!places.is_empty()).then_some(places)
        }
    }
}

impl PageTarget {
    /// A target in the table that `schema` describes, as `edit` has it. None: a fragment on `device` can insert none of
    /// its rows.
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
        let Some(places) = places_on(&table, device.id()) else { return Ok(None) };
        let class = class_of(edit, settings);
        let mut tablets = Vec::with_capacity(places.len());
        for place in places {
            let Some(tablet) = table.tablets.get(place) else { return Ok(None) };
            let segment = segment_ref(edit, schema)?;
            let target = InsertTarget { segment, vid_first: tablet.next_vid };
            tablets.push(TabletTarget { place, target });
        }
        let key = match tablets.len() {
            1 => None,
            _ => table.division.tablet_key(&table.schema)?,
        };
        let key = key.map(|key| key.columns().to_vec()).unwrap_or_default();
        Ok(Some(Self { tablets, key, class }))
    }
}

/// Pages as those of a load, as far as a fragment has memory for them.
fn class_of(edit: &CatalogEdit, settings: &Settings) -> PageClass {
    let class = edit.database().load_pages(1);
    let share = (settings.device_memory_bytes / PAGE_SHARE).max(PAGE_BYTES_MIN);
    let blocks = share.min(u64::from(class.page_bytes)) / BLOCK_SIZE as u64;
    let bytes = u32::try_from(blocks * BLOCK_SIZE as u64).unwrap_or(class.page_bytes);
    PageClass { page_bytes: bytes, ..class }
}

/// The pages that a fragment on `device` reports for a target, which it has written in `space` of `claim`.
#[derive(Debug)]
pub struct InsertedPages {
    /// What it was to write.
    pub target: PageTarget,
    /// For each tablet of the target, in their order.
    pub pages: Vec<Vec<PageEntry>>,
    /// The space that it had.
    pub space: Vec<Extent>,
}

/// Adds `inserted` to the table that `schema` describes; returns the number of rows.
///
/// # Errors
/// [`StorageError::Answer`](cleave_catalog::storage_error::StorageError::Answer) for a report that cannot be of this
/// table; [`Error::DuplicateKey`]; those of reading keys and writing runs; a table that was replaced meanwhile.
pub async fn add(
    edit: &mut CatalogEdit,
    settings: &Arc<Settings>,
    schema: &TableSchema,
    (device, claim): (&Arc<Device>, &Arc<Claim>),
    inserted: InsertedPages,
) -> Result<u64> {
    let InsertedPages { target: asked, pages, space } = inserted;
    let table = target(edit, schema)?;
    let strange = |reason: String| device.strange_payload(&reason);
    let used = pages.iter().flatten().flat_map(PageEntry::page_refs).map(|page| page.extent);
    let used = used.collect();
    let mut heaps = Vec::with_capacity(pages.len());
    for (TabletTarget { place, target }, pages) in asked.tablets.into_iter().zip(pages) {
        let tablet = table.tablets.get(place).ok_or_else(|| made_anew(&schema.name))?;
        if tablet.next_vid != target.vid_first {
            return Err(Error::concurrent_update());
        }
        check_pages(schema, target.vid_first, &pages).map_err(strange)?;
        if pages.is_empty() {
            continue;
        }
        let heap = SegmentDirectory::sealed(target.segment, SegmentKind::Heap, asked.class, pages);
        heaps.push((place, tablet, heap.map_err(|error| strange(error.to_string()))?));
    }
    give_back_unused(claim, space, used).map_err(strange)?;
    let mut loaded = Vec::with_capacity(heaps.len());
    for (place, tablet, heap) in heaps {
        let runs = key_runs(edit, settings, (&table, tablet), claim, &heap).await?;
        loaded.push((place, tablet, Loaded { heap, runs }));
    }
    let new = loaded.iter().map(|(_, tablet, loaded)| (*tablet, loaded));
    check_unique(edit.database(), &table, &new.collect::<Vec<_>>()).await?;
    let merger = RunMerger::new(edit.database(), device, settings)?;
    let mut tablets = table.tablets.clone();
    let mut row_count = 0;
    for (place, tablet, loaded) in loaded {
        row_count += loaded.heap.row_count();
        let grown = with_rows(edit, tablet, (claim, &merger), loaded).await?;
        if let Some(tablet) = tablets.get_mut(place) {
            *tablet = Arc::new(grown);
        }
    }
    if row_count > 0 {
        edit.put_table(TableState { tablets, ..TableState::clone(&table) });
    }
    Ok(row_count)
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

/// For each index of `tablet`, the run of the keys that the rows of `heap` have.
async fn key_runs(
    edit: &mut CatalogEdit,
    settings: &Arc<Settings>,
    (table, tablet): (&TableState, &TabletState),
    claim: &Arc<Claim>,
    heap: &SegmentDirectory,
) -> Result<Vec<Option<Arc<SegmentDirectory>>>> {
    if tablet.indexes.is_empty() {
        return Ok(Vec::new());
    }
    let database = Arc::clone(edit.database());
    // Its rows are those that the runs are made of.
    let mut new = TabletState { heap: vec![Arc::new(heap.clone())], ..tablet.clone() };
    let run = VersionRun {
        vid_first: tablet.next_vid,
        vid_count: heap.row_count(),
        segment: heap.segment,
    };
    Arc::make_mut(&mut new.version_map).append_run(run)?;
    let new = Arc::new(new);
    let mut runs = Vec::with_capacity(tablet.indexes.len());
    for index in &tablet.indexes {
        let segment = segment_ref(edit, &table.schema)?;
        runs.push(run_of_rows(&database, settings, index.shape(), (&new, claim), segment).await?);
    }
    Ok(runs)
}

#[cfg(test)]
mod tests;
