//! Tests of statements over few rows by ranges of keys: they need no plan, flush nothing, and give the rows of a plan.

use std::sync::Arc;

use cleave_host::{Database, Outcome, Session};

use crate::support::{fresh, planned, refused, row, rows, run};

/// The rows of a prepared statement, as text; of one without rows, its tag.
async fn execute(session: &mut Session, name: &str, values: &[&str]) -> Vec<String> {
    let values: Vec<Option<&str>> = values.iter().map(|value| Some(*value)).collect();
    match session.execute(name, &values).await.unwrap() {
        Outcome::Done { tag } => vec![tag],
        Outcome::Rows { batches, .. } => {
            let mut shown = Vec::new();
            for batch in &batches {
                for row in 0..batch.num_rows() {
                    let values = batch.columns().iter().map(|column| {
                        let text = cleave_host::value::value_text(column, row).unwrap();
                        text.unwrap_or_else(|| "NULL".to_owned())
                    });
                    shown.push(values.collect::<Vec<_>>().join(","));
                }
            }
            shown
        }
    }
}

/// Orders with lines, and a small change of each table that no page has yet.
async fn shop() -> (tempfile::TempDir, Arc<Database>, Session) {
    let (directory, database) = fresh().await;
    let mut session = database.session();
    run(
        &mut session,
        "CREATE TABLE line (w integer, o integer, n integer, item text NOT NULL, amount decimal(6, 2) NOT NULL, sent \
            integer,
             PRIMARY KEY (w, o, n));
         CREATE INDEX line_item ON line (item, amount);
         INSERT INTO line SELECT w, o, n, 'item ' || (o * n % 7), o + n, NULL
             FROM generate_series(1, 3) AS w(w), generate_series(1, 40) AS o(o), generate_series(1, 5) AS n(n);
         CREATE TABLE stock (item text PRIMARY KEY, quantity integer NOT NULL);
         INSERT INTO stock SELECT 'item ' || i, i * 10 FROM generate_series(0, 6) AS i(i)",
    )
    .await;
    for (name, sql) in [
        ("scan", "SELECT * FROM line WHERE (w = $1) AND o >= $2 ORDER BY w, o, n LIMIT $3"),
        ("last", "SELECT o FROM line WHERE w = $1 ORDER BY o DESC, n DESC LIMIT 1"),
        ("oldest", "SELECT o, n FROM line WHERE w = $1 AND sent IS NULL ORDER BY o, n LIMIT 1"),
        ("of order", "SELECT n, item, amount FROM line WHERE w = $1 AND o = $2"),
        (
            "sum",
            "SELECT count(*), sum(amount), min(n), max(item) FROM line WHERE w = $1 AND o BETWEEN $2 AND $3",
        ),
        ("distinct", "SELECT count(DISTINCT item) FROM line WHERE w = $1 AND o > $2 AND o < $3"),
        (
            "by item",
            "SELECT w, o, n FROM line WHERE item = $1 ORDER BY amount DESC, w, o, n LIMIT 3 OFFSET 1",
        ),
        (
            "among",
            "SELECT w, o, n FROM line WHERE w = 1 AND o = ANY($1) AND n IN (1, 3) ORDER BY o, n",
        ),
        ("send", "UPDATE line SET sent = $3 WHERE w = $1 AND o = $2 RETURNING n, amount"),
        ("forget", "DELETE FROM line WHERE w = $1 AND o <= $2"),
        ("claim", "SELECT o, n FROM line WHERE w = $1 AND o = $2 ORDER BY n FOR UPDATE"),
        ("claim one", "SELECT quantity FROM stock WHERE item = $1 FOR UPDATE"),
        (
            "take",
            "UPDATE stock SET quantity = quantity - $2 WHERE item = $1 RETURNING quantity, item || '!'",
        ),
    ] {
        session.prepare(name, sql, &[]).await.unwrap();
    }
    run(&mut session, "INSERT INTO line VALUES (1, 41, 1, 'item 9', 1.5, NULL); DELETE FROM line WHERE w = 1 AND o = \
        40 AND n = 1").await;
    (directory, database, session)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ranges_need_no_plan_and_flush_nothing() {
    let (_directory, database, mut session) = shop().await;
    let before = planned(&database);
    let scan = execute(&mut session, "scan", &["1", "39", "6"]).await;
    assert_eq!(
        scan,
        [
            "1,39,1,item 4,40.00,NULL",
            "1,39,2,item 1,41.00,NULL",
            "1,39,3,item 5,42.00,NULL",
            "1,39,4,item 2,43.00,NULL",
            "1,39,5,item 6,44.00,NULL",
            "1,40,2,item 3,42.00,NULL",
        ]
    );
    assert_eq!(execute(&mut session, "last", &["1"]).await, ["41"]);
    assert_eq!(execute(&mut session, "last", &["2"]).await, ["40"]);
    assert_eq!(execute(&mut session, "oldest", &["1"]).await, ["1,1"]);
    let lines = execute(&mut session, "of order", &["1", "41"]).await;
    assert_eq!(lines, ["1,item 9,1.50"]);
    assert_eq!(execute(&mut session, "sum", &["1", "40", "41"]).await, ["5,175.50,1,item 9"]);
    assert_eq!(execute(&mut session, "sum", &["9", "1", "99"]).await, ["0,NULL,NULL,NULL"]);
    assert_eq!(execute(&mut session, "distinct", &["2", "3", "5"]).await, ["5"]);
    let by_item = execute(&mut session, "by item", &["item 0"]).await;
    assert_eq!(by_item, ["2,35,5", "3,35,5", "1,35,4"]);
    let among = execute(&mut session, "among", &["{40,2,99,NULL,2}"]).await;
    assert_eq!(among, ["1,2,1", "1,2,3", "1,40,3"]);
    let sent = execute(&mut session, "send", &["1", "41", "7"]).await;
    assert_eq!(sent, ["1,1.50"]);
    let sent = execute(&mut session, "send", &["1", "40", "8"]).await;
    assert_eq!(sent, ["2,42.00", "3,43.00", "4,44.00", "5,45.00"]);
    assert_eq!(execute(&mut session, "forget", &["1", "2"]).await, ["DELETE 10"]);
    assert_eq!(execute(&mut session, "oldest", &["1"]).await, ["3,1"]);
    assert_eq!(execute(&mut session, "take", &["item 3", "4"]).await, ["26,item 3!"]);
    run(&mut session, "BEGIN").await;
    assert_eq!(execute(&mut session, "claim", &["1", "41"]).await, ["41,1"]);
    assert_eq!(execute(&mut session, "claim one", &["item 3"]).await, ["26"]);
    assert_eq!(execute(&mut session, "take", &["item 3", "1"]).await, ["25,item 3!"]);
    assert_eq!(execute(&mut session, "claim one", &["item 3"]).await, ["25"]);
    run(&mut session, "COMMIT").await;
    // Texts of one kind are the same query.
    assert_eq!(rows(&mut session, "SELECT n FROM line WHERE w = 1 AND o >= 41").await, ["1"]);
    assert_eq!(row(&mut session, "SELECT max(o) FROM line WHERE w = 2 AND o < 17").await, "16");
    let claimed = rows(&mut session, "SELECT n FROM line WHERE w = 1 AND o = 40 FOR UPDATE").await;
    assert_eq!(claimed, ["2", "3", "4", "5"]);
    assert_eq!(planned(&database), before);
    // Larger ranges are planned, and statements whose settings ask for a plan.
    assert_eq!(row(&mut session, "SELECT count(*) FROM line WHERE w > 0").await, "590");
    run(&mut session, "SET look_up_rows = 10").await;
    assert_eq!(row(&mut session, "SELECT count(*) FROM line WHERE w = 3 AND o > 38").await, "10");
    assert_eq!(planned(&database), before);
    assert_eq!(row(&mut session, "SELECT count(*) FROM line WHERE w = 3 AND o > 37").await, "15");
    let planned_now = planned(&database);
    assert_eq!(planned_now, (before.0 + 1, before.1 + 1));
    run(&mut session, "SET split = host").await;
    assert_eq!(row(&mut session, "SELECT count(*) FROM line WHERE w = 3 AND o > 38").await, "10");
    assert_eq!(planned(&database).0, planned_now.0 + 1);
    let counted = row(&mut session, "SELECT count FROM cleave.activity WHERE what = 'plans'").await;
    assert_eq!(counted, planned(&database).0.to_string());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn explain_says_that_a_range_needs_no_plan() {
    let (_directory, _database, mut session) = shop().await;
    let sql = "SELECT n FROM line WHERE w = 1 AND o > 30 ORDER BY o DESC, n DESC LIMIT 2";
    let look_up = "Range look-up on line by index line_pkey (w, o, n), backwards, on the host, without a plan up to \
        1000 rows, with one beyond";
    assert_eq!(rows(&mut session, &format!("EXPLAIN {sql}")).await, [look_up]);
    let measured = rows(&mut session, &format!("EXPLAIN ANALYZE {sql}")).await.join("\n");
    assert!(measured.contains(look_up) && measured.contains("rows: 2"), "{measured}");
    run(&mut session, "SET look_up_rows = 0").await;
    let plan = rows(&mut session, &format!("EXPLAIN {sql}")).await.join("\n");
    assert!(!plan.contains("look-up on line"), "{plan}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ranges_wait_for_others_and_go_on_with_the_newest_rows() {
    let (_directory, database, mut session) = shop().await;
    let mut other = database.session();
    run(&mut session, "BEGIN; UPDATE line SET sent = 5 WHERE w = 2 AND o = 7 AND n < 3").await;
    run(&mut other, "SET lock_timeout = 20").await;
    let error =
        refused(&mut other, "UPDATE line SET sent = 6 WHERE w = 2 AND o = 7 AND n = 2").await;
    assert_eq!(error.sqlstate(), "55P03");
    let error = refused(
        &mut other,
        "SELECT n FROM line WHERE w = 2 AND o = 7 AND n >= 2 FOR UPDATE NOWAIT",
    )
    .await;
    assert_eq!(error.sqlstate(), "55P03");
    // Of its own changes a block sees what it has made of rows, and nobody else does.
    let own =
        rows(&mut session, "SELECT n, sent FROM line WHERE w = 2 AND o = 7 ORDER BY n LIMIT 3")
            .await;
    assert_eq!(own, ["1,5", "2,5", "3,NULL"]);
    let before =
        rows(&mut other, "SELECT n, sent FROM line WHERE w = 2 AND o = 7 ORDER BY n LIMIT 3").await;
    assert_eq!(before, ["1,NULL", "2,NULL", "3,NULL"]);
    run(&mut session, "DELETE FROM line WHERE w = 2 AND o = 7 AND n BETWEEN 2 AND 3; COMMIT").await;
    let after =
        rows(&mut other, "SELECT n, sent FROM line WHERE w = 2 AND o = 7 ORDER BY n LIMIT 3").await;
    assert_eq!(after, ["1,5", "4,NULL", "5,NULL"]);
    // A SERIALIZABLE reader of a range depends on every writer into it.
    run(&mut session, "BEGIN ISOLATION LEVEL SERIALIZABLE").await;
    run(&mut other, "BEGIN ISOLATION LEVEL SERIALIZABLE").await;
    for session in [&mut session, &mut other] {
        assert_eq!(row(session, "SELECT count(*) FROM line WHERE w = 3 AND o = 50").await, "0");
    }
    run(&mut session, "INSERT INTO line VALUES (3, 50, 1, 'item 1', 1, NULL)").await;
    run(&mut other, "INSERT INTO line VALUES (3, 50, 2, 'item 1', 1, NULL)").await;
    run(&mut session, "COMMIT").await;
    assert_eq!(refused(&mut other, "COMMIT").await.sqlstate(), "40001");
}

/// Pseudo-random numbers.
struct Draw(u64);

impl Draw {
    fn below(&mut self, end: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }

    fn place(&mut self, end: u64) -> usize {
        usize::try_from(self.below(end)).unwrap()
    }
}

/// A value of a column of which some are NULL.
fn value(draw: &mut Draw, is_text: bool) -> String {
    match (draw.below(6), is_text) {
        (0, _) => "NULL".to_owned(),
        (_, true) => format!("'{}'", ["", "a", "ab", "b", "ä", "zz"][draw.place(6)]),
        (_, false) => (draw.below(12).cast_signed() - 3).to_string(),
    }
}

fn condition(draw: &mut Draw) -> String {
    let column = ["a", "b", "c", "d"][draw.place(4)];
    let is_text = column == "c";
    let mut value = || loop {
        let value = value(draw, is_text);
        if value != "NULL" {
            break value;
        }
    };
    let (one, other) = (value(), value());
    match draw.below(8) {
        0 | 1 => format!("{column} = {one}"),
        2 => format!("{column} >= {one}"),
        3 => format!("{column} < {one}"),
        4 => format!("{column} BETWEEN {one} AND {other}"),
        5 => format!("{column} IN ({one}, {other})"),
        6 => format!("{one} < {column} AND {column} <= {other}"),
        _ => format!("{column} > {one} OR {column} IS NULL"),
    }
}

/// A query, all of whose columns are in its order where it has a LIMIT.
fn query(draw: &mut Draw) -> String {
    let mut conditions = vec![condition(draw)];
    while draw.below(2) == 0 {
        conditions.push(condition(draw));
    }
    let conditions: Vec<String> = conditions.into_iter().map(|one| format!("({one})")).collect();
    let selection = conditions.join(" AND ");
    match draw.below(6) {
        0 => format!(
            "SELECT count(*), sum(b), min(c), max(a), count(DISTINCT d) FROM t WHERE {selection}"
        ),
        1 => format!("SELECT c, count(*), sum(a) FROM t WHERE {selection} GROUP BY c ORDER BY c"),
        2 => format!("SELECT DISTINCT b, c FROM t WHERE {selection} ORDER BY b, c"),
        kind => {
            let orders = [
                "a, d",
                "a DESC, d DESC",
                "b, c, a, d",
                "b DESC, c DESC, a, d",
                "c DESC NULLS LAST, b, a, d",
                "c, b DESC, a, d",
            ];
            let order = orders[draw.place(6)];
            let limit = match kind {
                3 => format!(" LIMIT {}", draw.below(8)),
                4 => format!(" LIMIT {} OFFSET {}", draw.below(5), draw.below(4)),
                _ => String::new(),
            };
            format!("SELECT *, a + b AS e FROM t WHERE {selection} ORDER BY {order}{limit}")
        }
    }
}

async fn compare(session: &mut Session, draw: &mut Draw, count: usize) {
    for _ in 0..count {
        let sql = query(draw);
        let without = rows(session, &sql).await;
        run(session, "SET look_up_rows = 0").await;
        let with = rows(session, &sql).await;
        run(session, "RESET look_up_rows").await;
        assert_eq!(without, with, "{sql}");
    }
}

async fn change(session: &mut Session, draw: &mut Draw) {
    let (a, d) = (draw.below(9), draw.below(200));
    let (b, c) = (value(draw, false), value(draw, true));
    let condition = condition(draw);
    let sql = match draw.below(6) {
        0..=2 => format!("INSERT INTO t VALUES ({a}, {b}, {c}, {d}) ON CONFLICT DO NOTHING"),
        3 => format!("UPDATE t SET b = {b}, c = {c} WHERE ({condition}) AND d < 50"),
        4 => format!("DELETE FROM t WHERE a = {a} AND d BETWEEN {d} AND {d} + 2"),
        _ => format!("UPDATE t SET c = {c} WHERE a = {a} AND d = {d}"),
    };
    run(session, &sql).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ranges_give_what_plans_give() {
    for (seed, tablets) in [(1, 1), (2, 3)] {
        let (_directory, database) = fresh().await;
        let mut session = database.session();
        let mut draw = Draw(seed);
        run(
            &mut session,
            &format!(
                "SET default_tablets = {tablets};
                 CREATE TABLE t (a integer NOT NULL, b integer, c text, d integer NOT NULL, PRIMARY KEY (a, d));
                 CREATE INDEX t_bc ON t (b, c); CREATE INDEX t_cb ON t (c DESC NULLS LAST, b);
                 INSERT INTO t SELECT i % 7, nullif(i % 5, 3), 'a' || (i % 3), i FROM generate_series(1, 60) AS s(i)"
            ),
        )
        .await;
        for round in 0..12 {
            for _ in 0..4 {
                change(&mut session, &mut draw).await;
            }
            compare(&mut session, &mut draw, 5).await;
            if round % 3 == 0 {
                run(&mut session, "BEGIN").await;
                for _ in 0..3 {
                    change(&mut session, &mut draw).await;
                    compare(&mut session, &mut draw, 3).await;
                }
                run(&mut session, if round % 2 == 0 { "COMMIT" } else { "ROLLBACK" }).await;
            }
        }
        // The changes of the table are the same, whichever path the statements took.
        let all = rows(&mut session, "SELECT * FROM t ORDER BY a, d").await;
        let again = rows(&mut session, "SELECT * FROM t WHERE a >= 0 ORDER BY a, d").await;
        assert_eq!(all, again);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_range_of_one_key_goes_on_behind_the_first_rows() {
    let (_directory, database) = fresh().await;
    let mut session = database.session();
    run(&mut session, "CREATE TABLE t (id integer PRIMARY KEY, kind integer)").await;
    let all = "SELECT v, v % 10 FROM generate_series(1, 30000) AS s(v)";
    run(&mut session, &format!("INSERT INTO t {all}; CREATE INDEX ON t (kind); CHECKPOINT")).await;
    for (query, found) in [
        // More rows than are looked up at once, in a run whose filter knows the key alone.
        ("SELECT count(*), min(id) FROM t WHERE kind = 7", "3000,7"),
        ("SELECT count(*), max(id) FROM t WHERE kind = 7 AND id > 100", "2990,29997"),
    ] {
        assert_eq!(rows(&mut session, query).await, [found], "{query}");
    }
    let few = "SELECT id FROM t WHERE kind = 7 AND id % 1000 = 77 LIMIT 30";
    assert_eq!(rows(&mut session, few).await.len(), 30);
}
