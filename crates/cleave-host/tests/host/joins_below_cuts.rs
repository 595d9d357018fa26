//! Joins on a device: where they run, what they may hold, and what becomes of those that cannot have it.

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
    let plan = rows(&mut session, &format!("EXPLAIN ANALYZE {JOINED}")).await.join("\n");
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
    // Pages enough for several copies, of which each has keys from everywhere.
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
        let plan = rows(&mut session, &format!("EXPLAIN ANALYZE {wide}")).await.join("\n");
        assert!(plan.contains("ran on the host: "), "{split}: {plan}");
    }
    // What was taken for it is given back: one that fits runs where it should.
    run(&mut session, "RESET device_memory").await;
    let plan = rows(&mut session, &format!("EXPLAIN ANALYZE {wide}")).await.join("\n");
    assert!(!plan.contains("ran on the host: "), "{plan}");
}
