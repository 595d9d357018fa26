//! Types of integer literals: an `integer` if it fits, as in PostgreSQL; DataFusion makes them bigints.
//!
//! This decides the type of a result: a sum of integers is a bigint, that of bigints a numeric, and 2147483647 + 1 is
//! out of range. [`as_integer`] types an operand of an operator, an argument of an aggregate or an item of a list as
//! they are planned. [`type_integers`] adds a cast in the syntax tree to a literal that stands alone: an item of
//! SELECT, a value of VALUES, a result of CASE or COALESCE.
//!
//! Deliberately left alone: column positions (`ORDER BY 1`), row counts of LIMIT, and arguments of functions, whose
//! types do not depend on it.

use std::ops::ControlFlow;

use datafusion::arrow::datatypes::DataType as ArrowType;
use datafusion::common::ScalarValue;
use datafusion::logical_expr::Expr as PlannedExpr;
use datafusion::sql::sqlparser::ast::{
    self, DataType, Expr, FunctionArg, FunctionArgExpr, FunctionArguments, SelectItem, SetExpr,
    UnaryOperator, VisitorMut,
};

use super::functions_in_from::cast;
use crate::statement::names::fold;
use crate::visiting::visit_mut;

/// Functions whose result has the type of their arguments.
const OF_ARGUMENTS: [&str; 9] =
    ["coalesce", "nullif", "greatest", "least", "pg_typeof", "abs", "gcd", "lcm", "to_hex"];

/// `expr` as an `integer`, if it is a literal that fits.
pub(super) fn as_integer(expr: PlannedExpr) -> PlannedExpr {
    match expr {
        PlannedExpr::Literal(ScalarValue::Int64(Some(number)), metadata) => {
            match i32::try_from(number) {
                Ok(number) => PlannedExpr::Literal(ScalarValue::Int32(Some(number)), metadata),
                Err(_) => PlannedExpr::Literal(ScalarValue::Int64(Some(number)), metadata),
            }
        }
        other => other,
    }
}

/// Whether the type of an aggregate's result follows from that of its argument.
pub(super) fn follows_argument(name: &str) -> bool {
    let names =
        ["exact_sum", "sum", "avg", "min", "max", "array_agg", "bit_and", "bit_or", "bit_xor"];
    names.contains(&name)
}

/// Casts the integer literals in `query`.
pub(super) fn type_integers(query: &mut ast::Query) {
    let flow = visit_mut(query, &mut Typed);
    debug_assert!(flow.is_continue(), "nothing stops the visit");
}

struct Typed;

impl VisitorMut for Typed {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut ast::Query) -> ControlFlow<()> {
        type_values(&mut query.body);
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &mut ast::Select) -> ControlFlow<()> {
        for item in &mut select.projection {
            if let SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } = item {
                type_number(expr);
            }
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expression: &mut Expr) -> ControlFlow<()> {
        match expression {
            Expr::Case { conditions, else_result, .. } => {
                conditions.iter_mut().for_each(|when| type_number(&mut when.result));
                else_result.iter_mut().for_each(|result| type_number(result));
            }
            Expr::Function(function) => {
                if let [ast::ObjectNamePart::Identifier(name)] = function.name.0.as_slice()
                    && OF_ARGUMENTS.contains(&fold(name).as_str())
                    && let FunctionArguments::List(list) = &mut function.args
                {
                    for argument in &mut list.args {
                        if let FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) = argument {
                            type_number(expr);
                        }
                    }
                }
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }
}

/// The same in the VALUES lists of a set operation.
fn type_values(body: &mut SetExpr) {
    match body {
        SetExpr::Values(values) => {
            values.rows.iter_mut().flat_map(|row| row.iter_mut()).for_each(type_number);
        }
        SetExpr::SetOperation { left, right, .. } => {
            type_values(left);
            type_values(right);
        }
        _ => {}
    }
}

fn type_number(expression: &mut Expr) {
    if written(expression).is_some_and(|number| i32::try_from(number).is_ok()) {
        let number = std::mem::replace(expression, Expr::value(ast::Value::Null));
        *expression = cast(number, DataType::Integer(None));
    }
}

/// The whole number that `expression` is.
fn written(expression: &Expr) -> Option<i64> {
    match expression {
        Expr::Value(value) => match &value.value {
            ast::Value::Number(digits, _) => digits.parse().ok(),
            _ => None,
        },
        Expr::UnaryOp { op: UnaryOperator::Minus, expr } => written(expr)?.checked_neg(),
        Expr::Nested(inner) => written(inner),
        _ => None,
    }
}

/// Whether a type is an integer type of tables.
pub(super) fn is_whole(data_type: &ArrowType) -> bool {
    matches!(data_type, ArrowType::Int16 | ArrowType::Int32 | ArrowType::Int64)
}
