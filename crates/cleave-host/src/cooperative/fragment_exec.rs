//! The plan node above a cut: it sends a fragment to its device and gives out the rows that come back.
//!
//! 1. Nothing is sent before the first poll. By then a hash join above has read its build side, so
//!    that the keys it wants ([`FragmentPlan::dynamic_filters`]) go down with the fragment and rule
//!    out pages once more.
//! 2. [`Execute`] carries the fragment, the snapshot and the morsels; the device admits it.
//! 3. All partitions of this node take batches from the one stream of slots, as they come.
//! 4. A device that refuses the fragment before the first row is no error: the host runs the same
//!    operators over its own page source (rule 13), and the figures say so.
//!
//! Invariant: rows leave in no order, each once; at most [`FragmentPlan::fetch`] of them.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use cleave_fragment::codec::FRAGMENT_BYTES_MAX;
use cleave_fragment::command::{DeviceError, DeviceErrorCause, Execute, RunReport};
use cleave_fragment::expressions::key_set::compact_keys;
use cleave_fragment::fragment::travelling_settings;
use cleave_fragment::link::{Link, LinkError, RunStream};
use cleave_fragment::{Passes, TableScanExec, build_id, encode_fragment};
use cleave_plan::split::FragmentPlan;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::error::ArrowError;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{ScalarValue, Statistics};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::expressions::Literal;
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_expr_common::physical_expr::snapshot_physical_expr;
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::statistics::StatisticsArgs;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties,
};
use futures::StreamExt;

use super::figures::FragmentFigures;
use crate::device::Device;
use crate::error::Error;
use crate::statement::select::{PlannedInput, StatementContext, StatementInput};

/// Runs a fragment on its device; see the [module](self).
#[derive(Clone)]
pub struct FragmentExec {
    number: usize,
    fragment: FragmentPlan,
    input: StatementInput,
    device: Arc<Device>,
    context: Arc<StatementContext>,
    properties: Arc<PlanProperties>,
    passes: Arc<Passes>,
    /// The runs by pass: an engine that reads its input again gets another run.
    runs: Arc<Mutex<BTreeMap<usize, SharedRun>>>,
    report: Arc<Mutex<Option<RunReport>>>,
    metrics: ExecutionPlanMetricsSet,
}

/// One run, shared by the partitions that take its rows.
type SharedRun = Arc<tokio::sync::Mutex<Run>>;

/// Where the rows come from.
enum Run {
    /// Nobody has asked yet.
    Waiting,
    /// The device sends them, over this link.
    OnDevice { link: Arc<dyn Link>, stream: Box<RunStream>, figures: FragmentFigures },
    /// The device would not, and the host makes them.
    OnHost { stream: SendableRecordBatchStream, figures: FragmentFigures },
    /// All were given out, or the run failed.
    Over,
}

impl FragmentExec {
    /// The node that runs `fragment`, the statement's `number`th, on `device`.
    pub fn new(
        number: usize,
        fragment: FragmentPlan,
        input: StatementInput,
        device: Arc<Device>,
        context: Arc<StatementContext>,
    ) -> Self {
        let properties = PlanProperties::new(
            EquivalenceProperties::new(fragment.plan.schema()),
            Partitioning::UnknownPartitioning(fragment.partition_count),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        Self {
            number,
            fragment,
            input,
            device,
            context,
            properties: Arc::new(properties),
            passes: Arc::default(),
            runs: Arc::default(),
            report: Arc::default(),
            metrics: ExecutionPlanMetricsSet::new(),
        }
    }

    /// The operators that run on the device.
    pub fn device_plan(&self) -> &Arc<dyn ExecutionPlan> {
        &self.fragment.plan
    }

    /// Name of the device.
    pub fn device_name(&self) -> &str {
        self.device.name()
    }

    /// What the device measured, once the run is over.
    pub fn report(&self) -> Option<RunReport> {
        self.report.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The run of `pass`.
    fn run(&self, pass: usize) -> SharedRun {
        let mut runs = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
        let run =
            runs.entry(pass).or_insert_with(|| Arc::new(tokio::sync::Mutex::new(Run::Waiting)));
        Arc::clone(run)
    }

    /// The next batch of `run`, whichever partition asks.
    async fn next_batch(
        &self,
        run: &SharedRun,
        task: &Arc<TaskContext>,
    ) -> Result<Option<RecordBatch>> {
        let mut run = run.lock().await;
        if matches!(*run, Run::Waiting) {
            *run = self.start(task).await?;
        }
        let outcome = self.advance(&mut run, task).await;
        if !matches!(outcome, Ok(Some(_))) {
            *run = Run::Over;
        }
        outcome
    }

    async fn advance(&self, run: &mut Run, task: &Arc<TaskContext>) -> Result<Option<RecordBatch>> {
        loop {
            let (batch, figures) = match run {
                Run::Waiting | Run::Over => return Ok(None),
                Run::OnHost { stream, figures } => (stream.next().await.transpose()?, figures),
                Run::OnDevice { link, stream, figures } => match stream.next().await {
                    Ok(batch) => {
                        figures.waited = stream.waited();
                        if batch.is_none() {
                            figures.report = stream.report().cloned();
                        }
                        (batch, figures)
                    }
                    Err(error) if figures.rows == 0 && is_refusal(&error) => {
                        *run = self.run_on_host(task, figures.clone(), &error)?;
                        continue;
                    }
                    Err(error) => return Err(self.fault(link, error).await),
                },
            };
            return Ok(self.count(batch, figures));
        }
    }

    /// Counts what is given out, cuts it at the limit, and files the figures at the end.
    fn count(
        &self,
        batch: Option<RecordBatch>,
        figures: &mut FragmentFigures,
    ) -> Option<RecordBatch> {
        let limit = self.fragment.fetch.map_or(u64::MAX, |fetch| fetch as u64);
        let left = usize::try_from(limit - figures.rows).unwrap_or(usize::MAX);
        let batch = batch
            .filter(|_| left > 0)
            .map(|batch| if batch.num_rows() > left { batch.slice(0, left) } else { batch });
        match &batch {
            Some(batch) => figures.rows += batch.num_rows() as u64,
            None => {
                *self.report.lock().unwrap_or_else(PoisonError::into_inner) =
                    figures.report.clone();
                self.context.figures().add(figures.clone());
            }
        }
        batch
    }

    async fn start(&self, task: &Arc<TaskContext>) -> Result<Run> {
        let (fragment, input) = self.tightened()?;
        let figures = FragmentFigures {
            number: self.number,
            table: self.fragment.scan.scan().table.clone(),
            device: self.device.name().to_owned(),
            mode: self.device.mode(),
            report: None,
            refused: None,
            pages: (input.page_count, input.pages_left()),
            fragment_bytes: fragment.len(),
            rows: 0,
            waited: std::time::Duration::ZERO,
        };
        let settings = self.context.settings();
        let ring_bytes = u64::from(settings.slot_count) * u64::from(settings.slot_bytes);
        let identity = self.device.identity().await.map_err(external)?;
        let room = identity.fragment_memory_bytes.saturating_sub(ring_bytes);
        let request = Execute {
            header: self.device.next_run(),
            build: build_id(),
            fragment: Bytes::from(fragment),
            snapshot: self.context.state().snapshot().commit,
            inputs: vec![(self.fragment.scan.scan().input, input.morsels())],
            copies: u32::from(!self.fragment.may_run_as_copies),
            memory_bytes: settings.device_memory_bytes.min(room),
            slot_count: settings.slot_count,
            slot_bytes: settings.slot_bytes,
            settings: travelling_settings(task.session_config().options()),
            first_slot: 0,
        };
        let link = self.device.link().await.map_err(external)?;
        match link.execute(request).await {
            Ok(stream) => Ok(Run::OnDevice { link, stream: Box::new(stream), figures }),
            Err(error) if is_refusal(&error) => self.run_on_host(task, figures, &error),
            Err(error) => Err(self.fault(&link, error).await),
        }
    }

    /// The fragment as bytes, and its input, with what the operators above have learnt by now.
    fn tightened(&self) -> Result<(Vec<u8>, Arc<PlannedInput>)> {
        let unchanged =
            || Ok((encode_fragment(&self.fragment.plan)?, Arc::clone(&self.input.input)));
        let mut filters = Vec::new();
        for filter in &self.fragment.dynamic_filters {
            let filter = compact_keys(snapshot_physical_expr(Arc::clone(filter))?)?;
            if !is_true(&filter) {
                filters.push(filter);
            }
        }
        if filters.is_empty() {
            return unchanged();
        }
        let scan = self.fragment.scan.with_copies(1).tightened(&filters)?;
        let named = scan.scan();
        let input = match &named.predicate {
            Some(predicate) => Arc::new(self.input.input.pruned(&named.filter, predicate)?),
            None => Arc::clone(&self.input.input),
        };
        let scan: Arc<dyn ExecutionPlan> = Arc::new(scan);
        let plan = Arc::clone(&self.fragment.plan)
            .transform_up(|node| {
                Ok(if node.is::<TableScanExec>() {
                    Transformed::yes(Arc::clone(&scan))
                } else {
                    Transformed::no(node)
                })
            })
            .data()?;
        // A filter without a wire form stays behind: losing one changes no rows (rule 4).
        match encode_fragment(&plan) {
            Ok(fragment) if fragment.len() <= FRAGMENT_BYTES_MAX => Ok((fragment, input)),
            _ => unchanged(),
        }
    }

    fn run_on_host(
        &self,
        task: &Arc<TaskContext>,
        mut figures: FragmentFigures,
        refusal: &LinkError,
    ) -> Result<Run> {
        figures.refused = Some(refusal.to_string());
        let number = self.fragment.scan.scan().input;
        let morsels = self.input.input.morsels();
        let context = self.context.fragment_context_with(
            std::slice::from_ref(&self.input),
            BTreeMap::from([(number, morsels)]),
        )?;
        let config = task.session_config().clone().with_extension(context);
        let task = TaskContext::new(
            task.task_id(),
            task.session_id(),
            config,
            task.scalar_functions().clone(),
            task.higher_order_functions().clone(),
            task.aggregate_functions().clone(),
            task.window_functions().clone(),
            task.runtime_env(),
        );
        let stream = self.fragment.plan.execute(0, Arc::new(task))?;
        Ok(Run::OnHost { stream, figures })
    }

    /// The statement's error for one that came over `link`, which is given up where it is lost. By now
    /// the device may have another, and that one stays.
    async fn fault(&self, link: &Arc<dyn Link>, error: LinkError) -> DataFusionError {
        if let Some(fault) = error.device_error().and_then(expression_fault) {
            return fault;
        }
        self.device.forget_if_useless(link, &error).await;
        external(self.device.fault("run a fragment", error))
    }
}

/// Whether the device is there and will not run this fragment, for a reason that the host does not share.
fn is_refusal(error: &LinkError) -> bool {
    if matches!(error, LinkError::TooLarge { .. }) {
        return true;
    }
    error.device_error().is_some_and(|error| {
        matches!(
            error.cause,
            DeviceErrorCause::Refused
                | DeviceErrorCause::OutOfMemory
                | DeviceErrorCause::Unsupported
        )
    })
}

/// The error as the host's own operators would have given it, where an expression is at fault.
fn expression_fault(error: &DeviceError) -> Option<DataFusionError> {
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

fn is_true(expr: &Arc<dyn PhysicalExpr>) -> bool {
    expr.downcast_ref::<Literal>()
        .is_some_and(|literal| *literal.value() == ScalarValue::Boolean(Some(true)))
}

fn external(error: Error) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}

impl fmt::Debug for FragmentExec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FragmentExec")
            .field("number", &self.number)
            .field("device", &self.device.name())
            .field("plan", &self.fragment.plan)
            .finish_non_exhaustive()
    }
}

impl DisplayAs for FragmentExec {
    fn fmt_as(&self, _kind: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FragmentExec: device={}", self.device.name())?;
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

    /// None: what lies below the cut is the device's, and no rule of the host's planner may touch it.
    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        Vec::new()
    }

    fn apply_expressions(
        &self,
        visit: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        for filter in &self.fragment.dynamic_filters {
            if visit(filter)? == TreeNodeRecursion::Stop {
                return Ok(TreeNodeRecursion::Stop);
            }
        }
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(
        self: Arc<Self>,
        _children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn reset_state(self: Arc<Self>) -> Result<Arc<dyn ExecutionPlan>> {
        let mut fresh = Self::clone(&self);
        fresh.passes = Arc::default();
        fresh.runs = Arc::default();
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
        let run = self.run(self.passes.begin(partition));
        let taker = (self.clone(), run, task, metrics);
        let batches = futures::stream::unfold(taker, |taker| async {
            let (this, run, task, metrics) = &taker;
            match this.next_batch(run, task).await {
                Ok(None) => None,
                Ok(Some(batch)) => {
                    metrics.record_output(batch.num_rows());
                    Some((Ok(batch), taker))
                }
                Err(error) => Some((Err(error), taker)),
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
        _args: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        Ok(Arc::new(Statistics::new_unknown(&self.fragment.plan.schema())))
    }
}
