//! Tests of storage nodes: devices of one process help each other and read each other's pages, with the same rows, and
//! the database shows them.

use std::path::Path;
use std::sync::Arc;

use cleave_device::{Node, Runtime, RuntimeOptions};
use cleave_fragment::link::DeviceService;
use cleave_host::{Database, Session};
use cleave_media::Memory;

use crate::devices::{Served, TOKEN, anywhere, remote, token_file};
use crate::stealing::{STATEMENTS, fill};
use crate::support::{assert_no_leak, fresh, refused, row, rows, run, runtime_options, sorted};

/// A database with two devices of a node, of one core each.
async fn on_a_node(outside: &Path) -> (tempfile::TempDir, Arc<Database>, [Served; 2], Session) {
    let (directory, database) = fresh().await;
    let node = Node::new("n1");
    let served = [
        attach(&database, outside, &node, ("n1:a", [1; 16])).await,
        attach(&database, outside, &node, ("n1:b", [2; 16])).await,
    ];
    let session = database.session();
    (directory, database, served, session)
}

/// A device of `node` with one core, which the database has by this name.
pub(crate) async fn attach(
    database: &Arc<Database>,
    outside: &Path,
    node: &Arc<Node>,
    (name, identity): (&str, [u8; 16]),
) -> Served {
    let node = Arc::clone(node);
    let device = move || {
        let options = RuntimeOptions { cores: 1, ..runtime_options(identity) };
        let runtime = Runtime::in_node(Arc::new(Memory::new()), options, &node);
        runtime.unwrap() as Arc<dyn DeviceService>
    };
    let served = Served::of(device, anywhere()).await;
    let device = remote(served.address, token_file(outside, TOKEN));
    database.add_device(name, device).await.unwrap();
    served
}

/// The plan of `sql` with its figures.
pub(crate) async fn analyzed(session: &mut Session, sql: &str) -> String {
    rows(session, &format!("EXPLAIN ANALYZE VERBOSE {sql}")).await.join("\n")
}

/// Whether `sql` says that another device of the node took part.
async fn is_helped(session: &mut Session, sql: &str) -> bool {
    analyzed(session, sql).await.contains("  other engines: ")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_are_the_same_whichever_device_of_the_node_works() {
    let outside = tempfile::tempdir().unwrap();
    let (_directory, database, _served, mut session) = on_a_node(outside.path()).await;
    run(&mut session, "SET default_device = 'n1:a'").await;
    fill(&mut session).await;
    for (sql, _) in STATEMENTS {
        run(&mut session, "SET split = host").await;
        let expected = sorted(&mut session, sql).await;
        for split in ["h0", "ndp"] {
            for stealing in ["always", "off"] {
                run(&mut session, &format!("SET split = {split}; SET stealing = {stealing}")).await;
                database.buffer_pool().clear();
                let outcome = session.run(sql).await;
                if outcome.is_err_and(|error| error.to_string().contains("cannot run this")) {
                    continue;
                }
                let found = sorted(&mut session, sql).await;
                assert_eq!(found, expected, "{split}, stealing {stealing}: {sql}");
                assert!(stealing == "always" || !is_helped(&mut session, sql).await, "{sql}");
            }
        }
    }
    // By cost, so that the host leaves morsels of so short a scan to the devices.
    run(&mut session, "SET split = h0; SET stealing = on").await;
    // On a busy machine a device may be done before the other one's thread runs.
    let mut attempts = 1000;
    while !is_helped(&mut session, STATEMENTS[0].0).await {
        attempts -= 1;
        assert!(attempts > 0, "the idle device never helped");
        database.buffer_pool().clear();
    }
    assert_no_leak(&database);
}

/// The time that a device is predicted to work for `sql` under `h0`, with no page on the host.
async fn predicted_ms(database: &Database, session: &mut Session, sql: &str) -> f64 {
    database.buffer_pool().clear();
    let json = row(session, &format!("EXPLAIN (FORMAT JSON) {sql}")).await;
    let (_, candidate) = json.split_once("\"split\":\"h0\"").unwrap();
    let (_, busy) = candidate.split_once("\"device_ms\":").unwrap();
    busy.split(',').next().unwrap().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_that_was_helped_is_predicted_to_be_sooner() {
    let outside = tempfile::tempdir().unwrap();
    let (_directory, database, _served, mut session) = on_a_node(outside.path()).await;
    run(&mut session, "SET default_device = 'n1:a'; SET filter_history = off").await;
    fill(&mut session).await;
    let (sql, _) = STATEMENTS[0];
    let alone = predicted_ms(&database, &mut session, sql).await;
    assert!(alone > 0.0);
    run(&mut session, "SET stealing = off; SET split = h0").await;
    run(&mut session, sql).await;
    run(&mut session, "RESET stealing; RESET split").await;
    let unhelped = predicted_ms(&database, &mut session, sql).await;
    assert!((unhelped - alone).abs() < 1e-6, "{unhelped} and {alone}");
    // On a busy machine a device may be done before the other one's thread runs.
    let mut attempts = 1000;
    while predicted_ms(&database, &mut session, sql).await >= alone {
        attempts -= 1;
        assert!(attempts > 0, "the idle device never helped");
        run(&mut session, "SET split = h0").await;
        run(&mut session, sql).await;
        run(&mut session, "RESET split").await;
    }
    run(&mut session, "SET stealing = off").await;
    assert_no_leak(&database);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn devices_are_listed_with_their_node() {
    let outside = tempfile::tempdir().unwrap();
    let (_directory, _database, served, mut session) = on_a_node(outside.path()).await;
    let listed = "SELECT name, node, queue, cores FROM cleave.devices ORDER BY name";
    let expected = ["embedded,NULL,0,2", "n1:a,n1,0,1", "n1:b,n1,0,1"];
    assert_eq!(rows(&mut session, listed).await, expected);
    run(
        &mut session,
        "CREATE TABLE t (id int PRIMARY KEY) WITH (devices = (\"n1:a\", 'n1:b'), tablets = 2);
         INSERT INTO t SELECT * FROM generate_series(1, 1000)",
    )
    .await;
    let tablets = "SELECT device FROM cleave.tablets WHERE table_name = 't' ORDER BY tablet";
    assert_eq!(rows(&mut session, tablets).await, ["n1:a", "n1:b"]);
    assert_eq!(rows(&mut session, "SELECT count(*), sum(id) FROM t").await, ["1000,500500"]);
    for one in served {
        one.stop().await;
    }
    let gone = "SELECT name, node, queue FROM cleave.devices WHERE state = 'offline' ORDER BY name";
    assert_eq!(rows(&mut session, gone).await, ["n1:a,NULL,NULL", "n1:b,NULL,NULL"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_are_the_same_whichever_devices_are_named() {
    let outside = tempfile::tempdir().unwrap();
    let (_directory, database, _served, mut session) = on_a_node(outside.path()).await;
    run(&mut session, "SET default_device = 'n1:a'").await;
    fill(&mut session).await;
    for (sql, _) in STATEMENTS {
        run(&mut session, "SET split = host; RESET compute_on").await;
        let expected = sorted(&mut session, sql).await;
        run(&mut session, "RESET split; SET stealing = always").await;
        for named in ["local", "n1:a", "n1:b", "n1:a, n1:b", "embedded, n1:b", "embedded"] {
            run(&mut session, &format!("SET compute_on = '{named}'")).await;
            database.buffer_pool().clear();
            assert_eq!(sorted(&mut session, sql).await, expected, "{named}: {sql}");
        }
    }
    assert_no_leak(&database);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_that_is_named_reads_the_pages_of_its_node_itself() {
    let outside = tempfile::tempdir().unwrap();
    let (_directory, database, _served, mut session) = on_a_node(outside.path()).await;
    run(&mut session, "SET default_device = 'n1:a'").await;
    fill(&mut session).await;
    let (sql, _) = STATEMENTS[1];
    run(&mut session, "SET compute_on = 'n1:b'; SET stealing = always").await;
    database.buffer_pool().clear();
    let plan = analyzed(&mut session, sql).await;
    for said in [
        "FragmentExec: device=n1:b (pages of n1:a)",
        "on the devices that are named",
        "  bytes at other media: ",
        ", 0 misses, ",
    ] {
        assert!(plan.contains(said), "{said}: {plan}");
    }
    for unsaid in ["ran on the host", "host took", "other engines", "decided again"] {
        assert!(!plan.contains(unsaid), "{unsaid}: {plan}");
    }
    // A device that is named itself computes over its own.
    run(&mut session, "SET compute_on = 'n1:b, n1:a'").await;
    let plan = analyzed(&mut session, sql).await;
    assert!(plan.contains("FragmentExec: device=n1:a "), "{plan}");
    assert!(!plan.contains("pages of") && !plan.contains("other media"), "{plan}");
    // Also where no link is spared.
    run(&mut session, "RESET ALL; CREATE TABLE near (id int, v int)").await;
    run(&mut session, "INSERT INTO near SELECT s, s % 7 FROM generate_series(1, 20000) s").await;
    let hinted = "SELECT /*+ compute_on(local) */ count(*) FROM near WHERE v = 3";
    let plan = analyzed(&mut session, hinted).await;
    assert!(plan.contains("FragmentExec: device=embedded"), "{plan}");
    assert_eq!(row(&mut session, hinted).await, "2857");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_device_runs_a_statement_over_tables_of_several() {
    let outside = tempfile::tempdir().unwrap();
    let (_directory, _database, _served, mut session) = on_a_node(outside.path()).await;
    run(
        &mut session,
        "CREATE TABLE one (id int PRIMARY KEY, v int) WITH (devices = 'n1:a');
         CREATE TABLE other (id int PRIMARY KEY, w int) WITH (devices = 'n1:b');
         CREATE TABLE divided (id int PRIMARY KEY, v int)
             WITH (devices = ('n1:a', 'n1:b'), tablets = 4);
         INSERT INTO one SELECT s, s % 10 FROM generate_series(1, 20000) s;
         INSERT INTO other SELECT s, s % 3 FROM generate_series(1, 20000) s;
         INSERT INTO divided SELECT s, s % 10 FROM generate_series(1, 20000) s",
    )
    .await;
    let statements = [
        "SELECT sum(v * w), count(*) FROM one JOIN other ON one.id = other.id",
        "SELECT v, count(*), min(id), max(id) FROM divided GROUP BY v",
    ];
    for sql in statements {
        let expected = sorted(&mut session, sql).await;
        run(&mut session, "SET split = ndp").await;
        assert_eq!(refused(&mut session, sql).await.sqlstate(), "0A000");
        for named in ["n1:a", "n1:b"] {
            run(&mut session, &format!("SET compute_on = '{named}'")).await;
            assert_eq!(sorted(&mut session, sql).await, expected, "{named}: {sql}");
            let plan = analyzed(&mut session, sql).await;
            let home = if named == "n1:a" { "n1:b" } else { "n1:a" };
            let said = format!("FragmentExec: device={named} (pages of {home})");
            assert!(plan.contains(&said), "{plan}");
            assert!(!plan.contains("ran on the host"), "{plan}");
        }
        run(&mut session, "RESET ALL").await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_that_a_named_device_cannot_reach_are_read_by_the_host() {
    let outside = tempfile::tempdir().unwrap();
    let (_directory, database, served, mut session) = on_a_node(outside.path()).await;
    let far = attach(&database, outside.path(), &Node::new("n2"), ("n2:a", [3; 16])).await;
    // On the embedded device, which has no address.
    fill(&mut session).await;
    let (sql, _) = STATEMENTS[1];
    let expected = row(&mut session, sql).await;
    run(&mut session, "SET compute_on = 'n2:a'").await;
    assert_eq!(row(&mut session, sql).await, expected);
    let plan = analyzed(&mut session, sql).await;
    let said = ["ran on the host: ", "it is no other device of this node"];
    assert!(said.iter().all(|said| plan.contains(said)), "{plan}");
    for (named, state) in [("n1:c", "42704"), ("n1:b, n1:b", "42601"), ("n1:b,", "42601")] {
        run(&mut session, &format!("SET compute_on = '{named}'")).await;
        let error = refused(&mut session, sql).await;
        assert_eq!(error.sqlstate(), state, "{named}: {error}");
    }
    // One that is gone is not replaced.
    far.stop().await;
    run(&mut session, "SET compute_on = 'n2:a'").await;
    assert_eq!(refused(&mut session, sql).await.sqlstate(), "58030");
    run(&mut session, "RESET compute_on").await;
    assert_eq!(row(&mut session, sql).await, expected);
    drop(served);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn named_devices_of_a_node_take_the_pages_of_another_in_turns() {
    let outside = tempfile::tempdir().unwrap();
    let (_directory, database) = fresh().await;
    let node = Node::new("n1");
    let mut served = Vec::new();
    for device in [("n1:a", [1; 16]), ("n1:b", [2; 16]), ("n1:c", [3; 16])] {
        served.push(attach(&database, outside.path(), &node, device).await);
    }
    let mut session = database.session();
    run(&mut session, "SET default_device = 'n1:a'").await;
    fill(&mut session).await;
    for (sql, _) in STATEMENTS {
        run(&mut session, "SET split = host").await;
        let expected = sorted(&mut session, sql).await;
        run(&mut session, "RESET split; SET compute_on = 'n1:b, n1:c'").await;
        assert_eq!(sorted(&mut session, sql).await, expected, "{sql}");
        run(&mut session, "SET split = h0").await;
        let plan = analyzed(&mut session, sql).await;
        let said = "FragmentExec: device=n1:b (pages of n1:a), n1:c (pages of n1:a)";
        assert!(plan.contains(said) && !plan.contains("ran on the host"), "{plan}");
        run(&mut session, "RESET compute_on").await;
    }
    drop(served);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_stay_where_the_statement_says() {
    let outside = tempfile::tempdir().unwrap();
    let (_directory, database, _served, mut session) = on_a_node(outside.path()).await;
    run(&mut session, "SET default_device = 'n1:a'").await;
    fill(&mut session).await;
    let devices = async |session: &mut Session, table: &str| {
        let of = format!("FROM cleave.tablets WHERE table_name = '{table}'");
        rows(session, &format!("SELECT DISTINCT device {of} ORDER BY device")).await
    };
    let even = "SELECT id, note FROM many WHERE id % 2 = 0";
    let expected = row(&mut session, &format!("SELECT count(*), sum(id) FROM ({even}) e")).await;
    // On the device that makes them, though their pages lie on another one.
    let hints = "/*+ compute_on(n1:b) output_on(local) */";
    run(&mut session, &format!("CREATE TABLE made AS {hints} {even}")).await;
    assert_eq!(devices(&mut session, "made").await, ["n1:b"]);
    assert_eq!(row(&mut session, "SELECT count(*), sum(id) FROM made").await, expected);
    // Where it names a device, by way of the host if need be.
    run(&mut session, &format!("CREATE TABLE named AS /*+ output_on(n1:b) */ {even}")).await;
    assert_eq!(devices(&mut session, "named").await, ["n1:b"]);
    assert_eq!(row(&mut session, "SELECT count(*), sum(id) FROM named").await, expected);
    // The table says itself where it lies.
    let placed = "CREATE TABLE placed WITH (devices = 'n1:a') AS";
    run(&mut session, &format!("{placed} /*+ output_on(n1:b) */ {even}")).await;
    assert_eq!(devices(&mut session, "placed").await, ["n1:a"]);

    let odd = "INTO made SELECT id, note FROM many WHERE id % 2 = 1";
    let local = refused(&mut session, &format!("INSERT /*+ output_on(local) */ {odd}")).await;
    assert_eq!(local.sqlstate(), "0A000", "made on n1:a: {local}");
    let named = refused(&mut session, &format!("INSERT /*+ output_on(n1:a) */ {odd}")).await;
    assert!(named.sqlstate() == "0A000" && named.to_string().contains("n1:b"), "{named}");
    let plan =
        rows(&mut session, &format!("EXPLAIN VERBOSE INSERT {hints} {odd}")).await.join("\n");
    assert!(plan.contains("Insert into made by a fragment"), "{plan}");
    assert!(plan.contains("FragmentExec: device=n1:b (pages of n1:a)"), "{plan}");
    run(&mut session, &format!("INSERT {hints} {odd}")).await;
    run(&mut session, &format!("INSERT /*+ output_on(n1:b) */ {odd}")).await;
    run(&mut session, &format!("BEGIN; INSERT {hints} {odd}; COMMIT")).await;
    assert_eq!(row(&mut session, "SELECT count(*) FROM made").await, "120000");

    for sql in [
        "SELECT /*+ output_on(local) */ count(*) FROM many",
        "INSERT /*+ output_on(local) */ INTO made VALUES (1, 'a')",
        "CREATE TABLE made_here AS SELECT /*+ output_on(local) */ s FROM generate_series(1, 9) s",
    ] {
        let error = refused(&mut session, sql).await;
        assert_eq!(error.sqlstate(), "0A000", "{sql}: {error}");
    }
    let error =
        refused(&mut session, &format!("CREATE TABLE x AS /*+ output_on(y) */ {even}")).await;
    assert_eq!(error.sqlstate(), "42704", "{error}");
    // As a setting it is about statements that keep rows.
    run(&mut session, "SET output_on = 'local'").await;
    assert_eq!(row(&mut session, "SELECT count(*) FROM many").await, "60000");
    run(&mut session, "INSERT INTO made VALUES (1, 'a')").await;
    assert_no_leak(&database);
}
