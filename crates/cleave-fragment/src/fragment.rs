//! The run-time context of a fragment: its pages, its snapshot, its morsels, and where it may write (rule 1).
//!
//! A serialised fragment *names* tables, columns and predicates and holds nothing else. The side that runs it attaches
//! a [`FragmentContext`] as an extension of the session configuration, the only thing that DataFusion hands to every
//! `execute`.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use cleave_store::{PageColumns, PageRead, PageRef, PageSource, SegmentRef, Snapshot, StoreError};
use datafusion_common::config::ConfigOptions;
use datafusion_common::{DataFusionError, Result};
use datafusion_execution::TaskContext;
use datafusion_execution::config::SessionConfig;
use datafusion_execution::runtime_env::RuntimeEnv;
use datafusion_physical_plan::ExecutionPlan;
use datafusion_physical_plan::execution_plan::replace_children_if_necessary;
use futures::FutureExt;
use futures::future::BoxFuture;

use crate::broadcast::BroadcastInputs;
use crate::codec::FragmentFunctions;
use crate::expressions::key_set::KEY_LIST_COUNT_MAX;
use crate::filter_history::HistoryUse;
use crate::index_filter::{IndexFilter, IndexFilteredInput};
use crate::index_input::IndexInput;
use crate::morsel::{Morsel, MorselSource};
use crate::operators::peer_rows::{PeerRowInputs, PeerRowsExec};
use crate::operators::recursion_exec::RecursionExec;
use crate::operators::table_scan_exec::TableScanExec;
use crate::page_sink::PageSink;
use crate::row_locks::RowLocks;
use crate::row_places::RowPlaces;
use crate::run_tasks::RunTasks;
use crate::spill_space::SpillSpace;

/// Everything that a fragment's leaves need at run time.
pub struct FragmentContext {
    /// Reads pages: local media on the device, link and buffer pool on the host.
    pub pages: Arc<dyn PageSource>,
    /// The snapshot, which decides visibility.
    pub snapshot: Snapshot,
    /// Morsel inputs by the number that the leaves name.
    pub inputs: BTreeMap<u32, Arc<dyn MorselSource>>,
    /// The index filters of morsel inputs, by their numbers.
    pub index_filters: BTreeMap<u32, Arc<IndexFilteredInput>>,
    /// Index inputs by the number that operators name.
    pub indexes: BTreeMap<u32, Arc<IndexInput>>,
    /// Broadcast rows, by the number that leaves name.
    pub broadcasts: BroadcastInputs,
    /// Rows of runs on other devices, by the number that leaves name.
    pub peer_rows: PeerRowInputs,
    /// Where a fragment that writes puts its pages.
    pub sink: Option<Arc<dyn PageSink>>,
    /// Where operators put rows that do not fit their memory.
    pub spill: Option<Arc<dyn SpillSpace>>,
    /// Tasks besides those of the partitions; none: there are only these.
    pub tasks: Option<Arc<dyn RunTasks>>,
    /// Locks the rows that the fragment is going to change.
    pub locks: Option<RowLocks>,
    /// Morsels that a scan may read ahead of the one it decodes: 1 if reading does not wait.
    pub read_ahead: usize,
    /// Pages whose rows references name.
    pub places: RowPlaces,
    /// What conditions of earlier scans were true for, if the statement uses it.
    pub history: Option<HistoryUse>,
    /// Counters of the run so far.
    pub counters: Arc<FragmentCounters>,
}

/// Totals of one run, over all partitions of its pipeline.
#[derive(Debug, Default)]
pub struct FragmentCounters {
    /// Morsels taken.
    pub morsels: AtomicU64,
    /// Pages decoded.
    pub pages: AtomicU64,
    /// Rows looked at, before any predicate: those that an index found, or all rows of a page.
    pub rows: AtomicU64,
}

impl FragmentCounters {
    /// Records a morsel of `pages` pages, of which `rows` rows are looked at.
    pub(crate) fn add_morsel(&self, pages: u64, rows: u64) {
        self.morsels.fetch_add(1, Ordering::Relaxed);
        self.pages.fetch_add(pages, Ordering::Relaxed);
        self.rows.fetch_add(rows, Ordering::Relaxed);
    }
}

impl fmt::Debug for FragmentContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FragmentContext")
            .field("pages", &self.pages)
            .field("snapshot", &self.snapshot)
            .field("inputs", &self.inputs.keys().collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}

impl FragmentContext {
    /// The context that `task` carries.
    pub fn of(task: &TaskContext) -> Result<Arc<Self>> {
        task.session_config().get_extension::<Self>().ok_or_else(|| {
            DataFusionError::Internal("a fragment was executed without its FragmentContext".into())
        })
    }

    /// The morsel input `number`.
    pub fn input(&self, number: u32) -> Result<Arc<dyn MorselSource>> {
        self.inputs.get(&number).map(Arc::clone).ok_or_else(|| {
            DataFusionError::Internal(format!(
                "the fragment names morsel input {number}, which was not given"
            ))
        })
    }

    /// The index input `number`.
    pub fn index(&self, number: u32) -> Result<Arc<IndexInput>> {
        self.indexes.get(&number).map(Arc::clone).ok_or_else(|| {
            DataFusionError::Internal(format!(
                "the fragment names index input {number}, which was not given"
            ))
        })
    }

    /// Where rows go that do not fit.
    pub fn spill(&self) -> Result<Arc<dyn SpillSpace>> {
        self.spill.as_ref().map(Arc::clone).ok_or_else(|| {
            DataFusionError::Internal(
                "the fragment puts rows aside, and no space was reserved for it".into(),
            )
        })
    }

    /// What locks rows.
    pub fn locks(&self) -> Result<RowLocks> {
        self.locks.clone().ok_or_else(|| {
            DataFusionError::Internal(
                "the fragment locks rows, and is part of no transaction that may".into(),
            )
        })
    }

    /// Where pages go.
    pub fn sink(&self) -> Result<Arc<dyn PageSink>> {
        self.sink.as_ref().map(Arc::clone).ok_or_else(|| {
            DataFusionError::Internal(
                "the fragment writes pages, and none were reserved for it".into(),
            )
        })
    }
}

/// Index inputs by their numbers, each of which may come once.
pub fn index_inputs(inputs: &[IndexInput]) -> Result<BTreeMap<u32, Arc<IndexInput>>> {
    let mut by_number = BTreeMap::new();
    for input in inputs {
        if by_number.insert(input.number, Arc::new(input.clone())).is_some() {
            return Err(DataFusionError::Plan(format!(
                "index input {} is given twice",
                input.number
            )));
        }
    }
    Ok(by_number)
}

/// `index_filters` by the inputs that they are of, with the morsels of each.
///
/// # Errors
/// Those of [`IndexFilteredInput::new`].
pub fn index_filtered_inputs<'a>(
    index_filters: &[IndexFilter],
    inputs: impl IntoIterator<Item = (u32, &'a [Morsel])>,
) -> Result<BTreeMap<u32, Arc<IndexFilteredInput>>> {
    let mut by_input: BTreeMap<u32, Vec<IndexFilter>> = BTreeMap::new();
    for index_filter in index_filters {
        by_input.entry(index_filter.input).or_default().push(index_filter.clone());
    }
    let morsels: BTreeMap<u32, &[Morsel]> = inputs.into_iter().collect();
    let filtered = by_input.into_iter().map(|(input, index_filters)| {
        let morsels = morsels.get(&input).copied().unwrap_or_default();
        Ok((input, IndexFilteredInput::new(index_filters, morsels)?))
    });
    filtered.collect()
}

/// Most bytes of a list of keys that a join hands down to the scan of its probe side.
const KEY_LIST_BYTES_MAX: usize = 1 << 20;

/// Limits the lists of keys that joins hand down, equally on both sides.
pub fn bound_key_lists(options: &mut ConfigOptions) {
    options.optimizer.hash_join_inlist_pushdown_max_distinct_values = KEY_LIST_COUNT_MAX;
    options.optimizer.hash_join_inlist_pushdown_max_size = KEY_LIST_BYTES_MAX;
}

/// Session settings that travel with a fragment (rule 5): those that change what an expression
/// means, and the batch size.
const SETTINGS_TRAVELLING: [&str; 2] =
    ["datafusion.execution.batch_size", "datafusion.execution.time_zone"];

/// The settings of `options` that travel, as name and value.
pub fn travelling_settings(options: &ConfigOptions) -> Vec<(String, String)> {
    // Not looked up by name: that would write all options out for every run.
    let values =
        [Some(options.execution.batch_size.to_string()), options.execution.time_zone.clone()];
    let named = SETTINGS_TRAVELLING.into_iter().zip(values);
    named.filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
}

/// Builds the context in which a fragment is decoded and executed on this side.
///
/// `settings` are those of [`travelling_settings`]; one that may not travel is an error that names it.
pub fn fragment_task_context(
    context: Arc<FragmentContext>,
    runtime: Arc<RuntimeEnv>,
    settings: &[(String, String)],
) -> Result<Arc<TaskContext>> {
    let mut options = ConfigOptions::new();
    bound_key_lists(&mut options);
    // A partial aggregate that stops aggregating would send every row over the link.
    options.set(
        "datafusion.execution.skip_partial_aggregation_probe_rows_threshold",
        "18446744073709551615",
    )?;
    for (name, value) in settings {
        if !SETTINGS_TRAVELLING.contains(&name.as_str()) {
            return Err(DataFusionError::Configuration(format!(
                "setting {name} may not travel with a fragment"
            )));
        }
        options.set(name, value)?;
    }
    let functions = FragmentFunctions::get();
    // Some functions capture a setting when they are made, such as the time zone.
    let scalar = functions.scalar.iter().map(|(name, function)| {
        let updated = function.inner().with_updated_config(&options);
        (name.clone(), updated.map_or_else(|| Arc::clone(function), Arc::new))
    });
    let scalar = scalar.collect();
    let config = SessionConfig::from(options).with_target_partitions(1).with_extension(context);
    Ok(Arc::new(TaskContext::new(
        None,
        "fragment".into(),
        config,
        scalar,
        HashMap::new(),
        functions.aggregate.clone(),
        HashMap::new(),
        runtime,
    )))
}

/// The context in which a fragment is decoded only to be shown: it has no morsels, and no pages are asked for.
pub fn unread_task_context() -> Result<Arc<TaskContext>> {
    fragment_task_context(Arc::new(unread_context()), Arc::new(RuntimeEnv::default()), &[])
}

/// The context of such a fragment.
pub(crate) fn unread_context() -> FragmentContext {
    FragmentContext {
        pages: Arc::new(NoPages),
        snapshot: Snapshot { commit: 0 },
        inputs: BTreeMap::new(),
        index_filters: BTreeMap::new(),
        indexes: BTreeMap::new(),
        broadcasts: BroadcastInputs::new(),
        peer_rows: PeerRowInputs::new(),
        sink: None,
        spill: None,
        tasks: None,
        locks: None,
        read_ahead: 1,
        places: RowPlaces::default(),
        history: None,
        counters: Arc::default(),
    }
}

/// A page source that is never asked.
#[derive(Debug)]
struct NoPages;

impl PageSource for NoPages {
    fn read(&self, _reads: Vec<PageRead>) -> BoxFuture<'_, Result<Vec<PageColumns>, StoreError>> {
        futures::future::ready(Ok(Vec::new())).boxed()
    }

    fn read_overflow(
        &self,
        _segment: SegmentRef,
        _pages: Vec<PageRef>,
    ) -> BoxFuture<'_, Result<Vec<Bytes>, StoreError>> {
        futures::future::ready(Ok(Vec::new())).boxed()
    }
}

/// The streamed input of `plan`: of a join the second, since the first is collected. A recursion has none: each of its
/// terms is read to its end, by one partition.
pub fn streamed_input(plan: &dyn ExecutionPlan) -> Option<&Arc<dyn ExecutionPlan>> {
    if plan.is::<RecursionExec>() {
        return None;
    }
    plan.children().last().copied()
}

/// Whether what streams out of `plan` comes from a recursion.
pub fn streams_from_recursion(plan: &dyn ExecutionPlan) -> bool {
    plan.is::<RecursionExec>()
        || streamed_input(plan).is_some_and(|input| streams_from_recursion(input.as_ref()))
}

/// `plan` with `partitions` partitions at the streamed scan, which share its morsel input and its dynamic filters, or
/// at the rows of other devices that stream: each partition of the result is one partition of the pipeline. A join's
/// collected side is collected once for all partitions. A plan that streams from a recursion keeps its one partition.
pub fn with_partitions(
    plan: Arc<dyn ExecutionPlan>,
    partitions: u32,
) -> Result<Arc<dyn ExecutionPlan>> {
    if let Some(scan) = plan.downcast_ref::<TableScanExec>() {
        let copied = scan.with_partitions(usize::try_from(partitions).unwrap_or(usize::MAX));
        return Ok(Arc::new(copied.with_dynamic_filters(scan.dynamic_filters().to_vec())));
    }
    if let Some(rows) = plan.downcast_ref::<PeerRowsExec>() {
        let partitions = usize::try_from(partitions).unwrap_or(usize::MAX);
        return Ok(Arc::new(rows.with_partitions(partitions)));
    }
    if streamed_input(plan.as_ref()).is_none() {
        return Ok(plan);
    }
    let mut inputs: Vec<_> = plan.children().into_iter().map(Arc::clone).collect();
    let Some(streamed) = inputs.pop() else { return Ok(plan) };
    inputs.push(with_partitions(streamed, partitions)?);
    replace_children_if_necessary(plan, inputs)
}
