//! Tests of page filters: a device tells which pages have a matching row, and the host reads these alone. Rows are
//! those of a scan of all pages, whatever has become of them.

use std::sync::Arc;

use cleave_host::Database;
use cleave_host::session::Session;

use crate::devices::attach_nas;
use crate::support::{assert_no_leak_soon, fresh, refused, rows, run, sorted};

/// Zone maps say nothing of it.
const MATCHING: &str = "SELECT id, tag, note FROM wide WHERE tag LIKE '%x%' ORDER BY id";

async fn far_rows(database: &Arc<Database>) -> Session {
    let mut session = database.session();
    run(
        &mut session,
        "SET default_device = 'nas'; CREATE TABLE wide (id int PRIMARY KEY, tag text, note text);
         INSERT INTO wide SELECT v, CASE WHEN v / 1000 = 7 THEN 'ax' ELSE 'az' END || v,
             'note ' || v || repeat(md5(v::text), 8) FROM generate_series(1, 60000) AS s(v);
         SET split = host; SET index_scan = off",
    )
    .await;
    session
}

/// Of each scan that is filtered, the pages that were left, and those that there were. Rows with and without a filter
/// are equal.
async fn filtered(session: &mut Session, sql: &str) -> Vec<(usize, usize)> {
    run(session, "SET page_filter = off").await;
    let expected = rows(session, sql).await;
    run(session, "SET page_filter = always").await;
    assert_eq!(rows(session, sql).await, expected, "{sql}");
    let plan = rows(session, &format!("EXPLAIN ANALYZE VERBOSE {sql}")).await;
    let filters = plan.iter().filter(|line| line.contains("pages have a matching row"));
    let numbers = |line: &String| {
        let mut numbers = line.split(' ').filter_map(|word| word.parse().ok());
        (numbers.next().unwrap(), numbers.next().unwrap())
    };
    filters.map(numbers).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_without_a_match_are_not_read() {
    let outside = tempfile::tempdir().unwrap();
    let (_directory, database) = fresh().await;
    let (served, _) = attach_nas(&database, outside.path()).await;
    let mut session = far_rows(&database).await;
    let mut other = database.session();
    let (left, all) = filtered(&mut session, MATCHING).await[0];
    assert!(left < 4 && all > 10, "{left} of {all}");
    let joined =
        "SELECT count(*), min(a.note), max(b.tag) FROM wide a JOIN wide b ON a.id = b.id + 1
        WHERE a.tag LIKE '%x7%' AND b.note LIKE '%99'";
    assert_eq!(filtered(&mut session, joined).await.len(), 2);
    let nothing = "SELECT count(*) FROM wide WHERE tag LIKE '%nothing%'";
    assert_eq!(filtered(&mut session, nothing).await, [(0, all)]);
    // Rows on no page, of others and of the block itself; rows that were changed where they lie.
    run(&mut other, "INSERT INTO wide VALUES (70000, 'ax', 'new')").await;
    assert_eq!(filtered(&mut session, MATCHING).await.len(), 1);
    run(&mut session, "BEGIN ISOLATION LEVEL REPEATABLE READ").await;
    run(&mut session, "INSERT INTO wide VALUES (70001, 'ax', 'own')").await;
    assert_eq!(filtered(&mut session, MATCHING).await.len(), 1);
    run(
        &mut other,
        "UPDATE wide SET tag = 'x' WHERE id % 500 = 0; DELETE FROM wide WHERE id % 30 = 0; VACUUM wide",
    )
    .await;
    assert_eq!(filtered(&mut session, MATCHING).await.len(), 1);
    run(&mut session, "COMMIT").await;
    assert_eq!(filtered(&mut session, MATCHING).await.len(), 1);
    for setting in ["ndp = off", "stack = native", "stack = blk"] {
        run(&mut session, &format!("SET {setting}")).await;
        assert_eq!(filtered(&mut session, MATCHING).await, [], "{setting}");
        run(&mut session, "RESET ndp; RESET stack").await;
    }
    run(&mut session, "RESET split; SET page_filter = off").await;
    let all = "SELECT a.id, b.note FROM wide a JOIN wide b ON a.id = b.id WHERE a.tag LIKE '%x%'";
    let mut found = Vec::new();
    for transfer in ["auto", "native", "pages", "rows"] {
        run(&mut session, &format!("SET transfer = {transfer}")).await;
        found.push(sorted(&mut session, all).await);
        let plan = rows(&mut session, &format!("EXPLAIN ANALYZE VERBOSE {all}")).await.join("\n");
        let (is_native, is_rows) = (transfer == "native", transfer == "rows");
        let is_filtered = plan.contains("pages have a matching row");
        assert_eq!(is_filtered, transfer == "pages", "{transfer}:\n{plan}");
        assert_eq!(plan.contains("wide: host, transfer is native"), is_native, "{plan}");
        if transfer != "auto" {
            assert_eq!(plan.contains("FragmentExec"), is_rows, "{transfer}:\n{plan}");
            assert_eq!(plan.contains("wide: host, "), !is_rows, "{transfer}:\n{plan}");
        }
        assert!(!is_rows || !plan.contains("host took"), "{plan}");
    }
    assert!(found.iter().all(|rows| *rows == found[0]) && found[0].len() > 900);
    run(&mut session, "RESET transfer; SET split = host").await;
    let failing = "SELECT count(*) FROM wide WHERE 1 / (id - 7) > 0";
    assert_eq!(refused(&mut session, failing).await.sqlstate(), "22012");
    assert_no_leak_soon(&database).await;
    drop(served);
}
