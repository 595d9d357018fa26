//! The operators of a plan in preorder, each with what is known of it. A plan in, [`PlanNode`]s out.

use std::sync::Arc;
use std::time::Duration;

use cleave_fragment::command::status::metrics_sets;
use cleave_plan::PlanEstimates;
use cleave_plan::cardinality::estimate_rows_with;
use cleave_plan::split::row_bytes;
use datafusion::physical_plan::metrics::MetricsSet;
use datafusion::physical_plan::{ExecutionPlan, displayable};

use super::below_cuts::{Sources, fragment_of, runs_on};
use super::wording::{Words, words};
use crate::cooperative::figures::DoneElsewhere;
use crate::cooperative::fragment_exec::FragmentExec;

/// Characters of an operator's arguments that are shown.
const DETAIL_CHARACTERS_MAX: usize = 1000;

/// One line of the plan: an operator and where it runs.
#[derive(Debug, Default)]
pub(super) struct PlanNode {
    pub(super) depth: usize,
    /// The device, for what runs on one.
    pub(super) device: Option<String>,
    pub(super) name: String,
    /// Its arguments, as it shows them itself.
    pub(super) detail: String,
    pub(super) words: Words,
    pub(super) rows: Option<usize>,
    /// Rows that the planner expects.
    pub(super) estimate: Option<f64>,
    /// Bytes that a row is taken to have.
    pub(super) row_bytes: f64,
    pub(super) time: Option<Duration>,
    /// Bytes that it spilled, where it did.
    pub(super) spilled_bytes: Option<usize>,
    /// Its figures are those of a device, and others have done part of what they were expected for.
    pub(super) is_partial: bool,
    /// The cut below it, if there is one.
    pub(super) cut: Option<Cut>,
}

/// What lies between a node and what devices run below it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Cut {
    /// How rows come: `link to device nas`.
    pub(super) way: String,
    /// Bytes of rows that came; None: not known.
    pub(super) bytes: Option<u64>,
    /// What the devices did not do themselves, since others took it.
    pub(super) elsewhere: DoneElsewhere,
    /// The node does nothing but take these rows.
    pub(super) is_all: bool,
}

impl PlanNode {
    /// One of which nothing is known but what it does.
    pub(super) fn named(name: String) -> Self {
        Self {
            name: shortened(&name),
            words: Words::of_statement(&shortened(&name)),
            ..Self::default()
        }
    }
}

impl Cut {
    fn below(plan: &Arc<dyn ExecutionPlan>, analyzed: bool) -> Option<Self> {
        let fragment = fragment_of(plan)?;
        let is_all = plan.is::<FragmentExec>();
        let names = match is_all {
            true => fragment.devices_and_homes(),
            false => runs_on(plan),
        };
        let to = match names.strip_prefix("node=") {
            Some(nodes) if nodes.contains(", ") => format!("nodes {nodes}"),
            Some(node) => format!("node {node}"),
            None if names.contains(", ") => format!("devices {names}"),
            None => format!("device {names}"),
        };
        let mut way = match (names.is_empty(), fragment.is_in_memory()) {
            (true, _) => "fragment run by the host".to_owned(),
            (false, true) => format!("in memory from {to}"),
            (false, false) => format!("link to {to}"),
        };
        let on_host = fragment.names_on_host();
        if !on_host.is_empty() {
            way = format!("{way}, part of {on_host} on the host");
        }
        let reports = if analyzed { fragment.reports() } else { Vec::new() };
        let bytes = (!reports.is_empty()).then(|| reports.iter().map(|one| one.slot_bytes).sum());
        let elsewhere = if analyzed { fragment.done_elsewhere() } else { DoneElsewhere::default() };
        Some(Self { way, bytes, elsewhere, is_all })
    }

    /// Rows that crossed, where `rows` came in all.
    pub(super) fn rows_of(&self, rows: usize) -> usize {
        rows.saturating_sub(usize::try_from(self.elsewhere.rows).unwrap_or(usize::MAX))
    }

    /// What the figures of the devices leave out.
    pub(super) fn without(&self) -> Option<String> {
        let DoneElsewhere { by_host, by_others, of, .. } = self.elsewhere;
        let who = match (by_host, by_others) {
            (0, 0) => return None,
            (_, 0) => "the host",
            (0, _) => "other devices",
            (..) => "the host and other devices",
        };
        Some(format!("without {} of {of} morsels that {who} took", by_host + by_others))
    }
}

/// The operators in preorder, those of fragments beneath the node that runs them.
pub(super) fn plan_nodes(
    plan: &Arc<dyn ExecutionPlan>,
    analyzed: bool,
    known: &PlanEstimates,
) -> Vec<PlanNode> {
    let mut nodes = Vec::new();
    let sources = Sources::of(plan);
    collect_host(plan, 0, (&sources, analyzed), &mut nodes);
    leave_out_bypassed(&mut nodes);
    let rows = estimate_rows_with(plan, known, &|node| sources.below(node));
    nodes.iter_mut().zip(rows).for_each(|(node, rows)| node.estimate = Some(rows));
    nodes
}

/// A dense aggregate takes whole pages from its scan. The operators between the two see none of these rows, so a count
/// of zero there says nothing. The first of them is the aggregate itself, in other words.
fn leave_out_bypassed(nodes: &mut [PlanNode]) {
    let (mut dense_depth, mut is_told) = (None, false);
    for node in nodes {
        node.words.is_hidden |= is_told;
        is_told = false;
        if dense_depth.is_some_and(|depth| node.depth <= depth) {
            dense_depth = None;
        }
        if node.name == "DenseAggregateExec" {
            (dense_depth, is_told) = (Some(node.depth), true);
        } else if dense_depth.is_some()
            && node.rows == Some(0)
            && !node.name.starts_with("TableScan")
        {
            node.rows = None;
        }
    }
}

fn collect_host(
    plan: &Arc<dyn ExecutionPlan>,
    depth: usize,
    (all_sources, analyzed): (&Sources, bool),
    nodes: &mut Vec<PlanNode>,
) {
    let metrics = if analyzed { plan.metrics() } else { None };
    let cut = Cut::below(plan, analyzed);
    nodes.push(PlanNode { cut, ..node(plan, depth, all_sources, metrics) });
    if let Some(fragment) = fragment_of(plan) {
        let mut metrics = device_metrics(fragment);
        metrics.reverse();
        let (runs_on, sources) = (runs_on(plan), Sources::of(plan));
        let is_partial = analyzed && fragment.done_elsewhere().is_some();
        let below = (runs_on.as_str(), &sources, analyzed, is_partial);
        collect_device(fragment.device_plan(), depth + 1, below, &mut metrics, nodes);
        return;
    }
    for child in plan.children() {
        collect_host(child, depth + 1, (all_sources, analyzed), nodes);
    }
}

/// What the devices measured of each node, all together; nothing where none has finished.
fn device_metrics(fragment: &FragmentExec) -> Vec<MetricsSet> {
    let count = count_nodes(fragment.device_plan());
    let mut together: Vec<MetricsSet> = Vec::new();
    for report in fragment.reports() {
        let sets = metrics_sets(&report.operators, count);
        if together.is_empty() {
            together = sets;
            continue;
        }
        for (all, own) in together.iter_mut().zip(sets) {
            own.iter().for_each(|metric| all.push(Arc::clone(metric)));
        }
    }
    together
}

/// The nodes of a fragment from `plan` on; what is broadcast or exchanged beneath the leaf that names it. `metrics`
/// holds those of the nodes to come, the next one last.
fn collect_device(
    plan: &Arc<dyn ExecutionPlan>,
    depth: usize,
    (runs_on, sources, analyzed, is_partial): (&str, &Sources, bool, bool),
    metrics: &mut Vec<MetricsSet>,
    nodes: &mut Vec<PlanNode>,
) {
    let own = metrics.pop();
    let device = Some(runs_on.to_owned());
    nodes.push(PlanNode { device, is_partial, ..node(plan, depth, sources, own) });
    if let Some(source) = sources.of_leaf(plan) {
        collect_host(&source, depth + 1, (sources, analyzed), nodes);
    }
    for child in plan.children() {
        let below = (runs_on, sources, analyzed, is_partial);
        collect_device(child, depth + 1, below, metrics, nodes);
    }
}

fn count_nodes(plan: &Arc<dyn ExecutionPlan>) -> usize {
    1 + plan.children().into_iter().map(count_nodes).sum::<usize>()
}

fn node(
    plan: &Arc<dyn ExecutionPlan>,
    depth: usize,
    sources: &Sources,
    metrics: Option<MetricsSet>,
) -> PlanNode {
    let text = displayable(plan.as_ref()).one_line().to_string();
    let text = text.trim_end();
    let (name, detail) = text.split_once(": ").unwrap_or((text, ""));
    let metrics = metrics.map(|metrics| metrics.aggregate_by_name());
    let rows = metrics.as_ref().and_then(MetricsSet::output_rows);
    let nanos = metrics.as_ref().and_then(MetricsSet::elapsed_compute);
    // A device's come as counts with a name.
    let spilled = metrics.as_ref().and_then(|metrics| {
        let of_device = || Some(metrics.sum_by_name("spilled_bytes")?.as_usize());
        metrics.spilled_bytes().or_else(of_device).filter(|bytes| *bytes > 0)
    });
    PlanNode {
        depth,
        name: name.to_owned(),
        detail: shortened(detail),
        words: words(plan, sources),
        rows,
        row_bytes: row_bytes(&plan.schema()),
        time: nanos.map(|nanos| Duration::from_nanos(nanos as u64)),
        spilled_bytes: spilled,
        ..PlanNode::default()
    }
}

/// Cut where it is long, as the keys are that a join has handed down.
fn shortened(detail: &str) -> String {
    match detail.char_indices().nth(DETAIL_CHARACTERS_MAX) {
        Some((end, _)) => {
            let (kept, cut) = detail.split_at(end);
            format!("{kept}… ({} bytes more)", cut.len())
        }
        None => detail.to_owned(),
    }
}
