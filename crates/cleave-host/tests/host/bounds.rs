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
async fn what_sessions_keep_is_a_part_of_the_memory_of_queries() {
    let directory = tempfile::tempdir().unwrap();
    let options = OpenOptions::new(embedded()).create(true).query_memory_bytes(8 << 20);
    let database = Database::open(&directory.path().join("db"), options).await.unwrap();
    let declare = |number| format!("DECLARE c{number} CURSOR WITH HOLD FOR SELECT 1");
    let mut sessions: Vec<_> = (0..4).map(|_| database.session()).collect();
    let mut counts = Vec::new();
    for session in &mut sessions {
        let mut count = 0;
        loop {
            match session.run(&declare(count)).await {
                Ok(_) => count += 1,
                Err(error) => {
                    assert_eq!(error.sqlstate(), "53200", "{error}");
                    assert!(error.to_string().contains("cursors need"), "{error}");
                    break;
                }
            }
            assert!(count < 100);
        }
        counts.push(count);
    }
    // Two of them have what all may keep; the others what is not charged.
    assert!(counts[0] > 15 && counts[1] > 15 && counts[2] < 4 && counts[3] < 4, "{counts:?}");
    // Queries have the rest, and prepared statements count, too.
    let mut other = database.session();
    assert_eq!(row(&mut other, "SELECT sum(a) FROM generate_series(1, 1000) x(a)").await, "500500");
    let long = format!("PREPARE p AS SELECT '{}'", "x".repeat(100_000));
    assert_eq!(refused(&mut other, &long).await.sqlstate(), "53200");
    // What is closed is given back, and so is what a session had that has ended.
    run(&mut sessions[0], "CLOSE ALL").await;
    run(&mut other, &long).await;
    run(&mut other, "DEALLOCATE ALL").await;
    drop(sessions);
    for number in 0..counts[0] {
        run(&mut other, &declare(number)).await;
    }
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
    assert_eq!(refused(&mut session, &long).await.sqlstate(), "54000");
    assert_eq!(row(&mut session, "SHOW application_name").await, "ä".repeat(31));
}

/// Lists and texts that a row or a batch makes very many, or very large, values of.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn statements_that_make_too_much_of_little_end_alone() {
    let directory = tempfile::tempdir().unwrap();
    let options = OpenOptions::new(embedded()).create(true).query_memory_bytes(64 << 20);
    let database = Database::open(&directory.path().join("db"), options).await.unwrap();
    let mut session = database.session();
    run(&mut session, "CREATE TABLE t (i int, x text)").await;
    run(&mut session, "INSERT INTO t SELECT g, repeat('x', 10000) FROM generate_series(1, 200) g")
        .await;
    let lists = (0..400).map(|place| format!("ARRAY[x, i || '{place}', x]")).collect::<Vec<_>>();
    let too_much = [
        format!("SELECT {} FROM t", lists.join(", ")),
        "SELECT length(to_char(i, repeat('9', 30000000 + i))) FROM t".to_owned(),
        "SELECT length(to_char(now(), repeat('Month', 4000000 + i))) FROM t".to_owned(),
        "SELECT length(format('%' || (50000000 + i) || 's', x)) FROM t".to_owned(),
        "SELECT length(regexp_replace(repeat(x, 100), '.', 'ccccccc', 'g')) FROM t".to_owned(),
    ];
    for sql in too_much {
        let error = refused(&mut session, &sql).await;
        let shown = sql.get(..60).unwrap_or(&sql);
        assert!(["53200", "54000"].contains(&error.sqlstate()), "{shown}: {error}");
        assert_eq!(row(&mut session, "SELECT count(*) FROM t").await, "200");
    }
    // Rows of long lists come in batches: neither those of a join nor those of the lists are ever there at once.
    for (sql, expected) in [
        (
            "SELECT count(*) FROM (SELECT unnest(x), i FROM generate_series(1, 2000) i, \
             (SELECT array_agg(j) x FROM generate_series(1, 20000) j) y) z",
            "40000000",
        ),
        (
            "SELECT count(x), sum(cardinality(x)) FROM generate_series(1, 4000) i LEFT JOIN \
             (SELECT array_agg(j) x FROM generate_series(1, 20000) j) y ON i % 4 > 0",
            "3000,60000000",
        ),
        (
            "SELECT sum(length(x)) FROM generate_series(1, 4000) i LEFT JOIN \
             (SELECT string_agg(x, '') x FROM t WHERE i < 20) y ON true",
            "760000000",
        ),
        (
            "SELECT count(*) FROM (SELECT i, unnest(ARRAY[x, 'a', x]), unnest(ARRAY[1, i]) FROM t) z",
            "600",
        ),
    ] {
        assert_eq!(row(&mut session, sql).await, expected, "{sql}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_role_has_so_much_of_the_catalog() {
    let (_directory, database) = fresh().await;
    let mut session = database.session();
    let columns: Vec<String> = (0..40).map(|number| format!("c{number} int")).collect();
    let made = format!(
        "CREATE ROLE eve; CREATE TABLE t ({}); ALTER TABLE t OWNER TO eve; SET ROLE eve",
        columns.join(", ")
    );
    run(&mut session, &made).await;
    let comment = |column: usize, bytes: usize| {
        format!("COMMENT ON COLUMN t.c{column} IS '{}'", "x".repeat(bytes))
    };
    let error = refused(&mut session, &comment(0, (1 << 20) + 1)).await;
    assert_eq!(error.sqlstate(), "54000", "{error}");
    // One commit writes the catalog once.
    run(&mut session, "BEGIN").await;
    for column in 0..31 {
        run(&mut session, &comment(column, 1 << 20)).await;
    }
    run(&mut session, "COMMIT").await;
    let error = refused(&mut session, &comment(32, 1 << 20)).await;
    assert_eq!(error.sqlstate(), "54000", "{error}");
    // What makes it less is allowed, and a superuser is.
    run(&mut session, &comment(0, 0)).await;
    run(&mut session, &comment(32, 1 << 20)).await;
    run(&mut session, "RESET ROLE").await;
    run(&mut session, &comment(33, 1 << 20)).await;
}
