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
use super::{
    DeviceLocks, ENTRY_COUNT_MAX, ENTRY_COUNT_MIN, HostLocks, LockTable, Of, SlotFormat, TableShape,
};
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
    /// This processor cannot change an entry of this size at once: use [`SlotFormat::FOUR`].
    #[error(
        "this processor changes no 16 bytes of memory at once, which entries of this size need if two processes \
         share them"
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

/// The bells of a table that two processes share, as one of these has them.
#[derive(Debug)]
pub(super) struct BellPair {
    ours: Arc<Doorbell>,
    theirs: Arc<Doorbell>,
}

/// The largest table that is opened.
const LARGEST: TableShape = TableShape { entry_count: ENTRY_COUNT_MAX, format: SlotFormat::EIGHT };

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
        let region = Region::on_heap(LockMemory::region_bytes(shape))?;
        let memory = Arc::new(LockMemory::fill(region, shape)?);
        let table = |of| LockTable::new(Arc::clone(&memory), shape.format, of);
        let (hosts, devices) = (Arc::<Waiters>::default(), Arc::<Waiters>::default());
        let (host, device) = (Peer::here(&hosts), Peer::here(&devices));
        Ok((
            Arc::new(Self::new(table(Of::Host), hosts, device)),
            Arc::new(DeviceLocks::new(table(Of::Device), Peer::here(&devices), devices, host)),
        ))
    }

    /// The host's side of a table that another process maps, and the device's side for jobs that the host serves all
    /// the same: those of a process that did not take the table.
    ///
    /// # Errors
    /// [`LockTableError`]; [`LockTableError::NotLockFree`] unless the format is of this machine.
    pub fn create(shape: TableShape) -> Result<(Arc<Self>, Arc<DeviceLocks>), LockTableError> {
        let shape = checked(shape)?;
        let region = Region::create(LockMemory::region_bytes(shape))?;
        let memory = Arc::new(LockMemory::fill(region, shape)?);
        let table = |of| LockTable::new(Arc::clone(&memory), shape.format, of);
        let bells =
            BellPair { ours: Arc::new(Doorbell::new()?), theirs: Arc::new(Doorbell::new()?) };
        let (hosts, devices) = (Arc::<Waiters>::default(), Arc::<Waiters>::default());
        let device = || Peer::both(&devices, &bells.theirs);
        let here =
            DeviceLocks::new(table(Of::Device), device(), Arc::clone(&devices), Peer::here(&hosts));
        let mut locks = Self::new(table(Of::Host), hosts, device());
        locks.bells = Some(bells);
        Ok((Arc::new(locks), Arc::new(here)))
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
        let (Ok(offer), Ok([region, hosts, ours])) =
            (<[u8; LOCK_OFFER_BYTES]>::try_from(offer), <[OwnedFd; 3]>::try_from(descriptors))
        else {
            return Err(RegionError::Unfit("is no offer of a lock table").into());
        };
        let bytes = usize::try_from(u64::from_le_bytes(offer))
            .ok()
            .filter(|bytes| *bytes <= LockMemory::region_bytes(LARGEST))
            .ok_or(RegionError::Unfit("is larger than any lock table"))?;
        let (memory, shape) = LockMemory::open(Region::open(region, bytes)?)?;
        let bells = BellPair {
            ours: Arc::new(Doorbell::from_descriptor(ours)?),
            theirs: Arc::new(Doorbell::from_descriptor(hosts)?),
        };
        let table = LockTable::new(Arc::new(memory), shape.format, Of::Device);
        let waiters = Arc::<Waiters>::default();
        // Jobs that wait for each other may be served by the host.
        let device = Peer::both(&waiters, &bells.theirs);
        let mut locks = Self::new(table, device, waiters, Peer::there(&bells.theirs));
        locks.bells = Some(bells);
        Ok(Arc::new(locks))
    }

    /// Rung when an entry may have become a job's: then call [`DeviceLocks::look`]. None if no other process rings.
    pub fn bell(&self) -> Option<&Doorbell> {
        self.bells.as_ref().map(|bells| bells.ours.as_ref())
    }
}

impl Drop for DeviceLocks {
    /// Rings its own bell: whoever waits for it finds the side gone.
    fn drop(&mut self) {
        if let Some(bells) = &self.bells {
            bells.ours.ring();
        }
    }
}
