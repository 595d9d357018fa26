//! The index input of a fragment: which pages of which runs, by the input number that an operator names.
//!
//! Like morsels, index inputs come beside the fragment and not in it (rule 1). Unlike morsels, each reader reads all
//! pages. A scan that learns its keys only at run time also gets fences, and reads the pages that may hold the keys
//! ([`crate::index_filter`]). Otherwise there are no fences: the host has used them.

use cleave_store::{PageRef, SegmentRef};

/// Bytes of an entry in a fence: enough to tell integers apart, and most texts.
pub const FENCE_BYTES_MAX: usize = 24;

/// Pages of one sorted run, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexPages {
    /// The run.
    pub segment: SegmentRef,
    /// Its pages.
    pub pages: Vec<PageRef>,
    /// The first entry of each page and the last of all, truncated to [`FENCE_BYTES_MAX`] bytes; or none.
    pub fences: Vec<Vec<u8>>,
}

impl IndexPages {
    /// `pages` of the run `segment`, all of which are read.
    #[must_use]
    pub fn whole(segment: SegmentRef, pages: Vec<PageRef>) -> Self {
        Self { segment, pages, fences: Vec::new() }
    }
}

/// One index input of a fragment.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct IndexInput {
    /// The number that operators name it by.
    pub number: u32,
    /// The runs.
    pub runs: Vec<IndexPages>,
}

impl IndexInput {
    /// Every page.
    pub fn pages(&self) -> impl Iterator<Item = &PageRef> {
        self.runs.iter().flat_map(|run| &run.pages)
    }

    /// Entries on these pages.
    pub fn entry_count(&self) -> u64 {
        self.pages().map(|page| u64::from(page.row_count)).sum()
    }
}
