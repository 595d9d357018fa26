//! Intervals as keys: they sort, group and join by their length, as they compare. 24 hours are a day, 30 days a month.
//!
//! DataFusion orders them by months first, then days, then hours. Here, where types are settled:
//!
//! ```text
//!  ORDER BY x, PARTITION BY x, USING (x)    ─▶  … interval_span(x)
//!  DISTINCT ON (x), array_agg(y ORDER BY x) ─▶  the same
//!  GROUP BY x                               ─▶  GROUP BY interval_span(x); first_value(x) is shown
//!  SELECT DISTINCT x                        ─▶  the same
//!  min(x), max(x)                           ─▶  first_value(x ORDER BY interval_span(x))
//!  min(x) OVER (…), max(x) OVER (…)         ─▶  the same, as a window function of [ours](super::window_exclusion)
//!  GROUP BY ROLLUP (x)                      ─▶  as GROUP BY; where x is left out, its length is NULL and so is x
//!  count(DISTINCT x)                        ─▶  count(DISTINCT interval_span(x))
//! ```

use cleave_fragment::walk::WalkPlan;
use std::sync::Arc;

use cleave_fragment::functions::interval_span;
use datafusion::arrow::datatypes::{DataType, Field};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{Column, DFSchema};
use datafusion::error::Result;
use datafusion::functions_aggregate::first_last::first_value_udaf;
use datafusion::logical_expr::expr::{
    AggregateFunction, AggregateFunctionParams, Case, Sort, WindowFunction,
};
use datafusion::logical_expr::utils::{grouping_set_to_exprlist, merge_schema};
use datafusion::logical_expr::{
    Aggregate, Distinct, Expr, ExprSchemable, GroupingSet, JoinConstraint, LogicalPlan, Projection,
    WindowFunctionDefinition, when,
};
use datafusion::optimizer::AnalyzerRule;

use super::rewrite::{has_operator, rewrite_expressions};
use super::window_exclusion::over_all;

/// See the module.
#[derive(Debug)]
pub struct IntervalKeys;

impl AnalyzerRule for IntervalKeys {
    fn name(&self) -> &'static str {
        "interval_keys"
    }

    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> Result<LogicalPlan> {
        match has_operator(&plan, |node| Ok(may_have_keys(node)))? {
            true => Ok(plan.transform_up_everywhere(by_length)?.data),
            false => Ok(plan),
        }
    }
}

/// Whether `plan` may have intervals for keys. An input that makes none has none.
fn may_have_keys(plan: &LogicalPlan) -> bool {
    let is_interval = |field: &Arc<Field>| matches!(field.data_type(), DataType::Interval(_));
    matches!(plan, LogicalPlan::Aggregate(_) | LogicalPlan::Sort(_))
        || plan.inputs().iter().any(|input| input.schema().fields().iter().any(is_interval))
}

fn by_length(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    if !may_have_keys(&plan) {
        return Ok(Transformed::no(plan));
    }
    let schema = merge_schema(&plan.inputs());
    match plan {
        LogicalPlan::Sort(mut sort)
            if sort.expr.iter().any(|by| is_interval(&by.expr, &schema)) =>
        {
            for by in &mut sort.expr {
                by.expr = key(std::mem::take(&mut by.expr), &schema);
            }
            Ok(Transformed::yes(LogicalPlan::Sort(sort)))
        }
        LogicalPlan::Join(mut join)
            if join.on.iter().any(|(left, _)| is_interval(left, &schema)) =>
        {
            for (left, right) in &mut join.on {
                *left = key(std::mem::take(left), &schema);
                *right = key(std::mem::take(right), &schema);
            }
            // USING is of columns alone.
            join.join_constraint = JoinConstraint::On;
            Ok(Transformed::yes(LogicalPlan::Join(join)))
        }
        LogicalPlan::Window(_) => rewrite_expressions(plan, &|expr, schema| {
            let Expr::WindowFunction(mut window) = expr else { return Ok(Transformed::no(expr)) };
            for by in &mut window.params.partition_by {
                *by = key(std::mem::take(by), schema);
            }
            for by in &mut window.params.order_by {
                by.expr = key(std::mem::take(&mut by.expr), schema);
            }
            by_length_over(&mut window, schema);
            Ok(Transformed::yes(Expr::WindowFunction(window)))
        }),
        LogicalPlan::Distinct(Distinct::All(input)) => {
            let columns = input.schema().columns().into_iter().map(Expr::Column).collect();
            grouped(Aggregate::try_new(input, columns, Vec::new())?).map(Transformed::yes)
        }
        LogicalPlan::Distinct(Distinct::On(mut on)) => {
            for by in &mut on.on_expr {
                *by = key(std::mem::take(by), &schema);
            }
            for by in on.sort_expr.iter_mut().flatten() {
                by.expr = key(std::mem::take(&mut by.expr), &schema);
            }
            Ok(Transformed::yes(LogicalPlan::Distinct(Distinct::On(on))))
        }
        LogicalPlan::Aggregate(_) => {
            let ordered = rewrite_expressions(plan, &ordered)?;
            match ordered.data {
                LogicalPlan::Aggregate(aggregate) if has_keys(&aggregate, &schema) => {
                    grouped(aggregate).map(Transformed::yes)
                }
                plan => Ok(Transformed::new_transformed(plan, ordered.transformed)),
            }
        }
        plan => Ok(Transformed::no(plan)),
    }
}

/// An aggregate of rows in an order.
fn ordered(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    match expr {
        // The order of DISTINCT is one of its arguments.
        Expr::AggregateFunction(mut function)
            if !function.params.distinct
                && function.params.order_by.iter().any(|by| is_interval(&by.expr, schema)) =>
        {
            for by in &mut function.params.order_by {
                by.expr = key(std::mem::take(&mut by.expr), schema);
            }
            Ok(Transformed::yes(Expr::AggregateFunction(function)))
        }
        expr => Ok(Transformed::no(expr)),
    }
}

/// Replaces `min` and `max` of intervals by a window function of ours.
fn by_length_over(window: &mut WindowFunction, schema: &DFSchema) {
    let WindowFunctionDefinition::AggregateUDF(aggregate) = &window.fun else { return };
    let [argument] = window.params.args.as_slice() else { return };
    if is_interval(argument, schema) && ["min", "max"].contains(&aggregate.name()) {
        let condition = window.params.filter.take();
        window.fun = over_all(Arc::clone(aggregate), condition.is_some());
        window.params.args.extend(condition.map(|condition| *condition));
    }
}

/// Whether intervals are grouped, or compared by an aggregate.
fn has_keys(aggregate: &Aggregate, schema: &DFSchema) -> bool {
    let groups = grouping_set_to_exprlist(&aggregate.group_expr).unwrap_or_default();
    groups.into_iter().any(|by| is_interval(by, schema))
        || aggregate.aggr_expr.iter().any(|expr| of_length(expr, schema).is_some())
}

fn is_interval(expr: &Expr, schema: &DFSchema) -> bool {
    matches!(expr.get_type(schema), Ok(DataType::Interval(_)))
}

fn key(expr: Expr, schema: &DFSchema) -> Expr {
    match is_interval(&expr, schema) {
        true => interval_span().call(vec![expr]),
        false => expr,
    }
}

/// `aggregate` with intervals grouped and compared by their length, and unchanged columns.
fn grouped(aggregate: Aggregate) -> Result<LogicalPlan> {
    let schema = Arc::clone(&aggregate.schema);
    let input = Arc::clone(aggregate.input.schema());
    let group_count = schema.fields().len() - aggregate.aggr_expr.len();
    let mut aggregates: Vec<Expr> = aggregate
        .aggr_expr
        .iter()
        .map(|expr| of_length(expr, &input).unwrap_or_else(|| expr.clone()))
        .collect();
    // The place of each group's shown value, beside the aggregates.
    let mut shown: Vec<Option<usize>> = vec![None; group_count];
    let is_set = matches!(aggregate.group_expr.as_slice(), [Expr::GroupingSet(_)]);
    for (by, place) in grouping_set_to_exprlist(&aggregate.group_expr)?.into_iter().zip(&mut shown)
    {
        if is_interval(by, &input) {
            let first = aggregated(by.clone(), None, None);
            let known = aggregates.iter().position(|other| *other == first);
            *place = Some(known.unwrap_or_else(|| {
                aggregates.push(first);
                aggregates.len() - 1
            }));
        }
    }
    let keys = |exprs: Vec<Expr>| exprs.into_iter().map(|by| key(by, &input)).collect::<Vec<_>>();
    let group_expr = match aggregate.group_expr.as_slice() {
        [Expr::GroupingSet(set)] => vec![Expr::GroupingSet(match set.clone() {
            GroupingSet::Rollup(exprs) => GroupingSet::Rollup(keys(exprs)),
            GroupingSet::Cube(exprs) => GroupingSet::Cube(keys(exprs)),
            GroupingSet::GroupingSets(sets) => {
                GroupingSet::GroupingSets(sets.into_iter().map(keys).collect())
            }
        })],
        _ => keys(aggregate.group_expr),
    };
    let new = Aggregate::try_new(aggregate.input, group_expr, aggregates)?;
    let column = |index: usize| Expr::Column(Column::from(new.schema.qualified_field(index)));
    let columns = (0..schema.fields().len()).map(|index| {
        let (qualifier, field) = schema.qualified_field(index);
        let value = match shown.get(index) {
            // Rows that are grouped without it have a first value, too.
            Some(Some(place)) if is_set => {
                when(column(index).is_not_null(), column(group_count + place)).end()?
            }
            Some(Some(place)) => column(group_count + place),
            _ => column(index),
        };
        Ok(match value {
            Expr::Column(own) if own == Column::from((qualifier, field)) => Expr::Column(own),
            other => other.alias_qualified(qualifier.cloned(), field.name()),
        })
    });
    let columns = columns.collect::<Result<Vec<_>>>()?;
    Ok(LogicalPlan::Projection(Projection::try_new(
        columns,
        Arc::new(LogicalPlan::Aggregate(new)),
    )?))
}

/// An aggregate that compares intervals, rewritten to compare their lengths.
fn of_length(expr: &Expr, schema: &DFSchema) -> Option<Expr> {
    let function = match expr {
        Expr::Alias(alias) => return of_length(&alias.expr, schema),
        Expr::AggregateFunction(function) => function,
        _ => return None,
    };
    let [argument] = function.params.args.as_slice() else { return None };
    if !is_interval(argument, schema) {
        return None;
    }
    let filter = || function.params.filter.clone();
    match function.func.name() {
        "min" => Some(aggregated(argument.clone(), Some(true), filter())),
        "max" => Some(aggregated(argument.clone(), Some(false), filter())),
        "count" if function.params.distinct => {
            let args = vec![key(argument.clone(), schema)];
            let params = AggregateFunctionParams { args, ..function.params.clone() };
            let func = Arc::clone(&function.func);
            Some(Expr::AggregateFunction(AggregateFunction { func, params }))
        }
        _ => None,
    }
}

/// The first of the values, or of all that are not NULL the shortest or the longest.
fn aggregated(of: Expr, ascending: Option<bool>, filter: Option<Box<Expr>>) -> Expr {
    // DataFusion sorts before it filters.
    let of = match &filter {
        Some(filter) => {
            let taken = vec![(filter.clone(), Box::new(of))];
            Expr::Case(Case { expr: None, when_then_expr: taken, else_expr: None })
        }
        None => of,
    };
    let by = ascending.map(|asc| Sort {
        expr: interval_span().call(vec![of.clone()]),
        asc,
        nulls_first: false,
    });
    Expr::AggregateFunction(AggregateFunction::new_udf(
        first_value_udaf(),
        vec![of],
        false,
        filter,
        by.into_iter().collect(),
        None,
    ))
}
