//! Hands the lock table of a host to the process of its local device, over the Unix socket, before the shared memory of
//! the stream.
//!
//! ```text
//! host → device    the table's offer, 8 bytes with 3 descriptors │ or 8 zeroes: there is none
//! device → host    1: it has taken the table │ 0: it locks by batches
//! ```
//!
//! 1. [`hand_over`] is the host's part, [`take_over`] the device's, of each connection.
//! 2. [`HandedTables`] are the tables that a device's process has mapped. A host offers the same one over each of its
//!    connections, and it is mapped once: its bell has one listener.
//! 3. [`hear`] waits for a bell and has its side look at its waiters.
//!
//! Invariant: whatever is offered, the device answers and goes on: a table that it cannot map, it does without. Neither
//! side believes what it reads there ([`cleave_shmem`]).

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use cleave_shmem::{
    DeviceLocks, Doorbell, HostLocks, LOCK_OFFER_BYTES, LockTableError, receive_descriptors,
    send_descriptors,
};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::UnixStream;
use tokio::task::JoinSet;

use super::local_stream::watched;

const TAKEN: u8 = 1;
const NOT_TAKEN: u8 = 0;

/// Offers `table` to the device at the other end of `socket`; returns whether it has taken it.
///
/// # Errors
/// Those of the socket, and an answer that is none.
pub async fn hand_over(socket: &mut UnixStream, table: Option<&HostLocks>) -> io::Result<bool> {
    let offered = table.and_then(HostLocks::offer);
    match &offered {
        Some((offer, descriptors)) => {
            let send = || send_descriptors(socket.as_fd(), offer, descriptors);
            if socket.async_io(Interest::WRITABLE, send).await? != offer.len() {
                return Err(io::ErrorKind::WriteZero.into());
            }
        }
        None => socket.write_all(&[0; LOCK_OFFER_BYTES]).await?,
    }
    match socket.read_u8().await? {
        TAKEN if offered.is_some() => Ok(true),
        NOT_TAKEN => Ok(false),
        _ => Err(io::Error::new(io::ErrorKind::InvalidData, "it took what it was not offered")),
    }
}

/// Takes the table that the host at the other end of `socket` offers, if it offers one; an error of the table is for
/// the log, and the host knows of it.
///
/// # Errors
/// Those of the socket.
pub async fn take_over(
    socket: &mut UnixStream,
    tables: &HandedTables,
) -> io::Result<Result<Option<Arc<DeviceLocks>>, LockTableError>> {
    let mut offer = [0; LOCK_OFFER_BYTES];
    let receive = || receive_descriptors(socket.as_fd(), &mut offer);
    let (count, descriptors) = socket.async_io(Interest::READABLE, receive).await?;
    if count != offer.len() {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let taken = match descriptors.is_empty() && offer == [0; LOCK_OFFER_BYTES] {
        true => Ok(None),
        false => tables.open(&offer, descriptors).map(Some),
    };
    let answer = if matches!(taken, Ok(Some(_))) { TAKEN } else { NOT_TAKEN };
    socket.write_u8(answer).await?;
    Ok(taken)
}

/// The lock tables of hosts that the process of a device has mapped.
#[derive(Debug, Default)]
pub struct HandedTables(Mutex<Open>);

#[derive(Debug, Default)]
struct Open {
    tables: Vec<(FileId, Weak<DeviceLocks>)>,
    listeners: JoinSet<()>,
}

/// Device and number of a memory file: no two that are mapped have the same.
type FileId = (u64, u64);

impl HandedTables {
    fn open(
        &self,
        offer: &[u8],
        descriptors: Vec<OwnedFd>,
    ) -> Result<Arc<DeviceLocks>, LockTableError> {
        let region = descriptors.first().map(OwnedFd::try_clone).transpose()?;
        let id = region.map(|region| File::from(region).metadata()).transpose()?;
        let id = id.map_or((0, 0), |file| (file.dev(), file.ino()));
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        while open.listeners.try_join_next().is_some() {}
        open.tables.retain(|(_, table)| table.strong_count() > 0);
        let known = open.tables.iter().find(|(known, _)| *known == id);
        if let Some(table) = known.and_then(|(_, table)| table.upgrade()) {
            return Ok(table);
        }
        let table = DeviceLocks::open(offer, descriptors)?;
        if let Some(bell) = table.bell() {
            let listening = Arc::downgrade(&table);
            let look = move || listening.upgrade().map(|table| table.look()).is_some();
            open.listeners.spawn(hear(watched(bell.try_clone()?)?, look));
        }
        open.tables.push((id, Arc::downgrade(&table)));
        Ok(table)
    }
}

/// Waits for the bell of `table`, whose jobs are in another process, until the table is gone.
///
/// # Errors
/// Those of the system. To be called on the runtime that will poll it.
pub(crate) fn hear_host(
    table: &Arc<HostLocks>,
) -> io::Result<impl Future<Output = ()> + Send + use<>> {
    let bell = table.bell().ok_or(io::ErrorKind::NotFound)?.try_clone()?;
    let listening = Arc::downgrade(table);
    Ok(async move {
        if let Ok(bell) = watched(bell) {
            hear(bell, move || listening.upgrade().map(|table| table.look()).is_some()).await;
        }
    })
}

/// Calls `look` whenever `bell` was rung, until that returns false.
async fn hear(bell: AsyncFd<Doorbell>, mut look: impl FnMut() -> bool) {
    loop {
        let Ok(mut guard) = bell.readable().await else { return };
        // Cleared before it looks: a ring meanwhile is heard again.
        bell.get_ref().clear();
        guard.clear_ready();
        drop(guard);
        if !look() {
            return;
        }
    }
}
