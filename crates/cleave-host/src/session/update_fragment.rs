//! UPDATE and DELETE of many rows by an update fragment: pages change where they lie, and rows never come to the host.
//!
//! 1. [`run`] asks whether the statement may: what it sets is in no index and no foreign key, and fragments are
//!    expected to be the cheaper way ([`placement`]).
//! 2. The query for VIDs and new values is planned for each tablet as one fragment ([`plan_changes`]); or the host
//!    [finds the rows](found_rows), and sends them to a fragment. If neither can be, the statement runs
//!    [as ever](super::modify).
//! 3. It runs [beside writers](beside_writers) of other rows: its fragments lock rows, and its page versions are put
//!    into the newest version of the table by COMMIT.
//! 4. Where that cannot be done, and with `update_locking = table`, the table is locked EXCLUSIVE and
//!    becomes the transaction's own, as for every change of very many rows ([`many`](super::block::many)): readers go
//!    on, writers wait. What the fragments report becomes the transaction's version of the table, which COMMIT puts in
//!    place.
//! 5. Later statements and fragments of the transaction read either like any table; ROLLBACK drops it.
//!
//! For RETURNING the fragments return rows beside their reports ([`returned_rows`]).
//!
//! A value that its column refuses, and a page that cannot have a version, send the statement back to the rows: there
//! it fails with the error that names them, or succeeds. Source: Update NDP, section 4.

use cleave_fragment::walk::Walk;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arrow::array::{RecordBatch, StringArray};
use cleave_catalog::activity::Act;
use cleave_catalog::catalog::TableState;
use cleave_catalog::catalog::rules::Check;
use cleave_catalog::error::Result;
use cleave_catalog::settings::{UpdateLocking, UpdatePlacement};
use cleave_engine::delta::Live;
use cleave_engine::device::shared_locks::row_object;
use cleave_engine::write::change_pages::TabletChange;
use cleave_engine::write::settled_pages::{rows_from, unsettled_from};
use cleave_fragment::{ChangedColumns, LockWaitPolicy, RowsToLock, read_changed, read_returned};
use cleave_query::check_constraints::compiled_checks;
use cleave_query::cooperative::changing::{
    Changes, ChangingQuery, CheckedRows, NewValue, plan_changes,
};
use cleave_query::select::{QueryRequest, ReadView, Target};
use cleave_sql::statement::Parameters;
use cleave_sql::statement::assigned::quoted_text;
use cleave_sql::statement::conform::converted;
use cleave_sql::statement::defaults::{default_array, is_volatile};
use cleave_sql::statement::modify::{Action, Modify};
use cleave_store::Projection;
use datafusion::common::ScalarValue;
use datafusion::common::tree_node::Transformed;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::utils::collect_columns;

use self::found_rows::Candidate;
use self::placement::{Candidates, Way};
use self::returned_rows::{ReturnedRows, returned_columns};
use super::block::Taken;
use super::block::many;
use super::block::own;
use super::changing_with::is_shared_by_parts;
use super::transaction_locks::LOCKED_ROWS_MAX;
use super::{Outcome, Session, definitions, foreign_keys, identity};

mod beside_writers;
mod found_rows;
pub(super) mod placement;
mod returned_rows;

/// What became of the statement.
pub(super) enum Ran {
    /// It is done.
    Done(Done),
    /// The view is no longer the newest, and the statement starts again.
    Again,
    /// It is to make its rows itself.
    ByRows,
}

/// What a statement has done.
#[derive(Debug)]
pub(super) struct Done {
    /// The rows that have changed.
    pub(super) count: u64,
    /// For RETURNING.
    pub(super) returned: Option<Outcome>,
}

impl Done {
    /// The outcome of `modify`.
    pub(super) fn outcome(self, modify: &Modify) -> Outcome {
        let done = || Outcome::done(format!("{} {}", modify.name(), self.count));
        self.returned.unwrap_or_else(done)
    }
}

/// Runs `modify`, which reads `view`, by fragments if it may and that pays.
///
/// # Errors
/// Those of its expressions, locks and devices.
pub(super) async fn run(
    session: &mut Session,
    view: &ReadView,
    table: &TableState,
    (modify, parameters): (&Modify, &Parameters),
) -> Result<Ran> {
    let Some(places) = changed_places(session, table, modify) else { return Ok(Ran::ByRows) };
    let setting = session.in_force().update_placement;
    if setting == UpdatePlacement::Host || is_small(session, table) {
        return Ok(Ran::ByRows);
    }
    identity::check_update(table, modify.assignments())?;
    let read = read_by_fragments(session, view, modify).await?;
    let Some((view, vids_below)) = read else { return Ok(Ran::ByRows) };
    let Ok(table) = view.state.find_writable_table(&modify.table) else { return Ok(Ran::Again) };
    let table = Arc::clone(table);
    let asked = Asked { modify, parameters, places: &places };
    let (mut way, mut ready, mut shown) = (Way::Keys, None, None);
    let fragments = table.tablets.len();
    // What is asked for, and not shown, is planned when it runs.
    if setting != UpdatePlacement::Keys || session.measuring.is_some() {
        let read = (&*table, vids_below.as_slice());
        let candidates = Box::pin(Candidates::of(session, &view, read, asked, false)).await?;
        let Some(mut candidates) = candidates else { return Ok(Ran::ByRows) };
        way = candidates.placement.way();
        if way == Way::Rows {
            return Ok(Ran::ByRows);
        }
        if session.measuring.is_some() {
            shown = Some(placement::shown(session, &table, modify, &mut candidates)?);
        }
        let fragments = match way {
            Way::Pages => candidates.queries.map(Fragments::Whole),
            _ => candidates.known.map(Fragments::OfFound),
        };
        let read = view.clone();
        ready = fragments.map(|fragments| Ready { fragments, view: read, vids_below });
    }
    let ran = Box::pin(by_fragments(session, &view, &table, asked, (way, ready))).await?;
    if let Ran::Done(done) = &ran
        && !modify.assignments().is_empty()
    {
        session.database.analyses.note_changed(table.schema.table_id, done.count);
    }
    if let (Ran::Done(done), Some(shown), Some(measuring)) = (&ran, shown, &session.measuring) {
        measuring.put_change(shown, placement::figures(done.count, fragments));
    }
    Ok(ran)
}

/// A statement and the places of the columns that it sets.
#[derive(Clone, Copy)]
struct Asked<'a> {
    modify: &'a Modify,
    parameters: &'a Parameters,
    places: &'a BTreeSet<usize>,
}

/// Fragments that are planned before anything is locked.
struct Ready {
    fragments: Fragments,
    /// What they read,
    view: ReadView,
    /// and in each tablet below which VID.
    vids_below: Vec<u64>,
}

/// The fragments of a statement, one for each tablet.
enum Fragments {
    /// They find their rows.
    Whole(Vec<ChangingQuery>),
    /// The host finds these.
    OfFound(Vec<Candidate>),
}

impl Ready {
    /// Its fragments, if they read the pages of `view` that begin below `vids_below`: no VID stands for all.
    fn over(self, view: &ReadView, vids_below: &[u64]) -> Option<Fragments> {
        let end = |all: &[u64], place: usize| all.get(place).copied().unwrap_or(u64::MAX);
        let mut places = 0..self.vids_below.len().max(vids_below.len());
        // What was read is noted for the same transaction.
        let notes = |view: &ReadView| view.reads.as_ref().map(Arc::as_ptr);
        let is_same = Arc::ptr_eq(&self.view.state, &view.state)
            && notes(&self.view) == notes(view)
            && places.all(|place| end(&self.vids_below, place) == end(vids_below, place));
        is_same.then_some(self.fragments)
    }
}

/// The fragments of a statement that changes rows in `way`, over the pages that begin with a VID below that in
/// `vids_below`, or over all; None: one cannot be made. Those that are `ready` are taken if they read the same.
async fn queries_for(
    session: &Session,
    view: &ReadView,
    (table, vids_below): (&TableState, &[u64]),
    asked: Asked<'_>,
    (way, ready): (Way, Option<Ready>),
) -> Result<Option<Vec<ChangingQuery>>> {
    let read = (table, vids_below);
    let candidates = match ready.and_then(|ready| ready.over(view, vids_below)) {
        Some(Fragments::Whole(queries)) => return Ok(Some(queries)),
        Some(Fragments::OfFound(candidates)) => Some(candidates),
        None if way == Way::Keys => {
            Box::pin(found_rows::candidates(session, view, read, asked)).await?
        }
        None => return Box::pin(planned(session, view, read, asked)).await,
    };
    let Some(candidates) = candidates else { return Ok(None) };
    Box::pin(found_rows::queries(session, &table.schema, asked, candidates)).await
}

/// What the fragments of `modify`, which has read `view`, are to read, and for each tablet the VID below which their
/// pages begin; none: all. The others are in memory, and have no versions: the statement changes their rows row by row,
/// if it reads nothing else. None: it changes all rows so.
async fn read_by_fragments(
    session: &mut Session,
    view: &ReadView,
    modify: &Modify,
) -> Result<Option<(ReadView, Vec<u64>)>> {
    if view.state.shipped.is_empty() {
        return Ok(Some((view.clone(), Vec::new())));
    }
    let table = view.state.find_writable_table(&modify.table)?;
    let is_beside = session.in_force().update_locking != UpdateLocking::Table;
    if is_beside
        && modify.is_of_its_rows_alone()
        && let Some(settled) = Settled::of(session, view, table)
    {
        return Ok(Some((view.clone(), settled.vids_below)));
    }
    // The snapshot that a block keeps stays as it is.
    if session.keeps_view() {
        return Ok(None);
    }
    Ok(Some((session.view_with_keys().await?, Vec::new())))
}

/// The pages of a table that can have versions.
struct Settled {
    /// For each tablet: they begin below this VID.
    vids_below: Vec<u64>,
    /// Rows behind them, dead ones included.
    rows_behind: u64,
    /// For each tablet, the end of the VIDs of committed rows.
    ends: Vec<u64>,
}

impl Settled {
    /// Those of `table` as `view` has it. None: too many rows are behind them, or the table is not in the newest
    /// catalog version.
    fn of(session: &Session, view: &ReadView, table: &TableState) -> Option<Self> {
        let id = table.schema.table_id;
        let committed = session.committed(view).table_by_id(id)?;
        let newest = session.database.live();
        let newest = newest.state.table_by_id(id)?;
        let ends: Vec<u64> = committed.tablets.iter().map(|tablet| tablet.next_vid).collect();
        let vids_below = unsettled_from(table, newest, &ends);
        let rows_behind = rows_from(table, &vids_below);
        let few = rows_behind <= LOCKED_ROWS_MAX as u64;
        few.then_some(Self { vids_below, rows_behind, ends })
    }
}

/// Whether the table has so few rows that no fragment is considered unless one is asked for.
fn is_small(session: &Session, table: &TableState) -> bool {
    let placement = session.in_force().update_placement;
    let is_asked = matches!(placement, UpdatePlacement::Device | UpdatePlacement::Keys);
    !is_asked && table.row_count() <= LOCKED_ROWS_MAX as u64
}

/// Runs the fragments of `asked`, which has read `view`: those that are `ready`, as far as they can be used.
async fn by_fragments(
    session: &mut Session,
    view: &ReadView,
    table: &TableState,
    asked: Asked<'_>,
    (way, mut ready): (Way, Option<Ready>),
) -> Result<Ran> {
    let is_beside = session.in_force().update_locking != UpdateLocking::Table;
    if is_beside
        && let Some(ran) =
            Box::pin(beside_writers::change(session, asked, (way, &mut ready))).await?
    {
        return Ok(ran);
    }
    if !many::may_move(session, table.schema.table_id) {
        return Ok(Ran::ByRows);
    }
    // A table that is the transaction's own is changed as a whole.
    let flushed = match view.state.shipped.is_empty() {
        true => None,
        false if session.keeps_view() => return Ok(Ran::ByRows),
        false => Some(session.view_with_keys().await?),
    };
    let view = flushed.as_ref().unwrap_or(view);
    let table = view.state.find_writable_table(&asked.modify.table).map(Arc::clone);
    let Ok(table) = table else { return Ok(Ran::Again) };
    let planned = queries_for(session, view, (&*table, &[]), asked, (way, ready.take()));
    let Some(queries) = Box::pin(planned).await? else { return Ok(Ran::ByRows) };
    let is_own = own::begin_own(session);
    let mut ran = Ran::ByRows;
    let taken = match Box::pin(change(session, view, &table, (asked, &queries))).await {
        Ok(Ran::Done(done)) => {
            ran = Ran::Done(done);
            Ok(Taken::Done)
        }
        Ok(other) => {
            ran = other;
            Ok(Taken::Again)
        }
        Err(error) => Err(error),
    };
    match Box::pin(own::end_own(session, is_own, taken)).await? {
        Taken::Done => Ok(ran),
        // The commit found that it was too late.
        Taken::Again if matches!(ran, Ran::Done(_)) => Ok(Ran::Again),
        Taken::Again => Ok(ran),
    }
}

/// The places of the columns that the statement sets, ascending; none for a DELETE. None: it needs its rows.
fn changed_places(
    session: &Session,
    table: &TableState,
    modify: &Modify,
) -> Option<BTreeSet<usize>> {
    if session.references.is_running || !table.damaged.is_empty() {
        return None;
    }
    // Foreign keys are checked, and their actions run, when all parts are done.
    if session.view_of_parts().is_some()
        && (is_shared_by_parts(session.parts.as_deref(), table.schema.table_id)
            || foreign_keys::is_in_references(session, table))
    {
        return None;
    }
    let Action::Update(assignments) = &modify.action else {
        return (!foreign_keys::is_in_references(session, table)).then(BTreeSet::new);
    };
    if !foreign_keys::keeps_keys(session, table, modify) {
        return None;
    }
    let mut places = BTreeSet::new();
    for assignment in assignments {
        let place = table.schema.column_index(&assignment.column)?;
        let column = table.schema.columns.get(place)?;
        let in_index = table
            .indexes
            .iter()
            .any(|index| index.columns.iter().any(|of_index| of_index.column == column.id));
        let in_division = table.division.columns().contains(&column.id);
        let is_default = assignment.value.is_none();
        // Each row has another default; a row of values is split on the host.
        if in_index
            || in_division
            || assignment.of_row.is_some()
            || is_default && is_volatile(column)
        {
            return None;
        }
        places.insert(place);
    }
    Some(places)
}

/// The fragments of the statement, one for each tablet, over the pages that begin with a VID below that in
/// `vids_below`, or over all; None: one cannot be made.
async fn planned(
    session: &Session,
    view: &ReadView,
    (table, vids_below): (&TableState, &[u64]),
    Asked { modify, parameters, places }: Asked<'_>,
) -> Result<Option<Vec<ChangingQuery>>> {
    let schema = &table.schema;
    let Some(constants) = constants(session, table, modify)? else { return Ok(None) };
    let returned = returned_columns(schema, modify);
    let asked = (places, constants, returned);
    let (needed, checked) = checked_rows(session, table, asked).await?;
    let query = modify.query_of(schema, Some(&needed))?;
    let indices: Vec<usize> = places.iter().copied().collect();
    let columns = Projection::of_table(schema, &indices);
    let mut queries = Vec::with_capacity(table.tablets.len());
    for tablet in 0..table.tablets.len() {
        let vids = 0..vids_below.get(tablet).copied().unwrap_or(u64::MAX);
        let target = Some(Target { table: modify.table.clone(), tablet, vids });
        let view = ReadView { target, ..view.clone() };
        let asked = QueryRequest { query: &query, parameters, view: Some(&view) };
        let changed = |input| ChangedColumns { input, columns: columns.clone(), returned: None };
        let (database, settings) = (session.database.queries(), session.in_force());
        let count = schema.columns.len();
        match Box::pin(plan_changes(database, settings, asked, count, (changed, &checked))).await? {
            Some(query) => queries.push(query),
            None => return Ok(None),
        }
    }
    Ok(Some(queries))
}

/// The values of columns, by their places, that the host makes once for all rows: defaults, and what is read from a
/// text in quotes. None: one cannot be, and the statement says why.
pub(super) fn constants(
    session: &Session,
    table: &TableState,
    modify: &Modify,
) -> Result<Option<BTreeMap<usize, ScalarValue>>> {
    let moment = session.moment().of_table(table.schema.table_id);
    let mut constants = BTreeMap::new();
    for assignment in modify.assignments() {
        let Some(place) = table.schema.column_index(&assignment.column) else { return Ok(None) };
        let Some(column) = table.schema.columns.get(place) else { return Ok(None) };
        let one = match &assignment.value {
            None => default_array(column, 1, &moment),
            Some(value) => match quoted_text(value) {
                Some(text) => converted(column, &(Arc::new(StringArray::from(vec![text])) as _)),
                None => continue,
            },
        };
        let Ok(one) = one else { return Ok(None) };
        constants.insert(place, ScalarValue::try_from_array(&one, 0)?);
    }
    Ok(Some(constants))
}

/// The columns that the query of the statement lists, and the checks of new rows over these: the changed columns, those
/// of the checks which name one, and those that are returned.
pub(super) async fn checked_rows(
    session: &Session,
    table: &TableState,
    (places, mut constants, returned): (
        &BTreeSet<usize>,
        BTreeMap<usize, ScalarValue>,
        Option<BTreeSet<usize>>,
    ),
) -> Result<(BTreeSet<usize>, CheckedRows)> {
    let ids = column_ids(table, places);
    let is_asked = |check: &Check| check.columns.iter().any(|id| ids.contains(id));
    let mut needed = places.clone();
    needed.extend(returned.iter().flatten());
    let mut asked = Vec::new();
    if table.rules.checks.iter().any(is_asked) {
        let compiled = compiled_checks(&session.database, table).await?;
        for (check, (_, expr)) in table.rules.checks.iter().zip(&compiled.checks) {
            if is_asked(check) {
                needed.extend(collect_columns(expr).iter().map(|column| column.index()));
                asked.push(Arc::clone(expr));
            }
        }
    }
    // The VID comes first.
    let in_query = |place: usize| needed.range(..place).count() + 1;
    let over_query = |expr: Arc<dyn PhysicalExpr>| {
        let moved = expr.transform_up(|node| {
            Ok(match node.downcast_ref::<Column>() {
                Some(column) => {
                    let place = in_query(column.index());
                    Transformed::yes(Arc::new(Column::new(column.name(), place)) as _)
                }
                None => Transformed::no(node),
            })
        });
        moved.map(|moved| moved.data)
    };
    let checks = asked.into_iter().map(over_query).collect::<Result<_, _>>()?;
    let changed = places.iter().filter_map(|place| {
        let column = table.schema.columns.get(*place)?;
        let constant = constants.remove(place);
        Some(NewValue { place: in_query(*place), column_type: column.column_type, constant })
    });
    let changed = changed.collect();
    let column_count = needed.len() + 1;
    let returned = returned.map(|places| places.into_iter().map(in_query).collect());
    Ok((needed, CheckedRows { changed, column_count, returned, checks }))
}

/// The stable ids of the columns at `places`.
fn column_ids(table: &TableState, places: &BTreeSet<usize>) -> Vec<u32> {
    let columns = places.iter().filter_map(|place| table.schema.columns.get(*place));
    columns.map(|column| column.id).collect()
}

/// The rows that a fragment of the tablet at `place` locks: those that it changes, whose VIDs come first.
fn rows_to_lock(session: &Session, table: &TableState, place: usize) -> RowsToLock {
    RowsToLock {
        table: table.schema.name.clone(),
        object: row_object(table.schema.table_id, place),
        vid: 0,
        policy: LockWaitPolicy::Block,
        timeout_ms: session.in_force().lock_timeout_ms,
    }
}

/// What the fragment of `query` has made of the tablet at `place`, of whose columns it changes `columns`; what it
/// returns goes to `returned`.
///
/// # Errors
/// For a report that cannot be read; 53200.
fn reported<'a>(
    session: &Session,
    query: &ChangingQuery,
    Changes { rows, space }: Changes,
    (place, columns): (usize, &'a [u32]),
    returned: Option<&mut ReturnedRows>,
) -> Result<TabletChange<'a>> {
    let device = query.device();
    let strange = |reason: String| device.strange_payload(&reason);
    let pages = read_changed(&rows).map_err(|error| strange(error.to_string()))?;
    let changed: usize = pages.iter().map(|page| page.slots.count_set_bits()).sum();
    if let Some(found) = query.found()
        && found != changed
    {
        return Err(strange(format!("it changes {changed} of {found} rows that it was sent")));
    }
    if let Some(returned) = returned {
        let own = read_returned(&rows).map_err(|error| strange(error.to_string()))?;
        let count: usize = own.iter().map(RecordBatch::num_rows).sum();
        if count != changed {
            return Err(strange(format!("it returns {count} of {changed} changed rows")));
        }
        returned.take((place, query), own)?;
    }
    session.database.activity().note(Act::UpdateFragment);
    if let Some(measuring) = &session.measuring {
        measuring.note_fragments(query.take_figures());
    }
    Ok(TabletChange { place, columns, pages, space })
}

/// Runs the fragments, and makes what they report the transaction's.
async fn change(
    session: &mut Session,
    view: &ReadView,
    table: &TableState,
    (Asked { modify, parameters, places }, queries): (Asked<'_>, &[ChangingQuery]),
) -> Result<Ran> {
    let schema = &table.schema;
    let Some(mut definition) = many::begin_moving(session, schema).await? else {
        return Ok(Ran::ByRows);
    };
    if definition.has_folded() {
        // Own rows in the view have changed.
        definitions::end_definition(session, definition).await?;
        return Ok(Ran::Again);
    }
    let [read, now] =
        [&view.state, definition.before()].map(|state| Live::flushed(Arc::clone(state)));
    if !read.has_same_table(&now, schema.table_id) {
        return Ok(Ran::Again);
    }
    let columns = column_ids(table, places);
    let mut returned = ReturnedRows::of(session, table, modify);
    let mut count = 0;
    for (place, query) in queries.iter().enumerate() {
        let device = Arc::clone(query.device());
        let claim = definition.edit.claim(&device);
        let Some(changes) = query.run(&claim).await? else { return Ok(Ran::ByRows) };
        let place = (place, columns.as_slice());
        let change = reported(session, query, changes, place, returned.as_mut())?;
        count += definition.change_pages(schema, (&device, &claim), change)?;
    }
    definitions::end_definition(session, definition).await?;
    let returned = match returned {
        Some(rows) => Some(rows.outcome(session, (modify, parameters), view).await?),
        None => None,
    };
    Ok(Ran::Done(Done { count, returned }))
}
