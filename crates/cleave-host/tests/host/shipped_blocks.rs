//! Tests of shipped snapshots in transaction blocks and for statements that change rows by a plan: a kept snapshot
//! stays as it was while others commit and flush, a block sees its own changes under every cut, and nothing is flushed
//! for either.

use std::sync::Arc;

use cleave_host::activity::Act;
use cleave_host::{Database, OpenOptions, Outcome, Session, SnapshotKind, TransactionStatus};

use crate::devices::attach_nas;
use crate::support::{
    assert_no_leak, batches, embedded, fresh, numbered, refused, row, rows, run, sorted,
};

const ROWS: i32 = 6000;
/// How a query may be run.
const WAYS: [&str; 5] = [
    "split = host",
    "split = h0; SET stealing = always",
    "split = h1; SET stealing = off",
    "split = ndp; SET index_scan = always",
    "split = auto",
];
const QUERIES: [&str; 6] = [
    "SELECT count(*), sum(id), count(DISTINCT note) FROM t",
    "SELECT id, note FROM t WHERE note LIKE 'new%' AND length(note) > 3",
    "SELECT t.id, k.kind FROM k JOIN t ON t.id = k.id WHERE k.kind < 3",
    "SELECT k.kind, count(*), min(t.note) FROM t JOIN k ON t.id = k.id GROUP BY k.kind",
    "SELECT count(*) FROM t WHERE NOT EXISTS (SELECT FROM k WHERE k.id = t.id)",
    "SELECT kind, length(body) FROM k WHERE kind > 100",
];
/// Queries of a few rows by their keys, without a plan.
const LOOK_UPS: [&str; 4] = [
    "SELECT note FROM t WHERE id = 20001",
    "SELECT note FROM t WHERE id = 30",
    "SELECT id, note FROM t WHERE note = 'new'",
    "SELECT id FROM t WHERE id BETWEEN 19990 AND 20020 ORDER BY id",
];
const LEVELS: [&str; 3] = ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"];

fn count(database: &Database, act: Act) -> u64 {
    database.activity().count(act)
}

async fn flush(database: &Arc<Database>) {
    database.snapshot(SnapshotKind::Flushed).await.unwrap();
}

/// Two tables in pages, and a few rows of each in the delta.
async fn tables(database: &Arc<Database>, session: &mut Session, placement: &str) {
    run(session, &format!("CREATE TABLE t (id int PRIMARY KEY, note text) {placement}")).await;
    run(session, &format!("CREATE TABLE k (id int PRIMARY KEY, kind int, body text) {placement}"))
        .await;
    run(session, "CREATE INDEX t_note ON t (note)").await;
    session.load("t", batches(vec![numbered(0..ROWS)]), None).await.unwrap();
    let kinds = "INSERT INTO k SELECT i * 3, i % 11, 'body' FROM generate_series(0, 1500) AS g (i)";
    run(session, kinds).await;
    flush(database).await;
    for statement in [
        "INSERT INTO t VALUES (20001, 'new'), (20002, 'new 2'), (20003, 'new 3')",
        "INSERT INTO k VALUES (20001, 1, 'x'), (20002, 101, repeat('long', 9000))",
        "DELETE FROM t WHERE id = 20003",
        "UPDATE t SET note = 'new 30' WHERE id = 30",
        "DELETE FROM t WHERE id = 33",
    ] {
        run(session, statement).await;
    }
}

/// The result of every query in every way of running.
async fn told(session: &mut Session, what: &str) -> Vec<Vec<String>> {
    let mut told = Vec::new();
    for query in QUERIES {
        let mut expected: Option<Vec<String>> = None;
        for way in WAYS {
            let is_in_block = session.transaction_status() == TransactionStatus::Open;
            if is_in_block {
                run(session, "SAVEPOINT way").await;
            }
            run(session, &format!("SET {way}")).await;
            let found = session.run(query).await;
            match found {
                // Not every plan has a cut there.
                Err(error) if error.to_string().contains("cannot run this") => {}
                _ => {
                    let found = sorted(session, query).await;
                    let expected = expected.get_or_insert_with(|| found.clone());
                    assert_eq!(&found, expected, "{what}, {way}: {query}");
                }
            }
            match is_in_block {
                true => run(session, "ROLLBACK TO way; RELEASE way").await,
                false => run(session, "RESET split; RESET stealing; RESET index_scan").await,
            };
        }
        told.push(expected.unwrap());
    }
    for query in LOOK_UPS {
        let found = sorted(session, query).await;
        run(session, "SET index_scan = off").await;
        assert_eq!(sorted(session, query).await, found, "{what}, planned: {query}");
        run(session, "RESET index_scan").await;
        told.push(found);
    }
    told
}

/// The same from pages of devices alone.
async fn told_flushed(session: &mut Session) -> Vec<Vec<String>> {
    run(session, "SET shipped_delta_bytes = 0").await;
    let told = told(session, "flushed").await;
    run(session, "RESET shipped_delta_bytes").await;
    told
}

async fn a_kept_snapshot_stays_as_it_was(placement: &str) {
    let outside = tempfile::tempdir().unwrap();
    let (_directory, database) = fresh().await;
    let (_served, _) = attach_nas(&database, outside.path()).await;
    let (mut session, mut other) = (database.session(), database.session());
    tables(&database, &mut session, placement).await;
    for (number, level) in (0..).zip(["REPEATABLE READ", "SERIALIZABLE"]) {
        let flushed = count(&database, Act::Flush);
        run(&mut session, &format!("BEGIN ISOLATION LEVEL {level}")).await;
        let before = told(&mut session, level).await;
        assert_eq!(count(&database, Act::Flush), flushed, "{level}: nothing was flushed");
        // Of the rows that were in the delta some end, and some are replaced; others take their keys.
        let new = 21_000 + number * 10;
        for statement in [
            format!("INSERT INTO t VALUES ({new}, 'new {new}')"),
            "UPDATE t SET note = note || ' again' WHERE id IN (20001, 30, 60)".to_owned(),
            "DELETE FROM k WHERE id = 20002".to_owned(),
            "INSERT INTO k VALUES (20002, 102, 'other')".to_owned(),
        ] {
            run(&mut other, &statement).await;
        }
        assert_eq!(told(&mut session, level).await, before, "{level}: beside the delta");
        flush(&database).await;
        assert_eq!(told(&mut session, level).await, before, "{level}: flushed by others");
        run(&mut other, &format!("INSERT INTO t VALUES ({}, 'new')", new + 1)).await;
        run(&mut other, "VACUUM FULL t; VACUUM FULL k; CHECKPOINT").await;
        assert_eq!(told(&mut session, level).await, before, "{level}: vacuumed");
        assert_eq!(told_flushed(&mut session).await, before, "{level}: on pages of its own");
        run(&mut session, "COMMIT").await;
        assert_ne!(told(&mut session, level).await, before, "{level}: the next transaction");
        run(&mut other, &format!("DELETE FROM t WHERE id = {}", new + 1)).await;
    }
    drop((session, other));
    assert_no_leak(&database);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kept_snapshot_stays_as_it_was_on_the_embedded_device() {
    a_kept_snapshot_stays_as_it_was("").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kept_snapshot_stays_as_it_was_in_divided_tables() {
    let divided = "WITH (devices = (embedded, nas), tablets = 3, tablet_by = hash (id))";
    a_kept_snapshot_stays_as_it_was(divided).await;
}

/// Own inserted, replaced and deleted rows, of those in pages, in the delta and of the block itself.
const FIRST: [&str; 5] = [
    "INSERT INTO t VALUES (20004, 'new 4'), (20005, 'new 5'), (20006, 'new 6')",
    "INSERT INTO k SELECT id, 103, repeat('own', 7000) FROM t WHERE id >= 20004",
    "UPDATE t SET note = 'new from ' || k.kind FROM k WHERE k.id = t.id AND t.id IN (20001, 20004, 90)",
    "DELETE FROM k WHERE id IN (SELECT id FROM t WHERE note LIKE 'new 2%') OR id = 300",
    "DELETE FROM t WHERE id = 20005",
];
const SECOND: [&str; 4] = [
    "UPDATE k SET kind = kind + 1 WHERE kind > 100",
    "DELETE FROM t WHERE note LIKE 'new from%'",
    "INSERT INTO t VALUES (20005, 'new 5 again')",
    "UPDATE t SET note = 'new' WHERE id BETWEEN 40 AND 42",
];

async fn own_changes_are_seen(placement: &str) {
    let outside = tempfile::tempdir().unwrap();
    let (_directory, database) = fresh().await;
    let (_served, _) = attach_nas(&database, outside.path()).await;
    let mut session = database.session();
    tables(&database, &mut session, placement).await;
    let committed = told(&mut session, "committed").await;
    for level in LEVELS {
        let (flushed, own) = (count(&database, Act::Flush), count(&database, Act::ShippedOwn));
        run(&mut session, &format!("BEGIN ISOLATION LEVEL {level}")).await;
        for statement in FIRST {
            run(&mut session, statement).await;
        }
        let first = told(&mut session, level).await;
        assert_ne!(first, committed, "{level}");
        run(&mut session, "SAVEPOINT a").await;
        for statement in SECOND {
            run(&mut session, statement).await;
        }
        let second = told(&mut session, level).await;
        assert_ne!(second, first, "{level}");
        run(&mut session, "ROLLBACK TO a").await;
        assert_eq!(told(&mut session, level).await, first, "{level}: back at the savepoint");
        run(&mut session, "SAVEPOINT b").await;
        for statement in SECOND {
            run(&mut session, statement).await;
        }
        assert_eq!(told(&mut session, level).await, second, "{level}: once more");
        assert_eq!(count(&database, Act::Flush), flushed, "{level}: nothing was flushed");
        assert!(count(&database, Act::ShippedOwn) > own + 6, "{level}");
        assert_eq!(told_flushed(&mut session).await, second, "{level}: on pages of its own");
        run(&mut session, "ROLLBACK TO b").await;
        assert_eq!(told_flushed(&mut session).await, first, "{level}: the same at the savepoint");
        run(&mut session, "ROLLBACK").await;
        assert_eq!(told(&mut session, level).await, committed, "{level}: undone");
        run(&mut session, "INSERT INTO t VALUES (-1, 'x'); DELETE FROM t WHERE id = -1").await;
    }
    // What was seen is what is committed.
    run(&mut session, "BEGIN ISOLATION LEVEL REPEATABLE READ").await;
    for statement in FIRST.iter().chain(&SECOND) {
        run(&mut session, statement).await;
    }
    let own = told(&mut session, "own").await;
    run(&mut session, "COMMIT").await;
    assert_eq!(told(&mut session, "committed").await, own);
    assert_no_leak(&database);
    assert_eq!(told_flushed(&mut session).await, own);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn own_changes_are_seen_on_a_device_elsewhere() {
    own_changes_are_seen("WITH (device = 'nas')").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn own_changes_are_seen_in_divided_tables() {
    own_changes_are_seen("WITH (devices = (embedded, nas), tablets = 3, tablet_by = hash (id))")
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn statements_that_change_rows_by_a_plan_flush_nothing() {
    let (_directory, database) = fresh().await;
    let mut session = database.session();
    tables(&database, &mut session, "").await;
    let (flushed, plans) = (count(&database, Act::Flush), count(&database, Act::Plan));
    for (statement, changed) in [
        (
            "UPDATE t SET note = note || '!' FROM k WHERE k.id = t.id AND k.kind = 1 AND t.id > 20000",
            "UPDATE 1",
        ),
        ("UPDATE t SET note = note || '?' WHERE note LIKE 'new%' AND id % 2 = 0", "UPDATE 2"),
        ("INSERT INTO t SELECT id + 10000, note FROM t WHERE note LIKE 'new%'", "INSERT 0 3"),
        (
            "DELETE FROM t WHERE EXISTS (SELECT FROM k WHERE k.id = t.id AND k.kind > 100)",
            "DELETE 1",
        ),
        (
            "WITH gone AS (DELETE FROM t WHERE note LIKE 'new%' AND id < 20000 RETURNING *) \
             INSERT INTO t SELECT id + 40000, note FROM gone",
            "INSERT 0 2",
        ),
    ] {
        let outcomes = run(&mut session, statement).await;
        let [Outcome::Done { tag }] = outcomes.as_slice() else {
            panic!("{statement}: {outcomes:?}")
        };
        assert_eq!(tag, changed, "{statement}");
    }
    let left = "SELECT id, note FROM t WHERE note LIKE 'new%'";
    let expected = ["20001,new!", "30001,new!", "30002,new 2?", "40030,new 30?", "50030,new 30?"];
    assert_eq!(sorted(&mut session, left).await, expected);
    assert_eq!(count(&database, Act::Flush), flushed, "nothing was flushed");
    assert!(count(&database, Act::Plan) >= plans + 4);
    flush(&database).await;
    assert_eq!(sorted(&mut session, left).await, expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_updater_wins_over_rows_of_the_delta() {
    let (_directory, database) = fresh().await;
    let (mut session, mut other) = (database.session(), database.session());
    tables(&database, &mut session, "").await;
    let by_plan = "UPDATE t SET note = 'mine' WHERE note LIKE 'new%' AND length(note) = 3";
    let by_key = "UPDATE t SET note = 'mine' WHERE id = 20001";
    for (level, flushes) in [
        ("REPEATABLE READ", false),
        ("REPEATABLE READ", true),
        ("SERIALIZABLE", false),
        ("SERIALIZABLE", true),
    ] {
        for own in [by_plan, by_key, "DELETE FROM t WHERE id + 0 = 20001"] {
            for change in ["UPDATE t SET note = 'new'", "DELETE FROM t"] {
                run(&mut session, &format!("BEGIN ISOLATION LEVEL {level}")).await;
                let seen = "SELECT count(*) FROM t WHERE note LIKE 'new'";
                assert_eq!(row(&mut session, seen).await, "1", "{level}");
                run(&mut other, &format!("{change} WHERE id = 20001")).await;
                if flushes {
                    flush(&database).await;
                }
                assert_eq!(row(&mut session, seen).await, "1", "{level}");
                let error = refused(&mut session, own).await;
                assert_eq!(error.sqlstate(), "40001", "{level}, {flushes}, {own}: {error}");
                run(&mut session, "ROLLBACK").await;
                run(
                    &mut other,
                    "INSERT INTO t VALUES (20001, 'new') ON CONFLICT (id) DO UPDATE SET note = 'new'",
                )
                .await;
            }
            // Nobody else changes it: the row of the snapshot's delta is in pages by the time of the change.
            run(&mut session, &format!("BEGIN ISOLATION LEVEL {level}")).await;
            let locked = "SELECT id FROM t WHERE note = 'new' AND id + 0 = 20001 FOR UPDATE";
            assert_eq!(row(&mut session, locked).await, "20001");
            if flushes {
                flush(&database).await;
            }
            run(&mut session, own).await;
            run(&mut session, "COMMIT").await;
            assert_eq!(row(&mut session, "SELECT count(*) FROM t WHERE note = 'new'").await, "0");
            run(
                &mut other,
                "INSERT INTO t VALUES (20001, 'new') ON CONFLICT (id) DO UPDATE SET note = 'new'",
            )
            .await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn write_skew_over_rows_of_the_delta_is_found() {
    let (_directory, database) = fresh().await;
    let (mut one, mut two) = (database.session(), database.session());
    run(&mut one, "CREATE TABLE duty (id int PRIMARY KEY, here bool)").await;
    let flushed = count(&database, Act::Flush);
    for flushes in [false, true] {
        run(&mut one, "DELETE FROM duty").await;
        run(&mut one, "INSERT INTO duty VALUES (1, true), (2, true)").await;
        for session in [&mut one, &mut two] {
            run(session, "BEGIN ISOLATION LEVEL SERIALIZABLE").await;
            assert_eq!(row(session, "SELECT count(*) FROM duty WHERE here").await, "2");
        }
        if flushes {
            flush(&database).await;
        }
        run(&mut one, "UPDATE duty SET here = false WHERE id + 0 = 1").await;
        run(&mut one, "COMMIT").await;
        let left = async |session: &mut Session| {
            session.run("UPDATE duty SET here = false WHERE id + 0 = 2").await?;
            session.run("COMMIT").await
        };
        let error = left(&mut two).await.unwrap_err();
        assert_eq!(error.sqlstate(), "40001", "{error}");
        run(&mut two, "ROLLBACK").await;
        assert_eq!(row(&mut one, "SELECT count(*) FROM duty WHERE here").await, "1");
        if !flushes {
            assert_eq!(count(&database, Act::Flush), flushed, "nothing was flushed");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn definitions_and_references_build_on_a_kept_delta() {
    let (_directory, database) = fresh().await;
    let (mut session, mut other) = (database.session(), database.session());
    tables(&database, &mut session, "").await;
    run(&mut session, "CREATE TABLE c (id int PRIMARY KEY, t int REFERENCES t ON DELETE CASCADE)")
        .await;
    run(&mut session, "INSERT INTO t VALUES (20010, 'new 10'); INSERT INTO c VALUES (1, 20010)")
        .await;
    for level in ["REPEATABLE READ", "SERIALIZABLE"] {
        run(&mut session, &format!("BEGIN ISOLATION LEVEL {level}")).await;
        assert_eq!(row(&mut session, "SELECT count(*) FROM c").await, "1");
        run(&mut other, "INSERT INTO t VALUES (20020, 'new 20')").await;
        // Its row is in the delta of the snapshot.
        run(&mut session, "INSERT INTO c VALUES (2, 20010)").await;
        assert_eq!(
            row(&mut session, "SELECT count(*) FROM c JOIN t ON t.id = c.t").await,
            "2",
            "{level}"
        );
        if level == "SERIALIZABLE" {
            let error = refused(&mut session, "INSERT INTO c VALUES (3, 20020)").await;
            assert_eq!(error.sqlstate(), "40001", "{error}");
            run(&mut session, "ROLLBACK").await;
            run(&mut session, &format!("BEGIN ISOLATION LEVEL {level}")).await;
        }
        run(&mut session, "DELETE FROM t WHERE id = 20010").await;
        assert_eq!(row(&mut session, "SELECT count(*) FROM c").await, "0", "{level}");
        run(&mut session, "ROLLBACK").await;
        run(&mut other, "DELETE FROM t WHERE id = 20020").await;
        // From its definition on, the table has the rows of the delta in its own pages.
        run(&mut session, &format!("BEGIN ISOLATION LEVEL {level}")).await;
        let all = told(&mut session, level).await;
        run(&mut session, "ALTER TABLE t ADD COLUMN more int DEFAULT 7").await;
        assert_eq!(told(&mut session, level).await, all, "{level}");
        assert_eq!(row(&mut session, "SELECT more FROM t WHERE id = 20001").await, "7");
        run(&mut session, "UPDATE t SET more = 8 WHERE id = 20001").await;
        assert_eq!(row(&mut session, "SELECT sum(more - 7) FROM t").await, "1");
        assert_eq!(row(&mut session, "SELECT more FROM t WHERE note = 'new'").await, "8");
        run(&mut session, "ROLLBACK").await;
    }
    drop((session, other));
    assert_no_leak(&database);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_own_changes_go_to_pages_over_a_kept_delta() {
    let directory = tempfile::tempdir().unwrap();
    let options = OpenOptions::new(embedded()).create(true).query_memory_bytes(16 << 20);
    let database = Database::open(directory.path(), options).await.unwrap();
    let (mut session, mut other) = (database.session(), database.session());
    tables(&database, &mut session, "").await;
    let seen = "SELECT count(*), count(DISTINCT note), sum(length(note)) FROM t WHERE id >= 20000";
    run(&mut session, "SET shipped_delta_bytes = '256kB'").await;
    for level in LEVELS {
        run(&mut session, &format!("BEGIN ISOLATION LEVEL {level}")).await;
        assert_eq!(row(&mut session, seen).await, "2,2,8", "{level}");
        let many = "INSERT INTO t SELECT 50000 + i, repeat('large', 100) || i FROM generate_series(0, 999) AS g (i)";
        run(&mut session, many).await;
        assert_eq!(row(&mut session, seen).await, "1002,1002,502898", "{level}");
        let both = "SELECT count(*) FROM t JOIN k ON k.id = t.id WHERE t.id >= 20000";
        assert_eq!(row(&mut session, both).await, "2", "{level}");
        run(&mut session, "UPDATE t SET note = 'small' WHERE id BETWEEN 50000 AND 50002").await;
        assert_eq!(row(&mut session, seen).await, "1002,1000,501410", "{level}");
        run(&mut session, "ROLLBACK").await;
        // An UPDATE of more rows than fit into memory is written to pages as it is read: the table that it has read
        // with rows of the delta is the one that is flushed then.
        run(&mut session, &format!("BEGIN ISOLATION LEVEL {level}")).await;
        assert_eq!(row(&mut session, seen).await, "2,2,8", "{level}");
        run(&mut session, "UPDATE t SET note = repeat('large', 500) || id").await;
        let all = "SELECT count(*), sum(id), min(length(note)) FROM t";
        assert_eq!(row(&mut session, all).await, "6001,18036970,2501", "{level}");
        run(&mut session, "ROLLBACK").await;
        run(&mut other, "UPDATE t SET note = 'new' WHERE id = 20001").await;
    }
    drop((session, other));
    assert_no_leak(&database);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn delta_and_own_changes_share_one_limit() {
    let (_directory, database) = fresh().await;
    let (mut session, mut other) = (database.session(), database.session());
    tables(&database, &mut session, "").await;
    // A plan that statements share would read the table's rows besides.
    run(&mut session, "SET shipped_delta_bytes = '128kB'; SET look_up_rows = 0").await;
    let shipped = || (count(&database, Act::ShippedDelta), count(&database, Act::ShippedOwn));
    let sum = "SELECT count(*), sum(length(body)) FROM k WHERE id + 0 > 20000";
    for level in ["REPEATABLE READ", "SERIALIZABLE", "READ COMMITTED"] {
        let flushed = count(&database, Act::Flush);
        run(&mut session, &format!("BEGIN ISOLATION LEVEL {level}")).await;
        let before = shipped();
        assert_eq!(row(&mut session, sum).await, "2,36001", "{level}");
        assert_eq!(shipped(), (before.0 + 1, before.1), "{level}: the delta");
        run(&mut session, "INSERT INTO k SELECT 30000, 1, repeat('own', 36000)").await;
        let before = shipped();
        assert_eq!(row(&mut session, sum).await, "3,144001", "{level}");
        assert_eq!(shipped(), (before.0, before.1 + 1), "{level}: own changes, beside pages");
        run(&mut session, "ROLLBACK").await;
        let is_own = u64::from(level == "READ COMMITTED");
        assert_eq!(count(&database, Act::Flush), flushed + is_own, "{level}");
        run(&mut other, "UPDATE k SET kind = kind WHERE id = 20002").await;
    }
    drop((session, other));
    assert_no_leak(&database);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_of_a_snapshot_are_locked_by_plans() {
    let (_directory, database) = fresh().await;
    let (mut session, mut other) = (database.session(), database.session());
    tables(&database, &mut session, "").await;
    let (flushed, planned) = (count(&database, Act::Flush), count(&database, Act::Plan));
    for level in LEVELS {
        run(&mut session, &format!("BEGIN ISOLATION LEVEL {level}")).await;
        run(&mut session, "INSERT INTO t VALUES (20009, 'new 9')").await;
        let locked =
            "SELECT t.id, k.kind FROM t JOIN k ON k.id = t.id WHERE t.id >= 20000 FOR UPDATE OF t";
        assert_eq!(sorted(&mut session, locked).await, ["20001,1", "20002,101"], "{level}");
        let own = "SELECT id FROM t WHERE length(note) = 5 AND left(note, 3) = 'new' FOR UPDATE";
        assert_eq!(sorted(&mut session, own).await, ["20002", "20009"], "{level}");
        let free = "SELECT id FROM t WHERE left(note, 3) = 'new' FOR UPDATE SKIP LOCKED";
        assert_eq!(rows(&mut other, free).await, ["30"], "{level}");
        run(&mut session, "ROLLBACK").await;
    }
    assert_eq!(count(&database, Act::Flush), flushed, "nothing was flushed");
    assert!(count(&database, Act::Plan) >= planned + 9);
}

/// A key whose row others have deleted since the snapshot is free: a plan shows the old row and the own one, as
/// PostgreSQL does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_that_is_free_again_is_seen_twice() {
    let (_directory, database) = fresh().await;
    let (mut session, mut other) = (database.session(), database.session());
    tables(&database, &mut session, "").await;
    run(&mut session, "BEGIN ISOLATION LEVEL REPEATABLE READ").await;
    assert_eq!(row(&mut session, "SELECT note FROM t WHERE id = 20002").await, "new 2");
    run(&mut other, "DELETE FROM t WHERE id = 20002").await;
    run(&mut session, "INSERT INTO t VALUES (20002, 'own')").await;
    let both = "SELECT note FROM t WHERE id + 0 = 20002";
    assert_eq!(sorted(&mut session, both).await, ["new 2", "own"]);
    run(&mut session, "COMMIT").await;
    assert_eq!(sorted(&mut session, both).await, ["own"]);
}

/// A look-up that EXPLAIN ANALYZE measures reads indexes: of the block's own pages, where some rows were in the delta.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn look_ups_are_explained_over_a_kept_delta() {
    let (_directory, database) = fresh().await;
    let (mut session, mut other) = (database.session(), database.session());
    tables(&database, &mut session, "").await;
    let flushed = count(&database, Act::Flush);
    run(&mut session, "BEGIN ISOLATION LEVEL REPEATABLE READ").await;
    run(&mut session, "INSERT INTO t VALUES (20009, 'new 9')").await;
    run(&mut other, "UPDATE t SET note = 'other' WHERE id >= 20000").await;
    let changing = "EXPLAIN UPDATE t SET note = 'x' FROM k WHERE k.id = t.id";
    let explained = rows(&mut session, changing).await.join("\n");
    assert!(explained.contains("rows of the delta are shipped"), "{explained}");
    for (query, found) in [
        ("SELECT note FROM t WHERE id = 20001", 1),
        ("SELECT note FROM t WHERE id = 20009", 1),
        ("SELECT id FROM t WHERE id BETWEEN 20000 AND 20020", 3),
        ("SELECT id FROM t WHERE note = 'other'", 0),
    ] {
        let explained = rows(&mut session, &format!("EXPLAIN ANALYZE {query}")).await.join("\n");
        assert!(explained.contains(&format!("rows: {found}")), "{query}: {explained}");
    }
    assert_eq!(count(&database, Act::Flush), flushed, "others' delta stays");
    assert_eq!(sorted(&mut session, LOOK_UPS[3]).await, ["20001", "20002", "20009"]);
    run(&mut session, "COMMIT").await;
    drop((session, other));
    assert_no_leak(&database);
}
