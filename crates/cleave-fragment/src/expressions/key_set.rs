//! The keys of a join's build side, as a filter that is small enough to cross a link.
//!
//! The engine hands them down as `column IN (literal, …)`, which crosses as tens of bytes a key, and as
//! `struct(a, b) IN (…)` for keys of several columns, a kilobyte each. [`compact_keys`] makes sets of
//! integers of them; [`KeySetExpr`] crosses as the distances between sorted keys, a byte or two each.
//!
//! Invariant: what comes out of [`compact_keys`] is true wherever the filter was. It may be true elsewhere:
//! a filter from above only saves work (rule 4).
//!
//! Source: hybridNDP §4 on what is passed to the device; the wire form is ours.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::array::types::{Int16Type, Int32Type, Int64Type};
use arrow::array::{Array, AsArray, BooleanArray, RecordBatch};
use arrow::datatypes::{DataType, Schema};
use datafusion_common::tree_node::TreeNode;
use datafusion_common::{DataFusionError, Result, ScalarValue, internal_err};
use datafusion_execution::memory_pool::MemoryReservation;
use datafusion_expr::{ColumnarValue, Operator};
use datafusion_physical_expr::expressions::{BinaryExpr, InListExpr, Literal};
use datafusion_physical_expr::{PhysicalExpr, ScalarFunctionExpr, conjunction};
use datafusion_physical_plan::joins::HashTableLookupExpr;
use prost::Message;

/// A list of this many values is left as it is: zone maps understand it.
const LIST_COUNT_SMALL: usize = 16;
/// A longer list of what is no integer is not worth its bytes.
const LIST_COUNT_MAX: usize = 512;
/// Most keys of one set that are decoded; a host sends a tenth of them.
const KEY_COUNT_MAX: usize = 1 << 20;
/// Bits of a bitmap for each key, at most; where keys lie wider apart they are searched for.
const BITS_PER_KEY_MAX: u64 = 512;

/// `filter` with its lists of keys as small as they get.
///
/// # Errors
/// None that a filter of the engine's can cause.
pub fn compact_keys(filter: Arc<dyn PhysicalExpr>) -> Result<Arc<dyn PhysicalExpr>> {
    if let Some(list) = filter.downcast_ref::<InListExpr>() {
        return Ok(compact_list(list).unwrap_or(filter));
    }
    // Only where less of a part is never more of the whole.
    if let Some(binary) = filter.downcast_ref::<BinaryExpr>()
        && matches!(binary.op(), Operator::And | Operator::Or)
    {
        let left = compact_keys(Arc::clone(binary.left()))?;
        let right = compact_keys(Arc::clone(binary.right()))?;
        return Ok(Arc::new(BinaryExpr::new(left, *binary.op(), right)));
    }
    let has_lookup = filter.exists(|expr| Ok(expr.is::<HashTableLookupExpr>()))?;
    Ok(if has_lookup { always() } else { filter })
}

fn always() -> Arc<dyn PhysicalExpr> {
    Arc::new(Literal::new(ScalarValue::Boolean(Some(true))))
}

/// What takes the place of `list`; `None`: it stays.
fn compact_list(list: &InListExpr) -> Option<Arc<dyn PhysicalExpr>> {
    if list.negated() || list.len() <= LIST_COUNT_SMALL {
        return None;
    }
    let values: Option<Vec<&ScalarValue>> =
        list.list().iter().map(|item| item.downcast_ref::<Literal>().map(Literal::value)).collect();
    let values = values?;
    if let Some(function) = list.expr().downcast_ref::<ScalarFunctionExpr>()
        && function.name() == "struct"
    {
        let sets = function.args().iter().enumerate().filter_map(|(place, column)| {
            let keys: Option<Vec<i64>> = values
                .iter()
                .map(|value| match value {
                    ScalarValue::Struct(row) => {
                        integer(&ScalarValue::try_from_array(row.columns().get(place)?, 0).ok()?)
                    }
                    _ => None,
                })
                .collect();
            Some(KeySetExpr::over(Arc::clone(column), keys?))
        });
        return Some(conjunction(sets));
    }
    let keys: Option<Vec<i64>> = values.into_iter().map(integer).collect();
    match keys {
        Some(keys) => Some(KeySetExpr::over(Arc::clone(list.expr()), keys)),
        None if list.len() > LIST_COUNT_MAX => Some(always()),
        None => None,
    }
}

fn integer(value: &ScalarValue) -> Option<i64> {
    match value {
        ScalarValue::Int16(value) => value.map(i64::from),
        ScalarValue::Int32(value) => value.map(i64::from),
        ScalarValue::Int64(value) => *value,
        _ => None,
    }
}

/// Whether an integer is one of many; NULL for NULL.
#[derive(Debug)]
pub struct KeySetExpr {
    expr: Arc<dyn PhysicalExpr>,
    set: Arc<KeySet>,
}

/// The integers, which copies of an expression share.
#[derive(Debug)]
struct KeySet {
    /// Ascending, each once.
    keys: Vec<i64>,
    bitmap: Option<Bitmap>,
    /// What the keys are charged to, where they came over a link.
    _memory: Option<Arc<MemoryReservation>>,
}

/// Keys that lie close together.
#[derive(Debug)]
struct Bitmap {
    first: i64,
    bits: Vec<u64>,
}

/// Wire form of a [`KeySetExpr`], its operand aside.
#[derive(Clone, PartialEq, Message)]
struct KeySetNode {
    #[prost(sint64, tag = "1")]
    first: i64,
    /// From each key to the next.
    #[prost(uint64, repeated, tag = "2")]
    gaps: Vec<u64>,
}

impl KeySetExpr {
    fn over(expr: Arc<dyn PhysicalExpr>, mut keys: Vec<i64>) -> Arc<dyn PhysicalExpr> {
        keys.sort_unstable();
        keys.dedup();
        let bitmap = Bitmap::of(&keys);
        Arc::new(Self { expr, set: Arc::new(KeySet { keys, bitmap, _memory: None }) })
    }

    /// The keys as bytes.
    pub(crate) fn encode(&self, bytes: &mut Vec<u8>) {
        let gaps = self.set.keys.windows(2).filter_map(|pair| match pair {
            [one, next] => Some(next.abs_diff(*one)),
            _ => None,
        });
        let first = self.set.keys.first().copied().unwrap_or_default();
        bytes.extend(KeySetNode { first, gaps: gaps.collect() }.encode_to_vec());
    }

    /// Reads what [`KeySetExpr::encode`] wrote, over `inputs`; the keys are charged to `memory`.
    pub(crate) fn decode(
        bytes: &[u8],
        inputs: &[Arc<dyn PhysicalExpr>],
        memory: Option<&Arc<MemoryReservation>>,
    ) -> Result<Arc<dyn PhysicalExpr>> {
        let bad = |what: &str| DataFusionError::Plan(format!("a set of keys {what}"));
        let [expr] = inputs else { return Err(bad("has not one operand")) };
        // Each gap ends with a byte of its own kind; what surrounds them adds a few.
        let key_count = bytes.iter().filter(|byte| **byte < 0x80).count();
        if key_count > KEY_COUNT_MAX {
            return Err(bad(&format!("has more than {KEY_COUNT_MAX}")));
        }
        let reserve = |bytes| memory.map_or(Ok(()), |memory| memory.try_grow(bytes));
        reserve(key_count * size_of::<i64>())?;
        let node = KeySetNode::decode(bytes).map_err(|error| bad(&error.to_string()))?;
        let mut key = node.first;
        let mut keys = Vec::with_capacity(node.gaps.len() + 1);
        keys.push(key);
        for gap in node.gaps {
            let next = key.checked_add_unsigned(gap);
            key = next.ok_or_else(|| bad("goes beyond the integers"))?;
            keys.push(key);
        }
        keys.dedup();
        reserve(Bitmap::words(&keys).unwrap_or(0) * size_of::<u64>())?;
        let set = KeySet { bitmap: Bitmap::of(&keys), keys, _memory: memory.map(Arc::clone) };
        Ok(Arc::new(Self { expr: Arc::clone(expr), set: Arc::new(set) }))
    }

    /// What is asked about.
    pub(crate) fn operand(&self) -> &Arc<dyn PhysicalExpr> {
        &self.expr
    }

    /// The keys, ascending, each once.
    pub(crate) fn keys(&self) -> &[i64] {
        &self.set.keys
    }

    fn contains(&self, key: i64) -> bool {
        match &self.set.bitmap {
            Some(bitmap) => bitmap.contains(key),
            None => self.set.keys.binary_search(&key).is_ok(),
        }
    }
}

impl Bitmap {
    /// Words of a bitmap of ascending keys, where that takes no more than [`BITS_PER_KEY_MAX`].
    fn words(keys: &[i64]) -> Option<usize> {
        let range = keys.last()?.abs_diff(*keys.first()?);
        if range / BITS_PER_KEY_MAX > keys.len() as u64 {
            return None;
        }
        usize::try_from(range / 64 + 1).ok()
    }

    /// Of ascending keys, where that takes no more than [`BITS_PER_KEY_MAX`].
    fn of(keys: &[i64]) -> Option<Self> {
        let first = *keys.first()?;
        let mut bits = vec![0_u64; Self::words(keys)?];
        for key in keys {
            let place = key.abs_diff(first);
            *bits.get_mut(usize::try_from(place / 64).ok()?)? |= 1 << (place % 64);
        }
        Some(Self { first, bits })
    }

    fn contains(&self, key: i64) -> bool {
        if key < self.first {
            return false;
        }
        let place = key.abs_diff(self.first);
        let word = usize::try_from(place / 64).ok().and_then(|word| self.bits.get(word));
        word.is_some_and(|word| word >> (place % 64) & 1 == 1)
    }
}

impl PhysicalExpr for KeySetExpr {
    fn data_type(&self, _schema: &Schema) -> Result<DataType> {
        Ok(DataType::Boolean)
    }

    fn nullable(&self, schema: &Schema) -> Result<bool> {
        self.expr.nullable(schema)
    }

    fn evaluate(&self, batch: &RecordBatch) -> Result<ColumnarValue> {
        let values = self.expr.evaluate(batch)?.into_array(batch.num_rows())?;
        let contains = match values.data_type() {
            DataType::Int16 => {
                BooleanArray::from_unary(values.as_primitive::<Int16Type>(), |key| {
                    self.contains(i64::from(key))
                })
            }
            DataType::Int32 => {
                BooleanArray::from_unary(values.as_primitive::<Int32Type>(), |key| {
                    self.contains(i64::from(key))
                })
            }
            DataType::Int64 => {
                BooleanArray::from_unary(values.as_primitive::<Int64Type>(), |key| {
                    self.contains(key)
                })
            }
            other => {
                return internal_err!("a set of integer keys is asked for a value of type {other}");
            }
        };
        Ok(ColumnarValue::Array(Arc::new(contains)))
    }

    fn children(&self) -> Vec<&Arc<dyn PhysicalExpr>> {
        vec![&self.expr]
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn PhysicalExpr>>,
    ) -> Result<Arc<dyn PhysicalExpr>> {
        match children.as_slice() {
            [expr] => Ok(Arc::new(Self { expr: Arc::clone(expr), set: Arc::clone(&self.set) })),
            _ => internal_err!("a set of keys has one operand"),
        }
    }

    fn fmt_sql(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for KeySetExpr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} IN ({} keys)", self.expr, self.set.keys.len())
    }
}

impl PartialEq for KeySetExpr {
    fn eq(&self, other: &Self) -> bool {
        self.expr.eq(&other.expr) && self.set.keys == other.set.keys
    }
}

impl Eq for KeySetExpr {}

impl Hash for KeySetExpr {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.expr.hash(state);
        self.set.keys.hash(state);
    }
}

#[cfg(test)]
mod tests {
    //! Sets hold their keys and no others, near and far apart, here and after crossing.

    use arrow::array::{ArrayRef, Int32Array, Int64Array, StringArray, StructArray};
    use arrow::datatypes::Field;
    use datafusion_physical_expr::expressions::Column;
    use proptest::prelude::*;

    use super::*;

    fn batch(name: &str, values: ArrayRef) -> RecordBatch {
        let field = Field::new(name, values.data_type().clone(), true);
        RecordBatch::try_new(Arc::new(Schema::new(vec![field])), vec![values]).unwrap()
    }

    fn kept(filter: &Arc<dyn PhysicalExpr>, batch: &RecordBatch) -> Vec<Option<bool>> {
        let value = filter.evaluate(batch).unwrap().into_array(batch.num_rows()).unwrap();
        value.as_boolean().iter().collect()
    }

    fn list(
        expr: Arc<dyn PhysicalExpr>,
        values: ArrayRef,
        schema: &Schema,
    ) -> Arc<dyn PhysicalExpr> {
        Arc::new(InListExpr::try_new_from_array(expr, values, false, schema).unwrap())
    }

    proptest! {
        #[test]
        fn a_set_holds_its_keys_and_crosses(
            near in proptest::collection::vec(-1000_i64..1000, 17..200),
            far in proptest::collection::vec(any::<i64>(), 0..3),
            probes in proptest::collection::vec(-1100_i64..1100, 1..50),
        ) {
            let keys: Vec<i64> = near.iter().chain(&far).copied().collect();
            let values: Vec<Option<i64>> =
                probes.iter().chain(&keys).copied().map(Some).chain([None]).collect();
            let batch = batch("k", Arc::new(Int64Array::from(values.clone())));
            let schema = batch.schema();
            let column: Arc<dyn PhysicalExpr> = Arc::new(Column::new("k", 0));
            let plain = list(Arc::clone(&column), Arc::new(Int64Array::from(keys.clone())), &schema);
            let compact = compact_keys(Arc::clone(&plain)).unwrap();
            let set = compact.downcast_ref::<KeySetExpr>().unwrap();
            let mut bytes = Vec::new();
            set.encode(&mut bytes);
            let back = KeySetExpr::decode(&bytes, &[column], None).unwrap();
            let expected: Vec<Option<bool>> =
                values.iter().map(|value| value.map(|value| keys.contains(&value))).collect();
            prop_assert_eq!(kept(&compact, &batch), expected.clone());
            prop_assert_eq!(kept(&back, &batch), expected);
        }

        #[test]
        fn damaged_sets_are_errors_and_no_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let column: Arc<dyn PhysicalExpr> = Arc::new(Column::new("k", 0));
            drop(KeySetExpr::decode(&bytes, &[column], None));
        }
    }

    #[test]
    fn too_many_keys_are_refused_before_they_are_decoded() {
        let column: Arc<dyn PhysicalExpr> = Arc::new(Column::new("k", 0));
        let node = KeySetNode { first: 3, gaps: vec![1; KEY_COUNT_MAX + 1] };
        let error = KeySetExpr::decode(&node.encode_to_vec(), &[column], None).unwrap_err();
        assert!(error.to_string().contains("more than 1048576"), "{error}");
    }

    #[test]
    fn keys_of_two_columns_become_a_set_for_each() {
        let ids: ArrayRef = Arc::new(Int32Array::from_iter_values(0..100));
        let names: ArrayRef =
            Arc::new(StringArray::from_iter_values((0..100).map(|id| format!("n{id}"))));
        let fields =
            vec![Field::new("a", DataType::Int32, true), Field::new("b", DataType::Utf8, true)];
        let keys: ArrayRef =
            Arc::new(StructArray::new(fields.clone().into(), vec![ids, names], None));
        let schema = Schema::new(fields.clone());
        let columns: Vec<Arc<dyn PhysicalExpr>> =
            vec![Arc::new(Column::new("a", 0)), Arc::new(Column::new("b", 1))];
        let struct_field = Field::new("struct", DataType::Struct(fields.into()), true);
        let function: Arc<dyn PhysicalExpr> = Arc::new(ScalarFunctionExpr::new(
            "struct",
            datafusion_functions::core::r#struct(),
            columns,
            Arc::new(struct_field),
            Arc::default(),
        ));
        let compact = compact_keys(list(function, keys, &schema)).unwrap();
        assert_eq!(compact.to_string(), "a@0 IN (100 keys)");
    }

    #[test]
    fn long_lists_of_text_are_let_go_and_short_ones_stay() {
        let schema = Schema::new(vec![Field::new("t", DataType::Utf8, true)]);
        let column: Arc<dyn PhysicalExpr> = Arc::new(Column::new("t", 0));
        for (count, expected) in [(1000, "true"), (20, "t@0 IN")] {
            let texts = StringArray::from_iter_values((0..count).map(|n| format!("{n}")));
            let filter = list(Arc::clone(&column), Arc::new(texts), &schema);
            let shown = compact_keys(filter).unwrap().to_string();
            assert!(shown.starts_with(expected), "{shown}");
        }
    }
}
