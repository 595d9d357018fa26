//! CHECK constraints: their texts in, compiled expressions over the table's columns out, and their evaluation on rows.
//!
//! All checks of a table are compiled together when rows first come, and kept with its
//! [rules](cleave_catalog::catalog::rules); those that read the present time are compiled for each statement. They are
//! evaluated on whole batches: on the rows of a statement before it locks anything, and on the rows of a load.
//!
//! Source: PostgreSQL's manual, "Check Constraints".

use cleave_fragment::walk::Walk;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::DataType;
use cleave_catalog::catalog::TableState;
use cleave_catalog::catalog::compiled_checks::CompiledChecks;
use cleave_catalog::catalog::rules::Check;
use cleave_catalog::error::{Error, Fault, Result};
use cleave_catalog::settings::Settings;
use cleave_engine::storage_engine::Engine;
use cleave_engine::write::load::RowChecks;
use cleave_sql::dialect::{lower_syntax, with_both_zeros};
use cleave_sql::statement::modify::over_target;
use cleave_sql::statement::parse::{parse_expression, refuse_in_query};
use cleave_store::TableSchema;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::logical_expr::{Expr, LogicalPlan, Volatility};
use datafusion::sql::parser::Statement as EngineStatement;
use datafusion::sql::sqlparser::ast;
use futures::future::BoxFuture;

use crate::planner::{self, InnerJoins, LastStates, simplify};
use crate::query_engine::QueryEngine;
use crate::select::target_catalog;

/// Checks rows to be inserted into `table`.
///
/// # Errors
/// [`Error::Violation`]; what computing a check gives.
pub async fn check_rows(
    database: &Engine,
    table: &TableState,
    rows: impl IntoIterator<Item = &RecordBatch>,
) -> Result<()> {
    if table.rules.checks.is_empty() {
        return Ok(());
    }
    let compiled = compiled_checks(database, table).await?;
    rows.into_iter().try_for_each(|rows| compiled.check(&table.schema, rows))
}

/// The checks of `table` as expressions over its columns, in the order of its rules.
///
/// # Errors
/// As [`compile`].
pub async fn compiled_checks(database: &Engine, table: &TableState) -> Result<Arc<CompiledChecks>> {
    let rules = &table.rules;
    Ok(match rules.compiled.0.get() {
        Some(compiled) => Arc::clone(compiled),
        None => {
            let made = compile(database.query_runtime(), &table.schema, &rules.checks);
            let made = Arc::new(Box::pin(made).await?);
            if made.is_immutable { Arc::clone(rules.compiled.0.get_or_init(|| made)) } else { made }
        }
    })
}

/// Makes expressions over the columns of `schema` of what `checks` say.
///
/// # Errors
/// Those of binding them; [`Error::Invalid`] for one that is no condition on one row.
pub async fn compile(
    runtime: Arc<RuntimeEnv>,
    schema: &TableSchema,
    checks: &[Check],
) -> Result<CompiledChecks> {
    let mut items = Vec::with_capacity(checks.len());
    for (check, number) in checks.iter().zip(0..) {
        let expr = parse_expression(&check.expression)?;
        let alias = ast::Ident::with_quote('"', format!("check{number}"));
        items.push(ast::SelectItem::ExprWithAlias { expr, alias });
    }
    let name = ast::Ident::with_quote('"', schema.name.as_str());
    let mut query = over_target(&name, items, Vec::new(), None)?;
    refuse_in_query(&query)?;
    lower_syntax(&mut query);
    let catalogs = target_catalog(schema.arrow(), Vec::new())?;
    let (settings, last) = (Settings::default(), LastStates::default());
    let state =
        planner::statement_state((&settings, &last), InnerJoins::AsWritten, 1, runtime, catalogs);
    let statement = ast::Statement::Query(query);
    let statement = EngineStatement::Statement(Box::new(statement));
    let logical = state.statement_to_plan(statement).await?;
    let options = state.config().options();
    let logical = state.analyzer().execute_and_check(logical, options, |_, _| {})?;
    let LogicalPlan::Projection(projection) = &logical else {
        return Err(of_one_row(schema));
    };
    if !matches!(&*projection.input, LogicalPlan::SubqueryAlias(_) | LogicalPlan::TableScan(_)) {
        return Err(of_one_row(schema));
    }
    let columns = projection.input.schema();
    let mut compiled = CompiledChecks { checks: Vec::new(), is_immutable: true };
    for (expression, check) in projection.expr.iter().zip(checks) {
        let expression = expression.clone().unalias_nested().data;
        let volatility = volatility(&expression)?;
        if volatility == Volatility::Volatile {
            return Err(Error::unsupported(format!(
                "a volatile function in check constraint \"{}\"",
                check.name
            )));
        }
        compiled.is_immutable &= volatility == Volatility::Immutable;
        // now() is replaced by its value.
        let expression = simplify::simplify(expression, columns, &state)?;
        let expression = with_both_zeros(expression)?.data;
        let physical = state.create_physical_expr(expression, columns)?;
        let data_type = physical.data_type(columns.as_arrow())?;
        if !matches!(data_type, DataType::Boolean | DataType::Null) {
            let found = cleave_sql::dialect::type_name(&data_type);
            return Err(Error::Invalid {
                message: format!("argument of CHECK must be type boolean, not type {found}"),
                fault: Fault::Type,
                position: None,
            });
        }
        compiled.checks.push((check.name.clone(), physical));
    }
    Ok(compiled)
}

fn of_one_row(schema: &TableSchema) -> Error {
    Error::Invalid {
        message: format!(
            "aggregate and window functions are not allowed in check constraints (of table \"{}\")",
            schema.name
        ),
        fault: Fault::Grouping,
        position: None,
    }
}

/// The weakest volatility of the functions in `expression`.
fn volatility(expression: &Expr) -> Result<Volatility> {
    let mut found = Volatility::Immutable;
    expression.apply(|expression| {
        if let Expr::ScalarFunction(function) = expression {
            found = found.max(function.func.signature().volatility);
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(found)
}

impl RowChecks for QueryEngine {
    fn check_rows<'a>(
        &'a self,
        table: &'a TableState,
        rows: &'a RecordBatch,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(check_rows(self, table, [rows]))
    }
}
