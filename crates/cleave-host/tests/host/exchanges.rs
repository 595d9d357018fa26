//! Tests of joins whose rows go from device to device: they are the rows that the host's join makes, whatever the
//! kind of join, the keys and the devices' behaviour.

use std::path::Path;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use cleave_device::{Node, Runtime};
use cleave_fragment::command::{Command, DeviceError, DeviceErrorCause, Execute, Outputs, Reply};
use cleave_fragment::link::{DeviceService, SlotSender};
use cleave_host::{Database, Session};
use cleave_media::Memory;

use crate::devices::{Served, TOKEN, anywhere, break_at, remote, token_file};
use crate::nodes::{analyzed, attach};
use crate::support::{
    assert_no_leak, assert_no_leak_soon, fresh, row, rows, run, runtime_options, sorted,
};

const NAMES: [&str; 3] = ["a", "b", "c"];

/// A database with three devices.
pub(crate) struct Three {
    pub(crate) _directory: tempfile::TempDir,
    pub(crate) _outside: tempfile::TempDir,
    pub(crate) served: Vec<Served>,
    pub(crate) database: Arc<Database>,
    pub(crate) session: Session,
}

/// What the third device does not do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refuses {
    Nothing,
    /// It lets no other device in.
    Peers,
    /// It sends rows to the host alone.
    Outputs,
    /// Its runs over rows of others break after their first slot.
    ToGoOn,
    /// It has no memory for rows of other devices.
    Memory,
}

/// A device that does not do something.
#[derive(Debug)]
pub(crate) struct Refusing(pub(crate) Arc<dyn DeviceService>, pub(crate) Refuses);

#[async_trait]
impl DeviceService for Refusing {
    async fn call(&self, command: Command) -> Result<Reply, DeviceError> {
        self.0.call(command).await
    }

    async fn execute(&self, request: Execute, slots: SlotSender) -> Result<SchemaRef, DeviceError> {
        if self.1 == Refuses::Outputs && request.outputs != Outputs::One {
            let message = "rows go to the host alone".to_owned();
            return Err(DeviceError::new(DeviceErrorCause::Refused, message));
        }
        if self.1 == Refuses::Memory && !request.peer_rows.is_empty() {
            let message = "no memory for rows of others".to_owned();
            return Err(DeviceError::new(DeviceErrorCause::OutOfMemory, message));
        }
        if self.1 != Refuses::ToGoOn || request.peer_rows.is_empty() {
            return self.0.execute(request, slots).await;
        }
        break_at(2, self.0.as_ref(), request, slots).await
    }

    fn steer(&self, command: Command) {
        self.0.steer(command);
    }

    fn peer(self: Arc<Self>, shown: &[u8]) -> Option<Arc<dyn DeviceService>> {
        Arc::clone(&self.0).peer(shown).filter(|_| self.1 != Refuses::Peers)
    }
}

impl Three {
    pub(crate) async fn new(refuses: Refuses) -> Self {
        let (directory, database) = fresh().await;
        let outside = tempfile::tempdir().unwrap();
        let mut served = Vec::new();
        for (number, name) in (1..).zip(NAMES) {
            let refuses = if number == 3 { refuses } else { Refuses::Nothing };
            served.push(attach_refusing(&database, outside.path(), (name, number), refuses).await);
        }
        let session = database.session();
        let mut three =
            Self { _directory: directory, _outside: outside, served, database, session };
        three.fill().await;
        three.run("SET split = h0; SET threads = 2; SET stealing = off").await;
        three
    }

    pub(crate) async fn run(&mut self, sql: &str) {
        run(&mut self.session, sql).await;
    }

    /// Keys of one in seven rows are NULL, and one key has many rows.
    pub(crate) async fn fill(&mut self) {
        let over = |devices: &str| {
            format!("WITH (devices = ({devices}), tablets = 4, tablet_by = hash (id))")
        };
        for sql in [
            format!("CREATE TABLE l (id int PRIMARY KEY, k int, w text, v int) {}", over("a, b")),
            format!("CREATE TABLE r (id int PRIMARY KEY, k int, w text, v int) {}", over("b, c")),
            format!("CREATE TABLE nobody (id int PRIMARY KEY, k int, v int) {}", over("a, c")),
            "INSERT INTO l SELECT s, CASE WHEN s % 7 = 0 THEN NULL WHEN s % 3 = 0 THEN 5 ELSE s END, \
             'w' || s % 100, s FROM generate_series(1, 4000) s"
                .to_owned(),
            "INSERT INTO r SELECT s, CASE WHEN s % 7 = 1 THEN NULL WHEN s % 200 = 0 THEN 5 \
             ELSE s * 2 END, 'w' || s % 150, s FROM generate_series(1, 3000) s"
                .to_owned(),
        ] {
            self.run(&sql).await;
        }
    }

    async fn assert_same(&mut self, sql: &str) {
        self.run("SET exchange = off").await;
        let expected = sorted(&mut self.session, sql).await;
        self.run("SET exchange = always").await;
        assert_eq!(sorted(&mut self.session, sql).await, expected, "{sql}");
    }
}

async fn attach_refusing(
    database: &Arc<Database>,
    outside: &Path,
    (name, number): (&str, u8),
    refuses: Refuses,
) -> Served {
    let device = move || {
        let runtime = Runtime::new(Arc::new(Memory::new()), runtime_options([number; 16]));
        Arc::new(Refusing(runtime.unwrap(), refuses)) as Arc<dyn DeviceService>
    };
    let served = Served::of(device, anywhere()).await;
    let device = remote(served.address, token_file(outside, TOKEN));
    database.add_device(name, device).await.unwrap();
    served
}

/// Each of them is made by exchange; of the last two, one side has no rows.
const JOINS: [&str; 14] = [
    "SELECT l.id, r.id FROM l JOIN r ON l.k = r.k",
    "SELECT l.id, r.id FROM l LEFT JOIN r ON l.k = r.k",
    "SELECT l.id, r.id FROM l RIGHT JOIN r ON l.k = r.k",
    "SELECT l.id, r.id FROM l FULL JOIN r ON l.k = r.k",
    "SELECT l.id FROM l WHERE EXISTS (SELECT 1 FROM r WHERE r.k = l.k)",
    "SELECT l.id FROM l WHERE NOT EXISTS (SELECT 1 FROM r WHERE r.k = l.k)",
    "SELECT r.id FROM r WHERE EXISTS (SELECT 1 FROM l WHERE r.k = l.k)",
    "SELECT r.id FROM r WHERE NOT EXISTS (SELECT 1 FROM l WHERE r.k = l.k)",
    "SELECT l.w, r.id, l.v + r.v FROM l JOIN r ON l.w = r.w AND l.k = r.k WHERE l.v < 3000",
    "SELECT l.id, r.id FROM l JOIN r ON l.k = r.k AND l.v < r.v",
    "SELECT count(*), sum(l.v), max(r.w) FROM l JOIN r ON l.k = r.k",
    "SELECT l.w, count(*), sum(r.v) FROM l JOIN r ON l.k = r.k GROUP BY l.w",
    "SELECT l.id, n.id FROM l LEFT JOIN nobody n ON l.k = n.k WHERE l.id < 500",
    "SELECT count(*) FROM l JOIN nobody n ON l.k = n.k",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_are_the_same_by_exchange_and_by_the_host() {
    let mut three = Three::new(Refuses::Nothing).await;
    for sql in JOINS {
        three.assert_same(sql).await;
        if sql.contains("nobody") {
            continue;
        }
        let plan = analyzed(&mut three.session, sql).await;
        assert!(plan.contains("ExchangeExec: devices="), "{plan}");
        assert!(!plan.contains("ran on the host"), "{plan}");
    }
    assert_no_leak(&three.database);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_of_the_own_transaction_are_exchanged_too() {
    let mut three = Three::new(Refuses::Nothing).await;
    three
        .run(
            "BEGIN;
             INSERT INTO l SELECT s, s, 'own', s FROM generate_series(5001, 5100) s;
             INSERT INTO r SELECT s, s, 'own', s FROM generate_series(5051, 5200) s;
             DELETE FROM r WHERE id % 5 = 0",
        )
        .await;
    for sql in JOINS {
        three.assert_same(sql).await;
    }
    let sql = "SELECT count(*) FROM l JOIN r ON l.k = r.k WHERE l.w = 'own' AND r.w = 'own'";
    assert_eq!(row(&mut three.session, sql).await, "40");
    three.run("ROLLBACK").await;
    three.assert_same(JOINS[0]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn exchanges_that_begin_at_once_have_their_rows() {
    let mut three = Three::new(Refuses::Nothing).await;
    // On all devices, and on two of them.
    let joins = [JOINS[0], "SELECT a.id, b.v FROM r a JOIN r b ON a.k = b.k", JOINS[3], JOINS[10]];
    let mut expected = Vec::new();
    for sql in joins {
        expected.push(sorted(&mut three.session, sql).await);
    }
    let running = joins.map(|sql| {
        let mut session = three.database.session();
        async move {
            run(&mut session, "SET split = h0; SET threads = 2; SET exchange = always").await;
            sorted(&mut session, sql).await
        }
    });
    assert_eq!(futures::future::join_all(running).await, expected);
    assert_no_leak_soon(&three.database).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_are_the_same_where_the_cost_chooses() {
    let mut three = Three::new(Refuses::Nothing).await;
    for sql in [JOINS[0], JOINS[3], JOINS[11]] {
        three.run("SET split = host").await;
        let expected = sorted(&mut three.session, sql).await;
        three.run("SET split = auto").await;
        for exchange in ["on", "always"] {
            three.run(&format!("SET exchange = {exchange}")).await;
            assert_eq!(sorted(&mut three.session, sql).await, expected, "{exchange}: {sql}");
        }
    }
    // So few rows are not worth it.
    three.run("SET exchange = on").await;
    let plan = rows(&mut three.session, &format!("EXPLAIN VERBOSE {}", JOINS[3])).await.join("\n");
    assert!(!plan.contains("ExchangeExec"), "{plan}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn explain_shows_who_sends_and_who_joins() {
    let mut three = Three::new(Refuses::Nothing).await;
    three.run("SET exchange = always").await;
    let sql = "SELECT l.w, count(*) FROM l JOIN r ON l.k = r.k GROUP BY l.w";
    let plan = rows(&mut three.session, &format!("EXPLAIN VERBOSE {sql}")).await.join("\n");
    let place = |what: &str| {
        let found = plan.lines().position(|line| line.contains(what));
        found.unwrap_or_else(|| panic!("no {what} in {plan}"))
    };
    let exchange = place("ExchangeExec: devices=");
    let join = place("HashJoinExec: ");
    let sent = place("PeerRowsExec: ");
    assert!(exchange < join && join < sent && sent < place("FragmentExec: device="), "{plan}");
    assert!(plan.contains("by hash of (k)"), "{plan}");
    assert_eq!(plan.matches("PeerRowsExec: rows=").count(), 2, "{plan}");
    let plan = analyzed(&mut three.session, sql).await;
    assert!(plan.contains("to other devices, ") && plan.contains("  of other devices: "), "{plan}");
    // A statement may ask for it by itself.
    three.run("SET exchange = off").await;
    let plan = rows(&mut three.session, &format!("EXPLAIN VERBOSE {sql}")).await.join("\n");
    assert!(!plan.contains("ExchangeExec"), "{plan}");
    let hinted = sql.replacen("SELECT", "SELECT /*+ exchange(always) */", 1);
    let plan = rows(&mut three.session, &format!("EXPLAIN VERBOSE {hinted}")).await.join("\n");
    assert!(plan.contains("ExchangeExec"), "{plan}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_host_joins_where_a_device_does_not_take_part() {
    for (refuses, why) in
        [(Refuses::Peers, "another device, \"c\""), (Refuses::Outputs, "rows go to the host alone")]
    {
        let mut three = Three::new(refuses).await;
        for sql in [JOINS[0], JOINS[3], JOINS[10], JOINS[11]] {
            three.assert_same(sql).await;
            let plan = analyzed(&mut three.session, sql).await;
            assert!(plan.contains("ran on the host: ") && plan.contains(why), "{why}: {plan}");
        }
        assert_no_leak(&three.database);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_join_that_breaks_after_its_first_rows_gives_each_row_once() {
    let mut three = Three::new(Refuses::ToGoOn).await;
    three.run("SET slot_bytes = '1kB'").await;
    for sql in [JOINS[0], JOINS[1]] {
        three.assert_same(sql).await;
        let plan = analyzed(&mut three.session, sql).await;
        assert!(plan.contains("it broke, after "), "{plan}");
        assert!(plan.contains("rows, which are left out"), "{plan}");
    }
    // Of groups none is given out before all have come.
    three.assert_same(JOINS[11]).await;
    let plan = analyzed(&mut three.session, JOINS[11]).await;
    assert!(!plan.contains("which are left out"), "{plan}");
    assert_no_leak(&three.database);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_build_side_larger_than_memory_is_spilled_by_its_consumers() {
    let mut three = Three::new(Refuses::Nothing).await;
    three
        .run(
            "CREATE TABLE wide (id int PRIMARY KEY, k int, w text)
             WITH (devices = (a, b), tablets = 4, tablet_by = hash (id));
             INSERT INTO wide SELECT s, s % 10000, repeat('x', 150) || s
             FROM generate_series(1, 20000) s",
        )
        .await;
    let join =
        "SELECT count(*), min(one.w), max(two.w) FROM wide one JOIN wide two ON one.k = two.k";
    three.assert_same(join).await;
    three.run("SET device_memory = '1MB'; SET slot_count = 2; SET slot_bytes = '16kB'").await;
    three.assert_same(join).await;
    let plan = analyzed(&mut three.session, join).await;
    assert!(plan.contains(", spilled=") && !plan.contains("ran on the host"), "{plan}");
    // Without space to spill, the host joins.
    three.run("SET device_spill = 0").await;
    three.assert_same(join).await;
    let plan = analyzed(&mut three.session, join).await;
    assert!(!plan.contains(", spilled=") && plan.contains("ran on the host"), "{plan}");
    assert_no_leak_soon(&three.database).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_device_fails_the_statement_and_no_other() {
    let mut three = Three::new(Refuses::Nothing).await;
    three.run("SET exchange = always").await;
    let expected = row(&mut three.session, JOINS[10]).await;
    assert_eq!(row(&mut three.session, JOINS[10]).await, expected);
    three.served.pop().unwrap().stop().await;
    let error = three.session.run(JOINS[10]).await.unwrap_err();
    assert_eq!(error.sqlstate(), "58030", "{error}");
    let alone = "SELECT count(*) FROM l";
    assert_eq!(row(&mut three.session, alone).await, "4000");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn runs_end_with_a_statement_that_is_not_read_to_its_end() {
    let mut three = Three::new(Refuses::Nothing).await;
    three.run("SET exchange = always").await;
    let cursor = format!("BEGIN; DECLARE c CURSOR FOR {}", JOINS[1]);
    for _ in 0..3 {
        three.run(&cursor).await;
        assert_eq!(rows(&mut three.session, "FETCH 3 FROM c").await.len(), 3);
        three.run("ROLLBACK").await;
    }
    three.assert_same(JOINS[1]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn devices_of_one_node_exchange_rows_without_a_link() {
    let (directory, database) = fresh().await;
    let outside = tempfile::tempdir().unwrap();
    let node = Node::new("n1");
    let mut served = Vec::new();
    for (number, name) in (1..).zip(NAMES) {
        served.push(attach(&database, outside.path(), &node, (name, [number; 16])).await);
    }
    let session = database.session();
    let mut three = Three { _directory: directory, _outside: outside, served, database, session };
    three.fill().await;
    three.run("SET split = h0; SET threads = 2; SET stealing = off").await;
    for sql in JOINS {
        three.assert_same(sql).await;
    }
    let plan = analyzed(&mut three.session, JOINS[0]).await;
    assert!(plan.contains("ExchangeExec") && !plan.contains("ran on the host"), "{plan}");
    // Nobody can be asked for rows of a mirror.
    three.run("CREATE DEVICE m WITH (mirrors = 'b, c')").await;
    three.run("CREATE TABLE twice (id int PRIMARY KEY, k int) WITH (devices = (m))").await;
    three.run("INSERT INTO twice SELECT s, s FROM generate_series(1, 3000) s").await;
    let sql = "SELECT l.id, t.id FROM l JOIN twice t ON l.k = t.k";
    three.assert_same(sql).await;
    let plan = analyzed(&mut three.session, sql).await;
    assert!(!plan.contains("ExchangeExec"), "{plan}");
}
