//! Tests of recursive queries as fragments: the same rows as on the host in every attach mode and split, within the
//! memory that the device has, and ended by whoever gives them up.

use std::time::Duration;

use cleave_host::{Error, Session};
use cleave_media::Stopwatch;

use crate::index_filter::{attached, session_on};
use crate::support::{answer, fresh, refused, row, rows, run};

/// A graph of 4,000 nodes with about four links each, some of which go in circles; its index has links by target.
async fn graph(session: &mut Session) {
    run(
        session,
        "CREATE TABLE node (id int PRIMARY KEY, kind int, name text);
         CREATE TABLE link (a int NOT NULL, b int, weight numeric(6, 2), note text, PRIMARY KEY (a, note));
         CREATE INDEX link_b ON link (b);
         INSERT INTO node SELECT i, i % 7, CASE WHEN i % 5 > 0 THEN 'node ' || (i % 900) END
            FROM generate_series(1, 4000) AS s (i);
         INSERT INTO link SELECT i, 1 + (i * 37 + n * n * 611) % 4000, i * 0.01 + n, 'link ' || n
            FROM generate_series(1, 4000) AS s (i), generate_series(1, 4) AS t (n);
         ANALYZE",
    )
    .await;
    // Rows that are gone, changed, new, and not on a page yet.
    run(
        session,
        "DELETE FROM link WHERE a % 11 = 3 AND note = 'link 2';
         UPDATE link SET b = NULL WHERE a % 13 = 1 AND note = 'link 3';
         UPDATE link SET b = a WHERE a = 17; INSERT INTO link VALUES (17, 1, 0.5, 'new'), (4, 17, 0.25, 'new')",
    )
    .await;
}

/// Recursions of all kinds, from tables on one device.
const FROM_TABLES: [&str; 10] = [
    "WITH RECURSIVE r (id, depth) AS (SELECT id, 0 FROM node WHERE id < 4 UNION ALL \
     SELECT l.b, r.depth + 1 FROM r JOIN link l ON l.a = r.id WHERE r.depth < 4) \
     SELECT depth, count(*), count(DISTINCT id), sum(id) FROM r GROUP BY depth",
    "WITH RECURSIVE r (id, depth) AS (SELECT id, 0 FROM node WHERE id < 40 UNION \
     SELECT l.b, r.depth + 1 FROM r JOIN link l ON l.a = r.id WHERE r.depth < 5) \
     SELECT depth, count(*), count(id), min(id), max(id) FROM r GROUP BY depth",
    // Without a bound: the rows are nodes that can be reached.
    "WITH RECURSIVE r (id) AS (SELECT id FROM node WHERE id = 17 UNION SELECT l.b FROM r JOIN link l ON l.a = r.id) \
     SELECT count(*), sum(id), count(id) FROM r",
    // Backwards, by the other index; rows as they come.
    "WITH RECURSIVE r (id, by) AS (SELECT id, name FROM node WHERE id BETWEEN 5 AND 8 UNION \
     SELECT l.a, l.note FROM r JOIN link l ON l.b = r.id WHERE l.weight < 9) SELECT id, by FROM r",
    // Two joins a round, and one above.
    "WITH RECURSIVE r (id, name, depth) AS (SELECT id, name, 0 FROM node WHERE kind = 3 AND id < 100 UNION ALL \
     SELECT n.id, n.name, r.depth + 1 FROM r JOIN link l ON l.a = r.id JOIN node n ON n.id = l.b \
     WHERE r.depth < 3 AND n.kind <> 2) \
     SELECT n.kind, r.depth, count(*), min(r.name) FROM r JOIN node n ON n.id = r.id GROUP BY n.kind, r.depth",
    "WITH RECURSIVE r (id, depth) AS (SELECT id, 0 FROM node WHERE id < 30 UNION \
     SELECT l.b, r.depth + 1 FROM r JOIN link l ON l.a = r.id WHERE r.depth < 4) \
     SELECT r.id, r.depth, n.name FROM r JOIN node n ON n.id = r.id ORDER BY r.depth DESC, r.id LIMIT 25",
    // Texts and numbers that grow round by round; NULL is no key.
    "WITH RECURSIVE r (id, path, total) AS (SELECT id, name, 0::numeric(9, 2) FROM node WHERE id < 12 UNION ALL \
     SELECT l.b, r.path || '-' || l.note, (r.total + l.weight)::numeric(9, 2) FROM r JOIN link l ON l.a = r.id \
     WHERE length(r.path) < 30) SELECT id, path, total FROM r",
    // Outer and semi joins that keep all of a round.
    "WITH RECURSIVE r (id, depth) AS (SELECT id, 0 FROM node WHERE id < 50 UNION \
     SELECT coalesce(l.b, -1), r.depth + 1 FROM r LEFT JOIN link l ON l.a = r.id AND l.note = 'link 3' \
     WHERE r.depth < 4 AND r.id IN (SELECT id FROM node WHERE kind < 6)) SELECT id, depth FROM r",
    // No table in the recursive term.
    "WITH RECURSIVE r (id, n) AS (SELECT id, 1 FROM node WHERE id < 6 UNION ALL SELECT id, n + 1 FROM r WHERE n < id) \
     SELECT id, count(*), max(n) FROM r GROUP BY id",
    // One that starts from the rounds of another.
    "WITH RECURSIVE r (id, depth) AS (SELECT id, 0 FROM node WHERE id < 3 UNION \
     SELECT l.b, r.depth + 1 FROM r JOIN link l ON l.a = r.id WHERE r.depth < 2), \
     q (id, depth) AS (SELECT id, depth FROM r UNION SELECT l.a, q.depth + 10 FROM q JOIN link l ON l.b = q.id \
     WHERE q.depth < 12) SELECT depth, count(*), sum(id) FROM q GROUP BY depth",
];

/// Recursions that begin with rows of the host's, which are sent; or that a device cannot run, or should not.
const OTHERS: [&str; 6] = [
    "WITH RECURSIVE r (id, depth) AS (VALUES (1, 0), (9, 0) UNION SELECT l.b, r.depth + 1 FROM r \
     JOIN link l ON l.a = r.id WHERE r.depth < 4) SELECT depth, count(*), sum(id) FROM r GROUP BY depth",
    "WITH RECURSIVE k AS (SELECT id, kind FROM node WHERE id % 1000 = 5), \
     r (id, depth) AS (SELECT id, 0 FROM k UNION ALL SELECT l.b, r.depth + 1 FROM r JOIN link l ON l.a = r.id \
     JOIN k ON k.kind + 1 = r.depth + l.b % 3 WHERE r.depth < 4) SELECT id, depth FROM r",
    "WITH RECURSIVE r (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 300) SELECT count(*), sum(n) FROM r",
    "WITH RECURSIVE r (id) AS (SELECT id FROM node WHERE id < 3 UNION SELECT x.b FROM r \
     JOIN (SELECT a, b FROM link UNION ALL SELECT b, a FROM link) AS x ON x.a = r.id WHERE x.b < 500) \
     SELECT count(*), sum(id) FROM r",
    "SELECT (WITH RECURSIVE r (id) AS (SELECT id FROM node WHERE id = 17 UNION SELECT l.b FROM r \
     JOIN link l ON l.a = r.id WHERE l.b < 2000) SELECT count(*) FROM r), count(*) FROM node WHERE kind = 1",
    "WITH RECURSIVE r (id, depth) AS (SELECT id, 0 FROM node WHERE id < 4 UNION ALL \
     SELECT l.b, r.depth + 1 FROM r JOIN link l ON l.a = r.id) SELECT count(*) FROM (SELECT id FROM r LIMIT 900) AS s",
];

const SPLITS: [&str; 7] = ["host", "h0", "h1", "h1+", "h2", "ndp", "auto"];

/// The rows of `sql`, sorted; None where the split cannot run it.
async fn found(session: &mut Session, sql: &str) -> Option<Vec<String>> {
    match session.run(sql).await {
        Ok(_) => Some(answer(session, sql).await),
        Err(Error::Unsupported { .. }) => None,
        Err(error) => panic!("{sql}: {error}"),
    }
}

/// Whether a device has run a recursion of `sql`.
async fn recurses_there(session: &mut Session, sql: &str) -> bool {
    let analyzed = rows(session, &format!("EXPLAIN ANALYZE VERBOSE {sql}")).await;
    let ran_here = analyzed.iter().any(|line| line.contains("ran on the host"));
    let there = |line: &String| line.contains("] RecursionExec") && !line.contains("[host]");
    !ran_here && analyzed.iter().any(there)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn recursions_give_the_same_rows_in_every_attach_mode_and_split() {
    for mode in ["embedded", "remote", "local"] {
        let outside = tempfile::tempdir().unwrap();
        let (_directory, database, _served) = attached(mode, outside.path()).await;
        let mut session = session_on(&database, mode).await;
        graph(&mut session).await;
        for (place, sql) in FROM_TABLES.iter().chain(&OTHERS).enumerate() {
            run(&mut session, "SET split = host; SET index_scan = off").await;
            let expected = found(&mut session, sql).await.unwrap();
            assert!(!expected.is_empty(), "{sql}");
            let mut there = 0;
            for split in SPLITS {
                for index_scan in ["off", "always"] {
                    let set = format!("SET split = '{split}'; SET index_scan = {index_scan}");
                    run(&mut session, &set).await;
                    let Some(found) = found(&mut session, sql).await else { continue };
                    assert_eq!(found, expected, "{mode}, {set}: {sql}");
                    there += usize::from(recurses_there(&mut session, sql).await);
                }
            }
            if place < FROM_TABLES.len() {
                // With `h1` or `h2`, and with `ndp`.
                assert!(there >= 4, "{mode}: a device ran it {there} times: {sql}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_recursion_sees_what_its_transaction_has_changed() {
    let outside = tempfile::tempdir().unwrap();
    let (_directory, database, _served) = attached("remote", outside.path()).await;
    let mut session = database.session();
    run(&mut session, "SET default_device = 'other'").await;
    graph(&mut session).await;
    let reached = FROM_TABLES[2];
    let mut before = Vec::new();
    run(&mut session, "BEGIN").await;
    for change in [
        "SELECT 1",
        "DELETE FROM link WHERE a = 1",
        "INSERT INTO node VALUES (5000, 1, 'new'); INSERT INTO link VALUES (17, 5000, 1, 'newer')",
        "UPDATE link SET b = NULL WHERE note = 'newer'",
    ] {
        run(&mut session, change).await;
        run(&mut session, "SET split = host").await;
        let expected = row(&mut session, reached).await;
        assert!(!before.contains(&expected), "{change} changes what is reached");
        run(&mut session, "SET split = ndp").await;
        assert_eq!(row(&mut session, reached).await, expected, "{change}");
        assert!(recurses_there(&mut session, reached).await);
        before.push(expected);
    }
    run(&mut session, "ROLLBACK").await;
    assert_eq!(row(&mut session, reached).await, before[0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_looks_up_the_keys_of_each_round_in_an_index() {
    let (_directory, database) = fresh().await;
    let mut session = database.session();
    graph(&mut session).await;
    let walk = "WITH RECURSIVE r (id, depth) AS (SELECT id, 0 FROM node WHERE id = 1 UNION \
                SELECT l.b, r.depth + 1 FROM r JOIN link l ON l.a = r.id WHERE r.depth < 2) SELECT count(*) FROM r";
    let mut scanned = Vec::new();
    for split in ["host", "ndp"] {
        for index_scan in ["off", "always"] {
            run(&mut session, &format!("SET split = {split}; SET index_scan = {index_scan}")).await;
            let analyzed = rows(&mut session, &format!("EXPLAIN ANALYZE VERBOSE {walk}")).await;
            let looked_up = analyzed.iter().any(|line| line.contains(" entries on "));
            assert_eq!(looked_up, index_scan == "always", "{split}: {analyzed:#?}");
            scanned.push(analyzed.join("\n"));
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_device_has_no_memory_for_runs_on_the_host() {
    let outside = tempfile::tempdir().unwrap();
    let (_directory, database, _served) = attached("remote", outside.path()).await;
    let mut session = database.session();
    run(&mut session, "SET default_device = 'other'").await;
    graph(&mut session).await;
    let long = "long ".repeat(200);
    let waiting = format!(
        "WITH RECURSIVE r (id, note) AS (SELECT id, name || '{long}' FROM node WHERE id < 20 UNION ALL \
         SELECT r.id + 40, r.note FROM r JOIN node n ON n.id = r.id) SELECT id, note FROM r"
    );
    for sql in [
        // The working table; rows that were seen; rows that wait for the end.
        "WITH RECURSIVE r (id, depth) AS (SELECT id, 0 FROM node WHERE id < 200 UNION ALL \
         SELECT l.b, r.depth + 1 FROM r JOIN link l ON l.a = r.id WHERE r.depth < 5) SELECT count(*), sum(id) FROM r",
        "WITH RECURSIVE r (id, depth) AS (SELECT id, 0 FROM node UNION \
         SELECT l.b, r.depth + 1 FROM r JOIN link l ON l.a = r.id WHERE r.depth < 30) SELECT count(*), sum(id) FROM r",
        waiting.as_str(),
    ] {
        run(&mut session, "SET split = host").await;
        let expected = answer(&mut session, sql).await;
        for split in ["h1", "ndp"] {
            run(&mut session, &format!("SET split = {split}; SET device_memory = '1MB'")).await;
            assert_eq!(answer(&mut session, sql).await, expected, "{split}: {sql}");
            let analyzed =
                rows(&mut session, &format!("EXPLAIN ANALYZE VERBOSE {sql}")).await.join("\n");
            assert!(analyzed.contains("ran on the host: "), "{split}: {analyzed}");
        }
        run(&mut session, "RESET device_memory").await;
        assert_eq!(answer(&mut session, sql).await, expected, "{sql}");
        assert!(recurses_there(&mut session, sql).await, "{sql}");
    }
}

/// A recursion without end, which soon has no new rows to give: its working table stays small.
const ENDLESS: &str = "WITH RECURSIVE r (id) AS (SELECT id FROM node WHERE id < 3 UNION ALL \
                       SELECT n.id FROM r JOIN node n ON n.id = r.id) SELECT count(*) FROM r";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_recursion_without_end_is_given_up() {
    for mode in ["embedded", "remote", "local"] {
        let outside = tempfile::tempdir().unwrap();
        let (_directory, database, _served) = attached(mode, outside.path()).await;
        let mut session = session_on(&database, mode).await;
        graph(&mut session).await;
        // A run that went on would keep its memory, and the next would wait for it.
        for split in ["ndp", "h1", "host", "ndp", "ndp"] {
            run(&mut session, &format!("SET split = {split}; SET statement_timeout = 300")).await;
            let begun = Stopwatch::start();
            let error = refused(&mut session, ENDLESS).await;
            assert_eq!(error.sqlstate(), "57014", "{mode}, {split}: {error}");
            assert!(begun.elapsed() < Duration::from_secs(20), "{mode}, {split}");
            run(&mut session, "RESET statement_timeout").await;
            let given_up = session.run(ENDLESS);
            tokio::time::timeout(Duration::from_millis(100), given_up).await.unwrap_err();
        }
        run(&mut session, "SET split = ndp").await;
        let walk = FROM_TABLES[0];
        let expected = answer(&mut session, walk).await;
        assert!(recurses_there(&mut session, walk).await, "{mode}");
        run(&mut session, "SET split = host").await;
        assert_eq!(answer(&mut session, walk).await, expected);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn splits_of_a_recursion_are_shown_with_their_prices() {
    let outside = tempfile::tempdir().unwrap();
    let (_directory, database, _served) = attached("remote", outside.path()).await;
    let mut session = database.session();
    run(&mut session, "SET default_device = 'other'").await;
    graph(&mut session).await;
    run(&mut session, "SET split = auto").await;
    let explained = rows(&mut session, &format!("EXPLAIN VERBOSE {}", FROM_TABLES[0])).await;
    let has = |text: &str| explained.iter().any(|line| line.contains(text));
    assert!(has("h1") && has("ndp") && has("RecursionExec"), "{explained:#?}");
    // What stays on the host says why.
    run(&mut session, "SET split = ndp").await;
    let error = refused(&mut session, OTHERS[2]).await;
    assert!(error.to_string().contains("cannot run this statement"), "{error}");
}
