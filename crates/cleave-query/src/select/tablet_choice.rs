//! Prunes tablets: a table's conditions in, the pages of the tablets that may have matches out.
//!
//! Where a table is divided by a hash of columns, and conditions give each of them as equal to one of some values, rows
//! that match lie only in the tablets of these values.

use std::collections::BTreeSet;

use datafusion::arrow::array::ArrayRef;
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::logical_expr::Expr;

use super::index_choice::bounds;
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
