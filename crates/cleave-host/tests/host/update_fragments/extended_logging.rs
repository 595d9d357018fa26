//! Tests of pages that are copied beside an archived log: restore to any moment between update fragments, commits that
//! wait for a copy while their locks are released, and copies that fail or are cut off.

use std::sync::{Condvar, Mutex};
use std::time::Duration;

use cleave_host::backup::{PointInTime, Until};
use cleave_host::replication::restore_until;
use cleave_host::{OpenOptions, SnapshotKind};
use cleave_media::{AlignedBuffer, BlockAddress, Extent, Media, MediaError, Memory};

use super::*;
use crate::backup::{assert_sound, opened, options};
use crate::devices::{Served, TOKEN, anywhere, remote, token_file};
use crate::support::{beside, embedded, open_forgetful, waits};

/// How a device reads.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Reading {
    #[default]
    AtOnce,
    /// It is to wait.
    Later,
    Fails,
}

/// Memory whose reads wait for permission.
#[derive(Debug, Default)]
struct Gated {
    memory: Memory,
    reading: Mutex<Reading>,
    moved: Condvar,
}

impl Gated {
    fn set(&self, reading: Reading) {
        *self.reading.lock().unwrap() = reading;
        self.moved.notify_all();
    }
}

/// Lets reads through at its end, so that nobody waits for them for ever.
struct OpenAtEnd(Arc<Gated>);

impl Drop for OpenAtEnd {
    fn drop(&mut self) {
        self.0.set(Reading::AtOnce);
    }
}

impl Media for Gated {
    fn read(&self, extent: Extent) -> Result<AlignedBuffer, MediaError> {
        let reading = self.reading.lock().unwrap();
        let reading = self.moved.wait_while(reading, |now| *now == Reading::Later).unwrap();
        match *reading {
            Reading::Fails => Err(MediaError::Injected { operation: "read" }),
            _ => self.memory.read(extent),
        }
    }

    fn write(&self, start: BlockAddress, data: &[u8]) -> Result<(), MediaError> {
        self.memory.write(start, data)
    }

    fn sync(&self) -> Result<(), MediaError> {
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

fn manifest(directory: &Path) -> Vec<u8> {
    std::fs::read(directory.join("manifest")).unwrap()
}

/// The files with copied pages in `archive`.
fn copies(archive: &Path) -> Vec<std::path::PathBuf> {
    let folders = std::fs::read_dir(archive).unwrap().map(|entry| entry.unwrap().path());
    let files = folders.flat_map(|folder| std::fs::read_dir(folder).unwrap());
    let files = files.map(|entry| entry.unwrap().path());
    files.filter(|path| path.extension().is_some_and(|extension| extension == "pages")).collect()
}

const ALL: &str = "SELECT count(*), sum(a), sum(b), count(t), min(t), max(t) FROM w";

/// A table of wide and of narrow columns, NULLs and rows of hot pages, and an archive with a backup.
async fn archived(place: &Path, database: &Arc<Database>) -> (Session, std::path::PathBuf) {
    let archive = place.join("archive");
    std::fs::create_dir(&archive).unwrap();
    let mut session = database.session();
    run(&mut session, "CREATE TABLE w (id int PRIMARY KEY, a int, b bigint, t text)").await;
    let values = "v, v % 10, v * 3, CASE WHEN v % 7 = 0 THEN NULL ELSE repeat('t', v % 60) END";
    let rows = format!("INSERT INTO w SELECT {values} FROM generate_series(1, 30000) AS s(v)");
    run(&mut session, &format!("{rows}; SET update_placement = device")).await;
    run(
        &mut session,
        "INSERT INTO w SELECT v, 1, 1, 'hot' FROM generate_series(40001, 40300) AS s(v)",
    )
    .await;
    let system = format!("ALTER SYSTEM SET archive_directory = '{}'", archive.display());
    run(&mut session, &system).await;
    database.backup(&place.join("backup")).await.unwrap();
    (session, archive)
}

/// Restores the backup in `place` up to `until`; the rows.
async fn restored(place: &Path, archive: &Path, until: Until) -> String {
    let copy = tempfile::tempdir().unwrap();
    let wanted = PointInTime { archive: archive.to_owned(), until };
    restore_until(&place.join("backup"), copy.path(), &options(), &wanted).await.unwrap();
    let database = opened(copy.path()).await;
    let all = row(&mut database.session(), ALL).await;
    drop(database);
    assert_sound(copy.path()).await;
    all
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn any_moment_between_page_versions_comes_back() {
    for logging in ["basic", "extended"] {
        let place = tempfile::tempdir().unwrap();
        let (directory, database) = fresh().await;
        let (mut session, archive) = archived(place.path(), &database).await;
        run(&mut session, &format!("SET update_logging = {logging}")).await;
        let before = manifest(directory.path());
        let mut moments = Vec::new();
        for statement in [
            "UPDATE w SET a = a + 1 WHERE id % 3 = 0",
            "INSERT INTO w VALUES (50001, 7, 7, 'new'), (50002, 8, 8, NULL)",
            "UPDATE w SET t = 'x' || id, b = NULL WHERE id % 5 = 0",
            // Pages differ from here on from those of a restored database.
            "SET split = h0; SELECT sum(a) FROM w",
            "DELETE FROM w WHERE id % 100 = 1",
            "BEGIN; UPDATE w SET a = a * 2; INSERT INTO w VALUES (50003, 9, 9, 'both'); \
                DELETE FROM w WHERE id = 50001; COMMIT",
            "DELETE FROM w WHERE id > 10 AND id < 14000",
            "BEGIN; UPDATE w SET a = 0; ROLLBACK",
            "UPDATE w SET a = a + 5, t = NULL WHERE id < 20000",
            "VACUUM w",
            "UPDATE w SET b = id",
            "CHECKPOINT",
            "UPDATE w SET t = 'last' WHERE id % 2 = 0",
        ] {
            // Later pages came by small commits, which a restored database has elsewhere.
            let is_logged = moments.len() < 5;
            run(&mut session, statement).await;
            assert!(!is_logged || manifest(directory.path()) == before, "{logging}: {statement}");
            let commit = database.snapshot(SnapshotKind::Flushed).await.unwrap().commit;
            moments.push((commit, statement, row(&mut session, ALL).await));
        }
        assert!(fragments(&database).await >= 6);
        run(&mut session, "CHECKPOINT").await;
        assert!(copies(&archive).len() >= 5, "{logging}: {:?}", copies(&archive));
        let status = row(&mut session, "SHOW archive_status").await;
        assert!(status.starts_with("log up to"), "{status}");
        assert_no_leak_soon(&database).await;
        drop((session, database));
        checks_out(directory.path()).await;
        for (commit, statement, expected) in &moments {
            let found = restored(place.path(), &archive, Until::Commit(*commit)).await;
            assert_eq!(&found, expected, "{logging}: after {statement}");
        }
        let end = restored(place.path(), &archive, Until::End).await;
        assert_eq!(end, moments.last().unwrap().2, "{logging}");
        // Without the copies, no moment behind them.
        let file = copies(&archive).into_iter().min().unwrap();
        std::fs::remove_file(file).unwrap();
        let copy = tempfile::tempdir().unwrap();
        let wanted = PointInTime { archive: archive.clone(), until: Until::End };
        let backup = place.path().join("backup");
        let error = restore_until(&backup, copy.path(), &options(), &wanted).await.unwrap_err();
        assert!(error.to_string().contains("are not in the archive"), "{error}");
    }
}

/// The last versions of a block share chunks with its earlier ones, which are on no page that is copied.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_block_changes_by_several_fragments_comes_back() {
    let place = tempfile::tempdir().unwrap();
    let (_directory, database) = fresh().await;
    let (mut session, archive) = archived(place.path(), &database).await;
    let mut moments = Vec::new();
    for statement in [
        "BEGIN; UPDATE w SET a = a + 1; UPDATE w SET b = b + 1; UPDATE w SET t = 'x' WHERE id > 9; COMMIT",
        "UPDATE w SET a = a + 1 WHERE id % 2 = 0",
        "BEGIN; UPDATE w SET a = 0; SAVEPOINT s; UPDATE w SET b = 7; ROLLBACK TO s; \
            UPDATE w SET a = id % 7 WHERE id < 20000; UPDATE w SET t = NULL WHERE id < 5; COMMIT",
    ] {
        run(&mut session, statement).await;
        let commit = database.snapshot(SnapshotKind::Flushed).await.unwrap().commit;
        moments.push((commit, statement, row(&mut session, ALL).await));
    }
    assert_eq!(fragments(&database).await, 7);
    run(&mut session, "CHECKPOINT").await;
    assert_no_leak_soon(&database).await;
    for (commit, statement, expected) in &moments {
        let found = restored(place.path(), &archive, Until::Commit(*commit)).await;
        assert_eq!(&found, expected, "after {statement}");
    }
}

/// Pages of small commits since the last manifest, which no record can name: a manifest without the change comes first,
/// and the archive gets changed chunks, not whole pages.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_that_no_manifest_has_are_copied_by_chunks_too() {
    let place = tempfile::tempdir().unwrap();
    let (directory, database) = fresh().await;
    let (mut session, archive) = archived(place.path(), &database).await;
    let mut moments = Vec::new();
    for statement in [
        "BEGIN; UPDATE w SET a = a + 1; COMMIT",
        "UPDATE w SET b = a",
        "BEGIN; UPDATE w SET a = 0 WHERE id > 30000; UPDATE w SET b = 0 WHERE id = 70001; COMMIT",
    ] {
        for first in (70_000..82_000).step_by(4000) {
            let rows = format!(
                "INSERT INTO w SELECT v, 1, 1, 'new' FROM generate_series({first}, {}) AS s(v)",
                first + 3999
            );
            run(&mut session, &rows).await;
        }
        // Flushed, without a manifest.
        run(&mut session, "SET shipped_delta_bytes = 0").await;
        run(&mut session, "SELECT sum(a) FROM w").await;
        let (before, known) = (copies(&archive).len(), manifest(directory.path()));
        run(&mut session, statement).await;
        assert_ne!(manifest(directory.path()), known, "{statement}");
        let commit = database.snapshot(SnapshotKind::Flushed).await.unwrap().commit;
        moments.push((commit, statement, row(&mut session, ALL).await));
        run(&mut session, "DELETE FROM w WHERE id >= 70000; CHECKPOINT").await;
        assert_eq!(copies(&archive).len(), before + 1, "{statement}");
    }
    for (commit, statement, expected) in &moments {
        let found = restored(place.path(), &archive, Until::Commit(*commit)).await;
        assert_eq!(&found, expected, "after {statement}");
    }
    assert_no_leak_soon(&database).await;
}

/// A host that dies between record and copy copies the pages when it starts again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_not_copied_before_a_kill_is_copied_behind_it() {
    let place = tempfile::tempdir().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let database = open_forgetful(directory.path()).await;
    let (mut session, archive) = archived(place.path(), &database).await;
    run(&mut session, "UPDATE w SET a = 1 WHERE id % 2 = 0").await;
    let gone = place.path().join("not mounted");
    std::fs::rename(&archive, &gone).unwrap();
    // Two versions of the same pages, of which a manifest would name the last one only.
    run(&mut session, "UPDATE w SET a = a + 1, t = 'y' WHERE id < 9000").await;
    run(
        &mut session,
        "UPDATE w SET a = a + 1 WHERE id < 9000; INSERT INTO w VALUES (60000, 1, 1, '')",
    )
    .await;
    let expected = row(&mut session, ALL).await;
    drop((session, database));
    std::fs::rename(&gone, &archive).unwrap();
    let before = copies(&archive).len();
    for _ in 0..2 {
        let database = open_forgetful(directory.path()).await;
        let mut session = database.session();
        assert_eq!(row(&mut session, ALL).await, expected);
        run(&mut session, "CHECKPOINT").await;
        assert_no_leak(&database);
    }
    assert!(copies(&archive).len() >= before + 2, "{:?}", copies(&archive));
    checks_out(directory.path()).await;
    assert_eq!(restored(place.path(), &archive, Until::End).await, expected);
}

/// A table on a device whose reads wait, none of whose pages are in the buffer pool, and an archive.
async fn with_gated(
    place: &Path,
    directory: &Path,
) -> (Arc<Database>, Arc<Gated>, Served, std::path::PathBuf) {
    let media = Arc::new(Gated::default());
    let path = place.join("nas.media");
    let served =
        Served::over(Arc::clone(&media) as Arc<dyn Media>, &path, [1; 16], anywhere()).await;
    let database = open(directory).await;
    let token = token_file(place, TOKEN);
    database.add_device("nas", remote(served.address, token)).await.unwrap();
    let archive = place.join("archive");
    std::fs::create_dir(&archive).unwrap();
    let mut session = database.session();
    run(&mut session, "CREATE TABLE near (id int PRIMARY KEY, note text)").await;
    run(&mut session, "INSERT INTO near VALUES (1, 'one'), (2, 'two')").await;
    run(
        &mut session,
        "CREATE TABLE w (id int PRIMARY KEY, a int, b bigint, t text) WITH (device = nas)",
    )
    .await;
    let rows = "SELECT v, 0, v, 'n' FROM generate_series(1, 20000) AS s(v)";
    run(&mut session, &format!("INSERT INTO w {rows}")).await;
    let system = format!("ALTER SYSTEM SET archive_directory = '{}'", archive.display());
    run(&mut session, &system).await;
    drop((session, database));
    (open(directory).await, media, served, archive)
}

const BOTH: &str =
    "BEGIN; UPDATE near SET note = 'mine' WHERE id = 1; UPDATE w SET a = a + 1 WHERE id % 2 = 0";

/// Controlled lock violation: the next holder of a lock goes on while the pages are copied, and nobody who has seen the
/// commit is answered.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn locks_are_released_while_pages_are_copied_and_nobody_is_answered_before() {
    let (place, directory) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (database, media, _served, archive) = with_gated(place.path(), directory.path()).await;
    let _gate = OpenAtEnd(Arc::clone(&media));
    let mut session = database.session();
    run(&mut session, "SET update_placement = device; SET update_logging = extended").await;
    run(&mut session, BOTH).await;
    assert_eq!(fragments(&database).await, 1);
    let published = |database: &Database| database.live().log_end;
    let before = published(&database);
    media.set(Reading::Later);
    let mut first = beside(session, "COMMIT");
    let until = async |end: u64| {
        for _ in 0..1000 {
            if published(&database) > end {
                return published(&database);
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("it is not published");
    };
    let own = until(before).await;
    // It gets the lock, and commits upon what it has seen.
    let mut second =
        beside(database.session(), "UPDATE near SET note = note || ', and yours' WHERE id = 1");
    until(own).await;
    let mut reader = beside(database.session(), "SELECT note FROM near WHERE id = 1");
    let mut planned = beside(database.session(), "SELECT count(*) FROM near");
    for waiting in [&mut first, &mut second, &mut reader, &mut planned] {
        assert!(waits(waiting).await);
    }
    assert!(copies(&archive).is_empty());
    media.set(Reading::AtOnce);
    for waiting in [first, second, reader, planned] {
        assert_eq!(waiting.join().await.unwrap().1, "done");
    }
    assert_eq!(copies(&archive).len(), 1);
    let mut session = database.session();
    assert_eq!(row(&mut session, "SELECT note FROM near WHERE id = 1").await, "mine, and yours");
    // Without that setting nobody waits, but for the manifest. No page is in the buffer pool, which would ask for it.
    run(&mut session, "SET update_placement = device").await;
    run(&mut session, BOTH).await;
    media.set(Reading::Later);
    run(&mut session, "COMMIT").await;
    assert_eq!(row(&mut session, "SELECT note FROM near WHERE id = 1").await, "mine");
    let mut checkpoint = beside(database.session(), "CHECKPOINT");
    assert!(waits(&mut checkpoint).await);
    media.set(Reading::AtOnce);
    assert_eq!(checkpoint.join().await.unwrap().1, "done");
    assert_eq!(copies(&archive).len(), 2);
    assert_eq!(row(&mut session, "SELECT sum(a) FROM w").await, "20000");
}

/// The record is durable, the copy is not: the database stops, and the next incarnation has the commit and copies it.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_database_whose_pages_cannot_be_copied_stops() {
    let (place, directory) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (database, media, _served, archive) = with_gated(place.path(), directory.path()).await;
    let _gate = OpenAtEnd(Arc::clone(&media));
    let mut session = database.session();
    run(&mut session, "SET update_placement = device; SET update_logging = extended").await;
    run(&mut session, BOTH).await;
    media.set(Reading::Fails);
    let error = refused(&mut session, "COMMIT").await;
    assert!(!database.may_write(), "{error}");
    let error = refused(&mut database.session(), "INSERT INTO near VALUES (3, 'three')").await;
    assert!(error.to_string().contains("open"), "{error}");
    assert!(copies(&archive).is_empty());
    media.set(Reading::AtOnce);
    drop((session, database));
    let database = open(directory.path()).await;
    let mut session = database.session();
    assert_eq!(row(&mut session, "SELECT note FROM near WHERE id = 1").await, "mine");
    assert_eq!(row(&mut session, "SELECT sum(a), count(*) FROM w").await, "10000,20000");
    assert_eq!(copies(&archive).len(), 1);
    assert_no_leak_soon(&database).await;
    drop((session, database));
    let database = Database::open(directory.path(), OpenOptions::new(embedded())).await.unwrap();
    assert_eq!(row(&mut database.session(), "SELECT sum(a) FROM w").await, "10000");
}
