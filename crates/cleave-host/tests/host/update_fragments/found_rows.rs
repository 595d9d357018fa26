//! Rows that the host finds and fragments change (`update_placement = keys`): the rows of the same statements run row
//! by row, on embedded and remote devices, at every isolation level, beside writers, and within bounds.

use std::sync::Arc;

use cleave_host::{Database, Session};

use super::beside_writers::{every_wait, table};
use super::{ASSIGNMENTS, CHANGES, fragments, returning, two_tables};
use crate::devices::attach_nas;
use crate::support::{
    assert_no_leak, assert_no_leak_soon, beside, checks_out, fresh, open, refused, row, rows, run,
    waits,
};
use crate::twin_tables::{on_both_as, same_rows};

/// Statements that a fragment runs because the host finds the rows or makes the values: with functions, types and
/// tables that no device has.
const BY_THE_HOST: [&str; 8] = [
    "UPDATE @ SET note = day",
    "UPDATE @ SET note = 'at ' || to_char(at, 'DD Mon'), size = id WHERE id % 3 = 0",
    "UPDATE @ SET price = r.n FROM (SELECT id, row_number() OVER (ORDER BY id) AS n FROM @) r \
     WHERE r.id = @.id AND r.n % 2 = 0",
    "UPDATE @ SET size = (SELECT max(factor) FROM other WHERE other.kind <= @.kind)",
    // Some values of the host, some of the device; a default and a literal.
    "UPDATE @ SET price = o.factor, small = small + 1, size = DEFAULT, code = 'lit' \
     FROM other o WHERE o.kind = @.kind AND random() >= 0",
    "UPDATE @ SET flag = o.factor > 20, note = o.kind || ' of ' || id FROM other o \
     WHERE o.kind = @.kind RETURNING id, note, o.*",
    // A row that matches several times counts once.
    "UPDATE @ SET small = 9 FROM other o WHERE o.kind / 30 = @.kind RETURNING id, small",
    "DELETE FROM @ WHERE id % 19 = 2 AND random() >= 0 RETURNING id",
];

/// Runs all statements on both tables; `runs` of them at least by fragments.
async fn every_change(database: &Arc<Database>, session: &mut Session, runs: usize) {
    two_tables(session, 12_000).await;
    for sql in BY_THE_HOST {
        let used = on_both_as("keys", database, session, (sql, "*")).await;
        assert!(used, "{sql}");
    }
    let (mut used, mut others) = (0, Vec::new());
    for (sql, _) in CHANGES.into_iter().chain(ASSIGNMENTS).chain(returning::RETURNED) {
        match on_both_as("keys", database, session, (sql, "*")).await {
            true => used += 1,
            false => others.push(sql),
        }
    }
    assert!(used >= runs, "{used} of {runs}, and not {others:#?}");
    assert_no_leak(database);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn found_rows_change_as_statements_change_them() {
    let (directory, database) = fresh().await;
    let mut session = database.session();
    every_change(&database, &mut session, 45).await;
    drop((session, database));
    checks_out(directory.path()).await;
    let database = open(directory.path()).await;
    same_rows(&mut database.session(), ("after a restart", "*")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn found_rows_change_on_a_remote_device() {
    let outside = tempfile::tempdir().unwrap();
    let (_directory, database) = fresh().await;
    let (_served, _) = attach_nas(&database, outside.path()).await;
    let mut session = database.session();
    run(&mut session, "SET default_device = 'nas'").await;
    every_change(&database, &mut session, 45).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn found_rows_change_where_no_fragment_is_sent_and_under_each_lock() {
    let (_directory, database) = fresh().await;
    let mut session = database.session();
    two_tables(&mut session, 12_000).await;
    for setting in ["update_locking = optimistic", "update_locking = table", "ndp = off"] {
        run(&mut session, &format!("SET {setting}")).await;
        for sql in BY_THE_HOST {
            let used = on_both_as("keys", &database, &mut session, (sql, "*")).await;
            assert!(used, "{setting}: {sql}");
        }
    }
    assert_no_leak(&database);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn found_rows_of_tablets_on_several_devices_change_in_one_commit() {
    let outside = tempfile::tempdir().unwrap();
    let (_directory, database) = fresh().await;
    let (_served, _) = attach_nas(&database, outside.path()).await;
    let mut session = database.session();
    run(&mut session, "SET default_tablets = 4").await;
    two_tables(&mut session, 12_000).await;
    for sql in [
        "UPDATE @ SET price = price * 2 WHERE id % 3 = 1",
        "UPDATE @ SET price = o.factor, size = size + 1 FROM other o WHERE o.kind = @.kind",
        "DELETE FROM @ USING other o WHERE o.kind = @.kind AND o.factor % 8 = 0",
        "UPDATE @ SET note = 'x', long = NULL",
    ] {
        assert!(on_both_as("keys", &database, &mut session, (sql, "*")).await, "{sql}");
    }
    assert_no_leak(&database);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writers_of_other_rows_go_on_beside_found_rows() {
    let (_directory, database) = fresh().await;
    table(&mut database.session(), "").await;
    every_wait("keys", &database).await;
    assert_no_leak_soon(&database).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_found_row_that_others_change_meanwhile_counts_as_it_is_then() {
    for (locking, other, then, sum) in [
        // The host replaces a row: the rest is changed row by row.
        ("shared", "SET update_placement = host; UPDATE a SET n = 7 WHERE id = 11", "8", "20007"),
        // It does not match any more.
        ("shared", "SET update_placement = host; UPDATE a SET n = 70 WHERE id = 11", "70", "20069"),
        // A fragment changes it in place, and the statement finds its rows again.
        ("shared", "UPDATE a SET n = 7 WHERE id = 11", "8", "20007"),
        ("table", "UPDATE a SET n = 7 WHERE id = 11", "8", "20007"),
        ("optimistic", "UPDATE a SET n = 7 WHERE id = 11", "8", "20007"),
    ] {
        let (_directory, database) = fresh().await;
        table(&mut database.session(), "").await;
        let (mut one, mut two) = (database.session(), database.session());
        run(&mut two, &format!("SET update_placement = device; BEGIN; {other}")).await;
        run(&mut one, &format!("SET update_placement = keys; SET update_locking = {locking}"))
            .await;
        let mut task = beside(one, "UPDATE a SET n = n + 1 WHERE n < 50");
        assert!(waits(&mut task).await, "{locking}: {other}");
        run(&mut two, "COMMIT").await;
        let (mut one, end) = task.await.unwrap();
        assert_eq!(end, "done", "{locking}: {other}");
        assert_eq!(row(&mut one, "SELECT n FROM a WHERE id = 11").await, then, "{other}");
        assert_eq!(row(&mut one, "SELECT sum(n) FROM a").await, sum, "{locking}: {other}");
        assert!(fragments(&database).await > 0, "{locking}: {other}");
        assert_no_leak_soon(&database).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn found_rows_belong_to_the_snapshot_of_their_block() {
    let (_directory, database) = fresh().await;
    table(&mut database.session(), "").await;
    let (mut one, mut two) = (database.session(), database.session());
    run(&mut one, "SET update_placement = keys").await;
    for level in ["REPEATABLE READ", "SERIALIZABLE"] {
        run(&mut one, &format!("BEGIN ISOLATION LEVEL {level}; SELECT count(*) FROM a")).await;
        run(&mut two, "UPDATE a SET note = 'two' WHERE id = 15").await;
        let lost = refused(&mut one, "UPDATE a SET n = n + 1 WHERE kind = 5").await;
        assert_eq!(lost.sqlstate(), "40001", "{level}");
        run(&mut one, &format!("ROLLBACK; BEGIN ISOLATION LEVEL {level}")).await;
        run(&mut one, "UPDATE a SET n = n + 1 WHERE kind = 4; SAVEPOINT s").await;
        run(&mut one, "UPDATE a SET n = n + 1 WHERE n > 0 AND kind < 9").await;
        assert_eq!(row(&mut one, "SELECT max(n) - min(n) FROM a WHERE kind = 4").await, "0");
        let own = row(&mut one, "SELECT sum(n) FROM a").await;
        run(&mut one, "ROLLBACK TO s").await;
        assert_ne!(row(&mut one, "SELECT sum(n) FROM a").await, own, "{level}");
        run(&mut one, "COMMIT").await;
    }
    assert_eq!(row(&mut two, "SELECT sum(n), count(n) FROM a").await, "4000,20000");
    assert_eq!(fragments(&database).await, 6);
    assert_no_leak_soon(&database).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_rows_than_may_be_sent_are_changed_row_by_row() {
    let (_directory, database) = fresh().await;
    let mut session = database.session();
    table(&mut session, "").await;
    run(&mut session, "SET update_placement = keys; SET broadcast_bytes = '16kB'").await;
    // VIDs of 2000 rows, eight bytes each, are just below; with a value each they are too many.
    for (sql, count) in [
        ("UPDATE a SET n = n + 1 WHERE kind = 3", 1),
        ("UPDATE a SET n = n + 1 WHERE kind < 3", 1),
        ("UPDATE a SET n = v FROM generate_series(1, 2000) AS s(v) WHERE v = id / 10", 1),
        ("DELETE FROM a WHERE kind > 3", 1),
        ("DELETE FROM a WHERE kind = 1", 2),
        ("SET broadcast_bytes = 0; DELETE FROM a WHERE kind = 2", 2),
        ("RESET broadcast_bytes; UPDATE a SET note = id::text", 3),
    ] {
        run(&mut session, sql).await;
        assert_eq!(fragments(&database).await, count, "{sql}");
    }
    let left = "SELECT count(*), sum(CASE WHEN note = id::text THEN 0 ELSE 1 END) FROM a";
    assert_eq!(row(&mut session, left).await, "4000,0");
    assert_no_leak(&database);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn explain_lists_the_three_ways_with_their_costs() {
    let (_directory, database) = fresh().await;
    let mut session = database.session();
    table(&mut session, "").await;
    run(&mut session, "ANALYZE a").await;
    let sql = "UPDATE a SET n = n + 1 WHERE kind < 9";
    for (placement, chosen) in [
        ("host", "host, by rows"),
        ("keys", "host finds, device by pages"),
        ("device", "device, by pages"),
        ("auto", "device, by pages"),
    ] {
        run(&mut session, &format!("SET update_placement = {placement}")).await;
        let lines = rows(&mut session, &format!("EXPLAIN VERBOSE {sql}")).await;
        let text = lines.join("\n");
        for way in ["host, by rows", "host finds, device by pages", "device, by pages"] {
            let line = lines.iter().find(|line| line.contains(way));
            let line = line.unwrap_or_else(|| panic!("{placement}: {text}"));
            assert!(line.contains(" ms"), "{text}");
            assert_eq!(line.contains("chosen"), way == chosen, "{placement}: {text}");
        }
        assert_eq!(text.contains("ChangePagesExec"), placement != "host", "{text}");
        assert!(!text.contains("HashJoinExec"), "VIDs alone: {text}");
    }
    // Values of the host go with them.
    run(&mut session, "SET update_placement = keys").await;
    let values = "EXPLAIN VERBOSE UPDATE a SET n = o.n FROM a AS o WHERE o.id = a.id - 1";
    let text = rows(&mut session, values).await.join("\n");
    assert!(text.contains("HashJoinExec") && text.contains("BroadcastExec"), "{text}");
    let text = rows(&mut session, &format!("EXPLAIN ANALYZE VERBOSE {sql}")).await.join("\n");
    assert!(text.contains("host finds, device by pages"), "{text}");
    assert_eq!(row(&mut session, "SELECT sum(n) FROM a").await, "18000");
    // No device writes a date as text, and the host alone is expected to be slower.
    run(&mut session, "SET update_placement = auto").await;
    let before = fragments(&database).await;
    run(&mut session, "UPDATE a SET note = DATE '2024-01-01' + kind").await;
    assert_eq!(fragments(&database).await, before + 1);
    let written = "SELECT count(*), sum(n) FROM a WHERE note LIKE '2024-01-0%'";
    assert_eq!(row(&mut session, written).await, "18000,18000");
    assert_no_leak(&database);
}
