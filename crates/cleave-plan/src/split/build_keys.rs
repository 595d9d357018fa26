//! Estimates how many rows a scan keeps once the joins above it have its keys: their build sides in, a share out.
//!
//! A join whose build side has n distinct keys leaves, of a probe side with m > n of them, n/m of its rows: each key is
//! taken to have equally many rows, and all keys of the build side to be among those of the probe side. Beyond the
//! number that crosses as a set, keys go down as a Bloom filter, which lets a share of the other rows through.

use std::sync::Arc;

use cleave_fragment::TableScanExec;
use cleave_fragment::expressions::key_filter::expected_false_share;
use cleave_fragment::expressions::key_set::KEY_LIST_COUNT_MAX;
use datafusion_physical_expr::PhysicalExpr;
use datafusion_physical_expr::expressions::Column;
use datafusion_physical_plan::ExecutionPlan;
use datafusion_physical_plan::joins::HashJoinExec;
use datafusion_physical_plan::statistics::{StatisticsArgs, StatisticsContext};

use super::CutContext;

/// The keys that a hash join hands down.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct BuildKeys {
    pub(super) filter: u64,
    /// Of each key, the distinct values that statistics know of on the build side; None: they do not.
    distinct_counts: Vec<Option<f64>>,
    /// Rows expected of the build side: statistics end at a join, the planner's estimates do not.
    row_estimate: f64,
}

impl BuildKeys {
    /// The keys that `plan`, if it is a join, hands down to its probe side, where `row_estimate` rows are expected of
    /// its build side.
    pub(super) fn of(plan: &Arc<dyn ExecutionPlan>, row_estimate: f64) -> Option<Self> {
        let join = plan.downcast_ref::<HashJoinExec>()?;
        let filter = join.dynamic_expressions_produced().first()?.expression_id()?;
        let build = join.left();
        let statistics = StatisticsContext::new().compute(build.as_ref(), &StatisticsArgs::new());
        let statistics = statistics.ok();
        let distinct_counts = join.on().iter().map(|(build, _)| {
            let statistics = statistics.as_ref()?;
            let row_count = statistics.num_rows.get_value()?;
            let column = statistics.column_statistics.get(build.downcast_ref::<Column>()?.index());
            let known = column.and_then(|column| column.distinct_count.get_value());
            let distinct_count = known.map_or(*row_count, |known| *known.min(row_count));
            Some((distinct_count as f64).max(1.0))
        });
        Some(Self { filter, distinct_counts: distinct_counts.collect(), row_estimate })
    }

    /// Different keys, as far as the counts of their parts tell: at least as many as of each part.
    pub(super) fn key_count(&self) -> Option<f64> {
        self.distinct_counts.iter().copied().flatten().max_by(f64::total_cmp)
    }
}

/// Share of its rows that `scan` keeps once `filters`, of its dynamic ones, hold the keys of the joins above; None:
/// nothing is known of any. One of which nothing is known, such as an aggregate's bound, is taken to keep all.
pub(super) fn filters_keep(
    scan: &TableScanExec,
    filters: &[Arc<dyn PhysicalExpr>],
    keys: &[BuildKeys],
    context: &dyn CutContext,
) -> Option<f64> {
    let shares = filters.iter().filter_map(|filter| keep(filter, scan, keys, context));
    shares.reduce(|one, other| one * other)
}

/// Different keys, one at least, that rows of `scan` have in what `filter` asks of them: of several columns as many as
/// of the one that has most; None: not known.
pub(super) fn distinct_keys(
    filter: &Arc<dyn PhysicalExpr>,
    scan: &TableScanExec,
    context: &dyn CutContext,
) -> Option<f64> {
    let counts = filter.children().into_iter().filter_map(|key| {
        let column = key.downcast_ref::<Column>()?;
        context.distinct_count(scan, column.name())
    });
    counts.max_by(f64::total_cmp).map(|count| count.max(1.0))
}

/// Of several keys, the one that keeps least.
fn keep(
    filter: &Arc<dyn PhysicalExpr>,
    scan: &TableScanExec,
    keys: &[BuildKeys],
    context: &dyn CutContext,
) -> Option<f64> {
    let id = filter.expression_id()?;
    let keys = keys.iter().find(|keys| keys.filter == id)?;
    // A filter's children are what the keys of the probe side are here, in the join's order.
    let shares = filter.children().into_iter().zip(&keys.distinct_counts).filter_map(
        |(key, build_count)| {
            let column = key.downcast_ref::<Column>()?;
            let distinct_count = context.distinct_count(scan, column.name())?;
            // Each row has one key at most.
            let expected = keys.row_estimate.max(1.0);
            let build_count = build_count.map_or(expected, |known| known.min(expected));
            let share = (build_count / distinct_count.max(1.0)).min(1.0);
            Some(share + (1.0 - share) * false_share(build_count))
        },
    );
    shares.min_by(f64::total_cmp)
}

/// Share of the rows without a key that a scan is taken to keep.
fn false_share(key_count: f64) -> f64 {
    if key_count <= KEY_LIST_COUNT_MAX as f64 { 0.0 } else { expected_false_share(key_count) }
}
