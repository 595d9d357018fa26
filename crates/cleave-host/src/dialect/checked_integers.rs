//! Integer arithmetic that fails instead of wrapping around.

use cleave_fragment::functions::{checked_add, checked_multiply, checked_subtract};
use datafusion::arrow::datatypes::DataType;
use datafusion::common::DFSchema;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan, Operator};
use datafusion::optimizer::AnalyzerRule;

use super::rewrite::rewrite_expressions;

/// Replaces `+`, `-` and `*` of integers by functions that check; types are settled by then.
#[derive(Debug)]
pub struct CheckedIntegers;

impl AnalyzerRule for CheckedIntegers {
    fn name(&self) -> &'static str {
        "checked_integers"
    }

    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> Result<LogicalPlan> {
        let checked = |plan| rewrite_expressions(plan, &|expr, schema| Ok(checked(expr, schema)));
        Ok(plan.transform_up_with_subqueries(checked)?.data)
    }
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
