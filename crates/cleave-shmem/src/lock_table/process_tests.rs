//! Two processes over one table: this test binary starts itself again, as the device.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]
#![expect(unsafe_code, reason = "witnesses lie in memory that both processes map")]

use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use super::tests::{FORMATS, SMALL, Tail, lock_for, row};
use super::*;
use crate::descriptors::{receive_descriptors, send_descriptors};
use crate::region::Region;

/// Environment variable with the socket, for the device's process.
const SOCKET: &str = "CLEAVE_LOCK_TEST_SOCKET";
/// Two of them share one of the four entries; all are requested in this order.
const VIDS: [u64; 4] = [0, 1, 2, 6];
const WITNESS_BYTES: usize = 4096;

/// The present holders of a row: 1 for a host transaction, 1 << 16 for a job.
struct Witness(Arc<Region>);

impl Witness {
    fn at(&self, index: usize) -> &AtomicU32 {
        let place = self.0.part(index * 64, size_of::<AtomicU32>()).unwrap().cast::<AtomicU32>();
        // SAFETY: within the region, aligned, and atomic.
        unsafe { place.as_ref() }
    }

    fn enter(&self, index: usize, who: u32) {
        assert_eq!(self.at(index).fetch_add(who, Ordering::SeqCst), 0, "somebody is there");
    }

    fn leave(&self, index: usize, who: u32) {
        assert_eq!(self.at(index).fetch_sub(who, Ordering::SeqCst), who, "somebody came");
    }
}

/// A device's process, killed when dropped.
struct Device {
    child: Child,
    stream: UnixStream,
}

impl Drop for Device {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

fn socket_path() -> PathBuf {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    std::env::temp_dir().join(format!("cleave-locks-{}-{number}", std::process::id()))
}

impl Device {
    /// Starts a process, which follows `order` with `jobs`.
    fn start(host: &HostLocks, witness: &Witness, order: &str, jobs: &[Job]) -> Self {
        let path = socket_path();
        let listener = UnixListener::bind(&path).unwrap();
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "lock_table::process_tests::the_other_process", "--nocapture"])
            .env(SOCKET, &path)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let (mut stream, _) = listener.accept().unwrap();
        std::fs::remove_file(&path).unwrap();
        let (offer, descriptors) = host.offer().unwrap();
        assert_eq!(send_descriptors(stream.as_fd(), &offer, &descriptors).unwrap(), offer.len());
        let region = [witness.0.descriptor().unwrap()];
        assert_eq!(send_descriptors(stream.as_fd(), b"w", &region).unwrap(), 1);
        let jobs: String = jobs.iter().map(|job| format!(" {} {}", job.id, job.epoch)).collect();
        writeln!(stream, "{order}{jobs}").unwrap();
        Self { child, stream }
    }

    /// The next line of its output; empty at its end.
    fn hear(&mut self) -> String {
        let (mut line, mut byte) = (String::new(), [0]);
        // Byte by byte, so that nothing of the next line is consumed.
        while self.stream.read(&mut byte).is_ok_and(|count| count == 1) && byte != *b"\n" {
            line.push(char::from(byte[0]));
        }
        line
    }
}

/// The device's process; a no-op in the process of the tests.
#[test]
fn the_other_process() {
    let Ok(path) = std::env::var(SOCKET) else { return };
    let stream = UnixStream::connect(path).unwrap();
    let mut offer = [0; LOCK_OFFER_BYTES];
    let (count, descriptors) = receive_descriptors(stream.as_fd(), &mut offer).unwrap();
    let device = DeviceLocks::open(&offer[..count], descriptors).unwrap();
    let (_, mut descriptors) = receive_descriptors(stream.as_fd(), &mut [0]).unwrap();
    let region = Region::open(descriptors.pop().unwrap(), WITNESS_BYTES).unwrap();
    let witness = Witness(Arc::new(region));
    let mut order = String::new();
    BufReader::new(stream.try_clone().unwrap()).read_line(&mut order).unwrap();
    let mut words = order.split_whitespace();
    let what = words.next().unwrap();
    let numbers: Vec<u64> = words.map(|word| word.parse().unwrap()).collect();
    let jobs = numbers.chunks(2).map(|job| {
        let id = JobId::new(u16::try_from(job[0]).unwrap()).unwrap();
        Job { id, epoch: job[1], goes_on: false }
    });
    let jobs: Vec<_> = jobs.collect();

    let hearing = Arc::clone(&device);
    let listener = move || {
        loop {
            if hearing.bell().unwrap().wait(None) {
                hearing.look();
            }
        }
    };
    std::thread::Builder::new().name("bell".to_owned()).spawn(listener).unwrap();
    match what {
        "hold" => {
            let locks = device.begin(jobs[0]).unwrap();
            for vid in VIDS {
                lock_for(&locks, row(vid));
            }
            (&stream).write_all(b"held\n").unwrap();
            // Until it is killed.
            std::thread::park();
        }
        "work" => {
            std::thread::scope(|scope| {
                for job in jobs {
                    let (device, witness) = (&device, &witness);
                    scope.spawn(move || {
                        for round in 0..ROUNDS {
                            visit_as_job(device, witness, job, round);
                        }
                    });
                }
            });
            (&stream).write_all(b"done\n").unwrap();
        }
        "restless" => {
            let mut round = 0;
            loop {
                visit_as_job(&device, &witness, jobs[0], round);
                round += 1;
            }
        }
        _ => panic!("an unknown order: {order}"),
    }
}

const ROUNDS: usize = 3000;

/// One transaction of a job: some rows, in their order, held to the end.
fn visit_as_job(device: &Arc<DeviceLocks>, witness: &Witness, job: Job, round: usize) {
    let mut locks = device.begin(job).unwrap();
    let first = round % VIDS.len();
    let rows = first..VIDS.len().min(first + 2);
    locks.count_requests(rows.len() as u64);
    for index in rows.clone() {
        lock_for(&locks, row(VIDS[index]));
        witness.enter(index, 1 << 16);
    }
    for index in rows {
        witness.leave(index, 1 << 16);
    }
    assert!(locks.release().unwrap() > 0);
}

/// The host's side with a thread that waits for its bell until dropped.
struct Host {
    locks: Arc<HostLocks>,
    /// The device's side for jobs that the host serves.
    jobs_here: Arc<DeviceLocks>,
    witness: Witness,
    tails: [Tail; VIDS.len()],
    ends: Arc<AtomicBool>,
    listener: Option<std::thread::JoinHandle<()>>,
}

impl Host {
    fn new() -> Self {
        Self::of(SMALL)
    }

    fn of(shape: TableShape) -> Self {
        let (locks, jobs_here) = HostLocks::create(shape).unwrap();
        let ends = Arc::new(AtomicBool::new(false));
        let (hearing, until) = (Arc::clone(&locks), Arc::clone(&ends));
        let hear = move || {
            while !until.load(Ordering::SeqCst) {
                if hearing.bell().unwrap().wait(None) {
                    hearing.look();
                }
            }
        };
        let listener = std::thread::Builder::new().name("bell".to_owned()).spawn(hear).unwrap();
        let witness = Witness(Arc::new(Region::create(WITNESS_BYTES).unwrap()));
        let (tails, listener) = (Default::default(), Some(listener));
        Self { locks, jobs_here, witness, tails, ends, listener }
    }

    fn visit(&self, index: usize) {
        let ticket = self.tails[index].lock(&self.locks, row(VIDS[index]));
        self.witness.enter(index, 1);
        self.witness.leave(index, 1);
        self.tails[index].unlock(&self.locks, ticket);
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::SeqCst);
        self.locks.bell().unwrap().ring();
        self.listener.take().unwrap().join().unwrap();
    }
}

#[test]
fn two_processes_exclude_each_other() {
    for format in FORMATS {
        two_processes_over(TableShape { format, ..SMALL });
    }
}

fn two_processes_over(shape: TableShape) {
    let host = Host::of(shape);
    let served_here = host.locks.assign_job().unwrap();
    let jobs = [host.locks.assign_job().unwrap(), host.locks.assign_job().unwrap()];
    let mut device = Device::start(&host.locks, &host.witness, "work", &jobs);
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let (host, is_done) = (&host, &is_done);
            scope.spawn(move || {
                for round in 0.. {
                    host.visit((round + thread) % VIDS.len());
                    if is_done.load(Ordering::SeqCst) {
                        break;
                    }
                }
            });
        }
        // A job that the host serves stands in line with those of the other process.
        scope.spawn(|| {
            for round in 0.. {
                visit_as_job(&host.jobs_here, &host.witness, served_here, round);
                if is_done.load(Ordering::SeqCst) {
                    break;
                }
            }
        });
        let said = device.hear();
        is_done.store(true, Ordering::SeqCst);
        assert_eq!(said, "done");
    });
    assert_eq!(host.locks.contended().unwrap(), []);
    assert_eq!(host.locks.figures().spoilt, 0);
    let of_jobs = host.locks.figures_of_jobs();
    let by_the_other_process = 2 * ROUNDS as u64;
    assert!(of_jobs.requests > by_the_other_process && of_jobs.spoilt == 0, "{of_jobs:?}");
}

#[test]
fn what_a_dead_device_held_is_the_hosts_after_a_fence() {
    let host = Host::new();
    let job = host.locks.assign_job().unwrap();
    let mut device = Device::start(&host.locks, &host.witness, "hold", &[job]);
    assert_eq!(device.hear(), "held");
    std::thread::scope(|scope| {
        let waiting: Vec<_> = (0..VIDS.len())
            .map(|index| {
                scope.spawn({
                    let host = &host;
                    move || host.visit(index)
                })
            })
            .collect();
        // They wait, since nothing is released to them.
        while host.locks.contended().unwrap().is_empty() {
            std::thread::yield_now();
        }
        assert!(waiting.iter().all(|thread| !thread.is_finished()));
        device.child.kill().unwrap();
        assert_eq!(device.hear(), "", "the socket says that it is gone");
        assert_eq!(host.locks.fence(), 1);
    });
    drop(device);
    // The next process finds the table as it is, and the host's locks in it.
    let ticket = host.tails[0].lock(&host.locks, row(VIDS[0]));
    let job = host.locks.assign_job().unwrap();
    let mut device = Device::start(&host.locks, &host.witness, "hold", &[job]);
    while host.locks.contended().unwrap().is_empty() {
        std::thread::yield_now();
    }
    host.tails[0].unlock(&host.locks, ticket);
    assert_eq!(device.hear(), "held");
    host.locks.release_job(job).unwrap();
    host.visit(0);
}

#[test]
fn devices_that_die_anywhere_leave_nothing_behind() {
    let host = Host::new();
    for round in 0..12 {
        let job = host.locks.assign_job().unwrap();
        let device = Device::start(&host.locks, &host.witness, "restless", &[job]);
        for visit in 0..round * 7 {
            host.visit(visit % VIDS.len());
        }
        // Killed, and waited for, whatever it was doing.
        drop(device);
        host.locks.fence();
        for index in 0..VIDS.len() {
            // It may have died while it held a row.
            host.witness.at(index).store(0, Ordering::SeqCst);
            host.visit(index);
        }
        assert_eq!(host.locks.contended().unwrap(), []);
    }
    for entry in 0..16 {
        assert_eq!(host.locks.table.memory.load(entry), 0);
    }
}

#[test]
fn what_is_no_table_is_refused() {
    let (host, _) = HostLocks::create(SMALL).unwrap();
    let (offer, descriptors) = host.offer().unwrap();
    let copies = || Vec::from(descriptors.map(|it| it.try_clone_to_owned().unwrap()));
    assert!(DeviceLocks::open(&offer, copies()).is_ok());
    let refusal =
        |offer: &[u8], descriptors| DeviceLocks::open(offer, descriptors).unwrap_err().to_string();
    assert!(refusal(&offer[..7], copies()).contains("no offer"));
    assert!(refusal(&offer, copies().split_off(1)).contains("no offer"));
    assert!(refusal(&u64::MAX.to_le_bytes(), copies()).contains("larger"));
    assert!(refusal(&4096_u64.to_le_bytes(), copies()).contains("another size"));
    // Headers that do not fit.
    let header = |at: usize, value: u32| {
        let region = Region::create(host.table.memory.region().bytes()).unwrap();
        let fresh = LockMemory::fill(region, SMALL).unwrap();
        let place = fresh.region().part(at, 4).unwrap().cast::<AtomicU32>();
        // SAFETY: within the region, aligned, and atomic.
        unsafe { place.as_ref() }.store(value, Ordering::SeqCst);
        let mut handed = copies();
        handed[0] = fresh.region().descriptor().unwrap().try_clone_to_owned().unwrap();
        refusal(&offer, handed)
    };
    assert!(header(0, 1).contains("begin"));
    for version in [0, 1, 4, u32::MAX] {
        assert!(header(8, version).contains("version"));
    }
    // Entries of 8 bytes would fill half of it.
    assert!(header(8, 3).contains("entries"));
    for slot_bytes in [0, 3, 4, u32::MAX] {
        assert!(header(12, slot_bytes).contains("slots"));
    }
    for entries in [0, 1, 15, 17, 32, u32::MAX] {
        assert!(header(16, entries).contains("entries"));
    }
    assert!(header(20, 1).contains("entries"));
    let (embedded, _) = HostLocks::embedded(SMALL).unwrap();
    assert!(embedded.offer().is_none() && embedded.bell().is_none());
}
