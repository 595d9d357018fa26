//! Two machines whose devices read each other's pages and take each other's rows: a message between them fails, or one
//! of the host's; nothing comes through in one direction; a process is replaced. The rows are right, or the statement
//! fails because a device is gone; and then no run, no grant and no link is left.

#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use cleave_fragment::command::{Command, CommandHeader, Reply, Request};
use cleave_fragment::link::{DeviceService, RemoteAddress, SimulatedNetwork, simulate_network};
use cleave_fragment::waiting::sleep;
use cleave_host::{Database, RemoteDevice, Session};
use cleave_sim::executor;
use cleave_sim::link::SimLink;
use cleave_sim::machine::Machine;
use cleave_sim::media::SimMedia;
use cleave_sim::world::{LinkFault, PeersServed, SimWorld};
use futures::future::join;

use crate::commit_steps::{CALM, Host, rows, run};

/// A statement, the settings under which it runs, and whether devices then read pages of each other; else they take
/// rows.
#[derive(Debug, Clone, Copy)]
struct Statement {
    settings: &'static str,
    sql: &'static str,
    reads_pages: bool,
}

const STATEMENTS: [Statement; 4] = [
    Statement {
        settings: "SET compute_on = 'other'",
        sql: "SELECT sum(id + v) FROM l WHERE v % 3 > 0",
        reads_pages: true,
    },
    Statement {
        settings: "SET compute_on = 'far'",
        sql: "SELECT sum(l.v * r.v) FROM l JOIN r ON l.id = r.id",
        reads_pages: true,
    },
    Statement {
        settings: EXCHANGED,
        sql: "SELECT sum(l.v * r.id) FROM l JOIN r ON l.k = r.k",
        reads_pages: false,
    },
    Statement {
        settings: EXCHANGED,
        sql: "SELECT sum(g.n * g.k) FROM \
              (SELECT l.k, count(r.id) AS n FROM l LEFT JOIN r ON l.k = r.k GROUP BY l.k) g",
        reads_pages: false,
    },
];

const EXCHANGED: &str =
    "SET split = h0; SET threads = 2; SET stealing = off; SET exchange = always";

/// Whose command fails.
#[derive(Debug, Clone, Copy)]
enum Whose {
    Hosts,
    Devices,
}

/// Most messages of a statement that fail, of the host's and of those between devices, unless `CLEAVE_SIM_CUTS` is
/// `all`.
const FAILING: u64 = 3;

#[test]
fn rows_are_right_whichever_message_between_devices_fails() {
    let takes_all = std::env::var("CLEAVE_SIM_CUTS").is_ok_and(|wish| wish == "all");
    let mut faults = LinkFault::ALL.into_iter().cycle();
    let faults_of_one = if takes_all { LinkFault::ALL.len() } else { 1 };
    for statement in STATEMENTS {
        let (of_host, of_devices) = one_run(statement, None);
        assert!(of_host > 1 && of_devices > 0, "{statement:?}: {of_host} and {of_devices}");
        for (whose, count) in [(Whose::Devices, of_devices), (Whose::Hosts, of_host)] {
            let step = if takes_all { 1 } else { count.div_ceil(FAILING) };
            for number in (0..count).step_by(usize::try_from(step).unwrap()) {
                for fault in faults.by_ref().take(faults_of_one) {
                    one_run(statement, Some((whose, number, fault)));
                }
            }
        }
    }
}

#[test]
fn rows_are_right_when_nothing_comes_through_in_one_direction() {
    // Shorter and longer than a device waits for pages.
    let cuts =
        [("far", "other", 3), ("other", "far", 45), ("far", "other", 45), ("other", "far", 3)];
    for (place, statement) in STATEMENTS.into_iter().enumerate() {
        for (from, to, seconds) in cuts.into_iter().skip(place % 2 * 2).take(2) {
            let told = format!("{statement:?}, nothing from {from} to {to} for {seconds} s");
            in_a_world(seconds, async |two, world| {
                let expected = two.expected(statement).await;
                world.cut(from, to, Duration::from_secs(seconds));
                let found = rows(&mut two.session, statement.sql).await;
                assert_eq!(found.unwrap_or_else(|error| panic!("{told}: {error}")), expected);
                two.comes_to_rest(world, statement, expected, &told).await;
            });
        }
    }
}

#[test]
fn no_run_and_no_grant_is_left_where_a_process_is_replaced() {
    for (place, statement) in STATEMENTS.into_iter().enumerate() {
        for (number, after_us) in [700, 1800].into_iter().enumerate() {
            let told = format!("{statement:?}, replaced after {after_us} µs");
            in_a_world(after_us, async |two, world| {
                let expected = two.expected(statement).await;
                let replaced = Arc::clone(&two.machines[(place + number) % 2]);
                let replacing = async {
                    sleep(Duration::from_micros(after_us)).await;
                    replaced.kill(false);
                    replaced.boot();
                };
                let (found, ()) = join(rows(&mut two.session, statement.sql), replacing).await;
                match found {
                    Ok(found) => assert_eq!(found, expected, "{told}"),
                    Err(error) => assert_eq!(error.sqlstate(), "58030", "{told}: {error}"),
                }
                two.comes_to_rest(world, statement, expected, &told).await;
            });
        }
    }
}

/// Runs `statement` with a fault at a command; how many commands of the host and of devices it took.
fn one_run(statement: Statement, failing: Option<(Whose, u64, LinkFault)>) -> (u64, u64) {
    let told = format!("{statement:?}, {failing:?}");
    in_a_world(failing.map_or(0, |(_, number, _)| number), async |two, world| {
        let expected = two.expected(statement).await;
        let before = (world.command_count(), world.peer_command_count());
        let served = world.peers_served();
        match failing {
            Some((Whose::Hosts, number, fault)) => world.fail_link_at(before.0 + number, fault),
            Some((Whose::Devices, number, fault)) => world.fail_peers_at(before.1 + number, fault),
            None => {}
        }
        let found = rows(&mut two.session, statement.sql).await;
        let commands = (world.command_count() - before.0, world.peer_command_count() - before.1);
        match (found, failing) {
            (Ok(found), _) => assert_eq!(found, expected, "{told}"),
            (Err(error), Some((whose, _, fault))) => {
                // Of what fails between devices, the host learns only that it has to read for itself.
                let dies = matches!(fault, LinkFault::DiesBefore | LinkFault::DiesAfter);
                assert!(dies || matches!(whose, Whose::Hosts), "{told}: {error}");
                assert_eq!(error.sqlstate(), "58030", "{told}: {error}");
            }
            (Err(error), None) => panic!("{told}: without faults, {error}"),
        }
        if failing.is_none() {
            let PeersServed { reads, outputs } = world.peers_served();
            let (reads, outputs) = (reads - served.reads, outputs - served.outputs);
            assert_eq!((reads > 0, outputs > 0), (statement.reads_pages, !statement.reads_pages));
        }
        two.comes_to_rest(world, statement, expected, &told).await;
        commands
    })
}

/// A host and two machines with a table each.
struct Two {
    machines: [Arc<Machine>; 2],
    _network: SimulatedNetwork,
    database: Arc<Database>,
    session: Session,
}

/// What `work` makes of two machines in a world of their own.
fn in_a_world<T>(seed: u64, work: impl AsyncFnOnce(&mut Two, &Rc<SimWorld>) -> T) -> T {
    let directory = tempfile::tempdir().unwrap();
    let world = SimWorld::new(seed, directory.path());
    let place = directory.path().join("db");
    let host = Host { place, media: SimMedia::new("near", true) };
    let running = async {
        let mut two = Box::pin(Two::new(&host)).await;
        let made = Box::pin(work(&mut two, &world)).await;
        drop(two);
        sleep(CALM).await;
        made
    };
    // The future is large, and a test thread's stack is small.
    executor::run(&world, Box::pin(running)).unwrap()
}

impl Two {
    async fn new(host: &Host) -> Self {
        let machines = [Machine::start(), Machine::start_other()];
        let network = simulate_network({
            let machines = machines.clone();
            Rc::new(move |address: &RemoteAddress| {
                let machine = machines.iter().find(|machine| machine.name() == address.host);
                SimLink::dial(machine.unwrap())
            })
        });
        let database = host.open().await;
        for machine in &machines {
            let way = RemoteDevice {
                host: machine.name().to_owned(),
                port: 1,
                token_file: None,
                ca_pem: None,
                rate_cap: None,
            };
            Box::pin(database.add_device(machine.name(), way)).await.unwrap();
        }
        let mut session = database.session();
        for sql in [
            "CREATE TABLE l (id int PRIMARY KEY, k int, v int) WITH (device = far)",
            "CREATE TABLE r (id int PRIMARY KEY, k int, v int) WITH (device = other)",
            "INSERT INTO l SELECT i, i % 90, i % 7 FROM generate_series(1, 600) AS g (i)",
            "INSERT INTO r SELECT i, i % 110, i % 5 FROM generate_series(1, 400) AS g (i)",
            "CHECKPOINT",
        ] {
            run(&mut session, sql).await.unwrap();
        }
        Self { machines, _network: network, database, session }
    }

    /// What `statement` gives on the host. The session then has its settings.
    async fn expected(&mut self, statement: Statement) -> u64 {
        run(&mut self.session, "SET split = host").await.unwrap();
        let expected = rows(&mut self.session, statement.sql).await.unwrap();
        run(&mut self.session, "RESET split").await.unwrap();
        run(&mut self.session, statement.settings).await.unwrap();
        // So that a host that reads for itself does so over its links.
        self.database.buffer_pool().clear();
        expected
    }

    /// Ends all faults: the statement then gives what is `expected`, and the devices hold nothing for anybody.
    async fn comes_to_rest(
        &mut self,
        world: &SimWorld,
        statement: Statement,
        expected: u64,
        told: &str,
    ) {
        world.let_link_rest(true);
        world.heal();
        self.machines.iter().for_each(|machine| machine.boot());
        sleep(CALM).await;
        // Links that were lost are made anew.
        for device in self.database.devices() {
            Box::pin(device.status()).await.unwrap();
        }
        let found = rows(&mut self.session, statement.sql).await;
        assert_eq!(found.unwrap_or_else(|error| panic!("{told}: {error}")), expected, "{told}");
        sleep(CALM).await;
        for machine in &self.machines {
            let device = machine.runtime().unwrap();
            let asked = Command::new(CommandHeader::default(), Request::Status);
            let Ok(Reply::Status(status)) = device.call(asked).await else { panic!("{told}") };
            let (free, all) = (status.fragment_memory_bytes_free, status.fragment_memory_bytes);
            assert!(status.runs.is_empty(), "{told}: {}: {:?}", machine.name(), status.runs);
            assert_eq!(free, all, "{told}: bytes free of {}", machine.name());
            let held = device.held_for_peers().await;
            assert_eq!(held, (0, 0), "{told}: grants and links of {}", machine.name());
        }
    }
}
