//! Join keys above a cut that may go down as a Bloom filter: which joins collect them, and when they are worth their
//! bytes.
//!
//! An exact set of keys crosses where there are up to 100,000 integers, or somewhat more that lie close together
//! ([`compact_keys`](cleave_fragment::expressions::key_set::compact_keys)). For more of them, and for keys of other
//! types or of several columns, the join's build side is read through a [`CollectKeysExec`]. The collected keys are
//! examined when the fragment is sent, when their number is known.
//!
//! Invariant: a filter that is not sent changes no rows (rule 4).

use std::sync::Arc;

use cleave_fragment::expressions::absent_key::has_absent_key;
use cleave_fragment::expressions::key_filter::{CollectedKeys, KeyFilterExpr, has_hash};
use cleave_fragment::expressions::key_set::is_integer_key;
use cleave_fragment::{CollectKeysExec, TableScanExec};
use datafusion_common::arrow::datatypes::DataType;
use datafusion_common::{NullEquality, Result};
use datafusion_physical_expr::PhysicalExpr;
use datafusion_physical_plan::joins::{HashJoinExec, PartitionMode};
use datafusion_physical_plan::{ExecutionPlan, ExecutionPlanProperties};

use super::build_keys::{BuildKeys, distinct_keys};
use super::{CutContext, When};

/// So many integers are expected to cross as an exact set, also where the estimate is far too low.
const FEW_INTEGERS: f64 = 20_000.0;
/// A filter that more of the rows pass is not worth asking.
const PASSING_MAX: f64 = 0.9;
/// Share of a scan's rows that have one of the keys, where nothing tells how many they have.
const SHARE_UNKNOWN: f64 = 0.25;

/// Keys of a join above a fragment, as a scan of it may be asked for them.
#[derive(Debug, Clone)]
pub struct KeysAbove {
    /// The join's filter among the scan's dynamic ones.
    filter: u64,
    collected: Arc<CollectedKeys>,
    /// What stands for the keys in the scan's output.
    operands: Vec<Arc<dyn PhysicalExpr>>,
    /// Different keys that the rows of the scan have.
    distinct_count: Option<f64>,
    /// Bytes of the rows that the scan puts out without them.
    scan_bytes: f64,
    is_forced: bool,
}

impl KeysAbove {
    /// The keys of `join` for `scan`, which is expected to put out `scan_bytes` and has `filter` of that join; None:
    /// they are not worth collecting.
    pub(super) fn new(
        join: &HashJoinExec,
        filter: &Arc<dyn PhysicalExpr>,
        (scan, scan_bytes): (&TableScanExec, f64),
        build_keys: &[BuildKeys],
        context: &dyn CutContext,
    ) -> Option<Self> {
        let setting = context.key_filters();
        let id = filter.expression_id()?;
        if setting == When::Never || !can_collect(join) {
            return None;
        }
        let operands: Vec<_> = filter.children().into_iter().cloned().collect();
        // A hash is of all parts of a key.
        if operands.iter().any(has_absent_key) {
            return None;
        }
        let distinct_count = distinct_keys(filter, scan, context);
        let (collected, is_forced) = (Arc::default(), setting == When::Always);
        let keys = Self { filter: id, collected, operands, distinct_count, scan_bytes, is_forced };
        let expected = build_keys.iter().find(|keys| keys.filter == id);
        let key_count = expected.and_then(|expected| expected.key_count());
        let crosses_as_set = join.on().len() == 1
            && keys_of(join).all(|data_type| data_type.is_ok_and(|of| is_integer_key(&of)))
            && key_count.is_some_and(|count| count <= FEW_INTEGERS);
        let pays = !crosses_as_set && key_count.is_none_or(|count| keys.pays(count, 0.0, 0));
        (is_forced || pays).then_some(keys)
    }

    /// Whether they are those of `filter`.
    pub fn are_of(&self, filter: &Arc<dyn PhysicalExpr>) -> bool {
        filter.expression_id() == Some(self.filter)
    }

    /// Parts of a key.
    pub fn part_count(&self) -> usize {
        self.operands.len()
    }

    /// The filter of at most so many bytes that the scan is to be asked; None: the keys are not there, or it is not
    /// worth it.
    pub fn filter(&self, bytes_max: usize) -> Option<KeyFilterExpr> {
        let filter = self.collected.filter(self.operands.clone(), bytes_max)?;
        let pays = self.pays(filter.key_count(), filter.false_share(), filter.bytes());
        (self.is_forced || pays).then_some(filter)
    }

    /// Whether a filter of so many keys and bytes leaves out rows enough, and more bytes of them than it has.
    fn pays(&self, key_count: f64, false_share: f64, bytes: usize) -> bool {
        let share = self
            .distinct_count
            .map_or(SHARE_UNKNOWN, |distinct_count| (key_count / distinct_count).min(1.0));
        let passing = share + (1.0 - share) * false_share;
        passing <= PASSING_MAX && self.scan_bytes * (1.0 - passing) > bytes as f64
    }

    /// The same keys, of the same join, for another scan or place.
    pub(super) fn collected_as(self, known: &Self) -> Self {
        Self { collected: Arc::clone(&known.collected), ..self }
    }

    /// Whether those of `other` are of the same join.
    pub(super) fn are_those(&self, other: &Self) -> bool {
        self.filter == other.filter
    }

    /// `build`, the build side of their join, on which they are collected.
    pub(super) fn collect(
        &self,
        join: &HashJoinExec,
        build: Arc<dyn ExecutionPlan>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        if build.output_partitioning().partition_count() != 1 {
            return Ok(build);
        }
        let keys = join.on().iter().map(|(key, _)| Arc::clone(key)).collect();
        Ok(Arc::new(CollectKeysExec::new(build, keys, Arc::clone(&self.collected))?))
    }
}

/// Whether the keys of `join` are all that rows of its other side can match, and have hashes.
fn can_collect(join: &HashJoinExec) -> bool {
    let probe = join.right().schema();
    let other_types = join.on().iter().map(|(_, key)| key.data_type(&probe));
    let types = keys_of(join).zip(other_types);
    *join.partition_mode() == PartitionMode::CollectLeft
        && join.null_equality() == NullEquality::NullEqualsNothing
        && !join.null_aware
        && types.into_iter().all(|types| match types {
            (Ok(one), Ok(other)) => one == other && has_hash(&one),
            _ => false,
        })
}

/// The types of the keys of the build side.
fn keys_of(join: &HashJoinExec) -> impl Iterator<Item = Result<DataType>> {
    let build = join.left().schema();
    join.on().iter().map(move |(key, _)| key.data_type(&build))
}
