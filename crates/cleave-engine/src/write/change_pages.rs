//! Update fragments on the host's side: runs one in space of a claim, checks its report, and makes a catalog version of
//! it.
//!
//! 1. [`on_device`] reserves space and sends the fragment; [`claimed_pages`] is where the same fragment writes if it
//!    runs on the host.
//! 2. The report names, for each page with changed rows, its page version and the changed slots
//!    ([`read_changed`](cleave_fragment::read_changed)): the paper's delta maps, run-length encoded.
//! 3. Where the transaction has locked the rows, [`add_versions`] compares it with the table that the fragment has
//!    read, and adds it to the [page versions](super::page_versions) that COMMIT puts in place. Where it has locked the
//!    table, [`apply`] puts them into the table at once; of a DELETE it marks the rows dead. VIDs and indexes stay as
//!    they are.
//!
//! Invariants: nothing names the new pages before the statement's transaction commits, which syncs the device first. A
//! device is believed only pages in the space that it was given, over none of its other pages, of rows that are alive.
//! Source: Update NDP, sections 4 and 5.3 (validation), and `docs/design/versions-and-commit.md`.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::buffer::BooleanBuffer;
use arrow::datatypes::SchemaRef;
use cleave_catalog::catalog::{TableState, TabletState};
use cleave_catalog::error::{ConflictKind, Error, Result};
use cleave_fragment::command::{DeviceErrorCause, Execute, LockRefusal};
use cleave_fragment::link::LinkError;
use cleave_fragment::{ChangedPage, PageSink};
use cleave_media::Extent;
use cleave_store::{PageEntry, TableSchema, VidGaps, ZoneEntry};

use super::key_run::AHEAD_BLOCKS;
use super::load::{made_anew, target};
use super::page_versions::TableVersions;
use super::vid_set::VidSet;
use super::writing_fragment::{ClaimedPages, give_back_unused};
use crate::device::run_witness::RunWitness;
use crate::device::shared_locks::LockingJob;
use crate::device::{Claim, DISK_FULL, Device, Written, WrittenFragment, is_link_of_one_copy};
use crate::storage_engine::catalog_edit::CatalogEdit;

/// What a device has reported.
pub struct Reported {
    /// The rows of the report.
    pub rows: Vec<RecordBatch>,
    /// The space that it had.
    pub space: Vec<Extent>,
}

/// Runs `request`, as the run that its header names, on the device of `claim`, with space for `block_count` blocks, and
/// more as it needs that. It reports rows of `schema`, beside which may come others of so many bytes. None: it refuses,
/// the rows fail there, or there are more of them, and its space is given back. A fragment that locks rows does so for
/// `job`. `witness` is told how it goes on.
///
/// # Errors
/// Those of the link and of the device's media.
pub async fn on_device(
    device: &Arc<Device>,
    claim: &Arc<Claim>,
    request: Execute,
    block_count: u64,
    rows: (SchemaRef, Option<u64>),
    (job, witness): (Option<&Arc<LockingJob>>, Option<Arc<dyn RunWitness>>),
) -> Result<Option<Reported>> {
    let Ok(block_count) = u32::try_from(block_count.max(1)) else { return Ok(None) };
    let reserved = match claim.acquire(block_count).await {
        // There may be room for what is needed, if not for what may be.
        Err(error) if error.sqlstate() == DISK_FULL => return Ok(None),
        reserved => reserved?,
    };
    let request = Execute { reserved: vec![reserved], extensible: true, ..request };
    let kept = job.map(Arc::clone);
    let WrittenFragment { outcome, space, may_write } =
        claim.run_fragment(request, rows, kept, witness).await?;
    match outcome {
        Written::Rows(rows) => return Ok(Some(Reported { rows, space })),
        // The space stays with the claim, which knows whether a write may still be under way.
        Written::Failed(error) => is_left_to_the_host(device, job, error)?,
        Written::TooMuch => {}
    }
    claim.give_back_of_run(space, may_write);
    Ok(None)
}

/// Runs `request`, a query that writes nothing, on `device`; its rows, which may take `bytes_max` bytes, are locked for
/// `job`. None: it refuses, a row fails there, or there are more. `witness` is told how it goes on.
///
/// # Errors
/// Those of the link and of the device.
pub async fn locked_on_device(
    device: &Arc<Device>,
    request: Execute,
    rows: (SchemaRef, u64),
    (job, witness): (&Arc<LockingJob>, Option<Arc<dyn RunWitness>>),
) -> Result<Option<Vec<RecordBatch>>> {
    let claim = Arc::new(Claim::new(Arc::clone(device)));
    let request = Execute { header: device.next_run(), ..request };
    match claim.run_locking(request, rows, Arc::clone(job), witness).await? {
        Written::Rows(rows) => Ok(Some(rows)),
        Written::Failed(error) => is_left_to_the_host(device, Some(job), error).map(|()| None),
        Written::TooMuch => Ok(None),
    }
}

/// Whether the host is to do what has failed on `device` with `error`.
///
/// # Errors
/// If it is not.
fn is_left_to_the_host(
    device: &Device,
    job: Option<&Arc<LockingJob>>,
    error: LinkError,
) -> Result<()> {
    if let Some(LockRefusal::Deadlock) = job.and_then(|job| job.hosted().refusal()) {
        let detail = Some(LockRefusal::Deadlock.to_string());
        return Err(Error::Conflict { kind: ConflictKind::Deadlock, detail });
    }
    let cause = error.device_error().map(|error| error.cause);
    let kind = match cause {
        Some(DeviceErrorCause::LockNotAvailable) => Some(ConflictKind::LockNotAvailable),
        Some(DeviceErrorCause::LockTimeout) => Some(ConflictKind::LockTimeout),
        _ => None,
    };
    if let Some(kind) = kind {
        let detail = error.device_error().map(|refused| refused.message.clone());
        return Err(Error::Conflict { kind, detail });
    }
    // Full, and there is no more space; or rows that cannot be: the host makes the same, and tells what is wrong.
    use DeviceErrorCause::{DivideByZero, Execution, InvalidValue, OutOfReserved, Overflow};
    let is_ours =
        matches!(cause, Some(OutOfReserved | Execution | DivideByZero | Overflow | InvalidValue));
    // The host reads another copy.
    let is_of_one_copy = device.is_mirror() && is_link_of_one_copy(&error);
    match is_ours || error.is_refusal() || is_of_one_copy {
        true => Ok(()),
        false => Err(fault(device, error)),
    }
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
    if table.tablets.get(place).is_none() {
        return Err(made_anew(&schema.name));
    }
    if let Some(space) = space {
        let used = if columns.is_empty() { Vec::new() } else { extents_of(&pages) };
        take_space(device, claim, space, used)?;
    }
    let strange = |reason: String| device.strange_payload(&reason);
    let count = if columns.is_empty() {
        let Some(tablet) = table.tablets.get_mut(place) else { return Ok(0) };
        let dead = ended(tablet, pages).map_err(strange)?;
        let map = Arc::make_mut(&mut Arc::make_mut(tablet).version_map);
        for vid in dead.iter() {
            map.end(vid);
        }
        dead.len() as u64
    } else {
        let versions = TableVersions::default();
        let made = versions.with_changed((&table, place), columns, pages);
        let (versions, count) = made.map_err(strange)?;
        table = versions.commit(&table)?;
        count
    };
    edit.put_table(table);
    Ok(count)
}

/// Gives back what is left of `space`, which the device had, beside the `used` parts that it has reported.
fn take_space(device: &Device, claim: &Claim, space: Vec<Extent>, used: Vec<Extent>) -> Result<()> {
    let unused = give_back_unused(claim, space, used);
    unused.map_err(|reason| device.strange_payload(&reason))
}

/// `versions` of a transaction with `change` of `table`, which the fragment has read; and the number of changed rows.
///
/// # Errors
/// [`StorageError::Answer`](cleave_catalog::storage_error::StorageError::Answer) for a report that cannot be of this
/// table.
pub fn add_versions(
    versions: &TableVersions,
    table: &TableState,
    (device, claim): (&Arc<Device>, &Arc<Claim>),
    change: TabletChange<'_>,
) -> Result<(TableVersions, u64)> {
    let TabletChange { place, columns, pages, space } = change;
    if let Some(space) = space {
        take_space(device, claim, space, extents_of(&pages))?;
    }
    let made = versions.with_changed((table, place), columns, pages);
    made.map_err(|reason| device.strange_payload(&reason))
}

/// The rows that `change`, a DELETE from `table`, which the fragment has read, reports as dead.
///
/// # Errors
/// As [`add_versions`].
pub fn ended_rows(
    table: &TableState,
    (device, claim): (&Arc<Device>, &Arc<Claim>),
    change: TabletChange<'_>,
) -> Result<VidSet> {
    let TabletChange { place, pages, space, .. } = change;
    if let Some(space) = space {
        take_space(device, claim, space, Vec::new())?;
    }
    let tablet = table.tablets.get(place).ok_or_else(|| made_anew(&table.schema.name))?;
    ended(tablet, pages).map_err(|reason| device.strange_payload(&reason))
}

fn extents_of(pages: &[ChangedPage]) -> Vec<Extent> {
    pages.iter().map(|page| page.entry.page.extent).collect()
}

/// The rows of `tablet` that `pages`, the report of a DELETE, say are to die.
fn ended(tablet: &TabletState, pages: Vec<ChangedPage>) -> Result<VidSet, String> {
    let mut ended = VidSet::default();
    for (entry, changed) in reported(tablet, pages)? {
        ended.extend(changed_vids(entry.vid_first, &entry.gaps, &changed.slots));
    }
    Ok(ended)
}

/// The VIDs of the rows `slots` of a page that begins with `vid_first` and has these gaps.
pub(super) fn changed_vids<'a>(
    vid_first: u64,
    gaps: &'a VidGaps,
    slots: &'a BooleanBuffer,
) -> impl Iterator<Item = u64> + 'a {
    slots.set_indices().map(move |slot| {
        let slot = u32::try_from(slot).unwrap_or(u32::MAX);
        vid_first.saturating_add(gaps.offset_of(slot))
    })
}

/// Each page of `tablet` that a fragment reports, with its report: of rows that are there, and alive.
pub(super) fn reported(
    tablet: &TabletState,
    pages: Vec<ChangedPage>,
) -> Result<Vec<(&PageEntry, ChangedPage)>, String> {
    let mut by_first: BTreeMap<u64, ChangedPage> = BTreeMap::new();
    for page in pages {
        let vid_first = page.entry.vid_first;
        if by_first.insert(vid_first, page).is_some() {
            return Err(format!("the page of row {vid_first} was changed twice"));
        }
    }
    let mut reported = Vec::with_capacity(by_first.len());
    for entry in tablet.heap.iter().flat_map(|segment| &segment.pages) {
        let Some(changed) = by_first.remove(&entry.vid_first) else { continue };
        let is_of_page = changed.entry.page.row_count == entry.page.row_count
            && changed.entry.page.page == entry.page.page;
        if !is_of_page || !changed_rows_are_live(tablet, entry, &changed.slots) {
            return Err(format!("rows of page {} are dead, or not there", entry.page.page));
        }
        reported.push((entry, changed));
    }
    match by_first.first_key_value() {
        Some((vid_first, _)) => {
            Err(format!("the table has no page that begins with row {vid_first}"))
        }
        None => Ok(reported),
    }
}

/// Whether the rows `slots` are on the page of `entry`, at least one of them, and alive.
fn changed_rows_are_live(tablet: &TabletState, entry: &PageEntry, slots: &BooleanBuffer) -> bool {
    let dead = tablet.version_map.dead_rows(entry.vid_stretches());
    let overlap = dead.bits().filter(|dead| dead.len() == slots.len());
    let is_dead = match overlap {
        Some(dead) => (dead & slots).count_set_bits() > 0,
        None => dead.slots().any(|slot| slot < slots.len() && slots.value(slot)),
    };
    slots.count_set_bits() > 0 && !is_dead
}

/// The entry of the page version of `entry`.
pub(super) fn version_of(
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
