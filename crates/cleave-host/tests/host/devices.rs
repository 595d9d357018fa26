//! Tests of remote devices: attached, lost, back again, and mistaken for another.

use std::future::ready;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arrow::datatypes::SchemaRef;
use cleave_device::{ListenOptions, Listener, OwnerRecord, Runtime, RuntimeOptions};
use cleave_fragment::command::message::RunEvent;
use cleave_fragment::command::{DeviceError, DeviceErrorCause, Execute};
use cleave_fragment::ending::end_in_background;
use cleave_fragment::link::{DeviceService, SlotSender, Token};
use cleave_host::{Database, Error, RemoteDevice};
use cleave_media::{DirectFile, Media, MediaError, OpenMode};
use tokio::sync::mpsc::UnboundedReceiver;

use crate::support::{
    assert_no_leak, batches, fresh, numbered, open, refused, row, rows, run, runtime_options,
};

pub(crate) const TOKEN: &str = "a-token-that-nobody-guesses-0123456789";

/// Runs `request` on `device`, and loses the run in place of its slot number `broken`, counted from 1.
pub(crate) async fn break_at(
    broken: u32,
    device: &dyn DeviceService,
    request: Execute,
    slots: SlotSender,
) -> Result<SchemaRef, DeviceError> {
    let (sender, events) = SlotSender::channel(slots.form());
    let schema = device.execute(request, sender).await?;
    pass_on(events, slots, move |slot_count, event| {
        let breaks = slot_count == broken;
        ready(if breaks { broken_by(DeviceErrorCause::UnknownRun) } else { event })
    });
    Ok(schema)
}

/// Sends the events of a run on to `slots`, each as `change` makes it of the number of slots up to it and the event,
/// until one is a failure.
pub(crate) fn pass_on<F>(
    mut events: UnboundedReceiver<RunEvent>,
    slots: SlotSender,
    mut change: impl FnMut(u32, RunEvent) -> F + Send + 'static,
) where
    F: Future<Output = RunEvent> + Send + 'static,
{
    tokio::runtime::Handle::current().spawn(async move {
        let mut slot_count = 0;
        while let Some(event) = events.recv().await {
            slot_count += u32::from(matches!(event, RunEvent::Slot(_)));
            let event = change(slot_count, event).await;
            let is_over = matches!(event, RunEvent::Failed(_));
            slots.send(event);
            if is_over {
                return;
            }
        }
    });
}

/// The end of a run that its device breaks off.
pub(crate) fn broken_by(cause: DeviceErrorCause) -> RunEvent {
    RunEvent::Failed(DeviceError::new(cause, "it broke"))
}

/// A device that listens until it is stopped. Its threads and connections end with it, as those of a process do.
pub(crate) struct Served {
    pub(crate) address: SocketAddr,
    runtime: Option<tokio::runtime::Runtime>,
}

impl Served {
    /// Serves the media at `path` as the device `identity`, at `address` (port 0: a free one). A device that was
    /// stopped has the media until its fragments have ended.
    pub(crate) async fn start(path: &Path, identity: [u8; 16], address: SocketAddr) -> Self {
        let mode = if path.exists() { OpenMode::Existing } else { OpenMode::Create };
        for _ in 0..500 {
            match DirectFile::open(path, mode) {
                Err(MediaError::Locked { .. }) => {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
                media => {
                    return Self::over(Arc::new(media.unwrap()), path, identity, address).await;
                }
            }
        }
        panic!("{} is in use", path.display());
    }

    /// Serves `media`, with what a device remembers of itself beside `path`.
    pub(crate) async fn over(
        media: Arc<dyn Media>,
        path: &Path,
        identity: [u8; 16],
        address: SocketAddr,
    ) -> Self {
        let path = path.to_owned();
        let device = move || {
            // As in `cleaved`: the record of its owner outlives the device.
            let owner = OwnerRecord::beside_identity(&path.with_extension("id"));
            let options = RuntimeOptions { owner, ..runtime_options(identity) };
            Runtime::new(media, options).unwrap() as Arc<dyn DeviceService>
        };
        Self::of(device, address).await
    }

    /// Serves what `device` makes.
    pub(crate) async fn of(
        device: impl FnOnce() -> Arc<dyn DeviceService> + Send + 'static,
        address: SocketAddr,
    ) -> Self {
        let started = tokio::task::spawn_blocking(move || {
            let runtime = tokio::runtime::Builder::new_multi_thread()
                .worker_threads(1)
                .enable_all()
                .build()
                .unwrap();
            let _context = runtime.enter();
            let device = device();
            let options = ListenOptions {
                address,
                identity: None,
                token: Token::new(TOKEN, "the test").unwrap(),
                rate_cap: None,
                log: Arc::new(|_: &str| {}),
            };
            let listener = runtime.block_on(Listener::bind(device, options)).unwrap();
            let address = listener.local_address();
            runtime.spawn(listener.serve());
            Self { address, runtime: Some(runtime) }
        });
        started.await.unwrap()
    }

    pub(crate) async fn stop(mut self) {
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

pub(crate) fn anywhere() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

pub(crate) fn token_file(directory: &Path, token: &str) -> PathBuf {
    let path = directory.join("token");
    cleave_media::files::write_durably(&path, token.as_bytes()).unwrap();
    path
}

pub(crate) fn remote(address: SocketAddr, token_file: PathBuf) -> RemoteDevice {
    RemoteDevice {
        host: address.ip().to_string(),
        port: address.port(),
        token_file: Some(token_file),
        ca_pem: None,
        rate_cap: None,
    }
}

/// A database with the remote device "nas", on which table `far` lies, and table `near` at home.
pub(crate) async fn with_nas(
    outside: &Path,
) -> (tempfile::TempDir, Arc<Database>, Served, RemoteDevice) {
    let (directory, database) = fresh().await;
    let (served, remote) = attach_nas(&database, outside).await;
    let mut session = database.session();
    run(&mut session, "CREATE TABLE near (id int PRIMARY KEY, note text)").await;
    run(&mut session, "SET default_device = 'nas'").await;
    run(&mut session, "CREATE TABLE far (id int PRIMARY KEY, note text)").await;
    run(&mut session, "INSERT INTO near VALUES (1, 'at home')").await;
    session.load("far", batches(vec![numbered(0..20_000)]), None).await.unwrap();
    run(&mut session, "INSERT INTO far VALUES (20000, 'far away')").await;
    (directory, database, served, remote)
}

/// Attaches a device called nas, elsewhere, whose media lies `outside`.
pub(crate) async fn attach_nas(database: &Arc<Database>, outside: &Path) -> (Served, RemoteDevice) {
    let served = Served::start(&outside.join("nas.media"), [1; 16], anywhere()).await;
    let remote = remote(served.address, token_file(outside, TOKEN));
    database.add_device("nas", remote.clone()).await.unwrap();
    (served, remote)
}

pub(crate) const FAR: &str = "SELECT count(*), sum(id) FROM far";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tables_on_a_remote_device_work_and_survive_reopening() {
    let outside = tempfile::tempdir().unwrap();
    let (directory, database, _served, _) = with_nas(outside.path()).await;
    let mut session = database.session();
    assert_eq!(row(&mut session, FAR).await, "20001,200010000");
    assert_eq!(row(&mut session, "SELECT note FROM far WHERE id = 20000").await, "far away");
    for stack in ["blk", "native", "ndp"] {
        run(&mut session, &format!("SET stack = {stack}")).await;
        assert_eq!(row(&mut session, FAR).await, "20001,200010000", "{stack}");
    }
    assert_no_leak(&database);
    drop((session, database));
    let database = open(directory.path()).await;
    let mut session = database.session();
    assert_eq!(row(&mut session, FAR).await, "20001,200010000");
    assert_eq!(
        refused(&mut session, "INSERT INTO far VALUES (20000, '')").await.sqlstate(),
        "23505"
    );
    assert_no_leak(&database);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_device_fails_its_statements_alone_until_it_is_back() {
    let outside = tempfile::tempdir().unwrap();
    let (directory, database, served, _) = with_nas(outside.path()).await;
    let address = served.address;
    let mut session = database.session();
    database.buffer_pool().clear();
    served.stop().await;
    // Without pages, the first query that needs some blocks the table's commits.
    run(&mut session, "SET shipped_delta_bytes = 0").await;
    for statement in [FAR, "SELECT note FROM far WHERE id = 5", "INSERT INTO far VALUES (-1, '')"] {
        let error = refused(&mut session, statement).await;
        assert_eq!(error.sqlstate(), "58030", "{statement}: {error}");
        let message = error.to_string();
        assert!(message.contains("\"nas\""), "{statement}: {message}");
        assert!(message.contains(&address.to_string()), "{statement}: {message}");
    }
    assert_eq!(rows(&mut session, "SELECT note FROM near").await, ["at home"]);
    run(&mut session, "INSERT INTO near VALUES (2, 'still here')").await;

    // Also for a database that is opened while the device is offline.
    drop((session, database));
    let database = open(directory.path()).await;
    let mut session = database.session();
    assert_eq!(row(&mut session, "SELECT count(*) FROM near").await, "2");
    assert_eq!(refused(&mut session, FAR).await.sqlstate(), "58030");

    let _served = Served::start(&outside.path().join("nas.media"), [1; 16], address).await;
    assert_eq!(row(&mut session, FAR).await, "20001,200010000");
    run(&mut session, "INSERT INTO far VALUES (-1, 'back')").await;
    assert_eq!(row(&mut session, "SELECT note FROM far WHERE id = -1").await, "back");
    assert_no_leak(&database);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restarted_device_goes_on_within_one_session() {
    let outside = tempfile::tempdir().unwrap();
    let (_directory, database, served, _) = with_nas(outside.path()).await;
    let address = served.address;
    let mut session = database.session();
    served.stop().await;
    let _served = Served::start(&outside.path().join("nas.media"), [1; 16], address).await;
    database.buffer_pool().clear();
    assert_eq!(row(&mut session, FAR).await, "20001,200010000");
    run(&mut session, "INSERT INTO far VALUES (-1, 'after the restart')").await;
    assert_eq!(row(&mut session, "SELECT count(*) FROM far").await, "20002");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_lost_during_a_load_undoes_the_load() {
    let outside = tempfile::tempdir().unwrap();
    let (_directory, database, served, _) = with_nas(outside.path()).await;
    let address = served.address;
    let lost = Arc::new(tokio::sync::Notify::new());
    let input = {
        let lost = Arc::clone(&lost);
        let served = std::sync::Mutex::new(Some(served));
        futures::stream::unfold(30_000, move |from| {
            // The device fails after a few batches were sent; the load waits for that.
            let served = if from == 90_000 { served.lock().unwrap().take() } else { None };
            let lost = Arc::clone(&lost);
            async move {
                if let Some(served) = served {
                    served.stop().await;
                    lost.notify_one();
                }
                (from < 2_000_000).then(|| (Ok(numbered(from..from + 10_000)), from + 10_000))
            }
        })
    };
    let mut session = database.session();
    let error = session.load("far", Box::pin(input), None).await.unwrap_err();
    assert_eq!(error.sqlstate(), "58030", "{error}");
    lost.notified().await;
    let _served = Served::start(&outside.path().join("nas.media"), [1; 16], address).await;
    assert_eq!(row(&mut session, FAR).await, "20001,200010000");
    session.load("far", batches(vec![numbered(30_000..40_000)]), None).await.unwrap();
    assert_eq!(row(&mut session, "SELECT count(*), max(id) FROM far").await, "30001,39999");
    let nas = database.device_named("nas").unwrap();
    let named = database.catalog().extents(nas.id());
    let named: u64 = named.iter().map(|extent| u64::from(extent.block_count)).sum();
    let space = nas.space();
    // Space that may still be written to is kept until the database is next opened, and not a block more.
    assert_eq!(space.used_blocks, named + space.retired_blocks + space.doubtful_blocks);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_device_at_the_address_is_refused() {
    let outside = tempfile::tempdir().unwrap();
    let (directory, database, served, _) = with_nas(outside.path()).await;
    let address = served.address;
    served.stop().await;
    let _other = Served::start(&outside.path().join("other.media"), [2; 16], address).await;
    database.buffer_pool().clear();
    let is_refused = |error: Error| {
        let message = error.to_string();
        assert!(message.contains("another device answers as \"nas\""), "{message}");
        assert_eq!(error.sqlstate(), "58030");
    };
    let mut session = database.session();
    run(&mut session, "SET shipped_delta_bytes = 0").await;
    is_refused(refused(&mut session, "SELECT note FROM far WHERE id = 5").await);
    is_refused(refused(&mut session, FAR).await);
    is_refused(refused(&mut session, "INSERT INTO far VALUES (-1, '')").await);
    drop((session, database));
    let database = open(directory.path()).await;
    let mut session = database.session();
    is_refused(refused(&mut session, FAR).await);
    assert_eq!(rows(&mut session, "SELECT note FROM near").await, ["at home"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_whose_attaching_nobody_waits_for_is_attached() {
    let outside = tempfile::tempdir().unwrap();
    let (_directory, database) = fresh().await;
    let served = Served::start(&outside.path().join("nas.media"), [1; 16], anywhere()).await;
    let remote = remote(served.address, token_file(outside.path(), TOKEN));
    let mut attaching = Box::pin(database.add_device("nas", remote));
    // Given up as soon as the commit is seen, most likely before the answer was.
    while database.catalog().device_named("nas").is_none() {
        if let std::task::Poll::Ready(attached) = futures::poll!(&mut attaching) {
            attached.unwrap();
            break;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    drop(attaching);
    let named: Vec<_> = database.catalog().devices().map(|device| device.id).collect();
    let attached: Vec<_> = database.devices().iter().map(|device| device.id()).collect();
    assert_eq!(named, attached);
    let mut session = database.session();
    run(&mut session, "SET default_device = 'nas'").await;
    run(&mut session, "CREATE TABLE far (id int PRIMARY KEY)").await;
    run(&mut session, "INSERT INTO far VALUES (1)").await;
    assert_eq!(row(&mut session, "SELECT id FROM far").await, "1");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn devices_that_cannot_be_attached_are_refused() {
    let outside = tempfile::tempdir().unwrap();
    let (_directory, database, served, remote) = with_nas(outside.path()).await;
    let attach = async |name: &str, remote: RemoteDevice| {
        database.add_device(name, remote).await.map(|_| ()).unwrap_err()
    };
    assert_eq!(attach("nas", remote.clone()).await.sqlstate(), "42710");
    let twice = attach("nas2", remote.clone()).await;
    assert!(twice.to_string().contains("attached already, as \"nas\""), "{twice}");
    assert_eq!(attach("", remote.clone()).await.sqlstate(), "22023");
    let tokenless = attach("x", RemoteDevice { token_file: None, ..remote.clone() }).await;
    assert!(tokenless.to_string().contains("needs a token"), "{tokenless}");
    let absent = RemoteDevice { token_file: Some(outside.path().join("no")), ..remote.clone() };
    assert_eq!(attach("x", absent).await.sqlstate(), "28000");
    let wrong = token_file(outside.path(), "another-token-than-the-device-s-0123456789");
    let wrong = attach("x", RemoteDevice { token_file: Some(wrong), ..remote.clone() }).await;
    assert!(wrong.to_string().contains("refused the token"), "{wrong}");
    token_file(outside.path(), TOKEN);
    served.stop().await;
    let gone = attach("x", remote).await;
    assert_eq!(gone.sqlstate(), "58030");
    assert_eq!(database.catalog().devices().count(), 2, "nothing was remembered");
    let mut session = database.session();
    run(&mut session, "SET default_device = 'nass'").await;
    let error = refused(&mut session, "CREATE TABLE x (id int)").await;
    assert!(error.to_string().contains("did you mean \"nas\"?"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_statement_runs_fragments_on_several_devices_at_once() {
    let outside = tempfile::tempdir().unwrap();
    let (directory, database, _nas, _) = with_nas(outside.path()).await;
    let san = Served::start(&outside.path().join("san.media"), [2; 16], anywhere()).await;
    let second = remote(san.address, token_file(outside.path(), TOKEN));
    database.add_device("san", second).await.unwrap();
    let mut session = database.session();
    run(&mut session, "CREATE TABLE farther (id int PRIMARY KEY, note text) WITH (device = san)")
        .await;
    session.load("farther", batches(vec![numbered(10_000..30_000)]), None).await.unwrap();
    let placed = |table: &str| {
        let catalog = database.catalog();
        let tablets = &catalog.table(table).unwrap().tablets;
        let ids: Vec<_> = tablets.iter().map(|t| t.device).collect();
        ids.iter().map(|id| database.attached(*id).unwrap().name().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!((placed("far"), placed("farther")), (vec!["nas".into()], vec!["san".into()]));
    let join = "SELECT count(*), sum(a.id + b.id) FROM far a JOIN farther b ON a.id = b.id \
                LEFT JOIN near c ON c.id = a.id";
    // The ids that both have: 10,000 to 20,000.
    let expected = "10001,300030000";
    for split in ["host", "h0", "auto"] {
        run(&mut session, &format!("SET split = {split}")).await;
        assert_eq!(row(&mut session, join).await, expected, "{split}");
    }
    run(&mut session, "SET split = h0").await;
    let plan = rows(&mut session, &format!("EXPLAIN ANALYZE VERBOSE {join}")).await.join("\n");
    for (table, device) in [("far", "nas"), ("farther", "san"), ("near", "embedded")] {
        let line = format!("{table} on device \"{device}\"");
        assert!(plan.contains(&line), "{line} is not in\n{plan}");
    }
    run(&mut session, "SET ndp = off").await;
    let plan = rows(&mut session, &format!("EXPLAIN VERBOSE {join}")).await.join("\n");
    assert!(!plan.contains("FragmentExec") && plan.contains("host, ndp is off"), "{plan}");
    assert_eq!(row(&mut session, join).await, expected);
    run(&mut session, "SET ndp = on").await;

    // Of two devices one is lost: what needs it fails, all else goes on.
    san.stop().await;
    database.buffer_pool().clear();
    let error = refused(&mut session, join).await;
    assert_eq!(error.sqlstate(), "58030");
    assert!(error.to_string().contains("\"san\""), "{error}");
    assert_eq!(row(&mut session, FAR).await, "20001,200010000");
    drop((session, database));
    let database = open(directory.path()).await;
    let mut session = database.session();
    assert_eq!(row(&mut session, FAR).await, "20001,200010000");
    assert_eq!(refused(&mut session, "SELECT count(note) FROM farther").await.sqlstate(), "58030");
    let error = database.remove_device("san").await.unwrap_err();
    assert_eq!(error.sqlstate(), "2BP01");
    run(&mut session, "DROP TABLE farther").await;
    assert!(database.remove_device("san").await.unwrap().is_some(), "it could not be told");
    assert_eq!(rows(&mut session, "SELECT note FROM near").await, ["at home"]);
}
