//! Shipped pages: the newest rows of a snapshot, encoded as pages in memory, beside the pages of a source.
//!
//! The creator of a snapshot encodes rows that are in no page yet as pages of segments of their own
//! ([`SegmentId::is_shipped`]), at addresses from [`SHIPPED_START`] on. A reader of the snapshot gets them with it, and
//! keeps them for as long as it reads: [`ShippedPages::over`] serves them beside all others.
//!
//! Invariant: the code that reads and verifies pages of media also reads and verifies these: a reference to one carries
//! the checksum of its header, and the header those of its chunks.
//! Source: the Update NDP paper, 2.3.3 (*shipped & cache*); rule 14.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use bytes::Bytes;
use cleave_media::{AlignedBuffer, BLOCK_SIZE, BlockAddress, Extent, Media, MediaError};
use futures::FutureExt;
use futures::future::{BoxFuture, ready};

use super::{MediaPages, PageColumns, PageRead, PageRef, PageSource, SegmentRef};
use crate::decode::OpenedPage;
use crate::error::StoreError;
use crate::ids::SegmentId;

/// The first address of shipped pages: no media is as large.
pub const SHIPPED_START: BlockAddress = BlockAddress(1 << 48);

/// The blocks of shipped pages, page by page.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct ShippedPages {
    by_start: BTreeMap<u64, Bytes>,
    byte_count: usize,
}

impl ShippedPages {
    /// `pages`, each with its first block.
    ///
    /// # Errors
    /// [`StoreError::Mismatch`] for addresses before [`SHIPPED_START`], given twice, or of pages that overlap, and for
    /// bytes that are not whole blocks.
    pub fn new(
        pages: impl IntoIterator<Item = (BlockAddress, Bytes)>,
    ) -> Result<Arc<Self>, StoreError> {
        let mut shipped = Self::default();
        for (start, bytes) in pages {
            if start < SHIPPED_START || bytes.is_empty() || bytes.len() % BLOCK_SIZE != 0 {
                return Err(refused(format!("{} bytes at block {}", bytes.len(), start.0)));
            }
            shipped.byte_count += bytes.len();
            match shipped.by_start.entry(start.0) {
                Entry::Vacant(place) => place.insert(bytes),
                Entry::Occupied(_) => return Err(refused(format!("two at block {}", start.0))),
            };
        }
        let ends = shipped.by_start.iter().map(|(start, bytes)| {
            // Addresses near the last one have no blocks behind them.
            start.checked_add((bytes.len() / BLOCK_SIZE) as u64)
        });
        let nexts = shipped.by_start.keys().skip(1).map(|next| Some(*next)).chain([None]);
        for (end, next) in ends.zip(nexts) {
            if end.is_none() || next.is_some() && end > next {
                return Err(refused("pages that overlap".to_owned()));
            }
        }
        Ok(Arc::new(shipped))
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_start.is_empty()
    }

    /// Bytes of all of them.
    #[must_use]
    pub fn byte_count(&self) -> usize {
        self.byte_count
    }

    /// Each page, with its first block.
    pub fn pages(&self) -> impl Iterator<Item = (BlockAddress, &Bytes)> {
        self.by_start.iter().map(|(start, bytes)| (BlockAddress(*start), bytes))
    }

    /// The first address behind all of them.
    #[must_use]
    pub fn end(&self) -> BlockAddress {
        let last = self.by_start.last_key_value();
        let end =
            last.map(|(start, bytes)| start.saturating_add((bytes.len() / BLOCK_SIZE) as u64));
        BlockAddress(end.unwrap_or(SHIPPED_START.0))
    }

    /// The blocks of `page`, if it is one of them.
    #[must_use]
    pub fn get(&self, page: &PageRef) -> Option<&Bytes> {
        self.by_start.get(&page.extent.start.0)
    }

    /// A source of these pages and all pages of `source`.
    #[must_use]
    pub fn over(self: &Arc<Self>, source: Arc<dyn PageSource>) -> Arc<dyn PageSource> {
        match self.is_empty() {
            true => source,
            false => Arc::new(WithShipped {
                shipped: MediaPages::new(Arc::new(ShippedMedia(Arc::clone(self)))),
                source,
            }),
        }
    }
}

impl SegmentId {
    /// Whether its pages are shipped with a snapshot, and lie on no media.
    #[must_use]
    pub fn is_shipped(self) -> bool {
        self.0 >= crate::ids::SHIPPED_SEGMENT_FIRST
    }
}

/// The shipped pages as media, so that the code for pages of media reads them.
#[derive(Debug)]
struct ShippedMedia(Arc<ShippedPages>);

impl Media for ShippedMedia {
    fn read(&self, extent: Extent) -> Result<AlignedBuffer, MediaError> {
        let page = self.0.by_start.range(..=extent.start.0).next_back();
        let blocks = page.and_then(|(start, bytes)| {
            let from = usize::try_from(extent.start.0.checked_sub(*start)?).ok()?;
            let from = from.checked_mul(BLOCK_SIZE)?;
            bytes.get(from..from.checked_add(extent.bytes())?)
        });
        match blocks {
            Some(blocks) => Ok(AlignedBuffer::copy_of(blocks)),
            None => Err(MediaError::OutOfRange { extent, block_count: self.block_count() }),
        }
    }

    fn write(&self, start: BlockAddress, _data: &[u8]) -> Result<(), MediaError> {
        let extent = Extent { start, block_count: 0 };
        Err(MediaError::OutOfRange { extent, block_count: 0 })
    }

    fn sync(&self) -> Result<(), MediaError> {
        Ok(())
    }

    fn block_count(&self) -> u64 {
        match self.0.is_empty() {
            true => 0,
            false => self.0.end().0,
        }
    }

    fn grow_to(&self, _block_count: u64) -> Result<(), MediaError> {
        Ok(())
    }

    fn bytes_read(&self) -> u64 {
        0
    }

    fn bytes_written(&self) -> u64 {
        0
    }
}

/// See [`ShippedPages::over`].
#[derive(Debug)]
struct WithShipped {
    shipped: MediaPages,
    source: Arc<dyn PageSource>,
}

impl WithShipped {
    /// The answers of both sources for `reads`, in their order.
    fn of_both<'a, T: Send + 'a>(
        &'a self,
        reads: Vec<PageRead>,
        shipped: impl FnOnce(&[PageRead]) -> Result<Vec<T>, StoreError>,
        others: impl FnOnce(
            &'a dyn PageSource,
            Vec<PageRead>,
        ) -> BoxFuture<'a, Result<Vec<T>, StoreError>>,
    ) -> BoxFuture<'a, Result<Vec<T>, StoreError>> {
        let is_shipped: Vec<bool> =
            reads.iter().map(|read| read.segment.segment.is_shipped()).collect();
        if !is_shipped.contains(&true) {
            return others(&*self.source, reads);
        }
        let (here, there): (Vec<_>, Vec<_>) =
            reads.into_iter().partition(|read| read.segment.segment.is_shipped());
        let mut here = match shipped(&here) {
            Ok(here) => here.into_iter(),
            Err(error) => return ready(Err(error)).boxed(),
        };
        if there.is_empty() {
            return ready(Ok(here.collect())).boxed();
        }
        let there = others(&*self.source, there);
        async move {
            let mut there = there.await?.into_iter();
            let missing = || refused("fewer pages than asked for".to_owned());
            let next = |is_shipped| if is_shipped { here.next() } else { there.next() };
            is_shipped.into_iter().map(next).map(|page| page.ok_or_else(missing)).collect()
        }
        .boxed()
    }
}

impl PageSource for WithShipped {
    fn read(&self, reads: Vec<PageRead>) -> BoxFuture<'_, Result<Vec<PageColumns>, StoreError>> {
        self.of_both(
            reads,
            |here| self.shipped.read_pages(here),
            |source, there| source.read(there),
        )
    }

    fn read_scattered(
        &self,
        reads: Vec<PageRead>,
    ) -> BoxFuture<'_, Result<Vec<PageColumns>, StoreError>> {
        let shipped = |here: &[PageRead]| self.shipped.read_pages(here);
        self.of_both(reads, shipped, |source, there| source.read_scattered(there))
    }

    fn open(
        &self,
        reads: Vec<PageRead>,
    ) -> BoxFuture<'_, Result<Vec<Option<Arc<OpenedPage>>>, StoreError>> {
        let shipped = |here: &[PageRead]| {
            let pages = self.shipped.read_pages(here)?;
            let opened = pages.iter().zip(here);
            opened.map(|(page, read)| Ok(OpenedPage::open(page, read)?.map(Arc::new))).collect()
        };
        self.of_both(reads, shipped, |source, there| source.open(there))
    }

    fn open_at_hand(&self, read: &PageRead) -> Option<Arc<OpenedPage>> {
        match read.segment.segment.is_shipped() {
            true => None,
            false => self.source.open_at_hand(read),
        }
    }

    fn read_overflow(
        &self,
        segment: SegmentRef,
        pages: Vec<PageRef>,
    ) -> BoxFuture<'_, Result<Vec<Bytes>, StoreError>> {
        match segment.segment.is_shipped() {
            true => ready(self.shipped.read_overflow_pages(&segment, &pages)).boxed(),
            false => self.source.read_overflow(segment, pages),
        }
    }
}

fn refused(reason: String) -> StoreError {
    StoreError::Mismatch { what: "pages of the shipped delta", reason }
}

#[cfg(test)]
mod tests;
