//! Morsels: the units of a fragment's input, and the sources that hand them out.
//!
//! A [`Morsel`] names pages and where they lie; the partition that takes it reads them through its own
//! [`PageSource`](cleave_store::PageSource). Partitions of one pipeline share one [`MorselSource`], so that a fragment
//! needs no exchange (rule 3) and an idle partition takes the next morsel.
//!
//! A [`MorselList`] also serves the morsels that a host hands to a device: the device takes them from the front while
//! the host takes them back from the end ([`MorselList::keep`]); a [`Lease`] says where the list ends. Invariant (rule
//! 11): a morsel reported as given back is never handed out, even if messages repeat, come late or out of order.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cleave_store::{DeadRows, PageRef, SegmentRef, VidGaps};
use futures::FutureExt;
use futures::future::BoxFuture;

use crate::progress::Progress;

/// One page of a morsel: where it lies and what is needed to read its rows whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MorselPage {
    /// The page and its expected checksum.
    pub page: PageRef,
    /// The VID of the first row on the page.
    pub vid_first: u64,
    /// The gaps in the VIDs of the rows after it.
    pub gaps: VidGaps,
    /// The overflow pages that the page's long values point to.
    pub overflow: Vec<PageRef>,
    /// The dead rows for the reader's snapshot: deleted, or replaced by an update.
    pub dead: DeadRows,
}

impl MorselPage {
    /// One past the last VID on the page.
    pub(crate) fn vid_end(&self) -> u64 {
        let span = u64::from(self.page.row_count).saturating_add(self.gaps.missing());
        self.vid_first.saturating_add(span)
    }
}

/// Pages of one segment that one partition reads together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Morsel {
    /// Position in the statement's input, unique within one fragment input.
    pub number: u32,
    /// The segment that the pages belong to.
    pub segment: SegmentRef,
    /// The pages, in page order.
    pub pages: Vec<MorselPage>,
}

/// Hands out morsels, each exactly once in a pass.
///
/// DataFusion may read an input again: a recursive query once a round, a join whose build side exceeded its memory.
/// Each reading is a pass of its own, see [`Passes`].
pub trait MorselSource: Send + Sync {
    /// The next morsel of `pass` for `partition`, or `None` when it has no more.
    fn next(&self, pass: usize, partition: usize) -> BoxFuture<'_, Option<Morsel>>;

    /// All morsels of a pass; None: they are not known before they are taken.
    fn list(&self) -> Option<&[Morsel]> {
        None
    }
}

/// How much of a list of morsels its holder still has, and how much of that it has begun, from the front.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Lease {
    /// Morsels begun, in the pass that is furthest.
    pub begun: u32,
    /// Length of the list that the holder still has; it never grows.
    pub kept: u32,
}

impl Lease {
    /// Morsels that no pass has begun.
    pub fn left(&self) -> u32 {
        self.kept.saturating_sub(self.begun)
    }

    /// The position of the next morsel of a pass that has taken `taken`, which then counts as begun.
    pub fn take(&mut self, taken: u32) -> Option<u32> {
        if taken >= self.kept {
            return None;
        }
        self.begun = self.begun.max(taken + 1);
        Some(taken)
    }

    /// Gives back all morsels behind the first `count` that were not begun.
    pub fn keep(&mut self, count: u32) {
        self.kept = self.kept.min(count.max(self.begun));
    }
}

/// A list of morsels, taken from the front.
#[derive(Debug)]
pub struct MorselList {
    morsels: Vec<Morsel>,
    taken: Mutex<Taken>,
    /// Counts the morsels of the first pass.
    progress: Option<Progress>,
}

/// Passes whose progress is kept: a recursion has any number of them, one after the other, and no partition is so far
/// behind that it reads an earlier one.
const PASS_COUNT_MAX: usize = 1024;

#[derive(Debug)]
struct Taken {
    lease: Lease,
    /// For each pass, how many morsels were taken.
    by_pass: BTreeMap<usize, u32>,
}

impl MorselList {
    /// A source over `morsels`, in their order.
    pub fn new(morsels: impl IntoIterator<Item = Morsel>) -> Arc<Self> {
        Self::counted(morsels, None)
    }

    /// The same; `progress` is told how many there are once the first is taken, and counts those taken.
    pub fn counted(
        morsels: impl IntoIterator<Item = Morsel>,
        progress: Option<Progress>,
    ) -> Arc<Self> {
        let morsels: Vec<Morsel> = morsels.into_iter().collect();
        let kept = u32::try_from(morsels.len()).unwrap_or(u32::MAX);
        let lease = Lease { begun: 0, kept };
        let taken = Mutex::new(Taken { lease, by_pass: BTreeMap::new() });
        Arc::new(Self { morsels, taken, progress })
    }

    /// Stops handing out morsels behind the first `count`, except those begun; returns the remaining list.
    pub fn keep(&self, count: u32) -> Lease {
        let mut taken = self.lock();
        taken.lease.keep(count);
        taken.lease
    }

    /// The remaining list.
    pub fn lease(&self) -> Lease {
        self.lock().lease
    }

    /// The next morsel of `pass`.
    pub fn take(&self, pass: usize) -> Option<Morsel> {
        let mut taken = self.lock();
        let Taken { lease, by_pass } = &mut *taken;
        if by_pass.len() > PASS_COUNT_MAX {
            by_pass.pop_first();
        }
        let count = by_pass.entry(pass).or_default();
        let place = lease.take(*count).and_then(|place| usize::try_from(place).ok());
        let morsel = place.and_then(|place| self.morsels.get(place)).cloned();
        if let Some(progress) = self.progress.as_ref().filter(|_| pass == 0 && morsel.is_some()) {
            // A list of which none is taken is read by another side.
            if *count == 0 {
                progress.expect(u64::from(lease.kept));
            }
            progress.advance(1);
        }
        *count += u32::from(morsel.is_some());
        morsel
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl MorselSource for MorselList {
    fn next(&self, pass: usize, _partition: usize) -> BoxFuture<'_, Option<Morsel>> {
        futures::future::ready(self.take(pass)).boxed()
    }

    fn list(&self) -> Option<&[Morsel]> {
        Some(&self.morsels)
    }
}

/// Counts the readings of a node's output whose partitions share their work: the n-th execution of every partition
/// belongs to the n-th pass.
#[derive(Debug, Default)]
pub struct Passes {
    first: usize,
    executions: Mutex<BTreeMap<usize, usize>>,
    /// Passes begun, of this node and of all that came [`after`](Self::after) the same one.
    begun: Arc<AtomicUsize>,
}

impl Passes {
    /// The pass of an execution of `partition` that begins now.
    pub fn begin(&self, partition: usize) -> usize {
        let mut executions = self.executions.lock().unwrap_or_else(PoisonError::into_inner);
        let count = executions.entry(partition).or_default();
        let pass = self.first + *count;
        *count += 1;
        self.begun.fetch_max(pass + 1, Ordering::Relaxed);
        pass
    }

    /// A counter whose passes come after all begun ones, even if not every partition was executed.
    #[must_use]
    pub fn after(&self) -> Self {
        let begun = Arc::clone(&self.begun);
        Self { first: begun.load(Ordering::Relaxed), executions: Mutex::default(), begun }
    }
}

#[cfg(test)]
mod tests {
    //! The morsels that a pass hands out, and the pass of an execution.

    use cleave_store::SegmentId;

    use super::*;

    fn morsel(number: u32) -> Morsel {
        let segment =
            SegmentRef { table_id: 1, segment: SegmentId(1), schema_version: 1, commit: 1 };
        Morsel { number, segment, pages: Vec::new() }
    }

    #[test]
    fn each_pass_hands_out_every_morsel_once() {
        let list = MorselList::new([morsel(0), morsel(1)]);
        let next = |pass| list.take(pass).map(|morsel| morsel.number);
        assert_eq!(
            [next(0), next(1), next(0), next(0), next(1), next(1)],
            [Some(0), Some(0), Some(1), None, Some(1), None]
        );
    }

    #[test]
    fn what_was_given_back_is_not_handed_out() {
        let list = MorselList::new((0..6).map(morsel));
        let next = |pass| list.take(pass).map(|morsel| morsel.number);
        assert_eq!([next(0), next(0)], [Some(0), Some(1)]);
        assert_eq!(list.keep(4), Lease { begun: 2, kept: 4 });
        assert_eq!(list.keep(5), Lease { begun: 2, kept: 4 }, "it never grows");
        assert_eq!(list.keep(0), Lease { begun: 2, kept: 2 }, "what was begun stays");
        assert_eq!([next(0), next(1), next(1), next(1)], [None, Some(0), Some(1), None]);
    }

    #[test]
    fn executions_of_a_partition_belong_to_passes_in_order() {
        let passes = Passes::default();
        assert_eq!([passes.begin(0), passes.begin(1), passes.begin(0)], [0, 0, 1]);
        // DataFusion may make each clone of a node from the first one.
        for pass in [2, 3] {
            let later = passes.after();
            assert_eq!([later.begin(1), later.begin(0)], [pass, pass]);
        }
    }
}
