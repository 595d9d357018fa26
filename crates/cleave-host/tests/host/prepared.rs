//! Tests of prepared statements: described without values, planned for each set of values, and looked up where
//! possible.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use cleave_host::{Database, Outcome, RemoteDevice};
use cleave_store::ColumnType;

use crate::devices::{Served, TOKEN, anywhere, remote, token_file, with_nas};
use crate::support::{assert_no_leak, batches, fresh, numbered, refused, row, rows, run};

/// The split that EXPLAIN says was chosen.
fn chosen(plan: &[String]) -> String {
    let line = plan.iter().find(|line| line.contains("; chosen"));
    let line = line.unwrap_or_else(|| panic!("no split was chosen: {plan:#?}"));
    line.trim().split([':', ' ']).next().unwrap().to_owned()
}

/// A table on a device behind a link of 2 MB a second: few rows of it cross sooner than its pages, which are packed,
/// and its pages sooner than all of its rows.
pub(crate) async fn behind_a_slow_link(
    outside: &Path,
) -> (tempfile::TempDir, Arc<Database>, Served) {
    let (directory, database) = fresh().await;
    let served = Served::start(&outside.join("nas.media"), [1; 16], anywhere()).await;
    let nas = remote(served.address, token_file(outside, TOKEN));
    let nas = RemoteDevice { rate_cap: Some(2_000_000), ..nas };
    database.add_device("nas", nas).await.unwrap();
    let mut session = database.session();
    run(&mut session, "SET default_device = nas; CREATE TABLE far (id int PRIMARY KEY, note text)")
        .await;
    session.load("far", batches(vec![numbered(0..60_000)]), None).await.unwrap();
    run(&mut session, "ANALYZE far").await;
    (directory, database, served)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_split_follows_the_values() {
    let outside = tempfile::tempdir().unwrap();
    let (_directory, database, _served) = behind_a_slow_link(outside.path()).await;
    let mut session = database.session();
    run(&mut session, "SET stealing = off; SET index_scan = off").await;
    run(&mut session, "PREPARE below (integer) AS SELECT id, note FROM far WHERE id < $1").await;
    let mut plans = Vec::new();
    // Nearly nothing, and nearly everything.
    for value in [3, 59_000] {
        let plan = rows(&mut session, &format!("EXPLAIN VERBOSE EXECUTE below ({value})")).await;
        let constant = format!("EXPLAIN VERBOSE SELECT id, note FROM far WHERE id < {value}");
        assert_eq!(chosen(&plan), chosen(&rows(&mut session, &constant).await), "{plan:#?}");
        plans.push(plan);
    }
    assert_eq!(
        (chosen(&plans[0]).as_str(), chosen(&plans[1]).as_str()),
        ("h0", "host"),
        "{plans:#?}"
    );
    // Both plans give their rows.
    for value in [3, 59_000] {
        let found = rows(&mut session, &format!("EXECUTE below ({value})")).await;
        assert_eq!(found.len(), usize::try_from(value).unwrap());
        let taken = database.query_log().records().pop().unwrap().split_taken;
        assert_eq!(taken.as_deref(), Some(if value == 3 { "h0" } else { "host" }));
    }
    assert_no_leak(&database);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_prepares_describes_and_executes() {
    let outside = tempfile::tempdir().unwrap();
    let (_directory, database, _served, _) = with_nas(outside.path()).await;
    let mut session = database.session();
    session.prepare("q", "SELECT id, note AS n FROM far WHERE id = $1", &[]).await.unwrap();
    let described = session.describe("q").await.unwrap();
    assert_eq!(described.parameters, [ColumnType::Int]);
    let columns = described.columns.clone().unwrap();
    let names: Vec<&str> = columns.fields().iter().map(|field| field.name().as_str()).collect();
    assert_eq!(names, ["id", "n"]);
    let Outcome::Rows { schema, batches } = session.execute("q", &[Some("20000")]).await.unwrap()
    else {
        panic!("a query gives rows")
    };
    assert_eq!(schema.fields().len(), 2);
    assert_eq!(batches.iter().map(|batch| batch.num_rows()).sum::<usize>(), 1);

    session.prepare("", "INSERT INTO near VALUES ($1, $2)", &[]).await.unwrap();
    let described = session.describe("").await.unwrap();
    assert_eq!(described.parameters, [ColumnType::Int, ColumnType::Text]);
    assert_eq!(described.columns, None);
    let Outcome::Done { tag } = session.execute("", &[Some("9"), None]).await.unwrap() else {
        panic!("an INSERT gives no rows")
    };
    assert_eq!(tag, "INSERT 0 1");
    // The unnamed one is replaced; other names are taken.
    session.prepare("", "SELECT $1::date", &[None]).await.unwrap();
    assert_eq!(session.describe("").await.unwrap().parameters, [ColumnType::Date]);
    let error = session.prepare("q", "SELECT 1", &[]).await.unwrap_err();
    assert_eq!(error.sqlstate(), "42P05");
    // Names are those of SQL.
    assert_eq!(row(&mut session, "EXECUTE q (1)").await, "1,note 1 x");
    for (sql, state) in [("SELECT 1; SELECT 2", "42601"), ("BEGIN", "0A000"), ("", "42601")] {
        let error = session.prepare("other", sql, &[]).await.unwrap_err();
        assert_eq!(error.sqlstate(), state, "{sql}: {error}");
    }
    let error = session.execute("q", &[]).await.unwrap_err();
    assert_eq!(error.sqlstate(), "42601", "{error}");
    let error = session.execute("q", &[Some("many")]).await.unwrap_err();
    assert_eq!(error.sqlstate(), "22P02", "{error}");
    assert!(error.to_string().starts_with("parameter $1"), "{error}");
    session.deallocate(Some("q")).unwrap();
    assert_eq!(session.deallocate(Some("q")).unwrap_err().sqlstate(), "26000");
    assert_eq!(session.describe("q").await.unwrap_err().sqlstate(), "26000");
    run(&mut session, "CHECKPOINT").await;
    assert_no_leak(&database);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_are_looked_up_and_others_logged_with_their_values() {
    let outside = tempfile::tempdir().unwrap();
    let (_directory, database, _served, _) = with_nas(outside.path()).await;
    let mut session = database.session();
    run(&mut session, "PREPARE one AS SELECT note FROM far WHERE id = $1").await;
    run(
        &mut session,
        "PREPARE some AS SELECT /*+ split(h0) */ count(*) FROM far WHERE id < $1 AND note <> $2",
    )
    .await;
    let before = database.query_log().records().len();
    let plan = rows(&mut session, "EXPLAIN ANALYZE VERBOSE EXECUTE one (7)").await;
    assert!(plan[0].contains("Point look-up on far by index far_pkey"), "{plan:?}");
    assert_eq!(row(&mut session, "EXECUTE one (7)").await, format!("note 7 {}", "x".repeat(7)));
    assert_eq!(database.query_log().records().len(), before, "a look-up is not logged");
    run(&mut session, "SET index_scan = off").await;
    let plan = rows(&mut session, "EXPLAIN VERBOSE EXECUTE one (7)").await;
    assert!(!plan[0].contains("Point look-up"), "{plan:?}");

    assert_eq!(row(&mut session, "EXECUTE some (100, 'it''s')").await, "100");
    let record = database.query_log().records().pop().unwrap();
    assert_eq!(
        record.text,
        "SELECT /*+ split(h0) */ count(*) FROM far WHERE id < 100 AND note <> CAST('it''s' AS TEXT)"
    );
    // The statement's hint holds for each EXECUTE, and one of EXECUTE goes before it.
    assert_eq!(record.split_taken.as_deref(), Some("h0"));
    run(&mut session, "EXECUTE /*+ split(host) */ some (100, 'it''s')").await;
    let record = database.query_log().records().pop().unwrap();
    assert_eq!(record.split_taken.as_deref(), Some("host"));
    // A logged statement can be run again.
    assert_eq!(row(&mut session, &record.text).await, "100");
    let error = refused(&mut session, "PREPARE bad AS SELECT /*+ split(x) */ 1").await;
    assert_eq!(error.sqlstate(), "22023");
    assert_eq!(row(&mut session, "SHOW split").await, "auto");
    // Sessions do not see each other's.
    assert_eq!(refused(&mut database.session(), "EXECUTE one (7)").await.sqlstate(), "26000");
    assert_no_leak(&database);
}

/// An abandoned statement has begun to change rows, and has locks: later look-ups see nothing of it, and free its
/// locks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_look_up_sees_nothing_of_a_statement_that_was_given_up() {
    let (_directory, database) = fresh().await;
    let (mut one, mut two) = (database.session(), database.session());
    run(
        &mut one,
        "CREATE TABLE parent (id int PRIMARY KEY); INSERT INTO parent VALUES (1), (2);
         CREATE TABLE child (id int PRIMARY KEY, parent int REFERENCES parent ON DELETE CASCADE);
         INSERT INTO child VALUES (10, 1), (20, 2)",
    )
    .await;
    two.prepare("end", "DELETE FROM parent WHERE id = $1", &[]).await.unwrap();
    two.prepare("get", "SELECT id FROM parent WHERE id = $1", &[]).await.unwrap();
    run(&mut one, "BEGIN; UPDATE child SET id = 11 WHERE id = 10").await;
    let ending = Box::pin(two.execute("end", &[Some("1")]));
    assert!(tokio::time::timeout(Duration::from_millis(500), ending).await.is_err(), "it waits");
    let Outcome::Rows { batches, .. } = two.execute("get", &[Some("1")]).await.unwrap() else {
        panic!("it gives rows");
    };
    assert_eq!(batches.iter().map(|batch| batch.num_rows()).sum::<usize>(), 1);
    run(&mut one, "COMMIT").await;
    // The row is unlocked.
    run(&mut one, "SET lock_timeout = '5s'; DELETE FROM parent WHERE id = 1").await;
    assert_eq!(rows(&mut one, "SELECT id FROM child").await, ["20"]);
    assert_no_leak(&database);
}
