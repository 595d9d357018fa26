//! Results that are used again: the rows of a query, held in the host's memory while its tables have the same rows.
//!
//! ```text
//!  query ─▶ key ─┬─ held, its tables unchanged ─▶ ReusedExec over the held rows
//!                └─ else ─▶ plan, run ─▶ rows, held as they pass where that pays
//! ```
//!
//! 1. The [key](ResultKey) of a result is the query's lowered syntax tree with the values of its parameters, the
//!    settings of the session but those that say who asks, and the role. So each split, order of joins and device
//!    memory has results of its own, and comparisons of them compare what ran.
//! 2. A result is valid while its tables, those of its views included, have the [same rows](TableRows).
//! 3. Rows are held from the second time that a query comes, or from the first if it takes [long](ALWAYS_HELD). Where
//!    the results have more bytes than `result_cache_bytes`, the one that saved least for its bytes goes first.
//!
//! Invariants: a result is neither held of nor given to a statement that sees uncommitted changes of its own, runs at
//! level SERIALIZABLE, whose reads must be noted, calls a function that is not immutable, or reads anything but tables
//! of Cleave. Held rows, with the query and the settings that are their key, take memory of queries, at most a quarter
//! of it.
//!
//! Source: NDP result sets, sections 3 (reuse semantics) and 5 (experiment 4).

pub(in crate::select) mod listed;
mod reused_exec;

use std::collections::VecDeque;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cleave_catalog::catalog::CatalogState;
use cleave_catalog::catalog::same_rows::TableRows;
use cleave_catalog::settings::{BatchLimits, Client, ResultReuse, Settings};
use cleave_media::Stopwatch;
use cleave_plan::profile::Origin;
use cleave_plan::split::PlacedCuts;
use cleave_store::TableSchema;
use datafusion::arrow::array::{Array, ArrayData, RecordBatch};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::MemoryCatalogProviderList;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::session_state::SessionState;
use datafusion::sql::sqlparser::ast;
use rustc_hash::{FxBuildHasher, FxHashSet};

use super::order_and_split::{ComparedOrders, Divided};
use super::origins::ColumnOrigin;
use super::result_names::ResultNames;
use super::statement_context::StatementContext;
use super::{PlannedQuery, Purpose};
pub(super) use reused_exec::ReusedExec;

/// Name of the table of results in the schema `cleave`.
pub(super) const TABLE: &str = "result_sets";

/// A query that takes as long is held the first time that it runs.
const ALWAYS_HELD: Duration = Duration::from_millis(100);
/// Queries that are remembered, to know one that comes again.
const SEEN_COUNT_MAX: usize = 1024;
/// Most results, so that finding one stays cheap.
const RESULT_COUNT_MAX: usize = 1024;
/// The share of the memory of queries that all results may take.
const MEMORY_SHARE: usize = 4;
/// The share of all bytes that one result may take.
const RESULT_SHARE: u64 = 2;
/// Most bytes of a query with its constants.
const QUERY_BYTES_MAX: usize = 16 << 10;
/// A query takes so many times the bytes of its text.
const QUERY_TIMES: usize = 10;
/// Characters of a statement that are held.
const TEXT_CHARACTERS_MAX: usize = 1000;

/// Which result is meant.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ResultKey {
    hash: u64,
    query: ast::Query,
    settings: Settings,
    role: Option<u32>,
}

/// The results that a database holds.
#[derive(Debug, Default)]
pub(crate) struct HeldResults {
    held: Mutex<Held>,
}

#[derive(Debug, Default)]
struct Held {
    results: Vec<Arc<HeldResult>>,
    /// Hashes of queries of which nothing is held, the newest first.
    seen: VecDeque<u64>,
    last_number: u64,
}

/// A result.
#[derive(Debug)]
struct HeldResult {
    number: u64,
    wanted: Box<ToHold>,
    /// What its tables had.
    tables: Vec<TableRows>,
    rows: ChargedBatches,
    schema: SchemaRef,
    origins: Vec<Option<ColumnOrigin>>,
    state: Arc<SessionState>,
    /// What it took to plan and run the query.
    cost: Duration,
    made: Stopwatch,
    uses: AtomicU64,
}

/// The result of a query that is not held yet.
#[derive(Debug, Clone)]
pub(super) struct ToHold {
    key: Box<ResultKey>,
    text: String,
    /// The tables and views that the query names.
    named: Vec<Arc<TableSchema>>,
    /// The query has come before.
    is_known: bool,
}

/// Batches, and the memory of queries that is taken for their buffers.
#[derive(Debug)]
struct ChargedBatches {
    batches: Vec<RecordBatch>,
    row_count: usize,
    memory: MemoryReservation,
    /// Where the buffers are that `memory` is taken for: batches share them.
    buffers: FxHashSet<usize>,
}

/// Rows that pass, until it is known whether they are held.
#[derive(Debug)]
pub(super) struct Passing {
    wanted: Box<ToHold>,
    rows: ChargedBatches,
    bytes_max: u64,
    stopwatch: Stopwatch,
}

impl ResultKey {
    /// That of `query`, as [`lowered`](super::lowered) gives it; None: the statement takes no part in reuse.
    pub(super) fn of(
        context: &StatementContext,
        query: &ast::Query,
        purpose: Purpose,
    ) -> Option<Box<Self>> {
        let settings = context.settings();
        let takes_part = settings.limits.reuse.is_on
            && purpose.may_reuse()
            && context.reads_committed_rows()
            && query.locks.is_empty();
        if !takes_part {
            return None;
        }
        let role = settings.client.acting.role;
        let settings = of_anybody(settings);
        let hash = FxBuildHasher.hash_one(query);
        Some(Box::new(Self { hash, query: query.clone(), settings, role }))
    }
}

/// `settings` without those that say who asks: what is of one client alone is not immutable.
pub(super) fn of_anybody(settings: &Settings) -> Settings {
    static ANYBODY: LazyLock<Client> = LazyLock::new(Client::default);
    let mut settings = settings.clone();
    settings.client = ANYBODY.clone();
    settings.transaction = None;
    settings.application_name = String::new();
    settings.limits.reuse = ResultReuse::default();
    settings.limits.batches = BatchLimits::default();
    settings
}

impl ToHold {
    /// The result of `key`, of a query that names these tables and views, as `context` reads them; None: there are
    /// none.
    pub(super) fn new(
        key: Box<ResultKey>,
        named: Vec<Arc<TableSchema>>,
        context: &StatementContext,
    ) -> Option<Box<Self>> {
        if named.is_empty() {
            return None;
        }
        let is_known = context.database().results.held().note(key.hash);
        Some(Box::new(Self { key, text: String::new(), named, is_known }))
    }

    /// Notes the text of the statement.
    pub(super) fn note_text(&mut self, text: &str) {
        self.text = first_of(text);
    }

    /// What the tables have in `state`, which the query has read; None: one of them cannot be read as a whole.
    fn tables_in(&self, state: &CatalogState) -> Option<Vec<TableRows>> {
        let is_table = |schema: &&Arc<TableSchema>| state.view(&schema.name).is_none();
        let tables = self.named.iter().filter(is_table);
        tables.map(|schema| state.table(&schema.name).map(|table| TableRows::of(table))).collect()
    }
}

impl HeldResults {
    /// The plan of the query that `key` is of, over its held rows; None: there are none that `context` may read.
    pub(super) fn plan(
        &self,
        key: &ResultKey,
        context: &Arc<StatementContext>,
        names: &ResultNames,
        stopwatch: &Stopwatch,
    ) -> Option<PlannedQuery> {
        let found = {
            let held = self.held();
            Arc::clone(held.results.iter().find(|result| *result.wanted.key == *key)?)
        };
        if !found.is_valid_in(context.state()) {
            return None;
        }
        let split = context.settings().split_in_force();
        let plan = Arc::new(ReusedExec::new(Arc::clone(&found)));
        let divided = Divided {
            cuts: PlacedCuts { plan, decisions: Vec::new(), priced: Vec::new() },
            profile: Origin::Measured,
            orders: ComparedOrders::default(),
        };
        let how = (Arc::clone(&found.state), names.clone());
        let planned = PlannedQuery::of_cuts(Arc::clone(context), divided, split, how);
        let (planning, origins) = (stopwatch.elapsed(), found.origins.clone());
        Some(PlannedQuery { planning, origins, ..planned })
    }

    /// What takes the rows of `query` as they pass; None: they take part in no reuse.
    pub(super) fn passing(query: &mut PlannedQuery) -> Option<Box<Passing>> {
        let wanted = query.to_hold.take()?;
        let (database, settings) = (query.context.database(), query.context.settings());
        let of_memory = (database.query_memory_max() / MEMORY_SHARE) as u64;
        let bytes_max = settings.limits.reuse.cache_bytes.min(of_memory);
        if bytes_max == 0 {
            return None;
        }
        let pool = &database.query_runtime().memory_pool;
        let memory = MemoryConsumer::new("held results").register(pool);
        let rows = ChargedBatches {
            batches: Vec::new(),
            row_count: 0,
            memory,
            buffers: FxHashSet::default(),
        };
        Some(Box::new(Passing { wanted, rows, bytes_max, stopwatch: Stopwatch::start() }))
    }

    /// Holds what has `passed`, the whole result of `query`, where that pays.
    pub(super) fn hold(&self, passed: Passing, query: &PlannedQuery) {
        let cost = passed.stopwatch.elapsed() + query.planning;
        let is_worth_it = passed.wanted.is_known || cost >= ALWAYS_HELD;
        if !is_worth_it || !passed.takes_key() {
            return;
        }
        let state = query.context.state();
        let Some(tables) = passed.wanted.tables_in(state) else { return };
        let (bytes, key) = (passed.rows.bytes(), &passed.wanted.key);
        // The statement's own catalog would keep its catalog version, and the database.
        let mut bare = SessionState::clone(&query.state);
        bare.register_catalog_list(Arc::new(MemoryCatalogProviderList::new()));
        let mut gone = Vec::new();
        let mut held = self.held();
        // First those that nobody who reads the newest rows is given.
        let stays =
            |result: &Arc<HeldResult>| *result.wanted.key != **key && result.is_valid_in(state);
        gone.extend(held.results.extract_if(.., |result| !stays(result)));
        while held.bytes() + bytes > passed.bytes_max || held.results.len() >= RESULT_COUNT_MAX {
            let least = held.results.iter().enumerate().min_by(|(_, one), (_, other)| {
                one.saved_for_each_byte().total_cmp(&other.saved_for_each_byte())
            });
            let Some((index, _)) = least else { break };
            gone.push(held.results.swap_remove(index));
        }
        held.last_number += 1;
        let result = HeldResult {
            number: held.last_number,
            tables,
            schema: query.cuts.plan.schema(),
            origins: query.origins.clone(),
            state: Arc::new(bare),
            cost,
            made: Stopwatch::start(),
            uses: AtomicU64::new(0),
            wanted: passed.wanted,
            rows: passed.rows,
        };
        held.results.push(Arc::new(result));
        drop(held);
        drop(gone);
    }

    /// Holds those no more that were made for a role that `is_meant` says; how many there were.
    pub(super) fn release(&self, is_meant: impl Fn(Option<u32>) -> bool) -> usize {
        let is_meant = |result: &mut Arc<HeldResult>| is_meant(result.wanted.key.role);
        // Dropped behind the lock.
        let gone: Vec<_> = self.held().results.extract_if(.., is_meant).collect();
        gone.len()
    }

    /// How many there are, and their bytes.
    pub(crate) fn held_figures(&self) -> (u64, u64) {
        let held = self.held();
        (held.results.len() as u64, held.bytes())
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The first characters of a statement.
fn first_of(text: &str) -> String {
    text.chars().take(TEXT_CHARACTERS_MAX).collect()
}

impl Held {
    /// Notes that a query comes; whether it has come before.
    fn note(&mut self, hash: u64) -> bool {
        let is_known = self.seen.contains(&hash)
            || self.results.iter().any(|result| result.wanted.key.hash == hash);
        self.seen.retain(|seen| *seen != hash);
        self.seen.truncate(SEEN_COUNT_MAX - 1);
        self.seen.push_front(hash);
        is_known
    }

    fn bytes(&self) -> u64 {
        self.results.iter().map(|result| result.rows.bytes()).sum()
    }
}

impl ChargedBatches {
    /// Bytes of the buffers of `array` that no array before has.
    fn note_buffers(&mut self, array: &ArrayData) -> usize {
        let nulls = array.nulls().map(|nulls| nulls.buffer());
        let mut bytes = 0;
        for buffer in array.buffers().iter().chain(nulls) {
            if self.buffers.insert(buffer.data_ptr().addr().get()) {
                bytes += buffer.capacity();
            }
        }
        let children = array.child_data().iter();
        bytes
            + size_of::<ArrayData>()
            + children.map(|child| self.note_buffers(child)).sum::<usize>()
    }

    fn bytes(&self) -> u64 {
        self.memory.size() as u64
    }
}

impl HeldResult {
    fn is_valid_in(&self, state: &CatalogState) -> bool {
        self.wanted.named.iter().all(|schema| state.has(schema))
            && self.tables.iter().all(|table| table.are_in(state))
    }

    fn saved_for_each_byte(&self) -> f64 {
        let uses = self.uses.load(Ordering::Relaxed) as f64 + 1.0;
        self.cost.as_secs_f64() * uses / self.rows.bytes().max(1) as f64
    }
}

impl Passing {
    /// Takes memory for the key, too: the query and the settings; whether it may be held with that.
    fn takes_key(&self) -> bool {
        let key = &self.wanted.key;
        let of_query = key.query.to_string().len();
        let bytes = of_query.saturating_mul(QUERY_TIMES).saturating_add(key.settings.text_bytes());
        of_query <= QUERY_BYTES_MAX
            && self.rows.memory.try_grow(bytes).is_ok()
            && self.rows.bytes() <= self.bytes_max / RESULT_SHARE
    }

    /// With the rows of `batch`; None: the result becomes too large to be held.
    pub(super) fn with(mut self: Box<Self>, batch: &RecordBatch) -> Option<Box<Self>> {
        let rows = &mut self.rows;
        let columns = batch.columns().iter();
        let bytes: usize = columns.map(|column| rows.note_buffers(&column.to_data())).sum();
        let fits =
            rows.memory.try_grow(bytes).is_ok() && rows.bytes() <= self.bytes_max / RESULT_SHARE;
        fits.then(|| {
            self.rows.row_count += batch.num_rows();
            self.rows.batches.push(batch.clone());
            self
        })
    }
}
