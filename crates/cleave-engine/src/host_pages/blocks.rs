//! Stack `blk`: whole pages as a block device gives them, with read-ahead.
//!
//! Where a read begins at the block at which an earlier one ended, the blocks behind it are requested ahead, as an
//! operating system does for a file. Blocks that were read ahead are used only if they verify as the page that is
//! wanted; else, or if reading ahead failed, the page is read again, and that read reports what is wrong.
//!
//! Invariant: one page source holds at most [`AHEAD_COUNT`] reads ahead, of at most [`AHEAD_BLOCKS`] blocks each.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, MutexGuard, PoisonError};

use bytes::Bytes;
use cleave_catalog::error::{Error, Result};
use cleave_fragment::command::{ReadItem, ReadPayload};
use cleave_media::{BLOCK_SIZE, BlockAddress, Extent};
use cleave_store::PageRead;
use datafusion_common_runtime::SpawnedTask;
use futures::FutureExt;
use futures::future::{BoxFuture, Shared};

use super::HostPages;
use super::linked::checked;
use super::partial::{PartialPage, WholePage};
use crate::buffer_pool::{CachedPart, Part};
use crate::device::Device;

/// Most reads ahead that one page source holds.
const AHEAD_COUNT: usize = 4;
/// Most blocks of one read ahead: a large page.
const AHEAD_BLOCKS: u32 = 1024;
/// Fewest blocks of one read ahead, for small pages.
const AHEAD_BLOCKS_MIN: u32 = 32;
/// Ends of earlier reads that are remembered, one for each stream that may be under way.
const ENDS_COUNT: usize = 64;

/// What one page source reads ahead.
#[derive(Debug, Default)]
pub(super) struct Ahead {
    reads: VecDeque<AheadRead>,
    ends: VecDeque<BlockAddress>,
}

/// Blocks on their way, or here.
#[derive(Clone)]
struct AheadRead {
    extent: Extent,
    blocks: Shared<BoxFuture<'static, Option<Bytes>>>,
}

impl HostPages {
    /// Reads the missing pages whole, and starts to read those behind them.
    pub(super) async fn fetch_blocks(
        &self,
        reads: &[PageRead],
        pages: &mut [PartialPage],
    ) -> Result<()> {
        if self.device.is_mirror() {
            return self.fetch_from_copies(reads, pages).await;
        }
        let mut missing = Vec::new();
        for (read, page) in reads.iter().zip(pages).filter(|(_, page)| !page.is_complete()) {
            let early = self.ahead().covering(read.page.extent);
            missing.push((read, page, early));
        }
        let unexpected = missing.iter().filter(|(_, _, early)| early.is_none());
        let items: Vec<ReadItem> =
            unexpected.map(|(read, _, _)| ReadItem::Blocks(read.page.extent)).collect();
        self.read_ahead(missing.iter().map(|(read, _, _)| read.page.extent));
        let mut fetched = self.device.read(items).await?.into_iter();
        for (read, page, early) in missing {
            let mut whole = match early {
                None => self.believe(&self.device, read, fetched.next()).await?,
                Some(early) => match self.believe_early(read, early).await {
                    Some(whole) => whole,
                    None => {
                        let item = ReadItem::Blocks(read.page.extent);
                        let again = self.device.read(vec![item]).await?.into_iter().next();
                        self.believe(&self.device, read, again).await?
                    }
                },
            };
            self.fetch_shared(&self.device, &mut whole).await?;
            page.fill_whole(whole.columns(read)?);
            self.pool.put(self.key(&read.page, Part::Whole), CachedPart::Page(Arc::new(whole)));
        }
        Ok(())
    }

    /// The same of a mirror: each page from a copy that has it, and none ahead.
    async fn fetch_from_copies(&self, reads: &[PageRead], pages: &mut [PartialPage]) -> Result<()> {
        for (read, page) in reads.iter().zip(pages) {
            if page.is_complete() {
                continue;
            }
            let fetched = self.device.ask_pages(|copy| {
                async move {
                    let item = ReadItem::Blocks(read.page.extent);
                    let payload = copy.read(vec![item]).await?.into_iter().next();
                    let mut whole = self.believe(&copy, read, payload).await?;
                    self.fetch_shared(&copy, &mut whole).await?;
                    let columns = whole.columns(read)?;
                    Ok::<_, Error>((whole, columns))
                }
                .boxed()
            });
            let (whole, columns) = fetched.await?;
            page.fill_whole(columns);
            self.pool.put(self.key(&read.page, Part::Whole), CachedPart::Page(Arc::new(whole)));
        }
        Ok(())
    }

    /// Reads what a page version shares with earlier ones.
    async fn fetch_shared(&self, device: &Device, whole: &mut WholePage) -> Result<()> {
        let extents = whole.shared_extents();
        if extents.is_empty() {
            return Ok(());
        }
        let items = extents.iter().map(|extent| ReadItem::Blocks(*extent)).collect();
        let fetched = device.read(items).await?;
        for (extent, payload) in extents.iter().zip(fetched) {
            let ReadPayload::Blocks(blocks) = payload else {
                return Err(device.strange_payload("columns where blocks were asked for"));
            };
            self.note_link(blocks.len());
            whole.add_shared(extent.start, blocks);
        }
        Ok(())
    }

    /// The page out of what `device` answered.
    async fn believe(
        &self,
        device: &Device,
        read: &PageRead,
        payload: Option<ReadPayload>,
    ) -> Result<WholePage> {
        match payload {
            Some(ReadPayload::Blocks(blocks)) => {
                self.note_link(blocks.len());
                checked(device, WholePage::new(read, blocks)).await
            }
            _ => Err(device.strange_payload("columns where blocks were asked for")),
        }
    }

    /// The page out of what was read ahead; `None` where that is not the page.
    async fn believe_early(&self, read: &PageRead, early: AheadRead) -> Option<WholePage> {
        let blocks = early.blocks.await?;
        let start = read.page.extent.start.0.checked_sub(early.extent.start.0)?;
        let start = usize::try_from(start).ok()?.checked_mul(BLOCK_SIZE)?;
        let end = start.checked_add(read.page.extent.bytes())?;
        let slice = blocks.get(start..end)?;
        // A page of its own keeps no neighbours in memory.
        let page = if slice.len() == blocks.len() {
            blocks.clone()
        } else {
            Bytes::copy_from_slice(slice)
        };
        let whole = WholePage::new(read, page).ok()?;
        if whole.shared_extents().is_empty() {
            whole.columns(read).ok()?;
        }
        self.note_link(slice.len());
        Some(whole)
    }

    /// Starts to read what lies behind `extents`, if they continue an earlier read.
    fn read_ahead(&self, extents: impl Iterator<Item = Extent>) {
        let high_water = self.device.space().high_water;
        let mut ahead = self.ahead();
        let mut last: Option<Extent> = None;
        let mut sequential = false;
        for extent in extents {
            sequential |= ahead.ends.contains(&extent.start);
            last = Some(extent);
        }
        let Some(last) = last else { return };
        let start = last.end();
        if ahead.ends.len() == ENDS_COUNT {
            ahead.ends.pop_front();
        }
        ahead.ends.push_back(start);
        let left = u32::try_from(high_water.saturating_sub(start.0)).unwrap_or(u32::MAX);
        let wanted =
            if last.block_count < AHEAD_BLOCKS_MIN { AHEAD_BLOCKS_MIN } else { last.block_count };
        let next = Extent { start, block_count: wanted.min(AHEAD_BLOCKS).min(left) };
        if !sequential
            || next.block_count == 0
            || ahead.covering(Extent { block_count: 1, ..next }).is_some()
        {
            return;
        }
        let device = Arc::clone(&self.device);
        let task = SpawnedTask::spawn(async move {
            let payload =
                device.read(vec![ReadItem::Blocks(next)]).await.ok()?.into_iter().next()?;
            match payload {
                ReadPayload::Blocks(blocks) => Some(blocks),
                ReadPayload::Columns { .. } => None,
            }
        });
        let blocks = task.map(|outcome| outcome.ok().flatten()).boxed().shared();
        if ahead.reads.len() == AHEAD_COUNT {
            ahead.reads.pop_front();
        }
        ahead.reads.push_back(AheadRead { extent: next, blocks });
    }

    fn ahead(&self) -> MutexGuard<'_, Ahead> {
        self.ahead.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ahead {
    /// The read ahead that holds all of `extent`.
    fn covering(&self, extent: Extent) -> Option<AheadRead> {
        self.reads.iter().find(|read| read.extent.contains(extent)).cloned()
    }
}

impl fmt::Debug for AheadRead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AheadRead").field("extent", &self.extent).finish_non_exhaustive()
    }
}
