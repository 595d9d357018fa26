//! Memory limits of reading an input, as shares of the memory of all queries.

/// Longest record, however much memory there is.
const RECORD_BYTES_MAX: u64 = 256 << 20;
/// Records up to this size are always read.
const RECORD_BYTES_MIN: u64 = 1 << 20;
/// A row group is always read if its columns' largest pages together have up to this many bytes.
const PAGES_BYTES_MIN: u64 = 64 << 20;
/// A record is in memory at most this many times: as it was read, as its fields, and as a growing batch.
const RECORD_COPIES: u64 = 8;
/// Maximum bytes of text parsed at once: several chunks are in progress, each as text and as a batch.
const CHUNK_BYTES_MAX: u64 = 8 << 20;
/// The same where memory is scarce.
const CHUNK_BYTES_MIN: u64 = 256 << 10;
/// Number of chunks, with their batches, that the memory of queries would hold.
const CHUNK_COPIES: u64 = 64;
/// Pages are in memory beside the batch that is made of them.
const PAGES_COPIES: u64 = 2;

/// Memory limits of an input that is read piece by piece.
#[derive(Debug, Clone, Copy)]
pub struct InputMemory {
    /// Longest record of CSV, of the text format and of the binary one, in bytes.
    pub record_bytes: usize,
    /// Bytes of CSV, of the text format or of the binary one that are parsed at once, and one record beyond them.
    pub chunk_bytes: usize,
    /// Bytes of the Parquet pages that must be in memory at once.
    pub pages_bytes: u64,
}

impl InputMemory {
    /// The limits if all queries together have `query_memory_bytes`.
    #[must_use]
    pub fn of(query_memory_bytes: u64) -> Self {
        let record = (query_memory_bytes / RECORD_COPIES).clamp(RECORD_BYTES_MIN, RECORD_BYTES_MAX);
        let chunk = (query_memory_bytes / CHUNK_COPIES).clamp(CHUNK_BYTES_MIN, CHUNK_BYTES_MAX);
        Self {
            chunk_bytes: usize::try_from(chunk).unwrap_or(usize::MAX),
            record_bytes: usize::try_from(record).unwrap_or(usize::MAX),
            pages_bytes: (query_memory_bytes / PAGES_COPIES).max(PAGES_BYTES_MIN),
        }
    }
}

impl Default for InputMemory {
    /// The limits where memory is plentiful.
    fn default() -> Self {
        Self::of(u64::MAX)
    }
}
