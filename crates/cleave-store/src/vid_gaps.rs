//! The VIDs of a page's rows, where rows before, between or behind them were pruned: a slot in, a VID out, and back.
//!
//! ```text
//!   slot      0    1    2 │  3    4 │  5
//!   VID      40   41   42 │ 45   46 │ 60        gaps: from slot 3 on 2 are missing, from slot 5 on 15
//! ```
//!
//! Invariant: gaps ascend by slot. The first is behind slot 0, whose VID is in the page's entry. The missing VIDs of a
//! gap include those of the gaps before it, so their number ascends. A page without gaps has consecutive VIDs.
//! Source: `docs/design/delta-and-snapshots.md`.

#![deny(clippy::indexing_slicing)]

use std::ops::Range;
use std::sync::Arc;

/// The gaps in the VIDs of one page; clones share them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct VidGaps(Arc<[VidGap]>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct VidGap {
    /// The first slot behind the gap.
    slot: u32,
    /// VIDs missing before that slot, including those of earlier gaps.
    missing: u64,
}

impl VidGaps {
    /// Consecutive VIDs.
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    /// The gaps of rows with these VIDs; None if they do not ascend.
    pub fn of(vids: impl IntoIterator<Item = u64>) -> Option<Self> {
        let mut gaps: Vec<VidGap> = Vec::new();
        let mut vids = vids.into_iter();
        let Some(mut last) = vids.next() else { return Some(Self::none()) };
        for (slot, vid) in (1_u32..).zip(vids) {
            let missing = vid.checked_sub(last)?.checked_sub(1)?;
            if missing > 0 {
                let before = gaps.last().map_or(0, |gap| gap.missing);
                gaps.push(VidGap { slot, missing: before.saturating_add(missing) });
            }
            last = vid;
        }
        Some(Self(gaps.into()))
    }

    /// Gaps in the form of [`VidGaps::steps`], for a page of `row_count` rows; None if they are invalid.
    #[must_use]
    pub fn from_steps(slots: &[u32], missing: &[u64], row_count: u32) -> Option<Self> {
        if slots.len() != missing.len() {
            return None;
        }
        let mut gaps: Vec<VidGap> = Vec::with_capacity(slots.len());
        let mut last = VidGap { slot: 0, missing: 0 };
        for (step, more) in slots.iter().zip(missing) {
            let slot = last.slot.checked_add(*step).filter(|slot| *slot < row_count)?;
            let missing = last.missing.checked_add(*more)?;
            if *step == 0 || *more == 0 {
                return None;
            }
            last = VidGap { slot, missing };
            gaps.push(last);
        }
        Some(Self(gaps.into()))
    }

    /// Slots from each gap to the next, and the VIDs missing in each.
    #[must_use]
    pub fn steps(&self) -> (Vec<u32>, Vec<u64>) {
        let mut last = VidGap { slot: 0, missing: 0 };
        let step = |gap: &VidGap| {
            let step =
                (gap.slot.saturating_sub(last.slot), gap.missing.saturating_sub(last.missing));
            last = *gap;
            step
        };
        self.0.iter().map(step).unzip()
    }

    /// Whether the VIDs are consecutive.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Bytes that it holds in memory.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        size_of_val(&*self.0)
    }

    /// VIDs that are missing in all gaps.
    #[must_use]
    pub fn missing(&self) -> u64 {
        self.0.last().map_or(0, |gap| gap.missing)
    }

    /// The VID of `slot` minus that of slot 0.
    #[must_use]
    pub fn offset_of(&self, slot: u32) -> u64 {
        let behind = self.0.partition_point(|gap| gap.slot <= slot);
        let gap = behind.checked_sub(1).and_then(|place| self.0.get(place));
        u64::from(slot).saturating_add(gap.map_or(0, |gap| gap.missing))
    }

    /// The slot whose VID is that of slot 0 plus `offset`; None if it lies in a gap. Beyond the last row, a slot that
    /// the page lacks.
    #[must_use]
    pub fn slot_at(&self, offset: u64) -> Option<u64> {
        let first = |gap: &VidGap| gap.missing.saturating_add(u64::from(gap.slot));
        let behind = self.0.partition_point(|gap| first(gap) <= offset);
        let gap = behind.checked_sub(1).and_then(|place| self.0.get(place));
        let slot = offset.checked_sub(gap.map_or(0, |gap| gap.missing))?;
        let next = self.0.get(behind);
        next.is_none_or(|next| slot < u64::from(next.slot)).then_some(slot)
    }

    /// The stretches of consecutive VIDs of `row_count` rows, as differences from the VID of slot 0.
    pub fn stretches(&self, row_count: u32) -> impl Iterator<Item = Range<u64>> + '_ {
        let mut next = Some(0).filter(|_| row_count > 0);
        std::iter::from_fn(move || {
            let slot = next?;
            next = self.next_behind(slot);
            let count = next.unwrap_or(row_count).saturating_sub(slot);
            let first = self.offset_of(slot);
            Some(first..first.saturating_add(u64::from(count)))
        })
    }

    /// The next slot behind `slot` before which VIDs are missing; None if there is none.
    #[must_use]
    pub fn next_behind(&self, slot: u32) -> Option<u32> {
        let behind = self.0.partition_point(|gap| gap.slot <= slot);
        self.0.get(behind).map(|gap| gap.slot)
    }
}

#[cfg(test)]
mod tests {
    //! VIDs and slots of pages with gaps, against a list of VIDs.

    use super::*;

    #[test]
    fn slots_and_vids_lead_to_each_other() {
        let vids = [40_u64, 41, 42, 45, 46, 60];
        let gaps = VidGaps::of(vids).unwrap();
        for (slot, vid) in (0_u32..).zip(vids) {
            assert_eq!(gaps.offset_of(slot), vid - 40, "slot {slot}");
            assert_eq!(gaps.slot_at(vid - 40), Some(u64::from(slot)), "VID {vid}");
        }
        for vid in [43, 44, 47, 59] {
            assert_eq!(gaps.slot_at(vid - 40), None, "VID {vid}");
        }
        assert_eq!(gaps.slot_at(21), Some(6), "behind the last row");
        assert_eq!((gaps.missing(), gaps.next_behind(0), gaps.next_behind(5)), (15, Some(3), None));
        assert_eq!(gaps.stretches(6).collect::<Vec<_>>(), [0..3, 5..7, 20..21]);
        assert!(VidGaps::none().stretches(6).eq(std::iter::once(0..6)));
        let (slots, missing) = gaps.steps();
        assert_eq!((&*slots, &*missing), (&[3, 2][..], &[2, 13][..]));
        assert_eq!(VidGaps::from_steps(&slots, &missing, 6), Some(gaps));
    }

    #[test]
    fn what_is_no_list_of_gaps_is_refused() {
        assert_eq!(VidGaps::of([3, 3]), None);
        assert_eq!(VidGaps::of([3, 2]), None);
        assert!(VidGaps::of([3, 4, 5]).unwrap().is_empty());
        assert!(VidGaps::of([]).unwrap().is_empty());
        for (slots, missing) in [(&[0][..], &[1][..]), (&[1], &[0]), (&[6], &[1]), (&[1], &[])] {
            assert_eq!(VidGaps::from_steps(slots, missing, 6), None, "{slots:?} {missing:?}");
        }
        assert_eq!(VidGaps::from_steps(&[1, 1], &[u64::MAX, 1], 6), None);
    }
}
