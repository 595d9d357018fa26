//! Fragments that lock rows, over every way in which a device reaches the lock table: as part of a transaction of the
//! host's own lock table, against other transactions there.

use std::sync::Arc;
use std::time::Duration;

use arrow::array::AsArray;
use arrow::datatypes::{DataType, Field, Schema, UInt64Type};
use cleave_device::Runtime;
use cleave_fragment::command::{DeviceErrorCause, Execute, Reply, Request, RunLocks, RunState};
use cleave_fragment::link::{AbandonedRuns, ConnectedLink, EmbeddedLink, LinkError, RunStream};
use cleave_fragment::operators::table_scan_exec::{References, TableScan};
use cleave_fragment::row_locks::{HostedJob, JobTransaction, Served};
use cleave_fragment::{LockRowsExec, LockWaitPolicy, Morsel, RowsToLock, TableScanExec};
use cleave_shmem::{DeviceLocks, HostLocks, JobId, Row, SlotFormat, TableShape};
use cleave_store::{ColumnRef, Projection, RecId};
use cleave_txn::locks::Requested;
use cleave_txn::{LockError, LockKey, LockMode, LockOwner, Locks, TransactionId};
use datafusion_expr::Operator;
use datafusion_physical_expr::expressions::{BinaryExpr, Column as ColumnExpr, Literal};
use tokio::time::timeout;

use crate::bench::{
    Bench, Credentials, LocalServer, ROW_COUNT, Server, any_port, device_error, memory, options,
};
use crate::local::Process;

/// The device's number in the host's lock table.
const DEVICE: u32 = 0;
const OBJECT: u64 = 7 << 32;
const TABLE: u64 = 7;
/// Some pages.
const ROWS: u64 = 2000;
/// More than are locked at once.
const ALL: u64 = ROW_COUNT as u64;
const PATIENCE: Duration = Duration::from_secs(60);
/// Long enough for a lock that is not waited for.
const A_MOMENT: Duration = Duration::from_millis(200);

/// How a device reaches the lock table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Embedded,
    Local,
    /// Its process did not take the table.
    LocalByBatches,
    Remote,
}

/// A device, the lock table that the host shares with it, and the host's own.
struct Setting {
    bench: Bench,
    morsels: Vec<Morsel>,
    way: Way,
    locks: Arc<Locks>,
    host: Arc<HostLocks>,
    device: Arc<DeviceLocks>,
}

/// A job as a part of a transaction of the host.
#[derive(Debug)]
struct OfOwner {
    locks: Arc<Locks>,
    owner: Arc<LockOwner>,
    job: std::sync::OnceLock<JobId>,
}

impl JobTransaction for OfOwner {
    fn newest(&self, _row: Row) -> Option<RecId> {
        None
    }

    fn lock_own(&self, row: Row) -> bool {
        let key = LockKey::row_on(DEVICE, row.object, row.vid);
        self.locks.try_lock(&self.owner, key, LockMode::ForUpdate).unwrap()
    }

    fn lock_object(&self, object: u64) -> bool {
        assert_eq!(object, OBJECT);
        self.locks.try_lock(&self.owner, LockKey::table(TABLE), LockMode::Exclusive).unwrap()
    }

    fn closes_cycle(&self) -> bool {
        self.job.get().is_some_and(|job| self.locks.job_waits(DEVICE, *job).is_some())
    }
}

/// A run that locks, and its transaction; ends both when it is dropped.
struct Locking {
    job: Arc<HostedJob>,
    owner: Arc<LockOwner>,
    locks: Arc<Locks>,
}

impl Drop for Locking {
    fn drop(&mut self) {
        self.locks.end_job(DEVICE, self.job.job().id);
        self.job.end();
        self.locks.release_all(&self.owner);
    }
}

fn owner(number: u64) -> Arc<LockOwner> {
    LockOwner::new(TransactionId(number))
}

fn row(vid: u64) -> LockKey {
    LockKey::row_on(DEVICE, OBJECT, vid)
}

impl Setting {
    async fn new(way: Way, shape: TableShape) -> Self {
        let (host, device) = match way {
            Way::Local => HostLocks::create(shape).unwrap(),
            _ => HostLocks::embedded(shape).unwrap(),
        };
        let bench = bench_of(way, &host).await;
        Self::of(bench, way, host, device).await
    }

    async fn of(bench: Bench, way: Way, host: Arc<HostLocks>, device: Arc<DeviceLocks>) -> Self {
        let morsels = bench.load().await;
        let locks = Locks::new();
        locks.share(DEVICE, &host);
        Self { bench, morsels, way, locks, host, device }
    }

    fn begin(&self, transaction: u64) -> Locking {
        let (owner, locks) = (owner(transaction), Arc::clone(&self.locks));
        let of = Arc::new(OfOwner {
            locks: Arc::clone(&locks),
            owner: Arc::clone(&owner),
            job: std::sync::OnceLock::new(),
        });
        let served = match self.way {
            Way::Remote => Served::ByHost(&self.device),
            _ => Served::ByDevice(&self.device),
        };
        let transaction = Arc::clone(&of) as Arc<dyn JobTransaction>;
        let job = HostedJob::begin(&self.host, served, transaction).unwrap().unwrap();
        of.job.get_or_init(|| job.job().id);
        locks.begin_job(DEVICE, job.job().id, &owner);
        Locking { job, owner, locks }
    }

    /// Locks the rows with an id below this, page by page; their VIDs are larger by one.
    fn request(&self, run: u64, below: u64, policy: LockWaitPolicy) -> Execute {
        self.request_within(run, below, policy, 0)
    }

    /// The same, with a limit to the wait for a row.
    fn request_within(
        &self,
        run: u64,
        below: u64,
        policy: LockWaitPolicy,
        timeout_ms: u64,
    ) -> Execute {
        let field = |name, data_type| Schema::new(vec![Field::new(name, data_type, false)]);
        let bound = Literal::new(i32::try_from(below).unwrap().into());
        let id = Arc::new(ColumnExpr::new("id", 0));
        let scan = TableScan {
            table: "people".to_owned(),
            table_id: 5,
            output: Projection::new(Arc::new(field("vid", DataType::UInt64)), vec![ColumnRef::Vid]),
            filter: Projection::new(
                Arc::new(field("id", DataType::Int32)),
                vec![ColumnRef::User(1)],
            ),
            predicate: Some(Arc::new(BinaryExpr::new(id, Operator::Lt, Arc::new(bound)))),
            input: 0,
            fetch: None,
            references: References::None,
        };
        let table = "people".to_owned();
        let to_lock = RowsToLock { table, object: OBJECT, vid: 0, policy, timeout_ms };
        let plan = LockRowsExec::new(Arc::new(TableScanExec::new(scan, 1)), to_lock).unwrap();
        let request = self.bench.request(run, &(Arc::new(plan) as _), &self.morsels);
        Execute { partitions: 1, ..request }
    }

    async fn run(&self, locking: &Locking, request: Execute) -> RunStream {
        let job = Arc::clone(&locking.job);
        let stream = self.bench.link.execute_locking(request, job).await.unwrap();
        // Whichever way was meant is the one that was gone.
        let shares = matches!(locking.job.run_locks(false), Ok(RunLocks::Shared(_)));
        assert_eq!(shares, matches!(self.way, Way::Embedded | Way::Local));
        stream
    }

    fn is_free(&self, vid: u64) -> bool {
        let other = owner(1000);
        let is_free = self.locks.try_lock(&other, row(vid), LockMode::ForUpdate).unwrap();
        self.locks.release_all(&other);
        is_free
    }
}

/// A device that reaches `host`'s table in this way.
async fn bench_of(way: Way, host: &Arc<HostLocks>) -> Bench {
    let media = memory();
    let device = Runtime::new(Arc::clone(&media), options()).unwrap();
    match way {
        Way::Embedded => Bench::of(EmbeddedLink::new(device, None), media, None).await,
        Way::Local | Way::LocalByBatches => {
            let server = LocalServer::start(device).await;
            let table = (way == Way::Local).then(|| Arc::clone(host));
            let link = ConnectedLink::local(&server.socket, None, AbandonedRuns::default(), table);
            let link = link.unwrap().connected().await.unwrap();
            Bench { _local: Some(server), ..Bench::of(link, media, None).await }
        }
        Way::Remote => {
            let credentials = Credentials::new();
            let server = Server::start(device, any_port(), Some(&credentials)).await;
            let link = credentials.connect(server.address).await.unwrap();
            Bench::of(link, media, Some(server)).await
        }
    }
}

/// All remaining VIDs of `stream`.
async fn vids(stream: &mut RunStream) -> Result<Vec<u64>, LinkError> {
    let mut found = Vec::new();
    while let Some(batch) = stream.next().await? {
        found.extend(batch.column(0).as_primitive::<UInt64Type>().values());
    }
    Ok(found)
}

macro_rules! over_every_way {
    ($($name:ident),* $(,)?) => {
        mod embedded {
            $(#[tokio::test] async fn $name() {
                super::$name(super::Way::Embedded, super::TableShape::default()).await;
            })*
        }
        mod local {
            $(#[tokio::test] async fn $name() {
                super::$name(super::Way::Local, super::TableShape::default()).await;
            })*
        }
        mod local_with_entries_of_8_bytes {
            $(#[tokio::test] async fn $name() {
                let shape = super::TableShape {
                    format: super::SlotFormat::FOUR,
                    ..super::TableShape::default()
                };
                super::$name(super::Way::Local, shape).await;
            })*
        }
        mod local_by_batches {
            $(#[tokio::test] async fn $name() {
                super::$name(super::Way::LocalByBatches, super::TableShape::default()).await;
            })*
        }
        mod remote {
            $(#[tokio::test] async fn $name() {
                super::$name(super::Way::Remote, super::TableShape::default()).await;
            })*
        }
    };
}

over_every_way![
    rows_are_locked_and_waited_for_and_kept_to_the_end,
    who_does_not_wait_is_told,
    a_row_is_waited_for_no_longer_than_asked,
    a_cycle_through_a_job_ends_a_transaction_of_the_host,
    a_job_with_most_of_the_table_locks_the_object,
    a_run_that_is_given_up_leaves_nothing_behind,
];

async fn rows_are_locked_and_waited_for_and_kept_to_the_end(way: Way, shape: TableShape) {
    let setting = Setting::new(way, shape).await;
    let first = owner(1);
    assert!(setting.locks.try_lock(&first, row(5), LockMode::ForUpdate).unwrap());
    let locking = setting.begin(2);
    let request = setting.request(1, ROWS, LockWaitPolicy::Block);
    let mut stream = setting.run(&locking, request).await;
    let mut reading = Box::pin(vids(&mut stream));
    assert!(timeout(A_MOMENT, &mut reading).await.is_err(), "the row is another's");
    // Other rows are locked meanwhile.
    assert!(!setting.is_free(ROWS - 1));
    setting.locks.release_all(&first);
    let locked = timeout(PATIENCE, reading).await.unwrap().unwrap();
    assert!(locked.into_iter().eq(1..=ROWS), "each row once, in order");
    assert!(locking.job.has_its_locks());
    // A transaction of the host waits for the end of the job's, and not for the end of the run.
    drop(stream);
    let second = owner(3);
    let waits = setting.locks.request(&second, row(5), LockMode::ForUpdate).unwrap();
    let Requested::Waiting(mut wait) = waits else { panic!("the job has it") };
    assert!(timeout(A_MOMENT, &mut wait).await.is_err());
    let figures = setting.host.figures_of_jobs();
    assert_eq!(figures.requests, ROWS);
    assert!(figures.conflicts() >= 1 && figures.false_conflicts < figures.conflicts());
    drop(locking);
    timeout(PATIENCE, wait).await.unwrap().unwrap();
    setting.locks.release_all(&second);
    assert!((0..ROWS).step_by(97).all(|vid| setting.is_free(vid)));
    assert_eq!(setting.host.contended().unwrap(), []);
}

async fn who_does_not_wait_is_told(way: Way, shape: TableShape) {
    let setting = Setting::new(way, shape).await;
    let first = owner(1);
    assert!(setting.locks.try_lock(&first, row(3), LockMode::ForUpdate).unwrap());
    let locking = setting.begin(2);
    let request = setting.request(1, 8, LockWaitPolicy::Skip);
    let mut stream = setting.run(&locking, request).await;
    assert_eq!(vids(&mut stream).await.unwrap(), [1, 2, 4, 5, 6, 7, 8]);
    drop((stream, locking));
    let locking = setting.begin(4);
    let request = setting.request(2, 8, LockWaitPolicy::Error);
    let mut stream = setting.run(&locking, request).await;
    let (cause, message) = device_error(vids(&mut stream).await);
    assert_eq!(cause, DeviceErrorCause::LockNotAvailable);
    assert_eq!(message, "could not obtain lock on row in relation \"people\"");
    assert!(!setting.is_free(2), "to the end of the transaction");
    drop((stream, locking));
    assert!(setting.is_free(2) && !setting.is_free(3));
    setting.locks.release_all(&first);
    // A fragment that is part of no transaction locks nothing.
    let request = setting.request(3, 8, LockWaitPolicy::Block);
    let mut stream = setting.bench.execute(request).await;
    let (_, message) = device_error(vids(&mut stream).await);
    assert!(message.contains("part of no transaction"), "{message}");
    assert!((0..8).all(|vid| setting.is_free(vid)));
}

async fn a_row_is_waited_for_no_longer_than_asked(way: Way, shape: TableShape) {
    let setting = Setting::new(way, shape).await;
    let first = owner(1);
    assert!(setting.locks.try_lock(&first, row(5), LockMode::ForUpdate).unwrap());
    let locking = setting.begin(2);
    let request = setting.request_within(1, 8, LockWaitPolicy::Block, 50);
    let mut stream = setting.run(&locking, request).await;
    let (cause, message) = device_error(vids(&mut stream).await);
    assert_eq!(cause, DeviceErrorCause::LockTimeout);
    assert_eq!(message, "a fragment waited for a row in relation \"people\"");
    assert!(!setting.is_free(2), "to the end of the transaction");
    drop((stream, locking));
    assert!(setting.is_free(2) && !setting.is_free(5));
    // Who comes in time has the row, and rows that are free need no time at all.
    let locking = setting.begin(3);
    let request = setting.request_within(2, 8, LockWaitPolicy::Block, 60_000);
    let mut stream = setting.run(&locking, request).await;
    let mut reading = Box::pin(vids(&mut stream));
    assert!(timeout(A_MOMENT, &mut reading).await.is_err());
    setting.locks.release_all(&first);
    assert_eq!(timeout(PATIENCE, reading).await.unwrap().unwrap().len(), 8);
    drop((stream, locking));
    let locking = setting.begin(4);
    let request = setting.request_within(3, ROWS, LockWaitPolicy::Block, 1);
    let mut stream = setting.run(&locking, request).await;
    assert_eq!(vids(&mut stream).await.unwrap().len() as u64, ROWS);
    drop((stream, locking));
    assert_eq!(setting.host.contended().unwrap(), []);
}

async fn a_cycle_through_a_job_ends_a_transaction_of_the_host(way: Way, shape: TableShape) {
    let setting = Setting::new(way, shape).await;
    let other = owner(1);
    assert!(setting.locks.try_lock(&other, row(100), LockMode::ForUpdate).unwrap());
    let locking = setting.begin(2);
    let request = setting.request(1, 8, LockWaitPolicy::Block);
    let mut stream = setting.run(&locking, request).await;
    assert_eq!(vids(&mut stream).await.unwrap().len(), 8);
    let waits = setting.locks.request(&other, row(3), LockMode::ForUpdate).unwrap();
    let Requested::Waiting(wait) = waits else { panic!("the job has it") };
    drop((stream, locking));
    wait.await.unwrap();
    setting.locks.release_all(&other);
    // Now the job closes the cycle: the other one waits for it before it comes to the other's row.
    let (other, blocker) = (owner(3), owner(4));
    assert!(setting.locks.try_lock(&other, row(ALL - 1), LockMode::ForUpdate).unwrap());
    assert!(setting.locks.try_lock(&blocker, row(50), LockMode::ForUpdate).unwrap());
    let locking = setting.begin(5);
    let request = setting.request(2, ALL, LockWaitPolicy::Block);
    let mut stream = setting.run(&locking, request).await;
    let mut reading = Box::pin(vids(&mut stream));
    assert!(timeout(A_MOMENT, &mut reading).await.is_err());
    let waits = setting.locks.request(&other, row(3), LockMode::ForUpdate).unwrap();
    let Requested::Waiting(mut wait) = waits else { panic!("the job has it") };
    assert!(timeout(A_MOMENT, &mut wait).await.is_err(), "no cycle yet");
    setting.locks.release_all(&blocker);
    // The job has done more work: the transaction of the host fails.
    let (failed, locked) = timeout(PATIENCE, async {
        let failed = async {
            let failed = wait.await;
            setting.locks.release_all(&other);
            failed
        };
        tokio::join!(failed, reading)
    })
    .await
    .unwrap();
    assert!(matches!(failed, Err(LockError::Deadlock(_))), "{failed:?}");
    assert_eq!(locked.unwrap().len(), usize::try_from(ALL).unwrap());
    drop((stream, locking));
    assert_eq!(setting.host.contended().unwrap(), []);
}

async fn a_job_with_most_of_the_table_locks_the_object(way: Way, shape: TableShape) {
    let shape = TableShape { entry_count: 1024, ..shape };
    let setting = Setting::new(way, shape).await;
    // A writer of the table, which has locked no row of it yet, keeps the job from taking all.
    let writer = owner(1);
    let table = LockKey::table(TABLE);
    assert!(setting.locks.try_lock(&writer, table, LockMode::RowExclusive).unwrap());
    let locking = setting.begin(2);
    let request = setting.request(1, ROWS, LockWaitPolicy::Block);
    let mut stream = setting.run(&locking, request).await;
    assert_eq!(vids(&mut stream).await.unwrap().len(), usize::try_from(ROWS).unwrap());
    assert!(!setting.locks.holds(&locking.owner, table, LockMode::Exclusive));
    drop((stream, locking));
    setting.locks.release_all(&writer);

    let before = setting.host.figures_of_jobs();
    let locking = setting.begin(3);
    let rows = ALL;
    let request = setting.request(2, rows, LockWaitPolicy::Block);
    let mut stream = setting.run(&locking, request).await;
    assert_eq!(vids(&mut stream).await.unwrap().len(), usize::try_from(rows).unwrap());
    assert!(setting.locks.holds(&locking.owner, table, LockMode::Exclusive));
    let after = setting.host.figures_of_jobs();
    assert!(after.requests - before.requests < rows, "it locks rows no more: {after:?}");
    let writer = owner(4);
    assert!(!setting.locks.try_lock(&writer, table, LockMode::RowExclusive).unwrap());
    drop((stream, locking));
    assert!(setting.locks.try_lock(&writer, table, LockMode::RowExclusive).unwrap());
    setting.locks.release_all(&writer);
}

async fn a_run_that_is_given_up_leaves_nothing_behind(way: Way, shape: TableShape) {
    let setting = Setting::new(way, shape).await;
    let first = owner(1);
    assert!(setting.locks.try_lock(&first, row(5), LockMode::ForUpdate).unwrap());
    // The run is stopped, and waited for.
    let locking = setting.begin(2);
    let bystander = setting.begin(3);
    bystander.job.run_locks(way != Way::LocalByBatches).unwrap();
    let request = setting.request(1, 100, LockWaitPolicy::Block);
    let stream = setting.run(&locking, request).await;
    while setting.is_free(99) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let reply = setting.bench.call_run(1, Request::Cancel).await.unwrap();
    assert_eq!(reply, Reply::Done);
    locking.job.run_has_stopped();
    drop((stream, locking));
    assert!(setting.is_free(99) && bystander.job.has_its_locks());
    // It is not waited for: whoever may lock on in shared memory loses all, with the device's other jobs.
    let locking = setting.begin(4);
    let request = setting.request(2, 100, LockWaitPolicy::Block);
    let stream = setting.run(&locking, request).await;
    while setting.is_free(99) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    setting.bench.reach(2, RunState::Running).await;
    drop(locking);
    assert!(setting.is_free(99) && !setting.is_free(5));
    let shares = matches!(way, Way::Embedded | Way::Local);
    assert_eq!(bystander.job.has_its_locks(), !shares);
    drop(stream);
    setting.bench.reach_idle().await;
    setting.locks.release_all(&first);
    assert!((0..100).all(|vid| setting.is_free(vid)));
    // And the device goes on.
    let locking = setting.begin(5);
    let request = setting.request(3, 100, LockWaitPolicy::Block);
    let mut stream = setting.run(&locking, request).await;
    assert_eq!(vids(&mut stream).await.unwrap().len(), 100);
    assert!(!setting.is_free(99));
    drop((stream, locking));
    assert!(setting.is_free(99));
}

/// A process that holds rows dies, however it dies: they are the host's, and so they are while its successor works in
/// the same table.
#[tokio::test]
async fn rows_of_a_device_that_was_killed_are_the_hosts() {
    let (host, device) = HostLocks::create(TableShape::default()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("device.sock");
    let mut process = Process::start(folder.path(), &socket);
    let link = process.connect_sharing(&socket, Some(&host)).await;
    let bench = Bench::of(link, memory(), None).await;
    let mut setting = Setting::of(bench, Way::Local, host, device).await;
    let (blocker, waiter) = (owner(1), owner(2));
    assert!(setting.locks.try_lock(&blocker, row(50), LockMode::ForUpdate).unwrap());
    let locking = setting.begin(3);
    let request = setting.request(1, ROWS, LockWaitPolicy::Block);
    let mut stream = setting.run(&locking, request).await;
    let mut reading = Box::pin(vids(&mut stream));
    assert!(timeout(A_MOMENT, &mut reading).await.is_err(), "a row is the blocker's");
    let waits = setting.locks.request(&waiter, row(3), LockMode::ForUpdate).unwrap();
    let Requested::Waiting(mut wait) = waits else { panic!("the job has it") };
    process.kill();
    let lost = timeout(PATIENCE, reading).await.unwrap().unwrap_err();
    assert!(lost.is_unreachable(), "{lost}");
    assert!(timeout(A_MOMENT, &mut wait).await.is_err(), "a lost connection releases nothing");
    drop((stream, locking));
    timeout(PATIENCE, wait).await.unwrap().unwrap();
    setting.locks.release_all(&waiter);
    // The next process finds the table as it is, and the host's locks in it.
    let mut process = Process::start(folder.path(), &socket);
    let link = process.connect_sharing(&socket, Some(&setting.host)).await;
    setting.bench = Bench::unclaimed(link, memory());
    let locking = setting.begin(4);
    let request = setting.request(2, ROWS, LockWaitPolicy::Block);
    let mut stream = setting.run(&locking, request).await;
    let mut reading = Box::pin(vids(&mut stream));
    assert!(timeout(A_MOMENT, &mut reading).await.is_err(), "a row is the blocker's");
    setting.locks.release_all(&blocker);
    let locked = timeout(PATIENCE, reading).await.unwrap().unwrap();
    assert_eq!(locked.len(), usize::try_from(ROWS).unwrap());
    drop((stream, locking));
    assert_eq!(setting.host.contended().unwrap(), []);
    assert_eq!(setting.host.figures_of_jobs().requests, 2 * ROWS, "of both processes");
}
