//! How many different values an expression has at most, by those of the columns that it reads.
//!
//! A function of some columns has no more values than they have together, which is what PostgreSQL expects of a
//! grouped expression. Less is known of a remainder, of a part of a time, of a condition and of a choice of constants.

use std::sync::Arc;

use datafusion_common::ScalarValue;
use datafusion_expr::{Operator, Volatility};
use datafusion_physical_expr::expressions::{
    BinaryExpr, CaseExpr, Column, InListExpr, IsNotNullExpr, IsNullExpr, LikeExpr, Literal, NotExpr,
};
use datafusion_physical_expr::{PhysicalExpr, ScalarFunctionExpr};

/// The bound of `expr` over rows whose columns, by ordinal, have as many values as `of_column` says; none where a
/// column of which nothing is known may give any number of values. NULL is one value more.
pub fn distinct_values_max(
    expr: &Arc<dyn PhysicalExpr>,
    of_column: &dyn Fn(usize) -> Option<f64>,
) -> Option<f64> {
    if let Some(column) = expr.downcast_ref::<Column>() {
        return of_column(column.index());
    }
    if expr.is::<Literal>() {
        return Some(1.0);
    }
    let function = expr.downcast_ref::<ScalarFunctionExpr>();
    if function.is_some_and(|of| of.fun().signature().volatility == Volatility::Volatile) {
        return None;
    }
    let children = expr.children();
    let own = own_bound(expr, function);
    if children.is_empty() {
        return own;
    }
    let of_children: Option<f64> =
        children.iter().map(|child| distinct_values_max(child, of_column)).product();
    match (own, of_children) {
        (Some(own), Some(of_children)) => Some(own.min(of_children)),
        (own, of_children) => own.or(of_children),
    }
}

/// What the expression alone tells, whatever it reads.
fn own_bound(expr: &Arc<dyn PhysicalExpr>, function: Option<&ScalarFunctionExpr>) -> Option<f64> {
    let is_condition = expr.is::<IsNullExpr>()
        || expr.is::<IsNotNullExpr>()
        || expr.is::<NotExpr>()
        || expr.is::<LikeExpr>()
        || expr.is::<InListExpr>();
    if is_condition {
        return Some(2.0);
    }
    if let Some(binary) = expr.downcast_ref::<BinaryExpr>() {
        return match binary.op() {
            // Values below zero, which would make it twice as many, are rare.
            Operator::Modulo => {
                integer(literal(binary.right())?).map(|divisor| (divisor as f64).abs().max(1.0))
            }
            operator => gives_truth(*operator).then_some(2.0),
        };
    }
    if let Some(case) = expr.downcast_ref::<CaseExpr>() {
        let results = case.when_then_expr().iter().map(|(_, result)| result);
        let results = results.chain(case.else_expr());
        let are_constants = results.clone().all(|result| result.is::<Literal>());
        return are_constants.then(|| results.count() as f64);
    }
    let function = function.filter(|function| function.name() == "date_part")?;
    match literal(function.args().first()?)? {
        ScalarValue::Utf8(Some(part))
        | ScalarValue::LargeUtf8(Some(part))
        | ScalarValue::Utf8View(Some(part)) => parts_of_time(part),
        _ => None,
    }
}

fn gives_truth(operator: Operator) -> bool {
    matches!(
        operator,
        Operator::Eq
            | Operator::NotEq
            | Operator::Lt
            | Operator::LtEq
            | Operator::Gt
            | Operator::GtEq
            | Operator::And
            | Operator::Or
            | Operator::IsDistinctFrom
            | Operator::IsNotDistinctFrom
    )
}

/// Values of a part of a time that comes again.
fn parts_of_time(part: &str) -> Option<f64> {
    Some(match part.to_ascii_lowercase().as_str() {
        "quarter" => 4.0,
        "dow" | "isodow" => 7.0,
        "month" => 12.0,
        "hour" => 24.0,
        "day" => 31.0,
        "week" => 53.0,
        "minute" | "second" => 60.0,
        "doy" => 366.0,
        _ => return None,
    })
}

fn literal(expr: &Arc<dyn PhysicalExpr>) -> Option<&ScalarValue> {
    expr.downcast_ref::<Literal>().map(Literal::value)
}

fn integer(value: &ScalarValue) -> Option<i64> {
    Some(match value {
        ScalarValue::Int16(Some(value)) => i64::from(*value),
        ScalarValue::Int32(Some(value)) => i64::from(*value),
        ScalarValue::Int64(Some(value)) => *value,
        _ => return None,
    })
}
