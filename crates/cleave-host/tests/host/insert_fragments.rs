//! Tests of fragments that insert: tables get the rows that the same statements insert on the host, in transactions,
//! beside readers and writers, and across restarts.

use std::sync::Arc;

use cleave_host::{Database, Session};

use crate::devices::attach_nas;
use crate::support::{
    assert_no_leak, assert_no_leak_soon, beside, checks_out, fragments, fresh, open, refused, row,
    rows, run, waits,
};
use crate::twin_tables::{on_both, same_rows};

/// A table with rows to be inserted: NULLs, dead rows, and some in the delta.
async fn source(session: &mut Session, row_count: u32) {
    run(
        session,
        "CREATE TABLE source (id int PRIMARY KEY, kind int, small smallint, price numeric(12,2), \
         real double precision, note varchar(40), code char(6), long text, flag boolean, day date, \
         at timestamp, raw bytea)",
    )
    .await;
    let row = "v, v % 100, v % 30000, v * 0.37, v / 8.0, 'note ' || v % 1000, 'c' || v % 90, \
               repeat('y', v % 50), v % 3 = 0, DATE '2024-01-01' + v % 900, \
               TIMESTAMP '2024-01-01' + v * INTERVAL '1 minute', NULL";
    run(
        session,
        &format!(
            "INSERT INTO source SELECT {row} FROM generate_series(1, {row_count}) AS s(v); \
             DELETE FROM source WHERE id % 11 = 5 AND id < 2000; \
             INSERT INTO source (id, kind) SELECT v, 7 FROM generate_series(-200, -1) AS s(v)"
        ),
    )
    .await;
    run(session, "CREATE TABLE other (kind int PRIMARY KEY, factor int)").await;
    run(session, "INSERT INTO other SELECT v, v * 2 FROM generate_series(0, 40) AS s(v)").await;
}

/// Tables that get rows: `a` from fragments, `b` from the host.
async fn targets(session: &mut Session) {
    for table in ["a", "b"] {
        run(
            session,
            &format!(
                "CREATE TABLE {table} (id int, kind bigint NOT NULL, price numeric(10,1) DEFAULT 1.5, \
                 note varchar(30), code char(4), long text DEFAULT 'none', flag boolean, day date, \
                 at timestamp DEFAULT now(), CONSTRAINT cheap CHECK (price > -1), \
                 CONSTRAINT short CHECK (length(note) < 20 OR flag))"
            ),
        )
        .await;
    }
}

/// What is compared: the time of a statement differs.
const LISTED: &str = "id, kind, price, note, code, long, flag, day, at IS NULL";

/// Statements, and whether a fragment runs them.
const INSERTS: [(&str, bool); 29] = [
    ("INSERT INTO @ SELECT id, kind, price, note, NULL, long, flag, day, at FROM source", true),
    ("INSERT INTO @ (kind, id) SELECT id, kind FROM source WHERE price > 100", true),
    (
        "INSERT INTO @ (id, kind, price) SELECT id, small, id FROM source WHERE small IS NOT NULL",
        true,
    ),
    ("INSERT INTO @ SELECT * FROM @", true),
    (
        "INSERT INTO @ (id, kind) SELECT s.id, o.factor FROM source s JOIN other o ON s.kind = o.kind",
        true,
    ),
    (
        "INSERT INTO @ (kind, code) SELECT id, substr(code, 1, 3) FROM source WHERE code IS NOT NULL",
        true,
    ),
    ("INSERT INTO @ (id, kind) SELECT id, 7 FROM source WHERE kind = 1000", true),
    (
        "INSERT INTO @ (kind, long) SELECT id, repeat('long', 3000) FROM source WHERE id % 100 = 3",
        true,
    ),
    ("UPDATE @ SET price = price + 1 WHERE kind % 2 = 0", true),
    ("DELETE FROM @ WHERE kind % 7 = 2", true),
    ("INSERT INTO @ (id, kind) SELECT count(*), kind FROM source GROUP BY kind", true),
    ("INSERT INTO @ (kind) SELECT sum(id) FROM source", true),
    ("INSERT INTO @ VALUES (1, 2)", false),
    (
        "INSERT INTO @ (id, kind) SELECT id, kind FROM source WHERE kind = 9 RETURNING id, \
         price, long, (SELECT count(*) FROM @), kind + id AS sum",
        true,
    ),
    ("INSERT INTO @ (id, kind) SELECT id, 7 FROM source WHERE kind = 1000 RETURNING id", true),
    (
        "INSERT INTO @ (id, kind) SELECT id, 7 FROM source WHERE kind = 3 RETURNING 1 / (id - 203)",
        true,
    ),
    // By their order, number or source no fragments.
    ("INSERT INTO @ (kind) SELECT id FROM source ORDER BY id LIMIT 3", false),
    ("INSERT INTO @ (kind) SELECT v FROM generate_series(1, 20000) AS s(v)", false),
    ("INSERT INTO @ (kind) SELECT id FROM source UNION ALL SELECT kind FROM other", false),
    // Values that columns store otherwise.
    ("INSERT INTO @ (kind, price) SELECT id, real FROM source", true),
    ("INSERT INTO @ (kind, code, at) SELECT id, 'a  ', day FROM source", true),
    ("INSERT INTO @ (kind, code, note) SELECT id, 'ä' || id % 100 || '    ', id FROM source", true),
    // The host alone knows the text.
    ("INSERT INTO @ (kind, note) SELECT id, day FROM source", false),
    // Values that columns refuse.
    ("INSERT INTO @ (kind) SELECT small FROM source", false),
    ("INSERT INTO @ (kind, note) SELECT id, note || repeat('x', 25) FROM source", false),
    ("INSERT INTO @ (kind, code) SELECT id, 'abc d' FROM source", false),
    ("INSERT INTO @ (kind, price) SELECT id, price - 100 FROM source", false),
    (
        "INSERT INTO @ (kind, note, flag) SELECT id, note || 'and some more text', flag FROM source",
        false,
    ),
    ("INSERT INTO @ (id, kind) SELECT id * 1000000, id FROM source", false),
];

async fn every_insert(database: &Arc<Database>, session: &mut Session) {
    source(session, 5_000).await;
    targets(session).await;
    for (sql, by_fragment) in INSERTS {
        on_both(database, session, (sql, LISTED), by_fragment).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fragments_insert_the_rows_that_statements_insert() {
    let (directory, database) = fresh().await;
    let mut session = database.session();
    every_insert(&database, &mut session).await;
    assert_no_leak(&database);
    // They are on media, and every page and block is accounted for.
    drop((session, database));
    checks_out(directory.path()).await;
    let database = open(directory.path()).await;
    let mut session = database.session();
    same_rows(&mut session, ("after a restart", LISTED)).await;
    run(&mut session, "VACUUM FULL a; VACUUM FULL b").await;
    same_rows(&mut session, ("after a vacuum", LISTED)).await;
    assert_no_leak(&database);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_remote_device_inserts_into_its_own_tables() {
    let outside = tempfile::tempdir().unwrap();
    let (_directory, database) = fresh().await;
    let (_served, _) = attach_nas(&database, outside.path()).await;
    let mut session = database.session();
    run(&mut session, "SET default_device = 'nas'").await;
    every_insert(&database, &mut session).await;
    // Rows of another device come through the host.
    run(&mut session, "SET default_device = 'embedded'; CREATE TABLE near (kind int)").await;
    run(&mut session, "SET update_placement = device").await;
    let before = fragments(&database).await;
    run(&mut session, "INSERT INTO near SELECT id FROM source").await;
    assert_eq!(fragments(&database).await, before);
    assert_eq!(row(&mut session, "SELECT count(*) FROM near").await, "5018");
    assert_no_leak(&database);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_of_inserted_rows_are_in_all_indexes() {
    let (directory, database) = fresh().await;
    let mut session = database.session();
    source(&mut session, 12_000).await;
    for table in ["a", "b"] {
        run(
            &mut session,
            &format!(
                "CREATE TABLE {table} (id int PRIMARY KEY, kind int, note text); \
                 CREATE INDEX {table}_kind ON {table} (kind, note); \
                 CREATE UNIQUE INDEX {table}_note ON {table} (note, id); \
                 INSERT INTO {table} VALUES (-1000, 7, 'there before')"
            ),
        )
        .await;
    }
    for (sql, by_fragment) in [
        ("INSERT INTO @ SELECT id, kind, note FROM source WHERE id > 0", true),
        ("INSERT INTO @ SELECT id + 20000, kind, note FROM source WHERE kind < 50", true),
        // Each of these has a key twice: in the table, and in itself.
        (
            "INSERT INTO @ SELECT id + 40000, kind, note FROM source UNION ALL SELECT 1, 1, ''",
            false,
        ),
        ("INSERT INTO @ VALUES (-7, 7, 'between')", false),
        ("INSERT INTO @ SELECT 30000 - id, kind, note FROM source WHERE id < -100", true),
    ] {
        for (table, placement) in [("a", "device"), ("b", "host")] {
            run(&mut session, &format!("SET update_placement = {placement}")).await;
            let before = fragments(&database).await;
            let _end = session.run(&sql.replace('@', table)).await;
            let used = fragments(&database).await > before;
            assert_eq!(used, by_fragment && table == "a", "{sql}");
        }
        for query in [
            "SELECT * FROM @ ORDER BY id",
            "SELECT id FROM @ WHERE kind = 7 ORDER BY id",
            "SELECT id FROM @ WHERE note = 'note 7' ORDER BY id",
            "SELECT note FROM @ WHERE id = 777",
        ] {
            let a = rows(&mut session, &query.replace('@', "a")).await;
            assert_eq!(a, rows(&mut session, &query.replace('@', "b")).await, "{sql}: {query}");
        }
    }
    run(&mut session, "SET update_placement = device").await;
    for sql in [
        "INSERT INTO a SELECT id, kind, note FROM source WHERE id > 0",
        "INSERT INTO a SELECT 100000 + id % 5000, kind, note FROM source",
        "INSERT INTO a SELECT CASE WHEN id = 6000 THEN -1000 ELSE id + 200000 END, kind, note FROM source",
    ] {
        let error = refused(&mut session, sql).await;
        assert_eq!(error.sqlstate(), "23505", "{sql}: {error}");
        assert!(error.to_string().contains("a_pkey"), "{error}");
    }
    let count = row(&mut session, "SELECT count(*), sum(id) FROM a").await;
    assert_eq!(count, row(&mut session, "SELECT count(*), sum(id) FROM b").await);
    // What is found by a key may be changed by it.
    run(&mut session, "UPDATE a SET note = 'by key' WHERE id = 777").await;
    assert_eq!(row(&mut session, "SELECT id FROM a WHERE note = 'by key'").await, "777");
    assert_no_leak(&database);
    drop((session, database));
    checks_out(directory.path()).await;
    let database = open(directory.path()).await;
    let mut session = database.session();
    assert_eq!(row(&mut session, "SELECT count(*), sum(id) FROM a").await, count);
    assert_eq!(row(&mut session, "SELECT id FROM a WHERE note = 'by key'").await, "777");
}

/// Tables of several tablets get their rows in one pass: each goes to the tablet of its values; in load order stretches
/// go to all in turn, round robin blocks of each batch.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tablets_get_the_rows_of_their_values() {
    for (clause, unique) in [
        ("WITH (tablets = 3, tablet_by = hash (id))", "CREATE UNIQUE INDEX @_id ON @ (id)"),
        ("WITH (tablets = 3, tablet_by = hash (kind, note))", "CREATE UNIQUE INDEX @_id ON @ (id)"),
        ("WITH (tablets = 2, tablet_by = load_order)", "CREATE UNIQUE INDEX @_id ON @ (id)"),
        ("WITH (tablets = 3, tablet_by = round_robin)", "CREATE UNIQUE INDEX @_id ON @ (id)"),
        (
            "WITH (tablet_by = range (id), bounds = (0, 2000, 20000))",
            "CREATE UNIQUE INDEX @_id ON @ (id)",
        ),
        (
            "WITH (tablet_by = range (note), bounds = ('note 3'))",
            "CREATE UNIQUE INDEX @_id ON @ (id)",
        ),
    ] {
        let (directory, database) = fresh().await;
        let mut session = database.session();
        source(&mut session, 5_000).await;
        for table in ["a", "b"] {
            let sql = "CREATE TABLE @ (id int, kind int, price numeric(12,2), note text) #; ";
            let sql = format!("{sql}{unique}; INSERT INTO @ VALUES (-1000, 7, 1, 'before')");
            run(&mut session, &sql.replace('@', table).replace('#', clause)).await;
        }
        const LISTED: &str = "id, kind, price, note";
        for (sql, by_fragment) in [
            ("INSERT INTO @ SELECT id, kind, price, note FROM source", true),
            ("INSERT INTO @ SELECT id + 10000, kind, price, note FROM @ WHERE id > 0", true),
            ("INSERT INTO @ (id) SELECT id + 30000 FROM source WHERE kind < 7", true),
            // Keys that are there, in whichever tablet, and keys that come twice.
            ("INSERT INTO @ SELECT id + 6000, kind + 1, price, note FROM source", true),
            (
                "INSERT INTO @ SELECT CASE WHEN id = 9 THEN 50019 ELSE 50010 + id END, kind, price, note FROM source \
                 WHERE id IN (8, 9)",
                true,
            ),
            (
                "INSERT INTO @ SELECT CASE WHEN id = 10 THEN 50019 ELSE 50010 + id END, kind, price, note FROM \
                 source WHERE id IN (9, 10, 12)",
                true,
            ),
            ("UPDATE @ SET price = price + 1 WHERE kind = 3", true),
            ("DELETE FROM @ WHERE kind = 8", true),
            (
                "INSERT INTO @ SELECT id + 40000, kind, price, note FROM source WHERE id < 20 \
                 RETURNING id + 1 AS next, note, kind",
                true,
            ),
        ] {
            on_both(&database, &mut session, (sql, LISTED), by_fragment).await;
        }
        // Each row is where a look-up by its values finds it.
        run(&mut session, "SET index_scan = off").await;
        for id in [1, 777, 10777, 40003] {
            let found = |table| format!("SELECT note FROM {table} WHERE id = {id}");
            let b = rows(&mut session, &found("b")).await;
            assert_eq!(rows(&mut session, &found("a")).await, b, "{clause}: {id}");
        }
        assert_no_leak(&database);
        drop((session, database));
        checks_out(directory.path()).await;
        let database = open(directory.path()).await;
        let mut session = database.session();
        same_rows(&mut session, ("after a restart", LISTED)).await;
    }
}

/// Rows that refer to others are checked as those of a load are, and hold the rows that they refer to.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inserted_rows_refer_to_rows_that_are_there() {
    let (directory, database) = fresh().await;
    let mut session = database.session();
    source(&mut session, 5_000).await;
    for table in ["a", "b"] {
        let columns = "id int PRIMARY KEY, kind int REFERENCES other, price int, note text, \
                       up int REFERENCES @ (id)";
        let sql = format!("CREATE TABLE @ ({columns}); INSERT INTO @ VALUES (-1, 1, 1, 'n', -1)");
        run(&mut session, &sql.replace('@', table)).await;
    }
    const LISTED: &str = "id, kind, price, note, up";
    for (sql, by_fragment) in [
        ("INSERT INTO @ SELECT id, kind % 41, 1, note, id FROM source WHERE id > 0", true),
        ("INSERT INTO @ SELECT id + 10000, NULL, 1, note, id FROM @ WHERE id > 0", true),
        // No such kind, and no such row of its own table.
        ("INSERT INTO @ SELECT id + 20000, 41, 1, '', NULL FROM source WHERE kind = 5", true),
        ("INSERT INTO @ SELECT 30000, 5, 1, '', 30001 FROM source WHERE id = 9", true),
        (
            "INSERT INTO @ SELECT 30000 + id % 2, 5, 1, '', 30001 - id % 2 FROM source WHERE id IN (9, 10)",
            true,
        ),
        ("DELETE FROM @ WHERE id = 30001", false),
    ] {
        on_both(&database, &mut session, (sql, LISTED), by_fragment).await;
    }
    // A key that is checked at COMMIT.
    let sql = "CREATE TABLE late (kind int REFERENCES other DEFERRABLE INITIALLY DEFERRED)";
    run(&mut session, &format!("{sql}; SET update_placement = device; BEGIN")).await;
    let before = fragments(&database).await;
    run(&mut session, "INSERT INTO late SELECT 50 FROM source WHERE id = 4").await;
    assert_eq!(fragments(&database).await, before);
    assert_eq!(refused(&mut session, "COMMIT").await.sqlstate(), "23503");
    // Nobody takes away what the rows of a block refer to.
    run(
        &mut session,
        "BEGIN; INSERT INTO a SELECT 40000, 40, 1, '', NULL FROM source WHERE id = 4",
    )
    .await;
    run(&mut session, "INSERT INTO other VALUES (99, 1)").await;
    let mut deletes = beside(database.session(), "DELETE FROM other WHERE kind = 40");
    assert!(waits(&mut deletes).await);
    run(&mut session, "COMMIT").await;
    assert_eq!(deletes.await.unwrap().1, "23503");
    assert_no_leak_soon(&database).await;
    drop((session, database));
    checks_out(directory.path()).await;
}

const SUM: &str = "SELECT count(*), sum(price), count(note) FROM a";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn blocks_see_their_own_rows_and_undo_them() {
    let (directory, database) = fresh().await;
    let (mut one, mut two) = (database.session(), database.session());
    run(&mut one, "CREATE TABLE s (id int, price numeric(12,2), note text)").await;
    run(&mut one, "INSERT INTO s SELECT v, v, 'n' FROM generate_series(1, 20000) AS s(v)").await;
    run(&mut one, "CREATE TABLE a (id int PRIMARY KEY, price numeric(12,2), note text)").await;
    run(&mut one, "SET update_placement = device").await;
    let before = fragments(&database).await;
    run(&mut one, "BEGIN; INSERT INTO a VALUES (-5, 5, 'row')").await;
    run(&mut one, "INSERT INTO a SELECT * FROM s").await;
    assert_eq!(fragments(&database).await, before + 1);
    assert_eq!(row(&mut one, SUM).await, "20001,200010005.00,20001");
    assert_eq!(row(&mut two, SUM).await, "0,NULL,0", "others read what is committed");
    run(&mut one, "UPDATE a SET price = price + 1").await;
    assert_eq!(fragments(&database).await, before + 2);
    assert_eq!(row(&mut one, "SELECT price FROM a WHERE id = 777").await, "778.00");
    run(&mut one, "SAVEPOINT s").await;
    run(&mut one, "INSERT INTO a SELECT id + 20000, price, NULL FROM a WHERE id > 0").await;
    run(&mut one, "DELETE FROM a WHERE id BETWEEN 10 AND 19").await;
    assert_eq!(row(&mut one, "SELECT count(*), count(note) FROM a").await, "39991,19991");
    run(&mut one, "ROLLBACK TO s").await;
    assert_eq!(row(&mut one, SUM).await, "20001,200030006.00,20001");
    run(&mut one, "INSERT INTO a SELECT id + 50000, 0, note FROM s WHERE id % 2 = 0").await;
    run(&mut one, "INSERT INTO a VALUES (-6, 6, 'last')").await;
    run(&mut one, "COMMIT").await;
    let after = "30002,200030012.00,30002";
    assert_eq!(row(&mut two, SUM).await, after);
    run(&mut one, "BEGIN; INSERT INTO a SELECT id + 100000, 1, '' FROM s").await;
    assert_eq!(row(&mut one, "SELECT count(*) FROM a").await, "50002");
    run(&mut one, "ROLLBACK").await;
    assert_eq!(row(&mut one, SUM).await, after);
    // A block that fails.
    run(&mut one, "BEGIN; INSERT INTO a SELECT id + 100000, 1, '' FROM s").await;
    assert_eq!(refused(&mut one, "SELECT 1 / 0").await.sqlstate(), "22012");
    run(&mut one, "COMMIT").await;
    run(&mut one, "BEGIN; INSERT INTO s SELECT * FROM s").await;
    assert_eq!(refused(&mut one, "INSERT INTO a SELECT * FROM s").await.sqlstate(), "23505");
    run(&mut one, "COMMIT").await;
    assert_eq!(row(&mut one, SUM).await, after);
    assert_eq!(row(&mut one, "SELECT count(*) FROM s").await, "20000");
    // One snapshot, in which the rows are there.
    for level in ["REPEATABLE READ", "SERIALIZABLE"] {
        run(&mut one, &format!("BEGIN ISOLATION LEVEL {level}; SELECT count(*) FROM s")).await;
        run(&mut two, "INSERT INTO s VALUES (0, 0, 'since')").await;
        run(&mut one, "INSERT INTO a SELECT id + 200000, 1, '' FROM s").await;
        assert_eq!(row(&mut one, "SELECT count(*) FROM a WHERE id >= 200000").await, "20000");
        run(&mut one, "ROLLBACK").await;
        run(&mut two, "DELETE FROM s WHERE id = 0").await;
    }
    assert_no_leak_soon(&database).await;
    drop((one, two, database));
    checks_out(directory.path()).await;
    let database = open(directory.path()).await;
    assert_eq!(row(&mut database.session(), SUM).await, after);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn new_tables_get_the_rows_of_their_query() {
    let outside = tempfile::tempdir().unwrap();
    let (directory, database) = fresh().await;
    let (_served, _) = attach_nas(&database, outside.path()).await;
    let mut session = database.session();
    source(&mut session, 12_000).await;
    run(&mut session, "SET update_placement = device").await;
    let sum =
        |table: &str| format!("SELECT count(*), sum(price), count(code), max(day) FROM {table}");
    let all = row(&mut session, &sum("source")).await;
    for (sql, by_fragment) in [
        ("CREATE TABLE c AS SELECT * FROM source", true),
        ("BEGIN; CREATE TABLE c AS SELECT * FROM source; COMMIT", true),
        ("CREATE TEMPORARY TABLE c AS SELECT * FROM source", true),
        ("CREATE TABLE c AS SELECT * FROM source ORDER BY id", true),
        ("CREATE TABLE c AS SELECT * FROM source ORDER BY id LIMIT 20000", false),
        ("SET default_device = 'nas'; CREATE TABLE c AS SELECT * FROM source", false),
        (
            "SET default_device = 'embedded'; SET default_tablets = 2; CREATE TABLE c AS SELECT * FROM source",
            true,
        ),
    ] {
        let before = fragments(&database).await;
        run(&mut session, sql).await;
        assert_eq!(fragments(&database).await > before, by_fragment, "{sql}");
        assert_eq!(row(&mut session, &sum("c")).await, all, "{sql}");
        run(&mut session, "INSERT INTO c (id, price) VALUES (0, 1); DROP TABLE c").await;
    }
    run(&mut session, "SET default_tablets = 0; BEGIN").await;
    run(&mut session, "CREATE TABLE c AS SELECT id, price FROM source").await;
    run(&mut session, "INSERT INTO c SELECT id, price FROM source; ROLLBACK").await;
    assert_eq!(refused(&mut session, "SELECT * FROM c").await.sqlstate(), "42P01");
    let error = refused(&mut session, "CREATE TABLE c AS SELECT id, id FROM source").await;
    assert_eq!(error.sqlstate(), "42701");
    run(&mut session, "CREATE TABLE d AS SELECT id + 1, kind k FROM source").await;
    assert_eq!(row(&mut session, "SELECT count(\"?column?\"), max(k) FROM d").await, "12018,99");
    run(&mut session, "CREATE TABLE c AS SELECT kind, count(*) AS n FROM source GROUP BY kind")
        .await;
    assert_eq!(row(&mut session, "SELECT count(*), sum(n) FROM c").await, "100,12018");
    assert_no_leak_soon(&database).await;
    drop((session, database));
    checks_out(directory.path()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn explain_shows_the_fragment_and_runs_it() {
    let outside = tempfile::tempdir().unwrap();
    let (_directory, database) = fresh().await;
    let (_served, _) = attach_nas(&database, outside.path()).await;
    let mut session = database.session();
    run(&mut session, "SET default_device = 'nas'").await;
    source(&mut session, 30_000).await;
    run(&mut session, "CREATE TABLE a (id int, price numeric(12,2)); ANALYZE source").await;
    let all = "INSERT INTO a SELECT id, price FROM source";
    for (sql, placement, chosen) in [
        (all, "device", true),
        (all, "host", false),
        ("INSERT INTO a SELECT id, price FROM source WHERE id = 7", "auto", false),
        ("INSERT INTO a SELECT id, price FROM source ORDER BY id LIMIT 9", "device", false),
    ] {
        run(&mut session, &format!("SET update_placement = {placement}")).await;
        let text = rows(&mut session, &format!("EXPLAIN VERBOSE {sql}")).await.join("\n");
        assert_eq!(text.starts_with("Insert into a by a fragment"), chosen, "{text}");
        assert_eq!(text.contains("InsertPagesExec: table="), chosen, "{text}");
        assert_eq!(text.contains("device, by pages"), chosen, "{text}");
        let before = fragments(&database).await;
        run(&mut session, "BEGIN").await;
        let text = rows(&mut session, &format!("EXPLAIN ANALYZE VERBOSE {sql}")).await.join("\n");
        run(&mut session, "ROLLBACK").await;
        assert_eq!(fragments(&database).await > before, chosen, "{text}");
        assert!(text.contains("Insert "), "{text}");
    }
    run(&mut session, "SET update_placement = auto").await;
    let text = rows(&mut session, &format!("EXPLAIN VERBOSE {all}")).await.join("\n");
    assert!(text.contains("device, by pages") && text.contains("host, by rows"), "{text}");
    assert_eq!(row(&mut session, "SELECT count(*) FROM a").await, "0");
    assert_no_leak_soon(&database).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writers_of_the_table_wait_for_a_block_alone() {
    let (_directory, database) = fresh().await;
    let (mut one, mut two) = (database.session(), database.session());
    run(&mut one, "CREATE TABLE s (id int); CREATE TABLE a (id int)").await;
    run(&mut one, "INSERT INTO s SELECT v FROM generate_series(1, 20000) AS s(v)").await;
    run(&mut one, "SET update_placement = device").await;
    run(&mut one, "BEGIN; INSERT INTO a SELECT id FROM s").await;
    assert_eq!(row(&mut two, "SELECT count(*) FROM a").await, "0");
    let mut waiting = beside(two, "INSERT INTO a VALUES (7)");
    assert!(waits(&mut waiting).await);
    run(&mut one, "COMMIT").await;
    let (mut two, _) = waiting.join().await.unwrap();
    assert_eq!(row(&mut one, "SELECT count(*) FROM a").await, "20001");
    run(&mut two, "BEGIN; INSERT INTO a VALUES (8)").await;
    let before = fragments(&database).await;
    run(&mut one, "INSERT INTO a SELECT id FROM s").await;
    assert!(fragments(&database).await > before, "beside the other");
    run(&mut two, "INSERT INTO a VALUES (9); COMMIT").await;
    assert_eq!(row(&mut one, "SELECT count(*), max(id) FROM a").await, "40003,20000");
    run(&mut two, "BEGIN; INSERT INTO a VALUES (10)").await;
    let mut waiting = beside(one, "BEGIN; INSERT INTO a SELECT id FROM s");
    assert!(waits(&mut waiting).await);
    run(&mut two, "COMMIT").await;
    let (mut one, _) = waiting.join().await.unwrap();
    assert_eq!(row(&mut one, "SELECT count(*), max(id) FROM a").await, "60004,20000");
    run(&mut one, "COMMIT").await;
    assert_no_leak_soon(&database).await;
}
