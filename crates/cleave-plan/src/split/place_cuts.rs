//! Places the cuts of a split in a physical plan: plan in, plan with fragments and reasons out.
//!
//! ```text
//!   AggregateExec(Final)                 host
//!     RepartitionExec                    host
//!       ─ ─ cut ─ ─ ─ ─ ─ ─ ─ ─ ─ ─      rows cross the link
//!       DenseAggregateExec               device
//!       AggregateExec(Partial)           device   what may go below a cut: selections,
//!         ProjectionExec                 device   projections, joins, partial aggregates,
//!           HashJoinExec                 device   TopK, limits, over scans of one device
//!             TableScanExec              device
//!             TableScanExec              device
//! ```
//!
//! 1. [`NumberedPlan`] says of each operator whether a device can run it;
//! 2. a forced split is one [`candidate`]; [`choose`] picks among all of them for `auto`;
//! 3. each operator that is the topmost below a cut is replaced by a node that runs it as a fragment.
//!
//! Under a split `gk`, complete aggregates go down too, where each of several devices has all rows of its groups. The
//! rows of the devices are then put one after the other, which the node above every cut does.
//!
//! A sort or limit that goes down also stays above: several partitions of the fragment each keep their own best rows,
//! and the host's operator merges them. Exchanges never go down (rule 3): their inputs are one partition there. A
//! subtree that is broadcast is replaced by a leaf that names it, and stays a plan of the host's, with cuts of its own.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use cleave_fragment::{BroadcastExec, RecursionExec, TableScanExec};
use datafusion_common::Result;
use datafusion_physical_expr::PhysicalExpr;
use datafusion_physical_expr::utils::collect_columns;
use datafusion_physical_plan::joins::HashJoinExec;
use datafusion_physical_plan::{ExecutionPlan, ExecutionPlanProperties};

use super::below_cut::{
    Limits, joins_rows_that_stream, merge_above, on_device, rows_needed, streams_rows,
    with_children,
};
use super::build_keys::filters_keep;
use super::candidate::{Candidate, candidate, leaves_below};
use super::choose::{PricedSplit, Pricing, choose, price};
use super::fetch_late::fetch_late;
use super::keys_above::KeysAbove;
use super::numbered_plan::{NumberedNode, NumberedPlan, Obstacle, is_join};
use super::revisit::Side;
use super::shape_of::row_bytes;
use super::{
    CutContext, CutDecision, CutWeight, FragmentPlan, FragmentScan, PlannedBroadcast, ScanShare,
    Split, weigh_cut,
};
use crate::cost::CostStrategy;

/// A plan with its cuts.
#[derive(Debug, Clone)]
pub struct PlacedCuts {
    /// The plan that the host executes.
    pub plan: Arc<dyn ExecutionPlan>,
    /// One for each scan that stays, one for each fragment.
    pub decisions: Vec<CutDecision>,
    /// Every candidate with what is predicted of it, and which was chosen.
    pub priced: Vec<PricedSplit>,
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

/// Divides `plan` as `split` says. Candidates are priced where one is to be chosen, and, if `price_all`, for a forced
/// split too.
pub fn place_cuts(
    plan: Arc<dyn ExecutionPlan>,
    split: Split,
    price_all: bool,
    context: &dyn CutContext,
) -> Result<PlacedCuts, PlaceCutsError> {
    let plan = NumberedPlan::new(&plan, context);
    if split == Split::Auto && context.is_prescribed() {
        candidate(&plan, Split::H0).map_err(|why| refused(split, why))?;
    }
    // Priced once, for the choice, for EXPLAIN, for the sharing of fragments between the sides and for slot sizes.
    let is_priced = price_all
        || match split {
            Split::Host => false,
            Split::Auto => !context.shares_host(),
            _ => !context.shares_host() && context.limits().asks_of_fragments(),
        };
    let pricing = is_priced.then(|| Pricing::new(&plan, context));
    let (chosen, priced) = match (split, &pricing) {
        (Split::Auto, None) => {
            (Candidate { split: Split::Host, roots: BTreeSet::new() }, Vec::new())
        }
        (Split::Auto, Some(pricing)) => {
            let choice = choose(pricing, context);
            (choice.candidate, choice.priced)
        }
        (forced, pricing) => {
            let found = candidate(&plan, forced).map_err(|why| refused(forced, why))?;
            let pricing = pricing.as_ref().filter(|_| price_all);
            let priced = pricing.map(|pricing| price(pricing, &found, context)).unwrap_or_default();
            (found, priced)
        }
    };
    let reason = match split {
        Split::Auto if context.shares_host() => {
            "the device shares the host's memory: no bytes to save".to_owned()
        }
        Split::Auto if context.is_prescribed() => "on the devices that are named".to_owned(),
        Split::Auto if context.rows_only() => "rows alone, as the settings ask".to_owned(),
        Split::Auto => comparison(&priced, context.cost_strategy()),
        Split::Ndp => "the whole statement, as asked".to_owned(),
        _ => "as the settings ask".to_owned(),
    };
    let is_free = split == Split::Auto && !context.rows_only();
    let may_turn = is_free && pricing.is_some() && context.pages_only().is_none();
    let mut own_leaves: BTreeSet<usize> = match may_turn {
        true => leaves_below(&plan).into_iter().collect(),
        false => BTreeSet::new(),
    };
    own_leaves.retain(|leaf| !chosen.has(*leaf, &plan));
    let mut placing = Placing {
        plan: &plan,
        split,
        chosen: &chosen,
        context,
        pricing: pricing.as_ref(),
        reason,
        decisions: Vec::new(),
        own_leaves,
        broadcast_count: 0,
        keys_wanted: Vec::new(),
    };
    let placed = placing.place(0)?;
    let decisions = placing.decisions;
    Ok(PlacedCuts { plan: placed, decisions, priced })
}

fn refused(split: Split, Obstacle { operator, reason }: Obstacle) -> PlaceCutsError {
    PlaceCutsError::Forced { split, operator, reason }
}

/// The choice against the alternatives, in words.
fn comparison(priced: &[PricedSplit], strategy: CostStrategy) -> String {
    let finish = |one: &PricedSplit| one.prediction.finish;
    let chosen = priced.iter().find(|one| one.is_chosen);
    let (Some(chosen), Some(host)) = (chosen, priced.first()) else {
        return "as the settings ask".to_owned();
    };
    if strategy == CostStrategy::Paper {
        return format!("the paper's equations take split {}", chosen.split);
    }
    let others = priced.iter().filter(|one| one.split != host.split);
    let best = others.min_by(|one, other| finish(one).total_cmp(&finish(other)));
    let took = |one: &PricedSplit| format!("{} {}", one.split, time(finish(one)));
    match best {
        None => "nothing of it can run on a device".to_owned(),
        Some(best) if chosen.split == host.split => {
            format!("no split is expected to be clearly sooner: {}, {}", took(best), took(host))
        }
        Some(_) => format!("expected to be sooner: {}, {}", took(chosen), took(host)),
    }
}

/// Seconds, for people.
fn time(seconds: f64) -> String {
    if seconds < 10.0 { format!("{:.2} ms", seconds * 1e3) } else { format!("{seconds:.1} s") }
}

/// One split on its way into a plan.
struct Placing<'a> {
    plan: &'a NumberedPlan,
    split: Split,
    chosen: &'a Candidate,
    context: &'a dyn CutContext,
    /// Present where the plan was priced.
    pricing: Option<&'a Pricing<'a>>,
    /// Why it is this one.
    reason: String,
    decisions: Vec<CutDecision>,
    /// Tops of leaves that stay with the host and may move.
    own_leaves: BTreeSet<usize>,
    /// Broadcasts so far.
    broadcast_count: u32,
    /// Keys that fragments may be sent, of joins that are placed after them.
    keys_wanted: Vec<KeysAbove>,
}

impl Placing<'_> {
    /// The operator `number` with what lies below it, fragments in their places.
    fn place(&mut self, number: usize) -> Result<Arc<dyn ExecutionPlan>> {
        let piece = match self.chosen.roots.contains(&number) {
            true => self.fragment(number)?,
            false => self.may_turn(number)?,
        };
        if let Some(fragment) = piece {
            let below = self.context.fragment_exec(fragment)?;
            let is_whole = self.chosen.split == Split::Ndp;
            let above = &self.plan.nodes[number].plan;
            return if is_whole { Ok(below) } else { merge_above(above, below) };
        }
        if let Some(scan) = self.plan.scan(number) {
            let is_decided = self.chosen.has(number, self.plan);
            if !is_decided {
                self.stays(number, scan.scan().table.clone());
            }
            let live = self.live_filters(number, scan);
            return Ok(match live.len() == scan.dynamic_filters().len() {
                true => Arc::clone(&self.plan.nodes[number].plan),
                false => Arc::new(scan.clone().with_dynamic_filters(live)),
            });
        }
        let inputs = self.plan.nodes[number].inputs.clone();
        let mut inputs: Vec<_> =
            inputs.into_iter().map(|input| self.place(input)).collect::<Result<_>>()?;
        let plan = &self.plan.nodes[number].plan;
        let keys = self.keys_wanted.iter().find(|keys| {
            plan.dynamic_expressions_produced().iter().any(|filter| keys.are_of(filter))
        });
        if let (Some(keys), Some(join)) = (keys, plan.downcast_ref::<HashJoinExec>())
            && let Some(build) = inputs.first_mut()
        {
            *build = keys.collect(join, Arc::clone(build))?;
        }
        with_children(Arc::clone(plan), inputs)
    }

    /// The keys of joins above the cut that the scan `place`, with these filters of theirs, may be sent.
    fn keys_above(&mut self, place: usize, filters: &[Arc<dyn PhysicalExpr>]) -> Vec<KeysAbove> {
        let Some(scan) = self.plan.scan(place) else { return Vec::new() };
        let joins: Vec<&HashJoinExec> = {
            let nodes = self.plan.nodes.iter();
            nodes.filter_map(|node| node.plan.downcast_ref()).collect()
        };
        let mut found = Vec::new();
        for filter in filters {
            let hands_down = |join: &&&HashJoinExec| {
                let id = filter.expression_id();
                let own = join.dynamic_expressions_produced();
                id.is_some() && own.iter().any(|own| own.expression_id() == id)
            };
            let Some(join) = joins.iter().find(hands_down) else { continue };
            let plan = &self.plan.nodes[place].plan;
            let rows = self.context.rows(plan).first().copied().unwrap_or(0.0);
            let scanned = (scan, rows * row_bytes(&plan.schema()));
            let known = self.plan.keys(self.context);
            let keys = KeysAbove::new(join, filter, scanned, known, self.context);
            let Some(keys) = keys else { continue };
            match self.keys_wanted.iter().find(|known| keys.are_those(known)) {
                Some(known) => found.push(keys.collected_as(known)),
                None => {
                    self.keys_wanted.push(keys.clone());
                    found.push(keys);
                }
            }
        }
        found
    }

    fn stays(&mut self, number: usize, table: String) {
        let obstacle = self.plan.nodes[number].obstacle.as_ref();
        let reason = match (self.context.pages_only(), obstacle, self.split) {
            (Some(setting), ..) => setting,
            (None, Some(obstacle), Split::Auto) => obstacle.reason.clone(),
            _ => self.reason.clone(),
        };
        self.decisions.push(CutDecision { table, device_operators: Vec::new(), reason });
    }

    /// The leaf of the host's whose top is `number`, if it may turn out to be better as a fragment.
    fn may_turn(&mut self, number: usize) -> Result<Option<FragmentPlan>> {
        let Some(pricing) = self.pricing.filter(|_| self.own_leaves.contains(&number)) else {
            return Ok(None);
        };
        let [_] = self.plan.devices_below(number).as_slice() else { return Ok(None) };
        let scans = self.scans(number);
        let revisit = pricing.revisit(number, Side::Host, &scans, self.context);
        if revisit.is_none() {
            return Ok(None);
        }
        // A leaf collects nothing, so that nothing is broadcast to it.
        let (mut piece, _) = self.piece(number, scans)?;
        piece.revisit = revisit;
        self.add_keys_above(number, &mut piece);
        piece.on_device = vec![false];
        let reason = format!("{}; looked at again when its keys are known", self.reason);
        self.decisions.push(CutDecision {
            table: piece.tables(),
            device_operators: Vec::new(),
            reason,
        });
        Ok(Some(piece))
    }

    /// The fragment whose root is `number`; None, and a decision that says why, where it pays on no device.
    fn fragment(&mut self, number: usize) -> Result<Option<FragmentPlan>> {
        let (mut fragment, sent) = self.piece(number, self.scans(number))?;
        let shares = self.plan.devices_below(number);
        let mut reason = self.reason.clone();
        let is_free = !self.context.rows_only();
        if self.split == Split::Auto && shares.len() > 1 {
            let on_device = match is_free {
                true => {
                    let (on_device, why) = weigh_shares(&shares, &self.context.weights(&fragment));
                    reason = why;
                    on_device
                }
                false => shares.iter().map(|share| share.refusal.is_none()).collect(),
            };
            if !on_device.contains(&true) {
                let table = fragment.tables();
                self.decisions.push(CutDecision { table, device_operators: Vec::new(), reason });
                return Ok(None);
            }
            fragment.on_device = on_device;
        }
        if let (Split::Auto, [_], Some(pricing), true) =
            (self.split, shares.as_slice(), self.pricing, is_free)
        {
            fragment.revisit = pricing.revisit(number, Side::Device, &fragment.scans, self.context);
        }
        self.add_keys_above(number, &mut fragment);
        let device_operators = self.plan.operators(number);
        self.decisions.push(CutDecision { table: fragment.tables(), device_operators, reason });
        for (broadcast, (_, place)) in fragment.broadcasts.iter_mut().zip(sent) {
            broadcast.plan = self.place(place)?;
        }
        Ok(Some(fragment))
    }

    /// The scans below a cut at `number`, with the filters that tighten them from above it.
    fn scans(&self, number: usize) -> Vec<FragmentScan> {
        let plan = self.plan;
        let below = plan.below_cut(number);
        let inner: BTreeSet<u64> = below
            .iter()
            .flat_map(|place| plan.nodes[*place].plan.dynamic_expressions_produced())
            .filter_map(|filter| filter.expression_id())
            .collect();
        let scans = below.into_iter().filter_map(|place| Some((place, plan.scan(place)?)));
        let scans = scans.map(|(place, scan)| {
            let live = self.live_filters(place, scan);
            let is_outer = |filter: &&Arc<dyn PhysicalExpr>| {
                filter.expression_id().is_none_or(|id| !inner.contains(&id))
            };
            let dynamic_filters: Vec<_> = live.iter().filter(is_outer).cloned().collect();
            let keys = plan.keys(self.context);
            let filters_keep = filters_keep(scan, &dynamic_filters, keys, self.context);
            let scan = scan.clone().with_dynamic_filters(live);
            FragmentScan { scan, dynamic_filters, filters_keep, keys_above: Vec::new() }
        });
        scans.collect()
    }

    /// The plan below a cut at `number`, with these scans, as a fragment for all of its devices; and by number, the
    /// operators whose rows are broadcast to it, in which no cuts are placed yet.
    fn piece(
        &mut self,
        number: usize,
        mut scans: Vec<FragmentScan>,
    ) -> Result<(FragmentPlan, Vec<(u32, usize)>)> {
        let node = &self.plan.nodes[number];
        let is_whole = self.chosen.split == Split::Ndp;
        let limits = if is_whole { Limits::Exact } else { Limits::ByCopy };
        let mut sent = Vec::new();
        let below_cut = self.for_device(number, limits, &mut sent)?;
        let below_cut = self.fetching_late(below_cut, &mut scans)?;
        let piece = FragmentPlan {
            plan: below_cut,
            scans,
            partition_count: match is_whole {
                true => 1,
                false => node.plan.output_partitioning().partition_count(),
            },
            may_run_as_partitions: match is_whole {
                true => streams_rows(&node.plan),
                false => joins_rows_that_stream(&node.plan),
            },
            fetch: if is_whole { node.plan.fetch() } else { rows_needed(&node.plan) },
            on_device: vec![true; self.plan.devices_below(number).len()],
            slot_bytes: match self.pricing {
                Some(pricing) => pricing.slot_bytes(number),
                None => self.context.limits().slot_size.usual(),
            },
            broadcasts: sent.iter().map(|(input, place)| self.broadcast(*input, *place)).collect(),
            row_estimate: self.pricing.map(|pricing| pricing.rows(number)),
            sharing: self.pricing.and_then(|pricing| pricing.sharing(number)),
            recall: self.pricing.and_then(|pricing| pricing.recall(number)),
            revisit: None,
        };
        Ok((piece, sent))
    }

    /// `plan` with the columns that its joins only carry fetched above them, where that pays; its `scans` then give
    /// references.
    fn fetching_late(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        scans: &mut [FragmentScan],
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let of_plan = Arc::clone(&plan);
        let rows = || self.context.rows(&of_plan);
        let columns_wanted = |input| {
            let scan = scans.iter().find(|scan| scan.scan.scan().input == input);
            let filters = scan.map(|scan| scan.scan.dynamic_filters()).unwrap_or_default();
            filters.iter().flat_map(collect_columns).map(|column| column.index()).collect()
        };
        let setting = self.context.late_materialisation();
        let (plan, referring) = fetch_late(plan, setting, &rows, &columns_wanted)?;
        for scan in scans {
            let late = referring.iter().find(|late| late.input == scan.scan.scan().input);
            if let Some(late) = late {
                scan.refer(&late.kept)?;
            }
        }
        Ok(plan)
    }

    /// Lets the scans of `fragment`, the piece below a cut at `number`, be sent the keys of the joins above.
    fn add_keys_above(&mut self, number: usize, fragment: &mut FragmentPlan) {
        let plan = self.plan;
        let places = plan.below_cut(number).into_iter();
        let places = places.filter(|place| plan.scan(*place).is_some());
        for (place, scan) in places.zip(&mut fragment.scans) {
            scan.keys_above = self.keys_above(place, &scan.dynamic_filters);
        }
    }

    /// The rows of the operator `place` on their way to a fragment, before the cuts in there are placed.
    fn broadcast(&self, input: u32, place: usize) -> PlannedBroadcast {
        let plan = Arc::clone(&self.plan.nodes[place].plan);
        let bytes = |pricing: &Pricing<'_>| pricing.rows(place) * row_bytes(&plan.schema());
        let byte_estimate = self.pricing.map(bytes);
        PlannedBroadcast { input, plan, byte_estimate }
    }

    /// The filters of `scan`, which is the operator `number`, that an operator on the same side of a cut, or above it,
    /// tightens. Those of a join below another cut never reach it: they are handed down anew where that join runs.
    fn live_filters(&self, number: usize, scan: &TableScanExec) -> Vec<Arc<dyn PhysicalExpr>> {
        let root_above = |number: usize| self.plan.root_above(&self.chosen.roots, number);
        let own = root_above(number);
        let is_live = |filter: &&Arc<dyn PhysicalExpr>| {
            let id = filter.expression_id();
            let makes = |node: &NumberedNode| {
                let made = node.plan.dynamic_expressions_produced();
                made.iter().any(|made| id.is_some() && made.expression_id() == id)
            };
            let maker = self.plan.nodes.iter().position(makes);
            maker.and_then(root_above).is_none_or(|root| Some(root) == own)
        };
        scan.dynamic_filters().iter().filter(is_live).cloned().collect()
    }

    /// The piece below a cut at `number` as the device runs it: one partition, no exchanges, and no filters that the
    /// host's operators tighten. What is broadcast is added to `sent`, with the operator that makes it.
    fn for_device(
        &mut self,
        number: usize,
        limits: Limits,
        sent: &mut Vec<(u32, usize)>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let NumberedNode { plan, inputs, .. } = &self.plan.nodes[number];
        if let Some(scan) = plan.downcast_ref::<TableScanExec>() {
            return Ok(Arc::new(scan.with_partitions(1)));
        }
        let mut made = Vec::with_capacity(inputs.len());
        for input in inputs {
            let node = &self.plan.nodes[*input];
            if node.broadcast.is_some() {
                sent.push((self.broadcast_count, *input));
                made.push(
                    Arc::new(BroadcastExec::new(self.broadcast_count, node.plan.schema())) as _
                );
                self.broadcast_count += 1;
                continue;
            }
            // Build sides and recursions are made once, however many partitions stream, and a limit below a join has
            // none above it.
            let is_once = is_join(plan.as_ref()) || plan.is::<RecursionExec>();
            let limits = if is_once { Limits::Exact } else { limits };
            made.push(self.for_device(*input, limits, sent)?);
        }
        on_device(plan, made, limits)
    }
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

#[cfg(test)]
mod tests;
