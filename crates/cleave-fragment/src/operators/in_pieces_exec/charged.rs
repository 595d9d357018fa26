//! Charges the columns of a projection that has very many of them, each as soon as it is made: each may be within its
//! bounds, and all together beyond memory.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, FieldRef, Schema};
use datafusion_common::{Result, exec_err};
use datafusion_expr::ColumnarValue;
use datafusion_physical_expr::PhysicalExpr;
use datafusion_physical_plan::ExecutionPlan;
use datafusion_physical_plan::projection::{ProjectionExec, ProjectionExpr};

use super::takes_long;
use crate::result_memory::charged_array;

/// Columns of long values that are not charged by themselves.
const COLUMN_COUNT_MIN: usize = 64;

/// `plan`, whose columns of long values are charged if it is a projection with many of them.
pub(super) fn many_charged(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    let Some(projection) = plan.downcast_ref::<ProjectionExec>() else { return Ok(plan) };
    let schema = projection.input().schema();
    let is_long = |column: &&ProjectionExpr| takes_long(&column.expr, &schema);
    if projection.expr().iter().filter(is_long).count() < COLUMN_COUNT_MIN {
        return Ok(plan);
    }
    let columns = projection.expr().iter().map(|column| match is_long(&column) {
        true => ProjectionExpr {
            expr: Arc::new(Charged { of: Arc::clone(&column.expr) }),
            alias: column.alias.clone(),
        },
        false => column.clone(),
    });
    let input = Arc::clone(projection.input());
    Ok(Arc::new(ProjectionExec::try_new(columns.collect::<Vec<_>>(), input)?))
}

/// The values of `of`, charged.
#[derive(Debug, Clone)]
struct Charged {
    of: Arc<dyn PhysicalExpr>,
}

impl PartialEq for Charged {
    fn eq(&self, other: &Self) -> bool {
        *self.of == *other.of
    }
}

impl Eq for Charged {}

impl Hash for Charged {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.of.hash(state);
    }
}

impl fmt::Display for Charged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.of.fmt(f)
    }
}

impl PhysicalExpr for Charged {
    fn data_type(&self, schema: &Schema) -> Result<DataType> {
        self.of.data_type(schema)
    }

    fn nullable(&self, schema: &Schema) -> Result<bool> {
        self.of.nullable(schema)
    }

    fn evaluate(&self, batch: &RecordBatch) -> Result<ColumnarValue> {
        Ok(match self.of.evaluate(batch)? {
            ColumnarValue::Array(array) => ColumnarValue::Array(charged_array(array)?),
            constant => constant,
        })
    }

    fn return_field(&self, schema: &Schema) -> Result<FieldRef> {
        self.of.return_field(schema)
    }

    fn children(&self) -> Vec<&Arc<dyn PhysicalExpr>> {
        vec![&self.of]
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn PhysicalExpr>>,
    ) -> Result<Arc<dyn PhysicalExpr>> {
        match children.as_slice() {
            [of] => Ok(Arc::new(Self { of: Arc::clone(of) })),
            _ => exec_err!("{} expressions in the place of one", children.len()),
        }
    }

    fn fmt_sql(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.of.fmt_sql(f)
    }
}
