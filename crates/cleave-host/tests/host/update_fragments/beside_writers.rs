//! Update fragments beside writers of the same table: which of them wait, what both leave behind, and what a
//! transaction sees that changes rows in both ways.

use std::sync::Arc;

use cleave_host::{Database, Session};
use datafusion::common::runtime::SpawnedTask;

use super::{checks_out, fragments};
use crate::devices::attach_nas;
use crate::support::{assert_no_leak_soon, beside, fresh, open, refused, row, run, waits};

const ROWS: &str = "INSERT INTO a SELECT v, v % 10, 0, 'n' FROM generate_series(1, 20000) AS s(v)";
pub(super) const SUM: &str = "SELECT count(*), sum(n) FROM a";

pub(super) async fn table(session: &mut Session, clause: &str) {
    run(
        session,
        &format!("CREATE TABLE a (id int PRIMARY KEY, kind int, n int, note text) {clause}"),
    )
    .await;
    run(session, &format!("{ROWS}; CHECKPOINT")).await;
}

pub(super) async fn two_sessions(database: &Arc<Database>) -> (Session, Session) {
    two_sessions_as("device", database).await
}

async fn two_sessions_as(placement: &str, database: &Arc<Database>) -> (Session, Session) {
    let (mut one, mut two) = (database.session(), database.session());
    for session in [&mut one, &mut two] {
        run(session, &format!("SET update_placement = {placement}")).await;
    }
    (one, two)
}

/// Other rows are changed while a fragment's rows are locked, and none of the changes is lost.
pub(super) async fn every_wait(placement: &str, database: &Arc<Database>) {
    let (mut one, mut two) = two_sessions_as(placement, database).await;
    run(&mut one, "BEGIN; UPDATE a SET n = n + 1 WHERE kind = 3").await;
    let before = fragments(database).await;
    assert_eq!(before, 1);
    for sql in [
        "UPDATE a SET n = n + 10 WHERE id = 4",
        "DELETE FROM a WHERE id = 5",
        "INSERT INTO a VALUES (-1, 3, 0, 'new')",
        "UPDATE a SET note = 'by row' WHERE kind = 4 AND id < 100",
        "SELECT n FROM a WHERE id = 6 FOR UPDATE NOWAIT",
    ] {
        run(&mut two, &format!("SET lock_timeout = 2000; {sql}")).await;
    }
    let nowait = "SELECT n FROM a WHERE id = 3 FOR UPDATE NOWAIT";
    assert_eq!(refused(&mut two, nowait).await.sqlstate(), "55P03");
    // The transaction itself goes on with its rows, by key and by another fragment, over what the others did.
    run(&mut one, "UPDATE a SET n = n + 100 WHERE id = 3").await;
    run(&mut one, "UPDATE a SET n = n + 1000 WHERE kind = 3 AND id < 1000 AND id > 3").await;
    assert_eq!(row(&mut one, "SELECT n FROM a WHERE id = 3").await, "101");
    assert_eq!(row(&mut one, "SELECT sum(n) FROM a").await, "101110");
    let mut task = beside(two, "SET lock_timeout = 0; UPDATE a SET n = n * 2 WHERE id = 13");
    assert!(waits(&mut task).await, "for a row of the fragment");
    run(&mut one, "COMMIT").await;
    let (mut two, end) = task.await.unwrap();
    assert_eq!(end, "done");
    // 13 had 0, 1, and 1001: the update that waited reads the last one.
    assert_eq!(row(&mut two, "SELECT n FROM a WHERE id = 13").await, "2002");
    assert_eq!(row(&mut two, SUM).await, "20000,102111");
    assert_eq!(row(&mut two, "SELECT count(*) FROM a WHERE note = 'by row'").await, "10");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writers_of_other_rows_go_on() {
    let (directory, database) = fresh().await;
    table(&mut database.session(), "").await;
    every_wait("device", &database).await;
    assert_no_leak_soon(&database).await;
    drop(database);
    checks_out(directory.path()).await;
    let database = open(directory.path()).await;
    assert_eq!(row(&mut database.session(), SUM).await, "20000,102111");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writers_of_other_rows_go_on_beside_a_remote_device() {
    let outside = tempfile::tempdir().unwrap();
    let (_directory, database) = fresh().await;
    let (_served, _) = attach_nas(&database, outside.path()).await;
    table(&mut database.session(), "WITH (device = nas)").await;
    every_wait("device", &database).await;
    assert_no_leak_soon(&database).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fragment_waits_for_a_row_and_reads_it_again() {
    for locking in ["shared", "table"] {
        let (_directory, database) = fresh().await;
        table(&mut database.session(), "").await;
        let (mut one, mut two) = two_sessions(&database).await;
        run(&mut two, "BEGIN; UPDATE a SET n = 7 WHERE id = 11").await;
        run(&mut one, &format!("SET update_locking = {locking}")).await;
        let mut task = beside(one, "UPDATE a SET n = n + 1");
        assert!(waits(&mut task).await, "{locking}");
        run(&mut two, "COMMIT").await;
        let (mut one, end) = task.await.unwrap();
        assert_eq!(end, "done", "{locking}");
        assert_eq!(row(&mut one, "SELECT n FROM a WHERE id = 11").await, "8", "{locking}");
        assert_eq!(row(&mut one, SUM).await, "20000,20007", "{locking}");
        assert_no_leak_soon(&database).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_optimistic_fragment_runs_again_where_a_row_is_locked_at_its_end() {
    let (_directory, database) = fresh().await;
    table(&mut database.session(), "").await;
    let (mut one, mut two) = two_sessions(&database).await;
    run(&mut one, "SET update_locking = optimistic").await;
    run(&mut one, "UPDATE a SET n = n + 1 WHERE kind = 1").await;
    assert_eq!(row(&mut one, SUM).await, "20000,2000");
    run(&mut two, "BEGIN; UPDATE a SET n = 7 WHERE id = 12").await;
    run(&mut one, "BEGIN; UPDATE a SET n = n + 1 WHERE kind = 3").await;
    let nowait = "SELECT n FROM a WHERE id = 3 FOR UPDATE NOWAIT";
    assert_eq!(refused(&mut two, nowait).await.sqlstate(), "55P03");
    run(&mut two, "ROLLBACK; BEGIN; UPDATE a SET n = 7 WHERE id = 12").await;
    run(&mut one, "COMMIT").await;
    // Row 12 stays locked: after some runs in vain the table is locked.
    let before = fragments(&database).await;
    let mut task = beside(one, "UPDATE a SET n = n + 1 WHERE kind = 2");
    assert!(waits(&mut task).await);
    assert!(fragments(&database).await > before);
    run(&mut two, "COMMIT").await;
    let (mut one, end) = task.await.unwrap();
    assert_eq!(end, "done");
    assert_eq!(row(&mut one, "SELECT n FROM a WHERE id = 12").await, "8");
    assert_eq!(row(&mut one, SUM).await, "20000,6007");
    assert_no_leak_soon(&database).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn savepoints_undo_page_versions_and_keep_their_rows_locked() {
    let (_directory, database) = fresh().await;
    table(&mut database.session(), "").await;
    let (mut one, mut two) = two_sessions(&database).await;
    run(&mut one, "BEGIN; UPDATE a SET n = 1 WHERE kind = 1; SAVEPOINT s").await;
    run(&mut one, "UPDATE a SET n = 2 WHERE kind < 3; INSERT INTO a VALUES (-5, 1, 9, 'x')").await;
    assert_eq!(row(&mut one, SUM).await, "20001,12009");
    // Rows of the block's own in the table: the table is locked, and one commit has all.
    run(&mut one, "UPDATE a SET n = n + 1 WHERE kind = 1").await;
    assert_eq!(row(&mut one, SUM).await, "20001,14010");
    run(&mut one, "ROLLBACK TO s").await;
    assert_eq!(row(&mut one, SUM).await, "20000,2000");
    run(&mut one, "UPDATE a SET n = n + 5 WHERE kind = 9").await;
    run(&mut one, "COMMIT").await;
    assert_eq!(row(&mut two, SUM).await, "20000,12000");
    run(&mut two, "BEGIN; UPDATE a SET n = 0; UPDATE a SET n = 50 WHERE id = 7").await;
    assert_eq!(row(&mut two, SUM).await, "20000,50");
    run(&mut two, "ROLLBACK; UPDATE a SET n = 3 WHERE id = 7").await;
    assert_eq!(row(&mut one, SUM).await, "20000,12003");
    assert_no_leak_soon(&database).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_has_read_before_a_fragment_commits_reads_again() {
    let (_directory, database) = fresh().await;
    table(&mut database.session(), "").await;
    let (mut one, two) = two_sessions(&database).await;
    run(&mut one, "BEGIN; UPDATE a SET n = n + 1 WHERE kind = 3").await;
    // Each of them has found its row with the old value, and waits for the lock.
    let mut tasks = Vec::new();
    for sql in [
        "UPDATE a SET n = n + 10 WHERE id = 3",
        "UPDATE a SET n = n + 10 WHERE id IN (13, 23)",
        "UPDATE a SET n = n + 10 WHERE id + 0 = 33",
        "INSERT INTO a VALUES (43, 3, 0, '') ON CONFLICT (id) DO UPDATE SET n = a.n + 10",
        "BEGIN; SELECT n FROM a WHERE id = 53 FOR UPDATE; UPDATE a SET n = n + 10 WHERE id = 53; COMMIT",
        "WITH c AS (UPDATE a SET n = n + 10 WHERE id = 63 RETURNING id) SELECT * FROM c",
        "SET update_placement = device; UPDATE a SET n = n + 10 WHERE kind = 3 AND id BETWEEN 70 AND 99",
    ] {
        let mut task = beside(database.session(), sql);
        assert!(waits(&mut task).await, "{sql}");
        tasks.push((sql, task));
    }
    let mut nobody = two;
    run(&mut nobody, "UPDATE a SET n = n + 10 WHERE id = 4").await;
    run(&mut one, "COMMIT").await;
    for (sql, task) in tasks {
        assert_eq!(task.await.unwrap().1, "done", "{sql}");
    }
    let changed = "SELECT string_agg(n::text, ',' ORDER BY id) FROM a WHERE kind = 3 AND id < 100";
    assert_eq!(row(&mut one, changed).await, "11,11,11,11,11,11,11,11,11,11");
    assert_eq!(row(&mut one, SUM).await, "20000,2110");
    assert_no_leak_soon(&database).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deadlock_with_a_fragment_ends() {
    let (_directory, database) = fresh().await;
    table(&mut database.session(), "").await;
    let (mut one, mut two) = two_sessions(&database).await;
    run(&mut two, "BEGIN; UPDATE a SET n = 7 WHERE id = 11").await;
    run(&mut one, "BEGIN; UPDATE a SET n = 1 WHERE kind = 3").await;
    let mut task = beside(one, "UPDATE a SET n = n + 1 WHERE kind = 1");
    assert!(waits(&mut task).await);
    let failed = refused(&mut two, "UPDATE a SET n = 8 WHERE id = 3").await;
    assert_eq!(failed.sqlstate(), "40P01");
    run(&mut two, "ROLLBACK").await;
    let (mut one, end) = task.await.unwrap();
    assert_eq!(end, "done");
    run(&mut one, "COMMIT").await;
    assert_eq!(row(&mut one, SUM).await, "20000,4000");
    assert_no_leak_soon(&database).await;
}

/// Many clients add to counters by key, and by inserted rows, while fragments add to all of them: nothing is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_among_many_writers() {
    let (directory, database) = fresh().await;
    table(&mut database.session(), "").await;
    let writers = (0..4).map(|which| {
        let database = Arc::clone(&database);
        SpawnedTask::spawn(async move {
            let mut session = database.session();
            let mut added = 0;
            for turn in 0..60_i64 {
                let id = 1 + (which * 977 + turn * 131) % 20_000;
                let sql = match turn % 4 {
                    0 => format!(
                        "INSERT INTO a VALUES ({}, 1, 1, '')",
                        100_000 + which * 1000 + turn
                    ),
                    1 => format!("UPDATE a SET n = n + 1 WHERE id + 0 = {id}"),
                    _ => format!("UPDATE a SET n = n + 1 WHERE id = {id}"),
                };
                run(&mut session, &sql).await;
                added += 1;
            }
            added
        })
    });
    let writers: Vec<_> = writers.collect();
    let mut session = database.session();
    run(&mut session, "SET update_placement = device").await;
    let mut rounds = 0;
    while rounds < 6 {
        run(&mut session, "UPDATE a SET n = n + 1 WHERE kind = 3 AND id <= 20000").await;
        rounds += 1;
    }
    let mut added = 0;
    for writer in writers {
        added += writer.await.unwrap();
    }
    let expected = format!("{}", added + rounds * 2000);
    assert_eq!(row(&mut session, "SELECT sum(n) FROM a").await, expected);
    assert_no_leak_soon(&database).await;
    drop((session, database));
    checks_out(directory.path()).await;
    let database = open(directory.path()).await;
    assert_eq!(row(&mut database.session(), "SELECT sum(n) FROM a").await, expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_that_a_fragment_deletes_are_waited_for_by_their_keys() {
    let (directory, database) = fresh().await;
    table(&mut database.session(), "").await;
    let (mut one, two) = two_sessions(&database).await;
    for (end, inserted) in [("ROLLBACK", "23505"), ("COMMIT", "done")] {
        run(&mut one, "BEGIN; DELETE FROM a WHERE kind = 3").await;
        assert_eq!(row(&mut one, "SELECT count(*) FROM a").await, "18000");
        run(&mut one, "UPDATE a SET n = n + 1 WHERE kind < 5 AND id < 1000").await;
        // Others go on with other rows.
        let mut other = database.session();
        run(&mut other, "SET lock_timeout = 2000; UPDATE a SET n = n + 1 WHERE id = 5").await;
        run(&mut other, "UPDATE a SET n = n - 1 WHERE id = 5").await;
        let mut tasks = Vec::new();
        for sql in [
            "INSERT INTO a VALUES (3, 3, 0, 'again')",
            "BEGIN; INSERT INTO a VALUES (13, 3, 0, 'again'); COMMIT",
            "UPDATE a SET id = 23 WHERE id = 27",
            "INSERT INTO a VALUES (33, 3, 0, 'again') ON CONFLICT DO NOTHING",
            "UPDATE a SET note = 'again' WHERE id = 43",
        ] {
            let mut task = beside(database.session(), sql);
            assert!(waits(&mut task).await, "{end}: {sql}");
            tasks.push(task);
        }
        run(&mut one, end).await;
        let mut ends = Vec::new();
        for task in tasks {
            ends.push(task.await.unwrap().1);
        }
        assert_eq!(ends, [inserted, inserted, inserted, "done", "done"], "{end}");
    }
    // Row 27 has become row 23.
    assert_eq!(row(&mut one, "SELECT count(*) FROM a WHERE note = 'again'").await, "3");
    assert_eq!(row(&mut one, SUM).await, "18003,399");
    drop(two);
    assert_no_leak_soon(&database).await;
    drop((one, database));
    checks_out(directory.path()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shared_key_keeps_its_row_from_a_fragment() {
    let (_directory, database) = fresh().await;
    table(&mut database.session(), "").await;
    let (mut one, mut two) = two_sessions(&database).await;
    run(&mut two, "BEGIN; SELECT id FROM a WHERE id = 3 FOR KEY SHARE").await;
    // Another version of the row, which the holder of its key does not know.
    run(&mut one, "SET update_placement = host; UPDATE a SET n = 1 WHERE id = 3").await;
    let mut task = beside(one, "SET update_placement = device; DELETE FROM a WHERE kind = 3");
    assert!(waits(&mut task).await);
    run(&mut two, "COMMIT").await;
    let (mut one, end) = task.await.unwrap();
    assert_eq!(end, "done");
    assert_eq!(row(&mut one, SUM).await, "18000,0");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fragment_has_the_rows_that_its_transaction_has_locked() {
    let (_directory, database) = fresh().await;
    table(&mut database.session(), "").await;
    let (mut one, mut two) = two_sessions(&database).await;
    for (locked, changed) in [("id < 4000", "true"), ("kind = 3 AND id < 4000", "kind < 4")] {
        run(&mut one, &format!("BEGIN; SELECT id FROM a WHERE {locked} FOR UPDATE")).await;
        let mut task = beside(two, "UPDATE a SET n = n + 100 WHERE id = 3");
        assert!(waits(&mut task).await, "{locked}");
        run(&mut one, &format!("UPDATE a SET n = n + 1 WHERE {changed}")).await;
        run(&mut one, "UPDATE a SET n = n + 1 WHERE id = 3; COMMIT").await;
        let (back, end) = task.await.unwrap();
        assert_eq!(end, "done", "{locked}");
        two = back;
    }
    assert_eq!(row(&mut one, "SELECT n FROM a WHERE id = 3").await, "204");
    assert_eq!(row(&mut one, SUM).await, "20000,28202");
    assert_no_leak_soon(&database).await;
}
