//! Statistics of statements: each one in as it ends, the table `cleave.statements` and totals for monitors out.
//!
//! ```text
//!  text ─▶ Shape ─▶ Counting, while it runs ─┬─▶ Totals: by kind and outcome, times in buckets
//!                      ▲ its queries' cost   ├─▶ an entry of its role and shape
//!                                            ├─▶ whoever is told of slow statements
//!                                            └─▶ its span, if it is traced
//! ```
//! 1. [`Shape`] is a statement without its constants.
//! 2. [`Counting`] measures one run of it: from its beginning to its last row, or to where it failed or was given up.
//! 3. [`Statements`] has an entry for each shape and role. Beyond the limit, those with the fewest calls go.
//! 4. [`Traces`] says which statements are traced, and who takes their spans.
//!
//! Invariants: no constant of a statement is kept, but for what [`SlowStatements`] ask for of queries. A statement that
//! ends takes two short locks, and one that is counted for the first time a longer one.
//!
//! Source: PostgreSQL's pg_stat_statements.

mod shape;
mod totals;
mod traced;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};
use std::time::Duration;

use cleave_catalog::settings::Client;
use cleave_catalog::statement_cost::{Cost, StatementCost};
use cleave_fragment::trace::Trace;
use cleave_media::{Clock, SystemClock};

pub use shape::{Shape, StatementKind};
use totals::Totals;
pub use totals::{BUCKETS_S, KindTotals};
use traced::Traced;
pub use traced::{Traces, asked_by};

/// Entries that are kept unless [`Statements::keep`] says otherwise.
pub const ENTRY_COUNT_DEFAULT: usize = 1000;
/// The part of the entries that go where there is no room: one in so many.
const LEAVING_SHARE: usize = 20;
/// Splits of one shape that are told apart.
const SPLIT_COUNT_MAX: usize = 8;

/// Bytes of a slow statement with its constants; a longer one is cut.
const SLOW_TEXT_BYTES_MAX: usize = 16 << 10;

/// A role, None for a superuser that the catalog does not know, and the hash of a shape.
type Key = (Option<u32>, u64);

/// See the module's description.
pub struct Statements {
    entries: RwLock<BTreeMap<Key, Arc<Entry>>>,
    entry_count_max: AtomicUsize,
    left_count: AtomicU64,
    totals: Totals,
    slow: OnceLock<SlowStatements>,
    traces: OnceLock<Traces>,
}

/// The statements of one shape and role.
struct Entry {
    shape: Shape,
    figures: Mutex<Figures>,
}

/// What the statements of one shape and role have cost. Times in milliseconds.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Figures {
    /// How many have ended.
    pub calls: u64,
    /// Those of them that have failed, or were given up.
    pub failures: u64,
    /// Their time.
    pub total_ms: f64,
    /// The shortest one.
    pub min_ms: f64,
    /// The longest one.
    pub max_ms: f64,
    /// Rows that they gave or changed.
    pub rows: u64,
    /// What their planned queries have cost.
    pub cost: Cost,
    /// How often each split was taken.
    splits: BTreeMap<String, u64>,
}

impl Figures {
    /// The split that was taken most often; None: there was never a plan.
    #[must_use]
    pub fn split(&self) -> Option<&str> {
        let most = self.splits.iter().max_by_key(|(_, count)| **count);
        most.map(|(split, _)| split.as_str())
    }

    fn add(&mut self, elapsed_ms: f64, rows: u64, is_done: bool, cost: Cost) {
        self.min_ms = if self.calls == 0 { elapsed_ms } else { self.min_ms.min(elapsed_ms) };
        self.max_ms = self.max_ms.max(elapsed_ms);
        self.total_ms += elapsed_ms;
        self.calls += 1;
        self.failures += u64::from(!is_done);
        self.rows = self.rows.saturating_add(rows);
        let own = &mut self.cost;
        own.link_bytes = own.link_bytes.saturating_add(cost.link_bytes);
        own.media_bytes = own.media_bytes.saturating_add(cost.media_bytes);
        own.host_cpu_ms += cost.host_cpu_ms;
        own.device_cpu_ms += cost.device_cpu_ms;
        own.refused = own.refused.saturating_add(cost.refused);
        let Some(split) = cost.split else { return };
        if self.splits.len() < SPLIT_COUNT_MAX || self.splits.contains_key(&split) {
            *self.splits.entry(split).or_default() += 1;
        }
    }
}

/// How a statement came to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StatementEnd<'a> {
    /// After its last row, or once it was done.
    Done,
    /// With this SQLSTATE.
    Failed(&'a str),
    /// It was given up.
    Dropped,
}

/// Who is told of statements that take long.
pub struct SlowStatements {
    /// They take as long, or longer.
    pub least: Duration,
    /// Whether queries, and statements that change rows, are told of with their constants.
    pub has_values: bool,
    /// Told of each as it ends. It must not wait.
    pub tell: Box<dyn Fn(&SlowStatement<'_>) + Send + Sync>,
}

/// A statement that has taken long.
#[derive(Debug, Clone, Copy)]
pub struct SlowStatement<'a> {
    /// Its text, without constants unless they were asked for; a long one is cut.
    pub text: &'a str,
    /// The user.
    pub user: &'a str,
    /// The number of its session; 0: it is in this process.
    pub backend: i32,
    /// From its beginning to its end.
    pub elapsed: Duration,
    /// Rows that it gave or changed.
    pub rows: u64,
    /// What its planned queries have cost.
    pub cost: &'a Cost,
    /// How it ended.
    pub end: StatementEnd<'a>,
}

/// A statement that runs. Dropped before its end, it was given up.
pub struct Counting {
    statements: Arc<Statements>,
    shape: Shape,
    role: Option<u32>,
    began: Duration,
    rows: u64,
    cost: StatementCost,
    /// For those who are told of it: user, session, and text where it is shown with constants.
    about: Option<(String, i32, Option<String>)>,
    /// Its place in a trace, if it is traced.
    traced: Option<Box<Traced>>,
    /// It is entered already, or not to be.
    has_ended: bool,
}

/// A statement that has come to its end.
struct Ended<'a> {
    shape: &'a Shape,
    role: Option<u32>,
    elapsed: Duration,
    rows: u64,
    cost: Cost,
    end: StatementEnd<'a>,
    /// As [`Counting::about`].
    about: Option<(&'a str, i32, Option<&'a str>)>,
    traced: Option<Traced>,
}

impl Default for Statements {
    fn default() -> Self {
        Self {
            entries: RwLock::default(),
            entry_count_max: AtomicUsize::new(ENTRY_COUNT_DEFAULT),
            left_count: AtomicU64::new(0),
            totals: Totals::default(),
            slow: OnceLock::new(),
            traces: OnceLock::new(),
        }
    }
}

impl Statements {
    /// Keeps `count` entries at most from now on.
    pub fn keep(&self, count: usize) {
        self.entry_count_max.store(count, Ordering::Relaxed);
        if count == 0 {
            self.reset(|_| true);
        }
    }

    /// Tells `slow` of statements from now on; false: somebody else is told already.
    pub fn tell(&self, slow: SlowStatements) -> bool {
        self.slow.set(slow).is_ok()
    }

    /// Traces statements by `traces` from now on; false: they are traced already.
    pub fn trace(&self, traces: Traces) -> bool {
        self.traces.set(traces).is_ok()
    }

    /// Whether statements are traced.
    #[must_use]
    pub fn are_traced(&self) -> bool {
        self.traces.get().is_some()
    }

    /// Sums over all statements since the database was opened.
    pub fn totals(&self) -> Vec<KindTotals> {
        self.totals.by_kind()
    }

    /// How many entries there are, and how many had to go for others.
    #[must_use]
    pub fn entry_counts(&self) -> (usize, u64) {
        let count = self.entries.read().unwrap_or_else(PoisonError::into_inner).len();
        (count, self.left_count.load(Ordering::Relaxed))
    }

    /// All entries: role, shape and figures.
    pub fn listed(&self) -> Vec<(Option<u32>, Shape, Figures)> {
        let entries = self.entries.read().unwrap_or_else(PoisonError::into_inner);
        let copied = entries
            .iter()
            .map(|((role, _), entry)| (*role, entry.shape.clone(), entry.figures().clone()));
        copied.collect()
    }

    /// Forgets the entries of the roles that are `meant`; returns how many there were.
    pub fn reset(&self, is_meant: impl Fn(Option<u32>) -> bool) -> usize {
        let mut entries = self.entries.write().unwrap_or_else(PoisonError::into_inner);
        let before = entries.len();
        entries.retain(|(role, _), _| !is_meant(*role));
        before - entries.len()
    }

    /// Enters a statement of `client` that began at `began` and gave `rows` at once: a look-up, which takes so little
    /// time that nothing is copied for it.
    pub fn note(&self, client: &Client, shape: &Shape, began: Duration, rows: u64) {
        if client.looks_on {
            return;
        }
        let now = SystemClock.now();
        self.enter(Ended {
            shape,
            role: client.acting.role,
            elapsed: now.saturating_sub(began),
            rows,
            cost: Cost::default(),
            end: StatementEnd::Done,
            about: Some((client.user.as_str(), client.backend, None)),
            traced: self.traces.get().and_then(|traces| traces.traced(client, now)),
        });
    }

    fn enter(&self, ended: Ended<'_>) {
        let Ended { shape, role, elapsed, rows, cost, end, about, traced } = ended;
        self.totals.add(shape.kind(), end, elapsed, rows, &cost);
        if let (Some(slow), Some((user, backend, text))) = (self.slow.get(), about)
            && elapsed >= slow.least
        {
            (slow.tell)(&SlowStatement {
                text: text.unwrap_or(shape.text()),
                user,
                backend,
                elapsed,
                rows,
                cost: &cost,
                end,
            });
        }
        if let Some(traced) = traced {
            traced.end((shape, elapsed), (rows, &cost), end);
        }
        if let Some(entry) = self.entry((role, shape.hash()), shape) {
            let is_done = end == StatementEnd::Done;
            entry.figures().add(elapsed.as_secs_f64() * 1e3, rows, is_done, cost);
        }
    }

    fn entry(&self, key: Key, shape: &Shape) -> Option<Arc<Entry>> {
        let entries = self.entries.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(entry) = entries.get(&key) {
            return Some(Arc::clone(entry));
        }
        drop(entries);
        let entry_count_max = self.entry_count_max.load(Ordering::Relaxed);
        if entry_count_max == 0 {
            return None;
        }
        let mut entries = self.entries.write().unwrap_or_else(PoisonError::into_inner);
        if entries.len() >= entry_count_max {
            let leaving = entries.len() - entry_count_max + entry_count_max / LEAVING_SHARE + 1;
            self.make_room(&mut entries, leaving);
        }
        let new = || Arc::new(Entry { shape: shape.clone(), figures: Mutex::default() });
        Some(Arc::clone(entries.entry(key).or_insert_with(new)))
    }

    /// Removes the `leaving` entries with the fewest calls.
    fn make_room(&self, entries: &mut BTreeMap<Key, Arc<Entry>>, leaving: usize) {
        let mut calls: Vec<(u64, Key)> =
            entries.iter().map(|(key, entry)| (entry.figures().calls, *key)).collect();
        calls.sort_unstable();
        for (_, key) in calls.iter().take(leaving) {
            entries.remove(key);
            self.left_count.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Entry {
    fn figures(&self) -> MutexGuard<'_, Figures> {
        self.figures.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Counting {
    /// Begins to count a statement of `client`; `text` is its text with constants, if there is one.
    pub fn begin(
        statements: &Arc<Statements>,
        client: &Client,
        shape: &Shape,
        text: Option<&str>,
    ) -> Self {
        let about = statements.slow.get().map(|slow| {
            let shows = slow.has_values && shape.kind().is_of_rows();
            let text = text.filter(|_| shows).map(cut);
            (client.user.clone(), client.backend, text)
        });
        let traces = statements.traces.get().filter(|_| !client.looks_on);
        let began = SystemClock.now();
        Self {
            statements: Arc::clone(statements),
            shape: shape.clone(),
            role: client.acting.role,
            began,
            rows: 0,
            cost: StatementCost::default(),
            about,
            traced: traces.and_then(|traces| traces.traced(client, began)).map(Box::new),
            has_ended: client.looks_on,
        }
    }

    /// What its queries are to add their cost to.
    pub fn cost(&mut self) -> StatementCost {
        self.cost = StatementCost::begun();
        self.cost.clone()
    }

    /// What its fragments are measured under.
    #[must_use]
    pub fn trace(&self) -> Trace {
        self.traced.as_ref().map(|traced| traced.trace()).unwrap_or_default()
    }

    /// It has given, or changed, so many rows more.
    pub fn add_rows(&mut self, count: u64) {
        self.rows = self.rows.saturating_add(count);
    }

    /// It has ended.
    pub fn end(mut self, end: StatementEnd<'_>) {
        self.enter(end);
    }

    fn enter(&mut self, end: StatementEnd<'_>) {
        if std::mem::replace(&mut self.has_ended, true) {
            return;
        }
        let about = self.about.as_ref();
        self.statements.enter(Ended {
            shape: &self.shape,
            role: self.role,
            elapsed: SystemClock.now().saturating_sub(self.began),
            rows: self.rows,
            cost: self.cost.so_far(),
            end,
            about: about.map(|(user, backend, text)| (user.as_str(), *backend, text.as_deref())),
            traced: self.traced.take().map(|traced| *traced),
        });
    }
}

impl Drop for Counting {
    fn drop(&mut self) {
        self.enter(StatementEnd::Dropped);
    }
}

impl fmt::Debug for Statements {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Statements").field("totals", &self.totals).finish_non_exhaustive()
    }
}

impl fmt::Debug for Counting {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Counting").field("shape", &self.shape).finish_non_exhaustive()
    }
}

/// `text` within [`SLOW_TEXT_BYTES_MAX`].
fn cut(text: &str) -> String {
    let own = text.get(..text.floor_char_boundary(SLOW_TEXT_BYTES_MAX)).unwrap_or(text);
    let end = if own.len() < text.len() { "…" } else { "" };
    format!("{own}{end}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(statements: &Arc<Statements>, text: &str, end: StatementEnd<'_>) {
        let shape = Shape::of(text);
        let mut counting = Counting::begin(statements, &Client::default(), &shape, Some(text));
        counting.add_rows(2);
        counting.cost().add(|cost| cost.split = Some("h0".to_owned()));
        counting.end(end);
    }

    #[test]
    fn statements_of_a_shape_are_counted_together() {
        let statements = Arc::new(Statements::default());
        run(&statements, "SELECT 1", StatementEnd::Done);
        run(&statements, "SELECT 2", StatementEnd::Failed("22012"));
        drop(Counting::begin(&statements, &Client::default(), &Shape::of("SELECT 3"), None));
        let [(role, shape, figures)] = statements.listed().try_into().unwrap();
        assert_eq!((role, shape.text()), (None, "SELECT $1"));
        assert_eq!((figures.calls, figures.failures, figures.rows), (3, 2, 4));
        assert_eq!(figures.split(), Some("h0"));
        assert!(figures.min_ms <= figures.max_ms && figures.max_ms <= figures.total_ms);
        let totals = statements.totals();
        let queries = totals.iter().find(|totals| totals.kind == StatementKind::Select).unwrap();
        assert_eq!((queries.done, queries.failed, queries.dropped), (1, 1, 1));
        assert_eq!(statements.reset(|role| role.is_none()), 1);
        assert!(statements.listed().is_empty());
    }

    #[test]
    fn what_is_called_least_goes_first() {
        let statements = Arc::new(Statements::default());
        statements.keep(40);
        for number in 0..100 {
            run(&statements, "SELECT a", StatementEnd::Done);
            run(&statements, &format!("SELECT a{number}"), StatementEnd::Done);
        }
        let (count, left) = statements.entry_counts();
        assert!(count <= 40 && count as u64 + left == 101, "{count} and {left}");
        assert!(statements.listed().iter().any(|(_, shape, _)| shape.text() == "SELECT a"));
        statements.keep(0);
        run(&statements, "SELECT a", StatementEnd::Done);
        assert_eq!(statements.entry_counts().0, 0);
    }

    #[test]
    fn who_is_told_of_slow_statements_learns_constants_of_queries_alone() {
        let statements = Arc::new(Statements::default());
        let told = Arc::new(Mutex::new(Vec::new()));
        let teller = Arc::clone(&told);
        let tell = move |slow: &SlowStatement<'_>| {
            teller.lock().unwrap().push(format!("{} {}", slow.text, slow.rows));
        };
        let slow = SlowStatements { least: Duration::ZERO, has_values: true, tell: Box::new(tell) };
        assert!(statements.tell(slow));
        run(&statements, "SELECT 1", StatementEnd::Done);
        run(&statements, "ALTER ROLE ada PASSWORD 'pencil'", StatementEnd::Done);
        assert_eq!(*told.lock().unwrap(), ["SELECT 1 2", "ALTER ROLE ada PASSWORD $1 2"]);
        run(&statements, &format!("SELECT '{}'", "ß".repeat(1 << 20)), StatementEnd::Done);
        let last = told.lock().unwrap().pop().unwrap();
        assert!(last.len() < 20 << 10 && last.ends_with("ß… 2"), "{}", last.len());
    }
}
