//! Tests of materialized views beside other sessions: what is renamed or dropped below waits for a refresh, and the
//! other way round; a refresh reads with the rights of the view's owner. Refreshes by changes give what the query
//! gives, whatever has become of its tables.

use std::collections::BTreeMap;

use cleave_host::Session;
use cleave_media::SplitMix64;

use crate::devices::with_nas;
use crate::support::{assert_no_leak_soon, fresh, refused, row, rows, run};

const LOCK_TIMEOUT: &str = "55P03";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn renames_and_refreshes_wait_for_each_other() {
    let (_directory, database) = fresh().await;
    let (mut one, mut other) = (database.session(), database.session());
    run(
        &mut one,
        "CREATE TABLE t (i int, v int); INSERT INTO t VALUES (1, 10), (2, 20);
         CREATE VIEW below AS SELECT * FROM t; CREATE MATERIALIZED VIEW m AS SELECT * FROM below;
         CREATE VIEW above AS SELECT i FROM below",
    )
    .await;
    run(&mut other, "SET lock_timeout = 50").await;
    for rename in ["ALTER VIEW below RENAME TO renamed", "ALTER TABLE t RENAME COLUMN v TO w"] {
        run(&mut one, &format!("BEGIN; {rename}")).await;
        for sql in [
            "DROP MATERIALIZED VIEW m",
            "REFRESH MATERIALIZED VIEW m",
            "CREATE INDEX ON m (i)",
            "DROP VIEW above",
            "CREATE OR REPLACE VIEW above AS SELECT 1 AS i",
        ] {
            assert_eq!(refused(&mut other, sql).await.sqlstate(), LOCK_TIMEOUT, "{rename}, {sql}");
        }
        run(&mut one, "ROLLBACK; BEGIN; REFRESH MATERIALIZED VIEW m").await;
        assert_eq!(refused(&mut other, rename).await.sqlstate(), LOCK_TIMEOUT, "{rename}");
        // Rows are read beside it.
        assert_eq!(row(&mut other, "SELECT sum(v) FROM m").await, "30");
        run(&mut one, "COMMIT").await;
        run(&mut other, rename).await;
        run(&mut other, "INSERT INTO t VALUES (3, 30); REFRESH MATERIALIZED VIEW m").await;
        assert_eq!(row(&mut one, "SELECT max(i) FROM m").await, "3");
        run(&mut other, "DELETE FROM t WHERE i = 3; REFRESH MATERIALIZED VIEW m").await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_older_snapshot_is_not_read_by_newer_names() {
    let (_directory, database) = fresh().await;
    let (mut one, mut other) = (database.session(), database.session());
    run(
        &mut one,
        "CREATE TABLE t (a int, b int); INSERT INTO t VALUES (1, 2);
         CREATE MATERIALIZED VIEW m AS SELECT a FROM t",
    )
    .await;
    run(&mut one, "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT * FROM m").await;
    for rename in ["a TO x", "b TO a", "x TO b"] {
        run(&mut other, &format!("ALTER TABLE t RENAME COLUMN {rename}")).await;
    }
    assert_eq!(refused(&mut one, "REFRESH MATERIALIZED VIEW m").await.sqlstate(), "40001");
    run(&mut one, "ROLLBACK; REFRESH MATERIALIZED VIEW m").await;
    assert_eq!(row(&mut one, "SELECT a FROM m").await, "1");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refresh_reads_with_the_rights_of_the_owner() {
    let (_directory, database) = fresh().await;
    let mut owner = database.session();
    run(
        &mut owner,
        "CREATE TABLE secret (i int); INSERT INTO secret VALUES (7);
         CREATE ROLE ada; GRANT CREATE ON SCHEMA public TO ada; SET ROLE ada;
         CREATE VIEW v AS SELECT 1 AS i; CREATE MATERIALIZED VIEW m AS SELECT i, current_user FROM v;
         CREATE OR REPLACE VIEW v AS SELECT i FROM secret; RESET ROLE",
    )
    .await;
    assert_eq!(refused(&mut owner, "REFRESH MATERIALIZED VIEW m").await.sqlstate(), "42501");
    assert_eq!(row(&mut owner, "SELECT i FROM m").await, "1");
    run(&mut owner, "GRANT SELECT ON secret TO ada; REFRESH MATERIALIZED VIEW m").await;
    assert_eq!(row(&mut owner, "SELECT i || \"current_user\" FROM m").await, "7ada");
    run(&mut owner, "CREATE ROLE bob; SET ROLE bob").await;
    assert_eq!(refused(&mut owner, "REFRESH MATERIALIZED VIEW m").await.sqlstate(), "42501");
}

const VIEWS: [(&str, &str, &str); 12] = [
    (
        "unclear",
        "",
        "SELECT id % 400 AS k, count(*) AS c, sum(nullif(v, 5)) AS s FROM t GROUP BY id % 400",
    ),
    (
        "grouped",
        "",
        "SELECT g, count(*) AS c, sum(v) AS s, count(v) AS n, sum(m) AS sm, count(m) AS nm FROM t GROUP BY g",
    ),
    (
        "joined",
        "",
        "SELECT name, sum(v) AS s, count(v) AS n, count(*) AS c FROM t JOIN d ON t.g = d.g WHERE id > 3 GROUP BY name",
    ),
    ("listed", "", "SELECT name, v FROM t JOIN d ON t.g = d.g WHERE v < 4"),
    ("extremes", "", "SELECT g, min(v), max(m), count(*) FROM below GROUP BY g"),
    ("alone", "", "SELECT sum(v), count(v) AS n, count(*) AS c FROM t WHERE m > 2"),
    (
        "divided",
        "WITH (tablets = 3)",
        "SELECT id, upper(name) AS name FROM below JOIN d ON d.g = below.g",
    ),
    (
        "averages",
        "",
        "SELECT g, avg(v)::float8 AS a, max(m) - min(m) AS range, count(DISTINCT v) AS d FROM t GROUP BY g",
    ),
    (
        "chosen",
        "",
        "SELECT name, t.g % 3 AS k, avg(m)::float8 FROM t JOIN d ON t.g = d.g GROUP BY name, t.g % 3 \
         HAVING count(*) > 150",
    ),
    ("different", "", "SELECT DISTINCT v, name FROM t JOIN d ON d.g = t.g WHERE v > 1"),
    ("by_real", "", "SELECT g::float8 AS g, count(*) FROM t GROUP BY g::float8"),
    ("whole", "", "SELECT DISTINCT name FROM d LEFT JOIN t ON t.g = d.g"),
];

/// Computing few rows is expected to be faster.
const BY_CHANGES: &str = "SET refresh_method = changes";

/// Makes the tables that [`VIEWS`] read, and the views.
async fn views_over_tables(session: &mut Session) {
    run(session, BY_CHANGES).await;
    run(
        session,
        "CREATE TABLE t (id int PRIMARY KEY, g int, v int, m numeric(10, 2));
         INSERT INTO t SELECT i, i % 11, nullif(i % 7, 3), i / 4.0 FROM generate_series(1, 3000) s (i);
         CREATE TABLE d (g int PRIMARY KEY, name text);
         INSERT INTO d SELECT i, 'n' || i % 4 FROM generate_series(0, 8) s (i);
         CREATE VIEW below AS SELECT * FROM t WHERE id % 2 = 0",
    )
    .await;
    for (name, options, query) in VIEWS {
        run(session, &format!("CREATE MATERIALIZED VIEW {name} {options} AS {query}")).await;
    }
}

/// Whether the next refresh of `view` would follow the changes.
async fn follows(session: &mut Session, view: &str) -> bool {
    let plan = rows(session, &format!("EXPLAIN REFRESH MATERIALIZED VIEW {view}")).await;
    plan.concat().contains(&format!("Refresh of {view} by changes"))
}

/// What some transactions do, each in a way that leaves other versions, pages or definitions behind.
fn change(random: &mut SplitMix64, next: &mut u64) -> String {
    let (one, other) = (random.below(3000), random.below(11));
    match random.below(15) {
        0..=3 => {
            *next += 2;
            let (a, b) = (*next, *next + 1);
            format!("INSERT INTO t VALUES ({a}, {other}, {other}, 1.5), ({b}, {}, NULL, 9)", one % 14)
        }
        4 => format!("UPDATE t SET v = v + 1 WHERE id % 97 = {other}"),
        5 => format!("UPDATE t SET g = {other} WHERE id = {one}"),
        6 => format!("DELETE FROM t WHERE id % 211 = {other}"),
        7 => format!("UPDATE d SET name = 'x{one}' WHERE g = {other}"),
        8 => format!(
            "SET update_placement = device; UPDATE t SET v = {other} WHERE id BETWEEN {one} AND {one} + 90;
             RESET update_placement"
        ),
        9 => "VACUUM t; VACUUM d".to_owned(),
        10 => format!(
            "DELETE FROM d WHERE g = {other};
             INSERT INTO d VALUES ({other} + 100, 'late') ON CONFLICT DO NOTHING"
        ),
        11 => format!(
            "BEGIN; UPDATE t SET v = 5 WHERE id = {one}; REFRESH MATERIALIZED VIEW grouped; DELETE FROM t WHERE id = 7;
             REFRESH MATERIALIZED VIEW listed; ROLLBACK"
        ),
        12 => format!(
            "BEGIN; DELETE FROM t WHERE id = {one}; REFRESH MATERIALIZED VIEW joined; SAVEPOINT a;
             REFRESH MATERIALIZED VIEW alone; ROLLBACK TO a; COMMIT"
        ),
        13 => format!("CREATE OR REPLACE VIEW below AS SELECT * FROM t WHERE id % 3 = {}", one % 3),
        _ => format!("ALTER TABLE d ADD COLUMN IF NOT EXISTS c{} int DEFAULT 3", one % 4),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refreshes_by_changes_give_the_rows_of_the_query() {
    let (_directory, database) = fresh().await;
    let (mut session, mut other) = (database.session(), database.session());
    views_over_tables(&mut session).await;
    run(&mut other, BY_CHANGES).await;
    let mut followed: BTreeMap<&str, u32> = BTreeMap::new();
    let (mut random, mut next) = (SplitMix64::new(50), 10_000);
    for round in 0..60 {
        let mut done = Vec::new();
        for _ in 0..=random.below(3) {
            let change = change(&mut random, &mut next);
            run(&mut session, &change).await;
            done.push(change);
        }
        for (name, _, query) in VIEWS {
            if random.below(3) == 0 {
                continue;
            }
            *followed.entry(name).or_default() += u32::from(follows(&mut session, name).await);
            run(&mut other, &format!("REFRESH MATERIALIZED VIEW {name}")).await;
            let mut refreshed = rows(&mut session, &format!("SELECT * FROM {name}")).await;
            let mut expected = rows(&mut other, query).await;
            refreshed.sort_unstable();
            expected.sort_unstable();
            assert_eq!(refreshed, expected, "{name} in round {round} after {done:?}");
        }
    }
    for (name, ..) in VIEWS {
        let often = followed.get(name).copied().unwrap_or_default();
        assert_eq!(
            often > 5,
            !["whole", "by_real"].contains(&name),
            "{name} followed changes {often} times"
        );
    }
    assert_no_leak_soon(&database).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_snapshot_of_a_block_is_refreshed_as_a_whole() {
    let (_directory, database) = fresh().await;
    let (mut session, mut other) = (database.session(), database.session());
    views_over_tables(&mut session).await;
    run(&mut other, BY_CHANGES).await;
    run(&mut session, "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM t").await;
    run(&mut other, "DELETE FROM t WHERE id > 100; INSERT INTO t VALUES (9000, 1, 1, 1)").await;
    run(&mut other, "REFRESH MATERIALIZED VIEW alone").await;
    run(&mut session, "REFRESH MATERIALIZED VIEW grouped; COMMIT").await;
    assert_eq!(row(&mut other, "SELECT sum(c) FROM grouped").await, "3000");
    run(&mut other, "REFRESH MATERIALIZED VIEW grouped").await;
    assert_eq!(row(&mut session, "SELECT sum(c) FROM grouped").await, "101");
    // At level SERIALIZABLE all that is read is noted, and so all rows are.
    run(&mut session, "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL SERIALIZABLE")
        .await;
    assert!(!follows(&mut session, "grouped").await);
    assert!(follows(&mut other, "grouped").await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_view_was_made_from_keeps_no_device() {
    let outside = tempfile::tempdir().unwrap();
    let (_directory, database, _served, _) = with_nas(outside.path()).await;
    let mut session = database.session();
    run(&mut session, "CREATE MATERIALIZED VIEW m AS SELECT count(*) FROM far").await;
    run(&mut session, BY_CHANGES).await;
    assert!(follows(&mut session, "m").await);
    run(&mut session, "DROP TABLE far CASCADE; DROP DEVICE nas").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_made_in_the_background_are_waited_for() {
    let (_directory, database) = fresh().await;
    let (mut session, mut other) = (database.session(), database.session());
    run(
        &mut session,
        "CREATE TABLE t (a int); INSERT INTO t VALUES (1), (2); SET populate = background",
    )
    .await;
    run(&mut other, "SELECT pg_advisory_lock(7)").await;
    let locked = "(SELECT pg_advisory_lock(7)) IS NULL";
    run(
        &mut session,
        &format!("CREATE MATERIALIZED VIEW \"Of t\" AS SELECT a FROM t WHERE NOT ({locked})"),
    )
    .await;
    let state = "SELECT name, state FROM cleave.result_sets";
    assert_eq!(row(&mut session, state).await, "Of t,being populated");
    run(&mut session, "SET lock_timeout = 50").await;
    let read = "SELECT sum(a) FROM \"Of t\"";
    for sql in [read, "DROP MATERIALIZED VIEW \"Of t\"", "REFRESH MATERIALIZED VIEW \"Of t\""] {
        assert_eq!(refused(&mut session, sql).await.sqlstate(), LOCK_TIMEOUT, "{sql}");
    }
    run(&mut other, "SELECT pg_advisory_unlock(7)").await;
    run(&mut session, "RESET lock_timeout").await;
    assert_eq!(row(&mut session, read).await, "3");
    assert_eq!(row(&mut session, state).await, "Of t,populated");

    run(&mut session, "CREATE MATERIALIZED VIEW failing AS SELECT 1 / (a - 1) AS b FROM t").await;
    let warnings = session.finish_background().await;
    assert_eq!(warnings, ["the materialized view failing has no rows: division by zero"]);
    assert_eq!(refused(&mut session, "TABLE failing").await.sqlstate(), "55000");
    let of_failing = format!("{state} WHERE name = 'failing'");
    assert_eq!(row(&mut session, &of_failing).await, "failing,not populated: division by zero");
    run(&mut session, "DELETE FROM t WHERE a = 1; REFRESH MATERIALIZED VIEW failing").await;
    assert_eq!(row(&mut session, &of_failing).await, "failing,populated");
    // A block has to see what it has changed.
    run(
        &mut session,
        "BEGIN; INSERT INTO t VALUES (5); CREATE MATERIALIZED VIEW m AS SELECT a FROM t",
    )
    .await;
    assert_eq!(row(&mut session, "SELECT sum(a) FROM m").await, "7");
    run(&mut session, "COMMIT").await;
    assert_no_leak_soon(&database).await;
}
