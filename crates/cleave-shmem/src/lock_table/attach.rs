//! Connects the two sides to one table: in one process, or over a socket.
//!
//! ```text
//! offer    region bytes u64, with 3 descriptors: the region, then the bells by which
//!          the host is told that an entry is its own │ the device
//! ```
//!
//! The host makes the table and keeps it for as long as the database is open. It offers it to each successive process
//! that is its device: it fences the jobs of the last one, and the next one finds the host's own locks in place. The
//! owner of a side waits for its bell ([`HostLocks::bell`], [`DeviceLocks::bell`]) and looks at the table when it is
//! rung.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use super::memory::LockMemory;
use super::waiters::{Peer, Waiters};
use super::{DeviceLocks, ENTRY_COUNT_MAX, ENTRY_COUNT_MIN, HostLocks, LockTable, TableShape};
use crate::doorbell::Doorbell;
use crate::region::{Region, RegionError};

/// Bytes of an offer, beside its descriptors.
pub const LOCK_OFFER_BYTES: usize = 8;

/// Why a table could not be made or opened.
#[derive(Debug, thiserror::Error)]
pub enum LockTableError {
    /// No memory, or unusable memory.
    #[error(transparent)]
    Region(#[from] RegionError),
    /// This processor cannot change 16 bytes atomically: attach the device as `embedded` or `remote`.
    #[error(
        "this processor changes no 16 bytes of memory at once, which locks that two processes share need; \
         attach the device as embedded or remote"
    )]
    NotLockFree,
    /// Memory of another layout: end the connection.
    #[error("the lock table {0}")]
    Header(&'static str),
    /// An invalid table size: use another.
    #[error(
        "a lock table of {0} entries: it is a power of two from {ENTRY_COUNT_MIN} to {ENTRY_COUNT_MAX}"
    )]
    EntryCount(u32),
    /// The socket for the offer failed, or delivered something else.
    #[error("the lock table was not handed over: {0}")]
    Socket(#[from] std::io::Error),
}

/// Whether two processes can share a table on this processor.
pub fn is_lock_free() -> bool {
    portable_atomic::AtomicU128::is_lock_free()
}

/// The bells of a table that two processes share, as one of these has them.
#[derive(Debug)]
pub(super) struct BellPair {
    ours: Arc<Doorbell>,
    theirs: Arc<Doorbell>,
}

fn checked(shape: TableShape) -> Result<TableShape, LockTableError> {
    let count = shape.entry_count;
    if !count.is_power_of_two() || !(ENTRY_COUNT_MIN..=ENTRY_COUNT_MAX).contains(&count) {
        return Err(LockTableError::EntryCount(count));
    }
    Ok(shape)
}

impl HostLocks {
    /// Both sides of a table in this process, for an embedded device, or for a device behind a network, for which the
    /// host itself takes the device's side.
    ///
    /// # Errors
    /// [`LockTableError`].
    pub fn embedded(shape: TableShape) -> Result<(Arc<Self>, Arc<DeviceLocks>), LockTableError> {
        let shape = checked(shape)?;
        let region = Region::on_heap(LockMemory::region_bytes(shape.entry_count))?;
        let table = Arc::new(LockTable::new(LockMemory::fill(region, shape)?, shape.format));
        let (hosts, devices) = (Arc::<Waiters>::default(), Arc::<Waiters>::default());
        let device = Peer::Here(Arc::clone(&devices));
        let host = Peer::Here(Arc::clone(&hosts));
        Ok((
            Arc::new(Self::new(Arc::clone(&table), hosts, device)),
            Arc::new(DeviceLocks::new(table, devices, host)),
        ))
    }

    /// The host's side of a table that another process maps.
    ///
    /// # Errors
    /// [`LockTableError`], [`LockTableError::NotLockFree`] among them.
    pub fn create(shape: TableShape) -> Result<Arc<Self>, LockTableError> {
        if !is_lock_free() {
            return Err(LockTableError::NotLockFree);
        }
        let shape = checked(shape)?;
        let region = Region::create(LockMemory::region_bytes(shape.entry_count))?;
        let memory = LockMemory::fill(region, shape)?;
        let bells =
            BellPair { ours: Arc::new(Doorbell::new()?), theirs: Arc::new(Doorbell::new()?) };
        let device = Peer::There(Box::new(Arc::clone(&bells.theirs)));
        let table = Arc::new(LockTable::new(memory, shape.format));
        let mut locks = Self::new(table, Arc::default(), device);
        locks.bells = Some(bells);
        Ok(Arc::new(locks))
    }

    /// The message to the device's process, for [`DeviceLocks::open`]; none if the table belongs to this process alone.
    pub fn offer(&self) -> Option<([u8; LOCK_OFFER_BYTES], [BorrowedFd<'_>; 3])> {
        let region = self.table.memory.region();
        let bells = self.bells.as_ref()?;
        let handed = [region.descriptor()?, bells.ours.as_fd(), bells.theirs.as_fd()];
        Some(((region.bytes() as u64).to_le_bytes(), handed))
    }

    /// Rung when an entry may have become the host's: then call [`HostLocks::look`]. None if no other process rings.
    pub fn bell(&self) -> Option<&Doorbell> {
        self.bells.as_ref().map(|bells| bells.ours.as_ref())
    }
}

impl DeviceLocks {
    /// The device's side of the table that a host offers ([`HostLocks::offer`]).
    ///
    /// # Errors
    /// [`LockTableError`]: the offer is no table, or this processor can share none.
    pub fn open(offer: &[u8], descriptors: Vec<OwnedFd>) -> Result<Arc<Self>, LockTableError> {
        if !is_lock_free() {
            return Err(LockTableError::NotLockFree);
        }
        let (Ok(offer), Ok([region, hosts, ours])) =
            (<[u8; LOCK_OFFER_BYTES]>::try_from(offer), <[OwnedFd; 3]>::try_from(descriptors))
        else {
            return Err(RegionError::Unfit("is no offer of a lock table").into());
        };
        let bytes = usize::try_from(u64::from_le_bytes(offer))
            .ok()
            .filter(|bytes| *bytes <= LockMemory::region_bytes(ENTRY_COUNT_MAX))
            .ok_or(RegionError::Unfit("is larger than any lock table"))?;
        let (memory, shape) = LockMemory::open(Region::open(region, bytes)?)?;
        let bells = BellPair {
            ours: Arc::new(Doorbell::from_descriptor(ours)?),
            theirs: Arc::new(Doorbell::from_descriptor(hosts)?),
        };
        let host = Peer::There(Box::new(Arc::clone(&bells.theirs)));
        let table = Arc::new(LockTable::new(memory, shape.format));
        let mut locks = Self::new(table, Arc::default(), host);
        locks.bells = Some(bells);
        Ok(Arc::new(locks))
    }

    /// Rung when an entry may have become a job's: then call [`DeviceLocks::look`]. None if no other process rings.
    pub fn bell(&self) -> Option<&Doorbell> {
        self.bells.as_ref().map(|bells| bells.ours.as_ref())
    }
}
