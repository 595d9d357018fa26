//! Tests of limits on what a client's statements make grow; a session continues after each refusal.

use cleave_host::{Database, OpenOptions};

use crate::support::{embedded, fresh, refused, row, run};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_has_so_many_advisory_locks() {
    let (_directory, database) = fresh().await;
    let mut session = database.session();
    for function in ["pg_advisory_lock", "pg_try_advisory_lock_shared", "pg_advisory_xact_lock"] {
        let all = format!("SELECT count({function}(g)) FROM generate_series(1, 5000000) AS s(g)");
        for _ in 0..2 {
            let error = refused(&mut session, &all).await;
            assert_eq!(error.sqlstate(), "53200", "{error}");
            assert!(error.to_string().contains("advisory_locks_max"), "{error}");
        }
        run(&mut session, "SELECT pg_advisory_unlock_all()").await;
        assert_eq!(row(&mut session, "SELECT count(*) FROM pg_locks").await, "0");
    }
    // A lock that it holds is taken once more; with a higher limit there is room.
    run(&mut session, "SELECT count(pg_advisory_lock(g)) FROM generate_series(1, 10000) AS s(g)")
        .await;
    run(&mut session, "SELECT pg_advisory_lock(7)").await;
    assert_eq!(refused(&mut session, "SELECT pg_advisory_lock(0)").await.sqlstate(), "53200");
    run(&mut session, "SET advisory_locks_max = 10001; SELECT pg_advisory_lock(0)").await;
    // Those of a transaction end with it.
    run(&mut session, "SELECT pg_advisory_unlock_all()").await;
    let some = "SELECT count(pg_advisory_xact_lock(g)) FROM generate_series(1, 6000) AS s(g)";
    for _ in 0..3 {
        run(&mut session, some).await;
        run(&mut session, &format!("BEGIN; {some}; COMMIT")).await;
    }
    run(&mut session, &format!("BEGIN; {some}")).await;
    let other = some.replace("(1, 6000)", "(6001, 12000)");
    assert_eq!(refused(&mut session, &other).await.sqlstate(), "53200");
    run(&mut session, "ROLLBACK").await;
    assert_eq!(row(&mut session, "SELECT count(*) FROM pg_locks").await, "0");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_keeps_so_many_prepared_statements() {
    let (_directory, database) = fresh().await;
    let mut session = database.session();
    for number in 0..10_000 {
        run(&mut session, &format!("PREPARE p{number} AS SELECT 1")).await;
    }
    let error = refused(&mut session, "PREPARE p AS SELECT 1").await;
    assert_eq!(error.sqlstate(), "54000", "{error}");
    assert!(error.to_string().contains("DEALLOCATE"), "{error}");
    run(&mut session, "DEALLOCATE p7; PREPARE p AS SELECT 2").await;
    assert_eq!(row(&mut session, "EXECUTE p").await, "2");
    run(&mut session, "DEALLOCATE ALL").await;
    // Text counts, too.
    let long = format!("SELECT '{}'", "x".repeat(1 << 20));
    for number in 0..15 {
        run(&mut session, &format!("PREPARE p{number} AS {long}")).await;
    }
    let error = refused(&mut session, &format!("PREPARE p AS {long}")).await;
    assert_eq!(error.sqlstate(), "54000", "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_keeps_so_many_cursors() {
    let (_directory, database) = fresh().await;
    let mut session = database.session();
    for number in 0..1000 {
        run(&mut session, &format!("DECLARE c{number} CURSOR WITH HOLD FOR SELECT 1")).await;
    }
    let error = refused(&mut session, "DECLARE c CURSOR WITH HOLD FOR SELECT 1").await;
    assert_eq!(error.sqlstate(), "54000", "{error}");
    run(&mut session, "CLOSE c3; DECLARE c CURSOR WITH HOLD FOR SELECT 3").await;
    assert_eq!(row(&mut session, "FETCH c").await, "3");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn held_cursors_of_all_sessions_share_the_memory_of_queries() {
    let directory = tempfile::tempdir().unwrap();
    let options = OpenOptions::new(embedded()).create(true).query_memory_bytes(8 << 20);
    let database = Database::open(&directory.path().join("db"), options).await.unwrap();
    let (mut session, mut other) = (database.session(), database.session());
    let declare = |number| format!("DECLARE c{number} CURSOR WITH HOLD FOR SELECT 1");
    let mut refusal = None;
    for number in 0..100 {
        match session.run(&declare(number)).await {
            Ok(_) => assert!(number < 90),
            Err(error) => refusal = refusal.or(Some((number, error))),
        }
    }
    let (count, error) = refusal.unwrap();
    assert!(count > 10 && error.sqlstate() == "53200", "{count}: {error}");
    assert!(error.to_string().contains("cursors WITH HOLD"), "{error}");
    assert_eq!(refused(&mut other, &declare(0)).await.sqlstate(), "53200");
    // Others go on, and what is closed is given back.
    run(&mut other, "BEGIN; DECLARE c CURSOR FOR SELECT 1; COMMIT").await;
    run(&mut session, "CLOSE ALL").await;
    run(&mut other, &declare(0)).await;
    assert_eq!(row(&mut other, "FETCH c0").await, "1");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_block_has_so_many_savepoints() {
    let (_directory, database) = fresh().await;
    let mut session = database.session();
    run(&mut session, "CREATE TABLE t (a int); BEGIN; INSERT INTO t VALUES (1)").await;
    for _ in 0..5000 {
        run(&mut session, "SAVEPOINT s").await;
    }
    let error = refused(&mut session, "SAVEPOINT s").await;
    assert_eq!(error.sqlstate(), "54000", "{error}");
    run(&mut session, "ROLLBACK TO s; RELEASE s; SAVEPOINT s; COMMIT").await;
    assert_eq!(row(&mut session, "SELECT count(*) FROM t").await, "1");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_of_a_client_is_kept_within_the_length_of_names() {
    let (_directory, database) = fresh().await;
    let mut session = database.session();
    run(&mut session, &format!("SET application_name = '{}'", "ä".repeat(31))).await;
    let long = format!("SET application_name = '{}'", "ä".repeat(1 << 20));
    assert_eq!(refused(&mut session, &long).await.sqlstate(), "22023");
    assert_eq!(row(&mut session, "SHOW application_name").await, "ä".repeat(31));
}
