//! Describes a query with parameters before it has values: the types of its parameters, the columns of its result.
//!
//! 1. Declared types, and those that the text says ([`written_types`]), are taken as they are.
//! 2. For the others DataFusion binds the query with the parameters in it, and gives each the type of its other
//!    operand: of several places, the first.
//! 3. The query is bound again with a typed NULL for each; its analysed plan has the columns of the result.
//!
//! Nothing is planned: no statistics are read, no index is asked, no device is called.

use cleave_fragment::walk::{Walk, WalkPlan};
use std::sync::Arc;

use cleave_catalog::error::{Error, Fault, Result};
use cleave_catalog::settings::Settings;
use cleave_sql::dialect::sql_type;
use cleave_sql::statement::locked_parts::GivenRows;
use cleave_sql::statement::parameters::{parameter_type, place_of, put_types_into, written_types};
use cleave_store::{ColumnType, TableSchema};
use datafusion::arrow::datatypes::{DataType, SchemaRef};
use datafusion::common::DFSchema;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::logical_expr::expr::Placeholder;
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan, Operator};
use datafusion::sql::sqlparser::ast;

use super::placed::placed;
use super::{Bound, ReadView, bind, small_query};
use crate::planner::deep_subqueries::analysed;
use crate::planner::planning;
use crate::query_engine::QueryEngine;

/// A query as far as it is known without values.
#[derive(Debug, Clone)]
pub struct Described {
    /// Types of its parameters, `$1` first.
    pub types: Vec<ColumnType>,
    /// Columns of its result.
    pub schema: SchemaRef,
    /// The query's own names of these columns.
    pub sources: Vec<String>,
    /// The tables that it reads, as they were.
    pub tables: Vec<Arc<TableSchema>>,
    /// The names of those that it reads and that are not of the database, also by way of views; files by the names of
    /// their relations.
    pub outside: Vec<String>,
}

/// Describes `query`, of whose parameters `types` are known.
///
/// # Errors
/// Those of binding it; [`Error::Invalid`] for a parameter whose type nothing tells.
pub async fn describe(
    database: &Arc<QueryEngine>,
    settings: &Settings,
    view: Option<&ReadView>,
    query: &ast::Query,
    types: Vec<Option<ColumnType>>,
) -> Result<Described> {
    let read = (view, &GivenRows::default());
    Box::pin(describe_over(database, settings, read, query, types)).await
}

/// As [`describe`], of a query that may name rows which are `given`.
///
/// # Errors
/// Those of [`describe`].
pub async fn describe_over(
    database: &Arc<QueryEngine>,
    settings: &Settings,
    (view, given): (Option<&ReadView>, &GivenRows),
    query: &ast::Query,
    types: Vec<Option<ColumnType>>,
) -> Result<Described> {
    let planning = planning::Planning::new(settings, &database.query_runtime());
    let state = view.map_or_else(|| database.live().state, |view| Arc::clone(&view.state));
    let is_small = small_query::is_small(query, &state);
    let (own, settings) = (Arc::clone(database), settings.clone());
    let (view, given, query) = (view.cloned(), given.clone(), query.clone());
    let described =
        async move { describe_here(&own, &settings, (view.as_ref(), &given), &query, types).await };
    Box::pin(planning.over(is_small, described)).await
}

/// As [`describe_over`], where it runs.
async fn describe_here(
    database: &Arc<QueryEngine>,
    settings: &Settings,
    (view, given): (Option<&ReadView>, &GivenRows),
    query: &ast::Query,
    mut types: Vec<Option<ColumnType>>,
) -> Result<Described> {
    written_types(query, &mut types)?;
    if types.contains(&None) {
        let put = |query: &mut ast::Query| put_types_into(query, &types);
        let bound = bind(database, settings, view, query.clone(), given, put);
        let (bound, _) = bound.await.map_err(|error| placed(error, query))?;
        let parts = bound.parts.iter().map(|part| &part.plan);
        parts.chain([&bound.logical]).try_for_each(|plan| infer(plan, &mut types))?;
        // A parameter that is a column by itself has the type that it is given.
        shown_places(&query.body, &mut |place| {
            if let Some(unknown @ None) = types.get_mut(place) {
                *unknown = Some(ColumnType::Text);
            }
        })?;
    }
    let put = |query: &mut ast::Query| put_types_into(query, &types);
    let bound = bind(database, settings, view, query.clone(), given, put);
    let (Bound { state, logical, tables, outside, parts: _ }, names) =
        bound.await.map_err(|error| placed(error, query))?;
    let sources = super::views::source_names(&logical);
    let catalog = view.map_or_else(|| database.live().state, |view| Arc::clone(&view.state));
    let origins = super::origins::origins(&logical, &catalog);
    let analysed = analysed(state.analyzer(), logical, state.config_options());
    let analysed = analysed.map_err(|error| placed(error.into(), query))?;
    let schema = names.apply(analysed.schema().inner());
    let schema = super::origins::noted(&schema, &origins);
    Ok(Described { types: all_known(&types)?, schema, sources, tables, outside })
}

/// The types, all of which must be known.
pub fn all_known(types: &[Option<ColumnType>]) -> Result<Vec<ColumnType>> {
    let known = types.iter().enumerate().map(|(place, known)| {
        known.ok_or_else(|| {
            let number = place + 1;
            Error::Invalid {
                message: format!(
                    "could not determine data type of parameter ${number}; declare it, as in \
                     PREPARE name (integer, …) AS …, or write ${number}::type"
                ),
                fault: Fault::ParameterType,
                position: None,
            }
        })
    });
    known.collect()
}

/// Notes the types that DataFusion found, and those of operands that have one common type.
fn infer(plan: &LogicalPlan, types: &mut [Option<ColumnType>]) -> Result<()> {
    plan.apply_everywhere(|node| {
        let mut schema = DFSchema::empty();
        node.inputs().iter().for_each(|input| schema.merge(input.schema()));
        if let LogicalPlan::TableScan(scan) = node {
            schema.merge(&scan.projected_schema);
        }
        node.each_expression(|expression| {
            expression.apply(|expression| {
                infer_in(expression, &schema, types);
                if let Expr::Placeholder(Placeholder { field: Some(field), .. }) = expression
                    && let Some(unknown @ None) =
                        place_in_plan(expression).and_then(|place| types.get_mut(place))
                {
                    *unknown = sql_type(field.data_type()).map(parameter_type);
                }
                Ok(TreeNodeRecursion::Continue)
            })
        })
    })?;
    Ok(())
}

/// The place, from 0, of a parameter.
fn place_in_plan(expression: &Expr) -> Option<usize> {
    let Expr::Placeholder(Placeholder { id, .. }) = expression else { return None };
    id.strip_prefix('$')?.parse::<usize>().ok()?.checked_sub(1)
}

/// Notes the types that `expression` gives to its operands: of CASE, `coalesce` and the like the type of the others, of
/// what is added to a time an interval.
fn infer_in(expression: &Expr, schema: &DFSchema, types: &mut [Option<ColumnType>]) {
    let operands: Vec<&Expr> = match expression {
        Expr::Case(case) => {
            let conditions = case.when_then_expr.iter().map(|(when, _)| when.as_ref());
            if let Some(operand) = &case.expr {
                let compared: Vec<&Expr> =
                    std::iter::once(operand.as_ref()).chain(conditions).collect();
                agree(&compared, schema, types);
            }
            let results = case.when_then_expr.iter().map(|(_, then)| then.as_ref());
            results.chain(case.else_expr.as_deref()).collect()
        }
        Expr::ScalarFunction(call)
            if ["coalesce", "nullif", "greatest", "least"]
                .iter()
                .any(|name| call.name().contains(name)) =>
        {
            call.args.iter().collect()
        }
        Expr::InList(list) => std::iter::once(list.expr.as_ref()).chain(list.list.iter()).collect(),
        Expr::BinaryExpr(binary) if binary.op == Operator::Plus => {
            let sides = [(&binary.left, &binary.right), (&binary.right, &binary.left)];
            for (side, other) in sides {
                if let Some(unknown @ None) =
                    place_in_plan(side).and_then(|place| types.get_mut(place))
                    && let Ok(DataType::Timestamp(..)) = other.get_type(schema)
                {
                    *unknown = Some(ColumnType::Interval);
                }
            }
            return;
        }
        _ => return,
    };
    agree(&operands, schema, types);
}

/// Gives the parameters among `operands` the type of the first of the others.
fn agree(operands: &[&Expr], schema: &DFSchema, types: &mut [Option<ColumnType>]) {
    let known = operands.iter().find_map(|operand| {
        let is_parameter = place_in_plan(operand).is_some();
        let known = (!is_parameter).then(|| operand.get_type(schema).ok()).flatten()?;
        sql_type(&known).map(parameter_type)
    });
    for place in operands.iter().filter_map(|operand| place_in_plan(operand)) {
        if let (Some(known), Some(unknown @ None)) = (known, types.get_mut(place)) {
            *unknown = Some(known);
        }
    }
}

/// Tells the parameters that are whole columns of the result.
fn shown_places(body: &ast::SetExpr, found: &mut dyn FnMut(usize)) -> Result<()> {
    let mut one = |expression: &ast::Expr| place_of(expression).map(|place| place.map(&mut *found));
    match body {
        ast::SetExpr::Select(select) => {
            for item in &select.projection {
                if let ast::SelectItem::UnnamedExpr(expr)
                | ast::SelectItem::ExprWithAlias { expr, .. } = item
                {
                    one(expr)?;
                }
            }
            Ok(())
        }
        ast::SetExpr::Values(values) => {
            let mut cells = values.rows.iter().flat_map(|row| row.iter());
            cells.try_for_each(|cell| one(cell).map(drop))
        }
        ast::SetExpr::SetOperation { left, right, .. } => {
            shown_places(left, found)?;
            shown_places(right, found)
        }
        ast::SetExpr::Query(query) => shown_places(&query.body, found),
        _ => Ok(()),
    }
}
