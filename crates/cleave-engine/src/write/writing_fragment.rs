//! Runs fragments that write pages: on the device of their pages, else on the host, by the same operators.
//!
//! 1. [`WritingFragment::on_device`] takes space, somewhat more than will be needed, and sends the fragment with it. A
//!    run that has filled it gets more, and goes on.
//! 2. Where no fragment may be sent, or the device refuses it, [`WritingFragment::on_host`] runs the same plan on the
//!    host: its pages come through the link, and go back through a [`SegmentSink`].
//!
//! The caller checks the result. Invariant: nothing names the new pages before a statement commits, which syncs the
//! device first. Source: `docs/design/indexes.md`.

use std::fmt;
use std::sync::Arc;

use arrow::array::RecordBatch;
use bytes::Bytes;
use cleave_catalog::error::{Error, Result};
use cleave_catalog::settings::{Settings, Split, Stack};
use cleave_fragment::command::message::CAPABILITY_FRAGMENTS;
use cleave_fragment::command::{DeviceErrorCause, Execute, Outputs};
use cleave_fragment::{
    FragmentContext, IndexInput, Morsel, MorselList, MorselPage, MorselSource, PageSink, RowPlaces,
    build_id, encode_fragment, fragment_task_context, index_inputs,
};
use cleave_media::{BlockAddress, Extent};
use cleave_plan::cost::slots::SLOT_BYTES_USUAL;
use cleave_store::{EncodedPage, PageEntry, PageRef, PageSource, SegmentRef, Snapshot, VersionMap};
use datafusion_common::error::DataFusionError;
use datafusion_physical_plan::{ExecutionPlan, ExecutionPlanProperties};
use futures::future::BoxFuture;
use futures::{FutureExt, TryStreamExt};
use tokio::sync::Mutex;

use super::key_run::AHEAD_BLOCKS;
use super::segment_sink::SegmentSink;
use crate::device::{
    Claim, DISK_FULL, Device, Written, WrittenFragment, free_of, is_link_of_one_copy,
};
use crate::storage_engine::Engine;

/// Of the blocks that a fragment is expected to fill, the part that it may fill beyond: one in so many, and a few.
const SLACK_SHARE: u64 = 8;
const SLACK_BLOCKS: u64 = 32;

/// Where fragments that write on one device run, for a statement.
#[derive(Debug, Clone)]
pub(super) struct Sides {
    pub(super) database: Arc<Engine>,
    pub(super) device: Arc<Device>,
    pages: Arc<dyn PageSource>,
    settings: Arc<Settings>,
}

/// A fragment, and what it reads.
pub(super) struct WritingFragment {
    /// Its purpose, for error messages.
    pub(super) what: &'static str,
    pub(super) plan: Arc<dyn ExecutionPlan>,
    pub(super) snapshot: Snapshot,
    pub(super) inputs: Vec<(u32, Vec<Morsel>)>,
    pub(super) indexes: Vec<IndexInput>,
    /// Blocks that it is expected to fill.
    pub(super) block_count: u64,
}

impl Sides {
    /// Those of `device`, for a statement with `settings`.
    ///
    /// # Errors
    /// A device that is not attached.
    pub(super) fn new(
        database: &Arc<Engine>,
        device: &Arc<Device>,
        settings: &Arc<Settings>,
    ) -> Result<Self> {
        Ok(Self {
            database: Arc::clone(database),
            device: Arc::clone(device),
            pages: database.page_source(device.id(), Stack::Native)?,
            settings: Arc::clone(settings),
        })
    }

    /// Whether the device may be sent fragments.
    pub(super) async fn may_send(&self) -> Result<bool> {
        if self.settings.split_in_force() == Split::Host {
            return Ok(false);
        }
        let identity = self.device.identity().await?;
        let runs_fragments = identity.capabilities.iter().any(|c| c == CAPABILITY_FRAGMENTS);
        Ok(runs_fragments && identity.build == build_id())
    }
}

impl WritingFragment {
    /// The answer of the device, and the space of `claim` that it had; None: it refuses, and the space is given back.
    /// The caller checks the answer, and gives back the space that is not used ([`give_back_unused`]).
    ///
    /// # Errors
    /// Those of the link and of the device's media.
    pub(super) async fn on_device(
        &self,
        sides: &Sides,
        claim: &Arc<Claim>,
    ) -> Result<Option<(Vec<RecordBatch>, Vec<Extent>)>> {
        if !sides.may_send().await? {
            return Ok(None);
        }
        let fragment = Bytes::from(encode_fragment(&self.plan)?);
        let blocks = self.block_count + self.block_count / SLACK_SHARE + SLACK_BLOCKS;
        let Ok(block_count) = u32::try_from(blocks) else { return Ok(None) };
        let reserved = match claim.acquire(block_count).await {
            // There may be room for what is needed, if not for what may be.
            Err(error) if error.sqlstate() == DISK_FULL => return Ok(None),
            reserved => reserved?,
        };
        let request = self.request(sides, fragment, reserved).await?;
        let WrittenFragment { outcome, space, may_write } =
            claim.run_fragment(request, (self.plan.schema(), None), None, None).await?;
        let error = match outcome {
            Written::Rows(rows) => return Ok(Some((rows, space))),
            Written::Failed(error) => error,
            // Reports are bounded by the space alone.
            Written::TooMuch => return Ok(None),
        };
        let cause = error.device_error().map(|error| error.cause);
        // Full, and there is no more space; or a key that comes twice, above all: here it gets its name.
        let is_ours =
            matches!(cause, Some(DeviceErrorCause::OutOfReserved | DeviceErrorCause::Execution));
        // The host reads another copy.
        let is_of_one_copy = sides.device.is_mirror() && is_link_of_one_copy(&error);
        if !is_ours && !error.is_refusal() && !is_of_one_copy {
            // The space stays with the claim, which knows whether a write may still be under way.
            return Err(sides.device.fault(self.what, error));
        }
        claim.give_back_of_run(space, may_write);
        Ok(None)
    }

    async fn request(&self, sides: &Sides, fragment: Bytes, reserved: Extent) -> Result<Execute> {
        let Settings { device_memory_bytes, slot_count, slot_bytes, .. } = *sides.settings;
        let identity = sides.device.identity().await?;
        // Only a report crosses the link.
        let slot_bytes = slot_bytes.unwrap_or(SLOT_BYTES_USUAL);
        let ring_bytes = u64::from(slot_count) * u64::from(slot_bytes);
        let room = identity.fragment_memory_bytes.saturating_sub(ring_bytes);
        Ok(Execute {
            header: sides.device.next_run(),
            build: build_id(),
            fragment,
            snapshot: self.snapshot.commit,
            inputs: self.inputs.clone(),
            partitions: 1,
            memory_bytes: device_memory_bytes.min(room),
            slot_count,
            slot_bytes,
            settings: Vec::new(),
            first_slot: 0,
            locks: None,
            index_filters: Vec::new(),
            fed: Vec::new(),
            indexes: self.indexes.clone(),
            broadcasts: Vec::new(),
            shipped: Vec::new(),
            reserved: vec![reserved],
            extensible: true,
            history: cleave_fragment::filter_history::HistoryMode::Off,
            lends: false,
            homes: Vec::new(),
            peers: Vec::new(),
            peer_rows: Vec::new(),
            outputs: Outputs::One,
            output: 0,
            attaches: false,
            trace: sides.settings.client.trace.on_device(sides.device.name()),
        })
    }

    /// The plan's answer on the host, with pages in space of `claim`.
    ///
    /// # Errors
    /// Those of reading, writing and of the plan.
    pub(super) async fn on_host(
        &self,
        sides: &Sides,
        claim: &Arc<Claim>,
    ) -> Result<Vec<RecordBatch>, DataFusionError> {
        let sink = Arc::new(ClaimedPages::new(Arc::clone(claim), AHEAD_BLOCKS));
        let pages = Arc::clone(&sink) as Arc<dyn PageSink>;
        let morsels = |morsels: &Vec<Morsel>| {
            MorselList::new(morsels.iter().cloned()) as Arc<dyn MorselSource>
        };
        let context = FragmentContext {
            pages: Arc::clone(&sides.pages),
            snapshot: self.snapshot,
            inputs: self.inputs.iter().map(|(number, input)| (*number, morsels(input))).collect(),
            index_filters: Default::default(),
            indexes: index_inputs(&self.indexes)?,
            peer_rows: Default::default(),
            broadcasts: Default::default(),
            sink: Some(pages),
            spill: None,
            tasks: None,
            locks: None,
            places: RowPlaces::default(),
            read_ahead: 1,
            history: None,
            counters: Arc::default(),
        };
        let runtime = sides.database.query_runtime();
        let task = fragment_task_context(Arc::new(context), runtime, &[])?;
        let partitions = self.plan.output_partitioning().partition_count();
        let mut rows = Vec::new();
        for partition in 0..partitions {
            let batches = self.plan.execute(partition, Arc::clone(&task))?;
            rows.extend(batches.try_collect::<Vec<_>>().await?);
        }
        sink.close().await?;
        Ok(rows)
    }
}

/// `pages`, a morsel each, with their dead rows for `map`, and the number of live rows. Pages without one are left out.
pub(super) fn live_morsels<'a>(
    pages: impl Iterator<Item = (SegmentRef, &'a PageEntry)>,
    map: &VersionMap,
) -> (Vec<Morsel>, u64) {
    let (mut morsels, mut live_count) = (Vec::new(), 0);
    for (segment, entry) in pages {
        let dead = map.dead_rows(entry.vid_stretches());
        let live = u64::from(entry.page.row_count).saturating_sub(dead.count() as u64);
        if live == 0 {
            continue;
        }
        live_count += live;
        let place = MorselPage {
            page: entry.page,
            vid_first: entry.vid_first,
            gaps: entry.gaps.clone(),
            overflow: entry.overflow.clone(),
            dead,
        };
        let number = u32::try_from(morsels.len()).unwrap_or(u32::MAX);
        morsels.push(Morsel { number, segment, pages: vec![place] });
    }
    (morsels, live_count)
}

/// Gives back what is not used of `space`, which a fragment had: `used` are the places of its pages.
///
/// # Errors
/// Where these overlap, or do not lie in its space, with what is wrong: then nothing is given back.
pub(super) fn give_back_unused(
    claim: &Claim,
    space: Vec<Extent>,
    mut used: Vec<Extent>,
) -> Result<(), String> {
    used.sort_unstable_by_key(|extent| extent.start);
    check_used(&space, &used)?;
    free_of(space, &used).into_iter().for_each(|gap| claim.give_back(gap));
    Ok(())
}

/// Whether each of `used`, which ascend, lies in one of `space` and in none of the others.
fn check_used(space: &[Extent], used: &[Extent]) -> Result<(), String> {
    let mut space = space.to_vec();
    space.sort_unstable_by_key(|extent| extent.start);
    let mut end = BlockAddress(0);
    for extent in used {
        let place = space.partition_point(|given| given.end() <= extent.start);
        let given = space.get(place).filter(|given| given.contains(*extent));
        if given.is_none() || extent.start < end {
            return Err(format!(
                "a page lies in {extent}, over another one or outside of what was reserved"
            ));
        }
        end = extent.end();
    }
    Ok(())
}

/// Pages that a fragment writes on the host.
pub struct ClaimedPages(Mutex<Option<SegmentSink>>);

impl ClaimedPages {
    /// In space of `claim`, taken `ahead_blocks` at a time.
    pub(super) fn new(claim: Arc<Claim>, ahead_blocks: u32) -> Self {
        Self(Mutex::new(Some(SegmentSink::new(claim, ahead_blocks))))
    }

    /// Gives back the space that is left; no page follows.
    ///
    /// # Errors
    /// That of a write.
    pub async fn close(&self) -> Result<(), DataFusionError> {
        match self.0.lock().await.take() {
            Some(sink) => sink.finish().await.map(drop).map_err(external),
            None => Ok(()),
        }
    }
}

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
            match self.0.lock().await.as_mut() {
                Some(sink) => sink.write_all().await.map_err(external),
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
