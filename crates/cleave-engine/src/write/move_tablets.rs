//! Moves tablets of a table to other devices, while the table is read and written.
//!
//! ```text
//!   newest version ─▶ pages not copied yet ─▶ read, verified ─▶ written elsewhere, synced ─┐
//!         ▲                                                                                │ until few are left
//!         └────────────────────────────────────────────────────────────────────────────────┘
//!   table locked ─▶ the rest copied ─▶ the same segments with new places ─▶ commit with a manifest
//! ```
//!
//! 1. [`TableMove::copy`] copies the pages of the newest catalog version that it has not copied yet, and forgets
//!    copies of pages that this version no longer names. It takes no lock: pages never change, and whatever others do
//!    to the table becomes other pages.
//! 2. [`TableMove::commit`] runs under a lock of the table that keeps all its writers out. It copies what is left, and
//!    commits the table with the other places.
//!
//! Rows keep their tablet, segment, page, slot and VID, so version maps, indexes and statistics stay as they are. Only
//! the place of each page changes, and its checksum where a page version is copied with the chunks that it shares.
//! Memory is bounded by the pages that are under way, and by the place of each page.
//!
//! Invariants: a page counts as copied only as the page that it was copied of, at the place where that lay, and the
//! catalog version that was copied last is held, so that nothing else can come to lie there. Before the commit nothing
//! names the copies: after an error, a cancelled statement or a crash they are free. After it, the old pages are free
//! when the last catalog version that names them is gone. Source: rules 9 and 30, `docs/design/delta-and-snapshots.md`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use cleave_catalog::catalog::{CatalogState, DeviceId, TableState, TabletState};
use cleave_catalog::error::{Error, Result};
use cleave_catalog::storage_error::StorageError;
use cleave_catalog::tasks::joined;
use cleave_fragment::waiting;
use cleave_media::clock::Stopwatch;
use cleave_media::{BLOCK_SIZE, BlockAddress, simulation};
use cleave_store::{PageRef, SegmentDirectory, SegmentId, SegmentRef};
use datafusion_common_runtime::SpawnedTask;
use futures::{StreamExt, stream};

use crate::device::whole_pages::whole_page;
use crate::device::{Claim, DISK_FULL, Device, PendingWrite};
use crate::storage_engine::Engine;
use crate::storage_engine::catalog_edit::CatalogEdit;
use crate::storage_engine::commit::Changes;

/// Pages that are read at once.
const PAGES_AT_ONCE: usize = 8;
/// Bytes that are written at once, unless a single page has more.
const WRITE_BYTES: usize = 4 << 20;

/// A table on its way. See the module's description.
pub struct TableMove {
    engine: Arc<Engine>,
    table: u32,
    moved: MovedTablets,
    /// Bytes that are copied a second before the table is locked; None: as many as can be.
    rate: Option<u64>,
    /// By place in the table, with the device that each was copied from.
    copies: BTreeMap<usize, (Arc<Device>, TabletCopy)>,
    /// The catalog version of which the last copies are.
    held: Option<Arc<CatalogState>>,
}

/// Which tablets move, and where to.
#[derive(Debug)]
pub enum MovedTablets {
    /// All on a device, each to one of these others.
    From(DeviceId, Vec<Arc<Device>>),
    /// Those at these places, each to its device.
    At(BTreeMap<usize, Arc<Device>>),
}

impl MovedTablets {
    /// The devices that may take the tablet `tablet` at `place`; None: it stays.
    fn targets(&self, place: usize, tablet: &TabletState) -> Option<&[Arc<Device>]> {
        match self {
            Self::From(from, targets) => (tablet.device == *from).then_some(targets.as_slice()),
            Self::At(targets) => {
                let target = targets.get(&place).filter(|to| to.id() != tablet.device);
                target.map(std::slice::from_ref)
            }
        }
    }
}

/// The copies of the pages of one tablet, on one device.
pub(super) struct TabletCopy {
    claim: Arc<Claim>,
    device: Arc<Device>,
    pages: BTreeMap<PageKey, Copied>,
}

type PageKey = (SegmentId, u32);

/// A page, and its copy.
#[derive(Debug, Clone, Copy)]
struct Copied {
    from: PageRef,
    to: PageRef,
}

impl TableMove {
    /// Nothing of the table `table` is copied yet, of which `moved` is to move.
    pub fn new(engine: &Arc<Engine>, table: u32, moved: MovedTablets) -> Self {
        let engine = Arc::clone(engine);
        Self { engine, table, moved, rate: None, copies: BTreeMap::new(), held: None }
    }

    /// Copies at most `rate` bytes a second, so that others get most of the devices; None: as many as can be. What is
    /// left for the commit is copied without a limit, since writers wait for it.
    #[must_use]
    pub fn at_rate(self, rate: Option<u64>) -> Self {
        Self { rate, ..self }
    }

    /// Copies what is not copied yet, and makes it durable; returns the number of pages. None: the table is gone, or
    /// none of it has to move.
    ///
    /// # Errors
    /// Those of the devices, with [`DISK_FULL`] where none of the targets has room for a tablet; a damaged page.
    pub async fn copy(&mut self) -> Result<Option<usize>> {
        let state = self.engine.catalog();
        let Some(table) = state.table_by_id(self.table).map(Arc::clone) else { return Ok(None) };
        let mut tablets = table.tablets.iter().enumerate();
        if !tablets.any(|(place, tablet)| self.moved.targets(place, tablet).is_some()) {
            return Ok(None);
        }
        let count = self.copy_of(&table, self.rate).await?;
        self.held = Some(state);
        step("move: copied")?;
        if count > 0 {
            for (_, copy) in self.copies.values() {
                copy.sync().await?;
            }
        }
        step("move: synced")?;
        Ok(Some(count))
    }

    /// The number of pages that are not copied yet.
    pub fn left(&self) -> usize {
        let state = self.engine.catalog();
        let Some(table) = state.table_by_id(self.table) else { return 0 };
        let tablets = table.tablets.iter().enumerate();
        let moved = tablets.filter(|(place, tablet)| self.moved.targets(*place, tablet).is_some());
        moved
            .map(|(place, tablet)| match self.copies.get(&place) {
                Some((from, copy)) if from.id() == tablet.device => copy.missing(tablet).len(),
                _ => tablet.segments().map(|segment| segment.page_refs().count()).sum(),
            })
            .sum()
    }

    /// Copies what is left, and commits the table at its new places; others must not write to it meanwhile.
    ///
    /// # Errors
    /// As [`TableMove::copy`]; [`StorageError::TableBlocked`], [`StorageError::DamagedIndex`]; those of a commit. The
    /// table is where it was, then.
    pub async fn commit(mut self) -> Result<()> {
        let engine = Arc::clone(&self.engine);
        let mut edit = CatalogEdit::begin(&engine).await?;
        let Some(table) = edit.next.table_by_id(self.table).map(Arc::clone) else { return Ok(()) };
        edit.next.find_whole_table(&table.schema.name)?;
        self.copy_of(&table, None).await?;
        let mut changed = TableState::clone(&table);
        for (place, (from, copy)) in std::mem::take(&mut self.copies) {
            let tablet = changed.tablets.get_mut(place);
            let Some(tablet) = tablet.filter(|tablet| tablet.device == from.id()) else {
                continue;
            };
            *tablet = copy.put_in(&mut edit, tablet, |segment| segment.revision)?;
        }
        edit.put_table(changed);
        step("move: commit")?;
        // The rows stay the same. Unlike a checkpoint it is in the log replicas before it counts: what they lead to
        // may be gone soon.
        engine.commit(Changes::settings(edit)).await.map(drop)
    }

    async fn copy_of(&mut self, table: &TableState, rate: Option<u64>) -> Result<usize> {
        let mut count = 0;
        for (place, tablet) in table.tablets.iter().enumerate() {
            let Some(targets) = self.moved.targets(place, tablet) else { continue };
            // Whoever has moved the tablet meanwhile has put other pages at the old places.
            let copy = self.copies.get_mut(&place).filter(|(from, _)| from.id() == tablet.device);
            count += match copy {
                Some((from, copy)) => copy.catch_up(from, tablet, rate).await?,
                None => {
                    let from = self.engine.attached(tablet.device)?;
                    let (copy, count) = TabletCopy::first(&from, tablet, targets, rate).await?;
                    self.copies.insert(place, (from, copy));
                    count
                }
            };
        }
        Ok(count)
    }
}

impl TabletCopy {
    /// Copies a tablet from `source` to the emptiest of the devices `targets` that have room for it, at most `rate`
    /// bytes a second; returns the number of its pages too.
    ///
    /// # Errors
    /// As [`TableMove::copy`].
    pub(super) async fn first(
        source: &Arc<Device>,
        tablet: &TabletState,
        targets: &[Arc<Device>],
        rate: Option<u64>,
    ) -> Result<(Self, usize)> {
        let mut targets = targets.to_vec();
        targets.sort_by_key(|device| device.space().used_blocks);
        let mut full = None;
        for device in targets {
            let mut copy = Self::new(device);
            match copy.catch_up(source, tablet, rate).await {
                Ok(count) => return Ok((copy, count)),
                Err(error) if error.sqlstate() == DISK_FULL => full = Some(error),
                Err(error) => return Err(error),
            }
        }
        let nowhere = || {
            let (device, reason) = (source.name().to_owned(), "there is no other".to_owned());
            StorageError::Attach { device, reason }.into()
        };
        Err(full.unwrap_or_else(nowhere))
    }

    fn new(device: Arc<Device>) -> Self {
        let claim = Arc::new(Claim::new(Arc::clone(&device)));
        Self { claim, device, pages: BTreeMap::new() }
    }

    /// The pages of `tablet` that are not copied.
    fn missing(&self, tablet: &TabletState) -> Vec<(SegmentRef, PageRef)> {
        let pages = tablet.segments().flat_map(|segment| {
            let reference = segment.segment_ref();
            segment.page_refs().map(move |page| (reference, *page))
        });
        pages.filter(|(segment, page)| self.copy_of(segment.segment, page).is_none()).collect()
    }

    /// The place of the copy of `page`.
    fn copy_of(&self, segment: SegmentId, page: &PageRef) -> Option<PageRef> {
        let copied = self.pages.get(&(segment, page.page))?;
        (copied.from == *page).then_some(copied.to)
    }

    /// Copies the pages of `tablet` from `source` that are not copied; returns their number.
    async fn catch_up(
        &mut self,
        source: &Arc<Device>,
        tablet: &TabletState,
        rate: Option<u64>,
    ) -> Result<usize> {
        let missing = self.missing(tablet);
        let count = missing.len();
        let keys: Vec<PageKey> =
            missing.iter().map(|(segment, page)| (segment.segment, page.page)).collect();
        let reads = stream::iter(missing.clone()).map(|(segment, page)| {
            let source = Arc::clone(source);
            async move {
                let read =
                    SpawnedTask::spawn(async move { whole_page(&source, segment, page).await });
                joined(read.join().await)?
            }
        });
        let mut reads = std::pin::pin!(reads.buffered(PAGES_AT_ONCE));
        let mut batch = Batch::default();
        let mut last = None;
        let mut pace = Pace { rate, stopwatch: Stopwatch::start(), bytes: 0 };
        for (key, (_, from)) in keys.into_iter().zip(missing) {
            let Some(read) = reads.next().await else { break };
            let (page, bytes) = read?;
            if !batch.bytes.is_empty() && batch.bytes.len() + bytes.len() > WRITE_BYTES {
                self.write(std::mem::take(&mut batch), &mut last).await?;
            }
            batch.add((key, from, page), &bytes);
            pace.copied(bytes.len()).await;
        }
        if !batch.bytes.is_empty() {
            self.write(batch, &mut last).await?;
        }
        if let Some(last) = last {
            last.ended().await?;
        }
        self.forget_all_but(tablet);
        Ok(count)
    }

    /// Writes `batch`, when the write before it has ended: one is under way while the next is read.
    async fn write(&mut self, batch: Batch, last: &mut Option<PendingWrite>) -> Result<()> {
        let blocks = u32::try_from(batch.bytes.len() / BLOCK_SIZE).unwrap_or(u32::MAX);
        let extent = self.claim.acquire(blocks).await?;
        let writing = self.claim.begin_write(extent.start, batch.bytes.freeze());
        if let Some(before) = last.replace(writing) {
            before.ended().await?;
        }
        let mut at = extent.start.0;
        for (key, from, mut to) in batch.pages {
            to.extent.start = BlockAddress(at);
            at += u64::from(to.extent.block_count);
            if let Some(before) = self.pages.insert(key, Copied { from, to }) {
                // Its write has ended with the call that began it.
                self.claim.give_back(before.to.extent);
            }
        }
        Ok(())
    }

    /// Gives the space of copies back whose pages `tablet` does not have.
    fn forget_all_but(&mut self, tablet: &TabletState) {
        let named: BTreeSet<PageKey> = tablet
            .segments()
            .flat_map(|segment| segment.page_refs().map(|page| (segment.segment, page.page)))
            .collect();
        let claim = &self.claim;
        self.pages.retain(|key, copied| {
            let is_named = named.contains(key);
            if !is_named {
                claim.give_back(copied.to.extent);
            }
            is_named
        });
    }

    /// Makes the copies durable.
    pub(super) async fn sync(&self) -> Result<()> {
        match self.claim.block_count() {
            0 => Ok(()),
            _ => self.claim.sync_written().await,
        }
    }

    /// `tablet`, all of whose pages are copied, at its new place, with the copies as part of what `edit` commits. The
    /// files of its segments follow the newest `revision` that the database knows of each.
    pub(super) fn put_in(
        self,
        edit: &mut CatalogEdit,
        tablet: &TabletState,
        revision: impl Fn(&SegmentDirectory) -> u32,
    ) -> Result<Arc<TabletState>> {
        let mut moved = tablet.clone();
        moved.device = self.device.id();
        for segment in &mut moved.heap {
            *segment = Arc::new(self.moved_segment(segment, revision(segment))?);
        }
        for index in &mut moved.indexes {
            let runs = index.runs().map(|run| self.moved_segment(run, revision(run)).map(Arc::new));
            let runs = runs.collect::<Result<Vec<_>>>()?;
            *index = Arc::new(index.with_runs(runs)?);
        }
        // What else was copied, of pages that are gone, is free with the claim.
        edit.publish_kept(self.claim, moved.extents().collect());
        Ok(Arc::new(moved))
    }

    fn moved_segment(&self, segment: &SegmentDirectory, newest: u32) -> Result<SegmentDirectory> {
        let mut moved = segment.clone();
        moved.revision = newest.saturating_add(1);
        for entry in &mut moved.pages {
            entry.shared.clear();
            for page in std::iter::once(&mut entry.page).chain(&mut entry.overflow) {
                *page = self.copy_of(segment.segment, page).ok_or_else(|| {
                    let reason = format!("page {} of {} is not copied", page.page, segment.segment);
                    cleave_store::StoreError::Mismatch { what: "moving a tablet", reason }
                })?;
            }
        }
        Ok(moved)
    }
}

/// Pages that are written at once.
#[derive(Default)]
struct Batch {
    bytes: BytesMut,
    /// The page that was copied, and its copy, which has no place yet.
    pages: Vec<(PageKey, PageRef, PageRef)>,
}

impl Batch {
    fn add(&mut self, page: (PageKey, PageRef, PageRef), bytes: &Bytes) {
        self.bytes.extend_from_slice(bytes);
        self.pages.push(page);
    }
}

/// How fast pages are copied.
struct Pace {
    /// Bytes a second; None: as many as can be.
    rate: Option<u64>,
    stopwatch: Stopwatch,
    /// What was copied.
    bytes: u64,
}

impl Pace {
    /// Waits until `more` bytes may have been copied.
    async fn copied(&mut self, more: usize) {
        self.bytes = self.bytes.saturating_add(more as u64);
        let Some(rate) = self.rate else { return };
        let due_ms = self.bytes.saturating_mul(1000) / rate.max(1);
        let early = Duration::from_millis(due_ms).saturating_sub(self.stopwatch.elapsed());
        if !early.is_zero() {
            waiting::sleep(early).await;
        }
    }
}

/// Begins a step of a move, at which a simulation may let it fail or cut the host's power.
fn step(name: &'static str) -> Result<()> {
    simulation::step(name).map_err(|error| Error::io("enter", name.as_ref(), error))
}
