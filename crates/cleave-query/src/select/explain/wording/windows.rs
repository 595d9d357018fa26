//! Window functions in plain words, as SQL calls them.

use std::sync::Arc;

use datafusion::physical_plan::windows::{BoundedWindowAggExec, WindowAggExec};
use datafusion::physical_plan::{ExecutionPlan, WindowExpr};

use super::super::expression_text::{column_text, listed, sort_keys, sql, without_ordinals};
use super::{COLUMNS_MAX, Words};

/// What stands behind the call in the name that DataFusion gives to a window function without one.
const BEHIND_CALL: [&str; 5] =
    [" PARTITION BY [", " ORDER BY [", " ROWS BETWEEN ", " RANGE BETWEEN ", " GROUPS BETWEEN "];
/// The frames that are meant where none is written, with an order: both are that of RANGE, by other keys.
const USUAL_FRAMES: [&str; 2] = [
    "RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW",
    "GROUPS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW",
];
/// The same without one, where all rows are equal.
const WHOLE_FRAME: &str = "BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING";

/// What EXPLAIN says of an operator of windows.
pub(super) fn words(plan: &Arc<dyn ExecutionPlan>) -> Option<Words> {
    let expressions = match plan.downcast_ref::<WindowAggExec>() {
        Some(own) => own.window_expr(),
        None => plan.downcast_ref::<BoundedWindowAggExec>()?.window_expr(),
    };
    let texts: Vec<String> = expressions.iter().map(call).collect();
    let words = Words::new("WindowAgg", "Window").with_detail(listed(&texts, COLUMNS_MAX));
    Some(words.with_texts("Output", texts))
}

/// `row_number() OVER (PARTITION BY a ORDER BY b DESC)`.
fn call(one: &Arc<dyn WindowExpr>) -> String {
    let name = one.name();
    let ends = BEHIND_CALL.iter().filter_map(|behind| name.find(behind));
    let called = ends.min().and_then(|end| name.get(..end)).unwrap_or(name);
    if called.matches('(').count() != called.matches(')').count() {
        // The order is one within the call.
        return without_ordinals(name);
    }
    let keys: Vec<String> = one.partition_by().iter().map(sql).collect();
    let order = sort_keys(one.order_by());
    let frame = one.get_window_frame().to_string();
    let is_whole = order.is_empty() && frame.ends_with(WHOLE_FRAME);
    let is_usual = is_whole || USUAL_FRAMES.contains(&frame.as_str());
    let parts = [
        (!keys.is_empty()).then(|| format!("PARTITION BY {}", listed(&keys, COLUMNS_MAX))),
        (!order.is_empty()).then(|| format!("ORDER BY {}", listed(&order, COLUMNS_MAX))),
        (!is_usual).then(|| without_ordinals(&frame)),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    format!("{} OVER ({})", column_text(called), parts.join(" "))
}
