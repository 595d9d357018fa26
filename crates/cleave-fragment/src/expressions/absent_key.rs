//! Stands for a part of a join's keys that the rows below have no column for.
//!
//! A filter over several columns may go below an operator that has only some of them: an aggregate that groups by one
//! and computes the other, a join whose inputs have one each. The others are replaced by this expression, and the
//! filter keeps its identity and the number of its operands.
//!
//! Invariant: no condition with this expression is evaluated or sent: [`compact_keys`] keeps of a filter the conditions
//! without it. Losing the others changes no rows (rule 4).
//!
//! [`compact_keys`]: super::key_set::compact_keys

use crate::walk::Walk;
use std::fmt;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, Schema};
use datafusion_common::{Result, internal_err};
use datafusion_expr::ColumnarValue;
use datafusion_physical_expr::PhysicalExpr;

/// See the [module](self).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct AbsentKeyExpr {
    data_type: DataType,
}

impl AbsentKeyExpr {
    /// In the place of a key of `data_type`.
    pub(crate) fn of(data_type: DataType) -> Arc<dyn PhysicalExpr> {
        Arc::new(Self { data_type })
    }
}

/// Whether an absent key is part of `expr`.
pub fn has_absent_key(expr: &Arc<dyn PhysicalExpr>) -> bool {
    expr.exists(|part| Ok(part.is::<AbsentKeyExpr>())).unwrap_or(true)
}

impl PhysicalExpr for AbsentKeyExpr {
    fn data_type(&self, _schema: &Schema) -> Result<DataType> {
        Ok(self.data_type.clone())
    }

    fn nullable(&self, _schema: &Schema) -> Result<bool> {
        Ok(true)
    }

    fn evaluate(&self, _batch: &RecordBatch) -> Result<ColumnarValue> {
        internal_err!("a filter asks for a key that these rows do not have")
    }

    fn children(&self) -> Vec<&Arc<dyn PhysicalExpr>> {
        Vec::new()
    }

    fn with_new_children(
        self: Arc<Self>,
        _children: Vec<Arc<dyn PhysicalExpr>>,
    ) -> Result<Arc<dyn PhysicalExpr>> {
        Ok(self)
    }

    fn fmt_sql(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for AbsentKeyExpr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "absent key")
    }
}
