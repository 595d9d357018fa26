//! Names in SQL: identifiers of the parser in, names as the catalog stores them out.
//!
//! Unquoted identifiers are folded to lower case, quoted ones stay as they are. Only ASCII letters fold, as in
//! PostgreSQL with UTF-8 and in DataFusion. All objects that can be defined or written are in one schema, `public`, or
//! are temporary, in `pg_temp`; a name may include the schema.
//! Source: PostgreSQL's manual, "Identifiers and Key Words".

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{self, Visitor};
use datafusion::sql::sqlparser::tokenizer::Location;

use crate::visiting::{Visited, visit};
use cleave_catalog::error::{Error, NameKind, Position, Result};
use cleave_catalog::identifiers::TEMPORARY_SCHEMA;
pub use cleave_catalog::identifiers::in_quotes;
pub use cleave_catalog::identifiers::{CATALOG, SCHEMA, quoted};

/// The name that an identifier stands for.
#[must_use]
pub fn fold(identifier: &ast::Ident) -> String {
    match identifier.quote_style {
        None => identifier.value.to_ascii_lowercase(),
        Some(_) => identifier.value.clone(),
    }
}

/// The name and the alias of a FROM item; None: it has no name.
pub(crate) fn name_and_alias(
    factor: &ast::TableFactor,
) -> Option<(Option<&ast::ObjectName>, Option<&ast::TableAlias>)> {
    use ast::TableFactor as Factor;
    match factor {
        Factor::Table { name, alias, .. } => Some((Some(name), alias.as_ref())),
        Factor::Derived { alias, .. }
        | Factor::TableFunction { alias, .. }
        | Factor::Function { alias, .. }
        | Factor::UNNEST { alias, .. }
        | Factor::NestedJoin { alias, .. } => Some((None, alias.as_ref())),
        _ => None,
    }
}

/// The table names in `part` of a statement, those of its subqueries included.
pub(crate) fn called_in(part: &impl Visited) -> BTreeSet<String> {
    let mut tables = NamedTables::default();
    let _: ControlFlow<()> = visit(part, &mut tables);
    tables.called
}

/// The tables of a query and of those within it.
#[derive(Default)]
pub struct NamedTables {
    /// Their names or aliases.
    pub called: BTreeSet<String>,
    /// Names of those that have an alias, with it.
    pub hidden: BTreeMap<String, String>,
}

impl Visitor for NamedTables {
    type Break = ();

    fn pre_visit_table_factor(&mut self, factor: &ast::TableFactor) -> ControlFlow<()> {
        let Some((name, alias)) = name_and_alias(factor) else { return ControlFlow::Continue(()) };
        let name = name.and_then(|name| name.0.last()?.as_ident());
        match (name.map(fold), alias.map(|alias| fold(&alias.name))) {
            (Some(name), Some(alias)) => {
                self.hidden.insert(name, alias.clone());
                self.called.insert(alias);
            }
            (name, alias) => self.called.extend(name.or(alias)),
        }
        ControlFlow::Continue(())
    }
}

/// The table that a possibly qualified name stands for.
///
/// # Errors
/// [`Error::UnknownName`] for a schema other than `public`, [`Error::Unsupported`] for another database before it.
pub fn table_name(name: &ast::ObjectName) -> Result<String> {
    let mut parts = Vec::with_capacity(name.0.len());
    for part in &name.0 {
        let ast::ObjectNamePart::Identifier(identifier) = part else {
            return Err(Error::unsupported(format!("a function as a name ({name})")));
        };
        parts.push(identifier);
    }
    let position = parts.first().and_then(|first| position_of(first.span.start));
    match parts.as_slice() {
        [table] => Ok(fold(table)),
        // A session has decided which of the two the name means.
        [schema, table] if [SCHEMA, TEMPORARY_SCHEMA].contains(&fold(schema).as_str()) => {
            Ok(fold(table))
        }
        // As DataFusion writes it in full.
        [database, schema, table] if fold(database) == CATALOG && fold(schema) == SCHEMA => {
            Ok(fold(table))
        }
        [schema, _] => Err(Error::unknown(NameKind::Schema, &fold(schema), [SCHEMA]).at(position)),
        _ => Err(Error::unsupported(format!("a table of another database ({name})")).at(position)),
    }
}

/// The parser's location as a position; None where the parser gave none.
#[must_use]
pub fn position_of(location: Location) -> Option<Position> {
    let line = u32::try_from(location.line).unwrap_or(u32::MAX);
    let column = u32::try_from(location.column).unwrap_or(u32::MAX);
    (line > 0).then_some(Position { line, column })
}
