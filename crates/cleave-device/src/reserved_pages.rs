//! Writes the pages of one run to local media, only inside the space that was reserved for the run.
//!
//! 1. [`check_reserved`] checks the extents that a request names: reserved by its database, apart from each other, and
//!    apart from what the run reads.
//! 2. [`ReservedPages`] gives each page the next place in them, and writes it on a blocking thread; a few writes are
//!    under way at once. All partitions of the run share them, and a partition that has ended waits for its own writes
//!    and older ones alone.
//! 3. [`ReservedPages::stand_still`] waits for those, however the run has ended: when the host learns of the end of a
//!    run, its writes have ended too, and its space may be used for something else.
//!
//! 4. Operators that outgrow their memory spill rows into the same extents ([`spilled`]), and free them for each other
//!    when they have read them; the host learns only the places of pages.
//!
//! Deliberately absent: a sync. The host syncs the device before it commits, as for pages that it wrote itself.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cleave_fragment::command::{DeviceError, DeviceErrorCause, Execute};
use cleave_fragment::waiting::spawn_blocking_on;
use cleave_fragment::{IndexInput, OutOfReservedPages, PageSink};
use cleave_media::{AlignedBuffer, BlockAddress, Extent, Media, MediaError};
use cleave_store::{EncodedPage, PageRef};
use datafusion_common::{DataFusionError, Result};
use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::runtime::Handle;
use tokio::sync::watch;

use crate::reservations::Reservations;
use crate::run_pages::CpuTime;

mod spilled;

use spilled::Returned;

/// Writes of one run that may be under way.
const WRITES_MAX: usize = 4;

/// The space that a run writes to; see the [module](self).
#[derive(Debug, Clone)]
pub(crate) struct ReservedPages(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    media: Arc<dyn Media>,
    threads: Handle,
    cpu: Arc<CpuTime>,
    reserved_blocks: u64,
    state: Mutex<ReservedInner>,
    writes: watch::Sender<Writes>,
    /// Bytes read of spilled rows.
    spilled_bytes_read: AtomicU64,
}

#[derive(Debug)]
struct ReservedInner {
    /// The unused space, the next extent last.
    free: Vec<Extent>,
    /// Blocks that were freed, and gaps between pages.
    returned: Returned,
    /// The error of a failed write.
    failed: Option<MediaError>,
}

/// The writes of a run, numbered in the order in which they begin.
#[derive(Debug, Default)]
struct Writes {
    next: u64,
    under_way: BTreeSet<u64>,
}

/// A write under way, until it is dropped.
struct UnderWay {
    shared: Arc<Shared>,
    number: u64,
}

impl UnderWay {
    fn begin(shared: &Arc<Shared>) -> Self {
        let mut number = 0;
        shared.writes.send_modify(|writes| number = writes.begin());
        Self { shared: Arc::clone(shared), number }
    }

    /// The same, once fewer than `count` are under way.
    async fn begin_within(shared: &Arc<Shared>, count: usize) -> Self {
        let has_room = |writes: &Writes| writes.under_way.len() < count;
        let mut ended = shared.writes.subscribe();
        loop {
            // The sender lives as long as `shared`.
            let _closed = ended.wait_for(has_room).await;
            let mut begun = None;
            // Another partition may have been quicker.
            shared.writes.send_if_modified(|writes| {
                begun = has_room(writes).then(|| writes.begin());
                begun.is_some()
            });
            if let Some(number) = begun {
                return Self { shared: Arc::clone(shared), number };
            }
        }
    }
}

impl Writes {
    fn begin(&mut self) -> u64 {
        let number = self.next;
        self.next += 1;
        self.under_way.insert(number);
        number
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.shared.writes.send_modify(|writes| {
            writes.under_way.remove(&self.number);
        });
    }
}

impl ReservedPages {
    /// Pages in `reserved`, written on the blocking threads of `threads`; CPU time goes to `cpu`.
    pub(crate) fn new(
        media: Arc<dyn Media>,
        threads: Handle,
        cpu: Arc<CpuTime>,
        reserved: &[Extent],
    ) -> Self {
        let free: Vec<Extent> = reserved.iter().rev().copied().collect();
        Self(Arc::new(Shared {
            media,
            threads,
            cpu,
            reserved_blocks: free.iter().map(|extent| u64::from(extent.block_count)).sum(),
            state: Mutex::new(ReservedInner { free, returned: Returned::default(), failed: None }),
            writes: watch::Sender::default(),
            spilled_bytes_read: AtomicU64::new(0),
        }))
    }

    /// Bytes of spilled rows that were read from the media.
    pub(crate) fn spilled_bytes_read(&self) -> u64 {
        self.0.spilled_bytes_read.load(Ordering::Relaxed)
    }

    /// Waits until no write is under way.
    pub(crate) async fn stand_still(&self) {
        self.0.ended(u64::MAX).await;
    }
}

impl Shared {
    /// Waits until none of the writes below `end` is under way.
    async fn ended(&self, end: u64) {
        let mut writes = self.writes.subscribe();
        let is_over = |writes: &Writes| writes.under_way.first().is_none_or(|first| *first >= end);
        // The sender lives as long as `self`.
        let _closed = writes.wait_for(is_over).await;
    }

    /// The next place for so many blocks.
    fn take(&self, block_count: u32) -> Result<Extent> {
        let mut state = self.lock();
        while let Some(extent) = state.free.last_mut() {
            if extent.block_count >= block_count {
                let start = extent.start;
                extent.start = BlockAddress(start.0 + u64::from(block_count));
                extent.block_count -= block_count;
                return Ok(Extent { start, block_count });
            }
            // A page is contiguous: the rest of this extent gets no pages.
            let rest = state.free.pop();
            state.returned.extend(rest);
        }
        let reserved_blocks = self.reserved_blocks;
        Err(external(OutOfReservedPages { reserved_blocks }))
    }

    fn check_failed(&self) -> Result<()> {
        match self.lock().failed.take() {
            Some(error) => Err(external(error)),
            None => Ok(()),
        }
    }

    fn write(&self, under_way: UnderWay, start: BlockAddress, bytes: AlignedBuffer) {
        let write = move || {
            let this = &under_way.shared;
            if let Err(error) = this.cpu.measure(|| this.media.write(start, &bytes)) {
                this.lock().failed.get_or_insert(error);
            }
        };
        // The guard reports its end: the handle is not needed.
        drop(spawn_blocking_on(&self.threads, write));
    }

    fn lock(&self) -> MutexGuard<'_, ReservedInner> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PageSink for ReservedPages {
    fn push(&self, page: EncodedPage) -> BoxFuture<'_, Result<PageRef>> {
        async move {
            let under_way = UnderWay::begin_within(&self.0, WRITES_MAX).await;
            self.0.check_failed()?;
            let place = self.0.take(page.block_count())?;
            let reference = page.page_ref(place.start);
            self.0.write(under_way, place.start, page.bytes);
            Ok(reference)
        }
        .boxed()
    }

    fn finish(&self) -> BoxFuture<'_, Result<()>> {
        async move {
            let end = self.0.writes.borrow().next;
            self.0.ended(end).await;
            self.0.check_failed()
        }
        .boxed()
    }
}

fn external(error: impl std::error::Error + Send + Sync + 'static) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}

/// Refuses extents that `request` may not write to; `reservations` are those of its database.
pub(crate) fn check_reserved(
    request: &Execute,
    reservations: &Reservations,
) -> Result<(), DeviceError> {
    let refused = |message: String| Err(DeviceError::new(DeviceErrorCause::Refused, message));
    let mut reserved = request.reserved.clone();
    reserved.sort_unstable_by_key(|extent| extent.start);
    for extent in &reserved {
        if extent.block_count == 0 {
            return refused(format!("{extent}, reserved for a fragment, is empty"));
        }
        if !reservations.contains(*extent) {
            let message =
                format!("{extent}, named for a fragment, were not reserved in this epoch");
            return Err(DeviceError::new(DeviceErrorCause::NotReserved, message));
        }
    }
    for pair in reserved.windows(2) {
        if let [one, other] = pair
            && one.overlaps(*other)
        {
            return refused(format!("{one} and {other}, reserved for one fragment, overlap"));
        }
    }
    for read in pages_read(request) {
        let place = reserved.partition_point(|extent| extent.end() <= read.start);
        if let Some(extent) = reserved.get(place).filter(|extent| extent.overlaps(read)) {
            return refused(format!("the fragment would read {read} and write {extent}"));
        }
    }
    Ok(())
}

/// The places of the pages that `request` reads.
fn pages_read(request: &Execute) -> impl Iterator<Item = Extent> {
    let morsels = request.inputs.iter().flat_map(|(_, morsels)| morsels);
    let pages = morsels.flat_map(|morsel| &morsel.pages);
    let pages = pages.flat_map(|place| std::iter::once(&place.page).chain(&place.overflow));
    let indexes = request.indexes.iter().flat_map(IndexInput::pages);
    let filtered = request.index_filters.iter().flat_map(|index_filter| &index_filter.parts);
    let filtered = filtered.flat_map(|part| &part.runs).flat_map(|run| &run.pages);
    pages.chain(indexes).chain(filtered).map(|page| page.extent)
}

#[cfg(test)]
mod tests;
