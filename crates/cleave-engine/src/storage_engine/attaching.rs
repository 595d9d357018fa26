//! Devices of an open database: attached, made mirrors of others, and removed.
//!
//! Either is one commit with a manifest. A device is connected as this database's before the manifest names it, and is
//! removed when nothing lies there and nobody reads what lay there: another database may write to it at once.

use std::sync::Arc;

use cleave_catalog::catalog::log_replicas::LogReplica;
use cleave_catalog::catalog::mirror::Mirror;
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
        check_name(&edit, name)?;
        let mut entry = DeviceEntry {
            id: edit.device_id()?,
            name: name.to_owned(),
            identity: [0; 16],
            kind: way.into(),
        };
        let (_, identity) = device::identify(&entry, &self.directory, &self.embedded).await?;
        entry.identity = identity.device;
        if let Some(known) = edit.next.devices().find(|d| d.identity == entry.identity) {
            return Err(refused(name, &format!("it is attached already, as \"{}\"", known.name)));
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

    /// Adds a mirror under `name`, of which the devices called so are the copies. Nothing lies on it yet.
    ///
    /// # Errors
    /// [`Error::NameTaken`], [`Error::UnknownName`], [`StorageError::Attach`] for devices that cannot be the copies of
    /// one, and whatever keeps these from answering.
    pub async fn add_mirror(
        self: &Arc<Self>,
        name: &str,
        copies: &[String],
    ) -> Result<Arc<Device>> {
        let mut edit = CatalogEdit::begin(self).await?;
        let device = self.make_mirror(&mut edit, name, copies).await?;
        self.commit(Changes::settings(edit)).await?;
        Ok(device)
    }

    /// The mirror whose copies are those called `copies`, in this order; of several the first one.
    pub fn mirror_of(&self, copies: &[String]) -> Option<Arc<Device>> {
        let is_it = |device: &Arc<Device>| {
            let own = device.copies();
            device.is_mirror()
                && own.iter().map(|(copy, _)| copy.name()).eq(copies.iter().map(String::as_str))
        };
        self.devices().into_iter().find(is_it)
    }

    /// For each list of copies the [mirror of these](Engine::mirror_of). Those that are not there are made by one
    /// commit, and have the names of their copies.
    ///
    /// # Errors
    /// As [`Engine::add_mirror`]; then none is made.
    pub async fn mirrors_of(self: &Arc<Self>, lists: &[Vec<String>]) -> Result<Vec<Arc<Device>>> {
        let mut edit = CatalogEdit::begin(self).await?;
        let mut mirrors = Vec::with_capacity(lists.len());
        for copies in lists {
            let mirror = match self.mirror_of(copies) {
                Some(mirror) => mirror,
                None => self.make_mirror(&mut edit, &copies.join("+"), copies).await?,
            };
            mirrors.push(mirror);
        }
        if !edit.devices.is_empty() {
            self.commit(Changes::settings(edit)).await?;
        }
        Ok(mirrors)
    }

    /// A new mirror, which is there once `edit` is committed.
    ///
    /// # Errors
    /// As [`Engine::add_mirror`].
    async fn make_mirror(
        &self,
        edit: &mut CatalogEdit,
        name: &str,
        copies: &[String],
    ) -> Result<Arc<Device>> {
        check_name(edit, name)?;
        let mut devices: Vec<Arc<Device>> = Vec::with_capacity(copies.len());
        for copy in copies {
            let device = self.device_named(copy)?;
            let is_twice = devices.iter().any(|known| Arc::ptr_eq(known, &device));
            let reason = match device.entry().kind {
                DeviceKind::Embedded => Some("the database's own device cannot be a copy"),
                DeviceKind::Mirror(_) => Some("a mirror cannot be a copy of another one"),
                DeviceKind::Local(_) | DeviceKind::Remote(_) => {
                    is_twice.then_some("it is named twice")
                }
            };
            if let Some(reason) = reason {
                return Err(refused(copy, reason));
            }
            // A link may be lost without anybody knowing it yet.
            device.status().await?;
            devices.push(device);
        }
        if devices.len() < 2 {
            return Err(refused(name, "a mirror needs two copies or more: mirrors = 'a, b'"));
        }
        let mirror = Mirror::new(devices.iter().map(|device| device.id()));
        let entry = DeviceEntry {
            id: edit.device_id()?,
            name: name.to_owned(),
            identity: [0; 16],
            kind: DeviceKind::Mirror(mirror.clone()),
        };
        let (id, place) = (entry.id, &self.directory);
        let made = attach(&edit.next, self.incarnation, entry.clone(), place, &self.embedded)?;
        let device = Arc::new(made.mirroring(&mirror, devices));
        device.set_timeout(self.device_timeout);
        edit.next.devices.insert(id, entry);
        edit.devices.push(Arc::clone(&device));
        Ok(device)
    }

    /// Removes the remote device or mirror `name`, on which no table may lie, and lets other databases have a device.
    /// The copies of a mirror stay.
    ///
    /// Returns why the device could not be told, if so: it goes on believing that it is this database's.
    ///
    /// # Errors
    /// [`Error::UnknownName`], [`StorageError::HoldsTables`], [`StorageError::StillRead`],
    /// [`StorageError::Attach`] for the embedded device, for a copy of a mirror, and for a mirror whose pages a log
    /// replica still needs; those of a commit.
    pub async fn remove_device(self: &Arc<Self>, name: &str) -> Result<Option<Error>> {
        let mut edit = self.begin_without_kept(name).await?;
        let device = self.device_named(name)?;
        if device.id() == DeviceId::EMBEDDED {
            return Err(refused(name, "it is the database's own, and stays"));
        }
        let is_copied =
            |entry: &&DeviceEntry| entry.mirror().is_some_and(|mirror| mirror.has(device.id()));
        if let Some(mirror) = edit.next.devices().find(is_copied) {
            let of = &mirror.name;
            let reason = format!("it is a copy of mirror \"{of}\"; DROP DEVICE \"{of}\" first");
            return Err(refused(name, &reason));
        }
        // A replica on it that was given up, and notes of others, go with it.
        let is_over = |copy: &LogReplica| copy.device == device.id().0 && copy.is_ended;
        edit.next.upkeep.log_replicas.retain(|copy| !is_over(copy));
        if edit.next.replica_extents(device.id()).next().is_some() {
            return Err(refused(
                name,
                "it has a log replica; ALTER SYSTEM RESET log_replica first",
            ));
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

    /// An edit in which no log replica has a manifest that names pages of `name`, if that is a mirror. Its copies stay
    /// with the database, and what is kept of a mirror is known by its number alone: after a crash, others would write
    /// over what such a manifest leads to.
    async fn begin_without_kept(self: &Arc<Self>, name: &str) -> Result<CatalogEdit> {
        let mirror = self.device_named(name).ok().filter(|device| device.is_mirror());
        let mut edit = CatalogEdit::begin(self).await?;
        let Some(mirror) = mirror else { return Ok(edit) };
        // The first of these has the replicas follow, and the next one finds that they have.
        for _ in 0..2 {
            if !edit.next.upkeep.kept.contains_key(&mirror.id()) {
                return Ok(edit);
            }
            self.commit(Changes::settings(edit)).await?;
            edit = CatalogEdit::begin(self).await?;
        }
        match edit.next.upkeep.kept.contains_key(&mirror.id()) {
            false => Ok(edit),
            true => Err(refused(
                name,
                "a log replica still needs pages that lay on it; DROP DEVICE again once it has caught up",
            )),
        }
    }
}

/// Refuses `name` for a device that `edit` is to add.
///
/// # Errors
/// [`Error::NameTaken`], [`StorageError::Attach`] for none.
fn check_name(edit: &CatalogEdit, name: &str) -> Result<()> {
    if name.is_empty() {
        return Err(refused(name, "a device needs a name"));
    }
    match edit.next.device_named(name) {
        Some(_) => Err(Error::NameTaken { kind: NameKind::Device, name: name.to_owned() }),
        None => Ok(()),
    }
}

fn refused(device: &str, reason: &str) -> Error {
    StorageError::Attach { device: device.to_owned(), reason: reason.to_owned() }.into()
}
