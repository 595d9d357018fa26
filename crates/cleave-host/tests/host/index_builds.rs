//! Tests of index builds that end early, for lack of space or of power: the index is complete, or absent with its space
//! free.

use std::path::Path;
use std::sync::Arc;

use cleave_device::{LocalListener, LocalOptions, Runtime, RuntimeOptions};
use cleave_fragment::ending::end_in_background;
use cleave_fragment::link::DeviceService;
use cleave_host::check::CheckOptions;
use cleave_host::{Database, LocalDevice, Session, SnapshotKind};
use cleave_media::{DirectFile, Fault, FaultPlan, FaultyMedia, Media, Memory, OpenMode, Operation};

use crate::compaction::copy_of;
use crate::durability::Slot;
use crate::indexes::{both_ways, index_names};
use crate::support::{
    assert_no_leak, assert_no_leak_soon, batches, fresh, note, numbered, refused, row, run,
    runtime_options,
};

const ROWS: i32 = 12_000;
const BUILD: &str = "CREATE UNIQUE INDEX t_note ON t (note DESC, id)";

/// A table of two bulk segments and a few rows in a hot one: a build has several workers, and merges what they write.
async fn three_segments(session: &mut Session, with: &str) {
    run(session, &format!("CREATE TABLE t (id int PRIMARY KEY, note text) {with}")).await;
    for half in [0..ROWS / 2, ROWS / 2..ROWS] {
        session.load("t", batches(vec![numbered(half)]), None).await.unwrap();
    }
    run(session, "INSERT INTO t VALUES (-1, 'few'), (-2, NULL), (-3, NULL); CHECKPOINT").await;
}

async fn assert_sound(database: &Arc<Database>, extra_rows: i32) {
    let mut session = database.session();
    let all = "SELECT count(*), count(DISTINCT id), max(id) FROM t";
    let count = ROWS + 3 + extra_rows;
    assert!(row(&mut session, all).await.starts_with(&format!("{count},{count},")));
    for id in [0, 50, ROWS / 2, ROWS - 1] {
        let sql = format!("SELECT id FROM t WHERE note = '{}'", note(id));
        assert_eq!(both_ways(&mut session, &sql).await, [id.to_string()]);
    }
    let report = database.check(&CheckOptions::default()).await.unwrap();
    assert!(report.is_clean(), "{:#?}", report.findings);
}

/// Blocks that are taken, by device, without those that wait for readers.
fn occupied(database: &Database) -> Vec<u64> {
    let spaces = database.devices().into_iter().map(|device| device.space());
    spaces.map(|space| space.used_blocks - space.retired_blocks).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_build_whose_device_is_full_at_any_moment_leaves_the_table() {
    let directory = tempfile::tempdir().unwrap();
    let media = FaultyMedia::over(Arc::new(Memory::new()), FaultPlan::default());
    let media = Arc::new(media);
    let slot = Slot::new(Arc::clone(&media) as Arc<dyn Media>);
    let database = slot.open(directory.path()).await;
    let mut session = database.session();
    three_segments(&mut session, "").await;
    let mut refusals = 0;
    for first in 1.. {
        let before = occupied(&database);
        // From one write on there is no more room.
        let full = |plan: FaultPlan, number| plan.at(Operation::Write, number, Fault::Full);
        media.follow((first..first + 500).fold(FaultPlan::new(1), full));
        let built = session.run(BUILD).await;
        let Err(error) = built else {
            media.follow(FaultPlan::default());
            break;
        };
        assert_eq!(error.sqlstate(), "53100", "{first}: {error}");
        refusals += 1;
        assert_eq!(index_names(&database), ["t_pkey"]);
        // Readers go on while it is full; writers as soon as it is not.
        assert_eq!(row(&mut session, "SELECT note FROM t WHERE id = 50").await, note(50));
        assert_no_leak_soon(&database).await;
        assert_eq!(occupied(&database), before);
        media.follow(FaultPlan::default());
        if refusals % 4 == 1 {
            // Written, so that no room is held for it.
            let sql = format!("INSERT INTO t VALUES ({}, 'between')", ROWS + refusals);
            run(&mut session, &sql).await;
            database.snapshot(SnapshotKind::Flushed).await.unwrap();
        }
    }
    assert!(refusals > 3, "{refusals}");
    assert_eq!(index_names(&database), ["t_pkey", "t_note"]);
    assert_sound(&database, (refusals + 3) / 4).await;
    assert_no_leak(&database);
}

/// A database whose other device has room for `block_count_max` blocks.
async fn with_limited(
    outside: &Path,
    block_count_max: u64,
) -> (tempfile::TempDir, Arc<Database>, tokio::runtime::Runtime) {
    let (directory, database) = fresh().await;
    let socket = outside.join("device.sock");
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let media = DirectFile::open(&outside.join("other.media"), OpenMode::Create).unwrap();
    let options = RuntimeOptions { block_count_max, ..runtime_options([2; 16]) };
    let device: Arc<dyn DeviceService> = Runtime::new(Arc::new(media), options).unwrap();
    let log: Arc<dyn Fn(&str) + Send + Sync> = Arc::new(|_: &str| {});
    let options = LocalOptions { socket: socket.clone(), rate_cap: None, log };
    let listener = runtime.spawn(LocalListener::bind(device, options));
    runtime.spawn(listener.await.unwrap().unwrap().serve());
    database.add_device("other", LocalDevice { socket, rate_cap: None }).await.unwrap();
    (directory, database, runtime)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_build_on_a_full_device_is_told_and_works_once_there_is_room() {
    for with in [
        "WITH (device = other)",
        // Whatever of it lies elsewhere is given back there too.
        "WITH (devices = (embedded, other), tablets = 4, tablet_by = hash (id))",
    ] {
        let outside = tempfile::tempdir().unwrap();
        let (_directory, database, serving) = with_limited(outside.path(), 1200).await;
        let mut session = database.session();
        three_segments(&mut session, with).await;
        let mut fillers = 0;
        loop {
            let name = format!("filler_{fillers}");
            let create = format!("CREATE TABLE {name} (id int, note text) WITH (device = other)");
            run(&mut session, &create).await;
            fillers += 1;
            let ids = fillers * 100_000..fillers * 100_000 + 5000;
            if let Err(error) = session.load(&name, batches(vec![numbered(ids)]), None).await {
                assert_eq!(error.sqlstate(), "53100", "{error}");
                break;
            }
        }
        assert!(fillers > 3, "{fillers}");
        let before = occupied(&database);
        for sql in [BUILD, "CREATE INDEX ON t (note, id)"] {
            let error = refused(&mut session, sql).await;
            assert_eq!(error.sqlstate(), "53100", "{error}");
            assert!(error.to_string().contains("\"other\""), "{error}");
        }
        // A statement that writes waits for the writer lock; the writes of earlier statements have ended by then.
        for _ in 0..500 {
            if occupied(&database) == before {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        assert_eq!(occupied(&database), before);
        assert_no_leak(&database);
        assert!(!index_names(&database).iter().any(|name| name.contains("note")));
        assert_eq!(row(&mut session, "SELECT note FROM t WHERE id = 50").await, note(50));
        for filler in 0..fillers {
            run(&mut session, &format!("DROP TABLE filler_{filler}")).await;
        }
        run(&mut session, BUILD).await;
        run(&mut session, "INSERT INTO t VALUES (20000, 'after')").await;
        assert_sound(&database, 1).await;
        assert_no_leak(&database);
        drop((session, database));
        end_in_background(serving);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn power_lost_at_any_step_of_a_build_leaves_the_whole_index_or_none() {
    for with in ["", "WITH (tablets = 2, tablet_by = load_order)"] {
        let directory = tempfile::tempdir().unwrap();
        let media = Arc::new(FaultyMedia::new());
        let slot = Slot::new(Arc::clone(&media) as Arc<dyn Media>);
        let database = slot.open(directory.path()).await;
        let mut session = database.session();
        three_segments(&mut session, with).await;
        let mut refusals = 0;
        for operations in 0.. {
            media.fail_after(operations);
            let built = session.run(BUILD).await;
            // All that was not synced is gone, or some of it.
            let is_gone = operations % 2 == 0 || built.is_ok();
            let after = if is_gone { media.forget_unsynced() } else { media.crash(operations) };
            media.mend();
            {
                let copy = copy_of(directory.path());
                let database = Slot::new(Arc::new(after.unwrap())).open(copy.path()).await;
                assert_no_leak(&database);
                let names: &[&str] =
                    if built.is_ok() { &["t_pkey", "t_note"] } else { &["t_pkey"] };
                assert_eq!(index_names(&database), names, "after {operations} operations");
                assert_sound(&database, 0).await;
                if built.is_err() {
                    run(&mut database.session(), BUILD).await;
                    assert_sound(&database, 0).await;
                }
            }
            match built {
                Ok(_) => break,
                Err(error) => assert_eq!(error.sqlstate(), "58030", "{error}"),
            }
            refusals += 1;
            assert_no_leak_soon(&database).await;
        }
        assert!(refusals > 5, "{refusals} operations were made to fail");
    }
}
