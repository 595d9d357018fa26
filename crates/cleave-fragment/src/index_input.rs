//! What a fragment reads of an index: which pages of which runs, by the input number that an operator names.
//!
//! Like morsels, these come beside the fragment and not in it (rule 1). Unlike morsels they are not shared out: whoever
//! names them reads them all. Deliberately absent: fences, which the host has used to choose the pages.

use cleave_store::{PageRef, SegmentRef};

/// Pages of one sorted run, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexPages {
    /// The run.
    pub segment: SegmentRef,
    /// Its pages.
    pub pages: Vec<PageRef>,
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
