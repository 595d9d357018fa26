//! Tests of blocks that define tables, in several sessions, and ended at any time.

use std::sync::Arc;

use cleave_host::backup::restore;
use cleave_host::check::{CheckOptions, check};
use cleave_host::{DeviceId, OpenOptions, SnapshotKind};
use cleave_media::{FaultyMedia, Media};

use crate::durability::Slot;
use crate::support::{
    assert_no_leak, beside, embedded, fresh, open, refused, row, rows, run, waits,
};

const NUMBERS: &str =
    "INSERT INTO big SELECT i, 'note ' || i FROM generate_series(1, 20000) AS g (i)";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_block_defines_others_see_when_it_commits() {
    let (directory, database) = fresh().await;
    let (mut one, mut two) = (database.session(), database.session());
    run(&mut one, "CREATE TABLE t (id int PRIMARY KEY, note text)").await;
    run(&mut one, "INSERT INTO t VALUES (1, 'one'), (2, 'two')").await;
    run(&mut one, "BEGIN; CREATE TABLE big (id int PRIMARY KEY, note text)").await;
    run(&mut one, NUMBERS).await;
    run(&mut one, "INSERT INTO t VALUES (3, 'three'); CREATE INDEX big_note ON big (note)").await;
    run(&mut one, "UPDATE big SET note = 'changed' WHERE id = 5").await;
    assert_eq!(refused(&mut two, "SELECT * FROM big").await.sqlstate(), "42P01");
    assert_eq!(row(&mut two, "SELECT count(*) FROM t").await, "2");
    // Others write and define meanwhile.
    run(&mut two, "CREATE TABLE other (a int); INSERT INTO other VALUES (1)").await;
    run(&mut two, "UPDATE t SET note = 'first' WHERE id = 1").await;
    run(&mut two, "BEGIN; CREATE TABLE third (a int); INSERT INTO third VALUES (1), (2); COMMIT")
        .await;
    run(&mut one, "COMMIT").await;
    for _ in 0..2 {
        let mut session = database.session();
        assert_eq!(
            row(&mut session, "SELECT count(*), min(id), max(id) FROM big").await,
            "20000,1,20000"
        );
        assert_eq!(row(&mut session, "SELECT id FROM big WHERE note = 'changed'").await, "5");
        assert_eq!(
            rows(&mut session, "SELECT * FROM t ORDER BY id").await,
            ["1,first", "2,two", "3,three"]
        );
        assert_eq!(row(&mut session, "SELECT count(*) FROM other").await, "1");
        assert_eq!(row(&mut session, "SELECT count(*) FROM third").await, "2");
    }
    assert_no_leak(&database);
    drop((one, two, database));
    let database = open(directory.path()).await;
    let mut session = database.session();
    assert_eq!(row(&mut session, "SELECT id FROM big WHERE note = 'changed'").await, "5");
    assert_eq!(refused(&mut session, "INSERT INTO big VALUES (7, '')").await.sqlstate(), "23505");
    assert_no_leak(&database);
    drop((session, database));
    let options = OpenOptions::new(embedded());
    let report = check(directory.path(), options, &CheckOptions::default()).await.unwrap();
    assert!(report.findings.kept().is_empty(), "{:#?}", report.findings);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_block_that_is_given_up_leaves_nothing_of_what_it_defined() {
    let (_directory, database) = fresh().await;
    let mut one = database.session();
    run(&mut one, "CREATE TABLE t (id int PRIMARY KEY)").await;
    run(&mut one, "BEGIN; CREATE TABLE big (id int PRIMARY KEY, note text)").await;
    run(&mut one, NUMBERS).await;
    run(&mut one, "DROP TABLE t; SAVEPOINT a; TRUNCATE big").await;
    drop(one);
    let mut two = database.session();
    assert_eq!(row(&mut two, "SELECT count(*) FROM t").await, "0");
    run(&mut two, "CREATE TABLE big (a int); DROP TABLE t, big").await;
    assert_no_leak(&database);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn definitions_wait_for_blocks_that_change_rows_and_these_for_them() {
    let (_directory, database) = fresh().await;
    let (mut one, two) = (database.session(), database.session());
    run(&mut one, "CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1), (2)").await;
    run(&mut one, "BEGIN; DELETE FROM t WHERE id = 1").await;
    let mut task = beside(two, "TRUNCATE t");
    assert!(waits(&mut task).await);
    run(&mut one, "COMMIT").await;
    let (two, outcome) = task.await.unwrap();
    assert_eq!(outcome, "done");
    run(&mut one, "INSERT INTO t VALUES (3)").await;
    run(&mut one, "BEGIN; TRUNCATE t; INSERT INTO t VALUES (10)").await;
    let mut task = beside(two, "UPDATE t SET id = id + 1");
    assert!(waits(&mut task).await);
    run(&mut one, "COMMIT").await;
    let (mut two, outcome) = task.await.unwrap();
    assert_eq!(outcome, "done");
    assert_eq!(rows(&mut two, "SELECT id FROM t").await, ["11"]);
    // Two that want one name.
    run(&mut one, "BEGIN; CREATE TABLE u (a int)").await;
    let mut task = beside(two, "CREATE TABLE u (b int)");
    assert!(waits(&mut task).await);
    run(&mut one, "COMMIT").await;
    let (mut two, outcome) = task.await.unwrap();
    assert_eq!(outcome, "42P07");
    // Each waits for what the other one has.
    run(&mut one, "BEGIN; DELETE FROM t").await;
    run(&mut two, "BEGIN; DROP TABLE u").await;
    let mut task = beside(two, "DROP TABLE t; COMMIT");
    assert!(waits(&mut task).await);
    let error = one.run("INSERT INTO u VALUES (1)").await.err().map(|error| error.sqlstate());
    let (mut two, outcome) = {
        run(&mut one, "ROLLBACK").await;
        task.await.unwrap()
    };
    assert!(error == Some("40P01") || outcome == "40P01", "{error:?} {outcome}");
    run(&mut two, "ROLLBACK").await;
    assert_no_leak(&database);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kill_leaves_all_of_a_block_or_nothing() {
    for seed in 0..10 {
        let directory = tempfile::tempdir().unwrap();
        let media = Arc::new(FaultyMedia::new());
        let slot = Slot::new(Arc::clone(&media) as Arc<dyn Media>);
        let database = slot.open(directory.path()).await;
        let mut session = database.session();
        run(&mut session, "CREATE TABLE t (id int PRIMARY KEY, note text)").await;
        run(&mut session, "INSERT INTO t VALUES (1, 'one')").await;
        run(&mut session, "BEGIN; UPDATE t SET note = 'uno'; TRUNCATE t").await;
        run(&mut session, "INSERT INTO t VALUES (2, 'two')").await;
        media.fail_after(seed * 3);
        let begun = session.run("CREATE TABLE big (id int PRIMARY KEY, note text)").await.is_ok();
        let loaded = begun && session.run(NUMBERS).await.is_ok();
        let done = loaded && session.run("COMMIT").await.is_ok();
        drop((session, database));
        *slot.0.lock().unwrap() = Arc::new(media.crash(seed).unwrap());

        let database = slot.open(directory.path()).await;
        let mut session = database.session();
        let found = rows(&mut session, "SELECT * FROM t").await;
        match session.run("SELECT count(*) FROM big").await {
            Ok(_) => {
                assert_eq!(row(&mut session, "SELECT count(*) FROM big").await, "20000");
                assert_eq!(found, ["2,two"], "{seed}");
            }
            Err(_) => {
                assert!(!done, "{seed}: an acknowledged commit is lost");
                assert_eq!(found, ["1,one"], "{seed}");
            }
        }
        assert_no_leak(&database);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_check_knows_pages_that_are_older_than_a_dropped_column() {
    let (directory, database) = fresh().await;
    let mut session = database.session();
    run(&mut session, "CREATE TABLE t (id int PRIMARY KEY, note text)").await;
    run(&mut session, "INSERT INTO t VALUES (1, 'one'); CHECKPOINT").await;
    run(&mut session, "ALTER TABLE t ADD COLUMN a int DEFAULT 5, DROP COLUMN note").await;
    run(&mut session, "INSERT INTO t VALUES (2, 6); ALTER TABLE t DROP COLUMN a").await;
    run(&mut session, "INSERT INTO t VALUES (3); CHECKPOINT").await;
    assert_eq!(rows(&mut session, "SELECT * FROM t ORDER BY id").await, ["1", "2", "3"]);
    drop((session, database));
    let options = OpenOptions::new(embedded());
    let report = check(directory.path(), options, &CheckOptions::default()).await.unwrap();
    assert!(report.findings.kept().is_empty(), "{:#?}", report.findings);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_added_columns_default_outlives_restarts_backups_and_vacuum() {
    let (directory, database) = fresh().await;
    let mut session = database.session();
    run(&mut session, "CREATE TABLE t (id int PRIMARY KEY)").await;
    run(&mut session, "INSERT INTO t SELECT i FROM generate_series(1, 20000) AS g (i)").await;
    run(&mut session, "DELETE FROM t WHERE id <= 5000; CHECKPOINT").await;
    // Of a column added long ago, and of a commit that is in the log alone.
    run(&mut session, "INSERT INTO t VALUES (20001)").await;
    let before =
        database.snapshot(SnapshotKind::Flushed).await.unwrap().extents(DeviceId::EMBEDDED);
    run(&mut session, "ALTER TABLE t ADD COLUMN a text NOT NULL DEFAULT 'then'").await;
    let after = database.snapshot(SnapshotKind::Flushed).await.unwrap().extents(DeviceId::EMBEDDED);
    assert_eq!(before, after, "rows were written");
    run(&mut session, "ALTER TABLE t ALTER COLUMN a SET DEFAULT 'now'").await;
    run(&mut session, "INSERT INTO t VALUES (20002)").await;
    let query = "SELECT a, count(*), min(id), max(id) FROM t GROUP BY a ORDER BY a";
    let expected = ["now,1,20002,20002", "then,15001,5001,20001"];
    assert_eq!(rows(&mut session, query).await, expected);
    let place = tempfile::tempdir().unwrap();
    let (backup, copy) = (place.path().join("backup"), place.path().join("copy"));
    database.backup(&backup).await.unwrap();
    drop((session, database));

    let database = open(directory.path()).await;
    let mut session = database.session();
    assert_eq!(rows(&mut session, query).await, expected);
    assert_eq!(row(&mut session, "SELECT a FROM t WHERE id = 6000").await, "then");
    run(&mut session, "VACUUM t; CHECKPOINT").await;
    assert_eq!(rows(&mut session, query).await, expected);
    drop((session, database));
    let options = OpenOptions::new(embedded());
    let report = check(directory.path(), options, &CheckOptions::default()).await.unwrap();
    assert!(report.findings.kept().is_empty(), "{:#?}", report.findings);

    restore(&backup, &copy, &crate::backup::options()).await.unwrap();
    let database = crate::backup::opened(&copy).await;
    let mut session = database.session();
    assert_eq!(rows(&mut session, query).await, expected);
    drop((session, database));
    crate::backup::assert_sound(&copy).await;
}

/// Dead rows may be from before a column could not be NULL, and lie on their pages still.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_rows_may_have_nulls_where_the_table_has_none() {
    let (directory, database) = fresh().await;
    let mut session = database.session();
    run(&mut session, "CREATE TABLE gone (id int PRIMARY KEY); INSERT INTO gone VALUES (1), (2)")
        .await;
    run(&mut session, "CHECKPOINT; DELETE FROM gone; CHECKPOINT").await;
    run(&mut session, "ALTER TABLE gone ADD COLUMN k int NOT NULL UNIQUE").await;
    run(&mut session, "INSERT INTO gone VALUES (1, 5)").await;
    run(&mut session, "CREATE TABLE kept (id int PRIMARY KEY, d int); CREATE INDEX ON kept (d)")
        .await;
    run(&mut session, "INSERT INTO kept VALUES (1, NULL), (2, NULL), (3, 7); CHECKPOINT").await;
    run(&mut session, "UPDATE kept SET d = 0 WHERE d IS NULL; CHECKPOINT").await;
    run(&mut session, "ALTER TABLE kept ALTER COLUMN d SET NOT NULL").await;
    drop((session, database));
    let database = open(directory.path()).await;
    let mut session = database.session();
    assert_eq!(rows(&mut session, "SELECT id FROM kept WHERE d = 0 ORDER BY id").await, ["1", "2"]);
    assert_eq!(rows(&mut session, "SELECT id FROM gone WHERE k = 5").await, ["1"]);
    run(&mut session, "INSERT INTO kept VALUES (4, 0); CREATE INDEX ON kept (d, id)").await;
    drop((session, database));
    let options = OpenOptions::new(embedded());
    let report = check(directory.path(), options, &CheckOptions::default()).await.unwrap();
    assert!(report.findings.kept().is_empty(), "{:#?}", report.findings);
}
