//! Decides whether looking keys up in an index pays: sizes of table and index in, bytes saved out.
//!
//! ```text
//!   reading less   bytes of the pages without a hit, halved   − bytes of the index's pages
//!   working less   rows not looked at, halved                 − rows' worth of the index's pages and entries
//! ```
//!
//! The first saving counts wherever the scan runs. The second counts only where pages come from media beside it
//! ([`Thrift::Work`]): over a link, a page of an index costs its transfer. A saving is halved so that an estimate may
//! be wrong by that; a saving missed this way is a small part of the scan.
//!
//! Before anything is read, the number of hits is the host's estimate, and hits are assumed on pages at random. While
//! the index is read, hits and their pages are counted: clustered keys are found out, and a look-up that has found too
//! much is given up.

use cleave_store::PageRef;

use super::scan_keys::Thrift;

/// The share of the removed work that counts as saved.
const SAVING: f64 = 0.5;
/// Reading and searching an index page costs as much as evaluating conditions on so many rows: a guess, as is
const ROWS_PER_INDEX_PAGE: f64 = 65_536.0;
/// the cost of an entry that is found; the host's planner uses the same.
const ROWS_PER_ENTRY: f64 = 64.0;
/// A page of up to so many bytes is read whole, not by column.
const WHOLE_PAGE_BYTES: usize = 64 << 10;

/// The pages that an index may leave out.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct InputSize {
    page_count: usize,
    row_count: u64,
    whole_bytes: u64,
    bulk_rows: u64,
    bulk_bytes: u64,
}

/// The figures of one look-up.
#[derive(Debug, Clone, Copy)]
pub(super) struct Worth {
    pub(super) thrift: Thrift,
    pub(super) input: InputSize,
    /// Approximate bytes of a row that the scan reads of large pages.
    pub(super) row_bytes: f64,
    /// Pages of the index that may hold the keys, and their bytes.
    pub(super) index_page_count: usize,
    pub(super) index_bytes: u64,
}

impl InputSize {
    pub(super) fn add(&mut self, page: &PageRef) {
        let (rows, bytes) = (u64::from(page.row_count), page.extent.bytes());
        self.page_count += 1;
        self.row_count += rows;
        if bytes <= WHOLE_PAGE_BYTES {
            self.whole_bytes += bytes as u64;
        } else {
            self.bulk_rows += rows;
            self.bulk_bytes += bytes as u64;
        }
    }

    pub(super) fn row_count(&self) -> u64 {
        self.row_count
    }

    /// Bytes that a scan of all pages reads.
    fn scan_bytes(&self, row_bytes: f64) -> f64 {
        let of_columns = (self.bulk_rows as f64 * row_bytes).min(self.bulk_bytes as f64);
        self.whole_bytes as f64 + of_columns
    }
}

impl Worth {
    /// Expected pages that `hits` rows at random lie on.
    pub(super) fn pages_touched(&self, hits: f64) -> f64 {
        let pages = self.input.page_count as f64;
        if pages <= 1.0 {
            return hits.min(pages);
        }
        pages * (1.0 - (1.0 - 1.0 / pages).powf(hits))
    }

    /// Bytes of reading, or their equivalent, that are saved if `hits` rows are found, on `touched` pages; negative if
    /// it does not pay.
    pub(super) fn saving(&self, hits: f64, touched: f64) -> f64 {
        let scan_bytes = self.input.scan_bytes(self.row_bytes);
        let pages = (self.input.page_count as f64).max(1.0);
        let rows = (self.input.row_count as f64).max(1.0);
        let untouched = (1.0 - touched / pages).max(0.0);
        let reads = scan_bytes * untouched * SAVING - self.index_bytes as f64;
        if self.thrift == Thrift::Reads {
            return reads;
        }
        let spent = self.index_page_count as f64 * ROWS_PER_INDEX_PAGE + hits * ROWS_PER_ENTRY;
        let work = (rows * SAVING - spent) * scan_bytes / rows;
        reads.max(work)
    }

    /// Whether to look keys up, or to continue.
    pub(super) fn pays(&self, hits: f64, touched: f64) -> bool {
        self.thrift == Thrift::None || self.saving(hits, touched) > 0.0
    }
}

#[cfg(test)]
mod tests {
    //! Few keys pay, many do not.

    use cleave_media::{BlockAddress, Extent};

    use super::*;

    fn worth(thrift: Thrift, pages: u32, page_rows: u32, index_pages: usize) -> Worth {
        let mut input = InputSize::default();
        for page in 0..pages {
            let extent = Extent { start: BlockAddress(0), block_count: 256 };
            input.add(&PageRef { page, extent, row_count: page_rows, checksum: 0 });
        }
        let index_bytes = index_pages as u64 * (64 << 10);
        Worth { thrift, input, row_bytes: 8.0, index_page_count: index_pages, index_bytes }
    }

    #[test]
    fn a_few_rows_of_many_pages_pay_and_rows_everywhere_do_not() {
        for thrift in [Thrift::Reads, Thrift::Work] {
            let few = worth(thrift, 100, 65_536, 3);
            assert!(few.pays(5.0, few.pages_touched(5.0)), "{thrift:?}");
            let many = worth(thrift, 100, 65_536, 400);
            assert!(!many.pays(60_000.0, many.pages_touched(60_000.0)), "{thrift:?}");
            let small = worth(thrift, 1, 1000, 1);
            assert!(!small.pays(1.0, small.pages_touched(1.0)), "{thrift:?}");
            assert!(!worth(thrift, 0, 0, 0).pays(0.0, 0.0), "{thrift:?}");
        }
        assert!(worth(Thrift::None, 1, 1000, 1).pays(1e9, 1.0));
    }

    #[test]
    fn rows_on_all_pages_save_work_beside_the_media_and_nothing_over_a_link() {
        for (thrift, pays) in [(Thrift::Reads, false), (Thrift::Work, true)] {
            let worth = worth(thrift, 100, 65_536, 20);
            assert_eq!(worth.pays(3000.0, worth.pages_touched(3000.0)), pays, "{thrift:?}");
        }
        // Clustered hits save reading.
        assert!(worth(Thrift::Reads, 100, 65_536, 20).pays(3000.0, 2.0));
    }
}
