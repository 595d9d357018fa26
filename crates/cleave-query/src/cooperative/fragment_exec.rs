//! The plan node above a cut: it sends a fragment to its devices and returns their rows.
//!
//! ```text
//!  partition 0 ◀─┬─ part: device a ◀══ slots ══ the fragment over a's morsels
//!                └─ part: device c ◀══ slots ══ the fragment over c's morsels
//!  partition 1 ◀─── part: device b, which the host reads: the same operators here
//! ```
//!
//! 1. Nothing is sent before the first poll. By then a hash join above has read its build side, so that its keys
//!    ([`FragmentPlan::dynamic_filters`]) go down with the fragment and rule out pages once more. Build sides of the
//!    fragment's joins that do not lie on these devices are made by the host then ([`sent_rows`](super::sent_rows)):
//!    plans of its own, which are this node's inputs.
//! 2. Each device that holds pages of the scan, or that the statement names for them, has a [part](FragmentPart), and
//!    all of them run at once; a fragment that joins several scans has one. The copies of a mirror may have a
//!    [share](super::dividing) of a part each. The command carries the fragment, the snapshot and the part's morsels of
//!    every scan, and says which pages lie [elsewhere](super::homes); the device admits it
//!    ([`beginning`](super::beginning)).
//! 3. The partitions of this node share the parts: each has some for itself, or several have one, from whose stream of
//!    slots they take batches as they come.
//! 4. Where both sides may work on it, the host takes morsels of the device's while it is idle
//!    ([`stealing`](super::stealing)).
//! 5. A device that refuses the fragment, or loses it, is no error: of a mirror another copy runs it; else the host
//!    runs the same operators over its own page source (rule 13), and the figures say so. Rows that were given out by
//!    then are left out ([`given_rows`](super::given_rows)); those that could not be are not given out before the run
//!    has ended ([`held_rows`](super::held_rows)). A fragment run that lacks memory first gets space to spill
//!    ([`spill_space`](super::spill_space)).
//! 6. A run that cannot be divided, and of which no row has come while the host could be done with all of it sooner, is
//!    given up, and the host runs the same operators ([`stealing`](super::stealing)).
//!
//! Invariant: rows come in no order, each once; at most [`FragmentPlan::fetch`] of them in all. A partition that waits
//! for one of several parts holds no other partition up: no two have a part in common then.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use cleave_catalog::catalog::DeviceId;
use cleave_catalog::error::Error;
use cleave_engine::device::{Device, is_link_of_one_copy};
use cleave_fragment::Passes;
use cleave_fragment::command::{DeviceError, DeviceErrorCause, RunReport};
use cleave_fragment::filter_history::HistoryMode;
use cleave_fragment::link::{AttachMode, Link, LinkError};
use cleave_plan::split::{FragmentPlan, PlannedBroadcast, When};
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::error::ArrowError;
use datafusion::common::Statistics;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_expr::{AcrossPartitions, ConstExpr, EquivalenceProperties, PhysicalExpr};
use datafusion::physical_expr_common::physical_expr::is_volatile;
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::statistics::{StatisticsArgs, StatisticsContext};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, Partitioning,
    PlanProperties,
};
use futures::StreamExt;
use tokio::sync::OnceCell;

use super::beginning::RunsAt;
use super::figures::{DoneElsewhere, FragmentFigures};
use super::prepared_fragment::PreparedFragment;
use super::sent_rows::{Gathering, SentRows};
use super::shared_run::{Failure, GivenOut, SharedRun};
use crate::select::{StatementContext, StatementInput};

/// A filter of keys takes at most one in so many bytes of a fragment's memory: with the message that brings it, about
/// an eighth.
pub(super) const KEY_FILTER_SHARE: u64 = 64;

/// Runs a fragment on its devices; see the [module](self).
#[derive(Clone)]
pub struct FragmentExec {
    pub(super) number: usize,
    pub(super) fragment: FragmentPlan,
    pub(super) parts: Arc<[FragmentPart]>,
    pub(super) context: Arc<StatementContext>,
    properties: Arc<PlanProperties>,
    passes: Arc<Passes>,
    /// By pass: an operator that reads its input again gets other fragment runs.
    begun: Arc<Mutex<BTreeMap<usize, Arc<Pass>>>>,
    reports: Arc<Mutex<Vec<RunReport>>>,
    done_elsewhere: Arc<Mutex<DoneElsewhere>>,
    metrics: ExecutionPlanMetricsSet,
}

/// The part of a fragment's input that one device runs it over.
#[derive(Debug, Clone)]
pub struct FragmentPart {
    /// The device.
    pub device: Arc<Device>,
    /// The pages, which lie there unless the statement names the devices that compute, for each scan of the fragment in
    /// its order: the number of its morsel input.
    pub inputs: Vec<(u32, StatementInput)>,
    /// It runs the fragment; else the host does, and reads these pages.
    pub on_device: bool,
}

/// One reading of the node's rows.
pub(super) struct Pass {
    /// The broadcast rows, from when the first part starts. A caller goes on where a dropped one stopped.
    gathering: OnceLock<Gathering>,
    /// Made when the first part starts.
    prepared: OnceCell<Arc<PreparedFragment>>,
    /// As they run: those of the node, or [shares](super::dividing) of them.
    parts: Arc<[FragmentPart]>,
    /// One for each of them.
    runs: Vec<tokio::sync::Mutex<Run>>,
    /// Rows given out.
    given: Mutex<usize>,
}

/// Where the rows of one part come from.
pub(super) enum Run {
    /// Not started yet.
    Waiting,
    /// The device sends them, or a copy of the mirror, and the host may make some itself.
    OnDevice { at: RunsAt, run: Box<SharedRun>, figures: FragmentFigures },
    /// The device refused, or should not run it, and the host makes them.
    OnHost { stream: SendableRecordBatchStream, figures: FragmentFigures },
    /// All were given out, or the run failed.
    Over,
}

/// What the host's operators above `plan` may rely on, whichever part a row comes from: columns that are the same in
/// all rows, and columns that are equal in each. The order of rows is lost.
pub(super) fn known_of_rows(plan: &Arc<dyn ExecutionPlan>) -> Result<EquivalenceProperties> {
    let properties = plan.equivalence_properties();
    let uniform = |of: &ConstExpr| matches!(of.across_partitions, AcrossPartitions::Uniform(_));
    // DataFusion does not say that of computed constants.
    let computed = plan.downcast_ref::<ProjectionExec>().into_iter().flat_map(|projection| {
        projection.expr().iter().enumerate().filter_map(|(place, of)| {
            let has_columns = !collect_columns(&of.expr).is_empty();
            let column = Arc::new(Column::new(&of.alias, place));
            (!has_columns && !is_volatile(&of.expr))
                .then(|| ConstExpr::new(column, AcrossPartitions::Uniform(None)))
        })
    });
    let mut known = EquivalenceProperties::new(plan.schema());
    known.add_constants(properties.constants().into_iter().filter(uniform).chain(computed))?;
    for class in properties.eq_group().iter() {
        let mut columns = class.iter().filter(|expr| expr.is::<Column>());
        let Some(first) = columns.next() else { continue };
        for other in columns {
            known.add_equal_conditions(Arc::clone(first), Arc::clone(other))?;
        }
    }
    Ok(known)
}

impl FragmentExec {
    /// The node that runs `fragment`, the statement's `number`th, over `parts`, of which there is at least one.
    pub fn new(
        number: usize,
        fragment: FragmentPlan,
        parts: Vec<FragmentPart>,
        context: Arc<StatementContext>,
    ) -> Self {
        let properties = PlanProperties::new(
            known_of_rows(&fragment.plan)
                .unwrap_or_else(|_| EquivalenceProperties::new(fragment.plan.schema())),
            Partitioning::UnknownPartitioning(fragment.partition_count),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        Self {
            number,
            fragment,
            parts: parts.into(),
            context,
            properties: Arc::new(properties),
            passes: Arc::default(),
            begun: Arc::default(),
            reports: Arc::default(),
            done_elsewhere: Arc::default(),
            metrics: ExecutionPlanMetricsSet::new(),
        }
    }

    /// The operators that run on the devices.
    pub fn device_plan(&self) -> &Arc<dyn ExecutionPlan> {
        &self.fragment.plan
    }

    /// The rows that the host makes for it first.
    pub fn broadcasts(&self) -> &[PlannedBroadcast] {
        &self.fragment.broadcasts
    }

    /// Names of the devices that are to run the fragment.
    pub fn device_names(&self) -> String {
        self.names(true)
    }

    /// The devices that have a part of its input: its rows are those of all parts. None: only so many of them are
    /// wanted.
    pub(crate) fn devices(&self) -> Option<BTreeSet<DeviceId>> {
        let parts = self.parts.iter().map(|part| part.device.id());
        self.fragment.fetch.is_none().then(|| parts.collect())
    }

    /// The devices that run it over all parts of its input, where all of its rows are wanted. None: the host has a
    /// part in it, or only so many rows are wanted.
    pub(crate) fn computers(&self) -> Option<Vec<Arc<Device>>> {
        let are_all = self.fragment.fetch.is_none() && self.parts.iter().all(|part| part.on_device);
        are_all.then(|| self.parts.iter().map(|part| Arc::clone(&part.device)).collect())
    }

    /// Names of the tables that it reads.
    pub(crate) fn tables(&self) -> String {
        self.fragment.tables()
    }

    /// Rows expected of it, where something was to be priced.
    pub(crate) fn row_estimate(&self) -> Option<f64> {
        self.fragment.row_estimate
    }

    /// What the devices measured of finished runs.
    pub fn reports(&self) -> Vec<RunReport> {
        self.reports.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What others than the devices have done of finished runs, which is not in the reports.
    pub fn done_elsewhere(&self) -> DoneElsewhere {
        *self.done_elsewhere.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn names(&self, on_device: bool) -> String {
        let parts = self.parts.iter().filter(|part| part.on_device == on_device);
        parts.map(|part| part.device.name()).collect::<Vec<_>>().join(", ")
    }

    pub(super) fn pass(&self, number: usize) -> Arc<Pass> {
        let mut begun = self.begun.lock().unwrap_or_else(PoisonError::into_inner);
        let pass = begun.entry(number).or_insert_with(|| {
            let parts = self.running_parts();
            let runs = parts.iter().map(|_| tokio::sync::Mutex::new(Run::Waiting)).collect();
            let (gathering, prepared) = (OnceLock::new(), OnceCell::new());
            Arc::new(Pass { gathering, prepared, parts, runs, given: Mutex::default() })
        });
        Arc::clone(pass)
    }

    /// The next batch of the part at `place`, whichever partition asks.
    async fn next_batch(
        &self,
        pass: &Pass,
        place: usize,
        task: &Arc<TaskContext>,
    ) -> Result<Option<RecordBatch>> {
        let (Some(run), Some(part)) = (pass.runs.get(place), pass.parts.get(place)) else {
            return Ok(None);
        };
        let mut run = run.lock().await;
        if matches!(*run, Run::Waiting) {
            let bytes_max = self.context.settings().device_memory_bytes / KEY_FILTER_SHARE;
            let bytes_max = usize::try_from(bytes_max).unwrap_or(usize::MAX);
            let prepare = || async {
                let rows = self.rows_to_send(pass, task).await?;
                PreparedFragment::new(&self.fragment, rows, bytes_max).map(Arc::new)
            };
            let prepared = pass.prepared.get_or_try_init(prepare).await?;
            *run = self.start(prepared, part, place, task).await?;
        }
        let outcome = self.advance(pass, part, &mut run, task).await;
        if !matches!(outcome, Ok(Some(_))) {
            *run = Run::Over;
        }
        outcome
    }

    /// The rows that the host makes for the fragment, once they are complete.
    pub(super) async fn rows_to_send(
        &self,
        pass: &Pass,
        task: &Arc<TaskContext>,
    ) -> Result<Arc<SentRows>> {
        let gathering = pass.gathering.get_or_init(|| {
            let bytes_max = self.context.settings().broadcast_bytes;
            SentRows::gather(self.fragment.broadcasts.clone(), bytes_max, Arc::clone(task))
        });
        gathering.clone().await.map_err(DataFusionError::Shared)
    }

    async fn advance(
        &self,
        pass: &Pass,
        part: &FragmentPart,
        run: &mut Run,
        task: &Arc<TaskContext>,
    ) -> Result<Option<RecordBatch>> {
        loop {
            let (batch, figures) = match run {
                Run::Waiting | Run::Over => return Ok(None),
                Run::OnHost { stream, figures } => {
                    (self.up_to_limit(pass, stream.next().await.transpose()?), figures)
                }
                Run::OnDevice { at, run: shared, figures } => match at.next(shared, part).await {
                    Ok(batch) => {
                        let batch = self.up_to_limit(pass, batch);
                        if batch.is_none() {
                            shared.tell(figures);
                        }
                        (batch, figures)
                    }
                    Err(Failure::Host(error)) => return Err(error),
                    Err(Failure::TooSlow) => {
                        let why = "it was far slower than predicted, and had given no row";
                        figures.turned = Some(why.to_owned());
                        figures.is_planned_here = false;
                        let prepared = pass.prepared.get().ok_or_else(never_prepared)?;
                        let earlier = at.failed(shared.given_out().known());
                        // The run ends with what is replaced, and its rows with it.
                        *run = self.run_on_host(prepared, part, task, figures.clone(), earlier)?;
                        continue;
                    }
                    Err(Failure::Device(error)) => {
                        at.device.note_run_failure(&error);
                        let given = shared.given_out();
                        let is_lost = matches!(given, GivenOut::Unknown);
                        let is_of_one_copy = self.is_of_one_copy(part, &error);
                        let may_be_redone = is_of_one_copy || may_be_redone(&part.device, &error);
                        if !may_be_redone || is_lost && !shared.goes_on_without_device() {
                            return Err(fault(&part.device, &at.link, error).await);
                        }
                        let given = given.known();
                        let why = match &given {
                            Some(given) => format!("{error}, after {given}"),
                            None => error.to_string(),
                        };
                        figures.refused = Some(why.clone());
                        part.device.forget_if_useless(&at.link, &error).await;
                        if is_lost {
                            continue;
                        }
                        let prepared = pass.prepared.get().ok_or_else(never_prepared)?;
                        let mut earlier = at.failed(given);
                        if is_of_one_copy {
                            let over = (part, prepared.inputs(part)?);
                            let begun = self.begin(prepared, over, task, figures, &mut earlier);
                            if let Some((at, begun)) = Box::pin(begun).await? {
                                let figures = figures.clone();
                                *run = Run::OnDevice { at, run: begun, figures };
                                continue;
                            }
                        }
                        if shared.goes_on_without_device() {
                            figures.refused = Some(error.to_string());
                            continue;
                        }
                        figures.refused = Some(why);
                        *run = self.run_on_host(prepared, part, task, figures.clone(), earlier)?;
                        continue;
                    }
                },
            };
            match &batch {
                Some(batch) => figures.rows += batch.num_rows() as u64,
                None => {
                    self.file(figures);
                    self.note_run(part, figures);
                }
            }
            return Ok(batch);
        }
    }

    /// `batch` as far as its rows may still be given out.
    fn up_to_limit(&self, pass: &Pass, batch: Option<RecordBatch>) -> Option<RecordBatch> {
        batch.and_then(|batch| {
            let left = pass.take(batch.num_rows(), self.fragment.fetch);
            (left > 0 || batch.num_rows() == 0).then(|| batch.slice(0, left))
        })
    }

    /// Keeps what is known of a run that is over.
    pub(super) fn file(&self, figures: &FragmentFigures) {
        let mut reports = self.reports.lock().unwrap_or_else(PoisonError::into_inner);
        reports.extend(figures.report.clone());
        drop(reports);
        self.done_elsewhere.lock().unwrap_or_else(PoisonError::into_inner).add(figures);
        self.context.figures().add(figures.clone());
    }

    /// Notes for later plans how the run on the device of `part` went, of which `figures` tell: how much others helped
    /// it, and which conditions it knows since.
    fn note_run(&self, part: &FragmentPart, figures: &FragmentFigures) {
        let report = figures.report.as_ref();
        // The embedded device has the history and the cores of the host.
        let is_far = figures.mode != AttachMode::Embedded;
        let Some(report) = report.filter(|_| is_far) else { return };
        // With a limit it may have left pages out.
        if self.fragment.fetch.is_some() {
            return;
        }
        let settings = self.context.settings();
        if settings.stealing != When::Never {
            self.context.database().lent_cores.note_run(part.device.id(), report);
        }
        if settings.history_mode() == HistoryMode::Off {
            return;
        }
        // What the host took of the pages that stream is not the device's.
        let streamed = self.fragment.scans.last().map(|scan| scan.scan.scan().input);
        let (taken, morsels) = figures.taken();
        let histories = &self.context.database().device_histories;
        histories.note_run(part.device.id(), (&self.fragment.plan, report), |number| {
            let input = part.inputs.iter().find(|(input, _)| *input == number);
            let pages = input.map_or(0, |(_, input)| input.input.pages_left());
            let taken = if streamed == Some(number) { pages * taken / morsels.max(1) } else { 0 };
            pages.saturating_sub(taken) as u64
        });
    }

    /// Ends the runs of the parts at `places`, whose rows are not needed any more.
    async fn stop(&self, pass: &Pass, places: &[usize]) {
        for run in places.iter().filter_map(|place| pass.runs.get(*place)) {
            let mut run = run.lock().await;
            match &mut *run {
                Run::OnDevice { run, figures, .. } => {
                    run.tell(figures);
                    self.file(figures);
                }
                Run::OnHost { figures, .. } => self.file(figures),
                Run::Waiting | Run::Over => {}
            }
            *run = Run::Over;
        }
    }
}

impl Pass {
    /// How many of `count` rows may be given out, which count as given then.
    fn take(&self, count: usize, fetch: Option<usize>) -> usize {
        let mut given = self.given.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = fetch.map_or(count, |fetch| count.min(fetch.saturating_sub(*given)));
        *given = given.saturating_add(taken);
        taken
    }

    /// Whether no more rows may be given out.
    fn is_full(&self, fetch: Option<usize>) -> bool {
        let given = *self.given.lock().unwrap_or_else(PoisonError::into_inner);
        fetch.is_some_and(|fetch| given >= fetch)
    }
}

/// Places of the parts whose rows `partition` of `partition_count` gives out.
fn parts_of(partition: usize, partition_count: usize, part_count: usize) -> Vec<usize> {
    let partition_count = partition_count.max(1);
    if part_count < partition_count {
        return vec![partition % part_count.max(1)];
    }
    (partition..part_count).step_by(partition_count).collect()
}

pub(super) fn never_prepared() -> DataFusionError {
    DataFusionError::Internal("a fragment ran that was never made".to_owned())
}

/// Whether the host may run the whole part instead, as it was given no rows of the run on `device`: that refuses, or
/// has lost the run. Where its pages cannot be reached either, reading them fails.
pub(super) fn may_be_redone(device: &Device, error: &LinkError) -> bool {
    let is_unknown =
        error.device_error().is_some_and(|error| error.cause == DeviceErrorCause::UnknownRun);
    let is_lost = is_unknown || matches!(error, LinkError::Lost { .. });
    error.is_refusal() || is_lost || device.is_mirror() && is_of_a_copy(error)
}

/// Whether `error`, of a device that has pages of a mirror, is of that copy alone: another copy may run the fragment,
/// and the host reads another one.
pub(super) fn is_of_a_copy(error: &LinkError) -> bool {
    // A device that is being stopped ends its runs; the host listens to none that it has cancelled itself.
    let is_cancelled =
        error.device_error().is_some_and(|error| error.cause == DeviceErrorCause::Cancelled);
    is_link_of_one_copy(error) || is_cancelled
}

/// The statement's error for one of `device` that came over `link`, which is given up where it is lost. By now the
/// device may have another, and that one stays.
pub(super) async fn fault(
    device: &Device,
    link: &Arc<dyn Link>,
    error: LinkError,
) -> DataFusionError {
    if let Some(fault) = error.device_error().and_then(expression_fault) {
        return fault;
    }
    device.forget_if_useless(link, &error).await;
    external(device.fault("run a fragment", error))
}

/// The error as the host's own operators would have given it, where an expression is at fault.
pub(super) fn expression_fault(error: &DeviceError) -> Option<DataFusionError> {
    let message = || error.message.clone();
    let arrow = match error.cause {
        DeviceErrorCause::DivideByZero => ArrowError::DivideByZero,
        DeviceErrorCause::Overflow => ArrowError::ArithmeticOverflow(message()),
        DeviceErrorCause::InvalidValue => ArrowError::CastError(message()),
        DeviceErrorCause::Execution => return Some(DataFusionError::Execution(message())),
        _ => return None,
    };
    Some(DataFusionError::from(arrow))
}

pub(super) fn external(error: Error) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}

impl fmt::Debug for FragmentExec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FragmentExec")
            .field("number", &self.number)
            .field("devices", &self.device_names())
            .field("plan", &self.fragment.plan)
            .finish_non_exhaustive()
    }
}

impl DisplayAs for FragmentExec {
    fn fmt_as(&self, _kind: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FragmentExec: device={}", self.devices_and_homes())?;
        if self.parts.iter().any(|part| !part.on_device) {
            write!(f, ", on the host={}", self.names(false))?;
        }
        if let Some(fetch) = self.fragment.fetch {
            write!(f, ", fetch={fetch}")?;
        }
        Ok(())
    }
}

impl ExecutionPlan for FragmentExec {
    fn name(&self) -> &'static str {
        "FragmentExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    /// The broadcast inputs. Operators below the cut are the device's, and no rule of the host's planner may touch
    /// them.
    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        self.fragment.broadcasts.iter().map(|made| &made.plan).collect()
    }

    fn apply_expressions(
        &self,
        visit: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        for filter in self.fragment.dynamic_filters() {
            if visit(filter)? == TreeNodeRecursion::Stop {
                return Ok(TreeNodeRecursion::Stop);
            }
        }
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let mut changed = Self::clone(&self);
        for (made, plan) in changed.fragment.broadcasts.iter_mut().zip(children) {
            made.plan = plan;
        }
        Arc::new(changed).reset_state()
    }

    fn reset_state(self: Arc<Self>) -> Result<Arc<dyn ExecutionPlan>> {
        let mut fresh = Self::clone(&self);
        fresh.passes = Arc::default();
        fresh.begun = Arc::default();
        fresh.metrics = ExecutionPlanMetricsSet::new();
        Ok(Arc::new(fresh))
    }

    fn execute(
        &self,
        partition: usize,
        task: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let schema: SchemaRef = self.schema();
        let metrics = BaselineMetrics::new(&self.metrics, partition);
        let pass = self.pass(self.passes.begin(partition));
        let places = parts_of(partition, self.fragment.partition_count, pass.parts.len());
        let parts = places.iter().map(|place| {
            let taker = (self.clone(), Arc::clone(&pass), *place, Arc::clone(&task));
            let rows = futures::stream::unfold(taker, |taker| async {
                let (this, pass, place, task) = &taker;
                let batch = this.next_batch(pass, *place, task).await.transpose()?;
                Some((batch, taker))
            });
            rows.boxed()
        });
        let merged = futures::stream::select_all(parts);
        let taker = (self.clone(), merged, metrics);
        let batches = futures::stream::unfold(Some(taker), move |taker| {
            let (pass, places) = (Arc::clone(&pass), places.clone());
            async move {
                let (this, mut merged, metrics) = taker?;
                if pass.is_full(this.fragment.fetch) {
                    drop(merged);
                    this.stop(&pass, &places).await;
                    return None;
                }
                let batch = merged.next().await?;
                if let Ok(batch) = &batch {
                    metrics.record_output(batch.num_rows());
                }
                Some((batch, Some((this, merged, metrics))))
            }
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, batches)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn statistics_from_inputs(
        &self,
        _inputs: &[Arc<Statistics>],
        args: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        match args.partition() {
            None => StatisticsContext::new().compute(self.fragment.plan.as_ref(), args),
            // The next partition that asks gets the next rows.
            Some(_) => Ok(Arc::new(Statistics::new_unknown(&self.fragment.plan.schema()))),
        }
    }
}
