//! Appended records are read back: after a clean end, after any cut, after any flipped bit, after a loss of power.

pub(crate) mod crash;
mod damage;
pub(crate) mod group;

use std::path::Path;

use super::*;
use crate::transaction::TransactionId;
use segment::list_segments;

fn small() -> LogOptions {
    LogOptions { segment_bytes: 4096, spare_segment_count: 1, reserve_bytes: 0, archive: None }
}

fn commit(number: u64, payload: &[u8]) -> Record<&[u8]> {
    Record::Commit { transaction: TransactionId(number), payload }
}

/// A payload that contains its number, of varying length.
fn payload(number: u64) -> Vec<u8> {
    let length = usize::try_from(number * 37 % 700).unwrap();
    number.to_le_bytes().into_iter().cycle().take(8 + length).collect()
}

fn read(directory: &Path, from: Lsn) -> Result<Vec<LogRecord>, LogError> {
    let mut reader = LogReader::open(directory, from)?;
    let mut records = Vec::new();
    while let Some(record) = reader.next_record()? {
        records.push(record);
    }
    Ok(records)
}

fn numbers(records: &[LogRecord]) -> Vec<u64> {
    let number = |record: &LogRecord| match &record.record {
        Record::Commit { transaction, payload: found } => {
            assert_eq!(*found, payload(transaction.0));
            transaction.0
        }
        other => panic!("{other:?}"),
    };
    records.iter().map(number).collect()
}

#[test]
fn a_log_gives_back_its_records_over_many_segments_and_restarts() {
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().join("log");
    let log = Wal::create(&directory, Lsn(0), small()).unwrap();
    let start = log.resume_from();
    for number in 1..=50 {
        let appended = log.append(commit(number, &payload(number))).unwrap();
        log.wait_durable(appended.end).unwrap();
    }
    drop(log);
    let mut written = 50;
    for _ in 0..3 {
        let records = read(&directory, start).unwrap();
        assert_eq!(numbers(&records), (1..=written).collect::<Vec<_>>());
        let from_middle = read(&directory, records[20].at).unwrap();
        assert_eq!(from_middle, records[20..]);
        let reader = LogReader::open(&directory, records[30].end).unwrap();
        let log = Wal::resume(reader, small()).unwrap();
        for number in written + 1..=written + 10 {
            log.append(commit(number, &payload(number))).unwrap();
        }
        log.flush().unwrap();
        written += 10;
    }
    assert!(list_segments(&directory).unwrap().len() > 5);
}

#[test]
fn parts_are_joined_with_their_commit_and_dropped_without() {
    let folder = tempfile::tempdir().unwrap();
    let log = Wal::create(folder.path(), Lsn(0), small()).unwrap();
    let start = log.resume_from();
    log.append(Record::Note { payload: b"first" }).unwrap();
    let first = log.append_part(TransactionId(1), b"a").unwrap();
    log.append_part(TransactionId(2), b"x").unwrap();
    log.append_part(TransactionId(1), b"b").unwrap();
    assert_eq!(log.resume_from(), first.at);
    // Larger than a segment.
    let large = vec![7; 10_000];
    log.append(Record::Checkpoint { payload: &large }).unwrap();
    log.append(commit(1, b"c")).unwrap();
    log.abort(TransactionId(2)).unwrap();
    log.append(commit(2, b"y")).unwrap();
    log.append_part(TransactionId(3), b"lost").unwrap();
    log.flush().unwrap();
    drop(log);
    let log = Wal::resume(LogReader::open(folder.path(), start).unwrap(), small()).unwrap();
    assert_eq!(log.resume_from(), log.end());
    log.append(commit(3, b"z")).unwrap();
    log.flush().unwrap();
    let records: Vec<_> =
        read(folder.path(), start).unwrap().into_iter().map(|read| read.record).collect();
    let commit = |number, payload: &[u8]| Record::Commit {
        transaction: TransactionId(number),
        payload: payload.to_vec(),
    };
    let expected = [
        Record::Note { payload: b"first".to_vec() },
        Record::Checkpoint { payload: large },
        commit(1, b"abc"),
        commit(2, b"y"),
        commit(3, b"z"),
    ];
    assert_eq!(records, expected);
}
