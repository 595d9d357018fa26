//! Keys of windows that are computed, and volatile arguments of window functions, computed below the window.
//!
//! ```text
//!  Window [rank() OVER (ORDER BY abs(abs(x)))]
//!    ─▶  Projection [x, rank]  of  Window [rank() OVER (ORDER BY __window_key_0)]  of
//!        Projection [x, abs(abs(x)) AS __window_key_0]
//! ```
//!
//! DataFusion takes the order of a function for that of its argument where both rise together, and then does not find
//! the order of nested ones that a sort below the window has: it refuses its own plan. It also evaluates keys and
//! arguments as often as it needs them, so that `sum(nextval('s')) OVER ()` takes two numbers a row.
//!
//! The same is done of volatile keys and arguments of aggregates. A condition on a group's key moves below the
//! aggregate as one on the expression of that key, where `nextval('s') > 8` would be about other numbers than those
//! of the groups.

use cleave_fragment::walk::{Walk, WalkPlan};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNodeRecursion::Jump};
use datafusion::common::{Column, Result};
use datafusion::logical_expr::{Aggregate, Expr, LogicalPlan, Projection, Window};
use datafusion::optimizer::AnalyzerRule;
use std::sync::Arc;

use super::rewrite::has_operator;

/// Prefix of the reserved names of such keys.
const KEY: &str = "__window_key_";

/// See the module.
#[derive(Debug)]
pub struct WindowKeys;

impl AnalyzerRule for WindowKeys {
    fn name(&self) -> &'static str {
        "window_keys"
    }

    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> Result<LogicalPlan> {
        let concerns = |node: &LogicalPlan| match node {
            LogicalPlan::Window(_) => Ok(true),
            LogicalPlan::Aggregate(aggregate) => Ok(is_volatile(aggregate)),
            _ => Ok(false),
        };
        if !has_operator(&plan, concerns)? {
            return Ok(plan);
        }
        let computed = |plan: LogicalPlan| match plan {
            LogicalPlan::Window(window) => computed_below(window),
            LogicalPlan::Aggregate(aggregate) if is_volatile(&aggregate) => {
                grouped_below(aggregate)
            }
            plan => Ok(Transformed::no(plan)),
        };
        Ok(plan.transform_up_everywhere(computed)?.data)
    }
}

fn computed_below(window: Window) -> Result<Transformed<LogicalPlan>> {
    let mut keys: Vec<Expr> = Vec::new();
    let mut by_columns = Vec::with_capacity(window.window_expr.len());
    for expr in &window.window_expr {
        let by_column = expr.clone().transform_down(|expr| {
            let Expr::WindowFunction(mut function) = expr else { return Ok(Transformed::no(expr)) };
            let mut is_changed = false;
            let params = &mut function.params;
            for argument in params.args.iter_mut().filter(|argument| argument.is_volatile()) {
                let column = Expr::Column(Column::from_name(format!("{KEY}{}", keys.len())));
                keys.push(std::mem::replace(argument, column));
                is_changed = true;
            }
            let order = params.order_by.iter_mut().map(|key| &mut key.expr);
            let all = params.partition_by.iter_mut().chain(order);
            for key in all.filter(|key| is_nested(key) || key.is_volatile()) {
                let place = keys.iter().position(|known| known == key).unwrap_or_else(|| {
                    keys.push(key.clone());
                    keys.len() - 1
                });
                *key = Expr::Column(Column::from_name(format!("{KEY}{place}")));
                is_changed = true;
            }
            let function = Expr::WindowFunction(function);
            Ok(if is_changed { Transformed::yes(function) } else { Transformed::no(function) })
        })?;
        by_columns.push(by_column.data);
    }
    if keys.is_empty() {
        return Ok(Transformed::no(LogicalPlan::Window(window)));
    }
    let own = window.input.schema().columns().into_iter().map(Expr::Column);
    let keys = keys.into_iter().enumerate();
    let keys = keys.map(|(place, key)| key.alias(format!("{KEY}{place}")));
    let below = Projection::try_new(own.clone().chain(keys).collect(), Arc::clone(&window.input))?;
    let names: Vec<String> =
        window.window_expr.iter().map(|expr| expr.schema_name().to_string()).collect();
    let made: Vec<String> = by_columns.iter().map(|expr| expr.schema_name().to_string()).collect();
    let changed = Window::try_new(by_columns, Arc::new(LogicalPlan::Projection(below)))?;
    let results = made.into_iter().zip(names);
    let results = results.map(|(made, name)| Expr::Column(Column::from_name(made)).alias(name));
    let above =
        Projection::try_new(own.chain(results).collect(), Arc::new(LogicalPlan::Window(changed)))?;
    Ok(Transformed::yes(LogicalPlan::Projection(above)))
}

fn is_volatile(aggregate: &Aggregate) -> bool {
    aggregate.group_expr.iter().chain(&aggregate.aggr_expr).any(Expr::is_volatile)
}

/// As [`computed_below`], of the volatile keys and arguments of an aggregate.
fn grouped_below(aggregate: Aggregate) -> Result<Transformed<LogicalPlan>> {
    let Aggregate { input, group_expr, aggr_expr, schema, .. } = aggregate;
    let mut keys: Vec<Expr> = Vec::new();
    let mut column_of = |expr: Expr| {
        keys.push(expr);
        Expr::Column(Column::from_name(format!("{KEY}{}", keys.len() - 1)))
    };
    // Parts of grouping sets that are equal are one key.
    let mut groups: Vec<(Expr, Expr)> = Vec::new();
    let by_columns = |expr: Expr| {
        expr.transform_down(|part| match part {
            part @ Expr::GroupingSet(_) => Ok(Transformed::no(part)),
            part if !part.is_volatile() => Ok(Transformed::new(part, false, Jump)),
            part => {
                let known = groups.iter().find(|(known, _)| *known == part);
                let column = match known {
                    Some((_, column)) => column.clone(),
                    None => {
                        let column = column_of(part.clone());
                        groups.push((part, column.clone()));
                        column
                    }
                };
                Ok(Transformed::new(column, true, Jump))
            }
        })
        .data()
    };
    let group_expr = group_expr.into_iter().map(by_columns).collect::<Result<Vec<_>>>()?;
    let arguments = |expr: Expr| {
        expr.transform_down(|part| {
            let Expr::AggregateFunction(mut function) = part else {
                return Ok(Transformed::no(part));
            };
            for argument in &mut function.params.args {
                if argument.is_volatile() {
                    *argument = column_of(std::mem::take(argument));
                }
            }
            Ok(Transformed::new(Expr::AggregateFunction(function), true, Jump))
        })
        .data()
    };
    let aggr_expr = aggr_expr.into_iter().map(arguments).collect::<Result<Vec<_>>>()?;
    let own = input.schema().columns().into_iter().map(Expr::Column);
    let keys = keys.into_iter().enumerate();
    let keys = keys.map(|(place, key)| key.unalias_nested().data.alias(format!("{KEY}{place}")));
    let below = Projection::try_new(own.chain(keys).collect(), input)?;
    let below = Arc::new(LogicalPlan::Projection(below));
    let changed = LogicalPlan::Aggregate(Aggregate::try_new(below, group_expr, aggr_expr)?);
    let made = changed.schema().columns().into_iter();
    let named = made.zip(schema.iter()).map(|(made, (table, field))| {
        Expr::Column(made).alias_qualified(table.cloned(), field.name())
    });
    let above = Projection::try_new(named.collect(), Arc::new(changed))?;
    Ok(Transformed::yes(LogicalPlan::Projection(above)))
}

/// Whether `key` is a function or an operator over another one.
fn is_nested(key: &Expr) -> bool {
    let is_computed = |expr: &Expr| {
        !matches!(expr, Expr::Column(_) | Expr::Literal(..) | Expr::Cast(_) | Expr::Alias(_))
    };
    let mut depth = 0;
    let found = key.exists(|expr| {
        depth += usize::from(is_computed(expr));
        Ok(depth > 1)
    });
    found.unwrap_or(true)
}
