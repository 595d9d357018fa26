//! Whether the rows of a fragment lie where another table has them: the fragment and a table that is divided by values
//! in, yes or no out.
//!
//! ```text
//!   INSERT INTO b SELECT id, v FROM a     a: hash (id) on nas, san; b: hash (id) on nas, san: each device has its own
//! ```
//!
//! The tablet of a row follows from its key alone ([`TabletKey`](cleave_store::TabletKey)). So it is enough that the
//! key of the table is that of one of the fragment's scans, as it is there, and that both tables are divided among the
//! same devices in the same way: a device scans rows of its own, whatever it joins them with or groups them by beside
//! the key.

use std::sync::Arc;

use cleave_catalog::catalog::division::Division;
use cleave_catalog::catalog::{TableState, TabletState};
use cleave_fragment::{DenseAggregateExec, TableScanExec};
use cleave_store::ColumnRef;
use datafusion::common::JoinType;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::joins::HashJoinExec;
use datafusion::physical_plan::projection::ProjectionExec;

use super::fragment_exec::FragmentPart;

/// Whether each device makes only rows of `rows`, whose columns are those of `table`, that the table has in tablets
/// there. `part` has what they are made of on one of the devices.
pub(super) fn lie_as(
    rows: &Arc<dyn ExecutionPlan>,
    part: &FragmentPart,
    table: &TableState,
) -> bool {
    let key = table.division.columns();
    if key.is_empty() {
        return false;
    }
    let place = |id: &u32| table.schema.columns.iter().position(|column| column.id == *id);
    let places: Option<Vec<usize>> = key.iter().map(place).collect();
    let Some((input, own_key)) = places.and_then(|places| scanned(rows, places)) else {
        return false;
    };
    let Some((_, source)) = part.inputs.iter().find(|(number, _)| *number == input) else {
        return false;
    };
    let source = &*source.input.table;
    let type_of = |table: &TableState, id: u32| {
        table.schema.column_by_id(id).map(|column| column.column_type.arrow())
    };
    let has_type = |(own, id): (&u32, &u32)| type_of(source, *own) == type_of(table, *id);
    let lies_there = |(own, to): (&Arc<TabletState>, &Arc<TabletState>)| own.device == to.device;
    let has_types = own_key.iter().zip(key).all(has_type);
    has_types
        && over(&table.division, own_key).as_ref() == Some(&source.division)
        && source.tablets.len() == table.tablets.len()
        && source.tablets.iter().zip(&table.tablets).all(lies_there)
}

/// `division` over the columns `key` of another table; None: values do not decide.
fn over(division: &Division, key: Vec<u32>) -> Option<Division> {
    match division {
        Division::Hash(_) => Some(Division::Hash(key)),
        Division::Range(_, bounds) => Some(Division::Range(*key.first()?, bounds.clone())),
        Division::LoadOrder | Division::RoundRobin => None,
    }
}

/// The input of the scan of `plan`, and the columns of the scanned table that those at `places` are. None: one is
/// computed, may be NULL for want of a match, or comes through another operator.
fn scanned(plan: &Arc<dyn ExecutionPlan>, places: Vec<usize>) -> Option<(u32, Vec<u32>)> {
    if let Some(scan) = plan.downcast_ref::<TableScanExec>() {
        let scan = scan.scan();
        let column = |place: usize| match scan.output.columns.get(place)? {
            ColumnRef::User(id) => Some(*id),
            ColumnRef::Vid | ColumnRef::Commit => None,
        };
        let columns: Option<Vec<u32>> = places.into_iter().map(column).collect();
        return Some((scan.input, columns?));
    }
    if let Some(projection) = plan.downcast_ref::<ProjectionExec>() {
        let below = |place: usize| {
            let column = projection.expr().get(place)?.expr.downcast_ref::<Column>()?;
            Some(column.index())
        };
        let below: Option<Vec<usize>> = places.into_iter().map(below).collect();
        return scanned(projection.input(), below?);
    }
    if let Some(aggregate) = plan.downcast_ref::<AggregateExec>() {
        let groups = aggregate.group_expr();
        // Groups come first; those of some sets have NULL in place of a value.
        let below = |place: usize| {
            let (expr, _) = groups.expr().get(place).filter(|_| !groups.has_grouping_set())?;
            Some(expr.downcast_ref::<Column>()?.index())
        };
        let below: Option<Vec<usize>> = places.into_iter().map(below).collect();
        return scanned(aggregate.input(), below?);
    }
    if let Some(dense) = plan.downcast_ref::<DenseAggregateExec>() {
        return scanned(dense.aggregate(), places);
    }
    if let Some(join) = plan.downcast_ref::<HashJoinExec>() {
        return scanned_by_join(join, places);
    }
    let filter = plan.downcast_ref::<FilterExec>()?;
    let below: Option<Vec<usize>> = match filter.projection() {
        Some(kept) => places.into_iter().map(|place| kept.get(place).copied()).collect(),
        None => Some(places),
    };
    scanned(filter.input(), below?)
}

/// As [`scanned`], of a join: its rows have the key of a row of one side.
fn scanned_by_join(join: &HashJoinExec, places: Vec<usize>) -> Option<(u32, Vec<u32>)> {
    let places: Option<Vec<usize>> = match join.projection.as_deref() {
        Some(kept) => places.into_iter().map(|place| kept.get(place).copied()).collect(),
        None => Some(places),
    };
    let (places, width) = (places?, join.left().schema().fields().len());
    let is_of_left = |place: &usize| *place < width;
    let of_right = || places.iter().map(|place| place.checked_sub(width)).collect::<Option<_>>();
    match join.join_type() {
        JoinType::Inner | JoinType::Left if places.iter().all(is_of_left) => {
            scanned(join.left(), places)
        }
        JoinType::Inner | JoinType::Right => scanned(join.right(), of_right()?),
        JoinType::LeftSemi | JoinType::LeftAnti => scanned(join.left(), places),
        JoinType::RightSemi | JoinType::RightAnti => scanned(join.right(), places),
        JoinType::Left | JoinType::Full | JoinType::LeftMark | JoinType::RightMark => None,
    }
}
