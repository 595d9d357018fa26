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
    // From where recovery reads, and the first record there.
    let (mut from, mut first) = (log.resume_from(), 1);
    let mut next = 1;
    for _life in 0..6 {
        let mut acknowledged = next - 1;
        files.limit_space((random.below(3) == 0).then(|| random.below(20_000)));
        for _step in 0..random.below(60) {
            match random.below(12) {
                0..8 => match log.append(commit(next, &payload(next))) {
                    Ok(_) => next += 1,
                    Err(error) => assert!(matches!(error, LogError::Full { .. }), "{error}"),
                },
                8..11 => {
                    log.flush().unwrap();
                    acknowledged = next - 1;
                }
                _ => {
                    log.flush().unwrap();
                    acknowledged = next - 1;
                    (from, first) = (log.resume_from(), next);
                    log.truncate_before(from).unwrap();
                }
            }
        }
        files.limit_space(None);
        let syncs_fail = random.below(4) == 0;
        if syncs_fail {
            files.fail_syncs(true);
            let appended = log.append(commit(next, &payload(next)));
            if let Ok(appended) = appended {
                next += 1;
                assert!(matches!(log.wait_durable(appended.end), Err(LogError::Failed { .. })));
                let again = log.append(commit(next, b""));
                assert!(matches!(again, Err(LogError::Failed { .. })));
            }
            files.fail_syncs(false);
        }
        drop(log);
        files.lose_power(|bound| random.below(bound), |_| ()).unwrap();
        let records = read(&directory, from).unwrap();
        let found = numbers(&records);
        let last = found.last().copied().unwrap_or(first - 1);
        assert_eq!(found, (first..=last).collect::<Vec<_>>(), "seed {seed}");
        assert!(
            last >= acknowledged && last < next,
            "seed {seed}: {last} of {acknowledged}, {next}"
        );
        log = Wal::resume(LogReader::open(&directory, from).unwrap(), options.clone()).unwrap();
        next = last + 1;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn what_was_acknowledged_survives_and_nothing_else_appears(seed in any::<u64>(), spares in 0_usize..3) {
        live(seed, &LogOptions { spare_segment_count: spares, ..small() });
    }
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
    files.limit_space(None);
    log.append(commit(4, &payload(4))).unwrap();
    log.flush().unwrap();
    let records = read(folder.path(), start).unwrap();
    assert_eq!(records.first().unwrap().record, commit_of(1));
    assert_eq!(records.last().unwrap().record, commit_of(4));
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
