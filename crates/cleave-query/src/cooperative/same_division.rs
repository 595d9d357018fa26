//! Whether the rows of a fragment lie where another table has them: the fragment and a table that is divided by values
//! in, yes or no out.
//!
//! ```text
//!   INSERT INTO b SELECT id, v FROM a     a: hash (id) on nas, san; b: hash (id) on nas, san: each device has its own
//! ```
//!
//! The tablet of a row follows from its key alone ([`TabletKey`](cleave_store::TabletKey)). So it is enough that the
//! key of the table is that of the fragment's only scan, as it is there, and that both tables are divided among the
//! same devices in the same way.

use std::sync::Arc;

use cleave_catalog::catalog::division::Division;
use cleave_catalog::catalog::{TableState, TabletState};
use cleave_fragment::TableScanExec;
use cleave_store::ColumnRef;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::filter::FilterExec;
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
/// computed, or rows come through another operator than filters and projections.
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
    let filter = plan.downcast_ref::<FilterExec>()?;
    let below: Option<Vec<usize>> = match filter.projection() {
        Some(kept) => places.into_iter().map(|place| kept.get(place).copied()).collect(),
        None => Some(places),
    };
    scanned(filter.input(), below?)
}
