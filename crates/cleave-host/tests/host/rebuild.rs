//! Tests of ALTER DEVICE … REBUILD: what lay on a lost device is on another one, row by row and id by id, while all
//! other tables are used; where that cannot be, nothing changes.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use cleave_host::backup::{PointInTime, Until};
use cleave_host::replication::restore_until;
use cleave_host::{Database, Session};
use cleave_media::SplitMix64;
use datafusion::common::runtime::SpawnedTask;
use tempfile::TempDir;

use crate::backup::{opened, options};
use crate::crash::{DIRECTORY, run_and_kill, say};
use crate::devices::{Served, TOKEN, anywhere, attach_nas, remote, token_file};
use crate::drain::{assert_clean, attach_san, devices_of, filled, in_each_split, picture, used};
use crate::full_media::Bounded;
use crate::support::{beside, fresh, open, open_forgetful, refused, row, run, waits};

/// File with the statement of a process that is killed.
const STATEMENT: &str = "statement";
const KILLS: u32 = 12;

const SINCE: &str = "SELECT count(*), max(id) FROM since WHERE note LIKE 'since 1%'";

/// A database that archives its log, with the device "nas"; what lies outside of it is in the first folder.
async fn archived() -> (TempDir, TempDir, Arc<Database>, Served) {
    let outside = tempfile::tempdir().unwrap();
    let (directory, database) = fresh().await;
    let (nas, _) = attach_nas(&database, outside.path()).await;
    let archive = outside.path().join("archive");
    std::fs::create_dir(&archive).unwrap();
    let set = format!("ALTER SYSTEM SET archive_directory = '{}'", archive.display());
    let mut session = database.session();
    run(&mut session, &set).await;
    run(
        &mut session,
        "CREATE TABLE near (id int PRIMARY KEY, n int); INSERT INTO near VALUES (1, 1)",
    )
    .await;
    (outside, directory, database, nas)
}

fn backup(outside: &TempDir) -> PathBuf {
    outside.path().join("backup")
}

fn rebuild(outside: &TempDir, to: &str) -> String {
    format!("ALTER DEVICE nas REBUILD {to} FROM '{}'", backup(outside).display())
}

/// What lies on the device after the backup too: loads, page versions, dead rows, definitions and the delta.
async fn changed(session: &mut Session) {
    for sql in [
        "INSERT INTO t SELECT i, 'later ' || i, i % 50 FROM generate_series(100001, 120000) AS g (i)",
        "CREATE INDEX t_n_id ON t (n, id)",
        "SET update_placement = device",
        "UPDATE t SET n = n + 1 WHERE id % 4 = 1",
        "RESET update_placement",
        "DELETE FROM t WHERE id % 19 = 5",
        "CREATE TABLE since (id int PRIMARY KEY, note text) WITH (device = nas)",
        "INSERT INTO since SELECT i, 'since ' || i FROM generate_series(1, 15000) AS g (i)",
        "INSERT INTO since VALUES (15001, 'one more')",
        "BEGIN; UPDATE t SET note = 'both' WHERE id = 1; UPDATE near SET n = n + 1; COMMIT",
        "INSERT INTO t SELECT i, 'last ' || i, i FROM generate_series(130001, 130200) AS g (i)",
    ] {
        run(session, sql).await;
    }
}

/// The folder that a rebuild restores into is gone.
fn assert_no_folder(directory: &Path) {
    let names = std::fs::read_dir(directory).unwrap();
    for name in names.map(|entry| entry.unwrap().file_name()) {
        assert!(!name.to_string_lossy().starts_with("rebuild"), "{name:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_lay_on_a_lost_device_comes_back_on_another() {
    let (outside, directory, database, nas) = archived().await;
    let mut session = database.session();
    filled(&mut session, "WITH (device = nas)").await;
    run(&mut session, "CREATE TABLE empty (id int PRIMARY KEY) WITH (device = nas)").await;
    database.backup(&backup(&outside)).await.unwrap();
    changed(&mut session).await;
    let before = picture(&mut session).await;
    let since = row(&mut session, SINCE).await;
    run(&mut session, "PREPARE p AS SELECT note FROM t WHERE id = $1").await;
    assert_eq!(row(&mut session, "EXECUTE p(1)").await, "both");
    let _san = attach_san(&mut session, outside.path()).await;

    let error = refused(&mut session, &rebuild(&outside, "TO san")).await;
    assert!(error.sqlstate() == "55000" && error.to_string().contains("it answers"), "{error}");
    nas.stop().await;
    database.buffer_pool().clear();
    // What an interrupted rebuild has left is no obstacle.
    let leftover = directory.path().join("rebuild-1");
    std::fs::create_dir(&leftover).unwrap();
    std::fs::write(leftover.join("manifest"), b"?").unwrap();
    let mut other = database.session();
    let sql = rebuild(&outside, "TO san");
    let mut rebuilding = database.session();
    let mut rebuilding = SpawnedTask::spawn(async move { rebuilding.run(&sql).await.map(drop) });
    let mut count = 1;
    let rebuilt = loop {
        run(&mut other, "UPDATE near SET n = n + 1").await;
        count += 1;
        if let Ok(rebuilt) = tokio::time::timeout(Duration::ZERO, &mut rebuilding).await {
            break rebuilt;
        }
    };
    rebuilt.unwrap().unwrap();
    assert!(count > 2, "others go on meanwhile");
    assert_no_folder(directory.path());
    for table in ["t", "empty", "since"] {
        assert_eq!(devices_of(&database, table), ["san"]);
    }
    in_each_split(&mut session, &before).await;
    assert_eq!(row(&mut session, SINCE).await, since);
    assert_eq!(row(&mut session, "EXECUTE p(1)").await, "both");
    assert_eq!(row(&mut session, "SELECT n FROM near").await, (count + 1).to_string());
    assert_clean(&database).await;
    // It is written as any other, by fragments too, and its keys are still unique.
    run(&mut session, "DROP DEVICE nas").await;
    run(&mut session, "SET update_placement = device; UPDATE t SET n = n + 1 WHERE id % 2 = 0")
        .await;
    run(&mut session, "UPDATE t SET n = n - 1 WHERE id % 2 = 0; RESET update_placement").await;
    run(&mut session, "INSERT INTO t VALUES (-1, '', 0); DELETE FROM t WHERE id = -1").await;
    for key in [3, 110_001, 130_007] {
        let insert = format!("INSERT INTO t VALUES ({key}, '', 0)");
        assert_eq!(refused(&mut session, &insert).await.sqlstate(), "23505", "{key}");
    }
    in_each_split(&mut session, &before).await;
    drop((session, other, database));
    for _ in 0..2 {
        let database = open(directory.path()).await;
        let mut session = database.session();
        in_each_split(&mut session, &before).await;
        assert_eq!(row(&mut session, SINCE).await, since);
        run(&mut session, "VACUUM FULL").await;
        in_each_split(&mut session, &before).await;
        assert_clean(&database).await;
    }
}

/// Tablets of the same table lie elsewhere, and rows of theirs wait with those of the lost device.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tablets_beside_the_lost_ones_lose_nothing() {
    let (outside, directory, database, nas) = archived().await;
    let mut session = database.session();
    let _san = attach_san(&mut session, outside.path()).await;
    filled(&mut session, "WITH (devices = (nas, san), tablets = 4, tablet_by = hash (id))").await;
    database.backup(&backup(&outside)).await.unwrap();
    changed(&mut session).await;
    let before = picture(&mut session).await;
    nas.stop().await;
    drop((session, database));
    // Opened without the device, its tables are blocked, and their rows wait.
    let database = open(directory.path()).await;
    let mut session = database.session();
    assert_eq!(refused(&mut session, "SELECT count(*) FROM t").await.sqlstate(), "58030");
    run(&mut session, "UPDATE near SET n = 7; CHECKPOINT").await;
    run(&mut session, &rebuild(&outside, "")).await;
    assert_eq!(devices_of(&database, "t"), ["san"; 4]);
    in_each_split(&mut session, &before).await;
    assert_clean(&database).await;
    run(&mut session, "DROP DEVICE nas; INSERT INTO t VALUES (-1, 'after', 0)").await;
    run(&mut session, "DELETE FROM t WHERE id = -1").await;
    drop((session, database));
    let database = open(directory.path()).await;
    let mut session = database.session();
    in_each_split(&mut session, &before).await;
    assert_clean(&database).await;
    // The archive goes on: what was written after the rebuild is restored from the backup before it too.
    run(&mut session, "SET update_placement = device; UPDATE t SET n = n + 1 WHERE id % 2 = 0")
        .await;
    run(&mut session, "RESET update_placement; DELETE FROM t WHERE id = 2; CHECKPOINT").await;
    let after = picture(&mut session).await;
    let copy = outside.path().join("copy");
    let wanted = PointInTime { archive: outside.path().join("archive"), until: Until::End };
    restore_until(&backup(&outside), &copy, &options(), &wanted).await.unwrap();
    in_each_split(&mut opened(&copy).await.session(), &after).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_rebuilt_is_refused_and_stays() {
    let (outside, directory, database, nas) = archived().await;
    let mut session = database.session();
    filled(&mut session, "WITH (device = nas)").await;
    database.backup(&backup(&outside)).await.unwrap();
    let (san, nas_address) = (attach_san(&mut session, outside.path()).await, nas.address);
    run(&mut session, "CREATE TABLE two (id int) WITH (devices = (nas, san), tablets = 2)").await;
    run(&mut session, "INSERT INTO t VALUES (-1, 'after the backup', 0); CHECKPOINT").await;
    nas.stop().await;
    let (_other_directory, other) = fresh().await;
    other.backup(&outside.path().join("other")).await.unwrap();
    let place = |name: &str| outside.path().join(name).display().to_string();
    let (backup, other, none) = (place("backup"), place("other"), place("none"));
    std::fs::create_dir(&none).unwrap();
    let small = Arc::new(Bounded::new(64));
    let media = outside.path().join("small.media");
    let small = Served::over(small, &media, [5; 16], anywhere()).await;
    let way = remote(small.address, token_file(outside.path(), TOKEN));
    database.add_device("small", way).await.unwrap();
    for (sql, code, words) in [
        (format!("ALTER DEVICE nass REBUILD FROM '{backup}'"), "42704", "did you mean \"nas\"?"),
        (format!("ALTER DEVICE nas REBUILD TO nas FROM '{backup}'"), "22023", "rebuilt to itself"),
        (format!("ALTER DEVICE nas REBUILD TO sann FROM '{backup}'"), "42704", "\"sann\""),
        ("ALTER DEVICE nas REBUILD FROM 'backup'".to_owned(), "22023", "begin it with /"),
        ("ALTER DEVICE nas REBUILD".to_owned(), "42601", "FROM"),
        (format!("ALTER DEVICE embedded REBUILD FROM '{backup}'"), "55000", "it answers"),
        (format!("BEGIN; ALTER DEVICE nas REBUILD FROM '{backup}'"), "25001", "transaction block"),
        (format!("ROLLBACK; ALTER DEVICE nas REBUILD FROM '{none}'"), "XX001", "backup"),
        (format!("ALTER DEVICE nas REBUILD FROM '{other}'"), "58P02", "another database"),
        (
            format!("ALTER DEVICE nas REBUILD FROM '{backup}' ARCHIVE '{none}'"),
            "55000",
            "has no log",
        ),
        (format!("ALTER DEVICE nas REBUILD TO small FROM '{backup}'"), "53100", "\"small\""),
    ] {
        let error = refused(&mut session, &sql).await;
        assert_eq!(error.sqlstate(), code, "{sql}: {error}");
        assert!(error.to_string().contains(words), "{sql}: {error}");
        assert_no_folder(directory.path());
    }
    assert_eq!(used(&database, "small").await, 0);
    run(&mut session, "CREATE ROLE joe LOGIN; GRANT SELECT ON t TO joe; SET ROLE joe").await;
    let error = refused(&mut session, &rebuild(&outside, "")).await;
    assert_eq!(error.sqlstate(), "42501", "{error}");
    run(&mut session, "RESET ROLE").await;

    let address = san.address;
    san.stop().await;
    let error = refused(&mut session, &rebuild(&outside, "TO embedded")).await;
    let told = error.to_string();
    assert!(
        error.sqlstate() == "55000" && told.contains("it also lies on device \"san\""),
        "{told}"
    );
    let _san = Served::start(&outside.path().join("san.media"), [2; 16], address).await;

    // An archive that lacks what was committed since.
    run(&mut session, "ALTER SYSTEM RESET archive_directory").await;
    let error = refused(&mut session, &rebuild(&outside, "")).await;
    assert!(error.to_string().contains("name its folder by ARCHIVE"), "{error}");
    let copy = place("copy of the archive");
    copy_folder(&outside.path().join("archive"), Path::new(&copy));
    drop((session, database));
    let nas = Served::start(&outside.path().join("nas.media"), [1; 16], nas_address).await;
    let database = open(directory.path()).await;
    let mut session = database.session();
    // Rows stay as many, with the same row ids.
    run(&mut session, "SET update_placement = device").await;
    run(&mut session, "UPDATE t SET note = note || '?' WHERE id % 2 = 0").await;
    let before = picture(&mut session).await;
    nas.stop().await;
    let lacking = format!("{} ARCHIVE '{copy}'", rebuild(&outside, "TO embedded"));
    let error = refused(&mut session, &lacking).await;
    assert!(
        error.sqlstate() == "55000"
            && error.to_string().contains("the archive ends at position")
            && error.to_string().contains("has all of the log since the backup"),
        "{error}"
    );
    assert_eq!(devices_of(&database, "t"), ["nas"]);
    assert_no_folder(directory.path());
    // Nothing has changed: when the device is back, so are its rows.
    let _nas = Served::start(&outside.path().join("nas.media"), [1; 16], nas_address).await;
    in_each_split(&mut session, &before).await;
    assert_clean(&database).await;
}

/// A writer that was there first is waited for, and `lock_timeout` bounds the wait.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writers_wait_for_the_rebuild_and_it_for_them() {
    let (outside, _directory, database, nas) = archived().await;
    let mut session = database.session();
    run(&mut session, "CREATE TABLE t (id int PRIMARY KEY, n int) WITH (device = nas)").await;
    run(&mut session, "INSERT INTO t SELECT i, i FROM generate_series(1, 1000) AS g (i)").await;
    database.backup(&backup(&outside)).await.unwrap();
    let mut writer = database.session();
    run(&mut writer, "BEGIN; UPDATE t SET n = 0 WHERE id = 1").await;
    nas.stop().await;
    run(&mut session, "SET lock_timeout = 300").await;
    let error = refused(&mut session, &rebuild(&outside, "")).await;
    assert_eq!(error.sqlstate(), "55P03", "{error}");
    run(&mut session, "RESET lock_timeout").await;
    let sql = rebuild(&outside, "").leak();
    let mut rebuilding = beside(database.session(), sql);
    assert!(waits(&mut rebuilding).await);
    assert_eq!(refused(&mut writer, "COMMIT").await.sqlstate(), "58030");
    assert_eq!(rebuilding.await.unwrap().1, "done");
    assert_eq!(devices_of(&database, "t"), ["embedded"]);
    assert_eq!(row(&mut writer, "SELECT count(*), sum(n) FROM t").await, "1000,500500");
    run(&mut writer, "UPDATE t SET n = n + 1 WHERE id = 1").await;
    assert_eq!(row(&mut writer, "SELECT sum(n) FROM t").await, "500501");
    assert_clean(&database).await;
}

/// A rebuild that is killed at any instant has happened or not, and the next one goes from there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rebuild_killed_at_any_instant_has_happened_or_not() {
    let (outside, directory, database, nas) = archived().await;
    let mut session = database.session();
    filled(&mut session, "WITH (device = nas)").await;
    database.backup(&backup(&outside)).await.unwrap();
    changed(&mut session).await;
    let before = picture(&mut session).await;
    nas.stop().await;
    drop((session, database));
    std::fs::write(directory.path().join(STATEMENT), rebuild(&outside, "TO embedded")).unwrap();
    let untouched = outside.path().join("untouched");
    copy_folder(directory.path(), &untouched);
    let mut random = SplitMix64::new(0x3eb1);
    let (mut rebuilt_count, mut killed_count) = (0, 0);
    for round in 0..KILLS {
        let linger = Duration::from_micros(random.below(900_000));
        // Now and then it is let finish.
        let lines = if round % 6 == 5 { 2 } else { 1 };
        let said = run_and_kill("rebuild::child_rebuild", directory.path(), lines, linger);
        let database = open(directory.path()).await;
        let mut session = database.session();
        assert_eq!(row(&mut session, "SELECT n FROM near").await, "2");
        let is_rebuilt = devices_of(&database, "t") == ["embedded"];
        assert!(is_rebuilt || !said.contains(&"rebuilt".to_owned()), "{round}: {said:?}");
        let is_whole = devices_of(&database, "since") == devices_of(&database, "t");
        assert!(is_whole, "{round}: all of the tables or none");
        if !is_rebuilt {
            killed_count += 1;
            continue;
        }
        rebuilt_count += 1;
        in_each_split(&mut session, &before).await;
        assert_clean(&database).await;
        drop((session, database));
        std::fs::remove_dir_all(directory.path()).unwrap();
        copy_folder(&untouched, directory.path());
    }
    assert!(rebuilt_count > 0 && killed_count > 0, "{rebuilt_count} and {killed_count}");
    // What the kills have left, the next rebuild removes.
    let database = open(directory.path()).await;
    let mut session = database.session();
    run(&mut session, &rebuild(&outside, "TO embedded")).await;
    in_each_split(&mut session, &before).await;
    assert_clean(&database).await;
    assert_no_folder(directory.path());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "is run, and killed, by a_rebuild_killed_at_any_instant_has_happened_or_not"]
async fn child_rebuild() {
    let Some(directory) = std::env::var_os(DIRECTORY) else { return };
    let database = open_forgetful(Path::new(&directory)).await;
    let sql = std::fs::read_to_string(Path::new(&directory).join(STATEMENT)).unwrap();
    say("opened");
    run(&mut database.session(), &sql).await;
    say("rebuilt");
    std::future::pending().await
}

fn copy_folder(from: &Path, to: &Path) {
    std::fs::create_dir(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy_folder(&entry.path(), &to),
            false => drop(std::fs::copy(entry.path(), to).unwrap()),
        }
    }
}
