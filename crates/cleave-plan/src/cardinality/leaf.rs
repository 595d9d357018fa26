//! Estimates the rows of a leaf of a join tree: a table with conditions, or any other plan.

use std::sync::Arc;

use datafusion_common::arrow::buffer::BooleanBuffer;
use datafusion_expr::utils::split_conjunction;
use datafusion_expr::{Expr, FetchType, Join, JoinType, LogicalPlan};

use super::{LeafKey, ROW_COUNT_UNKNOWN, matching_rows, selectivity_of_all};
use crate::{SampledRows, TableFacts};

/// Groups that an aggregate makes of so many rows, where nothing tells.
const ROWS_PER_GROUP: f64 = 10.0;
/// The least share that a join without matches keeps.
const UNMATCHED_LEAST: f64 = 0.1;

/// A leaf of a join tree: where its rows come from and how many it keeps.
#[derive(Debug, Clone, Default)]
pub struct LeafEstimate {
    /// The table whose columns it has, where that is one.
    pub table: Option<String>,
    /// Rows before the predicate.
    pub row_count_base: f64,
    /// Rows after it, at least one.
    pub row_count: f64,
    /// Its key, where it is a table with conditions.
    pub key: Option<LeafKey>,
    /// Rows of the table, and which of them the leaf keeps.
    pub sample: Option<(Arc<SampledRows>, BooleanBuffer)>,
}

/// Estimates the rows that come out of `leaf`: a table scan with its filters, or any other plan.
pub fn estimate_leaf(leaf: &LogicalPlan, facts: &dyn TableFacts) -> LeafEstimate {
    let mut predicates = Vec::new();
    let mut node = leaf;
    let mut has_plain_names = true;
    loop {
        match node {
            LogicalPlan::Filter(filter) => {
                predicates.push(filter.predicate.clone());
                node = &filter.input;
            }
            LogicalPlan::SubqueryAlias(alias) => node = &alias.input,
            LogicalPlan::Projection(projection) => {
                has_plain_names &= projection.expr.iter().all(|e| matches!(e, Expr::Column(_)));
                node = &projection.input;
            }
            LogicalPlan::TableScan(scan) => {
                predicates.extend(scan.filters.iter().cloned());
                let table = scan.table_name.table();
                return of_table(table, &predicates, has_plain_names, facts);
            }
            other => return filtered(of_other(other, facts), &predicates, facts),
        }
    }
}

fn of_table(
    table: &str,
    predicates: &[Expr],
    has_plain_names: bool,
    facts: &dyn TableFacts,
) -> LeafEstimate {
    let row_count_base = facts.row_count(table).unwrap_or(ROW_COUNT_UNKNOWN).max(1.0);
    let kept = selectivity_of_all(predicates, table, row_count_base, facts);
    let row_count = (row_count_base * kept).max(1.0);
    if !has_plain_names {
        return LeafEstimate { row_count_base, row_count, ..LeafEstimate::default() };
    }
    let conditions: Vec<&Expr> = predicates.iter().flat_map(split_conjunction).collect();
    let sample = facts.sample(table).and_then(|sample| {
        let matching = matching_rows(&conditions, &sample)?;
        Some((sample, matching))
    });
    let key = Some(LeafKey::new(table, predicates));
    LeafEstimate { table: Some(table.to_owned()), row_count_base, row_count, key, sample }
}

/// The rows that `predicates` leave of an input that is no table.
fn filtered(estimate: LeafEstimate, predicates: &[Expr], facts: &dyn TableFacts) -> LeafEstimate {
    let table = estimate.table.as_deref().unwrap_or_default();
    let kept = selectivity_of_all(predicates, table, estimate.row_count_base, facts);
    LeafEstimate { row_count: (estimate.row_count * kept).max(1.0), ..estimate }
}

/// Rows of a plan that is no table with conditions.
fn of_other(plan: &LogicalPlan, facts: &dyn TableFacts) -> LeafEstimate {
    let of = |plan: &LogicalPlan| estimate_leaf(plan, facts).row_count;
    let rows = match plan {
        LogicalPlan::Join(join) => return of_join(join, facts),
        LogicalPlan::Aggregate(aggregate) if aggregate.group_expr.is_empty() => 1.0,
        LogicalPlan::Aggregate(aggregate) => of(&aggregate.input) / ROWS_PER_GROUP,
        LogicalPlan::Limit(limit) => match limit.get_fetch_type() {
            Ok(FetchType::Literal(Some(fetch))) => of(&limit.input).min(fetch as f64),
            _ => of(&limit.input),
        },
        LogicalPlan::Union(union) => union.inputs.iter().map(|input| of(input)).sum(),
        LogicalPlan::EmptyRelation(_) => 1.0,
        LogicalPlan::Values(values) => values.values.len() as f64,
        other => match other.inputs().as_slice() {
            [only] => of(only),
            _ => ROW_COUNT_UNKNOWN,
        },
    };
    let rows = rows.max(1.0);
    LeafEstimate { row_count_base: rows, row_count: rows, ..LeafEstimate::default() }
}

/// A join outside of trees of inner joins. One that keeps rows of one side only keeps that side's table.
fn of_join(join: &Join, facts: &dyn TableFacts) -> LeafEstimate {
    let (left, right) = (estimate_leaf(&join.left, facts), estimate_leaf(&join.right, facts));
    let (l, r) = (left.row_count, right.row_count);
    let matching = if join.on.is_empty() {
        l * r
    } else {
        l * r / left.row_count_base.max(right.row_count_base).max(1.0)
    };
    let with_match = |own: &LeafEstimate, other: &LeafEstimate| {
        own.row_count * (other.row_count / other.row_count_base.max(1.0)).min(1.0)
    };
    let without_match = |own: &LeafEstimate, other: &LeafEstimate| {
        (own.row_count - with_match(own, other)).max(own.row_count * UNMATCHED_LEAST)
    };
    let (of_one_side, rows) = match join.join_type {
        JoinType::Inner => (None, matching),
        JoinType::Left => (None, matching.max(l)),
        JoinType::Right => (None, matching.max(r)),
        JoinType::Full => (None, matching.max(l).max(r)),
        JoinType::LeftSemi => (Some(&left), with_match(&left, &right)),
        JoinType::RightSemi => (Some(&right), with_match(&right, &left)),
        JoinType::LeftAnti => (Some(&left), without_match(&left, &right)),
        JoinType::RightAnti => (Some(&right), without_match(&right, &left)),
        JoinType::LeftMark => (Some(&left), l),
        JoinType::RightMark => (Some(&right), r),
    };
    let row_count = rows.max(1.0);
    LeafEstimate {
        table: of_one_side.and_then(|side| side.table.clone()),
        row_count_base: of_one_side.map_or(row_count, |side| side.row_count_base),
        row_count,
        ..LeafEstimate::default()
    }
}
