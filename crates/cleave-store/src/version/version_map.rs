//! The version map of one tablet: a VID in, the segment of its row out, or that the row is dead.
//!
//! ```text
//!   VID ─▶ deleted? ── no ──▶ runs ──▶ segment; its directory finds page and slot (placement.rs)
//! ```
//!
//! 1. A bulk load or an append adds a [`VersionRun`]: a range of VIDs whose rows lie in one segment, in VID order.
//!    Millions of rows cost one run.
//! 2. A row that was deleted, or that an update has replaced, is dead ([`VersionMap::end`]): one bit, in chunks of
//!    [`CHUNK_VIDS`] VIDs. Look-ups do not find it, and [`VersionMap::dead_rows`] tells a scan which rows of a page to
//!    skip.
//! 3. A checkpoint writes [`VersionMap::dirty_chunks`] and, if [`VersionMap::runs_dirty`], the runs; every chunk is
//!    encoded by itself.
//!
//! Clones share chunks and runs and copy one when it changes, so a snapshot of the map is cheap.
//!
//! 4. [Pruning](VersionMap::move_runs) dead rows removes long stretches of their VIDs from the runs, and their bits.
//!
//! Invariant: runs are disjoint and ascending. A VID between or before them, or below `vid_end_min`, is that of a
//! pruned row and is dead. A dead row never comes back. All bits are of VIDs in runs.
//!
//! Source: rule 15; the Update NDP paper (VIDmap); `docs/design/versions-and-commit.md` and
//! `docs/design/pages-and-encodings.md`.

#![deny(clippy::indexing_slicing)]

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Range, RangeInclusive};
use std::sync::Arc;

use prost::Message;

use crate::error::StoreError;
use crate::frame::{Format, FrameError};
use crate::ids::SegmentId;
use crate::proto;
use crate::version::DeadRows;

/// VIDs of one chunk of dead rows.
pub const CHUNK_VIDS: u64 = 1 << 16;

const RUNS: Format = Format { magic: *b"CLVVRUNS", name: "version map", versions: 1..=2 };
const CHUNK: Format = Format { magic: *b"CLVVCHNK", name: "version map chunk", versions: VERSIONS };
const MAP: Format = Format { magic: *b"CLVVMAP\0", name: "version map", versions: VERSIONS };
const VERSIONS: RangeInclusive<u32> = 1..=1;

/// VID → segment, of one tablet.
#[derive(Debug, Clone, Default)]
pub struct VersionMap {
    runs: Arc<Vec<VersionRun>>,
    dead: BTreeMap<u64, Arc<DeadChunk>>,
    dead_count: u64,
    /// VIDs below it that lie in no run are those of pruned rows.
    vid_end_min: u64,
    runs_dirty: bool,
    dirty_chunks: BTreeSet<u64>,
}

/// A range of VIDs whose rows lie in one segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VersionRun {
    /// First VID.
    pub vid_first: u64,
    /// VIDs in the range.
    pub vid_count: u64,
    /// The segment, whose pages hold VIDs in ascending order.
    pub segment: SegmentId,
}

/// Words of the bits of one chunk.
const DEAD_WORDS: usize = (CHUNK_VIDS / 64) as usize;

/// Which VIDs of a chunk are dead: one bit each.
#[derive(Debug, Clone, PartialEq, Eq)]
struct DeadChunk(Box<[u64]>);

impl Default for DeadChunk {
    fn default() -> Self {
        Self(vec![0; DEAD_WORDS].into())
    }
}

impl DeadChunk {
    fn has(&self, offset: u16) -> bool {
        let word = self.0.get(usize::from(offset / 64)).copied().unwrap_or_default();
        word & (1 << (offset % 64)) != 0
    }

    /// Sets a bit; returns whether it was clear.
    fn set(&mut self, offset: u16) -> bool {
        let Some(word) = self.0.get_mut(usize::from(offset / 64)) else { return false };
        let before = *word;
        *word |= 1 << (offset % 64);
        *word != before
    }

    fn clear(&mut self, offset: u16) {
        if let Some(word) = self.0.get_mut(usize::from(offset / 64)) {
            *word &= !(1 << (offset % 64));
        }
    }

    /// Sets the bits of `range`.
    fn set_all(&mut self, range: Range<u64>) {
        let mut from = range.start;
        while from < range.end {
            let end = range.end.min((from / 64).saturating_add(1).saturating_mul(64));
            let count = end.saturating_sub(from);
            let mask = (u64::MAX >> 64_u64.saturating_sub(count)) << (from % 64);
            let word = usize::try_from(from / 64).ok().and_then(|place| self.0.get_mut(place));
            if let Some(word) = word {
                *word |= mask;
            }
            from = end;
        }
    }

    fn is_empty(&self) -> bool {
        self.0.iter().all(|word| *word == 0)
    }

    /// The bits of a word; bits beyond the last word are clear.
    fn word(&self, place: u64) -> u64 {
        usize::try_from(place).ok().and_then(|place| self.0.get(place)).copied().unwrap_or_default()
    }

    /// Whether no bit is set in any word that `range` touches.
    fn is_clear(&self, range: &Range<u64>) -> bool {
        (range.start / 64..range.end.div_ceil(64)).all(|place| self.word(place) == 0)
    }

    /// Copies the bits of `range` into `words`, from bit `at` on, where all bits are clear.
    fn copy_bits(&self, range: &Range<u64>, words: &mut [u64], at: u64) {
        let mut from = range.start;
        let mut at = at;
        while from < range.end {
            let Some(target) = usize::try_from(at / 64).ok().and_then(|at| words.get_mut(at))
            else {
                return;
            };
            // Up to the end of the target's word, from one source word or two.
            let count = (64 - at % 64).min(range.end - from);
            let low = self.word(from / 64) >> (from % 64);
            let high = match from % 64 {
                0 => 0,
                shift => self.word(from / 64 + 1) << (64 - shift),
            };
            let mask = u64::MAX >> (64 - count);
            *target |= ((low | high) & mask) << (at % 64);
            from += count;
            at += count;
        }
    }

    /// The bits that are set between `from` and `to`, both included.
    fn between(&self, from: u16, to: u16) -> impl Iterator<Item = u16> + '_ {
        let words = usize::from(from / 64)..=usize::from(to / 64);
        let bits = words.flat_map(|place| {
            let mut word = self.0.get(place).copied().unwrap_or_default();
            std::iter::from_fn(move || {
                let bit = word.trailing_zeros();
                word &= word.wrapping_sub(1);
                let offset = place.saturating_mul(64).saturating_add(usize::try_from(bit).ok()?);
                (bit < 64).then(|| u16::try_from(offset).unwrap_or(u16::MAX))
            })
        });
        bits.filter(move |offset| (from..=to).contains(offset))
    }
}

impl VersionRun {
    /// One past the last VID.
    #[must_use]
    pub fn vid_end(&self) -> u64 {
        self.vid_first.saturating_add(self.vid_count)
    }
}

impl VersionMap {
    /// A map of no rows.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The segment of the row of `vid`; None if there is no such row, or it is dead.
    #[must_use]
    pub fn lookup(&self, vid: u64) -> Option<SegmentId> {
        if self.is_dead(vid) { None } else { self.place_of(vid) }
    }

    /// As [`VersionMap::lookup`], also for a dead row.
    #[must_use]
    pub fn place_of(&self, vid: u64) -> Option<SegmentId> {
        self.run_of(vid).map(|run| run.segment)
    }

    /// The run that `vid` lies in.
    #[must_use]
    pub fn run_of(&self, vid: u64) -> Option<VersionRun> {
        let after = self.runs.partition_point(|run| run.vid_first <= vid);
        let run = self.runs.get(after.checked_sub(1)?)?;
        (vid < run.vid_end()).then_some(*run)
    }

    /// The runs, ascending.
    #[must_use]
    pub fn runs(&self) -> &[VersionRun] {
        &self.runs
    }

    /// One past the greatest VID of the map: the VID for the next row.
    #[must_use]
    pub fn vid_end(&self) -> u64 {
        self.runs.last().map_or(0, VersionRun::vid_end).max(self.vid_end_min)
    }

    /// VIDs of the range `vid_first..vid_first + vid_count` whose rows are dead, ascending.
    pub fn dead_in(&self, vid_first: u64, vid_count: u64) -> impl Iterator<Item = u64> + '_ {
        // For an empty range, the chunks from 1 to 0.
        let vid_last = vid_count.checked_sub(1).map(|more| vid_first.saturating_add(more));
        let last = vid_last.map(split_vid);
        let (chunk_first, from) = split_vid(vid_first);
        let chunks = last.map(|(chunk_last, _)| self.dead.range(chunk_first..=chunk_last));
        chunks.into_iter().flatten().flat_map(move |(number, chunk)| {
            let from = if *number == chunk_first { from } else { 0 };
            let to = last.filter(|(last, _)| last == number).map_or(u16::MAX, |(_, to)| to);
            chunk.between(from, to).map(|offset| join_vid(*number, offset))
        })
    }

    /// The dead rows of a page with the VIDs of `stretches`, one behind the other.
    pub fn dead_rows(&self, stretches: impl IntoIterator<Item = Range<u64>>) -> DeadRows {
        let mut words: Vec<u64> = Vec::new();
        let mut row_count = 0_u64;
        let mut last: Option<(u64, Option<&DeadChunk>)> = None;
        for stretch in stretches {
            let mut vid = stretch.start;
            while vid < stretch.end {
                let (number, _) = split_vid(vid);
                let chunk = match last {
                    Some((known, chunk)) if known == number => chunk,
                    _ => self.dead.get(&number).map(|chunk| &**chunk),
                };
                last = Some((number, chunk));
                let chunk_first = join_vid(number, 0);
                let end = stretch.end.min(chunk_first.saturating_add(CHUNK_VIDS));
                let offsets = vid.saturating_sub(chunk_first)..end.saturating_sub(chunk_first);
                let slot = row_count;
                row_count = row_count.saturating_add(end.saturating_sub(vid));
                vid = end;
                if let Some(chunk) = chunk.filter(|chunk| !chunk.is_clear(&offsets)) {
                    words.resize(usize::try_from(row_count.div_ceil(64)).unwrap_or(0), 0);
                    chunk.copy_bits(&offsets, &mut words, slot);
                }
            }
        }
        match usize::try_from(row_count) {
            Ok(row_count) if !words.is_empty() => DeadRows::of_words(words, row_count),
            _ => DeadRows::none(),
        }
    }

    /// Whether the row of `vid` is dead.
    #[must_use]
    pub fn is_dead(&self, vid: u64) -> bool {
        let (chunk, offset) = split_vid(vid);
        self.dead.get(&chunk).is_some_and(|chunk| chunk.has(offset)) || self.is_in_hole(vid)
    }

    /// Dead rows, of those in the runs.
    #[must_use]
    pub fn dead_count(&self) -> u64 {
        self.dead_count
    }

    /// Notes that the row of `vid` is dead; returns whether it was live before.
    pub fn end(&mut self, vid: u64) -> bool {
        let (chunk, offset) = split_vid(vid);
        let ends = Arc::make_mut(self.dead.entry(chunk).or_default()).set(offset);
        self.dead_count = self.dead_count.saturating_add(u64::from(ends));
        self.dirty_chunks.insert(chunk);
        ends
    }

    /// A map of `runs`, which ascend, in which of all rows only `live`, which ascend too, are live.
    ///
    /// # Errors
    /// As [`VersionMap::append_run`]; [`StoreError::Mismatch`] for a live row in no run.
    pub fn with_live(
        runs: impl IntoIterator<Item = VersionRun>,
        live: &[u64],
    ) -> Result<Self, StoreError> {
        let mut map = Self::new();
        for run in runs {
            map.append_run(run)?;
        }
        let runs = Arc::clone(&map.runs);
        for run in runs.iter() {
            let mut vid = run.vid_first;
            while vid < run.vid_end() {
                let (number, from) = split_vid(vid);
                let end = run.vid_end().min(join_vid(number, 0).saturating_add(CHUNK_VIDS));
                let to = u64::from(from).saturating_add(end.saturating_sub(vid));
                Arc::make_mut(map.dead.entry(number).or_default()).set_all(u64::from(from)..to);
                vid = end;
            }
            map.dead_count = map.dead_count.saturating_add(run.vid_count);
        }
        for vid in live {
            let (number, offset) = split_vid(*vid);
            let chunk = map.dead.get_mut(&number).filter(|chunk| chunk.has(offset));
            let Some(chunk) = chunk else {
                let reason = format!("the live row {vid} lies in no run");
                return Err(StoreError::Mismatch { what: "a version map", reason });
            };
            Arc::make_mut(chunk).clear(offset);
            map.dead_count = map.dead_count.saturating_sub(1);
        }
        map.dead.retain(|_, chunk| !chunk.is_empty());
        Ok(map)
    }

    /// Adds a run; one that continues the last run in VID and segment lengthens it.
    ///
    /// # Errors
    /// [`StoreError::Mismatch`] for an empty run, one that overlaps another, or one past the end of all VIDs.
    pub fn append_run(&mut self, run: VersionRun) -> Result<(), StoreError> {
        let mismatch = |reason| StoreError::Mismatch { what: "a run of the version map", reason };
        if run.vid_count == 0 || run.vid_first.checked_add(run.vid_count).is_none() {
            return Err(mismatch(format!("{run:?} is no range of VIDs")));
        }
        let end = self.vid_end();
        if run.vid_first < end {
            return Err(mismatch(format!("{run:?} begins before VID {end}, where the last ends")));
        }
        let runs = Arc::make_mut(&mut self.runs);
        match runs.last_mut() {
            Some(last) if last.segment == run.segment && last.vid_end() == run.vid_first => {
                last.vid_count = last.vid_count.saturating_add(run.vid_count);
            }
            _ => runs.push(run),
        }
        self.runs_dirty = true;
        Ok(())
    }

    /// Adds a run of reserved VIDs, into a hole or behind all others: a writer that reserved a range may finish after
    /// the writer of a later range. The hole must be a range that nobody used; VIDs of pruned rows never come back.
    ///
    /// # Errors
    /// [`StoreError::Mismatch`] for an empty run, one that overlaps another, or one past the end of all VIDs.
    pub fn insert_run(&mut self, run: VersionRun) -> Result<(), StoreError> {
        if run.vid_first >= self.vid_end() {
            return self.append_run(run);
        }
        let mismatch = |reason| StoreError::Mismatch { what: "a run of the version map", reason };
        let behind = self.runs.partition_point(|other| other.vid_first < run.vid_first);
        let before_end = behind.checked_sub(1).and_then(|before| self.runs.get(before));
        let next_first = self.runs.get(behind).map(|next| next.vid_first);
        let is_free = before_end.is_none_or(|before| before.vid_end() <= run.vid_first)
            && next_first.is_none_or(|first| run.vid_end() <= first);
        if run.vid_count == 0 || !is_free {
            return Err(mismatch(format!("{run:?} is no hole")));
        }
        // Joined with a neighbour of the same segment, as appended runs are.
        let mut runs: Vec<VersionRun> = Vec::with_capacity(self.runs.len().saturating_add(1));
        let (before, after) = self.runs.split_at_checked(behind).unwrap_or((&self.runs, &[]));
        for next in before.iter().chain([&run]).chain(after) {
            match runs.last_mut() {
                Some(last) if last.segment == next.segment && last.vid_end() == next.vid_first => {
                    last.vid_count = last.vid_count.saturating_add(next.vid_count);
                }
                _ => runs.push(*next),
            }
        }
        self.runs = Arc::new(runs);
        self.runs_dirty = true;
        Ok(())
    }

    /// Numbers of the chunks that changed since [`VersionMap::mark_clean`], ascending.
    pub fn dirty_chunks(&self) -> impl Iterator<Item = u64> + '_ {
        self.dirty_chunks.iter().copied()
    }

    /// Numbers of all chunks with dead rows, ascending.
    pub fn chunks(&self) -> impl Iterator<Item = u64> + '_ {
        self.dead.keys().copied()
    }

    /// Whether the runs changed since [`VersionMap::mark_clean`].
    #[must_use]
    pub fn runs_dirty(&self) -> bool {
        self.runs_dirty
    }

    /// Notes that the present runs and chunks are stored.
    pub fn mark_clean(&mut self) {
        self.runs_dirty = false;
        self.dirty_chunks.clear();
    }

    /// The stored form of the runs.
    #[must_use]
    pub fn encode_runs(&self) -> Vec<u8> {
        let mut end = 0u64;
        let runs = self.runs.iter().map(|run| {
            let vid_gap = run.vid_first.saturating_sub(end);
            end = run.vid_end();
            proto::VersionRun { vid_gap, vid_count: run.vid_count, segment: run.segment.0 }
        });
        let runs = runs.collect();
        let vid_end_min = self.vid_end_min;
        RUNS.seal(&proto::VersionRuns { runs, vid_end_min }.encode_to_vec())
    }

    /// The stored form of the chunk `number`; one without dead rows if there is none.
    #[must_use]
    pub fn encode_chunk(&self, number: u64) -> Vec<u8> {
        let mut message = proto::VersionChunk { number, ..Default::default() };
        if let Some(dead) = self.dead.get(&number) {
            encode_dead(dead, &mut message);
        }
        CHUNK.seal(&message.encode_to_vec())
    }

    /// Puts a map together from [`VersionMap::encode_runs`] and what [`VersionMap::encode_chunk`] wrote of each
    /// chunk, in any order. The map is clean.
    ///
    /// # Errors
    /// [`FrameError`] for bytes that were not written so, or a chunk that comes twice.
    pub fn from_parts<'a>(
        runs: &[u8],
        chunks: impl IntoIterator<Item = &'a [u8]>,
    ) -> Result<Self, FrameError> {
        let (runs, vid_end_min) = decode_runs(runs)?;
        let mut map = Self { runs: Arc::new(runs), vid_end_min, ..Self::default() };
        for chunk in chunks {
            let (number, dead) = decode_chunk(chunk)?;
            if map.dead.contains_key(&number) {
                return Err(CHUNK.malformed(format!("chunk {number} comes twice")));
            }
            if let Some(dead) = dead {
                let count = dead.0.iter().map(|word| u64::from(word.count_ones())).sum::<u64>();
                map.dead_count = map.dead_count.saturating_add(count);
                map.dead.insert(number, Arc::new(dead));
            }
        }
        Ok(map)
    }

    /// The whole map as one piece of bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let chunks = self.chunks().map(|number| self.encode_chunk(number)).collect();
        MAP.seal(&proto::VersionMap { runs: self.encode_runs(), chunks }.encode_to_vec())
    }

    /// Reads what [`VersionMap::encode`] wrote. The map is clean.
    ///
    /// # Errors
    /// [`FrameError`] for bytes that were not written so.
    pub fn decode(bytes: &[u8]) -> Result<Self, FrameError> {
        let (_, payload) = MAP.open(bytes)?;
        let message =
            proto::VersionMap::decode(payload).map_err(|error| MAP.malformed(error.to_string()))?;
        Self::from_parts(&message.runs, message.chunks.iter().map(Vec::as_slice))
    }
}

/// Two maps are equal if they say the same of every VID; the dirty flags do not count.
impl PartialEq for VersionMap {
    fn eq(&self, other: &Self) -> bool {
        self.runs == other.runs && self.dead == other.dead && self.vid_end() == other.vid_end()
    }
}

/// The chunk of a VID, and its offset in it.
fn split_vid(vid: u64) -> (u64, u16) {
    (vid / CHUNK_VIDS, u16::try_from(vid % CHUNK_VIDS).unwrap_or(u16::MAX))
}

fn join_vid(chunk: u64, offset: u16) -> u64 {
    chunk.saturating_mul(CHUNK_VIDS).saturating_add(u64::from(offset))
}

fn decode_runs(bytes: &[u8]) -> Result<(Vec<VersionRun>, u64), FrameError> {
    let (_, payload) = RUNS.open(bytes)?;
    let message =
        proto::VersionRuns::decode(payload).map_err(|error| RUNS.malformed(error.to_string()))?;
    let mut end = 0u64;
    let mut runs = Vec::with_capacity(message.runs.len());
    for run in message.runs {
        let vid_first = end.checked_add(run.vid_gap);
        let vid_end = vid_first.and_then(|first| first.checked_add(run.vid_count));
        let (Some(vid_first), Some(vid_end), true) = (vid_first, vid_end, run.vid_count > 0) else {
            return Err(RUNS.malformed(format!("{run:?} is no range of VIDs")));
        };
        end = vid_end;
        runs.push(VersionRun {
            vid_first,
            vid_count: run.vid_count,
            segment: SegmentId(run.segment),
        });
    }
    Ok((runs, message.vid_end_min))
}

/// Encodes dead rows as stretches of successive VIDs.
fn encode_dead(dead: &DeadChunk, message: &mut proto::VersionChunk) {
    let mut end = 0u32;
    for offset in dead.between(0, u16::MAX).map(u32::from) {
        match message.dead_counts.last_mut() {
            Some(count) if offset == end => *count = count.saturating_add(1),
            _ => {
                message.dead_gaps.push(offset.saturating_sub(end));
                message.dead_counts.push(1);
            }
        }
        end = offset.saturating_add(1);
    }
}

fn decode_dead(message: &proto::VersionChunk) -> Result<Option<DeadChunk>, FrameError> {
    if message.dead_gaps.len() != message.dead_counts.len() {
        return Err(CHUNK.malformed("its columns of ends differ in length"));
    }
    if message.dead_gaps.is_empty() {
        return Ok(None);
    }
    let (mut dead, mut offset) = (DeadChunk::default(), 0u64);
    for (gap, count) in message.dead_gaps.iter().zip(&message.dead_counts) {
        let first = offset.saturating_add(u64::from(*gap));
        offset = first.saturating_add(u64::from(*count));
        if *count == 0 || offset > CHUNK_VIDS {
            return Err(CHUNK.malformed("a stretch of ends is empty or leaves its chunk"));
        }
        (first..offset).filter_map(|place| u16::try_from(place).ok()).for_each(|place| {
            dead.set(place);
        });
    }
    Ok(Some(dead))
}

/// The number of a chunk, and which of its rows are dead.
fn decode_chunk(bytes: &[u8]) -> Result<(u64, Option<DeadChunk>), FrameError> {
    let (_, payload) = CHUNK.open(bytes)?;
    let message =
        proto::VersionChunk::decode(payload).map_err(|error| CHUNK.malformed(error.to_string()))?;
    if !message.version_gaps.is_empty() {
        return Err(
            CHUNK.malformed("it has places of later versions, which this build does not read")
        );
    }
    if message.number > u64::MAX / CHUNK_VIDS {
        return Err(CHUNK.malformed(format!("chunk {} is past all VIDs", message.number)));
    }
    Ok((message.number, decode_dead(&message)?))
}

mod prune;

#[cfg(test)]
mod tests;
