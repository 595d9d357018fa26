//! Columns of a table that is grouped by its primary key: each group has one value of them, so that they need not be in
//! GROUP BY. DataFusion wants them there.
//!
//! ```text
//!  SELECT t.id, t.name, count(*) … GROUP BY t.id  ─▶  … GROUP BY t.id, t.name
//! ```
//!
//! Source: PostgreSQL's `check_functional_grouping`.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{self, Expr, SelectItem, SelectItemQualifiedWildcardKind};

use super::super::places::listed;
use super::from::{FromItem, Leaf};
use crate::statement::names::fold;
use crate::visiting::visit_expressions;

/// Adds to GROUP BY the columns of tables that are grouped by their primary keys, as far as `select` and `order_by`
/// name them.
pub(super) fn group_by_dependent(
    select: &mut ast::Select,
    order_by: Option<&ast::OrderBy>,
    from: &[FromItem],
) {
    let ast::GroupByExpr::Expressions(groups, modifiers) = &select.group_by else { return };
    let leaves = || from.iter().flat_map(|item| item.leaves.iter());
    if groups.is_empty() || !modifiers.is_empty() || leaves().all(|leaf| leaf.key.is_empty()) {
        return;
    }
    let is_set =
        |group: &Expr| matches!(group, Expr::Rollup(_) | Expr::Cube(_) | Expr::GroupingSets(_));
    if groups.iter().any(is_set) {
        return;
    }
    // The table of a column, and its name: by its table, or if only one has it.
    let table_of = |expr: &Expr| -> Option<(String, String)> {
        if let Expr::CompoundIdentifier(parts) = expr {
            let [.., table, column] = parts.as_slice() else { return None };
            return Some((fold(table), fold(column)));
        }
        let Expr::Identifier(name) = expr else { return None };
        let name = fold(name);
        let mut having = leaves().filter(|leaf| leaf.has(&name) != Some(false));
        match (having.next(), having.next()) {
            (Some(leaf), None) => Some((leaf.called.clone(), name)),
            _ => None,
        }
    };
    let of_group = |group: &Expr| {
        table_of(group).or_else(|| table_of(listed(group, &select.projection, true)?))
    };
    let grouped: Vec<(String, String)> = parts(groups).into_iter().filter_map(of_group).collect();
    let is_grouped = |leaf: &Leaf, column: &str| {
        grouped.iter().any(|(table, name)| *table == leaf.called && name == column)
    };
    let whole: Vec<&Leaf> = leaves()
        .filter(|leaf| !leaf.key.is_empty() && leaf.key.iter().all(|key| is_grouped(leaf, key)))
        .collect();
    if whole.is_empty() {
        return;
    }
    let mut named: Vec<(String, String)> = Vec::new();
    let mut note = |expr: &Expr| {
        named.extend(table_of(expr));
        ControlFlow::<()>::Continue(())
    };
    let noted = [
        visit_expressions(&select.projection, &mut note),
        visit_expressions(&select.having, &mut note),
        order_by.map_or(ControlFlow::Continue(()), |by| visit_expressions(by, &mut note)),
    ];
    debug_assert!(noted.iter().all(ControlFlow::is_continue), "nothing stops the visit");
    let has_all = |leaf: &Leaf| {
        select.projection.iter().any(|item| match item {
            SelectItem::Wildcard(_) => true,
            SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(name), _) => {
                let last = name.0.last().and_then(|name| name.as_ident());
                last.is_some_and(|name| fold(name) == leaf.called)
            }
            _ => false,
        })
    };
    let mut added = Vec::new();
    for leaf in whole {
        let has_all = has_all(leaf);
        for column in leaf.offered.iter().flatten() {
            let is_named =
                || named.iter().any(|(table, name)| *table == leaf.called && *name == column.name);
            if !is_grouped(leaf, &column.name) && (has_all || is_named()) {
                added.push(column.expr.clone());
            }
        }
    }
    if let ast::GroupByExpr::Expressions(groups, _) = &mut select.group_by {
        groups.extend(added);
    }
}

/// The expressions of GROUP BY, also those in parentheses.
fn parts(groups: &[Expr]) -> Vec<&Expr> {
    let mut found = Vec::new();
    for group in groups {
        match group {
            Expr::Nested(inner) => found.extend(parts(std::slice::from_ref(inner))),
            Expr::Tuple(inner) => found.extend(parts(inner)),
            group => found.push(group),
        }
    }
    found
}
