//! The keys of a join's build side as sets of integers, small enough to cross a link.
//!
//! DataFusion hands keys down as `column IN (literal, …)`, which crosses as tens of bytes a key, and as
//! `struct(a, b) IN (…)` for keys of several columns, a kilobyte each. [`compact_keys`] makes sets of integers of them;
//! [`KeySetExpr`] crosses as the distances between sorted keys, a byte or two each. A join with integers in its key
//! fills such sets itself ([`filled_filter`](crate::operators::filled_filter)).
//!
//! Invariant: the result of [`compact_keys`] is true wherever the original filter is. It may also be true elsewhere: a
//! filter from above only saves work (rule 4).
//!
//! Source: hybridNDP §4 on what is passed to the device; the wire form is ours.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::array::types::{Date32Type, Int16Type, Int32Type, Int64Type};
use arrow::array::{Array, AsArray, BooleanArray, RecordBatch};
use arrow::datatypes::{DataType, Schema};
use cleave_store::IntegerSet;
use datafusion_common::{DataFusionError, Result, internal_err};
use datafusion_execution::memory_pool::MemoryReservation;
use datafusion_expr::ColumnarValue;
use datafusion_physical_expr::PhysicalExpr;
use prost::Message;

pub(crate) mod compact;

pub use compact::{compact_keys, key_count, lists_keys};

/// Most keys of a join's build side that are handed down as a list, and that always cross a link as a set.
pub const KEY_LIST_COUNT_MAX: usize = 100_000;

/// Most keys of one set that are decoded; a host sends a tenth of them.
const KEY_COUNT_MAX: usize = 1 << 20;

/// Whether keys of this type are integers that a set holds; of a date its day.
pub fn is_integer_key(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Int16 | DataType::Int32 | DataType::Int64 | DataType::Date32)
}

/// Whether an integer is one of many; NULL for NULL.
#[derive(Debug)]
pub struct KeySetExpr {
    expr: Arc<dyn PhysicalExpr>,
    set: Arc<KeySet>,
}

/// The integers, which partitions of an expression share.
#[derive(Debug)]
struct KeySet {
    /// Ascending, each once.
    keys: Vec<i64>,
    /// The same as a set for look-ups.
    members: Arc<IntegerSet>,
    /// The memory that the keys are charged to, if they came over a link or a join filled them in.
    _memory: Option<Arc<MemoryReservation>>,
}

/// Wire form of a [`KeySetExpr`], without its operand.
#[derive(Clone, PartialEq, Message)]
struct KeySetNode {
    #[prost(sint64, tag = "1")]
    first: i64,
    /// From each key to the next.
    #[prost(uint64, repeated, tag = "2")]
    gaps: Vec<u64>,
}

impl KeySetExpr {
    fn over(expr: Arc<dyn PhysicalExpr>, keys: Vec<i64>) -> Arc<dyn PhysicalExpr> {
        Self::charged_to(None, expr, keys)
    }

    /// Whether `expr` is one of `keys`, in any order, whose bytes are charged to `memory`.
    pub(crate) fn charged_to(
        memory: Option<Arc<MemoryReservation>>,
        expr: Arc<dyn PhysicalExpr>,
        keys: Vec<i64>,
    ) -> Arc<dyn PhysicalExpr> {
        let (members, keys) = IntegerSet::collect(keys);
        let set = KeySet { keys, members: Arc::new(members), _memory: memory };
        Arc::new(Self { expr, set: Arc::new(set) })
    }

    /// Encodes the keys.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let gaps = self.set.keys.windows(2).filter_map(|pair| match pair {
            [one, next] => Some(next.abs_diff(*one)),
            _ => None,
        });
        let first = self.set.keys.first().copied().unwrap_or_default();
        KeySetNode { first, gaps: gaps.collect() }.encode_to_vec()
    }

    /// Reads what [`KeySetExpr::encode`] wrote, over `inputs`; the keys are charged to `memory`.
    pub(crate) fn decode(
        bytes: &[u8],
        inputs: &[Arc<dyn PhysicalExpr>],
        memory: Option<&Arc<MemoryReservation>>,
    ) -> Result<Arc<dyn PhysicalExpr>> {
        let bad = |what: &str| DataFusionError::Plan(format!("a set of keys {what}"));
        let [expr] = inputs else { return Err(bad("has not one operand")) };
        // Each gap has one byte with a clear high bit; the surrounding fields add a few.
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
        reserve(IntegerSet::size(node.first, key, keys.len()))?;
        let members = Arc::new(IntegerSet::of(&keys));
        let set = KeySet { keys, members, _memory: memory.map(Arc::clone) };
        Ok(Arc::new(Self { expr: Arc::clone(expr), set: Arc::new(set) }))
    }

    /// The expression that is looked up.
    pub(crate) fn operand(&self) -> &Arc<dyn PhysicalExpr> {
        &self.expr
    }

    /// The keys, ascending, each once.
    pub(crate) fn keys(&self) -> &[i64] {
        &self.set.keys
    }

    /// The keys as a set for look-ups.
    pub(crate) fn members(&self) -> &Arc<IntegerSet> {
        &self.set.members
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
        let members = &self.set.members;
        let contains = match values.data_type() {
            DataType::Int16 => {
                members.contains_each(values.as_primitive::<Int16Type>().values(), i64::from)
            }
            DataType::Int32 => {
                members.contains_each(values.as_primitive::<Int32Type>().values(), i64::from)
            }
            DataType::Int64 => {
                members.contains_each(values.as_primitive::<Int64Type>().values(), |key| key)
            }
            DataType::Date32 => {
                members.contains_each(values.as_primitive::<Date32Type>().values(), i64::from)
            }
            other => {
                return internal_err!("a set of integer keys is asked for a value of type {other}");
            }
        };
        let contains = BooleanArray::new(contains, values.nulls().cloned());
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
mod tests;
