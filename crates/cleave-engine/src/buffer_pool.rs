//! The host's buffer pool: verified parts of pages, kept within one budget of bytes.
//!
//! A part is a page's header, one column chunk, or a whole page (overflow pages, pages from plain block reads, and
//! pages of which few rows are read, their columns opened once). Its key holds the block address *and the checksum of
//! the page's header*, so that space which was retired and rewritten is never read as its former content.
//!
//! Replacement is S3-FIFO (Yang et al., SOSP 2023): new parts enter a small queue, and only those asked for again move
//! to the main one, so that a scan of a large table passes through a tenth of the budget. A part evicted from the small
//! queue leaves its key in a ghost queue; a part that returns while its key is there enters the main queue at once.
//!
//! Invariant: between calls, the weights of all parts in the pool sum to at most the budget. A part larger than the
//! budget is never kept. What opened columns allocate later (the entries of a dictionary) is counted from the
//! beginning; for a page that is kept whole, from when they are opened ([`BufferPool::recount`]). What callers hold
//! beyond eviction (a batch that borrows a chunk) is theirs to account for.

mod flights;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use cleave_catalog::catalog::DeviceId;
use cleave_media::{BlockAddress, Extent};
use cleave_store::{ChunkEntry, ColumnRef, OpenedPage, PageHeader, PageRef};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::host_pages::WholePage;

pub use flights::{Fetch, Flight, Flights};

/// Keeps parts of pages within a budget. See the module's description.
#[derive(Debug)]
pub struct BufferPool {
    budget_bytes: u64,
    state: Mutex<PoolInner>,
    flights: Mutex<Flights>,
}

/// Names one part of one page of one device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PartKey {
    device: DeviceId,
    start: BlockAddress,
    checksum: u32,
    part: Part,
}

/// Which part of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Part {
    /// The parsed, verified header.
    Header,
    /// The chunk of a user column, by column id.
    User(u32),
    /// The chunk of VIDs.
    Vid,
    /// The chunk of commit numbers.
    Commit,
    /// All bytes of the page, or all of its columns that are opened.
    Whole,
}

impl From<ColumnRef> for Part {
    fn from(column: ColumnRef) -> Self {
        match column {
            ColumnRef::User(id) => Self::User(id),
            ColumnRef::Vid => Self::Vid,
            ColumnRef::Commit => Self::Commit,
        }
    }
}

impl PartKey {
    /// The key of `part` of `page` on `device`.
    pub fn new(device: DeviceId, page: &PageRef, part: Part) -> Self {
        Self { device, start: page.extent.start, checksum: page.checksum, part }
    }
}

/// The cached form of a part.
#[derive(Debug, Clone)]
pub enum CachedPart {
    /// A header.
    Header(Arc<PageHeader>),
    /// A chunk, or the payload of an overflow page.
    Bytes(Bytes),
    /// A page that was read as blocks.
    Page(Arc<WholePage>),
    /// Columns of a page, opened.
    Opened(Arc<OpenedPage>),
}

impl CachedPart {
    fn weight(&self) -> u64 {
        let content = match self {
            Self::Header(header) => header_bytes(header),
            Self::Bytes(bytes) => bytes.len(),
            Self::Page(page) => page.byte_count(),
            Self::Opened(page) => header_bytes(page.header()) + page.byte_count(),
        };
        (content + ENTRY_BYTES) as u64
    }
}

/// Whether `chunk`, of a version of the page `from`, lies where that has it.
fn is_shared(chunk: &ChunkEntry, (from, header): (&PageRef, &PageHeader)) -> bool {
    let Some(block) = chunk.shared else { return false };
    header.entry(chunk.column).is_some_and(|before| {
        let is_there = match before.shared {
            Some(shared) => shared == block,
            None => from.extent.contains(Extent { start: block, block_count: 1 }),
        };
        is_there && (before.length, before.checksum) == (chunk.length, chunk.checksum)
    })
}

fn header_bytes(header: &PageHeader) -> usize {
    size_of::<PageHeader>() + header.chunks.len() * CHUNK_ENTRY_BYTES
}

/// Totals since the pool was made, and what it holds now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PoolStatus {
    /// Look-ups that found their part.
    pub hits: u64,
    /// Look-ups that did not.
    pub misses: u64,
    /// Bytes of the parts found.
    pub hit_bytes: u64,
    /// Bytes of all parts that were put in.
    pub loaded_bytes: u64,
    /// Parts evicted.
    pub evictions: u64,
    /// Parts held.
    pub parts: u64,
    /// Bytes held, book-keeping included.
    pub bytes: u64,
    /// Bytes that may be held.
    pub budget_bytes: u64,
}

impl PoolStatus {
    /// The counters since `before`, and the present fill.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        Self {
            hits: self.hits.saturating_sub(before.hits),
            misses: self.misses.saturating_sub(before.misses),
            hit_bytes: self.hit_bytes.saturating_sub(before.hit_bytes),
            loaded_bytes: self.loaded_bytes.saturating_sub(before.loaded_bytes),
            evictions: self.evictions.saturating_sub(before.evictions),
            ..*self
        }
    }
}

/// What the book-keeping of a part costs, roughly: map slot, queue slot, ghost slot.
const ENTRY_BYTES: usize = 160;
/// What a chunk's entry in a header costs in memory, roughly.
const CHUNK_ENTRY_BYTES: usize = 64;
/// The small queue's share of the budget.
const SMALL_SHARE: u64 = 10;
/// Most accesses that a part is credited with.
const FREQUENCY_MAX: u8 = 3;

impl BufferPool {
    /// An empty pool that holds up to `budget_bytes`.
    pub fn new(budget_bytes: u64) -> Self {
        Self { budget_bytes, state: Mutex::default(), flights: Mutex::default() }
    }

    /// Locks the pool for look-ups of several parts in a row.
    pub fn parts(&self) -> HeldParts<'_> {
        HeldParts { state: self.state() }
    }

    /// The part under `key`, if it is held; counts a hit or a miss.
    pub fn get(&self, key: &PartKey) -> Option<CachedPart> {
        self.parts().get(key)
    }

    /// As [`BufferPool::get`], but absence does not count as a miss: the part may be in the pool in another form.
    pub fn get_if_held(&self, key: &PartKey) -> Option<CachedPart> {
        self.parts().get_if_held(key)
    }

    /// True if the part is held; counts nothing and keeps nothing longer.
    pub fn holds(&self, key: &PartKey) -> bool {
        self.state().parts.contains_key(key)
    }

    /// How many of the parts `columns` of `page` are in the pool. A page whose bytes are held whole counts for all of
    /// them.
    pub fn held_count(&self, device: DeviceId, page: &PageRef, columns: &[ColumnRef]) -> usize {
        let state = self.state();
        let whole = state.parts.get(&PartKey::new(device, page, Part::Whole));
        let opened = match whole.map(|entry| &entry.held) {
            Some(CachedPart::Opened(opened)) => Some(opened),
            Some(_) => return columns.len(),
            None => None,
        };
        let held = |column: &&ColumnRef| {
            opened.is_some_and(|opened| opened.has(&[**column]))
                || state.parts.contains_key(&PartKey::new(device, page, Part::from(**column)))
        };
        columns.iter().filter(held).count()
    }

    /// Holds `held` under `key`, evicting others as the budget demands.
    pub fn put(&self, key: PartKey, held: CachedPart) {
        let weight = held.weight();
        let mut state = self.state();
        state.loaded_bytes += weight;
        if weight > self.budget_bytes {
            return;
        }
        if let Some(entry) = state.parts.get_mut(&key)
            && entry.weight == weight
        {
            // Two readers fetched the same part, or the old one did not verify: the later one stays.
            entry.frequency = (entry.frequency + 1).min(FREQUENCY_MAX);
            entry.held = held;
            return;
        }
        let before = state.remove(&key);
        state.admit(key, (held, weight), before.into_iter(), self.budget_bytes);
    }

    /// Counts the part under `key` again, if it is held: it has grown since it was put in.
    pub fn recount(&self, key: &PartKey) {
        let mut state = self.state();
        let Some(entry) = state.parts.get(key) else { return };
        let weight = entry.held.weight();
        if weight == entry.weight {
            return;
        }
        let Some(before) = state.remove(key) else { return };
        if weight > self.budget_bytes {
            state.evictions += 1;
            return;
        }
        let held = before.held.clone();
        state.admit(*key, (held, weight), std::iter::once(before), self.budget_bytes);
    }

    /// Replaces the parts of `page` by the opened columns that were made of them.
    pub fn put_opened(&self, device: DeviceId, page: &PageRef, opened: &Arc<OpenedPage>) {
        let whole = PartKey::new(device, page, Part::Whole);
        let held = CachedPart::Opened(Arc::clone(opened));
        let weight = held.weight();
        let mut state = self.state();
        state.loaded_bytes += weight;
        if weight > self.budget_bytes {
            return;
        }
        let parts = opened.columns().map(Part::from).chain([Part::Header, Part::Whole]);
        let before = parts.filter_map(|part| state.remove(&PartKey { part, ..whole }));
        let before: Vec<Entry> = before.collect();
        state.admit(whole, (held, weight), before.into_iter(), self.budget_bytes);
    }

    /// Whether it has something of `page` by parts or opened.
    pub(crate) fn has_parts_of(&self, device: DeviceId, page: &PageRef) -> bool {
        let state = self.state();
        let opened = state.parts.get(&PartKey::new(device, page, Part::Whole));
        opened.is_some_and(|entry| matches!(entry.held, CachedPart::Opened(_)))
            || state.parts.contains_key(&PartKey::new(device, page, Part::Header))
    }

    /// Takes what it has of the page `from` over to the page `to`, a version of it with this header: the chunks that
    /// both share. The rest of `from` is dropped; who still reads that fetches it again.
    pub(crate) fn hand_over(
        &self,
        device: DeviceId,
        (from, to): (&PageRef, &PageRef),
        header: &Arc<PageHeader>,
    ) {
        let mut state = self.state();
        let whole = state.remove(&PartKey::new(device, from, Part::Whole));
        let opened = match whole.as_ref().map(|entry| &entry.held) {
            Some(CachedPart::Opened(opened)) => Some(Arc::clone(opened)),
            _ => None,
        };
        let alone = state.remove(&PartKey::new(device, from, Part::Header));
        let of_from = match alone.as_ref().map(|entry| &entry.held) {
            Some(CachedPart::Header(header)) => Some(&**header),
            _ => opened.as_ref().map(|page| &**page.header()),
        };
        let (mut frequency, mut queue) = (1, Queue::Small);
        let mut note = |entry: &Entry| {
            frequency = entry.frequency.max(frequency);
            if entry.queue == Queue::Main {
                queue = Queue::Main;
            }
        };
        whole.iter().for_each(&mut note);
        alone.iter().for_each(&mut note);
        let mut kept = vec![(Part::Header, CachedPart::Header(Arc::clone(header)))];
        for chunk in &header.chunks {
            let part = Part::from(chunk.column);
            let own = state.remove(&PartKey::new(device, from, part));
            own.iter().for_each(&mut note);
            // A version of a version shares chunks with either.
            if !of_from.is_some_and(|header| is_shared(chunk, (from, header))) {
                continue;
            }
            let bytes = match own.map(|entry| entry.held) {
                Some(CachedPart::Bytes(bytes)) => Some(bytes),
                _ => opened.as_ref().and_then(|page| page.chunk(chunk.column)).flatten(),
            };
            kept.extend(bytes.map(|bytes| (part, CachedPart::Bytes(bytes))));
        }
        for (part, held) in kept {
            let key = PartKey::new(device, to, part);
            let weight = held.weight();
            drop(state.remove(&key));
            if weight > self.budget_bytes {
                continue;
            }
            state.make_room(weight, self.budget_bytes);
            state.enqueue(key, queue, weight);
            state.parts.insert(key, Entry { held, weight, queue, frequency });
        }
    }

    /// The fetches in flight, locked: none lands while the lock is held.
    pub fn flights(&self) -> MutexGuard<'_, Flights> {
        self.flights.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Totals and fill.
    pub fn status(&self) -> PoolStatus {
        let state = self.state();
        PoolStatus {
            hits: state.hits,
            misses: state.misses,
            hit_bytes: state.hit_bytes,
            loaded_bytes: state.loaded_bytes,
            evictions: state.evictions,
            parts: state.parts.len() as u64,
            bytes: state.bytes(),
            budget_bytes: self.budget_bytes,
        }
    }

    /// Drops everything held: the next reads are cold.
    pub fn clear(&self) {
        let mut state = self.state();
        *state = PoolInner {
            hits: state.hits,
            misses: state.misses,
            hit_bytes: state.hit_bytes,
            loaded_bytes: state.loaded_bytes,
            evictions: state.evictions,
            ..PoolInner::default()
        };
    }

    fn state(&self) -> MutexGuard<'_, PoolInner> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Queue {
    Small,
    Main,
}

#[derive(Debug)]
struct Entry {
    held: CachedPart,
    weight: u64,
    queue: Queue,
    frequency: u8,
}

#[derive(Debug, Default)]
struct PoolInner {
    parts: FxHashMap<PartKey, Entry>,
    small: VecDeque<PartKey>,
    small_bytes: u64,
    main: VecDeque<PartKey>,
    main_bytes: u64,
    ghosts: Ghosts,
    hits: u64,
    misses: u64,
    hit_bytes: u64,
    loaded_bytes: u64,
    evictions: u64,
}

impl PoolInner {
    fn bytes(&self) -> u64 {
        self.small_bytes + self.main_bytes
    }

    fn enqueue(&mut self, key: PartKey, queue: Queue, weight: u64) {
        match queue {
            Queue::Small => {
                self.small.push_back(key);
                self.small_bytes += weight;
            }
            Queue::Main => {
                self.main.push_back(key);
                self.main_bytes += weight;
            }
        }
    }

    /// Replaces the parts `before` by `held`, of this weight, which gets the best access count of them.
    fn admit(
        &mut self,
        key: PartKey,
        (held, weight): (CachedPart, u64),
        before: impl Iterator<Item = Entry>,
        budget_bytes: u64,
    ) {
        self.make_room(weight, budget_bytes);
        let (mut frequency, mut is_known) = (0, self.ghosts.remove(&key));
        for entry in before {
            frequency = entry.frequency.max(frequency);
            is_known |= entry.queue == Queue::Main;
        }
        let queue = if is_known { Queue::Main } else { Queue::Small };
        self.enqueue(key, queue, weight);
        self.parts.insert(key, Entry { held, weight, queue, frequency });
    }

    /// Evicts parts until one of this weight, which the budget allows, has room.
    fn make_room(&mut self, weight: u64, budget_bytes: u64) {
        while self.bytes() + weight > budget_bytes {
            self.evict_one(budget_bytes / SMALL_SHARE);
        }
    }

    /// Drops the part. Its place in its queue stays, and is skipped when it comes to the front.
    fn remove(&mut self, key: &PartKey) -> Option<Entry> {
        let entry = self.parts.remove(key)?;
        match entry.queue {
            Queue::Small => self.small_bytes -= entry.weight,
            Queue::Main => self.main_bytes -= entry.weight,
        }
        Some(entry)
    }

    /// Evicts one part, skips the place of one that is gone, or moves one on to where the next call may evict it.
    fn evict_one(&mut self, small_target: u64) {
        if self.small_bytes > small_target || self.main.is_empty() {
            let Some(key) = self.small.pop_front() else { return };
            let entry = self.parts.get_mut(&key).filter(|entry| entry.queue == Queue::Small);
            let Some(entry) = entry else { return };
            let weight = entry.weight;
            self.small_bytes -= weight;
            if entry.frequency > 0 {
                entry.frequency = 0;
                entry.queue = Queue::Main;
                self.enqueue(key, Queue::Main, weight);
            } else {
                self.parts.remove(&key);
                self.evictions += 1;
                let kept = self.parts.len();
                self.ghosts.push(key, kept);
            }
        } else {
            let Some(key) = self.main.pop_front() else { return };
            let entry = self.parts.get_mut(&key).filter(|entry| entry.queue == Queue::Main);
            let Some(entry) = entry else { return };
            if entry.frequency > 0 {
                entry.frequency -= 1;
                self.main.push_back(key);
            } else {
                self.main_bytes -= entry.weight;
                self.parts.remove(&key);
                self.evictions += 1;
            }
        }
    }
}

/// The parts of a pool, while nobody else has them.
#[derive(Debug)]
pub struct HeldParts<'a> {
    state: MutexGuard<'a, PoolInner>,
}

impl HeldParts<'_> {
    /// As [`BufferPool::get`].
    pub fn get(&mut self, key: &PartKey) -> Option<CachedPart> {
        let found = self.get_if_held(key);
        if found.is_none() {
            self.state.misses += 1;
        }
        found
    }

    /// As [`BufferPool::get_if_held`].
    pub fn get_if_held(&mut self, key: &PartKey) -> Option<CachedPart> {
        let entry = self.state.parts.get_mut(key)?;
        entry.frequency = (entry.frequency + 1).min(FREQUENCY_MAX);
        let (held, weight) = (entry.held.clone(), entry.weight);
        self.state.hits += 1;
        self.state.hit_bytes += weight;
        Some(held)
    }
}

/// Keys of parts lately evicted from the small queue.
#[derive(Debug, Default)]
struct Ghosts {
    order: VecDeque<PartKey>,
    keys: FxHashSet<PartKey>,
}

impl Ghosts {
    fn push(&mut self, key: PartKey, count_max: usize) {
        if self.keys.insert(key) {
            self.order.push_back(key);
        }
        while self.order.len() > count_max.max(1) {
            if let Some(oldest) = self.order.pop_front() {
                self.keys.remove(&oldest);
            }
        }
    }

    fn remove(&mut self, key: &PartKey) -> bool {
        // Its place in `order` stays and is skipped over when it comes to the front.
        self.keys.remove(key)
    }
}

#[cfg(test)]
mod tests;
