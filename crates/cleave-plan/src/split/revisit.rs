//! Chooses the side of a piece of a plan again when its first row is asked for: the estimates and the actual figures
//! in, a side out.
//!
//! A piece waits for the build sides of the joins above it. When they are complete, the host knows how many keys they
//! have, and how many pages zone maps leave of the piece's scans; predictions err most by the estimates of these two.
//! The piece is priced again with the actual figures, by the model that made the choice.
//!
//! 1. A fragment that the plan gave to a device moves to the host where it turns out to be so small, or so large on the
//!    link, that the host is done clearly sooner.
//! 2. A scan that the plan left to the host becomes a fragment where few of its rows turn out to be wanted.
//!
//! Invariants: a piece moves only where figures were off by [`CONTRADICTION`] at least, and only if the model, with the
//! estimates, puts the piece where the plan has it: the plan weighed the rest of the statement too. The rows do not
//! depend on it: the same operators run on either side. Source: the design's re-splitting between pipelines; POP (Markl
//! et al., SIGMOD 2004) for validity ranges.

use std::ops::Range;

use super::CutContext;
use super::FragmentScan;
use super::build_keys::distinct_keys;
use super::numbered_plan::NumberedPlan;
use crate::cost::makespan::predict;
use crate::cost::{Limits, Placement, PlanShape, Work};
use crate::profile::Profile;

/// Actual and expected figures that differ by less than this factor do not contradict the plan.
const CONTRADICTION: f64 = 3.0;
/// A side must be predicted to take at most this share of the other's time before a piece moves to it.
const MARGIN: f64 = 0.8;
/// Share of the expected rows for which a host scan is priced, to see whether it could ever move.
const FEWEST: f64 = 0.02;

/// Where a piece runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// On the host, over pages.
    Host,
    /// On the device, as a fragment.
    Device,
}

/// A piece that may move.
#[derive(Debug, Clone)]
pub struct Revisit {
    planned: Side,
    /// The piece alone, its root first.
    shape: PlanShape,
    profile: Profile,
    limits: Limits,
    scans: Vec<RevisitedScan>,
}

/// What was expected of one of its scans.
#[derive(Debug, Clone)]
struct RevisitedScan {
    /// In the shape.
    place: usize,
    /// Among the fragment's scans.
    number: usize,
    /// Of each filter from above, the different values that the scan's column has; None: not known.
    distinct_counts: Vec<Option<f64>>,
    /// Share of its rows that the filters were expected to keep.
    expected_share: f64,
}

/// The actual figures of a scan when its first row is asked for.
#[derive(Debug, Clone, PartialEq)]
pub struct ScanFacts {
    /// Share of the pages that the plan knew of which may have rows still.
    pub pages: f64,
    /// Keys of each filter from above, in the order of the fragment's; None: not known.
    pub keys: Vec<Option<usize>>,
}

/// The side on which a piece finally runs.
#[derive(Debug, Clone, PartialEq)]
pub struct Turn {
    /// The side.
    pub side: Side,
    /// The contradiction to the plan, in words; None: it stays where the plan has it.
    pub why: Option<String>,
}

impl Revisit {
    /// For the piece whose root is the operator `root` of `plan`, whose shape is `shape`, with `scans`; None where no
    /// actual figures will be known, or none of them could move it.
    pub(super) fn new(
        (plan, root): (&NumberedPlan, usize),
        (shape, profile, limits): (&PlanShape, &Profile, &Limits),
        planned: Side,
        scans: &[FragmentScan],
        context: &dyn CutContext,
    ) -> Option<Self> {
        let piece = root..root + plan.nodes.get(root)?.size;
        if plan.below_cut(root).len() != piece.len() {
            // Its broadcast rows are made elsewhere.
            return None;
        }
        let places = piece.clone().filter(|place| plan.scan(*place).is_some());
        let scans = places.zip(scans).enumerate().filter_map(|(number, (place, scan))| {
            let values = scan.dynamic_filters.iter();
            let distinct_counts = values.map(|filter| distinct_keys(filter, &scan.scan, context));
            Some(RevisitedScan {
                place: place - root,
                number,
                distinct_counts: distinct_counts.collect(),
                expected_share: scan.filters_keep?,
            })
        });
        let scans: Vec<RevisitedScan> = scans.collect();
        if !scans.iter().any(|scan| scan.distinct_counts.iter().any(Option::is_some)) {
            return None;
        }
        let shape = piece_of(shape, piece);
        let (profile, limits) = (profile.clone(), limits.clone());
        let revisit = Self { planned, shape, profile, limits, scans };
        let fewest = vec![(1.0, FEWEST); revisit.scans.len()];
        let could_turn =
            planned == Side::Device || revisit.side_of(&revisit.scaled(&fewest)) != planned;
        (could_turn && revisit.side_of(&revisit.shape) == planned).then_some(revisit)
    }

    /// The side of the piece, given `facts` of its scans, in the order of the fragment's.
    pub fn turn(&self, facts: &[ScanFacts]) -> Turn {
        let shares = self
            .scans
            .iter()
            .map(|scan| facts.get(scan.number).map_or((1.0, 1.0), |facts| scan.shares(facts)));
        let shares: Vec<(f64, f64)> = shares.collect();
        let contradicts = |share: f64| share * CONTRADICTION <= 1.0 || share >= CONTRADICTION;
        let found = shares.iter().find(|(pages, rows)| contradicts(*pages) || contradicts(*rows));
        let stays = Turn { side: self.planned, why: None };
        let Some((pages, rows)) = found else { return stays };
        let side = self.side_of(&self.scaled(&shares));
        if side == self.planned {
            return stays;
        }
        let why = format!("{pages:.2} of the pages and {rows:.2} of the rows that were expected");
        Turn { side, why: Some(why) }
    }

    /// The side that is done sooner with a piece of `shape`; the planned one where the other is not, clearly.
    fn side_of(&self, shape: &PlanShape) -> Side {
        let finish = |side: Side| {
            let on_device = vec![side == Side::Device; shape.nodes.len()];
            predict(shape, &Placement { on_device }, &self.profile, &self.limits).finish
        };
        let other = match self.planned {
            Side::Host => Side::Device,
            Side::Device => Side::Host,
        };
        if finish(other) < MARGIN * finish(self.planned) { other } else { self.planned }
    }

    /// The shape with so many times the pages, and the rows, of each scan.
    fn scaled(&self, shares: &[(f64, f64)]) -> PlanShape {
        let mut shape = self.shape.clone();
        let mut factors = vec![1.0; shape.nodes.len()];
        for (scan, (pages, rows)) in self.scans.iter().zip(shares) {
            if let Some(node) = shape.nodes.get_mut(scan.place)
                && let Work::Scan(work) = &mut node.work
            {
                work.pages *= pages;
                work.rows *= pages;
                work.chunk_bytes *= pages;
                work.held_bytes *= pages;
                work.rows_kept = (work.rows_kept * rows).min(work.rows);
            }
            if let Some(factor) = factors.get_mut(scan.place) {
                *factor = *rows;
            }
        }
        // Inputs come after what they go into.
        for place in (0..shape.nodes.len()).rev() {
            let inputs = shape.nodes.get(place).map(|node| node.inputs.clone()).unwrap_or_default();
            for input in inputs {
                let below = factors.get(input).copied().unwrap_or(1.0);
                if let Some(factor) = factors.get_mut(place) {
                    *factor *= below;
                }
            }
        }
        for (node, factor) in shape.nodes.iter_mut().zip(factors) {
            node.rows *= factor;
        }
        shape
    }
}

impl RevisitedScan {
    /// Pages and rows, as multiples of what was expected.
    fn shares(&self, facts: &ScanFacts) -> (f64, f64) {
        let kept = self.distinct_counts.iter().zip(&facts.keys).map(|(distinct_count, keys)| {
            match (distinct_count, keys) {
                (Some(distinct_count), Some(keys)) => (*keys as f64 / distinct_count).min(1.0),
                // A filter without known keys leaves nothing out.
                _ => 1.0,
            }
        });
        let kept: f64 = kept.product();
        (facts.pages, kept / self.expected_share.max(f64::MIN_POSITIVE))
    }
}

/// The nodes of `shape` at `places`, as a shape of their own.
fn piece_of(shape: &PlanShape, places: Range<usize>) -> PlanShape {
    let first = places.start;
    let nodes = shape.nodes.get(places).unwrap_or_default().iter().map(|node| {
        let mut node = node.clone();
        node.inputs.iter_mut().for_each(|input| *input = input.saturating_sub(first));
        node
    });
    PlanShape { nodes: nodes.collect() }
}

#[cfg(test)]
mod tests;
