//! A planner rule: averages of integers, numerics and intervals become a sum and a count, which other aggregates of the
//! statement may share, and a division above the aggregate.
//!
//! ```text
//!   Aggregate [sum(x), avg(x)]   ─▶   Projection [sum, average_of(sum, count)] ◀─ Aggregate [sum(x), count(x)]
//! ```
//!
//! The partial half of such an aggregate, which a device may run, then keeps and sends one sum where it had two. Runs
//! after subqueries were decorrelated, since that looks for counts in aggregates without rows. Deliberately left to
//! DataFusion: averages of floats.

use std::sync::Arc;

use cleave_fragment::functions::quotient::QUOTIENT;
use cleave_fragment::functions::{average, average_of, exact_sum, interval_divided};
use datafusion::arrow::datatypes::DataType;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{Column, DFSchema};
use datafusion::error::Result;
use datafusion::functions_aggregate::count::count_udaf;
use datafusion::logical_expr::expr::{AggregateFunction, AggregateFunctionParams};
use datafusion::logical_expr::{
    Aggregate, AggregateUDF, Expr, ExprSchemable, LogicalPlan, Projection, cast, lit,
};
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};

/// See the module.
#[derive(Debug)]
pub(super) struct ShareSums;

impl OptimizerRule for ShareSums {
    fn name(&self) -> &'static str {
        "share_sums"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::BottomUp)
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        _config: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        match plan {
            LogicalPlan::Aggregate(aggregate)
                if aggregate.aggr_expr.iter().any(|expr| averaged(expr, &aggregate).is_some()) =>
            {
                Ok(Transformed::yes(shared(aggregate)?))
            }
            plan => Ok(Transformed::no(plan)),
        }
    }
}

/// The parameters of an average that is exact, or of intervals.
fn averaged<'a>(expr: &'a Expr, aggregate: &Aggregate) -> Option<&'a AggregateFunctionParams> {
    let Expr::AggregateFunction(function) = unaliased(expr) else { return None };
    let params = &function.params;
    let [value] = params.args.as_slice() else { return None };
    let is_plain = params.order_by.is_empty() && params.null_treatment.is_none();
    if *function.func != *average() || !is_plain {
        return None;
    }
    let own = value.get_type(aggregate.input.schema()).ok()?;
    let average = function.func.return_type(&[own]).ok()?;
    (average == QUOTIENT || is_interval(&average)).then_some(params)
}

fn is_interval(own: &DataType) -> bool {
    matches!(own, DataType::Interval(_))
}

fn unaliased(expr: &Expr) -> &Expr {
    match expr {
        Expr::Alias(alias) => unaliased(&alias.expr),
        expr => expr,
    }
}

fn shared(aggregate: Aggregate) -> Result<LogicalPlan> {
    let schema = Arc::clone(&aggregate.schema);
    let group_count = schema.fields().len() - aggregate.aggr_expr.len();
    let mut aggregates: Vec<Expr> = Vec::new();
    let mut place = |expr: Expr| {
        let is_it = |other: &Expr| *unaliased(other) == *unaliased(&expr);
        if let Some(known) = aggregates.iter().position(is_it) {
            return known;
        }
        let (place, name) = (aggregates.len(), expr.schema_name().to_string());
        // DataFusion leaves casts out of names: one name may stand for several expressions.
        let is_taken = aggregates.iter().any(|other| other.schema_name().to_string() == name);
        aggregates.push(if is_taken { expr.alias(format!("__shared_{place}")) } else { expr });
        place
    };
    // Places of a sum and a count, or of an aggregate that stays.
    let places: Vec<(usize, Option<usize>)> = aggregate
        .aggr_expr
        .iter()
        .map(|expr| {
            let Some(params) = averaged(expr, &aggregate) else {
                return (place(expr.clone()), None);
            };
            let value = params.args.first().cloned().into_iter().collect();
            let counted = counted(params, aggregate.input.schema());
            let sum = place(function(exact_sum(), value, params));
            (sum, Some(place(function(count_udaf(), counted, params))))
        })
        .collect();
    let new = Aggregate::try_new(aggregate.input, aggregate.group_expr, aggregates)?;
    let column = |index: usize| Expr::Column(Column::from(new.schema.qualified_field(index)));
    let mut columns: Vec<Expr> = (0..group_count).map(column).collect();
    for (index, (first, count)) in places.into_iter().enumerate() {
        let first = column(group_count + first);
        let (qualifier, field) = schema.qualified_field(group_count + index);
        let value = match count {
            None => first,
            Some(count) => {
                let count = column(group_count + count);
                let average = match is_interval(field.data_type()) {
                    true => interval_divided().call(vec![first, cast(count, DataType::Float64)]),
                    false => average_of().call(vec![first, count]),
                };
                cast(average, field.data_type().clone())
            }
        };
        columns.push(match &value {
            Expr::Column(own) if *own == Column::from((qualifier, field)) => value,
            _ => value.alias_qualified(qualifier.cloned(), field.name()),
        });
    }
    Ok(LogicalPlan::Projection(Projection::try_new(
        columns,
        Arc::new(LogicalPlan::Aggregate(new)),
    )?))
}

/// What is counted: rows, where no value is NULL, as `count(*)` does.
fn counted(params: &AggregateFunctionParams, input: &DFSchema) -> Vec<Expr> {
    let value = params.args.first();
    // With DISTINCT the distinct values are counted.
    if !params.distinct && value.is_some_and(|value| matches!(value.nullable(input), Ok(false))) {
        return vec![lit(1_i64)];
    }
    value.cloned().into_iter().collect()
}

fn function(func: Arc<AggregateUDF>, args: Vec<Expr>, params: &AggregateFunctionParams) -> Expr {
    let params = AggregateFunctionParams { args, ..params.clone() };
    Expr::AggregateFunction(AggregateFunction { func, params })
}
