//! Fails each step of a move of tablets to another device, or cuts the host's power there. The table is then whole on
//! one of both devices, no block is lost, and the same statement moves it.

#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]

use std::rc::Rc;
use std::sync::Arc;

use cleave_fragment::link::{RemoteAddress, SimulatedNetwork, simulate_network};
use cleave_fragment::waiting::sleep;
use cleave_host::check::CheckOptions;
use cleave_host::{Database, RemoteDevice};
use cleave_sim::executor;
use cleave_sim::link::SimLink;
use cleave_sim::machine::Machine;
use cleave_sim::media::SimMedia;
use cleave_sim::world::{SimWorld, StepFault};

use crate::commit_steps::{CALM, Host, rows, run};

/// The steps, and whether each can fail: after the manifest it cannot.
const STEPS: [(&str, bool); 9] = [
    ("move: copied", true),
    ("move: synced", true),
    ("move: commit", true),
    ("commit: lock", true),
    ("commit: validate", true),
    ("commit: log", true),
    ("commit: apply", true),
    ("commit: publish", false),
    ("commit: told", false),
];

#[test]
fn a_move_to_another_device_is_whole_at_each_step() {
    for (from, to) in [("far", "embedded"), ("embedded", "far")] {
        for (number, (step, may_fail)) in STEPS.into_iter().enumerate() {
            for fault in [StepFault::Fails, StepFault::PowerGoes] {
                if fault == StepFault::Fails && !may_fail {
                    continue;
                }
                for seed in 0..2 {
                    let directory = tempfile::tempdir().unwrap();
                    let world = SimWorld::new(seed + 10 * number as u64, directory.path());
                    let place = directory.path().join("db");
                    let host = Host { place, media: SimMedia::new("near", true) };
                    let ran = moved(&host, &world, (step, fault), (from, to));
                    executor::run(&world, Box::pin(ran)).unwrap();
                }
            }
        }
    }
}

/// A machine across a simulated link, the network that leads to it, and the host's database, which has its device
/// `far`.
pub(crate) async fn with_far(host: &Host) -> (Arc<Machine>, SimulatedNetwork, Arc<Database>) {
    let machine = Machine::start();
    let network = simulate_network({
        let machine = Arc::clone(&machine);
        Rc::new(move |_: &RemoteAddress| SimLink::dial(&machine))
    });
    let database = host.open().await;
    let far = RemoteDevice {
        host: "far".to_owned(),
        port: 1,
        token_file: None,
        ca_pem: None,
        rate_cap: None,
    };
    Box::pin(database.add_device("far", far)).await.unwrap();
    (machine, network, database)
}

const ALL: &str = "SELECT sum(id) FROM t WHERE note <> 'none'";

async fn moved(
    host: &Host,
    world: &Rc<SimWorld>,
    (step, fault): (&'static str, StepFault),
    (from, to): (&str, &str),
) {
    let told = format!("{from} to {to}, {fault:?} at \"{step}\"");
    let (_machine, _network, database) = with_far(host).await;
    let mut session = database.session();
    let create = format!("CREATE TABLE t (id int PRIMARY KEY, note text) WITH (device = {from})");
    let drain = format!("ALTER DEVICE {from} DRAIN TO {to}");
    for sql in [
        // Notes that it is drained, so that the steps below are those of the move.
        drain.as_str(),
        create.as_str(),
        "CREATE INDEX t_note ON t (note)",
        "INSERT INTO t SELECT i, 'note ' || i FROM generate_series(1, 2000) AS g (i)",
        "CHECKPOINT",
        "SET update_placement = device; UPDATE t SET id = id WHERE id % 2 = 0",
        "INSERT INTO t VALUES (3000, 'in the delta')",
    ] {
        run(&mut session, sql).await.unwrap();
    }
    let before = rows(&mut session, ALL).await.unwrap();
    world.fail_step(step, fault);
    let outcome = run(&mut session, &drain).await;
    assert!(world.has_failed_step(), "{told}: the step is one of the move: {outcome:?}");
    let went = fault == StepFault::PowerGoes;
    if !went {
        assert!(outcome.is_err(), "{told}: it was to fail");
        assert_eq!(places(&database), [from], "{told}");
        assert_eq!(rows(&mut session, ALL).await.unwrap(), before, "{told}");
        run(&mut session, "INSERT INTO t VALUES (0, 'after')").await.unwrap();
        sound(&database, &told).await;
    }
    world.set_host_power(false);
    drop((session, database));
    sleep(CALM).await;
    world.host_files().lose_power();
    host.media.lose_power();
    world.set_host_power(true);

    let database = host.open().await;
    let mut session = database.session();
    let is_moved = matches!(step, "commit: publish" | "commit: told");
    assert_eq!(places(&database), [if went && is_moved { to } else { from }], "{told}");
    assert_eq!(rows(&mut session, ALL).await.unwrap(), before, "{told}");
    sound(&database, &told).await;
    run(&mut session, &drain).await.unwrap();
    assert_eq!(places(&database), [to], "{told}");
    assert_eq!(rows(&mut session, ALL).await.unwrap(), before, "{told}");
    run(&mut session, "INSERT INTO t VALUES (4000, 'more')").await.unwrap();
    sound(&database, &told).await;
    let left = database.device_named(from).unwrap().space();
    assert_eq!(left.used_blocks - left.retired_blocks, 0, "{told}: {left:?}");
    drop((session, database));
    sleep(CALM).await;
}

/// Names of the devices that the table lies on.
fn places(database: &Database) -> Vec<String> {
    let state = database.catalog();
    let devices = state.table("t").unwrap().devices();
    devices.iter().map(|id| database.attached(*id).unwrap().name().to_owned()).collect()
}

/// Nothing is damaged, and each block in use is named, or may still be written by a command that was lost.
pub(crate) async fn sound(database: &Arc<Database>, told: &str) {
    let mut session = database.session();
    run(&mut session, "CHECKPOINT").await.unwrap();
    let report = Box::pin(database.check(&CheckOptions::default())).await.unwrap();
    assert!(report.is_clean(), "{told}: {:#?}", report.findings);
    sleep(CALM).await;
    let state = database.catalog();
    for device in database.devices() {
        let extents = state.extents(device.id());
        let named: u64 = extents.iter().map(|extent| u64::from(extent.block_count)).sum();
        let space = device.space();
        let kept = space.retired_blocks + space.doubtful_blocks;
        assert_eq!(space.used_blocks - kept, named, "{told}: {space:?}");
    }
}
