//! Prunes tablets: a table's conditions in, the pages of the tablets that may have matches out.
//!
//! Where a table is divided by a hash of columns, and conditions give each of them as equal to one of some values, rows
//! that match lie only in the tablets of these values. Where it is divided by ranges of a column, they lie in the
//! tablets between the ends that conditions give, of rows without a value in the last one.

use std::collections::BTreeSet;

use cleave_catalog::catalog::division::Division;
use cleave_store::RangeBounds;
use datafusion::arrow::array::ArrayRef;
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::logical_expr::Expr;

use super::index_choice::{ColumnBounds, bounds};
use super::planned_input::PlannedInput;

/// Most combinations of values that are looked for.
const VALUE_COUNT_MAX: usize = 256;

/// The part of `input` in the tablets that rows for which `filters` hold can lie in.
///
/// # Errors
/// Values that cannot be made arrays.
pub(super) fn choose(filters: &[Expr], input: PlannedInput) -> Result<PlannedInput> {
    let table = &input.table;
    if table.tablets.len() <= 1 || filters.is_empty() {
        return Ok(input);
    }
    if let Division::Range(id, ranges) = &table.division {
        let bounds = bounds(&table.schema, filters);
        let wanted = bounds.get(id).map(|bounds| in_ranges(ranges, bounds));
        let wanted = wanted.filter(|wanted| wanted.len() < table.tablets.len());
        return Ok(match wanted {
            Some(wanted) => input.in_tablets(&wanted),
            None => input,
        });
    }
    let key =
        table.division.tablet_key(&table.schema).map_err(cleave_catalog::error::Error::from)?;
    let Some(key) = key else { return Ok(input) };
    let bounds = bounds(&table.schema, filters);
    let mut combinations: Vec<Vec<ArrayRef>> = vec![Vec::new()];
    for place in key.columns() {
        let column = table.schema.columns.get(*place);
        let equal = column.and_then(|column| bounds.get(&column.id)?.equal.as_ref());
        let Some(values) = equal else { return Ok(input) };
        if combinations.len().saturating_mul(values.len()) > VALUE_COUNT_MAX {
            return Ok(input);
        }
        let values: Vec<ArrayRef> =
            values.iter().map(ScalarValue::to_array).collect::<Result<_>>()?;
        let longer = |one: &Vec<ArrayRef>| -> Vec<Vec<ArrayRef>> {
            let with = |value: &ArrayRef| one.iter().chain([value]).cloned().collect();
            values.iter().map(with).collect()
        };
        combinations = combinations.iter().flat_map(longer).collect();
    }
    let count = u32::try_from(table.tablets.len()).unwrap_or(u32::MAX);
    let mut wanted = BTreeSet::new();
    for values in combinations {
        let tablets = key.tablets_of(&values, count).map_err(cleave_catalog::error::Error::from)?;
        wanted.extend(tablets.into_iter().filter_map(|tablet| usize::try_from(tablet).ok()));
    }
    Ok(input.in_tablets(&wanted))
}

/// The places of the tablets that rows within `bounds` can lie in.
fn in_ranges(ranges: &RangeBounds, bounds: &ColumnBounds) -> BTreeSet<usize> {
    // A value whose key is too long for an index says nothing.
    let key = |value: &ScalarValue| -> Option<Vec<u8>> {
        RangeBounds::keys_of(&value.to_array().ok()?).ok()?.pop()
    };
    let tablet = |value: &ScalarValue| Some(ranges.tablet(&key(value)?));
    let first = bounds.low.as_ref().and_then(tablet).unwrap_or(0);
    let last = [
        bounds.high.as_ref().and_then(tablet),
        bounds.below.as_ref().and_then(|value| Some(ranges.tablet_below(&key(value)?))),
    ];
    let last = last.into_iter().flatten().min().unwrap_or(ranges.keys().len());
    let of_values = bounds.equal.as_ref();
    let of_values =
        of_values.and_then(|values| values.iter().map(tablet).collect::<Option<BTreeSet<usize>>>());
    let is_wanted = |place: &usize| of_values.as_ref().is_none_or(|wanted| wanted.contains(place));
    (first..=last).filter(is_wanted).collect()
}

#[cfg(test)]
mod tests;
