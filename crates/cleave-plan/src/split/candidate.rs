//! The candidate splits of a plan: a numbered plan in, candidates out.
//!
//! | split | below its cuts |
//! |---|---|
//! | `host` | nothing: the device serves pages |
//! | `h0` | every leaf: a scan, and the chain above it |
//! | `h1` … `hn` | the first so many joins, with the chain above them; the host reads its own leaves as pages |
//! | `h1+` … `hn+` | the same, and each of the host's own leaves (rule 8) |
//! | `g0` … `gn` | as `h0` and `hn+`, and what is above as far as rows are complete on each of several devices |
//! | `ndp` | everything |
//!
//! A recursion counts as a join does: `WITH RECURSIVE` over one table has an `h1`, which runs all of its rounds.
//!
//! Joins count in the order of [`NumberedPlan::joins`], without those that no device can run: of a bushy plan the first
//! so many may be several subtrees, which have several cuts. A build side that is broadcast has cuts of its own for the
//! joins and leaves in it. Source: hybridNDP, sections 3.3 and 3.4.

use std::collections::BTreeSet;

use super::numbered_plan::{NumberedPlan, Obstacle, is_exchange, is_stateless, makes_whole_groups};
use super::{CutContext, Leaves, Split};
use crate::cost::Placement;

/// One way to divide the plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Candidate {
    /// What it is called.
    pub(super) split: Split,
    /// The topmost operators below its cuts, by number.
    pub(super) roots: BTreeSet<usize>,
}

impl Candidate {
    /// Which operators of `plan` run on the device.
    pub(super) fn placement(&self, plan: &NumberedPlan) -> Placement {
        let mut on_device = vec![false; plan.nodes.len()];
        for root in &self.roots {
            plan.below_cut(*root).into_iter().for_each(|number| on_device[number] = true);
        }
        Placement { on_device }
    }

    /// Whether the operator `number` runs on the device.
    pub(super) fn has(&self, number: usize, plan: &NumberedPlan) -> bool {
        plan.root_above(&self.roots, number).is_some()
    }
}

/// The joins of `plan` that a device can run, in their order.
pub(super) fn joins_below(plan: &NumberedPlan) -> Vec<usize> {
    let mut joins = plan.joins();
    joins.retain(|join| plan.nodes[*join].obstacle.is_none());
    joins
}

/// The tops of the leaves of `plan` that a device can run.
pub(super) fn leaves_below(plan: &NumberedPlan) -> Vec<usize> {
    let scans = plan.scans().filter(|scan| plan.nodes[*scan].obstacle.is_none());
    scans.map(|scan| plan.top_of(scan)).collect()
}

/// All candidates of `plan`, `host` first, and why there are not more.
pub(super) fn candidates(plan: &NumberedPlan, context: &dyn CutContext) -> Vec<Candidate> {
    let mut found = vec![Candidate { split: Split::Host, roots: BTreeSet::new() }];
    if context.pages_only().is_some() {
        return found;
    }
    let (leaves, joins) = (leaves_below(plan), joins_below(plan));
    if !leaves.is_empty() {
        found.push(Candidate { split: Split::H0, roots: leaves.iter().copied().collect() });
    }
    for count in 1..=joins.len() {
        let roots = roots_of(plan, &joins[..count], NumberedPlan::top_of);
        let split = Split::Hybrid { joins: count, leaves: Leaves::None };
        found.push(Candidate { split, roots: roots.clone() });
        let own = own_leaves(plan, &leaves, &roots);
        if !own.is_empty() {
            let split = Split::Hybrid { joins: count, leaves: Leaves::All };
            found.push(Candidate { split, roots: roots.union(&own).copied().collect() });
        }
    }
    // Where nothing is complete, all of these are among those above.
    let complete_count = if plan.may_be_complete() { joins.len() + 1 } else { 0 };
    for count in 0..complete_count {
        let roots = complete_roots(plan, &leaves, &joins[..count]);
        if !found.iter().any(|other| other.roots == roots) {
            found.push(Candidate { split: Split::Complete { joins: count }, roots });
        }
    }
    if whole(plan).is_ok() {
        let split = Split::Ndp;
        let ndp = Candidate { split, roots: BTreeSet::from([0]) };
        // Where the last cut is at the root already, `ndp` is the same.
        if !found.iter().any(|other| other.roots == ndp.roots) {
            found.push(ndp);
        }
    }
    found
}

/// The candidate that is `split`.
///
/// # Errors
/// The obstacle.
pub(super) fn candidate(plan: &NumberedPlan, split: Split) -> Result<Candidate, Obstacle> {
    let roots = match split {
        Split::Host | Split::Auto => BTreeSet::new(),
        Split::H0 => {
            for scan in plan.scans() {
                scannable(plan, scan)?;
            }
            leaves_below(plan).into_iter().collect()
        }
        Split::Ndp => {
            whole(plan)?;
            BTreeSet::from([0])
        }
        Split::ALL_JOINS => {
            for scan in plan.scans() {
                scannable(plan, scan)?;
            }
            let joins = joins_below(plan);
            if joins.is_empty() {
                return Err(too_few_joins(plan, 0));
            }
            complete_roots(plan, &leaves_below(plan), &joins)
        }
        Split::Complete { joins: count } => {
            let (joins, leaves) = (joins_below(plan), leaves_below(plan));
            let Some(first) = joins.get(..count) else {
                return Err(too_few_joins(plan, joins.len()));
            };
            let mut plain = roots_of(plan, first, NumberedPlan::top_of);
            plain.extend(own_leaves(plan, &leaves, &plain));
            let roots = complete_roots(plan, &leaves, first);
            if roots == plain {
                return Err(nothing_complete(plan));
            }
            roots
        }
        Split::Hybrid { joins: count, leaves } => {
            let joins = joins_below(plan);
            let Some(first) = joins.get(..count) else {
                return Err(too_few_joins(plan, joins.len()));
            };
            let mut roots = roots_of(plan, first, NumberedPlan::top_of);
            if leaves != Leaves::None {
                roots.extend(own_leaves(plan, &leaves_below(plan), &roots));
            }
            roots
        }
    };
    Ok(Candidate { split, roots })
}

fn scannable(plan: &NumberedPlan, scan: usize) -> Result<(), Obstacle> {
    let mut shares = plan.nodes[scan].shares.iter();
    match shares.find_map(|share| share.refusal.clone()) {
        Some(reason) => Err(Obstacle { operator: "TableScanExec".to_owned(), reason }),
        None => Ok(()),
    }
}

/// Whether the whole plan can run on one device, or on several that need nothing of each other: rows are treated one by
/// one, or are complete on each.
fn whole(plan: &NumberedPlan) -> Result<(), Obstacle> {
    if let Some(obstacle) = &plan.nodes[0].obstacle {
        return Err(obstacle.clone());
    }
    let Some(first) = plan.scans().next() else {
        let operator = plan.nodes[0].plan.name().to_owned();
        return Err(Obstacle { operator, reason: "it reads no table".to_owned() });
    };
    for scan in plan.scans() {
        scannable(plan, scan)?;
    }
    let parents = plan.nodes.iter().filter(|node| node.broadcast.is_some());
    if let Some((parent, reason)) =
        parents.filter_map(|node| node.parent.zip(node.broadcast.clone())).next()
    {
        let operator = plan.nodes[parent].plan.name().to_owned();
        return Err(Obstacle { operator, reason });
    }
    let devices = plan.devices_below(0);
    let names: Vec<&str> = devices.iter().map(|share| share.device.as_str()).collect();
    let with_state = (0..plan.nodes.len()).find(|number| {
        let node = plan.nodes[*number].plan.as_ref();
        // At the root the host counts the rows of all devices.
        let counts_below_root = *number > 0 && node.fetch().is_some();
        let passes = is_exchange(node) && !counts_below_root;
        !is_stateless(node) && !passes && !plan.groups_at_home(*number)
    });
    match with_state {
        Some(number) if names.len() > 1 => {
            let reason = format!(
                "it needs all rows of \"{}\", which lie on {} devices ({})",
                plan.tables(first).join(", "),
                names.len(),
                names.join(", ")
            );
            Err(Obstacle { operator: plan.nodes[number].plan.name().to_owned(), reason })
        }
        _ => Ok(()),
    }
}

fn too_few_joins(plan: &NumberedPlan, count: usize) -> Obstacle {
    let all = plan.joins();
    let obstacle = all.iter().find_map(|join| plan.nodes[*join].obstacle.clone());
    let can = format!("a device can run {count} of its {} joins", all.len());
    match obstacle {
        Some(Obstacle { operator, reason }) => {
            Obstacle { operator, reason: format!("{reason}; {can}") }
        }
        None => Obstacle { operator: "the plan".to_owned(), reason: can },
    }
}

/// Why no split has rows that are complete on each device.
fn nothing_complete(plan: &NumberedPlan) -> Obstacle {
    let is_grouping = |number: &usize| {
        makes_whole_groups(plan.nodes[*number].plan.as_ref()) && !plan.groups_at_home(*number)
    };
    let grouping = (0..plan.nodes.len()).rev().find(is_grouping);
    let operator = grouping.map_or("the plan", |number| plan.nodes[number].plan.name());
    let reason = "no groups are complete on each of several devices: rows are not divided among these by columns \
                  by which they are grouped";
    Obstacle { operator: operator.to_owned(), reason: reason.to_owned() }
}

/// The cuts over `joins` and over those of `leaves` that do not lie below them, as far up as rows are complete on each
/// device.
fn complete_roots(plan: &NumberedPlan, leaves: &[usize], joins: &[usize]) -> BTreeSet<usize> {
    let mut roots = roots_of(plan, joins, NumberedPlan::complete_top);
    let own = own_leaves(plan, leaves, &roots);
    roots.extend(own.into_iter().map(|leaf| plan.complete_top(plan.base_of(leaf))));
    roots
}

/// The topmost operators over `joins`, each with the chain above it up to its `top`.
fn roots_of(
    plan: &NumberedPlan,
    joins: &[usize],
    top: fn(&NumberedPlan, usize) -> usize,
) -> BTreeSet<usize> {
    let tops: Vec<usize> = joins.iter().map(|join| top(plan, *join)).collect();
    let is_within = |top: usize| {
        let others: BTreeSet<usize> = tops.iter().copied().filter(|other| *other != top).collect();
        plan.root_above(&others, top).is_some()
    };
    tops.iter().copied().filter(|top| !is_within(*top)).collect()
}

/// Of `leaves`, those that do not lie below one of `roots`.
fn own_leaves(plan: &NumberedPlan, leaves: &[usize], roots: &BTreeSet<usize>) -> BTreeSet<usize> {
    leaves.iter().copied().filter(|leaf| plan.root_above(roots, *leaf).is_none()).collect()
}
