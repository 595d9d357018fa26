//! Power that goes at any moment, a disk that fills, syncs that fail, processes that are killed.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::rc::Rc;
use std::task::Waker;
use std::time::Duration;

use cleave_media::files::Files;
use cleave_media::simulation::{Entered, World, enter};
use cleave_media::{ForgetfulFiles, SplitMix64};
use proptest::prelude::*;

use super::*;

/// A world whose files forget.
pub(super) struct Forgetful(pub(super) ForgetfulFiles);

impl World for Forgetful {
    fn now(&self) -> Duration {
        Duration::ZERO
    }

    fn wall(&self) -> i64 {
        0
    }

    fn fill_random(&self, bytes: &mut [u8]) {
        bytes.fill(7);
    }

    fn wake_at(&self, _at: Duration, waker: Waker) {
        waker.wake();
    }

    fn files(&self) -> &dyn Files {
        &self.0
    }
}

impl Forgetful {
    pub(super) fn enter(files: &ForgetfulFiles) -> Entered {
        enter(Rc::new(Self(files.clone())))
    }
}

/// One life after another of one log, in a world that loses power between them, with a model of what must be there.
fn live(seed: u64, options: &LogOptions) {
    let mut random = SplitMix64::new(seed);
    let folder = tempfile::tempdir().unwrap();
    let files = ForgetfulFiles::new();
    let _world = Forgetful::enter(&files);
    let directory = folder.path().join("log");
    let mut log = Wal::create(&directory, Lsn(0), options.clone()).unwrap();
    // From where recovery reads, what it must find there, and how much of that at least.
    let mut from = log.resume_from();
    let mut expected: Vec<Vec<u8>> = Vec::new();
    for life in 0..8_u8 {
        let mut acknowledged = expected.len();
        files.limit_space((random.below(3) == 0).then(|| random.below(20_000)));
        // Few lengths, so that what one life wrote often begins where another's ends.
        let mut append = |log: &Wal, expected: &mut Vec<Vec<u8>>, length: u64| {
            let mut payload = vec![life; 8 * usize::try_from(length).unwrap()];
            payload.extend_from_slice(&random.next_u64().to_le_bytes());
            let appended = log.append(commit(1, &payload));
            match &appended {
                Ok(_) => expected.push(payload),
                Err(LogError::Full { .. } | LogError::Failed { .. }) => {}
                Err(error) => panic!("{error}"),
            }
            appended
        };
        let mut dice = SplitMix64::new(seed ^ u64::from(life) << 32);
        for _step in 0..dice.below(60) {
            match dice.below(24) {
                0..4 => drop(append(&log, &mut expected, 0)),
                4..8 => drop(append(&log, &mut expected, 1)),
                8..12 => drop(append(&log, &mut expected, 2)),
                12..16 => drop(append(&log, &mut expected, 5)),
                16..18 => drop(append(&log, &mut expected, dice.below(300))),
                18..23 => {
                    log.flush().unwrap();
                    acknowledged = expected.len();
                }
                _ => {
                    log.flush().unwrap();
                    acknowledged = 0;
                    from = log.resume_from();
                    expected.clear();
                    log.truncate_before(from).unwrap();
                }
            }
        }
        files.limit_space(None);
        if dice.below(4) == 0 {
            files.fail_syncs(true);
            if let Ok(appended) = append(&log, &mut expected, 1) {
                assert!(matches!(log.wait_durable(appended.end), Err(LogError::Failed { .. })));
                let again = append(&log, &mut expected, 1);
                assert!(matches!(again, Err(LogError::Failed { .. })));
            }
            files.fail_syncs(false);
        }
        drop(log);
        files.lose_power(|bound| dice.below(bound), |_| ()).unwrap();
        let found = read(&directory, from).unwrap().into_iter();
        let found: Vec<Vec<u8>> = found.map(|read| read.record.payload().clone()).collect();
        assert!(found.len() >= acknowledged, "seed {seed}: what was acknowledged is lost");
        assert!(expected.starts_with(&found), "seed {seed}: what was never written is found");
        expected.truncate(found.len());
        log = Wal::resume(LogReader::open(&directory, from).unwrap(), options.clone()).unwrap();
    }
}

/// One sync fails, the log is opened anew as often as `restarts`, goes on, and then power goes: what a failed sync
/// was to store was in the page cache alone, where each start finds it.
fn goes_on_after_a_failed_sync(options: &LogOptions, before: u64, restarts: u64) {
    let folder = tempfile::tempdir().unwrap();
    let files = ForgetfulFiles::new();
    let _world = Forgetful::enter(&files);
    let directory = folder.path().join("log");
    let mut log = Wal::create(&directory, Lsn(0), options.clone()).unwrap();
    let start = log.resume_from();
    for number in 1..=before {
        log.append(commit(number, &payload(number))).unwrap();
        log.flush().unwrap();
    }
    let mut written = before;
    for _ in 0..restarts {
        for _ in 0..3 {
            written += 1;
            log.append(commit(written, &payload(written))).unwrap();
        }
        files.fail_syncs(true);
        assert!(matches!(log.flush(), Err(LogError::Failed { .. })) && log.has_failed());
        files.fail_syncs(false);
        drop(log);
        log = Wal::resume(LogReader::open(&directory, start).unwrap(), options.clone()).unwrap();
        // Whoever reads it now takes it for committed. What was of the next segment was not written.
        let found = numbers(&read(&directory, start).unwrap());
        assert!(found.iter().copied().eq(1..=found.len() as u64), "{found:?}");
        assert!((written - 3..=written).contains(&(found.len() as u64)), "{found:?}");
        written = found.len() as u64;
    }
    written += 1;
    log.append(commit(written, &payload(written))).unwrap();
    log.flush().unwrap();
    drop(log);
    files.lose_power(|bound| bound - 1, |_| ()).unwrap();
    assert_eq!(numbers(&read(&directory, start).unwrap()), (1..=written).collect::<Vec<_>>());
    drop(Wal::resume(LogReader::open(&directory, start).unwrap(), options.clone()).unwrap());
}

#[test]
fn a_failed_sync_leaves_no_hole_in_the_log_that_goes_on() {
    for before in 0..20 {
        for restarts in 1..4 {
            goes_on_after_a_failed_sync(&small(), before, restarts);
            goes_on_after_a_failed_sync(&LogOptions::default(), before, restarts);
        }
    }
}

#[test]
fn what_a_failed_start_wiped_away_does_not_come_back() {
    let folder = tempfile::tempdir().unwrap();
    let files = ForgetfulFiles::new();
    let _world = Forgetful::enter(&files);
    let log = Wal::create(folder.path(), Lsn(0), small()).unwrap();
    let start = log.resume_from();
    // One group: a mark of 24 bytes, a record of 64, and one that begins 88 bytes behind the start.
    log.append(commit(1, &[1; 48])).unwrap();
    let left = log.append(commit(2, &[2; 8])).unwrap();
    log.flush().unwrap();
    drop(log);
    // Of that group a loss of power has taken the first record.
    let path = segment::segment_path(folder.path(), Lsn(0));
    let file = files.open(&path).unwrap();
    file.write_at(64, &[0; 24]).unwrap();
    file.sync().unwrap();
    // A start wipes the rest away, and its sync fails; the next one finds zeros.
    files.fail_syncs(true);
    let resume = || Wal::resume(LogReader::open(folder.path(), start).unwrap(), small());
    assert!(resume().is_err());
    files.fail_syncs(false);
    let log = resume().unwrap();
    let end = log.append(commit(3, &[3; 32])).unwrap().end;
    assert_eq!(end, left.at);
    log.flush().unwrap();
    drop(log);
    files.lose_power(|_| 0, |_| ()).unwrap();
    assert_eq!(read(folder.path(), start).unwrap().len(), 1, "what was never committed is found");
}

#[test]
fn a_log_replica_ends_where_it_is_durable() {
    let folder = tempfile::tempdir().unwrap();
    let (directory, copy) = (folder.path().join("log"), folder.path().join("copy"));
    let files = ForgetfulFiles::new();
    let _world = Forgetful::enter(&files);
    let log = Wal::create(&directory, Lsn(0), small()).unwrap();
    let start = log.resume_from();
    for number in 1..=20 {
        log.append(commit(number, &payload(number))).unwrap();
        log.flush().unwrap();
    }
    log.append(commit(21, &payload(21))).unwrap();
    files.fail_syncs(true);
    log.flush().unwrap_err();
    assert_eq!(read(&directory, start).unwrap().len(), 21, "it is written, and not durable");
    assert!(log.copy_to(&copy, Lsn(0)).is_err());
    log.copy_durable_to(&copy, Lsn(0)).unwrap();
    assert_eq!(numbers(&read(&copy, start).unwrap()), (1..=20).collect::<Vec<_>>());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn what_was_acknowledged_survives_and_nothing_else_appears(seed in any::<u64>(), spares in 0_usize..3) {
        live(seed, &LogOptions { spare_segment_count: spares, ..small() });
    }
}

/// A record too large for the disk had made the file of the next segment, and the checkpoint ends where that begins.
#[test]
fn a_log_that_ends_with_a_segment_is_found_behind_an_empty_file() {
    live(13_720_245_134_198_939_458, &LogOptions { spare_segment_count: 0, ..small() });
}

#[test]
fn what_a_torn_group_left_behind_does_not_come_back() {
    let folder = tempfile::tempdir().unwrap();
    let log = Wal::create(folder.path(), Lsn(0), small()).unwrap();
    let start = log.resume_from();
    // One group: a mark of 24 bytes, a record of 64, and one that begins 88 bytes behind the start.
    log.append(commit(1, &[1; 48])).unwrap();
    let left = log.append(commit(2, &[2; 8])).unwrap();
    log.flush().unwrap();
    drop(log);
    assert_eq!(left.at.0 - start.0, 88);
    // Of that group the first sector was lost.
    let path = segment::segment_path(folder.path(), Lsn(0));
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[64..88].fill(0);
    std::fs::write(&path, &bytes).unwrap();
    let log = Wal::resume(LogReader::open(folder.path(), start).unwrap(), small()).unwrap();
    // A mark, the record of the start, and one that ends where the old one begins.
    let end = log.append(commit(3, &[3; 32])).unwrap().end;
    assert_eq!(end, left.at);
    log.flush().unwrap();
    let records = read(folder.path(), start).unwrap();
    assert_eq!(records.len(), 1);
}

#[test]
fn a_full_disk_refuses_a_record_and_keeps_the_log() {
    let folder = tempfile::tempdir().unwrap();
    let files = ForgetfulFiles::new();
    let _world = Forgetful::enter(&files);
    let log = Wal::create(folder.path(), Lsn(0), LogOptions::default()).unwrap();
    let start = log.resume_from();
    log.append(commit(1, &payload(1))).unwrap();
    files.limit_space(Some(1 << 20));
    let (end, large) = (log.end(), vec![1; 4 << 20]);
    let error = log.append(commit(2, &large)).unwrap_err();
    assert!(matches!(error, LogError::Full { .. }), "{error}");
    assert_eq!(log.end(), end, "nothing of it was appended");
    log.append(commit(2, &payload(2))).unwrap();
    files.limit_space(Some(0));
    while log.append(commit(3, &[3; 4000])).is_ok() {}
    log.append(commit(3, b"")).unwrap_or(Appended { at: end, end });
    log.flush().unwrap();
    drop(log);
    // Incarnation needs no space.
    let log = Wal::resume(LogReader::open(folder.path(), start).unwrap(), small()).unwrap();
    files.limit_space(None);
    log.append(commit(4, &payload(4))).unwrap();
    log.flush().unwrap();
    let records = read(folder.path(), start).unwrap();
    assert_eq!(records.first().unwrap().record, commit_of(1));
    assert_eq!(records.last().unwrap().record, commit_of(4));
}

#[test]
fn what_makes_room_is_logged_on_a_full_disk() {
    let folder = tempfile::tempdir().unwrap();
    let files = ForgetfulFiles::new();
    let _world = Forgetful::enter(&files);
    let options = LogOptions { reserve_bytes: 100_000, ..small() };
    let log = Wal::create(folder.path(), Lsn(0), options).unwrap();
    let start = log.resume_from();
    files.limit_space(Some(0));
    let mut number = 0;
    let refused = loop {
        match log.append(commit(number + 1, &payload(number + 1))) {
            Ok(_) => number += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, LogError::Full { .. }) && log.has_reserve());
    for _ in 0..40 {
        number += 1;
        log.append_urgent(commit(number, &payload(number))).unwrap();
    }
    assert!(!log.has_reserve());
    log.flush().unwrap();
    assert_eq!(numbers(&read(folder.path(), start).unwrap()), (1..=number).collect::<Vec<_>>());
    files.limit_space(Some(10_000));
    assert!(log.restore_reserve(0).is_err() && !log.has_reserve());
    files.limit_space(None);
    log.restore_reserve(0).unwrap();
    assert!(log.has_reserve());
    log.restore_reserve(150_000).unwrap();
    let reserve = folder.path().join("reserve");
    assert_eq!(std::fs::metadata(&reserve).unwrap().len(), 150_000);
    assert!(log.release_reserve() && !log.release_reserve() && !reserve.exists());
}

#[test]
fn what_is_put_aside_for_restarts_grows_where_there_is_room_and_goes_first() {
    let folder = tempfile::tempdir().unwrap();
    let files = ForgetfulFiles::new();
    let _world = Forgetful::enter(&files);
    let options = LogOptions { reserve_bytes: 100_000, ..small() };
    let log = Wal::create(folder.path(), Lsn(0), options).unwrap();
    // Segments that are not needed any more are kept to be used again, one of them.
    for number in 1..=40 {
        log.append(commit(number, &payload(number))).unwrap();
    }
    log.flush().unwrap();
    log.truncate_before(log.resume_from()).unwrap();
    drop(log);
    let names = || {
        let entries = std::fs::read_dir(folder.path()).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
        names.retain(|name| name.to_str().is_some_and(|name| !name.ends_with(".log")));
        names.sort();
        names
    };
    let bytes = || std::fs::metadata(folder.path().join("reserve.start")).unwrap().len();
    reserve_for_start(folder.path(), 5000).unwrap();
    reserve_for_start(folder.path(), 3000).unwrap();
    assert_eq!(bytes(), 5000);
    files.limit_space(Some(0));
    assert!(reserve_for_start(folder.path(), 9000).is_err());
    assert_eq!(bytes(), 5000);
    files.limit_space(None);
    reserve_for_start(folder.path(), 9000).unwrap();
    assert_eq!(bytes(), 9000);
    let all = ["1.spare", "reserve", "reserve.start"];
    for left in [&all[..], &all[..2], &all[..1], &[]] {
        assert_eq!(names(), left);
        assert_eq!(release_reserve(folder.path()), !left.is_empty());
    }
}

fn commit_of(number: u64) -> Record<Vec<u8>> {
    Record::Commit { transaction: TransactionId(number), payload: payload(number) }
}

#[test]
fn what_is_given_up_is_archived_and_the_archive_is_a_log() {
    let folder = tempfile::tempdir().unwrap();
    let (directory, archive) = (folder.path().join("log"), folder.path().join("archive"));
    let options = LogOptions { archive: Some(archive.clone()), ..small() };
    let log = Wal::create(&directory, Lsn(0), options).unwrap();
    let start = log.resume_from();
    for number in 1..=60 {
        log.append(commit(number, &payload(number))).unwrap();
        if number % 20 == 0 {
            log.flush().unwrap();
            assert!(log.truncate_before(log.resume_from()).unwrap() > 0);
        }
    }
    log.archive().unwrap();
    assert!(matches!(LogReader::open(&directory, start), Err(LogError::Missing { .. })));
    let records = read(&archive, start).unwrap();
    assert_eq!(numbers(&records), (1..=60).collect::<Vec<_>>());
    // The last one grows, and its copy with it.
    log.append(commit(61, &payload(61))).unwrap();
    log.archive().unwrap();
    assert_eq!(read(&archive, start).unwrap().len(), 61);
}

/// The child of the test below: appends, and says what is durable.
#[test]
#[ignore = "run as a child"]
fn child_that_is_killed() {
    let Ok(directory) = std::env::var("CLEAVE_TXN_KILLED_LOG") else { return };
    let directory = Path::new(&directory);
    let reader = LogReader::open(directory, Lsn(64)).unwrap();
    let log = Wal::resume(reader, small()).unwrap();
    let first = read(directory, Lsn(64)).unwrap().len() as u64 + 1;
    for number in first.. {
        let appended = log.append(commit(number, &payload(number))).unwrap();
        log.wait_durable(appended.end).unwrap();
        println!("durable {number}");
    }
}

#[test]
fn a_process_that_is_killed_loses_nothing_that_it_acknowledged() {
    let folder = tempfile::tempdir().unwrap();
    drop(Wal::create(folder.path(), Lsn(0), small()).unwrap());
    for round in 1..=3_u64 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "wal::tests::crash::child_that_is_killed",
                "--ignored",
                "--nocapture",
            ])
            .env("CLEAVE_TXN_KILLED_LOG", folder.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut acknowledged = 0;
        for line in lines {
            if let Some(number) = line.unwrap().strip_prefix("durable ") {
                acknowledged = number.parse().unwrap();
                if acknowledged >= round * 40 {
                    break;
                }
            }
        }
        child.kill().unwrap();
        child.wait().unwrap();
        let found = numbers(&read(folder.path(), Lsn(64)).unwrap());
        assert_eq!(found, (1..=found.len() as u64).collect::<Vec<_>>());
        assert!(found.len() as u64 >= acknowledged && acknowledged >= round * 40);
    }
}
