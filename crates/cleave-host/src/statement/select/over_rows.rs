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

use super::result_names::ResultNames;
use super::table_provider::{CATALOG, SCHEMA};
use super::{Asked, apply_schema};
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
    let tables = MemorySchemaProvider::new();
    for (name, rows) in named {
        let table = MemTable::try_new(rows.schema(), vec![vec![RecordBatch::clone(rows)]])?;
        tables.register_table((*name).to_owned(), Arc::new(table))?;
    }
    let catalog = MemoryCatalogProvider::new();
    catalog.register_schema(SCHEMA, Arc::new(tables))?;
    let catalogs = MemoryCatalogProviderList::new();
    catalogs.register_catalog(CATALOG.to_owned(), Arc::new(catalog));
    let state = engine::statement_state(settings, 1, database.query_runtime(), Arc::new(catalogs));
    let mut query = asked.query.clone();
    let names = ResultNames::take(&mut query);
    asked.parameters.put_into(&mut query)?;
    lower_syntax(&mut query);
    let statement = ast::Statement::Query(Box::new(query));
    let statement = EngineStatement::Statement(Box::new(statement));
    let logical = state.statement_to_plan(statement).await?;
    let physical = state.create_physical_plan(&logical).await?;
    let schema = names.apply(&physical.schema());
    let batches = collect(physical, state.task_ctx()).await?;
    let batches = batches.iter().map(|batch| apply_schema(batch, &schema));
    let batches = batches.collect::<Result<Vec<_>>>()?;
    Ok((schema, batches))
}
