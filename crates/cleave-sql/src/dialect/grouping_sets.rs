//! Grouping sets that DataFusion does not take, written out:
//!
//! ```text
//!  GROUP BY ROLLUP ((a, b), c)                ─▶  GROUP BY GROUPING SETS ((a, b, c), (a, b), ())
//!  GROUP BY CUBE ((a, b), c)                  ─▶  … GROUPING SETS ((a, b, c), (a, b), (c), ())
//!  GROUP BY GROUPING SETS (ROLLUP (a), (b))   ─▶  … GROUPING SETS ((a), (), (b))
//!  GROUP BY ROLLUP (a, a)                     ─▶  … GROUPING SETS ((a), (a), ())
//! ```
//!
//! Source: PostgreSQL's `expand_grouping_sets`.

use datafusion::sql::sqlparser::ast::{self, Expr, FunctionArg, FunctionArgExpr};

use super::places::without_repeated;

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
