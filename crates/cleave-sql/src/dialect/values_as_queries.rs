//! VALUES with a subquery in a row, rewritten to UNION ALL, since DataFusion's VALUES cannot have one. Literals in
//! quotes get the type of the other values of their column.
//!
//! ```text
//!  VALUES (1, (SELECT 2)), (3, 4)
//!    ─▶ (SELECT column1, column2 FROM (SELECT 0 AS row, 1 AS column1, (SELECT 2) AS column2
//!                                      UNION ALL SELECT 1, 3, 4) AS __values ORDER BY row)
//! ```

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{self, DataType, Expr, Ident, SelectItem, SetExpr, Visitor};

use super::functions::NUMBER_BESIDE;
use super::functions_in_from::{cast, type_of};
use super::list_comparisons::is_repeatable;
use crate::statement::catalog_syntax::call;
use crate::statement::parse::parse_query;
use crate::visiting::{visit, visit_queries_mut};

/// The reserved name of the rows while they are sorted.
const VALUES: &str = "__values";
const ROW: &str = "__row";

/// Rewrites `query`.
pub(super) fn lower_values(query: &mut ast::Query) {
    visit_queries_mut(query, |query| lower(&mut query.body));
}

/// `(VALUES (x))` as a value, which the parser crate reads as a function call: the query `(SELECT x)`.
pub(super) fn lower_row_of_values(expression: &mut Expr) {
    let Expr::Nested(inner) = expression else { return };
    let Expr::Function(function) = inner.as_ref() else { return };
    let [ast::ObjectNamePart::Identifier(name)] = function.name.0.as_slice() else { return };
    let ast::FunctionArguments::List(list) = &function.args else { return };
    if name.quote_style.is_some() || !name.value.eq_ignore_ascii_case("values") {
        return;
    }
    let cells: Option<Vec<Expr>> = list
        .args
        .iter()
        .map(|argument| match argument {
            ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(cell)) => Some(cell.clone()),
            _ => None,
        })
        .collect();
    let (Some(cells), Ok(mut query)) = (cells, parse_query("SELECT 1".to_owned())) else { return };
    let SetExpr::Select(select) = query.body.as_mut() else { return };
    let cells = cells.into_iter().zip(1..);
    select.projection =
        cells.map(|(cell, column)| named(cell, format!("column{column}"))).collect();
    *expression = Expr::Subquery(query);
}

fn lower(body: &mut SetExpr) {
    match body {
        SetExpr::Values(values) => {
            type_literals(values);
            if let Some(rows) = selects(values) {
                *body = rows;
            }
        }
        SetExpr::SetOperation { left, right, .. } => {
            lower(left);
            lower(right);
        }
        _ => {}
    }
}

/// Gives literals in quotes the type that another value of their column is written with.
fn type_literals(values: &mut ast::Values) {
    let width = values.rows.iter().map(|row| row.len()).min().unwrap_or(0);
    for column in 0..width {
        float_beside(values, column);
        let cells = || values.rows.iter().filter_map(|row| row.get(column));
        if !cells().any(is_literal) {
            continue;
        }
        // A number with a point makes the column numeric, whatever whole numbers there are.
        let number =
            cells().any(is_fraction).then_some(DataType::Numeric(ast::ExactNumberInfo::None));
        let written = || cells().find_map(written_type).map(without_modifier);
        let Some(own) = number.or_else(written) else { continue };
        for row in &mut values.rows {
            if let Some(cell) = row.get_mut(column).filter(|cell| is_literal(cell)) {
                let literal = std::mem::replace(cell, Expr::value(ast::Value::Null));
                *cell = number_of(&literal, &own).unwrap_or_else(|| cast(literal, own.clone()));
            }
        }
    }
}

/// Other cells of a column that may tell its type to numbers, at most.
const TELLING_MAX: usize = 8;

/// Gives numbers with a point the type of a float beside them: DataFusion would make decimals of both. What is not
/// written with a type has one only when it is planned.
fn float_beside(values: &mut ast::Values, column: usize) {
    let cells = || values.rows.iter().filter_map(|row| row.get(column));
    if !cells().any(is_fraction) || cells().all(|cell| is_fraction(cell) || is_plain(cell)) {
        return;
    }
    let is_double = |own: &DataType| {
        matches!(
            own,
            DataType::Double(_) | DataType::DoublePrecision | DataType::Float8 | DataType::Float64
        )
    };
    let written = cells().filter_map(type_of).find(is_double);
    let mut telling: Vec<Expr> = Vec::new();
    if written.is_none() {
        for cell in cells().filter(|cell| !is_fraction(cell) && !is_plain(cell)) {
            if !telling.contains(cell) {
                telling.push(cell.clone());
            }
        }
        if telling.len() > TELLING_MAX || !telling.iter().all(is_repeatable) {
            return;
        }
    }
    for row in &mut values.rows {
        if let Some(cell) = row.get_mut(column).filter(|cell| is_fraction(cell)) {
            let number = std::mem::replace(cell, Expr::value(ast::Value::Null));
            *cell = match &written {
                Some(own) => cast(number, own.clone()),
                None => {
                    let args = std::iter::once(number).chain(telling.iter().cloned());
                    call(NUMBER_BESIDE, args.collect())
                }
            };
        }
    }
}

/// Whether a cell is a literal of any kind, which is no float.
fn is_plain(cell: &Expr) -> bool {
    match cell {
        Expr::Value(_) => true,
        Expr::Nested(inner) | Expr::UnaryOp { expr: inner, .. } => is_plain(inner),
        _ => false,
    }
}

/// A literal in quotes as the number that it would be without them, if its column is numeric: a cast would give it a
/// scale of its own.
fn number_of(literal: &Expr, own: &DataType) -> Option<Expr> {
    let (Expr::Value(value), DataType::Numeric(_)) = (literal, own) else { return None };
    let ast::Value::SingleQuotedString(text) = &value.value else { return None };
    let text = text.trim();
    let digits = text.trim_start_matches('-');
    let parts = digits.split_once('.').unwrap_or((digits, ""));
    let is_digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    let is_number = !parts.0.is_empty() && is_digits(parts.0) && is_digits(parts.1);
    if !is_number || text.len() - digits.len() > 1 {
        return None;
    }
    let number = Expr::value(ast::Value::Number(digits.to_owned(), false));
    Some(if digits.len() == text.len() {
        number
    } else {
        Expr::UnaryOp { op: ast::UnaryOperator::Minus, expr: Box::new(number) }
    })
}

/// Whether a cell is a number with a point or a power of ten.
fn is_fraction(cell: &Expr) -> bool {
    match cell {
        Expr::Value(value) => {
            matches!(&value.value, ast::Value::Number(digits, _) if digits.contains(['.', 'e', 'E']))
        }
        Expr::Nested(inner) | Expr::UnaryOp { expr: inner, .. } => is_fraction(inner),
        _ => false,
    }
}

fn is_literal(cell: &Expr) -> bool {
    matches!(cell, Expr::Value(value) if matches!(value.value, ast::Value::SingleQuotedString(_)))
}

/// The type that an expression shows; a number shows one only if it is whole.
fn written_type(cell: &Expr) -> Option<DataType> {
    match cell {
        Expr::Value(value) => match &value.value {
            ast::Value::Boolean(_) => Some(DataType::Boolean),
            ast::Value::Number(digits, _) => match digits.parse::<i64>() {
                Ok(number) if i32::try_from(number).is_ok() => Some(DataType::Integer(None)),
                Ok(_) => Some(DataType::BigInt(None)),
                Err(_) => None,
            },
            _ => None,
        },
        Expr::Nested(inner) | Expr::UnaryOp { expr: inner, .. } => written_type(inner),
        other => type_of(other),
    }
}

/// A type without its length or precision: that of one cell is none of the others.
fn without_modifier(own: DataType) -> DataType {
    match own {
        DataType::Varchar(_) | DataType::CharacterVarying(_) | DataType::CharVarying(_) => {
            DataType::Varchar(None)
        }
        DataType::Char(_) | DataType::Character(_) => DataType::Text,
        DataType::Numeric(_) | DataType::Decimal(_) | DataType::Dec(_) => {
            DataType::Numeric(ast::ExactNumberInfo::None)
        }
        DataType::Time(_, zone) => DataType::Time(None, zone),
        DataType::Timestamp(_, zone) => DataType::Timestamp(None, zone),
        DataType::Interval { .. } => DataType::Interval { fields: None, precision: None },
        own => own,
    }
}

fn selects(values: &ast::Values) -> Option<SetExpr> {
    let needs = Needs::of(values);
    let width = values.rows.first()?.len();
    if !needs.has_query || values.rows.iter().any(|row| row.len() != width) {
        return None;
    }
    let count = values.rows.len();
    // A single row, and rows that depend on outer columns, are not sorted.
    let is_sorted = count > 1 && !needs.names_column;
    let mut all: Option<SetExpr> = None;
    for (number, row) in values.rows.iter().enumerate() {
        let mut query = parse_query("SELECT 1".to_owned()).ok()?;
        let SetExpr::Select(select) = query.body.as_mut() else { return None };
        let place = Expr::value(ast::Value::Number(number.to_string(), false));
        let place = is_sorted.then(|| named(place, ROW.to_owned()));
        let cells = row
            .iter()
            .zip(1..)
            .map(|(cell, column)| named(cell.clone(), format!("column{column}")));
        select.projection = place.into_iter().chain(cells).collect();
        let body = query.body;
        all = Some(match all {
            None => *body,
            Some(before) => SetExpr::SetOperation {
                op: ast::SetOperator::Union,
                set_quantifier: ast::SetQuantifier::All,
                left: Box::new(before),
                right: body,
            },
        });
    }
    let all = all?;
    if !is_sorted {
        return Some(all);
    }
    let columns = (1..=width).map(|column| format!("column{column}"));
    let columns = columns.collect::<Vec<_>>().join(", ");
    let text = format!("SELECT {columns} FROM (SELECT 1) AS {VALUES} ORDER BY {ROW}");
    let mut sorted = parse_query(text).ok()?;
    let SetExpr::Select(select) = sorted.body.as_mut() else { return None };
    match &mut select.from.first_mut()?.relation {
        ast::TableFactor::Derived { subquery, .. } => *subquery.body = all,
        _ => return None,
    }
    Some(SetExpr::Query(sorted))
}

fn named(expr: Expr, name: String) -> SelectItem {
    SelectItem::ExprWithAlias { expr, alias: Ident::new(name) }
}

/// Constructs in rows of VALUES that DataFusion does not support.
#[derive(Default)]
struct Needs {
    has_query: bool,
    names_column: bool,
    depth: usize,
}

impl Needs {
    fn of(values: &ast::Values) -> Self {
        let mut needs = Self::default();
        let _: ControlFlow<()> = visit(values, &mut needs);
        needs
    }
}

impl Visitor for Needs {
    type Break = ();

    fn pre_visit_query(&mut self, _query: &ast::Query) -> ControlFlow<()> {
        self.has_query = true;
        self.depth += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _query: &ast::Query) -> ControlFlow<()> {
        self.depth = self.depth.saturating_sub(1);
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expression: &Expr) -> ControlFlow<()> {
        let is_column = matches!(expression, Expr::Identifier(_) | Expr::CompoundIdentifier(_));
        self.names_column |= is_column && self.depth == 0;
        ControlFlow::Continue(())
    }
}
