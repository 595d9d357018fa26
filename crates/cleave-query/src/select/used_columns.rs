//! Whether a view's query uses a column: the bound query in, an answer out.
//!
//! A plan that is not optimised names every column that the text names, and those that `*`, USING and NATURAL stand
//! for, by the table's name or alias. Columns of a `*` that the view does not show, since they are younger than it, do
//! not count.
//!
//! Invariant: an unused column can be dropped, and the view gives the same rows, if its query can still be bound:
//! without the column a name may mean another one, but then it is a name that meant the column before.

use cleave_fragment::walk::{Walk, WalkPlan};
use std::collections::BTreeSet;
use std::sync::Arc;

use cleave_catalog::catalog::view::ViewState;
use cleave_catalog::error::Result;
use cleave_catalog::settings::Settings;
use cleave_sql::statement::locked_parts::GivenRows;
use cleave_sql::statement::parse::parse_query;
use datafusion::common::Column;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::Result as EngineResult;
use datafusion::logical_expr::{Expr, LogicalPlan};

use super::views::{source_names, without_schema};
use super::{ReadView, bind};
use crate::query_engine::QueryEngine;

/// Whether the query of `view`, bound to `state`, uses `column` of the table `table`.
///
/// # Errors
/// Those of binding it.
pub async fn uses_column(
    (database, settings, state): (&Arc<QueryEngine>, &Settings, &ReadView),
    view: &ViewState,
    (table, column): (&str, &str),
) -> Result<bool> {
    let plan = bound((database, settings, state), view).await?;
    let mut names = BTreeSet::new();
    plan.apply_everywhere(|node| {
        note_names(node, table, &mut names);
        Ok(TreeNodeRecursion::Continue)
    })?;
    let is_it = |found: &Column| {
        found.name == column && found.relation.as_ref().is_some_and(|of| names.contains(of.table()))
    };
    let mut top = shown(&plan).map(|node| (node, source_names(node)));
    let mut is_used = false;
    plan.apply_everywhere(|node| {
        let own = top.take_if(|(top, _)| std::ptr::eq(*top, node)).map(|(_, names)| names);
        let mut place = 0;
        node.each_expression(|expression| {
            let is_shown = own.as_ref().is_none_or(|names| {
                names.get(place).is_none_or(|name| view.sources.contains(name))
            });
            place += 1;
            if is_shown {
                is_used |= speaks_of(expression, &is_it)?;
            }
            Ok(TreeNodeRecursion::Continue)
        })
    })?;
    Ok(is_used)
}

/// Whether the query of `view` can be bound to `state`, with the columns that the view shows.
pub async fn is_whole(by: (&Arc<QueryEngine>, &Settings, &ReadView), view: &ViewState) -> bool {
    let Ok(plan) = bound(by, view).await else { return false };
    let names = source_names(&plan);
    let has = |name: &str| names.iter().any(|known| known == name);
    view.sources.iter().all(|source| has(source) || has(without_schema(source)))
}

async fn bound(
    (database, settings, state): (&Arc<QueryEngine>, &Settings, &ReadView),
    view: &ViewState,
) -> Result<LogicalPlan> {
    let query = parse_query(view.query.clone())?;
    let given = GivenRows::default();
    let (bound, _) = bind(database, settings, Some(state), *query, &given, |_| Ok(())).await?;
    Ok(bound.logical)
}

/// The projection that makes the columns of the result.
fn shown(plan: &LogicalPlan) -> Option<&LogicalPlan> {
    match plan {
        LogicalPlan::Projection(_) => Some(plan),
        LogicalPlan::Sort(sort) => shown(&sort.input),
        LogicalPlan::Limit(limit) => shown(&limit.input),
        _ => None,
    }
}

/// Adds what `node` calls the table.
fn note_names(node: &LogicalPlan, table: &str, names: &mut BTreeSet<String>) {
    let is_scan = |plan: &LogicalPlan| match plan {
        LogicalPlan::TableScan(scan) => scan.table_name.table() == table,
        _ => false,
    };
    match node {
        LogicalPlan::SubqueryAlias(alias) if is_scan(&alias.input) => {
            names.insert(alias.alias.table().to_owned());
        }
        plan if is_scan(plan) => {
            names.insert(table.to_owned());
        }
        _ => {}
    }
}

fn speaks_of(expression: &Expr, is_it: &impl Fn(&Column) -> bool) -> EngineResult<bool> {
    expression.exists(|part| {
        Ok(match part {
            Expr::Column(column) | Expr::OuterReferenceColumn(_, column) => is_it(column),
            _ => false,
        })
    })
}
