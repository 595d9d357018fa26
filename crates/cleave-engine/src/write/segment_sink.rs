//! Writes the pages of one segment to a device: encoded pages in, entries of its directory out.
//!
//! 1. [`SegmentSink::push`] gives each page a place in space claimed ahead, and starts to write it; a bounded number of
//!    writes is in flight, so that encoding and writing overlap.
//! 2. [`SegmentSink::finish`] waits for the writes, gives back the claimed space that is left, and returns the entries
//!    in page order.
//!
//! Invariant: pages lie on the media in the order in which they come, so that reading a segment from end to end is a
//! sequential read of its device. Writes are never abandoned, only no longer waited for: each holds the [`Claim`] that
//! keeps its space from being used otherwise.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use cleave_catalog::error::{Error, Result};
use cleave_catalog::storage_error::StorageError;
use cleave_media::{BlockAddress, Extent};
use cleave_store::{EncodedPage, PageEntry, PageKind, PageRef, StoreError, VidGaps};

use crate::device::{Claim, DISK_FULL, PendingWrite};

/// Blocks claimed and reserved ahead, for segments that will grow large: 64 MiB.
pub(crate) const AHEAD_BULK: u32 = 16 << 10;
/// Writes that may be under way.
const WRITES_MAX: usize = 4;

/// Writes the pages of one segment. See the module's description.
pub(crate) struct SegmentSink {
    claim: Arc<Claim>,
    /// Blocks to claim at once; a page larger than that gets its own size.
    ahead_blocks: u32,
    /// Claimed, reserved, not given to a page yet.
    free: Option<Extent>,
    writes: VecDeque<PendingWrite>,
    /// Overflow pages whose owner has not come yet, by page number.
    overflow: BTreeMap<u32, PageRef>,
    entries: Vec<PageEntry>,
}

impl SegmentSink {
    /// A sink into space of `claim`, taken `ahead_blocks` at a time.
    pub(crate) fn new(claim: Arc<Claim>, ahead_blocks: u32) -> Self {
        Self {
            claim,
            ahead_blocks,
            free: None,
            writes: VecDeque::new(),
            overflow: BTreeMap::new(),
            entries: Vec::new(),
        }
    }

    /// Writes a page; where it lies.
    ///
    /// # Errors
    /// Those of this or an earlier write, or of reserving space.
    pub(crate) async fn push(&mut self, page: EncodedPage) -> Result<PageRef> {
        let extent = self.place(page.block_count()).await?;
        let reference = page.page_ref(extent.start);
        let EncodedPage { kind, bytes, vid_first, zones, overflow_first_count, .. } = page;
        self.write(extent.start, bytes.into_bytes()).await?;
        if kind == PageKind::Overflow {
            self.overflow.insert(reference.page, reference);
            return Ok(reference);
        }
        let (first, count) = overflow_first_count;
        let overflow = (first..first.saturating_add(count))
            .map(|number| {
                self.overflow.remove(&number).ok_or_else(|| {
                    Error::from(StorageError::Store(StoreError::Mismatch {
                        what: "a page to be written",
                        reason: format!("its overflow page {number} did not come before it"),
                    }))
                })
            })
            .collect::<Result<Vec<_>>>()?;
        let gaps = VidGaps::none();
        self.entries.push(PageEntry {
            page: reference,
            vid_first,
            gaps,
            overflow,
            shared: Vec::new(),
            zones,
        });
        Ok(reference)
    }

    /// Writes pages in their order.
    ///
    /// # Errors
    /// As [`SegmentSink::push`].
    pub(crate) async fn push_all(&mut self, pages: Vec<EncodedPage>) -> Result<()> {
        for page in pages {
            self.push(page).await?;
        }
        Ok(())
    }

    /// Waits until every page that was pushed has been written; more may follow.
    ///
    /// # Errors
    /// Those of a write.
    pub(crate) async fn write_all(&mut self) -> Result<()> {
        while let Some(write) = self.writes.pop_front() {
            write.ended().await?;
        }
        Ok(())
    }

    /// Waits until every page has been written; their entries, in page order.
    ///
    /// # Errors
    /// Those of a write.
    pub(crate) async fn finish(mut self) -> Result<Vec<PageEntry>> {
        self.write_all().await?;
        if let Some(rest) = self.free.take() {
            self.claim.give_back(rest);
        }
        Ok(self.entries)
    }

    async fn place(&mut self, block_count: u32) -> Result<Extent> {
        if let Some(free) = self.free.filter(|free| free.block_count >= block_count) {
            let start = BlockAddress(free.start.0 + u64::from(block_count));
            let rest = Extent { start, block_count: free.block_count - block_count };
            self.free = Some(rest).filter(|rest| rest.block_count > 0);
            return Ok(Extent { start: free.start, block_count });
        }
        if let Some(rest) = self.free.take() {
            self.claim.give_back(rest);
        }
        let taken = match self.claim.acquire(block_count.max(self.ahead_blocks)).await {
            Err(error) if self.ahead_blocks > block_count && error.sqlstate() == DISK_FULL => {
                // Not that much any more: from now on only what each page needs.
                self.ahead_blocks = 0;
                self.claim.acquire(block_count).await?
            }
            taken => taken?,
        };
        self.free = Some(taken);
        Box::pin(self.place(block_count)).await
    }

    async fn write(&mut self, start: BlockAddress, bytes: Bytes) -> Result<()> {
        if self.writes.len() >= WRITES_MAX
            && let Some(oldest) = self.writes.pop_front()
        {
            oldest.ended().await?;
        }
        self.writes.push_back(self.claim.begin_write(start, bytes));
        Ok(())
    }
}
