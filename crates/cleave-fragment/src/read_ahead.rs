//! Reads the pages of the next morsels while the present one is decoded: a page source and the order of its morsels in,
//! the same pages out, sooner.
//!
//! ```text
//!   morsels   0   1   2   3   4   5   6   7 ...
//!             └ decoded ┘ └ wanted ┘ └ ahead: under way or here, at most so many bytes ┘
//! ```
//!
//! 1. A read of all pages of a morsel tells how far its input has come and which columns the scan wants now.
//! 2. If reads of this input have waited lately, those columns of the next morsels are requested, a few morsels in one
//!    read ([`GROUP`]): the media has more to work on at once, and fewer threads wake one another. Twice as many are
//!    requested as were read so far, so that a scan that ends early has read little in vain.
//! 3. A read of a morsel that was requested takes what came, and reads the rest. A group that failed is read again,
//!    morsel by morsel, by the partitions that want them.
//!
//! If an index removes rows of an input while the scan runs ([`crate::index_filter`]), the next pages are unknown: its
//! reads pass through, as other ones do (the remaining columns of some pages, overflow pages).
//!
//! Invariants: pages read ahead are charged to the memory of the run, of which they take at most an eighth, and at most
//! [`AHEAD_BYTES_MAX`]; if that is refused, nothing is read ahead. Dropping the source ends what it began. Pages in
//! memory are not read ahead: asking for them is all the work there is.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use cleave_store::{
    ColumnRef, PageColumns, PageRead, PageRef, PageSource, SegmentId, SegmentRef, StoreError,
};
use datafusion_execution::memory_pool::{
    MemoryConsumer, MemoryLimit, MemoryPool, MemoryReservation,
};
use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use crate::index_filter::IndexFilteredInput;
use crate::morsel::{Morsel, MorselList};

/// Most bytes read ahead: about what a fast disk delivers in the time of a few requests.
const AHEAD_BYTES_MAX: usize = 16 << 20;
/// Most morsels read ahead.
const AHEAD_COUNT_MAX: usize = 32;
/// Morsels that are asked for in one read.
const GROUP: usize = 4;
/// Read-ahead may take one part in so many of the run's memory.
const MEMORY_SHARE: usize = 8;
/// Partitions take morsels in order, but do not keep step: a morsel so far behind was skipped.
const LAG_MAX: usize = 64;

/// A page source that reads ahead; see the [module](self).
pub struct ReadAheadPages {
    source: Arc<dyn PageSource>,
    inputs: Vec<Vec<MorselPages>>,
    /// The index filter of each input.
    filtered: Vec<Option<Arc<IndexFilteredInput>>>,
    /// The list that hands out each input, if others may take its end.
    lists: Vec<Option<Arc<MorselList>>>,
    /// The morsel and input that begin with a page.
    places: HashMap<PageName, (usize, usize)>,
    streams: Mutex<Vec<Stream>>,
    /// The reservation that all others are split from.
    memory: MemoryReservation,
    bytes_max: usize,
}

type PageName = (SegmentId, u32);

/// The pages of one morsel.
struct MorselPages {
    segment: SegmentRef,
    pages: Vec<PageRef>,
}

/// The progress of one input.
#[derive(Default)]
struct Stream {
    ahead: VecDeque<Ahead>,
    /// The first morsel that was not yet requested.
    next: usize,
    /// The last morsel that was wanted.
    last: usize,
    /// Reads since the input was begun.
    read_count: usize,
    /// Whether the last completed read had to wait.
    waits: bool,
    /// Bytes of a typical morsel.
    morsel_bytes: usize,
}

/// A morsel that was requested ahead.
struct Ahead {
    morsel: usize,
    columns: Vec<ColumnRef>,
    /// Receives its pages; nothing if the read of its group failed.
    pages: oneshot::Receiver<Vec<PageColumns>>,
    /// The read of its group, which is cancelled with the last holder.
    _task: Arc<JoinSet<()>>,
    _memory: MemoryReservation,
}

impl ReadAheadPages {
    /// `source`, read ahead in the order of `inputs`, each with its index filter and, if others may take its end, the
    /// list that hands it out; with memory of `pool`.
    pub fn new<'a>(
        source: Arc<dyn PageSource>,
        inputs: impl IntoIterator<
            Item = (&'a [Morsel], Option<Arc<IndexFilteredInput>>, Option<Arc<MorselList>>),
        >,
        pool: &Arc<dyn MemoryPool>,
    ) -> Self {
        let inputs = inputs.into_iter().map(|(morsels, filtered, list)| {
            (morsels.iter().map(MorselPages::of).collect::<Vec<_>>(), (filtered, list))
        });
        let (inputs, about): (Vec<_>, Vec<_>) = inputs.unzip();
        let (filtered, lists) = about.into_iter().unzip();
        let mut places = HashMap::new();
        for (input, morsels) in inputs.iter().enumerate() {
            for (index, morsel) in morsels.iter().enumerate() {
                if let Some(first) = morsel.pages.first() {
                    // A page of two inputs, as in a self-join, is read in the order of the first one.
                    places.entry((morsel.segment.segment, first.page)).or_insert((input, index));
                }
            }
        }
        let limit = match pool.memory_limit() {
            MemoryLimit::Finite(bytes) => bytes / MEMORY_SHARE,
            _ => AHEAD_BYTES_MAX,
        };
        Self {
            source,
            streams: Mutex::new(inputs.iter().map(|_| Stream::default()).collect()),
            inputs,
            filtered,
            lists,
            places,
            memory: MemoryConsumer::new("reading ahead").register(pool),
            bytes_max: limit.min(AHEAD_BYTES_MAX),
        }
    }

    /// The morsel, by input and index, that consists of exactly the pages of `reads`.
    fn place(&self, reads: &[PageRead]) -> Option<(usize, usize)> {
        let first = reads.first()?;
        let (input, index) = *self.places.get(&(first.segment.segment, first.page.page))?;
        if self.filtered.get(input)?.as_ref().is_some_and(|filtered| filtered.is_in_force()) {
            return None;
        }
        let pages = &self.inputs.get(input)?.get(index)?.pages;
        (pages.len() == reads.len()).then_some((input, index))
    }

    async fn read_morsel(
        &self,
        (input, index): (usize, usize),
        reads: Vec<PageRead>,
    ) -> Result<Vec<PageColumns>, StoreError> {
        let columns = reads.first().map(|read| read.columns.clone()).unwrap_or_default();
        let early = self.advance(input, index, &columns);
        let mut waited = false;
        let pages = match early {
            None => polled(self.source.read(reads), &mut waited).await?,
            Some(mut ahead) => {
                // Pages that arrive before they are wanted came from media all the same.
                waited = true;
                match (&mut ahead.pages).await {
                    Ok(pages) => self.complete(reads, &ahead.columns, pages).await?,
                    Err(_) => self.source.read(reads).await?,
                }
            }
        };
        let bytes = pages.iter().map(PageColumns::byte_size).sum::<usize>();
        if let Some(stream) = self.streams().get_mut(input) {
            stream.waits = waited;
            stream.morsel_bytes = bytes.max(stream.morsel_bytes / 2);
        }
        Ok(pages)
    }

    /// Notes that a morsel is wanted, requests the next ones, and returns this one if it was requested.
    fn advance(&self, input: usize, index: usize, columns: &[ColumnRef]) -> Option<Ahead> {
        let mut streams = self.streams();
        let stream = streams.get_mut(input)?;
        if index + LAG_MAX < stream.last {
            // The input is read again.
            *stream = Stream { morsel_bytes: stream.morsel_bytes, ..Stream::default() };
        }
        let place = stream.ahead.iter().position(|ahead| ahead.morsel == index);
        let early = place.and_then(|place| stream.ahead.remove(place));
        stream.last = stream.last.max(index);
        stream.read_count += 1;
        let oldest = stream.last.saturating_sub(LAG_MAX);
        stream.ahead.retain(|ahead| ahead.morsel >= oldest);
        stream.next = stream.next.max(stream.last + 1);
        let morsels = self.inputs.get(input).map_or(&[][..], Vec::as_slice);
        let list = self.lists.get(input).and_then(Option::as_ref);
        let kept = list.and_then(|list| usize::try_from(list.lease().kept).ok());
        let morsels = morsels.get(..kept.unwrap_or(morsels.len())).unwrap_or(morsels);
        let room = AHEAD_COUNT_MAX.min(2 * stream.read_count).saturating_sub(stream.ahead.len());
        let left = morsels.len().saturating_sub(stream.next);
        // Not one by one as each is taken, unless nothing else is under way.
        if !stream.waits || room < GROUP.min(left) && !stream.ahead.is_empty() {
            return early;
        }
        let mut group = Vec::new();
        for _ in 0..room {
            let under_way = stream.ahead.len() + group.len() + 1;
            let memory = self.memory.new_empty();
            let Some(morsel) = morsels.get(stream.next) else { break };
            if under_way * stream.morsel_bytes > self.bytes_max
                || memory.try_grow(stream.morsel_bytes).is_err()
            {
                break;
            }
            group.push((stream.next, morsel, memory));
            stream.next += 1;
            if group.len() == GROUP {
                stream.ahead.extend(self.ask(columns, group.drain(..)));
            }
        }
        stream.ahead.extend(self.ask(columns, group.drain(..)));
        early
    }

    /// Requests `columns` of the morsels of `group`, in one read.
    fn ask<'a>(
        &self,
        columns: &[ColumnRef],
        group: impl Iterator<Item = (usize, &'a MorselPages, MemoryReservation)>,
    ) -> Vec<Ahead> {
        let mut reads = Vec::new();
        let mut takers = Vec::new();
        let mut asked = Vec::new();
        for (morsel, pages, memory) in group {
            let (taker, receiver) = oneshot::channel();
            takers.push((pages.pages.len(), taker));
            reads.extend(pages.reads(columns));
            asked.push((morsel, receiver, memory));
        }
        if asked.is_empty() {
            return Vec::new();
        }
        let source = Arc::clone(&self.source);
        let mut task = JoinSet::new();
        task.spawn(async move {
            let Ok(pages) = source.read(reads).await else { return };
            let mut pages = pages.into_iter();
            for (count, taker) in takers {
                // A morsel that is no longer wanted has no receiver.
                drop(taker.send(pages.by_ref().take(count).collect()));
            }
        });
        let task = Arc::new(task);
        let ahead = asked.into_iter().map(|(morsel, pages, memory)| Ahead {
            morsel,
            columns: columns.to_vec(),
            pages,
            _task: Arc::clone(&task),
            _memory: memory,
        });
        ahead.collect()
    }

    /// Adds to `pages`, which came with the columns `early`, the other columns that `reads` ask for.
    async fn complete(
        &self,
        reads: Vec<PageRead>,
        early: &[ColumnRef],
        pages: Vec<PageColumns>,
    ) -> Result<Vec<PageColumns>, StoreError> {
        let Some(columns) = reads.first().map(|read| read.columns.clone()) else {
            return Ok(pages);
        };
        if columns == early {
            return Ok(pages);
        }
        let missing: Vec<ColumnRef> =
            columns.iter().filter(|column| !early.contains(column)).copied().collect();
        let rest = if missing.is_empty() {
            pages.clone()
        } else {
            let rest =
                reads.iter().map(|read| PageRead { columns: missing.clone(), ..read.clone() });
            self.source.read(rest.collect()).await?
        };
        let complete = pages.into_iter().zip(rest).map(|(page, rest)| {
            let chunk = |column: &ColumnRef| {
                let find = |columns: &[ColumnRef]| columns.iter().position(|found| found == column);
                match find(early) {
                    Some(place) => page.chunks.get(place).cloned().flatten(),
                    None => rest.chunks.get(find(&missing)?).cloned().flatten(),
                }
            };
            let chunks = columns.iter().map(chunk).collect();
            PageColumns { header: Arc::clone(&page.header), chunks }
        });
        Ok(complete.collect())
    }

    fn streams(&self) -> MutexGuard<'_, Vec<Stream>> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl MorselPages {
    fn of(morsel: &Morsel) -> Self {
        let pages = morsel.pages.iter().map(|place| place.page).collect();
        Self { segment: morsel.segment, pages }
    }

    fn reads(&self, columns: &[ColumnRef]) -> Vec<PageRead> {
        let read = |page: &PageRef| PageRead {
            segment: self.segment,
            page: *page,
            columns: columns.to_vec(),
        };
        self.pages.iter().map(read).collect()
    }
}

/// Awaits `future`; `waited` becomes true if it was not ready at once.
async fn polled<F: Future>(future: F, waited: &mut bool) -> F::Output {
    let mut future = pin!(future);
    poll_fn(|context| {
        let polled = future.as_mut().poll(context);
        *waited |= polled.is_pending();
        polled
    })
    .await
}

impl PageSource for ReadAheadPages {
    fn read(&self, reads: Vec<PageRead>) -> BoxFuture<'_, Result<Vec<PageColumns>, StoreError>> {
        match self.place(&reads) {
            Some(place) => self.read_morsel(place, reads).boxed(),
            None => self.source.read(reads),
        }
    }

    fn read_scattered(
        &self,
        reads: Vec<PageRead>,
    ) -> BoxFuture<'_, Result<Vec<PageColumns>, StoreError>> {
        self.source.read_scattered(reads)
    }

    fn read_overflow(
        &self,
        segment: SegmentRef,
        pages: Vec<PageRef>,
    ) -> BoxFuture<'_, Result<Vec<Bytes>, StoreError>> {
        self.source.read_overflow(segment, pages)
    }
}

impl fmt::Debug for ReadAheadPages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadAheadPages").field("source", &self.source).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
