//! Tests of join keys above a cut that are sent to the device as Bloom filters: fewer rows come back, with the same
//! result.

use cleave_host::Session;

use crate::support::{fresh, row, rows, run};

/// Rows of `many`, of which every tenth has a key of `wanted`.
const MANY: usize = 120_000;

async fn two_tables(session: &mut Session) {
    run(session, "CREATE TABLE wanted (id int PRIMARY KEY, part int, key bigint, name text)").await;
    run(session, "CREATE TABLE many (id int PRIMARY KEY, part int, key bigint, name text)").await;
    let wanted = "SELECT v, v % 500, v::bigint * 1000003, 'name ' || v FROM generate_series(1, 110000) AS s(v)";
    run(session, &format!("INSERT INTO wanted {wanted}")).await;
    // A NULL is no key of anything.
    let many = format!(
        "SELECT v, v % 500, CASE WHEN v % 1000 = 1 THEN NULL WHEN v % 10 = 0 THEN v::bigint * 1000003 ELSE v::bigint \
            * 1000003 + 1 END, \
         CASE WHEN v % 10 = 0 THEN 'name ' || v ELSE 'no name ' || v END FROM generate_series(1, {MANY}) AS s(v)"
    );
    run(session, &format!("INSERT INTO many {many}")).await;
}

/// More integers than cross as a set; texts; keys of two parts, of which one is no help.
const JOINS: [&str; 3] = [
    "SELECT count(*), sum(m.id), max(w.id) FROM wanted w JOIN many m ON w.key = m.key",
    "SELECT count(*), sum(m.id), max(w.id) FROM wanted w JOIN many m ON w.name = m.name WHERE w.id < 5000 AND m.id < \
        60000",
    "SELECT count(*), sum(m.id), max(w.id) FROM wanted w JOIN many m ON w.part = m.part AND w.name = m.name \
     WHERE w.id < 5000 AND m.id < 60000",
];

/// The rows that came over the cut above `many`, and the line about filters.
fn of_many(plan: &str) -> (usize, Option<&str>) {
    let fragment = plan.split("  scans: many on device").nth(1).unwrap_or_default();
    let value = |name: &str| {
        let line = fragment.lines().find_map(|line| line.trim().strip_prefix(name));
        line.map(str::trim)
    };
    (
        value("rows: ").and_then(|count| count.parse().ok()).unwrap_or_else(|| panic!("{plan}")),
        value("key filters: "),
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_that_are_no_set_leave_rows_out_on_the_device() {
    let (_directory, database) = fresh().await;
    let mut session = database.session();
    two_tables(&mut session).await;
    run(&mut session, "SET stealing = off").await;
    for sql in JOINS {
        run(&mut session, "SET split = host; SET key_filters = off").await;
        let expected = row(&mut session, sql).await;
        for split in ["h0", "h1", "ndp"] {
            run(&mut session, &format!("SET split = {split}; SET key_filters = always")).await;
            assert_eq!(row(&mut session, sql).await, expected, "{split}: {sql}");
        }
        run(&mut session, "SET split = h0; SET key_filters = off").await;
        let plan = rows(&mut session, &format!("EXPLAIN ANALYZE VERBOSE {sql}")).await.join("\n");
        let (without, filters) = of_many(&plan);
        assert_eq!(filters, None, "{plan}");
        assert!(!plan.contains("CollectKeysExec"), "{plan}");
        for setting in ["on", "always"] {
            run(&mut session, &format!("SET key_filters = {setting}")).await;
            let plan =
                rows(&mut session, &format!("EXPLAIN ANALYZE VERBOSE {sql}")).await.join("\n");
            let (with, filters) = of_many(&plan);
            assert!(plan.contains("CollectKeysExec: ["), "{plan}");
            assert!(filters.is_some_and(|filters| filters.starts_with("1, ")), "{plan}");
            // Whether it is tested for each page, after the first 65,536 rows, depends on the machine's pace.
            assert!(with * 3 < without * 2, "{setting}: {with} of {without}\n{plan}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_filter_that_saves_less_than_it_takes_stays_on_the_host() {
    let (_directory, database) = fresh().await;
    let mut session = database.session();
    run(&mut session, "CREATE TABLE wanted (name text)").await;
    run(&mut session, "CREATE TABLE many (id int, name text)").await;
    run(
        &mut session,
        "INSERT INTO wanted SELECT 'name ' || v FROM generate_series(1, 2000) AS s(v)",
    )
    .await;
    // All of them are wanted.
    run(
        &mut session,
        "INSERT INTO many SELECT v, 'name ' || (v % 2000 + 1) FROM generate_series(1, 9000) AS s(v)",
    )
    .await;
    run(&mut session, "ANALYZE; SET split = h0; SET stealing = off").await;
    let sql = "SELECT count(*), sum(m.id) FROM wanted w JOIN many m ON w.name = m.name";
    assert_eq!(row(&mut session, sql).await, "9000,40504500");
    let plan = rows(&mut session, &format!("EXPLAIN ANALYZE VERBOSE {sql}")).await.join("\n");
    assert_eq!(of_many(&plan), (9000, None), "{plan}");
    // A device of little memory is not filled with filters either.
    run(&mut session, "SET key_filters = always; SET device_memory = '1MB'").await;
    assert_eq!(row(&mut session, sql).await, "9000,40504500");
    let plan = rows(&mut session, &format!("EXPLAIN ANALYZE VERBOSE {sql}")).await.join("\n");
    assert!(!plan.contains("ran on the host: "), "{plan}");
    assert!(of_many(&plan).1.is_some(), "{plan}");
}
