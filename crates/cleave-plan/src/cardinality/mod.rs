//! Estimates of how many rows a leaf keeps: table sizes and the shape of the predicate in, rows out.
//!
//! What is known of a column's values is used: its number of distinct values for equality, its least and greatest
//! for [`range`]s, its NULLs. Otherwise each kind of comparison has a fixed selectivity (System R's approach; the
//! constants for equality and patterns are PostgreSQL's defaults).

use datafusion_expr::{Between, BinaryExpr, Expr, LogicalPlan, Operator};

use crate::TableFacts;

mod range;
#[cfg(test)]
mod tests;

/// Rows of a table that nothing is known about.
const ROW_COUNT_UNKNOWN: f64 = 1000.0;
const EQUALITY: f64 = 0.005;
const RANGE: f64 = 1.0 / 3.0;
const PATTERN: f64 = 0.02;
const IS_NULL: f64 = 0.1;
const UNKNOWN: f64 = 0.5;

/// A leaf of a join tree: where its rows come from and how many it keeps.
#[derive(Debug, Clone)]
pub struct LeafEstimate {
    /// The table, where the leaf is one.
    pub table: Option<String>,
    /// Rows before the predicate.
    pub row_count_base: f64,
    /// Rows after it, at least one.
    pub row_count: f64,
}

/// Estimates the rows that come out of `leaf`: a table scan with its filters, or any other plan.
pub fn estimate_leaf(leaf: &LogicalPlan, facts: &dyn TableFacts) -> LeafEstimate {
    let mut predicates = Vec::new();
    let mut node = leaf;
    loop {
        match node {
            LogicalPlan::Filter(filter) => {
                predicates.push(filter.predicate.clone());
                node = &filter.input;
            }
            LogicalPlan::SubqueryAlias(alias) => node = &alias.input,
            LogicalPlan::Projection(projection) => node = &projection.input,
            LogicalPlan::TableScan(scan) => {
                predicates.extend(scan.filters.iter().cloned());
                let table = scan.table_name.table().to_owned();
                let base = facts.row_count(&table).unwrap_or(ROW_COUNT_UNKNOWN).max(1.0);
                let kept: f64 =
                    predicates.iter().map(|p| selectivity(p, &table, base, facts)).product();
                let row_count = (base * kept).max(1.0);
                return LeafEstimate { table: Some(table), row_count_base: base, row_count };
            }
            LogicalPlan::Aggregate(aggregate) if aggregate.group_expr.is_empty() => {
                return LeafEstimate { table: None, row_count_base: 1.0, row_count: 1.0 };
            }
            _ => {
                return LeafEstimate {
                    table: None,
                    row_count_base: ROW_COUNT_UNKNOWN,
                    row_count: ROW_COUNT_UNKNOWN,
                };
            }
        }
    }
}

/// Share of a table's rows for which `predicate` is true, in 0..=1.
pub fn selectivity(predicate: &Expr, table: &str, row_count: f64, facts: &dyn TableFacts) -> f64 {
    let of = |expr: &Expr| selectivity(expr, table, row_count, facts);
    let equality = |expr: &Expr| equality_selectivity(expr, table, row_count, facts);
    let share = match predicate {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => match op {
            Operator::And => of(left) * of(right),
            Operator::Or => {
                let (a, b) = (of(left), of(right));
                a + b - a * b
            }
            Operator::Eq | Operator::IsNotDistinctFrom => equality(left).min(equality(right)),
            Operator::NotEq | Operator::IsDistinctFrom => 1.0 - equality(left).min(equality(right)),
            Operator::Lt | Operator::LtEq | Operator::Gt | Operator::GtEq => {
                range::comparison(left, *op, right, table, facts).unwrap_or(RANGE)
            }
            Operator::RegexMatch
            | Operator::RegexIMatch
            | Operator::LikeMatch
            | Operator::ILikeMatch => PATTERN,
            Operator::RegexNotMatch
            | Operator::RegexNotIMatch
            | Operator::NotLikeMatch
            | Operator::NotILikeMatch => 1.0 - PATTERN,
            _ => UNKNOWN,
        },
        Expr::Not(inner) => 1.0 - of(inner),
        Expr::IsNull(inner) => nulls(inner, table, facts),
        Expr::IsNotNull(inner) => 1.0 - nulls(inner, table, facts),
        Expr::Like(like) if like.negated => 1.0 - PATTERN,
        Expr::Like(_) => PATTERN,
        Expr::Between(Between { expr, negated, low, high }) => {
            let share = range::between(expr, low, high, table, facts).unwrap_or(RANGE * RANGE);
            if *negated { 1.0 - share } else { share }
        }
        Expr::InList(list) => {
            let share = (equality(&list.expr) * list.list.len() as f64).min(UNKNOWN);
            if list.negated { 1.0 - share } else { share }
        }
        _ => UNKNOWN,
    };
    share.clamp(0.0, 1.0)
}

/// Share of rows in which `expr` is NULL.
fn nulls(expr: &Expr, table: &str, facts: &dyn TableFacts) -> f64 {
    let known = range::column(expr).and_then(|column| facts.column(table, column).null_fraction);
    known.unwrap_or(IS_NULL)
}

/// Share of rows in which `expr` has one given value.
fn equality_selectivity(expr: &Expr, table: &str, row_count: f64, facts: &dyn TableFacts) -> f64 {
    match expr {
        Expr::Column(column) => facts
            .distinct_count(table, &column.name)
            .map_or_else(|| EQUALITY.max(1.0 / row_count), |distinct| 1.0 / distinct.max(1.0)),
        Expr::Literal(..) => 1.0,
        _ => EQUALITY,
    }
}
