//! UPDATE of many rows by a fragment that replaces them: it writes their new versions as pages of new rows, and none of
//! them comes to the host.
//!
//! 1. [`run`] is for statements whose pages cannot have versions
//!    ([update fragments](super::update_fragment)): they change a column of an index, or the table has long values. Its
//!    table has one tablet.
//! 2. The query for VIDs and whole new rows is planned as one fragment ([`plan_replacing`]). If it cannot be, or rows
//!    on the host are expected to be the cheaper way, the statement runs [as ever](super::modify).
//! 3. The table is locked EXCLUSIVE and becomes the transaction's own, as for every change of very many rows
//!    ([`many`]): readers go on, writers wait, and the VIDs of the new rows are known before the fragment
//!    begins.
//! 4. The rows that end, as the fragment reports them, die; its pages are added with the keys of all indexes
//!    ([`insert_pages`]). A key of a unique index that is there already, or comes twice, fails the statement.
//!
//! Rows get new VIDs, as rows that the host updates do: entries of indexes stay valid for older snapshots, and no
//! reader compares an entry with its row. A value that its column refuses, a broken check, and a device that refuses
//! send the statement back to the rows. Source: Update NDP, section 4.

use std::collections::BTreeSet;
use std::sync::Arc;

use cleave_catalog::activity::Act;
use cleave_catalog::catalog::TableState;
use cleave_catalog::error::Result;
use cleave_catalog::settings::UpdatePlacement;
use cleave_engine::delta::Live;
use cleave_engine::write::change_pages::TabletChange;
use cleave_engine::write::insert_pages::{self, PageTarget};
use cleave_query::cooperative::replacing::{Replaced, ReplacingQuery, plan_replacing};
use cleave_query::select::{ALL_VIDS, ExplainedChange, QueryRequest, ReadView, Target};
use cleave_sql::statement::Parameters;
use cleave_sql::statement::defaults::is_volatile;
use cleave_sql::statement::modify::{Action, Modify};

use super::block::Taken;
use super::block::many;
use super::block::own;
use super::insert_fragment::may_pay;
use super::transaction_locks::LOCKED_ROWS_MAX;
use super::update_fragment::placement::{Placement, figures};
use super::update_fragment::{Done, Ran, checked_rows, constants};
use super::{Session, definitions, foreign_keys, identity};

/// Runs `modify`, which reads `view`, by a fragment if it may and that pays.
///
/// # Errors
/// Those of its expressions, locks and devices; a key that is there already.
pub(super) async fn run(
    session: &mut Session,
    view: &ReadView,
    table: &TableState,
    asked: (&Modify, &Parameters),
) -> Result<Ran> {
    let modify = asked.0;
    if !may_replace(session, table, modify) || !many::may_move(session, table.schema.table_id) {
        return Ok(Ran::ByRows);
    }
    identity::check_update(table, modify.assignments())?;
    // The rows that end are on pages.
    let view = match view.state.shipped.is_empty() {
        true => view.clone(),
        // The snapshot that a block keeps stays as it is.
        false if session.reads_snapshot() => return Ok(Ran::ByRows),
        false => session.view_with_keys().await?,
    };
    let Ok(table) = view.state.find_writable_table(&modify.table) else { return Ok(Ran::Again) };
    let planned = Box::pin(planned(session, &view, table, asked)).await?;
    let Some((query, placement)) = planned else { return Ok(Ran::ByRows) };
    if !placement.is_by_pages() {
        return Ok(Ran::ByRows);
    }
    let shown = match session.measuring {
        Some(_) => Some(shown(table, &query, &placement)?),
        None => None,
    };
    let is_own = own::begin_own(session);
    let mut ran = Ran::ByRows;
    let taken = match Box::pin(replace(session, &view, table, &query)).await {
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
    // A commit that came too late has left nothing.
    if let Taken::Again = Box::pin(own::end_own(session, is_own, taken)).await?
        && let Ran::Done(_) = ran
    {
        return Ok(Ran::Again);
    }
    if let (Ran::Done(done), Some(shown), Some(measuring)) = (&ran, shown, &session.measuring) {
        measuring.put_change(shown, figures(done.count, 1));
    }
    Ok(ran)
}

/// Whether a fragment may be the way in which `modify` replaces rows.
pub(super) fn is_considered(session: &Session, modify: &Modify) -> bool {
    let names = session.names();
    names.table(&modify.table).is_some_and(|table| may_replace(session, table, modify))
}

/// How `modify` replaces rows of `table`, which is as `view` has it, for EXPLAIN; None: it can do so by rows alone.
///
/// # Errors
/// Those of planning.
pub(super) async fn explained(
    session: &Session,
    view: &ReadView,
    table: &TableState,
    asked: (&Modify, &Parameters),
) -> Result<Option<ExplainedChange>> {
    if !may_replace(session, table, asked.0) || !view.state.shipped.is_empty() {
        return Ok(None);
    }
    let planned = Box::pin(planned(session, view, table, asked)).await?;
    planned.map(|(query, placement)| shown(table, &query, &placement)).transpose()
}

fn shown(
    table: &TableState,
    query: &ReplacingQuery,
    placement: &Placement,
) -> Result<ExplainedChange> {
    let fragments = match placement.is_by_pages() {
        true => vec![(query.shown()?, query.estimates())],
        false => Vec::new(),
    };
    let what = format!("Update of {} by a fragment that replaces rows", table.schema.name);
    Ok(ExplainedChange { what, fragments, placement: placement.ways("new", "the table") })
}

fn may_replace(session: &Session, table: &TableState, modify: &Modify) -> bool {
    let Action::Update(assignments) = &modify.action else { return false };
    let [tablet] = table.tablets.as_slice() else { return false };
    let is_plain = modify.returning.is_empty()
        && session.view_of_parts().is_none()
        && !session.references.is_running
        && table.damaged.is_empty()
        && foreign_keys::keeps_keys(session, table, modify);
    let is_asked = session.in_force().update_placement == UpdatePlacement::Device;
    let is_large = is_asked || table.row_count() > LOCKED_ROWS_MAX as u64;
    if !is_plain || !is_large || !may_pay(session, tablet.device) {
        return false;
    }
    let mut in_index = false;
    for assignment in assignments {
        let place = table.schema.column_index(&assignment.column);
        let Some(column) = place.and_then(|place| table.schema.columns.get(place)) else {
            return false;
        };
        let mut of_indexes = table.indexes.iter().flat_map(|index| &index.columns);
        in_index |= of_indexes.any(|of_index| of_index.column == column.id);
        let in_division = table.division.columns().contains(&column.id);
        let is_default = assignment.value.is_none();
        if in_division || assignment.of_row.is_some() || is_default && is_volatile(column) {
            return false;
        }
    }
    let mut pages = tablet.heap.iter().flat_map(|segment| &segment.pages);
    in_index || pages.any(|page| !page.overflow.is_empty())
}

/// The fragment of the statement, and the choice; None: there is none, or its rows are few.
async fn planned(
    session: &Session,
    view: &ReadView,
    table: &TableState,
    (modify, parameters): (&Modify, &Parameters),
) -> Result<Option<(ReplacingQuery, Placement)>> {
    let Some(constants) = constants(session, table, modify)? else { return Ok(None) };
    let all: BTreeSet<usize> = (0..table.schema.columns.len()).collect();
    let (needed, checked) = checked_rows(session, table, (&all, constants, None)).await?;
    let query = modify.query_of(&table.schema, Some(&needed))?;
    let target = Some(Target { table: modify.table.clone(), tablet: 0, vids: ALL_VIDS });
    let view = ReadView { target, ..view.clone() };
    let asked = QueryRequest { query: &query, parameters, view: Some(&view) };
    let (database, settings) = (session.database.queries(), session.in_force());
    let rows = (&table.schema, &checked);
    let Some(query) = Box::pin(plan_replacing(database, settings, asked, rows)).await? else {
        return Ok(None);
    };
    let asked = settings.update_placement;
    let rows = query.row_estimate();
    if asked != UpdatePlacement::Device && rows <= LOCKED_ROWS_MAX as f64 {
        return Ok(None);
    }
    let cost = query.cost().await?;
    Ok(Some((query, Placement { rows, cost, asked, by_pages: true, by_keys: false })))
}

/// Runs the fragment, and makes what it reports the transaction's.
async fn replace(
    session: &mut Session,
    view: &ReadView,
    table: &TableState,
    query: &ReplacingQuery,
) -> Result<Ran> {
    let (schema, device) = (&table.schema, query.device());
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
    let settings = session.shared_settings();
    let target = PageTarget::begin(&mut definition.edit, &settings, schema, device)?;
    let Some(target) = target else { return Ok(Ran::ByRows) };
    let claim = definition.edit.claim(device);
    let Some(Replaced { inserted, ended }) = query.run(&claim, target).await? else {
        return Ok(Ran::ByRows);
    };
    session.database.activity().note(Act::UpdateFragment);
    if let Some(measuring) = &session.measuring {
        measuring.note_fragments(query.take_figures());
    }
    let by = (device, &claim);
    let ended = TabletChange { place: 0, columns: &[], pages: ended, space: None };
    let count = definition.change_pages(schema, by, ended)?;
    insert_pages::add(&mut definition.edit, &settings, schema, vec![inserted]).await?;
    definitions::end_definition(session, definition).await?;
    Ok(Ran::Done(Done { count, returned: None }))
}
