//! INTERSECT and EXCEPT: gives both sides common column types, and implements ALL over multisets.
//!
//! DataFusion joins the sides as they are: `EXCEPT ALL` would remove every duplicate of a row that the other side has
//! once, and the result would have the types of the left side. With ALL each duplicate gets its number among its
//! equals, and is matched with the other side by row and number:
//!
//! ```text
//!  Join [columns]  ─▶  Projection [columns] of Join [columns, copy]
//!                      of both sides as Projection [columns, row_number() AS copy]
//! ```
//!
//! So of m duplicates on the left and n on the right, `EXCEPT ALL` leaves m - n and `INTERSECT ALL` the lesser number.

use cleave_fragment::walk::WalkPlan;
use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{Column, JoinType, NullEquality, plan_err};
use datafusion::error::Result;
use datafusion::functions_window::expr_fn::row_number;
use datafusion::logical_expr::type_coercion::binary::type_union_coercion;
use datafusion::logical_expr::{
    Distinct, Expr, ExprFunctionExt, Join, LogicalPlan, LogicalPlanBuilder, Projection,
};
use datafusion::optimizer::AnalyzerRule;

use super::operand_types::{matched_inputs, with_types};
use super::rewrite::has_operator;

/// The column of a row's number among its equals.
const COPY: &str = "\u{1}copy";

/// See the module.
#[derive(Debug)]
pub struct SetOperations;

impl AnalyzerRule for SetOperations {
    fn name(&self) -> &'static str {
        "set_operations"
    }

    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> Result<LogicalPlan> {
        let concerns = |node: &LogicalPlan| {
            Ok(matches!(node, LogicalPlan::Join(join) if is_set_operation(join)))
        };
        if !has_operator(&plan, concerns)? {
            return Ok(plan);
        }
        let settled = |plan| match plan {
            LogicalPlan::Join(join) if is_set_operation(&join) => {
                settled(join).map(Transformed::yes)
            }
            // Their types may have changed below.
            plan => plan.recompute_schema().map(Transformed::yes),
        };
        Ok(plan.transform_up_everywhere(settled)?.data)
    }
}

/// Whether `join` is what DataFusion makes of INTERSECT or EXCEPT: no other statement gives such a join by now.
fn is_set_operation(join: &Join) -> bool {
    matches!(join.join_type, JoinType::LeftSemi | JoinType::LeftAnti)
        && join.null_equality == NullEquality::NullEqualsNull
        && join.filter.is_none()
        && join.on.len() == join.left.schema().fields().len()
        && join.on.len() == join.right.schema().fields().len()
}

fn settled(join: Join) -> Result<LogicalPlan> {
    // Without ALL the left side has been made distinct.
    let (left, is_all) = match Arc::unwrap_or_clone(join.left) {
        LogicalPlan::Distinct(Distinct::All(left)) => (Arc::unwrap_or_clone(left), false),
        left => (left, true),
    };
    let right = Arc::unwrap_or_clone(join.right);
    let name = if join.join_type == JoinType::LeftAnti { "EXCEPT" } else { "INTERSECT" };
    let mut sides = [Arc::new(left), Arc::new(right)];
    matched_inputs(name, &mut sides)?;
    let [left, right] = sides.map(Arc::unwrap_or_clone);
    let types = common_types(&left, &right, join.join_type)?;
    let (left, right) = (with_types(left, &types)?, with_types(right, &types)?);
    let columns: Vec<Expr> = columns_of(&left);
    let (left, right) = match is_all {
        true => (numbered(left)?, numbered(right)?),
        false => (LogicalPlanBuilder::from(left).distinct()?.build()?, right),
    };
    let on = columns_of(&left).into_iter().zip(columns_of(&right)).collect();
    let joined = LogicalPlan::Join(Join::try_new(
        Arc::new(left),
        Arc::new(right),
        on,
        None,
        join.join_type,
        join.join_constraint,
        NullEquality::NullEqualsNull,
        false,
    )?);
    Ok(match is_all {
        true => LogicalPlan::Projection(Projection::try_new(columns, Arc::new(joined))?),
        false => joined,
    })
}

/// The types of the columns of the result.
fn common_types(left: &LogicalPlan, right: &LogicalPlan, kind: JoinType) -> Result<Vec<DataType>> {
    let fields = left.schema().fields().iter().zip(right.schema().fields());
    let types = fields.map(|(left, right)| {
        match type_union_coercion(left.data_type(), right.data_type()) {
            Some(common) => Ok(common),
            None => {
                let name = if kind == JoinType::LeftAnti { "EXCEPT" } else { "INTERSECT" };
                let (left, right) = (left.data_type(), right.data_type());
                plan_err!("{name} types {left} and {right} cannot be matched")
            }
        }
    });
    types.collect()
}

fn columns_of(plan: &LogicalPlan) -> Vec<Expr> {
    plan.schema().columns().into_iter().map(Expr::Column).collect()
}

/// `plan` with one more column: the row's number among its equals.
fn numbered(plan: LogicalPlan) -> Result<LogicalPlan> {
    let columns = columns_of(&plan);
    let number = row_number().partition_by(columns.clone()).build()?;
    let name = Column::from_name(number.schema_name().to_string());
    let numbered = LogicalPlanBuilder::from(plan).window(vec![number])?.build()?;
    let copy = Expr::Column(name).alias(COPY);
    let columns = columns.into_iter().chain([copy]).collect();
    Ok(LogicalPlan::Projection(Projection::try_new(columns, Arc::new(numbered))?))
}
