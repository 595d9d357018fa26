//! Builds the runs of an index of several tablets side by side: rows of each from some VID on in, one run for each out.
//!
//! ```text
//!                    ┌─▶ worker: pages ─▶ keys ─▶ KeyRunWriter ─┐
//!   chunks of parts ─┼─▶ …                                      ├─▶ runs of a part ─▶ merge ─▶ its run
//!                    └─▶ at most WORKERS_MAX, over all parts ───┘                    one at a time on a device
//! ```
//!
//! 1. A worker reads chunks of one [`Part`]. The next worker goes to the part with the fewest workers that has chunks
//!    left for it ([`next_part`]), so devices work at once, and the last parts get the workers that are free.
//! 2. A worker of a part on another machine, or in another process, reads no rows: the [device](super::on_device) makes
//!    the run of each chunk, and the host only of those that it refuses.
//! 3. The runs of a part's workers are merged where they lie, as soon as no other part is merged on that device: a
//!    merge takes a fragment's memory there.
//!
//! Invariants: memory is that of [`WORKERS_MAX`] workers, who share what a statement may sort, however many tablets
//! there are. When an error is returned, no task is left that holds space.

use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use cleave_catalog::catalog::{DeviceId, TabletState};
use cleave_catalog::error::Result;
use cleave_catalog::index::{IndexShape, heap_rows};
use cleave_catalog::settings::{Settings, Stack};
use cleave_catalog::tasks::joined;
use cleave_store::{PageEntry, PageSource, SegmentDirectory, SegmentRef, VersionMap};
use datafusion_common::utils::get_available_parallelism;
use tokio::task::JoinSet;

use super::on_device::DeviceSorter;
use crate::device::Claim;
use crate::storage_engine::Engine;
use crate::write::key_run::{KeyRunWriter, merge_all};
use crate::write::merge_runs::RunMerger;
use crate::write::writing_fragment::live_morsels;

/// Bytes of pages, all columns, that the host reads at once.
const CHUNK_BYTES: usize = 4 << 20;
/// Most workers.
const WORKERS_MAX: usize = 8;

/// The rows of one tablet of which a run is made.
pub(super) struct Part {
    pub(super) tablet: Arc<TabletState>,
    /// Rows from this one on.
    pub(super) vid_from: u64,
    /// Where the run takes space, on the tablet's device.
    pub(super) claim: Arc<Claim>,
    /// The segment of the run.
    pub(super) segment: SegmentRef,
}

/// The run of each of `parts` in the index of this `shape`; `None` where there are no rows.
///
/// # Errors
/// [`Error::DuplicateKey`](cleave_catalog::error::Error::DuplicateKey) where one part has a key twice; those of the
/// devices.
pub(super) async fn build_runs(
    database: &Arc<Engine>,
    settings: &Arc<Settings>,
    shape: &Arc<IndexShape>,
    parts: Vec<Part>,
) -> Result<Vec<Option<Arc<SegmentDirectory>>>> {
    let mut sorters = Vec::with_capacity(parts.len());
    for part in &parts {
        let device = database.attached(part.tablet.device)?;
        // Few rows came meanwhile.
        sorters.push(match part.vid_from {
            0 => DeviceSorter::of(database, &device, (settings, shape)).await?,
            _ => None,
        });
    }
    let mut build = Build::new(database, settings, shape, parts, sorters);
    match build.run().await {
        Ok(()) => Ok(build.parts.into_iter().map(|part| part.run).collect()),
        Err(error) => {
            // The others hold space, which must be free when the error is returned.
            build.tasks.shutdown().await;
            for part in &build.parts {
                part.part.claim.writes_ended().await;
            }
            Err(error)
        }
    }
}

/// All parts, and the tasks at work on them.
struct Build<'a> {
    database: &'a Arc<Engine>,
    settings: &'a Arc<Settings>,
    shape: &'a Arc<IndexShape>,
    parts: Vec<PartBuild>,
    /// Places of parts without running workers.
    to_merge: VecDeque<usize>,
    /// Devices on which a part is being merged.
    merging: BTreeSet<DeviceId>,
    worker_count_max: usize,
    tasks: JoinSet<Result<Ended>>,
}

/// How far one part is.
struct PartBuild {
    part: Part,
    /// None: the host reads the rows.
    sorter: Option<Arc<DeviceSorter>>,
    chunks: Arc<Vec<Chunk>>,
    /// The next chunk to hand out.
    next: Arc<AtomicUsize>,
    worker_count: usize,
    /// Of the finished workers.
    runs: Vec<Arc<SegmentDirectory>>,
    /// The run of all rows.
    run: Option<Arc<SegmentDirectory>>,
}

/// The result of a task, for the part at a place.
enum Ended {
    Worker { place: usize, runs: Vec<Arc<SegmentDirectory>> },
    Merge { place: usize, run: Option<Arc<SegmentDirectory>> },
}

impl<'a> Build<'a> {
    fn new(
        database: &'a Arc<Engine>,
        settings: &'a Arc<Settings>,
        shape: &'a Arc<IndexShape>,
        parts: Vec<Part>,
        sorters: Vec<Option<DeviceSorter>>,
    ) -> Self {
        let parts: Vec<PartBuild> = parts
            .into_iter()
            .zip(sorters)
            .map(|(part, sorter)| PartBuild {
                chunks: Arc::new(match &sorter {
                    Some(sorter) => chunks(&part.tablet, 0, |_, rows| rows >= sorter.rows_max),
                    None => chunks(&part.tablet, part.vid_from, is_read_at_once),
                }),
                sorter: sorter.map(Arc::new),
                part,
                next: Arc::default(),
                worker_count: 0,
                runs: Vec::new(),
                run: None,
            })
            .collect();
        let cores = get_available_parallelism();
        let chunk_count: usize = parts.iter().map(|part| part.chunks.len()).sum();
        settings.client.progress.expect(u64::try_from(chunk_count).unwrap_or(u64::MAX));
        // One each at least, cores or not: most of the time one waits for its device.
        let worker_count_max = cores.max(parts.len()).min(WORKERS_MAX).min(chunk_count);
        Self {
            database,
            settings,
            shape,
            parts,
            to_merge: VecDeque::new(),
            merging: BTreeSet::new(),
            worker_count_max,
            tasks: JoinSet::new(),
        }
    }

    async fn run(&mut self) -> Result<()> {
        self.start_workers()?;
        while let Some(ended) = self.tasks.join_next().await {
            match joined(ended).flatten()? {
                Ended::Worker { place, runs } => {
                    let Some(part) = self.parts.get_mut(place) else { continue };
                    part.worker_count -= 1;
                    part.runs.extend(runs);
                    // A worker ends when no chunk is left for it.
                    if part.worker_count == 0 {
                        self.to_merge.push_back(place);
                    }
                    self.start_workers()?;
                }
                Ended::Merge { place, run } => {
                    let Some(part) = self.parts.get_mut(place) else { continue };
                    part.run = run;
                    self.merging.remove(&part.part.tablet.device);
                }
            }
            self.start_merges()?;
        }
        Ok(())
    }

    fn start_workers(&mut self) -> Result<()> {
        loop {
            let work = self.parts.iter().map(|part| {
                let is_open = part.worker_count < self.workers_at_once(part);
                (if is_open { part.chunks_left() } else { 0 }, part.worker_count)
            });
            let work: Vec<(usize, usize)> = work.collect();
            let at_work: usize = work.iter().map(|(_, workers)| workers).sum();
            let Some(place) = next_part(&work).filter(|_| at_work < self.worker_count_max) else {
                return Ok(());
            };
            let Some(part) = self.parts.get_mut(place) else { return Ok(()) };
            part.worker_count += 1;
            let Part { tablet, vid_from, claim, segment } = &part.part;
            let (chunks, next) = (Arc::clone(&part.chunks), Arc::clone(&part.next));
            let pages = self.database.host_pages(tablet.device, Stack::Native)?;
            let (shape, vid_from) = (Arc::clone(self.shape), *vid_from);
            let (claim, sharing) = (Arc::clone(claim), self.worker_count_max);
            let (sorter, segment) = (part.sorter.clone(), *segment);
            let progress = self.settings.client.progress.clone();
            let of_host = Arc::clone(&claim);
            let mut writer = KeyRunWriter::new(Arc::clone(&shape), of_host, segment, sharing)
                .within(self.database.query_memory_max(), sharing);
            self.tasks.spawn(async move {
                let mut runs = Vec::new();
                while let Some(chunk) = chunks.get(next.fetch_add(1, Ordering::Relaxed)) {
                    progress.advance(1);
                    if let Some(sorter) = &sorter {
                        let live = live_morsels(chunk.entries(), &chunk.map);
                        if live.1 == 0 {
                            continue;
                        }
                        if let Some(run) = sorter.run_of(&claim, segment, live).await? {
                            runs.push(run);
                            continue;
                        }
                    }
                    chunk.read(&shape, &*pages, vid_from, &mut writer).await?;
                }
                runs.extend(writer.finish_runs().await?);
                Ok(Ended::Worker { place, runs })
            });
        }
    }

    /// Workers that `part` may have: fragments take the memory of their device, which other parts use too.
    fn workers_at_once(&self, part: &PartBuild) -> usize {
        let Some(sorter) = &part.sorter else { return usize::MAX };
        let device = part.part.tablet.device;
        let beside = self.parts.iter().filter(|other| other.part.tablet.device == device).count();
        (sorter.at_once / beside.max(1)).max(1)
    }

    fn start_merges(&mut self) -> Result<()> {
        let waiting = std::mem::take(&mut self.to_merge);
        for place in waiting {
            let Some(part) = self.parts.get_mut(place) else { continue };
            let device = part.part.tablet.device;
            if self.merging.contains(&device) {
                self.to_merge.push_back(place);
                continue;
            }
            let runs = std::mem::take(&mut part.runs);
            if runs.len() < 2 {
                part.run = runs.into_iter().next();
                continue;
            }
            self.merging.insert(device);
            let device = self.database.attached(device)?;
            let merger = RunMerger::new(self.database, &device, self.settings)?.patient();
            let (shape, claim) = (Arc::clone(self.shape), Arc::clone(&part.part.claim));
            let segment = part.part.segment;
            self.tasks.spawn(async move {
                let run = merge_all(&shape, &claim, segment, runs, &merger).await?;
                Ok(Ended::Merge { place, run })
            });
        }
        Ok(())
    }
}

impl PartBuild {
    fn chunks_left(&self) -> usize {
        self.chunks.len().saturating_sub(self.next.load(Ordering::Relaxed))
    }
}

/// The place of the part that gets the next worker: of the parts with a chunk left for each of their workers and for
/// one more, the first one with the fewest. Each part is given by the chunks left and its workers.
fn next_part(parts: &[(usize, usize)]) -> Option<usize> {
    let open = parts.iter().enumerate().filter(|(_, (chunks, workers))| chunks > workers);
    open.min_by_key(|(_, (_, workers))| *workers).map(|(place, _)| place)
}

/// A part of a segment that one worker reads.
struct Chunk {
    segment: Arc<SegmentDirectory>,
    pages: Range<usize>,
    /// Which rows are dead.
    map: Arc<VersionMap>,
}

impl Chunk {
    fn entries(&self) -> impl Iterator<Item = (SegmentRef, &PageEntry)> {
        let segment = self.segment.segment_ref();
        let entries = self.segment.pages.get(self.pages.clone()).unwrap_or_default();
        entries.iter().map(move |entry| (segment, entry))
    }

    async fn read(
        &self,
        shape: &IndexShape,
        pages: &dyn PageSource,
        vid_from: u64,
        writer: &mut KeyRunWriter,
    ) -> Result<()> {
        let entries: Vec<&PageEntry> = self.entries().map(|(_, entry)| entry).collect();
        for at_once in stretches(entries.iter().copied(), is_read_at_once) {
            let entries = entries.get(at_once).unwrap_or_default();
            let read = heap_rows(pages, &self.segment, entries, &shape.projection()).await?;
            for (vids, rows) in read {
                let skipped = vids.partition_point(|vid| *vid < vid_from);
                let rows = rows.slice(skipped, rows.num_rows() - skipped);
                let vids = || vids.iter().copied().skip(skipped);
                writer.push(&shape.entries_of(&rows, vids())?, vids(), &self.map).await?;
            }
        }
        Ok(())
    }
}

/// Whether pages of so many bytes, all columns, and rows are as many as the host reads at once.
fn is_read_at_once(bytes: usize, _rows: u64) -> bool {
    bytes >= CHUNK_BYTES
}

/// The pages of `tablet` with rows from `vid_from` on, in chunks that are full as `is_full` says of their bytes and
/// rows.
fn chunks(
    tablet: &TabletState,
    vid_from: u64,
    is_full: impl Fn(usize, u64) -> bool + Copy,
) -> Vec<Chunk> {
    let mut chunks = Vec::new();
    for segment in &tablet.heap {
        let first = segment.pages.partition_point(|entry| entry.vid_end() <= vid_from);
        let pages = segment.pages.iter().skip(first);
        chunks.extend(stretches(pages, is_full).into_iter().map(|pages| Chunk {
            segment: Arc::clone(segment),
            pages: first + pages.start..first + pages.end,
            map: Arc::clone(&tablet.version_map),
        }));
    }
    chunks
}

/// `pages` in stretches, each of which ends where its bytes and rows are enough.
fn stretches<'a>(
    pages: impl Iterator<Item = &'a PageEntry>,
    is_full: impl Fn(usize, u64) -> bool,
) -> Vec<Range<usize>> {
    let mut stretches = Vec::new();
    let (mut start, mut end, mut bytes, mut rows) = (0, 0, 0, 0);
    for entry in pages {
        end += 1;
        bytes += entry.page.extent.bytes();
        rows += u64::from(entry.page.row_count);
        if is_full(bytes, rows) {
            stretches.push(start..end);
            (start, bytes, rows) = (end, 0, 0);
        }
    }
    if start < end {
        stretches.push(start..end);
    }
    stretches
}

#[cfg(test)]
mod tests;
