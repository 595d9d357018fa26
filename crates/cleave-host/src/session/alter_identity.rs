//! ALTER TABLE … ALTER COLUMN … ADD GENERATED, SET GENERATED and options, RESTART, DROP IDENTITY.
//!
//! An identity is a sequence that the column owns and that its default draws numbers from. Existing rows stay as they
//! are.

use std::sync::Arc;

use cleave_catalog::catalog::index_definition::IndexDefinition;
use cleave_catalog::catalog::sequence::Sequence;
use cleave_catalog::catalog::{CatalogState, TableState};
use cleave_catalog::error::{Error, Fault, Result};
use cleave_sql::statement::ddl::GivenSequence;
use cleave_sql::statement::defaults::next_text;
use cleave_sql::statement::sequence::SequenceOptions;
use cleave_store::{Column, ColumnType, TableSchema};

use super::alter::{change_column, reshaped};
use super::definitions::Definition;
use super::indexes::name_taken;
use super::sequences::{of_column, owned_by};
use super::{Session, sequences};

/// Makes `column` an identity.
pub(super) fn add_identity(
    session: &Session,
    definition: &mut Definition,
    table: &TableState,
    (column, is_always): (&str, bool),
    (options, name): (SequenceOptions, Option<String>),
) -> Result<()> {
    let mut schema = TableSchema::clone(&table.schema);
    let (of, table_id) = (schema.name.clone(), schema.table_id);
    let changed = change_column(&mut schema, column)?;
    let refused = |message: String, fault| Err(Error::Invalid { message, fault, position: None });
    let called = format!("column \"{column}\" of relation \"{of}\"");
    if !matches!(changed.column_type, ColumnType::SmallInt | ColumnType::Int | ColumnType::BigInt) {
        let message = "identity column type must be smallint, integer, or bigint".to_owned();
        return refused(message, Fault::Parameter);
    }
    if identity(&definition.edit.next, table_id, changed).is_some() {
        return refused(format!("{called} is already an identity column"), Fault::State);
    }
    if changed.default.is_some() {
        return refused(format!("{called} already has a default value"), Fault::State);
    }
    if !changed.not_null {
        let message = format!("{called} must be declared NOT NULL before identity can be added");
        return refused(message, Fault::State);
    }
    let id = changed.id;
    let given = GivenSequence { column: id, is_identity: true, is_always, options };
    let edit = &mut definition.edit;
    let made = of_column(edit, (&of, table_id), changed, &given)?;
    if let Some(name) = name {
        rename(&mut edit.next, (made, changed), name)?;
    }
    let on_commit = session.defined().on_commit(table_id);
    definition.temporary.extend(on_commit.map(|on_commit| (made, on_commit)));
    put(definition, table, schema, (id, Some(is_always)))
}

/// Changes the identity of `column`.
pub(super) fn set_identity(
    session: &Session,
    definition: &mut Definition,
    table: &TableState,
    (column, is_always): (&str, Option<bool>),
    options: &SequenceOptions,
) -> Result<()> {
    let mut schema = TableSchema::clone(&table.schema);
    let (of, table_id) = (schema.name.clone(), schema.table_id);
    let changed = change_column(&mut schema, column)?;
    let Some(sequence) = identity(&definition.edit.next, table_id, changed) else {
        return Err(not_identity(&of, column));
    };
    if *options != SequenceOptions::default() {
        sequences::change_sequence(session, definition, &sequence, options, None)?;
    }
    let id = changed.id;
    put(definition, table, schema, (id, is_always))
}

/// Makes `column` an ordinary one.
pub(super) fn drop_identity(
    definition: &mut Definition,
    table: &TableState,
    (column, if_exists): (&str, bool),
) -> Result<()> {
    let mut schema = TableSchema::clone(&table.schema);
    let (of, table_id) = (schema.name.clone(), schema.table_id);
    let changed = change_column(&mut schema, column)?;
    let next = &mut definition.edit.next;
    match identity(next, table_id, changed) {
        Some(sequence) => next.sequences.remove(&sequence.name),
        None if if_exists => return Ok(()),
        None => return Err(not_identity(&of, column)),
    };
    changed.default = None;
    let id = changed.id;
    put(definition, table, schema, (id, Some(false)))
}

/// The sequence of a column that is an identity.
fn identity(state: &CatalogState, table_id: u32, column: &Column) -> Option<Arc<Sequence>> {
    let is_its = |sequence: &&Arc<Sequence>| {
        sequence.owner.is_some_and(|owner| owner.is_identity && owner.column == column.id)
    };
    owned_by(state, table_id).find(is_its).cloned()
}

fn rename(state: &mut CatalogState, (id, column): (u32, &mut Column), name: String) -> Result<()> {
    let Some(known) = state.sequences.values().find(|known| known.id == id).map(Arc::clone) else {
        return Ok(());
    };
    if known.name == name {
        return Ok(());
    }
    if state.is_name_taken(&name) {
        return Err(name_taken(&name));
    }
    state.sequences.remove(&known.name);
    column.default = Some(next_text(&name));
    let renamed = Sequence { name: name.clone(), ..Sequence::clone(&known) };
    state.sequences.insert(name, Arc::new(renamed));
    Ok(())
}

/// Puts `schema` in the place of that of `table`, whose column `id` is GENERATED ALWAYS or not (None: as it was).
fn put(
    definition: &mut Definition,
    table: &TableState,
    schema: TableSchema,
    (id, is_always): (u32, Option<bool>),
) -> Result<()> {
    let indexes = table.indexes.iter().map(|index| IndexDefinition::clone(index)).collect();
    let mut changed = reshaped(table, schema, indexes)?;
    if let Some(is_always) = is_always {
        let always = &mut Arc::make_mut(&mut changed.rules).always;
        always.retain(|column| *column != id);
        always.extend(is_always.then_some(id));
    }
    definition.edit.put_table(changed);
    Ok(())
}

fn not_identity(table: &str, column: &str) -> Error {
    let message = format!("column \"{column}\" of relation \"{table}\" is not an identity column");
    Error::Invalid { message, fault: Fault::State, position: None }
}
