//! Expressions of types that a column does not take by itself: PostgreSQL's rules of assignment, asked before there is
//! a row.
//!
//! A literal in quotes, NULL and a parameter have no type of their own, and are read as the column's. Whatever else is
//! text goes into text only; numbers become numbers, and times times; anything becomes text.
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

/// Refuses a value of the type `from` for `column`, which `expression` gives.
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

/// The same of what an UPDATE sets; `own` tells the type of what it has for the column at a place.
///
/// # Errors
/// As [`check_assigned`].
pub fn check_set<'a>(
    schema: &TableSchema,
    assignments: &[Assignment],
    own: impl Fn(usize) -> Option<&'a DataType>,
) -> Result<()> {
    for set in assignments {
        // Those of a row are as its query has them.
        let (Some(expression), None) = (&set.value, &set.of_row) else { continue };
        let Some(place) = schema.column_index(&set.column) else { continue };
        if let (Some(column), Some(from)) = (schema.columns.get(place), own(place)) {
            check_assigned(column, expression, from)?;
        }
    }
    Ok(())
}

/// The same of all that `query` gives for the columns of an INSERT, as `given` has their types.
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

/// What gives a column of a query.
enum Gives<'a> {
    /// Of VALUES, cells some of which have no type of their own: each is read by itself.
    Any,
    Expression(&'a ast::Expr),
    /// A star, or UNION: what has no type of its own there is text.
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
        // What else there is tells when it is converted.
        _ => true,
    }
}
