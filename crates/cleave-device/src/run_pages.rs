//! The pages of one run: reads local media on blocking threads and counts every byte (rule 34).
//!
//! Whose threads these are depends on who asks: a partition on a core that another engine of the node lends reads and
//! verifies there.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use cleave_fragment::strip::Strip;
use cleave_fragment::waiting::spawn_blocking;
use cleave_media::{
    AlignedBuffer, BlockAddress, Extent, Media, MediaError, Stopwatch, thread_cpu_time,
};
use cleave_store::{
    MediaPages, PageCache, PageColumns, PageRead, PageRef, PageSource, SegmentRef, StoreError,
};
use futures::FutureExt;
use futures::future::BoxFuture;

/// CPU time of all threads that work for one run.
#[derive(Debug)]
pub(crate) struct CpuTime {
    total_ns: AtomicU64,
    clock: Stopwatch,
    strip: Mutex<Strip>,
}

impl CpuTime {
    /// None so far; `clock` tells when time is added.
    pub(crate) fn by(clock: Stopwatch) -> Self {
        Self { total_ns: AtomicU64::new(0), clock, strip: Mutex::default() }
    }

    /// Runs `work` and adds the CPU time that this thread spends on it.
    pub(crate) fn measure<T>(&self, work: impl FnOnce() -> T) -> T {
        let before = thread_cpu_time();
        let result = work();
        let spent = thread_cpu_time().saturating_sub(before);
        let spent_ns = u64::try_from(spent.as_nanos()).unwrap_or(u64::MAX);
        self.total_ns.fetch_add(spent_ns, Ordering::Relaxed);
        self.lock().add(self.clock.elapsed(), spent_ns);
        result
    }

    /// `work`, whose CPU time is added.
    pub(crate) fn measured<F: Future>(
        self: &Arc<Self>,
        work: F,
    ) -> impl Future<Output = F::Output> + use<F> {
        let (cpu, mut work) = (Arc::clone(self), Box::pin(work));
        std::future::poll_fn(move |context| cpu.measure(|| work.as_mut().poll(context)))
    }

    /// The time so far.
    pub(crate) fn total(&self) -> Duration {
        Duration::from_nanos(self.total_ns.load(Ordering::Relaxed))
    }

    /// The CPU time over the run's time.
    pub(crate) fn strip(&self) -> Strip {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Strip> {
        self.strip.lock().unwrap_or_else(PoisonError::into_inner)
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

/// The page source of one run: the cache shared by the host, if any, and else the media.
#[derive(Debug)]
pub(crate) struct RunPages {
    media: Arc<CountedMedia>,
    source: Arc<MediaSource>,
    cache: Option<Arc<dyn PageCache>>,
    pages_read: AtomicU64,
}

impl RunPages {
    /// Pages of `media`, read on blocking threads of the runtime that asks; CPU time goes to `cpu`.
    pub(crate) fn new(
        media: Arc<dyn Media>,
        cpu: Arc<CpuTime>,
        cache: Option<Arc<dyn PageCache>>,
    ) -> Self {
        let media = Arc::new(CountedMedia { media, bytes_read: AtomicU64::new(0) });
        let pages = MediaPages::new(Arc::clone(&media) as Arc<dyn Media>);
        let source = MediaSource { pages, cpu, is_kept: cache.is_some() };
        Self { media, source: Arc::new(source), cache, pages_read: AtomicU64::new(0) }
    }

    /// Pages of `media`, other ones, for the same run; no cache has them.
    pub(crate) fn beside(&self, media: Arc<dyn Media>) -> Self {
        Self::new(media, Arc::clone(&self.source.cpu), None)
    }

    /// The CPU time of its run.
    pub(crate) fn cpu(&self) -> &Arc<CpuTime> {
        &self.source.cpu
    }

    /// Bytes that came from the media.
    pub(crate) fn media_bytes(&self) -> u64 {
        self.media.bytes_read()
    }

    /// Pages that were read.
    pub(crate) fn pages_read(&self) -> u64 {
        self.pages_read.load(Ordering::Relaxed)
    }
}

impl PageSource for RunPages {
    fn read(&self, reads: Vec<PageRead>) -> BoxFuture<'_, Result<Vec<PageColumns>, StoreError>> {
        self.pages_read.fetch_add(reads.len() as u64, Ordering::Relaxed);
        match &self.cache {
            Some(cache) => cache.read(reads, Arc::clone(&self.source) as Arc<dyn PageSource>),
            None => self.source.read(reads),
        }
    }

    fn read_overflow(
        &self,
        segment: SegmentRef,
        pages: Vec<PageRef>,
    ) -> BoxFuture<'_, Result<Vec<Bytes>, StoreError>> {
        self.pages_read.fetch_add(pages.len() as u64, Ordering::Relaxed);
        match &self.cache {
            Some(cache) => {
                let source = Arc::clone(&self.source) as Arc<dyn PageSource>;
                cache.read_overflow(segment, pages, source)
            }
            None => self.source.read_overflow(segment, pages),
        }
    }
}

/// Pages of the media, read on blocking threads.
#[derive(Debug)]
struct MediaSource {
    pages: MediaPages,
    cpu: Arc<CpuTime>,
    /// Whether chunks are kept for longer than the run decodes them.
    is_kept: bool,
}

impl MediaSource {
    fn off_thread<T: Send + 'static>(
        &self,
        read: impl FnOnce(&MediaPages) -> Result<T, StoreError> + Send + 'static,
    ) -> BoxFuture<'_, Result<T, StoreError>> {
        let (pages, cpu) = (self.pages.clone(), Arc::clone(&self.cpu));
        let reading = spawn_blocking(move || cpu.measure(|| read(&pages)));
        reading
            .map(|joined| match joined {
                Ok(pages) => pages,
                Err(error) => Err(StoreError::Source(Arc::new(error))),
            })
            .boxed()
    }
}

impl PageSource for MediaSource {
    fn read(&self, reads: Vec<PageRead>) -> BoxFuture<'_, Result<Vec<PageColumns>, StoreError>> {
        if self.is_kept {
            self.off_thread(move |pages| pages.read_apart(&reads))
        } else {
            self.off_thread(move |pages| pages.read_pages(&reads))
        }
    }

    fn read_overflow(
        &self,
        segment: SegmentRef,
        pages: Vec<PageRef>,
    ) -> BoxFuture<'_, Result<Vec<Bytes>, StoreError>> {
        self.off_thread(move |source| source.read_overflow_pages(&segment, &pages))
    }
}
