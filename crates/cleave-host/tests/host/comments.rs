//! Tests of COMMENT ON: comments are stored, shown to psql, transactional, and dropped with their objects.

use crate::support::{fresh, open, refused, row, rows, run};

const ALL: &str = "SELECT description FROM pg_description ORDER BY description";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn comments_stay_with_what_they_are_on() {
    let (directory, database) = fresh().await;
    let mut session = database.session();
    run(
        &mut session,
        "CREATE TABLE t (a int PRIMARY KEY, b text, CONSTRAINT sane CHECK (a > 0)); CREATE INDEX by_b ON t (b); \
            CREATE SEQUENCE s;
         CREATE VIEW v AS SELECT a FROM t; CREATE ROLE ada;
         COMMENT ON TABLE t IS 'the table'; COMMENT ON COLUMN t.b IS 'a column'; COMMENT ON INDEX by_b IS 'an index';
         COMMENT ON SEQUENCE s IS 'a sequence'; COMMENT ON VIEW public.v IS 'a view'; COMMENT ON CONSTRAINT sane ON \
            t IS 'a check';
         COMMENT ON CONSTRAINT t_pkey ON t IS 'a key'; COMMENT ON ROLE ada IS 'a role'; COMMENT ON SCHEMA public IS \
            'a schema';
         COMMENT ON DATABASE cleave IS 'a database'",
    )
    .await;
    let all = [
        "a check",
        "a column",
        "a key",
        "a schema",
        "a sequence",
        "a view",
        "an index",
        "the table",
    ];
    assert_eq!(rows(&mut session, ALL).await, all);
    assert_eq!(rows(&mut session, "SELECT description FROM pg_shdescription").await.len(), 2);
    let of = "SELECT obj_description('t'::regclass, 'pg_class'), col_description('t'::regclass, 2), \
              col_description('t'::regclass, 1), obj_description('t'::regclass, 'pg_proc')";
    assert_eq!(row(&mut session, of).await, "the table,a column,NULL,NULL");
    // Transactional; NULL and the empty text remove it.
    run(&mut session, "BEGIN; COMMENT ON TABLE t IS 'other'").await;
    assert!(row(&mut session, of).await.starts_with("other,"));
    run(&mut session, "ROLLBACK; COMMENT ON VIEW v IS NULL; COMMENT ON SEQUENCE s IS ''").await;
    drop((session, database));
    let database = open(directory.path()).await;
    let mut session = database.session();
    assert_eq!(
        rows(&mut session, ALL).await,
        ["a check", "a column", "a key", "a schema", "an index", "the table"]
    );
    // A dropped object has no comment, nor has its successor of the same name.
    run(&mut session, "DROP VIEW v; ALTER TABLE t DROP COLUMN b; ALTER TABLE t ADD COLUMN b text")
        .await;
    run(&mut session, "CREATE INDEX by_b ON t (b); ALTER TABLE t RENAME TO u").await;
    assert_eq!(rows(&mut session, ALL).await, ["a check", "a key", "a schema", "the table"]);
    run(&mut session, "DROP TABLE u CASCADE; CREATE TABLE u (a int PRIMARY KEY)").await;
    assert_eq!(rows(&mut session, ALL).await, ["a schema"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn comments_on_what_is_not_there_or_not_ones_own_are_refused() {
    let (_directory, database) = fresh().await;
    let mut session = database.session();
    run(&mut session, "CREATE TABLE t (a int); CREATE ROLE ada; CREATE VIEW v AS SELECT a FROM t")
        .await;
    for (sql, state) in [
        ("COMMENT ON TABLE tt IS 'x'", "42P01"),
        ("COMMENT ON TABLE v IS 'x'", "42809"),
        ("COMMENT ON COLUMN t.b IS 'x'", "42703"),
        ("COMMENT ON CONSTRAINT c ON t IS 'x'", "42704"),
        ("COMMENT ON DATABASE other IS 'x'", "3D000"),
        ("COMMENT ON ROLE bob IS 'x'", "42704"),
        ("COMMENT ON FUNCTION f() IS 'x'", "0A000"),
        ("COMMENT ON TABLE t IS 5", "42601"),
    ] {
        assert_eq!(refused(&mut session, sql).await.sqlstate(), state, "{sql}");
    }
    run(&mut session, "SET ROLE ada").await;
    assert_eq!(refused(&mut session, "COMMENT ON TABLE t IS 'x'").await.sqlstate(), "42501");
    assert_eq!(refused(&mut session, "COMMENT ON SCHEMA public IS 'x'").await.sqlstate(), "42501");
}
