//! Extracts the keys that a scan's filters list for a column, as ranges of an index's keys.
//!
//! Keys learnt by the joins above reach a scan as a list of values or a set of integers, among other conditions
//! ([`crate::expressions::key_set`]): in a filter that the join still fills or, if the fragment was sent later, in the
//! scan's predicate. Every output row of the scan has one of the listed values, since all filters must hold. Of several
//! lists, the shortest is taken.
//!
//! Deliberately absent: floats, whose equality in DataFusion is not that of keys; intervals; ranges (too wide).

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, Int64Array, new_empty_array};
use arrow::compute::{cast, filter, is_not_null};
use arrow::datatypes::DataType;
use cleave_store::{ColumnRef, IndexKey, KeyColumn, KeyRange, Projection};
use datafusion_common::{Result, ScalarValue};
use datafusion_expr::Operator;
use datafusion_physical_expr::expressions::{BinaryExpr, Column, InListExpr, Literal};
use datafusion_physical_expr::{PhysicalExpr, ScalarFunctionExpr, split_conjunction};
use datafusion_physical_expr_common::physical_expr::snapshot_physical_expr;

use crate::expressions::key_set::KeySetExpr;

/// The first column of an index; a scan's filters may list its wanted values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScanKeys {
    /// Name of the index, for display.
    pub index: String,
    /// Id of the column.
    pub column: u32,
    /// Whether the index is in descending order.
    pub descending: bool,
    /// Whether NULLs come before all values.
    pub nulls_first: bool,
    /// Expected rows of a key; 0 if unknown.
    pub rows_per_key: u64,
    /// Pages of the index, for display; the index filter may omit those that cannot have the keys.
    pub page_count: u64,
    /// When keys are looked up.
    pub thrift: Thrift,
}

/// When keys are looked up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Thrift {
    /// If fewer bytes are read: pages cross a link.
    Reads,
    /// Also if fewer rows are scanned: pages come from media beside the scan.
    Work,
    /// Whenever possible.
    None,
}

impl Thrift {
    const ALL: [Self; 3] = [Self::Reads, Self::Work, Self::None];

    /// Its number on the wire.
    pub(crate) fn code(self) -> u32 {
        match self {
            Self::Reads => 0,
            Self::Work => 1,
            Self::None => 2,
        }
    }

    /// The value with this number on the wire.
    pub(crate) fn from_code(code: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|thrift| thrift.code() == code)
    }
}

/// The values that filters list for the first column of an index.
pub(super) struct ListedKeys {
    listed: Listed,
    data_type: DataType,
}

/// The values of one column that rows may have.
enum Listed {
    /// A [`KeySetExpr`], whose keys may be millions.
    Set(Arc<dyn PhysicalExpr>),
    Values(Vec<ScalarValue>),
}

impl ScanKeys {
    /// The fewest keys that one condition of `filters`, each over the columns beside it, lists; None if none lists any.
    pub(super) fn listed(
        &self,
        filters: &[(Arc<dyn PhysicalExpr>, &Projection)],
    ) -> Result<Option<ListedKeys>> {
        let mut shortest: Option<ListedKeys> = None;
        for (expr, columns) in filters {
            let position = |expr: &Arc<dyn PhysicalExpr>| {
                let index = expr.downcast_ref::<Column>()?.index();
                let is_ours = columns.columns.get(index) == Some(&ColumnRef::User(self.column));
                (is_ours && index < columns.schema.fields().len()).then_some(index)
            };
            let Some(place) =
                columns.columns.iter().position(|column| *column == ColumnRef::User(self.column))
            else {
                continue;
            };
            let Some(field) = columns.schema.fields().get(place) else { continue };
            let expr = snapshot_physical_expr(Arc::clone(expr))?;
            for part in split_conjunction(&expr) {
                let Some(listed) = listed(part, &|expr| position(expr).is_some()) else { continue };
                if shortest.as_ref().is_none_or(|known| listed.len() < known.len()) {
                    shortest = Some(ListedKeys { listed, data_type: field.data_type().clone() });
                }
            }
        }
        Ok(shortest)
    }

    /// The ranges of `keys` in the index, ascending and disjoint; None if it has no such keys.
    pub(super) fn ranges_of(&self, keys: ListedKeys) -> Option<Vec<KeyRange>> {
        let values = keys.listed.array(&keys.data_type)?;
        let data_type = values.data_type().clone();
        let (descending, nulls_first) = (self.descending, self.nulls_first);
        let key = KeyColumn { data_type, descending, nulls_first };
        // A value too long for a key is in no index; such a list is ignored.
        let keys = IndexKey::new(vec![key], false).ok()?.encode(&[values]).ok()?;
        let mut keys: Vec<&[u8]> = keys.iter().flatten().collect();
        keys.sort_unstable();
        keys.dedup();
        Some(keys.into_iter().map(|key| KeyRange::of_prefix(key.to_vec())).collect())
    }
}

impl ListedKeys {
    /// Their number; equal ones may count several times.
    pub(super) fn len(&self) -> usize {
        self.listed.len()
    }
}

impl Listed {
    fn len(&self) -> usize {
        match self {
            Self::Set(set) => keys_of(set).len(),
            Self::Values(values) => values.len(),
        }
    }

    /// The values as an array of `data_type`, without NULL and those outside the type; None if they are of another
    /// kind.
    fn array(self, data_type: &DataType) -> Option<ArrayRef> {
        if data_type.is_floating() || matches!(data_type, DataType::Interval(_)) {
            return None;
        }
        let array: ArrayRef = match self {
            Self::Set(set) => Arc::new(Int64Array::from_iter_values(keys_of(&set).iter().copied())),
            Self::Values(mut values) => {
                values.retain(|value| !value.is_null());
                if values.is_empty() {
                    return Some(new_empty_array(data_type));
                }
                ScalarValue::iter_to_array(values).ok()?
            }
        };
        let array = if array.data_type() == data_type {
            array
        } else if array.data_type() == &DataType::Int64 && *data_type == DataType::Date32 {
            // Days are stored as their numbers.
            cast(&cast(&array, &DataType::Int32).ok()?, data_type).ok()?
        } else if array.data_type().is_signed_integer() && data_type.is_signed_integer() {
            // Values out of range become NULL.
            cast(&array, data_type).ok()?
        } else {
            return None;
        };
        if array.null_count() == 0 {
            return Some(array);
        }
        filter(&array, &is_not_null(&array).ok()?).ok()
    }
}

fn keys_of(set: &Arc<dyn PhysicalExpr>) -> &[i64] {
    set.downcast_ref::<KeySetExpr>().map_or(&[], KeySetExpr::keys)
}

/// The values that a column has in every row for which `part` is true; None if it does not list them.
fn listed(
    part: &Arc<dyn PhysicalExpr>,
    is_column: &dyn Fn(&Arc<dyn PhysicalExpr>) -> bool,
) -> Option<Listed> {
    if let Some(set) = part.downcast_ref::<KeySetExpr>() {
        return is_column(set.operand()).then(|| Listed::Set(Arc::clone(part)));
    }
    if let Some(list) = part.downcast_ref::<InListExpr>().filter(|list| !list.negated()) {
        let values = list.list().iter().map(literal);
        if is_column(list.expr()) {
            return values.collect::<Option<_>>().map(Listed::Values);
        }
        // Keys of several columns.
        let function = list.expr().downcast_ref::<ScalarFunctionExpr>()?;
        let place = function.args().iter().position(is_column)?;
        if function.name() != "struct" {
            return None;
        }
        let of_column = |value: Option<ScalarValue>| match value? {
            ScalarValue::Struct(row) if row.is_null(0) => Some(ScalarValue::Null),
            ScalarValue::Struct(row) => {
                ScalarValue::try_from_array(row.columns().get(place)?, 0).ok()
            }
            _ => None,
        };
        return values.map(of_column).collect::<Option<_>>().map(Listed::Values);
    }
    if let Some(binary) = part.downcast_ref::<BinaryExpr>() {
        let (left, right) = (binary.left(), binary.right());
        let (column, value) = if is_column(left) { (left, right) } else { (right, left) };
        let is_equality = *binary.op() == Operator::Eq && is_column(column);
        return literal(value).filter(|_| is_equality).map(|value| Listed::Values(vec![value]));
    }
    // A join whose build side is empty.
    (literal(part)? == ScalarValue::Boolean(Some(false))).then(|| Listed::Values(Vec::new()))
}

fn literal(expr: &Arc<dyn PhysicalExpr>) -> Option<ScalarValue> {
    expr.downcast_ref::<Literal>().map(|literal| literal.value().clone())
}

#[cfg(test)]
mod tests;
