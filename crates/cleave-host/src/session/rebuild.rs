//! ALTER DEVICE … REBUILD: the tables of a lost device are made anew on others, from a backup and the archived log,
//! while all other tables are used.
//!
//! 1. The tables with tablets on the device are locked EXCLUSIVE: their writers wait to the end. Commits whose rows
//!    wait for the device are in the log.
//! 2. CHECKPOINT completes the archive.
//! 3. The [rebuild](cleave_replica::backup::rebuild) restores, copies, and commits all of the tables or none.
//!
//! Invariant: what is rebuilt has every row that was committed, or the statement fails and changes nothing.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use cleave_catalog::catalog::{CatalogState, DeviceId};
use cleave_catalog::error::{Error, Fault, Result};
use cleave_catalog::storage_error::StorageError;
use cleave_engine::device::Device;
use cleave_replica::backup::rebuild::{Needed, Rebuild};
use cleave_replica::replication;
use cleave_txn::LockMode;

use super::{Session, devices, system};
use crate::database::Database;

/// Rebuilds what lies on the device `name` on the devices `to`, or on the others.
pub(super) async fn run(
    session: &mut Session,
    name: &str,
    to: &[String],
    backup: PathBuf,
    archive: Option<PathBuf>,
) -> Result<()> {
    let database = Arc::clone(&session.database);
    let lost = database.device_named(name)?;
    let targets = devices::targets(&database, &lost, to, "rebuilt").await?;
    // A link may be lost without anybody knowing it yet.
    if lost.id() == DeviceId::EMBEDDED || lost.sync().await.is_ok() {
        let message = format!(
            "device \"{name}\" is not lost: it answers; ALTER DEVICE \"{name}\" DRAIN moves its tables"
        );
        return Err(refused(message));
    }
    let archive = archive.or_else(|| database.catalog().upkeep.archive_directory.clone());
    let archive = archive.ok_or_else(|| {
        refused(
            "a rebuild needs the archived log, and archive_directory is not set: name its folder by ARCHIVE"
                .to_owned(),
        )
    })?;
    let rebuilt = locked(session, &database, lost, targets, (backup, archive)).await;
    session.statement_locks = None;
    rebuilt
}

/// The same, of devices and folders that are known.
async fn locked(
    session: &mut Session,
    database: &Arc<Database>,
    lost: Arc<Device>,
    targets: Vec<Arc<Device>>,
    (backup, archive): (PathBuf, PathBuf),
) -> Result<()> {
    let lock_timeout_ms = session.in_force().lock_timeout_ms;
    let mut locked = BTreeSet::new();
    // What others define there meanwhile is rebuilt as well.
    loop {
        let tables = tables_on(&database.catalog(), lost.id());
        let Some(table) = tables.iter().find(|table| !locked.contains(*table)) else { break };
        session.locks().lock_table(*table, LockMode::Exclusive, lock_timeout_ms).await?;
        locked.insert(*table);
    }
    let state = database.catalog();
    let tables: Vec<u32> = tables_on(&state, lost.id()).into_iter().collect();
    if let Some(damaged) = state
        .damaged_tables()
        .find(|table| table.space.iter().any(|space| space.device == lost.id()))
    {
        return Err(damaged.error().into());
    }
    answer_elsewhere(database, &state, &tables, &lost).await?;
    drop(state);
    if tables.is_empty() {
        return Ok(());
    }
    let needed = Needed::by_now(database);
    system::checkpoint(database).await?;
    let progress = session.progress();
    let wanted = Rebuild { lost, tables, targets, backup, archive, needed, progress };
    Box::pin(replication::rebuild(database, &wanted)).await
}

/// Tables with a tablet on `device`.
fn tables_on(state: &CatalogState, device: DeviceId) -> BTreeSet<u32> {
    let tables = state.tables.values().filter(|table| table.devices().contains(&device));
    tables.map(|table| table.schema.table_id).collect()
}

/// Refuses tables that also lie on another device that does not answer: rows that wait for that one cannot be written.
async fn answer_elsewhere(
    database: &Database,
    state: &CatalogState,
    tables: &[u32],
    lost: &Device,
) -> Result<()> {
    let mut asked = BTreeSet::from([lost.id()]);
    for table in tables.iter().filter_map(|table| state.table_by_id(*table)) {
        for id in table.devices() {
            if !asked.insert(id) {
                continue;
            }
            let device = database.attached(id)?;
            device.sync().await.map_err(|error| {
                let reason = format!(
                    "it also lies on device \"{}\": {error}; bring that one back first",
                    device.name()
                );
                let (device, table) = (lost.name().to_owned(), table.schema.name.clone());
                StorageError::NotRebuilt { device, table, reason }
            })?;
        }
    }
    Ok(())
}

fn refused(message: String) -> Error {
    Error::Invalid { message, fault: Fault::State, position: None }
}
