//! `INSERT … SELECT` and `CREATE TABLE AS` of many rows by fragments: they write the rows as pages of the table, and
//! none of them comes to the host.
//!
//! 1. [`run`] asks whether the statement may: columns that it does not name have one default for all rows, and no
//!    foreign key of its table waits for COMMIT.
//! 2. The query is planned as a fragment on each device that makes rows of it ([`plan_insert`]). The tablets on each of
//!    them [must take its rows](InsertFragments::fit). If they do not, or rows on the host are expected to be the
//!    cheaper way, the statement runs [as ever](super::insert).
//! 3. A statement by itself inserts [beside](alone) the table's writers, as a load does.
//!    In a block, and with RETURNING, the table is locked EXCLUSIVE and becomes the transaction's own, as for every
//!    change of very many rows ([`many`]): readers go on, writers wait. Later statements of the transaction read the
//!    table like any other; ROLLBACK drops it. Under `update_placement = auto` rows are inserted on the host where that
//!    lock is not free.
//! 4. What the fragments report is checked, and added to the table with the keys of its indexes
//!    ([`insert_pages`]), in one change. Foreign keys are checked by a query over all rows, as for a load.
//! 5. For RETURNING the [rows](Inserted::rows) are read back from the new pages.
//!
//! Under `output_on = local` the rows are inserted by fragments, whatever that costs: a statement that cannot be run so
//! is an [error](super::output).
//!
//! A value that its column refuses, a broken check, and a device that refuses send the statement back to the rows:
//! there it fails with the error that names them, or succeeds. Source: Update NDP, section 4; CORD (output that stays
//! on the devices that compute it).

use std::sync::Arc;

use arrow::array::{Array, RecordBatch};
use arrow::compute::concat_batches;
use arrow::datatypes::Schema;
use cleave_catalog::activity::Act;
use cleave_catalog::catalog::TableState;
use cleave_catalog::error::Result;
use cleave_catalog::settings::{Settings, UpdatePlacement};
use cleave_engine::write::begun::byte_count;
use cleave_engine::write::insert_pages::{self, Destination};
use cleave_fragment::link::AttachMode;
use cleave_query::check_constraints::compiled_checks;
use cleave_query::cooperative::inserting::{
    ColumnSource, InsertFragments, InsertingQuery, plan_insert,
};
use cleave_query::select::{self, ExplainedChange, QueryRequest, ReadView, Target};
use cleave_sql::statement::assigned::check_inserted;
use cleave_sql::statement::conform::Conform;
use cleave_sql::statement::defaults::{default_array, is_volatile};
use cleave_sql::statement::modify::{assigned_items, over_target};
use cleave_sql::statement::{Insert, Parameters};
use cleave_store::TableSchema;
use cleave_txn::LockMode;
use datafusion::common::ScalarValue;
use datafusion::sql::sqlparser::ast;

use super::block::many;
use super::block::own;
use super::block::{Taken, is_alone};
use super::charge::Charge;
use super::definitions::{self, Definition};
use super::foreign_keys::load::{CheckedLoad, hold_targets};
use super::insert::conform_of;
use super::transaction_locks::{LOCKED_ROWS_MAX, table_key};
use super::update_fragment::placement::{Placement, figures};
use super::{Session, define, identity, locking, output, serializable};

/// What cannot stay where it is made.
const ROWS_ELSEWHERE: &str = "rows that devices cannot write to tablets of the table there";

/// What fragments have inserted.
#[derive(Debug)]
pub(super) struct Inserted {
    /// The number of rows.
    pub(super) count: u64,
    /// For each tablet that got some, its place, and the first VID of theirs, if they are the block's. Nobody else has
    /// inserted any since.
    from: Vec<(usize, u64)>,
}

impl Inserted {
    /// The rows, of the table that `schema` describes, as the transaction reads them, within a charge for their memory.
    ///
    /// # Errors
    /// Those of reading; 53200.
    pub(super) async fn rows(
        &self,
        session: &mut Session,
        schema: &Arc<TableSchema>,
    ) -> Result<(RecordBatch, Charge)> {
        let view = session.view().await?;
        let (charge, parameters) = (Charge::new(&session.database), Parameters::default());
        let name = ast::Ident::with_quote('"', &schema.name);
        let items = assigned_items(schema, &name, &[])?;
        let query = over_target(&name, items, Vec::new(), None)?;
        let conform = Conform::by_position(schema, &[], schema.columns.len(), session.moment())?;
        let mut all = Vec::new();
        for (tablet, first) in &self.from {
            let vids = *first..u64::MAX;
            let target = Some(Target { table: schema.name.clone(), tablet: *tablet, vids });
            // Own rows are read, of which no other transaction knows.
            let view = ReadView { target, reads: None, ..view.clone() };
            let asked = QueryRequest { query: &query, parameters: &parameters, view: Some(&view) };
            let running = select::run_query(&session.database, session.in_force(), asked);
            let mut running = Box::pin(running).await?;
            while let Some(batch) = running.next().await? {
                // The VID comes first.
                let columns: Vec<usize> = (1..batch.num_columns()).collect();
                let rows = conform.rows(&batch.project(&columns)?)?;
                charge.grow(2 * byte_count(&rows))?;
                all.push(rows);
            }
        }
        Ok((concat_batches(&schema.arrow(), &all)?, charge))
    }
}

/// Inserts the rows of `insert`, whose table `schema` describes, by fragments, if they may and that pays. None: the
/// statement is to insert its rows itself.
///
/// # Errors
/// Those of its expressions, locks and devices.
pub(super) async fn run(
    session: &mut Session,
    schema: &Arc<TableSchema>,
    (insert, parameters): (&Insert, &Parameters),
) -> Result<Option<Inserted>> {
    let names = session.names();
    let table = names.find_writable_table(&insert.table)?;
    check_output(session, table, insert)?;
    if table.schema.table_id != schema.table_id || !is_considered(session, table, insert) {
        return by_rows(session, insert);
    }
    let view = session.view().await?;
    let planned = planned(session, &view, table, (insert, parameters));
    let Some((fragments, placement)) = Box::pin(planned).await? else {
        return by_rows(session, insert);
    };
    if !placement.is_by_pages() {
        return Ok(None);
    }
    let shown = match session.measuring {
        Some(_) => Some(shown(&fragments, placement, insert)?),
        None => None,
    };
    let inserted = match insert.returning.is_empty() && is_alone(session) {
        true => Box::pin(alone(session, table, &fragments)).await?,
        false => Box::pin(in_block(session, table, &fragments)).await?,
    };
    if let (Some(inserted), Some(shown), Some(measuring)) = (&inserted, shown, &session.measuring) {
        let count = fragments.devices().count();
        measuring.put_change(shown, figures(inserted.count, count));
    }
    Ok(inserted)
}

/// How `insert` inserts its rows into `table`, for EXPLAIN; None: it can do so by rows alone.
///
/// # Errors
/// Those of planning.
pub(super) async fn explained(
    session: &Session,
    view: &ReadView,
    (insert, parameters): (&Insert, &Parameters),
) -> Result<Option<ExplainedChange>> {
    let names = session.names();
    let table = names.find_writable_table(&insert.table)?;
    check_output(session, table, insert)?;
    if !is_considered(session, table, insert) {
        return by_rows(session, insert);
    }
    let planned = Box::pin(planned(session, view, table, (insert, parameters))).await?;
    let Some((fragments, placement)) = planned else { return by_rows(session, insert) };
    shown(&fragments, placement, insert).map(Some)
}

/// Refuses `insert` into `table` where the settings have its rows elsewhere.
fn check_output(session: &Session, table: &TableState, insert: &Insert) -> Result<()> {
    match insert.source.as_ref().is_some_and(|query| is_query(query)) {
        true => output::check_table(session, table),
        false => Ok(()),
    }
}

/// The statement is to insert its rows itself, unless they were to stay where they are made.
fn by_rows<T>(session: &Session, insert: &Insert) -> Result<Option<T>> {
    let is_local = output::is_local(session.in_force());
    match is_local && insert.source.as_ref().is_some_and(|query| is_query(query)) {
        true => Err(output::not_local(ROWS_ELSEWHERE)),
        false => Ok(None),
    }
}

fn shown(
    fragments: &InsertFragments,
    placement: Placement,
    insert: &Insert,
) -> Result<ExplainedChange> {
    let by = writers(fragments);
    let fragments = match placement.is_by_pages() {
        true => vec![(fragments.shown()?, fragments.estimates())],
        false => Vec::new(),
    };
    let what = format!("Insert into {} by {by}", insert.table);
    Ok(ExplainedChange { what, fragments, placement: placement.ways("new", "the table") })
}

/// The way in which `fragments` make the rows of a new table, for EXPLAIN; `what` says what the statement does.
///
/// # Errors
/// Those of encoding them.
pub(super) fn shown_of_new(what: &str, fragments: &InsertFragments) -> Result<ExplainedChange> {
    let what = format!("{what} by {}", writers(fragments));
    let shown = vec![(fragments.shown()?, fragments.estimates())];
    Ok(ExplainedChange { what, fragments: shown, placement: Vec::new() })
}

/// Who writes the rows of `fragments`.
fn writers(fragments: &InsertFragments) -> String {
    let names: Vec<&str> = fragments.devices().map(|device| device.name()).collect();
    match names.as_slice() {
        [_] => "a fragment".to_owned(),
        names => format!("fragments that write on {}", names.join(", ")),
    }
}

/// Whether fragments may be the way in which `insert` inserts rows into `table`.
fn is_considered(session: &Session, table: &TableState, insert: &Insert) -> bool {
    let is_query = insert.source.as_ref().is_some_and(|query| is_query(query));
    let is_plain = insert.on_conflict.is_none()
        && session.view_of_parts().is_none()
        && !session.references.is_running;
    is_query
        && is_plain
        && table.damaged.is_empty()
        && table.rules.foreign_keys.iter().all(|key| !key.timing.is_deferrable())
        && (asked(session.in_force()) == UpdatePlacement::Device
            || table.tablets.iter().any(|tablet| may_pay(session, tablet.device)))
}

/// Where the settings have rows made: on devices in any case, if they are to stay there.
fn asked(settings: &Settings) -> UpdatePlacement {
    match output::is_local(settings) {
        true => UpdatePlacement::Device,
        false => settings.update_placement,
    }
}

/// Whether the query is more than rows that are written out.
pub(super) fn is_query(query: &ast::Query) -> bool {
    !matches!(query.body.as_ref(), ast::SetExpr::Values(_))
}

/// Whether the settings ask for a fragment on the device, or allow one where it may be cheaper: a device in this
/// process has the same cores, and no link.
pub(super) fn may_pay(session: &Session, device: cleave_catalog::catalog::DeviceId) -> bool {
    match session.in_force().update_placement {
        UpdatePlacement::Host | UpdatePlacement::Keys => false,
        UpdatePlacement::Device => true,
        UpdatePlacement::Auto => {
            let device = session.database.attached(device);
            device.is_ok_and(|device| device.mode() != AttachMode::Embedded)
        }
    }
}

/// Whether `settings` ask for fragments, or they may pay on one of the devices where `planned` has rows.
fn pays_somewhere(session: &Session, settings: &Settings, planned: &InsertingQuery) -> bool {
    asked(settings) == UpdatePlacement::Device
        || planned.devices().any(|device| may_pay(session, device.id()))
}

/// The fragments of `insert`, and the choice; None: there are none.
async fn planned(
    session: &Session,
    view: &ReadView,
    table: &TableState,
    (insert, parameters): (&Insert, &Parameters),
) -> Result<Option<(InsertFragments, Placement)>> {
    let Some(query) = &insert.source else { return Ok(None) };
    let (database, settings) = (session.database.queries(), session.in_force());
    let asked = QueryRequest { query, parameters, view: Some(view) };
    let planned = Box::pin(plan_insert(database, settings, asked)).await;
    let Some(planned) = planned.filter(|planned| pays_somewhere(session, settings, planned)) else {
        return Ok(None);
    };
    // Whatever is wrong with the columns, the statement finds out itself.
    let given = planned.schema();
    let Ok(conform) = conformed(session, table, (insert, query), &given) else { return Ok(None) };
    let Some(sources) = sources(&table.schema, &conform)? else { return Ok(None) };
    let mut checks = Vec::new();
    if !table.rules.checks.is_empty() {
        let compiled = compiled_checks(&session.database, table).await?;
        checks.extend(compiled.checks.iter().map(|(_, expr)| Arc::clone(expr)));
    }
    let fragments = planned.into_table(&table.schema, &sources, &checks)?;
    let Some(fragments) = fragments.filter(|fragments| fragments.fit(table)) else {
        return Ok(None);
    };
    let placement = placement(settings, &fragments, Some(table)).await?;
    Ok(placement.map(|placement| (fragments, placement)))
}

/// The choice for `fragments`, which insert into `table`, or into a new one; None: their rows are few.
async fn placement(
    settings: &Settings,
    fragments: &InsertFragments,
    table: Option<&TableState>,
) -> Result<Option<Placement>> {
    let asked = asked(settings);
    let rows = fragments.row_estimate();
    if asked != UpdatePlacement::Device && rows <= LOCKED_ROWS_MAX as f64 {
        return Ok(None);
    }
    let cost = fragments.cost(table).await?;
    Ok(Some(Placement { rows, cost, asked, by_pages: true, by_keys: false }))
}

/// How the columns of `query`, which are `given`, fill those of `table`.
fn conformed(
    session: &Session,
    table: &TableState,
    (insert, query): (&Insert, &ast::Query),
    given: &Schema,
) -> Result<Conform> {
    let (moment, count) = (session.moment(), given.fields().len());
    let mut conform = conform_of(&table.schema, insert, count, moment)?;
    check_inserted(query, &conform, given)?;
    let names = session.names();
    identity::check_insert((&names, table), insert.overriding, &mut conform, |_| false)?;
    Ok(conform)
}

/// Where the columns of `table` come from; None: each row has another default.
fn sources(table: &TableSchema, conform: &Conform) -> Result<Option<Vec<ColumnSource>>> {
    let targets = conform.targets();
    let mut sources = Vec::with_capacity(table.columns.len());
    for column in &table.columns {
        let given = targets.iter().find(|(_, target)| target.id == column.id);
        sources.push(match given {
            Some((place, _)) => ColumnSource::Query(*place),
            None if is_volatile(column) => return Ok(None),
            None => {
                let one = default_array(column, 1, conform.moment())?;
                if column.not_null && one.null_count() > 0 {
                    return Ok(None);
                }
                ColumnSource::Constant(ScalarValue::try_from_array(&one, 0)?)
            }
        });
    }
    Ok(Some(sources))
}

/// Inserts the rows of `fragments` into `table`, which writers go on writing to, and commits them.
async fn alone(
    session: &mut Session,
    table: &TableState,
    fragments: &InsertFragments,
) -> Result<Option<Inserted>> {
    let schema = &table.schema;
    // Rows on the host would wait for another load as well.
    locking::lock_loads(session, schema.table_id).await?;
    let (settings, database) = (session.shared_settings(), Arc::clone(&session.database));
    let begun = fragments.begin_beside(&database, &settings, schema)?;
    let Some((load, to)) = begun else { return no_place(&settings) };
    let Some(inserted) = fragments.run(to).await? else { return Ok(None) };
    note(session, fragments);
    Box::pin(serializable::prepare_load(session, schema.table_id)).await?;
    let check = CheckedLoad { database: &database, settings: &settings };
    let loaded = load.commit(inserted, &check).await;
    serializable::end_load(session.tracked(), &loaded);
    Ok(Some(Inserted { count: loaded?, from: Vec::new() }))
}

/// The table has no place for rows where they are made: they are inserted on the host, unless they were to stay there.
fn no_place<T>(settings: &Settings) -> Result<Option<T>> {
    match output::is_local(settings) {
        true => Err(output::not_local(ROWS_ELSEWHERE)),
        false => Ok(None),
    }
}

/// Counts `fragments`, which have run.
fn note(session: &Session, fragments: &InsertFragments) {
    fragments.devices().for_each(|_| session.database.activity().note(Act::UpdateFragment));
    if let Some(measuring) = &session.measuring {
        measuring.note_fragments(fragments.take_figures());
    }
}

/// Inserts the rows of `fragments` into `table` in the session's block, or in one of the statement's own.
async fn in_block(
    session: &mut Session,
    table: &TableState,
    fragments: &InsertFragments,
) -> Result<Option<Inserted>> {
    if !many::may_move(session, table.schema.table_id) {
        return no_place(session.in_force());
    }
    let is_own = own::begin_own(session);
    let (inserted, taken) = match Box::pin(insert(session, table, fragments)).await {
        Ok(Some(inserted)) => (Some(inserted), Ok(Taken::Done)),
        Ok(None) => (None, Ok(Taken::Again)),
        Err(error) => (None, Err(error)),
    };
    // A commit that came too late has left nothing.
    Ok(match Box::pin(own::end_own(session, is_own, taken)).await? {
        Taken::Done => inserted,
        Taken::Again => None,
    })
}

async fn insert(
    session: &mut Session,
    table: &TableState,
    fragments: &InsertFragments,
) -> Result<Option<Inserted>> {
    let schema = &table.schema;
    let settings = session.shared_settings();
    let waits = asked(&settings) == UpdatePlacement::Device;
    if !waits && !session.owns(schema.table_id) {
        session.table_mark = None;
        if !session.locks().try_lock(table_key(table), LockMode::Exclusive)? {
            return Ok(None);
        }
    }
    let Some(mut definition) = many::begin_moving(session, schema).await? else {
        return Ok(None);
    };
    if definition.has_folded() {
        // The block's earlier changes in the table must not be applied once more.
        definitions::end_definition(session, definition).await?;
        let Some(again) = many::begin_moving(session, schema).await? else { return Ok(None) };
        definition = again;
    }
    let refers = !table.rules.foreign_keys.is_empty();
    if refers {
        hold_targets(session, schema.table_id).await?;
    }
    let rows = (schema, fragments);
    let Some(inserted) = fill(session, &settings, &mut definition, rows).await? else {
        return Ok(None);
    };
    if refers {
        Box::pin(definitions::check_references(session, &definition, schema.table_id)).await?;
    }
    definitions::end_definition(session, definition).await?;
    Ok(Some(inserted))
}

/// The fragments whose rows are those of a new table, which `query` defines; None: they are loaded.
///
/// # Errors
/// Those of planning.
pub(super) async fn of_new_table(
    session: &Session,
    settings: &Settings,
    asked: QueryRequest<'_>,
) -> Result<Option<InsertFragments>> {
    if self::asked(settings) == UpdatePlacement::Host || !is_query(asked.query) {
        return Ok(None);
    }
    let database = session.database.queries();
    let planned = Box::pin(plan_insert(database, settings, asked)).await;
    let Some(planned) = planned.filter(|planned| pays_somewhere(session, settings, planned)) else {
        return Ok(None);
    };
    let Ok(columns) = define::columns_of(&planned.schema()) else { return Ok(None) };
    let sources: Vec<_> = (0..columns.len()).map(ColumnSource::Query).collect();
    let name = String::new();
    let schema = TableSchema { table_id: 0, version: 1, name, columns, primary_key: Vec::new() };
    let Some(fragments) = planned.into_table(&Arc::new(schema), &sources, &[])? else {
        return Ok(None);
    };
    let placement = placement(settings, &fragments, None).await?;
    Ok(placement.filter(Placement::is_by_pages).map(|_| fragments))
}

/// Runs `fragments`, and adds their rows to the table that `schema` describes, which `definition` has as the
/// transaction's own. None: they are to be loaded.
///
/// # Errors
/// Those of the fragments, and of a report that cannot be of this table.
pub(super) async fn fill(
    session: &Session,
    settings: &Arc<Settings>,
    definition: &mut Definition,
    (schema, fragments): (&Arc<TableSchema>, &InsertFragments),
) -> Result<Option<Inserted>> {
    let edit = &mut definition.edit;
    let Some(to) = fragments.begin(edit, settings, schema)? else { return no_place(settings) };
    let from = to.iter().flat_map(Destination::first_vids).collect();
    let Some(inserted) = fragments.run(to).await? else { return Ok(None) };
    note(session, fragments);
    let count = insert_pages::add(edit, settings, schema, inserted).await?;
    Ok(Some(Inserted { count, from }))
}
