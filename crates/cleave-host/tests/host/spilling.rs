//! Tests of fragments that outgrow their memory on a device: they finish in space that is theirs while they run.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use cleave_host::activity::Act;
use cleave_host::{Database, RemoteDevice, Session};
use tokio::task::JoinSet;

use crate::devices::{Served, TOKEN, anywhere, remote, token_file};
use crate::support::{assert_no_leak_soon, batches, fresh, numbered, row, rows, run};

/// Blocks of the device in use; of a lost device, some are doubtful.
fn used(database: &Database) -> (u64, u64) {
    let space = database.devices()[0].space();
    (space.used_blocks, space.doubtful_blocks)
}

/// Until as many blocks are in use as before.
async fn reach(database: &Database, before: (u64, u64)) {
    for _ in 0..1000 {
        if used(database) == before {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(used(database), before, "space is given back");
}

async fn tables(session: &mut Session) {
    run(session, "CREATE TABLE many (id int PRIMARY KEY, few int, note text)").await;
    run(
        session,
        "INSERT INTO many SELECT v, CASE WHEN v % 10 = 0 THEN NULL ELSE v % 20000 END, 'a note of some length ' || v \
         FROM generate_series(1, 60000) AS s(v)",
    )
    .await;
    run(session, "CREATE TABLE others (id int PRIMARY KEY, note text, one int)").await;
    run(
        session,
        "INSERT INTO others SELECT v, 'a note of some length ' || (v * 2), 1 FROM generate_series(1, 50000) AS s(v)",
    )
    .await;
    run(session, "SET device_memory = '2MB'").await;
}

/// Joins whose build side does not fit, of every kind that SQL has.
const JOINS: [&str; 7] = [
    "SELECT count(*), sum(a.id), min(b.note) FROM many a JOIN many b ON a.note = b.note",
    "SELECT count(*), count(b.id), sum(a.id), min(b.note) FROM many a LEFT JOIN others b ON a.note = b.note",
    "SELECT count(*), count(a.id), sum(b.id), min(a.note) FROM many a RIGHT JOIN others b ON a.note = b.note",
    "SELECT count(*), count(a.id), count(b.id) FROM many a FULL JOIN others b ON a.note = b.note",
    "SELECT count(*), sum(id) FROM many a WHERE EXISTS (SELECT 1 FROM others b WHERE a.note = b.note)",
    "SELECT count(*), sum(id) FROM many a WHERE NOT EXISTS (SELECT 1 FROM others b WHERE a.note = b.note)",
    "SELECT a.few, count(*), max(b.note) FROM many a JOIN others b ON a.note = b.note AND a.id < b.id + 40000 \
     GROUP BY a.few ORDER BY 2 DESC, 1 LIMIT 20",
];

/// Checks that `sql` gives the host's rows on the device, where an `operator` spills.
async fn assert_spills(session: &mut Session, sql: &str, operator: &str) {
    run(session, "SET split = host").await;
    let expected = rows(session, sql).await;
    run(session, "SET split = ndp").await;
    assert!(rows(session, sql).await == expected, "{sql}");
    let plan = rows(session, &format!("EXPLAIN ANALYZE VERBOSE {sql}")).await.join("\n");
    assert!(!plan.contains("ran on the host: "), "{sql}: {plan}");
    let there = format!("[embedded] {operator}");
    let mut lines = plan.lines().filter(|line| line.contains(&there));
    assert!(lines.any(|line| line.contains(", spilled=")), "{sql}: {plan}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn joins_that_outgrow_their_memory_finish_on_the_device() {
    let (_directory, database) = fresh().await;
    let mut session = database.session();
    tables(&mut session).await;
    let before = used(&database);
    for join in JOINS {
        assert_spills(&mut session, join, "HashJoinExec").await;
        reach(&database, before).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn groups_that_outgrow_their_memory_finish_on_the_device() {
    let (_directory, database) = fresh().await;
    let mut session = database.session();
    tables(&mut session).await;
    run(&mut session, "SET device_memory = '4MB'").await;
    let before = used(&database);
    for groups in [
        "SELECT count(*), sum(n), sum(s), sum(a), min(f), max(note) FROM (SELECT note, few, count(*) AS n, sum(id) \
            AS s, \
         avg(id) AS a, min(few) AS f FROM many GROUP BY note, few) g",
        "SELECT count(*), sum(ones), sum(length(notes)), max(note) FROM (SELECT a.note, count(DISTINCT b.one) AS \
            ones, \
         string_agg(a.note, ',') AS notes FROM many a LEFT JOIN others b ON a.note = b.note GROUP BY a.note) g",
    ] {
        assert_spills(&mut session, groups, "AggregateExec").await;
        reach(&database, before).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sorts_that_outgrow_their_memory_finish_on_the_device() {
    let (_directory, database) = fresh().await;
    let mut session = database.session();
    tables(&mut session).await;
    let before = used(&database);
    for sorted in [
        "SELECT note, id FROM many ORDER BY note DESC",
        "SELECT few, id, note FROM many ORDER BY few NULLS FIRST, id DESC",
        "SELECT count(*), max(note), sum(id) FROM (SELECT a.note, b.few, b.id FROM many a JOIN many b \
         ON a.few = b.few ORDER BY 1, 3 LIMIT 120000) AS top",
    ] {
        assert_spills(&mut session, sorted, "SortExec").await;
        reach(&database, before).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_that_a_fragment_writes_come_of_operators_that_spill() {
    let (_directory, database) = fresh().await;
    let mut session = database.session();
    tables(&mut session).await;
    let groups = "SELECT note, few, count(*) AS n, sum(id) AS s FROM many GROUP BY note, few";
    let joined = "SELECT a.note, b.few, 1::bigint AS n, b.id::bigint AS s FROM many a JOIN many b ON a.note = b.note";
    run(&mut session, "CREATE TABLE made (note text, few int, n bigint, s bigint)").await;
    run(&mut session, "SET device_memory = '12MB'; SET update_placement = device").await;
    for query in [groups, joined] {
        let all = "count(*), sum(n), sum(s), max(note), count(few)";
        run(&mut session, "SET stages = off").await;
        let sql = format!("WITH x AS MATERIALIZED ({query}) SELECT {all} FROM x");
        let expected = rows(&mut session, &sql).await;
        let counts = |database: &Database| {
            let activity = database.activity();
            (activity.count(Act::Stage), activity.count(Act::UpdateFragment))
        };
        let before = counts(&database);
        run(&mut session, "SET stages = always").await;
        assert_eq!(rows(&mut session, &sql).await, expected, "{query}");
        run(&mut session, &format!("TRUNCATE made; INSERT INTO made {query}")).await;
        assert_eq!(rows(&mut session, &format!("SELECT {all} FROM made")).await, expected);
        assert_eq!(counts(&database), (before.0 + 1, before.1 + 1), "{query}");
    }
    assert_no_leak_soon(&database).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_joins_in_a_row_put_aside_what_each_needs() {
    let (_directory, database) = fresh().await;
    let mut session = database.session();
    tables(&mut session).await;
    let joins = "SELECT count(*), sum(c.one), min(a.note), max(b.note) FROM many a JOIN many b ON a.note = b.note \
                 JOIN others c ON c.note = b.note WHERE a.id > 100";
    run(&mut session, "SET split = host").await;
    let expected = row(&mut session, joins).await;
    let before = used(&database);
    for split in ["h1", "h2", "ndp"] {
        run(&mut session, &format!("SET split = {split}")).await;
        assert_eq!(row(&mut session, joins).await, expected, "{split}");
        reach(&database, before).await;
    }
}

/// One key has so many rows that they never fit.
const HEAVY: &str = "SELECT count(*), sum(a.id), max(a.note) FROM \
                     (SELECT id, note, CASE WHEN id > 100 THEN 7 ELSE id END AS k FROM many) a JOIN many b ON a.k = \
    b.id";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_finish_there_runs_on_the_host() {
    let (_directory, database) = fresh().await;
    let mut session = database.session();
    tables(&mut session).await;
    run(&mut session, "SET join_order = written").await;
    let join = JOINS[0];
    let before = used(&database);
    for (spill, join) in [("0", join), ("1MB", join), ("256MB", HEAVY)] {
        run(&mut session, "SET split = host").await;
        let expected = rows(&mut session, join).await;
        run(&mut session, "SET split = ndp").await;
        run(&mut session, &format!("SET device_spill = '{spill}'")).await;
        assert_eq!(rows(&mut session, join).await, expected, "{spill}");
        let plan = rows(&mut session, &format!("EXPLAIN ANALYZE VERBOSE {join}")).await.join("\n");
        assert!(plan.contains("ran on the host: "), "{spill}: {plan}");
        reach(&database, before).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_query_that_is_given_up_gives_its_space_back() {
    let (_directory, database) = fresh().await;
    let mut session = database.session();
    tables(&mut session).await;
    run(&mut session, "SET split = ndp").await;
    let before = used(&database);
    let join = "SELECT a.id, b.note FROM many a JOIN many b ON a.note = b.note";
    let most = Arc::new(AtomicU64::new(0));
    let mut watching = JoinSet::new();
    {
        let (database, most) = (Arc::clone(&database), Arc::clone(&most));
        watching.spawn(async move {
            loop {
                most.fetch_max(used(&database).0, Ordering::Relaxed);
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        });
    }
    // At any time: before the need for space is known, while rows are spilled, between two rows.
    for wait in (0..40).step_by(4) {
        let given_up = {
            let session = &mut session;
            async move { rows(session, join).await.len() }
        };
        let waited = tokio::time::timeout(Duration::from_millis(wait * 10), given_up).await;
        drop(waited);
        reach(&database, before).await;
    }
    watching.shutdown().await;
    assert!(most.load(Ordering::Relaxed) > before.0, "space was taken, and given up with");
    assert_eq!(rows(&mut session, join).await.len(), 60000);
    reach(&database, before).await;
    // And a limit that stops it, as soon as a row is there.
    assert_eq!(rows(&mut session, &format!("{join} LIMIT 3")).await.len(), 3);
    reach(&database, before).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn space_is_taken_side_by_side_and_is_nobodys_afterwards() {
    let (directory, database) = fresh().await;
    let mut session = database.session();
    tables(&mut session).await;
    let before = used(&database);
    let join = JOINS[0];
    run(&mut session, "SET split = host").await;
    let expected = row(&mut session, join).await;
    let runs = (0..3).map(|_| {
        let database = Arc::clone(&database);
        async move {
            let mut session = database.session();
            run(&mut session, "SET device_memory = '2MB'; SET split = ndp").await;
            row(&mut session, join).await
        }
    });
    for found in futures::future::join_all(runs).await {
        assert_eq!(found, expected);
    }
    reach(&database, before).await;
    drop((session, database));
    let again = crate::support::open(directory.path()).await;
    assert_eq!(used(&again), before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn space_on_a_device_that_is_lost_is_free_at_the_next_start() {
    let outside = tempfile::tempdir().unwrap();
    let (directory, database) = fresh().await;
    let served = Served::start(&outside.path().join("nas.media"), [1; 16], anywhere()).await;
    let address = served.address;
    // Slow enough that the rows are still under way when the device goes.
    let slow = Some(1_000_000);
    let nas = RemoteDevice { rate_cap: slow, ..remote(address, token_file(outside.path(), TOKEN)) };
    database.add_device("nas", nas).await.unwrap();
    let mut session = database.session();
    run(
        &mut session,
        "SET default_device = 'nas'; CREATE TABLE far (id int PRIMARY KEY, note text)",
    )
    .await;
    session.load("far", batches(vec![numbered(0..20_000)]), None).await.unwrap();
    let device = Arc::clone(&database.device_named("nas").unwrap());
    let before = device.space().used_blocks;
    run(&mut session, "SET split = ndp; SET device_memory = '1MB'").await;
    // The ring holds a small part of them.
    run(&mut session, "SET slot_count = 2; SET slot_bytes = '16kB'").await;
    let mut queries = JoinSet::new();
    let query = queries.spawn(async move {
        let join = "SELECT a.id, b.note, a.note || b.note FROM far a JOIN far b ON a.note = b.note";
        session.run(join).await.map(drop)
    });
    while device.space().used_blocks == before {
        assert!(!query.is_finished(), "no space was taken");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    // Allocated, announced to the device, and named with a run by then, whose rows take two seconds.
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(device.space().used_blocks > before && !query.is_finished());
    served.stop().await;
    let error = queries.join_next().await.unwrap().unwrap().unwrap_err();
    assert_eq!(error.sqlstate(), "58030", "{error}");
    for _ in 0..1000 {
        if device.space().doubtful_blocks > 0 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // It may still write there, for all that is known.
    let space = device.space();
    assert!(space.doubtful_blocks > 0, "{space:?}");
    assert_eq!(space.used_blocks, before + space.doubtful_blocks);
    let _served = Served::start(&outside.path().join("nas.media"), [1; 16], address).await;
    drop((device, database));
    let database = crate::support::open(directory.path()).await;
    let space = database.device_named("nas").unwrap().space();
    assert_eq!((space.used_blocks, space.doubtful_blocks), (before, 0));
    assert_eq!(row(&mut database.session(), "SELECT count(*) FROM far").await, "20000");
}

/// Temporary files of queries lie in the database's folder, and go with the next start if a process was killed.
#[tokio::test]
async fn temporary_files_of_a_killed_process_are_removed_at_the_next_start() {
    let directory = tempfile::tempdir().unwrap();
    let left = directory.path().join("spill/datafusion-left");
    let database = crate::support::open(directory.path()).await;
    drop(database);
    std::fs::create_dir_all(&left).unwrap();
    std::fs::write(left.join("rows"), "of somebody").unwrap();
    let database = crate::support::open(directory.path()).await;
    assert!(!left.exists());
    let spills = directory.path().join("spill");
    assert_eq!(std::fs::read_dir(&spills).unwrap().count(), 1, "its own");
    let file = database.query_runtime().disk_manager.create_tmp_file("a test").unwrap();
    assert!(file.path().is_some_and(|path| path.starts_with(&spills)));
    drop((file, database));
}
