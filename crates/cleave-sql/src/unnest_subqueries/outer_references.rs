//! Outer references of a subquery: finds and replaces columns of the enclosing queries.
//!
//! A column belongs to the nearest enclosing query that has it, as at binding. The *scopes* in between are the inputs
//! of the nodes that contain a further subquery, and the left side of a lateral join.

use cleave_fragment::walk::{Walk, WalkPlan};
use datafusion::arrow::datatypes::FieldRef;
use datafusion::common::tree_node::{Transformed, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema};
use datafusion::error::Result;
use datafusion::logical_expr::expr::{Exists, InSubquery, SetComparison};
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{Expr, LogicalPlan, Subquery};

/// The replacement of an outer column: the column, and the number of queries in between (0: none).
type Replace<'a> = dyn FnMut(&FieldRef, &Column, usize) -> Option<Expr> + 'a;

/// The outer columns that `plan` names, each once.
pub(super) fn outer_columns(plan: &LogicalPlan) -> Result<Vec<Column>> {
    let mut columns = Vec::new();
    let mut note = |_: &FieldRef, column: &Column, _: usize| {
        if !columns.contains(column) {
            columns.push(column.clone());
        }
        None
    };
    replace_in_plan(plan.clone(), &mut Vec::new(), &mut note)?;
    Ok(columns)
}

/// Whether `plan` names an outer column.
pub(super) fn is_correlated(plan: &LogicalPlan) -> Result<bool> {
    Ok(!outer_columns(plan)?.is_empty())
}

/// `expression` of a node over `input`, with its outer columns replaced.
pub(super) fn replace_in(
    expression: Expr,
    input: &DFSchema,
    replace: &mut Replace<'_>,
) -> Result<Expr> {
    replace_in_expression(expression, input, &mut Vec::new(), replace)
}

/// Whether a subquery stands within `expression`.
pub(super) fn has_subquery(expression: &Expr) -> bool {
    expression.exists(|part| Ok(subquery_of(part).is_some())).unwrap_or(true)
}

/// The subquery that `expression` itself contains directly.
pub(crate) fn subquery_of(expression: &Expr) -> Option<&Subquery> {
    match expression {
        Expr::ScalarSubquery(subquery)
        | Expr::Exists(Exists { subquery, .. })
        | Expr::InSubquery(InSubquery { subquery, .. })
        | Expr::SetComparison(SetComparison { subquery, .. }) => Some(subquery),
        _ => None,
    }
}

/// Whether there is a subquery or a lateral join anywhere in `plan`.
pub(super) fn has_any_subquery(plan: &LogicalPlan) -> Result<bool> {
    plan.exists(|node| {
        let mut found = matches!(node, LogicalPlan::Subquery(_));
        node.each_expression(|expression| {
            found |= has_subquery(expression);
            Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
        })?;
        Ok(found)
    })
}

/// `subquery` over another plan.
pub(crate) fn over(subquery: &Subquery, plan: LogicalPlan) -> Subquery {
    let outer_ref_columns = plan.all_out_ref_exprs();
    Subquery { subquery: plan.into(), outer_ref_columns, spans: subquery.spans.clone() }
}

/// The right side of a lateral join: a subquery, with or without a name.
pub(super) fn is_lateral(right: &LogicalPlan) -> bool {
    match right {
        LogicalPlan::Subquery(_) => true,
        LogicalPlan::SubqueryAlias(alias) => matches!(*alias.input, LogicalPlan::Subquery(_)),
        _ => false,
    }
}

fn replace_in_plan(
    plan: LogicalPlan,
    scopes: &mut Vec<DFSchema>,
    replace: &mut Replace<'_>,
) -> Result<LogicalPlan> {
    let plan = replace_in_node(plan, scopes, replace)?;
    match plan {
        LogicalPlan::Join(mut join) if is_lateral(&join.right) => {
            let left = replace_in_plan((*join.left).clone(), scopes, replace)?;
            scopes.push(left.schema().as_ref().clone());
            let right = replace_in_plan((*join.right).clone(), scopes, replace);
            scopes.pop();
            (join.left, join.right) = (left.into(), right?.into());
            Ok(LogicalPlan::Join(join))
        }
        plan => Ok(plan
            .map_children(|child| Ok(Transformed::yes(replace_in_plan(child, scopes, replace)?)))?
            .data),
    }
}

fn replace_in_node(
    node: LogicalPlan,
    scopes: &mut Vec<DFSchema>,
    replace: &mut Replace<'_>,
) -> Result<LogicalPlan> {
    let schema = merge_schema(&node.inputs());
    let replaced = node.change_expressions(|expression| {
        Ok(Transformed::yes(replace_in_expression(expression, &schema, scopes, replace)?))
    })?;
    Ok(replaced.data)
}

fn replace_in_expression(
    expression: Expr,
    input: &DFSchema,
    scopes: &mut Vec<DFSchema>,
    replace: &mut Replace<'_>,
) -> Result<Expr> {
    let replaced = expression.transform_up(|part| {
        if let Expr::OuterReferenceColumn(field, column) = &part {
            let is_near = scopes.iter().any(|scope| scope.has_column(column));
            let replaced = if is_near { None } else { replace(field, column, scopes.len()) };
            return Ok(replaced.map_or(Transformed::no(part), Transformed::yes));
        }
        let Some(subquery) = subquery_of(&part) else { return Ok(Transformed::no(part)) };
        scopes.push(input.clone());
        let plan = replace_in_plan(subquery.subquery.as_ref().clone(), scopes, replace);
        scopes.pop();
        let subquery = over(subquery, plan?);
        Ok(Transformed::yes(with_subquery(part, subquery)))
    })?;
    Ok(replaced.data)
}

/// `expression` over another subquery.
pub(crate) fn with_subquery(expression: Expr, subquery: Subquery) -> Expr {
    match expression {
        Expr::ScalarSubquery(_) => Expr::ScalarSubquery(subquery),
        Expr::Exists(exists) => Expr::Exists(Exists { subquery, ..exists }),
        Expr::InSubquery(contained) => Expr::InSubquery(InSubquery { subquery, ..contained }),
        Expr::SetComparison(compared) => {
            Expr::SetComparison(SetComparison { subquery, ..compared })
        }
        other => other,
    }
}
