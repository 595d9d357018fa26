//! Errors between stored bytes and Arrow, by what the caller can do about them.

use std::sync::Arc;

use arrow::error::ArrowError;
use cleave_media::{BlockAddress, MediaError};

use crate::frame::FrameError;
use crate::ids::SegmentId;
use crate::page_source::ColumnRef;

/// A failure of the store.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// Stored bytes are not what was written: torn, lost, stale, misdirected or damaged. Statements that need the
    /// page fail; others go on. Restore the page from a backup.
    #[error(
        "page {page} of {segment} at {address} is corrupt{}: {reason}",
        column.map(|column| format!(", {column}")).unwrap_or_default()
    )]
    Corrupt {
        /// Segment of the page.
        segment: SegmentId,
        /// Logical number of the page in its segment.
        page: u32,
        /// Where the page lies.
        address: BlockAddress,
        /// The column whose chunk is damaged; None: the header, hence the whole page.
        column: Option<ColumnRef>,
        /// The fault.
        reason: Corruption,
    },
    /// The page was written by a newer Cleave: use that one.
    #[error(
        "page {page} of {segment} has format version {found}; this program reads up to {newest}"
    )]
    NewerFormat {
        /// Segment of the page.
        segment: SegmentId,
        /// Logical number of the page in its segment.
        page: u32,
        /// Version found.
        found: u16,
        /// Newest version that this build reads.
        newest: u16,
    },
    /// Stored bytes that are not a page by themselves (a segment directory, a version map, the entries
    /// of an index) cannot be read: they are damaged, make no sense although their checksums hold, or are of a newer
    /// Cleave.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// Media failed while a page was read or written: the device may be damaged or gone.
    #[error("page {page} of {segment}: {source}")]
    Media {
        /// Segment of the page.
        segment: SegmentId,
        /// Logical number of the page in its segment.
        page: u32,
        /// The error of the media.
        source: MediaError,
    },
    /// The page source, other than local media, failed: the link or the device behind it is gone. Retry later.
    #[error("pages cannot be read: {0}")]
    Source(#[source] Arc<dyn std::error::Error + Send + Sync>),
    /// A key that exists already.
    #[error("duplicate key: rows {first} and {second} have the same key")]
    DuplicateKey {
        /// VID of the row that has the key.
        first: u64,
        /// VID of the row that would be the second.
        second: u64,
        /// The key, in Arrow row format.
        key: Vec<u8>,
    },
    /// A number that the format has no room for: the table or segment is full, or a value is too long.
    #[error("{what} {value} is beyond the limit of {max}")]
    OutOfRange {
        /// The name of the number.
        what: &'static str,
        /// The number.
        value: u64,
        /// The largest allowed.
        max: u64,
    },
    /// Rows, columns and schema that do not fit together: a mistake of the caller.
    #[error("{what}: {reason}")]
    Mismatch {
        /// The attempted operation.
        what: &'static str,
        /// The mismatch.
        reason: String,
    },
    /// Arrow refused to compute, for lack of memory or because an input is too large.
    #[error("arrow: {0}")]
    Arrow(#[from] ArrowError),
}

/// What is wrong with a page's bytes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Corruption {
    /// The bytes are not the ones that were written.
    #[error("its checksum is {found:08x}, expected {expected:08x}")]
    Checksum {
        /// CRC-32C that the reference or the header carries.
        expected: u32,
        /// CRC-32C of the bytes.
        found: u32,
    },
    /// Fewer bytes than the format needs.
    #[error("{found} bytes where {expected} are needed")]
    Truncated {
        /// Bytes needed.
        expected: u64,
        /// Bytes there.
        found: u64,
    },
    /// A field of the header that contradicts the reference, the page or another field.
    #[error(
        "its field `{field}` is {found}{}",
        expected.map(|value| format!(", expected {value}")).unwrap_or_default()
    )]
    Field {
        /// Name of the field, as in `docs/formats.md`.
        field: &'static str,
        /// Its value.
        found: u64,
        /// The only value that would do, where there is one.
        expected: Option<u64>,
    },
    /// A chunk whose bytes do not decode, though its checksum holds: a writer was at fault.
    #[error("its values do not decode: {0}")]
    Values(String),
}
