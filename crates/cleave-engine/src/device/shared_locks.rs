//! The lock table that the database shares with a device: jobs of the device lock rows there before they change them,
//! and so do sessions that lock a row of the device here (see [`Locks::share`]).
//!
//! ```text
//!  embedded   both sides in this process
//!  local      in a memory file, which each connection hands to the device's process ([`HostLocks::offer`]); for a
//!             process that does not take it, as for a remote one
//!  remote     both sides in this process: the host acts for the device on lock requests that come in batches (rule 20)
//! ```
//!
//! The table lasts as long as the device is attached here, whatever becomes of its process. Each new connection begins
//! with a table that holds nothing but what this host knows of ([`HostLocks::repair`]).

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use cleave_catalog::catalog::DeviceKind;
use cleave_fragment::row_locks::{HostedJob, JobTransaction, Served};
use cleave_shmem::{DeviceLocks, HostLocks, JobId, LockError, Row, TableShape};
use cleave_store::RecId;
use cleave_txn::{LockKey, LockMode, LockOwner, Locks};

use super::Device;

/// Both sides of a device's table, as far as they are in this process.
#[derive(Debug)]
pub struct SharedLocks {
    /// The host's.
    pub host: Arc<HostLocks>,
    /// The device's; of a local device, for jobs that the host serves.
    pub device: Arc<DeviceLocks>,
    /// The tail, of all devices.
    locks: Arc<Locks>,
    number: u32,
    /// Whether the host takes the device's side, for what comes by batches.
    is_remote: bool,
    escalations: Arc<AtomicU64>,
    /// Whether a connection has handed it to another process.
    was_handed: AtomicBool,
}

/// The object of row locks that the rows of a tablet have: its table, and its place there. VIDs count by tablet.
#[must_use]
pub fn row_object(table_id: u32, tablet: usize) -> u64 {
    u64::from(table_id) << 32 | tablet as u64
}

/// The table that the rows of `object` are in.
fn table_of(object: u64) -> u64 {
    object >> 32
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
    escalations: Arc<AtomicU64>,
}

impl SharedLocks {
    /// An empty table; None where there is no memory for it, and for a mirror, whose copies would each have one for the
    /// same rows: such a device takes no jobs that lock.
    fn new(kind: &DeviceKind, number: u32, locks: &Arc<Locks>) -> Option<Self> {
        if matches!(kind, DeviceKind::Mirror(_)) {
            return None;
        }
        let shape = TableShape::default();
        let is_remote = matches!(kind, DeviceKind::Remote(_));
        let in_a_file = match kind {
            DeviceKind::Local(_) => HostLocks::create(shape).ok(),
            DeviceKind::Embedded | DeviceKind::Remote(_) | DeviceKind::Mirror(_) => None,
        };
        // Without a memory file its runs lock by batches.
        let (host, device) = in_a_file.or_else(|| HostLocks::embedded(shape).ok())?;
        let (locks, escalations) = (Arc::clone(locks), Arc::default());
        let was_handed = AtomicBool::new(false);
        Some(Self { host, device, locks, number, is_remote, escalations, was_handed })
    }

    /// The host's side, for a connection that hands it over: without what the process behind an earlier one may have
    /// written there, if that is nothing that its jobs do.
    pub(super) fn for_connection(&self) -> Arc<HostLocks> {
        if self.host.bell().is_some() && self.was_handed.swap(true, Ordering::Relaxed) {
            self.host.repair();
        }
        Arc::clone(&self.host)
    }

    /// How often a job got its whole table in place of further rows.
    pub fn escalations(&self) -> u64 {
        self.escalations.load(Ordering::Relaxed)
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
            escalations: Arc::clone(&self.escalations),
        });
        let served = match self.is_remote {
            true => Served::ByHost(&self.device),
            false => Served::ByDevice(&self.device),
        };
        let transaction = Arc::clone(&of) as Arc<dyn JobTransaction>;
        let Some(hosted) = HostedJob::begin(&self.host, served, transaction)? else {
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
    /// The number of its device.
    pub fn device(&self) -> u32 {
        self.number
    }

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

    fn lock_object(&self, object: u64) -> bool {
        // Whoever locks rows of a table has it before in a mode that conflicts with this one: ROW SHARE or ROW
        // EXCLUSIVE. As with rows, a transaction that has ended or has too many locks gets none.
        let table = LockKey::table(table_of(object));
        let has_it = self.locks.try_lock(&self.owner, table, LockMode::Exclusive).unwrap_or(false);
        if has_it {
            self.escalations.fetch_add(1, Ordering::Relaxed);
        }
        has_it
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
    pub(super) fn share_locks(&self, locks: &Arc<Locks>) {
        let number = self.entry.id.0;
        let shared = self.locks.get_or_init(|| SharedLocks::new(&self.entry.kind, number, locks));
        if let Some(shared) = shared {
            locks.share(number, &shared.host);
        }
    }
}
