//! Tests of joins of few rows: they need no plan, flush nothing, and give the rows of a plan.

use std::sync::Arc;

use cleave_host::{Database, Session};

use crate::support::{fresh, planned, refused, row, rows, run};

/// Customers with orders with items, and a small change of each table that no page has yet.
async fn shop() -> (tempfile::TempDir, Arc<Database>, Session) {
    let (directory, database) = fresh().await;
    let mut session = database.session();
    run(
        &mut session,
        "CREATE TABLE customer (id bigint PRIMARY KEY, name text NOT NULL UNIQUE, city text);
         CREATE TABLE orders (id integer PRIMARY KEY, customer_id smallint, day date);
         CREATE INDEX ON orders (customer_id, day);
         CREATE TABLE item (order_id integer, n integer, stock_id integer, price numeric(8, 2), PRIMARY KEY \
            (order_id, n));
         CREATE TABLE stock (id integer, house integer, quantity integer, PRIMARY KEY (house, id));
         INSERT INTO customer SELECT i, 'name ' || i, nullif('city ' || (i % 3), 'city 2') FROM generate_series(1, \
            20) AS s(i);
         INSERT INTO orders SELECT i, nullif(1 + i % 20, 7), ('2026-01-0' || (1 + i % 9))::date FROM \
            generate_series(1, 100) AS s(i);
         INSERT INTO item SELECT o, n, nullif(o * n % 13, 5), o + n FROM generate_series(1, 90) AS o(o), \
            generate_series(1, 3) AS n(n);
         INSERT INTO stock SELECT i, h, i * h FROM generate_series(0, 12) AS s(i), generate_series(1, 2) AS h(h)",
    )
    .await;
    run(
        &mut session,
        "INSERT INTO customer VALUES (21, 'name 21', 'far'); INSERT INTO orders VALUES (101, 21, '2026-02-02');
         INSERT INTO item VALUES (101, 1, 3, 9.5); UPDATE stock SET quantity = 1 WHERE id = 3 AND house = 1;
         DELETE FROM item WHERE order_id = 50 AND n = 2",
    )
    .await;
    (directory, database, session)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn joins_of_few_rows_need_no_plan_and_flush_nothing() {
    let (_directory, database, mut session) = shop().await;
    let before = planned(&database);
    let statements: [(&str, &[&str]); 14] = [
        (
            "SELECT o.*, i.n, i.price * 2 AS twice FROM orders AS o JOIN item i ON i.order_id = o.id WHERE o.id = 101",
            &["101,21,2026-02-02,1,19.00"],
        ),
        (
            "SELECT c.name, o.id, o.day FROM customer c, orders o WHERE c.name = 'name 21' AND o.customer_id = c.id",
            &["name 21,101,2026-02-02"],
        ),
        // In short form, TPC-C's stock level.
        (
            "SELECT count(DISTINCT id) FROM item JOIN stock ON house = 1 AND stock.id = stock_id
             WHERE order_id >= 99 AND order_id < 102 AND quantity < 5",
            &["1"],
        ),
        (
            "SELECT count(DISTINCT stock.id), sum(price), min(quantity) FROM item, stock
             WHERE order_id BETWEEN 10 AND 12 AND stock.id = stock_id AND house = 2",
            &["6,117.00,8"],
        ),
        (
            "SELECT name, i.n, quantity FROM item i JOIN orders o ON o.id = i.order_id JOIN customer c ON c.id = \
                o.customer_id
             JOIN stock s ON s.house = c.id - c.id + 1 AND s.id = i.stock_id AND s.house = 1
             WHERE i.order_id IN (50, 101) ORDER BY n DESC, name LIMIT 2",
            &["name 11,3,7", "name 11,1,11"],
        ),
        // Rows for which nothing is there.
        (
            "SELECT o.id, n, price FROM orders o LEFT JOIN item ON order_id = o.id WHERE o.id BETWEEN 90 AND 91 \
                ORDER BY o.id, n",
            &["90,1,91.00", "90,2,92.00", "90,3,93.00", "91,NULL,NULL"],
        ),
        (
            "SELECT o.id, c.name FROM orders o LEFT JOIN customer c ON o.customer_id = c.id WHERE o.id IN (6, 26, 101)
             AND c.name IS NULL ORDER BY 1",
            &["6,NULL", "26,NULL"],
        ),
        (
            "SELECT o.id, count(n), sum(quantity) FROM orders o LEFT JOIN item i ON i.order_id = o.id
             LEFT JOIN stock s ON s.id = i.stock_id AND s.house = 1 WHERE o.id > 88 AND o.id < 93 GROUP BY o.id \
                ORDER BY id",
            &["89,3,27", "90,3,33", "91,0,NULL", "92,0,NULL"],
        ),
        (
            "SELECT city, count(*) FROM orders o JOIN customer c ON c.id = o.customer_id WHERE o.id < 8
             GROUP BY city ORDER BY city",
            &["city 0,2", "city 1,1", "NULL,3"],
        ),
        (
            "SELECT a.id, b.id FROM orders a JOIN orders b ON b.customer_id = a.customer_id AND b.day > a.day
             WHERE a.id = 21 ORDER BY b.id",
            &["21,41", "21,61"],
        ),
        (
            "SELECT i.* FROM orders o CROSS JOIN item i WHERE o.id = 77 AND o.id = i.order_id AND i.n = 2",
            &["77,2,11,79.00"],
        ),
        ("SELECT count(*) FROM orders o JOIN item i ON i.order_id = o.id WHERE o.id = 1000", &["0"]),
        (
            "SELECT max(price) FROM orders o JOIN item i ON o.id = order_id \
             WHERE customer_id = 2 AND day > '2026-01-07'",
            &["64.00"],
        ),
        ("SELECT o.id AS id, i.n AS id FROM orders o JOIN item i ON i.order_id = o.id WHERE o.id = 101", &["101,1"]),
    ];
    for (sql, expected) in &statements {
        let without = rows(&mut session, sql).await;
        assert_eq!(planned(&database), before, "{sql}");
        assert_eq!(without, *expected, "{sql}");
    }
    // Also of what a block has changed itself.
    run(
        &mut session,
        "BEGIN; INSERT INTO item VALUES (102, 1, 4, 5), (102, 2, 3, 6); INSERT INTO orders VALUES \
        (102, 1, NULL)",
    )
    .await;
    run(&mut session, "UPDATE stock SET quantity = 77 WHERE id = 4 AND house = 1; DELETE FROM item WHERE order_id = \
        101").await;
    let own = "SELECT n, quantity FROM orders o JOIN item i ON i.order_id = o.id JOIN stock s ON s.id = stock_id AND \
        house = 1
               WHERE o.id IN (101, 102) ORDER BY n";
    assert_eq!(rows(&mut session, own).await, ["1,77", "2,1"]);
    run(&mut session, "ROLLBACK").await;
    assert_eq!(rows(&mut session, own).await, ["1,1"]);
    assert_eq!(planned(&database), before);
    session.prepare("lines", "SELECT n, quantity FROM item JOIN stock ON id = stock_id AND house = $2 WHERE order_id \
        = ANY($1) AND quantity > $3", &[]).await.unwrap();
    for _ in 0..2 {
        let outcome =
            session.execute("lines", &[Some("{101,NULL}"), Some("2"), Some("0")]).await.unwrap();
        let cleave_host::Outcome::Rows { batches, .. } = outcome else { panic!() };
        assert_eq!(batches[0].num_rows(), 1);
    }
    assert_eq!(planned(&database), before);
    // A plan gives the same.
    for (sql, _) in &statements {
        let without = rows(&mut session, sql).await;
        run(&mut session, "SET look_up_rows = 0").await;
        let with = rows(&mut session, sql).await;
        run(&mut session, "RESET look_up_rows").await;
        assert_eq!(without, with, "{sql}");
    }
    assert_eq!(planned(&database).0, before.0 + statements.len() as u64);
    // More rows than may be looked up, in the first table and beside it.
    run(&mut session, "SET look_up_rows = 4").await;
    let before = planned(&database);
    let sql = "SELECT count(*) FROM orders o JOIN item i ON i.order_id = o.id WHERE o.id <= ";
    assert_eq!(row(&mut session, &format!("{sql} 1")).await, "3");
    assert_eq!(planned(&database), before);
    assert_eq!(row(&mut session, &format!("{sql} 2")).await, "6");
    assert_eq!(row(&mut session, &format!("{sql} 5")).await, "15");
    assert_eq!(planned(&database).0, before.0 + 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn explain_says_how_a_join_is_looked_up() {
    let (_directory, _database, mut session) = shop().await;
    let sql = "SELECT price FROM item i JOIN orders o ON o.id = i.order_id JOIN stock s ON s.house = 1 AND s.id = \
        i.stock_id WHERE o.id = 3";
    let look_up = "Range look-up on orders by index orders_pkey (id), then its rows on item by index item_pkey \
        (order_id), \
                   then its row on stock by index stock_pkey (house, id), on the host, without a plan up to 1000 \
        rows, with one beyond";
    assert_eq!(rows(&mut session, &format!("EXPLAIN {sql}")).await, [look_up]);
    let measured = rows(&mut session, &format!("EXPLAIN ANALYZE {sql}")).await.join("\n");
    assert!(measured.contains(look_up) && measured.contains("rows: 3"), "{measured}");
    // Uncertain cases are planned, and errors are reported as usual.
    for sql in [
        "SELECT 1 FROM orders o LEFT JOIN item i ON i.order_id = o.id AND i.price > 3 WHERE o.id = 3",
        "SELECT 1 FROM orders o RIGHT JOIN item i ON i.order_id = o.id WHERE o.id = 3",
        "SELECT 1 FROM orders o JOIN item i ON i.price = o.id WHERE o.id = 3",
    ] {
        let plan = rows(&mut session, &format!("EXPLAIN {sql}")).await.join("\n");
        assert!(!plan.contains("without a plan"), "{plan}");
    }
    for (sql, state) in [
        (
            "SELECT id FROM orders o JOIN stock s ON s.id = o.id AND s.house = 1 WHERE o.id = 3",
            "42702",
        ),
        ("SELECT o.none FROM orders o JOIN item i ON i.order_id = o.id WHERE o.id = 3", "42703"),
        (
            "SELECT price / (n - 1) FROM orders o JOIN item i ON i.order_id = o.id WHERE o.id = 3",
            "22012",
        ),
    ] {
        assert_eq!(refused(&mut session, sql).await.sqlstate(), state, "{sql}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_join_reads_counts_at_level_serializable() {
    let (_directory, database, mut one) = shop().await;
    let mut two = database.session();
    let short = "SELECT count(*) FROM orders o JOIN item i ON i.order_id = o.id WHERE o.id = 95";
    for session in [&mut one, &mut two] {
        run(session, "BEGIN ISOLATION LEVEL SERIALIZABLE").await;
        assert_eq!(row(session, short).await, "0");
    }
    // Each writes what the other one has looked for behind its row.
    run(&mut one, "INSERT INTO item VALUES (95, 1, 1, 1)").await;
    run(&mut two, "INSERT INTO item VALUES (95, 2, 1, 1)").await;
    run(&mut one, "COMMIT").await;
    assert_eq!(refused(&mut two, "COMMIT").await.sqlstate(), "40001");
}

/// Pseudo-random numbers.
struct Draw(u64);

impl Draw {
    fn below(&mut self, end: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }

    fn of<'a>(&mut self, items: &[&'a str]) -> &'a str {
        items[usize::try_from(self.below(items.len() as u64)).unwrap()]
    }
}

/// A join of tables whose columns have the same names, all of it in an order.
fn query(draw: &mut Draw) -> String {
    let key = draw.below(12);
    let ties = [
        "b.k = a.id",
        "b.k = a.k",
        "b.t = a.t",
        "b.id = a.k",
        "b.k = a.k AND b.id > a.id",
        "b.k = a.id AND b.t = 'x1'",
    ];
    let joins = ["JOIN", "LEFT JOIN", "INNER JOIN"];
    let conditions = [
        "a.id = ",
        "a.k = ",
        "b.id = ",
        "a.id < ",
        "a.id IN (3, 5, 8) AND a.k <> ",
        "a.t = 'x2' AND a.id <> ",
    ];
    let mut from = format!("u AS a {} v AS b ON {}", draw.of(&joins), draw.of(&ties));
    if draw.below(2) == 0 {
        let ties = ["c.k = b.id", "c.id = a.id", "c.t = b.t AND c.k = a.k", "c.id = b.k"];
        from = format!("{from} {} u AS c ON {}", draw.of(&joins), draw.of(&ties));
    } else {
        from.push_str(" LEFT JOIN v AS c ON c.k = a.id");
    }
    let selection = format!("{}{key}", draw.of(&conditions));
    match draw.below(4) {
        0 => format!(
            "SELECT count(*), sum(a.id), min(b.t), count(DISTINCT c.k), max(b.id + c.id) FROM {from} WHERE \
                {selection}"
        ),
        1 => format!(
            "SELECT b.t, count(c.id) AS n FROM {from} WHERE {selection} GROUP BY b.t ORDER BY n, b.t"
        ),
        2 => format!("SELECT DISTINCT a.t, b.k FROM {from} WHERE {selection} ORDER BY a.t, b.k"),
        _ => format!(
            "SELECT *, a.k + b.id FROM {from} WHERE {selection} ORDER BY a.id, b.id, c.id LIMIT {}",
            draw.below(30)
        ),
    }
}

async fn change(session: &mut Session, draw: &mut Draw) {
    let (table, id, k) = (draw.of(&["u", "v"]), draw.below(14), draw.below(9));
    let k = if k == 8 { "NULL".to_owned() } else { k.to_string() };
    let sql = match draw.below(4) {
        0 | 1 => {
            format!("INSERT INTO {table} VALUES ({id}, {k}, 'x{}') ON CONFLICT DO NOTHING", id % 4)
        }
        2 => format!("UPDATE {table} SET k = {k}, t = NULL WHERE id = {id}"),
        _ => format!("DELETE FROM {table} WHERE id = {id}"),
    };
    run(session, &sql).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn joins_of_few_rows_give_what_plans_give() {
    for (seed, tablets) in [(1, 1), (2, 3)] {
        let (_directory, database) = fresh().await;
        let mut session = database.session();
        let mut draw = Draw(seed);
        run(
            &mut session,
            &format!(
                "SET default_tablets = {tablets};
                 CREATE TABLE u (id integer PRIMARY KEY, k bigint, t text);
                 CREATE INDEX ON u (k); CREATE INDEX ON u (t, k);
                 CREATE TABLE v (id bigint PRIMARY KEY, k integer, t varchar(9));
                 CREATE INDEX ON v (k, id); CREATE INDEX ON v (t);
                 INSERT INTO u SELECT i, i % 5, 'x' || (i % 3) FROM generate_series(1, 9) AS s(i);
                 INSERT INTO v SELECT i, nullif(i % 6, 2), 'x' || (i % 4) FROM generate_series(1, 9) AS s(i)"
            ),
        )
        .await;
        for round in 0..10 {
            let is_block = round % 3 == 0;
            if is_block {
                run(&mut session, "BEGIN").await;
            }
            for _ in 0..3 {
                change(&mut session, &mut draw).await;
            }
            for _ in 0..8 {
                let sql = query(&mut draw);
                let without = rows(&mut session, &sql).await;
                run(&mut session, "SET look_up_rows = 0").await;
                let with = rows(&mut session, &sql).await;
                run(&mut session, "RESET look_up_rows").await;
                assert_eq!(without, with, "{sql}");
            }
            if is_block {
                run(&mut session, if round % 2 == 0 { "COMMIT" } else { "ROLLBACK" }).await;
            }
        }
    }
}
