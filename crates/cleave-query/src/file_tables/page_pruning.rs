//! Windows of a Parquet file's row group that cannot have a row for which conditions hold, by the bounds of its pages.
//!
//! Bounds of floating-point numbers are not used: they leave out NaN, which is greater than all others here.
//!
//! Invariant: what is not known leaves a window.

use std::slice;

use cleave_fragment::comparisons::{Comparison, rows_left};
use cleave_sql::copy::parquet::file::PageBounds;
use datafusion::arrow::array::ArrayRef;
use datafusion::common::ScalarValue;
use datafusion::logical_expr::Operator;

use super::late::Asked;
use crate::conditions::{Conditions, sides};

/// For each window of `window_rows` rows of the row group, whether it may have a row for which `conditions` hold.
pub(super) fn windows_left(
    asked: &Asked<'_>,
    conditions: &Conditions,
    window_rows: usize,
) -> Vec<bool> {
    let mut left = vec![true; asked.rows.div_ceil(window_rows)];
    let root = |place: usize| asked.roots.get(place).copied().flatten();
    let roots: Vec<usize> = conditions.places().into_iter().filter_map(root).collect();
    let Some(bounds) = asked.file.page_bounds(asked.group, &roots) else { return left };
    for condition in conditions.list() {
        let Some((column, operator, constant)) = sides(condition) else { continue };
        let mut known = roots.iter().zip(&bounds);
        let own = known.find(|(own, _)| Some(**own) == root(column.index()));
        let Some(own) = own.and_then(|(_, own)| own.as_ref()) else { continue };
        let mut by_pages = vec![false; left.len()];
        let ends = own.first_rows.iter().skip(1).copied().chain([asked.rows]);
        let pages = own.first_rows.iter().zip(ends).zip(pages_left(own, operator, constant));
        for ((first, end), _) in pages.filter(|(_, is_left)| *is_left) {
            // A page may begin and end within windows.
            if let Some(windows) = by_pages.get_mut(first / window_rows..end.div_ceil(window_rows))
            {
                windows.fill(true);
            }
        }
        for (is_left, by_pages) in left.iter_mut().zip(by_pages) {
            *is_left &= by_pages;
        }
    }
    left
}

/// For each page, whether it may have a value that compares so with `constant`.
fn pages_left(bounds: &PageBounds, operator: Operator, constant: &ScalarValue) -> Vec<bool> {
    let least = |operator: Operator| values_left(&bounds.mins, operator, constant);
    let greatest = |operator: Operator| values_left(&bounds.maxes, operator, constant);
    match operator {
        Operator::Lt | Operator::LtEq => least(operator),
        Operator::Gt | Operator::GtEq => greatest(operator),
        Operator::Eq => {
            let both = least(Operator::LtEq).into_iter().zip(greatest(Operator::GtEq));
            both.map(|(least, greatest)| least && greatest).collect()
        }
        _ => vec![true; bounds.first_rows.len()],
    }
}

/// For each of `values`, whether it compares so with `constant`, or is not known.
fn values_left(values: &ArrayRef, operator: Operator, constant: &ScalarValue) -> Vec<bool> {
    let comparison = match constant.data_type().is_floating() {
        true => None,
        false => Comparison::new(0, operator, constant),
    };
    let Some(comparison) = comparison else { return vec![true; values.len()] };
    let left = rows_left(&[comparison], slice::from_ref(values), values.len());
    (0..values.len()).map(|value| left.value(value) || values.is_null(value)).collect()
}
