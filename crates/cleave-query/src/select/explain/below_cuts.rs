//! What EXPLAIN shows below the nodes that run fragments: the operators of devices, and beneath their leaves the plans
//! that make the rows which these name.

use std::collections::BTreeMap;
use std::sync::Arc;

use cleave_catalog::error::Result;
use cleave_fragment::{BroadcastExec, PeerRowsExec};
use datafusion::physical_plan::ExecutionPlan;

use crate::cooperative::exchanges::ExchangeExec;
use crate::cooperative::fragment_exec::FragmentExec;

/// The plans that make the rows which leaves of fragments name, by number.
#[derive(Debug, Default)]
pub(super) struct Sources {
    broadcasts: BTreeMap<u32, Arc<dyn ExecutionPlan>>,
    exchanged: BTreeMap<u32, Arc<dyn ExecutionPlan>>,
}

impl Sources {
    /// Those of all fragments of `plan`.
    pub(super) fn of(plan: &Arc<dyn ExecutionPlan>) -> Self {
        let mut sources = Self::default();
        sources.collect(plan);
        sources
    }

    fn collect(&mut self, plan: &Arc<dyn ExecutionPlan>) {
        if let Some(fragment) = plan.downcast_ref::<FragmentExec>() {
            let made = fragment.broadcasts().iter();
            self.broadcasts.extend(made.map(|made| (made.input, Arc::clone(&made.plan))));
        }
        if let Some(exchange) = plan.downcast_ref::<ExchangeExec>() {
            self.exchanged.extend(exchange.producers());
        }
        plan.children().into_iter().for_each(|child| self.collect(child));
    }

    /// What makes the rows that `leaf` names, if it names any.
    pub(super) fn of_leaf(&self, leaf: &Arc<dyn ExecutionPlan>) -> Option<Arc<dyn ExecutionPlan>> {
        if let Some(leaf) = leaf.downcast_ref::<BroadcastExec>() {
            return self.broadcasts.get(&leaf.input()).cloned();
        }
        let leaf = leaf.downcast_ref::<PeerRowsExec>()?;
        self.exchanged.get(&leaf.input()).cloned()
    }

    /// What is shown below `node` in the place of its inputs.
    pub(super) fn below(&self, node: &Arc<dyn ExecutionPlan>) -> Option<Arc<dyn ExecutionPlan>> {
        match fragment_of(node) {
            Some(fragment) => Some(Arc::clone(fragment.device_plan())),
            None => self.of_leaf(node),
        }
    }
}

/// What devices run below `plan`, if it lies above a cut.
pub(super) fn fragment_of(plan: &Arc<dyn ExecutionPlan>) -> Option<&FragmentExec> {
    match plan.downcast_ref::<ExchangeExec>() {
        Some(exchange) => Some(exchange.consumer()),
        None => plan.downcast_ref::<FragmentExec>(),
    }
}

/// Who runs what is [below](fragment_of) `plan`: devices, or nodes.
pub(super) fn runs_on(plan: &Arc<dyn ExecutionPlan>) -> String {
    match plan.downcast_ref::<ExchangeExec>() {
        Some(exchange) => exchange.runs_on(),
        None => fragment_of(plan).map(FragmentExec::device_names).unwrap_or_default(),
    }
}

/// The fragments of `plan` as they are sent, in hexadecimal digits.
pub(super) fn fragments(plan: &Arc<dyn ExecutionPlan>, lines: &mut Vec<String>) -> Result<()> {
    if let Some(fragment) = fragment_of(plan) {
        let bytes = cleave_fragment::encode_fragment(fragment.device_plan())?;
        lines.push(bytes.iter().map(|byte| format!("{byte:02x}")).collect());
    }
    plan.children().into_iter().try_for_each(|child| fragments(child, lines))
}
