//! Tests of privileges where nothing is bound again: look-ups seen before, prepared statements, loads; and after a
//! restart.

use cleave_host::Session;

use crate::support::{batches, fresh, numbered, open, refused, row, run};

pub(crate) async fn as_user(
    database: &std::sync::Arc<cleave_host::Database>,
    user: &str,
) -> Session {
    let mut session = database.session();
    session.log_in(user).unwrap();
    session
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_revoked_is_refused_by_look_ups_and_prepared_statements() {
    let (_directory, database) = fresh().await;
    let mut owner = database.session();
    run(
        &mut owner,
        "CREATE TABLE t (id int PRIMARY KEY, note text); INSERT INTO t VALUES (1, 'one'), (2, 'two');
         CREATE ROLE ada LOGIN; GRANT SELECT, UPDATE ON t TO ada",
    )
    .await;
    let mut ada = as_user(&database, "ada").await;
    let look_up = "SELECT note FROM t WHERE id = 1";
    for _ in 0..3 {
        assert_eq!(row(&mut ada, look_up).await, "one");
    }
    run(&mut ada, "PREPARE by_key (int) AS SELECT note FROM t WHERE id = $1").await;
    run(&mut ada, "PREPARE change (int) AS UPDATE t SET note = 'new' WHERE id = $1").await;
    for _ in 0..2 {
        assert_eq!(row(&mut ada, "EXECUTE by_key (2)").await, "two");
        run(&mut ada, "EXECUTE change (1)").await;
    }
    run(&mut owner, "REVOKE ALL ON t FROM ada").await;
    for sql in [look_up, "EXECUTE by_key (2)", "EXECUTE change (1)", "EXPLAIN EXECUTE by_key (2)"] {
        assert_eq!(refused(&mut ada, sql).await.sqlstate(), "42501", "{sql}");
    }
    // What ada may not do, others still may.
    assert_eq!(row(&mut owner, look_up).await, "new");
    run(&mut owner, "GRANT UPDATE, SELECT ON t TO PUBLIC").await;
    assert_eq!(row(&mut ada, "EXECUTE by_key (2)").await, "two");
    run(&mut ada, "EXECUTE change (2)").await;
    assert_eq!(row(&mut ada, look_up).await, "new");
    let loaded = ada.load("t", batches(vec![numbered(5..9)]), None).await;
    assert_eq!(loaded.unwrap_err().sqlstate(), "42501");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rights_are_there_after_a_restart_and_go_with_their_table() {
    let (directory, database) = fresh().await;
    let mut owner = database.session();
    run(
        &mut owner,
        "CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1); CREATE TABLE u (id int);
         CREATE USER ada PASSWORD 'pencil'; CREATE ROLE staff; GRANT staff TO ada;
         GRANT SELECT ON t, u TO staff; GRANT CREATE ON SCHEMA public TO ada",
    )
    .await;
    let mut ada = as_user(&database, "ada").await;
    run(
        &mut ada,
        "BEGIN; CREATE TABLE mine (id serial, note text); INSERT INTO mine (note) VALUES ('x'); \
         COMMIT",
    )
    .await;
    run(&mut owner, "DROP TABLE u; CREATE TABLE u (id int)").await;
    drop((owner, ada));
    drop(database);
    let database = open(directory.path()).await;
    let mut ada = as_user(&database, "ada").await;
    assert_eq!(row(&mut ada, "SELECT id FROM t WHERE id = 1").await, "1");
    assert_eq!(row(&mut ada, "SELECT note FROM mine").await, "x");
    run(&mut ada, "INSERT INTO mine (note) VALUES ('y')").await;
    // It is another one.
    assert_eq!(refused(&mut ada, "SELECT * FROM u").await.sqlstate(), "42501");
    let login = database.login("ada").unwrap();
    assert!(login.verifier.is_some() && !login.has_expired);
    assert!(database.has_passwords());
    let secret = database.login_secret();
    assert!(secret.is_some());
    let mut owner = database.session();
    run(&mut owner, "ALTER ROLE ada NOLOGIN").await;
    assert!(!database.has_passwords());
    assert_eq!(database.login_secret(), secret, "passwords are asked for all the same");
    assert_eq!(database.session().log_in("ada").unwrap_err().sqlstate(), "28000");
    run(&mut owner, "ALTER ROLE ada LOGIN; REVOKE CONNECT ON DATABASE cleave FROM PUBLIC").await;
    assert_eq!(database.session().log_in("ada").unwrap_err().sqlstate(), "42501");
    run(&mut owner, "GRANT CONNECT ON DATABASE cleave TO staff").await;
    database.session().log_in("ada").unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn passwords_stand_in_no_error() {
    let (_directory, database) = fresh().await;
    let mut session = database.session();
    for sql in [
        "CREATE ROLE a PASSWORD 'sesame' 'sesame'",
        "CREATE ROLE a PASSWORD E'sesame' VALID UNTIL 'sesame'",
        "CREATE ROLE a LOGIN 'sesame'",
        "ALTER ROLE nobody PASSWORD 'sesame'",
        "CREATE ROLE a PASSWORD 'sesame\u{e4}'",
        "CREATE ROLE a PASSWORD 'sesame",
    ] {
        let error = refused(&mut session, sql).await;
        assert!(!format!("{error} {error:?}").contains("sesame"), "{sql}: {error:?}");
    }
    run(&mut session, "CREATE ROLE a PASSWORD 'sesame'").await;
    let shown = row(&mut session, "SELECT rolpassword FROM pg_authid WHERE rolname = 'a'").await;
    assert!(shown.starts_with("SCRAM-SHA-256$4096:") && !shown.contains("sesame"), "{shown}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_secret_of_log_ins_comes_with_the_first_password_and_stays() {
    let (directory, database) = fresh().await;
    let mut session = database.session();
    run(&mut session, "CREATE ROLE a LOGIN; BEGIN; ALTER ROLE a PASSWORD 'x'; ROLLBACK").await;
    assert!(database.login_secret().is_none(), "nobody has had a password");
    run(&mut session, "BEGIN; ALTER ROLE a PASSWORD 'x'; COMMIT; ALTER ROLE a PASSWORD NULL").await;
    let secret = database.login_secret().unwrap();
    run(&mut session, "DROP ROLE a; CREATE ROLE b PASSWORD 'y'").await;
    database.ask_for_passwords().await.unwrap();
    assert_eq!(database.login_secret().as_ref(), Some(&secret));
    drop((session, database));
    let database = open(directory.path()).await;
    assert_eq!(database.login_secret().as_ref(), Some(&secret));
    let (_directory, other) = fresh().await;
    other.ask_for_passwords().await.unwrap();
    assert_ne!(other.login_secret().unwrap(), secret);
}
