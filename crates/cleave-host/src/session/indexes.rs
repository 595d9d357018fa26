//! CREATE TABLE, CREATE INDEX, DROP INDEX: names of a statement in, definitions in the catalog out.
//!
//! Tables and indexes share one namespace, as in PostgreSQL. The index of a constraint is dropped only with its table.

use std::collections::BTreeSet;
use std::sync::Arc;

use cleave_catalog::catalog::division::{Division, TABLET_COUNT_MAX, spread};
use cleave_catalog::catalog::index_definition::{
    IndexColumn, IndexDefinition, PRIMARY_KEY, chosen_name,
};
use cleave_catalog::catalog::rules::ForeignKey;
use cleave_catalog::catalog::{CatalogState, DeviceId, TableState, TabletState};
use cleave_catalog::error::{Error, Fault, NameKind, Result};
use cleave_catalog::index::{IndexShape, TabletIndex};
use cleave_catalog::settings::Settings;
use cleave_engine::storage_engine::catalog_edit::CatalogEdit;
use cleave_engine::write::build_index::{build_index, build_index_within};
use cleave_sql::statement::ddl::check_class;
use cleave_sql::statement::placement::{DeviceShare, Placement, device_list};
use cleave_sql::statement::{CreateIndex, CreateTable};
use cleave_store::{TableSchema, TabletId};

use super::definitions::Definition;
use super::foreign_key_rules::{Own, drop_references};
use super::{
    Outcome, Session, block, definitions, foreign_key_rules, locking, roles, rules, sequences,
};
use crate::database::Database;

/// Runs CREATE TABLE.
pub(super) async fn create_table(session: &mut Session, create: CreateTable) -> Result<Outcome> {
    if let Some((definition, _)) = new_table(session, create).await? {
        definitions::end_definition(session, definition).await?;
    }
    Ok(Outcome::done("CREATE TABLE"))
}

/// The definition of a table without rows, and its schema; None: the table exists, and that is no error.
pub(super) async fn new_table(
    session: &mut Session,
    mut create: CreateTable,
) -> Result<Option<(Definition, Arc<TableSchema>)>> {
    if let Some(count) = create.placement.mirrors.filter(|count| *count > 1) {
        let devices = Box::pin(on_mirrors(session, &create.placement, count)).await?;
        create.placement.devices = devices;
    }
    let name = &create.schema.name;
    let names: &[&str] = if create.temporary.is_some() { &[] } else { &[name] };
    foreign_key_rules::hold_referenced(session, name, create.foreign_keys.iter()).await?;
    let mut definition = definitions::begin_definition(session, "CREATE TABLE", &[], names).await?;
    let edit = &mut definition.edit;
    let is_taken = match create.temporary {
        Some(_) => session.defined().has_temporary(name),
        None => edit.next.is_name_taken(name),
    };
    if is_taken {
        if create.if_not_exists && edit.next.has_table_named(name) {
            return Ok(None);
        }
        return Err(name_taken(name));
    }
    let tablets = tablets(&session.database, session.in_force(), &create)?;
    let division = division(&create, tablets.len());
    let table_id = edit.table_id()?;
    sequences::of_columns(edit, &mut create, table_id)?;
    let indexes = constraint_indexes(&edit.next, &create)?;
    let rules = rules::defined(&session.database, &create, &indexes).await?;
    let schema = TableSchema { table_id, ..create.schema };
    let table = empty_table(schema, indexes, &tablets, division)?;
    let own = Own {
        schema: &table.schema,
        indexes: &table.indexes,
        is_temporary: create.temporary.is_some(),
    };
    let given = &create.foreign_keys;
    let rules =
        Arc::new(foreign_key_rules::with_foreign_keys(session, &edit.next, &own, rules, given)?);
    let schema = Arc::clone(&table.schema);
    let is_balanced = create.placement.is_balanced.unwrap_or_default();
    if is_balanced && create.temporary.is_some() {
        return Err(Error::unsupported("rebalance of a temporary table"));
    }
    edit.put_table(TableState { rules, is_balanced, ..table });
    if let Some(on_commit) = create.temporary {
        let own = sequences::owned_by(&edit.next, table_id).map(|sequence| sequence.id);
        definition.temporary.extend(own.chain([table_id]).map(|id| (id, on_commit)));
    }
    Ok(Some((definition, schema)))
}

/// The mirrors of `count` copies over the devices of `placement`, each with the weight of the one that is read first:
/// of each device and those behind it, in a ring. Those that there are not yet are made, and stay, whatever becomes of
/// the table. Before its definition begins: they are committed by themselves.
async fn on_mirrors(
    session: &Session,
    placement: &Placement,
    count: u32,
) -> Result<Vec<DeviceShare>> {
    session.check_may_write("CREATE TABLE")?;
    let database = &session.database;
    let mut shares = shares(placement, session.in_force())?;
    let names: Vec<String> = shares.iter().map(|share| share.name.clone()).collect();
    names.iter().try_for_each(|name| database.device_named(name).map(drop))?;
    let copy_count = usize::try_from(count).unwrap_or(usize::MAX);
    if copy_count > names.len() {
        let message = format!(
            "mirrors = {count} over {} devices ({}): each copy of a page lies on another one",
            names.len(),
            names.join(", ")
        );
        return Err(Error::Invalid { message, fault: Fault::Parameter, position: None });
    }
    let from = |first: usize| -> Vec<String> {
        names.iter().cycle().skip(first).take(copy_count).cloned().collect()
    };
    let ring: Vec<Vec<String>> = (0..names.len()).map(from).collect();
    let known: Option<Vec<_>> = ring.iter().map(|copies| database.mirror_of(copies)).collect();
    let mirrors = match known {
        Some(mirrors) => mirrors,
        None if database.catalog().rights.is_superuser(roles::actor(&session.settings)) => {
            database.mirrors_of(&ring).await?
        }
        None => {
            return Err(roles::refused(
                "must be superuser to make mirrors; name devices of which there are some",
            ));
        }
    };
    for (share, mirror) in shares.iter_mut().zip(&mirrors) {
        mirror.name().clone_into(&mut share.name);
    }
    Ok(shares)
}

/// The devices that `placement` names, or else `settings`.
fn shares(placement: &Placement, settings: &Settings) -> Result<Vec<DeviceShare>> {
    match placement.devices.as_slice() {
        [] => Ok(DeviceShare::of_all(device_list(&settings.default_device)?)),
        shares => Ok(shares.to_vec()),
    }
}

/// The device of each tablet of a new table: by the devices' weights, and in turn.
fn tablets(
    database: &Database,
    settings: &Settings,
    create: &CreateTable,
) -> Result<Vec<DeviceId>> {
    let placement = &create.placement;
    let shares = shares(placement, settings)?;
    let device = |share: &DeviceShare| Ok(database.device_named(&share.name)?.id());
    let devices: Vec<DeviceId> = shares.iter().map(device).collect::<Result<_>>()?;
    let weights: Vec<u32> = shares.iter().map(|share| share.weight).collect();
    let one_each = u32::try_from(devices.len()).unwrap_or(u32::MAX);
    let count = match (placement.tablet_count, settings.default_tablets) {
        (Some(count), _) => count,
        (None, 0) => weights.iter().fold(0, |sum, weight| weight.saturating_add(sum)),
        (None, count) => count,
    };
    if count < one_each || count > TABLET_COUNT_MAX {
        let names: Vec<&str> = shares.iter().map(|share| share.name.as_str()).collect();
        return Err(Error::Invalid {
            message: format!(
                "{count} tablets on {one_each} devices ({}): each device gets at least one, and a table has at \
                 most {TABLET_COUNT_MAX}",
                names.join(", ")
            ),
            fault: Fault::Parameter,
            position: None,
        });
    }
    let places = spread(&weights, usize::try_from(count).unwrap_or_default()).into_iter();
    Ok(places.filter_map(|place| devices.get(place).copied()).collect())
}

/// Runs CREATE INDEX. Outside of a block, others may write the table meanwhile.
pub(super) async fn create_index(session: &mut Session, create: CreateIndex) -> Result<Outcome> {
    let settings = session.shared_settings();
    let define = |edit: &CatalogEdit, table: &TableState| define(&edit.next, table, &create);
    let state = session.names();
    let table = state.find_table(&create.table)?;
    if block::is_alone(session) && !session.owns(table.schema.table_id) {
        session.check_may_write("CREATE INDEX")?;
        locking::lock_pages(session, table, false).await?;
        // A load under way writes no keys for an index that comes meanwhile.
        let table_id = table.schema.table_id;
        locking::lock_loads(session, table_id).await?;
        build_index(&session.database, &settings, &create.table, define).await?;
        return Ok(Outcome::done("CREATE INDEX"));
    }
    let names: Vec<&str> = create.name.as_deref().into_iter().collect();
    let tables = [create.table.clone()];
    let mut definition =
        definitions::begin_definition(session, "CREATE INDEX", &tables, &names).await?;
    let table = definition.edit.table(&create.table)?;
    if let Some(index) = define(&definition.edit, &table)? {
        let built = build_index_within(&mut definition.edit, &settings, &table, index);
        let changed = built.await?;
        definition.edit.put_table(changed);
        definitions::end_definition(session, definition).await?;
    }
    Ok(Outcome::done("CREATE INDEX"))
}

/// Runs DROP INDEX.
pub(super) async fn drop_indexes(
    session: &mut Session,
    if_exists: bool,
    names: &[String],
    cascade: bool,
) -> Result<Outcome> {
    let state = session.names();
    let mut tables = Vec::new();
    for name in names {
        tables.extend(to_drop(&state, name)?.map(|(table, _)| table.schema.name.clone()));
    }
    if cascade {
        tables.extend(foreign_key_rules::referring(&state, &tables));
    }
    let mut definition = definitions::begin_definition(session, "DROP INDEX", &tables, &[]).await?;
    let edit = &mut definition.edit;
    let mut dropped = false;
    for name in names {
        let Some((table, index)) = to_drop(&edit.next, name)? else {
            if edit.next.has_table_named(name) {
                return Err(wrong_kind(name, "an index"));
            }
            if if_exists {
                continue;
            }
            let names = edit.next.indexes().map(|(_, index)| index.name.as_str());
            return Err(Error::unknown(NameKind::Index, name, names));
        };
        if index.constraint {
            let table = &table.schema.name;
            return Err(Error::Invalid {
                message: format!(
                    "cannot drop index {name} because constraint {name} on table {table} requires \
                     it"
                ),
                fault: Fault::Dependent,
                position: None,
            });
        }
        let gone = BTreeSet::from([table.schema.table_id]);
        let is_about = |key: &ForeignKey| key.index == index.id;
        let what = format!("index \"{name}\"");
        drop_references(&mut edit.next, (&gone, &tables), is_about, (&what, cascade))?;
        let mut changed = TableState::clone(&table);
        changed.indexes.retain(|kept| kept.id != index.id);
        changed.damaged.retain(|kept| kept.definition.id != index.id);
        for tablet in &mut changed.tablets {
            let indexes = &mut Arc::make_mut(tablet).indexes;
            indexes.retain(|kept| kept.definition().id != index.id);
        }
        edit.put_table(changed);
        dropped = true;
    }
    if dropped {
        definitions::end_definition(session, definition).await?;
    }
    Ok(Outcome::done("DROP INDEX"))
}

/// The index `name`, even if it is damaged, and its table.
///
/// # Errors
/// [`StorageError::DamagedTable`](cleave_catalog::storage_error::StorageError::DamagedTable) if its table is damaged:
/// the index is dropped only with it.
fn to_drop(
    state: &CatalogState,
    name: &str,
) -> Result<Option<(Arc<TableState>, Arc<IndexDefinition>)>> {
    if let Some(table) = state.damaged_table_of_index(name) {
        return Err(table.error().into());
    }
    let damaged = state.damaged_indexes().map(|(table, index)| (table, &index.definition));
    let mut all = state.indexes().chain(damaged);
    let found = all.find(|(_, index)| index.name == name);
    Ok(found.map(|(table, index)| (Arc::clone(table), Arc::clone(index))))
}

/// The error of a statement on an object of another kind than `expected`.
pub(super) fn wrong_kind(name: &str, expected: &str) -> Error {
    Error::Invalid {
        message: format!("\"{name}\" is not {expected}"),
        fault: Fault::ObjectKind,
        position: None,
    }
}

/// The error of a name that is taken.
pub(super) fn name_taken(name: &str) -> Error {
    Error::NameTaken { kind: NameKind::Relation, name: name.to_owned() }
}

/// The index that `create` asks for on `table`; None: its name is taken, and that is no error.
fn define(
    state: &CatalogState,
    table: &TableState,
    create: &CreateIndex,
) -> Result<Option<IndexDefinition>> {
    let schema = &table.schema;
    let mut columns = Vec::with_capacity(create.columns.len());
    for column in &create.columns {
        let found = schema.column(&column.name).ok_or_else(|| {
            let names = schema.columns.iter().map(|column| column.name.as_str());
            Error::unknown_column(&schema.name, &column.name, names).at(column.position)
        })?;
        if let Some(class) = &column.class {
            check_class(class, found.column_type, column.position)?;
        }
        columns.push(IndexColumn {
            column: found.id,
            descending: column.descending,
            nulls_first: column.nulls_first,
        });
    }
    for (name, position) in &create.included {
        if schema.column(name).is_none() {
            let names = schema.columns.iter().map(|column| column.name.as_str());
            return Err(Error::unknown_column(&schema.name, name, names).at(*position));
        }
    }
    let name = match &create.name {
        Some(name) if !state.is_name_taken(name) => name.clone(),
        Some(_) if create.if_not_exists => return Ok(None),
        Some(name) => return Err(name_taken(name)),
        None => {
            let names: Vec<&str> =
                create.columns.iter().map(|column| column.name.as_str()).collect();
            chosen_name(&schema.name, &names, "idx", |name| state.is_name_taken(name))
        }
    };
    let damaged = table.damaged.iter().map(|index| &index.definition);
    let ids = table.indexes.iter().chain(damaged).map(|index| index.id);
    let id = ids.max().unwrap_or(PRIMARY_KEY) + 1;
    Ok(Some(IndexDefinition { id, name, columns, unique: create.unique, constraint: false }))
}

/// The indexes of the constraints of a table to be created.
fn constraint_indexes(state: &CatalogState, create: &CreateTable) -> Result<Vec<IndexDefinition>> {
    let schema = &create.schema;
    let mut indexes: Vec<IndexDefinition> = Vec::new();
    let taken = |indexes: &[IndexDefinition], name: &str| {
        state.is_name_taken(name)
            || name == schema.name
            || indexes.iter().any(|index| index.name == name)
    };
    let named =
        |indexes: &[IndexDefinition], given: &Option<String>, names: &[&str], suffix| match given {
            None => Ok(chosen_name(&schema.name, names, suffix, |name| taken(indexes, name))),
            Some(name) if taken(indexes, name) => {
                Err(Error::NameTaken { kind: NameKind::Index, name: name.clone() })
            }
            Some(name) => Ok(name.clone()),
        };
    let name = named(&indexes, &create.primary_key_name, &[], "pkey")?;
    indexes.extend(IndexDefinition::of_primary_key(schema, name));
    for ((given, ids), id) in create.unique.iter().zip(PRIMARY_KEY + 1..) {
        let columns = ids.iter().filter_map(|id| schema.column_by_id(*id));
        let names: Vec<&str> = columns.map(|column| column.name.as_str()).collect();
        let name = named(&indexes, given, &names, "key")?;
        let columns = ids.iter().map(|id| IndexColumn::ascending(*id)).collect();
        indexes.push(IndexDefinition { id, name, columns, unique: true, constraint: true });
    }
    Ok(indexes)
}

/// The columns that divide a new table into tablets: by default its primary key, so that a look-up of a row asks one
/// tablet.
fn division(create: &CreateTable, tablet_count: usize) -> Division {
    match &create.placement.division {
        Some(division) => division.clone(),
        None if create.schema.primary_key.is_empty() || tablet_count == 1 => Division::LoadOrder,
        None => Division::Hash(create.schema.primary_key.clone()),
    }
}

/// A table without rows, whose tablets lie on `devices`.
fn empty_table(
    schema: TableSchema,
    indexes: Vec<IndexDefinition>,
    devices: &[DeviceId],
    division: Division,
) -> Result<TableState> {
    let schema = Arc::new(schema);
    let indexes: Vec<_> = indexes.into_iter().map(Arc::new).collect();
    let empty = |index: &Arc<IndexDefinition>| {
        Ok::<_, Error>(Arc::new(TabletIndex::empty(IndexShape::new(Arc::clone(index), &schema)?)))
    };
    let mut tablets = Vec::with_capacity(devices.len());
    for (id, device) in (0..).zip(devices) {
        let own = indexes.iter().map(empty).collect::<Result<_>>()?;
        tablets.push(Arc::new(TabletState::empty(TabletId(id), *device, own)));
    }
    let (damaged, rules) = (Vec::new(), Arc::default());
    Ok(TableState {
        schema,
        indexes,
        tablets,
        division,
        damaged,
        rules,
        materialized: None,
        is_balanced: false,
    })
}
