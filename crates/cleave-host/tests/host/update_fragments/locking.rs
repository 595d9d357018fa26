//! Tests of `SELECT … FOR UPDATE` by fragments: the rows are those of the host's own locking, writers of other rows go
//! on, and writers of these wait.

use super::*;
use crate::support::{beside, waits};

async fn locking(database: &Database) -> u64 {
    database.activity().count(Act::LockingFragment)
}

async fn two_sessions(database: &Arc<Database>, clause: &str) -> (Session, Session) {
    let (mut one, two) = (database.session(), database.session());
    let columns = "id int PRIMARY KEY, kind int, price int, note text";
    run(&mut one, &format!("CREATE TABLE a ({columns}) {clause}")).await;
    run(&mut one, "CREATE TABLE other (kind int PRIMARY KEY, factor int)").await;
    run(&mut one, "INSERT INTO other SELECT v, v * 2 FROM generate_series(0, 40) AS s(v)").await;
    let rows = "SELECT v, v % 100, v, 'n' || v FROM generate_series(1, 30000) AS s(v)";
    run(&mut one, &format!("INSERT INTO a {rows}; SET update_placement = device")).await;
    (one, two)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_rows_are_those_of_the_host() {
    let (_directory, database) = fresh().await;
    let (mut one, _two) = two_sessions(&database, "").await;
    run(&mut one, "UPDATE a SET price = 0 WHERE id % 50 = 1; DELETE FROM a WHERE id % 50 = 2")
        .await;
    for (sql, by_fragment) in [
        ("SELECT * FROM a WHERE kind < 30 FOR UPDATE", true),
        ("SELECT price + 1, note FROM a WHERE note LIKE '%7' FOR NO KEY UPDATE", true),
        ("SELECT a.id, o.factor FROM a, other o WHERE a.kind = o.kind FOR UPDATE OF a", true),
        ("SELECT id FROM a WHERE kind IN (SELECT kind FROM other) FOR UPDATE SKIP LOCKED", true),
        ("SELECT id FROM a WHERE kind = 9 FOR UPDATE NOWAIT", true),
        // The device takes exclusive locks only, and none of joins' other sides or of a part of the rows.
        ("SELECT id FROM a WHERE kind = 1 FOR SHARE", false),
        ("SELECT id FROM a WHERE kind = 1 ORDER BY id LIMIT 3 FOR UPDATE", false),
        ("SELECT a.id FROM a, other o WHERE a.kind = o.kind AND a.id < 90 FOR UPDATE", false),
    ] {
        run(&mut one, "BEGIN").await;
        let before = locking(&database).await;
        let mut locked = rows(&mut one, sql).await;
        assert_eq!(locking(&database).await > before, by_fragment, "{sql}");
        run(&mut one, "ROLLBACK").await;
        let query = sql.split(" FOR ").next().unwrap();
        let mut expected = rows(&mut one, query).await;
        locked.sort();
        expected.sort();
        assert!(locked == expected, "{sql}: {} and {} rows", locked.len(), expected.len());
    }
}

async fn every_wait(database: &Arc<Database>, clause: &str) {
    let (mut one, mut two) = two_sessions(database, clause).await;
    let mut three = database.session();
    run(&mut one, "BEGIN; SELECT count(*) FROM (SELECT 1) AS s").await;
    let locked = rows(&mut one, "SELECT id FROM a WHERE kind < 50 FOR UPDATE").await;
    assert_eq!((locked.len(), locking(database).await), (15_000, 1));
    // Rows that are not locked, and new ones.
    run(&mut two, "UPDATE a SET price = -1 WHERE id = 99; DELETE FROM a WHERE id = 98").await;
    run(&mut two, "INSERT INTO a VALUES (-1, 60, 0, NULL)").await;
    let error = refused(&mut two, "SELECT id FROM a WHERE id = 5 FOR UPDATE NOWAIT").await;
    assert_eq!(error.sqlstate(), "55P03");
    run(&mut three, "SET update_placement = device").await;
    let free = "SELECT id FROM a WHERE kind IN (5, 55) FOR UPDATE SKIP LOCKED";
    run(&mut three, "BEGIN").await;
    assert_eq!(rows(&mut three, free).await.len(), 300);
    run(&mut three, "ROLLBACK").await;
    let error = refused(&mut three, "SELECT id FROM a WHERE kind = 5 FOR UPDATE NOWAIT").await;
    assert_eq!(error.sqlstate(), "55P03");
    let mut update = beside(two, "UPDATE a SET price = price + 1000 WHERE id = 5");
    let mut other = beside(three, "UPDATE a SET price = price + 2000 WHERE id BETWEEN 7 AND 8");
    assert!(waits(&mut update).await && waits(&mut other).await);
    // Its own fragment has the rows.
    run(&mut one, "UPDATE a SET price = 1 WHERE kind < 50; UPDATE a SET price = 2 WHERE id = 5")
        .await;
    run(&mut one, "COMMIT").await;
    let (_, said) = update.await.unwrap();
    assert_eq!(said, "done");
    let (mut three, said) = other.await.unwrap();
    assert_eq!(said, "done");
    let prices = "SELECT id, price FROM a WHERE id IN (-1, 5, 7, 8, 99) ORDER BY id";
    assert_eq!(rows(&mut three, prices).await, ["-1,0", "5,1002", "7,2001", "8,2001", "99,-1"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writers_of_locked_rows_wait_and_others_go_on() {
    let (_directory, database) = fresh().await;
    every_wait(&database, "").await;
    assert_no_leak_soon(&database).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_remote_device_locks_its_rows() {
    let outside = tempfile::tempdir().unwrap();
    let (_directory, database) = fresh().await;
    let (_served, _) = attach_nas(&database, outside.path()).await;
    every_wait(&database, "WITH (device = nas)").await;
    assert_no_leak_soon(&database).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_that_changes_before_its_lock_is_read_again() {
    let (_directory, database) = fresh().await;
    let (mut one, mut two) = two_sessions(&database, "").await;
    run(&mut two, "BEGIN; UPDATE a SET kind = 99, price = 7 WHERE id = 5").await;
    run(&mut one, "BEGIN").await;
    let mut reading = beside(
        one,
        "SELECT count(*) FROM a WHERE kind = 6; SELECT id, price FROM a WHERE kind < 8 FOR UPDATE",
    );
    assert!(waits(&mut reading).await);
    run(&mut two, "COMMIT").await;
    let (mut one, said) = reading.await.unwrap();
    assert_eq!(said, "done");
    // What no longer matches is not among them; it is locked all the same, as in PostgreSQL.
    let locked = rows(&mut one, "SELECT id FROM a WHERE kind < 8 FOR UPDATE").await;
    assert_eq!(locked.len(), 8 * 300 - 1);
    run(&mut one, "COMMIT").await;
    // With one snapshot that is an error.
    run(&mut two, "BEGIN; UPDATE a SET price = 8 WHERE id = 6").await;
    run(&mut one, "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM a").await;
    let mut reading = beside(one, "SELECT id, price FROM a WHERE kind < 8 FOR UPDATE");
    assert!(waits(&mut reading).await);
    run(&mut two, "COMMIT").await;
    let (_, said) = reading.await.unwrap();
    assert_eq!(said, "40001");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_that_foreign_keys_refer_to_are_locked_by_the_host() {
    let (_directory, database) = fresh().await;
    let (mut one, two) = two_sessions(&database, "").await;
    run(&mut one, "CREATE TABLE child (id int PRIMARY KEY, of_a int REFERENCES a)").await;
    run(&mut one, "BEGIN").await;
    assert_eq!(rows(&mut one, "SELECT id FROM a WHERE kind = 7 FOR UPDATE").await.len(), 300);
    assert_eq!(locking(&database).await, 0);
    let mut insert = beside(two, "INSERT INTO child VALUES (1, 7)");
    assert!(waits(&mut insert).await);
    run(&mut one, "ROLLBACK; BEGIN").await;
    let (two, said) = insert.await.unwrap();
    assert_eq!(said, "done");
    assert_eq!(
        rows(&mut one, "SELECT id FROM a WHERE kind = 7 FOR NO KEY UPDATE").await.len(),
        300
    );
    assert_eq!(locking(&database).await, 1);
    let (_, said) = beside(two, "INSERT INTO child VALUES (2, 7)").await.unwrap();
    assert_eq!(said, "done", "a key stays as it is");
}
