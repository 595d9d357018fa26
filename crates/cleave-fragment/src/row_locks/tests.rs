//! Jobs of a remote device against each other and against the host, over a network that loses, delays and repeats.

use std::collections::BTreeSet;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use cleave_media::SplitMix64;
use cleave_shmem::{DeviceLocks, HostLocks, Row, SlotFormat, TableShape, Ticket};
use cleave_store::SegmentId;
use futures::FutureExt;
use tokio::sync::mpsc::UnboundedReceiver;

use super::*;
use crate::command::message::RunEvent;
use crate::command::{LockBatch, LockCall, LockSay};
use crate::link::{SlotForm, SlotSender};

const OBJECT: u64 = 7;
const ROW_COUNT: usize = 12;
const ROWS: u64 = ROW_COUNT as u64;
/// So few entries that rows share them, and so many slots that there is always room: a job that finds none queues later
/// than for its other rows, and may close a deadlock cycle.
const SMALL: TableShape = TableShape { entry_count: 16, format: SlotFormat::SIXTEEN };

/// How often each row was changed.
#[derive(Debug, Default)]
struct Versions([AtomicU32; ROW_COUNT]);

impl Versions {
    fn of(&self, vid: u64) -> &AtomicU32 {
        &self.0[place(vid)]
    }

    fn now(&self) -> Vec<u32> {
        self.0.iter().map(|version| version.load(Ordering::Relaxed)).collect()
    }
}

fn version(number: u32) -> RecId {
    RecId::new(SegmentId(1), number, 0).unwrap()
}

/// A transaction that began with these versions.
#[derive(Debug)]
struct Began {
    versions: Arc<Versions>,
    snapshot: Vec<u32>,
    is_in_ring: bool,
    /// A row that its transaction has locked on the host.
    own: Option<u64>,
    /// Whether nobody else locks rows of the object.
    object_is_free: bool,
}

impl JobTransaction for Began {
    fn lock_own(&self, row: Row) -> bool {
        self.own == Some(row.vid)
    }

    fn lock_object(&self, object: u64) -> bool {
        assert_eq!(object, OBJECT);
        self.object_is_free
    }

    fn newest(&self, row: Row) -> Option<RecId> {
        let now = self.versions.of(row.vid).load(Ordering::Relaxed);
        (now != self.snapshot[place(row.vid)]).then(|| version(now))
    }

    fn closes_cycle(&self) -> bool {
        self.is_in_ring
    }
}

type Down = Arc<Mutex<Vec<LockSay>>>;
type Pump = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A run that locks: both ends, and the messages under way between them.
struct Run {
    job: Arc<HostedJob>,
    asked: Arc<AskedLocks>,
    sent: UnboundedReceiver<RunEvent>,
    up: Vec<LockCall>,
    down: Down,
    /// Until it ends.
    pump: Option<Pump>,
    vids: Vec<u64>,
    snapshot: Vec<u32>,
    rows: Option<AskedRows>,
    has_all: bool,
}

fn connect(job: &Arc<HostedJob>) -> (Down, Option<Pump>) {
    let down = Down::default();
    let sink = Arc::clone(&down);
    let pump = job.connect(Arc::new(move |say| {
        sink.lock().unwrap_or_else(PoisonError::into_inner).push(say);
    }));
    (down, Some(Box::pin(pump)))
}

fn poll<F: Future + ?Sized>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

impl Run {
    fn new(host: &Arc<HostLocks>, device: &Arc<DeviceLocks>, began: Began) -> Self {
        let snapshot = began.snapshot.clone();
        let job = HostedJob::begin(host, Served::ByHost(device), Arc::new(began)).unwrap().unwrap();
        let (sink, sent) = SlotSender::channel(SlotForm::Encoded);
        let (down, pump) = connect(&job);
        let asked = AskedLocks::new(sink);
        Self {
            job,
            asked,
            sent,
            up: Vec::new(),
            down,
            pump,
            vids: Vec::new(),
            snapshot,
            rows: None,
            has_all: false,
        }
    }

    fn ask(&mut self, vids: &[u64], waits: bool) {
        let rows = self.asked.lock(OBJECT, vids, waits).now_or_never().unwrap().unwrap();
        (self.rows, self.vids) = (Some(rows), vids.to_vec());
    }

    fn lose_connection(&mut self) {
        self.up.clear();
        let (sink, sent) = SlotSender::channel(SlotForm::Encoded);
        self.sent = sent;
        (self.down, self.pump) = connect(&self.job);
        self.asked.connect(sink);
    }

    /// Delivers one message of the device to the host, perhaps repeatedly.
    fn deliver_up(&mut self, random: &mut SplitMix64) -> bool {
        while let Ok(RunEvent::Locks(call)) = self.sent.try_recv() {
            // As encoded and decoded.
            self.up.push(LockCall::decode(&call.encode()).unwrap());
        }
        if self.up.is_empty() {
            return false;
        }
        let at = usize::try_from(random.below(self.up.len() as u64)).unwrap();
        let call = if random.below(4) == 0 { self.up[at].clone() } else { self.up.swap_remove(at) };
        self.job.take(call);
        true
    }

    fn deliver_down(&mut self, random: &mut SplitMix64) -> bool {
        let mut down = self.down.lock().unwrap();
        if down.is_empty() {
            return false;
        }
        let at = usize::try_from(random.below(down.len() as u64)).unwrap();
        let say = if random.below(4) == 0 { down[at].clone() } else { down.swap_remove(at) };
        drop(down);
        self.asked.hear(LockSay::decode(&say.encode()).unwrap());
        true
    }

    fn pump(&mut self) {
        if self.pump.as_mut().is_some_and(|pump| poll(pump.as_mut()).is_ready()) {
            self.pump = None;
        }
    }

    /// Delivers all messages, both ways, and those that follow.
    fn settle(&mut self, random: &mut SplitMix64) {
        loop {
            self.pump();
            if !self.deliver_up(random) & !self.deliver_down(random) {
                return;
            }
        }
    }

    fn outcomes(&mut self) -> Poll<Result<Vec<RowLock>, LockRefusal>> {
        let rows = self.rows.as_mut().unwrap();
        poll(pin!(rows.settled()))
    }

    fn answers(&mut self) -> Vec<RowLock> {
        let rows = self.rows.as_mut().unwrap();
        rows.answered().now_or_never().unwrap().unwrap()
    }
}

struct Bench {
    host: Arc<HostLocks>,
    device: Arc<DeviceLocks>,
    versions: Arc<Versions>,
    random: SplitMix64,
}

impl Bench {
    fn new() -> Self {
        let (host, device) = HostLocks::embedded(SMALL).unwrap();
        Self { host, device, versions: Arc::default(), random: SplitMix64::new(1) }
    }

    fn run(&self) -> Run {
        let versions = Arc::clone(&self.versions);
        let began = Began {
            snapshot: versions.now(),
            versions,
            is_in_ring: false,
            own: None,
            object_is_free: false,
        };
        Run::new(&self.host, &self.device, began)
    }

    /// A run that has requested these rows, with all messages delivered.
    fn asked(&mut self, vids: &[u64]) -> Run {
        let mut run = self.run();
        run.ask(vids, true);
        run.settle(&mut self.random);
        run
    }

    fn join(&self, vid: u64) -> Ticket {
        self.host.join(Row { object: OBJECT, vid }, |_| false).unwrap().ticket
    }

    fn is_free(&self, vid: u64) -> bool {
        let ticket = self.host.try_join(Row { object: OBJECT, vid }, |_| false).unwrap();
        ticket.map(|ticket| self.host.leave(ticket).unwrap()).is_some()
    }
}

#[test]
fn rows_are_granted_queued_and_pushed() {
    let mut bench = Bench::new();
    let ticket = bench.join(2);
    let mut run = bench.asked(&[1, 2, 3]);
    assert_eq!(run.answers(), [RowLock::Held, RowLock::Queued, RowLock::Held]);
    assert!(run.outcomes().is_pending());
    // The host changes the row that it has locked.
    bench.versions.of(2).store(5, Ordering::Relaxed);
    bench.host.leave(ticket).unwrap();
    run.settle(&mut bench.random);
    let settled = vec![RowLock::Held, RowLock::Changed(version(5)), RowLock::Held];
    assert_eq!(run.outcomes(), Poll::Ready(Ok(settled)));
    // The host waits for the job, until that ends.
    let ticket = bench.join(2);
    assert!(!bench.host.is_granted(&ticket).unwrap());
    run.job.end();
    assert!(bench.host.is_granted(&ticket).unwrap());
    bench.host.leave(ticket).unwrap();
    assert!((0..ROWS).all(|vid| bench.is_free(vid)));
}

#[test]
fn who_does_not_wait_is_told_what_is_not_free() {
    let mut bench = Bench::new();
    let ticket = bench.join(2);
    let mut run = bench.run();
    run.ask(&[1, 2], false);
    run.settle(&mut bench.random);
    assert_eq!(run.outcomes(), Poll::Ready(Ok(vec![RowLock::Held, RowLock::NotFree])));
    bench.host.leave(ticket).unwrap();
    assert!(bench.is_free(2) && !bench.is_free(1));
}

#[test]
fn a_connection_that_dies_releases_nothing_and_loses_no_grant() {
    let mut bench = Bench::new();
    let ticket = bench.join(2);
    let mut run = bench.asked(&[1, 2]);
    // Granted, and the grant is lost with the connection.
    bench.host.leave(ticket).unwrap();
    run.pump();
    assert_eq!(run.down.lock().unwrap().len(), 1);
    run.lose_connection();
    assert!(!bench.is_free(1) && !bench.is_free(2));
    run.settle(&mut bench.random);
    assert_eq!(run.outcomes(), Poll::Ready(Ok(vec![RowLock::Held; 2])));
    // A dead device asks nothing any more, and the host ends its job.
    drop(run);
    assert!(bench.is_free(1) && bench.is_free(2));
}

#[test]
fn rows_that_are_given_up_leave_the_line_and_late_batches_do_not_come_back() {
    let mut bench = Bench::new();
    let ticket = bench.join(2);
    let mut run = bench.asked(&[1, 2]);
    run.rows = None;
    run.settle(&mut bench.random);
    bench.host.leave(ticket).unwrap();
    assert!(bench.is_free(2), "given up");
    assert!(!bench.is_free(1), "held to the end");
    // The batch comes once more.
    let again = LockBatch { number: 0, object: OBJECT, waits: true, vids: vec![1, 2] };
    run.job.take(LockCall::Lock(again));
    assert!(bench.is_free(2));
}

#[test]
fn a_release_gives_all_back_and_is_said_until_it_is_heard() {
    let mut bench = Bench::new();
    let mut run = bench.asked(&[1, 2]);
    run.asked.release();
    run.lose_connection();
    run.settle(&mut bench.random);
    assert!(run.asked.is_released());
    assert!((0..ROWS).all(|vid| bench.is_free(vid)));
    let refused = run.asked.lock(OBJECT, &[1], true).now_or_never().unwrap();
    assert_eq!(refused.map(|_| ()), Err(LockRefusal::Over));
    // A late batch locks nothing.
    let late = LockBatch { number: 0, object: OBJECT, waits: true, vids: vec![1] };
    run.job.take(LockCall::Lock(late));
    assert!(bench.is_free(1));
}

#[test]
fn a_job_that_closes_a_ring_is_told_and_leaves_the_line() {
    let mut bench = Bench::new();
    let ticket = bench.join(2);
    let versions = Arc::clone(&bench.versions);
    let began = Began {
        snapshot: versions.now(),
        versions,
        is_in_ring: true,
        own: Some(5),
        object_is_free: false,
    };
    let mut run = Run::new(&bench.host, &bench.device, began);
    let own = bench.join(5);
    run.ask(&[1, 5], true);
    run.settle(&mut bench.random);
    assert_eq!(
        run.outcomes(),
        Poll::Ready(Ok(vec![RowLock::Held; 2])),
        "its own is not waited for"
    );
    bench.host.leave(own).unwrap();
    run.ask(&[2], true);
    run.settle(&mut bench.random);
    assert_eq!(run.outcomes(), Poll::Ready(Err(LockRefusal::Deadlock)));
    bench.host.leave(ticket).unwrap();
    assert!(bench.is_free(2) && !bench.is_free(1));
}

#[test]
fn a_fence_ends_the_job() {
    let mut bench = Bench::new();
    let ticket = bench.join(2);
    let mut run = bench.asked(&[1, 2]);
    bench.host.fence();
    run.settle(&mut bench.random);
    assert_eq!(run.outcomes(), Poll::Ready(Err(LockRefusal::Over)));
    bench.host.leave(ticket).unwrap();
    assert!(bench.is_free(1) && bench.is_free(2));
}

#[test]
fn what_answers_nothing_that_was_asked_ends_the_run() {
    let bench = Bench::new();
    let answers = |number, count| {
        let answers = vec![LockAnswer::Granted; count];
        LockSay::Answers(crate::command::LockAnswers { number, answers })
    };
    let grant = |number, row| {
        LockSay::Grants(vec![crate::command::LockGrant { number, row, newest: None }])
    };
    for wrong in [answers(0, 3), answers(1, 2), grant(0, 2), grant(9, 0), LockSay::Released] {
        let mut run = bench.run();
        run.ask(&[1, 2], true);
        run.asked.hear(wrong);
        assert_eq!(run.outcomes(), Poll::Ready(Err(LockRefusal::Spoilt)));
    }
}

#[test]
fn the_same_calls_lock_in_shared_memory() {
    let (host, device) = HostLocks::embedded(SMALL).unwrap();
    let versions = Arc::<Versions>::default();
    let began = Began {
        snapshot: versions.now(),
        versions,
        is_in_ring: false,
        own: Some(5),
        object_is_free: false,
    };
    let job = HostedJob::begin(&host, Served::ByDevice(&device), Arc::new(began)).unwrap().unwrap();
    let (sink, mut sent) = SlotSender::channel(SlotForm::Batches);
    let (says, _pump) = connect(&job);
    let way = job.run_locks(true).unwrap();
    assert_eq!(way, RunLocks::Shared(job.job()));
    let without = RowLocks::begin(way, sink.clone()).map(|_| ());
    assert_eq!(without, Err(LockRefusal::NoTable));
    let locks = RowLocks::begin(way, sink.sharing(Some(&device))).unwrap();
    let ask = |vids: &[u64], waits| locks.lock(OBJECT, vids, waits).now_or_never().unwrap();
    let ticket = host.join(Row { object: OBJECT, vid: 2 }, |_| false).unwrap().ticket;
    let mut held = ask(&[1, 2], false).unwrap();
    let outcomes = held.settled().now_or_never().unwrap();
    assert_eq!(outcomes, Ok(vec![RowLock::Held, RowLock::NotFree]));
    let mut queued = ask(&[1, 2], true).unwrap();
    let answers = queued.answered().now_or_never().unwrap();
    assert_eq!(answers, Ok(vec![RowLock::Held, RowLock::Queued]));
    assert!(queued.settled().now_or_never().is_none());
    host.leave(ticket).unwrap();
    assert_eq!(queued.settled().now_or_never().unwrap(), Ok(vec![RowLock::Held; 2]));
    // The host tells that rows its transaction has locked are its own.
    let own = host.join(Row { object: OBJECT, vid: 5 }, |_| false).unwrap().ticket;
    let mut queued = ask(&[5], true).unwrap();
    assert!(queued.settled().now_or_never().is_none());
    while let Ok(RunEvent::Locks(call)) = sent.try_recv() {
        job.take(call);
    }
    says.lock().unwrap().drain(..).for_each(|say| locks.hear(say));
    assert_eq!(queued.settled().now_or_never().unwrap(), Ok(vec![RowLock::Held]));
    host.leave(own).unwrap();
    // A job that gives up leaves the queue.
    let other = HostedJob::begin(
        &host,
        Served::ByHost(&device),
        Arc::new(Began {
            versions: Arc::default(),
            snapshot: vec![0; 12],
            is_in_ring: false,
            own: None,
            object_is_free: false,
        }),
    );
    let other = other.unwrap().unwrap();
    other.take(LockCall::Lock(LockBatch { number: 0, object: OBJECT, waits: true, vids: vec![9] }));
    let mut waits = ask(&[9], true).unwrap();
    assert!(waits.settled().now_or_never().is_none());
    drop(waits);
    other.end();
    assert!(host.try_join(Row { object: OBJECT, vid: 9 }, |_| false).unwrap().is_some());
    locks.hear(LockSay::Refused(LockRefusal::Deadlock));
    assert_eq!(ask(&[1], true).map(|_| ()), Err(LockRefusal::Deadlock));
    job.end();
    assert!(host.try_join(Row { object: OBJECT, vid: 1 }, |_| false).unwrap().is_some());
}

/// Rows in as many entries.
fn in_entries_of_their_own(host: &HostLocks, count: usize) -> Vec<u64> {
    let mut found: Vec<(u64, Ticket)> = Vec::new();
    for vid in 0.. {
        let row = Row { object: OBJECT, vid };
        if found.len() == count {
            break;
        }
        if !found.iter().any(|(_, ticket)| host.is_at(ticket, row)) {
            found.push((vid, host.join(row, |_| false).unwrap().ticket));
        }
    }
    let leave = |(vid, ticket)| {
        host.leave(ticket).unwrap();
        vid
    };
    found.into_iter().map(leave).collect()
}

#[test]
fn a_job_with_most_of_the_table_gets_its_object_if_nobody_else_locks_rows_of_it() {
    for object_is_free in [false, true] {
        let mut bench = Bench::new();
        let versions = Arc::clone(&bench.versions);
        let snapshot = versions.now();
        let began = Began { snapshot, versions, is_in_ring: false, own: None, object_is_free };
        let mut run = Run::new(&bench.host, &bench.device, began);
        let rows = in_entries_of_their_own(&bench.host, 10);
        let (most, last) = (&rows[..9], rows[9]);
        run.ask(most, true);
        run.settle(&mut bench.random);
        assert_eq!(run.outcomes(), Poll::Ready(Ok(vec![RowLock::Held; most.len()])));
        // An entry of the host's: another table's row, as far as the job's transaction has the whole object.
        let ticket = bench.join(last);
        bench.versions.of(last).store(3, Ordering::Relaxed);
        run.ask(&[last], true);
        run.settle(&mut bench.random);
        let before = bench.host.figures_of_jobs();
        if object_is_free {
            let settled = vec![RowLock::Changed(version(3))];
            assert_eq!(run.outcomes(), Poll::Ready(Ok(settled)));
            assert_eq!((before.requests, before.conflicts()), (9, 0), "rows are locked no more");
        } else {
            assert!(run.outcomes().is_pending());
            assert_eq!((before.requests, before.waits), (10, 1));
        }
        bench.host.leave(ticket).unwrap();
    }
}

#[test]
fn a_job_in_shared_memory_asks_for_its_object() {
    for object_is_free in [false, true] {
        let (host, device) = HostLocks::embedded(SMALL).unwrap();
        let versions = Arc::<Versions>::default();
        let snapshot = versions.now();
        let began = Began { snapshot, versions, is_in_ring: false, own: None, object_is_free };
        let job = HostedJob::begin(&host, Served::ByDevice(&device), Arc::new(began));
        let job = job.unwrap().unwrap();
        let (sink, mut sent) = SlotSender::channel(SlotForm::Batches);
        let (says, _pump) = connect(&job);
        let sink = sink.sharing(Some(&device));
        let locks = RowLocks::begin(job.run_locks(true).unwrap(), sink).unwrap();
        let ask = |vids: &[u64]| locks.lock(OBJECT, vids, false).now_or_never().unwrap().unwrap();
        let outcomes = |mut rows: LockedRows| rows.settled().now_or_never().unwrap().unwrap();
        let rows = in_entries_of_their_own(&host, 10);
        let (half, last) = (&rows[..8], rows[9]);
        assert_eq!(outcomes(ask(half)), [RowLock::Held; 8]);
        assert!(sent.try_recv().is_err(), "half of the table is not most of it");
        assert_eq!(outcomes(ask(&rows[8..9])), [RowLock::Held]);
        let Ok(RunEvent::Locks(call)) = sent.try_recv() else { panic!("it asks") };
        assert_eq!(call, LockCall::Escalate { object: OBJECT });
        job.take(LockCall::decode(&call.encode()).unwrap());
        says.lock().unwrap().drain(..).for_each(|say| {
            assert!(object_is_free);
            locks.hear(LockSay::decode(&say.encode()).unwrap());
        });
        let ticket = host.join(Row { object: OBJECT, vid: last }, |_| false).unwrap().ticket;
        let expected = if object_is_free { RowLock::Held } else { RowLock::NotFree };
        assert_eq!(outcomes(ask(&[last])), [expected]);
        assert_eq!(outcomes(ask(&rows[..9])), [RowLock::Held; 9]);
        // Not again for every row: after a step of entries.
        assert!(sent.try_recv().is_err());
        host.leave(ticket).unwrap();
        job.end();
        assert_eq!(host.contended().unwrap(), []);
    }
}

#[test]
fn a_run_that_may_lock_on_takes_the_locks_of_all_jobs_with_it() {
    let (host, device) = HostLocks::embedded(SMALL).unwrap();
    let begin = |served| {
        let versions = Arc::<Versions>::default();
        let snapshot = versions.now();
        let began =
            Began { snapshot, versions, is_in_ring: false, own: None, object_is_free: false };
        HostedJob::begin(&host, served, Arc::new(began)).unwrap().unwrap()
    };
    let other = begin(Served::ByDevice(&device));
    other.run_locks(true).unwrap();
    // Runs that never began, were refused, have stopped, or whose locks the host takes.
    let unused = begin(Served::ByDevice(&device));
    unused.run_locks(true).unwrap();
    let refused = begin(Served::ByDevice(&device));
    refused.run_locks(true).unwrap();
    refused.starts().was_refused();
    let stopped = begin(Served::ByDevice(&device));
    stopped.run_locks(true).unwrap();
    stopped.starts();
    let (sink, _events) = SlotSender::channel(SlotForm::Batches);
    sink.locking(Some(Arc::clone(&stopped))).send(RunEvent::Finished(Box::default()));
    let by_batches = begin(Served::ByDevice(&device));
    assert_eq!(by_batches.run_locks(false), Ok(RunLocks::Batches));
    assert_eq!(by_batches.run_locks(true), Ok(RunLocks::Batches), "the first answer stays");
    by_batches.starts();
    for job in [unused, refused, stopped, by_batches] {
        assert!(job.has_its_locks());
        job.end();
        assert!(!job.has_its_locks() && other.has_its_locks());
    }
    // One whose device is lost.
    let lost = begin(Served::ByDevice(&device));
    lost.run_locks(true).unwrap();
    lost.starts();
    // A second attempt that is refused says nothing of the first.
    lost.starts().was_refused();
    lost.end();
    assert!(!other.has_its_locks());
    // Its locks are gone: nothing to take away for a second time.
    other.starts();
    other.end();
    assert!(begin(Served::ByHost(&device)).has_its_locks());
    assert_eq!(host.fence(), 2, "fenced once");
}

/// A transaction of the host.
struct Party {
    vids: BTreeSet<u64>,
    tickets: Vec<Ticket>,
    is_inside: bool,
}

/// Runs and transactions over a few rows. Each requests all of its own at once, so that there is no deadlock cycle.
async fn history(seed: u64) {
    let bench = Bench::new();
    let mut random = SplitMix64::new(seed);
    let mut runs: Vec<Run> = Vec::new();
    let mut ghosts: Vec<Run> = Vec::new();
    let mut parties: Vec<Party> = Vec::new();
    // The holders of each row: 1 for a transaction, 100 for a run.
    let mut inside = [0_u32; ROW_COUNT];
    for _ in 0..400 {
        let (what, which) = (pick(&mut random, 11), pick(&mut random, 64));
        let vids: BTreeSet<u64> = (0..4).map(|_| random.below(ROWS)).collect();
        match what {
            0 if runs.len() < 5 => {
                let mut run = bench.run();
                run.ask(&vids.into_iter().collect::<Vec<_>>(), true);
                runs.push(run);
            }
            1 if parties.len() < 5 => {
                let tickets = vids.iter().map(|vid| bench.join(*vid)).collect();
                parties.push(Party { vids, tickets, is_inside: false });
            }
            2 | 3 if !runs.is_empty() => {
                let at = which % runs.len();
                runs[at].deliver_up(&mut random);
            }
            4 | 5 if !runs.is_empty() => {
                let at = which % runs.len();
                runs[at].pump();
                runs[at].deliver_down(&mut random);
            }
            6 if !runs.is_empty() && which % 4 == 0 => {
                let at = which / 4 % runs.len();
                runs[at].lose_connection();
            }
            7 if !ghosts.is_empty() => {
                let at = which % ghosts.len();
                ghosts[at].deliver_up(&mut random);
                ghosts[at].deliver_down(&mut random);
            }
            8 if !runs.is_empty() => {
                let at = which % runs.len();
                if let Some(run) = go_on(&mut runs, at, which, &mut inside, &bench.versions) {
                    ghosts.push(run);
                }
            }
            9 | 10 if !parties.is_empty() => {
                let at = which % parties.len();
                if parties[at].is_inside {
                    bench.leave(parties.swap_remove(at), &mut inside);
                } else if bench.has_all(&parties[at]) {
                    parties[at].enter(&mut inside);
                }
            }
            _ => {}
        }
    }
    // Without further losses all come to their end.
    for _ in 0..100 {
        for party in parties.extract_if(.., |party| bench.has_all(party)) {
            party.tickets.into_iter().for_each(|ticket| bench.host.leave(ticket).unwrap());
        }
        runs.iter_mut().chain(&mut ghosts).for_each(|run| run.settle(&mut random));
        for run in runs.extract_if(.., |run| run.rows.is_none() || run.outcomes().is_ready()) {
            run.job.end();
        }
        if runs.is_empty() && parties.is_empty() {
            break;
        }
        // For jobs that found no room in an entry.
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert!(runs.is_empty() && parties.is_empty(), "seed {seed}: somebody waits for ever");
    drop(ghosts);
    assert_eq!(bench.host.contended().unwrap(), []);
    assert!((0..ROWS).all(|vid| bench.is_free(vid)), "seed {seed}: somebody holds what is over");
    assert_eq!(bench.host.figures().spoilt, 0);
}

fn pick(random: &mut SplitMix64, count: u64) -> usize {
    usize::try_from(random.below(count)).unwrap()
}

/// Rows beyond the last count as one of the first.
fn place(vid: u64) -> usize {
    usize::try_from(vid % ROWS).unwrap()
}

impl Party {
    fn enter(&mut self, inside: &mut [u32]) {
        self.is_inside = true;
        for vid in &self.vids {
            inside[place(*vid)] += 1;
            assert!(inside[place(*vid)] < 100, "a run is there");
        }
    }
}

impl Bench {
    fn has_all(&self, party: &Party) -> bool {
        party.tickets.iter().all(|ticket| self.host.is_granted(ticket).unwrap())
    }

    /// Ends a transaction, which has changed its rows.
    fn leave(&self, party: Party, inside: &mut [u32]) {
        for vid in &party.vids {
            inside[place(*vid)] -= 1;
            self.versions.of(*vid).fetch_add(1, Ordering::Relaxed);
        }
        party.tickets.into_iter().for_each(|ticket| self.host.leave(ticket).unwrap());
    }
}

/// One of the runs gives up waiting, or gets its rows, or ends: then it is returned.
fn go_on(
    runs: &mut Vec<Run>,
    at: usize,
    which: usize,
    inside: &mut [u32],
    versions: &Versions,
) -> Option<Run> {
    let run = &mut runs[at];
    if run.rows.is_none() || (which % 16 == 3 && !run.has_all) {
        run.rows = None;
        if which.is_multiple_of(2) {
            return None;
        }
        let run = runs.swap_remove(at);
        run.job.end();
        return Some(run);
    }
    if run.has_all {
        let run = runs.swap_remove(at);
        for vid in &run.vids {
            inside[place(*vid)] = 0;
            versions.of(*vid).fetch_add(1, Ordering::Relaxed);
        }
        if which.is_multiple_of(2) {
            run.asked.release()
        } else {
            run.job.end()
        }
        return Some(run);
    }
    if let Poll::Ready(outcomes) = run.outcomes() {
        enter_run(run, &outcomes.unwrap(), inside, versions);
    }
    None
}

fn enter_run(run: &mut Run, outcomes: &[RowLock], inside: &mut [u32], versions: &Versions) {
    run.has_all = true;
    for (vid, outcome) in run.vids.iter().zip(outcomes) {
        let at = place(*vid);
        let now = versions.of(*vid).load(Ordering::Relaxed);
        let is_as_it_was = now == run.snapshot[at];
        let expected = if is_as_it_was { RowLock::Held } else { RowLock::Changed(version(now)) };
        assert_eq!(*outcome, expected);
        assert_eq!(inside[at], 0, "somebody is there");
        inside[at] = 100;
    }
}

#[tokio::test]
async fn random_histories_exclude_and_wake_and_end_free() {
    for seed in 0..400 {
        history(seed).await;
    }
}
