//! Tests of late materialisation: wide columns that joins only carry are fetched above them, by references, with the
//! same result.

use cleave_host::Session;

use crate::support::{fresh, rows, run};

async fn three_tables(session: &mut Session) {
    run(session, "CREATE TABLE few (id int PRIMARY KEY, kind int, label text)").await;
    run(
        session,
        "CREATE TABLE many (id int PRIMARY KEY, few int, note text, other text, more int)",
    )
    .await;
    run(session, "CREATE TABLE last (many int, remark text)").await;
    run(
        session,
        "INSERT INTO few SELECT v, v % 7, 'label ' || v FROM generate_series(1, 300) AS s(v)",
    )
    .await;
    // Some notes lie on pages of their own, and some are NULL.
    run(
        session,
        "INSERT INTO many SELECT v, v % 3000, CASE WHEN v % 1000 = 3 THEN repeat('long ' || v, 20000) WHEN v % 5 = 1 \
            THEN NULL \
         ELSE 'note ' || v END, 'other ' || v, v * 2 FROM generate_series(1, 20000) AS s(v)",
    )
    .await;
    run(
        session,
        "INSERT INTO last SELECT v * 2, 'remark ' || v FROM generate_series(1, 5000) AS s(v)",
    )
    .await;
}

const QUERIES: [&str; 5] = [
    "SELECT count(*), min(m.note), max(length(m.note)), sum(length(m.other)), max(f.label) FROM few f JOIN many m ON \
        f.id = m.few",
    "SELECT count(*), min(m.note), count(m.note), max(l.remark), min(f.label), sum(m.more) \
     FROM few f JOIN many m ON f.id = m.few JOIN last l ON l.many = m.id WHERE f.kind = 3",
    "SELECT m.id, m.note, l.remark, m.other FROM few f JOIN many m ON f.id = m.few AND f.kind < m.more JOIN last l \
        ON l.many = m.id \
     WHERE f.kind = 2 ORDER BY m.id LIMIT 20",
    "SELECT a.note, b.other FROM many a JOIN many b ON a.id = b.few WHERE a.few < 30 ORDER BY b.id, a.id LIMIT 50",
    "SELECT substr(m.note, 1, 20), m.other FROM few f JOIN many m ON f.id = m.few WHERE f.id = 3 ORDER BY m.id",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn columns_fetched_late_are_those_that_joins_would_have_carried() {
    let (_directory, database) = fresh().await;
    let mut session = database.session();
    three_tables(&mut session).await;
    for sql in QUERIES {
        run(&mut session, "SET split = host; SET late_materialisation = off").await;
        let expected = rows(&mut session, sql).await;
        for split in ["h1", "h2", "ndp"] {
            for setting in ["off", "on", "always"] {
                run(
                    &mut session,
                    &format!("SET split = {split}; SET late_materialisation = {setting}"),
                )
                .await;
                if split == "h2" && !sql.contains("JOIN last") {
                    continue;
                }
                assert_eq!(rows(&mut session, sql).await, expected, "{split}, {setting}: {sql}");
            }
        }
        run(&mut session, "SET split = h1; SET late_materialisation = always").await;
        let plan = rows(&mut session, &format!("EXPLAIN ANALYZE VERBOSE {sql}")).await.join("\n");
        assert!(plan.contains("[embedded] FetchColumnsExec: "), "{plan}");
        assert!(!plan.contains("ran on the host"), "{plan}");
        run(&mut session, "SET late_materialisation = off").await;
        let plan = rows(&mut session, &format!("EXPLAIN VERBOSE {sql}")).await.join("\n");
        assert!(!plan.contains("FetchColumnsExec"), "{plan}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn they_are_fetched_late_where_few_of_many_rows_are_left() {
    let (_directory, database) = fresh().await;
    let mut session = database.session();
    three_tables(&mut session).await;
    run(&mut session, "ANALYZE; SET split = h1").await;
    let few = "SELECT count(*), min(m.note), min(m.other) FROM few f JOIN many m ON f.id = m.few WHERE f.kind = 3";
    let plan = rows(&mut session, &format!("EXPLAIN VERBOSE {few}")).await.join("\n");
    assert!(plan.contains("FetchColumnsExec: many [note, other]"), "{plan}");
    // Nothing is saved where nearly all rows are left.
    let all = "SELECT count(*), min(m.note), min(m.other) FROM few f JOIN many m ON f.id <= m.few AND f.kind = m.few \
        % 7";
    let plan = rows(&mut session, &format!("EXPLAIN VERBOSE {all}")).await.join("\n");
    assert!(!plan.contains("FetchColumnsExec"), "{plan}");
}
