//! Replaces the engine's filter push-down by ours, which goes by position ([`cleave_fragment::hand_down`]), and its
//! recursions by those that a device can run too ([`RecursionExec`]).

use std::sync::Arc;

use cleave_fragment::RecursionExec;
use cleave_fragment::hand_down::hand_down_filters;
use datafusion::common::Result;
use datafusion::config::ConfigOptions;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;

type Rule = Arc<dyn PhysicalOptimizerRule + Send + Sync>;

/// `rules` of the engine, with ours in place of the push-down of dynamic filters. Static filters are in the scans
/// already; pushing them again, by name too, could only go wrong.
pub(super) fn with_hand_down_filters(rules: &[Rule]) -> Vec<Rule> {
    let kept = rules.iter().filter(|rule| rule.name() != "FilterPushdown");
    let ours = kept.map(|rule| match rule.name() {
        "FilterPushdown(Post)" => Arc::new(HandDownFilters) as Rule,
        _ => Arc::clone(rule),
    });
    ours.collect()
}

#[derive(Debug)]
struct HandDownFilters;

impl PhysicalOptimizerRule for HandDownFilters {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        hand_down_filters(RecursionExec::in_place_of_the_engines(plan)?, config)
    }

    fn name(&self) -> &'static str {
        "HandDownFilters"
    }

    fn schema_check(&self) -> bool {
        true
    }
}
