//! Checks unique indexes of divided tables: no key in two tablets.
//!
//! ```text
//!   tablet 0: runs, memtable ─▶ KeyMerge ─┐
//!   tablet 1: runs, memtable ─▶ KeyMerge ─┼─ least key first ─▶ twice, from two tablets?
//!   tablet 2: runs, memtable ─▶ KeyMerge ─┘
//! ```
//!
//! [`indexes`](super::indexes) checks each tablet by itself. Where the table is divided by columns of the index, equal
//! keys belong in one tablet, and a misplaced row is found by its page; no keys are compared then.
//!
//! A merge holds a read of each run and the memtables. Tablets that take more than [`CheckOptions::memory_bytes`]
//! together are compared in groups, each group with each other one.

use std::cmp::Ordering;
use std::sync::Arc;

use cleave_catalog::catalog::index_definition::IndexDefinition;
use cleave_catalog::error::Result;
use cleave_catalog::index::{IndexShape, TabletIndex};
use cleave_store::index::run::SCAN_BYTES;
use cleave_store::{KeyBlock, KeyMerge, KeyRange, MergeSource, PageClass, Run};

use super::pages::{Damaged, DevicePages, is_of_device};
use super::{CheckOptions, CheckReport, Fault, Place, Work};

/// A tablet that was checked, and its faults.
pub(super) type Checked = (Arc<Work>, Damaged);

/// Compares the keys of each unique index of a table between its tablets, as far as these can be read.
pub(super) async fn check(tablets: &[Checked], options: &CheckOptions, report: &mut CheckReport) {
    let Some((first, _)) = tablets.first() else { return };
    let table = Arc::clone(&first.table);
    for definition in table.indexes.iter().filter(|index| index.unique && table.divides(index)) {
        let place = Place {
            table: Some(table.schema.name.clone()),
            index: Some(definition.name.clone()),
            ..Place::default()
        };
        match check_index(tablets, definition, options).await {
            Ok(None) => {}
            Ok(Some(twice)) => report.findings.add(place, Fault::Index(twice)),
            Err(error) if is_of_device(&error) => {
                report.findings.add(place, Fault::Unreachable(error.to_string()));
                return;
            }
            Err(error) => {
                let fault = format!("keys of its tablets could not be compared: {error}");
                report.findings.add(place, Fault::Index(fault));
            }
        }
    }
}

/// What is wrong with the keys of an index, if anything is.
async fn check_index(
    tablets: &[Checked],
    definition: &IndexDefinition,
    options: &CheckOptions,
) -> Result<Option<String>> {
    let parts = tablets.iter().filter_map(|(work, damaged)| {
        let index = work.tablet.index(definition.id)?;
        Some(Part { work, damaged, index })
    });
    let parts: Vec<Part<'_>> = parts.collect();
    let mut costs = Vec::with_capacity(parts.len());
    for part in &parts {
        costs.push(part.byte_cost().await?);
    }
    let groups = groups(&costs, options.memory_bytes);
    let of = |group: &std::ops::Range<usize>| parts.get(group.clone()).unwrap_or_default();
    if let [all] = groups.as_slice() {
        return compare(of(all)).await;
    }
    for (place, group) in groups.iter().enumerate() {
        for other in groups.iter().skip(place + 1) {
            let both: Vec<Part<'_>> = of(group).iter().chain(of(other)).copied().collect();
            let twice = compare(&both).await?;
            if twice.is_some() {
                return Ok(twice);
            }
        }
    }
    Ok(None)
}

/// Neighbours that take no more than half of `memory_bytes` together, or one that takes more; all in one group if they
/// take no more than that.
fn groups(costs: &[u64], memory_bytes: u64) -> Vec<std::ops::Range<usize>> {
    if costs.iter().sum::<u64>() <= memory_bytes {
        return std::iter::once(0..costs.len()).collect();
    }
    let mut groups: Vec<std::ops::Range<usize>> = Vec::new();
    let mut group_bytes = u64::MAX;
    for (place, cost) in costs.iter().enumerate() {
        let with = group_bytes.saturating_add(*cost);
        match groups.last_mut().filter(|_| with <= memory_bytes / 2) {
            Some(last) => {
                last.end = place + 1;
                group_bytes = with;
            }
            None => {
                groups.push(place..place + 1);
                group_bytes = *cost;
            }
        }
    }
    groups
}

/// A tablet's part of an index.
#[derive(Clone, Copy)]
struct Part<'a> {
    work: &'a Arc<Work>,
    damaged: &'a Damaged,
    index: &'a Arc<TabletIndex>,
}

impl<'a> Part<'a> {
    /// Bytes that reading it in order takes.
    async fn byte_cost(&self) -> Result<u64> {
        let runs = self.index.runs().len().saturating_mul(SCAN_BYTES);
        let memtable = match self.has_memtable() {
            true => self.index.memtable_bytes(&self.work.tablet, &self.pages()).await?,
            false => 0,
        };
        Ok(runs.saturating_add(memtable) as u64)
    }

    /// Its entries in order, but for those of runs that do not hold.
    async fn stream(&self) -> Result<Stream<'a>> {
        let sound = self.index.runs().filter(|run| !self.damaged.in_segment(run.segment));
        let mut sources = Vec::new();
        for run in sound {
            let run = Run::new(Arc::clone(run))?;
            sources.push(MergeSource::Run(run.scan(KeyRange::default())));
        }
        let pages = self.pages();
        if self.has_memtable() {
            let memtable = self.index.memtable_copy(&self.work.tablet, &pages).await?;
            sources.push(MergeSource::Memtable(Arc::new(memtable)));
        }
        let merge = KeyMerge::new(sources, false);
        let (block, position) = (KeyBlock::empty(), 0);
        Ok(Stream { part: *self, pages, merge, block, position })
    }

    /// Whether the rows that the memtable is made of can be read.
    fn has_memtable(&self) -> bool {
        let heap = &self.work.tablet.heap;
        let mut hot = heap.iter().filter(|segment| segment.class == PageClass::HOT);
        !hot.any(|segment| self.damaged.in_segment(segment.segment))
    }

    fn pages(&self) -> DevicePages {
        DevicePages(Arc::clone(&self.work.device))
    }
}

/// A tablet's entries in order, and the one that is next.
struct Stream<'a> {
    part: Part<'a>,
    pages: DevicePages,
    merge: KeyMerge,
    block: KeyBlock,
    position: usize,
}

impl Stream<'_> {
    fn entry(&self) -> Option<(&[u8], u64)> {
        self.block.entry(self.position)
    }

    /// Passes over entries of dead rows, and gets the next entries where all of the block are used up; none
    /// are there after the last.
    async fn fill(&mut self) -> Result<()> {
        loop {
            match self.entry() {
                Some((_, vid)) if self.part.work.tablet.version_map.is_dead(vid) => {
                    self.position += 1;
                }
                Some(_) => return Ok(()),
                None => {
                    let Some(block) = self.merge.next(&self.pages).await? else {
                        self.block = KeyBlock::empty();
                        return Ok(());
                    };
                    (self.block, self.position) = (block, 0);
                }
            }
        }
    }
}

/// The first key that two of `parts` have, and how many more there are.
async fn compare(parts: &[Part<'_>]) -> Result<Option<String>> {
    let mut streams = Vec::with_capacity(parts.len());
    // Places of streams that have an entry, that with the least key last.
    let mut order = Vec::with_capacity(parts.len());
    for (place, part) in parts.iter().enumerate() {
        let mut stream = part.stream().await?;
        stream.fill().await?;
        streams.push(stream);
        put_back(&mut order, &streams, place);
    }
    let Some(shape) = parts.first().map(|part| part.index.shape()) else { return Ok(None) };
    let mut last: Option<Last> = None;
    let (mut first, mut count) = (None, 0_u64);
    while let Some(place) = order.pop() {
        let Some(stream) = streams.get_mut(place) else { break };
        let Some((key, vid)) = stream.entry() else { break };
        let tablet = stream.part.work.tablet.id.0;
        match &mut last {
            Some(last) if last.key == key => {
                // Reported once a key, however many rows have it. Equal keys of one tablet are reported where that is
                // checked.
                if last.tablet != tablet && !last.is_told && !shape.key.has_null(key) {
                    last.is_told = true;
                    count += 1;
                    first.get_or_insert_with(|| twice(shape, last, (tablet, vid)));
                }
            }
            Some(last) => last.set(key, tablet, vid),
            None => {
                let key = key.to_vec();
                last = Some(Last { key, tablet, vid, is_told: false });
            }
        }
        stream.position += 1;
        stream.fill().await?;
        put_back(&mut order, &streams, place);
    }
    let more = match count {
        0 | 1 => String::new(),
        _ => format!(" (and at least {} more keys are in several tablets)", count - 1),
    };
    Ok(first.map(|first| format!("{first}{more}")))
}

/// The entry before, of those with its key the first.
struct Last {
    key: Vec<u8>,
    tablet: u32,
    vid: u64,
    is_told: bool,
}

impl Last {
    fn set(&mut self, key: &[u8], tablet: u32, vid: u64) {
        self.key.clear();
        self.key.extend_from_slice(key);
        (self.tablet, self.vid, self.is_told) = (tablet, vid, false);
    }
}

fn twice(shape: &IndexShape, last: &Last, (tablet, vid): (u32, u64)) -> String {
    format!(
        "the row of VID {} in tablet {} and that of VID {vid} in tablet {tablet} have the same key, ({})",
        last.vid,
        last.tablet,
        shape.key_text(&last.key)
    )
}

/// Puts the stream at `place` in order, unless it has no more entries.
fn put_back(order: &mut Vec<usize>, streams: &[Stream<'_>], place: usize) {
    let key = |place: usize| streams.get(place).and_then(Stream::entry).map(|(key, _)| key);
    let Some(own) = key(place) else { return };
    let at = order.partition_point(|other| {
        // Descending; of equal keys the tablet given first comes out first.
        key(*other).cmp(&Some(own)).then(other.cmp(&place)) == Ordering::Greater
    });
    order.insert(at, place);
}

#[cfg(test)]
mod tests;
