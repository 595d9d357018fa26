//! CREATE, REFRESH and DROP MATERIALIZED VIEW: a table whose rows are those of a query, as they were at the last
//! refresh.
//!
//! Everything that reads takes it for a table: it has indexes and statistics, and is cut like one. Nothing but a
//! refresh changes its rows.
//!
//! A refresh changes the rows that what it reads has changed since the last one ([`refresh_by_changes`]), or puts all
//! rows of the query in the place of the old ones, in one commit. Writers of the view's rows are other refreshes only;
//! readers go on reading the rows of before, with and without CONCURRENTLY.
//!
//! Source: PostgreSQL's manual, "REFRESH MATERIALIZED VIEW".

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use cleave_catalog::activity::Act;
use cleave_catalog::catalog::rights::FIRST;
use cleave_catalog::catalog::same_rows::TableRows;
use cleave_catalog::catalog::view::{Materialized, ViewState};
use cleave_catalog::catalog::{CatalogState, TableState};
use cleave_catalog::error::{Error, Fault, NameKind, Result};
use cleave_catalog::identifiers::quoted;
use cleave_catalog::settings::Settings;
use cleave_engine::refresh_bases::{RefreshBase, RefreshTimes};
use cleave_engine::write::begun::Begun;
use cleave_engine::write::insert::{TableChange, apply};
use cleave_media::Stopwatch;
use cleave_query::populations::Slot;
use cleave_query::select::{self, QueryRequest, ReadView};
use cleave_sql::dialect::written_out;
use cleave_sql::statement::parse::{CreateMaterialized, Refresh, parse_query};
use cleave_sql::statement::{CreateTable, Parameters, parameters};
use cleave_store::TableSchema;
use cleave_txn::LockMode;
use datafusion::sql::sqlparser::ast;
use futures::{StreamExt, stream};

use super::changed_rows::Changed;
use super::define::{Filling, columns_of, emptied, table_of_rows};
use super::definitions::{self, Definition};
use super::refresh_by_changes::ChangedRows;
use super::{Outcome, Session, indexes, locking, refresh_by_changes, rights, views};

/// What a refresh calls the view whose rows it reads, in a catalog version of its own.
const REFRESHED: &str = "__refreshed";

/// Runs CREATE MATERIALIZED VIEW.
pub(super) async fn create(session: &mut Session, create: CreateMaterialized) -> Result<Outcome> {
    if parameters::count(&create.query)? > 0 {
        return Err(Error::unknown(NameKind::Parameter, "$1", []));
    }
    let done = Outcome::done("CREATE MATERIALIZED VIEW");
    locking::wait_for_tables(session, &create.query).await?;
    let view = session.view_with_keys().await?;
    let (query, parameters) = (&create.query, &Parameters::default());
    let described =
        select::describe(&session.database, session.in_force(), Some(&view), query, Vec::new());
    let described = Box::pin(described).await?;
    views::check_no_sequence(query, &view.state)?;
    views::check_none_outside(&described.outside, false)?;
    let asked = QueryRequest { query, parameters, view: Some(&view) };
    let settings = session.shared_settings();
    // Another session cannot see what a block has changed.
    let in_background =
        create.is_populated && settings.limits.populates_in_background && session.block.is_none();
    let slot = in_background.then(|| session.database.queries().populations.take_slot()).flatten();
    let is_populated = create.is_populated && slot.is_none();
    let (filling, mut columns) = match is_populated {
        true => Filling::begin(session, &settings, asked).await?,
        false => {
            let planned = Filling::plan(session, &settings, asked).await?;
            (planned, columns_of(&described.schema)?)
        }
    };
    views::rename_columns(&create.name, &mut columns, create.columns)?;
    let mut table = CreateTable {
        if_not_exists: create.if_not_exists,
        ..table_of_rows(create.name, columns, &create.options)?
    };
    filling.place(&settings, &mut table.placement)?;
    let Some((mut definition, schema)) = indexes::new_table(session, table).await? else {
        return Ok(done);
    };
    let depends: BTreeSet<u32> = described.tables.iter().map(|table| table.table_id).collect();
    if depends.iter().any(|id| session.defined().is_temporary(*id)) {
        let message = "materialized views must not use temporary tables or views".to_owned();
        return Err(Error::Invalid { message, fault: Fault::Feature, position: None });
    }
    views::hold(session, &definition, &described.tables).await?;
    let (mut count, stopwatch) = (None, Stopwatch::start());
    if is_populated {
        let filled = filling.run(session, &settings, definition, (&schema, asked));
        let (filled, rows) = filled.await?;
        (definition, count) = (filled, Some(rows));
    }
    let query = Materialized {
        query: written_out(create.query.to_string()),
        sources: described.sources,
        depends: depends.into_iter().collect(),
        is_populated,
    };
    mark(&mut definition, &schema.name, query)?;
    if is_populated {
        let times = RefreshTimes::of_all(stopwatch.elapsed());
        hold_base(session, &definition, &schema.name, (&view, times))?;
    }
    definitions::end_definition(session, definition).await?;
    if let Some(slot) = slot {
        populate_in_background(session, slot, &schema).await;
    }
    Ok(count.map_or(done, |count| Outcome::done(format!("SELECT {count}"))))
}

/// Begins a refresh of the view that `schema` describes, which goes on while the session does. Whoever reads the view
/// waits for it. Once it has failed, the view is one without rows.
async fn populate_in_background(session: &mut Session, slot: Slot, schema: &TableSchema) {
    let name = quoted(&schema.name);
    let state = session.names();
    session.database.queries().populations.retain(|view| state.has_table_id(view));
    let population = slot.begin(schema.table_id);
    let mut other = session.beside();
    let lock =
        format!("BEGIN ISOLATION LEVEL READ COMMITTED; LOCK TABLE {name} IN ACCESS EXCLUSIVE MODE");
    if let Err(error) = other.run(&lock).await {
        return population.end(Some(error.to_string()));
    }
    let refresh = async move {
        let refresh = format!("REFRESH MATERIALIZED VIEW {name}; COMMIT");
        let failure = other.run(&refresh).await.err().map(|error| error.to_string());
        // Before the lock is released: readers that waited must find the reason.
        population.end(failure.clone());
        failure.map(|failure| format!("the materialized view {name} has no rows: {failure}"))
    };
    session.background.begin(session.runtime.as_ref(), refresh);
}

/// Holds what the materialized view `name`, as it is in `definition`, was made from: the next refresh begins there.
fn hold_base(
    session: &Session,
    definition: &Definition,
    name: &str,
    (view, times): (&ReadView, RefreshTimes),
) -> Result<()> {
    let table = definition.edit.next.find_table(name)?;
    let base = refresh_by_changes::is_plain(view)
        .then(|| RefreshBase::new(table, Arc::clone(&view.state), times))
        .flatten();
    session.database.versions.refresh_bases.put(table.schema.table_id, base);
    Ok(())
}

/// Makes the table `name` the materialized view of `query`.
fn mark(definition: &mut Definition, name: &str, query: Materialized) -> Result<()> {
    let table = TableState::clone(definition.edit.next.find_table(name)?);
    definition.edit.put_table(TableState { materialized: Some(Arc::new(query)), ..table });
    Ok(())
}

/// The materialized view `name`, and its query.
fn found<'a>(state: &'a CatalogState, name: &str) -> Result<(&'a Arc<TableState>, Materialized)> {
    if !state.has_table_named(name) && state.is_name_taken(name) {
        return Err(indexes::wrong_kind(name, "a materialized view"));
    }
    let table = state.find_table(name)?;
    match &table.materialized {
        Some(query) => Ok((table, Materialized::clone(query))),
        None => Err(indexes::wrong_kind(name, "a materialized view")),
    }
}

/// Runs REFRESH MATERIALIZED VIEW.
pub(super) async fn refresh(session: &mut Session, refresh: &Refresh) -> Result<Outcome> {
    let Refresh { name, concurrently, is_populated } = refresh;
    let (_, query) = found(&session.names(), name)?;
    if *concurrently && !is_populated {
        let message = "CONCURRENTLY and WITH NO DATA options cannot be used together".to_owned();
        return Err(Error::Invalid { message, fault: Fault::Options, position: None });
    }
    if *concurrently && !query.is_populated {
        let message = "CONCURRENTLY cannot be used when the materialized view is not populated";
        let message = message.to_owned();
        return Err(Error::Invalid { message, fault: Fault::Feature, position: None });
    }
    // Readers go on.
    let locked = (&[name.clone()][..], LockMode::Exclusive);
    let what = "REFRESH MATERIALIZED VIEW";
    let mut definition = definitions::begin_definition_in(session, what, locked, &[]).await?;
    // Another session may have made it anew.
    let (table, query) = found(&definition.edit.next, name)?;
    let (table, schema) = (Arc::clone(table), Arc::clone(&table.schema));
    let next = Materialized { is_populated: *is_populated, ..query.clone() };
    if !is_populated {
        definition.edit.put_table(writable(&emptied(&table)));
        mark(&mut definition, name, next)?;
        definitions::end_definition(session, definition).await?;
        return Ok(Outcome::done(what));
    }
    let plain = query.as_view(TableSchema::clone(&schema));
    let settings = as_owner(session, &definition.edit.next, &plain)?;
    // A view that it reads may have been replaced by one of files.
    views::check_none_outside(&select::files_below(&plain, &definition.edit.next)?, false)?;
    // What it reads keeps its names until the commit.
    let below = definition.edit.next.schemas_of(&plain);
    views::hold(session, &definition, &below).await?;
    locking::wait_for_tables(session, &*parse_query(query.query.clone())?).await?;
    let view = session.view_with_keys().await?;
    let seen = view.state.tables.get(name);
    let seen =
        seen.filter(|table| is_query_of(table, &query)).ok_or_else(Error::concurrent_update)?;
    let stopwatch = Stopwatch::start();
    // The snapshot of a block may be older than what is locked.
    let changes = match TableRows::of(&table).are_in(&view.state) {
        true => refresh_by_changes::find(session, &settings, &view, (seen, &query)).await?.ok(),
        false => None,
    };
    let rows = match &changes {
        Some(changes) if !changes.is_empty() => {
            changes.rows(session, &settings, &view, (seen, &query)).await?
        }
        _ => None,
    };
    let mut times = None;
    if let Some(rows) = rows {
        session.database.activity().note(Act::RefreshByChanges);
        definition.edit.put_table(writable(&table));
        definition = change(session, definition, (&settings, &schema), rows).await?;
        mark(&mut definition, name, next)?;
    } else if changes.as_ref().is_none_or(|changes| !changes.is_empty()) {
        let stopwatch = Stopwatch::start();
        definition.edit.put_table(writable(&emptied(&table)));
        let over = as_view(view.clone(), &schema, &query);
        let (rows, parameters) = (all_rows()?, &Parameters::default());
        let asked = QueryRequest { query: &rows, parameters, view: Some(&over) };
        let filling = Filling::begin_in(session, &settings, (&schema, asked)).await?;
        (definition, _) = filling.run(session, &settings, definition, (&schema, asked)).await?;
        mark(&mut definition, name, next)?;
        times = Some(RefreshTimes::of_all(stopwatch.elapsed()));
    }
    let elapsed = stopwatch.elapsed();
    let by_changes = changes.map(|changes| changes.times_after(elapsed));
    if let Some(times) = times.or(by_changes) {
        hold_base(session, &definition, name, (&view, times))?;
    }
    definitions::end_definition(session, definition).await?;
    Ok(Outcome::done(what))
}

/// Whether `table` is a materialized view of `query`: the snapshot of a block may have other tables than that names.
fn is_query_of(table: &TableState, query: &Materialized) -> bool {
    let seen = table.materialized.as_deref();
    seen.is_some_and(|seen| (&seen.query, &seen.depends) == (&query.query, &query.depends))
}

/// `table` as one that rows can be written to.
fn writable(table: &TableState) -> TableState {
    TableState { materialized: None, ..table.clone() }
}

/// `definition` with what a refresh has found that goes and comes of the rows of the table that `schema` describes.
async fn change(
    session: &Session,
    mut definition: Definition,
    (settings, schema): (&Arc<Settings>, &Arc<TableSchema>),
    ChangedRows { dead, new }: ChangedRows,
) -> Result<Definition> {
    let is_divided = definition.edit.next.find_table(&schema.name)?.tablets.len() > 1;
    if !is_divided {
        let rows = match new.num_rows() {
            0 => BTreeMap::new(),
            _ => BTreeMap::from([(0, Begun::from(new))]),
        };
        let change = TableChange { dead, rows, ..TableChange::new(Arc::clone(schema)) };
        definition.edit = apply(definition.edit, settings, &change).await?;
        return Ok(definition);
    }
    let ends = dead.into_iter().map(|(place, vids)| Changed {
        place,
        vids: vids.iter().collect(),
        rows: new.slice(0, 0),
        beside: None,
    });
    let rows = Changed { place: 0, vids: Vec::new(), rows: new.clone(), beside: None };
    let changed = stream::iter(ends.chain([rows]).map(Ok)).boxed();
    let checks = Arc::clone(session.database.queries());
    let replaced = definition.replace(checks, settings, schema, changed);
    Ok(Box::pin(replaced).await?.0)
}

/// What EXPLAIN says of a refresh.
///
/// # Errors
/// As [`refresh`].
pub(super) async fn explain(session: &mut Session, refresh: &Refresh) -> Result<String> {
    let Refresh { name, is_populated, .. } = refresh;
    let view = session.view_with_keys().await?;
    let (table, query) = found(&view.state, name)?;
    if !is_populated {
        return Ok(format!("Refresh of {name}: no rows"));
    }
    let plain = query.as_view(TableSchema::clone(&table.schema));
    let settings = as_owner(session, &view.state, &plain)?;
    let changes = refresh_by_changes::find(session, &settings, &view, (table, &query)).await?;
    Ok(match changes {
        Ok(changes) => format!("Refresh of {name} by changes: {}", changes.describe()),
        Err(reason) => format!("Refresh of {name}, all rows: {reason}"),
    })
}

/// The query for all rows of the view that [`as_view`] adds.
pub(super) fn all_rows() -> Result<Box<ast::Query>> {
    parse_query(format!("SELECT * FROM {REFRESHED}"))
}

/// The settings of the session with the owner of `view`, who must be allowed to read what its query names, in the place
/// of its user.
fn as_owner(session: &Session, state: &CatalogState, view: &ViewState) -> Result<Arc<Settings>> {
    let owner = rights::check_view(session, state, view)?;
    let mut settings = session.in_force().clone();
    // The view lies where it lies.
    settings.output_on.clear();
    let acting = &mut settings.client.acting;
    acting.role = (owner != FIRST).then_some(owner);
    let name = state.rights.role(owner).map(|role| role.name.clone());
    acting.current = name.filter(|_| owner != FIRST);
    Ok(Arc::new(settings))
}

/// `view` with a plain view of `query`, which reads what the materialized one was made of.
pub(super) fn as_view(view: ReadView, schema: &TableSchema, query: &Materialized) -> ReadView {
    let mut state = CatalogState::clone(&view.state);
    let own = TableSchema { name: REFRESHED.to_owned(), ..schema.clone() };
    state.views.insert(REFRESHED.to_owned(), Arc::new(query.as_view(own)));
    ReadView { state: Arc::new(state), ..view }
}

/// Runs DROP MATERIALIZED VIEW.
pub(super) async fn drop(
    session: &mut Session,
    if_exists: bool,
    names: &[String],
    cascade: bool,
) -> Result<Outcome> {
    let what = "DROP MATERIALIZED VIEW";
    let begun = views::begin_with_dependents(session, what, (names, &[]), cascade, &[]);
    let (mut definition, _) = begun.await?;
    let mut gone = BTreeSet::new();
    for name in names {
        let next = &definition.edit.next;
        if if_exists && !next.is_name_taken(name) {
            continue;
        }
        gone.insert(found(next, name)?.0.schema.table_id);
        definition.edit.drop_table(name);
    }
    views::drop_dependents(&mut definition.edit.next, &gone, cascade)?;
    if !gone.is_empty() {
        definitions::end_definition(session, definition).await?;
    }
    Ok(Outcome::done(what))
}
