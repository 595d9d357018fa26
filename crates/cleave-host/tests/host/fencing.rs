//! Tests of fencing: one host at a time on a device. Copied databases, other databases, devices handed over.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use cleave_device::OwnerRecord;
use cleave_host::check::{CheckOptions, CheckReport, Fault, check};
use cleave_host::inspect::{Subject, open as inspect};
use cleave_host::select::run_query;
use cleave_host::statement::{Statement, parse_script};
use cleave_host::{Database, Error, OpenOptions, Outcome, RemoteDevice};

use crate::devices::{FAR, Served, anywhere, remote, token_file, with_nas};
use crate::support::{
    assert_no_leak, batches, embedded, fresh, numbered, open, refused, row, rows, run,
};

/// A copy of the database in `from`, made as a person would make one.
pub(crate) fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let place = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &place);
        } else {
            std::fs::copy(entry.path(), place).unwrap();
        }
    }
}

fn is_superseded(error: &Error) {
    assert_eq!(error.sqlstate(), "55006", "{error}");
    let message = error.to_string();
    assert!(
        message.contains("\"nas\"") && message.contains("is in use by another host now"),
        "{message}"
    );
}

fn is_copied(error: &Error) {
    assert_eq!(error.sqlstate(), "55006", "{error}");
    assert!(error.to_string().contains("another copy of this database"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_that_is_opened_takes_the_device_and_the_original_has_lost_it() {
    let outside = tempfile::tempdir().unwrap();
    let (directory, original, served, _) = with_nas(outside.path()).await;
    let mut session = original.session();
    assert_eq!(row(&mut session, FAR).await, "20001,200010000");
    let copied = outside.path().join("copy");
    copy(directory.path(), &copied);
    let second = open(&copied).await;

    original.buffer_pool().clear();
    let mut other = second.session();
    run(&mut session, "SET split = h0").await;
    is_superseded(&refused(&mut session, FAR).await);
    // From here on it has looked again, and knows by whom.
    for stack in ["blk", "native", "ndp"] {
        run(&mut session, &format!("SET stack = {stack}")).await;
        is_copied(&refused(&mut session, FAR).await);
    }
    is_copied(&refused(&mut session, "SELECT note FROM far WHERE id = 5").await);
    is_copied(&refused(&mut session, "INSERT INTO far VALUES (-1, '')").await);
    let load = session.load("far", batches(vec![numbered(30_000..31_000)]), None).await;
    is_copied(&load.unwrap_err());
    // Tables that do not need the device continue.
    run(&mut session, "INSERT INTO near VALUES (2, 'still here')").await;
    assert_eq!(row(&mut other, FAR).await, "20001,200010000");
    run(&mut other, "INSERT INTO far VALUES (-1, 'of the copy')").await;

    // Opened again, the original counts the epoch of the copy, or a higher one, and is no nearer.
    drop((session, original));
    for _ in 0..3 {
        let original = open(directory.path()).await;
        let mut session = original.session();
        is_copied(&refused(&mut session, FAR).await);
        is_copied(&refused(&mut session, "INSERT INTO far VALUES (-2, '')").await);
        assert_eq!(row(&mut session, "SELECT count(*) FROM near").await, "2");
    }
    assert_eq!(row(&mut other, "SELECT count(*) FROM far").await, "20002");

    // A restart of the device changes nothing of that.
    let address = served.address;
    served.stop().await;
    let _served = Served::start(&outside.path().join("nas.media"), [1; 16], address).await;
    let original = open(directory.path()).await;
    is_copied(&refused(&mut original.session(), FAR).await);
    run(&mut other, "INSERT INTO far VALUES (-2, 'of the copy')").await;
    drop((other, second));
    let second = open(&copied).await;
    assert_eq!(row(&mut second.session(), "SELECT count(*) FROM far").await, "20003");
    assert_no_leak(&second);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_under_way_when_a_copy_is_opened_fails_and_leaves_nothing() {
    let outside = tempfile::tempdir().unwrap();
    let (directory, original, _served, _) = with_nas(outside.path()).await;
    let copied = outside.path().join("copy");
    copy(directory.path(), &copied);
    // A load that has written some of its pages when the copy is opened.
    let input = {
        let copied = copied.clone();
        futures::stream::unfold(30_000, move |from| {
            let copied = copied.clone();
            async move {
                if from == 90_000 {
                    drop(open(&copied).await);
                }
                (from < 2_000_000).then(|| (Ok(numbered(from..from + 10_000)), from + 10_000))
            }
        })
    };
    let mut session = original.session();
    let error = session.load("far", Box::pin(input), None).await.unwrap_err();
    is_superseded(&error);
    let second = open(&copied).await;
    let mut other = second.session();
    assert_eq!(row(&mut other, FAR).await, "20001,200010000");
    run(&mut other, "INSERT INTO far VALUES (-1, 'of the copy')").await;
    assert_eq!(row(&mut other, "SELECT count(*) FROM far").await, "20002");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fragment_that_runs_when_a_copy_is_opened_says_why_it_ended() {
    let outside = tempfile::tempdir().unwrap();
    let (directory, original, _served, _) = with_nas(outside.path()).await;
    let mut session = original.session();
    let batch = |from: i32| numbered(from..from + 50_000);
    let many = batches((0..6).map(|part| batch(100_000 + part * 50_000)).collect());
    session.load("far", many, None).await.unwrap();
    let copied = outside.path().join("copy");
    copy(directory.path(), &copied);
    for setting in ["split = h0", "slot_count = 1", "slot_bytes = 4096"] {
        run(&mut session, &format!("SET {setting}")).await;
    }
    let parsed = parse_script("SELECT id, note FROM far").unwrap().remove(0);
    let Statement::Query(query) = parsed.statement else { panic!() };
    let mut running = run_query(&original, session.settings(), &*query).await.unwrap();
    let mut seen = running.next().await.unwrap().unwrap().num_rows();
    let _second = open(&copied).await;
    let error = loop {
        match running.next().await {
            Ok(Some(batch)) => seen += batch.num_rows(),
            Ok(None) => panic!("all of its {seen} rows came"),
            Err(error) => break error,
        }
    };
    is_superseded(&error);
}

async fn looked_at(directory: &Path, quick: bool) -> CheckReport {
    let options = CheckOptions { quick, ..CheckOptions::default() };
    check(directory, OpenOptions::new(embedded()), &options).await.unwrap()
}

/// All files of a folder but the embedded device's media, with their contents.
fn files(directory: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let mut found: Vec<_> = entries
        .flat_map(|path| match path.is_dir() {
            true => files(&path),
            false if path.extension().is_some_and(|kind| kind == "media") => Vec::new(),
            false => vec![(path.clone(), std::fs::read(&path).unwrap())],
        })
        .collect();
    found.sort();
    found
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_that_is_looked_at_takes_nothing_from_the_original() {
    let outside = tempfile::tempdir().unwrap();
    let (directory, original, _served, _) = with_nas(outside.path()).await;
    let mut session = original.session();
    let copied = outside.path().join("copy");
    copy(directory.path(), &copied);
    let before = files(&copied);
    for quick in [false, true] {
        let report = looked_at(&copied, quick).await;
        assert!(report.is_clean(), "{:#?}", report.findings);
        assert_eq!(report.counts.tables, 2);
    }
    let (looking, faults) = inspect(&copied, OpenOptions::new(embedded())).await.unwrap();
    assert_eq!(faults, Vec::<String>::new());
    let shown = cleave_host::inspect::inspect(&looking, &Subject::Device, 0).await.unwrap();
    assert!(shown.join("\n").contains(&cleave_fragment::build_id()), "it answers: {shown:#?}");
    drop(looking);
    assert!(files(&copied) == before, "nothing was changed");
    // The original continues, and what it wrote since is its own.
    original.buffer_pool().clear();
    assert_eq!(row(&mut session, FAR).await, "20001,200010000");
    run(&mut session, "INSERT INTO far VALUES (-1, 'still mine')").await;
    drop((session, original));
    let before = files(directory.path());
    assert!(looked_at(directory.path(), false).await.is_clean());
    assert!(files(directory.path()) == before, "nothing was changed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_database_that_was_checked_has_its_devices_when_it_is_mended() {
    let outside = tempfile::tempdir().unwrap();
    let (directory, original, _served, _) = with_nas(outside.path()).await;
    drop(original);
    let segment = std::fs::read_dir(directory.path().join("segments")).unwrap().next();
    let segment = segment.unwrap().unwrap().path();
    let whole = std::fs::read(&segment).unwrap();
    std::fs::write(&segment, &whole[1..]).unwrap();
    for _ in 0..2 {
        let report = looked_at(directory.path(), false).await;
        let [finding] = report.findings.kept() else { panic!("{:#?}", report.findings) };
        assert!(matches!(finding.fault, Fault::File(_)), "{finding:?}");
    }
    std::fs::write(&segment, &whole).unwrap();
    let database = open(directory.path()).await;
    let mut session = database.session();
    assert_eq!(row(&mut session, FAR).await, "20001,200010000");
    run(&mut session, "INSERT INTO far VALUES (-1, 'mended')").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_that_lets_nobody_read_is_no_damaged_media() {
    let outside = tempfile::tempdir().unwrap();
    let (directory, original, served, _) = with_nas(outside.path()).await;
    drop(original);
    let unreachable = async |said: &str| {
        for quick in [false, true] {
            let report = looked_at(directory.path(), quick).await;
            let [finding] = report.findings.kept() else { panic!("{:#?}", report.findings) };
            assert!(matches!(finding.fault, Fault::Unreachable(_)), "{finding:?}");
            assert!(finding.to_string().contains(said), "{finding} does not say {said}");
            assert_eq!(finding.place.device.as_deref(), Some("nas"));
        }
    };
    let token = outside.path().join("token");
    std::fs::remove_file(&token).unwrap();
    unreachable("the token of device").await;
    cleave_media::files::write_durably(&token, b"another-token-than-the-device-s-0123456789")
        .unwrap();
    unreachable("refused the token").await;
    let right = || cleave_media::files::write_durably(&token, crate::devices::TOKEN.as_bytes());
    right().unwrap();
    let readable = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    std::fs::set_permissions(&token, readable).unwrap();
    unreachable("the token of device").await;
    right().unwrap();
    assert!(looked_at(directory.path(), false).await.is_clean());
    // Handed over to another database.
    let address = served.address;
    served.stop().await;
    let media = outside.path().join("nas.media");
    OwnerRecord::beside_identity(&media.with_extension("id")).replace(None).unwrap();
    let served = Served::start(&media, [1; 16], address).await;
    assert!(looked_at(directory.path(), false).await.is_clean(), "nobody's yet");
    let (_other_directory, other) = fresh().await;
    attach(&other, &remote(address, token)).await.unwrap();
    unreachable("serves another database").await;
    served.stop().await;
    unreachable("is offline").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_was_moved_keeps_its_devices() {
    let outside = tempfile::tempdir().unwrap();
    let (directory, database, _served, _) = with_nas(outside.path()).await;
    drop(database);
    let moved = outside.path().join("moved");
    std::fs::rename(directory.path(), &moved).unwrap();
    for round in 0..3 {
        let database = open(&moved).await;
        let mut session = database.session();
        run(&mut session, &format!("INSERT INTO far VALUES (-1 - {round}, '')")).await;
        assert_no_leak(&database);
    }
    let database = open(&moved).await;
    assert_eq!(row(&mut database.session(), "SELECT count(*) FROM far").await, "20004");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_of_the_same_epoch_is_not_let_in_after_a_hand_over() {
    let outside = tempfile::tempdir().unwrap();
    let (directory, database, served, _) = with_nas(outside.path()).await;
    drop(database);
    let copied = outside.path().join("copy");
    copy(directory.path(), &copied);
    // Both count the same epoch. The original has the device, which then forgets whose it is.
    let original = open(directory.path()).await;
    let mut session = original.session();
    assert_eq!(row(&mut session, FAR).await, "20001,200010000");
    let address = served.address;
    served.stop().await;
    let media = outside.path().join("nas.media");
    OwnerRecord::beside_identity(&media.with_extension("id")).replace(None).unwrap();
    let _served = Served::start(&media, [1; 16], address).await;
    let second = open(&copied).await;
    let mut other = second.session();
    run(&mut other, "INSERT INTO far VALUES (-1, 'of the copy')").await;

    original.buffer_pool().clear();
    run(&mut session, "SET split = h0").await;
    is_superseded(&refused(&mut session, FAR).await);
    for stack in ["blk", "native", "ndp"] {
        run(&mut session, &format!("SET stack = {stack}")).await;
        is_copied(&refused(&mut session, FAR).await);
    }
    is_copied(&refused(&mut session, "INSERT INTO far VALUES (-2, 'of the original')").await);
    assert_eq!(row(&mut other, "SELECT count(*), min(id) FROM far").await, "20002,-1");
}

async fn attach(database: &Arc<Database>, remote: &RemoteDevice) -> Result<(), Error> {
    database.add_device("nas", remote.clone()).await.map(|_| ())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_is_another_databases_until_it_is_removed_there() {
    let outside = tempfile::tempdir().unwrap();
    let (_directory, first, _served, remote) = with_nas(outside.path()).await;
    let (_other_directory, second) = fresh().await;
    let error = attach(&second, &remote).await.unwrap_err();
    assert_eq!(error.sqlstate(), "55006");
    assert!(error.to_string().contains("serves another database"), "{error}");
    assert!(error.to_string().contains("--hand-over"), "{error}");

    let error = first.remove_device("nas").await.unwrap_err();
    assert_eq!(error.sqlstate(), "2BP01");
    assert!(error.to_string().contains("tables are stored on it: far"), "{error}");
    assert_eq!(first.remove_device("embedded").await.unwrap_err().sqlstate(), "22023");
    assert_eq!(first.remove_device("nass").await.unwrap_err().sqlstate(), "42704");
    let mut session = first.session();
    run(&mut session, "DROP TABLE far").await;
    assert!(first.remove_device("nas").await.unwrap().is_none(), "the device was told");
    assert_eq!(first.devices().len(), 1);
    run(&mut session, "SET default_device = nas").await;
    refused(&mut session, "CREATE TABLE far (id int)").await;

    attach(&second, &remote).await.unwrap();
    let mut session = second.session();
    run(&mut session, "SET default_device = nas").await;
    run(&mut session, "CREATE TABLE theirs (id int PRIMARY KEY)").await;
    run(&mut session, "INSERT INTO theirs VALUES (1), (2)").await;
    assert_eq!(rows(&mut session, "SELECT id FROM theirs ORDER BY id").await, ["1", "2"]);
    assert_eq!(attach(&first, &remote).await.unwrap_err().sqlstate(), "55006");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_that_a_statement_still_reads_is_not_removed() {
    let outside = tempfile::tempdir().unwrap();
    let (_directory, database, _served, _) = with_nas(outside.path()).await;
    let mut session = database.session();
    for setting in ["split = h0", "slot_count = 1", "slot_bytes = 4096"] {
        run(&mut session, &format!("SET {setting}")).await;
    }
    let parsed = parse_script("SELECT id, note FROM far").unwrap().remove(0);
    let Statement::Query(query) = parsed.statement else { panic!() };
    let mut running = run_query(&database, session.settings(), &*query).await.unwrap();
    let mut seen = running.next().await.unwrap().unwrap().num_rows();
    run(&mut session, "DROP TABLE far").await;
    let error = database.remove_device("nas").await.unwrap_err();
    assert_eq!(error.sqlstate(), "55006", "{error}");
    assert!(error.to_string().contains("still read"), "{error}");
    while let Some(batch) = running.next().await.unwrap() {
        seen += batch.num_rows();
    }
    assert_eq!(seen, 20_001);
    drop(running);
    assert!(database.remove_device("nas").await.unwrap().is_none(), "the device was told");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_that_is_offline_is_removed_and_must_be_handed_over() {
    let outside = tempfile::tempdir().unwrap();
    let (_directory, first) = fresh().await;
    let media = outside.path().join("nas.media");
    let served = Served::start(&media, [1; 16], anywhere()).await;
    let address = served.address;
    let remote = remote(address, token_file(outside.path(), crate::devices::TOKEN));
    attach(&first, &remote).await.unwrap();
    served.stop().await;
    let untold = first.remove_device("nas").await.unwrap().unwrap();
    assert_eq!(untold.sqlstate(), "58030");
    let (_other_directory, second) = fresh().await;
    let served = Served::start(&media, [1; 16], address).await;
    assert_eq!(attach(&second, &remote).await.unwrap_err().sqlstate(), "55006");
    served.stop().await;
    // The action of `cleaved --hand-over`.
    OwnerRecord::beside_identity(&media.with_extension("id")).replace(None).unwrap();
    let _served = Served::start(&media, [1; 16], address).await;
    attach(&second, &remote).await.unwrap();
    let outcomes = run(&mut second.session(), "SELECT 1").await;
    assert!(matches!(outcomes.as_slice(), [Outcome::Rows { .. }]));
}
