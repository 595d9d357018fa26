//! Makes the shape of a physical plan for the cost models: operators in the order of their numbers, with expected rows
//! and bytes.

use cleave_fragment::walk::Walk;
use std::sync::Arc;

use cleave_fragment::{RecursionExec, TableScanExec, WorkingTableExec};
use datafusion_common::arrow::datatypes::{DataType, SchemaRef};
use datafusion_common::tree_node::TreeNodeRecursion;
use datafusion_expr::Operator;
use datafusion_physical_expr::PhysicalExpr;
use datafusion_physical_expr::expressions::{BinaryExpr, Column, InListExpr, LikeExpr};
use datafusion_physical_expr::utils::{collect_columns, split_conjunction};
use datafusion_physical_plan::ExecutionPlan;
use datafusion_physical_plan::aggregates::AggregateExec;
use datafusion_physical_plan::filter::FilterExec;
use datafusion_physical_plan::joins::{CrossJoinExec, HashJoinExec, NestedLoopJoinExec};
use datafusion_physical_plan::projection::ProjectionExec;
use datafusion_physical_plan::sorts::sort::SortExec;

use super::CutContext;
use super::may_share::may_share;
use super::numbered_plan::NumberedPlan;
use crate::cardinality::ROUNDS;
use crate::cost::{AskedColumn, Conditions, PlanShape, ShapeNode, Work};

/// Bytes that a text value is taken to have.
const TEXT_BYTES: f64 = 24.0;

/// The shape of `plan`, node by node, with `rows` expected of each.
pub(super) fn shape_of(plan: &NumberedPlan, rows: &[f64], context: &dyn CutContext) -> PlanShape {
    let nodes = plan.nodes.iter().zip(rows).map(|(node, rows)| ShapeNode {
        work: work(&node.plan, *rows, context),
        inputs: node.inputs.clone(),
        rows: *rows,
        row_bytes: row_bytes(&node.plan.schema()),
        may_share: may_share(node.plan.as_ref()),
        is_broadcast: node.broadcast.is_some(),
    });
    PlanShape { nodes: nodes.collect() }
}

/// What one operator does, which gives so many rows.
pub(super) fn work(plan: &Arc<dyn ExecutionPlan>, rows: f64, context: &dyn CutContext) -> Work {
    if let Some(scan) = plan.downcast_ref::<TableScanExec>() {
        let scan_work = context.scan_work(scan);
        let mut conditions = Conditions::default();
        if let Some(predicate) = &scan.scan().predicate {
            count_conditions(predicate, &mut conditions, &|column| context.asked(scan, column));
        }
        conditions.key_sets = scan.dynamic_filters().len() as f64;
        return Work::Scan(crate::cost::ScanWork { rows_kept: rows, conditions, ..scan_work });
    }
    if let Some(filter) = plan.downcast_ref::<FilterExec>() {
        let mut conditions = Conditions::default();
        count_conditions(filter.predicate(), &mut conditions, &each_row);
        return Work::Filter(conditions);
    }
    if let Some(projection) = plan.downcast_ref::<ProjectionExec>() {
        let computed = projection.expr().iter().filter(|e| !e.expr.is::<Column>()).count();
        return Work::Projection { expressions: computed as f64 };
    }
    if plan.is::<HashJoinExec>() {
        return Work::HashJoin;
    }
    if let Some(join) = plan.downcast_ref::<NestedLoopJoinExec>() {
        let mut conditions = Conditions::default();
        if let Some(filter) = join.filter() {
            count_conditions(filter.expression(), &mut conditions, &each_row);
        }
        return Work::NestedLoopJoin(conditions);
    }
    if plan.is::<CrossJoinExec>() {
        return Work::NestedLoopJoin(Conditions::default());
    }
    if let Some(aggregate) = plan.downcast_ref::<AggregateExec>() {
        return Work::Aggregate {
            keys: aggregate.group_expr().expr().len() as f64,
            functions: aggregate.aggr_expr().len() as f64,
        };
    }
    if let Some(sort) = plan.downcast_ref::<SortExec>() {
        return Work::Sort { fetch: sort.fetch().map(|fetch| fetch as f64) };
    }
    if let Some(recursion) = plan.downcast_ref::<RecursionExec>() {
        return Work::Recursion { rounds: ROUNDS, is_distinct: recursion.is_distinct() };
    }
    let hands_on = super::numbered_plan::is_exchange(plan.as_ref())
        || plan.name().contains("Limit")
        || plan.name() == "DenseAggregateExec"
        || plan.name() == "UnionExec"
        || plan.is::<WorkingTableExec>();
    if hands_on { Work::Pass } else { Work::Other }
}

/// The cost of a condition that is evaluated for each row.
fn each_row(_column: &str) -> AskedColumn {
    AskedColumn::default()
}

fn count_conditions(
    predicate: &Arc<dyn PhysicalExpr>,
    conditions: &mut Conditions,
    asked: &dyn Fn(&str) -> AskedColumn,
) {
    for part in split_conjunction(predicate) {
        // A condition on one column is evaluated on its distinct values.
        let columns = collect_columns(part);
        let of_part = match columns.iter().next() {
            Some(only) if columns.len() == 1 => asked(only.name()),
            _ => AskedColumn::default(),
        };
        conditions.text_bytes += of_part.share * of_part.text_bytes;
        // Its walk ends only where a closure says so, which none does.
        let _walked = part.apply(|expr| {
            if expr.is::<LikeExpr>() {
                conditions.patterns += of_part.share;
            } else if expr.is::<InListExpr>() {
                conditions.comparisons += of_part.share;
            } else if let Some(binary) = expr.downcast_ref::<BinaryExpr>() {
                match binary.op() {
                    Operator::And | Operator::Or => {}
                    Operator::RegexMatch
                    | Operator::RegexIMatch
                    | Operator::RegexNotMatch
                    | Operator::RegexNotIMatch => conditions.patterns += 2.0 * of_part.share,
                    _ => conditions.comparisons += of_part.share,
                }
            } else if expr.children().is_empty() {
                return Ok(TreeNodeRecursion::Continue);
            } else {
                conditions.comparisons += of_part.share;
            }
            Ok(TreeNodeRecursion::Continue)
        });
    }
}

/// Bytes that a row of `schema` is taken to have.
pub fn row_bytes(schema: &SchemaRef) -> f64 {
    schema.fields().iter().map(|field| type_bytes(field.data_type())).sum::<f64>().max(1.0)
}

/// Bytes that a value is taken to have.
pub fn type_bytes(data_type: &DataType) -> f64 {
    data_type.primitive_width().map_or(TEXT_BYTES, |width| width as f64)
}
