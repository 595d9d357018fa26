//! Decides which subqueries DataFusion's own rules turn into joins with PostgreSQL's meaning.

use cleave_fragment::walk::{Walk, WalkPlan};
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::Result;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{
    Aggregate, Distinct, EmptyRelation, Expr, FetchType, JoinType, LogicalPlan,
};
use datafusion::optimizer::decorrelate::PullUpCorrelatedExpr;

use super::outer_references::{has_subquery, is_correlated};

/// Whether `plan` always has exactly one row.
pub(super) fn has_one_row(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Aggregate(aggregate) => aggregate.group_expr.is_empty(),
        LogicalPlan::EmptyRelation(EmptyRelation { produce_one_row, .. }) => *produce_one_row,
        LogicalPlan::Projection(_) | LogicalPlan::SubqueryAlias(_) | LogicalPlan::Sort(_) => {
            plan.inputs().into_iter().all(has_one_row)
        }
        _ => false,
    }
}

/// Whether `plan` never has several rows.
pub(super) fn has_one_row_at_most(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Limit(limit) => {
            matches!(limit.get_fetch_type(), Ok(FetchType::Literal(Some(0 | 1))))
                || has_one_row_at_most(&limit.input)
        }
        LogicalPlan::Projection(_)
        | LogicalPlan::SubqueryAlias(_)
        | LogicalPlan::Sort(_)
        | LogicalPlan::Filter(_)
        | LogicalPlan::Distinct(_)
        | LogicalPlan::Window(_) => plan.inputs().into_iter().all(has_one_row_at_most),
        plan => has_one_row(plan),
    }
}

/// Whether EXISTS or IN of `plan`, as a condition, is left to DataFusion.
pub(super) fn is_range_of_condition(plan: &LogicalPlan) -> Result<bool> {
    if !is_correlated(plan)? {
        return Ok(true);
    }
    Ok(is_range(plan)? && is_pulled_up(plan, true))
}

/// Whether a scalar subquery is an aggregate of the rows whose columns equal outer ones.
pub(super) fn is_aggregate_of_equals(plan: &LogicalPlan) -> Result<bool> {
    Ok(match plan {
        LogicalPlan::Projection(_) | LogicalPlan::SubqueryAlias(_) | LogicalPlan::Subquery(_) => {
            let is_plain =
                !names_what_is_around(plan)? && !plan.expressions().iter().any(has_subquery);
            let [input] = plan.inputs()[..] else { return Ok(false) };
            is_plain && is_aggregate_of_equals(input)?
        }
        LogicalPlan::Aggregate(Aggregate { group_expr, input, .. }) => {
            group_expr.is_empty()
                && !names_what_is_around(plan)?
                && !plan.expressions().iter().any(has_subquery)
                && is_range(input)?
                && is_pulled_up(plan, false)
        }
        _ => false,
    })
}

/// Whether all outer references of `plan` are in conditions that hold above all of it as well.
fn is_range(plan: &LogicalPlan) -> Result<bool> {
    if !is_correlated(plan)? {
        return Ok(true);
    }
    let is_plain = !plan.expressions().iter().any(has_subquery);
    let is_own = match plan {
        LogicalPlan::Filter(_) => !names_both(plan)?,
        // Not those of a table of its own name: DataFusion would look for the columns that a condition needs by their
        // names below it.
        LogicalPlan::Projection(_)
        | LogicalPlan::Subquery(_)
        | LogicalPlan::Distinct(Distinct::All(_)) => !names_what_is_around(plan)?,
        LogicalPlan::Join(join) => {
            join.join_type == JoinType::Inner
                && !super::is_lateral(&join.right)
                && !names_what_is_around(plan)?
        }
        _ => false,
    };
    if !is_plain || !is_own {
        return Ok(false);
    }
    plan.inputs().into_iter().try_fold(true, |all, input| Ok(all && is_range(input)?))
}

fn names_what_is_around(node: &LogicalPlan) -> Result<bool> {
    let mut names = false;
    node.each_expression(|expression| {
        names |= expression.contains_outer();
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(names)
}

/// Whether `node` names an outer column by the same name as a column of its input: after DataFusion's pull-up both
/// would have one name.
fn names_both(node: &LogicalPlan) -> Result<bool> {
    let below = merge_schema(&node.inputs());
    let mut names_both = false;
    node.each_expression(|expression| {
        expression.apply(|part| {
            if let Expr::OuterReferenceColumn(_, column) = part {
                names_both |= below.has_column(column);
            }
            Ok(TreeNodeRecursion::Continue)
        })
    })?;
    Ok(names_both)
}

fn is_pulled_up(plan: &LogicalPlan, is_range: bool) -> bool {
    #[expect(
        clippy::disallowed_types,
        reason = "a rewriter has no walk that is compiled once"
    )]
    use datafusion::common::tree_node::TreeNode;
    let mut pull_up = PullUpCorrelatedExpr::new()
        .with_exists_sub_query(is_range)
        .with_need_handle_count_bug(!is_range);
    TreeNode::rewrite(plan.clone(), &mut pull_up).is_ok() && pull_up.can_pull_up
}
