//! Tests of tablets that move by themselves: only those of tables that ask for it, beside transactions, to new devices
//! and from drained ones, and no row is lost with a device, a restart or a change of mind.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use cleave_host::check::CheckOptions;
use cleave_host::{Database, Session};
use datafusion::common::runtime::SpawnedTask;

use crate::devices::{Served, attach_nas};
use crate::drain::{assert_clean, attach_san, devices_of, used};
use crate::support::{fresh, open, refused, row, run};
use crate::tablets::{flushed, with_three};

const FIGURES: &str = "SELECT count(*), count(DISTINCT id), sum(id % 10) FROM t";

/// One round: the lines for the log, and the errors.
async fn round(database: &Arc<Database>) -> (Vec<String>, Vec<String>) {
    let lines = Mutex::new(Vec::new());
    let tell = |line: &str| lines.lock().unwrap().push(line.to_owned());
    let failures = database.rebalance(&tell).await;
    let failures = failures.iter().map(|(_, error)| error.sqlstate().to_owned()).collect();
    (lines.into_inner().unwrap(), failures)
}

/// A table `t` of eight tablets, small as it is.
async fn filled(session: &mut Session, devices: &str) {
    let with =
        format!("WITH (devices = ({devices}), tablets = 8, tablet_by = hash (id), rebalance = on)");
    for sql in [
        "ALTER SYSTEM SET rebalance_min_size = '0'".to_owned(),
        format!("CREATE TABLE t (id int PRIMARY KEY, note text) {with}"),
        "INSERT INTO t SELECT i, 'note ' || i FROM generate_series(0, 39999) AS g (i)".to_owned(),
        "CHECKPOINT".to_owned(),
    ] {
        run(session, &sql).await;
    }
}

fn count_on(database: &Arc<Database>, device: &str) -> usize {
    devices_of(database, "t").iter().filter(|name| *name == device).count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tablets_go_to_a_new_device_while_transactions_run() {
    let outside = tempfile::tempdir().unwrap();
    let (directory, database) = fresh().await;
    let (_nas, _) = attach_nas(&database, outside.path()).await;
    let mut session = database.session();
    filled(&mut session, "nas").await;
    // The database's own device has none of it, and gets none.
    assert_eq!(round(&database).await, (vec![], vec![]));
    let _san = attach_san(&mut session, outside.path()).await;
    let done = Arc::new(AtomicBool::new(false));
    let mut tasks = Vec::new();
    for kind in 0..3_u32 {
        let (mut session, done) = (database.session(), Arc::clone(&done));
        tasks.push(SpawnedTask::spawn(async move {
            let mut count = 0_u32;
            while !done.load(Ordering::Relaxed) {
                let id = count * 7919 % 40_000;
                match kind {
                    0 => {
                        // To another tablet and back.
                        let sql = format!(
                            "BEGIN; UPDATE t SET id = id + 100000 WHERE id = {id};
                             UPDATE t SET id = id - 100000 WHERE id = {}; COMMIT",
                            id + 100_000
                        );
                        run(&mut session, &sql).await;
                    }
                    1 => {
                        drop(run(&mut session, "UPDATE t SET note = note WHERE id % 97 = 5").await)
                    }
                    _ => assert_eq!(row(&mut session, FIGURES).await, "40000,40000,180000"),
                }
                count += 1;
            }
            count
        }));
    }
    let (lines, failures) = round(&database).await;
    done.store(true, Ordering::Relaxed);
    for task in tasks {
        assert!(task.await.unwrap() > 0);
    }
    assert_eq!((lines.len(), failures.len()), (4, 0), "{lines:?} {failures:?}");
    assert!(lines[0].contains("of \"t\" from \"nas\" to \"san\": "), "{lines:?}");
    assert_eq!((count_on(&database, "nas"), count_on(&database, "san")), (4, 4));
    assert_eq!(round(&database).await, (vec![], vec![]));
    assert_eq!(row(&mut session, FIGURES).await, "40000,40000,180000");
    assert_clean(&database).await;
    drop((session, database));
    let database = open(directory.path()).await;
    assert_eq!(round(&database).await, (vec![], vec![]));
    assert_eq!(row(&mut database.session(), FIGURES).await, "40000,40000,180000");
    assert_clean(&database).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_placed_by_hand_stays() {
    let outside = tempfile::tempdir().unwrap();
    let (directory, database, _nas, _san) = with_three(outside.path()).await;
    let mut session = database.session();
    filled(&mut session, "nas").await;
    for (sql, code, words) in [
        ("ALTER TABLE t MOVE TABLET 0 TO san", "55000", "SET (rebalance = off) first"),
        ("ALTER TABLE t REBALANCE TO san", "55000", "move by themselves"),
        ("ALTER TABLE t SET (rebalance = perhaps)", "42601", "expected on or off"),
        ("ALTER TABLE t SET (rebalance = on", "42601", "expected a closing parenthesis"),
        (
            "CREATE TABLE u (id int) WITH (devices = (nas * 3, san), rebalance = on)",
            "42601",
            "weights",
        ),
        ("CREATE TABLE u (id int) WITH (rebalance = 7)", "42601", "say on or off"),
        (
            "CREATE TABLE u (id int) WITH (rebalance = on, rebalance = on)",
            "42601",
            "more than once",
        ),
        ("CREATE TEMPORARY TABLE u (id int) WITH (rebalance = on)", "0A000", "a temporary table"),
        ("ALTER SYSTEM SET rebalance_rate = '1kB'", "22023", "rebalance_rate"),
        ("BEGIN; ALTER TABLE t SET (rebalance)", "25001", "transaction block"),
    ] {
        let error = refused(&mut session, sql).await;
        assert_eq!(error.sqlstate(), code, "{sql}: {error}");
        assert!(error.to_string().contains(words), "{sql}: {error}");
    }
    run(&mut session, "ROLLBACK; CREATE ROLE joe; GRANT ALL ON t TO joe; SET ROLE joe").await;
    let error = refused(&mut session, "ALTER TABLE t SET (rebalance = off)").await;
    assert_eq!(error.sqlstate(), "42501", "{error}");
    run(&mut session, "RESET ROLE; ALTER SYSTEM SET rebalance = off").await;
    assert_eq!(round(&database).await, (vec![], vec![]));
    run(&mut session, "ALTER SYSTEM RESET rebalance; ALTER TABLE t SET (rebalance = off)").await;
    run(&mut session, "ALTER TABLE t MOVE TABLET 0 TO san").await;
    run(&mut session, "CREATE TABLE w (id int) WITH (devices = (nas * 3, san), tablets = 8)").await;
    let before = (devices_of(&database, "t"), devices_of(&database, "w"));
    assert_eq!(round(&database).await, (vec![], vec![]));
    assert_eq!((devices_of(&database, "t"), devices_of(&database, "w")), before);
    run(&mut session, "ALTER TABLE t SET (rebalance = on); ALTER TABLE t RENAME TO s").await;
    run(&mut session, "ALTER TABLE s RENAME TO t; ALTER TABLE t ADD COLUMN n int").await;
    drop((session, database));
    // It is remembered.
    let database = open(directory.path()).await;
    assert_eq!(round(&database).await.0.len(), 3);
    assert_eq!((count_on(&database, "nas"), count_on(&database, "san")), (4, 4));
    assert_clean(&database).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drained_device_loses_tablets_and_gets_none() {
    let outside = tempfile::tempdir().unwrap();
    let (_directory, database, _nas, _san) = with_three(outside.path()).await;
    let mut session = database.session();
    filled(&mut session, "nas, san").await;
    run(&mut session, "ALTER SYSTEM RESET rebalance_min_size").await;
    run(&mut session, "CREATE TABLE a (id int) WITH (device = nas)").await;
    // The drain ends before it has begun with `t`.
    let mut writer = database.session();
    run(&mut writer, "BEGIN; INSERT INTO a VALUES (1)").await;
    run(&mut session, "SET lock_timeout = 700").await;
    let error = refused(&mut session, "ALTER DEVICE nas DRAIN").await;
    assert_eq!(error.sqlstate(), "55P03", "{error}");
    run(&mut writer, "COMMIT").await;
    assert_eq!(count_on(&database, "nas"), 4);
    let (lines, failures) = round(&database).await;
    assert_eq!((lines.len(), failures.len()), (4, 0), "{lines:?} {failures:?}");
    assert_eq!(count_on(&database, "san"), 8);
    // Nothing was said of this table.
    assert_eq!(devices_of(&database, "a"), ["nas"]);
    run(&mut session, "ALTER DEVICE nas DRAIN; ALTER SYSTEM SET rebalance_min_size = '0'").await;
    assert_eq!(round(&database).await, (vec![], vec![]));
    assert_eq!(used(&database, "nas").await, 0);
    run(&mut session, "ALTER DEVICE nas UNDRAIN").await;
    assert_eq!(round(&database).await.0.len(), 4);
    assert_eq!((count_on(&database, "nas"), count_on(&database, "san")), (4, 4));
    assert_eq!(row(&mut session, FIGURES).await, "40000,40000,180000");
    // A device that is drained next does not fill the one before.
    run(&mut session, "ALTER DEVICE nas DRAIN; ALTER DEVICE san DRAIN").await;
    assert_eq!((count_on(&database, "embedded"), used(&database, "nas").await), (8, 0));
    assert_eq!(round(&database).await, (vec![], vec![]));
    assert_eq!(row(&mut session, FIGURES).await, "40000,40000,180000");
    assert_eq!(refused(&mut session, "ALTER DEVICE none UNDRAIN").await.sqlstate(), "42704");
    assert_clean(&database).await;
}

/// Waits until something was copied to the device.
async fn copied_to(database: &Arc<Database>, device: &str) {
    let device = database.device_named(device).unwrap();
    for _ in 0..2000 {
        if device.space().used_blocks > 0 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("nothing was copied");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_that_is_lost_amid_a_move_leaves_the_table_where_it_was() {
    let outside = tempfile::tempdir().unwrap();
    let (_directory, database, nas, san) = with_three(outside.path()).await;
    let mut session = database.session();
    filled(&mut session, "nas").await;
    // The move waits for the table's lock.
    let mut holder = database.session();
    run(&mut holder, "BEGIN; LOCK TABLE t IN ROW SHARE MODE").await;
    let moving = Arc::clone(&database);
    let moving = SpawnedTask::spawn(async move { round(&moving).await });
    copied_to(&database, "san").await;
    let address = san.address;
    san.stop().await;
    // More pages, which cannot be copied.
    let more = "INSERT INTO t SELECT i, 'x' FROM generate_series(40000, 79999) AS g (i)";
    run(&mut session, more).await;
    run(&mut holder, "ROLLBACK").await;
    let (lines, failures) = moving.await.unwrap();
    assert_eq!((lines, failures), (vec![], vec!["58030".to_owned()]));
    assert_eq!(count_on(&database, "nas"), 8);
    assert_eq!(row(&mut session, FIGURES).await, "80000,80000,360000");
    // There is no other device to balance it over.
    assert_eq!(round(&database).await.0.len(), 0);
    let _san = Served::start(&outside.path().join("san.media"), [2; 16], address).await;
    assert_eq!(round(&database).await.0.len(), 4);
    assert_eq!(row(&mut session, FIGURES).await, "80000,80000,360000");
    let report = database.check(&CheckOptions::default()).await.unwrap();
    assert!(report.is_clean(), "{:#?}", report.findings);
    // A page that was on its way when the link was lost may still be written: its space on that device stays in use
    // until the database is next opened, and not a block more.
    flushed(&database).await;
    assert_eq!(database.device_named("nas").unwrap().space().doubtful_blocks, 0);
    // Its tablets on a lost device are not taken for gone.
    nas.stop().await;
    assert_eq!(round(&database).await, (vec![], vec![]));
    assert_eq!((count_on(&database, "nas"), count_on(&database, "san")), (4, 4));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_or_a_change_of_mind_amid_a_move_leaves_nothing_of_it() {
    let outside = tempfile::tempdir().unwrap();
    let (directory, database, _nas, _san) = with_three(outside.path()).await;
    let mut session = database.session();
    filled(&mut session, "nas").await;
    run(&mut session, "ALTER SYSTEM SET rebalance_rate = '1MB'").await;
    for off in [
        "ALTER SYSTEM SET rebalance = off",
        "ALTER DEVICE san DRAIN",
        "ALTER TABLE t SET (rebalance = off)",
    ] {
        let mut holder = database.session();
        run(&mut holder, "BEGIN; LOCK TABLE t IN ROW SHARE MODE").await;
        let moving = Arc::clone(&database);
        let moving = SpawnedTask::spawn(async move { round(&moving).await });
        copied_to(&database, "san").await;
        if off.contains("TABLE t") {
            run(&mut holder, "ROLLBACK").await;
            run(&mut session, off).await;
            drop(moving.await.unwrap());
        } else {
            run(&mut session, off).await;
            assert_eq!(moving.await.unwrap(), (vec![], vec![]));
            assert_eq!(used(&database, "san").await, 0);
            run(&mut holder, "ROLLBACK").await;
        }
        run(&mut session, "ALTER SYSTEM RESET rebalance; ALTER DEVICE san UNDRAIN").await;
    }
    run(&mut session, "ALTER TABLE t REBALANCE TO nas; ALTER TABLE t SET (rebalance = on)").await;
    let mut holder = database.session();
    run(&mut holder, "BEGIN; LOCK TABLE t IN ROW SHARE MODE").await;
    let moving = tokio::time::timeout(Duration::from_secs(2), round(&database));
    assert!(moving.await.is_err());
    drop((holder, session, database));
    let database = open(directory.path()).await;
    let mut session = database.session();
    assert_eq!((count_on(&database, "nas"), used(&database, "san").await), (8, 0));
    assert_eq!(round(&database).await.0.len(), 4);
    assert_eq!(row(&mut session, FIGURES).await, "40000,40000,180000");
    assert_clean(&database).await;
}
