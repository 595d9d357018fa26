//! Looks up the columns of the tables that a statement names, before it is bound.

use cleave_catalog::catalog::view::{MadeOf, ViewState};
use cleave_sql::dialect::query_names::KnownTables;
use cleave_sql::statement::catalog_tables;
use cleave_sql::statement::locking::target_of;
use cleave_sql::statement::modify::{TARGET, VID};
use cleave_sql::statement::names::fold;
use cleave_store::TableSchema;
use datafusion::catalog::TableProvider;
use datafusion::sql::sqlparser::ast;

use super::statement_context::StatementContext;
use super::{sequence_rows, table_provider};

impl KnownTables for StatementContext {
    fn columns(&self, table: &ast::ObjectName) -> Option<Vec<String>> {
        columns(table, |name| self.own_columns(name))
    }

    fn primary_key(&self, table: &ast::ObjectName) -> Vec<String> {
        let Some(name) = own_name(table) else { return Vec::new() };
        if self.given(&name).is_some() || self.state().view(&name).is_some() {
            return Vec::new();
        }
        self.table(&name).map(|table| key_of(&table.schema)).unwrap_or_default()
    }
}

/// The tables that the query of a view names: those that it was made of, whatever has their names in the session, and
/// files.
pub(super) struct TablesOfView<'a> {
    pub(super) context: &'a StatementContext,
    pub(super) view: &'a ViewState,
}

impl KnownTables for TablesOfView<'_> {
    fn columns(&self, table: &ast::ObjectName) -> Option<Vec<String>> {
        columns(table, |name| {
            let schema = match self.context.state().made_of(self.view, name) {
                Some(MadeOf::Table(table)) => &table.schema,
                Some(MadeOf::View(view)) => &view.schema,
                None => return self.context.files(name)?.ok().map(|files| names_of(&*files)),
            };
            Some(schema.columns.iter().map(|column| column.name.clone()).collect())
        })
    }

    fn primary_key(&self, table: &ast::ObjectName) -> Vec<String> {
        let made_of = own_name(table);
        let made_of = made_of.and_then(|name| self.context.state().made_of(self.view, &name));
        match made_of {
            Some(MadeOf::Table(table)) => key_of(&table.schema),
            _ => Vec::new(),
        }
    }
}

/// The name of a table of the schema of all tables.
fn own_name(table: &ast::ObjectName) -> Option<String> {
    let parts: Option<Vec<String>> = table.0.iter().map(|part| part.as_ident().map(fold)).collect();
    match parts?.as_slice() {
        [name] => Some(name.clone()),
        [.., schema, name] if schema == table_provider::SCHEMA => Some(name.clone()),
        _ => None,
    }
}

/// The names of the columns of a primary key.
fn key_of(schema: &TableSchema) -> Vec<String> {
    let columns = schema.primary_key_indices().into_iter().filter_map(|at| schema.columns.get(at));
    columns.map(|column| column.name.clone()).collect()
}

/// The names of the columns of `table`, of which `own` tells where it is in the schema of all tables.
fn columns(
    table: &ast::ObjectName,
    own: impl FnOnce(&str) -> Option<Vec<String>>,
) -> Option<Vec<String>> {
    let parts: Option<Vec<String>> = table.0.iter().map(|part| part.as_ident().map(fold)).collect();
    let mut parts = parts?.into_iter().rev();
    let (name, schema) = (parts.next()?, parts.next());
    match schema.as_deref() {
        None | Some(table_provider::SCHEMA) => own(&name),
        Some(schema) => catalog_tables::columns(schema, &name),
    }
}

/// The names of the columns of `table`.
fn names_of(table: &dyn TableProvider) -> Vec<String> {
    table.schema().fields().iter().map(|field| field.name().clone()).collect()
}

impl StatementContext {
    fn own_columns(&self, name: &str) -> Option<Vec<String>> {
        if let Some(rows) = self.given(name) {
            return Some(rows.schema().fields().iter().map(|field| field.name().clone()).collect());
        }
        if self.state().sequences.contains_key(name) {
            return Some(sequence_rows::COLUMNS.map(str::to_owned).into());
        }
        let view = self.state().view(name).map(|view| &view.schema);
        let Some(schema) = view.or_else(|| self.table(name).map(|table| &table.schema)) else {
            return Some(names_of(&*self.outside_table(name)?));
        };
        let columns = schema.columns.iter().map(|column| column.name.clone());
        let is_target = target_of(name).is_some() || (name == TARGET && self.target().is_some());
        Some(columns.chain(is_target.then(|| VID.to_owned())).collect())
    }
}
