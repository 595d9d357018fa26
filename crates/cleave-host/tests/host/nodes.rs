//! Tests of storage nodes: devices of one process help each other, with the same rows, and the database shows them.

use std::path::Path;
use std::sync::Arc;

use cleave_device::{Node, Runtime, RuntimeOptions};
use cleave_fragment::link::DeviceService;
use cleave_host::{Database, Session};
use cleave_media::Memory;

use crate::devices::{Served, TOKEN, anywhere, remote, token_file};
use crate::stealing::{STATEMENTS, fill};
use crate::support::{assert_no_leak, fresh, rows, run, runtime_options, sorted};

/// A database with two devices of a node, of one core each.
async fn on_a_node(outside: &Path) -> (tempfile::TempDir, Arc<Database>, [Served; 2], Session) {
    let (directory, database) = fresh().await;
    let node = Node::new("n1");
    let served = async |name: &str, identity: [u8; 16]| {
        let node = Arc::clone(&node);
        let device = move || {
            let options = RuntimeOptions { cores: 1, ..runtime_options(identity) };
            let runtime = Runtime::in_node(Arc::new(Memory::new()), options, &node);
            runtime.unwrap() as Arc<dyn DeviceService>
        };
        let served = Served::of(device, anywhere()).await;
        let device = remote(served.address, token_file(outside, TOKEN));
        database.add_device(name, device).await.unwrap();
        served
    };
    let served = [served("n1:a", [1; 16]).await, served("n1:b", [2; 16]).await];
    let session = database.session();
    (directory, database, served, session)
}

/// Whether `sql` says that another device of the node took part.
async fn is_helped(session: &mut Session, sql: &str) -> bool {
    let plan = rows(session, &format!("EXPLAIN ANALYZE {sql}")).await.join("\n");
    plan.contains("  other engines: ")
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
