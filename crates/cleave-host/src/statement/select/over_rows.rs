//! Queries over rows in memory: what RETURNING lists of those that a statement has changed, and what DO UPDATE makes of pairs of
//! rows. Nothing of it is cut.

use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::{
    CatalogProvider, CatalogProviderList, MemTable, MemoryCatalogProvider,
    MemoryCatalogProviderList, MemorySchemaProvider, SchemaProvider,
};
use datafusion::physical_plan::collect;
use datafusion::sql::parser::Statement as EngineStatement;
use datafusion::sql::sqlparser::ast;

use super::missing_table::named_table;
use super::result_names::ResultNames;
use super::table_provider::{CATALOG, SCHEMA};
use super::{Asked, apply_schema};
use crate::activity::Act;
use crate::database::Database;
use crate::dialect::lower_syntax;
use crate::engine;
use crate::error::Result;
use crate::settings::Settings;
use crate::statement::modify::TARGET;

/// What `asked`, a query over [`TARGET`] alone, gives where that has these rows.
///
/// # Errors
/// Those of a query.
pub(crate) async fn over_rows(
    database: &Database,
    settings: &Settings,
    asked: Asked<'_>,
    rows: &RecordBatch,
) -> Result<(SchemaRef, Vec<RecordBatch>)> {
    over_tables(database, settings, asked, &[(TARGET, rows)]).await
}

/// What `asked`, a query over tables of these names, gives where they have these rows.
///
/// # Errors
/// Those of a query.
pub(crate) async fn over_tables(
    database: &Database,
    settings: &Settings,
    asked: Asked<'_>,
    named: &[(&str, &RecordBatch)],
) -> Result<(SchemaRef, Vec<RecordBatch>)> {
    database.activity().note(Act::Plan);
    let tables = named.iter().map(|(name, rows)| (*name, rows.schema(), vec![(*rows).clone()]));
    let catalogs = catalog_of(tables)?;
    let state = engine::statement_state(settings, 1, database.query_runtime(), catalogs);
    let mut query = asked.query.clone();
    let names = ResultNames::take(&mut query);
    asked.parameters.put_into(&mut query)?;
    lower_syntax(&mut query);
    let statement = ast::Statement::Query(Box::new(query));
    let statement = EngineStatement::Statement(Box::new(statement));
    let logical = state.statement_to_plan(statement).await;
    let logical = logical.map_err(|error| named_table(error.into(), asked.query))?;
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
pub(crate) fn target_catalog(
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
