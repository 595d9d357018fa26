//! Copies of the log on devices, and hosts that go on from them when another is lost with its folder.

use std::path::Path;
use std::sync::Arc;

use cleave_host::log_copy::{TakeOver, TakenOver, take_over};
use cleave_host::{Database, Error, OpenOptions, RemoteDevice, Session};
use cleave_media::SplitMix64;

use crate::devices::{Served, anywhere, with_nas};
use crate::support::{
    assert_no_leak, batches, embedded_as, numbered, open, refused, row, rows, run,
};

const FAR: &str = "SELECT count(*), sum(id), count(DISTINCT note) FROM far";

fn options() -> OpenOptions {
    // Another machine, with another device of its own.
    OpenOptions::new(embedded_as([8; 16]))
}

async fn taken(directory: &Path, remote: &RemoteDevice) -> Result<TakenOver, Error> {
    let from = TakeOver { way: remote.clone().into(), accepts_stale: false };
    Box::pin(take_over(directory, &from, &options())).await
}

async fn reopened(directory: &Path) -> Arc<Database> {
    Database::open(directory, options()).await.unwrap()
}

async fn shown(session: &mut Session, name: &str) -> String {
    row(session, &format!("SHOW {name}")).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_host_goes_on_from_the_copy() {
    let outside = tempfile::tempdir().unwrap();
    let (directory, database, _served, remote) = with_nas(outside.path()).await;
    let mut session = database.session();
    assert_eq!(shown(&mut session, "log_copy_status").await, "off");
    run(&mut session, "SET default_device = 'nas'").await;
    run(&mut session, "ALTER SYSTEM SET log_copy = 'nas'").await;
    assert_eq!(shown(&mut session, "log_copy").await, "nas");
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
    let status = shown(&mut session, "log_copy_status").await;
    assert!(status.contains(", 0 bytes less than here"), "{status}");
    // All of the folder is lost, without another word.
    drop((session, database));
    drop(directory);

    let mut folder = outside.path().join("second");
    for turn in 0..3 {
        let taken = taken(&folder, &remote).await.unwrap();
        // From the second one on it is known as a device that is away.
        let (lost, away): (&[&str], &[&str]) =
            if turn == 0 { (&["near"], &[]) } else { (&[], &["lost"]) };
        assert_eq!(taken.lost, lost, "{taken:?}");
        assert_eq!(taken.away, away, "{taken:?}");
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
        // It goes on, with the copy too.
        assert_eq!(shown(&mut session, "log_copy").await, "nas");
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_acknowledged_commit_is_taken_over_and_the_old_host_is_refused() {
    let outside = tempfile::tempdir().unwrap();
    let (directory, mut database, _served, remote) = with_nas(outside.path()).await;
    let mut random = SplitMix64::new(7);
    let mut session = database.session();
    run(&mut session, "DELETE FROM far").await;
    run(&mut session, "ALTER SYSTEM SET log_copy = 'nas'").await;
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
        // The host before is there still, and believes that it has the device.
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
    run(&mut session, "ALTER SYSTEM SET log_copy = 'nas'").await;
    run(&mut session, "INSERT INTO near VALUES (5, 'copied')").await;
    served.stop().await;
    let error = refused(&mut session, "INSERT INTO near VALUES (6, 'here')").await;
    assert_eq!(error.sqlstate(), "58030", "{error}");
    assert!(error.to_string().contains("the copy of the log on device \"nas\""), "{error}");
    let error =
        refused(&mut session, "CREATE TABLE unmade (id int) WITH (device = embedded)").await;
    assert_eq!(error.sqlstate(), "58030", "{error}");
    assert!(error.to_string().contains("nothing was changed"), "{error}");
    let status = shown(&mut session, "log_copy_status").await;
    assert!(status.starts_with("BEHIND: "), "{status}");
    // It is back: what waited is copied with the next commit.
    let served = Served::start(&outside.path().join("nas.media"), [1; 16], address).await;
    run(&mut session, "INSERT INTO near VALUES (7, 'copied')").await;
    assert_eq!(row(&mut session, "SELECT count(*) FROM near WHERE id > 4").await, "3");
    let status = shown(&mut session, "log_copy_status").await;
    assert!(status.contains(", 0 bytes less than here"), "{status}");
    // Without it the copy can be given up, and is erased once the device is back.
    served.stop().await;
    run(&mut session, "ALTER SYSTEM RESET log_copy").await;
    run(&mut session, "INSERT INTO near VALUES (8, 'here')").await;
    let status = shown(&mut session, "log_copy_status").await;
    assert!(status.contains("still has an ended copy"), "{status}");
    let _served = Served::start(&outside.path().join("nas.media"), [1; 16], address).await;
    run(&mut session, "ALTER SYSTEM RESET log_copy").await;
    assert_eq!(shown(&mut session, "log_copy_status").await, "off");
    assert_no_leak(&database);
    let error = taken(&outside.path().join("new"), &remote).await.unwrap_err();
    assert_eq!(error.sqlstate(), "55000", "{error}");
    assert!(error.to_string().contains("no copy of the log"), "{error}");
    run(&mut session, "INSERT INTO far VALUES (-5, 'the host has the device still')").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copies_that_will_not_do_are_refused_and_nothing_is_changed() {
    let outside = tempfile::tempdir().unwrap();
    let (directory, database, served, remote) = with_nas(outside.path()).await;
    let address = served.address;
    let media = outside.path().join("nas.media");
    let mut session = database.session();
    let error = refused(&mut session, "ALTER SYSTEM SET log_copy = 'embedded'").await;
    assert_eq!(error.sqlstate(), "55000", "{error}");
    refused(&mut session, "ALTER SYSTEM SET log_copy = 'nowhere'").await;
    run(&mut session, "ALTER SYSTEM SET log_copy = 'nas'").await;
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

    // The device was put back to what it was before.
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

    // A whole one, of another device's address, of nobody, and into a folder that holds something.
    std::fs::write(&media, &newest).unwrap();
    served = Served::start(&media, [1; 16], address).await;
    let error = taken(directory.path(), &remote).await.unwrap_err();
    assert!(error.to_string().contains("holds a database"), "{error}");
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
    run(&mut session, "ALTER SYSTEM SET log_copy = 'nas'").await;
    run(&mut session, "SET default_device = 'nas'").await;
    run(&mut session, "CREATE TABLE wide (id int PRIMARY KEY, note text)").await;
    // More than the ring takes, in parts that the log takes.
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
