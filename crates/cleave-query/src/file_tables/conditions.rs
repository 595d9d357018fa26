//! Conditions of a query in, the rows of a batch for which they may hold out: comparisons of numbers, dates and
//! timestamps with constants.
//!
//! The operator above looks at all conditions of each row that is left. It evaluates one after the other, on fewer and
//! fewer rows, and copies these each time. Comparisons of whole columns take a small part of that, so most rows that
//! nobody wants do not reach it.
//!
//! Invariants: a condition that could fail is not used. A batch of which most rows are left is handed on as it is.

use std::fmt;
use std::sync::Arc;

use datafusion::arrow::array::{Array, AsArray, BooleanArray, RecordBatch};
use datafusion::arrow::buffer::BooleanBuffer;
use datafusion::arrow::compute::{filter_record_batch, prep_null_mask_filter};
use datafusion::arrow::datatypes::{DataType, Schema, SchemaRef};
use datafusion::catalog::Session;
use datafusion::common::DFSchema;
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, Operator};
use datafusion::physical_expr::{PhysicalExpr, split_conjunction};
use datafusion::physical_plan::expressions::{BinaryExpr, Column, Literal};

use super::pruning::is_exact;

/// See the module's description.
#[derive(Debug, Clone, Default)]
pub(super) struct Conditions(Arc<Vec<Arc<dyn PhysicalExpr>>>);

impl Conditions {
    /// Those of `filters` that can be used on rows of `schema`.
    pub(super) fn of(session: &dyn Session, filters: &[Expr], schema: &SchemaRef) -> Result<Self> {
        let named = DFSchema::try_from(Arc::clone(schema))?;
        let mut usable = Vec::new();
        for filter in filters {
            // One of a column that is not read is left to the operator above.
            let Ok(all) = session.create_physical_expr(filter.clone(), &named) else { continue };
            let parts = split_conjunction(&all).into_iter();
            usable.extend(parts.filter(|part| is_usable(part, schema)).map(Arc::clone));
        }
        Ok(Self(Arc::new(usable)))
    }

    /// All of them.
    pub(super) fn list(&self) -> &[Arc<dyn PhysicalExpr>] {
        &self.0
    }

    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The rows of `batch` for which they may hold.
    ///
    /// # Errors
    /// DataFusion's.
    pub(super) fn left_of(&self, batch: RecordBatch) -> Result<RecordBatch> {
        let mut left: Option<BooleanBuffer> = None;
        for condition in self.0.iter() {
            let values = condition.evaluate(&batch)?.into_array(batch.num_rows())?;
            let Some(holds) = values.as_boolean_opt() else { return Ok(batch) };
            let holds = true_bits(holds);
            left = Some(match left {
                Some(before) => &before & &holds,
                None => holds,
            });
        }
        match left {
            Some(left) if left.count_set_bits() <= batch.num_rows() / 2 => {
                Ok(filter_record_batch(&batch, &BooleanArray::new(left, None))?)
            }
            _ => Ok(batch),
        }
    }
}

impl fmt::Display for Conditions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let texts: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        write!(f, "{}", texts.join(" AND "))
    }
}

/// Whether `condition` compares a column of a type of one width with a constant of the same type.
fn is_usable(condition: &Arc<dyn PhysicalExpr>, schema: &Schema) -> bool {
    let Some(binary) = condition.downcast_ref::<BinaryExpr>() else { return false };
    let compares = matches!(
        binary.op(),
        Operator::Eq | Operator::Lt | Operator::LtEq | Operator::Gt | Operator::GtEq
    );
    let type_of = |side: &Arc<dyn PhysicalExpr>| side.data_type(schema).ok();
    let (left, right) = (binary.left(), binary.right());
    let is_with_constant = left.is::<Column>() && right.is::<Literal>()
        || left.is::<Literal>() && right.is::<Column>();
    compares
        && is_with_constant
        && type_of(left) == type_of(right)
        && type_of(left).is_some_and(|own| is_exact(&own) || is_real(&own))
}

fn is_real(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Float32 | DataType::Float64)
}

/// The rows for which `holds` is true: NULL is not.
fn true_bits(holds: &BooleanArray) -> BooleanBuffer {
    match holds.nulls() {
        None => holds.values().clone(),
        Some(_) => prep_null_mask_filter(holds).values().clone(),
    }
}
