//! Estimates of rows: table sizes and the shape of predicates in, rows out.
//!
//! 1. [`selectivity_of_all`]: the share of a table's rows that conditions leave.
//! 2. [`estimate_leaf`]: the rows of a leaf of a join tree.
//! 3. [`PlanEstimates`]: estimates of leaves and of joins of them, by what they are, so that the same part of another
//!    plan gets the same estimate.
//! 4. [`estimate_rows`]: the rows of every node of a physical plan.
//!
//! Column statistics are used where there are any: those of ANALYZE ([`ColumnStatistics`](crate::ColumnStatistics)),
//! the number of distinct values, the least and greatest for [`range`]s, the NULLs. A condition of any shape is
//! evaluated on the rows ([`on_rows`]) or the values ([`on_values`]) that ANALYZE kept. Otherwise each kind of
//! comparison has a fixed selectivity (System R's approach; the constants for equality and patterns are PostgreSQL's
//! defaults).
//!
//! Several conditions are evaluated together on the rows that ANALYZE kept. Without these they count as independent of
//! each other, but for the two ends of one range.

use datafusion_expr::utils::split_conjunction;
use datafusion_expr::{Between, BinaryExpr, Expr, Operator};

use crate::TableFacts;

mod distinct_values;
mod estimates;
mod leaf;
mod on_rows;
mod on_values;
mod physical;
mod range;
#[cfg(test)]
mod tests;

pub use distinct_values::distinct_values_max;
pub use estimates::{LeafKey, PlanEstimates};
pub use leaf::{LeafEstimate, estimate_leaf};
pub use physical::{Below, estimate_rows, estimate_rows_with};

pub(crate) use on_rows::matching_rows;
pub(crate) use physical::ROUNDS;
pub(crate) use range::place;

/// Rows of a table that nothing is known about.
const ROW_COUNT_UNKNOWN: f64 = 1000.0;
const EQUALITY: f64 = 0.005;
const RANGE: f64 = 1.0 / 3.0;
const PATTERN: f64 = 0.02;
const IS_NULL: f64 = 0.1;
const UNKNOWN: f64 = 0.5;

/// Share of a table's rows for which all of `predicates` are true, in 0..=1.
pub fn selectivity_of_all(
    predicates: &[Expr],
    table: &str,
    row_count: f64,
    facts: &dyn TableFacts,
) -> f64 {
    let conditions: Vec<&Expr> = predicates.iter().flat_map(split_conjunction).collect();
    let (ranges, others) = range::take_pairs(&conditions);
    let shares = others.into_iter().map(|other| selectivity(other, table, row_count, facts));
    let within = ranges.into_iter().map(|[low, high]| {
        let of = |end: &Expr| selectivity(end, table, row_count, facts);
        range::within(of(low), of(high), range::column_of(low), table, facts)
    });
    let shares: Vec<f64> = shares.chain(within).collect();
    let independent = shares.iter().product();
    if shares.len() < 2 {
        return independent;
    }
    on_rows::share_of_all(&conditions, shares, table, facts).unwrap_or(independent)
}

/// Share of a table's rows for which `predicate` is true, in 0..=1.
pub fn selectivity(predicate: &Expr, table: &str, row_count: f64, facts: &dyn TableFacts) -> f64 {
    let of = |expr: &Expr| selectivity(expr, table, row_count, facts);
    let tried = |otherwise: f64| {
        let on_values = || on_values::share(predicate, table, facts).unwrap_or(otherwise);
        on_rows::share(predicate, table, facts, on_values)
    };
    let share = match predicate {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => match op {
            Operator::And => {
                let both = [left.as_ref().clone(), right.as_ref().clone()];
                selectivity_of_all(&both, table, row_count, facts)
            }
            Operator::Or => {
                let (a, b) = (of(left), of(right));
                // Two values of one column exclude each other.
                let excluding = range::equal_column(left).is_some()
                    && range::equal_column(left) == range::equal_column(right);
                if excluding { a + b } else { tried(a + b - a * b) }
            }
            Operator::Eq | Operator::IsNotDistinctFrom => {
                known_frequency(left, right, table, row_count, facts)
                    .unwrap_or_else(|| tried(equals(left, right, table, row_count, facts)))
            }
            Operator::NotEq | Operator::IsDistinctFrom => {
                let column = range::column(left).or(range::column(right));
                // NULL is distinct from all values, and not unequal to any.
                let null = match column {
                    Some(column) if *op == Operator::NotEq => known_nulls(column, table, facts),
                    _ => 0.0,
                };
                match known_frequency(left, right, table, row_count, facts) {
                    Some(share) => 1.0 - null - share,
                    None => tried(1.0 - null - equals(left, right, table, row_count, facts)),
                }
            }
            Operator::Lt | Operator::LtEq | Operator::Gt | Operator::GtEq => {
                range::comparison(left, *op, right, table, row_count, facts)
                    .unwrap_or_else(|| tried(RANGE))
            }
            Operator::RegexMatch
            | Operator::RegexIMatch
            | Operator::LikeMatch
            | Operator::ILikeMatch => tried(PATTERN),
            Operator::RegexNotMatch
            | Operator::RegexNotIMatch
            | Operator::NotLikeMatch
            | Operator::NotILikeMatch => tried(1.0 - PATTERN),
            _ => tried(UNKNOWN),
        },
        Expr::Not(inner) => tried(1.0 - of(inner)),
        Expr::IsNull(inner) => nulls(inner, table, facts),
        Expr::IsNotNull(inner) => 1.0 - nulls(inner, table, facts),
        Expr::Like(like) if like.negated => tried(1.0 - PATTERN),
        Expr::Like(_) => tried(PATTERN),
        Expr::Between(Between { expr, negated, low, high }) => {
            let share =
                range::between(expr, low, high, table, row_count, facts).unwrap_or(RANGE * RANGE);
            let null = range::column(expr).map_or(0.0, |column| known_nulls(column, table, facts));
            if *negated { 1.0 - null - share } else { share }
        }
        Expr::InList(list) => {
            let of_each =
                list.list.iter().map(|item| equals(&list.expr, item, table, row_count, facts));
            let known = range::column(&list.expr).and_then(|c| facts.column(table, c).statistics);
            let share = of_each.sum::<f64>().min(if known.is_some() { 1.0 } else { UNKNOWN });
            let null = range::column(&list.expr).map_or(0.0, |c| known_nulls(c, table, facts));
            if list.negated { 1.0 - null - share } else { share }
        }
        _ => tried(UNKNOWN),
    };
    share.clamp(0.0, 1.0)
}

/// Share of rows in which `expr` is NULL.
fn nulls(expr: &Expr, table: &str, facts: &dyn TableFacts) -> f64 {
    let known = range::column(expr).and_then(|column| facts.column(table, column).null_fraction);
    known.unwrap_or(IS_NULL)
}

/// Share of rows in which a column is NULL, as far as it is known.
fn known_nulls(column: &str, table: &str, facts: &dyn TableFacts) -> f64 {
    facts.column(table, column).null_fraction.unwrap_or(0.0)
}

/// Share of rows in which a column has a constant's value, as ANALYZE found it.
fn known_frequency(
    left: &Expr,
    right: &Expr,
    table: &str,
    row_count: f64,
    facts: &dyn TableFacts,
) -> Option<f64> {
    let (column, value) = match (range::column(left), range::constant(right)) {
        (Some(column), Some(value)) => (column, value),
        _ => (range::column(right)?, range::constant(left)?),
    };
    let known = facts.column(table, column).statistics?;
    Some(known.frequency(&range::as_values_of(&known, value)?, row_count))
}

/// Share of rows in which two expressions are equal.
fn equals(left: &Expr, right: &Expr, table: &str, row_count: f64, facts: &dyn TableFacts) -> f64 {
    if let Some(share) = known_frequency(left, right, table, row_count, facts) {
        return share;
    }
    let of = |expr: &Expr| equality_selectivity(expr, table, row_count, facts);
    of(left).min(of(right))
}

/// Share of rows in which `expr` has one given value.
fn equality_selectivity(expr: &Expr, table: &str, row_count: f64, facts: &dyn TableFacts) -> f64 {
    match expr {
        Expr::Column(column) => match facts.distinct_count(table, &column.name) {
            Some(distinct) => (1.0 - known_nulls(&column.name, table, facts)) / distinct.max(1.0),
            None => EQUALITY.max(1.0 / row_count),
        },
        Expr::Literal(..) => 1.0,
        _ => EQUALITY,
    }
}
