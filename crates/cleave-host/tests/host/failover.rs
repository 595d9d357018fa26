//! Tests of log replicas on devices, and of failover to a host that continues after another is lost with its folder.

use std::path::Path;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int32Array, RecordBatch, StringArray};
use cleave_host::check::CheckOptions;
use cleave_host::log_replica::{FailedOver, FailoverSource};
use cleave_host::replication::fail_over;
use cleave_host::{Database, Error, OpenOptions, RemoteDevice, Session};
use cleave_media::{Media, SplitMix64};

use crate::devices::{Served, TOKEN, anywhere, remote, token_file, with_nas};
use crate::fencing::copy;
use crate::full_media::Bounded;
use crate::support::{
    assert_no_leak, batches, embedded_as, fragments, fresh, numbered, open, refused, row, rows, run,
};

const FAR: &str = "SELECT count(*), sum(id), count(DISTINCT note) FROM far";

fn options() -> OpenOptions {
    // Another machine, with another device of its own.
    OpenOptions::new(embedded_as([8; 16]))
}

pub(crate) async fn taken(directory: &Path, remote: &RemoteDevice) -> Result<FailedOver, Error> {
    let from = FailoverSource { way: remote.clone().into(), accepts_stale: false };
    Box::pin(fail_over(directory, &from, &options())).await
}

pub(crate) async fn taken_though_stale(
    directory: &Path,
    remote: &RemoteDevice,
) -> Result<FailedOver, Error> {
    let from = FailoverSource { way: remote.clone().into(), accepts_stale: true };
    Box::pin(fail_over(directory, &from, &options())).await
}

pub(crate) async fn reopened(directory: &Path) -> Arc<Database> {
    Database::open(directory, options()).await.unwrap()
}

pub(crate) async fn shown(session: &mut Session, name: &str) -> String {
    row(session, &format!("SHOW {name}")).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_host_goes_on_from_the_copy() {
    let outside = tempfile::tempdir().unwrap();
    let (directory, database, _served, remote) = with_nas(outside.path()).await;
    let mut session = database.session();
    assert_eq!(shown(&mut session, "log_replica_status").await, "off");
    run(&mut session, "SET default_device = 'nas'").await;
    run(&mut session, "ALTER SYSTEM SET log_replica = 'nas'").await;
    assert_eq!(shown(&mut session, "log_replica").await, "nas");
    for statement in [
        "CREATE SEQUENCE s; CREATE TABLE t (id int PRIMARY KEY, note text); CREATE VIEW v AS SELECT id FROM t",
        "INSERT INTO t VALUES (1, 'one'), (2, 'two')",
        "INSERT INTO far VALUES (20001, 'new'), (20002, 'newer')",
        "UPDATE far SET note = 'changed' WHERE id = 20001",
        "INSERT INTO near VALUES (77, 'here')",
        "CHECKPOINT",
        "BEGIN; DELETE FROM far WHERE id = 20002; UPDATE t SET note = 'II' WHERE id = 2; COMMIT",
        "CREATE TABLE big (id int PRIMARY KEY, note text)",
    ] {
        run(&mut session, statement).await;
    }
    session.load("big", batches(vec![numbered(0..30_000)]), None).await.unwrap();
    run(&mut session, "ANALYZE big; CREATE INDEX big_note ON big (note)").await;
    run(&mut session, "INSERT INTO t SELECT v, 'many' FROM generate_series(10, 400) AS s(v)").await;
    let given: i64 = row(&mut session, "SELECT nextval('s')").await.parse().unwrap();
    let queries = [
        FAR,
        "SELECT note FROM far WHERE id > 20000",
        "SELECT count(*), sum(id) FROM t WHERE note <> 'II'",
        "SELECT count(*) FROM v",
        "SELECT count(*), sum(id) FROM big",
        "SELECT id FROM big WHERE note = 'note 17'",
    ];
    let mut expected = Vec::new();
    for query in queries {
        expected.push(rows(&mut session, query).await);
    }
    run(&mut session, "UPDATE t SET note = 'last' WHERE id = 1").await;
    let status = shown(&mut session, "log_replica_status").await;
    assert!(status.contains(", 0 bytes less than here"), "{status}");
    // All of the folder is lost, without another word.
    drop((session, database));
    drop(directory);

    let mut folder = outside.path().join("second");
    for turn in 0..3 {
        let taken = taken(&folder, &remote).await.unwrap();
        // From the second one on it is known as a device that is offline.
        let (lost, offline): (&[&str], &[&str]) =
            if turn == 0 { (&["near"], &[]) } else { (&[], &["lost"]) };
        assert_eq!(taken.lost, lost, "{taken:?}");
        assert_eq!(taken.offline, offline, "{taken:?}");
        assert!(taken.epoch > turn, "{taken:?}");
        let database = reopened(&folder).await;
        let mut session = database.session();
        for (query, expected) in queries.iter().zip(&expected) {
            assert_eq!(&rows(&mut session, query).await, expected, "{query} after {turn}");
        }
        assert_eq!(row(&mut session, "SELECT note FROM t WHERE id = 1").await, "last");
        assert_no_leak(&database);
        let error = refused(&mut session, "SELECT * FROM near").await;
        assert_eq!(error.sqlstate(), "58030", "{error}");
        assert!(error.to_string().contains("\"lost\""), "{error}");
        let next: i64 = row(&mut session, "SELECT nextval('s')").await.parse().unwrap();
        assert!(next > given, "{next}");
        // It continues, also with the log replica.
        assert_eq!(shown(&mut session, "log_replica").await, "nas");
        run(&mut session, &format!("CREATE TABLE t{turn} (id int)")).await;
        run(&mut session, &format!("INSERT INTO t{turn} VALUES (1); DROP TABLE t{turn}")).await;
        drop((session, database));
        folder = outside.path().join(format!("host {turn}"));
    }
    let database = {
        taken(&folder, &remote).await.unwrap();
        reopened(&folder).await
    };
    let mut session = database.session();
    run(&mut session, "DROP TABLE near; CREATE TABLE near (id int) WITH (device = embedded)").await;
    run(&mut session, "INSERT INTO near VALUES (1); CHECKPOINT").await;
    assert_eq!(row(&mut session, "SELECT count(*) FROM near").await, "1");
}

/// The record names pages, which the device has, and rows that die; another host has both from there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_host_redoes_page_versions_and_deletes_of_many_rows() {
    let outside = tempfile::tempdir().unwrap();
    let (directory, mut database, _served, remote) = with_nas(outside.path()).await;
    let mut session = database.session();
    run(&mut session, "ALTER SYSTEM SET log_replica = 'nas'").await;
    let load = "SELECT v, 'n' FROM generate_series(30000, 49999) AS s(v)";
    run(&mut session, &format!("INSERT INTO near {load}; CHECKPOINT")).await;
    let manifest = |directory: &Path| std::fs::read(directory.join("manifest")).unwrap();
    let all = "SELECT count(*), sum(id), count(DISTINCT note), max(note) FROM far";
    let mut folder = directory.path().to_owned();
    for turn in 0..3 {
        run(&mut session, "SET update_placement = device").await;
        let before = manifest(&folder);
        run(&mut session, &format!("INSERT INTO far VALUES ({}, 'new')", 30_000 + turn)).await;
        run(&mut session, &format!("UPDATE far SET note = 'x{turn}' WHERE id % 2 = 0")).await;
        // A page that is replaced twice, and rows in one commit with page versions.
        let update = format!("UPDATE far SET note = 'y{turn}' WHERE id % 5 = 0 AND id < 15000");
        let insert = format!("INSERT INTO far VALUES ({}, 'newer')", 31_000 + turn);
        run(&mut session, &format!("BEGIN; {update}; {insert}; COMMIT")).await;
        if turn == 0 {
            run(&mut session, "UPDATE near SET note = 'there' WHERE id > 30000").await;
            run(&mut session, "DELETE FROM far WHERE id % 3 <> 0").await;
        }
        assert!(fragments(&database).await >= 2);
        assert!(manifest(&folder) == before, "{turn}: the log has it alone");
        // On the host a page is made anew, while the replica may still count on the one before.
        if turn == 1 {
            run(&mut session, "VACUUM far; UPDATE far SET note = 'z' WHERE id % 7 = 0").await;
        }
        let expected = row(&mut session, all).await;
        drop((session, database));
        folder = outside.path().join(format!("host {turn}"));
        taken(&folder, &remote).await.unwrap();
        database = reopened(&folder).await;
        session = database.session();
        assert_eq!(row(&mut session, all).await, expected, "{turn}");
        assert_no_leak(&database);
        let report = database.check(&CheckOptions::default()).await.unwrap();
        // The other table was lost with its device.
        let findings = report.findings.kept().iter().map(ToString::to_string);
        let of_far: Vec<String> = findings.filter(|finding| !finding.contains("lost")).collect();
        assert!(of_far.is_empty(), "{turn}: {of_far:?}");
    }
    drop(directory);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_acknowledged_commit_is_failed_over_and_the_old_host_is_refused() {
    let outside = tempfile::tempdir().unwrap();
    let (directory, mut database, _served, remote) = with_nas(outside.path()).await;
    let mut random = SplitMix64::new(7);
    let mut session = database.session();
    run(&mut session, "DELETE FROM far").await;
    run(&mut session, "ALTER SYSTEM SET log_replica = 'nas'").await;
    let mut model: std::collections::BTreeMap<u64, u64> = std::collections::BTreeMap::new();
    let mut old: Option<(Session, Arc<Database>)> = None;
    for turn in 0..5 {
        for _ in 0..random.below(40) {
            let (id, value) = (random.below(50), random.below(1000));
            match random.below(8) {
                0 => {
                    run(&mut session, &format!("DELETE FROM far WHERE id = {id}")).await;
                    model.remove(&id);
                }
                1 => drop(run(&mut session, "CHECKPOINT").await),
                2 => drop(row(&mut session, FAR).await),
                _ => {
                    let upsert = format!(
                        "INSERT INTO far VALUES ({id}, '{value}') ON CONFLICT (id) DO UPDATE SET note = excluded.note"
                    );
                    run(&mut session, &upsert).await;
                    model.insert(id, value);
                }
            }
        }
        let folder = outside.path().join(format!("host {turn}"));
        taken(&folder, &remote).await.unwrap();
        // The old host is still running, and believes that it owns the device.
        let error = refused(&mut session, "INSERT INTO far VALUES (99, 'lost')").await;
        assert_eq!(error.sqlstate(), "55006", "{error}");
        let error = refused(&mut session, "CREATE TABLE unmade (id int)").await;
        assert_eq!(error.sqlstate(), "55006", "{error}");
        let next = reopened(&folder).await;
        old = Some((std::mem::replace(&mut session, next.session()), database));
        database = next;
        let expected: Vec<String> =
            model.iter().map(|(id, value)| format!("{id},{value}")).collect();
        assert_eq!(rows(&mut session, "SELECT id, note FROM far ORDER BY id").await, expected);
        assert_no_leak(&database);
    }
    drop(old);
    // Nor does it come back.
    let database = open(directory.path()).await;
    let mut session = database.session();
    let error = refused(&mut session, "INSERT INTO near VALUES (5, 'lost')").await;
    assert_eq!(error.sqlstate(), "55006", "{error}");
    assert!(error.to_string().contains("another copy"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_acknowledged_that_the_copy_does_not_have() {
    let outside = tempfile::tempdir().unwrap();
    let (_directory, database, served, remote) = with_nas(outside.path()).await;
    let address = served.address;
    let mut session = database.session();
    run(&mut session, "ALTER SYSTEM SET log_replica = 'nas'").await;
    run(&mut session, "INSERT INTO near VALUES (5, 'copied')").await;
    served.stop().await;
    let error = refused(&mut session, "INSERT INTO near VALUES (6, 'here')").await;
    assert_eq!(error.sqlstate(), "58030", "{error}");
    assert!(error.to_string().contains("the log replica on device \"nas\""), "{error}");
    let error =
        refused(&mut session, "CREATE TABLE unmade (id int) WITH (device = embedded)").await;
    assert_eq!(error.sqlstate(), "58030", "{error}");
    assert!(error.to_string().contains("nothing was changed"), "{error}");
    let status = shown(&mut session, "log_replica_status").await;
    assert!(status.starts_with("BEHIND: "), "{status}");
    // It is back: what is missing is copied with the next commit.
    let served = Served::start(&outside.path().join("nas.media"), [1; 16], address).await;
    run(&mut session, "INSERT INTO near VALUES (7, 'copied')").await;
    assert_eq!(row(&mut session, "SELECT count(*) FROM near WHERE id > 4").await, "3");
    let status = shown(&mut session, "log_replica_status").await;
    assert!(status.contains(", 0 bytes less than here"), "{status}");
    // Without it the log replica can be given up, and is erased once the device is back.
    served.stop().await;
    run(&mut session, "ALTER SYSTEM RESET log_replica").await;
    run(&mut session, "INSERT INTO near VALUES (8, 'here')").await;
    let status = shown(&mut session, "log_replica_status").await;
    assert!(status.contains("still has a dropped replica"), "{status}");
    let _served = Served::start(&outside.path().join("nas.media"), [1; 16], address).await;
    run(&mut session, "ALTER SYSTEM RESET log_replica").await;
    assert_eq!(shown(&mut session, "log_replica_status").await, "off");
    assert_no_leak(&database);
    let error = taken(&outside.path().join("new"), &remote).await.unwrap_err();
    assert_eq!(error.sqlstate(), "55000", "{error}");
    assert!(error.to_string().contains("no log replica"), "{error}");
    run(&mut session, "INSERT INTO far VALUES (-5, 'the host has the device still')").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copies_that_will_not_do_are_refused_and_nothing_is_changed() {
    let outside = tempfile::tempdir().unwrap();
    let (directory, database, served, remote) = with_nas(outside.path()).await;
    let address = served.address;
    let media = outside.path().join("nas.media");
    let mut session = database.session();
    let error = refused(&mut session, "ALTER SYSTEM SET log_replica = 'embedded'").await;
    assert_eq!(error.sqlstate(), "55000", "{error}");
    refused(&mut session, "ALTER SYSTEM SET log_replica = 'nowhere'").await;
    run(&mut session, "ALTER SYSTEM SET log_replica = 'nas'").await;
    run(&mut session, "INSERT INTO far VALUES (-1, 'first')").await;
    drop((session, database));
    served.stop().await;
    let stale = std::fs::read(&media).unwrap();

    let mut served = Served::start(&media, [1; 16], address).await;
    let database = open(directory.path()).await;
    run(&mut database.session(), "INSERT INTO far VALUES (-2, 'second')").await;
    drop(database);
    served.stop().await;
    let newest = std::fs::read(&media).unwrap();
    let new = outside.path().join("new");

    // The device was reset to its earlier state.
    std::fs::write(&media, &stale).unwrap();
    served = Served::start(&media, [1; 16], address).await;
    let error = taken(&new, &remote).await.unwrap_err();
    assert_eq!(error.sqlstate(), "55000", "{error}");
    assert!(error.to_string().contains("--stale"), "{error}");
    served.stop().await;

    // Every stamp is damaged.
    let mut torn = newest.clone();
    let mark = b"CLVCPYST";
    let places: Vec<usize> =
        (0..torn.len()).step_by(4096).filter(|at| torn[*at..].starts_with(mark)).collect();
    assert!(places.len() > 3, "{places:?}");
    places.iter().for_each(|at| torn[at + 40] ^= 1);
    std::fs::write(&media, &torn).unwrap();
    served = Served::start(&media, [1; 16], address).await;
    let error = taken(&new, &remote).await.unwrap_err();
    assert!(error.to_string().contains("none that is whole"), "{error}");
    served.stop().await;

    // A sound one, of another device's address, of no device, and into a folder that is not empty.
    std::fs::write(&media, &newest).unwrap();
    served = Served::start(&media, [1; 16], address).await;
    let error = taken(directory.path(), &remote).await.unwrap_err();
    assert!(error.to_string().contains("holds a database"), "{error}");
    // The state after a failover that is killed at its end.
    assert!(error.to_string().contains("it is to be opened"), "{error}");
    let (others, _) = fresh().await;
    let error = taken(others.path(), &remote).await.unwrap_err();
    assert!(error.to_string().ends_with("which is not written over"), "{error}");
    let other = Served::start(&outside.path().join("other.media"), [2; 16], anywhere()).await;
    let nobodys = RemoteDevice { port: other.address.port(), ..remote.clone() };
    let error = taken(&new, &nobodys).await.unwrap_err();
    assert!(error.to_string().contains("no database's"), "{error}");
    // All that left the old host what it had.
    let database = open(directory.path()).await;
    run(&mut database.session(), "INSERT INTO far VALUES (-3, 'third')").await;
    drop(database);
    let new = outside.path().join("whole");
    taken(&new, &remote).await.unwrap();
    let database = reopened(&new).await;
    let found =
        rows(&mut database.session(), "SELECT note FROM far WHERE id < 0 ORDER BY id").await;
    assert_eq!(found, ["third", "second", "first"]);
    drop(served);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_follows_a_long_log() {
    let outside = tempfile::tempdir().unwrap();
    let (directory, database, _served, remote) = with_nas(outside.path()).await;
    let mut session = database.session();
    run(&mut session, "ALTER SYSTEM SET log_replica = 'nas'").await;
    run(&mut session, "SET default_device = 'nas'").await;
    run(&mut session, "CREATE TABLE wide (id int PRIMARY KEY, note text)").await;
    // More than the ring takes, in parts that fit the log.
    for turn in 0..60 {
        let insert = format!(
            "INSERT INTO wide SELECT v, repeat(' ' || v, 2500) FROM generate_series({}, {}) AS s(v)",
            turn * 60,
            turn * 60 + 59
        );
        run(&mut session, &insert).await;
    }
    let sum = "SELECT count(*), sum(id), sum(length(note)) FROM wide";
    let expected = row(&mut session, sum).await;
    drop((session, database, directory));
    let new = outside.path().join("new");
    taken(&new, &remote).await.unwrap();
    let database = reopened(&new).await;
    assert_eq!(row(&mut database.session(), sum).await, expected);
}

/// Nothing reveals it if the newest stamp counts on no more than what was written with it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_that_is_damaged_leaves_the_host_its_devices() {
    let outside = tempfile::tempdir().unwrap();
    let (directory, database, mut served, remote) = with_nas(outside.path()).await;
    let (address, media) = (served.address, outside.path().join("nas.media"));
    let mut session = database.session();
    run(&mut session, "ALTER SYSTEM SET log_replica = 'nas'; ANALYZE far; CHECKPOINT").await;
    for id in 2..8 {
        let insert =
            format!("INSERT INTO near VALUES ({id}, '{}')", format!("row {id} ").repeat(2000));
        run(&mut session, &insert).await;
    }
    drop((session, database));
    let folder = outside.path().join("second");
    // The log before the last commits.
    for (damaged, found) in [("row 4 row 4", "its log replica is damaged"), ("CLVSTATS", "")] {
        served.stop().await;
        let whole = std::fs::read(&media).unwrap();
        let mut bytes = whole.clone();
        let mark = damaged.as_bytes();
        let places: Vec<usize> =
            (0..bytes.len() - mark.len()).filter(|at| bytes[*at..].starts_with(mark)).collect();
        assert!(!places.is_empty(), "{damaged}");
        places.iter().for_each(|at| bytes[*at + 4] ^= 1);
        std::fs::write(&media, &bytes).unwrap();
        served = Served::start(&media, [1; 16], address).await;
        let outcome = taken(&folder, &remote).await;
        if found.is_empty() {
            // The results of ANALYZE can be lost.
            outcome.unwrap();
            break;
        }
        let error = outcome.unwrap_err().to_string();
        assert!(error.contains(found), "{error}");
        let database = open(directory.path()).await;
        run(&mut database.session(), "INSERT INTO near VALUES (8, 'it goes on')").await;
    }
    let database = reopened(&folder).await;
    assert_eq!(row(&mut database.session(), FAR).await.split(',').next(), Some("20001"));
    drop(served);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_that_is_too_full_for_a_copy_refuses_it_and_nothing_is_lost() {
    let outside = tempfile::tempdir().unwrap();
    let (directory, database) = fresh().await;
    let media = Arc::new(Bounded::new(4096));
    let beside = outside.path().join("nas.media");
    let served = Arc::clone(&media) as Arc<dyn Media>;
    let served = Served::over(served, &beside, [1; 16], anywhere()).await;
    let remote = remote(served.address, token_file(outside.path(), TOKEN));
    database.add_device("nas", remote.clone()).await.unwrap();
    let mut session = database.session();
    run(&mut session, "SET default_device = 'nas'").await;
    run(&mut session, "CREATE TABLE far (id int PRIMARY KEY, note text)").await;
    run(&mut session, "INSERT INTO far VALUES (1, 'before')").await;
    // There is no room for the log.
    let error = refused(&mut session, "ALTER SYSTEM SET log_replica = 'nas'").await;
    assert_eq!(error.sqlstate(), "53100", "{error}");
    assert!(error.to_string().contains("nothing was changed"), "{error}");
    assert_eq!(shown(&mut session, "log_replica").await, "");
    assert_eq!(shown(&mut session, "log_replica_status").await, "off");
    run(&mut session, "INSERT INTO far VALUES (2, 'without'); CHECKPOINT").await;
    assert_no_leak(&database);

    media.limit(20_000);
    run(&mut session, "ALTER SYSTEM SET log_replica = 'nas'").await;
    run(&mut session, "INSERT INTO far VALUES (3, 'copied')").await;
    // It is full again: there is room for the log, and at some time none for a larger manifest.
    media.limit(media.block_count());
    run(&mut session, "CREATE TABLE filler (id int PRIMARY KEY, note text)").await;
    let mut end = 0;
    for step in [50_000, 5_000, 300] {
        let error = loop {
            let filled =
                session.load("filler", batches(vec![numbered(end..end + step)]), None).await;
            match filled {
                Ok(_) => end += step,
                Err(error) => break error,
            }
        };
        assert_eq!(error.sqlstate(), "53100", "{error}");
    }
    let columns: Vec<String> = (0..100).map(|at| format!("a_column_called_{at} int")).collect();
    let mut count = 0;
    let error = loop {
        let create = format!("CREATE TABLE t{count} ({})", columns.join(", "));
        match session.run(&create).await {
            Ok(_) => count += 1,
            Err(error) => break error,
        }
        assert!(count < 100, "it grows");
    };
    assert_eq!(error.sqlstate(), "53100", "{error}");
    assert!(error.to_string().contains("nothing was changed"), "{error}");
    let error = refused(&mut session, &format!("SELECT * FROM t{count}")).await;
    assert_eq!(error.sqlstate(), "42P01", "{error}");
    media.limit(media.block_count() + 20);
    run(&mut session, "INSERT INTO far VALUES (4, 'also')").await;
    run(&mut session, "UPDATE far SET note = 'changed' WHERE id = 1; CHECKPOINT").await;
    let status = shown(&mut session, "log_replica_status").await;
    assert!(status.contains(", 0 bytes less than here"), "{status}");
    let expected = rows(&mut session, "SELECT * FROM far ORDER BY id").await;
    assert_eq!(expected, ["1,changed", "2,without", "3,copied", "4,also"]);
    drop((session, database, directory));
    let folder = outside.path().join("second");
    taken(&folder, &remote).await.unwrap();
    let database = reopened(&folder).await;
    let mut session = database.session();
    assert_eq!(rows(&mut session, "SELECT * FROM far ORDER BY id").await, expected);
    assert!(count > 0, "some were made");
    count -= 1;
    assert_eq!(row(&mut session, &format!("SELECT count(*) FROM t{count}")).await, "0");
    assert_eq!(row(&mut session, "SELECT count(*) FROM filler").await, end.to_string());
    media.limit(u64::MAX);
    run(&mut session, "CREATE TABLE more (id int); INSERT INTO more VALUES (1)").await;
    assert_no_leak(&database);
}

/// A definition is in the log replica before a commit based on it can be, and settings are acknowledged once they are
/// there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn settings_and_devices_are_copied_before_they_are_acknowledged() {
    let outside = tempfile::tempdir().unwrap();
    let (_directory, database, served, remote) = with_nas(outside.path()).await;
    let address = served.address;
    let mut session = database.session();
    run(&mut session, "ALTER SYSTEM SET log_replica = 'nas'").await;
    let other = Served::start(&outside.path().join("other.media"), [2; 16], anywhere()).await;
    let way = RemoteDevice { port: other.address.port(), ..remote.clone() };
    served.stop().await;
    for statement in [
        "ALTER SYSTEM SET version_retention = 60",
        "ALTER SYSTEM SET autovacuum = off",
        "ALTER SYSTEM SET log_replica = 'nas, embedded'",
    ] {
        drop(refused(&mut session, statement).await);
    }
    let error = refused(&mut session, "ALTER SYSTEM SET version_retention = 60").await;
    assert_eq!(error.sqlstate(), "58030", "{error}");
    assert!(error.to_string().contains("nothing was changed"), "{error}");
    let error = database.add_device("other", way.clone()).await.unwrap_err();
    assert_eq!(error.sqlstate(), "58030", "{error}");
    assert!(database.device_named("other").is_err());
    let _served = Served::start(&outside.path().join("nas.media"), [1; 16], address).await;
    run(&mut session, "ALTER SYSTEM SET version_retention = 60").await;
    database.add_device("other", way).await.unwrap();
    drop((session, database));
    let folder = outside.path().join("second");
    taken(&folder, &remote).await.unwrap();
    let database = reopened(&folder).await;
    assert!(database.device_named("other").is_ok());
    let mut session = database.session();
    assert_eq!(shown(&mut session, "version_retention").await, "60");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_that_a_copy_counts_on_stay_over_restarts_without_it() {
    let outside = tempfile::tempdir().unwrap();
    let (directory, database, served, remote) = with_nas(outside.path()).await;
    let address = served.address;
    let other = Served::start(&outside.path().join("other.media"), [2; 16], anywhere()).await;
    let way = RemoteDevice { port: other.address.port(), ..remote.clone() };
    database.add_device("other", way).await.unwrap();
    let mut session = database.session();
    run(&mut session, "ALTER SYSTEM SET log_replica = 'nas'").await;
    run(&mut session, "SET default_device = 'other'").await;
    run(&mut session, "CREATE TABLE o (id int PRIMARY KEY, note text)").await;
    run(&mut session, "INSERT INTO o SELECT v, 'row ' || v FROM generate_series(1, 500) AS s(v)")
        .await;
    run(&mut session, "CHECKPOINT").await;
    run(&mut session, "INSERT INTO o VALUES (501, 'row 501')").await;
    let rows_of = "SELECT count(*), sum(id), count(DISTINCT note), min(length(note)) FROM o";
    let expected = row(&mut session, rows_of).await;
    // From here on commits are only here, and rewrite pages of the same rows again and again.
    served.stop().await;
    drop(session);
    let mut database = Some(database);
    for turn in 0..4 {
        if turn > 0 {
            drop(database.take());
            database = Some(open(directory.path()).await);
        }
        let Some(database) = &database else { continue };
        let mut session = database.session();
        for step in 0..4 {
            let id = 1000 + turn * 10 + step;
            let insert = format!("INSERT INTO o VALUES ({id}, '{}')", "x".repeat(2000));
            let error = refused(&mut session, &insert).await;
            assert_eq!(error.sqlstate(), "58030", "{error}");
            // It has nothing beyond the log, and continues without the log replica.
            drop(database.checkpoint().await);
        }
        assert_no_leak(database);
    }
    drop((database, directory));
    let _served = Served::start(&outside.path().join("nas.media"), [1; 16], address).await;
    let folder = outside.path().join("second");
    // Nothing shows that the hosts which opened it meanwhile acknowledged nothing.
    let error = taken(&folder, &remote).await.unwrap_err();
    assert_eq!(error.sqlstate(), "55000", "{error}");
    assert!(error.to_string().contains("\"other\""), "{error}");
    assert!(error.to_string().contains("--stale"), "{error}");
    taken_though_stale(&folder, &remote).await.unwrap();
    let database = reopened(&folder).await;
    let mut session = database.session();
    assert_eq!(row(&mut session, rows_of).await, expected);
    let report = database.check(&CheckOptions::default()).await.unwrap();
    assert!(
        report.is_clean() || report.findings.kept().iter().all(|f| f.to_string().contains("lost")),
        "{:#?}",
        report.findings
    );
    // The kept space is freed once the log replica has a manifest of this incarnation.
    run(&mut session, "INSERT INTO o VALUES (502, 'row 502'); CHECKPOINT").await;
    assert_no_leak(&database);
}

/// The state of the device with the longer log replica while the host continued from the shorter one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Longer {
    /// It was there.
    Stayed,
    /// It was offline until the new host had a longer log than it.
    WasOffline,
}

/// One of two log replicas is ahead of the other by unacknowledged commits, and the host continues from the other one.
/// What the first one has more is dropped, and it then has the log of the new host.
async fn the_host_goes_on_from_the_shorter_copy(longer: Longer, has_manifest: bool) {
    let outside = tempfile::tempdir().unwrap();
    let (directory, database, served, nas) = with_nas(outside.path()).await;
    let other_media = outside.path().join("other.media");
    let other_served = Served::start(&other_media, [2; 16], anywhere()).await;
    let (address, other_address) = (served.address, other_served.address);
    let other = RemoteDevice { port: other_address.port(), ..nas.clone() };
    database.add_device("other", other.clone()).await.unwrap();
    let mut session = database.session();
    run(&mut session, "ALTER SYSTEM SET log_replica = 'nas, other'").await;
    run(&mut session, "SET default_device = 'other'").await;
    run(&mut session, "CREATE TABLE o (id int PRIMARY KEY, note text)").await;
    run(&mut session, "INSERT INTO o VALUES (1, 'told'), (2, 'told'); CHECKPOINT").await;
    run(&mut session, "INSERT INTO far VALUES (-1, 'told')").await;
    other_served.stop().await;
    for id in 10..16 {
        let insert = format!("INSERT INTO far VALUES (-{id}, '{}')", "lost ".repeat(2400));
        let error = refused(&mut session, &insert).await;
        assert_eq!(error.sqlstate(), "58030", "{error}");
        assert!(error.to_string().contains("\"other\""), "{error}");
    }
    if has_manifest {
        database.checkpoint().await.unwrap();
    }
    drop((session, database, directory));
    let mut served = Some(served);
    if longer == Longer::WasOffline {
        served.take().unwrap().stop().await;
    }

    let _other_served = Served::start(&other_media, [2; 16], other_address).await;
    let second = outside.path().join("second");
    let offline = taken(&second, &other).await.unwrap().offline;
    assert_eq!(offline.is_empty(), longer == Longer::Stayed, "{offline:?}");
    let database = reopened(&second).await;
    let mut session = database.session();
    if longer == Longer::WasOffline {
        for id in 10..20 {
            let insert = format!("INSERT INTO o VALUES ({id}, '{}')", "later ".repeat(2000));
            let error = refused(&mut session, &insert).await;
            assert_eq!(error.sqlstate(), "58030", "{error}");
            assert!(error.to_string().contains("\"nas\""), "{error}");
        }
        let media = outside.path().join("nas.media");
        served = Some(Served::start(&media, [1; 16], address).await);
    }
    run(&mut session, "INSERT INTO o VALUES (3, 'told later')").await;
    run(&mut session, "INSERT INTO far VALUES (-2, 'told later')").await;
    let status = shown(&mut session, "log_replica_status").await;
    assert_eq!(status.matches(", 0 bytes less than here").count(), 2, "{status}");
    let queries = [
        "SELECT count(*), sum(id), sum(length(note)) FROM o",
        "SELECT id, note FROM o WHERE id < 10 ORDER BY id",
        "SELECT id, note FROM far WHERE id < 0 ORDER BY id",
        FAR,
    ];
    let mut expected = Vec::new();
    for query in queries {
        expected.push(rows(&mut session, query).await);
    }
    assert_eq!(expected[1], ["1,told", "2,told", "3,told later"]);
    assert_eq!(expected[2], ["-2,told later", "-1,told"]);
    assert_no_leak(&database);
    drop((session, database));

    let third = outside.path().join("third");
    taken(&third, &nas).await.unwrap();
    let database = reopened(&third).await;
    let mut session = database.session();
    for (query, expected) in queries.iter().zip(&expected) {
        assert_eq!(&rows(&mut session, query).await, expected, "{query}");
    }
    run(&mut session, "INSERT INTO far VALUES (-3, 'told'); CHECKPOINT").await;
    assert_no_leak(&database);
    drop(served);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_longer_copy_follows_the_host_that_took_over_from_a_shorter_one() {
    Box::pin(the_host_goes_on_from_the_shorter_copy(Longer::Stayed, false)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_longer_copy_that_was_offline_has_nothing_of_the_host_before() {
    Box::pin(the_host_goes_on_from_the_shorter_copy(Longer::WasOffline, false)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_longer_copy_with_a_newer_manifest_has_nothing_of_the_host_before() {
    Box::pin(the_host_goes_on_from_the_shorter_copy(Longer::WasOffline, true)).await;
}

/// The old host put the file where the manifest of the shorter log replica knows no space: the next host has the same
/// file, and gives that place to a table.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_outside_of_the_copys_space_is_copied_again() {
    let outside = tempfile::tempdir().unwrap();
    let (directory, database, served, nas) = with_nas(outside.path()).await;
    let (address, media) = (served.address, outside.path().join("nas.media"));
    let other_media = outside.path().join("other.media");
    let other_served = Served::start(&other_media, [2; 16], anywhere()).await;
    let other_address = other_served.address;
    let other = RemoteDevice { port: other_address.port(), ..nas.clone() };
    database.add_device("other", other.clone()).await.unwrap();
    // It has the tables, and is there all the time.
    let third_served =
        Served::start(&outside.path().join("third.media"), [3; 16], anywhere()).await;
    let third = RemoteDevice { port: third_served.address.port(), ..nas.clone() };
    database.add_device("third", third).await.unwrap();
    let mut session = database.session();
    run(&mut session, "ALTER SYSTEM SET log_replica = 'nas, other'").await;
    run(&mut session, "SET default_device = 'third'").await;
    let columns: Vec<String> = (0..100).map(|at| format!("c{at} text")).collect();
    run(&mut session, &format!("CREATE TABLE wide ({})", columns.join(", "))).await;
    let values: Vec<String> =
        (0..100).map(|at| format!("'a long enough value of column {at}: ' || v")).collect();
    let insert = format!(
        "INSERT INTO wide SELECT {} FROM generate_series(1, 400) AS s(v)",
        values.join(", ")
    );
    run(&mut session, &insert).await;
    let statistics = |directory: &Path| {
        let file =
            std::fs::read_dir(directory.join("statistics")).unwrap().next().unwrap().unwrap();
        (file.file_name(), std::fs::read(file.path()).unwrap())
    };
    // Only "nas" has what ANALYZE found, in space that it got for it.
    other_served.stop().await;
    let used = |database: &Database| {
        let devices = database.devices();
        let nas = devices.iter().find(|device| device.name() == "nas").unwrap();
        nas.space().used_blocks
    };
    let used_before = used(&database);
    drop(session.run("ANALYZE wide").await);
    let (name, found) = statistics(directory.path());
    refused(&mut session, "INSERT INTO wide (c0) VALUES ('lost')").await;
    database.checkpoint().await.unwrap();
    let file_blocks = found.len() as u64 / 4096;
    assert!(used(&database) > used_before + file_blocks, "it lies in the space before");
    drop((session, database, directory));
    served.stop().await;

    let _other_served = Served::start(&other_media, [2; 16], other_address).await;
    let second = outside.path().join("second");
    taken(&second, &other).await.unwrap();
    // As if ANALYZE had found the same.
    std::fs::create_dir_all(second.join("statistics")).unwrap();
    std::fs::write(second.join("statistics").join(&name), &found).unwrap();
    let database = reopened(&second).await;
    let mut session = database.session();
    let served = Served::start(&media, [1; 16], address).await;
    // Written where that file lies, before the log replica receives anything.
    let mut random = SplitMix64::new(3);
    let ids = 100_000..106_000;
    let notes = ids.clone().map(|_| {
        let words = (0..250).map(|_| format!("{:016x}", random.next_u64()));
        words.collect::<String>()
    });
    let notes: ArrayRef = Arc::new(StringArray::from_iter_values(notes));
    let ids: ArrayRef = Arc::new(Int32Array::from_iter_values(ids));
    let filler = RecordBatch::try_from_iter([("id", ids), ("note", notes)]).unwrap();
    session.load("far", batches(vec![filler]), None).await.unwrap();
    run(&mut session, "INSERT INTO wide (c0) VALUES ('told'); CHECKPOINT").await;
    assert_no_leak(&database);
    drop((session, database));
    let third = outside.path().join("third");
    taken(&third, &nas).await.unwrap();
    assert!(statistics(&third) == (name, found), "another file than the host had");
    let database = reopened(&third).await;
    let mut session = database.session();
    assert_eq!(row(&mut session, "SELECT count(*) FROM far").await, "26001");
    assert_eq!(row(&mut session, "SELECT count(*) FROM wide").await, "401");
    assert_no_leak(&database);
    drop((served, third_served));
}

/// Its log may become as long as that of the log replica, which has acknowledged commits.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_folder_that_was_put_back_acknowledges_nothing() {
    let outside = tempfile::tempdir().unwrap();
    let (directory, database, _served, remote) = with_nas(outside.path()).await;
    let mut session = database.session();
    run(&mut session, "ALTER SYSTEM SET log_replica = 'nas'").await;
    run(&mut session, "INSERT INTO near VALUES (5, 'in the folder'); CHECKPOINT").await;
    let older = outside.path().join("older");
    copy(directory.path(), &older);
    let note = "told ".repeat(2000);
    run(&mut session, &format!("INSERT INTO far VALUES (-6, '{note}')")).await;
    drop((session, database, directory));
    let database = open(&older).await;
    let mut session = database.session();
    for id in 7..12 {
        let insert = format!("INSERT INTO near VALUES ({id}, '{}')", "more ".repeat(1000));
        let error = refused(&mut session, &insert).await;
        assert_eq!(error.sqlstate(), "55000", "{id}: {error}");
        assert!(error.to_string().contains("an older one"), "{error}");
    }
    drop((session, database));
    let folder = outside.path().join("second");
    taken_though_stale(&folder, &remote).await.unwrap();
    let database = reopened(&folder).await;
    let found = row(&mut database.session(), "SELECT length(note) FROM far WHERE id = -6").await;
    assert_eq!(found, note.len().to_string());
}
