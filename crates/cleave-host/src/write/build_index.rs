//! CREATE INDEX: a table's rows in, runs of a new index out, while others read and write the table.
//!
//! ```text
//!  ids ─▶ state S ─▶ workers: pages ─▶ keys ─▶ KeyRunWriter ─┐            rows since S ─▶ KeyRunWriter ─┐
//!  (a commit)                                                └─▶ one run ─────────────────────▶ (a commit)
//! ```
//!
//! 1. [`build_index`] takes ids for the index's runs in a commit of its own, which changes nothing else. Its state is what
//!    the build reads.
//! 2. Without the turn to write, workers share the pages of that state. Each sorts the keys of its pages within its
//!    share of memory, and writes what does not fit as runs, on the device where the table lies, which makes them one.
//! 3. With the turn, keys of rows that were inserted meanwhile make a second run. The commit names both.
//!
//! Invariant: until the last commit nothing names what the build wrote, so whatever ends it early, a crash or a full
//! disk, leaves the table as it was and the space free. What it cannot see, that the table or the name is another
//! one's by then, is checked with the turn.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use cleave_store::{
    KeyRange, MergeSource, PageEntry, PageSource, Run, SegmentDirectory, SegmentId, SegmentKind,
    SegmentRef,
};
use tokio::task::JoinSet;

use super::key_run::{KeyRunWriter, merge_all};
use super::load::made_anew;
use super::merge_runs::RunMerger;
use super::unique::check_across;
use crate::catalog::commit::Transaction;
use crate::catalog::index_definition::IndexDefinition;
use crate::catalog::{DeviceId, TableState, TabletState};
use crate::database::Database;
use crate::device::Claim;
use crate::engine::joined;
use crate::error::Result;
use crate::index::{IndexShape, TabletIndex, heap_rows};
use crate::settings::{Settings, Stack};

/// Bytes of pages, all columns, that a worker takes at once.
const CHUNK_BYTES: usize = 4 << 20;
/// Most workers.
const WORKERS_MAX: usize = 8;

/// A part of a segment that one worker reads.
struct Chunk {
    segment: Arc<SegmentDirectory>,
    pages: std::ops::Range<usize>,
}

/// Makes what `define` says an index of the table `name`. It is asked twice, with the table as it is when the build
/// begins and when it ends, and may find that the index is there: None.
///
/// # Errors
/// Those of `define`; an unknown table; a duplicate key where rows are not unique; those of the device.
pub(crate) async fn build_index(
    database: &Arc<Database>,
    settings: &Arc<Settings>,
    name: &str,
    define: impl Fn(&Transaction, &TableState) -> Result<Option<IndexDefinition>>,
) -> Result<()> {
    let mut first = Transaction::begin(database).await?;
    let table = first.table(name)?;
    let Some(definition) = define(&first, &table)? else { return Ok(()) };
    // Two for each tablet: of the rows that are there, and of those that come meanwhile.
    let mut segments: Vec<[SegmentId; 2]> = Vec::with_capacity(table.tablets.len());
    for _ in &table.tablets {
        segments.push([first.segment_id()?, first.segment_id()?]);
    }
    let commit = first.commit_number();
    let state = first.commit().await?;

    let shape = IndexShape::new(Arc::new(definition), &table.schema)?;
    let reference = |segment| SegmentRef {
        table_id: table.schema.table_id,
        segment,
        schema_version: table.schema.version,
        commit,
    };
    let mut claims: Vec<(DeviceId, Arc<Claim>)> = Vec::new();
    let mut runs = Vec::with_capacity(table.tablets.len());
    for (tablet, [segment, _]) in table.tablets.iter().zip(&segments) {
        let claim = match claims.iter().find(|(device, _)| *device == tablet.device) {
            Some((_, claim)) => Arc::clone(claim),
            None => {
                let claim = Arc::new(Claim::new(database.attached(tablet.device)?));
                claims.push((tablet.device, Arc::clone(&claim)));
                claim
            }
        };
        let part =
            Part { database, settings, shape: &shape, claim: &claim, segment: reference(*segment) };
        runs.push(part.run(tablet, 0).await?);
    }
    // Without the turn: what comes meanwhile is compared with it below.
    let divided = shape.definition.unique && table.divides(&shape.definition);
    if divided {
        let built = table.tablets.iter().zip(&runs);
        let built = built.filter_map(|(tablet, run)| Some((tablet.device, run.clone()?)));
        check_across(database, &table, &shape, &built.collect::<Vec<_>>()).await?;
    }

    let mut last = Transaction::begin(database).await?;
    let now = last.table(name)?;
    let same = now.schema == table.schema && now.tablets.len() == table.tablets.len();
    if !same {
        return Err(made_anew(name));
    }
    // Its columns are the same, its id and a name that was chosen may be others by now.
    let Some(definition) = define(&last, &now)?.map(Arc::new) else { return Ok(()) };
    let shape = IndexShape::new(Arc::clone(&definition), &now.schema)?;
    for (device, claim) in &claims {
        last.adopt(*device, Arc::clone(claim));
    }
    let mut tablets = Vec::with_capacity(now.tablets.len());
    let (mut written, mut grew) = (Vec::new(), false);
    for (((tablet, before), run), [_, segment]) in
        now.tablets.iter().zip(&table.tablets).zip(runs).zip(segments)
    {
        if tablet.device != before.device {
            return Err(made_anew(name));
        }
        let device = database.attached(tablet.device)?;
        let claim = last.claim(&device);
        let part =
            Part { database, settings, shape: &shape, claim: &claim, segment: reference(segment) };
        let mut runs: Vec<Run> = Vec::new();
        if let Some(run) = run {
            runs.push(Run::new(named(run, definition.id))?);
        }
        if let Some(run) = part.run(tablet, before.next_vid).await? {
            let run = Run::new(run)?;
            part.check_unique(tablet, &runs, &run).await?;
            runs.push(run);
            grew = true;
        }
        written.extend(runs.iter().map(|run| (tablet.device, Arc::clone(run.directory()))));
        let index = TabletIndex::built(Arc::clone(&shape), runs, tablet.next_vid);
        let mut changed = TabletState::clone(tablet);
        changed.indexes.push(Arc::new(index));
        tablets.push(Arc::new(changed));
    }
    if divided && grew {
        check_across(database, &now, &shape, &written).await?;
    }
    let mut changed = TableState { tablets, ..TableState::clone(&now) };
    changed.indexes.push(definition);
    last.put_table(changed);
    last.commit().await?;
    drop(state);
    Ok(())
}

/// One run of one tablet's part of the index.
struct Part<'a> {
    database: &'a Arc<Database>,
    settings: &'a Arc<Settings>,
    shape: &'a Arc<IndexShape>,
    claim: &'a Arc<Claim>,
    segment: SegmentRef,
}

impl Part<'_> {
    /// The run of all rows of `tablet` from `vid_from` on; `None` if there are none.
    async fn run(
        &self,
        tablet: &TabletState,
        vid_from: u64,
    ) -> Result<Option<Arc<SegmentDirectory>>> {
        let chunks: Arc<Vec<Chunk>> = Arc::new(chunks(tablet, vid_from));
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let worker_count = cores.min(WORKERS_MAX).min(chunks.len());
        let next = Arc::new(AtomicUsize::new(0));
        let mut workers = JoinSet::new();
        for _ in 0..worker_count {
            let (chunks, next) = (Arc::clone(&chunks), Arc::clone(&next));
            let pages = self.database.host_pages(tablet.device, Stack::Native)?;
            let (shape, claim) = (Arc::clone(self.shape), Arc::clone(self.claim));
            let mut writer =
                KeyRunWriter::new(Arc::clone(&shape), claim, self.segment, worker_count);
            workers.spawn(async move {
                while let Some(chunk) = chunks.get(next.fetch_add(1, Ordering::Relaxed)) {
                    chunk.read(&shape, &*pages, vid_from, &mut writer).await?;
                }
                writer.finish_runs().await
            });
        }
        let mut runs = Vec::new();
        while let Some(worker) = workers.join_next().await {
            match joined(worker).flatten() {
                Ok(more) => runs.extend(more),
                Err(error) => {
                    // The others hold space, which shall be free when the error is told.
                    workers.shutdown().await;
                    return Err(error);
                }
            }
        }
        let device = self.database.attached(tablet.device)?;
        let merger = RunMerger::new(self.database, &device, self.settings)?;
        merge_all(self.shape, self.claim, self.segment, runs, &merger).await
    }

    /// Refuses a key of `new` that one of `runs` has too.
    async fn check_unique(&self, tablet: &TabletState, runs: &[Run], new: &Run) -> Result<()> {
        let Some((first, last)) = new.key_range().filter(|_| self.shape.definition.unique) else {
            return Ok(());
        };
        // Nothing lies between a key and that with one more byte.
        let range = KeyRange { from: first.to_vec(), below: Some([last, &[0]].concat()) };
        let sources = runs.iter().chain([new]);
        let sources = sources.map(|run| MergeSource::Run(run.scan(range.clone()))).collect();
        let pages = self.database.host_pages(tablet.device, Stack::Native)?;
        self.shape.check_unique(sources, &*pages).await
    }
}

impl Chunk {
    async fn read(
        &self,
        shape: &IndexShape,
        pages: &dyn PageSource,
        vid_from: u64,
        writer: &mut KeyRunWriter,
    ) -> Result<()> {
        let entries: Vec<&PageEntry> =
            self.segment.pages.get(self.pages.clone()).unwrap_or_default().iter().collect();
        for (vid_first, rows) in
            heap_rows(pages, &self.segment, &entries, &shape.projection()).await?
        {
            let skipped = usize::try_from(vid_from.saturating_sub(vid_first)).unwrap_or(usize::MAX);
            let skipped = skipped.min(rows.num_rows());
            let rows = rows.slice(skipped, rows.num_rows() - skipped);
            let vid_first = vid_first.max(vid_from);
            writer.push(&shape.entries(&rows, vid_first)?, vid_first).await?;
        }
        Ok(())
    }
}

/// `run` as one of the index `id`.
fn named(mut run: Arc<SegmentDirectory>, id: u32) -> Arc<SegmentDirectory> {
    if let SegmentKind::Index(properties) = &mut Arc::make_mut(&mut run).kind {
        properties.index_id = id;
    }
    run
}

/// The pages of `tablet` with rows from `vid_from` on, in parts of about [`CHUNK_BYTES`].
fn chunks(tablet: &TabletState, vid_from: u64) -> Vec<Chunk> {
    let mut chunks = Vec::new();
    for segment in &tablet.heap {
        let ends_before =
            |entry: &PageEntry| entry.vid_first + u64::from(entry.page.row_count) <= vid_from;
        let mut start = segment.pages.partition_point(ends_before);
        let mut bytes = 0;
        for (place, entry) in segment.pages.iter().enumerate().skip(start) {
            bytes += entry.page.extent.bytes();
            if bytes >= CHUNK_BYTES {
                let pages = start..place + 1;
                chunks.push(Chunk { segment: Arc::clone(segment), pages });
                (start, bytes) = (place + 1, 0);
            }
        }
        if start < segment.pages.len() {
            let pages = start..segment.pages.len();
            chunks.push(Chunk { segment: Arc::clone(segment), pages });
        }
    }
    chunks
}
