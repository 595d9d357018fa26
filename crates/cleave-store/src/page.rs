//! The PAX page: many row versions, column by column, readable without any other page.
//!
//! ```text
//!   0            48               header_length
//!   ├────────────┼──────────────────┼─ ─ ┼────────────┼─ ─ ┼────────────┼─ ─ ─ ┤ a whole number of blocks
//!   │ identity   │ one entry a chunk│ 0  │  chunk     │ 0  │  chunk     │  0   │
//!   └────────────┴────────┬─────────┴─ ─ ┴──▲─────────┴─ ─ ┴────────────┴─ ─ ─ ┘
//!                         └─ offset, length, crc32c of each chunk
//! ```
//!
//! 1. [`SegmentWriter`] collects rows until a page of the segment's [`PageClass`] is full, and encodes it.
//! 2. A value longer than the class holds in line goes to overflow pages, which are emitted first.
//! 3. [`EncodedPage`] carries the bytes and the fields of its [`PageRef`] until the host has chosen a place.
//! 4. [`append_rows`] rewrites the last page of a hot segment with rows added, under the same logical number.
//! 5. [`page_version`] gives a page other values in some columns, and shares the chunks of the others with it.
//!
//! Invariants: a written page never changes. Bytes between chunks are zero. A chunk starts at a multiple of the class's
//! alignment (4 KiB for bulk pages, so that one column is read without its neighbours). Slots keep their order for
//! ever, since RecIDs name them.
//!
//! Source: `docs/design/pages-and-encodings.md`; `docs/design/rules.md`, rule 18; Ailamaki et al., "Weaving Relations
//! for Cache Performance" (PAX).

use cleave_media::{AlignedBuffer, BLOCK_SIZE, BlockAddress, Extent};

use crate::page_source::PageRef;
use crate::zone_map::ZoneEntry;

mod bitpack;
mod checksum;
pub mod columns;
pub(crate) mod encoding;
#[cfg(test)]
mod fuzz;
pub mod header;
pub mod inspection;
mod integers;
mod layout;
pub mod overflow;
mod selected;
mod strings;
#[cfg(test)]
pub(crate) mod testing;
pub mod version;
pub mod writer;

pub use columns::{CommitColumn, ValueType, Versions, VidColumn, all_columns};
pub use header::{ChunkEntry, Encoding, FORMAT_VERSION, PageHeader, PageKind, parse_header};
pub use overflow::OverflowValues;
pub use version::{ChangedColumn, PageVersion, consolidated, copied_columns, page_version};
pub use writer::{SegmentWriter, Tail, append_rows};

/// Most rows of one page: a slot has 16 bits.
pub const PAGE_ROW_COUNT_MAX: u32 = 1 << 16;

/// Values of so many bytes on average are wide.
const WIDE_VALUE_BYTES: u64 = 48;
/// Bytes of a chunk of wide values, on average over the columns of a page.
const WIDE_CHUNK_BYTES: u64 = 128 << 10;
/// A page of wide values may have at least so many bytes.
const WIDE_PAGE_BYTES_MIN: u64 = 1 << 20;
/// Most bytes of the page class of any segment.
pub(crate) const PAGE_BYTES_MAX: u32 = 1 << 28;

/// How large the pages of a segment are. A property of the segment, not of the format: readers need not know it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PageClass {
    /// Bytes that a page should not exceed before its columns are encoded; a page of one row may, if the row is wider.
    /// A multiple of 4096.
    pub page_bytes: u32,
    /// Where chunks may start: 64, or 4096 so that a column is read without its neighbours.
    pub chunk_alignment: u32,
    /// Most rows of a page, 1 to [`PAGE_ROW_COUNT_MAX`].
    pub row_count_max: u32,
}

impl PageClass {
    /// For bulk loads: 16 MiB of plain values, read by columns. Nearly every table reaches the limit of 65,536 rows
    /// sooner, and its page takes 1 to 4 MiB, so that chunks fill many blocks.
    pub const BULK: Self =
        Self { page_bytes: 16 << 20, chunk_alignment: 4096, row_count_max: PAGE_ROW_COUNT_MAX };
    /// For tables that change row by row: 16 KiB, read whole.
    pub const HOT: Self =
        Self { page_bytes: 16 << 10, chunk_alignment: 64, row_count_max: PAGE_ROW_COUNT_MAX };

    /// Whether columns take encodings that save space: only if pages are read by columns. A page that is read whole and
    /// rewritten row by row always fills the same blocks and gains nothing from them.
    pub(crate) fn has_light_encodings(self) -> bool {
        usize::try_from(self.chunk_alignment).is_ok_and(|alignment| alignment >= BLOCK_SIZE)
    }

    /// Bytes that a page of `rows` with `bytes` of plain values should not exceed. Where values are wide, fewer rows
    /// make a chunk that is worth a read of its own, and a look-up of one row reads whole chunks.
    pub(crate) fn bytes_max(self, bytes: u64, rows: u64, column_count: u64) -> u64 {
        let is_wide = bytes >= rows.saturating_mul(column_count).saturating_mul(WIDE_VALUE_BYTES);
        let most = u64::from(self.page_bytes);
        if !is_wide || !self.has_light_encodings() {
            return most;
        }
        most.min(column_count.saturating_mul(WIDE_CHUNK_BYTES).max(WIDE_PAGE_BYTES_MIN))
    }

    /// Longest value, in bytes, that stays in its page: an eighth of a page, 64 KiB at most.
    #[must_use]
    pub fn inline_bytes_max(self) -> u32 {
        (self.page_bytes / 8).min(64 << 10)
    }
}

/// Most blocks of a page. Only a page of one wide row may exceed its class, and it stays far below this: long values
/// overflow.
pub(crate) fn block_count_max(is_overflow: bool) -> u32 {
    let bytes = if is_overflow { overflow::PAGE_BYTES_MAX } else { PAGE_BYTES_MAX as usize };
    u32::try_from(bytes / BLOCK_SIZE).unwrap_or(u32::MAX)
}

/// An encoded page that has no place on media yet.
#[derive(Debug, Clone, PartialEq)]
pub struct EncodedPage {
    /// Logical number in its segment.
    pub page: u32,
    /// The kind of contents of the page.
    pub kind: PageKind,
    /// The page: a whole number of blocks.
    pub bytes: AlignedBuffer,
    /// Rows; 0 for an overflow page.
    pub row_count: u32,
    /// CRC-32C of the header, for the [`PageRef`].
    pub checksum: u32,
    /// VID of slot 0; 0 for an overflow page.
    pub vid_first: u64,
    /// Zone map of each user column; empty for an overflow page.
    pub zones: Vec<ZoneEntry>,
    /// First logical number, and count, of the overflow pages that this page points to.
    pub overflow_first_count: (u32, u32),
}

impl EncodedPage {
    /// Blocks that the page fills.
    #[must_use]
    pub fn block_count(&self) -> u32 {
        // The writer bounds pages well below 4 GiB.
        u32::try_from(self.bytes.len() / BLOCK_SIZE).unwrap_or(u32::MAX)
    }

    /// The reference to this page once it lies at `start`.
    #[must_use]
    pub fn page_ref(&self, start: BlockAddress) -> PageRef {
        PageRef {
            page: self.page,
            extent: Extent { start, block_count: self.block_count() },
            row_count: self.row_count,
            checksum: self.checksum,
        }
    }
}
