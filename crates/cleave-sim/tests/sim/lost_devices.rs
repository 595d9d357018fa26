//! Loses a device at each command of statements whose fragments write on it: before it executes the command, after it,
//! with its power or the connection alone. A statement is then there whole or not at all, as it was acknowledged, and
//! once the device is back the same statement works, nothing is damaged, and after a restart no block is lost.

#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]

use std::rc::Rc;

use cleave_fragment::waiting::sleep;
use cleave_host::activity::Act;
use cleave_sim::executor;
use cleave_sim::media::SimMedia;
use cleave_sim::world::{LinkFault, SimWorld};

use crate::commit_steps::{CALM, Host, rows, run};
use crate::moved_tablets::{sound, with_far};

/// Statements, and the number of rows that they change: what is counted before is 0.
const STATEMENTS: [(&str, &str, u64); 5] = [
    (
        "UPDATE t SET note = 'new' WHERE id % 2 = 0",
        "SELECT count(*) FROM t WHERE note = 'new'",
        1000,
    ),
    (
        "UPDATE t SET id = id + 5000 WHERE id % 2 = 0",
        "SELECT count(*) FROM t WHERE id > 5000",
        1000,
    ),
    ("DELETE FROM t WHERE id % 2 = 0", "SELECT 2000 - count(*) FROM t WHERE id < 5000", 1000),
    ("INSERT INTO t SELECT id + 5000, note FROM t", "SELECT count(*) FROM t WHERE id > 5000", 2000),
    (
        "BEGIN; UPDATE t SET note = 'new' WHERE id % 2 = 0; UPDATE t SET note = 'newer' WHERE id % 4 = 0; COMMIT",
        "SELECT count(*) FROM t WHERE note LIKE 'new%'",
        1000,
    ),
];

#[test]
fn a_device_lost_at_any_command_leaves_a_statement_whole() {
    for statement in STATEMENTS {
        let commands = one_run(statement, 0, None);
        assert!(commands >= 3, "{}: {commands} commands", statement.0);
        for number in 0..commands {
            for fault in LinkFault::ALL {
                one_run(statement, number, Some(fault));
            }
        }
    }
}

/// Runs `statement` with `fault` at a command; how many it took.
fn one_run(statement: (&'static str, &str, u64), number: u64, fault: Option<LinkFault>) -> u64 {
    let directory = tempfile::tempdir().unwrap();
    let world = SimWorld::new(number, directory.path());
    let place = directory.path().join("db");
    let host = Host { place, media: SimMedia::new("near", true) };
    let ran = lost(&host, &world, statement, fault.map(|fault| (number, fault)));
    executor::run(&world, Box::pin(ran)).unwrap()
}

async fn lost(
    host: &Host,
    world: &Rc<SimWorld>,
    (sql, count, changed): (&'static str, &str, u64),
    failing: Option<(u64, LinkFault)>,
) -> u64 {
    let told = format!("{sql}, {failing:?}");
    let (machine, _network, database) = with_far(host).await;
    let mut session = database.session();
    for sql in [
        "CREATE TABLE t (id int PRIMARY KEY, note text) WITH (device = far)",
        "INSERT INTO t SELECT i, 'note ' || i FROM generate_series(1, 2000) AS g (i)",
        "CHECKPOINT",
        "SET update_placement = device",
    ] {
        run(&mut session, sql).await.unwrap();
    }
    let before = world.command_count();
    if let Some((number, fault)) = failing {
        world.fail_link_at(before + number, fault);
    }
    let outcome = run(&mut session, sql).await;
    let commands = world.command_count() - before;
    if failing.is_none() {
        outcome.as_ref().unwrap();
        assert!(database.activity().count(Act::UpdateFragment) > 0, "{told}: by a fragment");
    }
    world.let_link_rest(true);
    let _rolled_back = run(&mut session, "ROLLBACK").await;
    machine.restart_if_asked();
    machine.boot();
    sleep(CALM).await;
    let is_there = rows(&mut session, count).await.unwrap();
    match &outcome {
        Ok(_) => assert_eq!(is_there, changed, "{told}: it was acknowledged"),
        Err(error) => assert!(is_there == 0 || is_there == changed, "{told}: {error}: {is_there}"),
    }
    if is_there == 0 {
        run(&mut session, sql).await.unwrap();
        assert_eq!(rows(&mut session, count).await.unwrap(), changed, "{told}");
    }
    run(&mut session, "INSERT INTO t VALUES (5000, 'after')").await.unwrap();
    sound(&database, &told).await;
    drop((session, database));
    sleep(CALM).await;

    let database = host.open().await;
    let mut session = database.session();
    assert_eq!(rows(&mut session, count).await.unwrap(), changed, "{told}: after a restart");
    sound(&database, &told).await;
    drop((session, database));
    sleep(CALM).await;
    commands
}
