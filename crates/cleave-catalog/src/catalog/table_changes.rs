//! The rows that a table has got and lost between two catalog versions, as two tables that are read like any other.
//!
//! ```text
//!  TableState then, now ─▶ live VIDs of each ─┬─ live now, not then, or rewritten ──▶ gained: pages of now
//!                                             └─ live then, not now, or rewritten ──▶ lost:   pages of then
//! ```
//!
//! A VID is never given twice, and a row keeps its values under its VID, but for those that a page version rewrites
//! ([`Rewrites`]). So sets of VIDs tell all, wherever a vacuum has moved the rows. Both tables have the
//! pages on which such a row lies, and a version map in which all other rows are dead: scans of them are pruned and cut
//! as those of the table itself. They have no indexes.
//!
//! Whoever reads them must hold both catalog versions.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use cleave_store::{SegmentDirectory, VersionMap, VersionRun};

use super::rewrites::Rewrites;
use super::{TableState, TabletState};

/// See the module's description.
#[derive(Debug, Clone)]
pub struct TableChanges {
    /// The rows that it has got, as they are now.
    pub gained: Arc<TableState>,
    /// The rows that it has lost, as they were then.
    pub lost: Arc<TableState>,
}

impl TableChanges {
    /// Those of a table between its states `then` and `now`; None: it has another definition or lies elsewhere, too
    /// much was rewritten to be told, or more than `most` rows have changed.
    #[must_use]
    pub fn between(then: &TableState, now: &TableState, most: usize) -> Option<Self> {
        let is_same = then.schema.table_id == now.schema.table_id
            && then.schema.version == now.schema.version
            && then.tablets.len() == now.tablets.len();
        if !is_same {
            return None;
        }
        let mut left = most;
        let (mut gained, mut lost) = (Vec::new(), Vec::new());
        for (then, now) in then.tablets.iter().zip(&now.tablets) {
            if (then.id, then.device) != (now.id, now.device) {
                return None;
            }
            let vids = ChangedVids::between(then, now, left)?;
            left = left.checked_sub(vids.gained.len().checked_add(vids.lost.len())?)?;
            gained.push(Arc::new(restricted(now, &vids.gained)?));
            lost.push(Arc::new(restricted(then, &vids.lost)?));
        }
        let table = |of: &TableState, tablets| {
            let (indexes, damaged, materialized) = (Vec::new(), Vec::new(), None);
            Arc::new(TableState { tablets, indexes, damaged, materialized, ..of.clone() })
        };
        Some(Self { gained: table(now, gained), lost: table(then, lost) })
    }

    /// Whether the table has the same rows.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.gained.row_count() == 0 && self.lost.row_count() == 0
    }
}

/// The rows of one tablet that have changed, ascending.
#[derive(Debug)]
struct ChangedVids {
    gained: Vec<u64>,
    lost: Vec<u64>,
}

impl ChangedVids {
    fn between(then: &TabletState, now: &TabletState, most: usize) -> Option<Self> {
        let rewritten = now.rewrites.since(&then.rewrites)?;
        let (then, now) = (&*then.version_map, &*now.version_map);
        let is_live = |map: &VersionMap, vid: u64| map.lookup(vid).is_some();
        let new = now.runs().iter().flat_map(|run| outside(*run, then)).flatten();
        let mut gained = limited(new.filter(|vid| is_live(now, *vid)), most)?;
        let gone = then.runs().iter().flat_map(|run| outside(*run, now)).flatten();
        let dead = then.runs().iter().flat_map(|run| now.dead_in(run.vid_first, run.vid_count));
        let mut lost = limited(gone.chain(dead).filter(|vid| is_live(then, *vid)), most)?;
        for vid in rewritten.into_iter().filter(|vid| is_live(then, *vid) && is_live(now, *vid)) {
            gained.push(vid);
            lost.push(vid);
        }
        gained.sort_unstable();
        lost.sort_unstable();
        Some(Self { gained, lost })
    }
}

impl Rewrites {
    /// The rows that were rewritten since `then`, an earlier state of the same tablet; None: that was forgotten.
    fn since(&self, then: &Self) -> Option<BTreeSet<u64>> {
        let rewrites = self.last_since(then.mark())?;
        let rows = rewrites.iter().flat_map(|rewrite| rewrite.iter());
        let vids = rows.flat_map(|(first, (gaps, slots))| {
            let slots = slots.set_indices().filter_map(|slot| u32::try_from(slot).ok());
            slots.map(|slot| first.saturating_add(gaps.offset_of(slot)))
        });
        Some(vids.collect())
    }
}

fn limited(vids: impl Iterator<Item = u64>, most: usize) -> Option<Vec<u64>> {
    let vids: Vec<u64> = vids.take(most.saturating_add(1)).collect();
    (vids.len() <= most).then_some(vids)
}

/// The VIDs of `run` that lie in no run of `map`.
fn outside(run: VersionRun, map: &VersionMap) -> Vec<Range<u64>> {
    let runs = map.runs();
    let first = runs.partition_point(|other| other.vid_end() <= run.vid_first);
    let (mut from, mut ranges) = (run.vid_first, Vec::new());
    for other in runs.iter().skip(first).take_while(|other| other.vid_first < run.vid_end()) {
        if from < other.vid_first {
            ranges.push(from..other.vid_first);
        }
        from = other.vid_end();
    }
    if from < run.vid_end() {
        ranges.push(from..run.vid_end());
    }
    ranges
}

/// `tablet` with the live rows `vids`, which ascend, alone; None: its pages are not as they should be.
fn restricted(tablet: &TabletState, vids: &[u64]) -> Option<TabletState> {
    let (mut heap, mut runs, mut found) = (Vec::new(), Vec::new(), 0);
    for segment in &tablet.heap {
        let mut pages = Vec::new();
        for entry in &segment.pages {
            // Rows of other pages may lie in the gaps between its own.
            let is_here = |vid: &u64| {
                entry.slot_of(*vid).is_some()
                    && tablet.version_map.lookup(*vid) == Some(segment.segment)
            };
            let of_page = between(vids, &(entry.vid_first..entry.vid_end()));
            let count = of_page.iter().filter(|vid| is_here(vid)).count();
            if count == 0 {
                continue;
            }
            found += count;
            runs.extend(entry.vid_stretches().map(|stretch| VersionRun {
                vid_first: stretch.start,
                vid_count: stretch.end.saturating_sub(stretch.start),
                segment: segment.segment,
            }));
            pages.push(entry.clone());
        }
        if !pages.is_empty() {
            heap.push(Arc::new(SegmentDirectory { pages, ..SegmentDirectory::clone(segment) }));
        }
    }
    // Each row lies in one place.
    if found != vids.len() {
        return None;
    }
    runs.sort_unstable_by_key(|run| run.vid_first);
    let version_map = Arc::new(VersionMap::with_live(runs, vids).ok()?);
    let (rewrites, indexes) = (Rewrites::default(), Vec::new());
    Some(TabletState { heap, version_map, rewrites, indexes, ..tablet.clone() })
}

/// Those of `vids`, which ascend, that lie in `range`.
fn between<'a>(vids: &'a [u64], range: &Range<u64>) -> &'a [u64] {
    let from = vids.partition_point(|vid| *vid < range.start);
    let to = vids.partition_point(|vid| *vid < range.end);
    vids.get(from..to).unwrap_or_default()
}
