//! Notes of replicas that were given up, written to the devices that are online: the replica itself may be on an
//! offline device, and know nothing of it.
//!
//! 1. Giving a replica up begins by asking which devices answer ([`answering`]): where a device says that another host
//!    has taken the database, nothing is given up, or this host would again acknowledge commits that no replica has.
//! 2. [`tell`] writes the note before the manifest drops the replica: a [`Head`] that names the replica and the epoch,
//!    where a search looks for replicas, with no stamps behind it. In the manifest it is a [`LogReplica`] marked as
//!    ended, so that its space is reserved. Devices that answer later are told then, until the replica is erased
//!    ([`end_given_up`](super::LogReplicas::end_given_up)).
//! 3. A failover from that replica asks the other devices that its manifest names ([`is_told`]). A stamp of a later
//!    epoch is newer than the note: a failover used the replica in spite of it, or its database was reopened with it.
//! 4. Once the replica is erased, so is the note.
//!
//! Invariant: a device that does not answer, or has no room, is not told yet, and the replica is given up all the same.

use std::sync::Arc;

use bytes::Bytes;
use cleave_catalog::catalog::log_replicas::LogReplica;
use cleave_catalog::catalog::{CatalogState, DeviceId};
use cleave_catalog::error::{Error, Result};
use cleave_engine::device::{DISK_FULL, Device};
use cleave_engine::storage_engine::Engine;
use cleave_engine::storage_engine::catalog_edit::CatalogEdit;
use cleave_fragment::waiting;
use futures::future::join_all;

use super::layout::{ANCHOR_BLOCKS, Head, Stamp};
use super::{INCARNATION_WAIT, aligned, drawn_id, found};

/// The devices elsewhere that answer now.
///
/// # Errors
/// [`StorageError::Copied`](cleave_catalog::storage_error::StorageError::Copied) and
/// [`StorageError::Superseded`](cleave_catalog::storage_error::StorageError::Superseded): another host has taken the
/// database over.
pub(super) async fn answering(database: &Arc<Engine>) -> Result<Vec<Arc<Device>>> {
    let is_elsewhere = |device: &Arc<Device>| !is_own(device) && device.entry().mirror().is_none();
    let elsewhere = database.devices().into_iter().filter(is_elsewhere);
    let asked = elsewhere.map(|device| async move {
        let answer = async {
            match device.incarnation().await {
                // A link that is lost shows at its next use.
                Err(_) => device.incarnation().await,
                answer => answer,
            }
        };
        (waiting::timeout(INCARNATION_WAIT, Box::pin(answer)).await, Arc::clone(&device))
    });
    let mut answering = Vec::new();
    for (answer, device) in join_all(asked).await {
        match answer {
            Some(Ok(_)) => answering.push(device),
            Some(Err(Error::Storage(error))) if error.is_of_another_host() => {
                return Err(Error::Storage(error));
            }
            Some(Err(_)) | None => {}
        }
    }
    Ok(answering)
}

/// The replicas of `state` that were given up, and are still to be erased.
pub(super) fn unerased(state: &CatalogState) -> impl Iterator<Item = &LogReplica> {
    let ended = state.upkeep.log_replicas.iter().filter(|replica| replica.is_ended);
    ended.filter(|replica| replica.gives_up.is_none())
}

/// Those of `devices` that were not told, as `state` says, that `replica` is given up; not its own, where it is erased.
pub(super) fn untold<'a>(
    state: &'a CatalogState,
    replica: &'a LogReplica,
    devices: &'a [Arc<Device>],
) -> impl Iterator<Item = &'a Arc<Device>> {
    let knows = |device: &Device| {
        let mut words = state.upkeep.log_replicas.iter();
        words.any(|word| word.device == device.id().0 && word.gives_up == Some(replica.id))
    };
    devices.iter().filter(move |device| device.id().0 != replica.device && !knows(device))
}

/// Tells those of `devices` that were not told yet, and that `edit` still has, that it gives up `replica`; whether
/// any was.
///
/// # Errors
/// Those of a device that has answered.
pub(super) async fn tell(
    edit: &mut CatalogEdit,
    replica: &LogReplica,
    devices: &[Arc<Device>],
) -> Result<bool> {
    let untold: Vec<_> = untold(&edit.next, replica, devices).cloned().collect();
    let mut is_told = false;
    for device in untold {
        if !edit.next.devices.contains_key(&device.id()) {
            continue;
        }
        let claim = edit.claim(&device);
        let arena = match aligned(&claim, ANCHOR_BLOCKS).await {
            Err(error) if error.sqlstate() == DISK_FULL => continue,
            taken => taken?,
        };
        let id = drawn_id()?;
        let head = Head {
            database: edit.next.database.0.to_vec(),
            id: id.to_vec(),
            given_up: replica.id.to_vec(),
            epoch: edit.next.epoch,
        };
        // Durable before the manifest is, as all that an edit writes.
        claim.write(arena.start, Bytes::from(head.seal())).await?;
        edit.next.upkeep.log_replicas.push(LogReplica {
            device: device.id().0,
            id,
            arenas: vec![arena],
            is_ended: true,
            gives_up: Some(replica.id),
        });
        is_told = true;
    }
    Ok(is_told)
}

fn is_own(device: &Device) -> bool {
    device.id() == DeviceId::EMBEDDED
}

/// Whether `device`, of so many blocks, was told that the replica was given up whose newest stamp is `stamp`.
///
/// # Errors
/// Those of the device.
pub(super) async fn is_told(
    device: &Device,
    database: [u8; 16],
    block_count: u64,
    stamp: &Stamp,
) -> Result<bool> {
    let heads = found::heads(device, database, block_count).await?;
    let is_of = |head: &Head| head.given_up == stamp.id && head.epoch >= stamp.epoch;
    Ok(heads.iter().any(|(_, head)| is_of(head)))
}
