//! Shares of a database's query memory that loads and inputs may take.

use cleave_catalog::query_memory::memory_max;
use cleave_media::BLOCK_SIZE;
use cleave_store::PageClass;

use super::Engine;

/// The share of the memory of queries that one page of a load may take: one in so many. A load holds about eight pages:
/// one that fills, its columns joined, and those that are encoded and written.
const PAGE_SHARE: usize = 16;
/// Least bytes of such a page.
const PAGE_BYTES_MIN: usize = 1 << 20;

impl Engine {
    /// Bytes that all queries together may take.
    pub fn query_memory_max(&self) -> usize {
        memory_max(&self.runtime)
    }

    /// The pages of a load into a table of `tablet_count` tablets: of wide rows, fewer in a page where memory is
    /// scarce.
    pub(crate) fn load_pages(&self, tablet_count: usize) -> PageClass {
        let share = self.query_memory_max() / PAGE_SHARE / tablet_count.max(1);
        let most = PageClass::BULK.page_bytes;
        let bytes = share.clamp(PAGE_BYTES_MIN, most as usize).next_multiple_of(BLOCK_SIZE);
        PageClass { page_bytes: u32::try_from(bytes).unwrap_or(most), ..PageClass::BULK }
    }
}
