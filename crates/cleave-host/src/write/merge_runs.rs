//! Merges sorted runs of an index into one: as a fragment where their pages lie, else here, by the same operators.
//!
//! ```text
//!   runs ─▶ WriteRunExec ─┬─▶ device: reads and writes its own media ──┬─▶ PlacedRun ─▶ checked ─▶ directory
//!           └ MergeRunsExec └─▶ host: pages over the link, both ways ──┘
//! ```
//!
//! 1. [`RunMerger::merge`] takes space for the new run, somewhat more than the old ones have, and sends the fragment with
//!    it. A device that has filled it says so, and gets twice as much, a few times.
//! 2. Where no fragment may be sent, or the device refuses it, the same plan runs here: its pages come through the link,
//!    and go back through a [`SegmentSink`].
//! 3. What comes back is checked: as many entries as went in, keys in order, every page inside of what was reserved. What
//!    is left of the space is given back.
//!
//! Invariant: nothing names the new run before the statement commits, which syncs the device first; whatever ends the
//! statement before leaves the old runs, and the space free. Source: `design.md`, "The one idea" (a compaction is a
//! fragment) and "Native storage".

use std::fmt;
use std::ops::RangeInclusive;
use std::sync::Arc;

use bytes::Bytes;
use cleave_fragment::command::message::CAPABILITY_FRAGMENTS;
use cleave_fragment::command::{DeviceErrorCause, Execute};
use cleave_fragment::{
    FragmentContext, IndexInput, IndexPages, MergeRunsExec, PageSink, PlacedRun, RowPlaces,
    WriteRunExec, build_id, encode_fragment, fragment_task_context,
};
use cleave_media::{BlockAddress, Extent};
use cleave_plan::cost::slots::SLOT_BYTES_USUAL;
use cleave_store::index::run::INDEX_PAGE_CLASS;
use cleave_store::{
    EncodedPage, PageRef, PageSource, Run, RunProperties, SegmentDirectory, SegmentKind,
    SegmentRef, Snapshot, StoreError,
};
use datafusion::error::DataFusionError;
use datafusion::physical_plan::ExecutionPlan;
use futures::future::BoxFuture;
use futures::{FutureExt, TryStreamExt};
use tokio::sync::Mutex;

use super::key_run::AHEAD_BLOCKS;
use super::segment_sink::SegmentSink;
use crate::catalog::segment_extents;
use crate::cooperative::fragment_exec::is_refusal;
use crate::database::Database;
use crate::device::{Claim, DISK_FULL, Device, Written};
use crate::error::{Error, Result};
use crate::index::IndexShape;
use crate::settings::{Settings, Split, Stack};

/// The number of the only index input.
const INPUT: u32 = 0;
/// Of the blocks of the old runs, the part that the new one may have more: one in so many, and a few.
const SLACK_SHARE: u64 = 8;
const SLACK_BLOCKS: u64 = 32;
/// Attempts of a device that fills what it was given, each with twice as much as the one before.
const ATTEMPTS: u32 = 3;

/// Merges runs on one device.
#[derive(Debug, Clone)]
pub(crate) struct RunMerger {
    database: Arc<Database>,
    device: Arc<Device>,
    pages: Arc<dyn PageSource>,
    settings: Arc<Settings>,
    /// Whether merges on the host wait for one another.
    is_patient: bool,
}

/// The run to be made.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NewRun<'a> {
    pub(crate) shape: &'a IndexShape,
    pub(crate) segment: SegmentRef,
    pub(crate) level: u32,
    /// Of equal keys, that of the newest row is left; if not, they are an error.
    pub(crate) newest: bool,
}

impl RunMerger {
    /// Merges on `device`, for a statement with `settings`.
    ///
    /// # Errors
    /// A device that is not attached.
    pub(crate) fn new(
        database: &Arc<Database>,
        device: &Arc<Device>,
        settings: &Arc<Settings>,
    ) -> Result<Self> {
        Ok(Self {
            database: Arc::clone(database),
            device: Arc::clone(device),
            pages: database.page_source(device.id(), Stack::Native)?,
            settings: Arc::clone(settings),
            is_patient: false,
        })
    }

    /// The same, whose merges on the host wait until few others are under way: for statements that merge several runs at
    /// once, and hold nobody up while they wait.
    pub(crate) fn patient(self) -> Self {
        Self { is_patient: true, ..self }
    }

    /// One run of the entries of `runs`, in space of `claim`.
    ///
    /// # Errors
    /// [`Error::DuplicateKey`] where two of them have a key in common; those of reading and writing.
    pub(crate) async fn merge(
        &self,
        claim: &Arc<Claim>,
        new: NewRun<'_>,
        runs: &[Arc<SegmentDirectory>],
    ) -> Result<SegmentDirectory> {
        let plan = plan(new)?;
        let input = IndexInput { number: INPUT, runs: runs.iter().map(|run| pages(run)).collect() };
        if self.may_send().await?
            && let Some((placed, reserved)) = self.on_device(claim, &plan, &input, runs).await?
        {
            return self.accepted(claim, new, &input, placed, reserved);
        }
        self.on_host(claim, new, plan, input).await
    }

    /// Whether the device may be sent the fragment.
    async fn may_send(&self) -> Result<bool> {
        if self.settings.split_in_force() == Split::Host {
            return Ok(false);
        }
        let identity = self.device.identity().await?;
        let runs_fragments = identity.capabilities.iter().any(|c| c == CAPABILITY_FRAGMENTS);
        Ok(runs_fragments && identity.build == build_id())
    }

    /// What the device has written, and the space that it had; None: it will not, and the space is given back.
    async fn on_device(
        &self,
        claim: &Arc<Claim>,
        plan: &Arc<dyn ExecutionPlan>,
        input: &IndexInput,
        runs: &[Arc<SegmentDirectory>],
    ) -> Result<Option<(PlacedRun, Extent)>> {
        let fragment = Bytes::from(encode_fragment(plan)?);
        let old = runs.iter().flat_map(|run| segment_extents(run));
        let old: u64 = old.map(|extent| u64::from(extent.block_count)).sum();
        let mut blocks = old + old / SLACK_SHARE + SLACK_BLOCKS;
        for _ in 0..ATTEMPTS {
            let Ok(block_count) = u32::try_from(blocks) else { return Ok(None) };
            let reserved = match claim.acquire(block_count).await {
                // There may be room for what is needed, if not for what may be.
                Err(error) if error.sqlstate() == DISK_FULL => return Ok(None),
                reserved => reserved?,
            };
            let request = self.request(fragment.clone(), input.clone(), reserved).await?;
            let error = match claim.run_fragment(request).await? {
                Written::Rows(rows) => {
                    let placed = PlacedRun::read(&rows);
                    let placed = placed.map_err(|error| self.strange(&error.to_string()))?;
                    return Ok(Some((placed, reserved)));
                }
                Written::Failed(error) => error,
            };
            match error.device_error().map(|error| error.cause) {
                Some(DeviceErrorCause::OutOfReserved) => blocks = blocks.saturating_mul(2),
                // A key that comes twice, above all: here it gets its name.
                Some(DeviceErrorCause::Execution) => {
                    claim.give_back(reserved);
                    return Ok(None);
                }
                _ if is_refusal(&error) => {
                    claim.give_back(reserved);
                    return Ok(None);
                }
                // The space stays with the claim, which knows whether anybody may still write there.
                _ => return Err(self.device.fault("merge index runs", error)),
            }
            claim.give_back(reserved);
        }
        Ok(None)
    }

    async fn request(
        &self,
        fragment: Bytes,
        input: IndexInput,
        reserved: Extent,
    ) -> Result<Execute> {
        let Settings { device_memory_bytes, slot_count, slot_bytes, .. } = *self.settings;
        let identity = self.device.identity().await?;
        // What crosses is a report.
        let slot_bytes = slot_bytes.unwrap_or(SLOT_BYTES_USUAL);
        let ring_bytes = u64::from(slot_count) * u64::from(slot_bytes);
        let room = identity.fragment_memory_bytes.saturating_sub(ring_bytes);
        Ok(Execute {
            header: self.device.next_run(),
            build: build_id(),
            fragment,
            snapshot: 0,
            inputs: Vec::new(),
            copies: 1,
            memory_bytes: device_memory_bytes.min(room),
            slot_count,
            slot_bytes,
            settings: Vec::new(),
            first_slot: 0,
            narrowings: Vec::new(),
            fed: Vec::new(),
            indexes: vec![input],
            broadcasts: Vec::new(),
            reserved: vec![reserved],
        })
    }

    async fn on_host(
        &self,
        claim: &Arc<Claim>,
        new: NewRun<'_>,
        plan: Arc<dyn ExecutionPlan>,
        input: IndexInput,
    ) -> Result<SegmentDirectory> {
        let entries = entry_counts(new, &input);
        let _turn = if self.is_patient { self.database.merge_turn().await } else { None };
        let sink = SegmentSink::new(Arc::clone(claim), AHEAD_BLOCKS);
        let sink = Arc::new(ClaimedPages(Mutex::new(Some(sink))));
        let context = FragmentContext {
            pages: Arc::clone(&self.pages),
            snapshot: Snapshot { commit: 0 },
            inputs: Default::default(),
            narrowings: Default::default(),
            indexes: [(INPUT, Arc::new(input))].into(),
            broadcasts: Default::default(),
            sink: Some(sink),
            spill: None,
            places: RowPlaces::default(),
            read_ahead: 1,
            counters: Arc::default(),
        };
        let runtime = self.database.query_runtime();
        let task = fragment_task_context(Arc::new(context), runtime, &[])?;
        let rows: Vec<_> = match plan.execute(0, task)?.try_collect().await {
            Ok(rows) => rows,
            Err(error) => return Err(named(new.shape, error)),
        };
        let placed = PlacedRun::read(&rows)?;
        if !entries.contains(&placed.entry_count) {
            let reason = format!("{} of {} entries came out", placed.entry_count, entries.end());
            return Err(StoreError::Mismatch { what: "merging index runs", reason }.into());
        }
        Ok(directory(new, placed)?)
    }

    /// The run that the device says it wrote, if it may be so.
    fn accepted(
        &self,
        claim: &Claim,
        new: NewRun<'_>,
        input: &IndexInput,
        placed: PlacedRun,
        reserved: Extent,
    ) -> Result<SegmentDirectory> {
        let end = check_placed(&placed, &entry_counts(new, input), reserved);
        let end = end.map_err(|reason| self.strange(&reason))?;
        let directory = directory(new, placed);
        let directory = directory.map_err(|error| self.strange(&error.to_string()))?;
        if let Ok(block_count @ 1..) = u32::try_from(reserved.end().0 - end.0) {
            claim.give_back(Extent { start: end, block_count });
        }
        Ok(directory)
    }

    fn strange(&self, what: &str) -> Error {
        self.device.strange_payload(&format!("pages of an index run that cannot be: {what}"))
    }
}

/// What runs on either side.
fn plan(new: NewRun<'_>) -> Result<Arc<dyn ExecutionPlan>> {
    let entries = MergeRunsExec::new(INPUT, new.segment.table_id);
    let entries = Arc::new(if new.newest { entries.of_newest() } else { entries });
    Ok(Arc::new(WriteRunExec::new(entries, new.segment, new.shape.definition.unique)?))
}

fn pages(run: &SegmentDirectory) -> IndexPages {
    let pages = run.pages.iter().map(|entry| entry.page).collect();
    IndexPages::whole(run.segment_ref(), pages)
}

/// How many entries may come out: all that go in, or less where newer ones take the place of others.
fn entry_counts(new: NewRun<'_>, input: &IndexInput) -> RangeInclusive<u64> {
    let all = input.entry_count();
    if new.newest { all.min(1)..=all } else { all..=all }
}

/// Compares what a device says it wrote with what it was asked for: the end of its last page.
fn check_placed(
    placed: &PlacedRun,
    entries: &RangeInclusive<u64>,
    reserved: Extent,
) -> Result<BlockAddress, String> {
    let on_pages: u64 = placed.pages.iter().map(|entry| u64::from(entry.page.row_count)).sum();
    if placed.entry_count != on_pages || !entries.contains(&on_pages) {
        let (told, all) = (placed.entry_count, entries.end());
        return Err(format!("{told} entries, {on_pages} on pages, of {all} that there are"));
    }
    let mut end = reserved.start;
    for entry in &placed.pages {
        let (page, extent) = (entry.page.page, entry.page.extent);
        if extent.start < end || !reserved.contains(extent) {
            return Err(format!("page {page} lies in {extent}, and {reserved} were reserved"));
        }
        end = extent.end();
    }
    Ok(end)
}

/// The run of `placed`, whose fences are checked.
fn directory(new: NewRun<'_>, placed: PlacedRun) -> Result<SegmentDirectory, StoreError> {
    let NewRun { shape, segment, level, .. } = new;
    let run = RunProperties { index_id: shape.definition.id, level, filter: placed.filter };
    let kind = SegmentKind::Index(run);
    let directory =
        Arc::new(SegmentDirectory::sealed(segment, kind, INDEX_PAGE_CLASS, placed.pages)?);
    drop(Run::new(Arc::clone(&directory))?);
    Ok(Arc::unwrap_or_clone(directory))
}

/// The error of a merge, where duplicate keys are told as SQL tells them.
fn named(shape: &IndexShape, error: DataFusionError) -> Error {
    if let DataFusionError::External(source) = error.find_root()
        && let Some(StoreError::DuplicateKey { key, .. }) = source.downcast_ref()
    {
        return shape.duplicate_key(key);
    }
    error.into()
}

/// Pages that a fragment writes on the host.
struct ClaimedPages(Mutex<Option<SegmentSink>>);

impl PageSink for ClaimedPages {
    fn push(&self, page: EncodedPage) -> BoxFuture<'_, Result<PageRef, DataFusionError>> {
        async move {
            match self.0.lock().await.as_mut() {
                Some(sink) => sink.push(page).await.map_err(external),
                None => Err(DataFusionError::Internal("a page behind the last one".into())),
            }
        }
        .boxed()
    }

    fn finish(&self) -> BoxFuture<'_, Result<(), DataFusionError>> {
        async move {
            match self.0.lock().await.take() {
                Some(sink) => sink.finish().await.map(drop).map_err(external),
                None => Ok(()),
            }
        }
        .boxed()
    }
}

impl fmt::Debug for ClaimedPages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClaimedPages")
    }
}

fn external(error: Error) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}

#[cfg(test)]
mod tests;
