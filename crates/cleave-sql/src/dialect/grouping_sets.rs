//! Grouping sets that DataFusion does not take, written out:
//!
//! ```text
//!  GROUP BY ROLLUP ((a, b), c)                ─▶  GROUP BY GROUPING SETS ((a, b, c), (a, b), ())
//!  GROUP BY CUBE ((a, b), c)                  ─▶  … GROUPING SETS ((a, b, c), (a, b), (c), ())
//!  GROUP BY GROUPING SETS (ROLLUP (a), (b))   ─▶  … GROUPING SETS ((a), (), (b))
//!  GROUP BY ROLLUP (a, a)                     ─▶  … GROUPING SETS ((a), (a), ())
//! ```
//!
//! Keys are columns of the select list: two of them that are the same expression are NULL in rows of different sets.
//! For DataFusion they would be one:
//!
//! ```text
//!  SELECT x AS a, x AS b … GROUP BY CUBE (a, b)  ─▶  SELECT x AS a, opaque(x, 1) AS b … GROUP BY CUBE (a, b)
//! ```
//!
//! Source: PostgreSQL's `expand_grouping_sets`.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use cleave_fragment::functions::opaque;
use datafusion::sql::sqlparser::ast::{
    self, Expr, FunctionArg, FunctionArgExpr, Ident, SelectItem,
};

use super::places::{is_star, listed, without_repeated};
use crate::statement::catalog_syntax::call;
use crate::statement::names::fold;
use crate::visiting::visit_expressions_mut;

/// Most parts of a CUBE, as in PostgreSQL.
const CUBE_PARTS_MAX: usize = 12;

/// Writes out the sets of `select`.
pub(super) fn write_out_sets(select: &mut ast::Select) {
    let ast::GroupByExpr::Expressions(groups, _) = &mut select.group_by else { return };
    for group in groups {
        if is_taken(group) {
            continue;
        }
        if let Some(mut sets) = sets_of(group) {
            sets.iter_mut().for_each(|set| without_repeated(set, |part| part));
            *group = Expr::GroupingSets(sets);
        }
    }
}

/// Makes the items of `select` that are the same expression different ones, if its sets have both as keys.
pub(super) fn tell_keys_apart(select: &mut ast::Select) {
    let ast::GroupByExpr::Expressions(groups, _) = &select.group_by else { return };
    if groups.iter().all(|group| nested(group).is_none()) {
        return;
    }
    let items: Vec<Option<Named>> = select.projection.iter().map(Named::of_item).collect();
    let keys = groups.iter().flat_map(keys_of);
    let keys: Vec<(usize, Named)> =
        keys.filter_map(|key| item_of(&key, &select.projection, &items)).collect();
    let is_second = |(place, key): &&(usize, Named)| {
        keys.iter().any(|(earlier, other)| earlier < place && other.is(key))
    };
    let second: BTreeSet<usize> = keys.iter().filter(is_second).map(|(place, _)| *place).collect();
    for place in second {
        if let Some(SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. }) =
            select.projection.get_mut(place)
        {
            let number = Expr::value(ast::Value::Number(place.to_string(), false));
            *expr = call(opaque().name(), vec![expr.clone(), number]);
        }
    }
}

/// The expressions that `group` groups by.
fn keys_of(group: &Expr) -> Vec<Expr> {
    match nested(group) {
        Some(Expr::Rollup(sets) | Expr::Cube(sets) | Expr::GroupingSets(sets)) => {
            sets.iter().flatten().flat_map(keys_of).collect()
        }
        _ => match group {
            Expr::Nested(inner) => keys_of(inner),
            Expr::Tuple(parts) => parts.iter().flat_map(keys_of).collect(),
            key => vec![key.clone()],
        },
    }
}

/// The place of the item that `key` is, by its place, its name or its expression; and this expression.
fn item_of(key: &Expr, list: &[SelectItem], items: &[Option<Named>]) -> Option<(usize, Named)> {
    if let Some(expr) = listed(key, list, true) {
        let is_it = |item: &SelectItem| match item {
            SelectItem::UnnamedExpr(own) | SelectItem::ExprWithAlias { expr: own, .. } => {
                std::ptr::eq(own, expr)
            }
            _ => false,
        };
        return Some((list.iter().position(is_it)?, Named::of(expr)));
    }
    let is_column = matches!(key, Expr::Identifier(_) | Expr::CompoundIdentifier(_));
    let key = Named::of(key);
    let place = list.iter().zip(items).position(|(item, named)| match named {
        Some(named) => named.is(&key),
        None => is_column && is_star(item),
    })?;
    Some((place, key))
}

/// An expression with the names of columns alone, and the names of their tables.
struct Named {
    expr: Expr,
    tables: Vec<String>,
}

impl Named {
    fn of(expr: &Expr) -> Self {
        let mut named = Self { expr: expr.clone(), tables: Vec::new() };
        let tables = &mut named.tables;
        let flow: ControlFlow<()> = visit_expressions_mut(&mut named.expr, |part| {
            let (table, column) = match &*part {
                Expr::Identifier(column) => (String::new(), fold(column)),
                Expr::CompoundIdentifier(parts) => match parts.as_slice() {
                    [.., table, column] => (fold(table), fold(column)),
                    _ => return ControlFlow::Continue(()),
                },
                Expr::Nested(inner) => {
                    *part = inner.as_ref().clone();
                    return ControlFlow::Continue(());
                }
                _ => return ControlFlow::Continue(()),
            };
            tables.push(table);
            *part = Expr::Identifier(Ident::with_quote('"', column));
            ControlFlow::Continue(())
        });
        debug_assert!(flow.is_continue(), "nothing stops the visit");
        named
    }

    fn of_item(item: &SelectItem) -> Option<Self> {
        match item {
            SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => {
                Some(Self::of(expr))
            }
            _ => None,
        }
    }

    /// Whether both are the same, be their columns with or without their tables.
    fn is(&self, other: &Self) -> bool {
        let mut tables = self.tables.iter().zip(&other.tables);
        self.expr == other.expr
            && tables.all(|(one, other)| one.is_empty() || other.is_empty() || one == other)
    }
}

/// Whether DataFusion takes `group` as it is.
fn is_taken(group: &Expr) -> bool {
    match group {
        Expr::Rollup(parts) | Expr::Cube(parts) => {
            is_distinct(parts) && parts.iter().all(|part| part.len() == 1)
        }
        Expr::GroupingSets(sets) => sets.iter().all(|set| {
            is_distinct(set) && !matches!(set.as_slice(), [one] if nested(one).is_some())
        }),
        _ => true,
    }
}

/// Whether no two of `items` are equal.
fn is_distinct<T: PartialEq>(items: &[T]) -> bool {
    items.iter().enumerate().all(|(place, item)| !items.iter().take(place).any(|one| one == item))
}

fn sets_of(group: &Expr) -> Option<Vec<Vec<Expr>>> {
    Some(match group {
        Expr::Rollup(parts) => (0..=parts.len())
            .rev()
            .map(|count| parts.iter().take(count).flatten().cloned().collect())
            .collect(),
        Expr::Cube(parts) if parts.len() <= CUBE_PARTS_MAX => {
            // The first part is the highest digit.
            let has = |set: usize, place: usize| set >> (parts.len() - 1 - place) & 1 == 1;
            let set = |set: usize| {
                let parts = parts.iter().enumerate().filter(|(place, _)| has(set, *place));
                parts.flat_map(|(_, part)| part.iter().cloned()).collect()
            };
            (0..1_usize << parts.len()).rev().map(set).collect()
        }
        Expr::GroupingSets(sets) => {
            let mut all = Vec::new();
            for set in sets {
                match set.as_slice() {
                    [one] => match nested(one) {
                        Some(inner) => all.extend(sets_of(&inner)?),
                        None => all.push(set.clone()),
                    },
                    _ => all.push(set.clone()),
                }
            }
            all
        }
        _ => return None,
    })
}

/// ROLLUP or CUBE within GROUPING SETS, which the parser reads as functions.
fn nested(set: &Expr) -> Option<Expr> {
    let function = match set {
        Expr::Rollup(_) | Expr::Cube(_) | Expr::GroupingSets(_) => return Some(set.clone()),
        Expr::Function(function) => function,
        _ => return None,
    };
    let [ast::ObjectNamePart::Identifier(name)] = function.name.0.as_slice() else { return None };
    let ast::FunctionArguments::List(list) = &function.args else { return None };
    let part = |arg: &FunctionArg| match arg {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Tuple(parts))) => Some(parts.clone()),
        FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Nested(part))) => {
            Some(vec![part.as_ref().clone()])
        }
        FunctionArg::Unnamed(FunctionArgExpr::Expr(part)) => Some(vec![part.clone()]),
        _ => None,
    };
    let parts = list.args.iter().map(part).collect::<Option<Vec<_>>>()?;
    match name.value.to_lowercase().as_str() {
        "rollup" if name.quote_style.is_none() => Some(Expr::Rollup(parts)),
        "cube" if name.quote_style.is_none() => Some(Expr::Cube(parts)),
        _ => None,
    }
}
