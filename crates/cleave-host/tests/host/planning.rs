//! Tests of planning: it has limits, can be cancelled, and blocks no other session; queries of WITH that are used more
//! than once run once.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};

use cleave_host::{Database, OpenOptions, Session};

use crate::support::{embedded, fresh, refused, row, rows, run};

/// A chain of queries of WITH, each of which joins the one before with itself.
fn chain(length: usize, how: &str) -> String {
    let mut sql = format!("WITH c0 AS {how} (SELECT 1 AS a)");
    for number in 1..=length {
        let before = number - 1;
        let _ = write!(
            sql,
            ", c{number} AS {how} (SELECT x.a FROM c{before} x JOIN c{before} y ON x.a = y.a)"
        );
    }
    let _ = write!(sql, " SELECT a FROM c{length}");
    sql
}

/// One that takes minutes to plan.
async fn take_long(session: &mut Session, timeout_ms: u32) -> String {
    run(session, "SET plan_operators_max = 1000000").await;
    run(session, &format!("SET statement_timeout = {timeout_ms}")).await;
    chain(15, "NOT MATERIALIZED")
}

#[tokio::test]
async fn a_chain_of_queries_of_with_is_planned_once_for_each() {
    let (_directory, database) = fresh().await;
    let mut session = database.session();
    // It would be 2 to the power of 40 joins, if each were inlined.
    assert_eq!(rows(&mut session, &chain(40, "")).await, ["1"]);
    let plan = rows(&mut session, &format!("EXPLAIN VERBOSE {}", chain(3, ""))).await;
    let heads = plan.iter().filter(|line| line.contains("run once")).count();
    assert_eq!(heads, 3, "{plan:#?}");
    let scans = plan.iter().filter(|line| line.contains("WithScanExec")).count();
    assert_eq!(scans, 6, "{plan:#?}");
}

#[tokio::test]
async fn equal_joins_of_a_query_and_its_subquery_run_once() {
    let (_directory, database) = fresh().await;
    let mut session = database.session();
    run(&mut session, "CREATE TABLE a (k int PRIMARY KEY, g int, v numeric(10,2))").await;
    run(&mut session, "CREATE TABLE b (k int PRIMARY KEY, x int)").await;
    run(&mut session, "INSERT INTO a SELECT v, v % 10, v FROM generate_series(1, 3000) s(v)").await;
    run(&mut session, "INSERT INTO b SELECT v, v % 3 FROM generate_series(1, 3000, 2) s(v)").await;
    let asked = |of_sub: &str| {
        format!(
            "SELECT g, sum(v) FROM a, b WHERE a.k = b.k AND x = 1 GROUP BY g HAVING sum(v) > ({of_sub}) ORDER BY g"
        )
    };
    let shared = [
        "SELECT sum(v) * 0.2 FROM a, b WHERE a.k = b.k AND x = 1",
        // Other names, another order, and a column that the other use does not read.
        "SELECT sum(p.v) * 0.2 + min(q.k) * 0 FROM b AS q JOIN a AS p ON q.k = p.k WHERE q.x = 1",
        "SELECT max(s) * 0.999 FROM (SELECT sum(v) AS s FROM a, b WHERE x = 1 AND b.k = a.k GROUP BY g) AS s",
    ];
    let apart = [
        "SELECT sum(v) * 0.2 FROM a, b WHERE a.k = b.k AND x = 2",
        "SELECT sum(v) * 0.2 FROM a, b WHERE a.k = b.k + 1 AND x = 1",
        "SELECT sum(v) * 0.2 FROM a LEFT JOIN b ON a.k = b.k AND x = 1",
        "SELECT sum(v) * 0.2 FROM a, b, b AS c WHERE a.k = b.k AND b.x = 1 AND c.k = b.k",
        "SELECT sum(v) * 0.2 FROM a, b WHERE a.k = b.k AND x = 1 AND random() < 2",
        "SELECT v FROM a, b WHERE a.k = b.k AND x = 1 LIMIT 1",
    ];
    for split in ["host", "h0", "h1", "auto"] {
        run(&mut session, &format!("SET split = {split}")).await;
        for (of_sub, is_shared) in
            shared.iter().map(|sub| (*sub, true)).chain(apart.iter().map(|sub| (*sub, false)))
        {
            // What is volatile stays on the host.
            if split == "h1" && of_sub.contains("random") {
                continue;
            }
            let alone = row(&mut session, of_sub).await;
            let expected = rows(&mut session, &asked(&alone)).await;
            assert_eq!(rows(&mut session, &asked(of_sub)).await, expected, "{split}: {of_sub}");
            let plan = rows(&mut session, &format!("EXPLAIN VERBOSE {}", asked(of_sub))).await;
            let heads = plan.iter().filter(|line| line.contains("join of a, b, run once")).count();
            // A split that is asked for counts the joins of one plan.
            let is_shared = is_shared && ["host", "auto"].contains(&split);
            assert_eq!(heads, usize::from(is_shared), "{split}: {of_sub}: {plan:#?}");
        }
    }
    // A hint names the tables of the query.
    let plan = format!("EXPLAIN VERBOSE /*+ join_order(b a) */ {}", asked(shared[0]));
    let plan = rows(&mut session, &plan).await;
    assert!(!plan.iter().any(|line| line.contains("run once")), "{plan:#?}");
}

#[tokio::test]
async fn a_plan_with_too_many_operators_is_refused() {
    let (_directory, database) = fresh().await;
    let mut session = database.session();
    run(&mut session, "CREATE TABLE t (a int); INSERT INTO t VALUES (1)").await;
    run(&mut session, "CREATE VIEW v0 AS SELECT a FROM t").await;
    let mut last = 0;
    for number in 1..=30 {
        let view = format!(
            "CREATE VIEW v{number} AS SELECT x.a FROM v{last} x JOIN v{last} y ON x.a = y.a"
        );
        if session.run(&view).await.is_err_and(|error| error.sqlstate() == "54001") {
            break;
        }
        last = number;
    }
    assert!((4..20).contains(&last), "{last}");
    let many: Vec<String> = (0..2000).map(|number| format!("v{last} AS t{number}")).collect();
    let statements = [
        chain(40, "NOT MATERIALIZED"),
        format!("SELECT count(*) FROM v{last} a, v{last} b, v{last} c, v{last} d"),
        format!("SELECT count(*) FROM {}", many.join(", ")),
    ];
    for statement in statements {
        let error = refused(&mut session, &statement).await;
        assert_eq!(error.sqlstate(), "54001", "{error}");
        assert!(error.to_string().contains("plan_operators_max"), "{error}");
        assert_eq!(row(&mut session, "SELECT a FROM t").await, "1");
        // It is described without being planned.
        let prepare = format!("PREPARE too_large AS {statement}");
        assert_eq!(refused(&mut session, &prepare).await.sqlstate(), "54001");
    }
    run(&mut session, "SET plan_operators_max = 100").await;
    let small = chain(6, "NOT MATERIALIZED");
    assert_eq!(refused(&mut session, &small).await.sqlstate(), "54001");
    let union = format!("SELECT 1{}", " UNION ALL SELECT 1".repeat(60));
    assert_eq!(refused(&mut session, &union).await.sqlstate(), "54001");
    run(&mut session, "RESET plan_operators_max").await;
    assert_eq!(row(&mut session, &small).await, "1");
}

#[tokio::test]
async fn planning_ends_with_its_statement() {
    let (_directory, database) = fresh().await;
    let mut session = database.session();
    let long = take_long(&mut session, 500).await;
    let error = refused(&mut session, &long).await;
    assert!(["57014", "53200"].contains(&error.sqlstate()), "{error}");
    // The first gives its memory back when the present call of a rule ends.
    for asked in [format!("EXPLAIN VERBOSE {long}"), format!("PREPARE p AS {long}")] {
        let error = refused(&mut session, &asked).await;
        assert!(["57014", "53200"].contains(&error.sqlstate()), "{error}");
    }
    assert_eq!(row(&mut session, "SELECT 7").await, "7");
}

/// On one thread.
#[tokio::test]
async fn others_are_served_while_a_statement_is_planned() {
    let (_directory, database) = fresh().await;
    let (mut planning, mut other) = (database.session(), database.session());
    let long = take_long(&mut planning, 4000).await;
    let has_ended = AtomicBool::new(false);
    let plan = async {
        let error = refused(&mut planning, &long).await;
        has_ended.store(true, Ordering::SeqCst);
        error
    };
    let ask = async {
        for number in 0..3 {
            assert_eq!(row(&mut other, &format!("SELECT {number}")).await, number.to_string());
        }
        has_ended.load(Ordering::SeqCst)
    };
    let (error, was_late) = tokio::join!(plan, ask);
    // Where the machine is fast, it reaches the memory of queries first.
    assert!(["57014", "53200"].contains(&error.sqlstate()), "{error}");
    assert!(!was_late, "the other session waited for the plan");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_query_of_with_goes_no_further_than_it_is_read() {
    let (_directory, database) = fresh().await;
    let mut session = database.session();
    let found = rows(
        &mut session,
        "WITH x AS (SELECT value AS a FROM generate_series(1, 1000000000000) AS g(value)) \
         SELECT l.a + r.a FROM (SELECT a FROM x LIMIT 2) AS l CROSS JOIN (SELECT a FROM x LIMIT 1) AS r ORDER BY 1",
    )
    .await;
    assert_eq!(found, ["2", "3"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_of_a_query_of_with_that_outgrow_memory_go_to_a_file() {
    let directory = tempfile::tempdir().unwrap();
    let options = OpenOptions::new(embedded()).create(true).query_memory_bytes(2 << 20);
    let database = Database::open(directory.path(), options).await.unwrap();
    let mut session = database.session();
    let query = "WITH x AS MATERIALIZED (SELECT value AS a, repeat('x', 100) || value AS b FROM \
                 generate_series(1, 100000) AS g(value)) \
                 SELECT (SELECT count(*) FROM x), (SELECT sum(a) FROM x), (SELECT sum(length(b)) FROM x)";
    assert_eq!(rows(&mut session, query).await, ["100000,5000050000,10488895"]);
    let plan = rows(&mut session, &format!("EXPLAIN ANALYZE VERBOSE {query}")).await;
    let head = plan.iter().find(|line| line.contains("WITH x")).unwrap();
    assert!(head.contains("spilled") || head.contains("aside"), "{plan:#?}");
}
