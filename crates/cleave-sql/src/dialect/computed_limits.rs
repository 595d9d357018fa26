//! LIMIT and OFFSET of subqueries, and FETCH … WITH TIES, as conditions on the numbers of sorted rows, since the
//! engine's limits are constants.
//!
//! ```text
//!  SELECT … ORDER BY k LIMIT (SELECT n) OFFSET 2    ─▶ SELECT … QUALIFY row_number() OVER (ORDER BY k) > 2
//!                                                        AND row_number() OVER (ORDER BY k) <= 2 + (SELECT n) ORDER BY k
//!  SELECT … ORDER BY k FETCH FIRST n ROWS WITH TIES ─▶ SELECT … QUALIFY rank() OVER (ORDER BY k) <= n ORDER BY k
//! ```
//!
//! The rank of a row is the number of rows before all its equals, and one: so the equals of row n, and no row behind
//! them, have a rank of n at most. Queries with DISTINCT, and set operations, whose rows are made behind these
//! conditions, are left as they are, and refused.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    self, BinaryOperator, Distinct, Expr, LimitClause, OrderByKind, SetExpr, Visitor, VisitorMut,
};

use super::functions_in_from::cast;
use super::places::replace;
use crate::statement::catalog_syntax::call;
use crate::statement::parse::parse_query;
use crate::visiting::{visit, visit_mut};

/// Rewrites the queries within `query`.
pub(super) fn lower_computed_limits(query: &mut ast::Query) {
    let flow = visit_mut(query, &mut Lower);
    debug_assert!(flow.is_continue(), "nothing stops the visit");
}

struct Lower;

impl VisitorMut for Lower {
    type Break = ();

    fn post_visit_query(&mut self, query: &mut ast::Query) -> ControlFlow<()> {
        if let Some(condition) = condition(query) {
            without_parentheses(query);
            if let SetExpr::Select(select) = query.body.as_mut() {
                select.qualify = Some(condition);
                (query.limit_clause, query.fetch) = (None, None);
            }
        }
        ControlFlow::Continue(())
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
    let computed = || limit.iter().chain(&offset).any(|count| has_query(count));
    if ties.is_none() && !computed() {
        return None;
    }
    let select = selected(&query.body)?;
    if !matches!(select.distinct, None | Some(Distinct::All)) || select.qualify.is_some() {
        return None;
    }
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
    let within = count.map(|count| {
        let last = match skipped {
            Some(skipped) => binary(skipped, BinaryOperator::Plus, whole(&count)),
            None => whole(&count),
        };
        // LIMIT NULL is none.
        let all = Expr::value(ast::Value::Boolean(true));
        call("coalesce", vec![binary(numbered, BinaryOperator::LtEq, last), all])
    });
    match (behind, within) {
        (Some(behind), Some(within)) => Some(binary(behind, BinaryOperator::And, within)),
        (one, other) => one.or(other),
    }
}

/// The SELECT that `body` is, perhaps in parentheses.
fn selected(body: &SetExpr) -> Option<&ast::Select> {
    match body {
        SetExpr::Select(select) => Some(select),
        SetExpr::Query(inner) if is_bare(inner) => selected(&inner.body),
        _ => None,
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
    let ast::SelectItem::UnnamedExpr(mut own) = select.projection.pop()? else { return None };
    let Expr::Function(function) = &mut own else { return None };
    let Some(ast::WindowType::WindowSpec(spec)) = &mut function.over else { return None };
    spec.order_by = order.to_vec();
    Some(own)
}

/// Whether an expression has a subquery.
fn has_query(expression: &Expr) -> bool {
    struct Find;
    impl Visitor for Find {
        type Break = ();

        fn pre_visit_query(&mut self, _query: &ast::Query) -> ControlFlow<()> {
            ControlFlow::Break(())
        }
    }
    visit(expression, &mut Find).is_break()
}
