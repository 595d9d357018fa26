//! A physical plan with its operators numbered in preorder: which of them a device can run, and how far a cut may
//! climb.
//!
//! ```text
//!   0 AggregateExec(Final)
//!     1 CoalescePartitionsExec            exchanges never go down; below a cut they are left out (rule 3)
//!       2 AggregateExec(Partial)          ┐
//!         3 ProjectionExec                │ the chain above the join 4, which goes where it goes
//!           4 HashJoinExec                ┘
//!             5 TableScanExec a           the join's build side
//!             6 FilterExec                ┐ the chain above the scan 7
//!               7 TableScanExec b         ┘ the streaming side
//! ```
//!
//! The operators of a subtree are consecutive numbers, so that a set of cuts is a set of numbers. Below a cut at one of
//! them lies its subtree, without what is *broadcast*: a join's build side that does not lie on the one device of the
//! rows that stream through the join, or that no device can make. The host makes such rows, with cuts of their own, and
//! sends them to every device on which the join runs. What is broadcast follows from the plan, and is the same for all
//! its splits.
//!
//! A *recursion* is a unit like a join: its terms run where it runs, so the tables of its recursive term lie on one
//! device. Its static term may be broadcast. What refers to the working table has other rows in each round; it goes
//! below a cut with its recursion only, and is never broadcast.
//!
//! A join whose rows meet on their devices ([`row_homes`](super::row_homes)) collects, on each of several devices, that
//! device's own rows.
//!
//! Any other join may run on several devices where what streams is treated row by row, or is complete on each, and the
//! join hands on rows of its build side only with rows that stream: each device joins all of what was sent with its own
//! part.

use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::sync::Arc;

use cleave_fragment::broadcast::unsendable;
use cleave_fragment::codec::check_device_operator;
use cleave_fragment::{DenseAggregateExec, RecursionExec, TableScanExec, referred_to};
use datafusion_physical_plan::aggregates::{AggregateExec, AggregateMode};
use datafusion_physical_plan::joins::{CrossJoinExec, HashJoinExec, NestedLoopJoinExec};
use datafusion_physical_plan::limit::{GlobalLimitExec, LocalLimitExec};
use datafusion_physical_plan::sorts::sort::SortExec;
use datafusion_physical_plan::{Distribution, ExecutionPlan, ExecutionPlanProperties};

use super::build_keys::BuildKeys;
use super::may_share::{divides_rows, joins_divided_rows};
use super::row_homes::{RowHomes, meet};
use super::{CutContext, ScanShare};

/// The plan.
pub(super) struct NumberedPlan {
    pub(super) nodes: Vec<NumberedNode>,
    /// Whether it matters on which device a row is made.
    follows_homes: bool,
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
    /// Of a build side below a cut: why the host makes its rows and sends them to where the join runs. None: it is made
    /// where the join runs.
    pub(super) broadcast: Option<String>,
    /// Recursions that the subtree refers to and does not have: it runs in their rounds only.
    pub(super) refers_to: Vec<String>,
    /// Which device makes a row, where each has its own rows of the operator and all of them together are its rows.
    homes: Option<RowHomes>,
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
        let follows_homes = asks_for_homes(plan.as_ref());
        let mut numbered = Self { nodes: Vec::new(), follows_homes, keys: OnceCell::new() };
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
            broadcast: None,
            refers_to: Vec::new(),
            homes: None,
        });
        let inputs: Vec<usize> = plan
            .children()
            .into_iter()
            .map(|input| self.add(input, Some(number), context))
            .collect();
        let size = self.nodes.len() - number;
        let below = inputs.iter().map(|input| self.nodes[*input].refers_to.clone()).collect();
        let refers_to = referred_to(plan.as_ref(), below);
        let obstacle = match inputs.as_slice() {
            [first, again] if plan.is::<RecursionExec>() => {
                let sent = self.nodes[*again]
                    .obstacle
                    .clone()
                    .map_or_else(|| self.recursive_rows(number, *first, *again, context), Err);
                sent.map(|why| self.nodes[*first].broadcast = why).err()
            }
            [collected, streamed] if is_join(plan.as_ref()) => {
                let sent = self.nodes[*streamed]
                    .obstacle
                    .clone()
                    .map_or_else(|| self.joined_rows(number, *collected, *streamed, context), Err);
                sent.map(|why| self.nodes[*collected].broadcast = why).err()
            }
            _ => {
                let below = inputs.iter().find_map(|input| self.nodes[*input].obstacle.clone());
                below.or_else(|| self.own_obstacle(number, &inputs))
            }
        };
        let homes = self.follows_homes.then(|| self.homes_of(plan, &inputs, context)).flatten();
        let node = &mut self.nodes[number];
        (node.inputs, node.size, node.obstacle) = (inputs, size, obstacle);
        (node.refers_to, node.homes) = (refers_to, homes);
        number
    }

    /// Which device makes a row of `plan`, over these inputs.
    fn homes_of(
        &self,
        plan: &Arc<dyn ExecutionPlan>,
        inputs: &[usize],
        context: &dyn CutContext,
    ) -> Option<RowHomes> {
        let of_inputs: Vec<_> =
            inputs.iter().map(|input| self.nodes[*input].homes.as_ref()).collect();
        RowHomes::of(plan, &of_inputs, self.meets(plan.as_ref(), inputs), context)
    }

    /// Why a device cannot run this operator, which is no join, over inputs that it can.
    fn own_obstacle(&self, number: usize, inputs: &[usize]) -> Option<Obstacle> {
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
        None
    }

    /// Why the build side of the join `number`, whose streaming side a device can make, must be sent to where it runs;
    /// None where it need not be. An error says why no device can run the join.
    fn joined_rows(
        &self,
        number: usize,
        collected: usize,
        streamed: usize,
        context: &dyn CutContext,
    ) -> Result<Option<String>, Obstacle> {
        let join = self.nodes[number].plan.as_ref();
        let obstacle = |reason: String| Obstacle { operator: join.name().to_owned(), reason };
        if let Some(reason) = check_device_operator(join) {
            return Err(obstacle(reason));
        }
        let below = self.shares_below(streamed);
        if let Some(reason) = below.iter().find_map(|share| share.refusal.clone()) {
            return Err(obstacle(reason));
        }
        let devices: BTreeSet<&str> = below.iter().map(|share| share.device.as_str()).collect();
        let beside = self.shares_below(collected);
        let refused = beside.iter().find_map(|share| share.refusal.clone());
        let all = beside.iter().map(|share| share.device.as_str()).chain(devices.iter().copied());
        let all: BTreeSet<&str> = all.collect();
        let why = match &self.nodes[collected].obstacle {
            Some(Obstacle { operator, reason }) => format!("{operator}: {reason}"),
            None => match refused {
                Some(reason) => reason,
                None if all.len() <= 1 || self.meets(join, &[collected, streamed]) => {
                    return Ok(None);
                }
                None => {
                    let names: Vec<&str> = all.into_iter().collect();
                    format!("its inputs lie on several devices ({})", names.join(", "))
                }
            },
        };
        if let Some(reason) = self.unsent(collected, context) {
            return Err(obstacle(format!("{why}, and {reason}")));
        }
        let is_divided = match self.nodes[streamed].homes {
            Some(_) => divides_rows(join),
            None => joins_divided_rows(join),
        };
        if devices.len() > 1 && !is_divided {
            let names: Vec<&str> = devices.into_iter().collect();
            let tables = self.tables(streamed).join(", ");
            return Err(obstacle(format!(
                "it needs all rows of \"{tables}\", which lie on {} devices ({})",
                names.len(),
                names.join(", ")
            )));
        }
        Ok(Some(why))
    }

    /// Whether `plan`, over these `inputs`, is a join whose rows lie on the same device.
    fn meets(&self, plan: &dyn ExecutionPlan, inputs: &[usize]) -> bool {
        let [collected, streamed] = inputs else { return false };
        meet(plan, self.nodes[*collected].homes.as_ref(), self.nodes[*streamed].homes.as_ref())
    }

    /// Why the static term `first` of the recursion `number`, whose recursive term `again` a device can make, must be
    /// sent to where it runs; None where it need not be. An error says why no device can run the recursion.
    fn recursive_rows(
        &self,
        number: usize,
        first: usize,
        again: usize,
        context: &dyn CutContext,
    ) -> Result<Option<String>, Obstacle> {
        let node = self.nodes[number].plan.as_ref();
        let obstacle = |reason: String| Obstacle { operator: node.name().to_owned(), reason };
        if let Some(reason) = check_device_operator(node) {
            return Err(obstacle(reason));
        }
        let names = |shares: &[&ScanShare]| -> BTreeSet<String> {
            shares.iter().map(|share| share.device.clone()).collect()
        };
        let listed = |names: BTreeSet<String>| names.into_iter().collect::<Vec<_>>().join(", ");
        let refused = |shares: &[&ScanShare]| shares.iter().find_map(|share| share.refusal.clone());
        let (below, beside) = (self.shares_below(again), self.shares_below(first));
        if let Some(reason) = refused(&below) {
            return Err(obstacle(reason));
        }
        let devices = names(&below);
        if devices.len() > 1 {
            let reason = "the tables of its recursive term lie on several devices";
            return Err(obstacle(format!("{reason} ({})", listed(devices))));
        }
        let why = match &self.nodes[first].obstacle {
            Some(Obstacle { operator, reason }) => format!("{operator}: {reason}"),
            None => match refused(&beside) {
                Some(reason) => reason,
                None => {
                    let all: BTreeSet<String> = &devices | &names(&beside);
                    match all.len() {
                        0 => return Err(obstacle("it reads no table".to_owned())),
                        1 => return Ok(None),
                        _ => format!("its terms lie on several devices ({})", listed(all)),
                    }
                }
            },
        };
        if devices.is_empty() {
            return Err(obstacle(why));
        }
        match self.unsent(first, context) {
            Some(reason) => Err(obstacle(format!("{why}, and {reason}"))),
            None => Ok(Some(why)),
        }
    }

    /// Why the rows of `number` are not sent to a device; None if they may be.
    fn unsent(&self, number: usize, context: &dyn CutContext) -> Option<String> {
        let node = &self.nodes[number];
        if let Some(name) = node.refers_to.first() {
            return Some(format!("recursion \"{name}\" gives it other rows in each round"));
        }
        if context.limits().broadcast_bytes == 0 {
            return Some("broadcast_bytes = 0 lets no rows be sent".to_owned());
        }
        unsendable(&node.plan.schema())
    }

    /// Where the pages lie that a fragment with the root `number` reads.
    fn shares_below(&self, number: usize) -> Vec<&ScanShare> {
        self.below_cut(number).into_iter().flat_map(|place| &self.nodes[place].shares).collect()
    }

    /// The devices over which what a fragment with the root `number` reads lies: those of what streams come first.
    pub(super) fn devices_below(&self, number: usize) -> Vec<ScanShare> {
        let mut found: Vec<ScanShare> = Vec::new();
        for place in self.below_cut(number).into_iter().rev() {
            for share in &self.nodes[place].shares {
                let known = found.iter_mut().find(|known| known.device == share.device);
                match known {
                    Some(known) => {
                        let refusal = known.refusal.take();
                        known.refusal = refusal.or_else(|| share.refusal.clone());
                    }
                    None => found.push(share.clone()),
                }
            }
        }
        found
    }

    /// Whether some operator makes groups that are whole on their devices: else no cut climbs to complete ones.
    pub(super) fn may_be_complete(&self) -> bool {
        self.nodes.iter().any(|node| node.homes.is_some() && makes_whole_groups(&*node.plan))
    }

    /// Whether `number` makes groups of rows on several devices, each of them whole on one.
    pub(super) fn has_whole_groups(&self, number: usize) -> bool {
        self.nodes[number].homes.is_some()
            && makes_whole_groups(self.nodes[number].plan.as_ref())
            && self.devices_below(number).len() > 1
    }

    /// Whether the operator `number` groups rows, or states of groups, each group on one device.
    pub(super) fn groups_at_home(&self, number: usize) -> bool {
        let NumberedNode { plan, homes, .. } = &self.nodes[number];
        homes.is_some() && (plan.is::<AggregateExec>() || plan.is::<DenseAggregateExec>())
    }

    /// The keys that its joins hand down. It reads the statistics of every build side, and is not called where nothing
    /// is cut.
    pub(super) fn keys(&self, context: &dyn CutContext) -> &[BuildKeys] {
        let all = || {
            let rows = self.nodes.first().map(|root| context.rows(&root.plan)).unwrap_or_default();
            let keys = self.nodes.iter().filter_map(|node| {
                let build = node.inputs.first().and_then(|build| rows.get(*build));
                BuildKeys::of(&node.plan, build.copied().unwrap_or(f64::INFINITY))
            });
            keys.collect()
        };
        self.keys.get_or_init(all)
    }

    /// The operators below a cut at `root`: its subtree, but for what is broadcast.
    pub(super) fn below_cut(&self, root: usize) -> Vec<usize> {
        let (mut below, mut number) = (Vec::new(), root);
        while number < root + self.nodes[root].size {
            if number > root && self.nodes[number].broadcast.is_some() {
                number += self.nodes[number].size;
            } else {
                below.push(number);
                number += 1;
            }
        }
        below
    }

    /// Of `roots`, the one below whose cut the operator `number` lies; None: it is the host's.
    pub(super) fn root_above(&self, roots: &BTreeSet<usize>, number: usize) -> Option<usize> {
        let mut at = number;
        while !roots.contains(&at) {
            if self.nodes[at].broadcast.is_some() {
                return None;
            }
            at = self.nodes[at].parent?;
        }
        Some(at)
    }

    /// The scans, in the order in which they are begun.
    pub(super) fn scans(&self) -> impl Iterator<Item = usize> {
        let is_scan = |number: &usize| self.scan(*number).is_some();
        (0..self.nodes.len()).filter(is_scan)
    }

    pub(super) fn scan(&self, number: usize) -> Option<&TableScanExec> {
        self.nodes[number].plan.downcast_ref()
    }

    /// The joins and recursions in the order in which they enter a split: what a join needs comes before it, and where
    /// both of its inputs are joins, the larger one first, which is the one that grew table by table. The joins of a
    /// round enter with their recursion.
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
        let is_unit = is_join(node.plan.as_ref()) || node.plan.is::<RecursionExec>();
        if is_unit && node.refers_to.is_empty() {
            joins.push(number);
        }
    }

    /// The topmost operator of the chain above `base`, a scan, join or recursion, that goes where `base` goes.
    pub(super) fn top_of(&self, base: usize) -> usize {
        let (mut top, mut at) = (base, base);
        // A recursion has one partition, which the host divides again above it: the exchange is left out below a cut.
        let is_recursion = self.nodes[base].plan.is::<RecursionExec>();
        let mut is_plain = is_recursion || is_stateless(self.nodes[base].plan.as_ref());
        while let Some(parent) = self.nodes[at].parent {
            let node = &self.nodes[parent];
            at = parent;
            if node.inputs.len() != 1 {
                break;
            }
            if is_exchange(node.plan.as_ref()) {
                if is_recursion && node.plan.fetch().is_none() {
                    continue;
                }
                break;
            }
            if node.obstacle.is_some() || !may_follow(node.plan.as_ref(), is_plain) {
                break;
            }
            is_plain = is_plain && is_stateless(node.plan.as_ref());
            top = parent;
        }
        top
    }

    /// The scan, join or recursion below the chain whose top is `top`.
    pub(super) fn base_of(&self, top: usize) -> usize {
        let mut at = top;
        while let [input] = self.nodes[at].inputs.as_slice() {
            at = *input;
        }
        at
    }

    /// As [`NumberedPlan::top_of`], and further up as far as rows are complete on each of several devices: final
    /// aggregates by the columns that divide the rows, what treats their groups one by one or makes partial results of
    /// them, and a limit.
    pub(super) fn complete_top(&self, base: usize) -> usize {
        let (mut top, mut at) = (self.top_of(base), base);
        if self.devices_below(base).len() < 2 {
            return top;
        }
        // Whether a final aggregate was passed, and whether what comes are states of groups.
        let (mut is_grouped, mut has_states) = (false, false);
        while let Some(parent) = self.nodes[at].parent {
            at = parent;
            let node = &self.nodes[at];
            if node.inputs.len() != 1 || node.obstacle.is_some() {
                break;
            }
            if is_exchange(node.plan.as_ref()) {
                if node.plan.fetch().is_some() {
                    break;
                }
                continue;
            }
            let mode = node.plan.downcast_ref::<AggregateExec>().map(AggregateExec::mode);
            let mut is_last = false;
            if mode == Some(&AggregateMode::Partial) {
                if has_states {
                    break;
                }
                has_states = true;
            } else if makes_whole_groups(node.plan.as_ref()) {
                let is_of_states =
                    matches!(mode, Some(AggregateMode::Final | AggregateMode::FinalPartitioned));
                if node.homes.is_none() || is_of_states != has_states {
                    break;
                }
                (is_grouped, has_states) = (true, false);
            } else if !node.plan.is::<DenseAggregateExec>() {
                let is_sort = node.plan.is::<SortExec>() && node.plan.fetch().is_some();
                let is_limit =
                    node.plan.is::<LocalLimitExec>() || node.plan.is::<GlobalLimitExec>();
                is_last = is_sort || is_limit;
                if has_states || !is_last && !is_stateless(node.plan.as_ref()) {
                    break;
                }
            }
            if is_grouped && self.may_be_divided_anew(at) {
                top = at;
            }
            if is_last {
                break;
            }
        }
        top
    }

    /// Whether nothing above the operator `number` relies on how its rows are divided among partitions: those of a
    /// fragment come from any.
    fn may_be_divided_anew(&self, number: usize) -> bool {
        let mut at = number;
        while let Some(parent) = self.nodes[at].parent {
            if self.nodes[at].plan.output_partitioning().partition_count() < 2 {
                return true;
            }
            let node = &self.nodes[parent];
            if is_exchange(node.plan.as_ref()) && node.plan.name() != "CooperativeExec" {
                return true;
            }
            let place = node.inputs.iter().position(|input| *input == at).unwrap_or_default();
            let wanted = node.plan.input_distribution_requirements();
            let is_free = matches!(
                wanted.child_distribution(place),
                None | Some(Distribution::UnspecifiedDistribution | Distribution::SinglePartition)
            );
            if !is_free || node.plan.name() == "InterleaveExec" {
                return false;
            }
            at = parent;
        }
        true
    }

    /// Names of the operators of the subtree of `number`, what is done first first.
    pub(super) fn operators(&self, number: usize) -> Vec<String> {
        let is_sent = |input: &&usize| self.nodes[**input].broadcast.is_some();
        let names = self.below_cut(number).into_iter().rev().flat_map(|place| {
            let node = &self.nodes[place];
            let sent = node.inputs.iter().find(is_sent).map(|_| "BroadcastExec");
            let own = (!is_exchange(node.plan.as_ref())).then(|| node.plan.name());
            sent.into_iter().chain(own)
        });
        names.map(str::to_owned).collect()
    }

    /// Names of the tables that a fragment with the root `number` reads.
    pub(super) fn tables(&self, number: usize) -> Vec<&str> {
        let below = self.below_cut(number);
        let scans = below.into_iter().filter_map(|node| self.scan(node));
        scans.map(|scan| scan.scan().table.as_str()).collect()
    }
}

/// Whether `plan` groups rows, or joins them by keys: only then it matters on which device they are made.
fn asks_for_homes(plan: &dyn ExecutionPlan) -> bool {
    plan.is::<AggregateExec>()
        || plan.is::<HashJoinExec>()
        || plan.children().into_iter().any(|input| asks_for_homes(input.as_ref()))
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

/// Whether `node` is an aggregate that is not partial: its groups are complete where it has all of their rows.
pub(super) fn makes_whole_groups(node: &dyn ExecutionPlan) -> bool {
    let mode = node.downcast_ref::<AggregateExec>().map(AggregateExec::mode);
    mode.is_some_and(|mode| !matches!(mode, AggregateMode::Partial | AggregateMode::PartialReduce))
}

/// Whether `node` only moves rows between partitions.
pub fn is_exchange(node: &dyn ExecutionPlan) -> bool {
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

/// Whether `node` treats each row of what streams alone, so that any number of partitions give the same rows.
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
