//! Tests of how EXPLAIN reads: plain words and a line where rows cross, times that add up, and JSON in PostgreSQL's
//! shape.

use crate::devices::with_nas;
use crate::support::{fresh, row, rows, run};

const GROUPS: &str = "SELECT note, count(*) FROM far WHERE id < 9000 GROUP BY note";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plain_text_has_words_and_a_line_where_rows_cross() {
    let outside = tempfile::tempdir().unwrap();
    let (_directory, database, _served, _) = with_nas(outside.path()).await;
    let mut session = database.session();
    run(&mut session, "SET split = h0").await;
    let plan = rows(&mut session, &format!("EXPLAIN {GROUPS}")).await;
    let place = |what: &str| {
        let found = plan.iter().position(|line| line.trim_start().starts_with(what));
        found.unwrap_or_else(|| panic!("no {what}: {plan:#?}"))
    };
    let above = place("Final aggregate by note: count(*)  (expected ");
    let line = place("──── link to device nas ──── rows ~");
    let below = place("Partial aggregate by note: count(*)  (expected ");
    let scan = place("Scan of far: columns note");
    assert!(above < line && line < below && below < scan, "{plan:#?}");
    for hidden in ["Exec", "@0", "Int64(", "\\u{1}", "mode=", "Repartition"] {
        assert!(plan.iter().all(|line| !line.contains(hidden)), "{hidden}: {plan:#?}");
    }
    // Each name of the table is explained, and the one that is forced is the one that is chosen.
    let chosen = plan.iter().find(|line| line.contains("  chosen")).unwrap();
    assert!(chosen.starts_with("  h0 "), "{plan:#?}");
    for name in ["host", "h0"] {
        assert!(plan.iter().any(|line| line.starts_with(&format!("  {name}: "))), "{plan:#?}");
    }
    // Everything is in VERBOSE.
    let verbose = rows(&mut session, &format!("EXPLAIN (VERBOSE) {GROUPS}")).await.join("\n");
    for shown in
        ["AggregateExec: mode=Final", "FragmentExec: device=nas", "[nas] TableScanExec: far "]
    {
        assert!(verbose.contains(shown), "{shown}: {verbose}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn joins_and_orders_are_written_as_in_sql() {
    let outside = tempfile::tempdir().unwrap();
    let (_directory, database, _served, _) = with_nas(outside.path()).await;
    let mut session = database.session();
    run(&mut session, "SET split = host").await;
    let joined =
        "SELECT f.id, n.note FROM near n JOIN far f ON n.id = f.id ORDER BY f.id DESC LIMIT 3";
    let plan = rows(&mut session, &format!("EXPLAIN {joined}")).await;
    let join = plan.iter().find(|line| line.contains("Hash join, inner: ")).unwrap();
    assert!(join.contains("near.id") && join.contains("far.id"), "{plan:#?}");
    assert!(plan.iter().any(|line| line.contains("id DESC, first 3")), "{plan:#?}");
    // Keys of two types are compared as one, and DataFusion names the cast one by an expression.
    run(&mut session, "CREATE TABLE wide (id bigint PRIMARY KEY)").await;
    run(&mut session, "INSERT INTO wide VALUES (1)").await;
    let widened = "SELECT count(*) FROM wide w JOIN far f ON w.id = f.id";
    let plan = rows(&mut session, &format!("EXPLAIN {widened}")).await;
    assert!(plan.iter().any(|line| line.contains("id::bigint")), "{plan:#?}");
    assert!(plan.iter().all(|line| !line.contains("CAST(")), "{plan:#?}");
}

/// The milliseconds that a line of `plan` has under `name`.
fn milliseconds(plan: &[String], name: &str) -> f64 {
    let value = plan.iter().find_map(|line| line.trim().strip_prefix(name)?.strip_prefix(": "));
    let number = value.unwrap_or_else(|| panic!("no {name}: {plan:#?}")).split(' ').next().unwrap();
    number.parse().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn times_add_up_and_what_crossed_is_shown() {
    let outside = tempfile::tempdir().unwrap();
    let (_directory, database, _served, _) = with_nas(outside.path()).await;
    let mut session = database.session();
    for split in ["host", "h0"] {
        run(&mut session, &format!("SET split = {split}")).await;
        let plan = rows(&mut session, &format!("EXPLAIN ANALYZE {GROUPS}")).await;
        let of = |name: &str| milliseconds(&plan, name);
        let waited = match split {
            "h0" => of("waiting for devices and the link"),
            _ => 0.0,
        };
        let is_beside = plan.iter().any(|line| line.starts_with("  at the same time: "));
        let rest = of(if is_beside { "at the same time" } else { "other" });
        let parts = of("planning") + of("operators of the host") + waited + rest;
        assert!((parts - of("in all")).abs() < 0.5, "{split}: {plan:#?}");
        let crossed = plan.iter().find(|line| line.contains("──── link to device nas ──── rows "));
        assert_eq!(crossed.is_some(), split == "h0", "{split}: {plan:#?}");
        assert!(crossed.is_none_or(|line| line.contains(" of ~") && line.ends_with("B ────")));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn json_has_the_shape_of_postgresql() {
    let outside = tempfile::tempdir().unwrap();
    let (_directory, database, _served, _) = with_nas(outside.path()).await;
    let mut session = database.session();
    run(&mut session, "SET split = h0").await;
    let json = row(&mut session, &format!("EXPLAIN (FORMAT JSON) {GROUPS}")).await;
    assert!(json.starts_with("[{\"Plan\":{\"Node Type\":\""), "{json}");
    for member in [
        "\"Node Type\":\"Aggregate\"",
        "\"Partial Mode\":\"Finalize\"",
        "\"Group Key\":[\"note\"]",
        "\"Relation Name\":\"far\"",
        "\"Parent Relationship\":\"Outer\"",
        "\"Side\":\"device\",\"Device\":\"nas\"",
        "\"Description\":\"Fragment: device nas",
        "\"Split\":\"h0\"",
        "\"Candidates\":[{\"split\":\"host\"",
    ] {
        assert!(json.contains(member), "{member}: {json}");
    }
    assert!(!json.contains("Actual Rows") && !json.contains("Execution Time"), "{json}");
    let json = row(&mut session, &format!("EXPLAIN (ANALYZE, FORMAT JSON) {GROUPS}")).await;
    for member in
        ["\"Actual Rows\":", "\"Actual Loops\":1", "\"Execution Time\":", "\"Cut Bytes\":"]
    {
        assert!(json.contains(member), "{member}: {json}");
    }
}

/// Statements whose plans have operators that are rare.
const RARE: [&str; 16] = [
    "SELECT id, row_number() OVER (PARTITION BY n ORDER BY id DESC) FROM t",
    "SELECT id, sum(n) OVER (ORDER BY id ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) FROM t",
    "SELECT * FROM t WHERE n NOT IN (SELECT id FROM t WHERE n > 1)",
    "SELECT * FROM t WHERE n = 1 OR EXISTS (SELECT 1 FROM t u WHERE u.id = t.n)",
    "SELECT a.id FROM t a LEFT JOIN t b ON a.id < b.n",
    "SELECT a.id FROM t a FULL JOIN t b ON a.id = b.n",
    "SELECT a.id FROM t a, t b",
    "SELECT id FROM t UNION ALL SELECT n FROM t",
    "SELECT id FROM t EXCEPT SELECT n FROM t",
    "WITH RECURSIVE w(i) AS (SELECT id FROM t UNION ALL SELECT i + 1 FROM w WHERE i < 3) SELECT * FROM w",
    "SELECT unnest(ARRAY[1, 2]), id FROM t",
    "SELECT count(*) FROM generate_series(1, 10) AS s(v)",
    "SELECT id FROM t ORDER BY n LIMIT 3 OFFSET 1",
    "SELECT 1",
    "SELECT relname FROM pg_class",
    "SELECT (SELECT max(id) FROM t), id FROM t",
];

/// PostgreSQL's types of nodes that plans have, and two that it has no operators for.
const NODE_TYPES: [&str; 27] = [
    "Aggregate",
    "Append",
    "CTE Scan",
    "Collect Keys",
    "Fetch Columns",
    "Foreign Scan",
    "Function Scan",
    "Gather",
    "Gather Merge",
    "Hash Join",
    "Incremental Sort",
    "Index Scan",
    "Limit",
    "LockRows",
    "Materialize",
    "Merge Append",
    "Merge Join",
    "ModifyTable",
    "Nested Loop",
    "ProjectSet",
    "Recursive Union",
    "Result",
    "Seq Scan",
    "Sort",
    "Values Scan",
    "WindowAgg",
    "WorkTable Scan",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rare_operators_have_plain_names() {
    let (_directory, database) = fresh().await;
    let mut session = database.session();
    run(&mut session, "CREATE TABLE t (id int PRIMARY KEY, n int)").await;
    run(&mut session, "INSERT INTO t SELECT v, v % 7 FROM generate_series(1, 100) AS s(v)").await;
    let mut told = String::new();
    for split in ["host", "h0"] {
        run(&mut session, &format!("SET split = {split}")).await;
        for query in RARE {
            let json = row(&mut session, &format!("EXPLAIN (FORMAT JSON) {query}")).await;
            let values = |key: &str| {
                let key = format!("\"{key}\":\"");
                let parts = json.split(&key).skip(1).filter_map(|part| part.split('"').next());
                parts.map(str::to_owned).collect::<Vec<_>>()
            };
            for node_type in values("Node Type") {
                assert!(NODE_TYPES.contains(&node_type.as_str()), "{query}: {node_type}: {json}");
            }
            for line in values("Description") {
                for internal in ["Exec", "@", "Int64(", "\\u0001", "batch_size"] {
                    assert!(!line.contains(internal), "{query}: {line}");
                }
                told.push_str(&line);
                told.push('\n');
            }
        }
    }
    for expected in [
        "row_number() OVER (PARTITION BY n ORDER BY id DESC",
        "ROWS BETWEEN 1 PRECEDING AND CURRENT ROW)",
        "Nested-loop join, ",
        "Hash join, full: ",
        "Rows of the last round of ",
        "Rows of generate_series",
        "offset 1",
    ] {
        assert!(told.contains(expected), "{expected}: {told}");
    }
}
