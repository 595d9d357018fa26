//! WITH ORDINALITY: the rows of a function in FROM, numbered by a query in its place.
//!
//! ```text
//!  FROM generate_series(3, 5) WITH ORDINALITY AS t (a, b)
//!    ─▶ FROM (SELECT __rows.generate_series AS generate_series, row_number() OVER () AS ordinality
//!             FROM generate_series(3, 5) AS __rows (generate_series)) AS t (a, b)
//! ```
//!
//! Only of functions with one column, and without columns of other tables in their arguments: the rows of the others
//! are made together, in no order. The items of lists that are such columns have their numbers beside them:
//!
//! ```text
//!  FROM t, unnest(t.list) WITH ORDINALITY AS u (a, b)
//!    ─▶ FROM t, LATERAL (SELECT unnest(t.list) AS u, unnest(cleave_numbers(t.list)) AS ordinality) AS u (a, b)
//! ```

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    self, Expr, FunctionArg, FunctionArgExpr, Ident, SetExpr, TableAlias, TableFactor, VisitorMut,
};
use datafusion::sql::sqlparser::tokenizer::TokenWithSpan;

use super::parse_query;
use super::tokens::is_word;
use crate::statement::catalog_syntax::call;
use crate::statement::names::fold;
use crate::visiting::{Visited, visit_expressions, visit_mut};

/// Functions of FROM with one column, which has their name.
const OF_ONE_COLUMN: [&str; 5] =
    ["generate_series", "unnest", "regexp_matches", "regexp_split_to_table", "string_to_table"];
const ROWS: &str = "__rows";

/// Whether a statement with this token may have the clause.
pub(super) fn is_concerned(token: &TokenWithSpan) -> bool {
    is_word(token, "ordinality")
}

/// Replaces such functions in `part`; the others keep the clause, and are refused.
pub(super) fn number_rows(part: &mut impl Visited) {
    let flow = visit_mut(part, &mut Lower);
    debug_assert!(flow.is_continue(), "nothing stops the visit");
}

struct Lower;

impl VisitorMut for Lower {
    type Break = ();

    fn post_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<()> {
        if let Some(numbered) = numbered(factor) {
            *factor = numbered;
        }
        ControlFlow::Continue(())
    }
}

/// Lists of columns of other tables, with their numbers.
fn numbered_lists(factor: &TableFactor) -> Option<TableFactor> {
    let TableFactor::UNNEST { alias, array_exprs, with_ordinality: true, .. } = factor else {
        return None;
    };
    if array_exprs.len() == 1 && !array_exprs.iter().any(names_columns) {
        return None;
    }
    let own = || TableAlias {
        explicit: true,
        name: Ident::with_quote('"', "unnest"),
        columns: Vec::new(),
        at: None,
    };
    let alias = alias.clone().unwrap_or_else(own);
    let named = |rows: Expr, place: usize, name: &str| {
        // Columns that the alias names have these names here too.
        let given = alias.columns.get(place).map(|column| column.name.clone());
        let alias = given.unwrap_or_else(|| Ident::with_quote('"', name));
        ast::SelectItem::ExprWithAlias { expr: call("unnest", vec![rows]), alias }
    };
    let mut subquery = parse_query("SELECT 1".to_owned()).ok()?;
    let SetExpr::Select(select) = subquery.body.as_mut() else { return None };
    let single = fold(&alias.name);
    let name = if array_exprs.len() == 1 { single.as_str() } else { "unnest" };
    let lists = array_exprs.iter().enumerate();
    select.projection = lists.map(|(place, list)| named(list.clone(), place, name)).collect();
    let numbers = call("cleave_numbers", array_exprs.clone());
    select.projection.push(named(numbers, array_exprs.len(), "ordinality"));
    let alias = TableAlias { columns: Vec::new(), ..alias };
    Some(TableFactor::Derived { lateral: true, subquery, alias: Some(alias), sample: None })
}

fn numbered(factor: &TableFactor) -> Option<TableFactor> {
    if let Some(lists) = numbered_lists(factor) {
        return Some(lists);
    }
    let mut rows = factor.clone();
    let (function, inner) = match &mut rows {
        TableFactor::Table { name, alias, args: Some(args), with_ordinality, .. } => {
            let is_alone = args.args.iter().all(is_plain);
            if !std::mem::take(with_ordinality) || !is_alone {
                return None;
            }
            let [ast::ObjectNamePart::Identifier(name)] = name.0.as_slice() else { return None };
            (fold(name), alias)
        }
        TableFactor::Function { name, alias, args, with_ordinality, .. } => {
            if !std::mem::take(with_ordinality) || !args.iter().all(is_plain) {
                return None;
            }
            let [ast::ObjectNamePart::Identifier(name)] = name.0.as_slice() else { return None };
            (fold(name), alias)
        }
        TableFactor::UNNEST { alias, array_exprs, with_ordinality, .. } => {
            let is_alone = array_exprs.len() == 1 && !array_exprs.iter().any(names_columns);
            if !std::mem::take(with_ordinality) || !is_alone {
                return None;
            }
            ("unnest".to_owned(), alias)
        }
        _ => return None,
    };
    if !OF_ONE_COLUMN.contains(&function.as_str()) {
        return None;
    }
    let quoted = |name: &str| Ident::with_quote('"', name);
    let called = |name: Ident| TableAlias { explicit: true, name, columns: Vec::new(), at: None };
    // The column has the name of the table, unless it has one of its own.
    let alias = inner.take().unwrap_or_else(|| called(quoted(&function)));
    let column = fold(&alias.name);
    let own = ast::TableAliasColumnDef { name: quoted(&column), data_type: None };
    *inner = Some(TableAlias { columns: vec![own], ..called(Ident::new(ROWS)) });
    let column = quoted(&column);
    let text = format!("SELECT {ROWS}.{column} AS {column}, row_number() OVER () AS ordinality");
    let mut subquery = parse_query(text).ok()?;
    let SetExpr::Select(select) = subquery.body.as_mut() else { return None };
    select.from = vec![ast::TableWithJoins { relation: rows, joins: Vec::new() }];
    Some(TableFactor::Derived { lateral: false, subquery, alias: Some(alias), sample: None })
}

fn is_plain(argument: &FunctionArg) -> bool {
    matches!(argument, FunctionArg::Unnamed(FunctionArgExpr::Expr(value)) if !names_columns(value))
}

fn names_columns(expression: &Expr) -> bool {
    let flow: ControlFlow<()> = visit_expressions(expression, |part| match part {
        Expr::Identifier(_) | Expr::CompoundIdentifier(_) => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    });
    flow.is_break()
}
