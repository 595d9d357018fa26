//! Wraps DataFusion's rules: each checks before it begins whether its plan is still wanted, and not too large.

use std::sync::Arc;

use datafusion::common::tree_node::Transformed;
use datafusion::config::ConfigOptions;
use datafusion::error::Result;
use datafusion::execution::session_state::{SessionState, SessionStateBuilder};
use datafusion::logical_expr::LogicalPlan;
use datafusion::optimizer::optimizer::ApplyOrder;
use datafusion::optimizer::{AnalyzerRule, OptimizerConfig, OptimizerRule};
use datafusion::physical_optimizer::{PhysicalOptimizerContext, PhysicalOptimizerRule};
use datafusion::physical_plan::ExecutionPlan;

use super::{check, check_operators};

/// `state`, whose rules are watched.
pub(in crate::planner) fn watched_rules(state: SessionState) -> SessionState {
    let analyzing = state.analyzer().rules.iter().map(|rule| {
        let rule = Arc::clone(rule);
        Arc::new(WatchedAnalysis(rule)) as Arc<dyn AnalyzerRule + Send + Sync>
    });
    let optimizing = state.optimizers().iter().map(|rule| {
        let rule = Arc::clone(rule);
        Arc::new(WatchedRule(rule)) as Arc<dyn OptimizerRule + Send + Sync>
    });
    let physical = state.physical_optimizers().iter().map(|rule| {
        let rule = Arc::clone(rule);
        Arc::new(WatchedPhysical(rule)) as Arc<dyn PhysicalOptimizerRule + Send + Sync>
    });
    let (analyzing, optimizing) = (analyzing.collect(), optimizing.collect());
    let physical = physical.collect();
    SessionStateBuilder::new_from_existing(state)
        .with_analyzer_rules(analyzing)
        .with_optimizer_rules(optimizing)
        .with_physical_optimizer_rules(physical)
        .build()
}

#[derive(Debug)]
struct WatchedAnalysis(Arc<dyn AnalyzerRule + Send + Sync>);

impl AnalyzerRule for WatchedAnalysis {
    fn analyze(&self, plan: LogicalPlan, config: &ConfigOptions) -> Result<LogicalPlan> {
        check_operators(&plan)?;
        self.0.analyze(plan, config)
    }

    fn name(&self) -> &str {
        self.0.name()
    }
}

#[derive(Debug)]
struct WatchedRule(Arc<dyn OptimizerRule + Send + Sync>);

impl OptimizerRule for WatchedRule {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        self.0.apply_order()
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        config: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        // One that DataFusion applies to each operator counts them no more often than once for each.
        match self.0.apply_order() {
            Some(_) => check()?,
            None => check_operators(&plan)?,
        }
        self.0.rewrite(plan, config)
    }
}

#[derive(Debug)]
struct WatchedPhysical(Arc<dyn PhysicalOptimizerRule + Send + Sync>);

impl PhysicalOptimizerRule for WatchedPhysical {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        check()?;
        self.0.optimize(plan, config)
    }

    fn optimize_with_context(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        context: &dyn PhysicalOptimizerContext,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        check()?;
        self.0.optimize_with_context(plan, context)
    }

    fn name(&self) -> &str {
        self.0.name()
    }

    fn schema_check(&self) -> bool {
        self.0.schema_check()
    }
}
