//! Chooses the split that is predicted to be done first: every candidate is priced, the best are improved scan by scan,
//! and one is taken.
//!
//! 1. The plan becomes a shape once; each candidate is a placement over it.
//! 2. In the few best, each scan of the host's own is tried the other way: as a fragment where it was read as pages, as
//!    pages where it was a fragment. Improvements are kept.
//! 3. `host` is chosen unless another is better by a margin ([`Limits::cut_share_max`]), as far as the best of so many
//!    predictions needs it ([`gain`](super::gain)): single predictions are off by 1.6 to 1.9 times. Over recorded runs
//!    of 37 JOB queries a share of 0.8 makes four of them slower than host-only and 0.57 one, at the same gain over all
//!    (`docs/design/split-and-cost.md`).

use cleave_fragment::DenseAggregateExec;
use datafusion_physical_plan::aggregates::{AggregateExec, AggregateMode};

use crate::cost::makespan::{predict, recall, sharing, slot_bytes};
use crate::cost::paper::{self, HardwareModel};
use crate::cost::{CostStrategy, Limits, PlanShape, Prediction, Sharing};
use crate::profile::Profile;

use super::FragmentScan;
use super::build_keys::filters_keep;
use super::candidate::{Candidate, candidates, leaves_below};
use super::gain::{self, Offer};
use super::numbered_plan::{NumberedPlan, is_exchange, is_join, is_stateless};
use super::revisit::{Revisit, Side};
use super::shape_of::shape_of;
use super::{CutContext, Leaves, Split};

/// Candidates that are improved scan by scan.
const BETTERED_COUNT: usize = 3;

/// A candidate, and what is predicted of it.
#[derive(Debug, Clone, PartialEq)]
pub struct PricedSplit {
    /// What it is called.
    pub split: Split,
    /// The prediction.
    pub prediction: Prediction,
    /// Whether it was chosen.
    pub is_chosen: bool,
}

/// The choice.
pub(super) struct Choice {
    pub(super) candidate: Candidate,
    /// In the order of the candidates, then the improved ones.
    pub(super) priced: Vec<PricedSplit>,
}

struct Priced {
    candidate: Candidate,
    prediction: Prediction,
}

/// Chooses among all candidates of a plan.
pub(super) fn choose(pricing: &Pricing<'_>, context: &dyn CutContext) -> Choice {
    let found = candidates(pricing.plan, context);
    let mut priced: Vec<Priced> = found.into_iter().map(|c| pricing.price(c)).collect();
    let mut order: Vec<usize> = (0..priced.len()).collect();
    order.sort_by(|a, b| priced[*a].prediction.finish.total_cmp(&priced[*b].prediction.finish));
    for place in order.into_iter().take(BETTERED_COUNT) {
        let better = pricing.better(&priced[place]);
        let is_new = |better: &Priced| {
            !priced.iter().any(|known| known.candidate.roots == better.candidate.roots)
        };
        if let Some(better) = better.filter(is_new) {
            priced.push(better);
        }
    }
    let chosen = match context.cost_strategy() {
        // Nothing crosses a link there, and no other cores compute.
        _ if context.shares_host() => 0,
        _ if context.rows_only() => pricing.soonest_of_rows(&priced),
        CostStrategy::Makespan => pricing.soonest(&priced),
        CostStrategy::Paper => by_the_paper(&priced, pricing),
    };
    let list = priced.iter().enumerate().map(|(place, one)| PricedSplit {
        split: one.candidate.split,
        prediction: one.prediction.clone(),
        is_chosen: place == chosen,
    });
    let list = list.collect();
    Choice { candidate: priced.swap_remove(chosen).candidate, priced: list }
}

/// The place of the candidate that the published equations take: they know the host's scans as pages only.
fn by_the_paper(priced: &[Priced], pricing: &Pricing<'_>) -> usize {
    let is_published = |one: &Priced| match one.candidate.split {
        Split::Hybrid { joins, leaves } => {
            joins == 0 && leaves == Leaves::All || leaves == Leaves::None
        }
        _ => false,
    };
    let splits: Vec<usize> =
        (0..priced.len()).filter(|place| is_published(&priced[*place])).collect();
    let placements: Vec<_> =
        splits.iter().map(|place| priced[*place].candidate.placement(pricing.plan)).collect();
    let hardware = HardwareModel::of(&pricing.profile, &pricing.limits);
    let costs = paper::plan_costs(&pricing.shape, &placements, &hardware);
    let named = |split: Split| priced.iter().position(|one| one.candidate.split == split);
    match paper::choose(&costs, &hardware) {
        paper::Choice::Host => 0,
        paper::Choice::Split(place) => splits.get(place).copied().unwrap_or(0),
        // Where the last cut is at the root, that is the whole plan.
        paper::Choice::Ndp => named(Split::Ndp).or(splits.last().copied()).unwrap_or(0),
    }
}

/// Predictions for all candidates of a plan, of which one with the cuts of `chosen` is forced: `ndp` may be known as
/// the last `hk`.
pub(super) fn price(
    pricing: &Pricing<'_>,
    chosen: &Candidate,
    context: &dyn CutContext,
) -> Vec<PricedSplit> {
    let found = candidates(pricing.plan, context);
    let place = found.iter().position(|candidate| candidate.roots == chosen.roots);
    let priced = found.into_iter().enumerate().map(|(number, candidate)| {
        let Priced { candidate, prediction } = pricing.price(candidate);
        PricedSplit { split: candidate.split, prediction, is_chosen: Some(number) == place }
    });
    priced.collect()
}

/// Corrects the `rows` of partial aggregates below whole groups of several devices. Each group lies on one device, and
/// each of its `partitions` has a state of it.
fn count_states(plan: &NumberedPlan, rows: &mut [f64], partitions: f64) {
    for number in (0..plan.nodes.len()).filter(|number| plan.has_whole_groups(*number)) {
        let mut between = Vec::new();
        let mut at = number;
        while let [input] = plan.nodes[at].inputs.as_slice() {
            at = *input;
            let node = plan.nodes[at].plan.as_ref();
            let aggregate = node.downcast_ref::<AggregateExec>();
            if aggregate.is_none() && !is_exchange(node) && !node.is::<DenseAggregateExec>() {
                break;
            }
            between.push(at);
            if aggregate.is_some() {
                break;
            }
        }
        let Some(partial) = between.last().copied() else { continue };
        let aggregate = plan.nodes[partial].plan.downcast_ref::<AggregateExec>();
        let is_partial =
            aggregate.is_some_and(|aggregate| *aggregate.mode() == AggregateMode::Partial);
        let input = plan.nodes[partial].inputs.first().and_then(|input| rows.get(*input)).copied();
        let (Some(input), Some(groups), true) = (input, rows.get(partial).copied(), is_partial)
        else {
            continue;
        };
        let states = (groups * partitions).min(input).max(groups);
        for place in between {
            if let Some(rows) = rows.get_mut(place) {
                *rows = states;
            }
        }
    }
}

pub(super) struct Pricing<'a> {
    plan: &'a NumberedPlan,
    shape: PlanShape,
    profile: Profile,
    limits: Limits,
}

impl<'a> Pricing<'a> {
    pub(super) fn new(plan: &'a NumberedPlan, context: &dyn CutContext) -> Self {
        let mut rows = context.rows(&plan.nodes[0].plan);
        for place in plan.scans() {
            let Some(scan) = plan.scan(place) else { continue };
            let keys = plan.keys(context);
            let kept = filters_keep(scan, scan.dynamic_filters(), keys, context).unwrap_or(1.0);
            // What hands the rows on has as few of them; the estimate of a join has its keys in it.
            let mut at = Some(place);
            while let Some(place) = at {
                if let Some(rows) = rows.get_mut(place) {
                    *rows *= kept;
                }
                at = plan.nodes[place].parent.filter(|above| {
                    let above = plan.nodes[*above].plan.as_ref();
                    !is_join(above) && (is_stateless(above) || is_exchange(above))
                });
            }
        }
        let limits = context.limits();
        count_states(plan, &mut rows, f64::from(limits.device_partitions.max(1)));
        let shape = shape_of(plan, &rows, context);
        Self { plan, shape, profile: context.profile(), limits }
    }

    /// The place of the candidate that is expected to be done first, or of the host where none clearly is.
    fn soonest(&self, priced: &[Priced]) -> usize {
        let offers = priced.iter().map(|one| Offer {
            finish_s: one.prediction.finish,
            bound_s: self.bound(&one.candidate),
            fits: one.prediction.fits,
        });
        gain::choose(&offers.collect::<Vec<_>>(), self.limits.cut_share_max)
    }

    /// The place of the candidate that is expected to be done first of those that leave no scan to the host, if it can
    /// be helped.
    fn soonest_of_rows(&self, priced: &[Priced]) -> usize {
        let leaves = leaves_below(self.plan);
        let leaves_none = |one: &Priced| {
            let is_below = |leaf: &usize| one.candidate.has(*leaf, self.plan);
            leaves.iter().all(is_below)
        };
        let of_rows = priced.iter().enumerate().filter(|(_, one)| leaves_none(one));
        let soonest = of_rows.min_by(|(_, one), (_, other)| {
            let (one, other) = (&one.prediction, &other.prediction);
            other.fits.cmp(&one.fits).then(one.finish.total_cmp(&other.finish))
        });
        soonest.map_or(0, |(place, _)| place)
    }

    /// Seconds of the device in the fragments of `candidate` that the host cannot take over once they run.
    fn bound(&self, candidate: &Candidate) -> f64 {
        let of_root = |root: &usize| {
            let Some(times) = sharing(&self.shape, *root, &self.profile, &self.limits) else {
                return 0.0;
            };
            times.device_before_s + if self.may_share(*root) { 0.0 } else { times.device_s }
        };
        candidate.roots.iter().map(of_root).sum()
    }

    /// Whether both sides may share the fragment whose root is the operator `root`.
    fn may_share(&self, root: usize) -> bool {
        self.limits.shares_work && self.shape.nodes.get(root).is_some_and(|node| node.may_share)
    }

    /// The time of each side for the fragment whose root is the operator `root`, where both may share it.
    pub(super) fn sharing(&self, root: usize) -> Option<Sharing> {
        self.may_share(root)
            .then(|| sharing(&self.shape, root, &self.profile, &self.limits))
            .flatten()
    }

    /// The time of each side for the fragment whose root is the operator `root`, which only one of them may run, where
    /// the host has the memory for it.
    pub(super) fn recall(&self, root: usize) -> Option<Sharing> {
        let is_whole = !self.shape.nodes.get(root)?.may_share && self.limits.shares_work;
        is_whole.then(|| recall(&self.shape, root, &self.profile, &self.limits)).flatten()
    }

    /// Decides at run time on which side the piece below the operator `root` runs, where the plan may turn out to be
    /// wrong.
    pub(super) fn revisit(
        &self,
        root: usize,
        planned: Side,
        scans: &[FragmentScan],
        context: &dyn CutContext,
    ) -> Option<Revisit> {
        // Choices by the published equations, and plans on one set of cores, stay.
        if context.cost_strategy() == CostStrategy::Paper || context.shares_host() {
            return None;
        }
        let figures = (&self.shape, &self.profile, &self.limits);
        Revisit::new((self.plan, root), figures, planned, scans, context)
    }

    /// Bytes of a slot for the fragment whose root is the operator `root`.
    pub(super) fn slot_bytes(&self, root: usize) -> u32 {
        slot_bytes(&self.shape, root, &self.profile, &self.limits)
    }

    /// Rows expected of the operator `number`.
    pub(super) fn rows(&self, number: usize) -> f64 {
        self.shape.nodes.get(number).map_or(0.0, |node| node.rows)
    }

    fn price(&self, candidate: Candidate) -> Priced {
        let placement = candidate.placement(self.plan);
        let alone = match candidate.split {
            // Complete groups have one partition, which nobody helps.
            Split::Complete { .. } => {
                Some(Limits { device_partitions: 1, lent_share: 0.0, ..self.limits.clone() })
            }
            _ => None,
        };
        let limits = alone.as_ref().unwrap_or(&self.limits);
        let prediction = predict(&self.shape, &placement, &self.profile, limits);
        Priced { candidate, prediction }
    }

    /// `priced` with some scans the other way, if that is better.
    fn better(&self, priced: &Priced) -> Option<Priced> {
        let joins = match priced.candidate.split {
            Split::Host => 0,
            Split::Hybrid { joins, .. } => joins,
            Split::Complete { .. } | Split::Ndp | Split::Auto => return None,
        };
        let mut best: Option<Priced> = None;
        for leaf in leaves_below(self.plan) {
            let present = best.as_ref().unwrap_or(priced);
            let mut roots = present.candidate.roots.clone();
            if !roots.remove(&leaf) {
                if present.candidate.has(leaf, self.plan) {
                    continue;
                }
                roots.insert(leaf);
            }
            if roots.is_empty() {
                continue;
            }
            let split = Split::Hybrid { joins, leaves: Leaves::Some };
            let changed = self.price(Candidate { split, roots });
            if changed.prediction.finish < present.prediction.finish {
                best = Some(changed);
            }
        }
        best
    }
}
