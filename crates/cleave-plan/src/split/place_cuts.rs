//! Places the cuts of a split in a physical plan: plan in, plan with fragments and reasons out.
//!
//! ```text
//!   AggregateExec(Final)                 host
//!     RepartitionExec                    host
//!       ─ ─ cut ─ ─ ─ ─ ─ ─ ─ ─ ─ ─      rows cross the link
//!       DenseAggregateExec               device
//!       AggregateExec(Partial)           device   what may go below a cut: selections,
//!         ProjectionExec                 device   projections, partial aggregates, TopK,
//!           TableScanExec                device   limits, over one scan
//! ```
//!
//! A sort or limit that goes down also stays above: several copies of the fragment each keep their
//! own best rows, and the host's operator merges them. Exchanges never go down (rule 3).

use std::fmt;
use std::sync::Arc;

use cleave_fragment::codec::check_device_operator;
use cleave_fragment::{DenseAggregateExec, TableScanExec};
use datafusion_common::Result;
use datafusion_physical_expr::PhysicalExpr;
use datafusion_physical_plan::aggregates::{AggregateExec, AggregateMode};
use datafusion_physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion_physical_plan::limit::{GlobalLimitExec, LocalLimitExec};
use datafusion_physical_plan::sorts::sort::SortExec;
use datafusion_physical_plan::{ExecutionPlan, ExecutionPlanProperties};

use super::build_keys::{BuildKeys, filters_keep};
use super::{CutDecision, CutWeight, Split, weigh_cut};

/// A piece of the plan that is to run on a device.
#[derive(Debug, Clone)]
pub struct FragmentPlan {
    /// The operators; their scan names its input and has one partition.
    pub plan: Arc<dyn ExecutionPlan>,
    /// The scan at the bottom.
    pub scan: TableScanExec,
    /// Partitions that the piece had in the host's plan and that its consumers expect.
    pub partition_count: usize,
    /// Whether several copies of the pipeline may share the input.
    pub may_run_as_copies: bool,
    /// Filters over the scan's output that operators above the cut still tighten.
    pub dynamic_filters: Vec<Arc<dyn PhysicalExpr>>,
    /// Share of the scan's rows that they are expected to keep; `None`: nothing is known of them.
    pub filters_keep: Option<f64>,
    /// Rows after which the consumer needs no more.
    pub fetch: Option<usize>,
    /// For each device that holds pages of the scan, whether it runs the piece over them; else the host does, which
    /// reads these pages.
    pub on_device: Vec<bool>,
}

/// A device that holds pages of a scan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScanShare {
    /// Its name.
    pub device: String,
    /// Why it runs no fragments over this scan; `None` if it does.
    pub refusal: Option<String>,
}

/// What the planner asks of the side that knows devices and buffer pool.
pub trait CutContext {
    /// Which setting of the session forbids fragments altogether; `None` if none does.
    fn pages_only(&self) -> Option<String> {
        None
    }
    /// The devices that hold pages of the scan, at least one.
    fn shares(&self, scan: &TableScanExec) -> Vec<ScanShare>;
    /// Different values in `column` of the table of `scan`, all rows.
    fn distinct_count(&self, _scan: &TableScanExec, _column: &str) -> Option<f64> {
        None
    }
    /// What would cross the link of each of them for `fragment`, in the same order.
    fn weights(&self, fragment: &FragmentPlan) -> Vec<CutWeight>;
    /// The plan node that runs `fragment` on its devices.
    fn fragment_exec(&self, fragment: FragmentPlan) -> Result<Arc<dyn ExecutionPlan>>;
}

/// A plan with its cuts.
#[derive(Debug, Clone)]
pub struct PlacedCuts {
    /// The plan that the host executes.
    pub plan: Arc<dyn ExecutionPlan>,
    /// One for each scan.
    pub decisions: Vec<CutDecision>,
}

/// Why a split that the session forces cannot be had.
#[derive(Debug)]
pub enum PlaceCutsError {
    /// An operator that would lie below the cut does not run on a device.
    Forced {
        /// The split.
        split: Split,
        /// The operator.
        operator: String,
        /// Why it cannot.
        reason: String,
    },
    /// The plan could not be put together again.
    Plan(datafusion_common::DataFusionError),
}

impl fmt::Display for PlaceCutsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Forced { split, operator, reason } => {
                write!(f, "split \"{split}\" cannot run this statement: {operator}: {reason}")
            }
            Self::Plan(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for PlaceCutsError {}

impl From<datafusion_common::DataFusionError> for PlaceCutsError {
    fn from(error: datafusion_common::DataFusionError) -> Self {
        Self::Plan(error)
    }
}

/// Divides `plan` as `split` says.
///
/// For [`Split::Ndp`] the plan must have been made for one partition: exchanges cannot go down.
pub fn place_cuts(
    plan: Arc<dyn ExecutionPlan>,
    split: Split,
    context: &dyn CutContext,
) -> Result<PlacedCuts, PlaceCutsError> {
    let mut decisions = Vec::new();
    let plan = match split {
        Split::Ndp => cut_at_root(plan, context, &mut decisions)?,
        Split::Host | Split::H0 | Split::Auto => {
            cut_over_leaves(plan, split, context, &mut Vec::new(), &mut decisions)?
        }
    };
    Ok(PlacedCuts { plan, decisions })
}

fn cut_at_root(
    plan: Arc<dyn ExecutionPlan>,
    context: &dyn CutContext,
    decisions: &mut Vec<CutDecision>,
) -> Result<Arc<dyn ExecutionPlan>, PlaceCutsError> {
    let forced = |operator: &str, reason: String| PlaceCutsError::Forced {
        split: Split::Ndp,
        operator: operator.to_owned(),
        reason,
    };
    let mut node = &plan;
    let scan = loop {
        if let Some(reason) = check_device_operator(node.as_ref()) {
            return Err(forced(node.name(), reason));
        }
        if let Some(scan) = node.downcast_ref::<TableScanExec>() {
            break scan.clone();
        }
        node = match node.children().as_slice() {
            [only] => *only,
            inputs => {
                let reason = format!("has {} inputs, a fragment has one", inputs.len());
                return Err(forced(node.name(), reason));
            }
        };
    };
    let shares = context.shares(&scan);
    if let Some(reason) = shares.iter().find_map(|share| share.refusal.clone()) {
        return Err(forced("TableScanExec", reason));
    }
    if shares.len() > 1
        && let Some(operator) = first_with_state(&plan)
    {
        let names: Vec<&str> = shares.iter().map(|share| share.device.as_str()).collect();
        let reason = format!(
            "it needs all rows of \"{}\", which lie on {} devices ({})",
            scan.scan().table,
            names.len(),
            names.join(", ")
        );
        return Err(forced(operator, reason));
    }
    let fragment = FragmentPlan {
        on_device: vec![true; shares.len()],
        plan: for_device(&plan, Limits::Exact)?,
        dynamic_filters: Vec::new(),
        filters_keep: None,
        partition_count: 1,
        may_run_as_copies: chain_is_stateless(&plan),
        fetch: plan.fetch(),
        scan,
    };
    decisions.push(decision(&fragment, "the whole statement, as asked".to_owned()));
    Ok(context.fragment_exec(fragment)?)
}

/// `keys` are those of the joins above whose probe side `plan` is, or a part of.
fn cut_over_leaves(
    plan: Arc<dyn ExecutionPlan>,
    split: Split,
    context: &dyn CutContext,
    keys: &mut Vec<BuildKeys>,
    decisions: &mut Vec<CutDecision>,
) -> Result<Arc<dyn ExecutionPlan>, PlaceCutsError> {
    if let Some(scan) = chain_scan(&plan) {
        return cut_chain(plan, scan, split, context, keys, decisions);
    }
    let children = plan.children().into_iter().map(Arc::clone).collect::<Vec<_>>();
    if children.is_empty() {
        return Ok(plan);
    }
    let mut cut = Vec::with_capacity(children.len());
    for (place, child) in children.into_iter().enumerate() {
        let known = keys.len();
        keys.extend(BuildKeys::above(&plan, place));
        cut.push(cut_over_leaves(child, split, context, keys, decisions)?);
        keys.truncate(known);
    }
    Ok(with_children(plan, cut)?)
}

/// Cuts above `chain`, which ends in `scan`, if the split and the device have it so.
fn cut_chain(
    chain: Arc<dyn ExecutionPlan>,
    scan: TableScanExec,
    split: Split,
    context: &dyn CutContext,
    keys: &[BuildKeys],
    decisions: &mut Vec<CutDecision>,
) -> Result<Arc<dyn ExecutionPlan>, PlaceCutsError> {
    let stay = |reason: String| CutDecision {
        table: scan.scan().table.clone(),
        device_operators: Vec::new(),
        reason,
    };
    if split == Split::Host {
        let why = context.pages_only().unwrap_or_else(|| "as the settings ask".to_owned());
        decisions.push(stay(why));
        return Ok(chain);
    }
    let shares = context.shares(&scan);
    if let Some(reason) = shares.iter().find_map(|share| share.refusal.clone()) {
        if split == Split::H0 {
            let operator = "TableScanExec".to_owned();
            return Err(PlaceCutsError::Forced { split, operator, reason });
        }
        if shares.iter().all(|share| share.refusal.is_some()) {
            decisions.push(stay(reason));
            return Ok(chain);
        }
    }
    let mut fragment = FragmentPlan {
        on_device: vec![true; shares.len()],
        plan: for_device(&chain, Limits::ByCopy)?,
        dynamic_filters: scan.dynamic_filters().to_vec(),
        filters_keep: filters_keep(&scan, keys, context),
        partition_count: chain.output_partitioning().partition_count(),
        may_run_as_copies: true,
        fetch: rows_needed(&chain),
        scan,
    };
    let reason = match split {
        Split::Auto => {
            let (on_device, reason) = weigh_shares(&shares, &context.weights(&fragment));
            if !on_device.contains(&true) {
                decisions.push(CutDecision {
                    table: fragment.scan.scan().table.clone(),
                    device_operators: Vec::new(),
                    reason,
                });
                return Ok(chain);
            }
            fragment.on_device = on_device;
            reason
        }
        _ => "as the settings ask".to_owned(),
    };
    decisions.push(decision(&fragment, reason));
    let below = context.fragment_exec(fragment)?;
    Ok(merge_above(&chain, below)?)
}

/// For each device, whether the cut pays there; and why, in words.
fn weigh_shares(shares: &[ScanShare], weights: &[CutWeight]) -> (Vec<bool>, String) {
    let weighed: Vec<(bool, String)> = shares
        .iter()
        .zip(weights)
        .map(|(share, weight)| match &share.refusal {
            Some(reason) => (false, reason.clone()),
            None => weigh_cut(weight),
        })
        .collect();
    if let [(pays, reason)] = weighed.as_slice() {
        return (vec![*pays], reason.clone());
    }
    let is_cut = weighed.iter().any(|(pays, _)| *pays);
    let mut on_device = Vec::with_capacity(weighed.len());
    let mut reasons = Vec::with_capacity(weighed.len());
    for ((share, weight), (pays, reason)) in shares.iter().zip(weights).zip(weighed) {
        // Where nothing crosses a link, a fragment costs nothing either, and runs beside the others.
        let goes_along = is_cut && weight.link_is_free && share.refusal.is_none();
        on_device.push(pays || goes_along);
        reasons.push(match (is_cut && !pays, goes_along) {
            (true, true) => format!("{}: runs its part beside the others", share.device),
            (true, false) => format!("{}: on the host, {reason}", share.device),
            (false, _) => format!("{}: {reason}", share.device),
        });
    }
    (on_device, reasons.join("; "))
}

/// Rows that the consumer of `chain` can take at most; a sort's best rows must all be seen.
fn rows_needed(chain: &Arc<dyn ExecutionPlan>) -> Option<usize> {
    if chain.is::<SortExec>() {
        return None;
    }
    match chain.downcast_ref::<GlobalLimitExec>() {
        Some(limit) => limit.fetch().map(|fetch| limit.skip() + fetch),
        None if chain.is::<LocalLimitExec>() => None,
        None => chain.fetch(),
    }
}

fn decision(fragment: &FragmentPlan, reason: String) -> CutDecision {
    let mut device_operators = Vec::new();
    let mut node = Some(&fragment.plan);
    while let Some(plan) = node {
        device_operators.push(plan.name().to_owned());
        node = plan.children().first().copied();
    }
    device_operators.reverse();
    CutDecision { table: fragment.scan.scan().table.clone(), device_operators, reason }
}

/// The scan under `plan`, if everything down to it may go below a cut over a leaf.
fn chain_scan(plan: &Arc<dyn ExecutionPlan>) -> Option<TableScanExec> {
    if let Some(scan) = plan.downcast_ref::<TableScanExec>() {
        return Some(scan.clone());
    }
    if check_device_operator(plan.as_ref()).is_some() {
        return None;
    }
    let children = plan.children();
    let [input] = children.as_slice() else { return None };
    if plan.is::<DenseAggregateExec>() {
        return chain_scan(input);
    }
    // What reduces rows must see rows of the table, not what another such operator made of them.
    let input_may = chain_is_stateless(input);
    let this_may = if let Some(aggregate) = plan.downcast_ref::<AggregateExec>() {
        *aggregate.mode() == AggregateMode::Partial && input_may
    } else if let Some(sort) = plan.downcast_ref::<SortExec>() {
        sort.fetch().is_some() && input_may
    } else if plan.is::<LocalLimitExec>() || plan.is::<GlobalLimitExec>() {
        input_may
    } else {
        is_stateless(plan.as_ref()) && input_may
    };
    if this_may { chain_scan(input) } else { None }
}

fn chain_is_stateless(plan: &Arc<dyn ExecutionPlan>) -> bool {
    is_stateless(plan.as_ref())
        && match plan.children().as_slice() {
            [] => true,
            [input] => chain_is_stateless(input),
            _ => false,
        }
}

/// The name of the topmost operator of a chain that does not treat each row alone.
fn first_with_state(plan: &Arc<dyn ExecutionPlan>) -> Option<&str> {
    if !is_stateless(plan.as_ref()) {
        return Some(plan.name());
    }
    plan.children().into_iter().find_map(first_with_state)
}

/// Whether `node` treats each row alone, so that any number of copies give the same rows.
fn is_stateless(node: &dyn ExecutionPlan) -> bool {
    node.fetch().is_none()
        && matches!(
            node.name(),
            "TableScanExec"
                | "FilterExec"
                | "ProjectionExec"
                | "CoalesceBatchesExec"
                | "CooperativeExec"
        )
}

/// What limits in a fragment mean.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Limits {
    /// The fragment runs once and skips and counts for the whole statement.
    Exact,
    /// Each copy keeps as many rows as the limit above could take.
    ByCopy,
}

/// The chain as the device runs it: one partition, no wrappers.
fn for_device(plan: &Arc<dyn ExecutionPlan>, limits: Limits) -> Result<Arc<dyn ExecutionPlan>> {
    if let Some(scan) = plan.downcast_ref::<TableScanExec>() {
        return Ok(Arc::new(scan.with_copies(1)));
    }
    let inputs = plan
        .children()
        .into_iter()
        .map(|input| for_device(input, limits))
        .collect::<Result<Vec<_>>>()?;
    if let [input] = inputs.as_slice() {
        if limits == Limits::ByCopy
            && let Some(sort) = plan.downcast_ref::<SortExec>()
        {
            let sort = SortExec::new(sort.expr().clone(), Arc::clone(input))
                .with_fetch(sort.fetch())
                .with_preserve_partitioning(true);
            return Ok(Arc::new(sort));
        }
        if plan.name() == "CooperativeExec" {
            return Ok(Arc::clone(input));
        }
        if limits == Limits::ByCopy
            && let Some(limit) = plan.downcast_ref::<GlobalLimitExec>()
        {
            return Ok(match limit.fetch() {
                Some(fetch) => {
                    Arc::new(LocalLimitExec::new(Arc::clone(input), limit.skip() + fetch))
                }
                None => Arc::clone(input),
            });
        }
    }
    with_children(Arc::clone(plan), inputs)
}

/// Puts above the fragment what merges the rows of its copies.
fn merge_above(
    chain: &Arc<dyn ExecutionPlan>,
    below: Arc<dyn ExecutionPlan>,
) -> Result<Arc<dyn ExecutionPlan>> {
    if let Some(sort) = chain.downcast_ref::<SortExec>() {
        let merged = SortExec::new(sort.expr().clone(), below)
            .with_fetch(sort.fetch())
            .with_preserve_partitioning(sort.preserve_partitioning());
        return Ok(Arc::new(merged));
    }
    if let Some(limit) = chain.downcast_ref::<GlobalLimitExec>() {
        let merged = Arc::new(CoalescePartitionsExec::new(below));
        return Ok(Arc::new(GlobalLimitExec::new(merged, limit.skip(), limit.fetch())));
    }
    Ok(below)
}

fn with_children(
    plan: Arc<dyn ExecutionPlan>,
    children: Vec<Arc<dyn ExecutionPlan>>,
) -> Result<Arc<dyn ExecutionPlan>> {
    datafusion_physical_plan::execution_plan::replace_children_if_necessary(plan, children)
}

#[cfg(test)]
mod tests;
