//! PostgreSQL's rules of assignment: refuses expressions of types that a column does not accept, before any row is
//! computed.
//!
//! A literal in quotes, NULL and a parameter have no type of their own, and are read as the column's. Any other text is
//! assigned to text columns only; numbers are assigned to numbers, times to times, and anything to text.
//!
//! Source: PostgreSQL's manual, "Value Storage"; `transformAssignedExpr` (parse_target.c) and `pg_cast`.

use arrow::datatypes::{DataType, Schema};
use cleave_catalog::error::{Error, Fault, Position, Result};
use cleave_store::{Column, ColumnType, TableSchema};
use datafusion::sql::sqlparser::ast::{self, Spanned};

use super::conform::Conform;
use crate::dialect::type_name;
use crate::statement::modify::Assignment;
use crate::statement::names::position_of;

/// Refuses a value of the type `from` for `column`, given by `expression`.
///
/// # Errors
/// 42804, with PostgreSQL's hint.
pub(crate) fn check_assigned(
    column: &Column,
    expression: &ast::Expr,
    from: &DataType,
) -> Result<()> {
    match is_unknown(expression) {
        true => Ok(()),
        false => check_type(column, from, position_of(expression.span().start)),
    }
}

fn check_type(column: &Column, from: &DataType, position: Option<Position>) -> Result<()> {
    if is_assigned(from, &column.column_type) {
        return Ok(());
    }
    let own = match column.column_type {
        ColumnType::Numeric { .. } => "numeric".to_owned(),
        ColumnType::Varchar(_) => "character varying".to_owned(),
        ColumnType::Char(_) => "character".to_owned(),
        other => other.to_string(),
    };
    let (name, other, hint) = (&column.name, type_name(from), Fault::ASSIGNED_HINT);
    Err(Error::Invalid {
        message: format!(
            "column \"{name}\" is of type {own} but expression is of type {other}; {hint}"
        ),
        fault: Fault::Assigned,
        position,
    })
}

/// The same for the SET list of an UPDATE; `own` gives the type of the value for the column at a place.
///
/// # Errors
/// As [`check_assigned`].
pub fn check_set<'a>(
    schema: &TableSchema,
    assignments: &[Assignment],
    own: impl Fn(usize) -> Option<&'a DataType>,
) -> Result<()> {
    for set in assignments {
        // Values of a row have the types of its query.
        let (Some(expression), None) = (&set.value, &set.of_row) else { continue };
        let Some(place) = schema.column_index(&set.column) else { continue };
        if let (Some(column), Some(from)) = (schema.columns.get(place), own(place)) {
            check_assigned(column, expression, from)?;
        }
    }
    Ok(())
}

/// The same for all that `query` gives for the columns of an INSERT, with the types in `given`.
///
/// # Errors
/// As [`check_assigned`].
pub fn check_inserted(query: &ast::Query, conform: &Conform, given: &Schema) -> Result<()> {
    for (place, column) in conform.targets() {
        let Some(field) = given.fields().get(place) else { continue };
        match expression(&query.body, place) {
            Gives::Any => {}
            Gives::Expression(expression) => {
                check_assigned(column, expression, field.data_type())?;
            }
            Gives::Typed => check_type(column, field.data_type(), None)?,
        }
    }
    Ok(())
}

/// The source of a query's column.
enum Gives<'a> {
    /// VALUES, some of whose cells have no type of their own: each is read by itself.
    Any,
    Expression(&'a ast::Expr),
    /// A star, or UNION: an untyped literal there is text.
    Typed,
}

fn expression(body: &ast::SetExpr, place: usize) -> Gives<'_> {
    match body {
        ast::SetExpr::Select(select) => {
            let plain = select.projection.iter().map_while(|item| match item {
                ast::SelectItem::UnnamedExpr(expression)
                | ast::SelectItem::ExprWithAlias { expr: expression, .. } => Some(expression),
                _ => None,
            });
            plain.skip(place).map(Gives::Expression).next().unwrap_or(Gives::Typed)
        }
        ast::SetExpr::Query(query) => expression(&query.body, place),
        ast::SetExpr::Values(values) => {
            let mut cells = values.rows.iter().filter_map(|row| row.content.get(place));
            match cells.clone().any(is_unknown) {
                true => Gives::Any,
                false => cells.next().map_or(Gives::Any, Gives::Expression),
            }
        }
        ast::SetExpr::SetOperation { .. } => Gives::Typed,
        _ => Gives::Any,
    }
}

/// The text of a literal in quotes, which is read as a value of its column.
#[must_use]
pub fn quoted_text(expression: &ast::Expr) -> Option<&str> {
    match expression {
        ast::Expr::Nested(inner) => quoted_text(inner),
        ast::Expr::Value(value) => match &value.value {
            ast::Value::SingleQuotedString(text) => Some(text),
            _ => None,
        },
        _ => None,
    }
}

/// Whether an expression has no type of its own.
fn is_unknown(expression: &ast::Expr) -> bool {
    match expression {
        ast::Expr::Nested(inner) => is_unknown(inner),
        ast::Expr::Value(value) => {
            !matches!(value.value, ast::Value::Number(..) | ast::Value::Boolean(_))
        }
        _ => false,
    }
}

fn is_assigned(from: &DataType, to: &ColumnType) -> bool {
    use ColumnType as To;
    if matches!(to, To::Text | To::Varchar(_) | To::Char(_)) {
        return true;
    }
    match from {
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => false,
        DataType::Dictionary(_, values) => is_assigned(values, to),
        DataType::Date32 | DataType::Date64 => {
            matches!(to, To::Date | To::Timestamp | To::TimestampTz)
        }
        DataType::Time32(_) | DataType::Time64(_) => matches!(to, To::Time | To::Interval),
        DataType::Boolean => matches!(to, To::Boolean),
        own if own.is_numeric() => matches!(
            to,
            To::SmallInt | To::Int | To::BigInt | To::Real | To::Double | To::Numeric { .. }
        ),
        // The conversion reports any other case.
        _ => true,
    }
}
