//! Page versions of one transaction put over those of another: rows of one page that both have changed side by side.
//!
//! ```text
//!  page A ─┬─▶ A1: slots 0, 3   committed          ─▶ A2 over A1: slots 0, 3 of A1, slots 5, 7 of A2
//!          └─▶ A2: slots 5, 7   of this transaction
//! ```
//!
//! Each transaction has locked its rows, so their slots are disjoint. The changed columns are read of both pages; the
//! rows of this transaction come from its own version, all others from the committed one. The version is made on the
//! host and replaces the transaction's own.
//!
//! Invariant: the outcome has each row as whoever has its lock made it. Source: `docs/design/versions-and-commit.md`.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef};
use arrow::compute::interleave;
use cleave_catalog::catalog::{DeviceId, TableState};
use cleave_catalog::error::{Error, Result};
use cleave_catalog::settings::Stack;
use cleave_store::{PageEntry, SegmentRef};

use super::{PageVersion, TableVersions, TabletVersions, is_same_place, is_set};
use crate::device::Claim;
use crate::storage_engine::Engine;
use crate::write::version_writer::VersionWriter;

impl TableVersions {
    /// The same over the pages of `table`, the newest version of the table; None: they are so already.
    ///
    /// # Errors
    /// [`Error::Conflict`] of a page that is gone, or has no such version; those of the device.
    pub async fn rebased(
        &self,
        engine: &Engine,
        table: &TableState,
        claims: &BTreeMap<DeviceId, Arc<Claim>>,
    ) -> Result<Option<Self>> {
        let mut rebased = BTreeMap::new();
        for (place, versions) in &self.tablets {
            let tablet = table.tablets.get(*place).ok_or_else(Error::concurrent_update)?;
            let newest = tablet.heap.iter().flat_map(|segment| {
                let pages = segment.pages.iter();
                pages.map(|entry| (segment.segment_ref(), entry))
            });
            let replaced: Vec<(SegmentRef, &PageEntry)> =
                newest.filter(|(_, entry)| versions.lacks(entry)).collect();
            if replaced.is_empty() {
                continue;
            }
            let mut pages = versions.pages.clone();
            let device = versions.device;
            let claim = claims.get(&device).ok_or_else(Error::concurrent_update)?;
            let source = engine.page_source(device, Stack::Native)?;
            let mut writer = VersionWriter::new(source, Arc::clone(claim), &table.schema);
            for (segment, entry) in replaced {
                let Some(own) = versions.pages.get(&entry.vid_first) else { continue };
                let merged = merged(&mut writer, (segment, entry), own).await?;
                pages.insert(entry.vid_first, Arc::new(merged));
            }
            writer.finish().await?;
            rebased.insert(*place, TabletVersions { device, pages });
        }
        if rebased.is_empty() {
            return Ok(None);
        }
        let mut tablets = self.tablets.clone();
        tablets.extend(rebased);
        Ok(Some(Self { tablets, ..Self::default() }))
    }
}

impl TabletVersions {
    /// Whether there is a version of the page of `entry` that replaces another version of it.
    fn lacks(&self, entry: &PageEntry) -> bool {
        let own = self.pages.get(&entry.vid_first);
        own.is_some_and(|own| own.replaced != entry.page)
    }
}

/// `own` over the committed page of `entry`.
async fn merged(
    writer: &mut VersionWriter<'_>,
    (segment, entry): (SegmentRef, &PageEntry),
    own: &PageVersion,
) -> Result<PageVersion> {
    if !is_same_place(&own.replaced, &entry.page) || own.entry.gaps != entry.gaps {
        return Err(Error::concurrent_update());
    }
    let changed = writer.values((segment, own.entry.page), &own.columns).await?;
    let rows = usize::try_from(entry.page.row_count).unwrap_or(usize::MAX);
    let picks: Vec<(usize, usize)> =
        (0..rows).map(|slot| (usize::from(is_set(&own.slots, slot)), slot)).collect();
    let values = |place: usize, committed: &ArrayRef| -> Result<ArrayRef> {
        let sources: [&dyn Array; 2] = [committed, changed.column(place)];
        Ok(interleave(&sources, &picks)?)
    };
    let columns = (own.columns.as_slice(), own.slots.clone());
    let made = writer.version((segment, entry), columns, values).await?;
    let made = made.ok_or_else(Error::concurrent_update)?;
    Ok(PageVersion { replaced: entry.page, entry: made, ..own.clone() })
}
