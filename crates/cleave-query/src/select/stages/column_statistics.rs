//! What is known of the columns of a stage before anybody has looked at its rows.
//!
//! ```text
//!  x AS (SELECT item, count(*) FROM sale WHERE day > … GROUP BY item)
//!    item      the only key of groups              as many different values as rows
//!    count     computed                            nothing
//!  y AS (SELECT item, note FROM sale WHERE day > …)
//!    item      of a table, some of whose rows      the different values that so many rows are expected to have
//! ```
//!
//! How many rows there are, NULLs, and the ends of each column are counted: zone maps of the stage's pages say them.
//! Common values and a histogram are those of the table where all of its rows are there.

use cleave_catalog::catalog::TableState;
use cleave_plan::{ColumnStatistics, TableStatistics};
use cleave_store::Column;
use datafusion::datasource::source_as_provider;
use datafusion::logical_expr::{LogicalPlan, TableScan};

use crate::select::origins::below;
use crate::select::statement_context::{StatementContext, column_facts};
use crate::select::table_provider::CleaveTable;

/// What is known of the columns of `table`, whose rows are those of `plan` in the statement of `context`.
pub(super) fn of_rows(
    context: &StatementContext,
    plan: &LogicalPlan,
    table: &TableState,
) -> TableStatistics {
    let columns = table.schema.columns.iter().enumerate();
    let columns = columns.filter_map(|(index, column)| {
        let rows = Rows { table, column };
        Some((column.id, of_column(context, (plan, index), &rows)?))
    });
    TableStatistics {
        row_count: table.row_count(),
        columns: columns.collect(),
        ..TableStatistics::default()
    }
}

/// A column of a stage.
struct Rows<'a> {
    table: &'a TableState,
    column: &'a Column,
}

impl Rows<'_> {
    /// Statistics of it with `distinct_count` values of `average_width` bytes.
    fn with(&self, distinct_count: f64, average_width: f64) -> ColumnStatistics {
        let facts = column_facts(self.table, self.column);
        let row_count = self.table.row_count();
        ColumnStatistics {
            row_count,
            null_fraction: facts.null_fraction.unwrap_or(0.0),
            distinct_count: distinct_count.min(row_count as f64).max(1.0),
            average_width,
            min: facts.min,
            max: facts.max,
            ..ColumnStatistics::default()
        }
    }
}

/// What is known of the column at `index` of the rows of `plan`; None: nothing.
fn of_column(
    context: &StatementContext,
    (plan, index): (&LogicalPlan, usize),
    rows: &Rows<'_>,
) -> Option<ColumnStatistics> {
    let (mut at, mut is_whole) = ((plan, index), true);
    // Each step goes down: a plan has an end.
    loop {
        match at {
            (LogicalPlan::TableScan(scan), index) => {
                is_whole &= scan.filters.is_empty() && scan.fetch.is_none();
                return of_scan(context, (scan, index), is_whole, rows);
            }
            (LogicalPlan::Aggregate(groups), 0) if groups.group_expr.len() == 1 => {
                let width = rows.column.column_type.arrow().primitive_width();
                return Some(rows.with(rows.table.row_count() as f64, width.unwrap_or(0) as f64));
            }
            (LogicalPlan::Projection(_) | LogicalPlan::SubqueryAlias(_), _) => {}
            _ => is_whole = false,
        }
        at = below(at.0, at.1)?;
    }
}

/// The same of the column at `index` of what `scan` reads, which has all rows of its table if it `is_whole`.
fn of_scan(
    context: &StatementContext,
    (scan, index): (&TableScan, usize),
    is_whole: bool,
    rows: &Rows<'_>,
) -> Option<ColumnStatistics> {
    let provider = source_as_provider(&scan.source).ok()?;
    let base = provider.downcast_ref::<CleaveTable>()?;
    base.plain_name()?;
    let base = base.table_state();
    let name = scan.projected_schema.fields().get(index)?.name();
    let column = base.schema.column(name)?;
    let (here, there) = (rows.table.row_count() as f64, base.row_count() as f64);
    let distinct = context.distinct_values(base, column)?;
    let known = context.statistics(base);
    let known = known.as_ref().and_then(|known| known.columns.get(&column.id));
    let width = known.map_or(0.0, |known| known.average_width);
    let made = rows.with(values_of_share(distinct, here / there.max(1.0), there), width);
    let Some(known) = known.filter(|_| is_whole && here == there) else { return Some(made) };
    let (common, histogram) = (known.common.clone(), known.histogram.clone());
    Some(ColumnStatistics { sampled_count: known.sampled_count, common, histogram, ..made })
}

/// How many of `distinct` values a `share` of `row_count` rows, taken at random, is expected to have.
fn values_of_share(distinct: f64, share: f64, row_count: f64) -> f64 {
    let rows_of_each = row_count / distinct.max(1.0);
    distinct * (1.0 - (1.0 - share.clamp(0.0, 1.0)).powf(rows_of_each))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_of_rows_has_few_values_of_a_key_and_most_of_a_kind() {
        // A key has as many values as rows.
        assert!((values_of_share(1e6, 0.01, 1e6) - 1e4).abs() < 1.0);
        assert!((values_of_share(100.0, 0.01, 1e6) - 100.0).abs() < 1e-6);
        assert!((values_of_share(5e5, 0.5, 1e6) - 3.75e5).abs() < 1.0);
        assert_eq!(values_of_share(10.0, 7.0, 100.0), 10.0);
    }
}
