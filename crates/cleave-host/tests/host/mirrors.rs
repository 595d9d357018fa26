//! Tests of mirrors: tables whose pages lie on two devices, of which one is lost, damaged or wiped, or comes back with
//! what it had before.

use std::fs::File;
use std::net::SocketAddr;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cleave_host::check::CheckOptions;
use cleave_host::{Database, Session};
use cleave_media::BLOCK_SIZE;
use datafusion::common::runtime::SpawnedTask;

use crate::devices::{Served, TOKEN, anywhere, remote, token_file};
use crate::drain::{assert_clean, devices_of, filled, in_each_split, picture};
use crate::support::{batches, fresh, numbered, open, refused, row, rows, run};

/// A device elsewhere, which can be stopped, spoilt and started again.
struct Elsewhere {
    path: PathBuf,
    identity: [u8; 16],
    address: SocketAddr,
    served: Option<Served>,
}

impl Elsewhere {
    /// Starts device `name`, and attaches it.
    async fn attached(database: &Arc<Database>, outside: &Path, name: &str) -> Self {
        let identity = [name.as_bytes()[0]; 16];
        let path = outside.join(name).with_extension("media");
        let served = Served::start(&path, identity, anywhere()).await;
        let way = remote(served.address, token_file(outside, TOKEN));
        database.add_device(name, way).await.unwrap();
        Self { path, identity, address: served.address, served: Some(served) }
    }

    async fn stop(&mut self) {
        if let Some(served) = self.served.take() {
            served.stop().await;
        }
    }

    async fn start(&mut self) {
        self.served = Some(Served::start(&self.path, self.identity, self.address).await);
    }

    /// Writes other bytes over the blocks from `start` to `end`, while it is stopped.
    fn spoil(&self, start: u64, end: u64) {
        assert!(self.served.is_none());
        let file = File::options().write(true).open(&self.path).unwrap();
        let bytes = vec![0xa5; usize::try_from(end - start).unwrap() * BLOCK_SIZE];
        file.write_all_at(&bytes, start * BLOCK_SIZE as u64).unwrap();
    }

    /// The same over all of it.
    fn wipe(&self) {
        let length = std::fs::metadata(&self.path).unwrap().len();
        self.spoil(0, length / BLOCK_SIZE as u64);
    }
}

/// A database with the devices a and b, and the mirror m of these.
struct Mirrored {
    outside: tempfile::TempDir,
    directory: tempfile::TempDir,
    database: Arc<Database>,
    a: Elsewhere,
    b: Elsewhere,
}

async fn mirrored() -> Mirrored {
    let outside = tempfile::tempdir().unwrap();
    let (directory, database) = fresh().await;
    let a = Elsewhere::attached(&database, outside.path(), "a").await;
    let b = Elsewhere::attached(&database, outside.path(), "b").await;
    run(&mut database.session(), "CREATE DEVICE m WITH (mirrors = 'a, b')").await;
    Mirrored { outside, directory, database, a, b }
}

/// The copies of m that lack pages, as the database has it, which is what the newest manifest says.
fn stale(database: &Database) -> Vec<String> {
    let device = database.device_named("m").unwrap();
    let known = device.copies().into_iter().filter(|(_, is_stale)| *is_stale);
    let known: Vec<String> = known.map(|(copy, _)| copy.name().to_owned()).collect();
    let state = database.catalog();
    let mirror = state.device_named("m").unwrap().mirror().unwrap();
    let listed = mirror.copies.iter().filter(|copy| copy.is_stale);
    let listed = listed.map(|copy| state.devices[&copy.device].name.clone());
    assert_eq!(listed.collect::<Vec<_>>(), known);
    known
}

/// Resynchronises m, again where a device that has just come back still ends what it did before.
async fn resync(session: &mut Session) {
    for _ in 0..50 {
        match session.run("ALTER DEVICE m RESYNC").await {
            Ok(_) => return,
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
    run(session, "ALTER DEVICE m RESYNC").await;
}

/// Gives stale copies what they lack, as a server does it by itself.
async fn catch_up(database: &Database) {
    for _ in 0..50 {
        if database.resync_mirrors().await.is_ok() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    database.resync_mirrors().await.unwrap();
}

/// The blocks of m's pages: the first, and the one behind the last.
fn blocks(database: &Database) -> (u64, u64) {
    let extents = database.catalog().extents(database.device_named("m").unwrap().id());
    let start = extents.iter().map(|extent| extent.start.0).min().unwrap();
    (start, extents.iter().map(|extent| extent.end().0).max().unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn either_copy_answers_where_the_other_one_is_lost() {
    let Mirrored { outside: _outside, directory, database, mut a, mut b } = mirrored().await;
    let mut session = database.session();
    filled(&mut session, "WITH (device = m)").await;
    run(&mut session, "CREATE TABLE near (id int PRIMARY KEY); INSERT INTO near VALUES (1)").await;
    let before = picture(&mut session).await;
    in_each_split(&mut session, &before).await;
    run(&mut session, "CHECKPOINT").await;
    assert_clean(&database).await;
    assert_eq!(devices_of(&database, "t"), ["m"]);
    for lost in [&mut a, &mut b] {
        lost.stop().await;
        database.buffer_pool().clear();
        in_each_split(&mut session, &before).await;
        for stack in ["blk", "native", "ndp"] {
            database.buffer_pool().clear();
            run(&mut session, &format!("SET stack = {stack}")).await;
            assert_eq!(picture(&mut session).await, before, "{stack}");
        }
        run(&mut session, "RESET stack").await;
        lost.start().await;
    }
    // Reading alone makes no copy stale.
    assert_eq!(stale(&database), Vec::<String>::new());

    a.stop().await;
    b.stop().await;
    database.buffer_pool().clear();
    let count = "SELECT count(*), sum(length(note)) FROM t";
    let error = refused(&mut session, count).await;
    assert_eq!(error.sqlstate(), "58030", "{error}");
    let is_named = ["\"a\"", "\"b\"", "\"m\""].iter().any(|name| error.to_string().contains(name));
    assert!(is_named, "{error}");
    assert_eq!(row(&mut session, "SELECT id FROM near").await, "1");
    run(&mut session, "INSERT INTO near VALUES (2)").await;
    b.start().await;
    in_each_split(&mut session, &before).await;
    a.start().await;
    drop(session);
    drop(database);
    let database = open(directory.path()).await;
    in_each_split(&mut database.session(), &before).await;
    assert_clean(&database).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_that_has_missed_writes_is_stale_until_it_is_resynchronised() {
    let Mirrored { outside: _outside, directory, database, mut a, mut b } = mirrored().await;
    let mut session = database.session();
    filled(&mut session, "WITH (device = m)").await;
    run(&mut session, "CHECKPOINT").await;
    b.stop().await;
    run(
        &mut session,
        "INSERT INTO t SELECT i, 'since ' || i, i FROM generate_series(70001, 75000) AS g (i)",
    )
    .await;
    run(&mut session, "UPDATE t SET note = note || '?' WHERE id % 7 = 1; CHECKPOINT").await;
    assert_eq!(stale(&database), ["b"]);
    let shown = "SELECT kind, address, state, error FROM cleave.devices WHERE name = 'm'";
    let shown = row(&mut session, shown).await;
    assert!(shown.starts_with("mirror,a, b,degraded,of its copies, b lack pages"), "{shown}");
    let before = picture(&mut session).await;
    drop((session, database));

    // It has nothing any more, and is asked for nothing.
    b.wipe();
    b.start().await;
    let database = open(directory.path()).await;
    let mut session = database.session();
    assert_eq!(stale(&database), ["b"]);
    in_each_split(&mut session, &before).await;
    a.stop().await;
    database.buffer_pool().clear();
    let count = "SELECT count(*), sum(length(note)) FROM t";
    assert_eq!(refused(&mut session, count).await.sqlstate(), "58030");
    assert_eq!(refused(&mut session, "ALTER DEVICE m RESYNC").await.sqlstate(), "58030");
    a.start().await;

    resync(&mut session).await;
    assert_eq!(stale(&database), Vec::<String>::new());
    a.stop().await;
    database.buffer_pool().clear();
    in_each_split(&mut session, &before).await;
    run(&mut session, "INSERT INTO t VALUES (80001, 'alone', 1); CHECKPOINT").await;
    assert_eq!(stale(&database), ["a"]);
    // As a server does it by itself.
    assert_eq!(database.resync_mirrors().await.unwrap_err().sqlstate(), "58030");
    assert_eq!(stale(&database), ["a"]);
    a.start().await;
    catch_up(&database).await;
    assert_eq!(stale(&database), Vec::<String>::new());
    b.stop().await;
    database.buffer_pool().clear();
    assert_eq!(row(&mut session, "SELECT note FROM t WHERE id = 80001").await, "alone");
    b.start().await;
    let report = database.check(&CheckOptions::default()).await.unwrap();
    assert!(report.is_clean(), "{:#?}", report.findings);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_written_without_a_copy_is_given_to_it_before_it_is_committed() {
    let Mirrored { outside: _outside, directory, database, mut a, mut b } = mirrored().await;
    let mut session = database.session();
    filled(&mut session, "WITH (device = m)").await;
    run(&mut session, "CHECKPOINT").await;
    b.stop().await;
    run(&mut session, "INSERT INTO t VALUES (80001, 'without b', 1); CHECKPOINT").await;
    assert_eq!(stale(&database), ["b"]);
    b.start().await;
    // Pages of both are written before b is current, and named by commits after it.
    let mut writer = database.session();
    run(&mut writer, "BEGIN; CREATE TABLE u (id int PRIMARY KEY, note text) WITH (device = m)")
        .await;
    let fill = "INSERT INTO u SELECT i, 'row ' || i FROM generate_series(1, 50000) AS g (i)";
    run(&mut writer, fill).await;
    let mut changer = database.session();
    run(&mut changer, "BEGIN; SET update_placement = device").await;
    run(&mut changer, "UPDATE t SET note = note || '+' WHERE id % 2 = 0").await;
    resync(&mut session).await;
    assert_eq!(stale(&database), Vec::<String>::new());
    run(&mut writer, "COMMIT").await;
    run(&mut changer, "COMMIT").await;
    let queries = [
        "SELECT count(*), sum(id), sum(length(note)) FROM u",
        "SELECT count(*), sum(length(note)) FROM t",
    ];
    let before = [row(&mut session, queries[0]).await, row(&mut session, queries[1]).await];
    assert!(before[0].starts_with("50000,"), "{before:?}");
    assert_eq!(stale(&database), Vec::<String>::new());
    drop((session, writer, changer));
    drop(database);
    a.stop().await;
    let database = open(directory.path()).await;
    let mut session = database.session();
    for (query, expected) in queries.into_iter().zip(before) {
        assert_eq!(row(&mut session, query).await, expected, "{query}");
    }
    a.start().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damage_on_one_copy_is_read_around_and_repaired() {
    let Mirrored { outside: _outside, directory: _directory, database, mut a, mut b } =
        mirrored().await;
    let mut session = database.session();
    filled(&mut session, "WITH (device = m)").await;
    run(&mut session, "CHECKPOINT").await;
    let before = picture(&mut session).await;
    let (start, end) = blocks(&database);
    a.stop().await;
    a.spoil(start, end);
    a.start().await;
    database.buffer_pool().clear();
    in_each_split(&mut session, &before).await;
    run(&mut session, "SET stack = blk").await;
    database.buffer_pool().clear();
    assert_eq!(picture(&mut session).await, before);
    run(&mut session, "RESET stack").await;
    assert_eq!(stale(&database), Vec::<String>::new());
    let report = database.check(&CheckOptions::default()).await.unwrap();
    assert!(!report.is_clean());
    let mut devices = report.findings.kept().iter().map(|finding| finding.place.device.as_deref());
    assert!(devices.all(|device| device == Some("a")), "{:#?}", report.findings);
    let mut advice = report.findings.kept().iter().map(|finding| finding.advice());
    assert!(advice.all(|advice| advice.contains("ALTER DEVICE \"m\" RESYNC")));
    resync(&mut session).await;
    assert_clean(&database).await;
    b.stop().await;
    database.buffer_pool().clear();
    in_each_split(&mut session, &before).await;

    // On both copies nothing is left to read, of this table.
    run(&mut session, "CREATE TABLE near (id int PRIMARY KEY); INSERT INTO near VALUES (1)").await;
    b.spoil(start, end);
    b.start().await;
    a.stop().await;
    a.spoil(start, end);
    a.start().await;
    database.buffer_pool().clear();
    let count = "SELECT count(*), sum(length(note)) FROM t";
    let error = refused(&mut session, count).await;
    assert_eq!(error.sqlstate(), "XX001", "{error}");
    assert_eq!(refused(&mut session, "ALTER DEVICE m RESYNC").await.sqlstate(), "XX001");
    assert_eq!(row(&mut session, "SELECT id FROM near").await, "1");
    let report = database.check(&CheckOptions::default()).await.unwrap();
    assert!(!report.is_clean());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_that_comes_back_with_old_media_is_read_around_and_repaired() {
    let Mirrored { outside, directory: _directory, database, mut a, mut b } = mirrored().await;
    let mut session = database.session();
    let places = || database.catalog().extents(database.device_named("m").unwrap().id());
    let filled_with = |word: &str| {
        format!("INSERT INTO t SELECT i, '{word} ' || i FROM generate_series(1, 20000) AS g (i)")
    };
    run(&mut session, "CREATE TABLE t (id int PRIMARY KEY, note text) WITH (device = m)").await;
    run(&mut session, &filled_with("old")).await;
    run(&mut session, "CHECKPOINT").await;
    let before = places();
    a.stop().await;
    let kept = outside.path().join("kept");
    std::fs::copy(&a.path, &kept).unwrap();
    a.start().await;
    all_answer(&database).await;
    // Until pages of the same shape lie where others did, each sound by itself.
    let mut is_reused = false;
    for _ in 0..5 {
        run(&mut session, "TRUNCATE t; CHECKPOINT").await;
        run(&mut session, &filled_with("new")).await;
        run(&mut session, "CHECKPOINT").await;
        let now = places();
        is_reused = now.iter().any(|extent| before.iter().any(|old| old.overlaps(*extent)));
        if is_reused {
            break;
        }
    }
    assert!(is_reused, "{before:?}, then {:?}", places());
    resync(&mut session).await;
    assert_eq!(stale(&database), Vec::<String>::new());

    a.stop().await;
    std::fs::copy(&kept, &a.path).unwrap();
    a.start().await;
    all_answer(&database).await;
    // It is the one that is read first.
    let sql = "SELECT count(*), count(*) FILTER (WHERE note LIKE 'new %') FROM t";
    for split in ["host", "h0", "ndp", "auto"] {
        run(&mut session, &format!("SET split = {split}")).await;
        database.buffer_pool().clear();
        assert_eq!(row(&mut session, sql).await, "20000,20000", "{split}");
    }
    // By itself it gives no rows rather than those it had.
    b.stop().await;
    for split in ["host", "h0", "ndp", "auto"] {
        run(&mut session, &format!("SET split = {split}")).await;
        database.buffer_pool().clear();
        let error = refused(&mut session, sql).await;
        assert!(["58030", "XX001"].contains(&error.sqlstate()), "{split}: {error}");
    }
    b.start().await;
    all_answer(&database).await;
    let report = database.check(&CheckOptions::default()).await.unwrap();
    assert!(!report.is_clean());
    let mut devices = report.findings.kept().iter().map(|finding| finding.place.device.as_deref());
    assert!(devices.all(|device| device == Some("a")), "{:#?}", report.findings);
    resync(&mut session).await;
    let report = database.check(&CheckOptions::default()).await.unwrap();
    assert!(report.is_clean(), "{:#?}", report.findings);
    b.stop().await;
    database.buffer_pool().clear();
    assert_eq!(row(&mut session, sql).await, "20000,20000");
    b.start().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writers_and_readers_go_on_while_copies_are_lost_and_come_back() {
    let Mirrored { outside: _outside, directory, database, mut a, mut b } = mirrored().await;
    let mut session = database.session();
    run(&mut session, "CREATE TABLE t (id int PRIMARY KEY, note text) WITH (device = m)").await;
    session.load("t", batches(vec![numbered(0..50_000)]), None).await.unwrap();
    let done = Arc::new(AtomicBool::new(false));
    let mut tasks = Vec::new();
    for kind in 0..3_u32 {
        let (mut session, done) = (database.session(), Arc::clone(&done));
        tasks.push(SpawnedTask::spawn(async move {
            let mut count = 0_u32;
            while !done.load(Ordering::Relaxed) {
                let (key, id) = (count * 7919 % 50_000, 100_000 + count);
                match kind {
                    0 => {
                        run(&mut session, &format!("INSERT INTO t VALUES ({id}, 'new')")).await;
                        if count % 50 == 49 {
                            run(&mut session, "CHECKPOINT").await;
                        }
                    }
                    1 => {
                        let sql = format!("UPDATE t SET note = note || '.' WHERE id = {key}");
                        run(&mut session, &sql).await;
                    }
                    _ => {
                        let sql = "SELECT count(*) FROM t WHERE id < 50000";
                        assert_eq!(row(&mut session, sql).await, "50000");
                    }
                }
                count += 1;
            }
            count
        }));
    }
    for _ in 0..2 {
        for lost in [&mut a, &mut b] {
            tokio::time::sleep(Duration::from_millis(200)).await;
            lost.stop().await;
            database.buffer_pool().clear();
            tokio::time::sleep(Duration::from_millis(500)).await;
            lost.start().await;
            resync(&mut session).await;
        }
    }
    done.store(true, Ordering::Relaxed);
    let mut counts = Vec::new();
    for task in tasks {
        counts.push(task.await.unwrap());
    }
    assert!(counts.iter().all(|count| *count > 0), "{counts:?}");
    let queries = [
        ("SELECT count(*) FROM t", (50_000 + counts[0]).to_string()),
        ("SELECT sum(length(note) - length(replace(note, '.', ''))) FROM t", counts[1].to_string()),
    ];
    for (query, expected) in &queries {
        assert_eq!(row(&mut session, query).await, *expected);
    }
    run(&mut session, "CHECKPOINT").await;
    resync(&mut session).await;
    drop((session, database));
    for lost in [&mut a, &mut b] {
        lost.stop().await;
        let database = open(directory.path()).await;
        for (query, expected) in &queries {
            assert_eq!(row(&mut database.session(), query).await, *expected);
        }
        drop(database);
        lost.start().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tables_become_mirrored_and_move_to_other_mirrors() {
    let Mirrored { outside, directory: _directory, database, mut a, b: _b } = mirrored().await;
    let _c = Elsewhere::attached(&database, outside.path(), "c").await;
    let mut session = database.session();
    filled(&mut session, "WITH (device = a)").await;
    let before = picture(&mut session).await;
    run(&mut session, "ALTER DEVICE a DRAIN TO m").await;
    assert_eq!(devices_of(&database, "t"), ["m"]);
    in_each_split(&mut session, &before).await;
    assert_clean(&database).await;
    // Without a copy for good, it goes to another mirror.
    a.stop().await;
    run(&mut session, "CREATE DEVICE n WITH (mirrors = 'b, c'); ALTER DEVICE m DRAIN").await;
    assert_eq!(devices_of(&database, "t"), ["n"]);
    database.buffer_pool().clear();
    in_each_split(&mut session, &before).await;
    run(&mut session, "DROP DEVICE m; DROP DEVICE a").await;
    in_each_split(&mut session, &before).await;
    run(&mut session, "UPDATE t SET n = n + 1; VACUUM FULL t; CHECKPOINT").await;
    assert_clean(&database).await;
    run(&mut session, "ALTER DEVICE n DRAIN TO embedded; DROP DEVICE n; CHECKPOINT").await;
    assert_clean(&database).await;
    run(&mut session, "DROP DEVICE b; DROP DEVICE c").await;
    assert_eq!(
        row(&mut session, "SELECT count(*) FROM t").await,
        before[0][0].split(',').next().unwrap()
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_can_be_no_mirror_is_refused() {
    let Mirrored { outside: _outside, directory: _directory, database, a: _a, mut b } =
        mirrored().await;
    let mut session = database.session();
    run(&mut session, "CREATE TABLE t (id int) WITH (device = m); INSERT INTO t VALUES (1)").await;
    for (sql, code, words) in [
        ("CREATE DEVICE m WITH (mirrors = 'a, b')", "42710", "\"m\""),
        ("CREATE DEVICE x WITH (mirrors = 'a, bb')", "42704", "\"bb\""),
        ("CREATE DEVICE x WITH (mirrors = 'a')", "22023", "two copies or more"),
        ("CREATE DEVICE x WITH (mirrors = 'a, a')", "22023", "named twice"),
        ("CREATE DEVICE x WITH (mirrors = 'a, embedded')", "22023", "the database's own"),
        ("CREATE DEVICE x WITH (mirrors = 'a, m')", "22023", "a mirror cannot be"),
        ("DROP DEVICE a", "22023", "it is a copy of mirror \"m\""),
        ("DROP DEVICE m", "2BP01", "tables are stored on it: t"),
        ("ALTER DEVICE a RESYNC", "22023", "device \"a\" is no mirror"),
        ("ALTER DEVICE m DRAIN", "55000", "no other device answers"),
        ("ALTER SYSTEM SET log_replica = 'm'", "55000", "it is a mirror"),
        ("BEGIN; ALTER DEVICE m RESYNC", "25001", "transaction block"),
    ] {
        let error = refused(&mut session, sql).await;
        assert_eq!(error.sqlstate(), code, "{sql}: {error}");
        assert!(error.to_string().contains(words), "{sql}: {error}");
    }
    run(&mut session, "ROLLBACK").await;
    // Before a table is moved.
    run(
        &mut session,
        "ALTER SYSTEM SET log_replica = 'a'; CREATE TABLE u (id int) WITH (device = a)",
    )
    .await;
    let error = refused(&mut session, "ALTER DEVICE a DRAIN TO m").await;
    assert!(error.to_string().contains("none of the other devices can take"), "{error}");
    assert_eq!(devices_of(&database, "u"), ["a"]);
    run(&mut session, "ALTER SYSTEM RESET log_replica").await;
    b.stop().await;
    let error = refused(&mut session, "CREATE DEVICE x WITH (mirrors = 'a, b')").await;
    assert_eq!(error.sqlstate(), "58030", "{error}");
    assert_eq!(row(&mut session, "SELECT count(*) FROM t").await, "1");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mirror_is_removed_once_log_replicas_need_no_page_of_it() {
    let (directory, database) = fresh().await;
    let (_outside, [_a, _b, mut c]) = three(&database).await;
    let mut session = database.session();
    run(&mut session, "CREATE DEVICE m WITH (mirrors = 'a, b')").await;
    filled(&mut session, "WITH (device = m)").await;
    run(&mut session, "ALTER SYSTEM SET log_replica = 'c'; CHECKPOINT").await;
    run(&mut session, "CREATE TABLE u (id int) WITH (device = a); DROP TABLE t").await;
    let mirror = database.device_named("m").unwrap().id();
    assert!(database.catalog().upkeep.kept.contains_key(&mirror));
    c.stop().await;
    // The replica cannot follow, and has a manifest with pages of the mirror.
    assert!(session.run("DROP DEVICE m").await.is_err());
    assert_eq!(mirrors(&database), ["m"]);
    c.start().await;
    all_answer(&database).await;
    run(&mut session, "DROP DEVICE m").await;
    assert_eq!(mirrors(&database), Vec::<String>::new());
    drop((session, database));
    let database = open(directory.path()).await;
    assert_clean(&database).await;
    assert_eq!(row(&mut database.session(), "SELECT count(*) FROM u").await, "0");
}

/// The devices a, b and c, no mirror of these, and where they lie.
async fn three(database: &Arc<Database>) -> (tempfile::TempDir, [Elsewhere; 3]) {
    let outside = tempfile::tempdir().unwrap();
    let a = Elsewhere::attached(database, outside.path(), "a").await;
    let b = Elsewhere::attached(database, outside.path(), "b").await;
    let c = Elsewhere::attached(database, outside.path(), "c").await;
    (outside, [a, b, c])
}

/// Waits until all devices answer: one that has just come back need not do so at once.
async fn all_answer(database: &Database) {
    for device in database.devices() {
        for _ in 0..50 {
            if device.status().await.is_ok() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        device.status().await.unwrap();
    }
}

/// The names of all mirrors, in the order in which they were made.
fn mirrors(database: &Database) -> Vec<String> {
    let devices = database.devices().into_iter().filter(|device| device.is_mirror());
    devices.map(|device| device.name().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_says_how_many_of_its_devices_have_each_page() {
    let (directory, database) = fresh().await;
    let (_outside, [mut a, mut b, mut c]) = three(&database).await;
    let mut session = database.session();
    filled(&mut session, "WITH (devices = (a, b, c), mirrors = 2)").await;
    run(&mut session, "CHECKPOINT").await;
    assert_eq!(devices_of(&database, "t"), ["a+b", "b+c", "c+a"]);
    let copies = "SELECT device, copies FROM cleave.tablets WHERE table_name = 't' ORDER BY tablet";
    assert_eq!(rows(&mut session, copies).await, ["a+b,a, b", "b+c,b, c", "c+a,c, a"]);
    assert_clean(&database).await;
    let before = picture(&mut session).await;
    for lost in [&mut a, &mut b, &mut c] {
        lost.stop().await;
        database.buffer_pool().clear();
        in_each_split(&mut session, &before).await;
        lost.start().await;
        all_answer(&database).await;
    }

    b.stop().await;
    run(
        &mut session,
        "INSERT INTO t SELECT i, 'since ' || i, i FROM generate_series(70001, 75000) AS g (i)",
    )
    .await;
    run(&mut session, "CHECKPOINT").await;
    let lacking = ["a+b,a, b (stale)", "b+c,b (stale), c", "c+a,c, a"];
    assert_eq!(rows(&mut session, copies).await, lacking);
    let before = picture(&mut session).await;
    // Mirrors that are there take a table meanwhile. Of new ones all are made, or none.
    run(&mut session, "CREATE TABLE u (id int) WITH (devices = (a, b, c), mirrors = 2)").await;
    let other = "CREATE TABLE v (id int) WITH (devices = (c, b, a), mirrors = 2)";
    assert_eq!(refused(&mut session, other).await.sqlstate(), "58030");
    assert_eq!(mirrors(&database), ["a+b", "b+c", "c+a"]);
    b.start().await;
    all_answer(&database).await;
    catch_up(&database).await;
    assert_eq!(rows(&mut session, copies).await, ["a+b,a, b", "b+c,b, c", "c+a,c, a"]);
    run(&mut session, other).await;
    assert_eq!(devices_of(&database, "v"), ["c+b", "b+a", "a+c"]);
    drop((session, database));
    c.stop().await;
    let database = open(directory.path()).await;
    in_each_split(&mut database.session(), &before).await;
    c.start().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_way_to_make_and_divide_a_table_takes_mirrors() {
    let (directory, database) = fresh().await;
    let (_outside, [mut a, _b, _c]) = three(&database).await;
    let mut session = database.session();
    // One that is there is taken, whatever its name.
    run(&mut session, "CREATE DEVICE both WITH (mirrors = 'a, b')").await;
    run(
        &mut session,
        "CREATE TABLE r (id int, note text)
             WITH (mirrors = 2, devices = (a, b), tablet_by = range (id), bounds = (3000))",
    )
    .await;
    run(
        &mut session,
        "INSERT INTO r SELECT i, 'note ' || i FROM generate_series(1, 9000) AS g (i)",
    )
    .await;
    assert_eq!(devices_of(&database, "r"), ["both", "b+a"]);
    run(
        &mut session,
        "CREATE TABLE s WITH (devices = (a * 2, b, c), mirrors = 3, tablet_by = round_robin)
             AS SELECT * FROM r",
    )
    .await;
    let mut placed = devices_of(&database, "s");
    placed.sort_unstable();
    assert_eq!(placed, ["a+b+c", "a+b+c", "b+c+a", "c+a+b"]);
    run(
        &mut session,
        "CREATE MATERIALIZED VIEW w WITH (devices = (b, c), mirrors = 2)
             AS SELECT id % 10 AS k, count(*) AS n FROM r GROUP BY 1",
    )
    .await;
    assert_eq!(devices_of(&database, "w"), ["b+c", "c+b"]);
    run(&mut session, "SET default_device = 'a, b'; CREATE TABLE d (id int) WITH (mirrors = 2)")
        .await;
    assert_eq!(devices_of(&database, "d"), ["both", "b+a"]);
    run(&mut session, "CREATE TABLE e (id int) WITH (mirrors = 1)").await;
    assert_eq!(devices_of(&database, "e"), ["a", "b"]);
    // Within a block as well; the mirrors are not part of it.
    run(
        &mut session,
        "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM r;
         CREATE TABLE f (id int) WITH (devices = (c, a), mirrors = 2);
         INSERT INTO f VALUES (1), (2)",
    )
    .await;
    assert_eq!(row(&mut session, "SELECT sum(id) FROM f").await, "3");
    run(&mut session, "ROLLBACK").await;
    let made = ["both", "b+a", "a+b+c", "b+c+a", "c+a+b", "b+c", "c+b", "c+a", "a+c"];
    assert_eq!(mirrors(&database), made);
    drop((session, database));

    a.stop().await;
    let database = open(directory.path()).await;
    let mut session = database.session();
    assert_eq!(mirrors(&database), made);
    for table in ["r", "s"] {
        let all = format!("SELECT count(*), sum(id), count(DISTINCT note) FROM {table}");
        assert_eq!(row(&mut session, &all).await, "9000,40504500,9000", "{table}");
    }
    assert_eq!(row(&mut session, "SELECT sum(n) FROM w").await, "9000");
    a.start().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_that_cannot_be_mirrored_is_refused() {
    let (_directory, database) = fresh().await;
    let (_outside, _three) = three(&database).await;
    let mut session = database.session();
    run(&mut session, "CREATE DEVICE \"b+c\" WITH (mirrors = 'a, b')").await;
    for (with, code, words) in [
        ("devices = (a, b), mirrors = 3", "22023", "mirrors = 3 over 2 devices (a, b)"),
        ("device = 'b+c', mirrors = 2", "22023", "mirrors = 2 over 1 devices"),
        ("devices = (a, b), mirrors = 0", "22023", "mirrors = 0"),
        ("devices = (a, b), mirrors = -1", "22023", "mirrors = -1"),
        ("devices = (a, d), mirrors = 2", "42704", "\"d\""),
        ("devices = (a, c, embedded), mirrors = 2", "22023", "the database's own device"),
        ("devices = (a, 'b+c'), mirrors = 2", "22023", "a mirror cannot be a copy"),
        ("devices = (b, c), mirrors = 2", "42710", "\"b+c\""),
    ] {
        let sql = format!("CREATE TABLE t (id int) WITH ({with})");
        let error = refused(&mut session, &sql).await;
        assert_eq!(error.sqlstate(), code, "{sql}: {error}");
        assert!(error.to_string().contains(words), "{sql}: {error}");
    }
    assert_eq!(mirrors(&database), ["b+c"]);

    run(&mut session, "CREATE ROLE bob LOGIN; GRANT CREATE ON SCHEMA public TO bob").await;
    let mut bob = database.session();
    bob.log_in("bob").unwrap();
    let sql = "CREATE TABLE t (id int) WITH (devices = (a, c), mirrors = 2)";
    assert_eq!(refused(&mut bob, sql).await.sqlstate(), "42501");
    assert_eq!(mirrors(&database), ["b+c"]);
    run(&mut session, "CREATE TABLE u (id int) WITH (devices = (a, c), mirrors = 2)").await;
    run(&mut bob, sql).await;
    assert_eq!(devices_of(&database, "t"), ["a+c", "c+a"]);
}
