//! Tests of the query log: predicted and actual cost of queries, in the table `cleave.query_log`.

use cleave_host::query_log::{QueryRecord, RECORD_COUNT_MAX};
use cleave_host::{Database, Session};
use cleave_plan::split::PastErrors;

use crate::devices::with_nas;
use crate::support::{assert_no_leak, fresh, open, refused, row, rows, run};

fn last(database: &Database) -> QueryRecord {
    database.query_log().records().pop().unwrap()
}

async fn logged(session: &mut Session, what: &str, condition: &str) -> Vec<String> {
    rows(session, &format!("SELECT {what} FROM cleave.query_log WHERE {condition} ORDER BY began"))
        .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn prediction_and_outcome_stand_side_by_side() {
    let outside = tempfile::tempdir().unwrap();
    let (_directory, database, _served, _) = with_nas(outside.path()).await;
    let mut session = database.session();
    let before = database.query_log().records().len();
    let query = "SELECT count(*) FROM far WHERE note LIKE '%77%'";
    let count = row(&mut session, query).await;
    let record = last(&database);
    assert_eq!(database.query_log().records().len(), before + 1);
    assert_eq!((record.text.as_str(), record.split_asked.as_str()), (query, "auto"));
    assert_eq!((record.cost_strategy.as_str(), &record.sqlstate), ("makespan", &None));
    assert!(record.predicted_ms.unwrap() > 0.0 && record.predicted_host_ms.unwrap() > 0.0);
    assert!(record.predicted_ms <= record.predicted_host_ms, "{record:?}");
    assert!(record.planning_ms.unwrap() > 0.0 && record.began_us > 1_600_000_000_000_000);
    let outcome = record.outcome.clone().unwrap();
    assert_eq!((outcome.rows, outcome.refused_count), (1, 0));
    assert!(outcome.execution_ms > 0.0 && outcome.link_bytes > 0, "{outcome:?}");

    // The same as rows, among them no look-up and nothing that is not a query.
    // Where the host takes part, it may leave the device nothing.
    run(&mut session, "SET split = h0; SET stealing = off").await;
    run(&mut session, query).await;
    run(&mut session, "SELECT note FROM far WHERE id = 20000").await;
    run(&mut session, "INSERT INTO near SELECT id + 10, note FROM far WHERE id < 5").await;
    run(&mut session, &format!("EXPLAIN ANALYZE VERBOSE {query}")).await;
    let forced = last(&database);
    assert_eq!((forced.split_asked.as_str(), forced.split_taken.as_deref()), ("h0", Some("h0")));
    // No predictions are compared for a forced split.
    assert_eq!((forced.predicted_ms, forced.predicted_host_ms), (None, None));
    let outcome = forced.outcome.clone().unwrap();
    assert!(outcome.media_bytes > 0 && outcome.device_cpu_ms > 0.0, "{outcome:?}");
    let what = "split_asked, split_taken, rows, predicted_ms IS NULL, link_bytes > 0, sqlstate";
    let taken = record.split_taken.unwrap();
    let expected = [format!("auto,{taken},1,f,t,NULL"), "h0,h0,1,t,t,NULL".to_owned()];
    assert_eq!(logged(&mut session, what, "text LIKE '%77%'").await, expected);
    assert_eq!(count, row(&mut session, query).await);
    assert_no_leak(&database);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_margin_of_auto_is_shown_and_runs_tell_of_predictions() {
    let outside = tempfile::tempdir().unwrap();
    let (_directory, database, _served, _) = with_nas(outside.path()).await;
    let mut session = database.session();
    let query = "SELECT count(*) FROM far WHERE note LIKE '%77%'";
    let explain = format!("EXPLAIN VERBOSE {query}");
    let plan = rows(&mut session, &explain).await;
    let setting = plan.iter().find(|line| line.contains("must save")).unwrap();
    // The best of few predictions need not promise all of the 43 %.
    assert!(setting.contains("must save: 4") && !setting.contains(" 43 % of"), "{setting}");
    assert!(setting.contains("different predictions; split_gain_min 43)"), "{setting}");
    // Queries of the host alone are told from others, and a forced split has no prediction.
    run(&mut session, "SET split_gain_min = 99").await;
    for _ in 0..3 {
        run(&mut session, query).await;
    }
    let of_host = database.query_log().past_errors();
    assert_ne!(of_host, PastErrors::default());
    run(&mut session, "SET split = h0").await;
    run(&mut session, query).await;
    assert_eq!(database.query_log().past_errors(), of_host);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_fails_and_what_is_given_up_is_in_it() {
    let outside = tempfile::tempdir().unwrap();
    let (_directory, database, _served, _) = with_nas(outside.path()).await;
    let mut session = database.session();
    assert_eq!(refused(&mut session, "SELECT missing FROM far").await.sqlstate(), "42703");
    let record = last(&database);
    assert_eq!((record.sqlstate.as_deref(), &record.split_taken), (Some("42703"), &None));
    assert_eq!((record.outcome, record.planning_ms), (None, None));
    for split in ["host", "h0"] {
        run(&mut session, &format!("SET split = {split}")).await;
        let error = refused(&mut session, "SELECT 1 / (id - 500) FROM far").await;
        let record = last(&database);
        assert_eq!((error.sqlstate(), record.sqlstate.as_deref()), ("22012", Some("22012")));
        assert_eq!(record.split_taken.as_deref(), Some(split));
        assert!(record.outcome.is_some(), "{record:?}");
    }
    // A statement whose future is dropped while it runs.
    let count = database.query_log().records().len();
    {
        let endless = "SELECT count(*) FROM generate_series(1, 1000000000000) AS s(v) WHERE v < 0";
        let mut session = database.session();
        let statement = session.run(endless);
        let wait = std::time::Duration::from_millis(300);
        assert!(tokio::time::timeout(wait, statement).await.is_err(), "it should take long");
    }
    let records = database.query_log().records();
    assert_eq!(records.len(), count + 1);
    assert_eq!(records[count].sqlstate.as_deref(), Some("57014"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_table_is_read_on_the_host_under_every_split() {
    let (directory, database) = fresh().await;
    let mut session = database.session();
    run(&mut session, "CREATE TABLE query_log (id int PRIMARY KEY, text text)").await;
    run(&mut session, "INSERT INTO query_log VALUES (1, 'mine'), (2, 'SELECT 7')").await;
    run(&mut session, "SELECT 7").await;
    for split in ["auto", "host", "h0"] {
        run(&mut session, &format!("SET split = '{split}'")).await;
        let own = logged(&mut session, "text", "text = 'SELECT 7'").await;
        assert_eq!(own, ["SELECT 7"], "{split}");
        // A user's table of that name is a different one, also beside it, and also in a look-up.
        assert_eq!(rows(&mut session, "SELECT text FROM query_log WHERE id = 1").await, ["mine"]);
        assert_eq!(rows(&mut session, "SELECT count(*) FROM public.query_log").await, ["2"]);
        let both = "SELECT u.id, l.split_asked FROM cleave.query_log l JOIN query_log u ON u.text = l.text";
        assert_eq!(rows(&mut session, both).await, ["2,auto"], "{split}");
        let plan = rows(&mut session, "EXPLAIN VERBOSE SELECT text FROM cleave.query_log").await;
        assert!(!plan.iter().any(|line| line.contains("cut:")), "{plan:?}");
    }
    // The operator that would have to be below a cut cannot run there.
    for split in ["h1", "ndp"] {
        run(&mut session, &format!("SET split = {split}")).await;
        let error = refused(&mut session, "SELECT text FROM cleave.query_log").await;
        assert_eq!(error.sqlstate(), "0A000", "{error}");
    }
    run(&mut session, "SET split = auto").await;
    let error = refused(&mut session, "SELECT * FROM cleave.query_logs").await;
    assert!(error.sqlstate() == "42P01" && error.to_string().contains("query_log"), "{error}");
    assert_eq!(refused(&mut session, "SELECT * FROM cleaves.query_log").await.sqlstate(), "3F000");
    assert_eq!(
        refused(&mut session, "INSERT INTO cleave.query_log (text) VALUES ('x')").await.sqlstate(),
        "3F000"
    );
    // It is gone with the process.
    drop((session, database));
    let database = open(directory.path()).await;
    assert_eq!(database.query_log().records(), []);
    let mut session = database.session();
    assert_eq!(row(&mut session, "SELECT count(*) FROM cleave.query_log").await, "0");
    assert_eq!(row(&mut session, "SELECT count(*) FROM cleave.query_log").await, "1");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_log_is_bounded_and_can_be_turned_off() {
    let (_directory, database) = fresh().await;
    let mut session = database.session();
    run(&mut session, "SET query_log = off").await;
    run(&mut session, "SELECT 0").await;
    assert_eq!(database.query_log().records(), []);
    run(&mut session, "RESET query_log; SELECT 1; SELECT /*+ query_log(off) */ 2").await;
    assert_eq!(last(&database).text, "SELECT 1");
    for number in 0..RECORD_COUNT_MAX {
        run(&mut session, &format!("SELECT {number} AS n")).await;
    }
    let records = database.query_log().records();
    assert_eq!((records.len(), records[0].text.as_str()), (RECORD_COUNT_MAX, "SELECT 0 AS n"));
}
