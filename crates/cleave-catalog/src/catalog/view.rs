//! A view: a named query, and the columns that it returns.
//!
//! Invariant: all objects that a view depends on exist, under their ids, as long as the view does; a view never depends
//! on itself.

use std::sync::Arc;

use cleave_store::TableSchema;

use super::{CatalogState, TableState, proto};

/// A view.
#[derive(Debug, Clone, PartialEq)]
pub struct ViewState {
    /// Its name and columns; its id is from those of tables.
    pub schema: Arc<TableSchema>,
    /// The query, as SQL.
    pub query: String,
    /// Names of the columns in the query, in their order.
    pub sources: Vec<String>,
    /// Ids of all tables and views that it depends on, directly or through other views.
    pub depends: Vec<u32>,
}

impl ViewState {
    /// The message for a manifest.
    pub(super) fn encode(&self) -> proto::View {
        proto::View {
            schema: self.schema.encode(),
            query: self.query.clone(),
            sources: self.sources.clone(),
            depends: self.depends.clone(),
        }
    }

    /// Reads the message of a manifest.
    ///
    /// # Errors
    /// What is invalid in it.
    pub(super) fn decode(message: proto::View) -> Result<Self, String> {
        let schema = TableSchema::decode(&message.schema).map_err(|error| error.to_string())?;
        let proto::View { query, sources, depends, .. } = message;
        if sources.len() != schema.columns.len() {
            return Err(format!("view \"{}\" has other columns than its query", schema.name));
        }
        Ok(Self { schema: Arc::new(schema), query, sources, depends })
    }
}

/// A table or view that a view depends on.
#[derive(Debug, Clone, Copy)]
pub enum MadeOf<'a> {
    /// A table.
    Table(&'a Arc<TableState>),
    /// A view.
    View(&'a Arc<ViewState>),
}

impl CatalogState {
    /// The view `name`.
    pub fn view(&self, name: &str) -> Option<&Arc<ViewState>> {
        self.views.get(name)
    }

    /// All views, by name.
    pub fn views(&self) -> impl Iterator<Item = &Arc<ViewState>> {
        self.views.values()
    }

    /// The table or view that the query of `view` calls `name`: one that it depends on, even if a temporary one of the
    /// session has that name.
    pub fn made_of(&self, view: &ViewState, name: &str) -> Option<MadeOf<'_>> {
        let is_meant = |schema: &TableSchema| view.depends.contains(&schema.table_id);
        if let Some(table) = self.table(name).filter(|table| is_meant(&table.schema)) {
            return Some(MadeOf::Table(table));
        }
        if let Some(found) = self.view(name).filter(|found| is_meant(&found.schema)) {
            return Some(MadeOf::View(found));
        }
        self.base()?.made_of(view, name)
    }

    /// The schemas of all tables and views that `view` depends on.
    pub fn schemas_of(&self, view: &ViewState) -> Vec<Arc<TableSchema>> {
        let mut found: Vec<Arc<TableSchema>> = Vec::with_capacity(view.depends.len());
        let mut state = Some(self);
        while let Some(known) = state {
            let views = known.views().map(|view| &view.schema);
            for schema in known.tables().map(|table| &table.schema).chain(views) {
                let id = schema.table_id;
                if view.depends.contains(&id) && found.iter().all(|known| known.table_id != id) {
                    found.push(Arc::clone(schema));
                }
            }
            state = known.base().filter(|_| found.len() < view.depends.len());
        }
        found
    }

    /// The views that depend on the table or view `id`.
    pub fn views_of(&self, id: u32) -> impl Iterator<Item = &Arc<ViewState>> {
        self.views().filter(move |view| view.depends.contains(&id))
    }
}

impl CatalogState {
    /// The names of all views.
    pub fn view_names(&self) -> impl Iterator<Item = &str> {
        self.views.keys().map(String::as_str)
    }

    /// The names of all sequences.
    pub fn sequence_names(&self) -> impl Iterator<Item = &str> {
        self.sequences.keys().map(String::as_str)
    }
}
