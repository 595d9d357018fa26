//! A planner rule: a list of doubles that holds one zero holds both.
//!
//! `0.0 = -0.0`, as the engine compares, hashes and joins them. Its lists of constants compare bits.
//!
//! ```text
//!   x IN (0.0, 2.5, 3.5, 4.5)   ─▶   x IN (0.0, -0.0, 2.5, 3.5, 4.5)
//! ```
//!
//! It is the last rule of expressions: others make lists of conditions with OR.

use cleave_sql::dialect::rewrite_named;
use datafusion::common::ScalarValue;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, LogicalPlan, lit};
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};

/// See the module.
#[derive(Debug)]
pub(super) struct BothZeros;

impl OptimizerRule for BothZeros {
    fn name(&self) -> &'static str {
        "both_zeros"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::TopDown)
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        _config: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        let mut is_concerned = false;
        plan.apply_expressions(|expr| {
            is_concerned = expr.exists(|part| Ok(missing_zero(part).is_some()))?;
            Ok(if is_concerned { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
        })?;
        if !is_concerned {
            return Ok(Transformed::no(plan));
        }
        rewrite_named(plan, &|expr| expr.transform_up(|part| Ok(with_both(part))))
    }
}

fn with_both(expr: Expr) -> Transformed<Expr> {
    match (missing_zero(&expr), expr) {
        (Some(zero), Expr::InList(mut list)) => {
            list.list.push(lit(zero));
            Transformed::yes(Expr::InList(list))
        }
        (_, expr) => Transformed::no(expr),
    }
}

/// The zero that a list of constants lacks beside the other one.
fn missing_zero(expr: &Expr) -> Option<ScalarValue> {
    let Expr::InList(list) = expr else { return None };
    let holds = |zero: &ScalarValue| {
        list.list.iter().any(|item| matches!(item, Expr::Literal(value, _) if value == zero))
    };
    let pairs = [
        (ScalarValue::from(0.0_f64), ScalarValue::from(-0.0_f64)),
        (ScalarValue::from(0.0_f32), ScalarValue::from(-0.0_f32)),
    ];
    pairs.into_iter().find_map(|(plus, minus)| match (holds(&plus), holds(&minus)) {
        (true, false) => Some(minus),
        (false, true) => Some(plus),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use datafusion::logical_expr::{LogicalPlanBuilder, col, in_list};
    use datafusion::optimizer::OptimizerContext;

    use super::*;

    fn filtered(list: Vec<Expr>) -> String {
        let plan = LogicalPlanBuilder::values(vec![vec![lit(1.5_f64)]]).unwrap();
        let plan = plan.filter(in_list(col("column1"), list, false)).unwrap().build().unwrap();
        let plan = BothZeros.rewrite(plan, &OptimizerContext::new()).unwrap().data;
        plan.to_string().lines().next().unwrap().to_owned()
    }

    #[test]
    fn a_list_with_one_zero_gets_the_other() {
        assert_eq!(
            filtered(vec![lit(0.0_f64), lit(2.5_f64)]),
            "Filter: column1 IN ([Float64(0), Float64(2.5), Float64(-0)])"
        );
        assert!(filtered(vec![lit(-0.0_f64)]).ends_with("IN ([Float64(-0), Float64(0)])"));
        assert!(filtered(vec![lit(1.0_f64)]).ends_with("IN ([Float64(1)])"));
        assert!(
            filtered(vec![lit(0.0_f64), lit(-0.0_f64)]).ends_with("[Float64(0), Float64(-0)])")
        );
    }
}
