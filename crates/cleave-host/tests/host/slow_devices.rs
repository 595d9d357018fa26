//! Tests of devices that answer, and whose media do not sync, or take long for it: statements on other tables continue.

use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use cleave_host::{Database, Error, OpenOptions, Session};
use cleave_media::{AlignedBuffer, BlockAddress, Extent, Media, MediaError, Memory};
use datafusion::common::runtime::SpawnedTask;

use crate::devices::{Served, TOKEN, anywhere, remote, token_file};
use crate::durability::Slot;
use crate::support::{
    DEVICE, assert_no_leak, batches, beside, embedded, fragments, numbered, over, refused, row,
    rows, run, waits,
};

const FAR: &str = "SELECT count(*), sum(id) FROM far";
/// How long a device is waited for here.
const TIMEOUT: Duration = Duration::from_secs(4);
/// More than any statement may take on other tables: the holder of the writer lock waits two seconds for a device, at
/// most three times.
const LONG: Duration = Duration::from_secs(30);

/// Memory whose sync waits for permission.
#[derive(Debug, Default)]
struct Reluctant {
    memory: Memory,
    syncing: Mutex<Syncing>,
    moved: Condvar,
}

#[derive(Debug, Default, Clone, Copy, PartialEq)]
enum Syncing {
    #[default]
    AtOnce,
    Never,
    After(Duration),
}

impl Reluctant {
    fn set(&self, syncing: Syncing) {
        *self.syncing.lock().unwrap() = syncing;
        self.moved.notify_all();
    }
}

impl Media for Reluctant {
    fn read(&self, extent: Extent) -> Result<AlignedBuffer, MediaError> {
        self.memory.read(extent)
    }

    fn write(&self, start: BlockAddress, data: &[u8]) -> Result<(), MediaError> {
        self.memory.write(start, data)
    }

    fn sync(&self) -> Result<(), MediaError> {
        let syncing = self.syncing.lock().unwrap();
        let syncing = self.moved.wait_while(syncing, |now| *now == Syncing::Never).unwrap();
        if let Syncing::After(time) = *syncing {
            drop(self.moved.wait_timeout(syncing, time).unwrap());
        }
        self.memory.sync()
    }

    fn block_count(&self) -> u64 {
        self.memory.block_count()
    }

    fn grow_to(&self, block_count: u64) -> Result<(), MediaError> {
        self.memory.grow_to(block_count)
    }

    fn bytes_read(&self) -> u64 {
        self.memory.bytes_read()
    }

    fn bytes_written(&self) -> u64 {
        self.memory.bytes_written()
    }
}

struct Nas {
    /// Where it keeps whose it is.
    _outside: tempfile::TempDir,
    media: Arc<Reluctant>,
    served: Option<Served>,
}

impl Nas {
    async fn attached(database: &Arc<Database>) -> Self {
        let (outside, media) = (tempfile::tempdir().unwrap(), Arc::new(Reluctant::default()));
        let path = outside.path().join("nas.media");
        let served =
            Served::over(Arc::clone(&media) as Arc<dyn Media>, &path, [1; 16], anywhere()).await;
        let token = token_file(outside.path(), TOKEN);
        database.add_device("nas", remote(served.address, token)).await.unwrap();
        Self { _outside: outside, media, served: Some(served) }
    }
}

impl Drop for Nas {
    fn drop(&mut self) {
        self.media.set(Syncing::AtOnce);
        drop(self.served.take());
    }
}

async fn open(directory: &Path) -> Arc<Database> {
    let options = OpenOptions::new(embedded()).create(true).device_timeout(TIMEOUT);
    soon(Database::open(directory, options)).await.unwrap()
}

/// A table on each device, and commits of both that are in the log alone.
async fn with_nas() -> (tempfile::TempDir, Arc<Database>, Nas) {
    let directory = tempfile::tempdir().unwrap();
    let database = open(directory.path()).await;
    let nas = Nas::attached(&database).await;
    let mut session = database.session();
    run(&mut session, "CREATE TABLE near (id int PRIMARY KEY, note text)").await;
    run(&mut session, "CREATE TABLE far (id int PRIMARY KEY, note text) WITH (device = nas)").await;
    session.load("far", batches(vec![numbered(0..20_000)]), None).await.unwrap();
    run(&mut session, "INSERT INTO near VALUES (1, 'at home')").await;
    run(&mut session, "INSERT INTO far VALUES (20000, 'far away')").await;
    (directory, database, nas)
}

async fn soon<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(LONG, work).await.expect("it does not wait for a device of others")
}

/// Statements that need no page of the device that hangs: definitions, loads, commits and queries of tables at home.
async fn all_at_home_goes_on(session: &mut Session, turn: i32) {
    run(session, "SET shipped_delta_bytes = 0").await;
    for statement in [
        format!("CREATE TABLE t{turn} (id int, note text) WITH (device = embedded)"),
        format!("INSERT INTO t{turn} SELECT g, 'x' FROM generate_series(1, 30000) g"),
        format!("INSERT INTO near VALUES ({}, 'here')", turn + 10),
        "CHECKPOINT".to_owned(),
        format!("UPDATE near SET note = 'there' WHERE id = {}", turn + 10),
    ] {
        soon(run(session, &statement)).await;
    }
    let found = soon(row(session, "SELECT count(*) FROM near WHERE note = 'there'")).await;
    assert_eq!(found, (turn + 1).to_string());
    assert_eq!(soon(row(session, &format!("SELECT count(*) FROM t{turn}"))).await, "30000");
    soon(session.load(&format!("t{turn}"), batches(vec![numbered(0..5000)]), None)).await.unwrap();
    soon(run(session, &format!("DROP TABLE t{turn}"))).await;
}

fn assert_names_the_device(error: &Error) {
    assert_eq!(error.sqlstate(), "58030", "{error}");
    let text = error.to_string();
    assert!(text.contains("\"nas\"") && text.contains("--device-timeout"), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_that_never_syncs_delays_only_its_own_tables() {
    let (directory, database, nas) = Box::pin(with_nas()).await;
    let mut session = database.session();
    nas.media.set(Syncing::Never);
    all_at_home_goes_on(&mut session, 0).await;
    // Its own tables' statements fail in time.
    for statement in [
        FAR,
        "DELETE FROM far",
        "INSERT INTO far SELECT g, 'x' FROM generate_series(30000, 90000) g",
    ] {
        assert_names_the_device(&soon(refused(&mut session, statement)).await);
    }
    let load = soon(session.load("far", batches(vec![numbered(20_001..50_000)]), None)).await;
    assert_names_the_device(&load.unwrap_err());
    all_at_home_goes_on(&mut session, 1).await;
    // Also after a restart, at which it still hangs.
    drop((session, database));
    let database = open(directory.path()).await;
    let mut session = database.session();
    all_at_home_goes_on(&mut session, 2).await;
    assert_names_the_device(&soon(refused(&mut session, FAR)).await);
    nas.media.set(Syncing::AtOnce);
    for _ in 0..2 {
        assert_eq!(soon(row(&mut session, FAR)).await, "20001,200010000");
    }
    run(&mut session, "INSERT INTO far SELECT g, 'x' FROM generate_series(30000, 89999) g").await;
    run(&mut session, "CHECKPOINT").await;
    assert_eq!(row(&mut session, "SELECT count(*) FROM far").await, "80001");
    assert_no_leak(&database);
    drop((session, database));
    let database = open(directory.path()).await;
    assert_eq!(row(&mut database.session(), "SELECT count(*) FROM far").await, "80001");
    assert_eq!(rows(&mut database.session(), "SELECT id FROM near ORDER BY id").await.len(), 4);
}

/// A table is not meant where its name is a word of the text.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_name_of_a_table_in_the_text_delays_nothing() {
    let (_directory, database, nas) = Box::pin(with_nas()).await;
    let mut session = database.session();
    for statement in [
        "CREATE TABLE e (id int PRIMARY KEY) WITH (device = nas)",
        "CREATE TABLE child (id int REFERENCES e) WITH (device = embedded)",
        "CREATE TABLE parent (id int PRIMARY KEY, note text) WITH (device = embedded)",
        "CREATE TABLE held (id int REFERENCES parent) WITH (device = nas)",
        "INSERT INTO e VALUES (1)",
        "INSERT INTO parent VALUES (1, 'a')",
        "PREPARE named AS INSERT INTO near VALUES ($1, 'e')",
        "SET shipped_delta_bytes = 0",
    ] {
        run(&mut session, statement).await;
    }
    nas.media.set(Syncing::Never);
    run(&mut session, "INSERT INTO e VALUES (2)").await;
    let begun = tokio::time::Instant::now();
    for statement in [
        "SET application_name = 'e'",
        "BEGIN",
        "INSERT INTO near VALUES (2, 'e')",
        "END",
        "EXECUTE named (3)",
        "SELECT count(*) AS e FROM near AS e",
        "WITH e AS (SELECT 1) SELECT count(*) FROM e, near",
        "UPDATE parent SET note = 'e' WHERE id = 1",
        "SELECT 'far' FROM near WHERE note <> 'held'",
        "DELETE FROM child WHERE id = 3",
    ] {
        soon(run(&mut session, statement)).await;
    }
    // Once for the flush that gives the device up; its timeout would be waited for by each.
    let took = begun.elapsed();
    assert!(took < LONG, "{took:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn others_go_on_while_a_reader_waits_for_a_device() {
    let (_directory, database, nas) = Box::pin(with_nas()).await;
    nas.media.set(Syncing::Never);
    let mut reader = database.session();
    let reading = SpawnedTask::spawn(async move {
        run(&mut reader, "SET shipped_delta_bytes = 0").await;
        reader.run(FAR).await
    });
    tokio::time::sleep(Duration::from_millis(200)).await;
    all_at_home_goes_on(&mut database.session(), 0).await;
    assert_names_the_device(&soon(reading.join()).await.unwrap().unwrap_err());
    nas.media.set(Syncing::AtOnce);
    assert_eq!(soon(row(&mut database.session(), FAR)).await, "20001,200010000");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_that_takes_long_to_sync_is_waited_for() {
    let (_directory, database, nas) = Box::pin(with_nas()).await;
    nas.media.set(Syncing::After(Duration::from_millis(2500)));
    let mut session = database.session();
    run(&mut session, "SET shipped_delta_bytes = 0").await;
    // More than the holder of the writer lock waits, and less than the timeout.
    soon(run(&mut session, "CREATE TABLE other (id int) WITH (device = embedded)")).await;
    for id in 1..=3 {
        soon(run(&mut session, &format!("INSERT INTO far VALUES ({}, 'slow')", 20_000 + id))).await;
        let expected = (20_001 + id).to_string();
        assert_eq!(soon(row(&mut session, "SELECT count(*) FROM far")).await, expected);
    }
    session.load("far", batches(vec![numbered(30_000..50_000)]), None).await.unwrap();
    assert_eq!(soon(row(&mut session, "SELECT count(*) FROM far")).await, "40004");
}

/// A flush has written a longer last page when an update fragment pins the pages of the table. Published then, it
/// would hide the row behind it from the statement, which changes rows behind the fragment's pages row by row.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flush_under_way_leaves_the_pages_of_a_fragment() {
    let (_directory, database, nas) = Box::pin(with_nas()).await;
    let (mut holds, mut session) = (database.session(), database.session());
    run(&mut session, "CHECKPOINT; SET shipped_delta_bytes = 0").await;
    run(&mut session, "INSERT INTO far VALUES (20001, 'behind the last page')").await;
    run(&mut holds, "BEGIN; UPDATE far SET note = 'held' WHERE id = 5").await;
    nas.media.set(Syncing::Never);
    let flushing = beside(session, FAR);
    tokio::time::sleep(Duration::from_millis(200)).await;
    let mut changes = database.session();
    run(&mut changes, "SET update_placement = device").await;
    let mut changing = beside(changes, "UPDATE far SET note = 'new' WHERE id <> 20000");
    assert!(waits(&mut changing).await, "for the row that is held");
    nas.media.set(Syncing::AtOnce);
    assert_eq!(soon(flushing).await.unwrap().1, "done");
    run(&mut holds, "ROLLBACK").await;
    let (mut session, end) = soon(changing).await.unwrap();
    assert_eq!(end, "done");
    let old = "SELECT id, note FROM far WHERE note <> 'new'";
    assert_eq!(rows(&mut session, old).await, ["20000,far away"]);
    assert!(fragments(&database).await > 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_database_s_own_media_that_hang_stop_nothing_for_good() {
    let directory = tempfile::tempdir().unwrap();
    let media = Arc::new(Reluctant::default());
    let slot = Slot::new(Arc::clone(&media) as Arc<dyn Media>);
    let factory = {
        let media = Arc::clone(&media);
        Arc::new(move |_: &Path| over(Arc::clone(&media) as Arc<dyn Media>, DEVICE))
    };
    let options = OpenOptions::new(factory).create(true).device_timeout(Duration::from_secs(1));
    let database = Database::open(directory.path(), options).await.unwrap();
    let mut session = database.session();
    run(&mut session, "SET shipped_delta_bytes = 0").await;
    run(&mut session, "CREATE TABLE t (id int PRIMARY KEY)").await;
    run(&mut session, "INSERT INTO t VALUES (1)").await;
    assert_eq!(row(&mut session, "SELECT count(*) FROM t WHERE id > 0").await, "1");
    media.set(Syncing::Never);
    for _ in 0..3 {
        let error = soon(refused(&mut session, "CREATE TABLE u (id int)")).await;
        assert!(error.is_unanswered() && error.to_string().contains("\"embedded\""), "{error}");
        // Commits go by the log, and pages are written.
        soon(run(&mut session, "INSERT INTO t SELECT max(id) + 1 FROM t")).await;
    }
    assert_eq!(soon(row(&mut session, "SELECT count(*) FROM t WHERE id > 0")).await, "4");
    media.set(Syncing::AtOnce);
    tokio::time::sleep(Duration::from_millis(500)).await;
    run(&mut session, "CREATE TABLE u (id int)").await;
    drop((session, database));
    let database = slot.open(directory.path()).await;
    assert_eq!(row(&mut database.session(), "SELECT count(*) FROM t WHERE id > 0").await, "4");
}
