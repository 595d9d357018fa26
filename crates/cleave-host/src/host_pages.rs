//! Pages for the host's half of a statement: through the buffer pool, else over the link.
//!
//! 1. [`HostPages::read`](PageSource::read) looks up every part in the pool.
//! 2. What is missing crosses the link in as few commands as its size allows: stack `native` asks for
//!    headers and column chunks by physical address, stack `blk` for whole pages as a block device
//!    would give them, reading ahead where pages are read in the order in which they lie
//!    ([`blocks`]).
//! 3. Every part is verified by `cleave-store` before anyone sees it or the pool holds it.
//!
//! Invariant: a [`PageColumns`] from here was checked against the checksum that the catalog holds, no
//! matter what the device or the wire did. Deliberately absent: waiting for each other; two readers
//! that miss the same part at once both fetch it.

mod blocks;
mod partial;

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use cleave_fragment::command::{ReadItem, ReadPayload};
use cleave_media::BLOCK_SIZE;
use cleave_store::{
    PageColumns, PageRead, PageRef, PageSource, RawColumns, SegmentRef, StoreError,
};
use futures::FutureExt;
use futures::future::BoxFuture;

pub use partial::WholePage;

use crate::buffer_pool::{BufferPool, Held, Part, PartKey};
use crate::device::Device;
use crate::error::Result;
use crate::settings::Stack;
use crate::storage_error::into_store_error;
use blocks::Ahead;
use partial::{Chunk, PartialPage};

/// The host's [`PageSource`] over one device. See the module's description.
pub struct HostPages {
    device: Arc<Device>,
    pool: Arc<BufferPool>,
    stack: Stack,
    counters: Counters,
    ahead: Mutex<Ahead>,
}

/// What a page source has read so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PageCounters {
    /// Pages asked for.
    pub pages: u64,
    /// Bytes that the pool had.
    pub pool_bytes: u64,
    /// Bytes that crossed the link, framing not counted.
    pub link_bytes: u64,
}

#[derive(Debug, Default)]
struct Counters {
    pages: AtomicU64,
    pool_bytes: AtomicU64,
    link_bytes: AtomicU64,
}

impl HostPages {
    /// Pages of `device` through `pool`.
    pub fn new(device: Arc<Device>, pool: Arc<BufferPool>, stack: Stack) -> Self {
        Self { device, pool, stack, counters: Counters::default(), ahead: Mutex::default() }
    }

    /// What was read so far.
    pub fn counters(&self) -> PageCounters {
        PageCounters {
            pages: self.counters.pages.load(Ordering::Relaxed),
            pool_bytes: self.counters.pool_bytes.load(Ordering::Relaxed),
            link_bytes: self.counters.link_bytes.load(Ordering::Relaxed),
        }
    }

    /// The device that the pages lie on.
    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }

    async fn read_pages(&self, reads: Vec<PageRead>) -> Result<Vec<PageColumns>> {
        self.counters.pages.fetch_add(reads.len() as u64, Ordering::Relaxed);
        let mut pages = reads.iter().map(|read| self.held(read)).collect::<Result<Vec<_>>>()?;
        if pages.iter().any(|page| !page.is_complete()) {
            match self.stack {
                Stack::Blk => self.fetch_blocks(&reads, &mut pages).await?,
                Stack::Native | Stack::Ndp => self.fetch_columns(&reads, &mut pages).await?,
            }
        }
        pages
            .into_iter()
            .map(|page| {
                page.finish()
                    .ok_or_else(|| self.device.strange_payload("fewer pages than asked for"))
            })
            .collect()
    }

    /// What the pool has of a page.
    fn held(&self, read: &PageRead) -> Result<PartialPage> {
        if let Some(Held::Page(page)) = self.pool.get_if_held(&self.key(&read.page, Part::Whole)) {
            let columns = page.columns(read)?;
            self.note_pool(columns.byte_size());
            return Ok(PartialPage::complete(columns));
        }
        let Some(Held::Header(header)) = self.pool.get(&self.key(&read.page, Part::Header)) else {
            return Ok(PartialPage::missing(read.columns.len()));
        };
        let chunk = |column| {
            if header.entry(column).is_none_or(|entry| entry.length == 0) {
                return Chunk::Absent;
            }
            match self.pool.get(&self.key(&read.page, Part::from(column))) {
                Some(Held::Bytes(bytes)) => {
                    self.note_pool(bytes.len());
                    Chunk::Here(bytes)
                }
                _ => Chunk::Missing,
            }
        };
        let chunks = read.columns.iter().map(|column| chunk(*column)).collect();
        Ok(PartialPage::new(Arc::clone(&header), chunks))
    }

    /// Stack `native`: the missing chunks, and nothing else.
    async fn fetch_columns(&self, reads: &[PageRead], pages: &mut [PartialPage]) -> Result<()> {
        let mut wanted: Vec<PageRead> = Vec::new();
        for (read, page) in reads.iter().zip(pages.iter()).filter(|(_, page)| !page.is_complete()) {
            wanted.push(PageRead { columns: page.missing_columns(&read.columns), ..read.clone() });
        }
        let items = wanted.iter().map(|read| ReadItem::Columns {
            page: read.page,
            segment: read.segment,
            columns: read.columns.clone(),
        });
        let payloads = self.device.read(items.collect()).await?;
        let incomplete = pages.iter_mut().filter(|page| !page.is_complete());
        for ((read, page), payload) in wanted.iter().zip(incomplete).zip(payloads) {
            self.note_link(payload.byte_count());
            let ReadPayload::Columns { header, chunks } = payload else {
                return Err(self.device.strange_payload("blocks where columns were asked for"));
            };
            let verified = match page.header() {
                Some(header) => PageColumns::verify_with_header(read, header, chunks),
                None => PageColumns::verify(read, RawColumns { header, chunks }),
            };
            let columns = self.checked(verified).await?;
            self.keep(read, &columns);
            page.fill(columns);
        }
        Ok(())
    }

    /// Puts verified parts into the pool. They are what it counts: a chunk comes in memory of about its own
    /// size, from the embedded device ([`RawColumns`]) as over a wire.
    fn keep(&self, read: &PageRead, columns: &PageColumns) {
        let header = Held::Header(Arc::clone(&columns.header));
        self.pool.put(self.key(&read.page, Part::Header), header);
        for (column, chunk) in read.columns.iter().zip(&columns.chunks) {
            if let Some(chunk) = chunk {
                self.pool
                    .put(self.key(&read.page, Part::from(*column)), Held::Bytes(chunk.clone()));
            }
        }
    }

    /// Overflow pages are read whole: a value needs all of its pages, and they hold nothing else.
    async fn read_overflow_pages(
        &self,
        segment: SegmentRef,
        pages: Vec<PageRef>,
    ) -> Result<Vec<Bytes>> {
        self.counters.pages.fetch_add(pages.len() as u64, Ordering::Relaxed);
        let mut payloads = vec![None; pages.len()];
        let mut missing = Vec::new();
        for (place, page) in payloads.iter_mut().zip(&pages) {
            match self.pool.get(&self.key(page, Part::Whole)) {
                Some(Held::Bytes(bytes)) => {
                    self.note_pool(bytes.len());
                    *place = Some(bytes);
                }
                _ => missing.push(*page),
            }
        }
        let items = missing.iter().map(|page| ReadItem::Blocks(page.extent)).collect();
        let blocks = self.device.read(items).await?;
        let empty = payloads.iter_mut().filter(|place| place.is_none());
        for ((place, page), block) in empty.zip(&missing).zip(blocks) {
            self.note_link(block.byte_count());
            let ReadPayload::Blocks(block) = block else {
                return Err(self.device.strange_payload("columns where blocks were asked for"));
            };
            let payload = cleave_store::page::overflow::overflow_payload(&segment, page, &block);
            let payload = self.checked(payload).await?;
            self.pool.put(self.key(page, Part::Whole), Held::Bytes(payload.clone()));
            *place = Some(payload);
        }
        Ok(payloads.into_iter().flatten().collect())
    }

    /// What came out of verifying a page; where it does not hold, perhaps because another device
    /// answers than the one that was attached.
    async fn checked<T>(&self, verified: Result<T, StoreError>) -> Result<T> {
        match verified {
            Ok(value) => Ok(value),
            Err(error) => {
                self.device.check_identity().await?;
                Err(error.into())
            }
        }
    }

    fn key(&self, page: &PageRef, part: Part) -> PartKey {
        PartKey::new(self.device.id(), page, part)
    }

    fn note_pool(&self, bytes: usize) {
        self.counters.pool_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    fn note_link(&self, bytes: usize) {
        self.counters.link_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

impl PageSource for HostPages {
    fn read(&self, reads: Vec<PageRead>) -> BoxFuture<'_, Result<Vec<PageColumns>, StoreError>> {
        self.read_pages(reads).map(|pages| pages.map_err(into_store_error)).boxed()
    }

    fn read_overflow(
        &self,
        segment: SegmentRef,
        pages: Vec<PageRef>,
    ) -> BoxFuture<'_, Result<Vec<Bytes>, StoreError>> {
        self.read_overflow_pages(segment, pages)
            .map(|payloads| payloads.map_err(into_store_error))
            .boxed()
    }
}

impl fmt::Debug for HostPages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostPages")
            .field("device", &self.device.name())
            .field("stack", &self.stack)
            .finish_non_exhaustive()
    }
}

/// Roughly the bytes that `item` brings over the link.
pub(crate) fn item_bytes(item: &ReadItem) -> usize {
    match item {
        ReadItem::Blocks(extent) => extent.bytes(),
        // Which chunks are how long stands in the header, which may not be here yet: an upper bound.
        ReadItem::Columns { page, .. } => page.extent.bytes().max(BLOCK_SIZE),
    }
}
