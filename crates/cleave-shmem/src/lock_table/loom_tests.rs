//! Explores all interleavings of two sides, up to a bound of forced switches: run with `--cfg loom`.
//!
//! An entry is a cell of the model, of 8 bytes and 4 slots ([`SlotFormat::FOUR`], as real tables have where a processor
//! changes no 16 bytes at once), changed by the same code as a larger one. Bells are flags under a
//! lock, as for the ring. Tables of one process and of two differ in which side checks whose waiters.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use loom::cell::UnsafeCell;
use loom::sync::{Condvar, Mutex};
use loom::thread;

use super::waiters::{Ring, Waiters};
use super::*;

/// The bell of a thread, or of one side.
#[derive(Debug, Default)]
struct Bell {
    rung: Mutex<bool>,
    changed: Condvar,
}

impl Bell {
    fn wait(&self) {
        let mut rung = self.rung.lock().unwrap();
        while !*rung {
            rung = self.changed.wait(rung).unwrap();
        }
        *rung = false;
    }
}

impl Ring for Arc<Bell> {
    fn ring(&self) {
        *self.rung.lock().unwrap() = true;
        self.changed.notify_one();
    }
}

struct Rings(Arc<Bell>);

impl Wake for Rings {
    fn wake(self: Arc<Self>) {
        self.0.ring();
    }
}

/// Waits on this thread, which waits for `bell`; `look` is the side's check, if the bell is the side's.
fn block_on<F: Future>(future: F, bell: &Arc<Bell>, look: impl Fn()) -> F::Output {
    let waker = Waker::from(Arc::new(Rings(Arc::clone(bell))));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
        bell.wait();
        look();
    }
}

fn model(check: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(check);
}

const ROW: Row = Row { object: 1, vid: 0 };

fn one_process() -> (Arc<HostLocks>, Arc<DeviceLocks>) {
    let memory = Arc::new(LockMemory::new(1));
    let table = |of| LockTable::new(Arc::clone(&memory), SlotFormat::FOUR, of);
    let (hosts, devices) = (Arc::<Waiters>::default(), Arc::<Waiters>::default());
    let (host, device) = (Peer::here(&hosts), Peer::here(&devices));
    (
        Arc::new(HostLocks::new(table(Of::Host), hosts, device)),
        Arc::new(DeviceLocks::new(table(Of::Device), Peer::here(&devices), devices, host)),
    )
}

struct TwoProcesses {
    host: Arc<HostLocks>,
    device: Arc<DeviceLocks>,
    /// The bells of the host, and of the device.
    bells: (Arc<Bell>, Arc<Bell>),
}

fn two_processes() -> TwoProcesses {
    let memory = Arc::new(LockMemory::new(1));
    let table = |of| LockTable::new(Arc::clone(&memory), SlotFormat::FOUR, of);
    let bells = (Arc::<Bell>::default(), Arc::<Bell>::default());
    let (to_device, to_host) = (Peer::there(&bells.1), Peer::there(&bells.0));
    let jobs = Arc::<Waiters>::default();
    let device = DeviceLocks::new(table(Of::Device), Peer::here(&jobs), jobs, to_host);
    TwoProcesses {
        host: Arc::new(HostLocks::new(table(Of::Host), Arc::default(), to_device)),
        device: Arc::new(device),
        bells,
    }
}

fn begin(host: &HostLocks, device: &Arc<DeviceLocks>) -> JobLocks {
    device.begin(host.assign_job().unwrap()).unwrap()
}

/// The state that a lock protects: the model fails if two are inside.
#[derive(Default)]
struct Inside(UnsafeCell<u32>);

// SAFETY: the model itself reports two threads that use it at a time.
#[expect(unsafe_code, reason = "what is watched is shared without a lock")]
unsafe impl Sync for Inside {}
// SAFETY: as above.
#[expect(unsafe_code, reason = "what is watched is shared without a lock")]
unsafe impl Send for Inside {}

impl Inside {
    #[expect(unsafe_code, reason = "the model watches the access")]
    fn visit(&self) {
        // SAFETY: the model reports other users.
        self.0.with_mut(|count| unsafe { *count += 1 });
    }
}

fn lock_for(job: &JobLocks, look: impl Fn(), bell: &Arc<Bell>) {
    match job.lock(ROW).unwrap() {
        JobLock::Held => {}
        JobLock::Waits(waiting) => {
            let lock = block_on(job.wait(waiting), bell, look).unwrap();
            assert!(matches!(lock, JobLock::Held));
        }
        JobLock::Full => panic!("there is room"),
    }
}

/// One transaction of the host; its side's bell where there are two processes.
fn host_visits(host: &HostLocks, inside: &Inside, bell: Option<&Arc<Bell>>) {
    let joined = host.join(ROW, |_| false).unwrap();
    if !joined.is_granted {
        let look = || bell.iter().for_each(|_| host.look());
        let own = Arc::default();
        block_on(host.wait(&joined.ticket), bell.unwrap_or(&own), look).unwrap();
    }
    inside.visit();
    host.leave(joined.ticket).unwrap();
}

/// One job, likewise.
fn job_visits(device: &DeviceLocks, mut job: JobLocks, inside: &Inside, bell: Option<&Arc<Bell>>) {
    let look = || bell.iter().for_each(|_| device.look());
    lock_for(&job, look, bell.unwrap_or(&Arc::default()));
    inside.visit();
    assert_eq!(job.release().unwrap(), 1);
}

#[test]
fn host_and_job_exclude_each_other_over_two_processes() {
    model(|| {
        let TwoProcesses { host, device, bells } = two_processes();
        let inside = Arc::new(Inside::default());
        let job = begin(&host, &device);
        let theirs = Arc::clone(&inside);
        let there = thread::spawn(move || job_visits(&device, job, &theirs, Some(&bells.1)));
        host_visits(&host, &inside, Some(&bells.0));
        there.join().unwrap();
        assert_eq!(host.contended().unwrap(), []);
    });
}

#[test]
fn two_jobs_and_the_host_exclude_each_other_in_one_process() {
    model(|| {
        let (host, device) = one_process();
        let inside = Arc::new(Inside::default());
        let jobs = [begin(&host, &device), begin(&host, &device)];
        let threads = jobs.map(|job| {
            let (device, inside) = (Arc::clone(&device), Arc::clone(&inside));
            thread::spawn(move || job_visits(&device, job, &inside, None))
        });
        host_visits(&host, &inside, None);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(host.contended().unwrap(), []);
    });
}

#[test]
fn two_transactions_share_a_slot_and_the_last_gives_it_back() {
    model(|| {
        let (host, device) = one_process();
        let inside = Arc::new(Inside::default());
        let job = begin(&host, &device);
        let other = Arc::clone(&host);
        let sharer = thread::spawn(move || {
            let joined = other.join(ROW, |_| false).unwrap();
            if !joined.is_granted {
                block_on(other.wait(&joined.ticket), &Arc::default(), || {}).unwrap();
            }
            assert!(other.is_granted(&joined.ticket).unwrap());
            other.leave(joined.ticket).unwrap();
        });
        let theirs = Arc::clone(&inside);
        let worker = thread::spawn(move || job_visits(&device, job, &theirs, None));
        host_visits(&host, &inside, None);
        sharer.join().unwrap();
        worker.join().unwrap();
        assert_eq!(host.table.memory.load(0), 0);
    });
}

#[test]
fn the_line_is_served_in_order() {
    model(|| {
        let TwoProcesses { host, device, bells } = two_processes();
        let (mut first, second) = (begin(&host, &device), begin(&host, &device));
        assert!(matches!(first.lock(ROW).unwrap(), JobLock::Held));
        // Queued before any other step: the host, then the second job.
        let joined = host.join(ROW, |_| false).unwrap();
        let JobLock::Waits(waiting) = second.lock(ROW).unwrap() else {
            panic!("held by the first")
        };
        let turn = Arc::new(Inside::default());
        let theirs = Arc::clone(&turn);
        let before = Arc::new(loom::sync::atomic::AtomicU64::new(0));
        let seen = Arc::clone(&before);
        let there = thread::spawn(move || {
            first.release().unwrap();
            let lock = block_on(second.wait(waiting), &bells.1, || device.look()).unwrap();
            assert!(matches!(lock, JobLock::Held));
            theirs.visit();
            assert_eq!(seen.load(Ordering::Relaxed), 1, "the host came before");
        });
        block_on(host.wait(&joined.ticket), &bells.0, || host.look()).unwrap();
        turn.visit();
        before.store(1, Ordering::Relaxed);
        host.leave(joined.ticket).unwrap();
        there.join().unwrap();
    });
}

#[test]
fn threads_of_one_job_get_one_slot() {
    model(|| {
        let (host, device) = one_process();
        let ticket = host.join(ROW, |_| false).unwrap().ticket;
        let job = Arc::new(begin(&host, &device));
        let threads = [(); 2].map(|()| {
            let job = Arc::clone(&job);
            thread::spawn(move || lock_for(&job, || {}, &Arc::default()))
        });
        host.leave(ticket).unwrap();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(host.table.memory.load(0), u128::from(job.job().id.get()));
    });
}

#[test]
fn a_fence_leaves_no_job_behind() {
    model(|| {
        let TwoProcesses { host, device, bells } = two_processes();
        let job = begin(&host, &device);
        // In the model's one entry, so that the job may have to wait.
        let ticket = host.join(ROW, |_| false).unwrap().ticket;
        let there = thread::spawn(move || match job.lock(ROW) {
            Ok(JobLock::Waits(waiting)) => {
                let lock = block_on(job.wait(waiting), &bells.1, || device.look());
                assert!(matches!(lock, Err(LockError::Fenced { .. })));
            }
            Ok(lock) => panic!("the host has it: {lock:?}"),
            Err(error) => assert!(matches!(error, LockError::Fenced { .. })),
        });
        host.fence();
        there.join().unwrap();
        assert!(host.is_granted(&ticket).unwrap());
        host.leave(ticket).unwrap();
        assert_eq!(host.table.memory.load(0), 0, "nobody is left");
    });
}

#[test]
fn a_job_that_dies_holding_an_entry_is_survived() {
    model(|| {
        let TwoProcesses { host, device, bells } = two_processes();
        let job = begin(&host, &device);
        let (socket, end) = (Arc::<Bell>::default(), Arc::<Bell>::default());
        let ends = Arc::clone(&socket);
        let there = thread::spawn(move || {
            // Dies at whatever step it is then: it releases nothing.
            drop(job.lock(ROW));
            ends.ring();
        });
        let fencer = {
            let host = Arc::clone(&host);
            thread::spawn(move || {
                socket.wait();
                host.fence();
                end.ring();
            })
        };
        let joined = host.join(ROW, |_| false).unwrap();
        block_on(host.wait(&joined.ticket), &bells.0, || host.look()).unwrap();
        host.leave(joined.ticket).unwrap();
        there.join().unwrap();
        fencer.join().unwrap();
        assert_eq!(host.table.memory.load(0), 0);
    });
}
