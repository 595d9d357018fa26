//! Tests of joins on a device: where they run, their limits, and what happens beyond these.

use std::collections::BTreeSet;

use cleave_host::Session;

use crate::support::{batches, fresh, numbered, row, rows, run};

async fn two_tables(session: &mut Session) {
    run(session, "CREATE TABLE few (id int PRIMARY KEY, kind int)").await;
    run(session, "CREATE TABLE many (id int PRIMARY KEY, few int, note text)").await;
    run(session, "INSERT INTO few SELECT v, v % 7 FROM generate_series(1, 20000) AS s(v)").await;
    run(
        session,
        "INSERT INTO many SELECT v, v % 20000, 'note ' || v FROM generate_series(1, 60000) AS s(v)",
    )
    .await;
}

const JOINED: &str =
    "SELECT count(*), sum(m.id), max(f.kind) FROM few f JOIN many m ON f.id = m.few";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_join_runs_below_the_cut_and_says_how_many_rows_it_had() {
    let (_directory, database) = fresh().await;
    let mut session = database.session();
    two_tables(&mut session).await;
    run(&mut session, "SET split = host").await;
    let expected = row(&mut session, JOINED).await;
    for split in ["h0", "h1", "ndp"] {
        run(&mut session, &format!("SET split = {split}")).await;
        assert_eq!(row(&mut session, JOINED).await, expected, "{split}");
    }
    run(&mut session, "SET split = h1").await;
    let plan = rows(&mut session, &format!("EXPLAIN ANALYZE VERBOSE {JOINED}")).await.join("\n");
    let joins: Vec<&str> = plan.lines().filter(|line| line.contains("HashJoinExec:")).collect();
    assert!(joins.len() == 1 && joins[0].contains("[embedded]"), "{plan}");
    assert!(joins[0].contains("(rows=59997, "), "{plan}");
    // Both tables are of one fragment, and so are their pages.
    assert!(plan.contains("  scans: few, many on device"), "{plan}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_sorted_or_limited_below_a_join_is_so_above_the_cut() {
    let (_directory, database) = fresh().await;
    let mut session = database.session();
    run(&mut session, "CREATE TABLE loaded (id int PRIMARY KEY, note text)").await;
    // Enough pages for several partitions, each of which has keys from everywhere.
    let load =
        (0..4).map(|part| numbered((0..70_000).map(move |n| (n * 7919) % 70_001 * 4 + part)));
    session.load("loaded", batches(load.collect()), None).await.unwrap();
    let sorted = "SELECT a.note, b.id FROM loaded a JOIN loaded b ON a.id = b.id + 3 WHERE a.id < 30000 ORDER BY b.id";
    let limited = "SELECT count(*) FROM (VALUES (1), (2)) AS v (n) \
        JOIN (SELECT id FROM loaded ORDER BY note, id LIMIT 9 OFFSET 2) AS few ON few.id > v.n - 1000";
    let grouped = "SELECT count(*), sum(parts) FROM (VALUES (1), (2)) AS v (n) \
        JOIN (SELECT id % 50000 AS half, count(*) AS parts FROM loaded GROUP BY half) AS g ON g.half > v.n * 1000";
    run(&mut session, "SET split = host").await;
    let mut expected = Vec::new();
    for query in [sorted, limited, grouped] {
        expected.push(rows(&mut session, query).await);
    }
    for way in [
        "SET split = 'h1'; SET batch_size = 100",
        "SET threads = 1",
        "SET device_memory = '1MB'; SET device_spill = 0",
    ] {
        run(&mut session, way).await;
        for (query, expected) in [sorted, limited, grouped].iter().zip(&expected) {
            assert_eq!(&rows(&mut session, query).await, expected, "{way}: {query}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_join_that_outgrows_its_memory_and_has_no_space_runs_on_the_host() {
    let (_directory, database) = fresh().await;
    let mut session = database.session();
    two_tables(&mut session).await;
    run(&mut session, "SET split = host").await;
    let wide = "SELECT count(*), sum(a.id), min(b.note) FROM many a JOIN many b ON a.note = b.note";
    let expected = row(&mut session, wide).await;
    run(&mut session, "SET device_memory = '1MB'; SET device_spill = 0").await;
    for split in ["h1", "ndp"] {
        run(&mut session, &format!("SET split = {split}")).await;
        assert_eq!(row(&mut session, wide).await, expected, "{split}");
        let plan = rows(&mut session, &format!("EXPLAIN ANALYZE VERBOSE {wide}")).await.join("\n");
        assert!(plan.contains("ran on the host: "), "{split}: {plan}");
    }
    // What it took is given back: one that fits runs on the device.
    run(&mut session, "RESET device_memory").await;
    let plan = rows(&mut session, &format!("EXPLAIN ANALYZE VERBOSE {wide}")).await.join("\n");
    assert!(!plan.contains("ran on the host: "), "{plan}");
}

/// The operators of a plan, host and devices, indented as EXPLAIN has them; a join's first input comes first.
fn operators(plan: &[String]) -> Vec<(usize, String)> {
    let line = |line: &String| {
        let text = line.trim_start();
        (line.len() - text.len(), text.to_owned())
    };
    plan.iter().map(line).collect()
}

/// Which of the tables a, b, c each join has below it.
fn joined_sets(operators: &[(usize, String)]) -> Vec<BTreeSet<&'static str>> {
    let is_scan = |text: &str, table: &str| {
        text.contains("TableScanExec") && text.contains(&format!(": {table} ["))
    };
    let joins = operators.iter().enumerate().filter(|(_, (_, text))| text.contains("JoinExec"));
    let below = joins.map(|(place, (depth, _))| {
        let inside = operators[place + 1..].iter().take_while(|(inner, _)| inner > depth);
        let tables = inside
            .flat_map(|(_, text)| ["a", "b", "c"].into_iter().filter(|table| is_scan(text, table)));
        tables.collect()
    });
    below.collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn join_hints_hold_below_cuts() {
    let (_directory, database) = fresh().await;
    let mut session = database.session();
    for (table, rows) in [("a", 50), ("b", 500), ("c", 5000)] {
        run(&mut session, &format!("CREATE TABLE {table} (id int PRIMARY KEY, next int)")).await;
        let values = format!("SELECT v, v % 50 + 1 FROM generate_series(1, {rows}) AS s(v)");
        run(&mut session, &format!("INSERT INTO {table} {values}")).await;
    }
    let joined = "count(*), sum(c.id) FROM a JOIN b ON a.id = b.next JOIN c ON b.id = c.next";
    let expected = row(&mut session, &format!("SELECT {joined}")).await;
    for split in ["host", "h0", "h1", "h2", "h1+", "ndp"] {
        for hints in
            ["join_order(c b)", "join_order(a c)", "join_order(c b a) join_method(nested_loop)"]
        {
            let query = format!("SELECT /*+ split({split}) {hints} */ {joined}");
            assert_eq!(row(&mut session, &query).await, expected, "{query}");
            let plan = rows(&mut session, &format!("EXPLAIN VERBOSE {query}")).await;
            let shown = operators(&plan);
            let method = match (hints.contains("nested"), hints.contains("a c")) {
                (true, _) => "NestedLoopJoinExec",
                (_, true) => "CrossJoinExec",
                _ => "HashJoinExec",
            };
            assert!(shown.iter().any(|(_, text)| text.contains(method)), "{query}: {plan:#?}");
            assert_eq!(
                hints.contains("nested"),
                !shown.iter().any(|(_, text)| text.contains("HashJoin"))
            );
            // The two that are to be joined first are joined, and nothing with them.
            let first = if hints.contains("a c") { ["a", "c"] } else { ["b", "c"] };
            assert!(joined_sets(&shown).contains(&BTreeSet::from(first)), "{query}: {plan:#?}");
        }
    }
}
