//! A view: a named query, and the columns that it returns. A materialized view: a table that has the rows of its query.
//!
//! Invariant: all objects that a view depends on exist, under their ids, as long as the view does; a view never depends
//! on itself.

use std::collections::BTreeSet;
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
    /// Ids of all tables and views that it depends on, directly or through other views, as they were when it was made.
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

/// What makes a table a materialized view: its rows are those of a query, and only a refresh changes them.
#[derive(Debug, Clone, PartialEq)]
pub struct Materialized {
    /// As [`ViewState::query`].
    pub query: String,
    /// As [`ViewState::sources`].
    pub sources: Vec<String>,
    /// As [`ViewState::depends`].
    pub depends: Vec<u32>,
    /// Whether its rows are there: not after WITH NO DATA.
    pub is_populated: bool,
}

impl Materialized {
    /// The message for a manifest.
    pub(super) fn encode(&self) -> proto::Materialized {
        proto::Materialized {
            query: self.query.clone(),
            sources: self.sources.clone(),
            depends: self.depends.clone(),
            is_populated: self.is_populated,
        }
    }

    /// Reads the message of a manifest.
    ///
    /// # Errors
    /// What is invalid in it.
    pub(super) fn decode(
        message: proto::Materialized,
        schema: &TableSchema,
    ) -> Result<Self, String> {
        let proto::Materialized { query, sources, depends, is_populated } = message;
        if sources.len() != schema.columns.len() {
            return Err(format!("view \"{}\" has other columns than its query", schema.name));
        }
        Ok(Self { query, sources, depends, is_populated })
    }

    /// The view that it would be if its rows were not stored, with the name and columns of `schema`.
    pub fn as_view(&self, schema: TableSchema) -> ViewState {
        ViewState {
            schema: Arc::new(schema),
            query: self.query.clone(),
            sources: self.sources.clone(),
            depends: self.depends.clone(),
        }
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

    /// The ids `depends`, and what the views among them depend on: one that was replaced may read others than those
    /// above it were made of.
    pub fn all_below(&self, depends: &[u32]) -> BTreeSet<u32> {
        let mut all: BTreeSet<u32> = depends.iter().copied().collect();
        loop {
            let states = std::iter::successors(Some(self), |state| state.base());
            let views = states.flat_map(Self::views);
            let below = views.filter(|view| all.contains(&view.schema.table_id));
            let below = below.flat_map(|view| view.depends.iter().copied());
            let more: Vec<u32> = below.filter(|id| !all.contains(id)).collect();
            if more.is_empty() {
                return all;
            }
            all.extend(more);
        }
    }

    /// The schemas of all tables and views that `view` depends on, also those that a replaced view below it reads.
    pub fn schemas_of(&self, view: &ViewState) -> Vec<Arc<TableSchema>> {
        let depends = self.all_below(&view.depends);
        let mut found: Vec<Arc<TableSchema>> = Vec::with_capacity(depends.len());
        let mut state = Some(self);
        while let Some(known) = state {
            let views = known.views().map(|view| &view.schema);
            for schema in known.tables().map(|table| &table.schema).chain(views) {
                let id = schema.table_id;
                if depends.contains(&id) && found.iter().all(|known| known.table_id != id) {
                    found.push(Arc::clone(schema));
                }
            }
            state = known.base().filter(|_| found.len() < depends.len());
        }
        found
    }

    /// The views that depend on the table or view `id`, also materialized ones.
    pub fn views_of(&self, id: u32) -> impl Iterator<Item = Arc<ViewState>> {
        let depends = move |view: &Arc<ViewState>| view.depends.contains(&id);
        let materialized = self.materialized_views().filter_map(move |(table, query)| {
            let own = query.depends.contains(&id).then(|| TableSchema::clone(&table.schema));
            Some(Arc::new(query.as_view(own?)))
        });
        self.views().filter(move |view| depends(view)).map(Arc::clone).chain(materialized)
    }

    /// The tables that are materialized views, by name, each with its query.
    pub fn materialized_views(&self) -> impl Iterator<Item = (&Arc<TableState>, &Materialized)> {
        self.tables().filter_map(|table| Some((table, table.materialized.as_deref()?)))
    }

    /// Puts `view`, whose query or columns have changed, in the place of the view of its id, which may be a
    /// materialized one.
    pub fn put_view(&mut self, view: ViewState) {
        let id = view.schema.table_id;
        let table = self.tables.values_mut().find(|table| table.schema.table_id == id);
        let Some(table) = table else {
            self.views.insert(view.schema.name.clone(), Arc::new(view));
            return;
        };
        let is_populated = table.materialized.as_ref().is_some_and(|known| known.is_populated);
        let ViewState { query, sources, depends, .. } = view;
        let materialized = Materialized { query, sources, depends, is_populated };
        Arc::make_mut(table).materialized = Some(Arc::new(materialized));
    }

    /// Removes the views with these ids, also materialized ones.
    pub fn remove_views(&mut self, gone: &BTreeSet<u32>) {
        self.views.retain(|_, view| !gone.contains(&view.schema.table_id));
        self.tables.retain(|_, table| {
            table.materialized.is_none() || !gone.contains(&table.schema.table_id)
        });
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
