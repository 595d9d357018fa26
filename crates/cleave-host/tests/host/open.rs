//! Tests of opening, closing and reopening a database, and of refused cases.

use std::fs;

use cleave_host::backup::restore;
use cleave_host::{Database, OpenOptions};
use cleave_media::{DirectFile, OpenMode, ReplacedFile};

use crate::support::{embedded, embedded_as, fresh, open, row, rows, run};

async fn refusal(directory: &std::path::Path, create: bool) -> (String, &'static str) {
    let options = OpenOptions::new(embedded()).create(create);
    let error = Database::open(directory, options).await.unwrap_err();
    (error.to_string(), error.sqlstate())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reopening_keeps_everything() {
    let (directory, database) = fresh().await;
    let mut session = database.session();
    run(&mut session, "CREATE TABLE t (id int PRIMARY KEY, name text)").await;
    run(&mut session, "INSERT INTO t VALUES (1, 'one'), (2, NULL)").await;
    run(&mut session, "CREATE TABLE empty (x bigint)").await;
    let (identity, epoch) = (database.catalog().database, database.catalog().epoch);
    drop((session, database));

    let database = open(directory.path()).await;
    assert_eq!(database.catalog().database, identity);
    assert_eq!(database.catalog().epoch, epoch + 1, "every opening raises the epoch");
    let mut session = database.session();
    assert_eq!(rows(&mut session, "SELECT * FROM t ORDER BY id").await, ["1,one", "2,NULL"]);
    assert_eq!(row(&mut session, "SELECT name FROM t WHERE id = 1").await, "one");
    assert_eq!(row(&mut session, "SELECT count(*) FROM empty").await, "0");
    run(&mut session, "INSERT INTO t VALUES (3, 'three')").await;
    assert_eq!(row(&mut session, "SELECT count(*) FROM t").await, "3");
}

#[tokio::test]
async fn one_process_at_a_time() {
    let (directory, database) = fresh().await;
    let (message, sqlstate) = refusal(directory.path(), true).await;
    assert!(message.contains("is in use by another process"), "{message}");
    assert_eq!(sqlstate, "55006");
    drop(database);
    drop(open(directory.path()).await);
}

#[tokio::test]
async fn media_that_its_last_holder_is_letting_go_of_is_waited_for() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("device-0.media");
    let held = DirectFile::open(&path, OpenMode::Create).unwrap();
    let (message, _) = refusal(directory.path(), true).await;
    assert!(message.contains("is in use by another process"), "{message}");
    let letting_go = async {
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        drop(held);
    };
    let (database, ()) = tokio::join!(open(directory.path()), letting_go);
    assert_eq!(database.catalog().commit, 0);
}

#[tokio::test]
async fn a_directory_that_is_no_database_stays_as_it_is() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("thesis.tex"), "so far").unwrap();
    for create in [false, true] {
        let (message, sqlstate) = refusal(directory.path(), create).await;
        assert!(message.contains("is not a Cleave database"), "{message}");
        assert_eq!(sqlstate, "3D000");
    }
    let names: Vec<_> = fs::read_dir(directory.path()).unwrap().collect();
    assert_eq!(names.len(), 1, "nothing was left there: {names:?}");
    let file = directory.path().join("thesis.tex");
    assert!(refusal(&file, true).await.0.contains("it is not a directory"));
    let absent = directory.path().join("absent");
    assert!(refusal(&absent, false).await.0.contains("it does not exist"));
    assert!(!absent.exists());
}

#[tokio::test]
async fn an_interrupted_creation_is_begun_anew() {
    let directory = tempfile::tempdir().unwrap();
    for name in ["lock", "device-0.media", "manifest.new"] {
        fs::write(directory.path().join(name), "").unwrap();
    }
    let database = open(directory.path()).await;
    assert_eq!(database.catalog().commit, 0);
}

#[tokio::test]
async fn a_creation_killed_before_its_manifest_is_begun_anew() {
    let directory = tempfile::tempdir().unwrap();
    fs::create_dir(directory.path().join("segments")).unwrap();
    for (name, content) in [("lock", ""), ("device-0.media", ""), ("device-0.media.id", "an id")] {
        fs::write(directory.path().join(name), content).unwrap();
    }
    let database = open(directory.path()).await;
    assert_eq!(database.catalog().commit, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_whose_manifest_is_missing_is_not_taken_as_new() {
    let (directory, database) = fresh().await;
    let mut session = database.session();
    run(&mut session, "CREATE TABLE t (id int PRIMARY KEY)").await;
    run(&mut session, "INSERT INTO t VALUES (1), (2)").await;
    drop((session, database));
    let (path, aside) =
        (directory.path().join("manifest"), directory.path().join("manifest.aside"));
    let media = directory.path().join("device-0.media");
    assert!(fs::metadata(&media).unwrap().len() > 0);
    fs::rename(&path, &aside).unwrap();
    for create in [false, true] {
        let (message, sqlstate) = refusal(directory.path(), create).await;
        for part in ["manifest\" is damaged: it is missing", "nothing was changed", "restore it"] {
            assert!(message.contains(part), "{part} is not said: {message}");
        }
        assert_eq!(sqlstate, "XX001");
        assert!(!path.exists());
    }
    fs::rename(&aside, &path).unwrap();
    let database = open(directory.path()).await;
    assert_eq!(row(&mut database.session(), "SELECT count(*) FROM t").await, "2");
    drop(database);

    let other = tempfile::tempdir().unwrap();
    fs::create_dir(other.path().join("segments")).unwrap();
    fs::write(other.path().join("segments").join("3"), "of a table on another device").unwrap();
    let (message, sqlstate) = refusal(other.path(), true).await;
    assert!(message.contains("manifest\" is damaged: it is missing"), "{message}");
    assert_eq!(sqlstate, "XX001");
    let names: Vec<_> = fs::read_dir(other.path()).unwrap().collect();
    assert_eq!(names.len(), 1, "nothing was added: {names:?}");
}

#[tokio::test]
async fn a_damaged_manifest_is_named() {
    let (directory, database) = fresh().await;
    drop(database);
    let path = directory.path().join("manifest");
    let whole = fs::read(&path).unwrap();
    fs::write(&path, &whole[..whole.len() - 1]).unwrap();
    let (message, sqlstate) = refusal(directory.path(), true).await;
    assert!(message.contains("manifest\" is damaged"), "{message}");
    assert_eq!(sqlstate, "XX001");
    fs::write(&path, &whole).unwrap();
    drop(open(directory.path()).await);
}

#[tokio::test]
async fn another_media_file_is_noticed() {
    let (directory, database) = fresh().await;
    drop(database);
    let options = OpenOptions::new(embedded_as([8; 16]));
    let error = Database::open(directory.path(), options).await.unwrap_err();
    let message = error.to_string();
    assert!(message.contains("another device answers as \"embedded\""), "{message}");
    assert_eq!(error.sqlstate(), "58030");
}

/// A database and a backup as builds before the manifest was called so left them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_under_the_names_of_earlier_builds_are_read() {
    let (directory, database) = fresh().await;
    let mut session = database.session();
    run(&mut session, "CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1), (2)").await;
    let place = tempfile::tempdir().unwrap();
    let backup = place.path().join("backup");
    database.backup(&backup).await.unwrap();
    drop((session, database));
    let (manifest, before) = (directory.path().join("manifest"), directory.path().join("root"));
    fs::rename(&manifest, &before).unwrap();
    let database = open(directory.path()).await;
    assert!(manifest.exists() && !before.exists(), "it has its name of today");
    assert_eq!(row(&mut database.session(), "SELECT count(*) FROM t").await, "2");
    drop(database);
    // Only the backup's own list: the names of its files are in that.
    fs::rename(backup.join("backup_manifest"), backup.join("manifest")).unwrap();
    let restored = place.path().join("restored");
    restore(&backup, &restored, &OpenOptions::new(embedded())).await.unwrap();
    let database = open(&restored).await;
    assert_eq!(row(&mut database.session(), "SELECT count(*) FROM t").await, "2");
}

#[tokio::test]
async fn what_a_killed_copy_has_left_beside_its_file_is_removed() {
    let (directory, database) = fresh().await;
    let outside = tempfile::tempdir().unwrap();
    let rows = outside.path().join("rows.csv");
    let copy = format!("COPY (SELECT 1) TO '{}'", rows.display());
    run(&mut database.session(), &copy).await;
    let notes = || {
        let entries = fs::read_dir(directory.path().join("spill")).unwrap();
        entries.filter(|entry| entry.as_ref().unwrap().path().is_symlink()).count()
    };
    assert_eq!(notes(), 0);
    // A process that is killed drops nothing.
    let file = ReplacedFile::create(&rows, 0o600).unwrap();
    let note = database.note_part(&file).unwrap();
    let part = file.part().unwrap().to_owned();
    let killed = std::mem::ManuallyDrop::new((file, note));
    assert!(notes() == 1 && part.exists());
    drop(database);
    let database = open(directory.path()).await;
    assert!(!part.exists() && notes() == 0);
    assert_eq!(fs::read_to_string(&rows).unwrap(), "1\n");
    drop((killed, database));
}
