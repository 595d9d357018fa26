//! Tests of batches: the rows of each query are those of it alone, in the order of the queries; one that fails stops no
//! other; what does not fit memory runs in its turn. Rows come before the whole group is done, and what runs of a batch
//! ends with it.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use cleave_device::Runtime;
use cleave_fragment::command::{Command, DeviceError, Execute, Reply};
use cleave_fragment::link::{DeviceService, SlotSender};
use cleave_host::statement::{ParsedStatement, parse_script};
use cleave_host::{Database, Error, OpenOptions, Outcome, Session, Started};
use cleave_media::Memory;
use futures::FutureExt;
use tokio::sync::watch;

use crate::devices::{Served, TOKEN, anywhere, remote, token_file};
use crate::support::{embedded, fresh, refused, row, rows, run, runtime_options, text_of};

/// The embedded device with three others, and the table `grains` over the four.
async fn with_four(database: &Arc<Database>, outside: &Path) -> Vec<Served> {
    let token = token_file(outside, TOKEN);
    let mut served = Vec::new();
    for (name, number) in [("a", 1), ("b", 2), ("c", 3)] {
        let media = outside.join(format!("{name}.media"));
        let device = Served::start(&media, [number; 16], anywhere()).await;
        database.add_device(name, remote(device.address, token.clone())).await.unwrap();
        served.push(device);
    }
    let mut session = database.session();
    run(
        &mut session,
        "CREATE TABLE grains (id int PRIMARY KEY, x real, z real, ke real, kind text)
             WITH (devices = (embedded, a, b, c), tablets = 4, tablet_by = hash (id));
         INSERT INTO grains SELECT v, v * 7 % 100 / 100.0, v * 13 % 50, nullif(v * 37 % 1000, 5) / 1000.0,
             CASE v % 9 WHEN 0 THEN NULL ELSE 'k' || v % 9 END FROM generate_series(1, 40000) AS s(v);
         CREATE TABLE kinds (kind text PRIMARY KEY, weight int);
         INSERT INTO kinds SELECT 'k' || v, v * v FROM generate_series(1, 8) AS s(v);
         DELETE FROM grains WHERE id % 11 = 0; CHECKPOINT",
    )
    .await;
    served
}

const QUERIES: [&str; 14] = [
    "SELECT x FROM grains WHERE ke > 0.99 ORDER BY id",
    "SELECT z FROM grains WHERE x > 0.97 ORDER BY id",
    "SELECT count(*), min(id) FROM grains WHERE ke > 0.2",
    "SELECT z FROM grains WHERE x > 0.98 AND ke < 0.5 ORDER BY id",
    "SELECT id FROM grains WHERE id = 17",
    "SELECT z, count(*) FROM grains WHERE x < 0.8 GROUP BY z ORDER BY z",
    "SELECT count(x) FROM grains WHERE NOT ke < 0.9",
    "SELECT 1 AS one",
    "VALUES (2), (3)",
    "SELECT kind, sum(weight) FROM grains NATURAL JOIN kinds WHERE ke > 0.9 GROUP BY kind ORDER BY kind",
    "WITH w AS (SELECT id FROM grains WHERE kind = 'k3') SELECT count(*) FROM w WHERE id % 2 = 0",
    "SELECT id FROM grains WHERE kind LIKE '%3' ORDER BY ke DESC NULLS LAST, id LIMIT 5",
    "SELECT weight FROM kinds ORDER BY weight",
    "SELECT count(*) FROM grains WHERE kind IS NULL",
];

fn batch(queries: &[&str]) -> String {
    format!("BATCH BEGIN; {}; BATCH END", queries.join("; "))
}

/// The outcomes of a script, rows as text, and its error.
async fn outcomes(session: &mut Session, sql: &str) -> (Vec<Vec<String>>, Option<Error>) {
    let mut outcomes = Vec::new();
    let error = session.run_into(sql, &mut outcomes).await.err();
    let shown = outcomes.into_iter().map(|outcome| match outcome {
        Outcome::Rows { batches, .. } => text_of(&batches),
        Outcome::Done { tag } => vec![tag],
    });
    (shown.collect(), error)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_query_has_the_rows_that_it_has_alone() {
    let outside = tempfile::tempdir().unwrap();
    let (_directory, database) = fresh().await;
    let _served = with_four(&database, outside.path()).await;
    let mut session = database.session();
    for settings in [
        "SET split = auto",
        "SET split = h0",
        "SET split = host",
        "SET split = h0; SET batch_reuse_min = 0",
        "SET split = h0; SET batch_reuse_min = 0; SET batch_size_max = 1",
        "SET split = h0; SET batch_size_max = 64; SET filter_history = off; SET stealing = off",
        "SET split = auto; SET filter_history = always; SET index_scan = off; SET stealing = always",
    ] {
        run(&mut session, &format!("RESET ALL; {settings}")).await;
        let mut alone = vec![vec!["BATCH BEGIN".to_owned()]];
        for query in QUERIES {
            alone.push(rows(&mut session, query).await);
        }
        alone.push(vec!["BATCH END".to_owned()]);
        for round in 0..2 {
            let (found, error) = outcomes(&mut session, &batch(&QUERIES)).await;
            assert!(error.is_none(), "{settings}: {error:?}");
            assert_eq!(found, alone, "{settings}, {round}");
        }
        // In a transaction block, which sees its own changes.
        let script = format!(
            "BEGIN; DELETE FROM grains WHERE id = 17; {}; ROLLBACK",
            batch(&[
                "SELECT count(*) FROM grains WHERE id < 20",
                "SELECT id FROM grains WHERE id = 17"
            ])
        );
        let (found, error) = outcomes(&mut session, &script).await;
        assert!(error.is_none(), "{settings}: {error:?}");
        assert_eq!(found[3..5], [vec!["17".to_owned()], vec![]], "{settings}");
    }
    // Others beside it.
    let mut other = database.session();
    let script = batch(&QUERIES);
    let both =
        futures::future::join(outcomes(&mut session, &script), outcomes(&mut other, &script));
    let ((one, _), (two, _)) = both.await;
    assert_eq!(one, two);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_query_that_fails_stops_no_other() {
    let (_directory, database) = fresh().await;
    let mut session = database.session();
    run(
        &mut session,
        "CREATE TABLE t (a int PRIMARY KEY, b int); CREATE TABLE hidden (a int);
         INSERT INTO t SELECT v, v % 7 FROM generate_series(1, 500) AS s(v); SET index_scan = off",
    )
    .await;
    let mut queries: Vec<String> =
        (0..1000).map(|number| format!("SELECT count(*) + {number} FROM t WHERE b = 3")).collect();
    queries[120] = "SELECT sum(1 / (b - 3)) FROM t".to_owned();
    let texts: Vec<&str> = queries.iter().map(String::as_str).collect();
    let (found, error) = outcomes(&mut session, &batch(&texts)).await;
    let error = error.unwrap();
    assert_eq!(error.sqlstate(), "22012");
    assert!(error.to_string().starts_with("query 121 of the batch: "), "{error}");
    // BATCH END has no outcome.
    assert_eq!(found.len(), 1001);
    for (number, rows) in found[1..].iter().enumerate() {
        let expected = match number {
            120 => "FAILED".to_owned(),
            _ => (72 + number).to_string(),
        };
        assert_eq!(rows, &[expected]);
    }
    // A statement before has no part in it, and one behind does not run.
    let script = format!(
        "{}; SELECT 5",
        batch(&["SELECT nothing FROM t", "SELECT 1", "SELECT 1 / 0 FROM t"])
    );
    let (found, error) = outcomes(&mut session, &script).await;
    let error = error.unwrap();
    assert_eq!((error.sqlstate(), found.len()), ("42703", 4));
    assert!(error.to_string().starts_with("query 1 of the batch (and another one): "), "{error}");
    assert_eq!(found[2], ["1"]);
    // The block fails with it.
    let failed = format!("BEGIN; {}", batch(&["SELECT 1 / (b - b) FROM t", "SELECT 4"]));
    let (found, error) = outcomes(&mut session, &failed).await;
    assert_eq!((error.unwrap().sqlstate(), &found[3]), ("22012", &vec!["4".to_owned()]));
    assert_eq!(refused(&mut session, "SELECT 1").await.sqlstate(), "25P02");
    run(&mut session, "ROLLBACK").await;
    // Rights are those of each query.
    run(&mut session, "CREATE ROLE clerk; GRANT SELECT ON t TO clerk; SET ROLE clerk").await;
    let (found, error) =
        outcomes(&mut session, &batch(&["SELECT count(*) FROM hidden", "SELECT count(*) FROM t"]))
            .await;
    assert_eq!(error.unwrap().sqlstate(), "42501");
    assert_eq!(found[1..], [vec!["FAILED".to_owned()], vec!["500".to_owned()]]);
    run(&mut session, "RESET ROLE").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hints_hold_for_one_query_or_for_the_batch() {
    let (_directory, database) = fresh().await;
    let mut session = database.session();
    run(&mut session, "CREATE TABLE t (a int); INSERT INTO t VALUES (1)").await;
    let script = "/*+ application_name(all) */ BATCH BEGIN;
        SELECT current_setting('application_name'), a FROM t;
        /*+ application_name(one) */ SELECT current_setting('application_name'), a FROM t;
        SELECT current_setting('application_name'), a FROM t; BATCH END;
        SELECT current_setting('application_name'), a FROM t";
    let (found, error) = outcomes(&mut session, script).await;
    assert!(error.is_none(), "{error:?}");
    let names: Vec<&str> = found.iter().map(|rows| rows[0].as_str()).collect();
    assert_eq!(names, ["BATCH BEGIN", "all,1", "one,1", "all,1", "BATCH END", ",1"]);
    assert_eq!(refused(&mut session, "BATCH BEGIN; SELECT 1").await.sqlstate(), "42601");
    assert_eq!(refused(&mut session, "PREPARE p AS BATCH BEGIN").await.sqlstate(), "0A000");
    // Nothing of a batch is left.
    assert_eq!(rows(&mut session, "SELECT 7").await, ["7"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_that_do_not_fit_memory_come_in_their_turn() {
    let directory = tempfile::tempdir().unwrap();
    let options = OpenOptions::new(embedded()).create(true).query_memory_bytes(16 << 20);
    let database = Database::open(directory.path(), options).await.unwrap();
    let mut session = database.session();
    run(
        &mut session,
        "CREATE TABLE t (a int PRIMARY KEY, note text);
         INSERT INTO t SELECT v, repeat(md5(v::text), 12) FROM generate_series(1, 12000) AS s(v);
         CHECKPOINT; SET index_scan = off",
    )
    .await;
    // Each has about 4.5 MB of rows, and a batch keeps an eighth of 16 MiB.
    let large = "SELECT a, note FROM t WHERE a > 0";
    let small = ["SELECT count(*) FROM t WHERE a > 5", "SELECT sum(a) FROM t WHERE a < 9"];
    let mut expected = rows(&mut session, large).await;
    expected.sort();
    let queries = [large, small[0], large, small[1], large];
    let (mut found, error) = outcomes(&mut session, &batch(&queries)).await;
    assert!(error.is_none(), "{error:?}");
    assert_eq!((&found[2], &found[4]), (&vec!["11995".to_owned()], &vec!["36".to_owned()]));
    for place in [1, 3, 5] {
        found[place].sort();
        assert!(found[place] == expected, "query {place}");
    }
    // The log has each once, also those that were given up and ran again.
    let logged = "SELECT count(*), count(sqlstate) FROM cleave.query_log
                  WHERE text LIKE '%SELECT a, note FROM t WHERE a > 0%' AND text NOT LIKE '%query_log%'";
    assert_eq!(row(&mut session, logged).await, "4,0");
    // The tasks of queries that were given up end by themselves.
    memory_is_given_back(&database).await;
}

async fn memory_is_given_back(database: &Database) {
    for _ in 0..500 {
        if database.query_runtime().memory_pool.reserved() == 0 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("memory of a batch is not given back");
}

/// A device that holds the rows of runs back that begin while its gate is closed, until it opens.
#[derive(Debug)]
struct Holding {
    device: Arc<dyn DeviceService>,
    is_open: watch::Receiver<bool>,
    /// How many it has held back.
    held: watch::Sender<u32>,
}

#[async_trait]
impl DeviceService for Holding {
    async fn call(&self, command: Command) -> Result<Reply, DeviceError> {
        self.device.call(command).await
    }

    async fn execute(&self, request: Execute, slots: SlotSender) -> Result<SchemaRef, DeviceError> {
        let is_open = *self.is_open.borrow();
        if is_open {
            return self.device.execute(request, slots).await;
        }
        let (sender, mut events) = SlotSender::channel(slots.form());
        let schema = self.device.execute(request, sender).await?;
        self.held.send_modify(|held| *held += 1);
        let mut gate = self.is_open.clone();
        tokio::runtime::Handle::current().spawn(async move {
            drop(gate.wait_for(|is_open| *is_open).await);
            while let Some(event) = events.recv().await {
                slots.send(event);
            }
        });
        Ok(schema)
    }

    fn steer(&self, command: Command) {
        self.device.steer(command);
    }
}

/// The tables `near`, on the embedded device, and `far`, on one with a gate.
struct NearAndFar {
    _outside: tempfile::TempDir,
    _served: Served,
    session: Session,
    gate: watch::Sender<bool>,
    held: watch::Receiver<u32>,
}

impl NearAndFar {
    async fn of(database: &Arc<Database>) -> Self {
        let outside = tempfile::tempdir().unwrap();
        let (gate, is_open) = watch::channel(true);
        let (count, held) = watch::channel(0);
        let device = move || {
            let device = Runtime::new(Arc::new(Memory::new()), runtime_options([1; 16])).unwrap();
            Arc::new(Holding { device, is_open, held: count }) as Arc<dyn DeviceService>
        };
        let served = Served::of(device, anywhere()).await;
        let device = remote(served.address, token_file(outside.path(), TOKEN));
        database.add_device("nas", device).await.unwrap();
        let mut session = database.session();
        // One group has all queries of a batch.
        run(
            &mut session,
            "CREATE TABLE near (id int PRIMARY KEY, v int, note text);
             CREATE TABLE far (id int PRIMARY KEY, v int) WITH (device = nas);
             INSERT INTO near SELECT v, v, repeat(md5(v::text), 12) FROM generate_series(1, 12000) AS s(v);
             INSERT INTO far SELECT v, v FROM generate_series(1, 1000) AS s(v); CHECKPOINT;
             SET split = h0; SET batch_reuse_min = 0; SET index_scan = off; SET stealing = off",
        )
        .await;
        Self { _outside: outside, _served: served, session, gate, held }
    }

    /// The outcome of a statement, which does not wait for a gate.
    async fn soon(&mut self, parsed: ParsedStatement) -> Vec<String> {
        let outcome = async { self.session.start(parsed).await?.collect().await };
        match tokio::time::timeout(Duration::from_secs(30), outcome).await.unwrap().unwrap() {
            Outcome::Rows { batches, .. } => text_of(&batches),
            Outcome::Done { tag } => vec![tag],
        }
    }

    /// Waits until more runs are held back than `before`.
    async fn holds_more(&mut self, before: u32) {
        let held = self.held.wait_for(|held| *held > before);
        drop(tokio::time::timeout(Duration::from_secs(30), held).await.unwrap().unwrap());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_of_the_first_query_come_before_its_group_is_done() {
    let directory = tempfile::tempdir().unwrap();
    let options = OpenOptions::new(embedded()).create(true).query_memory_bytes(16 << 20);
    let database = Database::open(directory.path(), options).await.unwrap();
    let mut both = NearAndFar::of(&database).await;
    let queries = [
        "SELECT count(*) FROM near WHERE v > 5",
        "SELECT sum(v) FROM far WHERE v > 5",
        "SELECT 1 / (v - v) FROM far",
        "SELECT count(*) FROM near WHERE v > 7",
    ];
    both.gate.send_replace(false);
    let mut statements = parse_script(&batch(&queries)).unwrap().into_iter();
    let mut next = || statements.next().unwrap();
    assert_eq!(both.soon(next()).await, ["BATCH BEGIN"]);
    assert_eq!(both.soon(next()).await, ["11995"]);
    both.holds_more(0).await;
    both.gate.send_replace(true);
    assert_eq!(both.soon(next()).await, ["500485"]);
    // It fails after BATCH BEGIN was answered.
    assert_eq!(both.soon(next()).await, ["FAILED"]);
    assert_eq!(both.soon(next()).await, ["11993"]);
    let error = both.session.start(next()).await.unwrap_err();
    assert!(error.to_string().starts_with("query 3 of the batch: "), "{error}");
    assert_eq!(error.sqlstate(), "22012");

    // The first one streams rows that do not fit memory, which would wait for the group if it ran alone.
    both.gate.send_replace(false);
    let before = *both.held.borrow();
    let large = "SELECT v, note FROM near WHERE v > 0";
    let mut statements = parse_script(&batch(&[large, queries[1]])).unwrap().into_iter();
    let mut next = || statements.next().unwrap();
    assert_eq!(both.soon(next()).await, ["BATCH BEGIN"]);
    let mut found = both.soon(next()).await;
    both.holds_more(before).await;
    both.gate.send_replace(true);
    assert_eq!(both.soon(next()).await, ["500485"]);
    assert_eq!(both.soon(next()).await, ["BATCH END"]);
    let mut expected = rows(&mut both.session, large).await;
    expected.sort();
    found.sort();
    assert!(found == expected);
    memory_is_given_back(&database).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_runs_of_a_batch_ends_with_it() {
    let (_directory, database) = fresh().await;
    let mut both = NearAndFar::of(&database).await;
    let script =
        batch(&["SELECT count(*) FROM near WHERE v > 5", "SELECT sum(v) FROM far WHERE v > 5"]);
    let in_use = || database.query_runtime().memory_pool.reserved();
    both.gate.send_replace(false);
    for waits in [false, true] {
        let before = *both.held.borrow();
        let mut statements = parse_script(&script).unwrap().into_iter();
        assert_eq!(both.soon(statements.next().unwrap()).await, ["BATCH BEGIN"]);
        assert_eq!(both.soon(statements.next().unwrap()).await, ["11995"]);
        both.holds_more(before).await;
        if waits {
            let waiting = both.session.start(statements.next().unwrap());
            assert!(waiting.now_or_never().is_none());
        }
        // Its plans.
        assert!(in_use() > 0);
        both.session.fail_block();
        memory_is_given_back(&database).await;
    }
    // Its time is over: that of all its queries together.
    run(&mut both.session, "SET statement_timeout = 300").await;
    for begin in ["", "BEGIN; "] {
        let (_, error) = outcomes(&mut both.session, &format!("{begin}{script}")).await;
        let error = error.unwrap();
        assert_eq!(error.sqlstate(), "57014", "{error}");
        memory_is_given_back(&database).await;
    }
    assert_eq!(refused(&mut both.session, "SELECT 1").await.sqlstate(), "25P02");
    run(&mut both.session, "ROLLBACK; RESET statement_timeout").await;
    // Its session is gone.
    let mut other = database.session();
    run(&mut other, "SET split = h0; SET index_scan = off; SET stealing = off").await;
    let before = *both.held.borrow();
    other.start(parse_script(&script).unwrap().remove(0)).await.unwrap();
    both.holds_more(before).await;
    drop(other);
    memory_is_given_back(&database).await;
    both.gate.send_replace(true);
    let (found, error) = outcomes(&mut both.session, &script).await;
    assert!(error.is_none(), "{error:?}");
    assert_eq!(found[1..3], [["11995"], ["500485"]]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn look_ups_that_do_not_fit_memory_wait_for_their_turn() {
    let directory = tempfile::tempdir().unwrap();
    let options = OpenOptions::new(embedded()).create(true).query_memory_bytes(16 << 20);
    let database = Database::open(directory.path(), options).await.unwrap();
    let mut session = database.session();
    run(
        &mut session,
        "CREATE TABLE t (a int PRIMARY KEY, note text);
         INSERT INTO t SELECT v, repeat(md5(v::text), 12000) FROM generate_series(1, 20) AS s(v)",
    )
    .await;
    let queries: Vec<String> =
        (1..=20).map(|key| format!("SELECT note FROM t WHERE a = {key}")).collect();
    let mut expected = Vec::new();
    for query in &queries {
        expected.push(rows(&mut session, query).await);
    }
    let texts: Vec<&str> = queries.iter().map(String::as_str).collect();
    let script = batch(&texts);
    let in_use = || database.query_runtime().memory_pool.reserved();
    let mut statements = parse_script(&script).unwrap().into_iter();
    session.start(statements.next().unwrap()).await.unwrap();
    // An eighth of 16 MiB, and the last row that fitted no more.
    assert!((1 << 20..3 << 20).contains(&in_use()), "{}", in_use());
    for (parsed, expected) in statements.by_ref().take(20).zip(&expected) {
        let Started::Rows(mut found) = session.start(parsed).await.unwrap() else {
            panic!("no rows")
        };
        let mut batches = Vec::new();
        while let Some(batch) = found.next().await.unwrap() {
            batches.push(batch);
        }
        assert!(text_of(&batches) == *expected);
    }
    session.start(statements.next().unwrap()).await.unwrap();
    assert_eq!(in_use(), 0);
    // Rows that nobody will take, as their script has failed, are let go of.
    session.start(parse_script(&script).unwrap().remove(0)).await.unwrap();
    assert!(in_use() > 1 << 20);
    session.fail_block();
    assert_eq!(in_use(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn functions_that_do_something_are_called_once_and_in_order() {
    let (_directory, database) = fresh().await;
    let mut session = database.session();
    run(
        &mut session,
        "CREATE SEQUENCE s; CREATE TABLE t (a int); SET index_scan = off;
         INSERT INTO t SELECT v FROM generate_series(1, 3) AS g(v);
         CREATE SEQUENCE u; CREATE VIEW drawn AS SELECT nextval('u') AS n;
         CREATE VIEW drawn_again AS SELECT n, n + 1 AS m FROM drawn",
    )
    .await;
    // Also in views, and views of views.
    let queries =
        ["SELECT n FROM drawn_again", "SELECT nextval('u')", "SELECT n FROM public.drawn"];
    let (found, error) = outcomes(&mut session, &batch(&queries)).await;
    assert!(error.is_none(), "{error:?}");
    assert_eq!(found[1..4], [["1"], ["2"], ["3"]]);
    let queries = [
        "SELECT currval('s') + count(*) FROM t",
        "SELECT nextval('s'), max(a) FROM t",
        "SELECT currval('s') + count(*) FROM t",
        "SELECT count(*) FROM t",
        "SELECT pg_catalog.nextval('s')",
        "SELECT setval('s', 40)",
        "/*+ application_name(one) */ SELECT nextval('s'), current_setting('application_name')",
    ];
    let (found, error) = outcomes(&mut session, &batch(&queries)).await;
    assert_eq!(error.unwrap().sqlstate(), "55000");
    let found: Vec<&str> = found[1..].iter().map(|rows| rows[0].as_str()).collect();
    assert_eq!(found, ["FAILED", "1,3", "4", "3", "2", "40", "41,one"]);
    assert_eq!(rows(&mut session, "SELECT current_setting('application_name')").await, [""]);
    // As the server runs it: one that fails in its turn stops no other.
    let script = batch(&["SELECT nextval('s') / 0", "SELECT nextval('s')"]);
    let mut tags = Vec::new();
    let mut error = None;
    for parsed in parse_script(&script).unwrap() {
        match session.start(parsed).await {
            Ok(Started::Done { tag }) => tags.push(tag),
            Ok(Started::Rows(_)) => tags.push("rows".to_owned()),
            Err(other) => error = Some(other),
        }
    }
    assert_eq!(
        (tags.join(" ").as_str(), error.unwrap().sqlstate()),
        ("BATCH BEGIN FAILED rows", "22012")
    );
}
