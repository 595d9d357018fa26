//! Offers scans an index for the keys of the joins above them: a plan in, offers for its inputs out.
//!
//! A hash join hands the keys of its build side down to the scans of its probe side while it runs. Where such a column
//! is the first one of an index, the scan is offered the index; it uses it once it knows the keys, on its own side, if
//! that pays then ([`cleave_fragment::index_filter`]). Nothing is read here, and nothing of the plan changes.
//!
//! Deliberately absent: keys of expressions; further columns of an index, whose keys come one by one and not in pairs;
//! a scan for which conditions have chosen an index already.

use cleave_fragment::walk::Walk;
use std::collections::BTreeSet;
use std::sync::Arc;

use cleave_catalog::catalog::TableState;
use cleave_catalog::settings::When;
use cleave_fragment::TableScanExec;
use cleave_store::ColumnRef;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::Result;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::joins::HashJoinExec;

use super::planned_input::OfferedIndex;
use super::statement_context::StatementContext;

/// Pages that a scan must have before an index is offered: a single page is read in any case, unless zone maps rule it
/// out.
const PAGES_MIN: usize = 2;
/// A larger index is not offered: the names of its pages would take more than what a scan may save.
const INDEX_PAGES_MAX: usize = 1 << 14;

/// Offers indexes to the scans of `plan`.
///
/// # Errors
/// Those of walking the plan.
pub(super) fn offer_indexes(
    plan: &Arc<dyn ExecutionPlan>,
    context: &StatementContext,
) -> Result<()> {
    let setting = context.settings().index_scan;
    if setting == When::Never {
        return Ok(());
    }
    let mut handed_down = BTreeSet::new();
    plan.apply(|node| {
        if let Some(join) = node.downcast_ref::<HashJoinExec>() {
            let filters = join.dynamic_expressions_produced();
            handed_down.extend(filters.iter().filter_map(|filter| filter.expression_id()));
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    plan.apply(|node| {
        if let Some(scan) = node.downcast_ref::<TableScanExec>() {
            let filters = scan.dynamic_filters().iter();
            let of_joins = filters.filter(|filter| {
                filter.expression_id().is_some_and(|id| handed_down.contains(&id))
            });
            let columns: BTreeSet<u32> =
                of_joins.flat_map(|filter| key_columns(filter, scan)).collect();
            offer(scan, &columns, setting == When::Always, context)?;
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(())
}

/// The columns of the table that a filter has keys of.
fn key_columns(filter: &Arc<dyn PhysicalExpr>, scan: &TableScanExec) -> Vec<u32> {
    let output = &scan.scan().output.columns;
    let column =
        |key: &Arc<dyn PhysicalExpr>| match output.get(key.downcast_ref::<Column>()?.index())? {
            ColumnRef::User(id) => Some(*id),
            _ => None,
        };
    filter.children().into_iter().filter_map(column).collect()
}

/// Offers the indexes of `scan`'s table whose first column is one of `columns`.
fn offer(
    scan: &TableScanExec,
    columns: &BTreeSet<u32>,
    always: bool,
    context: &StatementContext,
) -> Result<()> {
    if columns.is_empty() {
        return Ok(());
    }
    let number = scan.scan().input;
    let input = context.input(number)?.input;
    if input.pages_left() < PAGES_MIN && !always {
        return Ok(());
    }
    let table = &input.table;
    for definition in &table.indexes {
        let first = definition.columns.first().map(|column| column.column);
        let Some(first) = first.filter(|first| columns.contains(first)) else { continue };
        if page_count(table, definition.id).is_none_or(|count| count > INDEX_PAGES_MAX) {
            continue;
        }
        let rows_per_key = rows_per_key(table, first, context);
        let definition = Arc::clone(definition);
        context.offer_index(number, OfferedIndex { definition, rows_per_key, always });
    }
    Ok(())
}

/// Pages of the index `id`; None: a tablet lacks it.
fn page_count(table: &TableState, id: u32) -> Option<usize> {
    let of_tablet = |index: &Arc<cleave_catalog::index::TabletIndex>| {
        index.runs().map(|run| run.pages.len()).sum::<usize>()
    };
    table.tablets.iter().map(|tablet| tablet.index(id).map(of_tablet)).sum()
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an estimate")]
fn rows_per_key(table: &TableState, column: u32, context: &StatementContext) -> u64 {
    let column = table.schema.column_by_id(column);
    let distinct = column.and_then(|column| context.distinct_values(table, column));
    distinct.map_or(0, |distinct| (table.row_count() as f64 / distinct.max(1.0)).ceil() as u64)
}
