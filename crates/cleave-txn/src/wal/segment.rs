//! The files of a log: places in, files and their headers out.
//!
//! ```text
//!  0          8         12         16         32      40               48        56     60
//!  ├──────────┼─────────┼──────────┼──────────┼───────┼────────────────┼─────────┼──────┼────────┤
//!  │ CLEAVLOG │ version │ capacity │ identity │ start │ continues from │ made at │ zero │ crc32c │
//!  │          │ u32     │ u32      │ of log   │ LSN   │ LSN            │ i64 µs  │ u32  │ of all │
//! ```
//!
//! A segment is named by the place of its first byte, in hexadecimal; the next one begins `capacity` bytes further.
//! *Continues from* is the end of the records of the segment before.
//!
//! Invariant: a header is written only when everything up to *continues from* is durable, so a valid one proves the
//! segment before. A file without a header of its own start counts as empty: it was made, or taken for reuse, and never
//! used.

#![deny(clippy::indexing_slicing)]

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

use super::LogError;
use super::record::Lsn;

/// Bytes of a segment before its first record.
pub const SEGMENT_HEADER_BYTES: usize = HEADER_BYTES as usize;
const HEADER_BYTES: u32 = 64;
/// The version that this build writes and reads.
const VERSION: u32 = 1;
const MAGIC: &[u8; 8] = b"CLEAVLOG";
const EXTENSION: &str = "log";
/// The smallest and the largest segment of a new log. In a log that was made from a copy, the first segment is the rest
/// of one.
pub(crate) const CAPACITY_MIN: u32 = 4 << 10;
pub(crate) const CAPACITY_MAX: u32 = 1 << 30;

/// The header of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentHeader {
    /// Bytes that the segment may have, including this header.
    pub capacity: u32,
    /// The log's identity.
    pub identity: [u8; 16],
    /// The place of the segment's first byte.
    pub start: Lsn,
    /// The end of the records of the segment before.
    pub continues_from: Lsn,
    /// Wall time at which it was begun, in microseconds since 1970; for choosing a point in time.
    pub made_at: i64,
}

/// Why a file is no segment with contents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeaderFault {
    /// It has no header, or one of another place: nothing was written to it.
    Empty,
    /// It is of a version that this build does not read.
    Version(u32),
}

impl SegmentHeader {
    /// The encoded header.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(SEGMENT_HEADER_BYTES);
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&self.capacity.to_le_bytes());
        bytes.extend_from_slice(&self.identity);
        bytes.extend_from_slice(&self.start.0.to_le_bytes());
        bytes.extend_from_slice(&self.continues_from.0.to_le_bytes());
        bytes.extend_from_slice(&self.made_at.to_le_bytes());
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(&crc32c::crc32c(&bytes).to_le_bytes());
        bytes
    }

    /// The header of the file of the segment at `start`.
    ///
    /// # Errors
    /// See [`HeaderFault`].
    pub fn decode(bytes: &[u8], start: Lsn) -> Result<Self, HeaderFault> {
        let empty = HeaderFault::Empty;
        let bytes = bytes.first_chunk::<SEGMENT_HEADER_BYTES>().ok_or(empty)?;
        let (covered, checksum) = bytes.split_last_chunk::<4>().ok_or(empty)?;
        if crc32c::crc32c(covered) != u32::from_le_bytes(*checksum) {
            return Err(empty);
        }
        let rest = covered.strip_prefix(MAGIC.as_slice()).ok_or(empty)?;
        let (version, rest) = rest.split_first_chunk().ok_or(empty)?;
        let version = u32::from_le_bytes(*version);
        if version != VERSION {
            return Err(HeaderFault::Version(version));
        }
        let (capacity, rest) = rest.split_first_chunk().ok_or(empty)?;
        let (identity, rest) = rest.split_first_chunk().ok_or(empty)?;
        let (stored_start, rest) = rest.split_first_chunk().ok_or(empty)?;
        let (continues_from, rest) = rest.split_first_chunk().ok_or(empty)?;
        let (made_at, _) = rest.split_first_chunk().ok_or(empty)?;
        let capacity = u32::from_le_bytes(*capacity);
        if Lsn(u64::from_le_bytes(*stored_start)) != start
            || !(HEADER_BYTES..=CAPACITY_MAX).contains(&capacity)
            || start.0.checked_add(u64::from(capacity)).is_none()
        {
            return Err(empty);
        }
        Ok(Self {
            capacity,
            identity: *identity,
            start,
            continues_from: Lsn(u64::from_le_bytes(*continues_from)),
            made_at: i64::from_le_bytes(*made_at),
        })
    }

    /// The place behind the segment, where the next one starts.
    #[must_use]
    pub fn end(&self) -> Lsn {
        Lsn(self.start.0.saturating_add(u64::from(self.capacity)))
    }
}

/// A segment's file, read whole.
#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) path: PathBuf,
    pub(crate) header: SegmentHeader,
    pub(crate) bytes: Vec<u8>,
}

impl Segment {
    /// Reads the segment at `start`; None if there is no such file, or nothing was written to it.
    pub(crate) fn read(directory: &Path, start: Lsn) -> Result<Option<Self>, LogError> {
        let Some((path, bytes)) = read_file(directory, start)? else { return Ok(None) };
        match SegmentHeader::decode(&bytes, start) {
            Ok(header) => {
                let mut bytes = bytes;
                bytes.truncate(header.capacity as usize);
                Ok(Some(Self { path, header, bytes }))
            }
            Err(HeaderFault::Empty) => Ok(None),
            Err(HeaderFault::Version(found)) => {
                Err(LogError::Version { path, found, expected: VERSION })
            }
        }
    }
}

/// The bytes of the file of the segment at `start`, not validated.
pub(crate) fn read_file(
    directory: &Path,
    start: Lsn,
) -> Result<Option<(PathBuf, Vec<u8>)>, LogError> {
    let path = segment_path(directory, start);
    let file = match File::open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(LogError::io("open", &path)(error)),
    };
    let mut bytes = Vec::new();
    file.take(u64::from(CAPACITY_MAX))
        .read_to_end(&mut bytes)
        .map_err(LogError::io("read", &path))?;
    Ok(Some((path, bytes)))
}

/// The file of the segment at `start`.
#[must_use]
pub fn segment_path(directory: &Path, start: Lsn) -> PathBuf {
    directory.join(format!("{:016x}.{EXTENSION}", start.0))
}

/// The starts of the segments whose files are in `directory`, ascending; other files are skipped.
///
/// # Errors
/// [`LogError::Io`] if it cannot be read.
pub fn list_segments(directory: &Path) -> Result<Vec<Lsn>, LogError> {
    let io = || LogError::io("list", directory);
    let mut starts = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(io())? {
        let path = entry.map_err(io())?.path();
        let is_segment = path.extension().is_some_and(|extension| extension == EXTENSION);
        let Some(stem) = path.file_stem().and_then(|stem| stem.to_str()) else { continue };
        if is_segment
            && stem.len() == 16
            && let Ok(start) = u64::from_str_radix(stem, 16)
        {
            starts.push(Lsn(start));
        }
    }
    starts.sort_unstable();
    Ok(starts)
}
