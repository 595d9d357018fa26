//! Redo of page versions: the log in, their space taken and their tables pinned before rows are redone, and the pages
//! replaced behind the last row.
//!
//! A page version that the log names lies in space that the manifest does not: it must be taken before redo writes a
//! page. Redo also flushes rows to other pages than the lost incarnation did, so the last pages of these tables are
//! [pinned](crate::write::tail_pins): each replaced page is the manifest's, or a version of it. Rows and page versions
//! can be redone in any order: rows never die on pages, and a page version changes no VID.
//!
//! Invariant: no space that a record names is written to before the next manifest, so what a record has named is there
//! still. Source: rules 25 and 30, `docs/design/versions-and-commit.md`.

use std::sync::Arc;

use cleave_catalog::catalog::DeviceId;
use cleave_catalog::error::Result;
use cleave_media::Extent;
use cleave_store::PageEntry;
use cleave_txn::{LogReader, Lsn, Record};

use super::redo::{Redo, lacks_table};
use super::{Committed, CommittedPage, directory_of};
use crate::device::Device;
use crate::storage_engine::Engine;
use crate::storage_engine::commit::{Changes, RedonePages};
use crate::write::tail_pins::TailPin;

/// The page versions of a log.
pub(super) struct LoggedPages {
    redone: RedonePages,
    _pins: Vec<TailPin>,
}

impl LoggedPages {
    /// Those that the log names behind the manifest; their space is taken.
    ///
    /// # Errors
    /// [`StorageError::Log`](cleave_catalog::storage_error::StorageError::Log), and
    /// [`StorageError::Damaged`](cleave_catalog::storage_error::StorageError::Damaged) for what does not fit the
    /// manifest.
    pub(super) fn find(database: &Arc<Engine>) -> Result<Self> {
        let state = database.catalog();
        let directory = directory_of(database.directory());
        let redo = Redo::new(database, &directory);
        let mut found = RedonePages::default();
        let mut reader = LogReader::open(&directory, Lsn(state.log_position))?;
        while let Some(logged) = reader.next_record()? {
            let Record::Commit { payload, .. } = logged.record else { continue };
            // Of a table that was blocked later, the manifest has the pages.
            if logged.at.0 >= state.blocked.until {
                let committed = redo.decode(&payload, logged.at)?;
                let added = add(&mut found, database, committed);
                added.map_err(|reason| redo.damaged(logged.at, &reason))?;
            }
        }
        let tables = found.tables.keys();
        let pins = tables.map(|table| database.tail_pins().pin(*table)).collect();
        Ok(Self { redone: found, _pins: pins })
    }

    /// Puts them in place of the pages, behind all rows.
    ///
    /// # Errors
    /// [`Error::Conflict`](cleave_catalog::error::Error::Conflict) of a page that the manifest does not have.
    pub(super) async fn put(self, database: &Arc<Engine>) -> Result<()> {
        if !self.redone.tables.is_empty() {
            database.commit(Changes::RedonePages(self.redone)).await?;
        }
        Ok(())
    }
}

/// Adds what `committed` says.
fn add(found: &mut RedonePages, database: &Engine, committed: Committed) -> Result<(), String> {
    let state = database.catalog();
    for logged in committed.tables {
        let id = logged.table_id;
        for tablet in logged.tablets.into_iter().filter(|tablet| !tablet.pages.is_empty()) {
            let table = state.table_by_id(id).ok_or_else(|| lacks_table(id))?;
            if table.schema.version != logged.schema_version {
                return Err(lacks_table(id));
            }
            let place = usize::try_from(tablet.place).unwrap_or(usize::MAX);
            let device = table.tablets.get(place).map(|tablet| tablet.device);
            let versions = found.tables.entry(id).or_default();
            for CommittedPage { replaced, version } in tablet.pages {
                let (Some(replaced), Some(version)) = (replaced, version) else {
                    return Err("it has a page version without its page".to_owned());
                };
                let version = PageEntry::try_from(version).map_err(|error| error.to_string())?;
                let (extent, shared) = (version.page.extent, version.shared.clone());
                versions.redo((table, place), replaced.into(), version)?;
                let device = take(database, device, extent)?;
                let taken = found.taken.entry(device.id()).or_default();
                taken.push(extent);
                // Chunks of a version that its transaction has replaced itself: no record names that.
                for extent in shared {
                    let free = device.take_free_of(extent).map_err(|error| error.to_string())?;
                    taken.extend(free);
                }
            }
        }
    }
    Ok(())
}

/// Takes `extent` on the device `id`, and returns that.
fn take(database: &Engine, id: Option<DeviceId>, extent: Extent) -> Result<Arc<Device>, String> {
    let device = id.and_then(|id| database.device(id));
    let device = device.ok_or_else(|| "it names a device that is not there".to_owned())?;
    device.take_named(extent).map_err(|error| error.to_string())?;
    Ok(device)
}
