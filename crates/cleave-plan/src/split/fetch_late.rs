//! Late materialisation: wide columns that joins only carry become references, and are fetched above the joins for the
//! rows that are left.
//!
//! ```text
//!   HashJoinExec                            FetchColumnsExec: b [note]
//!     TableScanExec: a [x]         ─▶         HashJoinExec
//!     TableScanExec: b [x, note]                TableScanExec: a [x]
//!                                               TableScanExec: b [x, row]
//! ```
//!
//! For each scan of a fragment, from the scan upwards through operators that carry rows on (inner hash joins, filters,
//! projections):
//!
//! 1. which of its columns no key, condition or computed column reads ([`Carried`]);
//! 2. whether fetching them later pays ([`pays`]), by rows and bytes;
//! 3. the operators without these columns, with a reference in their place ([`reduced`]), and above them a
//!    [`FetchColumnsExec`] that puts the columns where they were.
//!
//! Invariant: the output has the same schema, so that nothing above it changes.
//!
//! Source: hybridNDP §4.4: row cache and pointer cache.

use cleave_fragment::operators::table_scan_exec::References;
use cleave_fragment::walk::Walk;
use std::collections::BTreeSet;
use std::sync::Arc;

use cleave_fragment::{FetchColumnsExec, FetchedColumns, RecursionExec, TableScanExec};
use datafusion_common::arrow::datatypes::Schema;
use datafusion_common::tree_node::{Transformed, TransformedResult, TreeNodeRecursion};
use datafusion_common::{JoinSide, JoinType, Result, internal_err};
use datafusion_physical_expr::PhysicalExpr;
use datafusion_physical_expr::expressions::Column;
use datafusion_physical_expr::projection::ProjectionExpr;
use datafusion_physical_plan::ExecutionPlan;
use datafusion_physical_plan::execution_plan::replace_children_if_necessary;
use datafusion_physical_plan::filter::{FilterExec, FilterExecBuilder};
use datafusion_physical_plan::joins::HashJoinExec;
use datafusion_physical_plan::joins::utils::{ColumnIndex, JoinFilter};
use datafusion_physical_plan::projection::ProjectionExec;

use super::When;
use super::shape_of::type_bytes;

/// At most one in so many rows is left.
const ROWS_TO_ONE_LEFT: f64 = 4.0;
/// Bytes of a row that are fetched later, at least.
const ROW_BYTES_MIN: f64 = 24.0;
/// Fewer rows are not worth it.
const ROWS_MIN: f64 = 10_000.0;

/// A scan whose columns are fetched late.
pub(super) struct Referring {
    pub(super) input: u32,
    /// Its columns that still come out, in order.
    pub(super) kept: Vec<usize>,
}

/// `plan`, of a fragment, with the columns of those scans fetched late for which that pays. `rows` tells those expected
/// of each operator, in preorder, and is asked only where something could be fetched late; `wanted` says which columns
/// of a scan others look at.
pub(super) fn fetch_late(
    plan: Arc<dyn ExecutionPlan>,
    setting: When,
    rows: &dyn Fn() -> Vec<f64>,
    wanted: &dyn Fn(u32) -> BTreeSet<usize>,
) -> Result<(Arc<dyn ExecutionPlan>, Vec<Referring>)> {
    let mut found = Vec::new();
    if setting == When::Never {
        return Ok((plan, found));
    }
    let mut chains = Vec::new();
    let mut number = 0;
    find_chains(&plan, &mut Vec::new(), &mut number, &mut chains);
    let is_asked = setting == When::WherePays && !chains.is_empty();
    let rows = if is_asked { rows() } else { Vec::new() };
    let mut plan = plan;
    for Chain { input, top_rows, scan_rows } in chains {
        let rows_of = |place: usize| rows.get(place).copied().unwrap_or(0.0);
        let (top_rows, scan_rows) = (rows_of(top_rows), rows_of(scan_rows));
        let mut changed = None;
        let is_worth = |bytes: f64| {
            setting == When::Always
                || (bytes >= ROW_BYTES_MIN
                    && scan_rows >= ROWS_MIN
                    && top_rows * ROWS_TO_ONE_LEFT <= scan_rows)
        };
        plan = at_top(plan, input, &mut |top| {
            let done = fetched_above(&top, input, &wanted(input), &is_worth)?;
            Ok(match done {
                Some(Rewritten { plan, kept }) => {
                    changed = Some(Referring { input, kept });
                    plan
                }
                None => top,
            })
        })?;
        found.extend(changed);
    }
    Ok((plan, found))
}

/// A scan below a join, with the places of it and of the topmost operator that carries its rows on.
struct Chain {
    input: u32,
    top_rows: usize,
    scan_rows: usize,
}

/// Whether rows of inputs of `plan` come out of it with columns as they are.
fn carries(plan: &dyn ExecutionPlan) -> bool {
    if let Some(join) = plan.downcast_ref::<HashJoinExec>() {
        return *join.join_type() == JoinType::Inner && join.fetch().is_none();
    }
    plan.fetch().is_none() && (plan.is::<FilterExec>() || plan.is::<ProjectionExec>())
}

fn find_chains(
    plan: &Arc<dyn ExecutionPlan>,
    above: &mut Vec<(usize, bool)>,
    number: &mut usize,
    chains: &mut Vec<Chain>,
) {
    let place = *number;
    *number += 1;
    if let Some(scan) = plan.downcast_ref::<TableScanExec>() {
        let has_join = above.iter().any(|(_, is_join)| *is_join);
        if let (Some((top, _)), true, None) = (above.first(), has_join, scan.scan().fetch) {
            chains.push(Chain { input: scan.scan().input, top_rows: *top, scan_rows: place });
        }
        return;
    }
    let mut fresh = Vec::new();
    let above = if carries(plan.as_ref()) { above } else { &mut fresh };
    let is_carrier = carries(plan.as_ref());
    if is_carrier {
        above.push((place, plan.is::<HashJoinExec>()));
    }
    let found = chains.len();
    for input in plan.children() {
        find_chains(input, above, number, chains);
    }
    if plan.is::<RecursionExec>() {
        // Each round would read its pages again, and keep their places.
        chains.truncate(found);
    }
    if is_carrier {
        above.pop();
    }
}

/// `plan` with `change` at the topmost operator of those that carry the rows of the scan of `input` without a break.
fn at_top(
    plan: Arc<dyn ExecutionPlan>,
    input: u32,
    change: &mut dyn FnMut(Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>>,
) -> Result<Arc<dyn ExecutionPlan>> {
    if is_carried(&plan, input) {
        return change(plan);
    }
    let mut changed = false;
    let mut inputs = Vec::new();
    for child in plan.children() {
        let placed = at_top(Arc::clone(child), input, change)?;
        changed |= !Arc::ptr_eq(child, &placed);
        inputs.push(placed);
    }
    if changed { replace_children_if_necessary(plan, inputs) } else { Ok(plan) }
}

/// Whether all operators from `plan` to the scan of `input` carry rows on, and one of them is there.
fn is_carried(plan: &Arc<dyn ExecutionPlan>, input: u32) -> bool {
    carries(plan.as_ref())
        && plan.children().into_iter().any(|child| {
            child.downcast_ref::<TableScanExec>().is_some_and(|scan| scan.scan().input == input)
                || is_carried(child, input)
        })
}

/// Where the columns of a scan are in the output of an operator, and which of them it or one below it looks at.
struct Carried {
    /// For each column of the output, the scan's column that it is.
    origin: Vec<Option<usize>>,
    looked_at: BTreeSet<usize>,
}

impl Carried {
    fn look_at(&mut self, expr: &Arc<dyn PhysicalExpr>, of: &[Option<usize>]) -> Result<()> {
        expr.apply(|expr| {
            if let Some(column) = expr.downcast_ref::<Column>() {
                self.looked_at.extend(of.get(column.index()).copied().flatten());
            }
            Ok(TreeNodeRecursion::Continue)
        })?;
        Ok(())
    }
}

/// What `plan` carries of the scan of `input`; None: that is not below it.
fn carried(plan: &Arc<dyn ExecutionPlan>, input: u32) -> Result<Option<Carried>> {
    if let Some(scan) = plan.downcast_ref::<TableScanExec>() {
        let columns = scan.scan().output.columns.len();
        let origin = (0..columns).map(Some).collect();
        let is_it = scan.scan().input == input && scan.scan().references == References::None;
        return Ok(is_it.then(|| Carried { origin, looked_at: BTreeSet::new() }));
    }
    if !carries(plan.as_ref()) {
        return Ok(None);
    }
    for (place, child) in plan.children().into_iter().enumerate() {
        let Some(mut carried) = carried(child, input)? else { continue };
        let below = std::mem::take(&mut carried.origin);
        if let Some(join) = plan.downcast_ref::<HashJoinExec>() {
            for (left, right) in join.on() {
                carried.look_at(if place == 0 { left } else { right }, &below)?;
            }
            let side = if place == 0 { JoinSide::Left } else { JoinSide::Right };
            for index in join.filter().iter().flat_map(|filter| filter.column_indices()) {
                if index.side == side {
                    carried.looked_at.extend(below.get(index.index).copied().flatten());
                }
            }
            let other = join.children()[1 - place].schema().fields().len();
            let none = vec![None; other];
            let all = if place == 0 { [below, none].concat() } else { [none, below].concat() };
            carried.origin = match &join.projection {
                Some(places) => {
                    places.iter().map(|place| all.get(*place).copied().flatten()).collect()
                }
                None => all,
            };
        } else if let Some(filter) = plan.downcast_ref::<FilterExec>() {
            carried.look_at(filter.predicate(), &below)?;
            carried.origin = match filter.projection() {
                Some(places) => {
                    places.iter().map(|place| below.get(*place).copied().flatten()).collect()
                }
                None => below,
            };
        } else if let Some(projection) = plan.downcast_ref::<ProjectionExec>() {
            for ProjectionExpr { expr, .. } in projection.expr() {
                match expr.downcast_ref::<Column>() {
                    Some(column) => {
                        carried.origin.push(below.get(column.index()).copied().flatten());
                    }
                    None => {
                        carried.look_at(expr, &below)?;
                        carried.origin.push(None);
                    }
                }
            }
        }
        return Ok(Some(carried));
    }
    Ok(None)
}

/// An operator that fetches columns above others, and the columns that a scan among those keeps.
struct Rewritten {
    plan: Arc<dyn ExecutionPlan>,
    kept: Vec<usize>,
}

/// `top` without columns of the scan of `input` that can be fetched above it, which they are; and the columns that
/// stay. None: there are none, or it is not worth it.
fn fetched_above(
    top: &Arc<dyn ExecutionPlan>,
    input: u32,
    wanted: &BTreeSet<usize>,
    is_worth: &dyn Fn(f64) -> bool,
) -> Result<Option<Rewritten>> {
    let Some(Carried { origin, looked_at }) = carried(top, input)? else { return Ok(None) };
    let Some(scan) = scan_of(top, input) else { return Ok(None) };
    let output = &scan.scan().output;
    let late: BTreeSet<usize> = origin
        .iter()
        .copied()
        .flatten()
        .filter(|column| !looked_at.contains(column) && !wanted.contains(column))
        .collect();
    let fields: Vec<_> =
        late.iter().filter_map(|column| output.schema.fields().get(*column)).cloned().collect();
    let bytes: f64 = fields.iter().map(|field| type_bytes(field.data_type())).sum();
    if late.is_empty() || !is_worth(bytes) {
        return Ok(None);
    }
    let kept: Vec<usize> =
        (0..output.columns.len()).filter(|column| !late.contains(column)).collect();
    let Some(Reduced { plan, map, reference }) = reduced(top, input, &kept)? else {
        return internal_err!("a scan that is no longer there");
    };
    let width = plan.schema().fields().len();
    let places = map.iter().zip(&origin).map(|(place, origin)| match (place, origin) {
        (Some(place), _) => Some(*place),
        (None, Some(column)) => late.iter().position(|late| late == column).map(|at| width + at),
        (None, None) => None,
    });
    let Some(places) = places.collect::<Option<Vec<usize>>>() else {
        return internal_err!("a column that was lost on its way up");
    };
    let columns = late.iter().filter_map(|column| output.columns.get(*column)).copied().collect();
    let fetched = FetchedColumns {
        table: scan.scan().table.clone(),
        input,
        columns: output.others(Arc::new(Schema::new(fields)), columns),
        reference,
        schema: top.schema(),
        places,
    };
    Ok(Some(Rewritten { plan: Arc::new(FetchColumnsExec::new(plan, fetched)?), kept }))
}

fn scan_of(plan: &Arc<dyn ExecutionPlan>, input: u32) -> Option<&TableScanExec> {
    if let Some(scan) = plan.downcast_ref::<TableScanExec>() {
        return (scan.scan().input == input).then_some(scan);
    }
    plan.children().into_iter().find_map(|child| scan_of(child, input))
}

/// An operator without the columns that are fetched late.
struct Reduced {
    plan: Arc<dyn ExecutionPlan>,
    /// For each column of before, where it is now.
    map: Vec<Option<usize>>,
    /// Where the references are.
    reference: usize,
}

/// `plan` over the scan of `input` with only the columns `kept`, and references.
fn reduced(plan: &Arc<dyn ExecutionPlan>, input: u32, kept: &[usize]) -> Result<Option<Reduced>> {
    if let Some(scan) = plan.downcast_ref::<TableScanExec>() {
        if scan.scan().input != input {
            return Ok(None);
        }
        let columns = 0..scan.scan().output.columns.len();
        let map = columns.map(|column| kept.iter().position(|kept| *kept == column)).collect();
        let plan = Arc::new(scan.referring(kept));
        return Ok(Some(Reduced { plan, map, reference: kept.len() }));
    }
    for (place, child) in plan.children().into_iter().enumerate() {
        let Some(below) = reduced(child, input, kept)? else { continue };
        if let Some(join) = plan.downcast_ref::<HashJoinExec>() {
            return reduced_join(join, place, below).map(Some);
        }
        if let Some(filter) = plan.downcast_ref::<FilterExec>() {
            let projection = filter.projection().as_ref().map(|places| places.to_vec());
            let all = 0..child.schema().fields().len();
            let places: Vec<usize> = projection.unwrap_or_else(|| all.collect());
            let (map, projection, reference) = projected(&places, &below.map, below.reference);
            let predicate = moved(filter.predicate(), &below.map)?;
            let filter = FilterExecBuilder::new(predicate, below.plan)
                .with_default_selectivity(filter.default_selectivity())
                .with_batch_size(filter.batch_size())
                .apply_projection(Some(projection))?;
            return Ok(Some(Reduced { plan: Arc::new(filter.build()?), map, reference }));
        }
        if let Some(projection) = plan.downcast_ref::<ProjectionExec>() {
            let (mut map, mut exprs) = (Vec::new(), Vec::new());
            for ProjectionExpr { expr, alias } in projection.expr() {
                let column = expr.downcast_ref::<Column>();
                let is_late = column.is_some_and(|column| {
                    below.map.get(column.index()).copied().flatten().is_none()
                });
                map.push((!is_late).then_some(exprs.len()));
                if !is_late {
                    let expr = moved(expr, &below.map)?;
                    exprs.push(ProjectionExpr { expr, alias: alias.clone() });
                }
            }
            let reference = exprs.len();
            let schema = below.plan.schema();
            let name = schema.field(below.reference).name();
            let expr = Arc::new(Column::new(name, below.reference));
            exprs.push(ProjectionExpr { expr, alias: name.clone() });
            let plan = Arc::new(ProjectionExec::try_new(exprs, below.plan)?);
            return Ok(Some(Reduced { plan, map, reference }));
        }
        return internal_err!("{} does not carry references", plan.name());
    }
    Ok(None)
}

fn reduced_join(join: &HashJoinExec, place: usize, below: Reduced) -> Result<Reduced> {
    let left_width = join.left().schema().fields().len();
    let right_width = join.right().schema().fields().len();
    let on = join.on().iter().map(|(left, right)| {
        Ok(match place {
            0 => (moved(left, &below.map)?, Arc::clone(right)),
            _ => (Arc::clone(left), moved(right, &below.map)?),
        })
    });
    let on = on.collect::<Result<Vec<_>>>()?;
    let side = if place == 0 { JoinSide::Left } else { JoinSide::Right };
    let filter = join.filter().map(|filter| {
        let indices = filter.column_indices().iter().map(|index| {
            if index.side != side {
                return Ok(index.clone());
            }
            match below.map.get(index.index).copied().flatten() {
                Some(index) => Ok(ColumnIndex { index, side }),
                None => internal_err!("a condition of a join looks at what is fetched late"),
            }
        });
        let indices = indices.collect::<Result<Vec<_>>>()?;
        let (expr, schema) = (Arc::clone(filter.expression()), Arc::clone(filter.schema()));
        Ok::<_, datafusion_common::DataFusionError>(JoinFilter::new(expr, indices, schema))
    });
    let filter = filter.transpose()?;
    let new_width = below.plan.schema().fields().len();
    let (map, reference): (Vec<Option<usize>>, usize) = match place {
        0 => {
            let right = (0..right_width).map(|place| Some(new_width + place));
            (below.map.iter().copied().chain(right).collect(), below.reference)
        }
        _ => {
            let moved = below.map.iter().map(|place| place.map(|place| left_width + place));
            ((0..left_width).map(Some).chain(moved).collect(), left_width + below.reference)
        }
    };
    let all = 0..left_width + right_width;
    let places: Vec<usize> =
        join.projection.as_ref().map_or_else(|| all.collect(), |places| places.to_vec());
    let (map, projection, reference) = projected(&places, &map, reference);
    let (left, right) = match place {
        0 => (below.plan, Arc::clone(join.right())),
        _ => (Arc::clone(join.left()), below.plan),
    };
    let plan = join
        .builder()
        .with_new_children(vec![left, right])?
        .with_on(on)
        .with_filter(filter)
        .with_projection(Some(projection))
        .recompute_properties()
        .reset_state()
        .build_exec()?;
    Ok(Reduced { plan, map, reference })
}

/// Of an output that has these columns in this order, where each is, which come out, and where references are behind
/// them.
fn projected(
    places: &[usize],
    map: &[Option<usize>],
    reference: usize,
) -> (Vec<Option<usize>>, Vec<usize>, usize) {
    let (mut now, mut projection) = (Vec::new(), Vec::new());
    for place in places {
        let there = map.get(*place).copied().flatten();
        now.push(there.map(|_| projection.len()));
        projection.extend(there);
    }
    let at = projection.len();
    projection.push(reference);
    (now, projection, at)
}

/// `expr` with its columns where they are now.
pub(super) fn moved(
    expr: &Arc<dyn PhysicalExpr>,
    map: &[Option<usize>],
) -> Result<Arc<dyn PhysicalExpr>> {
    Arc::clone(expr)
        .transform_down(|expr| {
            let Some(column) = expr.downcast_ref::<Column>() else {
                return Ok(Transformed::no(expr));
            };
            match map.get(column.index()).copied().flatten() {
                Some(place) => {
                    let moved = Arc::new(Column::new(column.name(), place)) as _;
                    Ok(Transformed::new(moved, true, TreeNodeRecursion::Jump))
                }
                None => internal_err!("{column} is looked at, and fetched late"),
            }
        })
        .data()
}
