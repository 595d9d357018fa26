//! Tests of index filters, where a scan reads an index on its own side: the same rows in every attach mode and split,
//! and index pages that are not sent.

use std::sync::Arc;

use cleave_device::{LocalListener, LocalOptions, Runtime};
use cleave_fragment::ending::end_in_background;
use cleave_fragment::link::DeviceService;
use cleave_host::{Database, LocalDevice, Session, SnapshotKind};
use cleave_media::{DirectFile, OpenMode, SplitMix64};

use crate::devices::{Served, TOKEN, anywhere, remote, token_file};
use crate::indexes::{INDEXES, conditions, numbers};
use crate::support::{batches, fresh, numbered, row, rows, run, runtime_options};

/// The server of a database's other device.
pub(crate) enum Serving {
    Nothing,
    Remote(#[expect(dead_code, reason = "held")] Served),
    Local(Option<tokio::runtime::Runtime>),
}

impl Drop for Serving {
    fn drop(&mut self) {
        if let Self::Local(runtime) = self
            && let Some(runtime) = runtime.take()
        {
            end_in_background(runtime);
        }
    }
}

/// A session whose new tables lie on the device that is [attached] so.
pub(crate) async fn session_on(database: &Arc<Database>, mode: &str) -> Session {
    let mut session = database.session();
    if mode != "embedded" {
        run(&mut session, "SET default_device = 'other'").await;
    }
    session
}

/// A database, and a device called other that is attached so; none where it is the embedded one.
pub(crate) async fn attached(
    mode: &str,
    outside: &std::path::Path,
) -> (tempfile::TempDir, Arc<Database>, Serving) {
    let (directory, database) = fresh().await;
    let media = outside.join("other.media");
    let served = match mode {
        "embedded" => Serving::Nothing,
        "remote" => {
            let served = Served::start(&media, [1; 16], anywhere()).await;
            let device = remote(served.address, token_file(outside, TOKEN));
            database.add_device("other", device).await.unwrap();
            Serving::Remote(served)
        }
        _ => {
            let socket = outside.join("device.sock");
            let runtime = tokio::runtime::Builder::new_multi_thread()
                .worker_threads(1)
                .enable_all()
                .build()
                .unwrap();
            let media = Arc::new(DirectFile::open(&media, OpenMode::Create).unwrap());
            let device: Arc<dyn DeviceService> =
                Runtime::new(media, runtime_options([2; 16])).unwrap();
            let log: Arc<dyn Fn(&str) + Send + Sync> = Arc::new(|_: &str| {});
            let options = LocalOptions { socket: socket.clone(), rate_cap: None, log };
            let listener = runtime.spawn(LocalListener::bind(device, options));
            let listener = listener.await.unwrap().unwrap();
            runtime.spawn(listener.serve());
            let device = LocalDevice { socket, rate_cap: None };
            database.add_device("other", device).await.unwrap();
            Serving::Local(Some(runtime))
        }
    };
    (directory, database, served)
}

/// The table of [`numbers`] with its indexes; most rows in bulk pages, some in hot ones, some keys in memtables.
pub(crate) async fn filled(session: &mut Session) {
    numbers(session).await;
    for sql in INDEXES {
        run(session, sql).await;
    }
    run(session, "INSERT INTO t SELECT id + 100000, few, many, word, f FROM t").await;
    let few = "INSERT INTO t VALUES (50001, 1, 17, 'w17', 17), (50002, 1, NULL, NULL, NULL), (50003, 4, 8005, 'w9', 3)";
    run(session, few).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_are_the_same_in_every_attach_mode_and_split() {
    for mode in ["embedded", "remote", "local"] {
        let outside = tempfile::tempdir().unwrap();
        let (_directory, database, _served) = attached(mode, outside.path()).await;
        let mut session = session_on(&database, mode).await;
        filled(&mut session).await;
        let mut random = SplitMix64::new(31);
        let mut there = 0;
        for condition in conditions(&mut random).into_iter().chain(["many = 17".to_owned()]) {
            let sql =
                format!("SELECT count(*), sum(id), min(word), max(many) FROM t WHERE {condition}");
            run(&mut session, "SET index_scan = off").await;
            run(&mut session, "SET split = auto").await;
            let expected = row(&mut session, &sql).await;
            run(&mut session, "SET index_scan = on").await;
            for split in ["host", "h0", "ndp", "auto"] {
                run(&mut session, &format!("SET split = {split}")).await;
                database.buffer_pool().clear();
                assert_eq!(row(&mut session, &sql).await, expected, "{mode}, {split}: {condition}");
                let explained = rows(&mut session, &format!("EXPLAIN {sql}")).await.join("\n");
                there += usize::from(explained.contains("the scan reads index"));
            }
        }
        assert_eq!(there > 20, mode != "embedded", "{mode}: {there} scans read an index");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_of_an_index_that_a_device_reads_do_not_cross_the_link() {
    let outside = tempfile::tempdir().unwrap();
    let (_directory, database, _served) = attached("remote", outside.path()).await;
    let mut session = database.session();
    run(&mut session, "SET default_device = 'other'").await;
    run(&mut session, "CREATE TABLE t (id int PRIMARY KEY, note text)").await;
    run(&mut session, "CREATE INDEX t_note ON t (note)").await;
    let parts = (0..8).map(|part| numbered(part * 12_500..(part + 1) * 12_500));
    session.load("t", batches(parts.collect()), None).await.unwrap();
    run(&mut session, "INSERT INTO t VALUES (1000000, 'note 77777 y')").await;
    database.snapshot(SnapshotKind::Flushed).await.unwrap();
    let sql = "SELECT count(*), sum(id) FROM t WHERE note LIKE 'note 77777 %'";
    let device = database.device_named("other").unwrap();
    let mut received = Vec::new();
    for split in ["h0", "host"] {
        run(&mut session, &format!("SET split = {split}")).await;
        database.buffer_pool().clear();
        let before = device.traffic();
        assert_eq!(row(&mut session, sql).await, "2,1077777", "{split}");
        received.push(device.traffic().since(before).received_bytes);
    }
    let [there, here] = received[..] else { panic!() };
    assert!(here > 64 << 10, "index and table cross: {received:?}");
    assert!(there < 4 << 10, "rows cross: {received:?}");
    run(&mut session, "SET split = h0").await;
    database.buffer_pool().clear();
    let analyzed = rows(&mut session, &format!("EXPLAIN ANALYZE {sql}")).await.join("\n");
    assert!(analyzed.contains("the scan reads index t_note"), "{analyzed}");
    // Held pages of the index are read while planning.
    run(&mut session, "SET split = host").await;
    assert_eq!(row(&mut session, sql).await, "2,1077777");
    run(&mut session, "SET split = h0").await;
    let explained = rows(&mut session, &format!("EXPLAIN {sql}")).await.join("\n");
    assert!(explained.contains("by index t_note: 2 entries"), "{explained}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_that_refuses_leaves_the_index_to_the_host() {
    let outside = tempfile::tempdir().unwrap();
    let (_directory, database, _served) = attached("remote", outside.path()).await;
    let mut session = database.session();
    run(&mut session, "SET default_device = 'other'").await;
    filled(&mut session).await;
    run(&mut session, "SET split = h0").await;
    // A ring for which no device has memory.
    run(&mut session, "SET slot_count = 1024").await;
    run(&mut session, "SET slot_bytes = '16MB'").await;
    let sql = "SELECT count(*), sum(id) FROM t WHERE many BETWEEN 100 AND 130";
    database.buffer_pool().clear();
    let analyzed = rows(&mut session, &format!("EXPLAIN ANALYZE {sql}")).await.join("\n");
    assert!(analyzed.contains("ran on the host"), "{analyzed}");
    let through = row(&mut session, sql).await;
    run(&mut session, "SET index_scan = off").await;
    assert_eq!(through, row(&mut session, sql).await);
}
