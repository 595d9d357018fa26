//! The lock table that the database shares with a device: jobs of the device lock rows there before they change them,
//! and so do sessions that lock a row of the device here (see [`Locks::share`]).
//!
//! ```text
//!  embedded   both sides in this process
//!  local      in a memory file, which is handed to the device's process with the first job that locks
//!             ([`HostLocks::offer`])
//!  remote     both sides in this process: the host acts for the device on lock requests that come in batches (rule 20)
//! ```
//!
//! The table lasts as long as the device is attached here, whatever becomes of its process.

use std::fmt;
use std::sync::{Arc, OnceLock};

use cleave_catalog::catalog::DeviceKind;
use cleave_fragment::row_locks::{HostedJob, JobTransaction};
use cleave_shmem::{DeviceLocks, HostLocks, JobId, LockError, Row, TableShape, is_lock_free};
use cleave_store::RecId;
use cleave_txn::{LockKey, LockMode, LockOwner, Locks};

use super::Device;

/// Both sides of a device's table, as far as they are in this process.
#[derive(Debug)]
pub struct SharedLocks {
    /// The host's.
    pub host: Arc<HostLocks>,
    /// The device's; None: it is in the device's process.
    pub device: Option<Arc<DeviceLocks>>,
    /// The tail, of all devices.
    locks: Arc<Locks>,
    number: u32,
    /// Whether the host takes the device's side, for what comes by batches.
    is_remote: bool,
}

/// Finds the newest version of a row, where that is not the one of a job's snapshot.
pub type Newest = Arc<dyn Fn(Row) -> Option<RecId> + Send + Sync>;

/// A run that locks rows, and its place in the host's table, as part of a transaction. Dropped, it ends: after its
/// transaction.
#[derive(Debug)]
pub struct LockingJob {
    hosted: Arc<HostedJob>,
    locks: Arc<Locks>,
    number: u32,
}

/// A job as a part of its transaction.
struct OfTransaction {
    locks: Arc<Locks>,
    owner: Arc<LockOwner>,
    number: u32,
    newest: Newest,
    job: OnceLock<JobId>,
}

impl SharedLocks {
    /// An empty table; None where there is no memory for it: such a device takes no jobs that lock.
    fn new(kind: &DeviceKind, number: u32, locks: &Arc<Locks>) -> Option<Self> {
        let shape = TableShape::default();
        let is_remote = matches!(kind, DeviceKind::Remote(_));
        let (host, device) = if matches!(kind, DeviceKind::Local(_)) && is_lock_free() {
            (HostLocks::create(shape).ok()?, None)
        } else {
            let (host, device) = HostLocks::embedded(shape).ok()?;
            (host, Some(device))
        };
        Some(Self { host, device, locks: Arc::clone(locks), number, is_remote })
    }

    /// A job of `owner`'s transaction, for a run that
    /// [`Link::execute_locking`](cleave_fragment::link::Link::execute_locking) begins; None where as many are under way
    /// as the table can tell apart.
    ///
    /// # Errors
    /// Where the device was fenced just now.
    pub fn begin_job(
        &self,
        owner: &Arc<LockOwner>,
        newest: Newest,
    ) -> Result<Option<LockingJob>, LockError> {
        let (locks, number) = (Arc::clone(&self.locks), self.number);
        let of = Arc::new(OfTransaction {
            locks: Arc::clone(&locks),
            owner: Arc::clone(owner),
            number,
            newest,
            job: OnceLock::new(),
        });
        let side = self.device.as_ref().filter(|_| self.is_remote);
        let transaction = Arc::clone(&of) as Arc<dyn JobTransaction>;
        let Some(hosted) = HostedJob::begin(&self.host, side, transaction)? else {
            return Ok(None);
        };
        let job = hosted.job().id;
        // No lock of it was requested yet.
        of.job.get_or_init(|| job);
        locks.begin_job(number, job, owner);
        Ok(Some(LockingJob { hosted, locks, number }))
    }
}

impl LockingJob {
    /// Serves the requests of the run.
    pub fn hosted(&self) -> &Arc<HostedJob> {
        &self.hosted
    }
}

impl Drop for LockingJob {
    fn drop(&mut self) {
        // Forgotten before its number can be given again.
        self.locks.end_job(self.number, self.hosted.job().id);
        self.hosted.end();
    }
}

impl JobTransaction for OfTransaction {
    fn newest(&self, row: Row) -> Option<RecId> {
        (self.newest)(row)
    }

    fn lock_own(&self, row: Row) -> bool {
        let key = LockKey::row_on(self.number, row.object, row.vid);
        // A finished job, or one with too many locks, asks for the entry.
        self.locks.try_lock(&self.owner, key, LockMode::ForUpdate).unwrap_or(false)
    }

    fn closes_cycle(&self) -> bool {
        self.job.get().is_some_and(|job| self.locks.job_waits(self.number, *job).is_some())
    }
}

impl fmt::Debug for OfTransaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OfTransaction").field("owner", &self.owner).finish_non_exhaustive()
    }
}

impl Device {
    /// The lock table that the database shares with it; None: it has none.
    pub fn shared_locks(&self) -> Option<&SharedLocks> {
        self.locks.get()?.as_ref()
    }

    /// Makes a table, in which `locks` also enters locks of the device's rows.
    pub(crate) fn share_locks(&self, locks: &Arc<Locks>) {
        let number = self.entry.id.0;
        let shared = self.locks.get_or_init(|| SharedLocks::new(&self.entry.kind, number, locks));
        if let Some(shared) = shared {
            locks.share(number, &shared.host);
        }
    }
}
