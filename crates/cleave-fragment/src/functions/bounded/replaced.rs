//! Estimates the size of a text after its parts that equal another one are replaced.
//!
//! The first estimate assumes a match at every position. Only where that is too large, and the arguments alone are not,
//! are matches counted, which costs about as much as replacing them.

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::compute::cast;
use arrow::datatypes::DataType;
use datafusion_common::Result;
use datafusion_expr::ColumnarValue;

use super::{RESULT_BYTES_MAX, lengths, numbers, product, total};

/// `replace(text, from, to)`.
pub(super) fn replaced(args: &[ColumnarValue], rows: usize) -> Result<u64> {
    let texts = numbers(args, 0, lengths)?;
    let (from, to) = (numbers(args, 1, lengths)?, numbers(args, 2, lengths)?);
    let others = are_for_each_row(args);
    let given = |row: usize| {
        let others = if others { from.of(row).saturating_add(to.of(row)) } else { 0 };
        texts.of(row).saturating_add(others).unsigned_abs()
    };
    let least = total(rows, given);
    let most = total(rows, |row| {
        let matches = texts.of(row) / from.of(row).max(1) + 1;
        product(matches, to.of(row)).saturating_add(given(row))
    });
    if most <= RESULT_BYTES_MAX || least > RESULT_BYTES_MAX {
        return Ok(most);
    }
    let (values, patterns) = (Texts::of(args, 0)?, Texts::of(args, 1)?);
    Ok(total(rows, |row| {
        let both = values.at(row).zip(patterns.at(row));
        // A search begins with reading the whole pattern.
        let both = both.filter(|(value, pattern)| pattern.len() <= value.len());
        let matches = both.map_or(0, |(value, pattern)| value.matches(pattern).count());
        let matches = i64::try_from(matches).unwrap_or(i64::MAX);
        product(matches, to.of(row)).saturating_add(given(row))
    }))
}

/// Whether DataFusion expands the arguments behind the text to one value a row, also constant ones.
fn are_for_each_row(args: &[ColumnarValue]) -> bool {
    args.iter().skip(1).any(|arg| matches!(arg, ColumnarValue::Array(_)))
}

/// One text for each row; they may all be the same.
struct Texts {
    values: Option<ArrayRef>,
    is_same: bool,
}

impl Texts {
    fn of(args: &[ColumnarValue], place: usize) -> Result<Self> {
        let text = |array: &ArrayRef| cast(array, &DataType::LargeUtf8);
        Ok(match args.get(place) {
            None => Self { values: None, is_same: true },
            Some(ColumnarValue::Array(array)) => {
                Self { values: Some(text(array)?), is_same: false }
            }
            Some(ColumnarValue::Scalar(value)) => {
                Self { values: Some(text(&value.to_array()?)?), is_same: true }
            }
        })
    }

    fn at(&self, row: usize) -> Option<&str> {
        let values = self.values.as_ref()?.as_string::<i64>();
        let row = if self.is_same { 0 } else { row };
        (row < values.len() && values.is_valid(row)).then(|| values.value(row))
    }
}
