//! The queries that run now, and the last that have ended: what each side of them does and did, for those who look on.
//!
//! 1. [`RunningQueries::enter`] lists a planned query of a session as it begins; the entry goes when its
//!    [`Listed`] is dropped.
//! 2. [`RunningQueries::seen`] gives the listed ones with their fragments: while one runs, when the host waited for
//!    its rows, what came over the link, and how far its device is, [if that is asked](super::ongoing_run); once it has
//!    ended, what its device measured, too. Whoever looks again and again takes [`RunningQueries::running`], and those
//!    that have [ended since](RunningQueries::ended_after).
//! 3. [`RunningQueries::enter_change`] lists a fragment that changes or locks rows, by itself; those of one statement
//!    are one entry, beside each other or one after the other.
//! 4. Those that took [`ENDED_AFTER`], or ran a fragment on a device, are kept for a while after their end.
//!
//! Invariants: looking on costs those who look, and a query an entry in a list: its text is its session's, and its
//! figures are read when somebody looks. Queries of sessions without a number are not listed. At most
//! [`ENDED_COUNT_MAX`] ended ones are kept, with at most [`FRAGMENT_COUNT_MAX`] fragments each.
//! Who may see what is for the caller to decide, by the session's number.
//!
//! Source: `docs/reference/server.md`.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cleave_fragment::strip::Strip;
use cleave_media::{Clock, Stopwatch, SystemClock};
use cleave_plan::split::Split;

use super::figures::{FigureLog, FragmentFigures};
use super::ongoing_run::{DeviceProgress, OngoingRun};

/// Most ended queries that are kept.
pub const ENDED_COUNT_MAX: usize = 64;
/// Most fragments of a query that are shown.
pub const FRAGMENT_COUNT_MAX: usize = 16;
/// Most notes of runs with which an ended query is kept unread: a fragment has two at most.
const NOTE_COUNT_MAX: usize = 2 * FRAGMENT_COUNT_MAX;
/// A query without a fragment is kept after its end if it took so long.
pub const ENDED_AFTER: Duration = Duration::from_millis(10);

/// See the [module](self).
#[derive(Debug, Default)]
pub struct RunningQueries {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    next: u64,
    running: BTreeMap<u64, Arc<Entry>>,
    /// The oldest first.
    ended: VecDeque<Ended>,
    /// How many have ended and were kept, since the database was opened.
    ended_count: u64,
}

struct Entry {
    number: u64,
    backend: i32,
    text: Arc<String>,
    /// None: it is of fragments that change rows, above which there is no plan.
    split: Option<Split>,
    began_us: i64,
    clock: Stopwatch,
    rows: AtomicU64,
    figures: Arc<FigureLog>,
    /// Of its queries of WITH, or of other fragments of its statement that change rows.
    more: Mutex<Vec<Arc<FigureLog>>>,
    /// When its statement began, if it is of fragments that change rows.
    changes: Option<i64>,
    /// Fragments of the same statement that had ended before it was listed.
    before: Vec<SeenFragment>,
    /// How many have it in the list.
    listed_count: AtomicUsize,
}

/// A query that has ended.
#[derive(Debug, Clone)]
enum Ended {
    /// It took so long, and is read when somebody looks.
    Unread(Arc<Entry>, Duration),
    /// It has more fragments than are kept.
    Read(SeenQuery),
}

/// A query's place in the list, until it is dropped.
#[derive(Debug)]
pub struct Listed {
    entry: Arc<Entry>,
    queries: Arc<RunningQueries>,
}

/// A query, as others see it.
#[derive(Debug, Clone)]
pub struct SeenQuery {
    /// Its number since the database was opened.
    pub number: u64,
    /// The number of its session.
    pub backend: i32,
    /// The text of its statement, truncated.
    pub text: Arc<String>,
    /// The split of its plan; None: it is of fragments that change rows, above which there is none.
    pub split: Option<Split>,
    /// When it began, in microseconds since 1970.
    pub began_us: i64,
    /// From its begin to now, or to its end.
    pub elapsed: Duration,
    /// Rows that it has given; none of fragments that change rows.
    pub rows: u64,
    /// When its statement began, in microseconds since 1970, if these are fragments that change or lock rows.
    pub changes: Option<i64>,
    /// Since it began.
    clock: Stopwatch,
    /// Whether it has ended.
    pub is_over: bool,
    /// Its fragments that have begun.
    pub fragments: Vec<SeenFragment>,
}

/// A fragment of a query on a device, as others see it.
#[derive(Debug, Clone)]
pub struct SeenFragment {
    /// Its number within the statement.
    pub number: usize,
    /// The tables that it scans.
    pub table: String,
    /// The device.
    pub device: String,
    /// How that is attached.
    pub mode: String,
    /// Whether its run has ended.
    pub is_over: bool,
    /// Rows that it has given.
    pub rows: u64,
    /// Pages of the table there, and how many of them were sent.
    pub pages: (usize, usize),
    /// Why the host ran it.
    pub refused: Option<String>,
    /// When the host waited for its rows, in nanoseconds.
    pub waited: Strip,
    /// Bytes of slots that have come.
    pub arrived: Strip,
    /// What the device measured, once it has told.
    pub device_work: Option<DeviceWork>,
    /// How far the device was when it was last asked.
    pub progress: Option<DeviceProgress>,
    /// To ask it, while the run goes on.
    pub ongoing: Option<OngoingRun>,
}

/// What a device measured of a run.
#[derive(Debug, Clone)]
pub struct DeviceWork {
    /// CPU time of its threads, in nanoseconds.
    pub worked: Strip,
    /// When it waited for the host, in nanoseconds.
    pub stalled: Strip,
    /// Partitions that worked beside each other.
    pub partitions: u32,
    /// Bytes that it read.
    pub media_bytes: u64,
    /// Bytes that it sent.
    pub slot_bytes: u64,
}

impl RunningQueries {
    /// Lists a query of session `backend` with the text of its statement and its split. Of its fragments `figures`
    /// tell, and of those of its queries of WITH `of_parts`.
    #[must_use]
    pub fn enter(
        self: &Arc<Self>,
        backend: i32,
        (text, split): (Arc<String>, Split),
        (figures, of_parts): (Arc<FigureLog>, Vec<Arc<FigureLog>>),
    ) -> Listed {
        let mut inner = self.inner();
        inner.next += 1;
        let entry = Entry {
            number: inner.next,
            backend,
            text,
            split: Some(split),
            began_us: SystemClock.wall(),
            clock: Stopwatch::start(),
            rows: AtomicU64::new(0),
            figures,
            more: Mutex::new(of_parts),
            changes: None,
            before: Vec::new(),
            listed_count: AtomicUsize::new(1),
        };
        self.listed(inner, entry)
    }

    /// Lists a fragment of session `backend` that changes or locks rows, of which `figures` will tell, with the text of
    /// its statement and when that began. Returns its number among those of the statement, too.
    #[must_use]
    pub fn enter_change(
        self: &Arc<Self>,
        backend: i32,
        (text, began): (Arc<String>, i64),
        figures: Arc<FigureLog>,
    ) -> (Listed, usize) {
        let mut inner = self.inner();
        let is_same = |of: i32, changes: Option<i64>| of == backend && changes == Some(began);
        let mut running = inner.running.values();
        if let Some(entry) = running.find(|entry| is_same(entry.backend, entry.changes)) {
            let entry = Arc::clone(entry);
            entry.listed_count.fetch_add(1, Ordering::Relaxed);
            let mut more = entry.more();
            more.push(figures);
            let number = number_after(&entry.before) + more.len();
            drop(more);
            return (Listed { entry, queries: Arc::clone(self) }, number);
        }
        let place = inner.ended.iter().rposition(|ended| {
            let (backend, changes) = ended.of();
            is_same(backend, changes)
        });
        let before = place.and_then(|place| inner.ended.remove(place)).map(Ended::seen);
        let (number, began_us, clock, before) = match before {
            Some(seen) => (seen.number, seen.began_us, seen.clock, seen.fragments),
            None => {
                inner.next += 1;
                (inner.next, SystemClock.wall(), Stopwatch::start(), Vec::new())
            }
        };
        let number_of_fragment = number_after(&before);
        let entry = Entry {
            number,
            backend,
            text,
            split: None,
            began_us,
            clock,
            rows: AtomicU64::new(0),
            figures,
            more: Mutex::default(),
            changes: Some(began),
            before,
            listed_count: AtomicUsize::new(1),
        };
        (self.listed(inner, entry), number_of_fragment)
    }

    fn listed(self: &Arc<Self>, mut inner: MutexGuard<'_, Inner>, entry: Entry) -> Listed {
        let entry = Arc::new(entry);
        inner.running.insert(entry.number, Arc::clone(&entry));
        Listed { entry, queries: Arc::clone(self) }
    }

    /// Those that run, the oldest first, then those that have ended, the last first.
    #[must_use]
    pub fn seen(&self) -> Vec<SeenQuery> {
        let (running, ended) = {
            let inner = self.inner();
            let running: Vec<_> = inner.running.values().map(Arc::clone).collect();
            (running, inner.ended.iter().rev().cloned().collect::<Vec<_>>())
        };
        let running = running.iter().map(|entry| entry.seen(entry.clock.elapsed(), false));
        running.chain(ended.into_iter().map(Ended::seen)).collect()
    }

    /// Those that run, the oldest first.
    #[must_use]
    pub fn running(&self) -> Vec<SeenQuery> {
        let running: Vec<_> = self.inner().running.values().map(Arc::clone).collect();
        running.iter().map(|entry| entry.seen(entry.clock.elapsed(), false)).collect()
    }

    /// Those that have ended behind the first `count`, the oldest first, and how many have ended by now.
    #[must_use]
    pub fn ended_after(&self, count: u64) -> (Vec<SeenQuery>, u64) {
        let (ended, ended_count) = {
            let inner = self.inner();
            let new = usize::try_from(inner.ended_count.saturating_sub(count));
            let known = inner.ended.len().saturating_sub(new.unwrap_or(usize::MAX));
            (inner.ended.iter().skip(known).cloned().collect::<Vec<_>>(), inner.ended_count)
        };
        (ended.into_iter().map(Ended::seen).collect(), ended_count)
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Listed {
    /// Notes that the query has given so many rows more.
    pub fn gave(&self, rows: usize) {
        self.entry.rows.fetch_add(rows as u64, Ordering::Relaxed);
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        let elapsed = self.entry.clock.elapsed();
        let mut inner = self.queries.inner();
        // Others of the same statement are in the list, too.
        if self.entry.listed_count.fetch_sub(1, Ordering::Relaxed) > 1 {
            return;
        }
        inner.running.remove(&self.entry.number);
        self.entry.logs().iter().for_each(|log| log.asks_no_more());
        let ended = match self.entry.note_count() {
            0 if elapsed < ENDED_AFTER => return,
            0..=NOTE_COUNT_MAX => Ended::Unread(Arc::clone(&self.entry), elapsed),
            _ => Ended::Read(self.entry.seen(elapsed, true)),
        };
        inner.ended.push_back(ended);
        inner.ended_count += 1;
        while inner.ended.len() > ENDED_COUNT_MAX {
            inner.ended.pop_front();
        }
    }
}

impl Ended {
    /// The session, and when the statement began, if it is of fragments that change rows.
    fn of(&self) -> (i32, Option<i64>) {
        match self {
            Self::Unread(entry, _) => (entry.backend, entry.changes),
            Self::Read(seen) => (seen.backend, seen.changes),
        }
    }

    fn seen(self) -> SeenQuery {
        match self {
            Self::Unread(entry, elapsed) => entry.seen(elapsed, true),
            Self::Read(seen) => seen,
        }
    }
}

impl Entry {
    fn more(&self) -> MutexGuard<'_, Vec<Arc<FigureLog>>> {
        self.more.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn logs(&self) -> Vec<Arc<FigureLog>> {
        std::iter::once(&self.figures).chain(&*self.more()).map(Arc::clone).collect()
    }

    fn note_count(&self) -> usize {
        self.logs().iter().map(|log| log.note_count()).sum()
    }

    fn seen(&self, elapsed: Duration, is_over: bool) -> SeenQuery {
        let logs = self.logs();
        // In this order: a run that ends between the two looks is seen once.
        let begun: Vec<_> = logs.iter().flat_map(|log| log.begun()).collect();
        let ended: Vec<_> = logs.iter().flat_map(|log| log.fragments()).collect();
        let is_of = |one: &FragmentFigures, other: &FragmentFigures| {
            (one.number, &one.device) == (other.number, &other.device)
        };
        let is_ended = |begun: &FragmentFigures| ended.iter().any(|ended| is_of(begun, ended));
        let open = begun.iter().filter(|(begun, _)| !is_ended(begun)).map(|(figures, ongoing)| {
            let progress = ongoing.as_ref().and_then(OngoingRun::progress);
            let ongoing = ongoing.clone().filter(|_| !is_over);
            SeenFragment { progress, ongoing, ..SeenFragment::of(figures, is_over) }
        });
        let fragments = ended.iter().map(|figures| SeenFragment::of(figures, true)).chain(open);
        // Of many, the last are shown: those that run are among them.
        let fragments: Vec<_> = self.before.iter().cloned().chain(fragments).collect();
        let left_out = fragments.len().saturating_sub(FRAGMENT_COUNT_MAX);
        let mut fragments: Vec<_> = fragments.into_iter().skip(left_out).collect();
        fragments.sort_by(|one, other| {
            (one.number, one.device.as_str()).cmp(&(other.number, other.device.as_str()))
        });
        SeenQuery {
            number: self.number,
            backend: self.backend,
            text: Arc::clone(&self.text),
            split: self.split,
            began_us: self.began_us,
            elapsed,
            rows: self.rows.load(Ordering::Relaxed),
            changes: self.changes,
            clock: self.clock.clone(),
            is_over,
            fragments,
        }
    }
}

/// The number of the fragment behind those of its statement that had ended `before`.
fn number_after(before: &[SeenFragment]) -> usize {
    before.iter().map(|fragment| fragment.number).max().unwrap_or(0) + 1
}

impl fmt::Debug for Entry {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Entry").field("number", &self.number).finish_non_exhaustive()
    }
}

impl SeenFragment {
    fn of(figures: &FragmentFigures, is_over: bool) -> Self {
        let device_work = figures.report.as_ref().map(|report| DeviceWork {
            worked: report.worked.clone(),
            stalled: report.stalled.clone(),
            partitions: report.partitions,
            media_bytes: report.media_bytes,
            slot_bytes: report.slot_bytes,
        });
        Self {
            number: figures.number,
            table: figures.table.clone(),
            device: figures.device.clone(),
            mode: figures.mode.to_string(),
            is_over,
            rows: figures.rows.max(figures.timeline.rows),
            pages: figures.pages,
            refused: figures.refused.clone(),
            waited: figures.timeline.waited.clone(),
            arrived: figures.timeline.arrived.clone(),
            device_work,
            progress: None,
            ongoing: None,
        }
    }
}
