//! INSERT: the parser's tree in, ours out; clauses of other dialects are refused.

use cleave_catalog::error::{Error, Fault, Result};
use datafusion::sql::sqlparser::ast::{self, Spanned};

use super::{Insert, refuse_in_query, refuse_in_returning};
use crate::statement::names::{fold, position_of, table_name};
use crate::statement::upsert::on_conflict;

/// A parsed INSERT.
///
/// # Errors
/// [`Error::Unsupported`] for clauses of other dialects; [`Error::Invalid`] for a column that is listed twice.
pub(super) fn typed_insert(insert: ast::Insert) -> Result<Insert> {
    let position = position_of(insert.table.span().start);
    let clauses = [
        (insert.or.is_some() || insert.ignore || insert.replace_into, "INSERT OR ..."),
        (insert.overwrite, "INSERT OVERWRITE"),
        (insert.partitioned.is_some() || !insert.after_columns.is_empty(), "INSERT ... PARTITION"),
        (insert.insert_alias.is_some(), "INSERT ... AS alias"),
        (!insert.assignments.is_empty(), "INSERT ... SET"),
        (insert.output.is_some(), "INSERT ... OUTPUT"),
        (insert.priority.is_some(), "INSERT with a priority"),
        (insert.settings.is_some() || insert.format_clause.is_some(), "INSERT ... FORMAT"),
        (insert.multi_table_insert_type.is_some(), "INSERT into several tables"),
    ];
    if let Some((_, clause)) = clauses.into_iter().find(|(present, _)| *present) {
        return Err(Error::unsupported(clause));
    }
    let ast::TableObject::TableName(name) = &insert.table else {
        return Err(Error::unsupported("INSERT into anything but a table").at(position));
    };
    let table = table_name(name)?;
    let mut columns: Vec<String> = Vec::with_capacity(insert.columns.len());
    let mut column_places = Vec::with_capacity(insert.columns.len());
    for name in &insert.columns {
        let column = match name.0.as_slice() {
            [ast::ObjectNamePart::Identifier(identifier)] => fold(identifier),
            _ => {
                let what = format!("INSERT into a part of a column ({name})");
                return Err(Error::unsupported(what).at(position_of(name.span().start)));
            }
        };
        if columns.contains(&column) {
            return Err(Error::Invalid {
                message: format!("column \"{column}\" specified more than once"),
                fault: Fault::DuplicateColumn,
                position: position_of(name.span().start),
            });
        }
        columns.push(column);
        column_places.push(position_of(name.span().start));
    }
    if let Some(query) = &insert.source {
        refuse_in_query(query)?;
    }
    let returning = insert.returning.unwrap_or_default();
    refuse_in_returning(&returning)?;
    let alias = insert.table_alias.map(|alias| alias.alias);
    let on_conflict = insert.on.map(|on| on_conflict(on, position)).transpose()?;
    let (source, overriding) = (insert.source, None);
    Ok(Insert {
        table,
        alias,
        columns,
        column_places,
        source,
        on_conflict,
        returning,
        overriding,
        position,
    })
}

/// Whether an expression in VALUES is the bare word DEFAULT, which the parser reads as a name.
#[must_use]
pub fn is_default(expression: &ast::Expr) -> bool {
    matches!(expression, ast::Expr::Identifier(identifier)
        if identifier.quote_style.is_none() && identifier.value.eq_ignore_ascii_case("default"))
}
