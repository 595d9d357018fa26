//! Reads a log: a folder in, its records out, up to where a crash tore it.
//!
//! 1. [`LogReader::open`] finds the segment that holds the requested place, and reads from that segment's start, which
//!    proves that a record begins at the place.
//! 2. [`LogReader::next_record`] joins the parts of a transaction with its commit, drops those of transactions without
//!    one, and goes from segment to segment.
//! 3. At the first bytes that do not verify, it looks for evidence that they were durable: a later mark, or the header
//!    of a later segment. If there is any, the log is damaged; if not, this is its end.
//! 4. [`super::Wal::resume`] takes the reader and continues at its end.
//!
//! Invariant: memory is bounded by one segment and the open transactions in the log. Reading changes nothing.

#![deny(clippy::indexing_slicing)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::LogError;
use super::record::{
    ALIGNMENT, Decoded, Kind, Lsn, MARK_BYTES, Record, Seed, decode, durable_before,
};
use super::segment::{SEGMENT_HEADER_BYTES, Segment, SegmentHeader, list_segments, read_file};
use crate::transaction::TransactionId;

/// Most bytes that one transaction may log: recovery has them in memory.
pub const TRANSACTION_BYTES_MAX: u64 = 1 << 30;

/// A record as it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogRecord {
    /// Its place; for a transaction with parts, the place of its commit.
    pub at: Lsn,
    /// The place behind it.
    pub end: Lsn,
    /// Its contents.
    pub record: Record<Vec<u8>>,
}

/// Reads a log from a place on.
#[derive(Debug)]
pub struct LogReader {
    directory: PathBuf,
    from: Lsn,
    seed: Seed,
    pub(crate) segment: Segment,
    pub(crate) position: Lsn,
    /// The last mark that was read; None: none in this segment.
    mark: Option<Lsn>,
    parts: BTreeMap<TransactionId, Vec<u8>>,
    is_at_end: bool,
}

impl LogReader {
    /// Reads the log in `directory` from `from` on, where a record begins or the log ends; [`super::Wal::resume_from`]
    /// returned it.
    ///
    /// # Errors
    /// [`LogError::Missing`] if no file holds that place; errors of reading the file.
    pub fn open(directory: &Path, from: Lsn) -> Result<Self, LogError> {
        let missing = || LogError::Missing { directory: directory.to_owned(), at: from };
        let mut starts = list_segments(directory)?;
        starts.retain(|start| *start <= from);
        // A segment may end at the place, and the file of the next one may be empty.
        let segment = loop {
            let start = starts.pop().ok_or_else(missing)?;
            if let Some(segment) = Segment::read(directory, start)? {
                break segment;
            }
        };
        if from > segment.header.end() {
            return Err(missing());
        }
        Ok(Self {
            directory: directory.to_owned(),
            from,
            seed: Seed::new(&segment.header.identity),
            position: Lsn(segment.header.start.0 + SEGMENT_HEADER_BYTES as u64),
            segment,
            mark: None,
            parts: BTreeMap::new(),
            is_at_end: false,
        })
    }

    /// The next record; None at the end of the log.
    ///
    /// # Errors
    /// [`LogError::Damaged`], or errors of reading a file.
    pub fn next_record(&mut self) -> Result<Option<LogRecord>, LogError> {
        while !self.is_at_end {
            let at = self.position;
            let Some(decoded) = decode(tail(&self.segment, at), self.seed, at) else {
                self.next_segment()?;
                continue;
            };
            self.position = Lsn(at.0 + decoded.byte_count as u64);
            let (kind, transaction) = (decoded.kind, decoded.transaction);
            if kind == Kind::Mark {
                self.mark = Some(at);
            }
            if let Some(payload) = collect(&mut self.parts, &decoded)
                && at >= self.from
            {
                let record = match kind {
                    Kind::Commit => Record::Commit { transaction, payload },
                    Kind::Checkpoint => Record::Checkpoint { payload },
                    _ => Record::Note { payload },
                };
                return Ok(Some(LogRecord { at, end: self.position, record }));
            }
        }
        Ok(None)
    }

    /// The end of the log, once found; before that, the position of the next record.
    #[must_use]
    pub fn position(&self) -> Lsn {
        self.position
    }

    /// The log's identity.
    #[must_use]
    pub fn identity(&self) -> [u8; 16] {
        self.segment.header.identity
    }

    /// The wall time at which the current segment was begun, in microseconds since 1970.
    #[must_use]
    pub fn segment_made_at(&self) -> i64 {
        self.segment.header.made_at
    }

    /// Offset in the current segment of the first bytes without evidence of a successful sync: the last mark, with
    /// which the last group of records begins, or the segment's own header.
    pub(crate) fn unproven_offset(&self) -> usize {
        let first = SEGMENT_HEADER_BYTES;
        let mark = self.mark.and_then(|mark| {
            usize::try_from(mark.0.saturating_sub(self.segment.header.start.0)).ok()
        });
        mark.filter(|mark| *mark > first).unwrap_or(0)
    }

    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Continues in the next segment, or finds that this is the end.
    fn next_segment(&mut self) -> Result<(), LogError> {
        let next = Segment::read(&self.directory, self.segment.header.end())?;
        if let Some(next) = next
            && next.header.continues_from == self.position
        {
            if next.header.identity != self.segment.header.identity {
                let reason = "the next file is of another log".to_owned();
                return Err(self.damaged(reason));
            }
            self.position = Lsn(next.header.start.0 + SEGMENT_HEADER_BYTES as u64);
            self.segment = next;
            self.mark = None;
            return Ok(());
        }
        if let Some(reason) = self.what_vouches_for(self.position)? {
            return Err(self.damaged(reason));
        }
        if self.position < self.from {
            let reason = format!("a checkpoint says that it was durable up to {}", self.from);
            return Err(self.damaged(reason));
        }
        self.is_at_end = true;
        Ok(())
    }

    /// Evidence that the bytes at `position`, which do not verify, were durable once.
    fn what_vouches_for(&self, position: Lsn) -> Result<Option<String>, LogError> {
        if let Some(mark) = later_mark(&self.segment.bytes, self.segment.header.start, self) {
            return Ok(Some(format!("a record at {mark} was written when they were durable")));
        }
        for start in list_segments(&self.directory)? {
            if start <= self.segment.header.start {
                continue;
            }
            let Some((path, bytes)) = read_file(&self.directory, start)? else { continue };
            let is_begun = SegmentHeader::decode(&bytes, start).is_ok_and(|header| {
                header.identity == self.segment.header.identity && header.continues_from != position
            });
            if is_begun || later_mark(&bytes, start, self).is_some() {
                return Ok(Some(format!("{} was written when they were durable", path.display())));
            }
        }
        Ok(None)
    }

    fn damaged(&self, reason: String) -> LogError {
        LogError::Damaged {
            path: self.segment.path.clone(),
            offset: self.position.0 - self.segment.header.start.0,
            at: self.position,
            reason,
        }
    }
}

/// The segment's bytes from `at` on.
fn tail(segment: &Segment, at: Lsn) -> &[u8] {
    let offset = at.0.saturating_sub(segment.header.start.0);
    let offset = usize::try_from(offset).unwrap_or(usize::MAX);
    segment.bytes.get(offset..).unwrap_or_default()
}

/// Adds a record to the parts of its transaction; returns the payload, if it completes the transaction.
fn collect(parts: &mut BTreeMap<TransactionId, Vec<u8>>, decoded: &Decoded<'_>) -> Option<Vec<u8>> {
    match decoded.kind {
        Kind::Mark => None,
        Kind::Opened => {
            parts.clear();
            None
        }
        Kind::Part => {
            let payload = parts.entry(decoded.transaction).or_default();
            payload.extend_from_slice(decoded.payload);
            None
        }
        Kind::Abort => {
            parts.remove(&decoded.transaction);
            None
        }
        Kind::Commit | Kind::Checkpoint | Kind::Note => {
            let mut payload = parts.remove(&decoded.transaction).unwrap_or_default();
            payload.extend_from_slice(decoded.payload);
            Some(payload)
        }
    }
}

/// A mark behind the reader's position in the segment at `start` that says that the log was durable beyond that
/// position.
fn later_mark(bytes: &[u8], start: Lsn, reader: &LogReader) -> Option<Lsn> {
    let behind = reader.position.0.saturating_sub(start.0).max(SEGMENT_HEADER_BYTES as u64);
    let first = usize::try_from(behind).ok()?;
    (first..bytes.len()).step_by(ALIGNMENT).find_map(|offset| {
        let bytes = bytes.get(offset..offset.checked_add(MARK_BYTES)?)?;
        // A cheap check that hardly any other bytes pass.
        if bytes.get(4..8)? != [8, 0, 0, Kind::Mark as u8] {
            return None;
        }
        let at = Lsn(start.0 + offset as u64);
        let durable = durable_before(&decode(bytes, reader.seed, at)?)?;
        (durable > reader.position).then_some(at)
    })
}
