//! Queries over rows in memory: the RETURNING list over changed rows, and the DO UPDATE of pairs of rows. Nothing of it
//! is cut.

use std::sync::Arc;

use cleave_catalog::activity::Act;
use cleave_catalog::error::Result;
use cleave_catalog::settings::Settings;
use cleave_sql::dialect::lower_syntax;
use cleave_sql::statement::Parameters;
use cleave_sql::statement::locked_parts::part_name;
use cleave_sql::statement::modify::{TARGET, has_nested};
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::{
    CatalogProvider, CatalogProviderList, MemTable, MemoryCatalogProvider,
    MemoryCatalogProviderList, MemorySchemaProvider, SchemaProvider,
};
use datafusion::physical_plan::collect;
use datafusion::sql::parser::Statement as EngineStatement;
use datafusion::sql::sqlparser::ast;

use super::placed::placed;
use super::result_names::ResultNames;
use super::running::apply_schema;
use super::table_provider::{CATALOG, SCHEMA};
use super::{QueryRequest, ReadView, describe_over, run_query};
use crate::planner::{self, InnerJoins};
use crate::query_engine::QueryEngine;

/// The number by which [`TARGET`] is given to a query that reads tables too: that of no part of WITH.
const RETURNED: usize = usize::MAX;

/// The result of `asked`, a query over [`TARGET`] with these rows; its subqueries read its view.
///
/// # Errors
/// Those of a query.
pub async fn over_rows(
    database: &Arc<QueryEngine>,
    settings: &Settings,
    asked: QueryRequest<'_>,
    rows: &RecordBatch,
) -> Result<(SchemaRef, Vec<RecordBatch>)> {
    if !needs_tables(asked.query) {
        return over_tables(database, settings, asked, &[(TARGET, rows)]).await;
    }
    let (query, mut given) = (over_given(asked.query), asked.parameters.clone());
    given.rows.put_part(RETURNED, rows.clone());
    let asked = QueryRequest { query: &query, parameters: &given, view: asked.view };
    let running = Box::pin(run_query(database, settings, asked)).await?;
    let (schema, batches, _) = running.collect().await?;
    Ok((schema, batches))
}

/// The result columns of `query` over [`TARGET`] with such rows; its subqueries read `view`.
///
/// # Errors
/// Those of binding it.
pub async fn described_over_rows(
    (database, settings): (&Arc<QueryEngine>, &Settings),
    (query, parameters): (&ast::Query, &Parameters),
    view: &ReadView,
    rows: &RecordBatch,
) -> Result<SchemaRef> {
    if !needs_tables(query) {
        let asked = QueryRequest { query, parameters, view: None };
        return Ok(over_rows(database, settings, asked, rows).await?.0);
    }
    let mut given = parameters.rows.clone();
    given.put_part(RETURNED, rows.clone());
    let types = parameters.values().iter().map(|value| Some(value.column_type())).collect();
    let (read, query) = ((Some(view), &given), over_given(query));
    let described = describe_over(database, settings, read, &query, types);
    Ok(Box::pin(described).await?.schema)
}

/// Whether a query needs more than its rows: it has subqueries, or calls functions that are made for a statement, as
/// `nextval`.
fn needs_tables(query: &ast::Query) -> bool {
    has_nested(query) || super::calls_own_functions(query)
}

/// `query` over the rows that it is given, in the place of [`TARGET`].
fn over_given(query: &ast::Query) -> ast::Query {
    let mut query = query.clone();
    if let ast::SetExpr::Select(select) = query.body.as_mut()
        && let Some(ast::TableFactor::Table { name, .. }) =
            select.from.first_mut().map(|from| &mut from.relation)
    {
        let given = ast::Ident::with_quote('"', part_name(RETURNED));
        *name = ast::ObjectName::from(vec![given]);
    }
    query
}

/// The result of `asked`, a query over tables of these names with these rows.
///
/// # Errors
/// Those of a query.
pub async fn over_tables(
    database: &QueryEngine,
    settings: &Settings,
    asked: QueryRequest<'_>,
    named: &[(&str, &RecordBatch)],
) -> Result<(SchemaRef, Vec<RecordBatch>)> {
    database.activity().note(Act::Plan);
    let tables = named.iter().map(|(name, rows)| (*name, rows.schema(), vec![(*rows).clone()]));
    let catalogs = catalog_of(tables)?;
    let with = (settings, &database.last_states);
    let runtime = database.query_runtime();
    let state = planner::statement_state(with, InnerJoins::AsWritten, 1, runtime, catalogs);
    let mut query = asked.query.clone();
    let names = ResultNames::take_alone(&mut query)?;
    asked.parameters.put_into(&mut query)?;
    lower_syntax(&mut query);
    let statement = ast::Statement::Query(Box::new(query));
    let statement = EngineStatement::Statement(Box::new(statement));
    let logical = state.statement_to_plan(statement).await;
    let logical = logical.map_err(|error| placed(error.into(), asked.query))?;
    let physical = state.create_physical_plan(&logical).await?;
    let schema = names.apply(&physical.schema());
    let batches = collect(physical, state.task_ctx()).await?;
    let batches = batches.iter().map(|batch| apply_schema(batch, &schema));
    let batches = batches.collect::<Result<Vec<_>>>()?;
    Ok((schema, batches))
}

/// A catalog in which [`TARGET`] has these rows, and nothing else is.
///
/// # Errors
/// For rows of another schema.
pub fn target_catalog(
    schema: SchemaRef,
    rows: Vec<RecordBatch>,
) -> Result<Arc<dyn CatalogProviderList>> {
    catalog_of([(TARGET, schema, rows)])
}

/// A catalog in which tables of these names have these rows, and nothing else is.
fn catalog_of<'a>(
    named: impl IntoIterator<Item = (&'a str, SchemaRef, Vec<RecordBatch>)>,
) -> Result<Arc<dyn CatalogProviderList>> {
    let tables = MemorySchemaProvider::new();
    for (name, schema, rows) in named {
        let table = MemTable::try_new(schema, vec![rows])?;
        tables.register_table(name.to_owned(), Arc::new(table))?;
    }
    let catalog = MemoryCatalogProvider::new();
    catalog.register_schema(SCHEMA, Arc::new(tables))?;
    let catalogs = MemoryCatalogProviderList::new();
    catalogs.register_catalog(CATALOG.to_owned(), Arc::new(catalog));
    Ok(Arc::new(catalogs))
}
