//! Mirrors of two machines: the link to one copy fails at any command of statements that write, and a resynchronisation
//! fails, or the host's power goes, at each of its steps. A statement is then there whole or not at all, as it was
//! acknowledged; and once all copies are current, each of them alone has every row.

#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]

use std::rc::Rc;
use std::sync::Arc;

use cleave_fragment::link::{RemoteAddress, SimulatedNetwork, simulate_network};
use cleave_fragment::waiting::sleep;
use cleave_host::{Database, RemoteDevice, Session};
use cleave_sim::executor;
use cleave_sim::link::SimLink;
use cleave_sim::machine::Machine;
use cleave_sim::media::SimMedia;
use cleave_sim::world::{LinkFault, SimWorld, StepFault};

use crate::commit_steps::{CALM, Host, rows, run};
use crate::moved_tablets::sound;

const RESYNC: &str = "ALTER DEVICE m RESYNC";

/// Statements in this order, and the number of rows that they change: what is counted before is 0.
const WORK: [(&str, &str, u64); 6] = [
    (
        "INSERT INTO t SELECT id + 5000, note FROM t WHERE id <= 1000",
        "SELECT count(*) FROM t WHERE id > 5000",
        1000,
    ),
    (
        "UPDATE t SET note = 'new' WHERE id % 4 = 0 AND id <= 2000",
        "SELECT count(*) FROM t WHERE note = 'new'",
        500,
    ),
    ("CHECKPOINT", "SELECT 0", 0),
    (
        "DELETE FROM t WHERE id % 4 = 1 AND id <= 2000",
        "SELECT 500 - count(*) FROM t WHERE id % 4 = 1 AND id <= 2000",
        500,
    ),
    (RESYNC, "SELECT 0", 0),
    ("CHECKPOINT", "SELECT 0", 0),
];

/// The distance of the commands that fail, unless `CLEAVE_SIM_CUTS` is `all`.
const EVERY: usize = 3;

#[test]
fn a_copy_whose_link_fails_at_any_command_is_made_good() {
    let takes_all = std::env::var("CLEAVE_SIM_CUTS").is_ok_and(|wish| wish == "all");
    let commands = one_run(None);
    assert!(commands > 12, "{commands} commands");
    let step = if takes_all { 1 } else { EVERY };
    let mut faults = LinkFault::ALL.into_iter().cycle();
    for number in (0..commands).step_by(step) {
        for fault in faults.by_ref().take(if takes_all { LinkFault::ALL.len() } else { 1 }) {
            one_run(Some((number, fault)));
        }
    }
}

/// Runs the statements with a fault at a command; how many commands they took.
fn one_run(fault: Option<(u64, LinkFault)>) -> u64 {
    let directory = tempfile::tempdir().unwrap();
    let world = SimWorld::new(fault.map_or(0, |(number, _)| number), directory.path());
    let place = directory.path().join("db");
    let host = Host { place, media: SimMedia::new("near", true) };
    executor::run(&world, Box::pin(made_good_after(&host, &world, fault))).unwrap()
}

async fn made_good_after(
    host: &Host,
    world: &Rc<SimWorld>,
    failing: Option<(u64, LinkFault)>,
) -> u64 {
    let told = format!("{failing:?}");
    let (machines, _network, database) = mirrored(host).await;
    let mut session = database.session();
    run(&mut session, "SET update_placement = device").await.unwrap();
    let before = world.command_count();
    if let Some((number, fault)) = failing {
        world.fail_link_at(before + number, fault);
    }
    let mut outcomes = Vec::new();
    for (sql, _, _) in WORK {
        let outcome = run(&mut session, sql).await;
        if let Err(error) = &outcome {
            assert!(failing.is_some(), "{sql}: without faults, {error}");
            assert_eq!(error.sqlstate(), "58030", "{told}: {sql}: {error}");
        }
        outcomes.push(outcome.is_ok());
    }
    let commands = world.command_count() - before;
    world.let_link_rest(true);
    machines.iter().for_each(|machine| machine.boot());
    sleep(CALM).await;
    make_good(&mut session, &told).await;
    assert_eq!(stale(&database), Vec::<String>::new(), "{told}");
    let mut found = Vec::new();
    for ((sql, count, changed), is_acknowledged) in WORK.into_iter().zip(outcomes) {
        let is_there = rows(&mut session, count).await.unwrap();
        let is_whole = is_there == changed || (is_there == 0 && !is_acknowledged);
        assert!(is_whole, "{told}: {sql}: {is_there}, acknowledged: {is_acknowledged}");
        found.push(is_there);
    }
    for lost in &machines {
        lost.kill(false);
        database.buffer_pool().clear();
        for ((_, count, _), expected) in WORK.into_iter().zip(&found) {
            let is_there = rows(&mut session, count).await.unwrap();
            assert_eq!(is_there, *expected, "{told}: {count} without {}", lost.name());
        }
        lost.boot();
        sleep(CALM).await;
    }
    sound(&database, &told).await;
    drop((session, database));
    sleep(CALM).await;
    commands
}

#[test]
fn a_copy_stays_stale_where_its_resynchronisation_ends_early() {
    for step in ["resync: copied", "resync: synced", "resync: commit"] {
        for fault in [StepFault::Fails, StepFault::PowerGoes] {
            let directory = tempfile::tempdir().unwrap();
            let world = SimWorld::new(7, directory.path());
            let place = directory.path().join("db");
            let host = Host { place, media: SimMedia::new("near", true) };
            let ran = resynchronised(&host, &world, (step, fault));
            executor::run(&world, Box::pin(ran)).unwrap();
        }
    }
}

async fn resynchronised(
    host: &Host,
    world: &Rc<SimWorld>,
    (step, fault): (&'static str, StepFault),
) {
    let told = format!("{fault:?} at \"{step}\"");
    let (machines, _network, database) = mirrored(host).await;
    // The first copy, so that the steps are those of the one that is stale.
    let [far, other] = &machines;
    let mut session = database.session();
    far.kill(true);
    let since = "INSERT INTO t SELECT i, 'since' FROM generate_series(3001, 5000) AS g (i)";
    run(&mut session, since).await.unwrap();
    run(&mut session, "CHECKPOINT").await.unwrap();
    assert_eq!(stale(&database), ["far"], "{told}");
    far.boot();
    sleep(CALM).await;
    // Over a link that leads to the device as it is now.
    Box::pin(database.device_named("far").unwrap().status()).await.unwrap();

    world.fail_step(step, fault);
    let outcome = run(&mut session, RESYNC).await;
    assert!(world.has_failed_step(), "{told}: the step is one of it: {outcome:?}");
    assert!(outcome.is_err(), "{told}: it was to fail");
    assert_eq!(stale(&database), ["far"], "{told}");
    world.set_host_power(false);
    drop((session, database));
    sleep(CALM).await;
    world.host_files().lose_power();
    host.media.lose_power();
    world.set_host_power(true);

    let database = host.open().await;
    let mut session = database.session();
    assert_eq!(stale(&database), ["far"], "{told}");
    let count = "SELECT count(*) FROM t";
    assert_eq!(rows(&mut session, count).await.unwrap(), 4000, "{told}");
    make_good(&mut session, &told).await;
    assert_eq!(stale(&database), Vec::<String>::new(), "{told}");
    other.kill(false);
    database.buffer_pool().clear();
    let notes = "SELECT sum(length(note)) FROM t WHERE id > 3000";
    assert_eq!(rows(&mut session, notes).await.unwrap(), 10_000, "{told}: from the copy alone");
    other.boot();
    sleep(CALM).await;
    sound(&database, &told).await;
    drop((session, database));
    sleep(CALM).await;
}

/// Two machines, the network that leads to them, and the host's database, with a table of 2,000 rows on the mirror `m`
/// of both.
async fn mirrored(host: &Host) -> ([Arc<Machine>; 2], SimulatedNetwork, Arc<Database>) {
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
        "CREATE DEVICE m WITH (mirrors = 'far, other')",
        "CREATE TABLE t (id int PRIMARY KEY, note text) WITH (device = m)",
        "INSERT INTO t SELECT i, 'note ' || i FROM generate_series(1, 2000) AS g (i)",
        "CHECKPOINT",
    ] {
        run(&mut session, sql).await.unwrap();
    }
    (machines, network, database)
}

/// Writes all to pages and makes all copies current, again where a copy that has just come back still ends what it did
/// before.
async fn make_good(session: &mut Session, told: &str) {
    for sql in ["CHECKPOINT", RESYNC] {
        for left in (0..3).rev() {
            match run(session, sql).await {
                Ok(_) => break,
                Err(error) => assert!(left > 0, "{told}: {sql}: {error}"),
            }
            sleep(CALM).await;
        }
    }
}

/// The copies of m that lack pages, as the database has it.
fn stale(database: &Database) -> Vec<String> {
    let copies = database.device_named("m").unwrap().copies().into_iter();
    let stale = copies.filter(|(_, is_stale)| *is_stale);
    stale.map(|(copy, _)| copy.name().to_owned()).collect()
}
