//! The keys of a join's build side as a Bloom filter, for keys that are too many, or of a type that cannot cross a link
//! as a set of integers ([`key_set`](super::key_set)).
//!
//! 1. [`CollectedKeys`] takes the hashes of the keys while the join reads its build side
//!    ([`CollectKeysExec`](crate::operators::collect_keys_exec::CollectKeysExec)).
//! 2. Before a fragment is sent, [`CollectedKeys::filter`] makes a [`KeyFilterExpr`] of them, over the columns of a
//!    scan that are the probe side's keys. It crosses as the bits of its [`BloomFilter`].
//! 3. In the fragment, a scan looks integers up in the form that pages store, and other values by their hashes, once
//!    for each entry of a dictionary.
//!
//! Invariants: every value equal to a key passes: both sides have equal types, and [`hash_keys`] is defined here for
//! these types alone, because DataFusion's hashes differ between machines. False positives are allowed: a filter from
//! above only saves work (rule 4). Nothing is equal to NULL.
//!
//! Source: predicate transfer, `docs/design/split-and-cost.md`; Bloom filters as [`cleave_store::bloom`] has them.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arrow::array::types::{
    Date32Type, Decimal128Type, Int16Type, Int32Type, Int64Type, Time64MicrosecondType,
    TimestampMicrosecondType,
};
use arrow::array::{Array, ArrayRef, ArrowPrimitiveType, AsArray, BooleanArray, RecordBatch};
use arrow::buffer::{BooleanBuffer, NullBuffer};
use arrow::datatypes::{DataType, Schema, TimeUnit};
use cleave_store::bloom::{BLOOM_BYTES_MAX, hash_both, hash_bytes, hash_integer};
use cleave_store::{BloomFilter, IntegerSet};
use datafusion_common::{DataFusionError, Result, internal_err};
use datafusion_execution::memory_pool::MemoryReservation;
use datafusion_expr::ColumnarValue;
use datafusion_physical_expr::PhysicalExpr;

use super::key_sink::{KeyCollector, KeySink};

/// Up to so many keys their hashes are kept instead of a filter, which would take no less.
const HASHES_MAX: usize = BLOOM_BYTES_MAX / size_of::<u64>() / 4;
/// A filter that passes a larger share of other keys is not worth filling.
const FALSE_SHARE_MAX: f64 = 0.5;
/// The filter is first examined after so many keys.
const LOOK_AFTER: usize = 1 << 19;

/// Whether the values of some columns are likely to be a key of a join's build side; NULL if one of them is NULL.
#[derive(Debug)]
pub struct KeyFilterExpr {
    operands: Vec<Arc<dyn PhysicalExpr>>,
    keys: Arc<FilteredKeys>,
}

/// The filter, which the partitions of an expression share.
#[derive(Debug)]
struct FilteredKeys {
    filter: Arc<BloomFilter>,
    /// Approximate.
    key_count: f64,
    /// The memory that the filter is charged to, if it came over a link.
    _memory: Option<Arc<MemoryReservation>>,
}

impl KeyFilterExpr {
    /// Tests `filter`, which has hashes of [`cleave_store::bloom`], for the key with these parts.
    pub fn new(operands: Vec<Arc<dyn PhysicalExpr>>, filter: BloomFilter) -> Self {
        Self::over(operands, Arc::new(filter), None)
    }

    fn over(
        operands: Vec<Arc<dyn PhysicalExpr>>,
        filter: Arc<BloomFilter>,
        memory: Option<Arc<MemoryReservation>>,
    ) -> Self {
        let key_count = filter.key_count();
        Self { operands, keys: Arc::new(FilteredKeys { filter, key_count, _memory: memory }) }
    }

    /// Encodes the filter.
    pub(crate) fn encode(&self) -> Vec<u8> {
        self.keys.filter.to_bytes()
    }

    /// Reads what [`KeyFilterExpr::encode`] wrote, over `inputs`; the filter is charged to `memory`.
    pub(crate) fn decode(
        bytes: &[u8],
        inputs: &[Arc<dyn PhysicalExpr>],
        memory: Option<&Arc<MemoryReservation>>,
    ) -> Result<Arc<dyn PhysicalExpr>> {
        let bad = |what: &str| DataFusionError::Plan(format!("a filter of keys {what}"));
        if inputs.is_empty() {
            return Err(bad("has no operand"));
        }
        if bytes.len() > BLOOM_BYTES_MAX {
            return Err(bad(&format!("has more than {BLOOM_BYTES_MAX} bytes")));
        }
        memory.map_or(Ok(()), |memory| memory.try_grow(bytes.len()))?;
        let filter = BloomFilter::from_bytes(bytes)
            .ok_or_else(|| bad(&format!("has {} bytes, which are no blocks", bytes.len())))?;
        Ok(Arc::new(Self::over(inputs.to_vec(), Arc::new(filter), memory.map(Arc::clone))))
    }

    /// The set that integers of the only operand are looked up in; None if there are several operands.
    pub(crate) fn likely_integers(&self) -> Option<(&Arc<dyn PhysicalExpr>, IntegerSet)> {
        let [operand] = self.operands.as_slice() else { return None };
        Some((operand, IntegerSet::likely(Arc::clone(&self.keys.filter))))
    }

    /// Approximate number of distinct keys in the filter.
    pub fn key_count(&self) -> f64 {
        self.keys.key_count
    }

    /// The share of other keys that it lets through.
    pub fn false_share(&self) -> f64 {
        self.keys.filter.false_share()
    }

    /// Bytes of its wire form.
    pub fn bytes(&self) -> usize {
        self.keys.filter.bytes()
    }
}

impl PhysicalExpr for KeyFilterExpr {
    fn data_type(&self, _schema: &Schema) -> Result<DataType> {
        Ok(DataType::Boolean)
    }

    fn nullable(&self, schema: &Schema) -> Result<bool> {
        self.operands.iter().try_fold(false, |any, operand| Ok(any || operand.nullable(schema)?))
    }

    fn evaluate(&self, batch: &RecordBatch) -> Result<ColumnarValue> {
        let values = self.operands.iter();
        let values = values.map(|operand| operand.evaluate(batch)?.into_array(batch.num_rows()));
        let values: Vec<ArrayRef> = values.collect::<Result<_>>()?;
        let hashes = hash_keys(&values)?;
        let filter = &self.keys.filter;
        let likely = BooleanBuffer::from_iter(hashes.iter().map(|hash| filter.may_have(*hash)));
        Ok(ColumnarValue::Array(Arc::new(BooleanArray::new(likely, nulls_of(&values)))))
    }

    fn children(&self) -> Vec<&Arc<dyn PhysicalExpr>> {
        self.operands.iter().collect()
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn PhysicalExpr>>,
    ) -> Result<Arc<dyn PhysicalExpr>> {
        if children.len() != self.operands.len() {
            return internal_err!("a filter of keys of {} parts", self.operands.len());
        }
        Ok(Arc::new(Self { operands: children, keys: Arc::clone(&self.keys) }))
    }

    fn fmt_sql(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for KeyFilterExpr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let operands: Vec<String> = self.operands.iter().map(ToString::to_string).collect();
        let operands = operands.join(", ");
        write!(f, "({operands}) IN (filter of about {:.0} keys)", self.key_count())
    }
}

impl PartialEq for KeyFilterExpr {
    fn eq(&self, other: &Self) -> bool {
        self.operands == other.operands && self.keys.filter == other.keys.filter
    }
}

impl Eq for KeyFilterExpr {}

impl Hash for KeyFilterExpr {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.operands.hash(state);
        self.keys.filter.hash(state);
    }
}

/// Whether keys of this type have a hash of ours. Floats have none: they may be equal and differ in their bits.
pub fn has_hash(data_type: &DataType) -> bool {
    use DataType::{
        Binary, Boolean, Date32, Decimal128, FixedSizeBinary, Int16, Int32, Int64, Time64,
        Timestamp, Utf8,
    };
    matches!(
        data_type,
        Int16
            | Int32
            | Int64
            | Date32
            | Boolean
            | Utf8
            | Binary
            | FixedSizeBinary(_)
            | Decimal128(..)
            | Time64(TimeUnit::Microsecond)
            | Timestamp(TimeUnit::Microsecond, _)
    )
}

/// The expected share of other keys that a filter of so many keys lets through.
pub fn expected_false_share(key_count: f64) -> f64 {
    BloomFilter::expected_false_share(key_count)
}

/// The hash of each key, whose parts are in these columns; the hash of a key with a NULL is meaningless.
///
/// # Errors
/// For a type without a hash.
pub(crate) fn hash_keys(parts: &[ArrayRef]) -> Result<Vec<u64>> {
    let mut hashes = Vec::new();
    for (place, part) in parts.iter().enumerate() {
        if place == 0 {
            each_hash(part, |_, hash| hashes.push(hash))?;
        } else {
            each_hash(part, |row, hash| {
                if let Some(first) = hashes.get_mut(row) {
                    *first = hash_both(*first, hash);
                }
            })?;
        }
    }
    Ok(hashes)
}

/// Calls `take` with the place and hash of each value.
fn each_hash(values: &ArrayRef, mut take: impl FnMut(usize, u64)) -> Result<()> {
    fn integers<T: ArrowPrimitiveType>(values: &ArrayRef, mut take: impl FnMut(usize, u64))
    where
        T::Native: Into<i64>,
    {
        let values = values.as_primitive::<T>().values().iter().enumerate();
        values.for_each(|(row, value)| take(row, hash_integer((*value).into())));
    }
    match values.data_type() {
        DataType::Int16 => integers::<Int16Type>(values, take),
        DataType::Int32 => integers::<Int32Type>(values, take),
        DataType::Int64 => integers::<Int64Type>(values, take),
        DataType::Date32 => integers::<Date32Type>(values, take),
        DataType::Time64(TimeUnit::Microsecond) => integers::<Time64MicrosecondType>(values, take),
        DataType::Timestamp(TimeUnit::Microsecond, _) => {
            integers::<TimestampMicrosecondType>(values, take);
        }
        DataType::Decimal128(..) => {
            let values = values.as_primitive::<Decimal128Type>().values().iter().enumerate();
            values.for_each(|(row, value)| take(row, hash_bytes(&value.to_le_bytes())));
        }
        DataType::Boolean => {
            let values = values.as_boolean().values().iter().enumerate();
            values.for_each(|(row, value)| take(row, hash_integer(value.into())));
        }
        DataType::Utf8 => {
            let values = values.as_string::<i32>();
            (0..values.len()).for_each(|row| take(row, hash_bytes(values.value(row).as_bytes())));
        }
        DataType::Binary => {
            let values = values.as_binary::<i32>();
            (0..values.len()).for_each(|row| take(row, hash_bytes(values.value(row))));
        }
        DataType::FixedSizeBinary(_) => {
            let values = values.as_fixed_size_binary();
            (0..values.len()).for_each(|row| take(row, hash_bytes(values.value(row))));
        }
        other => return internal_err!("a key of type {other} has no hash"),
    }
    Ok(())
}

/// Where any of the parts is NULL.
fn nulls_of(parts: &[ArrayRef]) -> Option<NullBuffer> {
    parts.iter().fold(None, |nulls, part| NullBuffer::union(nulls.as_ref(), part.nulls()))
}

/// The keys of a join's build side, from when it is read.
#[derive(Debug, Default)]
pub struct CollectedKeys {
    state: Mutex<FilterState>,
}

#[derive(Debug, Default)]
enum FilterState {
    /// Not all keys have arrived yet.
    #[default]
    Open,
    Complete {
        filter: Arc<BloomFilter>,
        /// The memory that they are charged to.
        _memory: Arc<MemoryReservation>,
    },
    /// The join is read again with other rows, while readers may still look at the earlier keys.
    Over,
}

impl CollectedKeys {
    /// The filter of the keys over `operands`, of at most so many bytes; None if keys are still missing, or were too
    /// many.
    pub fn filter(
        &self,
        operands: Vec<Arc<dyn PhysicalExpr>>,
        bytes_max: usize,
    ) -> Option<KeyFilterExpr> {
        let filter = match &*self.state() {
            FilterState::Complete { filter, .. } => Arc::clone(filter),
            FilterState::Open | FilterState::Over => return None,
        };
        let filter = match filter.bytes() > bytes_max {
            true => Arc::new(BloomFilter::clone(&filter).shrunk(bytes_max)),
            false => filter,
        };
        Some(KeyFilterExpr::over(operands, filter, None))
    }

    fn state(&self) -> MutexGuard<'_, FilterState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl KeySink for CollectedKeys {
    fn collector(self: Arc<Self>, memory: MemoryReservation) -> Option<Box<dyn KeyCollector>> {
        Some(Box::new(HashCollector::new(self, memory)?))
    }

    fn end(&self) {
        *self.state() = FilterState::Over;
    }
}

/// Hashes of keys on their way into [`CollectedKeys`].
#[derive(Debug)]
struct HashCollector {
    keys: Arc<CollectedKeys>,
    gathered: Gathered,
    memory: Arc<MemoryReservation>,
    /// Keys so far, and the number at which the filter is next examined.
    count: usize,
    look_at: usize,
}

#[derive(Debug)]
enum Gathered {
    Hashes(Vec<u64>),
    Filter(BloomFilter),
}

impl HashCollector {
    /// A collector charged to `memory`; None if there is not enough.
    fn new(keys: Arc<CollectedKeys>, memory: MemoryReservation) -> Option<Self> {
        memory.try_grow(BLOOM_BYTES_MAX).ok()?;
        let gathered = Gathered::Hashes(Vec::new());
        Some(Self { keys, gathered, memory: Arc::new(memory), count: 0, look_at: LOOK_AFTER })
    }
}

impl KeyCollector for HashCollector {
    /// False if the keys are now too many, or cannot be hashed.
    fn add(&mut self, parts: &[ArrayRef]) -> bool {
        let Ok(hashes) = hash_keys(parts) else { return false };
        let nulls = nulls_of(parts).filter(|nulls| nulls.null_count() > 0);
        let is_key = |row: usize| nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row));
        let hashes = hashes.iter().enumerate().filter(|(row, _)| is_key(*row));
        for (_, hash) in hashes {
            self.count += 1;
            match &mut self.gathered {
                Gathered::Hashes(known) => {
                    known.push(*hash);
                    if known.len() >= HASHES_MAX {
                        let mut filter = BloomFilter::largest();
                        mem::take(known).into_iter().for_each(|hash| filter.add(hash));
                        self.gathered = Gathered::Filter(filter);
                    }
                }
                Gathered::Filter(filter) => filter.add(*hash),
            }
        }
        if self.count < self.look_at {
            return true;
        }
        self.look_at = self.look_at.saturating_mul(2);
        match &self.gathered {
            Gathered::Filter(filter) => filter.false_share() < FALSE_SHARE_MAX,
            Gathered::Hashes(_) => true,
        }
    }

    fn finish(self: Box<Self>) {
        let filter = match self.gathered {
            Gathered::Hashes(mut hashes) => {
                hashes.sort_unstable();
                hashes.dedup();
                BloomFilter::of(&hashes)
            }
            Gathered::Filter(filter) => filter.shrunk(BLOOM_BYTES_MAX),
        };
        let mut state = self.keys.state();
        if !matches!(*state, FilterState::Over) {
            *state = FilterState::Complete { filter: Arc::new(filter), _memory: self.memory };
        }
    }
}

#[cfg(test)]
mod tests;
