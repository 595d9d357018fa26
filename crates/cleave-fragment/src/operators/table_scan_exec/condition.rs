//! One condition of a scan: a page and the rows kept so far in, the rows that satisfy it, too, out.
//!
//! 1. [`Condition::new`] finds which columns it speaks of, whether it may fail, and whether it compares one column
//!    with one number.
//! 2. [`Condition::narrow`] takes the cheapest way that the page's encodings offer:
//!    a comparison of integers on their packed form; any condition on one column once a distinct value; else the
//!    expression over decoded columns, of the kept rows alone where they are few or the condition may fail.
//!
//! Invariants: a condition that may fail is asked only of rows that are visible and satisfy those before it, as people
//! expect of `b <> 0 AND a / b > 1`; the way taken changes time and never rows.

use std::cmp::Ordering;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, BooleanBufferBuilder, RecordBatch, RecordBatchOptions, UInt32Array,
    new_null_array,
};
use arrow::buffer::BooleanBuffer;
use arrow::compute::concat;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use cleave_store::{OverflowValues, Pick, Projection};
use datafusion_common::cast::as_boolean_array;
use datafusion_common::tree_node::{Transformed, TreeNode};
use datafusion_common::{Result, ScalarValue, internal_err};
use datafusion_expr::Operator;
use datafusion_physical_expr::PhysicalExpr;
use datafusion_physical_expr::expressions::{
    BinaryExpr, Column, DynamicFilterPhysicalExpr, Literal,
};
use datafusion_physical_plan::ColumnarValue;

use super::scan_page::{ScanPage, external, true_bits};
use crate::expressions::total::cannot_fail;

/// Where at most one row in so many is kept, a condition sees the kept ones only.
const FEW: usize = 4;

/// One of the conditions that a scan's rows satisfy, all of them.
pub(super) struct Condition {
    /// Over the columns of `columns` alone, in their order.
    expr: Arc<dyn PhysicalExpr>,
    /// The columns that it speaks of, each once.
    columns: Projection,
    /// Whether a value may make it fail.
    may_fail: bool,
    comparison: Option<Comparison>,
}

/// A column of integers, or what has their order, compared with a number.
struct Comparison {
    other: i128,
    operator: Operator,
}

impl Condition {
    /// The condition `expr`, whose columns are positions in `of`.
    pub(super) fn new(expr: &Arc<dyn PhysicalExpr>, of: &Projection) -> Result<Self> {
        let may_fail = !cannot_fail(expr, &of.schema);
        let mut positions: Vec<usize> = Vec::new();
        let moved = Arc::clone(expr).transform_up(|expr| {
            let Some(column) = expr.downcast_ref::<Column>() else {
                return Ok(Transformed::no(expr));
            };
            let known = positions.iter().position(|position| *position == column.index());
            let index = known.unwrap_or_else(|| {
                positions.push(column.index());
                positions.len() - 1
            });
            let moved: Arc<dyn PhysicalExpr> = Arc::new(Column::new(column.name(), index));
            Ok(Transformed::yes(moved))
        })?;
        let mut fields = Vec::with_capacity(positions.len());
        let mut columns = Vec::with_capacity(positions.len());
        for position in positions {
            let (Some(column), true) =
                (of.columns.get(position), position < of.schema.fields().len())
            else {
                return internal_err!(
                    "a condition speaks of column {position}, which the scan has not"
                );
            };
            columns.push(*column);
            // Of a dictionary's values it is also asked about NULL.
            fields.push(Field::clone(of.schema.field(position)).with_nullable(true));
        }
        let columns = Projection { schema: Arc::new(Schema::new(fields)), columns };
        Ok(Self {
            comparison: Comparison::of(&moved.data, &columns.schema),
            expr: moved.data,
            columns,
            may_fail,
        })
    }

    /// The rows of `kept` that satisfy it. `overflow` has the long values of all rows, or of the kept ones.
    pub(super) fn narrow(
        &self,
        page: &mut ScanPage<'_>,
        kept: BooleanBuffer,
        overflow: &OverflowValues,
        batch_size: usize,
    ) -> Result<BooleanBuffer> {
        let kept_count = kept.count_set_bits();
        if kept_count == 0 || self.is_true_by_now()? {
            return Ok(kept);
        }
        page.open(&self.columns, overflow)?;
        if !self.may_fail
            && let Some(satisfied) = self.on_encoded(page, kept_count)?
        {
            return Ok(&kept & &satisfied);
        }
        let all = kept_count == kept.len();
        let few = kept_count * FEW <= kept.len();
        if !all && (few || self.may_fail) {
            let satisfied = self.evaluate(page, Some(&kept), batch_size)?;
            // The answers are of the kept rows; the others stay out.
            let mut bits = BooleanBufferBuilder::new(kept.len());
            bits.append_n(kept.len(), false);
            for (slot, satisfied) in kept.set_indices().zip(satisfied.iter()) {
                bits.set_bit(slot, satisfied);
            }
            return Ok(bits.finish());
        }
        let satisfied = self.evaluate(page, None, batch_size)?;
        Ok(if all { satisfied } else { &kept & &satisfied })
    }

    /// Whether it is a filter in flight that rules nothing out yet.
    fn is_true_by_now(&self) -> Result<bool> {
        let Some(filter) = self.expr.downcast_ref::<DynamicFilterPhysicalExpr>() else {
            return Ok(false);
        };
        let current = filter.current()?;
        let value = current.downcast_ref::<Literal>().map(Literal::value);
        Ok(value == Some(&ScalarValue::Boolean(Some(true))))
    }

    /// The rows that satisfy it, where that can be said without decoding them.
    fn on_encoded(&self, page: &ScanPage<'_>, kept_count: usize) -> Result<Option<BooleanBuffer>> {
        let [column] = self.columns.columns[..] else {
            return Ok(None);
        };
        let column = page.column(column)?;
        if let Some(Comparison { other, operator }) = &self.comparison
            && let Some(satisfied) = column.compare(*other, |order| holds(*operator, order))
        {
            return Ok(Some(satisfied));
        }
        // A dictionary of more values than rows are left is not worth asking.
        match column.distinct().map_err(external)? {
            Some((values, places)) if values.len() <= kept_count => {
                self.on_distinct(values, &places).map(Some)
            }
            _ => Ok(None),
        }
    }

    /// Asks once a distinct value, and once about NULL.
    fn on_distinct(&self, values: ArrayRef, places: &UInt32Array) -> Result<BooleanBuffer> {
        let null = values.len();
        let values = if places.null_count() > 0 {
            concat(&[&values, &new_null_array(values.data_type(), 1)])?
        } else {
            values
        };
        let count = values.len();
        let answers = self.answers(vec![values], count)?;
        let answer = |place: usize| place < answers.len() && answers.value(place);
        let of_null = answer(null);
        let slots = places.values();
        Ok(match places.nulls() {
            None => BooleanBuffer::collect_bool(slots.len(), |slot| answer(slots[slot] as usize)),
            Some(nulls) => BooleanBuffer::collect_bool(slots.len(), |slot| {
                if nulls.is_valid(slot) { answer(slots[slot] as usize) } else { of_null }
            }),
        })
    }

    /// The answer for each row, or each kept row.
    fn evaluate(
        &self,
        page: &ScanPage<'_>,
        kept: Option<&BooleanBuffer>,
        batch_size: usize,
    ) -> Result<BooleanBuffer> {
        let mut bits = BooleanBufferBuilder::new(page.row_count());
        for range in page.ranges(kept, batch_size) {
            let pick = Pick::new(range, kept, self.columns.columns.len()).map_err(external)?;
            let arrays = page.decode(&self.columns.columns, &pick)?;
            bits.append_buffer(&self.answers(arrays, pick.count())?);
        }
        Ok(bits.finish())
    }

    /// For each row of these columns, whether the condition is true: NULL is not.
    fn answers(&self, arrays: Vec<ArrayRef>, row_count: usize) -> Result<BooleanBuffer> {
        let options = RecordBatchOptions::new().with_row_count(Some(row_count));
        let schema = SchemaRef::clone(&self.columns.schema);
        let batch = RecordBatch::try_new_with_options(schema, arrays, &options)?;
        Ok(match self.expr.evaluate(&batch)? {
            ColumnarValue::Scalar(ScalarValue::Boolean(Some(true))) => {
                BooleanBuffer::new_set(row_count)
            }
            ColumnarValue::Scalar(ScalarValue::Boolean(_)) => BooleanBuffer::new_unset(row_count),
            value => {
                let array = value.into_array(row_count)?;
                true_bits(as_boolean_array(&array)?)
            }
        })
    }
}

impl Comparison {
    /// The comparison that `expr` is, if it is one.
    fn of(expr: &Arc<dyn PhysicalExpr>, schema: &Schema) -> Option<Self> {
        let binary = expr.downcast_ref::<BinaryExpr>()?;
        let (column, literal, operator) =
            match (binary.left().downcast_ref::<Column>(), binary.right().downcast_ref::<Column>())
            {
                (Some(column), None) => (column, binary.right(), *binary.op()),
                (None, Some(column)) => (column, binary.left(), binary.op().swap()?),
                _ => return None,
            };
        let value = literal.downcast_ref::<Literal>()?.value();
        let data_type = schema.fields().get(column.index())?.data_type();
        let comparable = match (data_type, value.data_type()) {
            (DataType::Decimal128(_, scale), DataType::Decimal128(_, other)) => *scale == other,
            (left, right) => *left == right,
        };
        let other = match value {
            ScalarValue::Int16(value) => (*value)?.into(),
            ScalarValue::Int32(value) | ScalarValue::Date32(value) => (*value)?.into(),
            ScalarValue::Int64(value)
            | ScalarValue::Time64Microsecond(value)
            | ScalarValue::TimestampMicrosecond(value, _) => (*value)?.into(),
            ScalarValue::Decimal128(value, _, _) => (*value)?,
            _ => return None,
        };
        use Operator::{Eq, Gt, GtEq, Lt, LtEq, NotEq};
        let known = matches!(operator, Eq | NotEq | Lt | LtEq | Gt | GtEq);
        (comparable && known).then_some(Self { other, operator })
    }
}

fn holds(operator: Operator, order: Ordering) -> bool {
    match operator {
        Operator::Eq => order.is_eq(),
        Operator::NotEq => order.is_ne(),
        Operator::Lt => order.is_lt(),
        Operator::LtEq => order.is_le(),
        Operator::Gt => order.is_gt(),
        Operator::GtEq => order.is_ge(),
        _ => false,
    }
}

#[cfg(test)]
mod tests;
