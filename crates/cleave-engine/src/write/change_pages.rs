//! Update fragments on the host's side: runs one in space of a claim, checks its report, and makes a catalog version of
//! it.
//!
//! 1. [`on_device`] reserves space and sends the fragment; [`claimed_pages`] is where the same fragment writes if it
//!    runs on the host.
//! 2. The report names, for each page with changed rows, its page version and the changed slots
//!    ([`read_changed`](cleave_fragment::read_changed)): the paper's delta maps, run-length encoded.
//! 3. [`apply`] compares it with the table that the fragment has read, and puts the page versions into the directories
//!    of their segments; of a DELETE it marks the rows dead. VIDs, version map and indexes stay as they are.
//!
//! Invariants: nothing names the new pages before the statement's transaction commits, which syncs the device first. A
//! device is believed only pages in the space that it was given, over none of its other pages, of rows that are alive.
//! Source: Update NDP, sections 4 and 5.3 (validation), and `docs/design/versions-and-commit.md`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use cleave_catalog::catalog::rewrites::Rewrite;
use cleave_catalog::catalog::{TableState, TabletState};
use cleave_catalog::error::{Error, Result};
use cleave_fragment::command::{DeviceErrorCause, Execute};
use cleave_fragment::link::LinkError;
use cleave_fragment::{ChangedPage, PageSink};
use cleave_media::Extent;
use cleave_store::{PageEntry, SegmentId, TableSchema, ZoneEntry};

use super::key_run::AHEAD_BLOCKS;
use super::load::{made_anew, target};
use super::writing_fragment::{ClaimedPages, give_back_unused};
use crate::device::{Claim, DISK_FULL, Device, Written, WrittenFragment};
use crate::storage_engine::catalog_edit::CatalogEdit;

/// What a device has reported.
pub struct Reported {
    /// The rows of the report.
    pub rows: Vec<RecordBatch>,
    /// The space that it had.
    pub space: Vec<Extent>,
}

/// Runs `request` on the device of `claim`, with space for `block_count` blocks, and more as it needs that. None: it
/// refuses, or the rows fail there, and its space is given back.
///
/// # Errors
/// Those of the link and of the device's media.
pub async fn on_device(
    device: &Arc<Device>,
    claim: &Arc<Claim>,
    request: Execute,
    block_count: u64,
    schema: SchemaRef,
) -> Result<Option<Reported>> {
    let Ok(block_count) = u32::try_from(block_count.max(1)) else { return Ok(None) };
    let reserved = match claim.acquire(block_count).await {
        // There may be room for what is needed, if not for what may be.
        Err(error) if error.sqlstate() == DISK_FULL => return Ok(None),
        reserved => reserved?,
    };
    let header = device.next_run();
    let request = Execute { header, reserved: vec![reserved], extensible: true, ..request };
    let WrittenFragment { outcome, space } = claim.run_fragment(request, schema).await?;
    let error = match outcome {
        Written::Rows(rows) => return Ok(Some(Reported { rows, space })),
        Written::Failed(error) => error,
    };
    let cause = error.device_error().map(|error| error.cause);
    // Full, and there is no more space; or rows that cannot be: the host makes the same, and tells what is wrong.
    use DeviceErrorCause::{DivideByZero, Execution, InvalidValue, OutOfReserved, Overflow};
    let is_ours =
        matches!(cause, Some(OutOfReserved | Execution | DivideByZero | Overflow | InvalidValue));
    if !is_ours && !error.is_refusal() {
        // The space stays with the claim, which knows whether a write may still be under way.
        return Err(fault(device, error));
    }
    space.into_iter().for_each(|extent| claim.give_back(extent));
    Ok(None)
}

fn fault(device: &Device, error: LinkError) -> Error {
    device.fault("run an update fragment", error)
}

/// Where a fragment that runs on the host writes its pages: space of `claim`, over the link. To be
/// [closed](ClaimedPages::close) behind the last one.
pub fn claimed_pages(claim: &Arc<Claim>) -> Arc<ClaimedPages> {
    Arc::new(ClaimedPages::new(Arc::clone(claim), AHEAD_BLOCKS))
}

/// As a sink for the fragment.
pub fn as_sink(pages: &Arc<ClaimedPages>) -> Arc<dyn PageSink> {
    Arc::clone(pages) as Arc<dyn PageSink>
}

/// The change of one tablet that a fragment has reported.
#[derive(Debug)]
pub struct TabletChange<'a> {
    /// The place of the tablet.
    pub place: usize,
    /// The stable ids of the changed columns; empty: the rows die.
    pub columns: &'a [u32],
    /// The pages with changed rows.
    pub pages: Vec<ChangedPage>,
    /// The space that the device had; None: the host wrote the pages itself.
    pub space: Option<Vec<Extent>>,
}

/// Puts `change` into the table that `schema` describes; returns the number of changed rows.
///
/// # Errors
/// [`StorageError::Answer`](cleave_catalog::storage_error::StorageError::Answer) for a report that cannot be of this
/// table; a table that was replaced meanwhile.
pub fn apply(
    edit: &mut CatalogEdit,
    schema: &TableSchema,
    device: &Arc<Device>,
    claim: &Arc<Claim>,
    change: TabletChange<'_>,
) -> Result<u64> {
    let mut table = TableState::clone(&*target(edit, schema)?);
    let TabletChange { place, columns, pages, space } = change;
    let Some(tablet) = table.tablets.get_mut(place) else { return Err(made_anew(&schema.name)) };
    if let Some(space) = space {
        let used = if columns.is_empty() { Vec::new() } else { extents_of(&pages) };
        let unused = give_back_unused(claim, space, used);
        unused.map_err(|reason| device.strange_payload(&reason))?;
    }
    let changed = changed_tablet(tablet, columns, pages);
    let (changed, count) = changed.map_err(|reason| device.strange_payload(&reason))?;
    *tablet = Arc::new(changed);
    edit.put_table(table);
    Ok(count)
}

fn extents_of(pages: &[ChangedPage]) -> Vec<Extent> {
    pages.iter().map(|page| page.entry.page.extent).collect()
}

/// `tablet` with the changes of `pages`, and their rows.
fn changed_tablet(
    tablet: &TabletState,
    columns: &[u32],
    pages: Vec<ChangedPage>,
) -> Result<(TabletState, u64), String> {
    let mut by_first: BTreeMap<u64, ChangedPage> = BTreeMap::new();
    for page in pages {
        let vid_first = page.entry.vid_first;
        if by_first.insert(vid_first, page).is_some() {
            return Err(format!("the page of row {vid_first} was changed twice"));
        }
    }
    let mut next = tablet.clone();
    let mut count = 0;
    let mut touched: BTreeSet<SegmentId> = BTreeSet::new();
    let mut rewrite = Rewrite::new();
    for segment in &mut next.heap {
        for at in 0..segment.pages.len() {
            let Some(entry) = segment.pages.get(at) else { break };
            let Some(changed) = by_first.remove(&entry.vid_first) else { continue };
            if !changed_rows_are_live(tablet, entry, &changed) {
                return Err(format!("rows of page {} are dead, or not there", entry.page.page));
            }
            count += changed.slots.count_set_bits() as u64;
            if columns.is_empty() {
                let map = Arc::make_mut(&mut next.version_map);
                for slot in changed.slots.set_indices() {
                    let slot = u32::try_from(slot).unwrap_or(u32::MAX);
                    map.end(entry.vid_first.saturating_add(entry.gaps.offset_of(slot)));
                }
                continue;
            }
            rewrite.insert(entry.vid_first, (entry.gaps.clone(), changed.slots.clone()));
            let version = version_of(entry, columns, changed)?;
            let segment = Arc::make_mut(segment);
            if touched.insert(segment.segment) {
                segment.revision = segment.revision.saturating_add(1);
            }
            if let Some(entry) = segment.pages.get_mut(at) {
                *entry = version;
            }
        }
    }
    if !rewrite.is_empty() {
        next.rewrites.add(rewrite);
    }
    match by_first.first_key_value() {
        Some((vid_first, _)) => {
            Err(format!("the table has no page that begins with row {vid_first}"))
        }
        None => Ok((next, count)),
    }
}

/// Whether the changed rows are on the page of `entry`, and alive.
fn changed_rows_are_live(tablet: &TabletState, entry: &PageEntry, changed: &ChangedPage) -> bool {
    let dead = tablet.version_map.dead_rows(entry.vid_stretches());
    let is_of_page = changed.entry.page.row_count == entry.page.row_count
        && changed.entry.page.page == entry.page.page
        && changed.slots.count_set_bits() > 0;
    let overlap = dead.bits().filter(|dead| dead.len() == changed.slots.len());
    let is_dead = match overlap {
        Some(dead) => (dead & &changed.slots).count_set_bits() > 0,
        None => dead.slots().any(|slot| slot < changed.slots.len() && changed.slots.value(slot)),
    };
    is_of_page && !is_dead
}

/// The entry of the page version of `entry`.
fn version_of(
    entry: &PageEntry,
    columns: &[u32],
    changed: ChangedPage,
) -> Result<PageEntry, String> {
    let PageEntry { page, shared, zones, .. } = changed.entry;
    let number = page.page;
    let own = std::iter::once(&entry.page.extent).chain(&entry.shared);
    let is_known = |extent: &Extent| own.clone().any(|own| own.contains(*extent));
    if let Some(extent) = shared.iter().find(|extent| !is_known(extent)) {
        return Err(format!("the version of page {number} shares {extent}, which are not its own"));
    }
    if !zones.iter().map(|zone| zone.column).eq(columns.iter().copied()) {
        return Err(format!("the version of page {number} has zones of other columns"));
    }
    let kept = entry.zones.iter().filter(|zone| !columns.contains(&zone.column)).cloned();
    let mut all: Vec<ZoneEntry> = kept.chain(zones).collect();
    let order = |zone: &ZoneEntry| entry.zones.iter().position(|old| old.column == zone.column);
    all.sort_by_key(|zone| (order(zone).unwrap_or(usize::MAX), zone.column));
    Ok(PageEntry {
        page,
        vid_first: entry.vid_first,
        gaps: entry.gaps.clone(),
        overflow: entry.overflow.clone(),
        shared,
        zones: all,
    })
}

#[cfg(test)]
mod tests;
