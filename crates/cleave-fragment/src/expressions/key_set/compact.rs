//! Rewrites a filter of DataFusion with its keys as sets of integers.
//!
//! 1. Lists of integers become a [`KeySetExpr`]; lists of keys of several columns become one for each column that the
//!    rows have.
//! 2. A look-up in a join's hash table has no wire form. If bounds beside it say that its keys lie close together, the
//!    table is probed with each integer between them: [`tabulated`].
//! 3. A set that a join has filled in stays if it is [short enough](is_sent).
//! 4. A condition that is still too long, works on this side only, or asks for an [absent key](has_absent_key), becomes
//!    true. So does a list of a join's keys that are doubles: lists compare bits, and joins take both zeros for one.
//!
//! Invariant: the result is true wherever the original filter is.

use crate::walk::Walk;
use std::sync::Arc;

use arrow::array::{ArrayRef, Date32Array, Int16Array, Int32Array, Int64Array, RecordBatch};
use arrow::buffer::BooleanBuffer;
use arrow::datatypes::{DataType, Field, Schema};
use cleave_store::IntegerSet;
use datafusion_common::cast::as_boolean_array;
use datafusion_common::{Result, ScalarValue};
use datafusion_expr::Operator;
use datafusion_physical_expr::expressions::{BinaryExpr, Column, InListExpr, Literal};
use datafusion_physical_expr::{PhysicalExpr, ScalarFunctionExpr, conjunction, split_conjunction};
use datafusion_physical_plan::joins::HashTableLookupExpr;

use super::{KEY_LIST_COUNT_MAX, KeySetExpr};
use crate::expressions::absent_key::has_absent_key;

/// A list of this many values is left as it is: zone maps understand it.
const LIST_COUNT_SMALL: usize = 16;
/// A longer list of other values is not worth its bytes.
pub(crate) const LIST_COUNT_MAX: usize = 512;
/// Integers that a hash table is probed with to find the keys to send: some milliseconds.
const SENT_SPAN_MAX: u64 = 1 << 20;
/// Keys that are sent if they lie so close together.
const SENT_COUNT_MAX: usize = 1 << 17;
/// Integers that a hash table is probed with at once.
const ASKED_AT_ONCE: usize = 8192;

/// Rewrites `filter` with its lists of keys in their smallest form.
///
/// # Errors
/// None that a filter of DataFusion can cause.
pub fn compact_keys(filter: Arc<dyn PhysicalExpr>) -> Result<Arc<dyn PhysicalExpr>> {
    let parts = split_conjunction(&filter);
    if let [_] = parts[..] {
        return compact_part(&filter);
    }
    let mut compacted = Vec::with_capacity(parts.len());
    for part in &parts {
        let part = match sent_keys(part, &parts)? {
            Some(set) => set,
            None => compact_part(part)?,
        };
        if !is_always(&part) {
            compacted.push(part);
        }
    }
    Ok(conjunction(compacted))
}

/// How many keys `filter`, a result of [`compact_keys`], lets through; `None` if that is unknown.
pub fn key_count(filter: &Arc<dyn PhysicalExpr>) -> Option<usize> {
    let counts = split_conjunction(filter).into_iter().filter_map(|part| {
        if let Some(set) = part.downcast_ref::<KeySetExpr>() {
            return Some(set.keys().len());
        }
        if let Some(literal) = part.downcast_ref::<Literal>() {
            let is_never = *literal.value() == ScalarValue::Boolean(Some(false));
            return is_never.then_some(0);
        }
        part.downcast_ref::<InListExpr>().filter(|list| !list.negated()).map(InListExpr::len)
    });
    counts.min()
}

/// Whether a join's filter still lists its keys, of `part_count` parts, after [`compact_keys`]: sets for each part do
/// not tell which parts belong together.
pub fn lists_keys(filter: &Arc<dyn PhysicalExpr>, part_count: usize) -> bool {
    split_conjunction(filter).iter().any(|part| {
        if let Some(list) = part.downcast_ref::<InListExpr>() {
            return !list.negated();
        }
        part.is::<KeySetExpr>() && part_count == 1
    })
}

/// One condition of a filter.
fn compact_part(part: &Arc<dyn PhysicalExpr>) -> Result<Arc<dyn PhysicalExpr>> {
    if let Some(compact) = part.downcast_ref::<InListExpr>().and_then(compact_list) {
        return Ok(compact);
    }
    // Only for operators where weakening a part cannot strengthen the whole.
    if let Some(binary) = part.downcast_ref::<BinaryExpr>()
        && *binary.op() == Operator::Or
    {
        let left = compact_keys(Arc::clone(binary.left()))?;
        let right = compact_keys(Arc::clone(binary.right()))?;
        return Ok(Arc::new(BinaryExpr::new(left, Operator::Or, right)));
    }
    let is_lost = compares_bits(part)
        || part.downcast_ref::<KeySetExpr>().is_some_and(|set| !is_sent(set.keys()))
        || part.exists(|expr| Ok(expr.is::<HashTableLookupExpr>()))?
        || has_absent_key(part);
    Ok(if is_lost { always() } else { Arc::clone(part) })
}

/// Whether `part` is a list of doubles, or of keys with one.
pub(crate) fn compares_bits(part: &Arc<dyn PhysicalExpr>) -> bool {
    let Some(list) = part.downcast_ref::<InListExpr>() else { return false };
    list.list().iter().any(|item| match item.downcast_ref::<Literal>().map(Literal::value) {
        Some(ScalarValue::Float32(_) | ScalarValue::Float64(_)) => true,
        Some(ScalarValue::Struct(row)) => {
            row.columns().iter().any(|column| column.data_type().is_floating())
        }
        _ => false,
    })
}

fn always() -> Arc<dyn PhysicalExpr> {
    Arc::new(Literal::new(ScalarValue::Boolean(Some(true))))
}

/// Whether `expr` is the literal true.
pub(crate) fn is_always(expr: &Arc<dyn PhysicalExpr>) -> bool {
    let value = expr.downcast_ref::<Literal>().map(Literal::value);
    value == Some(&ScalarValue::Boolean(Some(true)))
}

/// The replacement of `list`; `None` if it stays.
fn compact_list(list: &InListExpr) -> Option<Arc<dyn PhysicalExpr>> {
    let lacks_keys = has_absent_key(list.expr());
    if list.negated() || list.len() <= LIST_COUNT_SMALL && !lacks_keys {
        return None;
    }
    let values: Option<Vec<&ScalarValue>> =
        list.list().iter().map(|item| item.downcast_ref::<Literal>().map(Literal::value)).collect();
    let values = values?;
    if let Some(function) = list.expr().downcast_ref::<ScalarFunctionExpr>()
        && function.name() == "struct"
    {
        let columns = function.args().iter().enumerate();
        let sets =
            columns.filter(|(_, column)| !has_absent_key(column)).filter_map(|(place, column)| {
                let keys: Option<Vec<i64>> = values
                    .iter()
                    .map(|value| match value {
                        ScalarValue::Struct(row) => integer(
                            &ScalarValue::try_from_array(row.columns().get(place)?, 0).ok()?,
                        ),
                        _ => None,
                    })
                    .collect();
                Some(KeySetExpr::over(Arc::clone(column), keys?))
            });
        return Some(conjunction(sets));
    }
    if lacks_keys {
        return None;
    }
    match integers_in(list) {
        Some(keys) if keys.is_empty() => None,
        Some(keys) => Some(KeySetExpr::over(Arc::clone(list.expr()), keys)),
        None if list.len() > LIST_COUNT_MAX => Some(always()),
        None => None,
    }
}

/// The integers that `list` looks for, without NULL, which nothing equals; `None` if it is no such list.
pub(crate) fn integers_in(list: &InListExpr) -> Option<Vec<i64>> {
    let values = list.list().iter().map(|item| item.downcast_ref::<Literal>().map(Literal::value));
    let keys = values.filter(|value| value.is_none_or(|value| !value.is_null()));
    let keys: Option<Vec<i64>> = keys.map(|value| integer(value?)).collect();
    keys.filter(|_| !list.negated())
}

/// The integer `value`, or the day number of a date.
pub(crate) fn integer(value: &ScalarValue) -> Option<i64> {
    match value {
        ScalarValue::Int16(value) => value.map(i64::from),
        ScalarValue::Int32(value) | ScalarValue::Date32(value) => value.map(i64::from),
        ScalarValue::Int64(value) => *value,
        _ => None,
    }
}

/// The keys that `part` looks up in a hash table, if there are few enough and the table gives them.
fn sent_keys(
    part: &Arc<dyn PhysicalExpr>,
    parts: &[&Arc<dyn PhysicalExpr>],
) -> Result<Option<Arc<dyn PhysicalExpr>>> {
    let Some(bounds) = KeyBounds::of_look_up(part, parts).filter(|b| b.span() < SENT_SPAN_MAX)
    else {
        return Ok(None);
    };
    let operand = Arc::clone(part.children().first().copied().unwrap_or(part));
    let schema = Schema::new(vec![Field::new("key", bounds.data_type.clone(), true)]);
    let schema = Arc::new(schema);
    let look_up = Arc::clone(part).with_new_children(vec![Arc::new(Column::new("key", 0))])?;
    let set = tabulated(&bounds, |keys| {
        let row_count = keys.len();
        let batch = RecordBatch::try_new(Arc::clone(&schema), vec![keys])?;
        let answers = look_up.evaluate(&batch)?.into_array(row_count)?;
        Ok(as_boolean_array(&answers)?.values().clone())
    })?;
    let keys = set.keys().unwrap_or_default();
    Ok(are_sent_dense(&keys, bounds.span()).then(|| KeySetExpr::over(operand, keys)))
}

/// Whether so many ascending keys are worth their bytes on a link.
fn is_sent(keys: &[i64]) -> bool {
    let span = keys.first().zip(keys.last()).map_or(0, |(first, last)| last.abs_diff(*first));
    keys.len() <= KEY_LIST_COUNT_MAX || span < SENT_SPAN_MAX && are_sent_dense(keys, span)
}

/// Whether so many keys that lie close together are sent. If nearly all integers between their bounds are keys, the
/// bounds alone do nearly as much.
fn are_sent_dense(keys: &[i64], span: u64) -> bool {
    keys.len() <= SENT_COUNT_MAX && (keys.len() as u64) < span / 8 * 7
}

/// The bounds of the keys of a look-up.
#[derive(Debug, Clone)]
pub(crate) struct KeyBounds {
    first: i64,
    last: i64,
    data_type: DataType,
}

impl KeyBounds {
    /// The bounds of `part`, if it looks up one value in a hash table and other `parts` bound this value.
    pub(crate) fn of_look_up(
        part: &Arc<dyn PhysicalExpr>,
        parts: &[&Arc<dyn PhysicalExpr>],
    ) -> Option<Self> {
        let look_up = part.downcast_ref::<HashTableLookupExpr>()?;
        let [operand] = look_up.children()[..] else { return None };
        let bound = |wanted: Operator| {
            parts.iter().find_map(|part| {
                let (bounded, operator, value) = comparison(part)?;
                (operator == wanted && bounded == operand).then_some(value)
            })
        };
        let (first, last) = (bound(Operator::GtEq)?, bound(Operator::LtEq)?);
        let data_type = first.data_type();
        let bounds = Self { first: integer(first)?, last: integer(last)?, data_type };
        (bounds.first <= bounds.last && last.data_type() == bounds.data_type).then_some(bounds)
    }

    /// The distance from the first to the last.
    pub(crate) fn span(&self) -> u64 {
        self.last.abs_diff(self.first)
    }

    /// Whether every integer between them satisfies the comparison with `value`.
    fn satisfy(&self, operator: Operator, value: i64) -> bool {
        match operator {
            Operator::Lt => self.last < value,
            Operator::LtEq => self.last <= value,
            Operator::Gt => self.first > value,
            Operator::GtEq => self.first >= value,
            _ => false,
        }
    }
}

/// The operand, operator and literal of the comparison `part`.
fn comparison(
    part: &Arc<dyn PhysicalExpr>,
) -> Option<(&Arc<dyn PhysicalExpr>, Operator, &ScalarValue)> {
    let binary = part.downcast_ref::<BinaryExpr>()?;
    let value = binary.right().downcast_ref::<Literal>()?.value();
    Some((binary.left(), *binary.op(), value))
}

/// Whether all keys of some set among `parts` satisfy `part`, which then adds nothing.
pub(crate) fn is_implied<'a>(
    part: &Arc<dyn PhysicalExpr>,
    parts: impl IntoIterator<Item = &'a Arc<dyn PhysicalExpr>>,
) -> bool {
    let Some((operand, operator, value)) = comparison(part) else { return false };
    let Some(value) = integer(value) else { return false };
    parts.into_iter().any(|other| {
        ends_of(other, operand).is_some_and(|(first, last)| {
            let data_type = DataType::Int64;
            KeyBounds { first, last, data_type }.satisfy(operator, value)
        })
    })
}

/// The least and greatest of the keys that `part` looks for `operand` among, if it is such a look-up.
fn ends_of(part: &Arc<dyn PhysicalExpr>, operand: &Arc<dyn PhysicalExpr>) -> Option<(i64, i64)> {
    if let Some(set) = part.downcast_ref::<KeySetExpr>() {
        let ends = set.keys().first().zip(set.keys().last());
        return ends.filter(|_| set.operand() == operand).map(|(first, last)| (*first, *last));
    }
    let list = part.downcast_ref::<InListExpr>().filter(|list| list.expr() == operand)?;
    let keys = integers_in(list)?;
    keys.iter().min().copied().zip(keys.iter().max().copied())
}

/// The integers between `bounds` for which `answer` is true; it is called with thousands at once.
pub(crate) fn tabulated(
    bounds: &KeyBounds,
    mut answer: impl FnMut(ArrayRef) -> Result<BooleanBuffer>,
) -> Result<IntegerSet> {
    let mut words = Vec::new();
    let mut next = Some(bounds.first);
    while let Some(first) = next.filter(|first| *first <= bounds.last) {
        let last = first.saturating_add(ASKED_AT_ONCE as i64 - 1).min(bounds.last);
        let keys = first..=last;
        let keys: ArrayRef = match &bounds.data_type {
            DataType::Int16 => Arc::new(Int16Array::from_iter_values(
                keys.filter_map(|key| i16::try_from(key).ok()),
            )),
            DataType::Int32 => Arc::new(Int32Array::from_iter_values(
                keys.filter_map(|key| i32::try_from(key).ok()),
            )),
            DataType::Date32 => Arc::new(Date32Array::from_iter_values(
                keys.filter_map(|key| i32::try_from(key).ok()),
            )),
            _ => Arc::new(Int64Array::from_iter_values(keys)),
        };
        let count = keys.len();
        let answers = answer(keys)?;
        words.extend(answers.bit_chunks().iter_padded().take(count.div_ceil(64)));
        next = last.checked_add(1);
    }
    Ok(IntegerSet::of_bits(bounds.first, words))
}
