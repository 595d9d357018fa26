//! Selectivity of a condition of any shape on one column, by evaluating it on the values that ANALYZE kept: common
//! values count with their frequency, the bounds of a histogram as a sample of the others.
//!
//! Source: PostgreSQL's `like_support.c`, which does so for patterns.

use cleave_fragment::walk::Walk;
use std::sync::Arc;

use datafusion_common::arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use datafusion_common::arrow::buffer::BooleanBuffer;
use datafusion_common::arrow::datatypes::{Field, Schema};
use datafusion_common::tree_node::{Transformed, TransformedResult};
use datafusion_common::{Column, DFSchema, ScalarValue};
use datafusion_expr::Expr;
use datafusion_expr::execution_props::ExecutionProps;
use datafusion_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion_physical_expr::create_physical_expr;

use crate::{ColumnStatistics, TableFacts};

/// A histogram of fewer bounds is no sample.
const BOUNDS_MIN: usize = 10;

/// Share of rows for which `predicate`, which asks for one column only, is true; None: no values, or it cannot be
/// tried.
pub(super) fn share(predicate: &Expr, table: &str, facts: &dyn TableFacts) -> Option<f64> {
    let columns = predicate.column_refs();
    let mut columns = columns.iter();
    let (Some(column), None) = (columns.next(), columns.next()) else { return None };
    let known = facts.column(table, &column.name).statistics?;
    let rest = known.rest_fraction();
    let bounds = known.histogram.len();
    if rest > 0.01 && bounds < BOUNDS_MIN || bounds + known.common.len() == 0 {
        return None;
    }
    let is_true = evaluate(predicate, &column.name, &known)?;
    let common = known.common.iter().enumerate().filter(|(place, _)| is_true.value(*place));
    let common: f64 = common.map(|(_, (_, frequency))| frequency).sum();
    let first = known.common.len();
    let matching = (first..first + bounds).filter(|place| is_true.value(*place)).count();
    let of_null = if is_true.value(first + bounds) { known.null_fraction } else { 0.0 };
    // None of so many: about half of what one would be.
    let of_rest = match matching {
        _ if bounds == 0 => 0.0,
        0 => 0.5 / bounds as f64,
        matching => matching as f64 / bounds as f64,
    };
    Some(common + rest * of_rest + of_null)
}

/// Whether `predicate` is true of each common value, of each bound of the histogram, and of NULL.
fn evaluate(predicate: &Expr, column: &str, known: &ColumnStatistics) -> Option<BooleanBuffer> {
    let values = known.common.iter().map(|(value, _)| value).chain(&known.histogram);
    let data_type = values.clone().next()?.data_type();
    let null = ScalarValue::try_new_null(&data_type).ok()?;
    let values: ArrayRef = ScalarValue::iter_to_array(values.cloned().chain([null])).ok()?;
    let schema = Schema::new(vec![Field::new(column, data_type, true)]);
    let rows = RecordBatch::try_new(Arc::new(schema), vec![values]).ok()?;
    truth(predicate, &rows)
}

/// Of which `rows` `predicate` is true, its columns taken by their names alone; None: it cannot be tried.
pub(super) fn truth(predicate: &Expr, rows: &RecordBatch) -> Option<BooleanBuffer> {
    if predicate.is_volatile() {
        return None;
    }
    let schema = DFSchema::try_from(rows.schema()).ok()?;
    let (props, planning) = (ExecutionProps::new(), PhysicalPlanningContext::default());
    let plain = without_qualifiers(predicate);
    let physical = create_physical_expr(&plain, &schema, &props, &planning).ok()?;
    let found = physical.evaluate(rows).ok()?.into_array(rows.num_rows()).ok()?;
    let found = found.as_boolean_opt()?;
    Some(match found.nulls() {
        Some(nulls) => found.values() & nulls.inner(),
        None => found.values().clone(),
    })
}

/// `expr` with columns that name no table.
pub(super) fn without_qualifiers(expr: &Expr) -> Expr {
    let plain = expr.clone().transform_up(|expr| {
        Ok(match expr {
            Expr::Column(column) if column.relation.is_some() => {
                Transformed::yes(Expr::Column(Column::new_unqualified(column.name)))
            }
            other => Transformed::no(other),
        })
    });
    plain.data().unwrap_or_else(|_| expr.clone())
}
