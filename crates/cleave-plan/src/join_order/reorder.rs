//! Takes inner-join trees of a logical plan apart, orders them, and puts them together again.

use std::collections::BTreeSet;
use std::sync::Arc;

use datafusion_common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion_common::{Column, NullEquality, Result};
use datafusion_expr::utils::{conjunction, split_conjunction_owned};
use datafusion_expr::{Expr, Join, JoinConstraint, JoinType, LogicalPlan, LogicalPlanBuilder};

use super::greedy::{Edge, JoinTree, greedy_order};
use crate::TableFacts;
use crate::cardinality::{LeafEstimate, estimate_leaf};

/// Reorders every tree of inner joins in `plan`; the result has the same columns in the same order.
pub fn reorder_joins(plan: LogicalPlan, facts: &dyn TableFacts) -> Result<LogicalPlan> {
    let reordered = plan.transform_down(|node| {
        if !is_inner_join(&node) {
            return Ok(Transformed::no(node));
        }
        let tree = reorder_tree(node, facts)?;
        // The leaves are done already; going on into the new tree would not end.
        Ok(Transformed::new(tree, true, TreeNodeRecursion::Jump))
    })?;
    Ok(reordered.data)
}

fn is_inner_join(plan: &LogicalPlan) -> bool {
    matches!(plan, LogicalPlan::Join(join) if joins_freely(join))
}

/// Whether the inputs of `join` may be joined in any order.
fn joins_freely(join: &Join) -> bool {
    join.join_type == JoinType::Inner
        && join.null_equality == NullEquality::NullEqualsNothing
        && !join.filter.as_ref().is_some_and(Expr::is_volatile)
}

/// A tree of inner joins, taken apart.
#[derive(Default)]
struct Parts {
    leaves: Vec<LogicalPlan>,
    /// Equalities between an expression of one leaf and one of another.
    equalities: Vec<Equality>,
    /// Everything else that joins or filters.
    conditions: Vec<Expr>,
}

struct Equality {
    sides: [Expr; 2],
    /// The leaf of each side.
    leaves: [usize; 2],
}

fn reorder_tree(root: LogicalPlan, facts: &dyn TableFacts) -> Result<LogicalPlan> {
    let columns: Vec<Expr> = root.schema().columns().into_iter().map(Expr::Column).collect();
    let mut parts = Parts::default();
    let mut pairs = Vec::new();
    take_apart(root.clone(), &mut parts, &mut pairs)?;
    if shares_columns(&parts.leaves) {
        // A derived table hid one of two columns of one name; in one join they would meet.
        return root
            .map_children(|child| Ok(Transformed::yes(reorder_joins(child, facts)?)))
            .data();
    }
    parts.leaves = parts
        .leaves
        .into_iter()
        .map(|leaf| leaf.map_children(|child| Ok(Transformed::yes(reorder_joins(child, facts)?))))
        .map(|leaf| leaf.map(|leaf| leaf.data))
        .collect::<Result<_>>()?;
    for (left, right) in pairs {
        match (leaf_of(&left, &parts.leaves), leaf_of(&right, &parts.leaves)) {
            (Some(a), Some(b)) if a != b => {
                parts.equalities.push(Equality { sides: [left, right], leaves: [a, b] });
            }
            _ => parts.conditions.push(left.eq(right)),
        }
    }
    let estimates: Vec<LeafEstimate> =
        parts.leaves.iter().map(|leaf| estimate_leaf(leaf, facts)).collect();
    let sizes: Vec<f64> = estimates.iter().map(|estimate| estimate.row_count).collect();
    let edges: Vec<Edge> =
        parts.equalities.iter().map(|equality| edge(equality, &estimates, facts)).collect();
    let Some(order) = greedy_order(&sizes, &edges) else {
        return datafusion_common::internal_err!("a join tree without inputs");
    };
    let mut conditions = parts.conditions;
    let (joined, _) = put_together(&order, &parts.leaves, &parts.equalities, &mut conditions)?;
    let mut builder = LogicalPlanBuilder::from(joined);
    if let Some(rest) = conjunction(conditions) {
        builder = builder.filter(rest)?;
    }
    builder.project(columns)?.build()
}

/// Collects the leaves below `node`, the equality pairs and the other conditions.
fn take_apart(node: LogicalPlan, parts: &mut Parts, pairs: &mut Vec<(Expr, Expr)>) -> Result<()> {
    match node {
        LogicalPlan::Join(join) if joins_freely(&join) => {
            pairs.extend(join.on);
            if let Some(filter) = join.filter {
                parts.conditions.extend(split_conjunction_owned(filter));
            }
            take_apart(Arc::unwrap_or_clone(join.left), parts, pairs)?;
            take_apart(Arc::unwrap_or_clone(join.right), parts, pairs)
        }
        LogicalPlan::Filter(filter)
            if !filter.predicate.is_volatile() && is_join_below(&filter.input) =>
        {
            parts.conditions.extend(split_conjunction_owned(filter.predicate));
            take_apart(Arc::unwrap_or_clone(filter.input), parts, pairs)
        }
        // A projection that only drops columns; what is needed is projected again at the end.
        LogicalPlan::Projection(projection)
            if is_join_below(&projection.input)
                && projection.expr.iter().all(|expr| matches!(expr, Expr::Column(_))) =>
        {
            take_apart(Arc::unwrap_or_clone(projection.input), parts, pairs)
        }
        leaf => {
            parts.leaves.push(leaf);
            Ok(())
        }
    }
}

fn is_join_below(plan: &LogicalPlan) -> bool {
    match plan {
        // How often random() is called is part of what it means: such a filter stays where it is.
        LogicalPlan::Filter(filter) => {
            !filter.predicate.is_volatile() && is_join_below(&filter.input)
        }
        LogicalPlan::Projection(projection) => {
            projection.expr.iter().all(|expr| matches!(expr, Expr::Column(_)))
                && is_join_below(&projection.input)
        }
        other => is_inner_join(other),
    }
}

/// Whether two leaves have a column of one table and name.
fn shares_columns(leaves: &[LogicalPlan]) -> bool {
    let mut seen = BTreeSet::new();
    !leaves.iter().flat_map(|leaf| leaf.schema().columns()).all(|column| seen.insert(column))
}

/// The one leaf that has every column of `expr`; `None` for a constant or several leaves.
fn leaf_of(expr: &Expr, leaves: &[LogicalPlan]) -> Option<usize> {
    let columns = expr.column_refs();
    if columns.is_empty() {
        return None;
    }
    leaves.iter().position(|leaf| columns.iter().all(|column| has_column(leaf, column)))
}

fn has_column(plan: &LogicalPlan, column: &Column) -> bool {
    plan.schema().has_column(column)
}

fn edge(equality: &Equality, estimates: &[LeafEstimate], facts: &dyn TableFacts) -> Edge {
    let [left, right] = equality.leaves;
    let (one, other) = (side(equality, 0, estimates, facts), side(equality, 1, estimates, facts));
    let distinct_count = match (one.distinct_count, other.distinct_count) {
        (Some(one), Some(other)) => one.max(other),
        // The row count stands in for what is not known; a key of the other side bounds it.
        (Some(known), None) => known.min(other.row_count),
        (None, Some(known)) => known.min(one.row_count),
        (None, None) => one.row_count.min(other.row_count),
    };
    // NULL equals nothing.
    let joining = (one.value_fraction * other.value_fraction).max(f64::MIN_POSITIVE);
    Edge { left, right, distinct_count: (distinct_count / joining).max(1.0) }
}

/// What is known of one side of an equality.
struct Side {
    row_count: f64,
    distinct_count: Option<f64>,
    /// Share of rows that are not NULL.
    value_fraction: f64,
}

fn side(
    equality: &Equality,
    place: usize,
    estimates: &[LeafEstimate],
    facts: &dyn TableFacts,
) -> Side {
    let estimate = estimates.get(equality.leaves[place]);
    let row_count = estimate.map_or(1.0, |estimate| estimate.row_count_base);
    let column = match (&equality.sides[place], estimate.and_then(|e| e.table.as_deref())) {
        (Expr::Column(column), Some(table)) => Some((table, &column.name)),
        _ => None,
    };
    let null = column.and_then(|(table, column)| facts.column(table, column).null_fraction);
    Side {
        row_count,
        distinct_count: column.and_then(|(table, column)| facts.distinct_count(table, column)),
        value_fraction: 1.0 - null.unwrap_or(0.0),
    }
}

/// Builds `tree`; returns the plan and the leaves in it. Conditions that it could apply are taken
/// out of `conditions`.
fn put_together(
    tree: &JoinTree,
    leaves: &[LogicalPlan],
    equalities: &[Equality],
    conditions: &mut Vec<Expr>,
) -> Result<(LogicalPlan, BTreeSet<usize>)> {
    let (left, right) = match tree {
        JoinTree::Leaf(leaf) => {
            let plan = leaves.get(*leaf).cloned().ok_or_else(|| {
                datafusion_common::internal_datafusion_err!("join order names leaf {leaf}")
            })?;
            return Ok((plan, BTreeSet::from([*leaf])));
        }
        JoinTree::Join(left, right) => (left, right),
    };
    let (left, left_leaves) = put_together(left, leaves, equalities, conditions)?;
    let (right, right_leaves) = put_together(right, leaves, equalities, conditions)?;
    let mut on = Vec::new();
    for Equality { sides: [a, b], leaves: [leaf_a, leaf_b] } in equalities {
        if left_leaves.contains(leaf_a) && right_leaves.contains(leaf_b) {
            on.push((a.clone(), b.clone()));
        } else if left_leaves.contains(leaf_b) && right_leaves.contains(leaf_a) {
            on.push((b.clone(), a.clone()));
        }
    }
    let applies = |condition: &Expr| {
        condition.column_refs().iter().all(|c| has_column(&left, c) || has_column(&right, c))
    };
    let (here, later): (Vec<Expr>, Vec<Expr>) = conditions.drain(..).partition(applies);
    *conditions = later;
    let join = Join::try_new(
        Arc::new(left),
        Arc::new(right),
        on,
        conjunction(here),
        JoinType::Inner,
        JoinConstraint::On,
        NullEquality::NullEqualsNothing,
        false,
    )?;
    let all = left_leaves.union(&right_leaves).copied().collect();
    Ok((LogicalPlan::Join(join), all))
}

#[cfg(test)]
mod tests;
