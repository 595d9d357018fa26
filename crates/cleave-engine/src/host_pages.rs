//! Pages for the host's half of a statement: from the buffer pool, else over the link.
//!
//! 1. [`HostPages::read`](PageSource::read) looks up every part in the pool ([`pooled`]).
//! 2. Missing parts cross the link in as few commands as its size allows: stack `native` asks for headers and column
//!    chunks by physical address ([`linked`]), stack `blk` for whole pages as a block device would give them, reading
//!    ahead where pages are read in the order in which they lie ([`blocks`]).
//! 3. `cleave-store` verifies every part before it is returned or enters the pool.
//!
//! Invariant: a [`PageColumns`] from here was checked against the checksum in the catalog, whatever the device or the
//! wire did. Two readers that miss the same chunk at once fetch it once; whole pages (stack `blk`, overflow pages) each
//! reader fetches for itself.

mod blocks;
mod linked;
mod partial;
mod pooled;
mod routed;

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use cleave_store::{
    OpenedPage, PageColumns, PageRead, PageRef, PageSource, SegmentRef, StoreError,
};
use futures::FutureExt;
use futures::future::BoxFuture;

pub use partial::WholePage;
pub use pooled::PooledPages;
pub use routed::RoutedPages;

use cleave_catalog::error::Result;
use cleave_catalog::settings::Stack;
use cleave_catalog::storage_error::into_store_error;

use crate::buffer_pool::{BufferPool, Part, PartKey};
use crate::device::Device;
use blocks::Ahead;
use linked::LinkedPages;

/// The host's [`PageSource`] over one device. See the module's description.
pub struct HostPages {
    device: Arc<Device>,
    pool: Arc<BufferPool>,
    pooled: PooledPages,
    linked: Arc<dyn PageSource>,
    stack: Stack,
    counters: Arc<Counters>,
    ahead: Mutex<Ahead>,
}

/// Counters of a page source.
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
        let counters = Arc::<Counters>::default();
        let linked = LinkedPages::new(Arc::clone(&device), Arc::clone(&counters));
        Self {
            pooled: PooledPages::new(device.id(), Arc::clone(&pool)),
            linked: Arc::new(linked),
            device,
            pool,
            stack,
            counters,
            ahead: Mutex::default(),
        }
    }

    /// The counters so far.
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
        if self.stack != Stack::Blk {
            let (pages, held_bytes) = self.pooled.read_through(&reads, &self.linked).await?;
            self.note_pool(held_bytes);
            return Ok(pages);
        }
        let mut pages = Vec::with_capacity(reads.len());
        for read in &reads {
            let (page, held_bytes) = self.pooled.held(read)?;
            self.note_pool(held_bytes);
            pages.push(page);
        }
        if pages.iter().any(|page| !page.is_complete()) {
            self.fetch_blocks(&reads, &mut pages).await?;
        }
        pages
            .into_iter()
            .map(|page| {
                page.finish()
                    .ok_or_else(|| self.device.strange_payload("fewer pages than asked for"))
            })
            .collect()
    }

    async fn read_overflow_pages(
        &self,
        segment: SegmentRef,
        pages: Vec<PageRef>,
    ) -> Result<Vec<Bytes>> {
        self.counters.pages.fetch_add(pages.len() as u64, Ordering::Relaxed);
        let pages = self.pooled.read_overflow_through(segment, &pages, &self.linked).await;
        let (payloads, held_bytes) = pages?;
        self.note_pool(held_bytes);
        Ok(payloads)
    }

    fn key(&self, page: &PageRef, part: Part) -> PartKey {
        self.pooled.key(page, part)
    }

    fn note_pool(&self, bytes: usize) {
        self.counters.pool_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    fn note_link(&self, bytes: usize) {
        self.counters.note_link(bytes);
    }
}

impl Counters {
    fn note_link(&self, bytes: usize) {
        self.link_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

impl PageSource for HostPages {
    fn read(&self, reads: Vec<PageRead>) -> BoxFuture<'_, Result<Vec<PageColumns>, StoreError>> {
        self.read_pages(reads).map(|pages| pages.map_err(into_store_error)).boxed()
    }

    fn open(
        &self,
        reads: Vec<PageRead>,
    ) -> BoxFuture<'_, Result<Vec<Option<Arc<OpenedPage>>>, StoreError>> {
        async move {
            if self.stack == Stack::Blk {
                let pages = self.read(reads.clone()).await?;
                let opened = pages.iter().zip(&reads);
                let opened = opened.map(|(page, read)| OpenedPage::open(page, read));
                return opened.map(|page| Ok(page?.map(Arc::new))).collect();
            }
            self.counters.pages.fetch_add(reads.len() as u64, Ordering::Relaxed);
            let (pages, held_bytes) = self.pooled.open_through(reads, &self.linked).await?;
            self.note_pool(held_bytes);
            Ok(pages)
        }
        .boxed()
    }

    fn open_at_hand(&self, read: &PageRead) -> Option<Arc<OpenedPage>> {
        self.pooled.open_at_hand(read)
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
