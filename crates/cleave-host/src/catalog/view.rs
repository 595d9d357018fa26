//! A view: a query with a name, and columns that it gives.
//!
//! Invariant: what it is made of is there, under the ids that it names, as long as it is; and it is not made of itself.

use std::sync::Arc;

use cleave_store::TableSchema;

use super::{CatalogState, proto};

/// A view.
#[derive(Debug, Clone, PartialEq)]
pub struct ViewState {
    /// Its name and columns; the id is one of those that tables have.
    pub schema: Arc<TableSchema>,
    /// The query, as SQL.
    pub query: String,
    /// What the query calls the columns, in their order.
    pub sources: Vec<String>,
    /// Ids of all tables and views that it is made of, also by way of other views.
    pub depends: Vec<u32>,
}

impl ViewState {
    /// As a root has it.
    pub(super) fn encode(&self) -> proto::View {
        proto::View {
            schema: self.schema.encode(),
            query: self.query.clone(),
            sources: self.sources.clone(),
            depends: self.depends.clone(),
        }
    }

    /// What a root has.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn decode(message: proto::View) -> Result<Self, String> {
        let schema = TableSchema::decode(&message.schema).map_err(|error| error.to_string())?;
        let proto::View { query, sources, depends, .. } = message;
        if sources.len() != schema.columns.len() {
            return Err(format!("view \"{}\" has other columns than its query", schema.name));
        }
        Ok(Self { schema: Arc::new(schema), query, sources, depends })
    }
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

    /// The views that are made of the table or view `id`.
    pub(crate) fn views_of(&self, id: u32) -> impl Iterator<Item = &Arc<ViewState>> {
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
