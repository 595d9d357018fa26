//! Shares of rows between two values: the least and the greatest value of a column in, and a comparison.
//!
//! Values are taken to lie evenly between the ends (System R). What has no distances (text, bytes) has no share.

use datafusion_common::ScalarValue;
use datafusion_expr::{Expr, Operator};

use crate::{ColumnFacts, TableFacts};

/// The least share that is believed: statistics are of an older state, and a plan for no rows at all is a bad bet.
const LEAST: f64 = 1e-4;

/// Share of a table's rows for which a comparison of a column with a constant is true; None: nothing is known.
pub(super) fn comparison(
    left: &Expr,
    operator: Operator,
    right: &Expr,
    table: &str,
    facts: &dyn TableFacts,
) -> Option<f64> {
    let (column, value, upwards) = match (column(left), constant(right)) {
        (Some(column), Some(value)) => (column, value, true),
        _ => (column(right)?, constant(left)?, false),
    };
    let facts = facts.column(table, column);
    let below = below(&facts, value)?;
    // `5 > x` asks for the values below, as `x < 5` does.
    let wants_below = matches!(operator, Operator::Lt | Operator::LtEq) == upwards;
    let share = if wants_below { below } else { 1.0 - below };
    Some(believed(share, &facts))
}

/// Share of a table's rows between two constants.
pub(super) fn between(
    expr: &Expr,
    low: &Expr,
    high: &Expr,
    table: &str,
    facts: &dyn TableFacts,
) -> Option<f64> {
    let facts = facts.column(table, column(expr)?);
    let share = below(&facts, constant(high)?)? - below(&facts, constant(low)?)?;
    Some(believed(share, &facts))
}

/// The column that an expression is, or a cast of.
pub(super) fn column(expr: &Expr) -> Option<&str> {
    match expr {
        Expr::Column(column) => Some(&column.name),
        Expr::Cast(cast) => column(&cast.expr),
        _ => None,
    }
}

fn constant(expr: &Expr) -> Option<&ScalarValue> {
    match expr {
        Expr::Literal(value, _) => Some(value),
        Expr::Cast(cast) => constant(&cast.expr),
        _ => None,
    }
}

/// Of the values that are not NULL, the share that lies below `value`.
fn below(facts: &ColumnFacts, value: &ScalarValue) -> Option<f64> {
    let (low, high) = (place(facts.min.as_ref()?)?, place(facts.max.as_ref()?)?);
    let value = place(value)?;
    if high > low {
        return Some(((value - low) / (high - low)).clamp(0.0, 1.0));
    }
    // One value only.
    Some(if value > low { 1.0 } else { 0.0 })
}

fn believed(share: f64, facts: &ColumnFacts) -> f64 {
    (share * (1.0 - facts.null_fraction.unwrap_or(0.0))).max(LEAST)
}

/// Where a value lies on the line of its type; times of any kind in microseconds.
fn place(value: &ScalarValue) -> Option<f64> {
    const DAY_US: f64 = 86_400e6;
    let place = match value {
        ScalarValue::Int16(value) => f64::from((*value)?),
        ScalarValue::Int32(value) => f64::from((*value)?),
        ScalarValue::Int64(value) => (*value)? as f64,
        ScalarValue::Float32(value) => f64::from((*value)?),
        ScalarValue::Float64(value) => (*value)?,
        ScalarValue::Decimal128(value, _, scale) => (*value)? as f64 / 10_f64.powi((*scale).into()),
        ScalarValue::Date32(value) => f64::from((*value)?) * DAY_US,
        ScalarValue::Time64Microsecond(value) | ScalarValue::TimestampMicrosecond(value, _) => {
            (*value)? as f64
        }
        ScalarValue::TimestampNanosecond(value, _) => (*value)? as f64 / 1e3,
        _ => return None,
    };
    place.is_finite().then_some(place)
}
