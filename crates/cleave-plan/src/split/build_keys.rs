//! How many rows a scan keeps once the joins above it know their keys: what is known of their build sides in, a share out.
//!
//! A join whose build side has so many different keys leaves, of a probe side with more of them, that share: each key is
//! taken to have equally many rows, and all keys of the build side to be among those of the probe side.

use std::sync::Arc;

use cleave_fragment::TableScanExec;
use datafusion_physical_expr::PhysicalExpr;
use datafusion_physical_expr::expressions::Column;
use datafusion_physical_expr::utils::collect_columns;
use datafusion_physical_plan::ExecutionPlan;
use datafusion_physical_plan::joins::HashJoinExec;
use datafusion_physical_plan::statistics::{StatisticsArgs, StatisticsContext};

use super::CutContext;

/// A key of a hash join: the name of its column on the probe side, and how many of them the build side has.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct BuildKeys {
    probe_column: String,
    distinct_count: f64,
}

impl BuildKeys {
    /// The keys that `plan`, if it is a join, hands down to its input at `place`.
    pub(super) fn above(plan: &Arc<dyn ExecutionPlan>, place: usize) -> Vec<Self> {
        let Some(join) = plan.downcast_ref::<HashJoinExec>().filter(|_| place == 1) else {
            return Vec::new();
        };
        let build = join.left();
        let statistics = StatisticsContext::new().compute(build.as_ref(), &StatisticsArgs::new());
        let Ok(statistics) = statistics else { return Vec::new() };
        let Some(row_count) = statistics.num_rows.get_value() else { return Vec::new() };
        let keys = join.on().iter().filter_map(|(build, probe)| {
            let (build, probe) = (build.downcast_ref::<Column>()?, probe.downcast_ref::<Column>()?);
            let column = statistics.column_statistics.get(build.index());
            let known = column.and_then(|column| column.distinct_count.get_value());
            let distinct_count = known.map_or(*row_count, |known| *known.min(row_count));
            let probe_column = probe.name().to_owned();
            Some(Self { probe_column, distinct_count: (distinct_count as f64).max(1.0) })
        });
        keys.collect()
    }
}

/// Share of its rows that `scan` keeps once its dynamic filters hold the keys of the joins above; None: nothing is known
/// of one of them.
pub(super) fn filters_keep(
    scan: &TableScanExec,
    keys: &[BuildKeys],
    context: &dyn CutContext,
) -> Option<f64> {
    if scan.dynamic_filters().is_empty() {
        return None;
    }
    let shares = scan.dynamic_filters().iter().map(|filter| keep(filter, scan, keys, context));
    shares.product()
}

/// The nearest join that has a column of `filter` as its key tells; of several keys, the one that keeps least.
fn keep(
    filter: &Arc<dyn PhysicalExpr>,
    scan: &TableScanExec,
    keys: &[BuildKeys],
    context: &dyn CutContext,
) -> Option<f64> {
    // What a filter that no join has filled yet is about, its children say.
    let columns = filter.children().into_iter().flat_map(collect_columns);
    let shares = columns.filter_map(|column| {
        let key = keys.iter().rev().find(|key| key.probe_column == column.name())?;
        let distinct_count = context.distinct_count(scan, column.name())?;
        Some((key.distinct_count / distinct_count.max(1.0)).min(1.0))
    });
    shares.min_by(f64::total_cmp)
}
