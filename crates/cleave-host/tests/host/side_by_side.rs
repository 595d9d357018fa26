//! Tests of tablets on several devices that are queried in parallel: no device waits until another one has answered.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cleave_host::check::CheckOptions;
use cleave_host::{Database, Session};
use futures::StreamExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::devices::{Served, TOKEN, anywhere, remote, token_file};
use crate::support::{assert_no_leak, fresh, refused, row, rows, run};
use crate::tablets::flushed;

/// Longer than any statement here takes, and shorter than the pause after which a link asks a silent device how it is.
const PATIENCE: Duration = Duration::from_secs(4);

/// A proxy before two devices. While it is armed, what the host sends to one of them waits until it has sent something
/// to the other one too.
struct Gate {
    /// Which devices were asked since it was armed; None: it is open.
    asked: watch::Sender<Option<[bool; 2]>>,
    /// A device was asked, and the other one was not, as long as it did not answer.
    missed: AtomicBool,
}

impl Gate {
    fn arm(&self) {
        self.asked.send_replace(Some([false; 2]));
    }

    /// Opens it; returns whether both devices were queried in parallel since it was armed.
    fn open(&self) -> bool {
        let asked = self.asked.send_replace(None);
        asked == Some([true; 2]) && !self.missed.swap(false, Ordering::Relaxed)
    }

    async fn pass(&self, device: usize) {
        self.asked.send_modify(|asked| {
            if let Some(asked) = asked {
                asked[device] = true;
            }
        });
        let mut asked = self.asked.subscribe();
        let both = asked.wait_for(|asked| asked.is_none_or(|asked| asked == [true; 2]));
        if tokio::time::timeout(PATIENCE, both).await.is_err() {
            self.missed.store(true, Ordering::Relaxed);
        }
    }

    /// Forwards what comes for the device at `address`, which has that number.
    async fn stand_before(
        self: Arc<Self>,
        listener: TcpListener,
        device: usize,
        address: SocketAddr,
    ) {
        let accepted = futures::stream::unfold(listener, |listener| async {
            let (host, _) = listener.accept().await.ok()?;
            Some((host, listener))
        });
        let connection = async |mut host: TcpStream| {
            let Ok(mut there) = TcpStream::connect(address).await else { return };
            let (mut from_host, mut to_host) = host.split();
            let (mut from_device, mut to_device) = there.split();
            let forth = async {
                let mut bytes = vec![0; 64 << 10];
                while let Ok(count @ 1..) = from_host.read(&mut bytes).await {
                    self.pass(device).await;
                    if to_device.write_all(&bytes[..count]).await.is_err() {
                        break;
                    }
                }
            };
            let back = tokio::io::copy(&mut from_device, &mut to_host);
            // Either end closes both.
            tokio::select! { () = forth => {}, _ = back => {} }
        };
        accepted.for_each_concurrent(None, connection).await;
    }
}

/// A database with the devices "nas" and "san" behind a gate.
struct Place {
    gate: Arc<Gate>,
    database: Arc<Database>,
    served: [Served; 2],
    _tasks: JoinSet<()>,
    _directory: tempfile::TempDir,
}

impl Place {
    async fn new(outside: &Path) -> Self {
        let (directory, database) = fresh().await;
        let token = token_file(outside, TOKEN);
        let asked = watch::Sender::new(None);
        let gate = Arc::new(Gate { asked, missed: AtomicBool::new(false) });
        let mut tasks = JoinSet::new();
        let mut served = Vec::new();
        for (number, name) in ["nas", "san"].into_iter().enumerate() {
            let identity = [u8::try_from(number).unwrap() + 1; 16];
            let media = outside.join(format!("{name}.media"));
            let device = Served::start(&media, identity, anywhere()).await;
            let listener = TcpListener::bind(anywhere()).await.unwrap();
            let before = listener.local_addr().unwrap();
            tasks.spawn(Arc::clone(&gate).stand_before(listener, number, device.address));
            database.add_device(name, remote(before, token.clone())).await.unwrap();
            served.push(device);
        }
        let served = served.try_into().unwrap_or_else(|_| unreachable!("two devices"));
        Self { gate, database, served, _tasks: tasks, _directory: directory }
    }

    /// Runs `sql` with an empty pool and the gate armed: its rows, and whether both devices were queried in parallel.
    async fn at_once(&self, session: &mut Session, sql: &str) -> (Vec<String>, bool) {
        self.database.buffer_pool().clear();
        self.gate.arm();
        let mut found = rows(session, sql).await;
        found.sort();
        (found, self.gate.open())
    }
}

/// 140,000 rows, of which the first 65,536 lie on "nas" and as many more on "san". A word is that of one row, or of
/// two, one on each of them.
async fn fill(session: &mut Session) {
    run(
        session,
        "CREATE TABLE t (id int, word text) WITH (devices = (nas, san), tablets = 4, tablet_by = load_order)",
    )
    .await;
    let rows = "SELECT v, 'w' || v::bigint * 7919 % 100003 FROM generate_series(1, 140000) AS s(v)";
    run(session, &format!("INSERT INTO t {rows}")).await;
}

/// The word of row `id`.
fn word(id: i64) -> String {
    format!("w{}", id * 7919 % 100_003)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn look_ups_ask_all_tablets_at_once() {
    let outside = tempfile::tempdir().unwrap();
    let place = Place::new(outside.path()).await;
    let mut session = place.database.session();
    fill(&mut session).await;
    run(&mut session, "CREATE INDEX t_word ON t (word)").await;
    run(&mut session, "CREATE UNIQUE INDEX t_word_id ON t (word, id)").await;
    let twice = ["100015".to_owned(), "12".to_owned()];
    let by_word = format!("SELECT id FROM t WHERE word = '{}'", word(12));
    let explained = rows(&mut session, &format!("EXPLAIN {by_word}")).await;
    assert!(
        explained[0].contains("in all 4 tablets, on the host, without a plan"),
        "{explained:?}"
    );
    assert_eq!(place.at_once(&mut session, &by_word).await, (twice.to_vec(), true));
    // With a plan.
    for split in ["host", "auto"] {
        run(&mut session, &format!("SET split = {split}")).await;
        let sql = format!("SELECT count(*), sum(id) FROM t WHERE word = '{}'", word(12));
        let (found, at_once) = place.at_once(&mut session, &sql).await;
        assert_eq!((found, at_once), (vec!["2,100027".to_owned()], true), "{split}");
        let explained = rows(&mut session, &format!("EXPLAIN {sql}")).await.join("\n");
        assert!(explained.contains("by index t_word"), "{explained}");
    }
    // Only one device has the row of a unique key, and its filters say so.
    let key = format!("SELECT id FROM t WHERE word = '{}' AND id = 100015", word(12));
    assert_eq!(row(&mut session, &key).await, "100015");
    place.database.buffer_pool().clear();
    let [nas, _] = place.served;
    nas.stop().await;
    assert_eq!(row(&mut session, &key).await, "100015");
    let error = refused(&mut session, &by_word).await;
    assert_eq!(error.sqlstate(), "58030", "{error}");
    assert!(error.to_string().contains("\"nas\""), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_index_is_built_of_all_tablets_at_once() {
    let outside = tempfile::tempdir().unwrap();
    let place = Place::new(outside.path()).await;
    let mut session = place.database.session();
    fill(&mut session).await;
    place.database.buffer_pool().clear();
    place.gate.arm();
    run(&mut session, "CREATE INDEX t_word ON t (word, id)").await;
    assert!(place.gate.open(), "one device after the other");
    let by_word = format!("SELECT id FROM t WHERE word = '{}'", word(12));
    assert_eq!(rows(&mut session, &by_word).await.len(), 2);
    let tablets = &place.database.catalog().table("t").unwrap().tablets.clone();
    let entries = |tablet: &Arc<cleave_host::catalog::TabletState>| -> u64 {
        tablet.indexes[0].runs().map(|run| run.row_count()).sum()
    };
    for tablet in tablets {
        assert_eq!(entries(tablet), tablet.row_count());
        assert!(tablet.indexes[0].runs().len() <= 1);
    }
    // Words that two tablets have.
    let error = refused(&mut session, "CREATE UNIQUE INDEX t_unique ON t (word)").await;
    assert_eq!(error.sqlstate(), "23505", "{error}");
    flushed(&place.database).await;
    run(&mut session, "CREATE UNIQUE INDEX t_unique ON t (id, word)").await;
    assert!(place.database.check(&CheckOptions::default()).await.unwrap().is_clean());
    assert_no_leak(&place.database);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_lost_during_a_build_undoes_it_on_all_devices() {
    let outside = tempfile::tempdir().unwrap();
    let place = Place::new(outside.path()).await;
    let mut session = place.database.session();
    fill(&mut session).await;
    place.database.buffer_pool().clear();
    let Place { gate: _, database, served: [nas, san], _tasks, _directory } = place;
    let address = san.address;
    let lost = async {
        tokio::time::sleep(Duration::from_millis(20)).await;
        san.stop().await;
    };
    let built = async {
        // It may be done before the device is gone.
        let mut built = session.run("CREATE INDEX t_word ON t (word, id)").await;
        while built.is_ok() {
            run(&mut session, "DROP INDEX t_word").await;
            database.buffer_pool().clear();
            built = session.run("CREATE INDEX t_word ON t (word, id)").await;
        }
        built.unwrap_err()
    };
    let (error, ()) = futures::future::join(built, lost).await;
    assert_eq!(error.sqlstate(), "58030", "{error}");
    assert!(error.to_string().contains("\"san\""), "{error}");
    assert_eq!(database.catalog().indexes().count(), 0);
    flushed(&database).await;
    let _san = Served::start(&outside.path().join("san.media"), [2; 16], address).await;
    run(&mut session, "CREATE INDEX t_word ON t (word, id)").await;
    assert!(database.check(&CheckOptions::default()).await.unwrap().is_clean());
    drop(nas);
}
