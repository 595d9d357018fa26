//! Walks the expressions of a plan's node, keeping the names of its columns; and looks whether a plan has any that
//! concern a rule, before the rule rebuilds it.

use cleave_fragment::walk::{Walk, WalkPlan};
use std::sync::Arc;

use datafusion::common::DFSchema;
use datafusion::common::tree_node::{Transformed, TreeNodeRecursion};
use datafusion::error::Result;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{Expr, GroupingSet, LogicalPlan};

/// Whether an operator of `plan`, or of its subqueries, is one that `concerns` a rule. Few statements have what most
/// rules are for, and rebuilding a plan takes many times as long as looking.
pub fn has_operator(
    plan: &LogicalPlan,
    mut concerns: impl FnMut(&LogicalPlan) -> Result<bool>,
) -> Result<bool> {
    let mut found = false;
    plan.apply_everywhere(|node| {
        found = concerns(node)?;
        Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(found)
}

/// As [`has_operator`], of an expression or a part of one.
pub fn has_expression(plan: &LogicalPlan, mut concerns: impl FnMut(&Expr) -> bool) -> Result<bool> {
    has_operator(plan, |node| {
        let mut found = false;
        node.each_expression(|expr| {
            found = expr.exists(|part| Ok(concerns(part)))?;
            Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
        })?;
        Ok(found)
    })
}

/// Rewrites each expression of `plan` with `rewrite`, from the leaves up, given the columns that it may name.
pub(super) fn rewrite_expressions(
    plan: LogicalPlan,
    rewrite: &dyn Fn(Expr, &DFSchema) -> Result<Transformed<Expr>>,
) -> Result<Transformed<LogicalPlan>> {
    if matches!(&plan, LogicalPlan::TableScan(scan) if scan.filters.is_empty()) {
        return Ok(Transformed::no(plan));
    }
    let schema = match (&plan, plan.inputs().as_slice()) {
        (LogicalPlan::TableScan(scan), _) => {
            let name = scan.table_name.clone();
            Arc::new(DFSchema::try_from_qualified_schema(name, &scan.source.schema())?)
        }
        (_, [input]) => Arc::clone(input.schema()),
        (_, inputs) => Arc::new(merge_schema(inputs)),
    };
    rewrite_named(plan, &|expr| expr.transform_up(|expr| rewrite(expr, &schema)))?
        .map_data(LogicalPlan::recompute_schema)
}

/// Replaces each expression of `plan` by what `rewrite` makes of it as a whole, under the name that it had. The schema
/// stays, so `rewrite` must not change a type.
pub fn rewrite_named(
    plan: LogicalPlan,
    rewrite: &dyn Fn(Expr) -> Result<Transformed<Expr>>,
) -> Result<Transformed<LogicalPlan>> {
    let names = NamePreserver::new(&plan);
    let rewrite_one = |expr: Expr| {
        let name = names.save(&expr);
        Ok(rewrite(expr)?.update_data(|expr| name.restore(expr)))
    };
    let rewrite_all = |exprs: Vec<Expr>| -> Result<Vec<Expr>> {
        exprs.into_iter().map(|expr| Ok(rewrite_one(expr)?.data)).collect()
    };
    plan.change_expressions(|expr| match expr {
        // Its members are the columns, and keep their names; the node itself has none.
        Expr::GroupingSet(set) => {
            let set = match set {
                GroupingSet::Rollup(exprs) => GroupingSet::Rollup(rewrite_all(exprs)?),
                GroupingSet::Cube(exprs) => GroupingSet::Cube(rewrite_all(exprs)?),
                GroupingSet::GroupingSets(sets) => GroupingSet::GroupingSets(
                    sets.into_iter().map(rewrite_all).collect::<Result<_>>()?,
                ),
            };
            Ok(Transformed::yes(Expr::GroupingSet(set)))
        }
        expr => rewrite_one(expr),
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use datafusion::logical_expr::{LogicalPlanBuilder, exists, lit};

    use super::*;

    #[test]
    fn subqueries_are_looked_into() {
        let row = || LogicalPlanBuilder::empty(true);
        let within = row().project([(-lit(2)).alias("x")]).unwrap().build().unwrap();
        let plan = row().filter(exists(Arc::new(within))).unwrap().build().unwrap();
        let is_minus = |expr: &Expr| matches!(expr, Expr::Negative(_));
        assert!(has_expression(&plan, is_minus).unwrap());
        assert!(!has_expression(&plan, |expr| matches!(expr, Expr::Between(_))).unwrap());
        let is_projection = |node: &LogicalPlan| Ok(matches!(node, LogicalPlan::Projection(_)));
        assert!(has_operator(&plan, is_projection).unwrap());
    }
}
