//! Expands views in queries: a view's text in, its plan in the place of its name out.
//!
//! The plan is made when a query that names the view is bound, on the tables of that query's catalog version, and
//! stands where a scan would: it is optimised and cut with the rest. Its columns are found by the names of the time
//! when the view was made, so a `*` in it still means the columns of then.

use std::borrow::Cow;
use std::ops::ControlFlow;
use std::sync::Arc;

use cleave_catalog::catalog::CatalogState;
use cleave_catalog::catalog::view::ViewState;
use cleave_catalog::identifiers::SCHEMA;
use cleave_sql::dialect::{lower_syntax, sql_type, whole_type_name};
use cleave_sql::statement::catalog_syntax;
use cleave_sql::statement::files::{files_in, may_call};
use cleave_sql::statement::names::fold;
use cleave_sql::statement::parse::parse_query;
use cleave_sql::statement::shared_with::mark_shared;
use cleave_sql::visiting::visit_relations;
use cleave_store::{Column as StoredColumn, TableSchema};
use datafusion::arrow::datatypes::{DataType, SchemaRef};
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::{Column, DataFusionError, TableReference, internal_err};
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, TableType, cast};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::sql::parser::Statement as EngineStatement;
use datafusion::sql::sqlparser::ast;
use futures::future::{BoxFuture, ready};

use super::known_tables::TablesOfView;
use super::result_names::ResultNames;
use super::statement_context::StatementContext;
use super::table_provider::StatementCatalog;
use super::{partitions, state_over};
use crate::planner::planning;

/// What `plan` calls its columns.
pub(super) fn source_names(plan: &LogicalPlan) -> Vec<String> {
    let columns = plan.schema().iter();
    columns.map(|(table, field)| source_name(table, field.name())).collect()
}

/// `source` of a view, of a table that its query named with the schema: an alias may have taken the place of that.
pub(super) fn without_schema(source: &str) -> &str {
    source.strip_prefix(SCHEMA).and_then(|rest| rest.strip_prefix('.')).unwrap_or(source)
}

fn source_name(table: Option<&TableReference>, column: &str) -> String {
    table.map_or_else(|| column.to_owned(), |table| format!("{table}.{column}"))
}

/// Adds the table or view `name` to `tables`, and all that a view is made of; the relations of its files go to
/// `outside`.
///
/// # Errors
/// As [`CatalogState::find_table`](cleave_catalog::catalog::CatalogState::find_table).
pub(super) fn note_tables(
    context: &StatementContext,
    name: &str,
    (tables, outside): (&mut Vec<Arc<TableSchema>>, &mut Vec<String>),
) -> cleave_catalog::error::Result<()> {
    let state = context.state();
    if state.sequences.contains_key(name) {
        return Ok(());
    }
    let Some(view) = state.view(name) else {
        tables.push(Arc::clone(&context.find_table(name)?.schema));
        return Ok(());
    };
    check_usable(state, view)?;
    outside.extend(files_below(view, state)?);
    tables.push(Arc::clone(&view.schema));
    tables.extend(state.schemas_of(view));
    Ok(())
}

/// The relations of files that `query` reads, also by way of views of `state`.
///
/// # Errors
/// Those of reading the query of a view.
pub fn files_read(
    query: &ast::Query,
    state: &CatalogState,
) -> cleave_catalog::error::Result<Vec<String>> {
    let (mut files, mut named) = (files_in(query), Vec::new());
    let _: ControlFlow<()> = visit_relations(query, |name| {
        named.extend(name.0.last().and_then(|part| part.as_ident()).map(fold));
        ControlFlow::Continue(())
    });
    for view in named.iter().filter_map(|name| state.view(name)) {
        files.extend(files_below(view, state)?);
    }
    Ok(files)
}

/// The relations of files that `view` reads, also by way of other views of `state`.
///
/// # Errors
/// Those of reading the query of a view.
pub fn files_below(
    view: &ViewState,
    state: &CatalogState,
) -> cleave_catalog::error::Result<Vec<String>> {
    let mut files = files_of(view)?;
    let below = state.all_below(&view.depends);
    let states = std::iter::successors(Some(state), |state| state.base());
    for known in states.flat_map(CatalogState::views) {
        if below.contains(&known.schema.table_id) {
            files.extend(files_of(known)?);
        }
    }
    Ok(files)
}

/// The relations of files that the query of `view` names itself.
fn files_of(view: &ViewState) -> cleave_catalog::error::Result<Vec<String>> {
    match may_call(&view.query) {
        true => Ok(files_in(&*parse_query(view.query.clone())?)),
        false => Ok(Vec::new()),
    }
}

/// Says why a table below `view` cannot be used: its query names it, not the statement, and would not find it.
fn check_usable(state: &CatalogState, view: &ViewState) -> cleave_catalog::error::Result<()> {
    let damaged = state.damaged.values().map(|table| &table.schema);
    let all = state.tables.values().map(|table| &table.schema).chain(damaged);
    for schema in all.filter(|schema| view.depends.contains(&schema.table_id)) {
        state.find_table(&schema.name)?;
    }
    Ok(())
}

/// `view` in the form of DataFusion's planner. Its query names the tables that the view was made of, whatever has these
/// names in the session: a temporary table or view would otherwise be read with the rights of the view's owner.
///
/// # Errors
/// Those of binding its query.
pub(super) async fn table(
    context: &Arc<StatementContext>,
    view: &Arc<ViewState>,
) -> Result<Arc<dyn TableProvider>> {
    let external = |error: cleave_catalog::error::Error| DataFusionError::External(Box::new(error));
    let mut query = parse_query(view.query.clone()).map_err(external)?;
    let has_files = !files_in(&query).is_empty();
    catalog_syntax::lower(&mut query);
    let known = TablesOfView { context, view };
    drop(ResultNames::take(&mut query, &known).map_err(external)?);
    lower_syntax(&mut query);
    mark_shared(&mut query).map_err(external)?;
    let catalog = StatementCatalog::of_view(Arc::clone(context), Arc::clone(view));
    let state = state_over(catalog, context, &query, partitions(context, &query))?;
    let statement = ast::Statement::Query(query);
    let plan = state.statement_to_plan(EngineStatement::Statement(Box::new(statement))).await?;
    let mut columns = Vec::with_capacity(view.sources.len());
    let is_whole = plan.schema().fields().len() == view.sources.len();
    for (place, (source, column)) in view.sources.iter().zip(&view.schema.columns).enumerate() {
        let mut all = plan.schema().iter();
        let found = all.find(|(table, field)| {
            let name = source_name(*table, field.name());
            name == *source || name == without_schema(source)
        });
        // A version before this one gave columns without an alias other names.
        let is_older = is_whole && !has_files;
        let found = found.or_else(|| plan.schema().iter().nth(place).filter(|_| is_older));
        let Some((table, field)) = found else {
            return Err(DataFusionError::Plan(format!(
                "view \"{}\" has no column {source} any more; make it anew",
                view.schema.name
            )));
        };
        let expression = Expr::Column(Column::new(table.cloned(), field.name()));
        let expression = match field.data_type() {
            // The view gave it a type.
            DataType::Null => cast(expression, column.column_type.arrow()),
            found => {
                if has_files {
                    check_type(view, column, found)?;
                }
                expression
            }
        };
        columns.push(expression.alias(&column.name));
    }
    let plan = LogicalPlanBuilder::from(plan).project(columns)?.build()?;
    // A view of views has the operators of all of them.
    planning::check_size(&plan)?;
    let schema = Arc::clone(plan.schema().inner());
    let operator_count = planning::operator_count(&plan);
    Ok(Arc::new(ViewPlan { plan, schema, operator_count }))
}

/// Fails if a column of a view of files has another type than when the view was made.
fn check_type(view: &ViewState, column: &StoredColumn, found: &DataType) -> Result<()> {
    let as_sql = sql_type(found).map_or_else(|| found.clone(), |known| known.arrow());
    let expected = column.column_type;
    match as_sql == expected.arrow() {
        true => Ok(()),
        false => {
            let now = whole_type_name(found);
            Err(DataFusionError::Plan(format!(
                "column \"{}\" of view \"{}\" has the type {expected}, and its files have {now} there now; make the \
                 view anew, or say the type in it, as read_csv's option types does",
                column.name, view.schema.name
            )))
        }
    }
}

/// What a query that names a view takes in its place.
#[derive(Debug)]
struct ViewPlan {
    plan: LogicalPlan,
    schema: SchemaRef,
    operator_count: usize,
}

impl ViewPlan {
    /// What reads its rows.
    fn leaf(&self) -> Result<Arc<dyn ExecutionPlan>> {
        planning::check()?;
        internal_err!("a view that no plan was put in the place of")
    }
}

impl TableProvider for ViewPlan {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::View
    }

    /// Once for each time that the view is named. None: the statement has too many operators by now, which is said when
    /// it is bound.
    fn get_logical_plan(&self) -> Option<Cow<'_, LogicalPlan>> {
        planning::has_room_for(self.operator_count).then_some(Cow::Borrowed(&self.plan))
    }

    fn scan<'a, 's, 'c, 'e, 'f>(
        &'a self,
        _session: &'s dyn Session,
        _columns: Option<&'c Vec<usize>>,
        _filters: &'e [Expr],
        _limit: Option<usize>,
    ) -> BoxFuture<'f, Result<Arc<dyn ExecutionPlan>>>
    where
        'a: 'f,
        's: 'f,
        'c: 'f,
        'e: 'f,
    {
        Box::pin(ready(self.leaf()))
    }
}
