//! A planner rule: comparisons of a date with a moment become comparisons of dates.
//!
//! `day < date '1995-01-01' + interval '1 year'` compares a date with a timestamp, as PostgreSQL has it, but pages,
//! indexes and tablets are chosen by the column itself.
//!
//! ```text
//!   day::timestamp <  '1996-01-01 00:00'   ─▶   day <  '1996-01-01'
//!   day::timestamp <  '1996-01-01 10:00'   ─▶   day <= '1996-01-01'
//!   at::timestamptz < '1996-01-01'         ─▶   at <  '1996-01-01'
//! ```
//!
//! Only where the moment is a constant by now, and in conditions alone: no column there takes its name from them.

use cleave_fragment::functions::infinite::Infinite;
use cleave_fragment::walk::{Walk, WalkPlan};
use datafusion::arrow::datatypes::{DataType, TimeUnit};
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::error::Result;
use datafusion::logical_expr::expr::Cast;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{BinaryExpr, Expr, ExprSchemable, LogicalPlan, Operator, lit};
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};

const DAY_US: i64 = 86_400_000_000;

/// See the module.
#[derive(Debug)]
pub(super) struct CompareDays;

impl OptimizerRule for CompareDays {
    fn name(&self) -> &'static str {
        "compare_days"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::TopDown)
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        _config: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        match plan {
            LogicalPlan::Filter(_) | LogicalPlan::TableScan(_) | LogicalPlan::Join(_) => {
                let schema = columns_below(&plan)?;
                plan.change_expressions(|expr| expr.transform_up(|expr| Ok(by_days(expr, &schema))))
            }
            plan => Ok(Transformed::no(plan)),
        }
    }
}

/// The columns that conditions of `plan` speak of.
fn columns_below(plan: &LogicalPlan) -> Result<DFSchema> {
    match plan {
        LogicalPlan::TableScan(scan) => {
            DFSchema::try_from_qualified_schema(scan.table_name.clone(), &scan.source.schema())
        }
        plan => Ok(merge_schema(&plan.inputs())),
    }
}

fn by_days(expr: Expr, schema: &DFSchema) -> Transformed<Expr> {
    let Expr::BinaryExpr(BinaryExpr { left, op, right }) = &expr else {
        return Transformed::no(expr);
    };
    let compared = match (date_of(left, schema), moment_of(right)) {
        (Some(date), Some(moment)) => compared(date, *op, moment),
        _ => match (date_of(right, schema), moment_of(left), op.swap()) {
            (Some(date), Some(moment), Some(op)) => compared(date, op, moment),
            (_, _, swapped) => {
                uncast(left, *op, right, schema).or_else(|| uncast(right, swapped?, left, schema))
            }
        },
    };
    match compared {
        Some(compared) => Transformed::yes(compared),
        None => Transformed::no(expr),
    }
}

/// The date that `expr` is the beginning of.
fn date_of<'a>(expr: &'a Expr, schema: &DFSchema) -> Option<&'a Expr> {
    let date = cast_to_moment(expr)?;
    matches!(date.get_type(schema), Ok(DataType::Date32)).then_some(date)
}

/// The expression that `expr` casts to a moment.
fn cast_to_moment(expr: &Expr) -> Option<&Expr> {
    match expr {
        Expr::Cast(Cast { expr, field }) => {
            matches!(field.data_type(), DataType::Timestamp(TimeUnit::Microsecond, _))
                .then_some(expr)
        }
        Expr::ScalarFunction(function) => match (function.name(), function.args.as_slice()) {
            ("moment_of" | "zoned_moment_of", [expr]) => Some(expr),
            _ => None,
        },
        _ => None,
    }
}

/// `expr` as the moment that it casts, and `moment` as one of its type: both zones are UTC.
fn uncast(expr: &Expr, op: Operator, moment: &Expr, schema: &DFSchema) -> Option<Expr> {
    let micros = moment_of(moment)?;
    let column = cast_to_moment(expr)?;
    let DataType::Timestamp(TimeUnit::Microsecond, zone) = column.get_type(schema).ok()? else {
        return None;
    };
    let literal = lit(ScalarValue::TimestampMicrosecond(Some(micros), zone));
    let (left, right) = (Box::new(column.clone()), Box::new(literal));
    is_order(op).then(|| Expr::BinaryExpr(BinaryExpr::new(left, op, right)))
}

fn moment_of(expr: &Expr) -> Option<i64> {
    match expr {
        Expr::Literal(ScalarValue::TimestampMicrosecond(Some(moment), _), _) => Some(*moment),
        _ => None,
    }
}

fn compared(date: &Expr, op: Operator, moment: i64) -> Option<Expr> {
    let infinite = Infinite::of_micros(moment);
    let day = match infinite {
        Some(infinite) => infinite.days(),
        None => i32::try_from(moment.div_euclid(DAY_US)).ok()?,
    };
    let op = match (op, infinite.is_some() || moment.rem_euclid(DAY_US) == 0) {
        (op, true) => op,
        (Operator::Lt | Operator::LtEq, false) => Operator::LtEq,
        (Operator::Gt | Operator::GtEq, false) => Operator::Gt,
        _ => return None,
    };
    is_order(op).then(|| {
        let day = lit(ScalarValue::Date32(Some(day)));
        Expr::BinaryExpr(BinaryExpr::new(Box::new(date.clone()), op, Box::new(day)))
    })
}

fn is_order(op: Operator) -> bool {
    matches!(
        op,
        Operator::Eq
            | Operator::NotEq
            | Operator::Lt
            | Operator::LtEq
            | Operator::Gt
            | Operator::GtEq
            | Operator::IsDistinctFrom
            | Operator::IsNotDistinctFrom
    )
}
