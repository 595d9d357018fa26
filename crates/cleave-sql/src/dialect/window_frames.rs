//! Window frames with RANGE over every type that sorts: DataFusion has RANGE over numbers, texts and times alone.
//!
//! ```text
//!  ORDER BY x RANGE BETWEEN '1 day' PRECEDING AND …
//!    ─▶  ORDER BY interval_span(x) RANGE BETWEEN (its length) PRECEDING AND …
//!  ORDER BY t RANGE BETWEEN '1 day' PRECEDING AND …
//!    ─▶  ORDER BY frame_place(t) …, for times, which may be infinite
//!  ORDER BY x RANGE BETWEEN UNBOUNDED … AND CURRENT
//!    ─▶  … GROUPS …, for all other types
//! ```
//!
//! Without an offset both mean the same: the rows that are equal to this one are in the frame. Frames are settled with
//! the types, so this comes before; other interval keys are handled by [`IntervalKeys`](super::IntervalKeys).

use cleave_fragment::walk::WalkPlan;
use std::sync::Arc;

use cleave_fragment::functions::{ArgumentFault, frame_place, interval_span, span};
use datafusion::arrow::datatypes::{DataType, IntervalUnit};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::error::Result;
use datafusion::logical_expr::expr::{WindowFunction, WindowFunctionParams};
use datafusion::logical_expr::{
    Expr, ExprSchemable, LogicalPlan, Projection, Window, WindowFrame, WindowFrameBound,
    WindowFrameUnits,
};
use datafusion::optimizer::AnalyzerRule;

use super::kept_order::keep_order;
use super::rewrite::{has_operator, rewrite_expressions};
use super::typed_literals::typed_literal;

/// The type of intervals.
const INTERVAL: DataType = DataType::Interval(IntervalUnit::MonthDayNano);

/// See the module.
#[derive(Debug)]
pub struct WindowFrames;

impl AnalyzerRule for WindowFrames {
    fn name(&self) -> &'static str {
        "window_frames"
    }

    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> Result<LogicalPlan> {
        let plan = keep_order(plan)?;
        if !has_operator(&plan, |node| Ok(matches!(node, LogicalPlan::Window(_))))? {
            return Ok(plan);
        }
        let framed = |plan: LogicalPlan| match &plan {
            LogicalPlan::Window(_) => {
                let plan = rewrite_expressions(plan, &|expr, schema| match expr {
                    Expr::WindowFunction(window) => framed(window, schema),
                    expr => Ok(Transformed::no(expr)),
                })?;
                plan.map_data(with_sorts_apart)
            }
            _ => Ok(Transformed::no(plan)),
        };
        Ok(plan.transform_up_everywhere(framed)?.data)
    }
}

/// A node whose windows were of one order, with a node for each that they have now: DataFusion panics otherwise.
fn with_sorts_apart(plan: LogicalPlan) -> Result<LogicalPlan> {
    let LogicalPlan::Window(window) = &plan else { return Ok(plan) };
    let mut nodes: Vec<(Option<WindowFunctionParams>, Vec<Expr>)> = Vec::new();
    for expr in &window.window_expr {
        let params = match expr.clone().unalias_nested().data {
            Expr::WindowFunction(window) => Some(window.params),
            _ => None,
        };
        let is_same = |other: &Option<WindowFunctionParams>| match (&params, other) {
            (Some(one), Some(other)) => {
                (&one.partition_by, &one.order_by) == (&other.partition_by, &other.order_by)
            }
            _ => false,
        };
        match nodes.iter_mut().find(|(other, _)| is_same(other)) {
            Some((_, exprs)) => exprs.push(expr.clone()),
            None => nodes.push((params, vec![expr.clone()])),
        }
    }
    if nodes.len() < 2 {
        return Ok(plan);
    }
    let columns = window.schema.columns().into_iter().map(Expr::Column).collect();
    let mut below = Arc::clone(&window.input);
    for (_, exprs) in nodes {
        below = Arc::new(LogicalPlan::Window(Window::try_new(exprs, below)?));
    }
    Ok(LogicalPlan::Projection(Projection::try_new(columns, below)?))
}

fn framed(mut window: Box<WindowFunction>, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let params = &mut window.params;
    let frame = &params.window_frame;
    let key = params.order_by.first_mut().filter(|_| frame.units == WindowFrameUnits::Range);
    let Some(key) = key else { return Ok(Transformed::no(Expr::WindowFunction(window))) };
    let frame = match key.expr.get_type(schema) {
        Ok(DataType::Interval(_)) => {
            let frame = WindowFrame::new_bounds(
                WindowFrameUnits::Range,
                length(&frame.start_bound)?,
                length(&frame.end_bound)?,
            );
            key.expr = interval_span().call(vec![std::mem::take(&mut key.expr)]);
            frame
        }
        Ok(DataType::Date32 | DataType::Timestamp(..)) if has_offset(frame) => {
            key.expr = frame_place().call(vec![std::mem::take(&mut key.expr)]);
            return Ok(Transformed::yes(Expr::WindowFunction(window)));
        }
        Ok(own) if !has_ranges(&own) && !has_offset(frame) => WindowFrame::new_bounds(
            WindowFrameUnits::Groups,
            frame.start_bound.clone(),
            frame.end_bound.clone(),
        ),
        _ => return Ok(Transformed::no(Expr::WindowFunction(window))),
    };
    params.window_frame = frame;
    Ok(Transformed::yes(Expr::WindowFunction(window)))
}

/// Types over which DataFusion supports RANGE.
fn has_ranges(own: &DataType) -> bool {
    own.is_numeric()
        || matches!(own, DataType::Date32 | DataType::Timestamp(..))
        || own.is_string()
        || own.is_null()
        || matches!(own, DataType::Boolean | DataType::List(_))
}

fn has_offset(frame: &WindowFrame) -> bool {
    let is_offset = |bound: &WindowFrameBound| {
        !bound.is_unbounded() && !matches!(bound, WindowFrameBound::CurrentRow)
    };
    is_offset(&frame.start_bound) || is_offset(&frame.end_bound)
}

/// An offset that is an interval as its length.
fn length(bound: &WindowFrameBound) -> Result<WindowFrameBound> {
    let length = |offset: &ScalarValue| -> Result<ScalarValue> {
        let literal = Expr::Literal(offset.clone(), None);
        let interval = match typed_literal(&literal, &INTERVAL)? {
            Some(Expr::Literal(ScalarValue::IntervalMonthDayNano(Some(interval)), _)) => interval,
            _ => return Ok(offset.clone()),
        };
        let length = span(interval);
        if length < 0 {
            return Err(ArgumentFault::FrameOffset.into());
        }
        // The form that DataFusion has before types are settled.
        Ok(ScalarValue::Utf8(Some(length.to_string())))
    };
    Ok(match bound {
        WindowFrameBound::Preceding(offset) if !offset.is_null() => {
            WindowFrameBound::Preceding(length(offset)?)
        }
        WindowFrameBound::Following(offset) if !offset.is_null() => {
            WindowFrameBound::Following(length(offset)?)
        }
        bound => bound.clone(),
    })
}
