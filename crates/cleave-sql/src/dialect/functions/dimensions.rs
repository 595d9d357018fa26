//! Lists of several dimensions, which are lists of lists: their subscripts and sizes. Those of one dimension are the
//! plain case.
//!
//! 1. [`list_item`], [`list_slice`]: `x[i][j]`, `x[i:j][k:l]`. DataFusion counts negative subscripts from the end.
//! 2. `array_dims`, `array_ndims`, `array_length`, `array_upper`, `array_lower`.
//! 3. [`same_dimensions`]: the lists within a list must have one size.
//! 4. [`nested_as`]: the type of a cast, which says nothing of dimensions.
//!
//! Invariant: a list within an empty list is in no result, so an empty list has no dimension.
//!
//! Source: PostgreSQL's arrayfuncs.c.

use std::sync::Arc;

use cleave_fragment::functions::{ArgumentFault, row_function};
use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, Int32Array, ListArray, StringArray, UInt64Array, new_null_array,
};
use datafusion::arrow::compute::take;
use datafusion::arrow::datatypes::{DataType, Field, Int64Type};
use datafusion::common::utils::take_function_args;
use datafusion::error::Result;
use datafusion::logical_expr::ScalarUDF;

use super::arrays::{places, rebuilt};
use crate::dialect::typed_literals::is_text;

/// The function of a subscript for each dimension.
pub(in crate::dialect) const LIST_ITEM: &str = "list_item";
/// The function of two bounds for each dimension; DataFusion has a `list_slice` of its own.
pub(in crate::dialect) const LIST_SLICE: &str = "list_part";

/// The type of the items within all dimensions, and how many there are.
pub(in crate::dialect) fn innermost(list: &DataType) -> (&DataType, usize) {
    let (mut own, mut dimensions) = (list, 0);
    while let DataType::List(item) = own {
        (own, dimensions) = (item.data_type(), dimensions + 1);
    }
    (own, dimensions)
}

/// The type `to` with as many dimensions as `own` has, if it is one of lists and has less; PostgreSQL has one type for
/// any.
pub(in crate::dialect) fn nested_as(own: &DataType, to: &DataType) -> Option<DataType> {
    let ((_, from), (item, dimensions)) = (innermost(own), innermost(to));
    let nested = |inner: DataType| DataType::List(Arc::new(Field::new_list_field(inner, true)));
    let wanted = dimensions > 0 && from > 0 && from != dimensions;
    wanted.then(|| (0..from).fold(item.clone(), |inner, _| nested(inner)))
}

fn list_and_numbers(given: &[DataType]) -> Option<Vec<DataType>> {
    let [list @ DataType::List(_), places @ ..] = given else { return None };
    let is_place = |own: &DataType| own.is_numeric() || is_text(own) || own.is_null();
    let others = places.iter().map(|_| DataType::Int64);
    let is_it = !places.is_empty() && places.iter().all(is_place);
    is_it.then(|| std::iter::once(list.clone()).chain(others).collect())
}

/// `list_item(list, place, …)`; NULL outside of the list, and with more or fewer places than it has dimensions.
pub(in crate::dialect) fn list_item() -> Arc<ScalarUDF> {
    let gives =
        |given: &[DataType]| given.first().map_or(DataType::Null, |own| innermost(own).0.clone());
    row_function(LIST_ITEM, list_and_numbers, gives, |args| {
        let [lists, wanted @ ..] = args else { return Ok(Arc::new(Int32Array::new_null(0))) };
        let rows = lists.len();
        let (item, dimensions) = innermost(lists.data_type());
        if dimensions != wanted.len() {
            return Ok(new_null_array(item, rows));
        }
        let mut values = Arc::clone(lists);
        let mut found: UInt64Array = (0..rows).map(|row| u64::try_from(row).ok()).collect();
        for wanted in wanted {
            let wanted = wanted.as_primitive::<Int64Type>();
            let lists = values.as_list::<i32>();
            let place = |row: usize| {
                let list = found.is_valid(row).then(|| found.value(row))?;
                let list = usize::try_from(list).ok()?;
                if lists.is_null(list) || wanted.is_null(row) {
                    return None;
                }
                let before = usize::try_from(wanted.value(row).checked_sub(1)?).ok()?;
                u64::try_from(places(lists, list).nth(before)?).ok()
            };
            found = (0..rows).map(place).collect();
            values = Arc::clone(lists.values());
        }
        Ok(take(&values, &found, None)?)
    })
}

/// `list_part(list, from, to, …)`, both inclusive: what the list has of it. A dimension without bounds stays whole.
pub(in crate::dialect) fn list_slice() -> Arc<ScalarUDF> {
    let takes = |given: &[DataType]| list_and_numbers(given).filter(|types| types.len() % 2 == 1);
    let gives = |given: &[DataType]| given.first().cloned().unwrap_or(DataType::Null);
    row_function(LIST_SLICE, takes, gives, |args| {
        let [lists, bounds @ ..] = args else { return Ok(Arc::new(Int32Array::new_null(0))) };
        let (_, dimensions) = innermost(lists.data_type());
        let rows: Vec<usize> = (0..lists.len()).collect();
        let of_row = |row: usize| bounds.iter().all(|bound| bound.is_valid(row)).then_some(row);
        // More bounds than dimensions leave nothing.
        let is_beyond = bounds.len() / 2 > dimensions;
        let given = lists.as_list::<i32>();
        let whole = (0..given.len()).map(|row| {
            let kept = of_row(row).filter(|_| given.is_valid(row));
            Ok(kept.map(|row| if is_beyond { Vec::new() } else { places(given, row).collect() }))
        });
        let whole = rebuilt(given.data_type(), given.values(), whole)?;
        sliced(&whole, bounds, &rows).and_then(|sliced| normal(&sliced))
    })
}

/// The lists, each cut at the bounds of its row, and the lists within them at the bounds behind these.
fn sliced(lists: &ArrayRef, bounds: &[ArrayRef], rows: &[usize]) -> Result<ArrayRef> {
    let [from, to, others @ ..] = bounds else { return Ok(Arc::clone(lists)) };
    let Some(given) = lists.as_list_opt::<i32>() else { return Ok(Arc::clone(lists)) };
    let (from, to) = (from.as_primitive::<Int64Type>(), to.as_primitive::<Int64Type>());
    let mut inner_rows = Vec::new();
    let kept = rows.iter().enumerate().map(|(list, row)| {
        if given.is_null(list) {
            return Ok(None);
        }
        let own = places(given, list);
        let before = usize::try_from(from.value(*row).saturating_sub(1)).unwrap_or(0);
        let end = usize::try_from(to.value(*row)).unwrap_or(0).min(own.len());
        let kept: Vec<usize> = own.skip(before).take(end.saturating_sub(before)).collect();
        inner_rows.extend(kept.iter().map(|_| *row));
        Ok(Some(kept))
    });
    let cut = rebuilt(given.data_type(), given.values(), kept)?;
    let cut = cut.as_list::<i32>();
    let values = sliced(cut.values(), others, &inner_rows)?;
    with_values(cut, values)
}

fn with_values(lists: &ListArray, values: ArrayRef) -> Result<ArrayRef> {
    let item = Arc::new(Field::new_list_field(values.data_type().clone(), true));
    let (offsets, nulls) = (lists.offsets().clone(), lists.nulls().cloned());
    Ok(Arc::new(ListArray::try_new(item, offsets, values, nulls)?))
}

/// A list whose lists are all empty is empty.
fn normal(lists: &ArrayRef) -> Result<ArrayRef> {
    let given = lists.as_list::<i32>();
    if innermost(given.data_type()).1 < 2 {
        return Ok(Arc::clone(lists));
    }
    let kept = (0..given.len()).map(|row| {
        let list = given.is_valid(row).then(|| given.value(row));
        Ok(match list {
            None => None,
            Some(list) if lengths(&list, &[])?.is_empty() => Some(Vec::new()),
            Some(_) => Some(places(given, row).collect()),
        })
    });
    rebuilt(given.data_type(), given.values(), kept)
}

/// The lengths of the dimensions of a list with these items; none if it is empty.
fn lengths(items: &ArrayRef, before: &[usize]) -> Result<Vec<usize>, ArgumentFault> {
    if items.is_empty() {
        return Ok(Vec::new());
    }
    let all = [before, &[items.len()]].concat();
    let Some(lists) = items.as_list_opt::<i32>() else { return Ok(all) };
    let mut found: Option<Vec<usize>> = None;
    for row in 0..lists.len() {
        let inner = match lists.is_valid(row) {
            true => lengths(&lists.value(row), &all)?,
            false => Vec::new(),
        };
        if found.as_ref().is_some_and(|found| *found != inner) {
            let reason =
                "multidimensional arrays must have array expressions with matching dimensions";
            return Err(ArgumentFault::Dimensions { reason });
        }
        found = Some(inner);
    }
    Ok(found.unwrap_or_default())
}

/// `same_dimensions(list)`: a list of lists, if these have one size.
pub(in crate::dialect) fn same_dimensions() -> Arc<ScalarUDF> {
    let takes = |given: &[DataType]| match given {
        [DataType::List(_)] => Some(given.to_vec()),
        _ => None,
    };
    let gives = |given: &[DataType]| given.first().cloned().unwrap_or(DataType::Null);
    row_function("same_dimensions", takes, gives, |args| {
        let [lists] = take_function_args("same_dimensions", args)?;
        normal(lists)
    })
}

fn one_list(given: &[DataType]) -> Option<Vec<DataType>> {
    match given {
        [DataType::List(_)] => Some(given.to_vec()),
        _ => None,
    }
}

/// The lengths of the dimensions of each list; None of NULL and an empty list.
fn each_lengths(lists: &ArrayRef) -> Result<Vec<Option<Vec<usize>>>> {
    let lists = lists.as_list::<i32>();
    let of_row = |row: usize| {
        let own = match lists.is_valid(row) {
            true => lengths(&lists.value(row), &[])?,
            false => Vec::new(),
        };
        Ok(Some(own).filter(|own| !own.is_empty()))
    };
    (0..lists.len()).map(of_row).collect()
}

/// `array_dims(list)`: `[1:2][1:3]`; NULL for an empty list.
pub(super) fn array_dims() -> Arc<ScalarUDF> {
    row_function(
        "array_dims",
        one_list,
        |_| DataType::Utf8,
        |args| {
            let [lists] = take_function_args("array_dims", args)?;
            let shown = |own: Vec<usize>| {
                own.iter().map(|length| format!("[1:{length}]")).collect::<String>()
            };
            let texts = each_lengths(lists)?.into_iter().map(|own| own.map(shown));
            Ok(Arc::new(texts.collect::<StringArray>()))
        },
    )
}

/// `array_ndims(list)`: the count of its dimensions; NULL for an empty list.
pub(super) fn array_ndims() -> Arc<ScalarUDF> {
    row_function(
        "array_ndims",
        one_list,
        |_| DataType::Int32,
        |args| {
            let [lists] = take_function_args("array_ndims", args)?;
            let counts = each_lengths(lists)?.into_iter();
            let counts = counts.map(|own| own.and_then(|own| i32::try_from(own.len()).ok()));
            Ok(Arc::new(counts.collect::<Int32Array>()))
        },
    )
}

fn list_and_dimension(given: &[DataType]) -> Option<Vec<DataType>> {
    list_and_numbers(given).filter(|types| types.len() == 2)
}

fn of_dimension(args: &[ArrayRef], of: fn(usize) -> Option<i32>) -> Result<ArrayRef> {
    let [lists, wanted] = take_function_args("array_length", args)?;
    let wanted = wanted.as_primitive::<Int64Type>();
    let length = |(row, own): (usize, Option<Vec<usize>>)| {
        let dimension = wanted.is_valid(row).then(|| wanted.value(row))?;
        let before = usize::try_from(dimension.checked_sub(1)?).ok()?;
        own?.get(before).copied().and_then(of)
    };
    let lengths = each_lengths(lists)?.into_iter().enumerate().map(length);
    Ok(Arc::new(lengths.collect::<Int32Array>()))
}

/// `array_length(list, dimension)`.
pub(super) fn array_length() -> Arc<ScalarUDF> {
    let length = |args: &[ArrayRef]| of_dimension(args, |length| i32::try_from(length).ok());
    row_function("array_length", list_and_dimension, |_| DataType::Int32, length)
}

/// `array_upper(list, dimension)`: subscripts begin at one.
pub(super) fn array_upper() -> Arc<ScalarUDF> {
    let length = |args: &[ArrayRef]| of_dimension(args, |length| i32::try_from(length).ok());
    row_function("array_upper", list_and_dimension, |_| DataType::Int32, length)
}

/// `array_lower(list, dimension)`.
pub(super) fn array_lower() -> Arc<ScalarUDF> {
    let one = |args: &[ArrayRef]| of_dimension(args, |_| Some(1));
    row_function("array_lower", list_and_dimension, |_| DataType::Int32, one)
}
