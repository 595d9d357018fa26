//! The zeros of doubles are one value.
//!
//! `0.0 = -0.0`, as DataFusion compares, hashes and joins them. But its lists of constants, keys of windows, DISTINCT
//! aggregates and `CASE x WHEN` compare bits.
//!
//! ```text
//!   x IN (0, 2.5, 3.5, 4.5)    ─▶   x IN (0, 2.5, 3.5, 4.5, 0.0, -0.0)
//!   x IN (1, 2.5, y)           ─▶   x IN (1, 2.5) OR x = y
//!   OVER (PARTITION BY x …)    ─▶   OVER (PARTITION BY x + 0.0 …), as -0.0 + 0.0 is 0.0
//!   count(DISTINCT x)          ─▶   count(DISTINCT x + 0.0)
//!   CASE x WHEN y THEN …       ─▶   CASE x + 0.0 WHEN y + 0.0 THEN …
//! ```
//!
//! Left alone: rows are sorted with -0.0 before 0.0, so that a further key of ORDER BY does not decide between them.
//!
//! It is a rule twice: once types are settled, for all that is planned or compiled; and as one of the last, as others
//! make lists of conditions with OR.

use cleave_fragment::walk::{Walk, WalkPlan};
use datafusion::arrow::datatypes::DataType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNodeRecursion};
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::error::Result;
use datafusion::logical_expr::expr::InList;
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan, Operator, binary_expr, lit};
use datafusion::optimizer::{AnalyzerRule, ApplyOrder, OptimizerConfig, OptimizerRule};

use super::rewrite::{has_expression, rewrite_expressions, rewrite_named};

/// See the module.
#[derive(Debug)]
pub struct BothZeros;

impl AnalyzerRule for BothZeros {
    fn name(&self) -> &'static str {
        "both_zeros"
    }

    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> Result<LogicalPlan> {
        if !has_expression(&plan, compares_bits)? {
            return Ok(plan);
        }
        plan.transform_up_everywhere(|node| {
            rewrite_expressions(node, &|expr, schema| Ok(of_values(expr, schema)))
        })
        .data()
    }
}

impl OptimizerRule for BothZeros {
    fn name(&self) -> &'static str {
        "both_zeros"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::TopDown)
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        _config: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        let mut is_concerned = false;
        plan.each_expression(|expr| {
            is_concerned = expr.exists(|part| Ok(lacks_zero(part)))?;
            Ok(if is_concerned { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
        })?;
        if !is_concerned {
            return Ok(Transformed::no(plan));
        }
        rewrite_named(plan, &with_both_zeros)
    }
}

/// `expr` with both zeros in each list of constants that has one.
///
/// # Errors
/// None.
pub fn with_both_zeros(expr: Expr) -> Result<Transformed<Expr>> {
    expr.transform_up(|part| match part {
        Expr::InList(mut list) if lacks_zero_in(&list) => {
            let is_single = |item: &Expr| matches!(item, Expr::Literal(ScalarValue::Float32(_), _));
            let is_single = list.list.iter().any(is_single);
            list.list.extend(zeros(is_single));
            Ok(Transformed::yes(Expr::InList(list)))
        }
        part => Ok(Transformed::no(part)),
    })
}

fn lacks_zero(expr: &Expr) -> bool {
    matches!(expr, Expr::InList(list) if lacks_zero_in(list))
}

/// Whether a list of doubles has one zero alone.
fn lacks_zero_in(list: &InList) -> bool {
    let holds = |zero: ScalarValue| {
        list.list.iter().any(|item| matches!(item, Expr::Literal(value, _) if *value == zero))
    };
    holds(0.0_f64.into()) != holds((-0.0_f64).into())
        || holds(0.0_f32.into()) != holds((-0.0_f32).into())
}

/// Both zeros, of `real` if `is_single`.
fn zeros(is_single: bool) -> [Expr; 2] {
    match is_single {
        true => [lit(0.0_f32), lit(-0.0_f32)],
        false => [lit(0.0_f64), lit(-0.0_f64)],
    }
}

/// Whether DataFusion compares the bits of doubles here.
fn compares_bits(part: &Expr) -> bool {
    match part {
        Expr::InList(_) | Expr::WindowFunction(_) => true,
        Expr::Case(case) => case.expr.is_some(),
        Expr::AggregateFunction(function) => function.params.distinct,
        _ => false,
    }
}

/// An expression that compares bits, of values whose bits are equal if they are.
fn of_values(expr: Expr, schema: &DFSchema) -> Transformed<Expr> {
    match expr {
        Expr::InList(_) => without_others(expr, schema),
        Expr::WindowFunction(mut window) => {
            let params = &mut window.params;
            let order = params.order_by.iter_mut().map(|by| &mut by.expr);
            let changed = with_one_zero(params.partition_by.iter_mut().chain(order), schema);
            Transformed::new_transformed(Expr::WindowFunction(window), changed)
        }
        Expr::AggregateFunction(mut function) if function.params.distinct => {
            let params = &mut function.params;
            // An order of DISTINCT is one of its arguments.
            let order = params.order_by.iter_mut().map(|by| &mut by.expr);
            let changed = with_one_zero(params.args.iter_mut().chain(order), schema);
            Transformed::new_transformed(Expr::AggregateFunction(function), changed)
        }
        Expr::Case(mut case) if case.expr.is_some() => {
            if case.when_then_expr.iter().all(|(when, _)| is_other_constant(when)) {
                return Transformed::no(Expr::Case(case));
            }
            let whens = case.when_then_expr.iter_mut().map(|(when, _)| when.as_mut());
            let parts = case.expr.as_deref_mut().into_iter().chain(whens);
            let changed = with_one_zero(parts, schema);
            Transformed::new_transformed(Expr::Case(case), changed)
        }
        other => Transformed::no(other),
    }
}

/// Adds 0.0 to those of `parts` that may be a zero of either sign; whether there is one.
fn with_one_zero<'a>(parts: impl Iterator<Item = &'a mut Expr>, schema: &DFSchema) -> bool {
    let mut changed = false;
    for part in parts {
        if let Ok(own @ (DataType::Float32 | DataType::Float64)) = part.get_type(schema)
            && !is_other_constant(part)
        {
            let [zero, _] = zeros(own == DataType::Float32);
            *part = binary_expr(std::mem::take(part), Operator::Plus, zero);
            changed = true;
        }
    }
    changed
}

/// Whether `part` is a constant, and no zero.
fn is_other_constant(part: &Expr) -> bool {
    constant(part).is_some_and(|known| !is_zero(known))
}

/// A list of doubles with both zeros where it has one; what is no constant is compared by itself.
fn without_others(expr: Expr, schema: &DFSchema) -> Transformed<Expr> {
    let Expr::InList(mut list) = expr else { return Transformed::no(expr) };
    let own = list.expr.get_type(schema);
    let Ok(own @ (DataType::Float32 | DataType::Float64)) = own else {
        return Transformed::no(Expr::InList(list));
    };
    if list.expr.is_volatile() {
        return Transformed::no(Expr::InList(list));
    }
    let (known, others): (Vec<Expr>, Vec<Expr>) =
        std::mem::take(&mut list.list).into_iter().partition(|item| constant(item).is_some());
    let has_zero = known.iter().any(|item| constant(item).is_some_and(is_zero));
    list.list = known;
    if has_zero {
        list.list.extend(zeros(own == DataType::Float32));
    }
    if others.is_empty() {
        return Transformed::new_transformed(Expr::InList(list), has_zero);
    }
    let operand = list.expr.clone();
    let is_negated = std::mem::take(&mut list.negated);
    let first = (!list.list.is_empty()).then_some(Expr::InList(list));
    let compared = others.into_iter().map(|item| operand.as_ref().clone().eq(item));
    let any = first.into_iter().chain(compared).reduce(Expr::or);
    // There was an item.
    let any = any.unwrap_or_else(|| lit(false));
    Transformed::yes(if is_negated { Expr::Not(Box::new(any)) } else { any })
}

/// The constant that `item` is, or a cast of.
fn constant(item: &Expr) -> Option<&ScalarValue> {
    match item {
        Expr::Literal(value, _) if !value.data_type().is_string() => Some(value),
        Expr::Cast(cast) => constant(&cast.expr),
        _ => None,
    }
}

fn is_zero(value: &ScalarValue) -> bool {
    match value {
        ScalarValue::Float64(number) => *number == Some(0.0),
        ScalarValue::Float32(number) => *number == Some(0.0),
        value => ScalarValue::new_zero(&value.data_type()).is_ok_and(|zero| zero == *value),
    }
}

#[cfg(test)]
mod tests {
    use datafusion::logical_expr::{LogicalPlanBuilder, col, in_list};
    use datafusion::optimizer::OptimizerContext;

    use super::*;

    fn plan(list: Vec<Expr>) -> LogicalPlan {
        let row = vec![lit(1.5_f64), lit(2.5_f64)];
        let plan = LogicalPlanBuilder::values(vec![row]).unwrap();
        plan.filter(in_list(col("column1"), list, false)).unwrap().build().unwrap()
    }

    fn condition(plan: &LogicalPlan) -> String {
        plan.to_string().lines().next().unwrap().to_owned()
    }

    #[test]
    fn a_list_with_one_zero_gets_the_other() {
        let late = |list| {
            let plan = plan(list);
            condition(&BothZeros.rewrite(plan, &OptimizerContext::new()).unwrap().data)
        };
        assert!(late(vec![lit(0.0_f64), lit(2.5_f64)]).contains("Float64(-0)"));
        assert!(late(vec![lit(-0.0_f64)]).contains("Float64(0)"));
        assert!(!late(vec![lit(1.0_f64)]).contains("Float64(0)"));
    }

    #[test]
    fn what_is_no_constant_is_compared_by_itself() {
        let early = |list| {
            let config = ConfigOptions::default();
            condition(&BothZeros.analyze(plan(list), &config).unwrap())
        };
        let both = early(vec![lit(2.0_f64), col("column2"), lit(0_i32)]);
        assert!(both.contains("Float64(-0)") && both.contains("OR column1 = column2"), "{both}");
        assert!(!early(vec![lit(2.0_f64), lit(3.0_f64)]).contains("OR"));
        assert!(early(vec![col("column2")]).ends_with("column1 = column2"));
    }
}
