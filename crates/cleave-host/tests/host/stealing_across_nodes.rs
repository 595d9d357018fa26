//! Tests of devices of other nodes that take morsels of a run, with the host as the broker: the rows are the same
//! whoever makes them, and when either device is lost or lets the other one down.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use cleave_device::{Node, Runtime, RuntimeOptions};
use cleave_fragment::command::{Command, DeviceError, Execute, Reply};
use cleave_fragment::link::{DeviceService, SlotSender};
use cleave_host::{Database, OpenOptions, Session};
use cleave_media::Memory;
use tokio::sync::Notify;

use crate::devices::{Served, TOKEN, anywhere, remote, token_file};
use crate::nodes::analyzed;
use crate::stealing::{SELF_JOIN, STATEMENTS, expected_of_self_join, fill};
use crate::support::{assert_no_leak, embedded, fresh, row, run, runtime_options, sorted};

/// What EXPLAIN ANALYZE says of a run of which the second device has made rows.
const TAKEN: &str = "  morsels taken by n2:a: ";

/// A database with two devices, each a node of its own, and all tablets on the first one.
struct TwoNodes {
    _directory: tempfile::TempDir,
    _outside: tempfile::TempDir,
    database: Arc<Database>,
    session: Session,
    home: Served,
    helper: Served,
    leases: Arc<Leases>,
}

/// How a device treats another one. Its host is served well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Manner {
    Honest,
    /// It takes leases and does nothing.
    HoldsLeases,
    LetsNobodyIn,
}

/// The leases that a device was asked to run.
#[derive(Debug, Default)]
struct Leases {
    count: AtomicU64,
    begun: Notify,
}

impl Leases {
    fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }
}

impl TwoNodes {
    async fn new(home: Manner, helper: Manner) -> Self {
        let (directory, database) = fresh().await;
        let outside = tempfile::tempdir().unwrap();
        let leases: Arc<Leases> = Arc::default();
        let at = outside.path();
        let home = attach(&database, at, ("n1", [1; 16]), (home, Arc::default())).await;
        let taken = Arc::clone(&leases);
        let helper = attach(&database, at, ("n2", [2; 16]), (helper, taken)).await;
        let mut session = database.session();
        run(&mut session, "SET default_device = 'n1:a'").await;
        fill(&mut session).await;
        Self { _directory: directory, _outside: outside, database, session, home, helper, leases }
    }
}

/// The only device of a node, with one core.
async fn attach(
    database: &Arc<Database>,
    outside: &Path,
    (node, identity): (&'static str, [u8; 16]),
    (manner, leases): (Manner, Arc<Leases>),
) -> Served {
    let device = move || {
        let options = RuntimeOptions { cores: 1, ..runtime_options(identity) };
        let runtime = Runtime::in_node(Arc::new(Memory::new()), options, &Node::new(node));
        Arc::new(Watched { device: runtime.unwrap(), manner, leases }) as Arc<dyn DeviceService>
    };
    let served = Served::of(device, anywhere()).await;
    let device = remote(served.address, token_file(outside, TOKEN));
    database.add_device(&format!("{node}:a"), device).await.unwrap();
    served
}

#[derive(Debug)]
struct Watched {
    device: Arc<dyn DeviceService>,
    manner: Manner,
    leases: Arc<Leases>,
}

#[async_trait]
impl DeviceService for Watched {
    async fn call(&self, command: Command) -> Result<Reply, DeviceError> {
        self.device.call(command).await
    }

    async fn execute(&self, request: Execute, slots: SlotSender) -> Result<SchemaRef, DeviceError> {
        if !request.homes.is_empty() {
            self.leases.count.fetch_add(1, Ordering::Relaxed);
            self.leases.begun.notify_one();
            if self.manner == Manner::HoldsLeases {
                std::future::pending::<()>().await;
            }
        }
        self.device.execute(request, slots).await
    }

    fn steer(&self, command: Command) {
        self.device.steer(command);
    }

    fn peer(self: Arc<Self>, shown: &[u8]) -> Option<Arc<dyn DeviceService>> {
        let lets_in = self.manner != Manner::LetsNobodyIn;
        Arc::clone(&self.device).peer(shown).filter(|_| lets_in)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_are_the_same_whichever_node_takes_morsels() {
    let mut two = TwoNodes::new(Manner::Honest, Manner::Honest).await;
    let session = &mut two.session;
    for (sql, _) in STATEMENTS {
        run(session, "SET split = host").await;
        let expected = sorted(session, sql).await;
        for split in ["h0", "h1"] {
            run(session, &format!("SET split = {split}; SET stealing = always")).await;
            two.database.buffer_pool().clear();
            let outcome = session.run(sql).await;
            if outcome.is_err_and(|error| error.to_string().contains("cannot run this")) {
                continue;
            }
            assert_eq!(sorted(session, sql).await, expected, "{split}: {sql}");
            run(session, "SET stealing = off").await;
            let plan = analyzed(session, sql).await;
            assert!(!plan.contains(TAKEN), "{plan}");
        }
    }
    // Rows, partial states, and a probe side whose build side is read at the home as well.
    for (place, split) in [(0, "h0"), (2, "h0"), (4, "h1")] {
        let (sql, _) = STATEMENTS[place];
        run(session, &format!("SET split = {split}; SET stealing = always")).await;
        // On a busy machine others may be done before the second device is asked.
        let mut attempts = 1000;
        while !analyzed(session, sql).await.contains(TAKEN) {
            attempts -= 1;
            assert!(attempts > 0, "the idle device took nothing of {sql}");
            two.database.buffer_pool().clear();
        }
    }
    assert_no_leak(&two.database);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_comes_back_from_a_device_that_is_lost() {
    let two = TwoNodes::new(Manner::Honest, Manner::HoldsLeases).await;
    let TwoNodes { _directory, _outside, database, mut session, home: _home, helper, leases } = two;
    let (sql, _) = STATEMENTS[1];
    let expected = sorted(&mut session, sql).await;
    run(&mut session, "SET split = h0; SET stealing = always").await;
    let killing = async {
        leases.begun.notified().await;
        helper.stop().await;
    };
    let asking = async {
        let mut attempts = 1000;
        while leases.count() == 0 {
            attempts -= 1;
            assert!(attempts > 0, "the idle device took nothing");
            database.buffer_pool().clear();
            assert_eq!(sorted(&mut session, sql).await, expected);
        }
    };
    tokio::join!(asking, killing);
    // Nobody asks it any more.
    assert_eq!(sorted(&mut session, sql).await, expected);
    assert_no_leak(&database);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_that_comes_back_to_a_host_without_memory_is_run_by_its_home() {
    let two = TwoNodes::new(Manner::Honest, Manner::HoldsLeases).await;
    let TwoNodes {
        _directory: directory,
        _outside,
        database,
        session,
        home: _home,
        helper,
        leases,
    } = two;
    drop((session, database));
    let options = OpenOptions::new(embedded()).query_memory_bytes(1 << 20);
    let database = Database::open(directory.path(), options).await.unwrap();
    let mut session = database.session();
    run(&mut session, "SET split = h1; SET stealing = always").await;
    let expected = expected_of_self_join();
    let killing = async {
        leases.begun.notified().await;
        helper.stop().await;
    };
    let asking = async {
        let mut attempts = 100;
        while leases.count() == 0 {
            attempts -= 1;
            assert!(attempts > 0, "the idle device took nothing");
            database.buffer_pool().clear();
            // The build side is too wide for the host.
            assert_eq!(row(&mut session, SELF_JOIN).await, expected);
        }
    };
    tokio::join!(asking, killing);
    assert_no_leak(&database);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_statement_fails_if_the_home_of_a_lease_is_lost_too() {
    let two = TwoNodes::new(Manner::Honest, Manner::HoldsLeases).await;
    let TwoNodes { _directory, _outside, database, mut session, home, helper, leases } = two;
    let (sql, _) = STATEMENTS[1];
    run(&mut session, "SET split = h0; SET stealing = always").await;
    let killing = async {
        leases.begun.notified().await;
        home.stop().await;
        helper.stop().await;
    };
    let asking = async {
        let mut attempts = 1000;
        loop {
            attempts -= 1;
            assert!(attempts > 0, "the idle device took nothing");
            database.buffer_pool().clear();
            if let Err(error) = session.run(sql).await {
                break error;
            }
        }
    };
    let (error, ()) = tokio::join!(asking, killing);
    assert_eq!(error.sqlstate(), "58030", "{error}");
    assert!(error.to_string().contains("n1:a"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_that_cannot_reach_the_home_takes_nothing() {
    let mut two = TwoNodes::new(Manner::LetsNobodyIn, Manner::Honest).await;
    let (sql, _) = STATEMENTS[1];
    let expected = sorted(&mut two.session, sql).await;
    run(&mut two.session, "SET split = h0; SET stealing = always").await;
    let mut attempts = 1000;
    let plan = loop {
        attempts -= 1;
        assert!(attempts > 0, "the idle device was not asked");
        two.database.buffer_pool().clear();
        assert_eq!(sorted(&mut two.session, sql).await, expected);
        let plan = analyzed(&mut two.session, sql).await;
        // Pages of the delta come with the run.
        let mut taken = plan.lines().filter(|line| line.contains(TAKEN));
        assert!(taken.all(|line| line.contains(", 0 B read")), "{plan}");
        if plan.contains("  morsels back from n2:a: ") {
            break plan;
        }
    };
    assert!(plan.contains("does not know the grant"), "{plan}");
    assert_no_leak(&two.database);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_that_comes_back_to_a_join_of_no_rows_is_left() {
    let mut two = TwoNodes::new(Manner::LetsNobodyIn, Manner::Honest).await;
    // The side that is read first has no rows, and the other one is not read at all.
    let sql = "SELECT b.id, a.note FROM many a JOIN many b ON a.id = b.few WHERE a.id + a.few < 0";
    run(&mut two.session, "SET split = h1; SET stealing = always").await;
    let asking = async {
        let mut attempts = 1000;
        loop {
            attempts -= 1;
            assert!(attempts > 0, "the idle device was not asked");
            two.database.buffer_pool().clear();
            let plan = analyzed(&mut two.session, sql).await;
            if plan.contains("  morsels back from n2:a: ") {
                break;
            }
        }
        assert_eq!(sorted(&mut two.session, sql).await, Vec::<String>::new());
    };
    tokio::time::timeout(Duration::from_secs(50), Box::pin(asking)).await.expect("the run ends");
    assert_no_leak(&two.database);
}
