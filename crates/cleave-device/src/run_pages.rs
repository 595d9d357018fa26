//! The pages of one run: local media, read on threads that may wait, every byte counted (rule 34).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use cleave_fragment::waiting::spawn_blocking_on;
use cleave_media::{AlignedBuffer, BlockAddress, Extent, Media, MediaError, thread_cpu_time};
use cleave_store::{
    MediaPages, PageColumns, PageRead, PageRef, PageSource, SegmentRef, StoreError,
};
use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::runtime::Handle;

/// CPU time of all threads that work for one run.
#[derive(Debug, Default)]
pub(crate) struct CpuTime(AtomicU64);

impl CpuTime {
    /// Runs `work` and adds the CPU time that this thread spends on it.
    pub(crate) fn measure<T>(&self, work: impl FnOnce() -> T) -> T {
        let before = thread_cpu_time();
        let result = work();
        let spent = thread_cpu_time().saturating_sub(before);
        self.0.fetch_add(u64::try_from(spent.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
        result
    }

    /// The time so far.
    pub(crate) fn total(&self) -> Duration {
        Duration::from_nanos(self.0.load(Ordering::Relaxed))
    }
}

/// Media that counts what one run reads of it.
#[derive(Debug)]
struct CountedMedia {
    media: Arc<dyn Media>,
    bytes_read: AtomicU64,
}

impl Media for CountedMedia {
    fn read(&self, extent: Extent) -> Result<AlignedBuffer, MediaError> {
        let buffer = self.media.read(extent)?;
        self.bytes_read.fetch_add(extent.bytes() as u64, Ordering::Relaxed);
        Ok(buffer)
    }

    fn read_many(&self, extents: &[Extent]) -> Result<Vec<AlignedBuffer>, MediaError> {
        let buffers = self.media.read_many(extents)?;
        let bytes = extents.iter().map(|extent| extent.bytes() as u64).sum();
        self.bytes_read.fetch_add(bytes, Ordering::Relaxed);
        Ok(buffers)
    }

    fn write(&self, start: BlockAddress, data: &[u8]) -> Result<(), MediaError> {
        self.media.write(start, data)
    }

    fn sync(&self) -> Result<(), MediaError> {
        self.media.sync()
    }

    fn block_count(&self) -> u64 {
        self.media.block_count()
    }

    fn grow_to(&self, block_count: u64) -> Result<(), MediaError> {
        self.media.grow_to(block_count)
    }

    fn bytes_read(&self) -> u64 {
        self.bytes_read.load(Ordering::Relaxed)
    }

    fn bytes_written(&self) -> u64 {
        0
    }
}

/// The page source of one run.
#[derive(Debug)]
pub(crate) struct RunPages {
    media: Arc<CountedMedia>,
    pages: MediaPages,
    pages_read: Arc<AtomicU64>,
    cpu: Arc<CpuTime>,
    /// Threads that may wait for media, apart from those that serve the host.
    threads: Handle,
}

impl RunPages {
    /// Pages of `media`, read on the blocking threads of `threads`; CPU time goes to `cpu`.
    pub(crate) fn new(media: Arc<dyn Media>, threads: Handle, cpu: Arc<CpuTime>) -> Self {
        let media = Arc::new(CountedMedia { media, bytes_read: AtomicU64::new(0) });
        let pages = MediaPages::new(Arc::clone(&media) as Arc<dyn Media>);
        Self { media, pages, pages_read: Arc::default(), cpu, threads }
    }

    /// Bytes that came from the media.
    pub(crate) fn media_bytes(&self) -> u64 {
        self.media.bytes_read()
    }

    /// Pages that were read.
    pub(crate) fn pages_read(&self) -> u64 {
        self.pages_read.load(Ordering::Relaxed)
    }

    /// Runs `read` where waiting is allowed; it brings `page_count` pages.
    fn off_thread<T: Send + 'static>(
        &self,
        page_count: usize,
        read: impl FnOnce(&MediaPages) -> Result<T, StoreError> + Send + 'static,
    ) -> BoxFuture<'_, Result<T, StoreError>> {
        let pages = self.pages.clone();
        let (cpu, pages_read) = (Arc::clone(&self.cpu), Arc::clone(&self.pages_read));
        let reading = spawn_blocking_on(&self.threads, move || {
            pages_read.fetch_add(page_count as u64, Ordering::Relaxed);
            cpu.measure(|| read(&pages))
        });
        reading
            .map(|joined| match joined {
                Ok(pages) => pages,
                Err(error) => Err(StoreError::Source(Arc::new(error))),
            })
            .boxed()
    }
}

impl PageSource for RunPages {
    fn read(&self, reads: Vec<PageRead>) -> BoxFuture<'_, Result<Vec<PageColumns>, StoreError>> {
        self.off_thread(reads.len(), move |pages| pages.read_pages(&reads))
    }

    fn read_overflow(
        &self,
        segment: SegmentRef,
        pages: Vec<PageRef>,
    ) -> BoxFuture<'_, Result<Vec<Bytes>, StoreError>> {
        self.off_thread(pages.len(), move |source| source.read_overflow_pages(&segment, &pages))
    }
}
