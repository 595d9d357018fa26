//! Functions over the list of a group's sorted values, which implement ordered-set aggregates.

use std::sync::Arc;

use cleave_fragment::functions::{ArgumentFault, row_function, span};
use datafusion::arrow::array::{Array, ArrayRef, AsArray, ListArray, StringArray, UInt64Array};
use datafusion::arrow::buffer::OffsetBuffer;
use datafusion::arrow::compute::kernels::arity::unary;
use datafusion::arrow::compute::{SortOptions, sort_to_indices, take};
use datafusion::arrow::datatypes::{
    DataType, Decimal128Type, Field, Float64Type, IntervalMonthDayNanoType,
};
use datafusion::common::utils::take_function_args;
use datafusion::error::Result;
use datafusion::logical_expr::ScalarUDF;

use super::check_size;

/// The most frequent value of a sorted list; the first of several.
pub(in crate::dialect) const MOST_FREQUENT: &str = "most_frequent";
/// The first value of a sorted list at or after a fraction of it.
pub(in crate::dialect) const DISCRETE_PERCENTILE: &str = "discrete_percentile";
/// The list, or an empty one for NULL.
pub(in crate::dialect) const LIST_OR_EMPTY: &str = "list_or_empty";

pub(super) fn most_frequent() -> Arc<ScalarUDF> {
    let takes = |given: &[DataType]| match given {
        [DataType::List(_)] => Some(given.to_vec()),
        _ => None,
    };
    row_function(MOST_FREQUENT, takes, item_type, |args| {
        let [lists] = take_function_args(MOST_FREQUENT, args)?;
        chosen(lists, |_, list, present| {
            // Equal values are adjacent.
            let mut best: Option<(usize, usize)> = None;
            let mut start = 0;
            let data = list.to_data();
            for end in 1..=present.len() {
                let is_same = end < present.len() && {
                    let (one, other) = (present[start], present[end]);
                    data.slice(one, 1) == data.slice(other, 1)
                };
                if !is_same {
                    let count = end - start;
                    if best.is_none_or(|(most, _)| count > most) {
                        best = Some((count, present[start]));
                    }
                    start = end;
                }
            }
            Ok(best.map(|(_, place)| place))
        })
    })
}

pub(super) fn discrete_percentile() -> Arc<ScalarUDF> {
    let takes = |given: &[DataType]| match given {
        [DataType::List(_), fraction] if fraction.is_numeric() || fraction.is_null() => {
            Some(vec![given.first()?.clone(), DataType::Float64])
        }
        _ => None,
    };
    row_function(DISCRETE_PERCENTILE, takes, item_type, |args| {
        let [lists, fractions] = take_function_args(DISCRETE_PERCENTILE, args)?;
        let fractions = fractions.as_primitive::<Float64Type>();
        chosen(lists, |row, _, present| {
            if fractions.is_null(row) {
                return Ok(None);
            }
            let fraction = fractions.value(row);
            if !(0.0..=1.0).contains(&fraction) {
                let reason = format!("percentile value {fraction} is not between 0 and 1");
                return Err(ArgumentFault::OutOfRange { reason }.into());
            }
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "of a length, by at most one"
            )]
            let place = (fraction * present.len() as f64).ceil() as usize;
            Ok(present.get(place.saturating_sub(1)).copied())
        })
    })
}

pub(super) fn list_or_empty() -> Arc<ScalarUDF> {
    let takes = |given: &[DataType]| match given {
        [DataType::List(_)] => Some(given.to_vec()),
        _ => None,
    };
    let gives = |given: &[DataType]| given.first().cloned().unwrap_or(DataType::Null);
    row_function(LIST_OR_EMPTY, takes, gives, |args| {
        let [lists] = take_function_args(LIST_OR_EMPTY, args)?;
        let lists = lists.as_list::<i32>();
        let DataType::List(item) = lists.data_type() else { return Ok(Arc::new(lists.clone())) };
        // The values under a NULL list are not its content.
        let places: Vec<u64> = (0..lists.len())
            .filter(|row| lists.is_valid(*row))
            .flat_map(|row| {
                let offsets = lists.value_offsets();
                let bound = |row: usize| {
                    offsets.get(row).and_then(|bound| u64::try_from(*bound).ok()).unwrap_or(0)
                };
                bound(row)..bound(row + 1)
            })
            .collect();
        let values = take(lists.values(), &UInt64Array::from(places), None)?;
        let lengths = (0..lists.len()).map(|row| match lists.is_valid(row) {
            true => usize::try_from(lists.value_length(row)).unwrap_or(0),
            false => 0,
        });
        let offsets = OffsetBuffer::from_lengths(lengths);
        Ok(Arc::new(ListArray::try_new(Arc::clone(item), offsets, values, None)?))
    })
}

/// The list with its items in order.
pub(in crate::dialect) const SORTED_LIST: &str = "sorted_list";

/// `sorted_list(list, descending, nulls_first)`, whose last arguments are the same for all rows.
pub(super) fn sorted_list() -> Arc<ScalarUDF> {
    let takes = |given: &[DataType]| match given {
        [DataType::List(_), DataType::Boolean, DataType::Boolean] => Some(given.to_vec()),
        _ => None,
    };
    let gives = |given: &[DataType]| given.first().cloned().unwrap_or(DataType::Null);
    row_function(SORTED_LIST, takes, gives, |args| {
        let [lists, descending, nulls_first] = take_function_args(SORTED_LIST, args)?;
        let is_set = |option: &ArrayRef| !option.is_empty() && option.as_boolean().value(0);
        let (descending, nulls_first) = (is_set(descending), is_set(nulls_first));
        let options = Some(SortOptions { descending, nulls_first });
        let lists = lists.as_list::<i32>();
        let keys = match lists.values().as_primitive_opt::<IntervalMonthDayNanoType>() {
            // By their length.
            Some(intervals) => Arc::new(unary::<_, _, Decimal128Type>(intervals, span)) as ArrayRef,
            None => Arc::clone(lists.values()),
        };
        let mut places: Vec<u64> = Vec::with_capacity(keys.len());
        let mut lengths = Vec::with_capacity(lists.len());
        for (row, bounds) in lists.value_offsets().windows(2).enumerate() {
            let (&[from, to], true) = (bounds, lists.is_valid(row)) else {
                lengths.push(0);
                continue;
            };
            let (from, to) = (usize::try_from(from).unwrap_or(0), usize::try_from(to).unwrap_or(0));
            let order = sort_to_indices(&keys.slice(from, to - from), options, None)?;
            places.extend(order.values().iter().map(|place| from as u64 + u64::from(*place)));
            lengths.push(to - from);
        }
        let values = take(lists.values(), &UInt64Array::from(places), None)?;
        let DataType::List(item) = lists.data_type() else { return Ok(Arc::new(lists.clone())) };
        let offsets = OffsetBuffer::from_lengths(lengths);
        let nulls = lists.nulls().cloned();
        Ok(Arc::new(ListArray::try_new(Arc::clone(item), offsets, values, nulls)?))
    })
}

/// The texts of a list with a delimiter between them, without NULLs; NULL if there is none.
pub(in crate::dialect) const JOINED_LIST: &str = "joined_list";

/// `joined_list(list, delimiter)`.
pub(super) fn joined_list() -> Arc<ScalarUDF> {
    let takes = |given: &[DataType]| match given {
        [DataType::List(item), delimiter]
            if item.data_type().is_string() && (delimiter.is_string() || delimiter.is_null()) =>
        {
            let item = Field::new_list_field(DataType::Utf8, true);
            Some(vec![DataType::List(Arc::new(item)), DataType::Utf8])
        }
        _ => None,
    };
    row_function(
        JOINED_LIST,
        takes,
        |_| DataType::Utf8,
        |args| {
            let [lists, delimiters] = take_function_args(JOINED_LIST, args)?;
            let (lists, delimiters) = (lists.as_list::<i32>(), delimiters.as_string::<i32>());
            let mut bytes = 0;
            let joined = (0..lists.len()).map(|row| {
                if lists.is_null(row) {
                    return Ok(None);
                }
                let items = lists.value(row);
                let texts: Vec<&str> = items.as_string::<i32>().iter().flatten().collect();
                let delimiter = if delimiters.is_valid(row) { delimiters.value(row) } else { "" };
                bytes += texts.iter().map(|text| text.len() + delimiter.len()).sum::<usize>();
                check_size("string_agg", bytes)?;
                Ok((!texts.is_empty()).then(|| texts.join(delimiter)))
            });
            Ok(Arc::new(joined.collect::<Result<StringArray>>()?))
        },
    )
}

fn item_type(given: &[DataType]) -> DataType {
    match given {
        [DataType::List(item), ..] => item.data_type().clone(),
        _ => DataType::Null,
    }
}

/// For each list, the value at the place that `choose` computes from the row, the list and the places that are not
/// NULL.
fn chosen(
    lists: &ArrayRef,
    choose: impl Fn(usize, &ArrayRef, &[usize]) -> Result<Option<usize>>,
) -> Result<ArrayRef> {
    let lists = lists.as_list::<i32>();
    let place = |row: usize| -> Result<Option<u64>> {
        if lists.is_null(row) {
            return Ok(None);
        }
        let list = lists.value(row);
        let present: Vec<usize> = (0..list.len()).filter(|item| list.is_valid(*item)).collect();
        let start = lists.value_offsets().get(row).copied().unwrap_or_default();
        let start = u64::try_from(start).unwrap_or_default();
        Ok(choose(row, &list, &present)?.map(|item| start + item as u64))
    };
    let places = (0..lists.len()).map(place).collect::<Result<UInt64Array>>()?;
    Ok(take(lists.values(), &places, None)?)
}
