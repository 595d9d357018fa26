//! Runs of an index that its device makes: pages of a tablet in, a run of the keys of their live rows out.
//!
//! ```text
//!   chunk: pages, dead rows ─▶ TableScanExec ─▶ SortKeysExec ─▶ WriteRunExec ─▶ PlacedRun ─▶ checked ─▶ run
//! ```
//!
//! A [`DeviceSorter`] sends one fragment for each chunk. A chunk has as many rows as the memory of a fragment surely
//! sorts, unless keys are very long; then the device refuses, and the host reads the rows and sorts them. A device in
//! the host's process is not asked: nothing would cross a link less, and the host's workers sort side by side.
//!
//! Invariant: as for [merges](crate::write::merge_runs): a device is believed only pages in the space that it was
//! given, with as many entries as there are live rows, in order. Source: `docs/design/indexes.md`.

use std::sync::Arc;

use arrow::datatypes::Schema;
use cleave_catalog::activity::Act;
use cleave_catalog::error::Result;
use cleave_catalog::index::IndexShape;
use cleave_catalog::settings::Settings;
use cleave_fragment::link::AttachMode;
use cleave_fragment::operators::table_scan_exec::{References, TableScan};
use cleave_fragment::{KeyOrder, Morsel, SortKeysExec, TableScanExec, WriteRunExec};
use cleave_media::BLOCK_SIZE;
use cleave_store::{ColumnRef, Projection, SegmentDirectory, SegmentRef, Snapshot};
use datafusion_physical_plan::ExecutionPlan;

use crate::device::{Claim, Device};
use crate::storage_engine::Engine;
use crate::write::merge_runs::{NewRun, RunMerger};
use crate::write::writing_fragment::WritingFragment;

/// The number of the only morsel input.
const INPUT: u32 = 0;
/// Memory for a row whose key is sorted: its key, of a few numbers or a short text, three times, and pages of the scan.
const ROW_BYTES: u64 = 256;
/// Bytes of an entry in a run, at a guess: a run that becomes longer gets more space.
const ENTRY_BYTES: u64 = 24;

/// Has runs of an index made by the device of a tablet.
#[derive(Debug, Clone)]
pub(super) struct DeviceSorter {
    shape: Arc<IndexShape>,
    merger: RunMerger,
    /// Rows of one fragment.
    pub(super) rows_max: u64,
    /// Fragments that run at once.
    pub(super) at_once: usize,
}

impl DeviceSorter {
    /// That of `device`, for a statement with `settings`; None: the host makes the runs.
    ///
    /// # Errors
    /// A device that is not attached, or does not answer.
    pub(super) async fn of(
        database: &Arc<Engine>,
        device: &Arc<Device>,
        (settings, shape): (&Arc<Settings>, &Arc<IndexShape>),
    ) -> Result<Option<Self>> {
        if device.mode() == AttachMode::Embedded {
            return Ok(None);
        }
        let merger = RunMerger::new(database, device, settings)?;
        if !merger.sides().may_send().await? {
            return Ok(None);
        }
        let identity = device.identity().await?;
        let (all, memory) = (identity.fragment_memory_bytes, settings.device_memory_bytes);
        let fitting = usize::try_from(all / memory.max(1)).unwrap_or(usize::MAX);
        let cores = usize::try_from(identity.cores).unwrap_or(usize::MAX);
        Ok(Some(Self {
            shape: Arc::clone(shape),
            merger,
            rows_max: (memory.min(all) / ROW_BYTES).max(1),
            at_once: fitting.min(cores).max(1),
        }))
    }

    /// The run `segment` of the `entry_count` rows of `morsels` that are alive, in space of `claim`; None: the device
    /// refuses.
    ///
    /// # Errors
    /// Those of the link and of the device's media, and of a run that cannot be.
    pub(super) async fn run_of(
        &self,
        claim: &Arc<Claim>,
        segment: SegmentRef,
        (morsels, entry_count): (Vec<Morsel>, u64),
    ) -> Result<Option<Arc<SegmentDirectory>>> {
        let fragment = WritingFragment {
            what: "build an index run",
            plan: self.plan(segment)?,
            snapshot: Snapshot::OF_STATE,
            inputs: vec![(INPUT, morsels)],
            indexes: Vec::new(),
            block_count: entry_count * ENTRY_BYTES / BLOCK_SIZE as u64 + 1,
        };
        let sides = self.merger.sides();
        let Some((rows, space)) = fragment.on_device(sides, claim).await? else { return Ok(None) };
        let new = NewRun { shape: &self.shape, segment, level: 0, newest: false };
        let counts = entry_count..=entry_count;
        let run = self.merger.accepted(claim, new, &counts, &rows, space)?;
        sides.database.activity().note(Act::IndexFragment);
        Ok(Some(Arc::new(run)))
    }

    fn plan(&self, segment: SegmentRef) -> Result<Arc<dyn ExecutionPlan>> {
        let scan = TableScan {
            table: self.shape.table_name().to_owned(),
            table_id: segment.table_id,
            output: self.shape.projection().with_version(ColumnRef::Vid),
            filter: Projection::new(Arc::new(Schema::empty()), Vec::new()),
            predicate: None,
            input: INPUT,
            fetch: None,
            references: References::None,
        };
        let order = self.shape.key.columns().iter().map(|column| KeyOrder {
            descending: column.descending,
            nulls_first: column.nulls_first,
        });
        let unique = self.shape.definition.unique;
        let keys =
            SortKeysExec::new(Arc::new(TableScanExec::new(scan, 1)), order.collect(), unique)?;
        Ok(Arc::new(WriteRunExec::new(Arc::new(keys), segment, unique)?))
    }
}
