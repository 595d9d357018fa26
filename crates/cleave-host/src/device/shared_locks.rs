//! The lock table that the database shares with a device: its jobs lock rows there before they change them, and so does whoever locks
//! a row of the device here (see [`Locks::share`]).
//!
//! ```text
//!  embedded   both sides in this process
//!  local      in a memory file, which is handed to the device's process with the first job that locks ([`HostLocks::offer`])
//!  remote     both sides in this process: the host takes the device's for what comes by batches (rule 20)
//! ```
//!
//! The table lasts as long as the device is attached here, whatever becomes of its process.

use std::sync::Arc;

use cleave_shmem::{DeviceLocks, HostLocks, TableShape, is_lock_free};
use cleave_txn::Locks;

use super::Device;
use crate::catalog::DeviceKind;

/// Both sides of a device's table, as far as they are in this process.
#[derive(Debug)]
pub struct SharedLocks {
    /// The host's.
    pub host: Arc<HostLocks>,
    /// The device's; None: it is in the device's process.
    pub device: Option<Arc<DeviceLocks>>,
}

impl SharedLocks {
    /// An empty table; None where there is no memory for it: such a device takes no jobs that lock.
    fn new(kind: &DeviceKind) -> Option<Self> {
        let shape = TableShape::default();
        if matches!(kind, DeviceKind::Local(_)) && is_lock_free() {
            return HostLocks::create(shape).ok().map(|host| Self { host, device: None });
        }
        let (host, device) = HostLocks::embedded(shape).ok()?;
        Some(Self { host, device: Some(device) })
    }
}

impl Device {
    /// The lock table that the database shares with it; None: it has none.
    pub fn shared_locks(&self) -> Option<&SharedLocks> {
        self.locks.get()?.as_ref()
    }

    /// Makes a table, and has whoever locks rows of the device by `locks` do so there, too.
    pub(crate) fn share_locks(&self, locks: &Locks) {
        let shared = self.locks.get_or_init(|| SharedLocks::new(&self.entry.kind));
        if let Some(shared) = shared {
            locks.share(self.entry.id.0, &shared.host);
        }
    }
}
