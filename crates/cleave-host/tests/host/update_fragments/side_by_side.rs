//! Tests of several update fragments on one table at once: they share its pages, and nothing is lost.

use datafusion::common::runtime::SpawnedTask;

use super::*;
use crate::support::{beside, waits};

async fn table(session: &mut Session, row_count: u32, clause: &str) {
    let columns = "id int PRIMARY KEY, a int NOT NULL, b int, note text";
    run(session, &format!("CREATE TABLE a ({columns}) {clause}")).await;
    let rows = format!("SELECT v, 0, 0, 'n' || v FROM generate_series(1, {row_count}) AS s(v)");
    run(session, &format!("INSERT INTO a {rows}")).await;
}

async fn session(database: &Arc<Database>) -> Session {
    let mut session = database.session();
    run(&mut session, "SET update_placement = device").await;
    session
}

/// Two fragments have changed rows of the same pages before either commits: one waits for a row of a third session.
async fn both_of_each_page(database: &Arc<Database>, clause: &str) {
    table(&mut database.session(), 20_000, clause).await;
    let (mut one, two, mut three) =
        (session(database).await, session(database).await, database.session());
    // The last row that the fragment comes to.
    run(&mut three, "BEGIN; UPDATE a SET note = 'three' WHERE id = 20000").await;
    let mut slow = beside(two, "UPDATE a SET a = a + 1, note = 'two' WHERE id % 2 = 0");
    assert!(waits(&mut slow).await);
    run(&mut one, "UPDATE a SET a = a + 10 WHERE id % 4 = 1; UPDATE a SET b = 5 WHERE id % 4 = 3")
        .await;
    run(&mut one, "DELETE FROM a WHERE id % 100 = 99").await;
    run(&mut three, "COMMIT").await;
    let (two, said) = slow.await.unwrap();
    assert_eq!(said, "done");
    let sums = "SELECT count(*), sum(a), sum(b), count(*) FILTER (WHERE note = 'two') FROM a";
    assert_eq!(row(&mut one, sums).await, "19800,60000,24000,10000");
    assert_eq!(fragments(database).await, 4);
    drop(two);
    assert_no_leak_soon(database).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fragments_change_rows_of_the_same_pages() {
    let (directory, database) = fresh().await;
    both_of_each_page(&database, "").await;
    drop(database);
    checks_out(directory.path()).await;
    let database = open(directory.path()).await;
    let sums = "SELECT count(*), sum(a), sum(b), count(*) FILTER (WHERE note = 'two') FROM a";
    assert_eq!(row(&mut database.session(), sums).await, "19800,60000,24000,10000");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fragments_of_a_remote_device_change_rows_of_the_same_pages() {
    let outside = tempfile::tempdir().unwrap();
    let (_directory, database) = fresh().await;
    let (_served, _) = attach_nas(&database, outside.path()).await;
    both_of_each_page(&database, "WITH (device = nas)").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fragment_reads_again_what_another_has_changed_in_place() {
    let (_directory, database) = fresh().await;
    table(&mut database.session(), 20_000, "").await;
    let (mut one, two, mut three) =
        (session(&database).await, session(&database).await, database.session());
    run(&mut three, "BEGIN; UPDATE a SET note = 'three' WHERE id = 20000").await;
    // It has locked the first rows, and waits for the last one.
    let mut first = beside(two, "UPDATE a SET a = a + 1, b = a WHERE id <= 10 OR id = 20000");
    assert!(waits(&mut first).await);
    let four = session(&database).await;
    let mut second =
        beside(four, "UPDATE a SET a = a + 100, b = a WHERE id <= 3 OR id > 19000 AND id < 20000");
    assert!(waits(&mut second).await);
    run(&mut three, "ROLLBACK").await;
    assert_eq!(first.await.unwrap().1, "done");
    assert_eq!(second.await.unwrap().1, "done");
    let some = "SELECT id, a, b FROM a WHERE id IN (1, 3, 4, 11, 19500, 20000) ORDER BY id";
    let expected = ["1,101,1", "3,101,1", "4,1,0", "11,0,0", "19500,100,0", "20000,1,0"];
    assert_eq!(rows(&mut one, some).await, expected);
    assert_no_leak_soon(&database).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_vacuum_waits_for_fragments() {
    let (_directory, database) = fresh().await;
    table(&mut database.session(), 20_000, "").await;
    let (mut one, two, mut three) =
        (session(&database).await, session(&database).await, session(&database).await);
    run(&mut one, "DELETE FROM a WHERE id % 3 = 0").await;
    run(&mut three, "BEGIN; UPDATE a SET note = 'three' WHERE id = 20000").await;
    let mut update = beside(two, "UPDATE a SET a = 1");
    assert!(waits(&mut update).await);
    let mut vacuum = beside(database.session(), "VACUUM FULL a");
    assert!(waits(&mut vacuum).await);
    run(&mut three, "COMMIT").await;
    assert_eq!(update.await.unwrap().1, "done");
    assert_eq!(vacuum.await.unwrap().1, "done");
    assert_eq!(row(&mut one, "SELECT count(*), sum(a) FROM a").await, "13334,13334");
    run(&mut three, "BEGIN; UPDATE a SET a = 2 WHERE id % 2 = 0").await;
    let mut vacuum = beside(database.session(), "VACUUM FULL a");
    assert!(waits(&mut vacuum).await);
    // Who comes behind it waits for nothing of the block.
    run(&mut three, "UPDATE a SET a = a + 1 WHERE id % 4 = 0; COMMIT").await;
    assert_eq!(vacuum.await.unwrap().1, "done");
    assert_eq!(row(&mut one, "SELECT sum(a) FROM a").await, "23335");
    assert_no_leak_soon(&database).await;
}

/// Two blocks and statements by themselves change rows of the same pages in turn: what each sees, and what is left.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn blocks_share_the_pages() {
    const SUMS: &str = "SELECT sum(a), sum(b), count(*) FILTER (WHERE note = 'x') FROM a";
    for level in ["READ COMMITTED", "REPEATABLE READ"] {
        let keeps = level != "READ COMMITTED";
        let (directory, database) = fresh().await;
        table(&mut database.session(), 12_000, "").await;
        let (mut one, mut two, mut three) =
            (session(&database).await, session(&database).await, session(&database).await);
        for session in [&mut one, &mut two] {
            run(session, &format!("BEGIN ISOLATION LEVEL {level}; SELECT count(*) FROM a")).await;
        }
        run(&mut one, "UPDATE a SET a = 1 WHERE id % 4 = 0").await;
        run(&mut two, "UPDATE a SET a = 10, b = 1 WHERE id % 4 = 1").await;
        run(&mut three, "UPDATE a SET a = 100, note = 'x' WHERE id % 4 = 2").await;
        // By a look-up of one row, by a scan, and by another fragment.
        let by_key = "SELECT a, note FROM a WHERE id = 2";
        assert_eq!(row(&mut one, by_key).await, if keeps { "0,n2" } else { "100,x" }, "{level}");
        assert_eq!(row(&mut one, SUMS).await, if keeps { "3000,0,0" } else { "303000,0,3000" });
        run(&mut one, "SAVEPOINT s; UPDATE a SET b = 5 WHERE id % 4 = 0; ROLLBACK TO s").await;
        run(&mut one, "UPDATE a SET a = a + 1 WHERE id % 8 = 0").await;
        run(&mut one, "INSERT INTO a VALUES (20000, 7, 7, 'own'); COMMIT").await;
        let seen = if keeps { "30000,3000,0" } else { "334507,3007,3000" };
        assert_eq!(row(&mut two, SUMS).await, seen, "{level}");
        run(&mut two, "UPDATE a SET b = b + 1 WHERE id % 4 = 1; DELETE FROM a WHERE id % 8 = 1")
            .await;
        run(
            &mut two,
            "ALTER TABLE a ADD COLUMN c int DEFAULT 1; UPDATE a SET c = 2 WHERE id IN (5, 13)",
        )
        .await;
        run(&mut two, "COMMIT").await;
        assert_eq!(row(&mut three, SUMS).await, "319507,3007,3000", "{level}");
        assert_eq!(row(&mut three, "SELECT count(*), sum(c) FROM a").await, "10501,10503");
        assert!(fragments(&database).await >= 6);
        assert_no_leak_soon(&database).await;
        drop((one, two, three, database));
        checks_out(directory.path()).await;
        let database = open(directory.path()).await;
        assert_eq!(row(&mut database.session(), SUMS).await, "319507,3007,3000", "{level}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_among_fragments_and_writers() {
    let (directory, database) = fresh().await;
    table(&mut database.session(), 12_000, "").await;
    let worker = |number: u64| {
        let database = Arc::clone(&database);
        SpawnedTask::spawn(async move {
            let mut session = session(&database).await;
            let mut done = 0_i64;
            for turn in 0..8 {
                let sql = match number {
                    // Disjoint rows, equal rows, and single ones.
                    0 | 1 => format!("UPDATE a SET a = a + 1 WHERE id % 2 = {number}"),
                    2 => "UPDATE a SET a = a + 1 WHERE id % 3 = 0".to_owned(),
                    _ => format!("UPDATE a SET a = a + 1 WHERE id = {}", 37 * (turn + 1) * number),
                };
                match session.run(&sql).await {
                    Ok(outcomes) => {
                        let tag = format!("{outcomes:?}");
                        let count = tag.split("UPDATE ").nth(1).unwrap();
                        done += count.split('"').next().unwrap().parse::<i64>().unwrap();
                    }
                    Err(error) => assert_eq!(error.sqlstate(), "40P01", "{sql}: {error}"),
                }
            }
            done
        })
    };
    let workers: Vec<_> = (0..6).map(worker).collect();
    let mut done = 0;
    for worker in workers {
        done += worker.await.unwrap();
    }
    let mut session = database.session();
    assert_eq!(row(&mut session, "SELECT sum(a) FROM a").await, done.to_string());
    assert!(fragments(&database).await >= 8);
    drop(session);
    assert_no_leak_soon(&database).await;
    drop(database);
    checks_out(directory.path()).await;
}
