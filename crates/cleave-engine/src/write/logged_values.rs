//! Redo of page versions by values: columns of a page as the log's overflow has them in, versions of the pages that
//! have these rows here out.
//!
//! ```text
//!  overflow   VIDs 0 … 99 of `price`             (one page of the lost database)
//!  here       page A: VIDs 0 … 59 ─▶ A'  page B: VIDs 60 … 130 ─▶ B'
//! ```
//!
//! A restored database has the same rows with the same VIDs, and may have them on other pages: rows that came by small
//! commits were flushed at other times. So the values are looked up by VID. They are what was committed then, also
//! those of rows that the transaction did not change; rows that have died since are passed over.
//!
//! Invariant: VIDs and slots stay as they are. Source: Update NDP, section 6.2 (extended logging), and
//! `docs/design/versions-and-commit.md`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, RecordBatch};
use arrow::buffer::BooleanBuffer;
use arrow::compute::interleave;
use cleave_catalog::catalog::TableState;
use cleave_catalog::error::{Error, Result};
use cleave_catalog::settings::Stack;
use cleave_catalog::storage_error::StorageError;
use cleave_store::{PageEntry, SegmentRef, TableSchema, VidGaps};

use super::version_writer::VersionWriter;
use crate::storage_engine::catalog_edit::CatalogEdit;

/// Columns of one page, as they were committed.
#[derive(Debug, Clone)]
pub struct LoggedValues {
    /// The VID of the first row.
    pub vid_first: u64,
    /// Where the VIDs of its rows are not consecutive.
    pub gaps: VidGaps,
    /// The stable ids of the columns.
    pub columns: Vec<u32>,
    /// Their values, by slot.
    pub values: RecordBatch,
}

/// Puts `logged` into the tablet at `place` of the table `id` of `edit`, whose rows are all in pages.
///
/// # Errors
/// [`StorageError::PointInTime`] for a page whose long values cannot be replaced; [`Error::Conflict`] of a table or
/// column that is not there; those of the device.
pub async fn put(
    edit: &mut CatalogEdit,
    (id, place): (u32, usize),
    logged: &[LoggedValues],
) -> Result<()> {
    let database = Arc::clone(edit.database());
    let table = edit.next.table_by_id(id).ok_or_else(Error::concurrent_update)?;
    let mut next = TableState::clone(table);
    let table = Arc::clone(table);
    let tablet = table.tablets.get(place).ok_or_else(Error::concurrent_update)?;
    let claim = edit.claim(&database.attached(tablet.device)?);
    let pages = database.page_source(tablet.device, Stack::Native)?;
    let mut writer = VersionWriter::new(pages, claim, &table.schema);
    let by_vid = ByVid::of(logged);
    let mut made: BTreeMap<(usize, usize), PageEntry> = BTreeMap::new();
    for (number, segment) in tablet.heap.iter().enumerate() {
        for (at, entry) in segment.pages.iter().enumerate() {
            let sources = by_vid.over(entry);
            if !sources.is_empty() {
                let version =
                    version(&mut writer, (segment.segment_ref(), entry), &sources).await?;
                let version = version.ok_or_else(|| has_long_values(&table.schema, entry))?;
                made.insert((number, at), version);
            }
        }
    }
    writer.finish().await?;
    if let Some(tablet) = next.tablets.get_mut(place).map(Arc::make_mut) {
        for (number, segment) in tablet.heap.iter_mut().enumerate() {
            let of_segment: Vec<_> = made.range((number, 0)..=(number, usize::MAX)).collect();
            if of_segment.is_empty() {
                continue;
            }
            let segment = Arc::make_mut(segment);
            segment.revision = segment.revision.saturating_add(1);
            for ((_, at), version) in of_segment {
                if let Some(entry) = segment.pages.get_mut(*at) {
                    *entry = version.clone();
                }
            }
        }
    }
    edit.put_table(next);
    Ok(())
}

/// Logged pages by the VIDs of their rows.
struct ByVid<'a> {
    /// By first VID: the last one, and the greatest of the last ones up to here.
    pages: Vec<(&'a LoggedValues, u64, u64)>,
}

impl<'a> ByVid<'a> {
    fn of(logged: &'a [LoggedValues]) -> Self {
        let mut logged: Vec<&LoggedValues> = logged.iter().collect();
        logged.sort_by_key(|page| page.vid_first);
        let mut greatest = 0;
        let pages = logged.into_iter().map(|page| {
            let last = last_vid(page.vid_first, &page.gaps, page.values.num_rows());
            greatest = last.max(greatest);
            (page, last, greatest)
        });
        Self { pages: pages.collect() }
    }

    /// Logged pages with rows of the page of `entry`: for each slot, that in the logged page.
    fn over(&self, entry: &PageEntry) -> Vec<Source<'a>> {
        let rows = usize::try_from(entry.page.row_count).unwrap_or(usize::MAX);
        let (first, last) = (entry.vid_first, last_vid(entry.vid_first, &entry.gaps, rows));
        let behind = self.pages.partition_point(|(page, _, _)| page.vid_first <= last);
        let candidates = self.pages.iter().take(behind).rev();
        // A page that was pruned may have the rows of others between its own.
        let candidates = candidates.take_while(|(_, _, greatest)| *greatest >= first);
        let overlap = candidates.filter(|(_, last, _)| *last >= first);
        let source = |(page, _, _): &(&'a LoggedValues, u64, u64)| {
            let slot = |slot: u32| {
                let vid = first.saturating_add(entry.gaps.offset_of(slot));
                let slot = page.gaps.slot_at(vid.checked_sub(page.vid_first)?)?;
                usize::try_from(slot).ok().filter(|slot| *slot < page.values.num_rows())
            };
            let slots: Vec<Option<usize>> = (0..entry.page.row_count).map(slot).collect();
            slots.iter().any(Option::is_some).then_some(Source { page, slots })
        };
        overlap.filter_map(source).collect()
    }
}

fn last_vid(first: u64, gaps: &VidGaps, rows: usize) -> u64 {
    let last = u32::try_from(rows.saturating_sub(1)).unwrap_or(u32::MAX);
    first.saturating_add(gaps.offset_of(last))
}

/// A logged page with rows of a page here.
struct Source<'a> {
    page: &'a LoggedValues,
    /// For each slot here, that in the logged page.
    slots: Vec<Option<usize>>,
}

/// The page of `entry` with the values of `sources`. None: it has long values in one of their columns.
async fn version(
    writer: &mut VersionWriter<'_>,
    page: (SegmentRef, &PageEntry),
    sources: &[Source<'_>],
) -> Result<Option<PageEntry>> {
    let ids: BTreeSet<u32> =
        sources.iter().flat_map(|source| &source.page.columns).copied().collect();
    let ids: Vec<u32> = ids.into_iter().collect();
    let values = |place: usize, here: &ArrayRef| match ids.get(place) {
        Some(id) => merged(*id, here, sources),
        None => Ok(Arc::clone(here)),
    };
    writer.version(page, (&ids, BooleanBuffer::new_unset(0)), values).await
}

fn has_long_values(schema: &TableSchema, entry: &PageEntry) -> Error {
    let (page, table) = (entry.page.page, &schema.name);
    let reason = format!(
        "page {page} of \"{table}\" has long values in a column of which an update fragment has changed other \
             rows; restore a backup that was made after that"
    );
    StorageError::PointInTime { reason }.into()
}

/// The values of the column `id` on a page that has `here`: those of `sources`, where they have the row.
fn merged(id: u32, here: &ArrayRef, sources: &[Source<'_>]) -> Result<ArrayRef> {
    let mut arrays: Vec<&dyn Array> = vec![here];
    let mut picks: Vec<(usize, usize)> = (0..here.len()).map(|slot| (0, slot)).collect();
    for source in sources {
        let place = source.page.columns.iter().position(|column| *column == id);
        let Some(values) = place.map(|place| source.page.values.column(place)) else { continue };
        for (pick, slot) in picks.iter_mut().zip(&source.slots) {
            if let Some(slot) = slot {
                *pick = (arrays.len(), *slot);
            }
        }
        arrays.push(values);
    }
    Ok(interleave(&arrays, &picks)?)
}
