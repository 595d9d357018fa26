//! Morsels: the units of a fragment's input, and the sources that hand them out.
//!
//! A [`Morsel`] names pages and where they lie; whoever takes it reads them through its own
//! [`PageSource`](cleave_store::PageSource). Copies of one pipeline share one [`MorselSource`], so
//! that a fragment needs no exchange (rule 3) and an idle copy takes what is next.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use cleave_store::{PageRef, SegmentRef};
use futures::FutureExt;
use futures::future::BoxFuture;

/// One page of a morsel: where it lies and what is needed to read its rows whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MorselPage {
    /// The page and the checksum that it must have.
    pub page: PageRef,
    /// Number of the first row identity on the page.
    pub vid_first: u64,
    /// The overflow pages that the page's long values point to.
    pub overflow: Vec<PageRef>,
}

/// Pages of one segment that are read together by one taker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Morsel {
    /// Position in the statement's input, unique within one fragment input.
    pub number: u32,
    /// The segment that the pages belong to.
    pub segment: SegmentRef,
    /// The pages, in page order.
    pub pages: Vec<MorselPage>,
}

impl Morsel {
    /// Rows on all pages, dead versions included.
    pub fn row_count(&self) -> u64 {
        self.pages.iter().map(|page| u64::from(page.page.row_count)).sum()
    }
}

/// Hands out morsels, each exactly once.
pub trait MorselSource: Send + Sync {
    /// The next morsel, or `None` when there are no more.
    fn next(&self) -> BoxFuture<'_, Option<Morsel>>;
}

/// A fixed list of morsels, taken from the front.
#[derive(Debug)]
pub struct MorselList {
    waiting: Mutex<VecDeque<Morsel>>,
}

impl MorselList {
    /// A source over `morsels`, in their order.
    pub fn new(morsels: impl IntoIterator<Item = Morsel>) -> Arc<Self> {
        Arc::new(Self { waiting: Mutex::new(morsels.into_iter().collect()) })
    }
}

impl MorselSource for MorselList {
    fn next(&self) -> BoxFuture<'_, Option<Morsel>> {
        let morsel = self.waiting.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        futures::future::ready(morsel).boxed()
    }
}
