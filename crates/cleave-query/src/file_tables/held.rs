//! Conditions on columns as they are read in; those that can be asked of columns as a file has them out.
//!
//! A decimal of a file often has 64 bits, and one of SQL 128. Comparisons of the short form are faster, and only rows
//! that they leave are cast.
//!
//! Invariant: a condition that leaves a value as it is read leaves it as the file has it. The cast makes one NaN of
//! many, and conditions leave each of them.

use std::collections::BTreeSet;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, BooleanArray, new_null_array};
use datafusion::arrow::compute::FilterBuilder;
use datafusion::arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::expressions::{BinaryExpr, Literal};

use crate::conditions::{Conditions, sides};

impl Conditions {
    /// Those that can be asked of columns of the types `held`, in that form, and the others. None: the file does not
    /// have the column.
    pub(super) fn by_form(&self, held: &[Option<DataType>]) -> (Self, Self) {
        let (mut of_held, mut of_cast) = (Vec::new(), Vec::new());
        for condition in self.list() {
            match in_form(condition, held) {
                Some(own) => of_held.push(own),
                None => of_cast.push(Arc::clone(condition)),
            }
        }
        (Self::new(of_held), Self::new(of_cast))
    }

    /// The places of the columns that they are on.
    pub(super) fn places(&self) -> BTreeSet<usize> {
        self.list().iter().filter_map(|own| Some(sides(own)?.0.index())).collect()
    }

    /// Which of `row_count` rows they leave: `columns` are as the file has them, None where they are on no such column.
    pub(super) fn bits_of_held(
        &self,
        columns: impl Iterator<Item = Option<ArrayRef>>,
        row_count: usize,
    ) -> BooleanArray {
        let nothing = || new_null_array(&DataType::Null, row_count);
        let columns: Vec<ArrayRef> = columns.map(|own| own.unwrap_or_else(nothing)).collect();
        BooleanArray::new(self.bits(&columns, row_count), None)
    }
}

/// The rows of `columns` that are `left`.
pub(super) fn rows_of(columns: &[ArrayRef], left: &BooleanArray) -> Result<Vec<ArrayRef>> {
    let filter = FilterBuilder::new(left).optimize().build();
    let columns = columns.iter().map(|own| filter.filter(own));
    Ok(columns.collect::<std::result::Result<Vec<_>, _>>()?)
}

/// `condition`, a comparison of a column with a constant, for columns of the types `held`.
fn in_form(
    condition: &Arc<dyn PhysicalExpr>,
    held: &[Option<DataType>],
) -> Option<Arc<dyn PhysicalExpr>> {
    let (column, operator, value) = sides(condition)?;
    let held = held.get(column.index())?.as_ref()?;
    if value.data_type() == *held {
        return Some(Arc::clone(condition));
    }
    let constant = Literal::new(short(value, held)?);
    Some(Arc::new(BinaryExpr::new(Arc::new(column.clone()), operator, Arc::new(constant))))
}

/// The decimal `value` in as many bits as `held` has; None: it does not fit, or its digits are others.
fn short(value: &ScalarValue, held: &DataType) -> Option<ScalarValue> {
    let ScalarValue::Decimal128(Some(value), digits, scale) = value else { return None };
    match held {
        DataType::Decimal32(own_digits, own_scale)
            if (own_digits, own_scale) == (digits, scale) =>
        {
            Some(ScalarValue::Decimal32(Some(i32::try_from(*value).ok()?), *digits, *scale))
        }
        DataType::Decimal64(own_digits, own_scale)
            if (own_digits, own_scale) == (digits, scale) =>
        {
            Some(ScalarValue::Decimal64(Some(i64::try_from(*value).ok()?), *digits, *scale))
        }
        _ => None,
    }
}
