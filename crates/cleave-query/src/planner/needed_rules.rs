//! Runs rules of DataFusion only on plans that have what they rewrite.
//!
//! These rules rebuild the whole plan, node by node, to find that nothing of it concerns them. Looking takes a small
//! part of that. Rules that DataFusion applies to each operator are left as they are: DataFusion visits the operators.

use std::sync::Arc;

use cleave_sql::dialect::{has_expression, has_operator};
use datafusion::common::tree_node::Transformed;
use datafusion::config::ConfigOptions;
use datafusion::error::Result;
use datafusion::execution::session_state::{SessionState, SessionStateBuilder};
use datafusion::logical_expr::{Expr, ExpressionPlacement, LogicalPlan};
use datafusion::optimizer::{AnalyzerRule, OptimizerConfig, OptimizerRule};

/// Whether a plan has what a rule rewrites.
type Concerns = fn(&LogicalPlan) -> Result<bool>;

/// `state`, whose rules run where they are needed.
pub(super) fn needed_rules(state: SessionState) -> SessionState {
    let analyzing = state.analyzer().rules.iter().map(|rule| match rule.name() {
        "resolve_grouping_function" => {
            Arc::new(Needed { rule: Arc::clone(rule), concerns: has_grouping })
                as Arc<dyn AnalyzerRule + Send + Sync>
        }
        _ => Arc::clone(rule),
    });
    let optimizing = state.optimizers().iter().map(|rule| {
        let concerns: Concerns = match rule.name() {
            "rewrite_set_comparison" => has_set_comparison,
            "eliminate_join" => has_join,
            "extract_leaf_expressions" => has_leaf_expression,
            _ => return Arc::clone(rule),
        };
        let rule = Arc::clone(rule);
        Arc::new(Needed { rule, concerns }) as Arc<dyn OptimizerRule + Send + Sync>
    });
    let (analyzing, optimizing) = (analyzing.collect(), optimizing.collect());
    SessionStateBuilder::new_from_existing(state)
        .with_analyzer_rules(analyzing)
        .with_optimizer_rules(optimizing)
        .build()
}

#[derive(Debug)]
struct Needed<R> {
    rule: R,
    concerns: Concerns,
}

impl AnalyzerRule for Needed<Arc<dyn AnalyzerRule + Send + Sync>> {
    fn analyze(&self, plan: LogicalPlan, config: &ConfigOptions) -> Result<LogicalPlan> {
        match (self.concerns)(&plan)? {
            true => self.rule.analyze(plan, config),
            false => Ok(plan),
        }
    }

    fn name(&self) -> &str {
        self.rule.name()
    }
}

impl OptimizerRule for Needed<Arc<dyn OptimizerRule + Send + Sync>> {
    fn name(&self) -> &str {
        self.rule.name()
    }

    // These rules walk the plan themselves: DataFusion asks each once, with the whole plan.

    fn rewrite(
        &self,
        plan: LogicalPlan,
        config: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        match (self.concerns)(&plan)? {
            true => self.rule.rewrite(plan, config),
            false => Ok(Transformed::no(plan)),
        }
    }
}

fn has_grouping(plan: &LogicalPlan) -> Result<bool> {
    has_expression(
        plan,
        |expr| matches!(expr, Expr::AggregateFunction(function) if function.func.name() == "grouping"),
    )
}

/// `x = ANY (query)` and its kin.
fn has_set_comparison(plan: &LogicalPlan) -> Result<bool> {
    has_expression(plan, |expr| matches!(expr, Expr::SetComparison(_)))
}

fn has_join(plan: &LogicalPlan) -> Result<bool> {
    has_operator(plan, |node| Ok(matches!(node, LogicalPlan::Join(_))))
}

/// A part of a structure, which the scan may read alone.
fn has_leaf_expression(plan: &LogicalPlan) -> Result<bool> {
    has_expression(plan, |expr| expr.placement() == ExpressionPlacement::MoveTowardsLeafNodes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_engine_has_these_rules_and_leaves_walking_to_them() {
        let state = needed_rules(SessionStateBuilder::new_with_default_features().build());
        let wrapped = |text: String| text.starts_with("Needed");
        let analyzing = state.analyzer().rules.iter().filter(|rule| wrapped(format!("{rule:?}")));
        assert_eq!(analyzing.count(), 1);
        let optimizing = state.optimizers().iter().filter(|rule| wrapped(format!("{rule:?}")));
        assert_eq!(optimizing.count(), 3);
        let engine = SessionStateBuilder::new_with_default_features().build();
        for name in ["rewrite_set_comparison", "eliminate_join", "extract_leaf_expressions"] {
            let rule = engine.optimizers().iter().find(|rule| rule.name() == name);
            assert!(rule.is_some_and(|rule| rule.apply_order().is_none()), "{name}");
        }
    }
}
