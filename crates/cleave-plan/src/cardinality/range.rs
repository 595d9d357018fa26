//! Selectivity of range comparisons: a comparison and a column's statistics in, a share of rows out.
//!
//! The values that ANALYZE kept say how many rows lie below a constant. For rows added since, and without statistics,
//! values are taken to lie evenly between the ends (System R). Types without distances (text, bytes) have no share
//! then.

use datafusion_common::ScalarValue;
use datafusion_expr::{BinaryExpr, Expr, Operator};

use crate::{ColumnFacts, ColumnStatistics, TableFacts};

/// The least share that is returned: statistics are of an older version, and a plan for no rows at all is a bad bet.
const LEAST: f64 = 1e-4;

/// Share of a table's rows for which a comparison of a column with a constant is true; None: nothing is known.
pub(super) fn comparison(
    left: &Expr,
    operator: Operator,
    right: &Expr,
    table: &str,
    row_count: f64,
    facts: &dyn TableFacts,
) -> Option<f64> {
    let (column, value, upwards) = match (column(left), constant(right)) {
        (Some(column), Some(value)) => (column, value, true),
        _ => (column(right)?, constant(left)?, false),
    };
    let facts = facts.column(table, column);
    // `5 > x` asks for the values below, as `x < 5` does.
    let wants_below = matches!(operator, Operator::Lt | Operator::LtEq) == upwards;
    // `x <= 5` and `x > 5` divide behind 5, the others before it.
    let divides_behind = matches!(operator, Operator::LtEq | Operator::Gt) == upwards;
    let below = below(&facts, value, divides_behind, row_count)?;
    let all = 1.0 - facts.null_fraction.unwrap_or(0.0);
    Some(if wants_below { below } else { all - below }.max(LEAST))
}

/// Share of a table's rows between two constants.
pub(super) fn between(
    expr: &Expr,
    low: &Expr,
    high: &Expr,
    table: &str,
    row_count: f64,
    facts: &dyn TableFacts,
) -> Option<f64> {
    let facts = facts.column(table, column(expr)?);
    let share = below(&facts, constant(high)?, true, row_count)?
        - below(&facts, constant(low)?, false, row_count)?;
    Some(share.max(LEAST))
}

/// Of conditions that all hold, those that bound one column from both sides, as pairs, and all others.
pub(super) fn take_pairs<'a>(conditions: &[&'a Expr]) -> (Vec<[&'a Expr; 2]>, Vec<&'a Expr>) {
    let (mut pairs, mut others) = (Vec::new(), Vec::new());
    let mut open: Vec<&Expr> = Vec::new();
    for condition in conditions {
        let Some((name, wants_below)) = bounded(condition) else {
            others.push(*condition);
            continue;
        };
        let other_end = |open: &&Expr| {
            bounded(open).is_some_and(|(known, below)| known == name && below != wants_below)
        };
        match open.iter().position(other_end) {
            Some(place) => pairs.push([open.swap_remove(place), *condition]),
            None => open.push(condition),
        }
    }
    others.extend(open);
    (pairs, others)
}

/// Share of rows for which both of two bounds hold, of which one alone holds for `one` and the other for `other`.
pub(super) fn within(
    one: f64,
    other: f64,
    column: Option<&str>,
    table: &str,
    facts: &dyn TableFacts,
) -> f64 {
    let null = column.and_then(|column| facts.column(table, column).null_fraction);
    // Together they hold for all that is not NULL, and twice for what lies between.
    (one + other - (1.0 - null.unwrap_or(0.0))).clamp(LEAST, one.min(other).max(LEAST))
}

/// The column that a bound is about.
pub(super) fn column_of(bound: &Expr) -> Option<&str> {
    bounded(bound).map(|(column, _)| column)
}

/// The column that a comparison with a constant bounds, and whether from above.
fn bounded(expr: &Expr) -> Option<(&str, bool)> {
    let Expr::BinaryExpr(BinaryExpr { left, op, right }) = expr else { return None };
    let is_above = match op {
        Operator::Lt | Operator::LtEq => true,
        Operator::Gt | Operator::GtEq => false,
        _ => return None,
    };
    match (column(left), constant(right)) {
        (Some(column), Some(_)) => Some((column, is_above)),
        _ => constant(left).and(column(right)).map(|column| (column, !is_above)),
    }
}

/// The column that `expr` compares with a constant by `=`, or several times by `OR`.
pub(super) fn equal_column(expr: &Expr) -> Option<&str> {
    let Expr::BinaryExpr(BinaryExpr { left, op, right }) = expr else { return None };
    match op {
        Operator::Eq => match (column(left), constant(right)) {
            (Some(column), Some(_)) => Some(column),
            _ => constant(left).and(column(right)),
        },
        Operator::Or => equal_column(left).filter(|column| equal_column(right) == Some(*column)),
        _ => None,
    }
}

/// The column that an expression is, or a cast of.
pub(super) fn column(expr: &Expr) -> Option<&str> {
    match expr {
        Expr::Column(column) => Some(&column.name),
        Expr::Cast(cast) => column(&cast.expr),
        _ => None,
    }
}

pub(super) fn constant(expr: &Expr) -> Option<&ScalarValue> {
    match expr {
        Expr::Literal(value, _) => Some(value),
        Expr::Cast(cast) => constant(&cast.expr),
        _ => None,
    }
}

/// `value` as one of the type of a column's values, without loss.
pub(super) fn as_values_of(known: &ColumnStatistics, value: &ScalarValue) -> Option<ScalarValue> {
    let any = known.min.as_ref().or(known.common.first().map(|(value, _)| value));
    let data_type = any?.data_type();
    if value.data_type() == data_type {
        return Some(value.clone());
    }
    let cast = value.cast_to(&data_type).ok()?;
    (cast.is_null() == value.is_null()).then_some(cast)
}

/// Share of rows whose value lies below `value`, or is it where `or_equal`.
fn below(facts: &ColumnFacts, value: &ScalarValue, or_equal: bool, row_count: f64) -> Option<f64> {
    let known = facts.statistics.as_ref().and_then(|known| {
        let share = known.share_below(&as_values_of(known, value)?, or_equal)?;
        Some((share, known.known_share(row_count)))
    });
    let even = || even_below(facts, value, or_equal);
    match known {
        Some((share, known_share)) if known_share < 1.0 => {
            Some(share * known_share + even().unwrap_or(share) * (1.0 - known_share))
        }
        Some((share, _)) => Some(share),
        None => even(),
    }
}

/// As [`below`], of values that lie evenly between the ends.
fn even_below(facts: &ColumnFacts, value: &ScalarValue, or_equal: bool) -> Option<f64> {
    let (low, high) = (place(facts.min.as_ref()?)?, place(facts.max.as_ref()?)?);
    let value = place(value)?;
    let share = if high > low {
        ((value - low) / (high - low)).clamp(0.0, 1.0)
    } else if value > low || (or_equal && value >= low) {
        // One value only.
        1.0
    } else {
        0.0
    };
    Some(share * (1.0 - facts.null_fraction.unwrap_or(0.0)))
}

/// Where a value lies on the line of its type; times of any kind in microseconds.
pub(crate) fn place(value: &ScalarValue) -> Option<f64> {
    const DAY_US: f64 = 86_400e6;
    let place = match value {
        ScalarValue::Int16(value) => f64::from((*value)?),
        ScalarValue::Int32(value) => f64::from((*value)?),
        ScalarValue::Int64(value) => (*value)? as f64,
        ScalarValue::Float32(value) => f64::from((*value)?),
        ScalarValue::Float64(value) => (*value)?,
        ScalarValue::Decimal128(value, _, scale) => (*value)? as f64 / 10_f64.powi((*scale).into()),
        ScalarValue::Decimal256(value, _, scale) => {
            let (low, high) = (*value)?.to_parts();
            (high as f64 * 2_f64.powi(128) + low as f64) / 10_f64.powi((*scale).into())
        }
        ScalarValue::Date32(value) => f64::from((*value)?) * DAY_US,
        ScalarValue::Time64Microsecond(value) | ScalarValue::TimestampMicrosecond(value, _) => {
            (*value)? as f64
        }
        ScalarValue::TimestampNanosecond(value, _) => (*value)? as f64 / 1e3,
        _ => return None,
    };
    place.is_finite().then_some(place)
}
