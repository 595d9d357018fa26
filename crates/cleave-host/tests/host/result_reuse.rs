//! Tests of results that are used again: they are given while their tables have the same rows, to whom they may be
//! given, and never beside uncommitted changes.

use cleave_host::session::Session;

use crate::support::{assert_no_leak_soon, fresh, refused, row, rows, run};

const QUERY: &str = "SELECT count(*), sum(v) FROM t";

/// Whether `query` would be answered from a held result.
async fn is_held(session: &mut Session, query: &str) -> bool {
    let plan = rows(session, &format!("EXPLAIN VERBOSE {query}")).await;
    plan.iter().any(|line| line.contains("ReusedExec: from result"))
}

/// A database with rows in `t`, and a session that uses results again.
async fn table() -> (tempfile::TempDir, std::sync::Arc<cleave_host::Database>, Session) {
    let (directory, database) = fresh().await;
    let mut session = database.session();
    run(
        &mut session,
        "CREATE TABLE t (k int PRIMARY KEY, v int);
         INSERT INTO t SELECT i, i % 10 FROM generate_series(1, 20000) s (i);
         SET result_reuse = on",
    )
    .await;
    (directory, database, session)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_result_depends_on_what_a_replaced_view_reads() {
    let (_directory, _database, mut session) = table().await;
    run(
        &mut session,
        "CREATE TABLE u AS SELECT i::int AS v FROM generate_series(1, 20000) s (i);
         CREATE VIEW below AS SELECT v FROM t;
         CREATE VIEW above AS SELECT v FROM below;
         CREATE OR REPLACE VIEW below AS SELECT v FROM u",
    )
    .await;
    let query = "SELECT count(*), sum(v) FROM above";
    for _ in 0..3 {
        assert_eq!(row(&mut session, query).await, "20000,200010000");
    }
    assert!(is_held(&mut session, query).await);
    run(&mut session, "INSERT INTO u VALUES (1)").await;
    assert_eq!(row(&mut session, query).await, "20001,200010001");
    // Nor is a view made of itself by way of them.
    let made =
        "CREATE VIEW low AS SELECT v FROM u; CREATE OR REPLACE VIEW below AS SELECT v FROM low";
    run(&mut session, made).await;
    let error = refused(&mut session, "CREATE OR REPLACE VIEW low AS SELECT v FROM above").await;
    assert!(error.to_string().contains("would be made of itself"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_result_is_given_until_its_tables_have_other_rows() {
    let (_directory, database, mut session) = table().await;
    let mut other = database.session();
    run(&mut other, "CREATE VIEW w AS SELECT v FROM t WHERE v < 5").await;
    let changes = [
        "INSERT INTO t VALUES (30001, 1)",
        "UPDATE t SET v = v + 1 WHERE k = 7",
        "DELETE FROM t WHERE k = 9",
        "SET update_placement = device; UPDATE t SET v = v + 1 WHERE k > 10000; RESET update_placement",
        "TRUNCATE t",
        "INSERT INTO t SELECT i, 1 FROM generate_series(1, 20000) s (i)",
        "ALTER TABLE t ADD COLUMN x int DEFAULT 4",
        "BEGIN; INSERT INTO t (k, v) VALUES (40001, 1); ROLLBACK; DELETE FROM t WHERE k = 10",
        "DROP TABLE t CASCADE; CREATE TABLE t (k int PRIMARY KEY, v int);
         INSERT INTO t SELECT i, 9 FROM generate_series(1, 20000) s (i); CREATE VIEW w AS SELECT v FROM t WHERE v < 9",
        "CREATE OR REPLACE VIEW w AS SELECT v + 100 AS v FROM t; INSERT INTO t VALUES (30002, 3)",
    ];
    let of_view = "SELECT count(*), sum(v) FROM w";
    for change in changes {
        for query in [QUERY, of_view] {
            let expected = row(&mut other, query).await;
            for _ in 0..3 {
                assert_eq!(row(&mut session, query).await, expected, "before {change}");
            }
            assert!(is_held(&mut session, query).await, "{query} before {change}");
            assert!(!is_held(&mut other, query).await, "it does not use results again");
        }
        run(&mut other, change).await;
        for query in [QUERY, of_view] {
            assert!(!is_held(&mut session, query).await, "{query} after {change}");
            assert_eq!(row(&mut session, query).await, row(&mut other, query).await, "{change}");
        }
    }
    let shown = "SELECT owner, device, rows, uses > 0, statement FROM cleave.result_sets";
    for _ in 0..3 {
        run(&mut session, QUERY).await;
    }
    let expected = format!("result cache,host,1,t,{QUERY}");
    assert!(rows(&mut session, shown).await.contains(&expected), "{expected}");
    run(&mut other, "CREATE MATERIALIZED VIEW m AS SELECT v FROM t WHERE v = 3; DELETE FROM t")
        .await;
    let shown = "SELECT state, count(*) FROM cleave.result_sets WHERE uses > 0 OR name = 'm' GROUP BY 1 ORDER BY 1";
    let states = rows(&mut session, shown).await;
    assert!(states.len() == 2 && states[0].starts_with("outdated,"), "{states:?}");
    assert_eq!(states[1], "populated,1");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_may_differ_is_never_held() {
    let (_directory, database, mut session) = table().await;
    for query in [
        "SELECT count(*) FROM t WHERE random() < 2",
        "SELECT count(*) FROM t WHERE now() > '2020-01-01'",
        "SELECT current_user, count(*) FROM t",
        "SELECT count(*) FROM cleave.activity",
        "SELECT count(*) FROM pg_class",
        "SELECT 1",
    ] {
        run(&mut session, &format!("{query}; {query}; {query}")).await;
        assert!(!is_held(&mut session, query).await, "{query}");
    }
    // Temporary tables are of one session.
    let mut other = database.session();
    run(&mut other, "SET result_reuse = on").await;
    for (session, value) in [(&mut session, 1), (&mut other, 2)] {
        run(session, &format!("CREATE TEMPORARY TABLE u AS SELECT {value} AS v")).await;
        for _ in 0..3 {
            assert_eq!(row(session, "SELECT sum(v) FROM u").await, value.to_string());
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_block_reads_its_own_rows_and_its_snapshot() {
    let (_directory, database, mut session) = table().await;
    let mut other = database.session();
    run(&mut session, &format!("{QUERY}; {QUERY}")).await;
    assert!(is_held(&mut session, QUERY).await);
    // Two blocks that have inserted one row each, with equal counts.
    run(&mut other, "SET result_reuse = on; BEGIN; INSERT INTO t VALUES (50001, 1)").await;
    run(&mut session, "BEGIN; INSERT INTO t VALUES (50002, 1000)").await;
    for _ in 0..3 {
        assert_eq!(row(&mut other, QUERY).await, "20001,90001");
        assert_eq!(row(&mut session, QUERY).await, "20001,91000");
    }
    run(&mut session, "ROLLBACK").await;
    run(&mut other, "COMMIT").await;
    assert_eq!(row(&mut session, QUERY).await, "20001,90001");
    // A snapshot is read as it was, by the side of newer results.
    run(&mut session, &format!("BEGIN ISOLATION LEVEL REPEATABLE READ; {QUERY}; {QUERY}")).await;
    run(&mut other, "DELETE FROM t WHERE k = 50001").await;
    for _ in 0..3 {
        assert_eq!(row(&mut other, QUERY).await, "20000,90000");
        assert_eq!(row(&mut session, QUERY).await, "20001,90001");
    }
    run(&mut session, "COMMIT; BEGIN ISOLATION LEVEL SERIALIZABLE").await;
    for _ in 0..3 {
        assert_eq!(row(&mut session, QUERY).await, "20000,90000");
        assert!(!is_held(&mut session, QUERY).await);
    }
    run(&mut session, "ROLLBACK").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_role_is_given_only_results_of_its_own() {
    let (_directory, _database, mut session) = table().await;
    run(&mut session, &format!("CREATE ROLE reader; {QUERY}; {QUERY}; SET ROLE reader")).await;
    assert_eq!(refused(&mut session, QUERY).await.sqlstate(), "42501");
    run(&mut session, "RESET ROLE; GRANT SELECT ON t TO reader; SET ROLE reader").await;
    assert!(!is_held(&mut session, QUERY).await);
    run(&mut session, &format!("{QUERY}; {QUERY}")).await;
    assert!(is_held(&mut session, QUERY).await);
    run(&mut session, "RESET ROLE; REVOKE SELECT ON t FROM reader; SET ROLE reader").await;
    assert_eq!(refused(&mut session, QUERY).await.sqlstate(), "42501");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn results_stay_within_their_bytes() {
    let (_directory, _database, mut session) = table().await;
    run(&mut session, "SET result_cache_bytes = 0").await;
    run(&mut session, &format!("{QUERY}; {QUERY}; {QUERY}")).await;
    assert!(!is_held(&mut session, QUERY).await);
    run(&mut session, "SET result_cache_bytes = '1MB'").await;
    for v in 0..10 {
        let query = format!("SELECT k, v FROM t WHERE v < 3 AND k > {v} ORDER BY v, k");
        run(&mut session, &format!("{query}; {query}; {query}")).await;
    }
    let held = "SELECT count(*) > 0 AND sum(bytes) <= 1048576 FROM cleave.result_sets";
    assert_eq!(row(&mut session, held).await, "t");
    // Too large to be held at all.
    run(&mut session, "SET result_cache_bytes = '1kB'; SELECT * FROM t; SELECT * FROM t").await;
    assert!(!is_held(&mut session, "SELECT * FROM t").await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn held_results_are_released_by_those_who_may() {
    const HELD: &str = "SELECT count(*) FROM cleave.result_sets WHERE owner = 'result cache'";
    let staged = "WITH x AS MATERIALIZED (SELECT k, v FROM t) SELECT count(*), sum(v) FROM x";
    let (_directory, database, mut session) = table().await;
    let mut reader = database.session();
    run(&mut session, "CREATE ROLE reader; GRANT SELECT ON t TO reader").await;
    run(&mut reader, "SET result_reuse = on; SET ROLE reader").await;
    for session in [&mut session, &mut reader] {
        run(session, &format!("SET stages = always; {QUERY}; {QUERY}; {staged}")).await;
        assert!(is_held(session, QUERY).await);
    }
    let devices = "SELECT count(DISTINCT device) FROM cleave.result_sets";
    assert_eq!(row(&mut session, devices).await, "2", "in memory and on the device");
    // One's own.
    let all: u64 = row(&mut session, HELD).await.parse().unwrap();
    let own = row(&mut reader, "SELECT cleave.release_results()").await.parse::<u64>().unwrap();
    assert!(own >= 2 && all - own >= 2, "{own} of {all}");
    assert_eq!(row(&mut session, HELD).await, (all - own).to_string());
    assert!(is_held(&mut session, QUERY).await && !is_held(&mut reader, QUERY).await);
    assert_eq!(row(&mut reader, "SELECT cleave.release_results()").await, "0");
    // A superuser's, and everybody's.
    run(&mut reader, &format!("{QUERY}; {QUERY}")).await;
    let all = row(&mut session, HELD).await;
    assert_eq!(row(&mut session, "SELECT CLEAVE.Release_Results() AS n").await, all);
    assert_eq!(row(&mut session, HELD).await, "0");
    assert!(!is_held(&mut session, QUERY).await && !is_held(&mut reader, QUERY).await);
    let strange = refused(&mut session, "SELECT cleave.release_results(1)").await;
    assert_eq!(strange.sqlstate(), "0A000", "{strange}");
    assert_no_leak_soon(&database).await;
}
