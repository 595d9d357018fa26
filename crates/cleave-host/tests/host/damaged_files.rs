//! Tests of missing or damaged segment files: the database opens, statements on their tables are refused by name, all
//! others work, and restoring the file brings everything back.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cleave_host::catalog::manifest::MANIFEST_FORMAT;
use cleave_host::catalog::proto::{Manifest, Table};
use cleave_host::check::{CheckOptions, CheckReport, Fault, check};
use cleave_host::{Database, Error, OpenOptions, Session};
use cleave_media::Extent;
use cleave_store::SegmentId;
use prost::Message;

use crate::index_filter::attached;
use crate::support::{
    assert_no_leak, batches, embedded, fresh, note, numbered, open, refused, row, rows, run,
};

const NOTES: &str = "SELECT count(*), count(DISTINCT id), min(id), max(id), count(note) FROM ";

/// Tables `bad` and `good` of the same rows, most of them in sealed segments, with an index and statistics.
async fn fill(session: &mut Session, with: &str) {
    for table in ["bad", "good"] {
        run(session, &format!("CREATE TABLE {table} (id int PRIMARY KEY, note text) {with}")).await;
        run(session, &format!("CREATE INDEX {table}_note ON {table} (note)")).await;
        session.load(table, batches(vec![numbered(0..30_000)]), None).await.unwrap();
        run(session, &format!("INSERT INTO {table} VALUES (-1, 'before'), (-2, NULL)")).await;
        run(session, &format!("ANALYZE {table}")).await;
    }
    // Rows that only the log has could not be added to a table that is damaged.
    run(session, "CHECKPOINT").await;
}

/// Tables are made on the device that `mode` names from here on.
async fn to_device(session: &mut Session, mode: &str) {
    if mode != "embedded" {
        run(session, "SET default_device = 'other'").await;
    }
}

async fn assert_whole(session: &mut Session, table: &str) {
    let all = format!("{NOTES}{table}");
    assert_eq!(row(session, &all).await, "30002,30002,-2,29999,30001");
    for id in [0, 4711, 29_999] {
        let by_key = format!("SELECT note FROM {table} WHERE id = {id}");
        assert_eq!(row(session, &by_key).await, note(id));
        let by_note = format!("SELECT id FROM {table} WHERE note = '{}'", note(id));
        assert_eq!(row(session, &by_note).await, id.to_string());
    }
}

/// Files of sealed segments of `table`: those of its heap, and those of each of its indexes by name.
fn files(database: &Database, table: &str) -> (Vec<SegmentId>, BTreeMap<String, Vec<SegmentId>>) {
    let catalog = database.catalog();
    let table = catalog.table(table).unwrap();
    let (mut heap, mut indexes) = (Vec::new(), BTreeMap::<String, Vec<SegmentId>>::new());
    for tablet in &table.tablets {
        let sealed = tablet.heap.iter().filter(|segment| segment.sealed);
        heap.extend(sealed.map(|segment| segment.segment));
        for index in &tablet.indexes {
            let runs = index.runs().map(|run| run.segment);
            indexes.entry(index.definition().name.clone()).or_default().extend(runs);
        }
    }
    (heap, indexes)
}

fn path(directory: &Path, segment: SegmentId) -> PathBuf {
    directory.join("segments").join(segment.0.to_string())
}

/// What `table` occupies, by device.
fn extents(database: &Database, table: &str) -> Vec<(u32, Extent)> {
    let catalog = database.catalog();
    let tablets = &catalog.table(table).unwrap().tablets;
    tablets
        .iter()
        .flat_map(|tablet| tablet.extents().map(|extent| (tablet.device.0, extent)))
        .collect()
}

async fn checked(directory: &Path) -> CheckReport {
    check(directory, OpenOptions::new(embedded()), &CheckOptions::default()).await.unwrap()
}

/// The ways in which a file is spoilt, given what is in it.
const DAMAGES: [&str; 5] = ["missing", "altered", "cut off", "empty", "a folder"];

fn spoil(path: &Path, damage: &str) {
    let mut bytes = fs::read(path).unwrap();
    match damage {
        "missing" => fs::remove_file(path).unwrap(),
        "altered" => {
            let middle = bytes.len() / 2;
            bytes[middle] ^= 4;
            fs::write(path, bytes).unwrap();
        }
        "cut off" => fs::write(path, &bytes[..bytes.len() - 1]).unwrap(),
        "empty" => fs::write(path, "").unwrap(),
        _ => {
            fs::remove_file(path).unwrap();
            fs::create_dir(path).unwrap();
        }
    }
}

fn restore(path: &Path, whole: &[u8]) {
    if path.is_dir() {
        fs::remove_dir(path).unwrap();
    }
    fs::write(path, whole).unwrap();
}

fn assert_names(error: &Error, parts: &[&str]) {
    assert_eq!(error.sqlstate(), "XX001", "{error}");
    for part in parts {
        assert!(error.to_string().contains(part), "{part} is not said: {error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_without_one_of_its_files_is_refused_and_nothing_of_it_is_lost() {
    for mode in ["embedded", "remote", "local"] {
        let outside = tempfile::tempdir().unwrap();
        let (directory, database, _served) = attached(mode, outside.path()).await;
        let mut session = database.session();
        to_device(&mut session, mode).await;
        fill(&mut session, "").await;
        let (heap, _) = files(&database, "bad");
        let occupied = extents(&database, "bad");
        drop((session, database));
        let path = path(directory.path(), heap[0]);
        let whole = fs::read(&path).unwrap();
        let before = fs::read_dir(directory.path().join("segments")).unwrap().count();
        let damages = if mode == "embedded" { &DAMAGES[..] } else { &DAMAGES[..2] };
        for (round, damage) in damages.iter().enumerate() {
            spoil(&path, damage);
            let is_there = usize::from(*damage == "missing");
            let database = open(directory.path()).await;
            let mut session = database.session();
            refused_by_name(&mut session, &path).await;
            assert_eq!(
                rows(&mut session, "SHOW TABLES").await,
                ["bad,NULL".to_owned(), format!("good,{}", 30_002 + round)]
            );
            let files = fs::read_dir(directory.path().join("segments")).unwrap().count();
            assert_eq!(files, before - is_there, "{damage}");
            assert!(directory.path().join("statistics/1").exists());

            // The others are read and written, wherever there is space, and it is never that of the damaged one.
            let insert = format!("INSERT INTO good VALUES ({}, NULL)", 100_000 + round);
            run(&mut session, &insert).await;
            assert_eq!(row(&mut session, "SELECT id FROM good WHERE note = 'before'").await, "-1");
            to_device(&mut session, mode).await;
            run(&mut session, "CREATE TABLE other (id int PRIMARY KEY, note text)").await;
            session.load("other", batches(vec![numbered(0..40_000)]), None).await.unwrap();
            run(&mut session, "CREATE INDEX ON other (note)").await;
            assert_eq!(row(&mut session, "SELECT count(*) FROM other").await, "40000");
            for (device, extent) in extents(&database, "other") {
                let overlaps = |(on, of): &&(u32, Extent)| *on == device && of.overlaps(extent);
                assert_eq!(occupied.iter().find(overlaps), None, "{mode}: {extent} is taken");
            }
            run(&mut session, "DROP TABLE other").await;
            run(&mut session, "CREATE TABLE nothing (id int); DROP TABLE nothing").await;
            assert_no_leak(&database);
            let report = database.check(&CheckOptions::default()).await.unwrap();
            assert_only_file(&report, &path, heap[0]);
            drop((session, database));
            assert_only_file(&checked(directory.path()).await, &path, heap[0]);

            // And once more: the state of the table is kept from restart to restart.
            drop(open(directory.path()).await);
            restore(&path, &whole);
            let database = open(directory.path()).await;
            assert_whole(&mut database.session(), "bad").await;
            assert!(database.table_statistics(1).is_some(), "statistics are kept too");
            assert_eq!(extents(&database, "bad"), occupied);
            assert_no_leak(&database);
            let report = database.check(&CheckOptions::default()).await.unwrap();
            assert!(report.is_clean(), "{damage}: {:#?}", report.findings);
        }
    }
}

/// Every access to table `bad` is refused with the reason.
async fn refused_by_name(session: &mut Session, path: &Path) {
    let said = ["table \"bad\" cannot be used", "DROP TABLE", "cleave check", "restore the file"];
    let path = path.display().to_string();
    for sql in [
        "SELECT count(*) FROM bad",
        "SELECT note FROM bad WHERE id = 7",
        "SELECT good.id FROM good JOIN bad USING (id)",
        "EXPLAIN SELECT * FROM bad",
        "INSERT INTO bad VALUES (50000, 'more')",
        "INSERT INTO good SELECT * FROM bad",
        "COPY bad TO STDOUT",
        "COPY bad FROM STDIN",
        "CREATE INDEX ON bad (note, id)",
        "DROP INDEX bad_note",
        "ANALYZE bad",
        "SHOW STATISTICS FOR bad",
    ] {
        let error = refused(session, sql).await;
        assert_names(&error, &said);
        assert_names(&error, &[path.as_str()]);
    }
    let loaded = session.load("bad", batches(vec![numbered(50_000..50_001)]), None).await;
    assert_names(&loaded.unwrap_err(), &said);
    for sql in ["CREATE TABLE bad (id int)", "CREATE INDEX bad_note ON good (id)"] {
        let error = refused(session, sql).await;
        assert_eq!(error.sqlstate(), "42P07", "{error}");
    }
    run(session, "CREATE TABLE IF NOT EXISTS bad (id int)").await;
    run(session, "ANALYZE").await;
}

fn assert_only_file(report: &CheckReport, path: &Path, segment: SegmentId) {
    let [finding] = report.findings.kept() else { panic!("{:#?}", report.findings) };
    assert!(matches!(finding.fault, Fault::File(_)), "{finding:?}");
    assert_eq!(finding.place.file.as_deref(), Some(path));
    assert_eq!(finding.place.table.as_deref(), Some("bad"));
    assert_eq!(finding.place.segment, Some(segment));
    assert!(finding.fault.advice().contains("can be dropped"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_table_can_be_dropped_and_gives_all_its_space_back() {
    for mode in ["embedded", "remote", "local"] {
        let outside = tempfile::tempdir().unwrap();
        let (directory, database, _served) = attached(mode, outside.path()).await;
        let mut session = database.session();
        to_device(&mut session, mode).await;
        fill(&mut session, "").await;
        let (heap, indexes) = files(&database, "bad");
        drop((session, database));
        // Of the heap and of an index: one table, two faults.
        spoil(&path(directory.path(), heap[0]), "missing");
        spoil(&path(directory.path(), indexes["bad_note"][0]), "altered");

        let database = open(directory.path()).await;
        let mut session = database.session();
        assert_names(&refused(&mut session, "SELECT * FROM bad").await, &["(and 1 more)"]);
        run(&mut session, "DROP TABLE bad").await;
        run(&mut session, "CREATE TABLE bad (id int PRIMARY KEY, note text)").await;
        let catalog = database.catalog();
        for device in database.devices() {
            let used: u64 =
                catalog.extents(device.id()).iter().map(|e| u64::from(e.block_count)).sum();
            assert_eq!(device.space().used_blocks, used, "{mode}: nothing of it is left");
        }
        drop(catalog);
        let left = fs::read_dir(directory.path().join("segments")).unwrap().count();
        assert_eq!(left, database.catalog().damaged_tables().count() + 3, "heap and two runs");
        session.load("bad", batches(vec![numbered(0..30_000)]), None).await.unwrap();
        assert_whole(&mut session, "good").await;
        drop((session, database));
        assert!(checked(directory.path()).await.is_clean());
        let database = open(directory.path()).await;
        assert_eq!(row(&mut database.session(), "SELECT count(*) FROM bad").await, "30000");
        assert_no_leak(&database);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_index_is_not_read_and_its_table_not_written() {
    let (directory, database) = fresh().await;
    let mut session = database.session();
    fill(&mut session, "").await;
    let (_, indexes) = files(&database, "bad");
    let occupied = extents(&database, "bad");
    drop((session, database));
    let run_path = path(directory.path(), indexes["bad_note"][0]);
    let whole = fs::read(&run_path).unwrap();
    spoil(&run_path, "missing");

    let database = open(directory.path()).await;
    let mut session = database.session();
    // Without the index, and with the one that is sound.
    assert_whole(&mut session, "bad").await;
    let plan = rows(&mut session, "EXPLAIN SELECT id FROM bad WHERE note = 'before'").await;
    assert!(plan.iter().all(|line| !line.contains("bad_note")), "{plan:?}");
    let plan = rows(&mut session, "EXPLAIN SELECT note FROM bad WHERE id = 5").await;
    assert!(plan[0].contains("bad_pkey"), "{plan:?}");
    let said = ["index \"bad_note\" of table \"bad\"", "DROP INDEX", "is missing"];
    for sql in ["INSERT INTO bad VALUES (50000, 'more')", "COPY bad FROM STDIN"] {
        assert_names(&refused(&mut session, sql).await, &said);
    }
    let loaded = session.load("bad", batches(vec![numbered(50_000..50_001)]), None).await;
    assert_names(&loaded.unwrap_err(), &said);
    let taken = refused(&mut session, "CREATE INDEX bad_note ON bad (note)").await;
    assert_eq!(taken.sqlstate(), "42P07", "{taken}");
    // Another index of the table can be made and dropped: neither touches this one.
    run(&mut session, "CREATE INDEX bad_again ON bad (note DESC)").await;
    assert_whole(&mut session, "bad").await;
    run(&mut session, "INSERT INTO good VALUES (50000, 'more')").await;
    for (_, extent) in extents(&database, "good") {
        assert!(occupied.iter().all(|(_, old)| !old.overlaps(extent)), "{extent}");
    }
    run(&mut session, "CHECKPOINT").await;
    assert_no_leak(&database);
    let report = database.check(&CheckOptions::default()).await.unwrap();
    let [finding] = report.findings.kept() else { panic!("{:#?}", report.findings) };
    assert_eq!(finding.place.index.as_deref(), Some("bad_note"));
    drop((session, database));

    // As it was, once the file is back.
    restore(&run_path, &whole);
    {
        let database = open(directory.path()).await;
        let mut session = database.session();
        run(&mut session, "DROP INDEX bad_again").await;
        run(&mut session, "INSERT INTO bad VALUES (50000, 'more'); CHECKPOINT").await;
        let through = "SELECT id FROM bad WHERE note = 'more'";
        assert_eq!(row(&mut session, through).await, "50000");
        let report = database.check(&CheckOptions::default()).await.unwrap();
        assert!(report.is_clean(), "{:#?}", report.findings);
    }
    spoil(&run_path, "cut off");
    let database = open(directory.path()).await;
    let mut session = database.session();
    run(&mut session, "DROP INDEX bad_note").await;
    run(&mut session, "INSERT INTO bad VALUES (50001, 'more')").await;
    run(&mut session, "CREATE INDEX bad_note ON bad (note)").await;
    let mut found = rows(&mut session, "SELECT id FROM bad WHERE note = 'more'").await;
    found.sort();
    assert_eq!(found, ["50000", "50001"]);
    run(&mut session, "CREATE TABLE nothing (id int)").await;
    assert_no_leak(&database);
    assert!(!run_path.exists());
    let report = database.check(&CheckOptions::default()).await.unwrap();
    assert!(report.is_clean(), "{:#?}", report.findings);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_index_of_a_key_leaves_rows_that_can_be_copied() {
    let (directory, database) = fresh().await;
    let mut session = database.session();
    fill(&mut session, "").await;
    let (_, indexes) = files(&database, "bad");
    drop((session, database));
    spoil(&path(directory.path(), indexes["bad_pkey"][0]), "altered");
    let database = open(directory.path()).await;
    let mut session = database.session();
    assert_whole(&mut session, "bad").await;
    let error = refused(&mut session, "INSERT INTO bad VALUES (4711, 'a key that is there')").await;
    assert_names(&error, &["index \"bad_pkey\"", "copy the rows", "DROP TABLE"]);
    let error = refused(&mut session, "DROP INDEX bad_pkey").await;
    assert_eq!(error.sqlstate(), "2BP01", "{error}");
    run(&mut session, "CREATE TABLE copy (id int PRIMARY KEY, note text)").await;
    run(&mut session, "INSERT INTO copy SELECT * FROM bad").await;
    run(&mut session, "DROP TABLE bad").await;
    assert_eq!(row(&mut session, &format!("{NOTES}copy")).await, "30002,30002,-2,29999,30001");
    run(&mut session, "CREATE TABLE nothing (id int)").await;
    assert_no_leak(&database);
    drop((session, database));
    assert!(checked(directory.path()).await.is_clean());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_of_one_tablet_is_the_whole_table_s_and_no_other_s() {
    let outside = tempfile::tempdir().unwrap();
    let (directory, database, _served) = attached("remote", outside.path()).await;
    let mut session = database.session();
    let with = "WITH (devices = (embedded, other), tablets = 4, tablet_by = hash (id))";
    fill(&mut session, with).await;
    let (heap, indexes) = files(&database, "bad");
    drop((session, database));
    let (of_heap, of_index) = (path(directory.path(), heap[3]), indexes["bad_note"][1]);
    let of_index = path(directory.path(), of_index);
    let whole = fs::read(&of_index).unwrap();
    spoil(&of_index, "missing");
    {
        let database = open(directory.path()).await;
        let mut session = database.session();
        assert_whole(&mut session, "bad").await;
        assert_names(
            &refused(&mut session, "INSERT INTO bad VALUES (50000, NULL)").await,
            &["\"bad_note\""],
        );
        run(&mut session, "INSERT INTO good VALUES (50000, NULL)").await;
        assert_no_leak(&database);
    }
    restore(&of_index, &whole);
    spoil(&of_heap, "missing");
    let database = open(directory.path()).await;
    let mut session = database.session();
    refused_by_name(&mut session, &of_heap).await;
    run(&mut session, "INSERT INTO good VALUES (50001, NULL)").await;
    let error = database.remove_device("other").await.unwrap_err();
    assert!(error.to_string().contains("bad, good"), "{error}");
    run(&mut session, "DROP TABLE bad").await;
    run(&mut session, "CREATE TABLE nothing (id int)").await;
    assert_no_leak(&database);
    drop((session, database));
    assert!(checked(directory.path()).await.is_clean());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_folder_without_any_segment_files_opens() {
    let (directory, database) = fresh().await;
    let mut session = database.session();
    fill(&mut session, "").await;
    run(&mut session, "CREATE TABLE few (id int PRIMARY KEY); INSERT INTO few VALUES (1), (2)")
        .await;
    drop((session, database));
    fs::remove_dir_all(directory.path().join("segments")).unwrap();
    let database = open(directory.path()).await;
    let mut session = database.session();
    assert_eq!(row(&mut session, "SELECT count(*) FROM few").await, "2");
    run(&mut session, "INSERT INTO few SELECT * FROM generate_series(10, 30000)").await;
    for table in ["bad", "good"] {
        let error = refused(&mut session, &format!("SELECT * FROM {table}")).await;
        assert_names(&error, &[table, "is missing"]);
    }
    run(&mut session, "DROP TABLE good, bad").await;
    run(&mut session, "DROP TABLE few").await;
    run(&mut session, "CREATE TABLE nothing (id int)").await;
    assert_eq!(database.devices()[0].space().used_blocks, 0);
}

/// Removes from the manifest what earlier builds did not write.
fn as_before(directory: &Path) {
    let path = directory.join("manifest");
    let bytes = fs::read(&path).unwrap();
    let mut manifest = Manifest::decode(MANIFEST_FORMAT.open(&bytes).unwrap().1).unwrap();
    let places = |table: &mut Table| {
        for tablet in &mut table.tablets {
            let runs = tablet.indexes.iter_mut().flat_map(|index| &mut index.runs);
            tablet.heap.iter_mut().chain(runs).for_each(|place| place.blocks = None);
        }
    };
    manifest.tables.iter_mut().for_each(places);
    fs::write(&path, MANIFEST_FORMAT.seal(&manifest.encode_to_vec())).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_the_manifest_does_not_say_what_a_lost_file_s_segment_occupies_nothing_is_written() {
    let (directory, database) = fresh().await;
    let mut session = database.session();
    fill(&mut session, "").await;
    let (heap, _) = files(&database, "bad");
    drop((session, database));
    // An incarnation with sound files records it from then on.
    as_before(directory.path());
    drop(open(directory.path()).await);
    let path = path(directory.path(), heap[0]);
    let whole = fs::read(&path).unwrap();
    spoil(&path, "missing");
    {
        let database = open(directory.path()).await;
        run(&mut database.session(), "INSERT INTO good VALUES (50000, NULL); CHECKPOINT").await;
    }
    as_before(directory.path());
    for is_dropped in [false, true] {
        {
            let database = open(directory.path()).await;
            let mut session = database.session();
            assert_eq!(row(&mut session, "SELECT max(id) FROM good").await, "50000");
            let error = refused(&mut session, "INSERT INTO good VALUES (50001, NULL)").await;
            assert_names(&error, &["device \"embedded\"", "\"bad\"", "which blocks"]);
            let error = refused(&mut session, "CREATE INDEX ON good (note, id)").await;
            assert_names(&error, &["device \"embedded\""]);
            if is_dropped {
                run(&mut session, "DROP TABLE bad").await;
                run(&mut session, "INSERT INTO good VALUES (50001, NULL); CHECKPOINT").await;
                assert_no_leak(&database);
                drop((session, database));
                assert!(checked(directory.path()).await.is_clean());
                return;
            }
        }
        restore(&path, &whole);
        let database = open(directory.path()).await;
        assert_whole(&mut database.session(), "bad").await;
        drop(database);
        spoil(&path, "missing");
        as_before(directory.path());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_and_writers_go_on_while_a_damaged_table_is_dropped() {
    let (directory, database) = fresh().await;
    let mut session = database.session();
    fill(&mut session, "").await;
    let (heap, _) = files(&database, "bad");
    drop((session, database));
    spoil(&path(directory.path(), heap[0]), "missing");
    let database = open(directory.path()).await;
    let held = database.catalog();
    let mut dropper = database.session();
    run(&mut dropper, "DROP TABLE bad").await;
    // Its space is kept for readers of older snapshots that name it, as for any table.
    let mut session = database.session();
    run(&mut session, "CREATE TABLE next (id int, note text)").await;
    session.load("next", batches(vec![numbered(0..30_000)]), None).await.unwrap();
    let taken = extents(&database, "next");
    let named = held.extents(cleave_host::DeviceId::EMBEDDED);
    for (_, new) in &taken {
        assert!(named.iter().all(|old| !old.overlaps(*new)), "{new}");
    }
    assert!(database.devices()[0].space().retired_blocks > 0);
    drop(held);
    run(&mut session, "CREATE TABLE nothing (id int)").await;
    assert_eq!(database.devices()[0].space().retired_blocks, 0);
    assert_no_leak(&database);
    let database: Arc<Database> = database;
    assert_whole(&mut database.session(), "good").await;
}
