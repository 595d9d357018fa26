//! Expressions over one row of a table, compiled once for any values of parameters: the SET of a row that is found
//! without a plan.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use cleave_catalog::error::{Error, Result};
use cleave_catalog::settings::Settings;
use cleave_fragment::result_memory::ResultMemory;
use cleave_sql::dialect::lower_syntax;
use cleave_sql::statement::modify::{TARGET, over_target};
use cleave_sql::statement::parameters::place_of;
use cleave_sql::statement::parse::refuse_in_query;
use datafusion::arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::catalog::{
    CatalogProvider, CatalogProviderList, MemTable, MemoryCatalogProvider,
    MemoryCatalogProviderList, MemorySchemaProvider, SchemaProvider,
};
use datafusion::execution::SessionStateBuilder;
use datafusion::logical_expr::LogicalPlan;
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_expr::{PhysicalExpr, create_physical_expr};
use datafusion::sql::parser::Statement as EngineStatement;
use datafusion::sql::sqlparser::ast;

use super::result_names::ResultNames;
use super::table_provider::{CATALOG, SCHEMA};
use crate::planner::{self, InnerJoins};
use crate::query_engine::QueryEngine;
use cleave_sql::visiting::{visit, visit_mut};

/// DataFusion's rule that computes once what several expressions have in common.
const SHARING_RULE: &str = "common_sub_expression_eliminate";
/// Prefix of the column name of a parameter, before its place.
pub(super) const PARAMETER: &str = "\u{1}parameter";

/// See the module's description.
#[derive(Debug)]
pub struct Compiled {
    /// Types of the parameters.
    pub types: Vec<DataType>,
    /// Places of what the expressions read: among the table's columns, and behind them among the parameters.
    pub wanted: Vec<usize>,
    /// These.
    schema: SchemaRef,
    expressions: Vec<Arc<dyn PhysicalExpr>>,
    memory: Arc<ResultMemory>,
}

/// Whether `value` depends on nothing but columns, constants and parameters, and on these by operators alone.
#[must_use]
pub fn is_plain_value(value: &ast::Expr) -> bool {
    struct Plain;
    impl ast::Visitor for Plain {
        type Break = ();

        fn pre_visit_expr(&mut self, expression: &ast::Expr) -> ControlFlow<()> {
            use ast::Expr;
            match expression {
                Expr::Identifier(_)
                | Expr::CompoundIdentifier(_)
                | Expr::Value(_)
                | Expr::Nested(_)
                | Expr::UnaryOp { .. }
                | Expr::BinaryOp { .. }
                | Expr::Cast { .. }
                | Expr::IsNull(_)
                | Expr::IsNotNull(_)
                | Expr::Case { .. } => ControlFlow::Continue(()),
                _ => ControlFlow::Break(()),
            }
        }
    }
    visit(value, &mut Plain).is_continue()
}

/// Compiles `values`, expressions over rows with the columns of `table` and over parameters of these types.
///
/// # Errors
/// Those of binding them.
pub async fn compile(
    (database, settings): (&QueryEngine, &Settings),
    (table, name): (&SchemaRef, &ast::Ident),
    types: Vec<DataType>,
    mut values: Vec<ast::Expr>,
) -> Result<Compiled> {
    let parameters = types.iter().enumerate();
    let parameters = parameters
        .map(|(place, own)| Arc::new(Field::new(format!("{PARAMETER}{place}"), own.clone(), true)));
    let fields: Vec<_> = table.fields().iter().map(Arc::clone).chain(parameters).collect();
    let schema = Arc::new(Schema::new(fields));
    let runtime = database.query_runtime();
    let memory = ResultMemory::of(&runtime.memory_pool);
    if values.is_empty() {
        let (wanted, schema) = (Vec::new(), Arc::new(Schema::empty()));
        return Ok(Compiled { types, wanted, schema, expressions: Vec::new(), memory });
    }
    for value in &mut values {
        if let ControlFlow::Break(error) = visit_mut(value, &mut Columns) {
            return Err(*error);
        }
    }
    let tables = MemorySchemaProvider::new();
    let rows = MemTable::try_new(Arc::clone(&schema), vec![Vec::new()])?;
    tables.register_table(TARGET.to_owned(), Arc::new(rows))?;
    let catalog = MemoryCatalogProvider::new();
    catalog.register_schema(SCHEMA, Arc::new(tables))?;
    let catalogs = MemoryCatalogProviderList::new();
    catalogs.register_catalog(CATALOG.to_owned(), Arc::new(catalog));
    let planning = ResultMemory::of_planning(&runtime.memory_pool);
    let asked = (settings, &database.last_states);
    let state =
        planner::statement_state(asked, InnerJoins::AsWritten, 1, runtime, Arc::new(catalogs));
    // Common subexpressions would become a projection of their own, below theirs.
    let rules = state.optimizers().iter().filter(|rule| rule.name() != SHARING_RULE);
    let rules = rules.map(Arc::clone).collect();
    let state = SessionStateBuilder::new_from_existing(state).with_optimizer_rules(rules).build();
    let named = values.into_iter().zip(0..).map(|(expr, number)| {
        let alias = ast::Ident::with_quote('"', format!("value{number}"));
        ast::SelectItem::ExprWithAlias { expr, alias }
    });
    let mut query = over_target(name, named.collect(), Vec::new(), None)?;
    refuse_in_query(&query)?;
    let _names = ResultNames::take_alone(&mut query)?;
    lower_syntax(&mut query);
    let statement = EngineStatement::Statement(Box::new(ast::Statement::Query(query)));
    let logical = state.statement_to_plan(statement).await?;
    let expressions = match planning.within(|| state.optimize(&logical))? {
        LogicalPlan::Projection(projection) => {
            let (input, planning) = (projection.input.schema(), PhysicalPlanningContext::default());
            let physical = projection.expr.iter().map(|expression| {
                create_physical_expr(expression, input, state.execution_props(), &planning)
            });
            physical.collect::<Result<Vec<_>, _>>()?
        }
        // Columns as they are.
        plan => {
            let columns = plan.schema().fields().iter().map(|field| {
                let place = schema.index_of(field.name())?;
                Ok(Arc::new(Column::new(field.name(), place)) as Arc<dyn PhysicalExpr>)
            });
            columns.collect::<Result<Vec<_>>>()?
        }
    };
    // Only what is read need be there.
    let read = expressions.iter().flat_map(collect_columns);
    let wanted: BTreeSet<usize> =
        read.map(|column| schema.index_of(column.name())).collect::<Result<_, _>>()?;
    let wanted = Vec::from_iter(wanted);
    let schema = Arc::new(schema.project(&wanted)?);
    let rebased = expressions.into_iter().map(|own| on_schema(own, &schema));
    let expressions = rebased.collect::<Result<Vec<_>>>()?;
    Ok(Compiled { types, wanted, schema, expressions, memory })
}

impl Compiled {
    /// The values for one row of the table, of which, and of the parameters, `columns` are those that are wanted.
    ///
    /// # Errors
    /// Those of the expressions.
    pub fn values(&self, columns: Vec<ArrayRef>) -> Result<Vec<ArrayRef>> {
        let one = RecordBatchOptions::new().with_row_count(Some(1));
        let row = RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &one)?;
        let values = self
            .expressions
            .iter()
            .map(|expression| expression.evaluate(&row)?.into_array(1).map_err(Error::from));
        self.memory.within(|| values.collect())
    }
}

/// Puts columns in the places of parameters.
pub(super) struct Columns;

impl ast::VisitorMut for Columns {
    type Break = Box<Error>;

    fn pre_visit_expr(&mut self, expression: &mut ast::Expr) -> ControlFlow<Box<Error>> {
        match place_of(expression) {
            Ok(None) => ControlFlow::Continue(()),
            Ok(Some(place)) => {
                let name = ast::Ident::with_quote('"', format!("{PARAMETER}{place}"));
                *expression = ast::Expr::Identifier(name);
                ControlFlow::Continue(())
            }
            Err(error) => ControlFlow::Break(Box::new(error)),
        }
    }
}

/// `expression` with its columns where `schema` has them.
fn on_schema(expression: Arc<dyn PhysicalExpr>, schema: &Schema) -> Result<Arc<dyn PhysicalExpr>> {
    Ok(datafusion::physical_expr::utils::reassign_expr_columns(expression, schema)?)
}
