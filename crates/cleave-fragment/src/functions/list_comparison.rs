//! `x < ANY (list)` and `x < ALL (list)`, for each operator that compares, with three truth values:
//!
//! ```text
//!  any_item(x, '<', list)   true if it is true of an item, else NULL if it is NULL of one, else false
//!  all_items(x, '<', list)  false if it is false of an item, else NULL if it is NULL of one, else true
//! ```
//!
//! It is NULL of an item that is NULL, and of all where `x` is. `= ANY` and `<> ALL` of items that are known become IN
//! and NOT IN, which other rules know. Lists of lists are taken for one list of all items.

use std::cmp::Ordering;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, make_comparator};
use arrow::compute::SortOptions;
use arrow::datatypes::{DataType, Field, Float32Type, Float64Type};
use datafusion_common::utils::take_function_args;
use datafusion_common::{Result, ScalarValue, exec_err, plan_err};
use datafusion_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion_expr::type_coercion::binary::comparison_coercion;
use datafusion_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
    in_list, lit,
};

/// The name of the function for ANY.
pub const ANY_ITEM: &str = "any_item";
/// The name of the function for ALL.
pub const ALL_ITEMS: &str = "all_items";

/// Both functions.
pub(super) fn list_comparisons() -> [Arc<ScalarUDF>; 2] {
    [ANY_ITEM, ALL_ITEMS].map(|name| {
        let signature = Signature::user_defined(Volatility::Immutable);
        Arc::new(ScalarUDF::new_from_impl(ListComparison { name, signature }))
    })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct ListComparison {
    name: &'static str,
    signature: Signature,
}

impl ListComparison {
    fn is_all(&self) -> bool {
        self.name == ALL_ITEMS
    }
}

impl ScalarUDFImpl for ListComparison {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _types: &[DataType]) -> Result<DataType> {
        Ok(DataType::Boolean)
    }

    fn coerce_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        let [value, operator, list] = given else {
            return plan_err!("{} takes a value, an operator and a list", self.name);
        };
        let item = match list {
            DataType::Null => value.clone(),
            list => {
                let item = item_of(list);
                if item == list {
                    return plan_err!("op ANY/ALL (array) requires array on right side");
                }
                item.clone()
            }
        };
        // What is text beside another type is a literal in quotes.
        let common = match (value.is_string(), item.is_string()) {
            (true, false) if !item.is_null() => Some(item),
            (false, true) if !value.is_null() => Some(value.clone()),
            _ => comparison_coercion(value, &item),
        };
        let Some(common) = common else {
            return plan_err!("{} of {value} and {list}", self.name);
        };
        let list = match list {
            DataType::Null => DataType::List(Arc::new(Field::new_list_field(common.clone(), true))),
            list => with_item(list, &common),
        };
        Ok(vec![common, operator.clone(), list])
    }

    fn simplify(&self, args: Vec<Expr>, _info: &SimplifyContext) -> Result<ExprSimplifyResult> {
        let [value, operator, list] = args.as_slice() else {
            return Ok(ExprSimplifyResult::Original(args));
        };
        let wanted = if self.is_all() { "<>" } else { "=" };
        if !matches!(operator, Expr::Literal(given, _) if given.try_as_str() == Some(Some(wanted)))
        {
            return Ok(ExprSimplifyResult::Original(args));
        }
        let items = match list {
            Expr::Literal(list, _) if list.is_null() => {
                return Ok(ExprSimplifyResult::Simplified(lit(ScalarValue::Boolean(None))));
            }
            Expr::Literal(ScalarValue::List(list), _) if list.len() == 1 => {
                let items = list.value(0);
                if matches!(items.data_type(), DataType::List(_)) {
                    return Ok(ExprSimplifyResult::Original(args));
                }
                let items =
                    (0..items.len()).map(|place| ScalarValue::try_from_array(&items, place));
                items.map(|item| Ok(lit(item?))).collect::<Result<Vec<_>>>()?
            }
            Expr::ScalarFunction(call) if is_written_out(call) => call.args.clone(),
            _ => return Ok(ExprSimplifyResult::Original(args)),
        };
        let condition = in_list(value.clone(), items, self.is_all());
        Ok(ExprSimplifyResult::Simplified(condition))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let is_constant = args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
        let rows = if is_constant { 1 } else { args.number_rows };
        let [value, operator, list] = take_function_args(self.name, args.args)?;
        let ColumnarValue::Scalar(operator) = operator else {
            return exec_err!("{} takes one operator", self.name);
        };
        let holds: fn(Ordering) -> bool = match operator.try_as_str().flatten() {
            Some("=") => Ordering::is_eq,
            Some("<>") => Ordering::is_ne,
            Some("<") => Ordering::is_lt,
            Some("<=") => Ordering::is_le,
            Some(">") => Ordering::is_gt,
            Some(">=") => Ordering::is_ge,
            _ => return exec_err!("{} has no operator {operator}", self.name),
        };
        let (values, lists) = (Rows::of(value)?, Rows::of(list)?);
        let items = Items::of(&lists.array)?;
        let order = make_comparator(
            &comparable(&values.array),
            &comparable(&items.values),
            SortOptions::default(),
        )?;
        // What decides alone, and what is left if nothing does.
        let decides = !self.is_all();
        let result: BooleanArray = (0..rows)
            .map(|row| {
                let (value, list) = (values.place(row), lists.place(row));
                let places = items.places(list)?;
                let mut is_known = true;
                for place in places {
                    if values.array.is_null(value) || items.values.is_null(place) {
                        is_known = false;
                    } else if holds(order(value, place)) == decides {
                        return Some(decides);
                    }
                }
                is_known.then_some(!decides)
            })
            .collect();
        Ok(match is_constant {
            true => ColumnarValue::Scalar(ScalarValue::try_from_array(&result, 0)?),
            false => ColumnarValue::Array(Arc::new(result)),
        })
    }
}

/// An argument: one value for all rows, or one for each.
struct Rows {
    array: ArrayRef,
    is_one: bool,
}

impl Rows {
    fn of(argument: ColumnarValue) -> Result<Self> {
        Ok(match argument {
            ColumnarValue::Scalar(value) => Self { array: value.to_array()?, is_one: true },
            ColumnarValue::Array(array) => Self { array, is_one: false },
        })
    }

    fn place(&self, row: usize) -> usize {
        if self.is_one { 0 } else { row }
    }
}

/// The items of lists, and of the lists in them.
struct Items {
    /// From outside to inside.
    levels: Vec<ArrayRef>,
    values: ArrayRef,
}

impl Items {
    fn of(lists: &ArrayRef) -> Result<Self> {
        let (mut levels, mut values) = (Vec::new(), Arc::clone(lists));
        while let Some(list) = Arc::clone(&values).as_list_opt::<i32>() {
            levels.push(Arc::clone(&values));
            values = Arc::clone(list.values());
        }
        if levels.is_empty() {
            return exec_err!("{} is no list", lists.data_type());
        }
        Ok(Self { levels, values })
    }

    /// The places of all items of one list; None: it is NULL.
    fn places(&self, list: usize) -> Option<std::ops::Range<usize>> {
        let (mut from, mut to) = (list, list + 1);
        for (depth, level) in self.levels.iter().enumerate() {
            let lists = level.as_list::<i32>();
            if depth == 0 && lists.is_null(list) {
                return None;
            }
            let bound = |place: usize| {
                let bound = lists.value_offsets().get(place).copied().unwrap_or_default();
                usize::try_from(bound).unwrap_or(0)
            };
            (from, to) = (bound(from), bound(to));
        }
        Some(from..to)
    }
}

/// Zeros without a sign, which are equal.
fn comparable(values: &ArrayRef) -> ArrayRef {
    if let Some(doubles) = values.as_primitive_opt::<Float64Type>() {
        return Arc::new(doubles.unary::<_, Float64Type>(|own| own + 0.0));
    }
    if let Some(reals) = values.as_primitive_opt::<Float32Type>() {
        return Arc::new(reals.unary::<_, Float32Type>(|own| own + 0.0));
    }
    Arc::clone(values)
}

/// The type of the items of a list, or of a list of lists.
fn item_of(list: &DataType) -> &DataType {
    match list {
        DataType::List(item) => item_of(item.data_type()),
        item => item,
    }
}

fn with_item(list: &DataType, item: &DataType) -> DataType {
    match list {
        DataType::List(inner) => {
            let item = with_item(inner.data_type(), item);
            DataType::List(Arc::new(Field::new_list_field(item, true)))
        }
        _ => item.clone(),
    }
}

/// Whether `call` is a list that is written out, and no list of lists.
fn is_written_out(call: &datafusion_expr::expr::ScalarFunction) -> bool {
    let is_list = |part: &Expr| match part {
        Expr::ScalarFunction(call) => call.func.name() == "make_array",
        Expr::Literal(value, _) => matches!(value, ScalarValue::List(_)),
        Expr::Column(_) | Expr::Cast(_) => true,
        _ => false,
    };
    // A column might be a list.
    call.func.name() == "make_array" && !call.args.is_empty() && !call.args.iter().any(is_list)
}

#[cfg(test)]
mod tests;
