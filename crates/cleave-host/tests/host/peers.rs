//! Tests of devices that compute over pages of another node: they read them over a link of their own, by a grant, with
//! the same rows, and no page by way of the host. Where that fails, the host runs the fragment.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use cleave_device::{Node, Runtime, RuntimeOptions};
use cleave_fragment::command::{
    Command, DeviceError, DeviceErrorCause, Execute, ReadPayload, Reply, Request,
};
use cleave_fragment::link::{DeviceService, SlotSender};
use cleave_host::{Database, Session};
use cleave_media::Memory;

use crate::devices::{Served, TOKEN, anywhere, remote, token_file};
use crate::nodes::{analyzed, attach};
use crate::stealing::{STATEMENTS, fill};
use crate::support::{assert_no_leak, fresh, row, rows, run, runtime_options, sorted};

/// A database with two devices, each a node of its own.
struct TwoNodes {
    _directory: tempfile::TempDir,
    _outside: tempfile::TempDir,
    _served: [Served; 2],
    database: Arc<Database>,
    session: Session,
    grants: Arc<Grants>,
}

/// How a home of pages treats other devices. Its host is served well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ToPeers {
    Honest,
    LetsNobodyIn,
    SpoilsPages,
}

/// Grants that were given and that have ended, on one device.
#[derive(Debug, Default)]
struct Grants {
    given: AtomicU64,
    ended: AtomicU64,
    /// Of how many the device has not heard that they end, while it does not listen.
    unheard: AtomicU64,
    is_deaf: AtomicBool,
}

impl Grants {
    fn given(&self) -> u64 {
        self.given.load(Ordering::Relaxed)
    }

    /// Waits until all have ended.
    async fn end(&self) {
        while self.ended.load(Ordering::Relaxed) < self.given() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

impl TwoNodes {
    async fn new(to_peers: ToPeers) -> Self {
        let (directory, database) = fresh().await;
        let outside = tempfile::tempdir().unwrap();
        let grants: Arc<Grants> = Arc::default();
        let served = [
            attach_home(&database, outside.path(), to_peers, Arc::clone(&grants)).await,
            attach(&database, outside.path(), &Node::new("n2"), ("n2:a", [2; 16])).await,
        ];
        let session = database.session();
        Self {
            _directory: directory,
            _outside: outside,
            _served: served,
            database,
            session,
            grants,
        }
    }

    /// The tables of [`STATEMENTS`], on the first device.
    async fn filled(to_peers: ToPeers) -> Self {
        let mut two = Self::new(to_peers).await;
        two.run("SET default_device = 'n1:a'").await;
        fill(&mut two.session).await;
        two
    }

    async fn run(&mut self, sql: &str) {
        run(&mut self.session, sql).await;
    }

    /// Bytes that came over the host's link from the device.
    fn received(&self, device: &str) -> u64 {
        self.database.device_named(device).unwrap().traffic().received_bytes
    }
}

/// The device n1:a, which lies on the database's list of devices and treats others as `to_peers` says.
async fn attach_home(
    database: &Arc<Database>,
    outside: &Path,
    to_peers: ToPeers,
    grants: Arc<Grants>,
) -> Served {
    let device = move || {
        let options = RuntimeOptions { cores: 1, ..runtime_options([1; 16]) };
        let runtime = Runtime::in_node(Arc::new(Memory::new()), options, &Node::new("n1"));
        Arc::new(Home { device: runtime.unwrap(), to_peers, grants }) as Arc<dyn DeviceService>
    };
    let served = Served::of(device, anywhere()).await;
    let device = remote(served.address, token_file(outside, TOKEN));
    database.add_device("n1:a", device).await.unwrap();
    served
}

#[derive(Debug)]
struct Home {
    device: Arc<dyn DeviceService>,
    to_peers: ToPeers,
    grants: Arc<Grants>,
}

#[async_trait]
impl DeviceService for Home {
    async fn call(&self, command: Command) -> Result<Reply, DeviceError> {
        let count = match command.request {
            Request::Grant(_) => Some(&self.grants.given),
            Request::EndGrant { .. } => Some(&self.grants.ended),
            _ => None,
        };
        let ends = matches!(command.request, Request::EndGrant { .. });
        if ends && self.grants.is_deaf.load(Ordering::Relaxed) {
            self.grants.unheard.fetch_add(1, Ordering::Relaxed);
            // The host makes another connection then.
            return Err(DeviceError::new(DeviceErrorCause::NotClaimed, "it does not listen"));
        }
        let reply = self.device.call(command).await?;
        if let Some(count) = count {
            count.fetch_add(1, Ordering::Relaxed);
        }
        Ok(reply)
    }

    async fn execute(&self, request: Execute, slots: SlotSender) -> Result<SchemaRef, DeviceError> {
        self.device.execute(request, slots).await
    }

    fn steer(&self, command: Command) {
        self.device.steer(command);
    }

    fn peer(self: Arc<Self>, shown: &[u8]) -> Option<Arc<dyn DeviceService>> {
        let device = Arc::clone(&self.device).peer(shown)?;
        match self.to_peers {
            ToPeers::Honest => Some(device),
            ToPeers::LetsNobodyIn => None,
            ToPeers::SpoilsPages => Some(Arc::new(SpoilsPages(device))),
        }
    }
}

#[derive(Debug)]
struct SpoilsPages(Arc<dyn DeviceService>);

#[async_trait]
impl DeviceService for SpoilsPages {
    async fn call(&self, command: Command) -> Result<Reply, DeviceError> {
        let mut reply = self.0.call(command).await?;
        if let Reply::Read(payloads) = &mut reply
            && let Some(ReadPayload::Columns { chunks, .. }) = payloads.last_mut()
            && let Some(chunk) = chunks.iter_mut().flatten().last()
        {
            let spoilt: Vec<u8> = chunk.iter().map(|byte| byte ^ 1).collect();
            *chunk = spoilt.into();
        }
        Ok(reply)
    }

    async fn execute(&self, request: Execute, slots: SlotSender) -> Result<SchemaRef, DeviceError> {
        self.0.execute(request, slots).await
    }

    fn steer(&self, command: Command) {
        self.0.steer(command);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_are_the_same_whichever_node_computes() {
    let mut two = TwoNodes::filled(ToPeers::Honest).await;
    for (sql, _) in STATEMENTS {
        two.run("SET split = host; RESET compute_on").await;
        let expected = sorted(&mut two.session, sql).await;
        two.run("RESET split").await;
        for named in ["n2:a", "n1:a", "n1:a, n2:a"] {
            two.run(&format!("SET compute_on = '{named}'")).await;
            two.database.buffer_pool().clear();
            assert_eq!(sorted(&mut two.session, sql).await, expected, "{named}: {sql}");
        }
    }
    assert!(two.grants.given() > 0);
    two.grants.end().await;
    assert_no_leak(&two.database);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_page_passes_the_host() {
    let mut two = TwoNodes::filled(ToPeers::Honest).await;
    let (sql, _) = STATEMENTS[1];
    let expected = row(&mut two.session, sql).await;
    two.run("SET compute_on = 'n2:a'").await;
    assert_eq!(row(&mut two.session, sql).await, expected);
    two.database.buffer_pool().clear();
    let before = two.received("n1:a") + two.received("n2:a");
    let plan = analyzed(&mut two.session, sql).await;
    let crossed = two.received("n1:a") + two.received("n2:a") - before;
    for said in
        ["FragmentExec: device=n2:a (pages of n1:a)", "  bytes at other media: ", ", 0 misses, "]
    {
        assert!(plan.contains(said), "{said}: {plan}");
    }
    assert!(!plan.contains("ran on the host"), "{plan}");
    // The notes have three million bytes.
    assert!(crossed < 50_000, "{crossed} bytes");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_device_joins_tables_of_two_nodes() {
    let mut two = TwoNodes::new(ToPeers::Honest).await;
    two.run(
        "CREATE TABLE one (id int PRIMARY KEY, v int) WITH (devices = 'n1:a');
         CREATE TABLE other (id int PRIMARY KEY, w int) WITH (devices = 'n2:a');
         INSERT INTO one SELECT s, s % 10 FROM generate_series(1, 20000) s;
         INSERT INTO other SELECT s, s % 3 FROM generate_series(1, 20000) s",
    )
    .await;
    let sql = "SELECT sum(v * w), count(*) FROM one JOIN other ON one.id = other.id";
    let expected = row(&mut two.session, sql).await;
    for (named, home) in [("n1:a", "n2:a"), ("n2:a", "n1:a")] {
        two.run(&format!("SET compute_on = '{named}'")).await;
        assert_eq!(row(&mut two.session, sql).await, expected, "{named}");
        let plan = analyzed(&mut two.session, sql).await;
        let said = format!("FragmentExec: device={named} (pages of {home})");
        assert!(plan.contains(&said) && !plan.contains("ran on the host"), "{plan}");
    }
}

/// Chunks that versions of a page share, pages of an index, and long values are granted too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_that_a_fragment_reads_is_granted() {
    let mut two = TwoNodes::new(ToPeers::Honest).await;
    two.run(
        "SET default_device = 'n1:a';
         CREATE TABLE t (id int PRIMARY KEY, k int, v int, note text);
         INSERT INTO t SELECT s, s % 5000, s, 'note ' || s FROM generate_series(1, 60000) s;
         CREATE INDEX t_k ON t (k);
         UPDATE t SET v = v + 1;
         DELETE FROM t WHERE id % 1000 = 7;
         CREATE TABLE long (id int PRIMARY KEY, text text);
         INSERT INTO long SELECT s, repeat('long ' || s, 20000) FROM generate_series(1, 20) s",
    )
    .await;
    for sql in [
        "SELECT count(*), sum(v), min(note) FROM t WHERE v % 3 = 0",
        "SELECT id, v FROM t WHERE k = 77 ORDER BY id",
        "SELECT count(*), sum(length(text)), max(text) FROM long",
    ] {
        two.run("RESET compute_on").await;
        let expected = rows(&mut two.session, sql).await;
        two.run("SET compute_on = 'n2:a'").await;
        assert_eq!(rows(&mut two.session, sql).await, expected, "{sql}");
        let plan = analyzed(&mut two.session, sql).await;
        assert!(plan.contains("device=n2:a (pages of n1:a)"), "{plan}");
        assert!(!plan.contains("ran on the host"), "{plan}");
    }
    two.grants.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_host_answers_where_a_home_fails_the_other_device() {
    for (to_peers, why) in [
        (ToPeers::LetsNobodyIn, "does not know the grant"),
        (ToPeers::SpoilsPages, "it sent what is wrong"),
    ] {
        let mut two = TwoNodes::filled(to_peers).await;
        let (sql, _) = STATEMENTS[1];
        let expected = row(&mut two.session, sql).await;
        two.run("SET compute_on = 'n2:a'").await;
        two.database.buffer_pool().clear();
        assert_eq!(row(&mut two.session, sql).await, expected, "{to_peers:?}");
        let plan = analyzed(&mut two.session, sql).await;
        for said in ["ran on the host: ", why, "another device, \"n1:a\""] {
            assert!(plan.contains(said), "{said}: {plan}");
        }
        two.grants.end().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn grants_end_with_a_statement_that_is_not_read_to_its_end() {
    let mut two = TwoNodes::filled(ToPeers::Honest).await;
    two.run("SET compute_on = 'n2:a'").await;
    two.run("BEGIN; DECLARE c CURSOR FOR SELECT id, note FROM many WHERE id % 3 = 0").await;
    assert_eq!(rows(&mut two.session, "FETCH 3 FROM c").await.len(), 3);
    assert!(two.grants.given() > 0);
    two.run("ROLLBACK").await;
    two.grants.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grant_whose_end_was_not_heard_ends_with_the_next_connection() {
    let mut two = TwoNodes::filled(ToPeers::Honest).await;
    two.run("SET compute_on = 'n2:a'").await;
    two.grants.is_deaf.store(true, Ordering::Relaxed);
    let (sql, _) = STATEMENTS[1];
    let expected = row(&mut two.session, sql).await;
    while two.grants.unheard.load(Ordering::Relaxed) == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    two.grants.is_deaf.store(false, Ordering::Relaxed);
    // Its answer has cost the connection, which a statement makes anew.
    while two.grants.ended.load(Ordering::Relaxed) < two.grants.given() {
        assert_eq!(row(&mut two.session, sql).await, expected);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_of_another_nodes_pages_stay_where_they_are_made() {
    let mut two = TwoNodes::filled(ToPeers::Honest).await;
    let even = "SELECT id, note FROM many WHERE id % 2 = 0";
    let hints = "/*+ compute_on(n2:a) output_on(local) */";
    two.run(&format!("CREATE TABLE made AS {hints} {even}")).await;
    let devices = "SELECT DISTINCT device FROM cleave.tablets WHERE table_name = 'made'";
    assert_eq!(rows(&mut two.session, devices).await, ["n2:a"]);
    let of_query = format!("SELECT count(*), sum(id) FROM ({even}) e");
    let expected = row(&mut two.session, &of_query).await;
    assert_eq!(row(&mut two.session, "SELECT count(*), sum(id) FROM made").await, expected);
    two.grants.end().await;
    assert_no_leak(&two.database);
}
