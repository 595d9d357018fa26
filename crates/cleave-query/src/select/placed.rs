//! Adds positions to binding errors: an error of DataFusion in, the same with its place in the text out.
//!
//! DataFusion names what is wrong. The place is the first in the text where that name stands in its role: a column, a
//! table or a function. DataFusion's messages of a missing function or group are reworded as PostgreSQL's.

use std::ops::ControlFlow;

use cleave_catalog::error::{Error, Fault, NameKind};
use cleave_catalog::suggest::nearest;
use cleave_sql::statement::names::{fold, position_of};
use datafusion::error::DataFusionError;
use datafusion::sql::sqlparser::ast::{self, Expr, Spanned, Visitor};
use datafusion::sql::sqlparser::tokenizer::Location;

use super::missing_table::named_table;
use super::operator_in::operator_in;
use cleave_sql::visiting::visit;

/// `error`, which binding `query` gave, with its place in the text.
pub(super) fn placed(error: Error, query: &ast::Query) -> Error {
    if error.position().is_some() {
        return error;
    }
    let column = match &error {
        Error::UnknownName { kind: NameKind::Column, name, .. } => Some(name.clone()),
        _ => None,
    };
    if let Error::NoOperator(of) = &error {
        let place = operator_in(query, of);
        return error.at(place);
    }
    if let Error::Literal { source, .. } = &error {
        let mut search = FindLiteral { text: &source.value, found: None };
        let _: ControlFlow<()> = visit(query, &mut search);
        let place = search.found.and_then(position_of);
        return error.at(place);
    }
    let error = in_own_words(named_table(error, query));
    let name = match (&error, &column) {
        (_, Some(name)) => Name::Column(name),
        (Error::UnknownName { kind: NameKind::Relation, name, .. }, _) => Name::Table(name),
        (Error::UnknownName { kind: NameKind::Schema, name, .. }, _) => Name::Schema(name),
        (Error::UnknownName { kind: NameKind::Function, name, .. }, _) => Name::Function(name),
        (Error::Invalid { fault, message, .. }, _) => match (fault, in_quotes(message)) {
            (Fault::MissingTable, Some(table)) => Name::ColumnOf(table),
            (Fault::AmbiguousColumn, Some(column)) => Name::Bare(column),
            (Fault::Grouping, Some(column)) => Name::Column(column),
            (Fault::Type, _) if message.starts_with("argument of WHERE") => {
                let place = condition(&query.body).and_then(|at| position_of(at.span().start));
                return error.at(place);
            }
            (Fault::UndefinedFunction, _) => match called_in_message(message) {
                Some(function) => Name::Function(function),
                None => return error,
            },
            _ => return error,
        },
        _ => return error,
    };
    let mut search = Search { name, found: None, loosely: None };
    let _: ControlFlow<()> = visit(query, &mut search);
    let place = search.found.or(search.loosely).and_then(position_of);
    error.at(place)
}

/// The condition of a query.
fn condition(body: &ast::SetExpr) -> Option<&Expr> {
    match body {
        ast::SetExpr::Select(select) => select.selection.as_ref(),
        _ => None,
    }
}

/// Rewords DataFusion's messages of functions, groups and ambiguous columns as PostgreSQL's.
fn in_own_words(error: Error) -> Error {
    let Error::Query(engine) = &error else { return error };
    let message = match engine.find_root() {
        DataFusionError::Plan(message) | DataFusionError::Execution(message) => message.as_str(),
        // Where it had checked the types of a call once.
        DataFusionError::Internal(message) => {
            return match between(message, "Function '", "' failed to match any signature") {
                Some(name) => Error::Invalid {
                    message: format!("function {name} does not exist for arguments of these types"),
                    fault: Fault::UndefinedFunction,
                    position: None,
                },
                None => error,
            };
        }
        _ => return error,
    };
    if let Some(name) = between(message, "Invalid function '", "'") {
        if FILE_FUNCTIONS.contains(&name) {
            return Error::Invalid {
                message: format!("function {name}(…) gives a table: it stands in FROM"),
                fault: Fault::UndefinedFunction,
                position: None,
            };
        }
        // DataFusion suggests the nearest function, however far it is.
        let suggested = between(message, "Did you mean '", "'");
        return Error::UnknownName {
            kind: NameKind::Function,
            name: name.to_owned(),
            of: None,
            suggestion: nearest(name, suggested),
            position: None,
        };
    }
    if let Some(column) = between(message, "While expanding wildcard, column \"", "\" must appear")
    {
        return Error::Invalid {
            message: format!(
                "column \"{}\" must appear in the GROUP BY clause or be used in an aggregate function",
                column.replace('"', "")
            ),
            fault: Fault::Grouping,
            position: None,
        };
    }
    let invalid = |message: String, fault| Error::Invalid { message, fault, position: None };
    if message.starts_with("HAVING clause references") {
        let message = "a column that HAVING stands beside must appear in the GROUP BY clause or be used in an \
                       aggregate function";
        return invalid(message.to_owned(), Fault::Grouping);
    }
    if let Some(position) = between(message, "Order by column out of bounds, specified: ", ", max")
    {
        let message = format!("ORDER BY position {position} is not in select list");
        return invalid(message, Fault::ColumnAliases);
    }
    if let Some((_, found)) = message.split_once("Join condition must be boolean type, but got ") {
        let message =
            format!("argument of JOIN/ON must be type boolean, not type {}", type_name(found));
        return invalid(message, Fault::Type);
    }
    if message.contains(NOT_BOOLEAN) {
        let found = message.rsplit(' ').next().map(type_name).unwrap_or_default();
        let message = format!("argument of WHERE must be type boolean, not type {found}");
        return invalid(message, Fault::Type);
    }
    if let Some((name, types)) =
        between(message, NO_FUNCTION, ")'").and_then(|call| call.split_once('('))
    {
        let name = name.strip_prefix("exact_").unwrap_or(name);
        let types: Vec<&str> = types.split(", ").map(type_name).collect();
        if ["coalesce", "greatest", "least"].contains(&name)
            && let Some((one, others)) = types.split_first()
            && let Some(other) = others.iter().find(|other| *other != one)
        {
            let name = name.to_uppercase();
            let message = format!("{name} types {one} and {other} cannot be matched");
            return invalid(message, Fault::Type);
        }
        let message = format!("function {name}({}) does not exist", types.join(", "));
        return invalid(message, Fault::UndefinedFunction);
    }
    error
}

/// PostgreSQL's name of a type that DataFusion names in a message.
fn type_name(engine: &str) -> &str {
    match engine {
        "Utf8" | "LargeUtf8" | "Utf8View" => "text",
        "Int16" => "smallint",
        "Int32" => "integer",
        "Int64" => "bigint",
        "Float32" => "real",
        "Float64" => "double precision",
        "Boolean" => "boolean",
        "Date32" => "date",
        "Binary" => "bytea",
        "Null" => "unknown",
        name if name.starts_with("Decimal") => "numeric",
        name if name.starts_with("Interval") => "interval",
        name if name.starts_with("Timestamp") && name.contains("UTC") => "timestamp with time zone",
        name if name.starts_with("Timestamp") => "timestamp without time zone",
        other => other,
    }
}

/// Functions that read files.
const FILE_FUNCTIONS: [&str; 2] = ["read_csv", "read_parquet"];

/// DataFusion's message for a condition that is not boolean.
const NOT_BOOLEAN: &str = "non-boolean predicate";

/// The beginning of DataFusion's message for wrong argument types of a function.
const NO_FUNCTION: &str = "No function matches the given name and argument types '";

fn called_in_message(message: &str) -> Option<&str> {
    between(message, "function ", "(")
}

fn in_quotes(message: &str) -> Option<&str> {
    between(message, "\"", "\"")
}

fn between<'a>(text: &'a str, before: &str, after: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(before)?;
    rest.split_once(after).map(|(found, _)| found)
}

/// The thing whose place is sought.
#[derive(Debug, Clone, Copy)]
enum Name<'a> {
    /// A column, perhaps with its table before it.
    Column(&'a str),
    /// A column without its table; with one where it stands nowhere without.
    Bare(&'a str),
    /// Any column of this table.
    ColumnOf(&'a str),
    Table(&'a str),
    Schema(&'a str),
    Function(&'a str),
}

/// Finds the first literal in quotes with that text.
struct FindLiteral<'a> {
    text: &'a str,
    found: Option<Location>,
}

impl Visitor for FindLiteral<'_> {
    type Break = ();

    fn pre_visit_value(&mut self, value: &ast::ValueWithSpan) -> ControlFlow<()> {
        let text = value.value.clone().into_string();
        if self.found.is_none() && text.is_some_and(|text| text == self.text) {
            self.found = Some(value.span.start).filter(|place| place.line > 0);
        }
        ControlFlow::Continue(())
    }
}

struct Search<'a> {
    name: Name<'a>,
    /// The first place.
    found: Option<Location>,
    /// The first where a column is named without its table.
    loosely: Option<Location>,
}

impl Search<'_> {
    fn note(&mut self, identifier: &ast::Ident) {
        let place = identifier.span.start;
        let key = |place: &Location| (place.line, place.column);
        if place.line > 0 && self.found.is_none_or(|found| key(&place) < key(&found)) {
            self.found = Some(place);
        }
    }
}

impl Visitor for Search<'_> {
    type Break = ();

    fn pre_visit_expr(&mut self, expression: &Expr) -> ControlFlow<()> {
        match (self.name, expression) {
            (Name::Column(wanted) | Name::Bare(wanted), Expr::Identifier(name))
                if fold(name) == wanted =>
            {
                self.note(name);
            }
            (Name::Bare(wanted), Expr::CompoundIdentifier(parts)) => {
                let [first, .., last] = parts.as_slice() else {
                    return ControlFlow::Continue(());
                };
                let wanted = wanted.rsplit('.').next().unwrap_or(wanted);
                if fold(last) == wanted {
                    self.loosely = self.loosely.or(Some(first.span.start).filter(|at| at.line > 0));
                }
            }
            (Name::Column(wanted), Expr::Identifier(name))
                if wanted.rsplit_once('.').is_some_and(|(_, own)| own == fold(name)) =>
            {
                self.loosely = self.loosely.or(Some(name.span.start).filter(|at| at.line > 0));
            }
            (Name::Column(wanted), Expr::CompoundIdentifier(parts)) => {
                let written: Vec<String> = parts.iter().map(fold).collect();
                let (wanted, written) = (format!(".{wanted}"), format!(".{}", written.join(".")));
                if let Some(first) = parts.first()
                    && (wanted.ends_with(&written) || written.ends_with(&wanted))
                {
                    self.note(first);
                }
            }
            (Name::ColumnOf(table), Expr::CompoundIdentifier(parts)) => {
                if let [.., written, _] = parts.as_slice()
                    && fold(written) == table
                {
                    parts.iter().take(1).for_each(|first| self.note(first));
                }
            }
            (Name::Function(wanted), Expr::Function(function)) => {
                let names: Vec<&ast::Ident> =
                    function.name.0.iter().filter_map(|part| part.as_ident()).collect();
                if let (Some(first), Some(last)) = (names.first(), names.last())
                    && fold(last) == wanted
                {
                    self.note(first);
                }
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_relation(&mut self, relation: &ast::ObjectName) -> ControlFlow<()> {
        let names: Vec<&ast::Ident> =
            relation.0.iter().filter_map(|part| part.as_ident()).collect();
        let (Some(first), Some(last)) = (names.first(), names.last()) else {
            return ControlFlow::Continue(());
        };
        let is_it = match self.name {
            Name::Table(wanted) => fold(last) == wanted,
            Name::Function(wanted) => fold(last) == wanted,
            Name::Schema(wanted) => names.len() > 1 && fold(first) == wanted,
            _ => false,
        };
        if is_it {
            self.note(first);
        }
        ControlFlow::Continue(())
    }
}
