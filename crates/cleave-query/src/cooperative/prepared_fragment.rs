//! A fragment with the filters of the operators above it filled in, ready to be sent, or to run on the host.
//!
//! A hash join above a fragment has read its build side when the fragment's first row is asked for: its keys become
//! part of the scans' predicates, and rule out pages once more; keys that are too many, or not integers, go as Bloom
//! filters ([`KeysAbove`](cleave_plan::split::KeysAbove)). The same operators run on either side; on the host they read
//! pages through the link and the buffer pool.

use cleave_fragment::walk::Walk;
use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use cleave_fragment::codec::FRAGMENT_BYTES_MAX;
use cleave_fragment::expressions::key_set::{compact_keys, key_count, lists_keys};
use cleave_fragment::fragment::with_partitions;
use cleave_fragment::{
    FragmentContext, Start, Stop, TableScanExec, encode_fragment, hand_down_filters,
    stoppable_joins,
};
use cleave_plan::split::revisit::ScanFacts;
use cleave_plan::split::{FragmentPlan, FragmentScan};
use datafusion::common::ScalarValue;
use datafusion::common::tree_node::{Transformed, TransformedResult};
use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Literal;
use datafusion::physical_expr_common::physical_expr::snapshot_physical_expr;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::execution_plan::reset_plan_states;

use super::feeding::OpenFilters;
use super::fragment_exec::FragmentPart;
use super::sent_rows::SentRows;
use crate::select::{PlannedInput, StatementInput};

/// The fragment as it is sent; see the [module](self).
pub(super) struct PreparedFragment {
    pub(super) plan: Arc<dyn ExecutionPlan>,
    /// The plan as the device reads it.
    pub(super) bytes: Bytes,
    /// By morsel input, its scans that ask for more than was planned.
    pub(super) tightened: BTreeMap<u32, TableScanExec>,
    /// Bloom filters of keys that go down with it, and their bytes.
    pub(super) key_filters: (usize, usize),
    may_run_as_partitions: bool,
    /// By scan, and by filter of the operators above: the number of keys that it lets through, where that is known.
    keys: Vec<Vec<Option<usize>>>,
    /// Filters that tighten further while it runs.
    pub(super) open: Vec<OpenFilters>,
    /// The rows that its leaves name.
    pub(super) rows: Arc<SentRows>,
}

impl PreparedFragment {
    /// `fragment` with the present filters of the operators above, and with `rows`; a filter of keys takes at most
    /// `filter_bytes_max`.
    pub(super) fn new(
        fragment: &FragmentPlan,
        rows: Arc<SentRows>,
        filter_bytes_max: usize,
    ) -> Result<Self> {
        // Read first: what changes from now on is sent after it.
        let open = fragment.scans.iter().filter_map(OpenFilters::of).collect();
        let planned = Self {
            // A join keeps what it has collected, and another pass may collect something else.
            plan: reset_plan_states(Arc::clone(&fragment.plan))?,
            bytes: encode_fragment(&fragment.plan)?.into(),
            tightened: BTreeMap::new(),
            key_filters: (0, 0),
            may_run_as_partitions: fragment.may_run_as_partitions,
            keys: Vec::new(),
            open,
            rows,
        };
        let mut all_keys = Vec::with_capacity(fragment.scans.len());
        let mut tightened = BTreeMap::new();
        let mut key_filters = (0, 0);
        for FragmentScan { scan, dynamic_filters, keys_above, .. } in &fragment.scans {
            let mut filters = Vec::new();
            let mut counts = Vec::with_capacity(dynamic_filters.len());
            for filter in dynamic_filters {
                let keys = keys_above.iter().find(|keys| keys.are_of(filter));
                let filter = compact_keys(snapshot_physical_expr(Arc::clone(filter))?)?;
                counts.push(key_count(&filter));
                if let Some(keys) = keys
                    && !lists_keys(&filter, keys.part_count())
                    && let Some(keys) = keys.filter(filter_bytes_max)
                {
                    key_filters = (key_filters.0 + 1, key_filters.1 + keys.bytes());
                    filters.push(Arc::new(keys) as Arc<dyn PhysicalExpr>);
                }
                if !is_true(&filter) {
                    filters.push(filter);
                }
            }
            if !filters.is_empty() {
                let scan = scan.with_partitions(1).tightened(&filters)?;
                tightened.insert(scan.scan().input, scan);
            }
            all_keys.push(counts);
        }
        let planned = Self { keys: all_keys, ..planned };
        if tightened.is_empty() {
            return Ok(planned);
        }
        let plan = Arc::clone(&planned.plan)
            .transform_up(|other| {
                let scan = other.downcast_ref::<TableScanExec>();
                let scan = scan.and_then(|scan| tightened.get(&scan.scan().input));
                Ok(match scan {
                    Some(scan) => {
                        Transformed::yes(Arc::new(scan.clone()) as Arc<dyn ExecutionPlan>)
                    }
                    None => Transformed::no(other),
                })
            })
            .data()?;
        // A filter without a wire form stays behind: losing one changes no rows (rule 4).
        match encode_fragment(&plan) {
            Ok(bytes) if bytes.len() <= FRAGMENT_BYTES_MAX => {
                Ok(Self { plan, bytes: bytes.into(), tightened, key_filters, ..planned })
            }
            _ => Ok(planned),
        }
    }

    /// The pages of `part` that may have rows, scan by scan.
    pub(super) fn inputs(&self, part: &FragmentPart) -> Result<Vec<(u32, StatementInput)>> {
        let pruned = part.inputs.iter().map(|(number, planned)| {
            let scan = self.tightened.get(number).map(TableScanExec::scan);
            let input: Arc<PlannedInput> = match scan
                .and_then(|scan| Some((scan, scan.predicate.as_ref()?)))
            {
                Some((scan, predicate)) => Arc::new(planned.input.pruned(&scan.filter, predicate)?),
                None => Arc::clone(&planned.input),
            };
            Ok((*number, StatementInput { input, ..planned.clone() }))
        });
        pruned.collect()
    }

    /// The actual figures of the scans over the pages of `part`, of which `inputs` are left.
    pub(super) fn facts(
        &self,
        part: &FragmentPart,
        inputs: &[(u32, StatementInput)],
    ) -> Vec<ScanFacts> {
        let pages = |input: &StatementInput| input.input.pages_left() as f64;
        let scans = part.inputs.iter().zip(inputs).zip(&self.keys);
        let facts = scans.map(|(((_, planned), (_, now)), keys)| ScanFacts {
            pages: pages(now) / pages(planned).max(1.0),
            keys: keys.clone(),
        });
        facts.collect()
    }

    /// How many partitions of the pipeline the host runs of it.
    pub(super) fn host_partitions(&self, task: &TaskContext) -> u32 {
        match self.may_run_as_partitions {
            true => u32::try_from(task.session_config().target_partitions()).unwrap_or(1),
            false => 1,
        }
    }

    /// Runs it on the host, over what `context` has, until `stop` is raised.
    pub(super) fn run_here(
        &self,
        context: Arc<FragmentContext>,
        task: &TaskContext,
        stop: &Stop,
    ) -> Result<SendableRecordBatchStream> {
        let partitions = self.host_partitions(task);
        let task = TaskContext::new(
            task.task_id(),
            task.session_id(),
            task.session_config().clone().with_extension(context),
            task.scalar_functions().clone(),
            task.higher_order_functions().clone(),
            task.aggregate_functions().clone(),
            task.window_functions().clone(),
            task.runtime_env(),
        );
        // Operators of its own, one partition each. Joins collect anew: another part may have other rows to collect.
        let plan = reset_plan_states(with_partitions(Arc::clone(&self.plan), partitions)?)?;
        let plan = hand_down_filters(plan, task.session_config().options())?;
        let plan = stoppable_joins(&self.beneath(plan)?, stop, Start::WhenPolled)?;
        let plan: Arc<dyn ExecutionPlan> = match partitions {
            1 => plan,
            _ => Arc::new(CoalescePartitionsExec::new(plan)),
        };
        plan.execute(0, Arc::new(task))
    }
}

impl PreparedFragment {
    /// `plan` with the filters of the operators above it at its scans, which see them tighten.
    fn beneath(&self, plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
        let beneath = |node: Arc<dyn ExecutionPlan>| {
            let scan = node.downcast_ref::<TableScanExec>();
            let of = |open: &&OpenFilters| Some(open.input()) == scan.map(|scan| scan.scan().input);
            Ok(match (scan, self.open.iter().find(of)) {
                (Some(scan), Some(open)) => {
                    let filters = scan.dynamic_filters().iter().chain(&open.filters);
                    let filters = filters.cloned().collect();
                    let scan = scan.clone().with_dynamic_filters(filters);
                    Transformed::yes(Arc::new(scan) as Arc<dyn ExecutionPlan>)
                }
                _ => Transformed::no(node),
            })
        };
        plan.transform_up(beneath).data()
    }
}

fn is_true(expr: &Arc<dyn PhysicalExpr>) -> bool {
    expr.downcast_ref::<Literal>()
        .is_some_and(|literal| *literal.value() == ScalarValue::Boolean(Some(true)))
}
