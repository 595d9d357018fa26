//! The cost of reading each leaf of a plan on either side: a plan and a cost model in, figures by leaf out.
//!
//! A leaf is priced as a plan of its own, once with its pages crossing the link and once on the device. So the figures
//! for finding join orders ([`Reordered::others`](crate::join_order::Reordered::others)) are those for pricing their
//! cuts.

use std::collections::BTreeMap;
use std::sync::Arc;

use cleave_fragment::TableScanExec;
use datafusion_physical_plan::ExecutionPlan;

use super::CutContext;
use super::shape_of::{row_bytes, work};
use crate::cardinality::{LeafKey, PlanEstimates};
use crate::cost::makespan::predict;
use crate::cost::{Placement, PlanShape, ShapeNode, Work};
use crate::join_order::LeafCost;

/// What the scans of `plan` cost, by the leaves of join trees that they are; `known` tells which.
pub fn leaf_costs(
    plan: &Arc<dyn ExecutionPlan>,
    known: &PlanEstimates,
    context: &dyn CutContext,
) -> BTreeMap<LeafKey, LeafCost> {
    let mut found = Found { known, context, devices: Vec::new(), costs: BTreeMap::new() };
    found.add_below(plan);
    found.costs
}

struct Found<'a> {
    known: &'a PlanEstimates,
    context: &'a dyn CutContext,
    /// Names of devices; a device is its place here.
    devices: Vec<String>,
    costs: BTreeMap<LeafKey, LeafCost>,
}

impl Found<'_> {
    fn add_below(&mut self, plan: &Arc<dyn ExecutionPlan>) {
        if let Some(scan) = plan.downcast_ref::<TableScanExec>()
            && let Some((key, rows)) = self.known.scan(scan.scan().input)
        {
            let cost = self.cost(plan, scan, *rows);
            self.costs.insert(key.clone(), cost);
        }
        plan.children().into_iter().for_each(|child| self.add_below(child));
    }

    fn cost(&mut self, plan: &Arc<dyn ExecutionPlan>, scan: &TableScanExec, rows: f64) -> LeafCost {
        let mut node = ShapeNode {
            work: work(plan, rows, self.context),
            inputs: Vec::new(),
            rows,
            row_bytes: row_bytes(&plan.schema()),
            may_share: true,
            is_broadcast: false,
        };
        if let Work::Scan(scan) = &mut node.work {
            // Each order hands down its own keys.
            scan.conditions.key_sets = 0.0;
        }
        let shape = PlanShape { nodes: vec![node.clone()] };
        let (profile, limits) = (self.context.profile(), self.context.limits());
        let price = |on_device: bool| {
            predict(&shape, &Placement { on_device: vec![on_device] }, &profile, &limits)
        };
        let shares = self.context.shares(scan);
        let can_run = shares.iter().all(|share| share.refusal.is_none());
        let device = match shares.as_slice() {
            [only] if can_run => Some(self.place(&only.device)),
            _ => None,
        };
        let device_s = can_run.then(|| price(true).device_busy);
        let host_s = price(false).finish;
        LeafCost { scan: node, host_s, device_s, device }
    }

    fn place(&mut self, device: &str) -> usize {
        match self.devices.iter().position(|known| known == device) {
            Some(place) => place,
            None => {
                self.devices.push(device.to_owned());
                self.devices.len() - 1
            }
        }
    }
}
