//! What reading an input may hold, as shares of the memory that queries have together.

/// Longest record, however much memory there is.
const RECORD_BYTES_MAX: u64 = 256 << 20;
/// A record of so many bytes is always read.
const RECORD_BYTES_MIN: u64 = 1 << 20;
/// A row group whose columns' largest pages have so many bytes together is always read.
const PAGES_BYTES_MIN: u64 = 64 << 20;
/// A record is in memory as it was read, as its fields and as a batch that grows: this often, at most.
const RECORD_COPIES: u64 = 8;
/// Text that is parsed at once, at most: several chunks are on their way, each as text and as a batch.
const CHUNK_BYTES_MAX: u64 = 8 << 20;
/// The same where memory is scarce.
const CHUNK_BYTES_MIN: u64 = 256 << 10;
/// Chunks, and batches made of them, that the memory of queries would hold.
const CHUNK_COPIES: u64 = 64;
/// Pages are in memory beside the batch that is made of them.
const PAGES_COPIES: u64 = 2;

/// Bounds of an input that is read into memory piece by piece.
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
    /// The bounds where queries have `query_memory_bytes` together.
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
    /// Bounds where memory is plenty.
    fn default() -> Self {
        Self::of(u64::MAX)
    }
}
