//! Devices of an open database: attached, and removed.
//!
//! Either is one commit with a manifest. A device is connected as this database's before the manifest names it, and is
//! removed when nothing lies there and nobody reads what lay there: another database may write to it at once.

use std::sync::Arc;

use cleave_catalog::catalog::log_replicas::LogReplica;
use cleave_catalog::catalog::{DeviceEntry, DeviceId, DeviceKind};
use cleave_catalog::error::{Error, NameKind, Result};
use cleave_catalog::storage_error::StorageError;
use cleave_fragment::waiting;

use super::catalog_edit::CatalogEdit;
use super::commit::Changes;
use super::{Engine, LOCK_ATTEMPTS, LOCK_PAUSE, attach};
use crate::device::{self, Device};

impl Engine {
    /// Attaches a remote device under `name`: asks for its identity, and stores that.
    ///
    /// # Errors
    /// [`Error::NameTaken`], [`StorageError::Attach`] for a device that is attached already, and
    /// whatever keeps it from answering.
    pub async fn add_device(
        self: &Arc<Self>,
        name: &str,
        way: impl Into<DeviceKind>,
    ) -> Result<Arc<Device>> {
        let mut edit = CatalogEdit::begin(self).await?;
        if name.is_empty() {
            return Err(StorageError::Attach {
                device: name.to_owned(),
                reason: "a device needs a name".to_owned(),
            }
            .into());
        }
        if edit.next.device_named(name).is_some() {
            return Err(Error::NameTaken { kind: NameKind::Device, name: name.to_owned() });
        }
        let mut entry = DeviceEntry {
            id: edit.device_id()?,
            name: name.to_owned(),
            identity: [0; 16],
            kind: way.into(),
        };
        let (_, identity) = device::identify(&entry, &self.directory, &self.embedded).await?;
        entry.identity = identity.device;
        if let Some(known) = edit.next.devices().find(|d| d.identity == entry.identity) {
            return Err(StorageError::Attach {
                device: name.to_owned(),
                reason: format!("it is attached already, as \"{}\"", known.name),
            }
            .into());
        }
        let device = Arc::new(attach(
            &edit.next,
            self.incarnation,
            entry.clone(),
            &self.directory,
            &self.embedded,
        )?);
        device.set_timeout(self.device_timeout);
        // Connected as this database before it is remembered: one that is another database's is
        // refused here.
        device.link().await?;
        self.keeper.device_added(&device, self.catalog().database.0).await?;
        let id = entry.id;
        edit.next.devices.insert(id, entry);
        edit.devices.push(Arc::clone(&device));
        self.commit(Changes::settings(edit)).await?;
        Ok(device)
    }

    /// Removes the remote device `name`, on which no table may lie, and lets other databases have it.
    ///
    /// Returns why the device could not be told, if so: it goes on believing that it is this database's.
    ///
    /// # Errors
    /// [`Error::UnknownName`], [`StorageError::HoldsTables`], [`StorageError::StillRead`],
    /// [`StorageError::Attach`] for the embedded device, and those of a commit.
    pub async fn remove_device(self: &Arc<Self>, name: &str) -> Result<Option<Error>> {
        let mut edit = CatalogEdit::begin(self).await?;
        let device = self.device_named(name)?;
        if device.id() == DeviceId::EMBEDDED {
            return Err(StorageError::Attach {
                device: name.to_owned(),
                reason: "it is the database's own, and stays".to_owned(),
            }
            .into());
        }
        // A replica on it that was given up, and notes of others, go with it.
        let is_over = |copy: &LogReplica| copy.device == device.id().0 && copy.is_ended;
        edit.next.upkeep.log_replicas.retain(|copy| !is_over(copy));
        if edit.next.replica_extents(device.id()).next().is_some() {
            let reason = "it has a log replica; ALTER SYSTEM RESET log_replica first".to_owned();
            return Err(StorageError::Attach { device: name.to_owned(), reason }.into());
        }
        let tables = edit.next.tables_on(device.id());
        if !tables.is_empty() {
            return Err(StorageError::HoldsTables { device: name.to_owned(), tables }.into());
        }
        self.versions.give_up_held();
        // Another database may write over what they read as soon as it has the device.
        // So may they over temporary tables, and what transactions have not committed yet.
        let is_read = || {
            let (space, named) = (device.space(), self.catalog().extents(device.id()));
            let idle = space.retired_blocks + space.doubtful_blocks;
            space.used_blocks > idle + named.iter().map(|it| u64::from(it.block_count)).sum::<u64>()
                || self.held_states().any(|state| !state.tables_on(device.id()).is_empty())
        };
        let mut attempts = 1;
        while is_read() {
            if attempts == LOCK_ATTEMPTS {
                return Err(StorageError::StillRead { device: name.to_owned() }.into());
            }
            attempts += 1;
            // Tasks of a statement that has just ended hold its catalog version a moment longer.
            waiting::sleep(LOCK_PAUSE).await;
        }
        edit.next.devices.remove(&device.id());
        self.commit(Changes::settings(edit)).await?;
        Ok(device.give_up().await.err())
    }
}
