//! Subqueries of the catalog that name columns of the query around them where DataFusion cannot have them, said
//! otherwise.
//!
//! ```text
//!  ARRAY(SELECT a.x FROM unnest(c.list) WITH ORDINALITY AS l (item, place) JOIN pg_attribute a ON l.item = a.n
//!        WHERE … ORDER BY l.place)
//!    ─▶ ARRAY(SELECT a.x FROM pg_attribute a WHERE … AND array_position(c.list, a.n) IS NOT NULL
//!             ORDER BY array_position(c.list, a.n))
//!  ARRAY(SELECT f(k) FROM generate_subscripts(c.list, 1) AS k)
//!    ─▶ ARRAY(SELECT f(k) FROM (SELECT unnest(cleave_subscripts(c.list)) AS k) AS k)
//!  IN (WITH RECURSIVE w AS (SELECT a FROM t WHERE t.x = c.x UNION ALL …) SELECT a FROM w)
//!    ─▶ IN (SELECT a FROM (WITH RECURSIVE w AS (SELECT a, t.x AS key FROM t UNION ALL …)
//!                          SELECT a, w.key FROM w) AS r WHERE r.key = c.x)
//! ```
//!
//! The lists are those of keys and indexes, in which no column comes twice.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    self, BinaryOperator, Expr, Ident, JoinConstraint, JoinOperator, Query, Select, SelectItem,
    SetExpr, TableAlias, TableFactor,
};

use super::lists::is_vector;
use super::{arguments, call, conjuncts};
use crate::dialect::query_names::item_name;
use crate::statement::names::{fold, name_and_alias};
use crate::statement::parse::parse_query;
use crate::visiting::visit_expressions_mut;

const KEY: &str = "__key";
const ROWS: &str = "__rows";

/// Rewrites the query of `ARRAY(…)`; the order of its items, where that is kept.
pub(super) fn lower_array(query: &mut Query) -> Vec<ast::OrderByExpr> {
    let SetExpr::Select(select) = query.body.as_mut() else { return Vec::new() };
    number_subscripts(select);
    let Some(list) = unnested(select) else { return Vec::new() };
    let mut order = match query.order_by.take().map(|order| order.kind) {
        Some(ast::OrderByKind::Expressions(order)) => order,
        _ => Vec::new(),
    };
    for item in &mut order {
        list.put_into(item);
    }
    order
}

/// A list with its items beside a table that is found by them.
struct Unnested {
    name: String,
    item: String,
    place: Option<String>,
    column: Expr,
    position: Expr,
}

impl Unnested {
    fn put_into(&self, part: &mut impl crate::visiting::Visited) {
        let flow: ControlFlow<()> = visit_expressions_mut(part, |expression| {
            let parts = match &*expression {
                Expr::Identifier(name) => (None, fold(name)),
                Expr::CompoundIdentifier(parts) => match parts.as_slice() {
                    [table, name] => (Some(fold(table)), fold(name)),
                    _ => return ControlFlow::Continue(()),
                },
                _ => return ControlFlow::Continue(()),
            };
            let (table, name) = parts;
            if table.as_ref().is_some_and(|table| *table != self.name) {
                return ControlFlow::Continue(());
            }
            if name == self.item {
                *expression = self.column.clone();
            } else if self.place.as_ref() == Some(&name) {
                *expression = self.position.clone();
            }
            ControlFlow::Continue(())
        });
        debug_assert!(flow.is_continue(), "nothing stops the visit");
    }
}

/// Takes the list out of FROM.
fn unnested(select: &mut Select) -> Option<Unnested> {
    let [from] = select.from.as_mut_slice() else { return None };
    let TableFactor::Derived { lateral: true, subquery, alias: Some(alias), .. } = &from.relation
    else {
        return None;
    };
    let SetExpr::Select(lists) = subquery.body.as_ref() else { return None };
    let mut items = lists.projection.iter().map(|item| match item {
        SelectItem::ExprWithAlias { expr: Expr::Function(function), alias } => {
            let argument = arguments(function).into_iter().next();
            argument.filter(|_| function.name.to_string() == "unnest").map(|list| (list, alias))
        }
        _ => None,
    });
    let (list, item) = items.next()??;
    let place = items.next().flatten().map(|(_, alias)| fold(alias));
    let (name, item) = (fold(&alias.name), fold(item));
    let join = from.joins.first()?;
    let (JoinOperator::Join(JoinConstraint::On(condition))
    | JoinOperator::Inner(JoinConstraint::On(condition))) = &join.join_operator
    else {
        return None;
    };
    let is_item = |expression: &Expr| {
        matches!(expression, Expr::CompoundIdentifier(parts)
            if matches!(parts.as_slice(), [table, column] if fold(table) == name && fold(column) == item))
    };
    let mut parts = Vec::new();
    conjuncts(condition, &mut parts);
    let place_of_key = parts.iter().position(|part| {
        matches!(part, Expr::BinaryOp { left, op: BinaryOperator::Eq, right }
            if is_item(left) || is_item(right))
    })?;
    let Expr::BinaryOp { left, right, .. } = parts.remove(place_of_key) else { return None };
    let column = if is_item(left) { Expr::clone(right) } else { Expr::clone(left) };
    let position = call("array_position", vec![list, column.clone()]);
    let mut kept: Vec<Expr> = parts.into_iter().cloned().collect();
    kept.extend(select.selection.take());
    kept.push(Expr::IsNotNull(Box::new(position.clone())));
    let join = from.joins.remove(0);
    from.relation = join.relation;
    let found = Unnested { name, item, place, column, position };
    select.selection = kept.into_iter().reduce(and);
    let mut selection = select.selection.take();
    if let Some(selection) = &mut selection {
        found.put_into(selection);
    }
    select.selection = selection;
    for item in &mut select.projection {
        found.put_into(item);
    }
    Some(found)
}

fn and(left: Expr, right: Expr) -> Expr {
    let nested = |expression: Expr| Box::new(Expr::Nested(Box::new(expression)));
    Expr::BinaryOp { left: nested(left), op: BinaryOperator::And, right: nested(right) }
}

/// `generate_subscripts` alone in FROM as a subquery.
fn number_subscripts(select: &mut Select) {
    let [from] = select.from.as_mut_slice() else { return };
    if !from.joins.is_empty() {
        return;
    }
    let TableFactor::Table { name, alias: Some(alias), args: Some(args), .. } = &from.relation
    else {
        return;
    };
    let is_it = name.0.last().and_then(|last| last.as_ident()).map(fold);
    let first = args.args.first();
    let (
        Some("generate_subscripts"),
        Some(ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(list))),
    ) = (is_it.as_deref(), first)
    else {
        return;
    };
    let numbers = if is_vector(list) { "cleave_subscripts" } else { "cleave_numbers" };
    let rows = call("unnest", vec![call(numbers, vec![list.clone()])]);
    let column = alias.columns.first().map_or(&alias.name, |column| &column.name).clone();
    let Ok(mut subquery) = parse_query("SELECT 1".to_owned()) else { return };
    if let SetExpr::Select(inner) = subquery.body.as_mut() {
        inner.projection = vec![SelectItem::ExprWithAlias { expr: rows, alias: column }];
    }
    let alias = TableAlias { columns: Vec::new(), ..alias.clone() };
    from.relation =
        TableFactor::Derived { lateral: false, subquery, alias: Some(alias), sample: None };
}

/// Takes a column of the query around it out of a recursive query.
pub(super) fn key_recursion(query: &mut Query) {
    if let Some(keyed) = keyed(query) {
        *query = keyed;
    }
}

fn keyed(query: &Query) -> Option<Query> {
    let mut inner = query.clone();
    let with = inner.with.as_mut().filter(|with| with.recursive)?;
    let [table] = with.cte_tables.as_mut_slice() else { return None };
    let own = table.alias.name.clone();
    let SetExpr::SetOperation { left, right, .. } = table.query.body.as_mut() else { return None };
    let (SetExpr::Select(first), SetExpr::Select(step)) = (left.as_mut(), right.as_mut()) else {
        return None;
    };
    let names: Vec<String> = first.from.iter().flat_map(names_in).collect();
    let side = |expression: &Expr| match expression {
        Expr::CompoundIdentifier(parts) => parts.first().map(|table| names.contains(&fold(table))),
        _ => None,
    };
    let selection = first.selection.take()?;
    let mut parts = Vec::new();
    conjuncts(&selection, &mut parts);
    let place = parts.iter().position(|part| {
        matches!(part, Expr::BinaryOp { left, op: BinaryOperator::Eq, right }
            if matches!((side(left), side(right)), (Some(true), Some(false)) | (Some(false), Some(true))))
    })?;
    let Expr::BinaryOp { left, right, .. } = parts.remove(place) else { return None };
    let (key, outer) = if side(left) == Some(true) { (left, right) } else { (right, left) };
    let (key, outer) = (Expr::clone(key), Expr::clone(outer));
    first.selection = parts.into_iter().cloned().reduce(and);
    first.projection.push(SelectItem::ExprWithAlias { expr: key, alias: Ident::new(KEY) });
    if !table.alias.columns.is_empty() {
        let column = ast::TableAliasColumnDef { name: Ident::new(KEY), data_type: None };
        table.alias.columns.push(column);
    }
    step.projection.push(SelectItem::UnnamedExpr(key_of(step, &own)?));
    let SetExpr::Select(last) = inner.body.as_mut() else { return None };
    let name =
        last.projection.first().and_then(item_name).filter(|_| last.projection.len() == 1)?;
    last.projection.push(SelectItem::UnnamedExpr(key_of(last, &own)?));
    let column = Ident::with_quote('"', name);
    let mut around = parse_query(format!("SELECT {ROWS}.{column} FROM t AS {ROWS}")).ok()?;
    let SetExpr::Select(select) = around.body.as_mut() else { return None };
    let relation = &mut select.from.first_mut()?.relation;
    let alias = name_and_alias(relation)?.1.cloned();
    *relation =
        TableFactor::Derived { lateral: false, subquery: Box::new(inner), alias, sample: None };
    select.selection = Some(Expr::BinaryOp {
        left: Box::new(Expr::CompoundIdentifier(vec![Ident::new(ROWS), Ident::new(KEY)])),
        op: BinaryOperator::Eq,
        right: Box::new(outer),
    });
    Some(*around)
}

/// The names of the tables in an item of FROM.
fn names_in(from: &ast::TableWithJoins) -> Vec<String> {
    let joined = from.joins.iter().map(|join| &join.relation);
    let factors = std::iter::once(&from.relation).chain(joined);
    factors.filter_map(|factor| called(factor).map(|name| fold(&name))).collect()
}

fn called(factor: &TableFactor) -> Option<Ident> {
    let (name, alias) = name_and_alias(factor)?;
    alias.map(|alias| alias.name.clone()).or_else(|| name?.0.last()?.as_ident().cloned())
}

/// The key of the rows of the recursive query `own` in FROM.
fn key_of(select: &Select, own: &Ident) -> Option<Expr> {
    let is_own = |factor: &&TableFactor| match factor {
        TableFactor::Table { name, .. } => {
            matches!(name.0.as_slice(), [name] if name.as_ident().map(fold) == Some(fold(own)))
        }
        _ => false,
    };
    let factors = select.from.iter().flat_map(|from| {
        let joined = from.joins.iter().map(|join| &join.relation);
        std::iter::once(&from.relation).chain(joined)
    });
    let found = factors.filter(is_own).find_map(called)?;
    Some(Expr::CompoundIdentifier(vec![found, Ident::new(KEY)]))
}
