//! Fills the filter that a hash join hands down to the scans of its probe side, from integer keys of its build side.
//!
//! DataFusion fills such a filter with a literal for each key, on one thread, or with look-ups in its hash table for
//! more keys than it lists. Here the build side is read through a [`CollectKeysExec`], and the filter becomes the
//! bounds of the keys and a [`KeySetExpr`]: a bitmap, or a hash table behind a small filter.
//!
//! ```text
//!  build ─▶ CollectKeysExec ─▶ DataFusion's join without a filter ◀─ probe ◀─ scan
//!                │ the last row                                                ▲
//!                └── key >= least AND key <= greatest AND key IN (keys) ───────┘
//! ```
//!
//! Of keys of several parts, each part that is an integer has its bounds and its set. So the filter passes parts that
//! do not belong together, and may go down where the rows have only some of the parts
//! ([`AbsentKeyExpr`](crate::expressions::absent_key::AbsentKeyExpr)).
//!
//! The same set crosses links if it is short enough for that ([`compact_keys`]). Beyond about [`KEYS_MAX`] keys,
//! [`SET_BYTES_MAX`] or the memory, only the bounds are filled in.
//!
//! Invariants: the filter is true for every row of the probe side that has a match. A build side that was not read to
//! its end fills nothing. Joins for which NULLs match, and null-aware anti joins, keep DataFusion's filter.
//!
//! [`compact_keys`]: crate::expressions::key_set::compact_keys

use crate::walk::Walk;
use std::sync::Arc;

use arrow::array::types::{ArrowPrimitiveType, Date32Type, Int16Type, Int32Type, Int64Type};
use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::DataType;
use cleave_store::IntegerSet;
use datafusion_common::tree_node::TreeNodeRecursion;
use datafusion_common::{NullEquality, Result, ScalarValue};
use datafusion_execution::memory_pool::MemoryReservation;
use datafusion_expr::Operator;
use datafusion_physical_expr::expressions::{BinaryExpr, DynamicFilterPhysicalExpr, lit};
use datafusion_physical_expr::{PhysicalExpr, conjunction};
use datafusion_physical_plan::joins::{HashJoinExec, PartitionMode};
use datafusion_physical_plan::{ExecutionPlan, ExecutionPlanProperties};

use crate::expressions::key_set::{KeySetExpr, is_integer_key};
use crate::expressions::key_sink::{KeyCollector, KeySink};
use crate::operators::collect_keys_exec::CollectKeysExec;

/// A list with more distinct keys is given up. They are counted whenever their number may have doubled.
const KEYS_MAX: usize = 4 << 20;
/// Most bytes of a set for look-ups.
const SET_BYTES_MAX: usize = 32 << 20;
/// Keys are first made distinct when so many have been gathered.
const DISTINCT_AFTER: usize = 1 << 17;

/// See the [module](self).
#[derive(Debug)]
pub(super) struct FilledFilter {
    filter: Arc<DynamicFilterPhysicalExpr>,
    /// The parts of a key that are integers.
    parts: Vec<KeyPart>,
}

#[derive(Debug, Clone)]
struct KeyPart {
    /// Its place in the key.
    place: usize,
    /// What it equals on the probe side.
    operand: Arc<dyn PhysicalExpr>,
    data_type: DataType,
}

impl FilledFilter {
    /// `join` with a build side that fills its filter; `None` if DataFusion has to.
    ///
    /// # Errors
    /// DataFusion's, when it rebuilds the plan.
    pub(super) fn below(join: &HashJoinExec) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        let filter = join.dynamic_expressions_produced().into_iter().next();
        let filter =
            filter.and_then(|filter| Arc::downcast::<DynamicFilterPhysicalExpr>(filter).ok());
        let Some(filter) = filter else { return Ok(None) };
        let has_keys = *join.partition_mode() == PartitionMode::CollectLeft
            && join.null_equality() == NullEquality::NullEqualsNothing
            && !join.null_aware
            && join.left().output_partitioning().partition_count() == 1;
        if !has_keys {
            return Ok(None);
        }
        let (build, probe) = (join.left().schema(), join.right().schema());
        let mut parts = Vec::new();
        for (place, (key, operand)) in join.on().iter().enumerate() {
            let data_type = key.data_type(&build)?;
            if is_integer_key(&data_type) && operand.data_type(&probe)? == data_type {
                parts.push(KeyPart { place, operand: Arc::clone(operand), data_type });
            }
        }
        if parts.is_empty() || !has_reader(join.right(), filter.as_ref())? {
            return Ok(None);
        }
        let filled = Arc::new(Self { filter, parts });
        let keys = join.on().iter().map(|(key, _)| Arc::clone(key)).collect();
        let build = CollectKeysExec::into_sink(Arc::clone(join.left()), keys, filled)?;
        let inputs: Vec<Arc<dyn ExecutionPlan>> = vec![Arc::new(build), Arc::clone(join.right())];
        // Without its filter, which it would fill as well.
        let join = join.builder().reset_state().with_new_children(inputs)?;
        Ok(Some(join.build_exec()?))
    }

    /// Fills the filter with `parts`, all of which rows with a match satisfy.
    fn fill(&self, parts: Vec<Arc<dyn PhysicalExpr>>) {
        // An error leaves the filter as it was: true.
        if self.filter.update(conjunction(parts)).is_ok() {
            self.filter.mark_complete();
        }
    }
}

impl KeyPart {
    /// The comparison of the probe side's key with `value`.
    fn compared(&self, operator: Operator, value: i64) -> Option<Arc<dyn PhysicalExpr>> {
        let value = match &self.data_type {
            DataType::Int16 => ScalarValue::Int16(Some(i16::try_from(value).ok()?)),
            DataType::Int32 => ScalarValue::Int32(Some(i32::try_from(value).ok()?)),
            DataType::Date32 => ScalarValue::Date32(Some(i32::try_from(value).ok()?)),
            _ => ScalarValue::Int64(Some(value)),
        };
        Some(Arc::new(BinaryExpr::new(Arc::clone(&self.operand), operator, lit(value))))
    }
}

impl KeySink for FilledFilter {
    fn collector(self: Arc<Self>, memory: MemoryReservation) -> Option<Box<dyn KeyCollector>> {
        let parts = self.parts.iter().map(|part| Filling {
            part: part.clone(),
            keys: Some(Vec::new()),
            ends: None,
            distinct_at: DISTINCT_AFTER,
            memory: memory.new_empty(),
        });
        Some(Box::new(FillingAll { parts: parts.collect(), sink: self }))
    }

    // A join that is read again has a new filter.
    fn end(&self) {}
}

/// Whether an operator of `plan` reads `filter`.
fn has_reader(plan: &Arc<dyn ExecutionPlan>, filter: &dyn PhysicalExpr) -> Result<bool> {
    let Some(id) = filter.expression_id() else { return Ok(false) };
    let mut found = false;
    plan.apply(|node| {
        node.apply_expressions(&mut |root| {
            found |= root.exists(|expr| Ok(expr.expression_id() == Some(id)))?;
            Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
        })
    })?;
    Ok(found)
}

/// Keys on their way into the filter.
#[derive(Debug)]
struct FillingAll {
    sink: Arc<FilledFilter>,
    parts: Vec<Filling>,
}

/// One part of the keys.
#[derive(Debug)]
struct Filling {
    part: KeyPart,
    /// `None` if there are too many.
    keys: Option<Vec<i64>>,
    /// The least and the greatest key.
    ends: Option<(i64, i64)>,
    /// The number of keys at which they are next made distinct.
    distinct_at: usize,
    memory: MemoryReservation,
}

impl KeyCollector for FillingAll {
    fn add(&mut self, parts: &[ArrayRef]) -> bool {
        self.parts
            .iter_mut()
            .all(|filling| parts.get(filling.part.place).is_some_and(|values| filling.add(values)))
    }

    fn finish(self: Box<Self>) {
        let is_empty = self.parts.iter().any(|part| part.ends.is_none());
        let conditions = match is_empty {
            true => vec![lit(false)],
            false => self.parts.into_iter().flat_map(Filling::conditions).collect(),
        };
        self.sink.fill(conditions);
    }
}

impl Filling {
    /// Adds the keys in `values`; false if they are no integers.
    fn add(&mut self, values: &ArrayRef) -> bool {
        if values.null_count() == values.len() {
            return true;
        }
        self.reserve(values.len());
        let (mut least, mut greatest) = self.ends.unwrap_or((i64::MAX, i64::MIN));
        let mut keys = self.keys.as_mut();
        let is_integer = each_integer(values, |key| {
            (least, greatest) = (least.min(key), greatest.max(key));
            if let Some(keys) = &mut keys {
                keys.push(key);
            }
        });
        self.ends = Some((least, greatest));
        if let Some(keys) = self.keys.take_if(|keys| keys.len() >= self.distinct_at) {
            let keys = IntegerSet::distinct(keys);
            self.distinct_at = keys.len().saturating_mul(2).max(DISTINCT_AFTER);
            self.keys = Some(keys).filter(|keys| keys.len() <= KEYS_MAX);
            if self.keys.is_none() {
                self.memory.free();
            }
        }
        is_integer
    }

    /// What a probe side's row with a match satisfies.
    fn conditions(self) -> Vec<Arc<dyn PhysicalExpr>> {
        let Some((least, greatest)) = self.ends else { return Vec::new() };
        let part = self.part;
        let bounds =
            [part.compared(Operator::GtEq, least), part.compared(Operator::LtEq, greatest)];
        let mut conditions: Vec<_> = bounds.into_iter().flatten().collect();
        if let Some(keys) = self.keys {
            let set_bytes = IntegerSet::size(least, greatest, keys.len());
            if set_bytes <= SET_BYTES_MAX && self.memory.try_grow(set_bytes).is_ok() {
                let memory = Some(Arc::new(self.memory));
                conditions.push(KeySetExpr::charged_to(memory, part.operand, keys));
            }
        }
        conditions
    }

    /// Makes room for so many more keys; without memory for them, gives the keys up.
    fn reserve(&mut self, count: usize) {
        let Some(keys) = &mut self.keys else { return };
        let wanted = keys.len() + count;
        if wanted <= keys.capacity() {
            return;
        }
        let capacity = wanted.max(keys.capacity() * 2);
        if self.memory.try_resize(capacity * size_of::<i64>()).is_ok() {
            keys.reserve_exact(capacity - keys.len());
        } else {
            self.keys = None;
            self.memory.free();
        }
    }
}

/// Calls `take` with each of `values` but NULLs; false if they are no integers.
fn each_integer(values: &ArrayRef, take: impl FnMut(i64)) -> bool {
    fn each<T: ArrowPrimitiveType>(values: &ArrayRef, mut take: impl FnMut(i64))
    where
        T::Native: Into<i64>,
    {
        let values = values.as_primitive::<T>();
        match values.null_count() {
            0 => values.values().iter().for_each(|value| take((*value).into())),
            _ => values.iter().flatten().for_each(|value| take(value.into())),
        }
    }
    match values.data_type() {
        DataType::Int16 => each::<Int16Type>(values, take),
        DataType::Int32 => each::<Int32Type>(values, take),
        DataType::Int64 => each::<Int64Type>(values, take),
        DataType::Date32 => each::<Date32Type>(values, take),
        _ => return false,
    }
    true
}

#[cfg(test)]
mod tests;
