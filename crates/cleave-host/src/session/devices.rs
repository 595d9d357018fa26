//! CREATE DEVICE, ALTER DEVICE … DRAIN and UNDRAIN, and DROP DEVICE: devices are attached, emptied and removed while
//! the database is in use. A lost one is [rebuilt](super::rebuild), and copies of a mirror are
//! [resynchronised](cleave_engine::write::resync).
//!
//! DRAIN [moves](super::tablet_moves) table by table. Each table is committed by itself: what was moved stays moved,
//! whatever happens to the others, and the same statement goes on with the rest. From its begin the device is noted as
//! drained, so that [rebalancing](crate::rebalance) does not fill it again, until UNDRAIN.

use std::sync::Arc;

use cleave_catalog::catalog::log_replicas::LogReplica;
use cleave_catalog::catalog::{CatalogState, DeviceId, DeviceKind};
use cleave_catalog::error::{Error, Fault, Result};
use cleave_catalog::storage_error::StorageError;
use cleave_engine::device::Device;
use cleave_engine::storage_engine::catalog_edit::CatalogEdit;
use cleave_engine::storage_engine::commit::Changes;
use cleave_engine::write::move_tablets::MovedTablets;
use cleave_engine::write::resync::resync;
use cleave_sql::statement::parse::DeviceStatement;

use super::tablet_moves::move_table;
use super::{Session, rebuild};
use crate::database::Database;

/// Runs a statement about a device.
pub(super) async fn run(session: &mut Session, statement: DeviceStatement) -> Result<()> {
    match statement {
        DeviceStatement::Create { name, way, ca } => {
            let way = with_certificate(way, ca)?;
            session.database.add_device(&name, way).await.map(drop)
        }
        DeviceStatement::CreateMirror { name, copies } => {
            session.database.add_mirror(&name, &copies).await.map(drop)
        }
        DeviceStatement::Resync { name } => {
            let database = Arc::clone(&session.database);
            let mirror = database.device_named(&name)?;
            if !mirror.is_mirror() {
                let message = format!("device \"{name}\" is no mirror");
                return Err(Error::Invalid { message, fault: Fault::Parameter, position: None });
            }
            resync(&database, &mirror, true).await.map(drop)
        }
        DeviceStatement::Drain { name, to } => drain(session, &name, &to).await,
        DeviceStatement::Undrain { name } => {
            let database = Arc::clone(&session.database);
            let device = database.device_named(&name)?.id();
            note_drained(&database, device, false).await
        }
        DeviceStatement::Rebuild { name, to, backup, archive } => {
            rebuild::run(session, &name, &to, backup, archive).await
        }
        DeviceStatement::Drop { name, if_exists } => {
            if if_exists && session.database.catalog().device_named(&name).is_none() {
                return Ok(());
            }
            // A device that cannot be told is removed all the same, and believes to be this database's.
            session.database.remove_device(&name).await.map(drop)
        }
    }
}

fn with_certificate(way: DeviceKind, ca: Option<std::path::PathBuf>) -> Result<DeviceKind> {
    let (DeviceKind::Remote(mut remote), Some(path)) = (way.clone(), ca) else { return Ok(way) };
    let pem = std::fs::read_to_string(&path).map_err(|error| Error::io("read", &path, error))?;
    remote.ca_pem = Some(pem);
    Ok(remote.into())
}

/// Moves all that lies on the device `name` to the devices `to`, or to the others.
async fn drain(session: &mut Session, name: &str, to: &[String]) -> Result<()> {
    let database = Arc::clone(&session.database);
    let from = database.device_named(name)?;
    let targets = targets(&database, &from, to, "drained").await?;
    let state = database.catalog();
    if let Err(error) = from.link().await {
        return Err(not_drained(&from, &state, error));
    }
    let replica_target = replica_target(&state, &from, &targets)?;
    drop(state);
    note_drained(&database, from.id(), true).await?;
    // Tables that others create there meanwhile are moved as well.
    while let Some(table) = table_on(&database, from.id()) {
        let moved = MovedTablets::From(from.id(), targets.clone());
        let moved = move_table(session, table, moved).await;
        moved.map_err(|error| not_drained(&from, &database.catalog(), error))?;
    }
    if let Some(target) = replica_target {
        move_replica(&database, from.id(), &target).await?;
    }
    match database
        .catalog()
        .damaged_tables()
        .find(|table| table.space.iter().any(|space| space.device == from.id()))
    {
        Some(damaged) => Err(damaged.error().into()),
        None => Ok(()),
    }
}

/// Notes whether `device` is drained, so that it gets no tablets by itself. Devices that are gone are forgotten.
async fn note_drained(database: &Arc<Database>, device: DeviceId, is_drained: bool) -> Result<()> {
    if database.catalog().upkeep.rebalance.drained.contains(&device) == is_drained {
        return Ok(());
    }
    let mut edit = CatalogEdit::begin(database).await?;
    let mut drained = std::mem::take(&mut edit.next.upkeep.rebalance.drained);
    drained.retain(|known| *known != device && edit.next.devices.contains_key(known));
    if is_drained {
        drained.insert(device);
    }
    edit.next.upkeep.rebalance.drained = drained;
    database.commit(Changes::settings(edit)).await.map(drop)
}

/// A table with a tablet on `device` that can be moved.
fn table_on(database: &Database, device: DeviceId) -> Option<u32> {
    let state = database.catalog();
    let mut tables = state.tables.values().filter(|table| table.devices().contains(&device));
    tables.next().map(|table| table.schema.table_id)
}

/// The devices that take the tablets of `from`, which is to be drained or rebuilt, as `verb` says: those called
/// `names`, or, without names, those that answer, and for a mirror the other mirrors. The database's own device is
/// among these only where there is no other: on a device outside, fragments have cores of their own. Those that were
/// drained themselves are the last resort.
pub(super) async fn targets(
    database: &Database,
    from: &Arc<Device>,
    names: &[String],
    verb: &str,
) -> Result<Vec<Arc<Device>>> {
    let mut targets = Vec::new();
    for name in names {
        let device = database.device_named(name)?;
        if device.id() == from.id() || targets.iter().any(|known| Arc::ptr_eq(known, &device)) {
            let problem = match device.id() == from.id() {
                true => format!("{verb} to itself"),
                false => "named twice".to_owned(),
            };
            let message = format!("device \"{name}\" cannot be {problem}");
            return Err(Error::Invalid { message, fault: Fault::Parameter, position: None });
        }
        device.link().await?;
        targets.push(device);
    }
    if !names.is_empty() {
        return Ok(targets);
    }
    let (mut own, mut drained) = (Vec::new(), Vec::new());
    for device in database.devices() {
        let is_alike = device.is_mirror() == from.is_mirror();
        if device.id() == from.id() || !is_alike || device.link().await.is_err() {
            continue;
        }
        let is_drained = database.catalog().upkeep.rebalance.drained.contains(&device.id());
        match device.id() {
            _ if is_drained => drained.push(device),
            DeviceId::EMBEDDED => own.push(device),
            _ => targets.push(device),
        }
    }
    for others in [own, drained] {
        if targets.is_empty() {
            targets = others;
        }
    }
    if targets.is_empty() {
        let message =
            format!("device \"{}\" cannot be {verb}: no other device answers", from.name());
        return Err(Error::Invalid { message, fault: Fault::State, position: None });
    }
    Ok(targets)
}

/// The device that is to take the log replica on `from`; None: it has none, or others have one and that is enough.
fn replica_target(
    state: &CatalogState,
    from: &Arc<Device>,
    targets: &[Arc<Device>],
) -> Result<Option<Arc<Device>>> {
    let has_replica = |device: DeviceId| live_replicas(state).any(|copy| copy.device == device.0);
    if !has_replica(from.id()) {
        return Ok(None);
    }
    let takes_it = |device: &&Arc<Device>| {
        device.id() != DeviceId::EMBEDDED && !device.is_mirror() && !has_replica(device.id())
    };
    let free = targets.iter().find(takes_it);
    match free {
        Some(device) => Ok(Some(Arc::clone(device))),
        None => {
            let message = format!(
                "device \"{}\" has a log replica, which none of the other devices can take; attach one, or ALTER \
                 SYSTEM SET log_replica",
                from.name()
            );
            Err(Error::Invalid { message, fault: Fault::State, position: None })
        }
    }
}

/// The log replicas that commits wait for.
fn live_replicas(state: &CatalogState) -> impl Iterator<Item = &LogReplica> {
    let replicas = state.upkeep.log_replicas.iter();
    replicas.filter(|copy| !copy.is_ended && copy.gives_up.is_none())
}

/// Makes a log replica on `target`, and then drops that on `from`, so that there is one at any time.
async fn move_replica(database: &Arc<Database>, from: DeviceId, target: &Device) -> Result<()> {
    let name =
        |copy: &LogReplica| database.attached(DeviceId(copy.device)).map(|it| it.name().to_owned());
    let state = database.catalog();
    let before: Vec<(u32, String)> =
        live_replicas(&state).map(|copy| Ok((copy.device, name(copy)?))).collect::<Result<_>>()?;
    drop(state);
    let with_both = before.iter().map(|(_, name)| name.clone()).chain([target.name().to_owned()]);
    let with_both: Vec<String> = with_both.collect();
    let left = before.iter().filter(|(device, _)| *device != from.0);
    let left: Vec<String> =
        left.map(|(_, name)| name.clone()).chain([target.name().to_owned()]).collect();
    for names in [with_both, left] {
        Box::pin(database.replication.replicas.set(database, &names)).await?;
    }
    Ok(())
}

/// The error of a drain of `from` that cannot read it; others as they are.
fn not_drained(from: &Device, state: &CatalogState, error: Error) -> Error {
    match error {
        Error::Storage(source) if is_of(&source, from.name()) => {
            let (device, tables) = (from.name().to_owned(), state.tables_on(from.id()));
            StorageError::NotDrained { device, tables, source }.into()
        }
        error => error,
    }
}

/// Whether `error` says that the device `name` does not answer, or that another one does in its place.
fn is_of(error: &StorageError, name: &str) -> bool {
    match error {
        StorageError::DeviceLost { device, .. }
        | StorageError::Unanswered { device, .. }
        | StorageError::OtherDevice { device, .. } => device == name,
        StorageError::TableBlocked { reason, .. } => is_of(reason, name),
        _ => false,
    }
}
