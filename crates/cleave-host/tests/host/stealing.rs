//! Tests of stealing: host and device work on one fragment, with the same rows however its morsels are shared, and when
//! a side fails.

use std::sync::Arc;

use cleave_host::{Database, OpenOptions, Session};

use crate::devices::{Served, TOKEN, anywhere, remote, token_file};
use crate::support::{assert_no_leak, embedded, fresh, row, rows, run, sorted};

/// Two tables of many pages on a device far away.
pub(crate) async fn two_tables(
    outside: &std::path::Path,
) -> (tempfile::TempDir, Arc<Database>, Served, Session) {
    let (directory, database) = fresh().await;
    let served = Served::start(&outside.join("nas.media"), [1; 16], anywhere()).await;
    let device = remote(served.address, token_file(outside, TOKEN));
    database.add_device("nas", device).await.unwrap();
    let mut session = database.session();
    run(&mut session, "SET default_device = 'nas'").await;
    fill(&mut session).await;
    (directory, database, served, session)
}

/// Makes the two tables on the session's device.
pub(crate) async fn fill(session: &mut Session) {
    run(session, "CREATE TABLE few (id int PRIMARY KEY, kind int)").await;
    run(session, "CREATE TABLE many (id int PRIMARY KEY, few int, note text)").await;
    // Each statement begins a page of its own.
    for first in (1..60_000).step_by(2000) {
        let last = first + 1999;
        let numbers = format!("FROM generate_series({first}, {last}) AS s(v)");
        if first < 4000 {
            run(session, &format!("INSERT INTO few SELECT v, v % 7 {numbers}")).await;
        }
        let row = "v, nullif(v % 5000, 0), 'note ' || v || repeat('x', v % 90)";
        run(session, &format!("INSERT INTO many SELECT {row} {numbers}")).await;
    }
}

/// Statements, and whether both sides may share the streamed rows of one of their fragments.
pub(crate) const STATEMENTS: [(&str, bool); 11] = [
    ("SELECT id, note FROM many WHERE id % 3 = 0", true),
    ("SELECT count(*), sum(id), min(note) FROM many WHERE note LIKE '%9%'", true),
    ("SELECT few, count(*), max(note) FROM many GROUP BY few", true),
    ("SELECT id, note FROM many ORDER BY note DESC, id LIMIT 7", true),
    ("SELECT m.id, f.kind FROM few f JOIN many m ON f.id = m.few WHERE m.id % 5 = 1", true),
    ("SELECT m.id, f.kind FROM few f RIGHT JOIN many m ON f.id = m.few WHERE m.id % 5 = 1", true),
    ("SELECT count(*) FROM many m WHERE EXISTS (SELECT FROM few f WHERE f.id = m.few)", true),
    ("SELECT count(*) FROM many m WHERE NOT EXISTS (SELECT FROM few f WHERE f.id = m.few)", true),
    (
        "SELECT count(*) FROM few a JOIN many b ON a.id < b.few AND a.kind > b.id % 5 \
         WHERE a.id < 30 AND b.id % 50 = 0",
        true,
    ),
    ("SELECT count(*) FROM few f LEFT JOIN many m ON f.id = m.few AND m.id < 30000", true),
    ("SELECT count(*) FROM (SELECT id FROM many LIMIT 1000) AS some", false),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_are_the_same_however_morsels_are_shared() {
    let outside = tempfile::tempdir().unwrap();
    let (_directory, database, _served, mut session) = two_tables(outside.path()).await;
    for (sql, may_share) in STATEMENTS {
        run(&mut session, "SET split = host").await;
        let expected = sorted(&mut session, sql).await;
        let mut has_shared = false;
        for split in ["h0", "h1", "ndp"] {
            for stealing in ["always", "on", "off"] {
                run(&mut session, &format!("SET split = {split}; SET stealing = {stealing}")).await;
                database.buffer_pool().clear();
                let outcome = session.run(sql).await;
                if outcome.is_err_and(|error| error.to_string().contains("cannot run this")) {
                    continue;
                }
                let found = sorted(&mut session, sql).await;
                assert_eq!(found, expected, "{split}, stealing {stealing}: {sql}");
                if stealing != "on" {
                    let plan =
                        rows(&mut session, &format!("EXPLAIN ANALYZE {sql}")).await.join("\n");
                    let took = plan.contains("  host took: ");
                    let is_told = plan.contains(" morsels that the host took ────");
                    assert_eq!(took, is_told, "{sql}: {plan}");
                    for what in
                        ["host waited: |", "device worked: |", "device stalled: |", "link: |"]
                    {
                        // A run whose last row was not asked for says nothing.
                        let is_told = plan.contains(&format!("  timeline, {what}"));
                        let is_heard = split == "h0" && !sql.contains("LIMIT");
                        assert!(is_told || !is_heard, "{what}: {plan}");
                    }
                    assert!(stealing == "always" || !took, "{sql}: {plan}");
                    has_shared |= took;
                }
            }
        }
        // On a busy machine a device may be done before the host's thread runs.
        let mut attempts = 20;
        while may_share && !has_shared && attempts > 0 {
            attempts -= 1;
            run(&mut session, "SET split = h0; SET stealing = always").await;
            database.buffer_pool().clear();
            let plan = rows(&mut session, &format!("EXPLAIN ANALYZE {sql}")).await.join("\n");
            has_shared = plan.contains("  host took: ");
        }
        assert_eq!(has_shared, may_share, "{sql}");
        run(&mut session, "RESET stealing").await;
    }
    assert_no_leak(&database);
}

/// Statements whose whole plan is one fragment that cannot be divided.
const UNDIVIDED: [&str; 4] = [
    "SELECT few, count(*), max(note) FROM many GROUP BY few",
    "SELECT kind, count(*) FROM few f JOIN many m ON f.id = m.few GROUP BY kind HAVING count(*) > 3",
    "SELECT f.id, count(m.id) FROM few f LEFT JOIN many m ON f.id = m.few GROUP BY f.id",
    "SELECT DISTINCT few FROM many WHERE note LIKE '%9%' ORDER BY few",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_cannot_be_divided_is_taken_back_before_its_first_row() {
    let outside = tempfile::tempdir().unwrap();
    let (_directory, database, _served, mut session) = two_tables(outside.path()).await;
    for sql in UNDIVIDED {
        run(&mut session, "SET split = host").await;
        let expected = sorted(&mut session, sql).await;
        for (stealing, is_taken_back) in [("always", true), ("off", false)] {
            run(&mut session, &format!("SET split = ndp; SET stealing = {stealing}")).await;
            assert_eq!(sorted(&mut session, sql).await, expected, "stealing {stealing}: {sql}");
            let plan = rows(&mut session, &format!("EXPLAIN ANALYZE {sql}")).await.join("\n");
            let said = plan.contains("decided again: for the host: it was far slower than");
            assert_eq!(said, is_taken_back, "{plan}");
        }
        // Whatever the paces are, the rows are the same.
        run(&mut session, "SET stealing = on").await;
        assert_eq!(sorted(&mut session, sql).await, expected, "{sql}");
    }
    assert_no_leak(&database);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn build_sides_that_do_not_fit_on_the_host_leave_everything_to_the_device() {
    let outside = tempfile::tempdir().unwrap();
    let (directory, database, _served, session) = two_tables(outside.path()).await;
    drop((session, database));
    let options = OpenOptions::new(embedded()).query_memory_bytes(1 << 20);
    let database = Database::open(directory.path(), options).await.unwrap();
    let mut session = database.session();
    run(&mut session, "SET split = h1; SET stealing = always").await;
    // The build side is wide, and comes before anything streams.
    assert_eq!(row(&mut session, SELF_JOIN).await, expected_of_self_join());
    let plan = rows(&mut session, &format!("EXPLAIN ANALYZE {SELF_JOIN}")).await.join("\n");
    assert!(plan.contains("  host took nothing: "), "{plan}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_outgrows_its_memory_is_finished_whoever_has_begun() {
    let outside = tempfile::tempdir().unwrap();
    let (_directory, database, _served, mut session) = two_tables(outside.path()).await;
    run(&mut session, "SET split = h1; SET device_memory = '1MB'").await;
    for device_spill in ["0B", "256MB"] {
        for stealing in ["always", "on", "off"] {
            run(&mut session, &format!("SET device_spill = '{device_spill}'")).await;
            run(&mut session, &format!("SET stealing = {stealing}")).await;
            database.buffer_pool().clear();
            let found = row(&mut session, SELF_JOIN).await;
            assert_eq!(found, expected_of_self_join(), "{device_spill}, stealing {stealing}");
        }
    }
    assert_no_leak(&database);
}

/// A join whose build side is wide.
pub(crate) const SELF_JOIN: &str =
    "SELECT count(*), sum(a.id), max(b.note) FROM many a JOIN many b ON a.note = b.note";

/// Every note occurs once.
pub(crate) fn expected_of_self_join() -> String {
    let count: i64 = 60_000;
    let greatest = (1..=count).map(|v| format!("note {v}{}", "x".repeat((v % 90) as usize))).max();
    format!("{count},{},{}", count * (count + 1) / 2, greatest.unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_statement_given_up_midway_leaves_nothing_behind() {
    let outside = tempfile::tempdir().unwrap();
    let (_directory, database, _served, mut session) = two_tables(outside.path()).await;
    run(&mut session, "SET split = h1; SET stealing = always; SET slot_bytes = '4kB'").await;
    let sql = "SELECT m.id, m.note, f.kind FROM few f JOIN many m ON f.id = m.few";
    for _ in 0..4 {
        let given_up = std::time::Duration::from_millis(30);
        drop(tokio::time::timeout(given_up, session.run(sql)).await);
    }
    let device = database.device_named("nas").unwrap();
    let status = async || match device
        .call("tell its status", cleave_fragment::command::Request::Status)
        .await
    {
        Ok(cleave_fragment::command::Reply::Status(status)) => status,
        other => panic!("{other:?}"),
    };
    for _ in 0..200 {
        let status = status().await;
        if status.runs.is_empty()
            && status.fragment_memory_bytes == status.fragment_memory_bytes_free
        {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(25)).await;
    }
    panic!("runs or memory stay: {:?}", status().await);
}
