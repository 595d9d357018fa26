//! LIMIT and OFFSET of subqueries, and FETCH … WITH TIES, as conditions on the numbers of sorted rows, since
//! DataFusion's limits are constants.
//!
//! ```text
//!  SELECT … ORDER BY k LIMIT (SELECT n) OFFSET 2    ─▶ SELECT … QUALIFY row_number() OVER (ORDER BY k) > 2 AND
//!                                                        row_number() OVER (ORDER BY k) <= 2 + (SELECT n) ORDER BY k
//!  SELECT … ORDER BY k FETCH FIRST n ROWS WITH TIES ─▶ SELECT … QUALIFY rank() OVER (ORDER BY k) <= n ORDER BY k
//! ```
//!
//! The rank of a row is the number of rows before all its equals, and one: so the equals of row n, and no row behind
//! them, have a rank of n at most. The rows of DISTINCT, and of set operations, are made by a query below:
//!
//! ```text
//!  SELECT DISTINCT a, b … ORDER BY 2 LIMIT (SELECT n) ─▶ SELECT * FROM (SELECT DISTINCT a, b …) AS __limited QUALIFY
//!                                                          row_number() OVER (ORDER BY b) <= (SELECT n) ORDER BY b
//! ```
//!
//! That asks for names of the columns they are sorted by. Without these the query stays, and is refused.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    self, BinaryOperator, Distinct, Expr, LimitClause, OrderByKind, SelectItem, SetExpr,
};

use super::functions_in_from::cast;
use super::places::{is_star, replace};
use crate::statement::catalog_syntax::call;
use crate::statement::names::fold;
use crate::statement::parse::parse_query;
use crate::statement::upsert::has_subquery;
use crate::visiting::{visit_expressions, visit_queries_mut};

/// The reserved name of rows that are limited.
const LIMITED: &str = "__limited";

/// Rewrites the queries within `query`.
pub(super) fn lower_computed_limits(query: &mut ast::Query) {
    visit_queries_mut(query, lower);
}

fn lower(query: &mut ast::Query) {
    if !is_computed(query) {
        return;
    }
    without_parentheses(query);
    if !is_plain(query) && wrapped(query).is_none() {
        return;
    }
    if let Some(condition) = condition(query)
        && let SetExpr::Select(select) = query.body.as_mut()
    {
        select.qualify = Some(condition);
        (query.limit_clause, query.fetch) = (None, None);
    }
}

/// Whether DataFusion cannot compute the limits of `query`.
fn is_computed(query: &ast::Query) -> bool {
    let has_ties = query.fetch.as_ref().is_some_and(|fetch| fetch.with_ties && !fetch.percent);
    has_ties
        || match &query.limit_clause {
            Some(LimitClause::LimitOffset { limit, offset, .. }) => {
                let offset = offset.as_ref().map(|offset| &offset.value);
                limit.iter().chain(offset).any(has_subquery)
            }
            _ => false,
        }
}

/// Whether a condition on the rows of `query` can stand in it.
fn is_plain(query: &ast::Query) -> bool {
    let SetExpr::Select(select) = query.body.as_ref() else { return false };
    // A window cannot sort by another window, nor several windows by one subquery.
    let cannot_sort = |item: &SelectItem| match item {
        SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => {
            !is_sortable(expr)
        }
        _ => false,
    };
    matches!(select.distinct, None | Some(Distinct::All))
        && select.qualify.is_none()
        && (query.order_by.is_none() || !select.projection.iter().any(cannot_sort))
}

fn is_sortable(expression: &Expr) -> bool {
    let has_window = visit_expressions(expression, |own| match own {
        Expr::Function(function) if function.over.is_some() => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    });
    has_window.is_continue() && !has_subquery(expression)
}

/// Puts the rows of `query` into a query below it; None: a column that they are sorted by has no name.
fn wrapped(query: &mut ast::Query) -> Option<()> {
    let items = first_items(&query.body)?.to_vec();
    if let Some(order) = &mut query.order_by {
        let OrderByKind::Expressions(order) = &mut order.kind else { return None };
        for key in order {
            key.expr = Expr::Identifier(name_of(&key.expr, &items)?);
        }
    }
    let below = parse_query(format!("SELECT * FROM (SELECT 1) AS {LIMITED}")).ok()?;
    let mut body = below.body;
    let SetExpr::Select(select) = body.as_mut() else { return None };
    let ast::TableFactor::Derived { subquery, .. } = &mut select.from.first_mut()?.relation else {
        return None;
    };
    std::mem::swap(&mut subquery.body, &mut query.body);
    query.body = body;
    Some(())
}

/// The select list that names the columns of `body`.
fn first_items(body: &SetExpr) -> Option<&[SelectItem]> {
    match body {
        SetExpr::Select(select) => Some(&select.projection),
        SetExpr::Query(query) => first_items(&query.body),
        SetExpr::SetOperation { left, .. } => first_items(left),
        _ => None,
    }
}

/// The name of the column of `items` that `key` sorts by.
fn name_of(key: &Expr, items: &[SelectItem]) -> Option<ast::Ident> {
    let own_name = |expr: &Expr| match expr {
        Expr::Identifier(name) => Some(name.clone()),
        Expr::CompoundIdentifier(names) => names.last().cloned(),
        _ => None,
    };
    let named = |item: &SelectItem| match item {
        SelectItem::ExprWithAlias { alias, .. } => Some(alias.clone()),
        SelectItem::UnnamedExpr(expr) => own_name(expr),
        _ => None,
    };
    let has_star = items.iter().any(is_star);
    match key {
        Expr::Value(value) => {
            let ast::Value::Number(place, _) = &value.value else { return None };
            let place = place.parse::<usize>().ok()?.checked_sub(1)?;
            named(items.get(place).filter(|_| !has_star)?)
        }
        Expr::Nested(inner) => name_of(inner, items),
        Expr::Identifier(name) => {
            let is_it = |item: &SelectItem| named(item).is_some_and(|own| fold(&own) == fold(name));
            (has_star || items.iter().any(is_it)).then(|| name.clone())
        }
        key => items.iter().find_map(|item| match item {
            SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => {
                named(item).filter(|_| expr == key)
            }
            _ => None,
        }),
    }
}

/// The condition on rows that stands for the limits of `query`; None: they are constants, or there can be none.
fn condition(query: &ast::Query) -> Option<Expr> {
    let (limit, offset) = match &query.limit_clause {
        Some(LimitClause::LimitOffset { limit, offset, limit_by }) if limit_by.is_empty() => {
            (limit.as_ref(), offset.as_ref().map(|offset| &offset.value))
        }
        None => (None, None),
        Some(_) => return None,
    };
    let ties = query.fetch.as_ref().filter(|fetch| fetch.with_ties && !fetch.percent);
    let SetExpr::Select(select) = query.body.as_ref() else { return None };
    let mut order = match query.order_by.as_ref().map(|order| &order.kind) {
        None => Vec::new(),
        Some(OrderByKind::Expressions(order)) => order.clone(),
        Some(OrderByKind::All(_)) => return None,
    };
    for key in &mut order {
        replace(&mut key.expr, &select.projection, true);
        // A place behind a `*`.
        if matches!(key.expr, Expr::Value(_)) {
            return None;
        }
    }
    let zero = || Expr::value(ast::Value::Number("0".to_owned(), false));
    let whole = |count: &Expr| cast(nested(count.clone()), ast::DataType::BigInt(None));
    let skipped = offset.map(|offset| call("coalesce", vec![whole(offset), zero()]));
    let number = || window("row_number", &order);
    let behind = match &skipped {
        Some(skipped) => Some(binary(number()?, BinaryOperator::Gt, skipped.clone())),
        None => None,
    };
    let (numbered, count) = match ties {
        // Without an order all rows are equal, which PostgreSQL refuses.
        Some(_) if order.is_empty() => return None,
        Some(ties) => {
            let one = || Expr::value(ast::Value::Number("1".to_owned(), false));
            (window("rank", &order)?, Some(ties.quantity.clone().unwrap_or_else(one)))
        }
        None => (number()?, limit.cloned()),
    };
    // DataFusion refuses these.
    if count.iter().chain(offset).any(is_negative) {
        return None;
    }
    let within = count.map(|count| {
        let is_skipping = skipped.is_some();
        let last = match skipped {
            Some(skipped) => binary(skipped, BinaryOperator::Plus, whole(&count)),
            None => whole(&count),
        };
        let mut within = binary(numbered, BinaryOperator::LtEq, last);
        if ties.is_some() && is_skipping {
            // Equals of the last row that is skipped are none of the rows behind it.
            let is_any = binary(whole(&count), BinaryOperator::Gt, zero());
            within = binary(within, BinaryOperator::And, is_any);
        }
        // LIMIT NULL is none.
        let all = Expr::value(ast::Value::Boolean(true));
        call("coalesce", vec![within, all])
    });
    match (behind, within) {
        (Some(behind), Some(within)) => Some(binary(behind, BinaryOperator::And, within)),
        (one, other) => one.or(other),
    }
}

fn is_bare(query: &ast::Query) -> bool {
    query.with.is_none()
        && query.order_by.is_none()
        && query.limit_clause.is_none()
        && query.fetch.is_none()
        && query.locks.is_empty()
}

fn without_parentheses(query: &mut ast::Query) {
    while let SetExpr::Query(inner) = query.body.as_mut() {
        if !is_bare(inner) {
            return;
        }
        let body = std::mem::replace(&mut inner.body, Box::new(SetExpr::Values(no_values())));
        query.body = body;
    }
}

fn no_values() -> ast::Values {
    ast::Values { explicit_row: false, value_keyword: false, rows: Vec::new() }
}

fn binary(left: Expr, op: BinaryOperator, right: Expr) -> Expr {
    Expr::BinaryOp { left: Box::new(left), op, right: Box::new(right) }
}

fn nested(expression: Expr) -> Expr {
    Expr::Nested(Box::new(expression))
}

/// `name() OVER (ORDER BY order)`.
fn window(name: &str, order: &[ast::OrderByExpr]) -> Option<Expr> {
    let query = parse_query(format!("SELECT {name}() OVER ()")).ok()?;
    let SetExpr::Select(mut select) = *query.body else { return None };
    let SelectItem::UnnamedExpr(mut own) = select.projection.pop()? else { return None };
    let Expr::Function(function) = &mut own else { return None };
    let Some(ast::WindowType::WindowSpec(spec)) = &mut function.over else { return None };
    spec.order_by = order.to_vec();
    Some(own)
}

fn is_negative(count: &Expr) -> bool {
    matches!(count, Expr::UnaryOp { op: ast::UnaryOperator::Minus, expr } if matches!(**expr, Expr::Value(_)))
}
