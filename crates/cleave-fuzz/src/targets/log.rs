//! The log: a segment's file, as a crash or a foreign writer may leave it.
//!
//! Checksums are corrected as far as lengths lead from record to record. Records that were read must be read again
//! after the log is resumed, followed by newly appended ones.

use cleave_txn::wal::record::{RECORD_HEADER_BYTES, Seed, encode, record_bytes};
use cleave_txn::wal::segment::{SEGMENT_HEADER_BYTES, segment_path};
use cleave_txn::{LogError, LogOptions, LogReader, LogRecord, Lsn, Record, TransactionId, Wal};

use super::Target;
use crate::mutate::Shape;

/// A log of one segment.
pub const TARGET: Target = Target { name: "log", shape: Shape::Flat, seeds, run };

/// The offset of the first record.
const FIRST: Lsn = Lsn(SEGMENT_HEADER_BYTES as u64);

fn options() -> LogOptions {
    LogOptions { segment_bytes: 1 << 16, reserve_bytes: 0, ..LogOptions::default() }
}

/// Reads one input.
fn run(input: &[u8]) {
    let Ok(folder) = tempfile::tempdir() else { return };
    let path = segment_path(folder.path(), Lsn(0));
    if std::fs::write(&path, repaired(input)).is_err() {
        return;
    }
    let Ok(mut records) = read(folder.path()) else { return };
    // Syncs of the log take as long as many inputs.
    if !input.len().is_multiple_of(16) {
        return;
    }
    let reader = LogReader::open(folder.path(), FIRST);
    let Ok(log) = reader.and_then(|reader| Wal::resume(reader, options())) else {
        panic!("what can be read can be resumed");
    };
    let appended = log.append(Record::Note { payload: b"after" });
    let Ok(appended) = appended else { panic!("{appended:?}") };
    assert!(log.flush().is_ok(), "what was appended is durable");
    let record = Record::Note { payload: b"after".to_vec() };
    records.push(LogRecord { at: appended.at, end: appended.end, record });
    assert_eq!(read(folder.path()).ok(), Some(records), "the log changes when it is resumed");
}

fn read(folder: &std::path::Path) -> Result<Vec<LogRecord>, LogError> {
    let mut reader = LogReader::open(folder, FIRST)?;
    let mut records = Vec::new();
    while let Some(record) = reader.next_record()? {
        records.push(record);
    }
    Ok(records)
}

/// `input` with correct checksums.
fn repaired(input: &[u8]) -> Vec<u8> {
    let mut bytes = input.to_vec();
    let Some(header) = bytes.get_mut(..SEGMENT_HEADER_BYTES) else { return bytes };
    let (covered, checksum) = header.split_at_mut(SEGMENT_HEADER_BYTES - 4);
    checksum.copy_from_slice(&crc32c::crc32c(covered).to_le_bytes());
    let mut identity = [0; 16];
    identity.copy_from_slice(&covered[16..32]);
    let seed = Seed::new(&identity);
    let mut at = SEGMENT_HEADER_BYTES;
    while let Some(head) = bytes.get(at..at + RECORD_HEADER_BYTES) {
        let length = u32::from_le_bytes([head[4], head[5], head[6], 0]) as usize;
        let (kind, mut id) = (head[7], [0; 8]);
        id.copy_from_slice(&head[8..]);
        let behind = at + RECORD_HEADER_BYTES;
        let Some(payload) = bytes.get(behind..behind + length) else { break };
        let Some(kind) = cleave_txn::wal::record::Kind::from_byte(kind) else { break };
        let mut record = Vec::new();
        let what = (kind, TransactionId(u64::from_le_bytes(id)));
        encode(&mut record, seed, Lsn(at as u64), what, (payload, crc32c::crc32c(payload)));
        let end = at + record_bytes(length);
        let Some(place) = bytes.get_mut(at..end) else { break };
        place.copy_from_slice(&record);
        at = end;
    }
    bytes
}

fn seeds() -> Vec<Vec<u8>> {
    (0..8_u64).filter_map(seed).collect()
}

/// The file of a log with a few records.
fn seed(number: u64) -> Option<Vec<u8>> {
    let folder = tempfile::tempdir().ok()?;
    let log = Wal::create(folder.path(), Lsn(0), options()).ok()?;
    for index in 0..number {
        let transaction = TransactionId(index % 3);
        let payload: Vec<u8> = (0..index * 5).map(|byte| byte.to_le_bytes()[0]).collect();
        let payload = payload.as_slice();
        match (number + index) % 5 {
            0 => drop(log.append_part(transaction, payload).ok()?),
            1 => log.abort(transaction).ok()?,
            2 => drop(log.append(Record::Checkpoint { payload }).ok()?),
            _ => drop(log.append(Record::Commit { transaction, payload }).ok()?),
        }
        if index % 2 == 0 {
            log.flush().ok()?;
        }
    }
    log.flush().ok()?;
    let mut bytes = std::fs::read(segment_path(folder.path(), Lsn(0))).ok()?;
    // Without most of the zeros.
    let used = bytes.iter().rposition(|byte| *byte != 0)?;
    bytes.truncate(used + 64);
    Some(bytes)
}
