//! Page versions that the host makes: of a page, with values that the caller merges into some of its columns.
//!
//! ```text
//!  page, columns ─▶ read ─▶ values here ─▶ merged by the caller ─▶ encoded beside shared chunks ─▶ its entry
//! ```
//!
//! For versions of one transaction [put over](super::page_versions) those of another, and for versions that are [redone
//! by values](super::logged_values). Invariant: VIDs and slots stay as they are.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch};
use arrow::buffer::BooleanBuffer;
use cleave_catalog::error::{Error, Result};
use cleave_fragment::ChangedPage;
use cleave_store::{
    ChangedColumn, OverflowValues, PageColumns, PageEntry, PageRead, PageRef, PageSource,
    Projection, SegmentRef, TableSchema, VidGaps, copied_columns, decode_batch, page_version,
};

use super::change_pages::version_of;
use super::segment_sink::SegmentSink;
use crate::device::Claim;

/// Blocks that are claimed at once for versions.
const AHEAD_BLOCKS: u32 = 64;

/// Writes versions of pages of a tablet of the table that `schema` describes.
pub(super) struct VersionWriter<'a> {
    pages: Arc<dyn PageSource>,
    sink: SegmentSink,
    schema: &'a TableSchema,
}

impl<'a> VersionWriter<'a> {
    /// A writer that reads `pages`, and writes into space of `claim`.
    pub(super) fn new(
        pages: Arc<dyn PageSource>,
        claim: Arc<Claim>,
        schema: &'a TableSchema,
    ) -> Self {
        Self { pages, sink: SegmentSink::new(claim, AHEAD_BLOCKS), schema }
    }

    /// The columns `ids`, by their stable ids, of a page of `segment`.
    ///
    /// # Errors
    /// [`Error::Conflict`] of a column that is not there; those of the device.
    pub(super) async fn values(
        &self,
        (segment, page): (SegmentRef, PageRef),
        ids: &[u32],
    ) -> Result<RecordBatch> {
        let wanted = self.projection(ids)?;
        let read = PageRead { segment, page, columns: wanted.columns.clone() };
        let columns = self.read(&read).await?;
        Ok(decode_batch(&columns, &read, &wanted, None, &OverflowValues::none())?)
    }

    /// The version of the page of `entry` whose columns `ids` have the values that `merged` makes, of the place of a
    /// column among these and its values here. `slots` are those that change. None: one of the columns has long values,
    /// which have no versions.
    ///
    /// # Errors
    /// As [`Self::values`]; those of `merged`.
    pub(super) async fn version(
        &mut self,
        (segment, entry): (SegmentRef, &PageEntry),
        (ids, slots): (&[u32], BooleanBuffer),
        merged: impl Fn(usize, &ArrayRef) -> Result<ArrayRef>,
    ) -> Result<Option<PageEntry>> {
        let wanted = self.projection(ids)?;
        let mut read = PageRead { segment, page: entry.page, columns: wanted.columns.clone() };
        let mut page = self.read(&read).await?;
        let mut chunks = wanted.columns.iter().filter_map(|column| page.header.entry(*column));
        if chunks.any(|chunk| chunk.overflow_count > 0) {
            return Ok(None);
        }
        let here = decode_batch(&page, &read, &wanted, None, &OverflowValues::none())?;
        let columns = ids.iter().zip(here.columns()).enumerate();
        let columns = columns
            .map(|(place, (id, here))| Ok(ChangedColumn { id: *id, values: merged(place, here)? }));
        let columns = columns.collect::<Result<Vec<_>>>()?;
        let copied = copied_columns(&page.header, ids);
        if !copied.is_empty() {
            read.columns = copied;
            page = self.read(&read).await?;
        }
        let version = page_version(&read, &page, &columns)?;
        let zones = version.page.zones.clone();
        let made = PageEntry {
            page: self.sink.push(version.page).await?,
            vid_first: entry.vid_first,
            gaps: VidGaps::none(),
            overflow: Vec::new(),
            shared: version.shared,
            zones,
        };
        // The host has made it.
        let made = version_of(entry, ids, ChangedPage { entry: made, slots });
        made.map(Some).map_err(|_| Error::concurrent_update())
    }

    /// Ends the writes.
    ///
    /// # Errors
    /// Those of the device.
    pub(super) async fn finish(self) -> Result<()> {
        self.sink.finish().await.map(drop)
    }

    fn projection(&self, ids: &[u32]) -> Result<Projection> {
        let place = |id: &u32| self.schema.columns.iter().position(|column| column.id == *id);
        let indices: Option<Vec<usize>> = ids.iter().map(place).collect();
        let indices = indices.ok_or_else(Error::concurrent_update)?;
        Ok(Projection::of_table(self.schema, &indices).nullable())
    }

    async fn read(&self, read: &PageRead) -> Result<PageColumns> {
        let pages = self.pages.read_scattered(vec![read.clone()]).await?;
        pages.into_iter().next().ok_or_else(Error::concurrent_update)
    }
}
