//! ALTER TABLE and ALTER INDEX: a table in, the same rows under another schema out.
//!
//! 1. Each action makes a new [`TableState`] from the one before. The schema's version rises, the hot segments are
//!    sealed, and new rows go to pages of the new version. Pages of older versions stay. In a column that such a page
//!    lacks, its rows have the default of the time when the column was added ([`Column::absent`]), or NULL. A dropped
//!    column is no longer read.
//! 2. Two kinds of actions rewrite the rows ([`rewrite`]): a column whose default differs from row to row (the numbers
//!    of a sequence) or is long, and a change of type.
//! 3. Keys build their index within the statement's transaction. [Checks](super::alter_rules) are tested on the
//!    existing rows.
//!
//! Invariant: the id of a column is never reused, so no old page has values under the id of a new column. The ids of
//! added columns have the version that added them in their upper bits.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef};
use cleave_catalog::catalog::division::Division;
use cleave_catalog::catalog::index_definition::{
    IndexColumn, IndexDefinition, PRIMARY_KEY, chosen_name,
};
use cleave_catalog::catalog::rules::{ForeignKey, TableRules};
use cleave_catalog::catalog::view::ViewState;
use cleave_catalog::catalog::{CatalogState, TableState, TabletState};
use cleave_catalog::error::{Error, Fault, NameKind, Result};
use cleave_catalog::index::IndexShape;
use cleave_catalog::settings::Settings;
use cleave_catalog::storage_error::StorageError;
use cleave_engine::write::build_index::build_index_within;
use cleave_query::select;
use cleave_query::select::{QueryRequest, ReadView};
use cleave_sql::statement::Parameters;
use cleave_sql::statement::alter::{Action, AlterTable, Key};
use cleave_sql::statement::conform::Conform;
use cleave_sql::statement::ddl::GivenSequence;
use cleave_sql::statement::defaults::{check_default, default_array, is_volatile};
use cleave_sql::statement::names::in_quotes;
use cleave_sql::statement::parse::parse_query;
use cleave_store::{AbsentValue, Column, TableSchema};
use futures::StreamExt;
use futures::stream::{self, BoxStream};

use super::define::emptied;
use super::definitions::Definition;
use super::foreign_key_rules::{drop_references, without_keys};
use super::{
    Outcome, Session, alter_identity, alter_rules, definitions, foreign_key_rules, sequences, views,
};
use crate::database::Database;

/// CREATE TABLE numbers columns below this bit of the id. Above it stands the version that added a later column.
const VERSION_SHIFT: u32 = 12;
/// A longer default is stored in each row and not in the table's description, which is sent with every scan.
const ABSENT_BYTES_MAX: usize = 1024;

/// What to do instead of an action for which rows would have to be divided otherwise.
const OTHERWISE_DIVIDED: &str = "create a table divided otherwise, and INSERT ... SELECT";

/// Runs ALTER TABLE.
pub(super) async fn alter_table(session: &mut Session, alter: AlterTable) -> Result<Outcome> {
    let done = match alter.is_materialized {
        true => Outcome::done("ALTER MATERIALIZED VIEW"),
        false => Outcome::done("ALTER TABLE"),
    };
    let state = session.names();
    let is_materialized =
        state.table(&alter.table).is_some_and(|table| table.materialized.is_some());
    if alter.is_materialized && !is_materialized && state.is_name_taken(&alter.table) {
        return Err(super::indexes::wrong_kind(&alter.table, "a materialized view"));
    }
    if let ([Action::RenameTable { to }], Some(_)) =
        (alter.actions.as_slice(), state.view(&alter.table))
    {
        return Box::pin(rename_view(session, &alter.table, to)).await;
    }
    if let [Action::RenameTable { to }] = alter.actions.as_slice()
        && state.sequences.contains_key(&alter.table)
    {
        let (name, if_exists) = (&alter.table, alter.if_exists);
        return Box::pin(sequences::rename_sequence(session, if_exists, name, to)).await;
    }
    if alter.if_exists && !state.has_table_named(&alter.table) {
        return Ok(done);
    }
    let altered_table = |state: &CatalogState, name: &str, renames: bool| match renames {
        // A materialized view as well.
        true => state.find_table(name).map(Arc::clone),
        false => state.find_writable_table(name).map(Arc::clone),
    };
    let only_renames = alter.actions.iter().all(renames);
    let found = altered_table(&state, &alter.table, only_renames);
    found.map_err(|error| error.at(alter.position))?;
    let new_name = |action: &Action| match action {
        Action::RenameTable { to } => Some(to.clone()),
        _ => None,
    };
    let names: Vec<String> = alter.actions.iter().filter_map(new_name).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let concerns_views = |action: &Action| {
        renames(action) || matches!(action, Action::DropColumn { .. } | Action::SetType { .. })
    };
    let concerns_views = alter.actions.iter().any(concerns_views);
    let held = foreign_key_rules::held_for(session, &alter).await?;
    let table = [alter.table.clone()];
    let named = (&table[..], &*held);
    let begun = views::begin_with_dependents(session, "ALTER TABLE", named, concerns_views, &names);
    let (mut definition, tables) = begun.await?;
    let mut name = alter.table;
    for action in alter.actions {
        let renames = renames(&action);
        let table = altered_table(&definition.edit.next, &name, renames)?;
        let table = TableState::clone(&table);
        let mut dropped = None;
        let before = Arc::clone(&table.schema);
        match &action {
            Action::SetType { column, .. } => {
                let (next, schema) = (&definition.edit.next, &table.schema);
                if !views::views_with_column(
                    &session.database,
                    session.in_force(),
                    next,
                    schema,
                    column,
                )
                .await?
                .is_empty()
                {
                    let what = "ALTER COLUMN ... TYPE of a column that a view has";
                    return Err(Error::unsupported(what));
                }
            }
            Action::DropColumn { column, cascade, .. } => {
                let next = &mut definition.edit.next;
                let what = (column.as_str(), *cascade);
                views::drop_views_with(session, next, &table.schema, what).await?;
                dropped = Some((Arc::clone(&table.schema), column.clone()));
            }
            _ => {}
        }
        if let Action::RenameTable { to } = &action {
            name.clone_from(to);
        }
        definition = Box::pin(altered(session, definition, table, action, &tables)).await?;
        if renames {
            let by = (&session.database, session.in_force());
            let next = &mut definition.edit.next;
            views::rename_in_views(by, next, &before, &name).await?;
        }
        if let Some((schema, column)) = dropped {
            views::check_views_whole(
                &session.database,
                session.in_force(),
                &definition.edit.next,
                &schema,
                &column,
            )
            .await?;
        }
    }
    definitions::end_definition(session, definition).await?;
    Ok(done)
}

fn renames(action: &Action) -> bool {
    matches!(action, Action::RenameColumn { .. } | Action::RenameTable { .. })
}

/// Runs ALTER VIEW … RENAME TO.
async fn rename_view(session: &mut Session, from: &str, to: &str) -> Result<Outcome> {
    let (named, new) = ([from.to_owned()], [to]);
    let begun = views::begin_with_dependents(session, "ALTER VIEW", (&named, &[]), true, &new);
    let (mut definition, _) = begun.await?;
    let next = &mut definition.edit.next;
    let Some(view) = next.view(from).map(Arc::clone) else {
        let views = next.views().map(|view| view.schema.name.as_str());
        return Err(Error::unknown(NameKind::View, from, views));
    };
    if next.is_name_taken(to) {
        return Err(super::indexes::name_taken(to));
    }
    let own = TableSchema::clone(&view.schema);
    let schema = TableSchema { name: to.to_owned(), version: own.version + 1, ..own };
    let renamed = ViewState { schema: Arc::new(schema), ..ViewState::clone(&view) };
    next.views.remove(from);
    next.views.insert(to.to_owned(), Arc::new(renamed));
    let by = (&session.database, session.in_force());
    views::rename_in_views(by, next, &view.schema, to).await?;
    definitions::end_definition(session, definition).await?;
    Ok(Outcome::done("ALTER VIEW"))
}

/// Runs ALTER INDEX … RENAME TO.
pub(super) async fn rename_index(session: &mut Session, from: &str, to: &str) -> Result<Outcome> {
    let state = session.names();
    let Some((table, _)) = state.index(from) else {
        if state.has_table_named(from) {
            return Err(super::indexes::wrong_kind(from, "an index"));
        }
        let names = state.indexes().map(|(_, index)| index.name.as_str());
        return Err(Error::unknown(NameKind::Index, from, names));
    };
    let tables = [table.schema.name.clone()];
    let mut definition =
        definitions::begin_definition(session, "ALTER INDEX", &tables, &[to]).await?;
    let next = &definition.edit.next;
    let table = renamed_index(next, next.find_writable_table(&tables[0])?, from, to)?;
    definition.edit.put_table(table);
    definitions::end_definition(session, definition).await?;
    Ok(Outcome::done("ALTER INDEX"))
}

/// `definition` with `action` done to `table`.
async fn altered(
    session: &Session,
    mut definition: Definition,
    table: TableState,
    action: Action,
    locked: &[String],
) -> Result<Definition> {
    let mut schema = TableSchema::clone(&table.schema);
    let all = || table.indexes.iter().map(|index| IndexDefinition::clone(index)).collect();
    match action {
        Action::AddColumn { if_not_exists, column, keys, checks, foreign_keys, sequence } => {
            if schema.column(&column.name).is_some() {
                if if_not_exists {
                    return Ok(definition);
                }
                return Err(column_taken(&schema, &column.name));
            }
            let name = schema.name.clone();
            let adding = add_column(session, definition, table, (*column, sequence), keys);
            definition = Box::pin(adding).await?;
            for check in checks {
                let table = definition.edit.next.find_writable_table(&name)?;
                let table = TableState::clone(table);
                definition =
                    Box::pin(alter_rules::add_check(session, definition, table, check)).await?;
            }
            for key in foreign_keys {
                let table = definition.edit.next.find_writable_table(&name)?;
                let table = TableState::clone(table);
                definition =
                    Box::pin(foreign_key_rules::add_foreign_key(session, definition, table, key))
                        .await?;
            }
        }
        Action::DropColumn { if_exists, column, cascade } => {
            if if_exists && schema.column(&column).is_none() {
                return Ok(definition);
            }
            let id = find_column(&schema, &column)?.id;
            let gone = BTreeSet::from([table.schema.table_id]);
            let is_about = |key: &ForeignKey| key.target_columns.contains(&id);
            let what = format!("column \"{column}\" of table \"{}\"", schema.name);
            let next = &mut definition.edit.next;
            // Its own go with the column as well.
            let own = next.find_writable_table(&schema.name)?;
            next.tables.insert(schema.name.clone(), Arc::new(without_keys(own, id)?));
            drop_references(next, (&gone, locked), is_about, (&what, cascade))?;
            let table = TableState::clone(next.find_writable_table(&schema.name)?);
            let changed = without_column(&table, schema, id)?;
            let table_id = changed.schema.table_id;
            definition.edit.put_table(changed);
            sequences::drop_owned(&mut definition.edit.next, table_id, id)?;
        }
        Action::RenameColumn { from, to } => {
            if schema.column(&to).is_some() {
                return Err(column_taken(&schema, &to));
            }
            change_column(&mut schema, &from)?.name.clone_from(&to);
            let mut changed = reshaped(&table, schema, all())?;
            alter_rules::rename_column(&mut changed, Some((&from, &to)))?;
            definition.edit.put_table(changed);
        }
        Action::RenameTable { to } => {
            let state = &definition.edit.next;
            if state.is_name_taken(&to) {
                return Err(super::indexes::name_taken(&to));
            }
            definition.edit.next.tables.remove(&schema.name);
            schema.name = to;
            let mut changed = reshaped(&table, schema, all())?;
            alter_rules::rename_column(&mut changed, None)?;
            definition.edit.put_table(changed);
        }
        Action::RenameConstraint { from, to } => {
            if let Some(changed) = alter_rules::renamed(&table, &from, &to)? {
                definition.edit.put_table(changed);
                return Ok(definition);
            }
            if table.rules.is_name_taken(&to) {
                return Err(Error::NameTaken { kind: NameKind::Constraint, name: to });
            }
            let is_known = table.indexes.iter().any(|i| i.constraint && i.name == from);
            if !is_known {
                return Err(unknown_constraint(&table, &from));
            }
            let changed = renamed_index(&definition.edit.next, &table, &from, &to)?;
            definition.edit.put_table(changed);
        }
        Action::SetDefault { column, default } => {
            let column = change_column(&mut schema, &column)?;
            let state = &definition.edit.next;
            alter_rules::check_no_identity(state, table.schema.table_id, column)?;
            column.default = default;
            check_default(column)?;
            sequences::check_sequence(state, column)?;
            definition.edit.put_table(reshaped(&table, schema, all())?);
        }
        Action::SetNotNull { column, not_null } => {
            let changed = change_column(&mut schema, &column)?;
            let id = changed.id;
            changed.not_null = not_null;
            if !not_null {
                let (state, table_id) = (&definition.edit.next, table.schema.table_id);
                alter_rules::check_no_identity(state, table_id, changed)?;
            }
            if not_null {
                check_not_null(session, &definition, &table, &column).await?;
            } else if schema.primary_key.contains(&id) {
                let message = format!("column \"{column}\" is in a primary key");
                return Err(invalid(message, Fault::TableDefinition));
            }
            definition.edit.put_table(reshaped(&table, schema, all())?);
        }
        Action::SetType { column, column_type, using } => {
            if let Division::Range(id, _) = &table.division
                && *id == find_column(&schema, &column)?.id
            {
                return Err(Error::Unsupported {
                    what: "ALTER COLUMN ... TYPE of a column whose ranges divide the table"
                        .to_owned(),
                    hint: Some(OTHERWISE_DIVIDED.to_owned()),
                    position: None,
                });
            }
            let changed = change_column(&mut schema, &column)?;
            changed.column_type = column_type;
            if changed.default.is_some() && check_default(changed).is_err() {
                let message = format!(
                    "default for column \"{column}\" cannot be cast automatically to type {column_type}"
                );
                return Err(invalid(message, Fault::Type));
            }
            let values = table.schema.columns.iter().map(|known| {
                let quoted = in_quotes(&known.name);
                match &using {
                    Some(using) if known.name == column => format!("({using}) AS {quoted}"),
                    _ => quoted,
                }
            });
            let query = format!("SELECT {}", values.collect::<Vec<_>>().join(", "));
            without_absent(&mut schema);
            let changed = reshaped(&table, schema, all())?;
            alter_rules::check_rules(&session.database, &changed).await?;
            let (table_id, id) = (table.schema.table_id, find_column(&table.schema, &column)?.id);
            let definition = rewrite(session, definition, &table, changed, &query).await?;
            foreign_key_rules::check_retyped(session, &definition, table_id, id).await?;
            return Ok(definition);
        }
        Action::AddIdentity { column, is_always, options, name } => {
            let what = (*options, name);
            alter_identity::add_identity(
                session,
                &mut definition,
                &table,
                (&column, is_always),
                what,
            )?;
        }
        Action::SetIdentity { column, is_always, options } => {
            alter_identity::set_identity(
                session,
                &mut definition,
                &table,
                (&column, is_always),
                &options,
            )?;
        }
        Action::DropIdentity { column, if_exists } => {
            alter_identity::drop_identity(&mut definition, &table, (&column, if_exists))?;
        }
        Action::AddForeignKey(key) => {
            return Box::pin(foreign_key_rules::add_foreign_key(session, definition, table, key))
                .await;
        }
        Action::Validate { name } => {
            let is_check = table.rules.checks.iter().any(|check| check.name == name);
            if !foreign_key_rules::validate(session, &mut definition, &table, &name).await?
                && !is_check
            {
                return Err(unknown_constraint(&table, &name));
            }
        }
        Action::AddKey { key, columns } => {
            return add_key(session, definition, table, key, &columns).await;
        }
        Action::AddCheck(check) => {
            return alter_rules::add_check(session, definition, table, check).await;
        }
        Action::DropConstraint { if_exists, name, cascade } => {
            if let Some(changed) = alter_rules::without(&table, &name)? {
                definition.edit.put_table(changed);
                return Ok(definition);
            }
            let found = table.indexes.iter().find(|i| i.constraint && i.name == name);
            let Some(found) = found else {
                return match if_exists {
                    true => Ok(definition),
                    false => Err(unknown_constraint(&table, &name)),
                };
            };
            let gone = BTreeSet::from([schema.table_id]);
            let (id, what) =
                (found.id, format!("constraint \"{name}\" on table \"{}\"", schema.name));
            let next = &mut definition.edit.next;
            let is_about = |key: &ForeignKey| key.index == id;
            drop_references(next, (&gone, locked), is_about, (&what, cascade))?;
            let table = TableState::clone(next.find_writable_table(&schema.name)?);
            let mut schema = TableSchema::clone(&table.schema);
            if found.id == PRIMARY_KEY {
                schema.primary_key.clear();
            }
            let kept = table.indexes.iter().filter(|index| index.id != found.id);
            let kept = kept.map(|index| IndexDefinition::clone(index)).collect();
            definition.edit.put_table(reshaped(&table, schema, kept)?);
        }
    }
    Ok(definition)
}

async fn add_column(
    session: &Session,
    mut definition: Definition,
    table: TableState,
    (column, sequence): (Column, Option<GivenSequence>),
    keys: Vec<Key>,
) -> Result<Definition> {
    let mut schema = TableSchema::clone(&table.schema);
    let version = schema.version.saturating_add(1);
    let exhausted = || Error::from(StorageError::Exhausted { what: "columns of a table" });
    let id = version.checked_mul(1 << VERSION_SHIFT).ok_or_else(exhausted)?;
    let names = [column.name.clone()];
    let mut column = Column { id, ..column };
    sequences::check_sequence(&definition.edit.next, &column)?;
    if let Some(given) = &sequence {
        let of = (schema.name.as_str(), schema.table_id);
        let made = sequences::of_column(&mut definition.edit, of, &mut column, given)?;
        let on_commit = session.defined().on_commit(schema.table_id);
        definition.temporary.extend(on_commit.map(|on_commit| (made, on_commit)));
    }
    let is_written = table.heap_segments().next().is_some();
    let value = match is_volatile(&column) || !is_written {
        true => None,
        false => Some(default_now(session, &definition, &column)?),
    };
    // A small default becomes part of the table's description, a long one part of each row.
    column.absent = value.as_ref().and_then(|value| AbsentValue::of(value));
    let is_small = column.absent.as_ref().is_none_or(|v| v.bytes().len() <= ABSENT_BYTES_MAX);
    let is_rewritten = is_written && !(value.is_some() && is_small);
    let lacks_value = value.is_some_and(|value| value.null_count() > 0);
    if column.not_null && lacks_value && table.row_count() > 0 {
        return Err(contains_null(&schema.name, &column.name));
    }
    schema.columns.push(column);
    if is_rewritten {
        without_absent(&mut schema);
    }
    let indexes = table.indexes.iter().map(|index| IndexDefinition::clone(index)).collect();
    let mut changed = reshaped(&table, schema, indexes)?;
    if sequence.is_some_and(|given| given.is_always) {
        Arc::make_mut(&mut changed.rules).always.push(id);
    }
    if is_rewritten {
        let values = table.schema.columns.iter().map(|known| in_quotes(&known.name));
        let query = format!("SELECT {}", values.collect::<Vec<_>>().join(", "));
        definition = rewrite(session, definition, &table, changed, &query).await?;
    } else {
        definition.edit.put_table(changed);
    }
    for key in keys {
        let table = definition.edit.next.find_writable_table(&table.schema.name)?;
        let table = TableState::clone(table);
        definition = Box::pin(add_key(session, definition, table, key, &names)).await?;
    }
    Ok(definition)
}

/// The value of a column's default now.
fn default_now(session: &Session, definition: &Definition, column: &Column) -> Result<ArrayRef> {
    let state = Arc::new(CatalogState::clone(&definition.edit.next));
    default_array(column, 1, &session.moment_on(state))
}

async fn add_key(
    session: &Session,
    mut definition: Definition,
    table: TableState,
    key: Key,
    columns: &[String],
) -> Result<Definition> {
    let mut schema = TableSchema::clone(&table.schema);
    let mut ids = Vec::with_capacity(columns.len());
    for column in columns {
        let id = find_column(&schema, column)?.id;
        if ids.contains(&id) {
            let message = format!("column \"{column}\" appears twice in the constraint");
            return Err(invalid(message, Fault::DuplicateColumn));
        }
        ids.push(id);
    }
    if key.is_primary {
        if !schema.primary_key.is_empty() {
            let message =
                format!("multiple primary keys for table \"{}\" are not allowed", schema.name);
            return Err(invalid(message, Fault::TableDefinition));
        }
        for column in columns {
            check_not_null(session, &definition, &table, column).await?;
            change_column(&mut schema, column)?.not_null = true;
        }
        schema.primary_key.clone_from(&ids);
    }
    let state = &definition.edit.next;
    let name = match key.name {
        Some(name) if state.is_name_taken(&name) => {
            return Err(Error::NameTaken { kind: NameKind::Index, name });
        }
        Some(name) if table.rules.is_name_taken(&name) => {
            return Err(Error::NameTaken { kind: NameKind::Constraint, name });
        }
        Some(name) => name,
        None => {
            let names: Vec<&str> = match key.is_primary {
                true => Vec::new(),
                false => columns.iter().map(String::as_str).collect(),
            };
            let suffix = if key.is_primary { "pkey" } else { "key" };
            chosen_name(&schema.name, &names, suffix, |name| {
                state.is_name_taken(name) || table.rules.is_name_taken(name)
            })
        }
    };
    let last = table.indexes.iter().map(|index| index.id).max().unwrap_or(PRIMARY_KEY);
    let index = IndexDefinition {
        id: if key.is_primary { PRIMARY_KEY } else { last + 1 },
        name,
        columns: ids.into_iter().map(IndexColumn::ascending).collect(),
        unique: true,
        constraint: true,
    };
    let indexes = table.indexes.iter().map(|index| IndexDefinition::clone(index)).collect();
    let changed = reshaped(&table, schema, indexes)?;
    let settings = session.shared_settings();
    let edit = &mut definition.edit;
    let built = build_index_within(edit, &settings, &changed, index).await?;
    definition.edit.put_table(built);
    Ok(definition)
}

/// Refuses a table with a NULL in `column`.
async fn check_not_null(
    session: &Session,
    definition: &Definition,
    table: &TableState,
    column: &str,
) -> Result<()> {
    let (name, quoted) = (&table.schema.name, in_quotes(column));
    let text = format!("SELECT {quoted}");
    let filter = format!("WHERE {quoted} IS NULL LIMIT 1");
    let mut found =
        rows_of(&session.database, session.in_force(), definition, name, &text, &filter).await?;
    while let Some(batch) = found.next().await {
        if batch?.num_rows() > 0 {
            return Err(contains_null(name, column));
        }
    }
    Ok(())
}

/// The rows that `select` gives of the table `name`, as of the catalog version of the definition.
pub(super) async fn rows_of(
    database: &Arc<Database>,
    settings: &Settings,
    definition: &Definition,
    name: &str,
    select: &str,
    rest: &str,
) -> Result<BoxStream<'static, Result<arrow::array::RecordBatch>>> {
    let state = Arc::new(CatalogState::clone(&definition.edit.next));
    let query = parse_query(format!("{select} FROM {} {rest}", in_quotes(name)))?;
    let parameters = Parameters::default();
    let view = ReadView::of_state(state);
    let asked = QueryRequest { query: &query, parameters: &parameters, view: Some(&view) };
    let running = Box::pin(select::run_query(database, settings, asked)).await?;
    let rows = stream::try_unfold(running, |mut running| async move {
        Ok(running.next().await?.map(|batch| (batch, running)))
    });
    Ok(rows.boxed())
}

/// `definition` with the table `changed`. Its rows are what `select` gives of the rows of `table`, with defaults for
/// columns that `select` does not give. No page of `changed` lacks a column, so no column has a value for such pages.
async fn rewrite(
    session: &Session,
    mut definition: Definition,
    table: &TableState,
    changed: TableState,
    select: &str,
) -> Result<Definition> {
    let rows =
        rows_of(&session.database, session.in_force(), &definition, &table.schema.name, select, "")
            .await?;
    let schema = Arc::clone(&changed.schema);
    let moment = session.moment_on(Arc::new(CatalogState::clone(&definition.edit.next)));
    definition.edit.put_table(emptied(&changed));
    let fitted = Arc::clone(&schema);
    let rows = rows.map(move |batch| {
        let batch = batch?;
        Conform::by_name(&fitted, &batch.schema(), moment.clone())?.rows(&batch)
    });
    let checks = Arc::clone(session.database.queries());
    let (definition, _) = definition
        .load(checks, &session.shared_settings(), &schema, (Vec::new(), rows.boxed()))
        .await?;
    Ok(definition)
}

/// `table` with another schema under a new version, and with those of its indexes that are in `indexes`, as they are
/// there.
pub(super) fn reshaped(
    table: &TableState,
    mut schema: TableSchema,
    indexes: Vec<IndexDefinition>,
) -> Result<TableState> {
    schema.version = table.schema.version.saturating_add(1);
    schema.validate()?;
    let schema = Arc::new(schema);
    let shape = |index: IndexDefinition| IndexShape::new(Arc::new(index), &schema);
    let shapes: Vec<Arc<IndexShape>> = indexes.into_iter().map(shape).collect::<Result<_, _>>()?;
    let tablet = |tablet: &Arc<TabletState>| {
        let mut changed = TabletState::clone(tablet);
        // All pages of a segment have one version.
        if let Some(last) = changed.heap.last_mut().filter(|last| !last.sealed) {
            Arc::make_mut(last).sealed = true;
        }
        let kept = shapes.iter().filter_map(|shape| {
            let index = tablet.index(shape.definition.id)?;
            Some(Arc::new(index.with_shape(Arc::clone(shape))))
        });
        changed.indexes = kept.collect();
        Arc::new(changed)
    };
    let tablets = table.tablets.iter().map(tablet).collect();
    let indexes = shapes.iter().map(|shape| Arc::clone(&shape.definition)).collect();
    // The compiled rules refer to the old columns.
    let rules = Arc::new(TableRules::clone(&table.rules));
    Ok(TableState { schema, indexes, tablets, rules, ..TableState::clone(table) })
}

/// `table` without the column `id`, and without the indexes that have it.
fn without_column(table: &TableState, mut schema: TableSchema, id: u32) -> Result<TableState> {
    if table.division.columns().contains(&id) {
        return Err(Error::Unsupported {
            what: "DROP COLUMN of a column that divides the table into tablets".to_owned(),
            hint: Some(OTHERWISE_DIVIDED.to_owned()),
            position: None,
        });
    }
    schema.columns.retain(|column| column.id != id);
    if schema.primary_key.contains(&id) {
        schema.primary_key.clear();
    }
    let has = |index: &&Arc<IndexDefinition>| index.columns.iter().all(|key| key.column != id);
    let kept = table.indexes.iter().filter(has).map(|index| IndexDefinition::clone(index));
    let mut changed = reshaped(table, schema, kept.collect())?;
    let rules = Arc::make_mut(&mut changed.rules);
    rules.checks.retain(|check| !check.columns.contains(&id));
    rules.always.retain(|column| *column != id);
    Ok(changed)
}

/// `table`, one of whose indexes has another name.
fn renamed_index(
    state: &CatalogState,
    table: &TableState,
    from: &str,
    to: &str,
) -> Result<TableState> {
    if state.is_name_taken(to) {
        return Err(super::indexes::name_taken(to));
    }
    let renamed = table.indexes.iter().map(|index| {
        let mut index = IndexDefinition::clone(index);
        if index.name == from {
            to.clone_into(&mut index.name);
        }
        index
    });
    let renamed = renamed.collect();
    reshaped(table, TableSchema::clone(&table.schema), renamed)
}

/// Clears the values of columns for pages that lack them, since all pages are about to be rewritten.
fn without_absent(schema: &mut TableSchema) {
    schema.columns.iter_mut().for_each(|column| column.absent = None);
}

fn find_column<'a>(schema: &'a TableSchema, name: &str) -> Result<&'a Column> {
    let names = schema.columns.iter().map(|column| column.name.as_str());
    schema.column(name).ok_or_else(|| Error::unknown_column(&schema.name, name, names))
}

pub(super) fn change_column<'a>(schema: &'a mut TableSchema, name: &str) -> Result<&'a mut Column> {
    let id = find_column(schema, name)?.id;
    let found = schema.columns.iter_mut().find(|column| column.id == id);
    found.ok_or_else(|| Error::unknown(NameKind::Column, name, std::iter::empty()))
}

fn column_taken(schema: &TableSchema, column: &str) -> Error {
    let message = format!("column \"{column}\" of relation \"{}\" already exists", schema.name);
    invalid(message, Fault::DuplicateColumn)
}

fn unknown_constraint(table: &TableState, name: &str) -> Error {
    let keys = table.indexes.iter().filter(|index| index.constraint);
    let checks = table.rules.checks.iter().map(|check| check.name.as_str());
    let foreign = table.rules.foreign_keys.iter().map(|key| key.name.as_str());
    let names = keys.map(|index| index.name.as_str()).chain(checks).chain(foreign);
    let place = format!("relation \"{}\"", table.schema.name);
    Error::unknown(NameKind::Constraint, name, names).within(place)
}

fn contains_null(table: &str, column: &str) -> Error {
    let message = format!("column \"{column}\" of relation \"{table}\" contains null values");
    invalid(message, Fault::NullValues)
}

fn invalid(message: String, fault: Fault) -> Error {
    Error::Invalid { message, fault, position: None }
}
