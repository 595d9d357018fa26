//! Tests of claims: a device that restarts is noticed, and only the right part of their space stays in doubt.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::PathBuf;

use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use cleave_catalog::catalog::{DeviceEntry, DeviceId, DeviceKind, RemoteDevice};
use cleave_device::{ListenOptions, Listener};
use cleave_fragment::command::{
    Command, DeviceError, DeviceErrorCause, Execute, Identity, Ownership, Reply, Request,
};
use cleave_fragment::ending::end_in_background;
use cleave_fragment::link::{DeviceService, SlotSender, Token};
use cleave_media::BLOCK_SIZE;

use super::*;
use crate::device::whole_pages::blocks;
use crate::device::{EmbeddedFactory, testing};

const TOKEN: &str = "a-token-that-nobody-guesses-0123456789";
const NAS: [u8; 16] = [1; 16];

/// A device that listens until it is dropped, as a process that is killed.
struct Served {
    address: SocketAddr,
    runtime: Option<tokio::runtime::Runtime>,
}

impl Served {
    async fn start(media: PathBuf, address: SocketAddr) -> Self {
        let started = tokio::task::spawn_blocking(move || {
            let runtime = tokio::runtime::Builder::new_multi_thread()
                .worker_threads(1)
                .enable_all()
                .build()
                .unwrap();
            let options = ListenOptions {
                address,
                identity: None,
                token: Token::new(TOKEN, "the test").unwrap(),
                rate_cap: None,
                log: Arc::new(|_: &str| {}),
            };
            let device = testing::serve(&media, NAS);
            let listener = runtime.block_on(Listener::bind(device, options)).unwrap();
            let address = listener.local_address();
            runtime.spawn(listener.serve());
            Self { address, runtime: Some(runtime) }
        });
        started.await.unwrap()
    }

    async fn stop(mut self) {
        let runtime = self.runtime.take();
        tokio::task::spawn_blocking(move || drop(runtime)).await.unwrap();
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            end_in_background(runtime);
        }
    }
}

fn nobody(_: &Path) -> Result<Arc<dyn DeviceService>, Error> {
    panic!("this device is remote");
}

fn silent(_: &Path) -> Result<Arc<dyn DeviceService>, Error> {
    Ok(Arc::new(Silent))
}

fn device(
    identity: [u8; 16],
    kind: DeviceKind,
    directory: &Path,
    embedded: EmbeddedFactory,
) -> Arc<Device> {
    let entry = DeviceEntry { id: DeviceId(1), name: "nas".to_owned(), identity, kind };
    let incarnation = Ownership { database: [3; 16], epoch: 1, incarnation: 1 };
    Arc::new(Device::new(entry, incarnation, Vec::new(), directory, embedded).unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_is_noticed_however_much_is_reserved_anew() {
    let outside = tempfile::tempdir().unwrap();
    let media = outside.path().join("nas.media");
    let served = Served::start(media.clone(), "127.0.0.1:0".parse().unwrap()).await;
    let address = served.address;
    let token_file = outside.path().join("token");
    cleave_media::files::write_durably(&token_file, TOKEN.as_bytes()).unwrap();
    let remote = RemoteDevice {
        host: address.ip().to_string(),
        port: address.port(),
        token_file: Some(token_file),
        ca_pem: None,
        rate_cap: None,
    };
    let device = device(NAS, DeviceKind::Remote(remote), outside.path(), Arc::new(nobody));
    let claim = Arc::new(Claim::new(Arc::clone(&device)));
    let pages = claim.acquire(2).await.unwrap();
    claim.write(pages.start, Bytes::from(vec![7; pages.bytes()])).await.unwrap();
    claim.sync_written().await.unwrap();

    served.stop().await;
    let _served = Served::start(media, address).await;
    // Commands that may be repeated connect anew.
    device.incarnation().await.unwrap();
    let keys = claim.acquire(64).await.unwrap();
    claim.write(keys.start, Bytes::from(vec![8; BLOCK_SIZE])).await.unwrap();
    let rest = Extent { start: BlockAddress(keys.start.0 + 1), block_count: 63 };
    claim.give_back(rest);
    // More is reserved than the claim has, but what was written first may be gone.
    let error = claim.sync_written().await.unwrap_err();
    assert!(error.to_string().contains("was restarted while the statement wrote"), "{error}");
}

/// A device of 100 blocks that never answers a write.
#[derive(Debug)]
struct Silent;

#[async_trait]
impl DeviceService for Silent {
    async fn call(&self, command: Command) -> Result<Reply, DeviceError> {
        match command.request {
            Request::Identify => Ok(Reply::Identity(Identity {
                device: NAS,
                build: String::new(),
                protocol_version: 1,
                capabilities: Vec::new(),
                block_size: 4096,
                block_count: 0,
                cores: 1,
                fragment_memory_bytes: 0,
                slot_bytes_max: 0,
                transfer_bytes_max: 0,
                owner: None,
                node: String::new(),
            })),
            Request::Write(_) => std::future::pending().await,
            Request::Reserve { extents } => {
                tokio::task::yield_now().await;
                match extents.iter().any(|extent| extent.end().0 > 100) {
                    true => Err(DeviceError::new(DeviceErrorCause::OutOfSpace, "full".to_owned())),
                    false => Ok(Reply::Done),
                }
            }
            _ => Ok(Reply::Done),
        }
    }

    async fn execute(&self, _: Execute, _: SlotSender) -> Result<SchemaRef, DeviceError> {
        Err(DeviceError::new(DeviceErrorCause::Refused, "it runs nothing".to_owned()))
    }

    fn steer(&self, _: Command) {}
}

#[test]
fn space_of_a_write_that_was_given_up_stays_taken() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let device = device(NAS, DeviceKind::Embedded, Path::new("nowhere"), Arc::new(silent));
    let claim = Arc::new(Claim::new(Arc::clone(&device)));
    let extent = claim.take(8);
    let bytes = Bytes::from(vec![0; extent.bytes()]);
    let write = runtime.block_on(async { claim.begin_write(extent.start, bytes) });
    drop(claim);
    assert_eq!(device.space().used_blocks, 8, "the write holds it");
    // The program ends while the write is under way; whether it arrives is not known.
    drop(runtime);
    drop(write);
    let space = device.space();
    assert_eq!((space.used_blocks, space.doubtful_blocks), (8, 8));

    let unwritten = Claim::new(Arc::clone(&device));
    unwritten.take(4);
    drop(unwritten);
    assert_eq!(device.space().used_blocks, 8, "free again at once");
}

#[tokio::test]
async fn who_asks_for_more_than_there_is_keeps_nobody_from_the_rest() {
    let device = device(NAS, DeviceKind::Embedded, Path::new("nowhere"), Arc::new(silent));
    let claims = [0, 1].map(|_| Claim::new(Arc::clone(&device)));
    let (large, small) = tokio::join!(claims[0].acquire(1000), claims[1].acquire(8));
    assert_eq!(large.unwrap_err().sqlstate(), DISK_FULL);
    assert_eq!(small.unwrap(), Extent { start: BlockAddress(0), block_count: 8 });
    assert_eq!((claims[0].block_count(), device.space().used_blocks), (0, 8));
}

#[tokio::test]
async fn space_that_nobody_waits_for_any_more_is_not_taken() {
    let device = device(NAS, DeviceKind::Embedded, Path::new("nowhere"), Arc::new(silent));
    device.link().await.unwrap();
    let claim = Claim::new(Arc::clone(&device));
    let mut acquiring = Box::pin(claim.acquire(8));
    while claim.block_count() == 0 {
        assert!(futures::poll!(&mut acquiring).is_pending(), "it ended before it was given up");
    }
    drop(acquiring);
    assert_eq!((claim.block_count(), device.space().used_blocks), (0, 0));
}

#[test]
fn a_command_that_never_left_leaves_no_doubt() {
    let failed = |source: LinkError| {
        let (device, address) = ("nas".to_owned(), "nas:1".to_owned());
        Error::from(StorageError::Link { device, address, source })
    };
    let what = "a write".to_owned();
    assert!(!may_have_happened(&failed(LinkError::TooLarge { what, bytes: 2, bytes_max: 1 })));
    let (device, detail) = ("nas".to_owned(), "a strange frame".to_owned());
    assert!(may_have_happened(&failed(LinkError::Protocol { device, detail })));
}

/// Device `id` of the database in `outside`, served at `address`.
fn served_device(id: u32, address: SocketAddr, outside: &Path) -> Arc<Device> {
    let token_file = outside.join("token");
    cleave_media::files::write_durably(&token_file, TOKEN.as_bytes()).unwrap();
    let kind = DeviceKind::Remote(RemoteDevice {
        host: address.ip().to_string(),
        port: address.port(),
        token_file: Some(token_file),
        ca_pem: None,
        rate_cap: None,
    });
    let entry = DeviceEntry { id: DeviceId(id), name: format!("d{id}"), identity: NAS, kind };
    let incarnation = Ownership { database: [3; 16], epoch: 1, incarnation: 1 };
    Arc::new(Device::new(entry, incarnation, Vec::new(), outside, Arc::new(nobody)).unwrap())
}

/// The mirror of `copies`.
fn mirror_of(copies: &[Arc<Device>], outside: &Path) -> Arc<Device> {
    let of = cleave_catalog::catalog::mirror::Mirror::new(copies.iter().map(|copy| copy.id()));
    let kind = DeviceKind::Mirror(of.clone());
    let entry = DeviceEntry { id: DeviceId(9), name: "both".to_owned(), identity: [0; 16], kind };
    let incarnation = Ownership { database: [3; 16], epoch: 1, incarnation: 1 };
    let made = Device::new(entry, incarnation, Vec::new(), outside, Arc::new(nobody)).unwrap();
    let made = Arc::new(made.mirroring(&of, copies.to_vec()));
    made.join_copies();
    made
}

/// Has `copy` fail, as where it misses what another one has done.
fn fail(mirror: &Device, copy: &Device) {
    let of = mirror.mirror.as_ref().unwrap();
    let outcomes = of.current().into_iter().map(|it| match it.id() == copy.id() {
        true => (it.id(), Err(copy.unanswered("write", Duration::ZERO))),
        false => (it.id(), Ok(())),
    });
    of.settle(outcomes.collect()).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_copy_lacks_is_copied_before_it_counts_as_synced() {
    let outside = tempfile::tempdir().unwrap();
    let anywhere = "127.0.0.1:0".parse().unwrap();
    let paths = ["a", "b"].map(|name| outside.path().join(name));
    let a = Served::start(paths[0].clone(), anywhere).await;
    let b = Served::start(paths[1].clone(), anywhere).await;
    let copies = [(1, a.address), (2, b.address)]
        .map(|(id, address)| served_device(id, address, outside.path()));
    let both = mirror_of(&copies, outside.path());
    let claim = Arc::new(Claim::new(Arc::clone(&both)));
    let first = claim.acquire(4).await.unwrap();
    let page = |byte: u8| Bytes::from(vec![byte; 2 * BLOCK_SIZE]);
    let [one, two] =
        [0, 2].map(|from| Extent { start: BlockAddress(first.start.0 + from), block_count: 2 });
    claim.write(one.start, page(1)).await.unwrap();
    for copy in &copies {
        assert_eq!(blocks(copy, one).await.unwrap(), page(1), "{}", copy.name());
    }
    // Written while one copy has failed, and synced when it is back.
    fail(&both, &copies[1]);
    claim.write(two.start, page(2)).await.unwrap();
    let later = claim.acquire(2).await.unwrap();
    claim.write(later.start, page(3)).await.unwrap();
    assert_ne!(blocks(&copies[1], two).await.unwrap(), page(2));
    both.note_current(copies[1].id());
    claim.give_back(two);
    let again = claim.acquire(2).await.unwrap();
    assert_eq!(again, two);
    claim.write(again.start, page(4)).await.unwrap();
    claim.sync_written().await.unwrap();
    assert!(both.failed_copies().is_empty());
    for (extent, byte) in [(one, 1), (two, 4), (later, 3)] {
        assert_eq!(blocks(&copies[1], extent).await.unwrap(), page(byte), "{extent}");
    }

    // A copy that was restarted may have lost what was not synced: it fails, and the other one does not.
    claim.write(one.start, page(5)).await.unwrap();
    let address = b.address;
    b.stop().await;
    let b = Served::start(paths[1].clone(), address).await;
    copies[1].incarnation().await.unwrap();
    claim.sync_written().await.unwrap();
    assert_eq!(both.failed_copies(), BTreeSet::from([copies[1].id()]));
    // The last one is asked again for as long as it takes.
    let address = a.address;
    a.stop().await;
    let error = claim.write(one.start, page(6)).await.unwrap_err();
    assert!(error.to_string().contains("\"d1\""), "{error}");
    let _a = Served::start(paths[0].clone(), address).await;
    copies[0].incarnation().await.unwrap();
    let error = claim.sync_written().await.unwrap_err();
    assert!(error.to_string().contains("was restarted while the statement wrote"), "{error}");
    assert_eq!(both.failed_copies(), BTreeSet::from([copies[1].id()]));
    drop(b);
}
