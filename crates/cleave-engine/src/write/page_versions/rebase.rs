//! Page versions of one transaction put over those of another: rows of one page that both have changed side by side.
//!
//! ```text
//!  page A ─┬─▶ A1: slots 0, 3   committed          ─▶ A2 over A1: slots 0, 3 of A1, slots 5, 7 of A2
//!          └─▶ A2: slots 5, 7   of this transaction
//! ```
//!
//! Each transaction has locked its rows, so their slots are disjoint. The changed columns are read of both pages; the
//! rows of this transaction come from its own version, all others from the committed one. The version is made on the
//! host and replaces the transaction's own.
//!
//! Invariant: the outcome has each row as whoever has its lock made it. Source: `docs/design/versions-and-commit.md`.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef};
use arrow::compute::interleave;
use cleave_catalog::catalog::{DeviceId, TableState};
use cleave_catalog::error::{Error, Result};
use cleave_catalog::settings::Stack;
use cleave_fragment::ChangedPage;
use cleave_store::{
    ChangedColumn, ColumnRef, OverflowValues, PageColumns, PageEntry, PageRead, PageSource,
    Projection, SegmentRef, TableSchema, copied_columns, decode_batch, page_version,
};

use super::{PageVersion, TableVersions, TabletVersions, is_same_place, is_set};
use crate::device::Claim;
use crate::storage_engine::Engine;
use crate::write::change_pages::version_of;
use crate::write::segment_sink::SegmentSink;

/// Blocks that are claimed at once for versions.
const AHEAD_BLOCKS: u32 = 64;

impl TableVersions {
    /// The same over the pages of `table`, the newest version of the table; None: they are so already.
    ///
    /// # Errors
    /// [`Error::Conflict`] of a page that is gone, or has no such version; those of the device.
    pub async fn rebased(
        &self,
        engine: &Engine,
        table: &TableState,
        claims: &BTreeMap<DeviceId, Arc<Claim>>,
    ) -> Result<Option<Self>> {
        let mut rebased = BTreeMap::new();
        for (place, versions) in &self.tablets {
            let tablet = table.tablets.get(*place).ok_or_else(Error::concurrent_update)?;
            let newest = tablet.heap.iter().flat_map(|segment| {
                let pages = segment.pages.iter();
                pages.map(|entry| (segment.segment_ref(), entry))
            });
            let replaced: Vec<(SegmentRef, &PageEntry)> =
                newest.filter(|(_, entry)| versions.lacks(entry)).collect();
            if replaced.is_empty() {
                continue;
            }
            let mut pages = versions.pages.clone();
            let device = versions.device;
            let claim = claims.get(&device).ok_or_else(Error::concurrent_update)?;
            let mut merging = Merging {
                pages: engine.page_source(device, Stack::Native)?,
                sink: SegmentSink::new(Arc::clone(claim), AHEAD_BLOCKS),
                schema: &table.schema,
            };
            for (segment, entry) in replaced {
                let Some(own) = versions.pages.get(&entry.vid_first) else { continue };
                let merged = merging.merge((segment, entry), own).await?;
                pages.insert(entry.vid_first, Arc::new(merged));
            }
            drop(merging.sink.finish().await?);
            rebased.insert(*place, TabletVersions { device, pages });
        }
        if rebased.is_empty() {
            return Ok(None);
        }
        let mut tablets = self.tablets.clone();
        tablets.extend(rebased);
        Ok(Some(Self { tablets, ..Self::default() }))
    }
}

impl TabletVersions {
    /// Whether there is a version of the page of `entry` that replaces another version of it.
    fn lacks(&self, entry: &PageEntry) -> bool {
        let own = self.pages.get(&entry.vid_first);
        own.is_some_and(|own| own.replaced != entry.page)
    }
}

struct Merging<'a> {
    pages: Arc<dyn PageSource>,
    sink: SegmentSink,
    schema: &'a TableSchema,
}

impl Merging<'_> {
    /// `own` over the committed page of `entry`.
    async fn merge(
        &mut self,
        (segment, entry): (SegmentRef, &PageEntry),
        own: &PageVersion,
    ) -> Result<PageVersion> {
        if !is_same_place(&own.replaced, &entry.page) || own.entry.gaps != entry.gaps {
            return Err(Error::concurrent_update());
        }
        let place = |id: &u32| self.schema.columns.iter().position(|column| column.id == *id);
        let indices: Option<Vec<usize>> = own.columns.iter().map(place).collect();
        let indices = indices.ok_or_else(Error::concurrent_update)?;
        let wanted = Projection::of_table(self.schema, &indices).nullable();
        let mut read = PageRead { segment, page: entry.page, columns: wanted.columns.clone() };
        let of_own = PageRead { page: own.entry.page, ..read.clone() };
        let mut page = self.read(&read).await?;
        // Long values have no versions.
        let has_overflow = |column: &ColumnRef| {
            page.header.entry(*column).is_some_and(|chunk| chunk.overflow_count > 0)
        };
        if wanted.columns.iter().any(has_overflow) {
            return Err(Error::concurrent_update());
        }
        let none = OverflowValues::none();
        let committed = decode_batch(&page, &read, &wanted, None, &none)?;
        let changed = decode_batch(&self.read(&of_own).await?, &of_own, &wanted, None, &none)?;
        let rows = usize::try_from(entry.page.row_count).unwrap_or(usize::MAX);
        let picks: Vec<(usize, usize)> =
            (0..rows).map(|slot| (usize::from(is_set(&own.slots, slot)), slot)).collect();
        let merged = |place: usize| -> Result<ArrayRef> {
            let sources: [&dyn Array; 2] = [committed.column(place), changed.column(place)];
            Ok(interleave(&sources, &picks)?)
        };
        let columns = own.columns.iter().enumerate();
        let columns =
            columns.map(|(place, id)| Ok(ChangedColumn { id: *id, values: merged(place)? }));
        let columns = columns.collect::<Result<Vec<_>>>()?;
        let copied = copied_columns(&page.header, &own.columns);
        if !copied.is_empty() {
            read.columns = copied;
            page = self.read(&read).await?;
        }
        let version = page_version(&read, &page, &columns)?;
        let zones = version.page.zones.clone();
        let made = PageEntry {
            page: self.sink.push(version.page).await?,
            vid_first: entry.vid_first,
            gaps: Default::default(),
            overflow: Vec::new(),
            shared: version.shared,
            zones,
        };
        let made = ChangedPage { entry: made, slots: own.slots.clone() };
        // The host has made it.
        let made = version_of(entry, &own.columns, made).map_err(|_| Error::concurrent_update())?;
        Ok(PageVersion { replaced: entry.page, entry: made, ..own.clone() })
    }

    async fn read(&self, read: &PageRead) -> Result<PageColumns> {
        let pages = self.pages.read_scattered(vec![read.clone()]).await?;
        pages.into_iter().next().ok_or_else(Error::concurrent_update)
    }
}
