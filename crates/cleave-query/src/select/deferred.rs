//! Deferred runs: a query that a device writes as a [result set](crate::result_sets) while nobody waits for it, and
//! whose rows are read from there later.
//!
//! ```text
//!  DECLARE c CURSOR WITH HOLD FOR q ─▶ DeferredQuery::plan, on its way at once ─▶ result set ─▶ FETCH, FETCH, …
//! ```
//!
//! 1. [`DeferredQuery::plan`] says whether fragments make the rows, each device its own, and whether they are many.
//! 2. [`DeferredQuery::run`] writes them. What reads them holds the result set alone: neither a run on the device, nor
//!    the catalog version that the query has read. Pages are read one after the other, so rows keep their order.
//!
//! A query that no device writes runs as any other. Source: NDP result sets, sections 3 and 4.1 (deferred consumption).

use std::sync::Arc;

use cleave_catalog::activity::Act;
use cleave_catalog::catalog::{CatalogState, HeldSpace, Keep};
use cleave_catalog::error::Result;
use cleave_catalog::settings::{Settings, When};
use cleave_fragment::link::AttachMode;
use cleave_plan::split::{Split, row_bytes};
use cleave_sql::statement::Parameters;
use cleave_store::TableSchema;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::sql::sqlparser::ast;

use super::stages::{columns_for, has_far};
use super::{QueryRequest, ReadView, RunningQuery, run_logged, run_query, table_query};
use crate::cooperative::inserting::{ColumnSource, InsertFragments, plan_insert};
use crate::query_engine::QueryEngine;
use crate::result_sets::{About, ResultSet};

/// Fewer bytes are in the slots of the run, or in the host's memory, as soon.
const BYTES_MIN: f64 = 1e6;

/// What the table of the rows is called.
const ROWS: &str = "rows";

/// A query whose rows a device is to write. See the module's description.
pub struct DeferredQuery {
    database: Arc<QueryEngine>,
    settings: Settings,
    query: ast::Query,
    parameters: Parameters,
    view: ReadView,
    fragments: InsertFragments,
    about: About,
    schema: SchemaRef,
}

impl DeferredQuery {
    /// Plans the query `asked` of the cursor `name`, declared by `text`. None: it is to run as any other.
    ///
    /// # Errors
    /// None of the statement's own: these come from the query that runs then instead.
    pub async fn plan(
        database: &Arc<QueryEngine>,
        settings: &Settings,
        (asked, view): (QueryRequest<'_>, &ReadView),
        (name, text): (&str, &str),
    ) -> Result<Option<Self>> {
        let is_forced = settings.stages == When::Always;
        let is_allowed = settings.stages != When::Never
            && asked.query.locks.is_empty()
            && settings.split_in_force() != Split::Host
            && (is_forced || has_far(database));
        if !is_allowed {
            return Ok(None);
        }
        let Some(inserting) = Box::pin(plan_insert(database, settings, asked)).await else {
            return Ok(None);
        };
        let schema = inserting.schema();
        let Some(columns) = columns_for(schema.fields()) else { return Ok(None) };
        let is_near = inserting.devices().any(|device| device.mode() == AttachMode::Embedded);
        let sources: Vec<_> = (0..columns.len()).map(ColumnSource::Query).collect();
        let (name, about) = (ROWS.to_owned(), About::new("cursor", name, text));
        let table = TableSchema { table_id: 0, version: 1, name, columns, primary_key: Vec::new() };
        let Some(fragments) = inserting.into_table(&Arc::new(table), &sources, &[])? else {
            return Ok(None);
        };
        let bytes = fragments.row_estimate() * row_bytes(&schema);
        if !is_forced && (is_near || bytes < BYTES_MIN) {
            return Ok(None);
        }
        Ok(Some(Self {
            database: Arc::clone(database),
            settings: settings.clone(),
            query: asked.query.clone(),
            parameters: asked.parameters.clone(),
            view: view.clone(),
            fragments,
            about,
            schema,
        }))
    }

    /// The columns of its rows.
    pub fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    /// Writes the rows, and begins to read them.
    ///
    /// # Errors
    /// Those of the query.
    pub async fn run(self) -> Result<RunningQuery> {
        let Self { database, settings, query, parameters, view, fragments, about, .. } = self;
        let text = about.statement.clone();
        // The rows of a device keep their order.
        let made = fragments.result_set(1, &settings, about).await;
        drop(fragments);
        let Ok(Some(set)) = made else {
            let asked = QueryRequest { query: &query, parameters: &parameters, view: Some(&view) };
            return Box::pin(run_logged(&database, &settings, asked, &text)).await;
        };
        database.activity().note(Act::Stage);
        let rows = ReadView::of_state(Arc::new(alone(&view.state, &set)));
        drop(view);
        // One page after the other.
        let settings = Settings { split: Split::Host, threads: 1, ..settings };
        let columns = set.table.schema.columns.iter().map(|column| column.name.as_str());
        let query = table_query(ROWS, &columns.collect::<Vec<_>>(), None)?;
        let asked = QueryRequest { view: Some(&rows), ..QueryRequest::from(&*query) };
        let running = Box::pin(run_query(&database, &settings, asked)).await?;
        Ok(running.called(&self.schema))
    }
}

/// A catalog that has the rows of `set` and nothing else, with the devices of `state`: it keeps no pages but these.
fn alone(state: &CatalogState, set: &Arc<ResultSet>) -> CatalogState {
    let mut state = CatalogState::clone(state);
    state.tables.clear();
    state.views.clear();
    state.sequences.clear();
    state.damaged.clear();
    state.shipped = Default::default();
    state.keep = None;
    let base = Arc::new(state.clone());
    state.keep = Some(Arc::new(Keep::new(base, vec![Arc::clone(set) as Arc<dyn HeldSpace>])));
    state.tables.insert(set.table.schema.name.clone(), Arc::clone(&set.table));
    state
}
