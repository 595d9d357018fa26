//! The free space of one device: used extents in, new extents out.
//!
//! 1. [`SpaceMap::with_used`] takes every extent that the database's manifest names; all other space below the highest
//!    of them is free.
//! 2. [`SpaceMap::allocate`] takes the first hole that is large enough, else space behind the high-water mark.
//! 3. [`SpaceMap::allocate_common`] takes the first hole that several devices have in common.
//! 4. [`SpaceMap::take`] takes one that something names already.
//! 5. [`SpaceMap::free`] returns an extent and joins it with free neighbours.
//!
//! Invariants: free extents neither touch nor overlap, and all lie below the high-water mark; no block is both free and
//! used. The host owns this map and never stores it: it is the complement of the extents in the manifest, so a crash
//! cannot leak space. Deliberately absent: the rule when space *may* be reused (`docs/design/rules.md`, rule 30) — the
//! caller frees an extent only then.

use std::collections::BTreeMap;

use crate::{BlockAddress, Extent};

/// Free and used blocks of one device.
#[derive(Debug, Clone, Default)]
pub struct SpaceMap {
    /// Start of each hole → its blocks.
    free: BTreeMap<u64, u64>,
    high_water: u64,
    used_blocks: u64,
}

/// A claim about space that contradicts the map: the manifest, or the caller, is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SpaceError {
    /// Two extents in use share a block.
    #[error("{second} overlap {first}, and both are in use")]
    Overlap {
        /// The lower extent.
        first: Extent,
        /// The one that begins inside it.
        second: Extent,
    },
    /// An extent reaches behind the highest address.
    #[error("{extent} reach behind the highest address")]
    TooHigh {
        /// The extent.
        extent: Extent,
    },
    /// Space is taken that is in use.
    #[error("{extent} are taken but not all free")]
    NotFree {
        /// The extent.
        extent: Extent,
    },
    /// Space is freed that is not in use.
    #[error("{extent} are freed but not all in use")]
    NotUsed {
        /// The extent.
        extent: Extent,
    },
}

impl SpaceMap {
    /// The map of a device of which exactly these extents, in any order, are in use.
    ///
    /// # Errors
    /// [`SpaceError::Overlap`] or [`SpaceError::TooHigh`].
    pub fn with_used(extents: impl IntoIterator<Item = Extent>) -> Result<Self, SpaceError> {
        let mut used: Vec<Extent> =
            extents.into_iter().filter(|extent| extent.block_count > 0).collect();
        used.sort_unstable();
        let mut map = Self::default();
        let mut last: Option<Extent> = None;
        for extent in used {
            if extent.start.checked_add(extent.block_count).is_none() {
                return Err(SpaceError::TooHigh { extent });
            }
            if let Some(first) = last.filter(|first| first.overlaps(extent)) {
                return Err(SpaceError::Overlap { first, second: extent });
            }
            if extent.start.0 > map.high_water {
                map.free.insert(map.high_water, extent.start.0 - map.high_water);
            }
            map.high_water = extent.end().0;
            map.used_blocks += u64::from(extent.block_count);
            last = Some(extent);
        }
        Ok(map)
    }

    /// Takes `block_count` blocks (0 counts as 1): the first hole that holds them, else behind the high-water
    /// mark. The media may have to grow to [`SpaceMap::high_water`].
    pub fn allocate(&mut self, block_count: u32) -> Extent {
        let block_count = block_count.max(1);
        let wanted = u64::from(block_count);
        let hole = self.free.iter().find(|(_, length)| **length >= wanted);
        let start = match hole.map(|(start, length)| (*start, *length)) {
            Some((start, length)) => {
                self.free.remove(&start);
                if length > wanted {
                    self.free.insert(start + wanted, length - wanted);
                }
                start
            }
            None => {
                let start = self.high_water;
                self.high_water = self.high_water.saturating_add(wanted);
                start
            }
        };
        self.used_blocks = self.used_blocks.saturating_add(wanted);
        Extent { start: BlockAddress(start), block_count }
    }

    /// Takes `block_count` blocks (0 counts as 1) at one address in all of `maps`: the lowest at which they are free in
    /// each of them, which is behind all high-water marks at the latest.
    pub fn allocate_common(maps: &mut [&mut Self], block_count: u32) -> Extent {
        let block_count = block_count.max(1);
        let mut start = 0;
        loop {
            let next = maps.iter().map(|map| map.fit(start, block_count)).max().unwrap_or(start);
            if next == start {
                break;
            }
            start = next;
        }
        let extent = Extent { start: BlockAddress(start), block_count };
        for map in maps.iter_mut() {
            let taken = map.take(extent);
            debug_assert!(taken.is_ok(), "it is free in each of them: {taken:?}");
        }
        extent
    }

    /// The lowest address, `from` or above, at which `block_count` blocks are free. Takes nothing.
    #[must_use]
    pub fn fit(&self, from: u64, block_count: u32) -> u64 {
        let wanted = u64::from(block_count.max(1));
        // The hole below may reach beyond `from`.
        let below = self.free.range(..from).next_back();
        let found = below.into_iter().chain(self.free.range(from..)).find_map(|(hole, length)| {
            let start = from.max(*hole);
            let end = hole.saturating_add(*length);
            (end.saturating_sub(start) >= wanted).then_some(start)
        });
        found.unwrap_or_else(|| self.high_water.max(from))
    }

    /// Takes just `extent`.
    ///
    /// # Errors
    /// [`SpaceError::NotFree`] if any block of it is in use, [`SpaceError::TooHigh`]; nothing changes then.
    pub fn take(&mut self, extent: Extent) -> Result<(), SpaceError> {
        if extent.start.checked_add(extent.block_count).is_none() {
            return Err(SpaceError::TooHigh { extent });
        }
        let (start, end) = (extent.start.0, extent.end().0);
        if start >= self.high_water {
            if start > self.high_water {
                self.free.insert(self.high_water, start - self.high_water);
            }
            self.high_water = end;
        } else {
            let hole = self.free.range(..=start).next_back().map(|(at, length)| (*at, at + length));
            let Some((hole_start, hole_end)) = hole.filter(|(_, hole_end)| end <= *hole_end) else {
                return Err(SpaceError::NotFree { extent });
            };
            self.free.remove(&hole_start);
            for (from, to) in [(hole_start, start), (end, hole_end)] {
                if from < to {
                    self.free.insert(from, to - from);
                }
            }
        }
        self.used_blocks = self.used_blocks.saturating_add(end - start);
        Ok(())
    }

    /// Gives an extent, or a part of one, back.
    ///
    /// # Errors
    /// [`SpaceError::NotUsed`] if any block of it is free already or was never allocated; nothing changes then.
    pub fn free(&mut self, extent: Extent) -> Result<(), SpaceError> {
        let (start, end) = (extent.start.0, extent.end().0);
        if start == end {
            return Ok(());
        }
        let below = self.free.range(..=start).next_back().map(|(at, length)| (*at, at + length));
        let above = self.free.range(start..).next().map(|(at, length)| (*at, at + length));
        let clear_below = below.is_none_or(|(_, hole_end)| hole_end <= start);
        let clear_above = above.is_none_or(|(hole_start, _)| end <= hole_start);
        if end > self.high_water || !clear_below || !clear_above {
            return Err(SpaceError::NotUsed { extent });
        }
        self.used_blocks -= end - start;
        let (mut hole_start, mut hole_end) = (start, end);
        if let Some((at, below_end)) = below.filter(|(_, below_end)| *below_end == start) {
            debug_assert_eq!(below_end, start);
            hole_start = at;
        }
        if let Some((at, above_end)) = above.filter(|(at, _)| *at == end) {
            self.free.remove(&at);
            hole_end = above_end;
        }
        if hole_end == self.high_water {
            self.free.remove(&hole_start);
            self.high_water = hole_start;
        } else {
            self.free.insert(hole_start, hole_end - hole_start);
        }
        Ok(())
    }

    /// The lowest address above which nothing is in use: how large the media must be, in blocks.
    #[must_use]
    pub fn high_water(&self) -> u64 {
        self.high_water
    }

    /// Blocks in use.
    #[must_use]
    pub fn used_blocks(&self) -> u64 {
        self.used_blocks
    }
}

#[cfg(test)]
mod tests;
