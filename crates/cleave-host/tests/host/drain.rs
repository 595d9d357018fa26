//! Tests of devices that are attached, drained and removed while the database is in use: rows, row ids and snapshots
//! stay, and nothing is left behind.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cleave_host::check::CheckOptions;
use cleave_host::{Database, DeviceId, Session};
use datafusion::common::runtime::SpawnedTask;

use crate::devices::{Served, TOKEN, anywhere, attach_nas, remote, token_file, with_nas};
use crate::failover::{reopened, taken};
use crate::full_media::Bounded;
use crate::index_filter::attached;
use crate::support::{
    answer, assert_no_leak, batches, beside, fragments, fresh, numbered, open, refused, row, rows,
    run, waits,
};

/// Tables with all that can lie on a device: bulk and hot pages, page versions, dead rows, long values, runs and
/// memtables of indexes, and rows that are still in the delta.
pub(crate) async fn filled(session: &mut Session, placement: &str) {
    let create = format!("CREATE TABLE t (id int PRIMARY KEY, note text, n int) {placement}");
    run(session, &create).await;
    run(
        session,
        "INSERT INTO t SELECT i, 'note ' || i, i % 100 FROM generate_series(1, 30000) AS g (i)",
    )
    .await;
    for sql in [
        "CREATE INDEX t_n ON t (n)",
        "CHECKPOINT",
        "SET update_placement = device",
        "UPDATE t SET note = note || '!' WHERE id % 3 = 0",
        "RESET update_placement",
        "INSERT INTO t SELECT i, repeat('long ', 9000), 7 FROM generate_series(40001, 40005) AS g (i)",
        "DELETE FROM t WHERE id % 17 = 4",
        "INSERT INTO t SELECT i, 'late ' || i, i FROM generate_series(50001, 50300) AS g (i)",
        "INSERT INTO t VALUES (60001, 'last', 1)",
    ] {
        run(session, sql).await;
    }
}

const QUERIES: [&str; 6] = [
    "SELECT count(*), sum(id), sum(n), count(DISTINCT note), sum(length(note)) FROM t",
    "SELECT id, note FROM t WHERE id IN (3, 4, 5, 50007, 60001)",
    "SELECT count(*), max(id) FROM t WHERE n = 7",
    "SELECT id FROM t WHERE note LIKE 'note 77%' ORDER BY id",
    "SELECT a.id FROM t AS a JOIN t AS b ON a.id = b.n WHERE b.id BETWEEN 50001 AND 50020",
    "SELECT id, n FROM t WHERE id BETWEEN 50290 AND 60001",
];

pub(crate) async fn picture(session: &mut Session) -> Vec<Vec<String>> {
    let mut picture = Vec::new();
    for query in QUERIES {
        picture.push(answer(session, query).await);
    }
    picture
}

pub(crate) async fn in_each_split(session: &mut Session, expected: &[Vec<String>]) {
    for split in ["auto", "host"] {
        run(session, &format!("SET split = {split}")).await;
        assert_eq!(picture(session).await, expected, "{split}");
    }
    run(session, "RESET split").await;
}

pub(crate) async fn assert_clean(database: &Arc<Database>) {
    let report = database.check(&CheckOptions::default()).await.unwrap();
    assert!(report.is_clean(), "{:#?}", report.findings);
    assert_no_leak(database);
}

pub(crate) fn devices_of(database: &Database, table: &str) -> Vec<String> {
    let state = database.catalog();
    let tablets = state.tables[table].tablets.iter();
    tablets.map(|t| database.attached(t.device).unwrap().name().to_owned()).collect()
}

/// Blocks of the device that are in use, after a moment for tasks that have just ended.
pub(crate) async fn used(database: &Arc<Database>, device: &str) -> u64 {
    let device = database.device_named(device).unwrap();
    let mut used = 0;
    for _ in 0..100 {
        run(&mut database.session(), "CHECKPOINT").await;
        used = device.space().used_blocks;
        if used == 0 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    used
}

/// Attaches a second device, by a statement.
pub(crate) async fn attach_san(session: &mut Session, outside: &Path) -> Served {
    let san = Served::start(&outside.join("san.media"), [2; 16], anywhere()).await;
    let token = token_file(outside, TOKEN);
    let sql = format!(
        "CREATE DEVICE san WITH (address = '{}', token_file = '{}')",
        san.address,
        token.display()
    );
    run(session, &sql).await;
    san
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tables_move_from_and_to_devices_of_every_kind() {
    for mode in ["remote", "local"] {
        let outside = tempfile::tempdir().unwrap();
        let (directory, database, served) = attached(mode, outside.path()).await;
        let mut session = database.session();
        filled(&mut session, "WITH (device = other)").await;
        let before = picture(&mut session).await;
        run(&mut session, "PREPARE p AS SELECT note FROM t WHERE id = $1").await;
        run(&mut session, "PREPARE q AS SELECT count(*) FROM t WHERE n < $1").await;
        let prepared =
            [row(&mut session, "EXECUTE p(3)").await, row(&mut session, "EXECUTE q(50)").await];
        for (from, to) in [("other", "embedded"), ("embedded", "other"), ("other", "embedded")] {
            run(&mut session, &format!("ALTER DEVICE {from} DRAIN TO {to}")).await;
            assert_eq!(devices_of(&database, "t"), [to], "{mode}");
            in_each_split(&mut session, &before).await;
            assert_eq!(row(&mut session, "EXECUTE p(3)").await, prepared[0]);
            assert_eq!(row(&mut session, "EXECUTE q(50)").await, prepared[1]);
            assert_clean(&database).await;
            assert_eq!(used(&database, from).await, 0, "{mode} {from}");
            // The table is changed in place, pruned and extended as before.
            let fragment_count = fragments(&database).await;
            run(
                &mut session,
                "SET update_placement = device; UPDATE t SET n = n + 1 WHERE id % 2 = 0",
            )
            .await;
            run(&mut session, "UPDATE t SET n = n - 1 WHERE id % 2 = 0; RESET update_placement")
                .await;
            assert!(fragments(&database).await > fragment_count, "{mode} {to}");
            run(&mut session, "INSERT INTO t VALUES (-1, '', 0); DELETE FROM t WHERE id = -1")
                .await;
            assert_eq!(
                refused(&mut session, "INSERT INTO t VALUES (3, '', 0)").await.sqlstate(),
                "23505"
            );
            in_each_split(&mut session, &before).await;
            assert_clean(&database).await;
        }
        run(&mut session, "DROP DEVICE other; VACUUM FULL").await;
        in_each_split(&mut session, &before).await;
        drop((session, database, served));
        let database = open(directory.path()).await;
        let mut session = database.session();
        in_each_split(&mut session, &before).await;
        assert_clean(&database).await;
        assert_eq!(database.devices().len(), 1, "{mode}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tablets_of_a_divided_table_go_to_the_others() {
    let outside = tempfile::tempdir().unwrap();
    let (directory, database) = fresh().await;
    let (_nas, _) = attach_nas(&database, outside.path()).await;
    let mut session = database.session();
    let _san = attach_san(&mut session, outside.path()).await;
    filled(
        &mut session,
        "WITH (devices = (embedded, nas, san), tablets = 6, tablet_by = hash (id))",
    )
    .await;
    run(&mut session, "CREATE TABLE empty (id int PRIMARY KEY) WITH (device = nas)").await;
    let before = picture(&mut session).await;
    run(&mut session, "ALTER DEVICE nas DRAIN").await;
    // Not to the database's own device, since there is another one.
    assert_eq!(devices_of(&database, "t"), ["embedded", "san", "san", "embedded", "san", "san"]);
    assert_eq!(devices_of(&database, "empty"), ["san"]);
    in_each_split(&mut session, &before).await;
    assert_clean(&database).await;
    assert_eq!(used(&database, "nas").await, 0);
    run(&mut session, "ALTER DEVICE nas DRAIN; ALTER DEVICE embedded DRAIN TO nas, san").await;
    assert!(!devices_of(&database, "t").contains(&"embedded".to_owned()));
    in_each_split(&mut session, &before).await;
    assert_eq!(used(&database, "embedded").await, 0);
    drop((session, database));
    let database = open(directory.path()).await;
    in_each_split(&mut database.session(), &before).await;
    assert_clean(&database).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn open_snapshots_read_what_was_there() {
    let outside = tempfile::tempdir().unwrap();
    let (_directory, database) = fresh().await;
    let (_nas, _) = attach_nas(&database, outside.path()).await;
    let mut session = database.session();
    filled(&mut session, "WITH (device = nas)").await;
    let before = picture(&mut session).await;
    let mut reader = database.session();
    let mut writer = database.session();
    let mut locker = database.session();
    for session in [&mut reader, &mut writer, &mut locker] {
        run(session, "BEGIN ISOLATION LEVEL REPEATABLE READ").await;
        assert_eq!(picture(session).await, before);
    }
    run(&mut session, "ALTER DEVICE nas DRAIN").await;
    assert_eq!(devices_of(&database, "t"), ["embedded"]);
    run(&mut session, "UPDATE t SET n = 0; DELETE FROM t WHERE id < 20000; VACUUM FULL t").await;
    database.buffer_pool().clear();
    in_each_split(&mut reader, &before).await;
    // Rows are locked where they lie, and these lie elsewhere by now.
    assert_eq!(
        refused(&mut writer, "UPDATE t SET n = 1 WHERE id = 30000").await.sqlstate(),
        "40001"
    );
    let locking = "SELECT n FROM t WHERE id = 29999 FOR UPDATE";
    assert_eq!(refused(&mut locker, locking).await.sqlstate(), "40001");
    run(&mut writer, "ROLLBACK; UPDATE t SET n = 1 WHERE id = 30000").await;
    run(&mut locker, "ROLLBACK").await;

    let error = refused(&mut session, "DROP DEVICE nas").await;
    assert!(error.sqlstate() == "55006" && error.to_string().contains("still read"), "{error}");
    in_each_split(&mut reader, &before).await;
    run(&mut reader, "COMMIT").await;
    // Nobody sees a temporary table but its session.
    run(&mut writer, "CREATE TEMPORARY TABLE mine (id int) WITH (device = nas)").await;
    run(&mut writer, "INSERT INTO mine SELECT * FROM generate_series(1, 20000)").await;
    assert_eq!(refused(&mut session, "DROP DEVICE nas").await.sqlstate(), "55006");
    assert_eq!(row(&mut writer, "SELECT count(*) FROM mine").await, "20000");
    run(&mut writer, "DROP TABLE mine").await;
    run(&mut session, "DROP DEVICE nas").await;
    assert_eq!(
        row(&mut session, "SELECT count(*), sum(n) FROM t").await,
        row(&mut writer, "SELECT count(*), sum(n) FROM t").await
    );
    assert_clean(&database).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_waits_for_transactions_that_have_written_it() {
    let outside = tempfile::tempdir().unwrap();
    let (_directory, database) = fresh().await;
    let (_nas, _) = attach_nas(&database, outside.path()).await;
    let mut session = database.session();
    for sql in [
        "CREATE TABLE t (id int PRIMARY KEY, note text, n int) WITH (device = nas)",
        "INSERT INTO t SELECT i, 'note ' || i, i % 100 FROM generate_series(1, 20000) AS g (i)",
        "CHECKPOINT",
    ] {
        run(&mut session, sql).await;
    }
    let mut writer = database.session();
    run(
        &mut writer,
        "BEGIN; SET update_placement = device; UPDATE t SET n = n + 1 WHERE id % 5 = 0",
    )
    .await;
    run(
        &mut writer,
        "SELECT n FROM t WHERE id = 11 FOR UPDATE; INSERT INTO t VALUES (70001, 'new', 1)",
    )
    .await;
    let mut draining = beside(database.session(), "ALTER DEVICE nas DRAIN");
    assert!(waits(&mut draining).await);
    // Others read, and write between two tries of the lock.
    let mut other = database.session();
    assert_eq!(row(&mut other, "SELECT note FROM t WHERE id = 8").await, "note 8");
    for id in 80_001..80_004 {
        run(&mut other, &format!("INSERT INTO t VALUES ({id}, 'meanwhile', 1)")).await;
    }
    assert!(waits(&mut draining).await);
    run(&mut writer, "UPDATE t SET n = n + 1 WHERE id = 70001; COMMIT").await;
    assert_eq!(draining.await.unwrap().1, "done");
    assert_eq!(devices_of(&database, "t"), ["embedded"]);
    assert_eq!(row(&mut session, "SELECT n FROM t WHERE id = 70001").await, "2");
    assert_eq!(row(&mut session, "SELECT n FROM t WHERE id = 25").await, "26");
    assert_eq!(row(&mut session, "SELECT count(*) FROM t WHERE note = 'meanwhile'").await, "3");
    assert_clean(&database).await;
    // `lock_timeout` bounds the wait, and the table stays.
    run(&mut writer, "BEGIN; LOCK TABLE t IN ROW SHARE MODE").await;
    run(&mut session, "SET lock_timeout = 700").await;
    let error = refused(&mut session, "ALTER DEVICE embedded DRAIN").await;
    assert_eq!(error.sqlstate(), "55P03", "{error}");
    run(&mut session, "SET lock_timeout = 0; SET statement_timeout = 700").await;
    let error = refused(&mut session, "ALTER DEVICE embedded DRAIN").await;
    assert_eq!(error.sqlstate(), "57014", "{error}");
    run(&mut writer, "ROLLBACK").await;
    assert_eq!(devices_of(&database, "t"), ["embedded"]);
    assert_eq!(used(&database, "nas").await, 0);
    assert_clean(&database).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_and_writers_go_on_while_tables_move_to_and_fro() {
    let outside = tempfile::tempdir().unwrap();
    let (directory, database) = fresh().await;
    let (_nas, _) = attach_nas(&database, outside.path()).await;
    let mut session = database.session();
    run(&mut session, "CREATE TABLE t (id int PRIMARY KEY, n int, note text) WITH (device = nas)")
        .await;
    run(&mut session, "CREATE INDEX t_n ON t (n)").await;
    run(
        &mut session,
        "INSERT INTO t SELECT i, 0, 'x' || i FROM generate_series(0, 19999) AS g (i)",
    )
    .await;
    let done = Arc::new(AtomicBool::new(false));
    let mut tasks = Vec::new();
    for kind in 0..4_u32 {
        let (mut session, done) = (database.session(), Arc::clone(&done));
        tasks.push(SpawnedTask::spawn(async move {
            let mut count = 0_u32;
            while !done.load(Ordering::Relaxed) {
                let (key, id) = (count * 7919 % 20_000, 100_000 + count);
                let sql = match kind {
                    0 => format!("UPDATE t SET note = note || '.' WHERE id = {key}"),
                    1 => format!("INSERT INTO t VALUES ({id}, 1, 'new')"),
                    2 => "SET update_placement = device; UPDATE t SET note = 'y' || id WHERE id % 50 = 7".to_owned(),
                    _ => "SELECT count(*), sum(n) FROM t WHERE id < 20000".to_owned(),
                };
                match kind {
                    3 => assert_eq!(row(&mut session, &sql).await, "20000,0"),
                    _ => drop(run(&mut session, &sql).await),
                }
                count += 1;
            }
            count
        }));
    }
    for (from, to) in
        [("nas", "embedded"), ("embedded", "nas"), ("nas", "embedded"), ("embedded", "nas")]
    {
        run(&mut session, &format!("ALTER DEVICE {from} DRAIN TO {to}")).await;
        assert_eq!(devices_of(&database, "t"), [to]);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    done.store(true, Ordering::Relaxed);
    let mut counts = Vec::new();
    for task in tasks {
        counts.push(task.await.unwrap());
    }
    assert!(counts.iter().all(|count| *count > 0), "{counts:?}");
    let expected = format!("{},{}", 20_000 + counts[1], counts[1]);
    let count = "SELECT count(*), sum(n) FROM t";
    assert_eq!(row(&mut session, count).await, expected);
    let dots =
        "SELECT sum(length(note) - length(replace(note, '.', ''))) FROM t WHERE id % 50 <> 7";
    let written = (0..counts[0]).filter(|count| count * 7919 % 20_000 % 50 != 7).count();
    assert_eq!(row(&mut session, dots).await, written.to_string());
    assert_clean(&database).await;
    drop((session, database));
    let database = open(directory.path()).await;
    let mut session = database.session();
    assert_eq!(row(&mut session, count).await, expected);
    assert_eq!(row(&mut session, dots).await, written.to_string());
    assert_clean(&database).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_table_is_committed_on_a_device_that_was_removed() {
    let outside = tempfile::tempdir().unwrap();
    let (directory, database) = fresh().await;
    let (_nas, _) = attach_nas(&database, outside.path()).await;
    let (mut session, mut other) = (database.session(), database.session());
    // It has no rows, and so no space there that would keep the device.
    run(&mut session, "BEGIN; CREATE TABLE t (id int PRIMARY KEY) WITH (device = nas)").await;
    run(&mut other, "DROP DEVICE nas").await;
    let error = refused(&mut session, "COMMIT").await;
    assert_eq!(error.sqlstate(), "55000", "{error}");
    assert!(error.to_string().contains("\"t\" was to lie on a device"), "{error}");
    assert_eq!(refused(&mut session, "SELECT * FROM t").await.sqlstate(), "42P01");
    drop((session, other, database));
    let database = open(directory.path()).await;
    let mut session = database.session();
    run(&mut session, "CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1)").await;
    assert_eq!(row(&mut session, "SELECT * FROM t").await, "1");
    assert_clean(&database).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_drained_is_refused() {
    let outside = tempfile::tempdir().unwrap();
    let (_directory, database, nas, _) = with_nas(outside.path()).await;
    let mut session = database.session();
    for (sql, code, words) in [
        ("ALTER DEVICE nass DRAIN", "42704", "did you mean \"nas\"?"),
        ("ALTER DEVICE nas DRAIN TO sann", "42704", "\"sann\""),
        ("ALTER DEVICE nas DRAIN TO nas", "22023", "drained to itself"),
        ("ALTER DEVICE nas DRAIN TO embedded, embedded", "22023", "named twice"),
        ("BEGIN; ALTER DEVICE nas DRAIN", "25001", "transaction block"),
        ("ROLLBACK; DROP DEVICE nass", "42704", "did you mean \"nas\"?"),
        ("DROP DEVICE embedded", "22023", "it is the database's own"),
        ("DROP DEVICE nas", "2BP01", "far; move them by ALTER DEVICE"),
        ("CREATE DEVICE nas WITH (local = '/none')", "42710", "\"nas\""),
        ("CREATE DEVICE x WITH (address = 'y:1', ca = '/none.pem')", "58P01", "/none.pem"),
    ] {
        let error = refused(&mut session, sql).await;
        assert_eq!(error.sqlstate(), code, "{sql}: {error}");
        assert!(error.to_string().contains(words), "{sql}: {error}");
    }
    run(&mut session, "DROP DEVICE IF EXISTS nass").await;
    run(&mut session, "CREATE ROLE joe LOGIN; GRANT SELECT ON far TO joe; SET ROLE joe").await;
    for sql in
        ["ALTER DEVICE nas DRAIN", "DROP DEVICE nas", "CREATE DEVICE x WITH (local = '/none')"]
    {
        assert_eq!(refused(&mut session, sql).await.sqlstate(), "42501", "{sql}");
    }
    run(&mut session, "RESET ROLE").await;

    // A device that does not answer has what only it has.
    nas.stop().await;
    let error = refused(&mut session, "ALTER DEVICE nas DRAIN").await;
    let told = error.to_string();
    assert!(
        error.sqlstate() == "58030"
            && told.contains("so are its tables far: ALTER DEVICE … REBUILD"),
        "{told}"
    );
    assert_eq!(
        refused(&mut session, "ALTER DEVICE embedded DRAIN TO nas").await.sqlstate(),
        "58030"
    );
    let error = refused(&mut session, "ALTER DEVICE embedded DRAIN").await;
    assert!(
        error.sqlstate() == "55000" && error.to_string().contains("no other device"),
        "{error}"
    );
    assert_eq!(rows(&mut session, "SELECT note FROM near").await, ["at home"]);
    run(&mut session, "DROP TABLE far; DROP DEVICE nas").await;
    assert_eq!(database.devices().len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_device_is_passed_over_and_nothing_is_lost() {
    let outside = tempfile::tempdir().unwrap();
    let (_directory, database, _nas, _) = with_nas(outside.path()).await;
    let mut session = database.session();
    let path = outside.path().join("small.media");
    let media = Arc::new(Bounded::new(64));
    let small = Served::over(Arc::<Bounded>::clone(&media), &path, [5; 16], anywhere()).await;
    let way = remote(small.address, token_file(outside.path(), TOKEN));
    database.add_device("small", way).await.unwrap();
    let error = refused(&mut session, "ALTER DEVICE nas DRAIN TO small").await;
    assert!(error.sqlstate() == "53100" && error.to_string().contains("\"small\""), "{error}");
    assert_eq!(devices_of(&database, "far"), ["nas"]);
    assert_eq!(used(&database, "small").await, 0);
    assert_clean(&database).await;
    run(&mut session, "ALTER DEVICE nas DRAIN TO small, embedded").await;
    assert_eq!(devices_of(&database, "far"), ["embedded"]);
    assert_eq!(row(&mut session, "SELECT count(*), sum(id) FROM far").await, "20001,200010000");
    media.limit(1 << 20);
    run(&mut session, "ALTER DEVICE embedded DRAIN TO small").await;
    assert_eq!(devices_of(&database, "far"), ["small"]);
    assert_eq!(row(&mut session, "SELECT count(*), sum(id) FROM far").await, "20001,200010000");
    assert_clean(&database).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_that_is_lost_amid_a_move_leaves_the_table_where_it_was() {
    let outside = tempfile::tempdir().unwrap();
    let (_directory, database, nas, _) = with_nas(outside.path()).await;
    let mut session = database.session();
    let san = attach_san(&mut session, outside.path()).await;
    session.load("far", batches(vec![numbered(30_000..330_000)]), None).await.unwrap();
    let count = "SELECT count(*), sum(id) FROM far";
    let before = row(&mut session, count).await;
    // A statement that is given up leaves its copies, and they are free.
    let draining = beside(database.session(), "ALTER DEVICE nas DRAIN TO san");
    let target = database.device_named("san").unwrap();
    for _ in 0..10_000 {
        if target.space().used_blocks > 0 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    drop(draining);
    for _ in 0..200 {
        if target.space().used_blocks == 0 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(target.space().used_blocks, 0);
    assert_eq!(
        (row(&mut session, count).await, devices_of(&database, "far")),
        (before.clone(), vec!["nas".to_owned()])
    );
    let address = san.address;
    san.stop().await;
    let error = refused(&mut session, "ALTER DEVICE nas DRAIN TO san").await;
    assert_eq!(error.sqlstate(), "58030", "{error}");
    assert_eq!(devices_of(&database, "far"), ["nas"]);
    let _san = Served::start(&outside.path().join("san.media"), [2; 16], address).await;
    run(&mut session, "ALTER DEVICE nas DRAIN TO san").await;
    nas.stop().await;
    database.buffer_pool().clear();
    assert_eq!(row(&mut session, count).await, before);
    // It cannot be told, and is removed all the same.
    run(&mut session, "DROP DEVICE nas").await;
    assert_eq!(row(&mut session, count).await, before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_replica_moves_too_and_a_failover_goes_on_from_it() {
    let outside = tempfile::tempdir().unwrap();
    let (directory, database, nas, _) = with_nas(outside.path()).await;
    let mut session = database.session();
    run(&mut session, "DROP TABLE near; ALTER SYSTEM SET log_replica = 'nas'").await;
    let error = refused(&mut session, "ALTER DEVICE nas DRAIN TO embedded").await;
    assert!(error.sqlstate() == "55000" && error.to_string().contains("log replica"), "{error}");
    let san = attach_san(&mut session, outside.path()).await;
    run(&mut session, "INSERT INTO far VALUES (20001, 'before')").await;
    run(&mut session, "ALTER DEVICE nas DRAIN").await;
    assert_eq!(row(&mut session, "SHOW log_replica").await, "san");
    assert_eq!(devices_of(&database, "far"), ["san"]);
    assert_eq!(used(&database, "nas").await, 0);
    run(&mut session, "DROP DEVICE nas").await;
    nas.stop().await;
    run(&mut session, "INSERT INTO far VALUES (20002, 'after')").await;
    let all = "SELECT count(*), sum(id) FROM far";
    let before = row(&mut session, all).await;
    assert_eq!(before, "20003,200050003");
    drop((session, database, directory));
    let other = tempfile::tempdir().unwrap();
    let place = other.path().join("db");
    let way = remote(san.address, token_file(outside.path(), TOKEN));
    taken(&place, &way).await.unwrap();
    let database = reopened(&place).await;
    let mut session = database.session();
    assert_eq!(row(&mut session, all).await, before);
    assert_eq!(row(&mut session, "SELECT note FROM far WHERE id = 20002").await, "after");
    assert!(
        database
            .devices()
            .iter()
            .all(|device| device.id() == DeviceId::EMBEDDED || device.name() == "san")
    );
    assert_clean(&database).await;
}
