//! Pages of one device through the buffer pool: reads and a source in, verified columns out.
//!
//! 1. [`PooledPages::held`] takes what the pool has of each page.
//! 2. A missing part is either being fetched by another reader, and waited for, or fetched here; the pool's
//!    [`Flights`](crate::buffer_pool::Flights) say which.
//! 3. A fetched part enters the pool before its flight ends.
//! 4. [`PooledPages::open_through`] gives pages of which few rows are read, and keeps them opened in the place of their
//!    parts.
//!
//! A fetch is a task of its own: a waiting reader does not depend on the reader that began it being polled. A reader
//! whose wait for another's fetch fails fetches again, and gets an error of its own.
//!
//! Invariant: the flights are not locked while a task begins. A runtime that is ending drops it there and then, and
//! with it the [`Landing`], which locks them.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use cleave_catalog::catalog::DeviceId;
use cleave_store::{
    ColumnRef, OpenedPage, PageCache, PageColumns, PageRead, PageRef, PageSource, SegmentRef,
    StoreError,
};
use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::sync::oneshot;

use super::partial::{Chunk, PartialPage, WholePage};
use crate::buffer_pool::{BufferPool, CachedPart, Fetch, Part, PartKey};

/// The buffer pool, for the pages of one device.
#[derive(Clone)]
pub struct PooledPages {
    device: DeviceId,
    pool: Arc<BufferPool>,
}

/// A page's columns in flight: which of `reads` it is, and how to wait for it.
struct Awaited {
    read: usize,
    columns: Vec<ColumnRef>,
    fetch: Fetch,
    /// Which of the fetch's pages it is.
    answer: usize,
}

impl PooledPages {
    /// The pages of `device` in `pool`.
    pub fn new(device: DeviceId, pool: Arc<BufferPool>) -> Self {
        Self { device, pool }
    }

    pub(super) fn key(&self, page: &PageRef, part: Part) -> PartKey {
        PartKey::new(self.device, page, part)
    }

    /// What the pool has of a page, and how many bytes.
    pub(super) fn held(&self, read: &PageRead) -> Result<(PartialPage, usize), StoreError> {
        // A whole page is verified column by column as they are asked for: one that was spoilt on its way here
        // is fetched again, and only that read says what is wrong.
        let mut parts = self.pool.parts();
        let mut opened = None;
        match parts.get_if_held(&self.key(&read.page, Part::Whole)) {
            Some(CachedPart::Page(page)) => {
                drop(parts);
                if let Ok(columns) = page.columns(read) {
                    let bytes = columns.byte_size();
                    return Ok((PartialPage::complete(columns), bytes));
                }
                parts = self.pool.parts();
            }
            Some(CachedPart::Opened(page)) => opened = Some(page),
            _ => {}
        }
        let header = match &opened {
            Some(page) => Arc::clone(page.header()),
            None => match parts.get(&self.key(&read.page, Part::Header)) {
                Some(CachedPart::Header(header)) => header,
                _ => return Ok((PartialPage::missing(read.columns.len()), 0)),
            },
        };
        let mut held_bytes = 0;
        let mut chunk = |column| {
            if header.entry(column).is_none_or(|entry| entry.length == 0) {
                return Chunk::Absent;
            }
            if let Some(Some(bytes)) = opened.as_ref().and_then(|page| page.chunk(column)) {
                held_bytes += bytes.len();
                return Chunk::Here(bytes);
            }
            match parts.get(&self.key(&read.page, Part::from(column))) {
                Some(CachedPart::Bytes(bytes)) => {
                    held_bytes += bytes.len();
                    Chunk::Here(bytes)
                }
                _ => Chunk::Missing,
            }
        };
        let chunks = read.columns.iter().map(|column| chunk(*column)).collect();
        Ok((PartialPage::new(Arc::clone(&header), chunks), held_bytes))
    }

    /// The columns of `reads`, and how many bytes of them the pool had.
    pub(super) async fn read_through(
        &self,
        reads: &[PageRead],
        source: &Arc<dyn PageSource>,
    ) -> Result<(Vec<PageColumns>, usize), StoreError> {
        let mut pages = Vec::with_capacity(reads.len());
        let mut held_bytes = 0;
        for read in reads {
            let (page, bytes) = self.held(read)?;
            held_bytes += bytes;
            pages.push(page);
        }
        if pages.iter().any(|page| !page.is_complete()) {
            for awaited in self.board(reads, &mut pages, source) {
                let (Some(read), Some(page)) =
                    (reads.get(awaited.read), pages.get_mut(awaited.read))
                else {
                    continue;
                };
                let fetched = awaited.fetch.await;
                let fetched = fetched.as_ref().and_then(|pages| pages.get(awaited.answer));
                if let Some(fetched) = fetched {
                    page.fill(&read.columns, &awaited.columns, fetched);
                }
            }
            self.fetch_alone(reads, &mut pages, source).await?;
        }
        let finished = pages.into_iter().map(|page| {
            page.finish().ok_or_else(|| StoreError::Mismatch {
                what: "a page read",
                reason: "fewer pages came than were asked for".to_owned(),
            })
        });
        Ok((finished.collect::<Result<_, _>>()?, held_bytes))
    }

    /// Joins the fetches in flight of what is missing, and begins one fetch of the rest.
    fn board(
        &self,
        reads: &[PageRead],
        pages: &mut [PartialPage],
        source: &Arc<dyn PageSource>,
    ) -> Vec<Awaited> {
        let mut awaited = Vec::new();
        let mut mine: Vec<(usize, PageRead)> = Vec::new();
        let mut flights = self.pool.flights();
        for (index, (read, page)) in reads.iter().zip(pages).enumerate() {
            if page.is_complete() {
                continue;
            }
            // Parts that landed since the look-up are in the pool now: nothing lands while the flights are locked.
            if page.header().is_some() {
                for column in page.missing_columns(&read.columns) {
                    let key = self.key(&read.page, Part::from(column));
                    if let Some(CachedPart::Bytes(bytes)) = self.pool.get_if_held(&key) {
                        page.put(&read.columns, column, bytes);
                    }
                }
            }
            let mut missing = page.missing_columns(&read.columns);
            if page.is_complete() {
                continue;
            }
            for flight in flights.of_page(&self.key(&read.page, Part::Header)) {
                let columns: Vec<ColumnRef> = missing
                    .iter()
                    .filter(|column| flight.columns.contains(column))
                    .copied()
                    .collect();
                if columns.is_empty() {
                    continue;
                }
                missing.retain(|column| !columns.contains(column));
                let (fetch, answer) = (flight.fetch.clone(), flight.answer);
                awaited.push(Awaited {
                    read: index,
                    columns: flight.columns.clone(),
                    fetch,
                    answer,
                });
            }
            let is_awaited = awaited.last().is_some_and(|last: &Awaited| last.read == index);
            if !missing.is_empty() || !is_awaited {
                mine.push((index, PageRead { columns: missing, ..read.clone() }));
            }
        }
        if mine.is_empty() {
            return awaited;
        }
        let wanted: Vec<PageRead> = mine.iter().map(|(_, read)| read.clone()).collect();
        let landing = Landing {
            pages: self.clone(),
            keys: wanted.iter().map(|read| self.key(&read.page, Part::Header)).collect(),
            number: flights.next_number(),
        };
        let number = landing.number;
        let (give, take) = oneshot::channel();
        let fetch = take.map(|answers| answers.ok().flatten()).boxed().shared();
        for (answer, (index, read)) in mine.into_iter().enumerate() {
            let key = self.key(&read.page, Part::Header);
            let columns = read.columns;
            flights.begin(key, number, columns.clone(), fetch.clone(), answer);
            awaited.push(Awaited { read: index, columns, fetch: fetch.clone(), answer });
        }
        drop(flights);
        begin_fetch(landing, wanted, Arc::clone(source), give);
        awaited
    }

    /// Parts still missing: another reader's fetch failed. The error, if there is one, is the caller's own.
    async fn fetch_alone(
        &self,
        reads: &[PageRead],
        pages: &mut [PartialPage],
        source: &Arc<dyn PageSource>,
    ) -> Result<(), StoreError> {
        for (read, page) in reads.iter().zip(pages).filter(|(_, page)| !page.is_complete()) {
            let columns = page.missing_columns(&read.columns);
            let wanted = PageRead { columns, ..read.clone() };
            for answer in source.read(vec![wanted.clone()]).await? {
                self.keep(&wanted, &answer);
                page.fill(&read.columns, &wanted.columns, &answer);
            }
        }
        Ok(())
    }

    /// The page opened, if the pool has it so, or has all of its bytes.
    pub(super) fn open_at_hand(&self, read: &PageRead) -> Option<Arc<OpenedPage>> {
        let key = self.key(&read.page, Part::Whole);
        match self.pool.get_if_held(&key)? {
            CachedPart::Opened(page) => page.has(&read.columns).then_some(page),
            CachedPart::Page(page) => {
                let before = page.byte_count();
                let opened = page.opened(read);
                if page.byte_count() != before {
                    self.pool.recount(&key);
                }
                opened
            }
            CachedPart::Header(_) | CachedPart::Bytes(_) => None,
        }
    }

    /// The pages opened, and how many bytes of them the pool had.
    pub(super) async fn open_through(
        &self,
        mut reads: Vec<PageRead>,
        source: &Arc<dyn PageSource>,
    ) -> Result<(Vec<Option<Arc<OpenedPage>>>, usize), StoreError> {
        for read in &mut reads {
            let whole = self.pool.get_if_held(&self.key(&read.page, Part::Whole));
            // What is opened stays so.
            if let Some(CachedPart::Opened(page)) = whole {
                let known = page.columns().filter(|column| !read.columns.contains(column));
                let known: Vec<ColumnRef> = known.collect();
                read.columns.extend(known);
            }
        }
        let (pages, held_bytes) = self.read_through(&reads, source).await?;
        let opened = pages.iter().zip(&reads).map(|(page, read)| {
            let opened = OpenedPage::open(page, read)?.map(Arc::new);
            let whole = self.key(&read.page, Part::Whole);
            // A page that is held whole keeps what is opened of it.
            if let Some(opened) = &opened
                && !matches!(self.pool.get_if_held(&whole), Some(CachedPart::Page(_)))
            {
                self.pool.put_opened(self.device, &read.page, opened);
            }
            Ok(opened)
        });
        Ok((opened.collect::<Result<_, StoreError>>()?, held_bytes))
    }

    /// Puts verified parts into the pool. They are what it counts: a chunk comes in memory of about its own size.
    fn keep(&self, read: &PageRead, columns: &PageColumns) {
        let header = CachedPart::Header(Arc::clone(&columns.header));
        self.pool.put(self.key(&read.page, Part::Header), header);
        for (column, chunk) in read.columns.iter().zip(&columns.chunks) {
            if let Some(chunk) = chunk {
                let key = self.key(&read.page, Part::from(*column));
                self.pool.put(key, CachedPart::Bytes(chunk.clone()));
            }
        }
    }

    /// Puts a page into the pool that the host has just written, for the next statement that appends to it or scans it.
    pub(crate) fn keep_written(&self, segment: SegmentRef, page: PageRef, bytes: &[u8]) {
        let read = PageRead { segment, page, columns: Vec::new() };
        if let Ok(whole) = WholePage::new(&read, Bytes::copy_from_slice(bytes)) {
            self.pool.put(self.key(&page, Part::Whole), CachedPart::Page(Arc::new(whole)));
        }
    }

    /// The payloads of `pages`, and how many bytes of them the pool had. Overflow pages are read whole: a value needs
    /// all of its pages, and they hold nothing else.
    pub(super) async fn read_overflow_through(
        &self,
        segment: SegmentRef,
        pages: &[PageRef],
        source: &Arc<dyn PageSource>,
    ) -> Result<(Vec<Bytes>, usize), StoreError> {
        let mut payloads = vec![None; pages.len()];
        let mut missing = Vec::new();
        let mut held_bytes = 0;
        for (place, page) in payloads.iter_mut().zip(pages) {
            match self.pool.get(&self.key(page, Part::Whole)) {
                Some(CachedPart::Bytes(bytes)) => {
                    held_bytes += bytes.len();
                    *place = Some(bytes);
                }
                _ => missing.push(*page),
            }
        }
        if !missing.is_empty() {
            let fetched = source.read_overflow(segment, missing.clone()).await?;
            let empty = payloads.iter_mut().filter(|place| place.is_none());
            for ((place, page), payload) in empty.zip(&missing).zip(fetched) {
                self.pool.put(self.key(page, Part::Whole), CachedPart::Bytes(payload.clone()));
                *place = Some(payload);
            }
        }
        Ok((payloads.into_iter().flatten().collect(), held_bytes))
    }
}

/// Fetches `wanted`, puts it into the pool and tells those who wait, in a task of its own.
fn begin_fetch(
    landing: Landing,
    wanted: Vec<PageRead>,
    source: Arc<dyn PageSource>,
    give: oneshot::Sender<Option<Arc<Vec<PageColumns>>>>,
) {
    let fetch = async move {
        let answers = source.read(wanted.clone()).await.ok();
        for (read, columns) in wanted.iter().zip(answers.iter().flatten()) {
            landing.pages.keep(read, columns);
        }
        drop(landing);
        // The receivers are gone where all waiting readers gave up.
        drop(give.send(answers.map(Arc::new)));
    };
    #[expect(
        clippy::disallowed_methods,
        reason = "others may wait for it by the time that who began it gives up; it ends with one reading of pages"
    )]
    drop(tokio::spawn(fetch));
}

/// Ends flights: after their parts are in the pool, or when they failed.
struct Landing {
    pages: PooledPages,
    keys: Vec<PartKey>,
    number: u64,
}

impl Drop for Landing {
    fn drop(&mut self) {
        let mut flights = self.pages.pool.flights();
        self.keys.iter().for_each(|key| flights.end(key, self.number));
    }
}

impl PageCache for PooledPages {
    fn read(
        &self,
        reads: Vec<PageRead>,
        source: Arc<dyn PageSource>,
    ) -> BoxFuture<'_, Result<Vec<PageColumns>, StoreError>> {
        async move { Ok(self.read_through(&reads, &source).await?.0) }.boxed()
    }

    fn read_overflow(
        &self,
        segment: SegmentRef,
        pages: Vec<PageRef>,
        source: Arc<dyn PageSource>,
    ) -> BoxFuture<'_, Result<Vec<Bytes>, StoreError>> {
        async move { Ok(self.read_overflow_through(segment, &pages, &source).await?.0) }.boxed()
    }
}

impl fmt::Debug for PooledPages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PooledPages").field("device", &self.device).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
