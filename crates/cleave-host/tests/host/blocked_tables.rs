//! Tests of commits to tables on other devices: by the log, and blocked while a device is offline.

use std::path::Path;

use crate::devices::{Served, with_nas};
use crate::support::{assert_no_leak, batches, numbered, open, refused, row, rows, run};

const FAR: &str = "SELECT count(*), sum(id) FROM far";
const LAST: &str = "SELECT note FROM far WHERE id >= 20000 ORDER BY id";

fn manifest(directory: &Path) -> Vec<u8> {
    std::fs::read(directory.join("manifest")).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commits_on_other_devices_go_by_the_log() {
    let outside = tempfile::tempdir().unwrap();
    let (directory, mut database, _served, _) = with_nas(outside.path()).await;
    let mut session = database.session();
    let both = "CREATE TABLE both (id int PRIMARY KEY, note text) WITH (devices = (embedded, nas), tablets = 4, \
        tablet_by = hash (id))";
    run(&mut session, both).await;
    let before = manifest(directory.path());
    for statement in [
        "INSERT INTO far VALUES (20001, 'new'), (20002, 'newer')",
        "UPDATE far SET note = 'changed' WHERE id = 20001",
        "BEGIN; DELETE FROM far WHERE id = 20002; INSERT INTO near VALUES (2, 'two'); COMMIT",
        "UPDATE far SET note = 'all' WHERE id % 1000 = 7",
        "INSERT INTO both SELECT id, note FROM far WHERE id < 100",
        "DELETE FROM both WHERE id % 2 = 1",
    ] {
        run(&mut session, statement).await;
        assert_eq!(row(&mut session, "SELECT count(*) FROM far WHERE id = 20001").await, "1");
    }
    assert!(manifest(directory.path()) == before, "small commits leave the manifest alone");
    let expected = row(&mut session, FAR).await;
    for _ in 0..2 {
        drop((session, database));
        database = open(directory.path()).await;
        session = database.session();
        assert_eq!(row(&mut session, FAR).await, expected);
        assert_eq!(rows(&mut session, LAST).await, ["far away", "changed"]);
        assert_eq!(row(&mut session, "SELECT count(*) FROM far WHERE note = 'all'").await, "20");
        assert_eq!(row(&mut session, "SELECT count(*), sum(id) FROM both").await, "50,2450");
        assert_no_leak(&database);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commits_of_a_device_that_is_offline_wait_in_the_log() {
    let outside = tempfile::tempdir().unwrap();
    let (directory, mut database, served, _) = with_nas(outside.path()).await;
    let address = served.address;
    let mut session = database.session();
    run(&mut session, "CHECKPOINT; CREATE SEQUENCE s; CREATE VIEW of_far AS SELECT id FROM far")
        .await;
    let made = "CREATE MATERIALIZED VIEW made_of_far WITH (device = embedded) AS SELECT count(*) FROM of_far";
    run(&mut session, made).await;
    run(&mut session, "INSERT INTO far VALUES (20001, 'first'), (20002, 'second')").await;
    run(&mut session, "DELETE FROM far WHERE id = 20001").await;
    run(&mut session, "UPDATE far SET note = 'third' WHERE id = 20002").await;
    served.stop().await;
    run(&mut session, "SET shipped_delta_bytes = 0").await;
    // Restarts, checkpoints, loads and definitions of other tables come between.
    for turn in 0..3 {
        for statement in [
            FAR,
            "INSERT INTO far VALUES (-1, '')",
            "DELETE FROM far WHERE id = 20002",
            "SELECT * FROM of_far",
            "REFRESH MATERIALIZED VIEW made_of_far",
        ] {
            let error = refused(&mut session, statement).await;
            assert_eq!(error.sqlstate(), "58030", "{statement}: {error}");
            assert!(error.to_string().contains("\"nas\""), "{statement}: {error}");
        }
        run(&mut session, &format!("INSERT INTO near VALUES ({}, 'here')", turn + 10)).await;
        assert_eq!(row(&mut session, "SELECT nextval('s')").await, (turn + 1).to_string());
        run(
            &mut session,
            &format!("CREATE TABLE t{turn} (id int, note text) WITH (device = embedded)"),
        )
        .await;
        session.load(&format!("t{turn}"), batches(vec![numbered(0..5000)]), None).await.unwrap();
        run(&mut session, "CHECKPOINT").await;
        run(&mut session, &format!("DELETE FROM t{turn} WHERE id = 7")).await;
        assert_eq!(row(&mut session, "SELECT count(*) FROM near").await, (turn + 2).to_string());
        let target = outside.path().join("backup");
        let error = database.backup(&target).await.unwrap_err();
        assert_eq!(error.sqlstate(), "58030", "{error}");
        drop((session, database));
        database = open(directory.path()).await;
        session = database.session();
    }
    let _served = Served::start(&outside.path().join("nas.media"), [1; 16], address).await;
    run(&mut session, "CHECKPOINT").await;
    for _ in 0..2 {
        assert_eq!(row(&mut session, FAR).await, "20002,200030002");
        assert_eq!(rows(&mut session, LAST).await, ["far away", "third"]);
        assert_eq!(row(&mut session, "SELECT count(*) FROM t1").await, "4999");
        run(&mut session, "UPDATE far SET note = 'third' WHERE id = 20002").await;
        drop((session, database));
        database = open(directory.path()).await;
        session = database.session();
    }
    assert_eq!(row(&mut session, "SELECT nextval('s') > 3").await, "t");
    assert_eq!(rows(&mut session, LAST).await, ["far away", "third"]);
    assert_no_leak(&database);
}

/// Many deleted rows are in the manifest's version map, the rows around them only in the log.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deletes_of_many_rows_among_commits_that_wait_happen_once() {
    let outside = tempfile::tempdir().unwrap();
    let (directory, mut database, served, _) = with_nas(outside.path()).await;
    let address = served.address;
    let mut session = database.session();
    run(&mut session, "CHECKPOINT").await;
    let before = manifest(directory.path());
    run(&mut session, "INSERT INTO far VALUES (20001, 'first'), (20002, 'second')").await;
    run(&mut session, "DELETE FROM far WHERE id = 7").await;
    run(&mut session, "DELETE FROM far WHERE id < 15000 OR id = 20002").await;
    run(&mut session, "UPDATE far SET note = 'third' WHERE id = 20001").await;
    assert!(manifest(directory.path()) == before, "the log has it alone");
    served.stop().await;
    run(&mut session, "SET shipped_delta_bytes = 0").await;
    for turn in 0..3 {
        assert_eq!(refused(&mut session, FAR).await.sqlstate(), "58030");
        let table = format!("CREATE TABLE t{turn} (id int) WITH (device = embedded)");
        run(&mut session, &format!("{table}; CHECKPOINT")).await;
        drop((session, database));
        database = open(directory.path()).await;
        session = database.session();
    }
    let _served = Served::start(&outside.path().join("nas.media"), [1; 16], address).await;
    run(&mut session, "CHECKPOINT").await;
    for _ in 0..2 {
        let sum: u64 = (15_000..20_000).sum::<u64>() + 20_000 + 20_001;
        assert_eq!(row(&mut session, FAR).await, format!("5002,{sum}"));
        assert_eq!(rows(&mut session, LAST).await, ["far away", "third"]);
        assert_no_leak(&database);
        drop((session, database));
        database = open(directory.path()).await;
        session = database.session();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_whose_commits_wait_can_be_dropped() {
    let outside = tempfile::tempdir().unwrap();
    let (directory, database, served, _) = with_nas(outside.path()).await;
    let mut session = database.session();
    served.stop().await;
    assert_eq!(refused(&mut session, FAR).await.sqlstate(), "58030");
    run(&mut session, "DROP TABLE far").await;
    run(&mut session, "CREATE TABLE far (id int PRIMARY KEY) WITH (device = embedded)").await;
    run(&mut session, "INSERT INTO far VALUES (1)").await;
    for _ in 0..2 {
        assert_eq!(row(&mut session, FAR).await, "1,1");
        run(&mut session, "CHECKPOINT").await;
    }
    drop((session, database));
    let database = open(directory.path()).await;
    assert_eq!(row(&mut database.session(), FAR).await, "1,1");
}
