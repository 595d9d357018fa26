//! Redo of page versions: the log in, their space taken and their tables pinned before rows are written as pages, and
//! the pages replaced behind the last row.
//!
//! A page version that the log names lies in space that the manifest does not: it must be taken before redo writes a
//! page. Redo also flushes rows to other pages than the lost incarnation did, so the last pages of these tables are
//! [pinned](crate::write::tail_pins): each replaced page is the manifest's, or a version of it. Rows and page versions
//! can be redone in any order: rows never die on pages, and a page version changes no VID.
//!
//! 1. [`LoggedPages::take`] takes what a record names, as the record is redone.
//! 2. [`LoggedPages::look_ahead`] does so with all records behind it, before the first page is written. A log whose
//!    rows the delta takes in whole is therefore read once.
//! 3. [`LoggedPages::put`] puts them in place of the pages.
//!
//! Invariant: no space that a record names is written to before the next manifest, so what a record has named is there
//! still. Source: rules 25 and 30, `docs/design/versions-and-commit.md`.

use std::collections::BTreeMap;
use std::sync::Arc;

use cleave_catalog::catalog::{CatalogState, DeviceId};
use cleave_catalog::error::Result;
use cleave_media::Extent;
use cleave_store::{PageEntry, SegmentRef};
use cleave_txn::{LogReader, Lsn, Record};

use super::redo::{Redo, lacks_table};
use super::{Committed, CommittedPage, directory_of};
use crate::storage_engine::Engine;
use crate::storage_engine::commit::{Changes, RedonePages};
use crate::storage_engine::log_keeper::{LoggedPage, RecordPages};
use crate::write::tail_pins::TailPin;

/// The page versions of a log.
pub(super) struct LoggedPages {
    /// In the manifest on disk.
    state: Arc<CatalogState>,
    redone: RedonePages,
    /// By record, where the pages are to be copied.
    records: Vec<RecordPages>,
    /// By table.
    pins: BTreeMap<u32, TailPin>,
    /// The last record whose page versions were taken.
    taken_to: Option<Lsn>,
    /// Whether those of all records were.
    is_whole: bool,
}

impl LoggedPages {
    /// None yet, behind the manifest of `database`.
    pub(super) fn new(database: &Engine) -> Self {
        let (state, redone) = (database.catalog(), RedonePages::default());
        let (records, pins) = (Vec::new(), BTreeMap::new());
        Self { state, redone, records, pins, taken_to: None, is_whole: false }
    }

    /// Takes the page versions out of `committed`, the record at `at`, and their space, unless that was done ahead.
    ///
    /// # Errors
    /// [`StorageError::Damaged`](cleave_catalog::storage_error::StorageError::Damaged) for what does not fit the
    /// manifest.
    pub(super) fn take(
        &mut self,
        redo: &Redo<'_>,
        committed: &mut Committed,
        at: Lsn,
    ) -> Result<()> {
        let is_taken = self.taken_to.is_some_and(|last| at <= last);
        // Of a table that was blocked later, the manifest has the pages.
        let is_known = at.0 < self.state.blocked.until;
        let before = self.redone.taken.len();
        for table in &mut committed.tables {
            let (id, version) = (table.table_id, table.schema_version);
            for tablet in &mut table.tablets {
                let pages = std::mem::take(&mut tablet.pages);
                if pages.is_empty() || is_taken || is_known {
                    continue;
                }
                let place = usize::try_from(tablet.place).unwrap_or(usize::MAX);
                let added = self.add(redo.database(), (id, version, place), pages);
                added.map_err(|reason| redo.damaged(at, &reason))?;
            }
        }
        self.taken_to = self.taken_to.max(Some(at));
        let pages = self.redone.taken.get(before..).unwrap_or_default();
        if !pages.is_empty() && redo.database().keeper.copies_pages(&self.state) {
            let (commit, pages) = (committed.commit, pages.to_vec());
            self.records.push(RecordPages { at: at.0, commit, pages });
        }
        Ok(())
    }

    /// Takes the page versions of all records. To be called before a page is written.
    ///
    /// # Errors
    /// As [`Self::take`]; [`StorageError::Log`](cleave_catalog::storage_error::StorageError::Log).
    pub(super) fn look_ahead(&mut self, redo: &Redo<'_>) -> Result<()> {
        if self.is_whole {
            return Ok(());
        }
        let directory = directory_of(redo.database().directory());
        let mut reader = LogReader::open(&directory, Lsn(self.state.log_position))?;
        while let Some(logged) = reader.next_record()? {
            let Record::Commit { payload, .. } = logged.record else { continue };
            let mut committed = redo.decode(&payload, logged.at)?;
            self.take(redo, &mut committed, logged.at)?;
        }
        self.is_whole = true;
        Ok(())
    }

    /// Puts them in place of the pages, behind all rows. Returns what is to be copied, if it is not: it stays where it
    /// is up to the next manifest.
    ///
    /// # Errors
    /// [`Error::Conflict`](cleave_catalog::error::Error::Conflict) of a page that the manifest does not have.
    pub(super) async fn put(self, database: &Arc<Engine>) -> Result<Vec<RecordPages>> {
        if !self.redone.tables.is_empty() {
            database.commit(Changes::RedonePages(self.redone)).await?;
        }
        Ok(self.records)
    }

    /// Adds `pages` of the tablet at `place` of the table `id` of that version of its schema.
    fn add(
        &mut self,
        database: &Engine,
        (id, version, place): (u32, u32, usize),
        pages: Vec<CommittedPage>,
    ) -> Result<(), String> {
        let table = self.state.table_by_id(id).ok_or_else(|| lacks_table(id))?;
        if table.schema.version != version {
            return Err(lacks_table(id));
        }
        self.pins.entry(id).or_insert_with(|| database.tail_pins().pin(id));
        let tablet = table.tablets.get(place);
        let device = tablet.map(|tablet| tablet.device);
        let known: BTreeMap<u64, (SegmentRef, &PageEntry)> = tablet
            .into_iter()
            .flat_map(|tablet| &tablet.heap)
            .flat_map(|segment| segment.pages.iter().map(|page| (segment.segment_ref(), page)))
            .map(|(segment, page)| (page.vid_first, (segment, page)))
            .collect();
        let versions = self.redone.tables.entry(id).or_default();
        for CommittedPage { replaced, version, .. } in pages {
            let (Some(replaced), Some(version)) = (replaced, version) else {
                return Err("it has a page version without its page".to_owned());
            };
            let version = PageEntry::try_from(version).map_err(|error| error.to_string())?;
            let (page, vid_first) = (version.page, version.vid_first);
            let first = known.get(&vid_first).copied();
            let (segment, first) =
                first.ok_or_else(|| "it replaces a page that is not there".to_owned())?;
            let beside = versions.redo((table, place), (replaced.into(), first), version)?;
            let device = take(database, device, page.extent)?;
            for extent in &beside {
                take(database, Some(device), *extent)?;
            }
            let page = LoggedPage { table: id, place, device, segment, vid_first, page, beside };
            self.redone.taken.push(page);
        }
        Ok(())
    }
}

/// Takes `extent` on the device `id`, and returns that.
fn take(database: &Engine, id: Option<DeviceId>, extent: Extent) -> Result<DeviceId, String> {
    let device = id.and_then(|id| database.device(id));
    let device = device.ok_or_else(|| "it names a device that is not there".to_owned())?;
    device.take_named(extent).map_err(|error| error.to_string())?;
    Ok(device.id())
}
