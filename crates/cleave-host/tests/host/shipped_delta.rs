//! Tests of the shipped delta: the latest commits are sent with a query as pages in memory. Under every cut their rows
//! are those that they will be in pages of devices, and the query writes nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use cleave_host::activity::Act;
use cleave_host::{Database, Session, SnapshotKind};
use cleave_media::SplitMix64;
use datafusion::common::runtime::SpawnedTask;

use crate::devices::attach_nas;
use crate::support::{
    assert_no_leak, batches, fresh, numbered, open, refused, row, rows, run, sorted,
};

const ROWS: i32 = 9000;
/// How a query may be run.
const WAYS: [&str; 8] = [
    "split = host; SET stack = native",
    "split = host; SET stack = blk",
    "split = h0; SET stealing = off",
    "split = h0; SET stealing = always",
    "split = h1; SET stealing = always",
    "split = ndp; SET index_scan = off",
    "split = ndp; SET index_scan = always",
    "split = auto",
];
const QUERIES: [&str; 11] = [
    "SELECT count(*), sum(id), count(DISTINCT note), max(length(note)) FROM t",
    "SELECT id, note FROM t WHERE id % 500 IN (3, 4)",
    "SELECT id FROM t WHERE note LIKE 'new 1%'",
    "SELECT id FROM t WHERE note = 'note 44 '",
    "SELECT t.id, k.kind FROM k JOIN t ON t.id = k.id WHERE k.kind < 3",
    "SELECT k.kind, count(*), min(t.note) FROM t JOIN k ON t.id = k.id GROUP BY k.kind",
    "SELECT id, note FROM t ORDER BY id DESC LIMIT 7",
    "SELECT kind, length(body), right(body, 9) FROM k WHERE body > 'l' AND kind = 2",
    "SELECT count(*) FROM t WHERE NOT EXISTS (SELECT FROM k WHERE k.id = t.id)",
    "SELECT a.id, b.id FROM t AS a JOIN t AS b ON b.id = a.id + 20000 WHERE a.id < 9",
    "SELECT count(*) FROM t AS a CROSS JOIN (SELECT max(id) AS most FROM t) AS m WHERE a.id > m.most - 10",
];

fn count(database: &Database, act: Act) -> u64 {
    database.activity().count(act)
}

async fn tables(session: &mut Session, placement: &str) {
    run(session, &format!("CREATE TABLE t (id int PRIMARY KEY, note text) {placement}")).await;
    run(session, &format!("CREATE TABLE k (id int PRIMARY KEY, kind int, body text) {placement}"))
        .await;
    run(session, "CREATE INDEX t_note ON t (note)").await;
    session.load("t", batches(vec![numbered(0..ROWS)]), None).await.unwrap();
    let kinds = "INSERT INTO k SELECT i * 3, i % 11, 'body' FROM generate_series(0, 2000) AS g (i)";
    run(session, kinds).await;
}

/// Small commits: rows are inserted, ended, replaced, and ended again before any page has them; some with values too
/// long for one.
async fn change(session: &mut Session, random: &mut SplitMix64, step: i32) {
    let mut any = |below: u64| i32::try_from(random.next_u64() % below).unwrap();
    let (old, first) = (any(9000), 20_000 + step * 10);
    for statement in [
        format!("INSERT INTO t VALUES ({first}, 'new {step}'), ({}, 'new 1')", first + 1),
        format!("INSERT INTO k VALUES ({}, 2, repeat('long {step}', 3000))", first + 2),
        format!("UPDATE t SET note = 'new 1 of {step}' WHERE id IN ({old}, {first})"),
        format!("DELETE FROM t WHERE id IN ({}, {})", any(9000), first + 1),
        format!(
            "BEGIN; UPDATE k SET kind = kind + 1 WHERE id < {}; INSERT INTO k VALUES ({first}, 1, NULL); COMMIT",
            any(40)
        ),
        format!("DELETE FROM k WHERE id = {}", any(2000) * 3),
    ] {
        run(session, &statement).await;
    }
}

/// The result of every query in every way of running, and that nothing was flushed for it.
async fn told(database: &Arc<Database>, session: &mut Session, what: &str) -> Vec<Vec<String>> {
    let before = (database.catalog().commit, count(database, Act::Flush));
    let passed = count(database, Act::ShippedDelta);
    let mut told = Vec::new();
    for query in QUERIES {
        let mut expected: Option<Vec<String>> = None;
        for way in WAYS {
            run(session, &format!("SET {way}")).await;
            let found = match session.run(query).await {
                // Not every plan has a cut there.
                Err(error) if error.to_string().contains("cannot run this") => continue,
                _ => sorted(session, query).await,
            };
            let expected = expected.get_or_insert_with(|| found.clone());
            assert_eq!(&found, expected, "{what}, {way}: {query}");
            run(session, "RESET ALL").await;
        }
        told.push(expected.unwrap());
    }
    assert_eq!((database.catalog().commit, count(database, Act::Flush)), before);
    assert!(count(database, Act::ShippedDelta) > passed + 50, "{what}");
    told
}

async fn rows_are_the_same(placement: &str) {
    let outside = tempfile::tempdir().unwrap();
    let (directory, database) = fresh().await;
    let (_served, _) = attach_nas(&database, outside.path()).await;
    let mut session = database.session();
    tables(&mut session, placement).await;
    let mut random = SplitMix64::new(7);
    let mut last = Vec::new();
    for step in 0..3 {
        change(&mut session, &mut random, step).await;
        let passed = told(&database, &mut session, placement).await;
        if step == 1 {
            // A delta on top of pages gives the same.
            database.snapshot(SnapshotKind::Flushed).await.unwrap();
        }
        last = passed;
    }
    run(&mut session, "SET shipped_delta_bytes = 0").await;
    for (query, expected) in QUERIES.iter().zip(&last) {
        assert_eq!(&sorted(&mut session, query).await, expected, "flushed: {query}");
    }
    assert_no_leak(&database);
    drop((session, database));
    let database = open(directory.path()).await;
    let mut session = database.session();
    for (query, expected) in QUERIES.iter().zip(&last) {
        assert_eq!(&sorted(&mut session, query).await, expected, "opened again: {query}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_are_the_same_on_the_embedded_device() {
    rows_are_the_same("").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_are_the_same_on_a_device_elsewhere() {
    rows_are_the_same("WITH (device = 'nas')").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_are_the_same_in_divided_tables() {
    rows_are_the_same("WITH (devices = (embedded, nas), tablets = 3, tablet_by = hash (id))").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_large_becomes_pages_and_explain_tells() {
    let (_directory, database) = fresh().await;
    let mut session = database.session();
    tables(&mut session, "").await;
    database.snapshot(SnapshotKind::Flushed).await.unwrap();
    run(&mut session, "INSERT INTO t VALUES (-1, 'x'), (-2, 'x')").await;
    let flushed = count(&database, Act::Flush);
    let explained = rows(&mut session, "EXPLAIN SELECT count(*) FROM t").await.join("\n");
    assert!(explained.contains("; 2 rows of the delta are shipped"), "{explained}");
    run(&mut session, "PREPARE all_of AS SELECT count(*) FROM t").await;
    let explained = rows(&mut session, "EXPLAIN EXECUTE all_of").await.join("\n");
    assert!(explained.contains("; 2 rows of the delta are shipped"), "{explained}");
    // A look-up needs the index, which does not have them.
    let by_key = rows(&mut session, "EXPLAIN ANALYZE SELECT note FROM t WHERE id = -1").await;
    assert!(by_key.join("\n").contains("rows: 1"), "{by_key:?}");
    run(&mut session, "INSERT INTO t VALUES (-3, 'x')").await;
    let flushed_now = count(&database, Act::Flush);
    assert_eq!(flushed_now, flushed + 1, "that one did");
    run(&mut session, "SET shipped_delta_bytes = '64kB'").await;
    let sum = "SELECT count(*), sum(length(note)) FROM t WHERE id + 0 < 0";
    assert_eq!(row(&mut session, sum).await, "3,3");
    assert_eq!(count(&database, Act::Flush), flushed_now);
    run(&mut session, "INSERT INTO k VALUES (-4, 1, repeat('large', 20000))").await;
    assert_eq!(
        row(&mut session, "SELECT sum(length(body)) FROM k WHERE id + 0 < 0").await,
        "100000"
    );
    assert_eq!(count(&database, Act::Flush), flushed_now + 1);
    let error = refused(&mut session, "SET shipped_delta_bytes = '1GB'").await;
    assert_eq!(error.sqlstate(), "22023", "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn blocks_see_what_they_may() {
    let (_directory, database) = fresh().await;
    let (mut session, mut other) = (database.session(), database.session());
    tables(&mut session, "").await;
    database.snapshot(SnapshotKind::Flushed).await.unwrap();
    let all = "SELECT count(*), sum(id) FROM t WHERE note LIKE 'mine%'";
    let insert = async |session: &mut Session, id: i32| {
        run(session, &format!("INSERT INTO t VALUES ({id}, 'mine {id}')")).await;
    };
    insert(&mut other, 50_001).await;
    for (level, seen) in [
        ("READ COMMITTED", "3,150006"),
        ("REPEATABLE READ", "2,100004"),
        ("SERIALIZABLE", "2,100004"),
    ] {
        run(&mut session, &format!("BEGIN ISOLATION LEVEL {level}")).await;
        assert_eq!(row(&mut session, all).await, "1,50001", "{level}");
        insert(&mut other, 50_002).await;
        insert(&mut session, 50_003).await;
        assert_eq!(row(&mut session, all).await, seen, "{level}");
        run(&mut session, "ROLLBACK").await;
        run(&mut other, "DELETE FROM t WHERE id = 50002").await;
        assert_eq!(row(&mut session, all).await, "1,50001", "{level}");
    }
    // Outside of a block as well.
    run(&mut session, "SET default_transaction_isolation = serializable").await;
    assert_eq!(row(&mut session, all).await, "1,50001");
    run(&mut session, "RESET ALL").await;
    // A cursor continues with what it has, whatever happens to the pages.
    run(&mut session, "BEGIN").await;
    run(&mut session, "DECLARE c CURSOR FOR SELECT id FROM t WHERE note >= 'mine'").await;
    insert(&mut other, 50_004).await;
    run(&mut other, "DELETE FROM t WHERE id <= 50001").await;
    run(&mut other, "VACUUM t; CHECKPOINT").await;
    let left = rows(&mut session, "FETCH ALL c").await;
    assert!(left.contains(&"50001".to_owned()) && left.contains(&"44".to_owned()), "{left:?}");
    assert!(!left.contains(&"50004".to_owned()));
    run(&mut session, "COMMIT").await;
    assert_eq!(row(&mut session, all).await, "1,50004");
    assert_no_leak(&database);
}

/// Sums that hold in every snapshot hold for readers under every cut, beside any commits.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn readers_see_no_half_of_a_commit() {
    let outside = tempfile::tempdir().unwrap();
    let (_directory, database) = fresh().await;
    let (_served, _) = attach_nas(&database, outside.path()).await;
    let mut session = database.session();
    for (name, device) in [("here", "embedded"), ("there", "nas")] {
        run(
            &mut session,
            &format!(
                "CREATE TABLE {name} (id int PRIMARY KEY, n bigint NOT NULL) WITH (device = \
            '{device}')"
            ),
        )
        .await;
        run(
            &mut session,
            &format!("INSERT INTO {name} SELECT i, 100 FROM generate_series(1, 50) AS g (i)"),
        )
        .await;
    }
    let is_over = Arc::new(AtomicBool::new(false));
    let writing = SpawnedTask::spawn({
        let (database, is_over) = (Arc::clone(&database), Arc::clone(&is_over));
        async move {
            let mut session = database.session();
            let mut random = SplitMix64::new(11);
            for step in 0..400 {
                let mut any = |below| random.next_u64() % below;
                let (from, to, id, other) = (any(50) + 1, any(50) + 1, 1000 + step, 999 + step);
                let moved = format!(
                    "BEGIN; UPDATE here SET n = n - 3 WHERE id = {from}; UPDATE there SET n = n + 3 WHERE id = {to}; \
                     INSERT INTO here VALUES ({id}, 5); DELETE FROM here WHERE id = {other}; COMMIT"
                );
                run(&mut session, &moved).await;
            }
            is_over.store(true, SeqCst);
        }
    });
    let sums = "SELECT h.n + t.n, h.rows, t.rows FROM (SELECT sum(n) AS n, count(*) AS rows FROM here) AS h, \
                (SELECT sum(n) AS n, count(*) AS rows FROM there) AS t";
    let joined =
        "SELECT sum(h.n + t.n), count(*), 50 FROM here AS h JOIN there AS t ON h.id = t.id";
    let mut looks = 0;
    while looks < 12 || !is_over.load(SeqCst) && looks < 400 {
        for split in ["host", "h0", "h1"] {
            run(&mut session, &format!("SET split = {split}")).await;
            let seen = row(&mut session, sums).await;
            assert!(["10000,50,50", "10005,51,50"].contains(&&*seen), "{split}: {seen}");
            let seen = row(&mut session, joined).await;
            assert_eq!(seen, "10000,50,50", "{split}");
        }
        looks += 1;
    }
    writing.join().await.unwrap();
    assert!(count(&database, Act::ShippedDelta) > 0);
    assert_no_leak(&database);
}
