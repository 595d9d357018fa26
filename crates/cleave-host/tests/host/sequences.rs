//! Tests of sequences: no number is given twice, however the process ends, and under concurrent calls.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::support::{open, open_forgetful, refused, row, rows, run};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_number_comes_twice_after_a_crash() {
    let directory = tempfile::tempdir().unwrap();
    let database = open_forgetful(directory.path()).await;
    let mut session = database.session();
    run(&mut session, "CREATE SEQUENCE s; CREATE TABLE t (id serial, note text)").await;
    drop((session, database));
    let mut greatest = 0;
    for turn in 0..4 {
        let database = open_forgetful(directory.path()).await;
        let mut session = database.session();
        for _ in 0..turn * 20 + 1 {
            let number = row(&mut session, "SELECT nextval('s')").await.parse::<i64>().unwrap();
            assert!(number > greatest, "{number} comes after {greatest}");
            greatest = number;
        }
        run(&mut session, "INSERT INTO t (note) VALUES ('row')").await;
        drop((session, database));
    }
    let database = open_forgetful(directory.path()).await;
    let mut session = database.session();
    assert_eq!(row(&mut session, "SELECT count(DISTINCT id) FROM t").await, "4");
    // setval holds as well, also if it goes back.
    run(&mut session, "SELECT setval('s', 5)").await;
    drop((session, database));
    let database = open_forgetful(directory.path()).await;
    let mut session = database.session();
    assert_eq!(row(&mut session, "SELECT nextval('s')").await, "6");
    run(&mut session, "ALTER SEQUENCE s RESTART WITH 1000").await;
    drop((session, database));
    let database = open_forgetful(directory.path()).await;
    assert_eq!(row(&mut database.session(), "SELECT nextval('s')").await, "1000");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_is_closed_well_leaves_no_gap() {
    let directory = tempfile::tempdir().unwrap();
    let database = open(directory.path()).await;
    let mut session = database.session();
    run(&mut session, "CREATE SEQUENCE s; SELECT nextval('s'); CHECKPOINT").await;
    assert_eq!(row(&mut session, "SELECT nextval('s')").await, "2");
    database.checkpoint().await.unwrap();
    drop((session, database));
    let database = open(directory.path()).await;
    assert_eq!(row(&mut database.session(), "SELECT nextval('s')").await, "3");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn sessions_at_once_get_different_numbers() {
    let directory = tempfile::tempdir().unwrap();
    let database = open(directory.path()).await;
    run(
        &mut database.session(),
        "CREATE SEQUENCE s; CREATE TABLE t (id bigserial PRIMARY KEY, a int)",
    )
    .await;
    let mut tasks = tokio::task::JoinSet::new();
    for session in 0..4 {
        let database = Arc::clone(&database);
        tasks.spawn(async move {
            let mut taken = Vec::new();
            let mut own = database.session();
            for turn in 0..25 {
                taken.push(row(&mut own, "SELECT nextval('s')").await.parse::<i64>().unwrap());
                run(&mut own, &format!("INSERT INTO t (a) VALUES ({session}), ({turn})")).await;
                if turn == 12 {
                    run(&mut own, "CHECKPOINT").await;
                }
            }
            taken
        });
    }
    let taken: Vec<i64> = tasks.join_all().await.into_iter().flatten().collect();
    let different: BTreeSet<i64> = taken.iter().copied().collect();
    assert_eq!((taken.len(), different.len()), (100, 100));
    assert_eq!(different.last(), Some(&100), "nothing is left out");
    let mut session = database.session();
    assert_eq!(rows(&mut session, "SELECT count(*), max(id) FROM t").await, ["200,200"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copy_numbers_rows_in_the_order_of_the_file() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("rows.csv");
    let lines: Vec<String> = (1..=40_000).map(|number| format!("row {number}\n")).collect();
    std::fs::write(&file, lines.concat()).unwrap();
    let database = open(&directory.path().join("db")).await;
    let mut session = database.session();
    run(&mut session, "CREATE TABLE t (id serial, note text CHECK (note <> 'row 0'))").await;
    run(&mut session, &format!("COPY t (note) FROM '{}' WITH (FORMAT csv)", file.display())).await;
    let all = "SELECT count(*), count(DISTINCT id) FROM t WHERE note = 'row ' || id";
    assert_eq!(row(&mut session, all).await, "40000,40000");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_block_has_its_sequences_to_itself() {
    let directory = tempfile::tempdir().unwrap();
    let database = open_forgetful(directory.path()).await;
    let (mut one, mut two) = (database.session(), database.session());
    run(&mut two, "CREATE SEQUENCE s; SELECT nextval('s')").await;
    run(&mut one, "CREATE TEMP TABLE mine (id serial, a int); INSERT INTO mine (a) VALUES (1)")
        .await;
    run(&mut one, "BEGIN; CREATE TABLE t (id serial PRIMARY KEY, a int)").await;
    run(&mut one, "INSERT INTO t (a) VALUES (1), (2); SAVEPOINT a").await;
    run(&mut one, "ALTER SEQUENCE t_id_seq MAXVALUE 1000; INSERT INTO t (a) VALUES (3)").await;
    run(&mut one, "ROLLBACK TO a").await;
    // Commits of others meanwhile give none of its numbers back.
    run(&mut two, "CREATE TABLE other (id serial); INSERT INTO other DEFAULT VALUES").await;
    run(&mut two, "CHECKPOINT").await;
    assert_eq!(refused(&mut two, "SELECT nextval('t_id_seq')").await.sqlstate(), "42P01");
    run(&mut one, "INSERT INTO t (a) VALUES (4); INSERT INTO mine (a) VALUES (2)").await;
    assert_eq!(rows(&mut one, "SELECT id, a FROM t ORDER BY 1").await, ["1,1", "2,2", "4,4"]);
    assert_eq!(rows(&mut one, "SELECT id, a FROM mine ORDER BY 1").await, ["1,1", "2,2"]);
    // One that begins again is another one until COMMIT.
    run(&mut one, "ALTER SEQUENCE s RESTART WITH 100").await;
    assert_eq!(row(&mut one, "SELECT nextval('s')").await, "100");
    assert_eq!(row(&mut two, "SELECT nextval('s')").await, "2");
    run(&mut one, "COMMIT").await;
    assert_eq!(row(&mut two, "SELECT nextval('s')").await, "101");
    run(&mut two, "BEGIN; ALTER SEQUENCE s RESTART; SELECT nextval('s'); ROLLBACK").await;
    assert_eq!(row(&mut two, "SELECT nextval('s')").await, "102");
    run(&mut two, "INSERT INTO t (a) VALUES (5)").await;
    drop((one, two, database));
    // The log has numbers of sequences that no manifest knows.
    let database = open_forgetful(directory.path()).await;
    let mut session = database.session();
    let first = row(&mut session, "INSERT INTO t (a) VALUES (6) RETURNING id").await;
    assert!(first.parse::<i64>().unwrap() > 5, "{first}");
    run(&mut session, "CREATE TABLE next (id serial)").await;
    assert_eq!(row(&mut session, "INSERT INTO next DEFAULT VALUES RETURNING id").await, "1");
    drop((session, database));
    let database = open_forgetful(directory.path()).await;
    let mut session = database.session();
    let next = row(&mut session, "INSERT INTO next DEFAULT VALUES RETURNING id").await;
    assert!((2..=40).contains(&next.parse::<i64>().unwrap()), "{next}");
}
