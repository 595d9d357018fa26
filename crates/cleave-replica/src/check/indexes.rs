//! Checks indexes against their tables, in both directions, in bounded memory.
//!
//! ```text
//!   VIDs a..b:  rows ──key──▶ hash of the entry that each must have ─┐
//!               runs ──every entry whose VID is in a..b──────────────┴─ equal? each once?
//! ```
//!
//! A window of VIDs takes nine bytes a row, and the runs are read once for each window: for most tables once in all.
//! Hashes stand for entries; two different ones are taken for equal with a chance of 1 in 2^64. Each entry must also
//! pass the filter of its run, without which it is not found, and all entries must ascend, those of rows in no run
//! among them.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use arrow::array::AsArray;
use arrow::datatypes::{DataType, Field, Schema, UInt64Type};
use cleave_catalog::error::Result;
use cleave_catalog::index::{IndexShape, TabletIndex};
use cleave_catalog::tasks::joined;
use cleave_store::index::run::KEY_COLUMN;
use cleave_store::{
    ColumnRef, KeyBlock, KeyMerge, KeyRange, MergeSource, PageClass, PageRead, Projection, Run,
    SegmentDirectory, VersionMap,
};
use datafusion_common_runtime::SpawnedTask;
use futures::StreamExt;
use futures::stream;

use super::maps::judge;
use super::pages::{Damaged, DevicePages, is_of_device, read_rows};
use super::{CheckOptions, CheckReport, Fault, Place, Work};

/// Bytes of one row of a window.
const ROW_BYTES: u64 = 9;

/// VIDs without rows that no window is made for.
const HOLE_MIN: u64 = 1 << 20;

/// Entries of one page that are reported one by one.
const TOLD_COUNT_MAX: usize = 5;

/// What is known of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RowStatus {
    /// There is none, or no run has its entry.
    None,
    /// It lies on a page that does not hold.
    Unknown,
    /// It must have an entry.
    Wanted,
    /// It has one.
    Found,
}

/// Rows of a range of VIDs.
struct Window {
    first: u64,
    hashes: Vec<u64>,
    states: Vec<RowStatus>,
}

/// Compares every index of a tablet with its rows.
pub(super) async fn check(
    work: &Arc<Work>,
    damaged: &Damaged,
    options: &CheckOptions,
    report: &mut CheckReport,
) {
    for index in work.indexes() {
        let place = Place { index: Some(index.name.clone()), ..work.place() };
        match check_index(work, &index, damaged, options, report).await {
            Ok(()) => {}
            Err(error) if is_of_device(&error) => {
                report.findings.add(work.device_place(), Fault::Unreachable(error.to_string()));
                return;
            }
            Err(error) => report.findings.add(place, Fault::Index(error.to_string())),
        }
    }
}

/// One index of a tablet.
pub(super) struct Index {
    name: String,
    index: Arc<TabletIndex>,
}

impl Work {
    /// The tablet's indexes.
    fn indexes(&self) -> Vec<Index> {
        let index = |index: &Arc<TabletIndex>| Index {
            name: index.definition().name.clone(),
            index: Arc::clone(index),
        };
        self.tablet.indexes.iter().map(index).collect()
    }

    /// The display name of the index `id`.
    pub(super) fn index_name(&self, id: u32) -> String {
        let found = self.tablet.index(id).map(|index| index.definition().name.clone());
        found.unwrap_or_else(|| format!("number {id}"))
    }
}

async fn check_index(
    work: &Arc<Work>,
    index: &Index,
    damaged: &Damaged,
    options: &CheckOptions,
    report: &mut CheckReport,
) -> Result<()> {
    let runs = index.index.runs().map(|run| Run::new(Arc::clone(run)));
    let runs: Vec<Run> = runs.collect::<std::result::Result<_, _>>()?;
    // A missing entry may lie on a damaged page.
    let all_runs = !runs.iter().any(|run| damaged.in_segment(run.directory().segment));
    let room = (options.memory_bytes / ROW_BYTES).max(1024);
    // Many VIDs that no row has need no window, but for the first: there entries that no row can have are reported.
    let (map, end) = (&work.tablet.version_map, work.tablet.next_vid);
    let is_large = |(from, to): &(u64, u64)| to - from >= room.min(HOLE_MIN);
    // Behind the map there are no rows, as in a table that was truncated.
    let behind = (map.vid_end(), end.max(map.vid_end()));
    let holes: Vec<(u64, u64)> = map.holes().chain([behind]).filter(is_large).collect();
    let mut first = 0;
    while first < end {
        let limit = match holes.iter().find(|(_, to)| first < *to) {
            Some((from, to)) if *from <= first => match first {
                0 => 1,
                _ => {
                    first = *to;
                    continue;
                }
            },
            Some((from, _)) => *from,
            None => end,
        };
        let length = room.min(limit - first);
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        let mut window =
            Window { first, hashes: vec![0; length], states: vec![RowStatus::None; length] };
        fill(work, index, damaged, options, &mut window).await?;
        compare(work, index, &runs, damaged, options, &mut window, report).await?;
        if all_runs {
            missing(work, index, &window, report);
        }
        first = first.saturating_add(length as u64);
    }
    if all_runs { check_order(work, index, &runs, damaged, report).await } else { Ok(()) }
}

/// Entries of all runs and of rows that are in no run together: they ascend in each, and none comes twice.
async fn check_order(
    work: &Work,
    index: &Index,
    runs: &[Run],
    damaged: &Damaged,
    report: &mut CheckReport,
) -> Result<()> {
    let whole = |run: &Run| MergeSource::Run(run.scan(KeyRange::default()));
    let mut sources: Vec<MergeSource> = runs.iter().map(whole).collect();
    let pages = DevicePages(Arc::clone(&work.device));
    let hot = work.tablet.heap.iter().filter(|segment| segment.class == PageClass::HOT);
    // The memtable is made of these rows.
    if !hot.into_iter().any(|segment| damaged.in_segment(segment.segment)) {
        let memtable = index.index.memtable_copy(&work.tablet, &pages).await?;
        sources.push(MergeSource::Memtable(Arc::new(memtable)));
    }
    let mut merge = KeyMerge::new(sources, false);
    let mut last: Option<(Vec<u8>, u64)> = None;
    let fault = loop {
        let block = match merge.next(&pages).await {
            Ok(Some(block)) => block,
            Ok(None) => return Ok(()),
            Err(error) => break error.to_string(),
        };
        if let Some((first, second)) = twice(work, &block, &mut last) {
            break format!("the rows of VIDs {first} and {second} have the same key");
        }
    };
    let place = Place { index: Some(index.name.clone()), ..work.place() };
    report.findings.add(place, Fault::Index(fault));
    Ok(())
}

/// The first two rows of `block` that have one key, neither of which is dead; `last` is the one before the block.
fn twice(work: &Work, block: &KeyBlock, last: &mut Option<(Vec<u8>, u64)>) -> Option<(u64, u64)> {
    for (key, vid) in block.iter().filter(|(_, vid)| !work.tablet.version_map.is_dead(*vid)) {
        if let Some((_, first)) = last.as_ref().filter(|(last, _)| last == key) {
            return Some((*first, vid));
        }
        let (last_key, last_vid) = last.get_or_insert_default();
        last_key.clear();
        last_key.extend_from_slice(key);
        *last_vid = vid;
    }
    None
}

/// Rows of the window, from the heap.
async fn fill(
    work: &Arc<Work>,
    index: &Index,
    damaged: &Damaged,
    options: &CheckOptions,
    window: &mut Window,
) -> Result<()> {
    let mut pages = Vec::new();
    for segment in &work.tablet.heap {
        for (place, entry) in segment.pages.iter().enumerate() {
            let (from, count) = entry.vids();
            let is_sequence = work.tablet.version_map.run_of(from).is_some();
            if is_sequence && !window.overlaps(from, count) {
                continue;
            }
            if damaged.has(segment.segment, entry.page.page) {
                let to = from.saturating_add(count).min(window.end());
                for vid in from.max(window.first)..to {
                    window.put(vid, RowStatus::Unknown, 0);
                }
                continue;
            }
            pages.push((Arc::clone(segment), place));
        }
    }
    window.put_pruned(&work.tablet.version_map);
    let covered = index.index.vid_covered;
    let rows = stream::iter(pages).map(|(segment, place)| {
        let (work, shape) = (Arc::clone(work), Arc::clone(index.index.shape()));
        SpawnedTask::spawn(async move { rows(&work, &segment, place, &shape).await }).join()
    });
    let mut rows = std::pin::pin!(rows.buffered(options.threads.max(1) * 2));
    while let Some(rows) = rows.next().await {
        let rows = joined(rows)??;
        for (vid, hash) in rows.entries {
            // Younger rows of hot segments are in the memtable, which is made of the rows themselves.
            if !rows.is_hot || vid < covered {
                // The entry of a dead row stays until runs are merged.
                let is_dead = work.tablet.version_map.is_dead(vid);
                let state = if is_dead { RowStatus::Unknown } else { RowStatus::Wanted };
                window.put(vid, state, hash);
            }
        }
    }
    Ok(())
}

/// VIDs of a page's newest versions, and the hashes of their entries.
struct Rows {
    is_hot: bool,
    entries: Vec<(u64, u64)>,
}

async fn rows(
    work: &Work,
    segment: &SegmentDirectory,
    place: usize,
    shape: &IndexShape,
) -> Result<Rows> {
    let is_hot = segment.class == PageClass::HOT;
    let Some(entry) = segment.pages.get(place) else {
        return Ok(Rows { is_hot, entries: Vec::new() });
    };
    let projection = shape.projection().with_version(ColumnRef::Vid);
    let read = PageRead {
        segment: segment.segment_ref(),
        page: entry.page,
        columns: projection.columns.clone(),
    };
    let batch = read_rows(&work.device, &read, entry, &projection).await?;
    let (vids, keys) = match batch.columns().split_last() {
        Some((vids, keys)) => (vids.as_primitive_opt::<UInt64Type>(), keys),
        None => (None, [].as_slice()),
    };
    let Some(vids) = vids else { return Ok(Rows { is_hot, entries: Vec::new() }) };
    let keys = shape.key.entries(keys, vids.values().iter().copied())?;
    let mut found = Vec::with_capacity(vids.len());
    for (slot, (vid, key)) in vids.values().iter().zip(keys.iter()).enumerate() {
        let slot = u16::try_from(slot).unwrap_or(u16::MAX);
        let known = judge(work, segment.segment, entry.page.page, slot, *vid);
        if let (Ok(()), Some(key)) = (known, key) {
            found.push((*vid, hash(key)));
        }
    }
    Ok(Rows { is_hot, entries: found })
}

/// Entries of all runs, against the window.
async fn compare(
    work: &Arc<Work>,
    index: &Index,
    runs: &[Run],
    damaged: &Damaged,
    options: &CheckOptions,
    window: &mut Window,
    report: &mut CheckReport,
) -> Result<()> {
    let mut pages = Vec::new();
    for run in runs {
        let directory = run.directory();
        for (place, entry) in directory.pages.iter().enumerate() {
            if !damaged.has(directory.segment, entry.page.page) {
                pages.push((run.clone(), place));
            }
        }
    }
    let found = stream::iter(pages).map(|(run, place)| {
        let (work, shape) = (Arc::clone(work), Arc::clone(index.index.shape()));
        async move {
            let directory = Arc::clone(run.directory());
            let entries = async move { run_entries(&work, &shape, &run, place).await };
            (directory, place, SpawnedTask::spawn(entries).join().await)
        }
    });
    let mut found = std::pin::pin!(found.buffered(options.threads.max(1) * 2));
    let end = work.tablet.next_vid;
    while let Some((run, place, entries)) = found.next().await {
        let entries = joined(entries)??;
        let mut wrong = Vec::new();
        let mut more = 0;
        let RunEntries { entries, hidden } = entries;
        if let Some((vid, count)) = hidden.filter(|_| window.first == 0) {
            let more = if count > 1 { format!(" (and {} more)", count - 1) } else { String::new() };
            wrong.push(format!("its run's filter hides its entry for VID {vid}{more}"));
        }
        for (vid, hash) in entries {
            // Entries without a valid VID are reported in the first window.
            let fault = if vid >= end && window.first == 0 {
                Some(format!("it has an entry for VID {vid}, which no row ever had"))
            } else {
                window.meet(vid, hash)
            };
            if wrong.len() < TOLD_COUNT_MAX {
                wrong.extend(fault);
            } else {
                more += u64::from(fault.is_some());
            }
        }
        let Some(entry) = run.pages.get(place) else { continue };
        let place = Place {
            index: Some(index.name.clone()),
            segment: Some(run.segment),
            page: Some(entry.page.page),
            address: Some(entry.page.extent.start),
            ..work.place()
        };
        if more > 0 {
            wrong.push(format!("{more} more of its entries do not hold"));
        }
        for fault in wrong {
            report.findings.add(place.clone(), Fault::Index(fault));
        }
    }
    Ok(())
}

/// What a page of a run has.
#[derive(Default)]
struct RunEntries {
    /// VIDs of the entries, and their hashes.
    entries: Vec<(u64, u64)>,
    /// The first one that the run's filter does not let pass, and how many there are.
    hidden: Option<(u64, u64)>,
}

async fn run_entries(
    work: &Work,
    shape: &IndexShape,
    run: &Run,
    place: usize,
) -> Result<RunEntries> {
    let directory = run.directory();
    let Some(entry) = directory.pages.get(place) else { return Ok(RunEntries::default()) };
    let projection = Projection::new(
        Schema::new(vec![Field::new("key", DataType::Binary, false)]).into(),
        vec![ColumnRef::User(KEY_COLUMN)],
    )
    .with_version(ColumnRef::Vid);
    let read = PageRead {
        segment: directory.segment_ref(),
        page: entry.page,
        columns: projection.columns.clone(),
    };
    let batch = read_rows(&work.device, &read, entry, &projection).await?;
    let keys = batch.column(0).as_binary_opt::<i32>();
    let vids = batch.column(1).as_primitive_opt::<UInt64Type>();
    let (Some(keys), Some(vids)) = (keys, vids) else { return Ok(RunEntries::default()) };
    let mut found = RunEntries::default();
    for (key, vid) in keys.iter().flatten().zip(vids.values()) {
        found.entries.push((*vid, hash(key)));
        if !run.may_have(shape.key.search_key(key)) {
            found.hidden.get_or_insert((*vid, 0)).1 += 1;
        }
    }
    Ok(found)
}

/// Rows of the window without an entry.
fn missing(work: &Work, index: &Index, window: &Window, report: &mut CheckReport) {
    let mut wanted = (window.first..)
        .zip(&window.states)
        .filter(|(_, state)| **state == RowStatus::Wanted)
        .map(|(vid, _)| vid);
    let Some(first) = wanted.next() else { return };
    let more = wanted.count();
    let more = if more > 0 { format!(" (and {more} more rows)") } else { String::new() };
    let place = Place { index: Some(index.name.clone()), ..work.place() };
    let fault = format!("the row of VID {first} has no entry{more}");
    report.findings.add(place, Fault::Index(fault));
}

impl Window {
    fn place(&self, vid: u64) -> Option<usize> {
        usize::try_from(vid.checked_sub(self.first)?).ok().filter(|at| *at < self.states.len())
    }

    /// One past its last VID.
    fn end(&self) -> u64 {
        self.first.saturating_add(self.states.len() as u64)
    }

    fn overlaps(&self, first: u64, count: u64) -> bool {
        first < self.end() && first.saturating_add(count) > self.first
    }

    /// Dead rows, which no page may have any more, and an index still.
    fn put_pruned(&mut self, map: &VersionMap) {
        let count = self.states.len() as u64;
        for vid in map.dead_in(self.first, count) {
            self.put(vid, RowStatus::Unknown, 0);
        }
        for (from, to) in map.holes() {
            for vid in from.max(self.first)..self.end().min(to) {
                self.put(vid, RowStatus::Unknown, 0);
            }
        }
    }

    fn put(&mut self, vid: u64, state: RowStatus, hash: u64) {
        let Some(at) = self.place(vid) else { return };
        if let (Some(own), Some(own_hash)) = (self.states.get_mut(at), self.hashes.get_mut(at)) {
            *own = state;
            *own_hash = hash;
        }
    }

    /// Compares an entry with its row; what is wrong with it.
    fn meet(&mut self, vid: u64, hash: u64) -> Option<String> {
        let at = self.place(vid)?;
        let wanted = self.hashes.get(at).copied();
        let state = self.states.get_mut(at)?;
        match *state {
            RowStatus::Unknown => None,
            RowStatus::None => Some(format!("it has an entry for VID {vid}, which has no row")),
            RowStatus::Found => Some(format!("it has a second entry for VID {vid}")),
            RowStatus::Wanted if wanted == Some(hash) => {
                *state = RowStatus::Found;
                None
            }
            RowStatus::Wanted => {
                // Reported here, and not once more as a row without an entry.
                *state = RowStatus::Unknown;
                Some(format!("its entry for VID {vid} has another key than the row"))
            }
        }
    }
}

fn hash(key: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    hasher.finish()
}
