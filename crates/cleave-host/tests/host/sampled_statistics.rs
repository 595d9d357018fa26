//! Tests of ANALYZE of large tables: what some of the pages tell is close to what all of them do, and says where it is
//! from.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int32Array, RecordBatch, StringArray};
use cleave_host::{Changes, Effort, Session};
use cleave_media::SplitMix64;

use crate::support::{batches, fresh, open, row, rows, run};

const ROWS: i32 = 160_000;
/// Rows of one load, and so of one page.
const PAGE_ROWS: i32 = 1600;

/// Columns that rise as rows are loaded (`id`, `runs` of 400 rows, `long_runs` over 4 pages), are drawn anywhere
/// (`many`, of 5,000; `skewed`, half of whose rows have 5 values; `name`, of which a tenth is NULL), or are few.
fn part(random: &mut SplitMix64, first: i32) -> RecordBatch {
    let ids = first..first + PAGE_ROWS;
    let mut below = |bound: u64| i32::try_from(random.below(bound)).unwrap();
    let many: Int32Array = ids.clone().map(|_| Some(below(5000))).collect();
    let skewed = ids.clone().map(|_| if below(2) == 0 { below(5) } else { 5 + below(3000) });
    let skewed: Int32Array = skewed.map(Some).collect();
    let few: Int32Array = ids.clone().map(|_| Some(i32::from(below(100) < 3))).collect();
    let name = ids.clone().map(|_| (below(10) > 0).then(|| format!("name {}", below(20_000))));
    let name: StringArray = name.collect();
    let columns: [(&str, ArrayRef); 7] = [
        ("id", Arc::new(ids.clone().collect::<Int32Array>())),
        ("runs", Arc::new(ids.clone().map(|id| id / 400).collect::<Int32Array>())),
        ("long_runs", Arc::new(ids.map(|id| id / (4 * PAGE_ROWS)).collect::<Int32Array>())),
        ("many", Arc::new(many)),
        ("skewed", Arc::new(skewed)),
        ("few", Arc::new(few)),
        ("name", Arc::new(name)),
    ];
    RecordBatch::try_from_iter(columns).unwrap()
}

/// A table of 100 pages.
async fn with_events(session: &mut Session) {
    run(
        session,
        "CREATE TABLE events (id int, runs int, long_runs int, many int, skewed int, few int, name text)",
    )
    .await;
    let mut random = SplitMix64::new(17);
    for first in (0..ROWS).step_by(PAGE_ROWS as usize) {
        let part = batches(vec![part(&mut random, first)]);
        session.load("events", part, None).await.unwrap();
    }
}

/// What ANALYZE found of each column with this target: the fields of the listing that are numbers.
async fn analyzed(session: &mut Session, target: u32) -> BTreeMap<String, [f64; 3]> {
    run(session, &format!("SET default_statistics_target = {target}; ANALYZE events")).await;
    let mut found = BTreeMap::new();
    for line in rows(session, "SHOW STATISTICS FOR events").await {
        let fields: Vec<&str> = line.split(',').collect();
        assert_eq!(fields[2], ROWS.to_string(), "rows of the table");
        found.insert(fields[1].to_owned(), [4, 5, 6].map(|place| fields[place].parse().unwrap()));
    }
    found
}

/// Rows that the plan of `sql` expects of its line with `operator`.
async fn expected(session: &mut Session, sql: &str, operator: &str) -> f64 {
    let lines = rows(session, &format!("EXPLAIN VERBOSE {sql}")).await;
    let line = lines.iter().find(|line| line.contains(operator));
    let line = line.unwrap_or_else(|| panic!("{lines:#?}"));
    line.split("expected=").nth(1).unwrap().trim_end_matches(')').parse().unwrap()
}

/// What EXPLAIN says of the statistics of the table.
async fn told(session: &mut Session) -> String {
    let lines = rows(session, "EXPLAIN VERBOSE SELECT count(*) FROM events WHERE few = 0").await;
    lines.into_iter().find(|line| line.starts_with("  events: analyzed ")).unwrap()
}

fn near(what: &str, found: f64, truth: f64, factor: f64) {
    assert!(
        found <= truth * factor && found >= truth / factor,
        "{what}: {found}, in truth {truth}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quick_analyze_reads_the_first_rows_of_few_pages() {
    let (_directory, database) = fresh().await;
    let mut session = database.session();
    let columns = "(id int, runs int, long_runs int, many int, skewed int, few int, name text)";
    run(&mut session, &format!("CREATE TABLE events {columns}")).await;
    let mut random = SplitMix64::new(17);
    let firsts = (0..ROWS).step_by(PAGE_ROWS as usize);
    let parts = firsts.map(|first| part(&mut random, first)).collect();
    session.load("events", batches(parts), None).await.unwrap();
    let before = database.changes();
    // Only tables that changed since, by as many rows, are read.
    assert!(database.analyze_filled(&before, 1, Effort::Quick).await.is_empty());
    let all = Changes::default();
    assert!(database.analyze_filled(&all, 1_000_000, Effort::Quick).await.is_empty());
    assert_eq!(rows(&mut session, "SHOW STATISTICS FOR events").await.len(), 0);
    assert!(database.analyze_filled(&all, 160_000, Effort::Quick).await.is_empty());
    assert!(told(&mut session).await.contains(" at 160000 rows from 3 of 3 pages; 160000 by "));
    let shown = rows(&mut session, "SHOW STATISTICS FOR events").await;
    assert!(shown[0].contains(",0,159999,"), "{}", shown[0]);
    let distinct = [160_000.0, 400.0, 25.0, 5000.0, 3000.0, 2.0, 20_000.0];
    for (line, truth) in shown.iter().zip(distinct) {
        let fields: Vec<&str> = line.split(',').collect();
        near(fields[1], fields[6].parse().unwrap(), truth, 2.0);
    }
    // Of a column in order, ranges are known as finely as pages divide them.
    for (condition, truth, factor) in
        [("id < 65536", 65_536.0, 1.3), ("few = 1", 4800.0, 1.3), ("skewed = 3", 16_000.0, 1.2)]
    {
        let sql = format!("SELECT * FROM events WHERE {condition}");
        near(condition, expected(&mut session, &sql, "events").await, truth, factor);
    }
    // The statement reads all.
    run(&mut session, "ANALYZE events").await;
    assert!(!told(&mut session).await.contains("pages"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_some_pages_tell_is_close_to_what_all_of_them_do() {
    let (directory, database) = fresh().await;
    let mut session = database.session();
    with_events(&mut session).await;
    let all = analyzed(&mut session, 0).await;
    assert!(!told(&mut session).await.contains("pages"));
    let some = analyzed(&mut session, 100).await;
    assert!(told(&mut session).await.contains(" at 160000 rows from 30 of 100 pages; 160000 by "));
    for (column, [nulls, width, distinct]) in &some {
        let [all_nulls, all_width, all_distinct] = all[column];
        assert!((nulls - all_nulls).abs() < 0.005, "{column}: {nulls} NULLs, in truth {all_nulls}");
        near(column, *width, all_width, 1.02);
        let factor = if column == "long_runs" { 2.0 } else { 1.15 };
        near(column, *distinct, all_distinct, factor);
    }
    // Ends are those of all pages.
    let ends = rows(&mut session, "SHOW STATISTICS FOR events").await;
    assert!(ends[0].contains(",0,159999,"), "{}", ends[0]);
    // A value of 30 rows is in the sample 2 times on average, and by chance up to 8 times: it is then taken for a
    // common one.
    let rare = 5.0;
    for (condition, factor) in [
        ("id < 16000", 1.3),
        ("id BETWEEN 50000 AND 99999", 1.3),
        ("id > 150000", 1.5),
        ("runs = 123", 1.5),
        ("runs BETWEEN 100 AND 199", 1.3),
        ("long_runs = 7", 2.0),
        ("long_runs < 5", 1.5),
        ("many = 77", rare),
        ("many < 500", 1.2),
        ("skewed = 3", 1.2),
        ("skewed = 1000", rare),
        ("skewed < 5", 1.1),
        ("few = 1", 1.3),
        ("few = 0 AND skewed < 5", 1.2),
        ("name IS NULL", 1.1),
        ("name LIKE 'name 1%'", 1.5),
    ] {
        let counted = format!("SELECT count(*) FROM events WHERE {condition}");
        let truth = row(&mut session, &counted).await.parse().unwrap();
        let sql = format!("SELECT sum(id) FROM events WHERE {condition}");
        near(condition, expected(&mut session, &sql, "TableScanExec: events").await, truth, factor);
    }
    let before = rows(&mut session, "SHOW STATISTICS FOR events").await;
    drop((session, database));
    let database = open(directory.path()).await;
    let mut session = database.session();
    assert_eq!(rows(&mut session, "SHOW STATISTICS FOR events").await, before);
    assert!(told(&mut session).await.contains(" from 30 of 100 pages;"));
    // The same table, the same pages, of one column or of all.
    run(&mut session, "SET default_statistics_target = 100; ANALYZE events (skewed)").await;
    let after = rows(&mut session, "SHOW STATISTICS FOR events").await;
    let distinct = |rows: &[String]| rows[4].split(',').nth(6).map(str::to_owned);
    assert_eq!(distinct(&after), distinct(&before));
    assert_eq!(after[3], before[3]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn joins_are_expected_by_values_that_some_pages_have() {
    let (_directory, database) = fresh().await;
    let mut session = database.session();
    with_events(&mut session).await;
    run(&mut session, "SET default_statistics_target = 100").await;
    run(&mut session, "CREATE TABLE kind (id int PRIMARY KEY, part int)").await;
    run(
        &mut session,
        "INSERT INTO kind SELECT v, v % 50 FROM generate_series(0, 4999) AS s(v); ANALYZE",
    )
    .await;
    for sql in [
        "SELECT count(*) FROM events e JOIN kind k ON k.id = e.many",
        "SELECT count(*) FROM events e JOIN kind k ON k.id = e.skewed",
        "SELECT count(*) FROM events e JOIN kind k ON k.id = e.runs",
        "SELECT count(*) FROM events e JOIN kind k ON k.id = e.many WHERE k.part = 7",
        "SELECT count(*) FROM kind k JOIN kind l ON l.part = k.part JOIN events e ON e.many = l.id",
    ] {
        let truth = row(&mut session, sql).await.parse().unwrap();
        near(sql, expected(&mut session, sql, "HashJoinExec").await, truth, 2.0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_that_are_gone_and_tables_that_cannot_be_sampled_are_analysed_too() {
    let (_directory, database) = fresh().await;
    let mut session = database.session();
    with_events(&mut session).await;
    // By itself the database reads some pages, and a statement all of them.
    assert!(database.autoanalyze().await.is_empty());
    assert!(told(&mut session).await.contains(" from 30 of 100 pages;"));
    run(&mut session, "ANALYZE events").await;
    assert!(!told(&mut session).await.contains(" pages;"));
    run(&mut session, "DELETE FROM events WHERE id < 120000").await;
    run(&mut session, "SET default_statistics_target = 100").await;
    let verbose = "ANALYZE VERBOSE events";
    let found = row(&mut session, verbose).await;
    assert!(found.starts_with("events,40000,"), "{found}");
    assert!(found.ends_with(",100,30"), "{found}");
    // Nothing is left on any page.
    run(&mut session, "DELETE FROM events").await;
    assert!(row(&mut session, verbose).await.starts_with("events,0,0,"));
    assert!(rows(&mut session, "SHOW STATISTICS FOR events").await.is_empty());
    // The name that references to rows have.
    run(&mut session, "CREATE TABLE named (\"row\" int)").await;
    for first in (0..20).map(|part| part * 3000) {
        let values = (first..first + 3000).collect::<Int32Array>();
        let batch = RecordBatch::try_from_iter([("row", Arc::new(values) as ArrayRef)]).unwrap();
        session.load("named", batches(vec![batch]), None).await.unwrap();
    }
    run(&mut session, "SET default_statistics_target = 1").await;
    let found = row(&mut session, "ANALYZE VERBOSE named").await;
    assert!(found.starts_with("named,60000,") && found.ends_with(",20,20"), "{found}");
    run(&mut session, "ALTER TABLE named RENAME COLUMN \"row\" TO number").await;
    let found = row(&mut session, "ANALYZE VERBOSE named").await;
    assert!(found.starts_with("named,60000,") && found.ends_with(",20,4"), "{found}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_way_to_run_it_reads_the_same_pages_and_finds_the_same() {
    let (_directory, database) = fresh().await;
    let mut session = database.session();
    run(&mut session, "SET default_tablets = 2").await;
    with_events(&mut session).await;
    let mut found = Vec::new();
    for split in ["host", "h0", "ndp", "auto"] {
        run(&mut session, &format!("SET split = {split}")).await;
        let counts = analyzed(&mut session, 100).await;
        let said = told(&mut session).await;
        assert!(said.contains(" pages;"), "{said}");
        found.push(counts);
    }
    // Counts over these pages do not depend on the side that counts.
    assert!(found.windows(2).all(|pair| pair[0] == pair[1]), "{found:#?}");
    assert!(database.autoanalyze().await.is_empty());
}
