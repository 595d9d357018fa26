//! Replaces the engine's filter push-down by ours, which goes by position ([`cleave_fragment::hand_down`]), its
//! recursions by those that a device can run too ([`RecursionExec`]), and its choice of build sides by [`BuildSides`].

use std::sync::Arc;

use cleave_fragment::RecursionExec;
use cleave_fragment::hand_down::hand_down_filters;
use datafusion::common::Result;
use datafusion::config::ConfigOptions;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;

use super::build_sides::BuildSides;

type Rule = Arc<dyn PhysicalOptimizerRule + Send + Sync>;

/// `rules` of the engine, with ours for build sides and for the push-down of dynamic filters. Static filters are in the
/// scans already; pushing them again, by name too, could only go wrong.
pub(super) fn with_our_rules(rules: &[Rule]) -> Vec<Rule> {
    let kept = rules.iter().filter(|rule| rule.name() != "FilterPushdown");
    let ours = kept.map(|rule| match rule.name() {
        "join_selection" => Arc::new(BuildSides) as Rule,
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
