//! Puts tablets of a restored database in place of those on a device that is lost.
//!
//! ```text
//!   restored: tablet ─▶ is it as committed here? ─▶ pages read, verified ─▶ written to the replacement, synced
//!   here: the tablet, on the replacement, without its part of the delta ◀── commit with a manifest ◀──┘
//! ```
//!
//! The restored database comes from a backup and the archived log of this one, so it gave the same rows the same VIDs,
//! and the version maps, indexes and log records of both fit. Its segments have numbers of their own, which
//! [`reserve_segments`] keeps from others here, so page headers stay as they are.
//!
//! Invariants: the tables are locked against writers from before the archive was completed. A tablet is taken only if
//! it has given as many VIDs, and has as many live rows, as the lost one with its part of the delta. What waits in the
//! delta for tablets of the same table on other devices is in pages by the same commit, so recovery redoes nothing of
//! that table from before. Nothing names the copies before the commit. Source: rule 9,
//! `docs/design/delta-and-snapshots.md`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use cleave_catalog::catalog::{CatalogState, DeviceId, TableState, TabletState};
use cleave_catalog::error::Result;
use cleave_catalog::storage_error::StorageError;
use cleave_store::ids::SHIPPED_SEGMENT_FIRST;

use super::move_tablets::TabletCopy;
use crate::device::Device;
use crate::storage_engine::Engine;
use crate::storage_engine::catalog_edit::CatalogEdit;
use crate::storage_engine::commit::Changes;

/// Segments that a restored database may make while the log is redone.
const SEGMENT_COUNT: u32 = 1 << 20;

/// Tablets on their way from a restored database. See the module's description.
pub struct Rebuild {
    engine: Arc<Engine>,
    restored: Arc<Engine>,
    lost: Arc<Device>,
    /// Devices that may take tablets.
    targets: Vec<Arc<Device>>,
    /// By table and place.
    copies: BTreeMap<(u32, usize), (TabletCopy, Arc<TabletState>)>,
}

/// Reserves numbers for the segments that a restored database makes; returns the first, and the first behind them.
///
/// # Errors
/// [`StorageError::Exhausted`].
pub fn reserve_segments(engine: &Engine) -> Result<(u32, u32)> {
    let mut next = engine.catalog().next_segment;
    let first = engine.ids.segment(&mut next, |next| {
        let first = *next;
        let end = first.checked_add(SEGMENT_COUNT).filter(|end| *end < SHIPPED_SEGMENT_FIRST);
        *next = end.ok_or(StorageError::Exhausted { what: "segments" })?;
        Ok(first)
    })?;
    Ok((first, first + SEGMENT_COUNT))
}

impl Rebuild {
    /// Nothing is copied yet of the tablets on `lost`, which are to come from `restored` to `targets`.
    pub fn new(
        engine: &Arc<Engine>,
        restored: &Arc<Engine>,
        lost: &Arc<Device>,
        targets: &[Arc<Device>],
    ) -> Self {
        Self {
            engine: Arc::clone(engine),
            restored: Arc::clone(restored),
            lost: Arc::clone(lost),
            targets: targets.to_vec(),
            copies: BTreeMap::new(),
        }
    }

    /// Copies the lost tablets of a table, which others must not write to, and makes the copies durable.
    ///
    /// # Errors
    /// [`StorageError::NotRebuilt`] for a restored table that is not the one of this database; those of the devices,
    /// 53100 where none of the targets has room; a damaged page.
    pub async fn copy(&mut self, table: u32) -> Result<()> {
        let restored = self.restored.catalog();
        let lost = self.checked(&restored, table)?;
        let source = self.restored.attached(DeviceId::EMBEDDED)?;
        for (place, tablet) in lost {
            let (copy, _) = TabletCopy::first(&source, &tablet, &self.targets, None).await?;
            copy.sync().await?;
            self.copies.insert((table, place), (copy, tablet));
        }
        Ok(())
    }

    /// Commits the tables with the copied tablets, all or none; `segment_end` is above all numbers of their segments.
    ///
    /// # Errors
    /// As [`Rebuild::copy`]; those of devices on which other tablets of the tables lie; those of a commit. Everything
    /// is as it was, then.
    pub async fn commit(mut self, segment_end: u32) -> Result<()> {
        let mut edit = CatalogEdit::begin(&self.engine).await?;
        let restored = self.restored.catalog();
        let mut copies = std::mem::take(&mut self.copies);
        let tables: BTreeSet<u32> = copies.keys().map(|(table, _)| *table).collect();
        for id in tables {
            let Some(table) = edit.next.table_by_id(id).map(Arc::clone) else { continue };
            let lost = self.checked(&restored, id)?;
            let mut changed = TableState::clone(&table);
            let mut places = BTreeSet::new();
            for place in lost.keys() {
                let copied = copies.remove(&(id, *place));
                let (Some((copy, tablet)), Some(before)) =
                    (copied, changed.tablets.get_mut(*place))
                else {
                    continue;
                };
                let known = Arc::clone(before);
                *before = copy.put_in(&mut edit, &tablet, |segment| {
                    let mut known = known.segments();
                    let known = known.find(|known| known.segment == segment.segment);
                    known.map_or(0, |known| known.revision).max(segment.revision)
                })?;
                places.insert(*place);
            }
            edit.put_table(changed);
            edit = edit.with_delta_but(id, &places).await?;
        }
        edit.next.next_segment = edit.next.next_segment.max(segment_end);
        // Pages of the restored database have its numbers.
        edit.next.commit = edit.next.commit.max(restored.commit);
        // The rows stay the same, and the log has them.
        self.engine.commit(Changes::settings(edit)).await.map(drop)
    }

    /// The tablets of `restored` that are those of the table on the lost device, by place.
    fn checked(
        &self,
        restored: &CatalogState,
        id: u32,
    ) -> Result<BTreeMap<usize, Arc<TabletState>>> {
        let live = self.engine.live();
        let Some(table) = live.state.table_by_id(id) else { return Ok(BTreeMap::new()) };
        let differs = |found: String| {
            let reason =
                format!("{found}; use an archive that has all of the log since the backup");
            let (device, table) = (self.lost.name().to_owned(), table.schema.name.clone());
            StorageError::NotRebuilt { device, table, reason }
        };
        let found = restored.table_by_id(id);
        let found = found.ok_or_else(|| differs("the restored database lacks it".to_owned()))?;
        if found.schema.version != table.schema.version
            || found.indexes != table.indexes
            || found.tablets.len() != table.tablets.len()
        {
            let reason = "the restored database has another definition of it".to_owned();
            return Err(differs(reason).into());
        }
        let mut lost = BTreeMap::new();
        for (place, (ours, theirs)) in table.tablets.iter().zip(&found.tablets).enumerate() {
            if ours.device != self.lost.id() {
                continue;
            }
            let Some((vids, rows)) = live.row_counts(id, place) else { continue };
            let restored = (theirs.next_vid, theirs.row_count());
            if restored != (vids, rows) || theirs.id != ours.id {
                let reason = format!(
                    "the restored database gave {} row ids and has {} rows, where {vids} and {rows} are committed",
                    restored.0, restored.1
                );
                return Err(differs(reason).into());
            }
            lost.insert(place, Arc::clone(theirs));
        }
        Ok(lost)
    }
}
