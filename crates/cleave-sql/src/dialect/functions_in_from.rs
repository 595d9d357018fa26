//! Set-returning functions: gives them PostgreSQL's column names and lets them take any arguments.
//!
//! ```text
//!  SELECT generate_series(1, 3)             ─▶ SELECT unnest(generate_series(1, 3)) AS generate_series
//!  FROM generate_series(1, 3) AS g          ─▶ FROM generate_series(1, 3) AS g (g)
//!  FROM generate_series(a, b) AS g          ─▶ FROM LATERAL (SELECT unnest(generate_series(a, b)) AS g) AS g
//!  FROM unnest(t.list) AS u                 ─▶ FROM LATERAL (SELECT unnest(t.list) AS u) AS u
//!  FROM unnest(a, b)                        ─▶ FROM (SELECT unnest(a) AS "unnest⟨1⟩", …) AS unnest ("unnest⟨1⟩", …)
//!  FROM upper(t.a) AS u                     ─▶ FROM LATERAL (SELECT upper(t.a) AS u) AS u
//! ```
//!
//! With constant numbers as arguments, DataFusion's table function stays, which streams its rows; the others make a
//! list first.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    self, Expr, FunctionArg, FunctionArgExpr, Ident, SelectItem, SetExpr, TableAlias, TableFactor,
    VisitorMut,
};
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::parser::Parser;

use super::functions::{FIRST_OF, MATCHES};
use crate::statement::catalog_syntax::call;
use crate::statement::names::fold;
use crate::visiting::{visit_expressions, visit_mut};

const SERIES: &str = "generate_series";
/// Functions that give a row for each item of a list, and the function that makes the list.
const OF_LISTS: [(&str, &str); 4] = [
    (SERIES, SERIES),
    ("regexp_matches", MATCHES),
    ("regexp_split_to_table", "regexp_split_to_array"),
    ("string_to_table", "string_to_array"),
];

/// Rewrites `query`.
pub(super) fn lower_functions_in_from(query: &mut ast::Query) {
    let flow = visit_mut(query, &mut Lower);
    debug_assert!(flow.is_continue(), "nothing stops the visit");
}

/// `unnest` of the list, if `expression` calls such a function.
pub(super) fn lower_rows(expression: &mut Expr) {
    let Expr::Function(function) = expression else { return };
    let Some(name) = only_name(&function.name) else { return };
    if let Some((_, list)) = OF_LISTS.into_iter().find(|(known, _)| *known == name) {
        function.name = ast::ObjectName::from(vec![Ident::new(list)]);
        let rows = std::mem::replace(expression, Expr::value(ast::Value::Null));
        *expression = call("unnest", vec![rows]);
    } else if name == "unnest"
        && let ast::FunctionArguments::List(list) = &function.args
        && let [FunctionArg::Unnamed(FunctionArgExpr::Expr(inner))] = list.args.as_slice()
        && is_unnested_series(inner)
    {
        // Reserved for the list that DataFusion makes of it.
        *expression = inner.clone();
    }
}

fn is_unnested_series(expression: &Expr) -> bool {
    let Expr::Function(function) = expression else { return false };
    only_name(&function.name).as_deref() == Some("unnest")
}

/// The name of a function without a schema.
fn only_name(name: &ast::ObjectName) -> Option<String> {
    match name.0.as_slice() {
        [ast::ObjectNamePart::Identifier(name)] => Some(fold(name)),
        _ => None,
    }
}

struct Lower;

impl VisitorMut for Lower {
    type Break = ();

    fn pre_visit_select(&mut self, select: &mut ast::Select) -> ControlFlow<()> {
        for item in &mut select.projection {
            let SelectItem::UnnamedExpr(Expr::Function(function)) = item else { continue };
            let Some(name) = only_name(&function.name) else { continue };
            if OF_LISTS.iter().any(|(known, _)| *known == name) {
                let expr = Expr::Function(function.clone());
                *item = SelectItem::ExprWithAlias { expr, alias: Ident::new(name) };
            }
        }
        ControlFlow::Continue(())
    }

    fn post_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<()> {
        match factor {
            TableFactor::Table { name, alias, args: Some(args), with_ordinality, .. } => {
                let with_ordinality = *with_ordinality;
                let Some(name) = only_name(name) else { return ControlFlow::Continue(()) };
                let lowered = of_list(&name, alias.as_ref(), &args.args);
                match lowered {
                    Some(lowered) => *factor = lowered,
                    None if name == SERIES => name_column(alias, &name),
                    None if name == "range" || with_ordinality => {}
                    None => {
                        if let Some(row) = one_row(&name, alias.as_ref(), &args.args) {
                            *factor = row;
                        }
                    }
                }
            }
            TableFactor::Function { name, alias, args, .. } => {
                let Some(name) = only_name(name) else { return ControlFlow::Continue(()) };
                if let Some(lowered) = of_list(&name, alias.as_ref(), args) {
                    *factor = lowered;
                } else if name == SERIES {
                    name_column(alias, &name);
                }
            }
            TableFactor::UNNEST { alias, array_exprs, .. } => {
                if let [list] = array_exprs.as_slice() {
                    if names_columns(list)
                        && let Some(lowered) = derived("unnest", alias.as_ref(), list.clone(), true)
                    {
                        *factor = lowered;
                    } else {
                        name_column(alias, "unnest");
                    }
                } else if let Some(lowered) = side_by_side(alias.as_ref(), array_exprs) {
                    *factor = lowered;
                }
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }
}

/// Names the only column after the table.
fn name_column(alias: &mut Option<TableAlias>, function: &str) {
    let alias = alias.get_or_insert_with(|| named(Ident::new(function)));
    if alias.columns.is_empty() {
        alias.columns.push(ast::TableAliasColumnDef { name: alias.name.clone(), data_type: None });
    }
}

fn named(name: Ident) -> TableAlias {
    TableAlias { explicit: true, name, columns: Vec::new(), at: None }
}

/// `FROM function(args)` as the items of a list, where DataFusion has no table function.
fn of_list(name: &str, alias: Option<&TableAlias>, args: &[FunctionArg]) -> Option<TableFactor> {
    let (_, list) = OF_LISTS.into_iter().find(|(known, _)| *known == name)?;
    let args = args.iter().map(|arg| match arg {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(arg)) => Some(arg.clone()),
        _ => None,
    });
    let mut args: Vec<Expr> = args.collect::<Option<_>>()?;
    if name == SERIES {
        if args.iter().all(is_number) {
            return None;
        }
        type_numbers(&mut args);
        type_times(&mut args);
    }
    let is_lateral = args.iter().any(names_columns);
    derived(name, alias, call("unnest", vec![call(list, args)]), is_lateral)
}

/// `FROM function(args)` of a function of one value: DataFusion has none of them there.
fn one_row(name: &str, alias: Option<&TableAlias>, args: &[FunctionArg]) -> Option<TableFactor> {
    let args = args.iter().map(|arg| match arg {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(arg)) => Some(arg.clone()),
        _ => None,
    });
    let args: Vec<Expr> = args.collect::<Option<_>>()?;
    let is_lateral = args.iter().any(names_columns);
    derived_value(name, alias, call(name, args), is_lateral)
}

/// A number, or a parameter, with or without a sign.
fn is_number(expression: &Expr) -> bool {
    match expression {
        Expr::Value(value) => {
            matches!(value.value, ast::Value::Number(..) | ast::Value::Placeholder(_))
        }
        Expr::UnaryOp { op: ast::UnaryOperator::Minus | ast::UnaryOperator::Plus, expr } => {
            is_number(expr)
        }
        Expr::Nested(inner) => is_number(inner),
        _ => false,
    }
}

/// Whether an expression names columns of preceding tables in FROM.
pub(super) fn names_columns(expression: &Expr) -> bool {
    let flow = visit_expressions(expression, |part| match part {
        Expr::Identifier(_) | Expr::CompoundIdentifier(_) => ControlFlow::Break(true),
        // Its names are its own.
        Expr::Subquery(_) => ControlFlow::Break(false),
        _ => ControlFlow::Continue(()),
    });
    matches!(flow, ControlFlow::Break(true))
}

/// Of a series of numbers: whole numbers in quotes are numbers, unless a time or interval is written beside them.
fn type_numbers(args: &mut [Expr]) {
    let quoted = |argument: &Expr| match argument {
        Expr::Value(value) => match &value.value {
            ast::Value::SingleQuotedString(text) => Some(text.trim().to_owned()),
            _ => None,
        },
        _ => None,
    };
    let is_time = |argument: &Expr| match type_of(argument) {
        Some(own) => {
            use ast::DataType::{Date, Interval, Timestamp};
            matches!(own, Date | Timestamp(..) | Interval { .. })
        }
        None => quoted(argument).is_some_and(|text| text.parse::<i64>().is_err()),
    };
    if args.iter().any(is_time) {
        return;
    }
    for argument in args {
        let Some(text) = quoted(argument) else { continue };
        let number = text.trim_start_matches(['-', '+']).to_owned();
        let number = Expr::value(ast::Value::Number(number, false));
        *argument = match text.starts_with('-') {
            true => Expr::UnaryOp { op: ast::UnaryOperator::Minus, expr: Box::new(number) },
            false => number,
        };
    }
}

/// Of a series of times: literals in quotes have the type of the first argument, and the step is an interval.
/// PostgreSQL has no series of dates: they become timestamps.
fn type_times(args: &mut [Expr]) {
    let [first, rest @ .., step] = args else { return };
    if rest.len() != 1 {
        return;
    }
    let is_text = |argument: &Expr| {
        matches!(argument, Expr::Value(value)
            if matches!(value.value, ast::Value::SingleQuotedString(_)))
    };
    let as_type = |argument: &mut Expr, data_type: ast::DataType| {
        let inner = std::mem::replace(argument, Expr::value(ast::Value::Null));
        *argument = cast(inner, data_type);
    };
    let moment = ast::DataType::Timestamp(None, ast::TimezoneInfo::WithTimeZone);
    let Some(own) = type_of(first).or_else(|| rest.first().and_then(type_of)) else {
        if is_text(step) {
            as_type(step, ast::DataType::Interval { fields: None, precision: None });
        }
        return;
    };
    let bounds_type = if own == ast::DataType::Date { moment } else { own.clone() };
    for bound in std::iter::once(first).chain(rest) {
        if own == ast::DataType::Date || is_text(bound) {
            as_type(bound, bounds_type.clone());
        }
    }
    if is_text(step) {
        as_type(step, ast::DataType::Interval { fields: None, precision: None });
    }
}

pub(super) fn cast(expr: Expr, data_type: ast::DataType) -> Expr {
    Expr::Cast {
        kind: ast::CastKind::DoubleColon,
        expr: Box::new(expr),
        data_type,
        array: false,
        format: None,
    }
}

/// The type written in an expression.
pub(super) fn type_of(expression: &Expr) -> Option<ast::DataType> {
    match expression {
        Expr::Cast { data_type, .. } => Some(data_type.clone()),
        Expr::TypedString(typed) => Some(typed.data_type.clone()),
        Expr::Nested(inner) => type_of(inner),
        _ => None,
    }
}

/// `(SELECT rows AS name) AS alias`; the unnested expression may still be a list.
fn derived(
    function: &str,
    alias: Option<&TableAlias>,
    rows: Expr,
    lateral: bool,
) -> Option<TableFactor> {
    let rows = match is_unnested_series(&rows) {
        true => rows,
        false => call("unnest", vec![rows]),
    };
    derived_value(function, alias, rows, lateral)
}

/// `unnest(list, list, …) AS alias (name, name, …)` by these names, of which those that are missing are the function's.
/// DataFusion makes one column of lists of one name, and names a cast, also of a NULL, as what is cast: each list but
/// the first gets a name of its own, as in [`name_casts`](super::named_casts::name_casts).
fn side_by_side(alias: Option<&TableAlias>, lists: &[Expr]) -> Option<TableFactor> {
    let mut alias = alias.cloned().unwrap_or_else(|| named(Ident::new("unnest")));
    let missing = lists.len().checked_sub(alias.columns.len())?;
    for place in alias.columns.len()..lists.len() {
        // Several of one name are found by none.
        let name = match missing {
            1 => "unnest".to_owned(),
            _ => format!("unnest⟨{}⟩", place + 1),
        };
        let name = Ident::with_quote('"', name);
        alias.columns.push(ast::TableAliasColumnDef { name, data_type: None });
    }
    let lateral = lists.iter().any(names_columns);
    let items = lists.iter().zip(&alias.columns).enumerate().map(|(place, (list, name))| {
        let list = match place {
            0 => list.clone(),
            _ => {
                let name = ast::Value::SingleQuotedString(place.to_string());
                call(FIRST_OF, vec![list.clone(), Expr::value(name)])
            }
        };
        SelectItem::ExprWithAlias { expr: call("unnest", vec![list]), alias: name.name.clone() }
    });
    let items = items.collect();
    selected(items, Some(alias), lateral)
}

/// `(SELECT value AS name) AS alias`.
fn derived_value(
    function: &str,
    alias: Option<&TableAlias>,
    rows: Expr,
    lateral: bool,
) -> Option<TableFactor> {
    let mut alias = alias.cloned();
    name_column(&mut alias, function);
    let name = alias.as_ref()?.columns.first()?.name.clone();
    selected(vec![SelectItem::ExprWithAlias { expr: rows, alias: name }], alias, lateral)
}

/// `(SELECT items) AS alias`.
fn selected(
    items: Vec<SelectItem>,
    alias: Option<TableAlias>,
    lateral: bool,
) -> Option<TableFactor> {
    let mut parser = Parser::new(&PostgreSqlDialect {}).try_with_sql("SELECT 1").ok()?;
    let mut subquery = parser.parse_query().ok()?;
    let SetExpr::Select(select) = &mut *subquery.body else { return None };
    select.projection = items;
    Some(TableFactor::Derived { lateral, subquery, alias, sample: None })
}
