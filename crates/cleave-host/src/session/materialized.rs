//! CREATE, REFRESH and DROP MATERIALIZED VIEW: a table whose rows are those of a query, as they were at the last
//! refresh.
//!
//! Everything that reads takes it for a table: it has indexes and statistics, and is cut like one. Nothing but a
//! refresh changes its rows.
//!
//! A refresh puts all rows of the query in the place of the old ones, in one commit. Writers of the view's rows are
//! other refreshes only; readers go on reading the rows of before, with and without CONCURRENTLY.
//!
//! Source: PostgreSQL's manual, "REFRESH MATERIALIZED VIEW".

use std::collections::BTreeSet;
use std::sync::Arc;

use cleave_catalog::catalog::rights::FIRST;
use cleave_catalog::catalog::view::{Materialized, ViewState};
use cleave_catalog::catalog::{CatalogState, TableState};
use cleave_catalog::error::{Error, Fault, NameKind, Result};
use cleave_catalog::settings::Settings;
use cleave_query::select::{self, QueryRequest, ReadView};
use cleave_sql::dialect::written_out;
use cleave_sql::statement::parse::{CreateMaterialized, Refresh, parse_query};
use cleave_sql::statement::{CreateTable, Parameters, parameters};
use cleave_store::TableSchema;
use cleave_txn::LockMode;

use super::define::{Filling, columns_of, emptied, table_of_rows};
use super::definitions::{self, Definition};
use super::{Outcome, Session, indexes, locking, rights, views};

/// What a refresh calls the view whose rows it reads, in a catalog version of its own.
const REFRESHED: &str = "__refreshed";

/// Runs CREATE MATERIALIZED VIEW.
pub(super) async fn create(session: &mut Session, create: CreateMaterialized) -> Result<Outcome> {
    if parameters::count(&create.query)? > 0 {
        return Err(Error::unknown(NameKind::Parameter, "$1", []));
    }
    let done = Outcome::done("CREATE MATERIALIZED VIEW");
    locking::wait_for_tables(session, &create.query).await?;
    let view = session.view().await?;
    let (query, parameters) = (&create.query, &Parameters::default());
    let described =
        select::describe(&session.database, session.in_force(), Some(&view), query, Vec::new());
    let described = Box::pin(described).await?;
    views::check_no_sequence(query, &view.state)?;
    let asked = QueryRequest { query, parameters, view: Some(&view) };
    let settings = session.shared_settings();
    let (filling, mut columns) = match create.is_populated {
        true => Filling::begin(session, &settings, asked).await?,
        false => (Filling::default(), columns_of(&described.schema)?),
    };
    views::rename_columns(&create.name, &mut columns, create.columns)?;
    let table = CreateTable {
        if_not_exists: create.if_not_exists,
        ..table_of_rows(create.name, columns, &create.options)?
    };
    let Some((mut definition, schema)) = indexes::new_table(session, table).await? else {
        return Ok(done);
    };
    let depends: BTreeSet<u32> = described.tables.iter().map(|table| table.table_id).collect();
    if depends.iter().any(|id| session.defined().is_temporary(*id)) {
        let message = "materialized views must not use temporary tables or views".to_owned();
        return Err(Error::Invalid { message, fault: Fault::Feature, position: None });
    }
    views::hold(session, &definition, &described.tables).await?;
    let mut count = None;
    if create.is_populated {
        let filled = filling.run(session, &settings, definition, (&schema, asked));
        let (filled, rows) = filled.await?;
        (definition, count) = (filled, Some(rows));
    }
    let query = Materialized {
        query: written_out(create.query.to_string()),
        sources: described.sources,
        depends: depends.into_iter().collect(),
        is_populated: create.is_populated,
    };
    mark(&mut definition, &schema.name, query)?;
    definitions::end_definition(session, definition).await?;
    Ok(count.map_or(done, |count| Outcome::done(format!("SELECT {count}"))))
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
    let schema = Arc::clone(&table.schema);
    let emptied = TableState { materialized: None, ..emptied(table) };
    if *is_populated {
        let plain = query.as_view(TableSchema::clone(&schema));
        let settings = as_owner(session, &definition.edit.next, &plain)?;
        // What it reads keeps its names until the commit.
        let below = definition.edit.next.schemas_of(&plain);
        views::hold(session, &definition, &below).await?;
        definition.edit.put_table(emptied);
        locking::wait_for_tables(session, &*parse_query(query.query.clone())?).await?;
        let view = session.view().await?;
        let seen = view.state.tables.get(name).and_then(|table| table.materialized.as_deref());
        if seen.is_none_or(|seen| (&seen.query, &seen.depends) != (&query.query, &query.depends)) {
            // The snapshot of the block has other tables than the query names.
            return Err(Error::concurrent_update());
        }
        let view = as_view(view, &schema, &query);
        let rows = parse_query(format!("SELECT * FROM {REFRESHED}"))?;
        let parameters = &Parameters::default();
        let asked = QueryRequest { query: &rows, parameters, view: Some(&view) };
        let filling = Filling::begin_in(session, &settings, (&schema, asked)).await?;
        (definition, _) = filling.run(session, &settings, definition, (&schema, asked)).await?;
    } else {
        definition.edit.put_table(emptied);
    }
    mark(&mut definition, name, Materialized { is_populated: *is_populated, ..query })?;
    definitions::end_definition(session, definition).await?;
    Ok(Outcome::done(what))
}

/// The settings of the session with the owner of `view`, who must be allowed to read what its query names, in the place
/// of its user.
fn as_owner(session: &Session, state: &CatalogState, view: &ViewState) -> Result<Arc<Settings>> {
    let owner = rights::check_view(session, state, view)?;
    let mut settings = session.in_force().clone();
    let acting = &mut settings.client.acting;
    acting.role = (owner != FIRST).then_some(owner);
    let name = state.rights.role(owner).map(|role| role.name.clone());
    acting.current = name.filter(|_| owner != FIRST);
    Ok(Arc::new(settings))
}

/// `view` with a plain view of `query`, which reads what the materialized one was made of.
fn as_view(view: ReadView, schema: &TableSchema, query: &Materialized) -> ReadView {
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
