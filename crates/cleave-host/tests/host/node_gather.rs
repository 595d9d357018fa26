//! Tests of partial results that an engine of each storage node merges: the host makes the same rows of fewer.

use std::path::Path;
use std::sync::Arc;

use cleave_device::{Node, Runtime, RuntimeOptions};
use cleave_fragment::link::DeviceService;
use cleave_host::{Database, Session};
use cleave_media::Memory;

use crate::devices::{Served, TOKEN, anywhere, remote, token_file};
use crate::exchanges::{Refuses, Refusing};
use crate::nodes::analyzed;
use crate::support::{assert_no_leak, fresh, rows, run, runtime_options, sorted};

/// The devices of two nodes.
const DEVICES: [(&str, &str); 3] = [("n1", "n1:a"), ("n1", "n1:b"), ("n2", "n2:c")];

/// A database with a table over three devices of two nodes.
struct Nodes {
    _directory: tempfile::TempDir,
    _outside: tempfile::TempDir,
    served: Vec<Served>,
    database: Arc<Database>,
    session: Session,
}

impl Nodes {
    /// All devices refuse that, or none.
    async fn new(refuses: Refuses) -> Self {
        let (directory, database) = fresh().await;
        let outside = tempfile::tempdir().unwrap();
        let nodes = [Node::new("n1"), Node::new("n2")];
        let mut served = Vec::new();
        for (number, (node, name)) in (1..).zip(DEVICES) {
            let node = if node == "n1" { &nodes[0] } else { &nodes[1] };
            let engine = (name, number, refuses);
            served.push(attach(&database, outside.path(), node, engine).await);
        }
        let session = database.session();
        let mut nodes =
            Self { _directory: directory, _outside: outside, served, database, session };
        for sql in [
            "CREATE TABLE t (id int PRIMARY KEY, k int, w text, v int)
             WITH (devices = ('n1:a', 'n1:b', 'n2:c'), tablets = 6, tablet_by = hash (id))",
            "INSERT INTO t SELECT s, CASE WHEN s % 7 = 0 THEN NULL WHEN s % 3 = 0 THEN 5 ELSE s END,
             'w' || s % 50, s FROM generate_series(1, 6000) s",
            "SET split = h0; SET threads = 2; SET stealing = off; SET gather = always",
        ] {
            nodes.run(sql).await;
        }
        nodes
    }

    async fn run(&mut self, sql: &str) {
        run(&mut self.session, sql).await;
    }

    async fn assert_same(&mut self, sql: &str) {
        self.run("SET split = host").await;
        let expected = sorted(&mut self.session, sql).await;
        self.run("SET split = h0").await;
        assert_eq!(sorted(&mut self.session, sql).await, expected, "{sql}");
    }
}

async fn attach(
    database: &Arc<Database>,
    outside: &Path,
    node: &Arc<Node>,
    (name, number, refuses): (&str, u8, Refuses),
) -> Served {
    let node = Arc::clone(node);
    let device = move || {
        let options = RuntimeOptions { cores: 1, ..runtime_options([number; 16]) };
        let runtime = Runtime::in_node(Arc::new(Memory::new()), options, &node);
        Arc::new(Refusing(runtime.unwrap(), refuses)) as Arc<dyn DeviceService>
    };
    let served = Served::of(device, anywhere()).await;
    let device = remote(served.address, token_file(outside, TOKEN));
    database.add_device(name, device).await.unwrap();
    served
}

/// Each of them is merged on the nodes.
const GATHERED: [&str; 6] = [
    "SELECT w, count(*), sum(v), avg(v) FROM t GROUP BY w",
    "SELECT k, count(*), min(w), max(v) FROM t WHERE v > 100 GROUP BY k HAVING count(*) > 0",
    "SELECT count(*), sum(v), min(k) FROM t",
    "SELECT DISTINCT w FROM t",
    "SELECT id, w FROM t ORDER BY v DESC LIMIT 7",
    "SELECT w, count(*) AS c FROM t GROUP BY w ORDER BY c DESC, w LIMIT 3",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_are_the_same_with_a_gather_on_each_node() {
    let mut nodes = Nodes::new(Refuses::Nothing).await;
    for sql in GATHERED {
        nodes.assert_same(sql).await;
        let plan = analyzed(&mut nodes.session, sql).await;
        assert!(plan.contains("GatherExec: node=n1 at n1:"), "{plan}");
        assert!(!plan.contains("ran on the host"), "{plan}");
    }
    // Rows that nothing above merges are not.
    let plan = analyzed(&mut nodes.session, "SELECT id FROM t WHERE v < 9").await;
    assert!(!plan.contains("GatherExec"), "{plan}");
    nodes
        .run("BEGIN; INSERT INTO t SELECT s, s % 9, 'own', s FROM generate_series(7001, 7100) s")
        .await;
    nodes.run("DELETE FROM t WHERE id % 3 = 0").await;
    nodes.assert_same(GATHERED[0]).await;
    nodes.run("ROLLBACK").await;
    nodes.assert_same(GATHERED[0]).await;
    assert_no_leak(&nodes.database);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn explain_shows_devices_nodes_and_host() {
    let mut nodes = Nodes::new(Refuses::Nothing).await;
    let plan = analyzed(&mut nodes.session, GATHERED[0]).await;
    let place = |what: &str| {
        let found = plan.lines().position(|line| line.contains(what));
        found.unwrap_or_else(|| panic!("no {what} in {plan}"))
    };
    let tiers = [
        place("AggregateExec: mode=Final"),
        place("GatherExec: node=n1 at n1:"),
        place("[node=n1, n2] AggregateExec: mode=PartialReduce"),
        place("[node=n1, n2] PeerRowsExec: rows=0"),
        place("[n1:a, n1:b, n2:c] AggregateExec: mode=Partial,"),
    ];
    assert!(tiers.is_sorted(), "{plan}");
    // The groups of two nodes, not of three devices.
    let gathered = plan.lines().find(|line| line.contains("GatherExec: ")).unwrap();
    assert!(gathered.contains("rows=100"), "{plan}");
    nodes.run("SET gather = off").await;
    let sql = format!("EXPLAIN VERBOSE {}", GATHERED[0]);
    let plan = rows(&mut nodes.session, &sql).await.join("\n");
    assert!(!plan.contains("GatherExec"), "{plan}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_host_merges_where_an_engine_does_not() {
    for (refuses, why) in [
        (Refuses::Outputs, "rows go to the host alone"),
        (Refuses::Memory, "no memory for rows of others"),
    ] {
        let mut nodes = Nodes::new(refuses).await;
        for sql in [GATHERED[0], GATHERED[2], GATHERED[4]] {
            nodes.assert_same(sql).await;
            let plan = analyzed(&mut nodes.session, sql).await;
            assert!(plan.contains("ran on the host: ") && plan.contains(why), "{why}: {plan}");
        }
        assert_no_leak(&nodes.database);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_engine_fails_the_statement() {
    let mut nodes = Nodes::new(Refuses::Nothing).await;
    assert_eq!(rows(&mut nodes.session, GATHERED[0]).await.len(), 50);
    nodes.served.remove(1).stop().await;
    let error = nodes.session.run(GATHERED[0]).await.unwrap_err();
    assert_eq!(error.sqlstate(), "58030", "{error}");
}
