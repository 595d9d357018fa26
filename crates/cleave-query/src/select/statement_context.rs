//! The context of one SELECT from planning to its last row: its catalog version, its scans' inputs, its settings, and
//! what was measured.
//!
//! Holding the catalog version keeps the pages that the statement reads from being reused (rule 30).

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use cleave_catalog::catalog::index_definition::IndexDefinition;
use cleave_catalog::catalog::{CatalogState, HeldSpace, Keep, TableState};
use cleave_catalog::settings::{Settings, Stack, When};
use cleave_engine::host_pages::RoutedPages;
use cleave_fragment::command::message::{Payload, ShippedPage};
use cleave_fragment::filter_history::HistoryUse;
use cleave_fragment::link::AttachMode;
use cleave_fragment::progress::Progress;
use cleave_fragment::result_memory::ResultMemory;
use cleave_fragment::{
    BroadcastInputs, FragmentContext, FragmentCounters, IndexFilter, Morsel, MorselList,
    MorselSource, PageSink, ReadAheadPages, RowPlaces, Stop, index_filtered_inputs,
};
use cleave_plan::cardinality::LeafKey;
use cleave_plan::cost::AskedColumn;
use cleave_plan::split::Margin;
use cleave_plan::{
    ColumnFacts, JoinedSamples, PlanEstimates, SampledRows, TableFacts, TableStatistics,
};
use cleave_sql::statement::files::shown_call;
use cleave_sql::statement::locked_parts::GivenRows;
use cleave_sql::statement::locking::target_of;
use cleave_sql::statement::modify::TARGET;
use cleave_store::{AbsentValues, Column, PageSource, SegmentId};
use datafusion::arrow::array::{Array, RecordBatch};
use datafusion::catalog::TableProvider;
use datafusion::common::ScalarValue;
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::Expr;
use datafusion::prelude::SessionConfig;

use super::planned_input::page_order::LeadingColumn;
use super::planned_input::{OfferedIndex, PlannedInput};
use super::stages::Stage;
use super::with_parts::BoundParts;
use super::{ReadView, SampledPages, Target, index_choice};
use crate::cooperative::figures::FigureLog;
use crate::file_tables;
use crate::outside_tables::AskedTables;
use crate::planner::planning;
use crate::query_engine::QueryEngine;

/// Most bytes of long values that a batch has.
const LONG_BYTES_OF_BATCH: u64 = 32 << 20;
/// Morsels that a scan on the host reads ahead, so that the link is busy while it decodes.
const READ_AHEAD: usize = 4;
/// The same where a device may have what is not yet taken.
const READ_AHEAD_SHARED: usize = 2;

/// One statement, while it is planned and runs.
pub struct StatementContext {
    given: GivenRows,
    database: Arc<QueryEngine>,
    view: ReadView,
    settings: Settings,
    inputs: Mutex<Vec<StatementInput>>,
    figures: Arc<FigureLog>,
    /// What was looked up of columns, by table and column.
    column_facts: Mutex<BTreeMap<(u32, u32), ColumnFacts>>,
    /// The rows that ANALYZE kept, by table.
    samples: Mutex<BTreeMap<u32, Option<Arc<SampledRows>>>>,
    estimates: Mutex<PlanEstimates>,
    /// The pages of tables that zone maps and indexes leave.
    left: Mutex<Vec<LeftPages>>,
    /// What a split must save, the same for all of its plans.
    split_margin: OnceLock<Margin>,
    stop: Stop,
    /// What its functions take.
    memory: Arc<ResultMemory>,
    /// Queries of WITH that it runs by themselves, until they are planned.
    bound_parts: Arc<BoundParts>,
    /// Rows that are expected of them, by what the tables are called that stand for them.
    part_rows: Mutex<BTreeMap<String, f64>>,
    /// What is known of the columns of stages, by table.
    of_stages: BTreeMap<u32, Arc<TableStatistics>>,
    /// How many queries run at once of the batch that it is of; 0: it is of none.
    company: Arc<AtomicU32>,
    /// Tables from outside the database.
    outside: Arc<AskedTables>,
}

/// The pages that conditions leave of a table.
struct LeftPages {
    table_id: u32,
    filters: Vec<Expr>,
    input: PlannedInput,
}

/// The inputs of one plan's scans, and what is expected of that plan.
pub(super) struct HeldInputs {
    inputs: Vec<StatementInput>,
    estimates: PlanEstimates,
}

/// A scan's input and how many rows the planner expects of it.
#[derive(Debug, Clone)]
pub struct StatementInput {
    /// The pages.
    pub input: Arc<PlannedInput>,
    /// Rows expected after the scan's predicate.
    pub row_estimate: f64,
}

impl StatementContext {
    /// A statement that reads `view`.
    pub fn new(database: Arc<QueryEngine>, view: ReadView, settings: Settings) -> Arc<Self> {
        Self::over_given(database, view, settings, GivenRows::default())
    }

    /// As [`StatementContext::new`], with what subqueries gave that have run before.
    pub(super) fn over_given(
        database: Arc<QueryEngine>,
        view: ReadView,
        settings: Settings,
        given: GivenRows,
    ) -> Arc<Self> {
        let memory = ResultMemory::of(&database.query_runtime().memory_pool);
        Arc::new(Self {
            given,
            database,
            view,
            settings: settings.for_transfer().for_prescribed(),
            inputs: Mutex::default(),
            figures: Arc::default(),
            column_facts: Mutex::default(),
            samples: Mutex::default(),
            estimates: Mutex::default(),
            left: Mutex::default(),
            split_margin: OnceLock::new(),
            stop: Stop::default(),
            memory,
            bound_parts: Arc::default(),
            part_rows: Mutex::default(),
            of_stages: BTreeMap::new(),
            company: Arc::default(),
            outside: Arc::default(),
        })
    }

    /// What a split must save of the host's predicted time.
    pub(super) fn split_margin(&self) -> Margin {
        *self.split_margin.get_or_init(|| {
            let gain = f64::from(self.settings.limits.split_gain.min(99)) / 100.0;
            self.database.query_log().past_errors().margin(gain)
        })
    }

    /// Another plan of the same statement, which reads the same: that of a query of WITH. It ends with the statement.
    pub(super) fn of_part(&self) -> Arc<Self> {
        Arc::new(self.again(self.view.clone(), self.settings.clone()))
    }

    /// As [`Self::of_part`], under `settings`.
    pub(super) fn of_part_under(&self, settings: Settings) -> Arc<Self> {
        Arc::new(self.again(self.view.clone(), settings))
    }

    /// As [`Self::of_part_under`], of a part whose end is not that of the statement.
    pub(super) fn of_part_before(&self, settings: Settings) -> Arc<Self> {
        Arc::new(Self { stop: Stop::default(), ..self.again(self.view.clone(), settings) })
    }

    /// The same statement, which reads the rows of `stage` as a table.
    pub(super) fn over_stage(&self, stage: &Stage) -> Arc<Self> {
        let mut state = CatalogState::clone(&self.view.state);
        let table = stage.table();
        state.tables.insert(table.schema.name.clone(), Arc::clone(table));
        // Its pages are held as those of the catalog version are.
        let held = vec![stage.set() as Arc<dyn HeldSpace>];
        state.keep = Some(Arc::new(Keep::new(Arc::clone(&self.view.state), held)));
        let view = ReadView { state: Arc::new(state), ..self.view.clone() };
        let mut over = self.again(view, self.settings.clone());
        over.of_stages.insert(table.schema.table_id, Arc::clone(&stage.statistics));
        Arc::new(over)
    }

    fn again(&self, view: ReadView, settings: Settings) -> Self {
        Self {
            given: self.given.clone(),
            database: Arc::clone(&self.database),
            view,
            settings,
            inputs: Mutex::default(),
            figures: Arc::default(),
            column_facts: Mutex::default(),
            samples: Mutex::default(),
            estimates: Mutex::default(),
            left: Mutex::default(),
            split_margin: self.split_margin.clone(),
            stop: self.stop.clone(),
            memory: Arc::clone(&self.memory),
            bound_parts: Arc::default(),
            part_rows: Mutex::new(self.part_rows().clone()),
            of_stages: self.of_stages.clone(),
            company: Arc::clone(&self.company),
            outside: Arc::clone(&self.outside),
        }
    }

    /// Binds the queries of WITH that run by themselves.
    pub(super) fn bound_parts(&self) -> &Arc<BoundParts> {
        &self.bound_parts
    }

    /// Notes how many rows are expected of the query of WITH that the table `name` stands for.
    pub(super) fn expect_part(&self, name: String, row_count: f64) {
        self.part_rows().insert(name, row_count);
    }

    fn part_rows(&self) -> MutexGuard<'_, BTreeMap<String, f64>> {
        self.part_rows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says how many queries of a batch run at once, this one included.
    pub(super) fn set_company(&self, company: u32) {
        self.company.store(company, Relaxed);
    }

    /// How many queries of a batch run at once, this one included.
    pub(crate) fn company(&self) -> u32 {
        self.company.load(Relaxed).max(1)
    }

    /// The memory to which its functions charge their results while it runs.
    pub(super) fn memory(&self) -> &Arc<ResultMemory> {
        &self.memory
    }

    /// Raised when its rows are not wanted any more.
    pub fn stop(&self) -> &Stop {
        &self.stop
    }

    /// What ANALYZE found of `table`, or is known of it as a stage.
    pub(super) fn statistics(&self, table: &TableState) -> Option<Arc<TableStatistics>> {
        let id = table.schema.table_id;
        let of_stage = self.of_stages.get(&id).cloned();
        let statistics = of_stage.or_else(|| self.database.statistics().get(id));
        let is_used = |statistics: &Arc<TableStatistics>| {
            self.settings.use_statistics && statistics.row_count > 0
        };
        let type_of = |id| Some(table.schema.column_by_id(id)?.column_type.arrow());
        Some(statistics.filter(is_used)?.of_types(type_of))
    }

    /// Whether `table` has the rows of a stage.
    pub(super) fn is_stage(&self, table: &TableState) -> bool {
        self.of_stages.contains_key(&table.schema.table_id)
    }

    /// Different values in `column` of `table`, where something tells.
    pub(super) fn distinct_values(&self, table: &TableState, column: &Column) -> Option<f64> {
        let row_count = table.row_count() as f64;
        // A unique key of one column has as many values as the table has rows, but for its NULLs.
        let is_key = |index: &Arc<IndexDefinition>| {
            index.unique && matches!(index.columns.as_slice(), [only] if only.column == column.id)
        };
        if column.not_null && table.indexes.iter().any(is_key) {
            return Some(row_count);
        }
        let statistics = self.statistics(table)?;
        Some(statistics.columns.get(&column.id)?.distinct_count_at(row_count).max(1.0))
    }

    /// What a condition on `column` of `table` takes.
    pub(super) fn asked(&self, table: &str, column: &str) -> AskedColumn {
        let known = || {
            let table = self.state().table(table)?;
            let column = table.schema.column(column)?;
            let is_text = column.column_type.arrow().primitive_width().is_none();
            let statistics = self.statistics(table)?;
            let statistics = statistics.columns.get(&column.id)?;
            let text_bytes = if is_text { statistics.average_width } else { 0.0 };
            Some(AskedColumn { share: statistics.asked_share(), text_bytes })
        };
        known().unwrap_or_default()
    }

    /// The database.
    pub fn database(&self) -> &Arc<QueryEngine> {
        &self.database
    }

    /// The catalog as the statement sees it.
    pub fn state(&self) -> &Arc<CatalogState> {
        &self.view.state
    }

    /// Whether it reads tables by their own names alone.
    pub(super) fn is_plain(&self) -> bool {
        self.view.target.is_none() && self.view.sampled.is_none() && self.given.is_empty()
    }

    /// Whether it reads whole tables, committed rows alone, and need not note that it does.
    pub(super) fn reads_committed_rows(&self) -> bool {
        self.is_plain() && self.view.is_committed && self.view.reads.is_none()
    }

    /// What the statement calls [`TARGET`].
    pub(super) fn target(&self) -> Option<&Target> {
        self.view.target.as_ref()
    }

    /// The pages that it reads of the table `table_id`, if not all.
    pub(super) fn sampled(&self, table_id: u32) -> Option<&Arc<SampledPages>> {
        self.view.sampled.as_ref().filter(|sampled| sampled.table_id == table_id)
    }

    /// The rows that the statement calls `name`, which a subquery gave.
    pub(super) fn given(&self, name: &str) -> Option<&Arc<RecordBatch>> {
        self.given.get(name)
    }

    /// Notes a read of all rows of `table` that satisfy `filters`, present or future (rule 28).
    ///
    /// # Errors
    /// [`ConflictKind::Dependencies`](cleave_catalog::error::ConflictKind::Dependencies).
    pub(super) fn note_read(
        &self,
        table: &TableState,
        filters: &[Expr],
    ) -> cleave_catalog::error::Result<()> {
        let Some(reads) = &self.view.reads else { return Ok(()) };
        let object = u64::from(table.schema.table_id);
        match index_choice::spans(table, filters) {
            Some(spans) => reads.reads_keys(object, &spans)?,
            None => reads.reads_all(object)?,
        }
        Ok(())
    }

    /// The table that the statement calls `name`, if it can be used.
    pub(super) fn table(&self, name: &str) -> Option<&Arc<TableState>> {
        self.view.state.table(self.real_name(name))
    }

    /// As [`Self::table`].
    ///
    /// # Errors
    /// As [`CatalogState::find_table`].
    pub(super) fn find_table(&self, name: &str) -> cleave_catalog::error::Result<&Arc<TableState>> {
        self.view.state.find_table(self.real_name(name))
    }

    /// The files that the relation `name` stands for; None: it stands for no files.
    ///
    /// # Errors
    /// Those of opening them, and a lack of rights.
    pub(super) fn files(
        &self,
        name: &str,
    ) -> Option<cleave_catalog::error::Result<Arc<dyn TableProvider>>> {
        shown_call(name)?;
        let (client, database) = (&self.settings.client, &self.database);
        Some(self.outside.files(name, || {
            file_tables::check_may(client, &database.catalog().rights, "a query of files")?;
            let own = database.directory();
            file_tables::open(name, own, database.input_memory(), planning::check)
        }))
    }

    /// The table from outside the database that the statement calls `name`; None: there is none, or the database has
    /// something of this name. Files that cannot be opened are none: [`Self::files`] says why.
    pub(super) fn outside_table(&self, name: &str) -> Option<Arc<dyn TableProvider>> {
        if let Some(files) = self.files(name) {
            return files.ok();
        }
        let state = self.state();
        let is_own = self.given(name).is_some()
            || self.table(name).is_some()
            || state.has_table_named(name)
            || state.view(name).is_some()
            || state.sequences.contains_key(name);
        (!is_own).then(|| self.outside.table(&self.settings, name)).flatten()
    }

    fn real_name<'a>(&'a self, name: &'a str) -> &'a str {
        match self.target() {
            Some(target) if name == TARGET => &target.table,
            _ => target_of(name).map_or(name, |(table, _)| table),
        }
    }

    /// The session's settings when the statement began, those that others imply included.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The log of its fragments' figures.
    pub fn figures(&self) -> &Arc<FigureLog> {
        &self.figures
    }

    /// The estimates of leaves, joins and scans so far.
    pub fn estimates(&self) -> PlanEstimates {
        self.estimates.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Rows that are expected of a leaf, where that was asked before.
    pub(super) fn expected_of(&self, leaf: &LeafKey) -> Option<f64> {
        self.estimates.lock().unwrap_or_else(PoisonError::into_inner).leaf(leaf)
    }

    /// Adds to what is expected.
    pub(super) fn expect(&self, add: impl FnOnce(&mut PlanEstimates)) {
        add(&mut self.estimates.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Registers the input of one more scan and returns its number.
    pub fn add_input(&self, input: PlannedInput, row_estimate: f64) -> u32 {
        let mut inputs = self.inputs.lock().unwrap_or_else(PoisonError::into_inner);
        let number = u32::try_from(inputs.len()).unwrap_or(u32::MAX);
        inputs.push(StatementInput { input: Arc::new(input), row_estimate });
        number
    }

    /// Takes the inputs and what is expected out, so that another plan of the statement can have its own.
    pub(super) fn take_inputs(&self) -> HeldInputs {
        let mut inputs = self.inputs.lock().unwrap_or_else(PoisonError::into_inner);
        HeldInputs { inputs: std::mem::take(&mut *inputs), estimates: self.estimates() }
    }

    /// Puts back what was taken, in the place of what came after.
    pub(super) fn put_inputs(&self, held: HeldInputs) {
        *self.inputs.lock().unwrap_or_else(PoisonError::into_inner) = held.inputs;
        *self.estimates.lock().unwrap_or_else(PoisonError::into_inner) = held.estimates;
    }

    /// The pages that these conditions leave of `table`, where another plan of the statement has asked.
    pub(super) fn left_before(&self, table: &TableState, filters: &[Expr]) -> Option<PlannedInput> {
        let known = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        let is_same = |left: &&LeftPages| {
            left.table_id == table.schema.table_id && left.filters.as_slice() == filters
        };
        known.iter().find(is_same).map(|left| left.input.clone())
    }

    /// Keeps the pages that these conditions leave, where the statement may have several plans.
    pub(super) fn keep_left(&self, filters: &[Expr], input: &PlannedInput) {
        if self.settings.join_order_with_split == When::Never {
            return;
        }
        let (table_id, filters) = (input.table.schema.table_id, filters.to_vec());
        let left = LeftPages { table_id, filters, input: input.clone() };
        self.left.lock().unwrap_or_else(PoisonError::into_inner).push(left);
    }

    /// Offers the scan of input `number` an index, as an index filter for keys of joins above.
    pub(super) fn offer_index(&self, number: u32, index: OfferedIndex) {
        let mut inputs = self.inputs.lock().unwrap_or_else(PoisonError::into_inner);
        let place = usize::try_from(number).unwrap_or(usize::MAX);
        if let Some(input) = inputs.get_mut(place) {
            Arc::make_mut(&mut input.input).offer(index);
        }
    }

    /// Lets the scan of input `number` begin with the first values of `column`.
    pub(super) fn begin_with(&self, number: u32, column: LeadingColumn) {
        let mut inputs = self.inputs.lock().unwrap_or_else(PoisonError::into_inner);
        let place = usize::try_from(number).unwrap_or(usize::MAX);
        if let Some(input) = inputs.get_mut(place) {
            Arc::make_mut(&mut input.input).begin_with(column);
        }
    }

    /// Whether no page of `input` crosses a link on its way to the host.
    fn reads_locally(&self, input: &PlannedInput) -> bool {
        input.devices().into_iter().all(|id| {
            let device = self.database.attached(id);
            device.is_ok_and(|device| device.mode() == AttachMode::Embedded)
        })
    }

    /// The input `number`.
    pub fn input(&self, number: u32) -> Result<StatementInput> {
        let inputs = self.inputs.lock().unwrap_or_else(PoisonError::into_inner);
        usize::try_from(number).ok().and_then(|index| inputs.get(index)).cloned().ok_or_else(|| {
            DataFusionError::Internal(format!("the statement has no morsel input {number}"))
        })
    }

    /// Leaves only `pages` of the input `number`, by segment and number, and returns how many those are; None: it has
    /// not all of them, and is left as it is.
    pub(super) fn leave_pages(
        &self,
        number: u32,
        pages: &BTreeSet<(SegmentId, u32)>,
    ) -> Option<usize> {
        let mut inputs = self.inputs.lock().unwrap_or_else(PoisonError::into_inner);
        let input = inputs.get_mut(usize::try_from(number).ok()?)?;
        if !input.input.has_pages(pages) {
            return None;
        }
        input.input = Arc::new(input.input.on_pages(pages));
        Some(input.input.pages_left())
    }

    /// The pages of `inputs` that lie on no media, for a fragment that reads them.
    pub fn shipped_pages<'a>(
        &self,
        inputs: impl Iterator<Item = &'a PlannedInput>,
    ) -> Vec<ShippedPage> {
        let shipped = &self.view.state.shipped;
        let entries = inputs.flat_map(PlannedInput::entries);
        let pages = entries.flat_map(|(_, entry)| entry.page_refs());
        let found = pages.filter_map(|page| Some((page.extent.start, shipped.get(page)?)));
        // A table may be scanned twice.
        let by_start: BTreeMap<_, _> = found.collect();
        let pages = by_start.into_iter();
        pages
            .map(|(start, bytes)| ShippedPage { start, payload: Payload::new(bytes.clone()) })
            .collect()
    }

    /// All inputs so far, by number.
    pub fn inputs(&self) -> Vec<StatementInput> {
        self.inputs.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// `config` with fewer rows a batch where rows of its inputs have long values: operators put batches together by
    /// rows, and one text column of a batch has 2 GiB at most.
    pub(crate) fn with_batches_of_long_values(&self, config: SessionConfig) -> SessionConfig {
        let bytes = self.inputs().iter().map(|input| input.input.long_bytes()).max().unwrap_or(0);
        let most = LONG_BYTES_OF_BATCH.checked_div(bytes).unwrap_or(u64::MAX).max(1);
        let row_count = config.batch_size().min(usize::try_from(most).unwrap_or(usize::MAX));
        config.with_batch_size(row_count)
    }

    /// What the scans that run on the host need: every input, pages by way of the link.
    pub fn host_fragment_context(&self) -> Result<Arc<FragmentContext>> {
        let inputs: Vec<(u32, StatementInput)> = (0..).zip(self.inputs()).collect();
        let progress = &self.settings.client.progress;
        self.fragment_context_of(&inputs, None, BroadcastInputs::new(), progress)
    }

    /// As [`Self::host_fragment_context`], for some inputs by their numbers. Of an input that is `shared` with a
    /// device, morsels come from that source, and nothing tells which come next. `broadcasts` are there already;
    /// `progress` counts the other morsels.
    pub fn fragment_context_of(
        &self,
        inputs: &[(u32, StatementInput)],
        shared: Option<(u32, Arc<dyn MorselSource>)>,
        broadcasts: BroadcastInputs,
        progress: &Progress,
    ) -> Result<Arc<FragmentContext>> {
        self.writing_context_of(inputs, shared, broadcasts, None, progress).map(Arc::new)
    }

    /// The same, of a fragment that writes pages into `sink`.
    pub fn writing_context_of(
        &self,
        inputs: &[(u32, StatementInput)],
        shared: Option<(u32, Arc<dyn MorselSource>)>,
        broadcasts: BroadcastInputs,
        sink: Option<Arc<dyn PageSink>>,
        progress: &Progress,
    ) -> Result<FragmentContext> {
        let own = |number: &u32| shared.as_ref().is_none_or(|(shared, _)| shared != number);
        let own_inputs = || inputs.iter().filter(|(number, _)| own(number));
        let morsels: BTreeMap<u32, Vec<Morsel>> =
            own_inputs().map(|(number, input)| (*number, input.input.morsels())).collect();
        let index_filters = own_inputs().flat_map(|(number, input)| {
            let is_near = self.reads_locally(&input.input);
            input.input.index_filters(*number, is_near)
        });
        let index_filters: Vec<IndexFilter> = index_filters.collect();
        let lists = morsels.iter().map(|(number, morsels)| (*number, morsels.as_slice()));
        let index_filters = index_filtered_inputs(&index_filters, lists.clone())?;
        let segments = inputs.iter().flat_map(|(_, input)| {
            let heap = input.input.segments().map(|(device, segment)| (device, segment.segment));
            heap.chain(input.input.index_segments())
        });
        let segments = segments.filter(|(_, segment)| !segment.is_shipped());
        let routed = RoutedPages::new(&self.database, self.settings.stack, segments)?;
        let mut pages: Arc<dyn PageSource> = self.view.state.shipped.over(Arc::new(routed));
        // Stack `blk` reads blocks ahead, as an operating system does.
        if self.settings.stack != Stack::Blk {
            let order = lists.map(|(number, morsels)| {
                (morsels, index_filters.get(&number).map(Arc::clone), None)
            });
            let runtime = self.database.query_runtime();
            pages = Arc::new(ReadAheadPages::new(pages, order, &runtime.memory_pool));
        }
        let source = |morsels: Vec<Morsel>| {
            MorselList::counted(morsels, Some(progress.clone())) as Arc<dyn MorselSource>
        };
        let read_ahead = if shared.is_some() { READ_AHEAD_SHARED } else { READ_AHEAD };
        let lists = morsels.into_iter().map(|(number, list)| (number, source(list)));
        Ok(FragmentContext {
            pages,
            snapshot: self.view.state.snapshot(),
            inputs: lists.chain(shared).collect(),
            index_filters,
            indexes: BTreeMap::new(),
            peer_rows: Default::default(),
            broadcasts,
            sink,
            spill: None,
            tasks: None,
            locks: None,
            places: RowPlaces::default(),
            read_ahead,
            history: Some(HistoryUse::new(
                self.database.filter_history(),
                self.settings.history_mode(),
            )),
            counters: Arc::new(FragmentCounters::default()),
        })
    }
}

impl fmt::Debug for StatementContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StatementContext")
            .field("generation", &self.view.state.generation)
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

impl TableFacts for StatementContext {
    fn row_count(&self, table: &str) -> Option<f64> {
        let of_part = || self.part_rows().get(table).copied();
        let of_outside = || {
            let statistics = self.outside_table(table)?.statistics()?;
            statistics.num_rows.get_value().map(|rows| *rows as f64)
        };
        let own = self.table(table).map(|table| table.row_count() as f64);
        own.or_else(of_part).or_else(of_outside)
    }

    fn distinct_count(&self, table: &str, column: &str) -> Option<f64> {
        let table = self.table(table)?;
        self.distinct_values(table, table.schema.column(column)?)
    }

    /// What zone maps say of all pages together, and what ANALYZE found.
    fn column(&self, table: &str, column: &str) -> ColumnFacts {
        let facts = || {
            let table = self.table(table)?;
            let column = table.schema.column(column)?;
            let key = (table.schema.table_id, column.id);
            let mut known = self.column_facts.lock().unwrap_or_else(PoisonError::into_inner);
            let facts = known.entry(key).or_insert_with(|| {
                let statistics = self.statistics(table);
                let statistics = statistics.as_ref().and_then(|all| all.columns.get(&column.id));
                let statistics = statistics.map(|known| Arc::new(known.clone()));
                ColumnFacts { statistics, ..column_facts(table, column) }
            });
            Some(facts.clone())
        };
        facts().unwrap_or_default()
    }

    fn joined_samples(&self) -> Option<&JoinedSamples> {
        Some(self.database.statistics().joined())
    }

    fn sample(&self, table: &str) -> Option<Arc<SampledRows>> {
        let table = self.table(table)?;
        let schema = &table.schema;
        let mut known = self.samples.lock().unwrap_or_else(PoisonError::into_inner);
        let sample = known.entry(schema.table_id).or_insert_with(|| {
            let statistics = self.statistics(table)?;
            let name = |id| schema.column_by_id(id).map(|column| column.name.clone());
            statistics.sample.as_ref()?.named(table.row_count(), name).map(Arc::new)
        });
        sample.clone()
    }
}

/// What zone maps say of `column` on all pages of `table` together.
pub(crate) fn column_facts(table: &TableState, column: &Column) -> ColumnFacts {
    let data_type = column.column_type.arrow();
    let (mut mins, mut maxs) = (Vec::new(), Vec::new());
    let (mut nulls, mut rows) = (0_u64, 0_u64);
    let absent = AbsentValues::of_table(&table.schema).zone(column.id, &data_type);
    for (_, segment) in table.heap_segments() {
        let zones = segment.zone_arrays(column.id, &data_type, absent.as_ref());
        let known = |place: &usize| zones.null_counts.is_valid(*place);
        for place in (0..segment.pages.len()).filter(known) {
            let (page_nulls, page_rows) =
                (zones.null_counts.value(place), zones.row_counts.value(place));
            nulls += page_nulls;
            rows += page_rows;
            // A page of NULLs only has no bounds, and needs none.
            if page_nulls < page_rows {
                mins.push(ScalarValue::try_from_array(&zones.mins, place).ok());
                maxs.push(ScalarValue::try_from_array(&zones.maxs, place).ok());
            }
        }
    }
    ColumnFacts {
        null_fraction: (rows > 0).then(|| nulls as f64 / rows as f64),
        min: end(mins, Ordering::Less),
        max: end(maxs, Ordering::Greater),
        statistics: None,
    }
}

/// The least or the greatest of bounds; None where one of them is not known.
fn end(bounds: Vec<Option<ScalarValue>>, wanted: Ordering) -> Option<ScalarValue> {
    let mut end: Option<ScalarValue> = None;
    for bound in bounds {
        let bound = bound.filter(|bound| !bound.is_null())?;
        if end.as_ref().is_none_or(|end| bound.partial_cmp(end) == Some(wanted)) {
            end = Some(bound);
        }
    }
    end
}
