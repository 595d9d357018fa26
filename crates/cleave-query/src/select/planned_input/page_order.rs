//! The order in which a scan below a top-k reads its pages: a plan in, the leading column of its inputs out.
//!
//! Zones tell which pages have the first values of the column by which the top-k sorts first. Read first, they tighten
//! its bound at once, and that rules out most of the others. Read in the order of the table, the newest rows would come
//! last, and every row before them would have been among the newest so far.
//!
//! Invariant: the order changes time, and which of several equal rows a top-k takes, as does the number of threads.

use cleave_fragment::walk::Walk;
use std::collections::BTreeMap;
use std::sync::Arc;

use cleave_fragment::TableScanExec;
use cleave_store::{AbsentValues, ColumnRef, ZoneEntry, zone_arrays};
use datafusion::arrow::array::Array;
use datafusion::arrow::compute::{SortOptions, rank};
use datafusion::arrow::datatypes::DataType;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::Result;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::sorts::sort::SortExec;

use super::PlannedInput;
use crate::select::statement_context::StatementContext;

/// The column by which a top-k sorts first, and its order.
#[derive(Debug, Clone)]
pub(in crate::select) struct LeadingColumn {
    id: u32,
    data_type: DataType,
    options: SortOptions,
}

/// Tells the inputs of `plan` which values the top-k above them takes first.
///
/// # Errors
/// Those of walking the plan.
pub(in crate::select) fn order_pages(
    plan: &Arc<dyn ExecutionPlan>,
    context: &StatementContext,
) -> Result<()> {
    let mut orders = BTreeMap::new();
    plan.apply(|node| {
        if let Some(sort) = node.downcast_ref::<SortExec>().filter(|sort| sort.fetch().is_some()) {
            let filters = sort.dynamic_expressions_produced();
            let ids = filters.iter().filter_map(|filter| filter.expression_id());
            orders.extend(ids.map(|id| (id, sort.expr().first().options)));
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    if orders.is_empty() {
        return Ok(());
    }
    plan.apply(|node| {
        if let Some(scan) = node.downcast_ref::<TableScanExec>() {
            let mut leading = scan.dynamic_filters().iter().filter_map(|filter| {
                let options = *orders.get(&filter.expression_id()?)?;
                let key = filter.children().first()?.downcast_ref::<Column>()?.index();
                let output = &scan.scan().output;
                let ColumnRef::User(id) = *output.columns.get(key)? else { return None };
                let data_type = output.schema.fields().get(key)?.data_type().clone();
                Some(LeadingColumn { id, data_type, options })
            });
            if let Some(column) = leading.next() {
                context.begin_with(scan.scan().input, column);
            }
        }
        Ok(TreeNodeRecursion::Continue)
    })
    .map(|_| ())
}

impl PlannedInput {
    /// Lets the morsels with the first values of `column` come first.
    pub(in crate::select) fn begin_with(&mut self, column: LeadingColumn) {
        self.leading = Some(column);
    }

    /// The rank of each page by the leading column, the least first; empty if any order will do.
    pub(super) fn ranks(&self) -> Vec<u32> {
        let Some(LeadingColumn { id, data_type, options }) = &self.leading else {
            return Vec::new();
        };
        let pages: Vec<(u32, &[ZoneEntry])> = self
            .entries()
            .map(|(_, entry)| (entry.page.row_count, entry.zones.as_slice()))
            .collect();
        let absent = AbsentValues::of_table(&self.table.schema).zone(*id, data_type);
        let zones = zone_arrays(pages, *id, data_type, absent.as_ref());
        let bounds = if options.descending { &zones.maxs } else { &zones.mins };
        // What is not known may be anything, so it does not come first.
        let order = SortOptions { nulls_first: false, ..*options };
        let Ok(mut ranks) = rank(bounds, Some(order)) else { return Vec::new() };
        if options.nulls_first {
            for (page, rank) in ranks.iter_mut().enumerate() {
                let nulls = &zones.null_counts;
                if nulls.is_valid(page) && nulls.value(page) > 0 {
                    *rank = 0;
                }
            }
        }
        ranks
    }
}
