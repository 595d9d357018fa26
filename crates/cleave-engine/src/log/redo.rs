//! Redo: log records of small commits in, the same commits in the delta out. Many at once, since one by one costs ten
//! times as much.
//!
//! ```text
//!  record ─▶ Gathered: by tablet, columns of inserted rows and VIDs of deleted ones
//!         ─▶ delta, as one commit with the number of the last ─▶ pages
//! ```
//!
//! 1. [`Gathered`] checks each record against what is committed and what it has gathered.
//! 2. [`Redo`] puts it into the delta when it is large, and the delta into pages when that is.
//! 3. [`recover`] does so with the whole log; [`LoggedPages`] are the page versions in it.
//!
//! Nobody reads between two commits while they are redone: a row that one of them inserted and another deleted is never
//! visible. Invariants: commits are redone in the order of the log, with its VIDs and numbers; one that does not fit is
//! an error that names its place. Source: rules 25 and 27.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cleave_catalog::catalog::{TableState, TabletState};
use cleave_catalog::error::Result;
use cleave_catalog::storage_error::StorageError;
use cleave_txn::{LogOptions, LogReader, Lsn, Record, Wal};
use prost::Message;

use super::redone_pages::LoggedPages;
use super::rows::RowsBuilder;
use super::{Committed, CommittedTablet, directory_of};
use crate::delta::Live;
use crate::storage_engine::Engine;
use crate::storage_engine::commit::{Changes, Redone};
use crate::storage_engine::log_keeper::RecordPages;
use crate::write::insert::TableChange;
use crate::write::vid_set::VidSet;

/// Rows inserted or deleted up to which commits are gathered.
const GATHERED_MAX: usize = 64 << 10;
/// Bytes of records up to which commits are gathered.
const GATHERED_BYTES_MAX: usize = 8 << 20;

/// The changes of consecutive commits.
pub struct Gathered {
    /// What is committed before them.
    live: Live,
    tablets: BTreeMap<(u32, usize), GatheredTablet>,
    /// Rows inserted or deleted.
    change_count: usize,
}

struct GatheredTablet {
    table: Arc<TableState>,
    tablet: Arc<TabletState>,
    /// The VID of the first inserted row.
    vid_first: u64,
    rows: RowsBuilder,
    dead: VidSet,
}

impl Gathered {
    /// Nothing yet, behind what `live` has.
    pub fn behind(live: Live) -> Self {
        Self { live, tablets: BTreeMap::new(), change_count: 0 }
    }

    /// Adds what `committed` says.
    ///
    /// # Errors
    /// A message about what does not fit; nothing is to be added behind that.
    pub fn push(&mut self, committed: Committed) -> Result<(), String> {
        for logged in committed.tables {
            let (id, version) = (logged.table_id, logged.schema_version);
            for tablet in logged.tablets {
                let place = usize::try_from(tablet.place).unwrap_or(usize::MAX);
                let gathered = match self.tablets.entry((id, place)) {
                    Entry::Occupied(known) => known.into_mut(),
                    Entry::Vacant(new) => new.insert(GatheredTablet::of(&self.live, id, place)?),
                };
                if gathered.table.schema.version != version {
                    return Err(lacks_table(id));
                }
                self.change_count += gathered.push(&self.live, place, tablet)?;
            }
        }
        Ok(())
    }

    /// All of it.
    ///
    /// # Errors
    /// A message about what does not fit.
    pub fn changes(self) -> Result<Vec<TableChange>, String> {
        let mut changes: BTreeMap<u32, TableChange> = BTreeMap::new();
        for ((id, place), mut gathered) in self.tablets {
            let change = changes.entry(id);
            let schema = &gathered.table.schema;
            let change = change.or_insert_with(|| TableChange::new(Arc::clone(schema)));
            if !gathered.dead.is_empty() {
                change.dead.insert(place, gathered.dead);
            }
            if gathered.rows.row_count() > 0 {
                change.rows.insert(place, gathered.rows.finish()?);
            }
        }
        Ok(changes.into_values().collect())
    }
}

impl GatheredTablet {
    fn of(live: &Live, id: u32, place: usize) -> Result<Self, String> {
        let table = live.state.tables().find(|table| table.schema.table_id == id);
        let table = table.ok_or_else(|| lacks_table(id))?;
        let Some(tablet) = table.tablets.get(place) else {
            let name = &table.schema.name;
            return Err(format!("it changes tablet {place} of \"{name}\", which has none such"));
        };
        Ok(Self {
            tablet: Arc::clone(tablet),
            vid_first: live.delta.next_vid(table, place),
            rows: RowsBuilder::new(table.schema.arrow()),
            dead: VidSet::default(),
            table: Arc::clone(table),
        })
    }

    /// Adds what a record says of it; returns how many rows are inserted or deleted.
    fn push(
        &mut self,
        live: &Live,
        place: usize,
        logged: CommittedTablet,
    ) -> Result<usize, String> {
        let name = &self.table.schema.name;
        let next_vid = self.vid_first + self.rows.row_count() as u64;
        if next_vid != logged.vid_first {
            return Err(format!(
                "its rows of \"{name}\" begin with VID {}, and the next one is {next_vid}",
                logged.vid_first
            ));
        }
        if !logged.pages.is_empty() {
            return Err(format!("the pages of \"{name}\" that it wrote are in no archive"));
        }
        let mut dead_count = 0;
        for vid in logged.dead() {
            dead_count += 1;
            let id = self.table.schema.table_id;
            let lived = match vid < self.vid_first {
                true => live.delta.lives(id, place, &self.tablet, vid, live.number),
                false => vid < next_vid,
            };
            if !lived || !self.dead.insert(vid) {
                return Err(format!("it ends VID {vid} of \"{name}\", which is not there"));
            }
        }
        if !logged.rows.is_empty() {
            self.rows.push(logged.rows)?;
        }
        let begun = self.vid_first + self.rows.row_count() as u64 - next_vid;
        Ok(dead_count + usize::try_from(begun).unwrap_or(usize::MAX))
    }
}

pub(super) fn lacks_table(id: u32) -> String {
    format!("it changes table {id}, which the manifest does not have so")
}

/// Commits of a log on their way into the delta.
pub struct Redo<'a> {
    database: &'a Arc<Engine>,
    /// Where the log lies.
    directory: PathBuf,
    /// None: there is nothing.
    gathered: Option<Gathered>,
    /// How many of them change something.
    commit_count: u64,
    byte_count: usize,
    /// Where the first of them lies.
    first_at: Lsn,
}

impl<'a> Redo<'a> {
    /// Of the log in `directory`.
    pub fn new(database: &'a Arc<Engine>, directory: &Path) -> Self {
        Self {
            database,
            directory: directory.to_owned(),
            gathered: None,
            commit_count: 0,
            byte_count: 0,
            first_at: Lsn(0),
        }
    }

    /// Where it redoes them.
    pub(super) fn database(&self) -> &Engine {
        self.database
    }

    /// Whether the next commits that are redone find the delta full, and write it as pages.
    pub(super) fn writes_pages_next(&self) -> bool {
        self.database.live().delta.is_full()
    }

    /// Decodes `payload`, of the record at `at`.
    ///
    /// # Errors
    /// [`StorageError::Damaged`].
    pub fn decode(&self, payload: &[u8], at: Lsn) -> Result<Committed> {
        Committed::decode(payload).map_err(|error| self.damaged(at, &error.to_string()).into())
    }

    /// Redoes the small commit whose record lies at `at`, now or with those behind it.
    ///
    /// # Errors
    /// [`StorageError::Damaged`] for a record that does not fit; those of the device.
    pub async fn push(&mut self, committed: Committed, at: Lsn) -> Result<()> {
        for sequence in &committed.sequences {
            self.database.sequences().recovered(&self.database.catalog(), sequence);
        }
        if committed.tables.is_empty() {
            return Ok(());
        }
        let gathered = self.gathered.get_or_insert_with(|| {
            self.first_at = at;
            Gathered::behind(self.database.live())
        });
        self.byte_count += committed.encoded_len();
        if let Err(reason) = gathered.push(committed) {
            return Err(self.damaged(at, &reason).into());
        }
        self.commit_count += 1;
        if gathered.change_count >= GATHERED_MAX || self.byte_count >= GATHERED_BYTES_MAX {
            self.finish().await?;
        }
        Ok(())
    }

    /// Redoes all commits that are still gathered.
    ///
    /// # Errors
    /// As [`Redo::push`].
    pub async fn finish(&mut self) -> Result<()> {
        let Some(gathered) = self.gathered.take() else { return Ok(()) };
        let (at, database) = (self.first_at, self.database);
        let changes = gathered.changes().map_err(|reason| self.damaged(at, &reason))?;
        let changes: Vec<&TableChange> = changes.iter().collect();
        let commit_count = std::mem::take(&mut self.commit_count);
        self.byte_count = 0;
        let redone = Redone { changes: &changes, commit_count, at: at.0 };
        database.commit(Changes::Redone(redone)).await?;
        Ok(())
    }

    /// The error of a record at `at` that does not fit what is there.
    pub fn damaged(&self, at: Lsn, reason: &str) -> StorageError {
        StorageError::Damaged {
            path: self.directory.clone(),
            reason: format!("the commit at {at} cannot be made again: {reason}"),
        }
    }
}

/// A log that was redone.
pub(crate) struct Recovered {
    /// It, which goes on behind its commits.
    pub(crate) log: Wal,
    /// How many these are.
    pub(crate) count: u64,
    /// Pages that they name, where these are to be [copied](crate::storage_engine::log_keeper::LogKeeper::copy_pages).
    pub(crate) pages: Vec<RecordPages>,
}

/// Redoes the commits that `reader` gives.
///
/// # Errors
/// [`StorageError::Log`]; [`StorageError::Damaged`] for a record that does not fit the manifest; those of the device.
pub(crate) async fn recover(database: &Arc<Engine>, mut reader: LogReader) -> Result<Recovered> {
    let mut count = 0_u64;
    let state = database.catalog();
    let blocked = &state.blocked;
    let mut pages = LoggedPages::new(database);
    let mut redo = Redo::new(database, &directory_of(database.directory()));
    while let Some(logged) = reader.next_record()? {
        let Record::Commit { payload, .. } = logged.record else { continue };
        let mut committed = redo.decode(&payload, logged.at)?;
        pages.take(&redo, &mut committed, logged.at)?;
        committed.tables.retain(|table| blocked.lacks(table.table_id, logged.at.0));
        if logged.at.0 < blocked.until {
            committed.sequences.clear();
            committed.forget_dead_in(&state);
        }
        if redo.writes_pages_next() {
            pages.look_ahead(&redo)?;
        }
        redo.push(committed, logged.at).await?;
        count += 1;
    }
    redo.finish().await?;
    let pages = pages.put(database).await?;
    Ok(Recovered { log: Wal::resume(reader, LogOptions::default())?, count, pages })
}
