//! Fragments that replace rows: updates of columns of indexes, and of tables with long values, with the rows and keys
//! of the same statements run row by row.

use cleave_host::{Database, Session};

use super::{fragments, two_tables};
use crate::devices::attach_nas;
use crate::support::{
    assert_no_leak, assert_no_leak_soon, checks_out, fresh, open, refused, row, rows, run,
};
use crate::twin_tables::{on_both, same_rows};

/// Statements, and whether a fragment runs them.
const REPLACED: [(&str, bool); 15] = [
    ("UPDATE @ SET kind = kind + 1 WHERE id % 3 = 0", true),
    ("UPDATE @ SET kind = 7, note = 'new ' || id % 10, code = 'x  ' WHERE id % 50 = 1", true),
    ("UPDATE @ SET id = id + 100000 WHERE kind BETWEEN 20 AND 40", true),
    // Each new key is that of a row which ends.
    ("UPDATE @ SET id = id + 1", true),
    ("UPDATE @ SET kind = o.factor FROM other o WHERE o.kind = @.kind", true),
    ("UPDATE @ SET kind = 5 FROM other o WHERE o.kind / 30 = @.kind", true),
    ("UPDATE @ SET kind = price, small = DEFAULT WHERE price < 1000", true),
    ("UPDATE @ SET kind = '77' WHERE id % 97 = 1", true),
    ("UPDATE @ SET kind = 3 WHERE id % 7 = 8", true),
    ("INSERT INTO @ VALUES (-7, 7, 7, 7, 'late', 'late', true)", false),
    ("UPDATE @ SET kind = kind - 1", true),
    ("UPDATE @ SET id = NULL WHERE kind = 5", false),
    ("UPDATE @ SET note = repeat('l', 41), kind = 3", false),
    ("UPDATE @ SET price = price + 1 WHERE id % 5 = 0", true),
    ("DELETE FROM @ WHERE kind % 7 = 2", true),
];

async fn every_replacement(database: &Database, session: &mut Session) {
    two_tables(session, 6_000).await;
    for table in ["a", "b"] {
        run(session, &format!("CREATE UNIQUE INDEX {table}_note ON {table} (note, id)")).await;
    }
    for (sql, by_fragment) in REPLACED {
        on_both(database, session, (sql, "*"), by_fragment).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_whose_keys_change_are_replaced_on_their_device() {
    let (directory, database) = fresh().await;
    let mut session = database.session();
    every_replacement(&database, &mut session).await;
    let sum = "SELECT count(*), sum(id), sum(kind) FROM a";
    let before = row(&mut session, sum).await;
    for sql in ["UPDATE a SET id = id / 2", "UPDATE a SET id = 5, kind = 3 WHERE id > 100"] {
        run(&mut session, "SET update_placement = device").await;
        let error = refused(&mut session, sql).await;
        assert_eq!(error.sqlstate(), "23505", "{sql}: {error}");
        assert!(error.to_string().contains("a_pkey"), "{error}");
        assert_eq!(row(&mut session, sum).await, before, "{sql}");
    }
    assert_no_leak(&database);
    drop((session, database));
    checks_out(directory.path()).await;
    let database = open(directory.path()).await;
    let mut session = database.session();
    same_rows(&mut session, ("after a restart", "*")).await;
    run(&mut session, "VACUUM FULL a; VACUUM FULL b").await;
    same_rows(&mut session, ("after a vacuum", "*")).await;
    assert_no_leak(&database);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_remote_device_replaces_rows() {
    let outside = tempfile::tempdir().unwrap();
    let (_directory, database) = fresh().await;
    let (_served, _) = attach_nas(&database, outside.path()).await;
    let mut session = database.session();
    run(&mut session, "SET default_device = 'nas'").await;
    every_replacement(&database, &mut session).await;
    run(&mut session, "CREATE TABLE c (id int PRIMARY KEY, kind int, note text)").await;
    let row = "v, v % 10, repeat('n', 200) || v FROM generate_series(1, 30000) AS s(v)";
    run(&mut session, &format!("INSERT INTO c SELECT {row}; CREATE INDEX ON c (kind)")).await;
    run(&mut session, "ANALYZE c; SET update_placement = auto").await;
    let before = fragments(&database).await;
    let sql = "UPDATE c SET kind = kind + 100";
    // Which of them the cost decides for depends on how busy the device was when it was measured.
    let text = rows(&mut session, &format!("EXPLAIN VERBOSE {sql}")).await.join("\n");
    assert!(text.contains("device, by pages") && text.contains("host, by rows"), "{text}");
    run(&mut session, "SET update_placement = device").await;
    let text = rows(&mut session, &format!("EXPLAIN VERBOSE {sql}")).await.join("\n");
    assert!(text.starts_with("Update of c by a fragment that replaces rows"), "{text}");
    assert!(text.contains("InsertPagesExec"), "{text}");
    run(&mut session, sql).await;
    assert_eq!(fragments(&database).await, before + 1);
    run(&mut session, "SET update_placement = auto").await;
    run(&mut session, "UPDATE c SET kind = 0 WHERE id < 50").await;
    assert_eq!(fragments(&database).await, before + 1, "few rows");
    let count = "SELECT count(*), min(id) FROM c WHERE kind = 107";
    assert_eq!(rows(&mut session, count).await, ["2995,57"]);
    assert_no_leak(&database);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tables_with_long_values_are_changed_by_fragments() {
    let (_directory, database) = fresh().await;
    let mut session = database.session();
    two_tables(&mut session, 6_000).await;
    for (sql, by_fragment) in [
        ("UPDATE @ SET long = repeat('l', 100000) || id WHERE id % 1000 = 3", false),
        ("CHECKPOINT", false),
        // A page with long values of the column has no version.
        ("UPDATE @ SET long = 'short ' || id WHERE id % 2 = 1", true),
        ("UPDATE @ SET long = repeat('k', 90000) || id WHERE id % 700 = 3", true),
        ("UPDATE @ SET long = repeat('m', 80000) || id WHERE id % 500 = 3", true),
        ("UPDATE @ SET price = price + 1", true),
        ("UPDATE @ SET kind = kind + 1 WHERE id % 2 = 1", true),
    ] {
        on_both(&database, &mut session, (sql, "id, kind, price, md5(long)"), by_fragment).await;
    }
    assert_no_leak(&database);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn blocks_and_snapshots_find_rows_by_the_keys_that_they_have() {
    let (directory, database) = fresh().await;
    let (mut one, mut two) = (database.session(), database.session());
    run(&mut one, "CREATE TABLE a (id int PRIMARY KEY, kind int, note text)").await;
    run(&mut one, "CREATE INDEX a_kind ON a (kind)").await;
    run(&mut one, "INSERT INTO a SELECT v, v % 1000, 'n' FROM generate_series(1, 20000) AS s(v)")
        .await;
    run(&mut one, "SET update_placement = device").await;
    let (ids, note) =
        ("SELECT count(*), min(id) FROM a WHERE kind = 7", "SELECT id FROM a WHERE id = 107");
    run(&mut two, "BEGIN ISOLATION LEVEL REPEATABLE READ").await;
    assert_eq!(row(&mut two, ids).await, "20,7");
    let before = fragments(&database).await;
    run(&mut one, "BEGIN; INSERT INTO a VALUES (-1, 7, 'own')").await;
    run(&mut one, "UPDATE a SET kind = kind + 1").await;
    assert_eq!(fragments(&database).await, before + 1);
    assert_eq!(row(&mut one, ids).await, "20,6");
    assert_eq!(row(&mut one, "SELECT kind FROM a WHERE id = -1").await, "8");
    run(&mut one, "SAVEPOINT s; UPDATE a SET id = id + 100000 WHERE kind = 7").await;
    assert_eq!(row(&mut one, ids).await, "20,100006");
    run(&mut one, "ROLLBACK TO s").await;
    assert_eq!(row(&mut one, ids).await, "20,6");
    assert_eq!(row(&mut two, ids).await, "20,7");
    run(&mut one, "UPDATE a SET id = id + 1000000 WHERE kind > 500; COMMIT").await;
    assert_eq!(row(&mut one, ids).await, "20,6");
    assert_eq!(row(&mut two, ids).await, "20,7", "the keys of its snapshot");
    assert_eq!(row(&mut two, note).await, "107");
    // Its rows have been replaced since.
    let lost = refused(&mut two, "UPDATE a SET kind = kind + 1").await;
    assert_eq!(lost.sqlstate(), "40001", "{lost}");
    run(&mut two, "ROLLBACK").await;
    assert_eq!(row(&mut two, ids).await, "20,6");
    run(&mut one, "BEGIN; UPDATE a SET kind = -kind; ROLLBACK").await;
    assert_eq!(row(&mut one, ids).await, "20,6");
    assert_eq!(row(&mut one, "SELECT count(*), max(kind) FROM a").await, "20001,1000");
    assert_no_leak_soon(&database).await;
    drop((one, two, database));
    checks_out(directory.path()).await;
    let database = open(directory.path()).await;
    assert_eq!(row(&mut database.session(), ids).await, "20,6");
}
