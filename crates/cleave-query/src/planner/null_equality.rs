//! Joins that take NULL for equal to NULL (`IS NOT DISTINCT FROM`) beside joins that do not.
//!
//! DataFusion's rule for cross joins takes adjacent inner joins apart and puts them together again with the meaning of
//! the uppermost for all. [`kept_apart`] leaves a plan with both kinds side by side to the other rules.

use cleave_fragment::walk::WalkPlan;
use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNodeRecursion};
use datafusion::error::Result;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::{Join, JoinType, LogicalPlan};
use datafusion::optimizer::optimizer::ApplyOrder;
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};

use super::{Rule, with_rule};

/// DataFusion's rule.
const MIXING: &str = "eliminate_cross_join";

/// `state`, whose rules keep the meaning of each join.
pub(super) fn kept_apart(state: SessionState) -> SessionState {
    with_rule(state, MIXING, |rule| Arc::new(KeptApart(rule)))
}

#[derive(Debug)]
struct KeptApart(Rule);

impl OptimizerRule for KeptApart {
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
        match has_both(&plan)? {
            true => Ok(Transformed::no(plan)),
            false => self.0.rewrite(plan, config),
        }
    }
}

/// Whether an inner join has an input that is one with another meaning of NULL.
fn has_both(plan: &LogicalPlan) -> Result<bool> {
    let mut found = false;
    plan.apply_everywhere(|node| {
        if let Some(join) = inner(node) {
            let inputs = [&join.left, &join.right].into_iter().filter_map(|input| inner(input));
            found |= inputs.into_iter().any(|input| input.null_equality != join.null_equality);
        }
        Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(found)
}

fn inner(plan: &LogicalPlan) -> Option<&Join> {
    match plan {
        LogicalPlan::Join(join) if join.join_type == JoinType::Inner => Some(join),
        _ => None,
    }
}
