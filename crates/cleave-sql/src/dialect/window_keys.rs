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

use cleave_fragment::walk::{Walk, WalkPlan};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{Column, Result};
use datafusion::logical_expr::{Expr, LogicalPlan, Projection, Window};
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
        if !has_operator(&plan, |node| Ok(matches!(node, LogicalPlan::Window(_))))? {
            return Ok(plan);
        }
        let computed = |plan: LogicalPlan| match plan {
            LogicalPlan::Window(window) => computed_below(window),
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
