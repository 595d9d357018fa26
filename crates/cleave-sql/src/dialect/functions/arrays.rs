//! Lists with PostgreSQL's meaning, where DataFusion's functions have another: NULLs among the items, subscripts
//! outside of a list, and texts that are read as lists.
//!
//! 1. `array_has_all`, `array_has_any`: `@>`, `<@` and `&&`, which no NULL fulfils.
//! 2. [`list_order`]: a comparison, in which NULL is the greatest item.
//! 3. `array_remove` and `array_replace` of all items that are a value, or NULL.
//! 4. [`list_read`]: a text as a list, at run time.
//! 5. [`list_spans`]: intervals as their lengths, by which they compare.
//!
//! Subscripts and lists of several dimensions are in [`dimensions`](super::dimensions).
//!
//! Source: PostgreSQL's arrayfuncs.c.

use std::cmp::Ordering;
use std::sync::Arc;

use cleave_catalog::error::Error;
use cleave_catalog::value::{ColumnBuilder, list};
use cleave_fragment::functions::{ArgumentFault, row_function, span};
use cleave_fragment::wanted;
use cleave_store::ColumnType;
use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, DynComparator, Int32Array, ListArray, StringArray,
    UInt64Array, make_comparator,
};
use datafusion::arrow::buffer::OffsetBuffer;
use datafusion::arrow::compute::kernels::arity::unary;
use datafusion::arrow::compute::{SortOptions, cast, concat, take};
use datafusion::arrow::datatypes::{
    DECIMAL128_MAX_PRECISION, DataType, Decimal128Type, Field, Float32Type, Float64Type,
    IntervalMonthDayNanoType,
};
use datafusion::common::utils::take_function_args;
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::ScalarUDF;

use super::check_size;
use super::dimensions::innermost;
use crate::dialect::operand_types::common;
use crate::dialect::typed_literals::{column_type_of, is_text};

/// NULL is greater than any item.
const OPTIONS: SortOptions = SortOptions { descending: false, nulls_first: false };

/// The type of the lengths of intervals, which are whole numbers.
const SPAN: DataType = DataType::Decimal128(DECIMAL128_MAX_PRECISION, 0);

fn list_of(item: DataType) -> DataType {
    DataType::List(Arc::new(Field::new_list_field(item, true)))
}

/// The common type of items of both types.
fn common_item(one: &DataType, other: &DataType) -> Option<DataType> {
    let parts = [one, other].map(|own| (false, own.clone()));
    match common("ARRAY", parts) {
        Ok(None) => Some(one.clone()),
        Ok(common) => common,
        Err(_) => None,
    }
}

/// The types for two lists; a text is read as the other one.
fn two_lists(given: &[DataType]) -> Option<Vec<DataType>> {
    Some(match given {
        [DataType::List(one), DataType::List(other)] => {
            let common = list_of(common_item(one.data_type(), other.data_type())?);
            vec![common.clone(), common]
        }
        [DataType::List(_), DataType::Null] => vec![given.first()?.clone(), given.first()?.clone()],
        [DataType::Null, DataType::List(_)] => vec![given.last()?.clone(), given.last()?.clone()],
        [own @ DataType::List(_), text] if is_text(text) => vec![own.clone(), DataType::Utf8],
        [text, own @ DataType::List(_)] if is_text(text) => vec![DataType::Utf8, own.clone()],
        _ => return None,
    })
}

/// The types for a list and such items.
fn list_and_items(given: &[DataType]) -> Option<Vec<DataType>> {
    let [list, items @ ..] = given else { return None };
    let own = match list {
        DataType::List(item) => item.data_type().clone(),
        DataType::Null => DataType::Null,
        _ => return None,
    };
    // A literal in quotes takes the type of the items.
    let known = items.iter().filter(|item| !is_text(item) || is_text(&own) || own.is_null());
    let common = known.clone().try_fold(own.clone(), |own, item| common_item(&own, item))?;
    let others = items.iter().map(|_| common.clone());
    Some(std::iter::once(list_of(common.clone())).chain(others).collect())
}

fn first(given: &[DataType]) -> DataType {
    given.first().cloned().unwrap_or(DataType::Null)
}

/// Both arguments as lists.
fn as_lists(name: &str, args: &[ArrayRef]) -> Result<(ListArray, ListArray)> {
    let [one, other] = take_function_args(name, args)?;
    let read = |text: &ArrayRef, like: &ArrayRef| match text.data_type() {
        DataType::List(_) => Ok(text.as_list::<i32>().clone()),
        _ => read_lists(text.as_string(), like.data_type()),
    };
    Ok((read(one, other)?, read(other, one)?))
}

/// The places of the items of a list.
pub(super) fn places(lists: &ListArray, row: usize) -> std::ops::Range<usize> {
    let bound = |row: usize| {
        let bound = lists.value_offsets().get(row).copied().unwrap_or_default();
        usize::try_from(bound).unwrap_or(0)
    };
    bound(row)..bound(row + 1)
}

/// Items as they compare: intervals by their length, and zeros without a sign.
fn comparable(items: &ArrayRef) -> ArrayRef {
    if let Some(intervals) = items.as_primitive_opt::<IntervalMonthDayNanoType>() {
        let spans = unary::<_, _, Decimal128Type>(intervals, span);
        return Arc::new(spans.with_data_type(SPAN));
    }
    if let Some(doubles) = items.as_primitive_opt::<Float64Type>() {
        return Arc::new(unary::<_, _, Float64Type>(doubles, |own| own + 0.0));
    }
    if let Some(reals) = items.as_primitive_opt::<Float32Type>() {
        return Arc::new(unary::<_, _, Float32Type>(reals, |own| own + 0.0));
    }
    Arc::clone(items)
}

fn comparator(one: &ArrayRef, other: &ArrayRef) -> Result<DynComparator> {
    Ok(make_comparator(&comparable(one), &comparable(other), OPTIONS)?)
}

/// Lists of the items of `values` at these places.
pub(super) fn rebuilt(
    own: &DataType,
    values: &ArrayRef,
    rows: impl Iterator<Item = Result<Option<Vec<usize>>>>,
) -> Result<ArrayRef> {
    let DataType::List(item) = own else {
        return Err(DataFusionError::Internal(format!("{own} is no list")));
    };
    let (mut taken, mut lengths, mut is_list) = (Vec::new(), Vec::new(), Vec::new());
    for row in rows {
        let row = row?;
        is_list.push(row.is_some());
        let row = row.unwrap_or_default();
        lengths.push(row.len());
        taken.extend(row.into_iter().map(|place| place as u64));
    }
    let values = take(values, &UInt64Array::from(taken), None)?;
    let (offsets, nulls) = (OffsetBuffer::from_lengths(lengths), Some(is_list.into()));
    Ok(Arc::new(ListArray::try_new(Arc::clone(item), offsets, values, nulls)?))
}

/// `array_has_all(list, items)`: whether the list has each of the items.
pub(in crate::dialect) fn array_has_all() -> Arc<ScalarUDF> {
    row_function(
        "array_has_all",
        two_lists,
        |_| DataType::Boolean,
        |args| {
            has("array_has_all", args, |own, others, is_equal| {
                let has = |other| try_any(own.clone(), |item| is_equal(item, other));
                Ok(!try_any(others, |other| Ok(!has(other)?))?)
            })
        },
    )
}

/// `array_has_any(list, items)`: whether the list has one of the items.
pub(super) fn array_has_any() -> Arc<ScalarUDF> {
    row_function(
        "array_has_any",
        two_lists,
        |_| DataType::Boolean,
        |args| {
            has("array_has_any", args, |own, others, is_equal| {
                try_any(others, |other| try_any(own.clone(), |item| is_equal(item, other)))
            })
        },
    )
}

type Places = std::ops::Range<usize>;

/// What `holds` says of both lists of each row; no NULL equals anything.
fn has(
    name: &str,
    args: &[ArrayRef],
    holds: impl Fn(Places, Places, &dyn Fn(usize, usize) -> Result<bool>) -> Result<bool>,
) -> Result<ArrayRef> {
    let (lists, others) = as_lists(name, args)?;
    let (own, others_items) = (lists.values(), others.values());
    let order = comparator(own, others_items)?;
    let is_equal = |item: usize, other: usize| {
        // Lists may be long, and each item is compared with each other one.
        wanted::check()?;
        let is_known = own.is_valid(item) && others_items.is_valid(other);
        Ok(is_known && order(item, other) == Ordering::Equal)
    };
    let found = (0..lists.len()).map(|row| {
        let is_known = lists.is_valid(row) && others.is_valid(row);
        is_known.then(|| holds(places(&lists, row), places(&others, row), &is_equal)).transpose()
    });
    Ok(Arc::new(found.collect::<Result<BooleanArray>>()?))
}

/// Whether `is` holds for any of `places`.
fn try_any(
    places: impl IntoIterator<Item = usize>,
    is: impl Fn(usize) -> Result<bool>,
) -> Result<bool> {
    for place in places {
        if is(place)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// `list_order(one, other)`: negative, 0 or positive.
pub(in crate::dialect) fn list_order() -> Arc<ScalarUDF> {
    row_function(
        "list_order",
        two_lists,
        |_| DataType::Int32,
        |args| {
            let (lists, others) = as_lists("list_order", args)?;
            let order = comparator(lists.values(), others.values())?;
            let orders = (0..lists.len()).map(|row| {
                if lists.is_null(row) || others.is_null(row) {
                    return None;
                }
                let (own, other) = (places(&lists, row), places(&others, row));
                let lengths = own.len().cmp(&other.len());
                let mut items = own.zip(other).map(|(item, other)| order(item, other));
                let first = items.find(|order| order.is_ne()).unwrap_or(lengths);
                Some(first as i32)
            });
            Ok(Arc::new(orders.collect::<Int32Array>()))
        },
    )
}

/// `array_remove(list, value)`.
pub(super) fn array_remove() -> Arc<ScalarUDF> {
    let takes = |given: &[DataType]| (given.len() == 2).then(|| list_and_items(given)).flatten();
    row_function("array_remove", takes, first, |args| {
        let [lists, removed] = take_function_args("array_remove", args)?;
        of_one_dimension(lists, "removing elements from multidimensional arrays is not supported")?;
        let lists = lists.as_list::<i32>();
        let order = comparator(lists.values(), removed)?;
        let kept = (0..lists.len()).map(|row| {
            let is_kept = |place: &usize| order(*place, row).is_ne();
            Ok(lists.is_valid(row).then(|| places(lists, row).filter(is_kept).collect()))
        });
        rebuilt(lists.data_type(), lists.values(), kept)
    })
}

/// Refuses lists of several dimensions.
fn of_one_dimension(lists: &ArrayRef, reason: &str) -> Result<(), ArgumentFault> {
    match innermost(lists.data_type()).1 {
        2.. => Err(ArgumentFault::Unsupported { reason: reason.to_owned() }),
        _ => Ok(()),
    }
}

/// `array_replace(list, from, to)`.
pub(super) fn array_replace() -> Arc<ScalarUDF> {
    let takes = |given: &[DataType]| (given.len() == 3).then(|| list_and_items(given)).flatten();
    row_function("array_replace", takes, first, |args| {
        let [lists, from, to] = take_function_args("array_replace", args)?;
        of_one_dimension(lists, "replacing elements of multidimensional arrays is not supported")?;
        let lists = lists.as_list::<i32>();
        let order = comparator(lists.values(), from)?;
        let values = concat(&[lists.values().as_ref(), to.as_ref()])?;
        let own_count = lists.values().len();
        let replaced = (0..lists.len()).map(|row| {
            let new = |place: usize| match order(place, row) {
                Ordering::Equal => own_count + row,
                _ => place,
            };
            Ok(lists.is_valid(row).then(|| places(lists, row).map(new).collect()))
        });
        rebuilt(lists.data_type(), &values, replaced)
    })
}

/// `list_read(text, NULL::type)`: the text as a list of the type.
pub(in crate::dialect) fn list_read() -> Arc<ScalarUDF> {
    let takes = |given: &[DataType]| match given {
        [text, list @ DataType::List(_)] if is_text(text) || text.is_null() => {
            Some(vec![DataType::Utf8, list.clone()])
        }
        _ => None,
    };
    let gives = |given: &[DataType]| given.last().cloned().unwrap_or(DataType::Null);
    row_function("list_read", takes, gives, |args| {
        let [texts, like] = take_function_args("list_read", args)?;
        // Once types are settled, a text may come in another form.
        let texts = cast(texts, &DataType::Utf8)?;
        Ok(Arc::new(read_lists(texts.as_string(), like.data_type())?))
    })
}

/// Texts as lists of type `own`.
fn read_lists(texts: &StringArray, own: &DataType) -> Result<ListArray> {
    let DataType::List(item) = own else {
        return Err(DataFusionError::Internal(format!("{own} is no list")));
    };
    if matches!(item.data_type(), DataType::List(_)) {
        return Err(several_dimensions());
    }
    let column_type = column_type_of(item.data_type()).unwrap_or(ColumnType::Text);
    let mut items = ColumnBuilder::new(&column_type, texts.len());
    let mut lengths = Vec::with_capacity(texts.len());
    // An item also takes its slot in the list.
    let bytes = texts.iter().flatten().map(|text| text.len().saturating_mul(8)).sum();
    check_size("a cast to an array", bytes)?;
    for text in texts {
        let Some(text) = text else {
            lengths.push(0);
            continue;
        };
        let read = list::items(text).map_err(|_| malformed(text))?;
        lengths.push(read.len());
        for item in read {
            match item {
                Some(item) => items
                    .append_text(&item)
                    .map_err(|error| DataFusionError::from(Error::literal(error)))?,
                None => items.append_null(),
            }
        }
    }
    let values = cast(&items.finish(), item.data_type())?;
    let offsets = OffsetBuffer::from_lengths(lengths);
    let nulls = texts.nulls().cloned();
    Ok(ListArray::try_new(Arc::clone(item), offsets, values, nulls)?)
}

fn malformed(text: &str) -> DataFusionError {
    if list::nested(text).is_ok() {
        return several_dimensions();
    }
    let reason = format!("malformed array literal: \"{text}\"");
    ArgumentFault::Malformed { reason }.into()
}

fn several_dimensions() -> DataFusionError {
    Error::unsupported("an array literal of several dimensions").into()
}

/// `list_spans(list)`: the lengths of intervals.
pub(in crate::dialect) fn list_spans() -> Arc<ScalarUDF> {
    let takes = |given: &[DataType]| match given {
        [DataType::List(item)] if matches!(item.data_type(), DataType::Interval(_)) => {
            Some(given.to_vec())
        }
        _ => None,
    };
    let gives = |_: &[DataType]| list_of(SPAN);
    row_function("list_spans", takes, gives, |args| {
        let [lists] = take_function_args("list_spans", args)?;
        let lists = lists.as_list::<i32>();
        let item = Arc::new(Field::new_list_field(SPAN, true));
        let spans = comparable(lists.values());
        let (offsets, nulls) = (lists.offsets().clone(), lists.nulls().cloned());
        Ok(Arc::new(ListArray::try_new(item, offsets, spans, nulls)?))
    })
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Context, Poll, Waker};

    use datafusion::arrow::datatypes::Int32Type;
    use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs};

    use super::*;

    /// Whether a comparison of two lists of so many items looks at whether its result is wanted.
    fn looks(function: Arc<ScalarUDF>, count: i32) -> bool {
        let list = |numbers: std::ops::Range<i32>| {
            let rows = [Some(numbers.map(Some))];
            let list: ListArray = ListArray::from_iter_primitive::<Int32Type, _, _>(rows);
            ColumnarValue::Array(Arc::new(list))
        };
        let args = vec![list(0..count), list(count..2 * count)];
        let fields = args.iter().map(|arg| Arc::new(Field::new("a", arg.data_type(), true)));
        let call = ScalarFunctionArgs {
            arg_fields: fields.collect(),
            args,
            number_rows: 1,
            return_field: Arc::new(Field::new("r", DataType::Boolean, true)),
            config_options: Arc::default(),
        };
        let left = AtomicUsize::new(2);
        let is_over = move || left.fetch_sub(1, Ordering::Relaxed) == 1;
        let calling = wanted::until(is_over, async { function.invoke_with_args(call).is_err() });
        let mut context = Context::from_waker(Waker::noop());
        pin!(calling).poll(&mut context) == Poll::Ready(true)
    }

    #[test]
    fn long_lists_are_not_compared_for_nobody() {
        assert!(looks(array_has_any(), 100));
        assert!(!looks(array_has_any(), 2));
        assert!(looks(array_has_all(), 1000));
    }
}
