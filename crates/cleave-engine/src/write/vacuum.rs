//! Vacuum: segments with dead rows in, segments without them out, on the same device.
//!
//! ```text
//!   heap     ─▶ groups of segments ─▶ WriteRowsExec ─┬─▶ device ─┬─▶ PageEntry ─▶ checked ─▶ directory, gaps ─▶ commit
//!               (neighbours, a class)  └ TableScanExec └─▶ host ──┘
//! ```
//!
//! 1. [`vacuum`] seals the hot segment where it has rows to prune, and chooses [`groups`]: neighbours of which enough
//!    rows are dead.
//! 2. Without the writer lock, the live rows of each group are written to a segment of their own, as a
//!    [fragment](super::writing_fragment) on the device of the table, or on the host. They keep their VIDs, so no
//!    index, lock or log record changes.
//! 3. Indexes with enough entries of dead rows have their runs merged into one without these, in the same way.
//! 4. One commit puts the new segments into the places of the old ones. Rows deleted since are marked dead in the
//!    version map, as before; the old pages are free when the last catalog version that names them is gone.
//!
//! Invariant: the host knows which VIDs must come, in order, and takes only pages that have so many rows and begin with
//! those. A group that cannot be read or written is left as it is, the others are done. The caller holds the table's
//! lock against definitions, indexes and other vacuums. Source: `docs/design/indexes.md`;
//! `docs/design/delta-and-snapshots.md`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arrow::datatypes::Schema;
use cleave_catalog::catalog::{DeviceId, TabletState, segment_extents};
use cleave_catalog::error::{Error, Result};
use cleave_catalog::index::TabletIndex;
use cleave_catalog::settings::Settings;
use cleave_fragment::operators::table_scan_exec::{References, TableScan};
use cleave_fragment::{TableScanExec, WriteRowsExec, WrittenSegment, read_written};
use cleave_store::{
    ColumnRef, PageClass, PageEntry, Projection, SegmentDirectory, SegmentId, SegmentKind,
    SegmentRef, TableSchema, VersionMap, VidGaps,
};

use super::load::segment_ref;
use super::merge_runs::{NewRun, RunMerger};
use super::writing_fragment::{Sides, WritingFragment, give_back_unused, live_morsels};
use crate::device::Claim;
use crate::storage_engine::Engine;
use crate::storage_engine::catalog_edit::CatalogEdit;
use crate::storage_engine::commit::Changes;

/// The number of the only morsel input.
const INPUT: u32 = 0;
/// Of the rows on the pages of a segment, the share that must be dead before it is rewritten: one in so many.
const DEAD_SHARE: u64 = 50;
/// Of the entries in the runs of an index, the part that must be those of dead rows before they are merged: one in so
/// many.
const ENTRIES_SHARE: u64 = 5;
/// Pages of a segment below which it is rewritten with a neighbour that is.
const SMALL_PAGES: usize = 64;
/// Bytes of the pages of a group: what is written is committed at once, and takes as much space beside what is there.
const GROUP_BYTES_MAX: usize = 1 << 30;

/// What a vacuum did to one table.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Vacuumed {
    /// The table.
    pub table: String,
    /// Rows that were dead and lie on no page any more.
    pub rows_removed: u64,
    /// Dead rows that still lie on pages, in segments that were not worth it.
    pub rows_dead: u64,
    /// Live rows.
    pub rows_left: u64,
    /// Blocks of heap and indexes before.
    pub blocks_before: u64,
    /// Blocks of heap and indexes after.
    pub blocks_after: u64,
    /// Segments that were written by the device.
    pub on_device: u64,
    /// Segments that were written by the host.
    pub on_host: u64,
}

/// Segments of one tablet that become one, or none.
struct Group {
    /// The tablet's place in the table.
    place: usize,
    device: DeviceId,
    old: Vec<Arc<SegmentDirectory>>,
    live_count: u64,
    new: SegmentRef,
}

/// An index of one tablet, whose runs become one.
struct Merge {
    /// The tablet's place in the table.
    place: usize,
    index: Arc<TabletIndex>,
    new: SegmentRef,
}

/// Replacements of segments and runs.
#[derive(Default)]
struct Made {
    segments: Vec<Pruned>,
    runs: Vec<(Merge, SegmentDirectory)>,
}

/// A group, and the segment that takes its place.
type Pruned = (Group, Option<SegmentDirectory>);

/// Prunes the table `name`: segments of which enough rows are dead, or, where it is to be `full`, any.
///
/// # Errors
/// An unknown or damaged table; what kept a group from being read or written, when the others are done.
pub async fn vacuum(
    database: &Arc<Engine>,
    settings: &Arc<Settings>,
    name: &str,
    full: bool,
) -> Result<Vacuumed> {
    let mut first = CatalogEdit::begin(database).await?;
    let table = first.table(name)?;
    let mut told = Vacuumed { table: name.to_owned(), ..Vacuumed::default() };
    let mut changed = cleave_catalog::catalog::TableState::clone(&table);
    let (mut groups, mut merges) = (Vec::new(), Vec::new());
    for (place, tablet) in changed.tablets.iter_mut().enumerate() {
        told.blocks_before += blocks_of(tablet);
        for index in tablet.indexes.iter().filter(|index| is_due(index, tablet, full)) {
            let new = segment_ref(&mut first, &table.schema)?;
            merges.push(Merge { place, index: Arc::clone(index), new });
        }
        let found = groups_of(tablet, full);
        let is_hot = |segment: &Arc<SegmentDirectory>| !segment.sealed;
        if found.iter().flatten().any(|at| tablet.heap.get(*at).is_some_and(is_hot)) {
            let tablet = Arc::make_mut(tablet);
            tablet.heap.iter_mut().for_each(|segment| {
                if !segment.sealed {
                    Arc::make_mut(segment).sealed = true;
                }
            });
        }
        for places in found {
            let old: Vec<_> =
                places.iter().filter_map(|at| tablet.heap.get(*at)).map(Arc::clone).collect();
            // All of its rows were committed by the number that it gets.
            let new = segment_ref(&mut first, &table.schema)?;
            let live_count = live_vids(&tablet.version_map, &old).count() as u64;
            groups.push(Group { place, device: tablet.device, old, live_count, new });
        }
    }
    if groups.is_empty() && merges.is_empty() {
        told.rows_left = table.row_count();
        told.rows_dead = table.tablets.iter().map(|tablet| tablet.dead_row_count()).sum();
        told.blocks_after = told.blocks_before;
        return Ok(told);
    }
    first.put_table(changed);
    // Held to the end: its pages stay.
    let state = database.commit(Changes::checkpoint(first)).await?.state;
    let known = Arc::clone(state.find_table(name)?);

    let mut claims: BTreeMap<DeviceId, Arc<Claim>> = BTreeMap::new();
    let mut made = Made::default();
    let mut failure = None;
    for group in groups {
        let Some(tablet) = known.tablets.get(group.place) else { continue };
        if group.live_count == 0 {
            made.segments.push((group, None));
            continue;
        }
        let device = database.attached(group.device)?;
        let claim =
            claims.entry(group.device).or_insert_with(|| Arc::new(Claim::new(Arc::clone(&device))));
        let sides = Sides::new(database, &device, settings)?;
        match prune(&sides, claim, &group, tablet, &known.schema).await {
            Ok((segment, by_device)) => {
                told.on_device += u64::from(by_device);
                told.on_host += u64::from(!by_device);
                made.segments.push((group, Some(segment)));
            }
            // Its old segments are as good as they were.
            Err(error) => drop(failure.get_or_insert(error)),
        }
    }
    for merge in merges {
        let Some(tablet) = known.tablets.get(merge.place) else { continue };
        let device = database.attached(tablet.device)?;
        let claim = claims
            .entry(tablet.device)
            .or_insert_with(|| Arc::new(Claim::new(Arc::clone(&device))));
        let merger = RunMerger::new(database, &device, settings)?;
        let old: Vec<_> = merge.index.runs().map(Arc::clone).collect();
        let new = NewRun { shape: merge.index.shape(), segment: merge.new, level: 1, newest: true };
        let gone = tablet.version_map.gone().into();
        match merger.merge_without(claim, new, &old, gone).await {
            Ok(run) => made.runs.push((merge, run)),
            Err(error) => drop(failure.get_or_insert(error)),
        }
    }
    if !made.segments.is_empty() || !made.runs.is_empty() {
        commit(database, name, &known, made, claims, &mut told).await?;
    }
    drop(state);
    match failure {
        Some(error) => Err(error),
        None => Ok(told),
    }
}

/// Replaces the sources of `made` by the new segments and runs, as far as they are there still.
async fn commit(
    database: &Arc<Engine>,
    name: &str,
    known: &cleave_catalog::catalog::TableState,
    made: Made,
    claims: BTreeMap<DeviceId, Arc<Claim>>,
    told: &mut Vacuumed,
) -> Result<()> {
    let mut last = CatalogEdit::begin(database).await?;
    let now = last.table(name)?;
    if now.schema.table_id != known.schema.table_id {
        return Ok(());
    }
    // Space of a failed group stays with its claim, and is freed with it.
    for (device, claim) in claims {
        let on_device =
            |place: usize| known.tablets.get(place).is_some_and(|tablet| tablet.device == device);
        let segments = made.segments.iter().filter(|(group, _)| on_device(group.place));
        let segments = segments.filter_map(|(_, segment)| segment.as_ref());
        let runs = made.runs.iter().filter(|(merge, _)| on_device(merge.place));
        let new = segments.chain(runs.map(|(_, run)| run));
        last.publish_kept(claim, new.flat_map(segment_extents).collect());
    }
    let mut changed = cleave_catalog::catalog::TableState::clone(&now);
    for (merge, run) in made.runs {
        if let Some(tablet) = changed.tablets.get_mut(merge.place).map(Arc::make_mut) {
            replace_runs(tablet, &merge, run)?;
        }
    }
    for (group, new) in made.segments {
        let before = known.tablets.get(group.place);
        let tablet = changed.tablets.get_mut(group.place).map(Arc::make_mut);
        let Some((before, tablet)) = before.zip(tablet) else { continue };
        told.rows_removed += replace(tablet, &group, new, &before.version_map);
    }
    told.rows_left = changed.row_count();
    told.rows_dead = changed.tablets.iter().map(|tablet| tablet.dead_row_count()).sum();
    told.blocks_after = changed.tablets.iter().map(|tablet| blocks_of(tablet)).sum();
    last.put_table(changed);
    // The visible rows stay the same, and the log that follows uses the same VIDs.
    database.commit(Changes::checkpoint(last)).await.map(drop)
}

/// Replaces the segments of `group` by `new`; how many rows that leaves out. Where one of them is gone, nothing is
/// done: the table was emptied or replaced.
fn replace(
    tablet: &mut TabletState,
    group: &Group,
    new: Option<SegmentDirectory>,
    known: &VersionMap,
) -> u64 {
    let at = tablet
        .heap
        .iter()
        .position(|segment| group.old.first().is_some_and(|first| Arc::ptr_eq(first, segment)));
    let Some(at) = at else { return 0 };
    let range = at..at.saturating_add(group.old.len());
    let is_same = tablet.heap.get(range.clone()).is_some_and(|found| {
        found.iter().zip(&group.old).all(|(found, old)| Arc::ptr_eq(found, old))
    });
    if !is_same {
        return 0;
    }
    let ids: BTreeSet<SegmentId> = group.old.iter().map(|segment| segment.segment).collect();
    let rows: u64 = group.old.iter().map(|segment| segment.row_count()).sum();
    tablet.heap.splice(range, new.map(Arc::new));
    Arc::make_mut(&mut tablet.version_map).move_runs(&ids, known, group.new.segment);
    rows.saturating_sub(group.live_count)
}

/// Replaces the runs that `merge` has read by `run`, beside those that have come since. Where one of them is gone,
/// nothing is done: the index was dropped, or a commit has merged them.
fn replace_runs(tablet: &mut TabletState, merge: &Merge, run: SegmentDirectory) -> Result<()> {
    let id = merge.index.definition().id;
    let Some(index) = tablet.indexes.iter_mut().find(|index| index.definition().id == id) else {
        return Ok(());
    };
    let old: Vec<_> = merge.index.runs().collect();
    let is_old = |run: &Arc<SegmentDirectory>| old.iter().any(|old| Arc::ptr_eq(old, run));
    if index.runs().filter(|run| is_old(run)).count() < old.len() {
        return Ok(());
    }
    let merged = Some(run).filter(|run| !run.pages.is_empty()).map(Arc::new);
    let since = index.runs().filter(|run| !is_old(run)).map(Arc::clone);
    let runs = merged.into_iter().chain(since).collect();
    *index = Arc::new(index.with_runs(runs)?);
    Ok(())
}

/// Whether the runs of `index` have enough entries of dead rows, or, where it is to be `full`, may have any.
fn is_due(index: &TabletIndex, tablet: &TabletState, full: bool) -> bool {
    let entries: u64 = index.runs().map(|run| run.row_count()).sum();
    let live = tablet.row_count();
    // Some live rows have their entry in memory.
    let dead = entries.saturating_sub(live);
    dead > 0 && (full || dead.saturating_mul(ENTRIES_SHARE) >= entries)
}

/// Places of the segments of `tablet` to rewrite, in groups of neighbours.
fn groups_of(tablet: &TabletState, full: bool) -> Vec<Vec<usize>> {
    let mut live: BTreeMap<SegmentId, u64> = BTreeMap::new();
    for run in tablet.version_map.runs() {
        let dead = tablet.version_map.dead_in(run.vid_first, run.vid_count).count() as u64;
        *live.entry(run.segment).or_default() += run.vid_count - dead;
    }
    let segments: Vec<Segment> = tablet
        .heap
        .iter()
        .map(|segment| {
            let rows = segment.row_count();
            let dead = rows.saturating_sub(live.get(&segment.segment).copied().unwrap_or(0));
            let blocks: usize = segment_extents(segment).map(|extent| extent.bytes()).sum();
            Segment {
                is_worth_it: dead > 0 && (full || dead.saturating_mul(DEAD_SHARE) >= rows),
                is_small: segment.pages.len() < SMALL_PAGES && segment.sealed,
                class: segment.class,
                bytes: blocks,
            }
        })
        .collect();
    groups(&segments)
}

/// The figures that decide about a segment.
#[derive(Debug, Clone, Copy)]
struct Segment {
    is_worth_it: bool,
    is_small: bool,
    class: PageClass,
    bytes: usize,
}

/// Neighbours of one class, each of which is worth it or small, and one of which is worth it.
fn groups(segments: &[Segment]) -> Vec<Vec<usize>> {
    let mut groups: Vec<Vec<usize>> = Vec::new();
    let mut open: Vec<usize> = Vec::new();
    let mut bytes = 0;
    let mut close = |open: &mut Vec<usize>| {
        let of = |place: &usize| segments.get(*place);
        // Small segments are included, and do not begin or end a group.
        if open.iter().any(|place| of(place).is_some_and(|segment| segment.is_worth_it)) {
            groups.push(std::mem::take(open));
        }
        open.clear();
    };
    for (place, segment) in segments.iter().enumerate() {
        let class = open.last().and_then(|last| segments.get(*last)).map(|last| last.class);
        let fits = class.is_none_or(|class| class == segment.class)
            && bytes + segment.bytes <= GROUP_BYTES_MAX
            && (segment.is_worth_it || segment.is_small);
        if !fits {
            close(&mut open);
            bytes = 0;
        }
        if segment.is_worth_it || segment.is_small {
            open.push(place);
            bytes += segment.bytes;
        }
    }
    close(&mut open);
    groups
}

/// The segment of the rows of `group` that are live, and whether the device has written it.
async fn prune(
    sides: &Sides,
    claim: &Arc<Claim>,
    group: &Group,
    tablet: &TabletState,
    schema: &TableSchema,
) -> Result<(SegmentDirectory, bool)> {
    let blocks: u64 = group
        .old
        .iter()
        .flat_map(|segment| segment_extents(segment))
        .map(|extent| u64::from(extent.block_count))
        .sum();
    let rows: u64 = group.old.iter().map(|segment| segment.row_count()).sum();
    let class = group.old.first().map_or(PageClass::HOT, |segment| segment.class);
    let page_blocks = u64::from(class.page_bytes / 4096);
    let pages = group
        .old
        .iter()
        .flat_map(|segment| segment.pages.iter().map(move |entry| (segment.segment_ref(), entry)));
    let fragment = WritingFragment {
        what: "prune a table",
        plan: Arc::new(plan(group, class, schema)?),
        snapshot: cleave_store::Snapshot { commit: group.new.commit },
        inputs: vec![(INPUT, live_morsels(pages, &tablet.version_map).0)],
        indexes: Vec::new(),
        // A rewritten page may end with fewer rows than the old ones.
        block_count: blocks.saturating_mul(group.live_count) / rows.max(1) + page_blocks.min(256),
    };
    if let Some((batches, space)) = fragment.on_device(sides, claim).await? {
        let strange = |what: String| {
            let what = format!("pages of a segment that cannot be: {what}");
            sides.device.strange_payload(&what)
        };
        let pages = read_written(&batches).map_err(|error| strange(error.to_string()))?;
        let used = pages.iter().flat_map(PageEntry::page_refs).map(|page| page.extent).collect();
        let directory = directory(group, class, &tablet.version_map, pages).map_err(strange)?;
        give_back_unused(claim, space, used).map_err(strange)?;
        return Ok((directory, true));
    }
    let batches = fragment.on_host(sides, claim).await.map_err(Error::from)?;
    let directory = directory(group, class, &tablet.version_map, read_written(&batches)?);
    let mismatch = |reason| cleave_store::StoreError::Mismatch { what: "pruning a table", reason };
    Ok((directory.map_err(mismatch)?, false))
}

/// The plan that runs on either side.
fn plan(group: &Group, class: PageClass, schema: &TableSchema) -> Result<WriteRowsExec> {
    let indices: Vec<usize> = (0..schema.columns.len()).collect();
    let output = Projection::of_table(schema, &indices).with_version(ColumnRef::Vid);
    let scan = TableScan {
        table: schema.name.clone(),
        table_id: schema.table_id,
        output,
        filter: Projection::new(Arc::new(Schema::empty()), Vec::new()),
        predicate: None,
        input: INPUT,
        fetch: None,
        references: References::None,
    };
    let columns = schema.columns.iter().map(|column| column.id).collect();
    let written = WrittenSegment { segment: group.new, class, columns };
    Ok(WriteRowsExec::new(Arc::new(TableScanExec::new(scan, 1)), written)?)
}

/// VIDs of the rows of `old` that are live for `map`, ascending.
fn live_vids<'a>(
    map: &'a VersionMap,
    old: &[Arc<SegmentDirectory>],
) -> impl Iterator<Item = u64> + use<'a> {
    let ids: BTreeSet<SegmentId> = old.iter().map(|segment| segment.segment).collect();
    let runs = map.runs().iter().filter(move |run| ids.contains(&run.segment));
    runs.flat_map(|run| map.live_in(*run))
}

/// The segment of `pages`, which must have the rows of `group` that are live for `map`, in order.
fn directory(
    group: &Group,
    class: PageClass,
    map: &VersionMap,
    mut pages: Vec<PageEntry>,
) -> Result<SegmentDirectory, String> {
    let mut vids = live_vids(map, &group.old);
    for entry in &mut pages {
        let count = usize::try_from(entry.page.row_count).unwrap_or(usize::MAX);
        let own: Vec<u64> = vids.by_ref().take(count).collect();
        let page = entry.page.page;
        if own.len() < count || own.first() != Some(&entry.vid_first) {
            let first = entry.vid_first;
            return Err(format!(
                "page {page} has {count} rows from VID {first} on, which are not next"
            ));
        }
        entry.gaps =
            VidGaps::of(own).ok_or_else(|| format!("page {page} has rows out of order"))?;
    }
    if let Some(vid) = vids.next() {
        return Err(format!("no page has VID {vid}"));
    }
    SegmentDirectory::sealed(group.new, SegmentKind::Heap, class, pages)
        .map_err(|error| error.to_string())
}

fn blocks_of(tablet: &TabletState) -> u64 {
    tablet.extents().map(|extent| u64::from(extent.block_count)).sum()
}

#[cfg(test)]
mod tests;
