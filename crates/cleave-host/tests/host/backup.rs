//! Tests of backups: of a database under writes, over several devices, of damaged databases, and interrupted ones.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use cleave_host::backup::{check_backup, restore};
use cleave_host::check::{CheckOptions, check};
use cleave_host::{Database, DeviceId, OpenOptions};
use cleave_media::{FaultyMedia, Media};
use datafusion::common::runtime::SpawnedTask;

use crate::devices::{Served, TOKEN, anywhere, remote, token_file};
use crate::durability::Slot;
use crate::support::{
    assert_no_leak, batches, embedded, embedded_as, fresh, numbered, refused, row, rows, run,
};

/// The restored database has a device of its own.
pub(crate) fn options() -> OpenOptions {
    OpenOptions::new(embedded_as([9; 16]))
}

pub(crate) async fn opened(directory: &Path) -> Arc<Database> {
    Database::open(directory, options()).await.unwrap()
}

pub(crate) async fn assert_sound(directory: &Path) {
    let report = check(directory, options(), &CheckOptions::default()).await.unwrap();
    assert!(report.findings.kept().is_empty(), "{:#?}", report.findings);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_has_one_commit_while_writers_go_on() {
    let (directory, database) = fresh().await;
    let mut session = database.session();
    run(&mut session, "CREATE TABLE t (id int PRIMARY KEY, amount bigint, note text)").await;
    run(&mut session, "CREATE INDEX t_amount ON t (amount)").await;
    let long = "x".repeat(200_000);
    run(&mut session, &format!("INSERT INTO t VALUES (1, 500, 'a'), (2, 500, '{long}')")).await;
    run(
        &mut session,
        "CREATE TABLE bulk (id int PRIMARY KEY, note text); CREATE TABLE none (id int)",
    )
    .await;
    session.load("bulk", batches(vec![numbered(0..20_000)]), None).await.unwrap();
    run(&mut session, "DELETE FROM bulk WHERE id % 10 = 0; ANALYZE").await;
    let done = Arc::new(AtomicBool::new(false));
    let writer = {
        let (database, done) = (Arc::clone(&database), Arc::clone(&done));
        SpawnedTask::spawn(async move {
            let mut session = database.session();
            let mut turn = 0;
            while !done.load(Ordering::Relaxed) {
                turn += 1;
                run(&mut session, "BEGIN").await;
                run(&mut session, "UPDATE t SET amount = amount - 1 WHERE id = 1").await;
                run(&mut session, "UPDATE t SET amount = amount + 1 WHERE id = 2").await;
                run(&mut session, &format!("INSERT INTO t VALUES ({}, 0, 'later')", turn + 10))
                    .await;
                run(&mut session, "COMMIT").await;
                if turn % 7 == 0 {
                    run(&mut session, "CHECKPOINT").await;
                }
            }
        })
    };
    let place = tempfile::tempdir().unwrap();
    for turn in 0..3 {
        let target = place.path().join(format!("backup {turn}"));
        run(&mut session, &format!("BACKUP TO '{}'", target.display())).await;
        let summary = check_backup(&target).await.unwrap();
        assert_eq!(summary.table_count, 3);
        let copy = place.path().join(format!("copy {turn}"));
        restore(&target, &copy, &options()).await.unwrap();
        let restored = opened(&copy).await;
        let mut session = restored.session();
        assert_eq!(row(&mut session, "SELECT sum(amount) FROM t").await, "1000");
        assert_eq!(row(&mut session, "SELECT length(note) FROM t WHERE id = 2").await, "200000");
        assert_eq!(
            row(&mut session, "SELECT count(*), sum(id) FROM bulk").await,
            "18000,180000000"
        );
        assert!(!rows(&mut session, "SHOW STATISTICS FOR bulk").await.is_empty());
        assert_no_leak(&restored);
        // It works: old keys are known, and new rows are kept.
        assert_eq!(
            refused(&mut session, "INSERT INTO t VALUES (2, 0, '')").await.sqlstate(),
            "23505"
        );
        run(&mut session, "INSERT INTO bulk VALUES (0, 'back'); UPDATE t SET amount = 7").await;
        drop((session, restored));
        let restored = opened(&copy).await;
        assert_eq!(
            row(&mut restored.session(), "SELECT note FROM bulk WHERE id = 0").await,
            "back"
        );
        drop(restored);
        assert_sound(&copy).await;
    }
    done.store(true, Ordering::Relaxed);
    writer.await.unwrap();
    drop((session, database));
    let report =
        check(directory.path(), OpenOptions::new(embedded()), &CheckOptions::default()).await;
    assert!(report.unwrap().is_clean());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tables_of_all_devices_come_back_on_one() {
    let place = tempfile::tempdir().unwrap();
    let served = Served::start(&place.path().join("nas.media"), [3; 16], anywhere()).await;
    let (_directory, database) = fresh().await;
    let way = remote(served.address, token_file(place.path(), TOKEN));
    database.add_device("nas", way).await.unwrap();
    let mut session = database.session();
    run(&mut session, "CREATE TABLE far (id int PRIMARY KEY, note text) WITH (device = nas)").await;
    run(
        &mut session,
        "CREATE TABLE both (id int PRIMARY KEY, note text)
         WITH (devices = (embedded, nas), tablets = 4, tablet_by = hash (id))",
    )
    .await;
    for table in ["far", "both"] {
        session.load(table, batches(vec![numbered(0..3000)]), None).await.unwrap();
        run(&mut session, &format!("DELETE FROM {table} WHERE id < 100")).await;
    }
    let target = place.path().join("backup");
    run(&mut session, &format!("BACKUP TO '{}'", target.display())).await;
    drop((session, database));
    served.stop().await;
    let copy = place.path().join("copy");
    restore(&target, &copy, &options()).await.unwrap();
    assert_sound(&copy).await;
    let restored = opened(&copy).await;
    let mut session = restored.session();
    for table in ["far", "both"] {
        let count = row(&mut session, &format!("SELECT count(*), min(id) FROM {table}")).await;
        assert_eq!(count, "2900,100");
        run(&mut session, &format!("INSERT INTO {table} VALUES (1, 'one')")).await;
    }
    run(&mut session, "CHECKPOINT").await;
    assert_no_leak(&restored);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_there_is_not_written_over() {
    let (directory, database) = fresh().await;
    let mut session = database.session();
    run(&mut session, "CREATE TABLE t (id int); INSERT INTO t VALUES (1)").await;
    let place = tempfile::tempdir().unwrap();
    let full = place.path().join("full");
    std::fs::create_dir(&full).unwrap();
    std::fs::write(full.join("letter"), "dear").unwrap();
    let error = refused(&mut session, &format!("BACKUP TO '{}'", full.display())).await;
    assert_eq!(error.sqlstate(), "58P02");
    assert!(error.to_string().contains("letter"), "{error}");
    let target = place.path().join("backup");
    let sql = format!("BACKUP TO '{}'", target.display());
    run(&mut session, &sql).await;
    let error = refused(&mut session, &sql).await;
    assert!(error.to_string().contains("holds a backup"), "{error}");
    let error = refused(&mut session, &format!("BEGIN; {sql}")).await;
    assert_eq!(error.sqlstate(), "25001");
    run(&mut session, "ROLLBACK").await;
    for there in [directory.path(), full.as_path()] {
        let error = restore(&target, there, &options()).await.unwrap_err();
        assert_eq!(error.sqlstate(), "58P02", "{error}");
    }
    assert_eq!(row(&mut session, "SELECT count(*) FROM t").await, "1");
    let error = restore(&full, &place.path().join("copy"), &options()).await.unwrap_err();
    assert!(error.to_string().contains("manifest"), "{error}");
    assert!(!place.path().join("copy").exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_that_is_damaged_is_named_and_a_restore_begins_anew() {
    let (_directory, database) = fresh().await;
    let mut session = database.session();
    run(&mut session, "CREATE TABLE t (id int PRIMARY KEY, note text)").await;
    session.load("t", batches(vec![numbered(0..5000)]), None).await.unwrap();
    let place = tempfile::tempdir().unwrap();
    let target = place.path().join("backup");
    database.backup(&target).await.unwrap();
    let copy = place.path().join("copy");
    for file in ["pages", "catalog/manifest", "backup_manifest"] {
        let path = target.join(file);
        let sound = std::fs::read(&path).unwrap();
        let mut flipped = sound.clone();
        let middle = flipped.len() / 2;
        flipped[middle] ^= 1;
        let cut = sound[..sound.len() - 1].to_vec();
        for wrong in [flipped, cut] {
            std::fs::write(&path, wrong).unwrap();
            let errors = [
                check_backup(&target).await.unwrap_err(),
                restore(&target, &copy, &options()).await.unwrap_err(),
            ];
            for error in errors {
                assert_eq!(error.sqlstate(), "XX001", "{file}: {error}");
                assert!(error.to_string().contains("backup"), "{error}");
            }
            if copy.exists() {
                let error = Database::open(&copy, options().create(true)).await.unwrap_err();
                assert!(error.to_string().contains("not completed"), "{error}");
            }
        }
        std::fs::remove_file(&path).unwrap();
        assert_eq!(check_backup(&target).await.unwrap_err().sqlstate(), "XX001");
        std::fs::write(&path, sound).unwrap();
    }
    restore(&target, &copy, &options()).await.unwrap();
    assert_sound(&copy).await;
    assert_eq!(row(&mut opened(&copy).await.session(), "SELECT count(*) FROM t").await, "5000");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_page_is_in_no_backup() {
    let directory = tempfile::tempdir().unwrap();
    let media = Arc::new(FaultyMedia::new());
    let slot = Slot::new(Arc::clone(&media) as Arc<dyn Media>);
    let database = slot.open(directory.path()).await;
    let mut session = database.session();
    run(&mut session, "CREATE TABLE t (id int PRIMARY KEY, note text)").await;
    session.load("t", batches(vec![numbered(0..5000)]), None).await.unwrap();
    let place = tempfile::tempdir().unwrap();
    let target = place.path().join("backup");
    let extent = database.catalog().extents(DeviceId::EMBEDDED)[0];
    let byte = extent.start.0 * 4096 + 50;
    media.flip_bit(byte, 0).unwrap();
    let error = database.backup(&target).await.unwrap_err();
    assert_eq!(error.sqlstate(), "XX001", "{error}");
    assert!(error.to_string().contains("\"t\""), "{error}");
    assert_eq!(check_backup(&target).await.unwrap_err().sqlstate(), "XX001");
    media.flip_bit(byte, 0).unwrap();
    // In the same place.
    database.backup(&target).await.unwrap();
    check_backup(&target).await.unwrap();
    assert_eq!(row(&mut session, "SELECT count(*) FROM t").await, "5000");
}
