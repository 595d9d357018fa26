//! The device is another process: this test binary, started again. It holds rows until it is killed.

use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Child, Command, Stdio};

use cleave_shmem::{JobId, LOCK_OFFER_BYTES, receive_descriptors, send_descriptors};

use super::*;

/// Environment variable with the socket, for the device's process.
const SOCKET: &str = "CLEAVE_TXN_LOCK_TEST_SOCKET";
const VIDS: [u64; 3] = [1, 2, 5];

/// The device's process; a no-op in the process of the tests.
#[test]
fn the_other_process() {
    let Ok(path) = std::env::var(SOCKET) else { return };
    let mut stream = UnixStream::connect(path).unwrap();
    let mut offer = [0; LOCK_OFFER_BYTES];
    let (count, descriptors) = receive_descriptors(stream.as_fd(), &mut offer).unwrap();
    let device = DeviceLocks::open(&offer[..count], descriptors).unwrap();
    let mut job = [0; 10];
    stream.read_exact(&mut job).unwrap();
    let (id, epoch) = job.split_at(2);
    let id = JobId::new(u16::from_le_bytes(id.try_into().unwrap())).unwrap();
    let epoch = u64::from_le_bytes(epoch.try_into().unwrap());
    let job = device.begin(Job { id, epoch, goes_on: false }).unwrap();
    assert!(VIDS.iter().all(|vid| job_has(&job, *vid)));
    stream.write_all(b"h").unwrap();
    // Until it is killed.
    loop {
        thread::park();
    }
}

fn device_process(host: &HostLocks, folder: &std::path::Path) -> Child {
    let path = folder.join("locks");
    let listener = UnixListener::bind(&path).unwrap();
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "locks::tests::shared::process::the_other_process", "--nocapture"])
        .env(SOCKET, &path)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let (mut stream, _) = listener.accept().unwrap();
    let (offer, descriptors) = host.offer().unwrap();
    assert_eq!(send_descriptors(stream.as_fd(), &offer, &descriptors).unwrap(), offer.len());
    let job = host.assign_job().unwrap();
    stream.write_all(&job.id.get().to_le_bytes()).unwrap();
    stream.write_all(&job.epoch.to_le_bytes()).unwrap();
    stream.read_exact(&mut [0]).unwrap();
    child
}

#[test]
fn rows_of_a_process_that_died_are_the_hosts_after_a_fence() {
    let folder = tempfile::tempdir().unwrap();
    let (host, _) = HostLocks::create(SMALL).unwrap();
    let locks = Locks::new();
    locks.share(DEVICE, &host);
    let mut child = device_process(&host, folder.path());
    let owners = [1, 2, 3].map(owner);
    let mut waits: Vec<LockWait> = owners
        .iter()
        .zip(VIDS)
        .map(|(owner, vid)| waiting(locks.request(owner, row(vid), UPDATE)))
        .collect();
    assert!(waits.iter_mut().all(|wait| now(wait).is_none()));
    child.kill().unwrap();
    child.wait().unwrap();
    // Its death alone releases nothing: its changes may still be on their way.
    host.look();
    assert!(waits.iter_mut().all(|wait| now(wait).is_none()));
    host.fence();
    assert!(waits.iter_mut().all(|wait| matches!(now(wait), Some(Ok(())))));
    for owner in &owners {
        locks.release_all(owner);
    }
    assert_eq!(locks.list(), []);
    assert_eq!(host.contended().unwrap(), []);
}
