//! Both sides of tables on the heap, as Miri can run them: waiting, handing over, and distrust of foreign entries.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::{BTreeSet, VecDeque};
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize};
use std::task::{Context, Poll, Wake, Waker};

use proptest::prelude::*;

use super::*;

pub(super) const SMALL: TableShape = TableShape { entry_count: 16, format: SlotFormat::EIGHT };
/// Both sizes of an entry, and all its divisions.
pub(super) const FORMATS: [SlotFormat; 3] =
    [SlotFormat::EIGHT, SlotFormat::SIXTEEN, SlotFormat::FOUR];

/// Counts how often it was woken.
#[derive(Default)]
struct Counting(AtomicUsize);

impl Wake for Counting {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// Wakes a thread.
struct Parked(std::thread::Thread);

impl Wake for Parked {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Waits on this thread.
pub(super) fn block_on<F: Future>(future: F) -> F::Output {
    let waker = Waker::from(Arc::new(Parked(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
        std::thread::park();
    }
}

fn small() -> (Arc<HostLocks>, Arc<DeviceLocks>) {
    HostLocks::embedded(SMALL).unwrap()
}

pub(super) fn row(vid: u64) -> Row {
    Row { object: 7, vid }
}

pub(super) fn begin(host: &HostLocks, device: &Arc<DeviceLocks>) -> JobLocks {
    device.begin(host.assign_job().unwrap()).unwrap()
}

fn join(host: &HostLocks, row: Row) -> Joined {
    host.join(row, |_| false).unwrap()
}

pub(super) fn waits(lock: Result<JobLock, LockError>) -> Waiting {
    match lock.unwrap() {
        JobLock::Waits(waiting) => waiting,
        other => panic!("does not wait: {other:?}"),
    }
}

/// Entries that either side found spoilt.
fn spoilt(host: &HostLocks) -> u64 {
    host.figures().spoilt + host.figures_of_jobs().spoilt
}

fn is_held(lock: Result<JobLock, LockError>) -> bool {
    matches!(lock.unwrap(), JobLock::Held)
}

/// Polls once.
fn poll<F: Future + Unpin>(future: &mut F, waker: &Waker) -> Poll<F::Output> {
    std::pin::Pin::new(future).poll(&mut Context::from_waker(waker))
}

/// Two rows of one entry with different marks.
fn rows_of_one_entry(table: &LockTable) -> (Row, Row) {
    let first = table.place_of(row(0));
    let second = (1..10_000).map(row).find(|row| {
        let place = table.place_of(*row);
        place.entry == first.entry && place.mark != first.mark
    });
    (row(0), second.unwrap())
}

#[test]
fn the_example_of_the_paper() {
    // Figure 10: a job, two host transactions, a second job, two more of the host.
    let (host, device) = small();
    let (mut first, mut second) = (begin(&host, &device), begin(&host, &device));
    assert!(is_held(first.lock(row(1))));
    let (h1, h2) = (join(&host, row(1)), join(&host, row(1)));
    let waiting = waits(second.lock(row(1)));
    let (h3, h4) = (join(&host, row(1)), join(&host, row(1)));
    assert!([&h1, &h2, &h3, &h4].iter().all(|joined| !joined.is_granted));
    assert_eq!(h1.ticket, h2.ticket, "one slot for both");
    assert_ne!(h2.ticket, h3.ticket, "a job came between");
    let job = |locks: &JobLocks| Holder::Job(locks.job().id);
    let line = vec![job(&first), Holder::Host, job(&second), Holder::Host];
    assert_eq!(host.contended().unwrap(), [(device_place(&host, 1), line)]);
    assert_eq!(host.jobs_before(&h3.ticket).unwrap(), [first.job().id, second.job().id]);

    let counting = Arc::new(Counting::default());
    let waker = Waker::from(Arc::clone(&counting));
    let woken = || counting.0.swap(0, Ordering::SeqCst);
    let mut wait = host.wait(&h1.ticket);
    assert!(poll(&mut wait, &waker).is_pending());
    assert_eq!(first.release().unwrap(), 1);
    assert_eq!(woken(), 1);
    assert_eq!(poll(&mut wait, &waker), Poll::Ready(Ok(())));
    drop(wait);
    assert!(host.is_granted(&h2.ticket).unwrap() && !host.is_granted(&h3.ticket).unwrap());

    let mut wait = second.wait(waiting);
    assert!(poll(&mut wait, &waker).is_pending());
    host.leave(h1.ticket).unwrap();
    assert_eq!(woken(), 0, "the slot is the other's, too");
    host.leave(h2.ticket).unwrap();
    assert_eq!(woken(), 1);
    assert!(matches!(poll(&mut wait, &waker), Poll::Ready(Ok(JobLock::Held))));
    drop(wait);
    assert_eq!(second.release().unwrap(), 1);
    assert!(host.is_granted(&h3.ticket).unwrap());
    host.leave(h4.ticket).unwrap();
    host.leave(h3.ticket).unwrap();
    assert!(is_held(begin(&host, &device).lock(row(1))), "the entry is free");
}

fn device_place(host: &HostLocks, vid: u64) -> u32 {
    host.table.place_of(row(vid)).entry
}

#[test]
fn a_job_has_an_entry_once_whatever_rows_of_it() {
    let (host, device) = small();
    let (one, other) = rows_of_one_entry(&host.table);
    let mut job = begin(&host, &device);
    assert!(is_held(job.lock(one)) && is_held(job.lock(other)) && is_held(job.lock(one)));
    assert!(job.try_lock(other).unwrap());
    assert_eq!(job.entry_count(), (1, 16));
    assert_eq!(job.release().unwrap(), 1);
    assert_eq!(job.entry_count().0, 0);
    assert_eq!(host.figures(), LockFigures::default());
    job.count_requests(4);
    assert_eq!(host.figures_of_jobs(), LockFigures { requests: 4, ..LockFigures::default() });
}

#[test]
fn conflicts_of_other_rows_are_counted() {
    let (host, device) = small();
    let (one, other) = rows_of_one_entry(&host.table);
    let mut job = begin(&host, &device);
    assert!(is_held(job.lock(one)));
    let for_it = join(&host, one);
    let figures = |requests, waits, refusals, false_conflicts| {
        let counted =
            LockFigures { requests, waits, refusals, false_conflicts, ..LockFigures::default() };
        assert_eq!(host.figures(), counted);
    };
    figures(1, 1, 0, 0);
    host.leave(for_it.ticket).unwrap();
    assert_eq!(host.try_join(other, |_| false).unwrap(), None);
    figures(2, 1, 1, 1);
    // A transaction's locks never block other transactions of the host at this level.
    job.release().unwrap();
    let (h1, h2) = (join(&host, one), join(&host, other));
    assert!(h1.is_granted && h2.is_granted);
    figures(4, 1, 1, 1);
    host.leave(h1.ticket).unwrap();
    assert!(!job.try_lock(one).unwrap());
    assert_eq!(host.figures_of_jobs().conflicts(), 1);
    host.leave(h2.ticket).unwrap();
    assert!(job.try_lock(one).unwrap());
}

#[test]
fn a_full_entry_refuses_jobs_and_never_the_host() {
    for (format, most) in FORMATS.into_iter().zip([7, 15, 3]) {
        let (host, device) = HostLocks::embedded(TableShape { format, ..SMALL }).unwrap();
        let mut jobs: Vec<_> = (0..most).map(|_| begin(&host, &device)).collect();
        let mut line = Vec::new();
        for job in &jobs {
            match job.lock(row(3)).unwrap() {
                JobLock::Held => assert!(line.is_empty()),
                JobLock::Waits(waiting) => line.push(waiting),
                JobLock::Full => panic!("there is room"),
            }
        }
        let late = begin(&host, &device);
        assert!(matches!(late.lock(row(3)).unwrap(), JobLock::Full));
        assert_eq!(host.figures_of_jobs().overflows, 1);
        assert_eq!(late.entry_count().0, 0);
        // It queues in the host's table, as its transaction, and so in the host's slot.
        let in_its_name = join(&host, row(3));
        for job in &mut jobs {
            assert!(!host.is_granted(&in_its_name.ticket).unwrap());
            job.release().unwrap();
        }
        assert!(host.is_granted(&in_its_name.ticket).unwrap());
        host.leave(in_its_name.ticket).unwrap();
    }
}

#[test]
fn a_transaction_does_not_wait_behind_a_job_that_waits_for_it() {
    let (host, device) = small();
    let (one, other) = rows_of_one_entry(&host.table);
    let mine = join(&host, one);
    let job = begin(&host, &device);
    let waiting = waits(job.lock(one));
    let again = host.join(other, |ticket| *ticket == mine.ticket).unwrap();
    assert!(again.is_granted, "it has the entry");
    assert_eq!(host.try_join(other, |_| false).unwrap(), None, "others are behind the job");
    let theirs = join(&host, other);
    assert!(!theirs.is_granted);
    for ticket in [mine.ticket, again.ticket] {
        host.leave(ticket).unwrap();
    }
    assert!(is_held(block_on(job.wait(waiting))));
    assert!(!host.is_granted(&theirs.ticket).unwrap());
    host.release_job(job.job()).unwrap();
    assert!(host.is_granted(&theirs.ticket).unwrap());
    host.leave(theirs.ticket).unwrap();
}

#[test]
fn who_gives_up_leaves_the_line() {
    let (host, device) = small();
    let mut holder = begin(&host, &device);
    assert!(is_held(holder.lock(row(1))));
    let h1 = join(&host, row(1));
    let job = begin(&host, &device);
    let waiting = waits(job.lock(row(1)));
    let h2 = join(&host, row(1));
    assert!(!job.wait(waiting).give_up().unwrap());
    assert_eq!(job.entry_count().0, 0);
    // Two slots of the host side by side are two shares all the same.
    host.leave(h2.ticket).unwrap();
    let h3 = join(&host, row(1));
    assert_eq!(h1.ticket, h3.ticket);
    let waiting = waits(job.lock(row(1)));
    host.leave(h1.ticket).unwrap();
    host.leave(h3.ticket).unwrap();
    holder.release().unwrap();
    // Handed over before it gave up: it has the lock.
    assert!(job.wait(waiting).give_up().unwrap());
    assert!(is_held(job.lock(row(1))));
    host.release_job(job.job()).unwrap();
    assert!(holder.try_lock(row(1)).unwrap());
}

#[test]
fn threads_of_one_job_wait_for_one_place() {
    let (host, device) = small();
    let ticket = join(&host, row(1)).ticket;
    let job = begin(&host, &device);
    let (first, second) = (waits(job.lock(row(1))), waits(job.lock(row(1))));
    assert_eq!(job.entry_count().0, 1);
    // One gives up, for both: the other requests it again.
    assert!(!job.wait(first).give_up().unwrap());
    let counting = Waker::from(Arc::new(Counting::default()));
    let mut wait = job.wait(second);
    assert!(poll(&mut wait, &counting).is_pending());
    assert_eq!(job.entry_count().0, 1);
    let third = waits(job.lock(row(1)));
    host.leave(ticket).unwrap();
    assert!(is_held(block_on(wait)) && is_held(block_on(job.wait(third))));
}

#[test]
fn fencing_takes_all_from_the_jobs_and_nothing_from_the_host() {
    let (host, device) = small();
    let mut job = begin(&host, &device);
    let other = begin(&host, &device);
    assert!(is_held(job.lock(row(1))) && is_held(job.lock(row(2))));
    let behind = join(&host, row(1));
    let held = join(&host, row(3));
    let waiting = waits(job.lock(row(3)));
    let counting = Arc::new(Counting::default());
    let waker = Waker::from(Arc::clone(&counting));
    let mut wait = job.wait(waiting);
    assert!(poll(&mut wait, &waker).is_pending());
    assert_eq!(host.fence(), 1);
    assert!(counting.0.load(Ordering::SeqCst) > 0);
    let fenced = LockError::Fenced { ours: 0, now: 1 };
    assert!(matches!(poll(&mut wait, &waker), Poll::Ready(Err(error)) if error == fenced));
    drop(wait);
    assert!(host.is_granted(&behind.ticket).unwrap() && host.is_granted(&held.ticket).unwrap());
    assert_eq!(other.lock(row(9)).unwrap_err(), fenced);
    assert_eq!(job.release().unwrap_err(), fenced);
    assert_eq!(device.begin(other.job()).unwrap_err(), fenced);
    // A transaction that ends late removes nothing from the present job of that number.
    let next = begin(&host, &device);
    assert!(is_held(next.lock(row(2))));
    host.release_job(Job { id: next.job().id, epoch: 0, goes_on: false }).unwrap();
    assert!(!begin(&host, &device).try_lock(row(2)).unwrap());
    host.leave(behind.ticket).unwrap();
    host.leave(held.ticket).unwrap();
    assert!(is_held(next.lock(row(3))));
}

#[test]
fn numbers_of_jobs_come_again_when_all_were_given() {
    let shape = TableShape { format: SlotFormat::SIXTEEN, ..SMALL };
    let (host, device) = HostLocks::embedded(shape).unwrap();
    let jobs: Vec<_> = (0..254).map(|_| host.assign_job().unwrap()).collect();
    assert_eq!(host.assign_job(), None);
    host.release_job(jobs[5]).unwrap();
    assert_eq!(host.assign_job(), Some(jobs[5]));
    let foreign = Job { id: JobId::new(255).unwrap(), epoch: 0, goes_on: false };
    assert_eq!(device.begin(foreign).unwrap_err(), LockError::Job(foreign.id));
}

#[test]
fn a_new_connection_finds_only_what_the_host_knows_of() {
    let (host, device) = small();
    let spoil = |vid: u64, bits| host.table.memory.overwrite(device_place(&host, vid), bits);
    let mut job = begin(&host, &device);
    let holder = join(&host, row(1)).ticket;
    assert!(is_held(job.lock(row(2))));
    assert_eq!(host.repair(), None, "all is as they have left it");
    assert!(host.is_current(job.job()) && host.is_granted(&holder).unwrap());
    // A gap, a job that nobody began, a host without a request, and a stolen request of the host.
    for (vid, bits) in [(3, 1 << 16), (3, 77), (3, 0xffff), (1, 0)] {
        spoil(vid, bits);
        assert_eq!(host.repair(), Some(device_place(&host, vid)), "{bits:x}");
        assert!(host.is_granted(&holder).unwrap());
        let other = join(&host, row(3));
        assert!(other.is_granted);
        host.leave(other.ticket).unwrap();
    }
    assert!(!host.is_current(job.job()), "its locks were taken away");
    assert!(matches!(job.release(), Err(LockError::Fenced { .. })));
    assert_eq!(host.repair(), None);
    host.leave(holder).unwrap();
}

#[test]
fn spoilt_entries_are_errors_and_grant_nothing() {
    let (host, device) = small();
    let entry = device_place(&host, 1);
    let job = begin(&host, &device);
    let mut other = begin(&host, &device);
    let spoil = |bits| host.table.memory.overwrite(entry, bits);
    let is_spoilt = |error: LockError| matches!(error, LockError::Spoilt { .. });
    // A gap, and a job without a request.
    for bits in [1 << 16, 7 << 112, u128::from(job.job().id.get())] {
        spoil(bits);
        assert!(is_spoilt(job.lock(row(1)).unwrap_err()), "{bits:x}");
    }
    // A host without a request.
    spoil(0xffff);
    assert!(is_spoilt(host.join(row(1), |_| true).unwrap_err()));
    assert!(is_spoilt(host.try_join(row(1), |_| true).unwrap_err()));
    assert!(matches!(job.lock(row(1)).unwrap(), JobLock::Waits(_)), "a device cannot know");
    host.fence();
    let (mut job, next) = (begin(&host, &device), begin(&host, &device));
    // A stolen lock is noticed when it is released.
    assert!(is_held(job.lock(row(1))) && is_held(job.lock(row(2))));
    spoil(u128::from(next.job().id.get()));
    assert!(is_spoilt(job.release().unwrap_err()));
    assert!(next.try_lock(row(2)).unwrap(), "the rest was given back");
    assert!(is_spoilt(next.lock(row(1)).unwrap_err()));
    spoil(0);
    // A stolen place in the queue.
    let holder = join(&host, row(1)).ticket;
    let waiting = waits(next.lock(row(1)));
    spoil(0xffff);
    assert!(is_spoilt(block_on(next.wait(waiting)).unwrap_err()));
    // And the host's own.
    spoil(0);
    assert!(is_spoilt(host.is_granted(&holder).unwrap_err()));
    assert!(is_spoilt(host.join(row(1), |_| true).unwrap_err()));
    host.fence();
    assert!(host.is_granted(&holder).unwrap(), "fencing mends it");
    spoil(0);
    assert!(is_spoilt(host.leave(holder).unwrap_err()));
    assert!(join(&host, row(1)).is_granted);
    assert!(host.figures().spoilt > 3 && host.figures_of_jobs().spoilt > 4);
    assert!(matches!(other.release(), Err(LockError::Fenced { .. })));
}

#[test]
fn consecutive_rows_have_entries_of_their_own() {
    let shape = TableShape { entry_count: 1 << 10, ..TableShape::default() };
    let (host, _) = HostLocks::embedded(shape).unwrap();
    let place = |object, vid| host.table.place_of(Row { object, vid }).entry;
    let of_object = |object| (700..700 + 1024).map(move |vid| (object, vid));
    for object in [0, 7, 1 << 32, 1 << 32 | 1] {
        let entries: BTreeSet<u32> =
            of_object(object).map(|(object, vid)| place(object, vid)).collect();
        assert_eq!(entries.len(), 1024, "object {object}");
        assert_eq!(place(object, 3), place(object, 3 + 1024));
    }
    // Objects begin at different places.
    let firsts: BTreeSet<u32> = (0..64).map(|table| place(table << 32, 0)).collect();
    assert!(firsts.len() > 48, "{}", firsts.len());
}

#[test]
fn tables_of_other_sizes_are_refused() {
    for entry_count in [0, 1, 15, 17, 1 << 23, u32::MAX] {
        let refusal = HostLocks::embedded(TableShape { entry_count, ..SMALL }).unwrap_err();
        assert!(matches!(refusal, LockTableError::EntryCount(count) if count == entry_count));
    }
}

/// A tail of one row: requests join and queue in one step, and are granted in that order.
#[derive(Default)]
pub(super) struct Tail {
    line: std::sync::Mutex<u64>,
    serving: AtomicU64,
}

impl Tail {
    /// Locks `row`, the row of this tail, for one transaction.
    pub(super) fn lock(&self, host: &HostLocks, row: Row) -> Ticket {
        let mut line = self.line.lock().unwrap();
        let joined = join(host, row);
        let number = *line;
        *line += 1;
        drop(line);
        while self.serving.load(Ordering::SeqCst) != number {
            std::thread::yield_now();
        }
        block_on(host.wait(&joined.ticket)).unwrap();
        joined.ticket
    }

    pub(super) fn unlock(&self, host: &HostLocks, ticket: Ticket) {
        self.serving.fetch_add(1, Ordering::SeqCst);
        host.leave(ticket).unwrap();
    }
}

/// Locks `row`, waiting if necessary, and for room in the line if that is full.
pub(super) fn lock_for(job: &JobLocks, row: Row) {
    loop {
        match job.lock(row).unwrap() {
            JobLock::Held => return,
            JobLock::Waits(waiting) => return assert!(is_held(block_on(job.wait(waiting)))),
            JobLock::Full => std::thread::yield_now(),
        }
    }
}

/// Threads of both sides over two rows: each is alone inside, and all finish.
#[test]
fn threads_exclude_each_other() {
    for format in FORMATS {
        threads_over(TableShape { format, ..SMALL });
    }
}

fn threads_over(shape: TableShape) {
    let rounds = if cfg!(miri) { 10 } else { 2000 };
    let (host, device) = HostLocks::embedded(shape).unwrap();
    let rows = [row(1), row(6)];
    assert_ne!(host.table.place_of(rows[0]).entry, host.table.place_of(rows[1]).entry);
    // Present holders: 1 for a host transaction, 1 << 16 for a job.
    let inside = [AtomicU32::new(0), AtomicU32::new(0)];
    let tails = [Tail::default(), Tail::default()];
    std::thread::scope(|scope| {
        for thread in 0..3_usize {
            let (host, inside, tails) = (&host, &inside, &tails);
            scope.spawn(move || {
                for round in 0..rounds {
                    let which = (round + thread) % 2;
                    let ticket = tails[which].lock(host, rows[which]);
                    assert_eq!(inside[which].fetch_add(1, Ordering::SeqCst), 0);
                    assert_eq!(inside[which].fetch_sub(1, Ordering::SeqCst), 1);
                    tails[which].unlock(host, ticket);
                }
            });
        }
        for thread in 0..3_usize {
            let (host, device, inside) = (&host, &device, &inside);
            scope.spawn(move || {
                for round in 0..rounds {
                    let mut job = begin(host, device);
                    // In one order, as there is no deadlock detection here.
                    for which in 0..2 {
                        lock_for(&job, rows[which]);
                        assert_eq!(inside[which].fetch_add(1 << 16, Ordering::SeqCst), 0);
                    }
                    for count in inside {
                        assert_eq!(count.fetch_sub(1 << 16, Ordering::SeqCst), 1 << 16);
                    }
                    if (round + thread) % 2 == 0 {
                        assert_eq!(job.release().unwrap(), 2);
                    }
                    host.release_job(job.job()).unwrap();
                }
            });
        }
    });
    assert_eq!(host.contended().unwrap(), []);
    assert_eq!(spoilt(&host), 0);
}

fn config() -> ProptestConfig {
    if cfg!(miri) {
        return ProptestConfig { cases: 4, failure_persistence: None, ..ProptestConfig::default() };
    }
    ProptestConfig::default()
}

/// One slot of the model: a job, or a share of the host with its tickets.
#[derive(Debug)]
enum Slot {
    Job(usize),
    Host(Vec<Ticket>),
}

/// The position of a job in an entry, according to the model.
fn place_of(line: &VecDeque<Slot>, job: usize) -> Option<usize> {
    line.iter().position(|slot| matches!(slot, Slot::Job(other) if *other == job))
}

proptest! {
    #![proptest_config(config())]

    /// Random requests, releases and fences over a few rows, against a list an entry.
    #[test]
    fn a_table_is_a_line_an_entry(
        steps in proptest::collection::vec((0_u8..12, 0_usize..10, 0_u64..6), 1..120),
        which in 0_usize..3,
    ) {
        let (format, most) = (FORMATS[which], [7, 15, 3][which]);
        let (host, device) = HostLocks::embedded(TableShape { format, ..SMALL }).unwrap();
        let mut jobs: Vec<_> = (0..10).map(|_| begin(&host, &device)).collect();
        let mut waiting: Vec<Vec<(u32, Waiting)>> = (0..10).map(|_| Vec::new()).collect();
        let mut lines: Vec<VecDeque<Slot>> = (0..16).map(|_| VecDeque::new()).collect();
        for (step, who, vid) in steps {
            let entry = host.table.place_of(row(vid)).entry;
            let line = &mut lines[entry as usize];
            match step {
                0..4 => {
                    let place = place_of(line, who);
                    match jobs[who].lock(row(vid)).unwrap() {
                        JobLock::Held => prop_assert!(place == Some(0) || line.is_empty()),
                        JobLock::Waits(place_in_line) => {
                            prop_assert!(!line.is_empty());
                            if place.is_none() {
                                prop_assert!(line.len() < most);
                                line.push_back(Slot::Job(who));
                            }
                            waiting[who].push((entry, place_in_line));
                            continue;
                        }
                        JobLock::Full => {
                            prop_assert!(place.is_none() && line.len() >= most);
                            continue;
                        }
                    }
                    if line.is_empty() {
                        line.push_back(Slot::Job(who));
                    }
                }
                4..7 => {
                    let joined = join(&host, row(vid));
                    let alone = line.is_empty() || (line.len() == 1 && matches!(line[0], Slot::Host(_)));
                    prop_assert_eq!(joined.is_granted, alone);
                    match line.back_mut() {
                        Some(Slot::Host(tickets)) => tickets.push(joined.ticket),
                        _ => line.push_back(Slot::Host(vec![joined.ticket])),
                    }
                }
                7..9 => {
                    // Any ticket of the host there; the last one of a share removes its slot.
                    let shares = line.iter_mut().enumerate().filter_map(|(at, slot)| match slot {
                        Slot::Host(tickets) => Some((at, tickets)),
                        Slot::Job(_) => None,
                    });
                    let shares: Vec<_> = shares.collect();
                    if shares.is_empty() {
                        continue;
                    }
                    let index = who % shares.len();
                    let (at, tickets) = shares.into_iter().nth(index).unwrap();
                    let ticket = tickets.pop().unwrap();
                    let is_last = tickets.is_empty();
                    prop_assert_eq!(host.is_granted(&ticket).unwrap(), at == 0);
                    host.leave(ticket).unwrap();
                    if is_last {
                        line.remove(at);
                    }
                }
                9 => {
                    let mut count = 0;
                    for line in &mut lines {
                        if let Some(place) = place_of(line, who) {
                            line.remove(place);
                            count += 1;
                        }
                    }
                    if vid % 2 == 0 {
                        prop_assert_eq!(jobs[who].release().unwrap(), count);
                    }
                    host.release_job(jobs[who].job()).unwrap();
                    jobs[who] = begin(&host, &device);
                    waiting[who].clear();
                }
                10 => {
                    let Some((entry, place)) = waiting[who].pop() else { continue };
                    let line = &mut lines[entry as usize];
                    let mut wait = jobs[who].wait(place);
                    let waker = Waker::noop();
                    match poll(&mut wait, waker) {
                        Poll::Pending => {
                            prop_assert!(place_of(line, who).unwrap() > 0);
                            let is_first = wait.waiting.is_first;
                            prop_assert!(!wait.give_up().unwrap());
                            if is_first {
                                let place = place_of(line, who).unwrap();
                                line.remove(place);
                                waiting[who].retain(|(other, _)| *other != entry);
                            }
                        }
                        Poll::Ready(lock) => {
                            prop_assert!(matches!(lock.unwrap(), JobLock::Held));
                            prop_assert_eq!(place_of(line, who), Some(0));
                        }
                    }
                }
                _ if who == 0 => {
                    host.fence();
                    for line in &mut lines {
                        line.retain(|slot| matches!(slot, Slot::Host(_)));
                    }
                    jobs = (0..10).map(|_| begin(&host, &device)).collect();
                    waiting.iter_mut().for_each(Vec::clear);
                }
                _ => {}
            }
            for (entry, line) in (0..).zip(&lines) {
                let queue = host.table.load(entry).unwrap();
                let expected: Vec<_> = line.iter().map(|slot| match slot {
                    Slot::Job(job) => Holder::Job(jobs[*job].job().id),
                    Slot::Host(_) => Holder::Host,
                }).collect();
                prop_assert_eq!(queue.holders().collect::<Vec<_>>(), expected);
            }
        }
    }

    /// Whatever a peer writes into an entry, requests end in a lock, a place, or an error.
    #[test]
    fn hostile_entries_panic_nowhere(
        steps in proptest::collection::vec((0_u8..6, any::<u128>(), 0_u32..8), 1..40),
        which in 0_usize..3,
    ) {
        let shape = TableShape { format: FORMATS[which], ..SMALL };
        let (host, device) = HostLocks::embedded(shape).unwrap();
        let mut job = begin(&host, &device);
        let mut tickets = Vec::new();
        let entry = device_place(&host, 1);
        for (step, bits, shape) in steps {
            match step {
                0 | 1 => {
                    // Some are almost valid.
                    let bits = match shape {
                        0 => 0xffff,
                        1 => u128::from(job.job().id.get()),
                        2 => 0xffff_0009_ffff,
                        3 => 0xffff << 112 | bits,
                        4 => bits & 0xffff_ffff,
                        _ => bits,
                    };
                    host.table.memory.overwrite(entry, bits);
                }
                2 => drop(job.lock(row(1))),
                3 => tickets.extend(host.join(row(1), |_| true).map(|joined| joined.ticket)),
                4 => {
                    if let Some(ticket) = tickets.pop() {
                        prop_assert!(host.is_granted(&ticket).is_ok() || spoilt(&host) > 0);
                        drop(host.jobs_before(&ticket));
                        if host.leave(ticket).is_err() {
                            prop_assert!(spoilt(&host) > 0);
                        }
                    }
                }
                _ => {
                    if job.release().is_err() {
                        prop_assert!(spoilt(&host) > 0);
                    }
                    host.look();
                    device.look();
                }
            }
        }
        // Fencing repairs everything.
        host.fence();
        let left = usize::from(!tickets.is_empty());
        prop_assert!(host.table.load(entry).unwrap().host_count() >= left);
        for ticket in tickets {
            host.leave(ticket).unwrap();
        }
        prop_assert_eq!(host.table.memory.load(entry), 0);
    }
}

#[test]
fn another_run_of_a_job_has_what_the_first_one_locked() {
    let (host, device) = HostLocks::embedded(SMALL).unwrap();
    let job = host.assign_job().unwrap();
    let first = device.begin(job).unwrap();
    assert!(first.try_lock(row(1)).unwrap());
    let stranger = device.begin(job).unwrap();
    let refused = stranger.try_lock(row(1)).unwrap_err();
    assert!(matches!(refused, LockError::Spoilt { .. }), "nobody has said so");
    let second = device.begin(Job { goes_on: true, ..job }).unwrap();
    assert!(second.try_lock(row(1)).unwrap() && second.try_lock(row(2)).unwrap());
    let other = device.begin(host.assign_job().unwrap()).unwrap();
    assert!(!other.try_lock(row(1)).unwrap() && !other.try_lock(row(2)).unwrap());
    host.release_job(job).unwrap();
    assert!(other.try_lock(row(1)).unwrap() && other.try_lock(row(2)).unwrap());
}
