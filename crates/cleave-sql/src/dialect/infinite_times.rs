//! Casts, sums and differences of dates and timestamps, which may be [infinite](cleave_fragment::functions::infinite).
//! DataFusion's own would overflow, or give another day.
//!
//! ```text
//!  day::timestamp, at::date, text::date   ─▶   moment_of(day), date_of(at), date_of(text)
//!  text::interval                         ─▶   interval_of_text(text)
//!  at + interval, at - interval           ─▶   time_plus(at, interval), time_minus(at, interval)
//!  at - at                                ─▶   moments_between(at, at)
//! ```
//!
//! Those of days are handled where operators are [planned](super::operators). Types are settled by now.

use cleave_fragment::functions::{
    cast_to_time, interval_of_time, moments_between, time_minus, time_of_interval, time_plus,
};
use datafusion::arrow::datatypes::{DataType, TimeUnit};
use datafusion::common::DFSchema;
use datafusion::common::tree_node::Transformed;
use datafusion::logical_expr::{BinaryExpr, Expr, ExprSchemable, Operator};

use super::typed_literals::is_text;

/// `expr`, if it is one of them, as a function that handles infinite times.
pub(super) fn knowing_infinite(expr: Expr, schema: &DFSchema) -> Transformed<Expr> {
    match expr {
        Expr::Cast(cast) => {
            let to = cast.field.data_type();
            let is_time = |own: &DataType| {
                !matches!(to, DataType::Interval(_))
                    && (matches!(own, DataType::Date32) || is_moment(own))
            };
            let own = cast.expr.get_type(schema);
            let between = match (&own, to) {
                (Ok(DataType::Interval(_)), DataType::Time64(_)) => Some(time_of_interval()),
                (Ok(DataType::Time64(_)), DataType::Interval(_)) => Some(interval_of_time()),
                _ => None,
            };
            if let Some(function) = between {
                return Transformed::yes(function.call(vec![*cast.expr]));
            }
            let function = cast_to_time(to).filter(|_| {
                cast.expr
                    .get_type(schema)
                    .is_ok_and(|own| own != *to && (is_time(&own) || is_text(&own)))
            });
            match function {
                Some(function) => Transformed::yes(function.call(vec![*cast.expr])),
                None => Transformed::no(Expr::Cast(cast)),
            }
        }
        Expr::BinaryExpr(BinaryExpr {
            left,
            op: op @ (Operator::Plus | Operator::Minus),
            right,
        }) => {
            let types = (left.get_type(schema), right.get_type(schema));
            let function = match (&types.0, op, &types.1) {
                (Ok(moment), Operator::Plus, Ok(by)) if is_moment(moment) && is_step(by) => {
                    time_plus()
                }
                (Ok(moment), Operator::Minus, Ok(by)) if is_moment(moment) && is_step(by) => {
                    time_minus()
                }
                (Ok(by), Operator::Plus, Ok(moment)) if is_moment(moment) && is_step(by) => {
                    return Transformed::yes(time_plus().call(vec![*right, *left]));
                }
                (Ok(later), Operator::Minus, Ok(earlier))
                    if is_moment(later) && is_moment(earlier) =>
                {
                    moments_between()
                }
                _ => return Transformed::no(Expr::BinaryExpr(BinaryExpr { left, op, right })),
            };
            Transformed::yes(function.call(vec![*left, *right]))
        }
        expr => Transformed::no(expr),
    }
}

fn is_moment(own: &DataType) -> bool {
    matches!(own, DataType::Timestamp(TimeUnit::Microsecond, _))
}

fn is_step(own: &DataType) -> bool {
    matches!(own, DataType::Interval(_) | DataType::Duration(TimeUnit::Microsecond))
}
