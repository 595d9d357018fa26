//! Tests of statements through a session: definitions, settings, COPY, the point path against the planner.

use std::io::{Read, Write};
use std::sync::{Arc, Mutex};

use cleave_host::{ClientStreams, Outcome};

use crate::support::{batches, fresh, numbered, refused, row, rows, run};

fn tag(outcomes: &[Outcome]) -> String {
    match outcomes {
        [Outcome::Done { tag }] => tag.clone(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tables_are_made_and_dropped() {
    let (_directory, database) = fresh().await;
    let mut session = database.session();
    assert_eq!(tag(&run(&mut session, "CREATE TABLE t (id int)").await), "CREATE TABLE");
    assert_eq!(refused(&mut session, "CREATE TABLE t (x int)").await.sqlstate(), "42P07");
    run(&mut session, "CREATE TABLE IF NOT EXISTS t (x int)").await;
    assert_eq!(tag(&run(&mut session, "INSERT INTO t VALUES (1), (2)").await), "INSERT 0 2");
    assert_eq!(rows(&mut session, "SHOW TABLES").await, ["t,2"]);
    let error = refused(&mut session, "DROP TABLE tt").await;
    assert_eq!(error.sqlstate(), "42P01");
    assert!(error.to_string().contains("did you mean \"t\"?"), "{error}");
    assert_eq!(refused(&mut session, "DROP TABLE t, nothing").await.sqlstate(), "42P01");
    assert_eq!(rows(&mut session, "SHOW TABLES").await, ["t,2"], "all or none are dropped");
    run(&mut session, "DROP TABLE IF EXISTS nothing, t").await;
    assert_eq!(rows(&mut session, "SHOW TABLES").await, Vec::<String>::new());
    assert_eq!(refused(&mut session, "SELECT * FROM t").await.sqlstate(), "42P01");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_script_stops_at_the_first_error_and_keeps_what_was_done() {
    let (_directory, database) = fresh().await;
    let mut session = database.session();
    let error = refused(
        &mut session,
        "CREATE TABLE a (id int); CREATE TABLE a (id int);\nCREATE TABLE b (id int)",
    )
    .await;
    assert_eq!(error.sqlstate(), "42P07");
    assert_eq!(rows(&mut session, "SHOW TABLES").await, ["a,0"]);
    // A syntax error stops the script before it begins.
    assert_eq!(
        refused(&mut session, "CREATE TABLE c (id int); SELEKT 1").await.sqlstate(),
        "42601"
    );
    assert_eq!(rows(&mut session, "SHOW TABLES").await, ["a,0"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn settings_are_set_shown_and_checked() {
    let (_directory, database) = fresh().await;
    let mut session = database.session();
    run(&mut session, "SET split = h0").await;
    assert_eq!(row(&mut session, "SHOW split").await, "h0");
    run(&mut session, "RESET ALL").await;
    assert_eq!(row(&mut session, "SHOW split").await, "auto");
    assert_eq!(refused(&mut session, "SET split = h77").await.sqlstate(), "22023");
    let error = refused(&mut session, "SHOW splt").await;
    assert!(error.to_string().contains("did you mean \"split\"?"), "{error}");
    assert!(rows(&mut session, "SHOW ALL").await.len() > 8);
    run(&mut session, "SET default_transaction_isolation = 'repeatable read'").await;
    assert_eq!(row(&mut session, "SHOW default_transaction_isolation").await, "repeatable read");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_point_path_gives_what_the_planner_gives() {
    let (_directory, database) = fresh().await;
    let mut session = database.session();
    run(&mut session, "CREATE TABLE t (id int PRIMARY KEY, note text)").await;
    session.load("t", batches(vec![numbered(0..70_000)]), None).await.unwrap();
    run(&mut session, "INSERT INTO t VALUES (-5, 'hot'), (70000, NULL)").await;
    run(&mut session, "CREATE TABLE pair (a text, b bigint, c date, PRIMARY KEY (b, a))").await;
    run(&mut session, "INSERT INTO pair VALUES ('x', 1, '2024-01-01'), ('y', 1, NULL)").await;
    for columns in ["id, note", "note", "*", "note AS n, id"] {
        for id in [-5, 0, 1, 65_535, 65_536, 69_999, 70_000, 70_001, -6] {
            let point = format!("SELECT {columns} FROM t WHERE id = {id}");
            let planned = format!("{point} AND id + 0 = {id}");
            assert_eq!(
                both(&mut session, &point).await,
                both(&mut session, &planned).await,
                "{point}"
            );
        }
    }
    for key in ["a = 'x' AND b = 1", "b = 1 AND a = 'y'", "a = 'z' AND b = 1"] {
        let point = format!("SELECT c, a FROM pair WHERE {key}");
        let planned = format!("{point} AND b + 0 = 1");
        assert_eq!(both(&mut session, &point).await, both(&mut session, &planned).await, "{point}");
    }
    let explained = rows(&mut session, "EXPLAIN SELECT note FROM t WHERE id = 5").await;
    assert!(explained[0].contains("without a plan"), "{explained:?}");
    let explained = rows(&mut session, "EXPLAIN SELECT note FROM t WHERE id > 5").await;
    assert!(!explained[0].contains("without a plan"), "{explained:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn look_ups_that_were_seen_follow_what_happens_to_their_table() {
    let (_directory, database) = fresh().await;
    let mut session = database.session();
    let find = |id: i32| format!("SELECT * FROM t WHERE id = {id}");
    run(&mut session, "CREATE TABLE t (id int PRIMARY KEY, note text)").await;
    run(&mut session, "INSERT INTO t VALUES (1, 'one')").await;
    assert_eq!(rows(&mut session, &find(1)).await, ["1,one"]);
    assert_eq!(rows(&mut session, &find(2)).await, Vec::<String>::new());
    run(&mut session, "INSERT INTO t VALUES (2, 'two')").await;
    assert_eq!(rows(&mut session, &find(2)).await, ["2,two"]);
    run(&mut session, "CREATE INDEX i ON t (note)").await;
    let noted = "SELECT id FROM t WHERE note = 'two'";
    for _ in 0..2 {
        assert_eq!(rows(&mut session, noted).await, ["2"]);
        assert_eq!(rows(&mut session, &find(2)).await, ["2,two"]);
    }
    run(&mut session, "DROP INDEX i").await;
    assert_eq!(rows(&mut session, noted).await, ["2"]);
    run(&mut session, "DROP TABLE t").await;
    assert_eq!(refused(&mut session, &find(2)).await.sqlstate(), "42P01");
    run(&mut session, "CREATE TABLE t (note text, id bigint PRIMARY KEY)").await;
    run(&mut session, "INSERT INTO t VALUES ('zwei', 2)").await;
    for _ in 0..2 {
        assert_eq!(rows(&mut session, &find(2)).await, ["zwei,2"]);
    }
}

/// Column names, types and rows of a query.
async fn both(session: &mut cleave_host::Session, sql: &str) -> (Vec<String>, Vec<String>) {
    let outcomes = run(session, sql).await;
    let [Outcome::Rows { schema, .. }] = outcomes.as_slice() else { panic!("{sql}") };
    let columns = schema.fields().iter().map(|f| format!("{} {}", f.name(), f.data_type()));
    (columns.collect(), rows(session, sql).await)
}

#[tokio::test]
async fn columns_of_functions_have_the_names_of_the_functions() {
    let (_directory, database) = fresh().await;
    let mut session = database.session();
    for (sql, expected, found) in [
        ("SELECT unnest(ARRAY['a'])", "unnest", "a"),
        ("SELECT * FROM unnest(ARRAY['a'])", "unnest", "a"),
        ("SELECT * FROM unnest(ARRAY['a'], ARRAY['a'])", "unnest,unnest", "a,a"),
        ("SELECT * FROM unnest(ARRAY['a'], ARRAY[1]) AS u (x)", "x,unnest", "a,1"),
        (
            "SELECT u.*, 2 AS two FROM unnest(ARRAY['a'], ARRAY[1]) AS u",
            "unnest,unnest,two",
            "a,1,2",
        ),
        ("SELECT * FROM upper('a')", "upper", "A"),
    ] {
        let outcomes = run(&mut session, sql).await;
        let [Outcome::Rows { schema, .. }] = outcomes.as_slice() else { panic!("{sql}") };
        let names: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
        assert_eq!(names.join(","), expected, "{sql}");
        assert_eq!(row(&mut session, sql).await, found, "{sql}");
    }
}

/// What COPY TO STDOUT wrote, to be read by the test.
#[derive(Clone, Default)]
struct Written(Arc<Mutex<Vec<u8>>>);

impl Write for Written {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copy_goes_both_ways_in_every_format() {
    let (_directory, database) = fresh().await;
    let mut session = database.session();
    let definition = "(id int PRIMARY KEY, note text)";
    run(&mut session, &format!("CREATE TABLE t {definition}")).await;
    session.load("t", batches(vec![numbered(0..30_000)]), None).await.unwrap();
    run(&mut session, "INSERT INTO t VALUES (30000, NULL), (30001, 'a \"quoted\", value')").await;
    let files = tempfile::tempdir().unwrap();
    let sum = "SELECT count(*), sum(id), count(note), sum(length(note)) FROM";
    let expected = row(&mut session, &format!("{sum} t")).await;
    for (name, options) in [
        ("t.csv", "WITH (FORMAT csv, HEADER true)"),
        ("t.txt", ""),
        ("t.parquet", "WITH (FORMAT parquet)"),
    ] {
        let path = files.path().join(name);
        let path = path.display();
        let done = run(&mut session, &format!("COPY t TO '{path}' {options}")).await;
        assert_eq!(tag(&done), "COPY 30002");
        run(&mut session, &format!("CREATE TABLE u {definition}")).await;
        let done = run(&mut session, &format!("COPY u FROM '{path}' {options}")).await;
        assert_eq!(tag(&done), "COPY 30002", "{name}");
        assert_eq!(row(&mut session, &format!("{sum} u")).await, expected, "{name}");
        run(&mut session, "DROP TABLE u").await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copy_speaks_with_the_client() {
    let (_directory, database) = fresh().await;
    let mut session = database.session();
    run(&mut session, "CREATE TABLE t (id int PRIMARY KEY, kind text DEFAULT 'none')").await;
    assert_eq!(refused(&mut session, "COPY t FROM STDIN").await.sqlstate(), "0A000");
    let written = Written::default();
    let input: Box<dyn Read + Send> = Box::new(&b"1\n2\n"[..]);
    session.set_client_streams(ClientStreams {
        input: Some(input),
        output: Some(Box::new(written.clone())),
    });
    assert_eq!(tag(&run(&mut session, "COPY t (id) FROM STDIN WITH (FORMAT csv)").await), "COPY 2");
    for _ in 0..2 {
        run(&mut session, "COPY (SELECT * FROM t ORDER BY id) TO STDOUT WITH (FORMAT csv)").await;
    }
    let written = String::from_utf8(written.0.lock().unwrap().clone()).unwrap();
    assert_eq!(written, "1,none\n2,none\n1,none\n2,none\n");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_that_fails_leaves_the_client_its_output() {
    let (_directory, database) = fresh().await;
    let mut session = database.session();
    run(&mut session, "CREATE TABLE t (id int PRIMARY KEY)").await;
    run(&mut session, "INSERT INTO t VALUES (0), (1)").await;
    let written = Written::default();
    session
        .set_client_streams(ClientStreams { input: None, output: Some(Box::new(written.clone())) });
    // The query fails while it runs; the writer fails before the first row.
    for (sql, sqlstate) in [
        ("COPY (SELECT 1 / id FROM t) TO STDOUT", "22012"),
        ("COPY t TO STDOUT WITH (FORMAT csv, FORCE_QUOTE (nothing))", "42703"),
    ] {
        let error = refused(&mut session, sql).await;
        assert_eq!(error.sqlstate(), sqlstate, "{sql}: {error}");
    }
    written.0.lock().unwrap().clear();
    run(&mut session, "COPY (SELECT id FROM t WHERE id = 1) TO STDOUT").await;
    assert_eq!(*written.0.lock().unwrap(), b"1\n");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_is_wrong_somewhere_loads_nothing() {
    let (_directory, database) = fresh().await;
    let mut session = database.session();
    run(&mut session, "CREATE TABLE t (id int PRIMARY KEY, note varchar(8))").await;
    let files = tempfile::tempdir().unwrap();
    let path = files.path().join("bad.csv");
    for (text, sqlstate, words) in [
        ("1,a\nx,b\n", "22P02", "line 2, column 1 (\"id\")"),
        ("1,a\n2,much too long\n", "22001", "line 2, column 2 (\"note\")"),
        ("1,a\n2\n", "22P04", "line 2"),
        ("1,a\n2,b,c\n", "22P04", "line 2"),
        ("1,a\n,b\n", "23502", "line 2, column 1 (\"id\")"),
        ("1,a\n2,\"b\n", "22P04", "line 2"),
        ("1,a\n1,b\n", "23505", "(id)=(1)"),
    ] {
        std::fs::write(&path, text).unwrap();
        let sql = format!("COPY t FROM '{}' WITH (FORMAT csv)", path.display());
        let error = refused(&mut session, &sql).await;
        assert_eq!(error.sqlstate(), sqlstate, "{text:?}: {error}");
        assert!(error.to_string().contains(words), "{text:?}: {error}");
        assert_eq!(row(&mut session, "SELECT count(*) FROM t").await, "0");
    }
    let error = refused(&mut session, "COPY t FROM '/nowhere/x.csv' WITH (FORMAT csv)").await;
    assert_eq!(error.sqlstate(), "58P01");
    assert!(error.to_string().contains("/nowhere/x.csv"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn explain_shows_what_the_statement_does() {
    let (_directory, database) = fresh().await;
    let mut session = database.session();
    run(&mut session, "CREATE TABLE t (id int PRIMARY KEY, note text)").await;
    session.load("t", batches(vec![numbered(0..20_000)]), None).await.unwrap();
    run(&mut session, "CREATE TABLE many (id int, kind int)").await;
    run(&mut session, "CREATE INDEX many_kind ON many (kind, id)").await;
    run(&mut session, "INSERT INTO many SELECT id, id % 2 FROM t").await;
    let mut explain = async |what: &str| rows(&mut session, what).await.join("\n");
    // Of a unique key there is one row; of others there may be too many to look up.
    let look_up = "Point look-up on t by index t_pkey (id), on the host, without a plan";
    assert_eq!(explain("EXPLAIN SELECT note FROM t WHERE id = 5").await, look_up);
    assert_eq!(
        explain("EXPLAIN SELECT id FROM many WHERE kind = 1").await,
        "Point look-up on many by index many_kind (kind, id), on the host, without a plan up to 256 entries, with \
            one beyond"
    );
    // An INSERT plans its query, whatever it is.
    let plan = explain("EXPLAIN INSERT INTO t (note) SELECT note FROM t WHERE id = 5").await;
    assert!(!plan.contains("Point look-up") && plan.contains("Cuts:"), "{plan}");
    // A change of rows by key has no plan, and written-out rows are not searched for.
    let changed = explain("EXPLAIN UPDATE t SET note = 'x' WHERE id = 5").await;
    assert_eq!(changed, look_up.replace("Point", "Update by point"));
    let changed = explain("EXPLAIN UPDATE t SET note = 'x' WHERE id = -5").await;
    assert_eq!(changed, look_up.replace("Point", "Update by point"));
    let changed = explain("EXPLAIN DELETE FROM t WHERE -5 = id").await;
    assert_eq!(changed, look_up.replace("Point", "Delete by point"));
    let changed = explain("EXPLAIN DELETE FROM many WHERE kind = 1 AND id < 9").await;
    assert!(changed.starts_with("Delete by range look-up on many by index many_kind"), "{changed}");
    let plan = explain("EXPLAIN UPDATE t SET note = 'x' WHERE note = 'y'").await;
    assert!(!plan.contains("look-up") && plan.contains("Cuts:"), "{plan}");
    let put = explain("EXPLAIN INSERT INTO t VALUES (1, 'a'), (2, 'b')").await;
    assert_eq!(put, "Insert of 2 rows into t, on the host, without a plan");
    let put = "EXPLAIN INSERT INTO t VALUES (1, 'a') ON CONFLICT (id) DO UPDATE SET note = 'c'";
    assert_eq!(
        explain(put).await,
        "Insert of 1 row into t, or update of what has its key, which is looked up, on the host, without a plan"
    );
    // With ANALYZE the look-up is what runs, unless it finds too many.
    let measured = explain("EXPLAIN ANALYZE SELECT note FROM t WHERE id = 5").await;
    assert!(measured.starts_with(look_up) && measured.contains("  rows: 1"), "{measured}");
    let measured = explain("EXPLAIN ANALYZE SELECT note FROM t WHERE id = -5").await;
    assert!(measured.starts_with(look_up) && measured.contains("  rows: 0"), "{measured}");
    let measured = explain("EXPLAIN ANALYZE SELECT id FROM many WHERE kind = 1").await;
    assert!(!measured.contains("Point") && measured.contains("  rows: 10000"), "{measured}");
    let json = explain("EXPLAIN (FORMAT JSON) SELECT note FROM t WHERE id = 5").await;
    assert!(json.starts_with("[{\"Plan\":{\"Node Type\":\"Index Scan\","), "{json}");
    assert!(json.contains("\"operator\":\"Point look-up on t") && !json.contains("Exec"), "{json}");
    let error = refused(&mut session, "EXPLAIN INSERT INTO nosuch SELECT 1").await;
    assert_eq!(error.sqlstate(), "42P01");
    let error = refused(&mut session, "EXPLAIN INSERT INTO t (nosuch) SELECT 1").await;
    assert_eq!(error.sqlstate(), "42703");
}
