//! RETURNING of statements that run as fragments: the rows that the host returns for the same statement, each once, as
//! they are when the statement is done.

use std::sync::Arc;

use cleave_host::{Database, Outcome, Session};
use datafusion::common::runtime::SpawnedTask;

use super::{fragments, two_tables};
use crate::support::{assert_no_leak, assert_no_leak_soon, fresh, refused, row, rows, run};
use crate::support::{text_of, waits};
use crate::twin_tables::on_both;

/// Statements, and whether a fragment runs them.
pub(super) const RETURNED: [(&str, bool); 16] = [
    ("UPDATE @ SET price = price + 1 WHERE id % 10 = 3 RETURNING id, price", true),
    ("UPDATE @ SET note = 'new ' || id % 10, small = 7 WHERE id % 10 = 4 RETURNING *", true),
    ("UPDATE @ SET code = 'x  ' WHERE id % 10 = 5 RETURNING id, code || '|', note, long", true),
    ("UPDATE @ SET price = 2 WHERE id % 7 = 8 RETURNING id, price", true),
    ("UPDATE @ SET price = 3 WHERE id % 100 = 5 RETURNING 1", true),
    (
        "UPDATE @ SET price = o.factor FROM other o WHERE o.kind = @.kind RETURNING @.id, o.factor, price - 1",
        true,
    ),
    ("UPDATE @ AS t SET price = 5 FROM other o WHERE o.kind = t.kind RETURNING o.*, t.*", true),
    // A row that matches several times counts once.
    ("UPDATE @ SET small = 9 FROM other o WHERE o.kind / 30 = @.kind RETURNING id, small", true),
    (
        "UPDATE @ SET flag = NOT flag WHERE id % 100 = 7 \
         RETURNING id AS key, (SELECT max(factor) FROM other WHERE other.kind < @.kind) AS most",
        true,
    ),
    ("UPDATE @ SET price = 17 WHERE id = 40 RETURNING id, price", false),
    ("UPDATE @ SET price = 1 WHERE id % 3 = 0 RETURNING 1 / (id - 9)", true),
    ("UPDATE @ SET kind = kind + 1 WHERE id % 30 = 1 RETURNING id, kind", false),
    ("DELETE FROM @ WHERE id % 13 = 2 RETURNING id, note, flag", true),
    ("DELETE FROM @ USING other o WHERE o.kind = @.kind AND o.factor = 8 RETURNING *", true),
    ("DELETE FROM @ WHERE id % 13 = 2 RETURNING id", true),
    ("DELETE FROM @ WHERE id % 17 = 2 RETURNING upper(note), id % 2", true),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fragments_return_the_rows_that_statements_return() {
    let (_directory, database) = fresh().await;
    let mut session = database.session();
    two_tables(&mut session, 12_000).await;
    for locking in ["shared", "optimistic", "table"] {
        run(&mut session, &format!("SET update_locking = {locking}")).await;
        for (sql, by_fragment) in RETURNED {
            on_both(&database, &mut session, (sql, "*"), by_fragment).await;
        }
    }
    run(&mut session, "SET update_locking = shared; SET ndp = off").await;
    for (sql, by_fragment) in RETURNED {
        on_both(&database, &mut session, (sql, "*"), by_fragment).await;
    }
    assert_no_leak(&database);
}

/// The rows that `sql` returns, sorted, in a block that is then ended by `end`.
async fn in_block(session: &mut Session, sql: &str, end: &str) -> Vec<String> {
    run(session, "BEGIN").await;
    let mut found = rows(session, sql).await;
    found.sort();
    run(session, end).await;
    found
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_of_a_block_are_its_own_and_an_error_undoes_them() {
    let (_directory, database) = fresh().await;
    let mut session = database.session();
    run(&mut session, "CREATE TABLE a (id int PRIMARY KEY, n int, note text)").await;
    run(&mut session, "INSERT INTO a SELECT v, 0, 'n' FROM generate_series(1, 20000) AS s(v)")
        .await;
    run(&mut session, "CHECKPOINT; SET update_placement = device").await;
    let before = fragments(&database).await;
    let add = "UPDATE a SET n = n + 1 WHERE id % 5000 = 1 RETURNING id, n";
    let first = ["1,1", "10001,1", "15001,1", "5001,1"];
    assert_eq!(in_block(&mut session, add, "ROLLBACK").await, first);
    assert_eq!(in_block(&mut session, add, &format!("{add}; COMMIT")).await, first);
    assert_eq!(row(&mut session, "SELECT sum(n) FROM a").await, "8");
    let fails = "UPDATE a SET n = 5 RETURNING 1 / (id - 77)";
    assert_eq!(refused(&mut session, fails).await.sqlstate(), "22012");
    assert_eq!(row(&mut session, "SELECT sum(n) FROM a").await, "8", "it has changed nothing");
    let gone = "DELETE FROM a WHERE id % 5000 = 1 RETURNING n, id, note";
    assert_eq!(
        in_block(&mut session, gone, "COMMIT").await,
        ["2,1,n", "2,10001,n", "2,15001,n", "2,5001,n"]
    );
    assert_eq!(row(&mut session, "SELECT count(*), sum(n) FROM a").await, "19996,0");
    assert_eq!(fragments(&database).await, before + 5);
    assert_no_leak_soon(&database).await;
}

/// The rows of the last statement of `sql`, sorted.
async fn returned(database: &Arc<Database>, sql: &str) -> (Session, Vec<String>) {
    let mut session = database.session();
    run(&mut session, "SET update_placement = device").await;
    let mut outcomes = run(&mut session, sql).await;
    let Some(Outcome::Rows { batches, .. }) = outcomes.pop() else { panic!("{sql}") };
    let mut rows = text_of(&batches);
    rows.sort();
    (session, rows)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_that_others_replace_meanwhile_are_returned_as_they_are_then() {
    for locking in ["shared", "table"] {
        let (_directory, database) = fresh().await;
        let mut session = database.session();
        run(&mut session, "CREATE TABLE a (id int PRIMARY KEY, n int, note text)").await;
        run(&mut session, "INSERT INTO a SELECT v, 0, 'n' FROM generate_series(1, 20000) AS s(v)")
            .await;
        run(&mut session, "CHECKPOINT").await;
        for (sql, sees) in [
            (
                "UPDATE a SET n = n + 1 WHERE id % 5000 = 1 RETURNING id, n",
                ["1,8", "10001,1", "15001,1", "5001,1"],
            ),
            (
                "DELETE FROM a WHERE id % 5000 = 1 RETURNING id, n + 1",
                ["1,8", "10001,2", "15001,2", "5001,2"],
            ),
        ] {
            run(&mut session, "BEGIN; UPDATE a SET n = 7 WHERE id = 1").await;
            let other = Arc::clone(&database);
            let all = format!("SET update_locking = {locking}; {sql}");
            let mut task = SpawnedTask::spawn(async move { returned(&other, &all).await });
            assert!(waits(&mut task).await, "{locking}: {sql}");
            run(&mut session, "COMMIT").await;
            let (_, rows) = task.await.unwrap();
            assert_eq!(rows, sees, "{locking}: {sql}");
        }
        assert_eq!(row(&mut session, "SELECT count(*), sum(n) FROM a").await, "19996,0");
        assert!(fragments(&database).await > 1);
        assert_no_leak_soon(&database).await;
    }
}
