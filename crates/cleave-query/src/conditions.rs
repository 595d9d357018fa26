//! Conditions of a query in, the rows of a batch for which they may hold out: comparisons of numbers, dates and
//! timestamps with constants. Scans of files and of tables from outside use them.
//!
//! The operator above looks at all conditions of each row that is left. It evaluates one after the other, on fewer and
//! fewer rows, and copies these each time. Comparisons of whole columns take a small part of that, so most rows that
//! nobody wants do not reach it.
//!
//! Invariants: a condition that could fail is not used. A batch of which most rows are left is handed on as it is.

use std::fmt;
use std::sync::Arc;

use cleave_fragment::comparisons::{Comparison, rows_left};
use cleave_fragment::walk::Walk;
use datafusion::arrow::array::{ArrayRef, BooleanArray, RecordBatch};
use datafusion::arrow::buffer::BooleanBuffer;
use datafusion::arrow::compute::filter_record_batch;
use datafusion::arrow::datatypes::{Schema, SchemaRef};
use datafusion::catalog::Session;
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, Operator, TableProviderFilterPushDown};
use datafusion::physical_expr::{PhysicalExpr, split_conjunction};
use datafusion::physical_plan::expressions::{BinaryExpr, Column, Literal};

/// See the module's description.
#[derive(Debug, Clone, Default)]
pub(crate) struct Conditions(Arc<List>);

#[derive(Debug, Default)]
struct List {
    expressions: Vec<Arc<dyn PhysicalExpr>>,
    /// Each of them.
    comparisons: Vec<Comparison>,
}

impl Conditions {
    /// Those of `filters` that can be used on rows of `schema`.
    pub(crate) fn of(session: &dyn Session, filters: &[Expr], schema: &SchemaRef) -> Result<Self> {
        let named = DFSchema::try_from(Arc::clone(schema))?;
        let mut usable = Vec::new();
        for filter in filters {
            // One of a column that is not read is left to the operator above.
            let Ok(all) = session.create_physical_expr(filter.clone(), &named) else { continue };
            let parts = split_conjunction(&all).into_iter();
            usable.extend(parts.filter(|part| is_alike(part, schema)).map(Arc::clone));
        }
        Ok(Self::new(usable))
    }

    /// Those of `expressions` that can be used: each compares a column with a constant of its type.
    pub(crate) fn new(expressions: Vec<Arc<dyn PhysicalExpr>>) -> Self {
        let mut list = List::default();
        for expression in expressions {
            if let Some(comparison) = comparison_of(&expression) {
                list.expressions.push(expression);
                list.comparisons.push(comparison);
            }
        }
        Self(Arc::new(list))
    }

    /// All of them.
    pub(crate) fn list(&self) -> &[Arc<dyn PhysicalExpr>] {
        &self.0.expressions
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.comparisons.is_empty()
    }

    /// The rows of `batch` for which they may hold.
    ///
    /// # Errors
    /// DataFusion's.
    pub(crate) fn left_of(&self, batch: RecordBatch) -> Result<RecordBatch> {
        if self.is_empty() {
            return Ok(batch);
        }
        let left = self.bits(batch.columns(), batch.num_rows());
        match left.count_set_bits() <= batch.num_rows() / 2 {
            true => Ok(filter_record_batch(&batch, &BooleanArray::new(left, None))?),
            false => Ok(batch),
        }
    }

    /// For each of `row_count` rows of `columns`, whether they may hold.
    pub(crate) fn bits(&self, columns: &[ArrayRef], row_count: usize) -> BooleanBuffer {
        rows_left(&self.0.comparisons, columns, row_count)
    }
}

impl fmt::Display for Conditions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let texts: Vec<String> = self.list().iter().map(ToString::to_string).collect();
        write!(f, "{}", texts.join(" AND "))
    }
}

/// Which of `filters` a scan wants to be told of. What it leaves of their rows is looked at above.
pub(crate) fn supported(filters: &[&Expr]) -> Vec<TableProviderFilterPushDown> {
    let support = |filter: &&Expr| match is_simple(filter) {
        true => TableProviderFilterPushDown::Inexact,
        false => TableProviderFilterPushDown::Unsupported,
    };
    filters.iter().map(support).collect()
}

/// Whether a condition always says the same of a row, and asks no other query.
fn is_simple(filter: &Expr) -> bool {
    let is_query = |node: &Expr| {
        matches!(
            node,
            Expr::ScalarSubquery(_)
                | Expr::InSubquery(_)
                | Expr::Exists(_)
                | Expr::SetComparison(_)
                | Expr::OuterReferenceColumn(..)
        )
    };
    !filter.is_volatile() && !filter.exists(|node| Ok(is_query(node))).unwrap_or(true)
}

/// The comparison of a column with a constant that `condition` is.
fn comparison_of(condition: &Arc<dyn PhysicalExpr>) -> Option<Comparison> {
    let (column, operator, constant) = sides(condition)?;
    Comparison::new(column.index(), operator, constant)
}

/// The column that `condition` compares with a constant, the operator as if the column were on its left, and the
/// constant.
pub(crate) fn sides(
    condition: &Arc<dyn PhysicalExpr>,
) -> Option<(&Column, Operator, &ScalarValue)> {
    let binary = condition.downcast_ref::<BinaryExpr>()?;
    let (left, right) = (binary.left(), binary.right());
    match (left.downcast_ref::<Column>(), right.downcast_ref::<Literal>()) {
        (Some(column), Some(constant)) => Some((column, *binary.op(), constant.value())),
        _ => {
            let (constant, column) =
                (left.downcast_ref::<Literal>()?, right.downcast_ref::<Column>()?);
            Some((column, binary.op().swap()?, constant.value()))
        }
    }
}

/// Whether `condition` compares a column with a constant of its type.
fn is_alike(condition: &Arc<dyn PhysicalExpr>, schema: &Schema) -> bool {
    sides(condition).is_some_and(|(column, _, constant)| {
        column.data_type(schema).is_ok_and(|own| own == constant.data_type())
    })
}

#[cfg(test)]
mod tests;
