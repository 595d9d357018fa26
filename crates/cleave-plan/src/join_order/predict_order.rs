//! Predicts when a join order is done with the best split for it: a tree and its leaves in, seconds out.
//!
//! The tree becomes a shape of scans and hash joins, without the operators above it, which are the same for every
//! order; its splits are placements over that shape, priced by the cost model that prices the cuts of a physical plan.
//! That takes microseconds where a physical plan takes milliseconds, so many orders can be priced, and only the best
//! are planned.
//!
//! Keys that a join hands down to a scan below its probe side are counted at that scan: by the distinct keys of the
//! build side.

use cleave_fragment::expressions::key_filter::expected_false_share;
use cleave_fragment::expressions::key_set::KEY_LIST_COUNT_MAX;

use super::by_site::{LeafCost, RowBytes};
use super::enumerate::JoinTree;
use super::graph::{JoinGraph, LeafSet, Member};
use crate::cost::makespan::predict;
use crate::cost::{Limits, Placement, PlanShape, ShapeNode, Work};
use crate::profile::Profile;

/// What all orders of one tree have in common.
pub(super) struct Orders<'a> {
    pub(super) graph: &'a JoinGraph,
    /// By leaf; `None`: it is no table, and the host's.
    pub(super) leaves: &'a [Option<LeafCost>],
    pub(super) row_bytes: &'a RowBytes,
    pub(super) profile: &'a Profile,
    pub(super) limits: &'a Limits,
}

/// A tree as a shape: an operator's subtree are those that follow it, up to its end.
#[derive(Default)]
struct Shaped {
    shape: PlanShape,
    ends: Vec<usize>,
    /// The joins that a device can run, in the order in which they enter a split.
    joins: Vec<usize>,
    /// The scans that a device can run.
    scans: Vec<usize>,
    /// By leaf.
    places: Vec<(usize, usize)>,
}

/// A part of the tree that has become a shape.
struct Part {
    place: usize,
    leaves: LeafSet,
    /// The only device that has all of it.
    device: Option<usize>,
    joins: Vec<usize>,
}

impl Orders<'_> {
    /// Seconds until the last row of `order` is there, with the best of its splits.
    pub(super) fn finish_s(&self, order: &JoinTree) -> f64 {
        let mut shaped = Shaped::default();
        let Part { joins, .. } = self.add(order, &mut shaped);
        shaped.joins = joins;
        let price = |on_device: Vec<bool>| {
            let placement = Placement { on_device };
            predict(&shaped.shape, &placement, self.profile, self.limits)
        };
        let host_s = price(vec![false; shaped.ends.len()]).finish;
        let splits = (0..=shaped.joins.len()).flat_map(|joins| {
            let with_own_scans = if joins == 0 { &[true][..] } else { &[false, true] };
            with_own_scans.iter().map(move |own_scans| (joins, *own_scans))
        });
        let cut = splits.map(|(joins, own_scans)| price(shaped.placed(joins, own_scans)));
        let cut_s = cut.filter(|it| it.fits).map(|it| it.finish).fold(f64::INFINITY, f64::min);
        if cut_s < self.limits.cut_share_max * host_s { cut_s } else { host_s }
    }

    fn add(&self, order: &JoinTree, shaped: &mut Shaped) -> Part {
        let place = shaped.ends.len();
        let leaves = order.leaves().into_iter().fold(0, |set: LeafSet, leaf| set | (1 << leaf));
        let rows = self.graph.row_count(leaves);
        let node = ShapeNode {
            work: Work::HashJoin,
            inputs: Vec::new(),
            rows,
            row_bytes: self.row_bytes.of(leaves),
            may_share: true,
            is_broadcast: false,
        };
        shaped.ends.push(place + 1);
        let (build, probe) = match order {
            JoinTree::Leaf(leaf) => {
                let cost = self.leaves.get(*leaf).and_then(Option::as_ref);
                let node = match cost {
                    Some(cost) => ShapeNode { rows, ..cost.scan.clone() },
                    None => ShapeNode { work: Work::Pass, ..node },
                };
                shaped.shape.nodes.push(node);
                shaped.places.push((*leaf, place));
                if cost.is_some_and(|cost| cost.device_s.is_some()) {
                    shaped.scans.push(place);
                }
                let device = cost.and_then(|cost| cost.device_s.and(cost.device));
                return Part { place, leaves, device, joins: Vec::new() };
            }
            JoinTree::Join(build, probe) => (build, probe),
        };
        shaped.shape.nodes.push(node);
        let (build, probe) = (self.add(build, shaped), self.add(probe, shaped));
        self.hand_down(build.leaves, probe.leaves, shaped);
        shaped.ends[place] = shaped.ends.len();
        if let Some(node) = shaped.shape.nodes.get_mut(place) {
            node.inputs = vec![build.place, probe.place];
        }
        let device = build.device.filter(|device| probe.device == Some(*device));
        // What a join needs comes before it, and of two joins the larger one first.
        let size = |part: &Part| part.leaves.count_ones();
        let mut joins = if size(&build) >= size(&probe) {
            [build.joins, probe.joins].concat()
        } else {
            [probe.joins, build.joins].concat()
        };
        joins.extend(device.map(|_| place));
        Part { place, leaves, device, joins }
    }

    /// Reduces the scans of `probe` to the rows that have a key of `build`, as at run time.
    fn hand_down(&self, build: LeafSet, probe: LeafSet, shaped: &mut Shaped) {
        let build_rows = self.graph.row_count(build);
        for class in &self.graph.classes {
            let within = |set: LeafSet| {
                class.members.iter().filter(move |member| set & (1 << member.leaf) != 0)
            };
            let keys = within(build).map(|member| member.distinct_count).min_by(f64::total_cmp);
            // They go to one scan: to the largest.
            let rows = |member: &&Member| self.graph.row_count(1 << member.leaf);
            let scan = within(probe).max_by(|a, b| rows(a).total_cmp(&rows(b)));
            let (Some(keys), Some(member)) = (keys, scan) else { continue };
            let place = shaped.places.iter().find(|(leaf, _)| *leaf == member.leaf);
            let Some(node) = place.and_then(|(_, place)| shaped.shape.nodes.get_mut(*place)) else {
                continue;
            };
            let Work::Scan(scan) = &mut node.work else { continue };
            let keys = keys.min(build_rows).max(1.0);
            let share = (keys / member.distinct_count.max(1.0)).min(1.0);
            let is_list = keys <= KEY_LIST_COUNT_MAX as f64;
            let false_share = if is_list { 0.0 } else { expected_false_share(keys) };
            node.rows *= share + (1.0 - share) * false_share;
            scan.rows_kept = node.rows;
            scan.conditions.key_sets += 1.0;
        }
    }
}

impl Shaped {
    /// Which operators run on the device: the first `joins` with what lies below them, and with `own_scans` all other
    /// scans.
    fn placed(&self, joins: usize, own_scans: bool) -> Vec<bool> {
        let mut on_device = vec![false; self.ends.len()];
        let tops = self
            .joins
            .iter()
            .take(joins)
            .chain(own_scans.then_some(&self.scans).into_iter().flatten());
        for top in tops {
            let end = self.ends.get(*top).copied().unwrap_or_default();
            on_device.iter_mut().take(end).skip(*top).for_each(|is_there| *is_there = true);
        }
        on_device
    }
}
