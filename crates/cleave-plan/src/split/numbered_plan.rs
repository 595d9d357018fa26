//! A physical plan with its operators numbered in preorder: which of them a device can run, and how far a cut may climb.
//!
//! ```text
//!   0 AggregateExec(Final)
//!     1 CoalescePartitionsExec            exchanges never go down; below a cut they are left out (rule 3)
//!       2 AggregateExec(Partial)          ┐
//!         3 ProjectionExec                │ the chain above the join 4, which goes where it goes
//!           4 HashJoinExec                ┘
//!             5 TableScanExec a           what the join collects
//!             6 FilterExec                ┐ the chain above the scan 7
//!               7 TableScanExec b         ┘ what streams
//! ```
//!
//! The operators of a subtree are consecutive numbers, so that a set of cuts is a set of numbers.

use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use cleave_fragment::codec::check_device_operator;
use cleave_fragment::{DenseAggregateExec, TableScanExec};
use datafusion_physical_plan::ExecutionPlan;
use datafusion_physical_plan::aggregates::{AggregateExec, AggregateMode};
use datafusion_physical_plan::joins::{CrossJoinExec, HashJoinExec, NestedLoopJoinExec};
use datafusion_physical_plan::limit::{GlobalLimitExec, LocalLimitExec};
use datafusion_physical_plan::sorts::sort::SortExec;

use super::build_keys::BuildKeys;
use super::{CutContext, ScanShare};

/// The plan.
pub(super) struct NumberedPlan {
    pub(super) nodes: Vec<NumberedNode>,
    /// See [`NumberedPlan::keys`].
    keys: OnceCell<Vec<BuildKeys>>,
}

/// One operator.
pub(super) struct NumberedNode {
    pub(super) plan: Arc<dyn ExecutionPlan>,
    pub(super) parent: Option<usize>,
    pub(super) inputs: Vec<usize>,
    /// Operators of the subtree, itself included.
    pub(super) size: usize,
    /// Of a scan, the devices that hold its pages.
    pub(super) shares: Vec<ScanShare>,
    /// Why the subtree cannot run on a device.
    pub(super) obstacle: Option<Obstacle>,
}

/// Why a subtree cannot run on a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Obstacle {
    /// The operator that cannot.
    pub(super) operator: String,
    /// Why.
    pub(super) reason: String,
}

impl NumberedPlan {
    pub(super) fn new(plan: &Arc<dyn ExecutionPlan>, context: &dyn CutContext) -> Self {
        let mut numbered = Self { nodes: Vec::new(), keys: OnceCell::new() };
        numbered.add(plan, None, context);
        numbered
    }

    fn add(
        &mut self,
        plan: &Arc<dyn ExecutionPlan>,
        parent: Option<usize>,
        context: &dyn CutContext,
    ) -> usize {
        let number = self.nodes.len();
        let scan = plan.downcast_ref::<TableScanExec>();
        self.nodes.push(NumberedNode {
            plan: Arc::clone(plan),
            parent,
            inputs: Vec::new(),
            size: 1,
            shares: scan.map(|scan| context.shares(scan)).unwrap_or_default(),
            obstacle: None,
        });
        let inputs: Vec<usize> = plan
            .children()
            .into_iter()
            .map(|input| self.add(input, Some(number), context))
            .collect();
        let size = self.nodes.len() - number;
        let below = inputs.iter().find_map(|input| self.nodes[*input].obstacle.clone());
        let obstacle = below.or_else(|| self.own_obstacle(number, &inputs, size));
        let node = &mut self.nodes[number];
        (node.inputs, node.size, node.obstacle) = (inputs, size, obstacle);
        number
    }

    /// Why a device cannot run this operator over inputs that it can.
    fn own_obstacle(&self, number: usize, inputs: &[usize], size: usize) -> Option<Obstacle> {
        let node = &self.nodes[number];
        let obstacle =
            |reason: String| Some(Obstacle { operator: node.plan.name().to_owned(), reason });
        if is_exchange(node.plan.as_ref()) {
            return None;
        }
        if let Some(reason) = check_device_operator(node.plan.as_ref()) {
            return obstacle(reason);
        }
        if inputs.is_empty() {
            let mut shares = node.shares.iter();
            // A part of a table that no device scans is the host's; the others may be cut all the same.
            return match node.shares.iter().find_map(|share| share.refusal.clone()) {
                Some(reason) if shares.all(|share| share.refusal.is_some()) => obstacle(reason),
                _ => None,
            };
        }
        if inputs.len() < 2 {
            return None;
        }
        let shares = self.nodes[number..number + size].iter().flat_map(|node| &node.shares);
        let refused = shares.clone().find_map(|share| share.refusal.clone());
        if let Some(reason) = refused {
            return obstacle(reason);
        }
        // What it joins would have to be co-located, copied or sent (rule 10).
        let devices: BTreeSet<&str> = shares.map(|share| share.device.as_str()).collect();
        if devices.len() > 1 {
            let names: Vec<&str> = devices.into_iter().collect();
            return obstacle(format!("its inputs lie on several devices ({})", names.join(", ")));
        }
        None
    }

    /// What its joins hand down. It takes the statistics of every build side, and is not asked where nothing is cut.
    pub(super) fn keys(&self) -> &[BuildKeys] {
        let all = || self.nodes.iter().filter_map(|node| BuildKeys::of(&node.plan)).collect();
        self.keys.get_or_init(all)
    }

    /// The operators of the subtree of `number`.
    pub(super) fn subtree(&self, number: usize) -> Range<usize> {
        number..number + self.nodes[number].size
    }

    /// The scans, in the order in which they are begun.
    pub(super) fn scans(&self) -> impl Iterator<Item = usize> {
        let is_scan = |number: &usize| self.scan(*number).is_some();
        (0..self.nodes.len()).filter(is_scan)
    }

    pub(super) fn scan(&self, number: usize) -> Option<&TableScanExec> {
        self.nodes[number].plan.downcast_ref()
    }

    /// The joins in the order in which they enter a split: what a join needs comes before it, and where both of its
    /// inputs are joins, the larger one first, which is the one that grew table by table.
    pub(super) fn joins(&self) -> Vec<usize> {
        let mut joins = Vec::new();
        self.add_joins(0, &mut joins);
        joins
    }

    fn add_joins(&self, number: usize, joins: &mut Vec<usize>) {
        let node = &self.nodes[number];
        let mut inputs = node.inputs.clone();
        inputs.sort_by_key(|input| std::cmp::Reverse(self.nodes[*input].size));
        for input in inputs {
            self.add_joins(input, joins);
        }
        if is_join(node.plan.as_ref()) {
            joins.push(number);
        }
    }

    /// The topmost operator of the chain above `base`, a scan or join, that goes where `base` goes.
    pub(super) fn top_of(&self, base: usize) -> usize {
        let mut top = base;
        let mut is_plain = is_stateless(self.nodes[base].plan.as_ref());
        while let Some(parent) = self.nodes[top].parent {
            let node = &self.nodes[parent];
            let may_follow = node.inputs.len() == 1
                && !is_exchange(node.plan.as_ref())
                && node.obstacle.is_none()
                && may_follow(node.plan.as_ref(), is_plain);
            if !may_follow {
                break;
            }
            is_plain = is_plain && is_stateless(node.plan.as_ref());
            top = parent;
        }
        top
    }

    /// Names of the operators of the subtree of `number`, what is done first first.
    pub(super) fn operators(&self, number: usize) -> Vec<String> {
        let nodes = self.nodes[self.subtree(number)].iter().rev();
        let names = nodes.filter(|node| !is_exchange(node.plan.as_ref()));
        names.map(|node| node.plan.name().to_owned()).collect()
    }

    /// Names of the tables that the subtree of `number` reads.
    pub(super) fn tables(&self, number: usize) -> Vec<&str> {
        let scans = self.subtree(number).filter_map(|node| self.scan(node));
        scans.map(|scan| scan.scan().table.as_str()).collect()
    }
}

/// Whether `node` may lie below a cut with what is under it: what reduces rows must see rows of tables, and not what
/// another such operator made of them.
fn may_follow(node: &dyn ExecutionPlan, input_is_plain: bool) -> bool {
    if node.is::<DenseAggregateExec>() {
        return true;
    }
    if let Some(aggregate) = node.downcast_ref::<AggregateExec>() {
        return *aggregate.mode() == AggregateMode::Partial && input_is_plain;
    }
    if let Some(sort) = node.downcast_ref::<SortExec>() {
        return sort.fetch().is_some() && input_is_plain;
    }
    let is_limit = node.is::<LocalLimitExec>() || node.is::<GlobalLimitExec>();
    input_is_plain && (is_limit || is_stateless(node))
}

/// Whether `node` only moves rows between partitions.
pub(super) fn is_exchange(node: &dyn ExecutionPlan) -> bool {
    matches!(
        node.name(),
        "CoalescePartitionsExec"
            | "RepartitionExec"
            | "SortPreservingMergeExec"
            | "CooperativeExec"
    )
}

pub(super) fn is_join(node: &dyn ExecutionPlan) -> bool {
    node.is::<HashJoinExec>() || node.is::<NestedLoopJoinExec>() || node.is::<CrossJoinExec>()
}

/// Whether `node` treats each row of what streams alone, so that any number of copies give the same rows.
pub(super) fn is_stateless(node: &dyn ExecutionPlan) -> bool {
    node.fetch().is_none()
        && (is_join(node)
            || matches!(
                node.name(),
                "TableScanExec"
                    | "FilterExec"
                    | "ProjectionExec"
                    | "CoalesceBatchesExec"
                    | "CooperativeExec"
            ))
}
