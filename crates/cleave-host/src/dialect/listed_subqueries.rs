//! EXISTS and IN (subquery) in the list of SELECT, which the engine takes in conditions only: said as subqueries that give one
//! value, which it takes there.
//!
//! ```text
//!  EXISTS (q)       ─▶ (SELECT count(*) > 0 FROM (q LIMIT 1))      where the list is over no table, so q speaks of none around it
//!                   ─▶ (SELECT count(*) > 0 FROM … WHERE …)        else: it may, and the engine joins such a count
//!  x IN (q)         ─▶ (SELECT CASE WHEN bool_or(x = v) THEN true WHEN count(*) > count(x = v) THEN NULL ELSE false END
//!                       FROM (q) AS listed (v))                    where the list is over no table
//!  (SELECT column …)    ─▶ (SELECT v FROM (SELECT column …) AS listed (v) RIGHT JOIN (SELECT 1) AS one ON true)
//! ```
//!
//! Invariant: what is left as it was the engine refuses, as it did.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{self, Expr, SelectItem, SetExpr, VisitMut, VisitorMut};
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::parser::Parser;

/// Does so everywhere in `query`.
pub(super) fn lower_listed_subqueries(query: &mut ast::Query) {
    let flow = VisitMut::visit(query, &mut Queries);
    debug_assert!(flow.is_continue(), "nothing stops the visit");
}

/// Comes to each query.
struct Queries;

impl VisitorMut for Queries {
    type Break = ();

    fn post_visit_query(&mut self, query: &mut ast::Query) -> ControlFlow<()> {
        lower_body(&mut query.body);
        ControlFlow::Continue(())
    }
}

fn lower_body(body: &mut SetExpr) {
    match body {
        SetExpr::Select(select) => {
            let is_over_none = select.from.is_empty();
            let mut list = Within::new(0, |expression| lower_listed(expression, is_over_none));
            for item in &mut select.projection {
                if let SelectItem::UnnamedExpr(expression)
                | SelectItem::ExprWithAlias { expr: expression, .. } = item
                {
                    let _ended = VisitMut::visit(expression, &mut list);
                }
            }
        }
        SetExpr::SetOperation { left, right, .. } => {
            lower_body(left);
            lower_body(right);
        }
        // A query in parentheses is one that is come to.
        _ => {}
    }
}

/// Changes expressions that so many queries are around, and no others.
struct Within<F> {
    wanted: usize,
    depth: usize,
    change: F,
}

impl<F: FnMut(&mut Expr)> Within<F> {
    fn new(wanted: usize, change: F) -> Self {
        Self { wanted, depth: 0, change }
    }
}

impl<F: FnMut(&mut Expr)> VisitorMut for Within<F> {
    type Break = ();

    fn pre_visit_query(&mut self, _query: &mut ast::Query) -> ControlFlow<()> {
        self.depth += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _query: &mut ast::Query) -> ControlFlow<()> {
        self.depth -= 1;
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expression: &mut Expr) -> ControlFlow<()> {
        if self.depth == self.wanted {
            (self.change)(expression);
        }
        ControlFlow::Continue(())
    }
}

/// An expression of a list; `is_over_none`: of a query without FROM.
fn lower_listed(expression: &mut Expr, is_over_none: bool) {
    let lowered = match expression {
        Expr::Exists { subquery, negated } => match is_over_none {
            true => exists_alone(subquery, *negated),
            false => exists_beside(subquery, *negated),
        },
        Expr::InSubquery { expr, subquery, negated } if is_over_none => {
            contained(expr, subquery, *negated)
        }
        Expr::Subquery(subquery) if is_over_none => or_null(subquery),
        _ => None,
    };
    if let Some(lowered) = lowered {
        *expression = lowered;
    }
}

/// EXISTS of a query that speaks of nothing around it.
fn exists_alone(subquery: &ast::Query, negated: bool) -> Option<Expr> {
    let mut found = subquery.clone();
    if let SetExpr::Select(select) = &mut *found.body
        && select.distinct.is_none()
        && select.projection.iter().all(is_plain)
        && let Some(SetExpr::Select(one)) = body_of("SELECT 1 AS found")
    {
        // Columns of one name cannot stand in a subquery of FROM.
        select.projection = one.projection;
    }
    if found.limit_clause.is_none() && found.fetch.is_none() {
        found.limit_clause = parsed("SELECT 1 LIMIT 1")?.limit_clause;
    }
    let sign = if negated { "=" } else { ">" };
    from_derived(&format!("SELECT count(*) {sign} 0 FROM (SELECT 1) AS found"), found)
}

/// EXISTS of a query that may speak of the rows around it.
fn exists_beside(subquery: &ast::Query, negated: bool) -> Option<Expr> {
    let mut counted = subquery.clone();
    let is_whole =
        counted.with.is_none() && counted.limit_clause.is_none() && counted.fetch.is_none();
    let SetExpr::Select(select) = &mut *counted.body else { return None };
    let has_groups = match &select.group_by {
        ast::GroupByExpr::Expressions(expressions, _) => !expressions.is_empty(),
        ast::GroupByExpr::All(_) => true,
    };
    if !is_whole || has_groups || select.having.is_some() || !select.projection.iter().all(is_plain)
    {
        return None;
    }
    let sign = if negated { "=" } else { ">" };
    let SetExpr::Select(count) = body_of(&format!("SELECT count(*) {sign} 0"))? else {
        return None;
    };
    (select.distinct, select.projection) = (None, count.projection);
    counted.order_by = None;
    Some(Expr::Subquery(Box::new(counted)))
}

/// IN of a query that speaks of nothing around it.
fn contained(value: &Expr, subquery: &ast::Query, negated: bool) -> Option<Expr> {
    let text = "SELECT CASE WHEN bool_or(NULL = v) THEN true WHEN count(*) > count(NULL = v) THEN NULL ELSE false END \
                FROM (SELECT 1) AS listed (v)";
    let mut found = from_derived(text, subquery.clone())?;
    // In the place of the NULLs that are compared, in the outermost query alone.
    let mut put = Within::new(1, |expression| {
        if let Expr::BinaryOp { left, op: ast::BinaryOperator::Eq, .. } = expression {
            **left = value.clone();
        }
    });
    let _ended = VisitMut::visit(&mut found, &mut put);
    Some(match negated {
        true => Expr::UnaryOp { op: ast::UnaryOperator::Not, expr: Box::new(found) },
        false => found,
    })
}

/// The value of a column, or NULL where there is no row: the engine takes one that is NOT NULL for one that is always there.
fn or_null(subquery: &ast::Query) -> Option<Expr> {
    let SetExpr::Select(select) = &*subquery.body else { return None };
    let [SelectItem::UnnamedExpr(column) | SelectItem::ExprWithAlias { expr: column, .. }] =
        select.projection.as_slice()
    else {
        return None;
    };
    if !matches!(column, Expr::Identifier(_) | Expr::CompoundIdentifier(_)) {
        return None;
    }
    let text = "SELECT v FROM (SELECT 1) AS listed (v) RIGHT JOIN (SELECT 1) AS one ON true";
    from_derived(text, subquery.clone())
}

/// The query `text` as an expression, with `derived` in the place of the subquery that is its FROM.
fn from_derived(text: &str, derived: ast::Query) -> Option<Expr> {
    let mut query = parsed(text)?;
    let SetExpr::Select(select) = &mut *query.body else { return None };
    match &mut select.from.first_mut()?.relation {
        ast::TableFactor::Derived { subquery, .. } => **subquery = derived,
        _ => return None,
    }
    Some(Expr::Subquery(query))
}

fn body_of(text: &str) -> Option<SetExpr> {
    parsed(text).map(|query| *query.body)
}

fn parsed(text: &str) -> Option<Box<ast::Query>> {
    let parser = Parser::new(&PostgreSqlDialect {}).try_with_sql(text);
    parser.and_then(|mut parser| parser.parse_query()).ok()
}

/// Whether how many rows there are does not depend on the item.
fn is_plain(item: &SelectItem) -> bool {
    match item {
        SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..) => true,
        SelectItem::UnnamedExpr(expression)
        | SelectItem::ExprWithAlias { expr: expression, .. } => {
            matches!(expression, Expr::Value(_) | Expr::Identifier(_) | Expr::CompoundIdentifier(_))
        }
        _ => false,
    }
}
