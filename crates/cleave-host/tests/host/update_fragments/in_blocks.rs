//! Update fragments in transaction blocks of every level: beside other writers, with rows of the block itself and of
//! the delta, and what a snapshot that the block keeps shows and refuses.

use super::*;
use crate::support::{beside, waits};

const LEVELS: [&str; 3] = ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"];
const ALL: &str = "SELECT * FROM a ORDER BY id";

async fn table(session: &mut Session, row_count: u32) {
    run(session, "CREATE TABLE a (id int PRIMARY KEY, kind int, n int NOT NULL, note text)").await;
    let rows = format!("SELECT v, v % 10, 0, 'n' FROM generate_series(1, {row_count}) AS s(v)");
    run(session, &format!("INSERT INTO a {rows}; CHECKPOINT")).await;
}

async fn session(database: &Arc<Database>, placement: &str) -> Session {
    let mut session = database.session();
    run(&mut session, &format!("SET update_placement = {placement}; SET lock_timeout = 5000"))
        .await;
    session
}

/// Rows of the delta before and after the first statement, own rows, changes by key and by fragments, savepoints: what
/// the block sees at each step, and what is there at the end.
async fn mixed_block(level: &str, placement: &str) -> Vec<Vec<String>> {
    let (directory, database) = fresh().await;
    let mut other = session(&database, "host").await;
    table(&mut other, 12_000).await;
    run(
        &mut other,
        "INSERT INTO a SELECT v, 3, 1, 'delta' FROM generate_series(12001, 12020) s(v)",
    )
    .await;
    run(&mut other, "UPDATE a SET n = 5 WHERE id IN (13, 12003); DELETE FROM a WHERE id = 23")
        .await;
    let mut one = session(&database, placement).await;
    let mut seen = Vec::new();
    run(&mut one, &format!("BEGIN ISOLATION LEVEL {level}; SELECT count(*) FROM a")).await;
    run(&mut other, "INSERT INTO a VALUES (13000, 7, 0, 'later'); DELETE FROM a WHERE id = 44")
        .await;
    let steps = [
        "INSERT INTO a SELECT v, v % 10, 100, 'own' FROM generate_series(20001, 20050) AS s(v)",
        "UPDATE a SET n = n + 1 WHERE kind = 3",
        "UPDATE a SET n = n + 10, note = 'by key' WHERE id = 13",
        "DELETE FROM a WHERE id = 33",
        "SAVEPOINT s",
        "UPDATE a SET n = n + 100 WHERE kind IN (2, 3) AND id % 3 = 0",
        "INSERT INTO a VALUES (30000, 3, 0, 'own, later')",
        "UPDATE a SET n = n * 2 WHERE kind = 3",
        "ROLLBACK TO s",
        "UPDATE a SET note = 'last' WHERE kind = 3 AND id > 6000",
        "DELETE FROM a WHERE kind = 2 AND id % 4 = 0",
        "UPDATE a SET n = n + 7 WHERE kind = 2",
    ];
    let before = fragments(&database).await;
    for step in steps {
        run(&mut one, step).await;
        seen.push(rows(&mut one, ALL).await);
    }
    let used = fragments(&database).await - before;
    assert_eq!(used, if placement == "device" { 6 } else { 0 }, "{level}, {placement}");
    // Writers of other rows go on, and see nothing of it.
    run(&mut other, "UPDATE a SET note = 'other' WHERE id IN (5, 12009) AND kind <> 3").await;
    assert_eq!(row(&mut other, "SELECT count(*) FROM a WHERE note = 'own'").await, "0");
    run(&mut one, "COMMIT").await;
    seen.push(rows(&mut other, ALL).await);
    assert_no_leak_soon(&database).await;
    drop((one, other, database));
    checks_out(directory.path()).await;
    let database = open(directory.path()).await;
    assert_eq!(&rows(&mut database.session(), ALL).await, seen.last().unwrap(), "{level}");
    seen
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn blocks_of_every_level_mix_fragments_with_their_own_rows() {
    for level in LEVELS {
        let (device, host) = (mixed_block(level, "device").await, mixed_block(level, "host").await);
        for (step, (device, host)) in device.iter().zip(&host).enumerate() {
            let differs = device.iter().zip(host).find(|(device, host)| device != host);
            assert_eq!((device.len(), differs), (host.len(), None), "{level}, step {step}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kept_snapshot_refuses_rows_that_others_have_changed() {
    for level in &LEVELS[1..] {
        // By row, by a fragment in place, and by a DELETE.
        for (change, placement) in [
            ("UPDATE a SET n = 1 WHERE id = 4003", "host"),
            ("UPDATE a SET n = 1 WHERE kind = 3 AND id > 4000", "device"),
            ("DELETE FROM a WHERE id = 4003", "host"),
        ] {
            let (_directory, database) = fresh().await;
            table(&mut database.session(), 12_000).await;
            let (mut one, mut two) =
                (session(&database, "device").await, session(&database, placement).await);
            run(&mut one, &format!("BEGIN ISOLATION LEVEL {level}; SELECT count(*) FROM a")).await;
            run(&mut two, change).await;
            for statement in
                ["UPDATE a SET n = n + 1 WHERE kind = 3", "DELETE FROM a WHERE kind = 3"]
            {
                run(&mut one, "SAVEPOINT s").await;
                let error = refused(&mut one, statement).await;
                assert_eq!(error.sqlstate(), "40001", "{level}, {change}, {statement}: {error}");
                run(&mut one, "ROLLBACK TO s").await;
            }
            // Rows that nobody else has changed.
            run(&mut one, "UPDATE a SET n = n + 1 WHERE kind = 4; COMMIT").await;
            let sums = "SELECT sum(n) FROM a WHERE kind = 4";
            assert_eq!(row(&mut two, sums).await, "1200", "{level}, {change}");
            assert_no_leak_soon(&database).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kept_snapshot_shows_nothing_that_other_fragments_commit_in_its_pages() {
    let (directory, database) = fresh().await;
    table(&mut database.session(), 12_000).await;
    let (mut one, mut two) =
        (session(&database, "device").await, session(&database, "device").await);
    run(&mut one, "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM a").await;
    run(&mut two, "UPDATE a SET n = 5 WHERE kind = 2").await;
    run(&mut one, "UPDATE a SET n = 1 WHERE kind = 3").await;
    assert_eq!(fragments(&database).await, 2);
    assert_eq!(row(&mut one, "SELECT sum(n) FROM a").await, "1200");
    run(&mut one, "UPDATE a SET n = n + 1 WHERE kind = 3 OR kind = 4").await;
    assert_eq!(row(&mut one, "SELECT sum(n) FROM a").await, "3600");
    // The block has the pages alone; its rows are its own, all others go on.
    let update = "UPDATE a SET note = 'two' WHERE id = 2; UPDATE a SET n = 9 WHERE id = 3";
    let mut waiting = beside(two, update);
    assert!(waits(&mut waiting).await);
    run(&mut one, "COMMIT").await;
    let (mut two, end) = waiting.await.unwrap();
    assert_eq!(end, "done");
    assert_eq!(row(&mut two, "SELECT sum(n) FROM a").await, (3600 + 6000 + 7).to_string());
    assert_no_leak_soon(&database).await;
    drop((one, two, database));
    checks_out(directory.path()).await;
    let database = open(directory.path()).await;
    assert_eq!(row(&mut database.session(), "SELECT sum(n) FROM a").await, "9607");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_that_a_vacuum_replaces_after_the_snapshot_are_left_to_the_host() {
    let (_directory, database) = fresh().await;
    table(&mut database.session(), 12_000).await;
    let (mut one, mut two) =
        (session(&database, "device").await, session(&database, "device").await);
    run(&mut two, "DELETE FROM a WHERE kind = 5").await;
    run(&mut one, "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM a").await;
    run(&mut two, "VACUUM FULL a").await;
    let before = fragments(&database).await;
    run(&mut one, "UPDATE a SET n = n + 1 WHERE kind = 3; UPDATE a SET n = n + 1 WHERE id = 3")
        .await;
    assert_eq!(fragments(&database).await, before);
    run(&mut one, "COMMIT").await;
    assert_eq!(row(&mut two, "SELECT count(*), sum(n) FROM a").await, "10800,1201");
    assert_no_leak_soon(&database).await;
}
