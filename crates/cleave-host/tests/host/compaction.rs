//! Tests of compaction as a fragment: pages stay on the device, and an early end leaves the existing runs in place.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use cleave_device::{Runtime, RuntimeOptions};
use cleave_fragment::link::DeviceService;
use cleave_host::check::CheckOptions;
use cleave_host::{Database, Error, OpenOptions, Session};
use cleave_media::{
    DirectFile, Fault, FaultPlan, FaultyMedia, Media, Memory, OpenMode, Operation, SplitMix64,
};

use crate::devices::{Served, TOKEN, anywhere, attach_nas, remote, token_file};
use crate::durability::Slot;
use crate::support::{
    DEVICE, assert_no_leak, assert_no_leak_soon, batches, fresh, note, numbered, open, row, run,
    runtime_options,
};

const LOAD_ROWS: i32 = 2000;

async fn load(session: &mut Session, number: i32) -> Result<u64, Error> {
    let ids = number * LOAD_ROWS..(number + 1) * LOAD_ROWS;
    session.load("t", batches(vec![numbered(ids)]), None).await
}

/// A table with two indexes with the maximum number of runs: one more load merges them.
async fn eight_loads(session: &mut Session) {
    run(session, "CREATE TABLE t (id int PRIMARY KEY, note text)").await;
    run(session, "CREATE INDEX t_note ON t (note, id)").await;
    for number in 0..8 {
        load(session, number).await.unwrap();
    }
}

fn run_counts(database: &Database) -> Vec<usize> {
    let catalog = database.catalog();
    let tablet = &catalog.table("t").unwrap().tablets[0];
    tablet.indexes.iter().map(|index| index.runs().len()).collect()
}

/// Every index says what the rows say.
async fn assert_sound(database: &Arc<Database>, loads: i32) {
    let mut session = database.session();
    let all = "SELECT count(*), count(DISTINCT id), max(id) FROM t";
    let rows = loads * LOAD_ROWS;
    assert_eq!(row(&mut session, all).await, format!("{rows},{rows},{}", rows - 1));
    for id in [0, 1, rows / 2, rows - 1] {
        let sql = format!("SELECT id FROM t WHERE note = '{}'", note(id));
        assert_eq!(row(&mut session, &sql).await, id.to_string());
    }
    let report = database.check(&CheckOptions::default()).await.unwrap();
    assert!(report.is_clean(), "{:#?}", report.findings);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_pages_of_merged_runs_do_not_cross_the_link() {
    let mut received = Vec::new();
    for ndp in ["on", "off"] {
        let outside = tempfile::tempdir().unwrap();
        let (_directory, database) = fresh().await;
        let (_served, _) = attach_nas(&database, outside.path()).await;
        let mut session = database.session();
        run(&mut session, "SET default_device = 'nas'").await;
        eight_loads(&mut session).await;
        assert_eq!(run_counts(&database), [8, 8]);
        let blocks: u32 = {
            let catalog = database.catalog();
            let tablet = &catalog.table("t").unwrap().tablets[0];
            let runs = tablet.indexes.iter().flat_map(|index| index.runs());
            runs.flat_map(|run| run.extents()).map(|extent| extent.block_count).sum()
        };
        let device = database.device_named("nas").unwrap();
        run(&mut session, &format!("SET ndp = {ndp}")).await;
        let before = device.traffic();
        database.buffer_pool().clear();
        load(&mut session, 8).await.unwrap();
        let crossed = device.traffic().since(before);
        assert_eq!(run_counts(&database), [1, 1]);
        assert_no_leak(&database);
        received.push((crossed.received_bytes, crossed.sent_bytes, u64::from(blocks) * 4096));
        run(&mut session, "SET ndp = on").await;
        assert_sound(&database, 9).await;
    }
    let [(on, on_sent, index), (off, off_sent, _)] = received[..] else { panic!() };
    assert!(off > index / 2 && off_sent > on_sent + index / 2, "{received:?}");
    assert!(on < off / 5, "{received:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_compaction_whose_device_is_full_at_any_moment_leaves_the_runs() {
    let directory = tempfile::tempdir().unwrap();
    let media = Arc::new(FaultyMedia::over(Arc::new(Memory::new()), FaultPlan::default()));
    let slot = Slot::new(Arc::clone(&media) as Arc<dyn Media>);
    let database = slot.open(directory.path()).await;
    let mut session = database.session();
    eight_loads(&mut session).await;
    let mut refusals = 0;
    for first in (1..).step_by(3) {
        // From one write on there is no more room.
        let plan = (first..first + 500)
            .fold(FaultPlan::new(1), |plan, number| plan.at(Operation::Write, number, Fault::Full));
        media.follow(plan);
        let used = database.devices()[0].space().used_blocks;
        let loaded = load(&mut session, 8).await;
        media.follow(FaultPlan::default());
        let Err(error) = loaded else { break };
        assert_eq!(error.sqlstate(), "53100", "{error}");
        refusals += 1;
        assert_eq!(run_counts(&database), [8, 8]);
        assert_no_leak_soon(&database).await;
        assert_eq!(database.devices()[0].space().used_blocks, used);
    }
    assert!(refusals > 3, "{refusals}");
    assert_eq!(run_counts(&database), [1, 1]);
    assert_sound(&database, 9).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_more_cannot_be_reserved_what_fits_is_merged_and_what_does_not_is_told() {
    let directory = tempfile::tempdir().unwrap();
    let media: Arc<dyn Media> = Arc::new(Memory::new());
    let open_with = async |block_count_max: u64| {
        let media = Arc::clone(&media);
        let factory: cleave_host::EmbeddedFactory = Arc::new(move |path: &Path| {
            let options = RuntimeOptions { block_count_max, ..runtime_options(DEVICE) };
            let runtime = Runtime::new(Arc::clone(&media), options)
                .map_err(|error| Error::io("start", path, std::io::Error::other(error)))?;
            Ok(runtime as Arc<dyn DeviceService>)
        });
        let options = OpenOptions::new(factory).create(true);
        Database::open(directory.path(), options).await.unwrap()
    };
    let high_water = {
        let database = open_with(1 << 20).await;
        eight_loads(&mut database.session()).await;
        database.devices()[0].space().high_water
    };
    let mut refusals = 0;
    for room in [0, 20, 60, 100, 150, 200, 250, 300, 400, 800] {
        let database = open_with(high_water + room).await;
        let loaded = load(&mut database.session(), 8).await;
        assert_no_leak_soon(&database).await;
        match loaded {
            Ok(_) => break,
            Err(error) => assert_eq!(error.sqlstate(), "53100", "{error}"),
        }
        assert_eq!(run_counts(&database), [8, 8], "{room}");
        refusals += 1;
    }
    assert!(refusals > 1, "{refusals}");
    let database = open_with(high_water + 800).await;
    assert_eq!(run_counts(&database), [1, 1]);
    assert_sound(&database, 9).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn power_lost_at_any_step_of_a_compaction_leaves_the_runs_or_the_merged_one() {
    let directory = tempfile::tempdir().unwrap();
    let media = Arc::new(FaultyMedia::new());
    let slot = Slot::new(Arc::clone(&media) as Arc<dyn Media>);
    let database = slot.open(directory.path()).await;
    let mut session = database.session();
    eight_loads(&mut session).await;
    let mut refusals = 0;
    for operations in 0.. {
        media.fail_after(operations);
        let loaded = load(&mut session, 8).await;
        // All that was not synced is gone, or some of it.
        let is_gone = operations % 2 == 0 || loaded.is_ok();
        let after = if is_gone { media.forget_unsynced() } else { media.crash(operations) };
        media.mend();
        {
            let loads = if loaded.is_ok() { 9 } else { 8 };
            let copy = copy_of(directory.path());
            let database = Slot::new(Arc::new(after.unwrap())).open(copy.path()).await;
            assert_no_leak(&database);
            assert_eq!(run_counts(&database), if loads == 9 { [1, 1] } else { [8, 8] });
            assert_sound(&database, loads).await;
        }
        match loaded {
            Ok(_) => break,
            Err(error) => assert_eq!(error.sqlstate(), "58030", "{error}"),
        }
        refusals += 1;
        assert_no_leak_soon(&database).await;
    }
    assert!(refusals > 5, "{refusals} operations were made to fail");
}

/// The files of the database in `directory`, its device apart.
pub(crate) fn copy_of(directory: &Path) -> tempfile::TempDir {
    let copy = tempfile::tempdir().unwrap();
    std::fs::create_dir(copy.path().join("segments")).unwrap();
    std::fs::copy(directory.join("manifest"), copy.path().join("manifest")).unwrap();
    std::fs::create_dir(copy.path().join("log")).unwrap();
    for entry in std::fs::read_dir(directory.join("log")).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), copy.path().join("log").join(entry.file_name())).unwrap();
    }
    for entry in std::fs::read_dir(directory.join("segments")).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), copy.path().join("segments").join(entry.file_name())).unwrap();
    }
    copy
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_lost_during_a_compaction_fails_the_statement_and_keeps_the_runs() {
    let outside = tempfile::tempdir().unwrap();
    let path = outside.path().join("nas.media");
    let (directory, database) = fresh().await;
    let mut served = Served::start(&path, [1; 16], anywhere()).await;
    let address = served.address;
    let nas = remote(address, token_file(outside.path(), TOKEN));
    database.add_device("nas", nas).await.unwrap();
    let mut session = database.session();
    run(&mut session, "SET default_device = 'nas'").await;
    eight_loads(&mut session).await;
    drop((session, database));
    let mut lost = 0;
    for delay_ms in [5, 20, 60, 120, 250, 500] {
        let database = open(directory.path()).await;
        assert_no_leak(&database);
        assert_eq!(run_counts(&database), [8, 8]);
        let mut session = database.session();
        let delay = Duration::from_millis(delay_ms);
        let loading = load(&mut session, 8);
        let losing = async {
            tokio::time::sleep(delay).await;
            served.stop().await;
        };
        let (loaded, ()) = futures::future::join(loading, losing).await;
        drop((session, database));
        // Its fragment's threads end a little after it.
        while DirectFile::open(&path, OpenMode::Existing).is_err() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        served = Served::start(&path, [1; 16], address).await;
        match loaded {
            Ok(_) => break,
            Err(error) => assert_eq!(error.sqlstate(), "58030", "{error}"),
        }
        lost += 1;
    }
    let database = open(directory.path()).await;
    assert_no_leak(&database);
    let mut session = database.session();
    if run_counts(&database) == [8, 8] {
        load(&mut session, 8).await.unwrap();
    }
    assert_eq!(run_counts(&database), [1, 1]);
    assert_sound(&database, 9).await;
    assert!(lost > 0, "the device was never lost in time");
    drop(served);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_statement_that_is_given_up_during_a_compaction_leaves_nothing() {
    let (_directory, database) = fresh().await;
    let mut session = database.session();
    eight_loads(&mut session).await;
    let mut random = SplitMix64::new(5);
    for _ in 0..6 {
        let time = Duration::from_millis(random.below(500));
        let given_up = tokio::time::timeout(time, load(&mut session, 8)).await.is_err();
        if !given_up {
            break;
        }
        // The next statement waits for the writer lock, and the space is free by then or soon.
        run(&mut session, "CREATE TABLE u (id int)").await;
        run(&mut session, "DROP TABLE u").await;
        assert_no_leak_soon(&database).await;
        // It was given up after its commit had begun: it is committed.
        if run_counts(&database) == [1, 1] {
            break;
        }
        assert_eq!(run_counts(&database), [8, 8]);
    }
    if run_counts(&database) == [8, 8] {
        load(&mut session, 8).await.unwrap();
    }
    assert_sound(&database, 9).await;
}
