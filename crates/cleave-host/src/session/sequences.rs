//! CREATE, ALTER and DROP SEQUENCE, and the sequences of columns. Definitions are transactional; the numbers drawn are
//! not.

use std::sync::Arc;

use cleave_catalog::catalog::index_definition::chosen_name;
use cleave_catalog::catalog::sequence::named;
use cleave_catalog::catalog::sequence::{Owner, Sequence};
use cleave_catalog::catalog::{CatalogState, TableState};
use cleave_catalog::error::{Error, Fault, NameKind, Result};
use cleave_engine::storage_engine::catalog_edit::CatalogEdit;
use cleave_sql::statement::CreateTable;
use cleave_sql::statement::ddl::GivenSequence;
use cleave_sql::statement::defaults::{next_default, next_text};
use cleave_sql::statement::sequence::{SequenceOptions, SequenceStatement};
use cleave_store::{Column, TableSchema};
use cleave_txn::LockMode;

use super::definitions::Definition;
use super::indexes::{name_taken, wrong_kind};
use super::{Outcome, Session, definitions};

/// Runs a statement on sequences.
pub(super) async fn run(session: &mut Session, statement: SequenceStatement) -> Result<Outcome> {
    match statement {
        SequenceStatement::Create { if_not_exists, name, options } => {
            create_sequence(session, if_not_exists, name, &options).await
        }
        SequenceStatement::Alter { if_exists, name, options } => {
            alter_sequence(session, if_exists, &name, &options).await
        }
        SequenceStatement::Rename { if_exists, name, to } => {
            rename_sequence(session, if_exists, &name, &to).await
        }
        SequenceStatement::Drop { if_exists, names } => {
            drop_sequences(session, if_exists, &names).await
        }
    }
}

async fn create_sequence(
    session: &mut Session,
    if_not_exists: bool,
    name: String,
    options: &SequenceOptions,
) -> Result<Outcome> {
    let mut definition =
        definitions::begin_definition(session, "CREATE SEQUENCE", &[], &[&name]).await?;
    let state = &definition.edit.next;
    if state.is_name_taken(&name) {
        if if_not_exists {
            return Ok(Outcome::done("CREATE SEQUENCE"));
        }
        return Err(name_taken(&name));
    }
    let owner = match &options.owner {
        Some(Some(owner)) => Some(owner_of(session, &mut definition, owner).await?),
        _ => None,
    };
    let id = definition.edit.table_id()?;
    let made = Sequence { owner, ..options.created(id, name.clone())? };
    let on_commit = owner.and_then(|owner| session.defined().on_commit(owner.table));
    definition.temporary.extend(on_commit.map(|on_commit| (id, on_commit)));
    definition.edit.next.sequences.insert(name, Arc::new(made));
    definitions::end_definition(session, definition).await?;
    Ok(Outcome::done("CREATE SEQUENCE"))
}

async fn alter_sequence(
    session: &mut Session,
    if_exists: bool,
    name: &str,
    options: &SequenceOptions,
) -> Result<Outcome> {
    let mut definition =
        definitions::begin_definition(session, "ALTER SEQUENCE", &[name.to_owned()], &[]).await?;
    let state = &definition.edit.next;
    let Some(before) = state.sequences.get(name).map(Arc::clone) else {
        if state.is_name_taken(name) {
            return Err(wrong_kind(name, "a sequence").at(options.position));
        }
        if if_exists {
            return Ok(Outcome::done("ALTER SEQUENCE"));
        }
        let names = state.sequences.keys().map(String::as_str);
        let error = Error::unknown(NameKind::Relation, name, names);
        return Err(error.at(options.position));
    };
    let mut owner = None;
    if let Some(given) = &options.owner {
        if before.owner.is_some_and(|owner| owner.is_identity) {
            let message = "cannot change ownership of identity sequence".to_owned();
            let (fault, position) = (Fault::State, options.position);
            return Err(Error::Invalid { message, fault, position });
        }
        owner = Some(match given {
            Some(given) => Some(owner_of(session, &mut definition, given).await?),
            None => None,
        });
    }
    change_sequence(session, &mut definition, &before, options, owner)?;
    definitions::end_definition(session, definition).await?;
    Ok(Outcome::done("ALTER SEQUENCE"))
}

/// Renames a sequence, and the defaults that draw from it go on to do so.
pub(super) async fn rename_sequence(
    session: &mut Session,
    if_exists: bool,
    name: &str,
    to: &str,
) -> Result<Outcome> {
    let done = Outcome::done("ALTER SEQUENCE");
    let state = session.names();
    let known = state.sequences.get(name);
    let draws = |column: &Column| known.is_some_and(|known| draws_from(&state, column, known));
    let drawing = |table: &&Arc<TableState>| table.schema.columns.iter().any(draws);
    let tables = state.tables().filter(drawing).map(|table| table.schema.name.clone());
    let locked: Vec<String> = tables.chain([name.to_owned()]).collect();
    let mut definition =
        definitions::begin_definition(session, "ALTER SEQUENCE", &locked, &[to]).await?;
    let next = &mut definition.edit.next;
    let Some(before) = next.sequences.get(name).map(Arc::clone) else {
        if next.is_name_taken(name) {
            return Err(wrong_kind(name, "a sequence"));
        }
        if if_exists {
            return Ok(done);
        }
        let names = next.sequences.keys().map(String::as_str);
        return Err(Error::unknown(NameKind::Relation, name, names));
    };
    if next.is_name_taken(to) {
        return Err(name_taken(to));
    }
    next.sequences.remove(name);
    let renamed = Sequence { name: to.to_owned(), ..Sequence::clone(&before) };
    next.sequences.insert(to.to_owned(), Arc::new(renamed));
    let tables: Vec<_> = next.tables().filter(drawing).map(Arc::clone).collect();
    for table in tables {
        let mut schema = TableSchema::clone(&table.schema);
        schema.version += 1;
        for column in schema.columns.iter_mut().filter(|column| draws(column)) {
            column.default = Some(next_text(to));
        }
        let table = TableState { schema: Arc::new(schema), ..TableState::clone(&table) };
        definition.edit.put_table(table);
    }
    definitions::end_definition(session, definition).await?;
    Ok(done)
}

/// Changes a sequence; None: its owning column stays.
pub(super) fn change_sequence(
    session: &Session,
    definition: &mut Definition,
    before: &Sequence,
    options: &SequenceOptions,
    owner: Option<Option<Owner>>,
) -> Result<()> {
    let mut made = options.altered(before)?;
    made.owner = owner.unwrap_or(made.owner);
    let restart = options.restart.map(|value| value.unwrap_or(made.start));
    let (last, is_called) = session.database.sequences().last(before);
    let next = restart.unwrap_or(last);
    if !(made.min..=made.max).contains(&next) {
        let (word, than, limit) = match next < made.min {
            true => ("less", "MINVALUE", made.min),
            false => ("greater", "MAXVALUE", made.max),
        };
        let message = format!("RESTART value ({next}) cannot be {word} than {than} ({limit})");
        return Err(options.refused(message));
    }
    match restart {
        Some(value) => restart_sequence(session, definition, made, value),
        None => {
            (made.last, made.is_called) = (last, is_called);
            definition.edit.next.sequences.insert(made.name.clone(), Arc::new(made));
            Ok(())
        }
    }
}

/// Restarts `sequence` at `value`, under another id: only sessions that see the definition get the new numbers, and
/// ROLLBACK leaves those of the old id as they were.
fn restart_sequence(
    session: &Session,
    definition: &mut Definition,
    sequence: Sequence,
    value: i64,
) -> Result<()> {
    let id = definition.edit.table_id()?;
    let on_commit = session.defined().on_commit(sequence.id);
    definition.temporary.extend(on_commit.map(|on_commit| (id, on_commit)));
    let (last, is_called, shared) = (value, false, Arc::default());
    let made = Sequence { id, last, is_called, shared, ..sequence.clone() };
    session.settings.client.sequences.pass_on(sequence.id, made.id);
    definition.edit.next.sequences.insert(made.name.clone(), Arc::new(made));
    Ok(())
}

/// Restarts the sequences of the columns of the table `table_id`.
pub(super) fn restart_sequences_of(
    session: &Session,
    definition: &mut Definition,
    table_id: u32,
) -> Result<()> {
    let own: Vec<Arc<Sequence>> =
        owned_by(&definition.edit.next, table_id).map(Arc::clone).collect();
    for sequence in own {
        let start = sequence.start;
        restart_sequence(session, definition, Sequence::clone(&sequence), start)?;
    }
    Ok(())
}

async fn drop_sequences(
    session: &mut Session,
    if_exists: bool,
    names: &[String],
) -> Result<Outcome> {
    let mut definition =
        definitions::begin_definition(session, "DROP SEQUENCE", names, &[]).await?;
    let next = &mut definition.edit.next;
    let mut dropped = false;
    for name in names {
        let Some(sequence) = next.sequences.get(name) else {
            if next.is_name_taken(name) {
                return Err(wrong_kind(name, "a sequence"));
            }
            if if_exists {
                continue;
            }
            let names = next.sequences.keys().map(String::as_str);
            return Err(Error::unknown(NameKind::Sequence, name, names));
        };
        check_unused(next, sequence)?;
        next.sequences.remove(name);
        dropped = true;
    }
    if dropped {
        definitions::end_definition(session, definition).await?;
    }
    Ok(Outcome::done("DROP SEQUENCE"))
}

/// The column that OWNED BY names; its table stays locked until the definition is done.
async fn owner_of(
    session: &Session,
    definition: &mut Definition,
    (table, column): &(String, String),
) -> Result<Owner> {
    let schema = Arc::clone(&definition.edit.next.find_table(table)?.schema);
    if !session.owns(schema.table_id) {
        definition.lock_table(session, schema.table_id, LockMode::AccessShare).await?;
        let newest = session.names();
        if !newest.has_table_id(schema.table_id) {
            return Err(Error::unknown(NameKind::Relation, table, newest.table_names()));
        }
    }
    let names = schema.columns.iter().map(|column| column.name.as_str());
    let found = schema.column(column);
    let found = found.ok_or_else(|| Error::unknown_column(table, column, names))?;
    Ok(Owner { table: schema.table_id, column: found.id, is_identity: false })
}

/// The sequences of the columns of `create`, whose table gets `table_id`; they become the defaults of the columns.
///
/// # Errors
/// Those of limits; [`Error::UnknownName`] for a missing sequence that a default names.
pub(super) fn of_columns(
    edit: &mut CatalogEdit,
    create: &mut CreateTable,
    table_id: u32,
) -> Result<()> {
    for column in &create.schema.columns {
        check_sequence(&edit.next, column)?;
    }
    let table = create.schema.name.clone();
    for given in &create.sequences {
        let columns = &mut create.schema.columns;
        if let Some(column) = columns.iter_mut().find(|column| column.id == given.column) {
            of_column(edit, (&table, table_id), column, given)?;
        }
    }
    Ok(())
}

/// The sequence of a column of `table`, which gets it as its default; returns its id.
///
/// # Errors
/// Those of limits.
pub(super) fn of_column(
    edit: &mut CatalogEdit,
    (table, table_id): (&str, u32),
    column: &mut Column,
    given: &GivenSequence,
) -> Result<u32> {
    let name = chosen_name(table, &[&column.name], "seq", |name| {
        name == table || edit.next.is_name_taken(name)
    });
    let id = edit.table_id()?;
    let options = SequenceOptions { data_type: Some(column.column_type), ..given.options.clone() };
    let made = options.created(id, name.clone())?;
    let owner = Owner { table: table_id, column: column.id, is_identity: given.is_identity };
    column.default = Some(next_text(&name));
    let made = Sequence { owner: Some(owner), ..made };
    edit.next.sequences.insert(name, Arc::new(made));
    Ok(id)
}

/// Refuses a default that draws from a sequence that does not exist.
///
/// # Errors
/// [`Error::UnknownName`].
pub(super) fn check_sequence(state: &CatalogState, column: &Column) -> Result<()> {
    match next_default(column) {
        Some(sequence) => named(state, &sequence).map(drop),
        None => Ok(()),
    }
}

/// The sequences of the columns of the table `table_id`.
pub(super) fn owned_by(
    state: &CatalogState,
    table_id: u32,
) -> impl Iterator<Item = &Arc<Sequence>> {
    let is_own = move |owner: Owner| owner.table == table_id;
    state.sequences.values().filter(move |sequence| sequence.owner.is_some_and(is_own))
}

/// Drops the sequences of the dropped column `column` of the table `table_id`.
///
/// # Errors
/// [`Error::Invalid`] where the default of another column needs one.
pub(super) fn drop_owned(state: &mut CatalogState, table_id: u32, column: u32) -> Result<()> {
    let own = owned_by(state, table_id);
    let of_column = |owner: Owner| owner.column == column;
    let own = own.filter(|sequence| sequence.owner.is_some_and(of_column)).map(Arc::clone);
    let own: Vec<Arc<Sequence>> = own.collect();
    for sequence in own {
        check_unused(state, &sequence)?;
        state.sequences.remove(&sequence.name);
    }
    Ok(())
}

/// Refuses to drop `sequence` if a default needs it.
fn check_unused(state: &CatalogState, sequence: &Sequence) -> Result<()> {
    let Some((table, column)) = user_of(state, sequence) else { return Ok(()) };
    let name = &sequence.name;
    Err(Error::Invalid {
        message: format!(
            "cannot drop sequence \"{name}\" because the default of column \"{column}\" of table \"{table}\" \
             needs it"
        ),
        fault: Fault::Dependent,
        position: None,
    })
}

/// A table and its column whose default draws from `sequence`.
fn user_of<'a>(state: &'a CatalogState, sequence: &Sequence) -> Option<(&'a str, &'a str)> {
    state.tables().find_map(|table| {
        let mut columns = table.schema.columns.iter();
        let column = columns.find(|column| draws_from(state, column, sequence))?;
        Some((table.schema.name.as_str(), column.name.as_str()))
    })
}

/// Whether the default of `column` draws from `sequence`.
fn draws_from(state: &CatalogState, column: &Column, sequence: &Sequence) -> bool {
    let name = next_default(column);
    name.and_then(|name| named(state, &name).ok()).is_some_and(|used| used.id == sequence.id)
}
