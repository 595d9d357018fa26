//! Walks the expressions of a plan's node, keeping the names of its columns.

use datafusion::common::DFSchema;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::error::Result;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{Expr, GroupingSet, LogicalPlan};

/// Rewrites each expression of `plan` with `rewrite`, from the leaves up, given the columns that it may name.
pub(super) fn rewrite_expressions(
    plan: LogicalPlan,
    rewrite: &dyn Fn(Expr, &DFSchema) -> Result<Transformed<Expr>>,
) -> Result<Transformed<LogicalPlan>> {
    let mut schema = merge_schema(&plan.inputs());
    if let LogicalPlan::TableScan(scan) = &plan {
        let name = scan.table_name.clone();
        schema.merge(&DFSchema::try_from_qualified_schema(name, &scan.source.schema())?);
    }
    rewrite_named(plan, &|expr| expr.transform_up(|expr| rewrite(expr, &schema)))?
        .map_data(LogicalPlan::recompute_schema)
}

/// Replaces each expression of `plan` by what `rewrite` makes of it as a whole, under the name that it had. The schema
/// stays, so `rewrite` must not change a type.
pub(super) fn rewrite_named(
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
    plan.map_expressions(|expr| match expr {
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
