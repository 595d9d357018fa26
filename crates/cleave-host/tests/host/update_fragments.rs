//! Tests of update fragments: pages change where they lie, with the rows of the same statements run row by row, in
//! transactions, beside readers and writers, and across restarts.

use std::path::Path;
use std::sync::Arc;

use cleave_host::activity::Act;
use cleave_host::{Database, Session};

use crate::devices::attach_nas;
use crate::support::{
    assert_no_leak, assert_no_leak_soon, checks_out, fragments, fresh, open, refused, row, rows,
    run,
};

use crate::twin_tables::{on_both, same_rows};

mod beside_writers;
mod extended_logging;
mod found_rows;
mod in_blocks;
mod locking;
mod logged;
mod lost_waits;
mod parts_of_with;
mod replacing;
mod returning;
mod side_by_side;

/// Tables with equal rows: `a` is changed by fragments, `b` row by row.
async fn two_tables(session: &mut Session, row_count: u32) {
    for table in ["a", "b"] {
        run(
            session,
            &format!(
                "CREATE TABLE {table} (id int PRIMARY KEY, kind int, small smallint, price numeric(12,2), \
                 note varchar(40), long text, flag boolean NOT NULL, code char(5), ratio real, \
                 day date, at timestamp, size bigint DEFAULT 3)"
            ),
        )
        .await;
        run(session, &format!("CREATE INDEX {table}_kind ON {table} (kind)")).await;
        let row = "v, v % 100, v % 30000, v * 0.37, 'note ' || v % 1000, repeat('y', v % 50), v % 3 = 0, \
             'c' || v % 90, v / 7.0, DATE '2024-01-01' + v % 900, \
             TIMESTAMP '2024-01-01' + v * INTERVAL '1 minute', v";
        run(
            session,
            &format!(
                "INSERT INTO {table} SELECT {row} FROM generate_series(1, {row_count}) AS s(v)"
            ),
        )
        .await;
        // Rows of hot pages, and NULLs.
        for first in [row_count + 1, row_count + 301] {
            let numbers = format!("FROM generate_series({first}, {}) AS s(v)", first + 299);
            run(
                session,
                &format!(
                    "INSERT INTO {table} SELECT v, v, NULL, NULL, NULL, 'hot', true {numbers}"
                ),
            )
            .await;
        }
        run(session, &format!("DELETE FROM {table} WHERE id % 11 = 5 AND id < 2000")).await;
    }
    run(session, "CREATE TABLE other (kind int PRIMARY KEY, factor int)").await;
    run(session, "INSERT INTO other SELECT v, v * 2 FROM generate_series(0, 40) AS s(v)").await;
}

/// Statements, and whether a fragment runs them.
const CHANGES: [(&str, bool); 26] = [
    ("UPDATE @ SET price = price * 2", true),
    ("UPDATE @ SET price = price + 1, note = 'new ' || id % 10 WHERE id % 10 = 3", true),
    ("UPDATE @ SET flag = NOT flag, long = long || 'z' WHERE kind BETWEEN 10 AND 30", true),
    ("UPDATE @ SET small = NULL WHERE id % 2 = 0", true),
    ("UPDATE @ SET small = id % 100 WHERE small IS NULL", true),
    ("UPDATE @ SET price = 17 WHERE id = 40", false),
    ("UPDATE @ SET price = o.factor FROM other o WHERE o.kind = @.kind", true),
    (
        "UPDATE @ SET price = price - 1 WHERE kind IN (SELECT kind FROM other WHERE factor > 20)",
        true,
    ),
    ("UPDATE @ SET note = 'none' WHERE id % 7 = 8", true),
    ("DELETE FROM @ WHERE id % 7 = 2", true),
    ("UPDATE @ SET price = price / 3 WHERE id % 7 <> 2", true),
    // All live rows of pages that have dead ones; then the last page is written anew with one row more.
    ("UPDATE @ SET flag = false", true),
    ("INSERT INTO @ VALUES (-7, 7, 7, 7, 'late', 'late', true)", false),
    ("ALTER TABLE @ ADD COLUMN late int DEFAULT 5", false),
    ("UPDATE @ SET late = late + 1 WHERE id % 4 = 0", true),
    ("UPDATE @ SET late = 1, price = NULL", true),
    ("DELETE FROM @ USING other o WHERE o.kind = @.kind AND o.factor % 8 = 0", true),
    ("UPDATE @ SET note = repeat('w', 41) WHERE id = 17", false),
    ("UPDATE @ SET flag = NULL WHERE id = 17", false),
    ("UPDATE @ SET price = 1 / (id - 17)", false),
    ("UPDATE @ SET kind = kind + 1 WHERE id % 3 = 0", true),
    ("UPDATE @ SET small = CASE WHEN id = 6002 THEN 60000 ELSE 1 END WHERE id > 5", false),
    ("UPDATE @ SET long = repeat('l', 100000) WHERE id = 50", false),
    ("CHECKPOINT", false),
    // A page with long values of the column has no version: its rows are replaced.
    ("UPDATE @ SET long = 'short again' WHERE id % 50 = 0", true),
    ("UPDATE @ SET price = 5 WHERE id % 3 = 0", true),
];

/// Statements whose values become those of their columns by an assignment, and whether a fragment makes them.
const ASSIGNMENTS: [(&str, bool); 28] = [
    ("UPDATE @ SET code = 'ab  ' WHERE id % 5 = 0", true),
    ("UPDATE @ SET code = 'x' || id % 1000 || '      ' WHERE id % 5 = 1", true),
    // Five characters in more bytes.
    ("UPDATE @ SET code = 'äöüß' || id % 10 WHERE id % 5 = 2", true),
    ("UPDATE @ SET code = NULL WHERE id % 5 = 3", true),
    ("UPDATE @ SET code = 'abcdef' WHERE id = 17", false),
    ("UPDATE @ SET code = 'x' || kind * 0 || '23456' WHERE id % 2 = 0", false),
    ("UPDATE @ SET code = note WHERE note = 'none such'", true),
    ("UPDATE @ SET note = repeat('ü', 40) || '   '", true),
    ("UPDATE @ SET note = repeat('ü', 40) || ' x'", false),
    ("UPDATE @ SET note = code", true),
    ("UPDATE @ SET note = id WHERE id % 2 = 0", true),
    ("UPDATE @ SET note = flag WHERE id % 4 = 0", true),
    // The host alone knows the text.
    ("UPDATE @ SET note = day", false),
    ("UPDATE @ SET ratio = price, price = ratio * 3", true),
    ("UPDATE @ SET size = ratio", true),
    ("UPDATE @ SET small = ratio / 1000 + 0.5, size = price", true),
    ("UPDATE @ SET small = ratio * 0 + 40000", false),
    ("UPDATE @ SET ratio = size / 3.0, small = 2.5", true),
    ("UPDATE @ SET ratio = 1e300 WHERE id = 17", false),
    ("UPDATE @ SET day = at, at = day", true),
    ("UPDATE @ SET day = '2020-02-29', at = '2020-02-29 12:30', price = '17.125'", true),
    ("UPDATE @ SET day = 'infinity' WHERE id % 2 = 0", true),
    ("UPDATE @ SET at = day", true),
    ("UPDATE @ SET day = 'no day'", false),
    ("UPDATE @ SET size = DEFAULT, code = DEFAULT WHERE id % 2 = 1", true),
    ("UPDATE @ SET flag = DEFAULT", false),
    ("UPDATE @ SET flag = 'yes', small = '7'", true),
    ("UPDATE @ SET price = small", true),
];

async fn every_change(database: &Arc<Database>, session: &mut Session) {
    two_tables(session, 12_000).await;
    for (sql, by_fragment) in CHANGES.into_iter().chain(ASSIGNMENTS).chain(returning::RETURNED) {
        on_both(database, session, (sql, "*"), by_fragment).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fragments_change_the_rows_that_statements_change() {
    let (directory, database) = fresh().await;
    let mut session = database.session();
    every_change(&database, &mut session).await;
    assert_no_leak(&database);
    // They are on media, and every page and block is accounted for.
    drop((session, database));
    checks_out(directory.path()).await;
    let database = open(directory.path()).await;
    let mut session = database.session();
    same_rows(&mut session, ("after a restart", "*")).await;
    run(&mut session, "VACUUM FULL a; VACUUM FULL b").await;
    same_rows(&mut session, ("after a vacuum", "*")).await;
    run(&mut session, "SET update_placement = device; UPDATE a SET price = 3").await;
    run(&mut session, "SET update_placement = host; UPDATE b SET price = 3").await;
    same_rows(&mut session, ("after another update", "*")).await;
    assert_no_leak(&database);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_remote_device_changes_its_own_pages() {
    let outside = tempfile::tempdir().unwrap();
    let (_directory, database) = fresh().await;
    let (_served, _) = attach_nas(&database, outside.path()).await;
    let mut session = database.session();
    run(&mut session, "SET default_device = 'nas'").await;
    every_change(&database, &mut session).await;
    assert_no_leak(&database);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tablets_on_several_devices_change_in_one_commit() {
    let outside = tempfile::tempdir().unwrap();
    let (_directory, database) = fresh().await;
    let (_served, _) = attach_nas(&database, outside.path()).await;
    let mut session = database.session();
    run(&mut session, "SET default_tablets = 4").await;
    two_tables(&mut session, 12_000).await;
    for sql in [
        "UPDATE @ SET price = price * 2 WHERE id % 3 = 1",
        "DELETE FROM @ WHERE id % 5 = 2",
        "UPDATE @ SET note = 'x', long = NULL",
    ] {
        on_both(&database, &mut session, (sql, "*"), true).await;
    }
    assert_no_leak(&database);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_without_fragments_writes_the_same_page_versions() {
    let (_directory, database) = fresh().await;
    let mut session = database.session();
    run(&mut session, "SET ndp = off").await;
    two_tables(&mut session, 12_000).await;
    for (sql, by_fragment) in CHANGES.into_iter().take(10) {
        on_both(&database, &mut session, (sql, "*"), by_fragment).await;
    }
    assert_no_leak(&database);
}

const SUM: &str = "SELECT count(*), sum(price), count(note) FROM a";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn blocks_see_their_own_changes_and_undo_them() {
    let (directory, database) = fresh().await;
    let (mut one, mut two) = (database.session(), database.session());
    run(&mut one, "CREATE TABLE a (id int PRIMARY KEY, price numeric(12,2), note text)").await;
    run(&mut one, "INSERT INTO a SELECT v, v, 'n' FROM generate_series(1, 20000) AS s(v)").await;
    run(&mut one, "SET update_placement = device").await;
    let before = row(&mut two, SUM).await;
    run(&mut one, "BEGIN; UPDATE a SET price = 1 WHERE id = 5").await;
    run(&mut one, "UPDATE a SET price = price + 1").await;
    assert_eq!(row(&mut one, "SELECT price FROM a WHERE id = 5").await, "2.00");
    assert_eq!(row(&mut one, "SELECT price FROM a WHERE id = 6").await, "7.00");
    run(&mut one, "SAVEPOINT s").await;
    run(&mut one, "UPDATE a SET price = 0, note = NULL WHERE id > 100").await;
    run(&mut one, "INSERT INTO a VALUES (-1, 3, 'new')").await;
    run(&mut one, "DELETE FROM a WHERE id BETWEEN 10 AND 19").await;
    assert_eq!(row(&mut one, SUM).await, "19991,4994.00,91");
    assert_eq!(row(&mut two, SUM).await, before, "others read what is committed");
    run(&mut one, "ROLLBACK TO s").await;
    assert_eq!(row(&mut one, "SELECT sum(price), count(note) FROM a").await, "200029996.00,20000");
    run(&mut one, "UPDATE a SET note = 'kept' WHERE id % 2 = 0").await;
    assert_eq!(row(&mut two, SUM).await, before);
    run(&mut one, "COMMIT").await;
    let after = "20000,200029996.00,20000";
    assert_eq!(row(&mut two, SUM).await, after);
    assert_eq!(row(&mut two, "SELECT count(*) FROM a WHERE note = 'kept'").await, "10000");
    run(&mut one, "BEGIN; UPDATE a SET note = 'gone'; DELETE FROM a WHERE id > 7").await;
    assert_eq!(row(&mut one, "SELECT count(*), max(note) FROM a").await, "7,gone");
    run(&mut one, "ROLLBACK").await;
    assert_eq!(row(&mut one, SUM).await, after);
    // A block that fails undoes both kinds of change.
    run(&mut one, "BEGIN; UPDATE a SET price = 9 WHERE id = 1; UPDATE a SET price = 8").await;
    assert_eq!(refused(&mut one, "SELECT 1 / 0").await.sqlstate(), "22012");
    run(&mut one, "COMMIT").await;
    assert_eq!(row(&mut one, SUM).await, after);
    assert_no_leak_soon(&database).await;
    drop((one, two, database));
    checks_out(directory.path()).await;
    let database = open(directory.path()).await;
    assert_eq!(row(&mut database.session(), SUM).await, after);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_cost_decides_and_many_rows_are_changed_by_a_fragment() {
    let (_directory, database) = fresh().await;
    let mut session = database.session();
    run(&mut session, "CREATE TABLE a (id int PRIMARY KEY, price int, note text)").await;
    run(&mut session, "INSERT INTO a SELECT v, v, 'n' FROM generate_series(1, 30000) AS s(v)")
        .await;
    run(&mut session, "ANALYZE a; UPDATE a SET price = 0 WHERE id < 100").await;
    assert_eq!(fragments(&database).await, 0, "few rows become row versions");
    run(&mut session, "UPDATE a SET price = price + 1").await;
    assert_eq!(fragments(&database).await, 1);
    run(&mut session, "DELETE FROM a WHERE id > 10").await;
    assert_eq!(fragments(&database).await, 2);
    assert_eq!(row(&mut session, "SELECT count(*), sum(price) FROM a").await, "10,10");
    run(&mut session, "SET update_placement = host; UPDATE a SET price = 1").await;
    assert_eq!(fragments(&database).await, 2);
    assert_no_leak(&database);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_updater_wins_row_by_row() {
    let (_directory, database) = fresh().await;
    let (mut one, mut two) = (database.session(), database.session());
    run(&mut one, "CREATE TABLE a (id int PRIMARY KEY, price int, note text)").await;
    run(&mut one, "INSERT INTO a SELECT v, v, 'n' FROM generate_series(1, 20000) AS s(v)").await;
    run(&mut one, "SET update_placement = device").await;
    for level in ["REPEATABLE READ", "SERIALIZABLE"] {
        for (sql, loses) in [
            ("UPDATE a SET note = 'two' WHERE id = 7", false),
            ("UPDATE a SET note = 'two' WHERE id = 10", true),
            ("DELETE FROM a WHERE id = 10", true),
            ("SELECT note FROM a WHERE id = 10 FOR UPDATE", true),
            ("UPDATE a SET note = 'two' WHERE id % 10 = 5", false),
            ("UPDATE a SET note = 'two' WHERE id % 5 = 0", true),
        ] {
            run(&mut two, &format!("BEGIN ISOLATION LEVEL {level}")).await;
            let before = row(&mut two, "SELECT sum(price) FROM a").await;
            run(&mut one, "UPDATE a SET price = price + 1 WHERE id % 10 = 0").await;
            assert_eq!(row(&mut two, "SELECT sum(price) FROM a").await, before, "{level}: {sql}");
            // At SERIALIZABLE the reader of all rows may lose in any case.
            match two.run(sql).await {
                Ok(_) => assert!(!loses, "{level}: {sql}"),
                Err(error) => {
                    assert_eq!(error.sqlstate(), "40001", "{level}: {sql}: {error}");
                    assert!(loses || level == "SERIALIZABLE", "{level}: {sql}: {error}");
                }
            }
            run(&mut two, "ROLLBACK").await;
        }
    }
    // READ COMMITTED sees the new values.
    run(&mut two, "BEGIN; SELECT price FROM a WHERE id = 10").await;
    let before = row(&mut two, "SELECT price FROM a WHERE id = 10").await;
    run(&mut one, "UPDATE a SET price = price + 1").await;
    run(&mut two, "UPDATE a SET price = price + 100 WHERE id = 10; COMMIT").await;
    let after: i64 = row(&mut two, "SELECT price FROM a WHERE id = 10").await.parse().unwrap();
    assert_eq!(after, before.parse::<i64>().unwrap() + 101);
    assert_no_leak_soon(&database).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn checks_are_kept_by_fragments() {
    let (_directory, database) = fresh().await;
    let mut session = database.session();
    for table in ["a", "b"] {
        run(
            &mut session,
            &format!(
                "CREATE TABLE {table} (id int PRIMARY KEY, kind int, price numeric(12,2) CHECK (price >= 0), \
                 small smallint, note varchar(40), flag boolean, \
                 CONSTRAINT few CHECK (small < 100 + kind), CHECK (flag OR length(note) < 20))"
            ),
        )
        .await;
        run(
            &mut session,
            &format!(
                "INSERT INTO {table} SELECT v, v % 100, v, v % 50, 'note ' || v, v % 2 = 0 \
                 FROM generate_series(1, 12000) AS s(v)"
            ),
        )
        .await;
    }
    for (sql, by_fragment) in [
        ("UPDATE @ SET price = price + 1", true),
        ("UPDATE @ SET price = NULL WHERE id % 2 = 0", true),
        ("UPDATE @ SET small = 100 + id % 100 - 1 WHERE kind > 0", true),
        ("UPDATE @ SET small = 100 WHERE id % 100 = 0 OR id = 7", false),
        ("UPDATE @ SET price = id - 500", false),
        // The value is rounded before it is checked.
        ("UPDATE @ SET price = -0.004 WHERE id + 0 = 3", true),
        ("UPDATE @ SET note = repeat('x', 30), flag = true", true),
        ("UPDATE @ SET flag = false WHERE id % 3 = 0", false),
        ("UPDATE @ SET flag = NULL WHERE id % 3 = 0", true),
        ("UPDATE @ SET price = 0, small = NULL, note = 'all'", true),
    ] {
        for (table, placement) in [("a", "device"), ("b", "host")] {
            run(&mut session, &format!("SET update_placement = {placement}")).await;
            let before = fragments(&database).await;
            let ended = session.run(&sql.replace('@', table)).await;
            let used = fragments(&database).await > before;
            assert_eq!(used, by_fragment && table == "a", "{sql}: {ended:?}");
            match ended {
                Ok(_) => assert!(by_fragment, "{sql}"),
                Err(error) => {
                    assert_eq!(error.sqlstate(), "23514", "{sql}: {error}");
                    assert!(!by_fragment, "{sql}: {error}");
                }
            }
        }
        let a = rows(&mut session, "SELECT * FROM a ORDER BY id").await;
        assert_eq!(a, rows(&mut session, "SELECT * FROM b ORDER BY id").await, "{sql}");
    }
    assert_no_leak(&database);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn explain_shows_both_ways_and_runs_the_one_that_is_chosen() {
    let (_directory, database) = fresh().await;
    let mut session = database.session();
    run(&mut session, "CREATE TABLE a (id int PRIMARY KEY, price int, note text)").await;
    run(&mut session, "INSERT INTO a SELECT v, v, 'n' FROM generate_series(1, 30000) AS s(v)")
        .await;
    run(&mut session, "ANALYZE a").await;
    let all = "UPDATE a SET price = price + 1";
    for (sql, placement, chosen) in [
        (all, "auto", Some("Update of a by fragments")),
        (all, "host", None),
        ("DELETE FROM a WHERE price > 7", "auto", Some("Delete of a by fragments")),
        ("UPDATE a SET price = 0 WHERE price = 7 OR note = 'x'", "auto", None),
        ("UPDATE a SET price = 0 WHERE price = 7", "device", Some("Update of a by fragments")),
        ("UPDATE a SET id = id + 1", "host", None),
        ("UPDATE a SET id = id + 1", "auto", None),
        (
            "UPDATE a SET id = id + 1",
            "device",
            Some("Update of a by a fragment that replaces rows"),
        ),
    ] {
        run(&mut session, &format!("SET update_placement = {placement}")).await;
        let text = rows(&mut session, &format!("EXPLAIN VERBOSE {sql}")).await.join("\n");
        assert_eq!(text.lines().next().filter(|_| chosen.is_some()), chosen, "{text}");
        let is_key = sql.contains("SET id");
        assert_eq!(text.contains("LockRowsExec"), chosen.is_some() && !is_key, "{text}");
        // A device in this process has no link to save.
        let compares = !is_key || chosen.is_some();
        assert_eq!(text.contains("device, by pages"), compares, "{text}");
        assert_eq!(text.contains("host, by rows"), compares, "{text}");
        let before = fragments(&database).await;
        run(&mut session, "BEGIN").await;
        let text = rows(&mut session, &format!("EXPLAIN ANALYZE VERBOSE {sql}")).await.join("\n");
        run(&mut session, "ROLLBACK").await;
        assert_eq!(fragments(&database).await > before, chosen.is_some(), "{text}");
        assert!(text.contains(if sql.starts_with("DELETE") { "Delete of" } else { "Update of" }));
    }
    let count = "SELECT count(*), sum(price) FROM a";
    assert_eq!(row(&mut session, count).await, "30000,450015000");
    run(&mut session, "SET update_placement = device; BEGIN").await;
    let json = row(&mut session, &format!("EXPLAIN (ANALYZE, FORMAT JSON) {all}")).await;
    run(&mut session, "ROLLBACK").await;
    let times = ["\"Execution Time\":", "\"title\":\"Fragment\"", "\"name\":\"device time\""];
    assert!(times.iter().all(|part| json.contains(part)), "{json}");
    let text = rows(&mut session, &format!("EXPLAIN ANALYZE VERBOSE {all}")).await.join("\n");
    assert!(text.contains("30000") && text.contains("device time: "), "{text}");
    assert_eq!(row(&mut session, count).await, "30000,450045000");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_cached_of_unchanged_columns_stays_cached() {
    let (_directory, database) = fresh().await;
    let mut session = database.session();
    run(&mut session, "CREATE TABLE a (id int PRIMARY KEY, price int, note text)").await;
    let rows = "v, v, md5(v::text) || md5((v + 1)::text) FROM generate_series(1, 30000) AS s(v)";
    run(&mut session, &format!("INSERT INTO a SELECT {rows}; CHECKPOINT")).await;
    run(&mut session, "SET split = host").await;
    let notes = "SELECT count(*), max(note) FROM a WHERE note > 'f'";
    let before = row(&mut session, notes).await;
    // Also a page of which few rows are read.
    let point = "SELECT note FROM a WHERE id = 777";
    let note = row(&mut session, point).await;
    for sql in ["UPDATE a SET price = price + 1", "UPDATE a SET price = 0 WHERE id % 3 = 0"] {
        run(&mut session, "SET split = auto; SET update_placement = device").await;
        run(&mut session, sql).await;
        run(&mut session, "SET split = host").await;
        let loaded = database.buffer_pool().status().loaded_bytes;
        assert_eq!(row(&mut session, notes).await, before);
        assert_eq!(row(&mut session, point).await, note);
        let loaded = database.buffer_pool().status().loaded_bytes - loaded;
        // Opening the page again counts its chunk once; fetching it would count it twice.
        assert!(loaded < 1_500_000, "{sql}: {loaded} bytes");
    }
    assert_eq!(row(&mut session, "SELECT sum(price) FROM a WHERE id % 3 = 1").await, "150005000");
}
