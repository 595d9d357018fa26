//! Pruning: removes the VIDs of dead rows from the map when the pages of these rows are rewritten.
//!
//! If few VIDs are missing between two rows they keep their bits, and the segment's directory says that no page has
//! them. A long stretch is left out of the runs, which takes no bits. Either way the result of [`VersionMap::is_dead`]
//! stays the same.
//! Source: `docs/design/delta-and-snapshots.md`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{VersionMap, VersionRun, split_vid};
use crate::ids::SegmentId;

/// Shortest stretch of dead rows that is left out of the runs: the bits of a longer one take more than another run.
const HOLE_VIDS_MIN: u64 = 1024;

impl VersionMap {
    /// VIDs of live rows.
    #[must_use]
    pub fn live_count(&self) -> u64 {
        let vids: u64 = self.runs().iter().map(|run| run.vid_count).sum();
        vids.saturating_sub(self.dead_count())
    }

    /// VIDs of `run` whose rows are live, ascending.
    pub fn live_in(&self, run: VersionRun) -> impl Iterator<Item = u64> + '_ {
        let mut dead = self.dead_in(run.vid_first, run.vid_count).peekable();
        (run.vid_first..run.vid_end()).filter(move |vid| dead.next_if_eq(vid).is_none())
    }

    /// Stretches of VIDs that were left out of the runs, ascending: their rows are dead, and no page has them.
    pub fn holes(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let starts = std::iter::once(0).chain(self.runs().iter().map(VersionRun::vid_end));
        let ends = self.runs().iter().map(|run| run.vid_first).chain([self.vid_end()]);
        starts.zip(ends).filter(|(start, end)| start < end)
    }

    /// All VIDs whose rows are dead, pruned or not, as stretches: the first VID, and one past the last.
    #[must_use]
    pub fn gone(&self) -> Vec<(u64, u64)> {
        let mut holes = self.holes().peekable();
        let mut dead = self.dead_in(0, self.vid_end()).peekable();
        let mut gone: Vec<(u64, u64)> = Vec::new();
        loop {
            let next_hole = holes.peek().copied();
            let next_dead = dead.peek().copied();
            let (first, end) = match (next_hole, next_dead) {
                (Some(hole), vid) if vid.is_none_or(|vid| hole.0 <= vid) => {
                    holes.next();
                    hole
                }
                (_, Some(vid)) => {
                    dead.next();
                    (vid, vid.saturating_add(1))
                }
                _ => return gone,
            };
            match gone.last_mut() {
                Some(last) if last.1 >= first => last.1 = last.1.max(end),
                _ => gone.push((first, end)),
            }
        }
    }

    /// Moves the rows of the runs of `old` that are live in `known`, an earlier version of this map, to `new`, and
    /// drops the others. Rows that died since keep their bits.
    pub fn move_runs(&mut self, old: &BTreeSet<SegmentId>, known: &Self, new: SegmentId) {
        let mut moved: Vec<VersionRun> = Vec::new();
        let mut runs: Vec<VersionRun> = Vec::new();
        // Whether the last run was made here, and only VIDs with bits lie behind it.
        let mut is_open = false;
        for run in self.runs.iter() {
            if !old.contains(&run.segment) {
                is_open = false;
                runs.push(*run);
                continue;
            }
            // VIDs between them that lie in no run have no bits, and must stay so.
            is_open &= moved.last().is_some_and(|last| last.vid_end() == run.vid_first);
            moved.push(*run);
            for vid in known.live_in(*run) {
                match runs.last_mut().filter(|_| is_open) {
                    Some(last) if vid.saturating_sub(last.vid_end()) < HOLE_VIDS_MIN => {
                        last.vid_count = vid.saturating_sub(last.vid_first).saturating_add(1);
                    }
                    _ => runs.push(VersionRun { vid_first: vid, vid_count: 1, segment: new }),
                }
                is_open = true;
            }
        }
        self.vid_end_min = self.vid_end();
        self.runs = Arc::new(runs);
        self.runs_dirty = true;
        // A VID that lies in no run any more needs no bit.
        for run in moved {
            let mut from = run.vid_first;
            while from < run.vid_end() {
                let behind = self.runs.partition_point(|run| run.vid_end() <= from);
                let next = self.runs.get(behind).copied();
                let first = next.map_or(run.vid_end(), |next| next.vid_first.min(run.vid_end()));
                if from < first {
                    self.forget(from, first - from);
                }
                from = next.map_or(run.vid_end(), |next| next.vid_end().max(first));
            }
        }
    }

    /// Clears the bits of `vid_first..vid_first + vid_count`.
    fn forget(&mut self, vid_first: u64, vid_count: u64) {
        let vids: Vec<u64> = self.dead_in(vid_first, vid_count).collect();
        let mut chunks: BTreeMap<u64, Vec<u16>> = BTreeMap::new();
        for vid in &vids {
            let (chunk, offset) = split_vid(*vid);
            chunks.entry(chunk).or_default().push(offset);
        }
        for (number, offsets) in chunks {
            let Some(chunk) = self.dead.get_mut(&number).map(Arc::make_mut) else { continue };
            offsets.iter().for_each(|offset| chunk.clear(*offset));
            if chunk.is_empty() {
                self.dead.remove(&number);
            }
            self.dirty_chunks.insert(number);
        }
        self.dead_count = self.dead_count.saturating_sub(vids.len() as u64);
    }

    /// Whether `vid` was left out of the runs because its row is dead.
    pub(super) fn is_in_hole(&self, vid: u64) -> bool {
        vid < self.vid_end_min.max(self.runs().last().map_or(0, VersionRun::vid_end))
            && self.place_of(vid).is_none()
    }
}

#[cfg(test)]
mod tests;
