//! Resynchronises the copies of a mirror: gives each copy the pages that it lacks, or that do not hold there, while the
//! mirror is read and written.
//!
//! ```text
//!   versions in use ─▶ pages not seen yet ─▶ verified on the copy ─┬─▶ they hold
//!         ▲                                                        └─▶ read from another one, written here ─┐
//!         └──────────────────────────────── until few are left ────────────────────────────────────────────┘
//!   writer lock ─▶ the rest ─▶ copy synced, of the same start ─▶ manifest: the copy is current
//! ```
//!
//! 1. Passes over the pages of all catalog versions in use read every page on the copy, and write those that do not
//!    hold as they lie on another copy: at the same place, byte for byte. They take no lock, since pages never change.
//! 2. A stale copy becomes current under the writer lock, in a commit with a manifest. It has every page that this
//!    manifest names, durably: what is left is written before, and the copy is synced and was not restarted. It has
//!    those of all other versions in use as well, which statements may read there from then on. Claims know what they
//!    have written without it, and give it that before a commit names it.
//!
//! Of a copy that is current this is the repair of what a check finds.
//!
//! Invariants: a page is written to a copy only while a catalog version that names it is held, so that nothing else
//! comes to lie there. A page that holds on no copy leaves a stale copy stale, after all others have been written.
//! Source: `docs/design/delta-and-snapshots.md`, mirrors.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use cleave_catalog::catalog::damage::Occupied;
use cleave_catalog::catalog::{CatalogState, DeviceEntry, DeviceId, HeldSpace};
use cleave_catalog::error::{Error, Result};
use cleave_catalog::storage_error::StorageError;
use cleave_catalog::tasks::joined;
use cleave_fragment::command::DeviceErrorCause;
use cleave_fragment::waiting;
use cleave_media::{BLOCK_SIZE, BlockAddress, Extent, simulation};
use cleave_store::{PageRef, SegmentId, SegmentRef};
use datafusion_common_runtime::SpawnedTask;
use futures::{StreamExt, stream};

use crate::device::Device;
use crate::device::whole_pages::verified_blocks;
use crate::storage_engine::Engine;
use crate::storage_engine::catalog_edit::CatalogEdit;
use crate::storage_engine::commit::Changes;

/// Pages that are verified at once.
const PAGES_AT_ONCE: usize = 8;
/// New pages of a pass that may be left for the one with the writer lock.
const PAGES_LEFT: usize = 64;
/// Passes without the writer lock, however much others write.
const PASSES_MAX: u32 = 8;
/// How long the pass with the writer lock may take: others wait for that.
const LOCKED_WAIT: Duration = Duration::from_secs(5);

/// Gives the stale copies of `mirror`, or `all` copies, the pages that do not hold there; returns how many these were.
///
/// # Errors
/// Those of the copies and of a commit, and of a page that holds on no copy: the first, when all copies are done. A
/// copy with an error is as stale as it was.
pub async fn resync(engine: &Arc<Engine>, mirror: &Arc<Device>, all: bool) -> Result<u64> {
    let (mut written, mut first) = (0, None);
    for (copy, is_stale) in mirror.copies() {
        if !is_stale && !all {
            continue;
        }
        let resync = Resync {
            engine: Arc::clone(engine),
            mirror: Arc::clone(mirror),
            copy,
            passed: BTreeSet::new(),
            seen: BTreeSet::new(),
            written: 0,
            damage: None,
        };
        match Box::pin(resync.run()).await {
            Ok(count) => written += count,
            Err(error) => first = first.or(Some(error)),
        }
    }
    first.map_or(Ok(written), Err)
}

/// Gives the stale copies of all mirrors what they lack.
///
/// # Errors
/// Those of [`resync`]: the first, when all mirrors are done.
pub async fn resync_stale(engine: &Arc<Engine>) -> Result<()> {
    let mut first = None;
    for mirror in engine.devices() {
        if let Err(error) = resync(engine, &mirror, false).await {
            first = first.or(Some(error));
        }
    }
    first.map_or(Ok(()), Err)
}

/// One copy on its way. See the module's description.
struct Resync {
    engine: Arc<Engine>,
    mirror: Arc<Device>,
    copy: Arc<Device>,
    /// Generations of versions whose pages all hold on the copy: the pass with the writer lock has few left.
    passed: BTreeSet<u64>,
    /// Pages that hold on the copy.
    seen: BTreeSet<PageKey>,
    /// How many of them had to be written.
    written: u64,
    /// Of the first page that holds on no copy.
    damage: Option<Error>,
}

/// A page at its place: segment, number, first block and checksum.
type PageKey = (SegmentId, u32, BlockAddress, u32);

/// Why a page was not given to a copy.
enum Failed {
    /// It holds on no copy.
    Page(Error),
    /// A copy cannot be read or written at all.
    Copy(Error),
}

impl Resync {
    async fn run(mut self) -> Result<u64> {
        let start = self.copy.incarnation().await?;
        for _ in 0..PASSES_MAX {
            let states: Vec<_> = self.engine.held_states().collect();
            let count = self.pass(&states).await?;
            step("resync: copied")?;
            if count <= PAGES_LEFT {
                break;
            }
        }
        self.make_durable(start).await?;
        step("resync: synced")?;
        if self.mirror.failed_copies().contains(&self.copy.id()) {
            self.make_current(start).await?;
        }
        Ok(self.written)
    }

    /// Gives the copy the pages of `states` that were not seen yet; returns how many were not.
    async fn pass(&mut self, states: &[Arc<CatalogState>]) -> Result<usize> {
        let mut pages = BTreeMap::new();
        for state in states.iter().filter(|state| !self.passed.contains(&state.generation)) {
            check_known(state, self.mirror.id())?;
            for (segment, page) in pages_on(state, self.mirror.id()) {
                let key = (segment.segment, page.page, page.extent.start, page.checksum);
                if !self.seen.contains(&key) {
                    pages.entry(key).or_insert_with(|| (segment, page, Arc::clone(state)));
                }
            }
        }
        let count = pages.len();
        let (mirror, copy) = (Arc::clone(&self.mirror), Arc::clone(&self.copy));
        let outcomes = stream::iter(pages).map(|(key, (segment, page, held))| {
            let (mirror, copy) = (Arc::clone(&mirror), Arc::clone(&copy));
            async move {
                let restoring = SpawnedTask::spawn(async move {
                    restored(&mirror, &copy, (segment, page), held).await
                });
                (key, joined(restoring.join().await))
            }
        });
        let mut outcomes = std::pin::pin!(outcomes.buffer_unordered(PAGES_AT_ONCE));
        while let Some((key, outcome)) = outcomes.next().await {
            match outcome? {
                Ok(is_written) => {
                    self.seen.insert(key);
                    self.written += u64::from(is_written);
                }
                Err(Failed::Page(error)) => {
                    self.damage.get_or_insert(error);
                }
                Err(Failed::Copy(error)) => return Err(error),
            }
        }
        self.passed.extend(states.iter().map(|state| state.generation));
        Ok(count)
    }

    /// # Errors
    /// Those of syncing the copy; [`StorageError::Restarted`] where it may have lost what was written since `start`; a
    /// page that holds on no copy.
    async fn make_durable(&mut self, start: u64) -> Result<()> {
        if let Some(damage) = self.damage.take() {
            return Err(damage);
        }
        self.copy.sync().await?;
        match self.copy.incarnation().await? == start {
            true => Ok(()),
            false => Err(self.copy.restarted()),
        }
    }

    /// Commits that the copy is not stale.
    async fn make_current(&mut self, start: u64) -> Result<()> {
        let engine = Arc::clone(&self.engine);
        let mut edit = CatalogEdit::begin(&engine).await?;
        let (mirror, copy) = (self.mirror.id(), self.copy.id());
        let entry = edit.next.devices.get(&mirror).and_then(DeviceEntry::mirror);
        if !entry.is_some_and(|entry| entry.has(copy)) {
            // It was removed meanwhile.
            return Ok(());
        }
        // All that the manifest will name, and what statements read that began since the last pass: nothing else is
        // committed meanwhile.
        let states: Vec<_> = engine.held_states().collect();
        let rest = async {
            self.pass(&states).await?;
            self.make_durable(start).await
        };
        let in_time = waiting::timeout(LOCKED_WAIT, Box::pin(rest)).await;
        match in_time {
            Some(outcome) => outcome?,
            None => return Err(self.copy.unanswered("be resynchronised", LOCKED_WAIT)),
        }
        edit.resynchronised.push((mirror, copy));
        step("resync: commit")?;
        engine.commit(Changes::settings(edit)).await.map(drop)
    }
}

/// The pages of `state` on `mirror`.
fn pages_on(state: &CatalogState, mirror: DeviceId) -> impl Iterator<Item = (SegmentRef, PageRef)> {
    let tablets = state.tables.values().flat_map(|table| &table.tablets);
    let here = tablets.filter(move |tablet| tablet.device == mirror);
    here.flat_map(|tablet| tablet.segments()).flat_map(|segment| {
        let reference = segment.segment_ref();
        segment.page_refs().map(move |page| (reference, *page))
    })
}

/// # Errors
/// That of a table or index whose pages on `mirror` are not known, since a segment file is damaged.
fn check_known(state: &CatalogState, mirror: DeviceId) -> Result<()> {
    let lies_there = |space: &[Occupied]| space.iter().any(|space| space.device == mirror);
    if let Some(table) = state.damaged_tables().find(|table| lies_there(&table.space)) {
        return Err(table.error().into());
    }
    match state.damaged_indexes().find(|(_, index)| lies_there(&index.space)) {
        Some((table, index)) => Err(index.error(&table.schema.name).into()),
        None => Ok(()),
    }
}

/// Verifies a page on `copy`, and writes it there as another copy has it if it does not hold: whether that was so.
/// `held` names the page.
async fn restored(
    mirror: &Arc<Device>,
    copy: &Arc<Device>,
    (segment, page): (SegmentRef, PageRef),
    held: Arc<CatalogState>,
) -> Result<bool, Failed> {
    let mut damage = match verified_blocks(copy, segment, page).await {
        Ok(_) => return Ok(false),
        Err(error) if is_of_place(&error) => error,
        Err(error) => return Err(Failed::Copy(error)),
    };
    let mut unread = None;
    for other in mirror.readers().into_iter().filter(|other| other.id() != copy.id()) {
        let parts = match verified_blocks(&other, segment, page).await {
            Ok(parts) => parts,
            Err(error) if is_of_place(&error) => {
                damage = error;
                continue;
            }
            // A third one may have it.
            Err(error) => {
                unread.get_or_insert(error);
                continue;
            }
        };
        for (start, bytes) in parts {
            let block_count = u32::try_from(bytes.len() / BLOCK_SIZE).unwrap_or(u32::MAX);
            let blocks = (Extent { start, block_count }, bytes);
            let held = Arc::clone(&held) as Arc<dyn HeldSpace>;
            mirror.restore_on(copy, blocks, held).await.map_err(Failed::Copy)?;
        }
        return Ok(true);
    }
    Err(unread.map_or(Failed::Page(damage), Failed::Copy))
}

/// Whether `error`, of reading a page, is of what lies at its place, and not of the whole device.
fn is_of_place(error: &Error) -> bool {
    let Error::Storage(error) = error else { return false };
    match &**error {
        StorageError::Store(_) | StorageError::CutOff { .. } => true,
        // It may lie behind the end of media that did not grow meanwhile.
        StorageError::Refused { source, .. } => matches!(
            source.cause,
            DeviceErrorCause::Corrupt | DeviceErrorCause::Io | DeviceErrorCause::Refused
        ),
        _ => false,
    }
}

/// Begins a step of a resynchronisation, at which a simulation may let it fail or cut the host's power.
fn step(name: &'static str) -> Result<()> {
    simulation::step(name).map_err(|error| Error::io("enter", name.as_ref(), error))
}
