//! CREATE VIEW, DROP VIEW, and the dependencies of views: a query in, a named view in the catalog out.
//!
//! A query that names a view gets the view's plan in its place before optimisation, so conditions, joins and cuts go
//! through it.
//!
//! A view stores its dependencies by id. A table or view that others depend on is dropped only with them (CASCADE). If
//! it or a column of it is renamed, their queries go on to read the old names. A column that no view's query uses can
//! be dropped and change its type.
//!
//! A view of files has the columns that they had when it was made. Its rows are read by the role that asks for them,
//! which must be one that may read files.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use cleave_catalog::catalog::CatalogState;
use cleave_catalog::catalog::view::ViewState;
use cleave_catalog::error::{Error, Fault, NameKind, Result};
use cleave_catalog::settings::Settings;
use cleave_query::select;
use cleave_query::select::ReadView;
use cleave_sql::dialect::written_out;
use cleave_sql::statement::ddl::OnCommit;
use cleave_sql::statement::files::{shown_call, text_of};
use cleave_sql::statement::names::table_name;
use cleave_sql::statement::parameters;
use cleave_sql::statement::parse::CreateView;
use cleave_sql::statement::renamed::Renamed;
use cleave_store::{Column, ColumnType, TableSchema};
use cleave_txn::LockMode;
use datafusion::sql::sqlparser::ast;

use super::define::columns_of;
use super::definitions::Definition;
use super::{Outcome, Session, definitions};
use crate::database::Database;
use cleave_sql::visiting::visit_relations;

/// Refuses a view over a sequence as a table: views depend only on ids of tables and views.
pub(super) fn check_no_sequence(query: &ast::Query, state: &CatalogState) -> Result<()> {
    let found = visit_relations(query, |name| {
        let is_sequence = |name: &String| state.sequences.contains_key(name);
        match table_name(name).ok().filter(is_sequence) {
            Some(name) => ControlFlow::Break(name),
            None => ControlFlow::Continue(()),
        }
    });
    match found {
        ControlFlow::Break(name) => {
            Err(Error::unsupported(format!("a view of the sequence \"{name}\"")))
        }
        ControlFlow::Continue(()) => Ok(()),
    }
}

/// Refuses a view over tables from outside the database: other sessions would not find them. Those who may read files
/// find them, so a view `may_read_files` that does not keep their rows.
pub(super) fn check_none_outside(outside: &[String], may_read_files: bool) -> Result<()> {
    let is_refused = |name: &&String| !may_read_files || shown_call(name).is_none();
    match outside.iter().find(is_refused) {
        Some(name) => {
            let name = shown_call(name).unwrap_or(name);
            let what = format!("a view of \"{name}\", which is not in the database,");
            let hint = "CREATE TABLE … AS SELECT takes its rows over".to_owned();
            Err(Error::Unsupported { what, hint: Some(hint), position: None })
        }
        None => Ok(()),
    }
}

/// Runs CREATE VIEW.
pub(super) async fn create_view(session: &mut Session, create: CreateView) -> Result<Outcome> {
    if parameters::count(&create.query)? > 0 {
        return Err(Error::unknown(NameKind::Parameter, "$1", []));
    }
    let name = create.name;
    let names: &[&str] = if create.is_temporary { &[] } else { &[&name] };
    let replaced: Vec<String> = create.or_replace.then(|| name.clone()).into_iter().collect();
    let mut definition =
        definitions::begin_definition(session, "CREATE VIEW", &replaced, names).await?;
    let state = Arc::new(CatalogState::clone(&definition.edit.next));
    let before = state.view(&name);
    let is_taken = match create.is_temporary {
        true => session.defined().has_temporary(&name),
        false => state.is_name_taken(&name),
    };
    if is_taken && !(create.or_replace && before.is_some()) {
        return Err(super::indexes::name_taken(&name));
    }
    let view = ReadView::of_state(Arc::clone(&state));
    let described = select::describe(
        &session.database,
        session.in_force(),
        Some(&view),
        &create.query,
        Vec::new(),
    );
    let described = Box::pin(described).await?;
    check_no_sequence(&create.query, &state)?;
    check_none_outside(&described.outside, true)?;
    let mut columns = columns_of(&described.schema)?;
    rename_columns(&name, &mut columns, create.columns)?;
    let before = before.filter(|_| is_taken);
    let (table_id, version) = match before {
        Some(before) => (before.schema.table_id, before.schema.version + 1),
        None => (definition.edit.table_id()?, 1),
    };
    let depends: BTreeSet<u32> = described.tables.iter().map(|table| table.table_id).collect();
    if depends.contains(&table_id) {
        let message = format!("view \"{name}\" would be made of itself");
        return Err(invalid(message, Fault::TableDefinition));
    }
    if let Some(before) = before {
        let kept = before.schema.columns.iter().zip(&columns);
        let is_kept = before.schema.columns.len() <= columns.len()
            && kept.into_iter().all(|(old, new)| {
                old.name == new.name && is_same(old.column_type, new.column_type)
            });
        if !is_kept {
            let message = format!(
                "CREATE OR REPLACE VIEW keeps the columns of \"{name}\" and may add others behind; drop the view first"
            );
            return Err(invalid(message, Fault::TableDefinition));
        }
    }
    hold(session, &definition, &described.tables).await?;
    let schema = TableSchema { table_id, version, name, columns, primary_key: Vec::new() };
    schema.validate()?;
    let view = ViewState {
        schema: Arc::new(schema),
        query: written_out(text_of(&create.query)),
        sources: described.sources,
        depends: depends.into_iter().collect(),
    };
    let of_session = view.depends.iter().any(|id| session.defined().is_temporary(*id));
    if create.is_temporary || of_session {
        definition.temporary.insert(table_id, OnCommit::PreserveRows);
    }
    let name = view.schema.name.clone();
    definition.edit.next.views.insert(name, Arc::new(view));
    definitions::end_definition(session, definition).await?;
    Ok(Outcome::done("CREATE VIEW"))
}

/// Gives the first of `columns`, those of the view `view`, these names.
///
/// # Errors
/// [`Error::Invalid`] if there are too many.
pub(super) fn rename_columns(view: &str, columns: &mut [Column], names: Vec<String>) -> Result<()> {
    if names.len() > columns.len() {
        let message = format!("view \"{view}\" has {} columns", columns.len());
        return Err(invalid(message, Fault::Statement));
    }
    for (column, name) in columns.iter_mut().zip(names) {
        column.name = name;
    }
    Ok(())
}

/// Locks what a new view reads, so that it is not dropped before the view depends on it.
///
/// # Errors
/// [`Error::Conflict`]; [`Error::UnknownName`] of what is gone.
pub(super) async fn hold(
    session: &Session,
    definition: &Definition,
    tables: &[Arc<TableSchema>],
) -> Result<()> {
    for table in tables {
        if !session.owns(table.table_id) {
            definition.lock_table(session, table.table_id, LockMode::AccessShare).await?;
        }
    }
    // For what was dropped before the locks were taken.
    let newest = session.names();
    // A temporary object may hide what a view reads.
    let has = |id: &u32| {
        let mut states = std::iter::successors(Some(&*newest), |state| state.base());
        states.any(|state| state.has_relation(*id))
    };
    match tables.iter().find(|table| !has(&table.table_id)) {
        Some(gone) => Err(Error::unknown(NameKind::Relation, &gone.name, newest.table_names())),
        None => Ok(()),
    }
}

/// Whether a column keeps its type. Views of versions before this one have `text` in the place of texts with a length.
fn is_same(old: ColumnType, new: ColumnType) -> bool {
    old == new || old == ColumnType::Text && old.arrow() == new.arrow()
}

/// Runs DROP VIEW.
pub(super) async fn drop_views(
    session: &mut Session,
    if_exists: bool,
    names: &[String],
    cascade: bool,
) -> Result<Outcome> {
    let begun = begin_with_dependents(session, "DROP VIEW", (names, &[]), cascade, &[]);
    let (mut definition, _) = begun.await?;
    let next = &mut definition.edit.next;
    let mut gone = BTreeSet::new();
    for name in names {
        if let Some(view) = next.views.remove(name) {
            gone.insert(view.schema.table_id);
        } else if next.is_name_taken(name) {
            return Err(super::indexes::wrong_kind(name, "a view"));
        } else if !if_exists {
            let views = next.views().map(|view| view.schema.name.as_str());
            return Err(Error::unknown(NameKind::View, name, views));
        }
    }
    drop_dependents(next, &gone, cascade)?;
    if !gone.is_empty() {
        definitions::end_definition(session, definition).await?;
    }
    Ok(Outcome::done("DROP VIEW"))
}

/// The views whose queries use a column.
pub(super) async fn views_with_column(
    database: &Arc<Database>,
    settings: &Settings,
    state: &CatalogState,
    schema: &TableSchema,
    column: &str,
) -> Result<Vec<Arc<ViewState>>> {
    let read = read_of(state);
    let mut found = Vec::new();
    for view in state.views_of(schema.table_id) {
        let by = (database.queries(), settings, &read);
        let of = (schema.name.as_str(), column);
        if Box::pin(select::uses_column(by, &view, of)).await? {
            found.push(view);
        }
    }
    Ok(found)
}

/// Refuses to go on without `column` if a remaining view needs it, or drops these views (`cascade`).
pub(super) async fn drop_views_with(
    session: &Session,
    state: &mut CatalogState,
    schema: &TableSchema,
    (column, cascade): (&str, bool),
) -> Result<()> {
    let users =
        views_with_column(&session.database, session.in_force(), state, schema, column).await?;
    if let Some(view) = users.first().filter(|_| !cascade) {
        return Err(depends(view, schema, column));
    }
    let gone = users.iter().map(|view| view.schema.table_id).collect();
    drop_dependents(state, &gone, true)?;
    state.remove_views(&gone);
    Ok(())
}

/// Has views read a table or view that was `before`, and is called `name` now, by the names that it had.
///
/// # Errors
/// [`Error::Invalid`] for a view that cannot.
pub(super) async fn rename_in_views(
    (database, settings): (&Arc<Database>, &Settings),
    state: &mut CatalogState,
    before: &TableSchema,
    name: &str,
) -> Result<()> {
    let now = match state.view(name) {
        Some(view) => Arc::clone(&view.schema),
        None => Arc::clone(&state.find_table(name)?.schema),
    };
    let columns = now.columns.iter().zip(&before.columns);
    let columns: Vec<_> =
        columns.map(|(now, before)| (now.name.clone(), before.name.clone())).collect();
    let renamed = Renamed { table: &before.name, to: name, columns: &columns };
    let made_of: Vec<_> = state.views_of(before.table_id).collect();
    for view in &made_of {
        let query = renamed.read_by(&view.query)?.ok_or_else(|| depends_on(view, before))?;
        state.put_view(ViewState { query, ..ViewState::clone(view) });
    }
    match first_broken((database, settings), state, before).await {
        Some(view) => Err(depends_on(&view, before)),
        None => Ok(()),
    }
}

/// Refuses a catalog version without `column` to which the query of a view cannot be bound.
pub(super) async fn check_views_whole(
    database: &Arc<Database>,
    settings: &Settings,
    state: &CatalogState,
    schema: &TableSchema,
    column: &str,
) -> Result<()> {
    match first_broken((database, settings), state, schema).await {
        Some(view) => Err(depends(&view, schema, column)),
        None => Ok(()),
    }
}

/// A view of the table whose query cannot be bound to `state`.
async fn first_broken(
    (database, settings): (&Arc<Database>, &Settings),
    state: &CatalogState,
    schema: &TableSchema,
) -> Option<Arc<ViewState>> {
    let read = read_of(state);
    for view in state.views_of(schema.table_id) {
        let by = (database.queries(), settings, &read);
        if !Box::pin(select::is_whole(by, &view)).await {
            return Some(view);
        }
    }
    None
}

fn read_of(state: &CatalogState) -> ReadView {
    ReadView::of_state(Arc::new(state.clone()))
}

fn depends(view: &ViewState, schema: &TableSchema, column: &str) -> Error {
    let message = format!(
        "view \"{}\" depends on column \"{column}\" of table \"{}\"; drop the view first",
        view.schema.name, schema.name
    );
    invalid(message, Fault::Dependent)
}

/// Begins a definition that changes or drops `names`, and locks `others` with them. If `concerns_views`, it locks the
/// views that depend on `names`, too: otherwise its commit would put them, as they are now, in the place of what others
/// have made of them. Returns all names that are locked.
///
/// # Errors
/// As [`definitions::begin_definition`]; [`Error::Conflict`] where a view was made over `names` meanwhile.
pub(super) async fn begin_with_dependents(
    session: &mut Session,
    what: &str,
    (names, others): (&[String], &[String]),
    concerns_views: bool,
    new_names: &[&str],
) -> Result<(Definition, Vec<String>)> {
    let dependents = |state: &CatalogState| match concerns_views {
        true => names_of_dependents(state, names),
        false => Vec::new(),
    };
    let locked = [names, &dependents(&session.names()), others].concat();
    let definition = definitions::begin_definition(session, what, &locked, new_names).await?;
    match dependents(definition.before()).iter().all(|name| locked.contains(name)) {
        true => Ok((definition, locked)),
        false => Err(Error::concurrent_update()),
    }
}

fn names_of_dependents(state: &CatalogState, names: &[String]) -> Vec<String> {
    let id = |name: &String| {
        let table = state.tables.get(name).map(|table| &table.schema);
        let schema = table.or_else(|| state.view(name).map(|view| &view.schema))?;
        Some(schema.table_id)
    };
    dependents(state, names.iter().filter_map(id).collect()).into_values().collect()
}

/// The views that depend on `of`, directly or through others: their ids and names.
fn dependents(state: &CatalogState, of: BTreeSet<u32>) -> BTreeMap<u32, String> {
    let mut found: BTreeMap<u32, String> = BTreeMap::new();
    let mut below: Vec<u32> = of.iter().copied().collect();
    while let Some(id) = below.pop() {
        for view in state.views_of(id).filter(|view| !of.contains(&view.schema.table_id)) {
            let id = view.schema.table_id;
            if found.insert(id, view.schema.name.clone()).is_none() {
                below.push(id);
            }
        }
    }
    found
}

/// Drops the views that depend on the dropped `gone`, directly or through others.
///
/// # Errors
/// [`Error::Invalid`] if there are any and the statement has no CASCADE.
pub(super) fn drop_dependents(
    state: &mut CatalogState,
    gone: &BTreeSet<u32>,
    cascade: bool,
) -> Result<()> {
    let dependent = dependents(state, gone.clone());
    if let Some(name) = dependent.values().next().filter(|_| !cascade) {
        let message =
            format!("view \"{name}\" depends on what would be dropped; say CASCADE to drop it too");
        return Err(invalid(message, Fault::Dependent));
    }
    state.remove_views(&dependent.into_keys().collect());
    Ok(())
}

fn depends_on(view: &ViewState, schema: &TableSchema) -> Error {
    let (view, table) = (&view.schema.name, &schema.name);
    let message = format!("view \"{view}\" depends on table \"{table}\"; drop the view first");
    invalid(message, Fault::Dependent)
}

fn invalid(message: String, fault: Fault) -> Error {
    Error::Invalid { message, fault, position: None }
}
