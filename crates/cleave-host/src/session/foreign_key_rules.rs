//! Foreign keys under CREATE, ALTER, DROP and TRUNCATE: names of a statement in, [`ForeignKey`]s by ids out. Refuses to
//! drop what a foreign key refers to, or drops the key with it.
//!
//! A statement that adds a key locks the referenced table (SHARE ROW EXCLUSIVE) before it takes the snapshot in which
//! it checks the existing rows. A key is stored with the referencing table. The referenced table has no entry for it;
//! its keys are found by its id.

use std::collections::BTreeSet;
use std::sync::Arc;

use cleave_catalog::catalog::index_definition::{IndexDefinition, chosen_name};
use cleave_catalog::catalog::rights::Privilege;
use cleave_catalog::catalog::rules::{ForeignKey, KeyAction, TableRules};
use cleave_catalog::catalog::{CatalogState, TableState};
use cleave_catalog::error::{Error, Fault, NameKind, Result};
use cleave_query::select::ReadView;
use cleave_sql::statement::alter::{Action, AlterTable};
use cleave_sql::statement::ddl::GivenForeignKey;
use cleave_store::{Column, ColumnType, TableSchema};
use cleave_txn::LockMode;

use super::alter_rules::{is_taken, with_own_rules};
use super::block::own;
use super::definitions::Definition;
use super::foreign_keys::{Reference, check_all};
use super::indexes::wrong_kind;
use super::{Session, locking, rights};

/// The table that is to have a foreign key.
pub(super) struct Own<'a> {
    pub(super) schema: &'a TableSchema,
    pub(super) indexes: &'a [Arc<IndexDefinition>],
    pub(super) is_temporary: bool,
}

/// Locks the tables that `keys` of the table `own` refer to, until the transaction ends.
pub(super) async fn hold_referenced<'a>(
    session: &mut Session,
    own: &str,
    keys: impl Iterator<Item = &'a GivenForeignKey>,
) -> Result<()> {
    let names: BTreeSet<&String> = keys.map(|key| &key.target).collect();
    for name in names.into_iter().filter(|name| *name != own) {
        let mut locked = None;
        // The former holder of the lock may have replaced the table.
        while let Some(table) = session.names().table(name).map(Arc::clone) {
            let id = table.schema.table_id;
            if locked == Some(id) || session.owns(id) {
                break;
            }
            locking::lock_table(session, &table, LockMode::ShareRowExclusive, false).await?;
            locked = Some(id);
        }
    }
    Ok(())
}

/// Locks the tables that ALTER TABLE needs beside its own: those that a new foreign key refers to. Returns the tables
/// to be locked like the altered one: tables of keys that may be dropped with it, or that are checked for all rows.
pub(super) async fn held_for(session: &mut Session, alter: &AlterTable) -> Result<Vec<String>> {
    let (mut locked, own) = (Vec::new(), std::slice::from_ref(&alter.table));
    let mut given = Vec::new();
    for action in &alter.actions {
        match action {
            Action::AddForeignKey(key) => given.push(key),
            Action::AddColumn { foreign_keys, .. } => given.extend(foreign_keys),
            Action::DropColumn { cascade: true, .. }
            | Action::DropConstraint { cascade: true, .. } => {
                locked.extend(referring(&session.names(), own));
            }
            Action::SetType { .. } => {
                locked.extend(referring(&session.names(), own));
                locked.extend(referred_by(&session.names(), &alter.table, |_| true));
            }
            Action::Validate { name } => {
                locked.extend(referred_by(&session.names(), &alter.table, |key| key.name == *name));
            }
            _ => {}
        }
    }
    hold_referenced(session, &alter.table, given.into_iter()).await?;
    locked.retain(|name| *name != alter.table);
    Ok(locked)
}

/// Names of the tables that foreign keys of `table` refer to.
fn referred_by(
    state: &CatalogState,
    table: &str,
    is_meant: impl Fn(&ForeignKey) -> bool,
) -> Vec<String> {
    let keys = state.table(table).into_iter().flat_map(|table| &table.rules.foreign_keys);
    let targets = keys.filter(|key| is_meant(key)).filter_map(|key| state.table_by_id(key.target));
    targets.map(|table| table.schema.name.clone()).collect()
}

/// `rules` of a table with the additional foreign keys `all`.
///
/// # Errors
/// [`Error::Invalid`] for one that cannot be; [`Error::NameTaken`].
pub(super) fn with_foreign_keys(
    session: &Session,
    state: &CatalogState,
    own: &Own<'_>,
    mut rules: TableRules,
    all: &[GivenForeignKey],
) -> Result<TableRules> {
    for given in all {
        if given.target != own.schema.name {
            rights::check_may(session, Privilege::References, &given.target)?;
        }
        let is_temporary = |id: u32| session.defined().is_temporary(id);
        let key = foreign_key(state, own, given, is_temporary);
        let key = key.map_err(|error| error.at(given.position))?;
        let taken = |name: &str| {
            rules.is_name_taken(name) || own.indexes.iter().any(|index| index.name == name)
        };
        let name = match &given.name {
            Some(name) if taken(name) => {
                return Err(Error::NameTaken { kind: NameKind::Constraint, name: name.clone() });
            }
            Some(name) => name.clone(),
            None => {
                let columns: Vec<&str> = given.columns.iter().map(String::as_str).collect();
                // Keys with explicit names keep them.
                let is_given =
                    |name: &str| all.iter().any(|other| other.name.as_deref() == Some(name));
                chosen_name(&own.schema.name, &columns, "fkey", |name| {
                    taken(name) || is_given(name)
                })
            }
        };
        rules.foreign_keys.push(ForeignKey { id: rules.next_id(), name, ..key });
    }
    rules.foreign_keys.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(rules)
}

/// `definition` with one more foreign key on `table`, which all existing rows satisfy.
///
/// # Errors
/// As [`with_foreign_keys`]; [`Error::Violation`].
pub(super) async fn add_foreign_key(
    session: &Session,
    mut definition: Definition,
    table: TableState,
    given: GivenForeignKey,
) -> Result<Definition> {
    let known: BTreeSet<u32> = table.rules.foreign_keys.iter().map(|key| key.id).collect();
    let table_id = table.schema.table_id;
    let own = Own {
        schema: &table.schema,
        indexes: &table.indexes,
        is_temporary: session.defined().is_temporary(table_id),
    };
    if let Some(name) = given.name.as_ref().filter(|name| is_taken(&table, name)) {
        return Err(Error::NameTaken { kind: NameKind::Constraint, name: name.clone() });
    }
    let (rules, not_valid) = (TableRules::clone(&table.rules), given.not_valid);
    let rules = with_foreign_keys(session, &definition.edit.next, &own, rules, &[given])?;
    let mut changed = with_own_rules(&table)?;
    changed.rules = Arc::new(rules);
    definition.edit.put_table(changed);
    if !not_valid {
        check_there(session, &definition, table_id, |key| !known.contains(&key.id)).await?;
    }
    Ok(definition)
}

/// `definition` with the foreign key `name` of `table` valid; None: it has none of this name.
///
/// # Errors
/// [`Error::Violation`].
pub(super) async fn validate(
    session: &Session,
    definition: &mut Definition,
    table: &TableState,
    name: &str,
) -> Result<bool> {
    let Some(key) = table.rules.foreign_keys.iter().find(|key| key.name == name) else {
        return Ok(false);
    };
    if key.not_valid {
        check_there(session, definition, table.schema.table_id, |known| known.id == key.id).await?;
        let mut changed = with_own_rules(table)?;
        let keys = &mut Arc::make_mut(&mut changed.rules).foreign_keys;
        keys.iter_mut().filter(|key| key.name == name).for_each(|key| key.not_valid = false);
        definition.edit.put_table(changed);
    }
    Ok(true)
}

/// Refuses rows of the table `table_id` that break one of the foreign keys that `is_asked` selects.
pub(super) async fn check_there(
    session: &Session,
    definition: &Definition,
    table_id: u32,
    is_asked: impl Fn(&ForeignKey) -> bool,
) -> Result<()> {
    let state = Arc::new(CatalogState::clone(&definition.edit.next));
    let state = own::with_own_changes(session, &state, 0).await?;
    let Some(table) = state.table_by_id(table_id).map(Arc::clone) else { return Ok(()) };
    let view = ReadView::of_state(Arc::clone(&state));
    for reference in Reference::all_of(&state, &table)? {
        if is_asked(&reference.key) {
            let all = check_all(&session.database, session.in_force(), &view, &reference);
            Box::pin(all).await?;
        }
    }
    Ok(())
}

/// Checks all foreign keys of the table `table_id`, and those that refer to it, against the existing rows.
///
/// # Errors
/// [`Error::Violation`]; that of a key whose columns no longer match.
pub(super) async fn check_retyped(
    session: &Session,
    definition: &Definition,
    table_id: u32,
    column: u32,
) -> Result<()> {
    let state = &definition.edit.next;
    let own = state.table_by_id(table_id).into_iter().flat_map(|table| {
        table.rules.foreign_keys.iter().map(move |key| (Arc::clone(table), key.clone()))
    });
    let to = state.references_to(table_id).map(|(table, key)| (Arc::clone(table), key.clone()));
    let is_about = |(table, key): &(Arc<TableState>, ForeignKey)| {
        table.schema.table_id == table_id && key.columns.contains(&column)
            || key.target == table_id && key.target_columns.contains(&column)
    };
    let keys: Vec<_> = own.chain(to).filter(is_about).collect();
    for (table, key) in keys {
        let Some(parent) = state.table_by_id(key.target) else { continue };
        for (own, other) in key.columns.iter().zip(&key.target_columns) {
            let own = table.schema.column_by_id(*own);
            if let Some((own, other)) = own.zip(parent.schema.column_by_id(*other)) {
                check_types(&key.name, own, other)?;
            }
        }
        let valid = |known: &ForeignKey| known.id == key.id && !known.not_valid;
        check_there(session, definition, table.schema.table_id, valid).await?;
    }
    Ok(())
}

/// The names of tables outside `tables` whose foreign keys refer to one of `tables`.
pub(super) fn referring(state: &CatalogState, tables: &[String]) -> Vec<String> {
    let ids: BTreeSet<u32> = tables
        .iter()
        .filter_map(|name| state.table(name).map(|table| table.schema.table_id))
        .collect();
    let refers = |table: &&Arc<TableState>| {
        !ids.contains(&table.schema.table_id)
            && table.rules.foreign_keys.iter().any(|key| ids.contains(&key.target))
    };
    state.tables().filter(refers).map(|table| table.schema.name.clone()).collect()
}

/// The same, with the tables that refer to these, transitively.
pub(super) fn all_referring(state: &CatalogState, tables: &[String]) -> Vec<String> {
    let mut all = tables.to_vec();
    loop {
        let more = referring(state, &all);
        if more.is_empty() {
            return all;
        }
        all.extend(more);
    }
}

/// Drops the foreign keys that refer to one of the dropped tables `gone` and that `is_about` selects; their tables are
/// in `locked`. Refuses without `cascade`.
///
/// # Errors
/// [`Error::Invalid`] (2BP01).
pub(super) fn drop_references(
    state: &mut CatalogState,
    (gone, locked): (&BTreeSet<u32>, &[String]),
    is_about: impl Fn(&ForeignKey) -> bool,
    (what, cascade): (&str, bool),
) -> Result<()> {
    let tables: Vec<Arc<TableState>> = state.tables().map(Arc::clone).collect();
    for table in tables {
        let is_gone = |key: &ForeignKey| gone.contains(&key.target) && is_about(key);
        let Some(key) = table.rules.foreign_keys.iter().find(|key| is_gone(key)) else { continue };
        if !cascade {
            return Err(Error::Invalid {
                message: format!(
                    "cannot drop {what} because other objects depend on it: constraint \"{}\" on table \"{}\" \
                        depends on it; use DROP ... CASCADE to drop it too",
                    key.name, table.schema.name
                ),
                fault: Fault::Dependent,
                position: None,
            });
        }
        // It was added while the statement waited for locks.
        if !locked.contains(&table.schema.name) {
            return Err(Error::concurrent_update());
        }
        let mut changed = with_own_rules(&table)?;
        Arc::make_mut(&mut changed.rules).foreign_keys.retain(|key| !is_gone(key));
        state.tables.insert(changed.schema.name.clone(), Arc::new(changed));
    }
    Ok(())
}

/// `table` without the foreign keys that contain its column `id`.
///
/// # Errors
/// None that is to be expected.
pub(super) fn without_keys(table: &TableState, id: u32) -> Result<TableState> {
    let mut changed = TableState::clone(table);
    if table.rules.foreign_keys.iter().any(|key| key.columns.contains(&id)) {
        changed = with_own_rules(table)?;
        let keys = &mut Arc::make_mut(&mut changed.rules).foreign_keys;
        keys.retain(|key| !key.columns.contains(&id));
    }
    Ok(changed)
}

/// Refuses to empty the tables `emptied` where another one refers to them.
///
/// # Errors
/// [`Error::Unsupported`].
pub(super) fn check_truncate(state: &CatalogState, emptied: &BTreeSet<u32>) -> Result<()> {
    for table in emptied {
        let mut to = state.references_to(*table);
        let other = to.find(|(from, _)| !emptied.contains(&from.schema.table_id));
        if let Some((from, _)) = other {
            let name = state.table_by_id(*table).map_or("", |table| &table.schema.name);
            return Err(Error::Unsupported {
                what: format!(
                    "TRUNCATE of a table referenced in a foreign key constraint (table \"{}\" references \"{name}\")",
                    from.schema.name
                ),
                hint: Some(format!(
                    "truncate table \"{}\" at the same time, or use TRUNCATE ... CASCADE",
                    from.schema.name
                )),
                position: None,
            });
        }
    }
    Ok(())
}

/// The table that `given` refers to: one of the catalog version `state`, or its own.
fn foreign_key(
    state: &CatalogState,
    own: &Own<'_>,
    given: &GivenForeignKey,
    is_temporary: impl Fn(u32) -> bool,
) -> Result<ForeignKey> {
    let is_own = given.target == own.schema.name;
    let other;
    let (target, indexes, of_temporary) = match is_own {
        true => (own.schema, own.indexes, own.is_temporary),
        false => {
            other = Arc::clone(state.find_table(&given.target)?);
            if other.materialized.is_some() {
                return Err(wrong_kind(&given.target, "a table"));
            }
            let is_temporary = is_temporary(other.schema.table_id);
            (&*other.schema, other.indexes.as_slice(), is_temporary)
        }
    };
    let kinds = match (own.is_temporary, of_temporary) {
        (true, false) => Some("temporary tables may reference only temporary tables"),
        (false, true) => Some("permanent tables may reference only permanent tables"),
        _ => None,
    };
    if let Some(kinds) = kinds {
        return Err(refused(Fault::TableDefinition, format!("constraints on {kinds}")));
    }
    let columns = columns_of(own.schema, &given.columns)?;
    let target_columns = match given.target_columns.as_slice() {
        [] if target.primary_key.is_empty() => {
            let message =
                format!("there is no primary key for referenced table \"{}\"", target.name);
            return Err(refused(Fault::UnknownConstraint, message));
        }
        [] => target.primary_key.iter().filter_map(|id| target.column_by_id(*id)).collect(),
        names => columns_of(target, names)?,
    };
    if columns.len() != target_columns.len() {
        let message = "number of referencing and referenced columns for foreign key disagree";
        return Err(refused(Fault::ForeignKey, message.to_owned()));
    }
    let distinct: BTreeSet<u32> = target_columns.iter().map(|column| column.id).collect();
    if distinct.len() != target_columns.len() {
        let message = "foreign key referenced-columns list must not contain duplicates";
        return Err(refused(Fault::ForeignKey, message.to_owned()));
    }
    let is_over = |index: &&Arc<IndexDefinition>| {
        let over = |column: &&Column| index.columns.iter().any(|known| known.column == column.id);
        index.unique
            && index.columns.len() == target_columns.len()
            && target_columns.iter().all(over)
    };
    let Some(index) = indexes.iter().find(is_over) else {
        let message = format!(
            "there is no unique constraint matching given keys for referenced table \"{}\"",
            target.name
        );
        return Err(refused(Fault::ForeignKey, message));
    };
    for (column, other) in columns.iter().zip(&target_columns) {
        let name = given.name.clone();
        let name = name
            .unwrap_or_else(|| chosen_name(&own.schema.name, &[&column.name], "fkey", |_| false));
        check_types(&name, column, other)?;
    }
    let mut set_columns = Vec::with_capacity(given.set_columns.len());
    if !given.set_columns.is_empty()
        && !matches!(given.on_delete, KeyAction::SetNull | KeyAction::SetDefault)
    {
        let message = "a column list is only supported for ON DELETE SET NULL and SET DEFAULT";
        return Err(refused(Fault::Statement, message.to_owned()));
    }
    for name in &given.set_columns {
        let column = columns_of(own.schema, std::slice::from_ref(name))?;
        let found = column.first().filter(|column| columns.iter().any(|own| own.id == column.id));
        let Some(column) = found else {
            let message = format!(
                "column \"{name}\" referenced in ON DELETE SET action must be part of foreign key"
            );
            return Err(refused(Fault::ConflictTarget, message));
        };
        set_columns.push(column.id);
    }
    Ok(ForeignKey {
        id: 0,
        name: String::new(),
        columns: columns.iter().map(|column| column.id).collect(),
        target: target.table_id,
        target_columns: target_columns.iter().map(|column| column.id).collect(),
        index: index.id,
        on_delete: given.on_delete,
        on_update: given.on_update,
        set_columns,
        match_full: given.match_full,
        timing: given.timing,
        not_valid: given.not_valid,
    })
}

fn columns_of<'a>(schema: &'a TableSchema, names: &[String]) -> Result<Vec<&'a Column>> {
    let find = |name: &String| {
        let names = schema.columns.iter().map(|column| column.name.as_str());
        schema.column(name).ok_or_else(|| Error::unknown_column(&schema.name, name, names))
    };
    names.iter().map(find).collect()
}

/// Refuses columns of a foreign key that cannot be compared.
fn check_types(name: &str, own: &Column, other: &Column) -> Result<()> {
    if is_comparable(own.column_type, other.column_type) {
        return Ok(());
    }
    let message = format!(
        "foreign key constraint \"{name}\" cannot be implemented: key columns \"{}\" and \"{}\" are of incompatible \
            types: {} and {}",
        own.name, other.name, own.column_type, other.column_type
    );
    Err(refused(Fault::Type, message))
}

/// Whether a value of type `own` can refer to one of type `other`: directly, or by a cast that PostgreSQL applies
/// implicitly.
fn is_comparable(own: ColumnType, other: ColumnType) -> bool {
    use ColumnType as T;
    let is_whole = |known| matches!(known, T::SmallInt | T::Int | T::BigInt);
    let is_text = |known| matches!(known, T::Text | T::Varchar(_) | T::Char(_));
    let is_float = |known| matches!(known, T::Real | T::Double);
    let is_numeric = |known| matches!(known, T::Numeric { .. });
    own == other
        || is_text(own) && is_text(other)
        || is_whole(own) && (is_whole(other) || is_numeric(other) || is_float(other))
        || is_numeric(own) && (is_numeric(other) || is_float(other))
        || is_float(own) && is_float(other)
        || matches!((own, other), (T::Date, T::Timestamp) | (T::Timestamp, T::Date))
}

fn refused(fault: Fault, message: String) -> Error {
    Error::Invalid { message, fault, position: None }
}
