//! Arithmetic of integers that fails instead of wrapping around, and of numerics that is fast where they are narrow.

use cleave_fragment::functions::{checked_add, checked_multiply, checked_subtract};
use datafusion::arrow::datatypes::DataType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan, Operator, lit};
use datafusion::optimizer::AnalyzerRule;

use super::rewrite::rewrite_expressions;

/// Replaces `+`, `-` and `*` of integers and of numerics, and the minus before an integer, by functions that check; types
/// are settled by then.
#[derive(Debug)]
pub struct CheckedArithmetic;

impl AnalyzerRule for CheckedArithmetic {
    fn name(&self) -> &'static str {
        "checked_arithmetic"
    }

    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> Result<LogicalPlan> {
        let checked = |plan| rewrite_expressions(plan, &|expr, schema| Ok(checked(expr, schema)));
        Ok(plan.transform_up_with_subqueries(checked)?.data)
    }
}

fn checked(expr: Expr, schema: &DFSchema) -> Transformed<Expr> {
    let function = match &expr {
        Expr::BinaryExpr(binary) => match binary.op {
            Operator::Plus => checked_add(),
            Operator::Minus => checked_subtract(),
            Operator::Multiply => checked_multiply(),
            _ => return Transformed::no(expr),
        },
        Expr::Negative(_) => checked_subtract(),
        _ => return Transformed::no(expr),
    };
    match expr {
        Expr::BinaryExpr(binary)
            if kind_of(&binary.left, schema)
                .is_some_and(|left| Some(left) == kind_of(&binary.right, schema)) =>
        {
            Transformed::yes(function.call(vec![*binary.left, *binary.right]))
        }
        Expr::Negative(number) if kind_of(&number, schema) == Some(Kind::Integer) => {
            let zero = number.get_type(schema).and_then(|own| ScalarValue::new_zero(&own));
            match zero {
                Ok(zero) => Transformed::yes(function.call(vec![lit(zero), *number])),
                Err(_) => Transformed::no(Expr::Negative(number)),
            }
        }
        expr => Transformed::no(expr),
    }
}

/// What both operands of an operator are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Integer,
    Numeric,
}

fn kind_of(expr: &Expr, schema: &DFSchema) -> Option<Kind> {
    // A chain of them is asked once a link: it is of the kind of its last operand.
    if let Expr::ScalarFunction(function) = expr
        && function.name().starts_with("checked_")
        && let Some(last) = function.args.last()
    {
        return kind_of(last, schema);
    }
    match expr.get_type(schema).ok()? {
        DataType::Int8 | DataType::Int16 | DataType::Int32 | DataType::Int64 => Some(Kind::Integer),
        DataType::Decimal128(..) => Some(Kind::Numeric),
        _ => None,
    }
}
