//! Places and names of the select list, where DataFusion takes expressions alone.
//!
//! ```text
//!  SELECT DISTINCT ON (1) a, b … ORDER BY 1, 2   ─▶ SELECT DISTINCT ON (a) a, b … ORDER BY a, b
//!  SELECT DISTINCT ON (a, b) … ORDER BY b, a     ─▶ SELECT DISTINCT ON (b, a) …
//!  SELECT a, b … GROUP BY ROLLUP (1, 2)          ─▶ … GROUP BY ROLLUP (a, b)
//!  SELECT DISTINCT f(a) … ORDER BY f(a)          ─▶ SELECT DISTINCT f(a) … ORDER BY 1
//! ```

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    self, Distinct, Expr, GroupByExpr, OrderByKind, SelectItem, SetExpr, VisitorMut,
};

use super::grouping_sets::tell_keys_apart;
use crate::statement::names::fold;
use crate::visiting::visit_mut;

/// Rewrites the queries within `query`.
pub(super) fn lower_places(query: &mut ast::Query) {
    let flow = visit_mut(query, &mut Lower);
    debug_assert!(flow.is_continue(), "nothing stops the visit");
}

struct Lower;

impl VisitorMut for Lower {
    type Break = ();

    fn post_visit_query(&mut self, query: &mut ast::Query) -> ControlFlow<()> {
        let SetExpr::Select(select) = query.body.as_mut() else {
            return ControlFlow::Continue(());
        };
        let items = select.projection.clone();
        if let Some(Distinct::On(keys)) = &mut select.distinct {
            keys.iter_mut().for_each(|key| replace(key, &items, true));
            without_repeated(keys, |key| key);
            if let Some(ast::OrderBy { kind: OrderByKind::Expressions(order), .. }) =
                &mut query.order_by
            {
                order.iter_mut().for_each(|key| replace(&mut key.expr, &items, true));
                // DataFusion's first value in an order fails where the order repeats an expression.
                without_repeated(order, |key| &key.expr);
                sort_like(keys, order);
            }
        }
        if let (
            Some(Distinct::Distinct),
            Some(ast::OrderBy { kind: OrderByKind::Expressions(order), .. }),
        ) = (&select.distinct, &mut query.order_by)
        {
            order.iter_mut().for_each(|key| place(&mut key.expr, &items));
        }
        ControlFlow::Continue(())
    }

    fn post_visit_select(&mut self, select: &mut ast::Select) -> ControlFlow<()> {
        tell_keys_apart(select);
        if let GroupByExpr::Expressions(keys, _) = &mut select.group_by {
            for key in keys {
                if let Expr::Rollup(sets) | Expr::Cube(sets) | Expr::GroupingSets(sets) = key {
                    let items = &select.projection;
                    sets.iter_mut().flatten().for_each(|part| replace(part, items, false));
                }
            }
        }
        ControlFlow::Continue(())
    }
}

/// Replaces an expression of the select list by its place: DataFusion looks for its columns.
fn place(key: &mut Expr, items: &[SelectItem]) {
    if matches!(key, Expr::Identifier(_) | Expr::CompoundIdentifier(_) | Expr::Value(_))
        || items.iter().any(is_star)
    {
        return;
    }
    let is_it = |item: &SelectItem| match item {
        SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => expr == key,
        _ => false,
    };
    if let Some(place) = items.iter().position(is_it) {
        *key = Expr::value(ast::Value::Number((place + 1).to_string(), false));
    }
}

/// Keeps the first of equal expressions: further ones neither divide groups nor order rows.
pub(super) fn without_repeated<T>(items: &mut Vec<T>, of: impl Fn(&T) -> &Expr) {
    let mut kept: Vec<T> = Vec::with_capacity(items.len());
    for item in items.drain(..) {
        if kept.iter().all(|earlier| of(earlier) != of(&item)) {
            kept.push(item);
        }
    }
    *items = kept;
}

/// Replaces the place of a column, and its name if `by_name`, by its expression.
pub(super) fn replace(key: &mut Expr, items: &[SelectItem], by_name: bool) {
    if let Some(expr) = listed(key, items, by_name) {
        // A number alone would be a place again.
        *key = match expr {
            Expr::Value(_) => Expr::Nested(Box::new(expr.clone())),
            expr => expr.clone(),
        };
    }
}

/// The expression of the select list that a place means, and a name if `by_name`.
pub(super) fn listed<'a>(key: &Expr, items: &'a [SelectItem], by_name: bool) -> Option<&'a Expr> {
    let item = match key {
        Expr::Value(value) => match &value.value {
            ast::Value::Number(place, _) => place
                .parse::<usize>()
                .ok()
                .and_then(|place| items.get(..place)?.last())
                // A place behind a `*` is another column.
                .filter(|_| !items.iter().any(is_star)),
            _ => None,
        },
        Expr::Identifier(name) if by_name => {
            let name = fold(name);
            items.iter().find(|item| {
                matches!(item, SelectItem::ExprWithAlias { alias, .. } if fold(alias) == name)
            })
        }
        Expr::Nested(inner) => return listed(inner, items, by_name),
        _ => None,
    };
    match item {
        Some(SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. }) => Some(expr),
        _ => None,
    }
}

/// Whether `item` stands for any number of columns.
pub fn is_star(item: &SelectItem) -> bool {
    matches!(item, SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..))
}

/// Brings `keys` to the order of the first of `order`; which is no change if these are others.
fn sort_like(keys: &mut Vec<Expr>, order: &[ast::OrderByExpr]) {
    let mut sorted: Vec<Expr> = Vec::with_capacity(keys.len());
    for key in order.iter().map(|key| &key.expr) {
        if keys.contains(key) && !sorted.contains(key) {
            sorted.push(key.clone());
        } else if sorted.len() < keys.len() && !keys.contains(key) {
            break;
        }
    }
    let rest: Vec<Expr> = keys.iter().filter(|key| !sorted.contains(key)).cloned().collect();
    sorted.extend(rest);
    *keys = sorted;
}
