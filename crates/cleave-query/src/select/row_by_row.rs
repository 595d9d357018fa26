//! Rows whose calls of sequence functions see what the others of the same row have done, evaluated one after the other:
//! `VALUES (nextval('s'), currval('s')), …` and `SELECT nextval('s'), currval('s') FROM t`.
//!
//! DataFusion evaluates a column of a whole batch, then the next column. So where calls [`interact`]:
//!
//! 1. [`RowByRow`] puts a [`OneRowExec`] below the projection that has them, which then sees one row a batch.
//! 2. [`ValuesRowByRow`] makes such a projection of VALUES with several rows:
//!
//! ```text
//!  Values [(a0, b0), (a1, b1)]
//!    ─▶  Projection [CASE __row WHEN 0 THEN a0 ELSE a1 END, CASE __row WHEN 0 THEN b0 ELSE b1 END]
//!        of  Values [(0), (1)]
//! ```

use std::fmt;
use std::sync::Arc;

use cleave_fragment::walk::{Walk, WalkPlan};
use cleave_sql::dialect::has_operator;
use datafusion::arrow::datatypes::{DataType, Field, Schema};
use datafusion::common::tree_node::{Transformed, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema};
use datafusion::config::ConfigOptions;
use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::expr::Case;
use datafusion::logical_expr::{Expr, LogicalPlan, Projection, ScalarUDF, Values, lit};
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::execution_plan::replace_children_if_necessary;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};
use futures::{StreamExt, TryStreamExt, stream};

use super::sequence_functions::interact;

/// The reserved name of the column of row numbers.
const ROW: &str = "__row";

/// See the module.
#[derive(Debug)]
pub struct ValuesRowByRow;

impl OptimizerRule for ValuesRowByRow {
    fn name(&self) -> &'static str {
        "values_row_by_row"
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        _config: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        let concerns = |node: &LogicalPlan| match node {
            LogicalPlan::Values(values) => is_row_by_row(values),
            _ => Ok(false),
        };
        if !has_operator(&plan, concerns)? {
            return Ok(Transformed::no(plan));
        }
        plan.transform_up_everywhere(|node| match node {
            LogicalPlan::Values(values) if is_row_by_row(&values)? => {
                Ok(Transformed::yes(projected(values)?))
            }
            node => Ok(Transformed::no(node)),
        })
    }
}

/// Whether the calls in a row interact; one row alone is evaluated from left to right.
fn is_row_by_row(values: &Values) -> Result<bool> {
    // What one column does alone, it does in order.
    if values.values.len() < 2 || values.schema.fields().len() < 2 {
        return Ok(false);
    }
    let mut calls: Vec<Arc<ScalarUDF>> = Vec::new();
    for row in &values.values {
        calls.clear();
        for expr in row {
            expr.apply(|part| {
                if let Expr::ScalarFunction(call) = part {
                    calls.push(Arc::clone(&call.func));
                }
                Ok(TreeNodeRecursion::Continue)
            })?;
        }
        if interact(calls.iter().map(|call| &**call)) {
            return Ok(true);
        }
    }
    Ok(false)
}

fn projected(values: Values) -> Result<LogicalPlan> {
    let row_count = values.values.len();
    let mut columns: Vec<Vec<Expr>> =
        vec![Vec::with_capacity(row_count); values.schema.fields().len()];
    for row in values.values {
        for (column, expr) in columns.iter_mut().zip(row) {
            column.push(expr);
        }
    }
    let field = Field::new(ROW, DataType::Int64, false);
    let schema = DFSchema::try_from(Schema::new(vec![field]))?;
    let rows = (0_i64..).take(row_count).map(|row| vec![lit(row)]).collect();
    let rows = LogicalPlan::Values(Values { schema: Arc::new(schema), values: rows });
    let chosen = columns.into_iter().zip(values.schema.iter()).map(|(mut of_rows, (_, field))| {
        let last = of_rows.pop().map(Box::new);
        let row = Expr::Column(Column::from_name(ROW));
        let branches = of_rows.into_iter().zip(0_i64..);
        let branches = branches.map(|(expr, row)| (Box::new(lit(row)), Box::new(expr)));
        Expr::Case(Case::new(Some(Box::new(row)), branches.collect(), last)).alias(field.name())
    });
    Ok(LogicalPlan::Projection(Projection::try_new_with_schema(
        chosen.collect(),
        Arc::new(rows),
        values.schema,
    )?))
}

/// See the module.
#[derive(Debug)]
pub struct RowByRow;

impl PhysicalOptimizerRule for RowByRow {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        if !plan.exists(|node| Ok(interacting(node).is_some()))? {
            return Ok(plan);
        }
        let changed = plan.transform_up(|node| {
            let Some(projection) = interacting(&node) else { return Ok(Transformed::no(node)) };
            let input = Arc::new(OneRowExec { input: Arc::clone(projection.input()) });
            Ok(Transformed::yes(replace_children_if_necessary(Arc::clone(&node), vec![input])?))
        })?;
        Ok(changed.data)
    }

    fn name(&self) -> &'static str {
        "RowByRow"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// `node`, if it is a projection with calls that interact, over batches of any size.
fn interacting(node: &Arc<dyn ExecutionPlan>) -> Option<&ProjectionExec> {
    let projection = node.downcast_ref::<ProjectionExec>()?;
    if projection.input().is::<OneRowExec>() {
        return None;
    }
    let mut calls = Vec::new();
    for column in projection.expr() {
        gather(&column.expr, &mut calls);
    }
    interact(calls.into_iter()).then_some(projection)
}

fn gather<'a>(expr: &'a Arc<dyn PhysicalExpr>, calls: &mut Vec<&'a ScalarUDF>) {
    if let Some(call) = expr.downcast_ref::<ScalarFunctionExpr>() {
        calls.push(call.fun());
    }
    for part in expr.children() {
        gather(part, calls);
    }
}

/// The rows of its input, one a batch.
#[derive(Debug)]
struct OneRowExec {
    input: Arc<dyn ExecutionPlan>,
}

impl DisplayAs for OneRowExec {
    fn fmt_as(&self, _kind: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OneRowExec")
    }
}

impl ExecutionPlan for OneRowExec {
    fn name(&self) -> &'static str {
        "OneRowExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.input.properties()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
    }

    fn apply_expressions(
        &self,
        _visit: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        match children.pop() {
            Some(input) => Ok(Arc::new(Self { input })),
            None => Ok(self),
        }
    }

    fn execute(
        &self,
        partition: usize,
        task: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let batches = self.input.execute(partition, task)?;
        let schema = batches.schema();
        let rows = batches
            .map_ok(|batch| {
                let rows = 0..batch.num_rows();
                stream::iter(rows.map(move |row| Ok(batch.slice(row, 1))))
            })
            .try_flatten()
            .boxed();
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, rows)))
    }
}
