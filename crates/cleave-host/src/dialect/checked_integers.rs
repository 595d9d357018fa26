//! Integer arithmetic that fails instead of wrapping around.

use cleave_fragment::functions::{checked_add, checked_multiply, checked_subtract};
use datafusion::arrow::datatypes::DataType;
use datafusion::common::DFSchema;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::error::Result;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan, Operator};
use datafusion::optimizer::AnalyzerRule;

/// Replaces `+`, `-` and `*` of integers by functions that check; types are settled by then.
#[derive(Debug)]
pub struct CheckedIntegers;

impl AnalyzerRule for CheckedIntegers {
    fn name(&self) -> &'static str {
        "checked_integers"
    }

    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> Result<LogicalPlan> {
        Ok(plan.transform_up_with_subqueries(analyze_node)?.data)
    }
}

fn analyze_node(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let mut schema = merge_schema(&plan.inputs());
    if let LogicalPlan::TableScan(scan) = &plan {
        let name = scan.table_name.clone();
        schema.merge(&DFSchema::try_from_qualified_schema(name, &scan.source.schema())?);
    }
    let names = NamePreserver::new(&plan);
    plan.map_expressions(|expr| {
        let name = names.save(&expr);
        let rewritten = expr.transform_up(|expr| Ok(checked(expr, &schema)))?;
        Ok(rewritten.update_data(|expr| name.restore(expr)))
    })?
    .map_data(LogicalPlan::recompute_schema)
}

fn checked(expr: Expr, schema: &DFSchema) -> Transformed<Expr> {
    let Expr::BinaryExpr(binary) = &expr else { return Transformed::no(expr) };
    let function = match binary.op {
        Operator::Plus => checked_add(),
        Operator::Minus => checked_subtract(),
        Operator::Multiply => checked_multiply(),
        _ => return Transformed::no(expr),
    };
    let is_integer = |side: &Expr| {
        matches!(
            side.get_type(schema),
            Ok(DataType::Int8 | DataType::Int16 | DataType::Int32 | DataType::Int64)
        )
    };
    if !is_integer(&binary.left) || !is_integer(&binary.right) {
        return Transformed::no(expr);
    }
    let Expr::BinaryExpr(binary) = expr else { return Transformed::no(expr) };
    Transformed::yes(function.call(vec![*binary.left, *binary.right]))
}
