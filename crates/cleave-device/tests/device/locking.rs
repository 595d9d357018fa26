//! Runs that lock rows of a host behind a network, end to end: a stand-in for a fragment asks for rows over TCP and TLS
//! while the host's transactions hold some, and the wire is cut.

use std::sync::{Arc, Mutex};

use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use cleave_fragment::command::message::RunEvent;
use cleave_fragment::command::{
    Command, DeviceError, DeviceErrorCause, Execute, Reply, Request, RunReport,
};
use cleave_fragment::link::{DeviceService, LinkError, SlotSender};
use cleave_fragment::row_locks::{
    AskedLocks, HostedJob, JobTransaction, RowLock, RowLocks, Served,
};
use cleave_shmem::{DeviceLocks, HostLocks, Row, TableShape, Ticket};
use cleave_store::RecId;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use crate::bench::{Bench, Credentials, Server, any_port, memory, scan};
use crate::faults::{Liar, Lie, Wire};

const OBJECT: u64 = 7;
/// Rows that a run asks for at once.
const BATCH: u64 = 4096;

/// A run's locks, and where its slots go.
type Locking = (Arc<AskedLocks>, Arc<Mutex<SlotSender>>);

/// A device whose runs lock the first `snapshot` rows, and then report how many they have locked.
#[derive(Debug, Default)]
struct Locker {
    run: Mutex<Option<Locking>>,
    tasks: Mutex<JoinSet<()>>,
}

#[async_trait]
impl DeviceService for Locker {
    async fn call(&self, command: Command) -> Result<Reply, DeviceError> {
        Liar(Lie::MissingSlot).call(command).await
    }

    async fn execute(&self, request: Execute, slots: SlotSender) -> Result<SchemaRef, DeviceError> {
        let mut run = self.run.lock().unwrap();
        if let Some((asked, sink)) = &*run {
            *sink.lock().unwrap() = slots.clone();
            asked.connect(slots);
        } else {
            let asked = AskedLocks::new(slots.clone());
            let sink = Arc::new(Mutex::new(slots));
            *run = Some((Arc::clone(&asked), Arc::clone(&sink)));
            let rows = request.snapshot;
            self.tasks.lock().unwrap().spawn(async move {
                let event = match lock_all(&RowLocks::Asked(asked), rows).await {
                    Ok(rows) => {
                        let report = RunReport { rows_scanned: rows, ..RunReport::default() };
                        RunEvent::Finished(Box::new(report))
                    }
                    Err(why) => RunEvent::Failed(DeviceError::new(
                        DeviceErrorCause::Cancelled,
                        why.to_string(),
                    )),
                };
                sink.lock().unwrap().send(event);
            });
        }
        Ok(crate::bench::rows().schema())
    }

    fn steer(&self, command: Command) {
        let run = self.run.lock().unwrap().clone();
        if let (Request::Locks(say), Some((asked, _))) = (command.request, run) {
            asked.hear(say);
        }
    }
}

/// Has batches under way before the first has its outcomes, as a scan does.
async fn lock_all(
    locks: &RowLocks,
    rows: u64,
) -> Result<u64, cleave_fragment::command::LockRefusal> {
    let mut asked = Vec::new();
    for first in (0..rows).step_by(usize::try_from(BATCH).unwrap()) {
        let vids: Vec<u64> = (first..rows.min(first + BATCH)).collect();
        asked.push(locks.lock(OBJECT, &vids, true).await?);
        if asked.len() > 8 {
            settle(&mut asked, 1).await?;
        }
    }
    settle(&mut asked, usize::MAX).await?;
    Ok(rows)
}

async fn settle(
    asked: &mut Vec<cleave_fragment::row_locks::LockedRows>,
    count: usize,
) -> Result<(), cleave_fragment::command::LockRefusal> {
    for mut rows in asked.drain(..count.min(asked.len())) {
        let settled = rows.settled().await?;
        assert!(settled.iter().all(|row| *row == RowLock::Held));
    }
    Ok(())
}

#[derive(Debug)]
struct Alone;

impl JobTransaction for Alone {
    fn newest(&self, _row: Row) -> Option<RecId> {
        None
    }

    fn lock_own(&self, _row: Row) -> bool {
        false
    }

    fn lock_object(&self, _object: u64) -> bool {
        false
    }

    fn closes_cycle(&self) -> bool {
        false
    }
}

fn table() -> (Arc<HostLocks>, Arc<DeviceLocks>) {
    HostLocks::embedded(TableShape::default()).unwrap()
}

fn begin(host: &Arc<HostLocks>, device: &Arc<DeviceLocks>) -> Arc<HostedJob> {
    HostedJob::begin(host, Served::ByHost(device), Arc::new(Alone)).unwrap().unwrap()
}

fn join(host: &HostLocks, vid: u64) -> Ticket {
    host.join(Row { object: OBJECT, vid }, |_| false).unwrap().ticket
}

fn request(bench: &Bench, run: u64, rows: u64) -> Execute {
    Execute { snapshot: rows, ..bench.request(run, &scan(None), &[]) }
}

/// A run locks 200,000 rows over an encrypted wire: counts all bytes, in both directions.
#[tokio::test]
async fn a_lock_takes_less_than_twelve_bytes_on_the_wire() {
    const ROWS: u64 = 200_000;
    let credentials = Credentials::new();
    let server = Server::start(Arc::<Locker>::default(), any_port(), Some(&credentials)).await;
    let link = credentials.connect(server.address).await.unwrap();
    let bench = Bench::of(link, memory(), None).await;
    let (host, device) = table();
    let job = begin(&host, &device);
    let before = bench.link.traffic();
    let request = request(&bench, 1, ROWS);
    let mut stream = bench.link.execute_locking(request, Arc::clone(&job)).await.unwrap();
    assert!(stream.next().await.unwrap().is_none());
    assert_eq!(stream.report().unwrap().rows_scanned, ROWS);
    let bytes = bench.link.traffic().since(before);
    let bytes = bytes.sent_bytes + bytes.received_bytes;
    assert!(bytes < 12 * ROWS, "{bytes} bytes");
    let ticket = join(&host, ROWS - 1);
    assert!(!host.is_granted(&ticket).unwrap());
    job.end();
    assert!(host.is_granted(&ticket).unwrap());
    host.leave(ticket).unwrap();
}

/// The host has locked some of the rows, and releases them while the connection breaks again and again.
#[tokio::test]
async fn grants_come_over_a_wire_that_is_cut() {
    const ROWS: u64 = 20_000;
    let credentials = Credentials::new();
    let server = Server::start(Arc::<Locker>::default(), any_port(), Some(&credentials)).await;
    let wire = Wire::to(server.address).await;
    let link = credentials.connect(wire.address).await.unwrap();
    let bench = Bench::of(link, memory(), None).await;
    let (host, device) = table();
    let job = begin(&host, &device);
    let mut tickets: Vec<Ticket> = (0..ROWS).step_by(999).map(|vid| join(&host, vid)).collect();
    let request = request(&bench, 1, ROWS);
    let (done, mut is_done) = oneshot::channel();
    let mut reading = JoinSet::new();
    let (link, running) = (Arc::clone(&bench.link), Arc::clone(&job));
    reading.spawn(async move {
        loop {
            let begun = link.execute_locking(request.clone(), Arc::clone(&running)).await;
            let ended = match begun {
                Ok(mut stream) => match stream.next().await {
                    Ok(None) => break done.send(stream.report().unwrap().rows_scanned).unwrap(),
                    other => other.map(|_| ()),
                },
                Err(error) => Err(error),
            };
            let error = ended.unwrap_err();
            let is_cut = error.is_unreachable() || matches!(error, LinkError::Tls { .. });
            assert!(is_cut || matches!(error, LinkError::Device { .. }), "{error}");
        }
    });
    while let Some(ticket) = tickets.pop() {
        wire.cut();
        assert!(is_done.try_recv().is_err(), "rows of the host are not the run's");
        host.leave(ticket).unwrap();
        tokio::task::yield_now().await;
    }
    assert_eq!(is_done.await.unwrap(), ROWS);
    drop(reading);
    let ticket = join(&host, ROWS / 2);
    assert!(!host.is_granted(&ticket).unwrap());
    // The device is gone for good: the host ends its job.
    drop((server, wire, bench));
    job.end();
    assert!(host.is_granted(&ticket).unwrap());
    host.leave(ticket).unwrap();
    assert_eq!(host.contended().unwrap(), []);
}

/// A run for which the host has no job gets no locks, and the host is told so.
#[tokio::test]
async fn a_run_that_may_not_lock_is_ended() {
    let server = Server::start(Arc::<Locker>::default(), any_port(), None).await;
    let address = server.address;
    let link = crate::bench::connect_remote(
        address,
        crate::bench::token(),
        None,
        None,
        cleave_fragment::link::AbandonedRuns::default(),
    );
    let bench = Bench::of(link.await.unwrap(), memory(), None).await;
    let mut stream = bench.link.execute(request(&bench, 1, 10)).await.unwrap();
    let error = stream.next().await.unwrap_err();
    assert!(error.to_string().contains("asked for locks"), "{error}");
}
