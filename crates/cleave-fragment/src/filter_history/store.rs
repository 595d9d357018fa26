//! What is known of the leaves of conditions, by page, within a number of bytes.

use std::cmp::Ordering;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arrow::buffer::BooleanBuffer;
use cleave_store::{PageRef, SegmentRef};
use quick_cache::Weighter;
use quick_cache::sync::Cache;

use super::formula::{Formula, Leaf, LeafKey};
use super::live::{LiveScans, Registered};
use super::rows::LeafRows;

/// Bytes of the history of a side, unless its options say otherwise.
pub const FILTER_HISTORY_BYTES: u64 = 32 << 20;

/// Most leaves of one column that are numbered: the one that was not asked for longest is forgotten first.
const LEAVES_MAX: usize = 64;
/// Most columns that have leaves; then all are forgotten.
const COLUMNS_MAX: usize = 1024;
/// The keys of leaves may take one in so many bytes of a history.
const KEYS_SHARE: u64 = 2;
/// What keys take of a history is a multiple of one in so many of its bytes: the cache gets the rest, and is told so
/// when that changes.
const GRANULES: u64 = 64;
/// Bytes of an entry besides its rows: its key, and what the cache keeps of it.
const ENTRY_BYTES: u64 = 96;
/// An entry is expected to have so many bytes.
const ENTRY_BYTES_EXPECTED: u64 = 1024;
/// Most wider leaves that are looked for on each page, of those that bound a leaf on one side.
const IMPLIED_MAX: usize = 2;

/// The number of a leaf; 0: none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct LeafId(u64);

/// When the rows of a leaf are noted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum HistoryMode {
    /// Never, nor are they asked for.
    #[default]
    Off,
    /// From the second scan that has it.
    On,
    /// From the first.
    Always,
}

/// A page: where it is, and the checksum of its header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PageKey {
    segment: u32,
    start: u64,
    table_id: u32,
    page: u32,
    row_count: u32,
    checksum: u32,
}

impl PageKey {
    /// The page `page` of `segment`; None: it is in memory only.
    pub fn of(segment: &SegmentRef, page: &PageRef) -> Option<Self> {
        (!segment.segment.is_shipped()).then_some(Self {
            segment: segment.segment.0,
            start: page.extent.start.0,
            table_id: segment.table_id,
            page: page.page,
            row_count: page.row_count,
            checksum: page.checksum,
        })
    }

    /// Its rows, as its reference says.
    pub fn row_count(&self) -> u32 {
        self.row_count
    }

    /// Its segment, and its number there.
    pub(super) fn place(&self) -> (u32, u32) {
        (self.segment, self.page)
    }
}

/// The history of a side, as one run uses it.
#[derive(Debug, Clone)]
pub struct HistoryUse {
    history: Arc<FilterHistory>,
    mode: HistoryMode,
    /// The run's number: its scans and their partitions count a leaf once.
    run: u64,
    /// Its scans that others see, by input.
    scans: Arc<Mutex<HashMap<u32, Registered>>>,
}

impl HistoryUse {
    /// `history`, for one more run.
    pub fn new(history: &Arc<FilterHistory>, mode: HistoryMode) -> Self {
        let run = history.runs.fetch_add(1, Relaxed) + 1;
        Self { history: Arc::clone(history), mode, run, scans: Arc::default() }
    }

    /// The history; None: it is not to be used, or keeps nothing.
    pub(crate) fn history(&self) -> Option<&Arc<FilterHistory>> {
        (self.mode != HistoryMode::Off && self.history.bytes_max > 0).then_some(&self.history)
    }

    /// Numbers the leaves of `formula`, which a scan of the run begins to evaluate, and finds the wider ones that are
    /// known.
    pub(crate) fn sighted(&self, formula: &mut Formula) {
        let mut leaves = self.history.leaves();
        for leaf in formula.leaves_mut() {
            leaves.number(leaf, (self.mode, self.run), self.history.bytes_max / KEYS_SHARE);
        }
        self.history.share_room(&mut leaves);
    }

    pub(super) fn owner(&self) -> &Arc<FilterHistory> {
        &self.history
    }

    pub(super) fn run(&self) -> u64 {
        self.run
    }

    pub(super) fn scans(&self) -> MutexGuard<'_, HashMap<u32, Registered>> {
        self.scans.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Totals since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HistoryFigures {
    /// Leaves that are numbered.
    pub leaves: u64,
    /// Pairs of page and leaf that are known.
    pub entries: u64,
    /// Bytes of both.
    pub bytes: u64,
    /// Bytes that they may have.
    pub bytes_max: u64,
    /// Questions that were answered.
    pub hits: u64,
    /// And that were not.
    pub misses: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct EntryKey {
    page: PageKey,
    leaf: LeafId,
}

#[derive(Debug, Clone, Copy)]
struct EntryBytes;

impl Weighter<EntryKey, Arc<LeafRows>> for EntryBytes {
    fn weight(&self, _: &EntryKey, rows: &Arc<LeafRows>) -> u64 {
        ENTRY_BYTES + rows.bytes() as u64
    }
}

/// A leaf that has a number.
#[derive(Debug)]
struct Known {
    key: LeafKey,
    id: LeafId,
    /// Runs that had it.
    runs: u64,
    /// The last one.
    last: u64,
}

impl Known {
    /// Bytes that it takes, about.
    fn bytes_of(key: &LeafKey) -> u64 {
        (size_of::<Self>() + key.constant_bytes()) as u64
    }
}

#[derive(Debug, Default)]
struct Leaves {
    /// By table and column.
    columns: BTreeMap<(u32, u32), Vec<Known>>,
    last_id: u64,
    /// Bytes of all of them.
    bytes: u64,
    /// What the cache does not get for that.
    bytes_set_aside: u64,
}

/// See the [module's](super) description.
pub struct FilterHistory {
    entries: Cache<EntryKey, Arc<LeafRows>, EntryBytes>,
    bytes_max: u64,
    leaves: Mutex<Leaves>,
    live: LiveScans,
    runs: AtomicU64,
    hits: AtomicU64,
    misses: AtomicU64,
}

impl fmt::Debug for FilterHistory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FilterHistory").field("figures", &self.figures()).finish_non_exhaustive()
    }
}

impl FilterHistory {
    /// A history of at most `bytes_max` bytes.
    pub fn new(bytes_max: u64) -> Self {
        let expected = usize::try_from(bytes_max / ENTRY_BYTES_EXPECTED).unwrap_or(usize::MAX);
        Self {
            entries: Cache::with_weighter(expected.max(1), bytes_max, EntryBytes),
            bytes_max,
            leaves: Mutex::default(),
            live: LiveScans::default(),
            runs: AtomicU64::default(),
            hits: AtomicU64::default(),
            misses: AtomicU64::default(),
        }
    }

    /// Rows of `page` among which all are for which `formula` is true, and whether it is true for each of them; None:
    /// any may be.
    pub fn rows(&self, formula: &Formula, page: &PageKey) -> Option<(BooleanBuffer, bool)> {
        match formula {
            Formula::Leaf(leaf) => {
                let exact = self.leaf_rows(leaf, page).map(|rows| (rows, true));
                exact.or_else(|| {
                    let mut wider = leaf.implied.iter();
                    wider.find_map(|(id, is_negated)| {
                        Some((self.get(*id, page)?.rows(*is_negated), false))
                    })
                })
            }
            Formula::And(parts) => {
                let known: Vec<_> = parts.iter().filter_map(|part| self.rows(part, page)).collect();
                let are_all = known.len() == parts.len();
                let known = known.into_iter();
                let rows = known.reduce(|one, other| (&one.0 & &other.0, one.1 && other.1));
                rows.map(|(rows, are_exact)| (rows, are_exact && are_all))
            }
            Formula::Or(parts) => {
                let mut known = parts.iter().map(|part| self.rows(part, page));
                let first = known.next()??;
                known.try_fold(first, |(rows, are_exact), part| {
                    let (more, is_exact) = part?;
                    Some((&rows | &more, are_exact && is_exact))
                })
            }
        }
    }

    /// The rows of `page` for which `leaf` is true.
    pub fn leaf_rows(&self, leaf: &Leaf, page: &PageKey) -> Option<BooleanBuffer> {
        let found = self.get(leaf.id, page);
        let counter = if found.is_some() { &self.hits } else { &self.misses };
        counter.fetch_add(1, Relaxed);
        found.map(|rows| rows.rows(leaf.is_negated))
    }

    /// As [`Self::leaf_rows`], without counting.
    pub(super) fn peek(&self, leaf: &Leaf, page: &PageKey) -> Option<BooleanBuffer> {
        let rows = self.entries.peek(&EntryKey { page: *page, leaf: leaf.id })?;
        (rows.row_count == page.row_count).then(|| rows.rows(leaf.is_negated))
    }

    /// Whether anything may be known of the table `table_id`.
    pub fn may_know(&self, table_id: u32) -> bool {
        if self.bytes_max == 0 {
            return false;
        }
        let of_table = (table_id, 0)..=(table_id, u32::MAX);
        let is_numbered = self.leaves().columns.range(of_table).next().is_some();
        is_numbered && !self.entries.is_empty()
    }

    /// Gives the leaves of `formula` the numbers that they have.
    pub(super) fn recognise(&self, formula: &mut Formula) {
        let leaves = self.leaves();
        for leaf in formula.leaves_mut() {
            leaf.id = leaves.id_of(&leaf.key).unwrap_or_default();
        }
    }

    fn get(&self, leaf: LeafId, page: &PageKey) -> Option<Arc<LeafRows>> {
        let key = EntryKey { page: *page, leaf };
        self.entries.get(&key).filter(|rows| rows.row_count == page.row_count)
    }

    /// Whether it is known for which rows of `page` `leaf` is true. This is no question that counts.
    pub(crate) fn knows(&self, leaf: &Leaf, page: &PageKey) -> bool {
        self.entries.contains_key(&EntryKey { page: *page, leaf: leaf.id })
    }

    /// The scans under way.
    pub(crate) fn live(&self) -> &LiveScans {
        &self.live
    }

    /// Notes the `rows` of `page` for which the plain form of `leaf` is true, and for which it is NULL.
    pub fn note(&self, leaf: &Leaf, page: &PageKey, rows: LeafRows) {
        if leaf.id != LeafId::default() && rows.row_count == page.row_count {
            self.entries.insert(EntryKey { page: *page, leaf: leaf.id }, Arc::new(rows));
        }
    }

    /// Forgets everything: the media are another's.
    pub fn clear(&self) {
        // Numbers are not given twice: scans that still run may note what they have.
        let mut leaves = self.leaves();
        leaves.forget();
        self.share_room(&mut leaves);
        drop(leaves);
        self.live.clear();
        self.entries.clear();
    }

    /// Totals.
    pub fn figures(&self) -> HistoryFigures {
        let leaves = self.leaves();
        let (count, key_bytes) =
            (leaves.columns.values().map(Vec::len).sum::<usize>(), leaves.bytes);
        drop(leaves);
        HistoryFigures {
            leaves: count as u64,
            entries: self.entries.len() as u64,
            bytes: self.entries.weight() + key_bytes,
            bytes_max: self.bytes_max,
            hits: self.hits.load(Relaxed),
            misses: self.misses.load(Relaxed),
        }
    }

    fn leaves(&self) -> MutexGuard<'_, Leaves> {
        self.leaves.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Leaves to the cache what the keys of `leaves`, which are its own, do not take.
    fn share_room(&self, leaves: &mut Leaves) {
        let set_aside = leaves.bytes.next_multiple_of((self.bytes_max / GRANULES).max(1));
        if set_aside == leaves.bytes_set_aside {
            return;
        }
        leaves.bytes_set_aside = set_aside;
        // The cache divides it among its shards, and would round up.
        let shards = (self.entries.num_shards() as u64).max(1);
        self.entries.set_capacity(self.bytes_max.saturating_sub(set_aside) / shards * shards);
    }
}

impl Leaves {
    fn id_of(&self, key: &LeafKey) -> Option<LeafId> {
        let column = self.columns.get(&(key.table_id, key.column))?;
        column.iter().find(|known| known.key == *key).map(|known| known.id)
    }

    fn forget(&mut self) {
        self.columns.clear();
        self.bytes = 0;
    }

    /// Forgets leaves, the oldest ones of `column` first, until one more of it with `bytes` may be numbered: all take
    /// `bytes_max` at most. False: it is too large.
    fn make_room(&mut self, column: (u32, u32), bytes: u64, bytes_max: u64) -> bool {
        let fits = |all: u64| all.saturating_add(bytes) <= bytes_max;
        if let Some(known) = self.columns.get_mut(&column) {
            while known.len() >= LEAVES_MAX || !fits(self.bytes) {
                let oldest = known.iter().enumerate().min_by_key(|(_, known)| known.last);
                let Some((oldest, _)) = oldest else { break };
                let forgotten = known.swap_remove(oldest);
                self.bytes = self.bytes.saturating_sub(Known::bytes_of(&forgotten.key));
            }
        }
        let is_new = !self.columns.contains_key(&column);
        if (is_new && self.columns.len() >= COLUMNS_MAX) || !fits(self.bytes) {
            self.forget();
        }
        fits(self.bytes)
    }

    /// Gives `leaf` its number, a new one if it has none and the keys of all fit `bytes_max`.
    fn number(&mut self, leaf: &mut Leaf, (mode, run): (HistoryMode, u64), bytes_max: u64) {
        let (of, bytes) = ((leaf.key.table_id, leaf.key.column), Known::bytes_of(&leaf.key));
        let is_new = self.id_of(&leaf.key).is_none();
        if is_new && !self.make_room(of, bytes, bytes_max) {
            return;
        }
        let column = self.columns.entry(of).or_default();
        if is_new {
            self.last_id += 1;
            self.bytes += bytes;
            let id = LeafId(self.last_id);
            column.push(Known { key: leaf.key.clone(), id, runs: 0, last: 0 });
        }
        let place = column.iter().position(|known| known.key == leaf.key).unwrap_or(column.len());
        let Some(known) = column.get_mut(place) else { return };
        if known.last < run {
            known.runs += 1;
            known.last = run;
        }
        leaf.id = known.id;
        leaf.is_noted = match mode {
            HistoryMode::Off => false,
            HistoryMode::On => known.runs > 1,
            HistoryMode::Always => true,
        };
        let wider = column.iter().filter_map(|known| {
            let is_negated = leaf.key.implies(leaf.is_negated, &known.key)?;
            (known.id != leaf.id).then_some((&known.key, known.id, is_negated))
        });
        let (below, above): (Vec<_>, Vec<_>) = wider.partition(|(.., is_negated)| *is_negated);
        leaf.implied = closest(below, |one, other| other.compare(one));
        leaf.implied.extend(closest(above, LeafKey::compare));
    }
}

/// The first few of `wider` by `order`, which need not be a total one.
fn closest(
    mut wider: Vec<(&LeafKey, LeafId, bool)>,
    order: impl Fn(&LeafKey, &LeafKey) -> Ordering,
) -> Vec<(LeafId, bool)> {
    let mut closest = Vec::new();
    while closest.len() < IMPLIED_MAX {
        let first = wider.iter().enumerate().min_by(|(_, one), (_, other)| order(one.0, other.0));
        let Some(first) = first.map(|(place, _)| place) else { break };
        let (_, id, is_negated) = wider.swap_remove(first);
        closest.push((id, is_negated));
    }
    closest
}
