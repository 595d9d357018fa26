//! Tests of the archive of the log: a backup is restored to any moment that the archive covers, and to none beyond a
//! gap.

use std::path::Path;
use std::sync::Arc;

use cleave_host::backup::{PointInTime, Until, check_backup};
use cleave_host::replication::restore_until;
use cleave_host::{Database, OpenOptions, SnapshotKind};
use cleave_media::{Clock, SystemClock};

use crate::backup::{assert_sound, opened, options};
use crate::devices::{Served, TOKEN, anywhere, remote, token_file};
use crate::support::{batches, embedded, fresh, numbered, refused, row, rows, run};

const ALL: &str = "SELECT count(*), sum(id), min(note) FROM t";

fn wanted(archive: &Path, until: Until) -> PointInTime {
    PointInTime { archive: archive.to_owned(), until }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn any_moment_behind_a_backup_comes_back() {
    let place = tempfile::tempdir().unwrap();
    let archive = place.path().join("archive");
    std::fs::create_dir(&archive).unwrap();
    let served = Served::start(&place.path().join("nas.media"), [3; 16], anywhere()).await;
    let (directory, database) = fresh().await;
    let way = remote(served.address, token_file(place.path(), TOKEN));
    database.add_device("nas", way).await.unwrap();
    let mut session = database.session();
    run(&mut session, "CREATE TABLE t (id int PRIMARY KEY, note text)").await;
    run(&mut session, "CREATE TABLE far (id int PRIMARY KEY, note text) WITH (device = nas)").await;
    session.load("t", batches(vec![numbered(0..20_000)]), None).await.unwrap();
    run(&mut session, &format!("ALTER SYSTEM SET archive_directory = '{}'", archive.display()))
        .await;
    let target = place.path().join("backup");
    database.backup(&target).await.unwrap();
    let made_at_us = check_backup(&target).await.unwrap().made_at_us;
    let mut moments = Vec::new();
    let statements = [
        "INSERT INTO t VALUES (20000, 'new')",
        "UPDATE t SET note = 'changed' WHERE id < 10",
        "CHECKPOINT",
        // With more rows than the log takes directly, and on another device.
        "UPDATE t SET note = 'all' WHERE id < 15000",
        "INSERT INTO far VALUES (1, 'one'), (2, 'two')",
        "DELETE FROM t WHERE id % 2 = 0",
        "BEGIN; DELETE FROM far WHERE id = 1; INSERT INTO t VALUES (-7, 'both'); COMMIT",
    ];
    for statement in statements {
        run(&mut session, statement).await;
        let far = rows(&mut session, "SELECT id FROM far ORDER BY id").await;
        let moment =
            (SystemClock.wall(), database.snapshot(SnapshotKind::Flushed).await.unwrap().commit);
        moments.push((moment, row(&mut session, ALL).await, far));
    }
    drop((session, database));
    // Opened again in between.
    let database = Database::open(directory.path(), OpenOptions::new(embedded())).await.unwrap();
    let mut session = database.session();
    let status = row(&mut session, "SHOW archive_status").await;
    assert!(status.starts_with("nothing was copied since the database was opened"), "{status}");
    run(&mut session, "INSERT INTO t VALUES (-8, 'last'); CHECKPOINT").await;
    let status = row(&mut session, "SHOW archive_status").await;
    assert!(status.starts_with("log up to"), "{status}");
    let end = row(&mut session, ALL).await;

    for (number, ((time, commit), expected, far)) in moments.iter().enumerate() {
        for until in [Until::Time(*time), Until::Commit(*commit)] {
            let copy = tempfile::tempdir().unwrap();
            let wanted = wanted(&archive, until);
            restore_until(&target, copy.path(), &options(), &wanted).await.unwrap();
            let restored = opened(copy.path()).await;
            let mut session = restored.session();
            assert_eq!(&row(&mut session, ALL).await, expected, "{number}");
            let found = rows(&mut session, "SELECT id FROM far ORDER BY id").await;
            assert_eq!(&found, far, "{number}");
            drop((session, restored));
            assert_sound(copy.path()).await;
        }
    }
    let copy = place.path().join("end");
    let reached =
        restore_until(&target, &copy, &options(), &wanted(&archive, Until::End)).await.unwrap();
    assert!(reached.is_end && reached.count >= 7, "{reached:?}");
    assert_eq!(row(&mut opened(&copy).await.session(), ALL).await, end);

    // Two at once into one folder: one of them has it to its end.
    let both = place.path().join("both");
    let restore =
        || async { restore_until(&target, &both, &options(), &wanted(&archive, Until::End)).await };
    let (one, other) = tokio::join!(restore(), restore());
    assert!(one.is_ok() != other.is_ok(), "{one:?} {other:?}");
    assert_eq!(row(&mut opened(&both).await.session(), ALL).await, end);

    let early = wanted(&archive, Until::Time(made_at_us - 1));
    let error = restore_until(&target, &place.path().join("no"), &options(), &early).await;
    assert!(error.unwrap_err().to_string().contains("older backup"));
}

/// The rows of every table, by name, and the other objects.
async fn contents(database: &Arc<Database>) -> Vec<String> {
    let mut session = database.session();
    let mut found = Vec::new();
    let tables: Vec<String> = database.catalog().table_names().map(str::to_owned).collect();
    for table in tables {
        found.push(row(&mut session, &format!("SELECT '{table}', count(*) FROM {table}")).await);
        found
            .extend(rows(&mut session, &format!("SELECT * FROM {table} ORDER BY 1 LIMIT 5")).await);
    }
    let names = "SELECT relname FROM pg_class WHERE relkind IN ('i', 'S', 'v') AND relnamespace = 2200 ORDER BY 1";
    found.extend(rows(&mut session, names).await);
    found
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn definitions_and_loads_come_back_too() {
    let place = tempfile::tempdir().unwrap();
    let archive = place.path().join("archive");
    std::fs::create_dir(&archive).unwrap();
    let served = Served::start(&place.path().join("nas.media"), [4; 16], anywhere()).await;
    let (_directory, database) = fresh().await;
    let way = remote(served.address, token_file(place.path(), TOKEN));
    database.add_device("nas", way).await.unwrap();
    let mut session = database.session();
    run(&mut session, "CREATE TABLE t (id int PRIMARY KEY, note text)").await;
    run(&mut session, "CREATE TABLE gone (id int); INSERT INTO gone VALUES (1)").await;
    session.load("t", batches(vec![numbered(0..20_000)]), None).await.unwrap();
    run(&mut session, "INSERT INTO t VALUES (-1, 'small'), (-2, 'small too')").await;
    run(&mut session, &format!("ALTER SYSTEM SET archive_directory = '{}'", archive.display()))
        .await;
    let target = place.path().join("backup");
    database.backup(&target).await.unwrap();
    let statements = [
        "UPDATE t SET note = 'before' WHERE id < 10",
        "CREATE TABLE far (id int PRIMARY KEY, note text) WITH (devices = (nas, embedded), tablets = 2)",
        "INSERT INTO far VALUES (1, 'one'), (2, 'two')",
        "load far",
        "UPDATE far SET note = 'changed' WHERE id % 100 = 7",
        "load t",
        "DELETE FROM t WHERE id % 7 = 3",
        "CREATE INDEX t_note ON t (note)",
        "INSERT INTO t VALUES (-3, 'indexed')",
        "ALTER TABLE t ADD COLUMN number int DEFAULT 5",
        "UPDATE t SET number = 6 WHERE id < 3",
        "CREATE VIEW v AS SELECT id, number FROM t WHERE number = 6",
        "CREATE TABLE counted (id serial PRIMARY KEY, note text)",
        "INSERT INTO counted (note) VALUES ('one'), ('two')",
        "DROP TABLE gone",
        "BEGIN; CREATE TABLE gone AS SELECT id, note FROM t WHERE id < 50; DELETE FROM gone WHERE id = 5; \
         INSERT INTO t VALUES (-4, 'of a block', 4); COMMIT",
        "INSERT INTO gone VALUES (-9, 'behind')",
        "TRUNCATE far",
        "INSERT INTO far VALUES (3, 'three')",
        "ALTER TABLE gone RENAME TO renamed",
        "INSERT INTO counted (note) VALUES ('three')",
        "CHECKPOINT",
    ];
    let mut moments = Vec::new();
    for statement in statements {
        match statement.strip_prefix("load ") {
            Some(table) => {
                let rows = vec![numbered(30_000..42_000)];
                assert_eq!(session.load(table, batches(rows), None).await.unwrap(), 12_000);
            }
            None => drop(run(&mut session, statement).await),
        }
        let found = contents(&database).await;
        moments.push((
            statement,
            SystemClock.wall(),
            database.snapshot(SnapshotKind::Flushed).await.unwrap().commit,
            found,
        ));
    }
    for (number, (statement, time, commit, expected)) in moments.iter().enumerate() {
        let until = if number % 2 == 0 { Until::Commit(*commit) } else { Until::Time(*time) };
        let copy = tempfile::tempdir().unwrap();
        let wanted = wanted(&archive, until);
        restore_until(&target, copy.path(), &options(), &wanted).await.unwrap();
        for _ in 0..2 {
            let restored = opened(copy.path()).await;
            assert_eq!(&contents(&restored).await, expected, "{number}: {statement}");
            drop(restored);
        }
        if number % 3 == 0 {
            assert_sound(copy.path()).await;
        }
    }
    // The restored database continues: ids and numbers are not given twice.
    let copy = place.path().join("end");
    restore_until(&target, &copy, &options(), &wanted(&archive, Until::End)).await.unwrap();
    let restored = opened(&copy).await;
    let mut session = restored.session();
    run(&mut session, "INSERT INTO counted (note) VALUES ('four')").await;
    assert_eq!(row(&mut session, "SELECT count(*), count(DISTINCT id) FROM counted").await, "4,4");
    run(&mut session, "CREATE TABLE more (id int PRIMARY KEY, note text)").await;
    session.load("more", batches(vec![numbered(0..5000)]), None).await.unwrap();
    assert_eq!(row(&mut session, "SELECT count(*) FROM more").await, "5000");
    drop((session, restored));
    assert_sound(&copy).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_in_no_log_is_named() {
    let place = tempfile::tempdir().unwrap();
    let archive = place.path().join("archive");
    std::fs::create_dir(&archive).unwrap();
    for last in ["", "INSERT INTO t VALUES (-2, 'behind'); CHECKPOINT"] {
        let (_directory, database) = fresh().await;
        let mut session = database.session();
        run(&mut session, "CREATE TABLE t (id int PRIMARY KEY, note text)").await;
        let set = format!("ALTER SYSTEM SET archive_directory = '{}'", archive.display());
        run(&mut session, &set).await;
        let copies = tempfile::tempdir().unwrap();
        let target = copies.path().join("backup");
        database.backup(&target).await.unwrap();
        run(&mut session, "INSERT INTO t VALUES (-1, 'before')").await;
        let before = SystemClock.wall();
        // A file where the load would be copied to.
        run(&mut session, "CHECKPOINT").await;
        let status = row(&mut session, "SHOW archive_status").await;
        let (_, folder) = status.split_once(" is in ").unwrap();
        let (folder, _) = folder.split_once(';').unwrap();
        let next = database.catalog().commit + 1;
        for commit in next..next + 3 {
            std::fs::write(Path::new(folder).join(format!("commit-{commit}")), "").unwrap();
        }
        session.load("t", batches(vec![numbered(0..2000)]), None).await.unwrap();
        run(&mut session, "CHECKPOINT").await;
        let status = row(&mut session, "SHOW archive_status").await;
        assert!(status.contains("is not in the archive"), "{status}");
        run(&mut session, last).await;
        for until in [Until::End, Until::Time(SystemClock.wall())] {
            let copy = copies.path().join("copy");
            let wanted = wanted(&archive, until);
            let error = restore_until(&target, &copy, &options(), &wanted).await.unwrap_err();
            assert_eq!(error.sqlstate(), "55000", "{error}");
            assert!(error.to_string().contains("bulk load"), "{error}");
            let error = Database::open(&copy, options()).await.unwrap_err();
            assert!(error.to_string().contains("not completed"), "{error}");
        }
        let copy = copies.path().join("copy");
        let until = wanted(&archive, Until::Time(before));
        restore_until(&target, &copy, &options(), &until).await.unwrap();
        assert_eq!(row(&mut opened(&copy).await.session(), ALL).await, "1,-1,before");
        // A newer backup has it.
        let newer = copies.path().join("newer");
        database.backup(&newer).await.unwrap();
        let copy = copies.path().join("newer copy");
        let until = wanted(&archive, Until::End);
        restore_until(&newer, &copy, &options(), &until).await.unwrap();
        let mut session = database.session();
        assert_eq!(
            row(&mut opened(&copy).await.session(), ALL).await,
            row(&mut session, ALL).await
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_archive_that_is_away_loses_no_log_and_is_named() {
    let place = tempfile::tempdir().unwrap();
    let (archive, away) = (place.path().join("archive"), place.path().join("away"));
    let (_directory, database) = fresh().await;
    let mut session = database.session();
    let set = format!("ALTER SYSTEM SET archive_directory = '{}'", archive.display());
    assert_eq!(refused(&mut session, &set).await.sqlstate(), "22023");
    for wrong in ["ALTER SYSTEM SET split = h0", "ALTER SYSTEM", "ALTER SYSTEM SET"] {
        refused(&mut session, wrong).await;
    }
    assert_eq!(row(&mut session, "SHOW archive_status").await, "off");
    std::fs::create_dir(&archive).unwrap();
    run(&mut session, "CREATE TABLE t (id int PRIMARY KEY, note text)").await;
    run(&mut session, &set).await;
    let target = place.path().join("backup");
    database.backup(&target).await.unwrap();
    std::fs::rename(&archive, &away).unwrap();
    run(&mut session, "INSERT INTO t VALUES (1, 'one')").await;
    // The checkpoint exists, the archive does not.
    let error = refused(&mut session, "CHECKPOINT").await;
    assert!(error.to_string().contains("archive"), "{error}");
    assert!(!archive.exists());
    // Several files of log.
    let long = "x".repeat(1 << 20);
    for id in 2..42 {
        run(&mut session, &format!("INSERT INTO t VALUES ({id}, '{long}')")).await;
    }
    let status = row(&mut session, "SHOW archive_status").await;
    assert!(status.starts_with("FAILED") && status.contains("wait"), "{status}");
    std::fs::rename(&away, &archive).unwrap();
    run(&mut session, "CHECKPOINT").await;
    let status = row(&mut session, "SHOW archive_status").await;
    assert!(status.starts_with("log up to") && status.contains("; 0 finished"), "{status}");
    let copy = place.path().join("copy");
    restore_until(&target, &copy, &options(), &wanted(&archive, Until::End)).await.unwrap();
    assert_eq!(row(&mut opened(&copy).await.session(), "SELECT count(*) FROM t").await, "41");
    // A file that the archive lacks, and one that is damaged.
    let log = std::fs::read_dir(&archive).unwrap().next().unwrap().unwrap().path();
    let mut files: Vec<_> =
        std::fs::read_dir(&log).unwrap().map(|file| file.unwrap().path()).collect();
    files.sort();
    assert!(files.len() > 2, "{files:?}");
    let sound = std::fs::read(&files[1]).unwrap();
    let mut flipped = sound.clone();
    flipped[1000] ^= 1;
    let again = || restore_again(&target, place.path(), &archive);
    std::fs::write(&files[1], flipped).unwrap();
    assert_eq!(again().await.unwrap_err().sqlstate(), "XX001");
    std::fs::remove_file(&files[1]).unwrap();
    assert_eq!(again().await.unwrap_err().sqlstate(), "XX001");
    std::fs::write(&files[1], sound).unwrap();
    again().await.unwrap();
}

async fn restore_again(
    target: &Path,
    place: &Path,
    archive: &Path,
) -> Result<(), cleave_host::Error> {
    let copy = place.join("again");
    restore_until(target, &copy, &options(), &wanted(archive, Until::End)).await.map(drop)
}
